//! TLS on both sides: settings, inheritance, what must be there, and what is told about the rest.

use super::*;
use crate::model::{
    CertificateCache, CipherSuite, ClientVerification, NamedGroup, ProxyTarget, TlsCertificate,
    TlsFile, TlsIdentity, TlsProtocols, TlsServer, VerifyMode,
};
use crate::template::{Builtin, Part, Template, Variable};
use std::time::Duration;

/// A server with a certificate; the text's lines count from 2.
fn tls_server(text: &str) -> String {
    format!(
        "http {{ server {{ listen 443 ssl; ssl_certificate c.pem; ssl_certificate_key k.pem;\n{text}\n}} }}\n"
    )
}

fn settings(text: &str) -> TlsServer {
    let config = config(&tls_server(text));
    config.http.servers[0].tls.clone().unwrap()
}

fn path(text: &str) -> Option<Spanned<PathBuf>> {
    Some(Spanned::new(text.into(), Span::default()))
}

fn file(text: &str) -> Spanned<TlsFile> {
    Spanned::new(TlsFile::Path(text.into()), Span::default())
}

fn pair(certificate: &str, key: &str) -> TlsCertificate {
    TlsCertificate {
        certificate: file(certificate),
        key: file(key),
    }
}

#[test]
fn defaults_of_a_server() {
    let seconds = Duration::from_secs;
    let mut suites = CipherSuite::TLS13.to_vec();
    suites.extend(CipherSuite::TLS12);
    let expected = TlsServer {
        certificates: vec![pair("/conf/c.pem", "/conf/k.pem")],
        passwords: None,
        reject_handshake: false,
        protocols: TlsProtocols {
            v12: true,
            v13: true,
        },
        suites,
        groups: vec![
            NamedGroup::X25519MlKem768,
            NamedGroup::X25519,
            NamedGroup::Secp256r1,
            NamedGroup::Secp384r1,
        ],
        prefer_server_ciphers: false,
        buffer_size: 16384,
        handshake_timeout: seconds(60),
        session_tickets: true,
        ticket_keys: Vec::new(),
        session_timeout: seconds(300),
        verification: ClientVerification {
            depth: 1,
            ..ClientVerification::default()
        },
        stapling_file: None,
        certificate_cache: None,
        certificate_reload: false,
    };
    assert_eq!(settings(""), expected);
    let config = config(&tls_server(""));
    assert!(config.http.listeners[0].tls);
    assert_eq!(config.http.ticket_rotation, seconds(12 * 3600));
}

#[test]
fn settings_of_a_server() {
    let tls = settings(
        "ssl_password_file p; ssl_protocols TLSv1.2; ssl_protocols TLSv1.3; ssl_ciphers AES128:!aRSA;
ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256; ssl_ecdh_curve X25519:P-384; ssl_prefer_server_ciphers on;
ssl_buffer_size 4k; ssl_handshake_timeout 5s; ssl_session_tickets off; ssl_session_ticket_key a.key;
ssl_session_ticket_key /b.key; ssl_session_timeout 1h; ssl_verify_client optional; ssl_client_certificate ca.pem;
ssl_trusted_certificate all.pem; ssl_verify_depth 3; ssl_crl crl.pem; ssl_stapling on; ssl_stapling_file ocsp.der;
ssl_certificate_cache max=10 inactive=20s valid=1m; ssl_certificate_reload on;",
    );
    assert_eq!(tls.passwords, path("/conf/p"));
    assert!(tls.protocols.v12 && tls.protocols.v13);
    assert_eq!(
        tls.suites,
        [
            CipherSuite::Chacha20Poly1305Sha256,
            CipherSuite::EcdheEcdsaAes128GcmSha256
        ]
    );
    assert_eq!(tls.groups, [NamedGroup::X25519, NamedGroup::Secp384r1]);
    assert!(tls.prefer_server_ciphers && !tls.session_tickets && tls.certificate_reload);
    assert_eq!(
        (tls.buffer_size, tls.handshake_timeout.as_secs()),
        (4096, 5)
    );
    let keys: Vec<_> = tls
        .ticket_keys
        .iter()
        .map(|key| key.value.display().to_string())
        .collect();
    assert_eq!(keys, ["/conf/a.key", "/b.key"]);
    assert_eq!(tls.session_timeout.as_secs(), 3600);
    let verification = ClientVerification {
        mode: VerifyMode::Optional,
        ca: path("/conf/ca.pem"),
        trusted: path("/conf/all.pem"),
        depth: 3,
        crl: path("/conf/crl.pem"),
    };
    assert_eq!(tls.verification, verification);
    assert_eq!(tls.stapling_file, path("/conf/ocsp.der"));
    let cache = CertificateCache {
        max: 10,
        inactive: Duration::from_secs(20),
        valid: Duration::from_secs(60),
    };
    assert_eq!(tls.certificate_cache, Some(cache));
}

