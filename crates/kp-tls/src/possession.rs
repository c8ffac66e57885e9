//! The part of verification that belongs into the handshake: does the peer have the key of the certificate it shows
//! (RFC 8446 §4.4.3). For clients it is all the handshake asks, because what comes of a bad certificate is an answer in
//! HTTP; for upstreams the chain and the name are judged too, before a byte of a request is sent.
//!
//! Only the key of a certificate counts here. webpki reads certificates of version 3 only, but many that were made by hand
//! are of version 1, and whoever does not verify does not care.

use crate::certificate::Certificate;
use crate::reason::Reason;
use crate::trust::{Trust, Use};
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, ServerName, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use std::sync::Arc;

type Signed = rustls::client::danger::HandshakeSignatureValid;

/// Asks clients for a certificate.
#[derive(Debug)]
pub(crate) struct AskClient {
    names: Vec<DistinguishedName>,
    possession: Possession,
}

impl AskClient {
    /// `names`: whom the server trusts.
    pub(crate) fn new(names: Vec<DistinguishedName>, provider: &CryptoProvider) -> Self {
        Self {
            names,
            possession: Possession::new(provider),
        }
    }
}

impl ClientCertVerifier for AskClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<Signed, Error> {
        self.possession.tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<Signed, Error> {
        self.possession.tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.possession.algorithms.supported_schemes()
    }
}

/// Verifies upstreams; without trust only that they have the key.
#[derive(Debug)]
pub(crate) struct VerifyUpstream {
    trust: Option<Arc<Trust>>,
    possession: Possession,
}

impl VerifyUpstream {
    pub(crate) fn new(trust: Option<Arc<Trust>>, provider: &CryptoProvider) -> Self {
        Self {
            trust,
            possession: Possession::new(provider),
        }
    }
}

impl ServerCertVerifier for VerifyUpstream {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trust) = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let chain: Vec<CertificateDer<'_>> = std::iter::once(end_entity)
            .chain(intermediates)
            .map(|der| CertificateDer::from(der.as_ref()))
            .collect();
        trust
            .judge(&chain, Use::Server, now.as_secs())
            .and_then(|()| names(end_entity, server_name))
            .map(|()| ServerCertVerified::assertion())
            .map_err(|reason| {
                Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(reason))))
            })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<Signed, Error> {
        self.possession.tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<Signed, Error> {
        self.possession.tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.possession.algorithms.supported_schemes()
    }
}

/// Judges the signatures by which peers show that they have a key.
#[derive(Debug)]
struct Possession {
    algorithms: WebPkiSupportedAlgorithms,
}

impl Possession {
    fn new(provider: &CryptoProvider) -> Self {
        Self {
            algorithms: provider.signature_verification_algorithms,
        }
    }

    /// A scheme of TLS 1.2 does not say which curve the key is on (RFC 8422 §5.4): one of its algorithms has to fit.
    fn tls12(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<Signed, Error> {
        let key = public_key(cert)?;
        let key = webpki::RawPublicKeyEntity::try_from(&key)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let mut known = self.algorithms.mapping.iter();
        let of_scheme = known.find(|(scheme, _)| *scheme == dss.scheme);
        let algorithms = of_scheme.map_or(&[][..], |(_, algorithms)| algorithms);
        let fits = |algorithm: &&dyn SignatureVerificationAlgorithm| {
            let verified = key.verify_signature(*algorithm, message, dss.signature());
            verified.is_ok()
        };
        if algorithms.iter().any(fits) {
            Ok(Signed::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::BadSignature))
        }
    }

    fn tls13(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<Signed, Error> {
        let key = public_key(cert)?;
        verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
    }
}

fn public_key(cert: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let key = Certificate::parse(cert).and_then(|parsed| parsed.public_key());
    key.map(SubjectPublicKeyInfoDer::from)
        .ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

/// Whether a certificate is for a name. Without alternative names its common names count, as with OpenSSL's
/// `X509_check_host`.
fn names(der: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Reason> {
    let wrong = match name {
        ServerName::IpAddress(_) => Reason::AddressMismatch,
        _ => Reason::HostnameMismatch,
    };
    let parsed = Certificate::parse(der).ok_or(Reason::BadEncoding)?;
    if parsed.has_alternative_names() {
        let entity = webpki::EndEntityCert::try_from(der).map_err(|_| Reason::BadEncoding)?;
        return entity
            .verify_is_valid_for_subject_name(name)
            .map_err(|_| wrong);
    }
    let ServerName::DnsName(name) = name else {
        return Err(wrong);
    };
    let found = parsed.common_names();
    if found.iter().any(|pattern| fits(pattern, name.as_ref())) {
        Ok(())
    } else {
        Err(wrong)
    }
}

/// Whether a pattern, `*` as its whole first label at most, stands for a name.
fn fits(pattern: &str, name: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix("*.") {
        let below = name.split_once('.').map(|(_, below)| below);
        return rest.contains('.') && below.is_some_and(|below| below.eq_ignore_ascii_case(rest));
    }
    pattern.eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_is_one_label() {
        assert!(fits("Example.com", "example.com"));
        assert!(fits("*.example.com", "a.example.com"));
        assert!(!fits("*.example.com", "a.b.example.com"));
        assert!(!fits("*.example.com", "example.com"));
        assert!(!fits("*.com", "example.com"));
        assert!(!fits("a*.example.com", "ab.example.com"));
    }
}
