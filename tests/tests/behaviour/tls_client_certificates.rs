//! Certificates of clients: who is asked, what is found out, what is answered, and what the variables say.

use std::path::Path;
use std::time::{Duration, SystemTime};

use kp_tests::tls::{Authority, Connector, Kind, Pair, numbered, valid};
use kp_tests::{Client, Kp, Origin, Response, Setup, tool};
use rcgen::DnType;
use rustls::version::{TLS12, TLS13};

use crate::tls_site::{body, get, s_client, with_pair};

/// One server that looks at clients.
struct Site {
    servers: Authority,
    clients: Authority,
}

impl Site {
    fn new() -> Self {
        Self {
            servers: Authority::new("servers"),
            clients: Authority::new("clients"),
        }
    }

    /// `clients.pem` is whom it trusts.
    fn setup(&self, server: &str, says: &str) -> Setup {
        let own = self.servers.issue(&["a.test"]);
        with_pair(Setup::new(crate::tls_site::ONE), "a.test", &own)
            .with("SAYS", says)
            .file("clients.pem", self.clients.pem())
            .server(server)
    }

    fn ask(&self, kp: &Kp, own: Option<&Pair>) -> Response {
        let versions = &[&TLS12, &TLS13];
        let [first, second] = versions.map(|version| {
            let connector = Connector::with(&self.servers, "a.test", &[version], own);
            Client::secure(&kp.address(), &connector).ask(get("a.test"))
        });
        assert_eq!(first.status(), second.status(), "both versions agree");
        assert_eq!(first.body, second.body);
        second
    }
}

/// Who comes, and what is found out.
fn visitors(site: &Site) -> Vec<(&'static str, Option<Pair>, &'static str)> {
    let late = |days| move |params: &mut rcgen::CertificateParams| valid(params, days - 10, days);
    let issue = |change: &dyn Fn(&mut rcgen::CertificateParams)| {
        site.clients.issue_as(Kind::Ecdsa, &["client"], change)
    };
    let between = site.clients.intermediate("between");
    let stranger = Authority::new("a stranger");
    vec![
        ("none", None, "NONE"),
        ("good", Some(issue(&|_| {})), "SUCCESS"),
        (
            "rsa",
            Some(site.clients.issue_as(Kind::Rsa, &["client"], |_| {})),
            "SUCCESS",
        ),
        (
            "chained",
            Some(between.issue(&["client"]).chained(&between)),
            "SUCCESS",
        ),
        (
            "expired",
            Some(issue(&late(-1))),
            "FAILED:certificate has expired",
        ),
        (
            "too early",
            Some(issue(&late(20))),
            "FAILED:certificate is not yet valid",
        ),
        (
            "wrong authority",
            Some(stranger.issue(&["client"])),
            "FAILED:unable to verify the first certificate",
        ),
        (
            "wrong authority, shown",
            Some(stranger.issue(&["client"]).chained(&stranger)),
            "FAILED:self-signed certificate in certificate chain",
        ),
    ]
}

/// Shows: ssl_verify_client, ssl_client_certificate
#[test]
fn who_may_come_in() {
    let site = Site::new();
    let visitors = visitors(&site);
    for mode in ["off", "on", "optional", "optional_no_ca"] {
        let server = format!("ssl_verify_client {mode}; ssl_client_certificate clients.pem;");
        let kp = site.setup(&server, "$ssl_client_verify").start();
        for (who, own, verdict) in &visitors {
            let answer = site.ask(&kp, own.as_ref());
            let unknown = verdict.contains("first certificate") || verdict.contains("self-signed");
            let comes_in = match mode {
                "off" => true,
                "on" => *verdict == "SUCCESS",
                "optional" => !verdict.starts_with("FAILED"),
                _ => !verdict.starts_with("FAILED") || unknown,
            };
            if comes_in {
                let verdict = if mode == "off" { "NONE" } else { verdict };
                assert_eq!(
                    (answer.status(), answer.text().as_str()),
                    (200, verdict),
                    "{mode}, {who}"
                );
            } else {
                assert_eq!(answer.status(), 400, "{mode}, {who}: {}", answer.text());
                let words = if own.is_none() {
                    "No required SSL certificate was sent"
                } else {
                    "The SSL certificate error"
                };
                assert!(
                    answer.text().contains(words),
                    "{mode}, {who}: {}",
                    answer.text()
                );
            }
        }
    }
}

