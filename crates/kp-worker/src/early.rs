//! Ends of client connections: none without a reason, unless that is how connections end.
//!
//! Decides where an end is told of: requests have their log line and the reason in it; what has no request is counted,
//! stands among the last ends, and has a line of the error log. What the reasons are is `kp_proxy`'s.

use crate::client::{Client, ClientPhase};
use crate::reactor::Worker;
use crate::token::Key;
use kp_config::model::{Level, ServerId};
use kp_proxy::{Cause, EarlyEnd, Failure, Phase, Reason};
use kp_shm::{Entry, SeriesRow};
use kp_tls::{TlsError, Trouble};
use std::net::SocketAddr;

/// How long a worker that ends at once writes lines about what it cuts: a master waits less than a second for it.
const STOP_MS: u64 = 200;

/// How a client's connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parting {
    /// As connections do: with an exchange that has its log line, between requests, before a byte came.
    InOrder,
    /// Without a request that could say why.
    Early(EarlyEnd),
}

impl Parting {
    pub(crate) fn early(phase: Phase, reason: Reason) -> Self {
        Self::Early(EarlyEnd::new(phase, reason))
    }
}

/// What a client without an exchange in progress is about to do.
pub(crate) fn early_phase(client: &Client) -> Phase {
    match client.phase {
        ClientPhase::Preamble => Phase::ProxyHeader,
        ClientPhase::Handshake => Phase::ClientHandshake,
        _ if client.active.is_some() => Phase::RequestHead,
        _ => Phase::RequestLine,
    }
}

/// Whether something of a request head is there. Blank lines in front of one are nothing.
fn has_part_of_head(client: &Client) -> bool {
    client.phase == ClientPhase::Head && client.active.is_some() && !client.input.is_empty()
}

/// Why TLS with a client came to its end.
pub(crate) fn tls_reason(error: &TlsError) -> Reason {
    match error.trouble() {
        Trouble::Version => Reason::TlsVersion,
        Trouble::Cipher => Reason::TlsCipher,
        Trouble::Group => Reason::TlsGroup,
        Trouble::Signature => Reason::TlsSignature,
        Trouble::Application => Reason::TlsApplication,
        Trouble::Outdated => Reason::TlsOutdated,
        Trouble::Refused => Reason::TlsRefused,
        Trouble::NoCertificate => Reason::TlsNoCertificate,
        Trouble::Untrusted => Reason::TlsUntrusted,
        Trouble::Expired => Reason::TlsExpired,
        Trouble::BadCertificate => Reason::TlsCertificateRefused,
        Trouble::Alert => Reason::TlsAlert,
        Trouble::PeerCertificate => Reason::TlsClientCertificate,
        Trouble::Malformed => Reason::TlsMalformed,
        Trouble::Violation => Reason::TlsViolation,
        Trouble::Own => Reason::Internal,
    }
}

impl Worker {
    /// Ends a connection that has no request, and says why.
    pub(crate) fn end_early(&mut self, key: Key, reason: Reason, level: Level, text: &str) {
        let Some(client) = self.clients.peek(key) else {
            return;
        };
        let phase = early_phase(client);
        self.log_client(key, level, text, Some(reason));
        self.close_client(key, Parting::early(phase, reason));
    }

    /// Counts the end of a client's connection, unless that is how connections end.
    pub(crate) fn note_parting(&mut self, key: Key, parting: Parting) {
        let Some(client) = self.clients.peek(key) else {
            return;
        };
        let end = match parting {
            Parting::Early(end) => end,
            Parting::InOrder if self.is_explained(client) => return,
            Parting::InOrder => {
                debug_assert!(false, "an end without a reason: {:?}", client.phase);
                EarlyEnd::new(early_phase(client), Reason::Internal)
            }
        };
        let (server, serial) = (self.server_of(client), client.serial);
        self.measure_early(end, server, serial);
    }

    /// Whether nothing is left to be said about a client: its request, if there is one, has its log line.
    fn is_explained(&self, client: &Client) -> bool {
        if client.phase == ClientPhase::Head {
            return !has_part_of_head(client);
        }
        let active = client.active.and_then(|active| self.exchanges.peek(active));
        active.is_none_or(|active| active.logged)
    }

    /// The virtual host of a client before there is a request.
    fn server_of(&self, client: &Client) -> ServerId {
        let asked = client.transport.facts().map(|facts| facts.server);
        asked.unwrap_or(self.listeners[usize::from(client.listener)].server)
    }

    /// Ends a connection that was just accepted and never became a client.
    pub(crate) fn turn_away(
        &self,
        listener: u16,
        remote: Option<SocketAddr>,
        reason: Reason,
        text: Option<&str>,
    ) {
        let server = self.listeners[usize::from(listener)].server;
        if let Some(text) = text {
            self.log_stranger(server, remote, reason, text);
        }
        self.measure_early(EarlyEnd::new(Phase::Accept, reason), server, 0);
    }

    fn measure_early(&self, end: EarlyEnd, server: ServerId, serial: u64) {
        self.counters.count_reason(end.reason.index());
        if !end.is_told() {
            return;
        }
        let entry = Entry {
            unix_ms: self.clock.unix_ms,
            reason: end.reason.index(),
            phase: end.phase.index(),
            closed_by: end.closed_by().number(),
            status: 0,
            attempt: 0,
            server: self.servers.get(server.index()).map(SeriesRow::index),
            peer: None,
            serial,
            pid: self.pid,
        };
        self.shm.recent().push(self.row, &entry);
    }

    /// The worker ends before this client's connection does: a request gets its log line.
    pub(crate) fn explain_cut(&mut self, key: Key, cause: Cause) -> Parting {
        let Some(client) = self.clients.peek(key) else {
            return Parting::InOrder;
        };
        let begun = match client.phase {
            ClientPhase::Handshake => !client.transport.is_untouched(),
            ClientPhase::Head => has_part_of_head(client),
            ClientPhase::Preamble | ClientPhase::Exchange | ClientPhase::Linger => false,
        };
        if begun {
            let failure = Failure::new(early_phase(client), cause);
            return Parting::early(failure.phase, failure.reason());
        }
        let in_progress = client
            .active
            .filter(|_| client.phase == ClientPhase::Exchange);
        if let Some(mut active) = in_progress.and_then(|active| self.exchanges.lend(active)) {
            self.consult(&mut active, |exchange, _, context| {
                exchange.end_attempt(context);
                exchange.explain_shutdown(cause);
            });
            self.log_once(&mut active);
            self.exchanges.restore(active.key, active);
        }
        Parting::InOrder
    }

    /// The worker ends at once: the requests that this cuts have their log lines, as far as there is time for them.
    pub(crate) fn explain_stop(&mut self) {
        let until_ms = kp_sys::clock::monotonic_ms() + STOP_MS;
        let mut clients = self.clients.keys().into_iter();
        for key in clients.by_ref() {
            if let parting @ Parting::Early(_) = self.explain_cut(key, Cause::FastStop) {
                self.note_parting(key, parting);
            }
            if kp_sys::clock::monotonic_ms() >= until_ms {
                break;
            }
        }
        let untold = clients.len();
        if untold > 0 {
            log::warn!("there was no time to log the requests of {untold} connections");
        }
    }
}
