//! Settings of the proxy module.

use super::*;

/// `proxy_pass`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyPass {
    /// Where to.
    pub target: ProxyTarget,
    /// Where it was written.
    pub span: Span,
}

/// Target of a `proxy_pass`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyTarget {
    /// A known upstream.
    Upstream {
        /// The group (explicit or implicit).
        upstream: UpstreamId,
        /// The URI part, which replaces the location's prefix; `None`: the request's URI is passed unchanged.
        uri: Option<String>,
        /// `$proxy_host`: host and port as written (without a default port).
        host: String,
        /// `$proxy_port`.
        port: u16,
        /// Length of the location's prefix that `uri` replaces (0 in regex and named locations).
        prefix_len: usize,
        /// `https://`.
        https: bool,
    },
    /// With variables: evaluated, then looked up among the upstreams or taken as an address.
    Template(Template),
}

/// Everything of the proxy module that is inherited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// `proxy_set_header`s of the nearest level that has any; kp's defaults (Host, Connection) are not in here.
    pub set_headers: Vec<SetHeader>,
    /// `proxy_pass_header`: fields passed although hidden by default, lower case.
    pub pass_headers: Vec<String>,
    /// `proxy_hide_header` plus the built-in ones (Date, Server, X-Pad, X-Accel-*) minus `pass_headers`, lower case.
    pub hide_headers: Vec<String>,
    /// `proxy_ignore_headers`, lower case (X-Accel-Redirect, X-Accel-Expires, X-Accel-Limit-Rate, X-Accel-Buffering, X-Accel-Charset, Expires, Cache-Control, Set-Cookie, Vary).
    pub ignore_headers: Vec<String>,
    /// `proxy_http_version`, default 1.1.
    pub http_version: ProxyHttpVersion,
    /// `proxy_connect_timeout`, default 60 s.
    pub connect_timeout: Duration,
    /// `proxy_send_timeout`, default 60 s, between two writes.
    pub send_timeout: Duration,
    /// `proxy_read_timeout`, default 60 s, between two reads.
    pub read_timeout: Duration,
    /// `proxy_next_upstream`.
    pub next_upstream: NextUpstream,
    /// `proxy_next_upstream_tries`, 0 = no limit.
    pub next_upstream_tries: u32,
    /// `proxy_next_upstream_timeout`, zero = no limit.
    pub next_upstream_timeout: Duration,
    /// `proxy_try_timeout` (kp): one attempt from its beginning to the response head, zero = no limit.
    pub try_timeout: Duration,
    /// `proxy_retry_backoff` (kp); `None`: off.
    pub retry_backoff: Option<RetryBackoff>,
    /// `proxy_buffering`, default on.
    pub buffering: bool,
    /// `proxy_buffer_size`, default 4k: the head buffer's first size; it grows to 64k.
    pub buffer_size: usize,
    /// `proxy_buffers` number × size: how far a response is read ahead of a slow client.
    pub buffers: (usize, usize),
    /// `proxy_busy_buffers_size`.
    pub busy_buffers_size: usize,
    /// `proxy_max_temp_file_size`, default 0 (unlike nginx).
    pub max_temp_file_size: u64,
    /// `proxy_temp_file_write_size`.
    pub temp_file_write_size: usize,
    /// `proxy_temp_path`, absolute.
    pub temp_path: PathBuf,
    /// `proxy_request_buffering`, default auto.
    pub request_buffering: RequestBuffering,
    /// `proxy_ignore_client_abort`, default off.
    pub ignore_client_abort: bool,
    /// `proxy_intercept_errors`, default off.
    pub intercept_errors: bool,
    /// `proxy_redirect`: `default` already expanded; empty: off.
    pub redirects: Vec<Replace>,
    /// `proxy_cookie_domain`.
    pub cookie_domains: Vec<Replace>,
    /// `proxy_cookie_path`.
    pub cookie_paths: Vec<Replace>,
    /// `proxy_cookie_flags`.
    pub cookie_flags: Vec<CookieFlags>,
    /// `proxy_bind`; `None`: off.
    pub bind: Option<Template>,
    /// `proxy_bind … transparent`.
    pub bind_transparent: bool,
    /// `proxy_socket_keepalive`, default off.
    pub socket_keepalive: bool,
    /// `proxy_protocol` (kp), default off: connections begin with a PROXY header.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// `proxy_method`.
    pub method: Option<Template>,
    /// `proxy_set_body`.
    pub set_body: Option<Template>,
    /// `proxy_pass_request_headers`, default on.
    pub pass_request_headers: bool,
    /// `proxy_pass_request_body`, default on.
    pub pass_request_body: bool,
    /// `proxy_pass_trailers`, default off.
    pub pass_trailers: bool,
    /// `proxy_limit_rate` in bytes per second; evaluates to 0: no limit.
    pub limit_rate: Option<Template>,
    /// `proxy_upgrade` (kp): protocol tokens passed on, lower case; empty: off. Default `websocket`.
    pub upgrade: Vec<String>,
    /// `proxy_upgrade_timeout` (kp), default 1 h: idle time of a tunnel.
    pub upgrade_timeout: Duration,
    /// `proxy_forwarding` (kp), default off.
    pub forwarding: Forwarding,
    /// How TLS is spoken with the upstream, where the location's `proxy_pass` is `https://` or may become so.
    pub tls: Option<ProxyTls>,
}

