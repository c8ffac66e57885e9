//! Facts about upstream peers, found by identity and used by every process and generation at once.
//!
//! A directory cell holds `tag | row + 1` and is published by one compare-and-swap after the row carries its key, so a
//! reader never waits for a writer, dead or alive; a writer killed in between loses one row. Rows are handed out densely,
//! so that what few peers there are lies in few pages. What is decided from the facts (who is eligible, when to try
//! again) is not decided here.

use crate::scoreboard::Row;
use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

const KEY_LOW: usize = 0;
const KEY_HIGH: usize = 1;
/// The hot facts begin at a cache line of their own.
const CURRENT_WEIGHT: usize = 8;
const IN_FLIGHT: usize = 9;
const HEALTH: usize = 10;
const PENALTY: usize = 11;
const WIDTH: usize = 16;

/// Directory header: rows handed out so far, claims that found no room.
const USED: usize = 0;
const OVERFLOWS: usize = 1;
const HEADER: usize = 8;

/// Identity of a peer: 128 bits over its names, equal in every process and generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u128);

impl Key {
    /// From the parts of the identity; their borders count. FNV-1a, 128 bits: configuration is not hostile.
    pub fn of(parts: &[&[u8]]) -> Self {
        const PRIME: u128 = (1 << 88) | 0x13b;
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for part in parts {
            for byte in (part.len() as u64).to_le_bytes().iter().chain(*part) {
                hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
            }
        }
        Self(hash)
    }

