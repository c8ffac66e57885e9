//! The memory of a worker as one sum, held against `worker_memory`.
//!
//! What an exchange holds is weighed whenever it is parked, never booked piece by piece, so that the sum cannot drift: its
//! heads, bodies and buffers, those of its two connections, and what the kernel holds for their sockets where bytes wait
//! there. Whatever is the same for every connection is multiplied. docs/resilience.md has the sum with a reason for each
//! term.
//!
//! Decides when requests are refused, when an answer may be held for a slow client and how much may wait in the kernel,
//! and when memory goes back to the system. Does not count what a worker is born with.

use crate::active::{Active, Collected, READ_MIN, ResponseStage};
use crate::buffers::BUFFER_BYTES;
use crate::reactor::Worker;
use crate::transport::Transport;
use kp_shm::Counter;

/// A connection without anything on its way: its slot and timer here; in the kernel the socket, its file and its place in
/// epoll.
const CONNECTION_BYTES: u64 = 4 * 1024;
/// The keys, transcript and buffers of a TLS session.
const TLS_BYTES: u64 = 12 * 1024;
/// An exchange beside its buffers: the machine, what was parsed, attempts, names.
const EXCHANGE_BYTES: u64 = size_of::<Active>() as u64 + 2 * 1024;
/// The longest answer that is held for a slow client: pages and pictures are shorter, and what is longer is better read
/// from its upstream as the client takes it.
const HOLD_MAX: u64 = 1 << 20;
/// One answer may take so much of what is left for holding, so that the last ones do not take it all.
const HOLD_PART: u64 = 8;
/// TCP_NOTSENT_LOWAT of a client that does not keep up, by how much of the budget is used: below a half (as the listening
/// socket has it), below three quarters, above.
const NOTSENT_LOWAT: [u32; 3] = [128 * 1024, 32 * 1024, 8 * 1024];
/// SO_RCVBUF of a client or upstream whose bytes wait, likewise; with 0 the kernel decides, which lets a fast one have
/// megabytes.
const RECEIVE_BUFFER: [usize; 3] = [0, 128 * 1024, 32 * 1024];
/// Memory goes back to the system when so much of it has become free,
const TRIM_BYTES: u64 = 32 << 20;
/// and not more often, since it is gone through then.
const TRIM_MS: u64 = 1000;
/// Buffers that stay in the pool then.
const TRIM_KEEP: usize = 256;

/// What an exchange weighs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    bytes: u64,
    /// Of these, what was taken from the upstream ahead of the client.
    held: u64,
}

/// The account of a worker.
#[derive(Debug)]
pub(crate) struct Memory {
    budget: u64,
    exchanges: Weight,
    /// Connections that speak TLS.
    pub(crate) tls_connections: u64,
    /// How much of the budget is used: an index of [`NOTSENT_LOWAT`].
    level: usize,
    /// The most since memory was last given back.
    peak: u64,
    trim_again_ms: u64,
    due_ms: u64,
}

impl Memory {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            budget,
            exchanges: Weight::default(),
            tls_connections: 0,
            level: 0,
            peak: 0,
            trim_again_ms: 0,
            due_ms: u64::MAX,
        }
    }

    /// Takes what an exchange weighs now in place of what it weighed.
    fn weigh(&mut self, before: Weight, now: Weight) {
        let sum = &mut self.exchanges;
        sum.bytes = (sum.bytes + now.bytes).saturating_sub(before.bytes);
        sum.held = (sum.held + now.held).saturating_sub(before.held);
    }

    /// An exchange is over.
    pub(crate) fn forget(&mut self, active: &mut Active) {
        self.weigh(std::mem::take(&mut active.weight), Weight::default());
    }

    /// Whether a request is refused: an eighth is left to those that are being served.
    fn is_gone(&self, used: u64) -> bool {
        used >= self.budget - self.budget / 8
    }

    /// The longest answer that may be held now.
    fn hold_max(&self, used: u64) -> u64 {
        let share = self.budget / 4 * 3;
        HOLD_MAX.min(share.saturating_sub(used) / HOLD_PART)
    }

    /// Whether reads are kept short.
    pub(crate) fn is_tight(&self) -> bool {
        self.level == NOTSENT_LOWAT.len() - 1
    }

    /// How much may wait in the kernel for a socket.
    pub(crate) fn notsent_lowat(&self) -> u32 {
        NOTSENT_LOWAT
            .get(self.level)
            .copied()
            .unwrap_or(NOTSENT_LOWAT[0])
    }

    /// How much may be received ahead; 0: as the kernel likes.
    pub(crate) fn receive_buffer(&self) -> usize {
        RECEIVE_BUFFER.get(self.level).copied().unwrap_or(0)
    }

    /// How much is used, in steps; 0 where nothing has to be done about it.
    pub(crate) fn level(&self) -> u8 {
        self.level as u8
    }

    /// What all exchanges weigh.
    pub(crate) fn exchanges(&self) -> u64 {
        self.exchanges.bytes
    }

    /// When [`Worker::settle_memory`] has something to do.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Takes note of the sum; whether memory is to be given back.
    fn note(&mut self, used: u64, now_ms: u64) -> bool {
        self.level = match used {
            used if used < self.budget / 2 => 0,
            used if used < self.budget / 4 * 3 => 1,
            _ => 2,
        };
        self.peak = self.peak.max(used);
        if self.peak - used < TRIM_BYTES.min(self.budget / 8) {
            self.due_ms = u64::MAX;
            return false;
        }
        if now_ms < self.trim_again_ms {
            self.due_ms = self.trim_again_ms;
            return false;
        }
        self.peak = used;
        self.trim_again_ms = now_ms + TRIM_MS;
        self.due_ms = u64::MAX;
        true
    }
}

