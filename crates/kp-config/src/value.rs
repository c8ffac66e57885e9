//! Values as nginx writes them: sizes, times, numbers, addresses. Pure text in, a value or the words of an error out.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// `1024`, `8k`, `1m`, `2g`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (text.get(..text.len() - 1)?, 1 << 10),
        b'm' | b'M' => (text.get(..text.len() - 1)?, 1 << 20),
        b'g' | b'G' => (text.get(..text.len() - 1)?, 1 << 30),
        _ => (text, 1),
    };
    number(digits)?.checked_mul(factor)
}

/// Decimal digits only.
pub(crate) fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// The finest unit a time may be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finest {
    /// `ms` is refused.
    Seconds,
    /// `ms` is allowed.
    Milliseconds,
}

/// `30`, `30s`, `1m30s`, `500ms`, `1h 30m`: units from years to milliseconds, each at most once and in falling order;
/// a number without a unit is seconds and stands last.
pub(crate) fn time(text: &str, finest: Finest) -> Option<Duration> {
    const UNITS: [(&str, u64); 8] = [
        ("y", 365 * 24 * 3_600_000),
        ("M", 30 * 24 * 3_600_000),
        ("w", 7 * 24 * 3_600_000),
        ("d", 24 * 3_600_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut rest = text;
    let mut next_unit = 0;
    let mut total_ms: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (count, after) = rest.split_at_checked(digits)?;
        let count = number(count)?;
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at_checked(letters)?;
        let index = match unit {
            // A bare number is seconds and must be the end: `1h30` is an hour and 30 seconds.
            "" if after.is_empty() => 6,
            _ => UNITS.iter().position(|(name, _)| *name == unit)?,
        };
        if index < next_unit || (finest == Finest::Seconds && index == 7) {
            return None;
        }
        next_unit = index + 1;
        let (_, factor) = UNITS.get(index)?;
        total_ms = total_ms.checked_add(count.checked_mul(*factor)?)?;
        rest = after.trim_start_matches(' ');
    }
    Some(Duration::from_millis(total_ms))
}

/// A host or a socket path, with the port as far as one was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `host[:port]`.
    Inet { host: Host, port: Option<u16> },
    /// `unix:path`.
    Unix(String),
}

/// The host of an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// An address.
    Address(IpAddr),
    /// A name to look up.
    Name(String),
}

impl Endpoint {
    /// Reads `host`, `host:port`, `[v6]:port` or `unix:path`; the error is nginx's word for it, to be followed by
    /// `in upstream "…"`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(path) = strip_prefix_ignore_case(text, "unix:") {
            return unix_path(path).map(|path| Self::Unix(path.to_owned()));
        }
        if text.starts_with('[') {
            let (address, port) = bracketed(text)?;
            return Ok(Self::Inet {
                host: Host::Address(IpAddr::V6(address)),
                port,
            });
        }
        if text.contains(['/', '?']) {
            return Err("invalid host");
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(self::port(port)?)),
            None => (text, None),
        };
        if host.is_empty() {
            return Err("no host");
        }
        Ok(Self::Inet {
            host: Host::parse(host),
            port,
        })
    }
}

impl Host {
    fn parse(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Name(text.to_owned()), Self::Address)
    }
}

/// What a `listen` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenTarget {
    /// An address; `None` is every IPv4 address.
    Inet {
        host: Option<Host>,
        first_port: u16,
        last_port: u16,
    },
    /// `unix:path`.
    Unix(String),
}

impl ListenTarget {
    /// Reads the first argument of `listen`: a port, `*`, an address or a name, each with a port or a range of ports.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(path) = strip_prefix_ignore_case(text, "unix:") {
            return unix_path(path).map(|path| Self::Unix(path.to_owned()));
        }
        if text.starts_with('[') {
            let close = text.find(']').ok_or("invalid host")?;
            let (inside, after) = text.split_at_checked(close + 1).ok_or("invalid host")?;
            let (address, _) = bracketed(inside)?;
            let (first_port, last_port) = match after.strip_prefix(':') {
                Some(ports) => port_range(ports)?,
                None if after.is_empty() => (80, 80),
                None => return Err("invalid host"),
            };
            return Ok(Self::Inet {
                host: Some(Host::Address(IpAddr::V6(address))),
                first_port,
                last_port,
            });
        }
        if text.contains(['/', '?']) {
            return Err("invalid host");
        }
        let (host, ports) = match text.split_once(':') {
            Some((host, ports)) => (host, port_range(ports)?),
            None if text.starts_with(|first: char| first.is_ascii_digit())
                && !text.contains('.') =>
            {
                ("*", port_range(text)?)
            }
            None => (text, (80, 80)),
        };
        let host = match host {
            "" => return Err("no host"),
            "*" => None,
            host => Some(Host::parse(host)),
        };
        Ok(Self::Inet {
            host,
            first_port: ports.0,
            last_port: ports.1,
        })
    }
}

/// `[address]` or `[address]:port`.
fn bracketed(text: &str) -> Result<(Ipv6Addr, Option<u16>), &'static str> {
    let (address, after) = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .ok_or("invalid host")?;
    let port = match after.strip_prefix(':') {
        Some(text) => Some(port(text)?),
        None if after.is_empty() => None,
        None => return Err("invalid host"),
    };
    let address = address.parse().map_err(|_| "invalid IPv6 address")?;
    Ok((address, port))
}

fn port(text: &str) -> Result<u16, &'static str> {
    match number(text).and_then(|port| u16::try_from(port).ok()) {
        Some(port) if port > 0 => Ok(port),
        _ => Err("invalid port"),
    }
}

