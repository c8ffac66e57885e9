//! The PROXY protocol: what is taken for a header and what is not, whose word is taken, and what upstreams are told.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use kp_tests::client::Writing;
use kp_tests::origin::{Conversation, response};
use kp_tests::tls::{Authority, Connector};
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kp, Origin, Port, Setup};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
const LINE: &str = "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n";

/// A server that says whom the header named and whom it takes the client for.
const TEXT: &str = "%MAIN%
http {
    log_format r '$remote_addr $realip_remote_addr $proxy_protocol_addr'; access_log access.log r;
    %HTTP%
    server {
        listen %LISTEN% proxy_protocol %PARAMETERS%;
        %SERVER%
        location / {
            return 200 \"$proxy_protocol_addr|$proxy_protocol_port|$proxy_protocol_server_addr|$proxy_protocol_server_port|$remote_addr|$remote_port\";
        }
    }
}
";

fn site(server: &str) -> Setup {
    Setup::new(TEXT)
        .with("PARAMETERS", "")
        .with("SERVER", server)
}

/// The same with TLS, and whom its clients trust.
fn secure_site() -> (Setup, Authority) {
    let authority = Authority::default();
    let pair = authority.issue(&["a.test"]);
    let setup = Setup::new(TEXT)
        .with("PARAMETERS", "ssl")
        .with(
            "SERVER",
            "ssl_certificate a.crt; ssl_certificate_key a.key;",
        )
        .file("a.crt", pair.certificate)
        .file("a.key", pair.key);
    (setup, authority)
}

/// A header of version 2.
fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x20 | command, family]);
    header.extend(u16::try_from(block.len()).unwrap().to_be_bytes());
    header.extend(block);
    header
}

/// 192.0.2.1:123 to 192.0.2.2:5678.
fn v4(tlvs: &[u8]) -> Vec<u8> {
    let addresses = [192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 0x16, 0x2e];
    v2(1, 0x11, &[&addresses[..], tlvs].concat())
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[kind], &length[..], value].concat()
}

const NAMED: &str = "192.0.2.1|123|192.0.2.2|5678";
const NOBODY: &str = "|||";

fn good_headers() -> Vec<(Vec<u8>, &'static str)> {
    let mut v6 = [0; 36];
    v6[15] = 1;
    v6[31] = 2;
    v6[33] = 123;
    v6[35] = 80;
    vec![
        (LINE.into(), NAMED),
        (
            "PROXY TCP6 2001:db8::1 ::1 123 80\r\n".into(),
            "2001:db8::1|123|::1|80",
        ),
        ("PROXY UNKNOWN\r\n".into(), NOBODY),
        (
            "PROXY UNKNOWN 192.0.2.1 192.0.2.2 123 80\r\n".into(),
            NOBODY,
        ),
        (v4(&[]), NAMED),
        (v4(&tlv(0xee, b"of no known type")), NAMED),
        (v4(&tlv(4, &[0; 3000])), NAMED),
        (v2(1, 0x21, &v6), "::1|123|::2|80"),
        (v2(0, 0, &[]), NOBODY),
        (v2(0, 0x11, &[1, 2, 3, 4]), NOBODY),
        (v2(1, 0x31, &[b'/'; 216]), NOBODY),
        (v2(1, 0x12, &[7; 12]), NOBODY),
    ]
}

/// Every way of writing gives the same; what follows the header in one write is the request.
#[test]
fn headers_are_read_in_any_pieces() {
    let kp = site("").start();
    for (header, named) in good_headers() {
        let joined = [&header[..], GET.as_bytes()].concat();
        for writing in Writing::ALL {
            let mut client = kp.client();
            let port = client.local_address().port();
            client.send_as(writing, &joined);
            let told = client.response().text();
            assert_eq!(told, format!("{named}|127.0.0.1|{port}"), "{writing:?}");
        }
        let mut client = kp.client();
        client.send(&header);
        assert!(!client.has_heard());
        assert!(client.ask(GET).text().starts_with(named));
    }
}

