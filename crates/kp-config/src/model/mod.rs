//! The resolved configuration: complete, immutable, without invalid values (parse, don't validate).
//!
//! Tables are flat and indexed by small ids, so that a request carries numbers, not references. Everything that is
//! inherited (http → server → location) is already merged into each [`Location`].

mod health;
mod limits;
mod location;
mod log;
mod marks;
mod network;
mod proxy;
mod real_ip;
mod tls;
mod upstream;

pub use health::*;
pub use limits::*;
pub use location::*;
pub use log::*;
pub use marks::*;
pub use network::*;
pub use proxy::*;
pub use real_ip::*;
pub use tls::*;
pub use upstream::*;

use crate::span::{Span, Spanned};
use crate::template::{Pattern, Template};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// The table index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// Indexes [`Http::servers`].
    ServerId,
    /// Indexes [`Http::locations`].
    LocationId,
    /// Indexes [`Http::upstreams`].
    UpstreamId,
    /// Indexes [`Http::listeners`].
    ListenerId,
    /// Indexes [`Http::regexes`].
    RegexId,
    /// Indexes [`Http::user_variables`].
    UserVar,
    /// Indexes [`Http::log_formats`].
    LogFormatId,
    /// Indexes [`Config::log_files`].
    LogFileId,
    /// Indexes [`Config::syslogs`].
    SyslogId,
    /// Indexes [`Http::log_file_caches`].
    LogFileCacheId,
    /// Indexes [`Http::type_maps`].
    TypeMapId,
    /// Indexes [`Http::rate_zones`].
    RateZoneId,
    /// Indexes [`Http::place_zones`].
    PlaceZoneId,
    /// Indexes [`Http::tls_identities`].
    TlsIdentityId,
    /// Indexes [`Http::matches`].
    MatchId,
}

/// One complete configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The main and events contexts.
    pub main: Main,
    /// The http context; empty tables where the file has none.
    pub http: Http,
    /// Every log file of the configuration, absolute, without duplicates. The master opens and reopens them.
    pub log_files: Vec<PathBuf>,
    /// Where each of them is first named; `None`: a built-in default. In the order of `log_files`.
    pub log_places: Vec<Option<Span>>,
    /// How lines wait for each of them; `None`: not at all. In the order of `log_files`.
    pub log_buffers: Vec<Option<LogBuffer>>,
    /// Every syslog server with its parameters, without duplicates.
    pub syslogs: Vec<Syslog>,
    /// Directories that must exist before serving (temp paths), absolute, without duplicates.
    pub temp_paths: Vec<PathBuf>,
}

/// `main` and `events`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Main {
    /// `daemon`, default on.
    pub daemon: bool,
    /// `master_process`, default on.
    pub master_process: bool,
    /// `worker_processes`: `None` = auto (cores). nginx's default is 1.
    pub worker_processes: Option<u32>,
    /// `user NAME [GROUP]`; `None`: stay as started (as root: `nobody`, as nginx).
    pub user: Option<Spanned<User>>,
    /// `pid`, absolute.
    pub pid: PathBuf,
    /// `error_log` of the main context, never empty.
    pub error_log: Vec<ErrorLog>,
    /// `worker_connections`, default 512.
    pub worker_connections: u32,
    /// `multi_accept`, default off.
    pub multi_accept: bool,
    /// `worker_rlimit_nofile`.
    pub worker_rlimit_nofile: Option<u64>,
    /// `worker_rlimit_core`, bytes.
    pub worker_rlimit_core: Option<u64>,
    /// `worker_priority`, from -20 to 19.
    pub worker_priority: Option<i32>,
    /// `worker_cpu_affinity`: one list of CPUs per worker, in order; empty = not set; `auto` is expanded at start.
    pub worker_cpu_affinity: CpuAffinity,
    /// `worker_shutdown_timeout`; `None`: wait for ever.
    pub worker_shutdown_timeout: Option<Duration>,
    /// `worker_memory` (kp), default 512m: bytes a worker may use.
    pub worker_memory: u64,
    /// `stop_signal`, default fast.
    pub stop_signal: StopSignal,
    /// `working_directory`.
    pub working_directory: Option<PathBuf>,
}

/// `stop_signal`: what SIGTERM asks of a master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// To end at once, as nginx.
    Fast,
    /// To finish what it has, as SIGQUIT.
    Graceful,
}

/// `user`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: String,
    /// Group name; the user's own name when it was not given, as nginx.
    pub group: String,
}

