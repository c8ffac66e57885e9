//! Upstream groups.

use super::*;
use std::fmt;

/// One `upstream` block, or an implicit group made from a `proxy_pass` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its name; for an implicit group the address as written.
    pub name: String,
    /// Made from `proxy_pass http://address`: one server line, no keep-alive pool.
    pub implicit: bool,
    /// `server` lines in file order; never empty.
    pub servers: Vec<ServerLine>,
    /// `zone NAME [SIZE]`: peer state is shared by all workers.
    pub zone: Option<String>,
    /// The zone's `SIZE` in bytes; `None`: it was given elsewhere, or not at all.
    pub zone_bytes: Option<u64>,
    /// `state FILE`: where changes made while kp runs are kept.
    pub state: Option<Spanned<PathBuf>>,
    /// How a peer is chosen.
    pub balancer: Balancer,
    /// `keepalive`; `None`: off.
    pub keepalive: Option<Keepalive>,
    /// `health_check`s of the locations that pass to it. A peer is usable only if all of them let it.
    pub checks: Vec<HealthCheck>,
    /// `queue`; `None`: nobody waits for a free place.
    pub queue: Option<Queue>,
    /// `retry_budget`; `None`: off.
    pub retry_budget: Option<RetryBudget>,
    /// `outlier_detection`; `None`: off.
    pub outliers: Option<OutlierDetection>,
    /// `max_ejected_percent`; `None`: all peers may be left alone at once, as in nginx.
    pub max_ejected_percent: Option<u32>,
    /// `sticky`; `None`: sessions are not kept together.
    pub sticky: Option<Sticky>,
    /// `resolver` of the group, else that of http; there if a server has `resolve`.
    pub resolver: Option<Resolver>,
    /// `resolver_timeout` of the group, else that of http; default 30 s.
    pub resolver_timeout: Duration,
    /// Where it was written.
    pub span: Span,
}

/// One `server` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLine {
    /// As written, for hashing and logs.
    pub name: String,
    /// What it resolved to when the configuration was loaded; empty only with `resolve`. Each address is one peer.
    pub addresses: Vec<PeerAddress>,
    /// `weight=`, at least 1.
    pub weight: u32,
    /// `max_conns=`, 0 = no limit.
    pub max_conns: u32,
    /// `max_fails=`, default 1, 0 = never.
    pub max_fails: u32,
    /// `fail_timeout=`, default 10 s.
    pub fail_timeout: Duration,
    /// `slow_start=`: how long its share grows when it is new or well again; zero: it has all of it at once.
    pub slow_start: Duration,
    /// `backup`.
    pub backup: bool,
    /// `down`.
    pub down: bool,
    /// `resolve`: its addresses are found while kp runs.
    pub resolve: Option<ResolveName>,
    /// `drain`: nobody new is sent there, only sessions it has.
    pub drain: bool,
    /// `route=`: its name in sessions; empty: made from its address.
    pub route: String,
}

/// A name that is looked up while kp runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolveName {
    /// The name.
    pub host: String,
    /// The port of its addresses; those of a service bring their own.
    pub port: u16,
    /// `service=`.
    pub service: Option<String>,
}

/// `resolver`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resolver {
    /// Name servers, asked in turn; never empty.
    pub servers: Vec<SocketAddr>,
    /// `valid=`: how long an answer holds, whatever it says.
    pub valid: Option<Duration>,
    /// `ipv4=`, default on.
    pub ipv4: bool,
    /// `ipv6=`, default on.
    pub ipv6: bool,
}

/// One address of a server line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PeerAddress {
    /// TCP.
    Inet(SocketAddr),
    /// `unix:`, absolute path.
    Unix(PathBuf),
}

/// As in `$upstream_addr`: `127.0.0.1:8080`, `[::1]:8080` or `unix:/path`.
impl fmt::Display for PeerAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(out),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

