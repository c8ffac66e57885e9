//! `-s`: orders for a running master.
//!
//! `stop` and `quit` are signals, and kp returns at once. `reload` is a question to the master's control socket: its answer,
//! which comes when the new workers serve or have failed, is the exit status.

use crate::check;
use crate::cli::{Options, Order};
use crate::control::client::{self, NoAnswer};
use crate::control::{self, Answer, Request};
use crate::pidfile;
use crate::report;
use crate::settings::Place;
use kp_sys::process;
use kp_sys::signals::{SIGHUP, SIGINT, SIGQUIT, SIGUSR1};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long an order waits for its answer.
const LIMIT: Duration = Duration::from_secs(60);

/// `-s`.
pub(crate) fn run(options: &Options, order: Order) -> ExitCode {
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
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => {
            report::say(complaint);
            ExitCode::FAILURE
        }
    }
}

fn send(pid_file: &Path, signal: i32) -> Result<(), String> {
    let pid = pidfile::read(pid_file).map_err(|complaint| format!("[error] {complaint}"))?;
    process::kill(pid, signal).map_err(|error| {
        format!(
            "[alert] kill({pid}, {signal}) failed ({})",
            report::numbered(&error)
        )
    })
}

/// Checks, asks, and waits for how it went.
fn reload(options: &Options) -> ExitCode {
    let checked = match check::checked(options) {
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
    match ask(&main.pid, Request::Reload, LIMIT) {
        Ok(Answer::Done(text)) => {
            // It is done, whoever reads the line.
            let _ = io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Answer::Failed(text)) => {
            report::print(&text);
            ExitCode::FAILURE
        }
        Err(complaint) => {
            report::say(complaint);
            ExitCode::FAILURE
        }
    }
}

/// Asks the master that runs by a pid file.
fn ask(pid_file: &Path, request: Request, limit: Duration) -> Result<Answer, String> {
    let pid = pidfile::read(pid_file).map_err(|complaint| format!("[error] {complaint}"))?;
    let socket = control::path_of(pid_file);
    client::ask(&socket, request, limit).map_err(|no_answer| match no_answer {
        NoAnswer::Ended => format!("[error] the master process {pid} has ended"),
        NoAnswer::Late => format!(
            "[error] the master process {pid} has not answered in {} s",
            limit.as_secs()
        ),
        NoAnswer::Unreachable(error) => {
            let failed = report::failed("connect()", &socket, &error);
            format!("[error] {failed}: \"kill -HUP {pid}\" reloads without an answer")
        }
    })
}
