//! Every balancer under run-time changes.

use super::*;
use crate::fixture::{U, at, hash, pick, server, servers, upstream};
use crate::hash::MISSES_MAX;
use crate::{Member, NoPeer, Outcome, PickQuery, Tried};
use kp_config::model::{Balancer, PeerAddress, ServerLine, Upstream};
use kp_config::overrides::{Change, Ground, Resolved};
use kp_shm::Shm;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A group, its overrides, and processes that are told of them.
struct Stage {
    upstream: Upstream,
    resolved: Resolved,
    overrides: Overrides,
    shm: Shm,
    workers: Vec<Groups>,
}

impl Stage {
    fn new(upstream: Upstream, processes: u32) -> Self {
        let shm = Shm::private().unwrap();
        let group = std::slice::from_ref(&upstream);
        let worker = |slot| Groups::new(group, &shm, shm.scoreboard().claim(1, slot), 7);
        Self {
            workers: (0..processes).map(worker).collect(),
            upstream,
            resolved: Resolved::new(),
            overrides: Overrides::default(),
            shm,
        }
    }

    fn change(&mut self, text: &str) -> Result<(), String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let change = Change::parse(&words).map_err(|complaint| complaint.to_string())?;
        let ground = Ground::new(std::slice::from_ref(&self.upstream), &self.resolved);
        let applied = self.overrides.apply(&change, &ground);
        applied.map_err(|complaint| complaint.to_string())
    }

    /// Changes, and tells all processes.
    fn steer(&mut self, changes: &[&str]) -> Applied {
        for text in changes {
            self.change(text).unwrap();
        }
        let mut last = Applied::default();
        for worker in &mut self.workers {
            last = worker.steer(&self.overrides, 1000);
        }
        last
    }

    /// A process that begins now.
    fn newborn(&self, slot: u32) -> Groups {
        let group = std::slice::from_ref(&self.upstream);
        let process = self.shm.scoreboard().claim(1, slot);
        let mut groups = Groups::new(group, &self.shm, process, 7);
        groups.steer(&self.overrides, 0);
        groups
    }

    /// So many picks, the processes taking turns, by port.
    fn counts(&mut self, picks: usize) -> BTreeMap<u16, usize> {
        let mut counts = BTreeMap::new();
        let workers = self.workers.len();
        for turn in 0..picks {
            let groups = &mut self.workers[turn * turn % 7 % workers];
            let peer = pick(groups, 1000).unwrap();
            groups.finished(peer, Outcome::Ok, 1000);
            *counts.entry(port(groups, peer)).or_default() += 1;
        }
        counts
    }
}

fn port(groups: &Groups, peer: PeerId) -> u16 {
    match groups.address(peer) {
        Some(PeerAddress::Inet(address)) => address.port(),
        _ => 0,
    }
}

fn group(balancer: Balancer, weights: &[u32], zone: bool) -> Upstream {
    Upstream {
        zone: zone.then(|| "z".to_owned()),
        ..upstream(balancer, servers(weights))
    }
}

fn counted(pairs: &[(u16, usize)]) -> BTreeMap<u16, usize> {
    pairs.iter().copied().collect()
}

#[test]
fn weights_hold_exactly_from_the_first_pick_on() {
    for (zone, processes) in [(true, 3), (false, 1)] {
        let mut stage = Stage::new(group(Balancer::RoundRobin, &[5, 1], zone), processes);
        // In the middle of a round.
        stage.counts(4);
        stage.steer(&["peer weight u 127.0.0.1:1 1", "peer weight u 127.0.0.1:2 3"]);
        assert_eq!(stage.counts(4), counted(&[(1, 1), (2, 3)]));
        assert_eq!(stage.counts(400), counted(&[(1, 100), (2, 300)]));
        stage.steer(&["reset u"]);
        assert_eq!(stage.counts(60), counted(&[(1, 50), (2, 10)]));
        stage.steer(&["peer add u 127.0.0.1:3 weight=6"]);
        assert_eq!(stage.counts(120), counted(&[(1, 50), (2, 10), (3, 60)]));
        stage.steer(&["peer remove u 127.0.0.1:1"]);
        assert_eq!(stage.counts(70), counted(&[(2, 10), (3, 60)]));
    }
}

