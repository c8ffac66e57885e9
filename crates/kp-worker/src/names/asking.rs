//! The sockets of lookups. Each attempt has one of its own, connected to its server, so that the kernel draws its port at
//! random and lets nobody else's datagrams in.

use super::random;
use crate::reactor::Worker;
use crate::token::{Key, Kind};
use kp_dns::{HostName, Lookup, MESSAGE_MAX, Order, Outcome, Transport, Wanted, framed};
use kp_shm::Counter;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Datagrams read from a socket at one time: a flood of forged ones must not hold the loop.
const DATAGRAMS_MAX: usize = 16;
/// Sockets that all lookups have together. A name server that is silent must not take the descriptors that clients need.
const SOCKETS_MAX: usize = 512;
/// Names that requests made leave room for those of upstreams.
const SOCKETS_OF_REQUESTS_MAX: usize = 256;
/// Where there are no more, an attempt that has waited for so long gives its socket to a new one.
const SOCKET_HOLDS_MS: u64 = 400;

/// What a lookup is for.
#[derive(Debug, Clone)]
pub(super) enum Purpose {
    /// A name of `Names::shared`.
    Shared(usize),
    /// A name of the cache.
    Cached(super::cache::Asked),
}

/// A lookup under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) lookup: Lookup,
    pub(super) purpose: Purpose,
    pub(super) started_ms: u64,
}

/// The socket of an attempt.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    lookup: Key,
    attempt: u32,
    transport: Transport,
    began_ms: u64,
    /// What a connection has still to send.
    unsent: Vec<u8>,
    /// What came on a connection.
    came: Vec<u8>,
}

/// What a socket gave.
enum Heard {
    Nothing,
    Message(Vec<u8>),
    Failed,
}

impl Worker {
    /// Begins a lookup. `None`: the name is none.
    pub(super) fn begin_lookup(
        &mut self,
        name: HostName,
        wanted: Wanted,
        servers: Vec<SocketAddr>,
        timeout: Duration,
        purpose: Purpose,
    ) -> Key {
        let now_ms = self.clock.mono_ms;
        let first = random() as usize;
        let lookup = Lookup::new(name, wanted, servers, first, timeout, now_ms);
        let key = self.names.lookups.insert(Running {
            lookup,
            purpose,
            started_ms: now_ms,
        });
        self.pass_lookup(key);
        key
    }

    /// Lets every lookup see what time it is.
    pub(super) fn pass_lookups(&mut self) {
        let now_ms = self.clock.mono_ms;
        for key in self.names.lookups.keys() {
            let due = self.names.lookups.peek(key);
            if due.is_some_and(|running| running.lookup.due_ms() <= now_ms) {
                self.pass_lookup(key);
            }
        }
    }

    fn pass_lookup(&mut self, key: Key) {
        let now_ms = self.clock.mono_ms;
        let names = &mut self.names;
        if let Some(running) = names.lookups.at(key) {
            let (serial, orders) = (&mut names.serial, &mut names.orders);
            running.lookup.pass(now_ms, serial, &mut id, orders);
        }
        self.obey(key);
    }

    /// Ends a lookup without an answer.
    pub(super) fn cancel_lookup(&mut self, key: Key) {
        let Some(mut running) = self.names.lookups.remove(key) else {
            return;
        };
        running.lookup.cancel(&mut self.names.orders);
        for order in std::mem::take(&mut self.names.orders) {
            if let Order::Close { attempt } = order {
                self.close_attempt(attempt);
            }
        }
    }

    /// Does what a lookup ordered, and takes its outcome when it is over.
    fn obey(&mut self, key: Key) {
        let now_ms = self.clock.mono_ms;
        while !self.names.orders.is_empty() {
            for order in std::mem::take(&mut self.names.orders) {
                match order {
                    Order::Close { attempt } => self.close_attempt(attempt),
                    Order::Send {
                        attempt,
                        server,
                        transport,
                        message,
                    } => {
                        let sent = match self.has_room(key) {
                            true => self.send_attempt(key, attempt, server, transport, &message),
                            false => Err(ErrorKind::QuotaExceeded.into()),
                        };
                        if sent.is_ok() {
                            self.counters.increment(Counter::DnsQueries);
                        } else if let Some(running) = self.names.lookups.at(key) {
                            let names = (&mut self.names.serial, &mut self.names.orders);
                            running
                                .lookup
                                .failed(attempt, now_ms, names.0, &mut id, names.1);
                        }
                    }
                }
            }
        }
        let Some(running) = self.names.lookups.peek(key) else {
            return;
        };
        match running.lookup.outcome() {
            None => self.names.due_ms = self.names.due_ms.min(running.lookup.due_ms()),
            Some(outcome) => {
                if let Some(running) = self.names.lookups.remove(key) {
                    self.lookup_over(running.purpose, outcome);
                }
            }
        }
    }

