//! The table of reasons: one word for each way kp answers by itself or ends what it began.
//!
//! Decides the word, whose side it is on, what it means, what usually causes it and where to look. The words stand in
//! access logs as `$kp_reason`, in a metric's label, in a header (`kp_reason_header`) and in docs/reasons.md, which is
//! written from this table. Does not decide which cause has which
//! reason: that is [`crate::failure`]'s, and [`crate::early`]'s for connections that end before there is a request.
//!
//! A reason's number is the cell that counts it, in memory that old and new workers share during a reload: rows are
//! appended, never moved or reused, and a word never changes its meaning.

/// Who is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The client.
    Client,
    /// The upstream.
    Upstream,
    /// kp itself, its resources or its surroundings.
    Own,
    /// Nobody: the configuration asks for this answer.
    Config,
}

impl Side {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Client, Self::Upstream, Self::Own, Self::Config];

    /// Its number in shared memory, which is never 0.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The side of a number.
    pub fn of_number(number: u8) -> Option<Self> {
        let at = usize::from(number).checked_sub(1)?;
        Self::ALL.get(at).copied()
    }

    /// Its word in `$kp_reason_detail` and in a metric's label.
    pub fn token(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Own => "kp",
            Self::Config => "config",
        }
    }
}

/// One row.
struct Row {
    token: &'static str,
    side: Side,
    /// Empty: no directive decides it.
    directive: &'static str,
    meaning: &'static str,
    likely: &'static str,
    look_at: &'static str,
}

macro_rules! reasons {
    ($($variant:ident = $token:literal, $side:ident, $directive:literal;
       $meaning:literal;
       $likely:literal;
       $look_at:literal;)*) => {
        /// Why kp answered by itself, or ended what it began.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason { $(#[doc = concat!("`", $token, "`: ", $meaning)] $variant,)* }

        impl Reason {
            /// Every one, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn row(self) -> &'static Row {
                match self {
                    $(Self::$variant => &Row {
                        token: $token,
                        side: Side::$side,
                        directive: $directive,
                        meaning: $meaning,
                        likely: $likely,
                        look_at: $look_at,
                    },)*
                }
            }
        }
    };
}

