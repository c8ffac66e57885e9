//! The head of the request to the upstream.
//!
//! Decides which fields go out, in which order: request line, `Host`, framing, `proxy_set_header`s, what asks for an
//! upgrade or trailers, forwarding fields, then the client's own fields in their order and case. Fields that end at
//! this hop (RFC 9110 §7.6.1) are marked in the parsed head and left out; what kp writes carries no such mark, so
//! nothing the client puts into `Connection` can take it away. `Expect` is never passed on: kp answers it itself.
//! Does not decide how the body is delimited ([`BodyPlan`] comes in).

use crate::field_lines::Run;
use crate::heads::LocationHeads;
use crate::program::Program;
use crate::target::write_target;
use crate::{Context, Exchange, forwarding, trace, vars};
use kp_config::model::{Forwarding, Proxy, ProxyHttpVersion};
use kp_config::template::Template;
use kp_http::{Known, Method, Version};

/// How the request body goes to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyPlan {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// In chunks; only towards HTTP/1.1.
    Chunked,
}

/// What the head that was written means for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// The request was sent as this, for the framing of the response (RFC 9112 §6.3 rule 1); `proxy_method` may differ
    /// from the client's method.
    pub method: Method,
    /// A 101 may be accepted: an upgrade the client asked for was passed on.
    pub upgrade: bool,
    /// The connection cannot be reused, whatever the response says: kp asked for its end.
    pub close: bool,
}

/// Appends the request head. `resolve_target` must have been called for the location.
pub fn request_head(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    plan: BodyPlan,
) -> Outgoing {
    let proxy = &context.config.http.locations[exchange.location.index()].proxy;
    let heads = program.heads.of(exchange.location);
    let method = write_method(out, exchange, program, context, proxy);
    out.push(b' ');
    write_target(out, exchange, context);
    out.extend_from_slice(match proxy.http_version {
        ProxyHttpVersion::Http10 => b" HTTP/1.0\r\n",
        ProxyHttpVersion::Http11 => b" HTTP/1.1\r\n",
    });
    write_host(out, exchange, program, context, proxy, heads);
    write_framing(out, plan, heads);
    let set = write_set_lines(out, exchange, program, context, proxy, heads);
    let upgrade = write_connection(out, exchange, proxy, heads, plan);
    forwarding::write(out, exchange, program, context, heads, proxy.forwarding);
    trace::write(out, exchange, context, heads);
    if proxy.pass_request_headers {
        write_client_fields(out, exchange, heads, proxy.forwarding == Forwarding::Edge);
    }
    out.extend_from_slice(b"\r\n");
    Outgoing {
        method,
        upgrade: upgrade || (set.upgrade && exchange.request.head.find(Known::Upgrade).is_some()),
        close: set.close || proxy.http_version == ProxyHttpVersion::Http10,
    }
}

