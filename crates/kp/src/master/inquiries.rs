//! Inquiries: what the workers are asked on behalf of somebody at the control socket.
//!
//! Every living worker of every generation is asked, over its channel; the answer is sealed memory. Who asked is answered
//! when all have said something, or when the time is over; workers that are stuck are named then. Nothing here waits, and
//! nothing that a worker says is believed blindly: it has fewer rights than the master.

use super::Master;
use crate::control::AskerId;
use crate::control::command::Refusal;
use kp_sys::socket::send_fds;
use kp_sys::{clock, memfile};
use kp_worker::inquiry::{Findings, Inquiry};
use kp_worker::message;
use std::os::fd::OwnedFd;

/// A worker answers within this, or it is stuck.
const PATIENCE_MS: u64 = 1_000;
/// So many inquiries may be under way: one for each who may ask.
const ROUNDS_MAX: usize = 64;
/// What one worker may find.
const FINDINGS_MAX_BYTES: u64 = 8 << 20;

/// What is made of the findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The error logs have another level.
    LogLevel,
    /// So many requests in flight are told.
    Requests(usize),
    /// So many connections are told.
    Connections(usize),
}

/// One inquiry.
#[derive(Debug)]
pub(super) struct Round {
    number: u64,
    /// Who wants to know.
    pub(super) asker: AskerId,
    /// What for.
    pub(super) purpose: Purpose,
    /// Process ids of workers that have said nothing yet.
    pub(super) waiting: Vec<i32>,
    /// What the others said.
    pub(super) findings: Vec<(i32, Findings)>,
    deadline_ms: u64,
}

/// All that are under way.
#[derive(Debug, Default)]
pub(super) struct Inquiries {
    last_number: u64,
    rounds: Vec<Round>,
}

impl Inquiries {
    /// When the first is over though nobody answered.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.rounds.iter().map(|round| round.deadline_ms).min()
    }

    /// Takes note of what a worker said. What nobody waits for any more is dropped.
    fn take(&mut self, number: u64, pid: i32, findings: Findings) {
        let round = self.rounds.iter_mut().find(|round| round.number == number);
        if let Some(round) = round
            && let Some(at) = round.waiting.iter().position(|one| *one == pid)
        {
            round.waiting.swap_remove(at);
            round.findings.push((pid, findings));
        }
    }

    /// Which are over. A worker that has ended is not waited for.
    fn settle(&mut self, now_ms: u64, lives: impl Fn(i32) -> bool) -> Vec<Round> {
        for round in &mut self.rounds {
            round.waiting.retain(|pid| lives(*pid));
        }
        let is_over = |round: &mut Round| round.waiting.is_empty() || round.deadline_ms <= now_ms;
        self.rounds.extract_if(.., is_over).collect()
    }
}

impl Master {
    /// Asks every worker; [`Master::conclude`] is called with what they say.
    pub(super) fn inquire(
        &mut self,
        asker: AskerId,
        purpose: Purpose,
        inquiry: &Inquiry,
    ) -> Result<(), Refusal> {
        if self.inquiries.rounds.len() >= ROUNDS_MAX {
            return Err(Refusal::new("too many ask at the same time").hint("ask again"));
        }
        let text = serde_json::to_vec(inquiry).map_err(|error| Refusal::new(error.to_string()))?;
        self.inquiries.last_number += 1;
        let number = self.inquiries.last_number;
        let mut datagram = vec![message::INQUIRY];
        datagram.extend_from_slice(&number.to_be_bytes());
        datagram.extend_from_slice(&text);
        let mut waiting = Vec::new();
        for worker in self.crews.iter().flat_map(|crew| &crew.workers) {
            // One that takes nothing is as stuck as one that says nothing, one that has ended is about to be reaped.
            if let Some(channel) = &worker.channel {
                let _ = send_fds(channel, &datagram, &[]);
                waiting.push(worker.pid);
            }
        }
        self.inquiries.rounds.push(Round {
            number,
            asker,
            purpose,
            waiting,
            findings: Vec::new(),
            deadline_ms: clock::monotonic_ms() + PATIENCE_MS,
        });
        Ok(())
    }

    /// A worker has answered.
    pub(super) fn take_findings(&mut self, pid: i32, text: &[u8], memory: Option<OwnedFd>) {
        let number = text.first_chunk().map(|number| u64::from_be_bytes(*number));
        let said = memory
            .and_then(|memory| memfile::contents_of_stranger(memory, FINDINGS_MAX_BYTES).ok())
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        match (number, said) {
            (Some(number), Some(findings)) => self.inquiries.take(number, pid, findings),
            _ => {
                log::error!(target: "alert", "worker process {pid} sent an answer that cannot be read");
            }
        }
    }

    /// Answers for those that are over.
    pub(super) fn settle_inquiries(&mut self, now_ms: u64) {
        let crews = &self.crews;
        let lives = |pid| {
            let mut workers = crews.iter().flat_map(|crew| &crew.workers);
            workers.any(|worker| worker.pid == pid && worker.channel.is_some())
        };
        for mut round in self.inquiries.settle(now_ms, lives) {
            round.waiting.sort_unstable();
            self.conclude(round);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(number: u64, waiting: &[i32], deadline_ms: u64) -> Round {
        Round {
            number,
            asker: AskerId::numbered(number),
            purpose: Purpose::LogLevel,
            waiting: waiting.to_vec(),
            findings: Vec::new(),
            deadline_ms,
        }
    }

    fn over(inquiries: &mut Inquiries, now_ms: u64, living: &[i32]) -> Vec<(u64, usize, Vec<i32>)> {
        let rounds = inquiries.settle(now_ms, |pid| living.contains(&pid));
        let told = |round: Round| (round.number, round.findings.len(), round.waiting);
        rounds.into_iter().map(told).collect()
    }

    #[test]
    fn an_inquiry_is_over_when_all_have_answered_or_ended() {
        let mut inquiries = Inquiries {
            last_number: 2,
            rounds: vec![round(1, &[10, 11], 100), round(2, &[10, 11], 200)],
        };
        assert_eq!(inquiries.deadline_ms(), Some(100));
        inquiries.take(1, 10, Findings::Done);
        inquiries.take(1, 10, Findings::Done);
        inquiries.take(7, 10, Findings::Done);
        inquiries.take(1, 12, Findings::Done);
        assert_eq!(over(&mut inquiries, 1, &[10, 11]), []);
        inquiries.take(2, 10, Findings::Done);
        inquiries.take(1, 11, Findings::Done);
        assert_eq!(over(&mut inquiries, 2, &[10, 11]), [(1, 2, vec![])]);
        assert_eq!(over(&mut inquiries, 3, &[10]), [(2, 1, vec![])]);
        assert_eq!(inquiries.deadline_ms(), None);
    }

    #[test]
    fn a_worker_that_is_stuck_is_named() {
        let mut inquiries = Inquiries {
            last_number: 1,
            rounds: vec![round(1, &[10, 11], 100)],
        };
        inquiries.take(1, 10, Findings::Done);
        assert_eq!(over(&mut inquiries, 99, &[10, 11]), []);
        assert_eq!(over(&mut inquiries, 100, &[10, 11]), [(1, 1, vec![11])]);
        inquiries.take(1, 11, Findings::Done);
    }
}
