//! Bodies in motion: upgrades, `Expect: 100-continue`, early answers, interim responses (cases S01, S02, S04–S06).
//! S03 is about time and lives in `timing.rs`.

use std::time::{Duration, Instant};

use kp_tests::origin::OK;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Conversation, End, Kp, Origin, Port, Setup, Writing, process};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);
const UPGRADE_FIELDS: &str =
    "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;";
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSet-Cookie: s=1\r\n\r\n";

/// Answers an upgrade with 101 and `FIRST`, then every arrival with `E:` and the same bytes.
fn echo_socket(bytewise: bool) -> Origin {
    Origin::start(move |conversation| {
        conversation.head()?;
        let start = format!("{SWITCHING}FIRST");
        if bytewise {
            conversation.send_bytes(start)?;
        } else {
            conversation.send(start)?;
        }
        conversation.send("E:")?;
        loop {
            let bytes = conversation.read_at_least(1)?;
            conversation.send(bytes)?;
        }
    })
}

#[test]
fn s01_an_upgrade_answered_with_200_is_an_ordinary_request() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server(UPGRADE_FIELDS)
        .server("location /admin { return 403; }")
        .start();
    let mut client = kp.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: t\r\nUpgrade: foo\r\nConnection: Upgrade\r\n\r\nGET /admin HTTP/1.1\r\nHost: t\r\n\r\n",
    );
    assert_eq!(client.response().status(), 200);
    assert_eq!(client.response().status(), 403);
    assert_eq!(origin.targets(), ["/"]);
    assert!(!origin.raw_text().contains("/admin"));
}

/// RFC 9110 §7.8: a server switches only to what the client offered, and says to what.
/// An upgrade that the upstream asks for reaches the client, and the connection is still one of HTTP.
#[test]
fn s01_a_426_names_the_protocol() {
    let origin = Origin::replying(
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nno",
    );
    let kp = Kp::base(&origin);
    let mut client = kp.client();
    for _ in 0..2 {
        let answer = client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!((answer.status(), answer.text().as_str()), (426, "no"));
        assert_eq!(answer.field("upgrade"), Some("websocket"));
        assert!(
            answer.head.all("connection").contains(&"upgrade"),
            "{:?}",
            answer.head
        );
    }
}

#[test]
fn s01_a_101_to_something_else_is_refused() {
    for fields in ["", "Upgrade: other\r\n", "Upgrade: websocket, other\r\n"] {
        let origin = Origin::replying(format!(
            "HTTP/1.1 101 Switching Protocols\r\n{fields}Connection: Upgrade\r\n\r\nHELLO"
        ));
        let kp = Kp::base(&origin);
        let mut client = kp.client();
        client.send(UPGRADE);
        assert_eq!(client.response().status(), 502, "{fields:?}");
        kp.wait_error("upstream sent");
    }
}

#[test]
fn s02_no_byte_is_lost_around_the_101() {
    for fields in [UPGRADE_FIELDS, ""] {
        for writing in [Writing::Whole, Writing::Bytes] {
            let origin = echo_socket(writing == Writing::Bytes);
            let kp = Setup::base(&origin).server(fields).start();
            let mut client = kp.client();
            client.send_as(writing, format!("{UPGRADE}EARLY"));
            let answer = client.response();
            assert_eq!(answer.status(), 101, "{writing:?}");
            assert_eq!(answer.field("upgrade"), Some("websocket"));
            assert_eq!(
                answer.field("connection").map(str::to_lowercase).as_deref(),
                Some("upgrade")
            );
            assert_eq!(answer.field("set-cookie"), Some("s=1"));
            let echoed = client.read_exactly("FIRSTE:EARLY".len(), SOON);
            assert_eq!(
                String::from_utf8_lossy(&echoed),
                "FIRSTE:EARLY",
                "{writing:?}"
            );
            let raw = origin.raw_text();
            assert!(
                raw.ends_with("\r\n\r\nEARLY") && raw.matches("EARLY").count() == 1,
                "{raw:?}"
            );
        }
    }
}

/// Shows: proxy_upgrade
#[test]
fn only_listed_protocols_are_switched_to() {
    let origin = Origin::replying(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n",
    );
    let request = UPGRADE.replace("websocket", "other");
    for (setting, passes) in [
        ("", false),
        ("proxy_upgrade other;", true),
        ("proxy_upgrade off;", false),
    ] {
        let kp = Setup::base(&origin).location(setting).start();
        origin.forget();
        let answer = kp.client().ask(&request);
        // The origin here switches without being asked: kp must not believe it.
        assert_eq!(
            answer.status(),
            if passes { 101 } else { 502 },
            "{setting:?}"
        );
        assert_eq!(
            origin.raw_text().contains("Upgrade: other\r\n"),
            passes,
            "{setting:?}"
        );
    }
}