#[test]
fn values_with_a_meaning_of_their_own() {
    assert_eq!(
        settings("client_header_timeout 7s;")
            .handshake_timeout
            .as_secs(),
        7
    );
    assert_eq!(settings("ssl_buffer_size 1m;").buffer_size, 16384);
    assert_eq!(settings("ssl_buffer_size 1;").buffer_size, 64);
    assert_eq!(
        settings("ssl_certificate_cache off;").certificate_cache,
        None
    );
    assert_eq!(
        settings("ssl_stapling off; ssl_stapling_file x;").stapling_file,
        None
    );
    let modern = settings("ssl_protocols TLSv1.3;");
    assert_eq!(modern.suites, CipherSuite::TLS13);
    let old = settings("ssl_protocols TLSv1.2; ssl_ciphers HIGH:!aNULL:!MD5;");
    assert_eq!(old.suites, CipherSuite::TLS12);
    assert!(old.protocols.v12 && !old.protocols.v13);
    let rotation = config(&http("ssl_session_ticket_rotation 2s;"));
    assert_eq!(rotation.http.ticket_rotation.as_secs(), 2);
}

#[test]
fn certificates_with_variables() {
    let config = config(&http(
        "server { listen 443 ssl; ssl_certificate $ssl_server_name.pem; ssl_certificate_key data:$host; }",
    ));
    let tls = config.http.servers[0].tls.as_ref().unwrap();
    let variable = |builtin| Part::Variable(Variable::Builtin(builtin));
    let template = Template {
        parts: vec![
            variable(Builtin::SslServerName),
            Part::Literal(".pem".into()),
        ],
    };
    let certificate = TlsFile::Template {
        path: template,
        directory: "/conf".into(),
    };
    assert_eq!(tls.certificates[0].certificate.value, certificate);
    let data = Template {
        parts: vec![variable(Builtin::Host)],
    };
    assert_eq!(tls.certificates[0].key.value, TlsFile::Data(data));
}

#[test]
fn servers_inherit_from_http_one_by_one() {
    let config = config(&http(
        "ssl_certificate c.pem; ssl_certificate_key k.pem; ssl_protocols TLSv1.3; ssl_session_timeout 1m;
server { listen 443 ssl; server_name a; ssl_session_timeout 2m; }
server { listen 443 ssl; server_name b; ssl_certificate ec.pem; ssl_certificate rsa.pem; ssl_certificate_key ec.key;
ssl_certificate_key rsa.key; ssl_protocols TLSv1.2; }
server { listen 80; }",
    ));
    let tls = |index: usize| config.http.servers[index].tls.as_ref();
    let (first, second) = (tls(0).unwrap(), tls(1).unwrap());
    assert_eq!(first.certificates, [pair("/conf/c.pem", "/conf/k.pem")]);
    assert_eq!(first.session_timeout.as_secs(), 120);
    assert!(!first.protocols.v12 && !second.protocols.v13);
    let both = [
        pair("/conf/ec.pem", "/conf/ec.key"),
        pair("/conf/rsa.pem", "/conf/rsa.key"),
    ];
    assert_eq!(second.certificates, both);
    assert_eq!(second.session_timeout.as_secs(), 60);
    assert_eq!(tls(2), None, "no listener with ssl");
    let listeners: Vec<bool> = config.http.listeners.iter().map(|one| one.tls).collect();
    assert_eq!(listeners, [true, false]);
}

