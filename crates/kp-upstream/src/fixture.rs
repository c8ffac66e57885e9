//! Groups for the tests of this crate.

use crate::{Groups, PeerId, PickQuery, Tried};
use kp_config::model::{Balancer, PeerAddress, ServerLine, Upstream, UpstreamId};
use kp_config::{Span, template::Template};
use kp_shm::Shm;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The only group of most tests.
pub(crate) const U: UpstreamId = UpstreamId(0);

/// A server line of one address, 127.0.0.1 and the port.
pub(crate) fn server(port: u16, weight: u32) -> ServerLine {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    ServerLine {
        name: address.to_string(),
        addresses: vec![PeerAddress::Inet(address)],
        weight,
        max_conns: 0,
        max_fails: 1,
        fail_timeout: Duration::from_secs(10),
        slow_start: Duration::ZERO,
        backup: false,
        down: false,
        resolve: None,
        drain: false,
        route: String::new(),
    }
}

/// Server lines with ports from 1 on and these weights.
pub(crate) fn servers(weights: &[u32]) -> Vec<ServerLine> {
    weights
        .iter()
        .enumerate()
        .map(|(index, weight)| server(index as u16 + 1, *weight))
        .collect()
}

/// A group without a zone.
pub(crate) fn upstream(balancer: Balancer, servers: Vec<ServerLine>) -> Upstream {
    Upstream {
        name: "u".to_owned(),
        implicit: false,
        servers,
        zone: None,
        zone_bytes: None,
        state: None,
        balancer,
        keepalive: None,
        resolver: None,
        resolver_timeout: std::time::Duration::from_secs(30),
        checks: Vec::new(),
        outliers: None,
        max_ejected_percent: None,
        queue: None,
        retry_budget: None,
        sticky: None,
        span: Span::default(),
    }
}

/// `hash KEY`.
pub(crate) fn hash(consistent: bool) -> Balancer {
    Balancer::Hash {
        key: Template::literal("k"),
        consistent,
    }
}

/// One process with one group.
pub(crate) fn groups(upstream: Upstream) -> Groups {
    let shm = Shm::private().unwrap();
    let process = shm.scoreboard().claim(1, 0);
    Groups::new(&[upstream], &shm, process, 1)
}

/// A query at a time.
pub(crate) fn at(now_ms: u64) -> PickQuery<'static> {
    PickQuery {
        hash_key: b"",
        client: None,
        sticky: b"",
        now_ms,
    }
}

/// Picks for a new exchange.
pub(crate) fn pick(groups: &mut Groups, now_ms: u64) -> Option<PeerId> {
    groups.pick(U, &at(now_ms), &mut Tried::new()).ok()
}

/// The peer's letter: `a` is the first of its group.
pub(crate) fn letter(peer: PeerId) -> char {
    char::from(b'a' + peer.index() as u8)
}

/// `health_check` as it is without parameters.
pub(crate) fn check() -> kp_config::model::HealthCheck {
    kp_config::model::HealthCheck {
        location: kp_config::model::LocationId(0),
        identity: String::new(),
        interval: Duration::from_secs(5),
        jitter: Duration::ZERO,
        fails: 1,
        passes: 1,
        uri: "/".to_owned(),
        port: None,
        matches: None,
        mandatory: false,
        protocol: kp_config::model::CheckProtocol::Http,
        https: false,
        span: Span::default(),
    }
}
