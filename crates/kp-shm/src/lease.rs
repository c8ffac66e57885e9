//! A lease: one of all processes does a thing, and another one goes on with it when that one leaves or dies.
//!
//! One word holds the process row, a mark of the process and the deadline, so that taking, prolonging and giving up are
//! one compare-and-swap each and nothing is left half done by a killed holder. Every thing that is to be done once has a
//! lease of its own; "worker slot 0" would exist twice during a reload and not at all after a crash. What is done under a
//! lease, and when, is not decided here.

use crate::scoreboard::Row;
use std::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

const DEADLINE_BITS: u32 = 43;
const MARK_BITS: u32 = 8;
const DEADLINE: u64 = (1 << DEADLINE_BITS) - 1;
const ROW_SHIFT: u32 = DEADLINE_BITS + MARK_BITS;
/// Stands for the row of a process without one; above every real row.
const NO_ROW: u64 = (1 << (64 - ROW_SHIFT)) - 1;

/// Who asks for a lease: a process row, and a mark that tells its next owner from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimant(u64);

impl Claimant {
    /// The process in `row` with this process id.
    pub fn new(row: Row, pid: u32) -> Self {
        let mark = u64::from(pid) & ((1 << MARK_BITS) - 1);
        Self(row_field(row) << ROW_SHIFT | mark << DEADLINE_BITS)
    }
}

/// A lease in shared memory; zero: nobody has it.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    cell: &'static AtomicU64,
}

impl Lease {
    pub(crate) fn new(cell: &'static AtomicU64) -> Self {
        Self { cell }
    }

    /// Takes the lease, or prolongs it, until `until_ms`; `false` while another process has it.
    pub fn take(&self, me: Claimant, now_ms: u64, until_ms: u64) -> bool {
        let mine = me.0 | (until_ms & DEADLINE);
        let free = |word: u64| {
            (word == 0 || word & !DEADLINE == me.0 || word & DEADLINE <= now_ms).then_some(mine)
        };
        self.cell.fetch_update(AcqRel, Acquire, free).is_ok()
    }

    /// Who has it, over or not; `None`: nobody took it, or it was given up.
    pub fn holder(&self) -> Option<Claimant> {
        let word = self.cell.load(Relaxed);
        (word != 0).then_some(Claimant(word & !DEADLINE))
    }

    /// Gives it up, so that whoever asks next has it at once; nothing if another process has it.
    pub fn release(&self, me: Claimant) {
        let mine = |word: u64| (word & !DEADLINE == me.0).then_some(0);
        let _ = self.cell.fetch_update(Release, Relaxed, mine);
    }

    /// A process died: what its row had is free.
    pub(crate) fn reap(&self, row: Row) {
        let dead = |word: u64| (word != 0 && word >> ROW_SHIFT == row_field(row)).then_some(0);
        let _ = self.cell.fetch_update(Release, Relaxed, dead);
    }
}

fn row_field(row: Row) -> u64 {
    (row.index() as u64).saturating_add(1).min(NO_ROW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;

    fn lease() -> Lease {
        Lease::new(&Vec::leak(vec![AtomicU64::new(0)])[0])
    }

    #[test]
    fn one_has_it_until_it_ends_or_is_given_up() {
        let board = Shm::private().unwrap().scoreboard();
        let a = Claimant::new(board.claim(1, 0), 100);
        let b = Claimant::new(board.claim(1, 1), 101);
        let lease = lease();
        assert_eq!(lease.holder(), None);
        assert!(lease.take(a, 1000, 2000));
        assert!(!lease.take(b, 1999, 3000));
        assert!(lease.take(a, 1999, 2500), "the holder prolongs it");
        assert!(!lease.take(b, 2499, 3000));
        assert!(lease.take(b, 2500, 3000), "its time is over");
        assert_eq!(lease.holder(), Some(b));
        lease.release(a);
        assert_eq!(lease.holder(), Some(b), "only the holder gives it up");
        lease.release(b);
        assert!(lease.take(a, 2501, 4000));
    }

    #[test]
    fn a_dead_holder_loses_it_and_the_next_owner_of_its_row_is_another() {
        let shm = Shm::private().unwrap();
        let (row, other) = (shm.scoreboard().claim(1, 0), shm.scoreboard().claim(1, 1));
        let (dead, next) = (Claimant::new(row, 100), Claimant::new(row, 101));
        let lease = lease();
        assert!(lease.take(dead, 1000, 9000));
        assert!(!lease.take(next, 1001, 9000));
        lease.reap(other);
        assert_eq!(lease.holder(), Some(dead));
        lease.reap(row);
        assert!(lease.take(next, 1002, 9000));
    }

    #[test]
    fn a_process_without_a_row_can_have_it() {
        let row = Shm::private().unwrap().scoreboard().claim(1, 0);
        let (a, b) = (Claimant::new(Row::PRIVATE, 1), Claimant::new(row, 1));
        let lease = lease();
        assert!(lease.take(a, 1, 10));
        assert!(!lease.take(b, 2, 10));
        lease.reap(row);
        assert_eq!(lease.holder(), Some(a));
    }
}
