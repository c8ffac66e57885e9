//! What is read from files: every form of key, every mistake with its words, several certificates, changes at run time.

use crate::common::*;
use kp_config::Severity;
use kp_tls::{PairUpdate, watched_pairs};
use rcgen::{KeyPair, PKCS_RSA_SHA256, date_time_ymd};
use rustls::SignatureScheme;
use std::sync::Arc;

fn messages(http: &str, files: &Files) -> Vec<String> {
    let found = load_with(http, files, None).map(|_| ()).unwrap_err();
    assert!(
        found
            .iter()
            .all(|one| one.severity == Severity::Error && one.span.is_some())
    );
    found.into_iter().map(|one| one.message).collect()
}

fn pair() -> Files {
    Files::default().with_pair("a", &Authority::new("root").issue("a.test"))
}

/// Of a P-256 key, made with OpenSSL in each of its forms.
const SEC1: &str = include_str!("keys/sec1.pem");
const PKCS8: &str = include_str!("keys/pkcs8.pem");
const SEALED: [&str; 4] = [
    include_str!("keys/sealed-3des.pem"),
    include_str!("keys/sealed-aes256-sha256.pem"),
    include_str!("keys/sealed-aes128-sha1.pem"),
    include_str!("keys/sealed-scrypt.pem"),
];
const OLD_SEALED: &str = include_str!("keys/sealed-old.pem");
const RSA_PKCS1: &str = include_str!("keys/rsa-pkcs1.pem");

fn for_key(text: &str) -> Files {
    let key = KeyPair::from_pem(text).unwrap();
    let made = Authority::new("root").sign_for(&params("a.test"), &key);
    Files::default().with("a.crt", made.certificate)
}

#[test]
fn every_form_of_a_key_is_read() {
    let files = for_key(PKCS8).with("passwords", "wrong\r\nsecret\n");
    for key in [SEC1, PKCS8] {
        load(&server(""), &files.clone().with("a.key", key));
    }
    for key in SEALED {
        let files = files.clone().with("a.key", key);
        let tls = load(&server("ssl_password_file /etc/kp/passwords;"), &files);
        let config = Arc::new(client_config(&both(), None));
        handshake(&tls, first(), &mut client(&config, "a.test"));
    }
    let rsa =
        Authority::new("root").sign_for(&params("a.test"), &KeyPair::from_pem(RSA_PKCS1).unwrap());
    let files = Files::default()
        .with("a.crt", rsa.certificate)
        .with("a.key", RSA_PKCS1);
    load(&server(""), &files);
}

#[test]
fn a_key_that_cannot_be_opened_is_told() {
    let files = for_key(PKCS8).with("passwords", "wrong\n");
    let with_password = server("ssl_password_file /etc/kp/passwords;");
    let lead = "cannot load certificate key \"/etc/kp/a.key\": ";
    for key in SEALED {
        let files = files.clone().with("a.key", key);
        let found = messages(&with_password, &files);
        assert!(
            found[0].starts_with(&format!("{lead}no password opens it")),
            "{found:?}"
        );
        let found = messages(&server(""), &files);
        assert_eq!(
            found,
            [format!(
                "{lead}it is encrypted, and there is no ssl_password_file"
            )]
        );
    }
    let found = messages(&with_password, &files.with("a.key", OLD_SEALED));
    assert!(found[0].contains("openssl pkcs8 -topk8"), "{found:?}");
}

