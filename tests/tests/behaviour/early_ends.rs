//! Connections that end before there is a request: one way for each reason that such an end can have. The error log, the
//! metric and the last ends on the status page name the same one; the access log has nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use kp_tests::metrics::Metrics;
use kp_tests::origin::OK;
use kp_tests::tls::{Authority, Connector, Kind, valid};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Origin, Port, Setup, ask, process, tool};
use nix::sys::signal::Signal;
use rustls::version::TLS12;
use serde_json::{Value, json};

/// A listener for each kind of trouble; the page stands apart from them.
const TEXT: &str = "%MAIN%
error_log error.log info;
error_log errors.json info format=json;
http {
    access_log requests.log;
    ssl_certificate site.pem;
    ssl_certificate_key site.key;
    server { listen %LISTEN%; server_name page; location / { access_log off; status; } location /m { access_log off; metrics; } }
    server { listen %SITE% ssl default_server; server_name a.test; return 200; }
    server { listen %SITE% ssl; server_name b.test; return 200; }
    server { listen %OLD% ssl; server_name old.test; ssl_protocols TLSv1.2; ssl_ciphers ECDHE-ECDSA-AES256-GCM-SHA384; return 200; }
    server { listen %NEW% ssl; server_name new.test; ssl_protocols TLSv1.3; ssl_ecdh_curve X25519; return 200; }
    server { listen %STRICT% ssl; server_name strict.test; ssl_reject_handshake on; }
    server { listen %STRICT% ssl; server_name known.test; return 200; }
    server { listen %EXPIRED% ssl; server_name late.test; ssl_certificate late.pem; ssl_certificate_key late.key; return 200; }
    server { listen %NAMED% ssl; server_name named.test; ssl_certificate $ssl_server_name.pem; ssl_certificate_key $ssl_server_name.key; return 200; }
    server { listen %VERIFY% ssl; server_name verify.test; ssl_verify_client on; ssl_client_certificate ca.pem; return 200; }
    server { listen %QUICK% ssl; server_name quick.test; ssl_handshake_timeout 300ms; return 200; }
    server { listen %SHORT%; server_name short.test; client_header_timeout 300ms; return 200; }
    server { listen %PROXY% proxy_protocol; server_name proxy.test; return 200; }
    server { listen %HASTY% proxy_protocol; server_name hasty.test; client_header_timeout 300ms; return 200; }
    server { listen %TRUST% proxy_protocol; server_name trust.test; set_real_ip_from 192.0.2.1; return 200; }
    server { listen %ONCE%; server_name once.test; limit_accept zone=once:1m rate=1r/m; return 200; }
}
";

const PORTS: [&str; 13] = [
    "SITE", "OLD", "NEW", "STRICT", "EXPIRED", "NAMED", "VERIFY", "QUICK", "SHORT", "PROXY",
    "HASTY", "TRUST", "ONCE",
];

struct Site {
    kp: Kp,
    authority: Authority,
    ports: BTreeMap<&'static str, Port>,
}

impl Site {
    fn start() -> Self {
        let authority = Authority::default();
        let site = authority.issue(&["a.test", "b.test", "127.0.0.1"]);
        let late = authority.issue_as(Kind::Ecdsa, &["late.test"], |params| valid(params, -20, -1));
        let ports: BTreeMap<_, _> = PORTS.into_iter().map(|name| (name, Port::take())).collect();
        let mut setup = Setup::new(TEXT)
            .file("site.pem", site.certificate)
            .file("site.key", site.key)
            .file("late.pem", late.certificate)
            .file("late.key", late.key)
            .file("ca.pem", authority.pem())
            .file("strange.pem", Authority::new("another one").pem());
        for (name, port) in &ports {
            setup = setup.with(name, port.address());
        }
        let kp = setup.start();
        Self {
            kp,
            authority,
            ports,
        }
    }

    fn address(&self, port: &str) -> String {
        self.ports[port].address()
    }

    fn connector(&self, name: &str) -> Connector {
        Connector::new(&self.authority, name)
    }

    /// What a client sends first that knows nothing but TLS 1.2.
    fn old_hello(&self) -> Vec<u8> {
        Connector::version(&self.authority, "b.test", &TLS12).hello()
    }

    /// Sends these bytes, and waits for kp to close.
    fn send(&self, port: &str, bytes: &[u8]) {
        let mut client = Client::connect(&self.address(port));
        client.send(bytes);
        assert_ne!(client.end_within(SOON), End::Deadline, "{port}");
    }

