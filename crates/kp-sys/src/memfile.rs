//! Memory with a descriptor: it outlives the process that made it, because the descriptor can be handed on, and it can be
//! mapped for reading only. Its size is sealed, so that nobody can take pages away from under another's mapping.

#![allow(unsafe_code)]

use crate::from_errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::ftruncate;
use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Zeroed cells in memory that a descriptor stands for. The mapping is never undone.
#[derive(Debug)]
pub struct MemoryFile {
    cells: &'static [AtomicU64],
    descriptor: OwnedFd,
}

impl MemoryFile {
    /// New memory; `name` is what `/proc` shows.
    ///
    /// # Errors
    ///
    /// The system has no memory or no descriptor left.
    pub fn create(name: &CStr, cells: usize) -> io::Result<Self> {
        let bytes = bytes(cells)?;
        let descriptor = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
            .map_err(from_errno)?;
        keep_private(&descriptor)?;
        let length = i64::try_from(bytes.get()).map_err(io::Error::other)?;
        ftruncate(&descriptor, length).map_err(from_errno)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&descriptor, FcntlArg::F_ADD_SEALS(seals)).map_err(from_errno)?;
        Self::adopt(descriptor, cells)
    }

    /// Memory that another process made with [`MemoryFile::create`] and the same number of cells.
    ///
    /// # Errors
    ///
    /// The descriptor is something else, or of another size.
    pub fn adopt(descriptor: OwnedFd, cells: usize) -> io::Result<Self> {
        let bytes = bytes(cells)?;
        let seals = fcntl(&descriptor, FcntlArg::F_GET_SEALS).map_err(from_errno)?;
        let seals = SealFlag::from_bits_truncate(seals);
        let length = fstat(&descriptor).map_err(from_errno)?.st_size;
        if !seals.contains(SealFlag::F_SEAL_SHRINK)
            || usize::try_from(length).ok() != Some(bytes.get())
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            mmap(
                None,
                bytes,
                protection,
                MapFlags::MAP_SHARED,
                &descriptor,
                0,
            )
        };
        let start = start.map_err(from_errno)?;
        // SAFETY: the mapping is page-aligned, `cells` × 8 bytes long, never unmapped, and its file cannot shrink (sealed);
        // every bit pattern is a valid AtomicU64, and other processes reach it through atomics only.
        let cells =
            unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<AtomicU64>(), cells) };
        Ok(Self { cells, descriptor })
    }

    /// The cells. After [`MemoryFile::restrict`] a store is the end of the process, and loads must be relaxed.
    pub fn cells(&self) -> &'static [AtomicU64] {
        self.cells
    }

    /// The descriptor to hand on; closed on exec unless told otherwise.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// From here on this process can only read: its mapping is replaced, at the same address, by one that was opened for
    /// reading and cannot become more.
    ///
    /// # Errors
    ///
    /// The mapping stays as it was.
    pub fn restrict(&self) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
        let reader = open(
            path.as_str(),
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(from_errno)?;
        let bytes = bytes(self.cells.len())?;
        let start = NonNull::from(self.cells).cast::<c_void>();
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: exactly the pages of our own mapping are replaced, by the same memory; whoever holds `cells` goes on
        // seeing it.
        let mapped = unsafe {
            mmap(
                NonZeroUsize::new(start.as_ptr().addr()),
                bytes,
                ProtFlags::PROT_READ,
                flags,
                &reader,
                0,
            )
        };
        mapped.map(|_| ()).map_err(from_errno)
    }
}

/// Bytes in memory that a descriptor stands for, and that nobody can change any more: for secrets that another process is to
/// read, which do not fit into a message and must not stand in a file.
///
/// # Errors
///
/// The system has no memory or no descriptor left.
pub fn sealed(name: &CStr, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = File::from(memfd_create(name, flags).map_err(from_errno)?);
    keep_private(&file)?;
    file.write_all(bytes)?;
    let seals = SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(from_errno)?;
    Ok(file.into())
}

/// Memory begins with permissions for everybody (`memfd_create(2)`), who could open it below `/proc` wherever that lets them.
fn keep_private(memory: &impl AsFd) -> io::Result<()> {
    fchmod(memory, Mode::S_IRUSR | Mode::S_IWUSR).map_err(from_errno)
}

