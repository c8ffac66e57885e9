//! Reloads under load (cases R01 and R02): nothing is lost whatever a reload changes, and nothing is left behind.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kp_tests::load::{Report, Stage};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kind, Kp, LoadOrigin, Mix, Origin, Port, Setup, process};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);
const CLOSE: &str = "GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

/// One server before the origin of a load: two workers, an address of its own and what `.server` adds.
fn before(origin: &LoadOrigin) -> Setup {
    Setup::new(
        "%MAIN%
http {
    %HTTP%
    upstream u { server %U1%; keepalive 64; %UPSTREAM% }
    server {
        %LISTENS% %SERVER%
        add_header X-Worker $pid always;
        client_max_body_size 100m;
        keepalive_requests 100000;
        location / { proxy_pass http://u; %LOCATION% }
        location /websocket {
            proxy_pass http://u;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
        }
    }
}
",
    )
    .with("U1", origin.address())
}

/// The same with its usual address and number of workers.
fn usual(origin: &LoadOrigin) -> Setup {
    before(origin)
        .main("worker_processes 2;")
        .with("LISTENS", "listen %LISTEN%;")
}

/// What must not grow in the master.
fn size_of_master(kp: &Kp) -> (u64, usize) {
    let pid = kp.master_pid();
    (process::rss_kib(pid), process::descriptors(pid).len())
}

#[test]
fn r02_reloads_lose_nothing_of_a_full_mix() {
    let origin = LoadOrigin::start();
    let kp = usual(&origin)
        .server("listen unix:%DIR%/kp.listen;")
        .start();
    kp.wait_workers(2);
    for _ in 0..3 {
        kp.reload();
    }
    kp.wait_drained(SOON);
    let before = size_of_master(&kp);
    let in_worker = process::lasting_descriptors(kp.worker_pids()[0]);
    let load = Mix::full(&kp.address(), Some(&kp.path("kp.listen"))).start();
    for _ in 0..20 {
        load.wait_answers(500);
        kp.reload();
    }
    load.wait_answers(500);
    let report = load.stop();
    report.assert_nothing_lost();
    for kind in Kind::ALL {
        assert!(report.of(kind) > 0, "{kind:?}: {report}");
    }
    assert_eq!(report.ended_tunnels, 0);
    assert!(origin.twice().is_empty(), "a POST was sent twice");
    kp.wait_drained(SOON * 3);
    assert_eq!(kp.all_pids().len(), 2);
    let after = size_of_master(&kp);
    assert!(
        after.0 <= before.0 * 11 / 10 && after.1 * 10 <= before.1 * 11,
        "the master has grown from {before:?} to {after:?} (KiB, descriptors)"
    );
    for worker in kp.worker_pids() {
        let kept = process::lasting_descriptors(worker);
        assert!(
            kept <= in_worker,
            "{kept} descriptors, {in_worker} in the first one"
        );
    }
}

/// `worker_shutdown_timeout` holds the number of generations down while tunnels stay open.
#[test]
fn r03_a_bounded_drain_leaves_no_generation_behind() {
    let origin = LoadOrigin::start();
    let kp = usual(&origin).main("worker_shutdown_timeout 1s;").start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 8)
        .clients(Kind::Tunnel, 6)
        .tunnels_may_end()
        .start();
    load.wait_of(Kind::Tunnel, 20);
    for _ in 0..6 {
        load.wait_of(Kind::Tunnel, 12);
        kp.reload();
    }
    // The limit and what a loaded machine adds to it: five generations of before are gone.
    wait::until(SOON, "at most two generations", || kp.all_pids().len() <= 4);
    kp.wait_drained(SOON);
    wait::until(SOON, "the clients to see their tunnels end", || {
        load.report().ended_tunnels > 0
    });
    load.stop().assert_nothing_lost();
}

