//! Memory that all processes forked later share: one anonymous mapping, seen as atomic 64-bit cells.
//!
//! Regions are mapped once, before the first fork, and never unmapped: a mapping made later could not reach running
//! workers. They are sparse: pages cost memory only once they are touched.

#![allow(unsafe_code)]

use crate::from_errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, Range};
use std::sync::atomic::AtomicU64;

/// A mapped stretch of zeroed atomic cells; a cheap handle, the mapping lives as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    cells: &'static [AtomicU64],
}

impl Region {
    /// Cells shared with every process forked afterwards.
    pub fn shared(cells: usize) -> io::Result<Self> {
        Self::map(cells, MapFlags::MAP_SHARED)
    }

    /// Cells of this process only (tests, tools, rows that found no room).
    pub fn private(cells: usize) -> io::Result<Self> {
        Self::map(cells, MapFlags::MAP_PRIVATE)
    }

    /// The cells.
    pub fn cells(&self) -> &'static [AtomicU64] {
        self.cells
    }

    fn map(cells: usize, sharing: MapFlags) -> io::Result<Self> {
        let bytes = cells
            .checked_mul(size_of::<AtomicU64>())
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .and_then(NonZeroUsize::new)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { mmap_anonymous(None, bytes, protection, sharing | MapFlags::MAP_NORESERVE) };
        let start = start.map_err(from_errno)?;
        // SAFETY: the mapping is page-aligned, `cells` × 8 bytes long, zeroed (a valid AtomicU64) and never unmapped;
        // other processes reach it through atomics only.
        let cells =
            unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<AtomicU64>(), cells) };
        Ok(Self { cells })
    }
}

impl Deref for Region {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        self.cells
    }
}

/// Which of these cells lie in pages of memory, as ranges in their order: the others were never touched, so they are zero,
/// and even to read one of them would cost a page. All of them where the system does not say. What is swapped out counts
/// as untouched.
pub fn touched(cells: &[AtomicU64]) -> Vec<Range<usize>> {
    let page = page_cells();
    // Cells of the first page that lie in front.
    let before = cells.as_ptr() as usize / size_of::<AtomicU64>() % page;
    let mut states = vec![0; (before + cells.len()).div_ceil(page)];
    let start = cells.as_ptr().wrapping_sub(before);
    let bytes = (before + cells.len()) * size_of::<AtomicU64>();
    // SAFETY: `start` is the beginning of a page, and the kernel writes one byte for each page that `bytes` begins, which is
    // how many `states` has; of the memory itself it reads and writes nothing.
    let told = unsafe { libc::mincore(start.cast_mut().cast(), bytes, states.as_mut_ptr()) };
    if told != 0 {
        states.fill(1);
    }
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (at, state) in states.into_iter().enumerate() {
        let range = (at * page).saturating_sub(before)..((at + 1) * page - before).min(cells.len());
        match ranges.last_mut() {
            _ if state & 1 == 0 => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}

/// Cells of a page.
fn page_cells() -> usize {
    // SAFETY: no memory is involved.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096).max(4096) / size_of::<AtomicU64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Fork, fork_for_test, wait_for_test};
    use std::sync::atomic::Ordering;

    #[test]
    fn a_child_writes_what_the_parent_reads() {
        let shared = Region::shared(1 << 20).unwrap();
        let private = Region::private(4).unwrap();
        assert_eq!(shared.len(), 1 << 20);
        match fork_for_test() {
            Fork::Child => {
                shared[1 << 19].fetch_add(7, Ordering::SeqCst);
                private[0].store(7, Ordering::SeqCst);
                crate::process::exit_now(0);
            }
            Fork::Parent(child) => {
                assert_eq!(wait_for_test(child), crate::process::Ending::Exited(0));
            }
        }
        assert_eq!(shared[1 << 19].load(Ordering::SeqCst), 7);
        assert_eq!(private[0].load(Ordering::SeqCst), 0);
    }

    /// Whoever did it, and wherever the cells begin; to ask touches nothing.
    #[test]
    fn touched_cells_are_found() {
        let (page, all) = (page_cells(), 1 << 22);
        let shared = Region::shared(all).unwrap();
        assert_eq!(touched(&shared), []);
        let there = all / 2 / page * page;
        match fork_for_test() {
            Fork::Child => {
                shared[there + 3].store(7, Ordering::SeqCst);
                crate::process::exit_now(0);
            }
            Fork::Parent(child) => {
                assert_eq!(wait_for_test(child), crate::process::Ending::Exited(0));
            }
        }
        for start in [0, 1, there - page, there + 3] {
            let found = touched(&shared[start..]);
            let [one] = found.as_slice() else {
                panic!("{found:?}");
            };
            assert!(one.contains(&(there + 3 - start)), "{one:?} from {start}");
            // Some systems have large pages.
            assert!(one.len() <= all / 2, "{one:?} from {start}");
        }
        assert_eq!(touched(&shared[there + 3..there + 4]), vec![0..1]);
        assert_eq!(touched(&shared[..0]), []);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Region::shared(0).is_err());
        assert!(Region::shared(usize::MAX).is_err());
    }
}
