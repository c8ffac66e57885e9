//! What a failure becomes: status, next peer, reason in the log; and what survives when a process dies.

use std::time::Duration;

use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Conversation, Kp, Origin, Port, Setup, client, process};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);
const REASON: &str = "log_format reason '$status $kp_reason'; access_log reason.log reason;";

/// An origin that behaves badly in the way a case needs.
fn bad(script: fn(&mut Conversation) -> std::io::Result<()>) -> Origin {
    Origin::start(script)
}

/// The status and the reason of a GET through the origin.
fn reason(origin: &Origin, location: &str) -> String {
    let kp = Setup::base(origin).http(REASON).location(location).start();
    let mut client = kp.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    client.read_to_end(SOON);
    kp.lines("reason.log", 1).remove(0)
}

#[test]
fn reasons_in_the_log() {
    assert_eq!(reason(&Origin::ok(), ""), "200 -");
    let closes = bad(|conversation| conversation.request().map(|_| ()));
    assert_eq!(reason(&closes, ""), "502 upstream_closed");
    let resets = bad(|conversation| {
        conversation.request()?;
        conversation.reset()
    });
    assert_eq!(reason(&resets, ""), "502 upstream_reset");
    let silent = bad(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    assert_eq!(
        reason(&silent, "proxy_read_timeout 200ms;"),
        "504 upstream_timeout"
    );
    let nonsense = Origin::replying("nonsense\r\n\r\n");
    assert_eq!(reason(&nonsense, ""), "502 upstream_invalid_header");
    let short = bad(|conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab")
    });
    assert_eq!(reason(&short, ""), "200 body_truncated");
    let wrong = bad(|conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n")
    });
    assert_eq!(reason(&wrong, ""), "200 body_invalid");
}

#[test]
fn reasons_for_refused_requests() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http(REASON)
        .http("client_max_body_size 5;")
        .start();
    let long = "x".repeat(40_000);
    let inputs = [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400 bad_request"),
        (
            "GET / HTTP/3.0\r\nHost: t\r\n\r\n".to_owned(),
            "505 bad_version",
        ),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "501 unknown_transfer_encoding",
        ),
        (
            "CONNECT t:1 HTTP/1.1\r\nHost: t\r\n\r\n".to_owned(),
            "405 connect_method",
        ),
        (
            format!("GET /{long} HTTP/1.1\r\nHost: t\r\n\r\n"),
            "414 target_too_long",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: t\r\nX-A: {long}\r\n\r\n"),
            "431 head_too_large",
        ),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 6\r\n\r\nabcdef".to_owned(),
            "413 body_too_large",
        ),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(),
            "400 bad_body",
        ),
    ];
    for (n, (input, expected)) in inputs.iter().enumerate() {
        let mut client = kp.client();
        client.send(input);
        client.read_to_end(SOON);
        let line = kp.lines("reason.log", n + 1).pop().expect("a line");
        assert_eq!(line, *expected, "{}", &input[..input.len().min(80)]);
    }
    kp.wait_error("client intended to send too large body: 6 bytes");
}

/// Two peers, of which the first fails; whether the second is tried.
fn tried_elsewhere(first: &Origin, conditions: &str, request: &str) -> bool {
    let second = Origin::ok();
    let kp = Setup::base(first)
        .with(
            "U1",
            format!("max_fails=0; server {} backup", second.address()),
        )
        .location(&format!(
            "proxy_next_upstream {conditions}; proxy_read_timeout 1s;"
        ))
        .start();
    kp.client().ask(request);
    !second.requests().is_empty()
}

