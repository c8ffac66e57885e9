//! Which server and which location answer, and what `rewrite`, `if`, `set`, `map`, `return` and `error_page` do.

use kp_tests::client;
use kp_tests::{Kp, Origin, Port, Setup};

fn host(kp: &Kp, name: &str) -> String {
    kp.client()
        .ask(format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"))
        .text()
}

/// Shows: server_name, listen
#[test]
fn servers_by_name() {
    let text = "http {
        server { listen %LISTEN%; return 200 first; }
        server { listen %LISTEN% default_server; server_name default.test; return 200 default; }
        server { listen %LISTEN%; server_name exact.test www.exact.test; return 200 exact; }
        server { listen %LISTEN%; server_name *.star.test; return 200 star; }
        server { listen %LISTEN%; server_name *.deep.star.test; return 200 deep; }
        server { listen %LISTEN%; server_name .dot.test; return 200 dot; }
        server { listen %LISTEN%; server_name tail.*; return 200 tail; }
        server { listen %LISTEN%; server_name ~^(?<who>\\w+)\\.re\\.test$; return 200 $who; }
    }";
    let kp = Setup::new(text).start();
    for (name, answer) in [
        ("unknown.test", "default"),
        ("EXACT.test", "exact"),
        ("www.exact.test:99", "exact"),
        ("a.star.test", "star"),
        ("a.deep.star.test", "deep"),
        ("star.test", "default"),
        ("dot.test", "dot"),
        ("a.dot.test", "dot"),
        ("tail.org", "tail"),
        ("bob.re.test", "bob"),
        ("exact.test.", "exact"),
    ] {
        assert_eq!(host(&kp, name), answer, "{name}");
    }
    assert_eq!(kp.client().ask("GET / HTTP/1.0\r\n\r\n").text(), "first");
    assert_eq!(
        kp.client()
            .ask("GET http://exact.test/ HTTP/1.1\r\nHost: other\r\n\r\n")
            .text(),
        "exact"
    );
}

/// Shows: listen
#[test]
fn listeners_of_several_kinds() {
    let second = Port::take();
    let text = "http { server { listen %LISTEN% backlog=64 rcvbuf=64k sndbuf=64k so_keepalive=30m::10 reuseport;
        listen [::1]:%SECOND%; listen unix:%DIR%/kp.sock; return 200 $server_port; } }";
    let kp = Setup::new(text)
        .with("SECOND", second.number().to_string())
        .start();
    assert_eq!(kp.get("/").text(), kp.port().to_string());
    assert_eq!(
        client::get(&format!("[::1]:{}", second.number()), "/").text(),
        second.number().to_string()
    );
    let answer = client::get_unix(kp.path("kp.sock"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Shows: location, merge_slashes
#[test]
fn locations_in_order() {
    let text = "http { server { listen %LISTEN%;
        location / { return 200 root; }
        location = / { return 200 exact; }
        location /long/ { return 200 prefix; location /long/er/ { return 200 nested; } }
        location ^~ /stop/ { return 200 stop; }
        location ~ \\.php$ { return 200 regex; }
        location ~* \\.(?<kind>jpg|png)$ { return 200 $kind; }
    } }";
    let kp = Setup::new(text).start();
    for (path, answer) in [
        ("/", "exact"),
        ("/x", "root"),
        ("/long/x", "prefix"),
        ("/long/er/x", "nested"),
        ("/long/x.php", "regex"),
        ("/stop/x.php", "stop"),
        ("/a.JPG", "JPG"),
        ("/long//er/x", "nested"),
        ("/%6Cong/x", "prefix"),
    ] {
        assert_eq!(kp.get(path).text(), answer, "{path}");
    }
    let text = "http { server { listen %LISTEN%; merge_slashes off;
        location /a/b { return 200 merged; } location / { return 200 raw; } } }";
    assert_eq!(Kp::start(text).get("/a//b").text(), "raw");
}

