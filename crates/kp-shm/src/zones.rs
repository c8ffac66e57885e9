//! Memory for what is counted by key: one stretch per zone of the configuration, out of a region that is mapped before the
//! first fork.
//!
//! A zone is found by its identity, which holds its name, kind, size, key and rate: one of those changed makes another
//! zone, which begins empty. The master alone hands stretches out and takes them back when no process of a generation that
//! used them lives; everybody else only looks them up. Out of room means memory of the process's own: limits then hold
//! per worker, which [`Zones::overflows`] tells.

use crate::keyed::Secret;
use crate::peers::Key;
use crate::scoreboard::Scoreboard;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Words of a bucket: a cache line.
pub(crate) const BUCKET: usize = 8;

/// Zones that can be told apart at a time.
const ZONES: usize = 1024;
const WIDTH: usize = 8;
const KEY_LOW: usize = 0;
const KEY_HIGH: usize = 1;
const START: usize = 2;
/// In cells; 0: the row is free. Written last.
const LENGTH: usize = 3;
/// The newest generation that uses it.
const GENERATION: usize = 4;
const KIND: usize = 5;
/// How often it had no room. Nobody reads the rest of the row while requests are served.
const OVERFLOWS: usize = 6;

const SECRET: usize = 0;
const HOMELESS: usize = 2;
/// Behind this cell of the arena nothing was ever set aside.
const FRESH: usize = 3;
const HEADER: usize = 8;

/// What a zone counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum ZoneKind {
    /// How often: see [`crate::RateZone`].
    Rate = 1,
    /// How many at a time: see [`crate::PlaceZone`].
    Places = 2,
    /// Nothing: it remembers, see [`crate::SessionZone`].
    Sessions = 3,
}

/// A zone as a configuration describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZonePlan {
    /// Its identity.
    pub key: Key,
    /// What it counts.
    pub kind: ZoneKind,
    /// How much memory it may take.
    pub bytes: u64,
}

impl ZonePlan {
    /// Whole buckets, one at least.
    fn cells(&self) -> usize {
        let cells = usize::try_from(self.bytes / 8).unwrap_or(usize::MAX);
        (cells / BUCKET).max(1).saturating_mul(BUCKET)
    }
}

/// The zones of all generations.
#[derive(Debug, Clone, Copy)]
pub struct Zones {
    scoreboard: Scoreboard,
    header: &'static [AtomicU64],
    directory: &'static [AtomicU64],
    arena: &'static [AtomicU64],
}

/// The memory of one zone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) cells: &'static [AtomicU64],
    /// Where it lies in the arena; `None`: memory of this process.
    pub(crate) start: Option<usize>,
    /// How often it had no room.
    pub(crate) overflows: &'static AtomicU64,
}

impl Zones {
    pub(crate) fn directory_cells() -> usize {
        HEADER + ZONES * WIDTH
    }

    pub(crate) fn new(
        scoreboard: Scoreboard,
        directory: &'static [AtomicU64],
        arena: &'static [AtomicU64],
    ) -> std::io::Result<Self> {
        let (header, directory) = directory.split_at(HEADER.min(directory.len()));
        for cell in header.iter().skip(SECRET).take(2) {
            let mut seed = [0; 8];
            kp_sys::random(&mut seed)?;
            cell.store(u64::from_ne_bytes(seed), Relaxed);
        }
        Ok(Self {
            scoreboard,
            header,
            directory,
            arena,
        })
    }

    /// Makes sure that a zone has its memory, before the processes of a generation are forked. Only the master calls
    /// this. `false`: there is no room, and each process will count for itself.
    pub fn prepare(&self, plan: &ZonePlan, generation: u32) -> bool {
        if let Some(row) = self.row(plan.key) {
            row[GENERATION].fetch_max(generation.into(), Relaxed);
            return true;
        }
        self.reclaim(generation);
        let free = self
            .directory
            .chunks_exact(WIDTH)
            .find(|row| row[LENGTH].load(Relaxed) == 0);
        let (Some(row), Some(range)) = (free, self.gap(plan.cells())) else {
            self.header[HOMELESS].fetch_add(1, Relaxed);
            return false;
        };
        // What a former zone left there. The rest is not even read: in shared memory that costs as much as to write it.
        let fresh = self.header[FRESH].fetch_max(range.end as u64, Relaxed) as usize;
        let left = range.start.min(fresh)..range.end.min(fresh);
        for cell in self.arena.get(left).into_iter().flatten() {
            if cell.load(Relaxed) != 0 {
                cell.store(0, Relaxed);
            }
        }
        row[KEY_LOW].store(plan.key.low(), Relaxed);
        row[KEY_HIGH].store(plan.key.high(), Relaxed);
        row[START].store(range.start as u64, Relaxed);
        row[GENERATION].store(generation.into(), Relaxed);
        row[KIND].store(plan.kind as u64, Relaxed);
        row[OVERFLOWS].store(0, Relaxed);
        row[LENGTH].store(range.len() as u64, Release);
        true
    }

    /// How many zones found no room, which is worth a warning.
    pub fn overflows(&self) -> u64 {
        self.header[HOMELESS].load(Relaxed)
    }

    /// The memory of a zone, or some of this process's own.
    pub(crate) fn stretch(&self, plan: &ZonePlan) -> Stretch {
        if let Some(shared) = self.shared(plan) {
            return shared;
        }
        // Sparse, as the region is: a zone that is large costs what is used of it.
        let cells = match kp_sys::region::Region::private(plan.cells()) {
            Ok(region) => region.cells(),
            Err(_) => Vec::leak((0..BUCKET).map(|_| AtomicU64::new(0)).collect()),
        };
        Stretch {
            cells,
            start: None,
            overflows: Box::leak(Box::default()),
        }
    }

