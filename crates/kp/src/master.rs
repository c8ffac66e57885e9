//! The master's loop: signals, messages and deaths go into the [`Plan`], its actions are carried out.
//!
//! One thread, one `poll(2)`. Everything a reload may trip over (text, logs, directories, sockets) is tried before the plan
//! hears of a new generation; after that only the plan decides.

use crate::crew::{Crew, Worker};
use crate::generation::{Action, Plan, Stop, describe};
use crate::listeners::Listeners;
use crate::logs;
use crate::pidfile::PidFile;
use crate::report;
use crate::settings::{Checked, Place};
use crate::spawn::{self, House};
use crate::state::State;
use kp_shm::Repair;
use kp_sys::process::{self, Ending};
use kp_sys::signals::{
    SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, Signals,
};
use kp_sys::{clock, poll, socket};
use kp_worker::message;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

/// What the master listens for.
pub(crate) const SIGNALS: [i32; 8] = [
    SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCHLD, SIGQUIT, SIGTERM, SIGINT,
];
/// After a worker was killed the shared books are compared once a second, for this long.
const REPAIR_EVERY_MS: u64 = 1_000;
const REPAIR_FOR_MS: u64 = 30_000;

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
    repair: Repair,
    repair_at_ms: Option<u64>,
    repair_until_ms: u64,
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
            repair: Repair::default(),
            repair_at_ms: None,
            repair_until_ms: 0,
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
            self.repair_books(now);
        }
    }

    fn wait(&mut self) {
        let now = clock::monotonic_ms();
        let deadline = self
            .plan
            .deadline_ms()
            .into_iter()
            .chain(self.repair_at_ms)
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

    fn hear_workers(&mut self) {
        let mut ready = Vec::new();
        let mut refused = Vec::new();
        for crew in &mut self.crews {
            for worker in &mut crew.workers {
                while let Some(channel) = &worker.channel {
                    match socket::recv_fds(channel) {
                        Ok(Some((text, _))) => match text.split_first() {
                            Some((&message::READY, _)) => ready.push((crew.number, worker.slot)),
                            Some((&message::FAILED, reason)) => {
                                refused.push((
                                    crew.number,
                                    String::from_utf8_lossy(reason).into_owned(),
                                ));
                            }
                            _ => {
                                log::error!(target: "alert", "worker process {} sent an unknown message", worker.pid);
                            }
                        },
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Ok(None) | Err(_) => worker.channel = None,
                    }
                }
            }
        }
        for (generation, slot) in ready {
            self.plan.ready(generation, slot);
        }
        for (generation, reason) in refused {
            log::error!(target: "emerg", "{reason}");
            self.plan.refuse(generation, reason);
        }
    }

    fn collect_dead(&mut self) {
        loop {
            match process::reap() {
                Ok(Some((pid, ending))) => self.bury(pid, ending),
                Ok(None) => return,
                Err(error) => {
                    log::error!(target: "alert", "waitpid() failed ({})", report::numbered(&error));
                    return;
                }
            }
        }
    }

    fn bury(&mut self, pid: i32, ending: Ending) {
        let ended = describe(ending);
        match ending {
            Ending::Exited(2) => {
                log::error!(target: "alert", "worker process {pid} {ended}: it cannot start, and is not started again");
            }
            Ending::Exited(0) => log::info!(target: "notice", "worker process {pid} {ended}"),
            Ending::Exited(_) | Ending::Signaled { .. } => {
                log::error!(target: "alert", "worker process {pid} {ended}");
            }
        }
        let now = clock::monotonic_ms();
        for crew in &mut self.crews {
            let Some(index) = crew.workers.iter().position(|worker| worker.pid == pid) else {
                continue;
            };
            let worker = crew.workers.swap_remove(index);
            self.house.shm.reap(worker.row);
            if matches!(ending, Ending::Signaled { .. }) {
                self.repair_at_ms = Some(now + REPAIR_EVERY_MS);
                self.repair_until_ms = now + REPAIR_FOR_MS;
            }
            self.plan.ended(crew.number, worker.slot, ending, now);
        }
    }

    fn hear_signals(&mut self) {
        let came = self
            .signals
            .as_mut()
            .map(Signals::drain)
            .unwrap_or_default();
        let now = clock::monotonic_ms();
        for signal in came {
            match signal {
                SIGTERM | SIGINT => {
                    let name = if signal == SIGTERM {
                        "SIGTERM"
                    } else {
                        "SIGINT"
                    };
                    log::info!(target: "notice", "signal {signal} ({name}) received, exiting");
                    self.plan.stop(Stop::Fast, now);
                }
                SIGQUIT => {
                    log::info!(target: "notice", "signal {signal} (SIGQUIT) received, shutting down");
                    self.plan.stop(Stop::Graceful, now);
                }
                SIGHUP if self.plan.is_stopping() => {}
                SIGHUP => {
                    log::info!(target: "notice", "signal {signal} (SIGHUP) received, reconfiguring");
                    self.reload_asked = true;
                }
                SIGUSR1 => {
                    log::info!(target: "notice", "signal {signal} (SIGUSR1) received, reopening logs");
                    self.reopen_logs();
                }
                SIGWINCH if self.daemon => {
                    log::info!(target: "notice", "signal {signal} (SIGWINCH) received, shutting down worker processes");
                    self.plan.retire();
                }
                SIGUSR2 => {
                    log::info!(target: "notice", "signal {signal} (SIGUSR2) received: changing the binary is not supported yet, ignored");
                }
                // SIGCHLD only wakes the loop; SIGWINCH in the foreground is a resized terminal.
                _ => {}
            }
        }
    }

    /// Tries a new configuration; what is wrong is logged and written to the state file, and nothing changes.
    fn reload(&mut self) {
        self.state.begun += 1;
        self.write_state();
        let tried = match self.place.check() {
            Ok(checked) => self.stage(checked),
            Err(refused) => {
                refused.log();
                Err(refused.rendered())
            }
        };
        match tried {
            Ok(crew) => {
                self.plan.begin(crew.slots, clock::monotonic_ms());
                log::info!(target: "notice", "start worker processes");
                self.crews.push(crew);
            }
            Err(failure) => self.reload_ended(failure),
        }
    }

    fn stage(&mut self, checked: Checked) -> Result<Crew, String> {
        let Checked {
            prepared,
            identity,
            findings,
        } = checked;
        let slots = worker_count(&prepared.config.main);
        let staged = logs::make_temporary(&prepared.config.temp_paths, identity.as_ref())
            .and_then(|()| logs::open(&prepared.config))
            .and_then(|files| {
                let listeners = &prepared.config.http.listeners;
                self.listeners.stage(listeners, slots).map(|()| files)
            });
        let files = match staged {
            Ok(files) => files,
            Err(complaints) => {
                let refused = findings.with(complaints);
                refused.log();
                return Err(refused.rendered());
            }
        };
        findings.log();
        Ok(Crew {
            number: self.plan.next_number(),
            prepared,
            identity,
            files,
            slots,
            workers: Vec::new(),
        })
    }

    fn reload_ended(&mut self, failure: String) {
        self.state.ended = self.state.begun;
        self.state.failure = failure;
        self.write_state();
    }

    /// Does what the plan wants; `Some` when it is over.
    fn carry_out(&mut self) -> Option<bool> {
        loop {
            let actions = self.plan.take_actions();
            if actions.is_empty() {
                return None;
            }
            for action in actions {
                match action {
                    Action::Spawn { generation, slot } => self.spawn(generation, slot),
                    Action::Listen { generation } => self.listen(generation),
                    Action::Commit { generation, slot } => {
                        for worker in self
                            .workers_of(generation)
                            .filter(|worker| worker.slot == slot)
                        {
                            worker.tell(message::COMMIT);
                        }
                    }
                    Action::Steer { live, slots } => {
                        if let Err(error) = self.listeners.steer(&live, slots) {
                            log::error!(target: "alert", "steering connections failed ({})", report::numbered(&error));
                        }
                    }
                    Action::Drain {
                        generation,
                        successor,
                    } => self.with(generation, |crew| crew.drain(successor)),
                    Action::Terminate { generation } => {
                        self.with(generation, |crew| crew.signal(SIGTERM));
                    }
                    Action::Kill { generation } => {
                        self.with(generation, |crew| crew.signal(SIGKILL));
                    }
                    Action::Forget { generation } => {
                        self.crews.retain(|crew| crew.number != generation);
                    }
                    Action::Serving {
                        generation,
                        workers,
                    } => self.serving(generation, workers),
                    Action::Failed { generation, reason } => self.failed(generation, &reason),
                    Action::CloseListeners => self.listeners.close(),
                    Action::Exit { asked } => return Some(asked),
                }
            }
        }
    }

    fn spawn(&mut self, generation: u32, slot: u32) {
        let Some(crew) = self.crews.iter().position(|crew| crew.number == generation) else {
            return;
        };
        match spawn::worker(
            &self.house,
            &mut self.crews,
            crew,
            slot,
            &self.listeners,
            &mut self.signals,
        ) {
            Ok(worker) => {
                log::info!(target: "notice", "start worker process {}", worker.pid);
                if let Some(crew) = self.crews.get_mut(crew) {
                    crew.workers.push(worker);
                }
            }
            Err(error) => {
                log::error!(target: "alert", "fork() failed while spawning \"worker process\" ({})", report::numbered(&error));
                self.plan
                    .ended(generation, slot, Ending::Exited(1), clock::monotonic_ms());
            }
        }
    }

    fn listen(&mut self, generation: u32) {
        let Some(crew) = self.crews.iter().find(|crew| crew.number == generation) else {
            return;
        };
        match self.listeners.commit(&crew.prepared.config.http.listeners) {
            Ok(()) => self.plan.listened(generation),
            Err(complaints) => {
                let reason = complaints
                    .into_iter()
                    .map(|one| one.message)
                    .collect::<Vec<_>>()
                    .join("; ");
                self.plan.fail(generation, reason);
            }
        }
    }

    fn serving(&mut self, generation: u32, workers: u32) {
        if let Some(crew) = self.crews.iter().find(|crew| crew.number == generation) {
            let config = &crew.prepared.config;
            if let Err(error) = logs::install(config, &crew.files) {
                log::error!(target: "alert", "the error log cannot be changed ({})", report::numbered(&error));
            }
            let wanted = config.main.pid.clone();
            if self.pid_file.path() != wanted {
                self.move_pid_file(&wanted);
            }
        }
        self.state.generation = generation;
        self.state.workers = workers;
        log::info!(target: "notice", "generation {generation} is serving, {workers} worker processes ready");
        self.reload_ended(String::new());
    }

    fn failed(&mut self, generation: u32, reason: &str) {
        log::error!(target: "emerg", "generation {generation} has failed: {reason}");
        self.listeners.unstage();
        if self.plan.is_stopping() {
            report::say(format_args!("[emerg] {reason}"));
        }
        self.reload_ended(format!("kp: [emerg] {reason}\n"));
    }

    fn move_pid_file(&mut self, wanted: &std::path::Path) {
        match PidFile::create(wanted) {
            Ok(new) => {
                let old = std::mem::replace(&mut self.pid_file, new);
                let _ = std::fs::remove_file(State::path(old.path()));
                old.remove();
            }
            Err(error) => {
                log::error!(target: "emerg", "{}", report::failed("open()", wanted, &error));
            }
        }
    }

    fn reopen_logs(&mut self) {
        let current = self.crews.iter().map(|crew| crew.number).max();
        for crew in &mut self.crews {
            let config = &crew.prepared.config;
            for complaint in
                logs::reopen(&config.log_files, &mut crew.files, crew.identity.as_ref())
            {
                log::error!(target: "emerg", "{complaint}");
            }
            if current == Some(crew.number) {
                if let Err(error) = logs::install(config, &crew.files) {
                    log::error!(target: "alert", "the error log cannot be changed ({})", report::numbered(&error));
                }
                if self.daemon
                    && let Some(file) = crew.stderr_file()
                {
                    let _ = process::replace_stderr(file);
                }
            }
            for worker in &crew.workers {
                if let Some(channel) = &worker.channel
                    && let Err(error) = logs::send(channel, &crew.files)
                {
                    log::error!(target: "alert", "worker process {} got no reopened logs ({})", worker.pid, report::numbered(&error));
                }
            }
        }
    }

    fn repair_books(&mut self, now: u64) {
        if self.repair_at_ms.is_some_and(|at| at <= now) {
            self.repair.sweep(&self.house.shm);
            let again = now < self.repair_until_ms || self.repair.is_suspicious();
            self.repair_at_ms = again.then_some(now + REPAIR_EVERY_MS);
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
