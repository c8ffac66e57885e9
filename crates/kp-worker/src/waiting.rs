//! Exchanges that wait before they have an answer: for their turn at a rate limit, between two attempts, for a peer with a
//! free place, for the addresses of a name.
//!
//! Decides when a wait is over: its moment came, or somebody woke it. Does not decide what comes then: that is the
//! machine's. Who waits holds no peer and is not read, but its client is watched.
//!
//! `queue`: while every peer of a group has `max_conns` connections in use, its exchanges stand in a line of this worker,
//! first come, first served. Whoever gives a place back calls the first of the line; who leaves the line calls the next,
//! since there may be room for more than one. Places that other processes give back, and peers that rest no longer, are
//! found by looking again after a while.

use crate::active::{Active, NEVER};
use crate::reactor::Worker;
use crate::token::Key;
use kp_config::Config;
use kp_config::model::{Level, Queue, UpstreamId};
use kp_proxy::machine::Phase;
use kp_proxy::{Cause, Input, Target, WaitFor, Woken};
use kp_shm::{Counter, UpstreamCell};
use kp_upstream::{NoPeer, PeerId};
use std::collections::VecDeque;

/// How soon the first of a line looks again: a place of a shared group may be given back by another process, and that of a
/// group of this worker by the end of a peer's rest.
const LOOK_AGAIN_MS: u64 = 10;

/// What picking a peer came to.
pub(crate) enum Picked {
    /// It is booked.
    Peer(PeerId),
    /// Not before somebody gives a place back; until then at most.
    Wait(u64),
    /// There is none.
    None(Cause),
}

/// A place in a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    upstream: UpstreamId,
    until_ms: u64,
}

/// The lines of all groups.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Vec<VecDeque<Key>>,
    waiting: usize,
    /// When the first of each line looks again.
    look_ms: u64,
}

