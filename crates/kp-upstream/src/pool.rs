//! Idle connections to upstreams, kept for reuse: which one to take, when one must go, which is evicted.
//!
//! The pool knows connections by an opaque handle of its caller, who owns sockets and timers. Each group keeps up to
//! `keepalive` of them over all its peers and evicts the least recently used. Every operation takes constant time:
//! entries are linked into a bucket by their key and into one list by their age.

use crate::groups::PeerId;
use crate::roster::Slot;
use kp_config::model::{Keepalive, LocationId, Upstream};
use std::time::Duration;

/// A connection about to be parked, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    /// Whom it leads to.
    pub peer: PeerId,
    /// The location that used it; matters only where `keepalive` is `local`.
    pub location: LocationId,
    /// How it was made, that is which TLS is spoken and which address it comes from: connections made in different ways are
    /// never mixed. 0: plainly. The number is the caller's.
    pub way: u64,
    /// The caller's name for it.
    pub handle: u64,
    /// Requests it has carried.
    pub requests: u32,
    /// When it was opened.
    pub opened_ms: u64,
    /// The upstream's `Keep-Alive: timeout=`.
    pub keep_alive_timeout_s: Option<u32>,
}

/// Names a parked connection for [`Pool::remove`]; stored by the caller beside the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u32);

/// What became of a connection that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It must be closed: the group keeps none, or the connection has reached one of its limits.
    Refused,
    /// It is parked.
    Kept {
        /// Its name in the pool.
        ticket: Ticket,
        /// When it must be removed and closed, monotonic.
        deadline_ms: u64,
        /// Handle of another connection that had to make room and must be closed.
        evicted: Option<u64>,
    },
}

/// Reuse stops this long before the upstream's own timeout, so that a request does not cross its FIN.
const MARGIN: Duration = Duration::from_secs(1);

/// The idle connections of one worker.
#[derive(Debug)]
pub struct Pool {
    groups: Vec<Option<GroupPool>>,
}

impl Pool {
    /// Empty pools for all groups, in the order of [`kp_config::model::UpstreamId`].
    pub fn new(upstreams: &[Upstream]) -> Self {
        let group = |upstream: &Upstream| {
            let keepalive = upstream
                .keepalive
                .as_ref()
                .filter(|keepalive| keepalive.connections > 0);
            keepalive.map(|keepalive| GroupPool::new(keepalive.clone()))
        };
        Self {
            groups: upstreams.iter().map(group).collect(),
        }
    }

    /// Whether the group keeps connections at all, so that one is asked to stay open.
    pub fn is_kept(&self, peer: PeerId) -> bool {
        matches!(self.groups.get(peer.upstream.index()), Some(Some(_)))
    }

    /// Takes the most recently parked connection to `peer` that was made this way (by `location`, where the group is `local`).
    pub fn take(
        &mut self,
        peer: PeerId,
        location: LocationId,
        way: u64,
        now_ms: u64,
    ) -> Option<u64> {
        self.group(peer)?.take(peer, location, way, now_ms)
    }

    /// Parks a connection.
    pub fn put(&mut self, idle: &Idle, now_ms: u64) -> Put {
        match self.group(idle.peer) {
            Some(group) => group.put(idle, now_ms),
            None => Put::Refused,
        }
    }

    /// Forgets a parked connection that became readable, broke, or reached its deadline; `false` if it is not parked.
    pub fn remove(&mut self, peer: PeerId, ticket: Ticket, handle: u64) -> bool {
        self.group(peer)
            .is_some_and(|group| group.remove(ticket, handle))
    }

    /// Forgets all and returns their handles for closing.
    pub fn drain(&mut self) -> Vec<u64> {
        self.groups
            .iter_mut()
            .flatten()
            .flat_map(GroupPool::drain)
            .collect()
    }

    /// Forgets all connections to a peer that left its group and returns their handles for closing.
    pub fn evict(&mut self, peer: PeerId) -> Vec<u64> {
        self.group(peer)
            .map_or_else(Vec::new, |group| group.evict(peer.slot()))
    }

