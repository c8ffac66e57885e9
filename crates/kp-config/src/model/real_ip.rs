//! Who the client is behind proxies that are trusted.

use super::Network;

/// `set_real_ip_from` and its companions, of one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealIp {
    /// `set_real_ip_from`: whose word is taken; never empty.
    pub trusted: Vec<Network>,
    /// `real_ip_header`, default X-Real-IP.
    pub header: RealIpHeader,
    /// `real_ip_recursive`, default off: the last address that is not trusted, instead of the last one.
    pub recursive: bool,
}

impl RealIp {
    /// Whether the word of a client is taken; `None` is one that came by a unix socket.
    pub fn trusts(&self, client: Option<std::net::IpAddr>) -> bool {
        self.trusted.iter().any(|network| network.contains(client))
    }
}

/// `real_ip_header`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RealIpHeader {
    /// `X-Forwarded-For`: all its lines are one list.
    XForwardedFor,
    /// `Forwarded` (RFC 7239): the `for` of its elements.
    Forwarded,
    /// `proxy_protocol`: what the proxy said when it connected.
    ProxyProtocol,
    /// Any other field, whose first line is read as a list of addresses.
    Field(String),
}

impl Default for RealIpHeader {
    fn default() -> Self {
        Self::Field("x-real-ip".to_owned())
    }
}
