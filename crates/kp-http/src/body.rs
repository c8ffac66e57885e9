//! Decoding a body: how many of the received bytes belong to it, and which of them are content.
//!
//! Decides: where a body ends for each framing, the chunk grammar (RFC 9112 §7.1, strictly: CRLF only, blanks only
//! inside extensions; these are checked and thrown away) and which trailer fields survive (RFC 9110 §6.5). Copies nothing but trailers:
//! content is told as a range of the caller's bytes. Does not decide the framing (`framing`) nor any size limit of
//! the content.

use crate::error::BodyError;
use crate::field::{Known, is_plain_name, is_token_byte, is_value_byte};
use crate::framing::Framing;
use crate::{encode, line};
use std::ops::Range;

/// Digits of a chunk size, leading zeros included. 16 say everything; some senders pad.
const SIZE_DIGITS_MAX: u8 = 32;
/// How far extension bytes may run ahead of content bytes: content pays them off, so long streams with an extension
/// per chunk work, and a sender cannot keep a worker busy with extensions alone.
const EXTENSION_BYTES_MAX: u32 = 16 << 10;
/// All trailer lines together.
const TRAILER_BYTES_MAX: u32 = 16 << 10;

/// Decodes one body. Bytes may arrive in any pieces.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    state: State,
    /// Extension bytes not yet paid for by content.
    extension_bytes: u32,
    /// Trailer bytes seen, those of thrown-away fields too.
    trailer_bytes: u32,
    /// Where in `trailers` the unfinished line starts.
    line_at: usize,
    trailers: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Length(u64),
    UntilClose,
    Size { size: u64, digits: u8 },
    Extension { size: u64, part: Part },
    SizeLf { size: u64 },
    Data(u64),
    DataCr,
    DataLf,
    Trailers,
    Done,
    Failed(BodyError),
}

/// Where in a chunk extension we are: `;` name [ `=` ( token / quoted-string ) ]. Around `;` and `=` there may be blanks
/// (RFC 9112 §7.1.1), which a recipient must bear (RFC 9110 §5.6.3); at the end of the line there may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Behind a blank: only another extension may follow.
    Before,
    NameStart,
    Name,
    NameEnd,
    ValueStart,
    Token,
    Quoted,
    QuotedPair,
    QuotedEnd,
}

/// What one call of [`BodyDecoder::decode`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// So many bytes of the input were used; they need not be shown again.
    pub consumed: usize,
    /// The content among them. May be empty although bytes were consumed.
    pub data: Range<usize>,
    /// The body ends with the consumed bytes; what follows belongs to the next message.
    pub done: bool,
}

