//! Who is meant by a list of client addresses: `set_real_ip_from`, `allow`, `deny`.

use ipnet::IpNet;
use std::net::IpAddr;

/// A set of clients by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// An address or a CIDR range (RFC 4632); host bits are zero.
    Range(IpNet),
    /// Every client that came by a unix socket.
    Unix,
}

impl Network {
    /// Whether a client is among them; `None` is one that came by a unix socket. An IPv4 address mapped into IPv6
    /// (`::ffff:192.0.2.1`, RFC 4291 §2.5.5.2) counts as the IPv4 address it is.
    pub fn contains(&self, client: Option<IpAddr>) -> bool {
        match (self, client) {
            (Self::Unix, None) => true,
            (Self::Range(range), Some(address)) => range.contains(&address.to_canonical()),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Network {
        Network::Range(text.parse().unwrap())
    }

    #[test]
    fn ranges_and_sockets() {
        let within = |network: Network, client: &str| network.contains(client.parse().ok());
        assert!(within(range("10.0.0.0/8"), "10.255.0.1"));
        assert!(!within(range("10.0.0.0/8"), "11.0.0.1"));
        assert!(within(range("0.0.0.0/0"), "203.0.113.7"));
        assert!(!within(range("0.0.0.0/0"), "2001:db8::1"));
        assert!(within(range("2001:db8::/32"), "2001:db8:ffff::1"));
        assert!(!within(range("2001:db8::/32"), "2001:db9::1"));
        assert!(within(range("10.0.0.0/8"), "::ffff:10.1.1.1"));
        assert!(!within(range("::/0"), "::ffff:10.1.1.1"));
        assert!(!range("0.0.0.0/0").contains(None));
        assert!(Network::Unix.contains(None));
        assert!(!within(Network::Unix, "127.0.0.1"));
    }
}
