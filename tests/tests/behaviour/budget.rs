//! What a worker may use: memory, connections, descriptors. When one of them is used up, others than the idle are not
//! harmed, and new requests are told so.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::tls_site::{ask, one};
use kp_tests::origin::response;
use kp_tests::tls::Connector;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kp, Origin, Setup, process};

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const SECOND: Duration = Duration::from_secs(1);

fn narrow(kp: &Kp, target: &str) -> Client {
    let mut client = Client::connect_narrow(&kp.address(), 4096);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
    client
}

/// A worker some of whose system calls fail.
struct Failing(Child);

impl Failing {
    /// `which`: what strace's `-e` and `-P` take.
    fn start(kp: &Kp, which: &[&str]) -> Self {
        let worker = kp.worker_pid();
        let child = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-p", &worker.to_string()])
            .args(which)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace");
        wait::until(SOON, "strace to be attached", || {
            process::status(worker, "TracerPid").is_some_and(|pid| pid != "0")
        });
        Self(child)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks until the answer is 200: how often it was 503 with Retry-After before.
fn refusals(kp: &Kp, target: &str) -> usize {
    for count in 0..20 {
        let answer = kp.get(target);
        if answer.status() == 200 {
            return count;
        }
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.field("retry-after"), Some("1"));
    }
    panic!("it stays so");
}

/// Shows: worker_memory
#[test]
fn without_memory_new_requests_are_refused_and_running_ones_finish() {
    let big = Arc::new(response(200, &vec![b'x'; 2_000_000]));
    let origin = Origin::start(move |conversation| conversation.answer_all(|_| big.to_vec()));
    let kp = Setup::base(&origin)
        .main("worker_memory 16m; events { worker_connections 4096; }")
        .server("location = /small { return 200 small; }")
        .start();
    assert_eq!(kp.get("/small").status(), 200);
    let mut slow: Vec<Client> = Vec::new();
    let refused = wait::until_some(SOON, "a refusal", || {
        slow.extend((0..10).map(|_| narrow(&kp, "/")));
        let answer = kp.get("/small");
        (answer.status() != 200).then_some(answer)
    });
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert!(slow.len() < 400, "{} readers are in 16m", slow.len());
    kp.wait_error("worker_memory is not enough");
    assert_eq!(slow[0].response().body.len(), 2_000_000, "it finishes");
    drop(slow);
    wait::until(SOON, "room for requests", || {
        kp.get("/small").status() == 200
    });
}

/// What `kp status` says of a worker that serves.
fn memory_shown_mib(kp: &Kp) -> Option<u64> {
    let shown = kp.command(&["status"]).stdout;
    shown.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mib = words
            .get(2)
            .filter(|word| **word == "serving")
            .and(words.get(4))?;
        mib.strip_suffix('M')?.parse::<u64>().ok()
    })
}

/// Memory that a burst took goes back to the system.
#[test]
fn memory_goes_back_after_a_burst() {
    let big = Arc::new(response(200, &vec![b'x'; 800_000]));
    let origin = Origin::start(move |conversation| conversation.answer_all(|_| big.to_vec()));
    let kp = Setup::base(&origin)
        .main("events { worker_connections 4096; }")
        .start();
    let worker = kp.worker_pid();
    let before = process::rss_kib(worker);
    let slow: Vec<Client> = (0..100).map(|_| narrow(&kp, "/")).collect();
    wait::until(SOON, "answers to be held", || {
        process::rss_kib(worker) > before + 60 * 1024
    });
    // The worker says now and then how much it has.
    wait::until(SOON, "kp status to tell of it", || {
        memory_shown_mib(&kp).is_some_and(|mib| mib > 50)
    });
    drop(slow);
    wait::until(SOON, "memory to go back", || {
        process::rss_kib(worker) < before + 12 * 1024
    });
}

/// The one that has been idle longest makes room first.
/// Shows: worker_connections
#[test]
fn idle_connections_make_room_the_oldest_first() {
    let kp = Setup::new(
        "events { worker_connections 300; } http { server { listen %LISTEN%; return 200 ok; } }",
    )
    .start();
    let mut kept: Vec<Client> = (0..300)
        .map(|_| {
            let mut client = kp.client();
            assert_eq!(client.ask(GET).status(), 200);
            client
        })
        .collect();
    // The first one is idle for a shorter time than the others from now on.
    assert_eq!(kept[0].ask(GET).status(), 200);
    let mut new: Vec<Client> = (0..20).map(|_| kp.client()).collect();
    for client in &mut new {
        assert_eq!(client.ask(GET).status(), 200);
    }
    for client in &mut kept[1..21] {
        assert!(client.closes_within(SOON), "an older one is still there");
    }
    assert_eq!(kept[0].ask(GET).status(), 200);
    for client in &mut kept[21..] {
        assert_eq!(client.ask(GET).status(), 200);
    }
    kp.wait_error("300 worker_connections are not enough, reusing connections");
}

