//! Sessions: resumed by every worker, after reloads and upgrades, for as long as the keys live, and never under another
//! policy.

use std::time::Duration;

use kp_tests::tls::{Authority, Connector};
use kp_tests::tool::{self, Told};
use kp_tests::{Client, Kp, Setup, wait};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::tls_site::{body, get, one, s_client, with_pair};

/// How many of so many connections resumed a session, as both sides say.
fn resumed(kp: &Kp, connector: &Connector, count: usize) -> usize {
    let resumed = |_: &usize| {
        let mut client = Client::secure(&kp.address(), connector);
        let resumed = client.seen().resumed;
        let said = client.ask(get("a.test")).text();
        assert_eq!(said, if resumed { "r" } else { "." });
        resumed
    };
    (0..count).filter(resumed).count()
}

/// Four workers, three reloads and a new binary: all but the first connection resume.
#[test]
fn every_worker_of_every_generation_resumes_every_session() {
    for version in [&TLS12, &TLS13] {
        let (setup, authority) = one("$ssl_session_reused");
        let mut kp = setup.main("worker_processes 4;").copied().start();
        kp.wait_workers(4);
        let connector = Connector::version(&authority, "a.test", version);
        assert_eq!(resumed(&kp, &connector, 24), 23, "all but the first");
        for _ in 0..3 {
            kp.reload();
            kp.wait_workers(4);
            assert_eq!(resumed(&kp, &connector, 16), 16, "after a reload");
        }
        let upgraded = kp.command(&["-s", "upgrade"]);
        assert_eq!(upgraded.code, 0, "{}", upgraded.stderr);
        kp.follow();
        kp.wait_workers(4);
        assert_eq!(resumed(&kp, &connector, 16), 16, "by the new binary");
    }
}

/// Shows: ssl_session_tickets
#[test]
fn without_tickets_nothing_is_resumed() {
    for version in [&TLS12, &TLS13] {
        let (setup, authority) = one("$ssl_session_reused");
        let kp = setup.server("ssl_session_tickets off;").start();
        let connector = Connector::version(&authority, "a.test", version);
        assert_eq!(resumed(&kp, &connector, 4), 0);
    }
}

/// Who makes `count` connections is told this: `r` or `.`, then the id of the session; the same for each of two requests.
fn session_ids(kp: &Kp, connector: &Connector, count: usize) -> Vec<String> {
    let said = |_| {
        let mut client = Client::secure(&kp.address(), connector);
        let said = client.ask(get("a.test")).text();
        assert_eq!(client.ask(get("a.test")).text(), said, "the next request");
        let id = &said[1..];
        assert_eq!(id.len(), 64, "{said}");
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        assert!(id.bytes().all(digit), "{said}");
        said
    };
    (0..count).map(said).collect()
}

/// `$ssl_session_id` is the session's, wherever and however often it is resumed; no other session has it.
#[test]
fn a_session_has_one_id() {
    for version in [&TLS12, &TLS13] {
        let (setup, authority) = one("$ssl_session_reused$ssl_session_id");
        let kp = setup.main("worker_processes 2;").start();
        kp.wait_workers(2);
        let connector = Connector::version(&authority, "a.test", version);
        let said = session_ids(&kp, &connector, 8);
        let (reused, id) = said[0].split_at(1);
        assert_eq!(reused, ".");
        let again = format!("r{id}");
        assert!(said[1..].iter().all(|one| *one == again), "{said:?}");
        kp.reload();
        kp.wait_workers(2);
        assert_eq!(session_ids(&kp, &connector, 1), [again]);
        let other = session_ids(&kp, &connector.fresh(), 2);
        assert_ne!(other[0], said[0]);
        assert_eq!(other[1][1..], other[0][1..]);
    }
}

/// A session that cannot be resumed has an id, too.
#[test]
fn without_tickets_every_connection_has_another_id() {
    for version in [&TLS12, &TLS13] {
        let (setup, authority) = one("$ssl_session_reused$ssl_session_id");
        let kp = setup.server("ssl_session_tickets off;").start();
        let connector = Connector::version(&authority, "a.test", version);
        let said = session_ids(&kp, &connector, 2);
        assert!(said.iter().all(|one| one.starts_with('.')), "{said:?}");
        assert_ne!(said[0], said[1]);
    }
}

