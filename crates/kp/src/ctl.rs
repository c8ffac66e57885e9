//! `kp ctl`: looks into a running master and steers it.
//!
//! `words` understands the command line and `batch` a file of changes, `show` turns the master's JSON into text for people,
//! `table` is how that looks, and `wait` stays until peers that are taken out are empty. What a command means is the
//! master's affair; with `--json` its answer is passed on as it is.

mod batch;
mod show;
mod table;
mod wait;
pub(crate) mod words;

use crate::cli::Options;
use crate::control::command::Refusal;
use crate::control::{Answer, COMMAND_MAX_BYTES, Request};
use crate::order::{self, Running};
use crate::report;
use serde::de::IgnoredAny;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;
use table::printable;
use wait::Patience;
use words::{Line, Wish};

/// How long an answer may take: the master may be busy with a reload.
const LIMIT: Duration = Duration::from_secs(15);

/// Exit codes.
mod code {
    pub(super) const DONE: u8 = 0;
    pub(super) const REFUSED: u8 = 1;
    pub(super) const USAGE: u8 = 2;
}

/// Does what stands behind `kp ctl`.
pub(crate) fn run(options: Options, arguments: Vec<OsString>) -> ExitCode {
    let line = match words::parse(options, arguments) {
        Ok(line) => line,
        Err(complaint) => {
            report::print(&complaint.text());
            return ExitCode::from(code::USAGE);
        }
    };
    ExitCode::from(obey(&line))
}

fn obey(line: &Line) -> u8 {
    let command = match &line.wish {
        Wish::Help => return out(&words::help()),
        Wish::Command(command) => command,
    };
    let Ok(command) = serde_json::to_vec(command) else {
        return code::REFUSED;
    };
    if command.len() > COMMAND_MAX_BYTES {
        report::say(format_args!(
            "a batch has at most {COMMAND_MAX_BYTES} bytes"
        ));
        return code::USAGE;
    }
    let Ok(master) = order::running(&line.options) else {
        return code::REFUSED;
    };
    let (text, code) = match master.ask(&Request::Ctl(command), LIMIT) {
        Ok(Answer::Done(text)) => (text, code::DONE),
        Ok(Answer::Failed(text)) => (text, code::REFUSED),
        Err(why) => {
            report::say(why);
            return code::REFUSED;
        }
    };
    if let Some((pid_file, pid)) = master.predecessor() {
        report::say(format_args!(
            "another master process, {pid}, lives beside this one while the binary is changed: kp ctl -g 'pid {};' asks it",
            pid_file.display()
        ));
    }
    match line.wait.filter(|_| code == code::DONE) {
        Some(patience) if line.json => stay(&master, &text, patience, true),
        Some(patience) => match told(line, &text, code) {
            code::DONE => stay(&master, &text, patience, false),
            code => code,
        },
        None => told(line, &text, code),
    }
}

/// Passes on what the master says.
fn told(line: &Line, text: &str, code: u8) -> u8 {
    if line.json && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        code.max(out(text))
    } else if code == code::REFUSED {
        report::print(&refusal(line, text));
        code
    } else {
        // A master of another version: what it says is all that is known.
        out(&show::people(line, text).unwrap_or_else(|| printable(text)))
    }
}

/// Waits until the peers that a change took out are empty.
fn stay(master: &Running, changed: &str, patience: Patience, json: bool) -> u8 {
    let changed = serde_json::from_str(changed).map_err(|error| error.to_string());
    let waited = changed.and_then(|changed| wait::wait(master, changed, patience));
    match waited {
        Ok(waited) if json => {
            let text = serde_json::to_string(&waited).unwrap_or_default();
            waited.code().max(out(&(text + "\n")))
        }
        Ok(waited) if waited.code() == code::DONE => out(&waited.text()),
        Ok(waited) => {
            report::say(waited.complaint());
            waited.code()
        }
        Err(why) if json => {
            let text = serde_json::to_string(&Refusal::new(why)).unwrap_or_default();
            code::REFUSED.max(out(&(text + "\n")))
        }
        Err(why) => {
            report::say(why);
            code::REFUSED
        }
    }
}

/// Whoever closes the pipe has seen enough; who cannot write has seen nothing.
fn out(text: &str) -> u8 {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let error = report::numbered(&error);
            report::say(format_args!("the answer cannot be written ({error})"));
            code::REFUSED
        }
        _ => code::DONE,
    }
}

/// What a refusal is for people.
fn refusal(line: &Line, text: &str) -> String {
    match serde_json::from_str::<Refusal>(text) {
        Ok(Refusal {
            error,
            hint,
            change,
        }) => {
            let place = change.zip(line.batch.as_ref());
            let place = place.and_then(|(number, batch)| batch.place(number));
            let place = place.map_or(String::new(), |place| format!("{place}: "));
            let mut shown = format!("kp: {}\n", printable(&format!("{place}{error}")));
            if let Some(hint) = hint {
                shown.push_str(&format!("hint: {}\n", printable(&hint)));
            }
            shown
        }
        Err(_) => format!("kp: {}", printable(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_safe_to_print() {
        let text = r#"{"error":"no upstream \"\u001b[2J\"","hint":"did you mean \"b\"?"}"#;
        let shown = "kp: no upstream \"\\u{1b}[2J\"\nhint: did you mean \"b\"?\n";
        let line = words::parse(Options::default(), vec!["requests".into()]).unwrap();
        assert_eq!(refusal(&line, text), shown);
        assert_eq!(refusal(&line, "only root\n"), "kp: only root\n");
    }
}
