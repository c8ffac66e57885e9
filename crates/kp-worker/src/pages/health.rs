//! `health`: whether whoever chooses between several kp should send requests to this one.
//!
//! It speaks for kp as a whole: a worker that drains because another generation serves is well, one that drains because
//! kp ends is not.

use super::PLAIN;
use crate::reactor::Worker;
use kp_config::Config;
use kp_config::model::UpstreamId;
use kp_proxy::Rendered;

/// What `health` finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Ok,
    /// kp is about to end.
    Draining,
    /// `worker_memory` is used up.
    Memory,
    /// No peer of the group can be used.
    NoPeer(UpstreamId),
}

impl Worker {
    /// Looks.
    pub(super) fn health(&self, upstream: Option<UpstreamId>) -> Health {
        if self.drain.is_some() && !self.successor {
            return Health::Draining;
        }
        if self.is_out_of_memory() {
            return Health::Memory;
        }
        let now_ms = self.clock.mono_ms;
        match upstream.filter(|group| !self.groups.has_usable_peer(*group, now_ms)) {
            Some(group) => Health::NoPeer(group),
            None => Health::Ok,
        }
    }
}

impl Health {
    /// In how many seconds it may look better.
    pub(super) fn retry_after_s(self) -> Option<u32> {
        (self != Self::Ok).then_some(1)
    }

    pub(super) fn render(self, config: &Config) -> Rendered {
        let body = match self {
            Self::Ok => "ok\n".to_owned(),
            Self::Draining => "draining\n".to_owned(),
            Self::Memory => "memory\n".to_owned(),
            Self::NoPeer(group) => {
                let group = config.http.upstreams.get(group.index());
                let name = group.map_or("", |group| &group.name);
                format!("no usable peer in upstream \"{name}\"\n")
            }
        };
        Rendered {
            status: if self == Self::Ok { 200 } else { 503 },
            media_type: PLAIN,
            fields: &[],
            body: body.into_bytes(),
        }
    }
}
