//! Whether a client connection may stay after an exchange: what the client asked for and what the location allows.
//!
//! Does not know how an exchange ends (`Failure::after`) nor whether the worker is draining: both only ever say no.

use crate::{Context, Exchange};
use kp_http::{Known, Method};

/// nginx's rules, in its order. The location is the one that answers.
pub fn may_stay(exchange: &Exchange, context: &Context<'_>) -> bool {
    let head = &exchange.request.head;
    if head.is_empty() || !head.persistent() {
        return false;
    }
    let location = &context.config.http.locations[exchange.location.index()];
    let connection = &exchange.connection;
    let age_ms = u128::from(context.now.mono_ms.saturating_sub(connection.accepted_ms));
    if location.keepalive_timeout.is_zero()
        || connection.requests >= location.keepalive_requests
        || age_ms > location.keepalive_time.as_millis()
    {
        return false;
    }
    let disable = location.keepalive_disable;
    if disable.msie6 && head.method == Method::Post || disable.safari {
        let agent = head.find(Known::UserAgent).unwrap_or_default();
        let refused = disable.msie6 && head.method == Method::Post && is_msie6(agent)
            || disable.safari && is_safari(agent);
        return !refused;
    }
    true
}

/// MSIE up to 6.
fn is_msie6(agent: &[u8]) -> bool {
    let Some(at) = memchr::memmem::find(agent, b"MSIE ") else {
        return false;
    };
    match agent.get(at + 5..) {
        Some([b'4' | b'5', b'.', ..]) => true,
        // Service pack 2 of Windows XP is past the trouble.
        Some([b'6', b'.', rest @ ..]) => memchr::memmem::find(rest, b"SV1").is_none(),
        _ => false,
    }
}

/// Safari and what calls itself so, on a Mac.
fn is_safari(agent: &[u8]) -> bool {
    let has = |word: &[u8]| memchr::memmem::find(agent, word).is_some();
    has(b"Safari/") && has(b"Mac OS X") && !has(b"Chrome/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers() {
        assert!(is_msie6(
            b"Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.0)"
        ));
        assert!(is_msie6(b"Mozilla/4.0 (compatible; MSIE 5.5; Windows 98)"));
        assert!(!is_msie6(
            b"Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)"
        ));
        assert!(!is_msie6(
            b"Mozilla/5.0 (compatible; MSIE 9.0; Windows NT 6.1)"
        ));
        assert!(is_safari(
            b"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) Version/15 Safari/605"
        ));
        assert!(!is_safari(
            b"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) Chrome/1 Safari/605"
        ));
    }
}
