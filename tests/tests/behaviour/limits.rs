//! What happens when something runs out: descriptors, sizes, patience.

use std::time::{Duration, Instant};

use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Origin, Setup, process};

const SECOND: Duration = Duration::from_secs(1);
const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

#[test]
fn without_descriptors_the_loop_does_not_spin() {
    let kp =
        Setup::new("worker_rlimit_nofile 40; http { server { listen %LISTEN%; return 200 ok; } }")
            .start();
    let held: Vec<Client> = (0..60)
        .map(|_| {
            let mut client = kp.client();
            client.send("GET / HTTP/1.1\r\nHo");
            client
        })
        .collect();
    wait::pause(Duration::from_millis(200));
    let before = process::cpu_ticks(kp.worker_pid());
    wait::pause(SECOND);
    let used = process::cpu_ticks(kp.worker_pid()) - before;
    assert!(used <= 20, "{used} ticks of 10 ms in a second of waiting");
    drop(held);
    wait::until(SOON, "an answer", || {
        let mut client = kp.client();
        client.send(GET);
        client
            .try_response("GET", SECOND)
            .is_ok_and(|answer| answer.status() == 200)
    });
}

#[test]
fn a_chunked_body_has_a_largest_size_whoever_answers() {
    let text = "http { client_max_body_size 1k; server { listen %LISTEN%; location /no { return 204; } } }";
    let kp = Setup::new(text).start();
    let mut client = kp.client();
    client.send("POST /no HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    for _ in 0..90 {
        client.send_for(&chunk, SECOND);
    }
    // The answer is there long before the body ends, and the connection ends with it.
    let answer = client.try_response("POST", SOON).expect("an answer");
    assert!([204, 413].contains(&answer.status()), "{:?}", answer.head);
    assert!(
        client.closes_within(SECOND * 3),
        "six megabytes were swallowed and more would be"
    );
}

#[test]
fn a_body_one_byte_too_long_is_a_413() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server("client_max_body_size 10;")
        .start();
    for (length, status) in [(10, 200), (11, 413)] {
        let body = "x".repeat(length);
        let plain = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}");
        assert_eq!(
            kp.client().ask(plain).status(),
            status,
            "{length} bytes by length"
        );
        let chunked = format!(
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
        );
        assert_eq!(
            kp.client().ask(chunked).status(),
            status,
            "{length} bytes in a chunk"
        );
    }
    assert!(
        origin
            .requests()
            .iter()
            .all(|request| request.body.len() == 10)
    );
}

#[test]
fn a_client_that_pipelines_does_not_starve_the_others() {
    let kp = Setup::new(
        "http { server { listen %LISTEN%; keepalive_requests 1000000; return 200 ok; } }",
    )
    .start();
    let mut greedy = kp.client();
    let many = GET.repeat(20_000);
    let address = kp.address();
    let flood = std::thread::spawn(move || {
        greedy.send_for(many.as_bytes(), SECOND * 5);
        greedy
    });
    for _ in 0..20 {
        let start = Instant::now();
        assert_eq!(kp_tests::client::get(&address, "/").status(), 200);
        assert!(start.elapsed() <= SECOND * 3, "{:?}", start.elapsed());
    }
    drop(flood.join().expect("the flood"));
}

#[test]
fn silence_after_connecting_costs_no_answer() {
    let kp = Setup::new(
        "http { client_header_timeout 300ms; server { listen %LISTEN%; return 200 ok; } }",
    )
    .start();
    let mut silent = kp.client();
    let (bytes, end) = silent.read_to_end(SOON);
    assert_eq!(
        (bytes.len(), end),
        (0, End::Closed),
        "browsers connect ahead of need"
    );
}

#[test]
fn a_request_in_the_worst_pieces_is_served_in_linear_time() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("large_client_header_buffers 8 64k;")
        .start();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: t\r\n{}\r\n",
        "X-A: 0123456789012345678901234567890123456789\r\n".repeat(900)
    );
    let mut client = kp.client();
    client.send_as(kp_tests::Writing::Bytes, &head);
    assert_eq!(client.response().status(), 200);
    let used = process::cpu_ticks(kp.worker_pid());
    assert!(
        used <= 150,
        "{used} ticks of 10 ms for {} bytes, one at a time",
        head.len()
    );
}
