//! Making room when connections or descriptors run out, and when memory does.
//!
//! Decides who goes: connections to upstreams that wait in the pool, clients that are idle, clients that have waited
//! longest for a request head, clients that linger. Nobody goes whose request is being worked on, nor whose next one is
//! here already. Does not decide what a client is told for whom there is no room.

use crate::ages::Waits;
use crate::early::{Parting, early_phase};
use crate::reactor::Worker;
use crate::token::Key;
use kp_proxy::{Cause, Failure, Input, Phase, Reason};
use kp_shm::Counter;

/// Whose head is on its way for less than this is no slow client.
const HEAD_MS: u64 = 250;
/// Long enough for the last answer to arrive.
const LINGER_MS: u64 = 1000;
/// How often the log says that it happens.
const SAY_MS: u64 = 1000;
/// Connections closed for want of memory in one turn of the loop.
const RELIEF_MAX: usize = 256;

impl Worker {
    /// Closes the connection that is missed least; `false`: there is none.
    pub(crate) fn make_room(&mut self) -> bool {
        let now_ms = self.clock.mono_ms;
        let made = self.close_idle_upstream() || self.close_someone(now_ms, Reason::Overload);
        if made {
            // Its descriptor is wanted now.
            self.flush_logs(false);
            self.part_with_clients();
        }
        if made && now_ms >= self.shed_said_ms {
            self.shed_said_ms = now_ms + SAY_MS;
            // nginx's words.
            log::warn!(
                "{} worker_connections are not enough, reusing connections",
                self.connections_max
            );
        }
        made
    }

    /// There is no memory for requests: who holds some without a request goes, the one that has waited longest first.
    /// Clients whose head or handshake has begun hold what came of it; others go only where the connections alone take too
    /// much, since each of them holds little.
    pub(crate) fn relieve(&mut self) {
        // What is kept for reuse goes first, and what the last one held is not kept instead.
        self.buffers.shrink(0);
        let before = self.connections();
        for key in self.head_holders() {
            if !self.is_out_of_memory() {
                break;
            }
            self.shed(key, Reason::OutOfMemory);
            self.buffers.shrink(0);
        }
        let now_ms = self.clock.mono_ms;
        for _ in 0..RELIEF_MAX {
            let more = self.is_out_of_memory()
                && self.is_crowded()
                && self.close_someone(now_ms, Reason::OutOfMemory);
            if !more {
                break;
            }
        }
        if self.connections() < before && now_ms >= self.shed_said_ms {
            self.shed_said_ms = now_ms + SAY_MS;
            log::warn!("worker_memory is not enough, reusing connections");
        }
    }

    /// Clients that hold the beginning of a head or of TLS, the one that has waited longest first. Above the budget nobody
    /// is too young.
    fn head_holders(&self) -> Vec<Key> {
        let head_ms = if self.is_over_budget() { 0 } else { HEAD_MS };
        let then_ms = self.clock.mono_ms.saturating_sub(head_ms);
        let holds = |slot: u32| {
            let key = self.clients.key_at(slot as usize)?;
            let client = self.clients.peek(key)?;
            (client.active.is_some() || client.transport.keeps()).then_some(key)
        };
        let waiting = self.client_ages.since(Waits::Head, then_ms);
        waiting.filter_map(holds).take(RELIEF_MAX).collect()
    }

    fn close_idle_upstream(&mut self) -> bool {
        let slot = self.pooled_ages.since(Waits::Idle, u64::MAX).next();
        let key = slot.and_then(|slot| self.upstreams.key_at(slot as usize));
        if let Some(key) = key {
            self.end_idle_upstream(key);
        }
        key.is_some()
    }

    /// Closes the client that is missed least, for want of something.
    fn close_someone(&mut self, now_ms: u64, want: Reason) -> bool {
        self.close_waiting(Waits::Idle, now_ms, want)
            || self.close_waiting(Waits::Head, now_ms.saturating_sub(HEAD_MS), want)
            || self.close_waiting(Waits::Linger, now_ms.saturating_sub(LINGER_MS), want)
    }

    /// Closes a client. Between two requests and after the last one that is how connections end.
    fn shed(&mut self, key: Key, want: Reason) {
        let Some(client) = self.clients.peek(key) else {
            return;
        };
        let over = client.requests > 0 && client.active.is_none();
        let parting = match over {
            true => Parting::InOrder,
            false => Parting::early(early_phase(client), want),
        };
        self.counters.increment(Counter::ConnectionsShed);
        self.close_silent(key, parting);
    }

    fn close_waiting(&mut self, list: Waits, then_ms: u64, want: Reason) -> bool {
        let found = self.client_ages.since(list, then_ms).find_map(|slot| {
            let key = self.clients.key_at(slot as usize)?;
            let client = self.clients.peek(key)?;
            // What came meanwhile is looked at in this turn or the next.
            let quiet = !client.queued && !client.transport.readable;
            (list != Waits::Idle || quiet && client.input.is_empty()).then_some(key)
        });
        if let Some(key) = found {
            self.shed(key, want);
        }
        found.is_some()
    }

    /// What is said to a request for which there is no room; `None`: there is.
    pub(crate) fn refusal(&self, overload: bool) -> Option<Input> {
        let cause = if overload {
            Cause::Overload
        } else if self.is_out_of_memory() {
            Cause::OutOfMemory
        } else {
            return None;
        };
        Some(Input::HeadFailed(Failure::new(Phase::RequestHead, cause)))
    }
}
