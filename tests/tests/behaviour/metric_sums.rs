//! What the page for Prometheus says against what clients and origins have counted themselves, over reloads and crashes.

use kp_tests::ask;
use kp_tests::dns::Dns;
use kp_tests::tls::{Authority, Connector};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kind, Load, LoadOrigin, Metrics, Mix, Origin, Port, Setup};
use std::time::Duration;

/// A site under load, and the page at an address of its own.
const SITE: &str = "%MAIN%
http {
    upstream u { zone u 64k; server %U1%; server %U2%; keepalive 8; }
    server { listen %LISTEN%; server_name a.test; location / { proxy_pass http://u; } }
    server { listen %METRICS%; server_name m.test; location / { metrics; } }
}
";

/// Looks at the page again and again: what only grows must.
struct Watch {
    address: String,
    last: Metrics,
    looks: u32,
}

impl Watch {
    fn new(address: String) -> Self {
        let last = Metrics::of(&address, "/");
        Self {
            address,
            last,
            looks: 1,
        }
    }

    fn look(&mut self) -> &Metrics {
        let now = Metrics::of(&self.address, "/");
        let back = now.gone_back_since(&self.last);
        assert!(back.is_empty(), "went back: {back:?}");
        self.looks += 1;
        self.last = now;
        &self.last
    }

    /// Looks all the time until that many more answers have come.
    fn during(&mut self, load: &Load, answers: u64) {
        let goal = load.answered() + answers;
        wait::until(SOON, "answers", || {
            self.look();
            load.answered() >= goal
        });
    }

    /// Looks until a virtual host has so many requests, which must be all.
    fn wait_for(&mut self, server: &str, count: u64) {
        let sum = |page: &Metrics| page.sum("kp_http_requests_total", &[server]) as u64;
        wait::happens(Duration::from_secs(20), || sum(self.look()) >= count);
        assert_eq!(sum(&self.last), count, "{server}");
    }

    /// All requests but those of the page itself, once nothing is under way.
    fn settled(&mut self) -> u64 {
        wait::until(SOON, "all requests to be over", || {
            let page = self.look();
            // The one for the page is.
            page.value("kp_requests_active") <= 1.0
        });
        let of = |name: &str| self.last.sum("kp_http_requests_total", &[name]) as u64;
        of("server=\"a.test\"") + of("server=\"s.test\"")
    }

    /// The requests of the site, once there are so many: a request is counted after its client has the answer.
    fn requests(&mut self, at_least: u64) -> u64 {
        let sum =
            |page: &Metrics| page.sum("kp_http_requests_total", &["server=\"a.test\""]) as u64;
        wait::happens(Duration::from_secs(20), || sum(self.look()) >= at_least);
        sum(&self.last)
    }
}

fn load(address: &str) -> Load {
    let mix = Mix::new(address)
        .clients(Kind::Post, 6)
        .clients(Kind::Close, 4);
    mix.pace(Duration::from_millis(5)).start()
}

#[test]
fn sums_are_what_clients_and_origins_count() {
    let origins = [LoadOrigin::start(), LoadOrigin::start()];
    let port = Port::take();
    let kp = Setup::new(SITE)
        .with("U1", origins[0].address())
        .with("U2", origins[1].address())
        .with("METRICS", port.address())
        .main("worker_processes 2;")
        .allow("exited on signal 9")
        .start();
    kp.wait_workers(2);
    let mut watch = Watch::new(port.address());

    let under_way = load(&kp.address());
    for _ in 0..3 {
        watch.during(&under_way, 100);
        kp.reload();
    }
    watch.during(&under_way, 100);
    let report = under_way.stop();
    report.assert_nothing_lost();
    let answered = report.answered();
    assert_eq!(watch.requests(answered), answered);
    let page = &watch.last;
    page.assert_well_formed();
    let all = answered as f64;
    assert_eq!(
        page.value("kp_http_requests_total{server=\"a.test\",status=\"2xx\"}"),
        all
    );
    assert_eq!(
        page.value("kp_http_request_duration_seconds_count{server=\"a.test\"}"),
        all
    );
    for origin in &origins {
        let peer = format!("peer=\"{}\"", origin.address());
        let received = origin.requests() as f64;
        assert_eq!(page.sum("kp_peer_attempts_total", &[&peer]), received);
        assert_eq!(
            page.sum("kp_peer_head_duration_seconds_count", &[&peer]),
            received
        );
        assert_eq!(page.sum("kp_peer_requests_in_flight", &[&peer]), 0.0);
    }
    let used = page.sum("kp_peer_connects_total", &[]) + page.sum("kp_peer_reuses_total", &[]);
    assert_eq!(used, all, "every attempt has a connection, new or kept");
    assert_eq!(
        page.value("kp_upstream_response_duration_seconds_count{upstream=\"u\"}"),
        all
    );
    assert_eq!(page.value("kp_reloads_total{result=\"ok\"}"), 3.0);

    // A worker that is killed takes with it what it was working on: of its own requests those are counted whose answers
    // were out. Between an answer's last byte and its count it may be stopped, so that one answer may be missing.
    let before = watch.requests(answered);
    let under_way = load(&kp.address());
    watch.during(&under_way, 100);
    assert!(under_way.kill(kp.worker_pids()[0]));
    watch.during(&under_way, 150);
    kp.wait_workers(2);
    let report = under_way.stop();
    report.assert_nothing_lost();
    let (answered, lost) = (report.answered(), report.forgiven.len() as u64);
    let counted = watch.requests(before + answered) - before;
    assert!(
        (answered - 1..=answered + lost).contains(&counted),
        "{answered} answers, {lost} lost with the worker, {counted} counted"
    );

    // From then on it is exact again.
    let before = before + counted;
    let report = {
        let under_way = load(&kp.address());
        watch.during(&under_way, 100);
        under_way.stop()
    };
    report.assert_nothing_lost();
    assert_eq!(
        watch.requests(before + report.answered()),
        before + report.answered()
    );
    assert!(watch.looks > 30, "{}", watch.looks);
}

/// Two virtual hosts in front of a group that is changed, and what is told of them.
const CHANGED: &str = "%MAIN%
http {
    upstream u { zone u 64k; server %A%; server %B%; keepalive 8; }
    server { listen %LISTEN%; server_name a.test; location / { proxy_pass http://u; } }
    server { listen unix:%DIR%/site.sock; server_name s.test; location / { proxy_pass http://u; } }
    server {
        listen %METRICS%;
        server_name m.test;
        location / { metrics; }
        location /status { status; }
    }
}
";

/// Reloads, changes of every kind, and in the end a worker that is killed: sums are those of the clients and the origins.
#[test]
fn sums_hold_while_upstreams_are_changed() {
    let origins = [0, 1, 2].map(|_| LoadOrigin::start());
    let [a, b, c] = [0, 1, 2].map(|n| origins[n].address());
    let port = Port::take();
    let kp = Setup::new(CHANGED)
        .with("A", &a)
        .with("B", &b)
        .with("METRICS", port.address())
        .main("worker_processes 2;")
        .allow("exited on signal 9")
        .start();
    kp.wait_workers(2);
    let mut watch = Watch::new(port.address());
    let start = || {
        let mix = Mix::new(&kp.address()).unix(&kp.path("site.sock"), 3);
        let mix = mix.clients(Kind::Post, 4).clients(Kind::Close, 3);
        mix.pace(Duration::from_millis(5)).start()
    };
    let steps = [
        vec![format!("peer weight u {a} 3")],
        vec![format!("peer add u {c} weight=2")],
        vec![
            format!("peer drain u {b}"),
            format!("peer max_conns u {a} 90"),
        ],
        vec![format!("peer remove u {a}")],
        vec![format!("peer weight u {c} 5"), format!("peer up u {b}")],
        vec![format!("reset u {a}")],
    ];
    let under_way = start();
    for (number, step) in steps.iter().enumerate() {
        let words: Vec<&str> = step.iter().map(String::as_str).collect();
        ask::change(&kp, &words);
        watch.during(&under_way, 60);
        if number % 2 == 1 {
            kp.reload();
        }
    }
    let report = under_way.stop();
    report.assert_nothing_lost();
    let by_unix = report.of(Kind::Unix);
    let by_tcp = report.answered() - by_unix;
    watch.wait_for("server=\"s.test\"", by_unix);
    watch.wait_for("server=\"a.test\"", by_tcp);
    for origin in &origins {
        let attempts = format!("peer=\"{}\"", origin.address());
        let counted = watch.last.sum("kp_peer_attempts_total", &[&attempts]);
        assert_eq!(counted, origin.requests() as f64, "{attempts}");
    }
    assert_status_agrees(&watch.last, &ask::status(&port.address(), "/status.json"));

    // A worker that is killed while weights change: what it had answered, and at most one answer more or less, is counted.
    let under_way = start();
    watch.during(&under_way, 50);
    ask::change(&kp, &[&format!("peer weight u {b} 4")]);
    assert!(under_way.kill(kp.worker_pids()[0]));
    ask::change(&kp, &[&format!("peer weight u {b} 1")]);
    watch.during(&under_way, 100);
    kp.wait_workers(2);
    let report = under_way.stop();
    report.assert_nothing_lost();
    let (answered, lost) = (report.answered(), report.forgiven.len() as u64);
    let known = by_unix + by_tcp;
    let counted = watch.settled() - known;
    assert!(
        (answered - 1..=answered + lost).contains(&counted),
        "{answered} answers, {lost} lost with the worker, {counted} counted"
    );
    let received: u64 = origins.iter().map(LoadOrigin::requests).sum();
    let attempts = watch
        .last
        .sum("kp_peer_attempts_total", &["upstream=\"u\""]) as u64;
    assert!(
        (received - lost - 1..=received).contains(&attempts),
        "{received} received, {lost} lost with the worker, {attempts} counted"
    );
    assert_status_agrees(&watch.last, &ask::status(&port.address(), "/status.json"));
}

/// The page has the numbers of the metrics.
fn assert_status_agrees(metrics: &Metrics, status: &serde_json::Value) {
    for name in ["a.test", "s.test"] {
        let server = ask::entry(&status["servers"], "server", name);
        let label = format!("server=\"{name}\"");
        let sample = format!("kp_http_requests_total{{{label},status=\"2xx\"}}");
        assert_eq!(
            server["responses"]["2xx"].as_f64(),
            Some(metrics.value(&sample))
        );
        for (field, family) in [
            ("bytes_in", "kp_http_received_bytes_total"),
            ("bytes_out", "kp_http_sent_bytes_total"),
        ] {
            let sample = format!("{family}{{{label}}}");
            assert_eq!(
                server[field].as_f64(),
                Some(metrics.value(&sample)),
                "{sample}"
            );
        }
    }
    // Not even those that a killed worker had.
    assert_eq!(metrics.sum("kp_peer_requests_in_flight", &[]), 0.0);
    let group = ask::entry(&status["upstreams"], "upstream", "u");
    for peer in group["peers"].as_array().expect("peers") {
        let label = format!("upstream=\"u\",peer={}", peer["peer"]);
        for (field, family) in [
            ("connects", "kp_peer_connects_total"),
            ("reuses", "kp_peer_reuses_total"),
            ("bytes_in", "kp_peer_received_bytes_total"),
            ("bytes_out", "kp_peer_sent_bytes_total"),
            ("in_flight", "kp_peer_requests_in_flight"),
        ] {
            let sample = format!("{family}{{{label}}}");
            assert_eq!(
                peer[field].as_f64(),
                Some(metrics.value(&sample)),
                "{sample}"
            );
        }
        let sample = format!("kp_peer_attempts_total{{{label},status=\"2xx\"}}");
        assert_eq!(
            peer["attempts"]["2xx"].as_f64(),
            Some(metrics.value(&sample)),
            "{sample}"
        );
    }
}

/// Everything that has numbers.
const BUSY: &str = "worker_processes 2;
http {
    limit_req_zone $arg_who zone=rate:1m rate=1r/m;
    resolver %DNS% ipv6=off;
    upstream zoned { zone zoned 64k; server %U1%; server %NOBODY%; }
    upstream plain { server %U1% weight=3; server %U1% backup; server 127.0.0.1:9 down; }
    upstream named { zone named 64k; server app.test:%PORT% resolve; }
    upstream failing { server %NOBODY%; }
    server {
        listen %LISTEN% ssl;
        server_name a.test;
        ssl_certificate a.crt;
        ssl_certificate_key a.key;
        location / { proxy_pass http://zoned; proxy_next_upstream error timeout; }
        location /checked { proxy_pass http://zoned; health_check interval=100ms fails=2; }
        location /plain { proxy_pass http://plain; }
        location /named { proxy_pass http://named; }
        location /limited { limit_req zone=rate; proxy_pass http://plain; }
        location /failing { proxy_pass http://failing; }
        location /gone { root /nonexistent; }
    }
    server { listen %LISTEN% ssl; server_name ~^b\\d+\\.test$ \"*.c.test\"; ssl_certificate a.crt; ssl_certificate_key a.key; return 204; }
    server { listen %METRICS%; location / { metrics; } }
}
";

#[test]
fn prometheus_has_nothing_to_complain_of() {
    let origin = Origin::ok();
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let authority = Authority::default();
    let pair = authority.issue(&["a.test", "b1.test"]);
    let (port, nobody) = (Port::take(), Port::take());
    let kp = Setup::new(BUSY)
        .with("U1", origin.address())
        .with("NOBODY", nobody.address())
        .with("DNS", dns.address())
        .with("PORT", origin.port().to_string())
        .with("METRICS", port.address())
        .file("a.crt", pair.certificate.clone())
        .file("a.key", pair.key.clone())
        .start();
    let mut client = Client::secure(&kp.address(), &Connector::new(&authority, "a.test"));
    let mut ask = |path: &str| {
        client
            .ask(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
            .status()
    };
    for _ in 0..4 {
        assert_eq!(ask("/"), 200);
    }
    for path in ["/checked", "/plain"] {
        assert_eq!(ask(path), 200);
    }
    wait::until(SOON, "an address", || ask("/named") == 200);
    assert_eq!((ask("/limited?who=me"), ask("/limited?who=me")), (200, 503));
    assert_eq!((ask("/gone"), ask("/failing")), (404, 502));
    let mut other = Client::secure(&kp.address(), &Connector::new(&authority, "b1.test"));
    assert_eq!(
        other
            .ask("GET / HTTP/1.1\r\nHost: b1.test\r\n\r\n")
            .status(),
        204
    );
    let dead = format!("upstream=\"zoned\",peer=\"{}\"", nobody.address());
    wait::until(SOON, "the check to fail", || {
        let page = Metrics::of(&port.address(), "/");
        page.value(&format!("kp_peer_state{{{dead},state=\"unhealthy\"}}")) == 1.0
    });
    let page = Metrics::of(&port.address(), "/");
    page.assert_well_formed();
    assert_eq!(page.value(&format!("kp_peer_up{{{dead}}}")), 0.0);
    let alive = format!("upstream=\"zoned\",peer=\"{}\"", origin.address());
    assert_eq!(page.value(&format!("kp_peer_up{{{alive}}}")), 1.0);
    assert_eq!(
        page.value(&format!("kp_peer_attempts_total{{{alive},status=\"2xx\"}}")),
        5.0
    );
    assert_eq!(
        page.value("kp_peer_up{upstream=\"plain\",peer=\"127.0.0.1:9\"}"),
        0.0
    );
    assert_eq!(
        page.value("kp_peer_state{upstream=\"plain\",peer=\"127.0.0.1:9\",state=\"down\"}"),
        1.0
    );
    let named = format!(
        "kp_peer_up{{upstream=\"named\",peer=\"{}\"}}",
        origin.address()
    );
    assert_eq!(page.value(&named), 1.0);
    assert_eq!(
        page.value("kp_http_requests_total{server=\"~^b\\\\d+\\\\.test$\",status=\"2xx\"}"),
        1.0
    );
    assert!(page.value("kp_http_requests_total{server=\"_\",status=\"2xx\"}") >= 1.0);
    assert_eq!(
        page.value("kp_http_requests_total{server=\"a.test\",status=\"4xx\"}"),
        1.0
    );
    assert_eq!(page.value("kp_requests_limited_total"), 1.0);
    assert_eq!(
        page.value("kp_failures_total{reason=\"rate_limited\",side=\"client\"}"),
        1.0
    );
    assert_eq!(
        page.value("kp_failures_total{reason=\"file_not_found\",side=\"client\"}"),
        1.0
    );
    assert!(page.value("kp_tls_handshakes_total") >= 2.0);
    assert!(page.value("kp_dns_answers_total") >= 1.0);
    assert!(page.value("kp_health_checks_failed_total") >= 2.0);
    let failing = format!("upstream=\"failing\",peer=\"{}\"", nobody.address());
    assert_eq!(
        page.value(&format!(
            "kp_peer_attempts_total{{{failing},status=\"none\"}}"
        )),
        1.0
    );
    assert_eq!(
        page.value(&format!("kp_peer_connect_failures_total{{{failing}}}")),
        1.0
    );
    assert_eq!(
        page.value("kp_failures_total{reason=\"connect_failed\",side=\"upstream\"}"),
        1.0
    );
    let at = page.value(&format!(
        "kp_peer_last_failure_timestamp_seconds{{{failing}}}"
    ));
    assert!((at - now_unix_s()).abs() < 120.0, "{at}");
    let file = format!(
        "kp_certificate_expiry_timestamp_seconds{{file=\"{}\",directive=\"ssl_certificate\"}}",
        kp.path("a.crt").display()
    );
    assert!(page.value(&file) > now_unix_s());
}

fn now_unix_s() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs_f64()
}

#[test]
fn the_master_s_facts() {
    let origin = Origin::ok();
    let port = Port::take();
    let setup = || {
        Setup::new(SITE)
            .with("U1", origin.address())
            .with("U2", origin.address())
            .with("METRICS", port.address())
    };
    let kp = setup().allow("unknown directive").start();
    let page = Metrics::of(&port.address(), "/");
    let generation = page.value("kp_generation");
    assert_eq!(page.sum("kp_reloads_total", &[]), 0.0);
    assert!(!page.has("kp_last_reload_successful"));
    let started = page.value("kp_start_time_seconds");
    kp.reload();
    let page = Metrics::of(&port.address(), "/");
    assert_eq!(page.value("kp_start_time_seconds"), started);
    assert_eq!(page.value("kp_generation"), generation + 1.0);
    assert_eq!(page.value("kp_reloads_total{result=\"ok\"}"), 1.0);
    assert_eq!(page.value("kp_last_reload_successful"), 1.0);
    assert!(page.value("kp_last_reload_timestamp_seconds") >= started);
    kp.configure(&setup().main("nonsense;"));
    kp.signal(nix::sys::signal::Signal::SIGHUP);
    kp.wait_error("nonsense");
    wait::until(SOON, "the failed reload", || {
        let page = Metrics::of(&port.address(), "/");
        page.value("kp_reloads_total{result=\"failed\"}") == 1.0
            && page.value("kp_last_reload_successful") == 0.0
            && page.value("kp_generation") == generation + 1.0
    });
}
