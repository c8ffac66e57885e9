//! TLS on both sides.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kp_tests::tls::{Acceptor, Authority, Connector, Kind};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Origin, Setup, origin};
use nix::sys::signal::Signal;

/// Two servers with TLS on one port, and a group behind them.
const TEXT: &str = "%MAIN%
http {
    %HTTP%
    upstream u { server %U1%; keepalive 8; }
    server {
        listen %LISTEN% ssl;
        server_name a.test;
        ssl_certificate a.crt;
        ssl_certificate_key a.key;
        %SERVER%
        location / { proxy_pass http://u; %LOCATION% }
    }
    server {
        listen %LISTEN% ssl;
        server_name b.test *.c.test;
        ssl_certificate b.crt;
        ssl_certificate_key b.key;
        location / { return 200 \"b $ssl_server_name\"; }
    }
}
";

/// A kp about to be started with TLS, and whom its clients trust.
fn setup(origin: &Origin) -> (Setup, Authority) {
    let authority = Authority::default();
    let (a, b) = (
        authority.issue(&["a.test"]),
        authority.issue(&["b.test", "*.c.test"]),
    );
    let setup = Setup::new(TEXT)
        .with("U1", origin.address())
        .file("a.crt", a.certificate)
        .file("a.key", a.key)
        .file("b.crt", b.certificate)
        .file("b.key", b.key);
    (setup, authority)
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

fn secure(kp: &Kp, authority: &Authority) -> Client {
    Client::secure(&kp.address(), &Connector::new(authority, "a.test"))
}

/// An origin whose responses end with the connection: the first with close_notify, the others without.
fn closing_then_cutting(acceptor: &Acceptor) -> Origin {
    Origin::secure(acceptor, |conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\n\r\nuntil the end")?;
        if conversation.index == 0 {
            conversation.half_close()?;
        }
        Ok(())
    })
}

/// The harness itself: without it saying the truth, nothing below means anything.
#[test]
fn the_client_and_the_origin_of_the_harness_speak_tls() {
    let authority = Authority::default();
    let pair = authority.issue_as(Kind::Rsa, &["a.test", "*.b.test"], |_| {});
    let origin = closing_then_cutting(&Acceptor::new(&pair));
    let connector = Connector::new(&authority, "a.test");
    let request = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let mut client = Client::secure(&origin.address(), &connector);
    let answer = client.ask(request);
    assert_eq!(
        (answer.text().as_str(), answer.end),
        ("until the end", End::Closed)
    );
    let seen = client.seen();
    assert_eq!((seen.protocol, seen.resumed), ("TLSv1.3", false));
    let mut client = Client::secure(&origin.address(), &connector);
    assert!(client.seen().resumed);
    assert_eq!(client.ask(request).end, End::Cut);
    let names: Vec<_> = origin
        .seen()
        .into_iter()
        .map(|seen| seen.server_name)
        .collect();
    assert_eq!(
        names,
        [Some("a.test".to_owned()), Some("a.test".to_owned())]
    );
    let stranger = connector.named("c.test");
    assert!(Client::try_secure(&origin.address(), &stranger).is_err());
    kp_tests::wait::until(Duration::from_secs(5), "the failure", || {
        origin.failed_handshakes() == 1
    });
}

/// Shows: listen, ssl_certificate, ssl_certificate_key
#[test]
fn requests_are_served_one_after_the_other_on_one_connection() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let origin = Origin::ok();
        let (setup, authority) = setup(&origin);
        let kp = setup.start();
        let connector = Connector::version(&authority, "a.test", version);
        let mut client = Client::secure(&kp.address(), &connector);
        for _ in 0..3 {
            assert_eq!(client.ask(GET).text(), "ok");
        }
        client.half_close();
        assert_eq!(client.end_within(SOON), End::Closed, "with close_notify");
        assert_eq!(origin.connections(), 1);
        assert_eq!(kp.access_lines(3).len(), 3);
    }
}

