//! The worker's clock: read once per loop turn, formatted once per second.

use kp_proxy::context::{Dates, Now};
use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

/// The time of this loop turn.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) mono_ms: u64,
    /// The same moment, finer.
    pub(crate) mono_us: u64,
    pub(crate) unix_ms: u64,
    second: u64,
    dates: Dates,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let mut clock = Self {
            mono_ms: 0,
            mono_us: 0,
            unix_ms: 0,
            second: u64::MAX,
            dates: Dates::default(),
        };
        clock.read();
        clock
    }

    /// Reads both clocks.
    pub(crate) fn read(&mut self) {
        self.mono_us = kp_sys::clock::monotonic_us();
        self.mono_ms = self.mono_us / 1000;
        self.unix_ms = kp_sys::clock::unix_ms();
        let second = self.unix_ms / 1000;
        if second != self.second {
            self.second = second;
            self.dates = dates(second, kp_sys::clock::utc_offset_seconds(second as i64));
        }
    }

    pub(crate) fn now(&self) -> Now<'_> {
        Now {
            mono_ms: self.mono_ms,
            unix_ms: self.unix_ms,
            dates: &self.dates,
        }
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The texts of one second, in the local time zone `offset_s` east of Greenwich.
pub(crate) fn dates(unix_s: u64, offset_s: i32) -> Dates {
    let http = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s));
    let local = unix_s as i64 + i64::from(offset_s);
    let (year, month, day) = civil_date(local.div_euclid(86_400));
    let second_of_day = local.rem_euclid(86_400);
    let (hour, minute, second) = (
        second_of_day / 3600,
        second_of_day / 60 % 60,
        second_of_day % 60,
    );
    let sign = if offset_s < 0 { '-' } else { '+' };
    let (zone_hour, zone_minute) = (offset_s.abs() / 3600, offset_s.abs() / 60 % 60);
    let month_name = MONTHS.get(month as usize - 1).copied().unwrap_or("Jan");
    let mut texts = Dates {
        http,
        ..Dates::default()
    };
    // Writing to a String cannot fail.
    let _ = write!(
        texts.local,
        "{day:02}/{month_name}/{year:04}:{hour:02}:{minute:02}:{second:02} {sign}{zone_hour:02}{zone_minute:02}"
    );
    let _ = write!(
        texts.iso8601,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{sign}{zone_hour:02}:{zone_minute:02}"
    );
    let _ = write!(
        texts.error_log,
        "{year:04}/{month:02}/{day:02} {hour:02}:{minute:02}:{second:02}"
    );
    texts
}

/// A second as syslog writes it (RFC 3164, section 4.1.2): `Nov  6 08:49:37`, in the local time zone.
pub(crate) fn syslog_date(unix_s: u64, offset_s: i32) -> String {
    let local = unix_s as i64 + i64::from(offset_s);
    let (_, month, day) = civil_date(local.div_euclid(86_400));
    let second = local.rem_euclid(86_400);
    let name = MONTHS.get(month as usize - 1).copied().unwrap_or("Jan");
    format!(
        "{name} {day:2} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of a day number counted from 1970-01-01 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil_date(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_shifted + 2) / 5 + 1) as u32;
    let month = if month_shifted < 10 {
        month_shifted + 3
    } else {
        month_shifted - 9
    } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_known_second() {
        let texts = dates(784_111_777, 0);
        assert_eq!(texts.http, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(texts.local, "06/Nov/1994:08:49:37 +0000");
        assert_eq!(texts.iso8601, "1994-11-06T08:49:37+00:00");
        assert_eq!(texts.error_log, "1994/11/06 08:49:37");
        assert_eq!(syslog_date(784_111_777, 0), "Nov  6 08:49:37");
        assert_eq!(syslog_date(784_111_777, 4 * 86_400), "Nov 10 08:49:37");
    }

    #[test]
    fn zones_on_both_sides_and_the_leap_day() {
        let leap = 951_782_400; // 2000-02-29T00:00:00Z
        assert_eq!(
            dates(leap, 5 * 3600 + 1800).local,
            "29/Feb/2000:05:30:00 +0530"
        );
        assert_eq!(dates(leap, -3600).local, "28/Feb/2000:23:00:00 -0100");
        assert_eq!(dates(1_709_251_199, 0).iso8601, "2024-02-29T23:59:59+00:00");
    }
}
