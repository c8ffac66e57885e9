//! A certificate of version 1, which has no extensions, as the first of a chain: many that were made by hand are
//! (`openssl x509 -req` writes no others unless it is told what to add).
//!
//! webpki reads version 3 only. Of one without extensions nothing counts but names, dates and one signature (RFC 5280
//! §6.1.3 (a)). It is believed directly below a trusted certificate only, so that no rule of longer chains is judged here.

use crate::certificate::Certificate;
use crate::reason::Reason;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use webpki::{ALL_VERIFICATION_ALGS, RawPublicKeyEntity};

/// Whether one of the trusted certificates has signed it.
pub(crate) fn judge(one: &Certificate, roots: &[CertificateDer<'_>]) -> Result<(), Reason> {
    let mut found = Err(Reason::NoLocalIssuer);
    for root in roots {
        let Some(root) = Certificate::parse(root).filter(|root| one.is_issued_by(root)) else {
            continue;
        };
        if is_signed_by(one, &root) {
            return Ok(());
        }
        found = Err(Reason::SignatureFailure);
    }
    found
}

fn is_signed_by(one: &Certificate, issuer: &Certificate) -> bool {
    let (Some(signed), Some(key)) = (one.signed(), issuer.public_key()) else {
        return false;
    };
    let key = SubjectPublicKeyInfoDer::from(key);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else {
        return false;
    };
    let of_signature = ALL_VERIFICATION_ALGS
        .iter()
        .filter(|known| known.signature_alg_id().as_ref() == signed.algorithm);
    // Which of them fits the kind of the key is found out by the first that does.
    of_signature.into_iter().any(|known| {
        let verified = key.verify_signature(*known, &signed.content, &signed.signature);
        verified.is_ok()
    })
}
