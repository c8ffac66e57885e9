//! Time limits, other than those of T07, which `timing.rs` measures.

use std::time::{Duration, Instant};

use kp_tests::origin::{OK, response};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Origin, Setup, process};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);

/// Reads a request and never answers.
fn silent() -> Origin {
    Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    })
}

/// Shows: proxy_read_timeout
#[test]
fn a_silent_upstream_is_a_504() {
    let origin = silent();
    let kp = Setup::base(&origin)
        .location("proxy_read_timeout 400ms;")
        .start();
    let start = Instant::now();
    assert_eq!(kp.get("/").status(), 504);
    assert!(
        start.elapsed() >= Duration::from_millis(380) && start.elapsed() < SECOND * 10,
        "{:?}",
        start.elapsed()
    );
    kp.wait_error("upstream timed out");
    origin.wait_all_closed(SOON);
}

#[test]
fn a_body_that_stops_is_broken_off() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")?;
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .location("proxy_read_timeout 300ms;")
        .start();
    let answer = kp.get("/");
    assert_eq!((answer.text().as_str(), answer.whole), ("half", false));
    assert_ne!(answer.end, End::Deadline);
}

/// Shows: proxy_connect_timeout
#[test]
fn a_connection_that_does_not_come_is_a_504() {
    // A listening socket whose queue is full lets further connections wait.
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("an address");
    listener.bind(&any.into()).expect("binding");
    listener.listen(0).expect("listening");
    let address = listener
        .local_addr()
        .expect("an address")
        .as_socket()
        .expect("an IP address");
    let mut waiting = Vec::new();
    for _ in 0..8 {
        match std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            Ok(stream) => waiting.push(stream),
            Err(_) => break,
        }
    }
    let text = "http { server { listen %LISTEN%; location / { proxy_pass http://%FULL%; proxy_connect_timeout 400ms; } } }";
    let kp = Setup::new(text).with("FULL", address.to_string()).start();
    let start = Instant::now();
    assert_eq!(kp.get("/").status(), 504);
    assert!(
        start.elapsed() >= Duration::from_millis(380) && start.elapsed() < SECOND * 10,
        "{:?}",
        start.elapsed()
    );
}

/// Shows: proxy_send_timeout
#[test]
fn an_upstream_that_does_not_read_is_a_504() {
    let origin = Origin::start(|conversation| {
        conversation.head()?;
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .server("client_max_body_size 0;")
        .location("proxy_send_timeout 500ms; proxy_request_buffering off;")
        .start();
    let mut client = kp.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 60000000\r\n\r\n");
    let start = Instant::now();
    client.send_for(&vec![b'x'; 60_000_000], SECOND * 2);
    assert_eq!(client.response().status(), 504);
    assert!(start.elapsed() < SECOND * 20, "{:?}", start.elapsed());
}

/// Asks for a large answer and does not read it.
fn stalled_reader(kp: &Kp) -> Client {
    let mut client = Client::connect_narrow(&kp.address(), 4096);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    client
}

/// Shows: send_timeout, reset_timedout_connection
#[test]
fn a_client_that_does_not_read_is_dropped() {
    for reset in ["off", "on"] {
        let origin = Origin::replying(response(200, &vec![b'x'; 20_000_000]));
        let kp = Setup::base(&origin)
            .server(&format!(
                "send_timeout 500ms; reset_timedout_connection {reset};"
            ))
            .location("proxy_buffering off;")
            .start();
        let mut client = stalled_reader(&kp);
        origin.wait_requests(1);
        let line = kp.access_lines(1).remove(0);
        assert!(line.contains("GET / "), "{line}");
        let (bytes, end) = client.read_to_end(SOON);
        assert!(bytes.len() < 20_000_000, "the whole answer came");
        let expected = if reset == "on" {
            End::Reset
        } else {
            End::Closed
        };
        assert_eq!(end, expected, "reset_timedout_connection {reset}");
    }
}

fn kept() -> Setup {
    Setup::new("http { %HTTP% server { listen %LISTEN%; location / { return 200 ok; } } }")
}

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

/// Shows: keepalive_timeout
#[test]
fn idle_client_connections_end() {
    let kp = kept().http("keepalive_timeout 500ms 7s;").start();
    let mut client = kp.client();
    assert_eq!(client.ask(GET).field("keep-alive"), Some("timeout=7"));
    let start = Instant::now();
    assert!(client.closes_within(SOON));
    assert!(
        start.elapsed() >= Duration::from_millis(450),
        "{:?}",
        start.elapsed()
    );
    let kp = kept().http("keepalive_timeout 0;").start();
    let mut client = kp.client();
    assert_eq!(client.ask(GET).field("connection"), Some("close"));
    assert!(client.closes_within(SOON));
}

/// Shows: keepalive_requests, keepalive_time
#[test]
fn client_connections_have_an_end() {
    let kp = kept().http("keepalive_requests 3;").start();
    let mut client = kp.client();
    let said: Vec<bool> = (0..3)
        .map(|_| client.ask(GET).field("connection") == Some("close"))
        .collect();
    assert_eq!(said, [false, false, true]);
    assert!(client.closes_within(SOON));
    let kp = kept().http("keepalive_time 1s;").start();
    let mut client = kp.client();
    assert_ne!(client.ask(GET).field("connection"), Some("close"));
    wait::pause(Duration::from_millis(1100));
    assert_eq!(client.ask(GET).field("connection"), Some("close"));
}

/// Shows: keepalive_disable
#[test]
fn some_browsers_get_no_keep_alive() {
    let old = "User-Agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)\r\n";
    let post = format!("POST / HTTP/1.1\r\nHost: t\r\n{old}Content-Length: 0\r\n\r\n");
    let kp = kept().start();
    assert_eq!(kp.client().ask(&post).field("connection"), Some("close"));
    let kp = kept().http("keepalive_disable none;").start();
    assert_ne!(kp.client().ask(&post).field("connection"), Some("close"));
}

/// Shows: keepalive_min_timeout
#[test]
fn a_drain_gives_idle_clients_a_moment() {
    let kp = kept().http("keepalive_min_timeout 20s;").start();
    let mut client = kp.client();
    assert_eq!(client.ask(GET).status(), 200);
    kp.reload();
    let answer = client.ask(GET);
    assert_eq!(answer.status(), 200, "the old worker still answers");
    assert_eq!(
        answer.field("connection"),
        Some("close"),
        "and says that it is the last time"
    );
}

#[test]
fn a_request_whose_deadline_passes_does_not_stop_the_next() {
    let origin = silent();
    let kp = Setup::base(&origin)
        .location("proxy_read_timeout 300ms;")
        .server("location /fast { return 200 fast; }")
        .start();
    let mut client = kp.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\nGET /fast HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.response().status(), 504);
    assert_eq!(client.response().text(), "fast");
}

/// A worker that was held up looks at what arrived meanwhile before it looks at the clock.
#[test]
fn what_arrived_in_time_is_not_late() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.pause(Duration::from_millis(300));
        conversation.send(OK)?;
        conversation.note();
        conversation.read_to_end();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .location("proxy_read_timeout 600ms;")
        .start();
    let mut client = kp.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    origin.wait_requests(1);
    process::signal(kp.worker_pid(), Signal::SIGSTOP);
    wait::until(SOON, "the response", || !origin.noted().is_empty());
    wait::pause(Duration::from_millis(600));
    process::signal(kp.worker_pid(), Signal::SIGCONT);
    assert_eq!(client.response().status(), 200);
}
