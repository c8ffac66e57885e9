//! The head of a proxied response, as the client gets it.

use crate::support::{OWN, World, get, parsed};
use kp_http::{Framing, Method};
use kp_proxy::io::{Action, Input};
use kp_proxy::{Directives, Reply, carry_fields, directives, interim_head, last_chunk};

const KEPT: &str = "Connection: keep-alive\r\n";

/// Head and reply for a request on `/` and a response, with the default configuration.
fn plain(request: &[u8], response: &str) -> (String, Reply) {
    World::new("location / { proxy_pass http://u; }").answered(request, response.as_bytes())
}

#[test]
fn fields_of_this_hop_and_hidden_ones_stay_behind() {
    let (head, reply) = plain(
        &get("/", ""),
        "HTTP/1.1 200 Fine\r\nX-A: 1\r\nContent-Type: text/css\r\nServer: up\r\nDate: x\r\nContent-Length: 2\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: a\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nUpgrade: h2c\r\n\
         X-Accel-Expires: 1\r\nX-Pad: 1\r\nTrailer: X\r\nx-b:2\r\n\r\n",
    );
    let expected = format!(
        "HTTP/1.1 200 Fine\r\n{OWN}Content-Length: 2\r\n{KEPT}X-A: 1\r\nContent-Type: text/css\r\nx-b: 2\r\n\r\n"
    );
    assert_eq!(head, expected);
    assert_eq!(
        reply,
        Reply {
            framing: Framing::Length(2),
            keep: true
        }
    );
}

/// RFC 9110 §15.5.22 and §7.8: who is told to upgrade must learn to what.
#[test]
fn a_426_says_what_to_upgrade_to() {
    let asking = "Connection: upgrade\r\n";
    let upgrade = "Upgrade: websocket\r\n";
    let response = format!("{asking}{upgrade}Content-Length: 0\r\n\r\n");
    let own = format!("{OWN}Content-Length: 0\r\n");
    let told = |status: &str| plain(&get("/", ""), &format!("HTTP/1.1 {status}\r\n{response}")).0;
    assert_eq!(
        told("426 Upgrade Required"),
        format!("HTTP/1.1 426 Upgrade Required\r\n{own}{KEPT}{asking}{upgrade}\r\n")
    );
    assert_eq!(
        told("400 Bad Request"),
        format!("HTTP/1.1 400 Bad Request\r\n{own}{KEPT}\r\n")
    );
    let old = b"GET / HTTP/1.0\r\n\r\n";
    let (head, _) = plain(old, &format!("HTTP/1.1 426 Upgrade Required\r\n{response}"));
    assert!(!head.contains("pgrade:"), "{head}");
}

#[test]
fn hidden_and_passed_by_configuration() {
    let world = World::new(
        "location / { proxy_pass http://u; proxy_hide_header X-A; proxy_pass_header Server; proxy_pass_header Date; \
         proxy_pass_header X-Accel-Expires; }",
    );
    let (head, _) = world.answered(
        &get("/", ""),
        b"HTTP/1.1 200 OK\r\nx-a: 1\r\nX-Ab: 1\r\nServer: up\r\nServer: up2\r\nDate: d\r\nX-Accel-Expires: 5\r\nContent-Length: 0\r\n\r\n",
    );
    assert_eq!(
        head,
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{KEPT}X-Ab: 1\r\nServer: up\r\nDate: d\r\nX-Accel-Expires: 5\r\n\r\n"
        )
    );
}

#[test]
fn server_tokens() {
    for (tokens, line) in [
        ("on", "Server: kp/0.1.0\r\n"),
        ("off", "Server: kp\r\n"),
        ("build", "Server: kp/0.1.0\r\n"),
    ] {
        let world = World::new(&format!(
            "server_tokens {tokens}; location / {{ proxy_pass http://u; }}"
        ));
        let (head, _) = world.answered(
            &get("/", ""),
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        );
        assert!(
            head.starts_with(&format!("HTTP/1.1 200 OK\r\n{line}Date: ")),
            "{head}"
        );
    }
}

