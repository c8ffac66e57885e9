//! Processes that come to peers and leave them, and one that takes unused rows back, all killed in the middle of it.
//!
//! Checked: an identity has one row as long as somebody uses it, a row in use keeps what it says, what the dead had is
//! given back, and no more rows are lost than kills can cost.

#![allow(clippy::expect_used)]

mod family;

use family::{LIMIT_MS, end_of, only_test, random, start, wait};
use kp_shm::{Counter, Key, PeerRow, Repair, Row, Shm, State};
use kp_sys::clock::monotonic_ms;
use kp_sys::process::{self, Ending};
use kp_sys::region::Region;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const WORKERS: u32 = 3;
const KILLS: u64 = 100;
/// Few, so that processes meet at them.
const KEYS: u64 = 6;
const SIGKILL: i32 = 9;

fn main() {
    only_test("rows_are_taken_back_and_kept", rows_are_taken_back_and_kept);
}

fn rows_are_taken_back_and_kept() {
    let shm = Shm::create().expect("tables");
    let region = Region::shared(KEYS as usize).expect("a region");
    let holders: &'static [AtomicU64] = region.cells();
    let deadline_ms = monotonic_ms() + LIMIT_MS;
    // The last one takes rows back.
    let mut workers: Vec<(i32, Row)> = (0..=WORKERS)
        .map(|slot| begin(&shm, holders, slot, slot == WORKERS))
        .collect();
    let mut chance = 88_172_645_463_325_252u64;
    for kill in 0..KILLS {
        let goal = shm.counters().total(Counter::Requests) + 20 + random(&mut chance) % 300;
        wait(deadline_ms, || {
            let ended = process::reap().expect("wait");
            assert_eq!(ended, None, "a worker saw what must not be");
            shm.counters().total(Counter::Requests) >= goal
        });
        for _ in 0..random(&mut chance) % 2000 {
            std::hint::spin_loop();
        }
        let at = random(&mut chance) as usize % workers.len();
        let (pid, row) = workers[at];
        process::kill(pid, SIGKILL).expect("kill");
        let ending = end_of(pid, deadline_ms);
        assert!(
            matches!(ending, Ending::Signaled { signal, .. } if signal == SIGKILL),
            "a worker saw what must not be: {ending:?}"
        );
        // Before its place is given back, so that the next at the key finds nobody there.
        for holder in holders {
            let _ = holder.compare_exchange(pid as u64, 0, SeqCst, SeqCst);
        }
        shm.reap(row);
        let cleans = at as u32 == WORKERS;
        workers[at] = begin(&shm, holders, WORKERS + 1 + kill as u32, cleans);
    }
    for (pid, row) in workers {
        shm.scoreboard().set_state(row, State::Draining);
        assert_eq!(end_of(pid, deadline_ms), Ending::Exited(0));
        shm.reap(row);
    }
    let row = shm.scoreboard().claim(9, 0);
    let mut repair = Repair::default();
    repair.sweep(&shm);
    while repair.is_suspicious() {
        repair.sweep(&shm);
    }
    for key in 0..KEYS {
        let peer = shm.peers().claim(shared(key), row);
        assert!(peer.is_shared());
        assert_eq!(peer.in_flight(), 0, "key {key}");
        shm.peers().leave(peer);
    }
    let lost = shm.peers().used() as u64;
    assert!(
        lost <= KEYS + u64::from(WORKERS) * 3 + KILLS,
        "{lost} rows for {KEYS} keys after {KILLS} kills"
    );
    assert_eq!(shm.peers().overflows(), 0);
}

/// Whether a worker goes on: its parent lives and did not ask it to stop.
fn goes_on(shm: &Shm, row: Row, parent: u32) -> bool {
    let state = shm.scoreboard().process(row).map(|process| process.state);
    std::os::unix::process::parent_id() == parent && state != Some(State::Draining)
}

fn begin(shm: &Shm, holders: &[AtomicU64], slot: u32, cleans: bool) -> (i32, Row) {
    start(shm, 1, slot, |row, parent| {
        if cleans {
            clean(shm, row, parent)
        } else {
            work(shm, holders, row, parent)
        }
    })
}

/// Comes to one key after the other and leaves it, and keeps one key of its own. Not 0: it saw what must not be.
fn work(shm: &Shm, holders: &[AtomicU64], row: Row, parent: u32) -> i32 {
    let (peers, counters) = (shm.peers(), shm.counters().block(row));
    let me = u64::from(std::process::id());
    let own = Key::of(&[b"own", &me.to_le_bytes()]);
    let (kept, mut weight) = (peers.claim(own, row), 0);
    let mut chance = me.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while goes_on(shm, row, parent) {
        counters.increment(Counter::Requests);
        let key = random(&mut chance) % KEYS;
        let peer: PeerRow = peers.claim(shared(key), row);
        if !peer.is_shared() {
            return 3;
        }
        if peer.admit(1) {
            let holder = &holders[key as usize];
            if holder.compare_exchange(0, me, SeqCst, SeqCst).is_err() {
                return 4;
            }
            holder.store(0, SeqCst);
            peer.release();
        }
        peers.leave(peer);
        weight += 1;
        if kept.advance(1) != weight {
            return 5;
        }
        let again = peers.claim(own, row);
        if again.is_first() || again.current_weight() != weight {
            return 6;
        }
        peers.leave(again);
    }
    peers.leave(kept);
    0
}

fn clean(shm: &Shm, row: Row, parent: u32) -> i32 {
    let mut idle = Vec::new();
    while goes_on(shm, row, parent) {
        shm.counters().block(row).increment(Counter::Requests);
        shm.peers().reclaim(&mut idle);
    }
    0
}

fn shared(key: u64) -> Key {
    Key::of(&[b"shared", &key.to_le_bytes()])
}
