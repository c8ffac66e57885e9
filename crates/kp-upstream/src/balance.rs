//! Round robin and least connections: the balancers that look at every peer of a tier.
//!
//! Smooth weighted round robin without a lock: add its weight to every usable peer, take the largest, subtract the sum
//! of what was added from it. In sequence this is nginx's order; between processes it errs by less than one pick per
//! peer, and a process killed in the middle shifts the order once.

use crate::groups::Group;
use crate::tried::Tried;
use std::ops::Range;

/// A peer that takes part in a pick under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Added {
    index: usize,
    weight: i64,
    in_flight: i64,
    /// What is least for who is chosen, and the weight it is measured by.
    load: u64,
    share: i64,
}

impl Added {
    /// Its load on the scale of the other's weight, so that two can be compared without division.
    fn load_beside(&self, other: &Self) -> i128 {
        i128::from(self.load) * i128::from(other.share)
    }
}

impl Group {
    /// Smooth weighted round robin among the peers of `tier` that were not tried and are usable.
    pub(crate) fn round_robin(
        &mut self,
        tier: Range<usize>,
        tried: &Tried,
        now_ms: u64,
    ) -> Option<usize> {
        self.collect(tier, tried, now_ms);
        self.round(now_ms)
    }

    /// The same among the primaries of one server name.
    pub(crate) fn round_robin_of(
        &mut self,
        server: u32,
        tried: &Tried,
        now_ms: u64,
    ) -> Option<usize> {
        self.collect(0..self.primaries, tried, now_ms);
        let peers = &self.peers;
        self.added.retain(|added| {
            peers
                .get(added.index)
                .is_some_and(|peer| peer.server == server)
        });
        self.round(now_ms)
    }

    /// The peer with the fewest connections for its weight; round robin among equals.
    pub(crate) fn least_conn(
        &mut self,
        tier: Range<usize>,
        tried: &Tried,
        now_ms: u64,
    ) -> Option<usize> {
        loop {
            self.collect(tier.clone(), tried, now_ms);
            for added in &mut self.added {
                added.load = added.in_flight.max(0) as u64;
            }
            self.keep_least(now_ms)?;
            let best = match self.added.as_slice() {
                [only] => only.index,
                _ => self.turn(now_ms)?,
            };
            if self.settle(best, now_ms) {
                return Some(best);
            }
        }
    }

    /// The peer that needs the least time for its weight and connections; round robin among equals.
    pub(crate) fn least_time(
        &mut self,
        tier: Range<usize>,
        inflight: bool,
        tried: &Tried,
        now_ms: u64,
    ) -> Option<usize> {
        loop {
            self.collect(tier.clone(), tried, now_ms);
            let (peers, mut longest) = (&self.peers, 1);
            for added in &mut self.added {
                let time = |peer: &crate::peer::Peer| peer.time(inflight, now_ms);
                added.load = peers.get(added.index).map_or(0, time);
                longest = longest.max(added.load);
            }
            for added in &mut self.added {
                // Of whom nothing is known one attempt finds out.
                let time = match added.load {
                    0 if added.in_flight > 0 => longest,
                    time => time.max(1),
                };
                added.load = time.saturating_mul(added.in_flight.max(0) as u64 + 1);
            }
            self.keep_least(now_ms)?;
            let best = match self.added.as_slice() {
                [only] => only.index,
                _ => self.turn(now_ms)?,
            };
            if self.settle(best, now_ms) {
                if let Some(peer) = self.peers.get(best) {
                    peer.chosen(now_ms);
                }
                return Some(best);
            }
        }
    }

    /// Keeps those of the collected whose load is least for their weight.
    fn keep_least(&mut self, now_ms: u64) -> Option<()> {
        let peers = &self.peers;
        for added in &mut self.added {
            added.share = peers.get(added.index).map_or(1, |peer| peer.share(now_ms));
        }
        let mut best = *self.added.first()?;
        for candidate in &self.added {
            if candidate.load_beside(&best) < best.load_beside(candidate) {
                best = *candidate;
            }
        }
        self.added
            .retain(|candidate| candidate.load_beside(&best) == best.load_beside(candidate));
        Some(())
    }

