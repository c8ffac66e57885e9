//! Counters and gauges: one block of cells per process row.
//!
//! A block has a single writer, so an event is a load and a store; the reader sums over all rows. The next owner of a
//! row continues its numbers, so a sum never goes back; only gauges are zeroed when a process is reaped.

use crate::scoreboard::{Row, Scoreboard};
use kp_sys::clock::monotonic_us;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Cells per block: a whole number of cache lines, so that two processes never write the same line. The table first, then
/// the times of turns, then the reasons.
const WIDTH: usize = TURNS_AT + 16 + REASONS;
const TURNS_AT: usize = 112;
const REASONS_AT: usize = TURNS_AT + 16;
/// How many reasons there can be.
pub const REASONS: usize = 128;
/// Upper ends of the buckets of turns of the event loop but the last, in microseconds; each belongs to its bucket.
pub const TURN_BOUNDS_US: [u64; 13] = [
    20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 500_000,
];
/// Buckets of turns, the last one without an end.
pub const TURN_BUCKETS: usize = TURN_BOUNDS_US.len() + 1;
const _: () = assert!(TURN_BUCKETS <= REASONS_AT - TURNS_AT);

/// How a value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; the total is the sum over all processes that ever ran.
    Counter,
    /// What is held now; the total is the sum over the living.
    Gauge,
    /// The largest value seen; the total is the maximum over the living.
    Peak,
    /// Microseconds that only grow, by themselves while they run; the total is the sum over all processes that ever ran.
    Stopwatch,
}

macro_rules! counters {
    ($($name:ident, $kind:ident, $text:literal, $unit:literal, $help:literal;)*) => {
        /// Everything that is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter {
            $(#[doc = $help] $name,)*
        }

        impl Counter {
            /// All, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Name as in metrics, without a prefix.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What one unit is.
            pub fn unit(self) -> &'static str {
                match self { $(Self::$name => $unit,)* }
            }

            /// One sentence.
            pub fn help(self) -> &'static str {
                match self { $(Self::$name => $help,)* }
            }

            /// How it is read.
            pub fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind,)* }
            }
        }
    };
}

