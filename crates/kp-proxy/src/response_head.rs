//! The head of a proxied response, as the client gets it.
//!
//! Decides which of the upstream's fields go through (hop-by-hop and hidden ones do not), how the body is delimited on
//! the client side, and whether the client connection can stay. What `X-Accel-*` asks for is handed back as
//! [`Directives`]; `step` acts on it. Interim responses (RFC 9110 §15.2) and the answer to an upgrade are made here too.

use crate::client_head::{self, ClientHead, can_chunk, expects_trailers, holds, is_head};
use crate::field_lines::Run;
use crate::heads::Seen;
use crate::program::Program;
use crate::{Context, Exchange, proxy_cookie, proxy_redirect};
use kp_http::target::{Unescape, unescape_uri};
use kp_http::{Field, Framing, Known, ResponseHead, Version, encode};

/// What the head that was written means for the body and the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// How the body goes to the client. `None`: no byte of it, even if the upstream sends one.
    pub framing: Framing,
    /// The client connection stays after the response.
    pub keep: bool,
}

/// What the upstream asks kp to do, minus what `proxy_ignore_headers` lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Directives<'a> {
    /// `X-Accel-Redirect`: answer with this URI or `@name` instead.
    pub accel_redirect: Option<&'a [u8]>,
    /// `X-Accel-Buffering: yes|no`.
    pub buffering: Option<bool>,
    /// `X-Accel-Limit-Rate`, bytes per second; 0: no limit.
    pub limit_rate: Option<u64>,
}

/// Reads the directives of the response head in the exchange.
pub fn directives<'a>(exchange: &'a Exchange, program: &Program) -> Directives<'a> {
    let Some(head) = &exchange.response.upstream else {
        return Directives::default();
    };
    let ignored = &program.heads.of(exchange.location).ignored;
    let value = |known: Known| {
        if ignored.has(known) {
            None
        } else {
            head.find(known)
        }
    };
    Directives {
        accel_redirect: value(Known::XAccelRedirect),
        buffering: match value(Known::XAccelBuffering) {
            Some(text) if text.eq_ignore_ascii_case(b"no") => Some(false),
            Some(text) if text.eq_ignore_ascii_case(b"yes") => Some(true),
            _ => None,
        },
        limit_rate: value(Known::XAccelLimitRate)
            .and_then(|text| std::str::from_utf8(text).ok())
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok()),
    }
}

/// Keeps what asks for credentials when an intercepted 401 is answered by an error page, as nginx.
pub fn carry_challenges(exchange: &mut Exchange) {
    let response = &mut exchange.response;
    response.carried.clear();
    let Some(head) = response.upstream.as_ref().filter(|head| head.status == 401) else {
        return;
    };
    for field in head
        .fields()
        .filter(|field| field.known() == Known::WwwAuthenticate)
    {
        encode::field(&mut response.carried, head.name(field), head.value(field));
    }
}

/// Takes the URI of an `X-Accel-Redirect` apart: the decoded path and the arguments. `None`: it leads outside (`..`), or is
/// no URI (nginx: 404).
pub fn accel_target(uri: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let end = memchr::memchr(b'?', uri).unwrap_or(uri.len());
    let (path, args) = uri.split_at(end);
    let mut decoded = Vec::with_capacity(path.len());
    unescape_uri(&mut decoded, path, Unescape::All);
    let is_safe = !decoded.is_empty()
        && !decoded.contains(&0)
        && !decoded
            .split(|&byte| byte == b'/')
            .any(|segment| segment == b"..");
    is_safe.then(|| (decoded, args.get(1..).unwrap_or_default()))
}