#[test]
fn repeated_fields_that_can_only_be_there_once() {
    let (head, _) = plain(
        &get("/", ""),
        "HTTP/1.1 200 OK\r\nExpires: foo\r\nExpires: bar\r\nETag: \"1\"\r\nETag: \"2\"\r\nSet-Cookie: a=1\r\n\
         Set-Cookie: b=1\r\nContent-Length: 0\r\n\r\n",
    );
    let expected = format!(
        "HTTP/1.1 200 OK\r\n{OWN}Content-Length: 0\r\n{KEPT}Expires: foo\r\nETag: \"1\"\r\nSet-Cookie: a=1\r\nSet-Cookie: b=1\r\n\r\n"
    );
    assert_eq!(head, expected);
}

/// Framing and connection for each kind of client and response.
#[test]
fn how_the_body_is_delimited() {
    const V11: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    const V10: &str = "GET / HTTP/1.0\r\nHost: t\r\n\r\n";
    const V10_KEPT: &str = "GET / HTTP/1.0\r\nHost: t\r\nConnection: keep-alive\r\n\r\n";
    const CLOSE: &str = "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    const LENGTH: &str = "Content-Length: 7\r\n";
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    let kept = |framing| Reply {
        framing,
        keep: true,
    };
    let closed = |framing| Reply {
        framing,
        keep: false,
    };
    for (request, field, lines, reply) in [
        (
            V11,
            LENGTH,
            "Content-Length: 7\r\nConnection: keep-alive\r\n",
            kept(Framing::Length(7)),
        ),
        (
            V11,
            CHUNKED,
            "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n",
            kept(Framing::Chunked),
        ),
        (
            V11,
            "",
            "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n",
            kept(Framing::Chunked),
        ),
        (
            V10,
            LENGTH,
            "Content-Length: 7\r\nConnection: close\r\n",
            closed(Framing::Length(7)),
        ),
        (
            V10_KEPT,
            LENGTH,
            "Content-Length: 7\r\nConnection: keep-alive\r\n",
            kept(Framing::Length(7)),
        ),
        (
            V10_KEPT,
            CHUNKED,
            "Connection: close\r\n",
            closed(Framing::UntilClose),
        ),
        (
            V10,
            "",
            "Connection: close\r\n",
            closed(Framing::UntilClose),
        ),
        (
            CLOSE,
            CHUNKED,
            "Transfer-Encoding: chunked\r\nConnection: close\r\n",
            closed(Framing::Chunked),
        ),
    ] {
        let (head, got) = plain(
            request.as_bytes(),
            &format!("HTTP/1.1 200 OK\r\n{field}\r\n"),
        );
        assert_eq!(
            head,
            format!("HTTP/1.1 200 OK\r\n{OWN}{lines}\r\n"),
            "{request:?} {field:?}"
        );
        assert_eq!(got, reply, "{request:?} {field:?}");
    }
    let world = World::new("chunked_transfer_encoding off; location / { proxy_pass http://u; }");
    let (head, reply) = world.answered(
        V11.as_bytes(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(
        head,
        format!("HTTP/1.1 200 OK\r\n{OWN}Connection: close\r\n\r\n")
    );
    assert_eq!(reply, closed(Framing::UntilClose));
}

#[test]
fn responses_without_a_body_by_definition() {
    const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: t\r\n\r\n";
    for (request, status, field, lines) in [
        (
            HEAD,
            "200 OK",
            "Content-Length: 1000\r\n",
            "Content-Length: 1000\r\n",
        ),
        (HEAD, "200 OK", "Transfer-Encoding: chunked\r\n", ""),
        (HEAD, "200 OK", "", ""),
        (GET, "204 No Content", "", ""),
        (GET, "204 No Content", "Transfer-Encoding: chunked\r\n", ""),
        (GET, "204 No Content", "Content-Length: 5\r\n", ""),
        (
            GET,
            "304 Not Modified",
            "Content-Length: 1000\r\n",
            "Content-Length: 1000\r\n",
        ),
        (
            GET,
            "304 Not Modified",
            "Transfer-Encoding: chunked\r\n",
            "",
        ),
    ] {
        let (head, reply) = plain(
            request.as_bytes(),
            &format!("HTTP/1.1 {status}\r\n{field}\r\n"),
        );
        assert_eq!(
            head,
            format!("HTTP/1.1 {status}\r\n{OWN}{lines}{KEPT}\r\n"),
            "{request:?} {status} {field:?}"
        );
        assert_eq!(
            reply,
            Reply {
                framing: Framing::None,
                keep: true
            }
        );
    }
}

#[test]
fn methods_that_were_exchanged() {
    // The upstream was asked with HEAD for a GET: there is no body, and the client must not wait for one.
    let world = World::new("location / { proxy_method HEAD; proxy_pass http://u; }");
    let mut exchange = world.exchange(&get("/", ""));
    exchange.response.upstream = Some(parsed(
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        Method::Head,
    ));
    let (head, reply) = world.reply(&mut exchange);
    assert_eq!(
        head,
        format!("HTTP/1.1 200 OK\r\n{OWN}Content-Length: 0\r\n{KEPT}\r\n")
    );
    assert_eq!(reply.framing, Framing::Length(0));
    // And with GET for a HEAD: the body is not the client's.
    let world = World::new("location / { proxy_method GET; proxy_pass http://u; }");
    let mut exchange = world.exchange(b"HEAD / HTTP/1.1\r\nHost: t\r\n\r\n");
    exchange.response.upstream = Some(parsed(
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        Method::Get,
    ));
    let (head, reply) = world.reply(&mut exchange);
    assert_eq!(
        head,
        format!("HTTP/1.1 200 OK\r\n{OWN}Content-Length: 9\r\n{KEPT}\r\n")
    );
    assert_eq!(reply.framing, Framing::None);
}

#[test]
fn reasons_and_forced_statuses() {
    let (head, _) = plain(&get("/", ""), "HTTP/1.1 418\r\nContent-Length: 0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 418 \r\n"), "{head}");
    let (head, _) = plain(
        &get("/", ""),
        "HTTP/1.0 404 Nix da\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(head.starts_with("HTTP/1.1 404 Nix da\r\n"), "{head}");
    let world = World::new("location / { proxy_pass http://u; }");
    let mut exchange = world.exchange(&get("/", ""));
    exchange.request.forced_status = 402;
    world.upstream(
        &mut exchange,
        b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\n",
    );
    let (head, _) = world.reply(&mut exchange);
    assert!(
        head.starts_with("HTTP/1.1 402 Payment Required\r\n"),
        "{head}"
    );
    assert_eq!(exchange.response.status, 402);
}

#[test]
fn keep_alive_is_told() {
    let world = World::new(
        "keepalive_timeout 75s 20s; location / { proxy_pass http://u; } location /off/ { keepalive_timeout 0; proxy_pass http://u; }",
    );
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let (head, _) = world.answered(&get("/", ""), response);
    assert!(
        head.ends_with("Connection: keep-alive\r\nKeep-Alive: timeout=20\r\n\r\n"),
        "{head}"
    );
    let (head, reply) = world.answered(&get("/off/", ""), response);
    assert!(
        head.ends_with("Connection: close\r\n\r\n") && !reply.keep,
        "{head}"
    );
}

#[test]
fn connections_that_are_old_enough_end() {
    let world =
        World::new("keepalive_requests 3; keepalive_time 4s; location / { proxy_pass http://u; }");
    let stays = |requests: u32, accepted_ms: u64| {
        let mut exchange = world.exchange(&get("/", ""));
        exchange.connection.requests = requests;
        exchange.connection.accepted_ms = accepted_ms;
        kp_proxy::may_stay(&exchange, &world.context())
    };
    assert!(stays(2, 1_000));
    assert!(!stays(3, 1_000));
    assert!(!stays(2, 999));
}

#[test]
fn redirects_are_rewritten() {
    let world = World::new(
        r#"
        location /down/ { proxy_pass http://u/up/; }
        location /rel/ { absolute_redirect off; proxy_pass http://u/up/; }
        location /off/ { proxy_redirect off; proxy_pass http://u/up/; }
        location / {
            set $name here;
            proxy_pass http://u;
            proxy_redirect http://u/second/ /$name/;
            proxy_redirect http://u/$name/ /replaced/;
            proxy_redirect ~^(.+)/regex_w_([^/]+) $1/$2/test.html;
            proxy_redirect ~*re+gexp? /other/test.html;
        }
        "#,
    );
    let field = |path: &str, name: &str, value: &str| {
        let response =
            format!("HTTP/1.1 302 Found\r\n{name}: {value}\r\nContent-Length: 0\r\n\r\n");
        let (head, _) = world.answered(&get(path, ""), response.as_bytes());
        let line = head
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}: ")))
            .expect("the field");
        line.to_owned()
    };
    for (path, value, expected) in [
        ("/down/", "http://u/up/x", "http://t:8080/down/x"),
        ("/rel/", "http://u/up/x", "/rel/x"),
        ("/down/", "http://other/up/x", "http://other/up/x"),
        ("/down/", "/relative", "/relative"),
        ("/off/", "http://u/up/x", "http://u/up/x"),
        ("/", "http://u/second/a", "http://t:8080/here/a"),
        ("/", "http://u/here/a", "http://t:8080/replaced/a"),
        ("/", "http://u/ReeegEX/a", "http://t:8080/other/test.html"),
        (
            "/",
            "http://u/x/regex_w_captures/y",
            "http://u/x/captures/test.html",
        ),
        ("/", "http://u/none", "http://u/none"),
    ] {
        assert_eq!(field(path, "Location", value), expected, "{path} {value}");
    }
    assert_eq!(
        field("/down/", "Refresh", "7; URL=http://u/up/x"),
        "7; URL=/down/x"
    );
    assert_eq!(field("/down/", "Refresh", "7"), "7");
    assert_eq!(
        field("/", "Refresh", "7; url=http://u/ReeegEX/a"),
        "7; url=/other/test.html"
    );
}

#[test]
fn cookies_are_rewritten() {
    let world = World::new(
        r#"
        location / {
            proxy_pass http://u;
            proxy_cookie_domain www.example.org .example.com;
            proxy_cookie_domain .$server_name en.$server_name;
            proxy_cookie_domain ~^(.+)\.com$ $1.org;
            proxy_cookie_path /path/ /new/;
            proxy_cookie_path ~*^/caseless/(.+)$ /$1;
            proxy_cookie_flags a secure httponly samesite=none;
            proxy_cookie_flags d nosecure nohttponly nosamesite;
            proxy_cookie_flags $arg_flagged secure;
            proxy_cookie_flags ~BAR httponly;
        }
        "#,
    );
    for (cookie, expected) in [
        ("v=1; Domain=www.Example.org", "v=1; Domain=example.com"),
        ("v=1; domain=.Example.Test", "v=1; domain=.en.example.test"),
        ("v=1;Domain=www.example.COM", "v=1; Domain=www.example.org"),
        ("v=1; Path=/path/x", "v=1; Path=/new/x"),
        ("v=1; Path=/CASEless/x", "v=1; Path=/x"),
        (
            "v=1; Domain=www.example.org; Path=/path/x",
            "v=1; Domain=example.com; Path=/new/x",
        ),
        ("v=1;  Path=/other ;Secure", "v=1;  Path=/other ;Secure"),
        (
            "a=1; Path=/",
            "a=1; Path=/; Secure; HttpOnly; SameSite=None",
        ),
        ("d=1;secure;httponly;samesite=lax", "d=1"),
        ("v=1", "v=1; Secure"),
        ("xbarx=1", "xbarx=1; HttpOnly"),
        ("novalue; Path=/path/x", "novalue; Path=/path/x"),
    ] {
        let flagged = if expected.ends_with("Secure") && cookie == "v=1" {
            "/?flagged=v"
        } else {
            "/"
        };
        let response =
            format!("HTTP/1.1 200 OK\r\nSet-Cookie: {cookie}\r\nContent-Length: 0\r\n\r\n");
        let (head, _) = world.answered(&get(flagged, ""), response.as_bytes());
        assert!(
            head.contains(&format!("Set-Cookie: {expected}\r\n")),
            "{cookie}: {head}"
        );
    }
}

#[test]
fn added_headers_and_their_statuses() {
    let world = World::new(
        r#"
        location / { proxy_pass http://u; add_header X-A $arg_a; add_header X-B b always; add_header X-None $arg_none always; }
        location /etag/ { proxy_pass http://u; add_header ETag '"9"'; add_header Last-Modified ""; }
        location /sent/ { proxy_pass http://u; add_header X-Type $sent_http_content_type; add_header X-Up $upstream_http_x_u; }
        "#,
    );
    let added = |path: &str, response: &str| {
        let (head, _) = world.answered(
            &get(path, ""),
            format!("{response}Content-Length: 0\r\n\r\n").as_bytes(),
        );
        head.split_once(KEPT).expect("a connection").1.to_owned()
    };
    for status in [200, 201, 204, 206, 301, 302, 303, 304, 307, 308] {
        assert_eq!(
            added("/?a=1", &format!("HTTP/1.1 {status} X\r\n")),
            "X-A: 1\r\nX-B: b\r\n\r\n",
            "{status}"
        );
    }
    for status in [202, 203, 300, 400, 404, 500] {
        assert_eq!(
            added("/?a=1", &format!("HTTP/1.1 {status} X\r\n")),
            "X-B: b\r\n\r\n",
            "{status}"
        );
    }
    assert_eq!(added("/?a=", "HTTP/1.1 200 X\r\n"), "X-B: b\r\n\r\n");
    let tagged = "ETag: \"1\"\r\nLast-Modified: x\r\nX-U: 5\r\nContent-Type: text/css\r\n";
    assert_eq!(
        added("/etag/", &format!("HTTP/1.1 200 X\r\n{tagged}")),
        "X-U: 5\r\nContent-Type: text/css\r\nETag: \"9\"\r\n\r\n"
    );
    assert_eq!(
        added("/etag/", &format!("HTTP/1.1 404 X\r\n{tagged}")),
        format!("{tagged}\r\n")
    );
    assert_eq!(
        added("/sent/", &format!("HTTP/1.1 200 X\r\n{tagged}")),
        format!("{tagged}X-Type: text/css\r\nX-Up: 5\r\n\r\n")
    );
}

#[test]
fn added_headers_cannot_end_the_line() {
    let world = World::new("location / { proxy_pass http://u; add_header X-U $uri; }");
    let (head, _) = world.answered(
        &get("/a%0d%0aX-Evil:1", ""),
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    );
    assert!(head.ends_with("X-U: /a  X-Evil:1\r\n\r\n"), "{head}");
}

#[test]
fn trailers() {
    let world = World::new(
        r#"
        add_trailer X-Var $host; add_trailer X-Always $host always; add_trailer X-Empty '';
        add_trailer X-Sent-HTTP $sent_http_x_s; add_trailer X-Sent-Trailer $sent_trailer_x_var;
        location / { proxy_pass http://u; }
        location /pass/ { proxy_pass_trailers on; proxy_pass http://u; add_trailer X-Own 1; proxy_hide_header X-Hidden; }
        location /none/ { add_trailer X-Var 1; chunked_transfer_encoding off; proxy_pass http://u; }
        "#,
    );
    let ends = |path: &str, response: &str, trailers: &str| {
        let mut exchange = world.exchange(&get(path, ""));
        world.upstream(&mut exchange, response.as_bytes());
        exchange.response.upstream_trailers = trailers.as_bytes().to_vec();
        let (head, reply) = world.reply(&mut exchange);
        let mut out = Vec::new();
        if reply.framing == Framing::Chunked {
            last_chunk(&mut out, &mut exchange, world.program(), &world.context());
        }
        (head, String::from_utf8(out).expect("text"))
    };
    let (head, end) = ends(
        "/",
        "HTTP/1.1 200 OK\r\nX-S: bytes\r\nContent-Length: 2\r\n\r\n",
        "X-Up: 1\r\n",
    );
    assert_eq!(
        head,
        format!("HTTP/1.1 200 OK\r\n{OWN}Transfer-Encoding: chunked\r\n{KEPT}X-S: bytes\r\n\r\n")
    );
    assert_eq!(
        end,
        "0\r\nX-Var: t\r\nX-Always: t\r\nX-Sent-HTTP: bytes\r\nX-Sent-Trailer: t\r\n\r\n"
    );
    let (_, end) = ends("/", "HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\n", "");
    assert_eq!(end, "0\r\nX-Always: t\r\n\r\n");
    let (head, end) = ends("/none/", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "");
    assert!(
        head.contains("Content-Length: 2\r\n") && end.is_empty(),
        "{head}"
    );
    let (head, end) = ends(
        "/pass/",
        "HTTP/1.1 200 OK\r\nTrailer: X-Up\r\nTransfer-Encoding: chunked\r\n\r\n",
        "X-Up: 1\r\nContent-Length: 5\r\nX-Hidden: 1\r\ntransfer-encoding: chunked\r\nX-Up2: 2\r\n",
    );
    assert!(head.contains("Trailer: X-Up\r\n"), "{head}");
    assert_eq!(end, "0\r\nX-Up: 1\r\nX-Up2: 2\r\nX-Own: 1\r\n\r\n");
    let world = World::new("location / { proxy_pass http://u; }");
    let mut exchange = world.exchange(&get("/", ""));
    exchange.response.upstream_trailers = b"X-Up: 1\r\n".to_vec();
    let mut out = Vec::new();
    last_chunk(&mut out, &mut exchange, world.program(), &world.context());
    assert_eq!(out, b"0\r\n\r\n");
}

#[test]
fn switching_protocols() {
    let world = World::new(
        "add_header X-A 1; add_header X-B 2 always; location / { proxy_pass http://u; }",
    );
    let (head, reply) = world.answered(
        &get("/", "Upgrade: websocket\r\nConnection: upgrade\r\n"),
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade, X-Hop\r\nX-Hop: 1\r\nSet-Cookie: s=1\r\n\
          Content-Length: 5\r\nServer: up\r\n\r\n",
    );
    assert_eq!(
        head,
        format!(
            "HTTP/1.1 101 Switching Protocols\r\n{OWN}Connection: upgrade\r\nUpgrade: websocket\r\nSet-Cookie: s=1\r\nX-B: 2\r\n\r\n"
        )
    );
    assert_eq!(
        reply,
        Reply {
            framing: Framing::None,
            keep: false
        }
    );
}

#[test]
fn early_hints() {
    let world = World::new(
        "location / { early_hints $arg_on; proxy_pass http://u; proxy_hide_header X-Secret; } location /never/ { proxy_pass http://u; }",
    );
    let passed = |request: &[u8], status: &str| {
        let mut exchange = world.exchange(request);
        let interim = parsed(
            format!("HTTP/1.1 {status}\r\nLink: </a.css>\r\nX-Secret: 1\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n").as_bytes(),
            Method::Get,
        );
        let mut out = Vec::new();
        let sent = interim_head(
            &mut out,
            &interim,
            &mut exchange,
            world.program(),
            &world.context(),
        );
        assert_eq!(sent, !out.is_empty());
        String::from_utf8(out).expect("text")
    };
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
    assert_eq!(passed(&get("/?on=1", ""), "103 "), hints);
    assert_eq!(passed(&get("/?on=0", ""), "103 Early Hints"), "");
    assert_eq!(passed(&get("/", ""), "103 Early Hints"), "");
    assert_eq!(passed(&get("/never/?on=1", ""), "103 Early Hints"), "");
    assert_eq!(passed(&get("/?on=1", ""), "100 Continue"), "");
    assert_eq!(passed(&get("/?on=1", ""), "102 Processing"), "");
    assert_eq!(
        passed(b"GET /?on=1 HTTP/1.0\r\nHost: t\r\n\r\n", "103 Early Hints"),
        ""
    );
}

#[test]
fn directives_of_the_upstream() {
    let world = World::new(
        "location / { proxy_pass http://u; } location /ignore/ { proxy_pass http://u; \
         proxy_ignore_headers X-Accel-Redirect X-Accel-Buffering X-Accel-Limit-Rate; }",
    );
    let read = |path: &str, lines: &str, check: &dyn Fn(Directives<'_>)| {
        let mut exchange = world.exchange(&get(path, ""));
        let response = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n");
        world.upstream(&mut exchange, response.as_bytes());
        check(directives(&exchange, world.program()));
    };
    let lines = "x-accel-redirect: /in?x\r\nX-Accel-Buffering: NO\r\nX-Accel-Limit-Rate: 1000\r\n";
    read("/", lines, &|got| {
        let expected = Directives {
            accel_redirect: Some(b"/in?x"),
            buffering: Some(false),
            limit_rate: Some(1000),
        };
        assert_eq!(got, expected);
    });
    read("/ignore/", lines, &|got| {
        assert_eq!(got, Directives::default());
    });
    read(
        "/",
        "X-Accel-Buffering: yes\r\nX-Accel-Limit-Rate: -1\r\n",
        &|got| {
            assert_eq!(
                got,
                Directives {
                    buffering: Some(true),
                    ..Directives::default()
                }
            );
        },
    );
}

#[test]
fn fields_that_survive_an_accel_redirect() {
    let world = World::new("location / { proxy_pass http://u; proxy_cookie_flags b secure; }");
    let mut exchange = world.exchange(&get("/", ""));
    world.upstream(
        &mut exchange,
        b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /in\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Other: 1\r\nContent-Disposition: x\r\nContent-Length: 0\r\n\r\n",
    );
    carry_fields(&mut exchange, world.program(), &world.context());
    world.upstream(
        &mut exchange,
        b"HTTP/1.1 200 OK\r\nX-New: 1\r\nContent-Length: 0\r\n\r\n",
    );
    let (head, _) = world.reply(&mut exchange);
    let expected = format!(
        "HTTP/1.1 200 OK\r\n{OWN}Content-Length: 0\r\n{KEPT}X-New: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2; Secure\r\nContent-Disposition: x\r\n\r\n"
    );
    assert_eq!(head, expected);
}

/// The machine follows it, but not out of the server.
#[test]
fn accel_redirects_are_followed() {
    let world = World::new(
        "location / { proxy_pass http://u; } location /in/ { internal; return 200 $request_method$uri?$args; } \
         location @named { return 201 $uri; }",
    );
    let followed = |uri: &str| {
        let mut exchange = world.fresh(b"POST /x HTTP/1.1\r\nHost: t\r\n\r\n");
        let context = world.context();
        let action = exchange.handle(Input::Head, world.program(), &context);
        assert!(matches!(action, Action::Acquire), "{action:?}");
        let action = exchange.handle(
            Input::Connected { reused: false },
            world.program(),
            &context,
        );
        assert!(matches!(action, Action::SendHead), "{action:?}");
        let response =
            format!("HTTP/1.1 200 OK\r\nX-Accel-Redirect: {uri}\r\nContent-Length: 0\r\n\r\n");
        world.upstream(&mut exchange, response.as_bytes());
        match exchange.handle(Input::ResponseHead, world.program(), &context) {
            Action::Respond(answer) => {
                let body = answer.body.unwrap_or_default();
                (answer.status, String::from_utf8(body).expect("text"))
            }
            action => panic!("{action:?}"),
        }
    };
    assert_eq!(
        followed("/in/a%20b?c=%20"),
        (200, "GET/in/a b?c=%20".into())
    );
    assert_eq!(followed("@named"), (201, "/x".into()));
    assert_eq!(followed("/in/../../etc/passwd"), (404, String::new()));
    assert_eq!(followed("/in/%2e%2e/x"), (404, String::new()));
    assert_eq!(followed(""), (404, String::new()));
}
