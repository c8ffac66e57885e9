//! Names that a `proxy_pass` with variables evaluated to, as this worker knows them.
//!
//! Decides who waits for a name, for how long an answer holds, and which of its addresses comes next. The cache is
//! bounded: what clients make of a variable must not fill memory.

use super::asking::Purpose;
use super::random;
use crate::active::Active;
use crate::reactor::Worker;
use crate::token::Key;
use kp_config::model::Resolver;
use kp_dns::{HostName, Outcome, Reason, Wanted, lifetime_ms};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Names that are remembered.
const NAMES_MAX: usize = 1024;
/// How long "there is no such name" holds at most: new names are soon found.
const DENIED_S: u32 = 2;
/// How long what the system's own files say holds.
const FILES_S: u32 = 2;
/// The lookup knows better than the clock of who waits for it when the time is up.
const SLACK_MS: u64 = 200;

/// A name, and whom it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    host: String,
    resolver: Option<&'static Resolver>,
}

#[derive(Debug)]
enum State {
    /// A lookup is under way, and these wait for it.
    Asking(Vec<Key>),
    /// It has these addresses.
    Found,
    /// It has none.
    Failed(Reason),
}

#[derive(Debug)]
struct Entry {
    state: State,
    until_ms: u64,
    used_ms: u64,
    /// The addresses that were found last.
    addresses: Vec<IpAddr>,
    /// Where the next request begins among them.
    turn: usize,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Asked, Entry>,
}

/// Where a name is.
#[derive(Debug)]
pub(crate) enum Located {
    /// At this address, one of so many.
    At(IpAddr, u32),
    /// Nobody knows yet; until then at most.
    Wait(u64),
    /// Nowhere.
    Failed(Reason),
}

impl Cache {
    /// Makes room for a name; `false`: there is none.
    fn make_room(&mut self, now_ms: u64) -> bool {
        if self.entries.len() < NAMES_MAX {
            return true;
        }
        let asking = |entry: &Entry| matches!(entry.state, State::Asking(_));
        self.entries
            .retain(|_, entry| asking(entry) || now_ms < entry.until_ms);
        if self.entries.len() < NAMES_MAX {
            return true;
        }
        let idle = self.entries.iter().filter(|(_, entry)| !asking(entry));
        let oldest = idle.min_by_key(|(_, entry)| entry.used_ms);
        let oldest = oldest.map(|(asked, _)| asked.clone());
        oldest.is_some_and(|asked| self.entries.remove(&asked).is_some())
    }
}