#[test]
fn a_swap_of_everybody_is_one_step() {
    let mut stage = Stage::new(group(Balancer::RoundRobin, &[1], true), 2);
    let applied = stage.steer(&["peer add u 127.0.0.1:9", "peer remove u 127.0.0.1:1"]);
    assert_eq!((applied.silenced.len(), applied.changed), (1, vec![U]));
    assert_eq!(stage.counts(8), counted(&[(9, 8)]));
    assert_eq!(
        stage.steer(&[]),
        Applied::default(),
        "nothing is done twice"
    );
}

#[test]
fn down_drain_and_up_count_for_every_balancer() {
    for balancer in [
        Balancer::RoundRobin,
        Balancer::LeastConn,
        Balancer::LeastTime {
            last_byte: false,
            inflight: true,
        },
        Balancer::IpHash,
        hash(false),
        hash(true),
        Balancer::Random { two: false },
        Balancer::Random { two: true },
    ] {
        for zone in [false, true] {
            let mut stage = Stage::new(group(balancer.clone(), &[1, 1, 1], zone), 2);
            let ports = |stage: &mut Stage| -> Vec<u16> {
                let mut ports = Vec::new();
                for n in 0..400u32 {
                    let groups = &mut stage.workers[n as usize % 2];
                    let key = n.to_le_bytes();
                    let query = PickQuery {
                        hash_key: &key,
                        client: Some(std::net::Ipv4Addr::from(n << 16).into()),
                        ..at(1000)
                    };
                    let peer = groups.pick(U, &query, &mut Tried::new()).unwrap();
                    groups.finished(peer, Outcome::Ok, 1000);
                    ports.push(port(groups, peer));
                }
                ports.sort_unstable();
                ports.dedup();
                ports
            };
            assert_eq!(ports(&mut stage), [1, 2, 3], "{balancer:?}");
            stage.steer(&["peer down u 127.0.0.1:1"]);
            assert_eq!(ports(&mut stage), [2, 3], "{balancer:?}");
            stage.steer(&["peer drain u 127.0.0.1:2"]);
            assert_eq!(ports(&mut stage), [3], "{balancer:?}");
            stage.steer(&["peer up u 127.0.0.1:1", "peer add u 127.0.0.1:4"]);
            assert_eq!(ports(&mut stage), [1, 3, 4], "{balancer:?}");
            stage.steer(&["peer remove u 127.0.0.1:3"]);
            assert_eq!(ports(&mut stage), [1, 4], "{balancer:?}");
            stage.steer(&["reset"]);
            assert_eq!(ports(&mut stage), [1, 2, 3], "{balancer:?}");
        }
    }
}

/// Where each of many keys goes.
fn homes(groups: &mut Groups) -> Vec<u16> {
    let home = |n: u32| {
        let key = n.to_le_bytes();
        let query = PickQuery {
            hash_key: &key,
            ..at(1000)
        };
        let peer = groups.pick(U, &query, &mut Tried::new()).unwrap();
        groups.finished(peer, Outcome::Ok, 1000);
        port(groups, peer)
    };
    (0..4000).map(home).collect()
}

#[test]
fn on_the_ring_only_keys_move_that_must() {
    let mut stage = Stage::new(group(hash(true), &[1, 1, 1, 1], true), 1);
    let before = homes(&mut stage.workers[0]);
    let moved = |stage: &mut Stage, change: &str| -> Vec<(u16, u16)> {
        let old = homes(&mut stage.workers[0]);
        stage.steer(&[change]);
        let new = homes(&mut stage.workers[0]);
        old.into_iter()
            .zip(new)
            .filter(|(old, new)| old != new)
            .collect()
    };
    let added = moved(&mut stage, "peer add u 127.0.0.1:5");
    assert!(added.iter().all(|(_, new)| *new == 5) && (400..1200).contains(&added.len()));
    let heavier = moved(&mut stage, "peer weight u 127.0.0.1:2 3");
    assert!(heavier.iter().all(|(_, new)| *new == 2) && heavier.len() > 400);
    let lighter = moved(&mut stage, "reset u 127.0.0.1:2");
    assert!(lighter.iter().all(|(old, _)| *old == 2));
    let removed = moved(&mut stage, "peer remove u 127.0.0.1:1");
    assert!(removed.iter().all(|(old, _)| *old == 1) && removed.len() > 400);
    stage.steer(&["reset"]);
    assert_eq!(homes(&mut stage.workers[0]), before);
    // As nginx keeps them on the ring, so that they find their keys when they are back.
    let down = moved(&mut stage, "peer down u 127.0.0.1:3");
    assert!(down.iter().all(|(old, _)| *old == 3) && !down.is_empty());
}

