//! `--wait`: a peer is taken out, and `kp ctl` returns when nothing is in flight there any more, wherever that is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kp_tests::ask::{self, peer};
use kp_tests::dns::Dns;
use kp_tests::kp::{Checked, Kp};
use kp_tests::origin::Origin;
use kp_tests::wait::{self, SOON};
use kp_tests::{Setup, process};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::steering::{gate, send, setup};

fn ctl(kp: &Kp, words: &str) -> Checked {
    let words: Vec<&str> = words.split(' ').collect();
    kp.command(&[&["ctl"], words.as_slice()].concat())
}

fn json_of(said: &Checked) -> Value {
    assert_eq!(said.stderr, "");
    serde_json::from_str(&said.stdout).expect("JSON")
}

/// An origin that everybody asks as long as it is there, how it lets go of `/slow`, and one for when it is not.
fn first_and_spare() -> (Origin, Arc<AtomicBool>, Origin) {
    let (first, open) = gate("first");
    (first, open, Origin::named("spare"))
}

fn with_spare(first: &Origin, spare: &Origin) -> Setup {
    let servers = format!(
        "server {}; server {} backup;",
        first.address(),
        spare.address()
    );
    setup(&[], "").with("SERVERS", servers)
}

#[test]
fn whoever_takes_a_peer_out_may_wait_for_its_last_request() {
    for act in ["drain", "down", "remove"] {
        let (first, open, spare) = first_and_spare();
        let kp = with_spare(&first, &spare)
            .main("worker_processes 2;")
            .start();
        kp.wait_workers(2);
        let mut of_the_old = send(&kp, "/slow/1");
        first.wait_requests(1);
        kp.reload();
        kp.wait_error("generation 2 is serving");
        let mut of_the_new = send(&kp, "/slow/2");
        first.wait_requests(2);

        let address = first.address();
        let out = format!("peer {act} u {address}");
        let late = ctl(&kp, &format!("{out} --wait=0"));
        assert_eq!(late.code, 1, "{act}: {}", late.stderr);
        assert!(late.stdout.starts_with("1 change in force in "));
        let left = format!(" ms: 2 at {address}; kp ctl requests shows");
        assert!(late.stderr.contains(&left), "{}", late.stderr);
        // Who is out is out, however the waiting ended.
        assert_eq!(kp.get("/").text(), "spare");
        // A peer that is no more cannot be taken out again.
        if act == "remove" {
            assert_eq!(ctl(&kp, "reset u").code, 0);
        }

        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ctl(&kp, &format!("{out} --wait")));
            let told = format!("changed at run time: {out}");
            wait::until(SOON, "the change to be made once more", || {
                kp.error_log().matches(&told).count() == 2
            });
            assert!(!waiting.is_finished(), "two requests are in flight");
            open.store(true, Ordering::SeqCst);
            let said = waiting.join().expect("the command");
            assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{act}");
            let lines: Vec<&str> = said.stdout.lines().collect();
            let empty = format!("nothing is in flight at {address} any more, after ");
            assert!(
                lines.len() == 2 && lines[1].starts_with(&empty),
                "{}",
                said.stdout
            );
        });
        for client in [&mut of_the_old, &mut of_the_new] {
            assert_eq!(client.response().text(), "first");
        }
    }
}

/// A connection that was switched to another protocol is in flight until it ends.
#[test]
fn tunnels_are_waited_for_and_a_batch_waits_for_all_it_takes_out() {
    let tunnel = Origin::start(|conversation| {
        conversation.head()?;
        conversation.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        )?;
        conversation.stall();
        Ok(())
    });
    let (idle, spare) = (Origin::named("idle"), Origin::named("spare"));
    let kp = with_spare(&tunnel, &spare).start();
    let mut client = kp.client();
    let switched = client.ask(
        "GET /tunnel HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    );
    assert_eq!(switched.status(), 101);
    let path = kp.path("batch");
    let lines = format!(
        "peer add u {}\npeer remove u {}\npeer down u {}\n",
        idle.address(),
        tunnel.address(),
        spare.address()
    );
    std::fs::write(&path, lines).expect("a file");
    let said = ctl(&kp, &format!("batch --json --wait=0 {}", path.display()));
    assert_eq!(said.code, 1);
    let answer = json_of(&said);
    assert_eq!(
        (&answer["changes"], &answer["left"]),
        (&json!(3), &json!(1))
    );
    let name = |origin: &Origin| json!({"upstream": "u", "peer": origin.address()});
    let out = answer["out"].as_array().expect("peers");
    assert!(
        out.len() == 2 && out.contains(&name(&tunnel)) && out.contains(&name(&spare)),
        "{answer}"
    );
    drop(client);
    let said = ctl(
        &kp,
        &format!("--json peer down u {} --wait", spare.address()),
    );
    assert_eq!(said.code, 0);
    wait::until(SOON, "the end of the tunnel", || {
        let asked = json!({"command": "in-flight", "peers": [name(&tunnel)]});
        let answer = ask::master(&kp, &asked);
        answer["peers"][0]["in_flight"] == json!(0)
    });
}