/// Shows: server_name
#[test]
fn the_name_that_is_asked_for_chooses_server_and_certificate() {
    let origin = Origin::ok();
    let (setup, authority) = setup(&origin);
    let kp = setup.start();
    for (name, body) in [
        ("a.test", "ok"),
        ("b.test", "b b.test"),
        ("x.c.test", "b x.c.test"),
    ] {
        // The connector refuses a certificate of another name.
        let mut client = Client::secure(&kp.address(), &Connector::new(&authority, name));
        let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n");
        assert_eq!(client.ask(&request).text(), body);
    }
    let stranger = Connector::new(&authority, "unknown.test");
    assert!(
        Client::try_secure(&kp.address(), &stranger).is_err(),
        "it got a.test's"
    );
}

#[test]
fn bodies_of_all_sizes_pass_both_ways() {
    let origin = Origin::start(|conversation| {
        conversation.answer_all(|request| origin::response(200, &request.body))
    });
    let (setup, authority) = setup(&origin);
    let kp = setup.server("client_max_body_size 0;").start();
    let mut client = secure(&kp, &authority);
    for length in [1usize, 16_383, 16_384, 16_385, 70_000, 3_000_000] {
        let body: Vec<u8> = (0..length).map(|n| (n * 31 / 8) as u8).collect();
        let mut request =
            format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n")
                .into_bytes();
        request.extend_from_slice(&body);
        let answer = client.ask(&request);
        assert!(answer.body == body, "{length}");
    }
}

/// A slow reader: what the kernel does not take is kept, and arrives whole.
#[test]
fn a_slow_reader_gets_every_byte() {
    let body: Vec<u8> = (0..8_000_000u32).map(|n| (n >> 5) as u8).collect();
    let reply = origin::response(200, &body);
    let origin = Origin::replying(reply);
    let (setup, authority) = setup(&origin);
    let kp = setup.start();
    let plain = Client::connect_narrow(&kp.address(), 8192);
    let mut client = plain
        .upgrade(&Connector::new(&authority, "a.test"))
        .expect("a handshake");
    client.send(GET);
    wait::pause(Duration::from_millis(300));
    let answer = client.response();
    assert!(answer.body == body);
}

/// kp between a plain client and an origin with TLS.
fn towards(origin: &Origin, authority: &Authority, location: &str) -> Setup {
    let port = origin.port();
    Setup::new(UPSTREAM)
        .with("PORT", port.to_string())
        .with("LOCATION", location)
        .file("ca.pem", authority.pem())
}

const UPSTREAM: &str = "%MAIN%
http {
    upstream o.test { server 127.0.0.1:%PORT%; %UPSTREAM% keepalive 8; }
    server {
        listen %LISTEN%;
        location / { proxy_pass https://o.test; proxy_ssl_trusted_certificate ca.pem; %LOCATION% }
    }
}
";

/// kp with TLS on both sides.
fn between(origin: &Origin, authority: &Authority) -> Setup {
    let own = authority.issue(&["a.test"]);
    let text = UPSTREAM.replace(
        "listen %LISTEN%;",
        "listen %LISTEN% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;",
    );
    Setup::new(&text)
        .with("PORT", origin.port().to_string())
        .file("ca.pem", authority.pem())
        .file("a.crt", own.certificate)
        .file("a.key", own.key)
}

/// Shows: proxy_ssl_verify, proxy_ssl_trusted_certificate, proxy_ssl_server_name
#[test]
fn an_origin_with_tls_is_asked_and_its_connections_are_used_again() {
    let authority = Authority::default();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let acceptor = Acceptor::with(&authority.issue(&["o.test"]), &[version], None);
        let origin = Origin::secure_ok(&acceptor);
        let kp = towards(
            &origin,
            &authority,
            "proxy_ssl_verify on; proxy_ssl_server_name on;",
        )
        .start();
        for _ in 0..3 {
            assert_eq!(kp.get("/").text(), "ok");
        }
        let seen = origin.seen();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].server_name.as_deref(), Some("o.test"));
    }
}

