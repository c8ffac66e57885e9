//! Limits on clients: how often, how many at a time, from where, how fast.

use crate::tls_site;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kp_tests::tls::Connector;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Origin, Port, Setup, process};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);

fn statuses(kp: &Kp, path: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| kp.get(path).status()).collect()
}

/// An origin that answers when the test has seen enough.
fn slow(pause: Duration) -> Origin {
    Origin::start(move |connection| {
        connection.request()?;
        connection.pause(pause);
        connection.send(kp_tests::origin::OK)
    })
}

const T05: &str = "worker_processes %WORKERS%;
http {
    limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m;
    limit_req_zone $binary_remote_addr zone=b:1m rate=1r/m;
    limit_req_zone $binary_remote_addr zone=c:1m rate=1r/m;
    limit_req_zone $binary_remote_addr zone=d:1m rate=1r/m;
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Forwarded-For;
    upstream u { server %U1%; keepalive 8; }
    server {
        listen %LISTEN%;
        location /burst { limit_req zone=a burst=2 nodelay; proxy_pass http://u; }
        location /status { limit_req zone=b burst=2 nodelay; limit_req_status 429; proxy_pass http://u; }
        location /bare { limit_req zone=c; proxy_pass http://u; }
        location /behind { limit_req zone=d burst=2 nodelay; proxy_pass http://u; }
    }
}
";

fn from(kp: &Kp, address: &str, count: usize) -> Vec<u16> {
    (0..count)
        .map(|_| {
            let request = format!(
                "GET /behind HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: {address}\r\nConnection: close\r\n\r\n"
            );
            kp.client().ask(request).status()
        })
        .collect()
}

/// Case T05.
/// Shows: limit_req_zone, limit_req, limit_req_status
#[test]
fn t05_limit_req_is_exact_whatever_the_number_of_workers() {
    let origin = Origin::ok();
    for workers in ["1", "4"] {
        let kp = Setup::new(T05)
            .with("WORKERS", workers)
            .with("U1", origin.address())
            .start();
        kp.wait_workers(workers.parse().unwrap());
        assert_eq!(statuses(&kp, "/burst", 5), [200, 200, 200, 503, 503]);
        assert_eq!(statuses(&kp, "/status", 5), [200, 200, 200, 429, 429]);
        assert_eq!(statuses(&kp, "/bare", 5), [200, 503, 503, 503, 503]);
        assert_eq!(from(&kp, "198.51.100.7", 4), [200, 200, 200, 503]);
        assert_eq!(from(&kp, "203.0.113.9", 4), [200, 200, 200, 503]);
        kp.wait_error("[error]");
        assert!(kp.error_log().contains("limiting requests, excess: "));
        assert!(kp.error_log().contains(" by zone \"a\", client: 127.0.0.1"));
    }
}

fn limited(zone: &str, location: &str, origin: &Origin) -> Setup {
    Setup::base(origin).http(zone).location(location)
}

/// A request over the rate waits for its turn, and the log says so one level less loud than a refusal.
/// Shows: limit_req, limit_req_log_level
#[test]
fn requests_within_the_burst_wait() {
    let origin = Origin::ok();
    let kp = limited(
        "limit_req_zone $uri zone=w:32k rate=1r/s;",
        "limit_req zone=w burst=5 delay=1; limit_req_log_level warn; add_header X-Limit $limit_req_status always;",
        &origin,
    )
    .start();
    let began = Instant::now();
    let answers: Vec<_> = (0..3).map(|_| kp.get("/x")).collect();
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(950) && took < SECOND * 10,
        "{took:?}"
    );
    let said: Vec<_> = answers
        .iter()
        .map(|answer| answer.field("X-Limit"))
        .collect();
    assert_eq!(said, [Some("PASSED"), Some("PASSED"), Some("DELAYED")]);
    kp.wait_error("[notice]");
    assert!(kp.error_log().contains("delaying request, excess: "));
    assert!(kp.error_log().contains(", by zone \"w\""));
}

/// Who leaves while it waits is not passed on.
#[test]
fn a_client_that_leaves_while_it_waits_is_gone() {
    let origin = Origin::ok();
    let kp = limited(
        "limit_req_zone $uri zone=w:32k rate=1r/m;",
        "limit_req zone=w burst=5;",
        &origin,
    )
    .start();
    assert_eq!(kp.get("/x").status(), 200);
    let mut client = kp.client();
    client.send("GET /x HTTP/1.1\r\nHost: t\r\n\r\n");
    kp.wait_error("delaying request");
    drop(client);
    wait::until(SOON, "a log line with 499", || {
        kp.text("access.log").contains(" 499 ")
    });
    assert_eq!(origin.requests().len(), 1);
}

/// Shows: limit_req_dry_run, limit_conn_dry_run
#[test]
fn a_dry_run_only_tells() {
    let origin = Origin::ok();
    let kp = limited(
        "limit_req_zone $uri zone=r:32k rate=1r/m; limit_conn_zone $uri zone=c:32k;",
        "limit_req zone=r burst=1; limit_req_dry_run on; limit_conn c 1; limit_conn_dry_run on;
         add_header X-Limit $limit_req_status/$limit_conn_status always;",
        &origin,
    )
    .start();
    let said: Vec<String> = (0..3)
        .map(|_| {
            let answer = kp.get("/x");
            assert_eq!(answer.status(), 200);
            answer.field("X-Limit").unwrap().to_owned()
        })
        .collect();
    assert_eq!(
        said,
        [
            "PASSED/PASSED",
            "DELAYED_DRY_RUN/PASSED",
            "REJECTED_DRY_RUN/PASSED"
        ]
    );
    kp.wait_error("limiting requests, dry run, excess: ");
    assert!(
        kp.error_log()
            .contains("delaying request, dry run, excess: ")
    );
}

/// What one limit refuses is charged to none.
#[test]
fn several_rates_hold_together() {
    let origin = Origin::ok();
    let kp = limited(
        "limit_req_zone $arg_a zone=a:32k rate=1r/m; limit_req_zone $arg_b zone=b:32k rate=1r/m;",
        "limit_req zone=a burst=2 nodelay; limit_req zone=b nodelay;",
        &origin,
    )
    .start();
    assert_eq!(kp.get("/?a=1&b=1").status(), 200);
    assert_eq!(kp.get("/?a=1&b=1").status(), 503);
    assert_eq!(kp.get("/?a=1&b=1").status(), 503);
    assert_eq!(
        kp.get("/?a=1&b=2").status(),
        200,
        "the refused took nothing of a"
    );
    assert_eq!(kp.get("/?a=1&b=3").status(), 200);
    assert_eq!(kp.get("/?a=1&b=4").status(), 503);
    assert_eq!(kp.get("/?b=4").status(), 200, "an empty key is not counted");
}

/// Shows: limit_req_retry_after
#[test]
fn a_refusal_says_when_to_come_again() {
    let origin = Origin::ok();
    let kp = limited(
        "limit_req_zone $uri zone=r:32k rate=6r/m;",
        "limit_req zone=r; limit_req_status 429; limit_req_retry_after on;",
        &origin,
    )
    .start();
    assert_eq!(kp.get("/x").field("Retry-After"), None);
    let refused = kp.get("/x");
    assert_eq!(refused.status(), 429);
    let seconds: u32 = refused.field("Retry-After").unwrap().parse().unwrap();
    assert!((9..=10).contains(&seconds), "{seconds}");
}

#[test]
fn a_redirect_inside_is_not_charged_again_and_a_refusal_has_its_page() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("limit_req_zone $scheme zone=r:32k rate=1r/m; limit_req zone=r burst=1 nodelay;")
        .server(
            "error_page 503 @full; location @full { return 200 full; }
             location /in { rewrite ^ /again last; } location /again { error_page 404 = /; root /nowhere; }",
        )
        .start();
    assert_eq!(kp.get("/in").status(), 200);
    assert_eq!(kp.get("/").status(), 200);
    assert_eq!(kp.get("/").text(), "full");
}

/// Shows: limit_conn_zone, limit_conn, limit_conn_status, limit_conn_log_level
#[test]
fn places_are_held_until_the_answer_is_out() {
    let origin = slow(Duration::from_millis(400));
    let kp = limited(
        "limit_conn_zone $binary_remote_addr_64 zone=c:1m;",
        "limit_conn c 2; limit_conn_status 429; limit_conn_log_level warn;",
        &origin,
    )
    .main("worker_processes 4;")
    .start();
    kp.wait_workers(4);
    let mut clients: Vec<Client> = (0..2)
        .map(|_| {
            let mut client = kp.client();
            client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    origin.wait_requests(2);
    assert_eq!(kp.get("/").status(), 429);
    kp.wait_error("[warn]");
    assert!(
        kp.error_log()
            .contains("limiting connections by zone \"c\"")
    );
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    // The connections are still open, but nothing is being worked on.
    assert_eq!(kp.get("/").status(), 200);
}

#[test]
fn a_killed_worker_gives_its_places_back() {
    let origin = Origin::start(|connection| {
        let request = connection.request()?;
        if request.target() == "/hang" {
            connection.stall();
        }
        connection.send(kp_tests::origin::OK)
    });
    let kp = limited(
        "limit_conn_zone $scheme zone=c:1m;",
        "limit_conn c 3;",
        &origin,
    )
    .main("worker_processes 2;")
    .allow("exited on signal 9")
    .start();
    kp.wait_workers(2);
    let clients: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = kp.client();
            client.send("GET /hang HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    origin.wait_requests(3);
    assert_eq!(kp.get("/").status(), 503);
    for worker in kp.worker_pids() {
        process::signal(worker, Signal::SIGKILL);
    }
    wait::until(SOON, "a free place", || {
        Client::try_connect(&kp.address()).is_ok_and(|mut client| {
            client.send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
            client
                .try_response("GET", SOON)
                .is_ok_and(|answer| answer.status() == 200)
        })
    });
    drop(clients);
}

#[test]
fn places_are_counted_over_a_reload() {
    let origin = slow(Duration::from_millis(1500));
    let kp = limited(
        "limit_conn_zone $scheme zone=c:1m;",
        "limit_conn c 1;",
        &origin,
    )
    .start();
    let mut client = kp.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    origin.wait_requests(1);
    kp.reload();
    assert_eq!(kp.get("/").status(), 503, "the old generation still has it");
    assert_eq!(client.response().status(), 200);
    wait::until(SOON, "a free place", || kp.get("/").status() == 200);
}

/// Shows: max_active_requests
#[test]
fn only_so_many_requests_are_active_in_all_workers() {
    let origin = slow(3 * SECOND);
    let kp = Setup::base(&origin)
        .main("worker_processes 2;")
        .http("max_active_requests 2; log_format r '$status $kp_reason'; access_log r.log r;")
        .start();
    kp.wait_workers(2);
    let mut clients: Vec<Client> = (0..2)
        .map(|_| {
            let mut client = kp.client();
            client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    origin.wait_requests(2);
    let refused = kp.get("/");
    assert_eq!(
        (refused.status(), refused.field("Retry-After")),
        (503, Some("1"))
    );
    assert_eq!(kp.lines("r.log", 1)[0], "503 too_many_active");
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(kp.get("/").status(), 200);
}

/// Of eight connections, how many are answered; the others end without a byte.
fn answered_of_eight(kp: &Kp) -> usize {
    let mut answered = 0;
    for _ in 0..8 {
        let mut socket = TcpStream::connect(kp.address()).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        let sent = socket.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        let mut bytes = Vec::new();
        let read = std::io::Read::read_to_end(&mut socket, &mut bytes);
        if bytes.starts_with(b"HTTP/1.1 ") {
            answered += 1;
        } else {
            assert!(bytes.is_empty(), "{sent:?} {read:?} {bytes:?}");
        }
    }
    answered
}

/// What is over rate and burst is closed without a byte. (One connection has asked already whether kp is there.)
/// Shows: limit_accept
#[test]
fn connections_over_the_rate_are_closed_at_once() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .main("worker_processes 2;")
        .http("limit_accept zone=accepts:32k rate=1r/m burst=3;")
        .start();
    kp.wait_workers(2);
    let answered = answered_of_eight(&kp);
    assert!((3..=4).contains(&answered), "{answered} of 8");
}

/// The same before TLS; who is accepted hears that this is no TLS.
#[test]
fn connections_over_the_rate_cost_no_handshake() {
    let (setup, _) = tls_site::one("hello");
    let kp = setup
        .http("limit_accept zone=accepts:32k rate=1r/m burst=3;")
        .start();
    let answered = answered_of_eight(&kp);
    assert!((3..=4).contains(&answered), "{answered} of 8");
}

/// `off` in a server takes back what http says.
/// Shows: limit_accept
#[test]
fn a_server_may_accept_all() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("limit_accept zone=accepts:32k rate=1r/m;")
        .server("limit_accept off;")
        .start();
    assert_eq!(statuses(&kp, "/", 5), [200; 5]);
}

/// Shows: allow, deny
#[test]
fn the_first_rule_that_fits_decides() {
    let origin = Origin::ok();
    let kp = Setup::new(
        "http {
            upstream u { server %U1%; }
            server {
                listen %LISTEN%; listen unix:%DIR%/kp.listen;
                location /all { deny all; proxy_pass http://u; }
                location /one { allow 127.0.0.1; deny all; proxy_pass http://u; }
                location /order { deny 127.0.0.0/8; allow all; proxy_pass http://u; }
                location /v6 { allow ::1; allow 2001:db8::/32; deny all; proxy_pass http://u; }
                location /unix { allow unix:; deny all; proxy_pass http://u; }
                location /page { deny all; error_page 403 = @page; }
                location @page { return 200 page; }
                location /first { deny all; return 204; }
            }
        }
        ",
    )
    .with("U1", origin.address())
    .start();
    for (path, status) in [
        ("/all", 403),
        ("/one", 200),
        ("/order", 403),
        ("/v6", 403),
        ("/unix", 403),
        ("/page", 200),
        // As nginx: `return` comes first.
        ("/first", 204),
    ] {
        assert_eq!(kp.get(path).status(), status, "{path}");
    }
    kp.wait_error("access forbidden by rule");
    let ask = |path: &str| {
        let mut socket = std::os::unix::net::UnixStream::connect(kp.path("kp.listen")).unwrap();
        write!(
            socket,
            "GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut socket, &mut text).unwrap();
        text
    };
    assert!(ask("/unix").starts_with("HTTP/1.1 200"));
    assert!(ask("/one").starts_with("HTTP/1.1 403"));
    assert!(ask("/order").starts_with("HTTP/1.1 200"));
}

/// Shows: limit_rate, limit_rate_after
#[test]
fn an_answer_is_sent_at_its_rate() {
    let body = vec![b'x'; 40_000];
    let origin = Origin::replying(kp_tests::origin::response(200, &body));
    let kp = Setup::base(&origin)
        .location("limit_rate 10k; limit_rate_after 10k; if ($arg_fast) { set $limit_rate 0; }")
        .file("file", body)
        .server("location /file { root %DIR%; limit_rate 10k; limit_rate_after 10k; }")
        .start();
    for path in ["/", "/file"] {
        let began = Instant::now();
        let answer = kp.get(path);
        assert_eq!((answer.status(), answer.body.len()), (200, 40_000));
        let took = began.elapsed();
        // 40,000 bytes less 10k and the second that is free: two more seconds.
        assert!(
            took >= Duration::from_millis(950) && took < 20 * SECOND,
            "{path} {took:?}"
        );
    }
    let fast = wait::quickest(|| assert_eq!(kp.get("/?fast=1").body.len(), 40_000));
    assert!(fast < Duration::from_millis(950), "{fast:?}");
}

/// A limit does not hold the connection: the next request of it is answered.
#[test]
fn a_refused_client_keeps_its_connection() {
    let origin = Origin::ok();
    let kp = limited(
        "limit_req_zone $uri zone=r:32k rate=1r/m;",
        "limit_req zone=r;",
        &origin,
    )
    .start();
    let mut client = kp.client();
    for (path, status) in [("/x", 200), ("/x", 503), ("/y", 200)] {
        let answer = client.ask(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(answer.status(), status, "{path}");
    }
    client.half_close();
    assert_eq!(client.end_within(SOON), End::Closed);
}

/// What every refusal and every dry run is called in the access log.
#[test]
fn each_refusal_has_its_name_in_the_log() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http(
            "limit_req_zone $uri zone=r:32k rate=1r/m; limit_conn_zone $arg_held zone=c:32k;
             log_format r '$status $limit_req_status $limit_conn_status $kp_reason'; access_log r.log r;",
        )
        .server(
            "location /rate { limit_req zone=r; return 200; }
             location /r { limit_req zone=r; proxy_pass http://u; }
             location /d { limit_req zone=r; limit_req_dry_run on; proxy_pass http://u; }
             location /w { limit_req zone=r burst=1; limit_req_dry_run on; proxy_pass http://u; }
             location /denied { deny all; proxy_pass http://u; }",
        )
        .start();
    for path in ["/rate", "/r", "/r", "/d", "/d", "/w", "/w", "/denied"] {
        kp.get(path);
    }
    assert_eq!(
        kp.lines("r.log", 8),
        [
            "200 - - return",
            "200 PASSED - -",
            "503 REJECTED - rate_limited",
            "200 PASSED - -",
            "200 REJECTED_DRY_RUN - -",
            "200 PASSED - -",
            "200 DELAYED_DRY_RUN - -",
            "403 - - access_denied",
        ]
    );
}

/// An origin of which requests for /hang hear nothing, and others 200.
fn hanging() -> Origin {
    Origin::start(|connection| {
        loop {
            let request = connection.request()?;
            if request.target().contains("hang") {
                connection.stall();
            }
            connection.send(kp_tests::origin::OK)?;
        }
    })
}

#[test]
fn places_have_their_names_too() {
    let origin = hanging();
    let kp = Setup::base(&origin)
        .http(
            "limit_conn_zone $scheme zone=c:32k;
             log_format r '$status $limit_conn_status $kp_reason'; access_log r.log r;",
        )
        .location("limit_conn c 1;")
        .server("location /dry { limit_conn c 1; limit_conn_dry_run on; proxy_pass http://u; }")
        .start();
    let mut client = kp.client();
    client.send("GET /hang HTTP/1.1\r\nHost: t\r\n\r\n");
    origin.wait_requests(1);
    assert_eq!((kp.get("/").status(), kp.get("/dry").status()), (503, 200));
    drop(client);
    assert_eq!(
        kp.lines("r.log", 3),
        [
            "503 REJECTED connections_limited",
            "200 REJECTED_DRY_RUN -",
            "499 PASSED client_gone",
        ]
    );
    wait::until(SOON, "a free place", || kp.get("/").status() == 200);
}

/// The page of a refusal says when to come again as well, since it is still the refusal.
#[test]
fn retry_after_goes_with_the_page_of_a_refusal() {
    let origin = Origin::ok();
    let kp = limited(
        "limit_req_zone $uri zone=r:32k rate=6r/m;",
        "limit_req zone=r; limit_req_retry_after on; error_page 503 @full;",
        &origin,
    )
    .server("location @full { return 503 full; } location = /page { limit_req zone=r; limit_req_retry_after on; error_page 503 =200 /ok; proxy_pass http://u; } location /ok { proxy_pass http://u; }")
    .start();
    assert_eq!(kp.get("/x").field("Retry-After"), None);
    let refused = kp.get("/x");
    assert_eq!((refused.status(), refused.text().as_str()), (503, "full"));
    assert!(refused.field("Retry-After").is_some(), "{refused:?}");
    assert_eq!(kp.get("/page").status(), 200);
    let hidden = kp.get("/page");
    assert_eq!((hidden.status(), hidden.field("Retry-After")), (200, None));
}

/// `limit_conn` and `max_active_requests` let `max` requests hang and no more, and none is left behind.
fn assert_free(kp: &Kp, origin: &Origin, max: usize) {
    wait::until(SOON, "free places", || kp.get("/").status() == 200);
    let before = origin.requests().len();
    let clients: Vec<Client> = (0..max)
        .map(|n| {
            // Each is there before the next, so that the one over the limit is the last.
            let mut client = kp.client();
            client.send("GET /hang HTTP/1.1\r\nHost: t\r\n\r\n");
            origin.wait_requests(before + n + 1);
            client
        })
        .collect();
    assert_eq!(kp.get("/").status(), 503);
    drop(clients);
    wait::until(SOON, "free places", || kp.get("/").status() == 200);
}

/// However a request ends, its places are free afterwards.
#[test]
fn no_place_is_lost_by_the_way_a_request_ends() {
    let origin = hanging();
    let kp = Setup::base(&origin)
        .main("worker_processes 2;")
        .http(
            "limit_conn_zone $scheme zone=c:32k; max_active_requests 3; limit_req_zone $arg_r zone=r:32k rate=1r/m;
             client_header_timeout 300ms; client_body_timeout 300ms; proxy_read_timeout 10s;",
        )
        .location("limit_conn c 3; limit_req zone=r burst=9;")
        .server(
            "location /inside { limit_conn c 3; error_page 502 504 = /again; proxy_pass http://127.0.0.1:1; }
             location /again { limit_conn c 3; proxy_pass http://u; }
             location /late { limit_conn c 3; proxy_read_timeout 100ms; proxy_pass http://u; }
             location /cut { limit_conn c 3; return 444; }",
        )
        .allow("connect() failed")
        .start();
    kp.wait_workers(2);
    let gone = |request: &str| {
        let mut client = kp.client();
        client.send(request);
        client
    };
    for round in 0..4 {
        // Gone while it waits for its turn, and while the upstream is silent.
        let path = format!("/?r={round}");
        assert_eq!(kp.get(&path).status(), 200);
        let waits = gone(&format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
        wait::until(SOON, "a request that waits", || {
            kp.error_log().matches("delaying request").count() == round + 1
        });
        drop(waits);
        let before = origin.requests().len();
        let hangs = gone("GET /hang HTTP/1.1\r\nHost: t\r\n\r\n");
        origin.wait_requests(before + 1);
        hangs.reset();
        // Half a head, half a body, rubbish, a pipeline, a cut.
        assert_eq!(gone("GET / HTTP/1.1\r\nHo").response().status(), 408);
        let half = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nab";
        assert_eq!(gone(half).response().status(), 408);
        assert_eq!(gone("GET / HTTP/1.1\r\n\r\n").response().status(), 400);
        let mut pipeline = gone(&"GET / HTTP/1.1\r\nHost: t\r\n\r\n".repeat(5));
        for _ in 0..5 {
            assert_eq!(pipeline.response().status(), 200);
        }
        drop(pipeline);
        assert_eq!(kp.get("/inside").status(), 200);
        assert_eq!(kp.get("/late/hang").status(), 504);
        assert!(gone("GET /cut HTTP/1.1\r\nHost: t\r\n\r\n").closes_within(SOON));
    }
    assert_free(&kp, &origin, 3);
}

/// A tunnel holds its places as long as it is there, over a reload too.
#[test]
fn a_tunnel_holds_its_place() {
    let origin = Origin::start(|connection| {
        let request = connection.request()?;
        if request.target() == "/tunnel" {
            connection.send("HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")?;
            connection.read_to_end();
        } else if request.target() == "/hang" {
            connection.stall();
        }
        connection.send(kp_tests::origin::OK)
    });
    let kp = limited(
        "limit_conn_zone $scheme zone=c:32k; max_active_requests 2;",
        "limit_conn c 2; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade_;",
        &origin,
    )
    .http("map $http_upgrade $connection_upgrade_ { '' close; default upgrade; }")
    .start();
    let tunnels: Vec<Client> = (0..2)
        .map(|_| {
            let mut client = kp.client();
            let asked =
                "GET /tunnel HTTP/1.1\r\nHost: t\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
            client.send(asked);
            assert_eq!(client.head(SOON).unwrap().status(), 101);
            client
        })
        .collect();
    assert_eq!(kp.get("/").status(), 503);
    kp.reload();
    assert_eq!(kp.get("/").status(), 503, "the old worker has them");
    drop(tunnels);
    assert_free(&kp, &origin, 2);
}

/// Most connections that were answered at a time, as the origin saw it.
#[test]
fn limits_are_exact_under_load_over_workers() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let origin = {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        Origin::start(move |connection| {
            connection.request()?;
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            connection.pause(Duration::from_millis(5));
            now.fetch_sub(1, SeqCst);
            connection.send(kp_tests::origin::OK)
        })
    };
    let kp = Setup::base(&origin)
        .main("worker_processes 4;")
        .http("limit_conn_zone $scheme zone=c:32k; limit_req_zone $scheme zone=r:32k rate=1r/m;")
        .location("limit_conn c 5; limit_conn_status 429;")
        .server("location /rate { limit_req zone=r burst=49 nodelay; proxy_pass http://u; }")
        .start();
    kp.wait_workers(4);
    let ask = |path: &str, count: usize| -> Vec<u16> {
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| statuses(&kp, path, count)))
                .collect();
            let answers = clients
                .into_iter()
                .flat_map(|client| client.join().unwrap());
            answers.collect()
        })
    };
    let count = |statuses: &[u16], wanted: u16| {
        let found = statuses.iter().filter(|status| **status == wanted);
        found.count()
    };
    let places = ask("/", 25);
    let (passed, refused) = (count(&places, 200), count(&places, 429));
    assert_eq!(passed + refused, 400, "{places:?}");
    assert!(refused > 0 && passed >= 25, "{passed} {refused}");
    assert!((2..=5).contains(&most.load(SeqCst)), "{most:?}");
    let rates = ask("/rate", 10);
    assert_eq!((count(&rates, 200), count(&rates, 503)), (50, 110));
}

/// A zone that changed begins anew; one that did not goes on.
#[test]
fn a_reload_changes_zones() {
    let origin = Origin::ok();
    let setup = |a: &str, b: &str| {
        Setup::base(&origin)
            .http(&format!(
                "limit_req_zone $arg_k zone=a:{a}; limit_req_zone $arg_k zone=b:{b};"
            ))
            .location("limit_req zone=a;")
            .server("location /b { limit_req zone=b; proxy_pass http://u; }")
    };
    let kp = setup("32k rate=1r/m", "32k rate=1r/m").start();
    let both = |kp: &Kp| (kp.get("/?k=1").status(), kp.get("/b?k=1").status());
    assert_eq!((both(&kp), both(&kp)), ((200, 200), (503, 503)));
    kp.reload();
    assert_eq!(both(&kp), (503, 503), "nothing changed");
    kp.configure(&setup("32k rate=2r/m", "32k rate=1r/m"));
    kp.reload();
    assert_eq!((both(&kp), both(&kp)), ((200, 503), (503, 503)), "a rate");
    kp.configure(&setup("32k rate=2r/m", "1m rate=1r/m"));
    kp.reload();
    assert_eq!((both(&kp), both(&kp)), ((503, 200), (503, 503)), "a size");
}

#[test]
fn a_thousand_zones_are_apart() {
    let origin = Origin::ok();
    let zones: String = (0..1000)
        .map(|n| format!("limit_req_zone $scheme zone=z{n}:64k rate=1r/m;\n"))
        .collect();
    let locations: String = (0..1000)
        .map(|n| format!("location = /{n} {{ limit_req zone=z{n}; proxy_pass http://u; }}\n"))
        .collect();
    let kp = Setup::base(&origin).http(&zones).server(&locations).start();
    for n in [0, 1, 500, 998, 999] {
        assert_eq!(statuses(&kp, &format!("/{n}"), 2), [200, 503], "{n}");
    }
    kp.reload();
    assert_eq!(statuses(&kp, "/999", 1), [503]);
}

/// Empty keys and keys that are too long are not counted, as in nginx; long ones count to their last byte.
#[test]
fn keys_of_any_length() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .main("worker_processes 1;")
        .http(
            "large_client_header_buffers 4 128k;
             limit_req_zone $http_k zone=r:32k rate=1r/m; limit_conn_zone $http_k zone=c:32k;",
        )
        .location("limit_req zone=r; limit_conn c 1; proxy_set_header K '';")
        .start();
    let ask = |key: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: t\r\nK: {key}\r\nConnection: close\r\n\r\n");
        kp.client().ask(request).status()
    };
    let long = "k".repeat(65_534);
    for (key, statuses) in [
        (String::new(), [200, 200]),
        ("k".to_owned(), [200, 503]),
        (format!("{long}a"), [200, 503]),
        (format!("{long}b"), [200, 503]),
        (format!("{long}ab"), [200, 200]),
    ] {
        assert_eq!([ask(&key), ask(&key)], statuses, "{} bytes", key.len());
    }
    kp.wait_error("the value of the key of a zone is more than 65535 bytes");
}

/// Whom a rule means: the client that `real_ip_header` names; an IPv4 client of an IPv6 socket is an IPv4 client.
#[test]
fn access_is_judged_by_the_clients_address() {
    let origin = Origin::ok();
    let port = Port::take();
    let kp = Setup::base(&origin)
        .server(&format!(
            "listen [::]:{} ipv6only=off; set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;
             location /real {{ allow 192.0.2.7; deny all; proxy_pass http://u; }}
             location /mapped {{ allow 127.0.0.1; deny all; proxy_pass http://u; }}
             location /six {{ deny ::ffff:127.0.0.1; proxy_pass http://u; }}",
            port.number()
        ))
        .start();
    let ask = |address: &str, path: &str, real: &str| {
        let mut client = Client::connect(address);
        let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n{real}Connection: close\r\n\r\n");
        client.ask(request).status()
    };
    let mapped = format!("127.0.0.1:{}", port.number());
    assert_eq!(ask(&kp.address(), "/real", ""), 403);
    assert_eq!(ask(&kp.address(), "/real", "X-Real-IP: 192.0.2.7\r\n"), 200);
    assert_eq!(ask(&mapped, "/mapped", ""), 200);
    assert_eq!(ask(&mapped, "/mapped", "X-Real-IP: 192.0.2.7\r\n"), 403);
}

/// Shows: limit_rate
#[test]
fn an_upstream_may_say_the_rate_and_tls_keeps_it() {
    let body = vec![b'x'; 30_000];
    let origin = Origin::start(move |connection| {
        let request = connection.request()?;
        let rate = if request.target() == "/free" {
            "0"
        } else {
            "10000"
        };
        connection.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 30000\r\nX-Accel-Limit-Rate: {rate}\r\nConnection: close\r\n\r\n"
        ))?;
        connection.send(&body)
    });
    let kp = Setup::base(&origin).location("limit_rate 100;").start();
    let began = Instant::now();
    let answer = kp.get("/");
    assert_eq!((answer.status(), answer.body.len()), (200, 30_000));
    assert_eq!(answer.field("X-Accel-Limit-Rate"), None);
    let took = began.elapsed();
    assert!(took >= 2 * SECOND && took < 20 * SECOND, "{took:?}");
    let free = wait::quickest(|| assert_eq!(kp.get("/free").body.len(), 30_000));
    assert!(free < SECOND, "{free:?}");
}

#[test]
fn a_rate_holds_over_tls() {
    let (setup, authority) = tls_site::one("hello");
    let kp = setup
        .file("file", vec![b'x'; 30_000])
        .server("location /file { root %DIR%; limit_rate 10k; }")
        .start();
    let connector = Connector::new(&authority, "a.test");
    let began = Instant::now();
    let mut client = Client::secure(&kp.address(), &connector);
    let answer = client.ask("GET /file HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((answer.status(), answer.body.len()), (200, 30_000));
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(1900) && took < 20 * SECOND,
        "{took:?}"
    );
}

/// As nginx: other rules for other methods, GET includes HEAD, what `return` says is for the methods that are named, and
/// locations inside are not meant.
/// Shows: limit_except
#[test]
fn other_methods_have_other_rules() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server(
            "location /a { limit_except GET { deny all; } return 200 ok; }
             location /b { limit_except GET { deny all; } proxy_pass http://u; location /b/c { proxy_pass http://u; } }
             location /e { deny all; limit_except GET { allow all; } proxy_pass http://u; }
             location /f { deny all; limit_except GET { } proxy_pass http://u; }
             location /g { limit_except POST { deny all; } proxy_pass http://u; }",
        )
        .start();
    let ask = |method: &str, path: &str| {
        let mut client = kp.client();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
        ));
        client.response_to(method).status()
    };
    for (path, get, head, post, foo) in [
        ("/a", 200, 200, 403, 403),
        ("/b", 200, 200, 403, 403),
        ("/b/c", 200, 200, 200, 200),
        ("/e", 403, 403, 200, 200),
        ("/f", 403, 403, 403, 403),
        ("/g", 403, 403, 200, 403),
    ] {
        let found = ["GET", "HEAD", "POST", "FOO"].map(|method| ask(method, path));
        assert_eq!(found, [get, head, post, foo], "{path}");
    }
}

/// As nginx: 444, 499 and 408 stand for an end without an answer wherever they are configured, and no error page is asked.
#[test]
fn the_statuses_that_close_do_so_for_limits_too() {
    let origin = Origin::ok();
    let text = "http {
        limit_req_zone $arg_k zone=r:1m rate=1r/m;
        upstream u { server %U1%; }
        log_format f '$uri $status $bytes_sent'; access_log ends.log f;
        server { listen %LISTEN%; error_page 444 /page;
            location /rate { limit_req zone=r; limit_req_status 444; proxy_pass http://u; }
            location /other { limit_req zone=r; limit_req_status 499; proxy_pass http://u; }
            location = /page { return 200 page; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    for (path, status) in [("/rate", 444), ("/other", 499)] {
        let request = format!("GET {path}?k={status} HTTP/1.1\r\nHost: t\r\n\r\n");
        let mut client = kp.client();
        assert_eq!(client.ask(request.as_str()).status(), 200);
        client.send(request.as_str());
        assert_eq!(client.read_to_end(SOON).0, b"", "{path}");
    }
    let lines = kp.lines("ends.log", 4);
    assert_eq!((&*lines[1], &*lines[3]), ("/rate 444 0", "/other 499 0"));
}
