//! Locations: what holds for a request once it is routed.

use super::*;

/// Locations of one level.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocationTable {
    /// `location = …` and prefix locations, in file order.
    pub fixed: Vec<LocationId>,
    /// `~` and `~*`, in file order.
    pub regexes: Vec<LocationId>,
}

/// What a location matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocationMatch {
    /// The server's own level.
    Server,
    /// `location /prefix`.
    Prefix {
        /// The text.
        text: String,
        /// `^~`: regular expressions are not tried.
        stop: bool,
    },
    /// `location = /exact`.
    Exact(String),
    /// `location ~ …`.
    Regex(RegexId),
    /// `location @name`.
    Named(String),
    /// The inside of an `if` or `limit_except`.
    If,
}

/// One location with everything inherited already merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The server it belongs to.
    pub server: ServerId,
    /// What it matches.
    pub matches: LocationMatch,
    /// Nested locations.
    pub children: LocationTable,
    /// Rewrite module instructions of this level in file order.
    pub rewrite: Vec<Rewrite>,
    /// Who answers.
    pub handler: Handler,
    /// `internal`.
    pub internal: bool,
    /// Where it was written.
    pub span: Span,

    /// `root` or `alias`.
    pub root: Root,
    /// `index`, default `index.html`.
    pub index: Vec<Template>,
    /// `default_type`, default `text/plain`.
    pub default_type: String,
    /// `types`.
    pub types: TypeMapId,

    /// `keepalive_timeout`, default 75 s; zero: no keep-alive.
    pub keepalive_timeout: Duration,
    /// Second argument: value of the `Keep-Alive: timeout=` response header.
    pub keepalive_header: Option<Duration>,
    /// `keepalive_requests`, default 1000.
    pub keepalive_requests: u32,
    /// `keepalive_time`, default 1 h.
    pub keepalive_time: Duration,
    /// `keepalive_min_timeout`: grace for idle connections of a draining worker, from the start of the drain; default 10 s.
    pub keepalive_min_timeout: Duration,
    /// `keepalive_disable`: msie6, safari.
    pub keepalive_disable: KeepaliveDisable,
    /// `client_body_timeout`, default 60 s, between two reads.
    pub client_body_timeout: Duration,
    /// `client_max_body_size`, default 1m; `None` (0): no limit.
    pub client_max_body_size: Option<u64>,
    /// `client_body_buffer_size`, default 16k.
    pub client_body_buffer_size: usize,
    /// `client_body_temp_path`, absolute.
    pub client_body_temp_path: PathBuf,
    /// `client_body_in_file_only`.
    pub client_body_in_file_only: BodyInFile,
    /// `send_timeout`, default 60 s, between two writes.
    pub send_timeout: Duration,
    /// `set_real_ip_from` and its companions; `None`: the client is who connects.
    pub real_ip: Option<RealIp>,
    /// `client_min_rate` (kp), default off: how fast a request body must come.
    pub client_min_rate: Option<MinRate>,
    /// `send_min_rate` (kp), default off: how fast a response must be taken.
    pub send_min_rate: Option<MinRate>,
    /// `resolver`; `None`: the name servers of the system.
    pub resolver: Option<Resolver>,
    /// `resolver_timeout`, default 30 s.
    pub resolver_timeout: Duration,
    /// `limit_rate`, bytes per second of a response; evaluates to 0: no limit.
    pub limit_rate: Option<Template>,
    /// `limit_rate_after`: bytes that are sent before that.
    pub limit_rate_after: Option<Template>,
    /// `limit_req`, `limit_conn`, `allow`, `deny`; `None` where there is none of them.
    pub admission: Option<Box<Admission>>,
    /// `reset_timedout_connection`, default off.
    pub reset_timedout_connection: bool,
    /// `lingering_close` and its companions.
    pub lingering: Lingering,
    /// `tcp_nodelay`, default on.
    pub tcp_nodelay: bool,
    /// `server_tokens`.
    pub server_tokens: ServerTokens,
    /// `chunked_transfer_encoding`, default on.
    pub chunked_transfer_encoding: bool,
    /// `absolute_redirect` and its companions.
    pub redirects: Redirects,
    /// `recursive_error_pages`, default off.
    pub recursive_error_pages: bool,
    /// `error_page`s.
    pub error_pages: Vec<ErrorPage>,
    /// `add_header`s.
    pub add_headers: Vec<AddHeader>,
    /// `add_trailer`s.
    pub add_trailers: Vec<AddHeader>,
    /// `early_hints`: pass 103 when any value is neither empty nor `0`.
    pub early_hints: Vec<Template>,
    /// `access_log`s; empty: off.
    pub access_logs: Vec<AccessLog>,
    /// `open_log_file_cache`; `None`: a file of a path with variables is opened for each line.
    pub open_log_file_cache: Option<LogFileCacheId>,
    /// `error_log`s that hold here; never empty.
    pub error_log: Vec<ErrorLog>,
    /// `log_not_found`, default on.
    pub log_not_found: bool,
    /// `log_subrequest`, default off.
    pub log_subrequest: bool,
    /// What people follow requests by.
    pub marks: Marks,
    /// Everything of the proxy module.
    pub proxy: Proxy,
}

