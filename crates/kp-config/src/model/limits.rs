//! Limits on clients: zones, and what a location asks of them.

use super::*;

/// `limit_req_zone`, or the zone of a `limit_accept`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateZone {
    /// Its name.
    pub name: String,
    /// What is counted; empty for `limit_accept`, which counts addresses.
    pub key: Template,
    /// The key as written: a part of the zone's identity.
    pub key_text: String,
    /// Bytes of shared memory.
    pub bytes: u64,
    /// Thousandths of a request per second.
    pub rate: u64,
    /// The largest `burst` of all limits that use it, in thousandths of a request.
    pub reach: u64,
}

/// `limit_conn_zone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceZone {
    /// Its name.
    pub name: String,
    /// What is counted.
    pub key: Template,
    /// The key as written: a part of the zone's identity.
    pub key_text: String,
    /// Bytes of shared memory.
    pub bytes: u64,
}

/// What a request must pass between routing and its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// `limit_req`s.
    pub rates: Vec<RateLimit>,
    /// How they act.
    pub rate_rules: LimitRules,
    /// `limit_req_retry_after` (kp): a refusal says when to come again.
    pub retry_after: bool,
    /// `limit_conn`s.
    pub places: Vec<PlaceLimit>,
    /// How they act.
    pub place_rules: LimitRules,
    /// `allow` and `deny` in their order; the first that fits decides.
    pub access: Vec<AccessRule>,
    /// `limit_except`.
    pub except: Option<Except>,
}

/// `limit_except`: what holds for requests with other methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Except {
    /// The methods that are not meant.
    pub methods: Vec<String>,
    /// Instead of the location's.
    pub access: Vec<AccessRule>,
}

impl Admission {
    /// What holds instead for requests with this method.
    pub fn exception(&self, method: &[u8]) -> Option<&Except> {
        let except = self.except.as_ref()?;
        let mut methods = except.methods.iter();
        methods
            .all(|known| known.as_bytes() != method)
            .then_some(except)
    }
}

/// How a kind of limits acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitRules {
    /// `…_status`, default 503.
    pub status: u16,
    /// `…_log_level`, default error.
    pub log_level: Level,
    /// `…_dry_run`, default off: what would be done is only logged.
    pub dry_run: bool,
}

/// `limit_req`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// The zone.
    pub zone: RateZoneId,
    /// Thousandths of a request over the rate that are let through.
    pub burst: u64,
    /// Those of them that are not made to wait.
    pub delay: u64,
}

/// `limit_conn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceLimit {
    /// The zone.
    pub zone: PlaceZoneId,
    /// Requests of one key at a time.
    pub max: u32,
}

/// `limit_accept` (kp).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptLimit {
    /// The zone.
    pub zone: RateZoneId,
    /// Thousandths of a connection over the rate that are accepted.
    pub burst: u64,
}

/// `allow` or `deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRule {
    /// `allow`.
    pub allow: bool,
    /// Whom it is about; `None`: everybody.
    pub who: Option<Network>,
}