impl Worker {
    /// What connections take that do nothing.
    fn connections_used(&self) -> u64 {
        self.connections() as u64 * CONNECTION_BYTES
            + self.memory.tls_connections * TLS_BYTES
            + self.buffers.kept_bytes()
    }

    /// The sum.
    fn memory_used(&self) -> u64 {
        self.connections_used()
            + self.memory.exchanges.bytes
            + self.buffers.free_bytes()
            + self.spare.len() as u64 * EXCHANGE_BYTES
    }

    /// Whether half of the budget is used by connections, whatever they do.
    pub(crate) fn is_crowded(&self) -> bool {
        self.connections_used() >= self.memory.budget / 2
    }

    /// Whether what is left to running requests is used as well.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.memory_used() >= self.memory.budget
    }

    /// Whether there is no memory for another request.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.memory.is_gone(self.memory_used())
    }

    /// Whether more of an answer may be taken from its upstream although the client has no room: if all of it fits, as
    /// far as is known, so that the upstream is free.
    pub(crate) fn may_hold(&self, active: &Active, waiting: usize) -> bool {
        let most = self.memory.hold_max(self.memory_used());
        let length = match active.response.length {
            Some(length) => length,
            None => (active.to_client.len() + waiting) as u64 + READ_MIN as u64,
        };
        length <= most
    }

    /// Shows the sum, and gives memory back after a burst.
    pub(crate) fn settle_memory(&mut self) {
        if self.is_out_of_memory() {
            self.relieve();
        }
        let used = self.memory_used();
        self.counters.set(Counter::MemoryInUse, used);
        self.counters
            .set(Counter::MemoryHeld, self.memory.exchanges.held);
        if self.memory.note(used, self.clock.mono_ms) {
            self.buffers.shrink(TRIM_KEEP);
            kp_sys::memory::trim();
        }
    }

    /// Weighs an exchange that is about to be parked.
    pub(crate) fn weigh(&mut self, active: &mut Active) {
        let now = self.weight_of(active);
        self.memory.weigh(active.weight, now);
        active.weight = now;
        if self.memory.level > 0 {
            self.tighten(active);
        }
    }

    /// Less waits in the kernel for a client that does not keep up, and from one that is faster than its upstream.
    fn tighten(&mut self, active: &Active) {
        let level = self.memory.level;
        let lowat = self.memory.notsent_lowat();
        let Some(client) = self.clients.at(active.client) else {
            return;
        };
        // Neither has an effect on unix sockets that matters.
        let fd = &client.transport.fd;
        if !active.to_client.is_empty() && client.lowat < level as u8 {
            client.lowat = level as u8;
            let _ = kp_sys::socket::set_notsent_lowat(fd, lowat);
        }
        let stalled = !active.to_client.is_empty();
        if client.transport.readable && client.narrow < level as u8 {
            client.narrow = level as u8;
            let _ = kp_sys::socket::set_receive_buffer(fd, self.memory.receive_buffer());
        }
        let upstream = active.upstream.and_then(|key| self.upstreams.at(key));
        if let Some(upstream) = upstream.filter(|one| stalled && one.transport.readable)
            && upstream.narrow < level as u8
        {
            upstream.narrow = level as u8;
            let fd = &upstream.transport.fd;
            let _ = kp_sys::socket::set_receive_buffer(fd, self.memory.receive_buffer());
        }
    }

    fn weight_of(&self, active: &Active) -> Weight {
        let spooled = active.spool.as_ref().map_or(0, crate::spool::Spool::bytes);
        let collected = match &active.request.collected {
            Collected::None => 0,
            Collected::Memory(body) => body.capacity(),
            Collected::File(spill) => spill.bytes(),
        };
        let page = match &active.response.stage {
            ResponseStage::Page(page) => page.bytes(),
            _ => 0,
        };
        let mut bytes = EXCHANGE_BYTES
            + (active.exchange.bytes()
                + active.to_client.bytes()
                + active.to_upstream.bytes()
                + collected
                + page
                + spooled) as u64;
        if let Some(client) = self.clients.peek(active.client) {
            let pending = !active.to_client.is_empty();
            bytes += client.input.capacity() as u64 + side(&client.transport, pending);
        }
        if let Some(upstream) = active.upstream.and_then(|key| self.upstreams.peek(key)) {
            let pending = !active.to_upstream.is_empty();
            bytes += upstream.input.capacity() as u64 + side(&upstream.transport, pending);
        }
        Weight {
            bytes,
            held: (spooled + active.to_client.len().saturating_sub(BUFFER_BYTES)) as u64,
        }
    }
}

