//! `sticky`: which peer a request's session is at, and the cookie that says so to the client.
//!
//! Does not decide whether that peer can be used: that is the group's. The cookie is nginx's, byte for byte, so that
//! sessions survive a move between the two.

use crate::vars::{self, headers};
use crate::{Context, Exchange, Program};
use kp_config::model::{CookieExpiry, Sticky, StickyCookie};
use kp_config::template::Template;
use std::time::{Duration, UNIX_EPOCH};

/// nginx's date and age of a cookie that never ends.
const NEVER_ENDS: &[u8] = b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000";

/// Appends what names the session's peer, or with `learn` the session itself; nothing where the request belongs to none.
pub fn session(
    sticky: &Sticky,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    match sticky {
        Sticky::Cookie(cookie) => {
            headers::cookie(&exchange.request.head, &cookie.name, out);
        }
        Sticky::Route(routes) => first_value(routes, exchange, program, context, out),
        Sticky::Learn(learn) => first_value(&learn.lookup, exchange, program, context, out),
    }
}

/// Appends the value of the first of these that has one.
pub fn first_value(
    of: &[Template],
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    let before = out.len();
    for template in of {
        vars::evaluate(template, exchange, program, context, out);
        if out.len() > before {
            return;
        }
    }
}

/// Notes in the exchange the `Set-Cookie` for a client whose request goes to the peer of this name.
pub fn set_cookie(
    cookie: &StickyCookie,
    sid: &str,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    let mut out = std::mem::take(&mut exchange.response.sticky);
    out.clear();
    out.extend_from_slice(b"Set-Cookie: ");
    out.extend_from_slice(cookie.name.as_bytes());
    out.push(b'=');
    out.extend_from_slice(sid.as_bytes());
    match cookie.expires {
        None => {}
        Some(CookieExpiry::Max) => out.extend_from_slice(NEVER_ENDS),
        Some(CookieExpiry::After(age)) => {
            write_expiry(&mut out, context.now.unix_ms / 1000, age.as_secs());
        }
    }
    let mut part = |name: &[u8], value: &Option<Template>, out: &mut Vec<u8>| {
        let Some(template) = value else { return };
        let before = out.len();
        out.extend_from_slice(name);
        let start = out.len();
        vars::evaluate(template, exchange, program, context, out);
        if out.len() == start {
            out.truncate(before);
        }
    };
    part(b"; domain=", &cookie.domain, &mut out);
    if cookie.http_only {
        out.extend_from_slice(b"; httponly");
    }
    if cookie.secure {
        out.extend_from_slice(b"; secure");
    }
    let before = out.len();
    part(SAME_SITE, &cookie.same_site, &mut out);
    correct_same_site(&mut out, before);
    if let Some(path) = &cookie.path {
        out.extend_from_slice(b"; path=");
        out.extend_from_slice(path.as_bytes());
    }
    // A variable's value must not begin another line of the head.
    out.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0));
    out.extend_from_slice(b"\r\n");
    exchange.response.sticky = out;
}

const SAME_SITE: &[u8] = b"; samesite=";

/// As nginx: what a variable says that is no mode becomes the strictest one.
fn correct_same_site(out: &mut Vec<u8>, start: usize) {
    let start = start + SAME_SITE.len();
    let known = match out.get(start..) {
        None => true,
        Some(mode) => [&b"strict"[..], b"lax", b"none"].contains(&mode),
    };
    if !known {
        out.truncate(start);
        out.extend_from_slice(b"strict");
    }
}

/// `; expires=Mon, 30-Nov-26 07:34:16 GMT; max-age=3600`.
fn write_expiry(out: &mut Vec<u8>, now_unix_s: u64, age_s: u64) {
    let end = UNIX_EPOCH.checked_add(Duration::from_secs(now_unix_s.saturating_add(age_s)));
    let Some(end) = end.filter(|_| age_s < NEVER_S) else {
        return out.extend_from_slice(NEVER_ENDS);
    };
    let date = httpdate::fmt_http_date(end);
    let mut words = date.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (weekday, day, month, year, time) = (word(), word(), word(), word(), word());
    out.extend_from_slice(b"; expires=");
    for piece in [weekday, " ", day, "-", month, "-"] {
        out.extend_from_slice(piece.as_bytes());
    }
    out.extend_from_slice(year.get(2..).unwrap_or_default().as_bytes());
    out.push(b' ');
    out.extend_from_slice(time.as_bytes());
    out.extend_from_slice(b" GMT; max-age=");
    out.extend_from_slice(itoa::Buffer::new().format(age_s).as_bytes());
}

/// Longer than this is for ever: dates have four digits for a year.
const NEVER_S: u64 = 1000 * 365 * 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    fn expiry(now_unix_s: u64, age_s: u64) -> String {
        let mut out = Vec::new();
        write_expiry(&mut out, now_unix_s, age_s);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn dates_are_nginx_s() {
        assert_eq!(
            expiry(1_796_020_456, 3600),
            "; expires=Mon, 30-Nov-26 07:34:16 GMT; max-age=3600"
        );
        assert_eq!(
            expiry(1_796_020_456, 0),
            "; expires=Mon, 30-Nov-26 06:34:16 GMT; max-age=0"
        );
        assert_eq!(expiry(1, u64::MAX).as_bytes(), NEVER_ENDS);
    }

    #[test]
    fn modes_of_samesite() {
        for (said, expected) in [
            ("; samesite=lax", "; samesite=lax"),
            ("; samesite=wrong", "; samesite=strict"),
            ("", ""),
        ] {
            let mut out = format!("x{said}").into_bytes();
            correct_same_site(&mut out, 1);
            assert_eq!(out, format!("x{expected}").into_bytes());
        }
    }
}
