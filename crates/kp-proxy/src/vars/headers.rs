//! Variables named after header fields, arguments and cookies.
//!
//! Names in variables are lower case with `_` for `-`. Several fields of one name are joined with `, ` (`Cookie` with
//! `; `), as nginx since 1.23.

use kp_http::{Known, RequestHead, ResponseHead};

/// `$http_NAME`.
pub(super) fn request(head: &RequestHead, name: &str, out: &mut Vec<u8>) -> bool {
    let separator = if name == "cookie" { b"; " } else { b", " };
    let values = head
        .fields()
        .filter(|field| is_named(head.name(field), name.as_bytes()))
        .map(|field| head.value(field));
    join(values, separator, out)
}

/// `$upstream_http_NAME`.
pub(super) fn response(head: &ResponseHead, name: &str, out: &mut Vec<u8>) -> bool {
    let values = head
        .fields()
        .filter(|field| is_named(head.name(field), name.as_bytes()))
        .map(|field| head.value(field));
    join(values, b", ", out)
}

/// `$sent_http_NAME` and the trailers: a field of an encoded head or of raw trailer lines.
pub(super) fn line(lines: &[u8], name: &str, out: &mut Vec<u8>) -> bool {
    let values = lines
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let colon = memchr::memchr(b':', line)?;
            is_named(line.get(..colon)?, name.as_bytes()).then(|| line.get(colon + 1..))?
        })
        .map(<[u8]>::trim_ascii);
    join(values, b", ", out)
}

/// Every `X-Forwarded-For`, each followed by `, `, for `$proxy_add_x_forwarded_for`.
pub(crate) fn forwarded_for(head: &RequestHead, out: &mut Vec<u8>) {
    for field in head
        .fields()
        .filter(|field| field.known() == Known::XForwardedFor)
    {
        out.extend_from_slice(head.value(field));
        out.extend_from_slice(b", ");
    }
}

fn join<'a>(values: impl Iterator<Item = &'a [u8]>, separator: &[u8], out: &mut Vec<u8>) -> bool {
    let mut found = false;
    for value in values {
        if found {
            out.extend_from_slice(separator);
        }
        found = true;
        out.extend_from_slice(value);
    }
    found
}

/// Whether a field's name is the one a variable means.
fn is_named(field: &[u8], name: &[u8]) -> bool {
    field.len() == name.len()
        && field.iter().zip(name).all(|(&byte, &wanted)| match byte {
            b'-' => wanted == b'_',
            byte => byte.to_ascii_lowercase() == wanted,
        })
}

/// `$arg_NAME`: the first argument of that name, in any case, as it stands.
pub(super) fn argument(args: &[u8], name: &str, out: &mut Vec<u8>) -> bool {
    if name.is_empty() {
        return false;
    }
    for argument in args.split(|&byte| byte == b'&') {
        let Some((key, value)) = argument.split_at_checked(name.len()) else {
            continue;
        };
        if let Some(value) = value.strip_prefix(b"=")
            && key.eq_ignore_ascii_case(name.as_bytes())
        {
            out.extend_from_slice(value);
            return true;
        }
    }
    false
}

/// `$cookie_NAME`, in any case.
pub(crate) fn cookie(head: &RequestHead, name: &str, out: &mut Vec<u8>) -> bool {
    let value = head
        .fields()
        .filter(|field| field.known() == Known::Cookie)
        .find_map(|field| cookie_in(head.value(field), name.as_bytes()));
    value
        .inspect(|value| out.extend_from_slice(value))
        .is_some()
}

/// One cookie of a `Cookie` value.
fn cookie_in<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut rest = value;
    while !rest.is_empty() {
        if let Some((key, after)) = rest.split_at_checked(name.len())
            && key.eq_ignore_ascii_case(name)
            && let Some(value) = skip_spaces(after).strip_prefix(b"=")
        {
            let value = skip_spaces(value);
            return value.get(..memchr::memchr(b';', value).unwrap_or(value.len()));
        }
        let end = memchr::memchr(b';', rest)?;
        rest = skip_spaces(rest.get(end + 1..)?);
    }
    None
}

