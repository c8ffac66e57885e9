//! How full a zone is, found out when somebody asks.
//!
//! Decides how much of a zone is looked at. Nothing is counted while requests are served but what found no room: an entry
//! ends by itself as time passes, so a running count would be wrong at once, and whatever a killed process left half done
//! is seen here as it is. Of a large zone an even sample is read, whose share stands for the whole, so that the work is
//! bounded; keys lie where their hashes send them, so one part of a table is as full as another.

use crate::zones::{BUCKET, ZoneKind, ZonePlan, Zones};
use crate::{places, rates, sessions};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets that are read at a stretch: whole pages of memory, so that a sample touches few of them.
const RUN: usize = 64;

/// How full a zone is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    /// Keys or sessions that count now.
    pub entries: u64,
    /// How many fit.
    pub max_entries: u64,
    /// How often there was no room: another entry was forgotten, or a request passed uncounted.
    pub overflows: u64,
}

/// What counts now.
#[derive(Debug, Clone, Copy)]
pub enum Living {
    /// Keys whose bucket has not run empty, as [`crate::RateZone::new`] was told of it.
    Rates {
        /// Thousandths of a request per second.
        rate: u64,
        /// The largest excess that a limit allows, in thousandths of a request.
        reach: u64,
        /// Monotonic.
        now_ms: u64,
    },
    /// Keys of which there is one at least.
    Places,
    /// Sessions that were used after this moment.
    Sessions {
        /// Monotonic.
        since_ms: u64,
    },
}

impl Living {
    fn kind(&self) -> ZoneKind {
        match self {
            Self::Rates { .. } => ZoneKind::Rate,
            Self::Places => ZoneKind::Places,
            Self::Sessions { .. } => ZoneKind::Sessions,
        }
    }

    /// Cells of a bucket, and of an entry in it.
    fn layout(&self) -> (usize, usize) {
        match self {
            Self::Rates { .. } | Self::Places => (BUCKET, 1),
            Self::Sessions { .. } => (sessions::BUCKET, sessions::WIDTH),
        }
    }

    fn is_living(&self, entry: &[AtomicU64]) -> bool {
        let first = || entry.first().map_or(0, |cell| cell.load(Relaxed));
        match *self {
            Self::Rates {
                rate,
                reach,
                now_ms,
            } => rates::is_living(first(), rate, reach, now_ms),
            Self::Places => places::is_living(first()),
            Self::Sessions { since_ms } => sessions::is_living(entry, since_ms),
        }
    }
}

