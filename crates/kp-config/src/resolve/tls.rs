//! TLS with clients: what a server says, what it inherits and what holds by default become one [`TlsServer`], and every
//! listener with `ssl` has a certificate to show.

use super::or;
use crate::draft::{Reader, ServerDraft, TlsCommands, TlsDraft, TlsFileDraft};
use crate::model::{
    CipherSuite, ClientVerification, Http, NamedGroup, ServerId, TlsCertificate, TlsProtocols,
    TlsServer, VerifyMode,
};
use crate::span::{Span, Spanned};
use std::time::Duration;

/// The most plaintext of a record (RFC 8446 §5.1).
const RECORD_MAX: usize = 1 << 14;
/// Less is more framing than content.
const RECORD_MIN: usize = 64;

/// What the checks of the whole need to know of a server.
pub(super) struct Place {
    /// Its `listen … ssl`, or else its first `listen`, or where it was opened.
    listen: Span,
    /// Its own `ssl_certificate`, not an inherited one.
    certificate: Option<Span>,
    /// `ssl_verify_client` where it is not off, inherited or not.
    verify: Option<Span>,
}

impl Place {
    pub(super) fn of(server: &ServerDraft, above: &TlsDraft) -> Self {
        let with_tls = server.listens.iter().find(|listen| listen.tls);
        let listen = with_tls.or(server.listens.first());
        let verify = server.tls.verify_client.as_ref();
        let verify = verify.or(above.verify_client.as_ref());
        Self {
            listen: listen.map_or(server.span, |listen| listen.span),
            certificate: server.tls.certificates.as_ref().map(|list| list.span),
            verify: verify
                .filter(|mode| mode.value != VerifyMode::Off)
                .map(|mode| mode.span),
        }
    }
}

/// TLS of a server; `None`: it has no certificate of its own, and does not refuse handshakes either.
pub(super) fn server(
    draft: TlsDraft,
    header_timeout: Duration,
    reader: &mut Reader<'_>,
) -> Option<TlsServer> {
    let verification = verification(&draft);
    let reject_handshake = draft.reject_handshake.is_some_and(|flag| flag.value);
    let certificates = or(draft.certificates, Vec::new());
    if certificates.is_empty() && !reject_handshake {
        return None;
    }
    let certificates = pairs(certificates, or(draft.keys, Vec::new()), reader);
    check_trust(&verification, draft.verify_client.as_ref(), reader);
    let (protocols, suites) = suites(draft.protocols, draft.ciphers, draft.commands);
    let stapling = draft.stapling.filter(|flag| flag.value);
    if let Some(flag) = &stapling
        && draft.stapling_file.is_none()
    {
        reader.warn_once(
            flag.span,
            "\"ssl_stapling on\" changes nothing without \"ssl_stapling_file\"",
            "kp does not ask responders: a file has the response, and is read again with the certificate",
        );
    }
    Some(TlsServer {
        certificates,
        passwords: draft.passwords,
        reject_handshake,
        protocols,
        suites,
        groups: or(draft.groups, NamedGroup::DEFAULT.to_vec()),
        prefer_server_ciphers: or(draft.prefer_server_ciphers, false),
        buffer_size: or(draft.buffer_size, RECORD_MAX).clamp(RECORD_MIN, RECORD_MAX),
        handshake_timeout: or(draft.handshake_timeout, header_timeout),
        session_tickets: or(draft.session_tickets, true),
        ticket_keys: or(draft.ticket_keys, Vec::new()),
        session_timeout: or(draft.session_timeout, Duration::from_secs(300)),
        verification,
        stapling_file: draft.stapling_file.filter(|_| stapling.is_some()),
        certificate_cache: or(draft.certificate_cache, None),
        certificate_reload: or(draft.certificate_reload, false),
    })
}

/// What a server says about clients' certificates.
pub(super) fn verification(draft: &TlsDraft) -> ClientVerification {
    ClientVerification {
        mode: or(draft.verify_client.clone(), VerifyMode::Off),
        ca: draft.client_certificate.clone(),
        trusted: draft.trusted_certificate.clone(),
        depth: or(draft.verify_depth.clone(), 1),
        crl: draft.crl.clone(),
    }
}

