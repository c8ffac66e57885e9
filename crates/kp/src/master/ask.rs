//! Questions that came over the control socket.

use super::Master;
use crate::control::{Answer, AskerId, Request};
use kp_sys::clock;

impl Master {
    /// Takes in what was asked; what can be answered at once is.
    pub(super) fn hear_askers(&mut self) {
        for (asker, request) in self.control.hear(clock::monotonic_ms()) {
            match request {
                Request::Reload if self.plan.is_stopping() => {
                    self.answer(asker, &Answer::Failed(STOPPING.into()));
                }
                Request::Reload if self.plan.has_successor() => {
                    let text = "kp: a new binary serves in this one's place: the configuration is not read again\n";
                    self.answer(asker, &Answer::Failed(text.into()));
                }
                Request::Reload => {
                    log::info!(target: "notice", "asked to reload, reconfiguring");
                    self.reloads.want(Some(asker));
                }
                Request::Ctl(command) => self.obey_command(asker, &command),
                Request::Status => self.answer(asker, &Answer::Done(self.status())),
                Request::Progress => self.answer(asker, &Answer::Done(self.progress())),
                Request::Reopen => {
                    log::info!(target: "notice", "asked to reopen logs");
                    self.reopen_logs(Some(asker));
                }
                Request::Upgrade => {
                    log::info!(target: "notice", "asked to upgrade, changing binary");
                    self.want_upgrade(Some(asker));
                }
            }
        }
    }

    /// Answers one asker.
    pub(super) fn answer(&mut self, asker: AskerId, answer: &Answer) {
        self.control.answer(asker, answer, clock::monotonic_ms());
    }

    /// The master was told to stop: no reload and no upgrade will come to an end.
    pub(super) fn refuse_reloads(&mut self) {
        let mut askers = self.reloads.close();
        askers.extend(self.refuse_upgrade());
        for asker in askers {
            self.answer(asker, &Answer::Failed(STOPPING.into()));
        }
    }
}

const STOPPING: &str = "kp: the master process was told to stop\n";
