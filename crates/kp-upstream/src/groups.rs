//! All groups of one configuration as one worker sees them: picks, ends of attempts, names and addresses.

use crate::balance;
use crate::budget::Budget;
use crate::hash;
use crate::ketama::Ring;
use crate::md5;
use crate::peer::Peer;
use crate::tried::Tried;
use kp_config::model::{Balancer, PeerAddress, ServerLine, Upstream, UpstreamId};
use kp_shm::{Key, PeerRow, Row, Sessions, Shm};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

/// A peer of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerId {
    /// Its group.
    pub upstream: UpstreamId,
    index: u32,
}

impl PeerId {
    pub(crate) fn new(upstream: UpstreamId, index: usize) -> Self {
        Self {
            upstream,
            index: index as u32,
        }
    }

    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

/// What a pick depends on besides the peers.
#[derive(Debug, Clone, Copy)]
pub struct PickQuery<'a> {
    /// The evaluated key of `hash`; empty falls back to round robin, as nginx.
    pub hash_key: &'a [u8],
    /// The client's address for `ip_hash`; `None` on a unix socket.
    pub client: Option<IpAddr>,
    /// What names the peer that the request's session is at; empty: it has none.
    pub sticky: &'a [u8],
    /// Monotonic time.
    pub now_ms: u64,
}

/// Why no peer was picked; both are nginx's "no live upstreams", a 502.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPeer {
    /// Every peer is down, resting after failures, or was tried already.
    Failed,
    /// At least one peer is well and not yet tried, but has `max_conns` connections in use.
    Full,
}

/// How an attempt ended, as far as its peer is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It answered.
    Ok,
    /// It counts against `max_fails`.
    Failed,
    /// Says nothing about the peer: the client left, or a pooled connection was stale.
    NotCounted,
}

/// The groups of one configuration.
#[derive(Debug)]
pub struct Groups {
    groups: Vec<Group>,
}

