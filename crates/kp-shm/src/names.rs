//! What names of upstreams resolved to: one row for each (name, service, resolver), found by every process and
//! generation, so that one of them asks and all of them know.
//!
//! A row has two buffers and a version that says which one holds: the writer fills the other one and then moves the
//! version. Each buffer carries a sum over the row's key and its contents, so that neither a writer that was killed, nor
//! one that was stopped past the end of its lease, nor a row that was given to another name can pass for an answer. When
//! to ask is written here and not decided here.

use crate::lease::Lease;
use crate::peers::Key;
use crate::scoreboard::Row;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};

const KEY: usize = 0;
const VERSION: usize = 1;
const DUE: usize = 2;
const STATE: usize = 3;
const LEASE: usize = 4;
const STAMP: usize = 5;
const BUFFERS: usize = 8;
/// A buffer: its sum, its length, three cells an address.
const BUFFER: usize = 2 + 3 * ADDRESSES_MAX;
const WIDTH: usize = BUFFERS + 2 * BUFFER;
/// Addresses of a name.
const ADDRESSES_MAX: usize = 64;

const ROWS: usize = 2048;
/// Rows looked at for one name.
const PROBES: usize = 64;
/// The header: a number that moves with every change, then one bit for each row that was ever used.
const EPOCH: usize = 0;
const OVERFLOWS: usize = 1;
const USED: usize = 2;
const HEADER: usize = USED + ROWS / 64;
/// A row that nobody has said to need for so long may go to another name.
const STALE_MS: u64 = 600_000;
/// The same for names that requests made: there may be ever new ones.
const ASKED_STALE_MS: u64 = 60_000;

/// One address of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameAddress {
    /// The address.
    pub address: IpAddr,
    /// The port of a service; 0: none was said.
    pub port: u16,
    /// The weight of a service's host; 0: none was said.
    pub weight: u16,
    /// The priority of a service's host: the lowest comes first.
    pub priority: u16,
    /// Twelve bits that tell a service's host from its others; 0: none were said.
    pub host: u16,
}

impl NameAddress {
    fn pack(self) -> [u64; 3] {
        let (bits, family) = match self.address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 4),
            IpAddr::V6(address) => (address.to_bits(), 6),
        };
        let rest = u64::from(self.port) << 48
            | u64::from(self.weight) << 32
            | u64::from(self.priority) << 16
            | u64::from(self.host & 0xfff) << 4
            | family;
        [(bits >> 64) as u64, bits as u64, rest]
    }

    fn unpack([high, low, rest]: [u64; 3]) -> Self {
        let bits = u128::from(high) << 64 | u128::from(low);
        Self {
            address: match rest & 0xf {
                6 => Ipv6Addr::from_bits(bits).into(),
                _ => Ipv4Addr::from_bits(bits as u32).into(),
            },
            port: (rest >> 48) as u16,
            weight: (rest >> 32) as u16,
            priority: (rest >> 16) as u16,
            host: (rest as u16) >> 4,
        }
    }
}

/// The table of names.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    header: &'static [AtomicU64],
    rows: &'static [AtomicU64],
    stale_ms: u64,
}

impl Names {
    pub(crate) const CELLS: usize = HEADER + ROWS * WIDTH;

    pub(crate) fn new(cells: &'static [AtomicU64]) -> Self {
        let (header, rows) = cells.split_at(HEADER.min(cells.len()));
        Self {
            header,
            rows,
            stale_ms: STALE_MS,
        }
    }

    /// A table for names that requests made: whoever finds no room goes without, and unused ones soon give way.
    pub(crate) fn of_requests(cells: &'static [AtomicU64]) -> Self {
        Self {
            stale_ms: ASKED_STALE_MS,
            ..Self::new(cells)
        }
    }

    /// Moves whenever a name's addresses change.
    pub fn epoch(&self) -> u64 {
        self.header[EPOCH].load(Acquire)
    }