/// `worker_cpu_affinity`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CpuAffinity {
    /// Not set.
    #[default]
    Off,
    /// `auto [mask]`: worker n on the n-th allowed CPU.
    Auto(Option<Vec<u32>>),
    /// Masks: CPU numbers for each worker; the last one repeats.
    Masks(Vec<Vec<u32>>),
}

/// Severity of an error log line, nginx's names; later = more severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `debug`
    Debug,
    /// `info`
    Info,
    /// `notice`
    Notice,
    /// `warn`
    Warn,
    /// `error`
    Error,
    /// `crit`
    Crit,
    /// `alert`
    Alert,
    /// `emerg`
    Emerg,
}

/// nginx's names of levels, the least severe first.
pub const LEVELS: [(&str, Level); 8] = [
    ("debug", Level::Debug),
    ("info", Level::Info),
    ("notice", Level::Notice),
    ("warn", Level::Warn),
    ("error", Level::Error),
    ("crit", Level::Crit),
    ("alert", Level::Alert),
    ("emerg", Level::Emerg),
];

/// `http`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Http {
    /// One per distinct address (a `listen` named by several servers is one listener).
    pub listeners: Vec<Listener>,
    /// The `server` blocks in file order.
    pub servers: Vec<VirtualHost>,
    /// Every location of every server, `if` blocks and each server's own level included.
    pub locations: Vec<Location>,
    /// `upstream` blocks in file order, then implicit ones (`proxy_pass http://address`).
    pub upstreams: Vec<Upstream>,
    /// Names of variables that `set`, `map` and named captures define; without the `$`.
    pub user_variables: Vec<String>,
    /// `map` blocks.
    pub maps: Vec<Map>,
    /// `split_clients` blocks.
    pub splits: Vec<Split>,
    /// Every regular expression of the configuration; kp-proxy compiles them and reports bad ones at their span.
    pub regexes: Vec<RegexSource>,
    /// `log_format`s; index 0 is `combined`.
    pub log_formats: Vec<LogFormat>,
    /// `open_log_file_cache`s; each directive has a cache of its own.
    pub log_file_caches: Vec<OpenLogFileCache>,
    /// `types`; index 0 is nginx's built-in map (html, gif, jpg).
    pub type_maps: Vec<TypeMap>,
    /// `ssl_session_ticket_rotation` (kp), default 12 h: how long a key of the master encrypts session tickets.
    pub ticket_rotation: Duration,
    /// `limit_req_zone`s and the zones of `limit_accept`.
    pub rate_zones: Vec<RateZone>,
    /// `limit_conn_zone`s.
    pub place_zones: Vec<PlaceZone>,
    /// `max_active_requests` (kp): requests being worked on by all processes; `None`: no limit.
    pub max_active_requests: Option<u32>,
    /// Distinct ways to speak TLS with upstreams.
    pub tls_identities: Vec<TlsIdentity>,
    /// `match` blocks in file order.
    pub matches: Vec<MatchBlock>,
    /// `metrics` of `http` (kp), default on: counts by virtual host, upstream group and peer are kept.
    pub metrics: bool,
}

impl Http {
    /// Whether a location has `status`.
    pub fn shows_status(&self) -> bool {
        let mut locations = self.locations.iter();
        locations.any(|location| location.handler == Handler::Page(Page::Status))
    }
}

/// A regular expression as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegexSource {
    /// PCRE-like text without the `~` marks.
    pub pattern: String,
    /// `~*`.
    pub case_insensitive: bool,
    /// Names of its named groups with the variables they set.
    pub captures: Vec<(String, UserVar)>,
    /// Its place.
    pub span: Span,
}

/// One `split_clients`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The variable it defines.
    pub variable: UserVar,
    /// What is hashed.
    pub source: Template,
    /// Its parts in order.
    pub parts: Vec<SplitPart>,
}

/// One part of a `split_clients`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitPart {
    /// Hashes below this belong to it, unless to one before; `None`: all.
    pub below: Option<u32>,
    /// The variable's value; nothing in it is a variable, as in nginx.
    pub value: String,
}

/// One `map`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// The variable it defines.
    pub variable: UserVar,
    /// What is looked up.
    pub source: Template,
    /// `default`; empty where it was not given.
    pub default: Template,
    /// Exact entries, compared without case, lower-cased.
    pub exact: Vec<(String, Template)>,
    /// With `hostnames`: `*.example.com`, `.example.com`, `mail.*` entries, lower-cased as written.
    pub wildcards: Vec<(String, Template)>,
    /// Regular expressions in order.
    pub regexes: Vec<(RegexId, Template)>,
    /// `hostnames`.
    pub hostnames: bool,
    /// `volatile`: evaluated anew each time.
    pub volatile: bool,
}

