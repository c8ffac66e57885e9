//! Lines that are JSON: `log_format NAME json { … }` and `error_log … format=json`.

use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Origin, Port, Setup};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// Every line as JSON, once there are `count`.
fn objects(kp: &Kp, name: &str, count: usize) -> Vec<Value> {
    wait::until(SOON, "the lines of the log", || {
        kp.text(name).matches('\n').count() >= count
    });
    let bytes = std::fs::read(kp.path(name)).expect("a log");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let lines = text.lines();
    lines
        .map(|line| {
            let value: Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{error} in {line:?} of {name}"));
            assert!(value.is_object(), "{line}");
            value
        })
        .collect()
}

/// Shows: log_format, access_log
#[test]
fn values_have_the_type_that_is_theirs_by_nature() {
    let origin =
        Origin::replying("HTTP/1.1 200 OK\r\nX-Behind: b\r\nContent-Length: 10\r\n\r\n0123456789");
    let dead = Port::take();
    let format = "log_format typed json {
        status $status; bytes $bytes_sent; body $body_bytes_sent; seconds $request_time; msec $msec;
        length $content_length; port $remote_port; process $pid; serial $connection; number $connection_requests;
        tls $https; complete $request_completion; pipelined $pipe; reused $ssl_session_reused;
        uri $uri; args $args; agent $http_user_agent; behind $upstream_http_x_behind; text 'a $status b'; fixed 7;
        upstream { addr $upstream_addr; status $upstream_status; connect $upstream_connect_time; header $upstream_header_time;
            seconds $upstream_response_time; length $upstream_response_length; }
    }
    access_log typed.log typed;";
    let kp = Setup::base(&origin)
        .with(
            "U1",
            format!("max_fails=0; server {} max_fails=0", dead.address()),
        )
        .http(format)
        .server("location /own { return 204; }")
        .start();
    let mut client = kp.client();
    // One of two is sent to the dead peer first.
    for _ in 0..2 {
        let asked =
            "POST /a?b=1 HTTP/1.1\r\nHost: t\r\nUser-Agent: q\"\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(client.ask(asked).status(), 200);
    }
    assert_eq!(kp.get("/own").status(), 204);
    let lines = objects(&kp, "typed.log", 3);
    let one = lines
        .iter()
        .find(|line| line["upstream"]["status"] == json!([502, 200]))
        .expect("a request that was tried twice");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {one}"));
    assert_eq!(one["status"], 200);
    assert_eq!(one["body"], 10);
    assert_eq!(one["length"], 5);
    assert_eq!(one["process"], kp.worker_pid());
    assert!(number(&one["bytes"]) > 50.0 && number(&one["seconds"]) < 50.0);
    assert!(number(&one["msec"]) > 1_700_000_000.0);
    assert_eq!(one["port"], client.local_address().port());
    assert!(one["serial"].is_u64() && one["number"].is_u64());
    assert_eq!(
        [
            &one["tls"],
            &one["complete"],
            &one["pipelined"],
            &one["reused"]
        ],
        [&json!(false), &json!(true), &json!(false), &Value::Null]
    );
    assert_eq!(
        [
            &one["uri"],
            &one["args"],
            &one["agent"],
            &one["behind"],
            &one["text"],
            &one["fixed"]
        ],
        ["/a", "b=1", "q\"", "b", "a 200 b", "7"]
    );
    let upstream = &one["upstream"];
    assert_eq!(upstream["addr"], json!([dead.address(), origin.address()]));
    assert_eq!(upstream["header"][0], Value::Null);
    assert!(number(&upstream["header"][1]) < 50.0 && number(&upstream["connect"][1]) < 50.0);
    assert!(number(&upstream["seconds"][0]) < 50.0);
    assert_eq!(upstream["length"], json!([0, 10]));
    let own = &lines[2];
    assert_eq!(own["status"], 204);
    assert_eq!(
        [&own["length"], &own["args"], &own["agent"], &own["behind"]],
        [&Value::Null; 4]
    );
    assert_eq!(own["upstream"]["status"], json!([]));
    let text = kp.text("typed.log");
    let order = [
        "\"status\":",
        "\"bytes\":",
        "\"tls\":",
        "\"fixed\":",
        "\"upstream\":{\"addr\":",
    ];
    let places = order.map(|name| text.find(name).expect("a field"));
    assert!(places.is_sorted(), "the order of the file");
}

/// Bytes that look random and are the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u8 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as u8
    }

    fn bytes(&mut self, most: u8) -> Vec<u8> {
        let count = self.next() % most;
        (0..count).map(|_| self.next()).collect()
    }

    /// Bytes that may stand in a field or a target.
    fn bytes_without(&mut self, most: u8, bad: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes(most);
        bytes.retain(|byte| {
            !bad.contains(byte) && (*byte >= b' ' || *byte == b'\t') && *byte != 0x7f
        });
        bytes
    }
}

/// One request with random bytes in every place that a client writes.
fn request(noise: &mut Noise, number: usize) -> Vec<u8> {
    let mut out = b"GET /".to_vec();
    out.extend(noise.bytes_without(30, b" \t#?%\x7f"));
    out.push(b'?');
    out.extend(noise.bytes_without(30, b" \t#"));
    out.extend_from_slice(b" HTTP/1.1\r\nHost: t\r\nConnection: close\r\n");
    for name in ["User-Agent", "Referer", "X-A", "Cookie"] {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        if name == "Cookie" {
            out.extend_from_slice(b"c=");
        }
        out.extend(noise.bytes_without(60, b""));
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("X-Number: {number}\r\n\r\n").as_bytes());
    // Some are broken in one byte.
    if noise.next() < 64 {
        let at = usize::from(noise.next()) % (out.len() - 4);
        out[at] = noise.next();
    }
    out
}

