//! Which counter a failure belongs to: the one place that decides it. Failures are counted when they are reported.

use kp_proxy::{Cause, Failure, Phase};
use kp_shm::Counter;

/// The counter of a failure; `None` for what is only logged.
pub(crate) fn counter_of(failure: &Failure) -> Option<Counter> {
    Some(match failure.cause {
        Cause::BadRequest | Cause::BadVersion | Cause::ConnectMethod
            if failure.phase == Phase::RequestLine =>
        {
            Counter::BadRequestLines
        }
        Cause::BadRequest | Cause::BadVersion | Cause::ConnectMethod => Counter::BadRequestFields,
        Cause::UnknownCoding | Cause::BadBody => Counter::BadRequestFraming,
        Cause::TargetTooLong | Cause::HeadTooLarge | Cause::BodyTooLarge(_) => {
            Counter::RequestsTooLarge
        }
        Cause::ClientHeadTimeout => Counter::TimeoutsClientHeader,
        Cause::ClientBodyTimeout => Counter::TimeoutsClientBody,
        Cause::ClientSendTimeout => Counter::TimeoutsClientSend,
        Cause::ClientTooSlow | Cause::ClientReadsTooSlow => Counter::ClientsTooSlow,
        Cause::OutOfMemory => Counter::RequestsRefusedMemory,
        Cause::RateLimited { .. } => Counter::RequestsLimited,
        Cause::PlacesTaken { .. } => Counter::RequestsOverConnections,
        Cause::AccessDenied => Counter::RequestsDenied,
        Cause::TooManyActive => Counter::RequestsOverActive,
        Cause::ClientGone | Cause::ClientCut => Counter::ClientAborts,
        Cause::NoLivePeer => Counter::UpstreamNoLivePeers,
        Cause::QueueFull => Counter::QueueOverflows,
        Cause::QueueTimeout => Counter::QueueTimeouts,
        Cause::TryTimeout => Counter::TimeoutsTry,
        Cause::ConnectTimeout => Counter::TimeoutsUpstreamConnect,
        Cause::TlsHandshake | Cause::TlsVerify => Counter::UpstreamTlsHandshakesFailed,
        Cause::StaleConnection => Counter::UpstreamStaleReuses,
        Cause::SendTimeout => Counter::TimeoutsUpstreamSend,
        Cause::UpstreamTimeout | Cause::BodyTimeout => Counter::TimeoutsUpstreamRead,
        Cause::UpstreamInvalidHead | Cause::UpstreamHeadTooLarge => Counter::BadResponseHeads,
        Cause::BodyTruncated | Cause::BodyReset(_) | Cause::BodyInvalid => {
            Counter::UpstreamTruncated
        }
        Cause::TunnelTimeout => Counter::TimeoutsTunnel,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phase_tells_a_bad_line_from_a_bad_field() {
        let counter = |phase| counter_of(&Failure::new(phase, Cause::BadRequest));
        assert_eq!(counter(Phase::RequestLine), Some(Counter::BadRequestLines));
        assert_eq!(counter(Phase::RequestHead), Some(Counter::BadRequestFields));
        assert_eq!(
            counter_of(&Failure::new(Phase::AwaitHead, Cause::UpstreamStatus(500))),
            None
        );
    }
}
