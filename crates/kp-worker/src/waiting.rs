//! Exchanges that wait before they have an answer: for their turn at a rate limit, between two attempts, for a peer with a
//! free place, for the addresses of a name.
//!
//! Decides when a wait is over: its moment came, or somebody woke it. Does not decide what comes then: that is the
//! machine's. Who waits holds no peer and is not read, but its client is watched.

use crate::active::{Active, NEVER};
use crate::reactor::Worker;
use crate::token::Key;
use kp_proxy::machine::Phase;
use kp_proxy::{Input, WaitFor, Woken};

impl Active {
    /// Nothing is done for it until its moment comes or it is woken.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.exchange.machine.phase, Phase::Wait(_))
    }

    /// It waits at a rate limit, where as in nginx a client that leaves is always noticed.
    pub(crate) fn is_limited(&self) -> bool {
        self.exchange.machine.phase == Phase::Wait(WaitFor::Rate)
    }
}

impl Worker {
    /// Lets an exchange that waits look again before its moment comes. One that does not wait is left alone.
    pub(crate) fn wake(&mut self, key: Key) {
        let waiting = self.exchanges.at(key).filter(|active| active.is_waiting());
        if let Some(active) = waiting {
            active.woken = true;
            self.enqueue_exchange(key);
        }
    }

    /// Whether a wait is over.
    pub(crate) fn waited(&self, active: &mut Active) -> Option<Input> {
        if !active.is_waiting() {
            return None;
        }
        if std::mem::take(&mut active.woken) {
            return Some(Input::Waited(Woken::Early));
        }
        if self.clock.mono_ms < active.deadlines.wait {
            return None;
        }
        active.deadlines.wait = NEVER;
        Some(Input::Waited(Woken::Due))
    }

    /// Whether an exchange that is parked while it waits will be heard of again, and holds nothing it should not.
    #[cfg(debug_assertions)]
    pub(crate) fn waits_well(&self, active: &Active) -> bool {
        let armed_ms = self
            .clients
            .peek(active.client)
            .map_or(NEVER, |client| self.wheel.deadline_ms(client.timer));
        let wait_ms = active.deadlines.wait;
        !active.woken && active.upstream.is_none() && wait_ms != NEVER && armed_ms <= wait_ms
    }
}
