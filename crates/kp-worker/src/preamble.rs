//! The PROXY header in front of a client's connection (`listen … proxy_protocol`), and the one that upstreams get.
//!
//! A client's header is looked at where it lies, in the socket, and taken out of it once it is whole: what follows is TLS or
//! HTTP, as if it had come first. It has `client_header_timeout` from the accept. Where the server says whose word it takes
//! (`set_real_ip_from`) nobody else is listened to.

use crate::active::Active;
use crate::client::ClientPhase;
use crate::early::Parting;
use crate::jobs::errno_text;
use crate::reactor::Worker;
use crate::secure::Secure;
use crate::token::Key;
use crate::transport::{Sent, Transport};
use kp_config::model::Level;
use kp_http::{PROXY_HEADER_MAX, ProxyHeader, ProxyHeaderError, ProxyPreamble};
use kp_proxy::{Cause, Failure, Phase, Reason};
use kp_shm::Counter;
use std::io::ErrorKind;
use std::rc::Rc;

/// EPIPE: what is said of a connection that does not even take a header.
const BROKEN_PIPE: i32 = 32;

impl Worker {
    /// A client that just came, and whose word about others is not taken, is not waited for.
    pub(crate) fn refuse_distrusted(&mut self, key: Key) {
        let Some(client) = self.clients.peek(key) else {
            return;
        };
        let root = self.fronts.at(client, &self.listeners).root;
        let real_ip = self.location(root).real_ip.as_ref();
        let from = client.remote.address().map(|remote| remote.ip());
        if real_ip.is_some_and(|real_ip| !real_ip.trusts(from)) {
            let text = "client is not trusted (set_real_ip_from) while reading PROXY protocol";
            self.end_early(key, Reason::ProxyUntrusted, Level::Error, text);
        }
    }

