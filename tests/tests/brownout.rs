//! `make brownout`: a brown-out seen by clients and by the servers behind. Of kp, or of another server of nginx's language
//! (`KP_BIN`, `KP_TEST_MAIN`).
//!
//! Arguments: how many seconds each part lasts (10), and further directives of the group. Prints one line: requests of
//! clients, those that were answered, three percentiles of their times in microseconds, how many the slow server got, how
//! many all servers got; then requests to the group that is ill as a whole, and how many its servers got.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for developers: it panics to fail and prints what it measures"
)]

use std::time::Duration;

use kp_tests::brownout;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next();
    let seconds: u64 = seconds.map_or(10, |text| text.parse().expect("a number of seconds"));
    let own = arguments.next().unwrap_or_default();
    let figures = brownout::run(&own, Duration::from_secs(seconds));
    let [half, most, nearly] = figures.times.map(|time| time.as_micros());
    println!(
        "figures {} {} {half} {most} {nearly} {} {} {} {}",
        figures.requests,
        figures.answered,
        figures.slow_share,
        figures.upstream_requests,
        figures.dying.0,
        figures.dying.1,
    );
}
