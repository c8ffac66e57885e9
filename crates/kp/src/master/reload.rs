//! A reload's first half: everything it may trip over (text, logs, directories, sockets) is tried before the plan hears of a
//! new generation.

use super::{Master, queue, worker_count};
use crate::control::Answer;
use crate::crew::Crew;
use crate::logs;
use crate::settings::Checked;
use kp_sys::clock;

impl Master {
    /// Tries a new configuration; what is wrong is logged and told to those who asked, and nothing changes.
    pub(super) fn reload(&mut self) {
        self.reloads.begin();
        self.notifier.reloading();
        let tried = match self.place.check() {
            Ok(checked) => self.stage(checked),
            Err(refused) => {
                refused.log();
                Err(refused.rendered())
            }
        };
        match tried {
            Ok(crew) => {
                self.plan.begin(crew.slots, clock::monotonic_ms());
                log::info!(target: "notice", "start worker processes");
                self.crews.push(crew);
            }
            Err(failure) => {
                self.notifier.reload_failed(&failure);
                self.reload_ended(&queue::failure(&failure, self.plan.serving().is_some()))
            }
        }
    }

    fn stage(&mut self, checked: Checked) -> Result<Crew, String> {
        let Checked {
            prepared,
            identity,
            findings,
        } = checked;
        let slots = worker_count(&prepared.config.main);
        let staged = logs::make_temporary(&prepared.config.temp_paths, identity.as_ref())
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
                return Err(refused.rendered());
            }
        };
        findings.log();
        Ok(Crew {
            number: self.plan.next_number(),
            prepared,
            identity,
            files,
            slots,
            workers: Vec::new(),
        })
    }

    /// A reload has come to an end: everybody who asked for it is told.
    pub(super) fn reload_ended(&mut self, answer: &Answer) {
        for asker in self.reloads.end().unwrap_or_default() {
            self.answer(asker, answer);
        }
    }
}
