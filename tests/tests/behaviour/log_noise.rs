//! Whatever comes, every log stays readable: lines for files and for syslog, of accesses and of errors, each one JSON
//! object, and one for each request that the metrics count.
//!
//! Noise within requests that are otherwise well-formed is in `log_json`; here are those that are no requests at all.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};

use kp_tests::load::Draws;
use kp_tests::metrics::Metrics;
use kp_tests::tls::Authority;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kp, Origin, Port, Setup};
use serde_json::Value;

const CONNECTIONS: u64 = 500;

const TEXT: &str = "error_log error.log info;
error_log errors.json info format=json;
error_log syslog:server=%SYSLOG%,tag=errors info format=json;
http {
    log_format j json {
        server $server_name; port $remote_port; status $status; request $request; uri $uri; args $args; method $request_method; host $host;
        agent $http_user_agent; a $http_x_a; cookie $cookie_c; behind $upstream_http_x_b; sent $sent_http_x_b;
        upstream $upstream_status; reason $kp_reason; detail $kp_reason_detail;
    }
    log_format e escape=json '{\"status\":\"$status\",\"request\":\"$request\",\"a\":\"$http_x_a\",\"b\":\"$sent_http_x_b\"}';
    access_log j.log j;
    access_log e.log e;
    access_log syslog:server=%SYSLOG%,tag=access j;
    server { listen %LISTEN%; server_name a.test; location / { proxy_pass http://%ORIGIN%; proxy_read_timeout 2s; proxy_ignore_client_abort on; } }
    server {
        listen %TLS% ssl;
        listen %PROXIED% proxy_protocol;
        server_name b.test;
        ssl_certificate b.crt;
        ssl_certificate_key b.key;
        location / { proxy_pass http://%ORIGIN%; proxy_read_timeout 2s; proxy_ignore_client_abort on; }
    }
    server { listen %METRICS%; server_name m.test; access_log off; location / { metrics; } }
}
";

/// Random bytes.
fn bytes(draws: &mut Draws, most: u64) -> Vec<u8> {
    let count = draws.below(most);
    (0..count).map(|_| draws.below(256) as u8).collect()
}

/// Random bytes that may stand in a field: tabs, spaces, and anything that is no control character, not always UTF-8.
fn text(draws: &mut Draws, most: u64) -> Vec<u8> {
    let mut bytes = bytes(draws, most);
    bytes.retain(|byte| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\t');
    bytes
}

/// The same for a target.
fn target(draws: &mut Draws, most: u64) -> Vec<u8> {
    let mut bytes = text(draws, most);
    bytes.retain(|byte| !b" \t#".contains(byte));
    bytes
}

/// A request that is one.
fn request(draws: &mut Draws, connection: &str) -> Vec<u8> {
    let mut out = b"GET /".to_vec();
    out.extend(target(draws, 40));
    out.extend_from_slice(b" HTTP/1.1\r\nHost: t\r\nUser-Agent: ");
    out.extend(text(draws, 80));
    out.extend_from_slice(b"\r\nX-A: ");
    out.extend(text(draws, 80));
    out.extend_from_slice(b"\r\nCookie: c=");
    out.extend(text(draws, 40));
    out.extend_from_slice(format!("\r\nConnection: {connection}\r\n\r\n").as_bytes());
    out
}

/// All that a client sends on one connection.
fn noise(draws: &mut Draws) -> Vec<u8> {
    match draws.below(10) {
        0..=2 => {
            let more = draws.below(4);
            let first = (0..more).flat_map(|_| request(draws, "keep-alive"));
            let mut out: Vec<u8> = first.collect();
            out.extend(request(draws, "close"));
            out
        }
        3 => [
            request(draws, "keep-alive"),
            bytes(draws, 60),
            b"\r\n\r\n".to_vec(),
        ]
        .concat(),
        4 => [bytes(draws, 100), b"\r\n\r\n".to_vec()].concat(),
        // A hello of TLS.
        5 => [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
            bytes(draws, 200),
        ]
        .concat(),
        6 => {
            let path: Vec<u8> = target(draws, 40).repeat(700);
            [
                b"GET /long".to_vec(),
                path,
                b" HTTP/1.1\r\nHost: t\r\n\r\n".to_vec(),
            ]
            .concat()
        }
        7 => {
            let value: Vec<u8> = text(draws, 40).repeat(3000);
            [
                b"GET / HTTP/1.1\r\nHost: t\r\nX-A: ".to_vec(),
                value,
                b"\r\n\r\n".to_vec(),
            ]
            .concat()
        }
        // A byte of a head that has no place there.
        8 => {
            let mut out = request(draws, "close");
            let at = draws.below(out.len() as u64 - 4) as usize;
            out[at] = *draws.pick(b"\0\x01\x08\x1b\x7f\r\n\xff\xc3\x80 :\"\\");
            out
        }
        // Cut.
        _ => {
            let mut out = request(draws, "close");
            out.truncate(1 + draws.below(out.len() as u64 - 1) as usize);
            out
        }
    }
}

/// An origin whose heads have odd bytes, and which are sometimes broken.
fn odd_origin() -> Origin {
    let connections = AtomicU64::new(0);
    Origin::start(move |conversation| {
        let mut draws = Draws::new(connections.fetch_add(1, Ordering::SeqCst));
        loop {
            conversation.request()?;
            let mut reply = b"HTTP/1.1 200 ".to_vec();
            reply.extend(text(&mut draws, 30));
            reply.extend_from_slice(b"\r\nX-B: ");
            reply.extend(text(&mut draws, 80));
            reply.extend_from_slice(b"\r\nContent-Length: 2\r\n\r\nok");
            let broken = draws.below(6) == 0;
            if broken {
                let at = draws.below(reply.len() as u64) as usize;
                reply[at] = draws.below(256) as u8;
            }
            conversation.send(reply)?;
            // It may say now that more is to come.
            if broken {
                return Ok(());
            }
        }
    })
}

/// How many final answers these bytes are.
fn answers(heard: &[u8]) -> usize {
    let heads = heard.windows(10).filter(|at| at.starts_with(b"HTTP/1.1 "));
    heads.filter(|head| head[9] != b'1').count()
}

/// What a syslog server has got so far, by tag.
fn take_messages(server: &UdpSocket, taken: &mut BTreeMap<String, Vec<Value>>) {
    let mut room = [0; 70_000];
    while let Ok(count) = server.recv(&mut room) {
        let message = std::str::from_utf8(&room[..count]).expect("UTF-8");
        let (front, object) = message.split_once(": ").expect("a tag");
        let tag = front.rsplit(' ').next().unwrap_or_default();
        taken
            .entry(tag.to_owned())
            .or_default()
            .push(parsed(object));
    }
}

fn parsed(line: &str) -> Value {
    let value: Value =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    assert!(value.is_object(), "{line}");
    value
}

/// The lines of a log that is read as it is.
fn objects(kp: &Kp, name: &str) -> Vec<Value> {
    let bytes = std::fs::read(kp.path(name)).expect("a log");
    let text = String::from_utf8(bytes).expect("UTF-8");
    text.lines().map(parsed).collect()
}

/// Shows: log_format, access_log, error_log
#[test]
fn noise_gives_one_object_for_each_request_in_every_log() {
    let (origin, port) = (odd_origin(), Port::take());
    let others = [Port::take(), Port::take()];
    let pair = Authority::default().issue(&["b.test"]);
    let syslog = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    syslog.set_nonblocking(true).expect("a socket");
    let kp = Setup::new(TEXT)
        .with("ORIGIN", origin.address())
        .with("METRICS", port.address())
        .with("TLS", others[0].address())
        .with("PROXIED", others[1].address())
        .file("b.crt", pair.certificate.clone())
        .file("b.key", pair.key.clone())
        .with(
            "SYSLOG",
            syslog.local_addr().expect("an address").to_string(),
        )
        .start();
    let (mut draws, mut told) = (Draws::repeatable(7), BTreeMap::new());
    let mut expected: BTreeMap<u64, usize> = BTreeMap::new();
    for _ in 0..CONNECTIONS {
        let mut client = kp.client();
        let port = client.local_address().port().into();
        let sent = noise(&mut draws);
        client.send(&sent);
        client.half_close();
        let (heard, _) = client.read_to_end(SOON);
        // Empty lines in front of a request are skipped; where nothing follows there was none (RFC 9112, 2.2).
        let is_request = sent.iter().any(|byte| !b"\r\n".contains(byte));
        *expected.entry(port).or_default() += answers(&heard).max(is_request.into());
        take_messages(&syslog, &mut told);
    }
    expected.retain(|_, requests| *requests > 0);
    let total: usize = expected.values().sum();
    wait::happens(SOON, || kp.text("e.log").matches('\n').count() >= total);
    let lines = objects(&kp, "j.log");
    let mut logged: BTreeMap<u64, usize> = BTreeMap::new();
    for line in &lines {
        *logged
            .entry(line["port"].as_u64().expect("a port"))
            .or_default() += 1;
    }
    assert_eq!(logged, expected);
    assert_eq!(objects(&kp, "e.log").len(), total);
    let page = Metrics::of(&port.address(), "/");
    assert_eq!(
        page.sum("kp_http_requests_total", &["server=\"a.test\""]),
        total as f64
    );
    assert_eq!(page.sum("kp_log_lines_dropped_total", &[]), 0.0);
    let of =
        |told: &BTreeMap<String, Vec<Value>>, tag: &str| told.get(tag).cloned().unwrap_or_default();
    wait::happens(SOON, || {
        take_messages(&syslog, &mut told);
        of(&told, "access").len() >= total
    });
    assert_eq!(
        of(&told, "access"),
        lines,
        "syslog has the lines of the file"
    );
    let errors = objects(&kp, "errors.json");
    let about = |errors: &[Value]| {
        errors
            .iter()
            .filter(|line| line["client"].is_string())
            .count()
    };
    assert!(about(&errors) > 50, "{}", about(&errors));
    assert_eq!(about(&of(&told, "errors")), about(&errors));
    // Of every kind there were some.
    for status in [200, 400, 414, 502] {
        assert!(
            lines.iter().any(|line| line["status"] == status),
            "{status}"
        );
    }
    for other in &others {
        noise_elsewhere(&kp, &other.address(), &mut draws, &port.address());
    }
}

/// Where TLS or a PROXY header is to come first, some of the noise is a request, and most is none.
fn noise_elsewhere(kp: &Kp, address: &str, draws: &mut Draws, metrics: &str) {
    let counted = || {
        let page = Metrics::of(metrics, "/");
        page.sum("kp_http_requests_total", &["server=\"b.test\""]) as usize
    };
    let (before, counted_before) = (kp.text("j.log").lines().count(), counted());
    for _ in 0..CONNECTIONS / 4 {
        let mut client = Client::connect(address);
        if draws.below(2) == 0 {
            client.send("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
        }
        client.send(noise(draws));
        client.half_close();
        client.read_to_end(SOON);
    }
    wait::until(SOON, "as many lines as requests", || {
        let text = kp.text("e.log");
        text.ends_with('\n') && text.lines().count() - before == counted() - counted_before
    });
    let later = objects(kp, "j.log").split_off(before);
    assert_eq!(later.len(), counted() - counted_before);
    assert!(later.len() > 20, "{}", later.len());
    assert!(later.iter().all(|line| line["server"] == "b.test"));
    objects(kp, "e.log");
    objects(kp, "errors.json");
}
