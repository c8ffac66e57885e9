//! Values with variables, compiled once: what nginx calls complex values.

use crate::model::{RegexId, UserVar};

/// A value that may contain variables; evaluated per request by appending to a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    /// Its pieces in order. Empty: the empty string.
    pub parts: Vec<Part>,
}

/// One piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Fixed text.
    Literal(String),
    /// A variable's value, or nothing where it has none.
    Variable(Variable),
    /// `$1` … `$9`: a group of the last regular expression that matched.
    Capture(u8),
}

impl Template {
    /// A template of fixed text.
    pub fn literal(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() {
            Self::default()
        } else {
            Self {
                parts: vec![Part::Literal(text)],
            }
        }
    }

    /// The same text with neighbouring literals joined.
    #[must_use]
    pub fn joined(self) -> Self {
        let mut parts: Vec<Part> = Vec::with_capacity(self.parts.len());
        for part in self.parts {
            match (parts.last_mut(), part) {
                (Some(Part::Literal(before)), Part::Literal(text)) => before.push_str(&text),
                (_, part) => parts.push(part),
            }
        }
        Self { parts }
    }

    /// The text, if there is no variable in it.
    pub fn as_literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }
}

/// A variable by meaning; its name was looked up at configuration time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Variable {
    /// Defined by `set`, `map` or a named capture.
    User(UserVar),
    /// `$http_NAME`: request header, lower case with `_` for `-` as written in the variable.
    Http(String),
    /// `$sent_http_NAME`: response header as sent to the client.
    SentHttp(String),
    /// `$sent_trailer_NAME`.
    SentTrailer(String),
    /// `$upstream_http_NAME`: response header of the last attempt.
    UpstreamHttp(String),
    /// `$upstream_trailer_NAME`.
    UpstreamTrailer(String),
    /// `$upstream_cookie_NAME`.
    UpstreamCookie(String),
    /// `$cookie_NAME`.
    Cookie(String),
    /// `$arg_NAME`: decided without case, as nginx.
    Arg(String),
    /// `$proxy_protocol_tlv_NAME`: what the PROXY header of the connection says besides.
    ProxyProtocolTlv(String),
    /// One of the fixed names.
    Builtin(Builtin),
}

macro_rules! builtins {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The variables with fixed names. The table is the one place that lists them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Builtin { $($(#[$doc])* #[doc = concat!("`$", $name, "`")] $variant,)* }

        impl Builtin {
            /// Every one, for documentation and for "did you mean".
            pub const ALL: &'static [(&'static str, Builtin)] = &[$(($name, Builtin::$variant),)*];
        }
    };
}