/// Keeps the fields that survive an `X-Accel-Redirect`, cookies as this location rewrites them; they join the head of
/// whatever answers in the end. To be called before the exchange leaves the location and forgets the upstream's head.
pub fn carry_fields(exchange: &mut Exchange, program: &Program, context: &Context<'_>) {
    let proxy = &context.config.http.locations[exchange.location.index()].proxy;
    let mut carried = std::mem::take(&mut exchange.response.carried);
    carried.clear();
    // Taken out meanwhile: rewriting a cookie may change what else is in the exchange, captures for one.
    let Some(head) = exchange.response.upstream.take() else {
        return;
    };
    for field in head.fields().filter(|field| !field.is_hop()) {
        let name = head.name(field);
        let survives = matches!(
            field.known(),
            Known::AcceptRanges
                | Known::ContentType
                | Known::SetCookie
                | Known::CacheControl
                | Known::Expires
        ) || name.eq_ignore_ascii_case(b"Content-Disposition");
        if survives && field.known() == Known::SetCookie {
            let value = head.value(field);
            let rewritten = proxy_cookie::rewrite(value, proxy, exchange, program, context);
            carried.extend_from_slice(name);
            carried.extend_from_slice(b": ");
            push_sendable(&mut carried, rewritten.as_deref().unwrap_or(value));
            carried.extend_from_slice(b"\r\n");
        } else if survives {
            encode::field(&mut carried, name, head.value(field));
        }
    }
    exchange.response.upstream = Some(head);
    exchange.response.carried = carried;
}

/// Appends the client's head for the response head in the exchange. `keep`: the connection could stay.
pub fn response_head(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    keep: bool,
) -> Reply {
    let Some(upstream) = &exchange.response.upstream else {
        return Reply {
            framing: Framing::None,
            keep: false,
        };
    };
    if upstream.status == 101 {
        return switching(out, exchange, program, context);
    }
    let forced = exchange.request.forced_status;
    let (status, reason) = if forced == 0 || forced == upstream.status {
        (upstream.status, Some(upstream.reason()))
    } else {
        (forced, None)
    };
    let head = ClientHead::open(out, status, reason, exchange.location, program, context);
    exchange.response.status = status;
    let heads = head.heads;
    head.server_date(
        out,
        heads.hidden.has(Known::Server),
        heads.hidden.has(Known::Date),
        exchange,
        program,
        context,
    );
    let body = delimit(&head, exchange);
    let reply = Reply {
        framing: body.framing,
        keep: keep && body.framing != Framing::UntilClose,
    };
    body.write(out, exchange);
    head.connection(out, reply.keep);
    let upgrade = asks_for_upgrade(exchange, status) && !heads.hidden.has(Known::Upgrade);
    if upgrade {
        out.extend_from_slice(b"Connection: upgrade\r\n");
    }
    let pass = Pass {
        upgrade,
        trailer: reply.framing == Framing::Chunked && head.location.proxy.pass_trailers,
    };
    write_fields(out, &head, pass, exchange, program, context);
    out.extend_from_slice(&exchange.response.carried);
    head.close(out, exchange, program, context);
    reply
}

/// RFC 9110 §15.5.22: a 426 must say what to upgrade to, and kp passes the upgrade on when the client asks for it.
fn asks_for_upgrade(exchange: &Exchange, status: u16) -> bool {
    let upstream = exchange.response.upstream.as_ref();
    status == 426
        && exchange.request.head.version == Version::Http11
        && upstream.is_some_and(|head| head.find(Known::Upgrade).is_some())
}

