//! The head of a file that is served: conditional requests and ranges.
//!
//! Decides between 200, 206, 304, 412, 416 and 405 from what is known of the file (RFC 9110 §13, §14), and which bytes
//! follow. nginx's choices: `If-Modified-Since` must name the exact time, one range is served as 206, a list of ranges
//! is answered with the whole file (which RFC 9110 §14.2 allows). Opens and reads nothing.

use crate::answer::{self, ALLOW_FILE, Answered, carries, write_content_type, write_retry_after};
use crate::client_head::{ClientHead, can_chunk, expects_trailers, is_head, replacement};
use crate::program::Program;
use crate::request_head::field_value;
use crate::{Answer, Context, Exchange, Phase, Reason};
use kp_http::target::{Escape, escape_uri};
use kp_http::{Framing, Known, Method, RequestHead, encode};
use std::ops::Range;
use std::time::{Duration, SystemTime};

/// What is known of a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its size.
    pub size: u64,
    /// Its modification time, seconds since the epoch.
    pub modified_s: u64,
}

/// What follows the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileReply {
    /// These bytes of the file. `Framing::None`: none of them (HEAD, 304).
    Send {
        /// Which bytes.
        bytes: Range<u64>,
        /// How they go to the client.
        framing: Framing,
        /// The client connection stays after them.
        keep: bool,
    },
    /// Nothing: the whole answer is in the buffer.
    Done(Answered),
}

/// Appends the head for a file. `keep`: the connection could stay.
pub fn file_head(
    out: &mut Vec<u8>,
    file: &File,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    keep: bool,
) -> FileReply {
    let request = &exchange.request;
    if request.method.is_none() && !matches!(request.head.method, Method::Get | Method::Head) {
        let refusal = (405, Reason::MethodNotAllowed, ALLOW_FILE);
        return refuse(out, refusal, exchange, program, context, keep);
    }
    let etag = Etag::new(file);
    let forced = request.forced_status;
    // Conditions are about a successful answer (RFC 9110 §13.2.1), not about an error page.
    let verdict = if matches!(forced, 0 | 200) {
        let applies = if_range_holds(file, &etag, exchange, program, context);
        judge(&exchange.request.head, file, &etag, applies)
    } else {
        Verdict::Whole
    };
    let (status, bytes) = match verdict {
        Verdict::PreconditionFailed => {
            let refusal = (412, Reason::PreconditionFailed, b"".as_slice());
            return refuse(out, refusal, exchange, program, context, keep);
        }
        Verdict::Unsatisfiable => {
            let mut field = b"Content-Range: bytes */".to_vec();
            encode::number(&mut field, file.size);
            field.extend_from_slice(b"\r\n");
            let refusal = (416, Reason::RangeNotSatisfiable, field.as_slice());
            return refuse(out, refusal, exchange, program, context, keep);
        }
        Verdict::NotModified => (304, 0..0),
        Verdict::Part(bytes) => (206, bytes),
        Verdict::Whole if forced == 0 => (200, 0..file.size),
        Verdict::Whole => (forced, 0..file.size),
    };
    write(
        out, status, bytes, file, &etag, exchange, program, context, keep,
    )
}

/// The answer to a request for a directory without its slash.
pub fn directory_redirect(exchange: &Exchange) -> Answer {
    let mut location = Vec::new();
    escape_uri(&mut location, &exchange.request.uri, Escape::Uri);
    location.push(b'/');
    if !exchange.request.args.is_empty() {
        location.push(b'?');
        location.extend_from_slice(&exchange.request.args);
    }
    Answer::redirect(301, location, Reason::DirectoryRedirect)
}

/// Refuses with a status, for a reason, and with lines that belong to it.
fn refuse(
    out: &mut Vec<u8>,
    (status, reason, fields): (u16, Reason, &[u8]),
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    keep: bool,
) -> FileReply {
    exchange.explain(reason, Phase::File);
    FileReply::Done(answer::write(
        out,
        &Answer::status(status, reason),
        fields,
        exchange,
        program,
        context,
        keep,
    ))
}

