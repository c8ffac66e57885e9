//! The page that Prometheus reads: its form, who may read it, and what it says.

use std::time::Duration;

use kp_tests::tls::{Authority, Connector};
use kp_tests::{Client, Metrics, Origin, Port, Response, Setup};

const PAGE: &str = "%MAIN%
http {
    %HTTP%
    upstream u { server %U1%; %UPSTREAM% }
    server {
        listen %LISTEN%;
        server_name a.test;
        %SERVER%
        location / { proxy_pass http://u; %LOCATION% }
        location = /metrics { metrics; %METRICS% }
    }
}
";

fn page(origin: &Origin, metrics: &str) -> Setup {
    let setup = Setup::new(PAGE).with("U1", origin.address());
    setup.with("METRICS", metrics)
}

fn from(address: &str, client: &str) -> Response {
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: t\r\nX-Real-IP: {client}\r\nConnection: close\r\n\r\n"
    );
    Client::connect(address).ask(request)
}

/// Shows: metrics
#[test]
fn the_page_is_prometheus_text() {
    let origin = Origin::ok();
    let kp = page(&origin, "").start();
    assert_eq!(kp.get("/").status(), 200);
    let metrics = Metrics::of(&kp.address(), "/metrics");
    metrics.assert_well_formed();
    assert_eq!(metrics.value("kp_connections_accepted_total"), 2.0);
    assert_eq!(metrics.value("kp_connections_active"), 1.0);
    assert_eq!(metrics.value("kp_workers{state=\"ready\"}"), 1.0);
    assert_eq!(metrics.value("kp_generations{state=\"ready\"}"), 1.0);
    let version = concat!("kp_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    assert_eq!(metrics.value(version), 1.0);
    let memory = metrics.sum("kp_worker_resident_memory_bytes", &["slot=\"0\""]);
    assert!((1e6..1e9).contains(&memory), "{memory}");
    assert!((1e6..1e9).contains(&metrics.value("kp_master_resident_memory_bytes")));
    let mut client = kp.client();
    // What Prometheus 2.42 asks for; plain text is the third of four.
    let openmetrics = "GET /metrics HTTP/1.1\r\nHost: t\r\nAccept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\nAccept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n";
    let scraped = client.ask(openmetrics);
    assert_eq!(scraped.field("content-encoding"), None);
    Metrics::new(&scraped).assert_well_formed();
    client.send("HEAD /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
    let head = client.response_to("HEAD");
    assert!(
        head.field("content-length")
            .is_some_and(|length| length.len() > 3)
    );
    let refused = client.ask("DELETE /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(
        (refused.status(), refused.field("allow")),
        (405, Some("GET, HEAD"))
    );
    assert_eq!(
        client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status(),
        200
    );
}

/// Whoever sums up failures must not see the scrapes, checks and redirects that somebody configured.
#[test]
fn what_the_configuration_asks_for_is_no_failure() {
    let origin = Origin::ok();
    let kp = page(&origin, "")
        .server("location = /old { return 301 /new; } location = /health { health; }")
        .server("location = /off { return 503; } location = /status { status; }")
        .server("location = /none { deny all; }")
        .start();
    for (target, status) in [
        ("/old", 301),
        ("/off", 503),
        ("/health", 200),
        ("/status?format=json", 200),
    ] {
        assert_eq!(kp.get(target).status(), status, "{target}");
    }
    let before = Metrics::of(&kp.address(), "/metrics");
    assert_eq!(before.sum("kp_failures_total", &[]), 0.0);
    let configured = |page: &Metrics, reason| page.value(&Metrics::of_reason(reason, "config"));
    assert_eq!(configured(&before, "return"), 2.0);
    assert_eq!(configured(&before, "page"), 2.0);
    assert!(!before.text().contains("side=\"config\""));
    assert_eq!(kp.get("/none").status(), 403);
    let after = Metrics::of(&kp.address(), "/metrics");
    assert_eq!(after.sum("kp_failures_total", &[]), 1.0);
    assert_eq!(configured(&after, "page"), 3.0);
    kp.wait_error("[error]");
}

#[test]
fn only_this_machine_reads_the_page_unless_rules_say_otherwise() {
    let origin = Origin::ok();
    let trusting = "set_real_ip_from 127.0.0.1; set_real_ip_from unix:;";
    let kp = page(&origin, trusting).start();
    let address = kp.address();
    for (client, status) in [
        ("127.0.0.1", 200),
        ("127.9.9.9", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.1", 403),
        ("192.0.2.1", 403),
        ("2001:db8::1", 403),
        ("::ffff:192.0.2.1", 403),
    ] {
        assert_eq!(from(&address, client).status(), status, "{client}");
    }
    kp.wait_error("[error]");
    assert_eq!(
        Metrics::of(&address, "/metrics").value("kp_requests_denied_total"),
        4.0
    );
    // Rules stand for themselves, whether they say more or less.
    let kp = page(
        &origin,
        &format!("{trusting} allow 192.0.2.0/24; deny all;"),
    )
    .start();
    for (client, status) in [("192.0.2.1", 200), ("127.0.0.1", 403), ("10.0.0.1", 403)] {
        assert_eq!(from(&kp.address(), client).status(), status, "{client}");
    }
    let kp = page(&origin, trusting).server("deny 10.0.0.1;").start();
    for (client, status) in [("192.0.2.1", 200), ("10.0.0.1", 403)] {
        assert_eq!(
            from(&kp.address(), client).status(),
            status,
            "inherited: {client}"
        );
    }
}

#[test]
fn the_address_of_this_machine_is_not_enough() {
    let own = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let Some(own) = own.ok().filter(|own| !own.ip().is_loopback()) else {
        // A machine without a network has no other address.
        return;
    };
    let origin = Origin::ok();
    let port = Port::take();
    let kp = page(&origin, "")
        .server(&format!("listen *:{};", port.number()))
        .start();
    let by_network = format!("{}:{}", own.ip(), port.number());
    assert_eq!(kp_tests::client::get(&by_network, "/metrics").status(), 403);
    let local = format!("127.0.0.1:{}", port.number());
    assert_eq!(kp_tests::client::get(&local, "/metrics").status(), 200);
    drop(kp);
}

#[test]
fn unix_sockets_are_of_this_machine() {
    let origin = Origin::ok();
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("kp.sock");
    let server = format!(
        "server {{ listen unix:{}; location / {{ metrics; }} }}",
        socket.display()
    );
    let kp = page(&origin, "").http(&server).start();
    let text = kp_tests::client::get_unix(&socket);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("\nkp_build_info{"), "{text}");
    drop(kp);
}

/// Some thousand lines about peers, over TLS and without.
const MANY: &str = "http {
    upstream u { zone u 256k; %PEERS% }
    server {
        listen %LISTEN%;
        listen %TLS% ssl;
        ssl_certificate a.crt;
        ssl_certificate_key a.key;
        location / { return 204; }
        location = /metrics { metrics; }
        location = /trailers { metrics; add_trailer X-Last yes; }
        location /peers { proxy_pass http://u; }
    }
}
";

#[test]
fn a_long_page_is_sent_as_its_client_takes_it() {
    let peers: String = (1..=400)
        .map(|number| format!("server 127.0.{}.{}:9;", number / 200, number % 200 + 1))
        .collect();
    let authority = Authority::default();
    let pair = authority.issue(&["a.test"]);
    let tls = Port::take();
    let kp = Setup::new(MANY)
        .with("PEERS", peers)
        .with("TLS", tls.address())
        .file("a.crt", pair.certificate.clone())
        .file("a.key", pair.key.clone())
        .start();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
    // Who asks and does not read holds nobody up.
    let mut slow = Client::connect_narrow(&kp.address(), 8192);
    slow.send(get("/metrics"));
    kp_tests::wait::until(kp_tests::wait::SOON, "the slow client's page", || {
        slow.has_heard()
    });
    let page = Metrics::of(&kp.address(), "/metrics");
    page.assert_well_formed();
    assert!(page.text().len() > 1_000_000, "{}", page.text().len());
    assert_eq!(page.sum("kp_peer_up", &["upstream=\"u\""]), 400.0);
    assert_eq!(kp.get("/").status(), 204);
    assert_eq!(page.value("kp_requests_active"), 2.0);
    let taken = Metrics::new(&slow.response());
    assert!(taken.text().ends_with('\n') && taken.text().len() > 1_000_000);
    assert_eq!(slow.ask(get("/")).status(), 204, "the connection goes on");

    let mut client = Client::secure(&tls.address(), &Connector::new(&authority, "a.test"));
    for path in ["/metrics", "/trailers", "/metrics"] {
        let page = client.ask(get(path));
        let chunked = page.field("transfer-encoding") == Some("chunked");
        assert_eq!(chunked, path == "/trailers");
        assert!(Metrics::new(&page).text().ends_with('\n'), "{path}");
    }
    let mut old = kp.client();
    old.send("GET /metrics HTTP/1.0\r\nHost: t\r\n\r\n");
    Metrics::new(&old.response()).assert_well_formed();
    // Who goes away before the page is made, or in the middle of it, leaves nothing behind.
    for _ in 0..20 {
        let mut hasty = kp.client();
        hasty.send(get("/metrics"));
        drop(hasty);
        let mut hasty = Client::connect_narrow(&kp.address(), 8192);
        hasty.send(get("/metrics"));
        hasty.read_some(Duration::from_secs(20));
        hasty.reset();
    }
    kp_tests::wait::until(kp_tests::wait::SOON, "nothing to be left", || {
        Metrics::of(&kp.address(), "/metrics").value("kp_requests_active") == 1.0
    });
}
