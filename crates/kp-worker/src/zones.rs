//! The zones of a configuration and how full they are, for the pages about kp.
//!
//! Decides what a zone is called and what counts in it; how full one is, is found in kp-shm. To look takes a few
//! milliseconds where zones are large: on a thread, then.

use crate::sessions;
use kp_config::Config;
use kp_config::model::Sticky;
use kp_config::overrides::ZONE_BYTES_PER_PEER;
use kp_proxy::Limits;
use kp_shm::{Living, Occupancy, Shm, ZonePlan};
use std::collections::BTreeMap;

/// Cells of eight bytes that are looked at for one page, in all zones together: 32 MiB, a few milliseconds.
const CELLS_MAX: usize = 4 << 20;

/// A zone of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Zone<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// What makes it one.
    pub(crate) directive: Directive,
    /// What is counted, as written; empty where that is no value.
    pub(crate) key: &'a str,
    /// Of memory.
    pub(crate) bytes: u64,
    /// Allowed for each key, in thousandths a second; 0 where there is no such limit.
    pub(crate) rate: u64,
    /// How full it is; `None`: each worker has its own.
    pub(crate) occupancy: Option<Occupancy>,
}

/// What makes a zone one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directive {
    LimitReq,
    LimitAccept,
    LimitConn,
    Sticky,
    Upstream,
}

impl Directive {
    /// As it is spelt.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LimitReq => "limit_req_zone",
            Self::LimitAccept => "limit_accept",
            Self::LimitConn => "limit_conn_zone",
            Self::Sticky => "sticky",
            Self::Upstream => "zone",
        }
    }
}

/// The zones whose memory is set aside, in the order of the configuration.
pub(crate) fn zones<'a>(config: &'a Config, shm: &Shm, now_ms: u64) -> Vec<Zone<'a>> {
    let mut found: Vec<(Zone<'a>, ZonePlan, Living)> = Vec::new();
    let http = &config.http;
    for (zone, index) in http.rate_zones.iter().zip(0..) {
        let (directive, key) = match zone.key.parts.is_empty() {
            true => (Directive::LimitAccept, ""),
            false => (Directive::LimitReq, zone.key_text.as_str()),
        };
        let about = Zone {
            name: &zone.name,
            directive,
            key,
            bytes: zone.bytes,
            rate: zone.rate,
            occupancy: None,
        };
        let living = Living::Rates {
            rate: zone.rate,
            reach: zone.reach,
            now_ms,
        };
        found.extend(Limits::rate_plan(config, index).map(|plan| (about, plan, living)));
    }
    for (zone, index) in http.place_zones.iter().zip(0..) {
        let about = Zone {
            name: &zone.name,
            directive: Directive::LimitConn,
            key: &zone.key_text,
            bytes: zone.bytes,
            rate: 0,
            occupancy: None,
        };
        found.extend(Limits::place_plan(config, index).map(|plan| (about, plan, Living::Places)));
    }
    for group in &http.upstreams {
        let Some(Sticky::Learn(learn)) = &group.sticky else {
            continue;
        };
        let about = Zone {
            name: &learn.zone,
            directive: Directive::Sticky,
            key: "",
            bytes: learn.zone_bytes,
            rate: 0,
            occupancy: None,
        };
        let since_ms = sessions::over_since_ms(learn, now_ms);
        found.push((about, sessions::plan(learn), Living::Sessions { since_ms }));
    }
    let share = CELLS_MAX / found.len().max(1);
    let look = |(zone, plan, living): (Zone<'a>, ZonePlan, Living)| Zone {
        occupancy: shm.zones().occupancy(&plan, &living, share),
        ..zone
    };
    found.into_iter().map(look).collect()
}

/// The zones of upstream groups. `peers`: how many a group has.
pub(crate) fn of_upstreams<'a>(config: &'a Config, peers: impl Fn(&str) -> usize) -> Vec<Zone<'a>> {
    let mut zones: BTreeMap<&str, Zone<'a>> = BTreeMap::new();
    for group in &config.http.upstreams {
        let Some(name) = &group.zone else { continue };
        let zone = zones.entry(name).or_insert_with(|| Zone {
            name,
            directive: Directive::Upstream,
            key: "",
            bytes: 0,
            rate: 0,
            occupancy: Some(Occupancy {
                entries: 0,
                max_entries: 0,
                overflows: 0,
            }),
        });
        // Groups that share a zone name its size once.
        zone.bytes = zone.bytes.max(group.zone_bytes.unwrap_or(0));
        if let Some(occupancy) = &mut zone.occupancy {
            occupancy.entries += peers(&group.name) as u64;
            occupancy.max_entries = zone.bytes / ZONE_BYTES_PER_PEER;
        }
    }
    let sized = zones.into_values().filter(|zone| zone.bytes > 0);
    sized.collect()
}
