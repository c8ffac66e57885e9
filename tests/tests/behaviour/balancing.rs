//! Which peer gets a request (cases B01, B02), and what all workers know about peers together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Conversation, Kp, Origin, Port, Setup};

/// A group of origins named a, b, c…, each with these server parameters.
fn group(parameters: &[&str], main: &str, upstream: &str) -> (Kp, Vec<Origin>) {
    let origins: Vec<Origin> = ('a'..)
        .zip(parameters)
        .map(|(name, _)| Origin::named(&name.to_string()))
        .collect();
    let servers: String = origins
        .iter()
        .zip(parameters)
        .map(|(origin, parameters)| format!("server {} {parameters}; ", origin.address()))
        .collect();
    let text = "%MAIN% http { upstream u { %UPSTREAM% %SERVERS% }
        server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
    let kp = Setup::new(text)
        .main(main)
        .upstream(upstream)
        .with("SERVERS", servers)
        .start();
    (kp, origins)
}

fn answers(kp: &Kp, count: usize) -> String {
    (0..count).map(|_| kp.get("/").text()).collect()
}

fn counts(kp: &Kp, count: usize, path: impl Fn(usize) -> String) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for n in 0..count {
        *counts.entry(kp.get(&path(n)).text()).or_default() += 1;
    }
    counts
}

/// Shows: server, upstream
#[test]
fn b01_weights_are_exact_and_smooth() {
    let (kp, _origins) = group(&["weight=5", "", ""], "", "");
    assert_eq!(answers(&kp, 14), "aabacaaaabacaa");
    let (kp, _origins) = group(&["weight=3", "weight=2", "weight=1"], "", "");
    assert_eq!(answers(&kp, 12), "abacbaabacba");
}

/// Shows: zone, worker_processes
#[test]
fn b01_workers_share_one_order() {
    let (kp, _origins) = group(&["", "", ""], "worker_processes 4;", "zone z 64k;");
    kp.wait_workers(4);
    let counts = counts(&kp, 300, |_| "/".to_owned());
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [100, 100, 100]);
}

#[test]
fn b02_a_backup_is_used_while_it_is_needed() {
    let port = Port::take();
    let address = port.address();
    let first = Origin::named_once_on(port, "A");
    let second = Origin::named_once("B");
    let text = "http { upstream u { server %A% max_fails=1 fail_timeout=1s; server %B% backup; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
    let kp = Setup::new(text)
        .with("A", address)
        .with("B", second.address())
        .start();
    assert_eq!(answers(&kp, 5), "AAAAA");
    let port = first.stop();
    assert_eq!(answers(&kp, 10), "BBBBBBBBBB");
    let _first = Origin::named_once_on(port, "A");
    // The time of the case: fail_timeout must have passed.
    wait::pause(Duration::from_millis(2200));
    assert_eq!(answers(&kp, 20), "A".repeat(20));
}

#[test]
fn a_dead_peer_is_tried_once_per_fail_timeout_by_all_workers_together() {
    let live = Origin::ok();
    // Accepts and closes at once, so that attempts can be counted.
    let dead = Origin::start(|_: &mut Conversation| Ok(()));
    let text = "worker_processes 4; http { upstream u { zone z 64k; server %DEAD% max_fails=1 fail_timeout=4s; server %LIVE%; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
    let kp = Setup::new(text)
        .with("DEAD", dead.address())
        .with("LIVE", live.address())
        .start();
    for _ in 0..20 {
        assert_eq!(kp.get("/").status(), 200);
    }
    assert_eq!(dead.connections(), 1);
    // Times of failures are kept in whole seconds, so a period may be almost one longer.
    wait::pause(Duration::from_millis(5200));
    for _ in 0..20 {
        assert_eq!(kp.get("/").status(), 200);
    }
    assert_eq!(dead.connections(), 2);
}

