//! `proxy_forwarding`: what the upstream learns about the client and the way a request took.
//!
//! Decides the values of `X-Forwarded-*`, `Forwarded` (RFC 7239), `Via` (RFC 9110 §7.6.3) and `X-Request-Id`, and
//! whether a request has been here before. `edge` believes nothing the client says about it, `append` extends it, but where
//! `set_real_ip_from` says whose word is taken, only what those say. A `proxy_set_header` of the same name wins over both.

use crate::heads::LocationHeads;
use crate::program::Program;
use crate::{Context, Exchange, vars};
use kp_config::model::{Forwarding, RealIpHeader};
use kp_config::template::{Builtin, Variable};
use kp_http::{Known, RequestHead, Version};
use std::net::SocketAddr;

/// The fields it writes.
pub(crate) const NAMES: [&str; 7] = [
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "Forwarded",
    "Via",
    "X-Request-Id",
];

/// Whether a field's name would be read as one of these by an application that makes no difference between a hyphen and
/// other marks, as CGI-like interfaces do. Names with such marks only come through where the configuration says so.
pub(crate) fn is_alias(name: &[u8]) -> bool {
    name.iter()
        .any(|&byte| !byte.is_ascii_alphanumeric() && byte != b'-')
        && NAMES.iter().any(|own| {
            own.len() == name.len()
                && own.bytes().zip(name).all(|(own, &byte)| {
                    own.eq_ignore_ascii_case(&byte)
                        || (own == b'-' && !byte.is_ascii_alphanumeric())
                })
        })
}

/// Whether the request carries this group's own `Via` token, so that passing it on would never end (508, RFC 5842 §7.2).
pub fn is_loop(exchange: &Exchange, context: &Context<'_>) -> bool {
    let location = &context.config.http.locations[exchange.location.index()];
    if location.proxy.forwarding == Forwarding::Off {
        return false;
    }
    let head = &exchange.request.head;
    head.fields()
        .filter(|field| field.known() == Known::Via)
        .any(|field| names_group(head.value(field), context.group))
}

/// Appends the fields.
pub(crate) fn write(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    heads: &LocationHeads,
    mode: Forwarding,
) {
    if mode == Forwarding::Off {
        return;
    }
    let (sender, believed) = sender(exchange, context);
    let append = mode == Forwarding::Append && believed;
    let last = if append {
        sender
    } else {
        exchange.connection.remote
    };
    if !heads.set.has(Known::XForwardedFor) {
        out.extend_from_slice(b"X-Forwarded-For: ");
        if append {
            vars::forwarded_for(&exchange.request.head, out);
        }
        vars::remote_address(last, out);
        out.extend_from_slice(b"\r\n");
    }
    write_x_forwarded(out, exchange, program, context, heads, append);
    if !heads.set.has(Known::Forwarded) {
        out.extend_from_slice(b"Forwarded: ");
        if append {
            extend_elements(out, &exchange.request.head);
        }
        forwarded_element(out, last, exchange, program, context);
        out.extend_from_slice(b"\r\n");
    }
    if !heads.set.has(Known::Via) {
        write_via(out, exchange, context, append);
    }
    if !heads.set.has(Known::XRequestId) {
        line(
            out,
            b"X-Request-Id: ",
            Builtin::RequestId,
            exchange,
            program,
            context,
        );
    }
}

/// Who sent the request, and whether it is believed about those before it. With `real_ip_header proxy_protocol` that is whom
/// the PROXY header names: what passed the connection on wrote nothing of the request.
pub(crate) fn sender(exchange: &Exchange, context: &Context<'_>) -> (Option<SocketAddr>, bool) {
    let connection = &exchange.connection;
    let location = context.config.http.locations.get(exchange.location.index());
    let Some(real_ip) = location.and_then(|location| location.real_ip.as_ref()) else {
        return (connection.remote, true);
    };
    let sender = match (&real_ip.header, &connection.proxied) {
        (RealIpHeader::ProxyProtocol, Some(_)) => connection.remote,
        _ => connection.connected,
    };
    (sender, real_ip.trusts(sender.map(|sender| sender.ip())))
}

