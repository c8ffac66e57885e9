//! Handshakes with clients: versions, suites, groups, names, certificates, and what is not a handshake.

use kp_tests::tls::{Authority, Connector, Kind, Pair, valid};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, End, Kp, Setup, tool};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, NamedGroup};

use crate::tls_site::{ask, body, get, one, refusal, s_client, with_pair};

/// Shows: ssl_protocols
#[test]
fn only_the_versions_that_are_named_are_spoken() {
    for (directive, wanted) in [
        ("", [false, true, true]),
        ("ssl_protocols TLSv1.2;", [false, true, false]),
        ("ssl_protocols TLSv1.3;", [false, false, true]),
        ("ssl_protocols TLSv1.2 TLSv1.3;", [false, true, true]),
        ("ssl_protocols TLSv1 TLSv1.1 TLSv1.3;", [false, false, true]),
    ] {
        let (setup, authority) = one("$ssl_protocol");
        let kp = setup.server(directive).start();
        for ((flag, name), wanted) in [
            ("-tls1_1", "TLSv1.1"),
            ("-tls1_2", "TLSv1.2"),
            ("-tls1_3", "TLSv1.3"),
        ]
        .into_iter()
        .zip(wanted)
        {
            let told = s_client(&kp, &[flag, "-cipher", "ALL:@SECLEVEL=0"], "a.test");
            if wanted {
                assert_eq!(body(&told), name, "{directive}: {}", told.all());
            } else {
                let all = told.all();
                let refused = ["alert protocol version", "alert handshake failure"];
                assert!(
                    refused.iter().any(|words| all.contains(words)),
                    "{directive}: {all}"
                );
            }
        }
        for (version, wanted) in [(&TLS12, wanted[1]), (&TLS13, wanted[2])] {
            let connector = Connector::version(&authority, "a.test", version);
            assert_eq!(
                Client::try_secure(&kp.address(), &connector).is_ok(),
                wanted
            );
        }
    }
}

/// As long as another version is left; nobody gets them.
#[test]
fn versions_without_a_future_are_left_out_by_name() {
    for old in ["SSLv3", "TLSv1", "TLSv1.1"] {
        let named = |rest: &str| {
            let (setup, _) = one("");
            setup.server(&format!("ssl_protocols {old}{rest};")).check()
        };
        for (checked, code) in [(named(" TLSv1.2"), 0), (named(""), 1)] {
            assert_eq!(checked.code, code, "{old}");
            assert!(
                checked.stderr.contains(&format!("\"{old}\"")),
                "{}",
                checked.stderr
            );
        }
    }
}

