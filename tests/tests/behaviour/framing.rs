//! Where messages end, which connections are used again, and what is tried a second time (cases F01–F09).

use std::time::{Duration, Instant};

use kp_tests::origin::{OK, response};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Origin, Port, Setup};
use sha2::{Digest, Sha256};

const SECOND: Duration = Duration::from_secs(1);
const FIRST: &str = "GET /1 HTTP/1.1\r\nHost: t\r\n\r\n";
const GET: &str = "GET /2 HTTP/1.1\r\nHost: t\r\n\r\n";
const POST: &str = "POST /2 HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc";

/// Answers one request on the first connection, then closes it after a moment. Later connections are normal.
fn closes_when_idle() -> Origin {
    Origin::start(|conversation| {
        if conversation.index > 0 {
            return conversation.answer_all(|_| OK.to_vec());
        }
        conversation.request()?;
        conversation.send(OK)?;
        conversation.pause(Duration::from_millis(50));
        Ok(())
    })
}

/// Reads a second request on the first connection and ends it without a byte.
fn closes_on_second(reset: bool) -> Origin {
    Origin::start(move |conversation| {
        if conversation.index > 0 {
            return conversation.answer_all(|_| OK.to_vec());
        }
        conversation.request()?;
        conversation.send(OK)?;
        conversation.request()?;
        if reset { conversation.reset() } else { Ok(()) }
    })
}

fn seen(origin: &Origin, target: &str) -> usize {
    origin
        .targets()
        .iter()
        .filter(|seen| *seen == target)
        .count()
}

/// One request to put a connection into the pool, then the second one on a new client connection.
fn second_request(kp: &Kp, origin: &Origin, wait_for_close: bool, second: &str) -> (u16, Duration) {
    assert_eq!(kp.client().ask(FIRST).status(), 200);
    if wait_for_close {
        origin.wait_all_closed(SOON);
        // The FIN is on its way through the loopback; the case says 300 ms.
        wait::pause(Duration::from_millis(250));
    }
    let start = Instant::now();
    (kp.client().ask(second).status(), start.elapsed())
}

#[test]
fn f01_a_stale_connection_does_not_fail_a_get() {
    let origin = closes_when_idle();
    let kp = Kp::base(&origin);
    let (status, took) = second_request(&kp, &origin, true, GET);
    assert_eq!((status, seen(&origin, "/2")), (200, 1));
    assert!(took <= SECOND * 10, "{took:?}");
    for reset in [false, true] {
        let origin = closes_on_second(reset);
        let kp = Kp::base(&origin);
        let (status, took) = second_request(&kp, &origin, false, GET);
        assert_eq!((status, seen(&origin, "/2")), (200, 2), "reset: {reset}");
        assert!(took <= SECOND * 10, "{took:?}");
    }
}

/// Shows: proxy_next_upstream
#[test]
fn f02_a_stale_connection_does_not_repeat_a_post() {
    let origin = closes_when_idle();
    let kp = Kp::base(&origin);
    let (status, _) = second_request(&kp, &origin, true, POST);
    assert_eq!((status, seen(&origin, "/2")), (200, 1));

    for reset in [false, true] {
        let origin = closes_on_second(reset);
        let kp = Kp::base(&origin);
        let (status, took) = second_request(&kp, &origin, false, POST);
        assert_eq!((status, seen(&origin, "/2")), (502, 1), "reset: {reset}");
        assert!(took <= SECOND * 10);

        let origin = closes_on_second(reset);
        let kp = Setup::base(&origin)
            .location("proxy_next_upstream error timeout non_idempotent;")
            .start();
        let (status, _) = second_request(&kp, &origin, false, POST);
        assert_eq!((status, seen(&origin, "/2")), (200, 2), "reset: {reset}");
    }
}

/// Bytes without a pattern, the same every time.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(step).take(count).collect()
}

