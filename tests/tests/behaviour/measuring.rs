//! What is counted by virtual host, group and peer is what happened: every end of a request once, every attempt once, and
//! in the end nothing is held.

use kp_tests::origin::response;
use kp_tests::{Client, Kp, Metrics, Origin, Port, Setup, wait};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

const TEXT: &str = "%MAIN%
http {
    %HTTP%
    log_format sizes '$status $request_length $bytes_sent';
    access_log access.log sizes;
    upstream app { server %U1% max_fails=0; keepalive 8; }
    upstream dead { server %DEAD%; }
    server {
        listen %LISTEN%;
        server_name Shop.Test other.test;
        location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection \"\"; }
        location /dead { proxy_pass http://dead; }
        location /here { return 204; }
        location = /metrics { access_log off; metrics; }
    }
    server {
        listen %LISTEN%;
        return 301 /elsewhere;
    }
}
";

/// Answers as the path says.
fn origin() -> Origin {
    Origin::start(|conversation| {
        loop {
            let request = conversation.request()?;
            match request.target() {
                "/missing" => conversation.send(response(404, b"no"))?,
                "/broken" => conversation.send(response(500, b"oh"))?,
                "/silent" => conversation.stall(),
                "/reset" => return conversation.reset(),
                "/cut" => {
                    conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")?;
                    return conversation.cut();
                }
                _ => conversation.send(response(200, &[b'x'; 500]))?,
            }
        }
    })
}

fn start(origin: &Origin, http: &str) -> Kp {
    let setup = Setup::new(TEXT).with("U1", origin.address()).http(http);
    setup.with("DEAD", Port::take().address()).start()
}

fn classes(metrics: &Metrics, server: &str) -> [f64; 5] {
    ["1xx", "2xx", "3xx", "4xx", "5xx"].map(|class| {
        metrics.value(&format!(
            "kp_http_requests_total{{server=\"{server}\",status=\"{class}\"}}"
        ))
    })
}

/// A request of its own connection.
fn ask(kp: &Kp, host: &str, target: &str) -> u16 {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    Client::connect(&kp.address()).ask(request).status()
}

#[test]
fn every_end_is_counted_once_where_it_belongs() {
    let origin = origin();
    let kp = start(&origin, "");
    for (host, target, status) in [
        ("shop.test", "/", 200),
        ("other.test", "/", 200),
        ("nobody.test", "/", 200),
        ("shop.test", "/missing", 404),
        ("shop.test", "/broken", 500),
        ("shop.test", "/reset", 502),
        ("shop.test", "/dead", 502),
        ("shop.test", "/here", 204),
    ] {
        assert_eq!(ask(&kp, host, target), status, "{host}{target}");
    }
    // A body that breaks off, a request that is none, half a one, and a client that goes.
    let mut cut = kp.client();
    cut.send("GET /cut HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    cut.read_to_end(LIMIT);
    assert_eq!(kp.client().ask("GET / HTTP/9.9\r\n\r\n").status(), 505);
    let mut half = kp.client();
    half.send("GET / HTTP/1.1\r\nHo");
    drop(half);
    let mut gone = kp.client();
    gone.send("GET /silent HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    wait::until(LIMIT, "the request", || {
        origin.targets().contains(&"/silent".to_owned())
    });
    drop(gone);
    let lines = kp.lines("access.log", 12);
    let sum = |at: usize| -> f64 {
        let field = |line: &String| line.split(' ').nth(at).unwrap().parse::<f64>().unwrap();
        lines.iter().map(field).sum()
    };
    let metrics = Metrics::of(&kp.address(), "/metrics");
    assert_eq!(classes(&metrics, "shop.test"), [0.0, 5.0, 0.0, 3.0, 4.0]);
    assert_eq!(
        classes(&metrics, "_"),
        [0.0; 5],
        "who asks for nobody gets the default"
    );
    let of_server = |name: &str| metrics.sum(name, &["server=\"shop.test\""]);
    assert_eq!(of_server("kp_http_received_bytes_total"), sum(1));
    assert_eq!(of_server("kp_http_sent_bytes_total"), sum(2));
    assert_eq!(of_server("kp_http_request_duration_seconds_count"), 12.0);
}

#[test]
fn every_attempt_is_counted_once_and_nothing_stays_held() {
    let origin = origin();
    let kp = start(&origin, "");
    for target in ["/", "/", "/missing", "/broken", "/cut", "/", "/dead"] {
        ask(&kp, "shop.test", target);
    }
    let mut gone = kp.client();
    gone.send("GET /silent HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    wait::until(LIMIT, "the request", || {
        origin.targets().contains(&"/silent".to_owned())
    });
    let peer = format!("upstream=\"app\",peer=\"{}\"", origin.address());
    let value = |metrics: &Metrics, name: &str| metrics.value(&format!("{name}{{{peer}}}"));
    let busy = Metrics::of(&kp.address(), "/metrics");
    assert_eq!(value(&busy, "kp_peer_requests_in_flight"), 1.0);
    drop(gone);
    kp.lines("access.log", 8);
    let metrics = Metrics::of(&kp.address(), "/metrics");
    let attempts = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"].map(|class| {
        metrics.value(&format!(
            "kp_peer_attempts_total{{{peer},status=\"{class}\"}}"
        ))
    });
    assert_eq!(attempts, [0.0, 4.0, 0.0, 1.0, 1.0, 1.0]);
    assert_eq!(
        value(&metrics, "kp_peer_connects_total") + value(&metrics, "kp_peer_reuses_total"),
        7.0
    );
    assert_eq!(value(&metrics, "kp_peer_requests_in_flight"), 0.0);
    assert_eq!(value(&metrics, "kp_peer_head_duration_seconds_count"), 6.0);
    let dead = metrics.sum("kp_peer_connect_failures_total", &["upstream=\"dead\""]);
    assert_eq!(
        (dead, value(&metrics, "kp_peer_connect_failures_total")),
        (1.0, 0.0)
    );
    let answers = metrics.sum("kp_upstream_response_duration_seconds_count", &["\"app\""]);
    assert_eq!(answers, 6.0);
    assert_eq!(ask(&kp, "shop.test", "/"), 200);
    let metrics = Metrics::of(&kp.address(), "/metrics");
    assert_eq!(value(&metrics, "kp_peer_idle_connections"), 1.0);
    drop(origin);
    wait::until(LIMIT, "an empty pool", || {
        let metrics = Metrics::of(&kp.address(), "/metrics");
        value(&metrics, "kp_peer_idle_connections") == 0.0
            && metrics.value("kp_upstream_connections_active") == 0.0
    });
}

