//! What a TLS connection means to a request: variables, the virtual host, verified clients, upstreams with `https://`.

use crate::bed::Bed;
use kp_config::model::{ListenerId, ServerId, TlsIdentityId};
use kp_config::template::{Builtin, Variable};
use kp_http::{HeadLimits, HeadReader};
use kp_proxy::{
    Action, ClientVerdict, Exchange, Input, TlsFacts, TlsOffer, TlsSource, tls_source, vars,
};
use std::path::PathBuf;
use std::rc::Rc;

/// a.test takes anyone, b.test verifies clients, c.test takes their certificates from anywhere, d.test may do without; e.test
/// trusts as b.test does.
const SERVERS: &str = "ssl_certificate c; ssl_certificate_key k;
    server { listen LISTEN ssl; server_name a.test; return 200 a; }
    server { listen LISTEN ssl; server_name b.test *.b.test; ssl_verify_client on; ssl_client_certificate ca; return 200 b; }
    server { listen LISTEN ssl; server_name c.test; ssl_verify_client optional_no_ca; return 200 c; }
    server { listen LISTEN ssl; server_name d.test; ssl_verify_client optional; ssl_client_certificate other; return 200 d; }
    server { listen LISTEN ssl; server_name e.test ~^r; ssl_verify_client on; ssl_client_certificate ca;
        error_page 495 496 /why; location / { return 200 e; } location /why { internal; return 403 $uri; } }";

const UNTRUSTED: ClientVerdict = ClientVerdict::Failed {
    code: 18,
    reason: "self-signed certificate",
};
const EXPIRED: ClientVerdict = ClientVerdict::Failed {
    code: 10,
    reason: "certificate has expired",
};

/// The facts of a handshake for a name; an empty one is none.
fn handshake(bed: &Bed, sni: &str, client: ClientVerdict) -> Rc<TlsFacts> {
    let name = (!sni.is_empty()).then_some(sni);
    let (server, named) = bed
        .program
        .handshake_server(ListenerId(0), name.map(str::as_bytes));
    Rc::new(TlsFacts {
        server,
        named,
        server_name: name.map(Into::into),
        client,
        ..TlsFacts::default()
    })
}

/// What comes of a request: the text of the answer, or the status of a failure and its word.
fn outcome(bed: &Bed, tls: Option<Rc<TlsFacts>>, head: &str) -> String {
    let mut exchange = Exchange::default();
    exchange.connection.tls = tls;
    let mut input = head.as_bytes().to_vec();
    let read = HeadReader::default().request(
        &mut input,
        &mut exchange.request.head,
        &HeadLimits::default(),
    );
    assert!(read.unwrap());
    let action = exchange.handle(Input::Head, &bed.program, &bed.context());
    // What is logged says what exactly was wrong.
    let logged = exchange.machine.reported.pop();
    let detail = logged.and_then(|(_, detail)| detail).unwrap_or_default();
    match action {
        Action::Respond(answer) => {
            let body = answer.body.unwrap_or_default();
            let body = String::from_utf8_lossy(&body);
            format!("{} {body}{detail}", answer.status)
        }
        Action::RespondFailure(failure) => {
            format!("{} {}{detail}", failure.status(), failure.token())
        }
        other => panic!("{other:?}"),
    }
}

fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

