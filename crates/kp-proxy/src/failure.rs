//! What can go wrong with an exchange, as one table.
//!
//! Decides for every cause: the status the client gets, whether another peer may be tried, whether it counts against
//! the peer, what becomes of the client connection, the reason (whose words are `crate::reason`'s), and the sentence and
//! level of the error log. Does not decide whether a retry is possible at this moment (tries, time, idempotency, the body):
//! that is `kp_upstream`'s and `step`'s, with [`Failure::retry`] as the input.

use crate::reason::{Reason, Side};
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

/// What the exchange was doing; in the error log as nginx's ` while …`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The request line is being read.
    RequestLine,
    /// The request's fields are being read.
    RequestHead,
    /// Routing and admission.
    Route,
    /// A file is looked for or opened.
    File,
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
    /// A client's connection is being accepted.
    Accept,
    /// A client's PROXY header is awaited.
    ProxyHeader,
    /// The TLS handshake with the client is under way.
    ClientHandshake,
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
    /// A file that is being sent cannot be read on.
    FileBroken,
    /// `worker_shutdown_timeout` ended the exchange.
    Shutdown,
    /// The worker was told to end at once.
    FastStop,
    /// The master was gone for so long that the worker ended.
    Orphaned,
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
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;

/// Error numbers a peer can cause; anything else on connect is `crit`, as in nginx: EPIPE, ECONNRESET, ENOTCONN,
/// ETIMEDOUT, ECONNREFUSED, ENETDOWN, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH.
const ORDINARY: [i32; 9] = [
    32,
    ECONNRESET,
    107,
    ETIMEDOUT,
    ECONNREFUSED,
    100,
    101,
    112,
    113,
];

impl Failure {
    /// Puts a cause and a phase together.
    pub fn new(phase: Phase, cause: Cause) -> Self {
        Self { phase, cause }
    }

    /// Who is to blame.
    pub fn side(&self) -> Side {
        self.reason().side()
    }

