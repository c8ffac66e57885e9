//! Who belongs to a group: built from the configuration, changed while kp runs.
//!
//! Gives every peer a slot, which names it wherever it stands among the others, and finds its rows of shared memory.
//! Who leaves while attempts are under way is kept aside until the last of them has ended. Does not decide who is asked.

use crate::md5;
use crate::peer::Peer;
use kp_config::model::{PeerAddress, ServerLine, Upstream};
use kp_shm::{CheckRow, Key, PeerCell, PeerRow, Row, Shm};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

/// An address that belongs to a server line now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where to connect.
    pub address: PeerAddress,
    /// Its weight; 0: the line's.
    pub weight: u32,
    /// Whether it is asked only when the others cannot be.
    pub backup: bool,
}

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
    upstream: Upstream,
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
    /// Lines whose addresses were set once.
    known: Vec<bool>,
    /// Peers have series.
    pub(crate) measured: bool,
}

impl Roster {
    /// The roster, and the peers the configuration names: primaries, then backups.
    pub(crate) fn new(upstream: &Upstream, shm: &Shm, process: Row) -> (Self, Vec<Peer>) {
        let mut roster = Self {
            upstream: upstream.clone(),
            shm: *shm,
            process,
            weights: weights_of(upstream),
            slots: Vec::new(),
            free: VecDeque::new(),
            gone: Vec::new(),
            spare: Vec::new(),
            known: vec![false; upstream.servers.len()],
            measured: false,
        };
        // The same address twice is two peers.
        let mut met: HashMap<&PeerAddress, u64> = HashMap::new();
        let mut peers = Vec::new();
        for backup in [false, true] {
            for (line, server) in upstream.servers.iter().enumerate() {
                for address in server.addresses.iter().filter(|_| server.backup == backup) {
                    let count = met.entry(address).or_insert(0);
                    let ordinal = count.to_le_bytes();
                    *count += 1;
                    let member = Member {
                        address: address.clone(),
                        weight: 0,
                        backup,
                    };
                    peers.push(roster.hire(line, server, &member, &ordinal));
                }
            }
        }
        (roster, peers)
    }

    /// The group's configuration.
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Replaces a line's peers and returns who is gone; `None` if nothing changes.
    pub(crate) fn replace(
        &mut self,
        peers: &mut Vec<Peer>,
        line: usize,
        members: &[Member],
        now_ms: u64,
    ) -> Option<Vec<Slot>> {
        let server = self.upstream.servers.get(line)?.clone();
        let wanted = in_order(members, &server);
        let is_known = self
            .known
            .get_mut(line)
            .is_some_and(|known| std::mem::replace(known, true));
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for peer in peers.drain(..) {
            if peer.line == line {
                &mut here
            } else {
                &mut there
            }
            .push(peer);
        }
        *peers = there;
        let same = |(peer, member): (&Peer, &Member)| {
            (&peer.address, peer.weight, peer.backup)
                == (&member.address, member.weight, member.backup)
        };
        let unchanged = here.len() == wanted.len() && here.iter().zip(&wanted).all(same);
        if !unchanged {
            for (at, member) in wanted.iter().enumerate() {
                let peer = match take(&mut here, line, member) {
                    Some(peer) => peer,
                    None => match take(&mut self.gone, line, member) {
                        Some(peer) => peer,
                        None => {
                            // The same address twice (as with two records of a service) is two peers.
                            let earlier = wanted.iter().take(at);
                            let ordinal = earlier.filter(|other| other.address == member.address);
                            let which = format!("{} {}", server.name, ordinal.count());
                            let peer = self.hire(line, &server, member, which.as_bytes());
                            // What others know already, or the line's first addresses, is not new.
                            if is_known && peer.facts.is_first() {
                                peer.begin_slow_start(now_ms);
                            }
                            peer
                        }
                    },
                };
                peers.push(peer);
            }
        } else {
            peers.append(&mut here);
        }
        peers.sort_by_key(|peer| (peer.backup, peer.line));
        (!unchanged).then(|| here.into_iter().map(|peer| self.dismiss(peer)).collect())
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
            let Some(server) = self.upstream.servers.get(peer.line) else {
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
            self.shm.series().leave(series);
        }
        let one = self.upstream.zone.is_none();
        for row in [Some(peer.facts), (!one).then_some(peer.turn)]
            .into_iter()
            .flatten()
        {
            if row.is_shared() {
                self.shm.peers().leave(row);
            } else {
                row.clear_private();
                self.spare.push(row);
            }
        }
    }

