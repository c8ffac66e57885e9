//! A scripted incident: the ways a request can end badly, each with what must be said of it.
//!
//! [`Incident`] plays the upstreams and the clients, [`CASES`] has the expected words: of `$kp_reason`, of
//! `$kp_reason_detail`, of the error log. Whoever shows reasons (logs, metrics, a page, the control socket) is tested with
//! the same cases and must name the same ones.

use std::io;

use crate::client::Client;
use crate::kp::{Kp, Setup};
use crate::message::Response;
use crate::origin::{Conversation, OK, Origin};
use crate::port::Port;
use crate::tls::{Acceptor, Authority, Kind, valid};
use crate::wait::{self, SOON};

/// What the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// It asks and reads to the end.
    Get,
    /// It asks twice, which is once too often.
    GetTwice,
    /// It leaves when its request has arrived at the upstream.
    Leave,
    /// It asks for much and reads nothing.
    ReadNothing,
    /// It sends this body.
    Post(&'static str),
    /// It promises ten bytes of body, sends one and waits.
    PostHalf,
    /// It promises ten bytes of body, sends one and leaves.
    PostAndLeave,
    /// It sends these bytes behind the request line and waits.
    Send(&'static str),
}

/// One way to end badly, at a path of its own.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The path that is asked for.
    pub path: &'static str,
    /// How.
    pub does: Does,
    /// `$status`.
    pub status: u16,
    /// `$upstream_status`.
    pub upstream_status: &'static str,
    /// `$kp_reason`.
    pub reason: &'static str,
    /// `$kp_reason_detail`.
    pub detail: &'static str,
    /// A part of the error log's line about it; empty: it says nothing.
    pub error: &'static str,
}

