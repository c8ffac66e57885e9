//! The master's loop: signals, messages and deaths go into the [`Plan`], its actions are carried out.
//!
//! One thread, one `poll(2)`. Here are the loop, its start and its end; `hear` takes in what comes, `reload` tries a new
//! configuration, `carry_out` does what the plan wants, `reopen` hands out new log files, `books` watches the shared tables.

mod books;
mod carry_out;
mod hear;
mod reload;
mod reopen;

use crate::crew::{Crew, Worker};
use crate::generation::Plan;
use crate::listeners::Listeners;
use crate::pidfile::PidFile;
use crate::report;
use crate::settings::Place;
use crate::spawn::House;
use crate::state::State;
use books::Books;
use kp_sys::process;
use kp_sys::signals::{
    SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, Signals,
};
use kp_sys::{clock, poll};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

/// What the master listens for.
pub(crate) const SIGNALS: [i32; 8] = [
    SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCHLD, SIGQUIT, SIGTERM, SIGINT,
];

/// The running master.
#[derive(Debug)]
pub(crate) struct Master {
    place: Place,
    house: House,
    signals: Option<Signals>,
    listeners: Listeners,
    pid_file: PidFile,
    daemon: bool,
    plan: Plan,
    crews: Vec<Crew>,
    state: State,
    reload_asked: bool,
    books: Books,
}

impl Master {
    /// Takes over what the start has opened. `first` listens already.
    pub(crate) fn new(
        place: Place,
        house: House,
        signals: Signals,
        listeners: Listeners,
        pid_file: PidFile,
        first: Crew,
        daemon: bool,
    ) -> Self {
        let state = State {
            pid: process::id(),
            begun: 1,
            ..State::default()
        };
        let mut plan = Plan::default();
        plan.begin(first.slots, clock::monotonic_ms());
        Self {
            place,
            house,
            signals: Some(signals),
            listeners,
            pid_file,
            daemon,
            plan,
            crews: vec![first],
            state,
            reload_asked: false,
            books: Books::default(),
        }
    }

    /// Runs until told to stop (0), or until no worker could start (1).
    pub(crate) fn run(mut self) -> ExitCode {
        self.write_state();
        log::info!(target: "notice", "kp/{}", env!("CARGO_PKG_VERSION"));
        log::info!(target: "notice", "start worker processes");
        loop {
            if let Some(asked) = self.carry_out() {
                return self.leave(asked);
            }
            if self.reload_asked && !self.plan.is_starting() {
                self.reload_asked = false;
                self.reload();
                continue;
            }
            self.wait();
            self.hear_workers();
            self.collect_dead();
            self.hear_signals();
            let now = clock::monotonic_ms();
            self.plan.tick(now);
            self.books.look(&self.house.shm, now);
        }
    }

    fn wait(&mut self) {
        let now = clock::monotonic_ms();
        let deadline = self
            .plan
            .deadline_ms()
            .into_iter()
            .chain(self.books.due_ms())
            .min();
        let timeout = deadline.map(|at| Duration::from_millis(at.saturating_sub(now)));
        let signals = self.signals.iter().map(AsFd::as_fd);
        let channels = self
            .crews
            .iter()
            .flat_map(|crew| &crew.workers)
            .filter_map(|worker| worker.channel.as_ref());
        let sources: Vec<_> = signals.chain(channels.map(AsFd::as_fd)).collect();
        if let Err(error) = poll::readable(&sources, timeout) {
            log::error!(target: "alert", "poll() failed ({})", report::numbered(&error));
        }
    }

    fn write_state(&mut self) {
        self.state.addresses = self.listeners.addresses();
        let path = State::path(self.pid_file.path());
        if let Err(error) = self.state.write(&path) {
            log::error!(target: "alert", "{}", report::failed("write()", &path, &error));
        }
    }

    fn leave(mut self, asked: bool) -> ExitCode {
        self.listeners.close();
        let _ = std::fs::remove_file(State::path(self.pid_file.path()));
        self.pid_file.remove();
        log::info!(target: "notice", "exit");
        if asked {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn with(&self, generation: u32, what: impl FnOnce(&Crew)) {
        if let Some(crew) = self.crews.iter().find(|crew| crew.number == generation) {
            what(crew);
        }
    }

    fn workers_of(&self, generation: u32) -> impl Iterator<Item = &Worker> {
        self.crews
            .iter()
            .filter(move |crew| crew.number == generation)
            .flat_map(|crew| &crew.workers)
    }
}

/// `worker_processes`, `auto` being the CPUs this process may use.
pub(crate) fn worker_count(main: &kp_config::model::Main) -> u32 {
    main.worker_processes
        .unwrap_or_else(|| u32::try_from(kp_sys::cpu_count()).unwrap_or(1))
        .max(1)
}