reasons! {
    BadRequest = "bad_request", Client, "";
        "The request head is malformed, ambiguous, or framed in a way that could be read in two ways.";
        "A broken or hand-written client, a scanner, TLS or HTTP/2 spoken to a port without it, or an attempt to smuggle a request.";
        "The error log at `info` says what is wrong with which line.";
    BadVersion = "bad_version", Client, "";
        "The request line names an HTTP version that kp does not speak.";
        "A client that speaks HTTP/2 without having agreed on it, or a scanner.";
        "The error log at `info`.";
    UnknownCoding = "unknown_transfer_encoding", Client, "";
        "The request has a transfer coding other than chunked.";
        "A client that compresses with `Transfer-Encoding: gzip`, or an attempt to smuggle a request.";
        "The error log at `info`; the client's HTTP library.";
    ConnectMethod = "connect_method", Client, "";
        "The method is CONNECT or TRACE, which kp does not serve: it is no forward proxy.";
        "Somebody looks for open proxies, or a client has kp set as its forward proxy.";
        "`$remote_addr` and `$request` in the access log.";
    PlainHttp = "plain_http", Client, "listen";
        "Plain HTTP was spoken at a port with TLS; `error_page` catches it as 497.";
        "A link or a client with `http://` and the port of `https://`, or a load balancer in front that ends TLS itself.";
        "`listen … ssl` of the server, and what stands in front of kp.";
    ClientCertificate = "client_certificate", Client, "ssl_verify_client";
        "The client's certificate does not hold; `error_page` catches it as 495.";
        "It has expired, was revoked, or is signed by another authority than `ssl_client_certificate` holds.";
        "The error log at `info` says why; `$ssl_client_verify`, `$ssl_client_s_dn`, `$ssl_client_v_end`.";
    NoClientCertificate = "no_client_certificate", Client, "ssl_verify_client";
        "The client sent no certificate where it must; `error_page` catches it as 496.";
        "A client that was not given one, or does not find one that the server's list of authorities asks for.";
        "`ssl_client_certificate`; the client's own configuration.";
    Misdirected = "misdirected", Client, "ssl_verify_client";
        "The virtual host verifies clients, and the handshake of this connection was made for another one.";
        "A client that uses one connection for several names, or that sends another `Host` than its server name.";
        "`$ssl_server_name` beside `$host`.";
    TargetTooLong = "target_too_long", Client, "large_client_header_buffers";
        "The request line is longer than one of `large_client_header_buffers`.";
        "A form sent with GET, a token or a search in the query, a redirect that grows with every turn.";
        "`$request_length`; raise the limit only for those who need it.";
    HeadTooLarge = "head_too_large", Client, "large_client_header_buffers";
        "A field, or the whole head, is larger than `large_client_header_buffers`, or there are more than `max_headers`.";
        "Cookies that pile up, large tokens, proxies that add a field each.";
        "The error log at `info` names the field; `$request_length`; `max_headers`.";
    BodyTooLarge = "body_too_large", Client, "client_max_body_size";
        "The request body is, or is about to become, larger than `client_max_body_size`.";
        "An upload larger than anybody thought of when the limit was set.";
        "The error log has the size; `client_max_body_size` of the location.";
    BadBody = "bad_body", Client, "";
        "The chunks of the request body are malformed.";
        "A broken client, or an attempt to smuggle a request.";
        "The error log.";
    ClientHeadTimeout = "client_head_timeout", Client, "client_header_timeout";
        "The request head was not complete in time. Nothing is sent to a client that sent nothing.";
        "Connections that browsers open in advance; with many at once from few addresses, an attack that sends slowly.";
        "`$remote_addr`, `$request_time`; `client_header_timeout`.";
    ClientBodyTimeout = "client_body_timeout", Client, "client_body_timeout";
        "Nothing of the request body came for `client_body_timeout`.";
        "A client on a bad network, one that sent a wrong `Content-Length`, or an attack that sends slowly.";
        "`$request_length` beside `$http_content_length`; `client_body_timeout`.";
    ClientSendTimeout = "client_send_timeout", Client, "send_timeout";
        "The client took nothing of the response for `send_timeout`.";
        "A client that went out of reach, or that is paused with a response half read.";
        "`$body_bytes_sent`; `send_timeout`.";
    ClientTooSlow = "client_too_slow", Client, "client_min_rate";
        "The client sent its body slower than `client_min_rate`.";
        "A very slow network, or an attack that sends slowly.";
        "`$request_length`, `$request_time`; `client_min_rate`.";
    ClientReadsTooSlow = "client_reads_too_slow", Client, "send_min_rate";
        "The client took the response slower than `send_min_rate`.";
        "A very slow network, or an attack that reads slowly.";
        "`$body_bytes_sent`, `$request_time`; `send_min_rate`.";
    ClientGone = "client_gone", Client, "";
        "The client closed before it had its response. The request to the upstream is ended too.";
        "A user left the page; a client or a load balancer in front has a shorter timeout than kp; the answer took too long.";
        "`$request_time`: many at the same round value are somebody's timeout. `$upstream_header_time`; `proxy_ignore_client_abort`.";
    ClientCut = "client_cut", Client, "";
        "The client closed in the middle of its request: of the head, or of the body.";
        "An upload that was given up, a client that crashed, a scanner.";
        "`$request_length` beside `$http_content_length`.";
    Loop = "loop", Own, "proxy_pass";
        "The request carries this group's own `Via` token: it was here before.";
        "`proxy_pass` leads, perhaps over other proxies, back to kp itself.";
        "`$http_via`, `$upstream_addr`; the addresses of the group and of names in `proxy_pass`.";
    NoLivePeer = "no_live_upstreams", Upstream, "";
        "No peer of the group may be used.";
        "All of them rest after failures, are marked unhealthy or `down`, or the group's names have no addresses.";
        "The errors in the minutes before: they are the real reason. Failed attempts stand in `$upstream_status` of earlier lines; `max_fails`, `fail_timeout`, active checks.";
    QueueFull = "queue_full", Upstream, "queue";
        "Every peer of the group is at `max_conns`, and as many requests as `queue` allows wait already.";
        "More load than the group can take, or peers that became slower.";
        "`$upstream_response_time` of what does pass; `max_conns`, `queue`.";
    QueueTimeout = "queue_timeout", Upstream, "queue";
        "No peer of the group had a free place within the `timeout` of its `queue`.";
        "More load than the group can take, or peers that became slower.";
        "`$upstream_response_time` of what does pass; `max_conns`, `queue`.";
    ConnectFailed = "connect_failed", Upstream, "";
        "The peer refused the connection, or is not reachable.";
        "The service does not run, or not on this port; a firewall; a route that is gone; no local ports left.";
        "The error log has the system's words (`111: Connection refused`); `$upstream_addr`.";
    ConnectTimeout = "connect_timeout", Upstream, "proxy_connect_timeout";
        "No connection, its TLS handshake included, within `proxy_connect_timeout`.";
        "A host that is down, a firewall that drops packets, a peer whose queue of new connections is full.";
        "`$upstream_addr`, `$upstream_connect_time`; `phase` in `$kp_reason_detail` tells the connection from the handshake.";
    TlsHandshake = "upstream_tls_failed", Upstream, "";
        "The TLS handshake with the peer failed.";
        "The peer does not speak TLS on this port, knows no common version or cipher, wants a certificate, or does not know the name it is asked for.";
        "The error log says why; `proxy_ssl_protocols`, `proxy_ssl_server_name`, `proxy_ssl_certificate`.";
    TlsVerify = "upstream_certificate", Upstream, "proxy_ssl_verify";
        "The peer's certificate does not hold: its chain, its time, its name, or a revocation list speaks against it.";
        "It has expired, or is signed by an authority that is not in `proxy_ssl_trusted_certificate`, or is for another name than `proxy_ssl_name`.";
        "The error log says why, with OpenSSL's number.";
    OwnCertificate = "own_certificate", Own, "proxy_ssl_certificate";
        "The certificate or key that kp shows to upstreams, named by variables, cannot be loaded.";
        "The file is missing, cannot be read by the workers, or does not match its key.";
        "The error log names the file and says why.";
    StaleConnection = "stale_connection", Upstream, "";
        "A reused connection was closed by the peer before any byte of a response. A new one is tried without counting, where that is safe.";
        "The peer closes idle connections sooner than kp does.";
        "The peer's own keep-alive time; set `keepalive_timeout` of the group below it.";
    SendFailed = "upstream_send_failed", Upstream, "";
        "The peer broke the connection while the request was being sent.";
        "It crashed, was restarted, or refuses a body without reading it.";
        "The error log; the peer's own log at that moment.";
    SendTimeout = "upstream_send_timeout", Upstream, "proxy_send_timeout";
        "The peer took nothing of the request for `proxy_send_timeout`.";
        "A peer that hangs or is overloaded, or a network that drops packets.";
        "`$upstream_bytes_sent`; `proxy_send_timeout`.";
    UpstreamClosed = "upstream_closed", Upstream, "";
        "The peer closed before its response head was complete.";
        "It crashed on this request, was restarted, or ran out of memory.";
        "The peer's own log at that moment; `$upstream_header_time`.";
    UpstreamReset = "upstream_reset", Upstream, "";
        "The peer broke the connection before its response head was complete.";
        "It crashed or was killed, or something between broke the connection.";
        "The peer's own log at that moment; firewalls that forget connections.";
    UpstreamTimeout = "upstream_timeout", Upstream, "proxy_read_timeout";
        "Nothing of the response head came for `proxy_read_timeout`.";
        "The peer hangs, waits for something itself, or takes longer for such requests than the time allows.";
        "`$upstream_connect_time` (short: the peer is there, but slow); the peer's own log; `proxy_read_timeout`.";
    TryTimeout = "try_timeout", Upstream, "proxy_try_timeout";
        "The attempt came to no response head within `proxy_try_timeout`.";
        "One slow peer; or the time is below what such requests take.";
        "`$upstream_addr`, `$upstream_response_time`; `phase` in `$kp_reason_detail` says how far it came.";
    UpstreamInvalidHead = "upstream_invalid_header", Upstream, "";
        "The response head is malformed or ambiguous. Nothing of it reaches the client.";
        "Something that speaks no HTTP/1.1 at this address, a program that writes fields by hand, line breaks in a value.";
        "The error log says what is wrong with which line.";
    UpstreamHeadTooLarge = "upstream_head_too_large", Upstream, "";
        "The response head is larger than 64k.";
        "Cookies that pile up, or debugging information in fields.";
        "The error log; what the peer answers when it is asked without kp.";
    UpstreamStatus = "upstream_status", Upstream, "proxy_next_upstream";
        "The peer answered with a status that `proxy_next_upstream` lists, and another one is asked. Only the peer's last failure has this word.";
        "The peer says itself that it cannot serve.";
        "`$upstream_status`; the peer's own log.";
    BodyTruncated = "body_truncated", Upstream, "";
        "The peer closed before the response body was complete.";
        "It crashed or was restarted meanwhile, or told a wrong `Content-Length`.";
        "`$upstream_response_length`; the peer's own log at that moment.";
    BodyReset = "body_reset", Upstream, "";
        "The peer broke the connection before the response body was complete.";
        "It crashed or was killed, or something between broke the connection.";
        "`$upstream_response_length`; the peer's own log at that moment.";
    BodyTimeout = "body_timeout", Upstream, "proxy_read_timeout";
        "Nothing of the response body came for `proxy_read_timeout`.";
        "The peer hangs in the middle of its answer, or streams with long pauses.";
        "`$upstream_response_length`; for streams raise `proxy_read_timeout` of their location.";
    BodyInvalid = "body_invalid", Upstream, "";
        "The chunks of the response body are malformed.";
        "A program that writes chunks by hand.";
        "The error log.";
    TunnelTimeout = "tunnel_timeout", Upstream, "proxy_upgrade_timeout";
        "Nothing moved through an upgraded connection for `proxy_upgrade_timeout`.";
        "A WebSocket without pings whose client or server has nothing to say.";
        "`proxy_upgrade_timeout`; pings of the application.";
    BadTarget = "bad_target", Own, "proxy_pass";
        "`proxy_pass` with variables evaluated to something that is no address.";
        "A variable without a value.";
        "The error log has the value.";
    NameNotResolved = "name_not_resolved", Own, "";
        "`proxy_pass` with variables evaluated to a name that has no addresses, or that nobody answered for.";
        "A name that does not exist, or a name server that is not reachable.";
        "The error log has the name and the server's answer; `resolver`, `resolver_timeout`.";
    RedirectCycle = "redirect_cycle", Own, "";
        "More than ten rewrites and internal redirects.";
        "An `error_page`, `rewrite`, index or `X-Accel-Redirect` that leads to itself.";
        "The error log; `rewrite` and `error_page` of the location.";
    RateLimited = "rate_limited", Client, "limit_req";
        "Over the rate and burst of a `limit_req`; the status is `limit_req_status`, `Retry-After` comes with `limit_req_retry_after on`.";
        "A client that asks too often; many behind one address; a rate set for less than a page needs.";
        "The error log names the zone and the excess; `$limit_req_status`; try with `limit_req_dry_run`.";
    PlacesTaken = "connections_limited", Client, "limit_conn";
        "As many requests with one key as `limit_conn` allows are being worked on; the status is `limit_conn_status`.";
        "A client with many downloads at once; many behind one address; answers that became slow.";
        "The error log names the zone; `$limit_conn_status`; try with `limit_conn_dry_run`.";
    AccessDenied = "access_denied", Client, "deny";
        "The first of `allow` and `deny` that fits the client is a `deny`; or the location shows `status` or `metrics` to this host alone.";
        "Somebody who should not come; or the address is that of a proxy in front.";
        "`$remote_addr` beside `$realip_remote_addr`; `set_real_ip_from`.";
    TooManyActive = "too_many_active", Own, "max_active_requests";
        "`max_active_requests` are being worked on by all workers; sent with `Retry-After`.";
        "More load than was planned for, or upstreams that became slow.";
        "`$upstream_response_time` of what does pass; `max_active_requests`.";
    Overload = "overload", Own, "worker_connections";
        "Out of connections, buffers or descriptors; sent with `Retry-After`.";
        "More clients than `worker_connections`, or a limit of the system on open files.";
        "The error log; `worker_connections`, `worker_rlimit_nofile`.";
    OutOfMemory = "out_of_memory", Own, "worker_memory";
        "`worker_memory` is used up; sent with `Retry-After`.";
        "Many large requests or slow readers at once.";
        "`worker_memory`, `client_body_buffer_size`, `proxy_buffers`.";
    Internal = "internal", Own, "";
        "Something in kp or in the file system that cannot be explained to the client.";
        "A directory for bodies that cannot be written.";
        "The error log says what.";
    Shutdown = "shutdown", Own, "worker_shutdown_timeout";
        "`worker_shutdown_timeout` ended the exchange.";
        "A long download or a tunnel during a reload or at the end.";
        "`$request_time`; `worker_shutdown_timeout`.";
    FileError = "file_error", Own, "";
        "A file is there and cannot be opened or read, or became shorter while it was sent.";
        "A broken disk or network file system; a file that is overwritten in place instead of replaced.";
        "The error log at `crit` and `alert` has the path and the system's words.";
    FileForbidden = "file_forbidden", Own, "";
        "A file may not be read by the workers, or a directory has no index file.";
        "Permissions of the file or of a directory above it; a missing `index`.";
        "The error log has the path; the `user` of the workers.";
    FileNotFound = "file_not_found", Client, "";
        "There is no such file.";
        "A wrong link, a scanner, a `root` that is not the one that was meant.";
        "The error log has the path (`log_not_found`); `$request_filename`.";
    InternalLocation = "internal_location", Client, "internal";
        "The location is `internal` and was asked for from outside.";
        "Somebody guesses paths; or a `rewrite` that was meant to lead there is missing.";
        "`$request_uri`.";
    MethodNotAllowed = "method_not_allowed", Client, "";
        "The location serves files or a page of kp, which are only read.";
        "A form that is sent to the wrong address.";
        "`$request`; the location that answers.";
    PreconditionFailed = "precondition_failed", Client, "";
        "`If-Match` or `If-Unmodified-Since` does not fit the file.";
        "The file changed since the client saw it.";
        "`$http_if_match`, `$http_if_unmodified_since`.";
    RangeNotSatisfiable = "range_not_satisfiable", Client, "";
        "`Range` asks for bytes behind the end of the file.";
        "A download that is resumed after the file became shorter, or was complete already.";
        "`$http_range`.";
    NoNamedLocation = "no_named_location", Own, "";
        "`error_page` or `X-Accel-Redirect` names a `location @name` that is not there.";
        "A name that is written differently in two places.";
        "The error log; `error_page` of the location.";
    EmptyUri = "empty_uri", Own, "rewrite";
        "A `rewrite` made an empty URI.";
        "A capture that is empty.";
        "The error log.";
    RegexLimit = "regex_limit", Own, "";
        "A regular expression took more steps than one request may cost.";
        "A pattern with repetitions inside repetitions, such as `(a+)+`.";
        "The error log has the expression.";
    BadAccelRedirect = "bad_accel_redirect", Upstream, "";
        "`X-Accel-Redirect` names something that is no URI of this server, or an upstream for a request whose body was passed on already.";
        "The application puts in what a client sent, or a path with `..`; or it hands a POST on, and `proxy_request_buffering` is not on.";
        "`$upstream_http_x_accel_redirect`.";
    Intercepted = "upstream_intercepted", Upstream, "proxy_intercept_errors";
        "The upstream answered with an error, and `error_page` says what the client gets instead.";
        "The application's own errors.";
        "`$upstream_status`.";
    Return = "return", Config, "return";
        "A `return` answers.";
        "The configuration.";
        "`return` of the location or the server.";
    ReturnClose = "return_close", Config, "return";
        "A `return` of 444, 408 or 499 closes without an answer.";
        "The configuration.";
        "`return` of the location or the server.";
    RewriteRedirect = "rewrite_redirect", Config, "rewrite";
        "A `rewrite` redirects the client.";
        "The configuration.";
        "`rewrite` of the location or the server.";
    DirectoryRedirect = "directory_redirect", Config, "";
        "The path is a directory, and the client is sent to it with a slash.";
        "A link without the slash.";
        "`$request_uri`; `absolute_redirect`, `port_in_redirect` where the target is wrong.";
    PrefixRedirect = "prefix_redirect", Config, "location";
        "The path lacks only the slash at the end of a location with `proxy_pass`, and the client is sent there.";
        "A link without the slash.";
        "`$request_uri`; `location =` for the path where that is not wanted.";
    Page = "page", Config, "";
        "A page of kp itself: `metrics`, `stub_status`, `status`, `health`.";
        "Who watches kp.";
        "`$remote_addr`.";
    NotReady = "not_ready", Own, "";
        "`health` says that no requests should come here.";
        "This worker is shutting down, has no memory left, or the group that was asked for has no usable peer.";
        "The answer itself says why.";
    AcceptLimited = "accept_limited", Client, "limit_accept";
        "The address opened more connections than `limit_accept` allows; the connection was closed before a byte was read.";
        "A client that opens a connection for every request; many clients behind one address; a flood.";
        "The error log at `info` has the addresses and the zone; raise `rate` or `burst` where they are clients of yours.";
    OutOfDescriptors = "out_of_descriptors", Own, "worker_rlimit_nofile";
        "No descriptor was left for a new connection: it was accepted and closed, so that the client does not wait in vain.";
        "A limit on open files below twice `worker_connections` (a proxied request has two connections); files and logs take some, too.";
        "The error log at `crit` (`accept4() failed (24: Too many open files)`: `worker_rlimit_nofile`; 23: the whole system's, `fs.file-max`); the metric `kp_descriptors_open`.";
    ClientSilent = "client_silent", Client, "client_header_timeout";
        "Nothing came over a new connection within `client_header_timeout`. It is only counted.";
        "Connections that browsers open in advance: harmless. With many at once from few addresses, an attack that holds connections.";
        "The error log at `info` has the addresses; `worker_connections` if there are too many of them; `limit_accept`.";
    ProxyHeaderMissing = "proxy_header_missing", Client, "listen";
        "The address has `listen … proxy_protocol`, and the connection does not begin with a PROXY header.";
        "The load balancer does not send the header (its setting for the PROXY protocol), or somebody connects past it.";
        "The error log has the address and what came instead; the load balancer's setting; a `listen` without `proxy_protocol` for direct clients.";
    ProxyHeaderBroken = "proxy_header_broken", Client, "listen";
        "The connection begins with a PROXY header that cannot be read.";
        "Something between adds a header of its own to the one that is there, or writes it by hand; a version kp does not know; bytes that were changed on their way.";
        "The error log has the address and what is wrong.";
    ProxyHeaderTimeout = "proxy_header_timeout", Client, "client_header_timeout";
        "A PROXY header began and was not complete within `client_header_timeout`.";
        "A load balancer that stalls; an attack that sends slowly.";
        "The error log at `info` has the addresses; the load balancer's own log.";
    ProxyHeaderCut = "proxy_header_cut", Client, "";
        "The connection was closed within its PROXY header.";
        "A load balancer that was stopped at that moment; a scanner.";
        "The error log at `info` has the addresses.";
    ProxyUntrusted = "proxy_untrusted", Client, "set_real_ip_from";
        "The address has `listen … proxy_protocol`, and the connection comes from somebody whom `set_real_ip_from` does not name.";
        "A load balancer with a new address; somebody connects past it.";
        "The error log has the address; add it to `set_real_ip_from` if it is yours.";
    TlsSilent = "tls_silent", Client, "ssl_handshake_timeout";
        "Nothing came over a new connection to a port with TLS within `ssl_handshake_timeout`. It is only counted.";
        "Connections that browsers open in advance: harmless. With many at once from few addresses, an attack that holds connections.";
        "The error log at `info` has the addresses; without `ssl_handshake_timeout` it is the time of `client_header_timeout`; `limit_accept`.";
    TlsTimeout = "tls_timeout", Client, "ssl_handshake_timeout";
        "The client began a TLS handshake and did not complete it within `ssl_handshake_timeout`.";
        "A client that went out of reach; an attack that sends slowly; if it is always the same network, one that drops large packets (kp's certificates do not arrive).";
        "The error log at `info` has the addresses; a shorter chain in `ssl_certificate`, or the MTU on the way; without `ssl_handshake_timeout` it is the time of `client_header_timeout`.";
    TlsCut = "tls_cut", Client, "";
        "The client closed in the middle of a TLS handshake, without an alert that says why.";
        "A user left; a scanner; a client that does not like the certificate and does not say so; a load balancer that checks with half a handshake.";
        "The error log at `info` has the addresses (`104: Connection reset by peer`: it broke off); ask with `openssl s_client` whether the certificate is as it should be.";
    TlsVersion = "tls_version", Client, "ssl_protocols";
        "No version of TLS is spoken by both sides. kp speaks 1.2 and 1.3, and of them what `ssl_protocols` names.";
        "An old client (Android 4, Java 7, Windows 7 without updates) or device; a scanner that tries old versions.";
        "The error log at `info` has the addresses; `ssl_protocols`. There is no way to speak TLS 1.0 or 1.1 with kp.";
    TlsCipher = "tls_cipher", Client, "ssl_ciphers";
        "No cipher suite is known to both sides, or none that goes with the kind of key in `ssl_certificate`.";
        "An old client, or one that knows RSA only where the certificate has an ECDSA key; an `ssl_ciphers` that leaves too little.";
        "`ssl_ciphers`; a second `ssl_certificate` with an RSA key; a log with `$ssl_ciphers` of those who come through.";
    TlsGroup = "tls_group", Client, "ssl_ecdh_curve";
        "No group for the key exchange is known to both sides.";
        "An `ssl_ecdh_curve` that leaves too little; an old or very strict client.";
        "`ssl_ecdh_curve` (`auto` has all); a log with `$ssl_curves` of those who come through.";
    TlsSignature = "tls_signature", Client, "ssl_certificate";
        "The client knows no signature that the key of the certificate can make.";
        "A client that knows RSA only, and a certificate with an ECDSA key, or the other way round.";
        "A second `ssl_certificate` with the other kind of key.";
    TlsApplication = "tls_alpn", Client, "";
        "The client asks by ALPN for protocols that kp does not speak, and not for HTTP/1.1.";
        "A client that speaks HTTP/2 only (gRPC), a mail or ACME (`acme-tls/1`) client at the wrong port.";
        "The client's settings; kp offers `http/1.1`, `http/1.0`, `http/0.9`.";
    TlsOutdated = "tls_outdated", Client, "";
        "The client's hello lacks something that kp insists on, such as the extended master secret in TLS 1.2 or a key share in TLS 1.3.";
        "A very old or hand-written TLS library; a scanner.";
        "The error log at `info` names what is missing, and has the addresses.";
    TlsRefused = "tls_refused", Client, "ssl_reject_handshake";
        "The client asks for no name, or for one that is not served here, and `ssl_reject_handshake` is on.";
        "Scanners that go by address; a name that points here and has no server yet, or a misspelt `server_name`.";
        "The error log at `info` has the addresses; `server_name` of the servers at this address.";
    TlsNoCertificate = "tls_no_certificate", Own, "ssl_certificate";
        "There is no certificate for the name the client asks for: its variables name none, or the file cannot be loaded.";
        "A file that is missing, cannot be read by the workers, or does not match its key; a name that is not among the files.";
        "The error log at `error` names the file and says why; `ssl_certificate` of the server.";
    TlsUntrusted = "tls_untrusted", Client, "ssl_certificate";
        "The client refused the certificate: it does not know who signed it (alert `unknown_ca`).";
        "The intermediate certificates are missing in `ssl_certificate`; a self-signed certificate or an authority of your own that this client was not given.";
        "`openssl s_client -connect ADDRESS -servername NAME` says whether the chain is whole; if all clients do it, it is the chain, if one does, its trust store.";
    TlsExpired = "tls_expired", Client, "ssl_certificate";
        "The client refused the certificate: for it, it has expired (alert `certificate_expired`).";
        "The certificate has expired, or one in its chain; or the client's clock is wrong.";
        "`kp_certificate_expiry_timestamp_seconds`, the status page; `ssl_certificate` after a renewal: kp takes up changed files with `ssl_certificate_reload`, or at a reload.";
    TlsCertificateRefused = "tls_certificate_refused", Client, "ssl_certificate";
        "The client refused the certificate and did not say precisely why (alerts `bad_certificate`, `certificate_unknown`, `unsupported_certificate`, `certificate_revoked`).";
        "The name it asked for is not in the certificate, the chain is not trusted, or it pins another certificate. Many clients have one alert for all of these.";
        "The error log at `info` names the alert; `openssl s_client -connect ADDRESS -servername NAME`; the names in the certificate beside `server_name`.";
    TlsAlert = "tls_alert", Client, "";
        "The client ended the handshake with an alert that is not about the certificate.";
        "It found nothing acceptable in what was chosen (`handshake_failure`, `insufficient_security`), it was cancelled (`user_canceled`), or it found the messages wrong.";
        "The error log at `info` names the alert (RFC 8446 section 6.2), and has the addresses; the client's own log.";
    TlsClientCertificate = "tls_client_certificate", Client, "ssl_verify_client";
        "The client's certificate cannot be read, or the client could not prove that it has the key.";
        "A certificate and a key that do not belong together at the client; a kind of key that kp does not verify.";
        "The error log at `info` says why. A certificate that is missing, has expired or is not trusted is answered in HTTP: `no_client_certificate`, `client_certificate`.";
    TlsMalformed = "tls_malformed", Client, "";
        "What came over a connection to a port with TLS begins like TLS and is none.";
        "A scanner; another protocol at this port; a client that is broken.";
        "The error log at `info` says what is wrong, and has the addresses.";
    TlsViolation = "tls_violation", Client, "";
        "The client sent a TLS message that has no place there, or a record that does not decrypt.";
        "A broken TLS library; something between changes bytes; an attack; a client that wants to renegotiate, which kp does not.";
        "The error log at `info` says what is wrong, and has the addresses.";
    FastStop = "fast_stop", Own, "";
        "kp, or this worker, was told to end at once (TERM or INT), and the request was not complete.";
        "`kp -s stop`, a service manager or container runtime that sends TERM; somebody killed a worker.";
        "`kp -s quit`, or `stop_signal graceful`, lets requests finish first; the service manager's log says who stopped it.";
    Orphaned = "orphaned", Own, "";
        "The master process was gone, and its workers ended after 15 seconds, with this request under way.";
        "The master was killed (`kill -9`, out of memory).";
        "The error log (`the master process is gone`), the kernel's log; what runs now: `kp status`.";
}