    /// Takes a client's header once all of it is there.
    pub(crate) fn read_preamble(&mut self, key: Key) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        if !client.transport.readable {
            return;
        }
        self.scratch.clear();
        let fd = &client.transport.fd;
        match kp_sys::io::peek_into(fd, &mut self.scratch, PROXY_HEADER_MAX) {
            Ok(0) => return self.preamble_unsent(key, "client closed connection"),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                client.transport.readable = false;
                return;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                return self.enqueue_client(key);
            }
            Err(error) => {
                let text = format!("recv() failed ({})", errno_text(&error));
                return self.preamble_unsent(key, &text);
            }
        }
        match ProxyHeader::read(&self.scratch) {
            Ok(ProxyPreamble::Whole(length, header)) => self.take_preamble(key, length, header),
            Ok(ProxyPreamble::Partial) if !client.transport.ending => {
                // More of it is an event of its own.
                client.transport.readable = false;
            }
            Ok(ProxyPreamble::Partial) => {
                self.preamble_broken(key, ProxyHeaderError::Broken, Reason::ProxyHeaderCut);
            }
            Err(error @ ProxyHeaderError::Missing) => {
                self.preamble_broken(key, error, Reason::ProxyHeaderMissing);
            }
            Err(error) => self.preamble_broken(key, error, Reason::ProxyHeaderBroken),
        }
    }

    /// The header is there: what comes next begins.
    fn take_preamble(&mut self, key: Key, length: usize, header: Option<ProxyHeader>) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        self.scratch.clear();
        let taken = kp_sys::io::recv_into(&client.transport.fd, &mut self.scratch, length);
        if taken.ok() != Some(length) {
            return self.preamble_cut(key, Reason::ProxyHeaderCut, "recv() failed");
        }
        self.counters.add(Counter::ClientBytesIn, length as u64);
        client.proxied = header.map(Rc::new);
        let listening = &self.listeners[usize::from(client.listener)];
        if !listening.tls {
            client.phase = ClientPhase::Head;
            self.counters.decrement(Counter::ConnectionsHandshaking);
            return self.read_head(key);
        }
        let front = self.fronts.of(listening.server);
        client.phase = ClientPhase::Handshake;
        client.transport.secure = Some(Box::new(Secure::accepting()));
        self.memory.tls_connections += 1;
        if self.drain.is_none() {
            client.deadline_ms = client.accepted_ms + front.handshake_timeout_ms;
        }
        // Also while draining: it may be the end of the grace at which the header was found.
        self.wheel.arm(client.timer, client.deadline_ms);
        self.enqueue_client(key);
    }

    /// A client's header has had its time. While draining, that ends with a read that says "nothing".
    pub(crate) fn preamble_timeout(&mut self, key: Key) {
        let now_ms = self.clock.mono_ms;
        let draining = self.drain.is_some();
        let Some(client) = self.clients.at(key) else {
            return;
        };
        if client.deadline_ms > now_ms {
            return self.wheel.arm(client.timer, client.deadline_ms);
        }
        if draining {
            client.transport.ask();
            self.read_preamble(key);
            let client = self.clients.peek(key);
            if client.is_some_and(|client| client.phase == ClientPhase::Preamble) {
                self.close_client(key, Parting::InOrder);
            }
            return;
        }
        self.counters.increment(Counter::TimeoutsClientHeader);
        self.scratch.clear();
        let begun = kp_sys::io::peek_into(&client.transport.fd, &mut self.scratch, 1);
        let reason = match begun {
            Ok(1..) => Reason::ProxyHeaderTimeout,
            _ => Reason::ClientSilent,
        };
        self.preamble_cut(key, reason, "client timed out (110: Connection timed out)");
    }

    fn preamble_cut(&mut self, key: Key, reason: Reason, what: &str) {
        let text = format!("{what} while reading PROXY protocol");
        self.end_early(key, reason, Level::Info, &text);
    }

    /// A client left before a byte of its header was read: it looked whether the port is open, as load balancers do.
    fn preamble_unsent(&mut self, key: Key, what: &str) {
        let text = format!("{what} while reading PROXY protocol");
        self.log_client(key, Level::Info, &text, None);
        self.close_client(key, Parting::InOrder);
    }

    /// nginx's sentences about headers that are none. What lies there is in `scratch`.
    fn preamble_broken(&mut self, key: Key, error: ProxyHeaderError, reason: Reason) {
        let text = match error {
            ProxyHeaderError::Missing | ProxyHeaderError::Broken => {
                let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
                let end = self.scratch.iter().position(is_end);
                let line = self
                    .scratch
                    .get(..end.unwrap_or(usize::MAX).min(self.scratch.len()));
                format!(
                    "broken header: \"{}\"",
                    line.unwrap_or_default().escape_ascii()
                )
            }
            ProxyHeaderError::Version(version) => {
                format!("unknown PROXY protocol version: {version}")
            }
            ProxyHeaderError::TooLarge => "header is too large".to_owned(),
            ProxyHeaderError::Checksum => "wrong checksum".to_owned(),
        };
        let text = format!("{text} while reading PROXY protocol");
        self.end_early(key, reason, Level::Error, &text);
    }

    /// Says to an upstream who the client is, in front of everything else; `None`: that is done, or not asked for. A
    /// connection that just opened has room for so little, so one that does not take it all is of no use.
    pub(crate) fn introduce_client(
        &mut self,
        active: &mut Active,
        upstream: Key,
    ) -> Option<Failure> {
        self.location(active.exchange.location)
            .proxy
            .proxy_protocol?;
        let mut header = Vec::new();
        self.consult(active, |exchange, _, context| {
            kp_proxy::write_proxy_header(exchange, context, &mut header);
        });
        let upstream = self.upstreams.at(upstream)?;
        upstream.introduced = true;
        let errno = introduce(&mut upstream.transport, &header).err()?;
        Some(Failure::new(Phase::Connect, Cause::ConnectFailed(errno)))
    }
}

/// Sends a header, or says with which error it did not go out.
pub(crate) fn introduce(transport: &mut Transport, header: &[u8]) -> Result<(), i32> {
    match transport.write(header) {
        Sent::Bytes(count) if count == header.len() => Ok(()),
        Sent::Bytes(_) | Sent::Moved => Err(BROKEN_PIPE),
        Sent::Broken(errno) => Err(errno),
    }
}