/// What waits at a socket: ciphertext here, and in the kernel what it says itself. It is asked only where bytes are known to
/// wait, which is not so with a client and an upstream that keep up.
fn side(transport: &Transport, pending: bool) -> u64 {
    let sealed = transport.held() as u64;
    if !pending && !transport.readable {
        return sealed;
    }
    let Ok(kernel) = kp_sys::socket::memory(&transport.fd) else {
        return sealed;
    };
    // While nobody reads, what comes may fill all the kernel lets it.
    let read = if transport.readable {
        kernel.read_limit.max(kernel.read)
    } else {
        kernel.read
    };
    sealed + u64::from(read) + u64::from(kernel.written)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn weight(bytes: u64) -> Weight {
        Weight { bytes, held: 0 }
    }

    #[test]
    fn the_sum_follows_what_is_weighed() {
        let mut memory = Memory::new(64 * MIB);
        memory.weigh(Weight::default(), weight(10));
        memory.weigh(Weight::default(), weight(7));
        memory.weigh(weight(10), weight(3));
        assert_eq!(memory.exchanges, weight(10));
        memory.weigh(weight(3), Weight::default());
        memory.weigh(weight(7), Weight::default());
        assert_eq!(memory.exchanges, Weight::default());
    }

    #[test]
    fn less_is_held_the_more_is_used_and_the_last_eighth_is_for_running_requests() {
        let memory = Memory::new(64 * MIB);
        assert_eq!(memory.hold_max(0), HOLD_MAX);
        assert_eq!(memory.hold_max(44 * MIB), MIB / 2);
        assert_eq!(memory.hold_max(60 * MIB), 0);
        assert!(!memory.is_gone(55 * MIB));
        assert!(memory.is_gone(56 * MIB));
    }

    #[test]
    fn memory_goes_back_after_a_burst_and_not_too_often() {
        let mut memory = Memory::new(512 * MIB);
        assert!(!memory.note(100 * MIB, 10));
        assert!(!memory.note(80 * MIB, 20));
        assert!(memory.note(60 * MIB, 30), "40 MiB became free");
        assert!(!memory.note(60 * MIB, 40));
        assert_eq!(memory.due_ms(), u64::MAX);
        assert!(!memory.note(20 * MIB, 50), "too soon");
        assert_eq!(memory.due_ms(), 30 + TRIM_MS);
        assert!(memory.note(20 * MIB, 30 + TRIM_MS));
    }

    #[test]
    fn the_kernel_holds_less_as_the_budget_fills() {
        let mut memory = Memory::new(64 * MIB);
        let mut level = |used| {
            memory.note(used, 0);
            memory.level
        };
        assert_eq!([level(MIB), level(33 * MIB), level(50 * MIB)], [0, 1, 2]);
        assert!(NOTSENT_LOWAT.windows(2).all(|pair| pair[0] > pair[1]));
    }
}
