//! What active checks have found out about peers: one row for each (upstream, peer address, check), seen by every process
//! and generation, whether or not the group has a `zone`.
//!
//! Thresholds are those of the caller's generation and count consecutive results; the row counts and remembers. Whoever
//! changes the state hears of it, and nobody else does, so that a change is one log line. When to check, and what passes,
//! is not decided here.

use crate::lease::Lease;
use crate::peers::{Key, PeerRow, Peers};
use crate::scoreboard::Row;
use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Beside the key, which is in the first cells.
const LEASE: usize = 4;
const DUE: usize = 5;
const RECOVERED: usize = 6;
const CHANGED: usize = 7;
/// On a cache line of its own: every pick reads it.
const STATE: usize = 8;
const CAUSE: usize = 9;

/// The table of checks.
#[derive(Debug, Clone, Copy)]
pub struct Checks {
    table: Peers,
}

impl Checks {
    pub(crate) fn new(table: Peers) -> Self {
        Self { table }
    }

    /// The row of a check of a peer, found or made; one of this process alone where the table is full. `process` uses it
    /// until [`Checks::leave`] or its death.
    pub fn claim(&self, upstream: &str, peer: &str, check: &str, process: Row) -> CheckRow {
        CheckRow {
            row: self.table.claim(key_of(upstream, peer, check), process),
        }
    }

    /// State and cause of a check that somebody has claimed, without a claim: for who only tells of it.
    pub fn look(&self, upstream: &str, peer: &str, check: &str) -> Option<(CheckState, u64)> {
        let key = key_of(upstream, peer, check);
        let cells = self.table.cells(self.table.peek(key)?);
        let (state, cause) = (
            cells.get(STATE)?.load(Relaxed),
            cells.get(CAUSE)?.load(Relaxed),
        );
        // It may have become another one's meanwhile.
        self.table.peek(key)?;
        Some((Standing::unpack(state).state, cause))
    }

    /// Ends a claim; the row must not be used any more.
    pub fn leave(&self, row: CheckRow) {
        self.table.leave(row.row);
    }

    /// Takes back the rows that nobody uses, as [`Peers::reclaim`] does.
    pub fn reclaim(&self, idle: &mut Vec<bool>) -> usize {
        self.table.reclaim(idle)
    }

    /// How many claims found no room.
    pub fn overflows(&self) -> u64 {
        self.table.overflows()
    }

    /// A dead process checks nothing any more, and uses no rows.
    pub(crate) fn reap(&self, process: Row) {
        self.table.reap(process);
        for index in 0..self.table.used() {
            if let Some(cell) = self.table.cells(index).get(LEASE) {
                Lease::new(cell).reap(process);
            }
        }
    }
}

fn key_of(upstream: &str, peer: &str, check: &str) -> Key {
    Key::of(&[
        b"check",
        upstream.as_bytes(),
        peer.as_bytes(),
        check.as_bytes(),
    ])
}

/// What is known of a peer by one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// Neither enough passes nor enough failures yet.
    Unknown,
    /// It passes.
    Healthy,
    /// It failed as often as it takes, and has not passed as often as it takes since.
    Unhealthy,
}

/// How many results in a row change the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Failures that make it unhealthy.
    pub fails: u32,
    /// Passes that make it healthy again.
    pub passes: u32,
}

/// State, and the results of one kind in a row that came last; one word, replaced as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    state: CheckState,
    passing: bool,
    run: u32,
}

impl Standing {
    fn pack(self) -> u64 {
        let state = match self.state {
            CheckState::Unknown => 0,
            CheckState::Healthy => 1,
            CheckState::Unhealthy => 2,
        };
        u64::from(self.run) << 8 | u64::from(self.passing) << 2 | state
    }

    fn unpack(word: u64) -> Self {
        Self {
            state: match word & 3 {
                1 => CheckState::Healthy,
                2 => CheckState::Unhealthy,
                _ => CheckState::Unknown,
            },
            passing: word >> 2 & 1 == 1,
            run: (word >> 8) as u32,
        }
    }

