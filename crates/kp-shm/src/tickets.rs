//! The keys that TLS session tickets are sealed with: made and rotated by the master, read by every worker of every
//! generation, so that a session resumes wherever its client comes back to.
//!
//! They lie in memory of their own with a descriptor, because they also outlive the program: a binary upgrade hands the
//! descriptor on. Its layout is therefore frozen; another layout would need another [`MAGIC`]. There are two sets of keys
//! and a version that says which one holds: the writer fills the other set and then moves the version, so that a writer
//! killed at any point leaves a valid set.

use kp_sys::memfile::MemoryFile;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use std::time::Duration;

/// `kpticket` and the layout's number.
const MAGIC: [u64; 2] = [0x6b70_7469_636b_6574, 1];
/// Which set holds: its lowest bit.
const VERSION: usize = 2;
/// When the last rotation began, in seconds since 1970. Taking this cell from one time to the next is the right to rotate.
const ROTATED: usize = 3;
/// The sets begin here.
const SETS: usize = 8;
/// Cells of a key: 16 bytes of name, 32 of secret.
const KEY: usize = 6;
const KEYS: usize = 3;
/// The size never changes: one page.
const CELLS: usize = 512;

/// One key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TicketKey {
    /// Stands in each ticket in the clear.
    pub name: [u8; 16],
    /// What tickets are sealed with.
    pub secret: [u8; 32],
}

/// A secret is not for logs.
impl std::fmt::Debug for TicketKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TicketKey").finish_non_exhaustive()
    }
}

/// The keys that hold at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketKeys {
    /// Opens tickets of the last period.
    pub previous: TicketKey,
    /// Seals, and opens.
    pub current: TicketKey,
    /// Will seal in the next period; opens already, for whoever rotated a moment earlier.
    pub next: TicketKey,
}

/// The master's end: makes and rotates keys.
#[derive(Debug)]
pub struct TicketRing {
    memory: MemoryFile,
}

/// A worker's end: reads keys. Copied freely.
#[derive(Debug, Clone, Copy)]
pub struct TicketReader {
    cells: &'static [AtomicU64],
}

impl TicketRing {
    /// A ring with fresh keys, whose first period begins at `now_unix_secs`. Called before the first fork.
    ///
    /// # Errors
    ///
    /// No memory, no descriptor, no random numbers.
    pub fn create(now_unix_secs: u64) -> io::Result<Self> {
        let memory = MemoryFile::create(c"kp-ticket-keys", CELLS)?;
        let ring = Self { memory };
        let keys = TicketKeys {
            previous: fresh()?,
            current: fresh()?,
            next: fresh()?,
        };
        ring.write(0, &keys);
        ring.cells()[ROTATED].store(now_unix_secs, Relaxed);
        for (cell, value) in ring.cells().iter().zip(MAGIC) {
            cell.store(value, Release);
        }
        Ok(ring)
    }

    /// The ring of the program that ran before, from its descriptor.
    ///
    /// # Errors
    ///
    /// The descriptor is something else, or of a layout of another time: then a new ring is to be made.
    pub fn adopt(descriptor: OwnedFd) -> io::Result<Self> {
        let memory = MemoryFile::adopt(descriptor, CELLS)?;
        let cells = memory.cells();
        if MAGIC
            .iter()
            .zip(cells)
            .any(|(value, cell)| cell.load(Acquire) != *value)
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { memory })
    }

    /// The descriptor to hand on to the next program; closed on exec unless told otherwise.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.descriptor()
    }

    /// What workers read with.
    pub fn reader(&self) -> TicketReader {
        TicketReader {
            cells: self.memory.cells(),
        }
    }

    /// In a worker: keys can only be read from here on, through readers made before or after.
    ///
    /// # Errors
    ///
    /// The system did not let itself be asked; readers go on to work.
    pub fn restrict(&self) -> io::Result<()> {
        self.memory.restrict()
    }

    /// Moves on to the next key if the current one has sealed for `period`. Where two masters live for a while (a binary
    /// upgrade), one of them does it. Returns whether it was done.
    ///
    /// # Errors
    ///
    /// No random numbers; the keys stay.
    pub fn rotate_if_due(&self, now_unix_secs: u64, period: Duration) -> io::Result<bool> {
        let rotated = self.cells()[ROTATED].load(Relaxed);
        // A clock that was set back must not keep a key for ever.
        let due = now_unix_secs < rotated || now_unix_secs - rotated >= period.as_secs().max(1);
        if !due {
            return Ok(false);
        }
        let next = fresh()?;
        let claim = self.cells()[ROTATED].compare_exchange(rotated, now_unix_secs, SeqCst, Relaxed);
        if claim.is_err() {
            return Ok(false);
        }
        let version = self.cells()[VERSION].load(Acquire);
        let Some(keys) = self.reader().keys() else {
            return Ok(false);
        };
        let keys = TicketKeys {
            previous: keys.current,
            current: keys.next,
            next,
        };
        self.write(version.wrapping_add(1), &keys);
        Ok(true)
    }

    /// When [`TicketRing::rotate_if_due`] is next to be asked, in seconds since 1970.
    pub fn due_unix_secs(&self, period: Duration) -> u64 {
        let rotated = self.cells()[ROTATED].load(Relaxed);
        rotated.saturating_add(period.as_secs().max(1))
    }

    fn write(&self, version: u64, keys: &TicketKeys) {
        let start = set_start(version);
        let cells = self.cells().iter().skip(start);
        let words = [&keys.previous, &keys.current, &keys.next]
            .into_iter()
            .flat_map(words);
        for (cell, word) in cells.zip(words) {
            cell.store(word, Relaxed);
        }
        self.cells()[VERSION].store(version, Release);
    }

    fn cells(&self) -> &'static [AtomicU64] {
        self.memory.cells()
    }
}

