//! The peers of a group: hired and dismissed as its lineup says, when the configuration is read and while kp runs.
//!
//! Gives every peer a slot, which names it wherever it stands among the others, and finds its rows of shared memory.
//! Who leaves while attempts are under way is kept aside until the last of them has ended. Does not decide who is asked.

use crate::lineup::{Lineup, Member, Wanted};
use crate::peer::Peer;
use kp_config::model::Upstream;
use kp_config::overrides::GroupOverrides;
use kp_shm::{CheckRow, Key, PeerCell, PeerRow, Row, Shm};
use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// The name of a peer within its group, and which of those that had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) index: u32,
    generation: u32,
}

#[cfg(test)]
impl Slot {
    pub(crate) fn nth(index: u32) -> Self {
        Self {
            index,
            generation: 0,
        }
    }
}

/// Where the peer of a slot is.
#[derive(Debug, Clone, Copy)]
enum At {
    Free,
    /// At this position among the peers.
    Position(u32),
    /// It left with attempts under way.
    Aside,
}

/// The slots and rows of a group.
#[derive(Debug)]
pub(crate) struct Roster {
    pub(crate) lineup: Lineup,
    pub(crate) shm: Shm,
    pub(crate) process: Row,
    /// Identity of the group's weights: a round is comparable only among equal ones.
    weights: [u8; 16],
    slots: Vec<(u32, At)>,
    /// Oldest first, so that a stale name stays recognizable for long.
    free: VecDeque<u32>,
    gone: Vec<Peer>,
    /// Private rows whose peers are gone; they cannot be freed.
    spare: Vec<PeerRow>,
    /// Peers have series.
    pub(crate) measured: bool,
    /// Peers of the same address and name in other lines, while everybody is looked for.
    twins: Vec<Peer>,
}

/// What became of the peers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Those who belong to the group no longer.
    pub(crate) gone: Vec<Slot>,
    /// Those that are down from now on.
    pub(crate) silenced: Vec<Slot>,
}

impl Roster {
    /// The roster, and the peers the configuration names: primaries, then backups.
    pub(crate) fn new(upstream: &Upstream, shm: &Shm, process: Row) -> (Self, Vec<Peer>) {
        let lineup = Lineup::new(upstream);
        let mut roster = Self {
            weights: lineup.weights(),
            lineup,
            shm: *shm,
            process,
            slots: Vec::new(),
            free: VecDeque::new(),
            gone: Vec::new(),
            spare: Vec::new(),
            measured: false,
            twins: Vec::new(),
        };
        let wanted = roster.lineup.wanted();
        let hire = |wanted| roster.hire(wanted);
        let peers = wanted.into_iter().filter_map(hire).collect();
        (roster, peers)
    }

    /// The group's configuration.
    pub(crate) fn upstream(&self) -> &Upstream {
        self.lineup.upstream()
    }

    /// Replaces a line's addresses; `None` if nothing changes.
    pub(crate) fn replace(
        &mut self,
        peers: &mut Vec<Peer>,
        line: usize,
        members: &[Member],
        now_ms: u64,
    ) -> Option<Changes> {
        let is_known = self.lineup.set_members(line, members)?;
        // A line's first addresses are not new.
        self.muster(peers, is_known.then_some(now_ms), now_ms)
    }

    /// Replaces what was changed at run time; `None` if nothing changes. Nobody is new to a process that has just begun:
    /// its time is 0.
    pub(crate) fn steer(
        &mut self,
        peers: &mut Vec<Peer>,
        overrides: Option<&GroupOverrides>,
        now_ms: u64,
    ) -> Option<Changes> {
        if !self.lineup.set_overrides(overrides) {
            return None;
        }
        self.muster(peers, (now_ms != 0).then_some(now_ms), now_ms)
    }

