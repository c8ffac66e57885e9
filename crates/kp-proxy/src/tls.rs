//! What an exchange may know of its client's TLS connection. The driver fills it in once per connection, after the
//! handshake.

use kp_config::model::ServerId;

/// Facts of a TLS connection.
#[derive(Debug, Clone, Default)]
pub struct TlsFacts {
    /// The virtual host whose certificate and settings the handshake was made with.
    pub server: ServerId,
    /// Whether `server` was found by the name the client asked for (SNI); else it is the listener's default server.
    pub named: bool,
    /// The name the client asked for, lower case, as it came (`$ssl_server_name`).
    pub server_name: Option<Box<str>>,
    /// `TLSv1.2` or `TLSv1.3` (`$ssl_protocol`).
    pub protocol: &'static str,
    /// OpenSSL's name of the cipher suite (`$ssl_cipher`).
    pub cipher: &'static str,
    /// OpenSSL's name of the key exchange group (`$ssl_curve`); empty: none is known, as for a resumed session of TLS 1.2.
    pub curve: &'static str,
    /// OpenSSL's name of the signature algorithm the server signed with (`$ssl_sigalg`); empty: nothing was signed.
    pub signature: &'static str,
    /// The same of the client (`$ssl_client_sigalg`).
    pub client_signature: &'static str,
    /// The protocol that was agreed on by ALPN (`$ssl_alpn_protocol`).
    pub alpn: Option<Box<str>>,
    /// `$ssl_session_id`, as bytes.
    pub session_id: Box<[u8]>,
    /// `$ssl_session_reused`.
    pub reused: bool,
    /// What the client offered; kept only where a variable asks for it (see [`crate::Uses::tls_offer`]).
    pub offer: Option<Box<TlsOffer>>,
    /// What was found out about the client's certificate.
    pub client: ClientVerdict,
}

/// What a client offered in its hello.
#[derive(Debug, Clone, Default)]
pub struct TlsOffer {
    /// Numbers of cipher suites, in order (`$ssl_ciphers`).
    pub ciphers: Vec<u16>,
    /// Numbers of groups, in order (`$ssl_curves`).
    pub groups: Vec<u16>,
    /// Numbers of signature schemes, in order (`$ssl_sigalgs`).
    pub signatures: Vec<u16>,
}

/// What was found out about a client's certificate (`$ssl_client_verify`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientVerdict {
    /// There is none, or none was asked for.
    #[default]
    None,
    /// It is good.
    Success,
    /// It is not good, in OpenSSL's words.
    Failed {
        /// OpenSSL's number of the error (`X509_V_ERR_…`).
        code: u16,
        /// Its words.
        reason: &'static str,
    },
}

impl ClientVerdict {
    /// Whether a certificate that failed is nevertheless good enough for `ssl_verify_client optional_no_ca`: it is only not
    /// known who vouches for it.
    pub fn is_unknown_issuer(self) -> bool {
        // Self-signed, self-signed in the chain, no issuer found locally, leaf not verified, not trusted: as nginx.
        matches!(
            self,
            Self::Failed {
                code: 18 | 19 | 20 | 21 | 27,
                ..
            }
        )
    }
}

/// A part of the client's certificate that a variable asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificate {
    /// `$ssl_client_raw_cert`: PEM.
    Pem,
    /// `$ssl_client_s_dn`: RFC 2253.
    Subject,
    /// `$ssl_client_i_dn`: RFC 2253.
    Issuer,
    /// `$ssl_client_s_dn_legacy`: `/C=…/CN=…`.
    LegacySubject,
    /// `$ssl_client_i_dn_legacy`
    LegacyIssuer,
    /// `$ssl_client_serial`: upper-case hexadecimal.
    Serial,
    /// `$ssl_client_fingerprint`: SHA-1, lower-case hexadecimal.
    Fingerprint,
    /// `$ssl_client_v_start`: `Nov 30 01:02:03 2026 GMT`.
    Start,
    /// `$ssl_client_v_end`
    End,
    /// `$ssl_client_v_remain`: whole days that are left; 0 once it has expired.
    DaysLeft,
}
