//! What can go wrong with an exchange, as one table.
//!
//! Decides for every cause: the status the client gets, whether another peer may be tried, whether it counts against
//! the peer, what becomes of the client connection, the documented token (docs/reasons.md), and the sentence and level
//! of the error log. Does not decide whether a retry is possible at this moment (tries, time, idempotency, the body):
//! that is `kp_upstream`'s and `step`'s, with [`Failure::retry`] as the input.

use kp_config::model::Level;
use kp_http::{HeadCause, HeadError};
use kp_upstream::{Outcome, retry};

/// A failure: what happened, and while doing what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// What the exchange was doing.
    pub phase: Phase,
    /// What happened.
    pub cause: Cause,
}

/// Who is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The upstream.
    Upstream,
    /// kp itself, its configuration or its resources.
    Own,
}

/// What the exchange was doing; in the error log as nginx's ` while …`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The request line is being read.
    RequestLine,
    /// The request's fields are being read.
    RequestHead,
    /// Routing and admission.
    Route,
    /// The request body is being taken.
    RequestBody,
    /// A peer is chosen and connected to.
    Connect,
    /// The TLS handshake with the peer is under way.
    Handshake,
    /// The request is being sent.
    SendRequest,
    /// The response head is awaited.
    AwaitHead,
    /// The response body is being read.
    ReadBody,
    /// The response is being sent to the client.
    SendResponse,
    /// A tunnel is open.
    Tunnel,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A request head that is malformed, ambiguous or framed badly.
    BadRequest,
    /// An HTTP version kp does not speak.
    BadVersion,
    /// A transfer coding kp does not know.
    UnknownCoding,
    /// CONNECT, which kp does not serve.
    ConnectMethod,
    /// Plain HTTP at a listener with TLS.
    PlainHttp,
    /// The client's certificate does not hold.
    ClientCertificate,
    /// The client has no certificate, and must.
    NoClientCertificate,
    /// A virtual host that verifies clients, asked for in a connection whose handshake was for another one.
    Misdirected,
    /// The request target is too long.
    TargetTooLong,
    /// The head is too large.
    HeadTooLarge,
    /// The body is, or is about to become, larger than `client_max_body_size`; with its size where it is known.
    BodyTooLarge(Option<u64>),
    /// Malformed chunks.
    BadBody,
    /// The request head did not arrive in time.
    ClientHeadTimeout,
    /// The request body did not arrive in time.
    ClientBodyTimeout,
    /// The client does not take the response.
    ClientSendTimeout,
    /// The client sends its request body below `client_min_rate`.
    ClientTooSlow,
    /// The client takes the response below `send_min_rate`.
    ClientReadsTooSlow,
    /// The client went away.
    ClientGone,
    /// The client went away in the middle of its request.
    ClientCut,
    /// The request already went through this group of processes.
    Loop,
    /// No peer of the group may be used.
    NoLivePeer,
    /// Every peer of the group is at `max_conns`, and so is its `queue`.
    QueueFull,
    /// No peer of the group had a free place within the time of its `queue`.
    QueueTimeout,
    /// The connection to the peer failed, with the system's error number.
    ConnectFailed(i32),
    /// The peer did not accept in time.
    ConnectTimeout,
    /// The TLS handshake with the peer failed.
    TlsHandshake,
    /// The peer's certificate does not hold.
    TlsVerify,
    /// kp's own certificate for upstreams, named by variables, cannot be loaded.
    OwnCertificate,
    /// A reused idle connection turned out to be closed before any byte of a response came.
    StaleConnection,
    /// The peer took no more of the request, with the system's error number.
    SendFailed(i32),
    /// The peer took nothing of the request for `proxy_send_timeout`.
    SendTimeout,
    /// The peer closed before its response head was complete.
    UpstreamClosed,
    /// The connection broke before the response head was complete, with the system's error number.
    UpstreamReset(i32),
    /// The response head did not come within `proxy_read_timeout`.
    UpstreamTimeout,
    /// The attempt did not get as far as a response head within `proxy_try_timeout`.
    TryTimeout,
    /// A response head that is malformed, ambiguous or framed badly.
    UpstreamInvalidHead,
    /// The response head is larger than kp takes.
    UpstreamHeadTooLarge,
    /// The peer answered with a status listed in `proxy_next_upstream`.
    UpstreamStatus(u16),
    /// The peer closed in the middle of the body.
    BodyTruncated,
    /// The connection broke in the middle of the body, with the system's error number.
    BodyReset(i32),
    /// The peer sent nothing of the body for `proxy_read_timeout`.
    BodyTimeout,
    /// The body's chunks are malformed.
    BodyInvalid,
    /// Nothing moved through a tunnel for `proxy_upgrade_timeout`.
    TunnelTimeout,
    /// `proxy_pass` evaluated to something that is no usable address.
    BadTarget,
    /// The name that `proxy_pass` evaluated to was not found: the code of the answer, or `ETIMEDOUT`.
    NameNotResolved(u16),
    /// More than ten internal redirects.
    RedirectCycle,
    /// Over the rate of a `limit_req`; its status and how loud it is.
    RateLimited {
        /// `limit_req_status`.
        status: u16,
        /// `limit_req_log_level`.
        level: Level,
    },
    /// As many requests as a `limit_conn` allows are being worked on.
    PlacesTaken {
        /// `limit_conn_status`.
        status: u16,
        /// `limit_conn_log_level`.
        level: Level,
    },
    /// Refused by `deny`.
    AccessDenied,
    /// `max_active_requests` are being worked on.
    TooManyActive,
    /// Out of connections, buffers or descriptors.
    Overload,
    /// `worker_memory` is used up.
    OutOfMemory,
    /// Something that cannot be explained to the client: a regular expression over its step limit, a file error.
    Internal,
    /// `worker_shutdown_timeout` ended the exchange.
    Shutdown,
}

/// What becomes of the client connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It stays, as it would after a success.
    Keep,
    /// It is closed after the answer.
    Close,
    /// No answer can be given: it ends at once, so that a truncated body is never taken for a whole one.
    Abort,
    /// It is gone already.
    Gone,
}

