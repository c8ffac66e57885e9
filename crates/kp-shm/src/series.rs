//! Labelled series: what is counted for each virtual host, upstream group and peer.
//!
//! A series is found by its labels in a directory like that of the peers, one for each kind, so that many names of one kind
//! leave room for the others. Every process has a block of cells for each series, which it alone writes; a reader makes one
//! value of all blocks. Like plain counters the numbers of the dead go on with the next owner of their process row, and
//! their gauges are zeroed. Who finds no room counts in the kind's series `other`.
//!
//! A series that no process has used for a while is taken back by the master, and its cells are zeroed before anybody gets
//! them. Its labels are gone then, as Prometheus expects of what is no more; moving its counts to another series would look
//! like a burst of requests there. They are kept in a sum for each kind, so that [`Series::family`] never goes back.

mod cells;
mod texts;

pub use cells::{
    BOUNDS_MS, BUCKETS, CellKind, CellSpec, Histogram, PeerCell, PeerFlag, SeriesCell, SeriesKind,
    ServerCell, UpstreamCell,
};

use crate::peers::{Key, PeerRow, Peers};
use crate::scoreboard::{Row, Scoreboard};
use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};

/// Cells of a series in one process: six cache lines.
const WIDTH: usize = 48;
/// The label values of a series that stands for those that found no room.
const OTHER: &str = "other";
/// Claims of a process that count in `other`: below those that found no room, above those that are called so.
const NAMED: u64 = 1 << 32;
/// How often a sum is taken anew that the master disturbed by taking rows back.
const PATIENCE: u32 = 64;

type Cells = [AtomicU64; WIDTH];

/// Where somebody writes who has no row; of this process alone, since it is not shared.
static NOBODY: Cells = [const { AtomicU64::new(0) }; WIDTH];

/// How many series of each kind there can be, by [`SeriesKind`].
pub(crate) type Capacities = [usize; 3];

/// Names a series as long as it is one; a later series in its place has another index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeriesIndex(u64);

impl SeriesIndex {
    const OTHER_ROW: u64 = 0xff_ffff;

    fn new(kind: SeriesKind, row: Option<usize>, key: Key) -> Self {
        let row = row.map_or(Self::OTHER_ROW, |row| row as u64);
        Self(u64::from(tag(key)) << 32 | (kind as u64) << 24 | row)
    }

    fn kind(self) -> SeriesKind {
        match self.0 >> 24 & 0xff {
            0 => SeriesKind::Server,
            1 => SeriesKind::Upstream,
            _ => SeriesKind::Peer,
        }
    }

    /// `None` for the kind's `other`.
    fn row(self) -> Option<usize> {
        let row = self.0 & 0xff_ffff;
        (row != Self::OTHER_ROW).then_some(row as usize)
    }

    fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// What an index says of the identity, never 0.
fn tag(key: Key) -> u32 {
    (key.folded() >> 32) as u32 | 1
}

/// A series, for readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesInfo {
    /// Names it.
    pub index: SeriesIndex,
    /// What it is about.
    pub kind: SeriesKind,
    /// Values of the labels, in the order of [`SeriesKind::labels`].
    pub labels: Vec<String>,
}

/// All series.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    scoreboard: Scoreboard,
    tables: [Peers; 3],
    capacities: Capacities,
    texts: &'static [AtomicU64],
    blocks: &'static [AtomicU64],
    /// For each process and kind how many of its claims found no room.
    strays: &'static [AtomicU64],
    /// How often the master began and ended to take rows back.
    folds: &'static AtomicU64,
}

/// What the master remembers between two calls of [`Series::reclaim`].
#[derive(Debug, Default)]
pub struct IdleSeries([Vec<bool>; 3]);

impl Series {
    /// Places of a process: the series of all kinds, and their `other`s.
    fn places(capacities: Capacities) -> usize {
        capacities.iter().sum::<usize>() + capacities.len()
    }