/// Shows: metrics
#[test]
fn without_metrics_only_kp_as_a_whole_is_counted() {
    let origin = origin();
    let kp = start(&origin, "metrics off;");
    assert_eq!(ask(&kp, "shop.test", "/"), 200);
    let metrics = Metrics::of(&kp.address(), "/metrics");
    metrics.assert_well_formed();
    assert_eq!(metrics.value("kp_connections_accepted_total"), 2.0);
    assert_eq!(metrics.value("kp_upstream_connects_total"), 1.0);
    for label in ["server=\"", "upstream=\"", "peer=\""] {
        assert!(!metrics.text().contains(label), "{}", metrics.text());
    }
}

/// While nothing happens the loop waits, and while it works it does not.
#[test]
fn the_loop_knows_how_busy_it_is() {
    let origin = origin();
    let kp = start(&origin, "");
    let spent = || {
        let metrics = Metrics::of(&kp.address(), "/metrics");
        ["busy", "waiting"].map(|how| metrics.value(&format!("kp_loop_{how}_seconds_total")))
    };
    let [busy, waiting] = spent();
    let mut idle = spent();
    wait::until(LIMIT, "a second of waiting", || {
        idle = spent();
        idle[1] - waiting >= 1.0
    });
    let part = (idle[0] - busy) / (idle[1] - waiting);
    assert!(
        (0.0..0.5).contains(&part),
        "{part} of a loop that has nothing to do"
    );
    for _ in 0..200 {
        ask(&kp, "shop.test", "/here");
    }
    let worked = spent();
    assert!(worked[0] > idle[0] && worked[1] > idle[1]);
}
