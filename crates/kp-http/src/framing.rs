//! How a body is delimited: RFC 9112 §6.3 for both roles, in one place.
//!
//! Decides: which framing a head declares, and which declarations are refused because two readers could disagree.
//! Does not decode bodies (`body`), nor find the fields (`parse`).

use crate::error::HeadCause;
use crate::field::{elements, is_token, trim_ows};
use crate::head::{Method, Version};

/// How a message's body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is no body, whatever the fields say.
    #[default]
    None,
    /// Exactly so many bytes.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// Everything until the sender closes; responses only.
    UntilClose,
}

/// What a head says in one field that must not occur twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared<'a> {
    Absent,
    Once(&'a [u8]),
    Again,
}

/// The framing of a request.
pub(crate) fn of_request(
    version: Version,
    length: Declared<'_>,
    coding: Declared<'_>,
) -> Result<Framing, HeadCause> {
    if coding != Declared::Absent && version == Version::Http10 {
        // RFC 9112 §6.1: such a message is faulty, even if a Content-Length is there.
        return Err(HeadCause::TransferEncodingInHttp10);
    }
    // RFC 9112 §6.3 rule 7: a request without either field has no body.
    Ok(declared(length, coding)?.unwrap_or(Framing::None))
}

/// The framing of a response to a request with `method`.
pub(crate) fn of_response(
    status: u16,
    method: Method,
    length: Declared<'_>,
    coding: Declared<'_>,
) -> Result<Framing, HeadCause> {
    if never_has_length(status) || (method == Method::Connect && matches!(status, 200..=299)) {
        // RFC 9112 §6.3 rules 1 and 2; RFC 9110 §8.6 and RFC 9112 §6.1 forbid both fields there, so they are not
        // believed and not passed on, and need not make sense.
        return Ok(Framing::None);
    }
    let framing = declared(length, coding)?;
    if method == Method::Head || status == 304 {
        // RFC 9112 §6.3 rule 1: the fields describe the answer to a GET.
        return Ok(Framing::None);
    }
    // RFC 9112 §6.3 rule 8.
    Ok(framing.unwrap_or(Framing::UntilClose))
}

/// Statuses whose responses carry neither a body nor a length (RFC 9110 §8.6, RFC 9112 §6.1).
pub(crate) fn never_has_length(status: u16) -> bool {
    matches!(status, 100..=199 | 204)
}

fn declared(length: Declared<'_>, coding: Declared<'_>) -> Result<Option<Framing>, HeadCause> {
    match (length, coding) {
        (Declared::Absent, Declared::Absent) => Ok(None),
        // RFC 9112 §6.3 rule 3: ought to be handled as an error; whoever sends both is broken or an attacker.
        (_, Declared::Once(_) | Declared::Again) if length != Declared::Absent => {
            Err(HeadCause::LengthAndTransferEncoding)
        }
        (_, Declared::Again) => Err(HeadCause::RepeatedTransferEncoding),
        (_, Declared::Once(value)) => chunked(value).map(|()| Some(Framing::Chunked)),
        // RFC 9112 §6.3 rule 5: equal values may be folded or refused; refused, as nginx does.
        (Declared::Again, Declared::Absent) => Err(HeadCause::RepeatedLength),
        (Declared::Once(value), Declared::Absent) => content_length(value)
            .map(|length| Some(Framing::Length(length)))
            .ok_or(HeadCause::BadLength),
    }
}

/// RFC 9110 §8.6: digits and nothing else. A value beyond `i64::MAX` is refused, so that sums cannot overflow.
fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    let mut length = 0u64;
    for &byte in value {
        if !byte.is_ascii_digit() {
            return None;
        }
        length = length
            .checked_mul(10)?
            .checked_add(u64::from(byte - b'0'))?;
    }
    (length <= i64::MAX as u64).then_some(length)
}