counters! {
    ConnectionsAccepted, Counter, "connections_accepted", "connections", "Client connections accepted, those refused at once included, those that limit_accept closed not.";
    ConnectionsRefused, Counter, "connections_refused", "connections", "Client connections answered with 503 or closed because no connection slot or descriptor was left.";
    ConnectionsActive, Gauge, "connections_active", "connections", "Client connections open now, idle ones included.";
    ConnectionsIdle, Gauge, "connections_idle", "connections", "Client connections kept alive and waiting for a request, or for the rest of its head.";
    ConnectionsHandshaking, Gauge, "connections_handshaking", "connections", "Client connections whose PROXY header or TLS handshake is not over.";
    ConnectionsReading, Gauge, "connections_reading", "connections", "Client connections of whose request head a part is here.";
    ConnectionsClosing, Gauge, "connections_closing", "connections", "Client connections whose last answer is out and that are still read from (lingering_close).";
    ConnectionsShed, Counter, "connections_shed", "connections", "Connections closed to make room for others: idle ones, and those that had waited longest for a request head.";
    RequestsRefusedMemory, Counter, "requests_refused_memory", "requests", "Requests answered with 503 because worker_memory was used up.";
    MemoryInUse, Gauge, "memory_in_use_bytes", "bytes", "Memory as worker_memory counts it: connections, buffers, bodies, and an estimate of the kernel's part.";
    MemoryHeld, Gauge, "memory_held_bytes", "bytes", "Part of kp_memory_in_use_bytes: answers that were taken from their upstreams and wait for slow clients.";
    Requests, Counter, "requests", "requests", "Request heads received whole, or rejected.";
    RequestsActive, Gauge, "requests_active", "requests", "Requests being worked on now.";
    Responses1xx, Counter, "responses_1xx", "responses", "Responses with an informational status, switched protocols included.";
    Responses2xx, Counter, "responses_2xx", "responses", "Responses with a successful status.";
    Responses3xx, Counter, "responses_3xx", "responses", "Responses with a redirection status.";
    Responses4xx, Counter, "responses_4xx", "responses", "Responses with a client error status, 499 included.";
    Responses5xx, Counter, "responses_5xx", "responses", "Responses with a server error status.";
    ClientBytesIn, Counter, "client_received_bytes", "bytes", "Bytes read from clients: what TLS carries, not TLS itself.";
    ClientBytesOut, Counter, "client_sent_bytes", "bytes", "Bytes written to clients: what TLS carries, not TLS itself.";
    UpstreamBytesIn, Counter, "upstream_received_bytes", "bytes", "Bytes read from upstreams: what TLS carries, not TLS itself, and no health checks.";
    UpstreamBytesOut, Counter, "upstream_sent_bytes", "bytes", "Bytes written to upstreams: what TLS carries, not TLS itself, and no health checks.";
    UpstreamConnects, Counter, "upstream_connects", "connections", "Connections to peers begun, but for health checks.";
    UpstreamConnectFailures, Counter, "upstream_connect_failures", "connections", "Connections to peers that did not open, in time or at all; failed TLS handshakes included.";
    UpstreamConnectionsActive, Gauge, "upstream_connections_active", "connections", "Connections to peers open now, idle ones included, those of health checks not.";
    UpstreamConnectionsIdle, Gauge, "upstream_connections_idle", "connections", "Connections to peers that wait in the keep-alive pool.";
    UpstreamReuses, Counter, "upstream_reuses", "connections", "Attempts that took a connection from the keep-alive pool.";
    UpstreamStaleReuses, Counter, "upstream_stale_reuses", "connections", "Pooled connections that the peer had closed before it answered anything.";
    UpstreamRetries, Counter, "upstream_retries", "attempts", "Attempts after one that failed, at the same or another peer; one after a connection of the pool that had been closed is none.";
    RetriesRefused, Counter, "retries_refused", "requests", "Retries that were not made because the group's retry_budget was used up.";
    QueueWaits, Counter, "queue_waits", "requests", "Requests that waited for a peer with a free place.";
    QueueOverflows, Counter, "queue_overflows", "requests", "Requests refused because as many as queue allows were waiting.";
    QueueTimeouts, Counter, "queue_timeouts", "requests", "Requests that waited for a free place longer than queue allows.";
    TimeoutsTry, Counter, "timeouts_try", "timeouts", "proxy_try_timeout passed before a response head came.";
    UpstreamNoLivePeers, Counter, "upstream_no_live_peers", "requests", "How often a request found no live peer in its group.";
    UpstreamPeersDisabled, Counter, "upstream_peers_disabled", "events", "Failures after which a peer was left alone for its fail_timeout.";
    UpstreamPeersEjected, Counter, "upstream_peers_ejected", "events", "Ejections of peers by outlier_detection.";
    UpstreamPeersReturned, Counter, "upstream_peers_returned", "events", "Ends of ejections of peers by outlier_detection.";
    UpstreamTruncated, Counter, "upstream_truncated", "responses", "Responses that the upstream ended before their end.";
    TimeoutsClientHeader, Counter, "timeouts_client_header", "timeouts", "client_header_timeout passed before a head was whole.";
    TimeoutsClientBody, Counter, "timeouts_client_body", "timeouts", "client_body_timeout passed between two reads of a request body.";
    TimeoutsClientSend, Counter, "timeouts_client_send", "timeouts", "send_timeout passed between two writes to a client.";
    ClientsTooSlow, Counter, "clients_too_slow", "requests", "Requests ended because their client sent or took less than client_min_rate or send_min_rate.";
    TimeoutsClientIdle, Counter, "timeouts_client_idle", "timeouts", "keepalive_timeout passed without a further request.";
    TimeoutsUpstreamConnect, Counter, "timeouts_upstream_connect", "timeouts", "proxy_connect_timeout passed before a connection was open.";
    TimeoutsUpstreamSend, Counter, "timeouts_upstream_send", "timeouts", "proxy_send_timeout passed between two writes to an upstream.";
    TimeoutsUpstreamRead, Counter, "timeouts_upstream_read", "timeouts", "proxy_read_timeout passed between two reads from an upstream.";
    TimeoutsTunnel, Counter, "timeouts_tunnel", "timeouts", "proxy_upgrade_timeout passed without a byte in a tunnel.";
    ClientAborts, Counter, "client_aborts", "requests", "Requests whose client went away before the response was complete.";
    BadRequestLines, Counter, "bad_request_lines", "requests", "Requests rejected for their request line.";
    BadRequestFields, Counter, "bad_request_fields", "requests", "Requests rejected for a malformed header field.";
    BadRequestFraming, Counter, "bad_request_framing", "requests", "Requests rejected for ambiguous or malformed body framing.";
    RequestsTooLarge, Counter, "requests_too_large", "requests", "Requests rejected because target, head or body was over its limit.";
    BadResponseHeads, Counter, "bad_response_heads", "responses", "Upstream responses rejected for a malformed, ambiguous or oversized head.";
    DnsQueries, Counter, "dns_queries", "queries", "Queries sent to name servers, repeated ones included.";
    DnsAnswers, Counter, "dns_answers", "lookups", "Lookups of names that found addresses.";
    DnsFailures, Counter, "dns_failures", "lookups", "Lookups of names that found none: no such name, no answer, no server that could.";
    TunnelsOpened, Counter, "tunnels_opened", "tunnels", "Connections switched to another protocol.";
    TunnelsActive, Gauge, "tunnels_active", "tunnels", "Tunnels open now.";
    TlsHandshakes, Counter, "tls_handshakes", "handshakes", "TLS handshakes with clients that were completed.";
    TlsHandshakesResumed, Counter, "tls_handshakes_resumed", "handshakes", "TLS handshakes with clients that were completed by resuming an earlier session; kp_tls_handshakes_total has them, too.";
    TlsHandshakesFailed, Counter, "tls_handshakes_failed", "handshakes", "TLS handshakes with clients that failed, were broken off or took too long.";
    UpstreamTlsHandshakes, Counter, "upstream_tls_handshakes", "handshakes", "TLS handshakes with upstreams that were completed, those of health checks included.";
    UpstreamTlsHandshakesResumed, Counter, "upstream_tls_handshakes_resumed", "handshakes", "TLS handshakes with upstreams that were completed by resuming an earlier session; kp_upstream_tls_handshakes_total has them, too.";
    UpstreamTlsHandshakesFailed, Counter, "upstream_tls_handshakes_failed", "handshakes", "TLS handshakes with upstreams that failed, a certificate that does not hold and health checks included.";
    RequestsLimited, Counter, "requests_limited", "requests", "Requests refused by limit_req.";
    RequestsDelayed, Counter, "requests_delayed", "requests", "Requests that limit_req made wait.";
    RequestsOverConnections, Counter, "requests_over_connections", "requests", "Requests refused by limit_conn.";
    RequestsLimitedDryRun, Counter, "requests_limited_dry_run", "requests", "Requests that limit_req or limit_conn would have refused or delayed, were it not for a dry run.";
    RequestsDenied, Counter, "requests_denied", "requests", "Requests refused by allow and deny.";
    RequestsOverActive, Counter, "requests_over_active", "requests", "Requests refused because max_active_requests were being worked on.";
    ConnectionsLimited, Counter, "connections_limited", "connections", "Client connections closed by limit_accept before a byte was read.";
    HealthChecksPassed, Counter, "health_checks_passed", "checks", "Active checks that were passed.";
    HealthChecksFailed, Counter, "health_checks_failed", "checks", "Active checks that failed.";
    HealthChecksUnhealthy, Gauge, "health_checks_unhealthy", "peers", "Peers that get no requests because of an active check, once for each such check.";
    LogLinesWritten, Counter, "log_lines_written", "lines", "Access log lines written.";
    LogLinesDropped, Counter, "log_lines_dropped", "lines", "Lines of access and error logs lost because a file, a reader or a syslog server could not take them.";
    LoopTurns, Counter, "loop_turns", "turns", "Turns of the event loop; also kp_loop_turn_duration_seconds_count.";
    LoopDelayPeak, Peak, "loop_delay_peak_seconds", "milliseconds", "Longest turn of the event loop.";
    LoopBusy, Counter, "loop_busy_seconds", "microseconds", "Time in which the event loop worked; also kp_loop_turn_duration_seconds_sum.";
    LoopWaiting, Stopwatch, "loop_waiting_seconds", "microseconds", "Time in which the event loop waited for events, up to now if it still does.";
    BackpressureClient, Counter, "backpressure_client", "waits", "How often an upstream was not read because its client had no room.";
    BackpressureUpstream, Counter, "backpressure_upstream", "waits", "How often a client was not read because the upstream had no room for the request body.";
    BuffersInUse, Gauge, "buffers_in_use_bytes", "bytes", "Memory of the requests being worked on: their heads, bodies and buffers, and what the kernel holds for their sockets.";
    BuffersFree, Gauge, "buffers_free_bytes", "bytes", "Memory of buffers that wait in the pool.";
    DescriptorsOpen, Gauge, "descriptors_open", "descriptors", "Sockets of clients, upstreams and listeners that are open, as workers count them themselves; kp_worker_open_fds has all descriptors.";
}

