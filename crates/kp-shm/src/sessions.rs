//! Which peer a learned session (`sticky learn`) is at: one bounded table for each zone, for all processes and generations.
//!
//! A session hashes to one bucket of a few entries; when they are taken, the one that was used longest ago gives way. An
//! entry is a check word (tag ^ peer), the peer's number and the time of its last use, so that what two writers mixed up
//! belongs to no session. Who is remembered for how long, and what a session is, is not decided here.

use crate::keyed::Secret;
use crate::peers::Key;
use crate::zones::{ZonePlan, Zones};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WAYS: usize = 8;
/// Cells of an entry.
pub(crate) const WIDTH: usize = 3;
/// Cells of a bucket.
pub(crate) const BUCKET: usize = WAYS * WIDTH;

const CHECK: usize = 0;
const PEER: usize = 1;
const USED: usize = 2;

/// The sessions of one zone.
#[derive(Debug, Clone, Copy)]
pub struct SessionZone {
    cells: &'static [AtomicU64],
    /// How often a session that was not old yet gave way.
    overflows: &'static AtomicU64,
    /// Clients name sessions, so nobody outside must know where a name lies.
    secret: Secret,
}

impl SessionZone {
    /// A zone of the configuration.
    pub fn new(zones: &Zones, plan: &ZonePlan) -> Self {
        let stretch = zones.stretch(plan);
        Self {
            cells: stretch.cells,
            overflows: stretch.overflows,
            secret: zones.secret(),
        }
    }

    /// The number that stands for the name of a peer in the table.
    pub fn number(name: &[u8]) -> u64 {
        Key::of(&[b"session peer", name]).folded()
    }

    /// The number of the peer that a session is at; nothing if it was last used at or before `since_ms`.
    pub fn peer(&self, session: &[u8], since_ms: u64) -> Option<u64> {
        let (tag, bucket) = self.place(session);
        bucket.chunks_exact(WIDTH).find_map(|entry| {
            let peer = entry[PEER].load(Relaxed);
            let known = entry[CHECK].load(Relaxed) ^ peer == tag;
            (known && entry[USED].load(Relaxed) > since_ms).then_some(peer)
        })
    }

    /// Remembers that a session is at a peer, and that it was used now. Those that were last used at or before `since_ms`
    /// are over.
    pub fn learn(&self, session: &[u8], peer: u64, now_ms: u64, since_ms: u64) {
        let (tag, bucket) = self.place(session);
        let own = bucket
            .chunks_exact(WIDTH)
            .find(|entry| entry[CHECK].load(Relaxed) ^ entry[PEER].load(Relaxed) == tag);
        let entry = own.or_else(|| {
            bucket
                .chunks_exact(WIDTH)
                .min_by_key(|entry| entry[USED].load(Relaxed))
        });
        if let Some(entry) = entry {
            if own.is_none() && is_living(entry, since_ms) {
                self.overflows.fetch_add(1, Relaxed);
            }
            entry[CHECK].store(tag ^ peer, Relaxed);
            entry[PEER].store(peer, Relaxed);
            entry[USED].store(now_ms, Relaxed);
        }
    }

    fn place(&self, session: &[u8]) -> (u64, &'static [AtomicU64]) {
        let hash = self.secret.hash(session);
        let buckets = self.cells.len() / BUCKET;
        let bucket = (hash as usize).checked_rem(buckets).unwrap_or(0);
        let bucket = self.cells.get(bucket * BUCKET..(bucket + 1) * BUCKET);
        // An entry that was never used has a check word and a peer of zero, which no tag is.
        (hash | 1 << 63, bucket.unwrap_or_default())
    }
}

/// Whether an entry is of a session that is not over.
pub(crate) fn is_living(entry: &[AtomicU64], since_ms: u64) -> bool {
    let used = entry.get(USED).map_or(0, |cell| cell.load(Relaxed));
    used > since_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shm, ZoneKind};

    fn zone(shm: &Shm, name: &str, bytes: u64) -> SessionZone {
        let plan = ZonePlan {
            key: Key::of(&[name.as_bytes()]),
            kind: ZoneKind::Sessions,
            bytes,
        };
        assert!(shm.zones().prepare(&plan, 1));
        SessionZone::new(&shm.zones(), &plan)
    }

    #[test]
    fn sessions_are_found_until_they_are_old() {
        let shm = Shm::private().unwrap();
        let (sessions, others) = (zone(&shm, "z", 32 << 10), zone(&shm, "y", 32 << 10));
        let (one, two) = (SessionZone::number(b"one"), SessionZone::number(b"two"));
        sessions.learn(b"s", one, 100, 0);
        assert_eq!(sessions.peer(b"s", 99), Some(one));
        assert_eq!(sessions.peer(b"s", 100), None);
        assert_eq!(others.peer(b"s", 0), None, "zones do not share");
        assert_eq!(sessions.peer(b"", 0), None);
        sessions.learn(b"s", two, 200, 0);
        assert_eq!(sessions.peer(b"s", 150), Some(two), "it moved");
        assert_eq!(zone(&shm, "z", 32 << 10).peer(b"s", 150), Some(two));
    }

    #[test]
    fn a_zone_is_as_large_as_it_says_and_its_oldest_give_way() {
        let shm = Shm::private().unwrap();
        let (sessions, others) = (zone(&shm, "z", 96 << 10), zone(&shm, "y", 32 << 10));
        others.learn(b"s", 5, 1, 0);
        let most: u64 = (96 << 10) / 24;
        for n in 1..=4 * most {
            sessions.learn(&n.to_le_bytes(), n, n, 0);
        }
        let lives = |range: std::ops::RangeInclusive<u64>| {
            range
                .filter(|n| sessions.peer(&n.to_le_bytes(), 0) == Some(*n))
                .count() as u64
        };
        assert!(lives(4 * most - 500..=4 * most) > 490, "the young stay");
        assert!(lives(1..=2 * most) < most / 20, "the old went");
        let all = lives(1..=4 * most);
        assert!(all <= most && all > most * 9 / 10, "{all} of {most}");
        assert_eq!(others.peer(b"s", 0), Some(5), "another zone keeps its own");
    }

    #[test]
    fn a_zone_without_memory_knows_nobody() {
        let shm = Shm::private().unwrap();
        let tiny = zone(&shm, "tiny", 8);
        tiny.learn(b"s", 1, 1, 0);
        assert_eq!(tiny.peer(b"s", 0), None);
    }
}
