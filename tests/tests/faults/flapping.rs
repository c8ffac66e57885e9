//! A peer that is well and ill by turns.

use std::sync::atomic::{AtomicUsize, Ordering};

use kp_tests::{Origin, Setup};

/// Every second request on a flapping peer fails; with a healthy second peer no client sees any of it. The peer is left
/// alone after each failure that reached `max_fails`, so with 0 it is asked all the time.
#[test]
fn a_flapping_peer_costs_no_request() {
    let turn = AtomicUsize::new(0);
    let flapping = Origin::start(move |conversation| {
        loop {
            conversation.request()?;
            if turn.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
                return conversation.reset();
            }
            conversation.send(kp_tests::origin::response(200, b"ill"))?;
        }
    });
    let healthy = Origin::named("well");
    let kp = Setup::base(&flapping)
        .with("U1", format!("max_fails=0; server {}", healthy.address()))
        .http("log_format tries '$status|$kp_reason|$upstream_status'; access_log tries.log tries;")
        .start();
    let mut client = kp.client();
    for n in 0..200 {
        let answer = client.ask(format!("GET /{n} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(answer.status(), 200, "request {n}");
    }
    let lines = kp.lines("tries.log", 200);
    let plain = lines.iter().filter(|line| *line == "200|-|200").count();
    let second = lines
        .iter()
        .filter(|line| *line == "200|-|502, 200")
        .count();
    assert_eq!(plain + second, 200, "{lines:?}");
    // Half of the requests begin at the flapping peer, and half of what it is asked fails.
    assert!(
        (40..=70).contains(&second),
        "{second} of 200 took two tries"
    );
}

/// The same peer alone: each failure is its own answer, and the only peer of a group is never left alone.
#[test]
fn a_flapping_peer_alone_fails_every_second_request() {
    let turn = AtomicUsize::new(0);
    let flapping = Origin::start(move |conversation| {
        conversation.request()?;
        if turn.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
            return conversation.reset();
        }
        conversation.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
    });
    let kp = Setup::base(&flapping)
        .with("U1", "max_fails=1 fail_timeout=100s")
        .start();
    let mut client = kp.client();
    for n in 0..20 {
        let answer = client.ask(format!("GET /{n} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(
            answer.status(),
            if n % 2 == 0 { 200 } else { 502 },
            "request {n}"
        );
    }
}
