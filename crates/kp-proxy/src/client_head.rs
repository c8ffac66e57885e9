//! What every head sent to a client has in common.
//!
//! Decides status line, `Server` and `Date`, the fate of the connection as nginx words it, `add_header` and
//! `add_trailer`. `response_head`, `answer` and `file_head` put their own fields in between.

use crate::heads::{LocationHeads, REASON};
use crate::program::Program;
use crate::request_head::field_value;
use crate::{Context, Exchange, is_true, vars};
use kp_config::model::{AddHeader, ListenAddress, Location, LocationId, ServerTokens};
use kp_config::template::Template;
use kp_http::{Known, Method, Version, encode};
use std::net::IpAddr;

/// Where one head begins, and what holds for all of it.
pub(crate) struct ClientHead<'a> {
    pub(crate) location: &'a Location,
    pub(crate) heads: &'a LocationHeads,
    pub(crate) status: u16,
    start: usize,
}

impl<'a> ClientHead<'a> {
    /// Writes the status line. Without a reason it is nginx's phrase. Always HTTP/1.1, whatever the client speaks
    /// (RFC 9110 §2.5: the version says what the sender can do).
    pub(crate) fn open(
        out: &mut Vec<u8>,
        status: u16,
        reason: Option<&[u8]>,
        location: LocationId,
        program: &'a Program,
        context: &Context<'a>,
    ) -> Self {
        let start = out.len();
        if status == 200 && reason.is_none_or(|reason| reason == b"OK") {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            encode::status_line(out, Version::Http11, status, reason);
        }
        Self {
            location: &context.config.http.locations[location.index()],
            heads: program.heads.of(location),
            status,
            start,
        }
    }

