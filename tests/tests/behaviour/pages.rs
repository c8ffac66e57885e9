//! The pages about kp itself that a program reads: `stub_status`, `health`.

use std::time::Duration;

use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Origin, Port, Response, Setup};
use nix::sys::signal::Signal;

const PAGES: &str = "%MAIN%
http {
    %HTTP%
    upstream app { %PEERS% }
    server {
        listen %LISTEN%;
        %SERVER%
        location / { return 204; }
        location = /stub { stub_status; %LOCATION% }
        location = /health { health; }
        location = /health/app { health upstream=app; }
        location /app { proxy_pass http://app; }
    }
}
";

fn pages(peers: &str) -> Setup {
    Setup::new(PAGES).with("PEERS", peers)
}

/// A server line that nobody listens at.
fn nobody() -> String {
    format!("server {};", Port::take().address())
}

/// The numbers of the page: active, accepts, handled, requests, reading, writing, waiting.
fn numbers(page: &Response) -> [u64; 7] {
    let text = page.text();
    let mut numbers = text
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok());
    let numbers = std::array::from_fn(|_| numbers.next().expect("seven numbers"));
    let [
        active,
        accepts,
        handled,
        requests,
        reading,
        writing,
        waiting,
    ] = numbers;
    assert_eq!(
        text,
        format!(
            "Active connections: {active} \nserver accepts handled requests\n {accepts} {handled} {requests} \n\
             Reading: {reading} Writing: {writing} Waiting: {waiting} \n"
        )
    );
    numbers
}

/// Shows: stub_status
#[test]
fn stub_status_tells_what_connections_do() {
    let kp = pages(&nobody()).start();
    assert_eq!(numbers(&kp.get("/stub")), [1, 1, 1, 1, 0, 1, 0]);
    let mut idle = kp.client();
    assert_eq!(idle.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status(), 204);
    let _silent = kp.client();
    let mut half = kp.client();
    half.send("GET / HTTP/1.1\r\nHo");
    wait::until(SOON, "a connection of each kind", || {
        let [active, accepts, handled, _, reading, writing, waiting] = numbers(&kp.get("/stub"));
        accepts == handled && [active, reading, writing, waiting] == [4, 1, 1, 2]
    });
    half.send("st: t\r\n\r\n");
    assert_eq!(half.response().status(), 204);
    assert_eq!(numbers(&kp.get("/stub"))[4..], [0, 1, 3]);
    drop((idle, half));
    wait::until(SOON, "the end of two", || {
        numbers(&kp.get("/stub"))[4..] == [0, 1, 1]
    });
}