/// Shows: return
#[test]
fn returns() {
    let text = "http { server { listen %LISTEN%;
        location /text { return 200 \"$request_method $uri\"; }
        location /moved { return 301 /there; }
        location /url { return http://else.test/x; }
        location /empty { return 204; }
        location /gone { return 410; }
        location /drop { return 444; }
    } }";
    let kp = Setup::new(text).start();
    assert_eq!(kp.get("/text").text(), "GET /text");
    let moved = kp.get("/moved");
    let there = format!("http://t:{}/there", kp.port());
    assert_eq!(
        (moved.status(), moved.field("location")),
        (301, Some(there.as_str()))
    );
    let url = kp.get("/url");
    assert_eq!(
        (url.status(), url.field("location")),
        (302, Some("http://else.test/x"))
    );
    assert_eq!(kp.get("/empty").status(), 204);
    let gone = kp.get("/gone");
    assert_eq!(gone.status(), 410);
    assert!(gone.text().contains("410 Gone"), "{}", gone.text());
    let mut client = kp.client();
    client.send("GET /drop HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(client.closes_within(kp_tests::wait::SOON));
}

/// Shows: absolute_redirect, port_in_redirect, server_name_in_redirect
#[test]
fn redirects_name_what_they_should() {
    let text = "http { server { listen %LISTEN%; server_name primary.test;
        location /absolute { return 301 /x; }
        location /relative { absolute_redirect off; return 301 /x; }
        location /portless { port_in_redirect off; return 301 /x; }
        location /primary { server_name_in_redirect on; return 301 /x; }
    } }";
    let kp = Setup::new(text).start();
    let port = kp.port();
    for (path, location) in [
        ("/absolute", format!("http://t:{port}/x")),
        ("/relative", "/x".to_owned()),
        ("/portless", "http://t/x".to_owned()),
        ("/primary", format!("http://primary.test:{port}/x")),
    ] {
        assert_eq!(
            kp.get(path).field("location"),
            Some(location.as_str()),
            "{path}"
        );
    }
}

