//! `poll(2)` for the master's small loop; the workers' loop is mio's.

use crate::from_errno;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What is awaited of a descriptor. Its end is reported whatever is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// That it can be read.
    Read,
    /// That it can be written.
    Write,
    /// Nothing but its end: both directions are closed, or it is broken.
    End,
}

/// Waits until one of `sources` can be read (or has ended), or the time is over; `None` waits for ever. Returns one flag
/// per source; all false after the time or an interrupting signal.
pub fn readable(sources: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    wait(sources.iter().map(|fd| (*fd, Interest::Read)), timeout)
}

/// [`readable`] for sources that are awaited in different ways.
pub fn wait<'a>(
    sources: impl IntoIterator<Item = (BorrowedFd<'a>, Interest)>,
    timeout: Option<Duration>,
) -> io::Result<Vec<bool>> {
    let mut set: Vec<PollFd<'_>> = sources
        .into_iter()
        .map(|(fd, interest)| {
            let flags = match interest {
                Interest::Read => PollFlags::POLLIN,
                Interest::Write => PollFlags::POLLOUT,
                Interest::End => PollFlags::empty(),
            };
            PollFd::new(fd, flags)
        })
        .collect();
    let timeout = match timeout {
        // Rounded up, so that a deadline is over when the wait is.
        Some(wait) => {
            PollTimeout::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
        }
        None => PollTimeout::NONE,
    };
    match poll(&mut set, timeout) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(vec![false; set.len()]),
        Err(errno) => return Err(from_errno(errno)),
    }
    Ok(set
        .iter()
        .map(|entry| entry.any().unwrap_or(true))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn tells_which_one_can_be_read() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let (other, quiet) = UnixStream::pair().unwrap();
        near.write_all(b"x").unwrap();
        let flags = readable(&[quiet.as_fd(), far.as_fd()], None).unwrap();
        assert_eq!(flags, [false, true]);
        drop(other);
        assert_eq!(readable(&[quiet.as_fd()], None).unwrap(), [true]);
        let (_open, idle) = UnixStream::pair().unwrap();
        assert_eq!(
            readable(&[idle.as_fd()], Some(Duration::from_millis(1))).unwrap(),
            [false]
        );
    }

    #[test]
    fn half_a_close_is_not_the_end() {
        let now = Some(Duration::ZERO);
        let (near, far) = UnixStream::pair().unwrap();
        let end = || wait([(far.as_fd(), Interest::End)], now).unwrap();
        assert_eq!(wait([(far.as_fd(), Interest::Write)], now).unwrap(), [true]);
        assert_eq!(end(), [false]);
        near.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(end(), [false]);
        assert_eq!(readable(&[far.as_fd()], now).unwrap(), [true]);
        drop(near);
        assert_eq!(end(), [true]);
    }
}
