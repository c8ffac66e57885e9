//! What is counted by virtual host, upstream group and peer, where `metrics` is on, and how the event loop spends its time.
//!
//! A request is counted when its log line is written, with the same numbers. Attempts are counted by kp-upstream as they
//! end; what only the worker sees of peers (connections, the pool) is counted here.

use crate::active::Active;
use crate::reactor::Worker;
use crate::token::Key;
use kp_config::Config;
use kp_config::model::UpstreamId;
use kp_proxy::{Cause, Failure, Phase, Side, Target};
use kp_shm::{
    Counter, Entry, Histogram, PeerCell, Row, SeriesKind, SeriesRow, ServerCell, Shm, UpstreamCell,
};
use kp_upstream::PeerId;

/// The series of all virtual hosts, in their order; none where `metrics` is off.
pub(crate) fn servers(config: &Config, shm: &Shm, process: Row) -> Vec<SeriesRow> {
    if !config.http.metrics {
        return Vec::new();
    }
    let servers = config.http.servers.iter();
    let claim = |name: &str| {
        let name = if name.is_empty() { "_" } else { name };
        let label = name.to_ascii_lowercase();
        shm.series().claim(SeriesKind::Server, &[&label], process)
    };
    servers.map(|server| claim(&server.primary_name)).collect()
}

impl Worker {
    /// The series of the virtual host of an exchange. One whose request never reached a host is its listener's default.
    pub(crate) fn server_series(&self, active: &Active) -> Option<&SeriesRow> {
        self.servers.get(active.exchange.server.index())
    }

    /// A request is over.
    pub(crate) fn measure_request(&self, active: &Active) {
        let Some(series) = self.server_series(active) else {
            return;
        };
        let class = match active.exchange.response.status {
            100..=199 => ServerCell::Requests1xx,
            200..=299 => ServerCell::Requests2xx,
            300..=399 => ServerCell::Requests3xx,
            400..=499 => ServerCell::Requests4xx,
            _ => ServerCell::Requests5xx,
        };
        let record = &active.exchange.record;
        let total_ms = self.clock.mono_ms.saturating_sub(record.started_ms);
        series.increment(class);
        series.add(ServerCell::BytesIn, record.request_length);
        series.add(ServerCell::BytesOut, record.bytes_sent);
        // How long a tunnel was used says nothing about how fast kp answers.
        if active.exchange.response.status != 101 {
            series.observe_ms(Histogram::Total, total_ms);
        }
    }

    /// Adds one to a counter of a group.
    pub(crate) fn count_for_group(&self, upstream: UpstreamId, cell: UpstreamCell) {
        if let Some(series) = self.groups.group_series(upstream) {
            series.increment(cell);
        }
    }

    /// Adds one to a counter of a peer.
    pub(crate) fn count_for_peer(&self, peer: Option<PeerId>, cell: PeerCell) {
        if let Some(series) = peer.and_then(|peer| self.groups.series(peer)) {
            series.increment(cell);
        }
    }

    /// A failure that was just reported, as far as it is the group's or a peer's; its upstream is not dropped yet.
    pub(crate) fn measure_failure(&self, active: &Active, failure: &Failure) {
        // An idle connection that was closed says nothing about its peer.
        if failure.side() == Side::Upstream
            && failure.cause != Cause::StaleConnection
            && let Some(series) = active.peer.and_then(|peer| self.groups.series(peer))
        {
            series.note_failure(failure.reason().index(), self.clock.unix_ms);
        }
        let cell = match failure.cause {
            Cause::NoLivePeer => UpstreamCell::NoLivePeer,
            Cause::QueueFull => UpstreamCell::QueueOverflows,
            Cause::QueueTimeout => UpstreamCell::QueueTimeouts,
            Cause::StaleConnection => {
                let upstream = active.upstream.and_then(|key| self.upstreams.peek(key));
                let peer = upstream.and_then(|upstream| upstream.peer);
                return self.count_for_peer(peer, PeerCell::StaleReuses);
            }
            _ => return,
        };
        if let Some(Target::Group(group)) = active.exchange.machine.target {
            self.count_for_group(group, cell);
        }
    }

