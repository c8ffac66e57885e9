//! Request targets and hosts: which forms are legal, what they mean, how they are written.
//!
//! Decides: the four target forms and which method may use which (RFC 9112 §3.2), what a host is, nginx's
//! normalisation of a path (decode, resolve dot segments, merge slashes) and nginx's kinds of escaping.
//! Does not decide where a request goes.

use crate::error::HeadCause;
use crate::field::Span;
use crate::head::Method;
use std::ops::Range;

/// Path and authority of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Parts {
    pub(crate) path: Span,
    pub(crate) authority: Span,
}

/// Takes a target apart. Spans count from the start of `target`.
pub(crate) fn parts(method: Method, target: &[u8]) -> Result<Parts, HeadCause> {
    // nginx passes 8-bit characters; a fragment is no part of a target (RFC 9112 §3.2.1).
    if !target
        .iter()
        .all(|&byte| byte > b' ' && byte != 0x7f && byte != b'#')
    {
        return Err(HeadCause::BadTarget);
    }
    let whole = Span::new(0, target.len());
    match (method, target) {
        // RFC 9112 §3.2.3: authority form, with a port, is what CONNECT takes and nobody else.
        (Method::Connect, _) => match split_host(target) {
            Some((_, Some(_))) => Ok(Parts {
                path: Span::default(),
                authority: whole,
            }),
            _ => Err(HeadCause::BadTarget),
        },
        (_, [b'/', ..]) => Ok(Parts {
            path: whole,
            authority: Span::default(),
        }),
        // RFC 9112 §3.2.4.
        (Method::Options, b"*") => Ok(Parts {
            path: whole,
            authority: Span::default(),
        }),
        _ => absolute(target),
    }
}

/// RFC 9112 §3.2.2: `scheme://authority`, then a path, a query, or nothing.
fn absolute(target: &[u8]) -> Result<Parts, HeadCause> {
    let colon = memchr::memchr(b':', target).ok_or(HeadCause::BadTarget)?;
    let (scheme, rest) = target.split_at_checked(colon).ok_or(HeadCause::BadTarget)?;
    let scheme_is_good = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    let Some(rest) = rest.strip_prefix(b"://").filter(|_| scheme_is_good) else {
        return Err(HeadCause::BadTarget);
    };
    let length = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    let authority = rest.get(..length).unwrap_or_default();
    // RFC 9110 §4.2.4: userinfo in a target of unknown origin is an error; `@` is no host character.
    split_host(authority).ok_or(HeadCause::BadHost)?;
    let at = colon + 3;
    Ok(Parts {
        path: Span::new(at + length, target.len()),
        authority: Span::new(at, at + length),
    })
}

/// Host and port of a `Host` value or an authority, if it is one: a name or an address, then a colon and at most a
/// number up to 65535. Of the characters of RFC 3986 §3.2.2 the comma is left out: it is how a list of hosts looks.
/// Dots as nginx: none at the start of the port, no two in a row, and not alone.
#[must_use]
pub fn split_host(text: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let end = match text {
        [b'[', inside @ ..] => {
            let close = memchr::memchr(b']', inside)?;
            let address = inside.get(..close)?;
            if !is_ip_literal(address) {
                return None;
            }
            close + 2
        }
        _ => {
            let end = memchr::memchr(b':', text).unwrap_or(text.len());
            let name = text.get(..end)?;
            if name.is_empty() || name == b"." || !is_name(name) {
                return None;
            }
            end
        }
    };
    let host = text.get(..end)?;
    match text.get(end..)? {
        [] | [b':'] => Some((host, None)),
        [b':', digits @ ..] => Some((host, Some(port(digits)?))),
        _ => None,
    }
}

/// Appends `$host`: lower case, without port, without a final dot. `text` is a validated host; anything else
/// appends nothing.
pub fn host_name(text: &[u8], out: &mut Vec<u8>) {
    let Some((host, _)) = split_host(text) else {
        return;
    };
    let host = host.strip_suffix(b".").unwrap_or(host);
    out.extend(host.iter().map(u8::to_ascii_lowercase));
}

fn is_name(name: &[u8]) -> bool {
    let mut dot = false;
    name.iter().all(|&byte| {
        let after_dot = std::mem::replace(&mut dot, byte == b'.');
        is_name_byte(byte) && !(dot && after_dot)
    })
}

