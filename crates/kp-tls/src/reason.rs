//! Why a certificate does not hold, with the numbers and words of OpenSSL's `X509_verify_cert_error_string`, which
//! `$ssl_client_verify` and nginx's error log have always shown.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Why a certificate does not hold.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// OpenSSL's number.
            pub fn code(self) -> u32 {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// OpenSSL's words, as after `FAILED:` in `$ssl_client_verify`.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// Nothing more precise is known.
    Unspecified = 1, "unspecified certificate verification error";
    /// There is no list for an issuer although lists were given.
    NoCrl = 3, "unable to get certificate CRL";
    /// A signature in the chain is not the issuer's.
    SignatureFailure = 7, "certificate signature failure";
    /// Its time has not come.
    NotYetValid = 9, "certificate is not yet valid";
    /// Its time is over.
    Expired = 10, "certificate has expired";
    /// The list is older than it says it may be.
    CrlExpired = 12, "CRL has expired";
    /// The dates cannot be read.
    BadDates = 13, "format error in certificate's notBefore field";
    /// Signed by itself, and not trusted.
    SelfSigned = 18, "self-signed certificate";
    /// The chain ends in one that is signed by itself and not trusted.
    SelfSignedInChain = 19, "self-signed certificate in certificate chain";
    /// Nobody trusted signed the last one.
    NoLocalIssuer = 20, "unable to get local issuer certificate";
    /// Nobody known signed the first and only one.
    UnableToVerifyFirst = 21, "unable to verify the first certificate";
    /// More certificates in between than `ssl_verify_depth` allows.
    ChainTooLong = 22, "certificate chain too long";
    /// It stands in the list.
    Revoked = 23, "certificate revoked";
    /// A certificate in between may not sign others.
    InvalidCa = 24, "invalid CA certificate";
    /// A certificate in between allows fewer below it.
    PathLength = 25, "path length constraint exceeded";
    /// It is not for this use.
    Purpose = 26, "unsuitable certificate purpose";
    /// It says something critical that is not understood.
    CriticalExtension = 34, "unhandled critical extension";
    /// Its names are outside of what the issuer may sign.
    NameConstraint = 47, "permitted subtree violation";
    /// It is not in the form of a certificate.
    BadEncoding = 53, "unsupported or invalid name syntax";
    /// It is for other names.
    HostnameMismatch = 62, "hostname mismatch";
    /// It is for other addresses.
    AddressMismatch = 64, "IP address mismatch";
    /// Its key is of a kind or length that is not accepted.
    WeakKey = 66, "EE certificate key too weak";
}

/// As in nginx's error log: `(18:self-signed certificate)`.
impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "({}:{})", self.code(), self.text())
    }
}

impl std::error::Error for Reason {}