/// nginx's statuses of its own are for `error_page`.
#[test]
fn pages_for_bad_and_missing_certificates() {
    let site = Site::new();
    let text = "ssl_verify_client on; ssl_client_certificate clients.pem;
        error_page 495 =403 /bad; error_page 496 =401 /none; error_page 497 =421 /plain;
        location = /bad { return 403 \"bad $ssl_client_verify\"; }
        location = /none { return 401 \"none $ssl_client_verify\"; }
        location = /plain { return 421 plain; }";
    let kp = site.setup(text, "in").start();
    let stranger = Authority::new("a stranger").issue(&["x"]);
    let answer = site.ask(&kp, Some(&stranger));
    assert_eq!(
        (answer.status(), answer.text().as_str()),
        (403, "bad FAILED:unable to verify the first certificate")
    );
    let answer = site.ask(&kp, None);
    assert_eq!(
        (answer.status(), answer.text().as_str()),
        (401, "none NONE")
    );
    assert_eq!(
        (kp.get("/").status(), kp.get("/").text().as_str()),
        (421, "plain")
    );
    kp.wait_error(
        "client SSL certificate verify error: (21:unable to verify the first certificate)",
    );
    kp.wait_error("client sent no required SSL certificate");
    let statuses: Vec<String> = kp.access_lines(6);
    assert_eq!(
        statuses
            .iter()
            .filter(|line| line.contains("\" 403 "))
            .count(),
        2,
        "{statuses:?}"
    );
}

/// Shows: ssl_verify_depth
#[test]
fn a_chain_is_as_long_as_it_may_be() {
    let site = Site::new();
    let first = site.clients.intermediate("first");
    let second = first.intermediate("second");
    let chains = [
        site.clients.issue(&["c"]),
        first.issue(&["c"]).chained(&first),
        second.issue(&["c"]).chained(&second).chained(&first),
    ];
    for (directive, depth) in [
        ("", 1),
        ("ssl_verify_depth 0;", 0),
        ("ssl_verify_depth 2;", 2),
    ] {
        let server =
            format!("ssl_verify_client on; ssl_client_certificate clients.pem; {directive}");
        let kp = site.setup(&server, "$ssl_client_verify").start();
        for (between, chain) in chains.iter().enumerate() {
            let status = site.ask(&kp, Some(chain)).status();
            assert_eq!(
                status == 200,
                between <= depth,
                "{between} between, {directive}"
            );
        }
    }
}

/// Shows: ssl_crl
#[test]
fn revoked_certificates_are_refused() {
    let site = Site::new();
    let numbered = |serial| {
        site.clients
            .issue_as(Kind::Ecdsa, &["c"], |params| numbered(params, serial))
    };
    let server = "ssl_verify_client optional; ssl_client_certificate clients.pem; ssl_crl crl.pem;
        error_page 495 =200 /bad; location = /bad { return 200 $ssl_client_verify; }";
    let kp = site
        .setup(server, "$ssl_client_verify")
        .file("crl.pem", site.clients.revoke(&[7]))
        .start();
    assert_eq!(site.ask(&kp, Some(&numbered(6))).text(), "SUCCESS");
    let answer = site.ask(&kp, Some(&numbered(7)));
    assert_eq!(answer.text(), "FAILED:certificate revoked");
    std::fs::write(kp.path("crl.pem"), site.clients.revoke(&[6])).expect("written");
    kp.reload();
    assert_eq!(site.ask(&kp, Some(&numbered(7))).text(), "SUCCESS");
    assert_eq!(
        site.ask(&kp, Some(&numbered(6))).text(),
        "FAILED:certificate revoked"
    );
}

/// Whom `ssl_trusted_certificate` names is trusted, but clients are told only of `ssl_client_certificate`.
///
/// Shows: ssl_trusted_certificate
#[test]
fn clients_are_told_of_some_authorities_only() {
    let site = Site::new();
    let other = Authority::new("quietly trusted");
    let server = "ssl_verify_client on; ssl_client_certificate clients.pem; ssl_trusted_certificate other.pem;";
    let kp = site
        .setup(server, "$ssl_client_verify")
        .file("other.pem", other.pem())
        .start();
    assert_eq!(site.ask(&kp, Some(&other.issue(&["c"]))).text(), "SUCCESS");
    assert_eq!(
        site.ask(&kp, Some(&site.clients.issue(&["c"]))).text(),
        "SUCCESS"
    );
    let address = kp.address();
    let arguments = ["s_client", "-connect", &address, "-servername", "a.test"];
    let told = tool::run(&kp.path(""), "openssl", &arguments, b"").all();
    let names = told
        .split("Acceptable client certificate CA names")
        .nth(1)
        .unwrap_or_default();
    let names = names
        .split("Requested Signature")
        .next()
        .unwrap_or_default();
    assert!(
        names.contains("clients") && !names.contains("quietly"),
        "{told}"
    );
}

/// Every part of a certificate that a variable shows, beside what openssl prints of it.
#[test]
fn variables_say_what_openssl_says() {
    let site = Site::new();
    let names = "ssl_client_serial ssl_client_fingerprint ssl_client_s_dn ssl_client_i_dn ssl_client_s_dn_legacy
        ssl_client_i_dn_legacy ssl_client_v_start ssl_client_v_end ssl_client_v_remain ssl_client_escaped_cert";
    let says: String = names
        .split_whitespace()
        .map(|name| format!("${name}\\n"))
        .collect();
    let server = "ssl_verify_client on; ssl_client_certificate clients.pem; add_header X-Cert $ssl_client_cert;
        location = /raw { return 200 $ssl_client_raw_cert; }";
    let kp = site.setup(server, &says).start();
    let clients = [
        site.clients.issue_as(Kind::Ecdsa, &["plain"], |params| {
            params.not_after = days_and_a_half(365);
        }),
        site.clients.issue_as(Kind::Rsa, &["x"], |params| {
            numbered(params, 0x00ab_cdef_0123_4567);
            params.not_after = days_and_a_half(41);
            let name = &mut params.distinguished_name;
            name.push(DnType::CountryName, "DE");
            name.push(DnType::OrganizationName, "Kp, \"Ltd\" + S\u{f6}hne; <x>=\\");
            name.push(DnType::OrganizationalUnitName, "#hash and / slash ");
            name.push(DnType::CommonName, " blank first");
        }),
    ];
    for client in &clients {
        std::fs::write(kp.path("client.crt"), &client.certificate).expect("written");
        let x509 = |arguments: &[&str]| openssl_says(&kp.path(""), arguments);
        let answer = site.ask(&kp, Some(client));
        let text = answer.text();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!(lines[0], x509(&["-serial"]));
        let fingerprint = x509(&["-fingerprint", "-sha1"])
            .replace(':', "")
            .to_lowercase();
        assert_eq!(lines[1], fingerprint);
        assert_eq!(lines[2], x509(&["-subject", "-nameopt", "RFC2253"]));
        assert_eq!(lines[3], x509(&["-issuer", "-nameopt", "RFC2253"]));
        assert_eq!(lines[4], x509(&["-subject", "-nameopt", "compat"]));
        assert_eq!(lines[5], x509(&["-issuer", "-nameopt", "compat"]));
        assert_eq!(lines[6], x509(&["-startdate"]));
        assert_eq!(lines[7], x509(&["-enddate"]));
        let days: u64 = lines[8].parse().expect("days");
        let within = |days: u64| {
            let seconds = (days * 86_400).to_string();
            let arguments = ["x509", "-in", "client.crt", "-noout", "-checkend", &seconds];
            tool::run(&kp.path(""), "openssl", &arguments, b"").code == 0
        };
        assert!(within(days) && !within(days + 1), "{days}");
        let pem = client.certificate.trim_end().replace("\r\n", "\n");
        assert_eq!(unescaped(lines[9]).trim_end(), pem);
        let connector = Connector::with(&site.servers, "a.test", &[&TLS13], Some(client));
        let raw = Client::secure(&kp.address(), &connector)
            .ask("GET /raw HTTP/1.1\r\nHost: a.test\r\n\r\n")
            .text();
        assert_eq!(raw.trim_end(), pem);
    }
}

/// So many days and a half from now, so that no day ends during a test.
fn days_and_a_half<T: From<SystemTime>>(days: u32) -> T {
    (SystemTime::now() + DAY * days + DAY / 2).into()
}

const DAY: Duration = Duration::from_secs(86_400);

/// One line of `openssl x509`, without its name.
fn openssl_says(directory: &Path, arguments: &[&str]) -> String {
    let mut all = vec!["x509", "-in", "client.crt", "-noout"];
    all.extend_from_slice(arguments);
    let text = tool::openssl(directory, &all).text();
    let value = text.split_once('=').map_or("", |(_, value)| value);
    value.trim_end_matches('\n').to_owned()
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(&after[..2]).expect("digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).expect("text")
}

/// The certificate as a request field to the upstream: one line, as a field has to be.
#[test]
fn the_certificate_goes_to_the_upstream_in_a_field() {
    let site = Site::new();
    let origin = Origin::ok();
    let server = "ssl_verify_client on; ssl_client_certificate clients.pem;
        location /up { proxy_pass http://%U1%; proxy_set_header X-Cert $ssl_client_escaped_cert;
            proxy_set_header X-Verify $ssl_client_verify; }";
    let server = server.replace("%U1%", &origin.address());
    let kp = site.setup(&server, "").start();
    let client = site.clients.issue(&["c"]);
    let connector = Connector::with(&site.servers, "a.test", &[&TLS13], Some(&client));
    let request = "GET /up HTTP/1.1\r\nHost: a.test\r\nX-Verify: forged\r\n\r\n";
    assert_eq!(
        Client::secure(&kp.address(), &connector)
            .ask(request)
            .text(),
        "ok"
    );
    let seen = origin.last();
    assert_eq!(seen.head.all("x-verify"), ["SUCCESS"]);
    let sent = unescaped(seen.field("x-cert").expect("a field"));
    assert_eq!(
        sent.trim_end(),
        client.certificate.trim_end().replace("\r\n", "\n")
    );
}

/// Certificates as `openssl x509 -req` makes them, without any extension, are good below their authority.
#[test]
fn certificates_of_version_1_are_judged() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = |arguments: &[&str]| tool::openssl(directory.path(), arguments);
    let key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ];
    for root in ["root", "other"] {
        let (subject, file) = (format!("/CN={root}"), format!("{root}.key"));
        let out = format!("{root}.pem");
        let arguments = [
            "req", "-x509", "-subj", &subject, "-keyout", &file, "-out", &out,
        ];
        run(&[&arguments[..], &key].concat());
    }
    let made = |name: &str, root: &str| {
        let (subject, file, request) = (
            format!("/CN={name}"),
            format!("{name}.key"),
            format!("{name}.csr"),
        );
        let (out, issuer, signer) = (
            format!("{name}.crt"),
            format!("{root}.pem"),
            format!("{root}.key"),
        );
        let arguments = [
            "req", "-new", "-subj", &subject, "-keyout", &file, "-out", &request,
        ];
        run(&[&arguments[..], &key].concat());
        run(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &issuer,
            "-CAkey",
            &signer,
            "-set_serial",
            "7",
            "-out",
            &out,
        ]);
        let text = run(&["x509", "-in", &out, "-noout", "-text"]).text();
        assert!(text.contains("Version: 1 "), "{text}");
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("read");
        Pair {
            certificate: read(&out),
            key: read(&file),
        }
    };
    let (server, client, stranger) = (
        made("o.test", "root"),
        made("client", "root"),
        made("stranger", "other"),
    );
    let text = "%MAIN% http {
        server { listen %LISTEN% ssl; ssl_certificate o.crt; ssl_certificate_key o.key;
            ssl_verify_client optional; ssl_client_certificate root.pem;
            error_page 495 =200 /said; location = /said { return 200 $ssl_client_verify; }
            location / { return 200 $ssl_client_verify; }
            location = /up { proxy_pass https://%LISTEN%/; proxy_ssl_verify on; proxy_ssl_name o.test;
                proxy_ssl_trusted_certificate root.pem; proxy_ssl_certificate c.crt; proxy_ssl_certificate_key c.key; }
            location = /wrong { proxy_pass https://%LISTEN%/; proxy_ssl_verify on; proxy_ssl_name p.test;
                proxy_ssl_trusted_certificate root.pem; }
        }
    }";
    let root = std::fs::read_to_string(directory.path().join("root.pem")).expect("read");
    let setup = with_pair(Setup::new(text), "o", &server).file("root.pem", root.clone());
    let setup = with_pair(with_pair(setup, "c", &client), "s", &stranger);
    let kp = setup.file("ca.pem", root).start();
    for version in ["-tls1_2", "-tls1_3"] {
        for (file, said) in [
            ("c", "SUCCESS"),
            ("s", "FAILED:unable to verify the first certificate"),
        ] {
            let (certificate, key) = (format!("{file}.crt"), format!("{file}.key"));
            let arguments = [version, "-cert", &certificate, "-key", &key];
            let told = s_client(&kp, &arguments, "o.test");
            assert_eq!(body(&told), said, "{}", told.all());
        }
    }
    let ask = |path: &str| {
        let url = format!("https://o.test:{}{path}", kp.port());
        let to = format!("o.test:{}:127.0.0.1", kp.port());
        let arguments = ["-sS", "--cacert", "ca.pem", "--resolve", &to, &url];
        tool::run(&kp.path(""), "curl", &arguments, b"").text()
    };
    assert_eq!(ask("/up"), "SUCCESS");
    assert!(ask("/wrong").contains("502 Bad Gateway"));
}