/// What opens a gate, and whether it is open.
fn gate() -> (impl Fn(), impl Fn() -> bool) {
    let open = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&open);
    (
        move || open.store(true, Ordering::SeqCst),
        move || opened.load(Ordering::SeqCst),
    )
}

#[test]
fn max_conns_holds_over_workers() {
    let (open, opened) = gate();
    let origin = Origin::start(move |conversation| {
        conversation.request()?;
        wait::happens(SOON, &opened);
        conversation.send(response(200, b"slow"))
    });
    let text = "worker_processes 2; http { upstream u { zone z 64k; server %U1% max_conns=2; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    let mut clients: Vec<_> = (0..5).map(|_| kp.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    wait::until(SOON, "three refusals", || {
        clients.iter().filter(|client| client.has_heard()).count() == 3
    });
    open();
    let mut statuses: Vec<u16> = clients
        .iter_mut()
        .map(|client| client.response().status())
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 502, 502, 502]);
    assert_eq!(kp.get("/").status(), 200, "places are given back");
}

#[test]
fn down_servers_get_nothing() {
    let (kp, origins) = group(&["", "down", ""], "", "");
    assert_eq!(answers(&kp, 6), "acacac");
    assert_eq!(origins[1].connections(), 0);
    let (kp, _origins) = group(&["down"], "", "");
    assert_eq!(kp.get("/").status(), 502);
}

/// Shows: least_conn
#[test]
fn least_conn_avoids_the_busy() {
    let (open, opened) = gate();
    let busy = Origin::start(move |conversation| {
        conversation.answer_all(|request| {
            if request.target() == "/slow" {
                wait::happens(SOON, &opened);
            }
            response(200, b"busy")
        })
    });
    let free = Origin::named("free");
    let text = "http { upstream u { least_conn; server %BUSY%; server %FREE%; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
    let kp = Setup::new(text)
        .with("BUSY", busy.address())
        .with("FREE", free.address())
        .start();
    let mut slow = kp.client();
    slow.send("GET /slow HTTP/1.1\r\nHost: t\r\n\r\n");
    busy.wait_requests(1);
    assert_eq!(answers(&kp, 6), "free".repeat(6));
    open();
    assert_eq!(slow.response().text(), "busy");
}

/// Shows: ip_hash
#[test]
fn ip_hash_keeps_a_client_at_its_peer() {
    let (kp, _origins) = group(&["", "", ""], "", "ip_hash;");
    let first = kp.get("/").text();
    assert_eq!(answers(&kp, 12), first.repeat(12));
}

/// Shows: hash
#[test]
fn hash_keeps_a_key_at_its_peer() {
    for method in ["hash $arg_k;", "hash $arg_k consistent;"] {
        let (kp, mut origins) = group(&["", "", "", ""], "", method);
        let place = |kp: &Kp, n: usize| kp.get(&format!("/?k={n}")).text();
        let before: Vec<String> = (0..60).map(|n| place(&kp, n)).collect();
        let again: Vec<String> = (0..60).map(|n| place(&kp, n)).collect();
        assert_eq!(before, again, "{method}");
        let used = counts(&kp, 60, |n| format!("/?k={n}"));
        assert_eq!(used.len(), 4, "{method}: {used:?}");
        if method.contains("consistent") {
            // Without one peer only its own keys move.
            origins.pop();
            let after: Vec<String> = (0..60).map(|n| place(&kp, n)).collect();
            let moved = before
                .iter()
                .zip(&after)
                .filter(|(before, after)| *before != "d" && before != after)
                .count();
            assert_eq!(moved, 0);
            assert!(!after.contains(&"d".to_owned()));
        }
    }
}

/// Shows: random
#[test]
fn random_uses_all_peers() {
    for method in ["random;", "random two;", "random two least_conn;"] {
        let (kp, _origins) = group(&["weight=2", "", ""], "", &format!("zone z 64k; {method}"));
        let counts = counts(&kp, 120, |_| "/".to_owned());
        assert_eq!(counts.len(), 3, "{method}: {counts:?}");
        assert!(
            counts.values().all(|&count| count >= 10),
            "{method}: {counts:?}"
        );
    }
}

