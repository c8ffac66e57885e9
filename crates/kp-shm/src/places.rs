//! How many of a key are there at a time: `limit_conn`, exact over all processes and over their deaths.
//!
//! A key is one word, `tag32 | count32`, in a bucket of eight; a key whose bucket is full may lie in one of the next.
//! Each process writes down which words it has counted itself in (its journal), and the master takes those back when the
//! process dies. A word is raised before and lowered after its line in the journal: a kill in between leaves it too high,
//! which [`crate::Repair`] sees.

use crate::keyed::Secret;
use crate::rates::Hashed;
use crate::scoreboard::Row;
use crate::zones::{BUCKET, ZonePlan, Zones};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};

const COUNT: u64 = 0xffff_ffff;
/// Buckets a key may lie in.
const REACH: usize = 4;
/// Collisions with other processes in a row before a place is given without being counted.
const TRIES: u32 = 1000;

/// The journals of all processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Journals {
    lines: &'static [AtomicU64],
    each: usize,
}

impl Journals {
    pub(crate) fn new(lines: &'static [AtomicU64], each: usize) -> Self {
        Self { lines, each }
    }

    /// The lines of one process; the first says how many of the others were ever written.
    fn of(&self, row: Row) -> Option<&'static [AtomicU64]> {
        let start = row.index().checked_mul(self.each)?;
        self.lines.get(start..start.checked_add(self.each)?)
    }

    fn written(&self, row: Row) -> &'static [AtomicU64] {
        let lines = self.of(row).unwrap_or_default();
        match lines.split_first() {
            Some((used, lines)) => &lines[..(used.load(Relaxed) as usize).min(lines.len())],
            None => &[],
        }
    }

    /// Gives back what a dead process had, once.
    pub(crate) fn reap(&self, zones: &Zones, row: Row) {
        for line in self.written(row) {
            let index = line.swap(0, Relaxed);
            if let Some(cell) = index.checked_sub(1).and_then(|at| zones.cell(at as usize)) {
                lower(cell);
            }
        }
        if let Some(used) = self.of(row).and_then(|lines| lines.first())
            && used.load(Relaxed) != 0
        {
            used.store(0, Relaxed);
        }
    }

    /// For each word that somebody counts in or that counts somebody: how much too high it is.
    pub(crate) fn differences(&self, zones: &Zones, processes: usize) -> Vec<(usize, i64)> {
        let mut held: HashMap<usize, i64> = HashMap::new();
        for row in (0..processes).map(Row::at) {
            for line in self.written(row) {
                if let Some(index) = (line.load(Relaxed) as usize).checked_sub(1) {
                    *held.entry(index).or_default() += 1;
                }
            }
        }
        let mut differences = Vec::new();
        for index in zones
            .places()
            .flat_map(|zone| zones.touched(zone))
            .flatten()
        {
            let Some(cell) = zones.cell(index) else { break };
            let count = (cell.load(Relaxed) & COUNT) as i64;
            let difference = count - held.get(&index).copied().unwrap_or(0);
            if difference != 0 {
                differences.push((index, difference));
            }
        }
        differences
    }

    /// Takes `by` off a word that was found too high.
    pub(crate) fn correct(zones: &Zones, index: usize, by: i64) {
        for _ in 0..by {
            if let Some(cell) = zones.cell(index) {
                lower(cell);
            }
        }
    }
}

/// What one process has counted itself in.
pub struct Journal {
    used: &'static AtomicU64,
    lines: &'static [AtomicU64],
    free: Cell<Vec<u32>>,
    fresh: Cell<u32>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("fresh", &self.fresh.get())
            .finish_non_exhaustive()
    }
}

impl Journal {
    pub(crate) fn new(journals: &Journals, row: Row) -> Option<Rc<Self>> {
        let (used, lines) = journals.of(row)?.split_first()?;
        Some(Rc::new(Self {
            used,
            lines,
            free: Cell::default(),
            fresh: Cell::new(0),
        }))
    }

