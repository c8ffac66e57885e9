//! Active checks of peers: when, by which worker, and what is made of the results.
//!
//! Every worker has a timer for each (check, peer); the lease of the shared row decides who checks. Whoever checked last
//! comes exactly when the next check is due, the others a grace later, so that they check only where it left or died.
//! The next check is due one interval after this one was, whatever it takes. How a check is made is `talk`'s.

mod talk;

use crate::reactor::Worker;
use crate::slots::Slots;
use crate::token::{Key, Kind};
use crate::wheel::TimerId;
use kp_config::model::{HealthCheck, PeerAddress, UpstreamId};
use kp_shm::{CheckChange, CheckRow, CheckState, Claimant, Counter, Thresholds};
use kp_upstream::PeerId;
use std::net::SocketAddr;
use talk::{Talk, Trouble};

/// How much later than the last checker the others come at most.
const GRACE_MAX_MS: u64 = 100;
/// How often the members of groups are compared with what is checked.
const MEMBERS_MS: u64 = 500;
/// Connections that checks leave to requests.
const ROOM: usize = 16;

/// All checks of this worker.
#[derive(Debug)]
pub(crate) struct Probes {
    targets: Slots<Target>,
    me: Claimant,
    members_timer: Option<TimerId>,
    /// Sockets that checks have open.
    open: usize,
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
}

impl Probes {
    pub(crate) fn new(me: Claimant, random: u64) -> Self {
        Self {
            targets: Slots::new(),
            me,
            members_timer: None,
            open: 0,
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
        self.random % (jitter_ms + 1)
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
    /// Begins to check, or takes note of what became of the groups since.
    pub(crate) fn sync_probes(&mut self) {
        if self.drain.is_some() || !self.has_checks() {
            return;
        }
        let wanted = self.wanted_checks();
        for key in self.probes.targets.keys() {
            let stays = self.probes.targets.peek(key).is_some_and(|target| {
                wanted.iter().any(|(upstream, check, _, name)| {
                    *upstream == target.upstream
                        && std::ptr::eq(*check, target.check)
                        && *name == target.name
                })
            });
            if !stays {
                self.forget_target(key);
            }
        }
        for (upstream, check, address, name) in wanted {
            self.add_target(upstream, check, &address, name);
        }
        let timer = match self.probes.members_timer {
            Some(timer) => timer,
            None => {
                let key = Key {
                    index: u32::MAX,
                    generation: 0,
                };
                let timer = self.wheel.create(key.token(Kind::Probe));
                self.probes.members_timer = Some(timer);
                timer
            }
        };
        self.wheel.arm(timer, self.clock.mono_ms + MEMBERS_MS);
    }

    fn has_checks(&self) -> bool {
        let mut groups = self.config.http.upstreams.iter();
        groups.any(|group| !group.checks.is_empty())
    }

    /// Every check of every peer that is there now.
    fn wanted_checks(&self) -> Vec<(UpstreamId, &'static HealthCheck, PeerAddress, String)> {
        let mut wanted: Vec<(UpstreamId, &'static HealthCheck, PeerAddress, String)> = Vec::new();
        for (number, group) in (0..).zip(&self.config.http.upstreams) {
            let upstream = UpstreamId(number);
            if group.checks.is_empty() {
                continue;
            }
            let peers: Vec<PeerId> = self.groups.peers(upstream).collect();
            for peer in peers {
                let Some(address) = self.groups.address(peer) else {
                    continue;
                };
                let name = self.groups.name(peer);
                // The same address twice in a group is one peer to a check.
                let known = wanted
                    .iter()
                    .any(|(other, _, _, known)| *other == upstream && known == name);
                if !known {
                    let each = |check| (upstream, check, address.clone(), name.to_owned());
                    wanted.extend(group.checks.iter().map(each));
                }
            }
        }
        wanted
    }

    fn add_target(
        &mut self,
        upstream: UpstreamId,
        check: &'static HealthCheck,
        address: &PeerAddress,
        name: String,
    ) {
        let known = self.probes.targets.keys().into_iter().any(|key| {
            self.probes.targets.peek(key).is_some_and(|target| {
                target.upstream == upstream
                    && std::ptr::eq(target.check, check)
                    && target.name == name
            })
        });
        if known {
            return;
        }
        let group = &self.config.http.upstreams[upstream.index()];
        let row = self.shm_checks().claim(&group.name, &name, &check.identity);
        let now_ms = self.clock.mono_ms;
        // Another generation may have checked less often.
        let interval_ms = check.interval.as_millis() as u64 + check.jitter.as_millis() as u64;
        if row.due_ms() > now_ms + interval_ms {
            row.set_due_ms(now_ms + interval_ms);
        }
        let target = Target {
            upstream,
            check,
            address: at_port(address, check.port),
            name,
            row,
            timer: self.wheel.create(0),
            talk: None,
        };
        let (timer, due_ms) = (target.timer, row.due_ms());
        let key = self.probes.targets.insert(target);
        self.wheel.name(timer, key.token(Kind::Probe));
        self.wheel.arm(timer, due_ms.max(now_ms));
    }

    /// The peer is gone.
    fn forget_target(&mut self, key: Key) {
        self.end_talk(key);
        if let Some(target) = self.probes.targets.remove(key) {
            target.row.lease().release(self.probes.me);
            self.wheel.free(target.timer);
        }
    }

    /// Another generation, or another worker, goes on with the checks of this one at once.
    pub(crate) fn leave_probes(&mut self) {
        let now_ms = self.clock.mono_ms;
        for key in self.probes.targets.keys() {
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
        if key.index == u32::MAX {
            return self.sync_probes();
        }
        let Some(target) = self.probes.targets.at(key) else {
            return;
        };
        match &target.talk {
            Some(talk) => {
                let trouble = talk.too_late();
                self.probe_ended(key, Err(trouble));
            }
            None => self.probe_due(key),
        }
    }

    /// A check may be due, and it may be this worker's.
    fn probe_due(&mut self, key: Key) {
        let (now_ms, me) = (self.clock.mono_ms, self.probes.me);
        let crowded =
            self.connections() + ROOM.min(self.connections_max / 4) >= self.connections_max;
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
            return self.count_unhealthy();
        }
        if crowded || !lease.take(me, now_ms, now_ms + interval_ms + grace_ms) {
            let timer = target.timer;
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
            let group = &self.config.http.upstreams[target.upstream.index()].name;
            log_change(group, target, change, result.as_ref().err());
        }
        self.wheel.arm(timer, wake_ms);
        self.counters.increment(if result.is_ok() {
            Counter::HealthChecksPassed
        } else {
            Counter::HealthChecksFailed
        });
        self.count_unhealthy();
    }

    /// The gauge is kept by whoever checks.
    fn count_unhealthy(&self) {
        let me = Some(self.probes.me);
        let unhealthy = self.probes.targets.keys().into_iter().filter(|key| {
            self.probes.targets.peek(*key).is_some_and(|target| {
                target.row.state() == CheckState::Unhealthy && target.row.lease().holder() == me
            })
        });
        self.counters
            .set(Counter::HealthChecksUnhealthy, unhealthy.count() as u64);
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