    /// One block more than processes: what the master keeps of series that are gone.
    pub(crate) fn block_cells(processes: usize, capacities: Capacities) -> usize {
        (processes + 1) * Self::places(capacities) * WIDTH
    }

    pub(crate) fn text_cells(capacities: Capacities) -> usize {
        Self::places(capacities) * texts::WORDS
    }

    pub(crate) fn stray_cells(processes: usize) -> usize {
        processes * 8 + 1
    }

    pub(crate) fn new(
        scoreboard: Scoreboard,
        tables: [Peers; 3],
        capacities: Capacities,
        texts: &'static [AtomicU64],
        blocks: &'static [AtomicU64],
        strays: &'static [AtomicU64],
    ) -> Self {
        Self {
            scoreboard,
            tables,
            capacities,
            texts,
            blocks,
            strays: &strays[1..],
            folds: &strays[0],
        }
    }

    /// The cells of a series, found or made, for this process to write; kept until [`Series::leave`] or its death. Labels
    /// as in [`SeriesKind::labels`]; a long one is cut. The kind's `other` where the table is full.
    pub fn claim(&self, kind: SeriesKind, labels: &[&str], process: Row) -> SeriesRow {
        let labels: Vec<String> = labels.iter().map(|label| texts::bounded(label)).collect();
        let table = &self.tables[kind as usize];
        let key = key_of(kind, &labels);
        let is_other = labels.iter().all(|label| label == OTHER);
        let stray = if is_other { NAMED } else { 1 };
        let row = (!is_other && self.has(process))
            .then(|| table.claim_shared(key, process))
            .flatten();
        let at = row.and_then(|row| table.index_of(&row));
        if let Some(at) = at
            && let Some(words) = self.text(kind, Some(at))
        {
            texts::write(words, &labels, tag(key));
        }
        if at.is_none()
            && let Some(strays) = self.stray(process, kind)
        {
            strays.store(strays.load(Relaxed).wrapping_add(stray), Relaxed);
        }
        SeriesRow {
            cells: self.block(process.index(), kind, at).unwrap_or(&NOBODY),
            index: at.map_or_else(|| other(kind), |at| SeriesIndex::new(kind, Some(at), key)),
            claim: row,
            stray,
            process,
        }
    }

    /// Ends a claim; the row must not be used any more. What this process held there is over.
    pub fn leave(&self, row: SeriesRow) {
        let kind = row.index.kind();
        let table = &self.tables[kind as usize];
        match row.claim.zip(row.index.row()) {
            Some((claim, at)) => {
                if table.claims(row.process, at) <= 1 {
                    zero_held(row.cells, kind);
                }
                table.leave(claim);
            }
            None => {
                let Some(strays) = self.stray(row.process, kind) else {
                    return;
                };
                let left = strays.load(Relaxed).saturating_sub(row.stray);
                if left == 0 {
                    zero_held(row.cells, kind);
                }
                strays.store(left, Relaxed);
            }
        }
    }

    /// Every series that is in use or was lately; `other` where something found no room.
    pub fn rows(&self) -> impl Iterator<Item = SeriesInfo> + use<> {
        let series = *self;
        SeriesKind::ALL.into_iter().flat_map(move |kind| {
            let table = series.tables[kind as usize];
            let rows = (0..table.used()).filter_map(move |at| {
                let key = table.key(at)?;
                series.info(SeriesIndex::new(kind, Some(at), key))
            });
            let other = series.is_crowded(kind).then(|| other_info(kind));
            rows.chain(other)
        })
    }

    /// The series of an index, if it is still there.
    pub fn info(&self, index: SeriesIndex) -> Option<SeriesInfo> {
        let kind = index.kind();
        let Some(at) = index.row() else {
            return Some(other_info(kind));
        };
        let words = self.text(kind, Some(at))?;
        let labels = texts::read(words, kind.labels().len(), index.tag())?;
        self.is_there(index).then_some(SeriesInfo {
            index,
            kind,
            labels,
        })
    }