    /// Writes kp's own `Server` and `Date`, or only one of them where the upstream's other one is passed on.
    pub(crate) fn server_date(
        &self,
        out: &mut Vec<u8>,
        own_server: bool,
        own_date: bool,
        exchange: &mut Exchange,
        program: &Program,
        context: &Context<'_>,
    ) {
        if own_server && self.heads.server_template {
            self.evaluated_server(out, exchange, program, context);
        }
        let run: &[u8] = &self.heads.server_date;
        let (server, date) = run.split_at(run.len() - b"Date: ".len());
        match (own_server, own_date) {
            (true, true) => out.extend_from_slice(run),
            (true, false) => out.extend_from_slice(server),
            (false, true) => out.extend_from_slice(date),
            (false, false) => {}
        }
        if own_date {
            out.extend_from_slice(context.now.dates.http.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    #[cold]
    fn evaluated_server(
        &self,
        out: &mut Vec<u8>,
        exchange: &mut Exchange,
        program: &Program,
        context: &Context<'_>,
    ) {
        if let ServerTokens::Text(template) = &self.location.server_tokens {
            field_line(out, "Server", template, exchange, program, context);
        }
    }

    /// Writes `Connection`, and `Keep-Alive` where configured.
    pub(crate) fn connection(&self, out: &mut Vec<u8>, keep: bool) {
        out.extend_from_slice(if keep {
            &self.heads.keep_alive
        } else {
            b"Connection: close\r\n"
        });
    }

    /// Whether an `add_header` of this status takes the place of a field (nginx: `ETag` and `Last-Modified`).
    pub(crate) fn is_replaced(&self, known: Known) -> bool {
        if is_safe(self.status) {
            self.heads.added.has(known)
        } else {
            self.heads.added_always.has(known)
        }
    }

    /// Writes the cookie of the session, why kp answers, the `add_header`s and the end of the head.
    pub(crate) fn close(
        self,
        out: &mut Vec<u8>,
        exchange: &mut Exchange,
        program: &Program,
        context: &Context<'_>,
    ) {
        out.extend_from_slice(&exchange.response.sticky);
        if self.location.marks.reason_header
            && let Some(reason) = exchange.record.reason
        {
            encode::field(out, REASON.as_bytes(), reason.token().as_bytes());
        }
        for header in applicable(&self.location.add_headers, self.status) {
            // Before each, since a value may read `$sent_http_*` of an earlier one.
            self.keep(out, exchange, program);
            if !self.is_superseded(header) {
                field_line(out, &header.name, &header.value, exchange, program, context);
            }
        }
        out.extend_from_slice(b"\r\n");
        self.keep(out, exchange, program);
    }

    /// Whether a later `add_header` says the same thing otherwise, for the fields that a head has but once.
    fn is_superseded(&self, header: &AddHeader) -> bool {
        let known = Known::of(header.name.as_bytes());
        self.is_replaced(known)
            && replacement(self.location, self.status, known)
                .is_some_and(|last| !std::ptr::eq(last, header))
    }

    /// Keeps the head as it is so far where `$sent_http_*` may be asked for.
    fn keep(&self, out: &[u8], exchange: &mut Exchange, program: &Program) {
        if program.uses().sent_head {
            exchange.response.sent_head.clear();
            exchange
                .response
                .sent_head
                .extend_from_slice(out.get(self.start..).unwrap_or_default());
        }
    }
}

/// The `add_header` that speaks for a field on this status: the last one.
pub(crate) fn replacement(location: &Location, status: u16, known: Known) -> Option<&AddHeader> {
    applicable(&location.add_headers, status)
        .filter(|header| Known::of(header.name.as_bytes()) == known)
        .last()
}

/// A field, unless its value is empty.
pub(crate) fn field_line(
    out: &mut Vec<u8>,
    name: &str,
    value: &Template,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    let value_at = out.len();
    field_value(value, exchange, program, context, out);
    if out.len() == value_at {
        out.truncate(start);
    } else {
        out.extend_from_slice(b"\r\n");
    }
}

/// The statuses on which `add_header` acts without `always`.
pub(crate) fn is_safe(status: u16) -> bool {
    matches!(
        status,
        200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308
    )
}

/// Whether an `add_trailer` acts on this status: the body must then be chunked.
pub(crate) fn expects_trailers(location: &Location, status: u16) -> bool {
    !location.add_trailers.is_empty() && applicable(&location.add_trailers, status).next().is_some()
}

fn applicable(headers: &[AddHeader], status: u16) -> impl Iterator<Item = &AddHeader> {
    let safe = is_safe(status);
    headers.iter().filter(move |header| safe || header.always)
}

/// Whether a body may go to this client in chunks.
pub(crate) fn can_chunk(exchange: &Exchange, location: &Location) -> bool {
    exchange.request.head.version == Version::Http11 && location.chunked_transfer_encoding
}

/// Appends what makes a path an absolute URL: scheme, host and port as nginx's `server_name_in_redirect` and
/// `port_in_redirect` say.
pub(crate) fn write_origin(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    location: &Location,
    context: &Context<'_>,
) {
    let http = &context.config.http;
    let https = exchange.connection.tls.is_some();
    out.extend_from_slice(if https { b"https://" } else { b"http://" });
    if location.redirects.server_name {
        out.extend_from_slice(
            http.servers[exchange.server.index()]
                .primary_name
                .as_bytes(),
        );
    } else if exchange
        .request
        .head
        .host()
        .is_some_and(|host| !host.is_empty())
    {
        out.extend_from_slice(&exchange.request.host);
    } else if let Some(address) = context.facts.local_address() {
        match address.ip() {
            IpAddr::V4(ip) => out.extend_from_slice(ip.to_string().as_bytes()),
            IpAddr::V6(ip) => out.extend_from_slice(format!("[{ip}]").as_bytes()),
        }
    }
    let listener = http.listeners.get(exchange.connection.listener.index());
    if location.redirects.port
        && let Some(ListenAddress::Inet(address)) = listener.map(|listener| &listener.address)
        && address.port() != if https { 443 } else { 80 }
    {
        out.push(b':');
        encode::number(out, u64::from(address.port()));
    }
}

/// Whether the client wants no body.
pub(crate) fn is_head(exchange: &Exchange) -> bool {
    exchange.request.head.method == Method::Head
}

/// Appends the last chunk with what trailers there are: the upstream's under `proxy_pass_trailers`, then `add_trailer`s.
pub fn last_chunk(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    let location = &context.config.http.locations[exchange.location.index()];
    let upstream = location.proxy.pass_trailers && !exchange.response.upstream_trailers.is_empty();
    if location.add_trailers.is_empty() && !upstream {
        out.extend_from_slice(encode::LAST_CHUNK);
        return;
    }
    let mut sent = std::mem::take(&mut exchange.response.sent_trailers);
    sent.clear();
    if upstream {
        pass_trailers(
            &mut sent,
            &exchange.response.upstream_trailers,
            program.heads.of(exchange.location),
        );
    }
    exchange.response.sent_trailers = sent;
    for trailer in applicable(&location.add_trailers, exchange.response.status) {
        // One after the other, since a value may read `$sent_trailer_*` of an earlier one.
        let mut line = Vec::new();
        field_line(
            &mut line,
            &trailer.name,
            &trailer.value,
            exchange,
            program,
            context,
        );
        exchange.response.sent_trailers.extend_from_slice(&line);
    }
    out.extend_from_slice(encode::LAST_CHUNK_BEFORE_TRAILERS);
    out.extend_from_slice(&exchange.response.sent_trailers);
    out.extend_from_slice(b"\r\n");
}

/// Copies trailer lines, except hidden ones and those that would say something about framing, routing or this hop
/// (RFC 9110 §6.5.1).
fn pass_trailers(out: &mut Vec<u8>, lines: &[u8], heads: &LocationHeads) {
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let name = line.get(..colon).unwrap_or_default();
        let known = Known::of(name);
        let forbidden = matches!(
            known,
            Known::ContentLength
                | Known::TransferEncoding
                | Known::Host
                | Known::Connection
                | Known::KeepAlive
                | Known::ProxyConnection
                | Known::Te
                | Known::Trailer
                | Known::Upgrade
                | Known::ContentType
                | Known::ContentEncoding
                | Known::ContentRange
                | Known::SetCookie
                | Known::Location
        );
        if !forbidden && !heads.hidden.contains(known, name) {
            out.extend_from_slice(line);
        }
    }
}

/// Whether a template's value is something: neither empty nor `0`.
pub(crate) fn holds(
    template: &Template,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> bool {
    let mut value = Vec::new();
    vars::evaluate(template, exchange, program, context, &mut value);
    is_true(&value)
}
