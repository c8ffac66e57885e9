//! How often a key was seen: the leaky bucket of nginx's `limit_req`, exact over all processes.
//!
//! A key is one word, `tag24 | level40`: when its bucket will have run empty, in thousandths of a request since the clock
//! began. One compare-and-swap judges and charges; nothing is locked, nothing is left half done by a process that dies. A
//! bucket of eight words is a cache line; when all eight are in use the one that has least left gives way, so a charge
//! never fails.

use crate::keyed::Secret;
use crate::zones::{BUCKET, ZonePlan, Zones};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LEVEL_BITS: u32 = 40;
const LEVEL: u64 = (1 << LEVEL_BITS) - 1;
/// One request.
const ONE: i64 = 1000;
/// The largest excess that can be told from a level that is long past.
pub const EXCESS_MAX: u64 = (1 << (LEVEL_BITS - 1)) - 2 * ONE as u64;
/// Collisions with other processes in a row before a request passes unseen; each means that another one went on.
const TRIES: u32 = 1000;

/// A hashed key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashed(pub(crate) u64);

/// A request was over the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// By how much it would have been, in thousandths of a request.
    pub excess: u64,
}

/// One zone of rates.
#[derive(Debug, Clone, Copy)]
pub struct RateZone {
    cells: &'static [AtomicU64],
    /// How often a key that still counted gave way to another one.
    overflows: &'static AtomicU64,
    secret: Secret,
    /// Thousandths of a request per second.
    rate: u64,
    /// Largest excess any limit allows: a level further ahead is one from before the clock went round.
    reach: i64,
}