const _: () = assert!(
    Counter::ALL.len() <= TURNS_AT,
    "a block has no cell left for another counter"
);

/// The blocks of all process rows.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    scoreboard: Scoreboard,
    rows: &'static [AtomicU64],
}

impl Counters {
    pub(crate) fn cells(processes: usize) -> usize {
        processes * WIDTH
    }

    pub(crate) fn new(scoreboard: Scoreboard, rows: &'static [AtomicU64]) -> Self {
        Self { scoreboard, rows }
    }

    /// The block of the process that owns `row`, for writing. For [`Row::PRIVATE`] a block of its own, which lives as
    /// long as the process; ask once.
    pub fn block(&self, row: Row) -> Block {
        let cells = self
            .row(row)
            .unwrap_or_else(|| Vec::leak((0..WIDTH).map(|_| AtomicU64::new(0)).collect()));
        Block { cells }
    }

    /// The value over all processes.
    pub fn total(&self, counter: Counter) -> u64 {
        let rows = self.rows.chunks_exact(WIDTH).take(self.scoreboard.used());
        let values = rows.map(|row| read(counter, &row[counter as usize]));
        match counter.kind() {
            Kind::Counter | Kind::Gauge | Kind::Stopwatch => values.fold(0, u64::wrapping_add),
            Kind::Peak => values.max().unwrap_or(0),
        }
    }

