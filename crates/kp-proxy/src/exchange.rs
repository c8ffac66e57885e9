//! The exchange: one request/response pair, the unit of work.

use crate::answer_kind::Fault;
use crate::explain::Circumstances;
use crate::machine::Machine;
use crate::reason::Reason;
use crate::request_id::RequestId;
use crate::tls::{TlsFacts, UpstreamTls};
use crate::trace::Trace;
use kp_config::model::{Level, ListenerId, LocationId, RegexId, ServerId, UpstreamId};
use kp_http::{ProxyHeader, RequestHead, ResponseHead};
use kp_shm::Place;
use std::net::SocketAddr;
use std::rc::Rc;

/// One request/response pair. Its parts are separate structs so that code can borrow one while changing another.
#[derive(Debug, Default)]
pub struct Exchange {
    /// The client connection it came in on.
    pub connection: Connection,
    /// The virtual host.
    pub server: ServerId,
    /// The location in force; the server's root location before routing.
    pub location: LocationId,
    /// What was asked.
    pub request: Request,
    /// What is answered.
    pub response: Response,
    /// One per peer that was tried, in order.
    pub attempts: Vec<Attempt>,
    /// Memory for the next attempt's address.
    pub(crate) spare_address: String,
    /// What the access log needs.
    pub record: Record,
    /// Places of zones it is counted in, given back when it is over.
    pub held: Vec<Place>,
    /// State of the machine.
    pub machine: Machine,
}

impl Exchange {
    /// Memory of what grows with what a client or upstream sends, bytes.
    pub fn bytes(&self) -> usize {
        let request = &self.request;
        let response = &self.response;
        let upstream = response.upstream.as_ref().unwrap_or(&response.spare);
        let fields = request.head.fields.capacity() + upstream.fields.capacity();
        let variables = request.variables.iter().flatten();
        request.head.bytes.capacity()
            + upstream.bytes.capacity()
            + fields * size_of::<kp_http::Field>()
            + request.uri.capacity()
            + request.args.capacity()
            + request.proxy_uri.capacity()
            + request.captures.subject.capacity()
            + request.body.as_ref().map_or(0, Vec::capacity)
            + variables.map(Vec::capacity).sum::<usize>()
            + response.upstream_trailers.capacity()
            + response.sent_head.capacity()
            + response.carried.capacity()
            + response.sent_trailers.capacity()
    }

    /// Back to the beginning for another request, keeping memory that is cheap to keep.
    pub fn reset(&mut self) {
        self.request.head.clear();
        self.request.variables.clear();
        self.request.body = None;
        self.request.body_file = None;
        self.response.reset();
        if let Some(attempt) = self.attempts.pop() {
            self.spare_address = attempt.address;
        }
        self.attempts.clear();
        self.record = Record::default();
        self.held.clear();
        self.machine.reset();
    }
}

/// Facts of the client connection, copied when the head is complete.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// `$connection`.
    pub serial: u64,
    /// `$connection_requests`, this one included.
    pub requests: u32,
    /// Monotonic ms of accept.
    pub accepted_ms: u64,
    /// The client's address; `None` for a unix socket. What a trusted proxy says about it stands here.
    pub remote: Option<SocketAddr>,
    /// Who connected.
    pub connected: Option<SocketAddr>,
    /// The listener.
    pub listener: ListenerId,
    /// `$pipe`: bytes of this request were there before the one in front of it was done.
    pub pipelined: bool,
    /// What a proxy in front said when it connected; `None`: nothing, or that it speaks for itself.
    pub proxied: Option<Rc<ProxyHeader>>,
    /// The TLS connection; `None`: there is none, be it because the listener has no `ssl`, be it because the client spoke
    /// plain HTTP to one that has.
    pub tls: Option<Rc<TlsFacts>>,
}

impl Connection {
    /// Notes who connected, before anybody else is asked who it is.
    pub fn connected_from(&mut self, remote: Option<SocketAddr>) {
        self.remote = remote;
        self.connected = remote;
    }
}

/// The request and what routing made of it.
#[derive(Debug, Default)]
pub struct Request {
    /// The head as parsed; lives until the log line is written.
    pub head: RequestHead,
    /// `$uri`: decoded, dot segments resolved, slashes merged; rewritten by `rewrite`, `error_page` and the like.
    pub uri: Vec<u8>,
    /// `$args`: without the question mark.
    pub args: Vec<u8>,
    /// Whether the head's own target is still what is asked for, so that it can be passed on byte for byte.
    pub unchanged: bool,
    /// Whether the location was found by this URI, so that the URI part of `proxy_pass` may stand for its prefix (nginx's
    /// `valid_location`: false after `rewrite … break`, then the whole URI is passed).
    pub located: bool,
    /// The path came with `%XX`, which decides as in nginx whether captures in arguments and redirects are escaped again.
    pub quoted: bool,
    /// The path came with `+`; see `quoted`.
    pub plus: bool,
    /// `$host`: lower case, without port; the server's primary name where the request has none.
    pub host: Vec<u8>,
    /// Set by an internal redirect to GET (error pages); `None`: the head's method.
    pub method: Option<&'static str>,
    /// Came in by an internal redirect.
    pub internal: bool,
    /// URI changes so far; more than ten is a 500.
    pub uri_changes: u8,
    /// An error page was already used (without `recursive_error_pages` only one is).
    pub error_page_used: bool,
    /// Status forced by `error_page … =code` for the redirected handler; 0: none.
    pub forced_status: u16,
    /// The status that the last error page was to stand for, as the client would have seen it; 0: none was looked for.
    pub refused_status: u16,
    /// Target of the last redirect that routing decided. An error page that takes a redirect over keeps its `Location`.
    pub redirect: Option<Vec<u8>>,
    /// Values of user variables, by [`kp_config::model::UserVar`]; empty until one is set.
    pub variables: Vec<Option<Vec<u8>>>,
    /// Groups of the last regular expression that matched.
    pub captures: Captures,
    /// `$request_id`, taken or made on first use.
    pub id: Option<RequestId>,
    /// The trace it belongs to, found or begun on first use.
    pub trace: Option<Trace>,
    /// The whole body, when it was collected in memory (`$request_body`).
    pub body: Option<Vec<u8>>,
    /// Name of the file the body was collected in (`$request_body_file`).
    pub body_file: Option<Vec<u8>>,
    /// `$proxy_host` and `$proxy_port` once a proxy_pass was evaluated.
    pub proxy_host: Vec<u8>,
    /// See `proxy_host`; 0: unset.
    pub proxy_port: u16,
    /// URI part of a `proxy_pass` with variables, once it was evaluated; empty: it had none.
    pub proxy_uri: Vec<u8>,
    /// How TLS is spoken with the upstream, once a proxy_pass was evaluated.
    pub upstream_tls: UpstreamTls,
}

