//! What `kp ctl` sends and gets, as JSON: commands and what is said when one is refused. The answers to the commands that are
//! done are the affair of those who do them.

use kp_worker::inquiry::{ClientConnection, PeerConnections, RequestInFlight};
use serde::{Deserialize, Serialize};

/// What the master is to do or to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Command {
    /// Every upstream with its peers.
    #[serde(rename = "upstream list")]
    UpstreamList {},
    /// One of them.
    #[serde(rename = "upstream show")]
    UpstreamShow {
        /// Its name.
        name: String,
    },
    /// The oldest requests in flight.
    Requests {
        /// So many.
        #[serde(default = "usual_limit")]
        limit: usize,
        /// Only those that are in flight for at least so long.
        #[serde(default)]
        longer_ms: u64,
    },
    /// The oldest connections of clients, and connections to upstreams.
    Connections {
        /// So many.
        #[serde(default = "usual_limit")]
        limit: usize,
    },
    /// Shows the level of the error logs, or changes it.
    LogLevel {
        /// A level, or [`RESET`]; `None`: show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        level: Option<String>,
    },
    /// How many requests are in flight at peers, those included that belong to their group no longer.
    InFlight {
        /// Which.
        peers: Vec<PeerName>,
    },
    /// Changes upstreams: all of these changes or none.
    Change {
        /// Each as its words: `["peer", "down", "app", "127.0.0.1:8080"]`.
        changes: Vec<Vec<String>>,
        /// A group may lose its last usable peer.
        #[serde(default)]
        force: bool,
    },
}

fn usual_limit() -> usize {
    LIMIT
}

/// So many requests or connections are shown if nothing else is said.
pub(crate) const LIMIT: usize = 50;

/// The level that gives every error log its own again.
pub(crate) const RESET: &str = "reset";

/// Why a command was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// What is wrong.
    pub(crate) error: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Which of several changes it is about, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<usize>,
}

impl Refusal {
    /// Without a hint.
    pub(crate) fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: None,
            change: None,
        }
    }

    /// With one.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The answer to `requests`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requests {
    /// How many are in flight, those included that are not shown.
    pub(crate) in_flight: usize,
    /// The oldest first.
    pub(crate) requests: Vec<RequestInFlight>,
    /// Workers that have answered.
    pub(crate) workers: usize,
    /// Process ids of workers that have not.
    pub(crate) silent: Vec<i32>,
}

/// The answer to `connections`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connections {
    /// How many clients are connected, those included that are not shown.
    pub(crate) clients: usize,
    /// The oldest first.
    pub(crate) connections: Vec<ClientConnection>,
    /// Connections to upstreams, by peer.
    pub(crate) upstreams: Vec<PeerConnections>,
    /// Workers that have answered.
    pub(crate) workers: usize,
    /// Process ids of workers that have not.
    pub(crate) silent: Vec<i32>,
}

/// The answer to `change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changed {
    /// How many changes were made.
    pub(crate) changes: usize,
    /// Workers that serve by them.
    pub(crate) workers: usize,
    /// Process ids of workers that have not said in time that they do.
    pub(crate) silent: Vec<i32>,
    /// How long it took until they did.
    pub(crate) milliseconds: u64,
    /// The peers that were taken out by them: removed, down or drain.
    #[serde(default)]
    pub(crate) out: Vec<PeerName>,
}

/// A peer of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct PeerName {
    /// The group.
    pub(crate) upstream: String,
    /// `$upstream_addr`.
    pub(crate) peer: String,
}

/// The answer to `in-flight`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InFlight {
    /// In the order in which they were asked for.
    pub(crate) peers: Vec<PeerInFlight>,
}

/// What is in flight at a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerInFlight {
    /// Which.
    #[serde(flatten)]
    pub(crate) name: PeerName,
    /// Attempts under way in all workers of all generations, tunnels included; `None`: nobody counts them.
    pub(crate) in_flight: Option<u64>,
}

/// The answer to `log-level`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogLevels {
    /// The level that every error log has instead of its own; `None`: each has its own.
    pub(crate) in_force: Option<String>,
    /// The error logs of the main context, as configured.
    pub(crate) configured: Vec<ConfiguredLog>,
    /// Workers that know of it.
    pub(crate) workers: usize,
    /// Process ids of workers that have not said in time that they know.
    pub(crate) silent: Vec<i32>,
}

/// One `error_log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfiguredLog {
    /// Its file, or `stderr`.
    pub(crate) log: String,
    /// Its level.
    pub(crate) level: String,
}
