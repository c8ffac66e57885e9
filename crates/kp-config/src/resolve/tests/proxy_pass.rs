//! Case C01's half of the configuration, and the warnings about `proxy_pass`.

use super::*;
use crate::model::{Handler, PeerAddress, ProxyTarget};
use crate::template::Pattern;

const NO_URI: &str = "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside named \
                      location, or inside \"if\" statement, or inside \"limit_except\" block";

fn target(config: &Config, prefix_text: &str) -> ProxyTarget {
    match &prefix(config, prefix_text).handler {
        Handler::Proxy(pass) => pass.target.clone(),
        Handler::Static | Handler::Page(_) => panic!("{prefix_text} has no proxy_pass"),
    }
}

/// URI, `$proxy_host`, `$proxy_port`, replaced prefix.
fn parts(text: &str) -> (Option<String>, String, u16, usize) {
    match target(&config(&location(text)), "/a/") {
        ProxyTarget::Upstream {
            uri,
            host,
            port,
            prefix_len,
            ..
        } => (uri, host, port, prefix_len),
        ProxyTarget::Template(_) => panic!("{text} has variables"),
    }
}

#[test]
fn forms() {
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(parts("proxy_pass http://u;"), (None, "u".into(), 80, 3));
    assert_eq!(
        parts("proxy_pass http://u/;"),
        (some("/"), "u".into(), 80, 3)
    );
    assert_eq!(
        parts("proxy_pass HTTP://u/b/;"),
        (some("/b/"), "u".into(), 80, 3)
    );
    assert_eq!(
        parts("proxy_pass http://127.0.0.1:81;"),
        (None, "127.0.0.1:81".into(), 81, 3)
    );
    assert_eq!(
        parts("proxy_pass http://127.0.0.1:80;"),
        (None, "127.0.0.1".into(), 80, 3)
    );
    assert_eq!(
        parts("proxy_pass http://[::1]:81/b?c;"),
        (some("/b?c"), "[::1]:81".into(), 81, 3)
    );
    assert_eq!(
        parts("proxy_pass http://127.0.0.1?c;"),
        (some("/?c"), "127.0.0.1".into(), 80, 3)
    );
    assert_eq!(
        parts("proxy_pass http://unix:/tmp/s:/b/;"),
        (some("/b/"), "localhost".into(), 0, 3)
    );
    assert_eq!(
        parts("proxy_pass http://unix:/tmp/s;"),
        (None, "localhost".into(), 0, 3)
    );
}

#[test]
fn implicit_groups_are_shared_and_keep_no_connections() {
    let config = config(&server(
        "location /a/ { proxy_pass http://127.0.0.1:81; }\nlocation /b/ { proxy_pass http://127.0.0.1:81/; }",
    ));
    assert_eq!(config.http.upstreams.len(), 2);
    let group = &config.http.upstreams[1];
    assert!(group.implicit);
    assert_eq!(group.keepalive, None);
    assert_eq!(
        group.servers[0].addresses,
        [PeerAddress::Inet("127.0.0.1:81".parse().unwrap())]
    );
}

#[test]
fn a_group_may_stand_below_its_use() {
    let config = config(&http(
        "server { listen 8080; location /a/ { proxy_pass http://late; } }\nupstream late { server 127.0.0.1; }",
    ));
    assert_eq!(config.http.upstreams.len(), 1);
}

#[test]
fn mistakes() {
    let cases = [
        ("proxy_pass u;", "2:12 invalid URL prefix"),
        (
            "proxy_pass https://u:443;",
            "2:12 upstream \"u\" may not have port 443",
        ),
        ("proxy_pass http://;", "2:12 no host in upstream \"\""),
        (
            "proxy_pass http://u:8080;",
            "2:12 upstream \"u\" may not have port 8080",
        ),
        (
            "proxy_pass http://nosuch.invalid;",
            "2:12 host not found in upstream \"nosuch.invalid\"",
        ),
        (
            "proxy_pass http://127.0.0.1:x;",
            "2:12 invalid port in upstream \"127.0.0.1:x\"",
        ),
        ("proxy_pass foo$request_uri;", "2:12 invalid URL prefix"),
        (
            "proxy_pass http://u;\nproxy_pass http://u;",
            "3:1 \"proxy_pass\" directive is duplicate",
        ),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(&location(text)), [finding], "{text}");
    }
}

#[test]
fn no_uri_where_no_prefix_is_replaced() {
    let cases = [
        ("location ~ x { proxy_pass http://u/b; }", 27),
        ("location @x { proxy_pass http://u/b; }", 26),
        ("location / { if ($host) { proxy_pass http://u/b; } }", 38),
    ];
    for (text, column) in cases {
        assert_eq!(
            findings(&server(text)),
            [format!("2:{column} {NO_URI}")],
            "{text}"
        );
    }
    assert_eq!(
        findings(&server("location ~ x { proxy_pass http://u; }")),
        [""; 0]
    );
}