#[test]
fn a_certificate_for_every_listener() {
    const NONE: &str = "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive";
    const PAIR: &str = "ssl_certificate c; ssl_certificate_key k;";
    let found = |text: &str| findings(&http(text));
    assert_eq!(
        found("server { listen 443 ssl; }"),
        [format!("2:17 {NONE}")]
    );
    assert_eq!(
        found("server { listen 80; listen 443 ssl; ssl_certificate_key k; }"),
        [format!("2:28 {NONE}")]
    );
    // One that is not the default shows the default's.
    let config = config(&http(&format!(
        "server {{ listen 443 ssl; {PAIR} }} server {{ listen 443 ssl; server_name b; }}"
    )));
    assert!(config.http.servers[0].tls.is_some() && config.http.servers[1].tls.is_none());
    assert_eq!(
        found(&format!(
            "server {{ listen 443 ssl; server_name b; }} server {{ listen 443 ssl default_server; {PAIR} }}"
        )),
        [""; 0]
    );
    // A default that refuses handshakes has nothing to show.
    assert_eq!(
        found("server { listen 443 ssl; ssl_reject_handshake on; }"),
        [""; 0]
    );
    assert_eq!(
        found(
            "server { listen 443 ssl; ssl_reject_handshake on; } server { listen 443 ssl; server_name b; }"
        ),
        [format!("2:69 {NONE}")]
    );
    let without_key =
        "server { listen 443 ssl; ssl_certificate a; ssl_certificate b; ssl_certificate_key k; }";
    assert_eq!(
        found(without_key),
        ["2:61 no \"ssl_certificate_key\" is defined for certificate \"b\""]
    );
    assert_eq!(
        found(&format!("server {{ listen 443; {PAIR} }}")),
        ["warn 2:38 \"ssl_certificate\" is not used: no \"listen\" of this server has \"ssl\""]
    );
    assert_eq!(found(&format!("{PAIR} server {{ listen 80; }}")), [""; 0]);
    // Whether clients are verified is decided in a handshake of one's own.
    assert_eq!(
        found(&format!(
            "server {{ listen 443 ssl; {PAIR} }}\nserver {{ listen 443 ssl; server_name b; ssl_verify_client on; ssl_client_certificate ca; }}"
        )),
        ["warn 3:59 \"ssl_verify_client\" needs \"ssl_certificate\" in the same server"]
    );
}

/// Requests must meet what their server says, whether or not it has handshakes of its own.
#[test]
fn verification_without_a_certificate() {
    let (config, _) = load(&http(
        "server { listen 443 ssl; ssl_certificate c; ssl_certificate_key k; }
server { listen 443 ssl; server_name b; ssl_verify_client on; }
server { listen 80; ssl_verify_client on; }",
    ));
    let servers = config.unwrap().http.servers;
    let modes: Vec<VerifyMode> = servers.iter().map(|one| one.verification.mode).collect();
    assert_eq!(modes, [VerifyMode::Off, VerifyMode::On, VerifyMode::Off]);
    assert!(servers[1].tls.is_none());
}

#[test]
fn ssl_holds_for_an_address() {
    let found = |texts: &[&str]| {
        let servers: Vec<String> = (1..)
            .zip(texts)
            .map(|(number, text)| format!("server {{ server_name n{number}; listen 443 {text}; }}"))
            .collect();
        let text = format!(
            "ssl_certificate c; ssl_certificate_key k;\n{}",
            servers.join("\n")
        );
        let (config, diagnostics) = load(&http(&text));
        assert!(config.unwrap().http.listeners[0].tls);
        listed(&diagnostics)
    };
    let told = |line: usize| format!("warn {line}:33 protocol options redefined for 0.0.0.0:443");
    assert_eq!(found(&["ssl", ""]), [""; 0]);
    assert_eq!(found(&["", "ssl"]), [""; 0]);
    assert_eq!(found(&["ssl", "", ""]), [""; 0]);
    assert_eq!(found(&["ssl", "", "ssl"]), [told(5)]);
    assert_eq!(found(&["ssl", "backlog=10"]), [told(4)]);
    assert_eq!(found(&["backlog=10", "ssl"]), [told(4)]);
    assert_eq!(found(&["ssl backlog=10", "ssl", "ssl"]), [""; 0]);
}

