//! All questions of one name: both families of addresses, or a service and then the addresses of its hosts.
//!
//! Decides when a lookup is over and what it found. A family that answered is not held up for long by one that does not.

use crate::message::{Kind, ServiceHost};
use crate::name::HostName;
use crate::question::{Answer, Order, Question, World};
use crate::reason::Reason;
use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long something that was found waits for the rest; of a service there is more to wait for.
const PATIENCE_MS: u64 = 500;
const SERVICE_PATIENCE_MS: u64 = 1500;
/// Hosts of a service that are looked up.
pub const HOSTS_MAX: usize = 32;
/// Addresses that are found at most.
pub const ADDRESSES_MAX: usize = 64;

/// What is wanted of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// IPv4 addresses.
    pub ipv4: bool,
    /// IPv6 addresses.
    pub ipv6: bool,
    /// The name is one of a service (SRV).
    pub service: bool,
}

/// One address that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Found {
    /// The address.
    pub address: IpAddr,
    /// The port of a service; 0: none was said.
    pub port: u16,
    /// The weight of a service's host; 0: none was said.
    pub weight: u16,
    /// The priority of a service's host: the lowest comes first.
    pub priority: u16,
    /// The service's host whose address it is, as twelve bits made of its name; 0: it is no service's.
    pub host: u16,
}

/// What came of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What was found, sorted; empty: the name has no addresses, or nobody said.
    pub found: Vec<Found>,
    /// How long it holds, as the answers say.
    pub ttl_s: u32,
    /// Why nothing was found.
    pub reason: Option<Reason>,
    /// Of whom addresses are not among what was found because the question failed, not because there are none.
    pub missing: Vec<Missing>,
    /// There were more addresses, or more hosts, than are used.
    pub cut: bool,
}

/// Addresses that a lookup could not ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// As [`Found::host`].
    pub host: u16,
    /// IPv4 or IPv6.
    pub ipv4: bool,
}

#[derive(Debug)]
struct Part {
    question: Question,
    /// Whose addresses they are, if a service's.
    host: Option<ServiceHost>,
}

/// A lookup under way.
#[derive(Debug)]
pub struct Lookup {
    servers: Vec<SocketAddr>,
    wanted: Wanted,
    parts: Vec<Part>,
    end_ms: u64,
    first_server: usize,
    ttl_s: u32,
    cut: bool,
}

impl Lookup {
    /// A lookup of a name that nobody has been asked for yet; the first [`Lookup::pass`] does. Which server comes first is
    /// the caller's choice.
    pub fn new(
        name: HostName,
        wanted: Wanted,
        servers: Vec<SocketAddr>,
        first_server: usize,
        timeout: Duration,
        now_ms: u64,
    ) -> Self {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let mut lookup = Self {
            servers,
            wanted,
            parts: Vec::new(),
            end_ms: now_ms.saturating_add(timeout_ms),
            first_server,
            ttl_s: u32::MAX,
            cut: false,
        };
        if wanted.service {
            lookup.add(&name, Kind::Srv, None);
        } else {
            lookup.add_families(&name, None);
        }
        lookup
    }

    fn add(&mut self, name: &HostName, kind: Kind, host: Option<ServiceHost>) {
        self.parts.push(Part {
            question: Question::new(name.clone(), kind, self.first_server),
            host,
        });
    }

    fn add_families(&mut self, name: &HostName, host: Option<&ServiceHost>) {
        if self.wanted.ipv4 {
            self.add(name, Kind::A, host.cloned());
        }
        if self.wanted.ipv6 {
            self.add(name, Kind::Aaaa, host.cloned());
        }
    }

    /// When [`Lookup::pass`] has something to do; `u64::MAX` when it is over.
    pub fn due_ms(&self) -> u64 {
        if self.is_over() {
            return u64::MAX;
        }
        let parts = self.parts.iter().map(|part| part.question.due_ms());
        parts.min().unwrap_or(u64::MAX).min(self.end_ms)
    }