    fn take_line(&self) -> Option<u32> {
        let mut free = self.free.take();
        let line = free.pop();
        self.free.set(free);
        if line.is_some() {
            return line;
        }
        let line = self.fresh.get();
        self.lines.get(line as usize)?;
        self.fresh.set(line + 1);
        self.used.store(u64::from(line) + 1, Relaxed);
        Some(line)
    }

    fn give_line(&self, line: u32) {
        let mut free = self.free.take();
        free.push(line);
        self.free.set(free);
    }

    fn write(&self, line: u32, value: u64) {
        if let Some(cell) = self.lines.get(line as usize) {
            cell.store(value, Relaxed);
        }
    }
}

/// One zone of places.
#[derive(Debug, Clone)]
pub struct PlaceZone {
    cells: &'static [AtomicU64],
    /// Where the zone lies; `None`: memory of this process, which dies with it.
    start: Option<usize>,
    /// How often somebody passed uncounted for want of room.
    overflows: &'static AtomicU64,
    secret: Secret,
    journal: Option<Rc<Journal>>,
}

/// What became of a request for a place.
#[derive(Debug)]
pub enum Taken {
    /// It is counted until it is dropped.
    Place(Place),
    /// As many as allowed are there.
    Full,
    /// There is no room to count it: it passes.
    Uncounted,
}

impl PlaceZone {
    /// A zone of the configuration, for the process whose journal it is.
    pub fn new(zones: &Zones, plan: &ZonePlan, journal: Option<Rc<Journal>>) -> Self {
        let stretch = zones.stretch(plan);
        Self {
            cells: stretch.cells,
            start: stretch.start,
            overflows: stretch.overflows,
            secret: zones.secret(),
            journal,
        }
    }

    /// Hashes a key.
    pub fn hash(&self, key: &[u8]) -> Hashed {
        Hashed(self.secret.hash(key))
    }

    /// How many there are.
    pub fn count(&self, key: Hashed) -> u32 {
        self.find(key).map_or(0, |(_, seen)| (seen & COUNT) as u32)
    }

    /// Takes a place unless `max` are taken.
    pub fn take(&self, key: Hashed, max: u32) -> Taken {
        let line = match (&self.start, &self.journal) {
            (None, _) => None,
            (Some(_), Some(journal)) => match journal.take_line() {
                Some(line) => Some((Rc::clone(journal), line)),
                None => return self.uncounted(),
            },
            // It could not be given back if this process died.
            (Some(_), None) => return self.uncounted(),
        };
        match self.raise(key, max) {
            Raised::At(index) => {
                if let (Some((journal, line)), Some(start)) = (&line, self.start) {
                    journal.write(*line, (start + index) as u64 + 1);
                }
                Taken::Place(Place {
                    cell: &self.cells[index],
                    line,
                })
            }
            refused => {
                if let Some((journal, line)) = line {
                    journal.give_line(line);
                }
                match refused {
                    Raised::Full => Taken::Full,
                    _ => self.uncounted(),
                }
            }
        }
    }

    fn uncounted(&self) -> Taken {
        self.overflows.fetch_add(1, Relaxed);
        Taken::Uncounted
    }

    fn raise(&self, key: Hashed, max: u32) -> Raised {
        for _ in 0..TRIES {
            let (index, seen, new) = match self.find(key) {
                Some((_, seen)) if seen & COUNT >= u64::from(max) => return Raised::Full,
                Some((index, seen)) => (index, seen, seen + 1),
                None if max == 0 => return Raised::Full,
                None => match self.vacant(key) {
                    Some((index, seen)) => (index, seen, tag(key) | 1),
                    None => return Raised::NoRoom,
                },
            };
            if !self.replace(index, seen, new) {
                continue;
            }
            // Another process may have given the key another word meanwhile: of two who do so at the same time one sees
            // the other, since all of them raise before they look, in one order for all.
            fence(SeqCst);
            if self.words(key).any(|(other, seen)| {
                other != index && seen & !COUNT == tag(key) && seen & COUNT > 0
            }) {
                lower(&self.cells[index]);
                continue;
            }
            return Raised::At(index);
        }
        Raised::NoRoom
    }