    /// Its bytes, to make it a part of another identity.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    fn low(self) -> u64 {
        self.0 as u64
    }

    fn high(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// Where the search begins; both halves take part because FNV's high bits alone mix slowly.
    fn start(self) -> u64 {
        (self.low() ^ self.high()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
    }
}

/// The table of peers.
#[derive(Debug, Clone, Copy)]
pub struct Peers {
    header: &'static [AtomicU64],
    directory: &'static [AtomicU64],
    rows: &'static [AtomicU64],
    shares: &'static [AtomicU64],
    capacity: usize,
}

impl Peers {
    pub(crate) fn directory_cells(peers: usize) -> usize {
        HEADER + 2 * peers
    }

    pub(crate) fn row_cells(peers: usize) -> usize {
        peers * WIDTH
    }

    pub(crate) fn new(
        capacity: usize,
        directory: &'static [AtomicU64],
        rows: &'static [AtomicU64],
        shares: &'static [AtomicU64],
    ) -> Self {
        let (header, directory) = directory.split_at(HEADER.min(directory.len()));
        Self {
            header,
            directory,
            rows,
            shares,
            capacity,
        }
    }

    /// The shared row of this identity, found or made. `process` is who will use it: its share of what is in flight is
    /// given back when it dies. A private row when the table is full, or for a process without a row of its own, which
    /// could not be given back; see [`Peers::overflows`].
    pub fn claim(&self, key: Key, process: Row) -> PeerRow {
        let found = self
            .find_or_insert(key)
            .and_then(|index| Some((index, self.share(process, index)?)));
        match found {
            Some((index, share)) => PeerRow {
                cells: self.cells(index),
                share: Some(share),
                shared: true,
            },
            None => {
                self.header[OVERFLOWS].fetch_add(1, Relaxed);
                PeerRow::private()
            }
        }
    }

    /// The cells of this identity's row, of which nobody has a share; `None` where the table is full.
    pub(crate) fn shared_cells(&self, key: Key) -> Option<&'static [AtomicU64]> {
        let found = self.find_or_insert(key);
        if found.is_none() {
            self.header[OVERFLOWS].fetch_add(1, Relaxed);
        }
        Some(self.cells(found?))
    }

    /// How many claims found no room and were given a private row, which is worth a warning.
    pub fn overflows(&self) -> u64 {
        self.header[OVERFLOWS].load(Relaxed)
    }

    /// Rows handed out so far.
    pub fn used(&self) -> usize {
        (self.header[USED].load(Acquire) as usize).min(self.capacity)
    }

    /// Subtracts what a dead process had in flight, once.
    pub(crate) fn reap(&self, process: Row) {
        for index in 0..self.used() {
            let Some(share) = self.share(process, index) else {
                return;
            };
            let held = share.swap(0, Relaxed);
            if held != 0 {
                self.cells(index)[IN_FLIGHT].fetch_sub(held, Relaxed);
            }
        }
    }

    /// In flight according to the total, and according to the shares of all processes.
    pub(crate) fn books(&self, index: usize, processes: usize) -> (i64, i64) {
        let total = self.cells(index)[IN_FLIGHT].load(Relaxed) as i64;
        let shares = self.shares.chunks_exact(self.capacity).take(processes);
        (
            total,
            shares
                .map(|process| process[index].load(Relaxed) as i64)
                .sum(),
        )
    }

    pub(crate) fn correct(&self, index: usize, by: i64) {
        self.cells(index)[IN_FLIGHT].fetch_sub(by as u64, Relaxed);
    }

    fn find_or_insert(&self, key: Key) -> Option<usize> {
        let tag = key.high() & 0xffff_ffff_0000_0000;
        let mut fresh = None;
        let mut step = 0;
        while step < self.directory.len() as u64 {
            let slot =
                &self.directory[((key.start() + step) % self.directory.len() as u64) as usize];
            let seen = slot.load(Acquire);
            if seen == 0 {
                let row = match fresh {
                    Some(row) => row,
                    None => self.new_row(key)?,
                };
                // Whoever loses the race looks at the same slot again and keeps the row it made for a later slot.
                if slot
                    .compare_exchange(0, tag | (row as u64 + 1), AcqRel, Acquire)
                    .is_ok()
                {
                    return Some(row);
                }
                fresh = Some(row);
                continue;
            }
            let row = (seen & 0xffff_ffff) as usize - 1;
            if seen & 0xffff_ffff_0000_0000 == tag && self.has_key(row, key) {
                return Some(row);
            }
            step += 1;
        }
        None
    }

    /// A row nobody else has, already carrying its key.
    fn new_row(&self, key: Key) -> Option<usize> {
        let index = self.header[USED].fetch_update(AcqRel, Acquire, |used| {
            (used < self.capacity as u64).then_some(used + 1)
        });
        let index = index.ok()? as usize;
        let cells = self.cells(index);
        cells[KEY_LOW].store(key.low(), Relaxed);
        cells[KEY_HIGH].store(key.high(), Release);
        Some(index)
    }

    fn has_key(&self, index: usize, key: Key) -> bool {
        let cells = self.cells(index);
        cells[KEY_HIGH].load(Acquire) == key.high() && cells[KEY_LOW].load(Relaxed) == key.low()
    }

    pub(crate) fn cells(&self, index: usize) -> &'static [AtomicU64] {
        &self.rows[index * WIDTH..][..WIDTH]
    }

    fn share(&self, process: Row, index: usize) -> Option<&'static AtomicU64> {
        self.shares
            .get(process.index().checked_mul(self.capacity)?..)?
            .get(index)
    }
}

/// When a peer failed last, how often, and whether it was tried since; one word, replaced as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Failures since it was last known to be well.
    pub fails: u16,
    /// It was chosen after `checked_ms` had run out and has not failed since: the next success clears `fails`.
    pub on_trial: bool,
    /// When it failed or a trial began, monotonic.
    pub checked_ms: u64,
}

const TIME_BITS: u32 = 47;

impl Health {
    fn pack(self) -> u64 {
        let time = self.checked_ms & ((1 << TIME_BITS) - 1);
        u64::from(self.fails) << 48 | u64::from(self.on_trial) << TIME_BITS | time
    }

    fn unpack(cell: u64) -> Self {
        Self {
            fails: (cell >> 48) as u16,
            on_trial: cell >> TIME_BITS & 1 == 1,
            checked_ms: cell & ((1 << TIME_BITS) - 1),
        }
    }
}

/// The facts about one peer. Read-modify-write only on shared rows; a private row has one writer and pays for nothing.
#[derive(Debug, Clone, Copy)]
pub struct PeerRow {
    cells: &'static [AtomicU64],
    share: Option<&'static AtomicU64>,
    shared: bool,
}