/// Error numbers that need a name here; the values are Linux's.
const ETIMEDOUT: i32 = 110;

/// Error numbers a peer can cause; anything else on connect is `crit`, as in nginx: EPIPE, ECONNRESET, ENOTCONN,
/// ETIMEDOUT, ECONNREFUSED, ENETDOWN, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH.
const ORDINARY: [i32; 9] = [32, 104, 107, ETIMEDOUT, 111, 100, 101, 112, 113];

impl Failure {
    /// Puts a cause and a phase together.
    pub fn new(phase: Phase, cause: Cause) -> Self {
        Self { phase, cause }
    }

    /// Who is to blame.
    pub fn side(&self) -> Side {
        match self.cause {
            Cause::BadRequest
            | Cause::BadVersion
            | Cause::UnknownCoding
            | Cause::ConnectMethod
            | Cause::PlainHttp
            | Cause::ClientCertificate
            | Cause::NoClientCertificate
            | Cause::Misdirected
            | Cause::TargetTooLong
            | Cause::HeadTooLarge
            | Cause::BodyTooLarge(_)
            | Cause::BadBody
            | Cause::ClientHeadTimeout
            | Cause::ClientBodyTimeout
            | Cause::ClientSendTimeout
            | Cause::ClientTooSlow
            | Cause::ClientReadsTooSlow
            | Cause::ClientGone
            | Cause::RateLimited { .. }
            | Cause::PlacesTaken { .. }
            | Cause::AccessDenied
            | Cause::ClientCut => Side::Client,
            Cause::NoLivePeer
            | Cause::QueueFull
            | Cause::QueueTimeout
            | Cause::ConnectFailed(_)
            | Cause::ConnectTimeout
            | Cause::TlsHandshake
            | Cause::TlsVerify
            | Cause::StaleConnection
            | Cause::SendFailed(_)
            | Cause::SendTimeout
            | Cause::UpstreamClosed
            | Cause::UpstreamReset(_)
            | Cause::UpstreamTimeout
            | Cause::TryTimeout
            | Cause::UpstreamInvalidHead
            | Cause::UpstreamHeadTooLarge
            | Cause::UpstreamStatus(_)
            | Cause::BodyTruncated
            | Cause::BodyReset(_)
            | Cause::BodyTimeout
            | Cause::BodyInvalid
            | Cause::TunnelTimeout => Side::Upstream,
            Cause::Loop
            | Cause::OwnCertificate
            | Cause::BadTarget
            | Cause::NameNotResolved(_)
            | Cause::RedirectCycle
            | Cause::TooManyActive
            | Cause::Overload
            | Cause::OutOfMemory
            | Cause::Internal
            | Cause::Shutdown => Side::Own,
        }
    }

    /// The status the client gets, or the log alone where nothing can be sent any more; 0: the status already sent stays.
    pub fn status(&self) -> u16 {
        match self.cause {
            // As in nginx: what the client broke off itself is its bad request, not 499.
            Cause::BadRequest | Cause::BadBody | Cause::ClientCut => 400,
            Cause::ConnectMethod => 405,
            Cause::PlainHttp => 497,
            Cause::ClientCertificate => 495,
            Cause::NoClientCertificate => 496,
            Cause::AccessDenied => 403,
            Cause::RateLimited { status, .. } | Cause::PlacesTaken { status, .. } => status,
            Cause::Misdirected => 421,
            Cause::ClientHeadTimeout | Cause::ClientBodyTimeout | Cause::ClientTooSlow => 408,
            Cause::BodyTooLarge(_) => 413,
            Cause::TargetTooLong => 414,
            Cause::HeadTooLarge => 431,
            Cause::ClientGone => 499,
            Cause::OwnCertificate | Cause::BadTarget | Cause::RedirectCycle | Cause::Internal => {
                500
            }
            Cause::UnknownCoding => 501,
            Cause::NoLivePeer
            | Cause::ConnectFailed(_)
            | Cause::TlsHandshake
            | Cause::TlsVerify
            | Cause::StaleConnection
            | Cause::SendFailed(_)
            | Cause::UpstreamClosed
            | Cause::UpstreamReset(_)
            | Cause::UpstreamInvalidHead
            | Cause::UpstreamHeadTooLarge
            | Cause::NameNotResolved(_) => 502,
            Cause::QueueFull
            | Cause::QueueTimeout
            | Cause::TooManyActive
            | Cause::Overload
            | Cause::OutOfMemory => 503,
            Cause::ConnectTimeout
            | Cause::SendTimeout
            | Cause::UpstreamTimeout
            | Cause::TryTimeout => 504,
            Cause::BadVersion => 505,
            Cause::Loop => 508,
            Cause::UpstreamStatus(status) => status,
            Cause::ClientSendTimeout
            | Cause::ClientReadsTooSlow
            | Cause::BodyTruncated
            | Cause::BodyReset(_)
            | Cause::BodyTimeout
            | Cause::BodyInvalid
            | Cause::TunnelTimeout
            | Cause::Shutdown => 0,
        }
    }

