//! The last reasons of every process: why an exchange ended as it did, newest last.
//!
//! Each process has a ring of its own, so that nobody waits for anybody; a reader merges them. An entry carries its number
//! before and after it is read; one that was being written, by the living or the dead, is left out.

use crate::scoreboard::{Row, Scoreboard};
use crate::series::SeriesIndex;
use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};

/// Entries of a ring, and the most that a reader is given.
const LENGTH: usize = 256;
/// Words of an entry.
const WIDTH: usize = 8;
/// How often was pushed, on a line of its own.
const HEADER: usize = 8;
const RING: usize = HEADER + LENGTH * WIDTH;

/// How one exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub unix_ms: u64,
    /// Index of the reason.
    pub reason: u8,
    /// Number of the phase.
    pub phase: u8,
    /// Number of who closed; 0: nobody, or it is not known.
    pub closed_by: u8,
    /// Status as the access log has it.
    pub status: u16,
    /// Number of the attempt, from 1; 0: there was none.
    pub attempt: u16,
    /// The virtual host.
    pub server: Option<SeriesIndex>,
    /// The peer of that attempt; its group, where no peer could be asked.
    pub peer: Option<SeriesIndex>,
    /// `$connection`.
    pub serial: u64,
    /// The worker.
    pub pid: u32,
}

impl Entry {
    fn pack(&self) -> [u64; WIDTH - 1] {
        let index = |index: Option<SeriesIndex>| index.map_or(0, SeriesIndex::to_bits);
        [
            self.unix_ms,
            u64::from(self.pid) << 32 | u64::from(self.attempt) << 16 | u64::from(self.status),
            u64::from(self.closed_by) << 16 | u64::from(self.phase) << 8 | u64::from(self.reason),
            index(self.server),
            index(self.peer),
            self.serial,
            0,
        ]
    }

    fn unpack(words: [u64; WIDTH - 1]) -> Self {
        let index = |bits| (bits != 0).then(|| SeriesIndex::from_bits(bits));
        let [unix_ms, numbers, bytes, server, peer, serial, _] = words;
        Self {
            unix_ms,
            reason: bytes as u8,
            phase: (bytes >> 8) as u8,
            closed_by: (bytes >> 16) as u8,
            status: numbers as u16,
            attempt: (numbers >> 16) as u16,
            server: index(server),
            peer: index(peer),
            serial,
            pid: (numbers >> 32) as u32,
        }
    }
}

/// The rings of all processes.
#[derive(Debug, Clone, Copy)]
pub struct Recent {
    scoreboard: Scoreboard,
    rings: &'static [AtomicU64],
}

impl Recent {
    pub(crate) fn cells(processes: usize) -> usize {
        processes * RING
    }

    pub(crate) fn new(scoreboard: Scoreboard, rings: &'static [AtomicU64]) -> Self {
        Self { scoreboard, rings }
    }

    /// Adds an entry to the ring of this process, which nobody else writes. Nothing for a process without a row.
    pub fn push(&self, process: Row, entry: &Entry) {
        let Some((pushed, slots)) = self.ring(process.index()) else {
            return;
        };
        let number = pushed.load(Relaxed);
        let Some((seal, words)) = slot(slots, number).and_then(<[AtomicU64]>::split_first) else {
            return;
        };
        seal.store(0, Relaxed);
        fence(Release);
        for (word, value) in words.iter().zip(entry.pack()) {
            word.store(value, Relaxed);
        }
        // Entries begin with number 1, so that an empty slot is none.
        seal.store(number + 1, Release);
        pushed.store(number + 1, Release);
    }

    /// The last entries of all processes together, newest first.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for process in 0..self.scoreboard.used() {
            let Some((pushed, slots)) = self.ring(process) else {
                break;
            };
            let end = pushed.load(Acquire);
            let numbers = end.saturating_sub(LENGTH as u64)..end;
            entries.extend(numbers.rev().filter_map(|number| read(slots, number)));
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.unix_ms));
        entries.truncate(LENGTH);
        entries
    }

    fn ring(&self, process: usize) -> Option<(&'static AtomicU64, &'static [AtomicU64])> {
        let ring = self.rings.get(process.checked_mul(RING)?..)?.get(..RING)?;
        let (header, slots) = ring.split_at_checked(HEADER)?;
        Some((header.first()?, slots))
    }
}

fn slot(slots: &'static [AtomicU64], number: u64) -> Option<&'static [AtomicU64]> {
    let first = (number % LENGTH as u64) as usize * WIDTH;
    slots.get(first..first + WIDTH)
}

fn read(slots: &'static [AtomicU64], number: u64) -> Option<Entry> {
    let (seal, words) = slot(slots, number)?.split_first()?;
    if seal.load(Acquire) != number + 1 {
        return None;
    }
    let mut values = [0; WIDTH - 1];
    for (value, word) in values.iter_mut().zip(words) {
        *value = word.load(Relaxed);
    }
    fence(Acquire);
    (seal.load(Relaxed) == number + 1).then(|| Entry::unpack(values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;

    fn entry(unix_ms: u64) -> Entry {
        Entry {
            unix_ms,
            reason: unix_ms as u8,
            phase: 3,
            closed_by: 2,
            status: 502,
            attempt: 2,
            server: Some(SeriesIndex::from_bits(7 << 32 | 5)),
            peer: None,
            serial: u64::MAX,
            pid: u32::MAX,
        }
    }

    fn moments(recent: Recent) -> Vec<u64> {
        recent.entries().iter().map(|entry| entry.unix_ms).collect()
    }

    #[test]
    fn the_newest_of_all_processes_come_first() {
        let shm = Shm::private().unwrap();
        let rows = [0, 1].map(|slot| shm.scoreboard().claim(1, slot));
        let recent = shm.recent();
        assert_eq!(recent.entries(), []);
        for moment in 1..=600u64 {
            recent.push(rows[(moment % 3 / 2) as usize], &entry(moment));
        }
        assert_eq!(moments(recent), (345..=600).rev().collect::<Vec<_>>());
        assert_eq!(recent.entries()[0], entry(600));
        shm.reap(rows[0]);
        assert_eq!(moments(recent).len(), 256, "the dead are heard, too");
        recent.push(Row::PRIVATE, &entry(700));
        assert_eq!(moments(recent)[0], 600);
    }

    #[test]
    fn an_entry_that_is_being_written_is_left_out() {
        let shm = Shm::private().unwrap();
        let row = shm.scoreboard().claim(1, 0);
        for moment in 1..=3 {
            shm.recent().push(row, &entry(moment));
        }
        let (_, slots) = shm.recent().ring(row.index()).unwrap();
        slots[WIDTH].store(0, Relaxed);
        assert_eq!(moments(shm.recent()), [3, 1]);
    }

    #[test]
    fn nothing_torn_is_ever_read() {
        let shm = Shm::private().unwrap();
        let row = shm.scoreboard().claim(1, 0);
        let recent = shm.recent();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for moment in 1..=60_000 {
                    recent.push(
                        row,
                        &Entry {
                            serial: moment,
                            pid: moment as u32,
                            ..entry(moment)
                        },
                    );
                }
                done.store(true, Relaxed);
            });
            while !done.load(Relaxed) {
                for read in recent.entries() {
                    assert_eq!((read.serial, read.pid), (read.unix_ms, read.unix_ms as u32));
                    assert_eq!(read.reason, read.unix_ms as u8);
                }
            }
        });
    }
}
