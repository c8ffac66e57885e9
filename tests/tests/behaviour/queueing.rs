//! Waiting for a peer with a free place: `max_conns` with `queue`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kp_tests::client::Client;
use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Origin, Setup};

const REASON: &str =
    "log_format reason '$request_uri $status $kp_reason'; access_log reason.log reason;";
const SECOND: Duration = Duration::from_secs(1);

/// An origin that answers only as many requests as it was allowed to.
struct Gate {
    origin: Origin,
    allowed: Arc<AtomicUsize>,
}

impl Gate {
    fn new() -> Self {
        let allowed = Arc::new(AtomicUsize::new(0));
        let answered = Arc::new(AtomicUsize::new(0));
        let gate = Arc::clone(&allowed);
        let origin = Origin::start(move |conversation| {
            while conversation.request().is_ok() {
                wait::happens(SOON, || {
                    let now = answered.load(Ordering::SeqCst);
                    now < gate.load(Ordering::SeqCst)
                        && answered
                            .compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::SeqCst)
                            .is_ok()
                });
                conversation.send(response(200, b"ok"))?;
            }
            Ok(())
        });
        Self { origin, allowed }
    }

    fn allow(&self, more: usize) {
        self.allowed.fetch_add(more, Ordering::SeqCst);
    }

    fn kp(&self, queue: &str) -> Kp {
        Setup::base(&self.origin)
            .with("U1", "max_conns=1")
            .http(REASON)
            .upstream(queue)
            .start()
    }
}

fn send(kp: &Kp, path: &str) -> Client {
    let mut client = kp.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
    client
}

/// Sends requests one after the other, the first of which is at the origin when the others come.
fn line_up(kp: &Kp, gate: &Gate, count: usize) -> Vec<Client> {
    let mut clients = vec![send(kp, "/0")];
    gate.origin.wait_requests(1);
    clients.extend((1..count).map(|n| send(kp, &format!("/{n}"))));
    clients
}

/// Shows: queue
#[test]
fn the_eleventh_is_refused_at_once_and_the_first_leaves_after_its_time() {
    let gate = Gate::new();
    let kp = gate.kp("queue 10 timeout=3s;");
    let began = Instant::now();
    let mut clients = line_up(&kp, &gate, 12);
    let mut eleventh = clients.remove(11);
    let refused = eleventh.response();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert!(began.elapsed() < SECOND * 3, "it did not wait");
    assert!(clients.iter().all(|client| !client.has_heard()));
    for client in clients.iter_mut().skip(1) {
        let late = client.response();
        assert_eq!((late.status(), late.field("retry-after")), (503, Some("1")));
        assert!(began.elapsed() >= SECOND * 3, "nobody is sent away early");
    }
    gate.allow(1);
    assert_eq!(clients[0].response().status(), 200);
    let lines = kp.lines("reason.log", 12);
    assert_eq!(lines[0], "/11 503 queue_full");
    let late: Vec<String> = (1..11).map(|n| format!("/{n} 503 queue_timeout")).collect();
    assert_eq!(lines[1..11], late, "who came first leaves first");
    assert_eq!(lines[11], "/0 200 -");
    kp.wait_error("upstream queue is full while connecting to upstream");
    kp.wait_error("upstream queue timed out while connecting to upstream");
    gate.allow(1);
    assert_eq!(kp.get("/").status(), 200, "nothing is left in the queue");
}

#[test]
fn first_come_first_served() {
    let gate = Gate::new();
    let kp = gate.kp("queue 10;");
    let mut clients = line_up(&kp, &gate, 8);
    gate.allow(8);
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    let targets: Vec<String> = (0..8).map(|n| format!("/{n}")).collect();
    assert_eq!(gate.origin.targets(), targets);
}

#[test]
fn who_leaves_leaves_the_queue() {
    let gate = Gate::new();
    let kp = gate.kp("queue 1;");
    let mut first = line_up(&kp, &gate, 1).remove(0);
    let leaves = send(&kp, "/leaves");
    assert_eq!(send(&kp, "/full").response().status(), 503, "it waits");
    drop(leaves);
    let lines = kp.lines("reason.log", 2);
    assert_eq!(lines, ["/full 503 queue_full", "/leaves 499 client_gone"]);
    let mut stays = send(&kp, "/stays");
    assert_eq!(send(&kp, "/full").response().status(), 503);
    gate.allow(2);
    assert_eq!(first.response().status(), 200);
    assert_eq!(stays.response().status(), 200);
    assert_eq!(gate.origin.targets(), ["/0", "/stays"]);
}

