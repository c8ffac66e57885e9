//! Behaviour where the time is the point (cases S03 and T07). These tests run alone: one after the other, and with
//! nothing beside them. Of what others on the machine do they know nothing: a test that has failed has two more tries, since
//! what kp does wrong it does each time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests panic to fail, read the clock, and keep each other out with a lock"
)]

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kp_tests::crowd::Crowd;
use kp_tests::dns::{self, Dns};
use kp_tests::origin::response;
use kp_tests::tls::{Authority, Connector, Kind};
use kp_tests::wait::SOON;
use kp_tests::{Client, Conversation, End, Kp, Origin, Port, Setup, process};

/// How much later than right something may be.
const TOLERANCE: Duration = Duration::from_millis(500);

/// Tries that a test has.
const TRIES: u32 = 3;

/// Runs a test of this file: apart from the others, where the runner does not see to it, and again when it has failed.
fn alone(test: impl Fn()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 1..TRIES {
        if panic::catch_unwind(AssertUnwindSafe(&test)).is_ok() {
            return;
        }
    }
    test();
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Sends a head, then four events half a second apart, noting when each was sent.
fn events(conversation: &mut Conversation, head: &str, chunked: bool) -> std::io::Result<()> {
    conversation.request()?;
    conversation.note();
    conversation.send(head)?;
    for n in 0..4 {
        conversation.pause(millis(500));
        let event = format!("data: {n}\n\n");
        conversation.note();
        if chunked {
            conversation.send(format!("{:x}\r\n{event}\r\n", event.len()))?;
        } else {
            conversation.send(event)?;
        }
    }
    if chunked {
        conversation.send("0\r\n\r\n")?;
    }
    Ok(())
}

/// Reads the head and the four events, and checks that each came in time and by itself.
fn events_flow(kp: &Kp, origin: &Origin, hidden: &str) {
    let mut client = kp.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let head = client
        .head(millis(2000))
        .expect("a head before the first event");
    let seen = Instant::now();
    assert_eq!(head.status(), 200);
    assert_eq!(head.field(hidden), None);
    assert!(
        seen - origin.noted()[0] <= millis(200),
        "the head was held back"
    );
    for n in 0..4 {
        let mut bytes = client.read_some(millis(2000));
        let seen = Instant::now();
        let event = format!("data: {n}\n\n");
        // A chunk's frame and its content may arrive in separate reads.
        while !String::from_utf8_lossy(&bytes).contains(&event) {
            let more = client.read_some(millis(100));
            assert!(
                !more.is_empty(),
                "event {n}: {:?}",
                String::from_utf8_lossy(&bytes)
            );
            bytes.extend(more);
        }
        let sent = origin.noted()[n + 1];
        assert!(
            seen - sent <= millis(100),
            "event {n} took {:?}",
            seen - sent
        );
    }
}

#[test]
fn s03_chunked_events_flow_without_settings() {
    alone(|| {
        let origin = Origin::start(|conversation| {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            events(conversation, head, true)
        });
        events_flow(&Kp::base(&origin), &origin, "x-nothing");
    });
}

#[test]
fn s03_a_body_without_length_flows_without_settings() {
    alone(|| {
        let origin = Origin::start(|conversation| {
            let head = "HTTP/1.1 200 OK\r\nX-Accel-Buffering: no\r\nConnection: close\r\n\r\n";
            events(conversation, head, false)
        });
        events_flow(&Kp::base(&origin), &origin, "x-accel-buffering");
    });
}

fn deadlines(origin: &Origin) -> Kp {
    Setup::base(origin)
        .http("client_header_timeout 2s; client_body_timeout 2s;")
        .with(
            "MAIN",
            "worker_rlimit_nofile 8192; events { worker_connections 4096; }",
        )
        .start()
}

/// Two seconds, and not much more.
fn in_time(took: Duration) {
    assert!(took >= millis(1950), "too early: {took:?}");
    assert!(took <= millis(2000) + TOLERANCE, "too late: {took:?}");
}

/// An end within the limit, whether silent or after a 408.
fn ends(client: &mut Client, since: Instant) -> Duration {
    match client.try_response("GET", millis(5000)) {
        Ok(answer) => {
            assert_eq!(answer.status(), 408);
            assert!(client.closes_within(millis(500)));
        }
        Err(end) => assert_ne!(end, End::Deadline, "the connection is still open"),
    }
    since.elapsed()
}

/// Shows: client_header_timeout
#[test]
fn t07_a_head_must_be_complete_in_time() {
    alone(|| {
        let origin = Origin::ok();
        let kp = deadlines(&origin);

        let start = Instant::now();
        let mut silent = kp.client();
        let mut half = kp.client();
        half.send("GET / HTTP/1.1\r\nHost: t\r\n");
        in_time(ends(&mut silent, start));
        in_time(ends(&mut half, start));

        let start = Instant::now();
        let mut drip = kp.client();
        let mut dripped = "GET / HTTP/1.1\r\n".bytes();
        let took = loop {
            drip.send([dripped
                .next()
                .expect("the deadline comes before the line ends")]);
            match drip.try_response("GET", millis(900)) {
                Err(End::Deadline) => assert!(
                    start.elapsed() < millis(5000),
                    "each byte put the deadline off"
                ),
                Ok(answer) => {
                    assert_eq!(answer.status(), 408);
                    break start.elapsed();
                }
                Err(_) => break start.elapsed(),
            }
        };
        in_time(took);
    });
}

/// Shows: client_body_timeout
#[test]
fn t07_a_body_must_go_on_in_time() {
    alone(|| {
        let origin = Origin::ok();
        let kp = deadlines(&origin);
        let mut client = kp.client();
        client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\na");
        let start = Instant::now();
        in_time(ends(&mut client, start));
        assert!(origin.requests().is_empty(), "half a request is none");
    });
}

#[test]
fn t07_two_thousand_silent_clients_stop_nobody() {
    alone(|| {
        let origin = Origin::ok();
        let kp = deadlines(&origin);
        let crowd: Vec<Client> = (0..2000)
            .map(|n| {
                let mut client = kp.client();
                if n % 2 == 0 {
                    client.send("GET / HTTP/1.1\r\nHo");
                }
                client
            })
            .collect();
        let start = Instant::now();
        assert_eq!(kp.get("/").status(), 200);
        assert!(
            start.elapsed() <= millis(200),
            "a request took {:?}",
            start.elapsed()
        );
        drop(crowd);
    });
}

/// A worker takes a few steps of handshakes in a turn of its loop, and the requests that are there in each: who keeps a
/// connection open has many answers before a crowd that came first has its ServerHellos. RSA makes the crowd's work long.
#[test]
fn a_thousand_handshakes_hold_no_request_up() {
    const CROWD: usize = 1000;
    const REQUESTS: usize = 20;
    alone(|| {
        let authority = Authority::default();
        let pair = authority.issue_as(Kind::Rsa, &["a.test"], |_| {});
        let secure = Port::take();
        let kp = Setup::new(
        "worker_processes 1; worker_rlimit_nofile 8192; events { worker_connections 4096; } http {
            server { listen %LISTEN%; listen %SECURE% ssl; ssl_certificate a.crt; ssl_certificate_key a.key; return 200; } }",
    )
    .with("SECURE", secure.address())
    .file("a.crt", pair.certificate)
    .file("a.key", pair.key)
    .start();
        let hello = Connector::new(&authority, "a.test").hello();
        let mut crowd: Vec<Client> = (0..CROWD)
            .map(|_| Client::connect(&secure.address()))
            .collect();
        let mut kept = kp.client();
        let request = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
        assert_eq!(kept.ask(request).status(), 200);
        for client in &mut crowd {
            client.send(&hello);
        }
        for _ in 0..REQUESTS {
            assert_eq!(kept.ask(request).status(), 200);
        }
        let greeted = crowd.iter().filter(|client| client.has_heard()).count();
        assert!(
            greeted < CROWD / 2,
            "{greeted} handshakes went before {REQUESTS} requests"
        );
        for client in &mut crowd {
            // A ServerHello: a record of a handshake (RFC 8446 §5.1).
            assert_eq!(client.read_exactly(1, SOON), [22]);
        }
    });
}

