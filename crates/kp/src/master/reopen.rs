//! Log files that somebody moved away (USR1, `-s reopen`): opened anew here, handed to every worker of every generation.
//!
//! Who asked is answered when each of these workers has said that nothing more goes to the old files: then they can be
//! compressed or removed.

use super::Master;
use crate::control::{Answer, AskerId};
use crate::logs;
use crate::report;
use kp_sys::{clock, process};
use std::io;

/// A worker takes its new files within this, or it is stuck.
const TAKEN_MS: u64 = 10_000;

/// Reopenings that not every worker has taken part in yet.
#[derive(Debug, Default)]
pub(super) struct Reopenings {
    rounds: Vec<Round>,
}

#[derive(Debug)]
struct Round {
    asker: Option<AskerId>,
    complaints: Vec<String>,
    /// Process ids, and how many batches of files each must have taken.
    waiting: Vec<(i32, u64)>,
    deadline_ms: u64,
}

/// A reopening that is over.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    asker: Option<AskerId>,
    complaints: Vec<String>,
    /// Workers that have not taken their files in time.
    late: Vec<i32>,
}

impl Reopenings {
    /// When [`Reopenings::settle`] has something to do though nothing came.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.rounds.iter().map(|round| round.deadline_ms).min()
    }

    /// Which are over. `taken`: how many batches a worker has taken; `None`: it has ended.
    fn settle(&mut self, now_ms: u64, taken: impl Fn(i32) -> Option<u64>) -> Vec<Outcome> {
        let (mut over, mut rest) = (Vec::new(), Vec::new());
        for mut round in self.rounds.drain(..) {
            round
                .waiting
                .retain(|(pid, wanted)| taken(*pid).is_some_and(|taken| taken < *wanted));
            if round.waiting.is_empty() || round.deadline_ms <= now_ms {
                over.push(Outcome {
                    asker: round.asker,
                    complaints: round.complaints,
                    late: round.waiting.iter().map(|(pid, _)| *pid).collect(),
                });
            } else {
                rest.push(round);
            }
        }
        self.rounds = rest;
        over
    }
}

impl Master {
    /// Opens them, and hands them out.
    pub(super) fn reopen_logs(&mut self, asker: Option<AskerId>) {
        let serving = self.plan.serving().map(|(number, _)| number);
        let current = serving.or_else(|| self.crews.iter().map(|crew| crew.number).max());
        let mut complaints = Vec::new();
        let mut waiting = Vec::new();
        for crew in &mut self.crews {
            let config = &crew.prepared.config;
            complaints.extend(
                logs::reopen(&config.log_files, &mut crew.files)
                    .into_iter()
                    .map(|complaint| ("emerg", complaint)),
            );
            if current == Some(crew.number) {
                if let Err(error) = logs::install(config, &crew.files) {
                    let numbered = report::numbered(&error);
                    let complaint = format!("the error log cannot be changed ({numbered})");
                    complaints.push(("alert", complaint));
                }
                if self.daemon
                    && let Some(file) = crew.stderr_file()
                {
                    let _ = process::replace_stderr(file);
                }
            }
            for worker in &mut crew.workers {
                match worker.send_logs(&crew.files) {
                    Ok(()) => waiting.push((worker.pid, worker.logs_sent)),
                    // It has ended, and is about to be reaped.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    Err(error) => {
                        let (pid, numbered) = (worker.pid, report::numbered(&error));
                        let complaint =
                            format!("worker process {pid} got no reopened logs ({numbered})");
                        complaints.push(("alert", complaint));
                    }
                }
            }
        }
        for (level, complaint) in &complaints {
            log::error!(target: level, "{complaint}");
        }
        let shown = |(level, complaint)| format!("[{level}] {complaint}");
        self.reopenings.rounds.push(Round {
            asker,
            complaints: complaints.into_iter().map(shown).collect(),
            waiting,
            deadline_ms: clock::monotonic_ms() + TAKEN_MS,
        });
    }

    /// Answers for those that are over.
    pub(super) fn settle_reopenings(&mut self, now_ms: u64) {
        let crews = &self.crews;
        let taken = |pid| {
            let mut workers = crews.iter().flat_map(|crew| &crew.workers);
            let worker = workers.find(|worker| worker.pid == pid)?;
            Some(worker.logs_taken)
        };
        for mut outcome in self.reopenings.settle(now_ms, taken) {
            for pid in outcome.late {
                let seconds = TAKEN_MS / 1000;
                let complaint =
                    format!("worker process {pid} has not taken the reopened logs in {seconds} s");
                log::error!(target: "alert", "{complaint}");
                outcome.complaints.push(format!("[alert] {complaint}"));
            }
            if let Some(asker) = outcome.asker {
                let lines = outcome.complaints.iter();
                let text: String = lines.map(|one| format!("kp: {one}\n")).collect();
                let answer = match outcome.complaints.is_empty() {
                    true => Answer::Done(text),
                    false => Answer::Failed(text),
                };
                self.answer(asker, &answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(number: u64, waiting: &[(i32, u64)], deadline_ms: u64) -> Round {
        Round {
            asker: Some(AskerId::numbered(number)),
            complaints: Vec::new(),
            waiting: waiting.to_vec(),
            deadline_ms,
        }
    }

    fn outcome(number: u64, late: &[i32]) -> Outcome {
        Outcome {
            asker: Some(AskerId::numbered(number)),
            complaints: Vec::new(),
            late: late.to_vec(),
        }
    }

    #[test]
    fn a_reopening_is_over_when_every_living_worker_has_its_own_files() {
        let mut reopenings = Reopenings {
            rounds: vec![
                round(1, &[(10, 1), (11, 1)], 100),
                round(2, &[(10, 2), (11, 2)], 200),
            ],
        };
        assert_eq!(reopenings.deadline_ms(), Some(100));
        let taken = |ten, eleven| move |pid| if pid == 10 { ten } else { eleven };
        assert_eq!(reopenings.settle(1, taken(Some(1), Some(0))), []);
        assert_eq!(
            reopenings.settle(2, taken(Some(1), Some(1))),
            [outcome(1, &[])]
        );
        assert_eq!(reopenings.settle(3, taken(Some(2), Some(1))), []);
        assert_eq!(
            reopenings.settle(4, taken(Some(2), None)),
            [outcome(2, &[])],
            "a worker that has ended writes nowhere"
        );
        assert_eq!(reopenings.deadline_ms(), None);
    }

    #[test]
    fn a_worker_that_is_stuck_is_named() {
        let mut reopenings = Reopenings {
            rounds: vec![round(1, &[(10, 1), (11, 1)], 100)],
        };
        let taken = |pid| Some(u64::from(pid == 10));
        assert_eq!(reopenings.settle(99, taken), []);
        assert_eq!(reopenings.settle(100, taken), [outcome(1, &[11])]);
    }
}
