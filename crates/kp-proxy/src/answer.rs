//! Answers kp gives itself, whole: head and body.
//!
//! Decides the bytes of built-in pages (nginx's, with kp's name), of `return` texts and redirects, and of failures. A
//! page is small, so it is written behind its head at once; files go through `file_head`.

use crate::client_head::{
    ClientHead, can_chunk, expects_trailers, is_head, last_chunk, write_origin,
};
use crate::failure::{After, Cause};
use crate::heads::server_text;
use crate::program::Program;
use crate::{Answer, Context, Exchange, Failure, Reason, vars, wire_status};
use kp_config::model::{Handler, Location, ServerTokens};
use kp_http::{Framing, Known, encode};

/// A whole answer is in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// The client connection stays after it.
    pub keep: bool,
    /// Bytes of the head; what follows in the buffer is the body.
    pub head_bytes: usize,
}

/// Appends the answer to a failure. Without the status of one that can still be sent, nothing is written.
pub fn failure_answer(
    out: &mut Vec<u8>,
    failure: &Failure,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    keep: bool,
) -> Answered {
    let status = failure.status();
    if status == 0 || matches!(failure.after(), After::Abort | After::Gone) {
        return Answered {
            keep: false,
            head_bytes: 0,
        };
    }
    if matches!(
        failure.cause,
        Cause::Overload | Cause::OutOfMemory | Cause::QueueFull | Cause::QueueTimeout
    ) {
        // Long enough for connections to end, short enough to be tried again.
        exchange.response.retry_after_s.get_or_insert(1);
    }
    let fields: &[u8] = match failure.cause {
        Cause::ConnectMethod => b"Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH\r\n",
        _ => b"",
    };
    let keep = keep && failure.after() == After::Keep;
    write(
        out,
        &Answer::status(status, failure.reason()),
        fields,
        exchange,
        program,
        context,
        keep,
    )
}

/// Appends an answer. `keep`: the connection could stay.
pub fn answer(
    out: &mut Vec<u8>,
    answer: &Answer,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    keep: bool,
) -> Answered {
    let location = &context.config.http.locations[exchange.location.index()];
    // RFC 9110 §15.5.6: a 405 says what is allowed, which kp knows of files.
    let is_fetched =
        matches!(location.handler, Handler::Static | Handler::Page(_)) && answer.body.is_none();
    let fields = if is_fetched && answer.status == 405 {
        ALLOW_FILE
    } else {
        b""
    };
    write(out, answer, fields, exchange, program, context, keep)
}

/// A page about kp itself, rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The status.
    pub status: u16,
    /// Its media type.
    pub media_type: &'static str,
    /// Further fields: names and values.
    pub fields: &'static [(&'static str, &'static str)],
    /// The text.
    pub body: Vec<u8>,
}

/// The head of a page is in the buffer.
#[derive(Debug)]
pub struct PageReply {
    /// What is to be done with the connection, and the length of the head.
    pub sent: Answered,
    /// The text that follows, and how; `None`: nothing does, since only the head was asked for.
    pub body: Option<(Vec<u8>, Framing)>,
}

/// Appends the head of a page. The page itself may be long, and is sent as the client takes it.
pub fn page(
    out: &mut Vec<u8>,
    page: Rendered,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    keep: bool,
) -> PageReply {
    // What may have been carried over from an upstream speaks of another body.
    let fields = &mut exchange.response.carried;
    fields.clear();
    encode::field(fields, b"Content-Type", page.media_type.as_bytes());
    encode::field(fields, b"Cache-Control", b"no-store");
    for (name, value) in page.fields {
        encode::field(fields, name.as_bytes(), value.as_bytes());
    }
    let status = match exchange.request.forced_status {
        0 => page.status,
        forced => forced,
    };
    let reason = match page.status {
        503 => Reason::NotReady,
        _ => Reason::Page,
    };
    let answer = Answer {
        body: Some(Vec::new()),
        interceptable: false,
        ..Answer::status(status, reason)
    };
    exchange.explain_answer(&answer);
    let whole = Whole {
        answer: &answer,
        body: Body::Text(&page.body),
        fields: b"",
    };
    let (sent, framing) = whole.write_head(out, exchange, program, context, keep);
    PageReply {
        sent,
        body: framing.map(|framing| (page.body, framing)),
    }
}

/// What may be done with a file.
pub(crate) const ALLOW_FILE: &[u8] = b"Allow: GET, HEAD\r\n";