    /// Whether the connection is closed without an answer: `limit_req_status` and `limit_conn_status` may say so as `return`
    /// does, with the statuses that nginx uses for just that.
    pub fn hangs_up(&self) -> bool {
        matches!(
            self.cause,
            Cause::RateLimited { status, .. } | Cause::PlacesTaken { status, .. }
                if crate::answer_kind::is_for_closing(status)
        )
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
            | Cause::FileBroken
            | Cause::Shutdown
            | Cause::FastStop
            | Cause::Orphaned => 0,
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
            | Cause::FileBroken
            | Cause::Shutdown
            | Cause::FastStop
            | Cause::Orphaned => None,
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
            | Cause::FileBroken
            | Cause::Shutdown
            | Cause::FastStop
            | Cause::Orphaned => After::Abort,
            Cause::ClientGone | Cause::ClientCut => After::Gone,
        }
    }

    /// Who ended the connection it is about; `None`: it stays, or nobody knows.
    pub fn closed_by(&self) -> Option<Side> {
        match self.cause {
            Cause::ClientGone | Cause::ClientCut => Some(Side::Client),
            Cause::ConnectFailed(ECONNREFUSED | ECONNRESET)
            | Cause::StaleConnection
            | Cause::SendFailed(_)
            | Cause::UpstreamClosed
            | Cause::UpstreamReset(_)
            | Cause::BodyTruncated
            | Cause::BodyReset(_) => Some(Side::Upstream),
            Cause::ConnectTimeout
            | Cause::TlsVerify
            | Cause::SendTimeout
            | Cause::UpstreamTimeout
            | Cause::TryTimeout
            | Cause::UpstreamInvalidHead
            | Cause::UpstreamHeadTooLarge => Some(Side::Own),
            _ => match self.after() {
                After::Close | After::Abort => Some(Side::Own),
                After::Keep | After::Gone => None,
            },
        }
    }

    /// Its row in the table of reasons.
    pub fn reason(&self) -> Reason {
        match self.cause {
            Cause::BadRequest => Reason::BadRequest,
            Cause::BadVersion => Reason::BadVersion,
            Cause::UnknownCoding => Reason::UnknownCoding,
            Cause::ConnectMethod => Reason::ConnectMethod,
            Cause::PlainHttp => Reason::PlainHttp,
            Cause::ClientCertificate => Reason::ClientCertificate,
            Cause::NoClientCertificate => Reason::NoClientCertificate,
            Cause::Misdirected => Reason::Misdirected,
            Cause::TargetTooLong => Reason::TargetTooLong,
            Cause::HeadTooLarge => Reason::HeadTooLarge,
            Cause::BodyTooLarge(_) => Reason::BodyTooLarge,
            Cause::BadBody => Reason::BadBody,
            Cause::ClientHeadTimeout => Reason::ClientHeadTimeout,
            Cause::ClientBodyTimeout => Reason::ClientBodyTimeout,
            Cause::ClientSendTimeout => Reason::ClientSendTimeout,
            Cause::ClientTooSlow => Reason::ClientTooSlow,
            Cause::ClientReadsTooSlow => Reason::ClientReadsTooSlow,
            Cause::ClientGone => Reason::ClientGone,
            Cause::ClientCut => Reason::ClientCut,
            Cause::Loop => Reason::Loop,
            Cause::NoLivePeer => Reason::NoLivePeer,
            Cause::QueueFull => Reason::QueueFull,
            Cause::QueueTimeout => Reason::QueueTimeout,
            Cause::ConnectFailed(_) => Reason::ConnectFailed,
            Cause::ConnectTimeout => Reason::ConnectTimeout,
            Cause::TlsHandshake => Reason::TlsHandshake,
            Cause::TlsVerify => Reason::TlsVerify,
            Cause::OwnCertificate => Reason::OwnCertificate,
            Cause::StaleConnection => Reason::StaleConnection,
            Cause::SendFailed(_) => Reason::SendFailed,
            Cause::SendTimeout => Reason::SendTimeout,
            Cause::UpstreamClosed => Reason::UpstreamClosed,
            Cause::UpstreamReset(_) => Reason::UpstreamReset,
            Cause::UpstreamTimeout => Reason::UpstreamTimeout,
            Cause::TryTimeout => Reason::TryTimeout,
            Cause::UpstreamInvalidHead => Reason::UpstreamInvalidHead,
            Cause::UpstreamHeadTooLarge => Reason::UpstreamHeadTooLarge,
            Cause::UpstreamStatus(_) => Reason::UpstreamStatus,
            Cause::BodyTruncated => Reason::BodyTruncated,
            Cause::BodyReset(_) => Reason::BodyReset,
            Cause::BodyTimeout => Reason::BodyTimeout,
            Cause::BodyInvalid => Reason::BodyInvalid,
            Cause::TunnelTimeout => Reason::TunnelTimeout,
            Cause::BadTarget => Reason::BadTarget,
            Cause::NameNotResolved(_) => Reason::NameNotResolved,
            Cause::RedirectCycle => Reason::RedirectCycle,
            Cause::RateLimited { .. } => Reason::RateLimited,
            Cause::PlacesTaken { .. } => Reason::PlacesTaken,
            Cause::AccessDenied => Reason::AccessDenied,
            Cause::TooManyActive => Reason::TooManyActive,
            Cause::Overload => Reason::Overload,
            Cause::OutOfMemory => Reason::OutOfMemory,
            Cause::Internal => Reason::Internal,
            Cause::FileBroken => Reason::FileError,
            Cause::Shutdown => Reason::Shutdown,
            Cause::FastStop => Reason::FastStop,
            Cause::Orphaned => Reason::Orphaned,
        }
    }

    /// The documented token: `$kp_reason`, a metric label.
    pub fn token(&self) -> &'static str {
        self.reason().token()
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
            Cause::Shutdown | Cause::FastStop | Cause::Orphaned => Level::Notice,
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
            | Cause::FileBroken
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
}

impl Phase {
    /// Every one, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::RequestLine,
        Self::RequestHead,
        Self::Route,
        Self::File,
        Self::RequestBody,
        Self::Connect,
        Self::Handshake,
        Self::SendRequest,
        Self::AwaitHead,
        Self::ReadBody,
        Self::SendResponse,
        Self::Tunnel,
        Self::Accept,
        Self::ProxyHeader,
        Self::ClientHandshake,
    ];

    /// Its number in shared memory.
    pub fn index(self) -> u8 {
        self as u8
    }

    /// The phase of a number.
    pub fn of_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Its word in `$kp_reason_detail`.
    pub fn token(self) -> &'static str {
        match self {
            Self::RequestLine => "request_line",
            Self::RequestHead => "request_head",
            Self::Route => "route",
            Self::File => "file",
            Self::RequestBody => "request_body",
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::SendRequest => "send_request",
            Self::AwaitHead => "await_head",
            Self::ReadBody => "read_body",
            Self::SendResponse => "send_response",
            Self::Tunnel => "tunnel",
            Self::Accept => "accept",
            Self::ProxyHeader => "proxy_header",
            Self::ClientHandshake => "client_handshake",
        }
    }
}

mod text;

#[cfg(test)]
pub(crate) mod tests;
