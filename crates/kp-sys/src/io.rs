//! Moving bytes between sockets and memory: no zeroing, no copying, never a SIGPIPE.

#![allow(unsafe_code)]

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use socket2::SockRef;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Receives at most `max` bytes and appends them to `buffer`, growing it if its spare room is smaller. `Ok(0)` is the
/// end of the stream (or `max` was 0).
#[inline]
pub fn recv_into(socket: &impl AsFd, buffer: &mut Vec<u8>, max: usize) -> io::Result<usize> {
    if max == 0 {
        return Ok(0);
    }
    buffer.reserve(max);
    let spare = buffer.spare_capacity_mut();
    let room = spare.len().min(max);
    let (room, _) = spare.split_at_mut(room);
    let count = SockRef::from(socket).recv(room)?;
    let length = buffer.len() + count;
    // SAFETY: recv initialised `count` bytes of the spare capacity, which start at the old length.
    unsafe { buffer.set_len(length) };
    Ok(count)
}

/// Receives at most 16 KiB and throws them away; `Ok(0)` is the end of the stream.
pub fn recv_discard(socket: &impl AsFd) -> io::Result<usize> {
    let mut waste = [const { MaybeUninit::uninit() }; 16 * 1024];
    SockRef::from(socket).recv(&mut waste)
}

/// Sends what fits; a closed peer is `BrokenPipe`, never a signal.
#[inline]
pub fn send(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(socket).send_with_flags(bytes, libc::MSG_NOSIGNAL)
}

/// Sends several stretches in one system call; at most [`IOV_MAX`] of them count.
#[inline]
pub fn writev(socket: &impl AsFd, stretches: &[IoSlice<'_>]) -> io::Result<usize> {
    let stretches = stretches.get(..IOV_MAX).unwrap_or(stretches);
    SockRef::from(socket).send_vectored_with_flags(stretches, libc::MSG_NOSIGNAL)
}

/// One `write(2)`, for files and pipes.
pub fn write(file: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    nix::unistd::write(file, bytes).map_err(crate::from_errno)
}

/// Opens a file without waiting for anybody: open(2) of a fifo waits until somebody opens its other end, which may be never.
/// A fifo that nobody reads cannot be opened for writing (`ENXIO`). What is open then behaves as usual.
pub fn open_at_once(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    let flags = fcntl(&file, FcntlArg::F_GETFL).map_err(crate::from_errno)?;
    let usual = OFlag::from_bits_retain(flags) - OFlag::O_NONBLOCK;
    fcntl(&file, FcntlArg::F_SETFL(usual)).map_err(crate::from_errno)?;
    Ok(file)
}

/// A file without a name that lives in memory, and is gone with its last descriptor.
pub fn memory_file() -> io::Result<std::fs::File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let file = memfd_create(c"kp", MFdFlags::MFD_CLOEXEC).map_err(crate::from_errno)?;
    Ok(file.into())
}

/// The kernel's limit of stretches in one call (`UIO_MAXIOV`).
pub const IOV_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_fifo_is_opened_at_once_or_not_at_all() {
        let path = std::env::temp_dir().join(format!("kp-fifo-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let append = || open_at_once(OpenOptions::new().append(true), &path);
        assert_eq!(append().unwrap_err().raw_os_error(), Some(libc::ENXIO));
        let reader = open_at_once(OpenOptions::new().read(true), &path).unwrap();
        let writer = append().unwrap();
        for file in [&reader, &writer] {
            let flags = fcntl(file, FcntlArg::F_GETFL).unwrap();
            assert_eq!(flags & libc::O_NONBLOCK, 0);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn recv_appends_and_respects_max() {
        let (near, far) = UnixStream::pair().unwrap();
        assert_eq!(send(&near, b"hello world").unwrap(), 11);
        let mut buffer = b"> ".to_vec();
        assert_eq!(recv_into(&far, &mut buffer, 5).unwrap(), 5);
        assert_eq!(buffer, b"> hello");
        assert_eq!(recv_into(&far, &mut buffer, 64).unwrap(), 6);
        assert_eq!(buffer, b"> hello world");
        assert_eq!(recv_into(&far, &mut buffer, 0).unwrap(), 0);
        drop(near);
        assert_eq!(recv_into(&far, &mut buffer, 64).unwrap(), 0);
        assert_eq!(buffer, b"> hello world");
    }

    #[test]
    fn recv_keeps_spare_room_when_nothing_came() {
        let (_near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let mut buffer = b"x".to_vec();
        assert_eq!(
            recv_into(&far, &mut buffer, 64).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        assert_eq!(buffer, b"x");
    }

    #[test]
    fn writev_joins_and_a_closed_peer_is_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        assert_eq!(
            writev(&near, &[IoSlice::new(b"one "), IoSlice::new(b"two")]).unwrap(),
            7
        );
        let mut buffer = Vec::new();
        recv_into(&far, &mut buffer, 64).unwrap();
        assert_eq!(buffer, b"one two");
        drop(far);
        assert_eq!(
            send(&near, b"x").unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }

    #[test]
    fn discard_counts() {
        let (near, far) = UnixStream::pair().unwrap();
        send(&near, &[0; 1000]).unwrap();
        assert_eq!(recv_discard(&far).unwrap(), 1000);
        drop(near);
        assert_eq!(recv_discard(&far).unwrap(), 0);
    }
}
