//! Moving bytes between sockets and memory: no zeroing, no copying, never a SIGPIPE.

#![allow(unsafe_code)]

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use socket2::SockRef;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Receives at most `max` bytes and appends them to `buffer`, growing it if its spare room is smaller. `Ok(0)` is the
/// end of the stream (or `max` was 0).
#[inline]
pub fn recv_into(socket: &impl AsFd, buffer: &mut Vec<u8>, max: usize) -> io::Result<usize> {
    append(buffer, max, |room| SockRef::from(socket).recv(room))
}

/// The same, but what is received stays where it is, for the next call to receive it again.
pub fn peek_into(socket: &impl AsFd, buffer: &mut Vec<u8>, max: usize) -> io::Result<usize> {
    append(buffer, max, |room| SockRef::from(socket).peek(room))
}

/// Appends what `receive` writes, which says how many bytes from the beginning of its room that were.
#[inline]
fn append(
    buffer: &mut Vec<u8>,
    max: usize,
    receive: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
) -> io::Result<usize> {
    if max == 0 {
        return Ok(0);
    }
    buffer.reserve(max);
    let spare = buffer.spare_capacity_mut();
    let room = spare.len().min(max);
    let (room, _) = spare.split_at_mut(room);
    let count = receive(room)?;
    let length = buffer.len() + count;
    // SAFETY: both callers hand the room to recv, with or without MSG_PEEK, which initialised `count` bytes of the spare
    // capacity; they start at the old length.
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

/// The same for a socket whose description may lack O_NONBLOCK: what does not fit at once is `WouldBlock`.
pub fn send_at_once(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    SockRef::from(socket).send_with_flags(bytes, flags)
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

/// How long a writer may keep a reader of its pipe waiting.
const PIPE_PATIENCE_MS: u64 = 3000;

/// Reads a whole file of at most `max` bytes. Of what is no regular file only pipes are read, since keys and passwords may
/// come through one, and not for ever: a mistaken name must not stop who reads.
pub fn read_file(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let kind = file.metadata()?.file_type();
    let mut content = Vec::new();
    if kind.is_fifo() {
        read_pipe(&mut file, &mut content, max)?;
    } else if kind.is_file() {
        Read::take(&mut file, max.saturating_add(1)).read_to_end(&mut content)?;
    } else if kind.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    } else {
        return Err(io::Error::other("it is not a regular file"));
    }
    if content.len() as u64 > max {
        return Err(io::Error::other("it is too long"));
    }
    Ok(content)
}

fn read_pipe(pipe: &mut File, content: &mut Vec<u8>, max: u64) -> io::Result<()> {
    let until_ms = crate::clock::monotonic_ms() + PIPE_PATIENCE_MS;
    let late = || io::Error::new(ErrorKind::TimedOut, "nobody writes into the pipe");
    loop {
        let left_ms = until_ms.saturating_sub(crate::clock::monotonic_ms());
        if left_ms == 0 {
            return Err(late());
        }
        if crate::poll::readable(&[pipe.as_fd()], Some(Duration::from_millis(left_ms)))? != [true] {
            continue;
        }
        let mut piece = [0; 4096];
        match pipe.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => content.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if content.len() as u64 > max {
            return Ok(());
        }
    }
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
    fn what_is_peeked_at_is_still_there() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut theirs, b"abcdef").unwrap();
        let mut buffer = b"-".to_vec();
        assert_eq!(peek_into(&ours, &mut buffer, 0).unwrap(), 0);
        assert_eq!(peek_into(&ours, &mut buffer, 4).unwrap(), 4);
        assert_eq!(buffer, b"-abcd");
        assert_eq!(recv_into(&ours, &mut buffer, 100).unwrap(), 6);
        assert_eq!(buffer, b"-abcdabcdef");
        drop(theirs);
        assert_eq!(peek_into(&ours, &mut buffer, 4).unwrap(), 0);
    }

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
    fn a_file_is_read_whole_and_not_for_ever() {
        let path = std::env::temp_dir().join(format!("kp-read-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        assert_eq!(read_file(&path, 10).unwrap(), b"0123456789");
        assert_eq!(
            read_file(&path, 9).unwrap_err().to_string(),
            "it is too long"
        );
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = read_file(&path, 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let mut writer = std::process::Command::new("sh")
            .args(["-c", "printf secret > \"$0\""])
            .arg(&path)
            .spawn()
            .unwrap();
        assert_eq!(read_file(&path, 10).unwrap(), b"secret");
        assert!(writer.wait().unwrap().success());
        std::fs::remove_file(&path).unwrap();
        let endless = read_file(Path::new("/dev/zero"), 10).unwrap_err();
        assert_eq!(endless.to_string(), "it is not a regular file");
        let folder = read_file(Path::new("/"), 10).unwrap_err();
        assert_eq!(folder.raw_os_error(), Some(libc::EISDIR));
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
