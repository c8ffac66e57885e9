//! From the command line to a running master, in nginx's order: parse → open logs, make directories → bind and listen →
//! become a daemon → signals → pid file → fork. Until the pid file is there nothing of a failed start is left behind.
//!
//! A new binary that a running master has started (an upgrade) goes the same way with the sockets it was handed, and tells
//! that master how it went; one that a service manager has started may be handed sockets, too.

use crate::cli::Options;
use crate::control::ControlSocket;
use crate::crew::Crew;
use crate::inherit::{self, Predecessor, Word};
use crate::listeners::Listeners;
use crate::logs;
use crate::master::{Master, Opened, SIGNALS, settled, worker_count};
use crate::notify::Notifier;
use crate::pidfile::{self, PidFile};
use crate::report;
use crate::settings::{Checked, Place, Refused};
use crate::spawn::{self, House};
use crate::state::StateFiles;
use crate::upgrade::Program;
use kp_config::model::Main;
use kp_config::overrides::{Ground, Overrides, Resolved};
use kp_config::{Config, Diagnostic};
use kp_shm::{Shm, TicketRing};
use kp_sys::process::{self, Fork};
use kp_sys::signals::{self, Signals};
use kp_sys::socket::{recv_fds, send_fds, seqpacket_pair};
use kp_sys::{clock, memfile, poll};
use kp_worker::error_log;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// A pid file that is left over tells of a master that was killed. Its workers hold the addresses until they have noticed,
/// which takes them a moment; nginx tries every address for 2.5 s.
const ORPHANS_MS: u64 = 2_500;
const ORPHANS_LOOK: Duration = Duration::from_millis(50);

/// Why there is no start.
enum Refusal {
    /// Known with places; nothing of it was said yet.
    Findings(Refused),
    /// The configuration is not known, so that this log takes the findings, too.
    Unread(Refused, Option<PathBuf>),
    /// One sentence.
    Sentence(String),
    /// One sentence for the terminal alone: where a log might be is not known.
    Unplaced(String),
}

impl From<String> for Refusal {
    fn from(sentence: String) -> Self {
        Self::Sentence(sentence)
    }
}

/// Serves until told to stop.
pub(crate) fn serve(options: &Options, program: Program) -> ExitCode {
    // A socket for each address and worker: with many of both the usual 1024 are soon used up. It works without, too.
    let _ = process::raise_open_files_limit();
    let mut listeners = Listeners::default();
    let (mut old, handed, overrides) = match inherit::receive() {
        Ok(Some(inheritance)) => {
            listeners.adopt(inheritance.sockets);
            let overrides = inheritance.overrides.and_then(overrides_in);
            (
                Some(inheritance.predecessor),
                inheritance.tickets,
                overrides,
            )
        }
        Ok(None) => (None, None, None),
        Err(complaint) => {
            report::say(format_args!("[emerg] {complaint}"));
            return ExitCode::FAILURE;
        }
    };
    // Before anything is forked: the keys of session tickets are the same for all workers there will ever be.
    let tickets = match ticket_ring(handed) {
        Ok(tickets) => tickets,
        Err(error) => {
            let numbered = report::numbered(&error);
            report::say(format_args!("[emerg] memfd_create() failed ({numbered})"));
            return ExitCode::FAILURE;
        }
    };
    let held = overrides.unwrap_or_default();
    let opened = open(options, &tickets, old.as_ref(), &held, &mut listeners);
    let begun = opened.and_then(|(place, crew)| {
        // Whom to tell is known to the master from here on.
        launch(place, tickets, crew, &mut listeners, &mut old, program).map_err(Refusal::from)
    });
    match begun {
        Ok(Begun::Master(opened)) => Master::new(*opened).run(),
        Ok(Begun::Over(code)) => code,
        Err(refusal) => {
            listeners.close();
            refusal.tell();
            if let Some(old) = old {
                Word::Failed(refusal.text()).send(&old.channel);
            }
            ExitCode::FAILURE
        }
    }
}