/// Shows: proxy_request_buffering
#[test]
fn f03_a_body_survives_a_refused_connect() {
    let body = noise(200_000);
    let plain = [
        format!(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .as_bytes(),
        &body,
    ]
    .concat();
    let mut chunked = b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(7_000) {
        chunked.extend(format!("{:x}\r\n", chunk.len()).bytes());
        chunked.extend(chunk);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\n\r\n");
    for buffering in ["on", "off"] {
        let origin = Origin::ok();
        let dead = Port::take();
        let kp = Setup::base(&origin)
            .with("U1", "max_fails=0;")
            .with("U1", format!("server {} max_fails=0", dead.address()))
            .location(&format!("proxy_request_buffering {buffering};"))
            .start();
        for request in [&plain, &plain, &chunked, &chunked] {
            origin.forget();
            let answer = kp.client().ask(request);
            assert_eq!(answer.status(), 200, "buffering {buffering}");
            let requests = origin.requests();
            assert_eq!(requests.len(), 1, "once, and whole");
            assert_eq!(
                Sha256::digest(&requests[0].body),
                Sha256::digest(&body),
                "buffering {buffering}"
            );
        }
    }
}

/// Shows: proxy_next_upstream
#[test]
fn f04_a_listed_status_is_tried_elsewhere() {
    let a = Origin::replying(response(500, b"BODY-A"));
    let b = Origin::replying(response(500, b"BODY-B"));
    let kp = Setup::base(&a)
        .with(
            "U1",
            format!("max_fails=0; server {} max_fails=0", b.address()),
        )
        .location("proxy_next_upstream error timeout http_500;")
        .start();
    let answer = kp
        .client()
        .ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!((answer.status(), answer.text().as_str()), (500, "BODY-A"));
    assert_eq!((a.requests().len(), b.requests().len()), (1, 0));

    a.forget();
    let answer = kp.get("/");
    assert_eq!(answer.status(), 500);
    assert_eq!(
        (a.requests().len(), b.requests().len()),
        (1, 1),
        "each is tried once"
    );
    // The second pick starts at the peer whose turn it is; the client gets what the last one said.
    assert!(["BODY-A", "BODY-B"].contains(&answer.text().as_str()));
}

#[test]
fn f05_an_ambiguous_response_is_a_502() {
    for (fields, names) in [
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "ransfer-",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "ontent-",
        ),
        (
            "Content-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
            "ontent-",
        ),
        ("Content-Length: 2x\r\n\r\nok", "ontent-"),
        ("Transfer-Encoding: gzip\r\n\r\nok", "ransfer-"),
        ("Bogus\r\nContent-Length: 2\r\n\r\nok", "Bogus"),
    ] {
        let reply = format!("HTTP/1.1 200 OK\r\nX-Leak: leak\r\n{fields}");
        let origin = Origin::start(move |conversation| {
            if conversation.index > 0 {
                return conversation.answer_all(|_| response(200, b"own"));
            }
            conversation.request()?;
            conversation.send(&reply)?;
            conversation.answer_all(|_| response(200, b"reused"))
        });
        let kp = Setup::base(&origin).upstream("").start();
        let answer = kp.get("/");
        assert_eq!(answer.status(), 502, "{fields:?}");
        assert_eq!(answer.field("x-leak"), None);
        wait::until(SOON, "the offending field in the error log", || {
            kp.error_log()
                .lines()
                .any(|line| line.contains("[error]") && line.contains(names))
        });
        // A peer that answered nonsense counts as failed for its group of one.
        let next = kp.get("/");
        assert!(
            next.text() == "own" && next.status() == 200,
            "{fields:?}: {}",
            next.text()
        );
    }
}

#[test]
fn f06_a_truncated_response_never_looks_complete() {
    let lengths = [
        ("Content-Length: 100\r\n\r\n0123456789", "0123456789"),
        ("Content-Length: 100\r\n\r\n", ""),
        (
            "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n",
            "0123456789",
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n64\r\n0123456789",
            "0123456789",
        ),
    ];
    for (rest, came) in lengths {
        let reply = format!("HTTP/1.1 200 OK\r\n{rest}");
        let origin = Origin::start(move |conversation| {
            conversation.request()?;
            conversation.send(&reply)
        });
        let kp = Kp::base(&origin);
        let mut client = kp.client();
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\nGET /next HTTP/1.1\r\nHost: t\r\n\r\n");
        let answer = client
            .try_response("GET", SOON)
            .expect("the head is passed on");
        assert_eq!(
            (answer.status(), answer.text().as_str()),
            (200, came),
            "{rest:?}"
        );
        assert!(!answer.whole, "{rest:?}: a truncated body looks complete");
        assert_ne!(
            answer.end,
            End::Deadline,
            "{rest:?}: the connection is still open"
        );
        assert_eq!(origin.requests().len(), 1, "{rest:?}: tried again");
        let line = &kp.access_lines(1)[0];
        assert!(line.contains("\" 200 "), "{line}");
        assert!(
            kp.error_log().contains("upstream prematurely closed"),
            "{}",
            kp.error_log()
        );
    }
}

#[test]
fn f07_bytes_after_a_response_reach_nobody() {
    for late in [false, true] {
        let origin = Origin::start(move |conversation| {
            if conversation.index > 0 {
                return conversation.answer_all(|_| response(200, b"own"));
            }
            conversation.request()?;
            let evil = response(200, b"evil");
            if late {
                conversation.send(OK)?;
                conversation.pause(Duration::from_millis(100));
                conversation.send(evil)?;
            } else {
                conversation.send([OK, &evil].concat())?;
            }
            conversation.note();
            conversation.read_to_end();
            Ok(())
        });
        let kp = Kp::base(&origin);
        assert_eq!(kp.get("/").text(), "ok");
        wait::until(SOON, "the extra bytes", || !origin.noted().is_empty());
        wait::pause(Duration::from_millis(50));
        for _ in 0..5 {
            assert_eq!(kp.get("/").text(), "own", "late: {late}");
        }
    }
}

#[test]
fn f08_responses_without_a_body_by_definition() {
    for (method, head) in [
        ("HEAD", "200 OK\r\nContent-Length: 1000\r\n"),
        ("HEAD", "200 OK\r\nTransfer-Encoding: chunked\r\n"),
        ("GET", "204 No Content\r\n"),
        ("GET", "204 No Content\r\nTransfer-Encoding: chunked\r\n"),
        ("GET", "204 No Content\r\nContent-Length: 5\r\n"),
        ("GET", "304 Not Modified\r\nContent-Length: 1000\r\n"),
        ("GET", "304 Not Modified\r\nTransfer-Encoding: chunked\r\n"),
    ] {
        let origin = Origin::replying(format!("HTTP/1.1 {head}\r\n"));
        let kp = Kp::base(&origin);
        let mut client = kp.client();
        for _ in 0..2 {
            let start = Instant::now();
            let answer = client.ask(format!("{method} / HTTP/1.1\r\nHost: t\r\n\r\n"));
            assert_eq!(answer.head.status().to_string(), head[..3]);
            assert!(start.elapsed() <= SECOND * 10, "{method} {head:?}");
            if answer.status() == 204 {
                assert_eq!(answer.field("transfer-encoding"), None, "{head:?}");
                assert_eq!(answer.field("content-length"), None, "{head:?}");
            }
        }
        assert_eq!(
            origin.connections(),
            1,
            "{method} {head:?}: the connection is used again"
        );
    }
}

fn smuggled(kp: &Kp, origin: &Origin, request: &[u8], refusal: u16) {
    origin.forget();
    let mut client = kp.client();
    client.send([request, b"GET /ok HTTP/1.1\r\nHost: t\r\n\r\n"].concat());
    assert_eq!(client.response().status(), refusal);
    match client.try_response("GET", SOON) {
        Ok(answer) => {
            assert_eq!(answer.status(), 200);
            assert_eq!(origin.targets(), ["/ok"]);
        }
        Err(end) => assert_ne!(end, End::Deadline, "neither an answer nor the end"),
    }
    assert!(!origin.raw_text().contains("smuggled"));
}

/// Shows: client_max_body_size, return
#[test]
fn f09_an_unread_body_is_not_a_request() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server("location /no { return 403; }")
        .server("location /small { client_max_body_size 10; proxy_pass http://u; }")
        .start();
    let hidden = "GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n";
    let length = hidden.len();
    for (path, refusal) in [("/no", 403), ("/small", 413)] {
        let by_length =
            format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{hidden}");
        smuggled(&kp, &origin, by_length.as_bytes(), refusal);
        let by_chunk = format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n"
        );
        smuggled(&kp, &origin, by_chunk.as_bytes(), refusal);
    }
}