    /// Brings the peers in line with the lineup. Who stays keeps identity, place in the round, failures and attempts. Who
    /// comes begins slowly, if a time is given for it and nobody else knows it already.
    fn muster(
        &mut self,
        peers: &mut Vec<Peer>,
        new_ms: Option<u64>,
        now_ms: u64,
    ) -> Option<Changes> {
        let wanted = self.lineup.wanted();
        let weights = self.lineup.weights();
        let another_round = weights != self.weights;
        let unchanged = wanted.len() == peers.len()
            && !another_round
            && wanted.iter().zip(&*peers).all(|(one, peer)| peer.is(one));
        if unchanged {
            return None;
        }
        self.weights = weights;
        let mut changes = Changes::default();
        let mut here: HashMap<(String, Vec<u8>), Peer> = HashMap::new();
        for peer in peers.drain(..) {
            let identity = (peer.name.clone(), peer.which.clone());
            // Two lines of one name have each address twice.
            match here.entry(identity) {
                Entry::Vacant(place) => drop(place.insert(peer)),
                Entry::Occupied(_) => self.twins.push(peer),
            }
        }
        for one in wanted {
            let known = here
                .remove(&(one.name.clone(), one.which.clone()))
                .or_else(|| take(&mut self.twins, &one));
            // Who comes back may have left in another round.
            let (known, another_round) = match known {
                Some(peer) => (Some(peer), another_round),
                None => (take(&mut self.gone, &one), true),
            };
            let peer = match known {
                Some(mut peer) => {
                    if !peer.down && one.settings.down {
                        changes.silenced.push(peer.slot);
                    }
                    self.brief(&mut peer, &one, now_ms);
                    if another_round {
                        self.begin_round(&mut peer);
                    }
                    Some(peer)
                }
                None => self.hire(one).inspect(|peer| {
                    if let Some(new_ms) = new_ms
                        && peer.facts.is_first()
                    {
                        peer.begin_slow_start(new_ms);
                    }
                }),
            };
            peers.extend(peer);
        }
        let left: Vec<Peer> = here.into_values().chain(self.twins.drain(..)).collect();
        changes.gone = left.into_iter().map(|peer| self.dismiss(peer)).collect();
        changes.gone.sort_by_key(|slot| slot.index);
        Some(changes)
    }

    /// Tells a peer what holds for it now.
    fn brief(&self, peer: &mut Peer, wanted: &Wanted, now_ms: u64) {
        if let Some(server) = self.lineup.server(wanted.line) {
            peer.obey(server);
        }
        let came_up = peer.down && !wanted.settings.down;
        (peer.line, peer.backup) = (wanted.line, wanted.backup);
        peer.scale = self.lineup.scale();
        peer.set(&wanted.settings);
        if came_up {
            peer.begin_slow_start(now_ms);
        }
    }

    /// A round among other weights begins at its beginning, for all processes that have the same ones.
    fn begin_round(&mut self, peer: &mut Peer) {
        let Some(key) = self.turn_key(&peer.name, &peer.which) else {
            peer.turn.advance(-peer.turn.current_weight());
            return;
        };
        let old = std::mem::replace(&mut peer.turn, self.row(key));
        self.give_back(old);
    }

    /// Notes where everybody stands.
    pub(crate) fn place(&mut self, peers: &[Peer]) {
        for (position, peer) in peers.iter().enumerate() {
            if let Some(slot) = self.slots.get_mut(peer.slot.index as usize) {
                slot.1 = At::Position(position as u32);
            }
        }
    }

    /// Numbers the server names and returns them in order, each with the largest weight it was given.
    pub(crate) fn number(&self, peers: &mut [Peer]) -> Vec<(&str, u64)> {
        let mut names: Vec<(&str, u64)> = Vec::new();
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        for peer in peers {
            let Some(server) = self.lineup.server(peer.line) else {
                continue;
            };
            peer.server = *numbers.entry(&server.name).or_insert(names.len() as u32);
            let weight = u64::from(peer.weight);
            match names.get_mut(peer.server as usize) {
                Some(known) => known.1 = known.1.max(weight),
                None => names.push((&server.name, weight)),
            }
        }
        names
    }

    /// Where the peer of a slot stands, `Some(None)` if it is gone with attempts under way.
    pub(crate) fn position(&self, slot: Slot) -> Option<Option<usize>> {
        match self.slots.get(slot.index as usize)? {
            (generation, _) if *generation != slot.generation => None,
            (_, At::Position(position)) => Some(Some(*position as usize)),
            (_, At::Aside) => Some(None),
            (_, At::Free) => None,
        }
    }