/// Writes a byte every 100 ms until writing fails, which says that the other side has stopped reading; `None` if it
/// still reads after `limit`.
fn read_for(client: &mut Client, limit: Duration) -> Option<Duration> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if client.send_for(b"x", limit) == 0 {
            return Some(start.elapsed());
        }
        kp_tests::wait::pause(millis(100));
    }
    None
}

/// A kp whose answer to this client is 413, with most of the body still to come.
fn refused_upload(settings: &str) -> (Kp, Client) {
    let text = "http { server { listen %LISTEN%; client_max_body_size 1k; %SERVER% location / { return 200; } } }";
    let kp = Setup::new(text).server(settings).start();
    let mut client = kp.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000000\r\n\r\n");
    assert_eq!(client.response().status(), 413);
    (kp, client)
}

/// Shows: lingering_time, lingering_timeout
#[test]
fn unread_bytes_are_read_for_a_while() {
    alone(|| {
        let (_kp, mut client) = refused_upload("lingering_time 30s; lingering_timeout 1s;");
        assert_eq!(
            read_for(&mut client, millis(2000)),
            None,
            "each byte came in time"
        );
        kp_tests::wait::pause(millis(1600));
        let took =
            read_for(&mut client, millis(2000)).expect("lingering_timeout is the longest pause");
        assert!(took <= TOLERANCE, "{took:?}");

        let (_kp, mut client) = refused_upload("lingering_time 1s; lingering_timeout 600ms;");
        let took = read_for(&mut client, millis(4000)).expect("lingering_time is the most");
        assert!(took >= millis(900) && took <= millis(2000), "{took:?}");
    });
}

