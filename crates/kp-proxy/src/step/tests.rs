//! The rows of the failure table as the machine acts them out: what happened, and what it asks for then.

use super::*;
use crate::context::{Dates, Now};
use kp_config::model::FileTest;
use kp_config::{Config, LoadOptions};
use kp_http::{HeadLimits, HeadReader, ResponseHead};
use kp_upstream::Outcome;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What happens to an exchange.
#[derive(Clone, Copy)]
enum Event {
    /// The head was read.
    Begin,
    Refused(Cause),
    Collected,
    Gathered,
    Fresh,
    Reused,
    /// A body byte went to the upstream.
    BodyWent,
    /// The attempt failed.
    Failed(Cause),
    /// The upstream's head: status line and fields, without the version.
    Says(&'static str),
    Client(Cause),
    Gone,
    Opened,
    Index,
    Missing,
}
use Event::*;

const GET: &str = "GET / HTTP/1.1";
const POST: &str = "POST / HTTP/1.1\r\nContent-Length: 5";
const PUT: &str = "PUT / HTTP/1.1\r\nContent-Length: 5";
const UPGRADE: &str = "GET / HTTP/1.1\r\nUpgrade: x\r\nConnection: upgrade";

struct NoFacts;

impl crate::Facts for NoFacts {
    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    fn tcp_info(&self) -> Option<[u32; 4]> {
        None
    }

    fn file_test(&self, _: &Path, _: FileTest) -> bool {
        false
    }

    fn real_path(&self, _: &Path) -> Option<PathBuf> {
        None
    }

    fn connections(&self) -> crate::context::Connections {
        crate::context::Connections::default()
    }

    fn random(&self) -> [u8; 16] {
        [0; 16]
    }

    fn client_certificate(&self, _: crate::ClientCertificate, _: &mut Vec<u8>) -> bool {
        false
    }
}

/// One server whose `location /` asks a group; the driver's part is played as if it had two peers.
struct Bed {
    config: Config,
    program: Program,
    dates: Dates,
}

impl Bed {
    fn new(location: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kp.conf");
        let text = format!(
            "events {{}} http {{ upstream g {{ server 127.0.0.1:1; server 127.0.0.1:2; }} server {{ listen 127.0.0.1:8080;
             location / {{ proxy_pass http://g; {location} }}
             location @other {{ proxy_pass http://g; }}
             location /file {{ root /srv; }} location /close {{ return 444; }} }} }}"
        );
        std::fs::write(&path, text).expect("written");
        let loaded = kp_config::load(&LoadOptions {
            path,
            prefix: directory.path().to_owned(),
            resolve_names: false,
            ..LoadOptions::default()
        });
        let problems = kp_config::render(&loaded.diagnostics, &loaded.sources);
        let config = loaded.config.unwrap_or_else(|| panic!("{problems}"));
        let program = Program::compile(&config).expect("compiles");
        Self {
            config,
            program,
            dates: Dates::default(),
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            config: &self.config,
            now: Now {
                mono_ms: 1000,
                unix_ms: 1000,
                dates: &self.dates,
            },
            facts: &NoFacts,
            limits: None,
            pid: 1,
            hostname: "host",
            group: "0",
        }
    }