    /// A peer that is gone, with attempts under way.
    pub(crate) fn gone(&self, slot: Slot) -> Option<&Peer> {
        self.gone.iter().find(|peer| peer.slot == slot)
    }

    /// An attempt at the slot's peer has ended; if that was the last one of a peer that is gone, it is forgotten.
    pub(crate) fn settle(&mut self, slot: Slot) {
        if self.gone.is_empty() {
            return;
        }
        let over = |peer: &Peer| peer.slot == slot && peer.facts.held() == 0;
        if let Some(at) = self.gone.iter().position(over) {
            let peer = self.gone.swap_remove(at);
            self.free(peer);
        }
    }

    fn dismiss(&mut self, peer: Peer) -> Slot {
        let slot = peer.slot;
        if peer.facts.held() == 0 {
            self.free(peer);
        } else {
            if let Some(place) = self.slots.get_mut(slot.index as usize) {
                place.1 = At::Aside;
            }
            if let Some(series) = &peer.series {
                series.set(PeerCell::Looked, 0);
            }
            self.gone.push(peer);
        }
        slot
    }

    fn free(&mut self, peer: Peer) {
        if let Some(place) = self.slots.get_mut(peer.slot.index as usize) {
            *place = (place.0.wrapping_add(1), At::Free);
            self.free.push_back(peer.slot.index);
        }
        for (check, _) in &peer.checks {
            self.shm.checks().leave(*check);
        }
        if let Some(series) = peer.series {
            series.set(PeerCell::Overdue, 0);
            self.shm.series().leave(series);
        }
        if self.upstream().zone.is_some() {
            self.give_back(peer.turn);
        }
        self.give_back(peer.facts);
    }

    fn give_back(&mut self, row: PeerRow) {
        if row.is_shared() {
            self.shm.peers().leave(row);
        } else {
            row.clear_private();
            self.spare.push(row);
        }
    }

    fn hire(&mut self, wanted: Wanted) -> Option<Peer> {
        let (facts, turn) = self.rows(&wanted.name, &wanted.which);
        let server = self.lineup.server(wanted.line)?;
        let mut peer = Peer {
            address: wanted.address,
            slot: Slot {
                index: 0,
                generation: 0,
            },
            line: wanted.line,
            which: wanted.which,
            server: 0,
            weight: 1,
            backup: wanted.backup,
            max_conns: 0,
            max_fails: 0,
            fail_timeout_ms: 0,
            slow_start_ms: 0,
            scale: self.lineup.scale(),
            checks: self.checks(&wanted.name),
            is_watched: self.upstream().outliers.is_some(),
            waiting: Cell::default(),
            down: false,
            drain: false,
            sid: String::new(),
            series: self.series(&wanted.name),
            name: wanted.name,
            facts,
            turn,
        };
        peer.obey(server);
        peer.set(&wanted.settings);
        peer.slot = self.slot();
        Some(peer)
    }

    /// The group's active checks of a peer, found by the same names wherever it is checked.
    fn checks(&self, name: &str) -> Vec<(CheckRow, bool)> {
        let checks = self.upstream().checks.iter();
        let (table, process) = (self.shm.checks(), self.process);
        let row = |identity: &str| table.claim(&self.upstream().name, name, identity, process);
        checks
            .map(|check| (row(&check.identity), check.mandatory))
            .collect()
    }

    fn slot(&mut self) -> Slot {
        // A few names of the past are kept out of use, so that one exchange does not meet two peers by one of them.
        const RESERVE: usize = 16;
        let index = match self.free.len() {
            0..RESERVE => {
                self.slots.push((0, At::Free));
                self.slots.len() as u32 - 1
            }
            _ => self.free.pop_front().unwrap_or(0),
        };
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.0);
        Slot { index, generation }
    }

    fn rows(&mut self, address: &str, which: &[u8]) -> (PeerRow, PeerRow) {
        let turn = self.turn_key(address, which);
        match (self.key(&[b"peer", address.as_bytes(), which]), turn) {
            (Some(facts), Some(turn)) => (self.row(facts), self.row(turn)),
            _ => {
                let row = self.private_row();
                (row, row)
            }
        }
    }

    fn turn_key(&self, address: &str, which: &[u8]) -> Option<Key> {
        self.key(&[b"turn", address.as_bytes(), which, &self.weights])
    }

    /// What is shared of a peer is found by these; `None`: nothing is.
    fn key(&self, parts: &[&[u8]]) -> Option<Key> {
        let upstream = self.upstream();
        let zone = upstream.zone.as_ref()?;
        let (kind, rest) = parts.split_first()?;
        let mut all = vec![*kind, upstream.name.as_bytes(), zone.as_bytes()];
        all.extend(rest);
        Some(Key::of(&all))
    }

    fn row(&mut self, key: Key) -> PeerRow {
        let shared = self.shm.peers().claim_shared(key, self.process);
        shared.unwrap_or_else(|| self.private_row())
    }

    fn private_row(&mut self) -> PeerRow {
        self.spare.pop().unwrap_or_else(PeerRow::private)
    }
}