#[test]
fn the_name_of_the_handshake_and_the_host() {
    use ClientVerdict::{None, Success};
    let bed = Bed::new(SERVERS);
    let cases = [
        ("a.test", None, "a.test", "200 a"),
        ("a.test", None, "b.test", "421 misdirected"),
        ("a.test", Success, "b.test", "421 misdirected"),
        ("a.test", None, "d.test", "421 misdirected"),
        ("b.test", None, "b.test", "496 no_client_certificate"),
        ("b.test", Success, "b.test", "200 b"),
        ("b.test", Success, "B.TEST:8443", "200 b"),
        ("B.Test", Success, "b.test", "200 b"),
        ("b.test", Success, "a.test", "200 a"),
        // As in nginx the names count, not the servers.
        ("b.test", Success, "x.b.test", "421 misdirected"),
        ("b.test", Success, "e.test", "421 misdirected"),
        (
            "b.test",
            EXPIRED,
            "b.test",
            "495 client_certificate(10:certificate has expired)",
        ),
        (
            "b.test",
            UNTRUSTED,
            "b.test",
            "495 client_certificate(18:self-signed certificate)",
        ),
        ("b.test", UNTRUSTED, "a.test", "200 a"),
        ("c.test", None, "c.test", "200 c"),
        ("c.test", UNTRUSTED, "c.test", "200 c"),
        (
            "c.test",
            EXPIRED,
            "c.test",
            "495 client_certificate(10:certificate has expired)",
        ),
        ("d.test", None, "d.test", "200 d"),
        (
            "d.test",
            UNTRUSTED,
            "d.test",
            "495 client_certificate(18:self-signed certificate)",
        ),
        // The default server answers for names that nobody has; it does not verify.
        ("a.test", None, "z.test", "200 a"),
        ("z.test", None, "z.test", "200 a"),
        // Without a name the handshake was the default server's, which asked for no certificate.
        ("", None, "b.test", "496 no_client_certificate"),
        ("z.test", None, "b.test", "496 no_client_certificate"),
        ("", None, "d.test", "200 d"),
        ("e.test", None, "e.test", "400 /why"),
        (
            "r.org",
            EXPIRED,
            "r.org",
            "400 /why(10:certificate has expired)",
        ),
        ("r.org", Success, "r.org", "200 e"),
    ];
    for (sni, client, host, expected) in cases {
        let found = outcome(&bed, Some(handshake(&bed, sni, client)), &get(host));
        assert_eq!(found, expected, "SNI {sni}, Host {host}, {client:?}");
    }
}

/// A certificate that one server found good is not good for another that trusts someone else.
#[test]
fn a_verdict_holds_where_the_same_is_trusted() {
    let bed = Bed::new(
        "ssl_certificate c; ssl_certificate_key k;
        server { listen LISTEN ssl; server_name a.test; ssl_verify_client optional; ssl_client_certificate ca; return 200 a; }
        server { listen LISTEN ssl; server_name b.test; ssl_verify_client on; ssl_client_certificate ca; return 200 b; }
        server { listen LISTEN ssl; server_name c.test; ssl_verify_client on; ssl_client_certificate other; return 200 c; }
        server { listen LISTEN ssl; server_name d.test; ssl_verify_client on; ssl_client_certificate ca; ssl_crl r; return 200 d; }",
    );
    let ask = |client, host| outcome(&bed, Some(handshake(&bed, "", client)), &get(host));
    assert_eq!(ask(ClientVerdict::Success, "a.test"), "200 a");
    assert_eq!(ask(ClientVerdict::Success, "b.test"), "200 b");
    assert_eq!(ask(ClientVerdict::Success, "c.test"), "421 misdirected");
    assert_eq!(ask(ClientVerdict::Success, "d.test"), "421 misdirected");
    assert_eq!(
        ask(ClientVerdict::None, "c.test"),
        "496 no_client_certificate"
    );
}

/// A server without a certificate has the default server's handshakes, which ask for what that wants.
#[test]
fn verification_without_handshakes_of_its_own() {
    let bed = |default: &str| {
        Bed::new(&format!(
            "server {{ listen LISTEN ssl; ssl_certificate c; ssl_certificate_key k; {default} return 200 a; }}
            server {{ listen LISTEN ssl; server_name b.test; ssl_verify_client on; ssl_client_certificate ca; return 200 b; }}"
        ))
    };
    let ask =
        |bed: &Bed, client| outcome(bed, Some(handshake(bed, "b.test", client)), &get("b.test"));
    let plain = bed("");
    assert_eq!(
        ask(&plain, ClientVerdict::None),
        "496 no_client_certificate"
    );
    let same = bed("ssl_verify_client optional; ssl_client_certificate ca;");
    assert_eq!(ask(&same, ClientVerdict::Success), "200 b");
    let other = bed("ssl_verify_client optional; ssl_client_certificate other;");
    assert_eq!(ask(&other, ClientVerdict::Success), "421 misdirected");
}

