//! The client half of a connection: an idle slot between requests, the reading of heads, lingering.
//!
//! An idle kept-alive connection is this struct and nothing else: no buffer, no exchange.

use crate::active::{Active, NEVER, READ_MIN, RequestStage};
use crate::ages::Waits;
use crate::early::{Parting, early_phase, tls_reason};
use crate::reactor::Worker;
use crate::remote::Remote;
use crate::token::{Key, Kind};
use crate::transport::{Received, Transport};
use crate::wheel::TimerId;
use kp_config::model::{Level, LingeringClose, Location};
use kp_http::ProxyHeader;
use kp_proxy::{Cause, Failure, Input, Phase, Reason};
use kp_shm::Counter;
use std::rc::Rc;

/// What a client connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientPhase {
    /// A PROXY header is awaited.
    Preamble,
    /// The TLS handshake is under way.
    Handshake,
    /// Between requests, or reading a head.
    Head,
    /// An exchange is in progress.
    Exchange,
    /// Closing: what still comes is read and dropped, so that the last answer is not lost to a reset.
    Linger,
}

/// A client connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) transport: Transport,
    pub(crate) timer: TimerId,
    pub(crate) phase: ClientPhase,
    /// Waits in the run queue.
    pub(crate) queued: bool,
    /// Accepted although all connections were in use: gets a 503.
    pub(crate) overload: bool,
    /// Bytes of the next request were there when the one before it was done.
    pub(crate) pipelined: bool,
    /// Index into the worker's listeners.
    pub(crate) listener: u16,
    pub(crate) requests: u32,
    /// The exchange whose head is being read or that is in progress.
    pub(crate) active: Option<Key>,
    /// Bytes read and not yet used; without memory while empty.
    pub(crate) input: Vec<u8>,
    pub(crate) serial: u64,
    pub(crate) accepted_ms: u64,
    /// Deadline of the head, of keep-alive or of lingering.
    pub(crate) deadline_ms: u64,
    /// Longest that lingering may last.
    pub(crate) linger_end_ms: u64,
    /// Longest silence while it lasts (`lingering_timeout`).
    pub(crate) linger_wait_ms: u32,
    /// Which TCP_NOTSENT_LOWAT it has: an index; 0 is the listening socket's.
    pub(crate) lowat: u8,
    /// The same for SO_RCVBUF.
    pub(crate) narrow: u8,
    /// TCP_NODELAY, which the listener hands down switched on.
    pub(crate) nodelay: bool,
    pub(crate) remote: Remote,
    /// Whom its PROXY header names.
    pub(crate) proxied: Option<Rc<ProxyHeader>>,
}

/// Kernel and kp memory for an idle connection are of one order; the slot must not outgrow that.
const _: () = assert!(size_of::<Client>() <= 144);

/// Reads of a head: what a pool buffer holds.
const HEAD_READ_MIN: usize = 4 * 1024;

