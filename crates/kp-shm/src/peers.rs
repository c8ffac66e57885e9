//! Facts about upstream peers, found by identity and used by every process and generation at once.
//!
//! A directory cell holds `tag | settled | row + 1` and is published by one compare-and-swap after the row carries its
//! key, so a reader never waits for a writer, dead or alive; a writer killed in between loses one row. Rows are handed
//! out densely, so that what few peers there are lies in few pages. What is decided from the facts (who is eligible, when
//! to try again) is not decided here.
//!
//! A row counts its users in one word, and every process notes in its share of the row how often it is one of them. Only a
//! row without users can be retired, by replacing that word's zero, so that a row in use never is; a process killed
//! between the two notes leaves a row that is never taken back. Cells of retired rows are used again. Two who insert the
//! same key at the same time could then settle in different cells, hence the two steps of [`Peers::insert`].

use crate::scoreboard::Row;
use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst,
};

const KEY_LOW: usize = 0;
const KEY_HIGH: usize = 1;
/// How many claims are held, or [`RETIRED`].
const USERS: usize = 2;
/// Of a free row: the next one + 1.
const NEXT: usize = 3;
/// The hot facts begin at a cache line of their own.
const CURRENT_WEIGHT: usize = 8;
const IN_FLIGHT: usize = 9;
const HEALTH: usize = 10;
const PENALTY: usize = 11;
const SLOW_START: usize = 12;
const EJECTION: usize = 13;
/// The average time of answers, and when the last of them came.
const LATENCY: usize = 14;
const ANSWERED: usize = 15;
/// On the line of the key, since only answers touch them: 5xx in a row, and two windows of answers.
const STREAK: usize = 4;
const WINDOWS: [usize; 2] = [5, 6];
const WIDTH: usize = 16;

/// Directory header: rows handed out so far, claims that found no room, and the first row that was taken back (`tag | row
/// + 1`; the tag grows with every change).
const USED: usize = 0;
const OVERFLOWS: usize = 1;
const FREE: usize = 2;
/// How many rows are on that list; a kill in between leaves it one off.
const FREED: usize = 3;
const HEADER: usize = 8;

/// A directory cell whose row was taken back; it may be used for another key.
const TOMB: u64 = 1 << 30;
/// The row of this cell is the only one of its key; without it somebody is still finding out.
const SETTLED: u64 = 1 << 31;
const ROW_MASK: u64 = TOMB - 1;
const TAG_MASK: u64 = 0xffff_ffff_0000_0000;
/// How many cells a key may lie away from where its search begins. At a quarter of the cells in use a run of this length
/// does not occur.
const PROBES: u64 = 128;
/// How often an insertion that is disturbed begins anew before it gives up.
const ATTEMPTS: u32 = 10_000;
/// Every so many attempts an insertion throws out whoever is before it, who may be dead.
const PATIENCE: u32 = 64;
/// How often a row that somebody has just found by mistake is looked at again before it is given up.
const STRAYS: u32 = 1000;

/// Users of a row that was taken back.
const RETIRED: u64 = u64::MAX;