enum Slot<'a> {
    Live(&'a AtomicU64, u64, i64),
    /// Whether another key that still counts is forgotten for it comes last.
    Free(&'a AtomicU64, u64, bool),
}

impl RateZone {
    /// A zone of the configuration. `rate` is in thousandths of a request per second, `reach` the largest excess that a
    /// limit of it allows, in thousandths of a request.
    pub fn new(zones: &Zones, plan: &ZonePlan, rate: u64, reach: u64) -> Self {
        let stretch = zones.stretch(plan);
        Self {
            cells: stretch.cells,
            overflows: stretch.overflows,
            secret: zones.secret(),
            rate: rate.max(1),
            reach: reach.min(EXCESS_MAX) as i64,
        }
    }

    /// Thousandths of a request per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Hashes a key.
    pub fn hash(&self, key: &[u8]) -> Hashed {
        Hashed(self.secret.hash(key))
    }

    /// By how much a request now would be over the rate, without charging it.
    pub fn excess(&self, key: Hashed, now_ms: u64) -> u64 {
        match self.slot(key, self.level(now_ms)) {
            Slot::Live(_, _, ahead) => (ahead + ONE).max(0) as u64,
            Slot::Free(..) => 0,
        }
    }

    /// Charges a request, if that leaves it at most `burst` over the rate; returns by how much it is.
    pub fn charge(&self, key: Hashed, now_ms: u64, burst: u64) -> Result<u64, Exceeded> {
        let now = self.level(now_ms);
        for _ in 0..TRIES {
            let (cell, seen, excess, forgets) = match self.slot(key, now) {
                Slot::Live(cell, seen, ahead) => (cell, seen, (ahead + ONE).max(0) as u64, false),
                Slot::Free(cell, seen, forgets) => (cell, seen, 0, forgets),
            };
            if excess > burst {
                return Err(Exceeded { excess });
            }
            let word = tag(key) | (now + excess) & LEVEL;
            if cell.compare_exchange(seen, word, Relaxed, Relaxed).is_ok() {
                if forgets {
                    self.overflows.fetch_add(1, Relaxed);
                }
                return Ok(excess);
            }
        }
        Ok(0)
    }

    /// Takes a charge back: another limit refused the request.
    pub fn refund(&self, key: Hashed, now_ms: u64) {
        for _ in 0..TRIES {
            let Slot::Live(cell, seen, _) = self.slot(key, self.level(now_ms)) else {
                return;
            };
            let word = tag(key) | (seen & LEVEL).wrapping_sub(ONE as u64) & LEVEL;
            if cell.compare_exchange(seen, word, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    fn level(&self, now_ms: u64) -> u64 {
        level(now_ms, self.rate)
    }

    /// The word of a key, or the one it would take: its own that has run out, an empty one, the one with least left. All
    /// processes choose alike, so that two of them do not give one key two words.
    fn slot(&self, key: Hashed, now: u64) -> Slot<'static> {
        const OWN: i64 = i64::MIN;
        const EMPTY: i64 = i64::MIN + 1;
        const ANCIENT: i64 = i64::MIN + 2;
        let buckets = self.cells.len() / BUCKET;
        let start = (key.0 & LEVEL) as usize % buckets.max(1) * BUCKET;
        let mut best: Option<(i64, &AtomicU64, u64)> = None;
        for cell in &self.cells[start..start + BUCKET] {
            let seen = cell.load(Relaxed);
            let ahead = ahead(seen & LEVEL, now);
            let rank = if seen == 0 {
                EMPTY
            } else if seen & !LEVEL == tag(key) {
                if ahead > -ONE && ahead <= self.reach {
                    return Slot::Live(cell, seen, ahead);
                }
                OWN
            } else if ahead > self.reach {
                ANCIENT
            } else {
                ahead
            };
            if best.is_none_or(|(least, ..)| rank < least) {
                best = Some((rank, cell, seen));
            }
        }
        match best {
            Some((rank, cell, seen)) => Slot::Free(cell, seen, rank > -ONE),
            // A bucket is never empty of words; the first stands for it.
            None => Slot::Free(&self.cells[0], self.cells[0].load(Relaxed), false),
        }
    }
}

/// Whether a word is of a key whose bucket has not run empty.
pub(crate) fn is_living(word: u64, rate: u64, reach: u64, now_ms: u64) -> bool {
    let ahead = ahead(word & LEVEL, level(now_ms, rate.max(1)));
    word != 0 && ahead > -ONE && ahead <= reach.min(EXCESS_MAX) as i64
}

fn level(now_ms: u64, rate: u64) -> u64 {
    (u128::from(now_ms) * u128::from(rate) / 1000) as u64 & LEVEL
}

/// Never 0, so that no word of a key is an empty one.
fn tag(key: Hashed) -> u64 {
    let tag = key.0 & !LEVEL;
    if tag == 0 { 1 << LEVEL_BITS } else { tag }
}

/// How far `level` is ahead of `now` on the clock that goes round.
fn ahead(level: u64, now: u64) -> i64 {
    let distance = (level.wrapping_sub(now) & LEVEL) as i64;
    if distance > (LEVEL / 2) as i64 {
        distance - (LEVEL as i64 + 1)
    } else {
        distance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Shm, ZoneKind};
    use std::collections::HashMap;

    fn zone(bytes: u64, rate: u64, reach: u64) -> RateZone {
        let shm = Shm::private().unwrap();
        let plan = ZonePlan {
            key: Key::of(&[b"z"]),
            kind: ZoneKind::Rate,
            bytes,
        };
        assert!(shm.zones().prepare(&plan, 1));
        RateZone::new(&shm.zones(), &plan, rate, reach)
    }

    /// A fixed sequence that looks random.
    fn draw(seed: &mut u64) -> u64 {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    /// nginx's two fields per key, with time that is not rounded per request.
    #[derive(Default)]
    struct Reference {
        last_and_excess: HashMap<u64, (u64, i64)>,
    }

    impl Reference {
        fn charge(&mut self, key: u64, now_ms: u64, rate: u64, burst: u64) -> Result<u64, u64> {
            let units = |ms: u64| (ms * rate / 1000) as i64;
            let excess = match self.last_and_excess.get(&key) {
                Some((last, excess)) => (excess - (units(now_ms) - units(*last)) + ONE).max(0),
                None => 0,
            };
            if excess as u64 > burst {
                return Err(excess as u64);
            }
            self.last_and_excess.insert(key, (now_ms, excess));
            Ok(excess as u64)
        }
    }

    #[test]
    fn agrees_with_the_bucket_that_leaks() {
        for (rate, burst) in [
            (16, 0),
            (1000, 0),
            (1000, 3000),
            (10_000, 5000),
            (2_500_000, 100_000),
        ] {
            let zone = zone(1 << 20, rate, burst);
            let mut reference = Reference::default();
            let (mut seed, mut now_ms) = (rate + burst, 1_234_567);
            for _ in 0..20_000 {
                now_ms += draw(&mut seed) % (4_000_000 / rate).max(3);
                let key = draw(&mut seed) % 5;
                let charged = zone.charge(zone.hash(&key.to_le_bytes()), now_ms, burst);
                let expected = reference.charge(key, now_ms, rate, burst);
                assert_eq!(charged.map_err(|error| error.excess), expected);
            }
        }
    }

    #[test]
    fn looking_charges_nothing_and_a_refund_takes_back_what_was_charged() {
        let zone = zone(32 << 10, 1000, 5000);
        let key = zone.hash(b"client");
        assert_eq!(zone.charge(key, 5000, 5000), Ok(0));
        assert_eq!(zone.excess(key, 5000), 1000);
        assert_eq!(zone.excess(key, 5000), 1000);
        assert_eq!(zone.charge(key, 5000, 5000), Ok(1000));
        zone.refund(key, 5000);
        assert_eq!(zone.excess(key, 5000), 1000);
        zone.refund(key, 5000);
        assert_eq!(zone.excess(key, 5000), 0);
        zone.refund(zone.hash(b"nobody"), 5000);
        assert_eq!(zone.charge(key, 5000, 0), Ok(0));
        assert_eq!(zone.charge(key, 5000, 0), Err(Exceeded { excess: 1000 }));
    }

    #[test]
    fn a_full_zone_forgets_the_one_with_least_left() {
        let zone = zone(64, 1000, 100_000);
        let keys: Vec<Hashed> = (0..9u8).map(|n| zone.hash(&[n])).collect();
        for (n, key) in keys.iter().enumerate() {
            for _ in 0..=(if n == 4 { 0 } else { n + 2 }) {
                assert!(zone.charge(*key, 1000, 100_000).is_ok());
            }
        }
        assert_eq!(zone.excess(keys[4], 1000), 0, "forgotten");
        assert_eq!(zone.excess(keys[8], 1000), 11_000);
        assert_eq!(zone.excess(keys[0], 1000), 3000);
    }

    /// Keys that are seen once push out each other, and not those that are over their rate.
    #[test]
    fn a_flood_of_keys_does_not_wash_out_who_is_limited() {
        let zone = zone(32 << 10, 1000, 5000);
        let victims: Vec<Hashed> = (0..64u8).map(|n| zone.hash(&[b'v', n])).collect();
        for key in &victims {
            for _ in 0..4 {
                assert!(zone.charge(*key, 1000, 5000).is_ok());
            }
        }
        for n in 0..100_000u32 {
            assert!(zone.charge(zone.hash(&n.to_le_bytes()), 1500, 5000).is_ok());
        }
        let kept = victims
            .iter()
            .filter(|key| zone.excess(**key, 1500) == 3500);
        assert_eq!(kept.count(), 64);
    }

    #[test]
    fn what_was_there_before_the_clock_went_round_counts_for_nothing() {
        let zone = zone(64, 10_000_000, 1000);
        let key = zone.hash(b"client");
        let round_ms = (1u64 << LEVEL_BITS) / 10_000;
        for later_ms in [
            round_ms / 4,
            round_ms / 2,
            round_ms / 4 * 3,
            round_ms - 5,
            round_ms * 3 / 2,
        ] {
            let _ = zone.charge(key, 1_000_000, 1000);
            assert_eq!(zone.excess(key, 1_000_000 + later_ms), 0, "{later_ms}");
            assert_eq!(zone.charge(key, 1_000_000 + later_ms, 1000), Ok(0));
        }
    }

    #[test]
    fn racing_processes_let_through_exactly_what_the_limit_allows() {
        let zone = zone(1 << 20, 1000, 4_999_000);
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        if zone.charge(zone.hash(b"one"), 77, 4_999_000).is_ok() {
                            passed.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(passed.load(Relaxed), 5000);
    }
}
