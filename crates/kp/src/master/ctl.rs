//! Commands of `kp ctl`: each is understood here, done or handed on, and answered in JSON.

use super::Master;
use super::inquiries::{Purpose, Round};
use crate::control::command::{Command, ConfiguredLog, LogLevels, RESET, Refusal};
use crate::control::{Answer, AskerId};
use kp_config::model::{ErrorLog, Level, LogTarget};
use kp_config::suggest;
use kp_worker::error_log::{self, LEVELS};
use kp_worker::inquiry::Inquiry;
use serde::Serialize;

impl Master {
    /// Does what a command says; the answer may come later.
    pub(super) fn obey_command(&mut self, asker: AskerId, command: &[u8]) {
        let done = serde_json::from_slice(command)
            .map_err(|error| Refusal::new(format!("this is no command: {error}")))
            .and_then(|command| self.command(asker, command));
        match done {
            Ok(Some(answer)) => self.answer(asker, &answer),
            Ok(None) => {}
            Err(refusal) => self.answer(asker, &refused(&refusal)),
        }
    }

    /// `None`: the answer comes later.
    fn command(&mut self, asker: AskerId, command: Command) -> Result<Option<Answer>, Refusal> {
        match command {
            Command::LogLevel { level: None } => {
                let workers = self.crews.iter().map(|crew| crew.workers.len()).sum();
                Ok(Some(done(&self.log_levels(workers, Vec::new()))))
            }
            Command::LogLevel { level: Some(name) } => {
                let level = level_named(&name)?;
                error_log::force_level(level);
                match level {
                    Some(_) => {
                        log::info!(target: "notice", "asked for level {name} in every error log");
                    }
                    None => log::info!(target: "notice", "asked for the error logs' own levels"),
                }
                let inquiry = Inquiry::LogLevel(level.map(|_| name));
                self.inquire(asker, Purpose::LogLevel, &inquiry)?;
                Ok(None)
            }
        }
    }

    /// Answers who asked for what the workers were asked for.
    pub(super) fn conclude(&mut self, round: Round) {
        let answer = match round.purpose {
            Purpose::LogLevel => {
                done(&self.log_levels(round.findings.len(), round.waiting.clone()))
            }
        };
        self.answer(round.asker, &answer);
    }

    fn log_levels(&self, workers: usize, silent: Vec<i32>) -> LogLevels {
        let config = self.newest_crew().map(|crew| &crew.prepared.config);
        let shown = |log: &ErrorLog| ConfiguredLog {
            log: match log.target {
                LogTarget::Stderr => "stderr".into(),
                LogTarget::File(id) => {
                    let file = config.and_then(|config| config.log_files.get(id.index()));
                    file.map(|path| path.display().to_string())
                        .unwrap_or_default()
                }
                LogTarget::Syslog(id) => {
                    let syslog = config.and_then(|config| config.syslogs.get(id.index()));
                    let server = syslog.map(|syslog| syslog.server_name());
                    format!("syslog:server={}", server.unwrap_or_default())
                }
            },
            level: error_log::level_name(log.level).into(),
        };
        let logs = config.map(|config| &config.main.error_log);
        LogLevels {
            in_force: error_log::forced_level().map(|level| error_log::level_name(level).into()),
            configured: logs.into_iter().flatten().map(shown).collect(),
            workers,
            silent,
        }
    }
}

/// `None`: each log has its own.
fn level_named(name: &str) -> Result<Option<Level>, Refusal> {
    if name == RESET {
        return Ok(None);
    }
    let known = LEVELS.iter().find(|(known, _)| *known == name);
    known.map(|(_, level)| Some(*level)).ok_or_else(|| {
        let shown = name.escape_debug();
        let refusal = Refusal::new(format!("there is no level \"{shown}\""));
        let names = LEVELS.iter().map(|(known, _)| *known);
        match suggest::nearest(name, names.clone().chain([RESET])) {
            Some(near) => refusal.hint(format!("did you mean \"{near}\"?")),
            None => refusal.hint(format!(
                "levels are {}; or {RESET}",
                names.collect::<Vec<_>>().join(", ")
            )),
        }
    })
}

/// The answer of a command that was done.
fn done(answer: &impl Serialize) -> Answer {
    match serde_json::to_string(answer) {
        Ok(text) => Answer::Done(text + "\n"),
        Err(error) => refused(&Refusal::new(error.to_string())),
    }
}

/// The answer of one that was not.
fn refused(refusal: &Refusal) -> Answer {
    let text = serde_json::to_string(refusal);
    Answer::Failed(text.unwrap_or_default() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_nginx_names() {
        assert_eq!(level_named("debug").unwrap(), Some(Level::Debug));
        assert_eq!(level_named("reset").unwrap(), None);
        let slip = level_named("wran").unwrap_err();
        assert_eq!(slip.hint.unwrap(), "did you mean \"warn\"?");
        let odd = level_named("\u{1b}[2J").unwrap_err();
        assert_eq!(odd.error, "there is no level \"\\u{1b}[2J\"");
        assert!(odd.hint.unwrap().starts_with("levels are debug, info"));
    }
}