/// Shows: proxy_ssl_name
#[test]
fn connections_are_shared_within_one_tls_identity_only() {
    let authority = Authority::default();
    let acceptor = Acceptor::new(&authority.issue(&["*.o.test"]));
    let origin = Origin::secure_ok(&acceptor);
    let kp = towards(
        &origin,
        &authority,
        "proxy_ssl_verify on; proxy_ssl_server_name on; proxy_ssl_name $http_x_name;",
    )
    .start();
    let get = |name: &str| {
        let request =
            format!("GET / HTTP/1.1\r\nHost: t\r\nX-Name: {name}\r\nConnection: close\r\n\r\n");
        kp.client().ask(&request).status()
    };
    for name in ["a.o.test", "b.o.test", "a.o.test", "b.o.test"] {
        assert_eq!(get(name), 200);
    }
    let names: Vec<_> = origin
        .seen()
        .into_iter()
        .map(|seen| seen.server_name.unwrap())
        .collect();
    assert_eq!(names, ["a.o.test", "b.o.test"]);
    assert_eq!(get("elsewhere.test"), 502);
    kp.wait_error("upstream SSL certificate does not match \"elsewhere.test\"");
}

/// A message of TLS makes a socket readable and says nothing: neither an idle upstream nor an idle client is broken by it.
#[test]
fn keys_may_change_while_a_connection_is_idle() {
    let authority = Authority::default();
    let acceptor = Acceptor::new(&authority.issue(&["o.test"]));
    let origin = Origin::secure(&acceptor, |conversation| {
        loop {
            conversation.request()?;
            conversation.send(origin::OK)?;
            conversation.change_keys()?;
            conversation.note();
        }
    });
    let kp = between(&origin, &authority).start();
    let mut client = secure(&kp, &authority);
    for turn in 1..=4 {
        assert_eq!(client.ask(GET).text(), "ok");
        client.change_keys();
        wait::until(SOON, "the origin's change of keys", || {
            origin.noted().len() == turn
        });
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_upstream_that_cannot_be_trusted_is_502_with_its_own_reason_and_the_next_is_tried() {
    let (ours, others) = (Authority::default(), Authority::new("somebody else"));
    let bad = Origin::secure_ok(&Acceptor::new(&others.issue(&["o.test"])));
    let good = Origin::secure_ok(&Acceptor::new(&ours.issue(&["o.test"])));
    let log = "log_format r '$upstream_status $kp_reason'; access_log access.log r;";
    let text = UPSTREAM.replace("http {", &format!("http {{ {log}"));
    let setup = |more: &str| {
        Setup::new(&text)
            .with("PORT", bad.port().to_string())
            .with("UPSTREAM", more)
            .with("LOCATION", "proxy_ssl_verify on;")
            .file("ca.pem", ours.pem())
    };
    let kp = setup("").start();
    assert_eq!(kp.get("/").status(), 502);
    assert_eq!(kp.access_lines(1), ["502 upstream_certificate"]);
    kp.wait_error("upstream SSL certificate verify error: (");
    kp.wait_error("while SSL handshaking to upstream");
    let kp = setup(&format!("server 127.0.0.1:{} backup;", good.port())).start();
    assert_eq!(kp.get("/").text(), "ok");
    assert_eq!(kp.access_lines(1), ["502, 200 -"]);
}

/// An origin that does not speak TLS at all.
#[test]
fn a_failed_handshake_with_an_upstream_is_502() {
    let authority = Authority::default();
    let origin = Origin::start(|conversation| {
        conversation.read_at_least(1)?;
        conversation.send("HTTP/1.1 400 Bad Request\r\n\r\n")
    });
    let kp = towards(&origin, &authority, "").start();
    assert_eq!(kp.get("/").status(), 502);
    kp.wait_error("SSL_do_handshake() failed (SSL: ");
}

/// RFC 8446 §6.1: only close_notify says that what came was all.
#[test]
fn the_end_of_a_response_without_close_notify_is_a_truncation() {
    let authority = Authority::default();
    let origin = closing_then_cutting(&Acceptor::new(&authority.issue(&["o.test"])));
    let kp = towards(&origin, &authority, "").start();
    let whole = kp.get("/");
    assert_eq!(
        (whole.text().as_str(), whole.whole),
        ("until the end", true)
    );
    let cut = kp.get("/");
    assert!(!cut.whole, "{cut:?}");
    kp.wait_error("upstream prematurely closed connection while reading upstream");
}

/// The same towards a client: a response that broke off does not end with close_notify.
#[test]
fn a_client_sees_a_broken_off_response_as_cut() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    });
    let (setup, authority) = setup(&origin);
    let kp = setup.start();
    let mut client = secure(&kp, &authority);
    let answer = client.ask(GET);
    assert_eq!(answer.text(), "half");
    assert!(
        matches!(answer.end, End::Cut | End::Reset),
        "{:?}",
        answer.end
    );
}