impl TicketReader {
    /// The keys that hold now. `None` only if they were rotated several times while they were read.
    pub fn keys(&self) -> Option<TicketKeys> {
        for _ in 0..4 {
            let version = self.version();
            let mut cells = self.cells.iter().skip(set_start(version));
            let mut key = || {
                let mut words = [0; KEY];
                for (word, cell) in words.iter_mut().zip(&mut cells) {
                    *word = cell.load(Relaxed);
                }
                from_words(words)
            };
            let keys = TicketKeys {
                previous: key(),
                current: key(),
                next: key(),
            };
            fence(Acquire);
            if self.version() == version {
                return Some(keys);
            }
        }
        None
    }

    /// Changes with each rotation: whoever keeps something made from keys compares this.
    pub fn version(&self) -> u64 {
        // Relaxed and a fence: the mapping may be for reading only, where no other load is promised to work.
        let version = self.cells[VERSION].load(Relaxed);
        fence(Acquire);
        version
    }
}

fn set_start(version: u64) -> usize {
    SETS + (version & 1) as usize * KEYS * KEY
}

fn fresh() -> io::Result<TicketKey> {
    let mut key = TicketKey {
        name: [0; 16],
        secret: [0; 32],
    };
    kp_sys::random(&mut key.name)?;
    kp_sys::random(&mut key.secret)?;
    Ok(key)
}

fn words(key: &TicketKey) -> impl Iterator<Item = u64> {
    let bytes = key.name.as_chunks::<8>().0.iter();
    bytes
        .chain(key.secret.as_chunks::<8>().0)
        .map(|chunk| u64::from_ne_bytes(*chunk))
}

fn from_words(words: [u64; KEY]) -> TicketKey {
    let mut key = TicketKey {
        name: [0; 16],
        secret: [0; 32],
    };
    let name = key.name.as_chunks_mut::<8>().0.iter_mut();
    let chunks = name.chain(key.secret.as_chunks_mut::<8>().0.iter_mut());
    for (chunk, word) in chunks.zip(words) {
        *chunk = word.to_ne_bytes();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    #[test]
    fn keys_move_from_next_to_current_to_previous() {
        let ring = TicketRing::create(100).unwrap();
        let reader = ring.reader();
        let first = reader.keys().unwrap();
        assert_ne!(first.current, first.next);
        assert!(!ring.rotate_if_due(109, PERIOD).unwrap());
        assert_eq!(reader.keys().unwrap(), first);
        assert_eq!(ring.due_unix_secs(PERIOD), 110);
        assert!(ring.rotate_if_due(110, PERIOD).unwrap());
        let second = reader.keys().unwrap();
        assert_eq!(
            (second.previous, second.current),
            (first.current, first.next)
        );
        assert_ne!(second.next, first.next);
        assert!(!ring.rotate_if_due(111, PERIOD).unwrap());
        assert!(ring.rotate_if_due(120, PERIOD).unwrap());
        assert_eq!(reader.keys().unwrap().previous, second.current);
    }

    #[test]
    fn a_clock_set_back_does_not_keep_a_key_for_ever() {
        let ring = TicketRing::create(1_000_000).unwrap();
        assert!(ring.rotate_if_due(5, PERIOD).unwrap());
        assert!(!ring.rotate_if_due(6, PERIOD).unwrap());
    }

    #[test]
    fn an_adopted_ring_goes_on_with_the_keys_and_only_one_of_two_masters_rotates() {
        let old = TicketRing::create(100).unwrap();
        let new = TicketRing::adopt(old.descriptor().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(old.reader().keys(), new.reader().keys());
        assert!(new.rotate_if_due(110, PERIOD).unwrap());
        assert!(!old.rotate_if_due(110, PERIOD).unwrap());
        assert_eq!(old.reader().keys(), new.reader().keys());
    }

    #[test]
    fn other_memory_is_no_ring() {
        let memory = MemoryFile::create(c"other", CELLS).unwrap();
        let descriptor = memory.descriptor().try_clone_to_owned().unwrap();
        assert!(TicketRing::adopt(descriptor).is_err());
    }

    #[test]
    fn a_restricted_ring_is_still_read() {
        let master = TicketRing::create(100).unwrap();
        let worker = TicketRing::adopt(master.descriptor().try_clone_to_owned().unwrap()).unwrap();
        let reader = worker.reader();
        worker.restrict().unwrap();
        assert!(master.rotate_if_due(110, PERIOD).unwrap());
        assert_eq!(reader.keys(), master.reader().keys());
    }
}
