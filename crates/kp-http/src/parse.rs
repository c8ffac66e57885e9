//! From received bytes to heads, both roles: finds the end of a head as it arrives, reads its first line, and lets
//! httparse read the field lines, with kp's own rules before and after it.
//!
//! Decides: the line rules (RFC 9112 §2.2: CRLF, no bare CR, bare LF only on request; §5.2: no folding), the first
//! lines (§3, §4), limits, and what a set of fields means together (`Host`, lengths, `Connection`, `Expect`).
//! httparse decides what a name and a value may hold. Framing itself is `framing`'s.

use crate::error::{HeadCause, HeadError};
use crate::field::{self, DROPPED, Field, HOP, Known, Span, is_token, is_value_byte, trim_ows};
use crate::framing::{self, Declared, Framing};
use crate::head::{Method, RequestHead, RequestLine, ResponseHead, StatusLine, Version};
use crate::{hop, target};
use httparse::{EMPTY_HEADER, Header};

/// Empty lines before a request line that are skipped (RFC 9112 §2.2 asks for at least one); more are no mistake
/// of an old client but noise.
const EMPTY_LINES_MAX: u8 = 16;
/// Spans are u32, and a head this large is none.
const HEAD_BYTES_MAX: usize = 1 << 30;

/// What a head may be like.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Longest first line or field line, line end included.
    pub line_max: usize,
    /// Longest head.
    pub total_max: usize,
    /// Most field lines.
    pub fields_max: usize,
    /// `underscores_in_headers`: names with underscores are ordinary names.
    pub underscores: bool,
    /// `ignore_invalid_headers`: names with other characters than letters, digits and hyphens are ignored.
    pub ignore_invalid: bool,
    /// `accept_bare_lf`: a line of a head may end in LF alone. Chunk lines never may.
    pub accept_bare_lf: bool,
}

impl Default for HeadLimits {
    /// nginx's: `large_client_header_buffers 4 8k`, `max_headers 1000`, strict lines.
    fn default() -> Self {
        Self {
            line_max: 8 << 10,
            total_max: 32 << 10,
            fields_max: 1000,
            underscores: false,
            ignore_invalid: true,
            accept_bare_lf: false,
        }
    }
}

/// Reads heads off one direction of a connection. It remembers what was searched already, so bytes that arrive one
/// by one cost as much as bytes that arrive together.
#[derive(Debug, Clone, Default)]
pub struct HeadReader {
    searched: usize,
    line_at: usize,
    fields_at: usize,
    lines: usize,
    empty_lines: u8,
    first: First,
}

#[derive(Debug, Clone, Copy, Default)]
enum First {
    #[default]
    Awaited,
    Request(RequestLine),
    Response(StatusLine),
}

