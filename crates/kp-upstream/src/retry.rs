//! May a failed attempt be followed by another one, and does the failure count against the peer.
//!
//! The rules are those of `proxy_next_upstream`. Pure: the caller knows what was sent and how long it took.

use crate::groups::Outcome;
use kp_config::model::NextUpstream;
use std::time::Duration;

/// What ended an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Connecting, writing or reading failed, or the peer closed before a response head was whole.
    Error,
    /// Connecting, writing or waiting for the head took too long.
    Timeout,
    /// The response head was malformed, ambiguous or too large.
    InvalidHeader,
    /// A whole response head with this status; retried only where the status is listed.
    Status(u16),
    /// A pooled connection that the peer had closed: not one byte of a response came.
    Stale,
    /// No peer could be picked.
    NoLivePeer,
}

/// What the decision depends on besides the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// See [`is_non_idempotent`].
    pub non_idempotent: bool,
    /// At least one byte of the request was given to the socket, in any attempt.
    pub request_sent: bool,
    /// The body is complete in memory or in a file, or there is none.
    pub replayable: bool,
    /// Attempts still allowed after this one.
    pub tries_left: u32,
    /// Since the first attempt began.
    pub elapsed: Duration,
    /// `proxy_next_upstream_timeout`; zero: no limit.
    pub timeout: Duration,
}

/// Whether another attempt may follow. A stale pooled connection costs no try and needs no listing, but `off` forbids
/// even that.
pub fn may_retry(failure: Failure, policy: &NextUpstream, situation: &Situation) -> bool {
    if policy.off || !is_listed(failure, policy) {
        return false;
    }
    if situation.tries_left == 0 && failure != Failure::Stale {
        return false;
    }
    // RFC 9110 §9.2.2: a request whose method is not idempotent is not repeated once it may have been acted upon.
    if situation.request_sent && situation.non_idempotent && !policy.non_idempotent {
        return false;
    }
    if situation.request_sent && !situation.replayable {
        return false;
    }
    situation.timeout.is_zero() || situation.elapsed < situation.timeout
}

/// What the failure says about its peer. A listed status counts only if the exchange really went on to another peer, and
/// 403 and 404 never do: the peer is well, it just does not have this.
pub fn outcome(failure: Failure, retried: bool) -> Outcome {
    match failure {
        Failure::Error | Failure::Timeout | Failure::InvalidHeader => Outcome::Failed,
        Failure::Status(403 | 404) => Outcome::Ok,
        Failure::Status(_) if retried => Outcome::Failed,
        Failure::Status(_) => Outcome::Ok,
        Failure::Stale | Failure::NoLivePeer => Outcome::NotCounted,
    }
}

/// Attempts one exchange may make: the group's own number, capped by `proxy_next_upstream_tries` where that is not 0.
pub fn tries(group: u32, configured: u32) -> u32 {
    if configured == 0 {
        group
    } else {
        group.min(configured)
    }
}

/// The methods nginx does not repeat: POST, LOCK and PATCH.
pub fn is_non_idempotent(method: &[u8]) -> bool {
    matches!(method, b"POST" | b"LOCK" | b"PATCH")
}