/// How a peer is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balancer {
    /// Smooth weighted round robin.
    RoundRobin,
    /// `least_conn`.
    LeastConn,
    /// `least_time header|last_byte [inflight]`.
    LeastTime {
        /// The time to the end of answers, not to their heads.
        last_byte: bool,
        /// Attempts under way count, too.
        inflight: bool,
    },
    /// `ip_hash`.
    IpHash,
    /// `hash KEY [consistent]`.
    Hash {
        /// What is hashed.
        key: Template,
        /// Ketama.
        consistent: bool,
    },
    /// `random [two [least_conn]]`.
    Random {
        /// Two are drawn and the one with fewer connections is used.
        two: bool,
    },
}

/// `keepalive` and its companions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle connections kept per worker.
    pub connections: u32,
    /// `local`: reused only from the location that opened it (nginx's implicit default).
    pub local: bool,
    /// `keepalive_requests`, default 1000.
    pub requests: u32,
    /// `keepalive_time`, default 1 h.
    pub time: Duration,
    /// `keepalive_timeout`, default 60 s idle.
    pub timeout: Duration,
}

/// `outlier_detection`: which peers are ejected for what they answer. A condition that is 0 is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutlierDetection {
    /// `consecutive_5xx=`: so many answers of 500 to 599, or failures, in a row.
    pub consecutive_5xx: u32,
    /// `failure_percent=`: such a share of the answers of the last 10 to 20 seconds, of at least 20.
    pub failure_percent: u32,
    /// `latency_factor=`: an average time of so many times the median of the others, in hundredths.
    pub latency_factor_percent: u32,
    /// `base_time=`: the first ejection lasts so long, the second twice that, and so on.
    pub base_time: Duration,
    /// `max_percent=`: of the group's peers; one may be ejected in any case.
    pub max_percent: u32,
}

/// `queue`: requests that wait while every peer has `max_conns` connections in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// The most that wait in a worker.
    pub length: u32,
    /// The longest that one waits.
    pub timeout: Duration,
}

/// `retry_budget`: how many repeated attempts may be under way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBudget {
    /// Of the group's attempts under way.
    pub percent: u32,
    /// So many in any case.
    pub min: u32,
}

impl RetryBudget {
    /// What holds where nothing is said.
    pub const DEFAULT: Self = Self {
        percent: 20,
        min: 10,
    };
}

/// `sticky`: how a session finds the peer it was at before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sticky {
    /// By a cookie of kp's own, which names the peer.
    Cookie(StickyCookie),
    /// By the first of these variables that has a value: a server's `route=`.
    Route(Vec<Template>),
    /// By what was seen to be created by, or for, a peer.
    Learn(StickyLearn),
}

/// `sticky cookie`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyCookie {
    /// The cookie's name.
    pub name: String,
    /// `expires=`; `None`: the cookie ends with the browser's session.
    pub expires: Option<CookieExpiry>,
    /// `domain=`; left out where it is empty.
    pub domain: Option<Template>,
    /// `path=`, in which nginx knows no variables.
    pub path: Option<String>,
    /// `httponly`.
    pub http_only: bool,
    /// `secure`.
    pub secure: bool,
    /// `samesite=`: strict, lax or none; left out where it is empty, strict where it is anything else.
    pub same_site: Option<Template>,
}

/// When a cookie ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieExpiry {
    /// `max`.
    Max,
    /// So long after it was set.
    After(Duration),
}

/// `sticky learn`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyLearn {
    /// What names a session that a response begins; the first with a value.
    pub create: Vec<Template>,
    /// What names a session that a request belongs to; the first with a value.
    pub lookup: Vec<Template>,
    /// The table's name.
    pub zone: String,
    /// The table's size in bytes.
    pub zone_bytes: u64,
    /// How long a session is remembered without a request, default 10 min.
    pub timeout: Duration,
    /// `header`: a session begins with the response's head, not with its end.
    pub header: bool,
}
