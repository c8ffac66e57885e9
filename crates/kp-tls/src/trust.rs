//! Whether a chain of certificates holds: signatures, dates, uses, depth and revocation, judged by webpki and told in
//! OpenSSL's words.
//!
//! As with OpenSSL a chain has to end in a certificate that is signed by itself; others of a file of trusted
//! certificates help to get there. A certificate that is its own trusted root is good by itself.

use crate::certificate::Certificate;
use crate::clock::unix_time;
use crate::reason::Reason;
use crate::version1;
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
        let list = OwnedCertRevocationList::from_der(der)
            .map_err(|error| format!("it is no list of version 2 (RFC 5280 §5.1.2.1): {error}"))?;
        self.lists.push(Arc::new(list.into()));
        Ok(())
    }

    /// The names of all that were added, to be told to clients, each once.
    pub(crate) fn names(&self) -> Vec<DistinguishedName> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        for der in self.roots.iter().chain(&self.helpers) {
            let name = Certificate::parse(der).and_then(|parsed| parsed.subject_der());
            names.extend(name.filter(|name| !names.contains(name)));
        }
        names.into_iter().map(DistinguishedName::from).collect()
    }

    /// Judges a chain, the peer's own certificate first.
    ///
    /// OpenSSL finds the issuers first and looks at dates last, and nginx shows what was found last.
    pub(crate) fn judge(
        &self,
        chain: &[CertificateDer<'_>],
        purpose: Use,
        now_unix_secs: u64,
    ) -> Result<(), Reason> {
        let (first, others) = chain.split_first().ok_or(Reason::Unspecified)?;
        let parsed = Certificate::parse(first).ok_or(Reason::BadEncoding)?;
        let found = if parsed.is_self_issued() {
            self.judge_alone(first)
        } else if parsed.is_version_1() {
            self.judge_version_1(&parsed)
        } else {
            let others = match purpose {
                Use::Client => self.near(&parsed, others),
                Use::Server => others.iter().collect(),
            };
            self.judge_chain(first, &others, purpose, now_unix_secs)
        };
        match found {
            Err(Reason::NameConstraint) => found,
            Ok(()) => in_time(&parsed, now_unix_secs),
            Err(reason) => {
                let mut linked: Vec<_> = linked(&parsed, others)
                    .into_iter()
                    .map(|(one, _)| one)
                    .collect();
                linked.insert(0, parsed);
                let late = linked
                    .iter()
                    .find_map(|one| in_time(one, now_unix_secs).err());
                Err(late.unwrap_or_else(|| match reason {
                    Reason::NoLocalIssuer => no_issuer(&linked),
                    reason => reason,
                }))
            }
        }
    }

    /// What of a client's chain webpki gets to see: it tries every way through it, a hundred signatures at most, and a
    /// client's work must not become so much of ours. Whoever shows no more than may stand between is not restricted.
    fn near<'a, 'd>(
        &self,
        first: &Certificate,
        others: &'a [CertificateDer<'d>],
    ) -> Vec<&'a CertificateDer<'d>> {
        let room = self.depth.saturating_add(2).max(4);
        let issued = |(one, der): (Certificate, _)| (!one.is_self_issued()).then_some(der);
        let all = shown(others).filter_map(issued).collect::<Vec<_>>();
        if all.len() <= room {
            return all;
        }
        let linked = linked(first, others).into_iter().filter_map(issued);
        linked.take(room).collect()
    }

    fn judge_chain(
        &self,
        first: &CertificateDer<'_>,
        others: &[&CertificateDer<'_>],
        purpose: Use,
        now_unix_secs: u64,
    ) -> Result<(), Reason> {
        let entity = EndEntityCert::try_from(first).map_err(|error| of_webpki(&error))?;
        let between: Vec<CertificateDer<'_>> = others
            .iter()
            .copied()
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
        verified.map(|_| ()).map_err(|error| of_webpki(&error))
    }

    /// Lists of what was revoked are webpki's to read: with them such a certificate is none of a known status.
    fn judge_version_1(&self, one: &Certificate) -> Result<(), Reason> {
        version1::judge(one, &self.roots)?;
        if self.lists.is_empty() {
            Ok(())
        } else {
            Err(Reason::NoCrl)
        }
    }

    /// A certificate that names itself as its issuer is good if it is itself trusted.
    fn judge_alone(&self, der: &CertificateDer<'_>) -> Result<(), Reason> {
        if self.roots.iter().any(|root| root.as_ref() == der.as_ref()) {
            Ok(())
        } else {
            Err(Reason::SelfSigned)
        }
    }
}

/// More certificates than any honest chain has are not looked at.
const SHOWN_MAX: usize = 20;

fn shown<'a, 'd>(
    others: &'a [CertificateDer<'d>],
) -> impl Iterator<Item = (Certificate, &'a CertificateDer<'d>)> {
    let others = others.iter().take(SHOWN_MAX);
    others.filter_map(|der| Some((Certificate::parse(der)?, der)))
}

/// The issuers of the first certificate in order, as far as they were shown; of several with the right name the first one
/// counts.
fn linked<'a, 'd>(
    first: &Certificate,
    others: &'a [CertificateDer<'d>],
) -> Vec<(Certificate, &'a CertificateDer<'d>)> {
    let mut left: Vec<_> = shown(others).collect();
    let mut linked: Vec<(Certificate, _)> = Vec::new();
    loop {
        let last = linked.last().map_or(first, |(one, _)| one);
        if last.is_self_issued() {
            return linked;
        }
        let Some(next) = left.iter().position(|(one, _)| last.is_issued_by(one)) else {
            return linked;
        };
        linked.push(left.remove(next));
    }
}

/// Which of OpenSSL's reasons fits a chain that does not lead to anyone trusted.
fn no_issuer(linked: &[Certificate]) -> Reason {
    match linked {
        [_] => Reason::UnableToVerifyFirst,
        [.., last] if last.is_self_issued() => Reason::SelfSignedInChain,
        _ => Reason::NoLocalIssuer,
    }
}

fn in_time(one: &Certificate, now_unix_secs: u64) -> Result<(), Reason> {
    if now_unix_secs < one.not_before_unix_secs() {
        Err(Reason::NotYetValid)
    } else if now_unix_secs > one.not_after_unix_secs() {
        Err(Reason::Expired)
    } else {
        Ok(())
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
        // OpenSSL goes on after "certificate chain too long" (22) and ends with this, which nginx shows.
        Error::MaximumPathDepthExceeded => Reason::NoLocalIssuer,
        Error::MaximumPathBuildCallsExceeded => Reason::ChainTooLong,
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