/// `types`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeMap {
    /// Extension (lower case, without the dot) → media type, sorted by extension.
    pub types: Vec<(String, String)>,
}

/// One distinct `listen` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The address.
    pub address: ListenAddress,
    /// Socket options.
    pub options: ListenOptions,
    /// `ssl`: connections begin with a TLS handshake.
    pub tls: bool,
    /// `proxy_protocol`: connections begin with a PROXY header, before TLS.
    pub proxy_protocol: bool,
    /// Servers that listen here, in file order.
    pub servers: Vec<ServerId>,
    /// `default_server`, or the first.
    pub default_server: ServerId,
    /// Where it was first written.
    pub span: Span,
}

/// What is bound.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// TCP; the unspecified address for `listen 80` (0.0.0.0).
    Inet(SocketAddr),
    /// `unix:`, absolute path.
    Unix(PathBuf),
}

/// Parameters of `listen`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListenOptions {
    /// `backlog=`, default 511.
    pub backlog: Option<u32>,
    /// `rcvbuf=`, bytes.
    pub rcvbuf: Option<u32>,
    /// `sndbuf=`, bytes.
    pub sndbuf: Option<u32>,
    /// `reuseport`: accepted; kp always has one socket per worker.
    pub reuseport: bool,
    /// `so_keepalive=`: `None` = the system's setting.
    pub so_keepalive: Option<SoKeepalive>,
    /// `ipv6only=`, default on.
    pub ipv6only: Option<bool>,
}

/// `so_keepalive=on|off|[keepidle]:[keepintvl]:[keepcnt]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoKeepalive {
    /// On or off.
    pub enabled: bool,
    /// Idle time before the first probe.
    pub idle: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Probes before giving up.
    pub count: Option<u32>,
}

/// One `server` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualHost {
    /// `server_name`s in order.
    pub names: Vec<ServerName>,
    /// The first name as written, for `$server_name` (empty if none).
    pub primary_name: String,
    /// The server's own level: what holds before a location is found, with the server's rewrite instructions.
    pub root: LocationId,
    /// Top-level locations.
    pub locations: LocationTable,
    /// `@name` locations.
    pub named: Vec<(String, LocationId)>,
    /// Settings that hold before routing.
    pub early: Early,
    /// TLS, where the server is at a listener with `ssl`. `None` there: it has no certificate of its own, and handshakes
    /// for its names are those of the listener's default server, as in nginx.
    pub tls: Option<TlsServer>,
    /// What requests for this server must meet, with or without handshakes of its own; off where no listener has `ssl`.
    pub verification: ClientVerification,
    /// Where the block was opened.
    pub span: Span,
}

/// One `server_name`, lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerName {
    /// `example.com`; the empty string matches a request without Host.
    Exact(String),
    /// `*.example.com` (holds `example.com`): any name below.
    Suffix(String),
    /// `.example.com`: the name itself and any below.
    DotSuffix(String),
    /// `www.example.*` (holds `www.example`).
    Prefix(String),
    /// `~…`.
    Regex(RegexId),
}

/// Server-level settings that hold while the head is read (taken from the listener's default server until Host is known).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Early {
    /// `client_header_timeout`, default 60 s.
    pub client_header_timeout: Duration,
    /// `client_header_buffer_size`, default 1k.
    pub client_header_buffer_size: usize,
    /// `large_client_header_buffers` number, default 4.
    pub large_header_buffers: usize,
    /// `large_client_header_buffers` size, default 8k: the longest request line or field.
    pub large_header_buffer_size: usize,
    /// `max_headers`, default 1000.
    pub max_headers: usize,
    /// `underscores_in_headers`, default off.
    pub underscores_in_headers: bool,
    /// `ignore_invalid_headers`, default on.
    pub ignore_invalid_headers: bool,
    /// `merge_slashes`, default on.
    pub merge_slashes: bool,
    /// `accept_bare_lf` (kp), default off.
    pub accept_bare_lf: bool,
    /// `limit_accept` (kp): connections per client address.
    pub limit_accept: Option<AcceptLimit>,
}

/// One `map`-like pair of pattern and replacement (`proxy_redirect`, `proxy_cookie_domain|path`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replace {
    /// What is looked for.
    pub from: Pattern,
    /// What it becomes.
    pub to: Template,
}