impl Groups {
    /// Builds all groups, in the order of [`UpstreamId`]. Rows of groups with a `zone` are found or made in `shm`; where
    /// it is full `shm.peers().overflows()` grows, which deserves a warning. `seed` differs between processes.
    ///
    /// Private rows live as long as the process, so this is called once per configuration.
    pub fn new(upstreams: &[Upstream], shm: &Shm, process: Row, seed: u64) -> Self {
        let group = |(number, upstream): (usize, &Upstream)| {
            let mut mixed = (seed ^ number as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
            Group::new(upstream, shm, process, hash::random(&mut mixed))
        };
        Self {
            groups: upstreams.iter().enumerate().map(group).collect(),
        }
    }

    /// Chooses a peer, counts the attempt as in flight and notes the peer in `tried`. Every peer picked is given back by
    /// [`Groups::finished`], once.
    pub fn pick(
        &mut self,
        upstream: UpstreamId,
        query: &PickQuery,
        tried: &mut Tried,
    ) -> Result<PeerId, NoPeer> {
        let group = self
            .groups
            .get_mut(upstream.index())
            .ok_or(NoPeer::Failed)?;
        let picked = group.pick(query, tried)?;
        group.budget.begin_attempt();
        Ok(PeerId::new(upstream, picked))
    }

    /// Ends an attempt. `true`: the peer failed once too often and is left alone for its `fail_timeout`, which nginx logs
    /// as "upstream server temporarily disabled".
    pub fn finished(&mut self, peer: PeerId, outcome: Outcome, now_ms: u64) -> bool {
        let Some(group) = self.groups.get_mut(peer.upstream.index()) else {
            return false;
        };
        let Some(facts) = group.peers.get(peer.index()) else {
            return false;
        };
        let disabled = match outcome {
            Outcome::NotCounted => false,
            _ if group.single => {
                facts.forgive();
                false
            }
            Outcome::Ok => {
                facts.succeeded();
                false
            }
            Outcome::Failed => facts.failed(now_ms),
        };
        facts.facts.release();
        group.budget.end_attempt();
        disabled
    }

    /// What names a peer in sessions: its `route=`, or the MD5 of its address, as nginx.
    pub fn sid(&self, peer: PeerId) -> &str {
        self.peer(peer).map_or("", |peer| &peer.sid)
    }

    /// The name in sessions of the peer with this number in the table of learned ones.
    pub fn sid_numbered(&self, upstream: UpstreamId, number: u64) -> Option<&str> {
        let peers = &self.groups.get(upstream.index())?.peers;
        peers
            .iter()
            .map(|peer| peer.sid.as_str())
            .find(|sid| Sessions::number(sid.as_bytes()) == number)
    }

    /// The group's `retry_budget`.
    pub fn budget(&mut self, upstream: UpstreamId) -> Option<&mut Budget> {
        self.groups
            .get_mut(upstream.index())
            .map(|group| &mut group.budget)
    }

    /// How many attempts one exchange may make in this group before `proxy_next_upstream_tries`: its peers that are not
    /// `down`, backups included.
    pub fn tries(&self, upstream: UpstreamId) -> u32 {
        self.groups
            .get(upstream.index())
            .map_or(0, |group| group.tries)
    }

    /// Where to connect.
    pub fn address(&self, peer: PeerId) -> Option<&PeerAddress> {
        Some(&self.peer(peer)?.address)
    }

    /// `$upstream_addr`: `127.0.0.1:8080`, `[::1]:8080` or `unix:/path`.
    pub fn name(&self, peer: PeerId) -> &str {
        self.peer(peer).map_or("", |peer| &peer.name)
    }

    /// Connections in use now, over all workers where the group has a `zone`.
    pub fn in_flight(&self, peer: PeerId) -> u64 {
        self.peer(peer)
            .map_or(0, |peer| peer.facts.in_flight().max(0) as u64)
    }

    #[cfg(test)]
    pub(crate) fn only(&mut self) -> &mut Group {
        &mut self.groups[0]
    }

    fn peer(&self, peer: PeerId) -> Option<&Peer> {
        self.groups
            .get(peer.upstream.index())?
            .peers
            .get(peer.index())
    }
}

/// How a peer is chosen, with what was computed for it.
#[derive(Debug)]
enum Method {
    RoundRobin,
    LeastConn,
    IpHash,
    Hash,
    Ketama(Ring),
    Random { two: bool },
}

/// One group.
#[derive(Debug)]
pub(crate) struct Group {
    /// Primaries, then backups.
    pub(crate) peers: Vec<Peer>,
    pub(crate) primaries: usize,
    /// One peer and no backup: nothing to balance, and it is tried whatever happened before.
    single: bool,
    tries: u32,
    budget: Budget,
    method: Method,
    /// Where each primary begins on the line of all weights, and the line's length.
    pub(crate) line: Vec<u64>,
    pub(crate) total_weight: u64,
    pub(crate) random: u64,
    /// What a pick under way has added to whom; kept for its memory.
    pub(crate) added: Vec<balance::Added>,
}

impl Group {
    fn new(upstream: &Upstream, shm: &Shm, process: Row, random: u64) -> Self {
        let lines = |backup: bool| {
            upstream
                .servers
                .iter()
                .filter(move |line| line.backup == backup)
        };
        let mut rows = Rows::new(upstream, shm, process);
        let mut peers: Vec<Peer> = Vec::new();
        for server in lines(false) {
            peers.extend(
                server
                    .addresses
                    .iter()
                    .map(|address| rows.peer(server, address)),
            );
        }
        let primaries = peers.len();
        for server in lines(true) {
            peers.extend(
                server
                    .addresses
                    .iter()
                    .map(|address| rows.peer(server, address)),
            );
        }
        let mut total_weight = 0;
        let mut line = Vec::with_capacity(primaries);
        for peer in peers.iter().take(primaries) {
            line.push(total_weight);
            total_weight += u64::from(peer.weight);
        }
        let method = match upstream.balancer {
            Balancer::RoundRobin => Method::RoundRobin,
            Balancer::LeastConn => Method::LeastConn,
            Balancer::IpHash => Method::IpHash,
            Balancer::Hash {
                consistent: false, ..
            } => Method::Hash,
            Balancer::Hash {
                consistent: true, ..
            } => Method::Ketama(Ring::new(&rows.names)),
            Balancer::Random { two } => Method::Random { two },
        };
        Self {
            single: primaries == 1 && peers.len() == 1,
            tries: peers.iter().filter(|peer| !peer.down).count() as u32,
            budget: Budget::new(upstream.retry_budget),
            added: Vec::with_capacity(peers.len()),
            peers,
            primaries,
            method,
            line,
            total_weight,
            random,
        }
    }