const fn case(
    path: &'static str,
    does: Does,
    (status, upstream_status): (u16, &'static str),
    reason: &'static str,
    detail: &'static str,
    error: &'static str,
) -> Case {
    Case {
        path,
        does,
        status,
        upstream_status,
        reason,
        detail,
        error,
    }
}

/// The cases: those that are the upstream's fault, the client's, nobody's, and some that go well in the end.
pub const CASES: &[Case] = &[
    case(
        "/hang",
        Does::Get,
        (504, "504"),
        "upstream_timeout",
        "phase=await_head side=upstream directive=proxy_read_timeout attempt=1 closed_by=kp",
        "upstream timed out (110: Connection timed out) while reading response header from upstream",
    ),
    case(
        "/slow-head",
        Does::Get,
        (504, "504"),
        "upstream_timeout",
        "phase=await_head side=upstream directive=proxy_read_timeout attempt=1 closed_by=kp",
        "upstream timed out (110: Connection timed out) while reading response header from upstream",
    ),
    case(
        "/slow-body",
        Does::Get,
        (200, "200"),
        "body_timeout",
        "phase=read_body side=upstream directive=proxy_read_timeout attempt=1 closed_by=kp",
        "upstream timed out (110: Connection timed out) while reading upstream",
    ),
    case(
        "/reset",
        Does::Get,
        (502, "502"),
        "upstream_reset",
        "phase=await_head side=upstream attempt=1 closed_by=upstream",
        "recv() failed (104: Connection reset by peer) while reading response header from upstream",
    ),
    case(
        "/closed",
        Does::Get,
        (502, "502"),
        "upstream_closed",
        "phase=await_head side=upstream attempt=1 closed_by=upstream",
        "upstream prematurely closed connection while reading response header from upstream",
    ),
    case(
        "/truncated",
        Does::Get,
        (200, "200"),
        "body_truncated",
        "phase=read_body side=upstream attempt=1 closed_by=upstream",
        "upstream prematurely closed connection while reading upstream",
    ),
    case(
        "/invalid",
        Does::Get,
        (502, "502"),
        "upstream_invalid_header",
        "phase=await_head side=upstream attempt=1 closed_by=kp",
        "while reading response header from upstream",
    ),
    case(
        "/refused",
        Does::Get,
        (502, "502"),
        "connect_failed",
        "phase=connect side=upstream attempt=1 closed_by=upstream",
        "connect() failed (111: Connection refused) while connecting to upstream",
    ),
    case(
        "/second",
        Does::Get,
        (504, "502, 504"),
        "upstream_timeout",
        "phase=await_head side=upstream directive=proxy_read_timeout attempt=2 closed_by=kp",
        "upstream timed out (110: Connection timed out) while reading response header from upstream",
    ),
    case(
        "/nobody",
        Does::Get,
        (502, "502"),
        "no_live_upstreams",
        "phase=connect side=upstream attempt=1",
        "no live upstreams while connecting to upstream",
    ),
    case(
        "/expired",
        Does::Get,
        (502, "502"),
        "upstream_certificate",
        "phase=handshake side=upstream directive=proxy_ssl_verify attempt=1 closed_by=kp",
        "upstream SSL certificate verify error: (10:certificate has expired) while SSL handshaking to upstream",
    ),
    case(
        "/intercepted",
        Does::Get,
        (404, "404"),
        "upstream_intercepted",
        "phase=await_head side=upstream directive=proxy_intercept_errors attempt=1",
        "",
    ),
    case(
        "/accel",
        Does::Get,
        (404, "200"),
        "bad_accel_redirect",
        "phase=await_head side=upstream attempt=1",
        "",
    ),
    case(
        "/gone",
        Does::Leave,
        (499, "-"),
        "client_gone",
        "phase=await_head side=client attempt=1 closed_by=client",
        "client prematurely closed connection, so upstream connection is closed too while reading response header from upstream",
    ),
    case(
        "/stuck",
        Does::ReadNothing,
        (200, "200"),
        "client_send_timeout",
        "phase=send_response side=client directive=send_timeout attempt=1 closed_by=kp",
        "client timed out (110: Connection timed out) while sending to client",
    ),
    case(
        "/large",
        Does::Post("too much"),
        (413, "-"),
        "body_too_large",
        "phase=route side=client directive=client_max_body_size closed_by=kp",
        "client intended to send too large body: 8 bytes",
    ),
    case(
        "/half-body",
        Does::PostHalf,
        (408, "-"),
        "client_body_timeout",
        "phase=request_body side=client directive=client_body_timeout closed_by=kp",
        "client timed out (110: Connection timed out)",
    ),
    case(
        "/cut-body",
        Does::PostAndLeave,
        (400, "-"),
        "client_cut",
        "phase=request_body side=client closed_by=client",
        "client prematurely closed connection",
    ),
    case(
        "/bad",
        Does::Send("Host: t\r\nno colon\r\n\r\n"),
        (400, "-"),
        "bad_request",
        "phase=request_head side=client closed_by=kp",
        "client sent header line without a colon: \"no colon\" while reading client request headers",
    ),
    case(
        "/half-head",
        Does::Send("Host: t\r\n"),
        (408, "-"),
        "client_head_timeout",
        "phase=request_head side=client directive=client_header_timeout closed_by=kp",
        "client timed out (110: Connection timed out) while reading client request headers",
    ),
    case(
        "/rate",
        Does::GetTwice,
        (503, "-"),
        "rate_limited",
        "phase=route side=client directive=limit_req",
        // The excess depends on the time between the two.
        " by zone \"once\"",
    ),
    case(
        "/denied",
        Does::Get,
        (403, "-"),
        "access_denied",
        "phase=route side=client directive=deny",
        "access forbidden by rule",
    ),
    case(
        "/missing",
        Does::Get,
        (404, "-"),
        "file_not_found",
        "phase=file side=client",
        "failed (2: No such file or directory)",
    ),
    case(
        "/missing",
        Does::Post(""),
        (404, "-"),
        "file_not_found",
        "phase=file side=client",
        "failed (2: No such file or directory)",
    ),
    case(
        "/there",
        Does::Post(""),
        (405, "-"),
        "method_not_allowed",
        "phase=file side=client",
        "",
    ),
    case(
        "/directory",
        Does::Get,
        (301, "-"),
        "directory_redirect",
        "phase=file side=config",
        "",
    ),
    case(
        "/internal",
        Does::Get,
        (404, "-"),
        "internal_location",
        "phase=route side=client directive=internal",
        "",
    ),
    case(
        "/cycle",
        Does::Get,
        (500, "-"),
        "redirect_cycle",
        "phase=route side=kp",
        "rewrite or internal redirection cycle",
    ),
    case(
        "/return",
        Does::Get,
        (403, "-"),
        "return",
        "phase=route side=config directive=return",
        "",
    ),
    case(
        "/quiet",
        Does::Get,
        (444, "-"),
        "return_close",
        "phase=route side=config directive=return closed_by=kp",
        "",
    ),
    case(
        "/moved",
        Does::Get,
        (302, "-"),
        "rewrite_redirect",
        "phase=route side=config directive=rewrite",
        "",
    ),
    // What `error_page` shows keeps the reason of the error.
    case(
        "/sorry",
        Does::Get,
        (502, "502"),
        "connect_failed",
        "phase=connect side=upstream attempt=1 closed_by=upstream",
        "connect() failed (111: Connection refused) while connecting to upstream",
    ),
    case(
        "/sorry-elsewhere",
        Does::Get,
        (302, "502"),
        "connect_failed",
        "phase=connect side=upstream attempt=1 closed_by=upstream",
        "connect() failed (111: Connection refused) while connecting to upstream",
    ),
    case(
        "/sorry-moved",
        Does::Get,
        (302, "502"),
        "connect_failed",
        "phase=connect side=upstream attempt=1 closed_by=upstream",
        "connect() failed (111: Connection refused) while connecting to upstream",
    ),
    case(
        "/sorry-well",
        Does::Get,
        (200, "502 : 200"),
        "connect_failed",
        "phase=connect side=upstream attempt=1 closed_by=upstream",
        "connect() failed (111: Connection refused) while connecting to upstream",
    ),
    // Unless it fails itself.
    case(
        "/no-page",
        Does::Get,
        (404, "502"),
        "file_not_found",
        "phase=file side=client",
        "failed (2: No such file or directory)",
    ),
    // What an upstream answers in the end needs no reason.
    case(
        "/retried",
        Does::Get,
        (200, "502, 200"),
        "-",
        "-",
        "connect() failed",
    ),
    case(
        "/fallback",
        Does::Get,
        (200, "502 : 200"),
        "-",
        "-",
        "connect() failed",
    ),
    case("/well", Does::Get, (200, "200"), "-", "-", ""),
    case("/there", Does::Get, (200, "-"), "-", "-", ""),
];

/// The upstreams of the incident, and what is in kp's configuration about them.
#[derive(Debug)]
pub struct Incident {
    origin: Origin,
    expired: Origin,
    authority: Authority,
    /// Nobody listens there.
    closed: Port,
}

impl Default for Incident {
    fn default() -> Self {
        let authority = Authority::default();
        let pair = authority.issue_as(Kind::Ecdsa, &["o.test"], |params| valid(params, -20, -1));
        Self {
            origin: Origin::start(misbehave),
            expired: Origin::secure_ok(&Acceptor::new(&pair)),
            authority,
            closed: Port::take(),
        }
    }
}

/// What the origin does depends on the path.
fn misbehave(conversation: &mut Conversation) -> io::Result<()> {
    const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab";
    loop {
        let request = conversation.request()?;
        match request.target() {
            "/hang" | "/gone" | "/second" => conversation.stall(),
            "/slow-head" => {
                conversation.send("HTTP/1.1 200 OK\r\nContent-")?;
                conversation.stall();
            }
            "/slow-body" => {
                conversation.send(HALF)?;
                conversation.stall();
            }
            "/reset" => return conversation.reset(),
            "/closed" => return Ok(()),
            "/truncated" => return conversation.send(HALF),
            "/invalid" => return conversation.send("nonsense\r\n\r\n"),
            "/stuck" => {
                let length = 64 << 20;
                conversation.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
                ))?;
                conversation.send(vec![b'x'; length])?;
            }
            "/intercepted" => {
                conversation.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            }
            "/accel" => conversation.send(
                "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /../etc/passwd\r\nContent-Length: 0\r\n\r\n",
            )?,
            _ => conversation.send(OK)?,
        }
    }
}

