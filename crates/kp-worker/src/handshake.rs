//! TLS handshakes: those of clients before their first request, those with upstreams before the request is sent.
//!
//! Decides when a handshake goes on, and which virtual host a client's is done with. A signature or a key exchange costs as
//! much as many small requests, so handshakes wait in a queue of their own, of which a turn of the loop takes only a few: a
//! thousand of them at once must not hold up who is already here.

use crate::active::NEVER;
use crate::client::ClientPhase;
use crate::jobs::errno_text;
use crate::reactor::Worker;
use crate::secure::Shake;
use crate::token::{self, Key, Kind};
use crate::upstream::UpstreamPhase;
use kp_proxy::{Cause, ClientVerdict, Failure, Input, Phase, TlsFacts, TlsOffer};
use kp_shm::Counter;
use kp_tls::{ClientHello, Reason, TlsError, Verdict};
use std::io;

/// Handshakes that go one step in a turn: a third of a millisecond with P-256, one with RSA.
const STEPS_PER_TURN: usize = 4;
/// What a client gets to send its first request when its handshake ended while draining.
const FIRST_REQUEST_MS: u64 = 1000;

impl Worker {
    /// Lets a few of the waiting handshakes go on.
    pub(crate) fn run_handshakes(&mut self) {
        for _ in 0..STEPS_PER_TURN.min(self.handshakes.len()) {
            match self.handshakes.pop_front().and_then(token::parse) {
                Some((Kind::Client, key)) => self.serve_client(key),
                Some((Kind::Upstream, key)) => self.shake_upstream(key),
                _ => {}
            }
        }
    }

