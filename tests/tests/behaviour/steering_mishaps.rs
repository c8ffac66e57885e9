//! What goes wrong while upstreams are changed: workers that cannot be told, that die, that are replaced just then, peers that
//! are ill. In the end everybody serves by what was changed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kp_tests::origin::{Origin, response};
use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, client, process};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::steering::{change, command, counted, counts, gate, question, refused, send, setup};

/// Whether a request is answered well; a worker without descriptors may close the connection instead.
fn answers(kp: &Kp) -> bool {
    let mut text = String::new();
    let asked = TcpStream::connect(kp.address()).and_then(|mut stream| {
        stream.write_all(b"GET / HTTP/1.0\r\nHost: t\r\n\r\n")?;
        stream.read_to_string(&mut text)
    });
    asked.is_ok() && text.starts_with("HTTP/1.1 200")
}

/// The moment at which operators change something is often the one at which a worker has no descriptor left.
#[test]
fn a_worker_without_a_free_descriptor_is_told() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "")
        .main("worker_rlimit_nofile 64;")
        .start();
    let worker = kp.worker_pid();
    let clients: Vec<_> = (0..80)
        .map(|_| {
            let mut client = TcpStream::connect(kp.address()).expect("connecting");
            // The last ones may be sent away.
            let _ = client.write_all(b"GET / HTTP/1.1\r\nHost: ");
            client
        })
        .collect();
    wait::until(SOON, "no descriptor left", || {
        kp.error_log().contains("accept4() failed (24:")
    });
    change(&kp, &[&format!("peer down u {}", a.address())]);
    let (done, found) = question(
        &kp,
        &json!({"command": "requests", "limit": 5, "longer_ms": 0}),
    );
    assert!(done && found["silent"] == json!([]), "{found}");
    drop(clients);
    wait::until(SOON, "there are descriptors again", || {
        process::descriptors(worker).len() < 45 && answers(&kp)
    });
    assert_eq!(counts(&kp, 6), counted(&[("b", 6)]));
}

/// So much was said to a worker that stands still that its channel takes nothing more: what is to be forgotten is told with
/// the rest as soon as it goes on.
#[test]
fn what_does_not_fit_into_the_channel_is_not_forgotten() {
    let (a, b) = (Origin::named("a"), Origin::replying(response(500, b"b")));
    let servers = format!(
        "server {}; server {} fail_timeout=1h;",
        a.address(),
        b.address()
    );
    let kp = setup(&[], "")
        .with("SERVERS", servers)
        .with("LOCATION", "proxy_next_upstream http_500;")
        .start();
    let failures = || b.raw_text().matches("GET").count();
    assert_eq!(counts(&kp, 4), counted(&[("a", 4)]));
    assert_eq!(failures(), 1);
    let worker = kp.stop_worker();
    let limit = format!("peer max_conns u {} 500", a.address());
    let text = command(&[&limit], false).to_string();
    for _ in 0..600 {
        let mut asker = UnixStream::connect(kp.path("kp.ctl")).expect("connecting");
        let said = asker.write_all(format!("ctl {}\n{text}", text.len()).as_bytes());
        said.expect("asking");
    }
    let forget = command(&[&format!("peer reset u {}", b.address())], false);
    let (done, answer) = question(&kp, &forget);
    assert!(done && answer["silent"] == json!([worker]), "{answer}");
    assert!(process::signal(worker, Signal::SIGCONT));
    change(&kp, &[&format!("peer max_conns u {} 7", a.address())]);
    assert_eq!(counts(&kp, 4), counted(&[("a", 4)]));
    assert_eq!(failures(), 2);
}