    fn round(&mut self, now_ms: u64) -> Option<usize> {
        loop {
            let best = self.turn(now_ms)?;
            if self.settle(best, now_ms) {
                return Some(best);
            }
        }
    }

    fn collect(&mut self, tier: Range<usize>, tried: &Tried, now_ms: u64) {
        self.added.clear();
        for (index, peer) in self
            .peers
            .iter()
            .enumerate()
            .take(tier.end)
            .skip(tier.start)
        {
            if !tried.contains(peer.slot.index as usize) && peer.is_usable(now_ms) {
                self.added.push(Added {
                    index,
                    weight: 0,
                    in_flight: peer.facts.in_flight(),
                    load: 0,
                    share: 1,
                });
            }
        }
    }

    /// Adds to everybody collected and returns who is largest, the earliest among equals.
    fn turn(&mut self, now_ms: u64) -> Option<usize> {
        let mut best: Option<(usize, i64)> = None;
        for added in &mut self.added {
            let Some(peer) = self.peers.get(added.index) else {
                continue;
            };
            added.weight = peer.effective_weight(now_ms);
            let current = peer.turn.advance(added.weight);
            if best.is_none_or(|(_, largest)| current > largest) {
                best = Some((added.index, current));
            }
        }
        best.map(|(index, _)| index)
    }

