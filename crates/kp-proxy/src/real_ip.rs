//! Who the client is, by the word of a trusted proxy: `set_real_ip_from`, `real_ip_header`, `real_ip_recursive`.
//!
//! The list is read from its end: each trusted proxy vouches for the address in front of its own. It is applied once per
//! request, as nginx: after the head with what the server's level says, or else with what the location says before
//! limits and access rules. What is no address ends the search; the last good one holds.

use crate::Exchange;
use kp_config::model::{RealIp, RealIpHeader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Puts the client's own address in the place of the proxy's, where a trusted proxy names one.
pub(crate) fn apply(exchange: &mut Exchange, real_ip: &RealIp) {
    if exchange.connection.remote != exchange.connection.connected {
        return;
    }
    let head = &exchange.request.head;
    let mut walk = Walk {
        real_ip,
        client: exchange.connection.remote,
        found: None,
    };
    match &real_ip.header {
        RealIpHeader::XForwardedFor => {
            let mut lines = values(head, b"x-forwarded-for").collect::<Vec<_>>();
            while let Some(line) = lines.pop() {
                if walk.list(line).is_break() {
                    break;
                }
            }
        }
        RealIpHeader::Forwarded => {
            let mut lines = values(head, b"forwarded").collect::<Vec<_>>();
            while let Some(line) = lines.pop() {
                if walk.elements(line).is_break() {
                    break;
                }
            }
        }
        RealIpHeader::ProxyProtocol => {
            let proxied = exchange.connection.proxied.as_ref();
            if let Some(source) = proxied.map(|header| header.source) {
                let _ = walk.step(Some(source));
            }
        }
        RealIpHeader::Field(name) => {
            if let Some(line) = values(head, name.as_bytes()).next() {
                let _ = walk.list(line);
            }
        }
    }
    if let Some(client) = walk.found {
        exchange.connection.remote = Some(client);
    }
}

use std::ops::ControlFlow::{self, Break, Continue};

/// A walk from the proxy that connected towards the client.
struct Walk<'a> {
    real_ip: &'a RealIp,
    /// Who is asked next whether its word is taken.
    client: Option<SocketAddr>,
    /// The last address that somebody trusted named.
    found: Option<SocketAddr>,
}

impl Walk<'_> {
    /// Takes the next address, in front of the one before it; `None` is something that is no address.
    fn step(&mut self, named: Option<SocketAddr>) -> ControlFlow<()> {
        let Some(named) = named.filter(|_| self.is_trusted()) else {
            return Break(());
        };
        self.client = Some(named);
        self.found = Some(named);
        if self.real_ip.recursive {
            Continue(())
        } else {
            Break(())
        }
    }

    fn is_trusted(&self) -> bool {
        self.real_ip.trusts(self.client.map(|client| client.ip()))
    }

    /// A line of addresses between commas or spaces, from its end.
    fn list(&mut self, line: &[u8]) -> ControlFlow<()> {
        let between = |byte: &u8| *byte == b' ' || *byte == b',';
        let mut any = false;
        for item in line.rsplit(between).filter(|item| !item.is_empty()) {
            any = true;
            self.step(address(item))?;
        }
        // A line without an address is the word of somebody who does not know.
        if any { Continue(()) } else { Break(()) }
    }

    /// The elements of a `Forwarded` line (RFC 7239 §4), from its end.
    fn elements(&mut self, line: &[u8]) -> ControlFlow<()> {
        let mut rest = Some(line);
        while let Some(line) = rest {
            let (before, element) = last_element(line);
            rest = before;
            let node = split_unquoted(element, b';')
                .into_iter()
                .find_map(|pair| parameter(pair, b"for"));
            self.step(node.and_then(|node| self::node(&node)))?;
        }
        Continue(())
    }
}

/// The values of a field, in order.
fn values<'a>(head: &'a kp_http::RequestHead, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    head.fields()
        .filter(move |field| head.name(field).eq_ignore_ascii_case(name))
        .map(|field| head.value(field))
}

/// The last element of a list, and what stands before its comma. It is looked for from the end, where the proxy that is
/// trusted wrote: a quote that somebody before it left open takes nothing in.
fn last_element(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let mut quoted = false;
    for (place, byte) in line.iter().enumerate().rev() {
        let before = line.get(..place).unwrap_or_default();
        match byte {
            b'"' if quoted => {
                let escapes = before.iter().rev().take_while(|byte| **byte == b'\\');
                quoted = escapes.count() % 2 == 1;
            }
            b'"' => quoted = true,
            b',' if !quoted => return (Some(before), line.get(place + 1..).unwrap_or_default()),
            _ => {}
        }
    }
    (None, line)
}

/// Splits at a separator that does not stand in a quoted string (RFC 9110 §5.6.4).
fn split_unquoted(text: &[u8], separator: u8) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut begin, mut quoted, mut escaped) = (0, false, false);
    for (place, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            byte if *byte == separator && !quoted => {
                parts.push(text.get(begin..place).unwrap_or_default());
                begin = place + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(begin..).unwrap_or_default());
    parts
}

/// The value of `name=value`, unquoted; `None` for another name.
fn parameter(pair: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let pair = pair.trim_ascii();
    let (key, value) = pair.split_at_checked(memchr::memchr(b'=', pair)?)?;
    if !key.eq_ignore_ascii_case(name) {
        return None;
    }
    let value = value.get(1..)?;
    let Some(inside) = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""))
    else {
        return Some(value.to_vec());
    };
    let mut escaped = false;
    Some(
        inside
            .iter()
            .copied()
            .filter(|byte| {
                escaped = *byte == b'\\' && !escaped;
                !escaped
            })
            .collect(),
    )
}