impl HeadReader {
    /// Looks for a request head at the start of `input`. `Ok(true)`: `head` holds it, and `input` holds what followed
    /// it. `Ok(false)`: more bytes are needed; append them to `input` and change nothing in it. After an error `head`
    /// holds the bytes received, as far as they concern a log line, and the connection is of no further use.
    pub fn request(
        &mut self,
        input: &mut Vec<u8>,
        head: &mut RequestHead,
        limits: &HeadLimits,
    ) -> Result<bool, HeadError> {
        let read = self.read_request(input, head, limits);
        match read {
            Ok(Some(end)) => {
                *self = Self::default();
                take_head(input, &mut head.bytes, end);
                let query_only = head.line.path.of(&head.bytes).first() == Some(&b'?');
                if query_only {
                    root_path(head);
                }
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => {
                let line = if let First::Request(line) = self.first {
                    line
                } else {
                    RequestLine::default()
                };
                *self = Self::default();
                head.clear();
                std::mem::swap(input, &mut head.bytes);
                head.line = line;
                head.method = line.method;
                head.version = line.version;
                head.line.line_len = first_line_len(&head.bytes, limits);
                Err(error)
            }
        }
    }

    /// Looks for a response head at the start of `input`, as [`HeadReader::request`] does. `asked` is the method of
    /// the request that it answers.
    pub fn response(
        &mut self,
        input: &mut Vec<u8>,
        head: &mut ResponseHead,
        asked: Method,
        limits: &HeadLimits,
    ) -> Result<bool, HeadError> {
        let read = self.read_response(input, head, asked, limits);
        match read {
            Ok(Some(end)) => {
                *self = Self::default();
                take_head(input, &mut head.bytes, end);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => {
                let line = if let First::Response(line) = self.first {
                    line
                } else {
                    StatusLine::default()
                };
                *self = Self::default();
                head.clear();
                std::mem::swap(input, &mut head.bytes);
                head.line = line;
                head.status = line.status;
                head.version = line.version;
                head.line.line_len = first_line_len(&head.bytes, limits);
                Err(error)
            }
        }
    }

    /// Forgets a head that was begun.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    fn read_request(
        &mut self,
        input: &mut Vec<u8>,
        head: &mut RequestHead,
        limits: &HeadLimits,
    ) -> Result<Option<usize>, HeadError> {
        if self.searched == 0 && !self.at_request_line(input, limits)? {
            return Ok(None);
        }
        loop {
            let Some((line, next)) = self.line(input, limits)? else {
                return Ok(None);
            };
            match self.first {
                First::Request(first) if line.is_empty() => {
                    finish_request(input, self.fields_at..next, self.lines, first, head, limits)?;
                    return Ok(Some(next));
                }
                First::Request(_) => self.count_field(limits)?,
                First::Awaited | First::Response(_) => {
                    self.first = First::Request(request_line(line).map_err(HeadError::new)?);
                    self.fields_at = next;
                }
            }
        }
    }

    fn read_response(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
        asked: Method,
        limits: &HeadLimits,
    ) -> Result<Option<usize>, HeadError> {
        let prefix = b"HTTP/1.";
        if self.searched < prefix.len() && !input.iter().zip(prefix).all(|(got, want)| got == want)
        {
            return Err(HeadError::new(HeadCause::BadStatusLine));
        }
        loop {
            let Some((line, next)) = self.line(input, limits)? else {
                return Ok(None);
            };
            match self.first {
                First::Response(first) if line.is_empty() => {
                    finish_response(
                        input,
                        self.fields_at..next,
                        self.lines,
                        (first, asked),
                        head,
                        limits,
                    )?;
                    return Ok(Some(next));
                }
                First::Response(_) => self.count_field(limits)?,
                First::Awaited | First::Request(_) => {
                    self.first = First::Response(status_line(line).map_err(HeadError::new)?);
                    self.fields_at = next;
                }
            }
        }
    }

    /// Skips empty lines before a request line and looks at its first byte, so that a peer that speaks something else
    /// (TLS, say) hears so at once. `false`: nothing but empty lines yet.
    fn at_request_line(
        &mut self,
        input: &mut Vec<u8>,
        limits: &HeadLimits,
    ) -> Result<bool, HeadError> {
        let mut skip = 0;
        let found = loop {
            match input.get(skip..).unwrap_or_default() {
                [b'\r', b'\n', ..] => skip += 2,
                [b'\n', ..] if limits.accept_bare_lf => skip += 1,
                [] | [b'\r'] => break Ok(false),
                [b'\r', ..] => break Err(HeadError::new(HeadCause::BareCr)),
                [b'\n', ..] => break Err(HeadError::new(HeadCause::BareLf)),
                [byte, ..] if is_method_byte(*byte) => break Ok(true),
                _ => break Err(HeadError::new(HeadCause::BadMethod)),
            }
            self.empty_lines += 1;
            if self.empty_lines > EMPTY_LINES_MAX {
                break Err(HeadError::new(HeadCause::BadRequestLine));
            }
        };
        if skip > 0 {
            input.drain(..skip);
        }
        found
    }

    /// The next complete line without its end, and where the one after it starts.
    fn line<'a>(
        &mut self,
        input: &'a [u8],
        limits: &HeadLimits,
    ) -> Result<Option<(&'a [u8], usize)>, HeadError> {
        let total_max = limits.total_max.min(HEAD_BYTES_MAX);
        let stop = self.line_at.saturating_add(limits.line_max).min(total_max);
        let searchable = input
            .get(self.searched..stop.min(input.len()))
            .unwrap_or_default();
        let Some(found) = memchr::memchr(b'\n', searchable) else {
            self.searched += searchable.len();
            return if input.len() >= stop {
                Err(self.too_long(input, stop == total_max))
            } else {
                Ok(None)
            };
        };
        let end = self.searched + found;
        let line = input.get(self.line_at..end).unwrap_or_default();
        let line = match line {
            [line @ .., b'\r'] => line,
            _ if limits.accept_bare_lf => line,
            _ => return Err(self.bare_lf(line)),
        };
        self.searched = end + 1;
        self.line_at = end + 1;
        Ok(Some((line, end + 1)))
    }

