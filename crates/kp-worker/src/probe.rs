//! Active checks of peers: when, by which worker, and what is made of the results.
//!
//! Every worker has a timer for each (check, peer); the lease of the shared row decides who checks. Whoever checked last
//! comes exactly when the next check is due, the others a grace later, so that they check only where it left or died.
//! The next check is due one interval after this one was, whatever it takes. How a check is made is `talk`'s.

mod answer;
mod talk;

use crate::reactor::Worker;
use crate::slots::Slots;
use crate::token::{Key, Kind};
use crate::wheel::TimerId;
use kp_config::model::{HealthCheck, PeerAddress, UpstreamId};
use kp_shm::{CheckChange, CheckRow, CheckState, Claimant, Counter, Thresholds};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use talk::{Talk, Trouble};

/// The cause of a failed check, as its row holds it, in a few words.
pub(crate) fn trouble_named(code: u64) -> Option<String> {
    Trouble::named(code)
}

/// How much later than the last checker the others come at most.
const GRACE_MAX_MS: u64 = 100;
/// Connections that checks leave to requests.
const ROOM: usize = 16;
/// Checks that begin in one millisecond: a thousand that are due at once are no reason to keep requests waiting.
const BEGINNINGS: u64 = 16;

/// All checks of this worker.
#[derive(Debug)]
pub(crate) struct Probes {
    targets: Slots<Target>,
    /// Where the target of a row is.
    known: HashMap<usize, Key>,
    me: Claimant,
    /// Sockets that checks have open.
    open: usize,
    /// How many peers are unhealthy by checks that this worker makes.
    unhealthy: u64,
    /// How many checks were to begin in this millisecond.
    begun: (u64, u64),
    random: u64,
}

/// One check of one peer.
#[derive(Debug)]
pub(crate) struct Target {
    upstream: UpstreamId,
    check: &'static HealthCheck,
    /// Where the check connects: the peer's address, with the check's port.
    address: PeerAddress,
    /// The peer, as in `$upstream_addr`.
    name: String,
    row: CheckRow,
    timer: TimerId,
    talk: Option<Box<Talk>>,
    /// Whether it is one of [`Probes::unhealthy`].
    counted: bool,
}

/// A check of a peer that is there now.
struct Wanted {
    upstream: UpstreamId,
    check: &'static HealthCheck,
    address: PeerAddress,
    name: String,
    row: CheckRow,
}

impl Probes {
    pub(crate) fn new(me: Claimant, random: u64) -> Self {
        Self {
            targets: Slots::new(),
            known: HashMap::new(),
            me,
            open: 0,
            unhealthy: 0,
            begun: (0, 0),
            random: random | 1,
        }
    }

    /// Sockets in use.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    pub(crate) fn at(&mut self, key: Key) -> Option<&mut Target> {
        self.targets.at(key)
    }

    /// A part of `jitter_ms`.
    fn jitter(&mut self, jitter_ms: u64) -> u64 {
        // xorshift64: to spread checks, not to hide them.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % jitter_ms.saturating_add(1)
    }

    /// How long a check that could begin now has to wait for those before it.
    fn line_ms(&mut self, now_ms: u64) -> u64 {
        let (moment_ms, before) = self.begun;
        let before = if moment_ms == now_ms { before } else { 0 };
        self.begun = (now_ms, before + 1);
        before / BEGINNINGS
    }
}

impl Target {
    pub(crate) fn note(&mut self, event: &mio::event::Event, pool: &mut crate::buffers::Buffers) {
        if let Some(talk) = &mut self.talk {
            talk.transport.note(event, pool);
        }
    }

    fn interval_ms(&self) -> u64 {
        self.check.interval.as_millis() as u64
    }

    fn grace_ms(&self) -> u64 {
        GRACE_MAX_MS.min(self.interval_ms() / 2).max(1)
    }
}

impl Worker {
    /// Begins to check, or takes note of what became of the groups since: called whenever members come or go.
    pub(crate) fn sync_probes(&mut self) {
        if self.drain.is_some() {
            return;
        }
        let wanted = self.wanted_checks();
        let rows: HashSet<usize> = wanted.iter().map(|wanted| wanted.row.id()).collect();
        let known = self.probes.known.iter();
        let gone: Vec<(usize, Key)> = known
            .filter(|(row, _)| !rows.contains(row))
            .map(|(row, key)| (*row, *key))
            .collect();
        for (row, key) in gone {
            self.probes.known.remove(&row);
            self.forget_target(key);
        }
        for wanted in wanted {
            // The same address twice in a group is one peer to a check.
            if !self.probes.known.contains_key(&wanted.row.id()) {
                self.add_target(wanted);
            }
        }
    }

