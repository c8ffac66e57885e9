//! What the tests with processes share: workers that are forked, their ends, and waiting with a deadline.

use kp_shm::{Row, Shm};
use kp_sys::clock::monotonic_ms;
use kp_sys::process::{self, Ending, Fork};
use std::time::Duration;

/// The test of a program that is one: `main` must not have a second thread when it forks. A runner that wants to know what
/// tests there are is told (`--list`), else it would run them at once, side by side and under no name.
#[allow(clippy::print_stdout, reason = "the runner reads it")]
pub(crate) fn only_test(name: &str, test: impl FnOnce()) {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let says = |word: &str| words.iter().any(|said| said == word);
    let ignored = says("--ignored");
    if says("--list") {
        if !ignored {
            println!("{name}: test");
        }
        return;
    }
    if !ignored && (!says("--exact") || says(name)) {
        test();
    }
}

/// How long a test may take: more than it does on a busy machine.
pub(crate) const LIMIT_MS: u64 = 170_000;

/// Forks a worker with a row of its own. It ends with what `work` gives, which is told the row and the parent's pid: a
/// parent whose assertion failed is gone, and so must its workers be.
pub(crate) fn start(
    shm: &Shm,
    generation: u32,
    slot: u32,
    work: impl FnOnce(Row, u32) -> i32,
) -> (i32, Row) {
    let row = shm.scoreboard().claim(generation, slot);
    let parent = std::process::id();
    match process::fork().expect("fork") {
        Fork::Parent(pid) => {
            shm.scoreboard().set_pid(row, pid as u32);
            (pid, row)
        }
        Fork::Child => process::exit_now(work(row, parent)),
    }
}

/// The end of a child; the others go on.
pub(crate) fn end_of(pid: i32, deadline_ms: u64) -> Ending {
    let mut ending = None;
    wait(deadline_ms, || {
        if let Some((ended, how)) = process::reap().expect("wait") {
            assert_eq!(ended, pid, "a worker saw what must not be: {how:?}");
            ending = Some(how);
        }
        ending.is_some()
    });
    ending.expect("an ending")
}

/// Until it is done. Who waits leaves the processors to those who work.
#[allow(
    clippy::disallowed_methods,
    reason = "there is no loop that could wait"
)]
pub(crate) fn wait(deadline_ms: u64, mut done: impl FnMut() -> bool) {
    while !done() {
        assert!(
            monotonic_ms() < deadline_ms,
            "nothing happened for too long"
        );
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Xorshift.
#[allow(dead_code, reason = "not every test leaves things to chance")]
pub(crate) fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}