#[test]
fn plain_http_at_a_tls_port() {
    let bed = Bed::new(SERVERS);
    assert_eq!(outcome(&bed, None, &get("a.test")), "497 plain_http");
    assert_eq!(outcome(&bed, None, &get("b.test")), "497 plain_http");
    let bed = Bed::new(
        "server { listen LISTEN ssl; ssl_certificate c; ssl_certificate_key k; error_page 497 https://$host$request_uri; }",
    );
    assert_eq!(outcome(&bed, None, &get("a.test")), "302 ");
    let plain = Bed::new("server { listen LISTEN; return 200 $scheme; }");
    assert_eq!(outcome(&plain, None, &get("a.test")), "200 http");
}

/// Without Host the default server answers, whatever name the handshake was for.
#[test]
fn requests_without_host() {
    let old = "GET / HTTP/1.0\r\n\r\n";
    let bed = Bed::new(SERVERS);
    let ask = |bed: &Bed, sni, client| outcome(bed, Some(handshake(bed, sni, client)), old);
    assert_eq!(ask(&bed, "c.test", ClientVerdict::None), "200 a");
    assert_eq!(ask(&bed, "", ClientVerdict::None), "200 a");
    let verifying = Bed::new(
        "ssl_certificate c; ssl_certificate_key k;
        server { listen LISTEN ssl; server_name a.test; ssl_verify_client on; ssl_client_certificate ca; return 200 a; }
        server { listen LISTEN ssl; server_name b.test; return 200 b; }",
    );
    assert_eq!(
        ask(&verifying, "a.test", ClientVerdict::Success),
        "421 misdirected"
    );
    assert_eq!(
        ask(&verifying, "b.test", ClientVerdict::None),
        "421 misdirected"
    );
    assert_eq!(ask(&verifying, "", ClientVerdict::Success), "200 a");
}

#[test]
fn servers_of_handshakes() {
    let bed = Bed::new(SERVERS);
    let find = |sni: Option<&str>| {
        let (server, named) = bed
            .program
            .handshake_server(ListenerId(0), sni.map(str::as_bytes));
        (server.0, named)
    };
    assert_eq!(find(None), (0, false));
    assert_eq!(find(Some("")), (0, false));
    assert_eq!(find(Some("z.test")), (0, false));
    assert_eq!(find(Some("b.test")), (1, true));
    assert_eq!(find(Some("X.B.test")), (1, true));
    assert_eq!(find(Some("ra")), (4, true));
    let single = Bed::new(
        "server { listen LISTEN ssl; server_name a; ssl_certificate c; ssl_certificate_key k; }",
    );
    let found = single.program.handshake_server(ListenerId(0), Some(b"a"));
    assert_eq!(found, (ServerId(0), false), "its names decide nothing");
}

fn facts() -> TlsFacts {
    TlsFacts {
        server: ServerId(0),
        named: true,
        server_name: Some("a.test".into()),
        protocol: "TLSv1.3",
        cipher: "TLS_AES_256_GCM_SHA384",
        curve: "X25519",
        signature: "ecdsa_secp256r1_sha256",
        client_signature: "rsa_pss_rsae_sha256",
        alpn: Some("http/1.1".into()),
        session_id: Box::new([0x0a, 0xff]),
        reused: true,
        offer: Some(Box::new(TlsOffer {
            ciphers: vec![0x1a1a, 0x1301, 0xc02f],
            groups: vec![0x11ec, 0x001d, 0x9999],
            signatures: vec![0x0403, 0x0804],
        })),
        client: EXPIRED,
    }
}