builtins! {
    Args = "args",
    BinaryRemoteAddr = "binary_remote_addr",
    /// kp's own: of IPv6 the first 64 bits, of IPv4 all.
    BinaryRemoteAddr64 = "binary_remote_addr_64",
    BodyBytesSent = "body_bytes_sent",
    BytesSent = "bytes_sent",
    Connection = "connection",
    ConnectionRequests = "connection_requests",
    ConnectionTime = "connection_time",
    ConnectionsActive = "connections_active",
    ConnectionsReading = "connections_reading",
    ConnectionsWaiting = "connections_waiting",
    ConnectionsWriting = "connections_writing",
    ContentLength = "content_length",
    ContentType = "content_type",
    DocumentRoot = "document_root",
    DocumentUri = "document_uri",
    /// `-`: kp does not compress.
    GzipRatio = "gzip_ratio",
    Host = "host",
    Hostname = "hostname",
    /// Empty: kp does not speak it.
    Http2 = "http2",
    /// Empty: kp does not speak it.
    Http3 = "http3",
    Https = "https",
    IsArgs = "is_args",
    IsRequestPort = "is_request_port",
    KpVersion = "kp_version",
    LimitConnStatus = "limit_conn_status",
    LimitRate = "limit_rate",
    LimitReqStatus = "limit_req_status",
    Msec = "msec",
    NginxVersion = "nginx_version",
    ParentId = "parent_id",
    Pid = "pid",
    Pipe = "pipe",
    ProxyAddXForwardedFor = "proxy_add_x_forwarded_for",
    ProxyHost = "proxy_host",
    ProxyPort = "proxy_port",
    ProxyProtocolAddr = "proxy_protocol_addr",
    ProxyProtocolPort = "proxy_protocol_port",
    ProxyProtocolServerAddr = "proxy_protocol_server_addr",
    ProxyProtocolServerPort = "proxy_protocol_server_port",
    QueryString = "query_string",
    RealipRemoteAddr = "realip_remote_addr",
    RealipRemotePort = "realip_remote_port",
    RealpathRoot = "realpath_root",
    RemoteAddr = "remote_addr",
    RemotePort = "remote_port",
    RemoteUser = "remote_user",
    Request = "request",
    RequestBody = "request_body",
    RequestBodyFile = "request_body_file",
    RequestCompletion = "request_completion",
    RequestFilename = "request_filename",
    RequestId = "request_id",
    RequestLength = "request_length",
    RequestMethod = "request_method",
    RequestPort = "request_port",
    RequestTime = "request_time",
    RequestUri = "request_uri",
    Scheme = "scheme",
    ServerAddr = "server_addr",
    ServerName = "server_name",
    ServerPort = "server_port",
    ServerProtocol = "server_protocol",
    SpanId = "span_id",
    SslAlpnProtocol = "ssl_alpn_protocol",
    SslCipher = "ssl_cipher",
    SslCiphers = "ssl_ciphers",
    SslClientCert = "ssl_client_cert",
    SslClientEscapedCert = "ssl_client_escaped_cert",
    SslClientFingerprint = "ssl_client_fingerprint",
    SslClientIssuer = "ssl_client_i_dn",
    SslClientLegacyIssuer = "ssl_client_i_dn_legacy",
    SslClientRawCert = "ssl_client_raw_cert",
    SslClientSubject = "ssl_client_s_dn",
    SslClientLegacySubject = "ssl_client_s_dn_legacy",
    SslClientSerial = "ssl_client_serial",
    SslClientSigalg = "ssl_client_sigalg",
    SslClientEnd = "ssl_client_v_end",
    SslClientDaysLeft = "ssl_client_v_remain",
    SslClientStart = "ssl_client_v_start",
    SslClientVerify = "ssl_client_verify",
    SslCurve = "ssl_curve",
    SslCurves = "ssl_curves",
    SslEarlyData = "ssl_early_data",
    SslProtocol = "ssl_protocol",
    SslServerName = "ssl_server_name",
    SslSessionId = "ssl_session_id",
    SslSessionReused = "ssl_session_reused",
    SslSigalg = "ssl_sigalg",
    SslSigalgs = "ssl_sigalgs",
    Status = "status",
    TcpinfoRtt = "tcpinfo_rtt",
    TcpinfoRttvar = "tcpinfo_rttvar",
    TcpinfoSndCwnd = "tcpinfo_snd_cwnd",
    TcpinfoRcvSpace = "tcpinfo_rcv_space",
    TimeIso8601 = "time_iso8601",
    TimeLocal = "time_local",
    TraceFlags = "trace_flags",
    TraceId = "trace_id",
    UpstreamAddr = "upstream_addr",
    UpstreamBytesReceived = "upstream_bytes_received",
    UpstreamBytesSent = "upstream_bytes_sent",
    /// `-`: kp does not keep answers.
    UpstreamCacheStatus = "upstream_cache_status",
    UpstreamConnectTime = "upstream_connect_time",
    UpstreamHeaderTime = "upstream_header_time",
    UpstreamResponseLength = "upstream_response_length",
    UpstreamResponseTime = "upstream_response_time",
    UpstreamStatus = "upstream_status",
    /// kp's own: the documented token of why kp answered by itself or ended the request, `-` without one.
    FailureReason = "kp_reason",
    /// kp's own: the circumstances of that failure.
    FailureDetail = "kp_reason_detail",
    Uri = "uri",
}

/// A literal or a regular expression, as in `map`, `proxy_redirect`, `proxy_cookie_*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// A value with variables, compared as text.
    Text(Template),
    /// A regular expression of the configuration's table.
    Regex(RegexId),
}
