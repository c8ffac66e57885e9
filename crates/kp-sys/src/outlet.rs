//! Writing where somebody else may have to read first, without ever waiting for that reader.
//!
//! A file takes what it is given. A pipe, a terminal or a socket is full while nobody reads it, and write(2) then waits.
//! O_NONBLOCK would end that, but it belongs to the open file description, which the shell, the container's runtime or another
//! process may share and not expect it on; so each kind of reader is written to in the way that leaves the description alone.

#![allow(unsafe_code)]

use nix::sys::stat::{SFlag, fstat};
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// What a pipe takes whole or not at all (`PIPE_BUF` of Linux).
pub const WHOLE_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file, or a device without a reader.
    File,
    Socket,
    /// A pipe, a fifo or a terminal.
    Stream,
}

/// A descriptor that is written to.
#[derive(Debug)]
pub struct Outlet<F> {
    file: F,
    kind: Kind,
}

impl<F: AsFd> Outlet<F> {
    /// Looks at what the descriptor is.
    pub fn new(file: F) -> Self {
        let kind = kind_of(&file);
        Self { file, kind }
    }

    /// Looks again, for a descriptor that another file may have taken the place of.
    pub fn look_again(&mut self) {
        self.kind = kind_of(&self.file);
    }

    /// What is written to.
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Whether it has a reader who may be slow.
    pub fn has_reader(&self) -> bool {
        self.kind != Kind::File
    }

    /// Writes what is taken at once. What has a reader takes at most [`WHOLE_MAX`] bytes in one call, and a pipe has taken them
    /// whole or not at all.
    ///
    /// # Errors
    /// `WouldBlock` if the reader must read first; otherwise those of write(2).
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let piece = bytes.get(..WHOLE_MAX).unwrap_or(bytes);
        match self.kind {
            Kind::File => crate::io::write(&self.file, bytes),
            Kind::Socket => crate::io::send_at_once(&self.file, piece),
            Kind::Stream => match write_nowait(&self.file, piece) {
                // Linux before 6.5 for pipes, and any for terminals.
                Err(error) if !is_answer(&error) => write_apart(&self.file, piece),
                answer => answer,
            },
        }
    }
}

fn kind_of(file: &impl AsFd) -> Kind {
    let Ok(found) = fstat(file) else {
        return Kind::File;
    };
    match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFIFO => Kind::Stream,
        SFlag::S_IFSOCK => Kind::Socket,
        SFlag::S_IFCHR if nix::unistd::isatty(file).unwrap_or(false) => Kind::Stream,
        _ => Kind::File,
    }
}

/// Whether the error is about the pipe, and not about a way of writing that the kernel does not know for it.
fn is_answer(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)
    )
}

/// One write(2) that does not wait, whatever the descriptor's flags are.
fn write_nowait(file: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let stretches = [IoSlice::new(bytes)];
    // SAFETY: an IoSlice is an iovec by its documentation; it and the bytes it names live until the call returns.
    let result = unsafe {
        libc::pwritev2(
            file.as_fd().as_raw_fd(),
            stretches.as_ptr().cast(),
            1,
            -1,
            libc::RWF_NOWAIT,
        )
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The same through a description of our own, which may have O_NONBLOCK. Where none can be had (a pipe of another user), whether
/// there is room is asked before; another process may take that room in between, and then this one waits.
fn write_apart(file: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let number = file.as_fd().as_raw_fd();
    let own = OpenOptions::new()
        .append(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/self/fd/{number}"));
    if let Ok(mut own) = own {
        return own.write(bytes);
    }
    let interest = [(file.as_fd(), crate::poll::Interest::Write)];
    match crate::poll::wait(interest, Some(Duration::ZERO))?.as_slice() {
        [true] => crate::io::write(file, bytes),
        _ => Err(ErrorKind::WouldBlock.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// Writes until the outlet takes no more; gives how much that was.
    fn fill(outlet: &Outlet<impl AsFd>, piece: &[u8]) -> usize {
        let mut total = 0;
        loop {
            match outlet.write(piece) {
                Ok(count) => total += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return total;
                }
            }
        }
    }

    #[test]
    fn a_full_pipe_does_not_wait_and_its_flags_are_not_touched() {
        let (mut reader, writer) = io::pipe().unwrap();
        let outlet = Outlet::new(writer);
        assert!(outlet.has_reader());
        let taken = fill(&outlet, &[b'x'; WHOLE_MAX]);
        assert!(taken >= WHOLE_MAX && taken % WHOLE_MAX == 0, "{taken}");
        let flags = OFlag::from_bits_retain(fcntl(outlet.file(), FcntlArg::F_GETFL).unwrap());
        assert!(!flags.contains(OFlag::O_NONBLOCK));
        let mut room = vec![0; WHOLE_MAX];
        reader.read_exact(&mut room).unwrap();
        assert_eq!(outlet.write(&[b'y'; 2 * WHOLE_MAX]).unwrap(), WHOLE_MAX);
        drop(reader);
        let error = outlet.write(b"z").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_description_of_our_own_does_not_wait_either() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut total = 0;
        let full = loop {
            match write_apart(&writer, &[b'x'; WHOLE_MAX]) {
                Ok(count) => total += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let mut room = vec![0; total];
        reader.read_exact(&mut room).unwrap();
        assert_eq!(write_apart(&writer, b"y").unwrap(), 1);
    }

    #[test]
    fn a_full_socket_does_not_wait() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let outlet = Outlet::new(ours);
        assert!(outlet.has_reader() && fill(&outlet, &[b'x'; WHOLE_MAX]) > 0);
        drop(theirs);
        assert_eq!(
            outlet.write(b"x").unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
    }

    #[test]
    fn a_terminal_that_nobody_reads_does_not_wait() {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let outlet = Outlet::new(terminal.slave);
        assert!(outlet.has_reader() && fill(&outlet, &[b'x'; 1000]) > 0);
    }

    #[test]
    fn files_and_devices_without_a_reader_take_what_they_get() {
        let outlet = Outlet::new(crate::io::memory_file().unwrap());
        assert!(!outlet.has_reader());
        assert_eq!(outlet.write(&[0; 3 * WHOLE_MAX]).unwrap(), 3 * WHOLE_MAX);
        let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
        assert!(!Outlet::new(null).has_reader());
    }
}
