//! What a handshake agreed on, for variables and logs.

use kp_config::tls::names;
use rustls::pki_types::CertificateDer;
use rustls::{CommonState, HandshakeKind, ProtocolVersion};

/// What is known after a handshake. Names are OpenSSL's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// `TLSv1.2` or `TLSv1.3`; empty before the handshake.
    pub protocol: &'static str,
    /// The cipher suite.
    pub cipher: &'static str,
    /// The group of the key exchange.
    pub curve: Option<&'static str>,
    /// The protocol chosen by ALPN.
    pub alpn: Option<&'a [u8]>,
    /// Whether an earlier session was resumed.
    pub reused: bool,
    /// What the peer showed, its own first, as DER. On a resumed session what it showed then.
    pub chain: &'a [CertificateDer<'static>],
}

impl<'a> Facts<'a> {
    pub(crate) fn of(connection: &'a CommonState) -> Self {
        let cipher = connection.negotiated_cipher_suite();
        let group = connection.negotiated_key_exchange_group();
        Self {
            protocol: match connection.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "",
            },
            cipher: cipher
                .and_then(|suite| names::cipher(suite.suite().into()))
                .unwrap_or_default(),
            curve: group.and_then(|group| names::group(group.name().into())),
            alpn: connection.alpn_protocol(),
            reused: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            chain: connection.peer_certificates().unwrap_or_default(),
        }
    }
}
