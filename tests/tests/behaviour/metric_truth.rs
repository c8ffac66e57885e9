//! What numbers must not say: that tunnels are slow answers, that health checks are attempts, that a peer whose failures are
//! quick has none. And what they must: as many bytes as went over the wire, names as they are.

use kp_tests::origin::response;
use kp_tests::tls::{Authority, Kind, valid};
use kp_tests::{Client, End, Kp, Metrics, Origin, Port, Setup, ask, wait};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

const TEXT: &str = "%MAIN%
http {
    access_log access.log;
    upstream u { %UPSTREAM% }
    server { listen %LISTEN%; server_name a.test;
        location / { proxy_pass http://u; proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection; }
        location /closed { return 444; }
        %SERVER%
    }
    server { listen %METRICS%; server_name m.test; location / { metrics; } }
    %HTTP%
}
";

fn start(upstream: &str, server: &str) -> (Kp, String) {
    let port = Port::take();
    let address = port.address();
    let setup = Setup::new(TEXT).with("METRICS", &address);
    (setup.upstream(upstream).server(server).start(), address)
}

/// The page, once `name` with these labels is at least so much: what is counted at the end of a request comes after its
/// client has the answer.
fn page(address: &str, name: &str, labels: &[&str], at_least: f64) -> Metrics {
    let mut page = Metrics::of(address, "/");
    wait::until(LIMIT, name, || {
        page = Metrics::of(address, "/");
        page.sum(name, labels) >= at_least
    });
    page
}

/// A tunnel is a request with status 101, its bytes are bytes, and how long it was used is nobody's latency.
#[test]
fn a_tunnel_is_no_slow_answer() {
    let origin = Origin::start(|conversation| {
        let head = conversation.head()?;
        if head.field("upgrade").is_none() {
            return conversation.send(response(200, b"ok"));
        }
        conversation.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        )?;
        conversation.read_at_least(4)?;
        conversation.send("pong-pong")?;
        conversation.read_at_least(1000)?;
        Ok(())
    });
    let (kp, metrics) = start(&format!("server {};", origin.address()), "");
    assert_eq!(kp.get("/").status(), 200);
    let mut tunnel = kp.client();
    let upgrade = "GET /t HTTP/1.1\r\nHost: a.test\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
    assert_eq!(tunnel.ask(upgrade).status(), 101);
    tunnel.send("ping");
    assert_eq!(tunnel.read_exactly(9, LIMIT), b"pong-pong");
    let during = Metrics::of(&metrics, "/");
    let held =
        ["kp_tunnels_active", "kp_peer_requests_in_flight"].map(|name| during.sum(name, &[]));
    assert_eq!(held, [1.0, 1.0]);
    drop(tunnel);
    let server = ["server=\"a.test\""];
    let after = page(&metrics, "kp_http_requests_total", &server, 2.0);
    let sum = |name: &str| after.sum(name, &[]);
    assert_eq!(after.sum("kp_http_requests_total", &["a.test", "1xx"]), 1.0);
    assert_eq!(sum("kp_peer_attempts_total"), 2.0);
    assert_eq!(after.sum("kp_peer_attempts_total", &["1xx"]), 1.0);
    for name in ["kp_tunnels_active", "kp_peer_requests_in_flight"] {
        assert_eq!(sum(name), 0.0, "{name}");
    }
    let times = after.sum("kp_http_request_duration_seconds_count", &server);
    let answers = sum("kp_upstream_response_duration_seconds_count");
    assert_eq!((times, answers), (1.0, 1.0));
    assert_eq!(sum("kp_peer_head_duration_seconds_count"), 2.0);
    assert!(after.sum("kp_http_sent_bytes_total", &server) > 9.0);
}

/// A socket that nobody listens at says so at once: that is a failure like those that take longer, in the totals, of the
/// peer and in the log.
#[test]
fn a_failure_without_waiting_is_one() {
    let origin = Origin::ok();
    let upstream = format!(
        "server unix:%DIR%/no.sock fail_timeout=1h; server {} backup;",
        origin.address()
    );
    let (kp, metrics) = start(&upstream, "");
    for _ in 0..3 {
        assert_eq!(kp.get("/").status(), 200);
    }
    let page = page(&metrics, "kp_http_requests_total", &["a.test", "2xx"], 3.0);
    for name in [
        "kp_upstream_peers_disabled_total",
        "kp_upstream_rests_total",
        "kp_upstream_connect_failures_total",
        "kp_peer_connect_failures_total",
        "kp_peer_failures_total",
        "kp_upstream_retries_total",
        "kp_upstream_repeated_attempts_total",
    ] {
        assert_eq!(page.sum(name, &[]), 1.0, "{name}");
    }
    let state = page.sum("kp_peer_state", &["no.sock", "state=\"resting\""]);
    assert_eq!(state, 1.0);
    // When it failed does not change, however often one asks.
    let failed = |page: &Metrics| page.sum("kp_peer_last_failure_timestamp_seconds", &["no.sock"]);
    assert!(days_until(failed(&page)).abs() < 0.1);
    for _ in 0..30 {
        assert_eq!(failed(&Metrics::of(&metrics, "/")), failed(&page));
    }
    kp.wait_error("upstream server temporarily disabled");
}