/// A share holds connections in use below and claims above.
const CLAIM: u64 = 1 << 48;
const HELD_MASK: u64 = CLAIM - 1;

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

    /// 64 bits of it; never 0.
    pub(crate) fn folded(self) -> u64 {
        (self.low() ^ self.high().rotate_left(32)) | 1
    }

    pub(crate) fn low(self) -> u64 {
        self.0 as u64
    }

    pub(crate) fn high(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// What a directory cell says of it.
    fn tag(self) -> u64 {
        self.high() & TAG_MASK
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
        HEADER + 4 * peers
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
    /// given back when it dies, and the row is kept until [`Peers::leave`] or that death. A private row when the table is
    /// full, or for a process without a row of its own, which could not be given back; see [`Peers::overflows`].
    pub fn claim(&self, key: Key, process: Row) -> PeerRow {
        self.claim_shared(key, process)
            .unwrap_or_else(PeerRow::private)
    }

    /// The same without a private row, which can never be given back: for who has one left over.
    pub fn claim_shared(&self, key: Key, process: Row) -> Option<PeerRow> {
        let found = self
            .share(process, 0)
            .and_then(|_| self.find_or_insert(key));
        let found = found.and_then(|found| Some((found, self.share(process, found.row)?)));
        let Some((found, share)) = found else {
            self.header[OVERFLOWS].fetch_add(1, Relaxed);
            return None;
        };
        share.store(share.load(Relaxed).wrapping_add(CLAIM), Relaxed);
        Some(PeerRow {
            cells: self.cells(found.row),
            share: Some(share),
            shared: true,
            first: found.first,
        })
    }

    /// Ends a claim; the row must not be used any more. Nothing for a private row.
    pub fn leave(&self, row: PeerRow) {
        let Some(share) = row.share else { return };
        // A kill in between leaves one user too many, and thereby a row that is kept for ever.
        share.store(share.load(Relaxed).saturating_sub(CLAIM), Relaxed);
        let _ = row.cells[USERS].fetch_update(AcqRel, Acquire, |users| {
            (users != RETIRED).then(|| users.saturating_sub(1))
        });
    }

    /// Takes back the rows that had no user in this call and the one before, which `idle` remembers; returns how many.
    /// One process calls it, about once a minute: what is known of a peer that leaves and comes back within that time is
    /// not lost.
    pub fn reclaim(&self, idle: &mut Vec<bool>) -> usize {
        self.reclaim_with(idle, |_| {})
    }

    /// The same; `part` sees each row after its last user left and before anybody can be given it anew.
    pub(crate) fn reclaim_with(&self, idle: &mut Vec<bool>, part: impl Fn(usize)) -> usize {
        idle.resize(self.used(), false);
        let mut taken = 0;
        for (index, idle) in idle.iter_mut().enumerate() {
            // A row without a key is being made: its user is not counted yet.
            let made = self.cells(index)[KEY_HIGH].load(Acquire) != 0;
            let unused = made && self.cells(index)[USERS].load(Acquire) == 0;
            if unused && *idle && self.retire(index, &part) {
                taken += 1;
                *idle = false;
            } else {
                *idle = unused;
            }
        }
        taken
    }

    fn retire(&self, index: usize, part: impl Fn(usize)) -> bool {
        let cells = self.cells(index);
        if cells[USERS]
            .compare_exchange(0, RETIRED, SeqCst, Relaxed)
            .is_err()
        {
            return false;
        }
        let key = Key(u128::from(cells[KEY_HIGH].load(Relaxed)) << 64
            | u128::from(cells[KEY_LOW].load(Relaxed)));
        for cell in self.path(key) {
            let seen = cell.load(SeqCst);
            if seen & ROW_MASK == index as u64 + 1 {
                let _ = cell.compare_exchange(seen, TOMB, SeqCst, Relaxed);
            }
        }
        part(index);
        self.free(index);
        true
    }

    /// Gives back a row that its maker alone has, and that no cell names any more. Who saw such a cell may be a user for a
    /// moment; one that is killed in that moment costs the row.
    fn give_row(&self, index: usize) {
        let users = &self.cells(index)[USERS];
        for _ in 0..STRAYS {
            if users.compare_exchange(1, RETIRED, AcqRel, Relaxed).is_ok() {
                return self.free(index);
            }
            std::hint::spin_loop();
        }
    }

    /// Puts a retired row on the list of free ones.
    fn free(&self, index: usize) {
        let cells = self.cells(index);
        let _ = self.header[FREE].fetch_update(AcqRel, Acquire, |first| {
            cells[NEXT].store(first & ROW_MASK, Relaxed);
            Some(next_tag(first) | (index as u64 + 1))
        });
        self.header[FREED].fetch_add(1, Relaxed);
    }

    /// Takes a row from that list.
    fn free_row(&self) -> Option<usize> {
        let taken = self.header[FREE].fetch_update(AcqRel, Acquire, |first| {
            let index = (first & ROW_MASK).checked_sub(1)?;
            // Read before the row is ours: whoever was faster has changed the tag.
            let next = self.cells(index as usize)[NEXT].load(Relaxed) & ROW_MASK;
            Some(next_tag(first) | next)
        });
        let row = (taken.ok()? & ROW_MASK) as usize - 1;
        let _ = self.header[FREED].fetch_update(Relaxed, Relaxed, |freed| freed.checked_sub(1));
        Some(row)
    }

    /// How many claims found no room and were given a private row, which is worth a warning.
    pub fn overflows(&self) -> u64 {
        self.header[OVERFLOWS].load(Relaxed)
    }

    /// How many rows are left, about.
    pub fn room(&self) -> usize {
        let freed = self.header[FREED].load(Relaxed) as usize;
        (self.capacity - self.used()).saturating_add(freed.min(self.used()))
    }

    /// How many there are.
    pub fn capacity(&self) -> usize {
        self.capacity
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
            let share = share.swap(0, Relaxed);
            if share & HELD_MASK != 0 {
                self.cells(index)[IN_FLIGHT].fetch_sub(share & HELD_MASK, Relaxed);
            }
            if share >= CLAIM {
                let _ = self.cells(index)[USERS].fetch_update(AcqRel, Acquire, |users| {
                    (users != RETIRED).then(|| users.saturating_sub(share / CLAIM))
                });
            }
        }
    }

    /// Which row a claim is of; `None` for a private one.
    pub(crate) fn index_of(&self, row: &PeerRow) -> Option<usize> {
        let bytes = (row.cells.as_ptr() as usize).checked_sub(self.rows.as_ptr() as usize)?;
        let index = bytes / (WIDTH * size_of::<AtomicU64>());
        (row.shared && index < self.capacity).then_some(index)
    }

    /// Whose row it is; `None` while it is nobody's.
    pub(crate) fn key(&self, index: usize) -> Option<Key> {
        let cells = self.cells(index);
        let high = cells[KEY_HIGH].load(Acquire);
        let key = Key(u128::from(high) << 64 | u128::from(cells[KEY_LOW].load(Acquire)));
        (high != 0 && cells[USERS].load(Acquire) != RETIRED).then_some(key)
    }

    /// How often a process claims a row.
    pub(crate) fn claims(&self, process: Row, index: usize) -> u64 {
        self.share(process, index)
            .map_or(0, |share| share.load(Relaxed) / CLAIM)
    }

    /// In flight according to the total, and according to the shares of all processes.
    pub(crate) fn books(&self, index: usize, processes: usize) -> (i64, i64) {
        let total = self.cells(index)[IN_FLIGHT].load(Relaxed) as i64;
        let shares = self.shares.chunks_exact(self.capacity).take(processes);
        (
            total,
            shares
                .map(|process| (process[index].load(Relaxed) & HELD_MASK) as i64)
                .sum(),
        )
    }

    pub(crate) fn correct(&self, index: usize, by: i64) {
        self.cells(index)[IN_FLIGHT].fetch_sub(by as u64, Relaxed);
    }

    fn find_or_insert(&self, key: Key) -> Option<Found> {
        let mut fresh = None;
        for attempt in 1..=ATTEMPTS {
            let found = self.find(key);
            if found.is_some() {
                if let Some(row) = fresh {
                    self.give_row(row);
                }
                return found;
            }
            let row = match fresh {
                Some(row) => row,
                None => self.new_row(key)?,
            };
            fresh = Some(row);
            match self.insert(key, row, attempt % PATIENCE == 0) {
                Inserted::Settled => return Some(Found { row, first: true }),
                Inserted::Disturbed => {}
                Inserted::Full => break,
            }
        }
        if let Some(row) = fresh {
            self.give_row(row);
        }
        None
    }

    /// Where the row of this key is now, for a reader that looks at it without a claim.
    pub(crate) fn peek(&self, key: Key) -> Option<usize> {
        let seen = self
            .path(key)
            .map(|cell| cell.load(SeqCst))
            .take_while(|seen| *seen != 0);
        let mut rows = seen
            .filter(|seen| seen & TAG_MASK == key.tag() && seen & SETTLED != 0)
            .map(|seen| (seen & ROW_MASK) as usize - 1);
        rows.find(|row| self.has_key(*row, key))
    }

    /// A settled row of this key, with one more user.
    fn find(&self, key: Key) -> Option<Found> {
        for cell in self.path(key) {
            let seen = cell.load(SeqCst);
            if seen == 0 {
                return None;
            }
            if seen & TAG_MASK != key.tag() || seen & SETTLED == 0 {
                continue;
            }
            let row = (seen & ROW_MASK) as usize - 1;
            let users = &self.cells(row)[USERS];
            if !self.has_key(row, key) {
                continue;
            }
            let entered = users.fetch_update(AcqRel, Acquire, |users| {
                (users != RETIRED).then(|| users + 1)
            });
            let Ok(before) = entered else { continue };
            // It may have been taken back and given to another key before it had us as a user.
            if self.has_key(row, key) && cell.load(SeqCst) == seen {
                return Some(Found {
                    row,
                    first: before == 0,
                });
            }
            users.fetch_sub(1, AcqRel);
        }
        None
    }

    /// Gives the key's row a cell, in two steps. The first makes it visible to others who insert the same key; whoever
    /// sees another one that is not settled throws it out, or gives way if that lies before its own, which would else
    /// throw each other out for ever. The second settles it, unless it was thrown out or another one settled before. Of
    /// two at once the later sees the earlier. `impatient`: does not give way.
    fn insert(&self, key: Key, row: usize, impatient: bool) -> Inserted {
        let visible = key.tag() | (row as u64 + 1);
        let mut ours = None;
        for cell in self.path(key) {
            let seen = cell.load(SeqCst);
            if (seen == 0 || seen == TOMB)
                && cell
                    .compare_exchange(seen, visible, SeqCst, Relaxed)
                    .is_ok()
            {
                ours = Some(cell);
                break;
            }
        }
        let Some(ours) = ours else {
            return Inserted::Full;
        };
        let mut before_ours = true;
        for cell in self.path(key) {
            let seen = cell.load(SeqCst);
            before_ours &= !std::ptr::eq(cell, ours);
            if std::ptr::eq(cell, ours) || seen == 0 || seen & TAG_MASK != key.tag() || seen == TOMB
            {
                continue;
            }
            let row = (seen & ROW_MASK) as usize - 1;
            if !self.has_key(row, key) {
                continue;
            }
            let settled = seen & SETTLED != 0;
            if settled && self.cells(row)[USERS].load(SeqCst) == RETIRED {
                continue;
            }
            let give_way = settled || before_ours && !impatient;
            if give_way || cell.compare_exchange(seen, TOMB, SeqCst, Relaxed).is_err() {
                let _ = ours.compare_exchange(visible, TOMB, SeqCst, Relaxed);
                return Inserted::Disturbed;
            }
        }
        match ours.compare_exchange(visible, visible | SETTLED, SeqCst, Relaxed) {
            Ok(_) => Inserted::Settled,
            Err(_) => Inserted::Disturbed,
        }
    }

    /// The cells in which a key may lie, in order.
    fn path(&self, key: Key) -> impl Iterator<Item = &'static AtomicU64> + use<> {
        let (start, directory) = (key.start(), self.directory);
        (0..PROBES.min(directory.len() as u64))
            .map(move |step| &directory[((start + step) % directory.len() as u64) as usize])
    }

    /// A row nobody else has, empty, carrying its key and counting its maker as user.
    fn new_row(&self, key: Key) -> Option<usize> {
        let index = match self.free_row() {
            Some(index) => index,
            None => {
                let index = self.header[USED].fetch_update(AcqRel, Acquire, |used| {
                    (used < self.capacity as u64).then_some(used + 1)
                });
                index.ok()? as usize
            }
        };
        let cells = self.cells(index);
        // Its users go from retired to one without a moment of none, in which somebody who still follows an old cell to this
        // row would be counted and then forgotten.
        for (_, cell) in cells.iter().enumerate().filter(|(at, _)| *at != USERS) {
            cell.store(0, Relaxed);
        }
        cells[USERS].store(1, Release);
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

/// The tag of the list of free rows after this one.
fn next_tag(first: u64) -> u64 {
    (first & TAG_MASK).wrapping_add(1 << 32)
}

/// A row as a claim found it.
#[derive(Debug, Clone, Copy)]
struct Found {
    row: usize,
    /// Nobody used it before.
    first: bool,
}

/// How an insertion ended.
enum Inserted {
    Settled,
    /// Another one was at the same key; look again.
    Disturbed,
    /// No cell was free.
    Full,
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

/// How outlier detection has dealt with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ejection {
    /// How often it was ejected lately.
    pub times: u16,
    /// It is out, or its time has passed and nobody has noticed yet.
    pub out: bool,
    /// When its (last) ejection ends, monotonic.
    pub until_ms: u64,
}

impl Ejection {
    fn pack(self) -> u64 {
        Health {
            fails: self.times,
            on_trial: self.out,
            checked_ms: self.until_ms,
        }
        .pack()
    }

    fn unpack(word: u64) -> Self {
        let Health {
            fails,
            on_trial,
            checked_ms,
        } = Health::unpack(word);
        Self {
            times: fails,
            out: on_trial,
            until_ms: checked_ms,
        }
    }
}

/// Answers of a peer in the window of now and the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    /// Failures since the last success.
    pub in_a_row: u64,
    /// All of them.
    pub answers: u64,
    /// Those that were failures.
    pub failures: u64,
}