#[test]
fn an_upstream_that_names_its_timeout_is_not_trusted_to_the_last_second() {
    let reply = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok";
    let origin = Origin::replying(reply);
    let kp = Setup::base(&origin)
        .upstream("keepalive_timeout 60s;")
        .start();
    for _ in 0..3 {
        assert_eq!(kp.get("/").status(), 200);
    }
    assert_eq!(
        origin.connections(),
        3,
        "reuse stops one second before the announced timeout"
    );
}

#[test]
fn http_1_0_clients_get_what_they_understand() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    );
    let kp = Kp::base(&origin);
    let mut client = kp.client();
    let answer = client.ask("GET / HTTP/1.0\r\nHost: t\r\n\r\n");
    assert_eq!(answer.field("transfer-encoding"), None);
    assert_eq!((answer.text().as_str(), answer.end), ("ok", End::Closed));
}

/// Shows: chunked_transfer_encoding
#[test]
fn chunking_can_be_turned_off() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")
    });
    let kp = Kp::base(&origin);
    let answer = kp.client().ask(FIRST);
    assert_eq!(answer.field("transfer-encoding"), Some("chunked"));
    assert_eq!(
        (answer.text().as_str(), answer.end),
        ("until the end", End::Complete)
    );
    let kp = Setup::base(&origin)
        .location("chunked_transfer_encoding off;")
        .start();
    let answer = kp.client().ask(FIRST);
    assert_eq!(answer.field("transfer-encoding"), None);
    assert_eq!(
        (answer.text().as_str(), answer.end),
        ("until the end", End::Closed)
    );
}