/// What the old master's text says.
fn overrides_in(memory: OwnedFd) -> Option<Overrides> {
    let bytes = memfile::contents(memory).ok()?;
    let read = Overrides::from_text(&String::from_utf8_lossy(&bytes));
    read.map_err(|unreadable| {
        report::say(format_args!(
            "[warn] the run-time changes of the old master cannot be used: {unreadable}"
        ));
    })
    .ok()
}

/// The ring of the old master, so that its tickets resume here; a new one where there is none, or none of this layout.
fn ticket_ring(handed: Option<OwnedFd>) -> io::Result<TicketRing> {
    let Some(handed) = handed else {
        return TicketRing::create(clock::unix_ms() / 1000);
    };
    TicketRing::adopt(handed).or_else(|error| {
        report::say(format_args!(
            "[warn] the session ticket keys of the old master cannot be used ({}): its TLS sessions will not resume",
            report::numbered(&error)
        ));
        TicketRing::create(clock::unix_ms() / 1000)
    })
}

impl Refusal {
    /// On the terminal and in the log; once where the log is the terminal.
    fn tell(&self) {
        match self {
            Self::Findings(refused) => tell(refused),
            Self::Unread(refused, log) => {
                report::print(&refused.rendered());
                if let Some(log) = log {
                    logs::install_early(log);
                    refused.log();
                }
            }
            Self::Sentence(text) => {
                report::say(format_args!("[emerg] {text}"));
                if !error_log::is_stderr_only() {
                    log::error!(target: "emerg", "{text}");
                }
            }
            Self::Unplaced(text) => report::say(text),
        }
    }

    /// As the terminal shows it.
    fn text(&self) -> String {
        match self {
            Self::Findings(refused) | Self::Unread(refused, _) => refused.rendered(),
            Self::Sentence(text) => format!("kp: [emerg] {text}\n"),
            Self::Unplaced(text) => format!("kp: {text}\n"),
        }
    }
}

/// Findings for the terminal, with lines and carets, and for the log; once where the log is the terminal, as nginx.
fn tell(findings: &Refused) {
    report::print(&findings.rendered());
    if !error_log::is_stderr_only() {
        findings.log();
    }
}

/// Opens everything that a start may fail at.
fn open(
    options: &Options,
    tickets: &TicketRing,
    old: Option<&Predecessor>,
    held: &Overrides,
    listeners: &mut Listeners,
) -> Result<(Place, Crew), Refusal> {
    let place = Place::find(options).map_err(Refusal::Unplaced)?;
    let early_log = place.early_log().map(Path::to_owned);
    let Checked {
        prepared,
        identity,
        kept,
        findings,
    } = place
        .check(Some(tickets.reader()))
        .map_err(|refused| Refusal::Unread(refused, early_log.clone()))?;
    let config = &prepared.config;
    if old.is_some() && !config.main.master_process {
        let text = "master_process is off: one process cannot take the place of a running master";
        return Err(String::from(text).into());
    }
    if let Some(pid) = pidfile::living_master(&config.main.pid) {
        let text = format!(
            "kp is already running (pid {pid}), as \"{}\" says",
            config.main.pid.display()
        );
        return Err(text.into());
    }
    let files = match logs::open(config) {
        Ok(files) => files,
        Err(complaints) => {
            if let Some(log) = early_log {
                logs::install_early(&log);
            }
            return Err(Refusal::Findings(findings.with(complaints)));
        }
    };
    logs::install(config, &files).map_err(|error| {
        format!(
            "the error log cannot be used ({})",
            report::numbered(&error)
        )
    })?;
    let mut complaints = logs::make_temporary(&config.temp_paths, identity.as_ref())
        .err()
        .unwrap_or_default();
    complaints.extend(pidfile::probe(&config.main.pid).err());
    if !complaints.is_empty() {
        return Err(Refusal::Findings(findings.with(complaints)));
    }
    let slots = slots_of(&config.main);
    if let Err(complaints) = listen(config, slots, old, listeners) {
        return Err(Refusal::Findings(findings.with(complaints)));
    }
    tell(&findings);
    warn_of_limits(&config.main);
    let (overrides, adopted) = StateFiles::default().merge(held, &kept, config);
    // No name was looked up yet; what is about addresses of names is kept.
    let resolved = Resolved::new();
    let overrides = settled(&overrides, &Ground::new(&config.http.upstreams, &resolved));
    let mut crew = Crew::new(1, Rc::new(prepared), identity, files, slots);
    (crew.overrides, crew.adopted) = (Rc::new(overrides), adopted);
    Ok((place, crew))
}

