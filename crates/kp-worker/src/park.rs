//! What an exchange waits for, and until when: derived from its state whenever it is parked, never set by hand.

use crate::active::{Active, Deadlines, NEVER, RequestStage, ResponseStage};
use crate::reactor::Worker;
use crate::upstream::UpstreamPhase;
use kp_proxy::{Cause, Failure, Input, Phase};

impl Worker {
    /// Works out what is awaited and until when.
    pub(crate) fn park(&mut self, active: &mut Active) {
        let now_ms = self.clock.mono_ms;
        let location = self.location(active.exchange.location);
        let after =
            |duration: std::time::Duration| now_ms.saturating_add(duration.as_millis() as u64);
        forget_past_rates(active, now_ms);
        let wants = self.wants(active);
        let deadlines = &mut active.deadlines;
        let tunnel = matches!(active.response.stage, ResponseStage::Tunnel(_));
        set(
            &mut deadlines.client_read,
            wants.client_read,
            after(location.client_body_timeout),
        );
        set(
            &mut deadlines.client_write,
            wants.client_write,
            after(location.send_timeout),
        );
        set(
            &mut deadlines.upstream_write,
            wants.upstream_write,
            after(location.proxy.send_timeout),
        );
        let patience = match (tunnel, wants.connect) {
            (true, _) => location.proxy.upgrade_timeout,
            (false, true) => location.proxy.connect_timeout,
            (false, false) => location.proxy.read_timeout,
        };
        set(
            &mut deadlines.upstream_read,
            wants.upstream_read || wants.connect || tunnel,
            after(patience),
        );
        let Deadlines {
            client_read,
            client_write,
            upstream_read,
            upstream_write,
            discard,
            rate,
            send,
            wait,
            attempt,
        } = *deadlines;
        let judged_ms = self.keep_pace(active, wants.client_read, wants.client_write);
        if let Some(client) = self.clients.peek(active.client) {
            // A file has no upstream whose timer would say when more of it may go.
            arm(
                &mut self.wheel,
                client.timer,
                client_read
                    .min(client_write)
                    .min(discard)
                    .min(rate)
                    .min(wait)
                    .min(send)
                    .min(judged_ms),
            );
        }
        if let Some(upstream) = active.upstream.and_then(|key| self.upstreams.peek(key)) {
            arm(
                &mut self.wheel,
                upstream.timer,
                upstream_read.min(upstream_write).min(rate).min(attempt),
            );
        }
        #[cfg(debug_assertions)]
        self.assert_parked(active, wants);
    }

