//! One peer of a group: its settings, its shared facts, and the rules of `max_fails`, `fail_timeout` and `max_conns`.
//!
//! The rules are nginx's. A peer with `max_fails` failures is left alone until `fail_timeout` has passed since the last
//! one; then one request may try it, and only its success clears the failures. The trial is claimed by replacing the
//! health word, so that of all processes exactly one makes it.

use crate::lineup::Wanted;
use crate::md5;
use crate::roster::Slot;
use kp_config::model::{PeerAddress, ServerLine};
use kp_config::overrides::Settings;
use kp_shm::{CheckRow, Ejection, Health, PeerCell, PeerRow, SeriesRow};
use std::cell::Cell;
use std::time::Duration;

/// Settings and facts of one address.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: PeerAddress,
    pub(crate) name: String,
    /// What names it within its group.
    pub(crate) slot: Slot,
    /// The server line it came from.
    pub(crate) line: usize,
    /// Which of those with the same address it is.
    pub(crate) which: Vec<u8>,
    /// Number of the server name it came from; equal names have equal numbers.
    pub(crate) server: u32,
    pub(crate) weight: u32,
    pub(crate) backup: bool,
    pub(crate) max_conns: u32,
    pub(crate) max_fails: u32,
    pub(crate) fail_timeout_ms: u64,
    /// How long its share grows when it is new or well again; 0: not at all.
    pub(crate) slow_start_ms: u64,
    /// The size of a weight of 1 in the round: larger where shares grow.
    pub(crate) scale: i64,
    pub(crate) down: bool,
    /// Only sessions that it has are sent to it.
    pub(crate) drain: bool,
    /// What names it in sessions.
    pub(crate) sid: String,
    /// What active checks say of it, and whether it waits for the first pass.
    pub(crate) checks: Vec<(CheckRow, bool)>,
    /// Whether outlier detection may have ejected it.
    pub(crate) is_watched: bool,
    /// Attempts of this process under way and the sum of their beginnings, where the balancer wants to know.
    pub(crate) waiting: Cell<(u64, u64)>,
    /// In flight and health: what is true of the peer whatever the weights are.
    pub(crate) facts: PeerRow,
    /// Its turn in the round, whose scale is the group's weights: generations with other weights use another row.
    pub(crate) turn: PeerRow,
    /// What is counted of it, where anything is.
    pub(crate) series: Option<SeriesRow>,
}

impl Peer {
    /// Whether it is this one already, in every respect that can change.
    pub(crate) fn is(&self, wanted: &Wanted) -> bool {
        let settings = Settings {
            weight: self.weight,
            max_conns: self.max_conns,
            down: self.down,
            drain: self.drain,
        };
        (&self.name, &self.which, self.line, self.backup)
            == (&wanted.name, &wanted.which, wanted.line, wanted.backup)
            && settings == wanted.settings
    }

    /// Takes over what its server line says and no setting changes.
    pub(crate) fn obey(&mut self, server: &ServerLine) {
        let whole_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.max_fails = server.max_fails.min(u16::MAX.into());
        self.fail_timeout_ms = whole_ms(server.fail_timeout);
        self.slow_start_ms = whole_ms(server.slow_start);
        self.sid = if server.route.is_empty() {
            md5::hexadecimal(self.name.as_bytes())
        } else {
            server.route.clone()
        };
    }

    /// Takes over what can be changed at run time.
    pub(crate) fn set(&mut self, settings: &Settings) {
        self.weight = settings.weight;
        self.max_conns = settings.max_conns;
        self.down = settings.down;
        self.drain = settings.drain;
    }

    /// Forgets failures and ejection; whoever was left alone for them begins slowly.
    pub(crate) fn forget(&self, now_ms: u64) {
        let was_out = self.is_out(now_ms);
        self.forgive();
        loop {
            let ejection = self.facts.ejection();
            let none = Ejection {
                times: 0,
                out: false,
                until_ms: 0,
            };
            if self.facts.replace_ejection(ejection, none) {
                break;
            }
        }
        self.facts.forget_answers();
        self.change_penalty(|_| 0);
        if was_out {
            self.begin_slow_start(now_ms);
        }
    }

    /// Whether a request may be sent to it now.
    pub(crate) fn is_usable(&self, now_ms: u64) -> bool {
        !self.drain && self.is_usable_for_its_own(now_ms)
    }

    /// Whether a request of a session that is its own may be sent to it now.
    pub(crate) fn is_usable_for_its_own(&self, now_ms: u64) -> bool {
        self.is_well(now_ms) && !self.is_full()
    }

    /// Neither taken out by its settings, nor by checks, nor by what it answered.
    fn is_well(&self, now_ms: u64) -> bool {
        self.is_up() && !self.is_out(now_ms)
    }

    /// Neither its settings nor active checks take it out.
    pub(crate) fn is_up(&self) -> bool {
        let admits = |(check, mandatory): &(CheckRow, bool)| check.admits(*mandatory);
        !self.down && self.checks.iter().all(admits)
    }

