//! The page that Prometheus reads: its form, who may read it, and what it says.

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
    let openmetrics = "GET /metrics HTTP/1.1\r\nHost: t\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n";
    Metrics::new(&client.ask(openmetrics)).assert_well_formed();
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