    fn openssl(&self, port: &str, arguments: &[&str]) {
        let address = self.address(port);
        let all = [&["s_client", "-connect", &address], arguments].concat();
        tool::run(&self.kp.path(""), "openssl", &all, b"");
    }

    fn picture(&self) -> Value {
        ask::status(&self.kp.address(), "/status.json")
    }

    /// How often there was a reason, without the looks at the page.
    fn count(picture: &Value) -> BTreeMap<String, u64> {
        let reasons = picture["reasons"].as_array().expect("reasons").iter();
        reasons
            .filter(|one| one["reason"] != "page")
            .map(|one| {
                let count = one["count"].as_u64().expect("a count");
                (one["reason"].as_str().expect("a word").to_owned(), count)
            })
            .collect()
    }
}

/// A way to end early: the reason, `phase closed_by server`, a part of the error log's line, and how it is done.
type Row = (&'static str, &'static str, &'static str, fn(&Site));

const ROWS: &[Row] = &[
    (
        "tls_cut",
        "client_handshake client b.test",
        "peer closed connection in SSL handshake",
        |site| {
            let mut client = Client::connect(&site.address("SITE"));
            client.send(site.old_hello());
            client.read_some(SOON);
            client.half_close();
            assert_ne!(client.end_within(SOON), End::Deadline);
        },
    ),
    // Of half a hello nobody knows whom it is for.
    (
        "tls_cut",
        "client_handshake client a.test",
        "peer closed connection in SSL handshake",
        |site| {
            let mut client = Client::connect(&site.address("SITE"));
            client.send(&site.old_hello()[..30]);
            client.half_close();
            assert_ne!(client.end_within(SOON), End::Deadline);
        },
    ),
    (
        "tls_silent",
        "",
        "client timed out (110: Connection timed out) while SSL handshaking",
        |site| site.send("QUICK", b""),
    ),
    (
        "tls_timeout",
        "client_handshake kp quick.test",
        "client timed out (110: Connection timed out) while SSL handshaking",
        |site| site.send("QUICK", &site.old_hello()[..30]),
    ),
    (
        "tls_version",
        "client_handshake kp new.test",
        "nothing in common with the peer",
        |site| site.openssl("NEW", &["-tls1_2", "-servername", "new.test"]),
    ),
    (
        "tls_cipher",
        "client_handshake kp old.test",
        "NoCipherSuitesInCommon",
        |site| {
            let cipher = ["-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"];
            site.openssl("OLD", &[&["-tls1_2"][..], &cipher].concat());
        },
    ),
    (
        "tls_group",
        "client_handshake kp new.test",
        "NoKxGroupsInCommon",
        |site| site.openssl("NEW", &["-groups", "P-384"]),
    ),
    (
        "tls_signature",
        "client_handshake kp a.test",
        "NoSignatureSchemesInCommon",
        |site| site.openssl("SITE", &["-tls1_3", "-sigalgs", "rsa_pss_rsae_sha256"]),
    ),
    (
        "tls_alpn",
        "client_handshake kp b.test",
        "known protocol",
        |site| site.openssl("SITE", &["-alpn", "h2", "-servername", "b.test"]),
    ),
    // It is refused before anybody has read whom it asks for.
    (
        "tls_outdated",
        "client_handshake kp a.test",
        "NullCompressionRequired",
        |site| {
            let mut hello = site.old_hello();
            // Record and message header, version and random, session, suites: then a list of compressions.
            let session = 43;
            let suites = session + 1 + usize::from(hello[session]);
            let length = usize::from(u16::from_be_bytes([hello[suites], hello[suites + 1]]));
            hello[suites + 2 + length + 1] = 1;
            site.send("SITE", &hello);
        },
    ),
    (
        "tls_refused",
        "client_handshake kp strict.test",
        "rejected for this name",
        |site| site.openssl("STRICT", &["-servername", "unknown.test"]),
    ),
    (
        "tls_no_certificate",
        "client_handshake kp named.test",
        "nobody.test.pem",
        |site| site.openssl("NAMED", &["-servername", "nobody.test"]),
    ),
    (
        "tls_untrusted",
        "client_handshake client b.test",
        "the alert unknown_ca",
        |site| {
            let strict = ["-verify_return_error", "-CAfile", "strange.pem"];
            site.openssl("SITE", &[&strict[..], &["-servername", "b.test"]].concat());
        },
    ),
    (
        "tls_expired",
        "client_handshake client late.test",
        "the alert certificate_expired",
        |site| site.openssl("EXPIRED", &["-verify_return_error", "-CAfile", "ca.pem"]),
    ),
    (
        "tls_certificate_refused",
        "client_handshake client a.test",
        "the alert bad_certificate",
        |site| {
            let strict = ["-verify_return_error", "-CAfile", "ca.pem"];
            let name = ["-verify_hostname", "other.test", "-servername", "a.test"];
            site.openssl("SITE", &[&strict[..], &name].concat());
        },
    ),
    (
        "tls_alert",
        "client_handshake client b.test",
        "the alert handshake_failure",
        |site| {
            let mut client = Client::connect(&site.address("SITE"));
            client.send(site.old_hello());
            client.read_some(SOON);
            client.send([0x15, 3, 3, 0, 2, 2, 40]);
            assert_ne!(client.end_within(SOON), End::Deadline);
        },
    ),
    (
        "tls_client_certificate",
        "client_handshake kp verify.test",
        "certificate signature failure",
        |site| {
            let pairs = ["x.test", "y.test"].map(|name| site.authority.issue(&[name]));
            let connector = site
                .connector("a.test")
                .with_wrong_key(&pairs[0], &pairs[1]);
            // In TLS 1.3 a client is done before the server is.
            if let Ok(mut client) = Client::try_secure(&site.address("VERIFY"), &connector) {
                client.end_within(SOON);
            }
        },
    ),
    (
        "tls_malformed",
        "client_handshake kp a.test",
        "SSL_do_handshake() failed",
        |site| site.send("SITE", &[0x16, 3, 1, 0xff, 0xff, 1, 0, 0]),
    ),
    (
        "tls_violation",
        "client_handshake kp b.test",
        "SSL_do_handshake() failed",
        |site| {
            let data = [0x17, 3, 3, 0, 2, 1, 1];
            site.send("SITE", &[&site.old_hello()[..], &data].concat());
        },
    ),
    // After the handshake, where no request has begun.
    (
        "tls_violation",
        "request_line kp b.test",
        "SSL_read() failed",
        |site| {
            // In TLS 1.2 the server is done before the client is.
            let connector = Connector::version(&site.authority, "b.test", &TLS12);
            let client = Client::secure(&site.address("SITE"), &connector);
            client.send_past_tls(&[&[0x17, 3, 3, 0, 32][..], &[7; 32]].concat());
            wait::until(SOON, "the end", || {
                site.kp.error_log().contains("SSL_read() failed")
            });
        },
    ),
    (
        "client_silent",
        "",
        "client timed out (110: Connection timed out) while waiting for request",
        |site| site.send("SHORT", b""),
    ),
    (
        "client_silent",
        "",
        "client timed out (110: Connection timed out) while reading PROXY protocol",
        |site| site.send("HASTY", b""),
    ),
    (
        "proxy_header_missing",
        "proxy_header kp proxy.test",
        "broken header: \"GET / HTTP/1.1\" while reading PROXY protocol",
        |site| site.send("PROXY", b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"),
    ),
    (
        "proxy_header_broken",
        "proxy_header kp proxy.test",
        "broken header: \"PROXY TCP5 \" while reading PROXY protocol",
        |site| site.send("PROXY", b"PROXY TCP5 \r\n"),
    ),
    (
        "proxy_header_timeout",
        "proxy_header kp hasty.test",
        "client timed out (110: Connection timed out) while reading PROXY protocol",
        |site| site.send("HASTY", b"PROXY "),
    ),
    (
        "proxy_header_cut",
        "proxy_header client proxy.test",
        "broken header: \"PROXY TC\" while reading PROXY protocol",
        |site| {
            let mut client = Client::connect(&site.address("PROXY"));
            client.send("PROXY TC");
            client.half_close();
            assert_ne!(client.end_within(SOON), End::Deadline);
        },
    ),
    (
        "proxy_untrusted",
        "proxy_header kp trust.test",
        "client is not trusted (set_real_ip_from)",
        |site| site.send("TRUST", b""),
    ),
    (
        "accept_limited",
        "accept kp once.test",
        "limiting connections of 127.0.0.1 by zone \"once\"",
        |site| {
            let first = Client::connect(&site.address("ONCE"));
            site.send("ONCE", b"");
            drop(first);
        },
    ),
];

/// One after the other at one kp: who tells of it, tells the same.
///
/// Shows: ssl_handshake_timeout, ssl_reject_handshake, limit_accept
#[test]
fn every_end_without_a_request_has_its_reason() {
    let site = Site::start();
    let mut expected = Site::count(&site.picture());
    for (reason, about, error, happen) in ROWS {
        let said = (site.kp.error_log().len(), site.kp.text("errors.json").len());
        happen(&site);
        *expected.entry((*reason).to_owned()).or_default() += 1;
        let mut picture = Value::Null;
        wait::until(SOON, &format!("{reason} {about} on the page"), || {
            picture = site.picture();
            Site::count(&picture).get(*reason) == expected.get(*reason)
        });
        assert_eq!(Site::count(&picture), expected, "{reason} {about}");
        if !about.is_empty() {
            let last = &picture["recent"][0];
            let told = ["phase", "closed_by", "server"].map(|name| last[name].as_str());
            let wanted: Vec<_> = about.split(' ').map(Some).collect();
            assert_eq!((&last["reason"], &told[..]), (&json!(reason), &wanted[..]));
            assert_eq!(
                (&last["status"], &last["attempt"]),
                (&json!(0), &Value::Null)
            );
        }
        let ending = format!(", reason: {reason}");
        let log = site.kp.error_log();
        let mut lines = log[said.0..].lines();
        let line = lines.find(|line| line.contains(error) && line.ends_with(&ending));
        assert!(line.is_some(), "{reason} {about}: {}", &log[said.0..]);
        let log = site.kp.text("errors.json");
        let mut lines = log[said.1..].lines();
        let line = lines.find_map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            (line["reason"] == *reason).then_some(line)
        });
        let line = line.unwrap_or_else(|| panic!("{reason} {about}: {}", &log[said.1..]));
        assert!(
            line["message"]
                .as_str()
                .is_some_and(|text| text.contains(error))
        );
    }
    let metrics = Metrics::of(&site.kp.address(), "/m");
    for (reason, count) in expected {
        let sides = ["client", "upstream", "kp", "config"];
        let value = sides
            .iter()
            .map(|side| format!("kp_failures_total{{reason=\"{reason}\",side=\"{side}\"}}"))
            .find(|sample| metrics.has(sample))
            .map(|sample| metrics.value(&sample));
        assert_eq!(value, Some(count as f64), "{reason}");
    }
    assert_eq!(
        site.kp.text("requests.log"),
        "",
        "none of them was a request"
    );
}