    /// Enters `best` and lets it pay for the round. If another process took its last place or its trial in the
    /// meantime, everything added is taken back and it takes no further part.
    fn settle(&mut self, best: usize, now_ms: u64) -> bool {
        let entered = self.peers.get(best).is_some_and(|peer| peer.enter(now_ms));
        if entered {
            let total: i64 = self.added.iter().map(|added| added.weight).sum();
            if let Some(peer) = self.peers.get(best)
                && total != 0
            {
                peer.turn.advance(-total);
            }
            return true;
        }
        for added in &mut self.added {
            if let Some(peer) = self.peers.get(added.index) {
                peer.turn.advance(-added.weight);
            }
            added.weight = 0;
        }
        self.added.retain(|added| added.index != best);
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{U, at, groups, letter, pick, server, servers, upstream};
    use crate::{Groups, Outcome, Tried};
    use kp_config::model::{Balancer, ServerLine, Upstream};
    use kp_shm::Shm;
    use proptest::prelude::*;
    use std::time::Duration;

    fn sequence(balancer: Balancer, weights: &[u32], picks: usize) -> String {
        let mut groups = groups(upstream(balancer, servers(weights)));
        let picked = (0..picks).map(|_| {
            let peer = pick(&mut groups, 1).unwrap();
            groups.finished(peer, Outcome::Ok, 1);
            letter(peer)
        });
        picked.collect()
    }

    #[test]
    fn weights_are_smooth() {
        assert_eq!(
            sequence(Balancer::RoundRobin, &[5, 1, 1], 14),
            "aabacaaaabacaa"
        );
        assert_eq!(
            sequence(Balancer::RoundRobin, &[3, 2, 1], 12),
            "abacbaabacba"
        );
        assert_eq!(sequence(Balancer::RoundRobin, &[1, 1, 1], 6), "abcabc");
        assert_eq!(
            sequence(Balancer::LeastConn, &[5, 1, 1], 14),
            "aabacaaaabacaa"
        );
        assert_eq!(sequence(Balancer::LeastConn, &[1, 1, 1], 6), "abcabc");
    }

    #[test]
    fn large_weights_cost_nothing() {
        let picks = sequence(Balancer::RoundRobin, &[1_000_000, 500_000, u32::MAX], 3000);
        let count = |peer| picks.chars().filter(|picked| *picked == peer).count();
        assert!(
            count('c') >= 2990 && count('a') >= 1,
            "{} {}",
            count('c'),
            count('a')
        );
    }

    #[test]
    fn many_workers_take_turns_in_one_order() {
        let shm = Shm::private().unwrap();
        let group = Upstream {
            zone: Some("z".to_owned()),
            ..upstream(Balancer::RoundRobin, servers(&[1, 1, 1]))
        };
        let mut workers: Vec<Groups> = (0..4)
            .map(|slot| {
                Groups::new(
                    std::slice::from_ref(&group),
                    &shm,
                    shm.scoreboard().claim(1, slot),
                    slot.into(),
                )
            })
            .collect();
        let mut counts = [0; 3];
        for turn in 0..300usize {
            let worker = &mut workers[turn * turn % 7 % 4];
            let peer = pick(worker, 1).unwrap();
            worker.finished(peer, Outcome::Ok, 1);
            counts[peer.index()] += 1;
        }
        assert_eq!(counts, [100, 100, 100]);
    }

    #[test]
    fn racing_workers_are_fair_to_within_one_pick_each() {
        let shm = Shm::private().unwrap();
        let weights = [5u64, 3, 2];
        let group = Upstream {
            zone: Some("z".to_owned()),
            ..upstream(Balancer::RoundRobin, servers(&[5, 3, 2]))
        };
        let rounds = 20_000;
        let counts: Vec<[u64; 3]> = std::thread::scope(|scope| {
            let worker = |slot: u32| {
                let (shm, group) = (&shm, &group);
                scope.spawn(move || {
                    let process = shm.scoreboard().claim(1, slot);
                    let mut groups =
                        Groups::new(std::slice::from_ref(group), shm, process, slot.into());
                    let mut counts = [0; 3];
                    for _ in 0..rounds {
                        let peer = pick(&mut groups, 1).unwrap();
                        groups.finished(peer, Outcome::Ok, 1);
                        counts[peer.index()] += 1;
                    }
                    counts
                })
            };
            (0..4)
                .map(worker)
                .collect::<Vec<_>>()
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        for (peer, weight) in weights.iter().enumerate() {
            let got: u64 = counts.iter().map(|counts| counts[peer]).sum();
            let fair = 4 * rounds * weight / 10;
            assert!(
                got.abs_diff(fair) <= 8,
                "peer {peer}: {got} instead of {fair}"
            );
        }
        let process = shm.scoreboard().claim(1, 9);
        let mut groups = Groups::new(&[group], &shm, process, 9);
        let peer = pick(&mut groups, 1).unwrap();
        assert_eq!(groups.in_flight(peer), 1);
    }

    #[test]
    fn other_weights_in_a_new_generation_begin_a_new_round() {
        let shm = Shm::private().unwrap();
        let group = |weights: &[u32]| Upstream {
            zone: Some("z".to_owned()),
            ..upstream(Balancer::RoundRobin, servers(weights))
        };
        let mut old = Groups::new(
            &[group(&[1_000_000, 999_999])],
            &shm,
            shm.scoreboard().claim(1, 0),
            1,
        );
        let held = pick(&mut old, 1).unwrap();
        let mut new = Groups::new(&[group(&[1, 1])], &shm, shm.scoreboard().claim(2, 0), 1);
        let picks: String = (0..6).map(|_| letter(pick(&mut new, 1).unwrap())).collect();
        assert_eq!(picks, "ababab");
        assert_eq!(
            new.in_flight(held),
            4,
            "what is in flight is one fact for both"
        );
        let mut same = Groups::new(&[group(&[1, 1])], &shm, shm.scoreboard().claim(3, 0), 1);
        pick(&mut new, 1);
        assert_eq!(
            letter(pick(&mut same, 1).unwrap()),
            'b',
            "equal weights go on with the round"
        );
    }

    #[test]
    fn who_keeps_clients_waiting_until_they_leave_is_slow() {
        let balancer = Balancer::LeastTime {
            last_byte: true,
            inflight: false,
        };
        let mut groups = groups(upstream(balancer, servers(&[1, 1])));
        let peer = pick(&mut groups, 1).unwrap();
        let answer = crate::Answer {
            outcome: Outcome::NotCounted,
            status: 0,
            header_ms: None,
            last_byte_ms: None,
            waited_ms: 8_000,
            traffic: crate::Traffic::default(),
        };
        groups.observe(peer, &answer, 8_001);
        groups.finished(peer, Outcome::NotCounted, 8_001);
        for _ in 0..9 {
            let other = pick(&mut groups, 8_001).unwrap();
            assert!(other != peer);
            groups.finished(other, Outcome::Ok, 8_001);
        }
    }

    fn slow(port: u16) -> ServerLine {
        ServerLine {
            slow_start: Duration::from_secs(10),
            fail_timeout: Duration::from_secs(1),
            ..server(port, 1)
        }
    }

    /// The share of `a` in a second of steady load from `now` on.
    fn share(groups: &mut Groups, from_ms: u64) -> f64 {
        let mut its = 0;
        for request in 0..200 {
            let peer = pick(groups, from_ms + request * 5).unwrap();
            groups.finished(peer, Outcome::Ok, from_ms + request * 5);
            its += u32::from(letter(peer) == 'a');
        }
        f64::from(its) / 200.0
    }

    #[test]
    fn a_peer_that_is_well_again_begins_slowly() {
        for balancer in [Balancer::RoundRobin, Balancer::LeastConn] {
            let mut groups = groups(upstream(balancer, vec![slow(1), slow(2)]));
            assert_eq!(share(&mut groups, 1_000), 0.5, "nobody was away");
            let failed = pick(&mut groups, 2_000).unwrap();
            assert_eq!(letter(failed), 'a');
            groups.finished(failed, Outcome::Failed, 2_000);
            let trial = (0..10).find_map(|_| {
                let peer = pick(&mut groups, 3_001).unwrap();
                if letter(peer) == 'a' {
                    return Some(peer);
                }
                groups.finished(peer, Outcome::Ok, 3_001);
                None
            });
            groups.finished(trial.unwrap(), Outcome::Ok, 3_001);
            let mut at = |after: u64| share(&mut groups, 3_001 + after);
            assert!(at(500) <= 0.15);
            let half = at(4_500);
            assert!((0.25..=0.40).contains(&half), "{half}");
            let whole = at(10_000);
            assert!((0.45..=0.55).contains(&whole), "{whole}");
        }
    }

    #[test]
    fn the_order_without_growth_is_that_of_the_weights() {
        let picks = |slow_start| {
            let lines = servers(&[5, 1, 1])
                .into_iter()
                .map(|line| ServerLine { slow_start, ..line });
            let mut groups = groups(upstream(Balancer::RoundRobin, lines.collect()));
            let picks = (0..50).map(|_| letter(pick(&mut groups, 1).unwrap()));
            picks.collect::<String>()
        };
        assert_eq!(
            picks(Duration::ZERO),
            picks(Duration::from_secs(10)),
            "also on a larger scale"
        );
    }

    #[test]
    fn active_checks_decide_and_begin_slow_starts() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let check = |identity: &str, mandatory| kp_config::model::HealthCheck {
            identity: identity.to_owned(),
            mandatory,
            ..crate::fixture::check()
        };
        let group = Upstream {
            checks: vec![check("one", false), check("two", true)],
            ..upstream(Balancer::RoundRobin, vec![slow(1), slow(2)])
        };
        let mut groups = Groups::new(&[group], &shm, process, 1);
        let result = |identity, port, passed, now| {
            let name = format!("127.0.0.1:{port}");
            let once = kp_shm::Thresholds {
                fails: 1,
                passes: 1,
            };
            shm.checks()
                .claim("u", &name, identity, process)
                .record(passed, once, 0, now);
        };
        assert_eq!(pick(&mut groups, 1), None, "\"two\" is mandatory");
        result("two", 2, true, 1);
        assert_eq!(share(&mut groups, 1_000), 0.0);
        result("two", 1, true, 20_000);
        let first = share(&mut groups, 20_500);
        assert!(first <= 0.15, "who waited for its first pass is new");
        result("one", 1, false, 43_000);
        assert_eq!(share(&mut groups, 43_000), 0.0);
        result("one", 2, false, 44_000);
        assert_eq!(
            groups.pick(U, &at(44_000), &mut Tried::new()),
            Err(crate::NoPeer::Failed)
        );
        result("one", 1, true, 44_000);
        result("one", 2, true, 44_000);
        let both = share(&mut groups, 45_000);
        assert!((both - 0.5).abs() <= 0.1, "both grow alike: {both}");
        result("one", 1, false, 60_000);
        result("one", 1, true, 61_000);
        assert!(share(&mut groups, 61_500) <= 0.15);
    }

    #[test]
    fn a_new_member_begins_slowly() {
        let line = ServerLine {
            addresses: Vec::new(),
            ..slow(1)
        };
        let mut groups = groups(upstream(Balancer::RoundRobin, vec![line]));
        let member = |port| crate::Member {
            address: server(port, 1).addresses.remove(0),
            weight: 0,
            backup: false,
        };
        groups.set_members(U, 0, &[member(2), member(3)], 1_000);
        let mut one = |from: u64| {
            let mut count = 0;
            for request in 0..200 {
                let peer = pick(&mut groups, from + request * 5).unwrap();
                count += u32::from(groups.name(peer) == "127.0.0.1:1");
                groups.finished(peer, Outcome::Ok, from);
            }
            if from == 1_000 {
                groups.set_members(U, 0, &[member(1), member(2), member(3)], 2_000);
            }
            count
        };
        assert_eq!(one(1_000), 0);
        assert!((1..=20).contains(&one(2_500)));
        assert!((62..=71).contains(&one(12_001)));
    }

    /// Closed loop of `clients`; peers answer after their own time. How many answers each gave.
    fn loop_of(balancer: Balancer, clients: usize, times: &[u64]) -> Vec<u32> {
        let mut groups = groups(upstream(balancer, servers(&vec![1; times.len()])));
        let mut running: Vec<(u64, u64, crate::PeerId)> = Vec::new();
        let mut counts = vec![0; times.len()];
        for now in 1..5_000u64 {
            let (over, rest): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|(end, ..)| *end <= now);
            running = rest;
            for (_, began, peer) in over {
                let time = Some((now - began) as u32);
                let answer = crate::Answer {
                    outcome: Outcome::Ok,
                    status: 200,
                    header_ms: time,
                    last_byte_ms: time,
                    waited_ms: 0,
                    traffic: crate::Traffic::default(),
                };
                groups.observe(peer, &answer, now);
                groups.finished(peer, Outcome::Ok, now);
                counts[peer.index()] += 1;
            }
            while running.len() < clients {
                let peer = pick(&mut groups, now).unwrap();
                running.push((now + times[peer.index()], now, peer));
            }
        }
        counts
    }

    #[test]
    fn a_slow_peer_gets_little() {
        for (last_byte, inflight) in [(false, false), (true, false), (true, true)] {
            let balancer = Balancer::LeastTime {
                last_byte,
                inflight,
            };
            for clients in [1, 4, 20] {
                let counts = loop_of(balancer.clone(), clients, &[100, 10]);
                let share = f64::from(counts[0]) / f64::from(counts[0] + counts[1]);
                assert!(
                    share <= 0.15 && counts[0] > 0,
                    "{clients} clients: {counts:?}"
                );
            }
            let equal = loop_of(balancer, 6, &[10, 10, 10]);
            let (least, most) = (equal.iter().min().unwrap(), equal.iter().max().unwrap());
            assert!(*least * 10 >= *most * 9, "{equal:?}");
        }
    }

    /// Two workers over the same rows; the second takes from the first what it was about to have.
    fn overtaken(first: ServerLine, overtake: impl Fn(&mut Groups)) -> (Option<usize>, Vec<i64>) {
        let shm = Shm::private().unwrap();
        let group = Upstream {
            zone: Some("z".to_owned()),
            ..upstream(Balancer::RoundRobin, vec![first, server(2, 1)])
        };
        let worker = |slot| {
            Groups::new(
                std::slice::from_ref(&group),
                &shm,
                shm.scoreboard().claim(1, slot),
                1,
            )
        };
        let (mut one, mut other) = (worker(0), worker(1));
        let group = one.only();
        group.collect(0..2, &Tried::new(), 20_000);
        assert_eq!(group.turn(20_000), Some(0));
        overtake(&mut other);
        assert!(!group.settle(0, 20_000));
        let picked = group.round(20_000);
        (
            picked,
            group
                .peers
                .iter()
                .map(|peer| peer.turn.current_weight())
                .collect(),
        )
    }

    #[test]
    fn a_peer_that_another_worker_filled_is_passed_over() {
        let (picked, weights) = overtaken(
            ServerLine {
                max_conns: 1,
                ..server(1, 5)
            },
            |other| {
                assert!(other.only().peers[0].enter(20_000));
            },
        );
        assert_eq!(picked, Some(1));
        assert_eq!(
            weights,
            [0, 0],
            "the round that came to nothing was taken back"
        );
    }

    #[test]
    fn a_trial_that_another_worker_began_is_left_to_it() {
        let resting = ServerLine {
            fail_timeout: Duration::from_secs(1),
            ..server(1, 5)
        };
        let (picked, weights) = overtaken(resting, |other| {
            other.only().peers[0].failed(15_000, false);
            assert!(other.only().peers[0].enter(19_999));
        });
        assert_eq!((picked, weights), (Some(1), vec![0, 0]));
    }

    #[test]
    fn fewest_connections_win() {
        let mut groups = groups(upstream(Balancer::LeastConn, servers(&[1, 1, 2])));
        let held: Vec<_> = (0..4).map(|_| pick(&mut groups, 1).unwrap()).collect();
        let letters: String = held.iter().map(|peer| letter(*peer)).collect();
        // All are idle at first, so the weights decide; then load per weight.
        assert_eq!(letters, "cabc");
        groups.finished(held[1], Outcome::Ok, 1);
        assert_eq!(letter(pick(&mut groups, 1).unwrap()), 'a');
    }

    #[test]
    fn max_conns_is_exact_over_racing_workers() {
        let shm = Shm::private().unwrap();
        let limited = |port| ServerLine {
            max_conns: 3,
            ..server(port, 1)
        };
        for balancer in [
            Balancer::RoundRobin,
            Balancer::LeastConn,
            Balancer::Random { two: true },
        ] {
            let group = Upstream {
                name: format!("{balancer:?}"),
                zone: Some("z".to_owned()),
                ..upstream(balancer, vec![limited(1), limited(2)])
            };
            let full: usize = std::thread::scope(|scope| {
                let worker = |slot: u32| {
                    let (shm, group) = (&shm, &group);
                    scope.spawn(move || {
                        let process = shm.scoreboard().claim(1, slot);
                        let mut groups =
                            Groups::new(std::slice::from_ref(group), shm, process, slot.into());
                        let mut full = 0;
                        for _ in 0..5000 {
                            let held: Vec<_> = (0..3)
                                .map(|_| groups.pick(U, &at(1), &mut Tried::new()))
                                .collect();
                            for peer in held {
                                match peer {
                                    Ok(peer) => {
                                        assert!((1..=3).contains(&groups.in_flight(peer)));
                                        groups.finished(peer, Outcome::Ok, 1);
                                    }
                                    Err(error) => {
                                        // Another worker may have left between the pick and the search for a reason.
                                        full += usize::from(error == crate::NoPeer::Full);
                                    }
                                }
                            }
                        }
                        full
                    })
                };
                (0..4)
                    .map(worker)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .sum()
            });
            let mut groups = Groups::new(&[group], &shm, shm.scoreboard().claim(2, 0), 1);
            let taken = (0..8).filter(|_| pick(&mut groups, 1).is_some()).count();
            assert_eq!(
                taken, 6,
                "every place was given back and none was invented ({full} refusals)"
            );
        }
    }

    /// nginx's own rules, kept as plainly as its source has them.
    struct Plain {
        weight: i64,
        effective: i64,
        current: i64,
        max_fails: i64,
        fail_timeout: u64,
        max_conns: i64,
        down: bool,
        fails: i64,
        accessed: u64,
        checked: u64,
        conns: i64,
    }

    impl Plain {
        fn new(line: &ServerLine) -> Self {
            Self {
                weight: line.weight.into(),
                effective: line.weight.into(),
                current: 0,
                max_fails: line.max_fails.into(),
                fail_timeout: line.fail_timeout.as_millis() as u64,
                max_conns: line.max_conns.into(),
                down: line.down,
                fails: 0,
                accessed: 0,
                checked: 0,
                conns: 0,
            }
        }

        fn is_out(&self, now: u64) -> bool {
            let resting = self.max_fails > 0
                && self.fails >= self.max_fails
                && now - self.checked <= self.fail_timeout;
            self.down || resting || (self.max_conns > 0 && self.conns >= self.max_conns)
        }

        fn pick(peers: &mut [Self], tried: &[usize], now: u64) -> Option<usize> {
            let mut total = 0;
            let mut best: Option<usize> = None;
            for index in 0..peers.len() {
                if tried.contains(&index) || peers[index].is_out(now) {
                    continue;
                }
                let peer = &mut peers[index];
                peer.current += peer.effective;
                total += peer.effective;
                peer.effective += i64::from(peer.effective < peer.weight);
                if best.is_none_or(|best| peers[index].current > peers[best].current) {
                    best = Some(index);
                }
            }
            let best = best?;
            peers[best].current -= total;
            peers[best].conns += 1;
            if now - peers[best].checked > peers[best].fail_timeout {
                peers[best].checked = now;
            }
            Some(best)
        }

        fn free(&mut self, failed: bool, now: u64) {
            self.conns -= 1;
            if !failed {
                if self.accessed < self.checked {
                    self.fails = 0;
                }
                return;
            }
            self.fails += 1;
            self.accessed = now;
            self.checked = now;
            if self.max_fails > 0 {
                self.effective = (self.effective - self.weight / self.max_fails).max(0);
            }
        }
    }

    fn line() -> impl Strategy<Value = ServerLine> {
        (
            1..12u32,
            0..4u32,
            0..4u32,
            0..5000u64,
            prop::bool::weighted(0.1),
        )
            .prop_map(
                |(weight, max_fails, max_conns, fail_timeout_ms, down)| ServerLine {
                    max_fails,
                    max_conns,
                    fail_timeout: Duration::from_millis(fail_timeout_ms),
                    down,
                    ..server(1, weight)
                },
            )
    }

    proptest! {
        #[test]
        fn the_order_is_nginxs_through_failures(
            lines in prop::collection::vec(line(), 2..6),
            zone in any::<bool>(),
            steps in prop::collection::vec((0..1500u64, 0..10u8, 1..4usize), 1..200),
        ) {
            let mut plain: Vec<Plain> = lines.iter().map(Plain::new).collect();
            let zone = zone.then(|| "z".to_owned());
            let mut groups = groups(Upstream { zone, ..upstream(Balancer::RoundRobin, lines) });
            let mut held = Vec::new();
            let mut now = 1_000_000;
            for (wait, kind, attempts) in steps {
                now += wait;
                let (mut tried, mut plainly_tried) = (Tried::new(), Vec::new());
                for _ in 0..attempts {
                    let expected = Plain::pick(&mut plain, &plainly_tried, now);
                    let got = groups.pick(U, &at(now), &mut tried).ok();
                    prop_assert_eq!(got.map(|peer| peer.index()), expected);
                    let Some(peer) = got else { break };
                    plainly_tried.push(peer.index());
                    if kind == 0 {
                        held.push(peer);
                        continue;
                    }
                    let failed = kind < 6;
                    let outcome = if failed { Outcome::Failed } else { Outcome::Ok };
                    groups.finished(peer, outcome, now);
                    plain[peer.index()].free(failed, now);
                }
                if kind == 9 && let Some(peer) = held.pop() {
                    groups.finished(peer, Outcome::Ok, now);
                    plain[peer.index()].free(false, now);
                }
            }
        }

        #[test]
        fn shares_follow_the_weights(weights in prop::collection::vec(1..50u32, 2..20)) {
            let total: u32 = weights.iter().sum();
            let mut groups = groups(upstream(Balancer::RoundRobin, servers(&weights)));
            let mut counts = vec![0; weights.len()];
            for _ in 0..total * 3 {
                let peer = pick(&mut groups, 1).unwrap();
                groups.finished(peer, Outcome::Ok, 1);
                counts[peer.index()] += 1;
            }
            prop_assert_eq!(counts, weights.iter().map(|weight| weight * 3).collect::<Vec<_>>());
        }
    }
}