/// Shows: proxy_next_upstream
#[test]
fn conditions_for_the_next_peer() {
    const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx";
    let closes = bad(|conversation| conversation.request().map(|_| ()));
    let silent = bad(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let nonsense = Origin::replying("nonsense\r\n\r\n");
    let missing = Origin::replying(response(404, b"no"));
    let limited = Origin::replying(response(429, b"no"));
    for (origin, conditions, request, tried) in [
        (&closes, "error", GET, true),
        (&closes, "timeout", GET, false),
        (&closes, "off", GET, false),
        (&closes, "error", POST, false),
        (&closes, "error non_idempotent", POST, true),
        (&silent, "timeout", GET, true),
        (&silent, "error", GET, false),
        (&nonsense, "invalid_header", GET, true),
        (&nonsense, "error timeout", GET, false),
        (&missing, "http_404", GET, true),
        (&missing, "http_403", GET, false),
        (&limited, "http_429", GET, true),
        (&limited, "http_429", POST, false),
    ] {
        assert_eq!(
            tried_elsewhere(origin, conditions, request),
            tried,
            "{conditions}, {request:.4}"
        );
    }
}

#[test]
fn a_refused_connect_is_tried_elsewhere_for_a_post_too() {
    let second = Origin::ok();
    let dead = Port::take();
    let text = "http { upstream u { server %DEAD% max_fails=0; server %LIVE% backup; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
    let kp = Setup::new(text)
        .with("DEAD", dead.address())
        .with("LIVE", second.address())
        .start();
    let answer = kp
        .client()
        .ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(answer.status(), 200);
    assert_eq!(second.last().body, b"x");
}

/// How many workers have written access log lines.
fn served_by(kp: &Kp) -> usize {
    let text = kp.text("pids.log");
    text.lines()
        .collect::<std::collections::BTreeSet<_>>()
        .len()
}

#[test]
fn workers_leave_when_their_master_is_killed() {
    let origin = Origin::ok();
    let mut kp = Setup::base(&origin)
        .main("worker_processes 2;")
        .http("log_format which $pid; access_log pids.log which;")
        .allow("master process is gone")
        .start();
    kp.wait_workers(2);
    let workers = kp.worker_pids();
    // A worker that has answered is past its start.
    wait::until(SOON, "both workers to answer", || {
        kp.get("/").status() == 200 && served_by(&kp) == 2
    });
    kp.signal(Signal::SIGKILL);
    kp.wait_exit(SOON);
    wait::until(SOON, "the workers to leave", || {
        workers.iter().all(|&pid| !process::alive(pid))
    });
    assert!(!process::listening(kp.port()));
}

#[test]
fn a_unix_socket_is_cleaned_up_and_a_stale_one_replaced() {
    let setup = || {
        Setup::new(
            "http { server { listen %LISTEN%; listen unix:%DIR%/kp.sock; return 200 unix; } }",
        )
        .allow("master process is gone")
    };
    let mut kp = setup().start();
    assert!(client::get_unix(kp.path("kp.sock")).ends_with("unix"));
    kp.reload();
    assert!(
        client::get_unix(kp.path("kp.sock")).ends_with("unix"),
        "after a reload"
    );
    kp.signal(Signal::SIGQUIT);
    kp.wait_exit(SOON);
    assert!(
        !kp.path("kp.sock").exists(),
        "the socket goes with its master"
    );

    // A path that a killed master left behind is in nobody's use.
    std::os::unix::net::UnixListener::bind(kp.path("kp.sock")).expect("leaving a stale socket");
    let path = kp.path("kp.sock");
    let again =
        Setup::new("http { server { listen %LISTEN%; listen unix:%STALE%; return 200 again; } }")
            .with("STALE", path.to_string_lossy())
            .start();
    let answer = client::get_unix(&path);
    assert!(answer.ends_with("again"), "{answer}");
    drop(again);
}

#[test]
fn a_worker_that_keeps_dying_is_not_restarted_in_a_hurry() {
    let kp = Setup::new("http { server { listen %LISTEN%; return 200; } }")
        .allow("exited on signal")
        .start();
    let start = std::time::Instant::now();
    let mut killed = 0;
    while start.elapsed() < SECOND * 2 {
        if let [worker] = kp.worker_pids()[..] {
            process::signal(worker, Signal::SIGKILL);
            killed += 1;
        }
        wait::pause(Duration::from_millis(5));
    }
    // 0.1 s, doubled each time: six in two seconds are plenty.
    assert!((2..=8).contains(&killed), "{killed} workers in two seconds");
    wait::until(SOON, "a worker that serves", || {
        kp_tests::Client::try_connect(&kp.address()).is_ok_and(|mut client| {
            client.send("GET / HTTP/1.0\r\n\r\n");
            client.try_response("GET", SECOND).is_ok()
        })
    });
}