    fn count_field(&mut self, limits: &HeadLimits) -> Result<(), HeadError> {
        self.lines += 1;
        if self.lines > limits.fields_max {
            return Err(HeadError::new(HeadCause::TooManyFields));
        }
        Ok(())
    }

    fn bare_lf(&self, line: &[u8]) -> HeadError {
        match self.first {
            First::Awaited => HeadError::new(HeadCause::BareLf),
            First::Request(_) | First::Response(_) => {
                HeadError::named(HeadCause::BareLf, name_part(line))
            }
        }
    }

    fn too_long(&self, input: &[u8], whole: bool) -> HeadError {
        let line = input.get(self.line_at..).unwrap_or_default();
        match self.first {
            // A method that long is no method, so it is not the URI that is too long.
            First::Awaited if !line.contains(&b' ') => HeadError::new(HeadCause::BadMethod),
            First::Awaited => HeadError::new(HeadCause::TargetTooLong),
            _ if whole => HeadError::named(HeadCause::HeadTooLarge, name_part(line)),
            _ => HeadError::named(HeadCause::FieldTooLarge, name_part(line)),
        }
    }
}

/// Moves the head's bytes to where heads live by exchanging allocations; only what follows the head is copied.
fn take_head(input: &mut Vec<u8>, bytes: &mut Vec<u8>, end: usize) {
    std::mem::swap(input, bytes);
    input.clear();
    input.extend_from_slice(bytes.get(end..).unwrap_or_default());
    bytes.truncate(end);
}

/// `http://host?query` means `/?query`, which does not stand there: it is written behind the head.
fn root_path(head: &mut RequestHead) {
    let at = head.bytes.len();
    let query = head.line.path.at as usize..(head.line.path.at + head.line.path.len) as usize;
    head.bytes.push(b'/');
    if query.end <= at {
        head.bytes.extend_from_within(query);
    }
    head.line.path = Span::new(at, head.bytes.len());
}

fn first_line_len(bytes: &[u8], limits: &HeadLimits) -> u32 {
    let shown = bytes
        .get(..limits.line_max.min(bytes.len()))
        .unwrap_or_default();
    let line = memchr::memchr2(b'\n', b'\r', shown).unwrap_or(shown.len());
    Span::new(0, line).len
}

/// nginx's alphabet of methods; RFC 9110 §9.1 allows any token, but what is not in capitals is a mistake.
fn is_method_byte(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'_' | b'-')
}

