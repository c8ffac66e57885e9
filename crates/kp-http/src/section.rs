//! A field section as a whole: where its fields lie, and what they mean together.
//!
//! Decides: known names, hop-by-hop and dropped flags, and which fields may not occur twice. httparse decides what a
//! name and a value may hold, and trims whitespace. Does not decide framing (`framing`), only what was declared.

use crate::error::{HeadCause, HeadError};
use crate::field::{self, DROPPED, Field, HOP, Known, Span};
use crate::framing::Declared;
use crate::hop;
use crate::line::first_bad_line;
use crate::parse::HeadLimits;
use httparse::{EMPTY_HEADER, Header};
use std::ops::Range;

/// Most fields of a head that is read in one go; browsers send about fifteen.
const WHOLE_FIELDS_MAX: usize = 32;

/// What the fields say that concerns more than whoever asks for them by name.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) host: Seen,
    pub(crate) length: Seen,
    pub(crate) coding: Seen,
    pub(crate) options: hop::Options,
    pub(crate) expect: Option<Span>,
    pub(crate) upgrade: Option<Span>,
    pub(crate) keep_alive: Option<Span>,
    /// Bits of the known names that are there.
    pub(crate) present: u64,
    pub(crate) single: Single,
}

/// Fields of a request that mean one thing or nothing: nginx refuses a second one, so that nobody behind it can be told
/// something else than whoever looked first. What is delimited by a field is in `Facts` by name.
#[derive(Clone, Copy, Default)]
pub(crate) struct Single {
    seen: u8,
    repeated: Option<Known>,
}

impl Single {
    fn add(&mut self, known: Known, bit: u8) {
        if self.seen & bit != 0 {
            self.repeated = self.repeated.or(Some(known));
        }
        self.seen |= bit;
    }

    /// The first field that came again.
    pub(crate) fn repeated(self) -> Option<Known> {
        self.repeated
    }
}

/// A field that must not occur twice.
#[derive(Clone, Copy, Default)]
pub(crate) enum Seen {
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

    pub(crate) fn declared(self, bytes: &[u8]) -> Declared<'_> {
        match self {
            Self::Never => Declared::Absent,
            Self::Once(span) => Declared::Once(span.of(bytes)),
            Self::Again => Declared::Again,
        }
    }
}

/// Reads the field section `section` of `input`, which has `lines` lines before the empty one.
pub(crate) fn read_fields(
    input: &[u8],
    section: Range<usize>,
    lines: usize,
    fields: &mut Vec<Field>,
    limits: &HeadLimits,
) -> Result<Facts, HeadError> {
    match lines {
        0..=64 => read_fields_with(&mut [EMPTY_HEADER; 64], input, section, fields, limits),
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
    section: Range<usize>,
    fields: &mut Vec<Field>,
    limits: &HeadLimits,
) -> Result<Facts, HeadError> {
    read_fields_with(&mut [EMPTY_HEADER; 1024], input, section, fields, limits)
}

fn read_fields_with<'a>(
    space: &mut [Header<'a>],
    input: &'a [u8],
    section: Range<usize>,
    fields: &mut Vec<Field>,
    limits: &HeadLimits,
) -> Result<Facts, HeadError> {
    let text = input.get(section).unwrap_or_default();
    match httparse::parse_headers(text, space) {
        Ok(httparse::Status::Complete((_, headers))) => collect(headers, input, fields, limits),
        Ok(httparse::Status::Partial) | Err(_) => {
            Err(first_bad_line(text).unwrap_or(HeadError::new(HeadCause::BadName)))
        }
    }
}

/// Reads a field section that begins at `at` and is there to its end, without having looked for its lines before.
/// `None` if it is not, or if anything about it needs a closer look, which [`read_fields`] takes. Nearly every head
/// ends here.
pub(crate) fn read_whole(
    input: &[u8],
    at: usize,
    fields: &mut Vec<Field>,
    limits: &HeadLimits,
) -> Result<Option<(Facts, usize)>, HeadError> {
    let text = input
        .get(at..limits.head_bytes_max().min(input.len()))
        .unwrap_or_default();
    let mut space = [EMPTY_HEADER; WHOLE_FIELDS_MAX];
    let Ok(httparse::Status::Complete((length, headers))) =
        httparse::parse_headers(text, &mut space)
    else {
        return Ok(None);
    };
    let text = text.get(..length).unwrap_or_default();
    if headers.len() > limits.fields_max || !lines_are_strict(text, headers, limits.line_max) {
        return Ok(None);
    }
    let facts = collect(headers, input, fields, limits)?;
    Ok(Some((facts, at + length)))
}

/// httparse lets lines end in LF alone, and knows no longest line.
fn lines_are_strict(text: &[u8], headers: &[Header<'_>], line_max: usize) -> bool {
    let base = text.as_ptr() as usize;
    let mut line_at = 0;
    let all = headers.iter().skip(1).all(|header| {
        let next = (header.name.as_ptr() as usize).wrapping_sub(base);
        let fits = next.wrapping_sub(line_at) <= line_max;
        line_at = next;
        fits && text.get(next.wrapping_sub(2)) == Some(&b'\r')
    });
    let end: &[u8] = if headers.is_empty() {
        b"\r\n"
    } else {
        b"\r\n\r\n"
    };
    all && text.ends_with(end) && text.len() - line_at <= line_max.saturating_add(2)
}

fn collect(
    headers: &[Header<'_>],
    input: &[u8],
    fields: &mut Vec<Field>,
    limits: &HeadLimits,
) -> Result<Facts, HeadError> {
    fields.clear();
    fields.reserve(headers.len());
    let mut facts = Facts::default();
    let base = input.as_ptr() as usize;
    for header in headers {
        let name = header.name.as_bytes();
        let Ok(name_len) = u16::try_from(name.len()) else {
            return Err(HeadError::named(HeadCause::FieldTooLarge, name));
        };
        let known = Known::of(name);
        facts.present |= known.bit();
        let at = (header.value.as_ptr() as usize).wrapping_sub(base);
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
        let name_at = Span::new((name.as_ptr() as usize).wrapping_sub(base), 0).at;
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
        Known::Expect => {
            facts.expect = facts.expect.or(Some(span));
            facts.single.add(known, 1);
        }
        Known::Authorization => facts.single.add(known, 1 << 1),
        Known::ContentRange => facts.single.add(known, 1 << 2),
        Known::IfMatch => facts.single.add(known, 1 << 3),
        Known::IfModifiedSince => facts.single.add(known, 1 << 4),
        Known::IfNoneMatch => facts.single.add(known, 1 << 5),
        Known::IfRange => facts.single.add(known, 1 << 6),
        Known::IfUnmodifiedSince => facts.single.add(known, 1 << 7),
        Known::Upgrade if !value.is_empty() => facts.upgrade = facts.upgrade.or(Some(span)),
        Known::KeepAlive => facts.keep_alive = facts.keep_alive.or(Some(span)),
        _ => {}
    }
    Ok(())
}