/// `$upstream_cookie_NAME`: the value in the first `Set-Cookie` of that name.
pub(super) fn set_cookie(head: &ResponseHead, name: &str, out: &mut Vec<u8>) -> bool {
    let value = head
        .fields()
        .filter(|field| field.known() == Known::SetCookie)
        .find_map(|field| {
            let (key, after) = head.value(field).split_at_checked(name.len())?;
            if !key.eq_ignore_ascii_case(name.as_bytes()) {
                return None;
            }
            let value = skip_spaces(skip_spaces(after).strip_prefix(b"=")?);
            value.get(..memchr::memchr(b';', value).unwrap_or(value.len()))
        });
    value
        .inspect(|value| out.extend_from_slice(value))
        .is_some()
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    text.get(spaces..).unwrap_or_default()
}

/// `$remote_user`: the user name of `Authorization: Basic`.
pub(super) fn basic_user(head: &RequestHead, out: &mut Vec<u8>) -> bool {
    let user = head.find(Known::Authorization).and_then(|value| {
        let (scheme, encoded) = value.split_at_checked(b"Basic ".len())?;
        let mut decoded = scheme
            .eq_ignore_ascii_case(b"Basic ")
            .then(|| base64(skip_spaces(encoded)))??;
        decoded.truncate(memchr::memchr(b':', &decoded)?);
        Some(decoded)
    });
    user.inspect(|user| out.extend_from_slice(user)).is_some()
}

/// RFC 4648 §4, padding optional, as nginx decodes it.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.get(..memchr::memchr(b'=', text).unwrap_or(text.len()))?;
    if text.is_empty() || text.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0u32, 0u32);
    for &byte in text {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(six)) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held & 0xff) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(args: &str, name: &str) -> Option<String> {
        let mut out = Vec::new();
        argument(args.as_bytes(), name, &mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn arguments() {
        let cases = [
            ("a=1&b=2", "b", Some("2")),
            ("a=1&A=2", "a", Some("1")),
            ("B=2", "b", Some("2")),
            ("xb=1&b=2", "b", Some("2")),
            ("b", "b", None),
            ("b=", "b", Some("")),
            ("bb=1", "b", None),
            ("a=b=c&d", "a", Some("b=c")),
            ("a=%20", "a", Some("%20")),
            ("", "a", None),
        ];
        for (args, name, value) in cases {
            assert_eq!(arg(args, name).as_deref(), value, "{args} {name}");
        }
    }

    #[test]
    fn cookies() {
        let cases: &[(&str, &str, Option<&str>)] = &[
            ("a=1; b=2", "b", Some("2")),
            ("A=1", "a", Some("1")),
            ("ab=1; b=2", "b", Some("2")),
            ("b = 2 ; c", "b", Some("2 ")),
            ("x,b=2;b=3,c", "b", Some("3,c")),
            ("b; b=3", "b", Some("3")),
            ("b", "b", None),
            ("b=", "b", Some("")),
        ];
        for (value, name, expected) in cases {
            let found = cookie_in(value.as_bytes(), name.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{value} {name}");
        }
    }

    #[test]
    fn base64_as_nginx_takes_it() {
        assert_eq!(base64(b"dXNlcjpwYXNz").as_deref(), Some(&b"user:pass"[..]));
        assert_eq!(base64(b"dTpw").as_deref(), Some(&b"u:p"[..]));
        assert_eq!(base64(b"dTpwYQ==").as_deref(), Some(&b"u:pa"[..]));
        assert_eq!(base64(b"dTpwYQ").as_deref(), Some(&b"u:pa"[..]));
        assert_eq!(base64(b"d"), None);
        assert_eq!(base64(b"d*pw"), None);
        assert_eq!(base64(b""), None);
    }

    #[test]
    fn lines_of_a_head() {
        let mut out = Vec::new();
        let head =
            b"HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Type:text/plain \r\nx-a: 2\r\n\r\nX-A: no";
        assert!(line(head, "x_a", &mut out));
        assert!(line(head, "content_type", &mut out));
        assert!(!line(head, "x_b", &mut out));
        assert_eq!(out, b"1, 2, notext/plain");
    }
}