#[test]
fn a_client_that_leaves_without_a_word_while_idle_is_no_error() {
    let origin = Origin::ok();
    let (setup, authority) = setup(&origin);
    let kp = setup.start();
    let mut client = secure(&kp, &authority);
    assert_eq!(client.ask(GET).text(), "ok");
    client.cut();
    assert_eq!(client.end_within(SOON), End::Closed);
    let log = kp.error_log();
    assert!(!log.contains("[error]") && !log.contains("[warn]"), "{log}");
    assert_eq!(kp.access_lines(1).len(), 1);
}

#[test]
fn plain_http_on_a_port_with_tls_is_told_so() {
    let origin = Origin::ok();
    let (setup, _) = setup(&origin);
    let kp = setup
        .server("error_page 497 =421 /plain; location = /plain { return 421 $scheme; }")
        .start();
    let answer = kp.get("/");
    assert_eq!((answer.status(), answer.text().as_str()), (421, "http"));
    assert_eq!(origin.connections(), 0);
}

/// Shows: ssl_handshake_timeout
#[test]
fn a_handshake_has_its_time() {
    let origin = Origin::ok();
    let (setup, _) = setup(&origin);
    let kp = setup.server("ssl_handshake_timeout 300ms;").start();
    let began = Instant::now();
    for bytes in [b"".as_slice(), b"\x16\x03\x01"] {
        let mut client = kp.client();
        client.send(bytes);
        assert!(client.closes_within(SOON));
    }
    assert!(began.elapsed() >= Duration::from_millis(500));
    kp.wait_error("client timed out (110: Connection timed out) while SSL handshaking");
}

#[test]
fn garbage_and_half_a_hello_harm_nobody() {
    let origin = Origin::ok();
    let (setup, authority) = setup(&origin);
    let kp = setup.start();
    for bytes in [
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00".as_slice(),
        b"\x16\x03\x01\xff\xff\x01\x00\x00\x01\x00",
        b"\x80\x2e\x01\x03\x01",
        &[0x16; 2000],
    ] {
        let mut client = kp.client();
        client.send(bytes);
        assert!(client.closes_within(SOON) || client.end_within(SOON) == End::Complete);
    }
    assert_eq!(secure(&kp, &authority).ask(GET).text(), "ok");
}

#[test]
fn sessions_resume_on_every_worker_and_after_a_reload() {
    let origin = Origin::ok();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let (setup, authority) = setup(&origin);
        let kp = setup.main("worker_processes 3;").start();
        kp.wait_workers(3);
        let connector = Connector::version(&authority, "a.test", version);
        let mut resumed = 0;
        for turn in 0..24 {
            if turn == 12 {
                kp.reload();
            }
            let mut client = Client::secure(&kp.address(), &connector);
            assert_eq!(client.ask(GET).text(), "ok");
            resumed += usize::from(client.seen().resumed);
        }
        assert_eq!(resumed, 23, "all but the first");
    }
}

