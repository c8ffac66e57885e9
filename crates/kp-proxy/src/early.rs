//! Ends of client connections that have no request: nothing of them is in an access log, so the reason is all there is.
//!
//! Decides who closed, and which ends are worth a place among the last ones. A connection that ends as connections do has
//! no reason: the client closed it before it sent a byte, or between requests; its time between requests was over; nobody
//! needs it while kp drains.

use crate::failure::Phase;
use crate::reason::{Reason, Side};

/// The end of a connection that had no request, or nothing but the beginning of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyEnd {
    /// Why.
    pub reason: Reason,
    /// What was being done.
    pub phase: Phase,
}

impl EarlyEnd {
    /// The reasons that only such ends have.
    pub const ONLY: [Reason; 26] = [
        Reason::AcceptLimited,
        Reason::OutOfDescriptors,
        Reason::ClientSilent,
        Reason::ProxyHeaderMissing,
        Reason::ProxyHeaderBroken,
        Reason::ProxyHeaderTimeout,
        Reason::ProxyHeaderCut,
        Reason::ProxyUntrusted,
        Reason::TlsSilent,
        Reason::TlsTimeout,
        Reason::TlsCut,
        Reason::TlsVersion,
        Reason::TlsCipher,
        Reason::TlsGroup,
        Reason::TlsSignature,
        Reason::TlsApplication,
        Reason::TlsOutdated,
        Reason::TlsRefused,
        Reason::TlsNoCertificate,
        Reason::TlsUntrusted,
        Reason::TlsExpired,
        Reason::TlsCertificateRefused,
        Reason::TlsAlert,
        Reason::TlsClientCertificate,
        Reason::TlsMalformed,
        Reason::TlsViolation,
    ];

    /// Puts a reason and a phase together.
    pub fn new(phase: Phase, reason: Reason) -> Self {
        Self { reason, phase }
    }

    /// Who ended the connection.
    pub fn closed_by(&self) -> Side {
        match self.reason {
            Reason::ProxyHeaderCut
            | Reason::TlsCut
            | Reason::TlsUntrusted
            | Reason::TlsExpired
            | Reason::TlsCertificateRefused
            | Reason::TlsAlert => Side::Client,
            _ => Side::Own,
        }
    }

    /// Whether it has a place among the last ends. Connections over which nothing came are opened in advance by every
    /// browser: on a busy site they would leave no place for anything else.
    pub fn is_told(&self) -> bool {
        !matches!(self.reason, Reason::ClientSilent | Reason::TlsSilent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_sends_an_alert_closes() {
        let closed_by = |reason| EarlyEnd::new(Phase::ClientHandshake, reason).closed_by();
        assert_eq!(closed_by(Reason::TlsUntrusted), Side::Client);
        assert_eq!(closed_by(Reason::TlsVersion), Side::Own);
        assert_eq!(closed_by(Reason::Overload), Side::Own);
    }
}
