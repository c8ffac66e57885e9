//! `-s` and `status`: orders and a question for a running master.
//!
//! `stop` and `quit` are signals, and kp returns at once. The others go over the control socket, whose answer decides the
//! exit status: `reload` and `upgrade` are answered when the new workers serve or have failed, `reopen` when nothing is
//! written to the old log files any more.

use crate::check;
use crate::cli::{Options, Order};
use crate::control::client::{self, NoAnswer};
use crate::control::{self, Answer, Request};
use crate::pidfile::{self, beside};
use crate::report;
use crate::settings::Place;
use crate::upgrade;
use kp_config::model::Main;
use kp_sys::process;
use kp_sys::signals::{SIGINT, SIGQUIT, SIGUSR1};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long an order waits for its answer.
const LIMIT: Duration = Duration::from_secs(60);
/// A question that the master can answer at once.
const BRIEF: Duration = Duration::from_secs(5);

/// `-s`.
pub(crate) fn run(options: &Options, order: Order) -> ExitCode {
    match order {
        Order::Reload => change(options, Request::Reload, "kill -HUP"),
        Order::Upgrade => change(options, Request::Upgrade, "kill -USR2"),
        // Not SIGTERM, which `stop_signal` may have made graceful.
        Order::Stop => tell(options, |main| send(&main.pid, SIGINT)),
        Order::Quit => tell(options, |main| send(&main.pid, SIGQUIT)),
        Order::Reopen => tell(options, |main| {
            if main.master_process {
                reopen(main)
            } else {
                // Without a master there is nobody to answer.
                send(&main.pid, SIGUSR1)
            }
        }),
    }
}

/// Finds the configuration, which names the pid file.
fn tell(options: &Options, how: fn(&Main) -> ExitCode) -> ExitCode {
    let checked = Place::find(options).map_err(report::say).and_then(|place| {
        place
            .check(None)
            .map_err(|refused| report::print(&refused.rendered()))
    });
    match checked {
        Ok(checked) => how(&checked.prepared.config.main),
        Err(()) => ExitCode::FAILURE,
    }
}

fn send(pid_file: &Path, signal: i32) -> ExitCode {
    let sent = pidfile::master(&in_charge(pid_file))
        .map_err(|complaint| format!("[error] {complaint}"))
        .and_then(|pid| {
            process::kill(pid, signal).map_err(|error| {
                let numbered = report::numbered(&error);
                format!("[alert] kill({pid}, {signal}) failed ({numbered})")
            })
        });
    match sent {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => fail(complaint),
    }
}

/// Checks, asks, and waits for how it went.
fn change(options: &Options, request: Request, instead: &str) -> ExitCode {
    let checked = match check::checked(options) {
        Ok((_, checked)) => checked,
        Err(code) => return code,
    };
    report::print(&checked.findings.rendered());
    let main = &checked.prepared.config.main;
    if !main.master_process {
        return fail(
            "[error] master_process is off: there is no master to ask, stop kp and start it again",
        );
    }
    ask(main, request, instead)
}

/// While an old binary's workers finish what they have, they have log files, too.
fn reopen(main: &Main) -> ExitCode {
    let before = beside(&main.pid, upgrade::ASIDE);
    let asked = ask(main, Request::Reopen, "kill -USR1");
    let Some(pid) = pidfile::living_master(&before) else {
        return asked;
    };
    match client::ask(&control::path_of(&before), &Request::Reopen, LIMIT) {
        Ok(Answer::Failed(text)) => {
            report::print(&text);
            ExitCode::FAILURE
        }
        Err(NoAnswer::Late) => fail(format_args!(
            "[error] the old master process {pid} has not reopened its logs in time"
        )),
        // Who is not there any more writes nowhere.
        Ok(Answer::Done(_)) | Err(NoAnswer::Ended) => asked,
        Err(NoAnswer::Unreachable(_)) if pidfile::living_master(&before).is_none() => asked,
        Err(NoAnswer::Unreachable(error)) => fail(format_args!(
            "[error] the old master process {pid} cannot be asked to reopen its logs ({})",
            report::numbered(&error)
        )),
    }
}

