//! TLS handshakes: those of clients before their first request, those with upstreams before the request is sent.
//!
//! Decides when a handshake goes on, and which virtual host a client's is done with. A signature or a key exchange costs as
//! much as many small requests, so handshakes wait in a queue of their own, of which a turn of the loop takes only a few: a
//! thousand of them at once must not hold up who is already here.

use crate::client::ClientPhase;
use crate::early::{Parting, tls_reason};
use crate::jobs::errno_text;
use crate::pairs::{Loaded, Needed};
use crate::reactor::Worker;
use crate::secure::{Secure, Shake};
use crate::token::{self, Key, Kind};
use crate::upstream::UpstreamPhase;
use kp_config::model::Level;
use kp_proxy::{Cause, ClientVerdict, Failure, Input, Phase, Reason, TlsFacts, TlsOffer};
use kp_shm::Counter;
use kp_tls::{ClientHello, Pair, TlsError, Verdict};
use std::io;

/// Handshakes that go one step in a turn: a third of a millisecond with P-256, one with RSA.
const STEPS_PER_TURN: usize = 4;
/// internal_error, fatal, in a record of its own (RFC 8446 §6.2).
const INTERNAL_ERROR: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 80];
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
        if self.drain.is_some() {
            // Its time was that of an idle connection as long as it was one.
            let front = self.fronts.at(client, &self.listeners);
            client.deadline_ms = client.accepted_ms + front.handshake_timeout_ms;
            self.wheel.arm(client.timer, client.deadline_ms);
        }
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
                let text = format!("SSL_do_handshake() failed (SSL: {error})");
                self.client_unshaken(key, tls_reason(&error), &text);
            }
            Shake::Ended(errno) => self.client_ended(key, errno),
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
        match self.client_pairs(key, &facts) {
            Needed::Here(pairs) => self.accept_client(key, facts, &pairs),
            Needed::Awaited => {
                if let Some(client) = self.clients.at(key) {
                    client.transport.wait_for_pairs(facts);
                }
            }
            Needed::Nameless => self.refuse_client(key, facts, "no certificate is named for it"),
        }
    }

    /// Begins the session of a client with the settings of its virtual host, and with these certificates beside its own.
    fn accept_client(&mut self, key: Key, facts: TlsFacts, pairs: &[Pair]) {
        let Some(client) = self.clients.at(key) else {
            return;
        };
        let mut alert = Vec::new();
        let accepted = match self.tls.server(facts.server) {
            Some(server) if pairs.is_empty() => server.accept(&mut alert),
            Some(server) => server.accept_with(pairs, &mut alert),
            None => Err(TlsError::NoCertificate),
        };
        let (transport, pool) = (&mut client.transport, &mut self.buffers);
        let shake = match accepted {
            Ok(session) => transport.answer_hello(session, facts, &mut client.input, pool),
            Err(error) => {
                transport.refuse_hello(facts, &alert, pool);
                Shake::Failed(error)
            }
        };
        self.client_shaken(key, shake);
    }

    /// Certificates for a client came.
    pub(crate) fn client_pairs_loaded(&mut self, key: Key, loaded: Loaded) {
        let waiting = self.clients.at(key).and_then(|client| {
            let secure = client.transport.secure.as_deref_mut()?;
            secure.stop_waiting()
        });
        // A client that left meanwhile has no use for them.
        let Some(facts) = waiting else {
            return;
        };
        match self.keep_client_pairs(facts.server, loaded) {
            Ok(pairs) => self.accept_client(key, facts, &pairs),
            Err(why) => self.refuse_client(key, facts, &why),
        }
    }

    /// There is no certificate for a client, through no fault of its own.
    fn refuse_client(&mut self, key: Key, facts: TlsFacts, why: &str) {
        if let Some(client) = self.clients.at(key) {
            client
                .transport
                .refuse_hello(facts, &INTERNAL_ERROR, &mut self.buffers);
        }
        self.counters.increment(Counter::TlsHandshakesFailed);
        let text = format!("{why} while SSL handshaking");
        self.end_early(key, Reason::TlsNoCertificate, Level::Error, &text);
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
        self.counters.decrement(Counter::ConnectionsHandshaking);
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
        let tls = client.transport.forget_tls(&mut self.buffers);
        client.transport.secure = None;
        self.memory.tls_connections -= u64::from(tls);
        client.input = bytes;
        client.phase = ClientPhase::Head;
        self.counters.decrement(Counter::ConnectionsHandshaking);
        let front = self.fronts.at(client, &self.listeners);
        client.deadline_ms = client.accepted_ms + front.head_timeout_ms;
        self.read_head(key);
    }

    /// A client's handshake came to nothing.
    fn client_unshaken(&mut self, key: Key, reason: Reason, text: &str) {
        self.counters.increment(Counter::TlsHandshakesFailed);
        let text = format!("{text} while SSL handshaking");
        self.end_early(key, reason, Level::Info, &text);
    }

    /// A client left within its handshake. One that has sent nothing looked whether the port is open, as load balancers do.
    fn client_ended(&mut self, key: Key, errno: Option<i32>) {
        let Some(client) = self.clients.peek(key) else {
            return;
        };
        let text = peer_closed(errno);
        if !client.transport.is_untouched() {
            return self.client_unshaken(key, Reason::TlsCut, &text);
        }
        self.counters.increment(Counter::TlsHandshakesFailed);
        let text = format!("{text} while SSL handshaking");
        self.log_client(key, Level::Info, &text, None);
        self.close_client(key, Parting::InOrder);
    }

    /// A client's handshake has had its time. While draining, the time of one that has not begun ends early, and with a read that says
    /// "nothing".
    pub(crate) fn client_handshake_timeout(&mut self, key: Key) {
        let now_ms = self.clock.mono_ms;
        let Some(client) = self.clients.at(key) else {
            return;
        };
        if client.deadline_ms > now_ms {
            return self.wheel.arm(client.timer, client.deadline_ms);
        }
        if self.drain.is_some() && client.transport.is_untouched() {
            client.transport.ask();
            self.shake_client(key);
            let untouched = self
                .clients
                .peek(key)
                .is_some_and(|client| client.transport.is_untouched());
            if untouched {
                self.close_client(key, Parting::InOrder);
            }
            return;
        }
        self.counters.increment(Counter::TimeoutsClientHeader);
        let reason = if client.transport.is_untouched() {
            Reason::TlsSilent
        } else {
            Reason::TlsTimeout
        };
        self.client_unshaken(key, reason, "client timed out (110: Connection timed out)");
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
        if secure.is_planned() {
            return self.begin_upstream(key);
        }
        let shake = upstream
            .transport
            .shake(&mut upstream.input, &mut self.buffers);
        self.upstream_shaken(key, shake);
    }

    /// Begins the handshake with an upstream, once its certificate is there if variables name one.
    fn begin_upstream(&mut self, key: Key) {
        let planned = self.upstreams.at(key).and_then(|upstream| {
            let secure = upstream.transport.secure.as_deref_mut()?;
            secure.partner.take()
        });
        let Some(partner) = planned else {
            return;
        };
        let needed = self.upstream_pair(key, &partner);
        if let Some(upstream) = self.upstreams.at(key)
            && let Some(secure) = upstream.transport.secure.as_deref_mut()
        {
            secure.partner = Some(partner);
            secure.queued = matches!(needed, Needed::Awaited);
        }
        match needed {
            Needed::Here(pairs) => self.greet_upstream(key, pairs.first()),
            Needed::Awaited => {}
            Needed::Nameless => self.upstream_shaken(key, Shake::Failed(TlsError::NotOpen)),
        }
    }

    fn greet_upstream(&mut self, key: Key, pair: Option<&Pair>) {
        let Some(upstream) = self.upstreams.at(key) else {
            return;
        };
        let Some(secure) = upstream.transport.secure.as_deref_mut() else {
            return;
        };
        secure.queued = false;
        let Some(partner) = secure.partner.as_deref() else {
            return;
        };
        let name = String::from_utf8_lossy(&partner.tls.name);
        let session = match (self.tls.upstream(partner.identity), pair) {
            (Some(tls), Some(pair)) => tls.connect_with(pair, partner.peer, &name),
            (Some(tls), None) => tls.connect(partner.peer, &name),
            (None, _) => Err(TlsError::NotOpen),
        };
        let shake = match session {
            Ok(session) => upstream.transport.begin_shake(session, &mut self.buffers),
            Err(error) => Shake::Failed(error),
        };
        self.upstream_shaken(key, shake);
    }

    /// The certificate for an upstream came.
    pub(crate) fn upstream_pair_loaded(&mut self, key: Key, loaded: Loaded) {
        let identity = self
            .upstreams
            .peek(key)
            .filter(|upstream| upstream.phase == UpstreamPhase::Handshake)
            .and_then(|upstream| Some(upstream.transport.partner()?.identity));
        let Some(identity) = identity else {
            return;
        };
        match self.keep_upstream_pair(identity, loaded) {
            Ok(pairs) => self.greet_upstream(key, pairs.first()),
            Err(why) => self.upstream_failed(key, Cause::OwnCertificate, why),
        }
    }

    fn upstream_shaken(&mut self, key: Key, shake: Shake) {
        match shake {
            Shake::Blocked => {}
            Shake::Opened => self.upstream_opened(key),
            Shake::Failed(TlsError::Certificate(reason)) => {
                let text = self.certificate_text(key, reason);
                self.upstream_failed(key, Cause::TlsVerify, text);
            }
            Shake::Failed(error) => {
                let text = format!("SSL_do_handshake() failed (SSL: {error})");
                self.upstream_failed(key, Cause::TlsHandshake, text);
            }
            Shake::Ended(errno) => {
                self.upstream_failed(key, Cause::TlsHandshake, peer_closed(errno));
            }
            // Only a client's handshake reads a hello.
            Shake::Hello(_) | Shake::Plain(_) => {
                self.upstream_failed(key, Cause::Internal, String::new());
            }
        }
    }

    fn upstream_failed(&mut self, key: Key, cause: Cause, detail: String) {
        let active = self
            .upstreams
            .peek(key)
            .and_then(|upstream| upstream.active)
            .and_then(|active| self.exchanges.lend(active));
        if let Some(mut active) = active {
            active.exchange.record.detail = Some(detail);
            let failure = Failure::new(Phase::Handshake, cause);
            self.drive_from(active, Some(Input::UpstreamFailed(failure)));
        }
    }

    fn upstream_opened(&mut self, key: Key) {
        self.counters.increment(Counter::UpstreamTlsHandshakes);
        let Some(upstream) = self.upstreams.at(key) else {
            return;
        };
        upstream.phase = UpstreamPhase::Busy;
        let secure = upstream.transport.secure.as_deref();
        if secure.is_some_and(Secure::is_resumed) {
            self.counters
                .increment(Counter::UpstreamTlsHandshakesResumed);
        }
        let active = upstream.active;
        if let Some(active) = active.and_then(|active| self.exchanges.lend(active)) {
            self.drive_from(active, Some(Input::Connected { reused: false }));
        }
    }

    /// nginx's sentence about a certificate that does not hold.
    fn certificate_text(&self, key: Key, reason: kp_tls::Reason) -> String {
        if reason == kp_tls::Reason::HostnameMismatch {
            let name = self
                .upstreams
                .peek(key)
                .and_then(|upstream| upstream.transport.partner())
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