    /// After one more result. The first pass of all makes a peer healthy, whatever `passes` is: nothing speaks against it.
    fn after(self, passed: bool, thresholds: Thresholds) -> Self {
        let run = if self.passing == passed {
            self.run.saturating_add(1)
        } else {
            1
        };
        let state = match (self.state, passed) {
            (CheckState::Unknown, true) => CheckState::Healthy,
            (CheckState::Unhealthy, true) if run >= thresholds.passes => CheckState::Healthy,
            (CheckState::Unknown | CheckState::Healthy, false) if run >= thresholds.fails => {
                CheckState::Unhealthy
            }
            (state, _) => state,
        };
        Self {
            state,
            passing: passed,
            run,
        }
    }
}

/// A change of state, told to the process that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckChange {
    /// What it was.
    pub from: CheckState,
    /// What it is.
    pub to: CheckState,
    /// How many results in a row made it so.
    pub run: u32,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct CheckRow {
    row: PeerRow,
}

impl CheckRow {
    /// A row of this process only. It lives as long as the process, so ask once per check and peer.
    pub fn private() -> Self {
        Self {
            row: PeerRow::private(),
        }
    }

    /// What names the row within this process: equal for two claims of one row.
    pub fn id(&self) -> usize {
        self.row.cells().as_ptr() as usize
    }

    /// What is known.
    pub fn state(&self) -> CheckState {
        self.standing().state
    }

    /// Whether the check lets requests go to the peer: one relaxed load. A `mandatory` check wants to have passed first.
    pub fn admits(&self, mandatory: bool) -> bool {
        match self.state() {
            CheckState::Healthy => true,
            CheckState::Unknown => !mandatory,
            CheckState::Unhealthy => false,
        }
    }

    /// Notes a result, with the caller's word for its cause; what came of it, if the state is another one now.
    pub fn record(
        &self,
        passed: bool,
        thresholds: Thresholds,
        cause: u64,
        now_ms: u64,
    ) -> Option<CheckChange> {
        let next = |word| Some(Standing::unpack(word).after(passed, thresholds).pack());
        // The update never declines, so both arms hold the word that was replaced.
        let (Ok(word) | Err(word)) = self.row.cells()[STATE].fetch_update(AcqRel, Acquire, next);
        let before = Standing::unpack(word);
        let after = before.after(passed, thresholds);
        self.row.cells()[CAUSE].store(cause, Relaxed);
        if before.state == after.state {
            return None;
        }
        self.row.cells()[CHANGED].store(now_ms, Relaxed);
        if (before.state, after.state) == (CheckState::Unhealthy, CheckState::Healthy) {
            self.row.cells()[RECOVERED].store(now_ms, Relaxed);
        }
        Some(CheckChange {
            from: before.state,
            to: after.state,
            run: after.run,
        })
    }

    /// When it became healthy after having been unhealthy, monotonic; 0: never. A slow start counts from here.
    pub fn recovered_ms(&self) -> u64 {
        self.row.cells()[RECOVERED].load(Relaxed)
    }

    /// When the state changed last, monotonic; 0: never.
    pub fn changed_ms(&self) -> u64 {
        self.row.cells()[CHANGED].load(Relaxed)
    }

    /// The cause noted with the last result.
    pub fn cause(&self) -> u64 {
        self.row.cells()[CAUSE].load(Relaxed)
    }

    /// Who checks.
    pub fn lease(&self) -> Lease {
        Lease::new(&self.row.cells()[LEASE])
    }

    /// When the next check is due, monotonic; 0: it never was checked.
    pub fn due_ms(&self) -> u64 {
        self.row.cells()[DUE].load(Relaxed)
    }

    /// Sets when the next check is due.
    pub fn set_due_ms(&self, due_ms: u64) {
        self.row.cells()[DUE].store(due_ms, Relaxed);
    }