/// Shows: proxy_http_version
#[test]
fn an_http_1_0_upstream_gets_lengths() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .location("proxy_http_version 1.0;")
        .start();
    let mut client = Client::connect(&kp.address());
    for _ in 0..2 {
        let request =
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(client.ask(request).status(), 200);
        let last = origin.last();
        assert_eq!(last.head.line, "POST / HTTP/1.0");
        assert_eq!(
            (
                last.field("content-length"),
                last.field("transfer-encoding")
            ),
            (Some("3"), None)
        );
        assert_eq!(last.body, b"abc");
    }
}

/// Shows: proxy_pass_trailers, add_trailer
#[test]
fn trailers_pass_where_they_are_asked_for() {
    let reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n";
    let origin = Origin::replying(reply);
    let kp = Setup::base(&origin)
        .location("add_trailer X-Own $host;")
        .start();
    let request = "GET / HTTP/1.1\r\nHost: t\r\nTE: trailers\r\nConnection: TE\r\n\r\n";
    let own = ("X-Own".to_owned(), "t".to_owned());
    let answer = kp.client().ask(request);
    assert_eq!(answer.trailers, std::slice::from_ref(&own));
    let kp = Setup::base(&origin)
        .location("proxy_pass_trailers on; add_trailer X-Own $host;")
        .start();
    let answer = kp.client().ask(request);
    assert!(
        answer
            .trailers
            .contains(&("X-Sum".to_owned(), "7".to_owned())),
        "{:?}",
        answer.trailers
    );
    assert!(answer.trailers.contains(&own), "{:?}", answer.trailers);
}

/// Shows: proxy_next_upstream_tries, proxy_next_upstream_timeout
#[test]
fn tries_and_their_time_are_capped() {
    let origin = Origin::ok();
    let bad: Vec<Origin> = (0..3)
        .map(|_| Origin::replying(response(503, b"no")))
        .collect();
    let servers: String = bad
        .iter()
        .map(|bad| format!("server {} max_fails=0; ", bad.address()))
        .collect();
    let text = "http { upstream u { %SERVERS% } server { listen %LISTEN%; location / { proxy_pass http://u;
        proxy_next_upstream http_503; proxy_next_upstream_tries 2; } } }";
    let kp = Setup::new(text).with("SERVERS", &servers).start();
    assert_eq!(kp.get("/").status(), 503);
    assert_eq!(bad.iter().map(|bad| bad.requests().len()).sum::<usize>(), 2);

    let slow = Origin::start(|conversation| {
        conversation.request()?;
        conversation.pause(Duration::from_millis(300));
        conversation.send(response(503, b"slow"))
    });
    let text = "http { upstream u { server %SLOW%; server %OK% backup; } server { listen %LISTEN%;
        location / { proxy_pass http://u; proxy_next_upstream http_503; proxy_next_upstream_timeout 100ms; } } }";
    let kp = Setup::new(text)
        .with("SLOW", slow.address())
        .with("OK", origin.address())
        .start();
    assert_eq!(kp.get("/").text(), "slow");
    assert!(
        origin.requests().is_empty(),
        "the time for another try had passed"
    );
}