#[test]
fn a_body_waits_with_its_request() {
    let gate = Gate::new();
    let kp = gate.kp("queue 5;");
    let mut first = line_up(&kp, &gate, 1).remove(0);
    let mut post = kp.client();
    let body = "x".repeat(300_000);
    post.send("POST /post HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\n\r\n");
    post.send_for(body.as_bytes(), SOON);
    gate.allow(2);
    assert_eq!(first.response().status(), 200);
    assert_eq!(post.response().status(), 200);
    assert_eq!(gate.origin.last().body, body.as_bytes());
}

/// Shows: queue, zone
#[test]
fn places_that_other_workers_give_back_are_found() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.pause(Duration::from_millis(20));
        conversation.send(response(200, b"ok"))
    });
    let text = "worker_processes 4; http { upstream u { zone z 64k; queue 30 timeout=40s; server %U1% max_conns=1; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    kp.wait_workers(4);
    let mut clients: Vec<Client> = (0..24).map(|n| send(&kp, &format!("/{n}"))).collect();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(origin.requests().len(), 24);
}

#[test]
fn a_drain_waits_for_those_who_wait() {
    let gate = Gate::new();
    let kp = gate.kp("queue 5;");
    let mut clients = line_up(&kp, &gate, 3);
    kp.reload();
    gate.allow(3);
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    kp.wait_drained(SOON);
}

/// Whoever finds the first group without a live peer goes to the second.
const ELSEWHERE: &str = "http { %HTTP%
    upstream u { %UPSTREAM% server %U1% max_conns=1; server 127.0.0.1:1 down; }
    upstream v { server %V1%; }
    server { listen %LISTEN%; location / { proxy_pass http://u; error_page 502 = /v; }
        location = /v { proxy_pass http://v; } } }";

#[test]
fn who_goes_elsewhere_leaves_the_queue() {
    let gate = Gate::new();
    let dies = Arc::new(AtomicUsize::new(0));
    let when = Arc::clone(&dies);
    let dying = Origin::start(move |conversation| {
        conversation.request()?;
        wait::happens(SOON, || when.load(Ordering::SeqCst) == 1);
        Ok(())
    });
    let kp = Setup::new(ELSEWHERE)
        .upstream("queue 3 timeout=60s;")
        .with("U1", dying.address())
        .with("V1", gate.origin.address())
        .start();
    let mut clients = vec![send(&kp, "/0")];
    dying.wait_requests(1);
    clients.extend((1..4).map(|n| send(&kp, &format!("/{n}"))));
    wait::until(SOON, "three wait", || kp.get("/full").status() == 503);
    dies.store(1, Ordering::SeqCst);
    gate.origin.wait_requests(4);
    gate.allow(4);
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
}

/// Every kind of request that may stand in line.
#[test]
fn whatever_waits_is_served_as_if_it_had_not() {
    let gate = Gate::new();
    let kp = gate.kp("queue 10;");
    let mut clients = line_up(&kp, &gate, 1);
    let waiting = |text: &str| {
        let mut client = kp.client();
        client.send(text);
        client
    };
    let mut head = waiting("HEAD /head HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut old = waiting("GET /old HTTP/1.0\r\n\r\n");
    let mut two =
        waiting("GET /two HTTP/1.1\r\nHost: t\r\n\r\nGET /three HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut ended = waiting("GET /ended HTTP/1.1\r\nHost: t\r\n\r\n");
    ended.half_close();
    let mut expects = waiting(
        "POST /expects HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    );
    let go_on = expects.head(SOON).expect("an interim response");
    assert_eq!(go_on.status(), 100);
    expects.send("abc");
    gate.allow(7);
    assert_eq!(clients[0].response().status(), 200);
    assert_eq!(head.response_to("HEAD").status(), 200);
    let answer = old.response();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    assert!(old.closes_within(SOON));
    assert_eq!(two.response().status(), 200);
    assert_eq!(two.response().status(), 200);
    assert_eq!(expects.response().status(), 200);
    drop(ended);
}