    /// Counts the reason of an exchange that is over, and shows it among the last ones. What the configuration asks for is
    /// only counted: nobody looks for it there.
    pub(crate) fn measure_reason(&self, active: &Active) {
        let record = &active.exchange.record;
        let Some(reason) = record.reason else {
            return;
        };
        self.counters.count_reason(reason.index());
        if !reason.is_failure() {
            return;
        }
        let about = record.circumstances;
        let entry = Entry {
            unix_ms: self.clock.unix_ms,
            reason: reason.index(),
            phase: about.phase.map_or(0, Phase::index),
            closed_by: about.closed_by.map_or(0, Side::number),
            status: active.exchange.response.status,
            attempt: u16::try_from(about.attempt).unwrap_or(u16::MAX),
            server: self.server_series(active).map(SeriesRow::index),
            peer: self.attempted(active, about.attempt).map(SeriesRow::index),
            serial: active.exchange.connection.serial,
            pid: self.pid,
        };
        self.shm.recent().push(self.row, &entry);
    }

    /// The series of the peer that an attempt was made at, which is counted from 1; the group's where there was nobody to
    /// ask. Others may have been asked since: an error page can be an upstream's.
    fn attempted(&self, active: &Active, number: u32) -> Option<&SeriesRow> {
        let attempts = &active.exchange.attempts;
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        let attempt = attempts.get(at)?;
        let peer = if at + 1 == attempts.len() {
            active.peer
        } else {
            let mut peers = self.groups.peers(attempt.upstream);
            peers.find(|peer| self.groups.name(*peer) == attempt.address)
        };
        match peer {
            Some(peer) => self.groups.series(peer),
            None => self.groups.group_series(attempt.upstream),
        }
    }

    /// A connection waits in the pool now.
    pub(crate) fn note_pooled(&self, peer: PeerId) {
        self.counters.increment(Counter::UpstreamConnectionsIdle);
        self.count_for_peer(Some(peer), PeerCell::Idle);
    }

    /// An attempt takes a connection from the pool.
    pub(crate) fn note_reused(&self, peer: PeerId) {
        self.counters.increment(Counter::UpstreamReuses);
        self.counters.decrement(Counter::UpstreamConnectionsIdle);
        if let Some(series) = self.groups.series(peer) {
            series.increment(PeerCell::Reuses);
            series.decrement(PeerCell::Idle);
        }
    }

    /// A connection left the pool to be closed.
    pub(crate) fn note_unpooled(&self, key: Key) {
        self.counters.decrement(Counter::UpstreamConnectionsIdle);
        let peer = self.upstreams.peek(key).and_then(|upstream| upstream.peer);
        if let Some(series) = peer.and_then(|peer| self.groups.series(peer)) {
            series.decrement(PeerCell::Idle);
        }
    }

    /// The line of a group has another length.
    pub(crate) fn show_line(&self, upstream: UpstreamId, length: usize) {
        if let Some(series) = self.groups.group_series(upstream) {
            series.set(UpstreamCell::QueueLength, length as u64);
        }
    }

    /// The end of a turn of the loop: what is held, and how long the turn took since `clock.mono_us`.
    pub(crate) fn end_turn(&mut self) {
        self.counters
            .set(Counter::BuffersInUse, self.memory.exchanges());
        self.counters
            .set(Counter::BuffersFree, self.buffers.free_bytes());
        let open = self.connections() + self.listeners.len();
        self.counters.set(Counter::DescriptorsOpen, open as u64);
        self.groups.show(self.clock.mono_ms);
        self.look_for_overdue();
        self.counters.increment(Counter::LoopTurns);
        let now_us = kp_sys::clock::monotonic_us();
        let busy_us = now_us.saturating_sub(self.clock.mono_us);
        self.counters.observe_turn(busy_us);
        self.counters.raise(Counter::LoopDelayPeak, busy_us / 1000);
        self.counters.run(Counter::LoopWaiting, now_us);
    }

    /// The loop waited for events until now.
    pub(crate) fn begin_turn(&self) {
        let board = self.shm.scoreboard();
        board.turn(self.row, self.clock.mono_ms);
        self.counters.stop(Counter::LoopWaiting, self.clock.mono_us);
    }
}