    /// How often this reason was the end of something, over all processes; 0 where there is no such reason.
    pub fn reason_total(&self, index: u8) -> u64 {
        self.sum(REASONS_AT + usize::from(index))
    }

    /// Turns of the event loop by how long they took, over all processes: how many in each bucket, not in those before. Their
    /// sum is [`Counter::LoopBusy`].
    pub fn turns(&self) -> [u64; TURN_BUCKETS] {
        std::array::from_fn(|bucket| self.sum(TURNS_AT + bucket))
    }

    fn sum(&self, at: usize) -> u64 {
        let rows = self.rows.chunks_exact(WIDTH).take(self.scoreboard.used());
        let values = rows.filter_map(|row| row.get(at));
        values.fold(0, |sum, cell| sum.wrapping_add(cell.load(Relaxed)))
    }

    /// The value of one row.
    pub fn value(&self, row: Row, counter: Counter) -> u64 {
        self.row(row)
            .map_or(0, |cells| read(counter, &cells[counter as usize]))
    }

    pub(crate) fn reap(&self, row: Row) {
        let Some(cells) = self.row(row) else { return };
        for counter in Counter::ALL {
            let cell = &cells[*counter as usize];
            match counter.kind() {
                Kind::Counter => {}
                Kind::Gauge | Kind::Peak => cell.store(0, Relaxed),
                Kind::Stopwatch => stop(cell, monotonic_us()),
            }
        }
    }

    fn row(&self, row: Row) -> Option<&'static [AtomicU64]> {
        self.rows
            .get(row.index().checked_mul(WIDTH)?..)?
            .get(..WIDTH)
    }
}