/// Shows: ssl_ciphers, ssl_prefer_server_ciphers
#[test]
fn suites_of_tls_1_2_are_chosen_by_the_client_or_by_the_server() {
    let own =
        "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384";
    let clients =
        "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305";
    for (prefer, chosen) in [
        ("off", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("on", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ] {
        let (setup, _) = one("$ssl_cipher");
        let kp = setup
            .server(&format!(
                "ssl_ciphers {own}; ssl_prefer_server_ciphers {prefer};"
            ))
            .start();
        let told = s_client(&kp, &["-tls1_2", "-cipher", clients], "a.test");
        assert_eq!(body(&told), chosen, "{}", told.all());
        let told = s_client(
            &kp,
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"],
            "a.test",
        );
        assert!(
            told.all().contains("alert handshake failure"),
            "{}",
            told.all()
        );
    }
}

#[test]
fn suites_that_do_not_exist_are_warned_of_and_none_at_all_is_an_error() {
    let check = |ciphers: &str| {
        let (setup, _) = one("");
        setup.server(&format!("ssl_ciphers \"{ciphers}\";")).check()
    };
    let some = check("ECDHE-ECDSA-AES128-GCM-SHA256:DHE-RSA-AES128-SHA");
    assert_eq!(some.code, 0, "{}", some.stderr);
    assert!(
        some.stderr.contains("DHE-RSA-AES128-SHA"),
        "{}",
        some.stderr
    );
    let none = check("DHE-RSA-AES128-SHA");
    assert_ne!(none.code, 0, "{}", none.stderr);
    assert!(none.stderr.contains("ssl_ciphers"), "{}", none.stderr);
}

/// Shows: ssl_conf_command
#[test]
fn suites_of_tls_1_3_are_those_that_are_named() {
    let (setup, _) = one("$ssl_cipher");
    let kp = setup
        .server("ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256;")
        .start();
    let told = s_client(&kp, &["-tls1_3"], "a.test");
    assert_eq!(body(&told), "TLS_CHACHA20_POLY1305_SHA256");
}

/// Shows: ssl_ecdh_curve
#[test]
fn keys_are_agreed_on_in_the_groups_that_are_named() {
    for (directive, group, name) in [
        ("", NamedGroup::X25519MLKEM768, "X25519MLKEM768"),
        (
            "ssl_ecdh_curve secp384r1;",
            NamedGroup::secp384r1,
            "secp384r1",
        ),
        (
            "ssl_ecdh_curve X25519:secp384r1;",
            NamedGroup::X25519,
            "X25519",
        ),
    ] {
        let (setup, authority) = one("$ssl_curve");
        let kp = setup.server(directive).start();
        let mut client = Client::secure(&kp.address(), &Connector::new(&authority, "a.test"));
        assert_eq!(client.seen().group, format!("{group:?}"));
        assert_eq!(client.ask(get("a.test")).text(), name);
    }
    let (setup, _) = one("$ssl_curve");
    let kp = setup.server("ssl_ecdh_curve prime256v1;").start();
    // A client that guessed another group is asked again (RFC 8446 §4.1.4).
    let told = s_client(&kp, &["-tls1_3", "-groups", "X25519:P-256"], "a.test");
    assert_eq!(body(&told), "prime256v1", "{}", told.all());
}

/// Two certificates of one name: a client gets the one that it can use.
#[test]
fn of_several_certificates_the_client_gets_the_one_it_can_use() {
    let authority = Authority::default();
    let ecdsa = authority.issue_as(Kind::Ecdsa, &["a.test"], |_| {});
    let rsa = authority.issue_as(Kind::Rsa, &["a.test"], |_| {});
    let setup = with_pair(Setup::new(crate::tls_site::ONE), "a.test", &ecdsa);
    let kp = with_pair(setup, "rsa", &rsa)
        .with("SAYS", "$ssl_cipher")
        .file("ca.pem", authority.pem())
        .server("ssl_certificate rsa.crt; ssl_certificate_key rsa.key;")
        .start();
    for (arguments, kind) in [
        (&["-tls1_3"][..], "ECDSA"),
        (&["-tls1_3", "-sigalgs", "RSA-PSS+SHA256"], "RSA-PSS"),
        (&["-tls1_2"], "ECDSA"),
        (
            &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"],
            "RSA-PSS",
        ),
    ] {
        let told = s_client(&kp, arguments, "a.test");
        // OpenSSL 3.5 says `rsa_pss_rsae_sha256` for what was `RSA-PSS`.
        let signed = told.line("Peer signature type:").unwrap_or_default();
        let signed = signed.replace('_', "-").to_uppercase();
        assert!(signed.starts_with(kind), "{arguments:?}: {}", told.all());
        assert_eq!(told.line("Verify return code:").as_deref(), Some("0 (ok)"));
    }
}

/// The names of the table, each with its own certificate.
const NAMES: &str = "%MAIN% http {
    server { listen %LISTEN% ssl; server_name exact.test; ssl_certificate exact.crt; ssl_certificate_key exact.key; return 200 exact; }
    server { listen %LISTEN% ssl; server_name *.wild.test; ssl_certificate wild.crt; ssl_certificate_key wild.key; return 200 wild; }
    server { listen %LISTEN% ssl; server_name ~^re\\d+\\.test$; ssl_certificate re.crt; ssl_certificate_key re.key; return 200 re; }
    server { listen %LISTEN% ssl default_server; %DEFAULT% return 200 default; }
}";

fn names(default: &str) -> (Kp, Authority) {
    let authority = Authority::default();
    let mut setup = Setup::new(NAMES).with("DEFAULT", default);
    for (file, names) in [
        ("exact", &["exact.test"][..]),
        ("wild", &["*.wild.test", "a.b.wild.test"]),
        ("re", &["re1.test"]),
        ("default", &["default.test", "127.0.0.1"]),
    ] {
        setup = with_pair(setup, file, &authority.issue(names));
    }
    (setup.file("ca.pem", authority.pem()).start(), authority)
}

#[test]
fn the_table_of_names() {
    let (kp, authority) = names("ssl_certificate default.crt; ssl_certificate_key default.key;");
    // The connector refuses a certificate of another name, so a right answer is a right certificate.
    for (asked, answer) in [
        ("exact.test", "exact"),
        ("EXACT.test", "exact"),
        ("a.wild.test", "wild"),
        ("a.b.wild.test", "wild"),
        ("re1.test", "re"),
        ("default.test", "default"),
        ("127.0.0.1", "default"),
    ] {
        let connector = Connector::new(&authority, asked);
        assert_eq!(ask(&kp, &connector, asked).text(), answer, "{asked}");
    }
    for (arguments, subject) in [
        (&["-noservername"][..], "default.test"),
        (&["-servername", "unknown.test"], "default.test"),
        (&["-servername", "wild.test"], "default.test"),
        (&["-servername", "xexact.test"], "default.test"),
    ] {
        let told = s_client(&kp, arguments, "exact.test");
        let seen = told.line("subject=").unwrap_or_default();
        assert!(seen.ends_with(subject), "{arguments:?}: {}", told.all());
        // What is asked for in Host decides who answers.
        assert_eq!(body(&told), "exact");
    }
}

/// Shows: ssl_reject_handshake
#[test]
fn names_that_are_not_served_are_refused() {
    let (kp, authority) = names("ssl_reject_handshake on;");
    let known = Connector::new(&authority, "exact.test");
    assert_eq!(ask(&kp, &known, "exact.test").text(), "exact");
    for unknown in ["default.test", "127.0.0.1"] {
        let connector = Connector::new(&authority, unknown);
        assert_eq!(
            refusal(&kp, &connector),
            Some(AlertDescription::UnrecognisedName)
        );
    }
    // Behind the door of a known name the default server answers, as in nginx.
    assert_eq!(ask(&kp, &known, "unknown.test").text(), "default");
}

#[test]
fn application_protocols() {
    let (setup, authority) = one("<$ssl_alpn_protocol>");
    let kp = setup.start();
    let offering = |protocols: &[&str]| {
        Connector::new(&authority, "a.test").changed(|config| {
            config.alpn_protocols = protocols
                .iter()
                .map(|name| name.as_bytes().into())
                .collect();
        })
    };
    let mut client = Client::secure(&kp.address(), &offering(&["h2", "http/1.1"]));
    assert_eq!(client.seen().alpn.as_deref(), Some("http/1.1"));
    assert_eq!(client.ask(get("a.test")).text(), "<http/1.1>");
    assert_eq!(ask(&kp, &offering(&[]), "a.test").text(), "<>");
    assert_eq!(
        refusal(&kp, &offering(&["h2"])),
        Some(AlertDescription::NoApplicationProtocol)
    );
}

/// What stands in many files and changes nothing is accepted, each with a warning that says what happens instead.
///
/// Shows: http2, ssl_early_data, ssl_dhparam, ssl_session_cache, ssl_stapling_verify
#[test]
fn what_has_no_effect_is_said() {
    let text = "http2 on; ssl_early_data on; ssl_dhparam a.test.crt; ssl_stapling on;
        ssl_session_cache shared:SSL:1m; ssl_stapling_verify on;";
    let (setup, _) = one("");
    let checked = setup.server(text).check();
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    for name in [
        "\"http2 on\"",
        "\"ssl_early_data on\"",
        "\"ssl_dhparam\"",
        "\"ssl_stapling on\"",
        "\"ssl_session_cache\"",
        "\"ssl_stapling_verify on\"",
    ] {
        let warnings = checked
            .stderr
            .lines()
            .filter(|line| line.contains("[warn]") && line.contains(name));
        assert_eq!(warnings.count(), 1, "{name}: {}", checked.stderr);
    }
    let (setup, authority) = one("$ssl_early_data $ssl_alpn_protocol $ssl_session_reused");
    let kp = setup.server(text).start();
    let connector = Connector::new(&authority, "a.test").changed(|config| {
        config.enable_early_data = true;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    });
    assert_eq!(ask(&kp, &connector, "a.test").text(), " http/1.1 .");
    assert_eq!(
        ask(&kp, &connector, "a.test").text(),
        " http/1.1 r",
        "tickets do it"
    );
    assert!(
        !s_client(&kp, &["-status"], "a.test")
            .all()
            .contains("OCSP Response Data")
    );
}

/// The shortest OCSP response there is: try later (RFC 6960 §4.2.1).
const TRY_LATER: &[u8] = &[0x30, 3, 0x0a, 1, 3];

/// Shows: ssl_stapling, ssl_stapling_file
#[test]
fn the_response_of_a_file_is_stapled_and_taken_up_when_it_changes() {
    for version in ["-tls1_2", "-tls1_3"] {
        let (setup, _) = one("");
        let kp = setup
            .file("staple.der", TRY_LATER)
            .server("ssl_stapling on; ssl_stapling_file staple.der; ssl_certificate_reload on;")
            .start();
        let status = || {
            let told = s_client(&kp, &[version, "-status"], "a.test");
            told.line("OCSP Response Status:")
                .unwrap_or_else(|| told.all())
        };
        assert_eq!(status(), "trylater (0x3)");
        let unasked = s_client(&kp, &[version], "a.test").all();
        assert!(!unasked.contains("OCSP Response Data"), "{unasked}");
        std::fs::write(kp.path("staple.der"), [0x30, 3, 0x0a, 1, 2]).expect("written");
        wait::until(SOON, "the next response", || {
            status() == "internalerror (0x2)"
        });
    }
}

/// Shows: ssl_buffer_size
#[test]
fn records_are_as_long_as_they_may_be() {
    let (setup, _) = one("");
    let content = vec![b'x'; 40_000];
    let kp = setup
        .file("html/big", content)
        .server("ssl_buffer_size 4k; location = /big { root html; }")
        .start();
    let address = kp.address();
    let arguments = [
        "s_client", "-connect", &address, "-tls1_3", "-msg", "-ign_eof",
    ];
    let request = "GET /big HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    let told = tool::run(&kp.path(""), "openssl", &arguments, request.as_bytes());
    // The header of a record: its kind, its version, its length.
    let text = told.text();
    let lengths: Vec<usize> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("17 03 03 "))
        .filter_map(|rest| usize::from_str_radix(&rest.replace(' ', ""), 16).ok())
        .collect();
    // A byte of kind and 16 of authentication come on top (RFC 8446 §5.2).
    let longest = lengths.iter().max().copied().unwrap_or_default();
    assert_eq!(longest, 4096 + 17, "{lengths:?}");
    assert!(
        lengths.iter().filter(|length| **length == longest).count() >= 9,
        "{lengths:?}"
    );
}