/// Groups of a match, as ranges into a copy of the subject.
#[derive(Debug, Clone, Default)]
pub struct Captures {
    /// The subject.
    pub subject: Vec<u8>,
    /// Start and end of each group, `$0` first; `None`: the group took no part.
    pub groups: Vec<Option<(u32, u32)>>,
    /// Which expression it was.
    pub regex: Option<RegexId>,
}

impl Request {
    /// The method: as sent, or what a redirect inside has made of it.
    pub fn method_text(&self) -> &[u8] {
        match self.method {
            Some(method) => method.as_bytes(),
            None => self.head.method_text(),
        }
    }
}

/// The answer.
#[derive(Debug, Default)]
pub struct Response {
    /// `$status`; 0 before it is known.
    pub status: u16,
    /// Head of the last upstream attempt, if one came.
    pub upstream: Option<ResponseHead>,
    /// A head that was forgotten, for its memory.
    pub spare: ResponseHead,
    /// Raw trailer fields of the upstream's chunked body (`Name: value\r\n`…).
    pub upstream_trailers: Vec<u8>,
    /// The head as encoded for the client, kept only where a `$sent_http_*` variable is used (the compiled program knows).
    pub sent_head: Vec<u8>,
    /// Fields of an upstream's head that survive its `X-Accel-Redirect` (`Name: value\r\n`…); they join the final head.
    pub carried: Vec<u8>,
    /// The `Set-Cookie` line of `sticky cookie` for the peer that was asked last; empty: none.
    pub sticky: Vec<u8>,
    /// Seconds after which the client may come again (`Retry-After`).
    pub retry_after_s: Option<u32>,
    /// `set $limit_rate` or `X-Accel-Limit-Rate`: bytes per second, before what the location says.
    pub limit_rate: Option<u64>,
    /// The trailers as sent.
    pub sent_trailers: Vec<u8>,
}

impl Response {
    /// The upstream's head, made anew if there is none.
    pub fn upstream_head(&mut self) -> &mut ResponseHead {
        self.upstream
            .get_or_insert_with(|| std::mem::take(&mut self.spare))
    }

    /// Forgets the upstream's head, but not its memory.
    pub fn forget_upstream(&mut self) {
        if let Some(head) = self.upstream.take() {
            self.spare = head;
            self.spare.clear();
        }
    }

    fn reset(&mut self) {
        self.status = 0;
        self.forget_upstream();
        self.upstream_trailers.clear();
        self.sent_head.clear();
        self.carried.clear();
        self.sticky.clear();
        self.sent_trailers.clear();
        self.retry_after_s = None;
        self.limit_rate = None;
    }
}

/// One attempt at one peer.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    /// The group.
    pub upstream: UpstreamId,
    /// `$upstream_addr` text: `127.0.0.1:8080`, `unix:/path`, or the group's name where no peer was live.
    pub address: String,
    /// Came after an internal redirect: separated by ` : ` instead of `, `.
    pub after_redirect: bool,
    /// The upstream's status, or kp's 502/504 for a failed attempt; 0: none (logged `-`).
    pub status: u16,
    /// Monotonic ms at which the attempt began.
    pub started_ms: u64,
    /// `$upstream_connect_time`; `None` = `-`.
    pub connect_ms: Option<u32>,
    /// `$upstream_header_time`.
    pub header_ms: Option<u32>,
    /// `$upstream_response_time`.
    pub response_ms: Option<u32>,
    /// `$upstream_bytes_sent`.
    pub bytes_sent: u64,
    /// `$upstream_bytes_received`.
    pub bytes_received: u64,
    /// `$upstream_response_length`: body bytes.
    pub response_length: u64,
}

/// What the access log needs besides the rest.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Monotonic ms of the head's first byte.
    pub started_ms: u64,
    /// `$request_length`: head and body bytes read.
    pub request_length: u64,
    /// `$bytes_sent`.
    pub bytes_sent: u64,
    /// Bytes of the response head (subtracted for `$body_bytes_sent`).
    pub head_bytes_sent: u64,
    /// `$request_completion`.
    pub completed: bool,
    /// What exactly was wrong, for the error log line of the failure.
    pub detail: Option<String>,
    /// `$kp_reason`: why the client got what it got; `None`: the whole answer is an upstream's or a file's.
    pub reason: Option<Reason>,
    /// What `$kp_reason_detail` says besides.
    pub circumstances: Circumstances,
    /// Lines for the error log that are no failures; written and cleared by whoever drives the exchange.
    pub notes: Vec<(Level, String)>,
    /// What went wrong inside kp while routing or evaluating; written to the error log and cleared by whoever drives the exchange.
    pub fault: Option<Fault>,
}