    /// What the rules of `proxy_next_upstream` are asked with; `None`: another peer is never tried.
    pub fn retry(&self) -> Option<retry::Failure> {
        match self.cause {
            Cause::StaleConnection => Some(retry::Failure::Stale),
            Cause::NoLivePeer | Cause::QueueFull | Cause::QueueTimeout => {
                Some(retry::Failure::NoLivePeer)
            }
            Cause::ConnectFailed(_)
            | Cause::TlsHandshake
            | Cause::TlsVerify
            | Cause::SendFailed(_)
            | Cause::UpstreamClosed
            | Cause::UpstreamReset(_) => Some(retry::Failure::Error),
            Cause::ConnectTimeout
            | Cause::SendTimeout
            | Cause::UpstreamTimeout
            | Cause::TryTimeout => Some(retry::Failure::Timeout),
            Cause::UpstreamInvalidHead | Cause::UpstreamHeadTooLarge => {
                Some(retry::Failure::InvalidHeader)
            }
            Cause::UpstreamStatus(status) => Some(retry::Failure::Status(status)),
            Cause::BadRequest
            | Cause::BadVersion
            | Cause::UnknownCoding
            | Cause::ConnectMethod
            | Cause::PlainHttp
            | Cause::ClientCertificate
            | Cause::NoClientCertificate
            | Cause::Misdirected
            | Cause::TargetTooLong
            | Cause::HeadTooLarge
            | Cause::BodyTooLarge(_)
            | Cause::BadBody
            | Cause::ClientHeadTimeout
            | Cause::ClientBodyTimeout
            | Cause::ClientSendTimeout
            | Cause::ClientTooSlow
            | Cause::ClientReadsTooSlow
            | Cause::ClientGone
            | Cause::ClientCut
            | Cause::Loop
            | Cause::BodyTruncated
            | Cause::BodyReset(_)
            | Cause::BodyTimeout
            | Cause::BodyInvalid
            | Cause::TunnelTimeout
            | Cause::OwnCertificate
            | Cause::BadTarget
            | Cause::NameNotResolved(_)
            | Cause::RedirectCycle
            | Cause::RateLimited { .. }
            | Cause::PlacesTaken { .. }
            | Cause::AccessDenied
            | Cause::TooManyActive
            | Cause::Overload
            | Cause::OutOfMemory
            | Cause::Internal
            | Cause::Shutdown => None,
        }
    }

    /// Whether a retry after it costs the group nothing, so that no `retry_budget` is asked for it: no request reached the
    /// peer.
    pub fn is_free(&self) -> bool {
        matches!(
            self.cause,
            Cause::ConnectFailed(_)
                | Cause::ConnectTimeout
                | Cause::TlsHandshake
                | Cause::TlsVerify
                | Cause::StaleConnection
        )
    }

    /// What it says about the peer that was being asked. As in nginx, a body that breaks off does not count against it:
    /// it answered. `retried`: another attempt follows.
    pub fn peer_mark(&self, retried: bool) -> Outcome {
        match self.retry() {
            Some(kind) => retry::outcome(kind, retried),
            None if self.side() == Side::Upstream => Outcome::Ok,
            None => Outcome::NotCounted,
        }
    }

    /// What becomes of the client connection.
    pub fn after(&self) -> After {
        match self.cause {
            Cause::BadRequest
            | Cause::BadVersion
            | Cause::UnknownCoding
            | Cause::ConnectMethod
            | Cause::PlainHttp
            | Cause::ClientCertificate
            | Cause::NoClientCertificate
            | Cause::TargetTooLong
            | Cause::HeadTooLarge
            | Cause::BodyTooLarge(_)
            | Cause::BadBody
            | Cause::ClientHeadTimeout
            | Cause::ClientBodyTimeout
            | Cause::ClientTooSlow
            | Cause::BadTarget
            | Cause::RedirectCycle
            | Cause::Overload
            | Cause::OutOfMemory
            | Cause::Internal => After::Close,
            Cause::Misdirected
            | Cause::RateLimited { .. }
            | Cause::PlacesTaken { .. }
            | Cause::AccessDenied
            | Cause::TooManyActive
            | Cause::Loop
            | Cause::NoLivePeer
            | Cause::QueueFull
            | Cause::QueueTimeout
            | Cause::ConnectFailed(_)
            | Cause::ConnectTimeout
            | Cause::TlsHandshake
            | Cause::TlsVerify
            | Cause::OwnCertificate
            | Cause::StaleConnection
            | Cause::SendFailed(_)
            | Cause::SendTimeout
            | Cause::UpstreamClosed
            | Cause::UpstreamReset(_)
            | Cause::UpstreamTimeout
            | Cause::TryTimeout
            | Cause::UpstreamInvalidHead
            | Cause::UpstreamHeadTooLarge
            | Cause::UpstreamStatus(_)
            | Cause::NameNotResolved(_) => After::Keep,
            Cause::ClientSendTimeout
            | Cause::ClientReadsTooSlow
            | Cause::BodyTruncated
            | Cause::BodyReset(_)
            | Cause::BodyTimeout
            | Cause::BodyInvalid
            | Cause::TunnelTimeout
            | Cause::Shutdown => After::Abort,
            Cause::ClientGone | Cause::ClientCut => After::Gone,
        }
    }