impl Location {
    /// Whether clients are answered with `health` here.
    pub fn tells_health(&self) -> bool {
        matches!(self.handler, Handler::Page(Page::Health { .. })) && !self.internal
    }
}

/// `client_min_rate`, `send_min_rate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinRate {
    /// Bytes per second, above 0.
    pub bytes_per_second: u64,
    /// `window=`: how long is waited for a client before it is judged; as long again before the first time.
    pub window: Duration,
}

impl MinRate {
    /// Without `window=`: long enough for the pauses of a mobile network.
    pub const WINDOW: Duration = Duration::from_secs(5);
}

/// Who answers a request in a location (nginx's content handler).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handler {
    /// Files below `root` / `alias`.
    Static,
    /// `proxy_pass`.
    Proxy(ProxyPass),
    /// kp tells about itself.
    Page(Page),
}

/// A page about kp itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// `metrics`.
    Metrics,
    /// `stub_status`.
    StubStatus,
    /// `status`.
    Status,
    /// `health`.
    Health {
        /// `upstream=`: the group that must have a peer that can be used.
        upstream: Option<UpstreamId>,
    },
}

impl Page {
    /// Whether it says more than everybody may know: without `allow` and `deny` only clients on this machine get it.
    pub fn is_private(self) -> bool {
        match self {
            Self::Metrics | Self::Status => true,
            Self::StubStatus | Self::Health { .. } => false,
        }
    }
}

/// `root` or `alias`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// The URI is appended. Relative paths are already joined to the prefix where they start with fixed text.
    Root(Template),
    /// Stands for the beginning of the path.
    Alias {
        /// The path.
        path: Template,
        /// How much of the URI it stands for: the prefix of the location that has the `alias` (an `if` or a nested
        /// location inherits both). `None`: a regular expression location, the whole URI.
        prefix_len: Option<usize>,
    },
}

/// One instruction of the rewrite module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    /// `set $name value`.
    Set {
        /// The variable.
        variable: UserVar,
        /// Its new value.
        value: Template,
    },
    /// `set $args value`: a built-in variable that can be set.
    SetArgs {
        /// The new arguments.
        value: Template,
    },
    /// `set $limit_rate value`: the other one.
    SetLimitRate {
        /// Bytes per second.
        value: Template,
    },
    /// `if (condition) { … }`: the location holds its instructions and the settings in force when it matches.
    If {
        /// The condition.
        condition: Condition,
        /// The location made of its inside.
        location: LocationId,
    },
    /// `rewrite regex replacement [flag]`.
    Rewrite {
        /// What must match the URI.
        regex: RegexId,
        /// The new URI; a `?` in its fixed text separates the arguments.
        replacement: Template,
        /// Whether the replacement ends in `?`: the old arguments are dropped.
        drop_args: bool,
        /// What follows.
        flag: RewriteFlag,
    },
    /// `return`.
    Return(Return),
    /// `break`.
    Break,
}