#[allow(
    clippy::too_many_arguments,
    reason = "one call site's facts, each used once"
)]
fn write(
    out: &mut Vec<u8>,
    status: u16,
    bytes: Range<u64>,
    file: &File,
    etag: &Etag,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    keep: bool,
) -> FileReply {
    let head = ClientHead::open(out, status, None, exchange.location, program, context);
    exchange.response.status = status;
    head.server_date(out, true, true, exchange, program, context);
    write_retry_after(out, exchange);
    if !matches!(status, 204 | 304) && !carries(&exchange.response.carried, Known::ContentType) {
        write_content_type(out, exchange, head.location, context);
    }
    let length = bytes.end - bytes.start;
    let framing = if matches!(status, 204 | 304) || is_head(exchange) {
        Framing::None
    } else if can_chunk(exchange, head.location) && expects_trailers(head.location, status) {
        Framing::Chunked
    } else {
        Framing::Length(length)
    };
    if !matches!(status, 204 | 304) && framing != Framing::Chunked {
        out.extend_from_slice(b"Content-Length: ");
        encode::number(out, length);
        out.extend_from_slice(b"\r\n");
    }
    // nginx: an error page has no time, as it is not what was asked for.
    if matches!(status, 200 | 206 | 304) && !head.is_replaced(Known::LastModified) {
        out.extend_from_slice(b"Last-Modified: ");
        write_date(out, file.modified_s);
        out.extend_from_slice(b"\r\n");
    }
    if framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    head.connection(out, keep);
    if !head.is_replaced(Known::ETag) {
        encode::field(out, b"ETag", etag.text());
    }
    match status {
        206 => write_content_range(out, &bytes, file.size),
        200 if !carries(&exchange.response.carried, Known::AcceptRanges) => {
            out.extend_from_slice(b"Accept-Ranges: bytes\r\n");
        }
        _ => {}
    }
    out.extend_from_slice(&exchange.response.carried);
    head.close(out, exchange, program, context);
    FileReply::Send {
        bytes,
        framing,
        keep,
    }
}

fn write_content_range(out: &mut Vec<u8>, bytes: &Range<u64>, size: u64) {
    out.extend_from_slice(b"Content-Range: bytes ");
    encode::number(out, bytes.start);
    out.push(b'-');
    encode::number(out, bytes.end.saturating_sub(1));
    out.push(b'/');
    encode::number(out, size);
    out.extend_from_slice(b"\r\n");
}

fn write_date(out: &mut Vec<u8>, seconds: u64) {
    use std::io::Write;
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(DATE_MAX_S));
    // Writing to a vector cannot fail.
    let _ = write!(out, "{}", httpdate::HttpDate::from(time));
}

/// The last second of the year 9999, the end of what an HTTP date can say.
const DATE_MAX_S: u64 = 253_402_300_799;

fn parse_date(text: &[u8]) -> Option<u64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())
}

/// nginx's entity tag: time and size in hexadecimal, quoted.
struct Etag {
    bytes: [u8; 36],
    length: usize,
}

