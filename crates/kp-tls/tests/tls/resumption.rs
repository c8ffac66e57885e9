//! Sessions that are resumed: by any instance with the same keys, for the same policy and no other.

use crate::common::*;
use kp_config::model::ServerId;
use kp_shm::TicketRing;
use kp_tls::Tls;
use rustls::{CipherSuite, ClientConfig, SupportedProtocolVersion};
use std::sync::Arc;
use std::time::Duration;

fn reused(tls: &Tls, id: ServerId, config: &Arc<ClientConfig>) -> bool {
    let mut theirs = client(config, "a.test");
    let mut ours = handshake(tls, id, &mut theirs);
    // Tickets of TLS 1.3 follow the handshake.
    ours.send(b"x");
    give(&mut theirs, &mut ours.out);
    let reused = ours.open().facts().reused;
    assert_eq!(
        theirs.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        reused
    );
    reused
}

fn forgetful(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    Arc::new(client_config(&[version], None))
}

fn pair() -> Files {
    Files::default().with_pair("a", &Authority::new("root").issue("a.test"))
}

fn load_ring(http: &str, files: &Files, ring: &TicketRing) -> Tls {
    load_with(http, files, Some(ring.reader())).unwrap().0
}

#[test]
fn a_session_resumes_at_another_instance_and_after_one_rotation() {
    let ring = TicketRing::create(NOW).unwrap();
    let files = pair();
    let one = load_ring(&server(""), &files, &ring);
    let other = load_ring(
        &server("ssl_crl /etc/kp/none;").replace("ssl_crl /etc/kp/none;", ""),
        &files,
        &ring,
    );
    for (version, now) in both().into_iter().zip([NOW, NOW + 1000]) {
        let config = forgetful(version);
        assert!(!reused(&one, first(), &config));
        assert!(reused(&other, first(), &config));
        assert!(
            ring.rotate_if_due(now + 10, Duration::from_secs(10))
                .unwrap()
        );
        assert!(reused(&one, first(), &config));
        for rotation in 2..=3 {
            assert!(
                ring.rotate_if_due(now + rotation * 10, Duration::from_secs(10))
                    .unwrap()
            );
        }
        assert!(!reused(&one, first(), &config));
    }
}

/// What the server calls the session of one more connection, and whether it was resumed.
fn session_id(tls: &Tls, host: u32, config: &Arc<ClientConfig>) -> (Vec<u8>, bool) {
    let mut theirs = client(config, "a.test");
    let mut ours = handshake(tls, ServerId(host), &mut theirs);
    ours.send(b"x");
    give(&mut theirs, &mut ours.out);
    let session = ours.open();
    let id = session.session_id().to_vec();
    assert_eq!(id.len(), 32);
    (id, session.facts().reused)
}

#[test]
fn a_session_has_the_same_id_each_time_it_is_resumed() {
    let ring = TicketRing::create(NOW).unwrap();
    let tls = load_ring(
        &(server("") + &server("server_name b.test;")),
        &pair(),
        &ring,
    );
    for version in both() {
        let config = forgetful(version);
        let (made, _) = session_id(&tls, 0, &config);
        // The second time with the ticket it got when it was resumed.
        for _ in 0..2 {
            assert_eq!(session_id(&tls, 0, &config), (made.clone(), true));
        }
        assert_ne!(session_id(&tls, 0, &forgetful(version)).0, made);
        let (other, reused) = session_id(&tls, 1, &config);
        assert!(!reused);
        assert_ne!(other, made, "another host does not know it");
    }
}

