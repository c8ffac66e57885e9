//! Clients that are slow or never done: each has its limits, and none of them costs the others anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kp_tests::origin::{OK, response};
use kp_tests::peers::tcp_peers;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Origin, Setup};

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const SECOND: Duration = Duration::from_secs(1);

fn upload(kp: &Kp, length: usize, begun: usize) -> Client {
    let mut client = kp.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{}",
        "x".repeat(begun)
    ));
    client
}

/// Whoever sends a body slowly holds no connection to an upstream before its first `client_body_buffer_size` bytes.
/// Shows: client_body_buffer_size
#[test]
fn a_slow_upload_holds_no_upstream() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server("client_max_body_size 0; client_body_buffer_size 16k;")
        .start();
    let mut slow: Vec<Client> = (0..50).map(|_| upload(&kp, 1_000_000, 10_000)).collect();
    let mut chunked: Vec<Client> = (0..50)
        .map(|_| {
            let mut client = kp.client();
            client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
            client
        })
        .collect();
    assert_eq!(kp.get("/").status(), 200);
    assert_eq!(origin.connections(), 1, "only the other request's");
    // Each goes on as soon as enough is there, and comes out whole.
    slow[0].send("x".repeat(990_000));
    assert_eq!(slow[0].response().status(), 200);
    assert_eq!(origin.last().body.len(), 1_000_000);
    chunked[0].send("3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(chunked[0].response().status(), 200);
    assert_eq!(origin.last().body, b"abc");
    assert!(origin.connections() <= 3, "{}", origin.connections());
}

#[test]
fn the_beginning_of_a_body_is_asked_for() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    for framing in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let mut client = kp.client();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n{framing}\r\n\r\n"
        ));
        let interim = client.head(SOON).expect("an interim response");
        assert!(interim.line.contains(" 100 "), "{}", interim.line);
        assert_eq!(origin.open_connections(), 0, "nothing came yet");
    }
}

/// Shows: client_body_timeout
#[test]
fn a_body_whose_beginning_does_not_come_is_a_408() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server("client_body_timeout 400ms;")
        .start();
    let mut client = upload(&kp, 100_000, 1);
    let began = Instant::now();
    assert_eq!(client.response().status(), 408);
    assert!(began.elapsed() >= Duration::from_millis(380));
    assert_eq!(origin.connections(), 0);
    let mut client = upload(&kp, 100_000, 1);
    client.half_close();
    assert!(client.closes_within(SOON));
    assert!(kp.access_lines(2)[1].contains("\" 400 "));
}

/// Shows: client_min_rate
#[test]
fn a_body_that_comes_too_slowly_is_a_408() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .location("client_min_rate 10k window=300ms;")
        .start();
    let mut client = upload(&kp, 1_000_000, 20_000);
    let began = Instant::now();
    let answer = loop {
        client.send("x");
        match client.try_response("POST", Duration::from_millis(50)) {
            Ok(answer) => break answer,
            Err(_) => assert!(began.elapsed() < SOON, "it may go on like this"),
        }
    };
    assert_eq!(answer.status(), 408);
    assert!(
        began.elapsed() >= Duration::from_millis(550),
        "twice the window"
    );
    kp.wait_error("client sends slower than client_min_rate");
}

#[test]
fn a_body_that_comes_fast_enough_is_let_through() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .location("client_min_rate 1k window=500ms;")
        .start();
    let mut client = upload(&kp, 40_000, 0);
    for _ in 0..20 {
        client.send("x".repeat(2000));
        wait::pause(Duration::from_millis(80));
    }
    assert_eq!(client.response().status(), 200);
}

/// Nobody is judged for the time in which the upstream is awaited.
#[test]
fn a_slow_upstream_is_not_the_client_s_fault() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.pause(Duration::from_millis(1500));
        conversation.send(OK)
    });
    let kp = Setup::base(&origin)
        .location("client_min_rate 100k window=200ms; send_min_rate 100k window=200ms;")
        .start();
    assert_eq!(upload(&kp, 20_000, 20_000).response().status(), 200);
}