/// A look whether a port is open, and an end between two requests: no reason.
#[test]
fn ends_in_order_have_none() {
    let site = Site::start();
    for port in ["SITE", "SHORT", "PROXY"] {
        drop(Client::connect(&site.address(port)));
        Client::connect(&site.address(port)).reset();
        let mut client = Client::connect(&site.address(port));
        client.half_close();
        assert_ne!(client.end_within(SOON), End::Deadline, "{port}");
    }
    // A blank line is no part of a request (RFC 9112 section 2.2).
    let mut client = site.kp.client();
    client.send("\r\n");
    client.half_close();
    assert_ne!(client.end_within(SOON), End::Deadline);
    let mut client = Client::secure(&site.address("SITE"), &site.connector("a.test"));
    client.ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.close_notify();
    assert_ne!(client.end_within(SOON), End::Deadline);
    drop(Client::secure(
        &site.address("SITE"),
        &site.connector("a.test"),
    ));
    wait::until(SOON, "all of them to be gone", || {
        // The one that looks is there itself.
        site.picture()["totals"]["connections_active"] == 1
    });
    let counts = Site::count(&site.picture());
    let counts: Vec<_> = counts
        .into_iter()
        .filter(|(word, _)| word != "return")
        .collect();
    assert_eq!(counts, []);
}