/// When a refused client may come again, also with the page that `error_page` gives a refusal; not with one that hides it.
pub(crate) fn write_retry_after(out: &mut Vec<u8>, exchange: &Exchange) {
    if let Some(seconds) = exchange.response.retry_after_s
        && exchange.response.status >= 400
    {
        out.extend_from_slice(b"Retry-After: ");
        out.extend_from_slice(itoa::Buffer::new().format(seconds).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// See [`answer`]; `fields` are lines that belong to this answer alone.
pub(crate) fn write(
    out: &mut Vec<u8>,
    answer: &Answer,
    fields: &[u8],
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    keep: bool,
) -> Answered {
    let location = &context.config.http.locations[exchange.location.index()];
    let page = if answer.body.is_none() {
        page_of(answer.status)
    } else {
        None
    };
    let server = match page {
        Some(_) => server_name(location, exchange, program, context),
        None => Vec::new(),
    };
    let whole = Whole {
        answer,
        body: match (&page, &answer.body) {
            (Some(page), _) => Body::Page(page, &server),
            (None, Some(text)) => Body::Text(text),
            (None, None) => Body::Empty,
        },
        fields,
    };
    let (answered, framing) = whole.write_head(out, exchange, program, context, keep);
    if let Some(framing) = framing {
        whole.body.write(out, framing == Framing::Chunked);
        if framing == Framing::Chunked {
            last_chunk(out, exchange, program, context);
        }
    }
    answered
}

/// An answer with what stands behind its head.
struct Whole<'a> {
    answer: &'a Answer,
    body: Body<'a>,
    /// Lines that belong to this answer alone.
    fields: &'a [u8],
}

impl Whole<'_> {
    /// Appends the head. How the body follows, if it does.
    fn write_head(
        &self,
        out: &mut Vec<u8>,
        exchange: &mut Exchange,
        program: &Program,
        context: &Context<'_>,
        keep: bool,
    ) -> (Answered, Option<Framing>) {
        let location = &context.config.http.locations[exchange.location.index()];
        let answer = self.answer;
        let status = wire_status(answer.status);
        let keep = keep && status >= 200 && !(answer.body.is_none() && closes(status));
        let bodiless = matches!(status, 100..=199 | 204 | 304);
        let framing = if bodiless {
            Framing::None
        } else if !is_head(exchange)
            && can_chunk(exchange, location)
            && expects_trailers(location, status)
        {
            Framing::Chunked
        } else {
            Framing::Length(self.body.length() as u64)
        };
        let start = out.len();
        let head = ClientHead::open(out, status, None, exchange.location, program, context);
        exchange.response.status = status;
        head.server_date(out, true, true, exchange, program, context);
        write_retry_after(out, exchange);
        match self.body {
            Body::Page(..) => out.extend_from_slice(b"Content-Type: text/html\r\n"),
            Body::Text(_)
                if !bodiless && !carries(&exchange.response.carried, Known::ContentType) =>
            {
                write_content_type(out, exchange, location, context);
            }
            Body::Text(_) | Body::Empty => {}
        }
        write_framing(out, framing);
        head.connection(out, keep);
        if let Some(target) = &answer.location {
            write_location(out, target, exchange, location, context);
        }
        out.extend_from_slice(self.fields);
        write_carried(
            out,
            &exchange.response.carried,
            matches!(self.body, Body::Text(_)),
        );
        head.close(out, exchange, program, context);
        let head_bytes = out.len() - start;
        let follows = !bodiless && !is_head(exchange);
        (Answered { keep, head_bytes }, follows.then_some(framing))
    }
}

/// What stands behind the head.
enum Body<'a> {
    /// A built-in page, and what it calls the server.
    Page(&'a Page, &'a [u8]),
    /// The text of `return`.
    Text(&'a [u8]),
    Empty,
}

impl Body<'_> {
    fn length(&self) -> usize {
        match self {
            Self::Page(page, server) => page.length(server),
            Self::Text(text) => text.len(),
            Self::Empty => 0,
        }
    }

    /// Appends it, as one chunk where it goes in chunks.
    fn write(&self, out: &mut Vec<u8>, chunked: bool) {
        let chunked = chunked && self.length() > 0;
        if chunked {
            out.extend_from_slice(encode::chunk_head(self.length() as u64).as_bytes());
        }
        match self {
            Self::Page(page, server) => page.write(out, server),
            Self::Text(text) => out.extend_from_slice(text),
            Self::Empty => {}
        }
        if chunked {
            out.extend_from_slice(encode::CHUNK_END);
        }
    }
}

