//! Which peer a learned session (`sticky learn`) is at: one bounded table for all processes, generations and zones.
//!
//! A session hashes to one bucket of a few entries; when they are taken, the one that was used longest ago gives way. An
//! entry is a check word (tag ^ peer), the peer's number and the time of its last use, so that what two writers mixed up
//! belongs to no session. Who is remembered for how long, and what a session is, is not decided here.

use crate::peers::Key;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WAYS: usize = 8;
const WIDTH: usize = 3;
const BUCKETS: usize = 1 << 15;
/// The first cells hold the seed.
const HEADER: usize = 8;

const CHECK: usize = 0;
const PEER: usize = 1;
const USED: usize = 2;

/// The table.
#[derive(Debug, Clone, Copy)]
pub struct Sessions {
    cells: &'static [AtomicU64],
}

impl Sessions {
    pub(crate) const CELLS: usize = HEADER + BUCKETS * WAYS * WIDTH;

    /// `seed`: clients name sessions, so nobody outside must know where a name lies.
    pub(crate) fn new(cells: &'static [AtomicU64], seed: u64) -> Self {
        if let Some(cell) = cells.first() {
            cell.store(seed, Relaxed);
        }
        Self { cells }
    }

    /// The number that stands for the name of a peer in the table.
    pub fn number(name: &[u8]) -> u64 {
        halves(Key::of(&[b"session peer", name])).0
    }

    /// The number of the peer that a session is at; nothing if it was last used at or before `since_ms`.
    pub fn peer(&self, zone: &str, session: &[u8], since_ms: u64) -> Option<u64> {
        let (tag, bucket) = self.place(zone, session);
        bucket.chunks_exact(WIDTH).find_map(|entry| {
            let peer = entry[PEER].load(Relaxed);
            let known = entry[CHECK].load(Relaxed) ^ peer == tag;
            (known && entry[USED].load(Relaxed) > since_ms).then_some(peer)
        })
    }

    /// Remembers that a session is at a peer, and that it was used now.
    pub fn learn(&self, zone: &str, session: &[u8], peer: u64, now_ms: u64) {
        let (tag, bucket) = self.place(zone, session);
        let own = bucket
            .chunks_exact(WIDTH)
            .find(|entry| entry[CHECK].load(Relaxed) ^ entry[PEER].load(Relaxed) == tag);
        let entry = own.or_else(|| {
            bucket
                .chunks_exact(WIDTH)
                .min_by_key(|entry| entry[USED].load(Relaxed))
        });
        if let Some(entry) = entry {
            entry[CHECK].store(tag ^ peer, Relaxed);
            entry[PEER].store(peer, Relaxed);
            entry[USED].store(now_ms, Relaxed);
        }
    }

    fn place(&self, zone: &str, session: &[u8]) -> (u64, &'static [AtomicU64]) {
        let seed = self.cells.first().map_or(0, |cell| cell.load(Relaxed));
        let key = Key::of(&[&seed.to_le_bytes(), zone.as_bytes(), session]);
        let (tag, rest) = halves(key);
        let start = HEADER + (rest as usize % BUCKETS) * WAYS * WIDTH;
        let bucket = self.cells.get(start..start + WAYS * WIDTH);
        // An entry that was never used has a check word and a peer of zero.
        (tag | 1, bucket.unwrap_or_default())
    }
}

/// Two mixed words of a key.
fn halves(key: Key) -> (u64, u64) {
    let whole = u128::from_le_bytes(key.to_bytes());
    let mix = |word: u64| (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let (low, high) = (whole as u64, (whole >> 64) as u64);
    (mix(low ^ high.rotate_left(32)), mix(high ^ low) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;

    #[test]
    fn sessions_are_found_until_they_are_old() {
        let sessions = Shm::private().unwrap().sessions();
        let (one, two) = (Sessions::number(b"one"), Sessions::number(b"two"));
        sessions.learn("z", b"s", one, 100);
        assert_eq!(sessions.peer("z", b"s", 99), Some(one));
        assert_eq!(sessions.peer("z", b"s", 100), None);
        assert_eq!(sessions.peer("y", b"s", 0), None, "zones do not share");
        assert_eq!(sessions.peer("z", b"", 0), None);
        sessions.learn("z", b"s", two, 200);
        assert_eq!(sessions.peer("z", b"s", 150), Some(two), "it moved");
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_give_way() {
        let sessions = Shm::private().unwrap().sessions();
        let most = (BUCKETS * WAYS) as u64;
        for n in 1..=2 * most {
            sessions.learn("z", &n.to_le_bytes(), n, n);
        }
        let lives = |range: std::ops::RangeInclusive<u64>| {
            range
                .filter(|n| sessions.peer("z", &n.to_le_bytes(), 0) == Some(*n))
                .count() as u64
        };
        assert!(lives(2 * most - 1000..=2 * most) > 990, "the young stay");
        assert!(lives(1..=most) < most / 3, "the old went");
    }
}