/// The inside of brackets (RFC 3986 §3.2.2): an IPv6 address with a zone at most, or `v1.anything`.
fn is_ip_literal(text: &[u8]) -> bool {
    if text.is_empty() || text.windows(2).any(|pair| pair == b"..") {
        return false;
    }
    match text {
        [b'v' | b'V', rest @ ..] => rest
            .iter()
            .all(|&byte| is_name_byte(byte) || matches!(byte, b':' | b',')),
        _ => text.iter().all(|&byte| {
            byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.' | b'%' | b'-' | b'_')
        }),
    }
}

fn is_name_byte(byte: u8) -> bool {
    NAME_BYTES[usize::from(byte)]
}

/// By table, since every byte of every `Host` is looked at.
static NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = may_be_in_name(byte as u8);
        byte += 1;
    }
    table
};

const fn may_be_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b';'
                | b'='
        )
}

fn port(digits: &[u8]) -> Option<u16> {
    let mut port = 0u16;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        port = port.checked_mul(10)?.checked_add(u16::from(byte - b'0'))?;
    }
    Some(port)
}

/// A path that cannot be normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetError {
    /// A `%` that is not followed by two hexadecimal digits.
    BadEscape,
    /// `%00`.
    Nul,
    /// `..` above the root.
    AboveRoot,
}

impl std::fmt::Display for TargetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BadEscape => "invalid escape in URI",
            Self::Nul => "NUL in URI",
            Self::AboveRoot => "URI above the root",
        })
    }
}

impl std::error::Error for TargetError {}

/// How far the last segment was read, for dot segments and slashes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Segment {
    /// Inside a segment that is neither `.` nor `..`.
    Inside,
    /// Just after a slash.
    Start,
    /// `/.`
    Dot,
    /// `/..`
    DotDot,
}

/// Appends `$uri` to `out` and tells where in `target` the arguments are (after the first `?`; empty without one).
///
/// `target` is what [`crate::RequestHead::path_and_query`] gives. Escapes are decoded first, so `%2F` and `%2E` count
/// as slashes and dots; `%3F`, `%23` and `%25` are ordinary characters of the path. Everything from a `#` on is cut.
/// The asterisk form becomes `/`.
pub fn normalise(
    target: &[u8],
    merge_slashes: bool,
    out: &mut Vec<u8>,
) -> Result<Range<usize>, TargetError> {
    if target == b"*" {
        out.push(b'/');
        return Ok(target.len()..target.len());
    }
    let base = out.len();
    let mut segment = Segment::Inside;
    let mut at = 0;
    let mut arguments = target.len()..target.len();
    while let Some(&byte) = target.get(at) {
        at += 1;
        match byte {
            b'?' => {
                let rest = target.get(at..).unwrap_or_default();
                arguments = at..memchr::memchr(b'#', rest).map_or(target.len(), |cut| at + cut);
                break;
            }
            b'#' => break,
            b'%' => {
                let decoded = escape_at(target, at)?;
                at += 2;
                match decoded {
                    0 => return Err(TargetError::Nul),
                    b'/' | b'.' => segment = push(out, base, segment, decoded, merge_slashes)?,
                    _ => {
                        out.push(decoded);
                        segment = Segment::Inside;
                    }
                }
            }
            b'/' | b'.' => segment = push(out, base, segment, byte, merge_slashes)?,
            _ => {
                out.push(byte);
                segment = Segment::Inside;
            }
        }
    }
    match segment {
        Segment::Dot => out.truncate(out.len() - 1),
        Segment::DotDot => pop_segment(out, base)?,
        Segment::Inside | Segment::Start => {}
    }
    Ok(arguments)
}

/// Adds a slash or a dot, the only characters that can end or make a dot segment.
fn push(
    out: &mut Vec<u8>,
    base: usize,
    segment: Segment,
    byte: u8,
    merge_slashes: bool,
) -> Result<Segment, TargetError> {
    if byte == b'.' {
        out.push(byte);
        return Ok(match segment {
            Segment::Start => Segment::Dot,
            Segment::Dot => Segment::DotDot,
            Segment::Inside | Segment::DotDot => Segment::Inside,
        });
    }
    match segment {
        Segment::Inside => out.push(b'/'),
        Segment::Start if merge_slashes => {}
        Segment::Start => out.push(b'/'),
        Segment::Dot => out.truncate(out.len() - 1),
        Segment::DotDot => pop_segment(out, base)?,
    }
    Ok(Segment::Start)
}

/// Takes `/..` off the end and the segment before it, and leaves that segment's slash.
fn pop_segment(out: &mut Vec<u8>, base: usize) -> Result<(), TargetError> {
    let end = out.len().saturating_sub(3);
    let kept = out.get(base..end).unwrap_or_default();
    let slash = memchr::memrchr(b'/', kept).ok_or(TargetError::AboveRoot)?;
    out.truncate(base + slash + 1);
    Ok(())
}

