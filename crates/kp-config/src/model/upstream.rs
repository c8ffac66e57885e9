//! Upstream groups.

use super::*;

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
    /// How a peer is chosen.
    pub balancer: Balancer,
    /// `keepalive`; `None`: off.
    pub keepalive: Option<Keepalive>,
    /// `health_check`s of the locations that pass to it. A peer is usable only if all of them let it.
    pub checks: Vec<HealthCheck>,
    /// Where it was written.
    pub span: Span,
}

/// One `server` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLine {
    /// As written, for hashing and logs.
    pub name: String,
    /// What it resolved to when the configuration was loaded; never empty. Each address is one peer.
    pub addresses: Vec<PeerAddress>,
    /// `weight=`, at least 1.
    pub weight: u32,
    /// `max_conns=`, 0 = no limit.
    pub max_conns: u32,
    /// `max_fails=`, default 1, 0 = never.
    pub max_fails: u32,
    /// `fail_timeout=`, default 10 s.
    pub fail_timeout: Duration,
    /// `backup`.
    pub backup: bool,
    /// `down`.
    pub down: bool,
}

/// One address of a server line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PeerAddress {
    /// TCP.
    Inet(SocketAddr),
    /// `unix:`, absolute path.
    Unix(PathBuf),
}

/// How a peer is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balancer {
    /// Smooth weighted round robin.
    RoundRobin,
    /// `least_conn`.
    LeastConn,
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
