//! `listen` and `server_name`.

use super::*;
use crate::model::{ListenAddress, ServerId, ServerName};

fn addresses(config: &Config) -> Vec<String> {
    config
        .http
        .listeners
        .iter()
        .map(|listener| super::super::listen::text(&listener.address))
        .collect()
}

#[test]
fn one_listener_per_address() {
    let config = config(&http(
        "server { listen 80; listen 127.0.0.1:80; server_name a; }
server { listen *:80 default_server; listen [::]:80; server_name b; }
server { listen unix:run/kp.sock; listen 8000-8002 backlog=7 so_keepalive=on; }",
    ));
    assert_eq!(
        addresses(&config),
        [
            "0.0.0.0:80",
            "127.0.0.1:80",
            "[::]:80",
            "unix:/prefix/run/kp.sock",
            "0.0.0.0:8000",
            "0.0.0.0:8001",
            "0.0.0.0:8002"
        ]
    );
    let shared = &config.http.listeners[0];
    assert_eq!(shared.servers, [ServerId(0), ServerId(1)]);
    assert_eq!(shared.default_server, ServerId(1));
    assert_eq!(config.http.listeners[1].default_server, ServerId(0));
    let options = &config.http.listeners[6].options;
    assert_eq!(options.backlog, Some(7));
    assert!(options.so_keepalive.as_ref().unwrap().enabled);
}

#[test]
fn without_listen() {
    assert_eq!(addresses(&config(&http("server { }"))), ["0.0.0.0:80"]);
    let reading = testing::nginx(http("server { }"));
    let resolved = resolve(
        &reading.directives,
        &Environment {
            root: false,
            ..environment()
        },
    );
    let config = resolved.config;
    assert_eq!(addresses(&config.unwrap()), ["0.0.0.0:8000"]);
    assert_eq!(findings("events { }"), [""; 0]);
}

#[test]
fn mistakes() {
    let cases = [
        (
            "listen 0;",
            "2:8 invalid port in \"0\" of the \"listen\" directive",
        ),
        (
            "listen 127.0.0.1:x;",
            "2:8 invalid port in \"127.0.0.1:x\" of the \"listen\" directive",
        ),
        (
            "listen nosuch.invalid:81;",
            "2:8 host not found in \"nosuch.invalid:81\" of the \"listen\" directive",
        ),
        ("listen 81 foo;", "2:11 invalid parameter \"foo\""),
        ("listen 81 backlog=0;", "2:11 invalid backlog \"backlog=0\""),
        ("listen 81 rcvbuf=x;", "2:11 invalid rcvbuf \"rcvbuf=x\""),
        (
            "listen 81 so_keepalive=x;",
            "2:11 invalid so_keepalive value: \"x\"",
        ),
        (
            "listen 81 ssl;",
            "2:8 no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive",
        ),
        ("listen 81 ssl=on;", "2:11 invalid parameter \"ssl=on\""),
        (
            "listen 81 http2;",
            "warn 2:11 HTTP/2 is not spoken yet, \"listen ... http2\" changes nothing",
        ),
        (
            "listen 81 quic;",
            "2:11 the \"quic\" parameter of \"listen\" is not supported yet",
        ),
        (
            "listen 81 proxy_protocol=on;",
            "2:11 invalid parameter \"proxy_protocol=on\"",
        ),
        ("listen 8080;", "2:8 a duplicate listen 0.0.0.0:8080"),
        ("server_name *;", "2:13 server name \"*\" is invalid"),
        ("server_name *a.b;", "2:13 server name \"*a.b\" is invalid"),
        ("server_name .;", "2:13 server name \".\" is invalid"),
        ("server_name a ~;", "2:15 empty regex in server name \"~\""),
        (
            "server_name a/b;",
            "warn 2:13 server name \"a/b\" has suspicious symbols",
        ),
        (
            "server_name ~(?<host>x);",
            "2:13 the duplicate \"host\" variable",
        ),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(&server(text)), [finding], "{text}");
    }
}

