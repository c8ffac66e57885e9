//! Names of `resolve` servers. What they resolve to lies in shared memory: one process asks, all know, and it outlives
//! reloads and whoever asked.
//!
//! Decides who asks (the holder of the name's lease, who keeps it as long as it lives) and what becomes of an answer: good
//! addresses are replaced by good ones only, whatever the name servers say (B05). One line is logged for each change from
//! answers to failures and back, by the process that saw it.

use super::asking::Purpose;
use super::{FIRST_ANSWER_MS, PEEK_MS, random};
use crate::reactor::Worker;
use crate::token::Key;
use kp_config::Config;
use kp_config::model::{Balancer, PeerAddress, ResolveName, Resolver, Upstream, UpstreamId};
use kp_config::overrides::Resolved;
use kp_dns::{ADDRESSES_MAX, HOSTS_MAX, HostName, Outcome, Reason, Wanted, lifetime_ms};
use kp_shm::{Claimant, NameAddress, NameRow, Shm};
use kp_upstream::Member;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long a lease holds without being prolonged.
const LEASE_MS: u64 = 3000;
/// How often one that asks prolongs it, and the others look.
const LOOK_MS: u64 = 500;
/// Who did not ask the last time lets the one who did go first.
const GRACE_MS: u64 = 100;
/// Silence of so long is said in the log, while the lookup goes on.
const SILENCE_MS: u64 = 2000;
/// How long an answer of the system's own files holds, and a failure.
const FILES_S: u32 = 2;
const FAILED_S: u32 = 1;
/// What a lookup could not ask for is asked for again after so long at most, however long the rest holds.
const MISSING_S: u32 = 10;
/// How often it is said that a row is needed.
const STAMP_MS: u64 = 60_000;
/// In a row's state: the last lookup found something.
const GOOD: u64 = 1;

/// A server line that a name stands in.
#[derive(Debug, Clone, Copy)]
struct User {
    upstream: UpstreamId,
    line: usize,
    port: u16,
}

/// A name, and who uses it.
#[derive(Debug)]
pub(super) struct Shared {
    name: HostName,
    wanted: Wanted,
    resolver: &'static Resolver,
    timeout: Duration,
    users: Vec<User>,
    key: kp_shm::Key,
    row: NameRow,
    /// The version of the addresses that the groups have.
    version: u64,
    lookup: Option<Key>,
    /// When to look at it again.
    pub(super) wake_ms: u64,
    /// Exchanges of a group that has no address yet.
    waiting: Vec<Key>,
}

impl super::Names {
    /// Takes out whoever waits for the first addresses of this group.
    pub(crate) fn waiting_for(&mut self, upstream: UpstreamId) -> Vec<Key> {
        let of_group =
            |shared: &&mut Shared| shared.users.iter().any(|user| user.upstream == upstream);
        let names = self.shared.iter_mut().filter(of_group);
        names
            .flat_map(|shared| std::mem::take(&mut shared.waiting))
            .collect()
    }
}

/// The addresses that server lines with `resolve` have now, for who is no worker.
pub fn resolved(config: &Config, shm: &Shm, now_ms: u64) -> Resolved {
    let mut resolved = Resolved::new();
    for (user, resolver, name) in lines(config) {
        let Some(host) = host_name(name) else {
            continue;
        };
        let row = shm.names().claim_shared(key(name, &host, resolver), now_ms);
        let known = row.and_then(|row| row.read());
        let upstream = config.http.upstreams.get(user.upstream.index());
        if let (Some((_, addresses)), Some(upstream)) = (known, upstream) {
            let members = members(upstream, user, &addresses).into_iter();
            let addresses = members.map(|member| member.address).collect();
            resolved.insert((user.upstream.index(), user.line), addresses);
        }
    }
    resolved
}