    fn hire(&mut self, line: usize, server: &ServerLine, member: &Member, which: &[u8]) -> Peer {
        let name = name_of(&member.address);
        let (facts, turn) = self.rows(&name, which);
        let sid = if server.route.is_empty() {
            md5::hexadecimal(name.as_bytes())
        } else {
            server.route.clone()
        };
        Peer {
            address: member.address.clone(),
            slot: self.slot(),
            line,
            server: 0,
            weight: weight_of(member, server),
            backup: member.backup,
            max_conns: server.max_conns,
            max_fails: server.max_fails.min(u16::MAX.into()),
            fail_timeout_ms: u64::try_from(server.fail_timeout.as_millis()).unwrap_or(u64::MAX),
            slow_start_ms: u64::try_from(server.slow_start.as_millis()).unwrap_or(u64::MAX),
            scale: scale_of(&self.upstream),
            checks: self.checks(&name),
            is_watched: self.upstream.outliers.is_some(),
            waiting: Cell::default(),
            down: server.down,
            drain: server.drain,
            sid,
            series: self.series(&name),
            name,
            facts,
            turn,
        }
    }

    /// The group's active checks of a peer, found by the same names wherever it is checked.
    fn checks(&self, name: &str) -> Vec<(CheckRow, bool)> {
        let checks = self.upstream.checks.iter();
        let (table, process) = (self.shm.checks(), self.process);
        let row = |identity: &str| table.claim(&self.upstream.name, name, identity, process);
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
        let Some(zone) = &self.upstream.zone else {
            let row = self.private_row();
            return (row, row);
        };
        let [group, zone, address] = [
            self.upstream.name.as_bytes(),
            zone.as_bytes(),
            address.as_bytes(),
        ];
        let facts = Key::of(&[b"peer", group, zone, address, which]);
        let turn = Key::of(&[b"turn", group, zone, address, which, &self.weights]);
        (self.row(facts), self.row(turn))
    }

    fn row(&mut self, key: Key) -> PeerRow {
        let shared = self.shm.peers().claim_shared(key, self.process);
        shared.unwrap_or_else(|| self.private_row())
    }

    fn private_row(&mut self) -> PeerRow {
        self.spare.pop().unwrap_or_else(PeerRow::private)
    }
}

/// Every process has its members in the same order, whatever they were told in, since the hashes go by position.
fn in_order(members: &[Member], server: &ServerLine) -> Vec<Member> {
    let mut members: Vec<Member> = members
        .iter()
        .map(|member| Member {
            weight: weight_of(member, server),
            ..member.clone()
        })
        .collect();
    members.sort_by(|a, b| (a.backup, &a.address).cmp(&(b.backup, &b.address)));
    members
}

/// Takes the peer of this address and line out of `peers`.
fn take(peers: &mut Vec<Peer>, line: usize, member: &Member) -> Option<Peer> {
    let at = peers
        .iter()
        .position(|peer| peer.line == line && peer.address == member.address)?;
    let mut peer = peers.remove(at);
    (peer.weight, peer.backup) = (member.weight, member.backup);
    Some(peer)
}

fn weight_of(member: &Member, server: &ServerLine) -> u32 {
    let weight = if member.weight == 0 {
        server.weight
    } else {
        member.weight
    };
    weight.max(1)
}

/// The size of a weight of 1 in the round. Shares that grow need steps smaller than a weight.
fn scale_of(upstream: &Upstream) -> i64 {
    let slow = |server: &ServerLine| !server.slow_start.is_zero();
    if upstream.servers.iter().any(slow) {
        1000
    } else {
        1
    }
}

/// Of lines whose addresses are found while kp runs the name stands for them: peers come and go within the round.
fn weights_of(upstream: &Upstream) -> [u8; 16] {
    let mut text = String::new();
    for server in &upstream.servers {
        let rest = format!("*{}/{};", server.weight, server.backup);
        for address in &server.addresses {
            text.push_str(&name_of(address));
            text.push_str(&rest);
        }
        if server.addresses.is_empty() {
            text.push_str(&server.name);
            text.push_str(&rest);
        }
    }
    if scale_of(upstream) != 1 {
        text.push_str("scaled");
    }
    Key::of(&[text.as_bytes()]).to_bytes()
}

fn name_of(address: &PeerAddress) -> String {
    match address {
        PeerAddress::Inet(address) => address.to_string(),
        PeerAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{U, at, groups, hash, pick, server, servers, upstream};
    use crate::{Groups, NoPeer, Outcome, PickQuery, Tried};
    use kp_config::model::Balancer;
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
