//! Peers that are left alone for what they answer, come back bit by bit, or get less because they are slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use kp_tests::origin::response;
use kp_tests::wait;
use kp_tests::{Conversation, Kp, Origin, Setup};

const WELL: u8 = 0;
const FAILS: u8 = 1;
const HANGS_UP: u8 = 2;

/// An origin whose behaviour can be changed while it runs.
fn moody(name: &'static str, mood: &Arc<AtomicU8>) -> Origin {
    let mood = mood.clone();
    Origin::start(move |connection: &mut Conversation| {
        let request = connection.request();
        request?;
        match mood.load(Relaxed) {
            HANGS_UP => Ok(()),
            FAILS => connection.send(response(503, b"bad")),
            _ => connection.send(response(200, name.as_bytes())),
        }
    })
}

fn start(main: &str, upstream: &str, origins: &[(&Origin, &str)]) -> Kp {
    let line = |(origin, parameters): &(&Origin, &str)| {
        format!("server {} {parameters}; ", origin.address())
    };
    let text = "%MAIN% http { upstream u { %UPSTREAM% keepalive 0; %SERVERS% }
        server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
    Setup::new(text)
        .main(main)
        .upstream(upstream)
        .with("SERVERS", origins.iter().map(line).collect::<String>())
        .start()
}

fn answers(kp: &Kp, count: usize) -> String {
    (0..count).map(|_| kp.get("/").text()).collect()
}

fn lines(kp: &Kp, text: &str) -> usize {
    kp.error_log().matches(text).count()
}

/// Shows: outlier_detection
#[test]
fn a_peer_that_answers_5xx_in_a_row_is_ejected_once_for_all_workers_and_returns() {
    let mood = Arc::new(AtomicU8::new(FAILS));
    let (bad, good) = (moody("A", &mood), Origin::named_once("B"));
    let kp = start(
        "worker_processes 2;",
        "zone u 64k; outlier_detection consecutive_5xx=3 base_time=4s;",
        &[(&bad, ""), (&good, "")],
    );
    let first = answers(&kp, 12);
    assert_eq!(first.matches("bad").count(), 3, "{first}");
    let line = format!(
        "peer {} of upstream \"u\" ejected: 3 consecutive 5xx, until ",
        bad.address()
    );
    assert_eq!(lines(&kp, &line), 1);
    mood.store(WELL, Relaxed);
    wait::until(wait::SOON, "the peer is asked again", || {
        kp.get("/").text() == "A"
    });
    assert!(answers(&kp, 20).contains('A'));
    let line = format!("peer {} of upstream \"u\" returned", bad.address());
    assert_eq!((lines(&kp, &line), lines(&kp, " ejected: ")), (1, 1));
}

/// Shows: max_ejected_percent
#[test]
fn the_last_peer_is_asked_although_it_failed() {
    for (directive, status) in [("", 502), ("max_ejected_percent 50;", 200)] {
        let mood = Arc::new(AtomicU8::new(HANGS_UP));
        let (one, two) = (moody("A", &mood), moody("B", &mood));
        let long = "max_fails=1 fail_timeout=1h";
        let kp = start("", directive, &[(&one, long), (&two, long)]);
        for _ in 0..5 {
            assert_eq!(kp.get("/").status(), 502);
        }
        mood.store(WELL, Relaxed);
        assert_eq!(kp.get("/").status(), status, "{directive}");
    }
}

/// Shows: least_time
#[test]
fn a_peer_that_is_much_slower_gets_little() {
    let slow = Origin::start(|connection: &mut Conversation| {
        connection.request()?;
        connection.pause(Duration::from_millis(250));
        connection.send(response(200, b"A"))
    });
    let fast = Origin::start(|connection: &mut Conversation| {
        connection.request()?;
        connection.pause(Duration::from_millis(15));
        connection.send(response(200, b"B"))
    });
    for method in [
        "least_time header;",
        "least_time last_byte;",
        "least_time last_byte inflight;",
    ] {
        let kp = start("", method, &[(&slow, ""), (&fast, "")]);
        let answers = answers(&kp, 40);
        let its = answers.matches('A').count();
        assert!((1..=6).contains(&its), "{method} {answers}");
    }
}

/// Shows: server
#[test]
fn a_peer_that_recovers_begins_slowly() {
    let mood = Arc::new(AtomicU8::new(HANGS_UP));
    let (one, two) = (moody("A", &mood), Origin::named_once("B"));
    let kp = start(
        "",
        "",
        &[
            (&one, "fail_timeout=1s slow_start=30s"),
            (&two, "slow_start=30s"),
        ],
    );
    assert_eq!(answers(&kp, 6), "BBBBBB");
    mood.store(WELL, Relaxed);
    wait::until(wait::SOON, "the peer is tried", || {
        kp.get("/").text() == "A"
    });
    let early = answers(&kp, 40);
    assert!(early.matches('A').count() <= 6, "{early}");
}

#[test]
fn what_is_wrong_is_said() {
    for (lines, message) in [
        (
            "least_time;",
            "invalid number of arguments in \"least_time\" directive",
        ),
        ("least_time foo;", "invalid value \"foo\""),
        ("least_time header bar;", "invalid parameter \"bar\""),
        (
            "outlier_detection base_time=3s;",
            "\"outlier_detection\" has no condition",
        ),
        (
            "outlier_detection consecutive_5xx=x;",
            "invalid parameter \"consecutive_5xx=x\"",
        ),
        (
            "max_ejected_percent 101;",
            "invalid value \"101\" in \"max_ejected_percent\" directive",
        ),
        (
            "ip_hash; server 127.0.0.1:2 slow_start=3s;",
            "balancing method does not support parameter \"slow_start\"",
        ),
        (
            "server 127.0.0.1:2 slow_start=x;",
            "invalid parameter \"slow_start=x\"",
        ),
    ] {
        let text = "http { upstream u { server 127.0.0.1:1; %LINES% }
            server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
        let checked = Setup::new(text).with("LINES", lines).check();
        assert!(
            checked.stderr.contains(message),
            "{lines}: {}",
            checked.stderr
        );
        assert_ne!(checked.code, 0);
    }
}