#[test]
fn heads_that_do_not_come_make_room_then() {
    let kp = Setup::new(
        "events { worker_connections 100; } http { server { listen %LISTEN%; return 200 ok; } }",
    )
    .start();
    let mut busy = kp.client();
    assert_eq!(busy.ask(GET).status(), 200);
    let mut slow: Vec<Client> = (0..99)
        .map(|number| {
            let mut client = kp.client();
            client.send(["GET / HT", ""][usize::from(number % 2 == 1)]);
            client
        })
        .collect();
    wait::pause(Duration::from_millis(600));
    slow.extend((0..10).map(|_| {
        let mut client = kp.client();
        client.send("GET / HT");
        client
    }));
    assert_eq!(kp.get("/").status(), 200);
    assert!(busy.closes_within(SOON), "an idle one goes first");
    assert!(
        slow[0].closes_within(SOON),
        "then the oldest without a head"
    );
    slow[98].send("TP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(slow[98].response().status(), 200, "the youngest stay");
}

/// Who waits for an answer is not cut for a newcomer, who is told to come back.
#[test]
fn where_everybody_is_busy_a_newcomer_is_told_so() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .main("events { worker_connections 20; }")
        .start();
    let busy: Vec<Client> = (0..10)
        .map(|_| {
            let mut client = kp.client();
            client.send(GET);
            client
        })
        .collect();
    origin.wait_requests(10);
    let answer = kp.get("/");
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.field("retry-after"), Some("1"));
    assert_eq!(origin.open_connections(), busy.len());
}

/// The kernel says that it is out of something: nobody spins, and service goes on as soon as it is there again.
#[test]
fn accept_that_fails_is_tried_again() {
    for error in ["ENFILE", "ENOBUFS", "ENOMEM"] {
        let inject = format!("inject=accept4:error={error}:when=1..20");
        let strace = [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=accept4",
            "-e",
            &inject,
        ];
        let kp = Setup::new("http { server { listen %LISTEN%; return 200 ok; } }")
            .below(&strace)
            .allow("control socket")
            .start();
        let worker = kp.worker_pid();
        let before = process::cpu_ticks(worker);
        let began = Instant::now();
        wait::until(SOON * 2, "service", || {
            let mut client = kp.client();
            client.send(GET);
            client
                .try_response("GET", SECOND)
                .is_ok_and(|answer| answer.status() == 200)
        });
        assert!(
            began.elapsed() > Duration::from_millis(500),
            "{error} did not happen"
        );
        let used = process::cpu_ticks(worker) - before;
        assert!(used <= 50, "{error}: {used} ticks of 10 ms");
        kp.wait_error("accept4() failed");
    }
}

/// No descriptor is left for a connection to the upstream: that is not the upstream's fault.
#[test]
fn without_descriptors_no_peer_is_blamed() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let own = process::descriptors(Setup::base(&origin).start().worker_pid()).len();
    let kp = Setup::base(&origin)
        .main(&format!("worker_rlimit_nofile {};", own + 36))
        .start();
    // Two thirds of what is left are clients that wait for an answer; half of them get none for an upstream.
    let mut clients: Vec<Client> = (0..24).map(|_| kp.client()).collect();
    for client in &mut clients {
        client.send(GET);
    }
    let mut held = Vec::new();
    let mut refused = 0;
    for mut client in clients {
        match client.try_response("GET", Duration::from_millis(200)) {
            Ok(answer) => {
                assert_eq!(answer.status(), 503);
                assert_eq!(answer.field("retry-after"), Some("1"));
                refused += 1;
            }
            Err(_) => held.push(client),
        }
    }
    assert!(refused > 0 && !held.is_empty(), "{refused} were refused");
    let log = kp.error_log();
    assert!(!log.contains("temporarily disabled"), "{log}");
    assert!(log.contains("Too many open files"), "{log}");
    let asked = origin.requests().len();
    drop(held);
    wait::until(SOON, "the next request to reach the upstream", || {
        kp.client().send(GET);
        origin.requests().len() > asked
    });
}

