//! All groups of one configuration as one worker sees them: picks, ends of attempts, names and addresses.

use crate::balance;
use crate::budget::Budget;
use crate::hash;
use crate::ketama::Ring;
use crate::lineup::Member;
use crate::measure::{self, Shown};
use crate::outliers::{Answer, PeerChange};
use crate::peer::Peer;
use crate::roster::{Roster, Slot};
use crate::tried::Tried;
use kp_config::model::{Balancer, OutlierDetection, PeerAddress, Upstream, UpstreamId};
use kp_shm::{CheckRow, PeerCell, Row, SeriesRow, SessionZone, Shm, UpstreamCell};
use std::net::IpAddr;
use std::ops::Range;

/// A peer of a group. It names the same peer as long as that belongs to the group or has attempts under way, wherever it
/// stands among the others, and nobody afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerId {
    /// Its group.
    pub upstream: UpstreamId,
    slot: Slot,
}

impl PeerId {
    pub(crate) fn new(upstream: UpstreamId, slot: Slot) -> Self {
        Self { upstream, slot }
    }

    pub(crate) fn index(self) -> usize {
        self.slot.index as usize
    }

    pub(crate) fn slot(self) -> Slot {
        self.slot
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
    pub(crate) groups: Vec<Group>,
    pub(crate) shown: Shown,
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
            shown: Shown::default(),
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
        let Some(facts) = group.peer(peer.slot) else {
            return false;
        };
        if let Some(series) = &facts.series {
            series.decrement(PeerCell::InFlight);
        }
        let disabled = match outcome {
            Outcome::NotCounted => false,
            _ if group.single => {
                facts.forgive();
                false
            }
            Outcome::Ok => {
                facts.succeeded(now_ms);
                false
            }
            Outcome::Failed => {
                let kept = facts.is_at_the_edge() && !group.may_lose(peer.slot, now_ms);
                facts.failed(now_ms, kept)
            }
        };
        group.note_end(facts);
        facts.facts.release();
        if outcome == Outcome::Failed {
            // This one only: failures come by the thousand, and there may be thousands of peers.
            measure::show(facts, group.single, now_ms);
        }
        if disabled {
            measure::count(group.series.as_ref(), UpstreamCell::Rests);
        }
        group.budget.end_attempt();
        group.roster.settle(peer.slot);
        disabled
    }

    /// Replaces the addresses of a server line. Who stays keeps everything: identity, place in the round, failures,
    /// attempts and idle connections. Those returned are gone: their idle connections are to be closed, and their
    /// attempts under way are ended as ever. The order of `members` does not matter.
    pub fn set_members(
        &mut self,
        upstream: UpstreamId,
        line: usize,
        members: &[Member],
        now_ms: u64,
    ) -> Vec<PeerId> {
        let gone = self
            .groups
            .get_mut(upstream.index())
            .map(|group| group.set_members(line, members, now_ms));
        self.shown.soon();
        let id = |slot| PeerId::new(upstream, slot);
        gone.unwrap_or_default().into_iter().map(id).collect()
    }

    /// The peers of a group now, backups last.
    pub fn peers(&self, upstream: UpstreamId) -> impl Iterator<Item = PeerId> {
        let group = self.groups.get(upstream.index()).into_iter();
        group.flat_map(move |group| {
            let peers = group.peers.iter();
            peers.map(move |peer| PeerId::new(upstream, peer.slot))
        })
    }

    /// What the end of an attempt says about a peer's times and failures; before [`Groups::finished`], which ends it.
    pub fn observe(&mut self, peer: PeerId, answer: &Answer, now_ms: u64) {
        if let Some(group) = self.groups.get_mut(peer.upstream.index()) {
            group.observe(peer.slot, answer, now_ms);
        }
    }

    /// An ejection or return of a peer of this group that this process brought about and nobody was told of yet.
    pub fn next_change(&mut self, upstream: UpstreamId) -> Option<(PeerId, PeerChange)> {
        let group = self.groups.get_mut(upstream.index())?;
        let (slot, change) = group.events.pop()?;
        let cell = match change {
            PeerChange::Ejected { .. } => UpstreamCell::Ejections,
            PeerChange::Returned => UpstreamCell::Returns,
        };
        measure::count(group.series.as_ref(), cell);
        self.shown.soon();
        Some((PeerId::new(upstream, slot), change))
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
            .find(|sid| SessionZone::number(sid.as_bytes()) == number)
    }

    /// The group's `retry_budget`.
    pub fn budget(&mut self, upstream: UpstreamId) -> Option<&mut Budget> {
        self.groups
            .get_mut(upstream.index())
            .map(|group| &mut group.budget)
    }

