//! Feeds bytes to the readers and decoders in pieces and notes everything that comes out, so that a test can compare
//! ways of cutting the same bytes.

use kp_http::{
    BodyDecoder, BodyError, Framing, HeadCause, HeadError, HeadLimits, HeadReader, Method,
    RequestHead, ResponseHead,
};

/// One message as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) line: String,
    pub(crate) host: Option<String>,
    pub(crate) path: String,
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) hop: Vec<String>,
    pub(crate) dropped: Vec<String>,
    pub(crate) framing: Framing,
    pub(crate) persistent: bool,
    pub(crate) expect_continue: bool,
    pub(crate) upgrade: Option<String>,
    pub(crate) keep_alive_timeout_s: Option<u32>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: String,
}

impl Message {
    /// Value of a field by its exact name.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.as_str())
    }
}

/// How the bytes ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Between two messages, with so many bytes of the next head.
    Waiting(usize),
    /// In the middle of a body.
    InBody,
    /// In a head that is refused; the name of the field to blame.
    Refused(HeadCause, String),
    /// In a body that is refused.
    BadBody(BodyError),
}

/// Everything that came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) messages: Vec<Message>,
    pub(crate) end: End,
}

impl Outcome {
    /// The cause, if a head was refused.
    pub(crate) fn refused(&self) -> Option<HeadCause> {
        if let End::Refused(cause, _) = self.end {
            Some(cause)
        } else {
            None
        }
    }

    /// The cause, if a body was refused.
    pub(crate) fn bad_body(&self) -> Option<BodyError> {
        if let End::BadBody(error) = self.end {
            Some(error)
        } else {
            None
        }
    }
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

fn refused(error: HeadError) -> End {
    End::Refused(error.cause(), text(error.name()))
}

/// Reads a stream of requests.
pub(crate) fn requests<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: &HeadLimits,
) -> Outcome {
    let mut reader = HeadReader::default();
    let mut head = RequestHead::default();
    drive(pieces, |input| {
        Ok(reader
            .request(input, &mut head, limits)
            .map_err(refused)?
            .then(|| Message {
                line: text(head.request_line()),
                host: head.host().map(text),
                path: text(head.path_and_query()),
                status: 0,
                fields: head
                    .fields()
                    .map(|field| (text(head.name(field)), text(head.value(field))))
                    .collect(),
                hop: head
                    .fields()
                    .filter(|field| field.is_hop())
                    .map(|field| text(head.name(field)))
                    .collect(),
                dropped: head.dropped().map(text).collect(),
                framing: head.framing,
                persistent: head.persistent(),
                expect_continue: head.expect_continue,
                upgrade: head.upgrade_requested().map(text),
                keep_alive_timeout_s: None,
                body: Vec::new(),
                trailers: String::new(),
            }))
    })
}

/// Reads a stream of responses to requests with the method `asked`.
pub(crate) fn responses<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    asked: Method,
    limits: &HeadLimits,
) -> Outcome {
    let mut reader = HeadReader::default();
    let mut head = ResponseHead::default();
    drive(pieces, |input| {
        Ok(reader
            .response(input, &mut head, asked, limits)
            .map_err(refused)?
            .then(|| Message {
                line: text(head.status_line()),
                host: None,
                path: text(head.reason()),
                status: head.status,
                fields: head
                    .fields()
                    .map(|field| (text(head.name(field)), text(head.value(field))))
                    .collect(),
                hop: head
                    .fields()
                    .filter(|field| field.is_hop())
                    .map(|field| text(head.name(field)))
                    .collect(),
                dropped: head.dropped().map(text).collect(),
                framing: head.framing,
                persistent: head.persistent,
                expect_continue: false,
                upgrade: None,
                keep_alive_timeout_s: head.keep_alive_timeout_s,
                body: Vec::new(),
                trailers: String::new(),
            }))
    })
}

fn drive<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    mut next_head: impl FnMut(&mut Vec<u8>) -> Result<Option<Message>, End>,
) -> Outcome {
    let mut input = Vec::new();
    let mut messages: Vec<Message> = Vec::new();
    let mut body: Option<BodyDecoder> = None;
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            if let Some(decoder) = &mut body {
                let Some(message) = messages.last_mut() else {
                    unreachable!("a body follows a head")
                };
                match decoder.decode(&input) {
                    Err(error) => {
                        // How much of a bad body was seen before the mistake depends on the pieces.
                        message.body.clear();
                        return Outcome {
                            messages,
                            end: End::BadBody(error),
                        };
                    }
                    Ok(piece) => {
                        assert!(
                            piece.data.end <= piece.consumed && piece.consumed <= input.len(),
                            "{piece:?}"
                        );
                        message.body.extend_from_slice(&input[piece.data.clone()]);
                        input.drain(..piece.consumed);
                        if piece.done {
                            message.trailers = text(decoder.trailers());
                            body = None;
                        } else if piece.consumed == 0 {
                            break;
                        }
                    }
                }
                continue;
            }
            match next_head(&mut input) {
                Err(end) => return Outcome { messages, end },
                Ok(None) => break,
                Ok(Some(message)) => {
                    let decoder = BodyDecoder::new(message.framing);
                    body = (!decoder.is_done()).then_some(decoder);
                    messages.push(message);
                }
            }
        }
    }
    let end = if body.is_some() {
        End::InBody
    } else {
        End::Waiting(input.len())
    };
    Outcome { messages, end }
}

/// The three ways every parsing case is run: one write, one byte per write, split after each CRLF.
pub(crate) fn three_ways(bytes: &[u8], read: impl Fn(Vec<&[u8]>) -> Outcome) -> Outcome {
    let whole = read(vec![bytes]);
    let bytewise = read(bytes.chunks(1).collect());
    assert_eq!(whole, bytewise, "byte by byte: {}", bytes.escape_ascii());
    let lines = read(after_each_crlf(bytes));
    assert_eq!(whole, lines, "line by line: {}", bytes.escape_ascii());
    whole
}

fn after_each_crlf(bytes: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let (piece, after) = rest.split_at(at + 2);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// Requests with nginx's default limits, all three ways.
pub(crate) fn ask(bytes: impl AsRef<[u8]>) -> Outcome {
    ask_with(bytes, &HeadLimits::default())
}

/// Requests, all three ways.
pub(crate) fn ask_with(bytes: impl AsRef<[u8]>, limits: &HeadLimits) -> Outcome {
    three_ways(bytes.as_ref(), |pieces| requests(pieces, limits))
}

/// Responses to a GET with nginx's default limits, all three ways.
pub(crate) fn answer(bytes: impl AsRef<[u8]>) -> Outcome {
    answer_to(Method::Get, bytes)
}

/// Responses to `asked`, all three ways.
pub(crate) fn answer_to(asked: Method, bytes: impl AsRef<[u8]>) -> Outcome {
    three_ways(bytes.as_ref(), |pieces| {
        responses(pieces, asked, &HeadLimits::default())
    })
}
