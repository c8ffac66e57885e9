//! Crashes under load: a worker that is killed takes its own connections with it and nothing else, a master that is killed
//! leaves nobody behind who serves for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kp_tests::origin::OK;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kind, Kp, LoadOrigin, Mix, Origin, Setup, process};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);
const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const CLOSE: &str = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

fn before(origin: &LoadOrigin) -> Setup {
    Setup::new(
        "%MAIN% worker_processes 2;
http {
    %HTTP%
    upstream u { server %U1%; keepalive 64; }
    server {
        listen %LISTEN%; listen unix:%DIR%/kp.listen;
        add_header X-Worker $pid always;
        keepalive_requests 100000;
        location / { proxy_pass http://u; }
    }
}
",
    )
    .with("U1", origin.address())
}

#[test]
fn a_killed_worker_takes_only_its_own_connections() {
    let origin = LoadOrigin::start();
    let kp = before(&origin).allow("exited on signal 9").start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 16)
        .clients(Kind::Close, 12)
        .unix(&kp.path("kp.listen"), 6)
        .wait_max(Duration::from_millis(100))
        .start();
    for round in 0..4 {
        load.wait_answers(300);
        let workers = kp.worker_pids();
        let worker = workers[round % workers.len()];
        assert!(load.kill(worker));
        wait::until(SOON, "two workers again", || {
            let now = kp.worker_pids();
            now.len() == 2 && !now.contains(&worker)
        });
    }
    load.wait_answers(300);
    let report = load.stop();
    report.assert_nothing_lost();
    assert!(!report.forgiven.is_empty(), "nobody noticed: {report}");
    let alerts = kp.error_log().matches("exited on signal 9").count();
    assert_eq!(alerts, 4);
}

/// What waits in the queue of a worker's listening socket when it is killed is served by the worker after it.
#[test]
fn the_queue_of_a_killed_worker_is_served() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin).allow("exited on signal 9").start();
    let worker = kp.stop_worker();
    let mut queued: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = kp.client();
            client.send(CLOSE);
            client
        })
        .collect();
    process::signal(worker, Signal::SIGKILL);
    for client in &mut queued {
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn a_killed_worker_gives_its_places_back() {
    let open = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&open);
    let origin = Origin::start(move |conversation| {
        conversation.answer_all(|request| {
            if request.target() == "/hold" {
                wait::happens(SOON, || opened.load(Ordering::SeqCst));
            }
            OK.to_vec()
        })
    });
    let kp = Setup::base(&origin)
        .with("U1", "max_conns=4 max_fails=0")
        .upstream("zone u 256k;")
        .allow("exited on signal 9")
        .start();
    let hold = |client: &mut Client| client.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut holding: Vec<Client> = (0..4).map(|_| kp.client()).collect();
    holding.iter_mut().for_each(hold);
    origin.wait_requests(4);
    assert_eq!(kp.client().ask(GET).status(), 502, "all places are taken");
    let worker = kp.worker_pid();
    process::signal(worker, Signal::SIGKILL);
    kp.wait_new_workers(&[worker]);
    let mut again: Vec<Client> = (0..4).map(|_| kp.client()).collect();
    again.iter_mut().for_each(hold);
    origin.wait_requests(8);
    assert_eq!(
        kp.client().ask(GET).status(),
        502,
        "all places are taken again"
    );
    open.store(true, Ordering::SeqCst);
    for client in &mut again {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(kp.client().ask(GET).status(), 200);
}

/// A worker that dies as soon as it is there is started again after ever longer waits, and kp is itself again with the
/// first one that lives.
#[test]
fn workers_that_die_at_once_are_started_ever_later() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin).allow("exited on signal 9").start();
    assert_eq!(kp.get("/").status(), 200);
    // A worker that has lived for a second did not die at once.
    wait::pause(Duration::from_millis(1100));
    let mut waits = Vec::new();
    let mut worker = kp.worker_pid();
    for _ in 0..5 {
        let killed = Instant::now();
        process::signal(worker, Signal::SIGKILL);
        worker = wait::until_some(SOON, "the next worker", || {
            let next = kp.all_pids();
            next.into_iter()
                .find(|pid| *pid != worker && process::alive(*pid))
        });
        waits.push(killed.elapsed());
    }
    // At once, then 100, 200, 400 and 800 ms.
    for (waited, least_ms) in waits.iter().zip([0, 100, 200, 400, 800]) {
        let range = Duration::from_millis(least_ms)..Duration::from_millis(least_ms + 6000);
        assert!(range.contains(waited), "{waits:?}");
    }
    let answer = client_patiently(&kp);
    assert_eq!(answer, 200);
}

fn client_patiently(kp: &Kp) -> u16 {
    let mut client = kp.client();
    client.send(CLOSE);
    client.response().status()
}

fn echo() -> Origin {
    Origin::start(|conversation| {
        let head = conversation.head()?;
        if head.field("upgrade").is_none() {
            conversation.pause(SECOND / 2);
            return conversation.send(OK);
        }
        conversation.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        )?;
        loop {
            let bytes = conversation.read_at_least(1)?;
            conversation.send(bytes)?;
        }
    })
}

/// The master is killed: its workers finish what they have and go, tunnels included, and the next master starts at once
/// with the same pid file, addresses and unix paths.
#[test]
fn a_killed_master_leaves_nobody_behind() {
    let origin = echo();
    let mut kp = Setup::base(&origin)
        .main("worker_processes 2;")
        .server("listen unix:%DIR%/kp.listen;")
        .allow("the master process is gone")
        .start();
    kp.wait_workers(2);
    let orphans = kp.worker_pids();
    let mut tunnel = kp.client();
    let upgrade = "GET / HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    assert_eq!(tunnel.ask(upgrade).status(), 101);
    let mut busy = kp.client();
    busy.send(GET);
    wait::until(SOON, "the request at the origin", || {
        origin.connections() == 2
    });
    let mut idle = kp.client();
    let killed = Instant::now();
    kp.kill_and_start_again();
    kp.wait_workers(2);
    assert_eq!(busy.response().status(), 200, "a request that was begun");
    assert_eq!(kp.get("/").status(), 200, "the next master serves");
    tunnel.send("ping");
    assert_eq!(tunnel.read_exactly(4, SOON), b"ping");
    assert_eq!(idle.end_within(SECOND * 8), End::Closed);
    assert!(matches!(tunnel.end_within(SOON), End::Closed | End::Reset));
    assert!(killed.elapsed() > SECOND * 10, "{:?}", killed.elapsed());
    for orphan in orphans {
        wait::until(SOON, "the orphans to leave", || !process::alive(orphan));
    }
    // A pid file of a master that lives does prevent a start.
    let second = kp.command(&[]);
    assert_eq!(second.code, 1);
    assert!(
        second.stderr.contains("already running"),
        "{}",
        second.stderr
    );
}

/// Workers of a killed master that cannot notice it at once hold the addresses; the next start waits for them a while.
#[test]
fn the_next_start_waits_for_orphans() {
    let origin = Origin::ok();
    let mut kp = Setup::base(&origin)
        .server("listen unix:%DIR%/kp.listen;")
        .allow("the master process is gone")
        .start();
    let worker = kp.stop_worker();
    let waking = std::thread::spawn(move || {
        wait::pause(SECOND / 2);
        process::signal(worker, Signal::SIGCONT)
    });
    kp.kill_and_start_again();
    assert!(waking.join().expect("a thread"));
    assert_eq!(kp.get("/").status(), 200);
}
