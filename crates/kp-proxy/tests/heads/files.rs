//! Heads of files.

use crate::support::{OWN, World, get};
use kp_http::Framing;
use kp_proxy::{File, FileReply, directory_redirect, file_head};

const FILE: File = File {
    size: 10,
    modified_s: 1_000_000_000,
};
const TIME: &str = "Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n";
const TAG: &str = "ETag: \"3b9aca00-a\"\r\n";
const KEPT: &str = "Connection: keep-alive\r\n";

fn world() -> World {
    World::new(
        "location / { root /srv; } location /t/ { root /srv; add_trailer X-T $sent_http_accept_ranges; }",
    )
}

fn served(world: &World, request: &[u8], forced: u16) -> (String, FileReply) {
    let mut exchange = world.exchange(request);
    exchange.request.forced_status = forced;
    let context = world.context();
    let keep = kp_proxy::may_stay(&exchange, &context);
    let mut out = Vec::new();
    let reply = file_head(
        &mut out,
        &FILE,
        &mut exchange,
        world.program(),
        &context,
        keep,
    );
    (String::from_utf8(out).expect("text"), reply)
}

fn send(bytes: std::ops::Range<u64>, framing: Framing) -> FileReply {
    FileReply::Send {
        bytes,
        framing,
        keep: true,
    }
}

#[test]
fn whole_files() {
    let world = world();
    let head = |kind: &str| {
        format!(
            "HTTP/1.1 200 OK\r\n{OWN}Content-Type: {kind}\r\nContent-Length: 10\r\n{TIME}{KEPT}{TAG}Accept-Ranges: bytes\r\n\r\n"
        )
    };
    assert_eq!(
        served(&world, &get("/a.txt", ""), 0),
        (head("text/plain"), send(0..10, Framing::Length(10)))
    );
    assert_eq!(
        served(&world, &get("/a.HTM.html", ""), 0),
        (head("text/html"), send(0..10, Framing::Length(10)))
    );
    let asked = b"HEAD /a.txt HTTP/1.1\r\nHost: t\r\n\r\n";
    assert_eq!(
        served(&world, asked, 0),
        (head("text/plain"), send(0..10, Framing::None))
    );
}

#[test]
fn as_an_error_page() {
    let (head, reply) = served(
        &world(),
        &get("/e.html", "If-None-Match: *\r\nRange: bytes=0-1\r\n"),
        404,
    );
    assert_eq!(
        head,
        format!(
            "HTTP/1.1 404 Not Found\r\n{OWN}Content-Type: text/html\r\nContent-Length: 10\r\n{KEPT}{TAG}\r\n"
        )
    );
    assert_eq!(reply, send(0..10, Framing::Length(10)));
}

#[test]
fn with_trailers() {
    let (head, reply) = served(&world(), &get("/t/a", ""), 0);
    assert_eq!(
        head,
        format!(
            "HTTP/1.1 200 OK\r\n{OWN}Content-Type: text/plain\r\n{TIME}Transfer-Encoding: chunked\r\n{KEPT}{TAG}Accept-Ranges: bytes\r\n\r\n"
        )
    );
    assert_eq!(reply, send(0..10, Framing::Chunked));
}

#[test]
fn conditions() {
    let world = world();
    for (lines, status) in [
        ("If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT\r\n", 304),
        ("If-Modified-Since: Sun, 09 Sep 2001 01:46:41 GMT\r\n", 200),
        ("If-Modified-Since: nonsense\r\n", 200),
        ("If-None-Match: \"3b9aca00-a\"\r\n", 304),
        ("If-None-Match: W/\"3b9aca00-a\", \"x\"\r\n", 304),
        ("If-None-Match: \"x\"\r\n", 200),
        (
            "If-None-Match: \"x\"\r\nIf-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT\r\n",
            200,
        ),
        ("If-Match: \"3b9aca00-a\"\r\n", 200),
        ("If-Match: W/\"3b9aca00-a\"\r\n", 412),
        ("If-Match: \"x\"\r\n", 412),
        ("If-Match: *\r\n", 200),
        (
            "If-Unmodified-Since: Sun, 09 Sep 2001 01:46:40 GMT\r\n",
            200,
        ),
        (
            "If-Unmodified-Since: Sun, 09 Sep 2001 01:46:39 GMT\r\n",
            412,
        ),
        ("If-Unmodified-Since: nonsense\r\n", 412),
        ("Range: bytes=2-3\r\nIf-Range: \"3b9aca00-a\"\r\n", 206),
        ("Range: bytes=2-3\r\nIf-Range: \"x\"\r\n", 200),
        (
            "Range: bytes=2-3\r\nIf-Range: Sun, 09 Sep 2001 01:46:40 GMT\r\n",
            206,
        ),
        (
            "Range: bytes=2-3\r\nIf-Range: Sun, 09 Sep 2001 01:46:41 GMT\r\n",
            200,
        ),
        ("Range: bytes=10-\r\n", 416),
    ] {
        let (head, _) = served(&world, &get("/a", lines), 0);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{lines:?}: {head}"
        );
    }
    let (head, reply) = served(&world, &get("/a", "If-None-Match: *\r\n"), 0);
    assert_eq!(
        head,
        format!("HTTP/1.1 304 Not Modified\r\n{OWN}{TIME}{KEPT}{TAG}\r\n")
    );
    assert_eq!(reply, send(0..0, Framing::None));
}

#[test]
fn parts() {
    let (head, reply) = served(&world(), &get("/a", "Range: bytes=2-3\r\n"), 0);
    assert_eq!(
        head,
        format!(
            "HTTP/1.1 206 Partial Content\r\n{OWN}Content-Type: text/plain\r\nContent-Length: 2\r\n{TIME}{KEPT}{TAG}Content-Range: bytes 2-3/10\r\n\r\n"
        )
    );
    assert_eq!(reply, send(2..4, Framing::Length(2)));
    let (head, reply) = served(&world(), &get("/a", "Range: bytes=10-\r\n"), 0);
    assert!(head.contains("\r\nContent-Range: bytes */10\r\n"), "{head}");
    assert!(
        matches!(reply, FileReply::Done(done) if done.keep),
        "{reply:?}"
    );
}

#[test]
fn other_methods() {
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let request = format!("{method} /a HTTP/1.1\r\nHost: t\r\n\r\n");
        let (head, reply) = served(&world(), request.as_bytes(), 0);
        assert!(head.starts_with("HTTP/1.1 405 Not Allowed\r\n"), "{head}");
        assert!(head.contains("\r\nAllow: GET, HEAD\r\n"), "{head}");
        assert!(matches!(reply, FileReply::Done(_)), "{reply:?}");
    }
}

#[test]
fn directories() {
    let world = world();
    let location = |path: &str| {
        let answer = directory_redirect(&world.exchange(&get(path, "")));
        assert_eq!(answer.status, 301);
        String::from_utf8(answer.location.expect("a location")).expect("text")
    };
    assert_eq!(location("/dir"), "/dir/");
    assert_eq!(location("/a%20dir?x=%20"), "/a%20dir/?x=%20");
}