/// The variables and their values; `None`: none.
const VARIABLES: [(&str, Option<&str>); 28] = [
    ("scheme", Some("https")),
    ("https", Some("on")),
    ("ssl_alpn_protocol", Some("http/1.1")),
    ("ssl_cipher", Some("TLS_AES_256_GCM_SHA384")),
    (
        "ssl_ciphers",
        Some("0x1a1a:TLS_AES_128_GCM_SHA256:ECDHE-RSA-AES128-GCM-SHA256"),
    ),
    ("ssl_client_cert", Some("-----BEGIN\n\ta+b\n\t-----END")),
    (
        "ssl_client_escaped_cert",
        Some("-----BEGIN%0Aa%2Bb%0A-----END%0A"),
    ),
    ("ssl_client_fingerprint", Some("Fingerprint")),
    ("ssl_client_i_dn", Some("Issuer")),
    ("ssl_client_i_dn_legacy", Some("LegacyIssuer")),
    ("ssl_client_raw_cert", Some("-----BEGIN\na+b\n-----END\n")),
    ("ssl_client_s_dn", Some("Subject")),
    ("ssl_client_s_dn_legacy", Some("LegacySubject")),
    ("ssl_client_serial", Some("Serial")),
    ("ssl_client_sigalg", Some("rsa_pss_rsae_sha256")),
    ("ssl_client_v_end", Some("End")),
    ("ssl_client_v_remain", Some("DaysLeft")),
    ("ssl_client_v_start", Some("Start")),
    ("ssl_client_verify", Some("FAILED:certificate has expired")),
    ("ssl_curve", Some("X25519")),
    ("ssl_curves", Some("X25519MLKEM768:X25519:0x9999")),
    ("ssl_early_data", None),
    ("ssl_protocol", Some("TLSv1.3")),
    ("ssl_server_name", Some("a.test")),
    ("ssl_session_id", Some("0aff")),
    ("ssl_session_reused", Some("r")),
    ("ssl_sigalg", Some("ecdsa_secp256r1_sha256")),
    (
        "ssl_sigalgs",
        Some("ecdsa_secp256r1_sha256:rsa_pss_rsae_sha256"),
    ),
];

fn value(bed: &Bed, exchange: &mut Exchange, name: &str) -> Option<String> {
    let mut known = Builtin::ALL.iter();
    let (_, builtin) = known.find(|(known, _)| *known == name).unwrap();
    let mut out = Vec::new();
    let variable = Variable::Builtin(*builtin);
    let found = vars::variable(&variable, exchange, &bed.program, &bed.context(), &mut out);
    found.then(|| String::from_utf8(out).unwrap())
}

#[test]
fn variables() {
    let bed = Bed::new(SERVERS);
    let mut exchange = bed.exchange(get("a.test").as_bytes()).unwrap();
    exchange.connection.tls = Some(Rc::new(facts()));
    for (name, expected) in VARIABLES {
        assert_eq!(
            value(&bed, &mut exchange, name).as_deref(),
            expected,
            "{name}"
        );
    }
    for (client, expected) in [
        (ClientVerdict::None, "NONE"),
        (ClientVerdict::Success, "SUCCESS"),
    ] {
        let facts = TlsFacts { client, ..facts() };
        exchange.connection.tls = Some(Rc::new(facts));
        let found = value(&bed, &mut exchange, "ssl_client_verify");
        assert_eq!(found.as_deref(), Some(expected));
    }
    // A handshake that tells nothing has nothing to tell of.
    exchange.connection.tls = Some(Rc::new(TlsFacts::default()));
    for name in [
        "ssl_server_name",
        "ssl_alpn_protocol",
        "ssl_curve",
        "ssl_session_id",
        "ssl_ciphers",
    ] {
        assert_eq!(value(&bed, &mut exchange, name), None, "{name}");
    }
    let fresh = value(&bed, &mut exchange, "ssl_session_reused");
    assert_eq!(fresh.as_deref(), Some("."));
}

#[test]
fn what_a_client_offers_is_kept_where_it_is_asked_for() {
    let uses = |text: &str| {
        let server = format!("server {{ listen LISTEN; return 200 \"{text}\"; }}");
        Bed::new(&server).program.uses().tls_offer
    };
    assert!(uses("$ssl_ciphers") && uses("$ssl_curves") && uses("$ssl_sigalgs"));
    assert!(!uses("$ssl_cipher$ssl_curve"));
    let path =
        "server { listen LISTEN ssl; ssl_certificate $ssl_ciphers.pem; ssl_certificate_key k; }";
    assert!(Bed::new(path).program.uses().tls_offer);
}

