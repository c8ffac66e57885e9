//! `outlier_detection` and `max_ejected_percent`: who is left alone for what it answered, and how many may be.
//!
//! A peer is ejected by replacing one word of its row, so that of all processes that share it exactly one does it and
//! tells; its return is noticed by the first pick after its time, in the same way. Without a `zone` each worker judges by
//! what it has seen itself. Does not decide about `max_fails`, which is nginx's, except that it keeps it from taking out
//! too many.

use crate::groups::{Group, Outcome};
use crate::measure;
use crate::peer::Peer;
use crate::roster::Slot;
use crate::tried::Tried;
use kp_config::model::OutlierDetection;
use kp_shm::{Answers, Ejection};
use std::sync::atomic::{Ordering::SeqCst, fence};

/// What an attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What it counts as.
    pub outcome: Outcome,
    /// The status of the response; 0: there was none.
    pub status: u16,
    /// From the attempt's begin to the whole head.
    pub header_ms: Option<u32>,
    /// And to the end of the response.
    pub last_byte_ms: Option<u32>,
    /// From its begin to now, whatever became of it.
    pub waited_ms: u32,
    /// What went over the wire.
    pub traffic: Traffic,
}

/// What an attempt moved; it is only counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How long its connection took to open; `None`: it took one from the pool, or had none.
    pub connect_ms: Option<u32>,
    /// Bytes read from the peer.
    pub bytes_in: u64,
    /// Bytes written to it.
    pub bytes_out: u64,
}

/// An ejection or a return; one process is told of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerChange {
    /// It gets nothing until then, by the monotonic clock.
    Ejected {
        /// Why.
        why: Offence,
        /// Its end.
        until_ms: u64,
    },
    /// The time is over.
    Returned,
}

/// Why a peer was ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offence {
    /// So many failures in a row.
    InARow(u64),
    /// So many of so many answers.
    Share {
        /// Failures.
        failures: u64,
        /// All.
        answers: u64,
    },
    /// Its average time, beside the median of the others.
    Slow {
        /// Its own.
        time_ms: u64,
        /// Theirs.
        median_ms: u64,
    },
}

/// The share of failures is taken of this window and the one before.
const WINDOW_MS: u64 = 10_000;
/// Fewer answers than that say nothing.
const ANSWERS_MIN: u64 = 20;
/// A shorter wait without an answer says nothing about the peer: a stale connection takes none.
const WAIT_MIN_MS: u64 = 10;
/// Differences below this are not worth an ejection, in sixteenths of a millisecond.
const SLOW_MIN: u64 = 5 * 16;

impl Group {
    /// Takes an answer into account.
    pub(crate) fn observe(&mut self, slot: Slot, answer: &Answer, now_ms: u64) {
        let Some(peer) = self.peer(slot) else { return };
        measure::attempt(self.series.as_ref(), peer.series.as_ref(), answer);
        let failed = answer.outcome == Outcome::Failed || (500..600).contains(&answer.status);
        if let Some(last_byte) = self.looks_at_last_byte(failed) {
            let time = if last_byte {
                answer.last_byte_ms
            } else {
                answer.header_ms
            };
            let time = time.filter(|_| answer.outcome != Outcome::NotCounted);
            // A client that gave up says that the peer takes at least so long.
            let waited = u64::from(answer.waited_ms);
            let long = waited >= WAIT_MIN_MS && waited * 16 > peer.facts.latency();
            if let Some(time_ms) = time.map(u64::from).or(long.then_some(waited)) {
                peer.facts.note_latency(time_ms, now_ms);
            }
        }
        let Some(outliers) = self.outliers else {
            return;
        };
        // Attempts that were under way when it was ejected say nothing new: it returns with a clean record.
        if answer.outcome == Outcome::NotCounted || peer.facts.ejection().out {
            return;
        }
        let answers = peer.facts.note_answer(now_ms / WINDOW_MS, failed);
        if let Some(why) = self.offence(&outliers, peer, &answers)
            && let Some(until_ms) = self.eject(&outliers, peer, now_ms)
        {
            self.events
                .push((slot, PeerChange::Ejected { why, until_ms }));
        }
    }

