//! Real processes that do one thing by turns under one lease, some of them killed while they have it.
//!
//! Checked: no two have it at once, a killed one loses it as soon as it is reaped however long it was taken for, and what
//! the dead knew is there for the next.

#![allow(clippy::expect_used)]

mod family;

use family::{LIMIT_MS, end_of, only_test, start, wait};
use kp_shm::{CheckRow, Claimant, Counter, Row, Shm, State};
use kp_sys::clock::monotonic_ms;
use kp_sys::process::{self, Ending};

const WORKERS: u32 = 4;
const KILLS: u32 = 12;
/// Far longer than the test: only a release or a reap ends it.
const LEASE_MS: u64 = 600_000;
const SIGKILL: i32 = 9;

fn main() {
    only_test("one_at_a_time_has_the_lease", one_at_a_time_has_the_lease);
}

fn one_at_a_time_has_the_lease() {
    let shm = Shm::create().expect("tables");
    let thing = thing(&shm, shm.scoreboard().claim(0, 0));
    let deadline_ms = monotonic_ms() + LIMIT_MS;
    let mut workers: Vec<(i32, Row)> = (0..WORKERS)
        .map(|slot| start(&shm, 1, slot, |row, parent| work(&shm, row, parent)))
        .collect();
    for kill in 0..KILLS {
        let goal = shm.counters().total(Counter::Requests) + 50;
        wait(deadline_ms, || {
            shm.counters().total(Counter::Requests) >= goal
        });
        let (pid, row) = holder(thing, &workers, deadline_ms);
        process::kill(pid, SIGKILL).expect("kill");
        assert!(matches!(
            end_of(pid, deadline_ms),
            Ending::Signaled {
                signal: SIGKILL,
                ..
            }
        ));
        shm.reap(row);
        workers.retain(|worker| worker.0 != pid);
        workers.push(start(&shm, 1, WORKERS + kill, |row, parent| {
            work(&shm, row, parent)
        }));
    }
    for (pid, row) in workers {
        shm.scoreboard().set_state(row, State::Draining);
        assert_eq!(
            end_of(pid, deadline_ms),
            Ending::Exited(0),
            "two had the lease at once"
        );
        shm.reap(row);
    }
    assert_eq!(thing.lease().holder(), None);
}

/// The row of what is done once, for the process in `row`.
fn thing(shm: &Shm, row: Row) -> CheckRow {
    shm.checks().claim("u", "127.0.0.1:80", "once", row)
}

/// The worker that has the lease at this moment, which it may give up at the next.
fn holder(thing: CheckRow, workers: &[(i32, Row)], deadline_ms: u64) -> (i32, Row) {
    let mut found = None;
    wait(deadline_ms, || {
        let holder = thing.lease().holder();
        found = workers
            .iter()
            .find(|(pid, row)| holder == Some(Claimant::new(*row, *pid as u32)))
            .copied();
        found.is_some()
    });
    found.expect("a holder")
}

/// What a worker does, until it is asked to stop: 0, or 1 if another had the lease too, or 2 if it is alone.
fn work(shm: &Shm, row: Row, parent: u32) -> i32 {
    let pid = std::process::id();
    let (me, thing, counters) = (
        Claimant::new(row, pid),
        thing(shm, row),
        shm.counters().block(row),
    );
    // A parent whose assertion failed is gone, and so must its workers be.
    while std::os::unix::process::parent_id() == parent {
        let now_ms = monotonic_ms();
        if thing.lease().take(me, now_ms, now_ms + LEASE_MS) {
            thing.set_due_ms(pid.into());
            std::thread::yield_now();
            if thing.due_ms() != u64::from(pid) {
                return 1;
            }
            counters.increment(Counter::Requests);
            thing.lease().release(me);
        }
        let board = shm.scoreboard().process(row);
        if board.is_some_and(|process| process.state == State::Draining) {
            return 0;
        }
    }
    2
}