    /// How many are parked.
    pub fn len(&self) -> usize {
        self.groups.iter().flatten().map(|group| group.len).sum()
    }

    /// Whether none is parked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn group(&mut self, peer: PeerId) -> Option<&mut GroupPool> {
        self.groups.get_mut(peer.upstream.index())?.as_mut()
    }
}

/// No entry.
const NONE: u32 = u32::MAX;

/// Forward and backward neighbours of an entry in one list.
#[derive(Debug, Clone, Copy)]
struct Links {
    next: u32,
    previous: u32,
}

const UNLINKED: Links = Links {
    next: NONE,
    previous: NONE,
};

#[derive(Debug, Clone, Copy)]
struct Entry {
    peer: Slot,
    location: u32,
    way: u64,
    handle: u64,
    deadline_ms: u64,
    /// Among the entries of its bucket, latest first.
    bucket: Links,
    /// Among all entries of the group, latest first; `next` also links the free ones.
    age: Links,
    parked: bool,
}

#[derive(Debug)]
struct GroupPool {
    settings: Keepalive,
    entries: Vec<Entry>,
    buckets: Vec<u32>,
    free: u32,
    latest: u32,
    oldest: u32,
    len: usize,
}

impl GroupPool {
    fn new(settings: Keepalive) -> Self {
        // Chains stay short up to 4096 keys; more connections than that make them longer, not the table larger.
        let buckets = (settings.connections as usize)
            .clamp(8, 4096)
            .next_power_of_two();
        Self {
            settings,
            entries: Vec::new(),
            buckets: vec![NONE; buckets],
            free: NONE,
            latest: NONE,
            oldest: NONE,
            len: 0,
        }
    }

    fn take(&mut self, peer: PeerId, location: LocationId, way: u64, now_ms: u64) -> Option<u64> {
        let location = self.location_key(location);
        let wanted = |entry: &Entry| {
            entry.peer == peer.slot()
                && entry.location == location
                && entry.way == way
                && now_ms < entry.deadline_ms
        };
        let mut at = *self
            .buckets
            .get(self.bucket_of(peer.index() as u32, location, way))?;
        while let Some(entry) = self.entries.get(at as usize) {
            if wanted(entry) {
                let handle = entry.handle;
                self.unlink(at);
                return Some(handle);
            }
            at = entry.bucket.next;
        }
        None
    }

    fn put(&mut self, idle: &Idle, now_ms: u64) -> Put {
        let Some(deadline_ms) = self.deadline(idle, now_ms) else {
            return Put::Refused;
        };
        let evicted = if self.len >= self.settings.connections as usize {
            let handle = self
                .entries
                .get(self.oldest as usize)
                .map(|entry| entry.handle);
            self.unlink(self.oldest);
            handle
        } else {
            None
        };
        let entry = Entry {
            peer: idle.peer.slot(),
            location: self.location_key(idle.location),
            way: idle.way,
            handle: idle.handle,
            deadline_ms,
            bucket: UNLINKED,
            age: UNLINKED,
            parked: true,
        };
        let at = self.insert(entry);
        self.link(at);
        Put::Kept {
            ticket: Ticket(at),
            deadline_ms,
            evicted,
        }
    }

    fn remove(&mut self, ticket: Ticket, handle: u64) -> bool {
        let parked = self
            .entries
            .get(ticket.0 as usize)
            .is_some_and(|entry| entry.parked && entry.handle == handle);
        if parked {
            self.unlink(ticket.0);
        }
        parked
    }

    fn evict(&mut self, peer: Slot) -> Vec<u64> {
        let places = 0..self.entries.len() as u32;
        let its = |at: &u32| {
            self.entries
                .get(*at as usize)
                .is_some_and(|entry| entry.parked && entry.peer == peer)
        };
        let its: Vec<u32> = places.filter(its).collect();
        let mut handles = Vec::with_capacity(its.len());
        for at in its {
            handles.extend(self.entries.get(at as usize).map(|entry| entry.handle));
            self.unlink(at);
        }
        handles
    }