impl Zones {
    /// How full a zone is, after a look at `cells_max` of its cells of eight bytes, or at a run of them if that is more.
    /// `None`: each process has one of its own, since there was no room, or it was not set aside.
    pub fn occupancy(
        &self,
        plan: &ZonePlan,
        living: &Living,
        cells_max: usize,
    ) -> Option<Occupancy> {
        debug_assert_eq!(plan.kind, living.kind());
        let stretch = self.shared(plan)?;
        let (bucket, entry) = living.layout();
        let buckets = stretch.cells.len() / bucket;
        let cells = stretch.cells.get(..buckets * bucket)?;
        let step = cells.len().div_ceil(cells_max.max(1)).max(1);
        let (mut seen, mut found) = (0u64, 0u64);
        for run in cells.chunks(RUN * bucket).step_by(step) {
            seen += run.len() as u64;
            let living = run.chunks_exact(entry).filter(|one| living.is_living(one));
            found += living.count() as u64;
        }
        let share = u128::from(found) * cells.len() as u128 / u128::from(seen.max(1));
        Some(Occupancy {
            entries: u64::try_from(share).unwrap_or(u64::MAX),
            max_entries: (cells.len() / entry) as u64,
            overflows: stretch.overflows.load(Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, PlaceZone, RateZone, SessionZone, Shm, Taken};

    const ALL: usize = usize::MAX;

    fn plan(shm: &Shm, kind: ZoneKind, bytes: u64) -> ZonePlan {
        let plan = ZonePlan {
            key: Key::of(&[b"z", &[kind as u8]]),
            kind,
            bytes,
        };
        assert!(shm.zones().prepare(&plan, 1));
        plan
    }

    fn seen(shm: &Shm, plan: &ZonePlan, living: Living, cells_max: usize) -> [u64; 3] {
        let found = shm.zones().occupancy(plan, &living, cells_max).unwrap();
        [found.entries, found.max_entries, found.overflows]
    }

    /// 1 request a second.
    fn rates(now_ms: u64) -> Living {
        Living::Rates {
            rate: 1000,
            reach: 5000,
            now_ms,
        }
    }

    #[test]
    fn keys_that_were_seen_count_until_their_bucket_is_empty() {
        let shm = Shm::private().unwrap();
        let plan = plan(&shm, ZoneKind::Rate, 32 << 10);
        let zone = RateZone::new(&shm.zones(), &plan, 1000, 5000);
        assert_eq!(seen(&shm, &plan, rates(1000), ALL), [0, 4096, 0]);
        for n in 0..100u8 {
            assert!(zone.charge(zone.hash(&[n]), 1000, 5000).is_ok());
        }
        assert!(zone.charge(zone.hash(&[0]), 1000, 5000).is_ok());
        assert_eq!(seen(&shm, &plan, rates(1000), ALL), [100, 4096, 0]);
        assert_eq!(seen(&shm, &plan, rates(1999), ALL), [100, 4096, 0]);
        assert_eq!(seen(&shm, &plan, rates(2000), ALL), [1, 4096, 0]);
        assert_eq!(seen(&shm, &plan, rates(3000), ALL), [0, 4096, 0]);
    }

    #[test]
    fn a_key_that_counted_and_was_forgotten_is_an_overflow() {
        let shm = Shm::private().unwrap();
        let plan = plan(&shm, ZoneKind::Rate, 64);
        let zone = RateZone::new(&shm.zones(), &plan, 1000, 5000);
        for n in 0..11u8 {
            assert!(zone.charge(zone.hash(&[n]), 1000, 5000).is_ok());
        }
        assert_eq!(seen(&shm, &plan, rates(1000), ALL), [8, 8, 3]);
        // Those whose bucket is empty lose nothing.
        for n in 20..28u8 {
            assert!(zone.charge(zone.hash(&[n]), 5000, 5000).is_ok());
        }
        assert_eq!(seen(&shm, &plan, rates(5000), ALL), [8, 8, 3]);
    }

    /// After a kill the word is too high until the master puts it right, and counts until then.
    #[test]
    fn places_count_while_somebody_has_one() {
        let shm = Shm::private().unwrap();
        let plan = plan(&shm, ZoneKind::Places, 64);
        let row = shm.scoreboard().claim(1, 0);
        let zone = PlaceZone::new(&shm.zones(), &plan, shm.journal(row));
        let take = |n: u8| zone.take(zone.hash(&[n]), 9);
        let held: Vec<Taken> = (0..8).map(take).collect();
        let twice = take(3);
        assert_eq!(seen(&shm, &plan, Living::Places, ALL), [8, 8, 0]);
        assert!(matches!(take(9), Taken::Uncounted));
        assert_eq!(seen(&shm, &plan, Living::Places, ALL), [8, 8, 1]);
        drop((held, twice));
        assert_eq!(seen(&shm, &plan, Living::Places, ALL), [0, 8, 1]);
        let lost = take(1);
        std::mem::forget(lost);
        shm.reap(row);
        assert_eq!(seen(&shm, &plan, Living::Places, ALL), [0, 8, 1]);
    }

    #[test]
    fn sessions_count_until_they_are_old() {
        let shm = Shm::private().unwrap();
        let plan = plan(&shm, ZoneKind::Sessions, 24 * 8);
        let zone = SessionZone::new(&shm.zones(), &plan);
        let of = |since_ms| Living::Sessions { since_ms };
        for n in 0..8u8 {
            zone.learn(&[n], 7, 100 + u64::from(n), 0);
        }
        zone.learn(&[0], 8, 200, 0);
        assert_eq!(seen(&shm, &plan, of(0), ALL), [8, 8, 0]);
        assert_eq!(seen(&shm, &plan, of(103), ALL), [5, 8, 0]);
        zone.learn(b"old gives way", 7, 300, 150);
        assert_eq!(seen(&shm, &plan, of(150), ALL), [2, 8, 0]);
        zone.learn(b"young gives way", 7, 300, 50);
        assert_eq!(seen(&shm, &plan, of(150), ALL), [3, 8, 1]);
    }

    #[test]
    fn of_a_large_zone_a_part_stands_for_the_whole() {
        let shm = Shm::private().unwrap();
        let plan = plan(&shm, ZoneKind::Rate, 4 << 20);
        let zone = RateZone::new(&shm.zones(), &plan, 1000, 5000);
        for n in 0..100_000u32 {
            let key = zone.hash(&n.to_le_bytes());
            assert!(zone.charge(key, 1000, 5000).is_ok());
        }
        let [all, room, _] = seen(&shm, &plan, rates(1000), ALL);
        assert!(all > 99_900 && room == 1 << 19, "{all} of {room}");
        let [some, ..] = seen(&shm, &plan, rates(1000), 1 << 16);
        assert!(some.abs_diff(all) < all / 20, "{some} for {all}");
        // The least that is looked at is one run.
        assert!(seen(&shm, &plan, rates(1000), 0)[0] > 0);
    }

    #[test]
    fn a_zone_that_was_not_set_aside_is_not_known() {
        let shm = Shm::private().unwrap();
        let plan = ZonePlan {
            key: Key::of(&[b"nowhere"]),
            kind: ZoneKind::Places,
            bytes: 1 << 20,
        };
        assert_eq!(shm.zones().occupancy(&plan, &Living::Places, ALL), None);
    }
}