impl Worker {
    /// Finds an address for an exchange whose `proxy_pass` evaluated to a name.
    pub(crate) fn locate(&mut self, active: &mut Active, host: &str) -> Located {
        let location = self.location(active.exchange.location);
        let (resolver, timeout) = (location.resolver.as_ref(), location.resolver_timeout);
        let now_ms = self.clock.mono_ms;
        let asked = Asked {
            host: host.to_owned(),
            resolver,
        };
        let retry = active.exchange.machine.tries > 0;
        let wait_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX / 2) + SLACK_MS;
        if let Some(entry) = self.names.cache.entries.get_mut(&asked) {
            entry.used_ms = now_ms;
            match &mut entry.state {
                // Who is on the way through the addresses goes on.
                _ if retry && !entry.addresses.is_empty() => return entry.next(active, true),
                State::Found if now_ms < entry.until_ms => return entry.next(active, false),
                State::Failed(reason) if now_ms < entry.until_ms => {
                    return Located::Failed(*reason);
                }
                State::Asking(waiting) => {
                    waiting.push(active.key);
                    return Located::Wait(now_ms.saturating_add(wait_ms));
                }
                State::Found | State::Failed(_) => {}
            }
        }
        self.ask_for(&asked, active.key, timeout);
        match self.names.cache.entries.get_mut(&asked) {
            // The system's own files knew it.
            Some(entry) if matches!(entry.state, State::Found) => entry.next(active, false),
            Some(Entry {
                state: State::Failed(reason),
                ..
            }) => Located::Failed(*reason),
            Some(_) => Located::Wait(now_ms.saturating_add(wait_ms)),
            None => Located::Failed(Reason::ServerFailure),
        }
    }

    fn ask_for(&mut self, asked: &Asked, waiting: Key, timeout: Duration) {
        let now_ms = self.clock.mono_ms;
        if !self.names.cache.entries.contains_key(asked) && !self.names.cache.make_room(now_ms) {
            return;
        }
        let fresh = Entry {
            state: State::Asking(Vec::new()),
            until_ms: 0,
            used_ms: now_ms,
            addresses: Vec::new(),
            turn: random() as usize,
        };
        let entries = &mut self.names.cache.entries;
        let entry = entries.entry(asked.clone()).or_insert(fresh);
        entry.state = State::Asking(vec![waiting]);
        let Some(name) = HostName::new(&asked.host) else {
            entry.state = State::Failed(Reason::NotFound);
            entry.until_ms = u64::MAX;
            return;
        };
        let families = asked
            .resolver
            .map_or((true, true), |one| (one.ipv4, one.ipv6));
        let usable = |address: &&IpAddr| match address {
            IpAddr::V4(_) => families.0,
            IpAddr::V6(_) => families.1,
        };
        let known = self.names.system.hosts(name.as_str(), now_ms);
        let known: Vec<IpAddr> = known.iter().filter(usable).copied().collect();
        if !known.is_empty() {
            entry.found(known, now_ms + lifetime_ms(FILES_S, None, random()));
            return;
        }
        let wanted = Wanted {
            ipv4: families.0,
            ipv6: families.1,
            service: false,
        };
        let servers = match asked.resolver {
            Some(resolver) => resolver.servers.clone(),
            None => self.names.system.servers(now_ms).to_vec(),
        };
        let purpose = Purpose::Cached(asked.clone());
        self.begin_lookup(name, wanted, servers, timeout, purpose);
    }

    /// A lookup is over: who waited for it goes on.
    pub(super) fn cached_over(&mut self, asked: &Asked, outcome: &Outcome) {
        let now_ms = self.clock.mono_ms;
        let Some(entry) = self.names.cache.entries.get_mut(asked) else {
            return;
        };
        let valid = asked.resolver.and_then(|resolver| resolver.valid);
        let waiting = match &mut entry.state {
            State::Asking(waiting) => std::mem::take(waiting),
            State::Found | State::Failed(_) => Vec::new(),
        };
        match outcome.reason {
            None => {
                let addresses = outcome.found.iter().map(|found| found.address).collect();
                entry.found(
                    addresses,
                    now_ms + lifetime_ms(outcome.ttl_s, valid, random()),
                );
            }
            // Nobody said that the addresses hold no more.
            Some(reason) if !reason.is_answer() && !entry.addresses.is_empty() => {
                let addresses = std::mem::take(&mut entry.addresses);
                entry.found(addresses, now_ms + lifetime_ms(0, None, random()));
            }
            Some(reason) => {
                let holds_s = if reason.is_answer() { DENIED_S } else { 0 };
                entry.addresses.clear();
                entry.state = State::Failed(reason);
                entry.until_ms = now_ms + lifetime_ms(holds_s, None, random());
            }
        }
        for key in waiting {
            self.wake(key);
        }
    }
}

impl Entry {
    fn found(&mut self, addresses: Vec<IpAddr>, until_ms: u64) {
        self.addresses = addresses;
        self.state = State::Found;
        self.until_ms = until_ms;
    }

    /// Requests begin at one address after another, and their further tries go on from there.
    fn next(&mut self, active: &mut Active, retry: bool) -> Located {
        if !retry {
            active.name_turn = self.turn;
            self.turn = self.turn.wrapping_add(1);
        }
        let tries = active.exchange.machine.tries as usize;
        let count = self.addresses.len().max(1);
        let place = active.name_turn.wrapping_add(tries) % count;
        match self.addresses.get(place) {
            Some(address) => Located::At(*address, count as u32),
            None => Located::Failed(Reason::NoAddress),
        }
    }
}
