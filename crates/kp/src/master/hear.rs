//! What reaches the master: words of its workers, deaths, signals. All of it goes into the plan.

use super::Master;
use super::status::{self, Load};
use crate::crew::Worker;
use crate::generation::{Stop, describe};
use crate::report;
use kp_config::model::StopSignal;
use kp_sys::process::{self, Ending};
use kp_sys::signals::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, Signals};
use kp_sys::{clock, socket};
use kp_worker::{Version, message};
use std::io;

impl Master {
    pub(super) fn hear_workers(&mut self) {
        let mut ready = Vec::new();
        let mut refused = Vec::new();
        let mut found = Vec::new();
        let (mut missed, mut behind) = (false, false);
        for crew in &mut self.crews {
            for worker in &mut crew.workers {
                while let Some(channel) = &worker.channel {
                    match socket::recv_fds(channel) {
                        Ok(Some((text, fds))) => match text.split_first() {
                            Some((&message::READY, _)) => ready.push((crew.number, worker.slot)),
                            Some((&message::LOGS, _)) => worker.logs_taken += 1,
                            Some((&message::LEFT, _)) => worker.left = true,
                            Some((&message::FINDINGS, number)) => {
                                found.push((worker.pid, number.to_vec(), fds));
                            }
                            Some((&message::OVERRIDES, version)) => {
                                let taken = Version::decode(version).unwrap_or_default();
                                worker.taken = worker.taken.max(taken);
                                behind |= worker.is_to_be_told(self.steering.version());
                            }
                            Some((&message::MISSED, _)) => {
                                worker.told = worker.taken;
                                missed = true;
                            }
                            Some((&message::FAILED, reason)) => {
                                refused.push((
                                    crew.number,
                                    String::from_utf8_lossy(reason).into_owned(),
                                ));
                            }
                            _ => {
                                log::error!(target: "alert", "worker process {} sent an unknown message", worker.pid);
                            }
                        },
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Ok(None) | Err(_) => worker.channel = None,
                    }
                }
            }
        }
        if missed {
            self.steering.try_again(clock::monotonic_ms());
        } else if behind {
            self.steering.go_on(clock::monotonic_ms());
        }
        for (pid, number, fds) in found {
            self.take_findings(pid, &number, fds.into_iter().next());
        }
        for (generation, slot) in ready {
            self.plan.ready(generation, slot);
        }
        for (generation, reason) in refused {
            log::error!(target: "emerg", "{reason}");
            self.plan.refuse(generation, reason);
        }
    }

    pub(super) fn collect_dead(&mut self) {
        loop {
            match process::reap() {
                Ok(Some((pid, ending))) => self.bury(pid, ending),
                Ok(None) => return,
                Err(error) => {
                    log::error!(target: "alert", "waitpid() failed ({})", report::numbered(&error));
                    return;
                }
            }
        }
    }

    fn bury(&mut self, pid: i32, ending: Ending) {
        let ended = describe(ending);
        if self.is_successor(pid) {
            self.successor_ended(&ended);
            return;
        }
        // What it said before it ended: whether it was ready, or why it could not start.
        self.hear_workers();
        let Some((generation, worker)) = self.dismiss(pid) else {
            // As process 1 of a container the master inherits every orphan there.
            log::info!(target: "notice", "unknown process {pid} {ended}");
            return;
        };
        // Before the row is freed: it says what the worker was at.
        let place = self.last_words(generation, &worker);
        match ending {
            Ending::Exited(2) => {
                log::error!(target: "alert", "worker process {pid} {ended} ({place}): it cannot start, and is not started again");
            }
            Ending::Exited(0) => log::info!(target: "notice", "worker process {pid} {ended}"),
            Ending::Exited(_) | Ending::Signaled { .. } => {
                log::error!(target: "alert", "worker process {pid} {ended} ({place})");
            }
        }
        let now = clock::monotonic_ms();
        self.house.shm.reap(worker.row);
        if matches!(ending, Ending::Signaled { .. }) {
            self.books.suspect(now);
        }
        self.plan.ended(generation, worker.slot, ending, now);
    }