    /// The series of these labels, if somebody has claimed it.
    pub fn find(&self, kind: SeriesKind, labels: &[&str]) -> Option<SeriesInfo> {
        self.rows()
            .find(|info| info.kind == kind && info.labels == labels)
    }

    /// All values of a series over all processes.
    pub fn totals(&self, index: SeriesIndex) -> Totals {
        let (kind, mut cells) = (index.kind(), [0u64; WIDTH]);
        let youngest = self.youngest(index);
        for process in 0..self.scoreboard.used() {
            let Some(block) = self.block(process, kind, index.row()) else {
                break;
            };
            for ((sum, cell), cell_kind) in cells.iter_mut().zip(block).zip(kinds(kind)) {
                let value = cell.load(Relaxed);
                match cell_kind {
                    CellKind::Counter | CellKind::Gauge => *sum = sum.wrapping_add(value),
                    CellKind::Moment | CellKind::Failure => *sum = value.max(*sum),
                    CellKind::Setting | CellKind::Flags if youngest == Some(process) => {
                        *sum = value;
                    }
                    CellKind::Setting | CellKind::Flags => {}
                }
            }
        }
        Totals { cells }
    }

    /// One value of a series over all processes.
    pub fn total(&self, index: SeriesIndex, cell: impl SeriesCell) -> u64 {
        self.totals(index).value(cell)
    }

    /// The value of one process.
    pub fn value(&self, process: Row, index: SeriesIndex, cell: impl SeriesCell) -> u64 {
        self.block(process.index(), index.kind(), index.row())
            .map_or(0, |block| block[cell.place()].load(Relaxed))
    }

    /// A counter over all series of its kind, those included that are gone.
    pub fn family(&self, kind: SeriesKind, cell: impl SeriesCell) -> u64 {
        let places = self.capacities[kind as usize].min(self.tables[kind as usize].used());
        let mut sum = 0u64;
        for _ in 0..PATIENCE {
            let before = self.folds.load(Acquire);
            sum = 0;
            for process in (0..self.scoreboard.used()).chain([self.keeper()]) {
                for at in (0..places).map(Some).chain([None]) {
                    if let Some(block) = self.block(process, kind, at) {
                        sum = sum.wrapping_add(block[cell.place()].load(Relaxed));
                    }
                }
            }
            fence(Acquire);
            if before.is_multiple_of(2) && self.folds.load(Relaxed) == before {
                break;
            }
        }
        sum
    }

    /// How many claims of the living found no room and count in `other`.
    pub fn strays(&self) -> u64 {
        let cells = self.strays.chunks_exact(8).take(self.scoreboard.used());
        let strays = cells.flatten().map(|cell| cell.load(Relaxed) % NAMED);
        strays.sum()
    }

    /// Whether a kind has found no room, or will soon: what nobody uses should then be taken back sooner.
    pub fn is_scarce(&self) -> bool {
        let scarce = |(table, capacity): (&Peers, &usize)| {
            // The other half is to last until those who leave are noticed.
            let enough = |rows: usize| rows * 2 > *capacity;
            let in_use = || (0..table.used()).filter(|at| table.key(*at).is_some());
            enough(table.used()) && enough(in_use().count())
        };
        self.strays() > 0 || self.tables.iter().zip(&self.capacities).any(scarce)
    }

    /// Takes back the series that had no user in this call and the one before; returns how many. The master calls it,
    /// every few minutes, so that the last values of a series are seen before it is gone.
    pub fn reclaim(&self, idle: &mut IdleSeries) -> usize {
        let mut taken = 0;
        for (kind, idle) in SeriesKind::ALL.into_iter().zip(&mut idle.0) {
            taken += self.tables[kind as usize].reclaim_with(idle, |at| self.fold(kind, at));
        }
        taken
    }

