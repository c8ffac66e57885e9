//! Fields on their way through: hop-by-hop removal, aliases, forwarding fields, loops, rewriting (cases T01, T03).

use std::time::Instant;

use kp_tests::wait::SOON;
use kp_tests::{Kp, Origin, Port, Setup};

#[test]
fn t01_connection_cannot_remove_what_is_added() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .server(
            "proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
             proxy_set_header X-Forwarded-Proto $scheme;",
        )
        .start();
    let request = "GET / HTTP/1.1\r\nHost: t\r\n\
        Connection: close, X-Forwarded-For, X-Real-IP, X-Forwarded-Proto, X-Secret\r\nX-Secret: 1\r\n\
        Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: trailers, gzip\r\nUpgrade: foo\r\n\r\n";
    for _ in 0..2 {
        assert_eq!(kp.client().ask(request).status(), 200);
        let seen = origin.last();
        assert_eq!(seen.field("x-real-ip"), Some("127.0.0.1"));
        assert_eq!(seen.field("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(seen.field("x-forwarded-proto"), Some("http"));
        for name in ["keep-alive", "proxy-connection", "upgrade", "x-secret"] {
            assert_eq!(seen.field(name), None, "{name}");
        }
        assert_ne!(seen.field("connection"), Some("close"));
        assert!(!seen.field("te").unwrap_or_default().contains("gzip"));
    }
    assert_eq!(origin.connections(), 1, "the connection is used again");
}

/// Shows: underscores_in_headers, ignore_invalid_headers
#[test]
fn t03_alias_names_are_dropped() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    let request = "GET / HTTP/1.1\r\nHost: t\r\nX_Forwarded_For: 1\r\nX.Real.Ip: 2\r\nX!Y: 4\r\nX-Ok: 3\r\n\r\n";
    assert_eq!(kp.client().ask(request).status(), 200);
    let seen = origin.last();
    assert_eq!(seen.field("x-ok"), Some("3"));
    for name in ["x_forwarded_for", "x.real.ip", "x!y"] {
        assert_eq!(seen.field(name), None, "{name}");
        kp_tests::wait::until(SOON, name, || {
            let log = kp.error_log().to_lowercase();
            log.lines()
                .filter(|line| line.contains("[info]") && line.contains(name))
                .count()
                == 1
        });
    }
    let answer = kp
        .client()
        .ask("GET / HTTP/1.1\r\nHost: t\r\nX Y: 4\r\n\r\n");
    assert_eq!(answer.status(), 400);

    let kp = Setup::base(&origin)
        .http("underscores_in_headers on;")
        .start();
    assert_eq!(kp.client().ask(request).status(), 200);
    let seen = origin.last();
    assert_eq!(
        (seen.field("x_forwarded_for"), seen.field("x.real.ip")),
        (Some("1"), None)
    );

    let kp = Setup::base(&origin)
        .http("ignore_invalid_headers off;")
        .start();
    assert_eq!(kp.client().ask(request).status(), 200);
    assert_eq!(origin.last().field("x.real.ip"), Some("2"));
}

const CLAIMS: &str = "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\
    X-Forwarded-Port: 1\r\nForwarded: for=6.6.6.6\r\nX-Request-Id: abc\r\n";

fn claiming(kp: &Kp) -> u16 {
    kp.client()
        .ask(format!("GET / HTTP/1.1\r\nHost: t:99\r\n{CLAIMS}\r\n"))
        .status()
}

