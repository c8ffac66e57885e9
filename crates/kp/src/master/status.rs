//! `kp status`: what this master knows of itself, of its generations and of its workers.
//!
//! Here it is collected; `text` writes it for a terminal. The numbers of a worker are its own counters in the shared tables.

mod text;

use super::Master;
use super::queue::History;
use crate::crew::{Crew, Worker};
use crate::generation::{Stage, Vacancy};
use kp_shm::{Counter, Row, Shm, State};
use kp_sys::{clock, process};
use kp_tls::Expiry;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything that is shown.
#[derive(Debug)]
struct Overview<'a> {
    pid: i32,
    uptime_ms: u64,
    stopping: bool,
    configuration: &'a Path,
    /// Connections accepted and requests received by all workers there ever were.
    totals: (u64, u64),
    history: &'a History,
    addresses: Vec<String>,
    /// Of the newest generation; the first to end in front, with the seconds that are left.
    certificates: Vec<(PathBuf, Option<u64>)>,
    /// The master before or after this one, if it lives.
    other: Option<String>,
    /// The newest first.
    generations: Vec<Generation>,
}

#[derive(Debug)]
struct Generation {
    number: u32,
    stage: Stage,
    /// It never served and never will.
    failed: bool,
    for_ms: u64,
    slots: u32,
    /// `worker_shutdown_timeout`.
    limit: Option<Duration>,
    places: Vec<Place>,
}

/// A slot of a generation.
#[derive(Debug)]
struct Place {
    slot: u32,
    restarts: u32,
    holder: Holder,
}

#[derive(Debug)]
enum Holder {
    Worker {
        pid: i32,
        /// `None`: there was no room in the shared tables for it.
        row: Option<Seen>,
    },
    /// Nobody; the next worker comes in so many milliseconds, or it depends.
    Vacant(Vacancy),
}

/// What the shared tables say of a worker.
#[derive(Debug)]
struct Seen {
    state: State,
    /// Its loop does not turn.
    stuck: bool,
    uptime_ms: u64,
    load: Load,
}

/// What a worker is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Load {
    /// Connections of clients.
    connections: u64,
    /// Of these, the ones that wait for a further request.
    idle: u64,
    /// Requests being worked on, tunnels left out.
    requests: u64,
    /// Connections switched to another protocol.
    tunnels: u64,
    /// Bytes, as `worker_memory` counts them.
    memory: u64,
}

impl Load {
    /// Of the worker in a row.
    pub(super) fn of(shm: &Shm, row: Row) -> Self {
        let value = |counter| shm.counters().value(row, counter);
        let tunnels = value(Counter::TunnelsActive);
        Self {
            connections: value(Counter::ConnectionsActive),
            idle: value(Counter::ConnectionsIdle),
            requests: value(Counter::RequestsActive).saturating_sub(tunnels),
            tunnels,
            memory: value(Counter::MemoryInUse),
        }
    }

    fn add(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            idle: self.idle + other.idle,
            requests: self.requests + other.requests,
            tunnels: self.tunnels + other.tunnels,
            memory: self.memory + other.memory,
        }
    }
}

impl Master {
    /// For `kp status`.
    pub(super) fn status(&self) -> String {
        let now_ms = clock::monotonic_ms();
        let generations = self.crews.iter().rev();
        let generations = generations
            .filter_map(|crew| Some(self.generation(crew, self.plan.stage(crew.number)?, now_ms)));
        let counters = self.house.shm.counters();
        let overview = Overview {
            pid: process::id(),
            uptime_ms: now_ms.saturating_sub(self.started_ms),
            stopping: self.plan.is_stopping(),
            configuration: &self.place.path,
            totals: (
                counters.total(Counter::ConnectionsAccepted),
                counters.total(Counter::Requests),
            ),
            history: self.reloads.history(),
            addresses: self.listeners.addresses(),
            certificates: self.certificates_left(),
            other: self.other_master(),
            generations: generations.collect(),
        };
        overview.text(now_ms)
    }

    /// What time the certificates in use have left; `None` where it is over.
    fn certificates_left(&self) -> Vec<(PathBuf, Option<u64>)> {
        let now_unix_s = clock::unix_ms() / 1000;
        let newest = self.newest_crew();
        let expiries = newest.map(|crew| crew.prepared.tls.expiries(now_unix_s));
        let left = |expiry: Expiry| {
            let left_s = expiry.expires_unix_secs.checked_sub(now_unix_s);
            (expiry.certificate, left_s)
        };
        expiries.into_iter().flatten().map(left).collect()
    }

    /// In one line: what whoever waits for a reload waits for.
    pub(super) fn progress(&self) -> String {
        let starting = self
            .crews
            .iter()
            .find_map(|crew| match self.plan.stage(crew.number)? {
                Stage::Starting { ready } => Some((crew.number, ready, crew.slots)),
                Stage::Serving | Stage::Draining | Stage::Retired => None,
            });
        match (starting, self.plan.serving()) {
            (Some((number, ready, slots)), _) => {
                format!("generation {number} is starting: {ready} of {slots} workers ready\n")
            }
            (None, Some((number, _))) => format!("generation {number} is serving\n"),
            (None, None) => "no generation is serving\n".into(),
        }
    }

    fn generation(&self, crew: &Crew, stage: Stage, now_ms: u64) -> Generation {
        let mut places: Vec<Place> = crew
            .workers
            .iter()
            .map(|worker| self.place_of(crew, worker, now_ms))
            .collect();
        places.extend(
            self.plan
                .vacancies(crew.number)
                .map(|(slot, vacancy)| Place {
                    slot,
                    restarts: crew.restarts(slot),
                    holder: Holder::Vacant(vacancy),
                }),
        );
        places.sort_by_key(|place| place.slot);
        Generation {
            number: crew.number,
            stage,
            failed: crew.failed,
            for_ms: now_ms.saturating_sub(crew.since_ms),
            slots: crew.slots,
            limit: crew.prepared.config.main.worker_shutdown_timeout,
            places,
        }
    }

    fn place_of(&self, crew: &Crew, worker: &Worker, now_ms: u64) -> Place {
        let shm = &self.house.shm;
        let row = shm.scoreboard().process(worker.row).map(|process| Seen {
            state: process.state,
            stuck: process.stuck_ms(now_ms).is_some(),
            uptime_ms: now_ms.saturating_sub(process.born_ms),
            load: Load::of(shm, worker.row),
        });
        Place {
            slot: worker.slot,
            restarts: crew.restarts(worker.slot),
            holder: Holder::Worker {
                pid: worker.pid,
                row,
            },
        }
    }
}

/// What a worker in this state does.
pub(super) fn state_name(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Ready => "serving",
        State::Draining => "draining",
        State::Gone => "gone",
    }
}