fn slots_of(main: &Main) -> u32 {
    if main.master_process {
        worker_count(main)
    } else {
        1
    }
}

/// Binds what the configuration wants. Where an old master serves, what is new listens only when this one does.
fn listen(
    config: &Config,
    slots: u32,
    old: Option<&Predecessor>,
    listeners: &mut Listeners,
) -> Result<(), Vec<Diagnostic>> {
    let wanted = &config.http.listeners;
    if old.is_none() {
        for warning in listeners.activate(passed_by_manager()?) {
            log::warn!("{warning}");
        }
        for warning in listeners.unwanted(wanted) {
            log::warn!("{warning}");
        }
    }
    let has_orphans = old.is_none() && pidfile::read(&config.main.pid).is_ok();
    let until_ms = clock::monotonic_ms() + ORPHANS_MS;
    while let Err(complaints) = listeners.stage(wanted, slots) {
        if !has_orphans || clock::monotonic_ms() >= until_ms {
            return Err(complaints);
        }
        // Nothing is polled, and nothing but the time can fail.
        let _ = poll::readable(&[], Some(ORPHANS_LOOK));
    }
    if old.is_none() {
        listeners.commit(wanted, clock::monotonic_ms())?;
    }
    Ok(())
}

/// What a service manager has opened for this process (sd_listen_fds(3)).
fn passed_by_manager() -> Result<Vec<OwnedFd>, Vec<Diagnostic>> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let mine = number("LISTEN_PID").is_some_and(|pid| pid == std::process::id());
    let count = number("LISTEN_FDS").filter(|_| mine).unwrap_or(0);
    process::take_passed(count).map_err(|error| {
        let text = format!(
            "the {count} descriptors that LISTEN_FDS promises are not there ({})",
            report::numbered(&error)
        );
        vec![Diagnostic::system(text)]
    })
}

/// How far a start has come.
enum Begun {
    /// A master is about to run.
    Master(Box<Opened>),
    /// The process has nothing more to do.
    Over(ExitCode),
}

fn launch(
    place: Place,
    tickets: TicketRing,
    mut crew: Crew,
    listeners: &mut Listeners,
    old: &mut Option<Predecessor>,
    program: Program,
) -> Result<Begun, String> {
    let main = &crew.prepared.config.main;
    let mut states = StateFiles::default();
    states.adopt(std::mem::take(&mut crew.adopted));
    let mut waiting_parent = None;
    // What replaces a daemon is one; and who waits for it has its process id already.
    let daemon = match old {
        Some(old) => old.daemon,
        None => main.daemon,
    };
    if daemon && old.is_none() {
        let forked = become_daemon()
            .map_err(|error| format!("fork() failed ({})", report::numbered(&error)))?;
        match forked {
            Daemon::Parent(code) => return Ok(Begun::Over(code)),
            Daemon::Child(parent) => waiting_parent = Some(parent),
        }
    }
    let (house, signals) = House::open(place.prefix(), tickets, main.master_process)
        .and_then(|house| Ok((house, subscribe(main.master_process)?)))
        .map_err(|error| format!("the master cannot start ({})", report::numbered(&error)))?;
    process::set_title(&format!("kp: master process {}", program.command_line()));
    let pid = &main.pid;
    let pid_file = PidFile::create(pid).map_err(|error| report::failed("open()", pid, &error))?;
    let mut control = ControlSocket::default();
    if main.master_process {
        // Before anybody is told that kp has started. If it fails that is tried again, and told, by the master.
        let _ = control.follow(pid, clock::monotonic_ms());
    }
    if let Some(parent) = waiting_parent {
        // The parent may have been killed meanwhile; that changes nothing.
        let _ = send_fds(&parent, b"R", &[]);
    }
    if daemon && let Some(file) = crew.stderr_file() {
        let _ = process::replace_stderr(file);
    }
    let Some(signals) = signals else {
        return alone(&house, crew, listeners, pid_file).map(Begun::Over);
    };
    Ok(Begun::Master(Box::new(Opened {
        place,
        house,
        signals,
        listeners: std::mem::take(listeners),
        pid_file,
        control,
        states,
        first: crew,
        daemon,
        program,
        predecessor: old.take(),
    })))
}

