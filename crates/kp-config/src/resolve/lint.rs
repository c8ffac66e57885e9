//! Warnings that need the whole picture: a proxy that passes requests to itself, an error page that is not there, TLS at
//! port 80.

use crate::draft::Reader;
use crate::model::{
    ErrorPageTarget, Forwarding, Handler, Http, ListenAddress, LocationId, LocationMatch,
    PeerAddress, ProxyTarget, ServerId,
};
use std::net::SocketAddr;

/// Checks every location.
pub(super) fn check(http: &Http, reader: &mut Reader<'_>) {
    check_ways_back(http, reader);
    check_error_pages(http, reader);
    check_ports(http, reader);
}

/// The port of a group's server does not follow the scheme: without one it is 80 for `https://`, too, as in nginx.
fn check_ports(http: &Http, reader: &mut Reader<'_>) {
    for location in &http.locations {
        let Handler::Proxy(pass) = &location.handler else {
            continue;
        };
        let ProxyTarget::Upstream {
            upstream,
            https: true,
            ..
        } = &pass.target
        else {
            continue;
        };
        let group = http.upstreams.get(upstream.index());
        let Some(group) = group.filter(|group| !group.implicit) else {
            continue;
        };
        let portless = group.servers.iter().find(|line| {
            let at_80 = |address: &PeerAddress| matches!(address, PeerAddress::Inet(address) if address.port() == 80);
            line.addresses.iter().any(at_80) && !line.name.ends_with(":80")
        });
        if let Some(line) = portless {
            let message = format!(
                "\"server {}\" of \"{}\" is asked for TLS at port 80",
                line.name, group.name
            );
            let hint = format!("write its port, such as `server {}:443;`", line.name);
            reader.warning(pass.span, message, hint);
        }
    }
}

/// A named location is looked for in the server that answers.
fn check_error_pages(http: &Http, reader: &mut Reader<'_>) {
    for location in &http.locations {
        let Some(server) = http.servers.get(location.server.index()) else {
            continue;
        };
        for page in &location.error_pages {
            if let ErrorPageTarget::Named(name) = &page.target
                && !server.named.iter().any(|(known, _)| known == name)
            {
                let message = format!("could not find named location \"{name}\"");
                let hint =
                    "a named location must be in the same server; without it the answer is 500";
                reader.warning(page.span, message, hint);
            }
        }
    }
}

fn check_ways_back(http: &Http, reader: &mut Reader<'_>) {
    let mut addresses: Vec<Vec<&ListenAddress>> = vec![Vec::new(); http.servers.len()];
    for listener in &http.listeners {
        for server in &listener.servers {
            if let Some(own) = addresses.get_mut(server.index()) {
                own.push(&listener.address);
            }
        }
    }
    for (index, location) in http.locations.iter().enumerate() {
        // With forwarding on kp sees its own mark and answers 508.
        if location.proxy.forwarding != Forwarding::Off {
            continue;
        }
        let Handler::Proxy(pass) = &location.handler else {
            continue;
        };
        let ProxyTarget::Upstream { upstream, uri, .. } = &pass.target else {
            continue;
        };
        if uri
            .as_ref()
            .is_some_and(|uri| !comes_back(http, location.server, index, uri))
        {
            continue;
        }
        let Some(group) = http.upstreams.get(upstream.index()) else {
            continue;
        };
        let own = addresses
            .get(location.server.index())
            .into_iter()
            .flatten()
            .copied();
        let peers = group.servers.iter().flat_map(|line| &line.addresses);
        let itself = own
            .flat_map(|own| peers.clone().map(move |peer| (own, peer)))
            .find(|(own, peer)| same(own, peer));
        if let Some((own, _)) = itself {
            let message = format!(
                "\"proxy_pass\" leads back to this server ({})",
                super::listen::text(own)
            );
            let hint = "requests would go round until the connections are used up; \"proxy_forwarding edge\" stops that";
            reader.warning(pass.span, message, hint);
        }
    }
}

/// Whether a request for this URI is routed to the location that sends it, as far as the prefixes tell.
fn comes_back(http: &Http, server: ServerId, sender: usize, uri: &str) -> bool {
    let path = uri.split('?').next().unwrap_or(uri);
    let fixed = http
        .servers
        .get(server.index())
        .map(|server| server.locations.fixed.as_slice());
    let reach = |id: &LocationId| match http
        .locations
        .get(id.index())
        .map(|location| &location.matches)
    {
        Some(LocationMatch::Exact(text)) if text == path => Some(usize::MAX),
        Some(LocationMatch::Prefix { text, .. }) if path.starts_with(text.as_str()) => {
            Some(text.len())
        }
        _ => None,
    };
    let found = fixed
        .unwrap_or_default()
        .iter()
        .filter_map(|id| Some((reach(id)?, id)))
        .max_by_key(|(reach, _)| *reach);
    found.is_none_or(|(_, id)| id.index() == sender)
}

/// Whether a peer's address is one that the listener answers at. A wildcard listener has every address of this host; only
/// the loopback ones are known without asking the system.
fn same(own: &ListenAddress, peer: &PeerAddress) -> bool {
    match (own, peer) {
        (ListenAddress::Unix(own), PeerAddress::Unix(peer)) => own == peer,
        (ListenAddress::Inet(own), PeerAddress::Inet(peer)) => {
            own.port() == peer.port() && same_host(*own, *peer)
        }
        _ => false,
    }
}

fn same_host(own: SocketAddr, peer: SocketAddr) -> bool {
    let local = peer.ip().is_loopback() || peer.ip().is_unspecified();
    own.ip() == peer.ip() || (own.ip().is_unspecified() && local && own.is_ipv4() == peer.is_ipv4())
}