#[test]
fn listen_addresses_come_go_and_move_under_load() {
    let origin = LoadOrigin::start();
    let (one, two, three) = (Port::take(), Port::take(), Port::take());
    let with = |addresses: &[&Port], unix: &str| {
        let mut listens = format!("listen unix:%DIR%/{unix};");
        for port in addresses {
            listens.push_str(&format!(" listen {};", port.address()));
        }
        before(&origin)
            .main("worker_processes 2;")
            .with("LISTENS", listens)
    };
    let kp = with(&[&one], "first").start();
    kp.wait_workers(2);
    let load = Mix::new(&one.address())
        .clients(Kind::Post, 8)
        .clients(Kind::Close, 8)
        .start();
    let step = |addresses: &[&Port], unix: &str, aim: &[&str]| {
        load.wait_answers(100);
        kp.configure(&with(addresses, unix));
        kp.reload();
        load.wait_answers(50);
        load.aim(aim);
        // Whoever had drawn the old address has connected to it by now.
        load.wait_of(Kind::Close, 50);
        let path = kp.path(unix);
        assert!(path.exists(), "{}", path.display());
    };
    let names = [one.address(), two.address(), three.address()];
    step(&[&one, &two], "first", &[&names[1]]);
    step(&[&two], "second", &[&names[1]]);
    step(
        &[&two, &three, &one],
        "second",
        &[&names[0], &names[1], &names[2]],
    );
    load.aim(&[&names[2]]);
    load.wait_of(Kind::Close, 50);
    step(&[&three], "first", &[&names[2]]);
    let report = load.stop();
    report.assert_nothing_lost();
    kp.wait_drained(SOON * 2);
    assert!(!kp.path("second").exists(), "a unix path was left behind");
    wait::until(SOON, "the removed addresses to close", || {
        [&one, &two, &three].map(|port| process::listening(port.number())) == [false, false, true]
    });
}

/// A loss that a client of an address that is taken away may see: nobody answered its connect.
fn refused_at_most(report: &Report) {
    let others: Vec<_> = report
        .losses
        .iter()
        .filter(|loss| loss.stage != Stage::Connecting)
        .map(ToString::to_string)
        .collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn whoever_reached_a_removed_address_is_served() {
    let origin = LoadOrigin::start();
    let removed = Port::take();
    let with = |listen: &str| {
        before(&origin)
            .main("worker_processes 2;")
            .with("LISTENS", format!("listen %LISTEN%; {listen}"))
    };
    let listen = format!("listen {};", removed.address());
    let kp = with(&listen).start();
    kp.wait_workers(2);
    for _ in 0..6 {
        let load = Mix::new(&removed.address())
            .clients(Kind::Close, 12)
            .pace(Duration::from_millis(1))
            .start();
        load.wait_answers(100);
        kp.configure(&with(""));
        kp.reload();
        wait::until(SOON, "the address to refuse", || {
            !load.report().losses.is_empty()
        });
        refused_at_most(&load.stop());
        kp.configure(&with(&listen));
        kp.reload();
    }
}

/// Connections that wait in the queue of a worker that does not run are served when it does, although a reload has taken
/// their address away meanwhile.
#[test]
fn the_queue_of_a_removed_address_is_served() {
    let origin = Origin::ok();
    let removed = Port::take();
    let with = |listen: &str| Setup::base(&origin).server(listen);
    let kp = with(&format!("listen {};", removed.address())).start();
    let old = kp.stop_worker();
    let mut queued: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = Client::connect(&removed.address());
            client.send(CLOSE);
            client
        })
        .collect();
    kp.configure(&with(""));
    kp.signal(Signal::SIGHUP);
    kp.wait_error("generation 2 is serving");
    // The stopped worker has not heard of it; the address is closed to others all the same.
    let late = TcpStream::connect_timeout(
        &removed.address().parse().expect("an address"),
        Duration::from_millis(300),
    );
    assert!(late.is_err(), "a removed address took a connection");
    process::signal(old, Signal::SIGCONT);
    for client in &mut queued {
        assert_eq!(client.response().status(), 200);
        assert_eq!(client.end_within(SOON), End::Closed);
    }
    wait::until(SOON, "the old worker to leave", || !process::alive(old));
    assert!(TcpStream::connect(removed.address()).is_err());
}