impl PeerRow {
    /// A row of this process only. It lives as long as the process, so ask once per peer and process.
    pub fn private() -> Self {
        Self {
            cells: Vec::leak((0..WIDTH).map(|_| AtomicU64::new(0)).collect()),
            share: None,
            shared: false,
        }
    }

    /// Whether other processes see it.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Adds to the current weight of smooth weighted round robin and returns the new value.
    pub fn advance(&self, by: i64) -> i64 {
        self.add(&self.cells[CURRENT_WEIGHT], by).wrapping_add(by)
    }

    /// The current weight.
    pub fn current_weight(&self) -> i64 {
        self.cells[CURRENT_WEIGHT].load(Relaxed) as i64
    }

    /// Connections in use by all processes. Signed: what a repair takes back may briefly be missing.
    pub fn in_flight(&self) -> i64 {
        self.cells[IN_FLIGHT].load(Relaxed) as i64
    }

    /// Takes one place in flight unless `max` are taken already; 0 = no limit. Exact over all processes.
    pub fn admit(&self, max: u32) -> bool {
        let cell = &self.cells[IN_FLIGHT];
        if max == 0 || !self.shared {
            if max != 0 && self.in_flight() >= i64::from(max) {
                return false;
            }
            self.add(cell, 1);
        } else {
            let below =
                |taken: u64| ((taken as i64) < i64::from(max)).then(|| taken.wrapping_add(1));
            if cell.fetch_update(Relaxed, Relaxed, below).is_err() {
                return false;
            }
        }
        // The total is raised first and lowered last: a kill in between leaves it too high, which Repair can see.
        if let Some(share) = self.share {
            share.store(share.load(Relaxed).wrapping_add(1), Relaxed);
        }
        true
    }

    /// Gives one place back.
    pub fn release(&self) {
        if let Some(share) = self.share {
            share.store(share.load(Relaxed).saturating_sub(1), Relaxed);
        }
        self.add(&self.cells[IN_FLIGHT], -1);
    }

    /// When it failed and how often.
    pub fn health(&self) -> Health {
        Health::unpack(self.cells[HEALTH].load(Relaxed))
    }

    /// Replaces `old` by `new`; `false` if another process was faster.
    pub fn replace_health(&self, old: Health, new: Health) -> bool {
        self.cells[HEALTH]
            .compare_exchange(old.pack(), new.pack(), Relaxed, Relaxed)
            .is_ok()
    }

    /// By how much failures have lowered the weight.
    pub fn penalty(&self) -> u64 {
        self.cells[PENALTY].load(Relaxed)
    }

    /// Replaces the penalty; `false` if another process was faster.
    pub fn replace_penalty(&self, old: u64, new: u64) -> bool {
        self.cells[PENALTY]
            .compare_exchange(old, new, Relaxed, Relaxed)
            .is_ok()
    }