/// What there is no room for.
#[test]
fn newcomers_without_a_place_have_a_reason() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let kp = Setup::new(
        "%MAIN%
http {
    server { listen %LISTEN%; location / { proxy_pass http://%ORIGIN%; } }
}
",
    )
    .main("events { worker_connections 20; } error_log error.log info;")
    .with("ORIGIN", origin.address())
    .start();
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = kp.client();
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        clients.push(client);
    }
    origin.wait_requests(10);
    // All 20 places are taken. Some more are let in to be told 503 when they ask, which they do not do.
    clients.extend((0..100).map(|_| kp.client()));
    kp.wait_error("worker_connections are not enough");
    kp.wait_error("reason: overload");
}

/// A request that is cut has its line, in a log that is buffered, too, and in one that is compressed.
#[test]
fn a_fast_stop_logs_what_it_cuts() {
    for (signal, to_worker) in [
        (Signal::SIGTERM, false),
        (Signal::SIGINT, false),
        (Signal::SIGTERM, true),
    ] {
        let origin = Origin::start(|conversation| {
            let request = conversation.request()?;
            if request.target() == "/half" {
                conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")?;
            }
            if request.target() == "/whole" {
                return conversation.send(OK);
            }
            conversation.stall();
            Ok(())
        });
        let mut kp = Setup::base(&origin)
            .http(
                "log_format cut '$request_uri $status $kp_reason $kp_reason_detail';
                 access_log plain.log cut; access_log buffered.log cut buffer=64k flush=1h;
                 access_log packed.log.gz cut gzip=1 flush=1h;",
            )
            .start();
        let mut clients: Vec<Client> = ["/wait", "/half", "/body"]
            .into_iter()
            .map(|path| {
                let mut client = kp.client();
                let body = match path {
                    "/body" => {
                        "POST /body HTTP/1.1\r\nContent-Length: 9\r\nHost: t\r\n\r\nx".to_owned()
                    }
                    _ => format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"),
                };
                client.send(body);
                client
            })
            .collect();
        clients[1].head(SOON).expect("a head");
        clients[1].read_exactly(3, SOON);
        origin.wait_requests(2);
        let mut half = kp.client();
        half.send("GET /never HT");
        wait::until(SOON, "all of them", || {
            let connections = ask::ctl(&kp, &["requests"]);
            connections["requests"]
                .as_array()
                .is_some_and(|all| all.len() == 4)
        });
        let worker = kp.worker_pid();
        if to_worker {
            assert!(process::signal(worker, signal));
            wait::until(SOON, "another worker", || {
                kp.worker_pids().iter().any(|pid| *pid != worker)
            });
        } else {
            kp.signal(signal);
            assert_eq!(kp.wait_exit(SOON), 0);
        }
        let by = "side=kp attempt=1 closed_by=kp";
        let wanted = [
            "/body 000 fast_stop phase=request_body side=kp closed_by=kp".to_owned(),
            format!("/half 200 fast_stop phase=read_body {by}"),
            format!("/wait 000 fast_stop phase=await_head {by}"),
        ];
        let packed = tool::run(&kp.path(""), "gzip", &["-dc", "packed.log.gz"], b"");
        for text in [kp.text("plain.log"), kp.text("buffered.log"), packed.text()] {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            assert_eq!(lines, wanted, "{signal} {to_worker}");
        }
    }
}