/// Shows: lingering_close
#[test]
fn lingering_is_for_who_still_sends_unless_told_otherwise() {
    alone(|| {
        for (setting, reads) in [("off", false), ("always", true)] {
            let text = "http { server { listen %LISTEN%; %SERVER% return 200; } }";
            let kp = Setup::new(text)
                .server(&format!("lingering_close {setting};"))
                .start();
            let mut client = kp.client();
            let goodbye = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
            assert_eq!(client.ask(goodbye).status(), 200);
            assert!(client.closes_within(millis(1000)));
            let stopped = read_for(&mut client, millis(1000)).is_some();
            assert_eq!(stopped, !reads, "lingering_close {setting}");
        }
    });
}

/// How long the second piece of an answer takes after the first, in the middle of many.
fn gap_between_pieces(kp: &Kp) -> Duration {
    let mut client = kp.client();
    let mut gaps: Vec<Duration> = (0..20)
        .map(|_| {
            client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
            client.head(millis(2000)).expect("a head");
            assert_eq!(client.read_exactly(1, millis(2000)), b"a");
            let first = Instant::now();
            assert_eq!(client.read_exactly(1, millis(2000)), b"b");
            first.elapsed()
        })
        .collect();
    // A fresh connection acknowledges at once; later ones are in conversation.
    gaps.drain(..10);
    gaps.sort();
    gaps[5]
}

/// Nagle's algorithm (RFC 896) holds a small piece back until the one before it is acknowledged, which a client that is in
/// conversation does only after some 40 ms (RFC 1122 §4.2.3.2).
///
/// Shows: tcp_nodelay
#[test]
fn a_second_piece_waits_only_without_tcp_nodelay() {
    alone(|| {
        let origin = Origin::start(|conversation| {
            loop {
                conversation.request()?;
                conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na")?;
                conversation.pause(millis(5));
                conversation.send("b")?;
            }
        });
        let gap = gap_between_pieces(&Kp::base(&origin));
        assert!(gap < millis(25), "on: {gap:?}");
        let off = Setup::base(&origin).location("tcp_nodelay off;").start();
        let gap = gap_between_pieces(&off);
        assert!(gap >= millis(25), "off: {gap:?}");
    });
}