/// The 21 points behind most places of the ring are all the heavy peer's.
#[test]
fn keys_of_a_heavy_peer_have_one_home_while_it_is_out() {
    let mut stage = Stage::new(group(hash(true), &[98, 1, 1], true), 1);
    stage.steer(&["peer remove u 127.0.0.1:1"]);
    let without = homes(&mut stage.workers[0]);
    for change in ["peer drain u 127.0.0.1:1", "peer down u 127.0.0.1:1"] {
        stage.steer(&["reset", change]);
        assert_eq!(homes(&mut stage.workers[0]), without, "{change}");
    }
}

#[test]
fn shares_of_chance_and_of_keys_follow_the_weights() {
    for balancer in [Balancer::Random { two: false }, hash(false)] {
        let mut stage = Stage::new(group(balancer.clone(), &[1, 1], true), 1);
        stage.steer(&["peer weight u 127.0.0.1:2 3"]);
        let second = homes(&mut stage.workers[0])
            .into_iter()
            .filter(|port| *port == 2)
            .count();
        assert!((2800..3200).contains(&second), "{balancer:?}: {second}");
    }
}

#[test]
fn connections_follow_the_weights() {
    let mut stage = Stage::new(group(Balancer::LeastConn, &[1, 1], true), 2);
    stage.steer(&["peer weight u 127.0.0.1:2 3"]);
    let mut held = BTreeMap::new();
    for n in 0..40 {
        let groups = &mut stage.workers[n % 2];
        let peer = pick(groups, 1000).unwrap();
        *held.entry(port(groups, peer)).or_insert(0) += 1;
    }
    assert_eq!(held, BTreeMap::from([(1, 10), (2, 30)]));
}

#[test]
fn a_session_stays_where_it_is_while_its_peer_drains() {
    let mut stage = Stage::new(group(Balancer::RoundRobin, &[1, 1], true), 1);
    let first = stage.workers[0].peers(U).next().unwrap();
    let sid = stage.workers[0].sid(first).to_owned();
    stage.steer(&["peer drain u 127.0.0.1:1"]);
    for (sticky, expected) in [(sid.as_str(), 1), ("", 2), ("", 2)] {
        let query = PickQuery {
            sticky: sticky.as_bytes(),
            ..at(1000)
        };
        let groups = &mut stage.workers[0];
        let peer = groups.pick(U, &query, &mut Tried::new()).unwrap();
        assert_eq!(port(groups, peer), expected);
        assert!(groups.is_welcome(peer));
        groups.finished(peer, Outcome::Ok, 1000);
    }
}

#[test]
fn max_conns_is_obeyed_from_then_on() {
    let mut stage = Stage::new(group(Balancer::RoundRobin, &[1, 1], true), 2);
    stage.steer(&[
        "peer max_conns u 127.0.0.1:1 1",
        "peer max_conns u 127.0.0.1:2 2",
    ]);
    let held: Vec<PeerId> = (0..3)
        .map(|n| pick(&mut stage.workers[n % 2], 1).unwrap())
        .collect();
    let full = stage.workers[0].pick(U, &at(1), &mut Tried::new());
    assert_eq!(full, Err(NoPeer::Full));
    stage.steer(&["peer max_conns u 127.0.0.1:1 0"]);
    assert!(pick(&mut stage.workers[0], 1).is_some());
    drop(held);
}

#[test]
fn attempts_at_who_was_removed_end_as_ever() {
    for zone in [false, true] {
        let mut stage = Stage::new(group(Balancer::RoundRobin, &[1, 1], zone), 1);
        let held = pick(&mut stage.workers[0], 1).unwrap();
        let applied = stage.steer(&["peer remove u 127.0.0.1:1"]);
        assert_eq!(applied.silenced, [held]);
        let groups = &mut stage.workers[0];
        assert_eq!(
            (groups.name(held), groups.in_flight(held)),
            ("127.0.0.1:1", 1)
        );
        assert!(!groups.is_welcome(held));
        // It is the same one that comes back meanwhile.
        stage.steer(&["reset u"]);
        let groups = &mut stage.workers[0];
        assert_eq!(groups.peers(U).next(), Some(held));
        groups.finished(held, Outcome::Ok, 1);
        assert_eq!(groups.in_flight(held), 0);
        stage.steer(&["peer down u 127.0.0.1:1"]);
        assert!(!stage.workers[0].is_welcome(held));
    }
}