/// A header is that of a connection: the requests on it share it, at once or one after the other.
#[test]
fn a_header_comes_once() {
    let kp = site("").start();
    let mut client = kp.client();
    client.send(format!("{LINE}{GET}{GET}"));
    for _ in 0..2 {
        assert!(client.response().text().starts_with(NAMED));
    }
    assert!(client.ask(GET).text().starts_with(NAMED));
    let second = client.ask(format!("{LINE}{GET}"));
    assert_eq!(second.status(), 400, "a second one is no request");
}

fn broken_headers() -> Vec<(Vec<u8>, String)> {
    let mut third = v4(&[]);
    third[12] = 0x31;
    let broken = |line: &str| {
        format!("broken header: \"{line}\" while reading PROXY protocol, client: 127.0.0.1")
    };
    vec![
        (GET.into(), broken("GET / HTTP/1.1")),
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 80\r\n".into(),
            broken("PROXY TCP4 192.0.2.1 192.0.2.2 01 80"),
        ),
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 123 99999\r\n".into(),
            broken("PROXY TCP4 192.0.2.1 192.0.2.2 123 99999"),
        ),
        (
            "PROXY TCP4 ::1 ::1 1 2\r\n".into(),
            broken("PROXY TCP4 ::1 ::1 1 2"),
        ),
        (
            "PROXY TCP4 192.0.2.1\r\n".into(),
            broken("PROXY TCP4 192.0.2.1"),
        ),
        (
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n".into(),
            broken("PROXY UDP4 192.0.2.1 192.0.2.2 1 2"),
        ),
        ("PROXY UNKNOWN bare\n".into(), broken("PROXY UNKNOWN bare")),
        (
            "PROXY UNKNOWN \x1b[2J\u{1}\r\r\n".into(),
            broken("PROXY UNKNOWN \\x1b[2J\\x01"),
        ),
        (
            vec![0x16, 3, 1, 2, 0],
            "broken header: \"\\x16\\x03\\x01\\x02\\x00GET".to_owned(),
        ),
        (
            format!("PROXY UNKNOWN {}", "x".repeat(200)).into_bytes(),
            "broken header: \"PROXY UNKNOWN xxx".to_owned(),
        ),
        (
            third,
            "unknown PROXY protocol version: 3 while reading PROXY protocol".to_owned(),
        ),
        (
            v2(1, 0x11, &[0; 5000]),
            "header is too large while reading PROXY protocol".to_owned(),
        ),
        (v2(1, 0x11, &[1, 2, 3]), broken("")),
        (v2(9, 0x11, &[0; 12]), broken("")),
        (v4(&[1, 0]), broken("")),
        (
            v4(&tlv(3, b"4321")),
            "wrong checksum while reading PROXY protocol".to_owned(),
        ),
    ]
}

/// No answer, and nginx's sentence in the log.
#[test]
fn what_is_no_header_is_closed() {
    let kp = site("").start();
    for (bytes, logged) in broken_headers() {
        for writing in [Writing::Whole, Writing::Bytes] {
            let before = kp.error_log().len();
            let mut client = kp.client();
            client.send_as(writing, [&bytes[..], GET.as_bytes()].concat());
            let what = String::from_utf8_lossy(&bytes).into_owned();
            assert!(client.closes_within(SOON), "{what:?}");
            // Byte by byte the first that cannot be right may end it, before the line is there.
            let logged = match writing {
                Writing::Whole => logged.as_str(),
                _ => "while reading PROXY protocol",
            };
            wait::until(SOON, logged, || kp.error_log()[before..].contains(logged));
        }
    }
    assert_eq!(kp.text("access.log"), "", "none of them was a request");
}

#[test]
fn a_client_that_ends_within_its_header_is_gone() {
    let kp = site("").start();
    for (bytes, logged) in [
        ("", "client closed connection while reading PROXY protocol"),
        (
            "PROXY TC",
            "broken header: \"PROXY TC\" while reading PROXY protocol",
        ),
    ] {
        let mut client = kp.client();
        client.send(bytes);
        client.half_close();
        assert!(client.closes_within(SOON));
        kp.wait_error(logged);
    }
}

