//! What is counted in a series: one table for each kind.
//!
//! A cell is a number with one writer for each process. How the numbers of all processes become one is its [`CellKind`].

/// What a series is about. Its labels name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SeriesKind {
    /// A virtual host, by its primary name in lower case; `_` where it has none.
    Server,
    /// An upstream group, by name.
    Upstream,
    /// A peer of a group, by `$upstream_addr`.
    Peer,
}

impl SeriesKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Server, Self::Upstream, Self::Peer];

    /// Names of the labels, in the order of [`crate::Series::claim`].
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Server => &["server"],
            Self::Upstream => &["upstream"],
            Self::Peer => &["upstream", "peer"],
        }
    }

    /// Its cells, by place.
    pub fn cells(self) -> &'static [CellSpec] {
        match self {
            Self::Server => ServerCell::TABLE,
            Self::Upstream => UpstreamCell::TABLE,
            Self::Peer => PeerCell::TABLE,
        }
    }

    /// Its histograms.
    pub fn histograms(self) -> &'static [Histogram] {
        match self {
            Self::Server => &[Histogram::Total],
            Self::Upstream => &[Histogram::Connect, Histogram::Response],
            Self::Peer => &[Histogram::Head],
        }
    }
}

/// How a value is made of those of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// Only grows; the sum over all processes that ever ran.
    Counter,
    /// What is held now; the sum over the living.
    Gauge,
    /// What the process of the youngest generation says that looked last.
    Setting,
    /// The same, as bits of [`PeerFlag`].
    Flags,
    /// The largest of the living, by the monotonic clock; 0: never.
    Moment,
    /// The latest [`crate::LastFailure`] of all processes that ever ran.
    Failure,
}

/// A row of a table.
#[derive(Debug, Clone, Copy)]
pub struct CellSpec {
    /// Name of the metric, without a prefix, and without `_total`.
    pub metric: &'static str,
    /// A further label that tells cells of one metric apart, with its value.
    pub label: Option<(&'static str, &'static str)>,
    /// How it is read.
    pub kind: CellKind,
    /// What one is.
    pub unit: &'static str,
    /// One sentence about the metric.
    pub help: &'static str,
}

/// A cell of one of the tables.
pub trait SeriesCell: Copy {
    /// Where it stands in its kind's table.
    fn place(self) -> usize;
}

macro_rules! cells {
    ($(#[$about:meta])* $table:ident; $($name:ident, $kind:ident, $metric:literal, $label:expr, $unit:literal, $help:literal;)*) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum $table {
            $(#[doc = $help] $name,)*
        }

        impl $table {
            /// All, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            pub(crate) const TABLE: &'static [CellSpec] = &[$(CellSpec {
                metric: $metric,
                label: $label,
                kind: CellKind::$kind,
                unit: $unit,
                help: $help,
            },)*];

            /// What the table says of it.
            pub fn spec(self) -> &'static CellSpec {
                &Self::TABLE[self as usize]
            }
        }

        impl SeriesCell for $table {
            #[inline]
            fn place(self) -> usize {
                self as usize
            }
        }
    };
}

cells! {
    /// What is counted for a virtual host.
    ServerCell;
    Requests1xx, Counter, "http_requests", Some(("status", "1xx")), "requests", "Requests of clients that are over, by virtual host and class of the status that the access log has.";
    Requests2xx, Counter, "http_requests", Some(("status", "2xx")), "requests", "Requests of clients that are over, by virtual host and class of the status that the access log has.";
    Requests3xx, Counter, "http_requests", Some(("status", "3xx")), "requests", "Requests of clients that are over, by virtual host and class of the status that the access log has.";
    Requests4xx, Counter, "http_requests", Some(("status", "4xx")), "requests", "Requests of clients that are over, by virtual host and class of the status that the access log has.";
    Requests5xx, Counter, "http_requests", Some(("status", "5xx")), "requests", "Requests of clients that are over, by virtual host and class of the status that the access log has.";
    BytesIn, Counter, "http_received_bytes", None, "bytes", "Bytes of requests that were read from clients, heads included, what came through tunnels not: the sum of $request_length.";
    BytesOut, Counter, "http_sent_bytes", None, "bytes", "Bytes of responses that were written to clients, heads and tunnels included: the sum of $bytes_sent.";
}

