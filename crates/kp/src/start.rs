//! From the command line to a running master, in nginx's order: parse → open logs, make directories → bind and listen →
//! become a daemon → signals → pid file → fork. Until the pid file is there nothing of a failed start is left behind.

use crate::cli::Options;
use crate::control::ControlSocket;
use crate::crew::Crew;
use crate::listeners::Listeners;
use crate::logs;
use crate::master::{Master, Opened, SIGNALS, worker_count};
use crate::notify::Notifier;
use crate::pidfile::{self, PidFile};
use crate::report;
use crate::settings::{Checked, Place, Refused};
use crate::spawn::{self, House};
use kp_shm::{Shm, TicketRing};
use kp_sys::process::{self, Fork};
use kp_sys::signals::Signals;
use kp_sys::socket::{recv_fds, send_fds, seqpacket_pair};
use kp_sys::{clock, poll};
use kp_worker::error_log;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

/// Why there is no start.
enum Refusal {
    /// Known with places; nothing of it was said yet.
    Findings(Refused),
    /// One sentence.
    Sentence(String),
}

impl From<String> for Refusal {
    fn from(sentence: String) -> Self {
        Self::Sentence(sentence)
    }
}

/// Serves until told to stop.
pub(crate) fn serve(options: &Options, command_line: &str) -> ExitCode {
    let place = match Place::find(options) {
        Ok(place) => place,
        Err(complaint) => {
            report::say(complaint);
            return ExitCode::FAILURE;
        }
    };
    // Before anything is forked: the keys of session tickets are the same for all workers there will ever be.
    let tickets = match TicketRing::create(clock::unix_ms() / 1000) {
        Ok(tickets) => tickets,
        Err(error) => {
            let numbered = report::numbered(&error);
            report::say(format_args!("[emerg] memfd_create() failed ({numbered})"));
            return ExitCode::FAILURE;
        }
    };
    let checked = match place.check(Some(tickets.reader())) {
        Ok(checked) => checked,
        Err(refused) => {
            report::print(&refused.rendered());
            if let Some(log) = place.early_log() {
                logs::install_early(log);
                refused.log();
            }
            return ExitCode::FAILURE;
        }
    };
    match open(checked, place.early_log()) {
        Ok((crew, listeners)) => launch(place, tickets, crew, listeners, command_line),
        Err(refusal) => {
            match refusal {
                Refusal::Findings(refused) => tell(&refused),
                Refusal::Sentence(text) => {
                    report::say(format_args!("[emerg] {text}"));
                    if !error_log::is_stderr_only() {
                        log::error!(target: "emerg", "{text}");
                    }
                }
            }
            ExitCode::FAILURE
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
fn open(checked: Checked, early_log: Option<&Path>) -> Result<(Crew, Listeners), Refusal> {
    let Checked {
        prepared,
        identity,
        findings,
    } = checked;
    let config = &prepared.config;
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
                logs::install_early(log);
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
    let slots = if config.main.master_process {
        worker_count(&config.main)
    } else {
        1
    };
    let mut listeners = Listeners::default();
    if let Err(complaints) = listeners
        .stage(&config.http.listeners, slots)
        .and_then(|()| listeners.commit(&config.http.listeners, clock::monotonic_ms()))
    {
        listeners.close();
        return Err(Refusal::Findings(findings.with(complaints)));
    }
    tell(&findings);
    warn_of_limits(&config.main);
    Ok((Crew::new(1, prepared, identity, files, slots), listeners))
}

fn launch(
    place: Place,
    tickets: TicketRing,
    crew: Crew,
    mut listeners: Listeners,
    command_line: &str,
) -> ExitCode {
    let daemon = crew.prepared.config.main.daemon;
    let waiting_parent = if daemon {
        match become_daemon() {
            Ok(Daemon::Parent(code)) => return code,
            Ok(Daemon::Child(parent)) => Some(parent),
            Err(error) => {
                return refuse(
                    &mut listeners,
                    &format!("fork() failed ({})", report::numbered(&error)),
                );
            }
        }
    } else {
        None
    };
    let opened =
        House::open(place.prefix(), tickets).and_then(|house| Ok((house, Signals::new(&SIGNALS)?)));
    let (house, signals) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            return refuse(
                &mut listeners,
                &format!("the master cannot start ({})", report::numbered(&error)),
            );
        }
    };
    process::set_title(&format!("kp: master process {command_line}"));
    let pid = &crew.prepared.config.main.pid;
    let pid_file = match PidFile::create(pid) {
        Ok(pid_file) => pid_file,
        Err(error) => return refuse(&mut listeners, &report::failed("open()", pid, &error)),
    };
    let mut control = ControlSocket::default();
    if crew.prepared.config.main.master_process {
        // Before anybody is told that kp has started. If it fails that is tried again, and told, by the master.
        let _ = control.follow(pid, clock::monotonic_ms());
    }
    if let Some(parent) = waiting_parent {
        // The parent may have been killed meanwhile; that changes nothing.
        let _ = send_fds(&parent, b"R", &[]);
        if let Some(file) = crew.stderr_file() {
            let _ = process::replace_stderr(file);
        }
    }
    if crew.prepared.config.main.master_process {
        let opened = Opened {
            place,
            house,
            signals,
            listeners,
            pid_file,
            control,
            first: crew,
            daemon,
        };
        Master::new(opened).run()
    } else {
        drop(signals);
        alone(&house, crew, &mut listeners, pid_file)
    }
}

/// `master_process off`: this process is the one worker.
fn alone(house: &House, crew: Crew, listeners: &mut Listeners, pid_file: PidFile) -> ExitCode {
    let row = house.shm.scoreboard().claim(crew.number, 0);
    house
        .shm
        .scoreboard()
        .set_pid(row, u32::try_from(process::id()).unwrap_or(0));
    let code = match spawn::heritage(house, crew, 0, row, None, listeners) {
        Ok(heritage) => {
            Notifier::new().serving(1, 1);
            kp_worker::run(heritage)
        }
        Err(error) => {
            return refuse(
                listeners,
                &format!("dup() failed ({})", report::numbered(&error)),
            );
        }
    };
    listeners.close();
    pid_file.remove();
    ExitCode::from(code)
}

fn refuse(listeners: &mut Listeners, text: &str) -> ExitCode {
    listeners.close();
    report::say(format_args!("[emerg] {text}"));
    log::error!(target: "emerg", "{text}");
    ExitCode::FAILURE
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
    fn open(prefix: &Path, tickets: TicketRing) -> io::Result<Self> {
        let mut group_token = [0; 8];
        kp_sys::random(&mut group_token)?;
        Ok(Self {
            shm: Shm::create()?,
            tickets,
            master: Some(process::pidfd_open(process::id())?),
            hostname: kp_sys::hostname(),
            group_token,
            prefix: prefix.to_owned(),
        })
    }
}

fn warn_of_limits(main: &kp_config::model::Main) {
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