    /// Goes on with a client's handshake.
    pub(crate) fn shake_client(&mut self, key: Key) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        let shake = client.transport.shake(&mut client.input, &mut self.buffers);
        self.client_shaken(key, shake);
    }

    fn client_shaken(&mut self, key: Key, shake: Shake) {
        match shake {
            Shake::Hello(hello) => self.answer_client(key, &hello),
            Shake::Opened => self.client_opened(key),
            Shake::Blocked => {}
            Shake::Plain(bytes) => self.client_is_plain(key, bytes),
            Shake::Failed(error) => {
                self.client_unshaken(key, &format!("SSL_do_handshake() failed (SSL: {error})"));
            }
            Shake::Ended(errno) => {
                self.client_unshaken(key, &peer_closed(errno));
            }
        }
    }

    /// The client said which name it wants: its virtual host decides about certificate, protocols and verification.
    fn answer_client(&mut self, key: Key, hello: &ClientHello) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        let listener = &self.listeners[usize::from(client.listener)];
        let sni = hello.server_name.as_deref().map(str::as_bytes);
        let (asked, named) = self.program.handshake_server(listener.id, sni);
        // A host without a certificate of its own has its handshakes made by the default server.
        let own = self.config.http.servers[asked.index()].tls.is_some();
        let server = if own { asked } else { listener.server };
        let facts = TlsFacts {
            server,
            named,
            server_name: hello.server_name.clone(),
            offer: self.program.uses().tls_offer.then(|| offer_of(hello)),
            ..TlsFacts::default()
        };
        let mut alert = Vec::new();
        let accepted = match self.tls.server(server) {
            Some(server) => server.accept(&mut alert),
            None => Err(TlsError::Rejected),
        };
        let (transport, pool) = (&mut client.transport, &mut self.buffers);
        let shake = match accepted {
            Ok(session) => transport.answer_hello(session, facts, &mut client.input, pool),
            Err(error) => {
                transport.refuse_hello(&alert, pool);
                Shake::Failed(error)
            }
        };
        self.client_shaken(key, shake);
    }

    /// The handshake is over: the first request may be here already.
    fn client_opened(&mut self, key: Key) {
        let now_ms = self.clock.mono_ms;
        let Some(client) = self.clients.at(key) else {
            return;
        };
        let (tls, now_unix_s) = (&self.tls, self.clock.unix_ms / 1000);
        if let Some(secure) = client.transport.secure.as_deref_mut() {
            secure.complete_facts(|server, session| match tls.server(server) {
                Some(server) => verdict_of(server.verdict(session, now_unix_s)),
                None => ClientVerdict::None,
            });
            self.counters.increment(Counter::TlsHandshakes);
            if secure.is_resumed() {
                self.counters.increment(Counter::TlsHandshakesResumed);
            }
        }
        let front = self.fronts.at(client, &self.listeners);
        client.phase = ClientPhase::Head;
        client.deadline_ms = now_ms + front.head_timeout_ms;
        if let Some(drain) = &self.drain {
            let location = &self.config.http.locations[front.root.index()];
            let grace_ms = drain
                .idle_end_ms(location, now_ms)
                .max(now_ms + FIRST_REQUEST_MS);
            client.deadline_ms = client.deadline_ms.min(grace_ms);
        }
        self.wheel.arm(client.timer, client.deadline_ms);
        self.read_head(key);
    }

    /// The client speaks without TLS where TLS is spoken: its request is read, to be told so.
    fn client_is_plain(&mut self, key: Key, bytes: Vec<u8>) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        client.transport.secure = None;
        client.input = bytes;
        client.phase = ClientPhase::Head;
        let front = self.fronts.at(client, &self.listeners);
        client.deadline_ms = client.accepted_ms + front.head_timeout_ms;
        self.read_head(key);
    }

    /// A client's handshake came to nothing.
    fn client_unshaken(&mut self, key: Key, text: &str) {
        self.counters.increment(Counter::TlsHandshakesFailed);
        self.log_client(key, &format!("{text} while SSL handshaking"));
        self.close_client(key);
    }

    /// A handshake's time is up. While draining, the time of one that has not begun ends early, and with a read that says
    /// "nothing".
    pub(crate) fn handshake_timeout(&mut self, key: Key) {
        let now_ms = self.clock.mono_ms;
        let Some(client) = self.clients.at(key) else {
            return;
        };
        if client.deadline_ms > now_ms {
            return self.wheel.arm(client.timer, client.deadline_ms);
        }
        if self.drain.is_some() && client.transport.is_untouched() {
            client.transport.ask();
            client.deadline_ms = NEVER;
            self.shake_client(key);
            let untouched = self
                .clients
                .peek(key)
                .is_some_and(|client| client.transport.is_untouched());
            if untouched {
                self.close_client(key);
            }
            return;
        }
        self.counters.increment(Counter::TimeoutsClientHeader);
        self.client_unshaken(key, "client timed out (110: Connection timed out)");
    }

    /// Puts an upstream into the queue of handshakes once.
    pub(crate) fn enqueue_handshake(&mut self, key: Key) {
        if let Some(upstream) = self.upstreams.at(key)
            && let Some(secure) = upstream.transport.secure.as_deref_mut()
            && !std::mem::replace(&mut secure.queued, true)
        {
            self.handshakes.push_back(key.token(Kind::Upstream));
        }
    }

    /// Goes on with a handshake towards an upstream; its exchange is driven when it is over.
    fn shake_upstream(&mut self, key: Key) {
        let Some(upstream) = self.upstreams.at(key) else {
            return;
        };
        let Some(secure) = upstream.transport.secure.as_deref_mut() else {
            return;
        };
        secure.queued = false;
        if upstream.phase != UpstreamPhase::Handshake {
            return;
        }
        let begun = match secure.planned() {
            Some(partner) => Some(match self.tls.upstream(partner.identity) {
                Some(tls) => tls.connect(partner.peer, &String::from_utf8_lossy(&partner.tls.name)),
                None => Err(TlsError::NotOpen),
            }),
            None => None,
        };
        let shake = match begun {
            Some(Ok(session)) => upstream.transport.begin_shake(session, &mut self.buffers),
            Some(Err(error)) => Shake::Failed(error),
            None => upstream
                .transport
                .shake(&mut upstream.input, &mut self.buffers),
        };
        let active = upstream
            .active
            .and_then(|active| self.exchanges.lend(active));
        let Some(mut active) = active else {
            return;
        };
        let input = match shake {
            Shake::Blocked => {
                self.exchanges.restore(active.key, active);
                return;
            }
            Shake::Opened => self.upstream_opened(key),
            Shake::Failed(TlsError::Certificate(reason)) => {
                active.exchange.record.detail = Some(self.certificate_text(key, reason));
                Input::UpstreamFailed(Failure::new(Phase::Handshake, Cause::TlsVerify))
            }
            Shake::Failed(error) => {
                active.exchange.record.detail =
                    Some(format!("SSL_do_handshake() failed (SSL: {error})"));
                Input::UpstreamFailed(Failure::new(Phase::Handshake, Cause::TlsHandshake))
            }
            Shake::Ended(errno) => {
                active.exchange.record.detail = Some(peer_closed(errno));
                Input::UpstreamFailed(Failure::new(Phase::Handshake, Cause::TlsHandshake))
            }
            // Only a client's handshake reads a hello.
            Shake::Hello(_) | Shake::Plain(_) => {
                Input::UpstreamFailed(Failure::new(Phase::Handshake, Cause::Internal))
            }
        };
        self.drive_from(active, Some(input));
    }

    fn upstream_opened(&mut self, key: Key) -> Input {
        self.counters.increment(Counter::UpstreamTlsHandshakes);
        if let Some(upstream) = self.upstreams.at(key) {
            upstream.phase = UpstreamPhase::Busy;
            let session = upstream.transport.secure.as_deref();
            if session.is_some_and(|secure| secure.is_resumed()) {
                self.counters
                    .increment(Counter::UpstreamTlsHandshakesResumed);
            }
        }
        Input::Connected { reused: false }
    }

    /// nginx's sentence about a certificate that does not hold.
    fn certificate_text(&self, key: Key, reason: Reason) -> String {
        if reason == Reason::HostnameMismatch {
            let name = self
                .upstreams
                .peek(key)
                .and_then(|upstream| upstream.transport.secure.as_deref())
                .and_then(|secure| secure.partner.as_deref())
                .map(|partner| String::from_utf8_lossy(&partner.tls.name).into_owned())
                .unwrap_or_default();
            return format!("upstream SSL certificate does not match \"{name}\"");
        }
        format!(
            "upstream SSL certificate verify error: ({}:{})",
            reason.code(),
            reason.text()
        )
    }
}

fn offer_of(hello: &ClientHello) -> Box<TlsOffer> {
    Box::new(TlsOffer {
        ciphers: hello.ciphers.to_vec(),
        groups: hello.groups.to_vec(),
        signatures: hello.signature_schemes.to_vec(),
    })
}

fn verdict_of(verdict: Verdict) -> ClientVerdict {
    match verdict {
        Verdict::None => ClientVerdict::None,
        Verdict::Success => ClientVerdict::Success,
        Verdict::Failed(reason) => ClientVerdict::Failed {
            code: u16::try_from(reason.code()).unwrap_or(u16::MAX),
            reason: reason.text(),
        },
    }
}

fn peer_closed(errno: Option<i32>) -> String {
    let text = "peer closed connection in SSL handshake";
    match errno {
        Some(errno) => format!(
            "{text} ({})",
            errno_text(&io::Error::from_raw_os_error(errno))
        ),
        None => text.to_owned(),
    }
}