/// Stops the worker, fills its queue, gives the order, and lets it run again: whoever was queued is answered.
fn queue_is_served(kp: &mut Kp, address: &str, order: impl FnOnce(&mut Kp)) {
    let old = kp.stop_worker();
    let mut queued: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = Client::connect(address);
            client.send(CLOSE);
            client
        })
        .collect();
    order(kp);
    process::signal(old, Signal::SIGCONT);
    for client in &mut queued {
        assert_eq!(client.response().status(), 200);
    }
}

/// The same where a wildcard address of the same port takes over, and newcomers go there at once.
#[test]
fn the_queue_of_an_address_that_became_wider_is_served() {
    let origin = Origin::ok();
    let moved = Port::take();
    let with = |listen: String| Setup::base(&origin).server(&format!("listen {listen};"));
    let mut kp = with(moved.address()).start();
    queue_is_served(&mut kp, &moved.address(), |kp| {
        kp.configure(&with(format!("*:{}", moved.number())));
        kp.signal(Signal::SIGHUP);
        kp.wait_error("generation 2 is serving");
    });
    let answer = kp_tests::client::get(&moved.address(), "/");
    assert_eq!(answer.status(), 200, "newcomers wait for nobody");
}

#[test]
fn the_queue_of_a_kp_that_stops_is_served() {
    let origin = Origin::ok();
    let mut kp = Setup::base(&origin).start();
    let address = kp.address();
    queue_is_served(&mut kp, &address, |kp| {
        kp.signal(Signal::SIGQUIT);
        kp.wait_error("shutting down");
    });
    assert_eq!(kp.wait_exit(SOON), 0);
}

#[test]
fn worker_processes_change_under_load() {
    let origin = LoadOrigin::start();
    let with = |count: usize| {
        before(&origin)
            .main(&format!("worker_processes {count};"))
            .with("LISTENS", "listen %LISTEN%; listen unix:%DIR%/kp.listen;")
    };
    let kp = with(2).start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 8)
        .clients(Kind::Close, 12)
        .unix(&kp.path("kp.listen"), 2)
        .start();
    for count in [4, 1, 3, 2, 1, 4] {
        load.wait_answers(150);
        kp.configure(&with(count));
        kp.reload();
        kp.wait_workers(count);
    }
    load.wait_answers(150);
    load.stop().assert_nothing_lost();
}

/// The processes that hold a file open.
fn holders(kp: &Kp, path: &std::path::Path) -> Vec<u32> {
    let mut pids = kp.all_pids();
    pids.push(kp.master_pid());
    let shown = path.to_string_lossy().into_owned();
    pids.retain(|pid| {
        process::descriptors(*pid)
            .iter()
            .any(|(_, target)| *target == shown)
    });
    pids
}

/// The numbers of the requests that a log has, each on a line of its own.
fn numbers(text: &str) -> Vec<u64> {
    text.lines()
        .map(|line| {
            line.parse()
                .unwrap_or_else(|_| panic!("a torn line: {line:?}"))
        })
        .collect()
}

#[test]
fn logs_move_under_load() {
    let origin = LoadOrigin::start();
    let with = |name: &str| {
        usual(&origin)
            .main(&format!("error_log {name}.error info;"))
            .http("log_format number $http_x_load;")
            .http(&format!("access_log {name}.log number;"))
            .http(&format!(
                "access_log {name}.buffered number buffer=32k flush=5m;"
            ))
    };
    let kp = with("first").start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 8)
        .clients(Kind::Close, 8)
        .start();
    load.wait_answers(200);
    kp.configure(&with("second"));
    kp.reload();
    load.wait_answers(200);
    kp.wait_drained(SOON * 2);
    let frozen = ["first.log", "first.buffered", "first.error"];
    for name in frozen {
        let holders = holders(&kp, &kp.path(name));
        assert!(holders.is_empty(), "{name} is held open by {holders:?}");
    }
    let sizes = frozen.map(|name| kp.text(name).len());
    load.wait_answers(100);
    let report = load.stop();
    report.assert_nothing_lost();
    assert_eq!(frozen.map(|name| kp.text(name).len()), sizes);
    // The last lines of a buffer are written at the latest when its worker ends.
    kp.reload();
    kp.wait_drained(SOON * 2);
    for kind in ["log", "buffered"] {
        let text = ["first", "second"].map(|name| kp.text(&format!("{name}.{kind}")));
        let lines = numbers(&text.concat());
        let different: BTreeSet<u64> = lines.iter().copied().collect();
        assert_eq!(
            lines.len(),
            different.len(),
            "{kind}: a line was written twice"
        );
        assert_eq!(
            lines.len() as u64,
            report.answered(),
            "{kind}: lines are missing"
        );
    }
}