#[test]
fn certificates_out_of_variables() {
    let bed = Bed::new(
        "server { listen LISTEN ssl; ssl_certificate $ssl_server_name.pem; ssl_certificate_key /k/$ssl_server_name;
        ssl_certificate data:$ssl_server_name; ssl_certificate_key data:$http_none; }",
    );
    let tls = bed.config.http.servers[0].tls.as_ref().unwrap();
    let mut exchange = Exchange::default();
    exchange.connection.tls = Some(Rc::new(facts()));
    let mut source = |file| tls_source(file, &mut exchange, &bed.program, &bed.context());
    let [first, second] = tls.certificates.as_slice() else {
        panic!("two pairs")
    };
    let Some(TlsSource::File(path)) = source(&first.certificate.value) else {
        panic!("a file")
    };
    assert!(
        path.is_absolute() && path.ends_with("a.test.pem"),
        "{path:?}"
    );
    let key = source(&first.key.value);
    assert_eq!(key, Some(TlsSource::File(PathBuf::from("/k/a.test"))));
    let text = source(&second.certificate.value);
    assert_eq!(text, Some(TlsSource::Text(b"a.test".to_vec())));
    assert_eq!(source(&second.key.value), None);
}

#[test]
fn upstreams_with_tls() {
    let bed = Bed::new(
        "proxy_ssl_verify on; proxy_ssl_trusted_certificate ca; upstream g { server 127.0.0.1:9; }
        server { listen LISTEN;
        location /plain { proxy_pass http://UPSTREAM; }
        location /address { proxy_pass https://127.0.0.1; }
        location /port { proxy_pass https://127.0.0.1:8443/x; }
        location /group { proxy_pass https://g; }
        location /v6 { proxy_pass https://[::1]:8443; }
        location /named { proxy_pass https://g; proxy_ssl_name $http_x:1; }
        location /variable { proxy_pass $http_u; }
        location /certificate { proxy_pass https://g; proxy_ssl_certificate /c/$http_x; proxy_ssl_certificate_key data:$http_x; }
        }",
    );
    let asked = |path: &str, url: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nX: name\r\nU: {url}\r\n\r\n");
        let mut exchange = bed.exchange(head.as_bytes()).unwrap();
        let routed = bed.program.route(&mut exchange, &bed.context());
        assert_eq!(routed, kp_proxy::Routed::Handle);
        let target = kp_proxy::resolve_target(&mut exchange, &bed.program, &bed.context());
        let request = &exchange.request;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let tls = &request.upstream_tls;
        assert_eq!(
            tls.identity.is_some(),
            path != "/plain" && !url.starts_with("http:")
        );
        let shown = format!(
            "{} {} {:?} name={}",
            text(&request.proxy_host),
            request.proxy_port,
            target.unwrap(),
            text(&tls.name)
        );
        (shown, tls.clone())
    };
    let shown = |path: &str| asked(path, "").0;
    assert_eq!(asked("/plain", "").1.identity, None);
    assert_eq!(
        shown("/address"),
        "127.0.0.1 443 Group(UpstreamId(2)) name=127.0.0.1"
    );
    assert_eq!(
        shown("/port"),
        "127.0.0.1:8443 8443 Group(UpstreamId(3)) name=127.0.0.1"
    );
    assert_eq!(shown("/group"), "g 443 Group(UpstreamId(0)) name=g");
    assert_eq!(
        shown("/v6"),
        "[::1]:8443 8443 Group(UpstreamId(4)) name=::1"
    );
    assert_eq!(shown("/named"), "g 443 Group(UpstreamId(0)) name=name");
    let variable = |url: &str| asked("/variable", url).0;
    assert_eq!(variable("https://g/x"), "g 443 Group(UpstreamId(0)) name=g");
    assert_eq!(variable("http://g"), "g 80 Group(UpstreamId(0)) name=");
    // A group made for an address is meant only with its port.
    assert_eq!(
        variable("https://127.0.0.1"),
        "127.0.0.1 443 Group(UpstreamId(2)) name=127.0.0.1"
    );
    assert_eq!(
        variable("http://127.0.0.1"),
        "127.0.0.1 80 Address(Inet(127.0.0.1:80)) name="
    );
    assert_eq!(
        variable("HTTPS://10.0.0.1:99"),
        "10.0.0.1:99 99 Address(Inet(10.0.0.1:99)) name=10.0.0.1"
    );
    let (_, tls) = asked("/certificate", "");
    assert_eq!(
        (tls.certificate.as_slice(), tls.key.as_slice()),
        (&b"/c/name"[..], &b"name"[..])
    );
    assert_ne!(
        tls.identity,
        Some(TlsIdentityId(0)),
        "another certificate, another identity"
    );
    assert_eq!(asked("/named", "").1.identity, Some(TlsIdentityId(0)));
}
