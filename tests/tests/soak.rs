//! `make soak`: reloads, killed workers, upgrades and rotated logs, in an order drawn from a seed, under the full mix.
//!
//! Arguments: the seed (else one of the clock) and the minutes it takes (6). A hundred reloads are always in it. Ends with 1
//! and the seed when anything was lost but connections of a worker while that worker was killed, when something was left
//! behind, or when the master has grown.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for developers: it panics to fail, prints what it sees and reads the clock"
)]

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kp_tests::load::{Draws, Report};
use kp_tests::{Kp, Load, LoadOrigin, Mix, Port, Setup, process, wait};

/// How long the last transfers and tunnels of a generation may take on a machine that has much else to do. Nothing is cut
/// (`worker_shutdown_timeout`), so whatever does not end well is a loss.
const DRAIN: Duration = Duration::from_secs(180);
/// How long anything else may take there.
const SLACK: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Reload,
    Kill,
    Rotate,
    Upgrade,
}

/// How many there are of each.
const STEPS: [(Step, usize); 4] = [
    (Step::Reload, 100),
    (Step::Kill, 15),
    (Step::Rotate, 20),
    (Step::Upgrade, 6),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |otherwise| match arguments.next() {
        Some(number) => number.expect("arguments are numbers: SEED MINUTES"),
        None => otherwise,
    };
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = next(clock.map_or(1, |since| since.as_secs()));
    let minutes = next(6);
    println!("soak: seed {seed}, {minutes} minutes and what the last drain takes");
    let ran = catch_unwind(AssertUnwindSafe(|| {
        soak(seed, Duration::from_secs(minutes * 60))
    }));
    let code = match ran {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) | Err(_) => ExitCode::FAILURE,
    };
    println!("soak: FAILED, again with: make soak SEED={seed} MINUTES={minutes}");
    code
}

/// Runs; whether all is well.
fn soak(seed: u64, time: Duration) -> bool {
    let mut soak = Soak::start(seed);
    let mut steps = drawn(&mut soak.draws);
    let interval = time / u32::try_from(steps.len()).expect("a small number");
    let began = Instant::now();
    let mut printed = Instant::now();
    for (number, step) in (1..).zip(steps.drain(..)) {
        soak.take(step);
        soak.notice_size(began.elapsed());
        if printed.elapsed() > Duration::from_secs(20) {
            soak.print();
            printed = Instant::now();
        }
        wait::pause((interval * number).saturating_sub(began.elapsed()));
    }
    soak.finish()
}

/// All steps, in an order drawn.
fn drawn(draws: &mut Draws) -> Vec<Step> {
    let mut left: Vec<Step> = STEPS
        .iter()
        .flat_map(|(step, count)| std::iter::repeat_n(*step, *count))
        .collect();
    let mut steps = Vec::new();
    while !left.is_empty() {
        let index = draws.below(left.len() as u64);
        steps.push(left.swap_remove(usize::try_from(index).expect("an index")));
    }
    steps
}

/// What must not grow: resident memory and descriptors of the master.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    rss_kib: u64,
    descriptors: usize,
}

struct Soak {
    draws: Draws,
    origin: LoadOrigin,
    spare: Port,
    kp: Kp,
    load: Option<Load>,
    /// Every master that may still have workers, the serving one last.
    masters: Vec<u32>,
    taken: Vec<Step>,
    /// Files of before, and their size when `-s reopen` returned.
    rotated: Vec<(String, usize)>,
    /// The most in the first minute.
    first: Size,
    complaints: Vec<String>,
}

impl Soak {
    fn start(seed: u64) -> Self {
        let mut draws = Draws::new(seed);
        let (origin, spare) = (LoadOrigin::start(), Port::take());
        let kp = configured(&origin, &spare, &mut draws)
            .allow("exited on signal 9")
            .start();
        wait::until(SLACK, "workers", || !kp.worker_pids().is_empty());
        let load = Mix::full(&kp.address(), Some(&kp.path("kp.listen")))
            .transfers(50 * 1024 * 1024, Duration::from_secs(5))
            .tunnel_messages(200)
            .seed(seed)
            .start();
        Self {
            draws,
            masters: vec![kp.master_pid()],
            origin,
            spare,
            kp,
            load: Some(load),
            taken: Vec::new(),
            rotated: Vec::new(),
            first: Size::default(),
            complaints: Vec::new(),
        }
    }

