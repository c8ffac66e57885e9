//! A reload from both ends: everything it may trip over (text, logs, directories, sockets) is tried before the plan hears of
//! a new generation; and whoever asked is answered when, the new generation serving, nobody meets the old one any more.

use super::queue::{self, Failure};
use super::{Master, worker_count};
use crate::crew::Crew;
use crate::logs;
use crate::pidfile;
use crate::settings::Checked;
use kp_config::Diagnostic;
use kp_shm::LastReload;
use kp_sys::clock;
use std::path::Path;
use std::rc::Rc;

/// The workers of an old generation stop accepting within this, or are not waited for.
const HAND_OVER_MS: u64 = 2_000;

/// A generation that serves, while an older one may still accept.
#[derive(Debug)]
pub(super) struct HandOver {
    generation: u32,
    workers: u32,
    deadline_ms: u64,
}

impl HandOver {
    /// When [`Master::settle_hand_over`] has something to do though nothing came.
    pub(super) fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }
}

impl Master {
    /// Tries a new configuration; what is wrong is logged and told to those who asked, and nothing changes.
    pub(super) fn reload(&mut self) {
        self.reloads.begin();
        self.notifier.reloading();
        let tried = match self.place.check(Some(self.house.tickets.reader())) {
            Ok(checked) => self.stage(checked),
            Err(refused) => {
                refused.log();
                Err(Failure::refused(&refused))
            }
        };
        match tried {
            Ok(crew) => {
                self.plan.begin(crew.slots, clock::monotonic_ms());
                log::info!(target: "notice", "start worker processes");
                self.crews.push(crew);
            }
            Err(failure) => self.reload_failed(failure),
        }
    }

    fn stage(&mut self, checked: Checked) -> Result<Crew, Failure> {
        let Checked {
            prepared,
            identity,
            findings,
            kept,
        } = checked;
        let slots = worker_count(&prepared.config.main);
        let staged = self
            .try_pid_file(&prepared.config.main.pid)
            .and_then(|()| logs::make_temporary(&prepared.config.temp_paths, identity.as_ref()))
            .and_then(|()| logs::open(&prepared.config))
            .and_then(|files| {
                let listeners = &prepared.config.http.listeners;
                self.listeners.stage(listeners, slots).map(|()| files)
            });
        let files = match staged {
            Ok(files) => files,
            Err(complaints) => {
                let refused = findings.with(complaints);
                refused.log();
                return Err(Failure::refused(&refused));
            }
        };
        findings.log();
        let (overrides, adopted) = self.carry_over(&prepared.config, &kept);
        let mut crew = Crew::new(
            self.plan.next_number(),
            Rc::new(prepared),
            identity,
            files,
            slots,
        );
        (crew.overrides, crew.adopted) = (Rc::new(overrides), adopted);
        Ok(crew)
    }

    /// Whether the pid file can be where it is wanted; it is moved when the new generation serves.
    fn try_pid_file(&self, wanted: &Path) -> Result<(), Vec<Diagnostic>> {
        if self.pid_file.is_at(wanted) {
            return Ok(());
        }
        if let Some(pid) = pidfile::living_master(wanted) {
            let shown = wanted.display();
            let text = format!("another kp is running (pid {pid}), as \"{shown}\" says");
            return Err(vec![Diagnostic::system(text)]);
        }
        pidfile::probe(wanted).map_err(|complaint| vec![complaint])
    }

    /// The generation serves.
    pub(super) fn hand_over(&mut self, generation: u32, workers: u32) {
        let now_ms = clock::monotonic_ms();
        self.hand_over = Some(HandOver {
            generation,
            workers,
            deadline_ms: now_ms + HAND_OVER_MS,
        });
        self.settle_hand_over(now_ms);
    }

    /// The reload is over when whoever connects meets the new generation: who has asked for it would wonder otherwise.
    pub(super) fn settle_hand_over(&mut self, now_ms: u64) {
        let Some(hand_over) = &self.hand_over else {
            return;
        };
        let (generation, workers) = (hand_over.generation, hand_over.workers);
        let mut old = self.crews.iter().filter(|crew| crew.number < generation);
        let accepts = old.any(|crew| crew.workers.iter().any(|worker| !worker.left));
        if accepts && now_ms < hand_over.deadline_ms {
            return;
        }
        self.hand_over = None;
        self.reload_worked(generation, workers);
    }

    /// A reload has come to a good end: everybody who asked for it is told.
    fn reload_worked(&mut self, generation: u32, workers: u32) {
        let askers = self.reloads.end(Ok(()), clock::unix_ms());
        self.show_reloads();
        for asker in askers {
            self.answer(asker, &queue::success(generation, workers));
        }
    }

    /// A reload has come to a bad end: everybody who asked for it is told.
    pub(super) fn reload_failed(&mut self, failure: Failure) {
        let serves = self.plan.serving().is_some();
        let (answer, lines) = failure.into_answer(serves);
        self.notifier.reload_failed(&lines.join("; "));
        let askers = self.reloads.end(Err(lines), clock::unix_ms());
        self.show_reloads();
        for asker in askers {
            self.answer(asker, &answer);
        }
    }

    /// Lets workers know of the reloads so far.
    fn show_reloads(&self) {
        let history = self.reloads.history();
        if let Some((unix_ms, outcome)) = &history.last {
            let last = LastReload {
                unix_ms: *unix_ms,
                failed: outcome.is_err(),
            };
            let ok = history.ended - history.failed;
            let facts = self.house.shm.master();
            facts.set_reloads(ok, history.failed, last);
        }
    }
}
