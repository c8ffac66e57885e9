//! A connected socket with what is known of its readiness.
//!
//! mio is edge-triggered, so readiness is remembered here: it is set by events and taken away only by the kernel saying
//! "no more". A short read means "no more" as long as the peer has not ended its side: when a FIN or RST came in the same
//! edge, there will be no further event, so the read goes on until it returns the end itself.
//!
//! With TLS (`secure`) all of this speaks of plaintext: readable is what a read may give something of, be it in the socket or
//! in the session; writable is what takes plaintext at once, so no ciphertext waits.

use crate::buffers::Buffers;
use crate::secure::{Partner, Secure};
use kp_proxy::TlsFacts;
use kp_sys::io;
use kp_tls::TlsError;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::rc::Rc;

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
    /// Boxed, since most of the size of a connection without TLS is not to be spent on it.
    pub(crate) secure: Option<Box<Secure>>,
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
    /// With TLS: the peer ended its side without saying so (close_notify), so what came may not be all (RFC 8446 §6.1).
    Cut,
    /// The connection broke.
    Broken(i32),
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// So many bytes; fewer than offered means an event will come.
    Bytes(usize),
    /// None of the bytes, but some of those that were taken before and held.
    Moved,
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
            secure: None,
        }
    }

    /// The same with TLS.
    pub(crate) fn with_tls(fd: OwnedFd, writable: bool, secure: Secure) -> Self {
        Self {
            secure: Some(Box::new(secure)),
            ..Self::new(fd, writable)
        }
    }

    /// Takes note of an epoll event. Ciphertext that waits for room leaves at once, since some of it is no part of any
    /// output.
    pub(crate) fn note(&mut self, event: &mio::event::Event, pool: &mut Buffers) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        self.ending |= event.is_read_closed() || event.is_error();
        self.errored |= event.is_error();
        if let Some(secure) = self.secure.as_deref_mut() {
            if self.readable {
                secure.note_readable();
            }
            self.flush_sealed(pool);
        }
    }

    /// Asks the socket with the next read, whatever is known of it.
    pub(crate) fn ask(&mut self) {
        self.readable = true;
        if let Some(secure) = self.secure.as_deref_mut() {
            secure.note_readable();
        }
    }

    /// Reads up to `max` bytes onto the end of `buffer`; with TLS a record is never parted, so it may become up to 16 KiB
    /// more.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut Vec<u8>,
        max: usize,
        pool: &mut Buffers,
    ) -> Received {
        if !self.readable {
            return Received::Nothing;
        }
        if self.secure.is_some() {
            return self.receive_sealed(buffer, max, pool);
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
    pub(crate) fn is_quiet(&mut self, pool: &mut Buffers) -> bool {
        let empty = !self.readable
            || matches!(
                self.receive(&mut Vec::with_capacity(1), 1, pool),
                Received::Nothing
            );
        empty
            && self
                .secure
                .as_deref()
                .is_none_or(Secure::is_between_records)
    }

    /// What an exchange may know of the TLS connection; `None` before its hello and without TLS.
    pub(crate) fn facts(&self) -> Option<&Rc<TlsFacts>> {
        self.secure.as_deref()?.facts()
    }

    /// Why TLS broke, once.
    pub(crate) fn take_failure(&mut self) -> Option<TlsError> {
        self.secure.as_deref_mut()?.take_failure()
    }

    /// Whom TLS is spoken with, towards an upstream.
    pub(crate) fn partner(&self) -> Option<&Partner> {
        self.secure.as_deref()?.partner.as_deref()
    }

    /// Whether its handshake waits for its turn, or for a certificate.
    #[cfg(debug_assertions)]
    pub(crate) fn is_queued(&self) -> bool {
        self.secure.as_deref().is_some_and(|secure| secure.queued)
    }

    /// Whether a handshake waits for its first byte.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.readable && self.secure.as_deref().is_some_and(Secure::is_untouched)
    }

    /// Bytes that were taken and that the kernel has not yet.
    pub(crate) fn held(&self) -> usize {
        self.secure.as_deref().map_or(0, Secure::held)
    }

    /// Whether its TLS keeps the beginning of a record or message.
    pub(crate) fn keeps(&self) -> bool {
        self.secure.as_deref().is_some_and(Secure::keeps)
    }

    /// It is about to be closed, or goes on without TLS: whether it had it.
    pub(crate) fn forget_tls(&mut self, pool: &mut Buffers) -> bool {
        let secure = self.secure.as_deref_mut();
        secure.map(|secure| secure.forget_kept(pool)).is_some()
    }

    /// Writes the stretches in order, as much as the socket takes in one call.
    pub(crate) fn send(
        &mut self,
        stretches: &[IoSlice<'_>],
        total: usize,
        pool: &mut Buffers,
    ) -> Sent {
        if !self.writable {
            return Sent::Bytes(0);
        }
        if self.secure.is_some() {
            return self.send_sealed(stretches, total, pool);
        }
        if total == 0 {
            return Sent::Bytes(0);
        }
        match stretches {
            [only] => self.write(only),
            several => self.written(total, |fd| io::writev(fd, several)),
        }
    }

    /// Writes bytes to the socket as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Sent {
        self.written(bytes.len(), |fd| io::send(fd, bytes))
    }

    fn written(&mut self, total: usize, call: impl Fn(&OwnedFd) -> std::io::Result<usize>) -> Sent {
        loop {
            match call(&self.fd) {
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

    /// Ends the write side: with TLS a close_notify, then in any case a FIN. False where the connection is gone already.
    pub(crate) fn end(&mut self, pool: &mut Buffers) -> bool {
        if self.secure.is_none() {
            return kp_sys::socket::shutdown_write(&self.fd).is_ok();
        }
        self.end_sealed(true, pool);
        !self.errored
    }

    /// The connection is about to be closed: a TLS peer is told that what it got is all.
    pub(crate) fn part(&mut self, pool: &mut Buffers) {
        if self.secure.is_some() && !self.errored {
            self.end_sealed(false, pool);
        }
    }

    /// The connection will be closed in the middle of something: a TLS peer must not take it for the end.
    pub(crate) fn break_off(&mut self) {
        if let Some(secure) = self.secure.as_deref_mut() {
            secure.break_off();
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
            transport.receive(&mut buffer, 10, &mut Buffers::default()),
            Received::Nothing
        ));
        transport.readable = true;
        assert!(matches!(
            transport.receive(&mut buffer, 10, &mut Buffers::default()),
            Received::Bytes(3)
        ));
        assert!(!transport.readable, "no second read is needed");
        transport.readable = true;
        assert!(matches!(
            transport.receive(&mut buffer, 10, &mut Buffers::default()),
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
            transport.receive(&mut buffer, 10, &mut Buffers::default()),
            Received::Bytes(3)
        ));
        assert!(transport.readable, "the end is still to be read");
        assert!(matches!(
            transport.receive(&mut buffer, 10, &mut Buffers::default()),
            Received::End
        ));
        assert!(!transport.readable);
        assert_eq!(buffer, b"abc");
    }

    #[test]
    fn a_filled_read_may_not_have_been_all() {
        let (mut transport, mut peer) = pair();
        peer.write_all(b"abcd").expect("written");
        transport.readable = true;
        assert!(matches!(
            transport.receive(&mut Vec::new(), 2, &mut Buffers::default()),
            Received::Bytes(2)
        ));
        assert!(
            !transport.is_quiet(&mut Buffers::default()),
            "two more bytes wait"
        );
        let (mut transport, mut peer) = pair();
        peer.write_all(b"ab").expect("written");
        transport.readable = true;
        assert!(matches!(
            transport.receive(&mut Vec::new(), 2, &mut Buffers::default()),
            Received::Bytes(2)
        ));
        assert!(transport.is_quiet(&mut Buffers::default()), "it was all");
        drop(peer);
        transport.readable = true;
        assert!(
            !transport.is_quiet(&mut Buffers::default()),
            "the end waits"
        );
    }

    #[test]
    fn a_full_socket_waits_for_an_event_and_a_dead_one_is_broken() {
        let (mut transport, peer) = pair();
        let piece = vec![0; 1 << 20];
        let mut sent = 0;
        while transport.writable {
            match transport.send(
                &[IoSlice::new(&piece)],
                piece.len(),
                &mut Buffers::default(),
            ) {
                Sent::Bytes(count) => sent += count,
                other => panic!("{other:?}"),
            }
            assert!(sent < 100 << 20);
        }
        assert_eq!(
            transport.send(&[IoSlice::new(b"x")], 1, &mut Buffers::default()),
            Sent::Bytes(0)
        );
        drop(peer);
        transport.writable = true;
        assert_eq!(
            transport.send(&[IoSlice::new(b"x")], 1, &mut Buffers::default()),
            Sent::Broken(32)
        );
    }
}
