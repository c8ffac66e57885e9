//! Why a handshake or a connection failed, in words for the error log.

use crate::reason::Reason;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};
use std::fmt;

/// What went wrong with a connection. Whatever is to be told to the peer already stands in the output.
#[derive(Debug, Clone, PartialEq)]
pub enum TlsError {
    /// The peer ended the connection with an alert.
    Alert(AlertDescription),
    /// The peer's certificate does not hold.
    Certificate(Reason),
    /// There is nothing both sides can speak: protocols, suites, groups, signatures.
    Incompatible(PeerIncompatible),
    /// The peer broke the protocol, or something in between the bytes.
    Protocol(Error),
    /// The virtual host refuses handshakes (`ssl_reject_handshake`).
    Rejected,
    /// There is no certificate to show for the name that was asked for.
    NoCertificate,
    /// A message of the handshake is longer than any honest one.
    TooLong,
    /// Nothing can be sent any more: close_notify was sent, or the handshake is not over.
    NotOpen,
}

impl From<Error> for TlsError {
    fn from(error: Error) -> Self {
        match error {
            Error::AlertReceived(alert) => Self::Alert(alert),
            Error::PeerIncompatible(why) => Self::Incompatible(why),
            Error::InvalidCertificate(why) => Self::Certificate(Reason::of_rustls(&why)),
            Error::General(_) => Self::NoCertificate,
            Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => Self::TooLong,
            error => Self::Protocol(error),
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alert(alert) => write!(out, "the peer sent the alert {}", alert_name(*alert)),
            Self::Certificate(reason) => write!(out, "certificate verify error: {reason}"),
            Self::Incompatible(why) => write!(out, "nothing in common with the peer: {why:?}"),
            Self::Protocol(error) => write!(out, "{error}"),
            Self::Rejected => write!(out, "the handshake was rejected for this name"),
            Self::NoCertificate => write!(out, "there is no certificate for this name"),
            Self::TooLong => write!(out, "a handshake message is too long"),
            Self::NotOpen => write!(out, "the connection is not open for sending"),
        }
    }
}

impl std::error::Error for TlsError {}

/// The name of RFC 8446 §6 for an alert; the library has the same in another spelling.
fn alert_name(alert: AlertDescription) -> String {
    let letters: Vec<char> = format!("{alert:?}").chars().collect();
    let mut name = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| letters.get(index));
        let after = letters.get(index + 1);
        let word = before.is_some_and(|one| one.is_lowercase())
            || (before.is_some() && after.is_some_and(|one| one.is_lowercase()));
        if letter.is_uppercase() && word {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name.replace("unrecognised", "unrecognized")
}

impl Reason {
    /// The reason in what the library reports; our own verifiers put one inside.
    fn of_rustls(error: &CertificateError) -> Self {
        match error {
            CertificateError::Other(other) => other
                .0
                .downcast_ref::<Self>()
                .cloned()
                .unwrap_or(Self::Unspecified),
            CertificateError::BadSignature => Self::SignatureFailure,
            CertificateError::BadEncoding => Self::BadEncoding,
            _ => Self::Unspecified,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_have_the_names_of_the_rfc() {
        for (alert, name) in [
            (AlertDescription::UnknownCA, "unknown_ca"),
            (AlertDescription::UnknownPSKIdentity, "unknown_psk_identity"),
            (AlertDescription::UnrecognisedName, "unrecognized_name"),
            (AlertDescription::BadRecordMac, "bad_record_mac"),
        ] {
            let said = TlsError::Alert(alert).to_string();
            assert_eq!(said, format!("the peer sent the alert {name}"));
        }
    }
}