    /// Moves the counts of a series that nobody uses to the sum of its kind, and empties it.
    fn fold(&self, kind: SeriesKind, at: usize) {
        let Some(kept) = self.block(self.keeper(), kind, None) else {
            return;
        };
        self.folds.fetch_add(1, AcqRel);
        fence(Release);
        if let Some(header) = self.text(kind, Some(at)).and_then(<[AtomicU64]>::first) {
            header.store(0, Relaxed);
        }
        for process in 0..self.scoreboard.used() {
            let Some(block) = self.block(process, kind, Some(at)) else {
                break;
            };
            for ((kept, cell), cell_kind) in kept.iter().zip(block).zip(kinds(kind)) {
                if *cell_kind == CellKind::Counter {
                    let sum = kept.load(Relaxed).wrapping_add(cell.load(Relaxed));
                    kept.store(sum, Relaxed);
                }
                cell.store(0, Relaxed);
            }
        }
        self.folds.fetch_add(1, AcqRel);
    }

    /// What a dead process held is over, and it uses no series any more.
    pub(crate) fn reap(&self, process: Row) {
        for kind in SeriesKind::ALL {
            let table = &self.tables[kind as usize];
            let used = (0..table.used()).filter(|at| table.claims(process, *at) > 0);
            let strays = self.stray(process, kind);
            let other = strays
                .filter(|strays| strays.swap(0, Relaxed) > 0)
                .map(|_| None);
            for at in used.map(Some).chain(other) {
                if let Some(block) = self.block(process.index(), kind, at) {
                    zero_held(block, kind);
                }
            }
            table.reap(process);
        }
    }

    fn is_crowded(&self, kind: SeriesKind) -> bool {
        let blocks = (0..self.scoreboard.used()).filter_map(|at| self.block(at, kind, None));
        let mut strays = self.strays.iter().skip(kind as usize).step_by(8);
        strays.any(|cell| cell.load(Relaxed) != 0)
            || blocks.flatten().any(|cell| cell.load(Relaxed) != 0)
    }

    /// The process whose settings count: of the youngest generation, and of these the one that looked last.
    fn youngest(&self, index: SeriesIndex) -> Option<usize> {
        // `other` stands for many, of which each process has some: nothing it says of one is true of all.
        if index.kind() != SeriesKind::Peer || index.row().is_none() {
            return None;
        }
        let looked = |process: usize| {
            let block = self.block(process, SeriesKind::Peer, index.row())?;
            let looked_ms = block[PeerCell::Looked.place()].load(Relaxed);
            let generation = self.scoreboard.process(Row::at(process))?.generation;
            (looked_ms != 0).then_some((generation, looked_ms))
        };
        let processes = (0..self.scoreboard.used()).filter(|at| looked(*at).is_some());
        processes.max_by_key(|at| looked(*at))
    }

    /// Whether the index still names a series: values that were read before were that series'.
    pub fn is_there(&self, index: SeriesIndex) -> bool {
        fence(Acquire);
        if index.row().is_none() {
            return true;
        }
        let table = &self.tables[index.kind() as usize];
        let key = index.row().and_then(|at| table.key(at));
        key.is_some_and(|key| tag(key) == index.tag())
    }

    fn has(&self, process: Row) -> bool {
        process.index() < self.keeper()
    }

    /// The number of the block of what is gone, behind those of the processes.
    fn keeper(&self) -> usize {
        self.blocks.len() / (Self::places(self.capacities) * WIDTH) - 1
    }

    fn place(&self, kind: SeriesKind, row: Option<usize>) -> usize {
        let before = self.capacities.iter().take(kind as usize);
        let first = before.map(|capacity| capacity + 1).sum::<usize>();
        first + row.map_or(0, |row| row + 1)
    }

