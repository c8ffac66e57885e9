//! What a handshake failed of, as far as those who run a server do something else about it.

use crate::error::TlsError;
use rustls::{AlertDescription, Error, PeerIncompatible};

/// A class of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// No version of TLS is spoken by both.
    Version,
    /// No cipher suite is known to both, or none that goes with the certificate.
    Cipher,
    /// No group for the key exchange is known to both.
    Group,
    /// The certificate cannot be used with any signature that the peer knows.
    Signature,
    /// ALPN: the peer wants protocols that are not spoken here, and no other.
    Application,
    /// The peer does without something that every TLS has had for years.
    Outdated,
    /// `ssl_reject_handshake`.
    Refused,
    /// There is no certificate to show.
    NoCertificate,
    /// The peer does not know who signed the certificate (alert unknown_ca).
    Untrusted,
    /// The peer finds that the certificate has expired (alert certificate_expired).
    Expired,
    /// The peer finds something else wrong with the certificate.
    BadCertificate,
    /// The peer sent another alert, which the error names.
    Alert,
    /// The peer's certificate cannot be read, or it has not the key of it.
    PeerCertificate,
    /// What came is no message of TLS.
    Malformed,
    /// What came is one that has no place there, or was changed on its way.
    Violation,
    /// Something here: no randomness, a session that is over.
    Own,
}

impl Trouble {
    fn of_incompatibility(why: &PeerIncompatible) -> Self {
        match why {
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => Self::Version,
            PeerIncompatible::NoCipherSuitesInCommon => Self::Cipher,
            PeerIncompatible::NoKxGroupsInCommon
            | PeerIncompatible::NamedGroupsExtensionRequired => Self::Group,
            PeerIncompatible::NoSignatureSchemesInCommon
            | PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => Self::Signature,
            _ => Self::Outdated,
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::UnknownCA => Self::Untrusted,
            AlertDescription::CertificateExpired => Self::Expired,
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::BadCertificateStatusResponse => Self::BadCertificate,
            _ => Self::Alert,
        }
    }
}

impl TlsError {
    /// Its class.
    pub fn trouble(&self) -> Trouble {
        match self {
            Self::Alert(alert) => Trouble::of_alert(*alert),
            Self::Certificate(_) => Trouble::PeerCertificate,
            Self::Incompatible(why) => Trouble::of_incompatibility(why),
            Self::Rejected => Trouble::Refused,
            Self::NoCertificate => Trouble::NoCertificate,
            Self::TooLong => Trouble::Malformed,
            Self::NotOpen => Trouble::Own,
            Self::Protocol(error) => match error {
                Error::NoApplicationProtocol => Trouble::Application,
                Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => Trouble::Malformed,
                Error::InappropriateMessage { .. }
                | Error::InappropriateHandshakeMessage { .. }
                | Error::PeerMisbehaved(_)
                | Error::DecryptError
                | Error::InvalidEncryptedClientHello(_) => Trouble::Violation,
                Error::NoCertificatesPresented => Trouble::PeerCertificate,
                _ => Trouble::Own,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{InvalidMessage, PeerMisbehaved};

    /// What is known to the library is not lost in a class for everything.
    #[test]
    fn causes_are_told_apart() {
        let rows: [(Error, Trouble); 16] = [
            (PeerIncompatible::Tls12NotOffered.into(), Trouble::Version),
            (
                PeerIncompatible::SupportedVersionsExtensionRequired.into(),
                Trouble::Version,
            ),
            (
                PeerIncompatible::NoCipherSuitesInCommon.into(),
                Trouble::Cipher,
            ),
            (PeerIncompatible::NoKxGroupsInCommon.into(), Trouble::Group),
            (
                PeerIncompatible::NoSignatureSchemesInCommon.into(),
                Trouble::Signature,
            ),
            (
                PeerIncompatible::NullCompressionRequired.into(),
                Trouble::Outdated,
            ),
            (Error::NoApplicationProtocol, Trouble::Application),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                Trouble::Untrusted,
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateExpired),
                Trouble::Expired,
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateUnknown),
                Trouble::BadCertificate,
            ),
            (
                Error::AlertReceived(AlertDescription::HandshakeFailure),
                Trouble::Alert,
            ),
            (
                Error::General("no server certificate chain resolved".to_owned()),
                Trouble::NoCertificate,
            ),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                Trouble::Malformed,
            ),
            (
                Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge),
                Trouble::Malformed,
            ),
            (PeerMisbehaved::IncorrectBinder.into(), Trouble::Violation),
            (Error::FailedToGetRandomBytes, Trouble::Own),
        ];
        for (error, trouble) in rows {
            let shown = format!("{error:?}");
            assert_eq!(TlsError::from(error).trouble(), trouble, "{shown}");
        }
        assert_eq!(TlsError::Rejected.trouble(), Trouble::Refused);
    }
}