/// Shows: keepalive
#[test]
fn keepalive_keeps_as_many_connections_as_it_says() {
    let (kp, origins) = group(&[""], "", "keepalive 8;");
    assert_eq!(answers(&kp, 10), "a".repeat(10));
    assert_eq!(origins[0].connections(), 1);
    let (kp, origins) = group(&[""], "", "keepalive 0;");
    assert_eq!(answers(&kp, 10), "a".repeat(10));
    assert_eq!(origins[0].connections(), 10);
}

#[test]
fn upstream_blocks_keep_connections_by_default_and_by_location() {
    let origin = Origin::ok();
    let text = "http { upstream u { server %U1%; } server { listen %LISTEN%;
        location /a { proxy_pass http://u; } location /b { proxy_pass http://u; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    for path in ["/a", "/a", "/b", "/b", "/a"] {
        assert_eq!(kp.get(path).status(), 200);
    }
    assert_eq!(origin.connections(), 2, "one for each location");

    let origin = Origin::ok();
    let text = "http { server { listen %LISTEN%; location / { proxy_pass http://%U1%; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    kp.get("/");
    kp.get("/");
    assert_eq!(origin.connections(), 2, "a plain address has no pool");
}

/// Shows: keepalive_requests, keepalive_time, keepalive_timeout
#[test]
fn pooled_connections_have_an_end() {
    let (kp, origins) = group(&[""], "", "keepalive 8; keepalive_requests 3;");
    answers(&kp, 7);
    assert_eq!(origins[0].connections(), 3);
    let (kp, origins) = group(&[""], "", "keepalive 8; keepalive_timeout 1s;");
    answers(&kp, 2);
    assert_eq!(origins[0].connections(), 1);
    origins[0].wait_all_closed(SOON);
    let (kp, origins) = group(&[""], "", "keepalive 8; keepalive_time 1s;");
    answers(&kp, 2);
    wait::pause(Duration::from_millis(1100));
    answers(&kp, 2);
    assert_eq!(
        origins[0].connections(),
        2,
        "the request after its time is its last"
    );
}

/// What a peer is told by a connection's source address stays true: a connection is used again from the same one only.
#[test]
fn a_kept_connection_is_used_from_one_local_address_only() {
    let origin = Origin::start(|conversation| {
        let from = conversation.peer_ip();
        conversation.answer_all(|_| response(200, from.as_bytes()))
    });
    let text = "http { upstream u { server %U1%; keepalive 8; }
        server { listen %LISTEN%;
        location /bound { proxy_bind 127.0.0.7; proxy_pass http://u; }
        location /named { proxy_bind $arg_from; proxy_pass http://u; }
        location / { proxy_pass http://u; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    for _ in 0..2 {
        assert_eq!(kp.get("/bound").text(), "127.0.0.7");
        assert_eq!(kp.get("/named?from=127.0.0.8").text(), "127.0.0.8");
        assert_eq!(kp.get("/named?from=127.0.0.9").text(), "127.0.0.9");
        assert_eq!(kp.get("/named").text(), "127.0.0.1");
        assert_eq!(kp.get("/").text(), "127.0.0.1");
    }
    assert_eq!(origin.connections(), 4, "each is used again");
}

#[test]
fn requests_are_balanced_while_a_peer_is_slow_to_fail() {
    let live = Origin::ok();
    let silent = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let text = "http { upstream u { server %SILENT% max_fails=1 fail_timeout=10s; server %LIVE%; }
        server { listen %LISTEN%; location / { proxy_pass http://u; proxy_read_timeout 1s; } } }";
    let kp = Setup::new(text)
        .with("SILENT", silent.address())
        .with("LIVE", live.address())
        .start();
    for _ in 0..6 {
        assert_eq!(kp.get("/").status(), 200);
    }
    assert_eq!(silent.connections(), 1, "one timeout ejects it");
}
