//! Where a request goes: `proxy_pass` of the location, evaluated.
//!
//! Decides which group or address is asked and whether with TLS, what `$proxy_host` and `$proxy_port` are, and the request
//! target the upstream sees (nginx's rules of `proxy_pass` with and without a URI part). Does not pick a peer.

use crate::failure::{Cause, Phase};
use crate::program::Program;
use crate::tls::upstream_tls;
use crate::{Context, Exchange, Failure};
use kp_config::model::{Handler, PeerAddress, ProxyTarget, UpstreamId};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One of the configured groups.
    Group(UpstreamId),
    /// An address that a `proxy_pass` with variables evaluated to.
    Address(PeerAddress),
    /// A name that it evaluated to, to be looked up.
    Name {
        /// The name, in lower case.
        host: String,
        /// The port of its addresses.
        port: u16,
    },
}

/// Evaluates the location's `proxy_pass` and notes `$proxy_host`, `$proxy_port` and the URI part in the exchange. On
/// failure `proxy_host` holds the offending text, for the log.
pub fn resolve_target(
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> Result<Target, Failure> {
    let location = &context.config.http.locations[exchange.location.index()];
    let Handler::Proxy(pass) = &location.handler else {
        return Err(Failure::new(Phase::Route, Cause::Internal));
    };
    let request = &mut exchange.request;
    request.proxy_uri.clear();
    request.proxy_host.clear();
    request.upstream_tls.clear();
    match &pass.target {
        ProxyTarget::Upstream {
            upstream,
            host,
            port,
            https,
            ..
        } => {
            request.proxy_host.extend_from_slice(host.as_bytes());
            request.proxy_port = *port;
            if *https {
                upstream_tls(exchange, program, context);
            }
            Ok(Target::Group(*upstream))
        }
        ProxyTarget::Template(template) => {
            let mut text = Vec::new();
            crate::vars::evaluate(template, exchange, program, context, &mut text);
            let found = split(&text)
                .and_then(|parts| locate(&parts, program).map(|target| (parts, target)));
            match found {
                Ok((parts, target)) => {
                    parts.note(exchange);
                    if parts.https {
                        upstream_tls(exchange, program, context);
                    }
                    Ok(target)
                }
                Err(cause) => {
                    exchange.request.proxy_host = text;
                    Err(Failure::new(Phase::Connect, cause))
                }
            }
        }
    }
}

/// Appends the request target for the upstream.
pub(crate) fn write_target(out: &mut Vec<u8>, exchange: &Exchange, context: &Context<'_>) {
    let start = out.len();
    compose(out, exchange, context);
    // Decoded bytes that came in by variables (`proxy_pass http://u$uri`, `set $args`) must neither end the request line
    // nor add a field to the head.
    if out
        .get(start..)
        .unwrap_or_default()
        .iter()
        .any(|&byte| is_unsendable(byte))
    {
        escape_unsendable(out, start);
    }
}

fn is_unsendable(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}

#[cold]
fn escape_unsendable(out: &mut Vec<u8>, start: usize) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let target = out.split_off(start);
    for byte in target {
        if is_unsendable(byte) {
            let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            out.push(b'%');
            out.extend_from_slice(&digits);
        } else {
            out.push(byte);
        }
    }
}

fn compose(out: &mut Vec<u8>, exchange: &Exchange, context: &Context<'_>) {
    let request = &exchange.request;
    let location = &context.config.http.locations[exchange.location.index()];
    let (uri, prefix_len) = match &location.handler {
        Handler::Proxy(pass) => match &pass.target {
            ProxyTarget::Upstream {
                uri, prefix_len, ..
            } => (uri.as_deref().unwrap_or_default().as_bytes(), *prefix_len),
            ProxyTarget::Template(_) if !request.proxy_uri.is_empty() => {
                out.extend_from_slice(&request.proxy_uri);
                return;
            }
            ProxyTarget::Template(_) => (&[][..], 0),
        },
        Handler::Static | Handler::Page(_) => (&[][..], 0),
    };
    if uri.is_empty() && request.unchanged {
        out.extend_from_slice(request.head.path_and_query());
        return;
    }
    let replaced = if request.located && !uri.is_empty() {
        prefix_len.min(request.uri.len())
    } else {
        0
    };
    if request.located {
        out.extend_from_slice(uri);
    }
    let rest = request.uri.get(replaced..).unwrap_or_default();
    if request.quoted || request.internal {
        kp_http::target::escape_uri(out, rest, kp_http::target::Escape::Uri);
    } else {
        out.extend_from_slice(rest);
    }
    if !request.args.is_empty() {
        out.push(b'?');
        out.extend_from_slice(&request.args);
    }
}

/// The pieces of an evaluated `proxy_pass`.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'a> {
    https: bool,
    /// Host without port, or the path of a unix socket.
    host: &'a [u8],
    /// Host and port as written.
    authority: &'a [u8],
    port: Option<u16>,
    unix: bool,
    uri: &'a [u8],
}

impl Parts<'_> {
    fn default_port(&self) -> u16 {
        if self.https { 443 } else { 80 }
    }

    /// nginx's `$proxy_host`: without a port where it is the default one; `localhost` for a unix socket.
    fn note(&self, exchange: &mut Exchange) {
        let request = &mut exchange.request;
        let host: &[u8] = match (self.unix, self.port) {
            (true, _) => b"localhost",
            (false, Some(port)) if port != self.default_port() => self.authority,
            (false, _) => self.host,
        };
        request.proxy_host.extend_from_slice(host);
        request.proxy_port = if self.unix {
            0
        } else {
            self.port.unwrap_or(self.default_port())
        };
        if self.uri.first() == Some(&b'?') {
            request.proxy_uri.push(b'/');
        }
        request.proxy_uri.extend_from_slice(self.uri);
    }
}

