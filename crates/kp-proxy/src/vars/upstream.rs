//! `$upstream_*`: one value per attempt, joined with `, `, and with ` : ` where an internal redirect lies between.

use super::builtin::{number, seconds};
use crate::exchange::Attempt;

/// Appends `write`'s text for every attempt; false if there was none.
pub(super) fn list(
    attempts: &[Attempt],
    out: &mut Vec<u8>,
    mut write: impl FnMut(&Attempt, &mut Vec<u8>),
) -> bool {
    for (index, attempt) in attempts.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(if attempt.after_redirect {
                b" : "
            } else {
                b", "
            });
        }
        write(attempt, out);
    }
    !attempts.is_empty()
}

/// A time in seconds, or `-`.
pub(super) fn time(ms: Option<u32>, out: &mut Vec<u8>) {
    match ms {
        Some(ms) => seconds(u64::from(ms), out),
        None => out.push(b'-'),
    }
}

/// A status, or `-`.
pub(super) fn status(status: u16, out: &mut Vec<u8>) {
    match status {
        0 => out.push(b'-'),
        status => number(u64::from(status), out),
    }
}