    fn add(&self, cell: &AtomicU64, by: i64) -> i64 {
        if self.shared {
            return cell.fetch_add(by as u64, Relaxed) as i64;
        }
        let old = cell.load(Relaxed);
        cell.store(old.wrapping_add(by as u64), Relaxed);
        old as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;
    use std::collections::HashSet;

    #[test]
    fn an_identity_has_one_row() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let keys: Vec<Key> = (0..500u32)
            .map(|n| Key::of(&[b"u", b"z", format!("10.0.0.1:{n}").as_bytes()]))
            .collect();
        for (index, key) in keys.iter().enumerate() {
            shm.peers().claim(*key, process).advance(index as i64);
        }
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(
                shm.peers().claim(*key, process).current_weight(),
                index as i64
            );
        }
        assert_eq!((shm.peers().used(), shm.peers().overflows()), (500, 0));
    }

    #[test]
    fn borders_of_parts_count() {
        let keys = [
            &[&b"ab"[..], b"c"][..],
            &[b"a", b"bc"],
            &[b"abc"],
            &[b"", b"abc"],
            &[b"abc", b""],
        ];
        assert_eq!(
            keys.iter()
                .map(|parts| Key::of(parts))
                .collect::<HashSet<_>>()
                .len(),
            keys.len()
        );
    }

    #[test]
    fn racing_claims_agree() {
        let shm = Shm::private().unwrap();
        let rows: Vec<Row> = (0..4).map(|slot| shm.scoreboard().claim(1, slot)).collect();
        std::thread::scope(|scope| {
            for row in &rows {
                scope.spawn(|| {
                    for n in 0..2000u32 {
                        shm.peers()
                            .claim(Key::of(&[&n.to_le_bytes()]), *row)
                            .advance(1);
                    }
                });
            }
        });
        for n in 0..2000u32 {
            assert_eq!(
                shm.peers()
                    .claim(Key::of(&[&n.to_le_bytes()]), rows[0])
                    .current_weight(),
                4,
                "peer {n}"
            );
        }
    }

    #[test]
    fn a_full_table_gives_private_rows_and_says_so() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        for n in 0..crate::SMALL.peers as u32 {
            assert!(
                shm.peers()
                    .claim(Key::of(&[&n.to_le_bytes()]), process)
                    .is_shared()
            );
        }
        let key = Key::of(&[b"one too many"]);
        assert!(!shm.peers().claim(key, process).is_shared());
        assert!(
            shm.peers()
                .claim(Key::of(&[&7u32.to_le_bytes()]), process)
                .is_shared()
        );
        assert_eq!(shm.peers().overflows(), 1);
    }

    #[test]
    fn a_process_without_a_row_shares_nothing() {
        let shm = Shm::private().unwrap();
        assert!(
            !shm.peers()
                .claim(Key::of(&[b"u"]), Row::PRIVATE)
                .is_shared()
        );
        assert_eq!(shm.peers().overflows(), 1);
    }

    #[test]
    fn the_dead_give_back_what_they_held_once() {
        let shm = Shm::private().unwrap();
        let key = Key::of(&[b"u"]);
        let (dead, alive) = (shm.scoreboard().claim(1, 0), shm.scoreboard().claim(1, 1));
        let (its, ours) = (shm.peers().claim(key, dead), shm.peers().claim(key, alive));
        assert!(its.admit(3) && its.admit(3) && ours.admit(3) && !ours.admit(3));
        shm.reap(dead);
        assert_eq!(ours.in_flight(), 1);
        shm.reap(dead);
        assert_eq!(ours.in_flight(), 1);
        ours.release();
        assert_eq!(ours.in_flight(), 0);
    }

    #[test]
    fn max_conns_is_never_exceeded() {
        let shm = Shm::private().unwrap();
        let key = Key::of(&[b"u"]);
        let most = AtomicU64::new(0);
        let held = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for slot in 0..4 {
                let peer = shm.peers().claim(key, shm.scoreboard().claim(1, slot));
                let (most, held) = (&most, &held);
                scope.spawn(move || {
                    for _ in 0..50_000 {
                        if peer.admit(2) {
                            most.fetch_max(held.fetch_add(1, Relaxed) + 1, Relaxed);
                            held.fetch_sub(1, Relaxed);
                            peer.release();
                        }
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.load(Relaxed)), "{most:?}");
        assert_eq!(
            shm.peers()
                .claim(key, shm.scoreboard().claim(1, 9))
                .in_flight(),
            0
        );
    }

    #[test]
    fn health_is_one_word() {
        let row = PeerRow::private();
        let old = row.health();
        assert_eq!(
            old,
            Health {
                fails: 0,
                on_trial: false,
                checked_ms: 0
            }
        );
        let new = Health {
            fails: u16::MAX,
            on_trial: true,
            checked_ms: (1 << 47) - 1,
        };
        assert!(row.replace_health(old, new));
        assert_eq!(row.health(), new);
        assert!(!row.replace_health(old, new));
        let later = Health {
            fails: 1,
            on_trial: false,
            checked_ms: 5,
        };
        assert!(row.replace_health(new, later));
        assert_eq!(row.health(), later);
    }
}
