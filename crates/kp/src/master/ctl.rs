//! Commands of `kp ctl`: each is understood here, done or handed on, and answered in JSON.

use super::Master;
use super::inquiries::{Purpose, Round};
use crate::control::command::{
    Command, ConfiguredLog, Connections, InFlight, LogLevels, PeerInFlight, PeerName, RESET,
    Refusal, Requests,
};
use crate::control::{Answer, AskerId};
use kp_config::model::{ErrorLog, Level, LogTarget};
use kp_config::overrides::GroupOverrides;
use kp_config::suggest;
use kp_shm::{PeerCell, SeriesKind, Shm};
use kp_sys::clock;
use kp_worker::error_log::{self, LEVELS};
use kp_worker::inquiry::{ClientConnection, Findings, Inquiry, PeerConnections, ROWS_MAX};
use kp_worker::overview::{Moment, UpstreamView, upstreams};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

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
            Command::UpstreamList {} => Ok(Some(done(&self.upstreams(None)?))),
            Command::UpstreamShow { name } => Ok(Some(done(&self.upstreams(Some(&name))?))),
            Command::InFlight { peers } => Ok(Some(done(&in_flight(peers, &self.house.shm)))),
            Command::Requests { limit, longer_ms } => {
                let limit = allowed(limit)?;
                let inquiry = Inquiry::Requests { limit, longer_ms };
                self.inquire(asker, Purpose::Requests(limit), &inquiry)?;
                Ok(None)
            }
            Command::Connections { limit } => {
                let limit = allowed(limit)?;
                let inquiry = Inquiry::Connections { limit };
                self.inquire(asker, Purpose::Connections(limit), &inquiry)?;
                Ok(None)
            }
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
            Command::Change { changes, force } => {
                self.change(asker, &changes, force)?;
                Ok(None)
            }
        }
    }

    /// Upstreams as the configuration that serves has them; with a name, that one.
    fn upstreams(&self, name: Option<&str>) -> Result<Upstreams, Refusal> {
        let serving = self.plan.serving().map(|(number, _)| number);
        let serving = self.crews.iter().find(|crew| Some(crew.number) == serving);
        let Some(crew) = serving.or(self.newest_crew()) else {
            return Err(Refusal::new("no generation serves"));
        };
        let now = Moment {
            mono_ms: clock::monotonic_ms(),
            unix_ms: clock::unix_ms(),
        };
        let mut upstreams = upstreams(&crew.prepared.config, &self.house.shm, now);
        if let Some(name) = name {
            let known: Vec<String> = upstreams.iter().map(|one| one.upstream.clone()).collect();
            upstreams.retain(|one| one.upstream.eq_ignore_ascii_case(name));
            if upstreams.is_empty() {
                return Err(no_upstream(name, &known));
            }
        }
        let changed = |upstream: UpstreamView| {
            let group = crew.overrides.group(&upstream.upstream);
            UpstreamAndChanges {
                changes: group.map(GroupOverrides::each).unwrap_or_default(),
                upstream,
            }
        };
        Ok(Upstreams {
            upstreams: upstreams.into_iter().map(changed).collect(),
        })
    }

    /// Answers who asked for what the workers were asked for.
    pub(super) fn conclude(&mut self, round: Round) {
        let workers = round.findings.len();
        let findings = round.findings.into_iter().map(|(_, findings)| findings);
        let answer = match round.purpose {
            Purpose::LogLevel => done(&self.log_levels(workers, round.waiting)),
            Purpose::Requests(limit) => done(&requests(findings, limit, workers, round.waiting)),
            Purpose::Connections(limit) => {
                done(&connections(findings, limit, workers, round.waiting))
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

/// The answer to `upstream list` and `upstream show`.
#[derive(Serialize)]
struct Upstreams {
    upstreams: Vec<UpstreamAndChanges>,
}

/// What the status page has of an upstream, and the run-time changes in force.
#[derive(Serialize)]
struct UpstreamAndChanges {
    #[serde(flatten)]
    upstream: UpstreamView,
    changes: Vec<Vec<String>>,
}

/// What is in flight at these peers. Who left its group stays in the table as long as something is.
fn in_flight(peers: Vec<PeerName>, shm: &Shm) -> InFlight {
    let series = shm.series();
    let wanted: HashSet<&PeerName> = peers.iter().collect();
    let mut counted: HashMap<PeerName, u64> = HashMap::new();
    for info in series.rows().filter(|info| info.kind == SeriesKind::Peer) {
        let Ok([upstream, peer]) = <[String; 2]>::try_from(info.labels) else {
            continue;
        };
        let name = PeerName { upstream, peer };
        if wanted.contains(&name) {
            *counted.entry(name).or_default() += series.total(info.index, PeerCell::InFlight);
        }
    }
    let told = peers.into_iter().map(|name| PeerInFlight {
        in_flight: counted.get(&name).copied(),
        name,
    });
    InFlight {
        peers: told.collect(),
    }
}

fn no_upstream(name: &str, known: &[String]) -> Refusal {
    let refusal = Refusal::new(format!("there is no upstream \"{}\"", name.escape_debug()));
    match suggest::nearest(name, known.iter().map(String::as_str)) {
        Some(near) => refusal.hint(format!("did you mean \"{near}\"?")),
        None if known.is_empty() => refusal.hint("the configuration has none"),
        None => refusal.hint("kp ctl upstream list has them all"),
    }
}

/// How many a worker describes.
fn allowed(limit: usize) -> Result<usize, Refusal> {
    if limit > ROWS_MAX {
        return Err(Refusal::new(format!("the limit is at most {ROWS_MAX}")));
    }
    Ok(limit)
}

/// All workers' requests as one list.
fn requests(
    findings: impl Iterator<Item = Findings>,
    limit: usize,
    workers: usize,
    silent: Vec<i32>,
) -> Requests {
    let mut all = Requests {
        in_flight: 0,
        requests: Vec::new(),
        workers,
        silent,
    };
    for one in findings {
        if let Findings::Requests {
            in_flight,
            requests,
        } = one
        {
            all.in_flight = all.in_flight.saturating_add(in_flight);
            all.requests.extend(requests);
        }
    }
    all.requests.sort_by_key(|request| Reverse(request.age_ms));
    all.requests.truncate(limit);
    all
}

/// All workers' connections as one list.
fn connections(
    findings: impl Iterator<Item = Findings>,
    limit: usize,
    workers: usize,
    silent: Vec<i32>,
) -> Connections {
    let mut all = Connections {
        clients: 0,
        connections: Vec::new(),
        upstreams: Vec::new(),
        workers,
        silent,
    };
    let mut peers: BTreeMap<(String, String), PeerConnections> = BTreeMap::new();
    for one in findings {
        if let Findings::Connections {
            clients,
            connections,
            upstreams,
        } = one
        {
            all.clients = all.clients.saturating_add(clients);
            all.connections.extend(connections);
            for peer in upstreams {
                let name = (peer.upstream.clone(), peer.peer.clone());
                match peers.entry(name) {
                    Entry::Vacant(place) => drop(place.insert(peer)),
                    Entry::Occupied(mut place) => place.get_mut().add(&peer),
                }
            }
        }
    }
    all.upstreams = peers.into_values().collect();
    let age = |connection: &ClientConnection| Reverse(connection.age_ms);
    all.connections.sort_by_key(age);
    all.connections.truncate(limit);
    all
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
pub(super) fn done(answer: &impl Serialize) -> Answer {
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
