//! Clocks: the only place that reads one. Callers read once per loop turn and pass the number on.

#![allow(unsafe_code)]

use nix::time::{ClockId, clock_gettime};

/// Milliseconds of the monotonic clock; the same for all processes, unrelated to the date.
pub fn monotonic_ms() -> u64 {
    read_ms(ClockId::CLOCK_MONOTONIC)
}

/// Microseconds of the monotonic clock.
pub fn monotonic_us() -> u64 {
    // Reading this clock cannot fail on Linux, as below.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| {
        u64::try_from(now.tv_sec()).unwrap_or(0) * 1_000_000
            + u64::try_from(now.tv_nsec()).unwrap_or(0) / 1000
    })
}

/// Milliseconds since 1970-01-01 00:00:00 UTC.
pub fn unix_ms() -> u64 {
    read_ms(ClockId::CLOCK_REALTIME)
}

/// How far local time was ahead of UTC at that second, by the system's time zone.
pub fn utc_offset_seconds(unix: i64) -> i32 {
    // SAFETY: `tm` is plain old data, for which all bits zero is a valid value.
    let mut broken_down: libc::tm = unsafe { std::mem::zeroed() };
    let time: libc::time_t = unix;
    // SAFETY: both pointers are to live locals of the right type; localtime_r keeps neither.
    let filled = unsafe { libc::localtime_r(&raw const time, &raw mut broken_down) };
    if filled.is_null() {
        0
    } else {
        i32::try_from(broken_down.tm_gmtoff).unwrap_or(0)
    }
}

fn read_ms(clock: ClockId) -> u64 {
    // Reading these two clocks cannot fail on Linux; 0 would only stop timers, not harm memory.
    clock_gettime(clock).map_or(0, |now| {
        u64::try_from(now.tv_sec()).unwrap_or(0) * 1000
            + u64::try_from(now.tv_nsec()).unwrap_or(0) / 1_000_000
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_forward() {
        let (first, wall) = (monotonic_ms(), unix_ms());
        assert!(monotonic_us() / 1000 >= first);
        assert!(monotonic_ms() >= first && first > 0);
        assert!(wall > 1_600_000_000_000);
    }

    #[test]
    fn offset_is_a_time_zone_and_constant_within_a_day_without_changes() {
        let offset = utc_offset_seconds(1_700_000_000);
        assert!(offset.abs() <= 16 * 3600);
        assert_eq!(offset, utc_offset_seconds(1_700_000_001));
    }
}