    fn standing(&self) -> Standing {
        Standing::unpack(self.row.cells()[STATE].load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claimant, Shm};

    const B03: Thresholds = Thresholds {
        fails: 3,
        passes: 2,
    };

    /// The state after each result of a script: `P`assed or `F`ailed.
    fn states(row: CheckRow, script: &str, thresholds: Thresholds) -> String {
        let after = |result| {
            row.record(result == 'P', thresholds, 0, 1);
            match row.state() {
                CheckState::Unknown => '?',
                CheckState::Healthy => 'h',
                CheckState::Unhealthy => 'u',
            }
        };
        script.chars().map(after).collect()
    }

    #[test]
    fn thresholds_count_results_in_a_row() {
        assert_eq!(states(CheckRow::private(), "PFPFPFP", B03), "hhhhhhh");
        assert_eq!(states(CheckRow::private(), "FPFPFPF", B03), "?hhhhhh");
        assert_eq!(states(CheckRow::private(), "FFF", B03), "??u");
        assert_eq!(states(CheckRow::private(), "PFFFPFPPF", B03), "hhhuuuuhh");
        let one = Thresholds {
            fails: 1,
            passes: 1,
        };
        assert_eq!(states(CheckRow::private(), "PFPF", one), "huhu");
    }

    #[test]
    fn mandatory_waits_for_the_first_pass() {
        let row = CheckRow::private();
        assert!(row.admits(false) && !row.admits(true));
        states(row, "FF", B03);
        assert!(row.admits(false) && !row.admits(true));
        states(row, "P", B03);
        assert!(row.admits(false) && row.admits(true));
        states(row, "FFF", B03);
        assert!(!row.admits(false) && !row.admits(true));
    }

    #[test]
    fn a_change_is_told_once_and_a_recovery_is_dated() {
        let row = CheckRow::private();
        let told: Vec<_> = [true, true, false, false, false, false, true, true]
            .into_iter()
            .zip(1..)
            .filter_map(|(passed, now_ms)| row.record(passed, B03, now_ms * 10, now_ms))
            .map(|change| (change.to, change.run))
            .collect();
        assert_eq!(
            told,
            [
                (CheckState::Healthy, 1),
                (CheckState::Unhealthy, 3),
                (CheckState::Healthy, 2)
            ]
        );
        assert_eq!(
            (row.recovered_ms(), row.changed_ms(), row.cause()),
            (8, 8, 80)
        );
    }

    #[test]
    fn rows_are_found_again_and_leases_of_the_dead_are_free() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let row = || shm.checks().claim("u", "127.0.0.1:80", "http /hz", process);
        row().record(false, B03, 7, 5);
        row().record(false, B03, 7, 5);
        row().set_due_ms(9);
        let another = shm.checks().claim("u", "127.0.0.1:80", "http /", process);
        assert_eq!(another.cause(), 0);
        assert_eq!(row().id(), row().id());
        assert_ne!(row().id(), another.id());
        assert_eq!((row().cause(), row().due_ms()), (7, 9));
        let other = Claimant::new(shm.scoreboard().claim(1, 1), 2);
        assert!(row().lease().take(Claimant::new(process, 1), 1, 1000));
        assert!(!row().lease().take(other, 2, 1000));
        shm.reap(process);
        assert!(row().lease().take(other, 3, 1000));
    }

    #[test]
    fn rows_without_users_are_taken_back_and_others_are_not() {
        let shm = Shm::private().unwrap();
        let (one, two) = (shm.scoreboard().claim(1, 0), shm.scoreboard().claim(1, 1));
        let claim = |peer, process| shm.checks().claim("u", peer, "c", process);
        let (left, kept) = (claim("left", one), claim("kept", one));
        let dead = claim("dead", two);
        for row in [left, kept, dead] {
            row.record(true, B03, 0, 1);
        }
        let mut idle = Vec::new();
        shm.checks().leave(left);
        shm.reap(two);
        assert_eq!(shm.checks().reclaim(&mut idle), 0, "not at once");
        assert_eq!(shm.checks().reclaim(&mut idle), 2);
        assert_eq!(claim("kept", one).state(), CheckState::Healthy);
        assert_eq!(claim("left", one).state(), CheckState::Unknown);
        assert_eq!(claim("dead", one).state(), CheckState::Unknown);
    }

    #[test]
    fn a_full_table_gives_private_rows() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        while shm.checks().overflows() == 0 {
            let count = shm.checks().table.used().to_string();
            shm.checks().claim("u", &count, "c", process);
        }
        let row = shm.checks().claim("u", "one too many", "c", process);
        row.record(true, B03, 1, 1);
        assert_eq!(row.state(), CheckState::Healthy);
        assert_eq!(
            shm.checks()
                .claim("u", "one too many", "c", process)
                .state(),
            CheckState::Unknown
        );
    }
}
