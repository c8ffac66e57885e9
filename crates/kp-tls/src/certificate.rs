//! What stands in a certificate, as nginx's variables show it: names, number, dates, fingerprint. Whether it is good is
//! judged elsewhere.

use crate::name;
use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;
use x509_cert::certificate::{CertificateInner, Raw, Version};
use x509_cert::der::{Decode, Encode};
use x509_cert::time::Time;

/// A parsed certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    parsed: CertificateInner<Raw>,
}

impl Certificate {
    /// `None` for what is not a certificate.
    pub fn parse(der: &CertificateDer<'_>) -> Option<Self> {
        let parsed = CertificateInner::from_der(der).ok()?;
        Some(Self { parsed })
    }

    /// The subject as in RFC 2253: `CN=a,O=b`, the last part of the name first.
    pub fn subject(&self) -> String {
        name::rfc2253(self.parsed.tbs_certificate().subject())
    }

    /// The issuer as in RFC 2253.
    pub fn issuer(&self) -> String {
        name::rfc2253(self.parsed.tbs_certificate().issuer())
    }

    /// The subject in OpenSSL's old form: `/O=b/CN=a`.
    pub fn legacy_subject(&self) -> String {
        name::legacy(self.parsed.tbs_certificate().subject())
    }

    /// The issuer in OpenSSL's old form.
    pub fn legacy_issuer(&self) -> String {
        name::legacy(self.parsed.tbs_certificate().issuer())
    }

    /// The number in upper-case hexadecimal, without leading zeros in front of the first byte.
    pub fn serial(&self) -> String {
        let bytes = self.parsed.tbs_certificate().serial_number().as_bytes();
        let start = bytes.iter().position(|byte| *byte != 0);
        let bytes = start.and_then(|start| bytes.get(start..));
        bytes.map_or_else(
            || "00".to_owned(),
            |bytes| bytes.iter().map(|byte| format!("{byte:02X}")).collect(),
        )
    }

    /// From when it holds, in OpenSSL's form: `Nov 30 01:02:03 2026 GMT`.
    pub fn not_before(&self) -> String {
        openssl_time(&self.parsed.tbs_certificate().validity().not_before)
    }

    /// Until when it holds, in OpenSSL's form.
    pub fn not_after(&self) -> String {
        openssl_time(&self.parsed.tbs_certificate().validity().not_after)
    }

    /// From when it holds, in seconds since 1970.
    pub fn not_before_unix_secs(&self) -> u64 {
        let time = &self.parsed.tbs_certificate().validity().not_before;
        time.to_unix_duration().as_secs()
    }

    /// Until when it holds, in seconds since 1970.
    pub fn not_after_unix_secs(&self) -> u64 {
        let time = &self.parsed.tbs_certificate().validity().not_after;
        time.to_unix_duration().as_secs()
    }

    /// Whole days until it is over; 0 once it is.
    pub fn days_left(&self, now_unix_secs: u64) -> u64 {
        self.not_after_unix_secs().saturating_sub(now_unix_secs) / 86_400
    }

    /// Whether issuer and subject are the same.
    pub(crate) fn is_self_issued(&self) -> bool {
        let content = self.parsed.tbs_certificate();
        content.issuer() == content.subject()
    }

    /// Whether this names `other` as its issuer.
    pub(crate) fn is_issued_by(&self, other: &Self) -> bool {
        self.parsed.tbs_certificate().issuer() == other.parsed.tbs_certificate().subject()
    }

    /// The subject as DER.
    pub(crate) fn subject_der(&self) -> Option<Vec<u8>> {
        self.parsed.tbs_certificate().subject().to_der().ok()
    }

    /// SubjectPublicKeyInfo as DER.
    pub(crate) fn public_key(&self) -> Option<Vec<u8>> {
        let key = self.parsed.tbs_certificate().subject_public_key_info();
        key.to_der().ok()
    }

    /// Whether it is of the version that has no extensions.
    pub(crate) fn is_version_1(&self) -> bool {
        self.parsed.tbs_certificate().version() == Version::V1
    }

    /// What its issuer has signed, and how.
    pub(crate) fn signed(&self) -> Option<Signed> {
        let algorithm = self.parsed.signature_algorithm().to_der().ok()?;
        // The inside of the sequence, whose length is one byte.
        let inside = algorithm.get(2..)?;
        (usize::from(*algorithm.get(1)?) == inside.len()).then_some(())?;
        Some(Signed {
            content: self.parsed.tbs_certificate().to_der().ok()?,
            algorithm: inside.to_vec(),
            signature: self.parsed.signature().as_bytes()?.to_vec(),
        })
    }

    /// The common names of the subject, for certificates that name nothing else.
    pub(crate) fn common_names(&self) -> Vec<String> {
        name::common_names(self.parsed.tbs_certificate().subject())
    }

    /// Whether it has alternative names at all; common names do not count then (RFC 6125 §6.4.4).
    pub(crate) fn has_alternative_names(&self) -> bool {
        let extensions = self.parsed.tbs_certificate().extensions();
        extensions.is_some_and(|list| {
            list.iter()
                .any(|one| one.extn_id == x509_cert::der::oid::db::rfc5280::ID_CE_SUBJECT_ALT_NAME)
        })
    }
}

/// A signature over a certificate.
#[derive(Debug)]
pub(crate) struct Signed {
    /// What was signed.
    pub(crate) content: Vec<u8>,
    /// The algorithm with its parameters, DER without the sequence around it.
    pub(crate) algorithm: Vec<u8>,
    /// The signature.
    pub(crate) signature: Vec<u8>,
}

/// SHA-1 of the certificate in lower-case hexadecimal: an identifier, not a protection.
pub fn fingerprint(der: &CertificateDer<'_>) -> String {
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, der);
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// As PEM, with a line feed at the end (RFC 7468).
pub fn to_pem(der: &CertificateDer<'_>) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let mut bits = [0; 3];
            for (bit, byte) in bits.iter_mut().zip(group) {
                *bit = u32::from(*byte);
            }
            let [first, second, third] = bits;
            let word = first << 16 | second << 8 | third;
            for place in 0..4 {
                let index = (word >> (18 - 6 * place)) & 63;
                let letter = ALPHABET.get(index as usize).copied().unwrap_or(b'=');
                text.push(if place <= group.len() {
                    letter.into()
                } else {
                    '='
                });
            }
        }
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// `ASN1_TIME_print`'s form.
fn openssl_time(time: &Time) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let date = time.to_date_time();
    let month = MONTHS.get(usize::from(date.month()).wrapping_sub(1));
    format!(
        "{} {:2} {:02}:{:02}:{:02} {} GMT",
        month.copied().unwrap_or_default(),
        date.day(),
        date.hour(),
        date.minutes(),
        date.seconds(),
        date.year()
    )
}
