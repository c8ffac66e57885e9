//! The master's loop: signals, messages and deaths go into the [`Plan`], its actions are carried out.
//!
//! One thread, one `poll(2)`. Here are the loop, its start and its end; `hear` takes in what comes, `reload` tries a new
//! configuration and `queue` keeps who waits for that, `succession` deals with the masters before and after this one, `ask`
//! answers questions, of which `status` is the largest, `ctl` obeys commands and `inquiries` asks the workers for them,
//! `carry_out` does what the plan wants, `reopen` hands out new log files, `certificates` tends to TLS, `change` steers
//! upstreams.

mod ask;
mod carry_out;
mod certificates;
mod change;
mod ctl;
mod hear;
mod inquiries;
mod queue;
mod reload;
mod reopen;
mod status;
mod succession;

use crate::control::ControlSocket;
use crate::crew::{Crew, Worker};
use crate::generation::Plan;
use crate::inherit::Predecessor;
use crate::listeners::Listeners;
use crate::notify::Notifier;
use crate::pidfile::PidFile;
use crate::report;
use crate::settings::Place;
use crate::spawn::House;
use crate::state::StateFiles;
use crate::upgrade::Program;
use certificates::Certificates;
use change::Steering;
pub(crate) use change::settled;
use inquiries::Inquiries;
use kp_sys::clock;
use kp_sys::poll::{self, Interest};
use kp_sys::signals::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGIO, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, Signals,
};
use kp_worker::books::Books;
use queue::ReloadQueue;
use reload::HandOver;
use reopen::Reopenings;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;
use succession::{Successor, Wanted};

/// What the master listens for. SIGALRM and SIGIO mean nothing to it, and shall not end it (as nginx).
pub(crate) const SIGNALS: [i32; 10] = [
    SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCHLD, SIGALRM, SIGIO, SIGQUIT, SIGTERM, SIGINT,
];

/// What the start has opened.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Where the configuration is.
    pub(crate) place: Place,
    /// What every worker is born with.
    pub(crate) house: House,
    /// The master's subscription.
    pub(crate) signals: Signals,
    /// The listening sockets.
    pub(crate) listeners: Listeners,
    /// The pid file, with this process's number.
    pub(crate) pid_file: PidFile,
    /// The socket beside it.
    pub(crate) control: ControlSocket,
    /// Where run-time changes are kept.
    pub(crate) states: StateFiles,
    /// The first generation; its sockets listen already.
    pub(crate) first: Crew,
    /// It has left its terminal.
    pub(crate) daemon: bool,
    /// What an upgrade starts.
    pub(crate) program: Program,
    /// The master that has started this one in its place.
    pub(crate) predecessor: Option<Predecessor>,
}

/// The running master.
#[derive(Debug)]
pub(crate) struct Master {
    place: Place,
    house: House,
    signals: Option<Signals>,
    listeners: Listeners,
    pid_file: PidFile,
    control: ControlSocket,
    daemon: bool,
    started_ms: u64,
    plan: Plan,
    crews: Vec<Crew>,
    reloads: ReloadQueue,
    hand_over: Option<HandOver>,
    reopenings: Reopenings,
    inquiries: Inquiries,
    books: Books,
    certificates: Certificates,
    notifier: Notifier,
    program: Program,
    predecessor: Option<Predecessor>,
    successor: Option<Successor>,
    upgrade: Option<Wanted>,
    steering: Steering,
}

impl Master {
    /// Takes over what the start has opened.
    pub(crate) fn new(opened: Opened) -> Self {
        let mut plan = Plan::default();
        let (slots, now) = (opened.first.slots, clock::monotonic_ms());
        match opened.predecessor {
            Some(_) => plan.take_over(slots, now),
            None => plan.begin(slots, now),
        }
        let facts = opened.house.shm.master();
        facts.set_started(clock::unix_ms());
        Self {
            place: opened.place,
            house: opened.house,
            signals: Some(opened.signals),
            listeners: opened.listeners,
            pid_file: opened.pid_file,
            control: opened.control,
            daemon: opened.daemon,
            started_ms: clock::monotonic_ms(),
            plan,
            crews: vec![opened.first],
            reloads: ReloadQueue::default(),
            hand_over: None,
            reopenings: Reopenings::default(),
            inquiries: Inquiries::default(),
            books: Books::default(),
            certificates: Certificates::default(),
            notifier: Notifier::new(),
            program: opened.program,
            predecessor: opened.predecessor,
            successor: None,
            upgrade: None,
            steering: Steering::new(opened.states),
        }
    }

