//! One row per process: who it is and how far it has come.
//!
//! The master claims and frees rows; the process itself only moves its own state on. Rows of dead processes are taken
//! again, lowest first, so that sums over rows stay short.

use kp_sys::clock;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

const STATE: usize = 0;
const PID: usize = 1;
const GENERATION: usize = 2;
const SLOT: usize = 3;
const BORN: usize = 4;
const CHANGED: usize = 5;
const TURNED: usize = 6;
/// A cache line.
const WIDTH: usize = 8;
/// Before the rows: how many of them were ever taken, so that nobody walks (and thereby allocates) the others.
const HEADER: usize = 8;
/// A loop turns at least this often, whether there is something to do or not.
pub const TURN_EVERY_MS: u64 = 1000;
/// One that has not turned for so long does nothing for its connections: the process was stopped, or something holds it up.
const STUCK_MS: u64 = 5000;

/// Index of a process row in every table that has one row per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row(u32);

impl Row {
    /// The row of a process that found no room: it counts for itself and is seen by nobody.
    pub const PRIVATE: Self = Self(u32::MAX);

    /// The row of a table index.
    pub(crate) fn at(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The table index; out of range for [`Row::PRIVATE`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Forked, not yet serving.
    Starting = 1,
    /// Serving.
    Ready = 2,
    /// Finishing what it has, accepting nothing new.
    Draining = 3,
    /// Done, about to exit.
    Gone = 4,
}

impl State {
    fn decode(cell: u64) -> Option<Self> {
        [Self::Starting, Self::Ready, Self::Draining, Self::Gone]
            .into_iter()
            .find(|state| *state as u64 == cell)
    }
}

/// What the scoreboard says about one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its row.
    pub row: Row,
    /// How far it has come.
    pub state: State,
    /// Its process id; 0 until it or the master recorded it.
    pub pid: u32,
    /// The configuration it runs.
    pub generation: u32,
    /// Its worker slot.
    pub slot: u32,
    /// When it was forked, by the monotonic clock.
    pub born_ms: u64,
    /// When it came into its state.
    pub since_ms: u64,
    /// When its loop began to turn last.
    pub turned_ms: u64,
}

impl Process {
    /// For how long its loop has not turned, where that is too long.
    pub fn stuck_ms(&self, now_ms: u64) -> Option<u64> {
        let turns = matches!(self.state, State::Ready | State::Draining);
        let still_ms = now_ms.saturating_sub(self.turned_ms);
        (turns && still_ms >= STUCK_MS).then_some(still_ms)
    }
}

/// The table of processes.
#[derive(Debug, Clone, Copy)]
pub struct Scoreboard {
    used: &'static AtomicU64,
    rows: &'static [AtomicU64],
}

impl Scoreboard {
    pub(crate) fn cells(processes: usize) -> usize {
        HEADER + processes * WIDTH
    }

    pub(crate) fn new(cells: &'static [AtomicU64]) -> Self {
        Self {
            used: &cells[0],
            rows: &cells[HEADER..],
        }
    }

    /// Takes the lowest free row for a process about to be forked; [`Row::PRIVATE`] when all are taken, which deserves
    /// a warning.
    pub fn claim(&self, generation: u32, slot: u32) -> Row {
        for (index, row) in self.rows.chunks_exact(WIDTH).enumerate() {
            if row[STATE]
                .compare_exchange(0, State::Starting as u64, Relaxed, Relaxed)
                .is_ok()
            {
                row[PID].store(0, Relaxed);
                row[GENERATION].store(generation.into(), Relaxed);
                row[SLOT].store(slot.into(), Relaxed);
                let now_ms = clock::monotonic_ms();
                row[BORN].store(now_ms, Relaxed);
                row[CHANGED].store(now_ms, Relaxed);
                row[TURNED].store(now_ms, Relaxed);
                self.used.fetch_max(index as u64 + 1, Relaxed);
                return Row(index as u32);
            }
        }
        Row::PRIVATE
    }

    /// Records the process id.
    pub fn set_pid(&self, row: Row, pid: u32) {
        if let Some(cells) = self.row(row) {
            cells[PID].store(pid.into(), Relaxed);
        }
    }

    /// Records how far the process has come.
    pub fn set_state(&self, row: Row, state: State) {
        if let Some(cells) = self.row(row) {
            let now_ms = clock::monotonic_ms();
            cells[CHANGED].store(now_ms, Relaxed);
            cells[TURNED].store(now_ms, Relaxed);
            cells[STATE].store(state as u64, Release);
        }
    }

