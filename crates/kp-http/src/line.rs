//! One line of a head at a time: request lines, status lines, field lines.
//!
//! Decides what such a line may look like (RFC 9112 §3, §4, §5). The line comes without its end; where it ends is
//! `parse`'s business. Field lines are read here only where httparse does not: to tell what was wrong with one, and in
//! trailer sections.

use crate::error::{HeadCause, HeadError};
use crate::field::{Span, is_token, is_value_byte, trim_ows};
use crate::head::{Method, RequestLine, StatusLine, Version};
use crate::target;

/// nginx's alphabet of methods; RFC 9110 §9.1 allows any token, but what is not in capitals is a mistake.
pub(crate) fn is_method_byte(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'_' | b'-')
}

/// RFC 9112 §3: `method SP request-target SP HTTP-version`, single spaces, nothing else.
pub(crate) fn request_line(line: &[u8]) -> Result<RequestLine, HeadCause> {
    if line.contains(&b'\r') {
        return Err(HeadCause::BareCr);
    }
    let space = memchr::memchr(b' ', line).ok_or(HeadCause::BadRequestLine)?;
    let (method_text, rest) = line
        .split_at_checked(space)
        .ok_or(HeadCause::BadRequestLine)?;
    if method_text.is_empty() || !method_text.iter().all(|&byte| is_method_byte(byte)) {
        return Err(HeadCause::BadMethod);
    }
    let rest = rest.get(1..).unwrap_or_default();
    let length = memchr::memchr(b' ', rest).ok_or(HeadCause::BadRequestLine)?;
    let (target_text, version_text) = rest
        .split_at_checked(length)
        .ok_or(HeadCause::BadRequestLine)?;
    if target_text.is_empty() {
        return Err(HeadCause::BadRequestLine);
    }
    let version = version(version_text.get(1..).unwrap_or_default())?;
    let method = Method::of(method_text);
    let parts = target::parts(method, target_text)?;
    let at = space + 1;
    let shift = |span: Span| Span {
        at: span.at + at as u32,
        len: span.len,
    };
    Ok(RequestLine {
        method,
        version,
        method_len: Span::new(0, space).len,
        line_len: Span::new(0, line.len()).len,
        target: Span::new(at, at + length),
        path: shift(parts.path),
        authority: shift(parts.authority),
    })
}

/// RFC 9112 §2.3: `HTTP/` digit `.` digit. Any 1.x is read as the highest kp knows.
fn version(text: &[u8]) -> Result<Version, HeadCause> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Ok(Version::Http11),
        // HTTP/0.9 has no version to write, so this is not it.
        [b'H', b'T', b'T', b'P', b'/', b'2'..=b'9', b'.', b'0'..=b'9'] => {
            Err(HeadCause::UnsupportedVersion)
        }
        [b'H', b'T', b'T', b'P', b'/', ..] => Err(HeadCause::BadVersion),
        _ => Err(HeadCause::BadRequestLine),
    }
}

/// RFC 9112 §4: `HTTP-version SP 3DIGIT [SP reason-phrase]`; the last space may be missing with the phrase.
pub(crate) fn status_line(line: &[u8]) -> Result<StatusLine, HeadCause> {
    let (version_text, rest) = line.split_at_checked(8).ok_or(HeadCause::BadStatusLine)?;
    let version = version(version_text).map_err(|_| HeadCause::BadStatusLine)?;
    let (digits, reason) = match rest {
        [b' ', a, b, c] => ([*a, *b, *c], None),
        [b' ', a, b, c, b' ', reason @ ..] => ([*a, *b, *c], Some(reason)),
        _ => return Err(HeadCause::BadStatusLine),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(HeadCause::BadStatusLine);
    }
    let status = digits
        .iter()
        .fold(0, |status, digit| status * 10 + u16::from(digit - b'0'));
    // RFC 9110 §15: the valid range; what lies outside has no class to treat it by.
    if !matches!(status, 100..=599)
        || !reason
            .unwrap_or_default()
            .iter()
            .all(|&byte| is_value_byte(byte))
    {
        return Err(HeadCause::BadStatusLine);
    }
    let reason_len = reason.map_or(0, <[u8]>::len);
    Ok(StatusLine {
        version,
        status,
        line_len: Span::new(0, line.len()).len,
        reason: Span::new(line.len() - reason_len, line.len()),
    })
}

/// One field line without its line end, by the same rules as httparse's (RFC 9112 §5).
pub(crate) fn field_line(line: &[u8]) -> Result<(&[u8], &[u8]), HeadCause> {
    if matches!(line, [b' ' | b'\t', ..]) {
        return Err(HeadCause::Folded);
    }
    if line.contains(&b'\r') {
        return Err(HeadCause::BareCr);
    }
    let colon = memchr::memchr(b':', line).ok_or(HeadCause::NoColon)?;
    let (name, value) = line.split_at_checked(colon).ok_or(HeadCause::NoColon)?;
    let value = trim_ows(value.get(1..).unwrap_or_default());
    if matches!(name, [.., b' ' | b'\t']) {
        return Err(HeadCause::SpaceBeforeColon);
    }
    if !is_token(name) {
        return Err(HeadCause::BadName);
    }
    if !value.iter().all(|&byte| is_value_byte(byte)) {
        return Err(HeadCause::BadValue);
    }
    Ok((name, value))
}

/// Which of some complete lines is wrong first, and why. A head that arrives whole and is right never comes here.
#[cold]
pub(crate) fn first_bad_line(section: &[u8]) -> Option<HeadError> {
    section
        .split_inclusive(|&byte| byte == b'\n')
        .find_map(|line| {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                return None;
            }
            field_line(line)
                .err()
                .map(|cause| HeadError::named(cause, name_part(line)))
        })
}

/// What a log line shows of a bad field line: the part before the colon.
pub(crate) fn name_part(line: &[u8]) -> &[u8] {
    let end = memchr::memchr3(b':', b'\r', b'\n', line).unwrap_or(line.len());
    trim_ows(line.get(..end).unwrap_or_default())
}