    /// Runs until told to stop (0), or until no worker could start (1).
    pub(crate) fn run(mut self) -> ExitCode {
        log::info!(target: "notice", "kp/{}", env!("CARGO_PKG_VERSION"));
        log::info!(target: "notice", "start worker processes");
        loop {
            if let Some(asked) = self.carry_out() {
                return self.leave(asked);
            }
            if self.plan.is_stopping() {
                self.refuse_reloads();
            }
            if self.reloads.is_wanted() && !self.plan.is_starting() && self.hand_over.is_none() {
                self.reload();
                continue;
            }
            if !self.plan.is_starting()
                && let Some(wanted) = self.upgrade.take()
            {
                self.succeed(wanted);
                continue;
            }
            self.wait();
            let signals = self.take_signals();
            self.hear_workers();
            self.collect_dead();
            self.hear_masters();
            self.obey(signals);
            self.hear_askers();
            let now = clock::monotonic_ms();
            self.settle_reopenings(now);
            self.settle_inquiries(now);
            self.settle_hand_over(now);
            self.settle_upgrade(now);
            self.settle_changes(now);
            self.plan.tick(now);
            self.books.look(&self.house.shm, self.shows_status(), now);
            self.tend_certificates(now);
            if !self.plan.is_starting() {
                self.listeners.sweep(now);
            }
        }
    }

    fn wait(&mut self) {
        let now = clock::monotonic_ms();
        let listeners = (!self.plan.is_starting()).then(|| self.listeners.due_ms());
        let listeners = listeners.flatten();
        let deadline = self
            .plan
            .deadline_ms()
            .into_iter()
            .chain([self.books.due_ms()])
            .chain([self.certificates.due_ms()])
            .chain(listeners)
            .chain(self.control.deadline_ms())
            .chain(self.reopenings.deadline_ms())
            .chain(self.inquiries.deadline_ms())
            .chain(self.hand_over.as_ref().map(HandOver::deadline_ms))
            .chain(self.upgrade_due_ms())
            .chain(self.steering.due_ms())
            .min();
        let timeout = deadline.map(|at| Duration::from_millis(at.saturating_sub(now)));
        let signals = self.signals.iter().map(AsFd::as_fd);
        let channels = self
            .crews
            .iter()
            .flat_map(|crew| &crew.workers)
            .filter_map(|worker| worker.channel.as_ref());
        let masters = self
            .predecessor
            .iter()
            .map(|old| &old.channel)
            .chain(self.successor.iter().filter_map(Successor::channel));
        let sources = signals
            .chain(channels.map(AsFd::as_fd))
            .chain(masters.map(AsFd::as_fd))
            .map(|fd| (fd, Interest::Read))
            .chain(self.control.sources());
        if let Err(error) = poll::wait(sources, timeout) {
            log::error!(target: "alert", "poll() failed ({})", report::numbered(&error));
        }
    }

    fn leave(mut self, asked: bool) -> ExitCode {
        self.listeners.close();
        self.refuse_reloads();
        self.control.close();
        self.pid_file.remove();
        // The other master hears the end of the channel, and must not find the pid file then.
        self.successor = None;
        self.predecessor = None;
        log::info!(target: "notice", "exit");
        if asked {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn with(&mut self, generation: u32, what: impl FnOnce(&mut Crew)) {
        if let Some(crew) = self.crews.iter_mut().find(|crew| crew.number == generation) {
            what(crew);
        }
    }

    /// Whether the newest configuration has a page that shows the last hour.
    fn shows_status(&self) -> bool {
        let newest = self.newest_crew();
        newest.is_some_and(|crew| crew.prepared.config.http.shows_status())
    }

    /// The one whose configuration counts for what concerns the whole house.
    fn newest_crew(&self) -> Option<&Crew> {
        self.crews.iter().rfind(|crew| !crew.failed)
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