    /// Left alone for failures, or ejected.
    pub(crate) fn is_out(&self, now_ms: u64) -> bool {
        let ejected = |peer: &Self| {
            let ejection = peer.facts.ejection();
            ejection.out && now_ms < ejection.until_ms
        };
        self.is_resting(self.facts.health(), now_ms) || self.is_watched && ejected(self)
    }

    /// Up and well, but `max_conns` connections are in use.
    pub(crate) fn is_only_full(&self, now_ms: u64) -> bool {
        !self.drain && self.is_well(now_ms) && self.is_full()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.max_conns != 0 && self.facts.in_flight() >= i64::from(self.max_conns)
    }

    fn is_resting(&self, health: Health, now_ms: u64) -> bool {
        self.max_fails != 0
            && u32::from(health.fails) >= self.max_fails
            && now_ms.saturating_sub(health.checked_ms) <= self.fail_timeout_ms
    }

    /// It was chosen, and has a place in flight.
    pub(crate) fn begin_attempt(&self) {
        if let Some(series) = &self.series {
            series.increment(PeerCell::InFlight);
        }
    }

    /// Until when it is left alone for failures, or was; 0: it is not.
    pub(crate) fn rests_until_ms(&self) -> u64 {
        let health = self.facts.health();
        let often = self.max_fails != 0 && u32::from(health.fails) >= self.max_fails;
        let until_ms = health.checked_ms.saturating_add(self.fail_timeout_ms);
        if often { until_ms } else { 0 }
    }

    /// Until when it is ejected, or was; 0: it is not.
    pub(crate) fn ejected_until_ms(&self) -> u64 {
        let ejection = self.facts.ejection();
        if self.is_watched && ejection.out {
            ejection.until_ms
        } else {
            0
        }
    }

    /// The weight that counts now, in thousandths, without a change to it.
    pub(crate) fn weight_in_effect(&self, now_ms: u64) -> u64 {
        let penalty = self.turn.penalty().min(self.weight.into());
        let weight = i64::from(self.weight) - penalty as i64;
        let grown = self.grown(weight, now_ms).max(0) as u64;
        grown.saturating_mul(1000) / self.scale.max(1) as u64
    }

    /// Takes a place in flight and, if the peer had been resting, the trial; `false` if another process was faster.
    pub(crate) fn enter(&self, now_ms: u64) -> bool {
        if !self.facts.admit(self.max_conns) {
            return false;
        }
        let entered = self.claim_trial(now_ms);
        if !entered {
            self.facts.release();
        }
        entered
    }

    /// Takes a place in flight without a look at failures: the only peer of a group is always tried.
    pub(crate) fn enter_unconditionally(&self) -> bool {
        self.is_up() && self.facts.admit(self.max_conns)
    }

    /// Takes a place in flight although it is left alone. Its success ends the rest: were it not so, everything would
    /// go to one peer until its time is over.
    pub(crate) fn enter_as_last_resort(&self) -> bool {
        if !self.enter_unconditionally() {
            return false;
        }
        let health = self.facts.health();
        let trial = Health {
            on_trial: true,
            ..health
        };
        // Whoever is faster knows something newer.
        let _ = health.on_trial || self.facts.replace_health(health, trial);
        true
    }

    fn claim_trial(&self, now_ms: u64) -> bool {
        loop {
            let health = self.facts.health();
            if now_ms.saturating_sub(health.checked_ms) <= self.fail_timeout_ms {
                return !self.is_resting(health, now_ms);
            }
            let trial = Health {
                fails: health.fails,
                on_trial: true,
                checked_ms: now_ms,
            };
            if self.facts.replace_health(health, trial) {
                return true;
            }
        }
    }

    /// Whether one more failure means that the peer is left alone.
    pub(crate) fn is_at_the_edge(&self) -> bool {
        self.max_fails != 0 && u32::from(self.facts.health().fails) + 1 >= self.max_fails
    }

    /// The attempt failed. `true` if the peer is left alone from now on, which it is not if it is `kept`.
    pub(crate) fn failed(&self, now_ms: u64, kept: bool) -> bool {
        let most = if kept {
            self.max_fails.saturating_sub(1) as u16
        } else {
            u16::MAX
        };
        let fails = loop {
            let health = self.facts.health();
            let fails = health.fails.saturating_add(1).min(most);
            if self.facts.replace_health(
                health,
                Health {
                    fails,
                    on_trial: false,
                    checked_ms: now_ms,
                },
            ) {
                break fails;
            }
        };
        if self.max_fails == 0 {
            return false;
        }
        self.change_penalty(|penalty| {
            (penalty + u64::from(self.weight / self.max_fails)).min(self.weight.into())
        });
        u32::from(fails) >= self.max_fails
    }

    /// The attempt went well: if it was made after the rest, the failures are forgotten.
    pub(crate) fn succeeded(&self, now_ms: u64) {
        loop {
            let health = self.facts.health();
            if !health.on_trial || health.fails == 0 {
                return;
            }
            if self
                .facts
                .replace_health(health, Health { fails: 0, ..health })
            {
                if self.max_fails != 0 && u32::from(health.fails) >= self.max_fails {
                    self.begin_slow_start(now_ms);
                }
                return;
            }
        }
    }