/// A hello comes as TCP likes to bring it, and in as many records as its sender likes (RFC 8446 §5.1).
#[test]
fn a_hello_may_come_in_any_pieces() {
    for version in [&TLS12, &TLS13] {
        let (setup, authority) = one("$ssl_protocol");
        let kp = setup.start();
        let connector = Connector::version(&authority, "a.test", version).fresh();
        let begin = |cut: fn(&[u8]) -> Vec<Vec<u8>>| {
            let mut client = kp
                .client()
                .upgrade_in_pieces(&connector, cut)
                .expect("a handshake");
            assert!(!client.ask(get("a.test")).text().is_empty());
        };
        begin(|hello| hello.chunks(1).map(<[u8]>::to_vec).collect());
        begin(|hello| hello.chunks(7).map(<[u8]>::to_vec).collect());
        // Every record its own write, and all of them in one.
        begin(|hello| records(hello, 100));
        begin(|hello| vec![records(hello, 9).concat()]);
    }
}

/// The handshake message of one record in records of so many bytes.
fn records(hello: &[u8], length: usize) -> Vec<Vec<u8>> {
    let (header, message) = hello.split_at(5);
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len())
            .expect("a short part")
            .to_be_bytes();
        [&header[..3], &length, part].concat()
    };
    message.chunks(length).map(record).collect()
}