cells! {
    /// What is counted for an upstream group.
    UpstreamCell;
    NoLivePeer, Counter, "upstream_unserved_requests", None, "requests", "How often a request found no live peer in the group.";
    Retries, Counter, "upstream_repeated_attempts", None, "attempts", "Attempts after one that failed, at the same or another peer; one after a connection of the pool that had been closed is none.";
    RetriesRefused, Counter, "upstream_refused_retries", None, "requests", "Retries that were not made because the retry_budget was used up.";
    QueueWaits, Counter, "upstream_queued_requests", None, "requests", "Requests that waited for a peer with a free place.";
    QueueOverflows, Counter, "upstream_queue_overflows", None, "requests", "Requests refused because as many as queue allows were waiting.";
    QueueTimeouts, Counter, "upstream_queue_timeouts", None, "requests", "Requests that waited for a free place longer than queue allows.";
    QueueLength, Gauge, "upstream_queue_length", None, "requests", "Requests that wait for a peer with a free place now.";
    Ejections, Counter, "upstream_ejections", None, "events", "Ejections of peers by outlier_detection.";
    Returns, Counter, "upstream_returns", None, "events", "Ends of ejections of peers by outlier_detection.";
    Rests, Counter, "upstream_rests", None, "events", "Failures after which a peer was left alone for its fail_timeout.";
}

cells! {
    /// What is counted for a peer.
    PeerCell;
    Attempts1xx, Counter, "peer_attempts", Some(("status", "1xx")), "attempts", "Attempts at the peer that are over, by class of the status it answered with; none: it did not answer.";
    Attempts2xx, Counter, "peer_attempts", Some(("status", "2xx")), "attempts", "Attempts at the peer that are over, by class of the status it answered with; none: it did not answer.";
    Attempts3xx, Counter, "peer_attempts", Some(("status", "3xx")), "attempts", "Attempts at the peer that are over, by class of the status it answered with; none: it did not answer.";
    Attempts4xx, Counter, "peer_attempts", Some(("status", "4xx")), "attempts", "Attempts at the peer that are over, by class of the status it answered with; none: it did not answer.";
    Attempts5xx, Counter, "peer_attempts", Some(("status", "5xx")), "attempts", "Attempts at the peer that are over, by class of the status it answered with; none: it did not answer.";
    AttemptsNone, Counter, "peer_attempts", Some(("status", "none")), "attempts", "Attempts at the peer that are over, by class of the status it answered with; none: it did not answer.";
    Failures, Counter, "peer_failures", None, "attempts", "Attempts that counted against max_fails.";
    BytesIn, Counter, "peer_received_bytes", None, "bytes", "Bytes read from the peer.";
    BytesOut, Counter, "peer_sent_bytes", None, "bytes", "Bytes written to the peer.";
    Connects, Counter, "peer_connects", None, "connections", "Connections to the peer that were begun.";
    ConnectFailures, Counter, "peer_connect_failures", None, "connections", "Connections to the peer that did not open, in time or at all; failed TLS handshakes included.";
    Reuses, Counter, "peer_reuses", None, "connections", "Attempts that took a connection to the peer from the keep-alive pool.";
    StaleReuses, Counter, "peer_stale_reuses", None, "connections", "Connections from the keep-alive pool that the peer had closed before it answered anything.";
    InFlight, Gauge, "peer_requests_in_flight", None, "attempts", "Attempts under way at the peer.";
    Overdue, Gauge, "peer_requests_overdue", None, "attempts", "Attempts under way that have waited five seconds or longer for their response head.";
    Idle, Gauge, "peer_idle_connections", None, "connections", "Connections to the peer that wait in the keep-alive pool.";
    Looked, Setting, "", None, "milliseconds", "When a worker looked last, by the monotonic clock; 0: no worker has the peer.";
    Weight, Setting, "peer_weight", None, "thousandths", "Weight of the peer in effect: lowered by failures, growing during a slow start.";
    MaxConns, Setting, "peer_max_conns", None, "connections", "Connections the peer may have in use at once; 0: no limit.";
    Flags, Flags, "peer_state", None, "flags", "Whether the peer is in the state.";
    RestingUntil, Moment, "", None, "milliseconds", "Until when the peer is left alone after failures.";
    EjectedUntil, Moment, "", None, "milliseconds", "Until when the peer is ejected.";
    LastFailure, Failure, "", None, "", "What went wrong at the peer last, and when.";
}

/// What a worker says of a peer; bits of [`PeerCell::Flags`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum PeerFlag {
    /// `down`.
    Down = 1,
    /// `drain`.
    Drain = 1 << 1,
    /// `backup`.
    Backup = 1 << 2,
    /// An active check keeps it out.
    Unhealthy = 1 << 3,
    /// Left alone after failures when the worker looked; [`PeerCell::RestingUntil`] says how long.
    Resting = 1 << 4,
    /// Ejected by outlier detection when the worker looked; [`PeerCell::EjectedUntil`] says how long.
    Ejected = 1 << 5,
    /// As many connections as `max_conns` allows were in use when the worker looked.
    Full = 1 << 6,
}