/// Shows: ssl_session_ticket_rotation
#[test]
fn a_ticket_lives_as_long_as_its_key() {
    of_both_versions(|version| {
        let (setup, authority) = one("$ssl_session_reused");
        let kp = setup.http("ssl_session_ticket_rotation 3s;").start();
        let [early, late] = [(); 2].map(|()| Connector::version(&authority, "a.test", version));
        for connector in [&early, &late] {
            assert_eq!(resumed(&kp, connector, 1), 0);
        }
        wait::pause(Duration::from_millis(3000));
        assert_eq!(resumed(&kp, &early, 1), 1, "one period old");
        wait::pause(Duration::from_millis(6500));
        assert_eq!(resumed(&kp, &late, 1), 0, "three periods old");
        // Those who come regularly go on.
        assert_eq!(resumed(&kp, &late, 2), 2);
    });
}

/// Shows: ssl_session_timeout
#[test]
fn a_session_is_over_after_its_time() {
    of_both_versions(|version| {
        let (setup, authority) = one("$ssl_session_reused");
        let kp = setup.server("ssl_session_timeout 3s;").start();
        let connector = Connector::version(&authority, "a.test", version);
        assert_eq!(resumed(&kp, &connector, 2), 1);
        wait::pause(Duration::from_millis(4500));
        assert_eq!(resumed(&kp, &connector, 1), 0);
    });
}

/// A test with either version of TLS, at the same time.
fn of_both_versions(test: impl Fn(&'static SupportedProtocolVersion) + Sync) {
    std::thread::scope(|scope| {
        for version in [&TLS12, &TLS13] {
            let test = &test;
            scope.spawn(move || test(version));
        }
    });
}

/// Two kp with the same key are one to clients; a key that went from the first place to the second still opens tickets.
///
/// Shows: ssl_session_ticket_key
#[test]
fn keys_of_files_are_shared_between_machines() {
    let random = |length: usize, seed: usize| -> Vec<u8> {
        (0..length)
            .map(|at| (at * 37 + seed * 101 + at * at * seed) as u8)
            .collect()
    };
    for (length, version) in [(48, &TLS12), (80, &TLS13), (48, &TLS13), (80, &TLS12)] {
        let authority = Authority::default();
        let pair = authority.issue(&["a.test"]);
        let machine = |keys: &str| {
            with_pair(Setup::new(crate::tls_site::ONE), "a.test", &pair)
                .with("SAYS", "$ssl_session_reused")
                .file("one.key", random(length, 1))
                .file("two.key", random(length, 2))
                .server(keys)
                .start()
        };
        let (one, two) = (
            "ssl_session_ticket_key one.key;",
            "ssl_session_ticket_key two.key;",
        );
        let connector = Connector::version(&authority, "a.test", version);
        assert_eq!(resumed(&machine(one), &connector, 2), 1);
        assert_eq!(resumed(&machine(one), &connector, 1), 1, "the same key");
        assert_eq!(
            resumed(&machine(&format!("{two} {one}")), &connector, 1),
            1,
            "the key before"
        );
        assert_eq!(
            resumed(&machine(two), &connector, 1),
            1,
            "encrypted by the first"
        );
        assert_eq!(resumed(&machine(one), &connector, 1), 0, "another key");
    }
    let (setup, _) = crate::tls_site::one("");
    let checked = setup
        .file("k", random(47, 1))
        .server("ssl_session_ticket_key k;")
        .check();
    assert_ne!(checked.code, 0);
    assert!(
        checked.stderr.contains("must be 48 or 80 bytes"),
        "{}",
        checked.stderr
    );
}

/// Four hosts of one name space, with different demands on clients.
const POLICIES: &str = "%MAIN% http {
    ssl_certificate site.crt; ssl_certificate_key site.key;
    server { listen %LISTEN% ssl; server_name open.test; return 200 $ssl_session_reused$ssl_client_verify; }
    server { listen %LISTEN% ssl; server_name one.test; ssl_verify_client on; ssl_client_certificate one.pem;
        return 200 $ssl_session_reused$ssl_client_verify; }
    server { listen %LISTEN% ssl; server_name maybe.test; ssl_verify_client optional; ssl_client_certificate one.pem;
        return 200 $ssl_session_reused$ssl_client_verify; }
    server { listen %LISTEN% ssl; server_name two.test; ssl_verify_client on; ssl_client_certificate two.pem;
        return 200 $ssl_session_reused$ssl_client_verify; }
}";

