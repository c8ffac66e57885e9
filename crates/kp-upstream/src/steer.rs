//! Run-time changes: the groups take over what an operator has changed, all of it at once.

use crate::groups::{Groups, PeerId};
use crate::peer::Peer;
use kp_config::model::UpstreamId;
use kp_config::overrides::Overrides;
use std::collections::{HashMap, HashSet};

/// What became of the groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Peers that are gone or down: their idle connections are to be closed. Attempts under way are ended as ever.
    pub silenced: Vec<PeerId>,
    /// Groups that are not what they were: who waits for one of their peers may look again.
    pub changed: Vec<UpstreamId>,
}

impl Groups {
    /// Brings every group in line with these overrides: those that are not among them are in force no longer. A process
    /// that has just begun gives 0 as its time, since to it nobody is new.
    pub fn steer(&mut self, overrides: &Overrides, now_ms: u64) -> Applied {
        let mut applied = Applied::default();
        for (number, group) in (0..).zip(&mut self.groups) {
            let upstream = group.roster.upstream();
            if upstream.implicit {
                continue;
            }
            let own = overrides.group(&upstream.name);
            let Some(changes) = group.roster.steer(&mut group.peers, own, now_ms) else {
                continue;
            };
            group.arrange();
            let id = UpstreamId(number);
            let slots = changes.gone.into_iter().chain(changes.silenced);
            applied
                .silenced
                .extend(slots.map(|slot| PeerId::new(id, slot)));
            applied.changed.push(id);
        }
        self.shown.soon();
        applied
    }

    /// Forgets failures and ejection of peers, given by group and name: an address, or a server line. Every group is gone
    /// through once, however many they are.
    pub fn forget(&mut self, whom: &[(String, String)], now_ms: u64) -> Vec<UpstreamId> {
        let mut by_group: HashMap<&str, HashSet<&str>> = HashMap::new();
        for (upstream, name) in whom {
            by_group.entry(upstream).or_default().insert(name);
        }
        let mut forgotten = Vec::new();
        for (number, group) in (0..).zip(&mut self.groups) {
            let configured = group.roster.upstream();
            let named = by_group.get(configured.name.as_str());
            let Some(named) = named.filter(|_| !configured.implicit) else {
                continue;
            };
            let lineup = &group.roster.lineup;
            let line = |peer: &Peer| lineup.server(peer.line).map(|line| line.name.as_str());
            let is_meant = |peer: &Peer| {
                named.contains(peer.name.as_str())
                    || line(peer).is_some_and(|line| named.contains(line))
            };
            for peer in group.peers.iter().filter(|peer| is_meant(peer)) {
                peer.forget(now_ms);
            }
            forgotten.push(UpstreamId(number));
        }
        self.shown.soon();
        forgotten
    }

    /// Whether a connection to this peer is worth keeping: it belongs to its group, and is not down.
    pub fn is_welcome(&self, peer: PeerId) -> bool {
        let group = self.groups.get(peer.upstream.index());
        group.is_some_and(|group| {
            let at = group.roster.position(peer.slot()).flatten();
            at.and_then(|at| group.peers.get(at))
                .is_some_and(|peer| !peer.down)
        })
    }
}

#[cfg(test)]
mod tests;
