//! Who connected, in as few bytes as an idle connection can spare. The scope of a link-local address is not among them: it is
//! shown nowhere.

use std::net::SocketAddr;

/// The other end of a client connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remote {
    /// It came by a unix socket.
    Unix,
    V4 {
        octets: [u8; 4],
        port: u16,
    },
    V6 {
        octets: [u8; 16],
        port: u16,
    },
}

const _: () = assert!(size_of::<Remote>() <= 20);

impl Remote {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        match address {
            None => Self::Unix,
            Some(SocketAddr::V4(address)) => Self::V4 {
                octets: address.ip().octets(),
                port: address.port(),
            },
            Some(SocketAddr::V6(address)) => Self::V6 {
                octets: address.ip().octets(),
                port: address.port(),
            },
        }
    }

    /// `None` for a unix socket.
    pub(crate) fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Unix => None,
            Self::V4 { octets, port } => Some((octets, port).into()),
            Self::V6 { octets, port } => Some((octets, port).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_out_as_they_went_in() {
        for text in [
            "192.0.2.1:80",
            "[2001:db8::1]:65535",
            "[::ffff:192.0.2.1]:0",
        ] {
            let address = text.parse().ok();
            assert!(address.is_some());
            assert_eq!(Remote::new(address).address(), address);
        }
        assert_eq!(Remote::new(None).address(), None);
    }
}