/// Shows: send_min_rate
#[test]
fn an_answer_that_is_taken_too_slowly_is_broken_off() {
    let origin = Origin::replying(response(200, &vec![b'x'; 5_000_000]));
    let kp = Setup::base(&origin)
        .location("send_min_rate 200k window=1s;")
        .start();
    let mut client = Client::connect_narrow(&kp.address(), 4096);
    client.send(GET);
    let began = Instant::now();
    loop {
        let read = client.read_some(Duration::from_millis(20));
        if read.is_empty() && client.closes_within(Duration::from_millis(1)) {
            break;
        }
        assert!(began.elapsed() < SOON, "it may go on like this");
        if kp.error_log().contains("client reads slower") {
            break;
        }
        wait::pause(Duration::from_millis(200));
    }
    kp.wait_error("client reads slower than send_min_rate");
    let mut fast = kp.client();
    fast.send(GET);
    assert_eq!(fast.response().body.len(), 5_000_000);
}

/// The time of a head counts from the start, whatever dribbles in; the next requests of others are not held up.
/// Shows: client_header_timeout
#[test]
fn many_slow_heads_hold_nobody_up() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .main("events { worker_connections 4096; }")
        .http("client_header_timeout 2s;")
        .start();
    let mut slow: Vec<Client> = (0..500)
        .map(|number| {
            let mut client = kp.client();
            if number % 2 == 0 {
                client.send("GET / HT");
            }
            client
        })
        .collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        for client in slow.iter_mut().step_by(2) {
            client.send("T");
        }
        let asked = Instant::now();
        assert_eq!(kp.get("/").status(), 200);
        assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
        wait::pause(Duration::from_millis(300));
    }
    for client in &mut slow {
        let (_, end) = client.read_to_end(SOON);
        assert_ne!(end, End::Deadline, "it is still open");
    }
}

/// What is sent ahead stays in the kernel: requests are taken one after the other, and only while answers go out.
#[test]
fn a_client_that_pipelines_without_reading_is_not_read_on() {
    let origin = Origin::replying(response(200, &vec![b'x'; 200_000]));
    let kp = Setup::base(&origin)
        .http("keepalive_requests 1000000;")
        .start();
    let before = kp_tests::process::pss_kib(kp.worker_pid());
    let mut client = Client::connect_narrow(&kp.address(), 4096);
    client.send_for(&GET.repeat(400_000).into_bytes(), SECOND);
    let asked = origin.requests().len();
    assert!(
        asked < 20,
        "{asked} requests for a client that reads nothing"
    );
    let grown = kp_tests::process::pss_kib(kp.worker_pid()).saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB");
}

/// Shows: lingering_time, lingering_timeout
#[test]
fn a_client_that_never_stops_sending_is_closed() {
    let kp = Setup::new(
        "http { client_max_body_size 1k; lingering_time 1s; lingering_timeout 5s; server { listen %LISTEN%; return 200 ok; } }",
    )
    .start();
    let mut client = kp.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 900000000\r\n\r\n");
    let began = Instant::now();
    let piece = vec![b'x'; 64 * 1024];
    let closed = wait::happens(SOON, || {
        client.send_for(&piece, Duration::from_millis(50));
        tcp_peers(kp.worker_pid()).is_empty()
    });
    assert!(
        closed && began.elapsed() < SECOND * 20,
        "{:?}",
        began.elapsed()
    );
}

/// The answer is taken from its upstream, which is free for others, while the client takes its time.
#[test]
fn a_slow_reader_holds_no_upstream() {
    let big = Arc::new(response(200, &vec![b'x'; 300_000]));
    let origin = Origin::start(move |conversation| conversation.answer_all(|_| big.to_vec()));
    let kp = Setup::base(&origin)
        .main("events { worker_connections 4096; }")
        .start();
    let mut slow: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = Client::connect_narrow(&kp.address(), 1024);
            client.send(GET);
            client
        })
        .collect();
    wait::until(SOON, "all answers to be taken", || {
        origin.requests().len() == 200
    });
    wait::until(SOON, "upstreams to be free", || {
        tcp_peers(kp.worker_pid())
            .iter()
            .filter(|peer| peer.ends_with(&format!(":{}", origin.port())))
            .count()
            <= 10
    });
    assert_eq!(kp.get("/").body.len(), 300_000);
    for client in slow.iter_mut().take(5) {
        assert_eq!(client.response().body.len(), 300_000, "nothing is lost");
    }
}
