//! kp as the client: verification, names, its own certificate, resumption.

use crate::common::*;
use kp_config::model::TlsIdentityId;
use kp_tls::{Reason, Session, Stage, Tls, TlsError};
use rcgen::{ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection};
use std::sync::Arc;

fn location(more: &str) -> String {
    format!("server {{ listen 80; location / {{ proxy_pass https://127.0.0.1:1; {more} }} }}")
}

fn identity() -> TlsIdentityId {
    TlsIdentityId(0)
}

fn connect(tls: &Tls, name: &str) -> Session {
    tls.upstream(identity()).unwrap().connect(1, name).unwrap()
}

fn server(config: ServerConfig) -> ServerConnection {
    ServerConnection::new(Arc::new(config)).unwrap()
}

/// What comes of a handshake with a server that shows `shown`.
fn outcome(tls: &Tls, name: &str, shown: &Made, more: &[&Made]) -> Result<(), TlsError> {
    let mut found = Vec::new();
    for version in both() {
        let mut session = connect(tls, name);
        let mut theirs = server(server_config(&[version], shown, more));
        let result = dial(&mut session, &mut theirs, usize::MAX);
        if result.is_ok() {
            assert_eq!(session.stage(), Stage::Open);
        }
        found.push(result.map(|_| ()));
    }
    assert_eq!(found[0], found[1], "both versions agree");
    found.remove(0)
}

#[test]
fn without_verification_anyone_with_the_key_will_do() {
    let tls = load(&location(""), &Files::default());
    let key = KeyPair::generate().unwrap();
    let alone = Made {
        certificate: params("x").self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    };
    assert_eq!(outcome(&tls, "b.test", &alone, &[]), Ok(()));
    // A name that is none is not sent.
    assert_eq!(outcome(&tls, "not a name", &alone, &[]), Ok(()));
}

#[test]
fn verification_has_its_reasons() {
    let root = Authority::new("root");
    let files = Files::default()
        .with("root.crt", root.made.certificate.clone())
        .with("root.crl", root.revoke(&[77]));
    let verify = "proxy_ssl_verify on; proxy_ssl_trusted_certificate /etc/kp/root.crt;";
    let tls = load(&location(verify), &files);
    let good = root.issue("a.test");
    assert_eq!(outcome(&tls, "a.test", &good, &[]), Ok(()));
    let refused = |reason| Err(TlsError::Certificate(reason));
    assert_eq!(
        outcome(&tls, "b.test", &good, &[]),
        refused(Reason::HostnameMismatch)
    );
    assert_eq!(
        outcome(&tls, "127.0.0.1", &good, &[]),
        refused(Reason::AddressMismatch)
    );
    let stranger = Authority::new("stranger").issue("a.test");
    assert_eq!(
        outcome(&tls, "a.test", &stranger, &[]),
        refused(Reason::UnableToVerifyFirst)
    );
    let mut old = params("a.test");
    old.not_after = date_time_ymd(2026, 2, 1);
    assert_eq!(
        outcome(&tls, "a.test", &root.sign(&old), &[]),
        refused(Reason::Expired)
    );
    let wrong = root.issue_for("a.test", ExtendedKeyUsagePurpose::ClientAuth);
    assert_eq!(
        outcome(&tls, "a.test", &wrong, &[]),
        refused(Reason::Purpose)
    );
    let invalid = tls.upstream(identity()).unwrap().connect(1, "not a name");
    assert_eq!(invalid.map(|_| ()), refused(Reason::HostnameMismatch));

    let mut revoked = params("a.test");
    revoked.serial_number = Some(77.into());
    let revoked = root.sign(&revoked);
    assert_eq!(outcome(&tls, "a.test", &revoked, &[]), Ok(()));
    let listed = load(
        &location(&format!("{verify} proxy_ssl_crl /etc/kp/root.crl;")),
        &files,
    );
    assert_eq!(
        outcome(&listed, "a.test", &revoked, &[]),
        refused(Reason::Revoked)
    );

    let between = root.below("between");
    let lower = between.below("lower");
    let far = lower.issue("a.test");
    let shown = [&lower.made, &between.made];
    assert_eq!(
        outcome(&tls, "a.test", &far, &shown),
        refused(Reason::NoLocalIssuer)
    );
    let deeper = load(
        &location(&format!("{verify} proxy_ssl_verify_depth 2;")),
        &files,
    );
    assert_eq!(outcome(&deeper, "a.test", &far, &shown), Ok(()));
}

#[test]
fn the_error_log_gets_nginx_words() {
    let error = TlsError::Certificate(Reason::Expired);
    assert_eq!(
        error.to_string(),
        "certificate verify error: (10:certificate has expired)"
    );
}

#[test]
fn a_common_name_counts_where_nothing_else_is_named() {
    let root = Authority::new("root");
    let files = Files::default().with("root.crt", root.made.certificate.clone());
    let tls = load(
        &location("proxy_ssl_verify on; proxy_ssl_trusted_certificate /etc/kp/root.crt;"),
        &files,
    );
    let mut plain = params("a.test");
    plain.subject_alt_names.clear();
    let plain = root.sign(&plain);
    assert_eq!(outcome(&tls, "a.test", &plain, &[]), Ok(()));
    assert_eq!(
        outcome(&tls, "b.test", &plain, &[]),
        Err(TlsError::Certificate(Reason::HostnameMismatch))
    );
}