impl Etag {
    fn new(file: &File) -> Self {
        let mut etag = Self {
            bytes: [0; 36],
            length: 0,
        };
        etag.push(b'"');
        etag.hexadecimal(file.modified_s);
        etag.push(b'-');
        etag.hexadecimal(file.size);
        etag.push(b'"');
        etag
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    fn hexadecimal(&mut self, value: u64) {
        let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
        for at in (0..digits).rev() {
            let digit = (value >> (4 * at)) as u8 & 15;
            self.push(if digit < 10 {
                b'0' + digit
            } else {
                b'a' + digit - 10
            });
        }
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Whole,
    Part(Range<u64>),
    NotModified,
    PreconditionFailed,
    Unsatisfiable,
}

/// RFC 9110 §13.2.2, in nginx's order.
fn judge(head: &RequestHead, file: &File, etag: &Etag, range_applies: bool) -> Verdict {
    if let Some(date) = head.find(Known::IfUnmodifiedSince)
        && parse_date(date).is_none_or(|date| date < file.modified_s)
    {
        return Verdict::PreconditionFailed;
    }
    if let Some(tags) = head.find(Known::IfMatch)
        && !matches_tag(tags, etag.text(), false)
    {
        return Verdict::PreconditionFailed;
    }
    let since = head.find(Known::IfModifiedSince);
    let none_match = head.find(Known::IfNoneMatch);
    if since.is_some() || none_match.is_some() {
        let modified = since.is_some_and(|date| parse_date(date) != Some(file.modified_s));
        let other = none_match.is_some_and(|tags| !matches_tag(tags, etag.text(), true));
        if !modified && !other {
            return Verdict::NotModified;
        }
    }
    let Some(range) = head.find(Known::Range) else {
        return Verdict::Whole;
    };
    if !range_applies {
        return Verdict::Whole;
    }
    part(range, file.size)
}

/// Whether `If-Range`, where there is one, names what the client would get (RFC 9110 §13.1.5): an `add_header` that takes
/// the place of `ETag` or `Last-Modified` counts, since that is what the client got before.
fn if_range_holds(
    file: &File,
    etag: &Etag,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> bool {
    let Some(condition) = exchange.request.head.find(Known::IfRange) else {
        return true;
    };
    let condition = condition.to_vec();
    let is_tag = condition.ends_with(b"\"");
    let known = if is_tag {
        Known::ETag
    } else {
        Known::LastModified
    };
    let location = &context.config.http.locations[exchange.location.index()];
    if let Some(header) = replacement(location, 200, known) {
        let mut value = Vec::new();
        field_value(&header.value, exchange, program, context, &mut value);
        return if is_tag {
            condition == value
        } else {
            parse_date(&value).is_some_and(|date| parse_date(&condition) == Some(date))
        };
    }
    if is_tag {
        condition == etag.text()
    } else {
        parse_date(&condition) == Some(file.modified_s)
    }
}

/// Whether a list of entity tags names this one, or is `*` (RFC 9110 §13.1.1, §13.1.2: weak comparison for the latter).
fn matches_tag(list: &[u8], etag: &[u8], weak: bool) -> bool {
    if list == b"*" {
        return true;
    }
    list.split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|tag| {
            let tag = if weak {
                tag.strip_prefix(b"W/").unwrap_or(tag)
            } else {
                tag
            };
            tag == etag
        })
}

/// RFC 9110 §14.1.2. What is no range of bytes is not satisfiable, as in nginx; several ranges are not served in parts.
fn part(range: &[u8], size: u64) -> Verdict {
    let Some(spec) = range.get(6..).filter(|_| {
        range
            .get(..6)
            .is_some_and(|unit| unit.eq_ignore_ascii_case(b"bytes="))
    }) else {
        return Verdict::Whole;
    };
    if spec.contains(&b',') {
        return Verdict::Whole;
    }
    let Some(dash) = memchr::memchr(b'-', spec) else {
        return Verdict::Unsatisfiable;
    };
    let first = spec.get(..dash).unwrap_or_default().trim_ascii();
    let last = spec.get(dash + 1..).unwrap_or_default().trim_ascii();
    let bytes = match (first, last) {
        ([], []) => return Verdict::Unsatisfiable,
        ([], suffix) => match position(suffix) {
            Some(length) => size.saturating_sub(length)..size,
            None => return Verdict::Unsatisfiable,
        },
        (first, last) => {
            let end = if last.is_empty() {
                Some(u64::MAX)
            } else {
                position(last)
            };
            match (position(first), end) {
                (Some(first), Some(last)) => first..last.saturating_add(1).min(size),
                _ => return Verdict::Unsatisfiable,
            }
        }
    };
    if bytes.start < bytes.end {
        Verdict::Part(bytes)
    } else if bytes.start == 0 {
        Verdict::Whole
    } else {
        Verdict::Unsatisfiable
    }
}

fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: File = File {
        size: 10,
        modified_s: 1_000_000_000,
    };
    const DATE: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

    #[test]
    fn entity_tags() {
        assert_eq!(Etag::new(&FILE).text(), b"\"3b9aca00-a\"");
        assert_eq!(
            Etag::new(&File {
                size: 0,
                modified_s: 0
            })
            .text(),
            b"\"0-0\""
        );
        let largest = Etag::new(&File {
            size: u64::MAX,
            modified_s: u64::MAX,
        });
        assert_eq!(largest.text(), b"\"ffffffffffffffff-ffffffffffffffff\"");
    }

    #[test]
    fn dates() {
        let mut out = Vec::new();
        write_date(&mut out, FILE.modified_s);
        assert_eq!(out, DATE.as_bytes());
        assert_eq!(parse_date(DATE.as_bytes()), Some(FILE.modified_s));
        assert_eq!(parse_date(b"yesterday"), None);
        write_date(&mut out, u64::MAX);
    }

    #[test]
    fn tags_are_compared() {
        let tag = b"\"3b9aca00-a\"";
        assert!(matches_tag(b"*", tag, false));
        assert!(matches_tag(b"\"x\", \"3b9aca00-a\" ", tag, false));
        assert!(!matches_tag(b"W/\"3b9aca00-a\"", tag, false));
        assert!(matches_tag(b"W/\"3b9aca00-a\"", tag, true));
        assert!(!matches_tag(b"\"3b9aca00-ab\"", tag, true));
        assert!(!matches_tag(b"", tag, true));
    }

    #[test]
    fn ranges() {
        let table: &[(&str, Verdict)] = &[
            ("bytes=0-4", Verdict::Part(0..5)),
            ("bytes=5-", Verdict::Part(5..10)),
            ("bytes=-3", Verdict::Part(7..10)),
            ("bytes=-30", Verdict::Part(0..10)),
            ("bytes=8-100", Verdict::Part(8..10)),
            ("BYTES=0-0", Verdict::Part(0..1)),
            ("bytes=10-", Verdict::Unsatisfiable),
            ("bytes=-0", Verdict::Unsatisfiable),
            ("bytes=5-4", Verdict::Unsatisfiable),
            ("bytes=x", Verdict::Unsatisfiable),
            ("bytes=-", Verdict::Unsatisfiable),
            ("bytes=99999999999999999999-", Verdict::Unsatisfiable),
            ("bytes=0-1,3-4", Verdict::Whole),
            ("items=0-1", Verdict::Whole),
            ("bytes", Verdict::Whole),
        ];
        for (range, verdict) in table {
            assert_eq!(&part(range.as_bytes(), 10), verdict, "{range}");
        }
        assert_eq!(part(b"bytes=0-", 0), Verdict::Whole);
    }
}