/// What follows a `rewrite` that matched. A replacement starting with `http://`, `https://` or `$scheme` is a redirect as in nginx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewriteFlag {
    /// No flag: go on with the next instruction, then find the location anew.
    None,
    /// `last`.
    Last,
    /// `break`.
    Break,
    /// `redirect`: 302.
    Redirect,
    /// `permanent`: 301.
    Permanent,
}

/// `return`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Return {
    /// `return code;` — 444 closes without an answer.
    Status(u16),
    /// `return code text;`
    Text(u16, Template),
    /// `return [301|302|303|307|308] url;`
    Redirect(u16, Template),
}

/// Condition of `if`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// `($var)`: neither empty nor `0`.
    Truthy(Template),
    /// `=` and `!=`.
    Equals {
        /// Left side.
        value: Template,
        /// Right side.
        other: Template,
        /// `!=`.
        negated: bool,
    },
    /// `~`, `~*`, `!~`, `!~*`.
    Matches {
        /// Left side.
        value: Template,
        /// The expression.
        regex: RegexId,
        /// `!~`.
        negated: bool,
    },
    /// `-f`, `-d`, `-e`, `-x` and their negations.
    File {
        /// What is asked.
        test: FileTest,
        /// The path.
        path: Template,
        /// `!-f`.
        negated: bool,
    },
}

/// What an `if` asks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileTest {
    /// `-f`
    File,
    /// `-d`
    Directory,
    /// `-e`
    Exists,
    /// `-x`
    Executable,
}

/// One code of an `error_page` directive (a directive with several codes gives several).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPage {
    /// The status it catches (494–497 and 499 as nginx; 494 also catches kp's 431).
    pub status: u16,
    /// The status to answer with.
    pub answer: ErrorPageStatus,
    /// Where to go.
    pub target: ErrorPageTarget,
    /// Where the target was written.
    pub span: Span,
}

/// Status of an intercepted answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorPageStatus {
    /// Without `=`: the original status.
    Keep,
    /// `=200`.
    Fixed(u16),
    /// `=`: whatever the new handler answers.
    FromTarget,
}

/// Target of an `error_page`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorPageTarget {
    /// `@name`.
    Named(String),
    /// A URI of this server.
    Uri(Template),
    /// `http://…` or `https://…`: a redirect (302 unless `answer` is a redirect status).
    Url(Template),
}

/// One `add_header` or `add_trailer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddHeader {
    /// Field name as written.
    pub name: String,
    /// Field value; nothing is added where it is empty.
    pub value: Template,
    /// `always`: on every status.
    pub always: bool,
}

/// What is done with what a client still sends when kp has answered and closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lingering {
    /// `lingering_close`, default on.
    pub close: LingeringClose,
    /// `lingering_time`, default 30 s: the longest it is read in all.
    pub time: Duration,
    /// `lingering_timeout`, default 5 s: the longest wait for more of it.
    pub timeout: Duration,
}

/// How `Location` is written in redirects of kp's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redirects {
    /// `absolute_redirect`, default on: with scheme and host.
    pub absolute: bool,
    /// `port_in_redirect`, default on.
    pub port: bool,
    /// `server_name_in_redirect`, default off: the server's primary name instead of the host that was asked for.
    pub server_name: bool,
}

/// `keepalive_disable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepaliveDisable {
    /// POST from old MSIE.
    pub msie6: bool,
    /// Safari on macOS.
    pub safari: bool,
}

/// `client_body_in_file_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyInFile {
    /// Only what does not fit the buffer.
    Off,
    /// Always, the file is kept.
    On,
    /// Always, the file is removed.
    Clean,
}

/// `lingering_close`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LingeringClose {
    /// Close at once.
    Off,
    /// When the client may still send.
    On,
    /// Always.
    Always,
}

/// `server_tokens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerTokens {
    /// `Server: kp/0.1.0`.
    On,
    /// `Server: kp`.
    Off,
    /// `build`: as on.
    Build,
    /// A text with variables (empty: no Server field).
    Text(Template),
}
