//! What is a request and what is not (cases P01–P09). Every input is written in three ways, and after each the same
//! worker must serve a fresh request.

use kp_tests::wait::SOON;
use kp_tests::{Client, Kp, Origin, Writing};

/// Sends the bytes and expects one refusal with one of these statuses, the end of the connection, nothing upstream.
fn refused(kp: &Kp, origin: &Origin, statuses: &[u16], input: &[u8]) {
    let worker = kp.worker_pid();
    for writing in Writing::ALL {
        let shown = String::from_utf8_lossy(input).into_owned();
        origin.forget();
        let mut client = kp.client();
        client.send_as(writing, input);
        let answer = client.try_response("GET", SOON);
        let answer =
            answer.unwrap_or_else(|end| panic!("{writing:?} {shown:?}: no answer but {end:?}"));
        assert!(
            statuses.contains(&answer.status()),
            "{writing:?} {shown:?}: {:?}",
            answer.head
        );
        assert!(
            client.closes_within(SOON),
            "{writing:?} {shown:?}: more than one answer, or not closed"
        );
        assert_eq!(
            origin.raw_text(),
            "",
            "{writing:?} {shown:?}: bytes reached the origin"
        );
        still_serves(kp, worker);
    }
}

/// Sends the bytes and expects that many 200 answers.
fn accepted(kp: &Kp, input: &[u8], answers: usize) {
    let worker = kp.worker_pid();
    for writing in Writing::ALL {
        let mut client = kp.client();
        client.send_as(writing, input);
        for _ in 0..answers {
            let answer = client.response();
            assert_eq!(
                answer.status(),
                200,
                "{writing:?} {:?}",
                String::from_utf8_lossy(input)
            );
            assert_eq!(answer.text(), "ok");
        }
        still_serves(kp, worker);
    }
}

fn still_serves(kp: &Kp, worker: u32) {
    assert_eq!(kp.get("/fresh").status(), 200);
    assert_eq!(kp.worker_pid(), worker, "the worker died");
}

/// Runs refusals that a streaming proxy only notices in the body: the head may have gone upstream by then, but the
/// request there must never look complete.
fn refused_in_body(kp: &Kp, origin: &Origin, input: &[u8]) {
    let worker = kp.worker_pid();
    for writing in Writing::ALL {
        let shown = String::from_utf8_lossy(input).into_owned();
        origin.forget();
        let mut client = kp.client();
        client.send_as(writing, input);
        let answer = client.try_response("POST", SOON);
        let answer =
            answer.unwrap_or_else(|end| panic!("{writing:?} {shown:?}: no answer but {end:?}"));
        assert_eq!(answer.status(), 400, "{writing:?} {shown:?}");
        assert!(
            client.closes_within(SOON),
            "{writing:?} {shown:?}: not closed"
        );
        assert!(
            origin.requests().is_empty(),
            "{writing:?} {shown:?}: a whole request reached the origin"
        );
        assert!(
            !origin.raw_text().contains("\r\n0\r\n"),
            "{writing:?} {shown:?}: a last chunk was sent"
        );
        still_serves(kp, worker);
    }
}

fn post_chunked(body: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
}

#[test]
fn p01_content_length_together_with_transfer_encoding() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    refused(
        &kp,
        &origin,
        &[400],
        b"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
    );
    refused(
        &kp,
        &origin,
        &[400],
        b"POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    );
}

#[test]
fn p02_field_line_without_a_colon() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    refused(
        &kp,
        &origin,
        &[400],
        b"GET / HTTP/1.1\r\nBogus\r\nHost: t\r\n\r\n",
    );
}

#[test]
fn p03_blank_before_the_colon() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    refused(
        &kp,
        &origin,
        &[400],
        b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    );
    refused(
        &kp,
        &origin,
        &[400],
        b"GET / HTTP/1.1\r\nHost: t\r\nX-A\t: 1\r\n\r\n",
    );
}

#[test]
fn p04_legal_but_odd_is_served() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    accepted(&kp, b"GET / HTTP/1.1\r\nHost:\tt\r\nX-A:\t v \t\r\n\r\n", 1);
    assert!(
        origin
            .requests()
            .iter()
            .any(|request| request.field("x-a") == Some("v"))
            && origin.raw_text().contains("X-A: v\r\n"),
        "the value arrives trimmed"
    );
    accepted(&kp, b"\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n", 1);
    accepted(
        &kp,
        b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nab\r\nGET /2 HTTP/1.1\r\nHost: t\r\n\r\n",
        2,
    );
    origin.forget();
    for extension in [";a=b", " ; a = \"b\"", ";a;b=c\t; d"] {
        let body = format!("1{extension}\r\nZ\r\n0{extension}\r\n\r\n");
        accepted(&kp, &post_chunked(&body), 1);
    }
    assert!(origin.requests().iter().any(|request| request.body == b"Z"));
    assert!(
        !origin.raw_text().contains("b\"") && !origin.raw_text().contains(";"),
        "a chunk extension is for one hop"
    );
    origin.forget();
    accepted(
        &kp,
        &post_chunked("0000000000000000000001\r\nZ\r\n0\r\n\r\n"),
        1,
    );
    assert!(origin.requests().iter().any(|request| request.body == b"Z"));
    accepted(
        &kp,
        b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: CHUNKED\r\n\r\n1\r\nZ\r\n0\r\n\r\n",
        1,
    );
}

