//! One question and its attempts: which server next, when again, TCP for what did not fit.
//!
//! Every attempt has an id and a socket of its own, so that whoever wants to forge an answer has to guess both (RFC 5452
//! §9.2). Does not know what the answer is for: `lookup` does.

use crate::message::{ALIASES_MAX, Kind, Says, ServiceHost, answer, query};
use crate::name::HostName;
use crate::reason::Reason;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Pauses before the next attempt without an answer. A server is asked at most twice in the first second.
const PAUSES_MS: [u64; 3] = [500, 1000, 2000];
/// Attempts whose late answers are still taken.
const OPEN_MAX: usize = 3;

/// How an attempt is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// One datagram, from a port of its own.
    Udp,
    /// A connection of its own; messages have their length before them ([`crate::framed`]).
    Tcp,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Send this, and tell what comes back under this number.
    Send {
        /// Names the attempt.
        attempt: u32,
        /// Whom to.
        server: SocketAddr,
        /// How.
        transport: Transport,
        /// What, without framing.
        message: Vec<u8>,
    },
    /// Nothing more is expected under this number.
    Close {
        /// Names the attempt.
        attempt: u32,
    },
}

/// What a question is asked with.
pub(crate) struct World<'a> {
    pub(crate) servers: &'a [SocketAddr],
    pub(crate) now_ms: u64,
    /// Draws an id.
    pub(crate) random: &'a mut dyn FnMut() -> u16,
    /// Draws the number of an attempt.
    pub(crate) serial: &'a mut u32,
    pub(crate) orders: &'a mut Vec<Order>,
}

#[derive(Debug)]
struct Attempt {
    number: u32,
    id: u16,
    server: usize,
    transport: Transport,
    edns: bool,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Addresses(Vec<IpAddr>),
    Hosts(Vec<ServiceHost>),
    Nothing(Reason),
}

#[derive(Debug)]
pub(crate) struct Question {
    name: HostName,
    kind: Kind,
    aliases: usize,
    /// The server that is asked next.
    server: usize,
    sent: usize,
    /// Servers that cannot answer it.
    useless: usize,
    /// Attempts that came to nothing.
    failed: usize,
    /// A server did not understand EDNS.
    plain: bool,
    next_ms: u64,
    open: VecDeque<Attempt>,
    answer: Option<Answer>,
    ttl_s: u32,
}

impl Question {
    pub(crate) fn new(name: HostName, kind: Kind, server: usize) -> Self {
        Self {
            name,
            kind,
            aliases: 0,
            server,
            sent: 0,
            useless: 0,
            failed: 0,
            plain: false,
            next_ms: 0,
            open: VecDeque::new(),
            answer: None,
            ttl_s: u32::MAX,
        }
    }

    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn ttl_s(&self) -> u32 {
        self.ttl_s
    }

    /// When it is asked again.
    pub(crate) fn due_ms(&self) -> u64 {
        if self.answer.is_some() {
            u64::MAX
        } else {
            self.next_ms
        }
    }

    pub(crate) fn owns(&self, number: u32) -> bool {
        self.open.iter().any(|attempt| attempt.number == number)
    }

    /// Asks the next server, when it is time.
    pub(crate) fn ask(&mut self, world: &mut World<'_>) {
        if world.now_ms < self.due_ms() {
            return;
        }
        let server = self.server;
        self.server = server.wrapping_add(1);
        self.send(server, Transport::Udp, world);
    }

    fn send(&mut self, server: usize, transport: Transport, world: &mut World<'_>) {
        let pause_ms = PAUSES_MS[self.sent.min(PAUSES_MS.len() - 1)];
        self.next_ms = world.now_ms + pause_ms;
        self.sent += 1;
        let id = (world.random)();
        let Some(address) = world.servers.get(server % world.servers.len().max(1)) else {
            return self.end(Answer::Nothing(Reason::ServerFailure), world);
        };
        // Some old servers, and firewalls before them, are silent about what they do not know.
        let edns = !self.plain && self.sent <= 1 + world.servers.len();
        let Some(message) = query(id, &self.name, self.kind, edns) else {
            return self.end(Answer::Nothing(Reason::FormatError), world);
        };
        *world.serial = world.serial.wrapping_add(1);
        let number = *world.serial;
        world.orders.push(Order::Send {
            attempt: number,
            server: *address,
            transport,
            message,
        });
        self.open.push_back(Attempt {
            number,
            id,
            server,
            transport,
            edns,
        });
        if self.open.len() > OPEN_MAX
            && let Some(oldest) = self.open.pop_front()
        {
            world.orders.push(Order::Close {
                attempt: oldest.number,
            });
        }
    }

