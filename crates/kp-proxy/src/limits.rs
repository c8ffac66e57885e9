//! The zones of a configuration, as one process counts in them.
//!
//! Decides what makes a zone the same as another one: its name, kind, size, key and, since levels are counted in requests,
//! its rate. What a request does with them is `step`'s.

use kp_config::Config;
use kp_config::model::{PlaceZoneId, RateZoneId};
use kp_shm::{Hashed, Key, PlaceZone, RateZone, Row, Shm, Taken, ZoneKind, ZonePlan};

/// `limit_req_zone`, `limit_conn_zone` and what else counts clients.
#[derive(Debug, Default)]
pub struct Limits {
    rates: Vec<RateZone>,
    places: Vec<PlaceZone>,
    active: Option<Active>,
}

/// `max_active_requests`.
#[derive(Debug)]
struct Active {
    zone: PlaceZone,
    key: Hashed,
    max: u32,
}

impl Limits {
    /// The zones whose memory the master must set aside before it forks the processes of a generation.
    pub fn plans(config: &Config) -> Vec<ZonePlan> {
        let http = &config.http;
        let rates = (0..http.rate_zones.len()).filter_map(|index| Self::rate_plan(config, index));
        let places =
            (0..http.place_zones.len()).filter_map(|index| Self::place_plan(config, index));
        let active = http.max_active_requests.map(|_| active_plan());
        rates.chain(places).chain(active).collect()
    }

    /// The memory of a zone of rates.
    pub fn rate_plan(config: &Config, index: usize) -> Option<ZonePlan> {
        let zone = config.http.rate_zones.get(index)?;
        Some(ZonePlan {
            key: Key::of(&[
                b"rate",
                zone.name.as_bytes(),
                zone.key_text.as_bytes(),
                &zone.bytes.to_le_bytes(),
                &zone.rate.to_le_bytes(),
            ]),
            kind: ZoneKind::Rate,
            bytes: zone.bytes,
        })
    }

    /// The memory of a zone of places.
    pub fn place_plan(config: &Config, index: usize) -> Option<ZonePlan> {
        let zone = config.http.place_zones.get(index)?;
        Some(ZonePlan {
            key: Key::of(&[
                b"places",
                zone.name.as_bytes(),
                zone.key_text.as_bytes(),
                &zone.bytes.to_le_bytes(),
            ]),
            kind: ZoneKind::Places,
            bytes: zone.bytes,
        })
    }

    /// The zones, for the process that owns `row`.
    pub fn new(config: &Config, shm: &Shm, row: Row) -> Self {
        let (http, zones) = (&config.http, shm.zones());
        let journal = if http.place_zones.is_empty() && http.max_active_requests.is_none() {
            None
        } else {
            shm.journal(row)
        };
        let rate = |(index, zone): (usize, &kp_config::model::RateZone)| {
            let plan = Self::rate_plan(config, index)?;
            Some(RateZone::new(&zones, &plan, zone.rate, zone.reach))
        };
        Self {
            rates: http
                .rate_zones
                .iter()
                .enumerate()
                .filter_map(rate)
                .collect(),
            places: (0..http.place_zones.len())
                .filter_map(|index| Self::place_plan(config, index))
                .map(|plan| PlaceZone::new(&zones, &plan, journal.clone()))
                .collect(),
            active: http.max_active_requests.map(|max| {
                let zone = PlaceZone::new(&zones, &active_plan(), journal.clone());
                let key = zone.hash(b"");
                Active { zone, key, max }
            }),
        }
    }

    /// A zone of rates.
    pub fn rate(&self, id: RateZoneId) -> Option<&RateZone> {
        self.rates.get(id.index())
    }

    /// A zone of places.
    pub fn places(&self, id: PlaceZoneId) -> Option<&PlaceZone> {
        self.places.get(id.index())
    }

    /// A place among the active requests; `None` where they are not limited.
    pub(crate) fn active(&self) -> Option<Taken> {
        let active = self.active.as_ref()?;
        Some(active.zone.take(active.key, active.max))
    }
}

fn active_plan() -> ZonePlan {
    ZonePlan {
        key: Key::of(&[b"max_active_requests"]),
        kind: ZoneKind::Places,
        bytes: 64,
    }
}