    fn drain(&mut self) -> Vec<u64> {
        let handles = self
            .entries
            .iter()
            .filter(|entry| entry.parked)
            .map(|entry| entry.handle)
            .collect();
        self.entries.clear();
        self.buckets.fill(NONE);
        (self.free, self.latest, self.oldest, self.len) = (NONE, NONE, NONE, 0);
        handles
    }

    /// How long the connection may wait; `None` if it may not be used again.
    fn deadline(&self, idle: &Idle, now_ms: u64) -> Option<u64> {
        let age = Duration::from_millis(now_ms.saturating_sub(idle.opened_ms));
        if idle.requests >= self.settings.requests || age > self.settings.time {
            return None;
        }
        let wait = match idle.keep_alive_timeout_s {
            None => self.settings.timeout,
            Some(seconds) => self
                .settings
                .timeout
                .min(Duration::from_secs(seconds.into()).saturating_sub(MARGIN)),
        };
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        (wait_ms > 0).then(|| now_ms.saturating_add(wait_ms))
    }

    fn location_key(&self, location: LocationId) -> u32 {
        if self.settings.local { location.0 } else { 0 }
    }

    fn bucket_of(&self, peer: u32, location: u32, way: u64) -> usize {
        let mixed =
            (u64::from(peer) << 32 | u64::from(location) ^ way).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.buckets.len() - 1)
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        if let Some(free) = self.entries.get_mut(self.free as usize) {
            let at = self.free;
            self.free = free.age.next;
            *free = entry;
            return at;
        }
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    /// Puts an entry at the head of its bucket and of the group's list.
    fn link(&mut self, at: u32) {
        let Some(entry) = self.entries.get(at as usize) else {
            return;
        };
        let bucket = self.bucket_of(entry.peer.index, entry.location, entry.way);
        let head = self.buckets.get(bucket).copied().unwrap_or(NONE);
        if let Some(second) = self.entries.get_mut(head as usize) {
            second.bucket.previous = at;
        }
        if let Some(second) = self.entries.get_mut(self.latest as usize) {
            second.age.previous = at;
        }
        let latest = self.latest;
        if let Some(entry) = self.entries.get_mut(at as usize) {
            entry.bucket = Links {
                next: head,
                previous: NONE,
            };
            entry.age = Links {
                next: latest,
                previous: NONE,
            };
        }
        if let Some(slot) = self.buckets.get_mut(bucket) {
            *slot = at;
        }
        self.latest = at;
        if self.oldest == NONE {
            self.oldest = at;
        }
        self.len += 1;
    }

