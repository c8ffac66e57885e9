//! Processes that count in series they come to and leave, and one that takes unused series back, all killed in the middle
//! of it, while a reader sums.
//!
//! Checked: the sum of a kind never goes back and no count is lost, a series has one place as long as somebody uses it, a
//! place that is used anew begins at nothing, and nothing of the dead is held.

#![allow(clippy::expect_used)]

mod family;

use family::{LIMIT_MS, end_of, only_test, random, start, wait};
use kp_shm::{Counter, Histogram, IdleSeries, PeerCell, Row, SeriesKind, ServerCell, Shm, State};
use kp_sys::clock::monotonic_ms;
use kp_sys::process::{self, Ending};

const WORKERS: u32 = 3;
const KILLS: u64 = 60;
/// Few, so that processes meet at them.
const NAMES: u64 = 5;
const SIGKILL: i32 = 9;

fn main() {
    only_test("sums_never_go_back", sums_never_go_back);
}

fn sums_never_go_back() {
    let shm = Shm::create().expect("tables");
    let deadline_ms = monotonic_ms() + LIMIT_MS;
    let mut workers: Vec<(i32, Row)> = (0..WORKERS)
        .map(|slot| start(&shm, 1, slot, |row, parent| work(&shm, row, parent)))
        .collect();
    let mut chance = 88_172_645_463_325_252u64;
    let mut idle = IdleSeries::default();
    let (mut seen, mut taken) = (0, 0);
    for kill in 0..KILLS {
        let goal = shm.counters().total(Counter::Requests) + 50 + random(&mut chance) % 500;
        wait(deadline_ms, || {
            let ended = process::reap().expect("wait");
            assert_eq!(ended, None, "a worker saw what must not be");
            seen = look(&shm, seen);
            taken += shm.series().reclaim(&mut idle);
            shm.counters().total(Counter::Requests) >= goal
        });
        let at = random(&mut chance) as usize % workers.len();
        let (pid, row) = workers[at];
        process::kill(pid, SIGKILL).expect("kill");
        let ending = end_of(pid, deadline_ms);
        assert!(
            matches!(ending, Ending::Signaled { signal, .. } if signal == SIGKILL),
            "a worker saw what must not be: {ending:?}"
        );
        shm.reap(row);
        seen = look(&shm, seen);
        workers[at] = start(&shm, 1, WORKERS + kill as u32, |row, parent| {
            work(&shm, row, parent)
        });
    }
    for (pid, row) in workers {
        shm.scoreboard().set_state(row, State::Draining);
        assert_eq!(end_of(pid, deadline_ms), Ending::Exited(0));
        shm.reap(row);
    }
    assert!(taken > 0, "no series was ever taken back");
    nothing_is_lost(&shm);
}

/// What holds at every moment; the sum of the kind.
fn look(shm: &Shm, before: u64) -> u64 {
    let sum = shm
        .series()
        .family(SeriesKind::Server, ServerCell::Requests2xx);
    assert!(sum >= before, "the sum went back from {before} to {sum}");
    let mut names: Vec<_> = shm
        .series()
        .rows()
        .map(|info| (info.kind, info.labels))
        .collect();
    let all = names.len();
    names.sort_by_cached_key(|name| format!("{name:?}"));
    names.dedup();
    assert_eq!(names.len(), all, "a name was there twice");
    assert!(
        names
            .iter()
            .all(|(_, labels)| labels.iter().all(|label| label.len() < 40))
    );
    sum
}

/// Every worker counted in a series first and in the plain counters then, so a kill costs the latter one at most.
fn nothing_is_lost(shm: &Shm) {
    let (series, counters) = (shm.series(), shm.counters());
    let counted = counters.total(Counter::Responses2xx);
    let sum = series.family(SeriesKind::Server, ServerCell::Requests2xx);
    assert!(
        (counted..=counted + KILLS).contains(&sum),
        "{sum} in series, {counted} in all"
    );
    let held = series.rows().filter(|info| info.kind == SeriesKind::Peer);
    for peer in held {
        let totals = series.totals(peer.index);
        assert_eq!(totals.value(PeerCell::InFlight), 0, "{peer:?}");
        assert_eq!(totals.value(PeerCell::Weight), 0, "{peer:?}");
    }
    let mut idle = IdleSeries::default();
    series.reclaim(&mut idle);
    series.reclaim(&mut idle);
    // A kill between two notes of a claim leaves a series that is never taken back.
    let left = series.rows().count() as u64;
    assert!(left <= KILLS, "{left} series are left");
    assert_eq!(
        series.family(SeriesKind::Server, ServerCell::Requests2xx),
        sum
    );
    assert_eq!(series.strays(), 0);
}

/// Comes to one series after the other and leaves it. Not 0: it saw what must not be.
fn work(shm: &Shm, row: Row, parent: u32) -> i32 {
    let (series, counters) = (shm.series(), shm.counters().block(row));
    let me = u64::from(std::process::id());
    let mut chance = me.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while std::os::unix::process::parent_id() == parent
        && shm.scoreboard().process(row).map(|process| process.state) != Some(State::Draining)
    {
        let number = random(&mut chance) % NAMES;
        let own = format!("{me}-{}", random(&mut chance) >> 3);
        let server = series.claim(SeriesKind::Server, &[&format!("n{number}")], row);
        let peer = series.claim(SeriesKind::Peer, &["u", &own], row);
        // Nobody had this one before: whatever it says is left over from another, unless there was no room for it.
        let found = series.info(peer.index()).map(|info| info.labels);
        if found != Some(vec!["other".to_owned(); 2]) && peer.value(PeerCell::Attempts2xx) != 0 {
            return 3;
        }
        if series.info(server.index()).map(|info| info.labels) != Some(vec![format!("n{number}")]) {
            return 4;
        }
        peer.increment(PeerCell::InFlight);
        peer.set(PeerCell::Looked, 1);
        peer.set(PeerCell::Weight, 1000);
        for _ in 0..random(&mut chance) % 4 {
            server.increment(ServerCell::Requests2xx);
            counters.increment(Counter::Responses2xx);
            server.observe_ms(Histogram::Total, number);
            peer.increment(PeerCell::Attempts2xx);
        }
        series.leave(server);
        series.leave(peer);
        counters.increment(Counter::Requests);
    }
    0
}