const TEXT: &str = "%MAIN%
http {
    log_format incident '$status|$upstream_status|$kp_reason|$kp_reason_detail';
    access_log incident.log incident;
    kp_reason_header on;
    client_header_timeout 1s;
    limit_req_zone $uri zone=once:32k rate=1r/m;
    %HTTP%
    upstream u { server %ORIGIN%; keepalive 8; }
    upstream refused { server %CLOSED%; }
    upstream pair { server %CLOSED% max_fails=0; server %ORIGIN% max_fails=0 backup; }
    upstream nobody { server %ORIGIN% down; }
    server {
        listen %LISTEN%;
        %SERVER%
        root %DIR%;
        location / { proxy_pass http://u; proxy_read_timeout 300ms; }
        location = /gone { proxy_pass http://u; }
        location = /stuck { proxy_pass http://u; send_timeout 300ms; proxy_max_temp_file_size 0; }
        location = /refused { proxy_pass http://refused; }
        location = /second { proxy_pass http://pair; proxy_read_timeout 300ms; }
        location = /retried { proxy_pass http://pair; }
        location = /nobody { proxy_pass http://nobody; }
        location = /expired {
            proxy_pass https://%EXPIRED%;
            proxy_ssl_name o.test;
            proxy_ssl_verify on;
            proxy_ssl_trusted_certificate ca.pem;
        }
        location = /intercepted { proxy_pass http://u; proxy_intercept_errors on; error_page 404 /page; }
        location = /large { proxy_pass http://u; client_max_body_size 5; }
        location = /half-body { proxy_pass http://u; client_body_timeout 300ms; }
        location = /rate { proxy_pass http://u; limit_req zone=once; }
        location = /denied { deny all; }
        location = /missing { }
        location = /there { }
        location = /directory { }
        location = /none { }
        location = /internal { internal; }
        location = /cycle { rewrite ^ /cycle last; }
        location = /return { return 403; }
        location = /quiet { return 444; }
        location = /moved { rewrite ^ /well redirect; }
        location = /sorry { proxy_pass http://refused; error_page 502 /page; }
        location = /sorry-elsewhere { proxy_pass http://refused; error_page 502 http://elsewhere.test/; }
        location = /sorry-moved { proxy_pass http://refused; error_page 502 /moved; }
        location = /sorry-well { proxy_pass http://refused; error_page 502 =200 /well; }
        location = /no-page { proxy_pass http://refused; error_page 502 /none; }
        location = /fallback { proxy_pass http://refused; error_page 502 = @well; }
        location = /page { internal; return 200 sorry; }
        location @well { proxy_pass http://u; }
    }
}
";

/// What became of one case.
#[derive(Debug)]
pub struct Outcome {
    /// The access log's line: `$status|$upstream_status|$kp_reason|$kp_reason_detail`.
    pub line: String,
    /// What the client got, if it got a head and was there.
    pub response: Option<Response>,
}

impl Incident {
    /// The configuration that the cases need; more may be added to it, to `HTTP` and `SERVER` for example.
    pub fn setup(&self) -> Setup {
        Setup::new(TEXT)
            .with("ORIGIN", self.origin.address())
            .with("EXPIRED", self.expired.address())
            .with("CLOSED", self.closed.address())
            .file("ca.pem", self.authority.pem())
            .file("there", "a file")
            .file("directory/x", "")
    }

    /// Lets one case happen, and waits until kp has logged it.
    pub fn happen(&self, kp: &Kp, case: &Case) -> Outcome {
        let logged = kp.text("incident.log").lines().count();
        let mut lines = logged + 1;
        let mut client = kp.client();
        let path = case.path;
        let get = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
        let post = |length: usize, body: &str| {
            format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        let heard = match case.does {
            Does::Get => answer(&mut client, &get),
            Does::GetTwice => {
                lines += 1;
                answer(&mut client, &get);
                answer(&mut client, &get)
            }
            Does::Leave => {
                let asked = self.origin.requests().len();
                client.send(&get);
                self.origin.wait_requests(asked + 1);
                drop(client);
                None
            }
            Does::ReadNothing => {
                let mut narrow = Client::connect_narrow(&kp.address(), 4096);
                narrow.send(&get);
                kp.lines("incident.log", lines);
                None
            }
            Does::Post(body) => answer(&mut client, &post(body.len(), body)),
            Does::PostHalf => answer(&mut client, &post(10, "x")),
            Does::PostAndLeave => {
                client.send(post(10, "x"));
                client.half_close();
                wait::happens(SOON, || kp.text("incident.log").lines().count() > logged);
                None
            }
            Does::Send(rest) => answer(&mut client, &format!("GET {path} HTTP/1.1\r\n{rest}")),
        };
        let line = kp.lines("incident.log", lines).pop().unwrap_or_default();
        Outcome {
            line,
            response: heard,
        }
    }
}

fn answer(client: &mut Client, request: &str) -> Option<Response> {
    client.send(request);
    client.try_response("GET", SOON).ok()
}