    fn replace(&self, index: usize, old: u64, new: u64) -> bool {
        self.cells[index]
            .compare_exchange(old, new, Relaxed, Relaxed)
            .is_ok()
    }

    /// The word of a key that is there.
    fn find(&self, key: Hashed) -> Option<(usize, u64)> {
        self.words(key)
            .find(|(_, seen)| seen & !COUNT == tag(key) && seen & COUNT > 0)
    }

    /// The first word that counts nobody.
    fn vacant(&self, key: Hashed) -> Option<(usize, u64)> {
        self.words(key).find(|(_, seen)| seen & COUNT == 0)
    }

    fn words(&self, key: Hashed) -> impl Iterator<Item = (usize, u64)> {
        let length = self.cells.len();
        let start = (key.0 & COUNT) as usize % (length / BUCKET).max(1) * BUCKET;
        let reach = (REACH * BUCKET).min(length);
        (0..reach).map(move |offset| {
            let index = (start + offset) % length;
            (index, self.cells[index].load(Relaxed))
        })
    }
}

enum Raised {
    At(usize),
    Full,
    NoRoom,
}

fn tag(key: Hashed) -> u64 {
    key.0 & !COUNT
}

/// Whether a word counts anybody.
pub(crate) fn is_living(word: u64) -> bool {
    word & COUNT > 0
}

/// Takes one off; a word that counts nobody stays.
fn lower(cell: &AtomicU64) {
    let _ = cell.fetch_update(Relaxed, Relaxed, |word| {
        (word & COUNT > 0).then(|| word - 1)
    });
}

