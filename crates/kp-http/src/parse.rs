//! From received bytes to heads, both roles: finds the end of a head as it arrives, has its lines read, and puts the
//! head together.
//!
//! Decides: where lines end (RFC 9112 §2.2: CRLF, a bare LF only where it is accepted), the limits, the order in which
//! mistakes are found (by position, however the bytes arrive), and what a head means as a whole (`Host`, persistence,
//! `Expect`, `Upgrade`). What a line may hold is `line`'s, what fields mean `section`'s, framing `framing`'s.

use crate::error::{HeadCause, HeadError};
use crate::field::{self, HOP, Known, Span};
use crate::framing::{self, Framing};
use crate::head::{Method, RequestHead, RequestLine, ResponseHead, StatusLine, Version};
use crate::line::{first_bad_line, is_method_byte, name_part, request_line, status_line};
use crate::section::{Facts, Seen, read_fields, read_whole};
use crate::target;

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
    /// `ignore_invalid_headers`: names with other characters than letters, digits and hyphens are ignored. nginx does
    /// so for requests only.
    pub ignore_invalid: bool,
    /// `accept_bare_lf`: a line of a head may end in LF alone. Chunk lines never may.
    pub accept_bare_lf: bool,
}

impl HeadLimits {
    /// `total_max`, within what spans can say.
    pub(crate) fn head_bytes_max(&self) -> usize {
        self.total_max.min(HEAD_BYTES_MAX)
    }
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
    checked: usize,
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
                self.give_up(input, head, limits);
                Err(error)
            }
        }
    }

    /// Stops waiting for the rest of a request head: `head` gets the bytes received, as far as they concern a log line.
    pub fn give_up(&mut self, input: &mut Vec<u8>, head: &mut RequestHead, limits: &HeadLimits) {
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
                self.refuse_response(head);
                std::mem::swap(input, &mut head.bytes);
                head.line.line_len = first_line_len(&head.bytes, limits);
                Err(error)
            }
        }
    }

    /// As [`HeadReader::response`], for bytes that stay where they are: `Ok(Some(length))`: `head` holds a copy of the
    /// first `length` bytes, and what follows them is the caller's. `Ok(None)`: to be called again with the same bytes
    /// and more behind them.
    pub fn response_in(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
        asked: Method,
        limits: &HeadLimits,
    ) -> Result<Option<usize>, HeadError> {
        let read = self.read_response(input, head, asked, limits);
        match read {
            Ok(Some(end)) => {
                *self = Self::default();
                head.bytes.clear();
                head.bytes
                    .extend_from_slice(input.get(..end).unwrap_or_default());
                Ok(Some(end))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.refuse_response(head);
                head.bytes.extend_from_slice(input);
                head.line.line_len = first_line_len(&head.bytes, limits);
                Err(error)
            }
        }
    }

    /// Leaves in the head what a log line can say about a refused one.
    fn refuse_response(&mut self, head: &mut ResponseHead) {
        let line = if let First::Response(line) = self.first {
            line
        } else {
            StatusLine::default()
        };
        *self = Self::default();
        head.clear();
        head.line = line;
        head.status = line.status;
        head.version = line.version;
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
        let fresh = self.searched == 0;
        if fresh && !self.at_request_line(input, limits)? {
            return Ok(None);
        }
        loop {
            let Some((line, next)) = self.line(input, limits)? else {
                return Ok(None);
            };
            match self.first {
                First::Request(first) if line.is_empty() => {
                    let section = self.fields_at..next;
                    let facts = read_fields(input, section, self.lines, &mut head.fields, limits)?;
                    finish_request(input, &facts, first, head)?;
                    return Ok(Some(next));
                }
                First::Request(_) => self.count_field(input, limits)?,
                First::Awaited | First::Response(_) => {
                    let first = request_line(line).map_err(HeadError::new)?;
                    self.first = First::Request(first);
                    self.fields_at = next;
                    if fresh
                        && let Some((facts, end)) =
                            read_whole(input, next, &mut head.fields, limits)?
                    {
                        finish_request(input, &facts, first, head)?;
                        return Ok(Some(end));
                    }
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
        let fresh = self.searched == 0;
        loop {
            let Some((line, next)) = self.line(input, limits)? else {
                return Ok(None);
            };
            match self.first {
                First::Response(first) if line.is_empty() => {
                    let section = self.fields_at..next;
                    let facts = read_fields(input, section, self.lines, &mut head.fields, limits)?;
                    finish_response(input, &facts, first, asked, head)?;
                    return Ok(Some(next));
                }
                First::Response(_) => self.count_field(input, limits)?,
                First::Awaited | First::Request(_) => {
                    let first = status_line(line).map_err(HeadError::new)?;
                    self.first = First::Response(first);
                    self.fields_at = next;
                    if fresh
                        && let Some((facts, end)) =
                            read_whole(input, next, &mut head.fields, limits)?
                    {
                        finish_response(input, &facts, first, asked, head)?;
                        return Ok(Some(end));
                    }
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

    /// The next complete line without its end, and where the one after it starts. If there is none, the field lines
    /// so far are checked: a head that is already wrong is refused without waiting for the rest of it.
    fn line<'a>(
        &mut self,
        input: &'a [u8],
        limits: &HeadLimits,
    ) -> Result<Option<(&'a [u8], usize)>, HeadError> {
        let found = self.find_line(input, limits);
        if !matches!(found, Ok(Some(_))) {
            self.check_fields(input)?;
        }
        found
    }

    fn find_line<'a>(
        &mut self,
        input: &'a [u8],
        limits: &HeadLimits,
    ) -> Result<Option<(&'a [u8], usize)>, HeadError> {
        let total_max = limits.head_bytes_max();
        let stop = self.line_at.saturating_add(limits.line_max).min(total_max);
        let searchable = input
            .get(self.searched..stop.min(input.len()))
            .unwrap_or_default();
        let Some(found) = memchr::memchr(b'\n', searchable) else {
            self.searched += searchable.len();
            return if input.len() >= stop {
                Err(self.too_long(input.get(self.line_at..stop), stop == total_max))
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

    fn check_fields(&mut self, input: &[u8]) -> Result<(), HeadError> {
        if self.fields_at == 0 {
            return Ok(());
        }
        let section = input
            .get(self.checked.max(self.fields_at)..self.line_at)
            .unwrap_or_default();
        self.checked = self.line_at;
        first_bad_line(section).map_or(Ok(()), Err)
    }

    fn count_field(&mut self, input: &[u8], limits: &HeadLimits) -> Result<(), HeadError> {
        self.lines += 1;
        if self.lines > limits.fields_max {
            self.check_fields(input)?;
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

    /// `line` is what there is of it up to the limit, so that the verdict does not depend on what came with it.
    fn too_long(&self, line: Option<&[u8]>, whole: bool) -> HeadError {
        let line = line.unwrap_or_default();
        match self.first {
            // A method that long is no method, so it is not the URI that is too long.
            First::Awaited if !line.contains(&b' ') => HeadError::new(HeadCause::BadMethod),
            First::Awaited => HeadError::new(HeadCause::TargetTooLong),
            _ if whole => HeadError::named(HeadCause::HeadTooLarge, name_part(line)),
            _ => HeadError::named(HeadCause::FieldTooLarge, name_part(line)),
        }
    }
}

/// Moves the head's bytes to where heads live. They are copied, being few: the buffer they came in is worth more to the
/// next reader than to a head that has to wait for its answer.
fn take_head(input: &mut Vec<u8>, bytes: &mut Vec<u8>, end: usize) {
    bytes.clear();
    bytes.extend_from_slice(input.get(..end).unwrap_or_default());
    input.drain(..end.min(input.len()));
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

fn finish_request(
    input: &[u8],
    facts: &Facts,
    line: RequestLine,
    head: &mut RequestHead,
) -> Result<(), HeadError> {
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
    if let Some(known) = facts.single.repeated() {
        let name = known.name().as_bytes();
        return Err(HeadError::named(HeadCause::RepeatedField, name));
    }
    let http11 = line.version == Version::Http11;
    head.method = line.method;
    head.version = line.version;
    head.line = line;
    head.present = facts.present;
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
    facts: &Facts,
    line: StatusLine,
    asked: Method,
    head: &mut ResponseHead,
) -> Result<(), HeadError> {
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
    head.present = facts.present;
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