/// Shows: user
#[test]
fn the_user_changes_under_load() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let origin = LoadOrigin::start();
    let with = |user: &str| {
        usual(&origin)
            .main(&format!("user {user};"))
            .location("proxy_request_buffering on;")
            .as_root_of_its_own()
    };
    let kp = with("nobody nogroup").start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 8)
        .clients(Kind::Upload, 6)
        .clients(Kind::Download, 4)
        .transfers(4 * 1024 * 1024, SECOND)
        .start();
    for (user, uid) in [
        ("daemon daemon", "1"),
        ("nobody nogroup", "65534"),
        ("root root", "0"),
    ] {
        load.wait_of(Kind::Upload, 8);
        kp.configure(&with(user));
        kp.reload();
        for worker in kp.worker_pids() {
            let now = process::status(worker, "Uid").expect("a status");
            assert_eq!(now.split_whitespace().next(), Some(uid), "{user}");
        }
    }
    load.wait_of(Kind::Upload, 8);
    load.stop().assert_nothing_lost();
}

/// What a reload must fail at, and a word of the reason.
fn failing_reloads(origin: &LoadOrigin, taken: &str) -> Vec<(Setup, &'static str)> {
    vec![
        (
            usual(origin).http("no_such_directive on;"),
            "no_such_directive",
        ),
        (usual(origin).server(&format!("listen {taken};")), "in use"),
        (
            usual(origin).http("access_log unreadable/x.log;"),
            "unreadable/x.log",
        ),
        (usual(origin).http("include missing.conf;"), "missing.conf"),
        // A file that root cannot read either.
        (usual(origin).http("include folder;"), "folder"),
        // These pass the check of the text; the new workers die of them.
        (
            usual(origin).main("working_directory %DIR%/not-there;"),
            "not-there",
        ),
        (usual(origin).main("worker_rlimit_nofile 4;"), "open files"),
    ]
}

#[test]
fn r01_failing_reloads_change_nothing_under_load() {
    let origin = LoadOrigin::start();
    let taken = Origin::ok();
    let kp = usual(&origin)
        .file("unreadable", "a file, not a directory")
        .file("folder/file", "")
        .allow("")
        .start();
    kp.wait_workers(2);
    let workers = kp.worker_pids();
    let descriptors = process::descriptors(kp.master_pid()).len();
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 8)
        .clients(Kind::Close, 4)
        .start();
    for (setup, reason) in failing_reloads(&origin, &taken.address()) {
        load.wait_answers(50);
        kp.configure(&setup);
        let said = kp.command(&["-s", "reload"]);
        assert_eq!(said.code, 1, "{reason}: {}", said.stderr);
        assert!(said.stderr.contains(reason), "{reason}: {}", said.stderr);
        // A check of the text alone does not reach the master.
        kp.signal(Signal::SIGHUP);
        load.wait_answers(50);
    }
    kp.wait_error("no_such_directive");
    wait::until(SOON, "the workers of before, and no other", || {
        kp.all_pids() == workers
    });
    load.wait_answers(50);
    load.stop().assert_nothing_lost();
    wait::until(SOON, "the descriptors of before", || {
        process::descriptors(kp.master_pid()).len() <= descriptors
    });
}

