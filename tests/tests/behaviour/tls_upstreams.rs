//! TLS with upstreams: whom kp believes, what it shows of itself, which connections and sessions are shared, what it does
//! when a handshake fails.

use std::time::{Duration, Instant};

use kp_tests::tls::{Acceptor, Authority, Kind, Pair, numbered, valid};
use kp_tests::{Kp, Origin, Setup, origin};
use rustls::version::{TLS12, TLS13};

use crate::tls_site::with_pair;

const SITE: &str = "%MAIN%
http {
    log_format r '$upstream_status $kp_reason'; access_log access.log r;
    %HTTP%
    upstream o.test { server 127.0.0.1:%PORT% %SERVER_LINE%; %UPSTREAM% }
    server {
        listen %LISTEN%;
        location / { proxy_pass https://o.test; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_verify on; %LOCATION% }
    }
}
";

fn towards(origin: &Origin, authority: &Authority, location: &str) -> Setup {
    Setup::new(SITE)
        .with("PORT", origin.port().to_string())
        .with("SERVER_LINE", "")
        .with("LOCATION", location)
        .file("ca.pem", authority.pem())
}

/// An origin that answers once on each connection.
fn once(acceptor: &Acceptor) -> Origin {
    Origin::secure(acceptor, |conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")?;
        conversation.half_close()
    })
}

/// The answer of the one origin, and what the log says of it.
fn outcome(kp: &Kp) -> (u16, String) {
    let asked = kp.text("access.log").lines().count();
    let status = kp.get("/").status();
    (status, kp.access_lines(asked + 1)[asked].clone())
}

/// Shows: proxy_ssl_verify, proxy_ssl_trusted_certificate
#[test]
fn only_certificates_that_hold_are_believed() {
    let (ours, others) = (Authority::default(), Authority::new("others"));
    let between = ours.intermediate("between");
    let dated = |from, until| {
        ours.issue_as(Kind::Ecdsa, &["o.test"], |params| {
            valid(params, from, until);
        })
    };
    for (what, pair, status) in [
        ("ours", ours.issue(&["o.test"]), 200),
        ("rsa", ours.issue_as(Kind::Rsa, &["o.test"], |_| {}), 200),
        ("chained", between.issue(&["o.test"]).chained(&between), 200),
        ("chain not shown", between.issue(&["o.test"]), 502),
        ("other name", ours.issue(&["p.test"]), 502),
        ("others", others.issue(&["o.test"]), 502),
        ("expired", dated(-20, -1), 502),
        ("not yet", dated(1, 20), 502),
    ] {
        for version in [&TLS12, &TLS13] {
            let origin = Origin::secure_ok(&Acceptor::with(&pair, &[version], None));
            let kp = towards(&origin, &ours, "").start();
            let reason = if status == 200 {
                "200 -"
            } else {
                "502 upstream_certificate"
            };
            assert_eq!(outcome(&kp), (status, reason.to_owned()), "{what}");
        }
    }
}

/// Without verification anything goes, and `-t` says so once for each place.
#[test]
fn without_verification_anyone_is_believed_and_a_warning_says_so() {
    let others = Authority::new("others");
    let pair = others.issue_as(Kind::Ecdsa, &["p.test"], |params| valid(params, -20, -1));
    let origin = Origin::secure_ok(&Acceptor::new(&pair));
    let text = SITE.replace("proxy_ssl_verify on;", "");
    let setup = || {
        Setup::new(&text)
            .with("PORT", origin.port().to_string())
            .with("SERVER_LINE", "")
            .file("ca.pem", others.pem())
    };
    let checked = setup().check();
    let warned = checked
        .stderr
        .matches("certificate is not verified")
        .count();
    assert_eq!((checked.code, warned), (0, 1), "{}", checked.stderr);
    assert_eq!(setup().start().get("/").status(), 200);
}

/// Shows: proxy_ssl_verify_depth
#[test]
fn a_chain_is_as_long_as_it_may_be() {
    let ours = Authority::default();
    let first = ours.intermediate("first");
    let second = first.intermediate("second");
    let chains = [
        ours.issue(&["o.test"]),
        first.issue(&["o.test"]).chained(&first),
        second.issue(&["o.test"]).chained(&second).chained(&first),
    ];
    for (between, chain) in chains.iter().enumerate() {
        let origin = Origin::secure_ok(&Acceptor::new(chain));
        for (directive, depth) in [
            ("", 1),
            ("proxy_ssl_verify_depth 0;", 0),
            ("proxy_ssl_verify_depth 2;", 2),
        ] {
            let kp = towards(&origin, &ours, directive).start();
            assert_eq!(
                kp.get("/").status() == 200,
                between <= depth,
                "{between}, {directive}"
            );
        }
    }
}