/// Takes `http://host:port/uri` or `http://unix:/path:/uri` apart, with either scheme.
fn split(text: &[u8]) -> Result<Parts<'_>, Cause> {
    let after = |scheme: &str| {
        let (start, rest) = text.split_at_checked(scheme.len())?;
        start
            .eq_ignore_ascii_case(scheme.as_bytes())
            .then_some(rest)
    };
    let (https, rest) = match (after("http://"), after("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Err(Cause::BadTarget),
    };
    if rest
        .get(..5)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"unix:"))
    {
        let rest = rest.get(5..).unwrap_or_default();
        let end = memchr::memchr(b':', rest).unwrap_or(rest.len());
        let (path, uri) = rest.split_at(end);
        if path.is_empty() {
            return Err(Cause::BadTarget);
        }
        let uri = uri.get(1..).unwrap_or_default();
        return Ok(Parts {
            https,
            host: path,
            authority: path,
            port: None,
            unix: true,
            uri,
        });
    }
    let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    let (authority, uri) = rest.split_at(end);
    if authority.iter().any(|&byte| is_unsendable(byte)) {
        return Err(Cause::BadTarget);
    }
    let host_end = match authority.first() {
        Some(b'[') => memchr::memchr(b']', authority).map_or(0, |at| at + 1),
        _ => memchr::memchr(b':', authority).unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(host_end);
    if host.is_empty() {
        return Err(Cause::BadTarget);
    }
    let port = match port {
        [] => None,
        [b':', digits @ ..] => Some(port_number(digits).ok_or(Cause::BadTarget)?),
        _ => return Err(Cause::BadTarget),
    };
    Ok(Parts {
        https,
        host,
        authority,
        port,
        unix: false,
        uri,
    })
}

fn port_number(digits: &[u8]) -> Option<u16> {
    if digits.is_empty() || digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits)
        .ok()?
        .parse()
        .ok()
        .filter(|&port| port != 0)
}

/// Groups come before addresses, as in nginx; what is neither is a name to look up.
fn locate(parts: &Parts<'_>, program: &Program) -> Result<Target, Cause> {
    if parts.unix {
        use std::os::unix::ffi::OsStrExt;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(parts.host));
        return Ok(Target::Address(PeerAddress::Unix(path)));
    }
    if let Some(group) = program
        .heads
        .group(parts.authority, parts.port, parts.default_port())
    {
        return Ok(Target::Group(group));
    }
    let port = parts.port.unwrap_or(parts.default_port());
    Ok(match address(parts.host) {
        Some(ip) => Target::Address(PeerAddress::Inet(SocketAddr::new(ip, port))),
        None => Target::Name {
            host: String::from_utf8_lossy(parts.host).to_ascii_lowercase(),
            port,
        },
    })
}

fn address(host: &[u8]) -> Option<IpAddr> {
    let host = match host {
        [b'[', inner @ .., b']'] => std::str::from_utf8(inner).ok()?.parse().map(IpAddr::V6),
        _ => std::str::from_utf8(host).ok()?.parse().map(IpAddr::V4),
    };
    host.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(host: &'a str, authority: &'a str, port: Option<u16>, uri: &'a str) -> Parts<'a> {
        Parts {
            https: false,
            host: host.as_bytes(),
            authority: authority.as_bytes(),
            port,
            unix: false,
            uri: uri.as_bytes(),
        }
    }

    #[test]
    fn urls_come_apart() {
        assert_eq!(split(b"http://u"), Ok(parts("u", "u", None, "")));
        assert_eq!(
            split(b"HTTP://u:81/x?y"),
            Ok(parts("u", "u:81", Some(81), "/x?y"))
        );
        assert_eq!(split(b"http://u?y"), Ok(parts("u", "u", None, "?y")));
        assert_eq!(
            split(b"http://[::1]:8080/"),
            Ok(parts("[::1]", "[::1]:8080", Some(8080), "/"))
        );
        assert_eq!(
            split(b"http://[::1]"),
            Ok(parts("[::1]", "[::1]", None, ""))
        );
        let unix = Parts {
            https: false,
            host: b"/tmp/s",
            authority: b"/tmp/s",
            port: None,
            unix: true,
            uri: b"/x",
        };
        assert_eq!(split(b"http://unix:/tmp/s:/x"), Ok(unix));
        let secure = Parts {
            https: true,
            ..parts("u", "u:8443", Some(8443), "/x")
        };
        assert_eq!(split(b"HTTPS://u:8443/x"), Ok(secure));
        for bad in [
            "u",
            "ftp://u",
            "https://",
            "http://",
            "http:///x",
            "http://u:",
            "http://u:0",
            "http://u:70000",
            "http://u:8x",
            "http://[::1",
            "http://[::1]x",
            "http://unix:",
            "http://u b/",
            "http://u\r\nX: 1",
            "http://:80",
        ] {
            assert_eq!(split(bad.as_bytes()), Err(Cause::BadTarget), "{bad}");
        }
    }

    #[test]
    fn bytes_that_would_end_the_request_line_are_escaped() {
        let mut out = b"GET /a b\r\nX: \x7f1".to_vec();
        escape_unsendable(&mut out, 4);
        assert_eq!(out, b"GET /a%20b%0D%0AX:%20%7F1");
    }

    #[test]
    fn literal_addresses() {
        assert_eq!(address(b"127.0.0.1"), Some(IpAddr::from([127, 0, 0, 1])));
        assert_eq!(
            address(b"[::1]"),
            Some(IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1]))
        );
        assert_eq!(address(b"::1"), None);
        assert_eq!(address(b"localhost"), None);
    }
}