/// The time of the head, counted from the accept, whatever drips in.
#[test]
fn a_header_has_a_deadline() {
    let kp = site("client_header_timeout 400ms;").start();
    let mut silent = kp.client();
    let mut slow = kp.client();
    let start = Instant::now();
    for byte in LINE.bytes() {
        slow.send([byte]);
        if slow.closes_within(Duration::from_millis(300)) {
            break;
        }
    }
    assert!(silent.closes_within(SOON) && slow.closes_within(SOON));
    let passed = start.elapsed();
    let (least, most) = (Duration::from_millis(350), Duration::from_millis(8000));
    assert!(passed > least && passed < most, "{passed:?}");
    kp.wait_error("client timed out (110: Connection timed out) while reading PROXY protocol");
    let mut late = kp.client();
    late.send(LINE);
    assert!(late.closes_within(SOON), "a header alone wins no time");
}

/// Before TLS, in one write with the ClientHello, byte by byte, or by itself.
#[test]
fn tls_begins_behind_the_header() {
    let (setup, authority) = secure_site();
    let kp = setup.start();
    let connector = Connector::new(&authority, "a.test");
    type Cut = fn(Vec<u8>, usize) -> Vec<Vec<u8>>;
    let ways: [Cut; 3] = [
        |all, _| vec![all],
        |all, _| all.chunks(1).map(<[u8]>::to_vec).collect(),
        |all, header| vec![all[..header].to_vec(), all[header..].to_vec()],
    ];
    for (header, named) in good_headers() {
        for cut in ways {
            let client = kp.client();
            let with_hello = |hello: &[u8]| cut([&header[..], hello].concat(), header.len());
            let mut client = client.upgrade_in_pieces(&connector, with_hello).unwrap();
            assert!(client.ask(GET).text().starts_with(named));
            assert!(client.ask(GET).text().starts_with(named), "and stays");
        }
    }
    assert!(kp.client().upgrade(&connector).is_err(), "without a header");
    kp.wait_error("broken header: \"\\x16\\x03\\x01");
    let mut plain = kp.client();
    plain.send(format!("{LINE}{GET}"));
    assert_eq!(
        plain.response().status(),
        400,
        "plain HTTP where TLS is spoken"
    );
}

#[test]
fn what_version_2_says_besides() {
    let text = TEXT.replace(
        "return 200",
        "add_header X-Tlv \"$proxy_protocol_tlv_alpn,$proxy_protocol_tlv_0x01,$proxy_protocol_tlv_authority,$proxy_protocol_tlv_unique_id,$proxy_protocol_tlv_netns,$proxy_protocol_tlv_ssl_verify,$proxy_protocol_tlv_ssl_version,$proxy_protocol_tlv_ssl_cn,$proxy_protocol_tlv_ssl_0x22,$proxy_protocol_tlv_ssl_cipher,$proxy_protocol_tlv_ssl_sig_alg,$proxy_protocol_tlv_ssl_key_alg,$proxy_protocol_tlv_0xae,$proxy_protocol_tlv_0xaf,$proxy_protocol_tlv_nothing\"; return 200",
    );
    let kp = Setup::new(&text).with("PARAMETERS", "").start();
    let about_tls = [
        &[1, 0, 0, 1, 0][..],
        &tlv(0x21, b"TLSv1.3"),
        &tlv(0x22, b"c.test"),
        &tlv(0x23, b"AES"),
        &tlv(0x24, b"SHA"),
        &tlv(0x25, b"RSA"),
    ];
    let tlvs = [
        tlv(1, b"h2"),
        tlv(2, b"a.test"),
        tlv(5, b"id"),
        tlv(0x20, &about_tls.concat()),
        tlv(0x30, b"ns"),
        tlv(0xae, b"own"),
    ];
    let mut client = kp.client();
    client.send(v4(&tlvs.concat()));
    let answer = client.ask(GET);
    assert_eq!(
        answer.field("x-tlv"),
        Some("h2,h2,a.test,id,ns,256,TLSv1.3,c.test,c.test,AES,SHA,RSA,own,,")
    );
    let mut client = kp.client();
    client.send(LINE);
    assert_eq!(client.ask(GET).field("x-tlv"), Some(",,,,,,,,,,,,,,"));
}

