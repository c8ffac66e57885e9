//! Answers kp gives itself.

use crate::support::{OWN, World, get};
use kp_proxy::{Answer, Answered, Cause, Failure, Phase, Reason, Routed, answer, failure_answer};

/// Routes a request that kp answers itself, and answers it.
fn answered(world: &World, request: &[u8]) -> (String, Answered) {
    let mut exchange = world.taken(request);
    let context = world.context();
    let Routed::Answer(what) = world.program().route(&mut exchange, &context) else {
        panic!("a handler")
    };
    let mut out = Vec::new();
    let keep = kp_proxy::may_stay(&exchange, &context);
    let done = answer(
        &mut out,
        &what,
        &mut exchange,
        world.program(),
        &context,
        keep,
    );
    (String::from_utf8(out).expect("text"), done)
}

fn page(title: &str) -> String {
    format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n\
         <hr><center>kp/0.1.0</center>\r\n</body>\r\n</html>\r\n"
    )
}

const KEPT: &str = "Connection: keep-alive\r\n";

#[test]
fn texts_and_pages() {
    let world = World::new(
        r#"
        location /text { return 200 "a\nb"; }
        location /x.html { return 200 "<p>"; }
        location /json { default_type application/json; return 201 "{}"; }
        location /empty { return 200; }
        location /forbidden { return 403; }
        location /teapot { return 418; }
        location /204 { return 204 "text"; }
        location /304 { return 304; }
        location /nameless { server_tokens off; return 404; }
        "#,
    );
    let full = |path: &str| answered(&world, &get(path, "")).0;
    assert_eq!(
        full("/text"),
        format!(
            "HTTP/1.1 200 OK\r\n{OWN}Content-Type: text/plain\r\nContent-Length: 3\r\n{KEPT}\r\na\nb"
        )
    );
    assert_eq!(
        full("/x.html"),
        format!(
            "HTTP/1.1 200 OK\r\n{OWN}Content-Type: text/html\r\nContent-Length: 3\r\n{KEPT}\r\n<p>"
        )
    );
    assert_eq!(
        full("/json"),
        format!(
            "HTTP/1.1 201 Created\r\n{OWN}Content-Type: application/json\r\nContent-Length: 2\r\n{KEPT}\r\n{{}}"
        )
    );
    let forbidden = page("403 Forbidden");
    assert_eq!(
        full("/forbidden"),
        format!(
            "HTTP/1.1 403 Forbidden\r\n{OWN}Content-Type: text/html\r\nContent-Length: {}\r\n{KEPT}\r\n{forbidden}",
            forbidden.len()
        )
    );
    assert_eq!(
        full("/teapot"),
        format!("HTTP/1.1 418 \r\n{OWN}Content-Length: 0\r\n{KEPT}\r\n")
    );
    assert_eq!(
        full("/204"),
        format!("HTTP/1.1 204 No Content\r\n{OWN}{KEPT}\r\n")
    );
    assert_eq!(
        full("/304"),
        format!("HTTP/1.1 304 Not Modified\r\n{OWN}{KEPT}\r\n")
    );
    let nameless = full("/nameless");
    assert!(
        nameless.contains("Server: kp\r\n") && nameless.contains("<hr><center>kp</center>"),
        "{nameless}"
    );
}

#[test]
fn head_requests_get_the_head_alone() {
    let world = World::new("location / { return 403; }");
    let (whole, done) = answered(&world, b"HEAD / HTTP/1.1\r\nHost: t\r\n\r\n");
    let length = page("403 Forbidden").len();
    assert_eq!(
        whole,
        format!(
            "HTTP/1.1 403 Forbidden\r\n{OWN}Content-Type: text/html\r\nContent-Length: {length}\r\n{KEPT}\r\n"
        )
    );
    assert_eq!(
        done,
        Answered {
            keep: true,
            head_bytes: whole.len()
        }
    );
}