#[test]
fn servers_that_want_the_same() {
    let pair = |first: &str, second: &str| {
        findings(&http(&format!(
            "server {{ listen 81 {first}; server_name a; }}\nserver {{ listen 81 {second}; server_name b; }}"
        )))
    };
    assert_eq!(
        pair("default_server", "default_server"),
        ["3:17 a duplicate default server for 0.0.0.0:81"]
    );
    assert_eq!(
        pair("backlog=5", "backlog=5"),
        ["3:17 duplicate listen options for 0.0.0.0:81"]
    );
    assert_eq!(pair("backlog=5", "default_server"), [""; 0]);
    let text = "server { listen 81; server_name a c; }\nserver { listen 81; server_name b C; }";
    assert_eq!(
        findings(&http(text)),
        ["warn 3:35 conflicting server name \"c\" on 0.0.0.0:81, ignored"]
    );
    let text = "server { listen 81; }\nserver { listen 81; }";
    assert_eq!(
        findings(&http(text)),
        ["warn 3:1 conflicting server name \"\" on 0.0.0.0:81, ignored"]
    );
    let text = "server { listen 81; server_name a; }\nserver { listen 82; server_name a; }";
    assert_eq!(findings(&http(text)), [""; 0]);
}

/// As nginx 1.31.3 says it.
#[test]
fn protocols_of_one_address() {
    let three = |listens: [&str; 3]| {
        let server = |listen: &str| format!("server {{ listen 81 {listen}; }}\n");
        let text = listens.map(server).concat();
        let found = findings(&http(&text));
        let redefined = found
            .iter()
            .filter(|finding| finding.contains("protocol options redefined for 0.0.0.0:81"))
            .map(|finding| finding.replace("warn ", "").chars().next().unwrap_or('?'));
        redefined.collect::<String>()
    };
    for (listens, told) in [
        (["proxy_protocol", "proxy_protocol", "proxy_protocol"], ""),
        (["proxy_protocol", "", ""], ""),
        (["proxy_protocol", "", "proxy_protocol"], "4"),
        (["", "proxy_protocol", "proxy_protocol"], "4"),
        (["", "", "proxy_protocol"], ""),
        (["backlog=5", "proxy_protocol", ""], "3"),
        (["proxy_protocol backlog=5", "", ""], ""),
        (["", "proxy_protocol backlog=5", ""], ""),
        (["proxy_protocol", "backlog=5", ""], "3"),
        (["proxy_protocol", "ssl", ""], "34"),
        (["proxy_protocol ssl", "ssl", "ssl"], ""),
        (["proxy_protocol ssl", "ssl", "proxy_protocol"], "4"),
        (
            ["proxy_protocol", "proxy_protocol ssl", "proxy_protocol"],
            "",
        ),
    ] {
        assert_eq!(three(listens), told, "{listens:?}");
    }
    let config = config(&http(
        "server { listen 81 proxy_protocol; listen 82; server_name a; } server { listen 81; listen 82 proxy_protocol; server_name b; } server { listen 83; }",
    ));
    let protocols: Vec<bool> = config
        .http
        .listeners
        .iter()
        .map(|one| one.proxy_protocol)
        .collect();
    assert_eq!(protocols, [true, true, false]);
}

#[test]
fn names() {
    let config = config(&server(
        "server_name .Example.COM *.a.b www.c.* ~^x(?<id>\\d)$ \"\" plain $hostname;",
    ));
    let host = &config.http.servers[0];
    assert_eq!(host.primary_name, "example.com");
    let [dot, suffix, prefix, ServerName::Regex(regex), rest @ ..] = host.names.as_slice() else {
        panic!("{:?}", host.names)
    };
    assert_eq!(*dot, ServerName::DotSuffix("example.com".into()));
    assert_eq!(*suffix, ServerName::Suffix("a.b".into()));
    assert_eq!(*prefix, ServerName::Prefix("www.c".into()));
    let exact = |text: &str| ServerName::Exact(text.to_owned());
    assert_eq!(rest, [exact(""), exact("plain"), exact("box")]);
    let regex = &config.http.regexes[regex.index()];
    assert_eq!(regex.pattern, "^x(?<id>\\d)$");
    assert_eq!(
        config.http.user_variables[regex.captures[0].1.index()],
        "id"
    );
    let nameless = &super::config(&server("")).http.servers[0];
    assert_eq!(nameless.names, [exact("")]);
    assert_eq!(nameless.primary_name, "");
}

#[test]
fn a_name_gives_all_its_addresses() {
    let config = config(&server("listen localhost:8081;"));
    let local = config.http.listeners.iter().filter(|listener| {
        matches!(&listener.address, ListenAddress::Inet(address) if address.port() == 8081 && address.ip().is_loopback())
    });
    assert!(local.count() >= 1);
}