    /// How many claims found no room.
    pub fn overflows(&self) -> u64 {
        self.header[OVERFLOWS].load(Relaxed)
    }

    /// The row of a name, found or made; one of this process alone where the table is full.
    pub fn claim(&self, key: Key, now_ms: u64) -> NameRow {
        let key = key.folded();
        let row = self.find_or_take(key, now_ms);
        if row.is_none() {
            self.header[OVERFLOWS].fetch_add(1, Relaxed);
        }
        let cells =
            row.unwrap_or_else(|| Vec::leak((0..WIDTH).map(|_| AtomicU64::new(0)).collect()));
        if row.is_none() {
            cells[KEY].store(key, Relaxed);
        }
        self.stamped(cells, key, now_ms)
    }

    /// The row of a name, found or made, if there is room.
    pub fn claim_shared(&self, key: Key, now_ms: u64) -> Option<NameRow> {
        let key = key.folded();
        let cells = self.find_or_take(key, now_ms)?;
        Some(self.stamped(cells, key, now_ms))
    }

    fn stamped(&self, cells: &'static [AtomicU64], key: u64, now_ms: u64) -> NameRow {
        let row = NameRow {
            cells,
            key,
            epoch: &self.header[EPOCH],
        };
        row.stamp(now_ms);
        row
    }

    /// A dead process asks nobody any more.
    pub(crate) fn reap(&self, process: Row) {
        for (word, bits) in self.header.iter().skip(USED).enumerate() {
            let bits = bits.load(Relaxed);
            for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                Lease::new(&self.row(word * 64 + bit)[LEASE]).reap(process);
            }
        }
    }

    fn find_or_take(&self, key: u64, now_ms: u64) -> Option<&'static [AtomicU64]> {
        let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let probes = || (0..PROBES).map(|step| (start + step) % ROWS);
        // A row that was taken meanwhile may have been taken for this name: the search begins anew.
        for _ in 0..PROBES {
            let seen = |index: &usize| self.row(*index)[KEY].load(Acquire);
            let mut first = None;
            for index in probes() {
                match seen(&index) {
                    found if found == key => return Some(self.row(index)),
                    0 => {
                        first.get_or_insert((index, 0));
                        break;
                    }
                    other => {
                        let stamp = self.row(index)[STAMP].load(Relaxed);
                        if first.is_none() && stamp.saturating_add(self.stale_ms) < now_ms {
                            first = Some((index, other));
                        }
                    }
                }
            }
            let (index, was) = first?;
            let row = self.row(index);
            self.header[USED + index / 64].fetch_or(1 << (index % 64), Relaxed);
            if row[KEY].compare_exchange(was, key, AcqRel, Acquire).is_ok() {
                row[DUE].store(0, Relaxed);
                row[STATE].store(0, Relaxed);
                return Some(row);
            }
        }
        None
    }

    fn row(&self, index: usize) -> &'static [AtomicU64] {
        &self.rows[index * WIDTH..][..WIDTH]
    }
}

/// The row of one name.
#[derive(Debug, Clone, Copy)]
pub struct NameRow {
    cells: &'static [AtomicU64],
    key: u64,
    epoch: &'static AtomicU64,
}

impl NameRow {
    /// Moves with every change of the addresses; 0: there were none yet.
    pub fn version(&self) -> u64 {
        self.cells[VERSION].load(Acquire)
    }

    /// The addresses and their version; `None`: there are none, or they are changing right now.
    pub fn read(&self) -> Option<(u64, Vec<NameAddress>)> {
        for _ in 0..3 {
            let version = self.version();
            if version == 0 || !self.is_mine() {
                return None;
            }
            let addresses = self.buffer(version);
            fence(Acquire);
            if self.cells[VERSION].load(Relaxed) == version {
                return Some((version, addresses?));
            }
        }
        None
    }