/// A place that is counted; given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    cell: &'static AtomicU64,
    line: Option<(Rc<Journal>, u32)>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((journal, line)) = self.line.take() {
            journal.write(line, 0);
            journal.give_line(line);
        }
        lower(self.cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Repair, Shm, ZoneKind};

    fn plan(bytes: u64) -> ZonePlan {
        ZonePlan {
            key: Key::of(&[b"p"]),
            kind: ZoneKind::Places,
            bytes,
        }
    }

    fn zone(shm: &Shm, bytes: u64) -> (PlaceZone, Row) {
        assert!(shm.zones().prepare(&plan(bytes), 1));
        let row = shm.scoreboard().claim(1, 0);
        (
            PlaceZone::new(&shm.zones(), &plan(bytes), shm.journal(row)),
            row,
        )
    }

    fn place(taken: Taken) -> Place {
        match taken {
            Taken::Place(place) => place,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_place_is_taken_until_it_is_dropped() {
        let shm = Shm::private().unwrap();
        let (zone, _) = zone(&shm, 32 << 10);
        let (one, other) = (zone.hash(b"one"), zone.hash(b"other"));
        let first = place(zone.take(one, 2));
        let second = place(zone.take(one, 2));
        assert!(matches!(zone.take(one, 2), Taken::Full));
        let third = place(zone.take(other, 1));
        drop(first);
        assert_eq!((zone.count(one), zone.count(other)), (1, 1));
        let _again = place(zone.take(one, 2));
        drop((second, third));
        assert_eq!((zone.count(one), zone.count(other)), (1, 0));
        assert!(matches!(zone.take(one, 0), Taken::Full));
        assert!(matches!(zone.take(other, 0), Taken::Full));
    }

    #[test]
    fn a_full_zone_lets_pass() {
        let shm = Shm::private().unwrap();
        let (zone, _) = zone(&shm, 64);
        let held: Vec<Place> = (0..8u8)
            .map(|n| place(zone.take(zone.hash(&[n]), 1)))
            .collect();
        assert!(matches!(zone.take(zone.hash(&[9]), 1), Taken::Uncounted));
        assert!(matches!(zone.take(zone.hash(&[3]), 1), Taken::Full));
        drop(held);
        let _place = place(zone.take(zone.hash(&[9]), 1));
    }

    #[test]
    fn the_dead_give_back_what_they_had_once() {
        let shm = Shm::private().unwrap();
        let (alive, _) = zone(&shm, 32 << 10);
        let row = shm.scoreboard().claim(1, 1);
        let dead = PlaceZone::new(&shm.zones(), &plan(32 << 10), shm.journal(row));
        let key = alive.hash(b"k");
        let ours = place(alive.take(key, 9));
        let its = [place(dead.take(key, 9)), place(dead.take(key, 9))];
        drop(place(dead.take(key, 9)));
        assert_eq!(alive.count(key), 3);
        shm.reap(row);
        assert_eq!(alive.count(key), 1);
        shm.reap(row);
        assert_eq!(alive.count(key), 1);
        std::mem::forget(its);
        drop(ours);
        assert_eq!(alive.count(key), 0);
    }

    /// A zone is large and what is used of it small; the rest stays without memory.
    #[test]
    fn a_search_for_lost_places_touches_nothing_new() {
        const BYTES: u64 = 16 << 20;
        let shm = Shm::private().unwrap();
        let (zone, _) = zone(&shm, BYTES);
        let key = zone.hash(b"k");
        let _held = place(zone.take(key, 9));
        let (index, seen) = zone.find(key).unwrap();
        assert!(zone.replace(index, seen, seen + 1));
        let touched = || {
            let zones = shm.zones();
            let parts: Vec<_> = zones
                .places()
                .flat_map(|zone| zones.touched(zone))
                .collect();
            parts.iter().map(|part| part.len() as u64 * 8).sum::<u64>()
        };
        let before = touched();
        assert!((1..=BYTES / 2).contains(&before), "{before}");
        let mut repair = Repair::default();
        assert_eq!((repair.sweep(&shm), repair.is_suspicious()), (0, true));
        assert_eq!(touched(), before);
    }

    #[test]
    fn a_place_nobody_holds_is_found_in_the_end() {
        let shm = Shm::private().unwrap();
        let (zone, _) = zone(&shm, 32 << 10);
        let key = zone.hash(b"k");
        let _held = place(zone.take(key, 9));
        // The state a kill between the two stores leaves behind.
        let (index, seen) = zone.find(key).unwrap();
        assert!(zone.replace(index, seen, seen + 1));
        let mut repair = Repair::default();
        let corrected: usize = (0..9).map(|_| repair.sweep(&shm)).sum();
        assert_eq!(
            (corrected, zone.count(key), repair.is_suspicious()),
            (0, 2, true)
        );
        assert_eq!((repair.sweep(&shm), zone.count(key)), (1, 1));
        assert_eq!((repair.sweep(&shm), repair.is_suspicious()), (0, false));
    }

    #[test]
    fn racing_processes_never_exceed_the_limit() {
        let shm = Shm::private().unwrap();
        assert!(shm.zones().prepare(&plan(64), 1));
        let (held, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for slot in 0..4 {
                let (shm, held, most) = (&shm, &held, &most);
                scope.spawn(move || {
                    let row = shm.scoreboard().claim(1, slot);
                    let zone = PlaceZone::new(&shm.zones(), &plan(64), shm.journal(row));
                    let key = zone.hash(b"k");
                    for n in 0..30_000u32 {
                        // Others come and go around it, so that its word moves.
                        let _other = zone.take(zone.hash(&(n % 5 + slot * 8).to_le_bytes()), 9);
                        if let Taken::Place(place) = zone.take(key, 2) {
                            most.fetch_max(held.fetch_add(1, Relaxed) + 1, Relaxed);
                            held.fetch_sub(1, Relaxed);
                            drop(place);
                        }
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.load(Relaxed)), "{most:?}");
        let (zone, _) = zone(&shm, 64);
        assert_eq!(zone.count(zone.hash(b"k")), 0);
        assert_eq!(Journals::differences(&shm.journals, &shm.zones(), 9), []);
    }
}
