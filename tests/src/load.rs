//! A load that knows exactly which requests it sent and what came back.
//!
//! A [`Mix`] says which clients there are and where they connect; [`Mix::start`] runs them, each in a thread of its own,
//! against a kp whose upstream is a [`LoadOrigin`]. Every request carries a number, every response is checked: status,
//! number, and each byte of the body. What ends a connection between two requests is no loss; anything else that keeps a
//! response from coming is a [`Loss`], with the stage the request was in. Tests wait for answers ([`Load::wait_answers`]),
//! never for time; [`Load::stop`] lets every client finish what it has begun.
//!
//! The load is about exactness, not about rate: clients pause between requests, so that kp, origin and clients fit on
//! two processors.

mod clients;
mod content;
mod origin;
mod report;
mod wire;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use content::Draws;
pub use origin::LoadOrigin;
pub use report::{Kind, Loss, Report, Sample, Stage};
pub use wire::Target;

use nix::sys::signal::Signal;

use crate::peers::peers;
use crate::{process, wait};

/// How long a test waits for answers of a load. A client that pauses or transfers takes its time.
const SOON: Duration = Duration::from_secs(60);
/// What the longest transfer is, unless a mix says otherwise.
const TRANSFER_BYTES: u64 = 50 * 1024 * 1024;

/// Which clients a load has, and where they go.
#[derive(Debug, Clone)]
pub struct Mix {
    targets: Vec<Target>,
    clients: [usize; Kind::ALL.len()],
    unix: Option<Target>,
    pace: Duration,
    pause_max: Duration,
    wait_max_ms: u64,
    transfer_bytes: u64,
    transfer_time: Duration,
    tunnels_may_end: bool,
    tunnel_messages: u64,
    measured: bool,
    seed: u64,
}

impl Mix {
    /// No clients yet; those to come connect to `address`.
    pub fn new(address: &str) -> Self {
        Self {
            targets: vec![Target::Tcp(address.to_owned())],
            clients: [0; Kind::ALL.len()],
            unix: None,
            pace: Duration::from_millis(10),
            pause_max: Duration::from_secs(8),
            wait_max_ms: 30,
            transfer_bytes: TRANSFER_BYTES,
            transfer_time: Duration::from_secs(12),
            tunnels_may_end: false,
            tunnel_messages: u64::MAX,
            measured: false,
            seed: 1,
        }
    }

    /// All that a reload must not disturb, as cases ask for it: 16 clients that POST, 8 that connect anew each time, 20
    /// that pause, 10 uploads and 10 downloads of 50 MiB, a websocket, and a unix socket where there is one.
    pub fn full(address: &str, unix: Option<&Path>) -> Self {
        let mix = Self::new(address)
            .clients(Kind::Post, 16)
            .clients(Kind::Close, 8)
            .clients(Kind::Pausing, 20)
            .clients(Kind::Upload, 10)
            .clients(Kind::Download, 10)
            .clients(Kind::Tunnel, 1);
        match unix {
            Some(path) => mix.unix(path, 2),
            None => mix,
        }
    }

    /// How many clients there are of a kind.
    pub fn clients(mut self, kind: Kind, count: usize) -> Self {
        self.clients[kind.index()] = count;
        self
    }

    /// Clients of a unix socket.
    pub fn unix(mut self, path: &Path, count: usize) -> Self {
        self.unix = Some(Target::Unix(path.to_owned()));
        self.clients(Kind::Unix, count)
    }

    /// The mean pause between two requests of those who hurry (10 ms).
    pub fn pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// The longest pause of those who pause (8 s).
    pub fn pause_max(mut self, longest: Duration) -> Self {
        self.pause_max = longest;
        self
    }

    /// How long the origin waits at most with an answer to one in four POST requests (30 ms).
    pub fn wait_max(mut self, longest: Duration) -> Self {
        self.wait_max_ms = u64::try_from(longest.as_millis()).expect("a short time");
        self
    }

    /// How long transfers are (50 MiB), and how long they take (12 s).
    pub fn transfers(mut self, bytes: u64, time: Duration) -> Self {
        self.transfer_bytes = bytes;
        self.transfer_time = time;
        self
    }

    /// A tunnel that ends is no loss (`worker_shutdown_timeout`).
    pub fn tunnels_may_end(mut self) -> Self {
        self.tunnels_may_end = true;
        self
    }

    /// After how many messages a client gives its tunnel up for a new one (never).
    pub fn tunnel_messages(mut self, count: u64) -> Self {
        self.tunnel_messages = count;
        self
    }

    /// Keeps the time of every answer.
    pub fn measured(mut self) -> Self {
        self.measured = true;
        self
    }