impl BodyDecoder {
    /// A decoder for a body that is delimited so.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size { size: 0, digits: 0 },
            Framing::UntilClose => State::UntilClose,
        };
        Self {
            state,
            extension_bytes: 0,
            trailer_bytes: 0,
            line_at: 0,
            trailers: Vec::new(),
        }
    }

    /// Takes the next bytes. Everything is consumed, except what follows the end of the body and what follows the
    /// content of one piece up to the next content: call again with the rest until all is consumed or `done`.
    /// Errors stay: the body is of no further use, and neither is the connection.
    pub fn decode(&mut self, input: &[u8]) -> Result<Piece, BodyError> {
        let mut at = 0;
        let mut data = 0..0;
        loop {
            match self.state {
                State::Done => break,
                State::Failed(error) => return Err(error),
                State::Length(left) | State::Data(left) => {
                    let here = input.len() - at;
                    let take = usize::try_from(left).map_or(here, |left| left.min(here));
                    if take == 0 || !data.is_empty() {
                        break;
                    }
                    data = at..at + take;
                    at += take;
                    self.took(left - take as u64, take);
                }
                State::UntilClose => {
                    data = at..input.len();
                    at = input.len();
                    break;
                }
                _ => {
                    let Some(&byte) = input.get(at) else { break };
                    at += 1;
                    if let Err(error) = self.step(byte) {
                        self.state = State::Failed(error);
                        if data.is_empty() {
                            return Err(error);
                        }
                        // The content before it is good; the rest is an error when it is asked for.
                        at -= 1;
                        break;
                    }
                }
            }
        }
        Ok(Piece {
            consumed: at,
            data,
            done: self.state == State::Done,
        })
    }

    /// The body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The sender closed. A body that lasts until then is complete, every other one was cut (RFC 9112 §8).
    pub fn finish_on_eof(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::UntilClose | State::Done => {
                self.state = State::Done;
                Ok(())
            }
            State::Failed(error) => Err(error),
            _ => {
                self.state = State::Failed(BodyError::Truncated);
                Err(BodyError::Truncated)
            }
        }
    }

    /// How many bytes of content are to come, where that is known.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// The trailer fields, as `Name: value` lines with line ends, ready to be written. Fields that frame, route,
    /// authenticate or describe the message are left out (RFC 9110 §6.5.1).
    #[must_use]
    pub fn trailers(&self) -> &[u8] {
        if self.is_done() { &self.trailers } else { &[] }
    }

    fn took(&mut self, left: u64, taken: usize) {
        self.state = match self.state {
            State::Length(_) if left > 0 => State::Length(left),
            State::Length(_) => State::Done,
            _ if left > 0 => State::Data(left),
            _ => State::DataCr,
        };
        self.extension_bytes = self
            .extension_bytes
            .saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
    }

    /// One byte of chunk framing.
    fn step(&mut self, byte: u8) -> Result<(), BodyError> {
        self.state = match (self.state, byte) {
            (State::Size { size, digits }, b'\r') if digits > 0 => State::SizeLf { size },
            (State::Size { size, digits }, b';') if digits > 0 => State::Extension {
                size,
                part: Part::NameStart,
            },
            (State::Size { size, digits }, b' ' | b'\t') if digits > 0 => State::Extension {
                size,
                part: Part::Before,
            },
            (State::Size { size, digits }, _) => {
                let digit = char::from(byte)
                    .to_digit(16)
                    .ok_or(BodyError::BadChunkSize)?;
                if digits == SIZE_DIGITS_MAX {
                    return Err(BodyError::ChunkTooLarge);
                }
                // The highest bit stays free, so that sums with a size cannot overflow.
                if size >> 59 != 0 {
                    return Err(BodyError::ChunkTooLarge);
                }
                State::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (State::Extension { size, part }, _) => {
                self.extension_bytes += 1;
                if self.extension_bytes > EXTENSION_BYTES_MAX {
                    return Err(BodyError::ExtensionTooLong);
                }
                match extension(part, byte)? {
                    Some(part) => State::Extension { size, part },
                    None => State::SizeLf { size },
                }
            }
            (State::SizeLf { size: 0 }, b'\n') => State::Trailers,
            (State::SizeLf { size }, b'\n') => State::Data(size),
            (State::SizeLf { .. }, _) => return Err(BodyError::BadChunkSize),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { size: 0, digits: 0 },
            (State::DataCr | State::DataLf, _) => return Err(BodyError::BadChunkEnd),
            (State::Trailers, _) => return self.trailer_byte(byte),
            (state, _) => state,
        };
        Ok(())
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<(), BodyError> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(BodyError::TrailersTooLarge);
        }
        self.trailers.push(byte);
        if byte != b'\n' {
            return Ok(());
        }
        let line = self.trailers.split_off(self.line_at);
        let line = line.strip_suffix(b"\r\n").ok_or(BodyError::BadTrailer)?;
        if line.is_empty() {
            self.state = State::Done;
            return Ok(());
        }
        let (name, value) = line::field_line(line).map_err(|_| BodyError::BadTrailer)?;
        if may_trail(name) {
            encode::field(&mut self.trailers, name, value);
        }
        self.line_at = self.trailers.len();
        Ok(())
    }
}

/// One byte of a chunk extension; `None`: the CR that ends the line.
fn extension(part: Part, byte: u8) -> Result<Option<Part>, BodyError> {
    let next = match (part, byte) {
        (Part::Name | Part::Token | Part::QuotedEnd, b'\r') => return Ok(None),
        (Part::Before | Part::Name | Part::NameEnd | Part::Token | Part::QuotedEnd, b';') => {
            Part::NameStart
        }
        (Part::Name | Part::NameEnd, b'=') => Part::ValueStart,
        (Part::Before | Part::NameStart | Part::NameEnd | Part::ValueStart, b' ' | b'\t') => part,
        (Part::Name, b' ' | b'\t') => Part::NameEnd,
        (Part::Token | Part::QuotedEnd, b' ' | b'\t') => Part::Before,
        (Part::NameStart | Part::Name, _) if is_token_byte(byte) => Part::Name,
        (Part::ValueStart, b'"') => Part::Quoted,
        (Part::ValueStart | Part::Token, _) if is_token_byte(byte) => Part::Token,
        (Part::Quoted, b'"') => Part::QuotedEnd,
        (Part::Quoted, b'\\') => Part::QuotedPair,
        (Part::Quoted | Part::QuotedPair, _) if is_value_byte(byte) => Part::Quoted,
        _ => return Err(BodyError::BadExtension),
    };
    Ok(Some(next))
}

/// RFC 9110 §6.5.1: a field that means something before the content is no trailer. kp knows its names because they
/// do, so of those only three descriptions of the content may trail. Names nginx would ignore are left out as well.
fn may_trail(name: &[u8]) -> bool {
    matches!(
        Known::of(name),
        Known::Other | Known::ETag | Known::LastModified | Known::Link
    ) && is_plain_name(name, false)
}