/// A node of `Forwarded` (RFC 7239 §6): an address, whose port may be obfuscated (`192.0.2.1:_port`).
fn node(text: &[u8]) -> Option<SocketAddr> {
    let hidden = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let obfuscated = memchr::memmem::rfind(text, b":_")
        .and_then(|place| text.split_at_checked(place))
        .filter(|(_, port)| port.len() > 2 && port.iter().skip(1).all(hidden));
    match obfuscated {
        // An IPv6 address has its brackets where a port follows.
        Some((host, _)) if host.ends_with(b"]") || !host.contains(&b':') => address(host),
        Some(_) => None,
        None => address(text),
    }
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`; without a port it is 0.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, 0));
    }
    let (host, port): (IpAddr, &str) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            let host: Ipv6Addr = host.parse().ok()?;
            if after.is_empty() {
                return Some(SocketAddr::new(host.into(), 0));
            }
            (host.into(), after.strip_prefix(':')?)
        }
        None => {
            let (host, port) = text.split_once(':')?;
            (host.parse::<Ipv4Addr>().ok()?.into(), port)
        }
    };
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    Some(SocketAddr::new(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_config::model::Network;

    fn trusting(header: RealIpHeader, recursive: bool) -> RealIp {
        RealIp {
            trusted: vec![Network::Range("127.0.0.0/8".parse().unwrap())],
            header,
            recursive,
        }
    }

    fn walked(real_ip: &RealIp, walk: impl FnOnce(&mut Walk<'_>)) -> Option<String> {
        let mut state = Walk {
            real_ip,
            client: Some("127.0.0.1:5000".parse().unwrap()),
            found: None,
        };
        walk(&mut state);
        state.found.map(|found| found.to_string())
    }

    #[test]
    fn elements_of_forwarded() {
        for (line, last, first) in [
            (
                "for=192.0.2.60;proto=http;by=203.0.113.43",
                "192.0.2.60:0",
                "192.0.2.60:0",
            ),
            (
                "for=192.0.2.43, For=\"127.0.0.9:80\"",
                "127.0.0.9:80",
                "192.0.2.43:0",
            ),
            (
                "proto=http; FOR=\"[2001:db8:cafe::17]:4711\"",
                "[2001:db8:cafe::17]:4711",
                "[2001:db8:cafe::17]:4711",
            ),
            (
                "for=\"a,b;for=6.6.6.6\", for=127.0.0.2",
                "127.0.0.2:0",
                "127.0.0.2:0",
            ),
            ("for=\"192.0.\\2.1\"", "192.0.2.1:0", "192.0.2.1:0"),
            ("for=\"192.0.2.1:_p-1\"", "192.0.2.1:0", "192.0.2.1:0"),
            (
                "for=\"[2001:db8::1]:_p\"",
                "[2001:db8::1]:0",
                "[2001:db8::1]:0",
            ),
            // What stands before the element of the proxy that is trusted takes nothing of it.
            (
                "for=6.6.6.6;x=\", for=192.0.2.1",
                "192.0.2.1:0",
                "192.0.2.1:0",
            ),
            (
                "for=6.6.6.6;x=\", for=\"[2001:db8::1]\"",
                "[2001:db8::1]:0",
                "[2001:db8::1]:0",
            ),
            (
                "for=6.6.6.6;x=\\, for=192.0.2.1;host=\"a\\\",for=6.6.6.6\\\\\"",
                "192.0.2.1:0",
                "192.0.2.1:0",
            ),
        ] {
            let got = |recursive| {
                walked(&trusting(RealIpHeader::Forwarded, recursive), |walk| {
                    let _ = walk.elements(line.as_bytes());
                })
            };
            assert_eq!(got(false).as_deref(), Some(last), "{line}");
            assert_eq!(got(true).as_deref(), Some(first), "{line}");
        }
        for line in [
            "for=unknown",
            "for=_hidden",
            "proto=http",
            "",
            "for",
            "for=\"1.2.3.4",
            "xfor=1.2.3.4",
            "for=2001:db8::1:_p",
            "for=\"1.2.3.4:_\"",
            "for=\"1.2.3.4:_a:_b\"",
            "for=1.2.3.4\"",
        ] {
            let got = walked(&trusting(RealIpHeader::Forwarded, true), |walk| {
                let _ = walk.elements(line.as_bytes());
            });
            assert_eq!(got, None, "{line}");
        }
    }

    #[test]
    fn addresses_with_and_without_ports() {
        let read = |text: &str| address(text.as_bytes()).map(|address| address.to_string());
        assert_eq!(read("192.0.2.1").as_deref(), Some("192.0.2.1:0"));
        assert_eq!(read("192.0.2.1:8080").as_deref(), Some("192.0.2.1:8080"));
        assert_eq!(read("2001:db8::1").as_deref(), Some("[2001:db8::1]:0"));
        assert_eq!(read("[2001:db8::1]").as_deref(), Some("[2001:db8::1]:0"));
        assert_eq!(
            read("[2001:db8::1]:443").as_deref(),
            Some("[2001:db8::1]:443")
        );
        for bad in [
            "",
            "junk",
            "1.2.3",
            "1.2.3.4:",
            "1.2.3.4:0",
            "1.2.3.4:+1",
            "1.2.3.4:70000",
            "[::1",
            "[::1]x",
            "[::1]:x",
            "[1.2.3.4]:1",
            "unix:",
            "1.2.3.4:1:2",
            "\u{e9}",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
