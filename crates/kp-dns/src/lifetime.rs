//! How long an answer holds.

use std::time::Duration;

/// An answer holds at least so long, whatever it says: a name is asked for at most about once a second.
const FLOOR_MS: u64 = 1000;
/// And at most so long.
const CEILING_MS: u64 = 24 * 3600 * 1000;

/// How long an answer holds: what it says or `valid=`, at least a second, ±10 % so that names learned together are not
/// asked for together for ever. `random` is any number.
pub fn lifetime_ms(ttl_s: u32, valid: Option<Duration>, random: u64) -> u64 {
    let stated = match valid {
        Some(valid) => u64::try_from(valid.as_millis()).unwrap_or(CEILING_MS),
        None => u64::from(ttl_s).saturating_mul(1000),
    };
    let base = stated.clamp(FLOOR_MS, CEILING_MS);
    let tenth = base / 10;
    base - tenth + random % (2 * tenth + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_valid_and_jitter() {
        let all = |ttl, valid| -> (u64, u64) {
            let times = (0..100_000).map(|random| lifetime_ms(ttl, valid, random));
            times.fold((u64::MAX, 0), |(low, high), time| {
                (low.min(time), high.max(time))
            })
        };
        assert_eq!(all(0, None), (900, 1100));
        assert_eq!(all(30, None), (27_000, 33_000));
        assert_eq!(all(300, Some(Duration::from_secs(2))), (1800, 2200));
        assert_eq!(all(300, Some(Duration::ZERO)), (900, 1100));
        assert!(all(u32::MAX, None).1 < 100_000_000);
    }
}