    /// A lost wake-up shows here: an exchange that parks although something it wants is ready, or that wants something
    /// without a deadline.
    #[cfg(debug_assertions)]
    fn assert_parked(&self, active: &Active, wants: Wants) {
        let Some(client) = self.clients.peek(active.client) else {
            return;
        };
        debug_assert!(
            !active.is_waiting() || self.waits_well(active),
            "unheard: {active:?}"
        );
        let gathering = matches!(active.request.stage, RequestStage::Gathering(_));
        let client_ready = client.transport.readable || !client.input.is_empty() && !gathering;
        let (to_client, to_upstream) =
            (!active.to_client.is_empty(), !active.to_upstream.is_empty());
        let deadlines = &active.deadlines;
        debug_assert!(!(wants.client_read && client_ready), "unread: {active:?}");
        debug_assert!(
            !(to_client && client.transport.writable) || deadlines.send != NEVER,
            "unsent: {active:?}"
        );
        for (wanted, deadline_ms) in [
            (wants.client_read, deadlines.client_read),
            (wants.client_write, deadlines.client_write),
        ] {
            let armed_ms = self.wheel.deadline_ms(client.timer);
            debug_assert!(
                !wanted || armed_ms <= deadline_ms && deadline_ms != NEVER,
                "unarmed: {active:?}"
            );
        }
        let Some(upstream) = active.upstream.and_then(|key| self.upstreams.peek(key)) else {
            return;
        };
        let readable = upstream.transport.readable;
        let upstream_ready = readable || !upstream.input.is_empty();
        let unread = match active.response.stage {
            _ if upstream.phase == UpstreamPhase::Connecting => {
                upstream.transport.writable || upstream.transport.errored
            }
            _ if wants.connect => upstream.transport.readable && !upstream.transport.is_queued(),
            ResponseStage::AwaitHead => readable,
            ResponseStage::Relaying => {
                wants.upstream_read && upstream_ready && !self.is_spooling(active)
            }
            ResponseStage::Tunnel(ends) => {
                !ends.client_ended && !to_upstream && client_ready
                    || !ends.upstream_ended && !to_client && upstream_ready
            }
            _ => false,
        };
        debug_assert!(!unread, "unread: {active:?} {upstream:?}");
        let unsent = !wants.connect && to_upstream && upstream.transport.writable;
        debug_assert!(!unsent, "unsent: {active:?} {upstream:?}");
        for (wanted, deadline_ms) in [
            (
                wants.upstream_read || wants.connect,
                deadlines.upstream_read,
            ),
            (wants.upstream_write, deadlines.upstream_write),
        ] {
            let armed_ms = self.wheel.deadline_ms(upstream.timer);
            debug_assert!(
                !wanted || armed_ms <= deadline_ms && deadline_ms != NEVER,
                "unarmed: {active:?}"
            );
        }
    }

    /// What an exchange waits for, derived from its state.
    pub(crate) fn wants(&self, active: &Active) -> Wants {
        let upstream = active.upstream.and_then(|key| self.upstreams.peek(key));
        let connecting = upstream.is_some_and(|upstream| {
            matches!(
                upstream.phase,
                UpstreamPhase::Connecting | UpstreamPhase::Handshake
            )
        });
        let reading_body = match active.request.stage {
            RequestStage::Collecting => !active.request.whole && !self.spilling(active),
            RequestStage::Discarding | RequestStage::Gathering(_) => true,
            RequestStage::Streaming => self.upstream_open(active) && active.to_upstream.is_empty(),
            RequestStage::Unread | RequestStage::Replaying(_) | RequestStage::Done => false,
        };
        let relaying = matches!(active.response.stage, ResponseStage::Relaying);
        // What the upstream does not want to know any more was sent, too.
        let request_sent = active.response.write_broken.is_some()
            || active.request.stage == RequestStage::Done && active.to_upstream.is_empty();
        Wants {
            client_read: reading_body,
            client_write: !active.to_client.is_empty() && active.deadlines.send == NEVER,
            connect: connecting,
            // An upstream that answers early may leave the rest of the request unread.
            upstream_write: !connecting && !relaying && !active.to_upstream.is_empty(),
            upstream_read: match active.response.stage {
                ResponseStage::AwaitHead => !connecting && request_sent,
                ResponseStage::Relaying => {
                    active.to_client.is_empty() && active.deadlines.rate == NEVER
                }
                _ => false,
            },
        }
    }

    /// What is here already is not late, however long the loop took to look at it: its deadline starts anew.
    pub(crate) fn excuse(&self, active: &mut Active) {
        if matches!(active.response.stage, ResponseStage::Tunnel(_)) {
            return;
        }
        if let Some(client) = self.clients.peek(active.client) {
            if client.transport.readable {
                active.deadlines.client_read = NEVER;
            }
            if client.transport.writable {
                active.deadlines.client_write = NEVER;
            }
        }
        if let Some(upstream) = active.upstream.and_then(|key| self.upstreams.peek(key)) {
            let connecting = upstream.phase == UpstreamPhase::Connecting;
            if upstream.transport.readable || connecting && upstream.transport.writable {
                // A part of a head gives the rest of it no new time: what is here is looked at, and then it is judged.
                active.deadlines.upstream_read = match active.response.stage {
                    ResponseStage::AwaitHead if !connecting => self.clock.mono_ms + 1,
                    _ => NEVER,
                };
            }
            if upstream.transport.writable {
                active.deadlines.upstream_write = NEVER;
            }
        }
    }