/// Shows: proxy_forwarding
#[test]
fn forwarding_fields_by_mode() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin).http("proxy_forwarding edge;").start();
    assert_eq!(claiming(&kp), 200);
    let seen = origin.last();
    assert_eq!(seen.head.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.head.all("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.head.all("x-forwarded-host"), ["t:99"]);
    assert_eq!(seen.head.all("x-forwarded-port"), [kp.port().to_string()]);
    let forwarded = seen.head.all("forwarded");
    assert_eq!(forwarded.len(), 1);
    assert!(
        forwarded[0].contains("for=127.0.0.1") && !forwarded[0].contains("6.6.6.6"),
        "{forwarded:?}"
    );
    assert!(seen.field("via").is_some_and(|via| via.starts_with("1.1 ")));
    let id = seen.field("x-request-id").expect("a request id");
    assert!(id != "abc" && id.len() >= 16, "{id}");

    let kp = Setup::base(&origin)
        .http("proxy_forwarding append;")
        .start();
    assert_eq!(claiming(&kp), 200);
    let seen = origin.last();
    assert_eq!(seen.field("x-forwarded-for"), Some("6.6.6.6, 127.0.0.1"));
    assert!(
        seen.field("forwarded")
            .is_some_and(|forwarded| forwarded.starts_with("for=6.6.6.6, for=127.0.0.1"))
    );

    let kp = Kp::base(&origin);
    assert_eq!(claiming(&kp), 200);
    let seen = origin.last();
    assert_eq!(
        (seen.field("x-forwarded-for"), seen.field("via")),
        (Some("6.6.6.6"), None)
    );

    let kp = Setup::base(&origin)
        .http("proxy_forwarding edge;")
        .location("proxy_set_header X-Forwarded-For own;")
        .start();
    assert_eq!(claiming(&kp), 200);
    assert_eq!(
        origin.last().head.all("x-forwarded-for"),
        ["own"],
        "an explicit field wins"
    );
}

#[test]
fn a_loop_is_found_by_the_mark() {
    let second = Port::take();
    let text = "http { proxy_forwarding edge;
        server { listen %LISTEN%; location / { proxy_pass http://%SECOND%; } }
        server { listen %SECOND%; location / { proxy_pass http://%LISTEN%; } } }";
    let kp = Setup::new(text).with("SECOND", second.address()).start();
    assert_eq!(kp.get("/").status(), 508);
    assert!(kp.access_lines(2).len() <= 3, "found on its first way back");
}

#[test]
fn a_loop_without_marks_ends_by_itself() {
    let text = "events { worker_connections 200; } http { server { listen %LISTEN%; location / {
        proxy_pass http://%LISTEN%; } } }";
    let kp = Setup::new(text)
        .allow("worker_connections are not enough")
        .start();
    let start = Instant::now();
    let answer = kp.get("/");
    assert!(
        [502, 503, 504].contains(&answer.status()),
        "{:?}",
        answer.head
    );
    assert!(start.elapsed() <= SOON);
}

#[test]
fn connect_is_refused() {
    let origin = Origin::ok();
    let kp = Kp::base(&origin);
    let answer = kp
        .client()
        .ask("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n");
    assert_eq!(answer.status(), 405);
    assert_eq!(origin.received(), 0);
}

/// Shows: add_header
#[test]
fn fields_are_added_by_status() {
    let kp = Setup::new(
        "http { add_header X-Level http; server { listen %LISTEN%; location / { return 200; }
         location /own { add_header X-Own $uri; return 200; }
         location /bad { add_header X-Own 1; add_header X-Always 2 always; return 404; } } }",
    )
    .start();
    let answer = kp.get("/");
    assert_eq!(
        (answer.field("x-level"), answer.field("x-own")),
        (Some("http"), None)
    );
    let answer = kp.get("/own");
    assert_eq!(
        (answer.field("x-level"), answer.field("x-own")),
        (None, Some("/own"))
    );
    let answer = kp.get("/bad");
    assert_eq!(
        (answer.field("x-own"), answer.field("x-always")),
        (None, Some("2"))
    );
}

/// Shows: server_tokens
#[test]
fn the_server_field_says_as_much_as_it_should() {
    let kp = Setup::new(
        "http { server { listen %LISTEN%; return 200; location /off { server_tokens off; return 200; } } }",
    )
    .start();
    let long = kp
        .get("/")
        .field("server")
        .map(str::to_owned)
        .expect("a server");
    assert!(long.contains('/'), "{long}");
    let kp =
        Setup::new("http { server { listen %LISTEN%; server_tokens off; return 200; } }").start();
    let short = kp
        .get("/")
        .field("server")
        .map(str::to_owned)
        .expect("a server");
    assert!(!short.contains('/'), "{short}");
}

/// Shows: proxy_hide_header, proxy_pass_header
#[test]
fn response_fields_are_hidden_and_passed() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nServer: behind\r\nX-Accel-Foo: 1\r\nX-Secret: 2\r\nX-Kept: 3\r\nContent-Length: 0\r\n\r\n",
    );
    let kp = Kp::base(&origin);
    let answer = kp.get("/");
    assert_ne!(answer.field("server"), Some("behind"));
    assert_eq!(
        (answer.field("x-secret"), answer.field("x-kept")),
        (Some("2"), Some("3"))
    );
    let kp = Setup::base(&origin)
        .location("proxy_pass_header Server; proxy_hide_header X-Secret;")
        .start();
    let answer = kp.get("/");
    assert_eq!(answer.head.all("server"), ["behind"]);
    assert_eq!(
        (answer.field("x-secret"), answer.field("x-kept")),
        (None, Some("3"))
    );
}

/// Shows: proxy_redirect
#[test]
fn redirects_of_the_upstream_are_rewritten() {
    let origin = Origin::start(|conversation| {
        conversation.answer_all(|request| {
            let target = request.field("x-target").unwrap_or_default();
            format!("HTTP/1.1 302 Found\r\nLocation: {target}\r\nRefresh: 5; url={target}\r\nContent-Length: 0\r\n\r\n")
                .into_bytes()
        })
    });
    let text = "http { upstream u { server %U1%; } server { listen %LISTEN%;
        location /name/ { proxy_pass http://u/remote/; }
        location /own/ { proxy_pass http://u; proxy_redirect http://else.test/ /there/; }
        location /re/ { proxy_pass http://u; proxy_redirect ~^http://[^/]+/(.*)$ /re/$1; }
        location /off/ { proxy_pass http://u/x/; proxy_redirect off; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    let redirect = |path: &str, target: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\nX-Target: {target}\r\n\r\n");
        let answer = kp.client().ask(request);
        let location = answer.field("location").expect("a location").to_owned();
        let refresh = answer.field("refresh").expect("a refresh");
        (
            location,
            refresh
                .strip_prefix("5; url=")
                .unwrap_or_default()
                .to_owned(),
        )
    };
    let port = kp.port();
    let own = |path: &str| (format!("http://t:{port}{path}"), path.to_owned());
    assert_eq!(redirect("/name/", "http://u/remote/a"), own("/name/a"));
    assert_eq!(redirect("/own/", "http://else.test/b"), own("/there/b"));
    assert_eq!(redirect("/re/", "http://any.test/c?d"), own("/re/c?d"));
    let kept = "http://u/x/e".to_owned();
    assert_eq!(redirect("/off/", &kept), (kept.clone(), kept));
}

/// Shows: proxy_cookie_domain, proxy_cookie_path, proxy_cookie_flags
#[test]
fn cookies_of_the_upstream_are_rewritten() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nSet-Cookie: a=1; domain=in.test; path=/in/x\r\nSet-Cookie: b=2; Path=/other\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let kp = Setup::base(&origin)
        .location(
            "proxy_cookie_domain in.test out.test; proxy_cookie_path /in/ /out/;
             proxy_cookie_flags a secure httponly samesite=lax;",
        )
        .start();
    let answer = kp.get("/");
    let cookies = answer.head.all("set-cookie");
    assert_eq!(
        cookies[0],
        "a=1; domain=out.test; path=/out/x; Secure; HttpOnly; SameSite=Lax"
    );
    assert_eq!(cookies[1], "b=2; Path=/other");
}

#[test]
fn flags_of_cookies_can_be_variables() {
    let origin =
        Origin::replying("HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Secure\r\nContent-Length: 0\r\n\r\n");
    let kp = Setup::base(&origin)
        .location("proxy_cookie_flags a httponly $arg_x samesite=$arg_y;")
        .start();
    for (query, cookie) in [
        ("x=nosecure&y=strict", "a=1; HttpOnly; SameSite=Strict"),
        ("x=noHttpOnly", "a=1; Secure"),
        ("x=other", "a=1; Secure; HttpOnly"),
    ] {
        let answer = kp.get(&format!("/?{query}"));
        assert_eq!(answer.field("set-cookie"), Some(cookie), "{query}");
    }
}

#[test]
fn added_fields_see_earlier_ones_and_the_last_validator_wins() {
    let kp = Kp::start(
        "http { server { listen %LISTEN%;
            add_header X-A 1; add_header X-A 2; add_header X-Sent $sent_http_x_a;
            add_header ETag one; add_header etag $arg_tag always;
            return 200 here; } }",
    );
    let answer = kp.get("/?tag=two");
    assert_eq!(answer.field("x-sent"), Some("1, 2"));
    assert_eq!(answer.head.all("etag"), ["two"]);
    assert!(kp.get("/").head.all("etag").is_empty());
}

#[test]
fn what_the_upstream_said_is_known_after_its_redirect() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /other\r\nX-Kind: k\r\nAccept-Ranges: none\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let text = "http { upstream u { server %U1%; } server { listen %LISTEN%;
        if ($upstream_http_x_kind) { return 200 \"$upstream_http_x_accel_redirect $upstream_http_x_kind $uri\"; }
        location / { proxy_pass http://u; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    let answer = kp.get("/");
    assert_eq!(answer.text(), "/other k /other");
    assert_eq!(answer.head.all("accept-ranges"), ["none"]);
}

/// Shows: proxy_method, proxy_set_body, proxy_pass_request_headers, proxy_pass_request_body
#[test]
fn requests_are_replaced_in_part() {
    let origin = Origin::ok();
    let text = "http { upstream u { server %U1%; } server { listen %LISTEN%;
        location /method { proxy_pass http://u; proxy_method PUT; }
        location /body { proxy_pass http://u; proxy_set_body \"$request_method!\"; }
        location /bare { proxy_pass http://u; proxy_pass_request_headers off; proxy_pass_request_body off;
            proxy_set_header Content-Length \"\"; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    let ask = |path: &str| {
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: t\r\nX-A: 1\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(kp.client().ask(request).status(), 200, "{path}");
        origin.last()
    };
    assert_eq!(ask("/method").method(), "PUT");
    assert_eq!(ask("/body").body, b"POST!");
    let bare = ask("/bare");
    assert_eq!((bare.field("x-a"), bare.body.len()), (None, 0));
}

/// Shows: proxy_ignore_headers
#[test]
fn instructions_of_the_upstream_can_be_ignored() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /other\r\nContent-Length: 4\r\n\r\nhere",
    );
    let text = "http { upstream u { server %U1%; } server { listen %LISTEN%;
        location / { proxy_pass http://u; }
        location /ignored { proxy_pass http://u; proxy_ignore_headers X-Accel-Redirect; }
        location /other { internal; return 200 there; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    assert_eq!(kp.get("/").text(), "there");
    assert_eq!(kp.get("/ignored").text(), "here");
}

/// A value over several lines in the file is one line in the request, as in an answer.
#[test]
fn a_value_of_several_lines_is_sent_as_one() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .location("proxy_set_header X-Long \"one\r\nX-Two: 2\"; proxy_set_header Host \"a\nX-Three: 3\"; add_header X-Out \"one\nX-Four: 4\";")
        .start();
    let answer = kp.get("/");
    let request = origin.last();
    assert_eq!(request.field("x-long"), Some("one  X-Two: 2"));
    assert_eq!(request.field("host"), Some("a X-Three: 3"));
    assert_eq!(
        (request.field("x-two"), request.field("x-three")),
        (None, None)
    );
    assert_eq!(answer.field("x-out"), Some("one X-Four: 4"));
    assert_eq!(answer.field("x-four"), None);
}

/// Shows: max_headers, large_client_header_buffers, client_header_buffer_size
#[test]
fn heads_have_a_size() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("max_headers 20; client_header_buffer_size 512; large_client_header_buffers 2 2k;")
        .start();
    let get = |line: &str, fields: &str| {
        kp.client()
            .ask(format!("GET {line} HTTP/1.1\r\nHost: t\r\n{fields}\r\n"))
            .status()
    };
    let field = |length: usize| format!("X-A: {}\r\n", "v".repeat(length));
    assert_eq!(get("/", &field(1500)), 200);
    assert_eq!(get("/", &field(3000)), 431);
    assert_eq!(
        get("/", &field(1500).repeat(3)),
        431,
        "more than the buffers hold together"
    );
    assert_eq!(get(&format!("/{}", "p".repeat(1500)), ""), 200);
    assert_eq!(get(&format!("/{}", "p".repeat(3000)), ""), 414);
    assert_eq!(get("/", &"X-A: 1\r\n".repeat(15)), 200);
    assert_eq!(get("/", &"X-A: 1\r\n".repeat(30)), 431);
}

/// Shows: proxy_buffer_size
#[test]
fn response_heads_grow_on_demand_and_have_an_end() {
    let sized = |length: usize| {
        format!(
            "HTTP/1.1 200 OK\r\nX-Long: {}\r\nContent-Length: 2\r\n\r\nok",
            "v".repeat(length)
        )
    };
    for (length, status) in [(10_000, 200), (60_000, 200), (100_000, 502)] {
        let origin = Origin::replying(sized(length));
        let kp = Setup::base(&origin)
            .location("proxy_buffer_size 4k;")
            .start();
        assert_eq!(kp.get("/").status(), status, "a field of {length} bytes");
        if status == 502 {
            kp.wait_error("proxy_buffer_size");
        }
    }
}