    /// The process's loop turns.
    pub fn turn(&self, row: Row, now_ms: u64) {
        if let Some(cells) = self.row(row) {
            cells[TURNED].store(now_ms, Relaxed);
        }
    }

    /// What is known about the process in `row`; `None` if the row is free.
    pub fn process(&self, row: Row) -> Option<Process> {
        let cells = self.row(row)?;
        Some(Process {
            row,
            // Its moments are no older than its state.
            state: State::decode(cells[STATE].load(Acquire))?,
            pid: cells[PID].load(Relaxed) as u32,
            generation: cells[GENERATION].load(Relaxed) as u32,
            slot: cells[SLOT].load(Relaxed) as u32,
            born_ms: cells[BORN].load(Relaxed),
            since_ms: cells[CHANGED].load(Relaxed),
            turned_ms: cells[TURNED].load(Relaxed),
        })
    }

    /// Every process that has a row.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        let board = *self;
        (0..self.used() as u32).filter_map(move |index| board.process(Row(index)))
    }

    /// Rows that were ever taken.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed) as usize
    }

    pub(crate) fn free(&self, row: Row) {
        if let Some(cells) = self.row(row) {
            cells[STATE].store(0, Release);
        }
    }

    fn row(&self, row: Row) -> Option<&'static [AtomicU64]> {
        self.rows
            .get(row.index().checked_mul(WIDTH)?..)?
            .get(..WIDTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;

    #[test]
    fn rows_are_reused_lowest_first_and_run_out_softly() {
        let board = Scoreboard::new(Vec::leak(
            (0..HEADER + 3 * WIDTH).map(|_| AtomicU64::new(0)).collect(),
        ));
        let rows: Vec<Row> = (0..3).map(|slot| board.claim(1, slot)).collect();
        assert_eq!(
            rows.iter().map(|row| row.index()).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(board.claim(1, 3), Row::PRIVATE);
        board.free(rows[1]);
        assert_eq!(
            board
                .processes()
                .map(|process| process.slot)
                .collect::<Vec<_>>(),
            [0, 2]
        );
        assert_eq!(board.claim(2, 7).index(), 1);
        let process = board.process(rows[1]).unwrap();
        assert_eq!(
            (process.generation, process.slot, process.state),
            (2, 7, State::Starting)
        );
    }

    #[test]
    fn a_private_row_swallows_everything() {
        let shm = Shm::private().unwrap();
        let board = shm.scoreboard();
        board.set_pid(Row::PRIVATE, 5);
        board.set_state(Row::PRIVATE, State::Ready);
        assert_eq!(board.process(Row::PRIVATE), None);
        shm.reap(Row::PRIVATE);
    }

    #[test]
    fn a_loop_that_does_not_turn_is_stuck_unless_it_starts_or_ends() {
        let board = Shm::private().unwrap().scoreboard();
        let row = board.claim(1, 0);
        let stuck_ms = |state, now_ms| {
            board.set_state(row, state);
            board.turn(row, 60_000);
            board.process(row).unwrap().stuck_ms(now_ms)
        };
        assert_eq!(stuck_ms(State::Ready, 60_000 + STUCK_MS - 1), None);
        assert_eq!(stuck_ms(State::Ready, 60_000 + STUCK_MS), Some(STUCK_MS));
        assert_eq!(stuck_ms(State::Draining, 70_000), Some(10_000));
        assert_eq!(stuck_ms(State::Starting, 70_000), None);
        assert_eq!(stuck_ms(State::Gone, 70_000), None);
        assert_eq!(
            stuck_ms(State::Ready, 0),
            None,
            "the reader's clock was read earlier"
        );
    }

    #[test]
    fn states_are_told_apart() {
        let board = Shm::private().unwrap().scoreboard();
        let row = board.claim(1, 0);
        board.set_pid(row, 42);
        let born = board.process(row).unwrap();
        assert!(born.born_ms > 0 && born.since_ms == born.born_ms);
        for state in [State::Ready, State::Draining, State::Gone] {
            let before_ms = clock::monotonic_ms();
            board.set_state(row, state);
            let process = board.process(row).unwrap();
            assert!(process.since_ms >= before_ms && process.born_ms == born.born_ms);
            assert_eq!(
                board
                    .process(row)
                    .map(|process| (process.state, process.pid)),
                Some((state, 42))
            );
        }
    }
}