/// The name of a server line stands for all the addresses that it has.
#[test]
fn a_name_is_waited_for_at_each_of_its_addresses() {
    let (origin, open, spare) = first_and_spare();
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let servers = format!(
        "resolver {} ipv6=off; zone u 64k; server app.test:{} resolve; server {} backup;",
        dns.address(),
        origin.port(),
        spare.address()
    );
    let kp = setup(&[], "").with("SERVERS", servers).start();
    wait::until(SOON, "the name's address", || kp.get("/").text() == "first");
    origin.forget();
    let mut client = send(&kp, "/slow");
    origin.wait_requests(1);
    let out = format!("peer down u app.test:{} --json --wait", origin.port());
    let said = ctl(&kp, &format!("{out}=0"));
    let answer = json_of(&said);
    assert_eq!((said.code, &answer["left"]), (1, &json!(1)));
    assert_eq!(
        answer["out"],
        json!([{"upstream": "u", "peer": origin.address()}])
    );
    open.store(true, Ordering::SeqCst);
    let said = ctl(&kp, &out);
    assert_eq!((said.code, &json_of(&said)["left"]), (0, &json!(0)));
    assert_eq!(client.response().status(), 200);
}

/// While the binary is changed the old one's workers still finish what they have at the peer.
#[test]
fn both_masters_are_asked_while_the_binary_is_changed() {
    let (first, open, spare) = first_and_spare();
    let mut kp = with_spare(&first, &spare).start();
    let mut client = send(&kp, "/slow");
    first.wait_requests(1);
    assert_eq!(kp.command(&["-s", "upgrade"]).code, 0);
    kp.follow();
    let out = format!("peer down u {} --wait", first.address());
    let said = ctl(&kp, &format!("{out}=0"));
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(said.stderr.contains(": 1 at "), "{}", said.stderr);
    open.store(true, Ordering::SeqCst);
    assert_eq!(ctl(&kp, &out).code, 0);
    assert_eq!(client.response().text(), "first");
}

/// Nobody is told that a peer is empty who cannot know it.
#[test]
fn what_cannot_be_known_is_no_success() {
    let (first, _open, spare) = first_and_spare();
    let kp = with_spare(&first, &spare)
        .main("worker_processes 2;")
        .start();
    kp.wait_workers(2);
    let stuck = kp.worker_pids()[0];
    assert!(process::signal(stuck, Signal::SIGSTOP));
    let out = format!("peer down u {} --wait", first.address());
    let said = ctl(&kp, &out);
    assert!(process::signal(stuck, Signal::SIGCONT));
    assert_eq!(said.code, 1);
    let named = format!("worker process {stuck} has not taken the change yet");
    assert!(said.stderr.contains(&named), "{}", said.stderr);
    wait::until(SOON, "everybody to have it", || ctl(&kp, &out).code == 0);

    let kp = with_spare(&first, &spare).http("metrics off;").start();
    let said = ctl(&kp, &format!("{out} --json"));
    assert_eq!(said.code, 1);
    let error = json_of(&said)["error"].to_string();
    assert!(
        error.contains("nobody counts what is in flight at"),
        "{error}"
    );
}

/// A worker that dies takes its requests along; nobody waits for them for ever.
#[test]
fn what_a_dead_worker_had_is_not_waited_for() {
    let (first, open, spare) = first_and_spare();
    let kp = with_spare(&first, &spare).allow("[alert]").start();
    let _client = send(&kp, "/slow");
    first.wait_requests(1);
    let asked = || ask::ctl(&kp, &["upstream", "show", "u"]);
    assert_eq!(peer(&asked(), "u", &first.address())["in_flight"], 1);
    let before = kp.worker_pids();
    assert!(process::signal(before[0], Signal::SIGKILL));
    kp.wait_new_workers(&before);
    let said = ctl(&kp, &format!("peer down u {} --wait", first.address()));
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (0, ""),
        "{}",
        said.stdout
    );
    open.store(true, Ordering::SeqCst);
}

#[test]
fn a_peer_without_requests_is_empty_at_once() {
    let (first, _open, spare) = first_and_spare();
    let kp = with_spare(&first, &spare).start();
    let said = ctl(
        &kp,
        &format!("--json peer drain u {} --wait=10m", first.address()),
    );
    assert_eq!((said.code, &json_of(&said)["left"]), (0, &json!(0)));
}