    fn block(
        &self,
        process: usize,
        kind: SeriesKind,
        row: Option<usize>,
    ) -> Option<&'static Cells> {
        let places = Self::places(self.capacities);
        let first = process.checked_mul(places)? + self.place(kind, row);
        self.blocks.get(first.checked_mul(WIDTH)?..)?.first_chunk()
    }

    fn text(&self, kind: SeriesKind, row: Option<usize>) -> Option<&'static [AtomicU64]> {
        let first = self.place(kind, row) * texts::WORDS;
        self.texts.get(first..first + texts::WORDS)
    }

    fn stray(&self, process: Row, kind: SeriesKind) -> Option<&'static AtomicU64> {
        self.strays
            .get(process.index().checked_mul(8)? + kind as usize)
    }
}

fn key_of(kind: SeriesKind, labels: &[String]) -> Key {
    let own: &[u8] = &[kind as u8];
    let labels = labels.iter().map(String::as_bytes);
    Key::of(&std::iter::once(own).chain(labels).collect::<Vec<_>>())
}

fn other(kind: SeriesKind) -> SeriesIndex {
    SeriesIndex::new(kind, None, Key::of(&[OTHER.as_bytes()]))
}

fn other_info(kind: SeriesKind) -> SeriesInfo {
    SeriesInfo {
        index: other(kind),
        kind,
        labels: kind.labels().iter().map(|_| OTHER.to_owned()).collect(),
    }
}

/// How the cells of a row are read; those behind the table, which are of histograms, are counters.
const fn kinds_of(table: &[CellSpec]) -> [CellKind; WIDTH] {
    let (mut kinds, mut at) = ([CellKind::Counter; WIDTH], 0);
    while at < table.len() {
        kinds[at] = table[at].kind;
        at += 1;
    }
    kinds
}

static KINDS: [[CellKind; WIDTH]; 3] = [
    kinds_of(ServerCell::TABLE),
    kinds_of(UpstreamCell::TABLE),
    kinds_of(PeerCell::TABLE),
];

fn kinds(kind: SeriesKind) -> &'static [CellKind; WIDTH] {
    &KINDS[kind as usize]
}

/// Empties what is not a counter.
fn zero_held(block: &Cells, kind: SeriesKind) {
    for (spec, cell) in kind.cells().iter().zip(block) {
        if !matches!(spec.kind, CellKind::Counter | CellKind::Failure) {
            cell.store(0, Relaxed);
        }
    }
}

/// The cells of a series in one process, written by it alone.
#[derive(Debug, Clone, Copy)]
pub struct SeriesRow {
    cells: &'static Cells,
    index: SeriesIndex,
    claim: Option<PeerRow>,
    /// What it adds to the strays of its process, where it has no claim.
    stray: u64,
    process: Row,
}

impl SeriesRow {
    /// Cells that nobody reads.
    pub fn nobody(kind: SeriesKind) -> Self {
        Self {
            cells: &NOBODY,
            index: other(kind),
            claim: None,
            stray: 1,
            process: Row::PRIVATE,
        }
    }

    /// What names the series.
    pub fn index(&self) -> SeriesIndex {
        self.index
    }

    /// `by` more.
    #[inline]
    pub fn add(&self, cell: impl SeriesCell, by: u64) {
        let cell = &self.cells[cell.place()];
        cell.store(cell.load(Relaxed).wrapping_add(by), Relaxed);
    }

    /// One more.
    #[inline]
    pub fn increment(&self, cell: impl SeriesCell) {
        self.add(cell, 1);
    }

