//! What an exchange may know of its client's TLS connection, which the driver fills in once per connection, after the
//! handshake; and what it says about TLS with its upstream.

use crate::vars::Evaluation;
use crate::{Context, Exchange, Program};
use kp_config::model::{ServerId, TlsFile, TlsIdentityId};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

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

/// How TLS is spoken with the upstream of a request, evaluated together with its `proxy_pass`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The configuration's settings; `None`: plain HTTP.
    pub identity: Option<TlsIdentityId>,
    /// The name that is asked for and verified: without port, an IPv6 address without brackets. It may be an address, which
    /// is no SNI (RFC 6066 §3), and it may be empty, which is none at all.
    pub name: Vec<u8>,
    /// The evaluated `proxy_ssl_certificate`, where it has variables (else empty): a path, or the text of `data:`.
    pub certificate: Vec<u8>,
    /// The same of `proxy_ssl_certificate_key`.
    pub key: Vec<u8>,
}

impl UpstreamTls {
    pub(crate) fn clear(&mut self) {
        self.identity = None;
        self.name.clear();
        self.certificate.clear();
        self.key.clear();
    }
}

/// A certificate or key whose place was evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TlsSource {
    /// A file, absolute.
    File(PathBuf),
    /// The PEM text itself.
    Text(Vec<u8>),
}

/// Where a certificate or key is, for this exchange; `None`: its variables gave nothing. During a handshake there is no
/// request yet: an exchange with its connection's facts is enough, other variables have no value.
pub fn tls_source(
    file: &TlsFile,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> Option<TlsSource> {
    let mut text = Vec::new();
    match file {
        TlsFile::Path(path) => Some(TlsSource::File(path.clone())),
        TlsFile::Template { path, directory } => {
            Evaluation::new(program, context).template(path, exchange, &mut text);
            if text.is_empty() {
                return None;
            }
            let path = PathBuf::from(std::ffi::OsString::from_vec(text));
            Some(TlsSource::File(directory.join(path)))
        }
        TlsFile::Data(template) => {
            Evaluation::new(program, context).template(template, exchange, &mut text);
            (!text.is_empty()).then_some(TlsSource::Text(text))
        }
    }
}

/// Evaluates what the location says about TLS with its upstream. `$proxy_host` is known by now.
pub(crate) fn upstream_tls(exchange: &mut Exchange, program: &Program, context: &Context<'_>) {
    let http = &context.config.http;
    let location = http.locations.get(exchange.location.index());
    let Some(tls) = location.and_then(|location| location.proxy.tls.as_ref()) else {
        return;
    };
    let Some(identity) = http.tls_identities.get(tls.identity.index()) else {
        return;
    };
    let mut evaluated = std::mem::take(&mut exchange.request.upstream_tls);
    evaluated.clear();
    evaluated.identity = Some(tls.identity);
    match &tls.name {
        Some(name) => {
            Evaluation::new(program, context).template(name, exchange, &mut evaluated.name);
        }
        None => evaluated
            .name
            .extend_from_slice(&exchange.request.proxy_host),
    }
    without_port(&mut evaluated.name);
    if let Some(pair) = &identity.certificate {
        for (file, out) in [
            (&pair.certificate.value, &mut evaluated.certificate),
            (&pair.key.value, &mut evaluated.key),
        ] {
            if let TlsFile::Path(_) = file {
                continue;
            }
            match tls_source(file, exchange, program, context) {
                Some(TlsSource::File(path)) => out.extend_from_slice(path.as_os_str().as_bytes()),
                Some(TlsSource::Text(text)) => *out = text,
                None => {}
            }
        }
    }
    exchange.request.upstream_tls = evaluated;
}

/// Leaves the host of `host:port`, and the inside of the brackets of an IPv6 address.
fn without_port(name: &mut Vec<u8>) {
    if name.first() == Some(&b'[')
        && let Some(end) = memchr::memchr(b']', name)
    {
        name.truncate(end);
        name.remove(0);
    } else if let Some(end) = memchr::memchr(b':', name) {
        name.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_port() {
        let host = |text: &str| {
            let mut name = text.as_bytes().to_vec();
            without_port(&mut name);
            String::from_utf8(name).expect("text")
        };
        assert_eq!(host("a.test:8443"), "a.test");
        assert_eq!(host("a.test"), "a.test");
        assert_eq!(host("[::1]:443"), "::1");
        assert_eq!(host("[::1]"), "::1");
        assert_eq!(host(""), "");
    }
}