/// Many at once: all of them are logged, and the end is as fast as before.
#[test]
fn a_fast_stop_with_many_requests_is_fast() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let mut kp = Setup::base(&origin)
        .main("events { worker_connections 2048; }")
        .http("log_format cut '$kp_reason'; access_log cut.log cut buffer=1m;")
        .start();
    let clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = kp.client();
            client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    origin.wait_requests(clients.len());
    kp.signal(Signal::SIGTERM);
    assert_eq!(kp.wait_exit(SOON), 0);
    assert_eq!(kp.text("cut.log"), "fast_stop\n".repeat(clients.len()));
}

/// `worker_shutdown_timeout` cuts requests, handshakes and heads alike; who only keeps a connection open is not counted.
#[test]
fn a_deadline_of_a_reload_names_what_it_cuts() {
    let authority = Authority::default();
    let pair = authority.issue(&["a.test"]);
    let port = Port::take();
    let kp = Setup::new(
        "%MAIN%
http {
    server { listen %LISTEN%; location / { status; } }
    server { listen %TLS% ssl; server_name cut.test; ssl_certificate a.pem; ssl_certificate_key a.key; return 200; }
}
",
    )
    .main("worker_shutdown_timeout 300ms;")
    .with("TLS", port.address())
    .file("a.pem", pair.certificate)
    .file("a.key", pair.key)
    .start();
    let mut shaking = Client::connect(&port.address());
    shaking.send(&Connector::new(&authority, "a.test").hello()[..30]);
    let mut reading = kp.client();
    reading.send("GET / HT");
    let _idle = kp.client();
    let before = kp.worker_pids();
    wait::until(SOON, "both have begun", || {
        let picture = ask::status(&kp.address(), "/status.json");
        picture["totals"]["connections_reading"] == 1
    });
    kp.reload();
    kp.wait_new_workers(&before);
    kp.wait_drained(SOON);
    let picture = ask::status(&kp.address(), "/status.json");
    assert_eq!(
        Site::count(&picture)["shutdown"],
        2,
        "{}",
        picture["reasons"]
    );
    let recent = picture["recent"].as_array().expect("ends");
    let mut phases: Vec<_> = recent
        .iter()
        .filter(|end| end["reason"] == "shutdown")
        .map(|end| end["phase"].as_str())
        .collect();
    phases.sort_unstable();
    assert_eq!(phases, [Some("client_handshake"), Some("request_head")]);
    assert!(shaking.closes_within(SOON) && reading.closes_within(Duration::from_secs(60)));
}