impl Worker {
    /// Goes on with a client that has no exchange in progress.
    pub(crate) fn serve_client(&mut self, key: Key) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        client.queued = false;
        match client.phase {
            ClientPhase::Preamble => self.read_preamble(key),
            ClientPhase::Handshake => self.shake_client(key),
            ClientPhase::Head => self.read_head(key),
            ClientPhase::Linger => self.linger(key),
            ClientPhase::Exchange => {
                if let Some(active) = client.active {
                    self.drive(active);
                }
            }
        }
    }

    /// Reads until a head is complete, then starts its exchange.
    pub(crate) fn read_head(&mut self, key: Key) {
        let mut fresh = self
            .clients
            .peek(key)
            .is_some_and(|client| !client.input.is_empty());
        loop {
            if fresh {
                match self.parse_head(key) {
                    HeadProgress::Partial => {}
                    HeadProgress::Started | HeadProgress::Gone => return,
                }
            }
            let Some(client) = self.clients.at(key) else {
                return;
            };
            self.buffers.fill(&mut client.input);
            let room = client
                .input
                .capacity()
                .saturating_sub(client.input.len())
                .max(HEAD_READ_MIN);
            match client
                .transport
                .receive(&mut client.input, room, &mut self.buffers)
            {
                Received::Bytes(count) => {
                    self.counters.add(Counter::ClientBytesIn, count as u64);
                    fresh = true;
                }
                Received::Nothing => break self.await_head(key),
                Received::End | Received::Cut | Received::Broken(_) if client.input.is_empty() => {
                    return self.close_client(key, Parting::InOrder);
                }
                Received::End | Received::Cut | Received::Broken(_) => {
                    return self.give_up_head(key, Cause::ClientCut);
                }
            }
        }
    }

    /// Parks a client whose head is not complete.
    fn await_head(&mut self, key: Key) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        if client.input.is_empty() {
            self.buffers.give(&mut client.input);
        }
        let (timer, deadline_ms) = (client.timer, client.deadline_ms);
        if deadline_ms == NEVER {
            self.wheel.disarm(timer);
        } else {
            self.wheel.arm(timer, deadline_ms);
        }
        let begun = client.active;
        if let Some(mut active) = begun.and_then(|active| self.exchanges.lend(active)) {
            self.weigh(&mut active);
            self.exchanges.restore(active.key, active);
        }
    }

    fn parse_head(&mut self, key: Key) -> HeadProgress {
        let Some(client) = self.clients.at(key) else {
            return HeadProgress::Gone;
        };
        if client.active.is_none() {
            self.begin_exchange(key);
        }
        let Some(client) = self.clients.at(key) else {
            return HeadProgress::Gone;
        };
        let Some(mut active) = client.active.and_then(|active| self.exchanges.lend(active)) else {
            return HeadProgress::Gone;
        };
        let limits = &self.fronts.at(client, &self.listeners).limits;
        let before = client.input.len();
        let result =
            active
                .reader
                .request(&mut client.input, &mut active.exchange.request.head, limits);
        let input = match result {
            Ok(false) => {
                let key = active.key;
                if !std::mem::replace(&mut active.reading, true) {
                    self.counters.increment(Counter::ConnectionsReading);
                }
                self.exchanges.restore(key, active);
                return HeadProgress::Partial;
            }
            Ok(true) => {
                active.exchange.record.request_length = (before - client.input.len()) as u64;
                let overload = client.overload;
                self.refusal(overload).unwrap_or(Input::Head)
            }
            Err(error) => {
                active.exchange.record.request_length = before as u64;
                let failure = Failure::request_head(&error);
                active.exchange.record.detail = Some(error.to_string());
                active.head_refused = true;
                Input::HeadFailed(failure)
            }
        };
        self.start(active, input);
        HeadProgress::Started
    }

    /// Takes an exchange for the head whose first byte came.
    fn begin_exchange(&mut self, key: Key) {
        let mut active = match self.spare.pop() {
            Some(mut spare) => {
                spare.client = key;
                spare
            }
            None => Box::new(Active::new(key)),
        };
        let now_ms = self.clock.mono_ms;
        active.exchange.record.started_ms = now_ms;
        let active_key = self.exchanges.insert(active);
        if let Some(active) = self.exchanges.at(active_key) {
            active.key = active_key;
        }
        let Some(client) = self.clients.at(key) else {
            return;
        };
        client.active = Some(active_key);
        if client.requests > 0 {
            self.client_ages.join(key.index, Waits::Head, now_ms);
        }
        if client.requests > 0 || self.drain.is_some() {
            // On a kept-alive connection the head's time starts with its first byte; on a fresh one with the accept.
            let front = self.fronts.at(client, &self.listeners);
            client.deadline_ms = now_ms + front.head_timeout_ms;
        }
    }

    /// The head is complete (or refused): the exchange proper begins.
    fn start(&mut self, mut active: Box<Active>, input: Input) {
        let Some(client) = self.clients.at(active.client) else {
            return;
        };
        if client.requests > 0 {
            self.counters.decrement(Counter::ConnectionsIdle);
        }
        if std::mem::take(&mut active.reading) {
            self.counters.decrement(Counter::ConnectionsReading);
        }
        self.client_ages.leave(active.client.index);
        active.half_closed = client.transport.ending && !client.transport.errored;
        client.phase = ClientPhase::Exchange;
        client.requests += 1;
        client.deadline_ms = NEVER;
        let connection = &mut active.exchange.connection;
        connection.serial = client.serial;
        connection.requests = client.requests;
        connection.accepted_ms = client.accepted_ms;
        connection.connected_from(client.remote.address());
        connection.proxied.clone_from(&client.proxied);
        connection.listener = self.listeners[usize::from(client.listener)].id;
        connection.tls = client.transport.facts().cloned();
        connection.pipelined = std::mem::take(&mut client.pipelined);
        if client.input.is_empty() {
            self.buffers.give(&mut client.input);
        }
        self.counters.increment(Counter::Requests);
        self.counters.increment(Counter::RequestsActive);
        active.begin_body();
        if self.program.uses().request_body && !active.request.whole {
            active.exchange.machine.body_came = active.whole_body_in(&client.input);
        }
        for name in active.exchange.request.head.dropped() {
            let name = String::from_utf8_lossy(name);
            let text = format!(
                "client sent invalid header line: \"{}\" while reading client request headers",
                name.escape_debug()
            );
            self.log_client(active.client, Level::Info, &text, None);
        }
        let first = Some(input);
        self.drive_from(active, first);
    }

    /// The exchange is over and its log line written: the connection goes on, lingers or ends.
    pub(crate) fn after_exchange(&mut self, mut active: Box<Active>) {
        let key = active.client;
        self.give_up_places(&mut active);
        let location = self.location(active.exchange.location);
        let whole = active.request.whole && !active.head_refused;
        let (persistent, cut, out) = (active.persistent, active.cut, active.response.out);
        self.exchanges.remove(active.key);
        self.memory.forget(&mut active);
        self.keep_spare(active, key);
        let Some(client) = self.clients.at(key) else {
            return;
        };
        client.active = None;
        self.counters.decrement(Counter::RequestsActive);
        if cut {
            client.transport.break_off();
            if out == kp_http::Framing::UntilClose || location.reset_timedout_connection {
                // Without a length or chunks only a reset tells the client that the body is not whole.
                let _ = kp_sys::socket::reset_on_close(&client.transport.fd);
            }
            return self.close_client(key, Parting::InOrder);
        }
        if persistent && whole {
            return self.keep_alive(key, location);
        }
        self.end_client(key, location, !whole);
    }

    /// Keeps an exchange that is over for the next one, unless it had an unusually large request.
    fn keep_spare(&mut self, mut active: Box<Active>, key: Key) {
        active.reset(key, &mut self.buffers);
        if self.spare.len() < SPARE_MAX && active.exchange.bytes() <= SPARE_BYTES_MAX {
            self.spare.push(active);
        }
    }

    /// Waits for the next request, or goes on with the one that is already here.
    fn keep_alive(&mut self, key: Key, location: &Location) {
        let now_ms = self.clock.mono_ms;
        let draining = self
            .drain
            .as_ref()
            .map(|drain| drain.idle_end_ms(location, now_ms));
        let Some(client) = self.clients.at(key) else {
            return;
        };
        self.counters.increment(Counter::ConnectionsIdle);
        self.client_ages.join(key.index, Waits::Idle, now_ms);
        client.phase = ClientPhase::Head;
        client.pipelined = !client.input.is_empty();
        client.deadline_ms =
            (now_ms + location.keepalive_timeout.as_millis() as u64).min(draining.unwrap_or(NEVER));
        self.wheel.arm(client.timer, client.deadline_ms);
        if !client.input.is_empty() || client.transport.readable {
            // The next request waits its turn, so that a pipelining client cannot starve the others.
            self.enqueue_client(key);
        }
    }

    /// Closes after an answer that says so.
    fn end_client(&mut self, key: Key, location: &Location, unread_body: bool) {
        let now_ms = self.clock.mono_ms;
        let Some(client) = self.clients.at(key) else {
            return;
        };
        let unread = unread_body
            || !client.input.is_empty()
            || (client.transport.readable && !client.transport.ending);
        let linger = match location.lingering.close {
            LingeringClose::Off => false,
            LingeringClose::On => unread,
            LingeringClose::Always => true,
        };
        if !linger {
            return self.close_client(key, Parting::InOrder);
        }
        // The client is about to see the end.
        self.flush_logs(false);
        let Some(client) = self.clients.at(key) else {
            return;
        };
        if !client.transport.end(&mut self.buffers) {
            return self.close_client(key, Parting::InOrder);
        }
        self.client_ages.join(key.index, Waits::Linger, now_ms);
        client.phase = ClientPhase::Linger;
        self.counters.increment(Counter::ConnectionsClosing);
        client.input.clear();
        self.buffers.give(&mut client.input);
        client.linger_end_ms = now_ms + location.lingering.time.as_millis() as u64;
        client.linger_wait_ms =
            u32::try_from(location.lingering.timeout.as_millis()).unwrap_or(u32::MAX);
        client.deadline_ms = now_ms + u64::from(client.linger_wait_ms);
        self.wheel
            .arm(client.timer, client.deadline_ms.min(client.linger_end_ms));
        self.linger(key);
    }

    /// Drops what a closing client still sends, until it ends, falls silent or used up its time.
    fn linger(&mut self, key: Key) {
        for _ in 0..LINGER_READS {
            let Some(client) = self.clients.at(key) else {
                return;
            };
            self.scratch.clear();
            match client
                .transport
                .receive(&mut self.scratch, READ_MIN, &mut self.buffers)
            {
                Received::Bytes(_) => {
                    client.deadline_ms = self.clock.mono_ms + u64::from(client.linger_wait_ms);
                    self.wheel
                        .arm(client.timer, client.deadline_ms.min(client.linger_end_ms));
                }
                Received::Nothing => return,
                Received::End | Received::Cut | Received::Broken(_) => {
                    return self.close_client(key, Parting::InOrder);
                }
            }
        }
        self.enqueue_client(key);
    }

    /// A client's timer fired.
    pub(crate) fn client_timeout(&mut self, key: Key) {
        let now_ms = self.clock.mono_ms;
        let draining = self.drain.is_some();
        let Some(client) = self.clients.at(key) else {
            return;
        };
        match client.phase {
            ClientPhase::Preamble => self.preamble_timeout(key),
            ClientPhase::Handshake => self.client_handshake_timeout(key),
            ClientPhase::Exchange => self.enqueue_client(key),
            ClientPhase::Linger => self.close_client(key, Parting::InOrder),
            ClientPhase::Head if client.deadline_ms > now_ms => {
                let (timer, deadline_ms) = (client.timer, client.deadline_ms);
                self.wheel.arm(timer, deadline_ms);
            }
            ClientPhase::Head if client.active.is_some() => self.head_timeout(key),
            ClientPhase::Head if draining => {
                // The grace ends with a read that says "nothing": a request that is already here is still answered.
                client.transport.ask();
                self.read_head(key);
                if self
                    .clients
                    .peek(key)
                    .is_some_and(|client| client.active.is_none())
                {
                    self.close_client(key, Parting::InOrder);
                }
            }
            ClientPhase::Head => {
                if client.requests > 0 {
                    self.counters.increment(Counter::TimeoutsClientIdle);
                    return self.close_client(key, Parting::InOrder);
                }
                self.counters.increment(Counter::TimeoutsClientHeader);
                let text = "client timed out (110: Connection timed out) while waiting for request";
                self.end_early(key, Reason::ClientSilent, Level::Info, text);
            }
        }
    }

    /// Half a head: 408. (Not a byte gets no answer, since a browser may have opened the connection in advance.)
    fn head_timeout(&mut self, key: Key) {
        self.give_up_head(key, Cause::ClientHeadTimeout);
    }

    /// The rest of a head does not come. As in nginx, what there was of it is a request of the access log.
    fn give_up_head(&mut self, key: Key, cause: Cause) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        let limits = &self.fronts.at(client, &self.listeners).limits;
        let Some(mut active) = client.active.and_then(|active| self.exchanges.lend(active)) else {
            return self.close_client(key, Parting::InOrder);
        };
        let head = &mut active.exchange.request.head;
        active.exchange.record.request_length = client.input.len() as u64;
        active.reader.give_up(&mut client.input, head, limits);
        self.start(
            active,
            Input::HeadFailed(Failure::new(Phase::RequestHead, cause)),
        );
    }

    /// Ends a client connection at once.
    pub(crate) fn close_client(&mut self, key: Key, parting: Parting) {
        let parting = self.broken_tls(key).unwrap_or(parting);
        self.note_parting(key, parting);
        let Some(mut client) = self.clients.remove(key) else {
            return;
        };
        if client.phase == ClientPhase::Exchange && client.active.is_some() {
            // In the middle of an answer.
            client.transport.break_off();
        }
        let tls = client.transport.forget_tls(&mut self.buffers);
        self.memory.tls_connections -= u64::from(tls);
        self.client_ages.leave(key.index);
        self.buffers.give(&mut client.input);
        self.wheel.free(client.timer);
        self.counters.decrement(Counter::ConnectionsActive);
        match client.phase {
            ClientPhase::Exchange if client.active.is_some() => {
                self.counters.decrement(Counter::RequestsActive);
            }
            ClientPhase::Head if client.requests > 0 => {
                self.counters.decrement(Counter::ConnectionsIdle);
            }
            ClientPhase::Preamble | ClientPhase::Handshake => {
                self.counters.decrement(Counter::ConnectionsHandshaking);
            }
            ClientPhase::Linger => self.counters.decrement(Counter::ConnectionsClosing),
            ClientPhase::Exchange | ClientPhase::Head => {}
        }
        if let Some(active) = client.active
            && let Some(mut active) = self.exchanges.remove(active)
        {
            if std::mem::take(&mut active.reading) {
                self.counters.decrement(Counter::ConnectionsReading);
            }
            self.drop_upstream(&mut active);
            self.give_up_places(&mut active);
            self.memory.forget(&mut active);
            self.keep_spare(active, key);
        }
        self.leaving.push(client.transport);
        if !self.logs.is_waiting() {
            self.part_with_clients();
        }
    }

    /// TLS of this client that broke after its handshake is told of, and explains its end where no request does.
    fn broken_tls(&mut self, key: Key) -> Option<Parting> {
        let client = self.clients.at(key)?;
        let error = client.transport.take_failure()?;
        let between = client.phase == ClientPhase::Head && client.active.is_none();
        let reason = between.then(|| tls_reason(&error));
        let phase = early_phase(client);
        let text = format!("SSL_read() failed (SSL: {error})");
        self.log_client(key, Level::Info, &text, reason);
        reason.map(|reason| Parting::early(phase, reason))
    }

    /// The same without waiting for the log, where nothing is written of it: its descriptor is free at once.
    pub(crate) fn close_silent(&mut self, key: Key, parting: Parting) {
        self.close_client(key, parting);
        if let Some(mut transport) = self.leaving.pop() {
            transport.part(&mut self.buffers);
        }
    }

    /// Closes the connections of clients that were ended in this turn. Their log lines are in the files by then: who has
    /// seen the end of its connection finds its request in the log, as with nginx.
    pub(crate) fn part_with_clients(&mut self) {
        for mut transport in self.leaving.drain(..) {
            transport.part(&mut self.buffers);
        }
    }

    /// Puts a client into the run queue once.
    pub(crate) fn enqueue_client(&mut self, key: Key) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        match client.active {
            Some(active) if client.phase == ClientPhase::Exchange => self.enqueue_exchange(active),
            _ if !client.queued => {
                client.queued = true;
                let token = key.token(Kind::Client);
                if client.phase == ClientPhase::Handshake {
                    self.handshakes.push_back(token);
                } else {
                    self.queue.push_back(token);
                }
            }
            _ => {}
        }
    }
}

