//! Connections: who is connected, for how long, and what it does; how many lead to which peer.

use super::longest::Longest;
use super::{ClientConnection, ConnectionState, Findings, PeerConnections, ROWS_MAX};
use crate::active::NEVER;
use crate::client::{Client, ClientPhase};
use crate::reactor::Worker;
use crate::upstream::UpstreamPhase;
use kp_config::model::ListenAddress;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::SocketAddr;

impl Worker {
    pub(super) fn all_connections(&self, limit: usize) -> Findings {
        let mut longest = Longest::new(limit);
        for (key, client) in self.clients.iter() {
            longest.see(client.accepted_ms, key);
        }
        let described = longest
            .keys()
            .filter_map(|key| Some(self.client_connection(self.clients.peek(key)?)));
        Findings::Connections {
            clients: self.clients.len(),
            connections: described.collect(),
            upstreams: self.peer_connections(),
        }
    }

    fn client_connection(&self, client: &Client) -> ClientConnection {
        let now_ms = self.clock.mono_ms;
        let listening = self.listeners.get(usize::from(client.listener));
        let address = listening
            .and_then(|listening| self.config.http.listeners.get(listening.id.index()))
            .map(|listener| match &listener.address {
                ListenAddress::Inet(address) => address.to_string(),
                ListenAddress::Unix(path) => format!("unix:{}", path.display()),
            });
        let state = state_of(client);
        // What runs out during a request is said there.
        let ends_ms = (state != ConnectionState::Request && client.deadline_ms != NEVER)
            .then_some(client.deadline_ms);
        let facts = client.transport.facts();
        ClientConnection {
            worker: self.pid,
            connection: client.serial,
            client: remote_text(client.remote.address()),
            listener: address.unwrap_or_default(),
            age_ms: now_ms.saturating_sub(client.accepted_ms),
            requests: client.requests + u32::from(state == ConnectionState::Head),
            state,
            tls: facts.map_or("", |facts| facts.protocol).to_owned(),
            ends_in_ms: ends_ms.map(|ends_ms| ends_ms.saturating_sub(now_ms)),
        }
    }

    /// Those of the busiest peers, if there are very many.
    fn peer_connections(&self) -> Vec<PeerConnections> {
        let mut peers: HashMap<(&str, &str), PeerConnections> = HashMap::new();
        for (_, upstream) in self.upstreams.iter() {
            let active = upstream.active.and_then(|key| self.exchanges.peek(key));
            let (group, peer) = match (upstream.peer, active) {
                (Some(peer), _) => (self.upstream_name(peer.upstream), self.groups.name(peer)),
                (None, Some(active)) => {
                    let attempt = active.exchange.attempts.last();
                    ("", attempt.map_or("", |attempt| attempt.address.as_str()))
                }
                (None, None) => ("", ""),
            };
            let entry = peers
                .entry((group, peer))
                .or_insert_with(|| PeerConnections {
                    upstream: group.to_owned(),
                    peer: peer.to_owned(),
                    connecting: 0,
                    busy: 0,
                    idle: 0,
                });
            match upstream.phase {
                UpstreamPhase::Connecting | UpstreamPhase::Handshake => entry.connecting += 1,
                UpstreamPhase::Busy => entry.busy += 1,
                UpstreamPhase::Idle => entry.idle += 1,
            }
        }
        let mut peers: Vec<PeerConnections> = peers.into_values().collect();
        peers.sort_by_key(|peer| Reverse(peer.connecting + peer.busy + peer.idle));
        peers.truncate(ROWS_MAX);
        peers
    }
}

fn state_of(client: &Client) -> ConnectionState {
    match client.phase {
        ClientPhase::Preamble => ConnectionState::ProxyHeader,
        ClientPhase::Handshake => ConnectionState::Handshake,
        ClientPhase::Head if client.active.is_some() => ConnectionState::Head,
        ClientPhase::Head if client.requests == 0 => ConnectionState::New,
        ClientPhase::Head => ConnectionState::Idle,
        ClientPhase::Exchange => ConnectionState::Request,
        ClientPhase::Linger => ConnectionState::Closing,
    }
}

/// A client's address as `$remote_addr` with its port; `unix:` where there is none.
pub(super) fn remote_text(address: Option<SocketAddr>) -> String {
    address.map_or("unix:".into(), |address| address.to_string())
}