    /// One less; for gauges.
    #[inline]
    pub fn decrement(&self, cell: impl SeriesCell) {
        let cell = &self.cells[cell.place()];
        cell.store(cell.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// Sets a gauge, a setting, flags or a moment.
    #[inline]
    pub fn set(&self, cell: impl SeriesCell, value: u64) {
        self.cells[cell.place()].store(value, Relaxed);
    }

    /// What this process wrote, its row's former owners included.
    #[inline]
    pub fn value(&self, cell: impl SeriesCell) -> u64 {
        self.cells[cell.place()].load(Relaxed)
    }

    /// Takes a time into a histogram.
    #[inline]
    pub fn observe_ms(&self, histogram: Histogram, ms: u64) {
        let first = histogram.place();
        for (at, by) in [(first + Histogram::bucket(ms), 1), (first + BUCKETS, ms)] {
            if let Some(cell) = self.cells.get(at) {
                cell.store(cell.load(Relaxed).wrapping_add(by), Relaxed);
            }
        }
    }

    /// Notes what went wrong at a peer: the index of the reason, and when, by the monotonic clock.
    pub fn note_failure(&self, reason: u8, now_unix_ms: u64) {
        self.set(
            PeerCell::LastFailure,
            LastFailure {
                reason,
                at_unix_ms: now_unix_ms,
            }
            .pack(),
        );
    }
}

/// What went wrong at a peer last; one word, of which the largest is the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastFailure {
    /// Index of the reason.
    pub reason: u8,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

impl LastFailure {
    fn pack(self) -> u64 {
        self.at_unix_ms.max(1) << 8 | u64::from(self.reason)
    }
}

/// The values of a series over all processes.
#[derive(Debug, Clone)]
pub struct Totals {
    cells: [u64; WIDTH],
}

impl Totals {
    /// One of them.
    pub fn value(&self, cell: impl SeriesCell) -> u64 {
        self.cells[cell.place()]
    }

    /// Of the cell at this place of its kind's table; 0 where there is none.
    pub fn at(&self, place: usize) -> u64 {
        self.cells.get(place).copied().unwrap_or(0)
    }

    /// A histogram.
    pub fn histogram(&self, histogram: Histogram) -> HistogramTotal {
        let cells = self.cells.get(histogram.place()..).unwrap_or_default();
        let (buckets, sum) = cells.split_first_chunk().unwrap_or((&[0; BUCKETS], &[]));
        HistogramTotal {
            buckets: *buckets,
            sum_ms: sum.first().copied().unwrap_or(0),
        }
    }

    /// What went wrong at the peer last.
    pub fn last_failure(&self) -> Option<LastFailure> {
        let word = self.value(PeerCell::LastFailure);
        (word != 0).then_some(LastFailure {
            reason: word as u8,
            at_unix_ms: word >> 8,
        })
    }
}

/// A histogram over all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramTotal {
    /// How many there were in each bucket, not in those before; their ends are [`BOUNDS_MS`].
    pub buckets: [u64; BUCKETS],
    /// All of it together.
    pub sum_ms: u64,
}

impl HistogramTotal {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Upper ends in milliseconds, `None` for the last, with how many there were up to each: as Prometheus has buckets.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let ends = BOUNDS_MS.into_iter().map(Some).chain([None]);
        let sums = self.buckets.into_iter().scan(0u64, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        ends.zip(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;

    fn server(shm: &Shm, name: &str, process: Row) -> SeriesRow {
        shm.series().claim(SeriesKind::Server, &[name], process)
    }

    fn names(shm: &Shm) -> Vec<String> {
        let mut names: Vec<_> = shm
            .series()
            .rows()
            .map(|info| info.labels.join(" "))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_series_is_the_sum_of_all_processes_and_outlives_them() {
        let shm = Shm::private().unwrap();
        let [one, two] = [0, 1].map(|slot| shm.scoreboard().claim(1, slot));
        let peer = |process| {
            shm.series()
                .claim(SeriesKind::Peer, &["u", "127.0.0.1:80"], process)
        };
        let (a, b) = (peer(one), peer(two));
        assert_eq!(a.index(), b.index());
        a.add(PeerCell::Attempts2xx, 3);
        b.increment(PeerCell::Attempts2xx);
        a.increment(PeerCell::InFlight);
        b.increment(PeerCell::InFlight);
        a.observe_ms(Histogram::Head, 3);
        b.observe_ms(Histogram::Head, 40_000);
        a.note_failure(7, 100);
        b.note_failure(9, 99);
        a.set(PeerCell::RestingUntil, 500);
        b.set(PeerCell::RestingUntil, 400);
        let totals = shm.series().totals(a.index());
        assert_eq!(totals.value(PeerCell::Attempts2xx), 4);
        assert_eq!(totals.value(PeerCell::InFlight), 2);
        assert_eq!(totals.value(PeerCell::RestingUntil), 500);
        let last = totals.last_failure().unwrap();
        assert_eq!((last.reason, last.at_unix_ms), (7, 100));
        let head = totals.histogram(Histogram::Head);
        assert_eq!((head.count(), head.sum_ms), (2, 40_003));
        let ends: Vec<_> = head.cumulative().collect();
        assert_eq!((ends[1], ends[2]), ((Some(2), 0), (Some(5), 1)));
        assert_eq!(ends.last(), Some(&(None, 2)));

        shm.reap(one);
        let totals = shm.series().totals(a.index());
        let [attempts, in_flight, resting] = [
            PeerCell::Attempts2xx,
            PeerCell::InFlight,
            PeerCell::RestingUntil,
        ]
        .map(|cell| totals.value(cell));
        assert_eq!((attempts, in_flight, resting), (4, 1, 400));
        let next = peer(shm.scoreboard().claim(2, 0));
        next.increment(PeerCell::Attempts2xx);
        assert_eq!(
            next.value(PeerCell::Attempts2xx),
            4,
            "its row's numbers go on"
        );
        assert_eq!(shm.series().total(a.index(), PeerCell::Attempts2xx), 5);
    }

    #[test]
    fn settings_are_those_of_the_youngest_generation_that_looked_last() {
        let shm = Shm::private().unwrap();
        let say = |generation, looked_ms, weight| {
            let process = shm.scoreboard().claim(generation, 0);
            let row = shm.series().claim(SeriesKind::Peer, &["u", "a"], process);
            row.set(PeerCell::Looked, looked_ms);
            row.set(PeerCell::Weight, weight);
            (process, row)
        };
        let (_, row) = say(1, 900, 1000);
        let weight = || shm.series().total(row.index(), PeerCell::Weight);
        assert_eq!(weight(), 1000);
        let (second, _) = say(2, 300, 2000);
        assert_eq!(weight(), 2000);
        let (_, third) = say(2, 301, 3000);
        assert_eq!(weight(), 3000);
        shm.series().leave(third);
        assert_eq!(weight(), 2000);
        shm.reap(second);
        assert_eq!(weight(), 1000);
    }

    #[test]
    fn an_unused_series_goes_and_its_place_begins_at_nothing() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let kept = server(&shm, "kept", process);
        let left = server(&shm, "left", process);
        let again = server(&shm, "left", process);
        left.add(ServerCell::Requests5xx, 5);
        kept.add(ServerCell::Requests5xx, 2);
        left.observe_ms(Histogram::Total, 3);
        let mut idle = IdleSeries::default();
        shm.series().leave(left);
        for _ in 0..3 {
            assert_eq!(shm.series().reclaim(&mut idle), 0, "it is claimed twice");
        }
        shm.series().leave(again);
        assert_eq!(shm.series().reclaim(&mut idle), 0, "not at once");
        assert_eq!(shm.series().info(left.index()).unwrap().labels, ["left"]);
        assert_eq!(shm.series().reclaim(&mut idle), 1);
        assert_eq!(
            (names(&shm), shm.series().info(left.index())),
            (vec!["kept".to_owned()], None)
        );
        let family = || {
            shm.series()
                .family(SeriesKind::Server, ServerCell::Requests5xx)
        };
        assert_eq!(family(), 7, "what it counted is not forgotten");
        let new = server(&shm, "new", process);
        assert_eq!((new.value(ServerCell::Requests5xx), family()), (0, 7));
        assert_ne!(new.index(), left.index());
        assert_eq!(
            shm.series().info(left.index()),
            None,
            "its place is another's now"
        );
        let head = shm.series().totals(new.index()).histogram(Histogram::Total);
        assert_eq!((head.count(), head.sum_ms), (0, 0));
        assert_eq!(names(&shm), ["kept", "new"]);
    }

    #[test]
    fn who_finds_no_room_is_counted_as_other() {
        let shm = Shm::private().unwrap();
        let (process, dying) = (shm.scoreboard().claim(1, 0), shm.scoreboard().claim(1, 1));
        let mut rows = Vec::new();
        while shm.series().strays() < 3 {
            let row = server(&shm, &format!("n{}", rows.len()), process);
            row.increment(ServerCell::Requests2xx);
            rows.push(row);
        }
        server(&shm, "more", dying).increment(ServerCell::Requests2xx);
        let other = shm.series().find(SeriesKind::Server, &["other"]).unwrap();
        assert_eq!(shm.series().total(other.index, ServerCell::Requests2xx), 4);
        let sum = rows.len() as u64 + 1;
        assert_eq!(
            shm.series()
                .family(SeriesKind::Server, ServerCell::Requests2xx),
            sum
        );
        assert_eq!(
            server(&shm, "other", process).index(),
            other.index,
            "it is one series"
        );
        assert_eq!(shm.series().strays(), 4, "which is no lack of room");
        shm.reap(dying);
        assert_eq!(shm.series().strays(), 3);
        let group = shm.series().claim(SeriesKind::Upstream, &["u"], process);
        assert_ne!(
            group.index(),
            other.index,
            "other kinds have room of their own"
        );
        for row in rows.iter().rev().take(2) {
            shm.series().leave(*row);
        }
        assert_eq!(shm.series().strays(), 1);
    }

    /// Of the peers in `other` one is down and another is not.
    #[test]
    fn nothing_is_said_of_the_state_of_many() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let row = shm
            .series()
            .claim(SeriesKind::Peer, &["other", "other"], process);
        for cell in [PeerCell::Looked, PeerCell::Weight, PeerCell::Flags] {
            row.set(cell, 1);
        }
        row.increment(PeerCell::InFlight);
        let totals = shm.series().totals(row.index());
        let said = [PeerCell::Looked, PeerCell::Weight, PeerCell::Flags];
        assert_eq!(said.map(|cell| totals.value(cell)), [0; 3]);
        assert_eq!(totals.value(PeerCell::InFlight), 1);
        shm.series().leave(row);
        assert_eq!(shm.series().total(row.index(), PeerCell::InFlight), 0);
    }

    #[test]
    fn leaving_ends_what_was_held_and_no_more() {
        let shm = Shm::private().unwrap();
        let [one, two] = [0, 1].map(|slot| shm.scoreboard().claim(1, slot));
        let claim = |process| shm.series().claim(SeriesKind::Peer, &["u", "a"], process);
        let (a, b) = (claim(one), claim(two));
        for row in [a, b] {
            row.increment(PeerCell::Idle);
            row.increment(PeerCell::Connects);
        }
        shm.series().leave(a);
        let totals = shm.series().totals(b.index());
        assert_eq!(
            (
                totals.value(PeerCell::Idle),
                totals.value(PeerCell::Connects)
            ),
            (1, 2)
        );
    }

    #[test]
    fn a_process_without_a_row_counts_for_nobody() {
        let shm = Shm::private().unwrap();
        let row = server(&shm, "a", Row::PRIVATE);
        row.increment(ServerCell::Requests2xx);
        shm.series().leave(row);
        SeriesRow::nobody(SeriesKind::Peer).increment(PeerCell::Connects);
        assert_eq!((names(&shm).len(), shm.series().strays()), (0, 0));
    }

    #[test]
    fn labels_that_are_too_long_are_bounded_and_stay_apart() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        for end in ["1", "2", "1"] {
            server(&shm, &("x".repeat(5000) + end), process);
        }
        let names = names(&shm);
        assert_eq!(names.len(), 2);
        assert!(
            names
                .iter()
                .all(|name| name.len() <= 240 && name.contains('~'))
        );
    }
}