/// A ticket that opens, of a session with another suite: the handshake is a full one.
#[test]
fn a_session_that_is_offered_and_not_resumed_keeps_its_id_for_itself() {
    let ring = TicketRing::create(NOW).unwrap();
    let tls = load_ring(&server(""), &pair(), &ring);
    let cases = [
        (
            &rustls::version::TLS13,
            [
                CipherSuite::TLS13_AES_128_GCM_SHA256,
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
        ),
        (
            &rustls::version::TLS12,
            [
                CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            ],
        ),
    ];
    for (version, suites) in cases {
        let [one, other] = clients_with_suites(version, suites);
        let (made, _) = session_id(&tls, 0, &one);
        let (second, reused) = session_id(&tls, 0, &other);
        assert!(!reused);
        assert_ne!(second, made);
        assert_eq!(session_id(&tls, 0, &other), (second, true));
    }
}

#[test]
fn without_tickets_each_connection_has_an_id_of_its_own() {
    let ring = TicketRing::create(NOW).unwrap();
    let off = load_ring(&server("ssl_session_tickets off;"), &pair(), &ring);
    for version in both() {
        let config = forgetful(version);
        let ids = [(); 2].map(|()| session_id(&off, 0, &config));
        assert!(!ids[1].1);
        assert_ne!(ids[0].0, ids[1].0);
    }
}

#[test]
fn without_keys_or_with_tickets_off_nothing_resumes() {
    let ring = TicketRing::create(NOW).unwrap();
    let files = pair();
    let off = load_ring(&server("ssl_session_tickets off;"), &files, &ring);
    let none = load(&server(""), &files);
    for tls in [off, none] {
        for version in both() {
            let config = forgetful(version);
            assert!(!reused(&tls, first(), &config));
            assert!(!reused(&tls, first(), &config));
        }
    }
}

#[test]
fn a_session_is_not_resumed_under_another_verification_or_for_another_host() {
    let ring = TicketRing::create(NOW).unwrap();
    let (root, other_root) = (Authority::new("root"), Authority::new("other"));
    let files = pair()
        .with("root.crt", root.made.certificate.clone())
        .with("other.crt", other_root.made.certificate.clone());
    let hosts = [
        "server_name a.test;",
        "server_name b.test;",
        "server_name a.test; ssl_verify_client optional_no_ca;",
        "server_name a.test; ssl_verify_client optional; ssl_client_certificate /etc/kp/root.crt;",
        "server_name a.test; ssl_verify_client on; ssl_client_certificate /etc/kp/root.crt;",
        "server_name a.test; ssl_verify_client on; ssl_client_certificate /etc/kp/other.crt;",
        "server_name a.test; ssl_verify_client on; ssl_client_certificate /etc/kp/other.crt; ssl_verify_depth 3;",
    ];
    let all: Vec<Tls> = hosts
        .iter()
        .map(|host| load_ring(&server(host), &files, &ring))
        .collect();
    for version in both() {
        for (from, one) in all.iter().enumerate() {
            for (to, other) in all.iter().enumerate() {
                let config = forgetful(version);
                assert!(!reused(one, first(), &config));
                let resumed = reused(other, first(), &config);
                assert_eq!(resumed, from == to, "{} to {}", hosts[from], hosts[to]);
            }
        }
    }
}

#[test]
fn a_resumed_session_knows_its_client_and_is_judged_again() {
    let ring = TicketRing::create(NOW).unwrap();
    let root = Authority::new("root");
    let mut params = params("client");
    params.serial_number = Some(77.into());
    let own = root.sign(&params);
    let files = pair()
        .with("root.crt", root.made.certificate.clone())
        .with("none.crl", root.revoke(&[1]))
        .with("some.crl", root.revoke(&[77]));
    let host = |list: &str| {
        server(&format!(
            "ssl_verify_client on; ssl_client_certificate /etc/kp/root.crt; ssl_crl /etc/kp/{list};"
        ))
    };
    let before = load_ring(&host("none.crl"), &files, &ring);
    let after = load_ring(&host("some.crl"), &files, &ring);
    for version in both() {
        let config = Arc::new(client_config(&[version], Some(&own)));
        for (tls, verdict) in [
            (&before, "Success"),
            (&before, "Success"),
            (&after, "Failed(Revoked)"),
        ] {
            let mut theirs = client(&config, "a.test");
            let mut ours = handshake(tls, first(), &mut theirs);
            ours.send(b"x");
            give(&mut theirs, &mut ours.out);
            let session = ours.open();
            assert_eq!(session.facts().chain.len(), 1);
            let found = tls.server(first()).unwrap().verdict(session, NOW);
            assert_eq!(format!("{found:?}"), verdict);
        }
        assert!(reused(&before, first(), &config));
    }
}

#[test]
fn key_files_resume_across_machines() {
    let files = pair().with("one.key", [1; 80]).with("two.key", [2; 48]);
    let first_machine = load(&server("ssl_session_ticket_key /etc/kp/one.key;"), &files);
    let second = load(
        &server("ssl_session_ticket_key /etc/kp/two.key; ssl_session_ticket_key /etc/kp/one.key;"),
        &files,
    );
    for version in both() {
        let config = forgetful(version);
        assert!(!reused(&first_machine, first(), &config));
        assert!(reused(&second, first(), &config));
        // The second seals with a key that the first does not have.
        assert!(!reused(&first_machine, first(), &config));
    }
}

#[test]
fn a_session_is_over_after_its_timeout() {
    let ring = TicketRing::create(NOW).unwrap();
    let tls = load_ring(&server("ssl_session_timeout 60s;"), &pair(), &ring);
    let config = forgetful(&rustls::version::TLS13);
    assert!(!reused(&tls, first(), &config));
    tls.clock().set(NOW + 60);
    assert!(reused(&tls, first(), &config));
    tls.clock().set(NOW + 121);
    assert!(!reused(&tls, first(), &config));
}