/// T06: a plain host and one that verifies clients, on one port.
#[test]
fn t06_a_host_that_verifies_is_reached_by_its_own_handshake_only() {
    let (servers, clients) = (Authority::default(), Authority::new("clients"));
    let origin = Origin::ok();
    let text = "%MAIN% http {
        server { listen %LISTEN% ssl; server_name a.test; ssl_certificate s.crt; ssl_certificate_key s.key;
            return 200 a; }
        server { listen %LISTEN% ssl; server_name b.test; ssl_certificate s.crt; ssl_certificate_key s.key;
            ssl_verify_client on; ssl_client_certificate clients.pem; location / { proxy_pass http://%U1%; } }
    }";
    let setup = with_pair(
        Setup::new(text),
        "s",
        &servers.issue(&["a.test", "b.test", "127.0.0.1"]),
    );
    let kp = setup
        .with("U1", origin.address())
        .file("clients.pem", clients.pem())
        .start();
    let own = clients.issue(&["client"]);
    let row = |name: &str, host: &str, own: Option<&Pair>| {
        let versions = [&TLS12, &TLS13];
        let [first, second] = versions.map(|version| {
            let connector = Connector::with(&servers, name, &[version], own);
            Client::secure(&kp.address(), &connector).ask(get(host))
        });
        assert_eq!(first.status(), second.status());
        (second.status(), second.text())
    };
    assert_eq!(row("a.test", "a.test", None), (200, "a".to_owned()));
    assert_eq!(row("a.test", "b.test", None).0, 421);
    assert_eq!(row("a.test", "b.test", Some(&own)).0, 421);
    assert_eq!(row("b.test", "b.test", None).0, 400);
    assert!([400, 421].contains(&row("127.0.0.1", "b.test", None).0));
    assert!([400, 421].contains(&row("127.0.0.1", "b.test", Some(&own)).0));
    assert_eq!(row("a.test", "unknown.test", None), (200, "a".to_owned()));
    assert_eq!(
        origin.connections(),
        0,
        "the upstream sees nothing of all this"
    );
    assert_eq!(row("b.test", "b.test", Some(&own)), (200, "ok".to_owned()));
    assert_eq!(origin.requests().len(), 2, "one for each version");
    // On one connection, one request after the other.
    let connector = Connector::with(&servers, "a.test", &[&TLS13], Some(&own));
    let mut client = Client::secure(&kp.address(), &connector);
    let statuses = ["a.test", "b.test", "a.test"].map(|host| client.ask(get(host)).status());
    assert_eq!(statuses, [200, 421, 200]);
}