/// The master's signals. Where this process is the worker it hears them as such: what comes before that has to wait.
fn subscribe(master: bool) -> io::Result<Option<Signals>> {
    if master {
        return Signals::new(&SIGNALS).map(Some);
    }
    signals::block_all().map(|()| None)
}

/// `master_process off`: this process is the one worker.
fn alone(
    house: &House,
    crew: Crew,
    listeners: &mut Listeners,
    pid_file: PidFile,
) -> Result<ExitCode, String> {
    spawn::prepare_zones(house, Some(&crew), crew.number);
    let row = house.shm.scoreboard().claim(crew.number, 0);
    let facts = house.shm.master();
    facts.set_started(clock::unix_ms());
    facts.set_generation(crew.number);
    house
        .shm
        .scoreboard()
        .set_pid(row, u32::try_from(process::id()).unwrap_or(0));
    let heritage = spawn::heritage(house, crew, 0, row, None, listeners)
        .map_err(|error| format!("dup() failed ({})", report::numbered(&error)))?;
    Notifier::new().serving(1, 1);
    let code = kp_worker::run(heritage);
    listeners.close();
    pid_file.remove();
    Ok(ExitCode::from(code))
}

enum Daemon {
    /// The process that was started from the shell, and its exit code.
    Parent(ExitCode),
    /// The master to be; the parent waits for a word here.
    Child(OwnedFd),
}

/// The parent exits when the pid file is there, so that who started kp can signal it at once; or 1 if it never comes.
fn become_daemon() -> io::Result<Daemon> {
    let (near, far) = seqpacket_pair()?;
    match process::fork()? {
        Fork::Child => {
            drop(near);
            process::detach()?;
            Ok(Daemon::Child(far))
        }
        Fork::Parent(_) => {
            drop(far);
            poll::readable(&[near.as_fd()], None)?;
            let came = matches!(recv_fds(&near), Ok(Some(_)));
            Ok(Daemon::Parent(if came {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }))
        }
    }
}

impl House {
    /// `forks`: there will be workers, who watch the master.
    fn open(prefix: &Path, tickets: TicketRing, forks: bool) -> io::Result<Self> {
        let mut group_token = [0; 8];
        kp_sys::random(&mut group_token)?;
        Ok(Self {
            shm: Shm::create()?,
            tickets,
            master: forks
                .then(|| process::pidfd_open(process::id()))
                .transpose()?,
            hostname: kp_sys::hostname(),
            group_token,
            prefix: prefix.to_owned(),
        })
    }
}

fn warn_of_limits(main: &Main) {
    let limit = main
        .worker_rlimit_nofile
        .or_else(|| process::open_files_limit().ok());
    if let Some(limit) = limit.filter(|limit| u64::from(main.worker_connections) > *limit) {
        log::warn!(
            "{} worker_connections exceed open file resource limit: {limit}",
            main.worker_connections
        );
    }
}