/// Workers are killed and generations replaced while one change follows the other. None of them is lost.
#[test]
fn everybody_agrees_after_deaths_and_reloads() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "state u.state;")
        .main("worker_processes 3;")
        .allow("exited on signal 9")
        .start();
    kp.wait_workers(3);
    for turn in 1..=6 {
        if turn % 2 == 0 {
            kp.signal(Signal::SIGHUP);
        } else if let Some(worker) = kp.worker_pids().first() {
            process::signal(*worker, Signal::SIGKILL);
        }
        for step in 0..3 {
            let weight = format!("peer weight u {} {}", b.address(), turn * 10 + step);
            let (done, answer) = question(&kp, &command(&[&weight], false));
            assert!(done, "{answer}");
        }
    }
    change(&kp, &[&format!("peer down u {}", a.address())]);
    assert_eq!(counts(&kp, 30), counted(&[("b", 30)]));
    kp.reload();
    assert_eq!(counts(&kp, 30), counted(&[("b", 30)]));
    let state = kp.text("u.state");
    assert!(
        state.contains(&format!("weight {} 62\n", b.address())),
        "{state}"
    );
    let (_, shown) = question(&kp, &json!({"command": "upstream show", "name": "u"}));
    let changes = json!([["weight", b.address(), "62"], ["down", a.address()]]);
    assert_eq!(shown["upstreams"][0]["changes"], changes);
    change(&kp, &["reset"]);
    wait::until(SOON, "both are asked", || counts(&kp, 9).len() == 2);
}

/// A peer that fails its health checks is nobody to leave a group to.
#[test]
fn the_last_peer_that_passes_its_checks_goes_only_by_force() {
    let a = Origin::named("a");
    let b = Origin::start(|conversation| {
        conversation.answer_all(|request| {
            let ill = request.target() == "/hz";
            response(if ill { 503 } else { 200 }, b"b")
        })
    });
    let kp = setup(&[&a, &b], "zone u 64k;")
        .with("LOCATION", "health_check uri=/hz interval=300ms;")
        .start();
    kp.wait_error(&format!(
        "peer {} of upstream \"u\" is unhealthy",
        b.address()
    ));
    let last = format!("peer down u {}", a.address());
    assert_eq!(
        refused(&kp, &[&last]),
        "upstream \"u\" would have no usable peer left (health checks let no requests go to those that are left; --force does it nevertheless)"
    );
    assert_eq!(counts(&kp, 3), counted(&[("a", 3)]));
    // The one that is ill may go, and whoever mends the group is not held up.
    change(&kp, &[&format!("peer down u {}", b.address())]);
    let (done, answer) = question(&kp, &command(&[&last], true));
    assert!(done, "{answer}");
    change(&kp, &[&format!("peer remove u {}", b.address())]);
    change(&kp, &[&format!("peer up u {}", a.address())]);
    assert_eq!(counts(&kp, 3), counted(&[("a", 3)]));
}

/// The state file is the operator's, too: with the line ends of another system, and through no link to somewhere else.
#[test]
fn a_state_file_is_read_as_people_write_it_and_no_link_is_followed() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let text = format!("kp-state 1\r\nupstream u\r\ndown {}\r\n", a.address());
    let kp = setup(&[&a, &b], "state u.state;")
        .file("u.state", text)
        .file("elsewhere", "mine\n")
        .start();
    assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
    change(&kp, &[&format!("peer weight u {} 2", b.address())]);
    assert!(!kp.text("u.state").contains('\r'));
    std::fs::remove_file(kp.path("u.state")).expect("removing");
    std::os::unix::fs::symlink(kp.path("elsewhere"), kp.path("u.state")).expect("a link");
    let said = refused(&kp, &["reset u"]);
    assert!(
        said.contains("u.state\" failed (it is no regular file"),
        "{said}"
    );
    assert_eq!(kp.text("elsewhere"), "mine\n");
    assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
}