/// Asks the master that runs by a configuration. `instead`: what works without an answer.
fn ask(main: &Main, request: Request, instead: &str) -> ExitCode {
    let pid_file = in_charge(&main.pid);
    let pid = match pidfile::master(&pid_file) {
        Ok(pid) => pid,
        Err(complaint) => return fail(format_args!("[error] {complaint}")),
    };
    let socket = control::path_of(&pid_file);
    match client::ask(&socket, &request, LIMIT) {
        Ok(Answer::Done(text)) => {
            // It is done, whoever reads the line.
            let _ = io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Answer::Failed(text)) => {
            report::print(&text);
            ExitCode::FAILURE
        }
        Err(NoAnswer::Ended) => fail(format_args!("[error] the master process {pid} has ended")),
        Err(NoAnswer::Late) => fail(late(&socket, pid, LIMIT, BRIEF)),
        Err(NoAnswer::Unreachable(error)) => {
            let why = unreachable(&pid_file, pid, &socket, &error);
            let signals = error.kind() != io::ErrorKind::PermissionDenied
                && pidfile::living_master(&pid_file).is_some();
            if signals {
                fail(format_args!(
                    "[error] {why}; \"{instead} {pid}\" works without an answer"
                ))
            } else {
                fail(format_args!("[error] {why}"))
            }
        }
    }
}

fn fail(complaint: impl std::fmt::Display) -> ExitCode {
    report::say(complaint);
    ExitCode::FAILURE
}

/// What the master was waiting for when there was no answer in time.
fn late(socket: &Path, pid: i32, limit: Duration, brief: Duration) -> String {
    let seconds = limit.as_secs();
    match client::ask(socket, &Request::Progress, brief) {
        Ok(Answer::Done(text) | Answer::Failed(text)) => {
            format!("[error] not done in {seconds} s: {}", text.trim_end())
        }
        Err(_) => format!(
            "[error] not done in {seconds} s: the master process {pid} does not answer, it may be stopped, or wait for a name server"
        ),
    }
}

/// Why nobody can be asked.
fn unreachable(pid_file: &Path, pid: i32, socket: &Path, error: &io::Error) -> String {
    if pidfile::living_master(pid_file).is_none() {
        return format!(
            "not running: the process {pid} of \"{}\" has ended",
            pid_file.display()
        );
    }
    let failed = report::failed("connect()", socket, error);
    if error.kind() == io::ErrorKind::PermissionDenied {
        return format!("{failed}: only root and the user of the master process {pid} may ask it");
    }
    format!("{failed}: the master process {pid} cannot be asked")
}

/// Exit codes of `status`, the Linux Standard Base's.
mod code {
    pub(super) const RUNS: u8 = 0;
    pub(super) const DEAD: u8 = 1;
    pub(super) const STOPPED: u8 = 3;
    pub(super) const UNKNOWN: u8 = 4;
}

/// `kp status`.
pub(crate) fn status(options: &Options) -> ExitCode {
    match running(options) {
        Ok(master) => status_of(&master.pid_file, master.pid),
        Err(code) => ExitCode::from(code),
    }
}

/// A master that lives.
#[derive(Debug)]
pub(crate) struct Running {
    pid_file: PathBuf,
    pid: i32,
}

impl Running {
    /// Asks it; what is wrong is said in words. `limit`: how long the answer may take.
    pub(crate) fn ask(&self, request: &Request, limit: Duration) -> Result<Answer, String> {
        let (socket, pid) = (control::path_of(&self.pid_file), self.pid);
        client::ask(&socket, request, limit).map_err(|none| match none {
            NoAnswer::Unreachable(error) => unreachable(&self.pid_file, pid, &socket, &error),
            NoAnswer::Late => {
                let seconds = limit.as_secs();
                format!("the master process {pid} has not answered in {seconds} s")
            }
            NoAnswer::Ended => format!("the master process {pid} has just ended"),
        })
    }

    /// Those that live now: this one, or who took its place, and the one whose place that takes.
    pub(crate) fn everybody(&self) -> Vec<Self> {
        let pid = pidfile::living_master(&self.pid_file);
        let own = pid.map(|pid| (self.pid_file.clone(), pid));
        let all = own.into_iter().chain(self.predecessor());
        all.map(|(pid_file, pid)| Self { pid_file, pid }).collect()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        pidfile::living_master(&self.pid_file) != Some(self.pid)
    }

    /// The master whose place it takes while the binary is changed, as long as that one lives: its pid file and process.
    pub(crate) fn predecessor(&self) -> Option<(PathBuf, i32)> {
        let aside = beside(&self.pid_file, upgrade::ASIDE);
        let pid = pidfile::living_master(&aside).filter(|pid| *pid != self.pid)?;
        Some((aside, pid))
    }
}

