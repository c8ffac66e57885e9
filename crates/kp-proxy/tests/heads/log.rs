//! Access log lines and the error log's words about a request.

use crate::support::{World, get};
use kp_proxy::{ErrorFacts, access_line};

fn lines(world: &World, exchange: &mut kp_proxy::Exchange) -> String {
    let location = &world.config().http.locations[exchange.location.index()];
    let mut out = Vec::new();
    for log in &location.access_logs {
        let before = out.len();
        let written = access_line(&mut out, log, exchange, world.program(), &world.context());
        assert_eq!(written, out.len() > before);
        if written {
            out.push(b'\n');
        }
    }
    String::from_utf8(out).expect("text")
}

#[test]
fn combined() {
    let world = World::new("access_log /dev/null combined; location / { proxy_pass http://u; }");
    let mut exchange = world.exchange(&get("/a\"b", "User-Agent: x\\y\tz\r\n"));
    exchange.response.status = 200;
    exchange.record.bytes_sent = 130;
    exchange.record.head_bytes_sent = 100;
    assert_eq!(
        lines(&world, &mut exchange),
        "192.0.2.7 - - [29/Nov/2026:23:00:00 +0000] \"GET /a\\x22b HTTP/1.1\" 200 30 \"-\" \"x\\x5Cy\\x09z\"\n"
    );
}

#[test]
fn escaping_and_missing_values() {
    let world = World::http(
        r#"
        log_format d '$http_x|$arg_none|$http_none';
        log_format j escape=json '{"x":"$http_x","n":"$http_none"}';
        log_format n escape=none '$http_x|$http_none';
        server {
            listen 127.0.0.1:8080;
            access_log /dev/null d; access_log /dev/null j; access_log /dev/null n;
            location / { proxy_pass http://u; }
        }
        "#,
    );
    let mut exchange = world.exchange(&get("/", "X: a\"b\\c\r\n"));
    assert_eq!(
        lines(&world, &mut exchange),
        "a\\x22b\\x5Cc|-|-\n{\"x\":\"a\\\"b\\\\c\",\"n\":\"\"}\na\"b\\c|\n"
    );
}

#[test]
fn json_lines_are_json_whatever_comes() {
    let world = World::http(
        r#"
        log_format j escape=json '{"ua":"$http_user_agent","req":"$request","st":"$status"}';
        server { listen 127.0.0.1:8080; access_log /dev/null j; location / { proxy_pass http://u; } }
        "#,
    );
    for agent in [
        b"a\"b\\c\td".as_slice(),
        b"\xff\xfe\xc3\xa9",
        b"x\x80[31m",
        "\u{2028}".as_bytes(),
        b"\xf0\x9f\x98",
    ] {
        let mut request = b"GET /a\"b\\c%0a HTTP/1.1\r\nHost: t\r\nUser-Agent: ".to_vec();
        request.extend_from_slice(agent);
        request.extend_from_slice(b"\r\n\r\n");
        let line = lines(&world, &mut world.exchange(&request));
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(value["ua"], String::from_utf8_lossy(agent).as_ref());
        assert_eq!(value["req"], "GET /a\"b\\c%0a HTTP/1.1");
        assert_eq!(line.matches('\n').count(), 1);
    }
}

#[test]
fn conditions() {
    let world = World::new(
        "access_log /dev/null combined if=$arg_log; location / { proxy_pass http://u; }",
    );
    for (path, written) in [
        ("/?log=1", true),
        ("/?log=x", true),
        ("/?log=0", false),
        ("/?log=", false),
        ("/", false),
    ] {
        assert_eq!(
            !lines(&world, &mut world.exchange(&get(path, ""))).is_empty(),
            written,
            "{path}"
        );
    }
}

#[test]
fn the_error_log_s_context() {
    let world = World::new("location / { proxy_pass http://u/up/; }");
    let context = |exchange: &kp_proxy::Exchange| {
        let mut out = String::new();
        ErrorFacts::of_exchange(exchange, &world.context()).write_text(&mut out);
        out
    };
    let mut exchange = world.exchange(&get("/a", "Referer: http://r.test/\r\n"));
    assert_eq!(
        context(&exchange),
        ", client: 192.0.2.7, server: example.test, request: \"GET /a HTTP/1.1\", host: \"t\", referrer: \"http://r.test/\""
    );
    world.upstream(&mut exchange, b"HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(
        context(&exchange),
        ", client: 192.0.2.7, server: example.test, request: \"GET /a HTTP/1.1\", \
         upstream: \"http://127.0.0.1:9001/up/a\", host: \"t\", referrer: \"http://r.test/\""
    );
    exchange.attempts[0].address = "unix:/run/u.sock".into();
    assert!(context(&exchange).contains(", upstream: \"http://unix:/run/u.sock:/up/a\""));
    let early = kp_proxy::Exchange::default();
    assert_eq!(context(&early), ", client: unix:, server: 127.0.0.1:8080");
}
