//! Reload and stop lose nothing: requests under way, tunnels, idle and pipelined connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Origin, Setup, process};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

/// Posts on one connection, again and again, and opens a new one only where kp said that it closes. Counts the
/// answers; whatever else ends a connection is a loss.
fn post_until(stop: &AtomicBool, address: &str, answers: &AtomicUsize) -> Result<(), String> {
    let mut client = Client::connect(address);
    while !stop.load(Ordering::SeqCst) {
        client.send("POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx");
        let answer = client
            .try_response("POST", SOON)
            .map_err(|end| format!("no answer but {end:?}"))?;
        if answer.status() != 200 {
            return Err(format!("{:?}", answer.head));
        }
        answers.fetch_add(1, Ordering::SeqCst);
        if answer.field("connection") == Some("close") {
            client = Client::connect(address);
        }
    }
    Ok(())
}

#[test]
fn reloads_lose_no_request() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .main("worker_processes 2;")
        .http("keepalive_requests 100000;")
        .start();
    kp.wait_workers(2);
    let stop = Arc::new(AtomicBool::new(false));
    let answers = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (stop, answers, address) = (Arc::clone(&stop), Arc::clone(&answers), kp.address());
            std::thread::spawn(move || post_until(&stop, &address, &answers))
        })
        .collect();
    for _ in 0..5 {
        let before = answers.load(Ordering::SeqCst);
        wait::until(SOON, "requests between two reloads", || {
            answers.load(Ordering::SeqCst) > before + 200
        });
        kp.reload();
    }
    stop.store(true, Ordering::SeqCst);
    let results: Vec<_> = clients
        .into_iter()
        .map(|client| client.join().expect("a client"))
        .collect();
    let lost: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(
        lost.is_empty(),
        "{} answers, but lost: {lost:?}",
        answers.load(Ordering::SeqCst)
    );
}

#[test]
fn connections_of_a_moment_survive_reloads() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin).main("worker_processes 2;").start();
    kp.wait_workers(2);
    for _ in 0..4 {
        let before = kp.worker_pids();
        kp.signal(Signal::SIGHUP);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(400) {
            assert_eq!(kp.get("/").status(), 200);
        }
        kp.wait_new_workers(&before);
    }
}

fn echo() -> Origin {
    Origin::start(|conversation| {
        conversation.head()?;
        conversation.send(SWITCHING)?;
        loop {
            let bytes = conversation.read_at_least(1)?;
            conversation.send(bytes)?;
        }
    })
}

#[test]
fn a_tunnel_outlives_a_reload() {
    let origin = echo();
    let kp = Kp::base(&origin);
    let old = kp.worker_pid();
    let mut tunnel = kp.client();
    assert_eq!(tunnel.ask(UPGRADE).status(), 101);
    kp.reload();
    tunnel.send("ping");
    assert_eq!(tunnel.read_exactly(4, SOON), b"ping");
    assert!(process::alive(old));
    drop(tunnel);
    wait::until(SOON, "the old worker to leave", || !process::alive(old));
}

#[test]
fn worker_shutdown_timeout_ends_a_tunnel() {
    let origin = echo();
    let kp = Setup::base(&origin)
        .main("worker_shutdown_timeout 1s;")
        .start();
    let old = kp.worker_pid();
    let mut tunnel = kp.client();
    assert_eq!(tunnel.ask(UPGRADE).status(), 101);
    let start = Instant::now();
    kp.reload();
    assert!(matches!(tunnel.end_within(SOON), End::Closed | End::Reset));
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(900) && took <= SECOND * 10,
        "{took:?}"
    );
    wait::until(SOON, "the old worker to leave", || !process::alive(old));
}

#[test]
fn only_the_last_of_the_waiting_requests_is_told_to_close() {
    let reloaded = Arc::new(AtomicBool::new(false));
    let wait_for = Arc::clone(&reloaded);
    let origin = Origin::start(move |conversation| {
        conversation.answer_all(|_| {
            wait::happens(SOON, || wait_for.load(Ordering::SeqCst));
            kp_tests::origin::OK.to_vec()
        })
    });
    let kp = Kp::base(&origin);
    let mut client = kp.client();
    let requests: String = ["/slow", "/2", "/3"]
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"))
        .concat();
    client.send(requests);
    origin.wait_requests(1);
    kp.reload();
    reloaded.store(true, Ordering::SeqCst);
    let said: Vec<bool> = (0..3)
        .map(|_| client.response().field("connection") == Some("close"))
        .collect();
    assert_eq!(
        said,
        [false, false, true],
        "RFC 9112 §9.6: nothing after a close may be answered"
    );
    assert!(client.closes_within(SOON));
}

/// Whatever grace idle connections have: its request is on its way.
#[test]
fn who_has_just_connected_is_not_idle() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("keepalive_min_timeout 0;")
        .start();
    let mut idle = kp.client();
    assert_eq!(idle.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status(), 200);
    let mut newcomer = kp.client();
    kp.reload();
    let answer = newcomer.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(
        (answer.status(), answer.field("connection")),
        (200, Some("close"))
    );
    assert!(idle.closes_within(SOON));
}

#[test]
fn old_generations_do_not_pile_up() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("keepalive_min_timeout 100ms;")
        .start();
    for _ in 0..10 {
        kp.reload();
        assert_eq!(kp.get("/").status(), 200);
    }
    wait::until(SOON, "one worker", || kp.all_pids().len() == 1);
    let descriptors = process::descriptors(kp.master_pid()).len();
    for _ in 0..10 {
        kp.reload();
    }
    wait::until(SOON, "one worker", || kp.all_pids().len() == 1);
    let grown = || {
        process::descriptors(kp.master_pid())
            .len()
            .saturating_sub(descriptors)
    };
    wait::until(
        SOON,
        "the master to close what was the old generations'",
        || grown() <= 1,
    );
}

#[test]
fn a_reload_with_more_and_fewer_workers() {
    let origin = Origin::ok();
    let setup = |count: usize| Setup::base(&origin).main(&format!("worker_processes {count};"));
    let kp = setup(1).start();
    for count in [4, 2, 3, 1] {
        kp.configure(&setup(count));
        kp.reload();
        kp.wait_workers(count);
        for _ in 0..20 {
            assert_eq!(kp.get("/").status(), 200, "{count} workers");
        }
    }
}