#[test]
fn mistakes() {
    let cases = [
        ("ssl_protocols TLSv1.4;", "2:15 invalid value \"TLSv1.4\""),
        (
            "ssl_protocols TLSv1.1 TLSv1.2;",
            "warn 2:15 not supported in \"ssl_protocols\", left out: \"TLSv1.1\"",
        ),
        (
            "ssl_protocols TLSv1.2 SSLv3 TLSv1;",
            "warn 2:23 not supported in \"ssl_protocols\", left out: \"SSLv3\", \"TLSv1\"",
        ),
        (
            "ssl_protocols TLSv1.2; ssl_protocols TLSv1.1;",
            "warn 2:38 not supported in \"ssl_protocols\", left out: \"TLSv1.1\"",
        ),
        (
            "ssl_protocols TLSv1 TLSv1.1;",
            "2:15 no version is left in \"ssl_protocols\": \"TLSv1\", \"TLSv1.1\" is not supported",
        ),
        (
            "ssl_protocols TLSv1.2 TLSv1.2;",
            "warn 2:23 duplicate value \"TLSv1.2\"",
        ),
        (
            "ssl_ciphers RC4-SHA;",
            "2:13 no cipher match in \"ssl_ciphers\" \"RC4-SHA\"",
        ),
        (
            "ssl_ciphers HIGH:RC4-SHA:AES128-SHA;",
            "warn 2:13 not supported in \"ssl_ciphers\", left out: \"RC4-SHA\", \"AES128-SHA\"",
        ),
        (
            "ssl_ecdh_curve secp521r1;",
            "2:16 no group is left in \"ssl_ecdh_curve\" \"secp521r1\"",
        ),
        (
            "ssl_ecdh_curve X25519:secp521r1;",
            "warn 2:16 not supported in \"ssl_ecdh_curve\", left out: \"secp521r1\"",
        ),
        (
            "ssl_conf_command Ciphersuites X;",
            "2:31 no cipher match in \"ssl_conf_command\" \"X\"",
        ),
        (
            "ssl_conf_command MinProtocol TLSv1.3;",
            "2:18 \"MinProtocol\" in \"ssl_conf_command\" is not supported",
        ),
        (
            "ssl_conf_command Options KTLS;",
            "warn 2:18 \"Options\" in \"ssl_conf_command\" is not supported, left out",
        ),
        ("ssl_verify_client yes;", "2:19 invalid value \"yes\""),
        (
            "ssl_verify_client optional;",
            "2:19 no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client",
        ),
        (
            "ssl_certificate_cache inactive=1s;",
            "2:23 \"ssl_certificate_cache\" must have the \"max\" parameter",
        ),
        (
            "ssl_certificate_cache max=0;",
            "2:23 invalid parameter \"max=0\"",
        ),
        (
            "ssl_certificate_cache max=1 off;",
            "2:29 invalid parameter \"off\"",
        ),
        (
            "ssl_session_cache foo;",
            "2:19 invalid session cache \"foo\"",
        ),
        (
            "ssl_session_cache shared:a;",
            "2:19 invalid session cache \"shared:a\"",
        ),
        (
            "ssl_session_cache shared:a:1k;",
            "2:19 session cache \"shared:a:1k\" is too small",
        ),
        (
            "ssl_certificate engine:x; ssl_certificate_key k;",
            "2:17 \"engine:\" keys are not supported",
        ),
        (
            "ssl_certificate a; ssl_certificate_key engine:x;",
            "2:40 \"engine:\" keys are not supported",
        ),
        (
            "ssl_certificate $nonsense; ssl_certificate_key k;",
            "2:17 unknown \"nonsense\" variable",
        ),
        (
            "ssl_buffer_size 0;",
            "2:17 \"ssl_buffer_size\" directive invalid value",
        ),
        ("ssl on;", "2:1 unknown directive \"ssl\""),
        ("ssl_ocsp on;", "2:1 unknown directive \"ssl_ocsp\""),
        (
            "location / { ssl_protocols TLSv1.3; }",
            "2:14 \"ssl_protocols\" directive is not allowed here",
        ),
        (
            "ssl_session_ticket_rotation 1h;",
            "2:1 \"ssl_session_ticket_rotation\" directive is not allowed here",
        ),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(&tls_server(text)), [finding], "{text}");
    }
}