fn is_listed(failure: Failure, policy: &NextUpstream) -> bool {
    match failure {
        Failure::Error => policy.error,
        Failure::Timeout => policy.timeout,
        Failure::InvalidHeader => policy.invalid_header,
        Failure::Stale => true,
        Failure::NoLivePeer => false,
        Failure::Status(403) => policy.http_403,
        Failure::Status(404) => policy.http_404,
        Failure::Status(429) => policy.http_429,
        Failure::Status(500) => policy.http_500,
        Failure::Status(502) => policy.http_502,
        Failure::Status(503) => policy.http_503,
        Failure::Status(504) => policy.http_504,
        Failure::Status(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Situation = Situation {
        non_idempotent: false,
        request_sent: true,
        replayable: true,
        tries_left: 1,
        elapsed: Duration::ZERO,
        timeout: Duration::ZERO,
    };
    const POST: Situation = Situation {
        non_idempotent: true,
        ..GET
    };

    fn default() -> NextUpstream {
        NextUpstream {
            error: true,
            timeout: true,
            ..NextUpstream::default()
        }
    }

    #[test]
    fn only_listed_failures_are_retried() {
        let statuses = [403, 404, 429, 500, 502, 503, 504];
        let all: Vec<Failure> = [Failure::Error, Failure::Timeout, Failure::InvalidHeader]
            .into_iter()
            .chain(statuses.map(Failure::Status))
            .collect();
        for listed in &all {
            let mut policy = NextUpstream::default();
            match listed {
                Failure::Error => policy.error = true,
                Failure::Timeout => policy.timeout = true,
                Failure::InvalidHeader => policy.invalid_header = true,
                Failure::Status(403) => policy.http_403 = true,
                Failure::Status(404) => policy.http_404 = true,
                Failure::Status(429) => policy.http_429 = true,
                Failure::Status(500) => policy.http_500 = true,
                Failure::Status(502) => policy.http_502 = true,
                Failure::Status(503) => policy.http_503 = true,
                _ => policy.http_504 = true,
            }
            for failure in &all {
                assert_eq!(
                    may_retry(*failure, &policy, &GET),
                    failure == listed,
                    "{failure:?} with {listed:?}"
                );
            }
            assert!(!may_retry(
                *listed,
                &NextUpstream {
                    off: true,
                    ..policy
                },
                &GET
            ));
        }
        assert!(!may_retry(Failure::Status(200), &default(), &GET));
        assert!(!may_retry(Failure::NoLivePeer, &default(), &GET));
    }

    #[test]
    fn a_request_that_may_have_been_acted_upon_is_not_repeated() {
        let unsent = Situation {
            request_sent: false,
            ..POST
        };
        let willing = NextUpstream {
            non_idempotent: true,
            ..default()
        };
        for failure in [Failure::Error, Failure::Timeout, Failure::Stale] {
            assert!(!may_retry(failure, &default(), &POST));
            assert!(may_retry(failure, &default(), &unsent));
            assert!(may_retry(failure, &willing, &POST));
        }
    }

    #[test]
    fn a_body_that_is_gone_cannot_be_repeated() {
        let streamed = Situation {
            replayable: false,
            ..GET
        };
        assert!(!may_retry(Failure::Error, &default(), &streamed));
        assert!(!may_retry(Failure::Stale, &default(), &streamed));
        assert!(may_retry(
            Failure::Error,
            &default(),
            &Situation {
                request_sent: false,
                ..streamed
            }
        ));
    }

    #[test]
    fn tries_and_time_are_limited() {
        assert!(!may_retry(
            Failure::Error,
            &default(),
            &Situation {
                tries_left: 0,
                ..GET
            }
        ));
        let timed = |elapsed| Situation {
            elapsed: Duration::from_millis(elapsed),
            timeout: Duration::from_secs(1),
            ..GET
        };
        assert!(may_retry(Failure::Error, &default(), &timed(999)));
        assert!(!may_retry(Failure::Error, &default(), &timed(1000)));
        assert!(!may_retry(Failure::Stale, &default(), &timed(1000)));
        assert_eq!((tries(3, 0), tries(3, 2), tries(3, 9)), (3, 2, 3));
    }

    #[test]
    fn a_stale_connection_is_free_but_not_under_off() {
        let last = Situation {
            tries_left: 0,
            ..GET
        };
        assert!(may_retry(Failure::Stale, &NextUpstream::default(), &last));
        assert!(!may_retry(
            Failure::Stale,
            &NextUpstream {
                off: true,
                ..NextUpstream::default()
            },
            &last
        ));
    }

    #[test]
    fn what_counts_against_a_peer() {
        for (failure, retried, expected) in [
            (Failure::Error, false, Outcome::Failed),
            (Failure::Timeout, false, Outcome::Failed),
            (Failure::InvalidHeader, false, Outcome::Failed),
            (Failure::Status(500), true, Outcome::Failed),
            (Failure::Status(500), false, Outcome::Ok),
            (Failure::Status(404), true, Outcome::Ok),
            (Failure::Status(403), true, Outcome::Ok),
            (Failure::Stale, true, Outcome::NotCounted),
        ] {
            assert_eq!(outcome(failure, retried), expected, "{failure:?} {retried}");
        }
    }

    #[test]
    fn methods() {
        assert!(
            [&b"POST"[..], b"LOCK", b"PATCH"]
                .iter()
                .all(|method| is_non_idempotent(method))
        );
        assert!(
            ![&b"GET"[..], b"PUT", b"DELETE", b"post"]
                .iter()
                .any(|method| is_non_idempotent(method))
        );
    }
}