/// B05 a: a record that alternates twice a second, a thousand requests at concurrency 50 over ten seconds.
#[test]
fn b05_a_record_that_alternates_costs_no_request_and_few_queries() {
    alone(|| {
        let one = Origin::named("one");
        let reply = kp_tests::origin::response(200, b"two");
        let _two = Origin::beside(&one, "127.0.0.2", move |conversation| {
            conversation.answer_all(|_| reply.clone())
        });
        let dns = Dns::start();
        dns.set_a("app.test", &["127.0.0.1"]);
        let text = "worker_processes 2;
    http {
        resolver %DNS% valid=1s;
        upstream u { zone u 64k; server app.test:%PORT% resolve; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } }
    }";
        let kp = Setup::new(text)
            .with("DNS", dns.address())
            .with("PORT", one.port().to_string())
            .start();
        assert_eq!(kp.get("/").status(), 200);
        let start = Instant::now();
        let answers: Vec<(u16, String)> = std::thread::scope(|scope| {
            let ask = |client: u64| {
                let kp = &kp;
                move || -> Vec<(u16, String)> {
                    let mut connection = kp.client();
                    (0..20)
                        .map(|turn| {
                            let due = start + millis(10 * client + 500 * turn);
                            std::thread::sleep(due.saturating_duration_since(Instant::now()));
                            let answer = connection.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
                            (answer.status(), answer.text())
                        })
                        .collect()
                }
            };
            let clients: Vec<_> = (0..50).map(|client| scope.spawn(ask(client))).collect();
            for turn in 1..20 {
                let due = start + millis(500 * turn);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                // Now and then it skips a beat: queries come once a second and would see one address only.
                let address = ["127.0.0.1", "127.0.0.2"][(turn + turn / 7) as usize % 2];
                dns.set_a("app.test", &[address]);
            }
            clients
                .into_iter()
                .flat_map(|client| client.join().unwrap())
                .collect()
        });
        assert_eq!(answers.len(), 1000);
        let wrong: Vec<_> = answers.iter().filter(|answer| answer.0 != 200).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        for name in ["one", "two"] {
            let count = answers.iter().filter(|answer| answer.1 == name).count();
            assert!(count > 0, "{name}");
        }
        for kind in [dns::A, dns::AAAA] {
            let (count, densest) = (dns.count("app.test", kind), dns.densest("app.test", kind));
            assert!((7..=13).contains(&count), "{count}");
            assert!(densest <= 2, "{densest}");
        }
    });
}

/// What the kernel holds for all TCP sockets of the machine, bytes.
fn kernel_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/net/sockstat").expect("the table");
    let line = text.lines().find(|line| line.starts_with("TCP:"));
    let pages = line.and_then(|line| line.split_whitespace().last()?.parse::<u64>().ok());
    pages.expect("a number of pages") * 4096
}