/// One that does not answer the handshake in time did not open either.
#[test]
fn who_is_not_connected_to_in_time_did_not_open() {
    let (_full, address, _fill) = super::ctl::unreachable();
    let upstream = format!("server {address};");
    let (kp, metrics) = start(&upstream, "proxy_connect_timeout 100ms;");
    assert_eq!(kp.get("/").status(), 504);
    let page = page(&metrics, "kp_http_requests_total", &["a.test", "5xx"], 1.0);
    for name in [
        "kp_upstream_connect_failures_total",
        "kp_peer_connect_failures_total",
        "kp_timeouts_upstream_connect_total",
    ] {
        assert_eq!(page.sum(name, &[]), 1.0, "{name}");
    }
}

#[test]
fn checks_are_no_attempts() {
    let origin = Origin::ok();
    let upstream = format!("server {};", origin.address());
    let (_kp, metrics) = start(
        &upstream,
        "location /c { proxy_pass http://u; health_check interval=100ms; }",
    );
    let page = page(&metrics, "kp_health_checks_passed_total", &[], 3.0);
    for name in [
        "kp_peer_attempts_total",
        "kp_peer_connects_total",
        "kp_peer_received_bytes_total",
        "kp_upstream_connects_total",
        "kp_upstream_received_bytes_total",
        "kp_upstream_sent_bytes_total",
    ] {
        assert_eq!(page.sum(name, &[]), 0.0, "{name}");
    }
}

/// Pipelined requests, HEAD, HTTP/1.0, a request line that is none, `return 444`: each is one request of its class with one
/// time, and bytes are those of the wire.
#[test]
fn every_kind_of_request_is_one_and_bytes_are_those_of_the_wire() {
    let origin = Origin::ok();
    let (kp, metrics) = start(&format!("server {};", origin.address()), "");
    let (mut sent, mut got) = (0, 0);
    for text in [
        "GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\nHEAD /2 HTTP/1.1\r\nHost: a.test\r\n\r\n\
         POST /3 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        "GET /4 HTTP/1.0\r\n\r\n",
        "GET  /5 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "GET /closed HTTP/1.1\r\nHost: a.test\r\n\r\n",
    ] {
        let mut client = Client::connect(&kp.address());
        client.send(text);
        let (bytes, end) = client.read_to_end(LIMIT);
        assert_eq!(end, End::Closed, "{text}");
        sent += text.len();
        got += bytes.len();
    }
    let server = ["server=\"a.test\""];
    let page = page(&metrics, "kp_http_requests_total", &server, 6.0);
    let class = |class: &str| page.sum("kp_http_requests_total", &["a.test", class]);
    assert_eq!(["2xx", "4xx", "5xx"].map(class), [4.0, 2.0, 0.0]);
    let of_server = |name: &str| page.sum(name, &server);
    assert_eq!(of_server("kp_http_request_duration_seconds_count"), 6.0);
    assert_eq!(of_server("kp_http_received_bytes_total"), sent as f64);
    assert_eq!(of_server("kp_http_sent_bytes_total"), got as f64);
    assert_eq!(page.sum("kp_peer_attempts_total", &["2xx"]), 4.0);
    page.assert_well_formed();
}

/// Of a name that a label can hold every sign comes through, however odd.
#[test]
fn odd_names_are_whole() {
    let (kp, metrics) = start(
        "server 'unix:/tmp/a\"b\\\\c d,{}é'; server 127.0.0.1:9 down;",
        "",
    );
    assert_eq!(kp.get("/").status(), 502);
    let page = page(&metrics, "kp_http_requests_total", &["a.test"], 1.0);
    page.assert_well_formed();
    let peer = r#"kp_peer_connects_total{upstream="u",peer="unix:/tmp/a\"b\\c d,{}é"}"#;
    assert_eq!(page.value(peer), 1.0);
}

/// Days from now until a moment.
fn days_until(unix_s: f64) -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    (unix_s - now.expect("after 1970").as_secs_f64()) / 86_400.0
}