/// Two masters live: what the old one still finishes is not in the new one's answers, so it is said that there is another.
#[test]
fn the_master_that_is_not_asked_is_named() {
    let (origin, open) = gate("a");
    let mut kp = setup(&[&origin], "").start();
    let mut client = send(&kp, "/slow");
    wait::until(SOON, "the request is there", || {
        origin.raw_text().contains("/slow")
    });
    let old = kp.master_pid();
    assert_eq!(kp.command(&["ctl", "requests"]).stderr, "");
    assert_eq!(kp.command(&["-s", "upgrade"]).code, 0);
    kp.follow();
    let said = kp.command(&["ctl", "requests"]);
    assert!(said.stdout.contains("no request"), "{}", said.stdout);
    let aside = format!("pid {};", kp.path("kp.pid.oldbin").display());
    let named = format!("another master process, {old}, lives");
    assert!(
        said.stderr.contains(&named) && said.stderr.contains(&aside),
        "{}",
        said.stderr
    );
    let said = kp.command(&["ctl", "-g", &aside, "requests"]);
    assert!(
        said.stdout.contains("/slow"),
        "{} {}",
        said.stdout,
        said.stderr
    );
    assert_eq!(said.stderr, "");
    open.store(true, Ordering::SeqCst);
    assert_eq!(client.response().status(), 200);
}

/// Whoever is added where a check is mandatory gets no request before its first pass, and is nobody to rely on until then.
#[test]
fn a_peer_that_is_added_waits_for_its_mandatory_pass() {
    let a = Origin::named("a");
    let is_well = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_well);
    let b = Origin::start(move |conversation| {
        conversation.answer_all(|request| {
            let ill = request.target() == "/hz" && !told.load(Ordering::SeqCst);
            response(if ill { 503 } else { 200 }, b"b")
        })
    });
    let kp = setup(&[&a], "zone u 64k;")
        .main("worker_processes 2;")
        .with("LOCATION", "health_check uri=/hz interval=300ms mandatory;")
        .start();
    wait::until(SOON, "the first pass of a", || kp.get("/").status() == 200);
    change(&kp, &[&format!("peer add u {}", b.address())]);
    let last = format!("peer remove u {}", a.address());
    assert!(refused(&kp, &[&last]).contains("health checks let no requests go"));
    wait::until(SOON, "a check of b", || !b.targets().is_empty());
    assert_eq!(counts(&kp, 20), counted(&[("a", 20)]));
    assert!(b.targets().iter().all(|target| target == "/hz"));
    is_well.store(true, Ordering::SeqCst);
    wait::until(SOON, "the first pass of b", || {
        counts(&kp, 2).contains_key("b")
    });
    change(&kp, &[&last]);
    assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
}

/// A limit below what is in flight ends nothing; whoever comes goes elsewhere until there is room.
#[test]
fn a_limit_below_what_is_in_flight_lets_it_end() {
    let ((a, open), b) = (gate("a"), Origin::named("b"));
    let kp = setup(&[&a], "zone u 64k;").start();
    let mut held: Vec<_> = (0..3).map(|_| send(&kp, "/slow")).collect();
    wait::until(SOON, "all are there", || {
        a.raw_text().matches("/slow").count() == 3
    });
    let limit = format!("peer max_conns u {} 1", a.address());
    change(&kp, &[&limit, &format!("peer add u {}", b.address())]);
    assert_eq!(counts(&kp, 6), counted(&[("b", 6)]));
    open.store(true, Ordering::SeqCst);
    for client in &mut held {
        assert_eq!(client.response().text(), "a");
    }
    assert_eq!(counts(&kp, 6), counted(&[("a", 3), ("b", 3)]));
}

/// With `ip_hash` a peer that is down keeps its place, so that nobody else's clients move; one that is removed does not.
#[test]
fn clients_stay_where_they_are_when_another_peer_is_down() {
    let origins = ["a", "b", "c"].map(Origin::named);
    let [a, b, c] = &origins;
    let kp = setup(&[a, b, c], "ip_hash;").start();
    let mine = counts(&kp, 3).into_keys().next().expect("an answer");
    for origin in &origins {
        let name = client::get(&origin.address(), "/").text();
        change(&kp, &[&format!("peer down u {}", origin.address())]);
        let here = counts(&kp, 3);
        assert_eq!(here.len(), 1, "{here:?}");
        assert_eq!(
            here.contains_key(&mine),
            name != mine,
            "{here:?} without {name}"
        );
        change(&kp, &[&format!("peer up u {}", origin.address())]);
        assert_eq!(counts(&kp, 3), counted(&[(&mine, 3)]));
    }
}