/// `proxy_protocol`: the version of the header that upstreams get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// The binary form.
    V2,
}

/// One `proxy_set_header`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetHeader {
    /// Field name as written.
    pub name: String,
    /// Field value; empty: the field is not sent at all.
    pub value: Template,
}

/// `proxy_http_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHttpVersion {
    /// 1.0
    Http10,
    /// 1.1
    Http11,
}

/// `proxy_retry_backoff`: the pause before an attempt that is not the first at the next peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBackoff {
    /// The longest first pause; each further one is up to twice as long.
    pub base: Duration,
    /// No pause is longer.
    pub max: Duration,
}

impl RetryBackoff {
    /// What holds where nothing is said.
    pub const DEFAULT: Self = Self {
        base: Duration::from_millis(25),
        max: Duration::from_millis(250),
    };
}

/// Conditions of `proxy_next_upstream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NextUpstream {
    /// `error`
    pub error: bool,
    /// `timeout`
    pub timeout: bool,
    /// `invalid_header`
    pub invalid_header: bool,
    /// `non_idempotent`
    pub non_idempotent: bool,
    /// `off`
    pub off: bool,
    /// `http_500`
    pub http_500: bool,
    /// `http_502`
    pub http_502: bool,
    /// `http_503`
    pub http_503: bool,
    /// `http_504`
    pub http_504: bool,
    /// `http_403`
    pub http_403: bool,
    /// `http_404`
    pub http_404: bool,
    /// `http_429`
    pub http_429: bool,
    /// `updating` (accepted; the cache joins later).
    pub updating: bool,
}

/// `proxy_request_buffering`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBuffering {
    /// Taken whole before a peer is chosen, spilling to `client_body_temp_path`.
    On,
    /// Streamed.
    Off,
    /// Whole when its Content-Length fits `client_body_buffer_size`, else streamed.
    Auto,
}

/// `proxy_forwarding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarding {
    /// Adds nothing.
    Off,
    /// Replaces what the client sent.
    Edge,
    /// Extends what the client sent.
    Append,
}

/// One `proxy_cookie_flags`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieFlags {
    /// Which cookies.
    pub cookie: Pattern,
    /// The flags that are written out.
    pub wanted: WantedFlags,
    /// Flags with variables, in order: what they say of a flag counts instead of `wanted`.
    pub evaluated: Vec<Template>,
}

/// What a cookie's flags must become; `None`: as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WantedFlags {
    /// `secure` / `nosecure`.
    pub secure: Option<bool>,
    /// `httponly` / `nohttponly`.
    pub http_only: Option<bool>,
    /// `samesite=strict|lax|none` / `nosamesite` (Some(None)).
    pub same_site: Option<Option<SameSite>>,
}

impl WantedFlags {
    /// Adds what a flag of the directive says; false if it is none.
    pub fn set(&mut self, flag: &[u8]) -> bool {
        match flag.to_ascii_lowercase().as_slice() {
            b"secure" => self.secure = Some(true),
            b"nosecure" => self.secure = Some(false),
            b"httponly" => self.http_only = Some(true),
            b"nohttponly" => self.http_only = Some(false),
            b"samesite=strict" => self.same_site = Some(Some(SameSite::Strict)),
            b"samesite=lax" => self.same_site = Some(Some(SameSite::Lax)),
            b"samesite=none" => self.same_site = Some(Some(SameSite::None)),
            b"nosamesite" => self.same_site = Some(None),
            _ => return false,
        }
        true
    }
}

/// `samesite`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameSite {
    /// Strict
    Strict,
    /// Lax
    Lax,
    /// None
    None,
}