/// The same where the kernel says so, of descriptors and of memory, for the socket and for the connect.
#[test]
fn what_the_kernel_has_run_out_of_is_no_peer_s_fault() {
    let origins = [Origin::ok(), Origin::ok()];
    let cases = [
        ("socket", "ENFILE", "Too many open files in system"),
        ("socket", "EMFILE", "Too many open files"),
        ("socket", "ENOBUFS", "No buffer space available"),
        ("connect", "ENOBUFS", "No buffer space available"),
        ("connect", "ENOMEM", "Cannot allocate memory"),
    ];
    for (call, error, text) in cases {
        let kp = Setup::new(
            "http { upstream u { server %A%; server %B%; keepalive 0; }
             server { listen %LISTEN%; location / { proxy_pass http://u; } } }",
        )
        .with("A", origins[0].address())
        .with("B", origins[1].address())
        .start();
        let inject = format!("inject={call}:error={error}:when=1..4");
        let failing = Failing::start(&kp, &["-e", &format!("trace={call}"), "-e", &inject]);
        let refused = refusals(&kp, "/");
        assert_eq!(refused, 4, "{call}: {error}");
        drop(failing);
        let log = kp.error_log();
        assert!(log.contains(text), "{log}");
        assert!(!log.contains("temporarily disabled"), "{log}");
        let counts = origins.each_ref().map(|origin| {
            let before = origin.requests().len();
            assert_eq!((kp.get("/").status(), kp.get("/").status()), (200, 200));
            wait::until_some(SOON, "a request", || {
                let count = origin.requests().len() - before;
                (count > 0).then_some(count)
            })
        });
        assert_eq!(counts, [1, 1], "both are asked: {call}: {error}");
    }
}

/// A file that cannot be opened for want of descriptors is not an error of the server's configuration.
#[test]
fn a_file_without_a_descriptor_is_a_refusal() {
    for (error, text) in [
        ("EMFILE", "Too many open files"),
        ("ENFILE", "Too many open files in system"),
    ] {
        let kp = Setup::new("http { server { listen %LISTEN%; root %DIR%/www; } }")
            .file("www/a.html", "<p>a</p>")
            .start();
        assert_eq!(kp.get("/a.html").status(), 200);
        let path = kp.path("www/a.html");
        let inject = format!("inject=openat:error={error}:when=1..3");
        let path = path.to_str().expect("a path");
        let failing = Failing::start(&kp, &["-P", path, "-e", "trace=openat", "-e", &inject]);
        // Each of two threads fails three times; a request asks both.
        assert_eq!(refusals(&kp, "/a.html"), 3);
        drop(failing);
        assert!(kp.error_log().contains(text), "{}", kp.error_log());
        assert_eq!(kp.get("/none").status(), 404);
    }
}

/// So it is with the file of a request body.
#[test]
fn a_body_without_a_file_is_a_refusal() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .location("client_body_in_file_only clean;")
        .start();
    let post = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(kp.client().ask(post).status(), 200);
    let inject = "inject=openat:error=EMFILE:when=1";
    let _failing = Failing::start(&kp, &["-e", "trace=openat", "-e", inject]);
    let answers: Vec<_> = (0..3).map(|_| kp.client().ask(post)).collect();
    // One for each thread that opens files.
    let refused = answers.iter().filter(|answer| answer.status() == 503);
    assert_eq!(refused.clone().count(), 2);
    assert!(
        refused
            .clone()
            .all(|answer| answer.field("retry-after") == Some("1"))
    );
    assert_eq!(answers[2].status(), 200);
}

/// Beginnings of heads fill the memory: those that have waited longest for the rest go, and requests are served.
/// Shows: worker_memory
#[test]
fn heads_that_do_not_come_give_their_memory_back() {
    let kp = Setup::new(
        "worker_memory 16m; events { worker_connections 4096; }
         http { server { listen %LISTEN%; return 200 ok; } }",
    )
    .start();
    let field = format!("X: {}\r\n", "x".repeat(7_000));
    let begun = format!("GET / HTTP/1.1\r\nHost: t\r\n{}", field.repeat(4));
    let mut slow: Vec<Client> = (0..1000)
        .map(|_| {
            let mut client = kp.client();
            client.send(&begun);
            client
        })
        .collect();
    wait::until(SOON, "a request to be served", || {
        kp.get("/").status() == 200
    });
    assert!(slow[0].closes_within(SOON), "the oldest has gone");
    kp.wait_error("worker_memory is not enough, reusing connections");
    let rss = process::rss_kib(kp.worker_pid());
    assert!(rss < 40 * 1024, "{rss} KiB");
}

/// What came of a ClientHello is memory, too. A thousand of 60,000 bytes would be a hundred MiB.
#[test]
fn hellos_that_do_not_come_give_their_memory_back() {
    let (setup, authority) = one("ok");
    let kp = setup
        .with(
            "MAIN",
            "worker_memory 16m; events { worker_connections 4096; }",
        )
        .start();
    let connector = Connector::new(&authority, "a.test");
    assert_eq!(ask(&kp, &connector, "a.test").status(), 200);
    let before = process::rss_kib(kp.worker_pid());
    // Records of 16,384 bytes of handshake; the message they begin has 65,000.
    let mut begun = Vec::new();
    for number in 0..3 {
        let mut piece = vec![0_u8; 16_384];
        if number == 0 {
            piece[..6].copy_from_slice(&[1, 0, 0xfd, 0xe8, 3, 3]);
        }
        begun.extend_from_slice(&[0x16, 3, 1, 0x40, 0]);
        begun.extend_from_slice(&piece);
    }
    let mut slow: Vec<Client> = (0..600)
        .map(|_| {
            let mut client = kp.client();
            client.send_for(&begun, SECOND);
            client
        })
        .collect();
    wait::until(SOON, "a request to be served", || {
        ask(&kp, &connector, "a.test").status() == 200
    });
    assert!(slow[0].closes_within(SOON), "the oldest has gone");
    let grown = process::rss_kib(kp.worker_pid()).saturating_sub(before);
    assert!(grown < 30 * 1024, "{grown} KiB more");
}
