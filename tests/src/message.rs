//! HTTP/1 messages as the tests read them: a strict reader of its own, so that kp is not judged by its own parser.

use std::io;

/// How what was being read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By its framing; the connection is still there.
    Complete,
    /// The other side closed; with TLS it said so by a close_notify.
    Closed,
    /// The other side closed its socket without the close_notify of TLS.
    Cut,
    /// The other side reset the connection.
    Reset,
    /// Nothing came before the deadline.
    Deadline,
}

/// The first line and the fields of a message.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// The first line, without its line end.
    pub line: String,
    /// Names as they were sent, values without surrounding blanks, in order.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// Parses a head without its final empty line. Fails on anything but CRLF-ended `name: value` lines.
    pub fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let mut fields = Vec::new();
        for field in lines {
            let (name, value) = field
                .split_once(':')
                .ok_or_else(|| invalid(&format!("no colon in {field:?}")))?;
            if name.is_empty()
                || name.contains([' ', '\t', '\n', '\r'])
                || value.contains(['\n', '\r', '\0'])
            {
                return Err(invalid(&format!("bad field {field:?}")));
            }
            fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
        Ok(Self { line, fields })
    }

    /// The value of the first field of that name, whatever its case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// All values of the name, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let same = |(known, _): &&(String, String)| known.eq_ignore_ascii_case(name);
        self.fields
            .iter()
            .filter(same)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The status of a response's first line, 0 for anything else.
    pub fn status(&self) -> u16 {
        let known = self
            .line
            .strip_prefix("HTTP/1.1 ")
            .or_else(|| self.line.strip_prefix("HTTP/1.0 "));
        known
            .and_then(|rest| rest.get(..3)?.parse().ok())
            .unwrap_or(0)
    }

    /// Framing a reader must assume (RFC 9112 §6.3), `until_close` being what holds without any framing field.
    pub(crate) fn framing(&self, until_close: bool) -> io::Result<Framing> {
        let codings = self.all("transfer-encoding");
        let lengths = self.all("content-length");
        match (codings.as_slice(), lengths.as_slice()) {
            ([], []) if until_close => Ok(Framing::UntilClose),
            ([], []) => Ok(Framing::Length(0)),
            ([], [length]) => length
                .parse()
                .map(Framing::Length)
                .map_err(|_| invalid("bad length")),
            ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
            other => Err(invalid(&format!("ambiguous framing {other:?}"))),
        }
    }
}

/// A complete request as an origin received it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Request line and fields.
    pub head: Head,
    /// Decoded body.
    pub body: Vec<u8>,
    /// Trailer fields of a chunked body.
    pub trailers: Vec<(String, String)>,
    /// Which accepted connection it came on, from 0.
    pub connection: usize,
}

impl Request {
    /// The method.
    pub fn method(&self) -> &str {
        self.head.line.split(' ').next().unwrap_or_default()
    }

    /// The target as it was sent.
    pub fn target(&self) -> &str {
        self.head.line.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }
}

/// A response as a client received it.
#[derive(Debug, Clone)]
pub struct Response {
    /// 1xx heads that came before, in order.
    pub interim: Vec<Head>,
    /// Status line and fields.
    pub head: Head,
    /// Decoded body, as much of it as came.
    pub body: Vec<u8>,
    /// Trailer fields of a chunked body.
    pub trailers: Vec<(String, String)>,
    /// How the body ended: `Complete`, or `Closed` where closing is its framing, else a truncation.
    pub end: End,
    /// Whether the end is the one that the framing promised.
    pub whole: bool,
}

impl Response {
    /// The status.
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// Decodes a body piece by piece.
#[derive(Debug)]
pub(crate) struct BodyReader {
    state: State,
    pub(crate) trailers: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fixed(u64),
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    UntilClose,
    Done,
}

impl BodyReader {
    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Fixed(length),
            Framing::Chunked => State::Size,
            Framing::UntilClose => State::UntilClose,
        };
        Self {
            state,
            trailers: Vec::new(),
        }
    }

    pub(crate) fn done(&self) -> bool {
        self.state == State::Done
    }

    pub(crate) fn until_close(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Takes what it can from `input` and appends the body bytes to `out`.
    pub(crate) fn take(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> io::Result<()> {
        loop {
            match self.state {
                State::Done => return Ok(()),
                State::UntilClose => {
                    out.append(input);
                    return Ok(());
                }
                State::Fixed(left) | State::Data(left) => {
                    if input.is_empty() {
                        return Ok(());
                    }
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    out.extend(input.drain(..count));
                    let rest = left - count as u64;
                    self.state = match (self.state, rest) {
                        (State::Fixed(_), 0) => State::Done,
                        (State::Fixed(_), rest) => State::Fixed(rest),
                        (_, 0) => State::DataEnd,
                        (_, rest) => State::Data(rest),
                    };
                }
                State::Size | State::DataEnd | State::Trailer => {
                    let Some(line) = line(input) else {
                        return Ok(());
                    };
                    self.chunk_line(&line)?;
                }
            }
        }
    }

    fn chunk_line(&mut self, line: &str) -> io::Result<()> {
        self.state = match self.state {
            State::DataEnd if line.is_empty() => State::Size,
            State::Size => {
                let digits = line.split(';').next().unwrap_or_default();
                match u64::from_str_radix(digits, 16) {
                    Ok(_) if digits.starts_with('+') => return Err(invalid("signed chunk size")),
                    Ok(0) => State::Trailer,
                    Ok(size) => State::Data(size),
                    Err(_) => return Err(invalid(&format!("bad chunk size {line:?}"))),
                }
            }
            State::Trailer if line.is_empty() => State::Done,
            State::Trailer => {
                let (name, value) = line.split_once(':').ok_or_else(|| invalid("bad trailer"))?;
                self.trailers
                    .push((name.to_owned(), value.trim().to_owned()));
                State::Trailer
            }
            _ => {
                return Err(invalid(&format!(
                    "chunk data not followed by CRLF but {line:?}"
                )));
            }
        };
        Ok(())
    }
}

/// Takes a head (without its empty line) from the front of `input`, if it is complete.
pub(crate) fn take_head(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = input.windows(4).position(|window| window == b"\r\n\r\n")?;
    let mut head: Vec<u8> = input.drain(..end + 4).collect();
    head.truncate(end);
    Some(head)
}

fn line(input: &mut Vec<u8>) -> Option<String> {
    let end = input.windows(2).position(|window| window == b"\r\n")?;
    let line: Vec<u8> = input.drain(..end + 2).collect();
    Some(String::from_utf8_lossy(&line[..end]).into_owned())
}

pub(crate) fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}