#[test]
fn an_end_passes_through_a_tunnel_in_one_direction() {
    let origin = Origin::start(|conversation| {
        conversation.head()?;
        conversation.send(SWITCHING)?;
        let all = conversation.read_to_end();
        conversation.send(format!("{} after the end", String::from_utf8_lossy(&all)))
    });
    let kp = Kp::base(&origin);
    let mut client = kp.client();
    assert_eq!(client.ask(UPGRADE).status(), 101);
    client.send("said");
    client.half_close();
    let (bytes, end) = client.read_to_end(SOON);
    assert_eq!(String::from_utf8_lossy(&bytes), "said after the end");
    assert_eq!(end, End::Closed);
}

#[test]
fn a_reset_ends_a_tunnel_in_both_directions() {
    let origin = Origin::start(|conversation| {
        conversation.head()?;
        conversation.send(SWITCHING)?;
        if conversation.index == 1 {
            conversation.read_at_least(1)?;
            return conversation.reset();
        }
        conversation.read_to_end();
        conversation.pause(SOON);
        Ok(())
    });
    let kp = Kp::base(&origin);
    let mut client = kp.client();
    assert_eq!(client.ask(UPGRADE).status(), 101);
    client.reset();
    assert!(
        wait::happens(SOON / 2, || kp.text("access.log").lines().count() == 1),
        "the upstream is not waited for"
    );
    let mut client = kp.client();
    assert_eq!(client.ask(UPGRADE).status(), 101);
    client.send("x");
    assert!(client.closes_within(SOON));
    assert!(
        wait::happens(SOON / 2, || kp.text("access.log").lines().count() == 2),
        "the client is not waited for"
    );
}

/// Shows: proxy_upgrade_timeout
#[test]
fn an_idle_tunnel_ends() {
    let origin = echo_socket(false);
    let kp = Setup::base(&origin)
        .location("proxy_upgrade_timeout 3s; proxy_read_timeout 1s;")
        .start();
    let mut client = kp.client();
    let start = Instant::now();
    assert_eq!(client.ask(UPGRADE).status(), 101);
    assert_eq!(client.read_exactly(7, SOON), b"FIRSTE:");
    assert!(client.closes_within(SOON));
    assert!(
        start.elapsed() >= SECOND * 3,
        "the timeouts of a tunnel are its own"
    );
}

#[test]
fn s04_expect_100_continue() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server("location /small { client_max_body_size 10; proxy_pass http://u; }")
        .start();
    let mut client = kp.client();
    let start = Instant::now();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    let interim = client.head(SOON).expect("an interim response");
    assert_eq!(interim.line, "HTTP/1.1 100 Continue");
    assert!(start.elapsed() <= SECOND * 10);
    client.send("abc");
    assert_eq!(client.response().status(), 200);
    assert_eq!(origin.last().body, b"abc");

    let answer = kp.client().ask(
        "POST /small HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 30\r\n\r\n",
    );
    assert_eq!((answer.status(), answer.interim.len()), (413, 0));

    let mut old = kp.client();
    old.send("POST / HTTP/1.0\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(
        old.head(Duration::from_millis(300)).err(),
        Some(End::Deadline),
        "no 100 for HTTP/1.0"
    );
    old.send("abc");
    assert_eq!(old.response().status(), 200);
}