    /// Time passed: asks, asks again, gives up.
    pub fn pass(
        &mut self,
        now_ms: u64,
        serial: &mut u32,
        random: &mut dyn FnMut() -> u16,
        orders: &mut Vec<Order>,
    ) {
        self.each(now_ms, serial, random, orders, |question, world, end_ms| {
            if world.now_ms >= end_ms {
                question.give_up(world);
            } else {
                question.ask(world);
            }
        });
    }

    /// Bytes came back for an attempt; from TCP without their length.
    pub fn heard(
        &mut self,
        attempt: u32,
        bytes: &[u8],
        now_ms: u64,
        serial: &mut u32,
        random: &mut dyn FnMut() -> u16,
        orders: &mut Vec<Order>,
    ) {
        self.each(now_ms, serial, random, orders, |question, world, _| {
            if question.owns(attempt) {
                question.heard(attempt, bytes, world);
            }
        });
        self.proceed(now_ms);
        self.pass(now_ms, serial, random, orders);
    }

    /// An attempt came to nothing: refused, reset, ended early.
    pub fn failed(
        &mut self,
        attempt: u32,
        now_ms: u64,
        serial: &mut u32,
        random: &mut dyn FnMut() -> u16,
        orders: &mut Vec<Order>,
    ) {
        self.each(now_ms, serial, random, orders, |question, world, _| {
            if question.owns(attempt) {
                question.failed(attempt, world);
            }
        });
    }

    /// Gives up at once and closes everything.
    pub fn cancel(&mut self, orders: &mut Vec<Order>) {
        self.each(0, &mut 0, &mut || 0, orders, |question, world, _| {
            question.give_up(world);
        });
    }