    /// The memory of a zone that all processes have.
    pub(crate) fn shared(&self, plan: &ZonePlan) -> Option<Stretch> {
        let row = self.row(plan.key)?;
        let range = range(row);
        Some(Stretch {
            cells: self.arena.get(range.clone())?,
            start: Some(range.start),
            overflows: &row[OVERFLOWS],
        })
    }

    pub(crate) fn secret(&self) -> Secret {
        Secret::new(
            self.header[SECRET].load(Relaxed),
            self.header[SECRET + 1].load(Relaxed),
        )
    }

    pub(crate) fn cell(&self, index: usize) -> Option<&'static AtomicU64> {
        self.arena.get(index)
    }

    /// Which cells of a zone somebody has touched: the others are zero, and stay without memory.
    pub(crate) fn touched(&self, zone: Range<usize>) -> Vec<Range<usize>> {
        let start = zone.start;
        let found = self.arena.get(zone).map(kp_sys::region::touched);
        let found = found.into_iter().flatten();
        found
            .map(|part| start + part.start..start + part.end)
            .collect()
    }

    /// Where the zones that count places lie.
    pub(crate) fn places(&self) -> impl Iterator<Item = Range<usize>> {
        self.directory
            .chunks_exact(WIDTH)
            .filter(|row| {
                row[LENGTH].load(Acquire) != 0 && row[KIND].load(Relaxed) == ZoneKind::Places as u64
            })
            .map(range)
    }

    fn row(&self, key: Key) -> Option<&'static [AtomicU64]> {
        self.directory.chunks_exact(WIDTH).find(|row| {
            row[LENGTH].load(Acquire) != 0
                && row[KEY_LOW].load(Relaxed) == key.low()
                && row[KEY_HIGH].load(Relaxed) == key.high()
        })
    }

    /// Frees the zones of generations of which nobody lives.
    fn reclaim(&self, coming: u32) {
        let oldest = self
            .scoreboard
            .processes()
            .map(|process| process.generation)
            .fold(coming, u32::min);
        for row in self.directory.chunks_exact(WIDTH) {
            if row[GENERATION].load(Relaxed) < u64::from(oldest) {
                row[LENGTH].store(0, Relaxed);
            }
        }
    }

    /// The first stretch of the arena that nobody has.
    fn gap(&self, cells: usize) -> Option<Range<usize>> {
        let mut taken: Vec<Range<usize>> = self
            .directory
            .chunks_exact(WIDTH)
            .filter(|row| row[LENGTH].load(Relaxed) != 0)
            .map(range)
            .collect();
        taken.sort_by_key(|range| range.start);
        let mut start = 0;
        for range in taken {
            if range.start - start >= cells {
                break;
            }
            start = range.end;
        }
        let end = start.checked_add(cells)?;
        (end <= self.arena.len()).then_some(start..end)
    }
}

fn range(row: &[AtomicU64]) -> Range<usize> {
    let start = row[START].load(Relaxed) as usize;
    start..start + row[LENGTH].load(Relaxed) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;

    fn plan(name: &str, bytes: u64) -> ZonePlan {
        ZonePlan {
            key: Key::of(&[name.as_bytes()]),
            kind: ZoneKind::Rate,
            bytes,
        }
    }

    #[test]
    fn a_zone_is_the_same_for_everybody_and_apart_from_others() {
        let shm = Shm::private().unwrap();
        let (a, b) = (plan("a", 32 << 10), plan("b", 64 << 10));
        assert!(shm.zones().prepare(&a, 1) && shm.zones().prepare(&b, 1));
        assert!(shm.zones().prepare(&a, 2));
        let (first, second) = (shm.zones().stretch(&a), shm.zones().stretch(&b));
        assert_eq!((first.start, first.cells.len()), (Some(0), 4096));
        assert_eq!((second.start, second.cells.len()), (Some(4096), 8192));
        assert_eq!(shm.zones().stretch(&plan("c", 32 << 10)).start, None);
    }

    #[test]
    fn memory_comes_back_when_the_last_user_is_gone() {
        let shm = Shm::private().unwrap();
        let old = plan("old", 32 << 10);
        assert!(shm.zones().prepare(&old, 1));
        let user = shm.scoreboard().claim(1, 0);
        shm.zones().stretch(&old).cells[7].store(5, Relaxed);
        assert!(shm.zones().prepare(&plan("new", 32 << 10), 2));
        assert_eq!(shm.zones().stretch(&old).start, Some(0), "still used");

        shm.reap(user);
        let newest = plan("newest", 32 << 10);
        assert!(shm.zones().prepare(&newest, 3));
        let stretch = shm.zones().stretch(&newest);
        assert_eq!(stretch.start, Some(0));
        assert_eq!(stretch.cells[7].load(Relaxed), 0, "it begins empty");
        assert_eq!(shm.zones().overflows(), 0);
    }

    #[test]
    fn without_room_a_process_counts_for_itself() {
        let shm = Shm::private().unwrap();
        let huge = plan("huge", 1 << 40);
        assert!(!shm.zones().prepare(&huge, 1));
        assert_eq!(shm.zones().overflows(), 1);
        let own = shm.zones().stretch(&plan("own", 64));
        assert_eq!((own.start, own.cells.len()), (None, BUCKET));
    }
}
