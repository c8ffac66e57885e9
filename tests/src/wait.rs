//! Waiting for an event with a deadline. The only place of the tests that sleeps, for two milliseconds between looks.

use std::time::{Duration, Instant};

/// How long a test waits for what must happen soon. Generous, since a wait that succeeds costs nothing, and less than the
/// minute that most timeouts have by default, so that one of them is not taken for what was waited for.
pub const SOON: Duration = Duration::from_secs(30);

/// Looks until `look` finds something; fails the test when `limit` has passed.
pub fn until_some<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            start.elapsed() < limit,
            "waited {limit:?} in vain for {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Looks until `look` says yes; fails the test when `limit` has passed.
pub fn until(limit: Duration, what: &str, mut look: impl FnMut() -> bool) {
    until_some(limit, what, || look().then_some(()));
}

/// Whether `look` says yes within `limit`.
pub fn happens(limit: Duration, mut look: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if look() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The shortest time of three that `run` takes: a busy machine makes a thing slow now and then, kp would each time.
pub fn quickest(mut run: impl FnMut()) -> Duration {
    let mut time = || {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    time().min(time()).min(time())
}

/// Lets `duration` pass, where the passing of time is itself the input of a case (a peer that answers late).
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
