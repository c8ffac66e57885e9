//! `make bench-reload`: what a reload costs clients, in the second around it. Of kp, or of another server of nginx's
//! language (`KP_BIN`, `KP_TEST_MAIN`).
//!
//! Argument: how many reloads (6). Prints one line for each: the 50th and the 99th percentile and the longest of the answer
//! times of a quiet second and of the second that begins 200 ms before the reload, all in microseconds, then the requests
//! that were lost since the quiet second began, then how many were answered in that second.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for developers: it panics to fail, prints what it measures and reads the clock"
)]

use std::time::{Duration, Instant};

use kp_tests::load::Report;
use kp_tests::{Kind, LoadOrigin, Mix, Setup, wait};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);
/// How much of its second lies before a reload.
const BEFORE: Duration = Duration::from_millis(200);

fn main() {
    let rounds = std::env::args().nth(1);
    let rounds: u32 = rounds.map_or(6, |text| text.parse().expect("a number of reloads"));
    let origin = LoadOrigin::start();
    let kp = Setup::new(
        "%MAIN% worker_processes 2;
http {
    access_log off;
    upstream u { server %U1%; keepalive 64; keepalive_requests 1000000; }
    server {
        listen %LISTEN%;
        keepalive_requests 1000000;
        location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\"; }
    }
}
",
    )
    .with("U1", origin.address())
    .start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 16)
        .clients(Kind::Close, 8)
        .clients(Kind::Pausing, 20)
        .pause_max(SECOND * 2)
        .wait_max(Duration::ZERO)
        .measured()
        .start();
    load.wait_answers(2000);
    let mut moments = Vec::new();
    for _ in 0..rounds {
        // The workers of before must not disturb the quiet second.
        wait::pause(SECOND);
        let quiet = Instant::now();
        let lost = load.report().losses.len();
        wait::pause(SECOND * 2);
        let reload = Instant::now();
        kp.signal(Signal::SIGHUP);
        wait::pause(SECOND * 2);
        moments.push((quiet, reload, load.report().losses.len() - lost));
    }
    let report = load.stop();
    for (quiet, reload, lost) in moments {
        let around = reload.checked_sub(BEFORE).expect("a moment of this run");
        let (still, _) = percentiles(&report, quiet);
        let (busy, answers) = percentiles(&report, around);
        println!("round {still} {busy} {lost} {answers}");
    }
}

/// Of the second that begins then: percentiles as text, and the number of answers.
fn percentiles(report: &Report, begin: Instant) -> (String, usize) {
    let mut times: Vec<u128> = report
        .samples
        .iter()
        .filter(|sample| sample.began >= begin && sample.began < begin + SECOND)
        .map(|sample| sample.took.as_micros())
        .collect();
    times.sort_unstable();
    let count = times.len();
    assert!(count > 100, "only {count} answers in a second");
    let at = |hundredths: usize| times[(count - 1) * hundredths / 100];
    (format!("{} {} {}", at(50), at(99), at(100)), count)
}
