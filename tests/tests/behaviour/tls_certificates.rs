//! Certificates and keys: the forms they come in, how they change, what is wrong with them, when they end.

use kp_tests::tls::{Authority, Connector, Kind, Pair, valid};
use kp_tests::wait::SOON;
use kp_tests::{Client, Kp, Setup, tool, wait};

use crate::tls_site::{ONE, ask, get, one, with_pair};

/// A key in another form, as openssl writes it.
fn converted(key: &str, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("key"), key).expect("written");
    let mut all = arguments.to_vec();
    all.extend_from_slice(&["-in", "key"]);
    tool::openssl(directory.path(), &all).text()
}

/// Shows: ssl_password_file
#[test]
fn keys_come_in_many_forms() {
    let authority = Authority::default();
    let topk8 = ["pkcs8", "-topk8", "-passout", "pass:open sesame"];
    for (kind, arguments, begin) in [
        (Kind::Rsa, &["pkey"][..], "BEGIN PRIVATE KEY"),
        (Kind::Rsa, &["rsa", "-traditional"], "BEGIN RSA PRIVATE KEY"),
        (Kind::Ecdsa, &["pkey"], "BEGIN PRIVATE KEY"),
        (Kind::Ecdsa, &["ec"], "BEGIN EC PRIVATE KEY"),
        (Kind::Rsa, &topk8, "BEGIN ENCRYPTED PRIVATE KEY"),
        (Kind::Ecdsa, &topk8, "BEGIN ENCRYPTED PRIVATE KEY"),
        (
            Kind::Ecdsa,
            &["pkcs8", "-topk8", "-passout", "pass:open sesame", "-scrypt"],
            "BEGIN ENCRYPTED PRIVATE KEY",
        ),
        (
            Kind::Ecdsa,
            &[
                "pkcs8",
                "-topk8",
                "-passout",
                "pass:open sesame",
                "-v2",
                "aes-128-cbc",
                "-v2prf",
                "hmacWithSHA1",
            ],
            "BEGIN ENCRYPTED PRIVATE KEY",
        ),
    ] {
        let pair = authority.issue_as(kind, &["a.test"], |_| {});
        let key = converted(&pair.key, arguments);
        assert!(key.contains(begin), "{arguments:?}: {key}");
        let kp = Setup::new(ONE)
            .with("SAYS", "ok")
            .file("a.test.crt", pair.certificate)
            .file("a.test.key", key)
            .file("words", "first\nopen sesame\n")
            .server("ssl_password_file words;")
            .start();
        let connector = Connector::new(&authority, "a.test");
        assert_eq!(ask(&kp, &connector, "a.test").text(), "ok", "{arguments:?}");
    }
}

/// Certificate and key may stand in one file, with other things around them.
#[test]
fn one_file_may_hold_everything() {
    let authority = Authority::default();
    let pair = authority.issue(&["a.test"]);
    let all = format!(
        "Subject: somebody\n{}\n{}# the end\n",
        pair.key.replace('\n', "\r\n"),
        pair.certificate
    );
    let kp = Setup::new(ONE)
        .with("SAYS", "ok")
        .file("a.test.crt", all.clone())
        .file("a.test.key", all)
        .start();
    assert_eq!(
        ask(&kp, &Connector::new(&authority, "a.test"), "a.test").text(),
        "ok"
    );
}

/// What is wrong is said with the file and the reason, and kp does not start.
#[test]
fn what_is_wrong_with_a_pair_is_said() {
    let authority = Authority::default();
    let (pair, other) = (authority.issue(&["a.test"]), authority.issue(&["a.test"]));
    let encrypted = converted(&pair.key, &["pkcs8", "-topk8", "-passout", "pass:x"]);
    let words = |certificate: &str, key: &str| {
        let checked = Setup::new(ONE)
            .file("a.test.crt", certificate)
            .file("a.test.key", key)
            .check();
        assert_ne!(checked.code, 0);
        checked.stderr
    };
    let (certificate, key) = (pair.certificate.as_str(), pair.key.as_str());
    for (text, file, reason) in [
        (
            words(certificate, &other.key),
            "a.test.key",
            "key values mismatch",
        ),
        (words("", key), "a.test.crt", "cannot load certificate"),
        (words(key, key), "a.test.crt", "cannot load certificate"),
        (
            words(certificate, certificate),
            "a.test.key",
            "cannot load certificate key",
        ),
        (
            words(&certificate[..200], key),
            "a.test.crt",
            "cannot load certificate",
        ),
        (
            words(certificate, &encrypted),
            "a.test.key",
            "cannot load certificate key",
        ),
    ] {
        assert!(
            text.contains(file) && text.contains(reason),
            "{reason}: {text}"
        );
    }
    let (setup, _) = one("");
    let checked = setup
        .server("ssl_client_certificate nowhere.pem; ssl_verify_client on;")
        .check();
    assert_ne!(checked.code, 0);
    assert!(checked.stderr.contains("nowhere.pem"), "{}", checked.stderr);
    assert!(
        checked.stderr.contains("No such file"),
        "{}",
        checked.stderr
    );
}