/// Shows: proxy_ssl_crl
#[test]
fn revoked_upstreams_are_refused() {
    let ours = Authority::default();
    let pair = ours.issue_as(Kind::Ecdsa, &["o.test"], |params| numbered(params, 9));
    let origin = Origin::secure_ok(&Acceptor::new(&pair));
    for (revoked, status) in [(8, 200), (9, 502)] {
        let kp = towards(&origin, &ours, "proxy_ssl_crl crl.pem;")
            .file("crl.pem", ours.revoke(&[revoked]))
            .start();
        assert_eq!(kp.get("/").status(), status);
        if status == 502 {
            kp.wait_error("upstream SSL certificate verify error: (23:certificate revoked)");
        }
    }
}

/// An origin that asks for kp's certificate, and one it would not take.
///
/// Shows: proxy_ssl_certificate, proxy_ssl_certificate_key
#[test]
fn kp_shows_a_certificate_of_its_own() {
    let (servers, clients) = (Authority::default(), Authority::new("clients"));
    let own = clients.issue(&["kp"]);
    let stranger = Authority::new("stranger").issue(&["kp"]);
    for version in [&TLS12, &TLS13] {
        let acceptor = Acceptor::with(&servers.issue(&["o.test"]), &[version], Some(&clients));
        let origin = Origin::secure_ok(&acceptor);
        let asked = |pair: Option<&Pair>| {
            let shown = "proxy_ssl_certificate own.crt; proxy_ssl_certificate_key own.key;";
            let setup = towards(&origin, &servers, if pair.is_some() { shown } else { "" });
            with_pair(setup, "own", pair.unwrap_or(&own))
                .start()
                .get("/")
                .status()
        };
        assert_eq!(asked(Some(&own)), 200);
        assert_eq!(origin.seen()[0].certificates.len(), 1, "it was asked for");
        assert_eq!((asked(Some(&stranger)), asked(None)), (502, 502));
    }
}

/// Shows: proxy_ssl_password_file
#[test]
fn keys_towards_upstreams_may_be_encrypted() {
    let (servers, clients) = (Authority::default(), Authority::new("clients"));
    let own = clients.issue_as(Kind::Rsa, &["kp"], |_| {});
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("k"), &own.key).expect("written");
    let arguments = [
        "pkcs8",
        "-topk8",
        "-in",
        "k",
        "-passout",
        "pass:open sesame",
    ];
    let encrypted = kp_tests::tool::openssl(directory.path(), &arguments).text();
    let acceptor = Acceptor::verifying(&servers.issue(&["o.test"]), &clients);
    let origin = Origin::secure_ok(&acceptor);
    let setup = |passwords: &str| {
        let shown = "proxy_ssl_certificate own.crt; proxy_ssl_certificate_key own.key; proxy_ssl_password_file words;";
        towards(&origin, &servers, shown)
            .file("own.crt", own.certificate.clone())
            .file("own.key", encrypted.clone())
            .file("words", passwords)
    };
    assert_eq!(setup("wrong\nopen sesame\n").start().get("/").status(), 200);
    let checked = setup("wrong\n").check();
    assert_ne!(checked.code, 0);
    assert!(checked.stderr.contains("own.key"), "{}", checked.stderr);
}

/// One location for several identities of kp; connections are not shared between them.
///
/// Shows: proxy_ssl_certificate_cache
#[test]
fn the_certificate_may_depend_on_the_request() {
    let (servers, clients) = (Authority::default(), Authority::new("clients"));
    let acceptor = Acceptor::verifying(&servers.issue(&["o.test"]), &clients);
    for cache in ["off", "max=10"] {
        // It closes a connection after its third request.
        let origin = Origin::secure(&acceptor, |conversation| {
            for _ in 0..3 {
                conversation.request()?;
                conversation.send(origin::OK)?;
            }
            conversation.half_close()
        });
        let location = format!(
            "proxy_ssl_certificate $arg_who.crt; proxy_ssl_certificate_key $arg_who.key; proxy_ssl_certificate_cache {cache};"
        );
        let setup = towards(&origin, &servers, &location).upstream("keepalive 8;");
        let setup = with_pair(setup, "one", &clients.issue(&["one"]));
        let kp = with_pair(setup, "two", &clients.issue(&["two"])).start();
        for who in ["one", "two", "one", "two", "one"] {
            assert_eq!(kp.get(&format!("/?who={who}")).status(), 200);
        }
        assert_eq!(origin.connections(), 2, "one for each identity");
        assert_eq!(kp.get("/?who=nobody").status(), 500, "its own fault");
        std::fs::remove_file(kp.path("one.key")).expect("removed");
        // The next connection: what is kept of the certificate is used for it.
        let next = kp.get("/?who=one").status();
        assert_eq!(next, if cache == "off" { 500 } else { 200 });
    }
}