    /// Takes an entry out of both lists and puts it on the free one.
    fn unlink(&mut self, at: u32) {
        let Some(entry) = self.entries.get(at as usize).copied() else {
            return;
        };
        let bucket = self.bucket_of(entry.peer.index, entry.location, entry.way);
        match self.entries.get_mut(entry.bucket.previous as usize) {
            Some(previous) => previous.bucket.next = entry.bucket.next,
            None => {
                if let Some(head) = self.buckets.get_mut(bucket) {
                    *head = entry.bucket.next;
                }
            }
        }
        if let Some(next) = self.entries.get_mut(entry.bucket.next as usize) {
            next.bucket.previous = entry.bucket.previous;
        }
        match self.entries.get_mut(entry.age.previous as usize) {
            Some(previous) => previous.age.next = entry.age.next,
            None => self.latest = entry.age.next,
        }
        match self.entries.get_mut(entry.age.next as usize) {
            Some(next) => next.age.previous = entry.age.previous,
            None => self.oldest = entry.age.previous,
        }
        if let Some(entry) = self.entries.get_mut(at as usize) {
            entry.parked = false;
            entry.age.next = self.free;
        }
        self.free = at;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{U, server, upstream};
    use kp_config::model::Balancer;
    use proptest::prelude::*;

    fn settings(connections: u32) -> Keepalive {
        Keepalive {
            connections,
            local: false,
            requests: 1000,
            time: Duration::from_secs(3600),
            timeout: Duration::from_secs(60),
        }
    }

    fn pool(keepalive: Keepalive) -> Pool {
        Pool::new(&[Upstream {
            keepalive: Some(keepalive),
            ..upstream(Balancer::RoundRobin, vec![server(1, 1)])
        }])
    }

    fn peer(index: usize) -> PeerId {
        PeerId::new(U, Slot::nth(index as u32))
    }

    fn idle(index: usize, handle: u64) -> Idle {
        Idle {
            peer: peer(index),
            location: LocationId(0),
            way: 0,
            handle,
            requests: 1,
            opened_ms: 0,
            keep_alive_timeout_s: None,
        }
    }

    fn ticket(put: Put) -> Ticket {
        match put {
            Put::Kept { ticket, .. } => ticket,
            Put::Refused => panic!("refused"),
        }
    }

    fn evicted(put: Put) -> Option<u64> {
        match put {
            Put::Kept { evicted, .. } => evicted,
            Put::Refused => panic!("refused"),
        }
    }

    #[test]
    fn the_latest_is_reused_and_the_oldest_evicted() {
        let mut pool = pool(settings(3));
        for handle in [1, 2, 3] {
            assert_eq!(
                evicted(pool.put(&idle(handle as usize % 2, handle), 0)),
                None
            );
        }
        assert_eq!(pool.take(peer(1), LocationId(5), 0, 0), Some(3));
        assert_eq!(evicted(pool.put(&idle(1, 3), 0)), None);
        assert_eq!(evicted(pool.put(&idle(0, 4), 0)), Some(1));
        assert_eq!(evicted(pool.put(&idle(0, 5), 0)), Some(2));
        assert_eq!(pool.len(), 3);
        assert_eq!(pool.take(peer(0), LocationId(0), 0, 0), Some(5));
        assert_eq!(pool.take(peer(0), LocationId(0), 0, 0), Some(4));
        assert_eq!(pool.take(peer(0), LocationId(0), 0, 0), None);
    }

    #[test]
    fn local_connections_stay_with_their_location() {
        let mut pool = pool(Keepalive {
            local: true,
            ..settings(8)
        });
        pool.put(
            &Idle {
                location: LocationId(1),
                ..idle(0, 1)
            },
            0,
        );
        pool.put(
            &Idle {
                location: LocationId(2),
                ..idle(0, 2)
            },
            0,
        );
        assert_eq!(pool.take(peer(0), LocationId(3), 0, 0), None);
        assert_eq!(pool.take(peer(0), LocationId(1), 0, 0), Some(1));
        assert_eq!(pool.take(peer(0), LocationId(1), 0, 0), None);
        assert_eq!(pool.take(peer(0), LocationId(2), 0, 0), Some(2));
    }

    #[test]
    fn connections_of_different_tls_are_never_mixed() {
        let mut pool = pool(settings(8));
        for (way, handle) in [(7, 1), (8, 2), (0, 3)] {
            pool.put(
                &Idle {
                    way,
                    ..idle(0, handle)
                },
                0,
            );
        }
        for (way, handle) in [
            (9, None),
            (7, Some(1)),
            (7, None),
            (0, Some(3)),
            (8, Some(2)),
        ] {
            assert_eq!(pool.take(peer(0), LocationId(0), way, 0), handle, "{way}");
        }
    }

    #[test]
    fn removal_is_by_ticket_and_handle() {
        let mut pool = pool(settings(4));
        let (first, second) = (
            ticket(pool.put(&idle(0, 1), 0)),
            ticket(pool.put(&idle(0, 2), 0)),
        );
        assert!(!pool.remove(peer(0), first, 2));
        assert!(pool.remove(peer(0), first, 1) && !pool.remove(peer(0), first, 1));
        let third = ticket(pool.put(&idle(0, 3), 0));
        assert_eq!(third, first, "places are used again");
        assert!(
            !pool.remove(peer(0), first, 1),
            "a name of the past removes nothing"
        );
        assert!(pool.remove(peer(0), second, 2));
        assert_eq!(pool.take(peer(0), LocationId(0), 0, 0), Some(3));
    }

    #[test]
    fn limits_are_kept() {
        let mut pool = pool(settings(4));
        assert_eq!(
            pool.put(
                &Idle {
                    requests: 1000,
                    ..idle(0, 1)
                },
                0
            ),
            Put::Refused
        );
        assert!(matches!(
            pool.put(
                &Idle {
                    requests: 999,
                    ..idle(0, 1)
                },
                0
            ),
            Put::Kept {
                deadline_ms: 60_000,
                ..
            }
        ));
        assert!(matches!(pool.put(&idle(0, 2), 3_600_000), Put::Kept { .. }));
        assert_eq!(pool.put(&idle(0, 3), 3_600_001), Put::Refused);
    }

    #[test]
    fn reuse_stops_a_second_before_the_upstreams_timeout() {
        let mut pool = pool(settings(4));
        let with = |seconds| Idle {
            keep_alive_timeout_s: Some(seconds),
            ..idle(0, 1)
        };
        assert_eq!(pool.put(&with(0), 0), Put::Refused);
        assert_eq!(pool.put(&with(1), 0), Put::Refused);
        assert!(matches!(
            pool.put(&with(5), 0),
            Put::Kept {
                deadline_ms: 4000,
                ..
            }
        ));
        assert_eq!(pool.take(peer(0), LocationId(0), 0, 4000), None);
        assert_eq!(pool.take(peer(0), LocationId(0), 0, 3999), Some(1));
        assert!(matches!(
            pool.put(&with(3600), 0),
            Put::Kept {
                deadline_ms: 60_000,
                ..
            }
        ));
    }

    #[test]
    fn groups_without_keepalive_keep_nothing() {
        for keepalive in [None, Some(settings(0))] {
            let mut pool = Pool::new(&[Upstream {
                keepalive,
                ..upstream(Balancer::RoundRobin, vec![server(1, 1)])
            }]);
            assert!(!pool.is_kept(peer(0)));
            assert_eq!(pool.put(&idle(0, 1), 0), Put::Refused);
            assert_eq!(pool.take(peer(0), LocationId(0), 0, 0), None);
        }
    }

    #[test]
    fn draining_empties_it() {
        let mut pool = pool(settings(8));
        for handle in 0..5 {
            pool.put(&idle(handle as usize, handle), 0);
        }
        pool.take(peer(2), LocationId(0), 0, 0);
        assert_eq!((pool.drain(), pool.is_empty()), (vec![0, 1, 3, 4], true));
        assert_eq!(pool.take(peer(0), LocationId(0), 0, 0), None);
        pool.put(&idle(0, 9), 0);
        assert_eq!(pool.take(peer(0), LocationId(0), 0, 0), Some(9));
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_list(
            connections in 1..6u32,
            local in any::<bool>(),
            steps in prop::collection::vec((0..3u8, 0..3usize, 0..3u32, 0..8usize), 1..300),
        ) {
            let mut pool = pool(Keepalive { local, ..settings(connections) });
            let mut list: Vec<(usize, u32, u64, Ticket)> = Vec::new();
            for (number, (step, index, location, which)) in steps.into_iter().enumerate() {
                let key = LocationId(location);
                match step {
                    0 => {
                        let handle = number as u64;
                        let put = pool.put(&Idle { location: key, ..idle(index, handle) }, 0);
                        let oldest = (list.len() == connections as usize).then(|| list.remove(0).2);
                        prop_assert_eq!(evicted(put), oldest);
                        list.push((index, location, handle, ticket(put)));
                    }
                    1 => {
                        let fits = |entry: &(usize, u32, u64, Ticket)| entry.0 == index && (!local || entry.1 == location);
                        let expected = list.iter().rposition(fits).map(|at| list.remove(at).2);
                        prop_assert_eq!(pool.take(peer(index), key, 0, 0), expected);
                    }
                    _ if which < list.len() => {
                        let (index, _, handle, ticket) = list.remove(which);
                        prop_assert!(pool.remove(peer(index), ticket, handle));
                    }
                    _ => {}
                }
                prop_assert_eq!(pool.len(), list.len());
            }
            prop_assert!(pool.groups[0].as_ref().is_some_and(|group| group.entries.len() <= connections as usize));
        }
    }
}