    /// The draws of pauses, sizes and order.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Starts the clients.
    pub fn start(self) -> Load {
        let shared = Arc::new(Shared {
            targets: Mutex::new(self.targets.clone()),
            began: Instant::now(),
            next_id: AtomicU64::new(1),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
            answers: Default::default(),
            tally: Mutex::default(),
            forgiven: Mutex::default(),
            mix: self,
        });
        let threads = Kind::ALL
            .into_iter()
            .flat_map(|kind| {
                (0..shared.mix.clients[kind.index()]).map(move |number| (kind, number))
            })
            .map(|(kind, number)| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || clients::run(&shared, kind, number as u64))
            })
            .collect();
        Load { shared, threads }
    }
}

/// A load under way. One that is dropped stops without a report.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// The right answers so far.
    pub fn answered(&self) -> u64 {
        Kind::ALL.into_iter().map(|kind| self.of(kind)).sum()
    }

    /// The right answers so far to clients of that kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.shared.answers[kind.index()].load(Ordering::SeqCst)
    }

    /// Waits until that many further answers have come.
    pub fn wait_answers(&self, count: u64) {
        let before = self.answered();
        wait::until(SOON, &format!("{count} more answers"), || {
            self.answered() >= before + count
        });
    }

    /// Waits until clients of that kind have got that many further answers.
    pub fn wait_of(&self, kind: Kind, count: u64) {
        let before = self.of(kind);
        wait::until(SOON, &format!("{count} more answers to {kind:?}"), || {
            self.of(kind) >= before + count
        });
    }

    /// Lets new connections go elsewhere. Several targets take turns.
    pub fn aim(&self, addresses: &[&str]) {
        let targets = addresses
            .iter()
            .map(|&address| Target::Tcp(address.to_owned()));
        *self.shared.targets.lock().expect("targets") = targets.collect();
    }

    /// Kills a worker at a moment at which it is known which connections it holds: what is lost of those is counted as
    /// forgiven. False when there is no such process (any more).
    pub fn kill(&self, worker: u32) -> bool {
        if !process::signal(worker, Signal::SIGSTOP) {
            return false;
        }
        let stopped = || process::stopped(worker) || !process::alive(worker);
        wait::until(SOON, "a worker to stop", stopped);
        self.shared.forgiven.lock().expect("kills").push(Forgiven {
            held: peers(worker),
            at: Instant::now(),
        });
        process::signal(worker, Signal::SIGKILL)
    }

    /// What was seen so far.
    pub fn report(&self) -> Report {
        let mut report = self.shared.tally.lock().expect("a tally").clone();
        report.answers = Kind::ALL.map(|kind| self.of(kind));
        report
    }

    /// Lets every client finish what it has begun, without throttling; what all of them have seen.
    pub fn stop(mut self) -> Report {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            thread.join().expect("a client of the load");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.end();
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// A worker that was killed.
#[derive(Debug)]
struct Forgiven {
    held: Vec<String>,
    at: Instant,
}

#[derive(Debug)]
struct Shared {
    mix: Mix,
    targets: Mutex<Vec<Target>>,
    began: Instant,
    next_id: AtomicU64,
    stop: Mutex<bool>,
    stopped: Condvar,
    answers: [AtomicU64; Kind::ALL.len()],
    tally: Mutex<Report>,
    forgiven: Mutex<Vec<Forgiven>>,
}

impl Shared {
    fn stopping(&self) -> bool {
        *self.stop.lock().expect("a flag")
    }

    fn end(&self) {
        *self.stop.lock().expect("a flag") = true;
        self.stopped.notify_all();
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::SeqCst)
    }

    /// Lets time pass, less when the load stops.
    fn pause(&self, duration: Duration) {
        let stop = self.stop.lock().expect("a flag");
        let waited = self
            .stopped
            .wait_timeout_while(stop, duration, |stop| !*stop);
        drop(waited.expect("a flag"));
    }

    fn target(&self, kind: Kind, turn: u64) -> Target {
        match (&self.mix.unix, kind) {
            (Some(target), Kind::Unix) => target.clone(),
            _ => {
                let targets = self.targets.lock().expect("targets");
                let index = usize::try_from(turn % targets.len() as u64).expect("an index");
                targets[index].clone()
            }
        }
    }

    fn connected(&self) {
        self.tally.lock().expect("a tally").connections += 1;
    }

    fn ended_idle(&self, kind: Kind) {
        let mut tally = self.tally.lock().expect("a tally");
        if kind == Kind::Tunnel {
            tally.ended_tunnels += 1;
        } else {
            tally.ended_idle += 1;
        }
    }

    fn answer(&self, kind: Kind, began: Instant) {
        self.answers[kind.index()].fetch_add(1, Ordering::SeqCst);
        if self.mix.measured {
            let took = began.elapsed();
            let mut tally = self.tally.lock().expect("a tally");
            tally.samples.push(Sample { began, took });
        }
    }

    fn lost(&self, loss: Loss) {
        let killed = self.forgiven.lock().expect("kills").iter().any(|killed| {
            killed.held.contains(&loss.local) && loss.opened <= killed.at && loss.ended >= killed.at
        });
        let mut tally = self.tally.lock().expect("a tally");
        if killed {
            tally.forgiven.push(loss);
        } else {
            tally.losses.push(loss);
        }
    }
}