    /// The documented token: `$kp_reason`, a metric label. Listed in docs/reasons.md.
    pub fn token(&self) -> &'static str {
        match self.cause {
            Cause::BadRequest => "bad_request",
            Cause::BadVersion => "bad_version",
            Cause::UnknownCoding => "unknown_transfer_encoding",
            Cause::ConnectMethod => "connect_method",
            Cause::PlainHttp => "plain_http",
            Cause::ClientCertificate => "client_certificate",
            Cause::NoClientCertificate => "no_client_certificate",
            Cause::Misdirected => "misdirected",
            Cause::TargetTooLong => "target_too_long",
            Cause::HeadTooLarge => "head_too_large",
            Cause::BodyTooLarge(_) => "body_too_large",
            Cause::BadBody => "bad_body",
            Cause::ClientHeadTimeout => "client_head_timeout",
            Cause::ClientBodyTimeout => "client_body_timeout",
            Cause::ClientSendTimeout => "client_send_timeout",
            Cause::ClientTooSlow => "client_too_slow",
            Cause::ClientReadsTooSlow => "client_reads_too_slow",
            Cause::ClientGone => "client_gone",
            Cause::ClientCut => "client_cut",
            Cause::Loop => "loop",
            Cause::NoLivePeer => "no_live_upstreams",
            Cause::QueueFull => "queue_full",
            Cause::QueueTimeout => "queue_timeout",
            Cause::ConnectFailed(_) => "connect_failed",
            Cause::ConnectTimeout => "connect_timeout",
            Cause::TlsHandshake => "upstream_tls_failed",
            Cause::TlsVerify => "upstream_certificate",
            Cause::OwnCertificate => "own_certificate",
            Cause::StaleConnection => "stale_connection",
            Cause::SendFailed(_) => "upstream_send_failed",
            Cause::SendTimeout => "upstream_send_timeout",
            Cause::UpstreamClosed => "upstream_closed",
            Cause::UpstreamReset(_) => "upstream_reset",
            Cause::UpstreamTimeout => "upstream_timeout",
            Cause::TryTimeout => "try_timeout",
            Cause::UpstreamInvalidHead => "upstream_invalid_header",
            Cause::UpstreamHeadTooLarge => "upstream_head_too_large",
            Cause::UpstreamStatus(_) => "upstream_status",
            Cause::BodyTruncated => "body_truncated",
            Cause::BodyReset(_) => "body_reset",
            Cause::BodyTimeout => "body_timeout",
            Cause::BodyInvalid => "body_invalid",
            Cause::TunnelTimeout => "tunnel_timeout",
            Cause::BadTarget => "bad_target",
            Cause::NameNotResolved(_) => "name_not_resolved",
            Cause::RedirectCycle => "redirect_cycle",
            Cause::RateLimited { .. } => "rate_limited",
            Cause::PlacesTaken { .. } => "connections_limited",
            Cause::AccessDenied => "access_denied",
            Cause::TooManyActive => "too_many_active",
            Cause::Overload => "overload",
            Cause::OutOfMemory => "out_of_memory",
            Cause::Internal => "internal",
            Cause::Shutdown => "shutdown",
        }
    }

    /// How loud it is in the error log.
    pub fn level(&self) -> Level {
        match self.cause {
            Cause::BadRequest
            | Cause::BadVersion
            | Cause::UnknownCoding
            | Cause::ConnectMethod
            | Cause::PlainHttp
            | Cause::ClientCertificate
            | Cause::NoClientCertificate
            | Cause::Misdirected
            | Cause::TargetTooLong
            | Cause::HeadTooLarge
            | Cause::ClientHeadTimeout
            | Cause::ClientBodyTimeout
            | Cause::ClientSendTimeout
            | Cause::ClientTooSlow
            | Cause::ClientReadsTooSlow
            | Cause::ClientGone
            | Cause::ClientCut
            | Cause::TunnelTimeout
            | Cause::StaleConnection
            | Cause::UpstreamStatus(_) => Level::Info,
            Cause::RateLimited { level, .. } | Cause::PlacesTaken { level, .. } => level,
            Cause::Shutdown => Level::Notice,
            Cause::ConnectFailed(errno) if !ORDINARY.contains(&errno) => Level::Crit,
            Cause::BodyTooLarge(_)
            | Cause::BadBody
            | Cause::Loop
            | Cause::NoLivePeer
            | Cause::QueueFull
            | Cause::QueueTimeout
            | Cause::ConnectFailed(_)
            | Cause::ConnectTimeout
            | Cause::TlsHandshake
            | Cause::TlsVerify
            | Cause::OwnCertificate
            | Cause::SendFailed(_)
            | Cause::SendTimeout
            | Cause::UpstreamClosed
            | Cause::UpstreamReset(_)
            | Cause::UpstreamTimeout
            | Cause::TryTimeout
            | Cause::UpstreamInvalidHead
            | Cause::UpstreamHeadTooLarge
            | Cause::BodyTruncated
            | Cause::BodyReset(_)
            | Cause::BodyTimeout
            | Cause::BodyInvalid
            | Cause::BadTarget
            | Cause::NameNotResolved(_)
            | Cause::RedirectCycle
            | Cause::AccessDenied
            | Cause::TooManyActive
            | Cause::Overload
            | Cause::OutOfMemory
            | Cause::Internal => Level::Error,
        }
    }

    /// A request head that could not be taken; [`HeadError`]'s text is the detail for the log.
    pub fn request_head(error: &HeadError) -> Self {
        let phase = match error.cause() {
            HeadCause::BadMethod
            | HeadCause::BadRequestLine
            | HeadCause::BadTarget
            | HeadCause::BadVersion
            | HeadCause::UnsupportedVersion
            | HeadCause::TargetTooLong => Phase::RequestLine,
            _ => Phase::RequestHead,
        };
        let cause = match error.status() {
            414 => Cause::TargetTooLong,
            431 => Cause::HeadTooLarge,
            501 => Cause::UnknownCoding,
            505 => Cause::BadVersion,
            _ => Cause::BadRequest,
        };
        Self { phase, cause }
    }

    /// A response head that could not be taken.
    pub fn response_head(error: &HeadError) -> Self {
        let cause = match error.cause() {
            HeadCause::FieldTooLarge | HeadCause::HeadTooLarge | HeadCause::TooManyFields => {
                Cause::UpstreamHeadTooLarge
            }
            _ => Cause::UpstreamInvalidHead,
        };
        Self {
            phase: Phase::AwaitHead,
            cause,
        }
    }

    /// Appends the error log's sentence in nginx's words, ` while …` included; `detail` says what was wrong where the
    /// reporter knows it (text of a [`HeadError`], a name that is no group), or is empty.
    pub fn write_text(&self, detail: &str, out: &mut String) {
        let noun = match self.cause {
            Cause::BadRequest
            | Cause::BadVersion
            | Cause::UnknownCoding
            | Cause::TargetTooLong
            | Cause::HeadTooLarge => Some("client sent "),
            Cause::UpstreamInvalidHead => Some("upstream sent "),
            Cause::TlsHandshake | Cause::TlsVerify | Cause::OwnCertificate => Some(""),
            _ => None,
        };
        match noun {
            // What was sent is the detail itself.
            Some(subject) if !detail.is_empty() => {
                out.push_str(subject);
                out.push_str(detail);
            }
            _ => self.write_sentence(detail, out),
        }
        if let Some(errno) = self.errno() {
            write_errno(errno, out);
        }
        let action = self.phase.action();
        if !action.is_empty() {
            out.push_str(" while ");
            out.push_str(action);
        }
    }

    fn write_sentence(&self, detail: &str, out: &mut String) {
        if let Cause::NameNotResolved(code) = self.cause {
            out.push_str(if detail.is_empty() { "a name" } else { detail });
            out.push(' ');
            out.push_str(self.sentence());
            out.push_str(" (");
            out.push_str(itoa::Buffer::new().format(code));
            out.push_str(resolver_words(code));
            out.push(')');
            return;
        }
        out.push_str(self.sentence());
        match self.cause {
            Cause::BodyTooLarge(Some(bytes)) => {
                out.push_str(": ");
                out.push_str(itoa::Buffer::new().format(bytes));
                out.push_str(" bytes");
            }
            Cause::UpstreamStatus(status) => {
                out.push(' ');
                out.push_str(itoa::Buffer::new().format(status));
            }
            _ => {}
        }
        if !detail.is_empty() {
            out.push_str(match self.cause {
                // The detail is the rest of the sentence.
                Cause::RateLimited { .. } | Cause::PlacesTaken { .. } => "",
                _ => ": ",
            });
            out.push_str(detail);
        }
    }

    fn sentence(&self) -> &'static str {
        match self.cause {
            Cause::BadRequest => "client sent invalid request",
            Cause::BadVersion => "client sent invalid version",
            Cause::UnknownCoding => "client sent unknown \"Transfer-Encoding\"",
            Cause::ConnectMethod => "client sent CONNECT or TRACE method",
            Cause::PlainHttp => "client sent plain HTTP request to HTTPS port",
            Cause::ClientCertificate => "client SSL certificate verify error",
            Cause::NoClientCertificate => "client sent no required SSL certificate",
            Cause::Misdirected => {
                "client attempted to request the server name different from the one that was negotiated"
            }
            Cause::TargetTooLong => "client sent too long URI",
            Cause::HeadTooLarge => "client sent too large request",
            Cause::BodyTooLarge(Some(_)) => "client intended to send too large body",
            Cause::BodyTooLarge(None) => "client intended to send too large chunked body",
            Cause::BadBody => "client sent invalid chunked body",
            Cause::ClientHeadTimeout | Cause::ClientBodyTimeout | Cause::ClientSendTimeout => {
                "client timed out"
            }
            Cause::ClientTooSlow => "client sends slower than client_min_rate",
            Cause::ClientReadsTooSlow => "client reads slower than send_min_rate",
            Cause::ClientGone => self.phase.client_left(),
            Cause::ClientCut => "client prematurely closed connection",
            Cause::Loop => "request came back to this proxy",
            Cause::NoLivePeer => "no live upstreams",
            Cause::QueueFull => "upstream queue is full",
            Cause::QueueTimeout => "upstream queue timed out",
            Cause::ConnectFailed(_) => "connect() failed",
            Cause::TlsHandshake => "SSL_do_handshake() failed",
            Cause::TlsVerify => "upstream SSL certificate verify error",
            Cause::OwnCertificate => "cannot load certificate",
            Cause::StaleConnection => "upstream closed keepalive connection",
            Cause::SendFailed(_) => "send() failed",
            Cause::ConnectTimeout
            | Cause::SendTimeout
            | Cause::UpstreamTimeout
            | Cause::TryTimeout
            | Cause::BodyTimeout
            | Cause::TunnelTimeout => "upstream timed out",
            Cause::UpstreamClosed | Cause::BodyTruncated => {
                "upstream prematurely closed connection"
            }
            Cause::UpstreamReset(_) | Cause::BodyReset(_) => "recv() failed",
            Cause::UpstreamInvalidHead => "upstream sent invalid header",
            Cause::UpstreamHeadTooLarge => "upstream sent too big header",
            Cause::UpstreamStatus(_) => "upstream answered with status",
            Cause::BodyInvalid => "upstream sent invalid chunked response",
            Cause::BadTarget => "invalid URL",
            Cause::NameNotResolved(_) => "could not be resolved",
            Cause::RedirectCycle => "rewrite or internal redirection cycle",
            Cause::OutOfMemory => "worker_memory is not enough",
            Cause::RateLimited { .. } => "limiting requests",
            Cause::PlacesTaken { .. } => "limiting connections",
            Cause::AccessDenied => "access forbidden by rule",
            Cause::TooManyActive => "max_active_requests are not enough",
            Cause::Overload => "worker connections or buffers are not enough",
            Cause::Internal => "request could not be processed",
            Cause::Shutdown => "worker shutdown timeout, exchange is ended",
        }
    }

    fn errno(&self) -> Option<i32> {
        match self.cause {
            Cause::ConnectFailed(errno)
            | Cause::SendFailed(errno)
            | Cause::UpstreamReset(errno)
            | Cause::BodyReset(errno) => Some(errno),
            Cause::ClientHeadTimeout
            | Cause::ClientBodyTimeout
            | Cause::ClientSendTimeout
            | Cause::ConnectTimeout
            | Cause::SendTimeout
            | Cause::UpstreamTimeout
            | Cause::TryTimeout
            | Cause::BodyTimeout
            | Cause::TunnelTimeout => Some(ETIMEDOUT),
            _ => None,
        }
    }
}