/// Bytes both ways, and each end by itself.
#[test]
fn a_tunnel_over_tls_on_both_sides_passes_ends_on() {
    let authority = Authority::default();
    let origin = Origin::secure(
        &Acceptor::new(&authority.issue(&["o.test"])),
        |conversation| {
            conversation.request()?;
            conversation.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nhello")?;
            let said = conversation.read_to_end();
            conversation.send(said)?;
            conversation.half_close()
        },
    );
    let kp = between(&origin, &authority).start();
    let mut client = secure(&kp, &authority);
    client.send(
        "GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    );
    assert_eq!(client.head(SOON).expect("a head").status(), 101);
    assert_eq!(client.read_exactly(5, SOON), b"hello");
    client.send("over there");
    client.close_notify();
    let (echo, end) = client.read_to_end(SOON);
    assert_eq!(
        (echo.as_slice(), end),
        (b"over there".as_slice(), End::Closed)
    );
}

/// SIGQUIT while handshakes are under way: they are completed, and their requests answered.
#[test]
fn a_handshake_that_was_begun_is_finished_while_draining() {
    let origin = Origin::ok();
    let (setup, authority) = setup(&origin);
    let mut kp = setup.start();
    let connector = Connector::new(&authority, "a.test");
    let mut idle = secure(&kp, &authority);
    assert_eq!(idle.ask(GET).text(), "ok");
    let begun = kp.client().upgrade_in_two(&connector, 10, || {
        kp.signal(Signal::SIGQUIT);
        // It had its second of grace.
        assert_eq!(idle.end_within(SOON), End::Closed);
    });
    let mut begun = begun.expect("a handshake");
    assert_eq!(begun.ask(GET).text(), "ok");
    assert_eq!(kp.wait_exit(SOON), 0);
}

#[test]
fn nothing_is_lost_on_reloads_over_tls() {
    let origin = Origin::ok();
    let (setup, authority) = setup(&origin);
    let kp = setup.start();
    let connector = Connector::new(&authority, "a.test");
    let address = kp.address();
    let (asked, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::secure(&address, &connector);
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.ask(GET);
                    assert_eq!(answer.text(), "ok");
                    asked.fetch_add(1, Ordering::Relaxed);
                    if answer.field("Connection") == Some("close") {
                        client = Client::secure(&address, &connector);
                    }
                }
            });
        }
        for _ in 0..3 {
            let before = asked.load(Ordering::Relaxed);
            wait::happens(SOON, || asked.load(Ordering::Relaxed) > before + 20);
            kp.reload();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(asked.into_inner() > 60);
}

/// The certificate that a new connection gets.
fn shown(kp: &Kp, connector: &Connector) -> Vec<u8> {
    let client = Client::secure(&kp.address(), &connector.fresh());
    client.seen().certificates[0].clone()
}

/// Shows: ssl_certificate_reload
#[test]
fn a_changed_certificate_is_taken_up_by_the_workers_that_serve() {
    let origin = Origin::ok();
    let (setup, authority) = setup(&origin);
    let kp = setup
        .server("ssl_certificate_reload on;")
        .main("worker_processes 2;")
        .allow("exited on signal 9")
        .start();
    kp.wait_workers(2);
    let connector = Connector::new(&authority, "a.test");
    let mut open = secure(&kp, &authority);
    let (workers, first) = (kp.worker_pids(), shown(&kp, &connector));
    let next = authority.issue_as(Kind::Rsa, &["a.test"], |_| {});
    std::fs::write(kp.path("a.crt"), &next.certificate).expect("written");
    std::fs::write(kp.path("a.key"), &next.key).expect("written");
    // Both workers: a few connections in a row.
    wait::until(SOON, "the changed certificate", || {
        (0..6).all(|_| shown(&kp, &connector) != first)
    });
    let changed = shown(&kp, &connector);
    assert_eq!(open.ask(GET).text(), "ok", "open connections go on");
    std::fs::write(kp.path("a.key"), "no key any more").expect("written");
    kp.wait_error("the one before stays");
    assert_eq!(shown(&kp, &connector), changed);
    std::fs::write(kp.path("a.key"), &next.key).expect("written");
    wait::until(SOON, "the good pair to be seen", || {
        kp.error_log().matches("is in use").count() == 2
    });
    assert_eq!(kp.error_log().matches("the one before stays").count(), 1);
    let mut now = kp.worker_pids();
    let mut before = workers;
    now.sort_unstable();
    before.sort_unstable();
    assert_eq!(now, before);
    // A worker that is forked later has it, too.
    kp_tests::process::signal(now[0], Signal::SIGKILL);
    kp.wait_workers(2);
    assert!((0..6).all(|_| shown(&kp, &connector) == changed));
}