fn escape_at(text: &[u8], at: usize) -> Result<u8, TargetError> {
    let digit = |at: usize| text.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    match (digit(at), digit(at + 1)) {
        (Some(high), Some(low)) => Ok((high * 16 + low) as u8),
        _ => Err(TargetError::BadEscape),
    }
}

/// nginx's kinds of escaping: what stays as it is differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// A path: everything legal in one stays, slashes too.
    Uri,
    /// One value inside a query string.
    Args,
    /// One component: only unreserved characters stay (RFC 3986 §2.3).
    Component,
}

/// Appends `text` with everything else than the kind's own characters as `%XX`, in upper case.
pub fn escape_uri(out: &mut Vec<u8>, text: &[u8], kind: Escape) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.reserve(text.len());
    for &byte in text {
        if kind.keeps(byte) {
            out.push(byte);
        } else {
            let [high, low] = [byte >> 4, byte & 15]
                .map(|digit| DIGITS.get(usize::from(digit)).copied().unwrap_or(b'0'));
            out.extend_from_slice(&[b'%', high, low]);
        }
    }
}

impl Escape {
    fn keeps(self, byte: u8) -> bool {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => true,
            b'!' | b'$' | b'\'' | b'(' | b')' | b'*' | b',' | b'/' | b':' | b'=' | b'@' | b'['
            | b']' => self != Self::Component,
            b'&' | b'+' | b';' => self == Self::Uri,
            _ => false,
        }
    }
}

/// nginx's kinds of unescaping. Neither fails: a broken escape stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unescape {
    /// Every escape.
    All,
    /// Only those that are legal unescaped in a `Location`: above `%` and below DEL.
    Redirect,
}

