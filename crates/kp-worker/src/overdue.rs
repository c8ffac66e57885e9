//! Attempts that have waited long for their response head, as a number for each peer.
//!
//! Attempts are counted as they end, so a peer that hangs looks well until a timeout has passed. While exchanges are under way
//! their attempts are therefore looked at, as seldom as tells within a second of one that has become overdue. Decides nothing:
//! what ends a wait are the timeouts of the configuration.

use crate::active::{Active, RequestStage};
use crate::reactor::Worker;
use kp_shm::PeerCell;
use kp_upstream::PeerId;

/// How long an attempt may take to its response head before it is overdue.
const OVERDUE_MS: u64 = 5000;
/// Between two looks lies at least this.
const LOOK_MS: u64 = 1000;
/// No look is planned.
const NEVER: u64 = u64::MAX;

/// When to look, and what was told at the last look.
#[derive(Debug)]
pub(crate) struct Overdue {
    due_ms: u64,
    /// The peer of each attempt that was overdue.
    told: Vec<PeerId>,
}

impl Overdue {
    pub(crate) fn new() -> Self {
        Self {
            due_ms: NEVER,
            told: Vec::new(),
        }
    }

    /// When the loop has to turn for the next look.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// When to look again, if the youngest attempt that matters began then; `None`: there is none.
    fn plan(&mut self, now_ms: u64, oldest_ms: Option<u64>) {
        let next_ms = match oldest_ms {
            _ if !self.told.is_empty() => now_ms,
            Some(oldest_ms) => oldest_ms.saturating_add(OVERDUE_MS),
            None => NEVER,
        };
        self.due_ms = next_ms.max(now_ms + LOOK_MS);
    }
}

impl Worker {
    /// Looks, if it is time; called at the end of each turn of the loop.
    pub(crate) fn look_for_overdue(&mut self) {
        let now_ms = self.clock.mono_ms;
        if self.overdue.due_ms == NEVER && self.exchanges.len() > 0 && self.config.http.metrics {
            // Whatever was begun in this turn or comes later is not overdue before.
            self.overdue.due_ms = now_ms + OVERDUE_MS;
        }
        if now_ms < self.overdue.due_ms {
            return;
        }
        for peer in std::mem::take(&mut self.overdue.told) {
            if let Some(series) = self.groups.series(peer) {
                series.set(PeerCell::Overdue, 0);
            }
        }
        let mut oldest_ms: Option<u64> = None;
        for (_, active) in self.exchanges.iter() {
            let Some((peer, began_ms)) = awaited(active) else {
                continue;
            };
            if now_ms.saturating_sub(began_ms) < OVERDUE_MS {
                oldest_ms = Some(oldest_ms.map_or(began_ms, |oldest_ms| oldest_ms.min(began_ms)));
            } else if let Some(series) = self.groups.series(peer) {
                series.increment(PeerCell::Overdue);
                self.overdue.told.push(peer);
            }
        }
        self.overdue.plan(now_ms, oldest_ms);
    }
}

/// The peer whose response head is awaited, and since when; not as long as the client owes a part of the request.
fn awaited(active: &Active) -> Option<(PeerId, u64)> {
    let attempt = active.exchange.attempts.last()?;
    let client_owes = matches!(
        active.request.stage,
        RequestStage::Unread | RequestStage::Gathering(_) | RequestStage::Streaming
    );
    let waits = attempt.header_ms.is_none() && attempt.response_ms.is_none() && !client_owes;
    Some((active.peer.filter(|_| waits)?, attempt.started_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_as_rare_as_tells_in_time() {
        let mut overdue = Overdue::new();
        overdue.plan(20_000, None);
        assert_eq!(overdue.due_ms(), NEVER);
        overdue.plan(20_000, Some(18_000));
        assert_eq!(overdue.due_ms(), 18_000 + OVERDUE_MS);
        overdue.plan(20_000, Some(15_100));
        assert_eq!(overdue.due_ms(), 20_000 + LOOK_MS);
    }
}
