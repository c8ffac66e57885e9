//! When what a configuration's files hold is over: certificates, authorities, lists of what was revoked.
//!
//! Decides what is told of each directive. Of a file with several authorities it is the first to end; whether that matters
//! is for whoever reads it to know. Files that variables name are left out, and so are the system's own authorities.

use crate::certificate::Certificate;
use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use x509_cert::der::{Decode, Encode, SliceReader, Tag, Tagged, asn1::AnyRef};
use x509_cert::time::Time;

/// What a file is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// `ssl_certificate`: clients see it.
    Server,
    /// `proxy_ssl_certificate`: upstreams see it.
    Client,
    /// `ssl_client_certificate`: who may sign for clients, told to them.
    ClientAuthorities,
    /// `ssl_trusted_certificate`: the same, not told.
    TrustedAuthorities,
    /// `proxy_ssl_trusted_certificate`: who may sign for upstreams.
    UpstreamAuthorities,
    /// `ssl_crl`.
    ClientList,
    /// `proxy_ssl_crl`.
    UpstreamList,
}

impl Role {
    /// The directive.
    pub fn directive(self) -> &'static str {
        match self {
            Self::Server => "ssl_certificate",
            Self::Client => "proxy_ssl_certificate",
            Self::ClientAuthorities => "ssl_client_certificate",
            Self::TrustedAuthorities => "ssl_trusted_certificate",
            Self::UpstreamAuthorities => "proxy_ssl_trusted_certificate",
            Self::ClientList => "ssl_crl",
            Self::UpstreamList => "proxy_ssl_crl",
        }
    }

    /// Whether it is kp's own, which others judge.
    pub fn is_own(self) -> bool {
        matches!(self, Self::Server | Self::Client)
    }

    /// Whether it is a list of what was revoked.
    pub fn is_list(self) -> bool {
        matches!(self, Self::ClientList | Self::UpstreamList)
    }
}

/// When a file is over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The file.
    pub file: PathBuf,
    /// What it is there for.
    pub role: Role,
    /// Seconds since 1970: the end of the certificate, of the first authority, or when the next list is due.
    pub unix_secs: u64,
}

impl End {
    pub(crate) fn new(file: &Path, role: Role, unix_secs: u64) -> Self {
        Self {
            file: file.to_owned(),
            role,
            unix_secs,
        }
    }
}

/// When the first of some certificates is over.
pub(crate) fn first_end(certificates: &[CertificateDer<'_>]) -> Option<u64> {
    let parsed = certificates.iter().filter_map(Certificate::parse);
    parsed.map(|one| one.not_after_unix_secs()).min()
}

/// When the list after this one is due, if it says so (RFC 5280 §5.1.2.5). What was revoked is not read: it may be much.
pub(crate) fn next_update(list: &[u8]) -> Option<u64> {
    let whole = AnyRef::from_der(list).ok()?;
    let mut parts = SliceReader::new(whole.value()).ok()?;
    let content = AnyRef::decode(&mut parts).ok()?;
    let mut parts = SliceReader::new(content.value()).ok()?;
    let mut next = || AnyRef::decode(&mut parts).ok();
    // The version, which lists of the first one do not have, and the algorithm.
    if next()?.tag() == Tag::Integer {
        next()?;
    }
    let (_issuer, _this_update) = (next()?, next()?);
    let due = Time::from_der(&next()?.to_der().ok()?).ok()?;
    Some(due.to_unix_duration().as_secs())
}