/// Shows: proxy_ssl_protocols, proxy_ssl_ciphers, proxy_ssl_conf_command, proxy_ssl_alpn
#[test]
fn what_is_offered_to_upstreams() {
    let ours = Authority::default();
    let acceptor = Acceptor::new(&ours.issue(&["o.test"])).changed(|config| {
        config.alpn_protocols = vec![b"special".to_vec(), b"http/1.1".to_vec()];
    });
    let origin = Origin::secure_ok(&acceptor);
    for (location, protocol, cipher, alpn) in [
        ("", "TLSv1.3", None, None),
        ("proxy_ssl_protocols TLSv1.2;", "TLSv1.2", None, None),
        (
            "proxy_ssl_protocols TLSv1.2; proxy_ssl_ciphers ECDHE-ECDSA-CHACHA20-POLY1305;",
            "TLSv1.2",
            Some("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
            None,
        ),
        (
            "proxy_ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;",
            "TLSv1.3",
            Some("TLS13_AES_128_GCM_SHA256"),
            None,
        ),
        (
            "proxy_ssl_alpn http/1.1;",
            "TLSv1.3",
            None,
            Some("http/1.1"),
        ),
        (
            "proxy_ssl_alpn special http/1.1;",
            "TLSv1.3",
            None,
            Some("special"),
        ),
    ] {
        let kp = towards(&origin, &ours, location).start();
        assert_eq!(kp.get("/").status(), 200, "{location}");
        let seen = origin.seen().pop().expect("a handshake");
        assert_eq!(
            (seen.protocol, seen.alpn.as_deref()),
            (protocol, alpn),
            "{location}"
        );
        if let Some(cipher) = cipher {
            assert_eq!(seen.cipher, cipher);
        }
    }
}

/// Shows: proxy_ssl_session_reuse
#[test]
fn sessions_with_upstreams_are_resumed() {
    let ours = Authority::default();
    for version in [&TLS12, &TLS13] {
        for (directive, wanted) in [
            ("", [false, true, true]),
            ("proxy_ssl_session_reuse off;", [false; 3]),
        ] {
            let acceptor = Acceptor::with(&ours.issue(&["o.test"]), &[version], None);
            let origin = once(&acceptor);
            let kp = towards(&origin, &ours, directive).start();
            for _ in wanted {
                assert_eq!(kp.get("/").status(), 200);
            }
            let resumed: Vec<bool> = origin.seen().iter().map(|seen| seen.resumed).collect();
            assert_eq!(resumed, wanted, "{directive}");
        }
    }
}

/// A session that was begun without verification does not make an upstream verified: it is another identity.
#[test]
fn a_session_of_an_unverified_upstream_is_not_resumed_by_a_verifying_location() {
    let others = Authority::new("others");
    let origin = once(&Acceptor::new(&others.issue(&["o.test"])));
    let text = SITE.replace(
        "location / {",
        "location /lax { proxy_pass https://o.test; }
         location / {",
    );
    let kp = Setup::new(&text)
        .with("PORT", origin.port().to_string())
        .with("SERVER_LINE", "")
        .file("ca.pem", Authority::default().pem())
        .start();
    for path in ["/lax", "/", "/lax", "/"] {
        let wanted = if path == "/lax" { 200 } else { 502 };
        assert_eq!(kp.get(path).status(), wanted);
    }
}

/// Shows: proxy_ssl_name, proxy_ssl_server_name
#[test]
fn the_name_that_is_sent_and_verified() {
    let ours = Authority::default();
    let origin = once(&Acceptor::new(&ours.issue(&[
        "o.test",
        "n.test",
        "127.0.0.1",
    ])));
    for (location, sent) in [
        ("", None),
        ("proxy_ssl_server_name on;", Some("o.test")),
        (
            "proxy_ssl_server_name on; proxy_ssl_name n.test;",
            Some("n.test"),
        ),
        (
            "proxy_ssl_server_name on; proxy_ssl_name $arg_name;",
            Some("n.test"),
        ),
        // A port is none of the name; an address is no name to be sent (RFC 6066 §3), but verified.
        (
            "proxy_ssl_server_name on; proxy_ssl_name n.test:8443;",
            Some("n.test"),
        ),
        ("proxy_ssl_server_name on; proxy_ssl_name 127.0.0.1;", None),
    ] {
        let kp = towards(&origin, &ours, location).start();
        assert_eq!(kp.get("/?name=n.test").status(), 200, "{location}");
        let seen = origin.seen().pop().expect("a handshake");
        assert_eq!(seen.server_name.as_deref(), sent, "{location}");
    }
    let kp = towards(&origin, &ours, "proxy_ssl_name 127.0.0.2;").start();
    assert_eq!(kp.get("/").status(), 502);
}

/// A handshake that fails is a failed connection: the next server is tried where it may be, POST or not.
#[test]
fn the_next_upstream_is_tried_after_a_failed_handshake() {
    let ours = Authority::default();
    let good = Origin::secure_ok(&Acceptor::new(&ours.issue(&["o.test"])));
    let plain = Origin::start(|conversation| {
        conversation.read_at_least(1)?;
        conversation.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    });
    let closing = Origin::start(|conversation| {
        conversation.read_at_least(1)?;
        Ok(())
    });
    let wrong = Origin::secure_ok(&Acceptor::new(&ours.issue(&["p.test"])));
    for bad in [&plain, &closing, &wrong] {
        let backup = format!("server 127.0.0.1:{} backup;", good.port());
        let post = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody";
        let kp = towards(bad, &ours, "").upstream(&backup).start();
        assert_eq!(kp.client().ask(post).text(), "ok");
        assert_eq!(kp.access_lines(1), ["502, 200 -"]);
        assert_eq!(good.last().body, b"body");
        let kp = towards(bad, &ours, "proxy_next_upstream off;")
            .upstream(&backup)
            .start();
        assert_eq!(kp.client().ask(post).status(), 502);
        let line = kp.access_lines(1).concat();
        let reason = if std::ptr::eq(bad, &wrong) {
            "502 upstream_certificate"
        } else {
            "502 upstream_tls_failed"
        };
        assert_eq!(line, reason);
    }
}

/// A peer whose handshakes fail is left alone for a while, as one that refuses connections.
#[test]
fn failed_handshakes_count_against_a_peer() {
    let ours = Authority::default();
    let bad = Origin::secure_ok(&Acceptor::new(&ours.issue(&["p.test"])));
    let good = Origin::secure_ok(&Acceptor::new(&ours.issue(&["o.test"])));
    let kp = towards(&bad, &ours, "")
        .with("SERVER_LINE", "max_fails=1 fail_timeout=60s")
        .upstream(&format!("server 127.0.0.1:{};", good.port()))
        .start();
    for _ in 0..6 {
        assert_eq!(kp.get("/").status(), 200);
    }
    assert_eq!(bad.connections(), 1);
}

/// A server that accepts and says nothing holds a request no longer than a connection may take.
#[test]
fn a_silent_handshake_is_a_timeout() {
    let ours = Authority::default();
    let silent = Origin::start(|conversation| {
        conversation.stall();
        Ok(())
    });
    let kp = towards(&silent, &ours, "proxy_connect_timeout 300ms;").start();
    let began = Instant::now();
    assert_eq!(kp.get("/").status(), 504);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    kp.wait_error("while SSL handshaking to upstream");
}

/// A kept connection that the upstream closes is replaced without the client noticing.
#[test]
fn a_kept_connection_that_ended_is_replaced() {
    let ours = Authority::default();
    let keeping = Origin::secure(&Acceptor::new(&ours.issue(&["o.test"])), |conversation| {
        conversation.request()?;
        conversation.send(origin::OK)?;
        // Whether the end is announced or not.
        if conversation.index % 2 == 0 {
            conversation.half_close()?;
        }
        Ok(())
    });
    let kp = towards(&keeping, &ours, "")
        .upstream("keepalive 4;")
        .start();
    for _ in 0..6 {
        assert_eq!(kp.get("/").text(), "ok");
    }
}

/// `https` in variables: the port and the name come from the address.
#[test]
fn an_address_from_a_variable() {
    let ours = Authority::default();
    let origin = Origin::secure_ok(&Acceptor::new(&ours.issue(&["127.0.0.1"])));
    let text = "%MAIN% http { server { listen %LISTEN%; location / {
        proxy_pass $arg_scheme://127.0.0.1:%PORT%; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_verify on; } } }";
    let kp = Setup::new(text)
        .with("PORT", origin.port().to_string())
        .file("ca.pem", ours.pem())
        .start();
    assert_eq!(kp.get("/?scheme=https").text(), "ok");
}
