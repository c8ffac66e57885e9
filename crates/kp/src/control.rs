//! `-t`, `-T` and `-s`: what kp does about a configuration or a running master without serving itself.

use crate::cli::{Options, Order};
use crate::listeners;
use crate::logs;
use crate::pidfile;
use crate::report;
use crate::settings::{Checked, Place, Refused};
use crate::state::State;
use kp_sys::signals::{SIGHUP, SIGINT, SIGQUIT, SIGUSR1};
use kp_sys::{clock, poll, process};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long `-s reload` waits for the new workers: longer than a generation may take to get ready.
const RELOAD_MS: u64 = 15_000;
/// How often the state file is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// `-t`, `-T`.
pub(crate) fn test(options: &Options, dump: bool, quiet: bool) -> ExitCode {
    let (place, checked) = match checked(options, None) {
        Ok(both) => both,
        Err(code) => return code,
    };
    let path = place.path.display();
    report::print(&checked.findings.rendered());
    if !quiet {
        report::say(format_args!("the configuration file {path} syntax is ok"));
        report::say(format_args!("configuration file {path} test is successful"));
    }
    if dump {
        let text = kp_config::dump(&checked.findings.sources);
        if io::stdout().lock().write_all(text.as_bytes()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// `-s`.
pub(crate) fn signal(options: &Options, order: Order) -> ExitCode {
    if order == Order::Reload {
        return reload(options);
    }
    let checked = Place::find(options).map_err(report::say).and_then(|place| {
        place
            .check()
            .map_err(|refused| report::print(&refused.rendered()))
    });
    let Ok(checked) = checked else {
        return ExitCode::FAILURE;
    };
    let signal = match order {
        // Not SIGTERM, which `stop_signal` may have made graceful.
        Order::Stop => SIGINT,
        Order::Quit => SIGQUIT,
        Order::Reopen => SIGUSR1,
        Order::Reload => SIGHUP,
    };
    match send(&checked.prepared.config.main.pid, signal) {
        Ok(_) => ExitCode::SUCCESS,
        Err(complaint) => {
            report::say(complaint);
            ExitCode::FAILURE
        }
    }
}

/// Finds, loads and tries the configuration; complains as `-t` does. `master`: what a running master has told of itself.
fn checked(options: &Options, reload: Option<()>) -> Result<(Place, Checked), ExitCode> {
    let place = Place::find(options).map_err(|complaint| {
        report::say(complaint);
        ExitCode::FAILURE
    })?;
    let refuse = |text: &str| {
        report::print(text);
        report::say(format_args!(
            "configuration file {} test failed",
            place.path.display()
        ));
        ExitCode::FAILURE
    };
    let checked = place
        .check()
        .map_err(|refused| refuse(&refused.rendered()))?;
    let config = &checked.prepared.config;
    let mut complaints = logs::open(config).err().unwrap_or_default();
    complaints.extend(pidfile::probe(&config.main.pid).err());
    let made = logs::make_temporary(&config.temp_paths, checked.identity.as_ref());
    complaints.extend(made.err().unwrap_or_default());
    let held = reload
        .and_then(|()| State::read(&State::path(&config.main.pid)))
        .map(|state| state.addresses);
    complaints.extend(listeners::probe(&config.http.listeners, held.as_deref()));
    if complaints.is_empty() {
        return Ok((place, checked));
    }
    let findings: Refused = checked.findings.with(complaints);
    Err(refuse(&findings.rendered()))
}

fn send(pid_file: &Path, signal: i32) -> Result<i32, String> {
    let pid = pidfile::read(pid_file).map_err(|complaint| format!("[error] {complaint}"))?;
    process::kill(pid, signal).map_err(|error| {
        format!(
            "[alert] kill({pid}, {signal}) failed ({})",
            report::numbered(&error)
        )
    })?;
    Ok(pid)
}

/// Checks, signals, and waits for how it went.
fn reload(options: &Options) -> ExitCode {
    let checked = match checked(options, Some(())) {
        Ok((_, checked)) => checked,
        Err(code) => return code,
    };
    report::print(&checked.findings.rendered());
    let main = &checked.prepared.config.main;
    if !main.master_process {
        report::say(
            "[error] master_process is off: there is no master to reload, stop kp and start it again",
        );
        return ExitCode::FAILURE;
    }
    let pid_file = &main.pid;
    let path = State::path(pid_file);
    // Read before the signal is sent: whatever begins after this has seen the configuration as it is now.
    let before = State::read(&path);
    let pid = match send(pid_file, SIGHUP) {
        Ok(pid) => pid,
        Err(complaint) => {
            report::say(complaint);
            return ExitCode::FAILURE;
        }
    };
    // A master that has written nothing yet is reading its first configuration.
    let begun = before
        .filter(|state| state.pid == pid)
        .map_or(1, |state| state.begun);
    match outcome(&path, pid, begun) {
        Ok(state) if state.failure.is_empty() => {
            let plural = if state.workers == 1 {
                "worker"
            } else {
                "workers"
            };
            let line = format!(
                "kp: generation {} is serving, {} {plural} ready\n",
                state.generation, state.workers
            );
            // The reload is done, whoever reads the line.
            let _ = io::stdout().lock().write_all(line.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(state) => {
            report::print(&state.failure);
            report::say("the reload has failed, the old configuration still serves");
            ExitCode::FAILURE
        }
        Err(complaint) => {
            report::say(complaint);
            ExitCode::FAILURE
        }
    }
}

/// Waits until a reload that began after number `begun` has ended.
fn outcome(path: &Path, pid: i32, begun: u64) -> Result<State, String> {
    let gone = || format!("[error] the master process {pid} has ended");
    let master = process::pidfd_open(pid).map_err(|_| gone())?;
    let deadline = clock::monotonic_ms() + RELOAD_MS;
    loop {
        if let Some(state) =
            State::read(path).filter(|state| state.pid == pid && state.ended > begun)
        {
            return Ok(state);
        }
        if clock::monotonic_ms() >= deadline {
            return Err(format!(
                "[error] the master process {pid} has not said how the reload went in {} s",
                RELOAD_MS / 1000
            ));
        }
        if poll::readable(&[master.as_fd()], Some(LOOK)).is_ok_and(|ended| ended.contains(&true)) {
            return Err(gone());
        }
    }
}