#[test]
fn an_if_answers_as_its_location() {
    let config = config(&location(
        "proxy_pass http://u/b/;\nif ($args) { add_header X 1; }",
    ));
    let inside = config
        .http
        .locations
        .iter()
        .find(|location| location.matches == LocationMatch::If);
    assert_eq!(inside.unwrap().handler, prefix(&config, "/a/").handler);
}

#[test]
fn slashes_that_do_not_fit() {
    assert_eq!(
        findings(&server("location /api { proxy_pass http://u/; }")),
        ["warn 2:28 \"/api/x\" will be passed on as \"//x\""]
    );
    assert_eq!(
        findings(&server("location /api/ { proxy_pass http://u/v1; }")),
        ["warn 2:29 \"/api/x\" will be passed on as \"/v1x\""]
    );
    for text in [
        "location /api { proxy_pass http://u/v1; }",
        "location /api/ { proxy_pass http://u/v1/; }",
        "location /api { proxy_pass http://u; }",
        "location = /api { proxy_pass http://u/; }",
    ] {
        assert_eq!(findings(&server(text)), [""; 0], "{text}");
    }
}

#[test]
fn a_host_from_the_client_is_an_open_proxy() {
    let open = |name: &str| {
        format!(
            "warn 2:12 the host of \"proxy_pass\" comes from the client ({name}): this is an open proxy"
        )
    };
    for (text, name) in [
        ("proxy_pass http://$host;", "$host"),
        ("proxy_pass http://$http_host$uri;", "$http_host"),
        ("proxy_pass http://$arg_to/x;", "$arg_to"),
        ("proxy_pass http://10.0.0.$cookie_n:80;", "$cookie_n"),
        ("proxy_pass $scheme://$host;", "$host"),
    ] {
        assert_eq!(findings(&location(text)), [open(name)], "{text}");
    }
    for text in [
        "proxy_pass http://u$request_uri;",
        "proxy_pass http://u/$arg_x;",
        "set $b u; proxy_pass http://$b/fixed;",
        "proxy_pass http://$server_addr;",
        "proxy_pass http://$arg_app.apps.internal:80;",
    ] {
        assert_eq!(findings(&location(text)), [""; 0], "{text}");
    }
}

#[test]
fn a_way_back_to_this_server() {
    let back = |place: &str, own: &str| {
        format!("warn {place} \"proxy_pass\" leads back to this server ({own})")
    };
    assert_eq!(
        findings(&location("proxy_pass http://127.0.0.1:8080;")),
        [back("2:12", "0.0.0.0:8080")]
    );
    assert_eq!(
        findings(&location(
            "proxy_pass http://127.0.0.1:8080;\nproxy_forwarding edge;"
        )),
        [""; 0]
    );
    assert_eq!(
        findings(&location("proxy_pass http://127.0.0.1:8081;")),
        [""; 0]
    );
    // The URI belongs to another location, which does not pass it on.
    assert_eq!(
        findings(&server(
            "location /a/ { proxy_pass http://127.0.0.1:8080/b/; }\nlocation /b/ { }"
        )),
        [""; 0]
    );
    let group = "upstream me { server 127.0.0.1:8080; }\nserver { listen 127.0.0.1:8080; location / { proxy_pass http://me; } }";
    assert_eq!(findings(&http(group)), [back("3:57", "127.0.0.1:8080")]);
}

#[test]
fn redirects_of_the_upstream() {
    let pairs = |text: &str| -> Vec<(String, String)> {
        let config = config(&location(text));
        let redirects = &prefix(&config, "/a/").proxy.redirects;
        let text = |pattern: &Pattern| match pattern {
            Pattern::Text(template) => template.as_literal().unwrap().to_owned(),
            Pattern::Regex(regex) => format!("~{}", config.http.regexes[regex.index()].pattern),
        };
        redirects
            .iter()
            .map(|pair| (text(&pair.from), pair.to.as_literal().unwrap().to_owned()))
            .collect()
    };
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(
        pairs("proxy_pass http://u/b/;"),
        [pair("http://u/b/", "/a/")]
    );
    assert_eq!(pairs("proxy_pass http://u;"), [pair("http://u/", "/")]);
    assert_eq!(pairs("proxy_pass http://u; proxy_redirect off;"), []);
    assert_eq!(pairs("proxy_pass http://$server_name;"), []);
    assert_eq!(
        pairs(
            "proxy_redirect http://x/ /y/; proxy_pass http://u; proxy_redirect ~*^a /; proxy_redirect default;"
        ),
        [
            pair("http://x/", "/y/"),
            pair("~^a", "/"),
            pair("http://u/", "/")
        ]
    );
    assert_eq!(
        findings(&location(
            "proxy_pass http://$server_name;\nproxy_redirect default;"
        )),
        [
            "3:16 \"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with variables"
        ]
    );
}