    /// Replaces the addresses that had this version; `false`: another process was faster.
    pub fn publish(&self, version: u64, addresses: &[NameAddress]) -> bool {
        let addresses = &addresses[..addresses.len().min(ADDRESSES_MAX)];
        let next = version + 1;
        let cells = self.buffer_cells(next);
        let mut sum = Sum::of(self.key);
        sum.add(addresses.len() as u64);
        for (place, address) in cells[2..].chunks_exact(3).zip(addresses) {
            for (cell, word) in place.iter().zip(address.pack()) {
                sum.add(word);
                cell.store(word, Relaxed);
            }
        }
        cells[1].store(addresses.len() as u64, Relaxed);
        cells[0].store(sum.0, Relaxed);
        let published = self.cells[VERSION]
            .compare_exchange(version, next, Release, Relaxed)
            .is_ok();
        self.epoch.fetch_add(1, Release);
        published
    }

    /// When it is to be looked up, monotonic; 0: now.
    pub fn due_ms(&self) -> u64 {
        self.cells[DUE].load(Acquire)
    }

    /// Sets when it is to be looked up.
    pub fn set_due_ms(&self, due_ms: u64) {
        self.cells[DUE].store(due_ms, Release);
    }

    /// How the last lookup ended, as a number of the caller's; 0: there was none.
    pub fn state(&self) -> u64 {
        self.cells[STATE].load(Relaxed)
    }

    /// Notes how a lookup ended; returns what was there before. Everybody is to look again.
    pub fn replace_state(&self, state: u64) -> u64 {
        let before = self.cells[STATE].swap(state, Relaxed);
        if before != state {
            self.epoch.fetch_add(1, Release);
        }
        before
    }

    /// Who looks it up.
    pub fn lease(&self) -> Lease {
        Lease::new(&self.cells[LEASE])
    }

    /// Says that it is needed.
    pub fn stamp(&self, now_ms: u64) {
        self.cells[STAMP].store(now_ms, Relaxed);
    }

    /// Whether it is still this name's: one that was not said to be needed for long may have gone to another.
    pub fn is_mine(&self) -> bool {
        self.cells[KEY].load(Acquire) == self.key
    }

    fn buffer_cells(&self, version: u64) -> &'static [AtomicU64] {
        &self.cells[BUFFERS + (version & 1) as usize * BUFFER..][..BUFFER]
    }

    fn buffer(&self, version: u64) -> Option<Vec<NameAddress>> {
        let cells = self.buffer_cells(version);
        let count = cells[1].load(Relaxed);
        let mut sum = Sum::of(self.key);
        sum.add(count);
        let count = usize::try_from(count)
            .ok()
            .filter(|count| *count <= ADDRESSES_MAX)?;
        let mut addresses = Vec::with_capacity(count);
        for place in cells[2..].chunks_exact(3).take(count) {
            let words = [0, 1, 2].map(|word| place[word].load(Relaxed));
            for word in words {
                sum.add(word);
            }
            addresses.push(NameAddress::unpack(words));
        }
        (cells[0].load(Relaxed) == sum.0).then_some(addresses)
    }
}

/// A sum over words in which their order counts.
struct Sum(u64);

impl Sum {
    fn of(key: u64) -> Self {
        let mut sum = Self(0x243f_6a88_85a3_08d3);
        sum.add(key);
        sum
    }

    fn add(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claimant, Shm};

    fn key(name: &str) -> Key {
        Key::of(&[b"name", name.as_bytes()])
    }

    fn address(last: u8) -> NameAddress {
        NameAddress {
            address: IpAddr::from([127, 0, 0, last]),
            port: 80,
            weight: 7,
            priority: 65_535,
            host: 0xfff,
        }
    }

