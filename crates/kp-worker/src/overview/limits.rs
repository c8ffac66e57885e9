//! Bounds on clients, and how full the zones are that they are counted in.

use super::UpstreamView;
use crate::zones::{Directive, Zone, of_upstreams, zones};
use kp_config::Config;
use kp_shm::{Occupancy, Shm};
use serde::Serialize;

/// Bounds on clients.
#[derive(Debug, Clone, Serialize)]
pub struct LimitsView {
    /// `limit_req_zone` and `limit_accept`, by name.
    pub rate_zones: Vec<RateZoneView>,
    /// `limit_conn_zone`, by name.
    pub connection_zones: Vec<ConnectionZoneView>,
    /// `sticky learn`, by name.
    pub session_zones: Vec<ZoneView>,
    /// `zone` of upstream groups, by name.
    pub upstream_zones: Vec<ZoneView>,
    /// `max_active_requests`.
    pub max_active_requests: Option<u32>,
}

/// A zone.
#[derive(Debug, Clone, Serialize)]
pub struct ZoneView {
    /// Its name.
    pub zone: String,
    /// Of shared memory.
    pub size_bytes: u64,
    /// Keys, sessions or peers in it that count now; `None`: each worker has one of its own.
    pub entries: Option<u64>,
    /// How many fit.
    pub max_entries: Option<u64>,
    /// How often it had no room.
    pub overflows: Option<u64>,
}

/// A zone that counts requests or connections in time.
#[derive(Debug, Clone, Serialize)]
pub struct RateZoneView {
    /// What is counted, as written.
    pub key: String,
    /// Allowed for each key.
    pub rate_per_s: f64,
    /// As all zones.
    #[serde(flatten)]
    pub zone: ZoneView,
}

/// A zone that counts requests at a time.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionZoneView {
    /// What is counted, as written.
    pub key: String,
    /// As all zones.
    #[serde(flatten)]
    pub zone: ZoneView,
}

impl ZoneView {
    fn of(zone: &Zone<'_>) -> Self {
        let part = |part: fn(&Occupancy) -> u64| zone.occupancy.as_ref().map(part);
        Self {
            zone: zone.name.to_owned(),
            size_bytes: zone.bytes,
            entries: part(|it| it.entries),
            max_entries: part(|it| it.max_entries),
            overflows: part(|it| it.overflows),
        }
    }
}

impl LimitsView {
    /// Zones that forget something when they are full.
    pub(super) fn counted(&self) -> impl Iterator<Item = &ZoneView> {
        let rates = self.rate_zones.iter().map(|zone| &zone.zone);
        let connections = self.connection_zones.iter().map(|zone| &zone.zone);
        rates.chain(connections).chain(&self.session_zones)
    }
}

/// Looks.
pub(super) fn limits(
    config: &Config,
    upstreams: &[UpstreamView],
    shm: &Shm,
    now_ms: u64,
) -> LimitsView {
    let peers = |name: &str| {
        let group = upstreams.iter().find(|group| group.upstream == name);
        group.map_or(0, |group| group.peers.len())
    };
    let mut all = zones(config, shm, now_ms);
    all.sort_by_key(|zone| zone.name);
    let mut limits = LimitsView {
        rate_zones: Vec::new(),
        connection_zones: Vec::new(),
        session_zones: Vec::new(),
        upstream_zones: of_upstreams(config, peers)
            .iter()
            .map(ZoneView::of)
            .collect(),
        max_active_requests: config.http.max_active_requests,
    };
    for zone in &all {
        let view = ZoneView::of(zone);
        let rate = |key: &str, view| RateZoneView {
            key: key.to_owned(),
            rate_per_s: zone.rate as f64 / 1000.0,
            zone: view,
        };
        match zone.directive {
            Directive::LimitReq => limits.rate_zones.push(rate(zone.key, view)),
            Directive::LimitAccept => limits.rate_zones.push(rate("the client's address", view)),
            Directive::LimitConn => limits.connection_zones.push(ConnectionZoneView {
                key: zone.key.to_owned(),
                zone: view,
            }),
            Directive::Sticky => limits.session_zones.push(view),
            Directive::Upstream => limits.upstream_zones.push(view),
        }
    }
    limits
}
