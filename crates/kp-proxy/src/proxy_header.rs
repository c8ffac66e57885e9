//! The PROXY header that an upstream gets: who the client is, as everything else of the request sees it.

use crate::{Context, Exchange};
use kp_config::model::ProxyProtocol;
use kp_http::ProxyHeader;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Appends the header that the location's `proxy_protocol` asks for; nothing where it is off.
pub fn write_proxy_header(exchange: &Exchange, context: &Context<'_>, out: &mut Vec<u8>) {
    let location = context.config.http.locations.get(exchange.location.index());
    let version = location.and_then(|location| location.proxy.proxy_protocol);
    let connection = &exchange.connection;
    let header = connection.remote.map(|source| {
        let proxied = connection.proxied.as_deref();
        match proxied.filter(|header| header.source == source) {
            // The address it meant, not the one that the proxy in front connected to.
            Some(header) => ProxyHeader::new(source, header.destination),
            None => ProxyHeader::new(source, destination(source, context)),
        }
    });
    match version {
        None => {}
        Some(ProxyProtocol::V1) => ProxyHeader::write_line(header.as_ref(), out),
        Some(ProxyProtocol::V2) => ProxyHeader::write_binary(header.as_ref(), out),
    }
}

/// Where the connection came in; on a unix socket no address, but one is needed beside the client's.
fn destination(source: SocketAddr, context: &Context<'_>) -> SocketAddr {
    context.facts.local_address().unwrap_or(match source {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    })
}
