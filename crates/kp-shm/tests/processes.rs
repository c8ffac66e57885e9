//! Real processes on one set of tables, some of them killed in the middle of whatever they do.
//!
//! Checked: `max_conns` and a limit of places hold at every moment, a rate lets through what it allows and no more, no count is lost, what the dead held is given back, and the round that
//! kills have disturbed is fair again.

#![allow(clippy::expect_used)]

mod family;

use family::{LIMIT_MS, end_of, only_test, start, wait};
use kp_shm::{
    Counter, Key, PeerRow, Peers, PlaceZone, RateZone, Repair, Row, Shm, State, Taken, ZoneKind,
    ZonePlan,
};
use kp_sys::clock::monotonic_ms;
use kp_sys::process::{self, Ending};

const WORKERS: u32 = 4;
const KILLS: u64 = 40;
const MAX_CONNS: u32 = 2;
const SIGKILL: i32 = 9;

fn main() {
    only_test(
        "tables_hold_whoever_is_killed",
        tables_hold_whoever_is_killed,
    );
}

fn tables_hold_whoever_is_killed() {
    let shm = Shm::create().expect("tables");
    assert!(shm.zones().prepare(&plan(ZoneKind::Places), 1));
    assert!(shm.zones().prepare(&plan(ZoneKind::Rate), 1));
    let deadline_ms = monotonic_ms() + LIMIT_MS;
    let mut workers: Vec<(i32, Row)> = (0..WORKERS)
        .map(|slot| start(&shm, 1, slot, |row, parent| work(&shm, row, parent)))
        .collect();
    for kill in 0..KILLS {
        let goal = shm.counters().total(Counter::Requests) + 2000;
        wait(deadline_ms, || {
            shm.counters().total(Counter::Requests) >= goal
        });
        let (pid, row) = workers.remove(0);
        process::kill(pid, SIGKILL).expect("kill");
        assert!(matches!(
            end_of(pid, deadline_ms),
            Ending::Signaled {
                signal: SIGKILL,
                ..
            }
        ));
        let before = shm.counters().value(row, Counter::Requests);
        shm.reap(row);
        let next = start(&shm, 2, kill as u32, |row, parent| work(&shm, row, parent));
        assert_eq!(next.1, row, "the free row is taken again");
        assert!(
            shm.counters().value(row, Counter::Requests) >= before,
            "and its numbers go on"
        );
        workers.push(next);
    }
    for (pid, row) in workers {
        shm.scoreboard().set_state(row, State::Draining);
        assert_eq!(
            end_of(pid, deadline_ms),
            Ending::Exited(0),
            "a worker saw more than max_conns"
        );
        shm.reap(row);
    }

    let row = shm.scoreboard().claim(3, 0);
    let mut repair = Repair::default();
    repair.sweep(&shm);
    while repair.is_suspicious() {
        repair.sweep(&shm);
    }
    assert_eq!(limited(shm.peers(), row).in_flight(), 0);
    let places = places(&shm, row);
    for key in KEYS {
        assert_eq!(places.count(places.hash(key)), 0, "a place of a dead one");
    }
    // Who was killed between being let through and counting that is missing.
    let passed = shm.counters().total(Counter::Responses2xx);
    assert!(
        (BURST + 1 - KILLS..=BURST + 1).contains(&passed),
        "{passed} of {BURST}"
    );
    let peers = round(shm.peers(), row);
    let mut counts = [0u32; 3];
    for _ in 0..300 {
        counts[pick(&peers)] += 1;
    }
    assert!(
        counts.iter().all(|count| count.abs_diff(100) <= 3),
        "{counts:?}"
    );
    assert_eq!(shm.peers().overflows(), 0);
}

/// What a worker does, until it is asked to stop: 0, or 1 if it saw the limit broken, or 2 if it is alone.
fn work(shm: &Shm, row: Row, parent: u32) -> i32 {
    let (peer, peers, counters) = (
        limited(shm.peers(), row),
        round(shm.peers(), row),
        shm.counters().block(row),
    );
    let (places, rate) = (places(shm, row), rate(shm));
    let mut turn = row.index();
    // A parent whose assertion failed is gone, and so must its workers be.
    while std::os::unix::process::parent_id() == parent {
        pick(&peers);
        if peer.admit(MAX_CONNS) {
            if peer.in_flight() > i64::from(MAX_CONNS) {
                return 1;
            }
            peer.release();
        }
        turn += 1;
        let key = places.hash(KEYS[turn % KEYS.len()]);
        if let Taken::Place(_place) = places.take(key, MAX_CONNS)
            && places.count(key) > MAX_CONNS
        {
            return 1;
        }
        if rate.charge(rate.hash(b"all"), 1, BURST * 1000).is_ok() {
            counters.increment(Counter::Responses2xx);
        }
        counters.increment(Counter::Requests);
        if shm
            .scoreboard()
            .process(row)
            .is_some_and(|process| process.state == State::Draining)
        {
            return 0;
        }
    }
    2
}

/// Few buckets, so that keys meet.
const KEYS: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
/// Requests that one moment allows.
const BURST: u64 = 40_000;

fn plan(kind: ZoneKind) -> ZonePlan {
    ZonePlan {
        key: Key::of(&[b"zone", &[kind as u8]]),
        kind,
        bytes: 64,
    }
}

fn places(shm: &Shm, row: Row) -> PlaceZone {
    PlaceZone::new(&shm.zones(), &plan(ZoneKind::Places), shm.journal(row))
}

fn rate(shm: &Shm) -> RateZone {
    RateZone::new(&shm.zones(), &plan(ZoneKind::Rate), 1, BURST * 1000)
}

fn limited(peers: Peers, row: Row) -> PeerRow {
    peers.claim(Key::of(&[b"limited"]), row)
}

fn round(peers: Peers, row: Row) -> Vec<PeerRow> {
    (0..3u8)
        .map(|number| peers.claim(Key::of(&[b"round", &[number]]), row))
        .collect()
}

/// Smooth round robin over peers of equal weight.
fn pick(peers: &[PeerRow]) -> usize {
    let weights: Vec<i64> = peers.iter().map(|peer| peer.advance(1)).collect();
    let best = (0..peers.len())
        .rev()
        .max_by_key(|index| weights[*index])
        .expect("peers");
    peers[best].advance(-(peers.len() as i64));
    best
}