#[test]
fn files_that_are_missing_or_wrong_are_told_at_once() {
    let other = Authority::new("root").issue("a.test");
    let found = messages(&server(""), &Files::default());
    assert_eq!(
        found,
        [
            "cannot load certificate \"/etc/kp/a.crt\" open() failed (2: No such file or directory)",
            "cannot load certificate key \"/etc/kp/a.key\" open() failed (2: No such file or directory)"
        ]
        .map(|text| text.replace("\" open", "\": open"))
    );
    let found = messages(&server(""), &pair().with("a.crt", "nothing"));
    assert_eq!(
        found,
        ["cannot load certificate \"/etc/kp/a.crt\": no start line: expecting a CERTIFICATE"]
    );
    let found = messages(&server(""), &pair().with("a.key", "nothing"));
    assert_eq!(
        found,
        ["cannot load certificate key \"/etc/kp/a.key\": no start line: expecting a PRIVATE KEY"]
    );
    let found = messages(&server(""), &pair().with("a.key", other.key));
    assert_eq!(
        found,
        [
            "SSL_CTX_use_PrivateKey(\"/etc/kp/a.key\") failed (key values mismatch): it is not the key of \"/etc/kp/a.crt\""
        ]
    );
    let more = "ssl_session_ticket_key /etc/kp/short; ssl_stapling on; ssl_stapling_file /etc/kp/none; ssl_verify_client on; ssl_client_certificate /etc/kp/short; ssl_crl /etc/kp/short;";
    let found = messages(&server(more), &pair().with("short", "x")).join("\n");
    for part in [
        "cannot load OCSP response \"/etc/kp/none\": open() failed",
        "failed to load certificate \"/etc/kp/short\": no start line",
        "failed to load CRL \"/etc/kp/short\": no start line",
        "\"/etc/kp/short\" must be 48 or 80 bytes",
    ] {
        assert!(found.contains(part), "{part} in {found}");
    }
}

#[test]
fn a_certificate_that_ends_soon_is_warned_of() {
    let root = Authority::new("root");
    let warned = |params: &rcgen::CertificateParams| {
        let files = Files::default().with_pair("a", &root.sign(params));
        let (tls, warnings) = load_with(&server(""), &files, None).unwrap();
        assert!(warnings.iter().all(|one| one.severity == Severity::Warning));
        let told = tls.expiries(NOW).remove(0);
        assert_eq!(told.certificate.to_str(), Some("/etc/kp/a.crt"));
        let warning = warnings.first().map(|one| one.message.clone());
        assert_eq!(told.warning, warning);
        warning
    };
    let mut end = params("a.test");
    assert_eq!(warned(&end), None);
    end.not_after = date_time_ymd(2026, 6, 14);
    assert_eq!(
        warned(&end).unwrap(),
        "certificate \"/etc/kp/a.crt\" expires in 13 days (Jun 14 00:00:00 2026 GMT)"
    );
    end.not_after = date_time_ymd(2026, 6, 15);
    assert_eq!(warned(&end), None);
    end.not_after = date_time_ymd(2026, 5, 1);
    assert_eq!(
        warned(&end).unwrap(),
        "certificate \"/etc/kp/a.crt\" has expired (May  1 00:00:00 2026 GMT)"
    );
}

/// 2027-01-01, when the lists are out of date, 2036-01-01, when certificates are, and the day before.
const LISTS_END: u64 = 1_798_761_600;
const END: u64 = 2_082_758_400;

#[test]
fn the_end_of_every_file_is_told() {
    let root = Authority::new("root");
    let mut earlier = authority_params("earlier");
    earlier.not_after = date_time_ymd(2035, 12, 31);
    let key = KeyPair::generate().unwrap();
    let earlier = earlier.self_signed(&key).unwrap().pem();
    let files = Files::default()
        .with_pair("a", &root.issue("a.test"))
        .with_pair("b", &root.issue("b.test"))
        .with("two.crt", root.made.certificate.clone() + &earlier)
        .with("root.crt", root.made.certificate.clone())
        .with("root.crl", root.revoke(&[77, 78]));
    let http = server(
        "ssl_verify_client on; ssl_client_certificate /etc/kp/two.crt; ssl_crl /etc/kp/root.crl;
        ssl_trusted_certificate /etc/kp/root.crt;
        location /b { proxy_pass https://127.0.0.1:1; proxy_ssl_verify on; proxy_ssl_crl /etc/kp/root.crl;
            proxy_ssl_trusted_certificate /etc/kp/two.crt;
            proxy_ssl_certificate /etc/kp/b.crt; proxy_ssl_certificate_key /etc/kp/b.key; }
        location /a { proxy_pass https://127.0.0.1:1; proxy_ssl_trusted_certificate /etc/kp/none;
            proxy_ssl_certificate /etc/kp/a.crt; proxy_ssl_certificate_key /etc/kp/a.key; }",
    );
    let tls = load(&http, &files);
    let ends: Vec<(String, u64)> = tls
        .ends()
        .into_iter()
        .map(|end| {
            let file = end.file.file_name().unwrap().to_str().unwrap();
            (format!("{file} {}", end.role.directive()), end.unix_secs)
        })
        .collect();
    let told: Vec<(&str, u64)> = ends.iter().map(|(what, end)| (&**what, *end)).collect();
    assert_eq!(
        told,
        [
            ("a.crt ssl_certificate", END),
            ("a.crt proxy_ssl_certificate", END),
            ("b.crt proxy_ssl_certificate", END),
            ("root.crl ssl_crl", LISTS_END),
            ("root.crl proxy_ssl_crl", LISTS_END),
            ("root.crt ssl_trusted_certificate", END),
            ("two.crt ssl_client_certificate", END - 86_400),
            ("two.crt proxy_ssl_trusted_certificate", END - 86_400),
        ]
    );
    // What is kp's own is warned of, each file once.
    let own: Vec<_> = tls.expiries(END - 86_400).into_iter().collect();
    let own: Vec<&str> = own
        .iter()
        .filter_map(|one| one.warning.as_deref())
        .collect();
    assert_eq!(own.len(), 2, "{own:?}");
    assert!(own[1].starts_with("certificate \"/etc/kp/b.crt\" expires in 1 day"));
}