/// Cells there are for counting reasons.
pub const REASONS_MAX: usize = 128;
const _: () = assert!(Reason::ALL.len() <= REASONS_MAX);

impl Reason {
    /// Its number, below [`REASONS_MAX`].
    pub fn index(self) -> u8 {
        self as u8
    }

    /// The reason of a number, as a cell in shared memory says it.
    pub fn of_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// The documented word: `$kp_reason`, a metric's label.
    pub fn token(self) -> &'static str {
        self.row().token
    }

    /// Who is to blame.
    pub fn side(self) -> Side {
        self.row().side
    }

    /// Whether something went wrong; an answer that the configuration asks for is none.
    pub fn is_failure(self) -> bool {
        self.side() != Side::Config
    }

    /// The directive whose time, limit or rule it was, where it is one.
    pub fn directive(self) -> Option<&'static str> {
        Some(self.row().directive).filter(|name| !name.is_empty())
    }

    /// What happened, in one or two sentences.
    pub fn meaning(self) -> &'static str {
        self.row().meaning
    }

    /// What usually causes it.
    pub fn likely(self) -> &'static str {
        self.row().likely
    }

    /// Which logs, variables and directives tell more.
    pub fn look_at(self) -> &'static str {
        self.row().look_at
    }
}

#[cfg(test)]
mod page;
mod status;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_lead_back() {
        for (number, &reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(usize::from(reason.index()), number);
            assert_eq!(Reason::of_index(reason.index()), Some(reason));
        }
        for side in Side::ALL {
            assert_eq!(Side::of_number(side.number()), Some(side));
        }
        assert_eq!((Side::of_number(0), Side::of_number(5)), (None, None));
        for phase in crate::Phase::ALL {
            assert_eq!(crate::Phase::of_index(phase.index()), Some(phase));
        }
        assert_eq!(Reason::of_index(127), None);
        assert_eq!(Reason::of_index(255), None);
    }

    /// A word can stand in a label, a header and a log without quotes, and is there once.
    #[test]
    fn words_are_plain_and_different() {
        let words: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.token()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        for word in words {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(word.bytes().all(plain), "{word}");
        }
    }

    /// Numbers are in shared memory during a reload: the rows that were there first stay where they are.
    #[test]
    fn numbers_stay() {
        for (reason, number) in [
            (Reason::BadRequest, 0),
            (Reason::ConnectFailed, 23),
            (Reason::Shutdown, 53),
            (Reason::NotReady, 72),
            (Reason::AcceptLimited, 73),
            (Reason::Orphaned, 100),
        ] {
            assert_eq!(reason.index(), number, "{}", reason.token());
        }
    }
}