/// Whoever begins a head in the grace of a drain has the time for it that every client has.
#[test]
fn a_slow_head_outlives_the_grace() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("keepalive_min_timeout 300ms;")
        .start();
    let old = kp.worker_pid();
    let begin = |client: &mut Client| client.send("GET /slow HTTP/1.1\r\nHost: t\r\n");
    let mut fresh = kp.client();
    begin(&mut fresh);
    let mut kept = kp.client();
    assert_eq!(kept.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status(), 200);
    begin(&mut kept);
    let mut idle = kp.client();
    assert_eq!(idle.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status(), 200);
    kp.reload();
    assert_eq!(idle.end_within(SOON), End::Closed, "the grace is over");
    for client in [&mut fresh, &mut kept] {
        client.send("\r\n");
        let answer = client.response();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.field("connection"), Some("close"));
    }
    wait::until(SOON, "the old worker to leave", || !process::alive(old));
}

/// `kp -s quit` and TERM under load: whoever has connected before is answered, or was told nothing.
#[test]
fn quit_under_load_answers_whoever_has_asked() {
    let origin = LoadOrigin::start();
    let mut kp = usual(&origin).start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Close, 12)
        .clients(Kind::Post, 4)
        .pace(Duration::from_millis(1))
        .start();
    load.wait_answers(200);
    assert_eq!(kp.command(&["-s", "quit"]).code, 0);
    assert_eq!(kp.wait_exit(SOON), 0);
    refused_at_most(&load.stop());
}

fn named_with_zone(servers: &str) -> Setup {
    Setup::new(
        "%MAIN% http { upstream u { zone u 256k; %SERVERS% }
         server { listen %LISTEN%; location / { proxy_pass http://u; } } }",
    )
    .with("SERVERS", servers)
}

/// Shows: zone
#[test]
fn what_is_known_of_peers_survives_a_reload() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let broken = Origin::start(|conversation| {
        conversation.head()?;
        conversation.reset()
    });
    let servers = format!(
        "server {} weight=3; server {}; server {} max_fails=1 fail_timeout=60s;",
        one.address(),
        two.address(),
        broken.address()
    );
    let kp = named_with_zone(&servers).start();
    let ask = |kp: &Kp| kp.get("/").text();
    // Smooth weighted round robin gives a a b a; whoever met the broken one went on to the next.
    wait::until(SOON, "the broken peer to be tried", || {
        assert_ne!(ask(&kp), "");
        broken.connections() == 1
    });
    // In the middle of a turn: the next four are asked for half before and half after the reload.
    while ask(&kp) != "two" {}
    let mut answers = vec![ask(&kp), ask(&kp)];
    kp.reload();
    answers.extend([ask(&kp), ask(&kp)]);
    answers.sort();
    assert_eq!(answers, ["one", "one", "one", "two"]);
    for _ in 0..12 {
        ask(&kp);
    }
    assert_eq!(
        broken.connections(),
        1,
        "a reload forgot that a peer has failed"
    );
}

#[test]
fn requests_of_the_old_generation_hold_their_places() {
    let open = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&open);
    let origin = Origin::start(move |conversation| {
        conversation.answer_all(|request| {
            if request.target() == "/hold" {
                wait::happens(SOON, || opened.load(Ordering::SeqCst));
            }
            kp_tests::origin::OK.to_vec()
        })
    });
    let kp = named_with_zone(&format!(
        "server {} max_conns=2 max_fails=0;",
        origin.address()
    ))
    .start();
    let mut holding: Vec<Client> = (0..2).map(|_| kp.client()).collect();
    for client in &mut holding {
        client.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    origin.wait_requests(2);
    kp.reload();
    assert_eq!(kp.get("/").status(), 502, "the places are taken");
    open.store(true, Ordering::SeqCst);
    for client in &mut holding {
        assert_eq!(client.response().status(), 200);
    }
    wait::until(SOON, "the places to be given back", || {
        kp.get("/").status() == 200
    });
}