    fn pick(&mut self, query: &PickQuery, tried: &mut Tried) -> Result<usize, NoPeer> {
        if self.single {
            return match self.peers.first() {
                Some(peer) if peer.drain && peer.sid.as_bytes() != query.sticky => {
                    Err(NoPeer::Failed)
                }
                Some(peer) if peer.enter_unconditionally() => Ok(0),
                Some(peer) if !peer.down => Err(NoPeer::Full),
                _ => Err(NoPeer::Failed),
            };
        }
        tried.begin_pick();
        let picked = match self.choose(query, tried) {
            None if !tried.backup && self.primaries < self.peers.len() => {
                tried.backup = true;
                self.choose(query, tried)
            }
            picked => picked,
        };
        match picked {
            Some(index) => {
                tried.insert(index);
                Ok(index)
            }
            None => Err(self.why_none(query.now_ms, tried)),
        }
    }

    fn choose(&mut self, query: &PickQuery, tried: &mut Tried) -> Option<usize> {
        let now_ms = query.now_ms;
        let tier = self.tier(tried);
        if !query.sticky.is_empty()
            && let Some(index) = self.of_session(query, tier.clone(), tried)
        {
            return Some(index);
        }
        if matches!(self.method, Method::LeastConn) {
            return self.least_conn(tier, tried, now_ms);
        }
        // The other methods spread over the primaries only; nginx allows no backup beside them.
        if !tried.backup && self.primaries > 1 {
            let picked = match &self.method {
                Method::RoundRobin | Method::LeastConn => None,
                Method::IpHash => self.ip_hash(query.client, tried, now_ms),
                Method::Hash if query.hash_key.is_empty() => None,
                Method::Hash => self.hash(query.hash_key, tried, now_ms),
                Method::Ketama(_) if query.hash_key.is_empty() => None,
                Method::Ketama(_) => self.ketama(query.hash_key, tried, now_ms),
                Method::Random { two: false } => self.random(tried, now_ms),
                Method::Random { two: true } => self.random_two(tried, now_ms),
            };
            if picked.is_some() {
                return picked;
            }
        }
        self.round_robin(tier, tried, now_ms)
    }

    /// The peer that the session is at, if it can take the request. The round is not moved on by it.
    fn of_session(&self, query: &PickQuery, tier: Range<usize>, tried: &Tried) -> Option<usize> {
        tier.into_iter().find(|&index| {
            self.peers.get(index).is_some_and(|peer| {
                peer.sid.as_bytes() == query.sticky
                    && !tried.contains(index)
                    && peer.is_usable_for_its_own(query.now_ms)
                    && peer.enter(query.now_ms)
            })
        })
    }

    pub(crate) fn ring(&self) -> Option<&Ring> {
        match &self.method {
            Method::Ketama(ring) => Some(ring),
            _ => None,
        }
    }

    fn tier(&self, tried: &Tried) -> Range<usize> {
        if tried.backup {
            self.primaries..self.peers.len()
        } else {
            0..self.primaries
        }
    }