/// A thousand that read slowly an answer of 10 MiB and a thousand that upload slowly, over two workers.
#[test]
fn two_thousand_slow_clients_stay_inside_the_budget() {
    const EACH: usize = 1000;
    const BUDGET: u64 = 512 << 20;
    alone(|| {
        let origin = Crowd::start(response(200, &vec![b'x'; 10 << 20]));
        let kp = Setup::new(
            "worker_processes 2; worker_rlimit_nofile 8192; events { worker_connections 8000; }
         http { client_max_body_size 0; server { listen %LISTEN%;
         location / { proxy_pass http://%UP%; } location = /small { return 200 small; } } }",
        )
        .with("UP", origin.address())
        .start();
        kp.wait_workers(2);
        let before = kernel_bytes();
        let mut clients: Vec<Client> = (0..EACH)
            .map(|_| {
                let mut client = Client::connect_narrow(&kp.address(), 4096);
                client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
                client
            })
            .collect();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}",
            10 << 20,
            "x".repeat(20_000)
        );
        clients.extend((0..EACH).map(|_| {
            let mut client = kp.client();
            client.send(&head);
            client
        }));
        let began = Instant::now();
        let mut most = 0;
        let piece = vec![b'x'; 4000];
        for round in 1..=15 {
            // 20 kB a second and client: on a fast machine, too, they are slow.
            kp_tests::wait::pause(
                (began + millis(200) * round).saturating_duration_since(Instant::now()),
            );
            for client in &mut clients[EACH..] {
                client.send_for(&piece, Duration::from_millis(1));
            }
            let workers = kp.worker_pids();
            assert_eq!(workers.len(), 2);
            let own: Vec<u64> = workers
                .iter()
                .map(|pid| process::pss_kib(*pid) << 10)
                .collect();
            let sum = own.iter().sum::<u64>() + kernel_bytes().saturating_sub(before);
            assert!(own.iter().all(|bytes| *bytes < BUDGET), "{own:?}");
            most = most.max(sum);
            let asked = Instant::now();
            let status = kp.command(&["status"]).stdout;
            assert_eq!(
                kp.get("/small").status(),
                200,
                "{} MiB, {status}",
                sum >> 20
            );
            assert!(asked.elapsed() < millis(1000), "{:?}", asked.elapsed());
        }
        assert!(most < 2 * BUDGET, "{} MiB with the kernel's", most >> 20);
    });
}

/// The share of `A` among requests made one after the other around this moment.
fn share_at(kp: &Kp, moment: Instant) -> f64 {
    const REQUESTS: u32 = 200;
    kp_tests::wait::pause(moment.saturating_duration_since(Instant::now()));
    let its = (0..REQUESTS).filter(|_| kp.get("/").text() == "A");
    its.count() as f64 / f64::from(REQUESTS)
}

/// Weights grow with the time since the first answer after the rest: one eleventh of the traffic after a second, a third
/// after five, half after ten.
///
/// Shows: server
#[test]
fn a_share_grows_for_ten_seconds() {
    alone(|| {
        let well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_well = well.clone();
        let (one, two) = (
            Origin::start(move |connection: &mut Conversation| {
                connection.request()?;
                if !is_well.load(std::sync::atomic::Ordering::Relaxed) {
                    return Ok(());
                }
                connection
                    .send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nA")
            }),
            Origin::named_once("B"),
        );
        let text = "http { upstream u { server %ONE% fail_timeout=1s slow_start=10s; server %TWO% slow_start=10s; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
        let kp = Setup::new(text)
            .with("ONE", one.address())
            .with("TWO", two.address())
            .start();
        for _ in 0..4 {
            assert_eq!(kp.get("/").text(), "B");
        }
        well.store(true, std::sync::atomic::Ordering::Relaxed);
        kp_tests::wait::until(SOON, "the peer is tried", || kp.get("/").text() == "A");
        let began = Instant::now();
        let early = share_at(&kp, began + millis(900));
        assert!((0.02..=0.15).contains(&early), "after 1 s: {early}");
        let half = share_at(&kp, began + millis(4900));
        assert!((0.25..=0.40).contains(&half), "after 5 s: {half}");
        let whole = share_at(&kp, began + millis(10_100));
        assert!((0.45..=0.55).contains(&whole), "after 10 s: {whole}");
    });
}

/// Four clients at once, so that the slow peer is tempting as long as the fast one is busy.
///
/// Shows: least_time
#[test]
fn ten_times_slower_means_at_most_fifteen_of_a_hundred() {
    alone(|| {
        let origin = |name: &'static str, time_ms| {
            Origin::start(move |connection: &mut Conversation| {
                connection.request()?;
                connection.pause(millis(time_ms));
                connection.send(format!(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n{name}"
                ))
            })
        };
        let (slow, fast) = (origin("A", 200), origin("B", 20));
        for method in ["header", "last_byte", "header inflight"] {
            let text = "http { upstream u { least_time %METHOD%; server %ONE%; server %TWO%; }
            server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
            let kp = Setup::new(text)
                .with("METHOD", method)
                .with("ONE", slow.address())
                .with("TWO", fast.address())
                .start();
            let its: usize = std::thread::scope(|scope| {
                let client = || (0..50).filter(|_| kp.get("/").text() == "A").count();
                let clients: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
                let counts = clients.into_iter().map(|client| client.join().unwrap());
                counts.sum()
            });
            assert!((1..=30).contains(&its), "{method}: {its} of 200");
        }
    });
}