#[test]
fn p05_malformed_or_repeated_content_length() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    for value in ["", "+3", "-1", "0x3", "3 3", "3, 3", "18446744073709551619"] {
        let input = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {value}\r\n\r\nabc");
        refused(&kp, &origin, &[400], input.as_bytes());
    }
    for second in ["3", "4"] {
        let input = format!(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nContent-Length: {second}\r\n\r\nabc"
        );
        refused(&kp, &origin, &[400], input.as_bytes());
    }
}

#[test]
fn p06_chunk_size_grammar() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    for body in [
        "1zz\r\nZ\r\n0\r\n\r\n",
        "0x1\r\nZ\r\n0\r\n\r\n",
        "0_0\r\n\r\n",
        "+1\r\nZ\r\n0\r\n\r\n",
        "-1\r\nZ\r\n0\r\n\r\n",
        "\r\nZ\r\n0\r\n\r\n",
        "\t0\r\n\r\n",
        " 1\r\nZ\r\n0\r\n\r\n",
        "1\r\nZ0\r\n\r\n",
        "1 \r\nZ\r\n0\r\n\r\n",
        "1;a \r\nZ\r\n0\r\n\r\n",
        "1;\r\nZ\r\n0\r\n\r\n",
    ] {
        refused_in_body(&kp, &origin, &post_chunked(body));
    }
}

#[test]
fn p07_bare_line_ends_in_chunk_framing() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    for body in [
        "1\nZ\r\n0\r\n\r\n",
        "1\r\nZ\n0\r\n\r\n",
        "1;\nZZ\r\nZ\r\n0\r\n\r\n",
        "1\rZ0\r\n\r\n",
    ] {
        refused_in_body(&kp, &origin, &post_chunked(body));
    }
}

#[test]
fn p08_transfer_encoding_in_http_1_0() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    refused(
        &kp,
        &origin,
        &[400],
        b"POST / HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    );
}

#[test]
fn p09_targets_and_hosts_that_are_none() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    for target in [
        "admin",
        "t:80",
        "*",
        "/a b",
        "/a\0b",
        "/a\x01b",
        "/a\x7fb",
        "http://u@t/",
    ] {
        refused(
            &kp,
            &origin,
            &[400],
            format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes(),
        );
    }
    refused(&kp, &origin, &[400], b"GET / HTTP/1.1\r\n\r\n");
    refused(
        &kp,
        &origin,
        &[400],
        b"GET / HTTP/1.1\r\nHost: t\r\nHost: t\r\n\r\n",
    );
    for host in ["a b", "a/b", "a@b", "a:80x", ""] {
        refused(
            &kp,
            &origin,
            &[400],
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(),
        );
    }
}

#[test]
fn fields_that_mean_one_thing_come_once() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    for name in ["Authorization", "If-None-Match", "Expect"] {
        let input = format!("GET / HTTP/1.1\r\nHost: t\r\n{name}: a\r\n{name}: b\r\n\r\n");
        refused(&kp, &origin, &[400], input.as_bytes());
    }
    kp.wait_error("client sent duplicate header line: \"If-None-Match\"");
    let twice = "GET / HTTP/1.1\r\nHost: t\r\nAccept: a\r\nAccept: b\r\n\r\n";
    accepted(&kp, twice.as_bytes(), 1);
}

#[test]
fn requests_in_one_write_are_answered_in_order() {
    let origin = Origin::mirror();
    let kp = Kp::base(&origin);
    let mut client = Client::connect(&kp.address());
    let requests: String = (0..20)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nHost: t\r\n\r\n"))
        .collect();
    client.send(requests);
    for n in 0..20 {
        let answer = client.response();
        assert!(
            answer.text().starts_with(&format!("GET /{n} HTTP/1.1")),
            "{}",
            answer.text()
        );
    }
}

/// Shows: accept_bare_lf
#[test]
fn bare_line_feeds_only_where_they_are_allowed() {
    let origin = Origin::ok();
    let strict = Kp::base(&origin);
    refused(&strict, &origin, &[400], b"GET / HTTP/1.1\nHost: t\n\n");
    let lenient = kp_tests::Setup::base(&origin)
        .http("accept_bare_lf on;")
        .start();
    accepted(&lenient, b"GET / HTTP/1.1\nHost: t\n\n", 1);
    refused_in_body(&lenient, &origin, &post_chunked("1\nZ\n0\n\n"));
}

/// A client in the middle of its head must be able to read why it was refused: a connection that is closed at once
/// would answer its next byte with a reset, and that may overtake the answer (RFC 9112 §9.6).
///
/// Shows: lingering_time, lingering_timeout
#[test]
fn a_refusal_is_not_lost_on_who_still_sends_its_head() {
    let origin = Origin::ok();
    let kp = kp_tests::Setup::base(&origin)
        .http("lingering_time 1m; lingering_timeout 1m; large_client_header_buffers 2 2k;")
        .start();
    let long = "v".repeat(3000);
    for (status, begun) in [
        (400, "GET / HTTP/1.1\r\nBogus\r\n".to_owned()),
        (400, "GET /a b HTTP/1.1\r\n".to_owned()),
        (414, format!("GET /{long}")),
        (431, format!("GET / HTTP/1.1\r\nX-A: {long}\r\n")),
        (505, "GET / HTTP/3.0\r\n".to_owned()),
    ] {
        let mut client = kp.client();
        client.send(&begun);
        assert_eq!(client.response().status(), status, "{begun}");
        assert_eq!(client.end_within(SOON), kp_tests::End::Closed, "{begun}");
        for n in 0..20 {
            let sent = client.send_for(b"X-B: 1\r\n", SOON);
            assert_eq!(sent, 8, "write {n} behind {begun:?} met a reset");
        }
    }
    assert_eq!(origin.raw_text(), "");
}