impl PeerFlag {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Down,
        Self::Drain,
        Self::Backup,
        Self::Unhealthy,
        Self::Resting,
        Self::Ejected,
        Self::Full,
    ];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Drain => "drain",
            Self::Backup => "backup",
            Self::Unhealthy => "unhealthy",
            Self::Resting => "resting",
            Self::Ejected => "ejected",
            Self::Full => "full",
        }
    }

    /// Whether it is set.
    pub fn is_in(self, flags: u64) -> bool {
        flags & self as u64 != 0
    }
}

/// Buckets of a histogram, the last one without an end.
pub const BUCKETS: usize = BOUNDS_MS.len() + 1;
/// Upper ends of the buckets but the last, in milliseconds; each belongs to its bucket.
pub const BOUNDS_MS: [u64; 14] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000,
];
/// Buckets and the sum.
pub(crate) const HISTOGRAM_WIDTH: usize = BUCKETS + 1;

/// How long something took, in buckets of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Histogram {
    /// Of a virtual host's requests.
    Total,
    /// Of connections that opened.
    Connect,
    /// Of whole responses of an upstream.
    Response,
    /// Of response heads of a peer.
    Head,
}

impl Histogram {
    /// Name of the metric, in seconds as Prometheus wants it, without a prefix.
    pub fn metric(self) -> &'static str {
        match self {
            Self::Total => "http_request_duration_seconds",
            Self::Connect => "upstream_connect_duration_seconds",
            Self::Response => "upstream_response_duration_seconds",
            Self::Head => "peer_head_duration_seconds",
        }
    }

    /// One sentence.
    pub fn help(self) -> &'static str {
        match self {
            Self::Total => {
                "Time from the first byte of a request to its log line: $request_time, by virtual host; that of tunnels is not in it."
            }
            Self::Connect => {
                "Time until a connection to a peer of the group was open, its TLS handshake included."
            }
            Self::Response => {
                "Time from the beginning of an attempt to the last byte of its response; that of tunnels is not in it."
            }
            Self::Head => {
                "Time from the beginning of an attempt to the whole response head: $upstream_header_time, by peer."
            }
        }
    }

    /// Its first cell; histograms stand at the end of a row.
    #[inline]
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Total | Self::Connect | Self::Head => super::WIDTH - HISTOGRAM_WIDTH,
            Self::Response => super::WIDTH - 2 * HISTOGRAM_WIDTH,
        }
    }

    /// The bucket of a time.
    #[inline]
    pub(crate) fn bucket(ms: u64) -> usize {
        let above = |bound: &u64| ms <= *bound;
        BOUNDS_MS.iter().position(above).unwrap_or(BUCKETS - 1)
    }
}

const _: () = {
    assert!(ServerCell::ALL.len() + HISTOGRAM_WIDTH <= super::WIDTH);
    assert!(UpstreamCell::ALL.len() + 2 * HISTOGRAM_WIDTH <= super::WIDTH);
    assert!(PeerCell::ALL.len() + HISTOGRAM_WIDTH <= super::WIDTH);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counter;
    use std::collections::HashMap;

    #[test]
    fn a_time_belongs_to_the_first_bucket_that_holds_it() {
        let buckets = [0, 1, 2, 3, 5, 6, 10, 30_000, 30_001, u64::MAX].map(Histogram::bucket);
        assert_eq!(buckets, [0, 0, 1, 2, 2, 3, 3, 13, 14, 14]);
    }

    /// One metric has one kind, unit and sentence, is of one table, and its cells are told apart.
    #[test]
    fn metrics_are_told_apart() {
        let mut met = HashMap::new();
        for kind in SeriesKind::ALL {
            for spec in kind.cells().iter().filter(|spec| !spec.metric.is_empty()) {
                let what = (kind, spec.unit, spec.help);
                assert_eq!(*met.entry(spec.metric).or_insert(what), what);
                assert!(spec.help.ends_with('.'), "{}", spec.metric);
                let same =
                    |other: &&CellSpec| (other.metric, other.label) == (spec.metric, spec.label);
                assert_eq!(
                    kind.cells().iter().filter(same).count(),
                    1,
                    "{}",
                    spec.metric
                );
            }
            for histogram in kind.histograms() {
                let what = (kind, "seconds", histogram.help());
                assert!(met.insert(histogram.metric(), what).is_none());
            }
        }
        for counter in Counter::ALL {
            assert!(!met.contains_key(counter.name()), "{}", counter.name());
        }
    }
}