/// Whatever a client or an upstream sends: one request, one line, one JSON object.
///
/// Shows: log_format, access_log, error_log
#[test]
fn random_bytes_give_one_object_for_each_request() {
    const REQUESTS: usize = 400;
    let connections = AtomicU64::new(99);
    let origin = Origin::start(move |peer| {
        let mut noise = Noise(connections.fetch_add(1, Ordering::SeqCst));
        loop {
            peer.request()?;
            let mut reply = b"HTTP/1.1 200 ".to_vec();
            reply.extend(noise.bytes_without(20, b""));
            reply.extend_from_slice(b"\r\nX-B: ");
            reply.extend(noise.bytes_without(60, b""));
            reply.extend_from_slice(b"\r\nSet-Cookie: c=");
            reply.extend(noise.bytes_without(60, b""));
            reply.extend_from_slice(b"\r\nContent-Length: 2\r\n\r\nok");
            if noise.next() < 32 {
                let at = usize::from(noise.next()) % (reply.len() - 2);
                reply[at] = noise.next();
            }
            peer.send(reply)?;
        }
    });
    let fields = "request $request; uri $uri; raw $request_uri; args $args; arg $arg_a; agent $http_user_agent;
        referrer $http_referer; a $http_x_a; cookie $cookie_c; user $remote_user; host $host; method $request_method;
        behind $upstream_http_x_b; set $upstream_cookie_c; sent $sent_http_x_b; status $upstream_status; length $content_length;
        mixed '$http_x_a\"$uri\\\\'; reason $kp_reason; file $request_filename;";
    let kp = Setup::base(&origin)
        .main("error_log errors.json info format=json; error_log error.log info;")
        .http(&format!(
            "log_format j json {{ {fields} in {{ {fields} }} }} access_log j.log j;
             log_format e escape=json '{{\"a\":\"$http_x_a\",\"r\":\"$request\",\"b\":\"$sent_http_x_b\"}}'; access_log e.log e;"
        ))
        .location("proxy_read_timeout 1s;")
        .start();
    let mut noise = Noise(1);
    for number in 0..REQUESTS {
        let mut client = kp.client();
        client.send(request(&mut noise, number));
        client.half_close();
        client.read_to_end(SOON);
    }
    let lines = objects(&kp, "j.log", REQUESTS);
    assert_eq!(lines.len(), REQUESTS);
    assert_eq!(objects(&kp, "e.log", REQUESTS).len(), REQUESTS);
    let fine = lines.iter().filter(|line| line["status"] == json!([200]));
    assert!(fine.count() > REQUESTS / 4, "most requests are answered");
    for line in &lines {
        assert_eq!(line["in"]["request"], line["request"]);
    }
    let errors = objects(&kp, "errors.json", 1);
    let about = |line: &&Value| line["request"].is_string() && line["client"] == "127.0.0.1";
    assert!(errors.iter().any(|line| about(&line)), "{errors:?}");
}

/// Shows: error_log
#[test]
fn an_error_log_of_objects_says_what_is_known() {
    let dead = Port::take();
    let text = "error_log errors.json info format=json; error_log error.log info format=text;
        http { upstream u { server %DEAD%; } server { listen %LISTEN%; server_name one.test;
        location / { proxy_pass http://u/up/; }
        location /own { error_log own.json error format=json; error_log own.json error format=json; proxy_pass http://u; } } }";
    let kp = Setup::new(text).with("DEAD", dead.address()).start();
    let mut client = kp.client();
    let asked = "GET /a\"b HTTP/1.1\r\nHost: t\r\nReferer: http://r.test/\r\n\r\n";
    assert_eq!(client.ask(asked).status(), 502);
    kp.wait_error("Connection refused");
    let errors = objects(&kp, "errors.json", 1);
    let line = errors
        .iter()
        .find(|line| line["level"] == "error")
        .expect("an error");
    let message = line["message"].as_str().expect("a text");
    assert!(
        message.contains("Connection refused") && !message.contains("client:"),
        "{message}"
    );
    assert_eq!(
        [
            &line["client"],
            &line["server"],
            &line["request"],
            &line["host"],
            &line["referrer"]
        ],
        [
            "127.0.0.1",
            "one.test",
            "GET /a\"b HTTP/1.1",
            "t",
            "http://r.test/"
        ]
    );
    assert_eq!(
        line["upstream"],
        format!("http://{}/up/a\"b", dead.address()).as_str()
    );
    assert_eq!(line["pid"], kp.worker_pid());
    assert!(line["connection"].is_u64(), "{line}");
    assert_eq!(line["reason"], "connect_failed");
    let started = errors.iter().find(|line| line["level"] == "notice");
    assert!(started.is_some_and(|line| line.get("client").is_none()));
    kp.get("/own");
    let own = objects(&kp, "own.json", 2);
    assert_eq!(own.len(), 2, "each error_log has its line");
    assert_eq!(own[0]["message"], own[1]["message"]);
}
