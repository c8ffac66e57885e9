//! Round robin and least connections: the balancers that look at every peer of a tier.
//!
//! Smooth weighted round robin without a lock: add its weight to every usable peer, take the largest, subtract the sum
//! of what was added from it. In sequence this is nginx's order; between processes it errs by less than one pick per
//! peer, and a process killed in the middle shifts the order once.

use crate::groups::Group;
use crate::tried::Tried;
use std::ops::Range;

/// A peer that takes part in a pick under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Added {
    index: usize,
    weight: i64,
    in_flight: i64,
}

impl Group {
    /// Smooth weighted round robin among the peers of `tier` that were not tried and are usable.
    pub(crate) fn round_robin(
        &mut self,
        tier: Range<usize>,
        tried: &Tried,
        now_ms: u64,
    ) -> Option<usize> {
        self.collect(tier, tried, now_ms);
        self.round(now_ms)
    }

    /// The same among the primaries of one server name.
    pub(crate) fn round_robin_of(
        &mut self,
        server: u32,
        tried: &Tried,
        now_ms: u64,
    ) -> Option<usize> {
        self.collect(0..self.primaries, tried, now_ms);
        let peers = &self.peers;
        self.added.retain(|added| {
            peers
                .get(added.index)
                .is_some_and(|peer| peer.server == server)
        });
        self.round(now_ms)
    }

    /// The peer with the fewest connections for its weight; round robin among equals.
    pub(crate) fn least_conn(
        &mut self,
        tier: Range<usize>,
        tried: &Tried,
        now_ms: u64,
    ) -> Option<usize> {
        loop {
            self.collect(tier.clone(), tried, now_ms);
            let mut best = *self.added.first()?;
            for candidate in &self.added {
                if self.load(candidate, &best) < self.load(&best, candidate) {
                    best = *candidate;
                }
            }
            let mut added = std::mem::take(&mut self.added);
            added.retain(|candidate| self.load(candidate, &best) == self.load(&best, candidate));
            self.added = added;
            let best = match self.added.as_slice() {
                [only] => only.index,
                _ => self.turn()?,
            };
            if self.settle(best, now_ms) {
                return Some(best);
            }
        }
    }

    /// `a`'s connections on the scale of `b`'s weight, so that two loads can be compared without division.
    fn load(&self, a: &Added, b: &Added) -> i128 {
        let weight = self.peers.get(b.index).map_or(1, |peer| peer.weight);
        i128::from(a.in_flight) * i128::from(weight)
    }

    fn round(&mut self, now_ms: u64) -> Option<usize> {
        loop {
            let best = self.turn()?;
            if self.settle(best, now_ms) {
                return Some(best);
            }
        }
    }

    fn collect(&mut self, tier: Range<usize>, tried: &Tried, now_ms: u64) {
        self.added.clear();
        for (index, peer) in self
            .peers
            .iter()
            .enumerate()
            .take(tier.end)
            .skip(tier.start)
        {
            if !tried.contains(index) && peer.is_usable(now_ms) {
                self.added.push(Added {
                    index,
                    weight: 0,
                    in_flight: peer.facts.in_flight(),
                });
            }
        }
    }

    /// Adds to everybody collected and returns who is largest, the earliest among equals.
    fn turn(&mut self) -> Option<usize> {
        let mut best: Option<(usize, i64)> = None;
        for added in &mut self.added {
            let Some(peer) = self.peers.get(added.index) else {
                continue;
            };
            added.weight = peer.effective_weight();
            let current = peer.turn.advance(added.weight);
            if best.is_none_or(|(_, largest)| current > largest) {
                best = Some((added.index, current));
            }
        }
        best.map(|(index, _)| index)
    }

    /// Enters `best` and lets it pay for the round. If another process took its last place or its trial in the
    /// meantime, everything added is taken back and it takes no further part.
    fn settle(&mut self, best: usize, now_ms: u64) -> bool {
        let entered = self.peers.get(best).is_some_and(|peer| peer.enter(now_ms));
        if entered {
            let total: i64 = self.added.iter().map(|added| added.weight).sum();
            if let Some(peer) = self.peers.get(best)
                && total != 0
            {
                peer.turn.advance(-total);
            }
            return true;
        }
        for added in &mut self.added {
            if let Some(peer) = self.peers.get(added.index) {
                peer.turn.advance(-added.weight);
            }
            added.weight = 0;
        }
        self.added.retain(|added| added.index != best);
        false
    }
}