    fn why_none(&self, now_ms: u64, tried: &Tried) -> NoPeer {
        let full =
            |(index, peer): (usize, &Peer)| !tried.contains(index) && peer.is_only_full(now_ms);
        if self.peers.iter().enumerate().any(full) {
            NoPeer::Full
        } else {
            NoPeer::Failed
        }
    }
}

/// Finds the rows of a group's peers while it is built.
struct Rows<'a> {
    upstream: &'a Upstream,
    shm: &'a Shm,
    process: Row,
    /// Identity of the group's weights: a round is comparable only among equal ones.
    weights: [u8; 16],
    /// How often an address was met: the same address twice is two peers.
    met: HashMap<String, u64>,
    /// Distinct server names in order, each with the largest weight it was given.
    names: Vec<(&'a str, u64)>,
    numbers: HashMap<&'a str, u32>,
}

impl<'a> Rows<'a> {
    fn new(upstream: &'a Upstream, shm: &'a Shm, process: Row) -> Self {
        let mut text = String::new();
        for server in &upstream.servers {
            for address in &server.addresses {
                text.push_str(&format!(
                    "{}*{}/{};",
                    name_of(address),
                    server.weight,
                    server.backup
                ));
            }
        }
        let weights = Key::of(&[text.as_bytes()]).to_bytes();
        Self {
            upstream,
            shm,
            process,
            weights,
            met: HashMap::new(),
            names: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    fn peer(&mut self, server: &'a ServerLine, address: &PeerAddress) -> Peer {
        let name = name_of(address);
        let (facts, turn) = self.rows(&name);
        let sid = if server.route.is_empty() {
            md5::hexadecimal(name.as_bytes())
        } else {
            server.route.clone()
        };
        Peer {
            address: address.clone(),
            name,
            server: self.number(server),
            weight: server.weight.max(1),
            max_conns: server.max_conns,
            max_fails: server.max_fails.min(u16::MAX.into()),
            fail_timeout_ms: u64::try_from(server.fail_timeout.as_millis()).unwrap_or(u64::MAX),
            down: server.down,
            drain: server.drain,
            sid,
            facts,
            turn,
        }
    }

    fn number(&mut self, server: &'a ServerLine) -> u32 {
        let weight = u64::from(server.weight.max(1));
        let number = *self
            .numbers
            .entry(&server.name)
            .or_insert(self.names.len() as u32);
        match self.names.get_mut(number as usize) {
            Some(known) => known.1 = known.1.max(weight),
            None => self.names.push((&server.name, weight)),
        }
        number
    }

    fn rows(&mut self, address: &str) -> (PeerRow, PeerRow) {
        let Some(zone) = &self.upstream.zone else {
            let row = PeerRow::private();
            return (row, row);
        };
        let count = self.met.entry(address.to_owned()).or_insert(0);
        let ordinal = count.to_le_bytes();
        *count += 1;
        let [group, zone, address] = [
            self.upstream.name.as_bytes(),
            zone.as_bytes(),
            address.as_bytes(),
        ];
        let facts = Key::of(&[b"peer", group, zone, address, &ordinal]);
        let turn = Key::of(&[b"turn", group, zone, address, &ordinal, &self.weights]);
        (
            self.shm.peers().claim(facts, self.process),
            self.shm.peers().claim(turn, self.process),
        )
    }
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
    use crate::fixture::{U, at, groups, letter, pick, server, upstream};
    use std::time::Duration;

    fn short(port: u16) -> ServerLine {
        ServerLine {
            fail_timeout: Duration::from_secs(1),
            ..server(port, 1)
        }
    }

    fn backup(port: u16) -> ServerLine {
        ServerLine {
            backup: true,
            ..server(port, 1)
        }
    }

    /// One exchange against peers of which some are dead; which peer answered.
    fn exchange(groups: &mut Groups, dead: &str, now_ms: u64) -> Option<char> {
        let mut tried = Tried::new();
        loop {
            let peer = groups.pick(U, &at(now_ms), &mut tried).ok()?;
            if !dead.contains(letter(peer)) {
                groups.finished(peer, Outcome::Ok, now_ms);
                return Some(letter(peer));
            }
            groups.finished(peer, Outcome::Failed, now_ms);
        }
    }

    #[test]
    fn a_backup_is_used_only_while_it_is_needed() {
        for balancer in [Balancer::RoundRobin, Balancer::LeastConn] {
            let mut groups = groups(upstream(balancer, vec![short(1), backup(2), backup(3)]));
            let mut run = |picks: usize, dead: &str, now: u64| -> String {
                (0..picks)
                    .map(|_| exchange(&mut groups, dead, now).unwrap())
                    .collect()
            };
            assert_eq!(run(5, "", 10_000), "aaaaa");
            assert_eq!(run(6, "a", 10_000), "bcbcbc");
            assert_eq!(run(4, "", 12_200), "aaaa");
        }
    }

    #[test]
    fn a_backup_is_used_when_the_primary_is_full_or_down() {
        let full = ServerLine {
            max_conns: 1,
            ..server(1, 1)
        };
        let mut one = groups(upstream(Balancer::RoundRobin, vec![full, backup(2)]));
        let picks: String = (0..3).map(|_| letter(pick(&mut one, 1).unwrap())).collect();
        assert_eq!(picks, "abb");
        let down = ServerLine {
            down: true,
            ..server(1, 1)
        };
        let mut one = groups(upstream(Balancer::RoundRobin, vec![down, backup(2)]));
        assert_eq!((letter(pick(&mut one, 1).unwrap()), one.tries(U)), ('b', 1));
    }

    #[test]
    fn a_peer_rests_for_its_fail_timeout_and_then_gets_one_trial() {
        let mut groups = groups(upstream(Balancer::RoundRobin, vec![short(1), short(2)]));
        let dead = pick(&mut groups, 5000).unwrap();
        assert!(groups.finished(dead, Outcome::Failed, 5000));
        let at = |groups: &mut Groups, now| -> String {
            (0..4).map(|_| letter(pick(groups, now).unwrap())).collect()
        };
        assert_eq!(at(&mut groups, 6000), "bbbb");
        let trial = at(&mut groups, 6001);
        assert_eq!(trial.matches('a').count(), 1, "{trial}");
        assert!(groups.finished(dead, Outcome::Failed, 6100));
        assert_eq!(at(&mut groups, 7100), "bbbb");
        let trial = at(&mut groups, 7101);
        assert_eq!(trial.matches('a').count(), 1, "{trial}");
        groups.finished(dead, Outcome::Ok, 7150);
        assert!(at(&mut groups, 7150).matches('a').count() >= 2);
    }

    #[test]
    fn failures_add_up_until_a_success_after_the_timeout() {
        let twice = |port| ServerLine {
            max_fails: 2,
            ..short(port)
        };
        let mut groups = groups(upstream(Balancer::RoundRobin, vec![twice(1), twice(2)]));
        let mut attempt = |outcome, now| loop {
            let peer = pick(&mut groups, now).unwrap();
            if letter(peer) == 'a' {
                return groups.finished(peer, outcome, now);
            }
            groups.finished(peer, Outcome::Ok, now);
        };
        assert!(!attempt(Outcome::Failed, 5000));
        assert!(
            !attempt(Outcome::Ok, 5500),
            "within the window a success forgets nothing"
        );
        assert!(attempt(Outcome::Failed, 5600));
        assert!(!attempt(Outcome::Ok, 6700));
        assert!(
            !attempt(Outcome::Failed, 6800),
            "the success of the trial did"
        );
    }

    #[test]
    fn all_peers_failed() {
        let mut groups = groups(upstream(Balancer::RoundRobin, vec![short(1), short(2)]));
        assert_eq!(exchange(&mut groups, "ab", 5000), None);
        assert_eq!(
            groups.pick(U, &at(5000), &mut Tried::new()),
            Err(NoPeer::Failed)
        );
        assert_eq!(exchange(&mut groups, "", 5999), None);
        assert!(exchange(&mut groups, "", 6001).is_some());
    }

    #[test]
    fn full_is_told_from_failed() {
        let limited = |port| ServerLine {
            max_conns: 1,
            ..server(port, 1)
        };
        let mut two = groups(upstream(Balancer::RoundRobin, vec![limited(1), limited(2)]));
        let held = pick(&mut two, 1).unwrap();
        pick(&mut two, 1).unwrap();
        assert_eq!(two.pick(U, &at(1), &mut Tried::new()), Err(NoPeer::Full));
        two.finished(held, Outcome::Ok, 1);
        assert_eq!(two.pick(U, &at(1), &mut Tried::new()), Ok(held));
        let mut one = groups(upstream(Balancer::RoundRobin, vec![limited(1)]));
        pick(&mut one, 1).unwrap();
        assert_eq!(one.pick(U, &at(1), &mut Tried::new()), Err(NoPeer::Full));
    }

    #[test]
    fn the_only_peer_is_always_tried() {
        let mut groups = groups(upstream(Balancer::RoundRobin, vec![server(1, 1)]));
        for _ in 0..5 {
            let mut tried = Tried::new();
            for _ in 0..2 {
                let peer = groups.pick(U, &at(1), &mut tried).unwrap();
                assert!(!groups.finished(peer, Outcome::Failed, 1));
            }
        }
        assert_eq!(groups.tries(U), 1);
    }

    #[test]
    fn one_worker_makes_the_trial_for_all() {
        let shm = Shm::private().unwrap();
        let group = Upstream {
            zone: Some("z".to_owned()),
            ..upstream(Balancer::RoundRobin, vec![short(1), short(2)])
        };
        let attempts: usize = std::thread::scope(|scope| {
            let barrier = std::sync::Arc::new(std::sync::Barrier::new(4));
            let worker = |slot: u32| {
                let (shm, group, barrier) = (&shm, &group, barrier.clone());
                scope.spawn(move || {
                    let process = shm.scoreboard().claim(1, slot);
                    let mut groups =
                        Groups::new(std::slice::from_ref(group), shm, process, slot.into());
                    let mut attempts = 0;
                    for round in 1..=300u64 {
                        barrier.wait();
                        for _ in 0..5 {
                            let mut tried = Tried::new();
                            let now = round * 1001;
                            while let Ok(peer) = groups.pick(U, &at(now), &mut tried) {
                                let dead = letter(peer) == 'a';
                                attempts += usize::from(dead);
                                groups.finished(
                                    peer,
                                    if dead { Outcome::Failed } else { Outcome::Ok },
                                    now,
                                );
                                if !dead {
                                    break;
                                }
                            }
                        }
                        barrier.wait();
                    }
                    attempts
                })
            };
            (0..4)
                .map(worker)
                .collect::<Vec<_>>()
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        // Before the first failure is known several workers may be on their way to the peer at once.
        assert!((300..=303).contains(&attempts), "{attempts}");
    }

    #[test]
    fn a_killed_worker_gives_its_places_back() {
        let shm = Shm::private().unwrap();
        let limited = ServerLine {
            max_conns: 4,
            ..server(1, 1)
        };
        let group = Upstream {
            zone: Some("z".to_owned()),
            ..upstream(Balancer::RoundRobin, vec![limited])
        };
        let (dead, alive) = (shm.scoreboard().claim(1, 0), shm.scoreboard().claim(1, 1));
        let mut its = Groups::new(std::slice::from_ref(&group), &shm, dead, 1);
        let mut ours = Groups::new(&[group], &shm, alive, 2);
        let held = pick(&mut ours, 1).unwrap();
        while pick(&mut its, 1).is_some() {}
        assert_eq!((ours.in_flight(held), pick(&mut ours, 1)), (4, None));
        shm.reap(dead);
        assert_eq!(ours.in_flight(held), 1);
        assert_eq!((0..9).filter(|_| pick(&mut ours, 1).is_some()).count(), 3);
    }

    #[test]
    fn without_a_zone_nothing_is_shared() {
        let shm = Shm::private().unwrap();
        let group = upstream(Balancer::RoundRobin, vec![server(1, 1), server(2, 1)]);
        let mut first = Groups::new(
            std::slice::from_ref(&group),
            &shm,
            shm.scoreboard().claim(1, 0),
            1,
        );
        let mut second = Groups::new(&[group], &shm, shm.scoreboard().claim(1, 1), 2);
        assert_eq!(letter(pick(&mut first, 1).unwrap()), 'a');
        assert_eq!(letter(pick(&mut second, 1).unwrap()), 'a');
        assert_eq!(shm.peers().used(), 0);
    }

    #[test]
    fn the_same_server_twice_is_two_peers() {
        let shm = Shm::private().unwrap();
        let twice = vec![
            ServerLine {
                max_conns: 1,
                ..server(1, 1)
            };
            2
        ];
        let group = Upstream {
            zone: Some("z".to_owned()),
            ..upstream(Balancer::RoundRobin, twice)
        };
        let mut groups = Groups::new(&[group], &shm, shm.scoreboard().claim(1, 0), 1);
        assert_eq!((0..5).filter(|_| pick(&mut groups, 1).is_some()).count(), 2);
    }

    #[test]
    fn names_and_addresses() {
        let unix = ServerLine {
            addresses: vec![PeerAddress::Unix("/tmp/x.sock".into())],
            ..server(1, 1)
        };
        let six = ServerLine {
            addresses: vec![PeerAddress::Inet(([0, 0, 0, 0, 0, 0, 0, 1], 80).into())],
            ..server(1, 1)
        };
        let mut groups = groups(upstream(Balancer::RoundRobin, vec![unix, six]));
        let (first, second) = (pick(&mut groups, 1).unwrap(), pick(&mut groups, 1).unwrap());
        assert_eq!(
            (groups.name(first), groups.name(second)),
            ("unix:/tmp/x.sock", "[::1]:80")
        );
        assert_eq!(
            groups.address(first),
            Some(&PeerAddress::Unix("/tmp/x.sock".into()))
        );
    }

    #[test]
    fn groups_of_more_than_sixty_four_peers() {
        let mut groups = groups(upstream(
            Balancer::RoundRobin,
            (1..=200).map(|port| server(port, 1)).collect(),
        ));
        let mut tried = Tried::new();
        for _ in 0..200 {
            groups.pick(U, &at(1), &mut tried).unwrap();
        }
        assert_eq!(groups.pick(U, &at(1), &mut tried), Err(NoPeer::Failed));
    }
}