/// Shows: set_real_ip_from, real_ip_header
#[test]
fn the_client_is_whom_a_trusted_proxy_names() {
    let kp = site("set_real_ip_from 127.0.0.0/8; real_ip_header proxy_protocol;").start();
    for (header, told) in [
        (
            Vec::from(LINE),
            "192.0.2.1|123|192.0.2.2|5678|192.0.2.1|123",
        ),
        (v4(&[]), "192.0.2.1|123|192.0.2.2|5678|192.0.2.1|123"),
    ] {
        let mut client = kp.client();
        client.send(header);
        assert_eq!(client.ask(GET).text(), told);
        let spoof =
            "GET / HTTP/1.1\r\nHost: a\r\nX-Real-IP: 6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n";
        assert_eq!(client.ask(spoof).text(), told, "fields say nothing here");
    }
    // Who connected is the client where the proxy speaks for itself.
    for header in [Vec::from("PROXY UNKNOWN\r\n"), v2(0, 0, &[])] {
        let mut client = kp.client();
        client.send(header);
        let port = client.local_address().port();
        assert_eq!(client.ask(GET).text(), format!("{NOBODY}|127.0.0.1|{port}"));
    }
    let lines = kp.access_lines(6);
    assert_eq!(lines[0], "192.0.2.1 127.0.0.1 192.0.2.1");
    assert_eq!(lines[5], "127.0.0.1 127.0.0.1 -");
}

/// Where the server says whose word it takes, no others may speak for somebody; not even the header is awaited.
#[test]
fn others_may_not_speak() {
    for setup in [
        site("set_real_ip_from 192.0.2.0/24; set_real_ip_from unix:;"),
        site("").http("set_real_ip_from ::1;"),
    ] {
        let kp = setup.start();
        let mut client = kp.client();
        client.send(format!("{LINE}{GET}"));
        assert!(client.closes_within(SOON));
        kp.wait_error("client is not trusted (set_real_ip_from) while reading PROXY protocol, client: 127.0.0.1");
        assert_eq!(kp.text("access.log"), "");
    }
}

