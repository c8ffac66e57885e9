//! Whether a chain of certificates holds: signatures, dates, uses, depth and revocation, judged by webpki and told in
//! OpenSSL's words.
//!
//! As with OpenSSL a chain has to end in a certificate that is signed by itself; others of a file of trusted
//! certificates help to get there. A certificate that is its own trusted root is good by itself.

use crate::certificate::Certificate;
use crate::clock::unix_time;
use crate::reason::Reason;
use rustls::DistinguishedName;
use rustls::pki_types::{CertificateDer, TrustAnchor};
use std::sync::Arc;
use webpki::{
    CertRevocationList, EndEntityCert, Error, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};

/// Whom a virtual host or an upstream identity trusts, and how far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trust {
    anchors: Vec<TrustAnchor<'static>>,
    /// The anchors' certificates.
    roots: Vec<CertificateDer<'static>>,
    /// What else the files hold: no trust of its own.
    helpers: Vec<CertificateDer<'static>>,
    lists: Vec<Arc<CertRevocationList<'static>>>,
    depth: usize,
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// A client shows who it is.
    Client,
    /// A server does.
    Server,
}

impl Trust {
    /// `depth`: how many certificates may stand between the first and the root.
    pub(crate) fn new(depth: u32) -> Self {
        Self {
            depth: usize::try_from(depth).unwrap_or(usize::MAX),
            ..Self::default()
        }
    }

    /// Trusts these; what cannot be read is told, with its place in the list.
    pub(crate) fn add(&mut self, certificates: Vec<CertificateDer<'static>>) -> Result<(), usize> {
        for (index, der) in certificates.into_iter().enumerate() {
            let parsed = Certificate::parse(&der).ok_or(index)?;
            if parsed.is_self_issued() {
                let anchor = webpki::anchor_from_trusted_cert(&der).map_err(|_| index)?;
                self.anchors.push(anchor.to_owned());
                self.roots.push(der);
            } else {
                self.helpers.push(der);
            }
        }
        Ok(())
    }

    /// Refuses what stands in this list, and what no list speaks about.
    pub(crate) fn add_list(&mut self, der: &[u8]) -> Result<(), String> {
        let list = OwnedCertRevocationList::from_der(der).map_err(|error| error.to_string())?;
        self.lists.push(Arc::new(list.into()));
        Ok(())
    }

    /// The names of all that were added, to be told to clients.
    pub(crate) fn names(&self) -> Vec<DistinguishedName> {
        let all = self.roots.iter().chain(&self.helpers);
        all.filter_map(|der| Certificate::parse(der)?.subject_der())
            .map(DistinguishedName::from)
            .collect()
    }

    /// Judges a chain, the peer's own certificate first.
    pub(crate) fn judge(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Use,
        now_unix_secs: u64,
    ) -> Result<(), Reason> {
        let (first, others) = chain.split_first().ok_or(Reason::Unspecified)?;
        let parsed = Certificate::parse(first).ok_or(Reason::BadEncoding)?;
        if parsed.is_self_issued() {
            return self.judge_alone(first, &parsed, now_unix_secs);
        }
        let entity = EndEntityCert::try_from(first).map_err(|error| of_webpki(&error))?;
        let between: Vec<CertificateDer<'_>> = others
            .iter()
            .chain(&self.helpers)
            .map(|der| CertificateDer::from(der.as_ref()))
            .collect();
        let lists: Vec<&CertRevocationList<'_>> = self.lists.iter().map(AsRef::as_ref).collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Deny)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let usage = match purpose {
            Use::Client => KeyUsage::client_auth(),
            Use::Server => KeyUsage::server_auth(),
        };
        let depth = |path: &VerifiedPath<'_>| {
            if path.intermediate_certificates().count() > self.depth {
                return Err(Error::MaximumPathDepthExceeded);
            }
            Ok(())
        };
        let verified = entity.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.anchors,
            &between,
            unix_time(now_unix_secs),
            usage,
            revocation,
            Some(&depth),
        );
        verified.map(|_| ()).map_err(|error| match error {
            Error::UnknownIssuer => no_issuer(&parsed, others),
            error => of_webpki(&error),
        })
    }

    /// A certificate that names itself as its issuer is good if it is itself trusted.
    fn judge_alone(
        &self,
        der: &CertificateDer<'_>,
        parsed: &Certificate,
        now_unix_secs: u64,
    ) -> Result<(), Reason> {
        if !self.roots.iter().any(|root| root.as_ref() == der.as_ref()) {
            return Err(Reason::SelfSigned);
        }
        if now_unix_secs < parsed.not_before_unix_secs() {
            return Err(Reason::NotYetValid);
        }
        if now_unix_secs > parsed.not_after_unix_secs() {
            return Err(Reason::Expired);
        }
        Ok(())
    }
}

/// Which of OpenSSL's reasons fits a chain that does not lead to anyone trusted.
fn no_issuer(first: &Certificate, others: &[CertificateDer<'_>]) -> Reason {
    let mut left: Vec<Certificate> = others
        .iter()
        .filter_map(|der| Certificate::parse(der))
        .collect();
    let mut last = first.clone();
    let mut alone = true;
    while let Some(index) = left.iter().position(|one| last.is_issued_by(one)) {
        last = left.swap_remove(index);
        alone = false;
        if last.is_self_issued() {
            return Reason::SelfSignedInChain;
        }
    }
    if alone {
        Reason::UnableToVerifyFirst
    } else {
        Reason::NoLocalIssuer
    }
}

fn of_webpki(error: &Error) -> Reason {
    match error {
        Error::CertExpired { .. } => Reason::Expired,
        Error::CertNotValidYet { .. } => Reason::NotYetValid,
        Error::CertRevoked => Reason::Revoked,
        Error::CrlExpired { .. } => Reason::CrlExpired,
        Error::UnknownRevocationStatus => Reason::NoCrl,
        Error::UnknownIssuer => Reason::NoLocalIssuer,
        Error::InvalidSignatureForPublicKey
        | Error::UnsupportedSignatureAlgorithmContext(_)
        | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_)
        | Error::SignatureAlgorithmMismatch => Reason::SignatureFailure,
        Error::InvalidCrlSignatureForPublicKey => Reason::NoCrl,
        Error::MaximumPathDepthExceeded | Error::MaximumPathBuildCallsExceeded => {
            Reason::ChainTooLong
        }
        Error::EndEntityUsedAsCa => Reason::InvalidCa,
        Error::PathLenConstraintViolated => Reason::PathLength,
        Error::CaUsedAsEndEntity
        | Error::RequiredEkuNotFoundContext(_)
        | Error::EmptyEkuExtension => Reason::Purpose,
        Error::NameConstraintViolation => Reason::NameConstraint,
        Error::UnsupportedCriticalExtension => Reason::CriticalExtension,
        Error::CertNotValidForName(_) => Reason::HostnameMismatch,
        Error::InvalidCertValidity | Error::BadDerTime => Reason::BadDates,
        Error::BadDer | Error::TrailingData(_) | Error::UnsupportedCertVersion => {
            Reason::BadEncoding
        }
        _ => Reason::Unspecified,
    }
}