impl Phase {
    /// A client that left, and what it takes along.
    fn client_left(self) -> &'static str {
        match self {
            Self::Connect
            | Self::Handshake
            | Self::SendRequest
            | Self::AwaitHead
            | Self::ReadBody
            | Self::SendResponse => {
                "client prematurely closed connection, so upstream connection is closed too"
            }
            _ => "client prematurely closed connection",
        }
    }

    /// nginx's name of it; empty where nginx says nothing.
    pub fn action(self) -> &'static str {
        match self {
            Self::RequestLine => "reading client request line",
            Self::RequestHead => "reading client request headers",
            Self::Route | Self::RequestBody => "",
            Self::Connect => "connecting to upstream",
            Self::Handshake => "SSL handshaking to upstream",
            Self::SendRequest => "sending request to upstream",
            Self::AwaitHead => "reading response header from upstream",
            Self::ReadBody => "reading upstream",
            Self::SendResponse => "sending to client",
            Self::Tunnel => "proxying upgraded connection",
        }
    }
}

/// nginx's words for a name server's code.
fn resolver_words(code: u16) -> &'static str {
    match code {
        1 => ": Format error",
        2 => ": Server failure",
        3 => ": Host not found",
        4 => ": Unimplemented",
        5 => ": Operation refused",
        110 => ": Operation timed out",
        _ => ": Unknown error",
    }
}