    fn load(&self) -> &Load {
        self.load.as_ref().expect("a load under way")
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Reload => self.reload(),
            Step::Kill => self.kill(),
            Step::Rotate => self.rotate(),
            Step::Upgrade => self.upgrade(),
        }
        self.taken.push(step);
        self.load().wait_answers(20);
    }

    fn command(&self, words: &[&str]) {
        let said = self.kp.command(words);
        assert_eq!(said.code, 0, "{words:?}: {}", said.stderr);
    }

    /// With another number of workers, and with or without a second address.
    fn reload(&mut self) {
        let setup = configured(&self.origin, &self.spare, &mut self.draws);
        self.kp.configure(&setup);
        self.command(&["-s", "reload"]);
    }

    /// Any worker, be it serving or draining.
    fn kill(&mut self) {
        let workers = self.workers();
        let worker = *self.draws.pick(&workers);
        self.load().kill(worker);
        wait::until(SLACK, "a killed worker to be replaced", || {
            !process::alive(worker) && !self.kp.worker_pids().is_empty()
        });
    }

    fn rotate(&mut self) {
        let name = format!("access.log.{}", self.rotated.len());
        let moved = self.kp.path(&name);
        fs::rename(self.kp.path("access.log"), moved).expect("renaming a log");
        self.command(&["-s", "reopen"]);
        let size = self.kp.text(&name).len();
        self.rotated.push((name, size));
    }

    /// As long as the master of before has workers, there is no other upgrade.
    fn upgrade(&mut self) {
        wait::until(DRAIN, "the master of before to leave", || {
            self.masters.retain(|pid| process::alive(*pid));
            self.masters.len() == 1
        });
        self.command(&["-s", "upgrade"]);
        self.masters.push(self.kp.follow());
    }

    /// The workers of all masters.
    fn workers(&self) -> Vec<u32> {
        let children = self.masters.iter().map(|master| process::children(*master));
        let mut workers: Vec<u32> = children.flatten().collect();
        workers.retain(|pid| process::title(*pid).contains("worker process"));
        workers
    }

    fn size(&self) -> Size {
        let master = self.kp.master_pid();
        Size {
            rss_kib: process::rss_kib(master),
            descriptors: process::descriptors(master).len(),
        }
    }

    fn notice_size(&mut self, elapsed: Duration) {
        if elapsed < Duration::from_secs(60) {
            let size = self.size();
            self.first.rss_kib = self.first.rss_kib.max(size.rss_kib);
            self.first.descriptors = self.first.descriptors.max(size.descriptors);
        }
    }

    fn print(&self) {
        let count = |step| self.taken.iter().filter(|taken| **taken == step).count();
        let report = self.load().report();
        println!(
            "{} answers, {} lost, {} lost with killed workers; {} reloads, {} kills, {} rotations, {} upgrades; {} workers; master {:?}",
            report.answered(),
            report.losses.len(),
            report.forgiven.len(),
            count(Step::Reload),
            count(Step::Kill),
            count(Step::Rotate),
            count(Step::Upgrade),
            self.workers().len(),
            self.size(),
        );
        for loss in &report.losses {
            println!("  {loss}");
        }
    }

    fn complain_unless(&mut self, holds: bool, text: impl Into<String>) {
        if !holds {
            self.complaints.push(text.into());
        }
    }

    fn finish(mut self) -> bool {
        self.print();
        let report = self.load.take().expect("a load under way").stop();
        println!("{report}");
        self.complain_unless(report.losses.is_empty(), "requests were lost");
        let twice = self.origin.twice();
        self.complain_unless(twice.is_empty(), format!("sent twice: {twice:?}"));
        let drained = wait::happens(DRAIN, || {
            self.masters.retain(|pid| process::alive(*pid));
            self.masters.len() == 1 && self.workers().len() == self.kp.worker_pids().len()
        });
        self.complain_unless(drained, "old workers or masters were left behind");
        self.check_size();
        self.check_logs(&report);
        for complaint in &self.complaints {
            println!("soak: {complaint}");
        }
        self.complaints.is_empty()
    }

    fn check_size(&mut self) {
        let last = self.size();
        let first = self.first;
        let descriptors: Vec<usize> = self
            .workers()
            .into_iter()
            .map(process::lasting_descriptors)
            .collect();
        println!(
            "master in the first minute {first:?}, at the end {last:?}; descriptors of workers without connections {descriptors:?}"
        );
        let grown = last.rss_kib * 10 > first.rss_kib * 11
            || last.descriptors * 10 > first.descriptors * 11;
        self.complain_unless(!grown, "the master has grown");
        // Two addresses and a path with at most four sockets each, logs, channel, signals, epoll.
        let many = descriptors.iter().any(|count| *count > 32);
        self.complain_unless(!many, "a worker keeps descriptors");
    }

    /// Every answer has its line, once; but a killed worker may not have written those of its last moment.
    fn check_logs(&mut self, report: &Report) {
        let mut text = self.kp.text("access.log");
        for (name, size) in std::mem::take(&mut self.rotated) {
            let rotated = self.kp.text(&name);
            let now = rotated.len();
            self.complain_unless(
                now == size,
                format!("{name} has grown from {size} to {now} after -s reopen"),
            );
            text.push_str(&rotated);
        }
        let lines: Vec<&str> = text.lines().collect();
        let different: BTreeSet<&str> = lines.iter().copied().collect();
        let torn = lines
            .iter()
            .filter(|line| line.parse::<u64>().is_err())
            .count();
        let tunnels = report.of(kp_tests::Kind::Tunnel);
        let expected = report.answered() - tunnels;
        let kills = self
            .taken
            .iter()
            .filter(|step| **step == Step::Kill)
            .count() as u64;
        println!("{} log lines for {expected} requests", lines.len());
        self.complain_unless(lines.len() == different.len(), "lines came twice");
        self.complain_unless(torn == 0, format!("{torn} lines are torn"));
        // One loop turn of a worker answers at most what its connections asked.
        let missing = expected.saturating_sub(lines.len() as u64);
        self.complain_unless(
            missing <= kills * 40,
            format!("{missing} lines are missing"),
        );
    }
}

fn configured(origin: &LoadOrigin, spare: &Port, draws: &mut Draws) -> Setup {
    let workers = 1 + draws.below(4);
    let listen = match draws.below(2) {
        0 => String::new(),
        _ => format!("listen {};", spare.address()),
    };
    Setup::new(
        "error_log error.log notice;
http {
    log_format number $http_x_load;
    access_log access.log number;
    upstream u { zone u 256k; server %U1%; keepalive 64; }
    server {
        listen %LISTEN%; listen unix:%DIR%/kp.listen; %SPARE%
        add_header X-Worker $pid always;
        client_max_body_size 100m;
        location / { proxy_pass http://u; }
        location /websocket {
            access_log off;
            proxy_pass http://u;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
        }
    }
}
worker_processes %WORKERS%;
",
    )
    .with("U1", origin.address())
    .with("SPARE", listen)
    .with("WORKERS", workers.to_string())
}