#[test]
fn redirects() {
    let world = World::new(
        r#"
        location /abs { return 301 http://o.test/x; }
        location /rel { return 302 /x$arg_a; }
        location /off { absolute_redirect off; return 307 /x; }
        location /noport { port_in_redirect off; return 308 /x; }
        location /name { server_name_in_redirect on; return 303 /x; }
        location /split { return 302 http://o.test$uri; }
        "#,
    );
    let location = |request: &[u8]| {
        let (whole, _) = answered(&world, request);
        let line = whole
            .lines()
            .find_map(|line| line.strip_prefix("Location: "))
            .expect("a location");
        assert_eq!(whole.matches("\r\n\r\n").count(), 1, "{whole}");
        line.to_owned()
    };
    assert_eq!(location(&get("/abs", "")), "http://o.test/x");
    assert_eq!(location(&get("/rel?a=b%20c", "")), "http://t:8080/xb%20c");
    assert_eq!(location(&get("/off", "")), "/x");
    assert_eq!(location(&get("/noport", "")), "http://t/x");
    assert_eq!(location(&get("/name", "")), "http://example.test:8080/x");
    assert_eq!(
        location(b"GET /rel HTTP/1.0\r\n\r\n"),
        "http://127.0.0.1:8080/x"
    );
    assert_eq!(
        location(&get("/split%0d%0aX-Evil:%201", "")),
        "http://o.test/split%0D%0AX-Evil:%201"
    );
    let (whole, _) = answered(&world, &get("/rel", ""));
    let body = page("302 Found");
    assert!(
        whole.starts_with("HTTP/1.1 302 Moved Temporarily\r\n") && whole.ends_with(&body),
        "{whole}"
    );
}

#[test]
fn carried_fields_join_answers() {
    let world = World::new("location / { return 200 text; } location /page { return 403; }");
    let tail = |path: &str| {
        let mut exchange = world.taken(&get(path, ""));
        let context = world.context();
        let Routed::Answer(what) = world.program().route(&mut exchange, &context) else {
            panic!("a handler")
        };
        exchange.response.carried = b"Content-Type: text/css\r\nSet-Cookie: a=1\r\n".to_vec();
        let mut out = Vec::new();
        answer(
            &mut out,
            &what,
            &mut exchange,
            world.program(),
            &context,
            true,
        );
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.matches("Content-Type: ").count(), 1, "{text}");
        text.split_once(KEPT)
            .expect("a connection")
            .1
            .split("\r\n\r\n")
            .next()
            .expect("a head")
            .to_owned()
    };
    assert_eq!(tail("/"), "Content-Type: text/css\r\nSet-Cookie: a=1");
    assert_eq!(tail("/page"), "Set-Cookie: a=1");
}

#[test]
fn some_statuses_close() {
    for (status, keeps) in [
        (400, false),
        (403, true),
        (404, true),
        (413, false),
        (414, false),
        (500, false),
        (501, false),
        (503, true),
    ] {
        let world = World::new(&format!("location / {{ return {status}; }}"));
        let (whole, done) = answered(&world, &get("/", ""));
        assert_eq!(done.keep, keeps, "{status}");
        assert_eq!(whole.contains("Connection: close\r\n"), !keeps, "{status}");
    }
    let world = World::new("location / { return 500 text; }");
    assert!(answered(&world, &get("/", "")).1.keep);
}

/// RFC 9110 §15.5.6, as far as kp knows what is allowed.
#[test]
fn a_refused_method_on_a_file() {
    let allows = |server: &str| {
        let world = World::new(server);
        let mut exchange = world.taken(&get("/", ""));
        world.program().route(&mut exchange, &world.context());
        let mut out = Vec::new();
        let what = Answer::status(405, Reason::MethodNotAllowed);
        answer(
            &mut out,
            &what,
            &mut exchange,
            world.program(),
            &world.context(),
            true,
        );
        String::from_utf8(out)
            .expect("text")
            .contains("\r\nAllow: GET, HEAD\r\n")
    };
    assert!(allows("root /srv;"));
    assert!(!allows("location / { proxy_pass http://u; }"));
}

#[test]
fn added_headers_and_trailers_on_answers() {
    let world = World::new(
        "location / { add_header X-A 1; add_header X-B 2 always; return 404; } location /t { add_trailer X-T $status; return 200 ok; }",
    );
    let (whole, _) = answered(&world, &get("/", ""));
    assert!(
        whole.contains("\r\nX-B: 2\r\n\r\n") && !whole.contains("X-A"),
        "{whole}"
    );
    let (whole, done) = answered(&world, &get("/t", ""));
    assert_eq!(
        whole,
        format!(
            "HTTP/1.1 200 OK\r\n{OWN}Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n{KEPT}\r\n2\r\nok\r\n0\r\nX-T: 200\r\n\r\n"
        )
    );
    assert_eq!(
        whole.len() - done.head_bytes,
        "2\r\nok\r\n0\r\nX-T: 200\r\n\r\n".len()
    );
    let (whole, _) = answered(&world, b"GET /t HTTP/1.0\r\nHost: t\r\n\r\n");
    assert!(
        whole.ends_with("Content-Length: 2\r\nConnection: close\r\n\r\nok"),
        "{whole}"
    );
}

/// Every failure that can still be answered.
#[test]
fn failures() {
    use Cause::*;
    let world = World::new("location / { proxy_pass http://u; }");
    for (cause, line, fields, keep) in [
        (BadRequest, "400 Bad Request", "", false),
        (BadBody, "400 Bad Request", "", false),
        (
            ConnectMethod,
            "405 Not Allowed",
            "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH\r\n",
            false,
        ),
        (ClientHeadTimeout, "408 Request Time-out", "", false),
        (ClientBodyTimeout, "408 Request Time-out", "", false),
        (
            BodyTooLarge(Some(5)),
            "413 Request Entity Too Large",
            "",
            false,
        ),
        (TargetTooLong, "414 Request-URI Too Large", "", false),
        (
            HeadTooLarge,
            "431 Request Header Fields Too Large",
            "",
            false,
        ),
        (BadTarget, "500 Internal Server Error", "", false),
        (RedirectCycle, "500 Internal Server Error", "", false),
        (Internal, "500 Internal Server Error", "", false),
        (UnknownCoding, "501 Not Implemented", "", false),
        (NoLivePeer, "502 Bad Gateway", "", true),
        (ConnectFailed(111), "502 Bad Gateway", "", true),
        (StaleConnection, "502 Bad Gateway", "", true),
        (SendFailed(32), "502 Bad Gateway", "", true),
        (UpstreamClosed, "502 Bad Gateway", "", true),
        (UpstreamReset(104), "502 Bad Gateway", "", true),
        (UpstreamInvalidHead, "502 Bad Gateway", "", true),
        (UpstreamHeadTooLarge, "502 Bad Gateway", "", true),
        (NameNotResolved(3), "502 Bad Gateway", "", true),
        (
            Overload,
            "503 Service Temporarily Unavailable",
            "Retry-After: 1\r\n",
            false,
        ),
        (ConnectTimeout, "504 Gateway Time-out", "", true),
        (SendTimeout, "504 Gateway Time-out", "", true),
        (UpstreamTimeout, "504 Gateway Time-out", "", true),
        (BadVersion, "505 HTTP Version Not Supported", "", false),
        (Loop, "508 Loop Detected", "", true),
    ] {
        let mut exchange = world.exchange(&get("/", ""));
        let mut out = Vec::new();
        let failure = Failure::new(Phase::AwaitHead, cause);
        let done = failure_answer(
            &mut out,
            &failure,
            &mut exchange,
            world.program(),
            &world.context(),
            true,
        );
        let body = page(line);
        let connection = if keep { "keep-alive" } else { "close" };
        // The exchange's own field stands behind `Date`, the failure's behind all others.
        let (own, last) = if cause == Overload {
            (fields, "")
        } else {
            ("", fields)
        };
        let expected = format!(
            "HTTP/1.1 {line}\r\n{OWN}{own}Content-Type: text/html\r\nContent-Length: {}\r\nConnection: {connection}\r\n{last}\r\n{body}",
            body.len()
        );
        assert_eq!(String::from_utf8(out).expect("text"), expected, "{cause:?}");
        assert_eq!(done.keep, keep, "{cause:?}");
        assert_eq!(exchange.response.status, failure.status());
    }
    for cause in [
        ClientGone,
        ClientSendTimeout,
        BodyTruncated,
        BodyReset(104),
        BodyTimeout,
        BodyInvalid,
        TunnelTimeout,
        Shutdown,
    ] {
        let mut exchange = world.exchange(&get("/", ""));
        let mut out = Vec::new();
        let failure = Failure::new(Phase::ReadBody, cause);
        let done = failure_answer(
            &mut out,
            &failure,
            &mut exchange,
            world.program(),
            &world.context(),
            true,
        );
        assert_eq!(
            (out.len(), done),
            (
                0,
                Answered {
                    keep: false,
                    head_bytes: 0
                }
            ),
            "{cause:?}"
        );
    }
}

/// A request head that never was one has no version and no location of its own: the server's level answers.
#[test]
fn a_failure_before_there_is_a_request() {
    let world = World::new("location / { proxy_pass http://u; }");
    let mut exchange = kp_proxy::Exchange::default();
    let mut out = Vec::new();
    let failure = Failure::new(Phase::RequestLine, Cause::BadRequest);
    let done = failure_answer(
        &mut out,
        &failure,
        &mut exchange,
        world.program(),
        &world.context(),
        true,
    );
    let text = String::from_utf8(out).expect("text");
    assert!(
        text.starts_with("HTTP/1.1 400 Bad Request\r\n") && text.ends_with("</html>\r\n"),
        "{text}"
    );
    assert!(!done.keep);
}

#[test]
fn nginx_s_own_statuses_are_a_400_outside() {
    let world = World::new("location / { proxy_pass http://u; }");
    for (status, note) in [
        (494, "Request Header Or Cookie Too Large"),
        (495, "The SSL certificate error"),
        (496, "No required SSL certificate was sent"),
        (497, "The plain HTTP request was sent to HTTPS port"),
    ] {
        let mut exchange = world.exchange(&get("/", ""));
        let mut out = Vec::new();
        let what = Answer::status(status, Reason::Return);
        let done = answer(
            &mut out,
            &what,
            &mut exchange,
            world.program(),
            &world.context(),
            true,
        );
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
        assert!(text.contains(&format!("<center>{note}</center>")), "{text}");
        assert!(!done.keep);
    }
}

/// Redirects of a TLS connection stay with TLS, and its own port is not written.
#[test]
fn redirects_over_tls() {
    let redirect = |port: u16, tls: bool| {
        let world = World::http(&format!(
            "server {{ listen 127.0.0.1:{port}; server_name example.test; location /a {{ return 301 /b; }} }}"
        ));
        let mut exchange = world.taken(&get("/a", ""));
        if tls {
            exchange.connection.tls = Some(std::rc::Rc::default());
        }
        let context = world.context();
        let Routed::Answer(what) = world.program().route(&mut exchange, &context) else {
            panic!("a handler")
        };
        let mut out = Vec::new();
        answer(
            &mut out,
            &what,
            &mut exchange,
            world.program(),
            &context,
            true,
        );
        let text = String::from_utf8(out).expect("text");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Location: "));
        line.expect("a location").to_owned()
    };
    assert_eq!(redirect(443, true), "https://t/b");
    assert_eq!(redirect(80, true), "https://t:80/b");
    assert_eq!(redirect(80, false), "http://t/b");
    assert_eq!(redirect(443, false), "http://t:443/b");
}