/// What a cell says now.
fn read(counter: Counter, cell: &AtomicU64) -> u64 {
    let word = cell.load(Relaxed);
    match counter.kind() {
        Kind::Stopwatch => elapsed_us(word, monotonic_us()),
        _ => word,
    }
}

/// What a stopwatch shows. Its word is one, so that nobody sees it between running and standing: the time it shows, or
/// while it runs the moment at which it would have begun at nothing, with the lowest bit set.
fn elapsed_us(word: u64, now_us: u64) -> u64 {
    let moment_us = word as i64 >> 1;
    match word & 1 {
        1 => u64::try_from((now_us as i64).saturating_sub(moment_us)).unwrap_or(0),
        _ => word >> 1,
    }
}

fn stop(cell: &AtomicU64, now_us: u64) {
    let elapsed_us = elapsed_us(cell.load(Relaxed), now_us);
    cell.store(elapsed_us << 1, Relaxed);
}

/// The counters of one process, written by it alone.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    cells: &'static [AtomicU64],
}

impl Block {
    /// One more.
    pub fn increment(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// `by` more.
    pub fn add(&self, counter: Counter, by: u64) {
        let cell = self.cell(counter);
        cell.store(cell.load(Relaxed).wrapping_add(by), Relaxed);
    }

    /// One less; for gauges.
    pub fn decrement(&self, counter: Counter) {
        let cell = self.cell(counter);
        cell.store(cell.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, counter: Counter, value: u64) {
        self.cell(counter).store(value, Relaxed);
    }

    /// Raises a peak to `value` if that is more.
    pub fn raise(&self, counter: Counter, value: u64) {
        if value > self.value(counter) {
            self.set(counter, value);
        }
    }

    /// A stopwatch runs from now on.
    pub fn run(&self, counter: Counter, now_us: u64) {
        let cell = self.cell(counter);
        let elapsed_us = elapsed_us(cell.load(Relaxed), now_us);
        cell.store(now_us.wrapping_sub(elapsed_us) << 1 | 1, Relaxed);
    }

    /// A stopwatch stands still from now on.
    pub fn stop(&self, counter: Counter, now_us: u64) {
        stop(self.cell(counter), now_us);
    }

    /// One more end with this reason.
    pub fn count_reason(&self, index: u8) {
        self.more(REASONS_AT + usize::from(index));
    }

    /// A turn of the event loop is over.
    pub fn observe_turn(&self, busy_us: u64) {
        let above = |bound: &u64| busy_us <= *bound;
        let bucket = TURN_BOUNDS_US.iter().position(above);
        self.more(TURNS_AT + bucket.unwrap_or(TURN_BUCKETS - 1));
        self.add(Counter::LoopBusy, busy_us);
    }

    fn more(&self, at: usize) {
        if let Some(cell) = self.cells.get(at) {
            cell.store(cell.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// What this process counted, its row's former owners included.
    pub fn value(&self, counter: Counter) -> u64 {
        read(counter, self.cell(counter))
    }

    fn cell(&self, counter: Counter) -> &'static AtomicU64 {
        &self.cells[counter as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_described() {
        let names: HashSet<&str> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        assert_eq!(names.len(), Counter::ALL.len());
        for counter in Counter::ALL {
            assert!(
                counter.help().ends_with('.') && !counter.unit().is_empty(),
                "{counter:?}"
            );
        }
    }

    #[test]
    fn the_next_owner_continues_counters_but_not_gauges() {
        let shm = Shm::private().unwrap();
        let (first, other) = (shm.scoreboard().claim(1, 0), shm.scoreboard().claim(1, 1));
        let block = shm.counters().block(first);
        block.add(Counter::Requests, 5);
        block.increment(Counter::ConnectionsActive);
        block.raise(Counter::LoopDelayPeak, 9);
        block.raise(Counter::LoopDelayPeak, 3);
        shm.counters().block(other).add(Counter::Requests, 2);
        shm.counters().block(other).raise(Counter::LoopDelayPeak, 4);
        assert_eq!(shm.counters().total(Counter::LoopDelayPeak), 9);

        shm.reap(first);
        assert_eq!(shm.counters().total(Counter::Requests), 7);
        assert_eq!(shm.counters().total(Counter::ConnectionsActive), 0);
        assert_eq!(shm.counters().total(Counter::LoopDelayPeak), 4);

        let next = shm.scoreboard().claim(1, 0);
        assert_eq!(next, first);
        shm.counters().block(next).increment(Counter::Requests);
        assert_eq!(
            (
                shm.counters().total(Counter::Requests),
                shm.counters().value(next, Counter::Requests)
            ),
            (8, 6)
        );
    }

    /// A worker that nobody asks for anything waits without an end, and a reader sees how long, before it is over and after
    /// it is dead.
    #[test]
    fn a_stopwatch_is_read_while_it_runs_and_never_goes_back() {
        let shm = Shm::private().unwrap();
        let row = shm.scoreboard().claim(1, 0);
        let block = shm.counters().block(row);
        let total = || shm.counters().total(Counter::LoopWaiting);
        let now_us = monotonic_us();
        block.run(Counter::LoopWaiting, now_us - 5_000_000);
        block.stop(Counter::LoopWaiting, now_us - 2_000_000);
        assert_eq!(total(), 3_000_000);
        block.run(Counter::LoopWaiting, now_us - 1_000_000);
        let seen = total();
        assert!(seen >= 4_000_000, "{seen}");
        shm.reap(row);
        let left = total();
        assert!(left >= seen);
        let next = shm.counters().block(shm.scoreboard().claim(2, 0));
        assert_eq!(total(), left, "it stands until its next owner waits");
        next.run(Counter::LoopWaiting, monotonic_us());
        assert!(total() >= left);
    }

    /// Moments before the clock began are moments, too.
    #[test]
    fn a_stopwatch_may_show_more_than_the_clock() {
        let word = 5_u64.wrapping_sub(100) << 1 | 1;
        assert_eq!(
            [5, 6, 200].map(|now_us| elapsed_us(word, now_us)),
            [100, 101, 295]
        );
        assert_eq!(elapsed_us(10 << 1 | 1, 9), 0);
        assert_eq!(elapsed_us(10 << 1, 9), 10);
    }

    #[test]
    fn a_gauge_does_not_fall_below_zero() {
        let block = Shm::private().unwrap().counters().block(Row::PRIVATE);
        block.decrement(Counter::TunnelsActive);
        assert_eq!(block.value(Counter::TunnelsActive), 0);
    }

    #[test]
    fn reasons_and_turns_are_counted_beside_the_table() {
        let shm = Shm::private().unwrap();
        let rows = [0, 1].map(|slot| shm.scoreboard().claim(1, slot));
        for row in rows {
            let block = shm.counters().block(row);
            for reason in [0, 127, 127, 128, 255] {
                block.count_reason(reason);
            }
            for busy_us in [0, 20, 21, 500_001] {
                block.observe_turn(busy_us);
            }
        }
        shm.reap(rows[0]);
        let counters = shm.counters();
        let reasons = [0, 1, 127, 128, 255].map(|reason| counters.reason_total(reason));
        assert_eq!(reasons, [2, 0, 4, 0, 0], "there is no reason 128");
        let turns = counters.turns();
        assert_eq!((turns[0], turns[1], turns[TURN_BUCKETS - 1]), (4, 2, 2));
        assert_eq!(turns.iter().sum::<u64>(), 8);
        assert_eq!(counters.total(Counter::LoopBusy), 2 * 500_042);
        for counter in Counter::ALL.iter().filter(|one| **one != Counter::LoopBusy) {
            assert_eq!(counters.total(*counter), 0, "{counter:?}");
        }
    }

    #[test]
    fn private_rows_count_for_themselves() {
        let shm = Shm::private().unwrap();
        let block = shm.counters().block(Row::PRIVATE);
        block.add(Counter::Requests, 3);
        assert_eq!(
            (
                block.value(Counter::Requests),
                shm.counters().total(Counter::Requests)
            ),
            (3, 0)
        );
    }
}
