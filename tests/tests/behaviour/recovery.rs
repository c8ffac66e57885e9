//! Exchanges that go wrong in the middle: what is sent again, what is never claimed again, and what still arrives.

use std::time::Duration;

use kp_tests::origin::{OK, response};
use kp_tests::wait::{self, SOON};
use kp_tests::{Origin, Setup};

const SECOND: Duration = Duration::from_secs(1);
const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

/// Bytes that say where in the body they stand.
fn numbered(count: usize) -> Vec<u8> {
    (0..count / 8)
        .flat_map(|n| format!("{n:07}\n").into_bytes())
        .collect()
}

fn put(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// The first upstream gives up in the middle of a body that lies in a file: the second one gets the body from its
/// beginning, wherever the reading stood.
#[test]
fn a_body_in_a_file_is_replayed_from_its_beginning() {
    let broken = Origin::start(|conversation| {
        let read = 1000 + conversation.index % 7 * 150_000;
        conversation.read_at_least(read)?;
        conversation.reset()
    });
    let origin = Origin::ok();
    let kp = Setup::base(&broken)
        .with("U1", "max_fails=0;")
        .with("U1", format!("server {} max_fails=0", origin.address()))
        .server("client_max_body_size 0;")
        .location("proxy_request_buffering on;")
        .start();
    let body = numbered(4_000_000);
    let request = put(&body);
    for n in 0..12 {
        origin.forget();
        let answer = kp.client().ask(&request);
        assert_eq!(answer.status(), 200, "request {n}");
        let requests = origin.requests();
        assert_eq!(requests.len(), 1, "request {n}");
        assert!(
            requests[0].body == body,
            "request {n}: another body arrived"
        );
    }
    assert!(broken.connections() > 1, "the first upstream was asked");
}

/// A body that streamed to an upstream is gone: the page for its failure may still be had with GET, but nobody else is
/// sent the same method without the body.
#[test]
fn a_streamed_body_is_not_claimed_again() {
    let first = Origin::start(|conversation| conversation.answer_all(|_| response(500, b"broken")));
    let second = Origin::ok();
    let kp = Setup::base(&first)
        .server(&format!(
            "location @again {{ proxy_pass http://{0}; }} location /page {{ proxy_pass http://{0}; }}",
            second.address()
        ))
        .server("location /named { proxy_pass http://u; proxy_intercept_errors on; error_page 500 = @again; proxy_request_buffering off; }")
        .server("location /paged { proxy_pass http://u; proxy_intercept_errors on; error_page 500 /page; proxy_request_buffering off; }")
        .start();
    let ask = |path: &str| {
        let body = "x".repeat(100_000);
        kp.client().ask(format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n{body}"
        ))
    };
    assert_eq!(ask("/named").status(), 500);
    assert_eq!(second.requests().len(), 0, "half a request was made up");
    let answer = ask("/paged");
    assert_eq!((answer.status(), answer.text().as_str()), (500, "ok"));
    let page = second.last();
    assert!(
        page.head.line.starts_with("GET /page ") && page.body.is_empty(),
        "{page:?}"
    );
    assert_eq!(page.field("content-length"), None);
}

/// Where the page for a failure would have to be asked for with a body that is gone, the client is told of the failure itself,
/// and the log names it.
#[test]
fn an_error_page_that_needs_a_lost_body_stands_aside() {
    let closing = Origin::start(|conversation| {
        conversation.head()?;
        Ok(())
    });
    let page = Origin::ok();
    let kp = Setup::base(&closing)
        .server(&format!(
            "location @page {{ client_max_body_size 0; proxy_pass http://{}; }}",
            page.address()
        ))
        .server(
            "location /closed { proxy_pass http://u; proxy_request_buffering off; error_page 502 =200 @page; }
             location /large { proxy_pass http://u; client_max_body_size 10; error_page 413 = @page; }",
        )
        .start();
    let ask = |path: &str| {
        let body = "x".repeat(100_000);
        kp.client().ask(format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n{body}"
        ))
    };
    assert_eq!(ask("/closed").status(), 502);
    assert_eq!(ask("/large").status(), 413);
    assert_eq!(page.requests().len(), 0, "half a request was made up");
    kp.wait_error("the error page is not asked for: the request body was already passed on");
    let log = kp.error_log();
    assert!(
        ["prematurely closed", "recv() failed", "send() failed"]
            .iter()
            .any(|failure| log.contains(failure)),
        "{log}"
    );
}