#[test]
fn names_and_addresses_that_are_looked_up() {
    let line = ServerLine {
        name: "app:80".to_owned(),
        addresses: Vec::new(),
        ..server(1, 1)
    };
    let mut stage = Stage::new(
        Upstream {
            zone: Some("z".to_owned()),
            ..upstream(Balancer::RoundRobin, vec![line])
        },
        1,
    );
    let address = |port: u16| PeerAddress::Inet(([127, 0, 0, 1], port).into());
    let tell = |stage: &mut Stage, ports: &[u16]| {
        let addresses: Vec<PeerAddress> = ports.iter().map(|port| address(*port)).collect();
        let member = |address: &PeerAddress| Member {
            address: address.clone(),
            weight: 0,
            backup: false,
        };
        let members: Vec<Member> = addresses.iter().map(member).collect();
        stage.resolved = Resolved::from([((0, 0), addresses)]);
        stage.workers[0].set_members(U, 0, &members, 1000);
    };
    tell(&mut stage, &[1, 2]);
    stage.steer(&["peer weight u app:80 2", "peer weight u 127.0.0.1:2 6"]);
    assert_eq!(stage.counts(8), counted(&[(1, 2), (2, 6)]));
    tell(&mut stage, &[2, 3]);
    assert_eq!(stage.counts(8).values().sum::<usize>(), 8);
    stage.steer(&["peer down u 127.0.0.1:2"]);
    tell(&mut stage, &[3]);
    tell(&mut stage, &[2, 3]);
    assert_eq!(
        stage.counts(8),
        counted(&[(3, 8)]),
        "it is down when it comes back"
    );
    stage.steer(&["peer remove u 127.0.0.1:3", "peer up u 127.0.0.1:2"]);
    assert_eq!(stage.counts(4), counted(&[(2, 4)]));
    stage.steer(&["reset u"]);
    assert_eq!(stage.counts(4), counted(&[(2, 2), (3, 2)]));
}

#[test]
fn who_is_added_begins_slowly_and_who_was_there_at_birth_does_not() {
    let mut stage = Stage::new(group(Balancer::RoundRobin, &[1, 1], true), 1);
    stage.steer(&["peer add u 127.0.0.1:3 weight=2 slow_start=10s"]);
    // Its time has not begun: the least share there is.
    assert!(stage.counts(200).get(&3).copied().unwrap_or(0) <= 1);
    let mut newborn = stage.newborn(5);
    let peer = |groups: &mut Groups| {
        let peer = pick(groups, 20_000).unwrap();
        groups.finished(peer, Outcome::Ok, 20_000);
        port(groups, peer)
    };
    let third = (0..200).filter(|_| peer(&mut newborn) == 3).count();
    assert!((95..=105).contains(&third), "{third}");
    let fresh = Stage {
        shm: Shm::private().unwrap(),
        ..stage
    };
    let mut newborn = fresh.newborn(6);
    let early = |groups: &mut Groups| {
        let peer = pick(groups, 1001).unwrap();
        groups.finished(peer, Outcome::Ok, 1001);
        port(groups, peer)
    };
    let third = (0..200).filter(|_| early(&mut newborn) == 3).count();
    assert_eq!(third, 100);
}

#[test]
fn failures_are_forgotten_when_asked() {
    let mut stage = Stage::new(group(Balancer::RoundRobin, &[1, 1], true), 2);
    let failed = pick(&mut stage.workers[0], 1000).unwrap();
    stage.workers[0].finished(failed, Outcome::Failed, 1000);
    assert_eq!(stage.counts(6), counted(&[(2, 6)]));
    let whom = |group: &str, peer: &str| vec![(group.to_owned(), peer.to_owned())];
    let others = [whom("v", "127.0.0.1:1"), whom("u", "127.0.0.1:2")].concat();
    assert_eq!(stage.workers[1].forget(&others, 1000), [U]);
    assert_eq!(stage.counts(6), counted(&[(2, 6)]));
    let first = whom("u", "127.0.0.1:1");
    assert_eq!(stage.workers[1].forget(&first, 1000), [U]);
    assert_eq!(stage.counts(6), counted(&[(1, 3), (2, 3)]));
}