    fn each(
        &mut self,
        now_ms: u64,
        serial: &mut u32,
        random: &mut dyn FnMut() -> u16,
        orders: &mut Vec<Order>,
        mut act: impl FnMut(&mut Question, &mut World<'_>, u64),
    ) {
        let mut world = World {
            servers: &self.servers,
            now_ms,
            random,
            serial,
            orders,
        };
        for part in &mut self.parts {
            act(&mut part.question, &mut world, self.end_ms);
        }
    }

    /// A service's hosts became known, or what is known need not wait long for the rest.
    fn proceed(&mut self, now_ms: u64) {
        let service = self
            .parts
            .first()
            .filter(|part| part.question.kind() == Kind::Srv);
        if let Some(Answer::Hosts(hosts)) = service.and_then(|part| part.question.answer()) {
            let mut hosts = hosts.clone();
            // Those that matter most, and the same ones each time.
            let rank = |host: &ServiceHost| (host.priority, Reverse(host.weight), host.port);
            hosts.sort_by(|a, b| (rank(a), a.target.as_str()).cmp(&(rank(b), b.target.as_str())));
            hosts.dedup();
            self.cut |= hosts.len() > HOSTS_MAX;
            hosts.truncate(HOSTS_MAX);
            self.ttl_s = self
                .parts
                .first()
                .map_or(u32::MAX, |part| part.question.ttl_s());
            self.parts.clear();
            for host in &hosts {
                self.add_families(&host.target, Some(host));
            }
        }
        let found = |part: &Part| matches!(part.question.answer(), Some(Answer::Addresses(_)));
        if self.parts.iter().any(found) {
            let patience_ms = match self.wanted.service {
                true => SERVICE_PATIENCE_MS,
                false => PATIENCE_MS,
            };
            self.end_ms = self.end_ms.min(now_ms.saturating_add(patience_ms));
        }
    }

    fn is_over(&self) -> bool {
        self.parts
            .iter()
            .all(|part| part.question.answer().is_some())
    }

    /// What came of it, when it is over.
    pub fn outcome(&self) -> Option<Outcome> {
        if !self.is_over() {
            return None;
        }
        let mut outcome = Outcome {
            found: Vec::new(),
            ttl_s: self.ttl_s,
            reason: None,
            missing: Vec::new(),
            cut: self.cut,
        };
        for Part { question, host } in &self.parts {
            match question.answer() {
                Some(Answer::Addresses(addresses)) => {
                    outcome.ttl_s = outcome.ttl_s.min(question.ttl_s());
                    let found = addresses
                        .iter()
                        .map(|address| found(*address, host.as_ref()));
                    outcome.found.extend(found);
                }
                Some(Answer::Nothing(reason)) => {
                    outcome.note_missing(question.kind(), host.as_ref(), *reason);
                }
                Some(Answer::Hosts(_)) | None => {}
            }
        }
        // The addresses of the first hosts come before those of the spare ones, should there be too many.
        outcome
            .found
            .sort_unstable_by_key(|found| (found.priority, *found));
        outcome.found.dedup();
        outcome.cut |= outcome.found.len() > ADDRESSES_MAX;
        outcome.found.truncate(ADDRESSES_MAX);
        self.note_hosts_without_address(&mut outcome);
        outcome.reason = match outcome.found.is_empty() {
            true => outcome.reason.or(Some(Reason::NoAddress)),
            false => None,
        };
        Some(outcome)
    }

    /// A service that still names a host means it: what was good about the host stays, whatever is said about its name now.
    fn note_hosts_without_address(&self, outcome: &mut Outcome) {
        for part in &self.parts {
            let number = host_number(part.host.as_ref());
            if number == 0 || outcome.found.iter().any(|found| found.host == number) {
                continue;
            }
            for ipv4 in [true, false] {
                outcome.missing.push(Missing { host: number, ipv4 });
            }
        }
    }
}

impl Outcome {
    /// A question found nothing. A failure weighs more than a denial, and a denial more than an empty answer.
    fn note_missing(&mut self, kind: Kind, host: Option<&ServiceHost>, reason: Reason) {
        if !reason.is_answer() {
            let families = [(true, Kind::Aaaa), (false, Kind::A)];
            for (ipv4, _) in families.iter().filter(|(_, other)| kind != *other) {
                self.missing.push(Missing {
                    host: host_number(host),
                    ipv4: *ipv4,
                });
            }
        }
        let weight = |reason: Reason| match reason {
            Reason::NoAddress => 0,
            Reason::NotFound => 1,
            _ => 2,
        };
        let heavier = |known| weight(reason) > weight(known);
        if self.reason.is_none_or(heavier) {
            self.reason = Some(reason);
        }
    }
}

fn found(address: IpAddr, host: Option<&ServiceHost>) -> Found {
    Found {
        address,
        port: host.map_or(0, |host| host.port),
        weight: host.map_or(0, |host| host.weight),
        priority: host.map_or(0, |host| host.priority),
        host: host_number(host),
    }
}

/// Twelve bits that are the same for the same host in every process, and hardly ever for two hosts of a service; never 0.
fn host_number(host: Option<&ServiceHost>) -> u16 {
    let Some(host) = host else {
        return 0;
    };
    let bytes = host.target.as_str().bytes().chain(host.port.to_be_bytes());
    // FNV-1a, folded.
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let folded = (hash ^ hash >> 12 ^ hash >> 24) & 0xfff;
    u16::try_from(folded).unwrap_or(1).max(1)
}

impl Outcome {
    /// Whether an address that was known is not among what was found only because nobody could be asked for it.
    pub fn hides(&self, host: u16, address: IpAddr) -> bool {
        self.missing.contains(&Missing {
            host,
            ipv4: address.is_ipv4(),
        })
    }

    /// What the system's own files say.
    pub fn of_files(addresses: Vec<IpAddr>, ttl_s: u32) -> Self {
        let found = addresses.into_iter().map(|address| found(address, None));
        Self {
            found: found.collect(),
            ttl_s,
            reason: None,
            missing: Vec::new(),
            cut: false,
        }
    }
}

#[cfg(test)]
mod tests;
