//! The first flight of a client, read before the virtual host is known: who it asks for decides the certificate, the
//! protocols and the verification (RFC 6066 §3). What is read here is read again by the session that follows, so that no
//! byte is taken apart by hand.

use crate::error::TlsError;
use rustls::server::{Accepted, Acceptor, ClientHello as Offer};
use rustls::{Error, PeerIncompatible};

/// What a client offers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientHello {
    /// The name it asks for, in lower case.
    pub server_name: Option<Box<str>>,
    /// Cipher suites, in its order.
    pub ciphers: Box<[u16]>,
    /// Groups for the key exchange, in its order.
    pub groups: Box<[u16]>,
    /// Signature schemes, in its order.
    pub signature_schemes: Box<[u16]>,
}

/// How far the first flight has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Hello {
    /// More bytes are needed.
    Incomplete,
    /// All there.
    Complete(Box<ClientHello>),
    /// This is not TLS; the bytes are as they were, and may be a request of HTTP.
    NotTls,
}

/// Reads a ClientHello as its bytes come. Small while nothing has come.
#[derive(Default)]
pub struct HelloReader {
    acceptor: Option<Box<Acceptor>>,
    /// How many of the bytes the acceptor has seen.
    fed: usize,
}

impl std::fmt::Debug for HelloReader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "HelloReader {{ fed: {} }}", self.fed)
    }
}

impl HelloReader {
    /// Looks at all bytes received so far; they stay the caller's, to be given to the session afterwards. On an error the
    /// alert stands in `out`.
    ///
    /// # Errors
    ///
    /// What the client sent cannot become a handshake.
    pub fn read(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<Hello, TlsError> {
        let Some(first) = received.first() else {
            return Ok(Hello::Incomplete);
        };
        // nginx's test: a handshake record, or the length of an SSLv2 hello, which no method of HTTP begins like.
        if self.fed == 0 && *first != HANDSHAKE && *first & 0x80 == 0 {
            return Ok(Hello::NotTls);
        }
        let acceptor = self.acceptor.get_or_insert_default();
        let mut fresh = received.get(self.fed..).unwrap_or_default();
        loop {
            match acceptor.accept() {
                Ok(None) if fresh.is_empty() => return Ok(Hello::Incomplete),
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    self.acceptor = None;
                    return Ok(Hello::Complete(Box::new(ClientHello::of(&accepted))));
                }
                Err((Error::PeerIncompatible(NO_SIGNATURES), _)) => {
                    self.acceptor = None;
                    out.extend_from_slice(&PROTOCOL_VERSION);
                    return Err(TlsError::Incompatible(PeerIncompatible::Tls12NotOffered));
                }
                Err((error, mut alert)) => {
                    self.acceptor = None;
                    // Writing to memory does not fail.
                    let _ = alert.write_all(out);
                    return Err(error.into());
                }
            }
            match acceptor.read_tls(&mut fresh) {
                Ok(count) if count > 0 => self.fed += count,
                _ => return Err(TlsError::TooLong),
            }
        }
    }
}

/// What the library misses in a hello of TLS 1.1 or older; its alert would be another than that of RFC 8446 appendix D.
const NO_SIGNATURES: PeerIncompatible = PeerIncompatible::SignatureAlgorithmsExtensionRequired;
/// protocol_version, fatal, in a record of its own (RFC 8446 §6.2).
const PROTOCOL_VERSION: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 70];

/// The content type of a record with a handshake message (RFC 8446 §5.1).
const HANDSHAKE: u8 = 0x16;

impl ClientHello {
    fn of(accepted: &Accepted) -> Self {
        Self::of_offer(&accepted.client_hello())
    }

    fn of_offer(offer: &Offer<'_>) -> Self {
        let groups = offer.named_groups().unwrap_or_default();
        Self {
            server_name: offer.server_name().map(Into::into),
            ciphers: offer
                .cipher_suites()
                .iter()
                .map(|&one| one.into())
                .collect(),
            groups: groups.iter().map(|&one| one.into()).collect(),
            signature_schemes: offer
                .signature_schemes()
                .iter()
                .map(|&one| one.into())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_told_that_it_is_their_version() {
        let mut hello = vec![0x16, 3, 1, 0, 47, 1, 0, 0, 43, 3, 2];
        hello.extend([7; 32]);
        // No session, one suite (TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA), no compression, no extensions.
        hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0, 0, 0]);
        let mut out = Vec::new();
        let read = HelloReader::default().read(&hello, &mut out);
        let reason = PeerIncompatible::Tls12NotOffered;
        assert_eq!(read, Err(TlsError::Incompatible(reason)));
        assert_eq!(out, PROTOCOL_VERSION);
    }
}