fn replace(kp: &Kp, name: &str, pair: &Pair) {
    std::fs::write(kp.path(&format!("{name}.crt")), &pair.certificate).expect("written");
    std::fs::write(kp.path(&format!("{name}.key")), &pair.key).expect("written");
}

/// The certificate that a new connection gets.
fn shown(kp: &Kp, connector: &Connector) -> Vec<u8> {
    Client::secure(&kp.address(), &connector.fresh())
        .seen()
        .certificates[0]
        .clone()
}

/// `kp -s reload` is enough for a new certificate, and a bad one leaves everything as it was.
#[test]
fn a_reload_takes_up_a_new_certificate_or_says_why_not() {
    let (setup, authority) = one("ok");
    let kp = setup.main("worker_processes 2;").start();
    kp.wait_workers(2);
    let connector = Connector::new(&authority, "a.test");
    let first = shown(&kp, &connector);
    let next = authority.issue_as(Kind::Rsa, &["a.test"], |_| {});
    replace(&kp, "a.test", &next);
    assert_eq!(shown(&kp, &connector), first, "nobody watches");
    let reloaded = kp.command(&["-s", "reload"]);
    assert_eq!(reloaded.code, 0, "{}", reloaded.stderr);
    let second = shown(&kp, &connector);
    assert_ne!(second, first);
    let other = authority.issue(&["a.test"]);
    let mixed = Pair {
        certificate: next.certificate.clone(),
        key: other.key,
    };
    let half = Pair {
        certificate: next.certificate[..100].to_owned(),
        key: next.key.clone(),
    };
    for (broken, file, reason) in [
        (mixed, "a.test.key", "key values mismatch"),
        (half, "a.test.crt", "cannot load certificate"),
    ] {
        replace(&kp, "a.test", &broken);
        let reloaded = kp.command(&["-s", "reload"]);
        assert_ne!(reloaded.code, 0);
        let said = format!("{}{}", reloaded.stderr, kp.error_log());
        assert!(said.contains(file) && said.contains(reason), "{said}");
        assert_eq!(shown(&kp, &connector), second);
        assert_eq!(ask(&kp, &connector, "a.test").text(), "ok");
    }
}

/// A watched pair whose key does not fit is left alone, with a reason that names the file.
#[test]
fn a_watched_pair_that_does_not_fit_is_not_taken_up() {
    let (setup, authority) = one("ok");
    let kp = setup.server("ssl_certificate_reload on;").start();
    let connector = Connector::new(&authority, "a.test");
    let first = shown(&kp, &connector);
    let (next, other) = (authority.issue(&["a.test"]), authority.issue(&["a.test"]));
    std::fs::write(kp.path("a.test.key"), &other.key).expect("written");
    wait::until(SOON, "the reason", || {
        let log = kp.error_log();
        log.contains("a.test.key") && log.contains("key values mismatch")
    });
    assert_eq!(shown(&kp, &connector), first);
    // Replaced by renaming, as programs that renew certificates do.
    for (name, content) in [("a.test.crt", &next.certificate), ("a.test.key", &next.key)] {
        std::fs::write(kp.path("next"), content).expect("written");
        std::fs::rename(kp.path("next"), kp.path(name)).expect("renamed");
    }
    wait::until(SOON, "the next certificate", || {
        shown(&kp, &connector) != first
    });
    let mut client = Client::secure(&kp.address(), &connector);
    assert_eq!(client.ask(get("a.test")).text(), "ok");
}

/// What ends soon is told in the log and by `kp status`.
#[test]
fn certificates_that_end_are_told_of() {
    let authority = Authority::default();
    let until =
        |days| authority.issue_as(Kind::Ecdsa, &["a.test"], |params| valid(params, -100, days));
    let start = |pair: &Pair| with_pair(Setup::new(ONE), "a.test", pair).with("SAYS", "ok");
    for (days, warned) in [
        (60, None),
        (15, None),
        (13, Some("expires in 1")),
        (-3, Some("has expired")),
    ] {
        let pair = until(days);
        let checked = start(&pair).check();
        assert_eq!(checked.code, 0, "{}", checked.stderr);
        assert_eq!(
            checked.stderr.contains("[warn]"),
            warned.is_some(),
            "{}",
            checked.stderr
        );
        let kp = start(&pair).start();
        let log = kp.error_log();
        assert_eq!(
            log.contains("a.test.crt\" expire") || log.contains("has expired"),
            warned.is_some(),
            "{log}"
        );
        if let Some(words) = warned {
            assert!(log.contains(words), "{log}");
        }
        let status = kp.command(&["status"]).stdout;
        let line = status
            .lines()
            .find(|line| line.contains("a.test.crt"))
            .unwrap_or_default();
        // A part of a day has passed since.
        let wanted = match days {
            -3 => "has EXPIRED".to_owned(),
            days => format!("ends in {} days", days - 1),
        };
        let exact = format!("ends in {days} days");
        assert!(
            line.ends_with(&wanted) || line.ends_with(&exact),
            "{status}"
        );
    }
}
