//! Names that a `proxy_pass` with variables evaluated to, as this worker knows them.
//!
//! Decides who waits for a name, for how long an answer holds, and which of its addresses comes next. One process asks and
//! the others take its answer from shared memory; a name that finds no room there is asked for by each. The cache is
//! bounded: what clients make of a variable must not fill memory. Addresses that were good are used until there are others,
//! whatever name servers say, as for the names of upstreams.

use super::asking::Purpose;
use super::{PEEK_MS, random};
use crate::active::Active;
use crate::reactor::Worker;
use crate::token::Key;
use kp_config::model::Resolver;
use kp_dns::{HostName, Outcome, Reason, Wanted, lifetime_ms};
use kp_shm::{Claimant, NameAddress, NameRow};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Names that are remembered.
const NAMES_MAX: usize = 1024;
/// How long "there is no such name" holds at most: new names are soon found.
const DENIED_S: u32 = 2;
/// How long what the system's own files say holds.
const FILES_S: u32 = 2;
/// The lookup knows better than the clock of who waits for it when the time is up.
const SLACK_MS: u64 = 200;
/// How long a request waits for new addresses while there are old ones.
const STALE_PATIENCE_MS: u64 = 500;
/// In a row's state: the last lookup found something.
const GOOD: u64 = 1;

/// A name, and whom it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    host: String,
    resolver: Option<&'static Resolver>,
}

#[derive(Debug)]
enum State {
    /// A lookup is under way since then, here or in another process, and these wait for it.
    Asking {
        waiting: Vec<Key>,
        since_ms: u64,
        here: bool,
    },
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
    timeout: Duration,
    /// The addresses that were found last.
    addresses: Vec<IpAddr>,
    /// They are used although the last lookup failed.
    failing: bool,
    /// Where the next request begins among them.
    turn: usize,
    /// Where all processes keep it.
    row: Option<NameRow>,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Asked, Entry>,
    /// What other processes are asking for.
    elsewhere: Vec<Asked>,
    look_ms: u64,
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
    /// When to look whether another process has an answer.
    pub(super) fn peek_ms(&self) -> u64 {
        match self.elsewhere.is_empty() {
            true => u64::MAX,
            false => self.look_ms,
        }
    }

    /// Makes room for a name; `false`: there is none.
    fn make_room(&mut self, now_ms: u64) -> bool {
        if self.entries.len() < NAMES_MAX {
            return true;
        }
        let asking = |entry: &Entry| matches!(entry.state, State::Asking { .. });
        let denied = |entry: &Entry| matches!(entry.state, State::Failed(_));
        // Addresses are of use even when they have run out; that there are none is not.
        self.entries
            .retain(|_, entry| !denied(entry) || now_ms < entry.until_ms);
        if self.entries.len() < NAMES_MAX {
            return true;
        }
        let idle = self.entries.iter().filter(|(_, entry)| !asking(entry));
        let oldest = idle.min_by_key(|(_, entry)| entry.used_ms);
        let oldest = oldest.map(|(asked, _)| asked.clone());
        oldest.is_some_and(|asked| self.entries.remove(&asked).is_some())
    }
}

impl Asked {
    fn wanted(&self) -> Wanted {
        let resolver = self.resolver;
        Wanted {
            ipv4: resolver.is_none_or(|one| one.ipv4),
            ipv6: resolver.is_none_or(|one| one.ipv6),
            service: false,
        }
    }

    /// What makes two names one in all processes: the same question to the same servers.
    fn key(&self, name: &HostName, servers: &[SocketAddr]) -> kp_shm::Key {
        let wanted = self.wanted();
        let valid = self.resolver.and_then(|resolver| resolver.valid);
        let mut parts = vec![
            name.as_str().to_owned(),
            wanted.ipv4.to_string(),
            wanted.ipv6.to_string(),
            format!("{valid:?}"),
        ];
        parts.extend(servers.iter().map(SocketAddr::to_string));
        let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
        kp_shm::Key::of(&parts)
    }
}

impl Worker {
    /// Finds an address for an exchange whose `proxy_pass` evaluated to a name.
    pub(crate) fn locate(&mut self, active: &mut Active, host: &str) -> Located {
        let location = self.location(active.exchange.location);
        let asked = Asked {
            host: host.to_owned(),
            resolver: location.resolver.as_ref(),
        };
        let (timeout, now_ms) = (location.resolver_timeout, self.clock.mono_ms);
        let entry = self.names.cache.entries.get_mut(&asked);
        if let Some(located) = entry.and_then(|entry| entry.locate(active, now_ms)) {
            return located;
        }
        self.ask_for(&asked, timeout);
        let entry = self.names.cache.entries.get_mut(&asked);
        let located = entry.and_then(|entry| entry.locate(active, now_ms));
        located.unwrap_or(Located::Failed(Reason::ServerFailure))
    }