    fn offence(
        &self,
        outliers: &OutlierDetection,
        peer: &Peer,
        answers: &Answers,
    ) -> Option<Offence> {
        let limit = u64::from(outliers.consecutive_5xx);
        if limit != 0 && answers.in_a_row >= limit {
            return Some(Offence::InARow(answers.in_a_row));
        }
        if answers.answers < ANSWERS_MIN {
            return None;
        }
        let percent = u64::from(outliers.failure_percent);
        if percent != 0 && answers.failures * 100 >= percent * answers.answers {
            return Some(Offence::Share {
                failures: answers.failures,
                answers: answers.answers,
            });
        }
        let factor = u64::from(outliers.latency_factor_percent);
        let time = peer.facts.latency();
        let median = (factor != 0).then(|| self.median_beside(peer))??;
        let slow =
            time >= median + SLOW_MIN && time.saturating_mul(100) >= median.saturating_mul(factor);
        slow.then_some(Offence::Slow {
            time_ms: time / 16,
            median_ms: median / 16,
        })
    }

    /// The median of the average times of the other peers that have answered.
    fn median_beside(&self, peer: &Peer) -> Option<u64> {
        let others = self.peers.iter().filter(|other| other.slot != peer.slot);
        let mut times: Vec<u64> = others
            .map(|other| other.facts.latency())
            .filter(|time| *time != 0)
            .collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// Ejects it, if it may be and nobody else was faster; the end of its time.
    fn eject(&self, outliers: &OutlierDetection, peer: &Peer, now_ms: u64) -> Option<u64> {
        let old = peer.facts.ejection();
        let base_ms = u64::try_from(outliers.base_time.as_millis()).unwrap_or(u64::MAX);
        if old.out || !self.may_eject(outliers, peer, now_ms) {
            return None;
        }
        // Each `base_time` that it was well makes one ejection forgotten.
        let well = now_ms.saturating_sub(old.until_ms) / base_ms.max(1);
        let times = u64::from(old.times).saturating_sub(well).saturating_add(1);
        let times = u16::try_from(times).unwrap_or(u16::MAX);
        let until_ms = now_ms.saturating_add(base_ms.saturating_mul(times.into()));
        let new = Ejection {
            times,
            out: true,
            until_ms,
        };
        if !peer.facts.replace_ejection(old, new) {
            return None;
        }
        // Of two processes that eject two peers at once the later sees the earlier here; both may, and then nobody is out.
        fence(SeqCst);
        if !self.may_eject(outliers, peer, now_ms) {
            peer.facts.replace_ejection(new, old);
            return None;
        }
        peer.facts.forget_answers();
        Some(until_ms)
    }

    fn may_eject(&self, outliers: &OutlierDetection, peer: &Peer, now_ms: u64) -> bool {
        let (all, out) = self.out_beside(peer.slot, now_ms);
        let within = |percent: u32| (out + 1) * 100 <= all * u64::from(percent);
        (out == 0 || within(outliers.max_percent))
            && out + 1 < all
            && self.max_ejected_percent.is_none_or(within)
    }

    /// Whether failures may take this peer out.
    pub(crate) fn may_lose(&self, slot: Slot, now_ms: u64) -> bool {
        let Some(percent) = self.max_ejected_percent else {
            return true;
        };
        let (all, out) = self.out_beside(slot, now_ms);
        (out + 1) * 100 <= all * u64::from(percent) && out + 1 < all
    }

    /// Peers that only what they answered takes out, and how many of them besides this one are out now.
    fn out_beside(&self, slot: Slot, now_ms: u64) -> (u64, u64) {
        let counted = self.peers.iter().filter(|peer| !peer.drain && peer.is_up());
        counted.fold((0, 0), |(all, out), peer| {
            let is_out = peer.slot != slot && peer.is_out(now_ms);
            (all + 1, out + u64::from(is_out))
        })
    }

    /// Where not all peers may be out at once: whoever failed longest ago of those that are.
    pub(crate) fn last_resort(&self, tried: &Tried) -> Option<usize> {
        self.max_ejected_percent?;
        let mut candidates: Vec<(bool, u64, usize)> = self
            .peers
            .iter()
            .enumerate()
            .filter(|(_, peer)| !peer.drain && !tried.contains(peer.slot.index as usize))
            .map(|(index, peer)| (peer.backup, peer.facts.health().checked_ms, index))
            .collect();
        candidates.sort_unstable();
        let enters = |index: &usize| {
            let peer = self.peers.get(*index);
            peer.is_some_and(Peer::enter_as_last_resort)
        };
        candidates
            .into_iter()
            .map(|(_, _, index)| index)
            .find(enters)
    }

    /// Those whose time is over are back; whoever replaces the word tells.
    pub(crate) fn notice_returns(&mut self, now_ms: u64) {
        for peer in &self.peers {
            let old = peer.facts.ejection();
            if !old.out || now_ms < old.until_ms {
                continue;
            }
            if peer
                .facts
                .replace_ejection(old, Ejection { out: false, ..old })
            {
                peer.begin_slow_start(now_ms);
                self.events.push((peer.slot, PeerChange::Returned));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{U, at, groups, letter, pick, server, servers, upstream};
    use crate::{Groups, PeerId};
    use kp_config::model::{Balancer, ServerLine, Upstream};
    use kp_shm::Shm;
    use std::time::Duration;

    const OFF: OutlierDetection = OutlierDetection {
        consecutive_5xx: 0,
        failure_percent: 0,
        latency_factor_percent: 0,
        base_time: Duration::from_secs(30),
        max_percent: 100,
    };

    fn group(outliers: OutlierDetection, peers: usize) -> Upstream {
        Upstream {
            outliers: Some(outliers),
            ..upstream(Balancer::RoundRobin, servers(&vec![1; peers]))
        }
    }

    /// One exchange in which peers answer with a status and a time, by letter; who answered.
    fn ask(groups: &mut Groups, now_ms: u64, answer: impl Fn(char) -> (u16, u32)) -> char {
        let peer = pick(groups, now_ms).unwrap();
        let (status, time_ms) = answer(letter(peer));
        let answer = Answer {
            outcome: Outcome::Ok,
            status,
            header_ms: Some(time_ms),
            last_byte_ms: Some(time_ms),
            waited_ms: time_ms,
            traffic: Traffic::default(),
        };
        groups.observe(peer, &answer, now_ms);
        groups.finished(peer, Outcome::Ok, now_ms);
        letter(peer)
    }

    fn run(groups: &mut Groups, asks: usize, now_ms: u64, bad: &str) -> String {
        let status = |peer| if bad.contains(peer) { 503 } else { 200 };
        (0..asks)
            .map(|_| ask(groups, now_ms, |peer| (status(peer), 1)))
            .collect()
    }

    fn changes(groups: &mut Groups) -> Vec<(char, PeerChange)> {
        let change = || groups.next_change(U);
        std::iter::from_fn(change)
            .map(|(peer, change): (PeerId, _)| (letter(peer), change))
            .collect()
    }

    #[test]
    fn so_many_in_a_row_eject_and_time_grows() {
        let outliers = OutlierDetection {
            consecutive_5xx: 3,
            ..OFF
        };
        let mut groups = groups(group(outliers, 2));
        let mut now = 1_000;
        for times in 1..=3u64 {
            run(&mut groups, 6, now, "a");
            let until_ms = now + 30_000 * times;
            let why = Offence::InARow(3);
            let ejected = ('a', PeerChange::Ejected { why, until_ms });
            assert_eq!(changes(&mut groups), [ejected]);
            assert_eq!(run(&mut groups, 4, until_ms - 1, ""), "bbbb");
            now = until_ms;
            assert!(run(&mut groups, 2, now, "").contains('a'));
            assert_eq!(changes(&mut groups), [('a', PeerChange::Returned)]);
        }
        // After as much time without an offence the first ejection is short again.
        now += 120_000;
        run(&mut groups, 6, now, "a");
        assert!(matches!(
            changes(&mut groups).as_slice(),
            [('a', PeerChange::Ejected { until_ms, .. })] if *until_ms == now + 30_000
        ));
    }

    #[test]
    fn a_success_ends_the_row() {
        let outliers = OutlierDetection {
            consecutive_5xx: 3,
            ..OFF
        };
        let mut groups = groups(group(outliers, 2));
        for _ in 0..20 {
            run(&mut groups, 4, 1, "a");
            run(&mut groups, 2, 1, "");
        }
        assert_eq!(changes(&mut groups), []);
    }

    #[test]
    fn a_share_of_enough_answers_ejects() {
        let outliers = OutlierDetection {
            failure_percent: 50,
            ..OFF
        };
        let mut groups = groups(group(outliers, 2));
        for turn in 0..9 {
            let bad = if turn % 2 == 0 { "a" } else { "" };
            run(&mut groups, 4, 1_000, bad);
            assert_eq!(changes(&mut groups), [], "{} answers", (turn + 1) * 2);
        }
        run(&mut groups, 4, 1_000, "a");
        let share = Offence::Share {
            failures: 12,
            answers: 20,
        };
        assert!(matches!(
            changes(&mut groups).as_slice(),
            [('a', PeerChange::Ejected { why, .. })] if *why == share
        ));
    }

    #[test]
    fn what_is_long_ago_does_not_count() {
        let outliers = OutlierDetection {
            failure_percent: 50,
            ..OFF
        };
        let mut groups = groups(group(outliers, 2));
        run(&mut groups, 38, 1_000, "a");
        run(&mut groups, 2, 31_000, "a");
        assert_eq!(changes(&mut groups), []);
    }

    #[test]
    fn a_peer_much_slower_than_the_others_is_ejected() {
        let outliers = OutlierDetection {
            latency_factor_percent: 500,
            ..OFF
        };
        let mut groups = groups(group(outliers, 3));
        for _ in 0..200 {
            ask(&mut groups, 1_000, |peer| {
                (200, if peer == 'c' { 100 } else { 10 })
            });
        }
        let why = Offence::Slow {
            time_ms: 100,
            median_ms: 10,
        };
        assert_eq!(
            changes(&mut groups),
            [(
                'c',
                PeerChange::Ejected {
                    why,
                    until_ms: 31_000
                }
            )]
        );
    }

    #[test]
    fn who_answers_is_not_slow_beside_who_fails_fast() {
        let outliers = OutlierDetection {
            latency_factor_percent: 500,
            ..OFF
        };
        let mut groups = groups(group(outliers, 2));
        for _ in 0..200 {
            ask(&mut groups, 1_000, |peer| match peer {
                'a' => (200, 100),
                _ => (503, 1),
            });
        }
        assert_eq!(changes(&mut groups), []);
        for _ in 0..200 {
            ask(&mut groups, 1_000, |peer| {
                (200, if peer == 'a' { 100 } else { 10 })
            });
        }
        let all = changes(&mut groups);
        assert!(
            matches!(all.as_slice(), [('a', PeerChange::Ejected { .. })]),
            "two are enough to compare: {all:?}"
        );
    }

    #[test]
    fn attempts_that_were_under_way_do_not_count_after_the_return() {
        let outliers = OutlierDetection {
            consecutive_5xx: 3,
            base_time: Duration::from_secs(2),
            ..OFF
        };
        let mut groups = groups(group(outliers, 2));
        let held: Vec<PeerId> = (0..20).map(|_| pick(&mut groups, 1_000).unwrap()).collect();
        for peer in held {
            let status = if letter(peer) == 'a' { 503 } else { 200 };
            let answer = Answer {
                outcome: Outcome::Ok,
                status,
                header_ms: Some(1),
                last_byte_ms: Some(1),
                waited_ms: 1,
                traffic: Traffic::default(),
            };
            groups.observe(peer, &answer, 1_000);
            groups.finished(peer, Outcome::Ok, 1_000);
        }
        assert_eq!(changes(&mut groups).len(), 1);
        run(&mut groups, 4, 3_000, "a");
        let all = changes(&mut groups);
        assert_eq!(all, [('a', PeerChange::Returned)], "two failures since");
        run(&mut groups, 2, 3_000, "a");
        assert_eq!(changes(&mut groups).len(), 1, "the third");
    }

    #[test]
    fn two_processes_never_eject_everybody() {
        let shm = Shm::private().unwrap();
        let outliers = OutlierDetection {
            consecutive_5xx: 2,
            ..OFF
        };
        for round in 0..200u64 {
            let group = Upstream {
                name: format!("u{round}"),
                zone: Some("z".to_owned()),
                ..group(outliers, 2)
            };
            let barrier = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                for slot in 0..2u32 {
                    let (shm, group, barrier) = (&shm, &group, &barrier);
                    scope.spawn(move || {
                        let process = shm.scoreboard().claim(1, slot);
                        let group = std::slice::from_ref(group);
                        let mut groups = Groups::new(group, shm, process, 1);
                        // Each is about to eject a peer of its own.
                        let peer = groups.peers(U).nth(slot as usize).unwrap();
                        let group = groups.only();
                        barrier.wait();
                        let peer = group.peer(peer.slot()).unwrap();
                        group.eject(&outliers, peer, 1_000);
                        barrier.wait();
                        let out = |peer: &Peer| peer.is_out(1_000);
                        assert!(!group.peers.iter().all(out), "round {round}");
                    });
                }
            });
        }
    }

    #[test]
    fn a_last_resort_that_answers_is_well() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let group = Upstream {
            checks: vec![crate::fixture::check()],
            max_ejected_percent: Some(50),
            ..upstream(Balancer::RoundRobin, servers(&[1, 1, 1, 1]))
        };
        let mut groups = Groups::new(&[group], &shm, process, 1);
        for _ in 0..2 {
            let peer = pick(&mut groups, 1_000).unwrap();
            assert!(groups.finished(peer, Outcome::Failed, 1_000));
        }
        let once = kp_shm::Thresholds {
            fails: 1,
            passes: 1,
        };
        for port in 3..=4 {
            let check = shm
                .checks()
                .claim("u", &format!("127.0.0.1:{port}"), "", process);
            check.record(false, once, 0, 1_000);
        }
        let mut tried = Tried::new();
        let first = groups.pick(U, &at(1_001), &mut tried).unwrap();
        groups.finished(first, Outcome::Failed, 1_001);
        let second = groups.pick(U, &at(1_001), &mut tried).unwrap();
        assert_ne!(first, second, "it failed longest ago");
        groups.finished(second, Outcome::Ok, 1_001);
        let peer = groups.only().peer(second.slot()).unwrap();
        assert!(!peer.is_out(1_002), "it answered");
    }

    #[test]
    fn never_too_many_and_never_all() {
        for (max_percent, out) in [(10, 1), (50, 2), (100, 3)] {
            let outliers = OutlierDetection {
                consecutive_5xx: 2,
                max_percent,
                ..OFF
            };
            let mut groups = groups(group(outliers, 4));
            run(&mut groups, 40, 1, "abcd");
            assert_eq!(changes(&mut groups).len(), out, "{max_percent} %");
        }
        let mut capped = group(
            OutlierDetection {
                consecutive_5xx: 2,
                ..OFF
            },
            4,
        );
        capped.max_ejected_percent = Some(50);
        let mut groups = groups(capped);
        run(&mut groups, 40, 1, "abcd");
        assert_eq!(changes(&mut groups).len(), 2);
    }

    #[test]
    fn the_last_usable_peer_stays_whatever_it_does() {
        let mut lines = servers(&[1, 1]);
        lines.push(ServerLine {
            down: true,
            ..server(3, 1)
        });
        lines.push(ServerLine {
            backup: true,
            ..server(4, 1)
        });
        let mut groups = groups(Upstream {
            max_ejected_percent: Some(100),
            ..upstream(Balancer::RoundRobin, lines)
        });
        for _ in 0..10 {
            let mut tried = Tried::new();
            while let Ok(peer) = groups.pick(U, &at(1_000), &mut tried) {
                groups.finished(peer, Outcome::Failed, 1_000);
            }
        }
        assert!(pick(&mut groups, 1_001).is_some(), "one of three is left");
        let mut half = Upstream {
            max_ejected_percent: Some(50),
            ..upstream(Balancer::RoundRobin, servers(&[1, 1, 1, 1]))
        };
        half.servers[3].max_fails = 3;
        let mut groups = crate::fixture::groups(half);
        let fail = |groups: &mut Groups| {
            let peer = pick(groups, 1_000)?;
            Some(groups.finished(peer, Outcome::Failed, 1_000))
        };
        let out = (0..40).filter_map(|_| fail(&mut groups)).filter(|out| *out);
        assert_eq!(out.count(), 2, "of four");
    }

    #[test]
    fn one_of_many_processes_ejects_and_one_tells_of_the_return() {
        let shm = Shm::private().unwrap();
        let group = Upstream {
            zone: Some("z".to_owned()),
            ..group(
                OutlierDetection {
                    consecutive_5xx: 5,
                    ..OFF
                },
                2,
            )
        };
        let all: Vec<PeerChange> = std::thread::scope(|scope| {
            let barrier = std::sync::Arc::new(std::sync::Barrier::new(4));
            let worker = |slot: u32| {
                let (shm, group, barrier) = (&shm, &group, barrier.clone());
                scope.spawn(move || {
                    let process = shm.scoreboard().claim(1, slot);
                    let mut groups =
                        Groups::new(std::slice::from_ref(group), shm, process, slot.into());
                    let mut seen = Vec::new();
                    for (now, bad) in [(1_000, "a"), (31_000, ""), (31_500, "")] {
                        barrier.wait();
                        run(&mut groups, 200, now, bad);
                        seen.extend(changes(&mut groups).into_iter().map(|(_, change)| change));
                    }
                    seen
                })
            };
            let workers: Vec<_> = (0..4).map(worker).collect();
            let all = workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap());
            all.collect()
        });
        let returns = all
            .iter()
            .filter(|change| **change == PeerChange::Returned)
            .count();
        assert_eq!((returns, all.len()), (1, 2), "{all:?}");
    }
}