/// Nobody is asked for a certificate, so nobody is refused for want of a newer list.
#[test]
fn the_end_of_what_is_not_used_is_not_told() {
    let root = Authority::new("root");
    let files = Files::default()
        .with_pair("a", &root.issue("a.test"))
        .with("root.crt", root.made.certificate.clone())
        .with("root.crl", root.revoke(&[77]));
    let http = server(
        "ssl_client_certificate /etc/kp/root.crt; ssl_crl /etc/kp/root.crl;
        location / { proxy_pass https://127.0.0.1:1;
            proxy_ssl_trusted_certificate /etc/kp/root.crt; proxy_ssl_crl /etc/kp/root.crl; }",
    );
    let ends = load(&http, &files).ends();
    let directives: Vec<&str> = ends.iter().map(|end| end.role.directive()).collect();
    assert_eq!(directives, ["ssl_certificate"]);
}

#[test]
fn the_certificate_is_the_one_that_the_client_can_use() {
    let root = Authority::new("root");
    let rsa_key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let rsa = root.sign_for(&params("a.test"), &rsa_key);
    let files = Files::default()
        .with_pair("a", &rsa)
        .with_pair("b", &root.issue("a.test"));
    let both_kinds = server("ssl_certificate /etc/kp/b.crt; ssl_certificate_key /etc/kp/b.key;");
    let tls = load(&both_kinds, &files);
    for version in both() {
        let shown = |schemes: &[SignatureScheme]| {
            let config = client_config_with_schemes(version, schemes);
            let mut theirs = client(&Arc::new(config), "a.test");
            handshake(&tls, first(), &mut theirs);
            theirs.peer_certificates().unwrap()[0].clone()
        };
        let rsa_only = shown(&[SignatureScheme::RSA_PSS_SHA256]);
        assert_eq!(rsa_only, rsa.chain()[0]);
        let ecdsa = [
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::RSA_PSS_SHA256,
        ];
        assert_ne!(shown(&ecdsa), rsa.chain()[0]);
        assert_ne!(shown(&ecdsa[..1]), rsa.chain()[0]);
    }
}

/// nginx reads what is named, too, whether it is used or not.
#[test]
fn what_is_named_is_checked_though_nobody_is_verified() {
    for directive in [
        "ssl_trusted_certificate",
        "ssl_client_certificate",
        "ssl_crl",
    ] {
        let http = server(&format!("{directive} /etc/kp/missing;"));
        let told = load_with(&http, &pair(), None).unwrap_err();
        assert!(told[0].message.contains("missing"), "{told:?}");
    }
}

#[test]
fn a_mark_of_utf_8_in_front_is_read_over() {
    let made = Authority::new("root").issue("a.test");
    let marked = |text: &str| format!("\u{feff}{text}");
    let files = Files::default()
        .with("a.crt", marked(&made.certificate))
        .with("a.key", marked(&made.key));
    load(&server(""), &files);
}