impl Worker {
    /// Finds the rows of all names and gives the groups what is known, before anything is served.
    pub(crate) fn learn_names(&mut self) {
        let now_ms = self.clock.mono_ms;
        let mut known: HashMap<kp_shm::Key, usize> = HashMap::new();
        for (user, resolver, name) in lines(self.config) {
            let Some(host) = host_name(name) else {
                continue;
            };
            let key = key(name, &host, resolver);
            if let Some(shared) = known
                .get(&key)
                .and_then(|at| self.names.shared.get_mut(*at))
            {
                shared.users.push(user);
                continue;
            }
            known.insert(key, self.names.shared.len());
            let upstream = &self.config.http.upstreams[user.upstream.index()];
            self.names.shared.push(Shared {
                name: host,
                wanted: Wanted {
                    ipv4: resolver.ipv4,
                    ipv6: resolver.ipv6,
                    service: name.service.is_some(),
                },
                resolver,
                timeout: upstream.resolver_timeout,
                users: vec![user],
                key,
                row: self.shm.names().claim(key, now_ms),
                version: 0,
                lookup: None,
                wake_ms: now_ms,
                waiting: Vec::new(),
            });
        }
        if !self.names.shared.is_empty() {
            self.names.due_ms = now_ms;
            self.names.stamp_ms = now_ms + STAMP_MS;
            self.take_shared();
        }
    }

    /// Gives the groups the addresses that changed, closes idle connections of those that are gone, and wakes who waits.
    pub(super) fn take_shared(&mut self) {
        // Before the rows: what changes meanwhile is seen the next time.
        self.names.epoch = self.shm.names().epoch();
        for index in 0..self.names.shared.len() {
            let Some(shared) = self.names.shared.get_mut(index) else {
                return;
            };
            let changed = shared.row.version() != shared.version;
            let news = match changed.then(|| shared.row.read()).flatten() {
                Some((version, addresses)) => {
                    shared.version = version;
                    Some(addresses)
                }
                _ => None,
            };
            let waiting = match shared.row.state() {
                0 if shared.version == 0 => Vec::new(),
                _ => std::mem::take(&mut shared.waiting),
            };
            if let Some(addresses) = news {
                for user in shared.users.clone() {
                    self.set_members(user, &addresses);
                }
                self.sync_probes();
            }
            for key in waiting {
                self.wake(key);
            }
        }
    }

    fn set_members(&mut self, user: User, addresses: &[NameAddress]) {
        let upstream = &self.config.http.upstreams[user.upstream.index()];
        let members = members(upstream, user, addresses);
        let now_ms = self.clock.mono_ms;
        let gone = self
            .groups
            .set_members(user.upstream, user.line, &members, now_ms);
        for peer in gone {
            for handle in self.pool.evict(peer) {
                self.close_pooled(handle);
            }
        }
    }

    /// The moment until which an exchange waits for the first answer about its group; `None`: there is none to come.
    pub(crate) fn first_answer(&mut self, upstream: UpstreamId, waiting: Key) -> Option<u64> {
        if self.groups.tries(upstream) > 0 {
            return None;
        }
        let now_ms = self.clock.mono_ms;
        let names = self.names.shared.iter_mut();
        let mut awaited = names.filter(|shared| {
            shared.users.iter().any(|user| user.upstream == upstream)
                && shared.version == 0
                && shared.row.state() == 0
        });
        let first = awaited.next()?;
        first.waiting.push(waiting);
        // Another process's answer is seen when this one looks.
        first.wake_ms = first.wake_ms.min(now_ms + PEEK_MS);
        self.names.due_ms = self.names.due_ms.min(first.wake_ms);
        Some(now_ms + FIRST_ANSWER_MS)
    }

    /// Looks names up whose time has come, where it is this process's turn.
    pub(super) fn look_up_shared(&mut self) {
        let now_ms = self.clock.mono_ms;
        let stamp = now_ms >= self.names.stamp_ms;
        if stamp {
            self.names.stamp_ms = now_ms + STAMP_MS;
        }
        let me = Claimant::new(self.row, self.pid);
        for index in 0..self.names.shared.len() {
            if stamp {
                self.stamp_shared(index);
            }
            let Some(shared) = self.names.shared.get_mut(index) else {
                return;
            };
            if now_ms < shared.wake_ms {
                continue;
            }
            if self.drain.is_some() {
                // The successor's, or nobody's any more.
                shared.wake_ms = u64::MAX;
                continue;
            }
            shared.wake_ms = match shared.waiting.is_empty() {
                true => now_ms + LOOK_MS,
                false => now_ms + PEEK_MS,
            };
            let lease = shared.row.lease();
            if let Some(lookup) = shared.lookup {
                if lease.take(me, now_ms, now_ms + LEASE_MS) {
                    self.say_silence(index, lookup);
                } else {
                    // Stopped for so long that another process asks now.
                    shared.lookup = None;
                    self.cancel_lookup(lookup);
                }
                continue;
            }
            let mine = lease.holder().is_none_or(|holder| holder == me);
            let turn_ms = shared.row.due_ms() + if mine { 0 } else { GRACE_MS };
            if now_ms < turn_ms {
                shared.wake_ms = turn_ms;
            } else if lease.take(me, now_ms, now_ms + LEASE_MS) && shared.row.due_ms() <= now_ms {
                self.look_up(index);
            }
        }
    }