#[test]
fn unix_sockets_have_headers_too() {
    let text = "http { server { listen %LISTEN%; listen unix:kp.sock proxy_protocol;
        set_real_ip_from unix:; real_ip_header proxy_protocol;
        location / { return 200 \"$remote_addr|$proxy_protocol_addr\"; } } }";
    let kp = Setup::new(text).start();
    for (header, told) in [
        (LINE, "192.0.2.1|192.0.2.1"),
        ("PROXY UNKNOWN\r\n", "unix:|"),
    ] {
        let mut socket = std::os::unix::net::UnixStream::connect(kp.path("kp.sock")).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        write!(socket, "{header}GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(&format!("\r\n\r\n{told}")), "{answer}");
    }
    assert_eq!(
        kp.get("/").text(),
        "127.0.0.1|",
        "other addresses have none"
    );
}

/// `proxy_protocol` belongs to the address, whoever names it.
#[test]
fn one_listen_says_it_for_the_address() {
    let text = "http { server { listen %LISTEN%; server_name a; location / { return 200 \"a $proxy_protocol_addr\"; } }
        server { listen %LISTEN% proxy_protocol; server_name b; location / { return 200 \"b $proxy_protocol_addr\"; } } }";
    let kp = Setup::new(text).start();
    for name in ["a", "b"] {
        let mut client = kp.client();
        client.send(LINE);
        let answer = client.ask(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"));
        assert_eq!(answer.text(), format!("{name} 192.0.2.1"));
    }
}

/// Who connected before a reload and says it after is served.
#[test]
fn a_reload_loses_nobody_who_is_about_to_speak() {
    let kp = site("").start();
    let mut client = kp.client();
    let mut begun = kp.client();
    begun.send(&LINE[..20]);
    assert!(
        kp.client()
            .ask(format!("{LINE}{GET}"))
            .text()
            .starts_with(NAMED),
        "both are accepted"
    );
    let before = kp.worker_pids();
    kp.reload();
    kp.wait_new_workers(&before);
    client.send(LINE);
    assert!(client.ask(GET).text().starts_with(NAMED));
    begun.send(&LINE[20..]);
    assert!(begun.ask(GET).text().starts_with(NAMED));
    kp.wait_drained(SOON);
}

/// Takes what stands in front of a request, and answers with it, as long as requests come.
fn tells_headers(conversation: &mut Conversation) -> std::io::Result<()> {
    let mut header = Vec::new();
    loop {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") || bytes.len() < 20 {
            bytes.extend(conversation.read_at_least(1)?);
        }
        let start = bytes
            .windows(5)
            .position(|window| window == b"GET /")
            .unwrap();
        header.extend_from_slice(&bytes[..start]);
        let index = conversation.index;
        let told = format!("{index} {}", header.escape_ascii());
        conversation.send(response(200, told.as_bytes()))?;
    }
}

const PROXIED: &str = "http { upstream u { server %U1%; keepalive 8; }
    server { listen %LISTEN%; set_real_ip_from 127.0.0.1;
        location / { proxy_protocol %VERSION%; proxy_pass http://u; }
        location /plain/ { proxy_pass http://u; } } }";

fn proxied(origin: &Origin, version: &str) -> Kp {
    Setup::new(PROXIED)
        .with("U1", origin.address())
        .with("VERSION", version)
        .start()
}

fn get_as(client: &mut Client, path: &str, address: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\nX-Real-IP: {address}\r\n\r\n");
    client.ask(request).text()
}

/// Shows: proxy_protocol
#[test]
fn upstreams_are_told_who_the_client_is() {
    let origin = Origin::start(tells_headers);
    for version in ["on", "v1"] {
        origin.forget();
        let kp = proxied(&origin, version);
        let port = kp.port();
        let mut client = kp.client();
        for (address, header) in [
            (
                "203.0.113.7:99",
                format!("PROXY TCP4 203.0.113.7 127.0.0.1 99 {port}\\r\\n"),
            ),
            (
                "203.0.113.8",
                format!("PROXY TCP4 203.0.113.8 127.0.0.1 0 {port}\\r\\n"),
            ),
            (
                "2001:db8::7",
                format!("PROXY TCP6 2001:db8::7 ::ffff:127.0.0.1 0 {port}\\r\\n"),
            ),
        ] {
            let told = get_as(&mut client, "/", address);
            assert_eq!(told.split_once(' ').unwrap().1, header);
        }
    }
    let kp = proxied(&origin, "v2");
    let told = get_as(&mut kp.client(), "/", "203.0.113.7:99");
    let [high, low] = kp.port().to_be_bytes();
    let block = [203, 0, 113, 7, 127, 0, 0, 1, 0, 99, high, low];
    let header = v2(1, 0x11, &block).escape_ascii().to_string();
    assert_eq!(told.split_once(' ').unwrap().1, header);
    let kp = proxied(&origin, "off");
    let told = get_as(&mut kp.client(), "/", "203.0.113.7");
    assert_eq!(told.split_once(' ').unwrap().1, "");
}

/// A connection that was introduced serves one request, and no client's requests come under another's name. Others of the
/// same group are kept as before.
#[test]
fn introduced_connections_are_not_shared() {
    let origin = Origin::start(tells_headers);
    let kp = proxied(&origin, "v1");
    let mut client = kp.client();
    for round in 0..3 {
        for address in ["203.0.113.7", "203.0.113.7", "203.0.113.8"] {
            let told = get_as(&mut client, "/", address);
            assert!(told.contains(&format!("PROXY TCP4 {address} ")), "{told}");
            let plain = get_as(&mut client, "/plain/", address);
            assert!(plain.ends_with(' '), "{plain}: no header");
            assert!(round == 0 || plain == "1 ", "{plain}: the one that is kept");
        }
    }
    assert_eq!(origin.connections(), 9 + 1);
    wait::until(SOON, "introduced connections are closed", || {
        origin.open_connections() == 1
    });
}

/// Each attempt is a connection of its own, with a header of its own.
#[test]
fn the_next_server_is_told_too() {
    let first = Origin::start(|conversation| {
        conversation.read_at_least(1)?;
        conversation.reset()
    });
    let origin = Origin::start(tells_headers);
    let text = PROXIED.replace("server %U1%;", "server %U0%; server %U1%;");
    let kp = Setup::new(&text)
        .with("U0", first.address())
        .with("U1", origin.address())
        .with("VERSION", "v1")
        .start();
    let told = get_as(&mut kp.client(), "/", "203.0.113.7");
    assert!(told.starts_with("0 PROXY TCP4 203.0.113.7 "), "{told}");
    assert!(first.raw_text().starts_with("PROXY TCP4 203.0.113.7 "));
}

/// An internal redirect into a location that does without does not make the connection one that may be kept.
#[test]
fn what_was_introduced_stays_so() {
    let origin = Origin::start(|conversation| {
        loop {
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"\r\n\r\n") {
                bytes.extend(conversation.read_at_least(1)?);
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let head = if text.contains("GET /plain/") {
                "HTTP/1.1 200 OK\r\n"
            } else {
                "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /plain/\r\n"
            };
            let body = format!("{}", conversation.index);
            conversation.send(format!(
                "{head}Content-Length: {}\r\n\r\n{body}",
                body.len()
            ))?;
        }
    });
    let kp = proxied(&origin, "v1");
    let mut client = kp.client();
    for _ in 0..3 {
        assert_eq!(get_as(&mut client, "/", "203.0.113.7"), "1");
    }
    assert_eq!(origin.connections(), 3 + 1);
}

/// Two kp, one behind the other, with TLS between them and without: the first one's client is the second one's, through both
/// versions; the destination is the one the client meant.
#[test]
fn from_proxy_to_proxy() {
    for version in ["v1", "v2"] {
        for scheme in ["http", "https"] {
            let (setup, _) = secure_site();
            let real = "set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;";
            let behind = match scheme {
                "https" => setup.with("SERVER", real),
                _ => site(real),
            };
            let behind = behind.start();
            let text = format!(
                "http {{ server {{ listen %LISTEN% proxy_protocol; set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;
                    location / {{ proxy_protocol {version}; proxy_pass {scheme}://{}; }} }} }}",
                behind.address()
            );
            let kp = Setup::new(&text).start();
            let mut client = kp.client();
            client.send(v4(&[]));
            assert_eq!(client.ask(GET).text(), format!("{NAMED}|192.0.2.1|123"));
            assert_eq!(client.ask(GET).text(), format!("{NAMED}|192.0.2.1|123"));
            let mut client = kp.client();
            client.send(LINE.replace("192.0.2.1", "192.0.2.9"));
            let told = client.ask(GET).text();
            assert_eq!(told, "192.0.2.9|123|192.0.2.2|5678|192.0.2.9|123");
        }
    }
}

/// An IPv6 address has headers, and trusts addresses, of both families.
#[test]
fn headers_on_ipv6() {
    let port = Port::take();
    let number = port.number();
    let text = format!(
        "http {{ server {{ listen %LISTEN%; listen [::1]:{number} proxy_protocol;
            set_real_ip_from ::1; real_ip_header proxy_protocol;
            location / {{ return 200 \"$remote_addr|$remote_port|$realip_remote_addr|$proxy_protocol_server_addr\"; }} }} }}"
    );
    let _kp = Setup::new(&text).start();
    for (header, told) in [
        (LINE, "192.0.2.1|123|::1|192.0.2.2"),
        (
            "PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n",
            "2001:db8::1|1|::1|2001:db8::2",
        ),
    ] {
        let mut client = Client::connect(&format!("[::1]:{number}"));
        client.send(header);
        assert_eq!(client.ask(GET).text(), told);
    }
}

/// A thousand who never finish their header keep nobody waiting, and go when their time is over.
#[test]
fn half_headers_cost_the_others_nothing() {
    let kp = site("client_header_timeout 5s;").start();
    let mut stuck: Vec<Client> = (0..1000)
        .map(|number| {
            let mut client = kp.client();
            client.send(&LINE[..number % (LINE.len() - 1)]);
            client
        })
        .collect();
    let start = Instant::now();
    for _ in 0..20 {
        let answer = kp.client().ask(format!("{LINE}{GET}"));
        assert!(answer.text().starts_with(NAMED));
    }
    assert!(start.elapsed() < Duration::from_secs(4), "nobody waits");
    for client in &mut stuck {
        assert!(client.closes_within(SOON));
    }
}

/// What follows the header is a request or TLS, and nothing of it is taken for the next connection's or another header.
#[test]
fn garbage_behind_a_header_is_no_request() {
    let (setup, _) = secure_site();
    let kp = setup.start();
    for garbage in [
        LINE.as_bytes().to_vec(),
        v4(&[]),
        b"\x16\x03\x01\0\x05\x01\0\0\x01\0".to_vec(),
        vec![0; 300],
    ] {
        let mut client = kp.client();
        client.send([LINE.as_bytes(), &garbage].concat());
        let (answer, _) = client.read_to_end(SOON);
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(!text.contains(" 200 "), "{text}");
    }
    assert!(!kp.error_log().contains("[crit]"));
}

/// A connection that changes its protocol carries the header once, in front of everything.
#[test]
fn tunnels_are_introduced() {
    let origin = Origin::start(|conversation| {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.extend(conversation.read_at_least(1)?);
        }
        conversation.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        )?;
        let echo = conversation.read_at_least(4)?;
        conversation.send(echo)
    });
    let kp = Setup::new(
        "http { server { listen %LISTEN%; set_real_ip_from 127.0.0.1; location / { proxy_protocol v1;
            proxy_pass http://%U1%; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; } } }",
    )
    .with("U1", origin.address())
    .start();
    let mut client = kp.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\nX-Real-IP: 203.0.113.7\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
    assert_eq!(client.head(SOON).unwrap().status(), 101);
    client.send("ping");
    assert_eq!(client.read_exactly(4, SOON), b"ping");
    let heard = origin.raw_text();
    assert!(heard.starts_with("PROXY TCP4 203.0.113.7 "), "{heard}");
    assert_eq!(heard.matches("PROXY ").count(), 1, "{heard}");
}

/// A server that wants a header gets one from checks too, which names nobody; a port of their own gets none.
/// Shows: proxy_protocol, health_check
#[test]
fn checks_are_introduced() {
    let binary = v2(0, 0, &[]).escape_ascii().to_string();
    for (version, expected) in [
        ("v1", "PROXY UNKNOWN\\r\\nGET / HTTP/1.1"),
        ("v2", &*format!("{binary}GET / HTTP/1.1")),
        ("off", "GET / HTTP/1.1"),
    ] {
        let origin = Origin::start(tells_headers);
        let own = Origin::start(tells_headers);
        let kp = Setup::new(
            "error_log error.log notice; http { upstream u { server %U1%; } upstream o { server %U1%; }
             server { listen %LISTEN%; proxy_protocol %VERSION%;
                location / { proxy_pass http://u; health_check interval=200ms; }
                location /own/ { proxy_pass http://o; health_check interval=200ms port=%PORT%; } } }",
        )
        .with("U1", origin.address())
        .with("PORT", own.address().rsplit_once(':').unwrap().1)
        .with("VERSION", version)
        .start();
        wait::until(SOON, "checks", || {
            origin.connections() > 1 && own.connections() > 1
        });
        let heard = origin.raw().concat().escape_ascii().to_string();
        assert!(heard.starts_with(expected), "{version}: {heard}");
        assert!(own.raw_text().starts_with("GET / HTTP/1.1"));
        assert!(!kp.error_log().contains("is unhealthy"));
    }
}
