//! All groups of one configuration as one worker sees them: picks, ends of attempts, names and addresses.

use crate::balance;
use crate::hash;
use crate::ketama::Ring;
use crate::peer::Peer;
use crate::tried::Tried;
use kp_config::model::{Balancer, PeerAddress, ServerLine, Upstream, UpstreamId};
use kp_shm::{Key, PeerRow, Row, Shm};
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
        group
            .pick(query, tried)
            .map(|index| PeerId::new(upstream, index))
    }

    /// Ends an attempt. `true`: the peer failed once too often and is left alone for its `fail_timeout`, which nginx logs
    /// as "upstream server temporarily disabled".
    pub fn finished(&mut self, peer: PeerId, outcome: Outcome, now_ms: u64) -> bool {
        let Some(group) = self.groups.get(peer.upstream.index()) else {
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
        disabled
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
        Peer {
            address: address.clone(),
            name,
            server: self.number(server),
            weight: server.weight.max(1),
            max_conns: server.max_conns,
            max_fails: server.max_fails.min(u16::MAX.into()),
            fail_timeout_ms: u64::try_from(server.fail_timeout.as_millis()).unwrap_or(u64::MAX),
            down: server.down,
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