    /// It is well again: its share grows from now on, where it has a slow start.
    pub(crate) fn begin_slow_start(&self, now_ms: u64) {
        if self.slow_start_ms != 0 {
            self.facts.begin_slow_start(now_ms);
        }
    }

    /// Forgets all failures: the only peer of a group is never left alone.
    pub(crate) fn forgive(&self) {
        loop {
            let health = self.facts.health();
            if health.fails == 0
                || self
                    .facts
                    .replace_health(health, Health { fails: 0, ..health })
            {
                return;
            }
        }
    }

    /// The weight that counts for the coming pick, lowered by failures; each look at it recovers by one.
    pub(crate) fn effective_weight(&self, now_ms: u64) -> i64 {
        let penalty = self.turn.penalty();
        if penalty == 0 {
            return self.grown(self.weight.into(), now_ms);
        }
        self.change_penalty(|penalty| penalty.saturating_sub(1));
        let weight = i64::from(self.weight) - penalty.min(self.weight.into()) as i64;
        self.grown(weight, now_ms)
    }

    /// The weight to measure its connections by.
    pub(crate) fn share(&self, now_ms: u64) -> i64 {
        self.grown(self.weight.into(), now_ms)
    }

    /// A weight in the size of the round, as far as it has grown: in proportion to the time of the slow start.
    fn grown(&self, weight: i64, now_ms: u64) -> i64 {
        let whole = weight.saturating_mul(self.scale);
        if self.slow_start_ms == 0 {
            return whole;
        }
        // Who waited for its first pass is new; who did not was in use before it.
        let checks = self
            .checks
            .iter()
            .map(|(check, mandatory)| match mandatory {
                true => check.changed_ms(),
                false => check.recovered_ms(),
            });
        let began_ms = checks.fold(self.facts.slow_start_ms(), u64::max);
        let elapsed = now_ms.saturating_sub(began_ms);
        if began_ms == 0 || elapsed >= self.slow_start_ms {
            return whole;
        }
        let part = i128::from(whole) * i128::from(elapsed) / i128::from(self.slow_start_ms);
        i64::try_from(part).unwrap_or(whole).max(1)
    }

    /// The average time of its answers in sixteenths of a millisecond, 0 where nothing is known or what is known is so
    /// old that it is worth a look; with `inflight` no less than what attempts under way have waited.
    pub(crate) fn time(&self, inflight: bool, now_ms: u64) -> u64 {
        let average = self.facts.latency();
        let (waiting, sum) = self.waiting.get();
        if inflight && waiting != 0 {
            let waited = (waiting.saturating_mul(now_ms)).saturating_sub(sum) / waiting;
            return average.max(waited.saturating_mul(16));
        }
        let age = now_ms.saturating_sub(self.facts.answered_ms());
        let old = (average / 16 * 3 / 4).max(self.fail_timeout_ms);
        if age >= old && self.facts.in_flight() == 0 {
            return 0;
        }
        average
    }

    /// It was chosen by its time.
    pub(crate) fn chosen(&self, now_ms: u64) {
        self.facts
            .replace_answered(self.facts.answered_ms(), now_ms);
    }

    fn change_penalty(&self, change: impl Fn(u64) -> u64) {
        loop {
            let penalty = self.turn.penalty();
            if self.turn.replace_penalty(penalty, change(penalty)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_shm::{Key, Shm};

    fn peers(processes: u32) -> Vec<Peer> {
        let shm = Shm::private().unwrap();
        let peer = |slot| {
            let row = shm
                .peers()
                .claim(Key::of(&[b"u"]), shm.scoreboard().claim(1, slot));
            Peer {
                address: PeerAddress::Unix("/x".into()),
                name: String::new(),
                slot: Slot::nth(0),
                line: 0,
                which: Vec::new(),
                server: 0,
                weight: 1,
                backup: false,
                slow_start_ms: 0,
                scale: 1,
                checks: Vec::new(),
                is_watched: false,
                waiting: Cell::default(),
                max_conns: 0,
                max_fails: 1,
                fail_timeout_ms: 1000,
                down: false,
                drain: false,
                sid: String::new(),
                facts: row,
                turn: row,
                series: None,
            }
        };
        (0..processes).map(peer).collect()
    }

    #[test]
    fn exactly_one_of_many_makes_the_trial() {
        let peers = peers(4);
        let facts = peers[0].facts;
        let begin = std::sync::Barrier::new(4);
        let trials = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for peer in peers {
                let (begin, trials) = (&begin, &trials);
                scope.spawn(move || {
                    for round in 1..=2000u64 {
                        peer.failed(round * 10_000, false);
                        begin.wait();
                        if peer.enter(round * 10_000 + 1001) {
                            trials.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            peer.facts.release();
                        }
                        begin.wait();
                    }
                });
            }
        });
        assert_eq!(trials.into_inner(), 2000);
        assert_eq!(facts.in_flight(), 0, "who was too late holds no place");
    }
}