    fn ask_for(&mut self, asked: &Asked, timeout: Duration) {
        let now_ms = self.clock.mono_ms;
        let me = Claimant::new(self.row, self.pid);
        if !self.names.cache.entries.contains_key(asked) && !self.names.cache.make_room(now_ms) {
            return;
        }
        let entries = &mut self.names.cache.entries;
        let entry = entries
            .entry(asked.clone())
            .or_insert_with(|| Entry::new(now_ms));
        entry.timeout = timeout;
        let Some(name) = HostName::new(&asked.host) else {
            entry.state = State::Failed(Reason::NotFound);
            entry.until_ms = u64::MAX;
            return;
        };
        let wanted = asked.wanted();
        let usable = |address: &&IpAddr| match address {
            IpAddr::V4(_) => wanted.ipv4,
            IpAddr::V6(_) => wanted.ipv6,
        };
        let known = self.names.system.hosts(name.as_str(), now_ms);
        let known: Vec<IpAddr> = known.iter().filter(usable).copied().collect();
        if !known.is_empty() {
            entry.found(known, now_ms + lifetime_ms(FILES_S, None, random()));
            return;
        }
        let servers = match asked.resolver {
            Some(resolver) => resolver.servers.clone(),
            None => self.names.system.servers(now_ms).to_vec(),
        };
        let key = asked.key(&name, &servers);
        entry.row = self.shm.asked_names().claim_shared(key, now_ms);
        if entry.learn(now_ms) {
            return;
        }
        let here = entry.take_turn(me, now_ms);
        // Who had the turn until now may just have answered.
        if here && entry.learn(now_ms) {
            return entry.leave_turn(me);
        }
        entry.state = State::Asking {
            waiting: Vec::new(),
            since_ms: now_ms,
            here,
        };
        if here {
            let purpose = Purpose::Cached(asked.clone());
            self.begin_lookup(name, wanted, servers, timeout, purpose);
        } else {
            let cache = &mut self.names.cache;
            cache.elsewhere.push(asked.clone());
            cache.look_ms = now_ms + PEEK_MS;
            self.names.due_ms = self.names.due_ms.min(cache.look_ms);
        }
    }

    /// Looks whether other processes have answers that requests of this one wait for.
    pub(super) fn look_elsewhere(&mut self) {
        let now_ms = self.clock.mono_ms;
        if now_ms < self.names.cache.peek_ms() {
            return;
        }
        self.names.cache.look_ms = now_ms + PEEK_MS;
        for asked in std::mem::take(&mut self.names.cache.elsewhere) {
            let Some(entry) = self.names.cache.entries.get_mut(&asked) else {
                continue;
            };
            let State::Asking {
                waiting,
                since_ms,
                here: false,
            } = &mut entry.state
            else {
                continue;
            };
            let (waited, since, timeout) = (std::mem::take(waiting), *since_ms, entry.timeout);
            // There is an answer, or it is this process's turn, or the wait goes on.
            self.ask_for(&asked, timeout);
            let entry = self.names.cache.entries.get_mut(&asked);
            if let Some(State::Asking {
                waiting, since_ms, ..
            }) = entry.map(|entry| &mut entry.state)
            {
                (*waiting, *since_ms) = (waited, since);
                continue;
            }
            for key in waited {
                self.wake(key);
            }
        }
    }

    /// A lookup is over: who waited for it goes on.
    pub(super) fn cached_over(&mut self, asked: &Asked, outcome: &Outcome) {
        let now_ms = self.clock.mono_ms;
        let me = Claimant::new(self.row, self.pid);
        let Some(entry) = self.names.cache.entries.get_mut(asked) else {
            return;
        };
        let valid = asked.resolver.and_then(|resolver| resolver.valid);
        let waiting = match &mut entry.state {
            State::Asking { waiting, .. } => std::mem::take(waiting),
            State::Found | State::Failed(_) => Vec::new(),
        };
        let was_failing = entry.failing;
        match outcome.reason {
            None => {
                let addresses = outcome.found.iter().map(|found| found.address).collect();
                let holds_ms = lifetime_ms(outcome.ttl_s, valid, random());
                entry.found(addresses, now_ms + holds_ms);
            }
            // What was good stays.
            Some(_) if !entry.addresses.is_empty() => {
                let addresses = std::mem::take(&mut entry.addresses);
                entry.found(addresses, now_ms + lifetime_ms(0, None, random()));
                entry.failing = true;
            }
            Some(reason) => {
                let holds_s = if reason.is_answer() { DENIED_S } else { 0 };
                entry.state = State::Failed(reason);
                entry.until_ms = now_ms + lifetime_ms(holds_s, None, random());
            }
        }
        entry.share(me, outcome.reason);
        if let Some(reason) = outcome.reason.filter(|_| entry.failing && !was_failing) {
            log::warn!(
                "{} could not be resolved ({}: {}), what it had stays in use",
                asked.host,
                reason.code(),
                reason.text()
            );
        }
        for key in waiting {
            self.wake(key);
        }
    }
}