/// Takes the peer that this one was out of `peers`.
fn take(peers: &mut Vec<Peer>, wanted: &Wanted) -> Option<Peer> {
    let is = |peer: &Peer| peer.name == wanted.name && peer.which == wanted.which;
    let at = peers.iter().position(is)?;
    Some(peers.remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{U, at, groups, hash, pick, server, servers, upstream};
    use crate::{Groups, NoPeer, Outcome, PickQuery, Tried};
    use kp_config::model::{Balancer, PeerAddress, ServerLine};
    use proptest::prelude::*;

    fn named(balancer: Balancer, zone: bool) -> Upstream {
        let line = ServerLine {
            name: "app:80".to_owned(),
            addresses: Vec::new(),
            ..server(1, 1)
        };
        Upstream {
            zone: zone.then(|| "z".to_owned()),
            ..upstream(balancer, vec![line])
        }
    }

    fn member(port: u16) -> Member {
        Member {
            address: PeerAddress::Inet(([127, 0, 0, 1], port).into()),
            weight: 0,
            backup: false,
        }
    }

    fn members(ports: impl IntoIterator<Item = u16>) -> Vec<Member> {
        ports.into_iter().map(member).collect()
    }

    fn port(groups: &Groups, peer: crate::PeerId) -> u16 {
        match groups.address(peer) {
            Some(PeerAddress::Inet(address)) => address.port(),
            _ => 0,
        }
    }

    fn ports(groups: &mut Groups, picks: usize) -> Vec<u16> {
        let one = |_| {
            let peer = pick(groups, 1).unwrap();
            groups.finished(peer, Outcome::Ok, 1);
            port(groups, peer)
        };
        (0..picks).map(one).collect()
    }

    #[test]
    fn a_group_may_be_empty() {
        for balancer in [
            Balancer::RoundRobin,
            Balancer::LeastConn,
            Balancer::IpHash,
            hash(false),
            hash(true),
            Balancer::Random { two: false },
            Balancer::Random { two: true },
        ] {
            let mut groups = groups(named(balancer, false));
            let query = PickQuery {
                hash_key: b"x",
                ..at(1)
            };
            for _ in 0..2 {
                assert_eq!(
                    groups.pick(U, &query, &mut Tried::new()),
                    Err(NoPeer::Failed)
                );
                assert_eq!(groups.tries(U), 0);
                groups.set_members(U, 0, &members([7]), 1);
                let peer = groups.pick(U, &query, &mut Tried::new()).unwrap();
                assert_eq!((port(&groups, peer), groups.tries(U)), (7, 1));
                groups.finished(peer, Outcome::Failed, 1);
                groups.set_members(U, 0, &members([7, 8]), 1);
                assert!(groups.pick(U, &query, &mut Tried::new()).is_ok());
                assert!(groups.set_members(U, 0, &[], 1).contains(&peer));
            }
        }
    }

    #[test]
    fn who_stays_keeps_identity_place_and_failures() {
        let mut groups = groups(named(Balancer::RoundRobin, false));
        assert!(groups.set_members(U, 0, &members([3, 1, 2]), 1).is_empty());
        let before: Vec<_> = groups.peers(U).collect();
        assert_eq!(ports(&mut groups, 4), [1, 2, 3, 1]);
        let failed = pick(&mut groups, 1).unwrap();
        groups.finished(failed, Outcome::Failed, 1);
        assert!(groups.set_members(U, 0, &members([2, 3, 1]), 1).is_empty());
        assert_eq!(groups.peers(U).collect::<Vec<_>>(), before);
        assert_eq!(
            groups.set_members(U, 0, &members([2, 3, 4]), 1),
            [before[0]],
            "1 is gone"
        );
        assert_eq!(
            (groups.name(before[0]), groups.name(failed)),
            ("", "127.0.0.1:2")
        );
        assert!(!ports(&mut groups, 9).contains(&2), "2 still rests");
    }

    #[test]
    fn attempts_at_who_is_gone_end_as_ever() {
        for zone in [false, true] {
            let shm = Shm::private().unwrap();
            let process = shm.scoreboard().claim(1, 0);
            let mut groups = Groups::new(&[named(Balancer::RoundRobin, zone)], &shm, process, 1);
            groups.set_members(U, 0, &members([1, 2]), 1);
            let held = pick(&mut groups, 1).unwrap();
            assert_eq!(groups.set_members(U, 0, &members([2]), 1), [held]);
            assert_eq!(
                (groups.name(held), groups.in_flight(held)),
                ("127.0.0.1:1", 1)
            );
            // It comes back while the attempt is under way: it is the same peer.
            groups.set_members(U, 0, &members([1, 2]), 1);
            assert_eq!(groups.peers(U).next(), Some(held));
            groups.set_members(U, 0, &[], 1);
            groups.finished(held, Outcome::Ok, 1);
            assert_eq!(groups.address(held), None);
            groups.finished(held, Outcome::Ok, 1);
            groups.set_members(U, 0, &members([1]), 1);
            let again = groups.peers(U).next().unwrap();
            assert!(again != held);
            assert_eq!(groups.in_flight(again), 0);
        }
    }

    #[test]
    fn the_same_address_twice_is_two_peers() {
        let mut groups = groups(named(Balancer::RoundRobin, true));
        groups.set_members(U, 0, &members([1, 1, 2]), 1);
        let peers: Vec<_> = groups.peers(U).collect();
        assert_eq!(ports(&mut groups, 3), [1, 1, 2]);
        assert_eq!(
            groups.set_members(U, 0, &members([1, 2]), 1),
            [peers[1]],
            "the second one"
        );
        groups.set_members(U, 0, &members([1, 1, 2]), 1);
        assert_eq!(groups.peers(U).next(), Some(peers[0]));
        let held = pick(&mut groups, 1).unwrap();
        let flights: u64 = groups.peers(U).map(|peer| groups.in_flight(peer)).sum();
        assert_eq!((groups.in_flight(held), flights), (1, 1));
    }

    #[test]
    fn other_lines_are_left_alone() {
        let mut lines = servers(&[1, 1]);
        lines.insert(
            1,
            ServerLine {
                name: "app".to_owned(),
                addresses: Vec::new(),
                ..server(1, 1)
            },
        );
        lines.push(ServerLine {
            backup: true,
            ..server(9, 1)
        });
        let mut groups = groups(upstream(Balancer::RoundRobin, lines));
        let all = |groups: &Groups| -> Vec<u16> {
            groups.peers(U).map(|peer| port(groups, peer)).collect()
        };
        assert_eq!(all(&groups), [1, 2, 9]);
        let mut new = members([50, 40]);
        new.push(Member {
            backup: true,
            ..member(60)
        });
        groups.set_members(U, 1, &new, 1);
        assert_eq!(all(&groups), [1, 40, 50, 2, 60, 9]);
        groups.set_members(U, 1, &[], 1);
        assert_eq!(all(&groups), [1, 2, 9]);
        assert!(groups.set_members(U, 9, &members([1]), 1).is_empty());
    }

    #[test]
    fn months_of_changes_need_no_more_rows() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let zone = named(hash(true), true);
        let mut groups = Groups::new(&[zone, named(Balancer::LeastConn, false)], &shm, process, 1);
        let mut idle = Vec::new();
        for turn in 0..20_000u32 {
            let ports = [turn as u16 | 1, (turn / 3) as u16 | 1, 5];
            groups.set_members(U, 0, &members(ports), 1);
            groups.set_members(kp_config::model::UpstreamId(1), 0, &members(ports), 1);
            if turn % 500 == 0 {
                shm.peers().reclaim(&mut idle);
            }
        }
        assert_eq!(shm.peers().overflows(), 0);
        assert!(shm.peers().used() < 6000, "{}", shm.peers().used());
        for group in [0, 1] {
            let roster = groups.roster(group);
            assert!(roster.slots.len() < 32 && roster.spare.len() < 8);
        }
    }

    /// A thousand sessions over other orders of a name's addresses, one of which leaves.
    #[test]
    fn sessions_stay_at_their_address() {
        let mut groups = groups(named(Balancer::RoundRobin, false));
        groups.set_members(U, 0, &members([1, 2, 3, 4]), 1);
        let mut sessions = Vec::new();
        for _ in 0..1000 {
            let peer = pick(&mut groups, 1).unwrap();
            sessions.push((groups.sid(peer).to_owned(), groups.name(peer).to_owned()));
            groups.finished(peer, Outcome::Ok, 1);
        }
        for order in [[4, 2, 1, 3], [3, 1, 9, 2]] {
            groups.set_members(U, 0, &members(order), 1);
            for (sid, name) in &sessions {
                let query = PickQuery {
                    sticky: sid.as_bytes(),
                    ..at(1)
                };
                let peer = groups.pick(U, &query, &mut Tried::new()).unwrap();
                let left = order[2] == 9 && name.ends_with(":4");
                assert_eq!(groups.name(peer) == name, !left, "{name}");
                groups.finished(peer, Outcome::Ok, 1);
            }
        }
    }

    proptest! {
        /// Picks and changes of membership in any order, in three processes over the same rows: every attempt ends at the
        /// peer it began at, and nothing stays in flight.
        #[test]
        fn nothing_is_lost_when_members_change(
            zone in any::<bool>(),
            balancer in 0..5u8,
            steps in prop::collection::vec((0..3usize, 0..8u8, any::<u8>()), 1..150),
        ) {
            let shm = Shm::private().unwrap();
            let balancer = match balancer {
                0 => Balancer::RoundRobin,
                1 => Balancer::LeastConn,
                2 => hash(false),
                3 => hash(true),
                _ => Balancer::Random { two: true },
            };
            let group = named(balancer, zone);
            let mut workers: Vec<(Groups, Vec<(crate::PeerId, u16)>)> = (0..3)
                .map(|slot| {
                    let process = shm.scoreboard().claim(1, slot);
                    (Groups::new(std::slice::from_ref(&group), &shm, process, 1), Vec::new())
                })
                .collect();
            let mut idle = Vec::new();
            for (worker, what, bits) in steps {
                let (groups, held) = &mut workers[worker];
                match what {
                    0 => {
                        let set = (1..=8).filter(|port| bits >> (port - 1) & 1 == 1);
                        let stay: Vec<_> = groups.peers(U).map(|peer| (peer, port(groups, peer))).collect();
                        groups.set_members(U, 0, &members(set), 1);
                        for (peer, old) in stay {
                            prop_assert!([0, old].contains(&port(groups, peer)));
                        }
                    }
                    1 => {
                        shm.peers().reclaim(&mut idle);
                    }
                    2..=4 => {
                        let query = PickQuery { hash_key: &[bits], ..at(1) };
                        if let Ok(peer) = groups.pick(U, &query, &mut Tried::new()) {
                            held.push((peer, port(groups, peer)));
                        }
                    }
                    _ if !held.is_empty() => {
                        let (peer, at) = held.swap_remove(bits as usize % held.len());
                        prop_assert_eq!(port(groups, peer), at);
                        groups.finished(peer, Outcome::Ok, 1);
                    }
                    _ => {}
                }
            }
            for (groups, held) in &mut workers {
                for (peer, at) in held.drain(..) {
                    prop_assert_eq!(port(groups, peer), at);
                    groups.finished(peer, Outcome::Ok, 1);
                }
            }
            for (groups, _) in &mut workers {
                groups.set_members(U, 0, &members(1..=8), 1);
                let peers: Vec<_> = groups.peers(U).collect();
                for peer in peers {
                    prop_assert_eq!(groups.in_flight(peer), 0);
                }
            }
        }
    }
}