const COUNT_MASK: u64 = (1 << 20) - 1;
const WINDOW_MASK: u64 = (1 << 24) - 1;

/// The facts about one peer. Read-modify-write only on shared rows; a private row has one writer and pays for nothing.
#[derive(Debug, Clone, Copy)]
pub struct PeerRow {
    cells: &'static [AtomicU64],
    share: Option<&'static AtomicU64>,
    shared: bool,
    first: bool,
}

impl PeerRow {
    /// A row of this process only. It lives as long as the process, so ask once per peer and process.
    pub fn private() -> Self {
        Self {
            cells: Vec::leak((0..WIDTH).map(|_| AtomicU64::new(0)).collect()),
            share: None,
            shared: false,
            first: true,
        }
    }

    pub(crate) fn cells(&self) -> &'static [AtomicU64] {
        self.cells
    }

    /// Whether nobody used the row when it was claimed.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// Empties a private row for its next use; a shared one is not this process's to empty.
    pub fn clear_private(&self) {
        if !self.shared {
            for cell in self.cells {
                cell.store(0, Relaxed);
            }
        }
    }

    /// Connections in use by this process.
    pub fn held(&self) -> u64 {
        match self.share {
            Some(share) => share.load(Relaxed) & HELD_MASK,
            None => self.in_flight().max(0) as u64,
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
            let held = share.load(Relaxed);
            if held & HELD_MASK != 0 {
                share.store(held - 1, Relaxed);
            }
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

    /// When it began to be asked (again), little at first; 0: it always was.
    pub fn slow_start_ms(&self) -> u64 {
        self.cells[SLOW_START].load(Relaxed)
    }

    /// It is to be asked little at first, from now on.
    pub fn begin_slow_start(&self, now_ms: u64) {
        self.cells[SLOW_START].store(now_ms, Relaxed);
    }

    /// Until when outlier detection keeps it out, and how often it did; one word.
    pub fn ejection(&self) -> Ejection {
        Ejection::unpack(self.cells[EJECTION].load(Relaxed))
    }

    /// Replaces `old` by `new`; `false` if another process was faster.
    pub fn replace_ejection(&self, old: Ejection, new: Ejection) -> bool {
        self.cells[EJECTION]
            .compare_exchange(old.pack(), new.pack(), Relaxed, Relaxed)
            .is_ok()
    }

    /// The average time of its answers in sixteenths of a millisecond; 0: it has not answered yet.
    pub fn latency(&self) -> u64 {
        self.cells[LATENCY].load(Relaxed)
    }

    /// Takes another answer into the average, by a quarter.
    pub fn note_latency(&self, time_ms: u64, now_ms: u64) {
        let time = time_ms.min(1 << 40).saturating_mul(16).max(1);
        let _ = self.cells[LATENCY].fetch_update(Relaxed, Relaxed, |average| {
            Some(match average {
                0 => time,
                average => ((average.saturating_mul(3).saturating_add(time)) / 4).max(1),
            })
        });
        self.cells[ANSWERED].store(now_ms, Relaxed);
    }

    /// When its last answer came, or somebody went to see whether it is faster now.
    pub fn answered_ms(&self) -> u64 {
        self.cells[ANSWERED].load(Relaxed)
    }

    /// Goes to see; `false` if another process was faster.
    pub fn replace_answered(&self, old_ms: u64, now_ms: u64) -> bool {
        self.cells[ANSWERED]
            .compare_exchange(old_ms, now_ms, Relaxed, Relaxed)
            .is_ok()
    }

    /// Counts an answer into the window of this number, and returns the answers and failures of it and the window before,
    /// and how many failures came in a row.
    pub fn note_answer(&self, window: u64, failed: bool) -> Answers {
        let streak = &self.cells[STREAK];
        let in_a_row = if failed {
            streak.fetch_add(1, Relaxed) + 1
        } else {
            if streak.load(Relaxed) != 0 {
                streak.store(0, Relaxed);
            }
            0
        };
        let number = window & WINDOW_MASK;
        let cell = &self.cells[WINDOWS[(window & 1) as usize]];
        let next = |word: u64| {
            let fresh = if word >> 40 == number {
                word
            } else {
                number << 40
            };
            let full = fresh >> 20 & COUNT_MASK == COUNT_MASK;
            Some(if full {
                fresh
            } else {
                fresh + (1 << 20) + u64::from(failed)
            })
        };
        let (Ok(old) | Err(old)) = cell.fetch_update(Relaxed, Relaxed, next);
        let this = next(old).unwrap_or(0);
        let before = self.cells[WINDOWS[(window & 1 ^ 1) as usize]].load(Relaxed);
        let before = if before >> 40 == number.wrapping_sub(1) & WINDOW_MASK {
            before
        } else {
            0
        };
        Answers {
            in_a_row,
            answers: (this >> 20 & COUNT_MASK) + (before >> 20 & COUNT_MASK),
            failures: (this & COUNT_MASK) + (before & COUNT_MASK),
        }
    }

    /// Forgets the answers counted so far.
    pub fn forget_answers(&self) {
        for cell in [STREAK, WINDOWS[0], WINDOWS[1]] {
            self.cells[cell].store(0, Relaxed);
        }
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
    fn rows_that_nobody_uses_are_used_again() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let (kept, mut idle) = (Key::of(&[b"kept"]), Vec::new());
        shm.peers().claim(kept, process).advance(7);
        // Ten times as many addresses as there are rows.
        for n in 0..crate::SMALL.peers as u32 * 10 {
            let row = shm.peers().claim(Key::of(&[&n.to_le_bytes()]), process);
            assert!(
                row.is_shared() && row.is_first() && row.current_weight() == 0,
                "{n}"
            );
            row.advance(1);
            shm.peers().leave(row);
            if n % 4000 == 0 {
                shm.peers().reclaim(&mut idle);
            }
        }
        assert_eq!(shm.peers().overflows(), 0);
        let again = shm.peers().claim(kept, process);
        assert_eq!((again.current_weight(), again.is_first()), (7, false));
    }

    #[test]
    fn an_unused_row_is_kept_for_one_more_look() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let (key, mut idle) = (Key::of(&[b"u"]), Vec::new());
        let row = shm.peers().claim(key, process);
        row.advance(5);
        assert_eq!(
            (0..3)
                .map(|_| shm.peers().reclaim(&mut idle))
                .sum::<usize>(),
            0
        );
        shm.peers().leave(row);
        assert_eq!(shm.peers().reclaim(&mut idle), 0);
        let row = shm.peers().claim(key, process);
        assert_eq!((row.current_weight(), row.is_first()), (5, true));
        assert_eq!(shm.peers().reclaim(&mut idle), 0);
        shm.reap(process);
        assert_eq!(
            (
                shm.peers().reclaim(&mut idle),
                shm.peers().reclaim(&mut idle)
            ),
            (0, 1)
        );
        let process = shm.scoreboard().claim(1, 0);
        assert_eq!(shm.peers().claim(key, process).current_weight(), 0);
    }

    #[test]
    fn a_row_in_use_is_never_taken_back() {
        let shm = Shm::private().unwrap();
        let processes: Vec<Row> = (0..4).map(|slot| shm.scoreboard().claim(1, slot)).collect();
        let done = std::sync::atomic::AtomicBool::new(false);
        let holders: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            let workers: Vec<_> = processes
                .iter()
                .map(|process| {
                    let (shm, holders) = (&shm, &holders);
                    scope.spawn(move || {
                        for turn in 0..40_000u64 {
                            let n = (turn.wrapping_mul(0x9e37_79b9) >> 7) as usize % 8;
                            let row = shm.peers().claim(Key::of(&[&[n as u8]]), *process);
                            assert!(row.is_shared());
                            // One at a time by the row, and then nobody else may be here by another row.
                            if row.admit(1) {
                                assert_eq!(
                                    holders[n].fetch_add(1, SeqCst),
                                    0,
                                    "two rows of one key"
                                );
                                holders[n].fetch_sub(1, SeqCst);
                                row.release();
                            }
                            shm.peers().leave(row);
                        }
                    })
                })
                .collect();
            let (shm, stop) = (&shm, &done);
            let cleaner = scope.spawn(move || {
                let (mut idle, mut taken) = (Vec::new(), 0);
                while !stop.load(SeqCst) {
                    taken += shm.peers().reclaim(&mut idle);
                }
                taken
            });
            for worker in workers {
                worker.join().unwrap();
            }
            done.store(true, SeqCst);
            assert!(cleaner.join().unwrap() > 0);
        });
        let mut idle = Vec::new();
        shm.peers().reclaim(&mut idle);
        shm.peers().reclaim(&mut idle);
        let settled = shm
            .peers()
            .directory
            .iter()
            .filter(|cell| cell.load(SeqCst) & SETTLED != 0);
        assert_eq!((settled.count(), shm.peers().overflows()), (0, 0));
        assert!(shm.peers().used() < 100, "{}", shm.peers().used());
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