#[test]
fn s04_expect_with_a_dead_upstream_ends() {
    let dead = Port::take();
    let text = "http { upstream u { server %DEAD%; } server { listen %LISTEN%;
        location / { proxy_pass http://u; proxy_request_buffering off; } } }";
    let kp = Setup::new(text).with("DEAD", dead.address()).start();
    let answer = kp
        .client()
        .ask("POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(answer.status(), 502);
}

const TOO_BIG: &str = "HTTP/1.1 413 Payload Too Large\r\nConnection: close\r\nContent-Length: 17\r\n\r\ntoo big, says app";

/// What the origin does after its early answer.
#[derive(Debug, Clone, Copy)]
enum After {
    Reset,
    HalfClose,
    Stop,
}

fn early(conversation: &mut Conversation, after: After) -> std::io::Result<()> {
    conversation.read_at_least(65_536)?;
    conversation.send(TOO_BIG)?;
    match after {
        After::Reset => {}
        After::HalfClose => {
            conversation.half_close()?;
            conversation.pause(Duration::from_millis(100));
        }
        After::Stop => conversation.pause(SECOND),
    }
    Ok(())
}

#[test]
fn s05_an_early_answer_reaches_the_uploader() {
    let body = vec![b'x'; 10_000_000];
    for after in [After::Reset, After::HalfClose, After::Stop] {
        for buffering in ["on", "off"] {
            let origin = Origin::start(move |conversation| early(conversation, after));
            let kp = Setup::base(&origin)
                .with("U1", "max_fails=0")
                .server("client_max_body_size 50m;")
                .location(&format!("proxy_request_buffering {buffering};"))
                .start();
            let rounds = if matches!(after, After::Stop) { 2 } else { 10 };
            for round in 0..rounds {
                let mut client = kp.client();
                client.send(format!(
                    "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                ));
                client.send_for(&body, SECOND * 2);
                let answer = client.try_response("POST", SOON);
                let answer =
                    answer.unwrap_or_else(|end| panic!("{after:?} {buffering} {round}: {end:?}"));
                assert_eq!(
                    answer.status(),
                    413,
                    "{after:?}, buffering {buffering}, round {round}"
                );
                assert_eq!(answer.text(), "too big, says app");
            }
            assert_eq!(
                origin.connections(),
                rounds,
                "such a connection is not used again"
            );
        }
    }
}

/// Sends interim responses before the final one, in one write or well before it.
fn interim_origin(interim: &'static str, apart: bool) -> Origin {
    Origin::start(move |conversation| {
        loop {
            conversation.request()?;
            let last = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfinal";
            if apart {
                conversation.send(interim)?;
                conversation.pause(Duration::from_millis(150));
                conversation.note();
                conversation.send(last)?;
            } else {
                conversation.note();
                conversation.send(format!("{interim}{last}"))?;
            }
        }
    })
}

/// Shows: early_hints
#[test]
fn s06_interim_responses() {
    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n";
    const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
    const PROCESSING: &str = "HTTP/1.1 102 Processing\r\n\r\n";
    const BOTH: &str =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    for (interim, hints) in [(HINTS, 2), (CONTINUE, 0), (PROCESSING, 0), (BOTH, 1)] {
        for apart in [false, true] {
            for enabled in [false, true] {
                let origin = interim_origin(interim, apart);
                let setting = if enabled { "early_hints 1;" } else { "" };
                let kp = Setup::base(&origin).location(setting).start();
                let mut client = kp.client();
                for _ in 0..2 {
                    let answer = client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
                    let late = origin.noted().pop().expect("a note").elapsed();
                    assert!(late <= SECOND * 10, "{interim:?}: {late:?}");
                    assert_eq!(answer.text(), "final");
                    let passed = answer
                        .interim
                        .iter()
                        .filter(|head| head.status() == 103)
                        .count();
                    assert_eq!(
                        passed,
                        if enabled { hints } else { 0 },
                        "{interim:?}, enabled: {enabled}"
                    );
                    assert!(
                        answer.interim.iter().all(|head| head.status() != 100),
                        "nobody expected a 100"
                    );
                }
                let answer = kp.client().ask("GET / HTTP/1.0\r\nHost: t\r\n\r\n");
                assert_eq!(
                    (answer.interim.len(), answer.text().as_str()),
                    (0, "final"),
                    "HTTP/1.0 knows no 1xx"
                );
            }
        }
    }
}

#[test]
fn an_unasked_101_is_a_502() {
    let origin = echo_socket(false);
    let kp = Kp::base(&origin);
    let start = Instant::now();
    assert_eq!(kp.get("/").status(), 502);
    assert!(start.elapsed() <= SECOND * 10);
}

/// Shows: client_body_buffer_size, client_body_temp_path, proxy_request_buffering
#[test]
fn a_buffered_body_is_whole_before_the_upstream_hears_of_it() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server("client_max_body_size 0;")
        .http("client_body_temp_path kept;")
        .location("client_body_buffer_size 8k; proxy_request_buffering on;")
        .start();
    assert!(kp.path("kept").is_dir(), "kp makes the directory");
    let body = vec![b'z'; 300_000];
    let mut client = kp.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body[..200_000]);
    assert!(
        !wait::happens(Duration::from_millis(300), || origin.received() > 0),
        "the body is not whole yet"
    );
    client.send(&body[200_000..]);
    assert_eq!(client.response().status(), 200);
    assert!(origin.last().body == body);
}

/// Shows: proxy_request_buffering
#[test]
fn a_streamed_body_arrives_while_it_is_sent() {
    let origin = Origin::start(|conversation| {
        conversation.head()?;
        conversation.read_at_least(1)?;
        conversation.note();
        conversation.send(OK)
    });
    for setting in ["", "proxy_request_buffering off;"] {
        let kp = Setup::base(&origin).location(setting).start();
        let noted = origin.noted().len();
        let mut client = kp.client();
        client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        wait::until(SOON, "the first piece of the body", || {
            origin.noted().len() > noted
        });
    }
}

#[test]
fn a_streamed_body_is_a_variable_only_where_it_came_with_its_head() {
    let origin = Origin::start(|conversation| {
        loop {
            let head = conversation.head()?;
            conversation.note();
            conversation.body(&head)?;
            conversation.send(OK)?;
        }
    });
    let kp = Setup::base(&origin)
        .location("proxy_request_buffering off; add_header X-Body $request_body;")
        .start();
    for (framing, first, rest) in [
        ("Content-Length: 6", "abc", "def"),
        (
            "Transfer-Encoding: chunked",
            "3\r\nabc\r\n",
            "3\r\ndef\r\n0\r\n\r\n",
        ),
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n");
        let whole = kp.client().ask(format!("{head}{first}{rest}"));
        assert_eq!(whole.field("x-body"), Some("abcdef"), "{framing}");
        let noted = origin.noted().len();
        let mut client = kp.client();
        client.send(format!("{head}{first}"));
        wait::until(SOON, "the request", || origin.noted().len() > noted);
        client.send(rest);
        let answer = client.response();
        assert_eq!((answer.status(), answer.field("x-body")), (200, None));
    }
}

/// Shows: proxy_buffering, proxy_buffers, proxy_busy_buffers_size, proxy_max_temp_file_size, proxy_temp_path, proxy_temp_file_write_size
#[test]
fn a_slow_client_slows_the_upstream_unless_there_is_a_file() {
    let size = 20_000_000;
    let origin = Origin::start(move |conversation| {
        conversation.request()?;
        conversation.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"))?;
        let piece = vec![b'y'; 100_000];
        for _ in 0..size / piece.len() {
            conversation.send(&piece)?;
        }
        conversation.note();
        conversation.stall();
        Ok(())
    });
    let stalled = |kp: &Kp, limit: Duration| {
        let notes = origin.noted().len();
        let mut client = Client::connect_narrow(&kp.address(), 4096);
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        let taken = wait::happens(limit, || origin.noted().len() > notes);
        (client, taken)
    };
    for setting in [
        "proxy_buffering off;",
        "proxy_buffers 4 8k; proxy_busy_buffers_size 16k; proxy_max_temp_file_size 0;",
    ] {
        let kp = Setup::base(&origin).location(setting).start();
        let (_client, taken) = stalled(&kp, SECOND);
        assert!(!taken, "{setting}: more than the buffers was read ahead");
    }
    let kp = Setup::base(&origin)
        .http("proxy_temp_path spill;")
        .location("proxy_max_temp_file_size 1024m; proxy_temp_file_write_size 64k;")
        .start();
    let (mut client, taken) = stalled(&kp, SOON);
    assert!(taken, "the answer fits the file");
    assert!(kp.path("spill").is_dir());
    assert_eq!(client.response().body.len(), size);
}

/// Shows: proxy_ignore_client_abort
#[test]
fn a_client_that_said_all_it_had_to_say_is_answered() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    assert_eq!(kp.get("/").status(), 200);
    // The worker sees the request and the end behind it together.
    process::signal(kp.worker_pid(), Signal::SIGSTOP);
    let mut client = kp.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nab");
    client.half_close();
    process::signal(kp.worker_pid(), Signal::SIGCONT);
    assert_eq!(client.response().status(), 200);
    assert!(client.closes_within(SOON));
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    let waiting = |conversation: &mut Conversation| {
        conversation.request()?;
        conversation.stall();
        conversation.note();
        Ok(())
    };
    let origin = Origin::start(waiting);
    let kp = Kp::base(&origin);
    let mut client = kp.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    origin.wait_requests(1);
    drop(client);
    wait::until(SOON, "the upstream connection to end", || {
        origin.noted().len() == 1
    });
    assert!(
        kp.access_lines(1)[0].contains("\" 499 "),
        "{:?}",
        kp.access_lines(1)
    );

    let origin = Origin::start(waiting);
    let kp = Setup::base(&origin)
        .location("proxy_ignore_client_abort on;")
        .start();
    let mut client = kp.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    origin.wait_requests(1);
    drop(client);
    assert!(
        !wait::happens(SECOND / 2, || !origin.noted().is_empty()),
        "the request goes on"
    );
}

/// Shows: proxy_limit_rate
#[test]
fn the_rate_from_an_upstream_is_limited() {
    let origin = Origin::replying(kp_tests::origin::response(200, &[b'r'; 60_000]));
    let kp = Setup::base(&origin)
        .location("proxy_limit_rate 20k;")
        .start();
    let start = Instant::now();
    let answer = kp.get("/");
    assert_eq!(answer.body.len(), 60_000);
    assert!(
        start.elapsed() >= SECOND,
        "60,000 bytes at 20k a second took {:?}",
        start.elapsed()
    );
}