    /// Whether a request that belongs to nobody in particular could be sent to a peer of the group now, were none of them
    /// full: what the balancer finds, before it tries one that is left alone because there is nothing better.
    pub fn has_usable_peer(&self, upstream: UpstreamId, now_ms: u64) -> bool {
        let group = self.groups.get(upstream.index());
        group.is_some_and(|group| {
            let mut peers = group.peers.iter();
            peers.any(|peer| !peer.drain && peer.is_up() && (group.single || !peer.is_out(now_ms)))
        })
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

    /// The peer's active checks, in the order of the group's, each with whether it is `mandatory`.
    pub fn checks(&self, peer: PeerId) -> &[(CheckRow, bool)] {
        self.peer(peer).map_or(&[], |peer| &peer.checks)
    }

    /// Connections in use now, over all workers where the group has a `zone`.
    pub fn in_flight(&self, peer: PeerId) -> u64 {
        self.peer(peer)
            .map_or(0, |peer| peer.facts.in_flight().max(0) as u64)
    }

    #[cfg(test)]
    pub(crate) fn roster(&self, group: usize) -> &Roster {
        &self.groups[group].roster
    }

    #[cfg(test)]
    pub(crate) fn only(&mut self) -> &mut Group {
        &mut self.groups[0]
    }

    pub(crate) fn peer(&self, peer: PeerId) -> Option<&Peer> {
        self.groups.get(peer.upstream.index())?.peer(peer.slot)
    }
}

/// How a peer is chosen, with what was computed for it.
#[derive(Debug)]
enum Method {
    RoundRobin,
    LeastConn,
    LeastTime { last_byte: bool, inflight: bool },
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
    pub(crate) single: bool,
    tries: u32,
    budget: Budget,
    method: Method,
    /// Where each primary begins on the line of all weights, and the line's length.
    pub(crate) line: Vec<u64>,
    pub(crate) total_weight: u64,
    pub(crate) random: u64,
    /// What a pick under way has added to whom; kept for its memory.
    pub(crate) added: Vec<balance::Added>,
    pub(crate) roster: Roster,
    /// What is counted of it, where anything is.
    pub(crate) series: Option<SeriesRow>,
    pub(crate) outliers: Option<OutlierDetection>,
    pub(crate) max_ejected_percent: Option<u32>,
    /// Ejections and returns that nobody has been told of.
    pub(crate) events: Vec<(Slot, PeerChange)>,
}

impl Group {
    fn new(upstream: &Upstream, shm: &Shm, process: Row, random: u64) -> Self {
        let (roster, peers) = Roster::new(upstream, shm, process);
        let mut group = Self {
            budget: Budget::new(upstream.retry_budget),
            peers,
            primaries: 0,
            single: false,
            tries: 0,
            method: Method::RoundRobin,
            line: Vec::new(),
            total_weight: 0,
            random,
            added: Vec::new(),
            roster,
            series: None,
            outliers: upstream.outliers,
            max_ejected_percent: upstream.max_ejected_percent,
            events: Vec::new(),
        };
        group.arrange();
        group
    }

    fn set_members(&mut self, line: usize, members: &[Member], now_ms: u64) -> Vec<Slot> {
        let changes = self.roster.replace(&mut self.peers, line, members, now_ms);
        let Some(changes) = changes else {
            return Vec::new();
        };
        self.arrange();
        changes.gone
    }

    /// Computes what depends on who the peers are.
    pub(crate) fn arrange(&mut self) {
        self.roster.place(&self.peers);
        let names = self.roster.number(&mut self.peers);
        let (peers, line) = (&self.peers, &mut self.line);
        self.primaries = peers.iter().filter(|peer| !peer.backup).count();
        self.single = self.primaries == 1 && peers.len() == 1;
        self.tries = peers.iter().filter(|peer| !peer.down).count() as u32;
        self.total_weight = 0;
        line.clear();
        for peer in peers.iter().take(self.primaries) {
            line.push(self.total_weight);
            self.total_weight += u64::from(peer.weight);
        }
        self.added.reserve(peers.len());
        self.method = match self.roster.upstream().balancer {
            Balancer::RoundRobin => Method::RoundRobin,
            Balancer::LeastConn => Method::LeastConn,
            Balancer::LeastTime {
                last_byte,
                inflight,
            } => Method::LeastTime {
                last_byte,
                inflight,
            },
            Balancer::IpHash => Method::IpHash,
            Balancer::Hash {
                consistent: false, ..
            } => Method::Hash,
            Balancer::Hash {
                consistent: true, ..
            } => Method::Ketama(match &mut self.method {
                Method::Ketama(ring) => std::mem::take(ring).relaid(&names),
                _ => Ring::default().relaid(&names),
            }),
            Balancer::Random { two } => Method::Random { two },
        };
    }

