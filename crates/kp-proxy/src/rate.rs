//! `limit_rate`: how fast an answer goes to the client.
//!
//! Decides which of its sources holds: what `set $limit_rate` or the upstream's `X-Accel-Limit-Rate` said, else the
//! location. The pace itself is kept by whoever sends.

use crate::vars;
use crate::{Context, Exchange, Program};
use kp_config::template::Template;

/// Bytes per second; 0: no limit.
pub fn limit_rate(exchange: &mut Exchange, program: &Program, context: &Context<'_>) -> u64 {
    if let Some(rate) = exchange.response.limit_rate {
        return rate;
    }
    let location = &context.config.http.locations[exchange.location.index()];
    value(location.limit_rate.as_ref(), exchange, program, context)
}

/// `limit_rate_after`: bytes that are sent before.
pub fn limit_rate_after(exchange: &mut Exchange, program: &Program, context: &Context<'_>) -> u64 {
    let location = &context.config.http.locations[exchange.location.index()];
    value(
        location.limit_rate_after.as_ref(),
        exchange,
        program,
        context,
    )
}

fn value(
    template: Option<&Template>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> u64 {
    let Some(template) = template else { return 0 };
    let mut text = Vec::new();
    vars::evaluate(template, exchange, program, context, &mut text);
    size(&text).unwrap_or(0)
}

/// `1024`, `8k`, `1m`, `1g`; `None` for anything else.
pub fn size(text: &[u8]) -> Option<u64> {
    let (digits, unit) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 1 << 10),
        [digits @ .., b'm' | b'M'] => (digits, 1 << 20),
        [digits @ .., b'g' | b'G'] => (digits, 1 << 30),
        digits => (digits, 1),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(number.saturating_mul(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1024", Some(1024)),
            ("4k", Some(4096)),
            ("1M", Some(1 << 20)),
            ("2g", Some(2 << 30)),
            ("", None),
            ("k", None),
            ("+1", None),
            ("1kk", None),
            ("many", None),
            ("18446744073709551615m", Some(u64::MAX)),
        ] {
            assert_eq!(size(text.as_bytes()), expected, "{text}");
        }
    }
}