    fn stamp_shared(&mut self, index: usize) {
        let (now_ms, names) = (self.clock.mono_ms, self.shm.names());
        if let Some(shared) = self.names.shared.get_mut(index) {
            if !shared.row.is_mine() {
                shared.row = names.claim(shared.key, now_ms);
                shared.version = 0;
            }
            shared.row.stamp(now_ms);
        }
    }

    fn look_up(&mut self, index: usize) {
        let now_ms = self.clock.mono_ms;
        let Some(shared) = self.names.shared.get(index) else {
            return;
        };
        let (name, wanted, timeout) = (shared.name.clone(), shared.wanted, shared.timeout);
        if !wanted.service {
            let known = self.names.system.hosts(name.as_str(), now_ms);
            let usable = |address: &&IpAddr| match address {
                IpAddr::V4(_) => wanted.ipv4,
                IpAddr::V6(_) => wanted.ipv6,
            };
            let known: Vec<IpAddr> = known.iter().filter(usable).copied().collect();
            if !known.is_empty() {
                return self.shared_over(index, &Outcome::of_files(known, FILES_S));
            }
        }
        let servers = shared.resolver.servers.clone();
        let lookup = self.begin_lookup(name, wanted, servers, timeout, Purpose::Shared(index));
        // It may be over already.
        if self.names.lookups.peek(lookup).is_some()
            && let Some(shared) = self.names.shared.get_mut(index)
        {
            shared.lookup = Some(lookup);
        }
    }

    fn say_silence(&mut self, index: usize, lookup: Key) {
        let running = self.names.lookups.peek(lookup);
        let silent = |started_ms: u64| self.clock.mono_ms.saturating_sub(started_ms) >= SILENCE_MS;
        if running.is_some_and(|running| silent(running.started_ms)) {
            self.failed(index, Reason::TimedOut);
        }
    }

    /// A lookup is over.
    pub(super) fn shared_over(&mut self, index: usize, outcome: &Outcome) {
        let now_ms = self.clock.mono_ms;
        let me = Claimant::new(self.row, self.pid);
        let Some(shared) = self.names.shared.get_mut(index) else {
            return;
        };
        shared.lookup = None;
        let holds_ms = match outcome.reason {
            None if outcome.missing.is_empty() => {
                lifetime_ms(outcome.ttl_s, shared.resolver.valid, random())
            }
            None => lifetime_ms(outcome.ttl_s.min(MISSING_S), None, random()),
            Some(_) => lifetime_ms(FAILED_S, None, random()),
        };
        let due_ms = now_ms + holds_ms;
        let row = shared.row;
        row.set_due_ms(due_ms);
        shared.wake_ms = due_ms;
        // Whoever else has it by now has it by right.
        row.lease().take(me, now_ms, due_ms);
        match outcome.reason {
            Some(reason) => self.failed(index, reason),
            None => self.resolved(index, outcome),
        }
    }

    fn resolved(&mut self, index: usize, outcome: &Outcome) {
        let Some(shared) = self.names.shared.get(index) else {
            return;
        };
        let row = shared.row;
        let (version, old) = row.read().unwrap_or_else(|| (row.version(), Vec::new()));
        let addresses = merged(outcome, &old);
        if addresses != old {
            row.publish(version, &addresses);
            if outcome.cut || addresses.len() > ADDRESSES_MAX {
                log::warn!(
                    "{} has more addresses or hosts than are used: at most {ADDRESSES_MAX} addresses of {HOSTS_MAX} hosts",
                    shared.name
                );
            }
        }
        if row.replace_state(GOOD) > GOOD {
            let (groups, name) = (self.groups_of(index), &shared.name);
            log::info!(target: "notice", "{name} of upstream {groups} resolves again");
        }
    }

    /// Nothing was found: what was good stays. Each new reason is said once.
    fn failed(&mut self, index: usize, reason: Reason) {
        let Some(shared) = self.names.shared.get(index) else {
            return;
        };
        let state = reason.to_word();
        if shared.row.replace_state(state) == state {
            return;
        }
        let known = shared
            .row
            .read()
            .map_or(0, |(_, addresses)| addresses.len());
        let (groups, name) = (self.groups_of(index), &shared.name);
        let rest = match known {
            0 => "it has no address yet".to_owned(),
            1 => "the address it had stays in use".to_owned(),
            many => format!("the {many} addresses it had stay in use"),
        };
        log::warn!(
            "{name} could not be resolved ({}: {}) in upstream {groups}, {rest}",
            reason.code(),
            reason.text()
        );
    }

