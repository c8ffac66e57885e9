//! The request head the upstream gets.

use crate::support::{World, get};
use kp_http::Method;
use kp_proxy::target::{Target, resolve_target};
use kp_proxy::{BodyPlan, Cause, Outgoing, is_loop};

const PLAIN: Outgoing = Outgoing {
    method: Method::Get,
    upgrade: false,
    close: false,
};

#[test]
fn the_smallest_head() {
    let world = World::new("location / { proxy_pass http://u; }");
    let mut exchange = world
        .exchange(b"GET /a?b HTTP/1.1\r\nHost: Foo.Test:99\r\nX-a:  1 \r\nAccept: */*\r\n\r\n");
    let (head, outgoing) = world.outgoing(&mut exchange, BodyPlan::None);
    assert_eq!(
        head,
        "GET /a?b HTTP/1.1\r\nHost: u\r\nX-a: 1\r\nAccept: */*\r\n\r\n"
    );
    assert_eq!(outgoing, PLAIN);
    assert_eq!(exchange.request.proxy_host, b"u");
    assert_eq!(exchange.request.proxy_port, 80);
}

/// The target an upstream sees for each client target, measured on nginx.
#[test]
fn uri_of_proxy_pass() {
    let world = World::new(
        r#"
        location /name/ { proxy_pass http://u/remote/; }
        location /some/path/ { proxy_pass http://u; }
        location /api/0 { proxy_pass http://u/; }
        location /noslash/ { proxy_pass http://u/x; }
        location ~ ^/re/ { proxy_pass http://u; }
        location = /exact { proxy_pass http://u/e?; }
        location /rw/ { rewrite ^/rw/(.*)$ /new/$1 break; proxy_pass http://u; }
        location /rwu/ { rewrite ^/rwu/(.*)$ /new/$1 break; proxy_pass http://u/ignored/; }
        location /v/ { set $b u; proxy_pass http://$b/fixed; }
        location /v2/ { set $b u; proxy_pass http://$b; }
        location /v3/ { set $b u; proxy_pass http://$b?q=$arg_a; }
        location /uri/ { proxy_pass http://u$uri; }
        "#,
    );
    for (asked, seen) in [
        ("/name/a%2Fb?x=%20", "/remote/a/b?x=%20"),
        ("/name/a%20b", "/remote/a%20b"),
        ("/name/%7Euser", "/remote/~user"),
        ("/name/../name/a", "/remote/a"),
        ("/name//a", "/remote/a"),
        ("/name/%C3%A9", "/remote/%C3%A9"),
        ("/name/a%3Fb", "/remote/a%3Fb"),
        ("/name/a%25b", "/remote/a%25b"),
        ("/some/path/a%2Fb//c/../d", "/some/path/a%2Fb//c/../d"),
        ("/some//path/x", "/some//path/x"),
        ("/api/0/list", "//list"),
        ("/noslash/y", "/xy"),
        ("/re/a%2Fb", "/re/a%2Fb"),
        ("/exact?z=1", "/e??z=1"),
        ("/rw/a%20b?c", "/new/a%20b?c"),
        ("/rwu/a", "/new/a"),
        ("/v/a?b", "/fixed"),
        ("/v2/a%2Fb", "/v2/a%2Fb"),
        ("/v3/?a=1", "/?q=1"),
        ("http://other.test/some/path/x?y", "/some/path/x?y"),
        // A decoded line end must stay inside the target.
        ("/uri/a%20b%0d%0aX:%201", "/uri/a%20b%0D%0AX:%201"),
    ] {
        let head = world.sent(&get(asked, ""));
        assert_eq!(
            head.lines().next(),
            Some(format!("GET {seen} HTTP/1.1").as_str()),
            "{asked}"
        );
        assert_eq!(head.lines().count(), 3, "{head}");
    }
}

#[test]
fn variables_in_proxy_pass_name_groups_or_addresses() {
    let world = World::new("location / { proxy_pass http://$arg_to; }");
    let resolve = |to: &str| {
        let mut exchange = world.exchange(&get(&format!("/?to={to}"), ""));
        let target = resolve_target(&mut exchange, world.program(), &world.context());
        (
            target,
            String::from_utf8(exchange.request.proxy_host).expect("text"),
            exchange.request.proxy_port,
        )
    };
    let group = |name: &str| {
        let upstreams = &world.config().http.upstreams;
        let index = upstreams
            .iter()
            .position(|upstream| upstream.name == name)
            .expect("group");
        Target::Group(kp_config::model::UpstreamId(index as u32))
    };
    assert_eq!(resolve("u"), (Ok(group("u")), "u".into(), 80));
    assert_eq!(
        resolve("bACKEND/x"),
        (Ok(group("Backend")), "bACKEND".into(), 80)
    );
    let address = |text: &str| {
        Target::Address(kp_config::model::PeerAddress::Inet(
            text.parse().expect("address"),
        ))
    };
    assert_eq!(
        resolve("127.0.0.1"),
        (Ok(address("127.0.0.1:80")), "127.0.0.1".into(), 80)
    );
    assert_eq!(
        resolve("[::1]:8080"),
        (Ok(address("[::1]:8080")), "[::1]:8080".into(), 8080)
    );
    let name = |host: &str, port| {
        Ok(Target::Name {
            host: host.into(),
            port,
        })
    };
    assert_eq!(
        resolve("Other.test"),
        (name("other.test", 80), "Other.test".into(), 80)
    );
    assert_eq!(
        resolve("other.test:81"),
        (name("other.test", 81), "other.test:81".into(), 81)
    );
    assert_eq!(resolve("").0.expect_err("no host").cause, Cause::BadTarget);
    assert_eq!(
        resolve("a:b").0.expect_err("no port").cause,
        Cause::BadTarget
    );
}

#[test]
fn set_headers_replace_and_are_inherited_whole() {
    let world = World::new(
        r#"
        proxy_set_header X-A 1; proxy_set_header Host $host;
        location /in/ { proxy_pass http://u; }
        location /own/ { proxy_set_header X-B 2; proxy_pass http://u; }
        location /empty/ { proxy_set_header X-C ""; proxy_pass http://u; }
        location /novalue/ { proxy_set_header X-C $arg_none; proxy_set_header Host ""; proxy_pass http://u; }
        location /case/ { proxy_set_header x-c other; proxy_pass http://u; }
        location /split/ { proxy_set_header X-U $uri; proxy_pass http://u; }
        "#,
    );
    let sent = |path: &str| {
        world.sent(
            format!("GET {path} HTTP/1.1\r\nHost: Foo.Test:99\r\nX-C: c\r\nX-a: 0\r\n\r\n")
                .as_bytes(),
        )
    };
    assert_eq!(
        sent("/in/"),
        "GET /in/ HTTP/1.1\r\nHost: foo.test\r\nX-A: 1\r\nX-C: c\r\n\r\n"
    );
    assert_eq!(
        sent("/own/"),
        "GET /own/ HTTP/1.1\r\nHost: u\r\nX-B: 2\r\nX-C: c\r\nX-a: 0\r\n\r\n"
    );
    assert_eq!(
        sent("/empty/"),
        "GET /empty/ HTTP/1.1\r\nHost: u\r\nX-a: 0\r\n\r\n"
    );
    assert_eq!(
        sent("/novalue/"),
        "GET /novalue/ HTTP/1.1\r\nHost: u\r\nX-a: 0\r\n\r\n"
    );
    assert_eq!(
        sent("/case/"),
        "GET /case/ HTTP/1.1\r\nHost: u\r\nx-c: other\r\nX-a: 0\r\n\r\n"
    );
    assert_eq!(
        sent("/split/%0d%0aX-Evil:1"),
        "GET /split/%0d%0aX-Evil:1 HTTP/1.1\r\nHost: u\r\nX-U: /split/  X-Evil:1\r\nX-C: c\r\nX-a: 0\r\n\r\n"
    );
}

#[test]
fn the_connection_field_cannot_strip_what_kp_adds() {
    let world = World::new(
        r#"
        proxy_set_header X-Real-IP $remote_addr;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header X-Forwarded-Proto $scheme;
        location / { proxy_pass http://u; }
        "#,
    );
    let head = world.sent(&get(
        "/",
        "Connection: close, X-Forwarded-For, X-Real-IP, X-Forwarded-Proto, X-Secret, Host\r\nX-Secret: 1\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: trailers, gzip\r\nUpgrade: foo\r\nExpect: 100-continue\r\n",
    ));
    assert_eq!(
        head,
        "GET / HTTP/1.1\r\nHost: u\r\nX-Real-IP: 192.0.2.7\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n\r\n"
    );
}

#[test]
fn bodies_are_announced() {
    let world = World::new(
        r#"
        location / { proxy_pass http://u; }
        location /own/ { proxy_set_header Content-Length ""; proxy_set_header Transfer-Encoding x; proxy_pass http://u; }
        "#,
    );
    let sent = |path: &str, plan: BodyPlan| {
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nX: 1\r\n\r\n");
        world
            .outgoing(&mut world.exchange(request.as_bytes()), plan)
            .0
    };
    assert_eq!(
        sent("/", BodyPlan::Length(3)),
        "POST / HTTP/1.1\r\nHost: u\r\nContent-Length: 3\r\nX: 1\r\n\r\n"
    );
    assert_eq!(
        sent("/", BodyPlan::Length(0)),
        "POST / HTTP/1.1\r\nHost: u\r\nContent-Length: 0\r\nX: 1\r\n\r\n"
    );
    assert_eq!(
        sent("/", BodyPlan::Chunked),
        "POST / HTTP/1.1\r\nHost: u\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n"
    );
    assert_eq!(
        sent("/", BodyPlan::None),
        "POST / HTTP/1.1\r\nHost: u\r\nX: 1\r\n\r\n"
    );
    // Nobody but kp knows how the body is delimited.
    assert_eq!(
        sent("/own/", BodyPlan::Length(3)),
        "POST /own/ HTTP/1.1\r\nHost: u\r\nContent-Length: 3\r\nX: 1\r\n\r\n"
    );
    assert_eq!(
        sent("/own/", BodyPlan::Length(0)),
        "POST /own/ HTTP/1.1\r\nHost: u\r\nX: 1\r\n\r\n"
    );
}

#[test]
fn methods_and_versions() {
    let world = World::new(
        r#"
        location / { proxy_pass http://u; }
        location /post/ { proxy_method POST; proxy_pass http://u; }
        location /var/ { proxy_method $arg_m; proxy_pass http://u; }
        location /old/ { proxy_http_version 1.0; proxy_set_header Host ""; proxy_pass http://u; }
        location /bare/ { proxy_pass_request_headers off; proxy_pass http://u; }
        "#,
    );
    let outgoing =
        |request: &str| world.outgoing(&mut world.exchange(request.as_bytes()), BodyPlan::None);
    let line = |head: &str| head.lines().next().expect("a line").to_owned();
    let (head, sent) = outgoing("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(
        (line(&head).as_str(), sent.method),
        ("HEAD / HTTP/1.1", Method::Head)
    );
    let (head, sent) = outgoing("GET /post/ HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(
        (line(&head).as_str(), sent.method),
        ("POST /post/ HTTP/1.1", Method::Post)
    );
    let (head, sent) = outgoing("GET /var/?m=HEAD HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(
        (line(&head).as_str(), sent.method),
        ("HEAD /var/?m=HEAD HTTP/1.1", Method::Head)
    );
    let (head, _) = outgoing("GET /var/?m=A:B HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(line(&head), "GET /var/?m=A:B HTTP/1.1");
    let (head, sent) = outgoing("GET /old/ HTTP/1.1\r\nHost: t\r\nX: 1\r\n\r\n");
    assert_eq!(head, "GET /old/ HTTP/1.0\r\nX: 1\r\n\r\n");
    assert!(sent.close, "HTTP/1.0 is not kept alive");
    assert_eq!(
        outgoing("GET /bare/ HTTP/1.1\r\nHost: t\r\nX: 1\r\n\r\n").0,
        "GET /bare/ HTTP/1.1\r\nHost: u\r\n\r\n"
    );
    let mut page = world.exchange(b"POST / HTTP/1.1\r\nHost: t\r\n\r\n");
    page.request.method = Some("GET");
    assert_eq!(
        line(&world.outgoing(&mut page, BodyPlan::None).0),
        "GET / HTTP/1.1"
    );
}

#[test]
fn upgrades_that_are_allowed_are_passed_on() {
    let world = World::new(
        r#"
        location / { proxy_pass http://u; }
        location /off/ { proxy_upgrade off; proxy_pass http://u; }
        location /foo/ { proxy_upgrade websocket foo; proxy_pass http://u; }
        location /keep/ { proxy_set_header Connection ""; proxy_pass http://u; }
        location /own/ { proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_pass http://u; }
        location /close/ { proxy_set_header Connection "x, close"; proxy_pass http://u; }
        location /old/ { proxy_http_version 1.0; proxy_pass http://u; }
        "#,
    );
    let ask = |path: &str, upgrade: &str| {
        let lines =
            format!("Upgrade: {upgrade}\r\nConnection: Upgrade\r\nSec-WebSocket-Key: k\r\n");
        let (head, outgoing) =
            world.outgoing(&mut world.exchange(&get(path, &lines)), BodyPlan::None);
        let (_, lines) = head.split_once("Host: u\r\n").expect("a host");
        (
            lines.replace("Sec-WebSocket-Key: k\r\n\r\n", ""),
            outgoing.upgrade,
        )
    };
    let passed = |protocol: &str| {
        (
            format!("Upgrade: {protocol}\r\nConnection: upgrade\r\n"),
            true,
        )
    };
    assert_eq!(ask("/", "WebSocket"), passed("WebSocket"));
    assert_eq!(ask("/", "foo"), (String::new(), false));
    assert_eq!(ask("/off/", "websocket"), (String::new(), false));
    assert_eq!(
        ask("/foo/", "h2c, foo, websocket"),
        passed("foo, websocket")
    );
    assert_eq!(ask("/keep/", "websocket"), passed("websocket"));
    assert_eq!(
        ask("/own/", "anything"),
        ("Upgrade: anything\r\nConnection: upgrade\r\n".into(), true)
    );
    assert_eq!(ask("/old/", "websocket"), (String::new(), false));

    // Not asked properly: no `Connection: upgrade`, another method, HTTP/1.0, a body.
    let plain = |request: &[u8], plan| world.outgoing(&mut world.exchange(request), plan);
    let (head, outgoing) = plain(&get("/", "Upgrade: websocket\r\n"), BodyPlan::None);
    assert_eq!(
        (head.as_str(), outgoing),
        ("GET / HTTP/1.1\r\nHost: u\r\n\r\n", PLAIN)
    );
    for request in [
        "POST / HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: t\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ] {
        let (head, outgoing) = plain(request.as_bytes(), BodyPlan::None);
        assert!(!head.contains("pgrade") && !outgoing.upgrade, "{head}");
    }
    let asked = get(
        "/",
        "Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 1\r\n",
    );
    assert!(!plain(&asked, BodyPlan::Length(1)).1.upgrade);

    // nginx's way without an `Upgrade` from the client: the head goes out as configured, a 101 is not accepted.
    let (head, outgoing) = plain(&get("/own/", ""), BodyPlan::None);
    assert_eq!(
        head,
        "GET /own/ HTTP/1.1\r\nHost: u\r\nConnection: upgrade\r\n\r\n"
    );
    assert!(!outgoing.upgrade);
    assert!(plain(&get("/close/", ""), BodyPlan::None).1.close);
}

#[test]
fn trailers_are_asked_for_only_where_they_are_passed() {
    let world = World::new(
        r#"
        location / { proxy_pass http://u; }
        location /t/ { proxy_pass_trailers on; proxy_pass http://u; }
        location /own/ { proxy_pass_trailers on; proxy_set_header TE x; proxy_set_header Connection te; proxy_pass http://u; }
        "#,
    );
    let lines = "TE: gzip, Trailers\r\nConnection: TE, upgrade\r\n";
    assert_eq!(
        world.sent(&get("/", lines)),
        "GET / HTTP/1.1\r\nHost: u\r\n\r\n"
    );
    assert_eq!(
        world.sent(&get("/t/", lines)),
        "GET /t/ HTTP/1.1\r\nHost: u\r\nTE: trailers\r\nConnection: TE\r\n\r\n"
    );
    assert_eq!(
        world.sent(&get("/t/", "TE: gzip\r\n")),
        "GET /t/ HTTP/1.1\r\nHost: u\r\n\r\n"
    );
    assert_eq!(
        world.sent(&get("/own/", lines)),
        "GET /own/ HTTP/1.1\r\nHost: u\r\nTE: x\r\nConnection: te\r\n\r\n"
    );
    let both = "TE: trailers\r\nUpgrade: websocket\r\nConnection: TE, Upgrade\r\n";
    assert_eq!(
        world.sent(&get("/t/", both)),
        "GET /t/ HTTP/1.1\r\nHost: u\r\nUpgrade: websocket\r\nTE: trailers\r\nConnection: upgrade, TE\r\n\r\n"
    );
}

const FORWARDED: &str = "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\
    X-Forwarded-Port: 1\r\nForwarded: for=6.6.6.6\r\nVia: 1.0 fred\r\nX-Request-Id: mine\r\nX-Other: 1\r\n";

#[test]
fn forwarding_edge_believes_nothing() {
    let world = World::new("proxy_forwarding edge; location / { proxy_pass http://u; }");
    let request = format!("GET / HTTP/1.1\r\nHost: Foo.Test:99\r\n{FORWARDED}\r\n");
    assert_eq!(
        world.sent(request.as_bytes()),
        "GET / HTTP/1.1\r\nHost: u\r\n\
         X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: Foo.Test:99\r\nX-Forwarded-Port: 8080\r\n\
         Forwarded: for=192.0.2.7;host=\"Foo.Test:99\";proto=http\r\nVia: 1.1 kp-0123456789abcdef\r\n\
         X-Request-Id: abababababababababababababababab\r\nX-Other: 1\r\n\r\n"
    );
}

#[test]
fn forwarding_of_other_addresses() {
    let world = World::new("proxy_forwarding edge; location / { proxy_pass http://u; }");
    let forwarded = |remote: Option<&str>| {
        let mut exchange = world.exchange(&get("/", ""));
        exchange.connection.remote = remote.map(|text| text.parse().expect("an address"));
        let (head, _) = world.outgoing(&mut exchange, BodyPlan::None);
        head.lines()
            .filter(|line| line.starts_with("X-Forwarded-For") || line.starts_with("Forwarded"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        forwarded(Some("[2001:db8::1]:5")),
        [
            "X-Forwarded-For: 2001:db8::1",
            "Forwarded: for=\"[2001:db8::1]\";host=t;proto=http"
        ]
    );
    assert_eq!(
        forwarded(None),
        [
            "X-Forwarded-For: unix:",
            "Forwarded: for=unknown;host=t;proto=http"
        ]
    );
}

/// Some applications read `X_Forwarded_For` and `X-Forwarded-For` as one and the same.
#[test]
fn forwarding_edge_believes_no_alias_either() {
    let request = get(
        "/",
        "X_Forwarded_For: 6.6.6.6\r\nX-Forwarded_Proto: https\r\nX_Other: 1\r\n",
    );
    let sent = |mode: &str| {
        let world = World::new(&format!(
            "underscores_in_headers on; proxy_forwarding {mode}; location / {{ proxy_pass http://u; }}"
        ));
        world.sent(&request)
    };
    assert!(
        sent("edge")
            .ends_with("X-Request-Id: abababababababababababababababab\r\nX_Other: 1\r\n\r\n")
    );
    assert!(sent("off").contains("X_Forwarded_For: 6.6.6.6\r\n"));
}

#[test]
fn forwarding_append_extends() {
    let world = World::new("proxy_forwarding append; location / { proxy_pass http://u; }");
    let request = format!("GET / HTTP/1.0\r\nHost: foo.test\r\n{FORWARDED}Via: 1.1 joe\r\n\r\n");
    assert_eq!(
        world.sent(request.as_bytes()),
        "GET / HTTP/1.1\r\nHost: u\r\n\
         X-Forwarded-For: 6.6.6.6, 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\n\
         Forwarded: for=6.6.6.6, for=192.0.2.7;host=foo.test;proto=http\r\nVia: 1.0 fred, 1.1 joe, 1.0 kp-0123456789abcdef\r\n\
         X-Request-Id: mine\r\nX-Other: 1\r\n\r\n"
    );
    let bare = world.sent(&get("/", ""));
    assert_eq!(
        bare,
        "GET / HTTP/1.1\r\nHost: u\r\n\
         X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: t\r\nX-Forwarded-Port: 8080\r\n\
         Forwarded: for=192.0.2.7;host=t;proto=http\r\nVia: 1.1 kp-0123456789abcdef\r\n\
         X-Request-Id: abababababababababababababababab\r\n\r\n"
    );
}

#[test]
fn an_explicit_set_header_wins_over_forwarding() {
    let world = World::new(
        "proxy_forwarding edge; proxy_set_header X-Forwarded-For own; proxy_set_header Via \"\"; \
         location / { proxy_pass http://u; } location /off/ { proxy_forwarding off; proxy_pass http://u; }",
    );
    let head = world.sent(&get("/", FORWARDED));
    assert_eq!(head.matches("X-Forwarded-For:").count(), 1, "{head}");
    assert!(
        head.contains("X-Forwarded-For: own\r\n") && !head.contains("Via"),
        "{head}"
    );
    let off = world.sent(&get(
        "/off/",
        "Via: 1.0 fred\r\nX-Forwarded-Proto: https\r\nForwarded: for=1\r\n",
    ));
    assert_eq!(
        off,
        "GET /off/ HTTP/1.1\r\nHost: u\r\nX-Forwarded-For: own\r\nX-Forwarded-Proto: https\r\nForwarded: for=1\r\n\r\n"
    );
}

#[test]
fn a_request_that_was_here_before_is_recognised() {
    let world = World::new(
        "location / { proxy_forwarding edge; proxy_pass http://u; } location /off/ { proxy_pass http://u; }",
    );
    let seen = |path: &str, via: &str| {
        is_loop(
            &world.exchange(&get(path, &format!("Via: {via}\r\n"))),
            &world.context(),
        )
    };
    assert!(seen("/", "1.1 kp-0123456789abcdef"));
    assert!(seen("/", "1.0 fred, 1.1 kp-0123456789abcdef (comment)"));
    assert!(!seen("/", "1.1 kp-fedcba9876543210"));
    assert!(!seen("/off/", "1.1 kp-0123456789abcdef"));
}

#[test]
fn forwarding_over_tls() {
    let world = World::new("location / { proxy_pass http://u; proxy_forwarding edge; }");
    let mut exchange = world.exchange(&get("/", ""));
    exchange.connection.tls = Some(std::rc::Rc::default());
    let (sent, _) = world.outgoing(&mut exchange, BodyPlan::None);
    assert!(sent.contains("\r\nX-Forwarded-Proto: https\r\n"), "{sent}");
    assert!(sent.contains(";host=t;proto=https\r\n"), "{sent}");
}

/// The host of an upstream with TLS is named without a port where that is the one of the scheme.
#[test]
fn hosts_of_upstreams_with_tls() {
    let sent = |url: &str| {
        let world = World::new(&format!("location / {{ proxy_pass {url}; }}"));
        let sent = world.sent(&get("/", ""));
        let host = sent.lines().find_map(|line| line.strip_prefix("Host: "));
        host.expect("a host").to_owned()
    };
    assert_eq!(sent("https://10.0.0.1"), "10.0.0.1");
    assert_eq!(sent("https://10.0.0.1:443"), "10.0.0.1");
    assert_eq!(sent("https://10.0.0.1:80"), "10.0.0.1:80");
    assert_eq!(sent("http://10.0.0.1:443"), "10.0.0.1:443");
    assert_eq!(sent("https://u"), "u");
}