#[test]
fn the_name_is_sent_only_when_asked_for() {
    let shown = Authority::new("root").issue("a.test");
    for (more, name, expected) in [
        ("", "a.test", None),
        ("proxy_ssl_server_name on;", "a.test", Some("a.test")),
        ("proxy_ssl_server_name on;", "a.test.", Some("a.test")),
        ("proxy_ssl_server_name on;", "127.0.0.1", None),
    ] {
        let tls = load(&location(more), &Files::default());
        let mut session = connect(&tls, name);
        let mut theirs = server(server_config(&both(), &shown, &[]));
        dial(&mut session, &mut theirs, 7).unwrap();
        assert_eq!(theirs.server_name(), expected, "{more} {name}");
    }
}

#[test]
fn kp_shows_its_own_certificate_when_asked() {
    let root = Authority::new("root");
    let own = root.issue("kp");
    let files = Files::default().with_pair("kp", &own);
    let more = "proxy_ssl_certificate /etc/kp/kp.crt; proxy_ssl_certificate_key /etc/kp/kp.key;";
    let with = load(&location(more), &files);
    let without = load(&location(""), &files);
    let mut roots = RootCertStore::empty();
    roots.add(root.made.chain().remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let asks = |version| {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider.clone());
        let shown = root.issue("a.test");
        ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(shown.chain(), shown.private_key())
            .unwrap()
    };
    for version in both() {
        let mut theirs = server(asks(version));
        dial(&mut connect(&with, "a.test"), &mut theirs, usize::MAX).unwrap();
        assert_eq!(theirs.peer_certificates().unwrap(), own.chain());
        let mut theirs = server(asks(version));
        let refused = dial(&mut connect(&without, "a.test"), &mut theirs, usize::MAX);
        assert!(matches!(refused, Err(TlsError::Alert(_))), "{refused:?}");
    }
}

#[test]
fn sessions_are_resumed_with_the_same_peer_only_and_only_if_wanted() {
    let shown = Authority::new("root").issue("a.test");
    for version in both() {
        let mut config = server_config(&[version], &shown, &[]);
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
        let config = Arc::new(config);
        let resumed = |tls: &Tls, peer, name| {
            let mut session = tls
                .upstream(identity())
                .unwrap()
                .connect(peer, name)
                .unwrap();
            let mut theirs = ServerConnection::new(config.clone()).unwrap();
            dial(&mut session, &mut theirs, usize::MAX).unwrap();
            let reused = session.facts().reused;
            assert_eq!(
                reused,
                theirs.handshake_kind() == Some(HandshakeKind::Resumed)
            );
            reused
        };
        let tls = load(&location(""), &Files::default());
        assert!(!resumed(&tls, 1, "a.test"));
        assert!(resumed(&tls, 1, "a.test"));
        assert!(!resumed(&tls, 2, "a.test"));
        assert!(!resumed(&tls, 1, "b.test"));
        assert!(resumed(&tls, 1, "a.test"));
        let off = load(&location("proxy_ssl_session_reuse off;"), &Files::default());
        assert!(!resumed(&off, 1, "a.test"));
        assert!(!resumed(&off, 1, "a.test"));
    }
}

#[test]
fn versions_suites_and_protocols_are_those_of_the_configuration() {
    let shown = Authority::new("root").issue("a.test");
    let more = "proxy_ssl_protocols TLSv1.2; proxy_ssl_ciphers ECDHE-ECDSA-CHACHA20-POLY1305; proxy_ssl_alpn http/1.1;";
    let tls = load(&location(more), &Files::default());
    let mut session = connect(&tls, "a.test");
    let mut config = server_config(&both(), &shown, &[]);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    dial(&mut session, &mut server(config), usize::MAX).unwrap();
    let facts = session.facts();
    assert_eq!(facts.protocol, "TLSv1.2");
    assert_eq!(facts.cipher, "ECDHE-ECDSA-CHACHA20-POLY1305");
    assert_eq!(facts.alpn, Some(&b"http/1.1"[..]));
    assert_eq!(facts.chain, shown.chain());

    let mut session = connect(&tls, "a.test");
    let only13 = server_config(&[&rustls::version::TLS13], &shown, &[]);
    assert!(dial(&mut session, &mut server(only13), usize::MAX).is_err());
}

#[test]
fn a_server_may_send_tickets_but_not_without_end() {
    let shown = Authority::new("root").issue("a.test");
    let tls = load(&location(""), &Files::default());
    let ended = |tickets| {
        let mut config = server_config(&[&rustls::version::TLS13], &shown, &[]);
        config.send_tls13_tickets = tickets;
        let mut session = connect(&tls, "a.test");
        dial(&mut session, &mut server(config), 16 * 1024).map(|_| session.stage())
    };
    assert_eq!(ended(20), Ok(Stage::Open));
    assert_eq!(ended(4000), Err(TlsError::TooLong));
}

#[test]
fn a_server_that_speaks_http_is_an_error() {
    let tls = load(&location(""), &Files::default());
    let mut session = connect(&tls, "a.test");
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    session.start(&mut out).unwrap();
    assert!(!out.is_empty());
    let mut answer = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
    let result = session.receive(&mut answer, &mut plain, &mut out, usize::MAX);
    assert!(matches!(result, Err(TlsError::Protocol(_))), "{result:?}");
    assert!(plain.is_empty());
}