#[test]
fn a_staple_is_handed_out() {
    let files = pair().with("staple", "response");
    let tls = load(
        &server("ssl_stapling on; ssl_stapling_file /etc/kp/staple;"),
        &files,
    );
    let pairs = tls.server(first()).unwrap().pairs();
    assert_eq!(pairs[0].staple(), Some(&b"response"[..]));
}

#[test]
fn certificates_change_while_connections_go_on() {
    let root = Authority::new("root");
    let (old, new) = (root.issue("a.test"), root.issue("a.test"));
    let files = Files::default().with_pair("a", &old);
    let http =
        server("ssl_certificate_reload on;") + &server("ssl_certificate_reload on;") + &server("");
    let tls = load(&http, &files);
    let config = Arc::new(client_config(&both(), None));
    let shown = |id| {
        let mut theirs = client(&config, "a.test");
        let ours = handshake(&tls, kp_config::model::ServerId(id), &mut theirs);
        (theirs.peer_certificates().unwrap()[0].clone(), ours)
    };
    let (before, mut going_on) = shown(0);
    assert_eq!(before, old.chain()[0]);

    let watched = watched_pairs(&crate::common::config(&http));
    assert_eq!(watched.len(), 1, "two hosts share one pair");
    let paths: Vec<_> = watched[0]
        .files()
        .filter_map(|path| path.to_str())
        .collect();
    assert_eq!(paths, ["/etc/kp/a.crt", "/etc/kp/a.key"]);

    // Half of the new pair is there: nothing changes.
    let half = files.clone().with("a.crt", new.certificate.clone());
    let told = watched[0].load(&mut |path| half.read(path)).unwrap_err();
    assert!(told.contains("key values mismatch"), "{told}");

    let files = files.with_pair("a", &new);
    let update = watched[0].load(&mut |path| files.read(path)).unwrap();
    let bytes = update.encode();
    for cut in 0..bytes.len() {
        if let Some(short) = PairUpdate::decode(&bytes[..cut]) {
            assert!(
                cut > 16 && tls.apply(&short).is_ok(),
                "only users can be missing"
            );
            assert_eq!(shown(1).0, old.chain()[0]);
        }
    }
    let several = PairUpdate::encode_all([&update, &update]);
    let updates = PairUpdate::decode_all(&several).unwrap();
    assert_eq!(updates.len(), 2);
    assert!(PairUpdate::decode_all(&several[..several.len() - 1]).is_none());
    tls.apply(&updates[1]).unwrap();
    assert_eq!(shown(0).0, new.chain()[0]);
    assert_eq!(shown(1).0, new.chain()[0]);
    assert_eq!(shown(2).0, old.chain()[0], "this host did not ask for it");
    going_on.send(b"still here");
}

#[test]
fn a_sealed_key_changes_too() {
    let files = for_key(PKCS8)
        .with("a.key", SEALED[0])
        .with("passwords", "secret");
    let http = server("ssl_certificate_reload on; ssl_password_file /etc/kp/passwords;");
    let tls = load(&http, &files);
    let watched = watched_pairs(&crate::common::config(&http));
    let update = watched[0].load(&mut |path| files.read(path)).unwrap();
    tls.apply(&PairUpdate::decode(&update.encode()).unwrap())
        .unwrap();
}

#[test]
fn pairs_may_be_loaded_for_a_connection() {
    let root = Authority::new("root");
    let made = root.issue("a.test");
    let http = "server { listen 443 ssl; ssl_certificate $ssl_server_name.crt; ssl_certificate_key $ssl_server_name.key; }";
    let files = Files::default().with_pair("a.test", &made);
    let tls = load(http, &files);
    let host = tls.server(first()).unwrap();
    assert!(host.loads_pairs());
    let name = kp_tls::PairName {
        certificate: kp_tls::Source::Path("/etc/kp/a.test.crt".into()),
        key: kp_tls::Source::Text(made.key.clone().into_bytes()),
    };
    let pair = name
        .load(host.passwords(), &mut |path| files.read(path))
        .unwrap();
    let config = Arc::new(client_config(&both(), None));
    let mut theirs = client(&config, "a.test");
    let mut ours = Ours::new(&tls, first());
    ours.pairs = vec![pair];
    exchange(&mut ours, &mut theirs, usize::MAX).unwrap();
    assert_eq!(theirs.peer_certificates().unwrap(), made.chain());
}
