//! A connected socket with what is known of its readiness.
//!
//! mio is edge-triggered, so readiness is remembered here: it is set by events and taken away only by the kernel saying
//! "no more". A short read means "no more" as long as the peer has not ended its side: when a FIN or RST came in the same
//! edge, there will be no further event, so the read goes on until it returns the end itself. TLS joins here later.

use kp_sys::io;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::OwnedFd;

/// A socket.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) fd: OwnedFd,
    /// There may be something to read.
    pub(crate) readable: bool,
    /// There may be room to write.
    pub(crate) writable: bool,
    /// RDHUP, HUP or ERR was seen: reading goes on until it says the end.
    pub(crate) ending: bool,
    /// An error event was seen and not yet asked for.
    pub(crate) errored: bool,
}

/// What a read gave.
#[derive(Debug)]
pub(crate) enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing now; an event will come.
    Nothing,
    /// The peer ended its side.
    End,
    /// The connection broke.
    Broken(i32),
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// So many bytes; fewer than offered means an event will come.
    Bytes(usize),
    /// The connection takes nothing any more.
    Broken(i32),
}

impl Transport {
    /// A fresh connection can be written to at once, and read only after an event.
    pub(crate) fn new(fd: OwnedFd, writable: bool) -> Self {
        Self {
            fd,
            readable: false,
            writable,
            ending: false,
            errored: false,
        }
    }

    /// Takes note of an epoll event.
    pub(crate) fn note(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        self.ending |= event.is_read_closed() || event.is_error();
        self.errored |= event.is_error();
    }

    /// Reads up to `max` bytes onto the end of `buffer`.
    pub(crate) fn receive(&mut self, buffer: &mut Vec<u8>, max: usize) -> Received {
        if !self.readable {
            return Received::Nothing;
        }
        loop {
            match io::recv_into(&self.fd, buffer, max) {
                Ok(0) => {
                    self.readable = false;
                    self.ending = true;
                    return Received::End;
                }
                Ok(count) => {
                    if count < max && !self.ending {
                        self.readable = false;
                    }
                    return Received::Bytes(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Received::Nothing;
                }
                Err(error) => {
                    self.readable = false;
                    self.ending = true;
                    return Received::Broken(error.raw_os_error().unwrap_or(0));
                }
            }
        }
    }

    /// Whether nothing waits to be read. Asks the kernel only where that is not known: after a read that was filled to
    /// its last byte. What it reads is lost, so a connection that is not quiet is of no more use.
    pub(crate) fn is_quiet(&mut self) -> bool {
        !self.readable
            || matches!(
                self.receive(&mut Vec::with_capacity(1), 1),
                Received::Nothing
            )
    }

    /// Writes the stretches in order, as much as the socket takes in one call.
    pub(crate) fn send(&mut self, stretches: &[IoSlice<'_>], total: usize) -> Sent {
        if !self.writable || total == 0 {
            return Sent::Bytes(0);
        }
        loop {
            let result = match stretches {
                [only] => io::send(&self.fd, only),
                several => io::writev(&self.fd, several),
            };
            match result {
                Ok(count) => {
                    if count < total {
                        self.writable = false;
                    }
                    return Sent::Bytes(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Sent::Bytes(0);
                }
                Err(error) => {
                    self.writable = false;
                    return Sent::Broken(error.raw_os_error().unwrap_or(0));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Transport, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("nonblocking");
        (Transport::new(ours.into(), true), theirs)
    }

    #[test]
    fn a_short_read_means_nothing_more() {
        let (mut transport, mut peer) = pair();
        peer.write_all(b"abc").expect("written");
        let mut buffer = Vec::new();
        assert!(matches!(
            transport.receive(&mut buffer, 10),
            Received::Nothing
        ));
        transport.readable = true;
        assert!(matches!(
            transport.receive(&mut buffer, 10),
            Received::Bytes(3)
        ));
        assert!(!transport.readable, "no second read is needed");
        transport.readable = true;
        assert!(matches!(
            transport.receive(&mut buffer, 10),
            Received::Nothing
        ));
    }

    /// Bytes and the end came in one event: there is no second one.
    #[test]
    fn an_end_that_came_with_bytes_is_read() {
        let (mut transport, mut peer) = pair();
        peer.write_all(b"abc").expect("written");
        drop(peer);
        (transport.readable, transport.ending) = (true, true);
        let mut buffer = Vec::new();
        assert!(matches!(
            transport.receive(&mut buffer, 10),
            Received::Bytes(3)
        ));
        assert!(transport.readable, "the end is still to be read");
        assert!(matches!(transport.receive(&mut buffer, 10), Received::End));
        assert!(!transport.readable);
        assert_eq!(buffer, b"abc");
    }

    #[test]
    fn a_filled_read_may_not_have_been_all() {
        let (mut transport, mut peer) = pair();
        peer.write_all(b"abcd").expect("written");
        transport.readable = true;
        assert!(matches!(
            transport.receive(&mut Vec::new(), 2),
            Received::Bytes(2)
        ));
        assert!(!transport.is_quiet(), "two more bytes wait");
        let (mut transport, mut peer) = pair();
        peer.write_all(b"ab").expect("written");
        transport.readable = true;
        assert!(matches!(
            transport.receive(&mut Vec::new(), 2),
            Received::Bytes(2)
        ));
        assert!(transport.is_quiet(), "it was all");
        drop(peer);
        transport.readable = true;
        assert!(!transport.is_quiet(), "the end waits");
    }

    #[test]
    fn a_full_socket_waits_for_an_event_and_a_dead_one_is_broken() {
        let (mut transport, peer) = pair();
        let piece = vec![0; 1 << 20];
        let mut sent = 0;
        while transport.writable {
            match transport.send(&[IoSlice::new(&piece)], piece.len()) {
                Sent::Bytes(count) => sent += count,
                Sent::Broken(errno) => panic!("errno {errno}"),
            }
            assert!(sent < 100 << 20);
        }
        assert_eq!(transport.send(&[IoSlice::new(b"x")], 1), Sent::Bytes(0));
        drop(peer);
        transport.writable = true;
        assert_eq!(transport.send(&[IoSlice::new(b"x")], 1), Sent::Broken(32));
    }
}