/// What an `openssl s_client` sends for `R`: TLS 1.2 has renegotiation, kp has not (RFC 5746 §4.4).
#[test]
fn renegotiation_is_refused() {
    let (setup, authority) = one("ok");
    let kp = setup.start();
    let address = kp.address();
    let arguments = [
        "s_client",
        "-connect",
        &address,
        "-tls1_2",
        "-servername",
        "a.test",
    ];
    let told = tool::run(&kp.path(""), "openssl", &arguments, b"R\n");
    let all = told.all();
    assert!(all.contains("RENEGOTIATING"), "{all}");
    assert!(all.contains("no renegotiation"), "{all}");
    assert_eq!(
        ask(&kp, &Connector::new(&authority, "a.test"), "a.test").text(),
        "ok"
    );
}

/// Bytes of every kind, one after the other: an alert or an end is the answer, and others are served meanwhile.
#[test]
fn what_is_no_handshake_is_refused_at_once() {
    let (setup, authority) = one("ok");
    let kp = setup.start();
    let whole = hello(&authority);
    let mut garbage: Vec<Vec<u8>> = vec![
        // An empty record of the handshake, a change of ciphers, application data, an alert.
        vec![0x16, 3, 1, 0, 0],
        vec![0x14, 3, 3, 0, 1, 1],
        vec![0x17, 3, 3, 0, 5, 1, 2, 3, 4, 5],
        vec![0x15, 3, 3, 0, 2, 2, 40],
        // A record longer than any may be, and a message of 16 MiB that begins.
        vec![0x16, 3, 1, 0xff, 0xff, 1, 0, 0],
        [
            vec![0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff],
            vec![0; 16_380],
        ]
        .concat(),
    ];
    // Each byte of a hello's beginning is spoilt once.
    for at in (0..60).chain((60..whole.len()).step_by(17)) {
        let mut spoilt = whole.clone();
        spoilt[at] ^= 0xff;
        garbage.push(spoilt);
    }
    let connector = Connector::new(&authority, "a.test");
    for bytes in garbage {
        let mut client = kp.client();
        client.send(&bytes);
        client.cut();
        let (_, end) = client.read_to_end(SOON);
        assert!(
            matches!(end, End::Closed | End::Reset),
            "{end:?} after {bytes:02x?}"
        );
    }
    assert_eq!(ask(&kp, &connector, "a.test").text(), "ok");
    let log = kp.error_log();
    assert!(
        !log.contains("[error]") && !log.contains("[crit]"),
        "clients cannot fill the log: {log}"
    );
}