/// Appends `text` with its escapes decoded. With [`Unescape::Redirect`] a `?` ends decoding; the rest is copied.
pub fn unescape_uri(out: &mut Vec<u8>, text: &[u8], kind: Unescape) {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'?' if kind == Unescape::Redirect => {
                out.push(byte);
                out.extend_from_slice(text.get(at..).unwrap_or_default());
                return;
            }
            b'%' => match escape_at(text, at) {
                Ok(decoded) if kind == Unescape::All || (decoded > b'%' && decoded < 0x7f) => {
                    out.push(decoded);
                    at += 2;
                }
                _ => out.push(byte),
            },
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalised(target: &str, merge_slashes: bool) -> Result<(String, String), TargetError> {
        let mut out = Vec::new();
        let arguments = normalise(target.as_bytes(), merge_slashes, &mut out)?;
        let text = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|&byte| char::from(byte))
                .collect::<String>()
        };
        Ok((text(&out), text(&target.as_bytes()[arguments])))
    }

    /// Measured on nginx 1.31.
    #[test]
    fn paths_as_nginx_reads_them() {
        for (target, path, arguments) in [
            ("/", "/", ""),
            ("/name/a%2Fb?x=%20", "/name/a/b", "x=%20"),
            ("/name/a%20b", "/name/a b", ""),
            ("/name/%7Euser", "/name/~user", ""),
            ("/name/../name/a", "/name/a", ""),
            ("/name//a", "/name/a", ""),
            ("/name/%C3%A9", "/name/\u{c3}\u{a9}", ""),
            ("/name/a%3Fb", "/name/a?b", ""),
            ("/name/a%25b", "/name/a%b", ""),
            ("/a%3fb%23%25", "/a?b#%", ""),
            ("/a%2f..%2fb", "/b", ""),
            ("/a/%2e%2e/b", "/b", ""),
            ("/a/.%2e/b", "/b", ""),
            ("/a/..", "/", ""),
            ("/a/.", "/a/", ""),
            ("/a/./b", "/a/b", ""),
            ("/a/..?x", "/", "x"),
            ("/a/.?x", "/a/", "x"),
            ("/a/...", "/a/...", ""),
            ("/a/..b/.c", "/a/..b/.c", ""),
            ("/a/b.", "/a/b.", ""),
            ("/a/b..", "/a/b..", ""),
            ("/a+b%2B", "/a+b+", ""),
            ("/a\\b", "/a\\b", ""),
            ("/a?%zz", "/a", "%zz"),
            ("/%0d%0a", "/\r\n", ""),
            ("/x??y", "/x", "?y"),
            ("/x?", "/x", ""),
            ("/a#b", "/a", ""),
            ("/a?b#c", "/a", "b"),
            ("/a/..#b", "/", ""),
            ("/a/b/../../c/", "/c/", ""),
            ("/a///b", "/a/b", ""),
            ("*", "/", ""),
        ] {
            assert_eq!(
                normalised(target, true),
                Ok((path.to_owned(), arguments.to_owned())),
                "{target}"
            );
        }
    }

    #[test]
    fn slashes_are_kept_where_they_are_not_merged() {
        for (target, path) in [
            ("/a//b", "/a//b"),
            ("//", "//"),
            ("/a//../b", "/a/b"),
            ("/a//..", "/a/"),
            ("/a/%2f/b", "/a///b"),
            ("/a/.//b", "/a//b"),
        ] {
            assert_eq!(
                normalised(target, false),
                Ok((path.to_owned(), String::new())),
                "{target}"
            );
        }
    }

    #[test]
    fn paths_nginx_refuses() {
        for (target, error) in [
            ("/..", TargetError::AboveRoot),
            ("/../x", TargetError::AboveRoot),
            ("/a/../../x", TargetError::AboveRoot),
            ("/..?x", TargetError::AboveRoot),
            ("/%2e%2e/x", TargetError::AboveRoot),
            ("/%00", TargetError::Nul),
            ("/%", TargetError::BadEscape),
            ("/%4", TargetError::BadEscape),
            ("/%zz", TargetError::BadEscape),
            ("/%4g", TargetError::BadEscape),
            ("/%?4", TargetError::BadEscape),
            ("/%+1", TargetError::BadEscape),
        ] {
            assert_eq!(normalised(target, true), Err(error), "{target}");
            assert_eq!(normalised(target, false), Err(error), "{target}");
        }
    }

    #[test]
    fn what_was_there_before_stays() {
        let mut out = b"/x/y".to_vec();
        assert_eq!(normalise(b"/a/../b", true, &mut out), Ok(7..7));
        assert_eq!(out, b"/x/y/b");
        assert_eq!(
            normalise(b"/..", true, &mut b"/x".to_vec()),
            Err(TargetError::AboveRoot)
        );
    }

    /// Measured on nginx 1.31: a replaced prefix, a capture in a query, and the component kind of its documentation.
    #[test]
    fn escapes_keep_what_nginx_keeps() {
        let kept = |kind| {
            let mut kept = String::new();
            for byte in 0..=255u8 {
                let mut out = Vec::new();
                escape_uri(&mut out, &[byte], kind);
                if out == [byte] {
                    kept.push(char::from(byte));
                } else {
                    assert_eq!(String::from_utf8_lossy(&out), format!("%{byte:02X}"));
                }
            }
            kept
        };
        let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let small = letters.to_ascii_lowercase();
        assert_eq!(
            kept(Escape::Uri),
            format!("!$&'()*+,-./0123456789:;=@{letters}[]_{small}~")
        );
        assert_eq!(
            kept(Escape::Args),
            format!("!$'()*,-./0123456789:=@{letters}[]_{small}~")
        );
        assert_eq!(
            kept(Escape::Component),
            format!("-.0123456789{letters}_{small}~")
        );
    }

    #[test]
    fn unescaping() {
        for (text, all, redirect) in [
            ("a%41%20", "aA ", "aA%20"),
            ("%25%24%26", "%$&", "%25%24&"),
            ("%7e%7f%80", "~\u{7f}\u{80}", "~%7f%80"),
            ("a?%41", "a?A", "a?%41"),
            ("%", "%", "%"),
            ("%4", "%4", "%4"),
            ("%zz%41", "%zzA", "%zzA"),
        ] {
            for (kind, want) in [(Unescape::All, all), (Unescape::Redirect, redirect)] {
                let mut out = Vec::new();
                unescape_uri(&mut out, text.as_bytes(), kind);
                let want: Vec<u8> = want.chars().map(|char| u32::from(char) as u8).collect();
                assert_eq!(out, want, "{text} {kind:?}");
            }
        }
    }

    #[test]
    fn hosts_are_split_and_lowered() {
        for (text, host, port) in [
            ("Example.TEST", "example.test", None),
            ("Foo.Test:99", "foo.test", Some(99)),
            ("a.", "a", None),
            ("a.:80", "a", Some(80)),
            ("a:", "a", None),
            ("[::A]:8080", "[::a]", Some(8080)),
            ("[::1]", "[::1]", None),
            ("a:65535", "a", Some(65535)),
        ] {
            let mut out = b"-".to_vec();
            host_name(text.as_bytes(), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), format!("-{host}"), "{text}");
            assert_eq!(
                split_host(text.as_bytes()).and_then(|(_, port)| port),
                port,
                "{text}"
            );
        }
        let mut out = Vec::new();
        host_name(b"a b", &mut out);
        assert!(out.is_empty());
    }
}