/// The only coding kp knows is one `chunked`. What remains is told apart for the status: a well-formed list of other
/// codings is unknown (501, RFC 9112 §6.1), everything else is malformed (400, §6.3 rule 4).
fn chunked(value: &[u8]) -> Result<(), HeadCause> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let codings = elements(value).count();
    let well_formed = value
        .split(|&byte| byte == b',')
        .all(|coding| is_token(trim_ows(coding)));
    let chunked_early = elements(value)
        .take(codings.saturating_sub(1))
        .any(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    if well_formed && !chunked_early {
        Err(HeadCause::UnknownTransferEncoding)
    } else {
        Err(HeadCause::BadTransferEncoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Declared::{Absent, Again, Once};

    #[test]
    fn lengths() {
        for (value, want) in [
            ("0", Some(0)),
            ("3", Some(3)),
            ("0000000000000000000000000000003", Some(3)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("18446744073709551619", None),
            ("", None),
            ("+3", None),
            ("-1", None),
            ("-0", None),
            ("0x3", None),
            ("3 3", None),
            ("3, 3", None),
            ("3,3", None),
            ("1_0", None),
            ("3\u{b}", None),
        ] {
            let got = of_request(Version::Http11, Once(value.as_bytes()), Absent);
            assert_eq!(
                got,
                want.map(Framing::Length).ok_or(HeadCause::BadLength),
                "{value:?}"
            );
            let got = of_response(200, Method::Get, Once(value.as_bytes()), Absent);
            assert_eq!(
                got,
                want.map(Framing::Length).ok_or(HeadCause::BadLength),
                "{value:?}"
            );
        }
    }

    #[test]
    fn codings() {
        let bad = HeadCause::BadTransferEncoding;
        let unknown = HeadCause::UnknownTransferEncoding;
        for (value, want) in [
            ("chunked", Ok(Framing::Chunked)),
            ("CHUNKED", Ok(Framing::Chunked)),
            ("Chunked", Ok(Framing::Chunked)),
            ("gzip", Err(unknown)),
            ("gzip, chunked", Err(unknown)),
            ("identity", Err(unknown)),
            ("xchunked", Err(unknown)),
            ("chunked, gzip", Err(bad)),
            ("chunked, chunked", Err(bad)),
            ("chunked,", Err(bad)),
            (", chunked", Err(bad)),
            (",chunked", Err(bad)),
            ("", Err(bad)),
            ("chunked;a=b", Err(bad)),
            ("chunked chunked", Err(bad)),
            ("\u{b}chunked", Err(bad)),
            ("\"chunked\"", Err(bad)),
        ] {
            assert_eq!(
                of_request(Version::Http11, Absent, Once(value.as_bytes())),
                want,
                "{value:?}"
            );
            assert_eq!(
                of_response(200, Method::Get, Absent, Once(value.as_bytes())),
                want,
                "{value:?}"
            );
        }
    }

    #[test]
    fn contradictions_are_refused_in_both_roles() {
        for (length, coding, want) in [
            (
                Once(b"5"),
                Once(b"chunked"),
                HeadCause::LengthAndTransferEncoding,
            ),
            (
                Again,
                Once(b"chunked"),
                HeadCause::LengthAndTransferEncoding,
            ),
            (
                Once(b"x"),
                Once(b"gzip"),
                HeadCause::LengthAndTransferEncoding,
            ),
            (Again, Again, HeadCause::LengthAndTransferEncoding),
            (Again, Absent, HeadCause::RepeatedLength),
            (Absent, Again, HeadCause::RepeatedTransferEncoding),
        ] {
            assert_eq!(of_request(Version::Http11, length, coding), Err(want));
            assert_eq!(of_response(200, Method::Get, length, coding), Err(want));
            assert_eq!(
                of_response(200, Method::Head, length, coding),
                Err(want),
                "the fields would be passed on"
            );
            assert_eq!(of_response(304, Method::Get, length, coding), Err(want));
            assert_eq!(
                of_response(204, Method::Get, length, coding),
                Ok(Framing::None)
            );
        }
        for coding in [Once(b"chunked".as_slice()), Once(b"gzip"), Again] {
            let got = of_request(Version::Http10, Absent, coding);
            assert_eq!(got, Err(HeadCause::TransferEncodingInHttp10));
        }
    }

    #[test]
    fn responses_without_a_body_by_definition() {
        for (status, method) in [
            (100, Method::Get),
            (101, Method::Get),
            (199, Method::Post),
            (204, Method::Get),
            (200, Method::Connect),
        ] {
            for fields in [
                (Absent, Absent),
                (Once(b"5".as_slice()), Absent),
                (Absent, Once(b"chunked".as_slice())),
            ] {
                assert_eq!(
                    of_response(status, method, fields.0, fields.1),
                    Ok(Framing::None),
                    "{status}"
                );
            }
        }
        for (status, method) in [
            (200, Method::Head),
            (304, Method::Get),
            (304, Method::Head),
            (404, Method::Head),
        ] {
            for fields in [
                (Absent, Absent),
                (Once(b"5".as_slice()), Absent),
                (Absent, Once(b"chunked".as_slice())),
            ] {
                assert_eq!(
                    of_response(status, method, fields.0, fields.1),
                    Ok(Framing::None),
                    "{status}"
                );
            }
        }
    }

    #[test]
    fn without_either_field() {
        assert_eq!(
            of_request(Version::Http11, Absent, Absent),
            Ok(Framing::None)
        );
        assert_eq!(
            of_request(Version::Http10, Absent, Absent),
            Ok(Framing::None)
        );
        assert_eq!(
            of_response(200, Method::Get, Absent, Absent),
            Ok(Framing::UntilClose)
        );
        assert_eq!(
            of_response(407, Method::Connect, Absent, Absent),
            Ok(Framing::UntilClose)
        );
    }
}