/// The master that runs by a configuration. Where there is none it is said why; the error is the exit code of `status`.
pub(crate) fn running(options: &Options) -> Result<Running, u8> {
    let place = Place::find(options).map_err(|complaint| {
        report::say(complaint);
        code::UNKNOWN
    })?;
    let (pid_file, refused) = place.pid_file();
    let found = pid_file.map(|pid_file| {
        let pid_file = in_charge(&pid_file);
        let pid = pidfile::living_master(&pid_file);
        (pid_file, pid)
    });
    match (found, refused) {
        (Some((pid_file, Some(pid))), _) => Ok(Running { pid_file, pid }),
        (Some((pid_file, None)), _) if pid_file.exists() => Err(absent(&pid_file)),
        // The pid file is a guess, so that its lack says nothing.
        (_, Some(refused)) => {
            report::print(&refused.rendered());
            report::say("it is not known whether kp runs: the configuration cannot be used");
            Err(code::UNKNOWN)
        }
        (Some((pid_file, None)), None) => Err(absent(&pid_file)),
        (None, None) => Err(code::UNKNOWN),
    }
}

/// The pid file of the master to talk to. While the binary is being changed and the new one is not there yet, that is the
/// one that was moved out of its way.
fn in_charge(pid_file: &Path) -> PathBuf {
    let aside = beside(pid_file, upgrade::ASIDE);
    if pidfile::living_master(pid_file).is_none() && pidfile::living_master(&aside).is_some() {
        aside
    } else {
        pid_file.to_owned()
    }
}

fn status_of(pid_file: &Path, pid: i32) -> ExitCode {
    let socket = control::path_of(pid_file);
    let (said, code) = match client::ask(&socket, &Request::Status, BRIEF) {
        Ok(Answer::Done(text)) => {
            let _ = io::stdout().lock().write_all(text.as_bytes());
            return ExitCode::from(code::RUNS);
        }
        Ok(Answer::Failed(text)) => (text, code::UNKNOWN),
        Err(NoAnswer::Unreachable(error)) => {
            let why = unreachable(pid_file, pid, &socket, &error);
            (format!("running, process {pid}, but {why}"), code::RUNS)
        }
        Err(NoAnswer::Late) => {
            let seconds = BRIEF.as_secs();
            let why = format!("the master process {pid} has not answered in {seconds} s");
            (why, code::UNKNOWN)
        }
        Err(NoAnswer::Ended) => (
            format!("the master process {pid} has just ended"),
            code::UNKNOWN,
        ),
    };
    report::say(said);
    ExitCode::from(code)
}

fn absent(pid_file: &Path) -> u8 {
    let shown = pid_file.display();
    match pidfile::read(pid_file) {
        Ok(pid) => {
            report::say(format_args!(
                "not running: the process {pid} of \"{shown}\" has ended and left its pid file"
            ));
            code::DEAD
        }
        Err(_) if !pid_file.exists() => {
            report::say(format_args!("not running: there is no \"{shown}\""));
            code::STOPPED
        }
        Err(complaint) => {
            report::say(complaint);
            code::UNKNOWN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ControlSocket;
    use kp_sys::poll;

    #[test]
    fn who_waited_in_vain_learns_for_what() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("kp.pid");
        let path = control::path_of(&pid_file);
        let mut socket = ControlSocket::default();
        socket.follow(&pid_file, 0).unwrap();
        let (limit, brief) = (Duration::from_secs(60), Duration::from_millis(50));
        let silent = late(&path, 7, limit, brief);
        assert!(
            silent.contains("in 60 s: the master process 7 does not answer"),
            "{silent}"
        );
        let said = std::thread::scope(|scope| {
            let asked = scope.spawn(|| late(&path, 7, limit, Duration::from_secs(5)));
            while !asked.is_finished() {
                poll::wait(socket.sources(), Some(Duration::from_millis(20))).unwrap();
                for (asker, request) in socket.hear(0) {
                    assert_eq!(request, Request::Progress);
                    let text = "generation 4 is starting: 1 of 2 workers ready\n";
                    socket.answer(asker, &Answer::Done(text.into()), 0);
                }
            }
            asked.join().unwrap()
        });
        assert_eq!(
            said,
            "[error] not done in 60 s: generation 4 is starting: 1 of 2 workers ready"
        );
    }
}
