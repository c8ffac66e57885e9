//! `-t`, `-T`: whether kp could serve with a configuration, tried without serving.

use crate::cli::Options;
use crate::listeners;
use crate::logs;
use crate::pidfile;
use crate::report;
use crate::settings::{Checked, Place, Refused};
use std::io::{self, Write};
use std::process::ExitCode;

/// `-t`, `-T`.
pub(crate) fn run(options: &Options, dump: bool, quiet: bool) -> ExitCode {
    let (place, checked) = match checked(options) {
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

/// Finds, loads and tries the configuration; what is wrong is complained of, as `-t` does it.
pub(crate) fn checked(options: &Options) -> Result<(Place, Checked), ExitCode> {
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
        .check(None)
        .map_err(|refused| refuse(&refused.rendered()))?;
    let config = &checked.prepared.config;
    let mut complaints = logs::open(config).err().unwrap_or_default();
    // That of a running master need not be written again.
    if pidfile::living_master(&config.main.pid).is_none() {
        complaints.extend(pidfile::probe(&config.main.pid).err());
    }
    let made = logs::make_temporary(&config.temp_paths, checked.identity.as_ref());
    complaints.extend(made.err().unwrap_or_default());
    complaints.extend(listeners::probe(&config.http.listeners));
    if complaints.is_empty() {
        return Ok((place, checked));
    }
    let findings: Refused = checked.findings.with(complaints);
    Err(refuse(&findings.rendered()))
}