#[test]
fn many_changes_need_no_more_rows() {
    let mut stage = Stage::new(group(Balancer::RoundRobin, &[1, 1, 1], true), 1);
    let mut idle = Vec::new();
    for turn in 0..3000u32 {
        let weight = format!("peer weight u 127.0.0.1:1 {}", turn % 7 + 1);
        let add = format!("peer add u 127.0.0.1:{}", turn % 50 + 100);
        let remove = format!("peer remove u 127.0.0.1:{}", turn % 50 + 100);
        stage.steer(&[&weight, &add]);
        stage.steer(&[&remove]);
        if turn % 100 == 0 {
            stage.shm.peers().reclaim(&mut idle);
        }
    }
    assert_eq!(stage.shm.peers().overflows(), 0);
    assert!(
        stage.shm.peers().used() < 4000,
        "{}",
        stage.shm.peers().used()
    );
}

fn any_change() -> impl Strategy<Value = String> {
    (1..6u16, 0..8u8, 1..9u32).prop_map(|(port, act, number)| match act {
        0 | 1 => format!("peer add u 127.0.0.1:{port} weight={number} max_conns={number}"),
        2 | 3 => format!("peer remove u 127.0.0.1:{port}"),
        4 => format!("peer drain u 127.0.0.1:{port}"),
        5 => format!("peer down u 127.0.0.1:{port}"),
        6 => format!("peer weight u 127.0.0.1:{port} {number}"),
        _ => format!("reset u 127.0.0.1:{port}"),
    })
}

proptest! {
    /// Whatever was changed in whatever order, with attempts under way: a process that was told step by step and one that
    /// begins with the text of it all have equal groups, and every attempt ends where it began.
    #[test]
    fn replayed_groups_are_equal(
        zone in any::<bool>(),
        balancer in 0..3u8,
        steps in prop::collection::vec((any_change(), 0..4u8), 1..40),
    ) {
        let by_key = balancer != 0;
        let balancer = match balancer {
            0 => Balancer::RoundRobin,
            1 => hash(true),
            _ => hash(false),
        };
        let mut stage = Stage::new(group(balancer, &[1, 2, 3], zone), 1);
        let mut held: Vec<(PeerId, u16)> = Vec::new();
        for (text, picks) in steps {
            let _ = stage.change(&text);
            stage.steer(&[]);
            let groups = &mut stage.workers[0];
            for n in 0..picks {
                let query = PickQuery { hash_key: &[n], ..at(1000) };
                if let Ok(peer) = groups.pick(U, &query, &mut Tried::new()) {
                    held.push((peer, port(groups, peer)));
                }
            }
            if picks == 0 && let Some((peer, at)) = held.pop() {
                prop_assert_eq!(port(groups, peer), at);
                groups.finished(peer, Outcome::Ok, 1000);
            }
        }
        let read = Overrides::from_text(&stage.overrides.to_text()).unwrap();
        prop_assert_eq!(&read, &stage.overrides);
        stage.overrides = read;
        let mut newborn = stage.newborn(1);
        for (peer, at) in held.drain(..) {
            let groups = &mut stage.workers[0];
            prop_assert_eq!(port(groups, peer), at);
            groups.finished(peer, Outcome::Ok, 1000);
        }
        let show = |groups: &Groups| -> Vec<String> {
            let peers = groups.groups[0].peers.iter();
            peers.map(|peer| format!(
                "{} {:?} {} {} {} {} {} {} {}",
                peer.name, peer.which, peer.line, peer.server, peer.weight, peer.max_conns, peer.down, peer.drain, peer.sid
            )).collect()
        };
        prop_assert_eq!(show(&stage.workers[0]), show(&newborn));
        if zone {
            let flights = |groups: &Groups| -> u64 { groups.peers(U).map(|peer| groups.in_flight(peer)).sum() };
            prop_assert_eq!(flights(&stage.workers[0]), 0);
            prop_assert_eq!(flights(&newborn), 0);
        }
        for n in 0..50u8 {
            let query = PickQuery { hash_key: &[n], ..at(1000) };
            let where_to = |groups: &mut Groups| {
                let mut tried = Tried::new();
                let peer = groups.pick(U, &query, &mut tried).ok()?;
                groups.finished(peer, Outcome::Ok, 1000);
                // A hash that met nobody usable leaves the choice to round robin, whose turns all processes share.
                let by_turn = !by_key || tried.walk.misses > MISSES_MAX;
                Some((by_turn, if by_turn { 0 } else { port(groups, peer) }))
            };
            let (old, new) = (where_to(&mut stage.workers[0]), where_to(&mut newborn));
            prop_assert_eq!(old.is_some(), new.is_some());
            prop_assert!(!zone || old == new, "{:?} {:?}", old, new);
        }
    }
}