/// What stands in every file in the wild and does nothing here is told once for the whole configuration.
#[test]
fn what_changes_nothing_is_told_once() {
    let cases = [
        (
            "http2 on;",
            "HTTP/2 is not spoken yet, \"http2 on\" changes nothing",
        ),
        (
            "ssl_dhparam dh.pem;",
            "\"ssl_dhparam\" changes nothing: kp has no DHE suites",
        ),
        (
            "ssl_stapling on;",
            "\"ssl_stapling on\" changes nothing without \"ssl_stapling_file\"",
        ),
        (
            "ssl_stapling_verify on;",
            "\"ssl_stapling_verify on\" changes nothing",
        ),
        (
            "ssl_session_cache shared:SSL:10m;",
            "\"ssl_session_cache\" changes nothing: sessions are resumed by tickets only",
        ),
        (
            "ssl_early_data on;",
            "early data is not accepted, \"ssl_early_data on\" changes nothing",
        ),
    ];
    for (text, message) in cases {
        let pair = "ssl_certificate c; ssl_certificate_key k;";
        let servers = format!(
            "server {{ {pair} {text} listen 443 ssl; server_name a; }}\nserver {{ {pair} {text} listen 443 ssl; server_name b; }}"
        );
        let found = findings(&http(&servers));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("warn 2:") && found[0].ends_with(message),
            "{found:?}"
        );
    }
    for text in [
        "http2 off;",
        "ssl_stapling off;",
        "ssl_stapling_verify off;",
        "ssl_early_data off;",
        "ssl_session_cache off;",
        "ssl_session_cache none;",
    ] {
        assert_eq!(findings(&tls_server(text)), [""; 0], "{text}");
    }
}

fn identity(text: &str) -> TlsIdentity {
    let config = config(&location(&format!(
        "{text} proxy_pass https://u; proxy_ssl_verify on;"
    )));
    let tls = prefix(&config, "/a/").proxy.tls.as_ref().unwrap();
    config.http.tls_identities[tls.identity.index()].clone()
}

#[test]
fn identities() {
    let default = identity("");
    let mut suites = CipherSuite::TLS13.to_vec();
    suites.extend(CipherSuite::TLS12);
    let expected = TlsIdentity {
        server_name: false,
        verify: true,
        verify_depth: 1,
        trusted: None,
        crl: None,
        certificate: None,
        certificate_cache: None,
        passwords: None,
        protocols: TlsProtocols::default(),
        suites,
        groups: NamedGroup::DEFAULT.to_vec(),
        session_reuse: true,
        alpn: Vec::new(),
        span: Span::default(),
    };
    assert_eq!(default, expected);
    let stated = identity(
        "proxy_ssl_server_name on; proxy_ssl_verify_depth 2; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_crl crl.pem;
proxy_ssl_certificate c.pem; proxy_ssl_certificate_key k.pem; proxy_ssl_certificate_cache max=5; proxy_ssl_password_file p;
proxy_ssl_protocols TLSv1.2; proxy_ssl_ciphers CHACHA20; proxy_ssl_session_reuse off; proxy_ssl_alpn http/1.1 http/1.0;",
    );
    assert!(stated.server_name && !stated.session_reuse);
    assert_eq!(stated.verify_depth, 2);
    assert_eq!(stated.trusted, path("/conf/ca.pem"));
    assert_eq!(stated.crl, path("/conf/crl.pem"));
    assert_eq!(stated.certificate, Some(pair("/conf/c.pem", "/conf/k.pem")));
    assert_eq!(stated.certificate_cache.unwrap().max, 5);
    assert_eq!(stated.passwords, path("/conf/p"));
    assert!(stated.protocols.v12 && !stated.protocols.v13);
    assert_eq!(
        stated.suites,
        [
            CipherSuite::EcdheEcdsaChacha20Poly1305,
            CipherSuite::EcdheRsaChacha20Poly1305
        ]
    );
    assert_eq!(stated.alpn, ["http/1.1", "http/1.0"]);
    let suites = identity(
        "proxy_ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256; proxy_ssl_protocols TLSv1.3;",
    )
    .suites;
    assert_eq!(suites, [CipherSuite::Aes128GcmSha256]);
}