    /// The exchange after all events, and what was asked for after each that is an input.
    fn run(&self, request: &str, events: &[Event]) -> (Exchange, Vec<String>) {
        let mut exchange = Exchange::default();
        let head = format!("{request}\r\nHost: t\r\n\r\n");
        HeadReader::default()
            .request(
                &mut head.into_bytes(),
                &mut exchange.request.head,
                &HeadLimits::default(),
            )
            .expect("a head");
        let mut asked = Vec::new();
        for event in events {
            let Some(input) = input(*event, &mut exchange) else {
                continue;
            };
            let action = exchange.handle(input, &self.program, &self.context());
            match &action {
                Action::Acquire => {
                    exchange.machine.peers = 2;
                    exchange.begin_attempt(UpstreamId(0), "127.0.0.1:1", 1000);
                }
                Action::SendHead => {
                    exchange.machine.sent_method = Some(exchange.request.head.method);
                    exchange.machine.upgrade = exchange.request.head.upgrade_requested().is_some();
                }
                _ => {}
            }
            asked.push(said(&action));
        }
        (exchange, asked)
    }
}

fn input(event: Event, exchange: &mut Exchange) -> Option<Input> {
    let failed = |phase, cause| Failure::new(phase, cause);
    Some(match event {
        Begin => Input::Head,
        Refused(cause) => Input::HeadFailed(failed(failure::Phase::RequestHead, cause)),
        Collected => Input::Collected,
        Gathered => Input::Gathered,
        Fresh => Input::Connected { reused: false },
        Reused => Input::Connected { reused: true },
        BodyWent => {
            exchange.machine.body_touched();
            return None;
        }
        Failed(cause) => Input::UpstreamFailed(failed(failure::Phase::AwaitHead, cause)),
        Says(head) => {
            let mut parsed = ResponseHead::default();
            let mut text = format!("HTTP/1.1 {head}\r\n\r\n").into_bytes();
            let limits = HeadLimits::default();
            HeadReader::default()
                .response(&mut text, &mut parsed, Method::Get, &limits)
                .expect("a head");
            exchange.response.upstream = Some(parsed);
            Input::ResponseHead
        }
        Client(cause) => Input::ClientFailed(failed(failure::Phase::RequestBody, cause)),
        Gone => Input::ClientGone,
        Opened | Index => Input::FileOpened(FileFacts {
            length: 1,
            modified_s: 1,
            index: matches!(event, Index).then(|| b"/file".to_vec()),
        }),
        Missing => Input::FileFailed(FileError::NotFound("not there".to_owned())),
    })
}

fn said(action: &Action) -> String {
    match action {
        Action::Respond(answer) => format!("answer {}", answer.status),
        Action::RespondFailure(failure) => format!("fail {}", failure.status()),
        Action::Gather(bytes) => format!("gather {bytes}"),
        Action::OpenFile(_) => "open".to_owned(),
        Action::SendFile(_) => "send file".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// What is asked for last.
#[track_caller]
fn last(location: &str, request: &str, events: &[Event], expected: &str) -> Exchange {
    let (exchange, asked) = Bed::new(location).run(request, events);
    assert_eq!(
        asked.last().map(String::as_str),
        Some(expected),
        "{asked:?}"
    );
    exchange
}

#[test]
fn a_stale_connection_is_free() {
    let stale = [Begin, Reused, Failed(Cause::StaleConnection)];
    let exchange = last("", GET, &stale, "acquire");
    let machine = &exchange.machine;
    assert!(machine.forgive && machine.fresh_only, "{machine:?}");
    assert_eq!(
        (machine.tries, machine.outcome),
        (1, Some(Outcome::NotCounted))
    );
    last("proxy_next_upstream off;", GET, &stale, "fail 502");
    last("proxy_next_upstream_tries 1;", GET, &stale, "acquire");
}

#[test]
fn what_may_have_been_done_is_not_done_again() {
    let whole = [Begin, Collected, Reused, Failed(Cause::StaleConnection)];
    last("", POST, &whole, "fail 502");
    last(
        "proxy_next_upstream error non_idempotent;",
        POST,
        &whole,
        "acquire",
    );
    last("", PUT, &whole, "acquire");
    let closed = [Begin, Collected, Fresh, Failed(Cause::UpstreamClosed)];
    last("", POST, &closed, "fail 502");
    last("", PUT, &closed, "acquire");
}

/// No peer is held by a client whose body does not come.
#[test]
fn the_beginning_of_a_body_comes_before_a_peer() {
    const LONG: &str = "POST / HTTP/1.1\r\nContent-Length: 1000000";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked";
    last("", LONG, &[Begin], "gather 16384");
    last(
        "client_body_buffer_size 1000;",
        LONG,
        &[Begin],
        "gather 1000",
    );
    last("", CHUNKED, &[Begin], "gather 1");
    last("", CHUNKED, &[Begin, Gathered], "acquire");
    let late = [Begin, Client(Cause::ClientBodyTimeout)];
    last("", LONG, &late, "fail 408");
    last("proxy_request_buffering off;", LONG, &[Begin], "acquire");
    last("proxy_pass_request_body off;", LONG, &[Begin], "acquire");
}

#[test]
fn what_was_not_sent_goes_elsewhere() {
    for cause in [Cause::ConnectFailed(111), Cause::ConnectTimeout] {
        let exchange = last("", POST, &[Begin, Collected, Failed(cause)], "acquire");
        assert_eq!(exchange.machine.outcome, Some(Outcome::Failed));
        last(
            "proxy_request_buffering off;",
            POST,
            &[Begin, Failed(cause)],
            "acquire",
        );
    }
    let twice = [
        Begin,
        Failed(Cause::ConnectFailed(111)),
        Failed(Cause::ConnectTimeout),
    ];
    last("", GET, &twice, "fail 504");
    last("", GET, &[Begin, Failed(Cause::NoLivePeer)], "fail 502");
}

#[test]
fn a_body_that_went_is_gone() {
    let streams = "proxy_request_buffering off;";
    let went = [Begin, Fresh, BodyWent, Failed(Cause::UpstreamClosed)];
    last(streams, PUT, &went, "fail 502");
    last(
        streams,
        PUT,
        &[Begin, Fresh, Failed(Cause::UpstreamClosed)],
        "acquire",
    );
    let named = "proxy_request_buffering off; error_page 502 = @other;";
    let exchange = last(named, PUT, &went, "answer 502");
    assert_eq!(exchange.machine.outcome, Some(Outcome::Failed));
    let fetched = "proxy_request_buffering off; error_page 502 /x;";
    last(fetched, PUT, &went, "acquire");
}

#[test]
fn a_listed_status_is_asked_for_elsewhere() {
    let lists = "proxy_next_upstream http_503 http_404;";
    let exchange = last(lists, GET, &[Begin, Fresh, Says("503 Busy")], "acquire");
    assert_eq!(exchange.machine.outcome, Some(Outcome::Failed));
    let exchange = last(lists, GET, &[Begin, Fresh, Says("404 No")], "acquire");
    assert_eq!(exchange.machine.outcome, Some(Outcome::Ok));
    let again = [Begin, Fresh, Says("503 Busy"), Fresh, Says("503 Busy")];
    let exchange = last(lists, GET, &again, "forwardhead");
    assert_eq!(exchange.machine.outcome, Some(Outcome::Ok));
    last(
        lists,
        POST,
        &[Begin, Collected, Fresh, Says("503 Busy")],
        "forwardhead",
    );
    last("", GET, &[Begin, Fresh, Says("503 Busy")], "forwardhead");
    last(
        "proxy_intercept_errors on; error_page 503 = @other;",
        GET,
        &[Begin, Fresh, Says("503 Busy")],
        "acquire",
    );
}

#[test]
fn switching_needs_to_be_asked_for() {
    let says = [
        Begin,
        Fresh,
        Says("101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade"),
    ];
    last("", UPGRADE, &says, "tunnel");
    last("", GET, &says, "fail 502");
    last("", UPGRADE, &[Begin, Fresh, Says("200 OK")], "forwardhead");
    let mut cut = says.to_vec();
    cut.push(Failed(Cause::TunnelTimeout));
    last("", UPGRADE, &cut, "truncate");
}

#[test]
fn interim_responses() {
    let says = |status| [Begin, Fresh, Says(status)];
    for status in ["100 Continue", "102 Processing"] {
        last("", GET, &says(status), "awaithead");
    }
    last("", GET, &says("103 Early Hints"), "forwardinterim");
    last("", "GET / HTTP/1.0", &says("103 Early Hints"), "awaithead");
    let mut flood = vec![Begin, Fresh];
    flood.extend([Says("100 Continue"); 100]);
    last("", GET, &flood, "awaithead");
    flood.push(Says("100 Continue"));
    last("proxy_next_upstream off;", GET, &flood, "fail 502");
}

#[test]
fn statuses_of_failed_attempts() {
    let off = "proxy_next_upstream off;";
    for (cause, expected) in [
        (Cause::UpstreamTimeout, "fail 504"),
        (Cause::SendTimeout, "fail 504"),
        (Cause::SendFailed(32), "fail 502"),
        (Cause::UpstreamReset(104), "fail 502"),
        (Cause::UpstreamInvalidHead, "fail 502"),
        (Cause::UpstreamHeadTooLarge, "fail 502"),
        (Cause::Overload, "fail 503"),
    ] {
        let exchange = last(off, GET, &[Begin, Fresh, Failed(cause)], expected);
        let mark = Failure::new(failure::Phase::AwaitHead, cause).peer_mark(false);
        assert_eq!(exchange.machine.outcome, Some(mark), "{cause:?}");
        assert!(exchange.record.reason.is_some() && !exchange.machine.reported.is_empty());
    }
}

#[test]
fn an_answer_that_began_is_only_cut() {
    let relay = [Begin, Fresh, Says("200 OK\r\nContent-Length: 9")];
    for cause in [
        Cause::BodyTruncated,
        Cause::BodyReset(104),
        Cause::BodyTimeout,
        Cause::BodyInvalid,
    ] {
        let mut events = relay.to_vec();
        events.push(Failed(cause));
        let exchange = last("error_page 502 504 @other;", GET, &events, "truncate");
        assert_eq!(
            exchange.machine.outcome,
            Some(Outcome::Ok),
            "as nginx: it answered"
        );
    }
    for cause in [Cause::ClientSendTimeout, Cause::BadBody] {
        let mut events = relay.to_vec();
        events.push(Client(cause));
        let exchange = last("", GET, &events, "truncate");
        assert_eq!(exchange.machine.outcome, Some(Outcome::NotCounted));
    }
}

#[test]
fn a_client_that_leaves_is_not_the_peer_s_fault() {
    for before in [
        &[Begin][..],
        &[Begin, Fresh],
        &[Begin, Fresh, Says("200 OK\r\nContent-Length: 1")],
    ] {
        let mut events = before.to_vec();
        events.push(Gone);
        let exchange = last("", GET, &events, "close");
        assert_eq!(exchange.machine.outcome, Some(Outcome::NotCounted));
        assert_eq!(exchange.response.status, 499);
    }
}

#[test]
fn what_a_client_does_wrong() {
    for (cause, expected) in [
        (Cause::BodyTooLarge(None), "fail 413"),
        (Cause::ClientBodyTimeout, "fail 408"),
        (Cause::BadBody, "fail 400"),
        // It takes not even a 100: there is nothing to say.
        (Cause::ClientSendTimeout, "close"),
    ] {
        last("", POST, &[Begin, Client(cause)], expected);
        let exchange = last(
            "proxy_request_buffering off;",
            POST,
            &[Begin, Fresh, Client(cause)],
            expected,
        );
        assert_eq!(
            exchange.machine.outcome,
            Some(Outcome::NotCounted),
            "{cause:?}"
        );
    }
    for (cause, expected) in [
        (Cause::BadRequest, "fail 400"),
        (Cause::HeadTooLarge, "fail 431"),
        (Cause::ClientHeadTimeout, "fail 408"),
        (Cause::Overload, "fail 503"),
    ] {
        last("", GET, &[Refused(cause)], expected);
    }
    last("", "TRACE / HTTP/1.1", &[Begin], "fail 405");
    last("", "GET /close HTTP/1.1", &[Begin], "close");
}

#[test]
fn files() {
    const FILE: &str = "GET /file HTTP/1.1";
    last("", FILE, &[Begin], "open");
    last("", FILE, &[Begin, Opened], "send file");
    last("", FILE, &[Begin, Missing], "answer 404");
    last("", "PUT /file HTTP/1.1", &[Begin], "answer 405");
    last("", "POST /file HTTP/1.1", &[Begin, Opened], "answer 405");
    last("", "POST /file HTTP/1.1", &[Begin, Missing], "answer 404");
    last(
        "",
        FILE,
        &[Begin, Opened, Failed(Cause::Internal)],
        "truncate",
    );
    last("", "GET /file/ HTTP/1.1", &[Begin, Index], "open");
    let circle = [
        Begin, Index, Index, Index, Index, Index, Index, Index, Index, Index, Index, Index,
    ];
    last("", "GET /file/ HTTP/1.1", &circle, "answer 500");
}

#[test]
fn whoever_is_asked_by_an_accelerated_redirect_answers() {
    let says = |head| [Begin, Fresh, Says(head)];
    last("", GET, &says("200 OK\r\nX-Accel-Redirect: /file"), "open");
    last(
        "",
        GET,
        &says("200 OK\r\nX-Accel-Redirect: @other"),
        "acquire",
    );
    last(
        "",
        GET,
        &says("200 OK\r\nX-Accel-Redirect: @none"),
        "answer 500",
    );
    last(
        "",
        GET,
        &says("200 OK\r\nX-Accel-Redirect: /../file"),
        "answer 404",
    );
}
