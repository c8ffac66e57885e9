//! What the exchange machine may know of the world: the configuration, the time of this loop turn, facts of the connection.

use crate::limits::Limits;
use crate::tls::ClientCertificate;
use kp_config::Config;
use kp_config::model::FileTest;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The time of one loop turn, read once by the reactor.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    /// Milliseconds of the monotonic clock.
    pub mono_ms: u64,
    /// Milliseconds since the epoch.
    pub unix_ms: u64,
    /// The texts of this second.
    pub dates: &'a Dates,
}

/// The formatted times of one second; made anew only when the second changes.
#[derive(Debug, Clone, Default)]
pub struct Dates {
    /// IMF-fixdate for `Date` (RFC 9110 §5.6.7).
    pub http: String,
    /// `$time_local`: `29/Nov/2026:22:49:12 +0000`.
    pub local: String,
    /// `$time_iso8601`: `2026-11-29T22:49:12+00:00`.
    pub iso8601: String,
    /// `2026/11/29 22:49:12`, for the error log.
    pub error_log: String,
}

/// What client connections are doing, as nginx tells it (`$connections_*`, `stub_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connections {
    /// Open ones.
    pub active: u64,
    /// Those whose request head is being read.
    pub reading: u64,
    /// Those whose request is being worked on, or whose last answer is followed by lingering.
    pub writing: u64,
    /// Those that wait for a request.
    pub waiting: u64,
}

/// Facts that cost a system call or more and are asked for only when a variable or condition needs them.
pub trait Facts {
    /// The local address of the client connection (`$server_addr`, `$server_port`); `None` on a unix socket.
    fn local_address(&self) -> Option<SocketAddr>;
    /// `$tcpinfo_*`: rtt and rttvar in microseconds, congestion window in segments, receive space in bytes.
    fn tcp_info(&self) -> Option<[u32; 4]>;
    /// `if (-f …)` and its kin.
    fn file_test(&self, path: &Path, test: FileTest) -> bool;
    /// The path with symbolic links resolved (`$realpath_root`); `None` where that fails.
    fn real_path(&self, path: &Path) -> Option<PathBuf>;
    /// 16 random bytes for `$request_id`.
    fn random(&self) -> [u8; 16];
    /// What client connections are doing, over all workers.
    fn connections(&self) -> Connections;
    /// Appends a part of the client's certificate (`$ssl_client_*`); false where there is no certificate.
    fn client_certificate(&self, part: ClientCertificate, out: &mut Vec<u8>) -> bool;
}

/// Everything an exchange is shown while it decides.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The generation's configuration.
    pub config: &'a Config,
    /// The time of this loop turn.
    pub now: Now<'a>,
    /// Facts on demand.
    pub facts: &'a dyn Facts,
    /// The zones of limits on clients; `None`: nobody is limited.
    pub limits: Option<&'a Limits>,
    /// This process.
    pub pid: u32,
    /// `$hostname`.
    pub hostname: &'a str,
    /// What names this group of processes in `Via`, after `kp-`: a token (RFC 9110 §5.6.2), the same in all workers and
    /// generations, different from every other group's. A request that carries it has been here before.
    pub group: &'a str,
}