#[test]
fn an_empty_certificate_is_none() {
    let config = config(&http(
        "proxy_ssl_verify on; proxy_ssl_certificate c; proxy_ssl_certificate_key k;
server { listen 8080; location /a/ { proxy_pass https://10.0.0.1; proxy_ssl_certificate \"\"; } }",
    ));
    assert_eq!(config.http.tls_identities[0].certificate, None);
}

#[test]
fn equal_settings_are_one_identity() {
    let config = config(
        &http(
            "proxy_ssl_verify on; proxy_ssl_server_name on; server { listen 8080;
location /a/ { proxy_pass https://127.0.0.1; }
location /b/ { proxy_pass https://127.0.0.1:8443; proxy_ssl_name $http_x; proxy_read_timeout 1s; }
location /c/ { proxy_pass https://127.0.0.1; proxy_ssl_server_name off; }
location /d/ { proxy_pass http://127.0.0.1; }
location /e/ { proxy_pass $server_name; }
location /f/ { proxy_pass http://$http_x.test; } }",
        )
        .replace("$http_x.test", "127.0.0.1:$server_port"),
    );
    let tls = |text: &str| prefix(&config, text).proxy.tls.clone();
    let identity = |text: &str| tls(text).map(|tls| tls.identity.0);
    assert_eq!(
        ["/a/", "/b/", "/c/", "/d/", "/e/", "/f/"].map(identity),
        [Some(0), Some(0), Some(1), None, Some(0), None]
    );
    assert_eq!(tls("/a/").unwrap().name, None);
    assert!(tls("/b/").unwrap().name.is_some());
    assert_eq!(config.http.tls_identities.len(), 2);
}

#[test]
fn targets_with_https() {
    let config = config(&http(
        "proxy_ssl_verify on; upstream u { server 127.0.0.1:9443; } server { listen 8080;
location /a/ { proxy_pass https://127.0.0.1; } location /b/ { proxy_pass http://127.0.0.1; }
location /c/ { proxy_pass HTTPS://127.0.0.1:443/x/; } location /d/ { proxy_pass https://127.0.0.1:80; }
location /e/ { proxy_pass https://u; } location /f/ { proxy_pass https://unix:/s:/y/; } }",
    ));
    let shown = |text: &str| {
        let crate::model::Handler::Proxy(pass) = &prefix(&config, text).handler else {
            panic!("{text} does not proxy");
        };
        let ProxyTarget::Upstream {
            upstream,
            host,
            port,
            https,
            ..
        } = &pass.target
        else {
            panic!("{text} has variables");
        };
        let group = &config.http.upstreams[upstream.index()];
        let peer = format!("{:?}", group.servers[0].addresses[0]);
        let scheme = if *https { "https" } else { "http" };
        format!("{scheme} {host} {port} {peer}")
    };
    assert_eq!(shown("/a/"), "https 127.0.0.1 443 Inet(127.0.0.1:443)");
    assert_eq!(shown("/b/"), "http 127.0.0.1 80 Inet(127.0.0.1:80)");
    assert_eq!(shown("/c/"), "https 127.0.0.1 443 Inet(127.0.0.1:443)");
    assert_eq!(shown("/d/"), "https 127.0.0.1:80 80 Inet(127.0.0.1:80)");
    assert_eq!(shown("/e/"), "https u 443 Inet(127.0.0.1:9443)");
    assert_eq!(shown("/f/"), "https localhost 0 Unix(\"/s\")");
    // `proxy_redirect default` speaks of what is written.
    let redirect = &prefix(&config, "/a/").proxy.redirects[0];
    assert_eq!(
        redirect.from,
        crate::template::Pattern::Text(Template::literal("https://127.0.0.1/"))
    );
}

#[test]
fn mistakes_towards_upstreams() {
    const UNVERIFIED: &str = "the upstream's certificate is not verified";
    let cases = [
        ("proxy_pass https://u;", format!("warn 2:12 {UNVERIFIED}")),
        (
            "proxy_pass https://127.0.0.1:$server_port;",
            format!("warn 2:12 {UNVERIFIED}"),
        ),
        (
            "proxy_pass https://u; if ($host) { set $x 1; } proxy_ssl_verify off;",
            format!("warn 2:12 {UNVERIFIED}"),
        ),
        (
            "proxy_pass https://u; proxy_ssl_verify on; proxy_ssl_certificate c;",
            "2:66 no \"proxy_ssl_certificate_key\" is defined for certificate \"c\"".to_owned(),
        ),
        (
            "proxy_pass https://u; proxy_ssl_verify on; proxy_ssl_protocols TLSv1;",
            "2:64 no version is left in \"proxy_ssl_protocols\": \"TLSv1\" is not supported"
                .to_owned(),
        ),
        (
            "proxy_pass https://u; proxy_ssl_verify on; proxy_ssl_protocols TLSv1 TLSv1.3;",
            "warn 2:64 not supported in \"proxy_ssl_protocols\", left out: \"TLSv1\"".to_owned(),
        ),
        (
            "proxy_pass https://u; proxy_ssl_verify on; proxy_ssl_alpn h2;",
            "2:59 \"h2\" in \"proxy_ssl_alpn\" is not supported".to_owned(),
        ),
        ("proxy_pass ftp://u;", "2:12 invalid URL prefix".to_owned()),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(&location(text)), [finding], "{text}");
    }
    for quiet in [
        "proxy_pass http://u; proxy_ssl_certificate c;",
        "set $s https; proxy_pass $s://u;",
        "proxy_pass https://u; proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem;",
    ] {
        assert_eq!(findings(&location(quiet)), [""; 0], "{quiet}");
    }
}

#[test]
fn a_group_without_ports_is_at_80() {
    let found = |servers: &str, scheme: &str| {
        findings(&http(&format!(
            "upstream g {{ {servers} }} server {{ listen 8080; proxy_ssl_verify on;\nlocation / {{ proxy_pass {scheme}://g; }} }}"
        )))
    };
    assert_eq!(
        found("server 10.0.0.1:443; server 10.0.0.2;", "https"),
        ["warn 3:25 \"server 10.0.0.2\" of \"g\" is asked for TLS at port 80"]
    );
    assert_eq!(
        found("server 10.0.0.1:443; server 10.0.0.2:80;", "https"),
        [""; 0]
    );
    assert_eq!(found("server 10.0.0.2;", "http"), [""; 0]);
}

#[test]
fn both_syntaxes_agree() {
    let conf = "events {} http { proxy_ssl_verify on; server { listen 443 ssl; ssl_certificate a; ssl_certificate b;
ssl_certificate_key ak; ssl_certificate_key bk; ssl_protocols TLSv1.2 TLSv1.3; ssl_ciphers HIGH:!aNULL;
ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256; ssl_certificate_cache max=3 valid=5s;
location / { proxy_pass https://10.0.0.1; proxy_ssl_alpn http/1.1 http/1.0; } } }";
    let yaml = "events:
http:
  proxy_ssl_verify: on
  server:
    listen: 443 ssl
    ssl_certificate: [a, b]
    ssl_certificate_key: [ak, bk]
    ssl_protocols: [TLSv1.2, TLSv1.3]
    ssl_ciphers: 'HIGH:!aNULL'
    ssl_conf_command: Ciphersuites TLS_AES_128_GCM_SHA256
    ssl_certificate_cache: max=3 valid=5s
    location:
      /: {proxy_pass: 'https://10.0.0.1', proxy_ssl_alpn: [http/1.1, http/1.0]}
";
    let reading = testing::yaml(yaml);
    assert_eq!(testing::findings(&reading), [""; 0]);
    let resolved = resolve(&reading.directives, &environment());
    assert_eq!(resolved.diagnostics, []);
    assert_eq!(resolved.config, Some(config(conf)));
}