/// What came of parsing.
enum HeadProgress {
    Partial,
    Started,
    Gone,
}

/// Exchanges kept for reuse with their small allocations.
const SPARE_MAX: usize = 256;
/// What their allocations may take.
const SPARE_BYTES_MAX: usize = 16 * 1024;
/// Reads per visit of a lingering connection.
const LINGER_READS: usize = 8;

impl Active {
    /// Sets up the request body once its framing is known.
    fn begin_body(&mut self) {
        let head = &self.exchange.request.head;
        self.request.decoder = kp_http::BodyDecoder::new(head.framing);
        self.request.owes_continue = head.expect_continue && head.framing != kp_http::Framing::None;
        if matches!(
            head.framing,
            kp_http::Framing::None | kp_http::Framing::Length(0)
        ) {
            self.request.stage = RequestStage::Done;
            self.request.whole = true;
        }
    }

    /// Length of the body, if all of it is in what came with its head.
    fn whole_body_in(&self, input: &[u8]) -> Option<usize> {
        let mut decoder = self.request.decoder.clone();
        let (mut rest, mut length) = (input, 0);
        while let Ok(piece) = decoder.decode(rest) {
            length += piece.data.len();
            if piece.done {
                return Some(length);
            }
            if piece.consumed == 0 {
                break;
            }
            rest = rest.get(piece.consumed..).unwrap_or_default();
        }
        None
    }
}