/// More at once than fit into the channel between the master and a worker that does not listen for a while.
#[test]
fn a_busy_worker_gets_every_one_of_many_changed_certificates() {
    const HOSTS: usize = 320;
    let authority = Authority::default();
    let (old, new) = (
        authority.issue(&["*.a.test"]),
        authority.issue(&["*.a.test"]),
    );
    let mut setup = Setup::new("%MAIN% http { %HTTP% }").main("worker_processes 1;");
    let mut http = String::from("ssl_certificate_reload on;");
    for host in 0..HOSTS {
        http += &format!(
            "server {{ listen %LISTEN% ssl; server_name h{host}.a.test; ssl_certificate {host}.crt;
            ssl_certificate_key {host}.key; }}"
        );
        setup = setup
            .file(&format!("{host}.crt"), old.certificate.clone())
            .file(&format!("{host}.key"), old.key.clone());
    }
    let kp = setup.http(&http).start();
    let shown = |host: usize| shown(&kp, &Connector::new(&authority, &format!("h{host}.a.test")));
    let before = shown(0);
    let worker = kp.worker_pid();
    kp_tests::process::signal(worker, Signal::SIGSTOP);
    for host in 0..HOSTS {
        std::fs::write(kp.path(&format!("{host}.crt")), &new.certificate).expect("written");
        std::fs::write(kp.path(&format!("{host}.key")), &new.key).expect("written");
    }
    wait::until(SOON, "all to be read", || {
        kp.error_log().matches("is in use").count() >= HOSTS
    });
    kp_tests::process::signal(worker, Signal::SIGCONT);
    wait::until(SOON, "the last one to arrive", || {
        shown(HOSTS - 1) != before
    });
    let old = (0..HOSTS).filter(|host| shown(*host) == before).count();
    assert_eq!((old, kp.worker_pid()), (0, worker));
}

/// Shows: ssl_certificate_cache
#[test]
fn certificates_that_variables_name_are_read_for_the_handshake() {
    let authority = Authority::default();
    let (a, b) = (authority.issue(&["a.test"]), authority.issue(&["b.test"]));
    let text = "http { server { listen %LISTEN% ssl; ssl_certificate $ssl_server_name.crt;
        ssl_certificate_key $ssl_server_name.key; %CACHE% location / { return 200 $ssl_server_name; } } }";
    for cache in ["", "ssl_certificate_cache max=10;"] {
        let kp = Setup::new(text)
            .with("CACHE", cache)
            .file("a.test.crt", a.certificate.clone())
            .file("a.test.key", a.key.clone())
            .file("b.test.crt", b.certificate.clone())
            .file("b.test.key", b.key.clone())
            .start();
        let get = |name: &str| {
            let mut client = Client::try_secure(&kp.address(), &Connector::new(&authority, name))?;
            Ok::<_, std::io::Error>(client.ask(GET).text())
        };
        for name in ["a.test", "b.test", "a.test"] {
            assert_eq!(get(name).expect("a handshake"), name);
        }
        assert!(get("c.test").is_err());
        kp.wait_error("c.test.crt\": open() failed (2: No such file or directory)");
        std::fs::remove_file(kp.path("a.test.key")).expect("removed");
        assert_eq!(get("a.test").is_ok(), !cache.is_empty());
    }
}