/// An upstream that hands a request on to another cannot hand on the body that it has taken.
#[test]
fn a_streamed_body_is_not_handed_on() {
    let first = Origin::start(|conversation| {
        let answer = "HTTP/1.1 200 OK\r\nX-Accel-Redirect: @other\r\nContent-Length: 0\r\n\r\n";
        conversation.answer_all(|_| answer.into())
    });
    let second = Origin::ok();
    let kp = Setup::base(&first)
        .server(&format!(
            "kp_reason_header on; location @other {{ proxy_pass http://{}; }}",
            second.address()
        ))
        .location("proxy_request_buffering off;")
        .start();
    let body = "x".repeat(100_000);
    let answer = kp.client().ask(format!(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n{body}"
    ));
    let reason = answer.field("x-kp-reason");
    assert_eq!((answer.status(), reason), (500, Some("bad_accel_redirect")));
    kp.wait_error(
        "the request is not passed to another location: the request body was already passed on",
    );
    assert_eq!(second.requests().len(), 0);
    assert_eq!(kp.get("/").status(), 200, "without a body it is passed on");
    assert_eq!(second.requests().len(), 1);
}

/// An upstream that stands in for a failed one keeps its connection as any other.
#[test]
fn the_upstream_of_an_error_page_is_reached_over_a_kept_connection() {
    let closing = Origin::start(|conversation| {
        conversation.head()?;
        Ok(())
    });
    let page = Origin::ok();
    let kp = Setup::base(&closing)
        .http(&format!(
            "upstream page {{ server {}; keepalive 8; }}",
            page.address()
        ))
        .server("location @page { proxy_pass http://page; }")
        .location("error_page 502 =200 @page;")
        .start();
    for _ in 0..4 {
        assert_eq!(kp.get("/").text(), "ok");
    }
    assert_eq!(page.connections(), 1);
}

/// An error page that is refused at once hides nothing: both failures are in the log, and the first one counts for its peer.
#[test]
fn a_refused_error_page_hides_no_failure() {
    let closing = Origin::start(|conversation| {
        conversation.head()?;
        Ok(())
    });
    let kp = Setup::base(&closing)
        .server("location @page { deny all; proxy_pass http://u; }")
        .location("error_page 502 = @page;")
        .start();
    assert_eq!(kp.get("/").status(), 403);
    let log = kp.error_log();
    assert!(log.contains("access forbidden by rule"), "{log}");
    assert!(
        log.contains(
            "upstream prematurely closed connection while reading response header from upstream"
        ),
        "{log}"
    );
}

/// `proxy_method GET` makes a body of what a HEAD must not have.
#[test]
fn a_body_that_was_not_asked_for_does_not_reach_the_client() {
    let origin =
        Origin::start(|conversation| conversation.answer_all(|_| response(200, &[b'x'; 100_000])));
    let kp = Setup::base(&origin).location("proxy_method GET;").start();
    let mut client = kp.client();
    for _ in 0..3 {
        client.send("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n");
        let answer = client.response_to("HEAD");
        assert_eq!(
            (answer.status(), answer.field("content-length")),
            (200, Some("100000"))
        );
    }
    assert_eq!(
        client.ask(GET).body.len(),
        100_000,
        "the connection is in step"
    );
}

/// Shows: proxy_ignore_client_abort
#[test]
fn a_reset_is_an_abort_that_can_be_ignored() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.pause(SECOND / 2);
        conversation.send(OK)?;
        conversation.note();
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .location("proxy_ignore_client_abort on;")
        .start();
    let mut client = kp.client();
    client.send(GET);
    origin.wait_requests(1);
    client.reset();
    wait::until(SOON, "the answer", || origin.noted().len() == 1);
    let line = kp.access_lines(1).remove(0);
    assert!(line.contains("\" 200 "), "{line}");
}

