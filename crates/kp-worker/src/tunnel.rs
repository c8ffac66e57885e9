//! Tunnels: after a 101, bytes go both ways as they come, and each side's end is passed on by itself.

use crate::active::{Active, NEVER, READ_MAX, ResponseStage, Tunnel};
use crate::drive::Turn;
use crate::reactor::Worker;
use crate::transport::Received;
use kp_shm::Counter;

impl Worker {
    /// Moves a tunnel one step in both directions.
    pub(crate) fn tunnel(&mut self, active: &mut Active) -> Turn {
        let ResponseStage::Tunnel(mut ends) = active.response.stage else {
            return Turn::Nothing;
        };
        let mut moved = self.tunnel_up(active, &mut ends);
        moved |= self.tunnel_down(active, &mut ends);
        moved |= self.pass_ends(active, &mut ends);
        active.response.stage = ResponseStage::Tunnel(ends);
        let broken = active.response.write_broken.is_some();
        let cut = ends.cut && active.to_client.is_empty() && active.to_upstream.is_empty();
        if ends.upstream_ended && active.to_client.is_empty() && (ends.client_ended || broken)
            || ends.client_ended && broken
            || cut
        {
            self.close_tunnel(active);
            return Turn::Moved;
        }
        if moved {
            active.deadlines.upstream_read = NEVER;
            return Turn::Moved;
        }
        Turn::Nothing
    }

    /// Both sides ended.
    fn close_tunnel(&mut self, active: &mut Active) {
        active.to_upstream.clear(&mut self.buffers);
        self.consult(active, |exchange, _, context| exchange.end_attempt(context));
        self.drop_upstream(active);
        active.response.stage = ResponseStage::Complete;
    }

    fn tunnel_up(&mut self, active: &mut Active, ends: &mut Tunnel) -> bool {
        if ends.client_ended || !active.to_upstream.is_empty() {
            return false;
        }
        let Some(client) = self.clients.at(active.client) else {
            return false;
        };
        if !client.input.is_empty() {
            let mut held = std::mem::take(&mut client.input);
            self.push_upstream(active, &[&held]);
            self.buffers.give(&mut held);
            return true;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let moved = match client
            .transport
            .receive(&mut scratch, READ_MAX, &mut self.buffers)
        {
            Received::Bytes(count) => {
                self.counters.add(Counter::ClientBytesIn, count as u64);
                self.push_upstream(active, &[&scratch]);
                true
            }
            Received::Nothing => false,
            Received::End => {
                ends.client_ended = true;
                true
            }
            Received::Cut => {
                (ends.client_ended, ends.cut) = (true, true);
                if let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key)) {
                    upstream.transport.break_off();
                }
                true
            }
            Received::Broken(errno) => {
                // A reset is no half-close: the other direction leads nowhere either.
                ends.client_ended = true;
                active.response.write_broken = Some(errno);
                true
            }
        };
        self.scratch = scratch;
        moved
    }

    fn tunnel_down(&mut self, active: &mut Active, ends: &mut Tunnel) -> bool {
        if ends.upstream_ended || !active.to_client.is_empty() {
            return false;
        }
        let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key)) else {
            return false;
        };
        if !upstream.input.is_empty() {
            let mut held = std::mem::take(&mut upstream.input);
            self.push_client(active, &[&held]);
            self.buffers.give(&mut held);
            return true;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let moved = match upstream
            .transport
            .receive(&mut scratch, READ_MAX, &mut self.buffers)
        {
            Received::Bytes(count) => {
                self.note_received(active, count);
                if let Some(attempt) = active.exchange.attempts.last_mut() {
                    attempt.response_length += count as u64;
                }
                self.push_client(active, &[&scratch]);
                true
            }
            Received::Nothing => false,
            Received::End => {
                ends.upstream_ended = true;
                true
            }
            Received::Cut => {
                (ends.upstream_ended, ends.cut) = (true, true);
                if let Some(client) = self.clients.at(active.client) {
                    client.transport.break_off();
                }
                true
            }
            Received::Broken(errno) => {
                ends.upstream_ended = true;
                active.response.write_broken = Some(errno);
                true
            }
        };
        self.scratch = scratch;
        moved
    }

    /// Passes an end on once everything before it was sent.
    fn pass_ends(&mut self, active: &mut Active, ends: &mut Tunnel) -> bool {
        let mut moved = false;
        if ends.client_ended && !ends.cut && !ends.upstream_shut && active.to_upstream.is_empty() {
            ends.upstream_shut = true;
            moved = true;
            if let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key)) {
                // A connection that is already gone has nothing left to end.
                upstream.transport.end(&mut self.buffers);
            }
        }
        if ends.upstream_ended && !ends.cut && !ends.client_shut && active.to_client.is_empty() {
            ends.client_shut = true;
            moved = true;
            if let Some(client) = self.clients.at(active.client) {
                client.transport.end(&mut self.buffers);
            }
        }
        moved
    }
}