/// `Via` (RFC 9110 §7.6.3) with what names this group of processes.
fn write_via(out: &mut Vec<u8>, exchange: &Exchange, context: &Context<'_>, append: bool) {
    out.extend_from_slice(b"Via: ");
    if append {
        extend(out, &exchange.request.head, Known::Via);
    }
    out.extend_from_slice(match exchange.request.head.version {
        Version::Http10 => b"1.0 kp-".as_slice(),
        Version::Http11 => b"1.1 kp-".as_slice(),
    });
    out.extend_from_slice(context.group.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The `X-Forwarded-` fields about what was asked for.
fn write_x_forwarded(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    heads: &LocationHeads,
    append: bool,
) {
    let scheme_kept = append && keep(out, &exchange.request.head, Known::XForwardedProto, heads);
    if !scheme_kept && !heads.set.has(Known::XForwardedProto) {
        line(
            out,
            b"X-Forwarded-Proto: ",
            Builtin::Scheme,
            exchange,
            program,
            context,
        );
    }
    let host_kept = append && keep(out, &exchange.request.head, Known::XForwardedHost, heads);
    if !host_kept && !heads.set.has(Known::XForwardedHost) {
        out.extend_from_slice(b"X-Forwarded-Host: ");
        out.extend_from_slice(asked_host(exchange));
        out.extend_from_slice(b"\r\n");
    }
    let port_kept = append && keep(out, &exchange.request.head, Known::XForwardedPort, heads);
    if !port_kept && !heads.set.has(Known::XForwardedPort) {
        line(
            out,
            b"X-Forwarded-Port: ",
            Builtin::ServerPort,
            exchange,
            program,
            context,
        );
    }
}

fn line(
    out: &mut Vec<u8>,
    name: &[u8],
    value: Builtin,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    out.extend_from_slice(name);
    vars::variable(&Variable::Builtin(value), exchange, program, context, out);
    out.extend_from_slice(b"\r\n");
}

/// The host as the client named it, with its port.
fn asked_host(exchange: &Exchange) -> &[u8] {
    exchange
        .request
        .head
        .host()
        .unwrap_or(&exchange.request.host)
}

/// Copies a single-valued field of the client; whether there was one.
fn keep(out: &mut Vec<u8>, head: &RequestHead, known: Known, heads: &LocationHeads) -> bool {
    if heads.set.has(known) {
        return false;
    }
    let Some(field) = head
        .fields()
        .find(|field| field.known() == known && !field.is_hop())
    else {
        return false;
    };
    out.extend_from_slice(head.name(field));
    out.extend_from_slice(b": ");
    out.extend_from_slice(head.value(field));
    out.extend_from_slice(b"\r\n");
    true
}

/// Copies the values of a list field, each followed by a comma.
fn extend(out: &mut Vec<u8>, head: &RequestHead, known: Known) {
    for field in head
        .fields()
        .filter(|field| field.known() == known && !field.is_hop())
    {
        let value = head.value(field);
        if !value.is_empty() {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
}

/// The same with the elements of `Forwarded`. A line that leaves a quote open is not passed on: to who reads from the
/// beginning, what follows it would belong to it.
fn extend_elements(out: &mut Vec<u8>, head: &RequestHead) {
    let lines = head
        .fields()
        .filter(|field| field.known() == Known::Forwarded && !field.is_hop())
        .map(|field| head.value(field));
    for line in lines.filter(|line| !line.is_empty() && !is_left_open(line)) {
        out.extend_from_slice(line);
        out.extend_from_slice(b", ");
    }
}

/// Whether a quoted string of it does not end (RFC 9110 §5.6.4).
fn is_left_open(line: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    quoted
}

/// RFC 7239 §4: `for=…;host=…;proto=…`. An IPv6 address is bracketed and quoted (§6).
fn forwarded_element(
    out: &mut Vec<u8>,
    client: Option<SocketAddr>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    let (before, after): (&[u8], &[u8]) = match client {
        Some(SocketAddr::V4(_)) => (b"for=", b""),
        Some(SocketAddr::V6(_)) => (b"for=\"[", b"]\""),
        None => (b"for=unknown", b""),
    };
    out.extend_from_slice(before);
    if client.is_some() {
        vars::remote_address(client, out);
    }
    out.extend_from_slice(after);
    let host = asked_host(exchange);
    if !host.is_empty() {
        out.extend_from_slice(b";host=");
        quote(out, host);
    }
    out.extend_from_slice(b";proto=");
    let scheme = Variable::Builtin(Builtin::Scheme);
    vars::variable(&scheme, exchange, program, context, out);
}

/// A token as it is, anything else as a quoted string (RFC 9110 §5.6.4).
fn quote(out: &mut Vec<u8>, text: &[u8]) {
    if text
        .iter()
        .all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
    {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// Whether one element of a `Via` value was written by this group.
fn names_group(value: &[u8], group: &str) -> bool {
    value.split(|&byte| byte == b',').any(|element| {
        let mut words = element
            .split(|byte| matches!(byte, b' ' | b'\t'))
            .filter(|word| !word.is_empty());
        let by = words.nth(1).unwrap_or_default();
        by.strip_prefix(b"kp-")
            .is_some_and(|token| token == group.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases() {
        for name in ["X_Forwarded_For", "x-forwarded_proto", "X.Request.Id"] {
            assert!(is_alias(name.as_bytes()), "{name}");
        }
        for name in [
            "X-Forwarded-For",
            "X_Forwarded_Fox",
            "X_Forwarded_Forx",
            "Via",
        ] {
            assert!(!is_alias(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn own_token_in_via() {
        assert!(names_group(b"1.1 kp-abc", "abc"));
        assert!(names_group(b"1.0 fred, 1.1\tkp-abc (kp)", "abc"));
        assert!(!names_group(b"1.1 kp-abcd, 1.1 abc, kp-abc", "abc"));
        assert!(!names_group(b"", "abc"));
    }

    #[test]
    fn quotes_that_are_left_open() {
        for line in [&b"for=a;x=\""[..], b"x=\"\\\"", b"\"a\", \""] {
            assert!(is_left_open(line), "{}", line.escape_ascii());
        }
        for line in [&b"for=a"[..], b"for=\"[::1]\"", b"x=\"\\\"\"", b"\\"] {
            assert!(!is_left_open(line), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn quoting() {
        let quoted = |text: &str| {
            let mut out = Vec::new();
            quote(&mut out, text.as_bytes());
            String::from_utf8(out).expect("text")
        };
        assert_eq!(quoted("a-1.test"), "a-1.test");
        assert_eq!(quoted("a.test:8080"), "\"a.test:8080\"");
        assert_eq!(quoted("[::1]"), "\"[::1]\"");
        assert_eq!(quoted("a\"b\\"), "\"a\\\"b\\\\\"");
    }
}
