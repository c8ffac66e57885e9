//! Clients' certificates: what is made of them, in OpenSSL's words.

use crate::common::*;
use kp_tls::{Certificate, Reason, Tls, Verdict, fingerprint, to_pem};
use rcgen::{ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use std::sync::Arc;

fn verdict(tls: &Tls, own: Option<&Made>) -> Verdict {
    let mut found = Vec::new();
    for version in both() {
        let config = Arc::new(client_config(&[version], own));
        let mut theirs = client(&config, "a.test");
        let ours = handshake(tls, first(), &mut theirs);
        let server = tls.server(first()).unwrap();
        found.push(server.verdict(ours.open(), NOW));
    }
    assert_eq!(found[0], found[1], "both versions agree");
    found[0]
}

struct World {
    root: Authority,
    files: Files,
}

fn world() -> World {
    let root = Authority::new("root");
    let files = Files::default()
        .with_pair("a", &root.issue("a.test"))
        .with("root.crt", root.made.certificate.clone());
    World { root, files }
}

fn verifying(more: &str) -> String {
    server(&format!(
        "ssl_verify_client on; ssl_client_certificate /etc/kp/root.crt; {more}"
    ))
}

#[test]
fn the_four_modes_ask_or_do_not() {
    let World { root, files } = world();
    let own = root.issue("client");
    let off = load(&server(""), &files);
    assert_eq!(verdict(&off, Some(&own)), Verdict::None);
    for mode in ["on", "optional"] {
        let tls = load(
            &server(&format!(
                "ssl_verify_client {mode}; ssl_client_certificate /etc/kp/root.crt;"
            )),
            &files,
        );
        assert_eq!(verdict(&tls, Some(&own)), Verdict::Success);
        assert_eq!(verdict(&tls, None), Verdict::None);
    }
    let no_ca = load(&server("ssl_verify_client optional_no_ca;"), &files);
    assert_eq!(
        verdict(&no_ca, Some(&own)),
        Verdict::Failed(Reason::UnableToVerifyFirst)
    );
    assert_eq!(verdict(&no_ca, None), Verdict::None);
}

#[test]
fn every_reason_has_its_words() {
    let World { root, files } = world();
    let tls = load(&verifying(""), &files);
    let judged = |own: &Made| match verdict(&tls, Some(own)) {
        Verdict::Failed(reason) => format!("FAILED:{}", reason.text()),
        other => format!("{other:?}"),
    };
    assert_eq!(judged(&root.issue("client")), "Success");

    let stranger = Authority::new("stranger");
    assert_eq!(
        judged(&stranger.issue("client")),
        "FAILED:unable to verify the first certificate"
    );
    let mut chain = stranger.issue("client");
    chain.certificate += &stranger.made.certificate;
    assert_eq!(
        judged(&chain),
        "FAILED:self-signed certificate in certificate chain"
    );
    let between = stranger.below("between");
    let mut chain = between.issue("client");
    chain.certificate += &between.made.certificate;
    assert_eq!(
        judged(&chain),
        "FAILED:unable to get local issuer certificate"
    );

    let key = KeyPair::generate().unwrap();
    let alone = Made {
        certificate: params("client").self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    };
    assert_eq!(judged(&alone), "FAILED:self-signed certificate");

    let mut old = params("client");
    old.not_after = date_time_ymd(2026, 2, 1);
    assert_eq!(judged(&root.sign(&old)), "FAILED:certificate has expired");
    let mut early = params("client");
    early.not_before = date_time_ymd(2030, 1, 1);
    assert_eq!(
        judged(&root.sign(&early)),
        "FAILED:certificate is not yet valid"
    );
    let wrong = root.issue_for("client", ExtendedKeyUsagePurpose::ServerAuth);
    assert_eq!(judged(&wrong), "FAILED:unsuitable certificate purpose");

    // A date is looked at last, whoever signed.
    let mut old = params("client");
    old.not_after = date_time_ymd(2026, 2, 1);
    let late = "FAILED:certificate has expired";
    assert_eq!(judged(&stranger.sign(&old)), late);
    let key = KeyPair::generate().unwrap();
    let alone = Made {
        certificate: old.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    };
    assert_eq!(judged(&alone), late);

    // Another key under the same name.
    let forger = Authority::new("root");
    assert_eq!(
        judged(&forger.issue("client")),
        "FAILED:certificate signature failure"
    );
}

#[test]
fn depth_counts_what_stands_between() {
    let World { root, files } = world();
    let between = root.below("between");
    let lower = between.below("lower");
    let mut one = between.issue("client");
    one.certificate += &between.made.certificate;
    let mut two = lower.issue("client");
    two.certificate += &lower.made.certificate;
    two.certificate += &between.made.certificate;
    for (depth, direct, with_one, with_two) in [
        (0, true, false, false),
        (1, true, true, false),
        (2, true, true, true),
    ] {
        let tls = load(&verifying(&format!("ssl_verify_depth {depth};")), &files);
        let expected = |good| match good {
            true => Verdict::Success,
            false => Verdict::Failed(Reason::NoLocalIssuer),
        };
        assert_eq!(verdict(&tls, Some(&root.issue("client"))), expected(direct));
        assert_eq!(
            verdict(&tls, Some(&one)),
            expected(with_one),
            "depth {depth}"
        );
        assert_eq!(
            verdict(&tls, Some(&two)),
            expected(with_two),
            "depth {depth}"
        );
    }
}

/// Certificates under one name are as many ways to try: a few are tried, as a renewed authority wants, and a heap is not.
#[test]
fn a_heap_of_certificates_is_not_gone_through() {
    let World { root, files } = world();
    let tls = load(&verifying("ssl_verify_depth 1;"), &files);
    let between = root.below("between");
    let namesakes = |count| {
        let mut own = between.issue("client");
        for _ in 0..count {
            own.certificate += &root.below("between").made.certificate;
        }
        own.certificate += &between.made.certificate;
        verdict(&tls, Some(&own))
    };
    assert_eq!(namesakes(2), Verdict::Success);
    assert_eq!(
        namesakes(12),
        Verdict::Failed(Reason::SignatureFailure),
        "the first of them counts"
    );
}

#[test]
fn a_trusted_file_may_help_with_what_the_client_leaves_out_but_trust_ends_in_a_root() {
    let World { root, files } = world();
    let between = root.below("between");
    let own = between.issue("client");
    let both = root.made.certificate.clone() + &between.made.certificate;
    let files = files
        .with("both.crt", both)
        .with("between.crt", between.made.certificate.clone());
    let helped = load(
        &verifying("ssl_trusted_certificate /etc/kp/between.crt;"),
        &files,
    );
    assert_eq!(verdict(&helped, Some(&own)), Verdict::Success);
    let alone = server("ssl_verify_client on; ssl_client_certificate /etc/kp/between.crt;");
    let rootless = load(&alone, &files);
    assert!(matches!(verdict(&rootless, Some(&own)), Verdict::Failed(_)));
}

#[test]
fn a_certificate_that_is_its_own_root_is_good_if_trusted() {
    let key = KeyPair::generate().unwrap();
    let own = Made {
        certificate: authority_params("client").self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    };
    let files = world().files.with("root.crt", own.certificate.clone());
    let tls = load(&verifying(""), &files);
    assert_eq!(verdict(&tls, Some(&own)), Verdict::Success);
}

#[test]
fn revoked_is_revoked_and_an_issuer_without_a_list_is_told() {
    let World { root, files } = world();
    let mut params = params("client");
    params.serial_number = Some(77.into());
    let own = root.sign(&params);
    let stranger = Authority::new("stranger");
    let files = files
        .with("ours.crl", root.revoke(&[77]))
        .with("others.crl", stranger.revoke(&[]));
    let ours = load(&verifying("ssl_crl /etc/kp/ours.crl;"), &files);
    assert_eq!(verdict(&ours, Some(&own)), Verdict::Failed(Reason::Revoked));
    assert_eq!(
        verdict(&ours, Some(&root.issue("client"))),
        Verdict::Success
    );
    let others = load(&verifying("ssl_crl /etc/kp/others.crl;"), &files);
    assert_eq!(verdict(&others, Some(&own)), Verdict::Failed(Reason::NoCrl));
    // After its time a list says nothing any more.
    let config = Arc::new(client_config(&both(), Some(&own)));
    let mut theirs = client(&config, "a.test");
    let session = handshake(&ours, first(), &mut theirs);
    let later = ours
        .server(first())
        .unwrap()
        .verdict(session.open(), NOW + 365 * 86_400);
    assert_eq!(later, Verdict::Failed(Reason::CrlExpired));
}

#[test]
fn a_client_without_the_key_does_not_get_in() {
    // The library's client does not let itself be lied to, so the bytes of its signature are changed on the way (TLS 1.2:
    // CertificateVerify is in the clear).
    let World { root, files } = world();
    let tls = load(&verifying(""), &files);
    let config = Arc::new(client_config(
        &[&rustls::version::TLS12],
        Some(&root.issue("client")),
    ));
    let mut theirs = client(&config, "a.test");
    let mut ours = Ours::new(&tls, first());
    let mut wire = Vec::new();
    theirs.write_tls(&mut wire).unwrap();
    ours.take(&wire).unwrap();
    give(&mut theirs, &mut ours.out);
    let mut wire = Vec::new();
    while theirs.wants_write() {
        theirs.write_tls(&mut wire).unwrap();
    }
    let verify = wire.windows(2).rposition(|two| two == [15, 0]).unwrap();
    wire[verify + 40] ^= 1;
    assert!(ours.take(&wire).is_err());
    assert!(!ours.out.is_empty());
}

#[test]
fn the_names_of_authorities_are_told_to_clients() {
    // Seen in the bytes of TLS 1.2, where CertificateRequest is in the clear.
    let World { files, .. } = world();
    let told = |more: &str| {
        let tls = load(&server(&format!("ssl_verify_client on; {more}")), &files);
        let config = Arc::new(client_config(&[&rustls::version::TLS12], None));
        let mut theirs = client(&config, "a.test");
        let mut ours = Ours::new(&tls, first());
        let mut wire = Vec::new();
        theirs.write_tls(&mut wire).unwrap();
        ours.take(&wire).unwrap();
        // The name stands in the server's certificate, as issuer, once.
        ours.out.windows(4).filter(|part| *part == b"root").count() - 1
    };
    assert_eq!(told("ssl_client_certificate /etc/kp/root.crt;"), 1);
    assert_eq!(told("ssl_trusted_certificate /etc/kp/root.crt;"), 0);
}

#[test]
fn certificates_read_as_nginx_shows_them() {
    let root = Authority::new("root");
    let mut params = params("client");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CountryName, "DE");
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "Müller, \"Söhne\" + Co");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "#client ");
    params.serial_number = Some(rcgen::SerialNumber::from(vec![0x00, 0x0a, 0xbc]));
    let made = root.sign(&params);
    let der = &made.chain()[0];
    let read = Certificate::parse(der).unwrap();
    assert_eq!(
        read.subject(),
        "CN=\\#client\\ ,O=M\\C3\\BCller\\, \\\"S\\C3\\B6hne\\\" \\+ Co,C=DE"
    );
    assert_eq!(read.issuer(), "CN=root");
    assert_eq!(
        read.legacy_subject(),
        "/C=DE/O=M\\xC3\\xBCller, \"S\\xC3\\xB6hne\" \\+ Co/CN=#client "
    );
    assert_eq!(read.legacy_issuer(), "/CN=root");
    assert_eq!(read.serial(), "0ABC");
    assert_eq!(read.not_before(), "Jan  1 00:00:00 2026 GMT");
    assert_eq!(read.not_after(), "Jan  1 00:00:00 2036 GMT");
    assert_eq!(
        read.days_left(read.not_after_unix_secs() - 86_400 * 3 - 1),
        3
    );
    assert_eq!(read.days_left(read.not_after_unix_secs() + 1), 0);
    assert_eq!(to_pem(der), made.certificate.replace('\r', ""));
    assert_eq!(fingerprint(der).len(), 40);
    assert!(Certificate::parse(&b"nonsense".to_vec().into()).is_none());
}
