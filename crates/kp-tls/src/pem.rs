//! Certificates, keys and revocation lists out of PEM text (RFC 7468). What is wrong is said in a few words, to stand
//! behind the file's name.

use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::LineEnding;
use pkcs8::der::zeroize::Zeroizing;
use pkcs8::der::{Decode, SecretDocument};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};

/// All certificates of a file, in order; at least one.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = unmarked(pem);
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Err("no start line: expecting a CERTIFICATE".to_owned());
    }
    Ok(found)
}

/// All revocation lists of a file; at least one.
pub(crate) fn revocation_lists(
    pem: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let pem = unmarked(pem);
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() {
        return Err("no start line: expecting an X509 CRL".to_owned());
    }
    Ok(found)
}

/// The first private key of a file: PKCS#1, SEC 1, PKCS#8, or PKCS#8 sealed with one of the passwords.
pub(crate) fn private_key(
    pem: &[u8],
    passwords: &[Vec<u8>],
) -> Result<PrivateKeyDer<'static>, String> {
    if is_encrypted(pem) {
        return sealed_key(pem, passwords);
    }
    if contains(pem, b"Proc-Type: 4,ENCRYPTED") {
        return Err(
            "encrypted in OpenSSL's old form, which is not supported: convert it with \"openssl pkcs8 -topk8\""
                .to_owned(),
        );
    }
    PrivateKeyDer::from_pem_slice(unmarked(pem)).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            "no start line: expecting a PRIVATE KEY".to_owned()
        }
        error => error.to_string(),
    })
}

/// The first private key of a file as PEM that no password is needed for.
pub(crate) fn opened(pem: &[u8], passwords: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    if !is_encrypted(pem) {
        return Ok(pem.to_vec());
    }
    let key = sealed_key(pem, passwords)?;
    let text = key_to_pem(key.secret_der())?;
    Ok(text.as_bytes().to_vec())
}

/// PKCS#8 as PEM.
fn key_to_pem(der: &[u8]) -> Result<Zeroizing<String>, String> {
    SecretDocument::try_from(der)
        .and_then(|document| document.to_pem("PRIVATE KEY", LineEnding::LF))
        .map_err(|error| error.to_string())
}

/// The passwords of a `ssl_password_file`: one a line.
pub(crate) fn passwords(content: &[u8]) -> Vec<Vec<u8>> {
    content
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec())
        .filter(|line| !line.is_empty())
        .collect()
}

const SEALED_BEGIN: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
const SEALED_END: &[u8] = b"-----END ENCRYPTED PRIVATE KEY-----";

fn sealed_key(pem: &[u8], passwords: &[Vec<u8>]) -> Result<PrivateKeyDer<'static>, String> {
    let start = position(pem, SEALED_BEGIN).unwrap_or(0);
    let end = position(pem, SEALED_END).ok_or("the PEM section has no end")?;
    let section = pem
        .get(start..end + SEALED_END.len())
        .ok_or("the PEM section has no end")?;
    let text = str::from_utf8(section).map_err(|error| error.to_string())?;
    let (_, document) = SecretDocument::from_pem(text).map_err(|error| error.to_string())?;
    let sealed = EncryptedPrivateKeyInfoRef::from_der(document.as_bytes())
        .map_err(|error| error.to_string())?;
    if passwords.is_empty() {
        return Err("it is encrypted, and there is no ssl_password_file".to_owned());
    }
    let mut last = String::new();
    for password in passwords {
        match sealed.decrypt(password) {
            Ok(plain) => {
                return Ok(PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec()).into());
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(format!("no password opens it: {last}"))
}

/// Whether the key in the text is encrypted.
pub(crate) fn is_encrypted(pem: &[u8]) -> bool {
    contains(pem, SEALED_BEGIN)
}

/// Without the mark that editors put in front of UTF-8; OpenSSL reads over it, too.
fn unmarked(pem: &[u8]) -> &[u8] {
    pem.strip_prefix("\u{feff}".as_bytes()).unwrap_or(pem)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    position(text, part).is_some()
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