/// What stands in memory that was made by [`sealed`].
///
/// # Errors
///
/// It cannot be read.
pub fn contents(descriptor: OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(descriptor);
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    // Where the writer left off is where the shared offset stands.
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// [`contents`] of memory that comes from a process with fewer rights than this one: what is no sealed memory, and what is
/// longer than `bytes_max`, is refused before it is read, and reading it never takes long.
///
/// # Errors
///
/// It is refused, or cannot be read.
pub fn contents_of_stranger(descriptor: OwnedFd, bytes_max: u64) -> io::Result<Vec<u8>> {
    let seals = fcntl(&descriptor, FcntlArg::F_GET_SEALS).map_err(from_errno)?;
    let wanted = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    let length = fstat(&descriptor).map_err(from_errno)?.st_size;
    if !SealFlag::from_bits_truncate(seals).contains(wanted)
        || u64::try_from(length).map_or(true, |length| length > bytes_max)
    {
        return Err(io::ErrorKind::InvalidData.into());
    }
    contents(descriptor)
}

fn bytes(cells: usize) -> io::Result<NonZeroUsize> {
    cells
        .checked_mul(size_of::<AtomicU64>())
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .and_then(NonZeroUsize::new)
        .ok_or(io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Ending, Fork, exit_now, fork_for_test, wait_for_test};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn another_mapping_of_the_descriptor_is_the_same_memory() {
        let first = MemoryFile::create(c"test", 8).unwrap();
        let handed_on = first.descriptor().try_clone_to_owned().unwrap();
        let second = MemoryFile::adopt(handed_on, 8).unwrap();
        first.cells()[7].store(42, Relaxed);
        assert_eq!(second.cells()[7].load(Relaxed), 42);
        assert_eq!(second.cells()[0].load(Relaxed), 0);
    }

    #[test]
    fn nobody_else_may_open_it() {
        let memory = MemoryFile::create(c"test", 8).unwrap();
        let secret = sealed(c"test", b"secret").unwrap();
        for descriptor in [memory.descriptor(), secret.as_fd()] {
            assert_eq!(fstat(descriptor).unwrap().st_mode & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_not_such_memory_is_not_adopted() {
        let other_size = MemoryFile::create(c"test", 1).unwrap();
        let handed_on = other_size.descriptor().try_clone_to_owned().unwrap();
        assert!(MemoryFile::adopt(handed_on, 1024).is_err());
        let file = tempfile_like();
        assert!(MemoryFile::adopt(file, 1).is_err());
        assert!(MemoryFile::create(c"test", 0).is_err());
    }

    fn tempfile_like() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn a_restricted_process_reads_what_others_write_and_cannot_write() {
        let memory = MemoryFile::create(c"test", 8).unwrap();
        let reader =
            MemoryFile::adopt(memory.descriptor().try_clone_to_owned().unwrap(), 8).unwrap();
        reader.restrict().unwrap();
        memory.cells()[3].store(7, Relaxed);
        assert_eq!(reader.cells()[3].load(Relaxed), 7);
        match fork_for_test() {
            Fork::Child => {
                reader.cells()[3].store(8, Relaxed);
                exit_now(0);
            }
            Fork::Parent(child) => {
                assert!(matches!(wait_for_test(child), Ending::Signaled { .. }));
            }
        }
        assert_eq!(memory.cells()[3].load(Relaxed), 7);
    }

    #[test]
    fn what_was_sealed_is_read_and_cannot_be_changed() {
        let descriptor = sealed(c"kp-test", b"secret").unwrap();
        let writer = File::from(descriptor.try_clone().unwrap());
        assert!(writer.write_all_at(b"x", 0).is_err());
        assert!(writer.set_len(3).is_err());
        assert_eq!(contents(descriptor).unwrap(), b"secret");
    }

    #[test]
    fn a_stranger_is_believed_only_what_can_be_read_at_once() {
        let sealed = || sealed(c"kp-test", b"secret").unwrap();
        assert_eq!(contents_of_stranger(sealed(), 6).unwrap(), b"secret");
        assert!(contents_of_stranger(sealed(), 5).is_err());
        let open = MemoryFile::create(c"test", 1).unwrap();
        let open = open.descriptor().try_clone_to_owned().unwrap();
        assert!(contents_of_stranger(open, 100).is_err());
        let (pipe, _writer) = io::pipe().unwrap();
        for other in [pipe.into(), tempfile_like()] {
            assert!(contents_of_stranger(other, 100).is_err());
        }
    }
}