/// What is shown to upstreams, who is trusted, what was revoked: all of it ends, and each is told of by its directive. Only
/// kp's own certificates and lists are a problem when they are over: a file of authorities has old ones for years.
#[test]
fn files_that_end_are_told_of() {
    let (site, old) = (Authority::new("site"), Authority::new("old"));
    let own = site.issue_as(Kind::Ecdsa, &["a.test"], |params| valid(params, -1, 200));
    let shown = site.issue_as(Kind::Ecdsa, &["kp"], |params| valid(params, -1, 5));
    let server = "ssl_certificate own.crt; ssl_certificate_key own.key; ssl_verify_client optional;
        ssl_client_certificate both.crt; ssl_crl list.crl;
        location /up { proxy_pass https://127.0.0.1:1; proxy_ssl_certificate shown.crt; proxy_ssl_certificate_key shown.key;
            proxy_ssl_verify on; proxy_ssl_trusted_certificate site.crt; }
        location /status { status; }";
    let port = Port::take();
    let kp = Setup::new(TEXT)
        .with("METRICS", port.address())
        .upstream("server 127.0.0.1:1;")
        .http(&format!(
            "server {{ listen {} ssl; {server} }}",
            Port::take().address()
        ))
        .server("location /status { status; }")
        .file("own.crt", own.certificate)
        .file("own.key", own.key)
        .file("shown.crt", shown.certificate)
        .file("shown.key", shown.key)
        .file("both.crt", site.pem() + &old.pem())
        .file("site.crt", site.pem())
        .file("list.crl", site.revoke(&[7]))
        .allow("expires in")
        .start();
    let page = Metrics::of(&port.address(), "/");
    page.assert_well_formed();
    let end = |family: &str, file: &str, directive: &str| {
        let file = kp.path(file);
        let labels = format!("file=\"{}\",directive=\"{directive}\"", file.display());
        days_until(page.value(&format!("kp_{family}_timestamp_seconds{{{labels}}}"))).round()
    };
    let certificate = |file, directive| end("certificate_expiry", file, directive);
    assert_eq!(certificate("own.crt", "ssl_certificate"), 200.0);
    assert_eq!(certificate("shown.crt", "proxy_ssl_certificate"), 5.0);
    assert_eq!(certificate("both.crt", "ssl_client_certificate"), 3650.0);
    assert_eq!(
        certificate("site.crt", "proxy_ssl_trusted_certificate"),
        3650.0
    );
    assert_eq!(end("crl_next_update", "list.crl", "ssl_crl"), 30.0);

    let picture = ask::status(&kp.address(), "/status?format=json");
    let told = picture["certificates"].as_array().expect("certificates");
    let told: Vec<_> = told.iter().map(|one| one["directive"].clone()).collect();
    assert_eq!(
        told,
        [
            "proxy_ssl_certificate",
            "ssl_crl",
            "ssl_certificate",
            "ssl_client_certificate",
            "proxy_ssl_trusted_certificate",
        ]
    );
    let problems = picture["problems"].as_array().expect("problems").iter();
    let of_certificates = problems.filter(|one| one["about"] == "certificate");
    let of_certificates: Vec<_> = of_certificates.map(|one| one["level"].clone()).collect();
    assert_eq!(of_certificates, ["warning"], "the one that is shown");
    let said = kp.command(&["status"]);
    assert!(said.stdout.contains("shown.crt"), "{said:?}");
}

/// As many as /proc shows, of which sockets are some.
#[test]
fn descriptors_are_those_of_the_process() {
    let (kp, metrics) = start("server 127.0.0.1:1;", "location /status { status; }");
    let held: Vec<Client> = (0..20).map(|_| kp.client()).collect();
    let labels = "{generation=\"1\",slot=\"0\"}";
    let listed = || std::fs::read_dir(format!("/proc/{}/fd", kp.worker_pid())).map(Iterator::count);
    wait::until(LIMIT, "as many as /proc shows", || {
        let before = listed().expect("a worker");
        let page = Metrics::of(&metrics, "/");
        // The page's own connection comes and goes.
        let open = page.value(&format!("kp_worker_open_fds{labels}"));
        page.value("kp_connections_active") >= 21.0
            && open > page.value("kp_descriptors_open")
            && (before as f64 - open).abs() <= 2.0
    });
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", kp.worker_pid()));
    let limits = limits.expect("limits");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    let page = Metrics::of(&metrics, "/");
    let told = page.value(&format!("kp_worker_max_fds{labels}"));
    assert_eq!(Some(told), soft.and_then(|soft| soft.parse().ok()));
    let picture = ask::status(&kp.address(), "/status?format=json");
    let worker = &picture["workers"][0];
    assert_eq!(worker["max_fds"].as_f64(), Some(told));
    assert!(worker["open_fds"].as_u64() > Some(20), "{worker}");
    drop(held);
}