    #[test]
    fn everybody_reads_what_one_published() {
        let names = Shm::private().unwrap().names();
        let (one, other) = (names.claim(key("a"), 1), names.claim(key("a"), 1));
        assert_eq!(one.read(), None);
        let epoch = names.epoch();
        let six = NameAddress {
            address: IpAddr::from([0xfd00, 1, 2, 3, 4, 5, 6, 7]),
            ..address(1)
        };
        assert!(one.publish(0, &[address(1), six]));
        assert_ne!(names.epoch(), epoch);
        assert_eq!(other.read(), Some((1, vec![address(1), six])));
        assert!(!other.publish(0, &[address(3)]), "another was faster");
        assert!(other.publish(1, &[]));
        assert_eq!(one.read(), Some((2, Vec::new())));
        assert_eq!(names.claim(key("b"), 1).read(), None);
    }

    #[test]
    fn a_torn_buffer_is_no_answer() {
        let names = Shm::private().unwrap().names();
        let row = names.claim(key("a"), 1);
        assert!(row.publish(0, &[address(1), address(2)]));
        row.buffer_cells(1)[3].store(99, Relaxed);
        assert_eq!(row.read(), None);
        assert!(row.publish(1, &[address(1)]));
        assert_eq!(row.read(), Some((2, vec![address(1)])));
    }

    #[test]
    fn more_addresses_than_there_is_room_for_are_cut() {
        let names = Shm::private().unwrap().names();
        let row = names.claim(key("a"), 1);
        let many: Vec<NameAddress> = (0..100).map(address).collect();
        assert!(row.publish(0, &many));
        assert_eq!(row.read(), Some((1, many[..64].to_vec())));
    }

    #[test]
    fn rows_are_found_again_and_stale_ones_are_reused() {
        let names = Shm::private().unwrap().names();
        let rows: Vec<NameRow> = (0..1500)
            .map(|name| names.claim(key(&name.to_string()), 1))
            .collect();
        for (name, row) in rows.iter().enumerate() {
            assert!(row.publish(0, &[address(name as u8)]));
        }
        for (name, row) in rows.iter().enumerate() {
            let again = names.claim(key(&name.to_string()), 1);
            assert_eq!(again.read(), row.read(), "{name}");
        }
        let overflows = names.overflows();
        let late = STALE_MS + 10;
        for name in 10_000..13_000 {
            assert_eq!(names.claim(key(&name.to_string()), late).read(), None);
        }
        assert!(
            rows.iter()
                .any(|row| !row.is_mine() && row.read().is_none())
        );
        assert!(
            names.overflows() > overflows,
            "the table is full of what is needed"
        );
    }

    #[test]
    fn names_that_requests_made_give_way_sooner_and_never_take_memory() {
        let names = Shm::private().unwrap().asked_names();
        let claim = |name: usize, now_ms| names.claim_shared(key(&name.to_string()), now_ms);
        let first = claim(0, 1).unwrap();
        let found = (1..5000).filter(|name| claim(*name, 1).is_some()).count();
        assert!((1000..ROWS).contains(&found), "{found}");
        let late = ASKED_STALE_MS + 10;
        first.stamp(late);
        assert!((5000..5100).all(|name| claim(name, late).is_some()));
        assert!(first.is_mine(), "it is needed");
    }

    #[test]
    fn a_dead_process_gives_its_lease_up() {
        let shm = Shm::private().unwrap();
        let (dead, alive) = (shm.scoreboard().claim(1, 0), shm.scoreboard().claim(1, 1));
        let row = shm.names().claim(key("a"), 1);
        assert!(row.lease().take(Claimant::new(dead, 7), 1, 100));
        assert!(!row.lease().take(Claimant::new(alive, 8), 2, 100));
        shm.reap(dead);
        assert!(row.lease().take(Claimant::new(alive, 8), 2, 100));
    }

    #[test]
    fn one_name_is_one_row_however_many_claim_it() {
        let names = Shm::private().unwrap().names();
        let rows: Vec<usize> = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..8)
                .map(|_| scope.spawn(move || names.claim(key("a"), 1).cells.as_ptr() as usize))
                .collect();
            claims
                .into_iter()
                .map(|claim| claim.join().unwrap())
                .collect()
        });
        assert!(rows.iter().all(|row| *row == rows[0]));
    }
}