/// Appends the head of an active check's request: GET and the check's own target, else as the location's requests.
pub(crate) fn write_check_head(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    target: &str,
) {
    let proxy = &context.config.http.locations[exchange.location.index()].proxy;
    let heads = program.heads.of(exchange.location);
    out.extend_from_slice(b"GET ");
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(match proxy.http_version {
        ProxyHttpVersion::Http10 => b" HTTP/1.0\r\n",
        ProxyHttpVersion::Http11 => b" HTTP/1.1\r\n",
    });
    write_host(out, exchange, program, context, proxy, heads);
    write_set_lines(out, exchange, program, context, proxy, heads);
    if !heads.sets_connection {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a value for a field, which cannot end the line (RFC 9110 §5.5: CR, LF and NUL are replaced by a space).
pub(crate) fn field_value(
    template: &Template,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    vars::evaluate(template, exchange, program, context, out);
    if let Some(value) = out.get_mut(start..) {
        keep_on_one_line(value);
    }
}

/// Replaces what would end the line of a field by a space.
pub(crate) fn keep_on_one_line(value: &mut [u8]) {
    if memchr::memchr3(b'\r', b'\n', 0, value).is_some() {
        for byte in value
            .iter_mut()
            .filter(|byte| matches!(byte, b'\r' | b'\n' | 0))
        {
            *byte = b' ';
        }
    }
}

fn write_method(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    proxy: &Proxy,
) -> Method {
    let start = out.len();
    if let Some(template) = &proxy.method {
        vars::evaluate(template, exchange, program, context, out);
        let text = out.get(start..).unwrap_or_default();
        // A method is a token (RFC 9110 §9.1); a variable may hold anything.
        if text.is_empty() || !text.iter().all(|&byte| is_method_byte(byte)) {
            out.truncate(start);
        }
    }
    if out.len() == start {
        match exchange.request.method {
            Some(method) => out.extend_from_slice(method.as_bytes()),
            None => {
                out.extend_from_slice(exchange.request.head.method_text());
                return exchange.request.head.method;
            }
        }
    }
    Method::of(out.get(start..).unwrap_or_default())
}

fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// `proxy_set_header Host`, else `$proxy_host`. An empty value means the default where the version demands a `Host`.
fn write_host(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    proxy: &Proxy,
    heads: &LocationHeads,
) {
    out.extend_from_slice(b"Host: ");
    let start = out.len();
    if let Some(set) = heads.set_host.and_then(|at| proxy.set_headers.get(at)) {
        field_value(&set.value, exchange, program, context, out);
        if out.len() == start && proxy.http_version == ProxyHttpVersion::Http10 {
            out.truncate(start - b"Host: ".len());
            return;
        }
    }
    if out.len() == start {
        out.extend_from_slice(&exchange.request.proxy_host);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_framing(out: &mut Vec<u8>, plan: BodyPlan, heads: &LocationHeads) {
    match plan {
        BodyPlan::None => {}
        // `proxy_set_header Content-Length ""` beside a body that is not there.
        BodyPlan::Length(0) if heads.set.has(Known::ContentLength) => {}
        BodyPlan::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        BodyPlan::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
}

/// What `proxy_set_header` said about the connection.
struct Set {
    /// It asks for an upgrade.
    upgrade: bool,
    /// It asks for the end of the connection.
    close: bool,
}

fn write_set_lines(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    proxy: &Proxy,
    heads: &LocationHeads,
) -> Set {
    let mut set = Set {
        upgrade: false,
        close: false,
    };
    for line in &heads.set_lines {
        let start = out.len();
        out.extend_from_slice(&line.text);
        let value_at = out.len();
        if let Some(header) = line.value.and_then(|at| proxy.set_headers.get(at)) {
            field_value(&header.value, exchange, program, context, out);
            if out.len() == value_at {
                out.truncate(start);
                continue;
            }
            out.extend_from_slice(b"\r\n");
        }
        match line.known {
            Known::Upgrade => set.upgrade = true,
            Known::Connection => {
                let text = out.get(start + b"Connection:".len()..).unwrap_or_default();
                set.close |= elements(text).any(|option| option.eq_ignore_ascii_case(b"close"));
            }
            _ => {}
        }
    }
    set
}

/// What the client asks of this hop and kp passes on as its own request: an upgrade to one of the protocols in
/// `proxy_upgrade` (RFC 9110 §7.8), trailers under `proxy_pass_trailers` (RFC 9110 §10.1.4). Whether it asks for an upgrade.
fn write_connection(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    proxy: &Proxy,
    heads: &LocationHeads,
    plan: BodyPlan,
) -> bool {
    if heads.sets_connection || proxy.http_version == ProxyHttpVersion::Http10 {
        return false;
    }
    let head = &exchange.request.head;
    let may_upgrade = plan == BodyPlan::None
        && head.method == Method::Get
        && exchange.request.method.is_none()
        && proxy.method.is_none()
        && !heads.set.has(Known::Upgrade);
    let upgrade = match head.upgrade_requested() {
        Some(asked) if may_upgrade => write_protocols(out, asked, &proxy.upgrade),
        _ => false,
    };
    let trailers = proxy.pass_trailers
        && head.version == Version::Http11
        && !heads.set.has(Known::Te)
        && head
            .fields()
            .filter(|field| field.known() == Known::Te)
            .any(|field| {
                elements(head.value(field)).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
            });
    if trailers {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
    out.extend_from_slice(match (upgrade, trailers) {
        (true, true) => b"Connection: upgrade, TE\r\n".as_slice(),
        (true, false) => b"Connection: upgrade\r\n",
        (false, true) => b"Connection: TE\r\n",
        (false, false) => b"",
    });
    upgrade
}

/// `Upgrade` with those of the asked protocols that are allowed; whether there was one.
fn write_protocols(out: &mut Vec<u8>, asked: &[u8], allowed: &[String]) -> bool {
    let start = out.len();
    for protocol in elements(asked) {
        if allowed
            .iter()
            .any(|name| name.as_bytes().eq_ignore_ascii_case(protocol))
        {
            out.extend_from_slice(if out.len() == start {
                b"Upgrade: ".as_slice()
            } else {
                b", "
            });
            out.extend_from_slice(protocol);
        }
    }
    if out.len() == start {
        return false;
    }
    out.extend_from_slice(b"\r\n");
    true
}

fn write_client_fields(
    out: &mut Vec<u8>,
    exchange: &Exchange,
    heads: &LocationHeads,
    without_aliases: bool,
) {
    let head = &exchange.request.head;
    let mut run = Run::default();
    for field in head.fields() {
        let name = head.name(field);
        if field.is_hop() || heads.held_back.contains(field.known(), name) {
            continue;
        }
        if without_aliases && field.known() == Known::Other && forwarding::is_alias(name) {
            continue;
        }
        run.pass(out, &head.bytes, field, name, head.value(field));
    }
    run.flush(out, &head.bytes);
}

/// The elements of a comma-separated list (RFC 9110 §5.6.1).
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}