    /// Which time of an answer is looked at, if any. Beside a peer that is quick to fail who answers is no outlier.
    pub(crate) fn looks_at_last_byte(&self, failed: bool) -> Option<bool> {
        match self.method {
            Method::LeastTime { last_byte, .. } => Some(last_byte),
            _ => self
                .outliers
                .is_some_and(|outliers| !failed && outliers.latency_factor_percent != 0)
                .then_some(false),
        }
    }

    /// An attempt of this process is over. Which one is not known: on average they began at the average.
    fn note_end(&self, peer: &Peer) {
        let (waiting, sum) = peer.waiting.get();
        if waiting != 0 {
            peer.waiting.set((waiting - 1, sum - sum / waiting));
        }
    }

    /// A peer that belongs to the group, or left it while attempts were under way.
    pub(crate) fn peer(&self, slot: Slot) -> Option<&Peer> {
        match self.roster.position(slot)? {
            Some(position) => self.peers.get(position),
            None => self.roster.gone(slot),
        }
    }

    fn pick(&mut self, query: &PickQuery, tried: &mut Tried) -> Result<Slot, NoPeer> {
        if self.single {
            return match self.peers.first() {
                Some(peer) if peer.drain && peer.sid.as_bytes() != query.sticky => {
                    Err(NoPeer::Failed)
                }
                Some(peer) if peer.enter_unconditionally() => {
                    peer.begin_attempt();
                    Ok(peer.slot)
                }
                Some(peer) if peer.is_up() => Err(NoPeer::Full),
                _ => Err(NoPeer::Failed),
            };
        }
        if self.outliers.is_some() {
            self.notice_returns(query.now_ms);
        }
        tried.begin_pick();
        let picked = match self.choose(query, tried) {
            None if !tried.backup && self.primaries < self.peers.len() => {
                tried.backup = true;
                self.choose(query, tried)
            }
            picked => picked,
        };
        let picked = match picked {
            Some(index) => index,
            None => match self.why_none(query.now_ms, tried) {
                NoPeer::Full => {
                    tried.begin_again();
                    return Err(NoPeer::Full);
                }
                NoPeer::Failed => self.last_resort(tried).ok_or(NoPeer::Failed)?,
            },
        };
        let peer = self.peers.get(picked).ok_or(NoPeer::Failed)?;
        peer.begin_attempt();
        tried.insert(peer.slot.index as usize);
        if matches!(self.method, Method::LeastTime { inflight: true, .. }) {
            let (waiting, sum) = peer.waiting.get();
            peer.waiting
                .set((waiting + 1, sum.wrapping_add(query.now_ms)));
        }
        Ok(peer.slot)
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
        if let Method::LeastTime { inflight, .. } = self.method {
            return self.least_time(tier, inflight, tried, now_ms);
        }
        // The other methods spread over the primaries only; nginx allows no backup beside them.
        if !tried.backup && self.primaries > 1 {
            let picked = match &self.method {
                Method::RoundRobin | Method::LeastConn | Method::LeastTime { .. } => None,
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
                    && !tried.contains(peer.slot.index as usize)
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
            |peer: &Peer| !tried.contains(peer.slot.index as usize) && peer.is_only_full(now_ms);
        if self.peers.iter().any(full) {
            NoPeer::Full
        } else {
            NoPeer::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{U, at, groups, letter, pick, server, upstream};
    use kp_config::model::ServerLine;
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
    fn who_found_all_full_finds_what_becomes_free() {
        let limited = |port| ServerLine {
            max_conns: 1,
            ..server(port, 1)
        };
        let spare = ServerLine {
            backup: true,
            ..limited(3)
        };
        let mut tiers = groups(upstream(Balancer::RoundRobin, vec![limited(1), spare]));
        let held = pick(&mut tiers, 1).unwrap();
        pick(&mut tiers, 1).unwrap();
        let mut waits = Tried::new();
        assert_eq!(tiers.pick(U, &at(1), &mut waits), Err(NoPeer::Full));
        tiers.finished(held, Outcome::Ok, 1);
        assert_eq!(tiers.pick(U, &at(1), &mut waits), Ok(held), "a primary");

        let mut hashed = groups(upstream(Balancer::IpHash, (1..=8).map(limited).collect()));
        let query = PickQuery {
            client: Some([192, 0, 2, 1].into()),
            ..at(1)
        };
        let own = hashed.pick(U, &query, &mut Tried::new()).unwrap();
        while hashed.pick(U, &query, &mut Tried::new()).is_ok() {}
        let mut waits = Tried::new();
        for _ in 0..30 {
            assert_eq!(hashed.pick(U, &query, &mut waits), Err(NoPeer::Full));
        }
        let others: Vec<PeerId> = hashed.peers(U).filter(|peer| *peer != own).collect();
        for peer in others {
            hashed.finished(peer, Outcome::Ok, 1);
        }
        hashed.finished(own, Outcome::Ok, 1);
        assert_eq!(hashed.pick(U, &query, &mut waits), Ok(own), "by its hash");
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