/// Appends an interim response (RFC 9110 §15.2) as the client gets it; whether there is one to send. Only 103 is passed
/// on, only where `early_hints` says so, and only to clients that know interim responses.
pub fn interim_head(
    out: &mut Vec<u8>,
    interim: &ResponseHead,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> bool {
    let location = &context.config.http.locations[exchange.location.index()];
    if interim.status != 103 || exchange.request.head.version != Version::Http11 {
        return false;
    }
    if !location
        .early_hints
        .iter()
        .any(|condition| holds(condition, exchange, program, context))
    {
        return false;
    }
    let hidden = &program.heads.of(exchange.location).hidden;
    let start = out.len();
    encode::status_line(out, Version::Http11, 103, None);
    let fields_at = out.len();
    for field in interim.fields() {
        let name = interim.name(field);
        let framing = matches!(
            field.known(),
            Known::ContentLength | Known::TransferEncoding | Known::Trailer
        );
        if !field.is_hop() && !framing && !hidden.contains(field.known(), name) {
            encode::field(out, name, interim.value(field));
        }
    }
    if out.len() == fields_at {
        out.truncate(start);
        return false;
    }
    out.extend_from_slice(b"\r\n");
    true
}

/// `100 Continue`, which kp sends itself when the client asked for it and its body is wanted.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The answer to an upgrade: after it the connection speaks another protocol (RFC 9110 §7.8).
fn switching(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> Reply {
    let Some(upstream) = &exchange.response.upstream else {
        return Reply {
            framing: Framing::None,
            keep: false,
        };
    };
    let head = ClientHead::open(
        out,
        101,
        Some(upstream.reason()),
        exchange.location,
        program,
        context,
    );
    exchange.response.status = 101;
    let heads = head.heads;
    head.server_date(
        out,
        heads.hidden.has(Known::Server),
        heads.hidden.has(Known::Date),
        exchange,
        program,
        context,
    );
    out.extend_from_slice(b"Connection: upgrade\r\n");
    write_fields(
        out,
        &head,
        Pass {
            upgrade: true,
            trailer: false,
        },
        exchange,
        program,
        context,
    );
    head.close(out, exchange, program, context);
    Reply {
        framing: Framing::None,
        keep: false,
    }
}

/// How the body is delimited for the client, and the length that is told.
struct Delimited {
    framing: Framing,
    length: Told,
}

/// What `Content-Length` says.
enum Told {
    Nothing,
    Number(u64),
    /// The upstream's own field: it describes a body that is not sent (HEAD, 304).
    AsSent,
}

fn delimit(head: &ClientHead<'_>, exchange: &Exchange) -> Delimited {
    let Some(upstream) = &exchange.response.upstream else {
        return Delimited {
            framing: Framing::None,
            length: Told::Nothing,
        };
    };
    // RFC 9110 §8.6, RFC 9112 §6.1: no length and no coding on 204.
    if head.status == 204 {
        return Delimited {
            framing: Framing::None,
            length: Told::Nothing,
        };
    }
    if is_head(exchange) || head.status == 304 {
        let length = match upstream.framing {
            Framing::Length(length) => Told::Number(length),
            Framing::None => Told::AsSent,
            Framing::Chunked | Framing::UntilClose => Told::Nothing,
        };
        return Delimited {
            framing: Framing::None,
            length,
        };
    }
    let chunks = can_chunk(exchange, head.location);
    match upstream.framing {
        Framing::None | Framing::Length(_)
            if chunks && expects_trailers(head.location, head.status) =>
        {
            Delimited {
                framing: Framing::Chunked,
                length: Told::Nothing,
            }
        }
        Framing::Length(length) => Delimited {
            framing: Framing::Length(length),
            length: Told::Number(length),
        },
        // The upstream was asked with HEAD (`proxy_method`), or its status allowed no body and was replaced.
        Framing::None => Delimited {
            framing: Framing::Length(0),
            length: Told::Number(0),
        },
        Framing::Chunked | Framing::UntilClose if chunks => Delimited {
            framing: Framing::Chunked,
            length: Told::Nothing,
        },
        Framing::Chunked | Framing::UntilClose => Delimited {
            framing: Framing::UntilClose,
            length: Told::Nothing,
        },
    }
}

impl Delimited {
    fn write(&self, out: &mut Vec<u8>, exchange: &Exchange) {
        match self.length {
            Told::Nothing => {}
            Told::Number(length) => {
                out.extend_from_slice(b"Content-Length: ");
                encode::number(out, length);
                out.extend_from_slice(b"\r\n");
            }
            Told::AsSent => {
                let upstream = exchange.response.upstream.as_ref();
                if let Some(length) =
                    upstream.and_then(|upstream| upstream.find(Known::ContentLength))
                {
                    encode::field(out, b"Content-Length", length);
                }
            }
        }
        if self.framing == Framing::Chunked {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
    }
}

/// Fields that go through in some responses only.
#[derive(Clone, Copy)]
struct Pass {
    /// `Upgrade`, in a 101 and a 426.
    upgrade: bool,
    /// `Trailer`, where trailers follow.
    trailer: bool,
}

/// What becomes of one field of the upstream.
enum Fate {
    Drop,
    Copy,
    Redirect,
    Cookie,
}

fn write_fields(
    out: &mut Vec<u8>,
    head: &ClientHead<'_>,
    pass: Pass,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    let mut seen = Seen::default();
    let mut run = Run::default();
    let mut at = 0;
    // By position: rewriting a value needs the exchange, which owns the head.
    while let Some(upstream) = &exchange.response.upstream {
        let Some(field) = upstream.fields.get(at).copied() else {
            run.flush(out, &upstream.bytes);
            return;
        };
        at += 1;
        let name = upstream.name(&field);
        let rewrite = match fate(&field, name, head, pass, &mut seen) {
            Fate::Drop => continue,
            Fate::Copy => {
                run.pass(out, &upstream.bytes, &field, name, upstream.value(&field));
                continue;
            }
            Fate::Redirect => write_redirect,
            Fate::Cookie => write_cookie,
        };
        run.flush(out, &upstream.bytes);
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        let value = upstream.value(&field).to_vec();
        rewrite(out, field.known(), value, head, exchange, program, context);
        out.extend_from_slice(b"\r\n");
    }
}

fn fate(field: &Field, name: &[u8], head: &ClientHead<'_>, pass: Pass, seen: &mut Seen) -> Fate {
    let known = field.known();
    if field.is_dropped() || head.heads.hidden.contains(known, name) {
        return Fate::Drop;
    }
    if field.is_hop() && !(pass.upgrade && known == Known::Upgrade) {
        return Fate::Drop;
    }
    match known {
        Known::Other => Fate::Copy,
        Known::ContentLength => Fate::Drop,
        Known::Trailer if !pass.trailer => Fate::Drop,
        // Fields that can only be there once: like nginx, kp believes the first.
        Known::Date | Known::Server | Known::ContentType | Known::Expires if seen.again(known) => {
            Fate::Drop
        }
        Known::ETag | Known::LastModified if seen.again(known) || head.is_replaced(known) => {
            Fate::Drop
        }
        Known::Location | Known::Refresh if seen.again(known) => Fate::Drop,
        Known::Location | Known::Refresh if head.heads.redirects => Fate::Redirect,
        Known::SetCookie if head.heads.cookies => Fate::Cookie,
        _ => Fate::Copy,
    }
}

fn write_redirect(
    out: &mut Vec<u8>,
    known: Known,
    mut value: Vec<u8>,
    head: &ClientHead<'_>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    let rules = &head.location.proxy.redirects;
    let start = match known {
        Known::Refresh => proxy_redirect::refresh_url(&value),
        _ => Some(0),
    };
    let rewritten = start.is_some_and(|start| {
        proxy_redirect::rewrite(&mut value, start, rules, exchange, program, context)
    });
    // nginx makes a rewritten relative `Location` absolute, not one that came relative, and no `Refresh`.
    if rewritten
        && known == Known::Location
        && value.first() == Some(&b'/')
        && head.location.redirects.absolute
    {
        client_head::write_origin(out, exchange, head.location, context);
    }
    push_sendable(out, &value);
}

fn write_cookie(
    out: &mut Vec<u8>,
    _: Known,
    value: Vec<u8>,
    head: &ClientHead<'_>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    let rewritten = proxy_cookie::rewrite(&value, &head.location.proxy, exchange, program, context);
    push_sendable(out, &rewritten.unwrap_or(value));
}

/// Copies a rewritten value; what a variable brought in cannot end the line.
fn push_sendable(out: &mut Vec<u8>, value: &[u8]) {
    out.extend(value.iter().map(|byte| {
        if matches!(byte, b'\r' | b'\n' | 0) {
            b' '
        } else {
            *byte
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_an_accel_redirect() {
        let taken = |uri: &str| {
            let (path, args) = accel_target(uri.as_bytes())?;
            Some((
                String::from_utf8(path).expect("text"),
                String::from_utf8(args.to_vec()).expect("text"),
            ))
        };
        assert_eq!(
            taken("/in/a%20b?x=%20"),
            Some(("/in/a b".into(), "x=%20".into()))
        );
        assert_eq!(
            taken("/a..b/..c/.d"),
            Some(("/a..b/..c/.d".into(), String::new()))
        );
        assert_eq!(taken("/a?../b"), Some(("/a".into(), "../b".into())));
        for uri in [
            "",
            "?x",
            "..",
            "../a",
            "/a/../b",
            "/a/..",
            "/a/%2e%2e/b",
            "/a%2f..%2fb",
            "/a%00b",
        ] {
            assert_eq!(taken(uri), None, "{uri}");
        }
    }
}