/// An upstream that answers before it has read the request may leave the rest of it unread for as long as it answers.
#[test]
fn an_early_answer_has_its_own_time() {
    let origin = Origin::start(|conversation| {
        conversation.head()?;
        conversation.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n")?;
        conversation.pause(SECOND * 2);
        conversation.send("4\r\nlate\r\n0\r\n\r\n")?;
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .server("client_max_body_size 0;")
        .location("proxy_send_timeout 300ms; proxy_request_buffering off;")
        .start();
    let mut client = kp.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 60000000\r\n\r\n");
    client.send_for(&vec![b'x'; 60_000_000], SECOND / 2);
    let answer = client.try_response("POST", SOON).expect("an answer");
    assert!(answer.whole, "it was cut off");
    assert_eq!(answer.text(), "earlylate");
}

/// What an error page turns into another request still counts against the peer that failed.
///
/// Shows: error_page
#[test]
fn a_failure_with_an_error_page_counts_against_its_peer() {
    let broken = Origin::start(|conversation| {
        conversation.request()?;
        Ok(())
    });
    let second = Origin::named("second");
    let page = Origin::named("page");
    let kp = Setup::base(&broken)
        .with("U1", "max_fails=1 fail_timeout=60s;")
        .with("U1", format!("server {}", second.address()))
        .server(&format!(
            "location @page {{ proxy_pass http://{}; }}",
            page.address()
        ))
        .location("error_page 502 = @page; proxy_next_upstream off;")
        .start();
    let answers: Vec<String> = (0..10).map(|_| kp.get("/").text()).collect();
    let pages = answers.iter().filter(|answer| *answer == "page").count();
    assert_eq!(
        pages, 1,
        "the broken peer rests after one failure: {answers:?}"
    );
    assert_eq!(
        answers.iter().filter(|answer| *answer == "second").count(),
        9
    );
}

/// What came before the upstream broke off is delivered, however slowly it is taken and wherever it waited meanwhile.
#[test]
fn what_came_before_a_break_arrives() {
    const CAME: usize = 6_000_000;
    for spool in ["0", "64m"] {
        let origin = Origin::start(|conversation| {
            conversation.request()?;
            conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n")?;
            let sent = conversation.send(numbered(CAME));
            conversation.note();
            sent
        });
        let kp = Setup::base(&origin)
            .location(&format!("proxy_max_temp_file_size {spool};"))
            .start();
        let mut client = kp_tests::Client::connect_narrow(&kp.address(), 16 * 1024);
        client.send(GET);
        client.head(SOON).expect("a head");
        if spool != "0" {
            wait::until(SOON, "the upstream to be done", || {
                origin.noted().len() == 1
            });
        }
        let (bytes, end) = client.read_to_end(SOON);
        assert_eq!(bytes.len(), CAME, "spool {spool}: {end:?}");
        assert!(bytes == numbered(CAME), "spool {spool}: other bytes");
    }
}

/// A refused request gets its error page from an upstream: without its body, as if nobody had been served before, and the
/// connection ends, since nobody can say where the next request would begin.
///
/// Shows: error_page, client_max_body_size
#[test]
fn the_error_page_of_a_refused_request_comes_from_elsewhere() {
    let origin = Origin::named("page");
    let kp = Setup::base(&origin)
        .server("error_page 400 405 413 /page; client_max_body_size 10;")
        .location("proxy_set_header X-Was $request_uri;")
        .start();
    for n in 0..3 {
        for (request, status) in [
            (
                "GET / HTTP/1.1\r\nHost: t\r\nContent-Length: x\r\n\r\n",
                400,
            ),
            (
                "GET / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                400,
            ),
            ("TRACE / HTTP/1.1\r\nHost: t\r\n\r\n", 405),
            (
                "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 20\r\n\r\n01234567890123456789",
                413,
            ),
            (
                "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n01234567890123456789\r\n0\r\n\r\n",
                413,
            ),
        ] {
            origin.forget();
            let mut client = kp.client();
            client.send(format!(
                "{request}GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n"
            ));
            let answer = client.response();
            assert_eq!(
                (answer.status(), answer.text().as_str()),
                (status, "page"),
                "{n}: {request}"
            );
            assert_ne!(
                client.end_within(SOON),
                kp_tests::End::Complete,
                "{n}: {request}"
            );
            let asked = origin.requests();
            let page = asked.last().expect("the page was asked for");
            assert!(
                page.head.line.starts_with("GET /page ") && page.body.is_empty(),
                "{page:?}"
            );
            assert!(
                !origin.targets().contains(&"/smuggled".to_owned()),
                "{n}: {request}"
            );
        }
    }
}