    /// Every check of every peer that is there now.
    fn wanted_checks(&self) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        for (number, group) in (0..).zip(&self.config.http.upstreams) {
            if group.checks.is_empty() {
                continue;
            }
            let upstream = UpstreamId(number);
            for peer in self.groups.peers(upstream) {
                let Some(address) = self.groups.address(peer) else {
                    continue;
                };
                let rows = self.groups.checks(peer).iter();
                let each = |(check, (row, _)): (&'static HealthCheck, &(CheckRow, bool))| Wanted {
                    upstream,
                    check,
                    address: at_port(address, check.port),
                    name: self.groups.name(peer).to_owned(),
                    row: *row,
                };
                wanted.extend(group.checks.iter().zip(rows).map(each));
            }
        }
        wanted
    }

    fn add_target(&mut self, wanted: Wanted) {
        let now_ms = self.clock.mono_ms;
        let (check, row) = (wanted.check, wanted.row);
        // Another generation may have checked less often.
        let interval_ms = check.interval.as_millis() as u64 + check.jitter.as_millis() as u64;
        if row.due_ms() > now_ms + interval_ms {
            row.set_due_ms(now_ms + interval_ms);
        }
        let timer = self.wheel.create(0);
        let key = self.probes.targets.insert(Target {
            upstream: wanted.upstream,
            check,
            address: wanted.address,
            name: wanted.name,
            row,
            timer,
            talk: None,
            counted: false,
        });
        self.probes.known.insert(row.id(), key);
        self.wheel.name(timer, key.token(Kind::Probe));
        self.wheel.arm(timer, row.due_ms().max(now_ms));
    }

    /// The peer is gone.
    fn forget_target(&mut self, key: Key) {
        self.end_talk(key);
        if let Some(target) = self.probes.targets.remove(key) {
            target.row.lease().release(self.probes.me);
            self.probes.unhealthy -= u64::from(target.counted);
            self.wheel.free(target.timer);
        }
    }

    /// Another generation, or another worker, goes on with the checks of this one at once.
    pub(crate) fn leave_probes(&mut self) {
        let now_ms = self.clock.mono_ms;
        let keys: Vec<Key> = self.probes.known.values().copied().collect();
        for key in keys {
            let interrupted = self.end_talk(key);
            if let Some(target) = self.probes.targets.at(key) {
                if interrupted {
                    target.row.set_due_ms(now_ms);
                }
                target.row.lease().release(self.probes.me);
                self.wheel.disarm(target.timer);
            }
        }
        self.counters.set(Counter::HealthChecksUnhealthy, 0);
    }

    /// A timer of checks ran out.
    pub(crate) fn probe_timeout(&mut self, key: Key) {
        if self.drain.is_some() {
            return;
        }
        let talks = |target: &Target| target.talk.is_some();
        if !self.probes.targets.peek(key).is_some_and(talks) {
            return self.probe_due(key);
        }
        // What came before the deadline counts, also where the process was stopped meanwhile.
        self.drive_probe(key);
        let now_ms = self.clock.mono_ms;
        let talk = self
            .probes
            .targets
            .peek(key)
            .and_then(|target| target.talk.as_ref());
        let late = talk.and_then(|talk| talk.too_late(now_ms));
        if let Some(trouble) = late {
            self.probe_ended(key, Err(trouble));
        }
    }

    /// A check may be due, and it may be this worker's.
    fn probe_due(&mut self, key: Key) {
        let (now_ms, me) = (self.clock.mono_ms, self.probes.me);
        let room = ROOM.min(self.connections_max / 4);
        let crowded = self.connections() + room >= self.connections_max;
        let Some(target) = self.probes.targets.at(key) else {
            return;
        };
        let (due_ms, interval_ms, grace_ms) =
            (target.row.due_ms(), target.interval_ms(), target.grace_ms());
        let lease = target.row.lease();
        if due_ms > now_ms {
            let mine = lease.holder() == Some(me);
            let wake_ms = if mine { due_ms } else { due_ms + grace_ms };
            let timer = target.timer;
            self.wheel.arm(timer, wake_ms);
            return self.count_unhealthy(key);
        }
        let timer = target.timer;
        let line_ms = self.probes.line_ms(now_ms);
        if line_ms > 0 {
            return self.wheel.arm(timer, now_ms + line_ms);
        }
        let Some(target) = self.probes.targets.at(key) else {
            return;
        };
        if crowded || !lease.take(me, now_ms, now_ms + interval_ms + grace_ms) {
            if crowded {
                lease.release(me);
            }
            return self.wheel.arm(timer, now_ms + grace_ms);
        }
        let jitter_ms = target.check.jitter.as_millis() as u64;
        // Steps of the interval, unless the first check or a long stop lies between.
        let base_ms = if due_ms + interval_ms > now_ms {
            due_ms
        } else {
            now_ms
        };
        let row = target.row;
        let next_ms = base_ms + interval_ms + self.probes.jitter(jitter_ms);
        row.set_due_ms(next_ms);
        self.begin_talk(key);
    }

    /// This process has no descriptor or memory for a check now, which says nothing of the peer: another one may, or this
    /// one a little later.
    fn postpone(&mut self, key: Key) {
        let (now_ms, me) = (self.clock.mono_ms, self.probes.me);
        if let Some(target) = self.probes.targets.at(key) {
            target.row.set_due_ms(now_ms);
            target.row.lease().release(me);
            self.wheel.arm(target.timer, now_ms + target.grace_ms());
        }
    }

    /// A check came to its end: notes it, says what changed, and waits for the next.
    fn probe_ended(&mut self, key: Key, result: Result<(), Trouble>) {
        self.end_talk(key);
        let (now_ms, me) = (self.clock.mono_ms, self.probes.me);
        let Some(target) = self.probes.targets.at(key) else {
            return;
        };
        let (check, row, timer) = (target.check, target.row, target.timer);
        let thresholds = Thresholds {
            fails: check.fails,
            passes: check.passes,
        };
        let cause = result.as_ref().err().map_or(0, Trouble::code);
        let change = row.record(result.is_ok(), thresholds, cause, now_ms);
        let due_ms = row.due_ms();
        let mine = row
            .lease()
            .take(me, now_ms, due_ms.max(now_ms) + target.grace_ms());
        let wake_ms = if mine {
            due_ms
        } else {
            due_ms + target.grace_ms()
        };
        if let Some(change) = change {
            self.groups.show_soon();
            let group = &self.config.http.upstreams[target.upstream.index()].name;
            log_change(group, target, change, result.as_ref().err());
        }
        self.wheel.arm(timer, wake_ms);
        self.counters.increment(if result.is_ok() {
            Counter::HealthChecksPassed
        } else {
            Counter::HealthChecksFailed
        });
        self.count_unhealthy(key);
    }

    /// The gauge is kept by whoever checks.
    fn count_unhealthy(&mut self, key: Key) {
        let me = Some(self.probes.me);
        let Some(target) = self.probes.targets.at(key) else {
            return;
        };
        let is = target.row.state() == CheckState::Unhealthy && target.row.lease().holder() == me;
        let was = std::mem::replace(&mut target.counted, is);
        self.probes.unhealthy = self.probes.unhealthy + u64::from(is) - u64::from(was);
        self.counters
            .set(Counter::HealthChecksUnhealthy, self.probes.unhealthy);
    }
}

fn log_change(group: &str, target: &Target, change: CheckChange, trouble: Option<&Trouble>) {
    let name = &target.name;
    let checks = |run: u32| if run == 1 { "check" } else { "checks" };
    match (change.to, trouble) {
        (CheckState::Unhealthy, Some(trouble)) => log::warn!(
            "peer {name} of upstream \"{group}\" is unhealthy: {}, {} {} failed, until {} passed",
            trouble.text(target.check),
            change.run,
            checks(change.run),
            target.check.passes,
        ),
        _ => log::info!(
            target: "notice",
            "peer {name} of upstream \"{group}\" is healthy: {} {} passed",
            change.run,
            checks(change.run),
        ),
    }
}

/// The address of a peer at another port; a socket's path has none.
fn at_port(address: &PeerAddress, port: Option<u16>) -> PeerAddress {
    match (address, port) {
        (PeerAddress::Inet(address), Some(port)) => {
            PeerAddress::Inet(SocketAddr::new(address.ip(), port))
        }
        _ => address.clone(),
    }
}