/// Puts certificates and keys together, in order.
fn pairs(
    certificates: Vec<TlsFileDraft>,
    keys: Vec<TlsFileDraft>,
    reader: &mut Reader<'_>,
) -> Vec<TlsCertificate> {
    let mut keys = keys.into_iter();
    let mut pairs = Vec::with_capacity(certificates.len());
    for certificate in certificates {
        match keys.next() {
            Some(key) => pairs.push(TlsCertificate {
                certificate: certificate.file,
                key: key.file,
            }),
            None => no_key(&certificate, "ssl_certificate_key", reader),
        }
    }
    pairs
}

pub(super) fn no_key(certificate: &TlsFileDraft, directive: &str, reader: &mut Reader<'_>) {
    let message = format!(
        "no \"{directive}\" is defined for certificate \"{}\"",
        certificate.text
    );
    let hint = "each certificate has a key, in the same order; both may be in one file";
    reader.refuse(certificate.file.span, message, hint);
}

fn check_trust(
    verification: &ClientVerification,
    place: Option<&Spanned<VerifyMode>>,
    reader: &mut Reader<'_>,
) {
    let needed = matches!(verification.mode, VerifyMode::On | VerifyMode::Optional);
    if needed && verification.ca.is_none() && verification.trusted.is_none() {
        reader.refuse(
            place.map(|mode| mode.span).unwrap_or_default(),
            "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client",
            "name a file with the certificates that may vouch for clients",
        );
    }
}

/// The suites of both versions in order of preference, and the versions that have any.
pub(super) fn suites(
    protocols: Option<Spanned<TlsProtocols>>,
    ciphers: Option<Spanned<Vec<CipherSuite>>>,
    commands: Option<Spanned<TlsCommands>>,
) -> (TlsProtocols, Vec<CipherSuite>) {
    let protocols = or(protocols, TlsProtocols::default());
    let mut suites = Vec::new();
    if protocols.v13 {
        let stated = commands.and_then(|commands| commands.value.suites);
        suites.extend(stated.unwrap_or_else(|| CipherSuite::TLS13.to_vec()));
    }
    if protocols.v12 {
        suites.extend(or(ciphers, CipherSuite::TLS12.to_vec()));
    }
    (protocols, suites)
}

/// Leaves TLS to the servers that are at a listener with `ssl`, and sees to it that each such listener has certificates.
pub(super) fn check(http: &mut Http, places: &[Place], reader: &mut Reader<'_>) {
    let mut wanted = vec![false; http.servers.len()];
    for listener in http.listeners.iter().filter(|listener| listener.tls) {
        for id in &listener.servers {
            if let Some(wanted) = wanted.get_mut(id.index()) {
                *wanted = true;
            }
        }
        let tls = |id: ServerId| {
            http.servers
                .get(id.index())
                .and_then(|server| server.tls.as_ref())
        };
        // Others without a certificate show the default server's, unless that has none because it refuses handshakes.
        let lacking = match tls(listener.default_server) {
            Some(default) if !default.reject_handshake || !default.certificates.is_empty() => None,
            Some(_) => listener
                .servers
                .iter()
                .find(|id| tls(**id).is_none())
                .copied(),
            None => Some(listener.default_server),
        };
        if let Some(place) = lacking.and_then(|id| places.get(id.index())) {
            reader.refuse(
                place.listen,
                "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive",
                "a server that is reached with TLS needs \"ssl_certificate\" and \"ssl_certificate_key\"",
            );
        }
    }
    for ((server, place), wanted) in http.servers.iter_mut().zip(places).zip(wanted) {
        if wanted {
            // As in nginx the handshake asks for no certificate, which is then missed in every request.
            if let (None, Some(span)) = (&server.tls, place.verify) {
                let message = "\"ssl_verify_client\" needs \"ssl_certificate\" in the same server";
                let hint = "handshakes of a server without a certificate are the default server's, which decides what clients are asked for";
                reader.warning(span, message, hint);
            }
            continue;
        }
        server.tls = None;
        server.verification = ClientVerification::default();
        if let Some(span) = place.certificate {
            reader.warning(
                span,
                "\"ssl_certificate\" is not used: no \"listen\" of this server has \"ssl\"",
                "write `listen 443 ssl;`",
            );
        }
    }
}