fn port_range(text: &str) -> Result<(u16, u16), &'static str> {
    match text.split_once('-') {
        None => port(text).map(|port| (port, port)),
        Some((first, last)) => match (port(first)?, port(last)?) {
            (first, last) if first <= last => Ok((first, last)),
            _ => Err("invalid port range"),
        },
    }
}

/// The kernel's `sun_path` is 108 bytes with its final NUL.
const UNIX_PATH_MAX: usize = 107;

fn unix_path(path: &str) -> Result<&str, &'static str> {
    match path.len() {
        0 => Err("no path in the unix domain socket"),
        length if length > UNIX_PATH_MAX => Err("too long path in the unix domain socket"),
        _ => Ok(path),
    }
}

/// What follows `prefix`, compared without case.
pub(crate) fn strip_prefix_ignore_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Looks a host up; addresses of version 4 come first, as in nginx, and none twice.
pub(crate) fn look_up(host: &str, port: u16) -> Vec<SocketAddr> {
    use std::net::ToSocketAddrs as _;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in (host, port).to_socket_addrs().into_iter().flatten() {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("1024"), Some(1024));
        assert_eq!(size("8k"), Some(8192));
        assert_eq!(size("8K"), Some(8192));
        assert_eq!(size("1m"), Some(1 << 20));
        assert_eq!(size("2g"), Some(2 << 30));
        for bad in [
            "",
            "k",
            "1x",
            "-1",
            "1kk",
            "1.5m",
            "99999999999999999999",
            "99999999999g",
            "é",
        ] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn times() {
        let ms = |text| time(text, Finest::Milliseconds).map(|time| time.as_millis());
        assert_eq!(ms("30"), Some(30_000));
        assert_eq!(ms("30s"), Some(30_000));
        assert_eq!(ms("1m30s"), Some(90_000));
        assert_eq!(ms("500ms"), Some(500));
        assert_eq!(ms("1h 30m"), Some(5_400_000));
        assert_eq!(ms("1h30"), Some(3_630_000));
        assert_eq!(ms("1y"), Some(31_536_000_000));
        assert_eq!(ms("1M"), Some(2_592_000_000));
        assert_eq!(ms("0"), Some(0));
        for bad in [
            "",
            "5x",
            "1h1h",
            "1s1m",
            "30 1s",
            "s",
            "-1",
            "1.5s",
            "99999999999999999999s",
            "9999999999999y",
        ] {
            assert_eq!(ms(bad), None, "{bad}");
        }
        assert_eq!(time("5ms", Finest::Seconds), None);
        assert_eq!(time("5", Finest::Seconds), Some(Duration::from_secs(5)));
    }

    #[test]
    fn endpoints() {
        let inet = |host: &str, port| {
            Ok(Endpoint::Inet {
                host: Host::parse(host),
                port,
            })
        };
        assert_eq!(
            Endpoint::parse("127.0.0.1:8080"),
            inet("127.0.0.1", Some(8080))
        );
        assert_eq!(Endpoint::parse("backend"), inet("backend", None));
        assert_eq!(Endpoint::parse("[::1]:8080"), inet("::1", Some(8080)));
        assert_eq!(Endpoint::parse("[::1]"), inet("::1", None));
        assert_eq!(
            Endpoint::parse("unix:/tmp/x.sock"),
            Ok(Endpoint::Unix("/tmp/x.sock".into()))
        );
        assert_eq!(Endpoint::parse("127.0.0.1:0"), Err("invalid port"));
        assert_eq!(Endpoint::parse("127.0.0.1:70000"), Err("invalid port"));
        assert_eq!(Endpoint::parse("http://127.0.0.1"), Err("invalid host"));
        assert_eq!(Endpoint::parse("127.0.0.1/x"), Err("invalid host"));
        assert_eq!(Endpoint::parse(":80"), Err("no host"));
        assert_eq!(Endpoint::parse("[::1"), Err("invalid host"));
        assert_eq!(Endpoint::parse("[x]"), Err("invalid IPv6 address"));
        assert_eq!(
            Endpoint::parse("unix:"),
            Err("no path in the unix domain socket")
        );
    }

    #[test]
    fn listen_targets() {
        let inet = |host: Option<&str>, first_port, last_port| {
            Ok(ListenTarget::Inet {
                host: host.map(Host::parse),
                first_port,
                last_port,
            })
        };
        assert_eq!(ListenTarget::parse("80"), inet(None, 80, 80));
        assert_eq!(ListenTarget::parse("8000-8010"), inet(None, 8000, 8010));
        assert_eq!(ListenTarget::parse("*:81"), inet(None, 81, 81));
        assert_eq!(ListenTarget::parse("*"), inet(None, 80, 80));
        assert_eq!(
            ListenTarget::parse("127.0.0.1"),
            inet(Some("127.0.0.1"), 80, 80)
        );
        assert_eq!(
            ListenTarget::parse("localhost:8080"),
            inet(Some("localhost"), 8080, 8080)
        );
        assert_eq!(ListenTarget::parse("[::]:80"), inet(Some("::"), 80, 80));
        assert_eq!(ListenTarget::parse("[::1]"), inet(Some("::1"), 80, 80));
        assert_eq!(ListenTarget::parse("0"), Err("invalid port"));
        assert_eq!(ListenTarget::parse("70000"), Err("invalid port"));
        assert_eq!(ListenTarget::parse("8010-8000"), Err("invalid port range"));
        assert_eq!(ListenTarget::parse("127.0.0.1:x"), Err("invalid port"));
        assert_eq!(ListenTarget::parse("127.0.0.1/x"), Err("invalid host"));
    }
}