/// RFC 9112 §3: `method SP request-target SP HTTP-version`, single spaces, nothing else.
fn request_line(line: &[u8]) -> Result<RequestLine, HeadCause> {
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
fn status_line(line: &[u8]) -> Result<StatusLine, HeadCause> {
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

/// What the fields say that concerns more than whoever asks for them by name.
#[derive(Default)]
struct Facts {
    host: Seen,
    length: Seen,
    coding: Seen,
    options: hop::Options,
    expect: Option<Span>,
    upgrade: Option<Span>,
    keep_alive: Option<Span>,
}

/// A field that must not occur twice.
#[derive(Clone, Copy, Default)]
enum Seen {
    #[default]
    Never,
    Once(Span),
    Again,
}

impl Seen {
    fn add(&mut self, span: Span) {
        *self = match self {
            Self::Never => Self::Once(span),
            Self::Once(_) | Self::Again => Self::Again,
        };
    }

    fn declared(self, bytes: &[u8]) -> Declared<'_> {
        match self {
            Self::Never => Declared::Absent,
            Self::Once(span) => Declared::Once(span.of(bytes)),
            Self::Again => Declared::Again,
        }
    }
}

fn finish_request(
    input: &[u8],
    section: std::ops::Range<usize>,
    lines: usize,
    line: RequestLine,
    head: &mut RequestHead,
    limits: &HeadLimits,
) -> Result<(), HeadError> {
    let facts = read_fields(input, section, lines, &mut head.fields, limits)?;
    let host = match facts.host {
        Seen::Never if line.version == Version::Http11 => {
            return Err(HeadError::new(HeadCause::MissingHost));
        }
        Seen::Never => None,
        Seen::Once(span) => match target::split_host(span.of(input)) {
            Some(_) => Some(span),
            None => return Err(HeadError::named(HeadCause::BadHost, b"Host")),
        },
        Seen::Again => return Err(HeadError::named(HeadCause::RepeatedHost, b"Host")),
    };
    head.framing = framing::of_request(
        line.version,
        facts.length.declared(input),
        facts.coding.declared(input),
    )
    .map_err(framing_error)?;
    let http11 = line.version == Version::Http11;
    head.method = line.method;
    head.version = line.version;
    head.line = line;
    head.host = host;
    head.close = facts.options.close;
    head.keep_alive = facts.options.keep_alive;
    // RFC 9110 §10.1.1: an HTTP/1.0 client cannot expect anything.
    head.expect_continue = http11
        && facts
            .expect
            .is_some_and(|span| span.of(input).eq_ignore_ascii_case(b"100-continue"));
    // RFC 9110 §7.8: Upgrade counts only where Connection names it, and never in HTTP/1.0.
    head.upgrade = facts.upgrade.filter(|_| http11 && facts.options.upgrade);
    Ok(())
}

fn finish_response(
    input: &[u8],
    section: std::ops::Range<usize>,
    lines: usize,
    (line, asked): (StatusLine, Method),
    head: &mut ResponseHead,
    limits: &HeadLimits,
) -> Result<(), HeadError> {
    let facts = read_fields(input, section, lines, &mut head.fields, limits)?;
    head.framing = framing::of_response(
        line.status,
        asked,
        facts.length.declared(input),
        facts.coding.declared(input),
    )
    .map_err(framing_error)?;
    if framing::never_has_length(line.status) {
        for field in head
            .fields
            .iter_mut()
            .filter(|field| field.known == Known::ContentLength)
        {
            field.flags |= HOP;
        }
    }
    head.status = line.status;
    head.version = line.version;
    head.line = line;
    // RFC 9112 §9.3; and §6.1: after Transfer-Encoding in HTTP/1.0 the connection is not to be trusted.
    let may_persist = match line.version {
        Version::Http11 => true,
        Version::Http10 => {
            facts.options.keep_alive && !matches!(facts.coding, Seen::Once(_) | Seen::Again)
        }
    };
    head.persistent = may_persist && !facts.options.close && head.framing != Framing::UntilClose;
    head.keep_alive_timeout_s = facts
        .keep_alive
        .and_then(|span| keep_alive_timeout(span.of(input)));
    Ok(())
}

fn framing_error(cause: HeadCause) -> HeadError {
    let name = match cause {
        HeadCause::RepeatedLength | HeadCause::BadLength => Known::ContentLength,
        _ => Known::TransferEncoding,
    };
    HeadError::named(cause, name.name().as_bytes())
}

/// `Keep-Alive: timeout=5, max=100`: the seconds.
fn keep_alive_timeout(value: &[u8]) -> Option<u32> {
    field::elements(value).find_map(|parameter| {
        let (name, value) = parameter.split_at_checked(8)?;
        let seconds = name.eq_ignore_ascii_case(b"timeout=").then_some(value)?;
        std::str::from_utf8(seconds)
            .ok()?
            .trim_matches('"')
            .parse()
            .ok()
    })
}

/// Reads the field section `section` of `input`, which has `lines` lines before the empty one.
fn read_fields(
    input: &[u8],
    section: std::ops::Range<usize>,
    lines: usize,
    fields: &mut Vec<Field>,
    limits: &HeadLimits,
) -> Result<Facts, HeadError> {
    fields.clear();
    match lines {
        0..=16 => read_fields_with(&mut [EMPTY_HEADER; 16], input, section, fields, limits),
        17..=64 => read_fields_with(&mut [EMPTY_HEADER; 64], input, section, fields, limits),
        65..=1024 => read_many_fields(input, section, fields, limits),
        _ => read_fields_with(
            &mut vec![EMPTY_HEADER; lines],
            input,
            section,
            fields,
            limits,
        ),
    }
}

/// Apart, so that its 32 KiB of stack are not the price of every head.
#[inline(never)]
fn read_many_fields(
    input: &[u8],
    section: std::ops::Range<usize>,
    fields: &mut Vec<Field>,
    limits: &HeadLimits,
) -> Result<Facts, HeadError> {
    read_fields_with(&mut [EMPTY_HEADER; 1024], input, section, fields, limits)
}

fn read_fields_with<'a>(
    space: &mut [Header<'a>],
    input: &'a [u8],
    section: std::ops::Range<usize>,
    fields: &mut Vec<Field>,
    limits: &HeadLimits,
) -> Result<Facts, HeadError> {
    let text = input.get(section).unwrap_or_default();
    let headers = match httparse::parse_headers(text, space) {
        Ok(httparse::Status::Complete((_, headers))) => headers,
        Ok(httparse::Status::Partial) | Err(_) => return Err(first_bad_line(text)),
    };
    let mut facts = Facts::default();
    let base = input.as_ptr() as usize;
    for header in headers {
        let name = header.name.as_bytes();
        let Ok(name_len) = u16::try_from(name.len()) else {
            return Err(HeadError::named(HeadCause::FieldTooLarge, name));
        };
        let known = Known::of(name);
        let at = header.value.as_ptr() as usize - base;
        let value = Span::new(at, at + header.value.len());
        let mut flags = 0;
        if known == Known::Other {
            if is_ignored(name, limits) {
                flags = DROPPED;
            }
        } else {
            note(&mut facts, known, value, header.value)
                .map_err(|cause| HeadError::named(cause, name))?;
            if hop::is_hop(known) {
                flags = HOP;
            }
        }
        let name_at = Span::new(name.as_ptr() as usize - base, 0).at;
        fields.push(Field {
            name_at,
            value_at: value.at,
            value_len: value.len,
            name_len,
            known,
            flags,
        });
    }
    facts.options.mark(input, fields);
    Ok(facts)
}

fn is_ignored(name: &[u8], limits: &HeadLimits) -> bool {
    if field::is_plain_name(name, false) {
        return false;
    }
    (limits.ignore_invalid && !field::is_plain_name(name, limits.underscores))
        || field::is_framing_alias(name)
}

fn note(facts: &mut Facts, known: Known, span: Span, value: &[u8]) -> Result<(), HeadCause> {
    match known {
        Known::Host => facts.host.add(span),
        Known::ContentLength => facts.length.add(span),
        Known::TransferEncoding => facts.coding.add(span),
        Known::Connection => facts.options.read(value)?,
        Known::Expect => facts.expect = facts.expect.or(Some(span)),
        Known::Upgrade if !value.is_empty() => facts.upgrade = facts.upgrade.or(Some(span)),
        Known::KeepAlive => facts.keep_alive = facts.keep_alive.or(Some(span)),
        _ => {}
    }
    Ok(())
}

/// Finds out which line httparse stumbled over, and why. Only heads that are refused pay for it.
#[cold]
fn first_bad_line(section: &[u8]) -> HeadError {
    for line in section.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        if let Err(cause) = field_line(line) {
            return HeadError::named(cause, name_part(line));
        }
    }
    HeadError::new(HeadCause::BadName)
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

/// What a log line shows of a bad field line: the part before the colon.
fn name_part(line: &[u8]) -> &[u8] {
    let end = memchr::memchr3(b':', b'\r', b'\n', line).unwrap_or(line.len());
    trim_ows(line.get(..end).unwrap_or_default())
}