    /// How far a connection to an upstream has come.
    fn connect_phase(&self, active: &Active) -> Phase {
        let upstream = active.upstream.and_then(|key| self.upstreams.peek(key));
        match upstream.map(|upstream| upstream.phase) {
            Some(UpstreamPhase::Handshake) => Phase::Handshake,
            _ => Phase::Connect,
        }
    }

    /// How far an attempt has come.
    fn attempt_phase(&self, active: &Active) -> Phase {
        if self.wants(active).connect {
            self.connect_phase(active)
        } else {
            Phase::AwaitHead
        }
    }

    /// The failure of a deadline that passed.
    pub(crate) fn overdue(&mut self, active: &mut Active) -> Option<Input> {
        if let Some(input) = self.too_slow(active) {
            return Some(input);
        }
        let now_ms = self.clock.mono_ms;
        if now_ms < active.deadlines.nearest_ms() {
            return None;
        }
        self.excuse(active);
        let deadlines = active.deadlines;
        if now_ms < deadlines.nearest_ms() {
            return None;
        }
        active.deadlines = Deadlines::NONE;
        if deadlines.discard <= now_ms {
            active.give_up_body();
            return None;
        }
        if deadlines.client_write <= now_ms {
            // Who took nothing for so long gets nothing more; waiting for this to leave would be waiting for ever.
            active.to_client.clear(&mut self.buffers);
            return Some(Input::ClientFailed(Failure::new(
                Phase::SendResponse,
                Cause::ClientSendTimeout,
            )));
        }
        if deadlines.client_read <= now_ms {
            if active.request.stage == RequestStage::Discarding {
                active.give_up_body();
                return None;
            }
            active.request.stage = RequestStage::Done;
            return Some(Input::ClientFailed(Failure::new(
                Phase::RequestBody,
                Cause::ClientBodyTimeout,
            )));
        }
        let (phase, cause) = if matches!(active.response.stage, ResponseStage::Tunnel(_)) {
            (Phase::Tunnel, Cause::TunnelTimeout)
        } else if deadlines.attempt <= now_ms {
            (self.attempt_phase(active), Cause::TryTimeout)
        } else if deadlines.upstream_write <= now_ms {
            (Phase::SendRequest, Cause::SendTimeout)
        } else if self.wants(active).connect {
            (self.connect_phase(active), Cause::ConnectTimeout)
        } else if matches!(active.response.stage, ResponseStage::AwaitHead) {
            (Phase::AwaitHead, Cause::UpstreamTimeout)
        } else {
            (Phase::ReadBody, Cause::BodyTimeout)
        };
        Some(Input::UpstreamFailed(Failure::new(phase, cause)))
    }
}

/// What an exchange waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) client_read: bool,
    client_write: bool,
    pub(crate) connect: bool,
    pub(crate) upstream_write: bool,
    upstream_read: bool,
}

/// A deadline that is wanted and not set starts now; one that is not wanted ends.
fn set(deadline: &mut u64, wanted: bool, then: u64) {
    *deadline = match (wanted, *deadline) {
        (false, _) => NEVER,
        (true, NEVER) => then,
        (true, running) => running,
    };
}

/// Moments of rates that are here, or that nothing waits for any more.
fn forget_past_rates(active: &mut Active, now_ms: u64) {
    if active.to_client.is_empty() || active.deadlines.send <= now_ms {
        active.deadlines.send = NEVER;
    }
    if active.deadlines.rate <= now_ms {
        active.deadlines.rate = NEVER;
    }
}

fn arm(wheel: &mut crate::wheel::Wheel, timer: crate::wheel::TimerId, deadline_ms: u64) {
    if deadline_ms == NEVER {
        wheel.disarm(timer);
    } else {
        wheel.arm(timer, deadline_ms);
    }
}