/// CVE-2025-23419: what was found out about a client under one policy says nothing under another.
#[test]
fn a_session_is_not_resumed_under_another_policy() {
    let (servers, one, two) = (
        Authority::default(),
        Authority::new("one"),
        Authority::new("two"),
    );
    let hosts = ["open.test", "one.test", "maybe.test", "two.test"];
    let setup = with_pair(Setup::new(POLICIES), "site", &servers.issue(&hosts));
    let kp = with_pair(setup, "client", &one.issue(&["somebody"]))
        .file("ca.pem", servers.pem())
        .file("one.pem", one.pem())
        .file("two.pem", two.pem())
        .main("worker_processes 2;")
        .start();
    for version in ["-tls1_2", "-tls1_3"] {
        for from in ["open.test", "one.test", "maybe.test"] {
            let session = format!("{from}{version}");
            let begun = with_client(&kp, &[version, "-sess_out", &session], from);
            assert!(begun.text().contains("New, TLS"), "{}", begun.all());
            assert!(!body(&begun).is_empty(), "{}", begun.all());
            for to in hosts {
                let told = with_client(&kp, &[version, "-sess_in", &session], to);
                let again = told.text().contains("Reused, TLS");
                assert_eq!(
                    again,
                    from == to,
                    "{from} to {to}, {version}: {}",
                    told.all()
                );
                let said = match to {
                    "open.test" => "NONE",
                    "two.test" => "",
                    _ => "SUCCESS",
                };
                let reused = if again { "r" } else { "." };
                let wanted = if said.is_empty() {
                    String::new()
                } else {
                    format!("{reused}{said}")
                };
                if to == "two.test" {
                    assert!(told.text().contains(" 400 Bad Request"), "{}", told.all());
                } else {
                    assert_eq!(body(&told), wanted, "{from} to {to}");
                }
            }
        }
    }
}

fn with_client(kp: &Kp, more: &[&str], host: &str) -> Told {
    let mut arguments = vec!["-cert", "client.crt", "-key", "client.key"];
    arguments.extend_from_slice(more);
    s_client(kp, &arguments, host)
}

/// A session stays what it is when the certificate behind it is revoked: the client is judged again.
#[test]
fn a_resumed_client_is_judged_anew() {
    let (servers, clients) = (Authority::default(), Authority::new("clients"));
    for version in ["-tls1_2", "-tls1_3"] {
        let setup = with_pair(
            Setup::new(crate::tls_site::ONE),
            "a.test",
            &servers.issue(&["a.test"]),
        );
        let client = clients.issue_as(kp_tests::tls::Kind::Ecdsa, &["c"], |params| {
            kp_tests::tls::numbered(params, 77);
        });
        let kp = with_pair(setup, "client", &client)
            .with("SAYS", "$ssl_session_reused$ssl_client_verify")
            .file("ca.pem", servers.pem())
            .file("clients.pem", clients.pem())
            .file("crl.pem", clients.revoke(&[]))
            .server("ssl_verify_client on; ssl_client_certificate clients.pem; ssl_crl crl.pem;")
            .start();
        let begun = with_client(&kp, &[version, "-sess_out", "session"], "a.test");
        assert_eq!(body(&begun), ".SUCCESS", "{}", begun.all());
        std::fs::write(kp.path("crl.pem"), clients.revoke(&[77])).expect("written");
        kp.reload();
        let told = with_client(&kp, &[version, "-sess_in", "session"], "a.test");
        assert!(told.text().contains(" 400 Bad Request"), "{}", told.all());
    }
}

/// The ticket says how long it is good for, and another implementation than the one of these tests resumes, too.
#[test]
fn openssl_resumes_what_it_kept() {
    let (setup, _) = one("$ssl_session_reused");
    let kp = setup.start();
    for version in ["-tls1_2", "-tls1_3"] {
        let first = s_client(&kp, &[version, "-sess_out", "kept"], "a.test");
        assert_eq!(body(&first), ".", "{}", first.all());
        let shown = tool::openssl(&kp.path(""), &["sess_id", "-in", "kept", "-noout", "-text"]);
        let lifetime = shown.line("TLS session ticket lifetime hint:");
        assert_eq!(
            lifetime.as_deref(),
            Some("300 (seconds)"),
            "{}",
            shown.all()
        );
        let again = s_client(&kp, &[version, "-sess_in", "kept"], "a.test");
        assert_eq!(body(&again), "r", "{}", again.all());
    }
}