impl Lines {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            lines: config
                .http
                .upstreams
                .iter()
                .map(|_| VecDeque::new())
                .collect(),
            waiting: 0,
            look_ms: NEVER,
        }
    }

    /// When somebody has to look again.
    pub(crate) fn due_ms(&self) -> u64 {
        if self.waiting == 0 {
            NEVER
        } else {
            self.look_ms
        }
    }

    fn length(&self, upstream: UpstreamId) -> usize {
        self.lines.get(upstream.index()).map_or(0, VecDeque::len)
    }

    fn first(&self, upstream: UpstreamId) -> Option<Key> {
        self.lines.get(upstream.index())?.front().copied()
    }

    fn join(&mut self, upstream: UpstreamId, key: Key, now_ms: u64) {
        if let Some(line) = self.lines.get_mut(upstream.index()) {
            line.push_back(key);
            self.waiting += 1;
            if self.waiting == 1 {
                self.look_ms = now_ms + LOOK_AGAIN_MS;
            }
        }
    }

    fn leave(&mut self, upstream: UpstreamId, key: Key) {
        let Some(line) = self.lines.get_mut(upstream.index()) else {
            return;
        };
        if let Some(at) = line.iter().position(|waiting| *waiting == key) {
            line.remove(at);
            self.waiting -= 1;
        }
    }
}

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

    /// Picks a peer where it is the exchange's turn to have one.
    pub(crate) fn pick_in_turn(&mut self, active: &mut Active, group: UpstreamId) -> Picked {
        let Some(queue) = self.config.http.upstreams[group.index()].queue else {
            return match self.pick(active, group) {
                Ok(peer) => Picked::Peer(peer),
                Err(NoPeer::Failed | NoPeer::Full) => Picked::None(Cause::NoLivePeer),
            };
        };
        let first = self.lines.first(group);
        if first.is_some_and(|first| first != active.key) {
            return self.stand(active, group, queue);
        }
        match self.pick(active, group) {
            Ok(peer) => {
                self.leave_line(active);
                Picked::Peer(peer)
            }
            Err(NoPeer::Full) => self.stand(active, group, queue),
            Err(NoPeer::Failed) => Picked::None(Cause::NoLivePeer),
        }
    }

    /// Goes on standing in line, or joins it at its end.
    fn stand(&mut self, active: &mut Active, upstream: UpstreamId, queue: Queue) -> Picked {
        if let Some(place) = active.line {
            return Picked::Wait(place.until_ms);
        }
        if self.lines.length(upstream) >= queue.length as usize {
            return Picked::None(Cause::QueueFull);
        }
        let now_ms = self.clock.mono_ms;
        let timeout_ms = u64::try_from(queue.timeout.as_millis()).unwrap_or(NEVER);
        let until_ms = now_ms.saturating_add(timeout_ms).min(NEVER - 1);
        active.line = Some(Place { upstream, until_ms });
        self.lines.join(upstream, active.key, now_ms);
        self.show_line(upstream, self.lines.length(upstream));
        self.count_for_group(upstream, UpstreamCell::QueueWaits);
        self.counters.increment(Counter::QueueWaits);
        Picked::Wait(until_ms)
    }

    /// It stands in no line any more; the next one looks whether there is room for it, too.
    pub(crate) fn leave_line(&mut self, active: &mut Active) {
        if let Some(place) = active.line.take() {
            self.lines.leave(place.upstream, active.key);
            self.show_line(place.upstream, self.lines.length(place.upstream));
            self.call_next(place.upstream);
        }
    }

    /// A place may be free: the first of the line looks.
    pub(crate) fn call_next(&mut self, upstream: UpstreamId) {
        if let Some(first) = self.lines.first(upstream) {
            self.wake(first);
        }
    }

    /// Lets the first of every line look again, when it is time.
    pub(crate) fn look_at_lines(&mut self) {
        if self.clock.mono_ms < self.lines.due_ms() {
            return;
        }
        self.lines.look_ms = self.clock.mono_ms + LOOK_AGAIN_MS;
        for index in 0..self.config.http.upstreams.len() {
            self.call_next(UpstreamId(u32::try_from(index).unwrap_or(u32::MAX)));
        }
    }

    /// Whether an exchange that hears this goes on waiting, or from a wait to the attempt it waited for: then it keeps its
    /// place in a line and in a budget.
    pub(crate) fn keeps_places(&self, active: &Active, input: &Input) -> bool {
        match input {
            Input::Held { .. } | Input::Waited(Woken::Early) => true,
            Input::Waited(Woken::Due) => {
                active.exchange.machine.phase == Phase::Wait(WaitFor::Backoff)
            }
            _ => false,
        }
    }

    /// Shows the machine the state of its group's budget before it decides about a retry.
    pub(crate) fn show_budget(&mut self, active: &mut Active, input: &Input) {
        if let Input::UpstreamFailed(_) | Input::ResponseHead = input
            && let Some(Target::Group(group)) = active.exchange.machine.target
        {
            let own = active.charged == Some(group);
            let budget = self.groups.budget(group);
            active.exchange.machine.budget_spent =
                budget.is_some_and(|budget| !budget.has_room_beside(own));
        }
    }

    /// Books what the machine decided about a retry.
    pub(crate) fn book_retry(&mut self, active: &mut Active) {
        let machine = &mut active.exchange.machine;
        let (repeats, refused) = (
            std::mem::take(&mut machine.repeats),
            std::mem::take(&mut machine.refused),
        );
        let Some(Target::Group(group)) = machine.target else {
            return;
        };
        if repeats && let Some(budget) = self.groups.budget(group) {
            budget.begin_retry();
            active.charged = Some(group);
        }
        if refused {
            self.counters.increment(Counter::RetriesRefused);
            self.count_for_group(group, UpstreamCell::RetriesRefused);
            let told = self
                .groups
                .budget(group)
                .is_some_and(|budget| !budget.refused());
            let level = if told { Level::Info } else { Level::Warn };
            let text = "retry budget is used up, no other server is tried";
            self.log_exchange(active, level, text);
        }
    }

    /// The attempt that had a place of the budget is over.
    pub(crate) fn end_retry(&mut self, active: &mut Active) {
        if let Some(budget) = active
            .charged
            .take()
            .and_then(|group| self.groups.budget(group))
        {
            budget.end_retry();
        }
    }

    /// What it waited or tried for is over: what it holds of lines and budgets is given back.
    pub(crate) fn give_up_places(&mut self, active: &mut Active) {
        self.leave_line(active);
        self.end_retry(active);
    }
}