/// What lies in the socket behind a response that filled a read to the last byte gives no further event: it must not
/// become the next response on the pooled connection.
#[test]
fn f07_bytes_after_a_response_that_fills_a_read_reach_nobody() {
    for size in [4096_usize, 8192, 16384, 32768, 65536] {
        let origin = Origin::start(move |conversation| {
            if conversation.index > 0 {
                return conversation.answer_all(|_| response(200, b"own"));
            }
            conversation.request()?;
            let head =
                |length: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let body = vec![b'x'; size - head(size).len()];
            let whole = [head(body.len()).as_bytes(), &body].concat();
            let body = vec![b'x'; body.len() + size - whole.len()];
            let whole = [head(body.len()).as_bytes(), &body].concat();
            conversation.send([whole, response(200, b"evil")].concat())?;
            conversation.note();
            conversation.read_to_end();
            Ok(())
        });
        let kp = Kp::base(&origin);
        assert_eq!(kp.get("/").status(), 200);
        for _ in 0..3 {
            assert_eq!(kp.get("/").text(), "own", "a response of {size} bytes");
        }
    }
}

/// A body that no handler wants is still part of the request: what came of it with the head is checked, and where its
/// end cannot be found the answer says that the connection ends.
#[test]
fn f09_an_unwanted_body_is_checked() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server("location /no { return 403; }")
        .server("location /text { return 200 text; }")
        .start();
    for (path, expected) in [("/no", 403), ("/text", 400)] {
        for body in ["zz\r\n", "1\r\nZ\r\n+1\r\n", "1\nZ\r\n0\r\n\r\n"] {
            let mut client = kp.client();
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{body}GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n"
            ));
            let answer = client.response();
            assert_eq!(answer.status(), expected, "{path} {body:?}");
            assert_eq!(answer.field("connection"), Some("close"), "{path} {body:?}");
            assert!(client.closes_within(SOON));
        }
        let mut client = kp.client();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        ));
        assert_eq!(
            client.response().field("connection"),
            Some("close"),
            "whoever waits for a 100 is told that there will be none"
        );
        assert!(client.closes_within(SOON));
    }
    assert_eq!(origin.raw_text(), "");
}

/// The error page of a request whose body broke is asked for without that body.
#[test]
fn the_error_page_of_a_broken_body_has_none() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server("error_page 400 413 /page; client_max_body_size 10;")
        .start();
    for body in [
        "zz\r\n",
        "1\r\nZ\r\nzz\r\n",
        "1e\r\n012345678901234567890123456789\r\n0\r\n\r\n",
    ] {
        let mut client = kp.client();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        let answer = client.response();
        assert!(
            matches!(answer.status(), 400 | 413),
            "{body:?}: {}",
            answer.status()
        );
        assert_eq!(answer.text(), "ok");
        assert!(client.closes_within(SOON));
        assert_eq!(origin.last().target(), "/page");
        assert!(origin.last().body.is_empty());
    }
}

/// Chunks that are whole reach the client, also where what follows them in the same read is none.
#[test]
fn f06_what_came_before_a_malformed_chunk_is_delivered() {
    for bad in ["zz\r\n", "2\r\nabc\r\n", "0\r\nX Y: 1\r\n\r\n"] {
        let origin = Origin::replying(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n{bad}"
        ));
        let kp = Kp::base(&origin);
        for round in 1..=2 {
            let mut client = kp.client();
            client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
            let (bytes, _) = client.read_to_end(SOON);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(text.contains("0123456789"), "{bad:?}: {text:?}");
            assert!(!text.contains("0\r\n\r\n"), "{bad:?}: {text:?}");
            assert_eq!(origin.connections(), round, "no connection is used again");
        }
    }
}

/// A small body that is here with its head can be sent again, however it is delimited and whether or not it would stream.
#[test]
fn f02_a_body_that_is_already_here_can_be_repeated() {
    for buffering in ["", "proxy_request_buffering off;"] {
        for body in [
            "Content-Length: 3\r\n\r\nabc",
            "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
        ] {
            let origin = closes_on_second(false);
            let kp = Setup::base(&origin).location(buffering).start();
            assert_eq!(kp.get("/1").status(), 200);
            let mut client = kp.client();
            client.send(format!("PUT /2 HTTP/1.1\r\nHost: t\r\n{body}"));
            assert_eq!(client.response().status(), 200, "{buffering} {body:?}");
            assert_eq!(origin.last().body, b"abc");
            assert_eq!(seen(&origin, "/2"), 2);
        }
    }
}