    /// Takes a worker out of its generation; `None`: there is no such worker.
    fn dismiss(&mut self, pid: i32) -> Option<(u32, Worker)> {
        self.crews.iter_mut().find_map(|crew| {
            let index = crew.workers.iter().position(|worker| worker.pid == pid)?;
            Some((crew.number, crew.workers.swap_remove(index)))
        })
    }

    /// Who a worker was, and what it held.
    fn last_words(&self, generation: u32, worker: &Worker) -> String {
        let who = format!("generation {generation}, slot {}", worker.slot);
        let load = Load::of(&self.house.shm, worker.row);
        match self.house.shm.scoreboard().process(worker.row) {
            Some(process) => {
                let state = status::state_name(process.state);
                format!("{who}, {state}, {}", load.shown())
            }
            None => who,
        }
    }

    /// Whether SIGTERM asks for a graceful stop (`stop_signal`). While one is under way it is meant to end it.
    fn finishes_at_term(&self) -> bool {
        let serving = self.plan.serving().map(|(number, _)| number);
        let crew = self
            .crews
            .iter()
            .find(|crew| serving.is_none_or(|number| crew.number == number));
        !self.plan.is_stopping()
            && crew
                .is_some_and(|crew| crew.prepared.config.main.stop_signal == StopSignal::Graceful)
    }

    /// The master before this one or the one after it lives.
    fn is_one_of_two(&self) -> bool {
        self.predecessor.is_some() || self.successor.is_some()
    }

    /// The signals that came. Taken before anything else is looked at: what happens from here on wakes the loop again.
    pub(super) fn take_signals(&mut self) -> Vec<i32> {
        self.signals
            .as_mut()
            .map(Signals::drain)
            .unwrap_or_default()
    }

    /// Does what they say.
    pub(super) fn obey(&mut self, came: Vec<i32>) {
        let now = clock::monotonic_ms();
        for signal in came {
            match signal {
                SIGTERM if self.finishes_at_term() => {
                    log::info!(target: "notice", "signal {signal} (SIGTERM) received, shutting down");
                    self.plan.stop(Stop::Graceful, now);
                }
                SIGTERM | SIGINT => {
                    let name = if signal == SIGTERM {
                        "SIGTERM"
                    } else {
                        "SIGINT"
                    };
                    log::info!(target: "notice", "signal {signal} ({name}) received, exiting");
                    self.plan.stop(Stop::Fast, now);
                }
                SIGQUIT => {
                    log::info!(target: "notice", "signal {signal} (SIGQUIT) received, shutting down");
                    self.plan.stop(Stop::Graceful, now);
                }
                SIGHUP if self.plan.is_stopping() => {}
                SIGHUP if self.plan.has_successor() => {
                    log::info!(target: "notice", "signal {signal} (SIGHUP) received: a new binary lives, the configuration is not read again");
                    self.plan.resume(now);
                }
                SIGHUP => {
                    log::info!(target: "notice", "signal {signal} (SIGHUP) received, reconfiguring");
                    self.reloads.want(None);
                }
                SIGUSR1 => {
                    log::info!(target: "notice", "signal {signal} (SIGUSR1) received, reopening logs");
                    self.reopen_logs(None);
                    self.tell_predecessor(SIGUSR1);
                }
                SIGWINCH if self.daemon || self.is_one_of_two() => {
                    log::info!(target: "notice", "signal {signal} (SIGWINCH) received, shutting down worker processes");
                    self.plan.retire();
                    self.send_newcomers_home();
                }
                SIGUSR2 => {
                    log::info!(target: "notice", "signal {signal} (SIGUSR2) received, changing binary");
                    self.want_upgrade(None);
                }
                // SIGCHLD only wakes the loop; SIGWINCH in the foreground is a resized terminal.
                _ => {}
            }
        }
    }
}