#[test]
fn who_lingers_is_written_to() {
    let kp = pages(&nobody()).server("lingering_close always;").start();
    let mut slow = kp.client();
    let answer = slow.ask("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.status(), 204);
    let page = kp.get("/stub");
    assert_eq!(numbers(&page)[4..], [0, 2, 0]);
}

#[test]
fn stub_status_sums_over_workers() {
    let kp = pages(&nobody()).main("worker_processes 4;").start();
    kp.wait_workers(4);
    let clients: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = kp.client();
            client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    let [active, accepts, handled, requests, ..] = numbers(&kp.get("/stub"));
    assert_eq!([active, accepts, handled, requests], [41; 4]);
    drop(clients);
}

#[test]
fn pages_are_fetched_and_nothing_else() {
    let kp = pages(&nobody()).location("deny 127.0.0.2;").start();
    let mut client = kp.client();
    let page = client.ask("GET /stub HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(page.status(), 200);
    assert_eq!(page.field("content-type"), Some("text/plain"));
    assert_eq!(page.field("cache-control"), Some("no-store"));
    client.send("HEAD /stub HTTP/1.1\r\nHost: t\r\n\r\n");
    let head = client.response_to("HEAD");
    let length: usize = head.field("content-length").unwrap().parse().unwrap();
    assert!((90..110).contains(&length), "{length}");
    for path in ["/stub", "/health"] {
        let refused = client.ask(format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi"
        ));
        assert_eq!(refused.status(), 405);
        assert_eq!(refused.field("allow"), Some("GET, HEAD"));
    }
    let with_body = client.ask("GET /stub HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(with_body.status(), 200, "the body is thrown away");
    let broken =
        client.ask("GET /stub HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    assert_eq!(broken.status(), 400);
}

#[test]
fn variables_of_connections() {
    let kp = pages(&nobody())
        .server("add_header X-Now \"$connections_active $connections_reading $connections_writing $connections_waiting\";")
        .start();
    let _silent = kp.client();
    wait::until(SOON, "the second connection", || {
        kp.get("/").field("x-now") == Some("2 0 1 1")
    });
}

fn said(kp: &Kp, path: &str) -> (u16, String) {
    let page = kp.get(path);
    let retry = page.field("retry-after").is_some();
    assert_eq!(retry, page.status() == 503);
    assert_eq!(page.field("cache-control"), Some("no-store"));
    (page.status(), page.text())
}

/// Shows: health
#[test]
fn health_of_kp_and_of_a_group() {
    let origin = Origin::ok();
    let ok = (200, "ok\n".to_owned());
    let none = (503, "no usable peer in upstream \"app\"\n".to_owned());
    let kp = pages(&format!(
        "server {}; server {} down;",
        origin.address(),
        Port::take().address()
    ))
    .start();
    assert_eq!(said(&kp, "/health"), ok);
    assert_eq!(said(&kp, "/health/app"), ok);
    for peers in [
        format!("server {} down;", origin.address()),
        format!("server {0} down; server {0} drain;", origin.address()),
    ] {
        let kp = pages(&peers).start();
        assert_eq!(said(&kp, "/health"), ok, "{peers}");
        assert_eq!(said(&kp, "/health/app"), none, "{peers}");
    }
    let kp = pages(&format!(
        "server {} down; server {} backup;",
        origin.address(),
        origin.address()
    ))
    .start();
    assert_eq!(said(&kp, "/health/app"), ok, "a backup is a peer");
}

#[test]
fn health_of_a_group_whose_peers_rest_after_failures() {
    let kp = pages(&format!("{} {}", nobody(), nobody())).start();
    assert_eq!(kp.get("/health/app").status(), 200, "nothing is known yet");
    assert_eq!(kp.get("/app").status(), 502);
    assert_eq!(kp.get("/health/app").status(), 503);
    assert_eq!(kp.get("/health").status(), 200);
    // A single one is always tried.
    let kp = pages(&nobody()).start();
    assert_eq!(kp.get("/app").status(), 502);
    assert_eq!(kp.get("/health/app").status(), 200);
}

#[test]
fn health_of_a_group_by_its_checks() {
    let origin = Origin::ok();
    let port = Port::take();
    let address = port.address();
    let kp = pages(&format!("zone app 64k; server {address};"))
        .server(
            "location /checked { proxy_pass http://app; health_check interval=100ms mandatory; }",
        )
        .start();
    wait::until(SOON, "the check to fail", || {
        kp.get("/health/app").status() == 503
    });
    let late = Origin::on(port, |conversation| {
        conversation.request()?;
        conversation.send(kp_tests::origin::OK)
    });
    wait::until(SOON, "the check to pass", || {
        kp.get("/health/app").status() == 200
    });
    drop((late, origin));
}

/// A connection that whoever chooses between several kp keeps for its checks.
fn kept(kp: &Kp) -> Client {
    let mut client = kp.client();
    let answer = client.ask("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(answer.text(), "ok\n");
    client
}

#[test]
fn health_while_kp_ends() {
    let kp = pages(&nobody()).start();
    let mut busy = kp.client();
    busy.send("GET / HTTP/1.1\r\nHo");
    let mut checker = kept(&kp);
    kp.signal(Signal::SIGQUIT);
    kp.wait_error("gracefully shutting down");
    let answer = checker.ask("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(
        (answer.status(), answer.text()),
        (503, "draining\n".to_owned())
    );
    assert_eq!(answer.field("connection"), Some("close"));
    assert_eq!(answer.field("retry-after"), Some("1"));
}

#[test]
fn health_over_a_reload_is_that_of_the_new_workers() {
    let kp = pages(&nobody()).start();
    let mut checker = kept(&kp);
    kp.reload();
    kp.wait_error("gracefully shutting down");
    let answer = checker.ask("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!((answer.status(), answer.text()), (200, "ok\n".to_owned()));
    assert_eq!(
        answer.field("connection"),
        Some("close"),
        "the next one is asked"
    );
    assert_eq!(checker.end_within(Duration::from_secs(60)), End::Closed);
    assert_eq!(said(&kp, "/health"), (200, "ok\n".to_owned()));
}

#[test]
fn health_without_memory() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let kp = pages(&format!("server {};", origin.address()))
        .main("worker_memory 8m;")
        .server("location = /guarded { health; deny all; }")
        .start();
    assert_eq!(kp.get("/health").status(), 200);
    let head = format!(
        "GET /app HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n",
        "x".repeat(7000)
    );
    let mut clients = Vec::new();
    let refused = wait::until_some(SOON, "memory to be used up", || {
        let mut client = kp.client();
        client.send(&head);
        clients.push(client);
        let page = kp.get("/health");
        (page.status() == 503).then_some(page)
    });
    assert_eq!(refused.text(), "memory\n");
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(kp.get("/guarded").status(), 403);
    assert_eq!(
        kp.get("/stub").status(),
        503,
        "all others are refused as ever"
    );
    drop(clients);
    wait::until(SOON, "memory to be free", || {
        kp.get("/health").status() == 200
    });
}

#[test]
fn what_a_page_cannot_be_asked() {
    for (text, place, message, hint) in [
        (
            "health upstream=ap;",
            "1:",
            "unknown upstream \"ap\"",
            "did you mean \"app\"?",
        ),
        (
            "health upstream=;",
            "1:",
            "invalid parameter \"upstream=\"",
            "it can be: upstream=name",
        ),
        (
            "health app;",
            "1:",
            "invalid parameter \"app\"",
            "it can be: upstream=name",
        ),
        (
            "stub_status on off;",
            "1:",
            "invalid number of arguments in \"stub_status\" directive",
            "",
        ),
    ] {
        let checked = Setup::new(&format!(
            "http {{ upstream app {{ server 127.0.0.1:1; }} server {{ listen %LISTEN%; location /x {{\n{text} }} }} }}"
        ))
        .check();
        assert_eq!(checked.code, 1, "{text}");
        for part in [place, message, hint] {
            assert!(
                checked.stderr.contains(part),
                "{part} of {text} in {}",
                checked.stderr
            );
        }
    }
}

#[test]
fn the_last_that_answers_is_the_one_that_does() {
    let origin = Origin::ok();
    let kp = pages(&format!("server {};", origin.address()))
        .server("location /two { proxy_pass http://app; stub_status; }")
        .start();
    assert!(kp.get("/two").text().starts_with("Active connections: "));
    assert!(origin.requests().is_empty());
}