    /// Bytes came back. What is no answer is not listened to.
    pub(crate) fn heard(&mut self, number: u32, bytes: &[u8], world: &mut World<'_>) {
        let Some(attempt) = self.open.iter().find(|attempt| attempt.number == number) else {
            return;
        };
        let (server, transport, edns) = (attempt.server, attempt.transport, attempt.edns);
        match answer(bytes, attempt.id, &self.name, self.kind) {
            None if transport == Transport::Tcp => self.failed(number, world),
            None => {}
            Some(Says::Truncated) if transport == Transport::Udp => {
                self.close(number, world);
                self.send(server, Transport::Tcp, world);
            }
            Some(Says::Truncated) => self.useless(number, Reason::ServerFailure, world),
            Some(Says::Addresses(addresses, ttl)) => {
                self.ttl_s = self.ttl_s.min(ttl);
                self.end(Answer::Addresses(addresses), world);
            }
            Some(Says::Hosts(hosts, ttl)) => {
                self.ttl_s = self.ttl_s.min(ttl);
                self.end(Answer::Hosts(hosts), world);
            }
            Some(Says::Alias(target, ttl)) => {
                self.ttl_s = self.ttl_s.min(ttl);
                self.aliases += 1;
                if self.aliases > ALIASES_MAX {
                    return self.end(Answer::Nothing(Reason::ServerFailure), world);
                }
                self.name = target;
                self.restart(server, world);
            }
            Some(Says::Nothing(reason)) if reason.is_answer() => {
                self.end(Answer::Nothing(reason), world);
            }
            // RFC 6891 §7: a server that knows no EDNS is asked again without it.
            Some(Says::Nothing(Reason::FormatError | Reason::NotImplemented)) if edns => {
                self.plain = true;
                self.close(number, world);
                self.send(server, transport, world);
            }
            Some(Says::Nothing(reason)) => self.useless(number, reason, world),
        }
    }

    /// An attempt came to nothing before an answer: refused, reset. The next server is asked at once, once round; then the
    /// pauses decide, since a server that is being restarted will be back.
    pub(crate) fn failed(&mut self, number: u32, world: &mut World<'_>) {
        self.close(number, world);
        self.failed += 1;
        if self.answer.is_none() && self.failed < world.servers.len() {
            self.next_ms = world.now_ms;
            self.ask(world);
        }
    }

    /// A server said that it cannot answer: the next one may. When none can, that is the answer.
    fn useless(&mut self, number: u32, reason: Reason, world: &mut World<'_>) {
        self.close(number, world);
        self.useless += 1;
        if self.useless >= world.servers.len() {
            return self.end(Answer::Nothing(reason), world);
        }
        self.next_ms = world.now_ms;
        self.ask(world);
    }

    /// The name turned out to be another one.
    fn restart(&mut self, server: usize, world: &mut World<'_>) {
        self.close_all(world);
        (self.server, self.sent, self.useless, self.failed) = (server, 0, 0, 0);
        self.next_ms = world.now_ms;
        self.ask(world);
    }

    /// No answer is awaited any more.
    pub(crate) fn give_up(&mut self, world: &mut World<'_>) {
        if self.answer.is_none() {
            self.end(Answer::Nothing(Reason::TimedOut), world);
        }
    }

    fn end(&mut self, answer: Answer, world: &mut World<'_>) {
        self.answer = Some(answer);
        self.close_all(world);
    }

    fn close(&mut self, number: u32, world: &mut World<'_>) {
        self.open.retain(|attempt| attempt.number != number);
        world.orders.push(Order::Close { attempt: number });
    }

    fn close_all(&mut self, world: &mut World<'_>) {
        let closed = self.open.drain(..).map(|attempt| Order::Close {
            attempt: attempt.number,
        });
        world.orders.extend(closed);
    }
}