/// The first flight of a client.
fn hello(authority: &Authority) -> Vec<u8> {
    let mut taken = Vec::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let connector = Connector::new(authority, "a.test");
    let _ = Client::connect(&address).upgrade_in_pieces(&connector, |hello| {
        taken = hello.to_vec();
        // Nobody answers; the connection is ended instead.
        drop(listener);
        Vec::new()
    });
    taken
}

/// Shows: listen
#[test]
fn plain_http_is_explained() {
    let (setup, authority) = one("ok");
    let kp = setup.start();
    let answer = kp.get("/");
    assert_eq!(answer.status(), 400);
    let text = answer.text();
    assert!(
        text.contains("The plain HTTP request was sent to HTTPS port"),
        "{text}"
    );
    assert_eq!(answer.field("Connection"), Some("close"));
    assert_eq!(
        ask(&kp, &Connector::new(&authority, "a.test"), "a.test").text(),
        "ok"
    );
    let lines = kp.access_lines(2);
    assert!(lines[0].contains("\" 400 "), "{lines:?}");
}

/// curl, which checks everything, on a kept connection.
#[test]
fn curl_is_content() {
    let authority = Authority::default();
    let between = authority.intermediate("between");
    let pair = between
        .issue_as(Kind::Rsa, &["a.test"], |params| valid(params, -1, 90))
        .chained(&between);
    let setup = with_pair(Setup::new(crate::tls_site::ONE), "a.test", &pair);
    let kp = setup
        .with("SAYS", "$scheme $https $ssl_protocol $connection_requests ")
        .file("ca.pem", authority.pem())
        .start();
    let resolve = format!("a.test:{}:127.0.0.1", kp.port());
    let url = format!("https://a.test:{}/", kp.port());
    for (flags, protocol) in [
        (&["--tls-max", "1.2"], "TLSv1.2"),
        (&["--tlsv1.3", "-f"], "TLSv1.3"),
    ] {
        let mut arguments = vec!["-sS", "--cacert", "ca.pem", "--resolve", &resolve];
        arguments.extend_from_slice(flags);
        arguments.extend_from_slice(&[url.as_str(), url.as_str()]);
        let told = tool::run(&kp.path(""), "curl", &arguments, b"");
        let wanted = format!("https on {protocol} 1 https on {protocol} 2 ");
        assert_eq!(told.text(), wanted, "{}", told.stderr);
    }
    let stranger: Pair = Authority::new("else").issue(&["a.test"]);
    std::fs::write(kp.path("else.pem"), stranger.certificate).expect("written");
    let arguments = ["-sS", "--cacert", "else.pem", "--resolve", &resolve, &url];
    assert_eq!(tool::run(&kp.path(""), "curl", &arguments, b"").code, 60);
}