/// Shows: rewrite, break, set, if
#[test]
fn rewrites() {
    let text = "http { server { listen %LISTEN%;
        rewrite ^/all/(.*)$ /last/$1;
        location /last/ { return 200 \"last $uri $args\"; }
        location /again/ { rewrite ^/again/(.*)$ /last/$1 last; }
        location /redirect { rewrite ^ http://else.test/$1? redirect; }
        location /permanent { rewrite ^/permanent/(.*)$ /p/$1 permanent; }
        location /args { rewrite ^ /last/x?own=1; }
        location /noargs { rewrite ^ /last/x?own=1?; }
        location /set { set $a 1; set $b \"$a-2\"; return 200 $b; }
        location /break { set $c before; break; set $c after; root %DIR%; error_page 404 = @c; }
        location @c { return 200 $c; }
        location /if {
            set $d none;
            if ($arg_x) { set $d some; }
            if ($arg_x = y) { set $d same; }
            if ($request_method != GET) { set $d method; }
            if ($arg_r ~* ^A(.)c$) { set $d $1; }
            if (!-f %DIR%/kp.conf) { set $d missing; }
            return 200 $d;
        }
        location /loop { rewrite ^ /loop; }
    } }";
    let kp = Setup::new(text).start();
    for (path, answer) in [
        ("/all/a?q=1", "last /last/a q=1"),
        ("/again/b", "last /last/b "),
        ("/args?q=1", "last /last/x own=1&q=1"),
        ("/noargs?q=1", "last /last/x own=1"),
        ("/set", "1-2"),
        ("/break", "before"),
        ("/if", "none"),
        ("/if?x=z", "some"),
        ("/if?x=y", "same"),
        ("/if?r=abC", "b"),
    ] {
        assert_eq!(kp.get(path).text(), answer, "{path}");
    }
    let redirect = kp.get("/redirect");
    assert_eq!(
        (redirect.status(), redirect.field("location")),
        (302, Some("http://else.test/"))
    );
    let permanent = kp.get("/permanent/z");
    assert_eq!(permanent.status(), 301);
    assert!(
        permanent
            .field("location")
            .is_some_and(|location| location.ends_with("/p/z"))
    );
    assert_eq!(kp.get("/loop").status(), 500);
}

/// Shows: map
#[test]
fn maps() {
    let text = "http {
        map $arg_k $plain { default other; a first; \"\" nothing; ~^x(?<rest>.*)$ \"x then $rest\"; ~*^Y any; include more.map; }
        map $host $name { hostnames; default none; *.star.test star; .dot.test dot; }
        server { listen %LISTEN%; location / { return 200 \"$plain|$name\"; } } }";
    let kp = Setup::new(text).file("more.map", "m mapped;\n").start();
    for (path, answer) in [
        ("/", "nothing|none"),
        ("/?k=a", "first|none"),
        ("/?k=b", "other|none"),
        ("/?k=xyz", "x then yz|none"),
        ("/?k=yes", "any|none"),
        ("/?k=m", "mapped|none"),
    ] {
        assert_eq!(kp.get(path).text(), answer, "{path}");
    }
    assert_eq!(host(&kp, "a.star.test"), "nothing|star");
    assert_eq!(host(&kp, "dot.test"), "nothing|dot");
}

/// Shows: error_page, recursive_error_pages, internal, proxy_intercept_errors
#[test]
fn error_pages() {
    let origin = Origin::replying(kp_tests::origin::response(404, b"from behind"));
    let text = "http { upstream u { server %U1%; } server { listen %LISTEN%;
        error_page 404 /page; error_page 410 =200 /page; error_page 403 http://else.test/; error_page 402 @named;
        location = /page { internal; return 200 \"page for $request_uri\"; }
        location /gone { return 410; } location /none { return 404; } location /away { return 403; }
        location /named { return 402; } location @named { return 200 \"named $uri\"; }
        location /behind { proxy_pass http://u; }
        location /intercepted { proxy_pass http://u; proxy_intercept_errors on; }
        location /first { error_page 401 /second; return 401; }
        location /second { error_page 500 /third; return 500; }
        location /third { return 200 third; }
        location /recursive { recursive_error_pages on; error_page 401 /second-r; return 401; }
        location /second-r { recursive_error_pages on; error_page 500 /third; return 500; }
    } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    for (path, status, answer) in [
        ("/none", 404, "page for /none"),
        ("/gone", 200, "page for /gone"),
        ("/page", 404, "page for /page"),
        ("/behind", 404, "from behind"),
        ("/intercepted", 404, "page for /intercepted"),
        ("/named", 402, "named /named"),
        ("/recursive", 500, "third"),
    ] {
        let response = kp.get(path);
        assert_eq!(
            (response.status(), response.text().as_str()),
            (status, answer),
            "{path}"
        );
    }
    assert_eq!(kp.get("/away").field("location"), Some("http://else.test/"));
    let answer = kp.get("/first");
    assert_eq!(answer.status(), 500);
    assert_ne!(
        answer.text(),
        "third",
        "a second error is not redirected again"
    );
}

#[test]
fn the_status_that_is_known_so_far() {
    let dead = Port::take();
    let text = "http { server { listen %LISTEN%;
        location /direct { return 299 $status; }
        location /kept { error_page 404 /page; return 404; }
        location /fixed { error_page 404 =201 /page; return 404; }
        location /own { error_page 404 = /page; return 404; }
        location /dead { error_page 502 @page; proxy_pass http://%DEAD%; }
        location /page { return 203 $status; }
        location @page { return 203 \"$status $proxy_host\"; } } }";
    let kp = Setup::new(text).with("DEAD", dead.address()).start();
    for (path, status, body) in [
        ("/direct", 299, "299"),
        ("/kept", 404, "404"),
        ("/fixed", 201, "201"),
        ("/own", 203, "203"),
        ("/dead", 502, "502 "),
    ] {
        let answer = kp.get(path);
        let got = (answer.status(), answer.text());
        assert_eq!(got, (status, body.to_owned()), "{path}");
    }
}

#[test]
fn a_head_that_is_too_large_has_its_page() {
    let text = "http { large_client_header_buffers 2 1k; server { listen %LISTEN%;
        error_page 494 =431 /big; location = /big { return 200 page; } } }";
    let kp = Setup::new(text).start();
    let answer = kp.client().ask(format!(
        "GET / HTTP/1.1\r\nHost: t\r\nX-A: {}\r\n\r\n",
        "v".repeat(3000)
    ));
    assert_eq!((answer.status(), answer.text().as_str()), (431, "page"));
}

#[test]
fn a_regex_that_would_take_for_ever_is_given_up() {
    let text = "http { server { listen %LISTEN%; location ~ ^/(a+)+\\1b$ { return 200 matched; } location / { return 200 no; } } }";
    let kp = Setup::new(text).allow("pcre_exec() failed").start();
    let start = std::time::Instant::now();
    let answer = kp.get(&format!("/{}bc", "a".repeat(200)));
    assert_eq!(answer.status(), 500);
    assert!(
        start.elapsed() < std::time::Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(kp.get("/aab").text(), "matched");
}