/// Appends ` (111: Connection refused)`.
fn write_errno(errno: i32, out: &mut String) {
    out.push_str(" (");
    out.push_str(itoa::Buffer::new().format(errno));
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    // The standard library appends the number in its own form; the log line has it in front.
    let text = text.split(" (os error").next().unwrap_or_default();
    out.push_str(": ");
    out.push_str(text);
    out.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_http::{HeadLimits, HeadReader, Method};
    use std::collections::BTreeSet;

    /// One of each, with the phase it usually comes in.
    const ALL: [(Phase, Cause); 54] = [
        (Phase::RequestHead, Cause::BadRequest),
        (Phase::RequestLine, Cause::BadVersion),
        (Phase::RequestHead, Cause::UnknownCoding),
        (Phase::RequestHead, Cause::ConnectMethod),
        (Phase::RequestHead, Cause::PlainHttp),
        (Phase::RequestHead, Cause::ClientCertificate),
        (Phase::RequestHead, Cause::NoClientCertificate),
        (Phase::RequestHead, Cause::Misdirected),
        (Phase::RequestLine, Cause::TargetTooLong),
        (Phase::RequestHead, Cause::HeadTooLarge),
        (Phase::RequestBody, Cause::BodyTooLarge(Some(30))),
        (Phase::RequestBody, Cause::BadBody),
        (Phase::RequestHead, Cause::ClientHeadTimeout),
        (Phase::RequestBody, Cause::ClientBodyTimeout),
        (Phase::SendResponse, Cause::ClientSendTimeout),
        (Phase::RequestBody, Cause::ClientTooSlow),
        (Phase::SendResponse, Cause::ClientReadsTooSlow),
        (Phase::AwaitHead, Cause::ClientGone),
        (Phase::RequestBody, Cause::ClientCut),
        (Phase::Route, Cause::Loop),
        (Phase::Connect, Cause::NoLivePeer),
        (Phase::Connect, Cause::QueueFull),
        (Phase::Connect, Cause::QueueTimeout),
        (Phase::Connect, Cause::ConnectFailed(111)),
        (Phase::Connect, Cause::ConnectTimeout),
        (Phase::Handshake, Cause::TlsHandshake),
        (Phase::Handshake, Cause::TlsVerify),
        (Phase::Handshake, Cause::OwnCertificate),
        (Phase::AwaitHead, Cause::StaleConnection),
        (Phase::SendRequest, Cause::SendFailed(32)),
        (Phase::SendRequest, Cause::SendTimeout),
        (Phase::AwaitHead, Cause::UpstreamClosed),
        (Phase::AwaitHead, Cause::UpstreamReset(104)),
        (Phase::AwaitHead, Cause::UpstreamTimeout),
        (Phase::AwaitHead, Cause::TryTimeout),
        (Phase::AwaitHead, Cause::UpstreamInvalidHead),
        (Phase::AwaitHead, Cause::UpstreamHeadTooLarge),
        (Phase::AwaitHead, Cause::UpstreamStatus(503)),
        (Phase::ReadBody, Cause::BodyTruncated),
        (Phase::ReadBody, Cause::BodyReset(104)),
        (Phase::ReadBody, Cause::BodyTimeout),
        (Phase::ReadBody, Cause::BodyInvalid),
        (Phase::Tunnel, Cause::TunnelTimeout),
        (Phase::Connect, Cause::BadTarget),
        (Phase::Route, Cause::NameNotResolved(3)),
        (Phase::Route, Cause::RedirectCycle),
        (
            Phase::Route,
            Cause::RateLimited {
                status: 503,
                level: Level::Error,
            },
        ),
        (
            Phase::Route,
            Cause::PlacesTaken {
                status: 503,
                level: Level::Error,
            },
        ),
        (Phase::Route, Cause::AccessDenied),
        (Phase::Route, Cause::TooManyActive),
        (Phase::Route, Cause::Overload),
        (Phase::Route, Cause::OutOfMemory),
        (Phase::Route, Cause::Internal),
        (Phase::ReadBody, Cause::Shutdown),
    ];

    fn text(phase: Phase, cause: Cause, detail: &str) -> String {
        let mut out = String::new();
        Failure::new(phase, cause).write_text(detail, &mut out);
        out
    }

    /// The rows of the design's table, column by column.
    #[test]
    fn the_table() {
        use Cause::*;
        use retry::Failure as Next;
        let rows: &[(Cause, u16, Option<Next>, Outcome, After)] = &[
            (BadRequest, 400, None, Outcome::NotCounted, After::Close),
            (BadBody, 400, None, Outcome::NotCounted, After::Close),
            (TargetTooLong, 414, None, Outcome::NotCounted, After::Close),
            (HeadTooLarge, 431, None, Outcome::NotCounted, After::Close),
            (
                BodyTooLarge(None),
                413,
                None,
                Outcome::NotCounted,
                After::Close,
            ),
            (BadVersion, 505, None, Outcome::NotCounted, After::Close),
            (UnknownCoding, 501, None, Outcome::NotCounted, After::Close),
            (ConnectMethod, 405, None, Outcome::NotCounted, After::Close),
            (PlainHttp, 497, None, Outcome::NotCounted, After::Close),
            (
                ClientCertificate,
                495,
                None,
                Outcome::NotCounted,
                After::Close,
            ),
            (
                NoClientCertificate,
                496,
                None,
                Outcome::NotCounted,
                After::Close,
            ),
            (Misdirected, 421, None, Outcome::NotCounted, After::Keep),
            (
                ClientHeadTimeout,
                408,
                None,
                Outcome::NotCounted,
                After::Close,
            ),
            (
                ClientBodyTimeout,
                408,
                None,
                Outcome::NotCounted,
                After::Close,
            ),
            (ClientGone, 499, None, Outcome::NotCounted, After::Gone),
            (ClientCut, 400, None, Outcome::NotCounted, After::Gone),
            (
                ClientSendTimeout,
                0,
                None,
                Outcome::NotCounted,
                After::Abort,
            ),
            (Loop, 508, None, Outcome::NotCounted, After::Keep),
            (
                NoLivePeer,
                502,
                Some(Next::NoLivePeer),
                Outcome::NotCounted,
                After::Keep,
            ),
            (
                ConnectFailed(111),
                502,
                Some(Next::Error),
                Outcome::Failed,
                After::Keep,
            ),
            (
                ConnectTimeout,
                504,
                Some(Next::Timeout),
                Outcome::Failed,
                After::Keep,
            ),
            (
                QueueFull,
                503,
                Some(Next::NoLivePeer),
                Outcome::NotCounted,
                After::Keep,
            ),
            (
                QueueTimeout,
                503,
                Some(Next::NoLivePeer),
                Outcome::NotCounted,
                After::Keep,
            ),
            (
                TlsHandshake,
                502,
                Some(Next::Error),
                Outcome::Failed,
                After::Keep,
            ),
            (
                TlsVerify,
                502,
                Some(Next::Error),
                Outcome::Failed,
                After::Keep,
            ),
            (OwnCertificate, 500, None, Outcome::NotCounted, After::Keep),
            (
                StaleConnection,
                502,
                Some(Next::Stale),
                Outcome::NotCounted,
                After::Keep,
            ),
            (
                SendFailed(32),
                502,
                Some(Next::Error),
                Outcome::Failed,
                After::Keep,
            ),
            (
                SendTimeout,
                504,
                Some(Next::Timeout),
                Outcome::Failed,
                After::Keep,
            ),
            (
                UpstreamClosed,
                502,
                Some(Next::Error),
                Outcome::Failed,
                After::Keep,
            ),
            (
                UpstreamReset(104),
                502,
                Some(Next::Error),
                Outcome::Failed,
                After::Keep,
            ),
            (
                TryTimeout,
                504,
                Some(Next::Timeout),
                Outcome::Failed,
                After::Keep,
            ),
            (
                UpstreamTimeout,
                504,
                Some(Next::Timeout),
                Outcome::Failed,
                After::Keep,
            ),
            (
                UpstreamInvalidHead,
                502,
                Some(Next::InvalidHeader),
                Outcome::Failed,
                After::Keep,
            ),
            (
                UpstreamHeadTooLarge,
                502,
                Some(Next::InvalidHeader),
                Outcome::Failed,
                After::Keep,
            ),
            (
                UpstreamStatus(500),
                500,
                Some(Next::Status(500)),
                Outcome::Failed,
                After::Keep,
            ),
            (
                UpstreamStatus(403),
                403,
                Some(Next::Status(403)),
                Outcome::Ok,
                After::Keep,
            ),
            (
                UpstreamStatus(404),
                404,
                Some(Next::Status(404)),
                Outcome::Ok,
                After::Keep,
            ),
            (BodyTruncated, 0, None, Outcome::Ok, After::Abort),
            (BodyReset(104), 0, None, Outcome::Ok, After::Abort),
            (BodyTimeout, 0, None, Outcome::Ok, After::Abort),
            (BodyInvalid, 0, None, Outcome::Ok, After::Abort),
            (TunnelTimeout, 0, None, Outcome::Ok, After::Abort),
            (BadTarget, 500, None, Outcome::NotCounted, After::Close),
            (
                NameNotResolved(3),
                502,
                None,
                Outcome::NotCounted,
                After::Keep,
            ),
            (RedirectCycle, 500, None, Outcome::NotCounted, After::Close),
            (
                RateLimited {
                    status: 429,
                    level: Level::Warn,
                },
                429,
                None,
                Outcome::NotCounted,
                After::Keep,
            ),
            (
                PlacesTaken {
                    status: 503,
                    level: Level::Error,
                },
                503,
                None,
                Outcome::NotCounted,
                After::Keep,
            ),
            (AccessDenied, 403, None, Outcome::NotCounted, After::Keep),
            (TooManyActive, 503, None, Outcome::NotCounted, After::Keep),
            (Overload, 503, None, Outcome::NotCounted, After::Close),
            (OutOfMemory, 503, None, Outcome::NotCounted, After::Close),
            (ClientTooSlow, 408, None, Outcome::NotCounted, After::Close),
            (
                ClientReadsTooSlow,
                0,
                None,
                Outcome::NotCounted,
                After::Abort,
            ),
            (Internal, 500, None, Outcome::NotCounted, After::Close),
            (Shutdown, 0, None, Outcome::NotCounted, After::Abort),
        ];
        for &(cause, status, retry, mark, after) in rows {
            let failure = Failure::new(Phase::AwaitHead, cause);
            assert_eq!(failure.status(), status, "{cause:?}");
            assert_eq!(failure.retry(), retry, "{cause:?}");
            assert_eq!(failure.peer_mark(true), mark, "{cause:?}");
            assert_eq!(failure.after(), after, "{cause:?}");
        }
        for (phase, cause) in ALL {
            let token = Failure::new(phase, cause).token();
            assert!(
                rows.iter()
                    .any(|row| Failure::new(phase, row.0).token() == token),
                "no row for {cause:?}"
            );
        }
    }

    /// docs/reasons.md has one row per token, `| `token` | status | … |`, and no other.
    #[test]
    fn every_token_is_documented() {
        let page = include_str!("../../../docs/reasons.md");
        let listed: BTreeSet<(&str, &str)> = page
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split('|');
                let token = cells.next()?.trim().trim_end_matches('`');
                Some((token, cells.next()?.trim()))
            })
            .collect();
        let mut expected = BTreeSet::new();
        for (phase, cause) in ALL {
            let failure = Failure::new(phase, cause);
            let status = match (failure.status(), cause) {
                (_, Cause::UpstreamStatus(_)) => "as sent".to_owned(),
                (0, _) => "–".to_owned(),
                (status, _) => crate::wire_status(status).to_string(),
            };
            expected.insert((failure.token(), status));
        }
        let expected: BTreeSet<(&str, &str)> = expected
            .iter()
            .map(|(token, status)| (*token, status.as_str()))
            .collect();
        assert_eq!(listed, expected);
        assert_eq!(listed.len(), ALL.len());
    }

    /// The sentences people's log scanners look for.
    #[test]
    fn texts_are_nginx_s() {
        let cases = [
            (
                text(Phase::AwaitHead, Cause::UpstreamTimeout, ""),
                "upstream timed out (110: Connection timed out) while reading response header from upstream",
            ),
            (
                text(Phase::Connect, Cause::ConnectTimeout, ""),
                "upstream timed out (110: Connection timed out) while connecting to upstream",
            ),
            (
                text(Phase::Connect, Cause::ConnectFailed(111), ""),
                "connect() failed (111: Connection refused) while connecting to upstream",
            ),
            (
                text(
                    Phase::Handshake,
                    Cause::TlsVerify,
                    "upstream SSL certificate verify error: (18:self-signed certificate)",
                ),
                "upstream SSL certificate verify error: (18:self-signed certificate) while SSL handshaking to upstream",
            ),
            (
                text(Phase::AwaitHead, Cause::UpstreamClosed, ""),
                "upstream prematurely closed connection while reading response header from upstream",
            ),
            (
                text(Phase::ReadBody, Cause::BodyTruncated, ""),
                "upstream prematurely closed connection while reading upstream",
            ),
            (
                text(Phase::AwaitHead, Cause::UpstreamReset(104), ""),
                "recv() failed (104: Connection reset by peer) while reading response header from upstream",
            ),
            (
                text(
                    Phase::RequestHead,
                    Cause::ClientCertificate,
                    "(18:self-signed certificate)",
                ),
                "client SSL certificate verify error: (18:self-signed certificate) while reading client request headers",
            ),
            (
                text(Phase::RequestHead, Cause::NoClientCertificate, ""),
                "client sent no required SSL certificate while reading client request headers",
            ),
            (
                text(Phase::RequestHead, Cause::PlainHttp, ""),
                "client sent plain HTTP request to HTTPS port while reading client request headers",
            ),
            (
                text(Phase::Route, Cause::NameNotResolved(3), "other.test"),
                "other.test could not be resolved (3: Host not found)",
            ),
            (
                text(Phase::Connect, Cause::NoLivePeer, ""),
                "no live upstreams while connecting to upstream",
            ),
            (
                text(Phase::RequestBody, Cause::BodyTooLarge(Some(30)), ""),
                "client intended to send too large body: 30 bytes",
            ),
            (
                text(
                    Phase::AwaitHead,
                    Cause::UpstreamInvalidHead,
                    "invalid header name: \"Bo gus\"",
                ),
                "upstream sent invalid header name: \"Bo gus\" while reading response header from upstream",
            ),
            (
                text(Phase::RequestHead, Cause::ClientHeadTimeout, ""),
                "client timed out (110: Connection timed out) while reading client request headers",
            ),
            (
                text(Phase::RequestLine, Cause::TargetTooLong, ""),
                "client sent too long URI while reading client request line",
            ),
            (
                text(Phase::AwaitHead, Cause::ClientGone, ""),
                "client prematurely closed connection, so upstream connection is closed too while reading response header from upstream",
            ),
        ];
        for (got, expected) in cases {
            assert_eq!(got, expected);
        }
    }

    /// What a parser says about a head becomes the sentence, and the status follows the parser's.
    #[test]
    fn refused_heads() {
        let limits = HeadLimits {
            line_max: 64,
            ..HeadLimits::default()
        };
        let request = |bytes: &[u8]| {
            let mut head = kp_http::RequestHead::default();
            let error = HeadReader::default()
                .request(&mut bytes.to_vec(), &mut head, &limits)
                .expect_err("refused");
            let failure = Failure::request_head(&error);
            assert_eq!(failure.status(), error.status());
            text(failure.phase, failure.cause, &error.to_string())
        };
        assert_eq!(
            request(b"GET / HTTP/1.1\r\nBogus\r\n\r\n"),
            "client sent header line without a colon: \"Bogus\" while reading client request headers"
        );
        assert_eq!(
            request(b"\x16\x03\x01"),
            "client sent invalid method while reading client request line"
        );
        assert_eq!(
            request(b"GET / HTTP/3.0\r\n\r\n"),
            "client sent unsupported HTTP version while reading client request line"
        );
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100));
        assert_eq!(
            request(long.as_bytes()),
            "client sent too long URI while reading client request line"
        );
        let response = |bytes: &[u8]| {
            let mut head = kp_http::ResponseHead::default();
            let read = HeadReader::default().response(
                &mut bytes.to_vec(),
                &mut head,
                Method::Get,
                &limits,
            );
            let error = read.expect_err("refused");
            let failure = Failure::response_head(&error);
            (
                failure.cause,
                text(failure.phase, failure.cause, &error.to_string()),
            )
        };
        let (cause, said) = response(b"HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\n");
        assert_eq!(cause, Cause::UpstreamInvalidHead);
        assert!(
            said.starts_with("upstream sent invalid \"Content-Length\" header"),
            "{said}"
        );
        assert!(
            said.ends_with(" while reading response header from upstream"),
            "{said}"
        );
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100));
        assert_eq!(response(long.as_bytes()).0, Cause::UpstreamHeadTooLarge);
    }

    #[test]
    fn levels() {
        assert_eq!(
            Failure::new(Phase::RequestHead, Cause::BadRequest).level(),
            Level::Info
        );
        assert_eq!(
            Failure::new(Phase::RequestBody, Cause::BodyTooLarge(None)).level(),
            Level::Error
        );
        assert_eq!(
            Failure::new(Phase::Connect, Cause::ConnectFailed(111)).level(),
            Level::Error
        );
        assert_eq!(
            Failure::new(Phase::Connect, Cause::ConnectFailed(2)).level(),
            Level::Crit
        );
        assert_eq!(
            Failure::new(Phase::AwaitHead, Cause::UpstreamTimeout).level(),
            Level::Error
        );
    }
}