fn write_framing(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            encode::number(out, length);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::None | Framing::UntilClose => {}
    }
}

/// Statuses after which nginx closes: the request may not have been understood, or worse follows.
fn closes(status: u16) -> bool {
    matches!(status, 400 | 408 | 413 | 414 | 431 | 500 | 501 | 505)
}

/// `Location`, absolute where it is a path and `absolute_redirect` is on. Bytes no URL can hold are escaped, so that a
/// decoded variable cannot end the line.
fn write_location(
    out: &mut Vec<u8>,
    target: &[u8],
    exchange: &Exchange,
    location: &Location,
    context: &Context<'_>,
) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(b"Location: ");
    if target.first() == Some(&b'/') && location.redirects.absolute {
        write_origin(out, exchange, location, context);
    }
    for &byte in target {
        if byte <= b' ' || byte == 0x7f {
            out.extend_from_slice(&[
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
        } else {
            out.push(byte);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// `Content-Type` by the URI's extension and `types`, else `default_type`.
pub(crate) fn write_content_type(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    location: &Location,
    context: &Context<'_>,
) {
    let types = &context.config.http.type_maps[location.types.index()].types;
    let known = extension(&exchange.request.uri).and_then(|extension| {
        let extension = extension.to_ascii_lowercase();
        let at = types
            .binary_search_by(|(other, _)| other.as_bytes().cmp(extension.as_slice()))
            .ok()?;
        types.get(at).map(|(_, media_type)| media_type.as_str())
    });
    let media_type = known.unwrap_or(&location.default_type);
    if !media_type.is_empty() {
        encode::field(out, b"Content-Type", media_type.as_bytes());
    }
}

/// What stands behind the last dot of the last segment, unless the segment starts with that dot.
fn extension(uri: &[u8]) -> Option<&[u8]> {
    let segment = memchr::memrchr(b'/', uri).map_or(0, |at| at + 1);
    let name = uri.get(segment..)?;
    let dot = memchr::memrchr(b'.', name).filter(|&dot| dot > 0)?;
    name.get(dot + 1..)
}

/// Whether a field is among those carried over from an upstream.
pub(crate) fn carries(fields: &[u8], known: Known) -> bool {
    fields
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.get(..memchr::memchr(b':', line)?))
        .any(|name| Known::of(name) == known)
}

/// Appends the fields that were carried over; what they say about the body only where it is the body they knew of.
fn write_carried(out: &mut Vec<u8>, fields: &[u8], same_body: bool) {
    for line in fields.split_inclusive(|&byte| byte == b'\n') {
        if same_body || !carries(line, Known::ContentType) {
            out.extend_from_slice(line);
        }
    }
}

/// What the bottom of a page calls the server.
fn server_name(
    location: &Location,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> Vec<u8> {
    let mut out = Vec::new();
    match (
        server_text(&location.server_tokens),
        &location.server_tokens,
    ) {
        (Some(text), _) => out.extend_from_slice(text.as_bytes()),
        (None, ServerTokens::Text(template)) => {
            vars::evaluate(template, exchange, program, context, &mut out);
        }
        (None, _) => {}
    }
    out
}

/// A built-in page.
struct Page {
    title: &'static str,
    heading: &'static str,
    /// A second centred line.
    note: &'static str,
}

/// The pieces of a page between the texts.
const PAGE: [&[u8]; 4] = [
    b"<html>\r\n<head><title>",
    b"</title></head>\r\n<body>\r\n<center><h1>",
    b"</h1></center>\r\n",
    b"</body>\r\n</html>\r\n",
];
const CENTER: [&[u8]; 2] = [b"<center>", b"</center>\r\n"];
const RULE: [&[u8]; 2] = [b"<hr><center>", b"</center>\r\n"];

impl Page {
    fn write(&self, out: &mut Vec<u8>, server: &[u8]) {
        for piece in self.pieces(server) {
            out.extend_from_slice(piece);
        }
    }

    fn length(&self, server: &[u8]) -> usize {
        self.pieces(server).iter().map(|piece| piece.len()).sum()
    }

    fn pieces<'a>(&'a self, server: &'a [u8]) -> [&'a [u8]; 12] {
        let [open, middle, heading_end, end] = PAGE;
        let [center, center_end] = if self.note.is_empty() {
            [b"".as_slice(); 2]
        } else {
            CENTER
        };
        let [rule, rule_end] = if server.is_empty() {
            [b"".as_slice(); 2]
        } else {
            RULE
        };
        [
            open,
            self.title.as_bytes(),
            middle,
            self.heading.as_bytes(),
            heading_end,
            center,
            self.note.as_bytes(),
            center_end,
            rule,
            server,
            rule_end,
            end,
        ]
    }
}

/// nginx's page of a status; 431 and 508 are kp's. Every other status has an empty body.
fn page_of(status: u16) -> Option<Page> {
    let title = match status {
        301 => "301 Moved Permanently",
        302 => "302 Found",
        303 => "303 See Other",
        307 => "307 Temporary Redirect",
        308 => "308 Permanent Redirect",
        400 => "400 Bad Request",
        401 => "401 Authorization Required",
        402 => "402 Payment Required",
        403 => "403 Forbidden",
        404 => "404 Not Found",
        405 => "405 Not Allowed",
        406 => "406 Not Acceptable",
        407 => "407 Proxy Authentication Required",
        408 => "408 Request Time-out",
        409 => "409 Conflict",
        410 => "410 Gone",
        411 => "411 Length Required",
        412 => "412 Precondition Failed",
        413 => "413 Request Entity Too Large",
        414 => "414 Request-URI Too Large",
        415 => "415 Unsupported Media Type",
        416 => "416 Requested Range Not Satisfiable",
        421 => "421 Misdirected Request",
        429 => "429 Too Many Requests",
        431 => "431 Request Header Fields Too Large",
        494..=497 => return Some(refused(status)),
        500 => "500 Internal Server Error",
        501 => "501 Not Implemented",
        502 => "502 Bad Gateway",
        503 => "503 Service Temporarily Unavailable",
        504 => "504 Gateway Time-out",
        505 => "505 HTTP Version Not Supported",
        507 => "507 Insufficient Storage",
        508 => "508 Loop Detected",
        _ => return None,
    };
    Some(Page {
        title,
        heading: title,
        note: "",
    })
}

fn refused(status: u16) -> Page {
    let (title, note) = match status {
        494 => (
            "400 Request Header Or Cookie Too Large",
            "Request Header Or Cookie Too Large",
        ),
        495 => ("400 The SSL certificate error", "The SSL certificate error"),
        496 => (
            "400 No required SSL certificate was sent",
            "No required SSL certificate was sent",
        ),
        _ => (
            "400 The plain HTTP request was sent to HTTPS port",
            "The plain HTTP request was sent to HTTPS port",
        ),
    };
    Page {
        title,
        heading: "400 Bad Request",
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(status: u16, server: &str) -> String {
        let mut out = Vec::new();
        let page = page_of(status).expect("a page");
        page.write(&mut out, server.as_bytes());
        assert_eq!(out.len(), page.length(server.as_bytes()));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn pages_are_nginx_s() {
        assert_eq!(
            page(404, "kp/0.1.0"),
            "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n<center><h1>404 Not Found</h1></center>\r\n\
             <hr><center>kp/0.1.0</center>\r\n</body>\r\n</html>\r\n"
        );
        assert_eq!(
            page(497, "kp"),
            "<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>\r\n<body>\r\n\
             <center><h1>400 Bad Request</h1></center>\r\n\
             <center>The plain HTTP request was sent to HTTPS port</center>\r\n\
             <hr><center>kp</center>\r\n</body>\r\n</html>\r\n"
        );
        assert!(
            page(302, "")
                .ends_with("<center><h1>302 Found</h1></center>\r\n</body>\r\n</html>\r\n")
        );
        assert!(page_of(418).is_none());
        assert!(page_of(204).is_none());
    }

    #[test]
    fn every_page_begins_with_its_status() {
        for status in 300..600 {
            if let Some(page) = page_of(status) {
                assert!(
                    page.title.starts_with(&wire_status(status).to_string()),
                    "{status}"
                );
            }
        }
    }

    #[test]
    fn extensions() {
        assert_eq!(extension(b"/a/b.HTML"), Some(b"HTML".as_slice()));
        assert_eq!(extension(b"/a.b/c"), None);
        assert_eq!(extension(b"/.htaccess"), None);
        assert_eq!(extension(b"/a.tar.gz"), Some(b"gz".as_slice()));
        assert_eq!(extension(b"/"), None);
    }

    #[test]
    fn carried_content_type() {
        let carries_type = |fields| carries(fields, Known::ContentType);
        assert!(carries_type(
            b"Set-Cookie: a=1\r\ncontent-type: text/css\r\n"
        ));
        assert!(!carries_type(b"Set-Cookie: Content-Type: x\r\n"));
    }
}