    /// Whether a lookup may have one more socket. One that may not asks again after its pause.
    fn has_room(&mut self, lookup: Key) -> bool {
        let running = self.names.lookups.peek(lookup);
        let limit = match running.map(|running| &running.purpose) {
            Some(Purpose::Cached(_)) => SOCKETS_OF_REQUESTS_MAX,
            Some(Purpose::Shared(_)) | None => SOCKETS_MAX,
        };
        if self.names.attempts.len() < limit {
            return true;
        }
        let Some((attempt, key)) = self.names.attempts.first_key_value() else {
            return true;
        };
        let oldest = self.names.sockets.peek(*key);
        let old_ms = self.clock.mono_ms.saturating_sub(SOCKET_HOLDS_MS);
        let gives_way = oldest.is_none_or(|socket| socket.began_ms <= old_ms);
        let attempt = *attempt;
        if gives_way {
            self.close_attempt(attempt);
        }
        gives_way
    }

    fn lookup_over(&mut self, purpose: Purpose, outcome: Outcome) {
        self.counters.increment(match outcome.reason {
            None => Counter::DnsAnswers,
            Some(_) => Counter::DnsFailures,
        });
        // Whatever comes next is looked at in this turn.
        self.names.due_ms = 0;
        match purpose {
            Purpose::Shared(index) => self.shared_over(index, &outcome),
            Purpose::Cached(asked) => self.cached_over(&asked, &outcome),
        }
    }

    fn send_attempt(
        &mut self,
        lookup: Key,
        attempt: u32,
        server: SocketAddr,
        transport: Transport,
        message: &[u8],
    ) -> io::Result<()> {
        let (fd, unsent) = match transport {
            Transport::Udp => {
                let fd = kp_sys::socket::connect_datagram(server)?;
                kp_sys::io::send(&fd, message)?;
                (fd, Vec::new())
            }
            Transport::Tcp => {
                let target = kp_sys::socket::Target::Inet(server);
                (kp_sys::socket::connect(target, None)?, framed(message))
            }
        };
        let key = self.names.sockets.insert(Socket {
            fd,
            lookup,
            attempt,
            transport,
            began_ms: self.clock.mono_ms,
            unsent,
            came: Vec::new(),
        });
        self.names.attempts.insert(attempt, key);
        match self.names.sockets.peek(key) {
            Some(socket) => self.register(&socket.fd, key.token(Kind::Name)),
            None => Ok(()),
        }
    }

    fn close_attempt(&mut self, attempt: u32) {
        if let Some(key) = self.names.attempts.remove(&attempt) {
            self.names.sockets.remove(key);
        }
    }

    /// Hears what the sockets with news have to say.
    pub(super) fn serve_sockets(&mut self) {
        let mut again = Vec::new();
        for key in std::mem::take(&mut self.names.ready) {
            let mut silent = false;
            for _ in 0..DATAGRAMS_MAX {
                let names = &mut self.names;
                let Some(socket) = names.sockets.at(key) else {
                    silent = true;
                    break;
                };
                let (lookup, attempt) = (socket.lookup, socket.attempt);
                match socket.hear(&mut names.buffer) {
                    Heard::Nothing => {
                        silent = true;
                        break;
                    }
                    Heard::Message(message) => self.tell_lookup(lookup, attempt, Some(&message)),
                    Heard::Failed => self.tell_lookup(lookup, attempt, None),
                }
            }
            // There may be more than was read, and an edge comes once.
            if !silent {
                again.push(key);
            }
        }
        self.names.ready = again;
    }

    fn tell_lookup(&mut self, lookup: Key, attempt: u32, message: Option<&[u8]>) {
        let now_ms = self.clock.mono_ms;
        let names = &mut self.names;
        if let Some(running) = names.lookups.at(lookup) {
            let (serial, orders) = (&mut names.serial, &mut names.orders);
            match message {
                Some(bytes) => {
                    running
                        .lookup
                        .heard(attempt, bytes, now_ms, serial, &mut id, orders);
                }
                None => running
                    .lookup
                    .failed(attempt, now_ms, serial, &mut id, orders),
            }
        }
        self.obey(lookup);
    }
}

impl Socket {
    fn hear(&mut self, buffer: &mut Vec<u8>) -> Heard {
        match self.transport {
            Transport::Udp => {
                buffer.clear();
                match kp_sys::io::recv_into(&self.fd, buffer, MESSAGE_MAX) {
                    Ok(_) => Heard::Message(buffer.clone()),
                    Err(error) => silence(&error),
                }
            }
            Transport::Tcp => self.converse(),
        }
    }

    /// Sends what is unsent and reads one message with its length before it (RFC 1035 §4.2.2).
    fn converse(&mut self) -> Heard {
        while !self.unsent.is_empty() {
            match kp_sys::io::send(&self.fd, &self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) => return silence(&error),
            }
        }
        loop {
            if let Some((length, rest)) = self.came.split_first_chunk::<2>()
                && let Some(message) = rest.get(..usize::from(u16::from_be_bytes(*length)))
            {
                let message = message.to_vec();
                self.came.drain(..2 + message.len());
                return Heard::Message(message);
            }
            match kp_sys::io::recv_into(&self.fd, &mut self.came, MESSAGE_MAX) {
                Ok(0) => return Heard::Failed,
                Ok(_) => {}
                Err(error) => return silence(&error),
            }
        }
    }
}

fn silence(error: &io::Error) -> Heard {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected => Heard::Nothing,
        _ => Heard::Failed,
    }
}

/// A number that nobody can guess.
fn id() -> u16 {
    random() as u16
}
