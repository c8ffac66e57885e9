//! A certificate chain with its key, ready for handshakes, and the place where a virtual host keeps its own: a place
//! that can be filled anew while connections go on with what they began with.

use crate::certificate::Certificate;
use crate::pem;
use arc_swap::ArcSwap;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::Arc;

/// A certificate chain with its key.
#[derive(Debug, Clone)]
pub struct Pair {
    pub(crate) key: Arc<CertifiedKey>,
    /// When the first certificate of the chain is over, in seconds since 1970.
    pub expires_unix_secs: u64,
    /// Its key was encrypted.
    pub(crate) was_encrypted: bool,
}

/// What is wrong with a pair: in the certificate, in the key, or between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairError {
    /// The certificate cannot be read.
    Certificate(String),
    /// The key cannot be read or used.
    Key(String),
    /// The key is not that of the certificate.
    Mismatch,
}

impl PairError {
    /// In nginx's words, with the names of the files.
    pub fn told(&self, certificate: &Path, key: &Path) -> String {
        let (certificate, key) = (certificate.display(), key.display());
        match self {
            Self::Certificate(why) => format!("cannot load certificate \"{certificate}\": {why}"),
            Self::Key(why) => format!("cannot load certificate key \"{key}\": {why}"),
            Self::Mismatch => format!(
                "SSL_CTX_use_PrivateKey(\"{key}\") failed (key values mismatch): it is not the key of \"{certificate}\""
            ),
        }
    }
}

impl Pair {
    /// From PEM text; `staple` is an OCSP response to hand out with it.
    ///
    /// # Errors
    ///
    /// What is wrong with which of the two.
    pub fn from_pem(
        certificate: &[u8],
        key: &[u8],
        passwords: &[Vec<u8>],
        staple: Option<Vec<u8>>,
    ) -> Result<Self, PairError> {
        let chain = pem::certificates(certificate).map_err(PairError::Certificate)?;
        let was_encrypted = pem::is_encrypted(key);
        let key = pem::private_key(key, passwords).map_err(PairError::Key)?;
        let key = default_provider()
            .key_provider
            .load_private_key(key)
            .map_err(|error| PairError::Key(error.to_string()))?;
        let first = chain.first().and_then(|der| Certificate::parse(der));
        let first = first.ok_or_else(|| PairError::Certificate("bad encoding".to_owned()))?;
        if key
            .public_key()
            .is_some_and(|public| first.public_key().as_deref() != Some(public.as_ref()))
        {
            return Err(PairError::Mismatch);
        }
        let expires_unix_secs = first.not_after_unix_secs();
        let mut key = CertifiedKey::new(chain, key);
        key.ocsp = staple;
        Ok(Self {
            key: Arc::new(key),
            expires_unix_secs,
            was_encrypted,
        })
    }

    /// The OCSP response that is handed out with it.
    pub fn staple(&self) -> Option<&[u8]> {
        self.key.ocsp.as_deref()
    }

    /// The certificate itself.
    pub fn certificate(&self) -> Option<Certificate> {
        self.key
            .cert
            .first()
            .and_then(|der| Certificate::parse(der))
    }
}

/// The pairs of a virtual host.
#[derive(Debug)]
pub(crate) struct Slot(ArcSwap<Vec<Pair>>);

impl Slot {
    pub(crate) fn new(pairs: Vec<Pair>) -> Self {
        Self(ArcSwap::from_pointee(pairs))
    }

    pub(crate) fn pairs(&self) -> Arc<Vec<Pair>> {
        self.0.load_full()
    }

    /// Handshakes that begin from now on use these.
    pub(crate) fn replace(&self, pairs: Vec<Pair>) {
        self.0.store(Arc::new(pairs));
    }
}

impl ResolvesServerCert for Slot {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let pairs = self.0.load();
        match pairs.as_slice() {
            // Whether the client can use it is found out by the library, with the right alert.
            [only] => Some(only.key.clone()),
            several => several
                .iter()
                .min_by_key(|pair| rank(pair, hello.signature_schemes()))
                .map(|pair| pair.key.clone()),
        }
    }
}

/// The place in the client's list of what the pair would sign with: it names what it likes best first, as OpenSSL has it.
fn rank(pair: &Pair, offered: &[SignatureScheme]) -> usize {
    let scheme = pair
        .key
        .key
        .choose_scheme(offered)
        .map(|signer| signer.scheme());
    offered
        .iter()
        .position(|one| Some(*one) == scheme)
        .unwrap_or(usize::MAX)
}

/// The pair of a client.
#[derive(Debug)]
pub(crate) struct OwnPair(pub(crate) Pair);

impl ResolvesClientCert for OwnPair {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        sigschemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        // Who the server trusts is for the server to judge: OpenSSL sends what it has.
        self.0.key.key.choose_scheme(sigschemes)?;
        Some(self.0.key.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
