//! What TLS has against answering a request: plain HTTP at a port with TLS, a client without a good certificate, a virtual
//! host other than the one the handshake was made for.
//!
//! The handshake itself only asks for a certificate; a client that has none gets an answer it can read (nginx's 495, 496
//! and 497). A request may name any virtual host of the listener, but one that verifies clients relies on its own
//! handshake: for others it is misdirected (RFC 9110 §15.5.20).

use crate::failure::Cause;
use crate::tls::{ClientVerdict, TlsFacts};
use crate::{Context, Exchange};
use kp_config::model::{ClientVerification, Http, ServerId, VerifyMode};
use std::fmt::Write;

/// Why a request whose server was just chosen must not be answered; `None`: nothing is wrong.
pub(crate) fn objection(exchange: &mut Exchange, context: &Context<'_>) -> Option<Cause> {
    let http = &context.config.http;
    let listener = http
        .listeners
        .get(exchange.connection.listener.index())
        .filter(|listener| listener.tls)?;
    let Some(facts) = exchange.connection.tls.as_deref() else {
        return Some(Cause::PlainHttp);
    };
    let wanted = &http.servers.get(exchange.server.index())?.verification;
    if wanted.mode == VerifyMode::Off {
        return None;
    }
    // Without Host there is no name to be the same.
    let host = match exchange.request.head.host() {
        Some(_) => exchange.request.host.as_slice(),
        None => b"",
    };
    if !is_meant(facts, host) || !is_judged(http, listener.default_server, wanted, facts) {
        return Some(Cause::Misdirected);
    }
    match facts.client {
        ClientVerdict::None if wanted.mode == VerifyMode::On => Some(Cause::NoClientCertificate),
        ClientVerdict::Failed { code, reason } if !is_tolerated(facts, wanted.mode) => {
            let mut detail = String::new();
            // Writing to a string does not fail.
            let _ = write!(detail, "({code}:{reason})");
            exchange.record.detail = Some(detail);
            Some(Cause::ClientCertificate)
        }
        _ => None,
    }
}

/// Whether the host that is asked for is the one of the handshake. A handshake that named none of the listener's names says
/// nothing about it.
fn is_meant(facts: &TlsFacts, host: &[u8]) -> bool {
    if !facts.named {
        return true;
    }
    let name = facts.server_name.as_deref().unwrap_or_default();
    let name = name.strip_suffix('.').unwrap_or(name);
    name.as_bytes().eq_ignore_ascii_case(host)
}

/// Whether what was found out about the client's certificate holds under the settings that are asked for, too: the
/// handshake was made trusting the same, or there is no certificate.
fn is_judged(
    http: &Http,
    default_server: ServerId,
    wanted: &ClientVerification,
    facts: &TlsFacts,
) -> bool {
    if facts.client == ClientVerdict::None {
        return true;
    }
    // Without a certificate of its own a server has the default server's handshakes.
    let tls = |id: ServerId| http.servers.get(id.index())?.tls.as_ref();
    let under = tls(facts.server).or_else(|| tls(default_server));
    under.is_some_and(|tls| {
        let under = &tls.verification;
        under.depth == wanted.depth
            && under.ca == wanted.ca
            && under.trusted == wanted.trusted
            && under.crl == wanted.crl
    })
}

fn is_tolerated(facts: &TlsFacts, mode: VerifyMode) -> bool {
    mode == VerifyMode::OptionalNoCa && facts.client.is_unknown_issuer()
}