impl Entry {
    fn new(now_ms: u64) -> Self {
        Self {
            state: State::Failed(Reason::ServerFailure),
            until_ms: 0,
            used_ms: now_ms,
            timeout: Duration::ZERO,
            addresses: Vec::new(),
            failing: false,
            // A fresh answer begins at its first address, as with nginx.
            turn: 0,
            row: None,
        }
    }

    /// Where an exchange goes; `None`: the name has to be asked for.
    fn locate(&mut self, active: &mut Active, now_ms: u64) -> Option<Located> {
        self.used_ms = now_ms;
        let known = !self.addresses.is_empty();
        let retry = active.exchange.machine.tries > 0;
        match &mut self.state {
            // Who is on the way through the addresses goes on.
            _ if retry && known => Some(self.next(active, true)),
            State::Found if now_ms < self.until_ms => Some(self.next(active, false)),
            State::Failed(reason) if now_ms < self.until_ms => Some(Located::Failed(*reason)),
            State::Asking {
                waiting, since_ms, ..
            } => {
                let old_ms = match self.failing {
                    true => *since_ms,
                    false => since_ms.saturating_add(STALE_PATIENCE_MS),
                };
                if known && old_ms <= now_ms {
                    return Some(self.next(active, false));
                }
                waiting.push(active.key);
                let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX / 2);
                Some(Located::Wait(match known {
                    true => old_ms,
                    false => now_ms.saturating_add(timeout_ms + SLACK_MS),
                }))
            }
            State::Found | State::Failed(_) => None,
        }
    }

    fn found(&mut self, addresses: Vec<IpAddr>, until_ms: u64) {
        self.addresses = addresses;
        self.state = State::Found;
        self.until_ms = until_ms;
        self.failing = false;
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

    /// Whether it is for this process to ask. The turn lasts as long as a lookup may; the dead lose it.
    fn take_turn(&self, me: Claimant, now_ms: u64) -> bool {
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX / 2);
        let until_ms = now_ms.saturating_add(timeout_ms + SLACK_MS);
        self.row
            .is_none_or(|row| row.lease().take(me, now_ms, until_ms))
    }

    fn leave_turn(&self, me: Claimant) {
        if let Some(row) = self.row {
            row.lease().release(me);
        }
    }

    /// Takes what another process found, if it still holds.
    fn learn(&mut self, now_ms: u64) -> bool {
        let Some(row) = self.row else {
            return false;
        };
        let due_ms = row.due_ms();
        if due_ms <= now_ms {
            return false;
        }
        let state = row.state();
        let addresses = row.read().map_or_else(Vec::new, |(_, addresses)| addresses);
        let addresses: Vec<IpAddr> = addresses.iter().map(|known| known.address).collect();
        match Reason::of_word(state) {
            _ if !row.is_mine() => return false,
            reason if !addresses.is_empty() => {
                self.found(addresses, due_ms);
                self.failing = reason.is_some();
            }
            Some(reason) => {
                self.state = State::Failed(reason);
                self.until_ms = due_ms;
            }
            None => return false,
        }
        true
    }

    /// Tells the other processes, and leaves the next turn to whoever needs it.
    fn share(&self, me: Claimant, reason: Option<Reason>) {
        let Some(row) = self.row.filter(NameRow::is_mine) else {
            return;
        };
        let plain = |address: &IpAddr| NameAddress {
            address: *address,
            port: 0,
            weight: 0,
            priority: 0,
            host: 0,
        };
        let addresses: Vec<NameAddress> = self.addresses.iter().map(plain).collect();
        let known = row.read();
        if known.as_ref().map(|(_, known)| known) != Some(&addresses) {
            row.publish(row.version(), &addresses);
        }
        row.replace_state(reason.map_or(GOOD, Reason::to_word));
        row.set_due_ms(self.until_ms);
        row.lease().release(me);
    }
}