    fn groups_of(&self, index: usize) -> String {
        let users = self
            .names
            .shared
            .get(index)
            .map(|shared| shared.users.as_slice());
        let mut names: Vec<String> = users
            .unwrap_or_default()
            .iter()
            .filter_map(|user| self.config.http.upstreams.get(user.upstream.index()))
            .map(|upstream| format!("\"{}\"", upstream.name))
            .collect();
        names.dedup();
        names.join(", ")
    }

    /// Another generation asks from here on, at once.
    pub(crate) fn leave_names(&mut self) {
        let me = Claimant::new(self.row, self.pid);
        for index in 0..self.names.shared.len() {
            let Some(shared) = self.names.shared.get_mut(index) else {
                return;
            };
            let (lookup, lease) = (shared.lookup.take(), shared.row.lease());
            if let Some(lookup) = lookup {
                self.cancel_lookup(lookup);
            }
            lease.release(me);
        }
    }
}

/// The server lines whose names are looked up while kp runs.
fn lines(config: &Config) -> impl Iterator<Item = (User, &Resolver, &ResolveName)> {
    let groups = (0..).map(UpstreamId).zip(&config.http.upstreams);
    groups.flat_map(|(id, upstream)| {
        let servers = upstream.servers.iter().enumerate();
        servers.filter_map(move |(line, server)| {
            let name = server.resolve.as_ref()?;
            let user = User {
                upstream: id,
                line,
                port: name.port,
            };
            Some((user, upstream.resolver.as_ref()?, name))
        })
    })
}

fn host_name(name: &ResolveName) -> Option<HostName> {
    match &name.service {
        Some(service) => HostName::of_service(service, &name.host),
        None => HostName::new(&name.host),
    }
}

/// What makes two names one: the same question to the same servers.
fn key(name: &ResolveName, host: &HostName, resolver: &Resolver) -> kp_shm::Key {
    let mut parts = vec![
        "name".to_owned(),
        host.as_str().to_owned(),
        name.service.is_some().to_string(),
        resolver.ipv4.to_string(),
        resolver.ipv6.to_string(),
        format!("{:?}", resolver.valid),
    ];
    parts.extend(resolver.servers.iter().map(SocketAddr::to_string));
    let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
    kp_shm::Key::of(&parts)
}

/// The peers of a server line. Of a service the hosts with the lowest priority come first and the others are backups.
fn members(upstream: &Upstream, user: User, addresses: &[NameAddress]) -> Vec<Member> {
    let line = upstream.servers.get(user.line);
    let service = line
        .and_then(|line| line.resolve.as_ref())
        .is_some_and(|name| name.service.is_some());
    let backup = line.is_some_and(|line| line.backup);
    let knows_backups = matches!(
        upstream.balancer,
        Balancer::RoundRobin | Balancer::LeastConn
    );
    let first = addresses.iter().map(|address| address.priority).min();
    let behind = |address: &NameAddress| service && Some(address.priority) != first;
    let used = addresses
        .iter()
        .filter(|address| knows_backups || !behind(address));
    used.map(|address| {
        let port = if service { address.port } else { user.port };
        Member {
            address: PeerAddress::Inet(SocketAddr::new(address.address, port)),
            weight: address.weight.into(),
            backup: backup || behind(address),
        }
    })
    .collect()
}

/// What was found, and of what was known that which the failure of a question may have hidden.
fn merged(outcome: &Outcome, old: &[NameAddress]) -> Vec<NameAddress> {
    let mut addresses: Vec<NameAddress> = outcome
        .found
        .iter()
        .map(|found| NameAddress {
            address: found.address,
            port: found.port,
            weight: found.weight,
            priority: found.priority,
            host: found.host,
        })
        .collect();
    let hidden = |address: &&NameAddress| outcome.hides(address.host, address.address);
    for address in old.iter().filter(hidden) {
        let place = (address.address, address.port);
        if !addresses
            .iter()
            .any(|known| (known.address, known.port) == place)
        {
            addresses.push(*address);
        }
    }
    // One answer is one text, in whatever order it came.
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests;
