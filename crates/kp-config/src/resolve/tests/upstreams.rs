//! Case C03: what an upstream block may say.

use super::*;
use crate::model::{Balancer, PeerAddress};

/// A group around a text; the text's lines count from 2.
fn group(text: &str) -> String {
    format!(
        "http {{ upstream u {{\n{text}\n}} server {{ listen 8080; location / {{ proxy_pass http://u; }} }} }}\n"
    )
}

/// Lines of a group, and what is found.
pub(super) const BAD_LINES: &[(&str, &str)] = &[
    (
        "server 127.0.0.1 weight=0;",
        "2:18 invalid parameter \"weight=0\"",
    ),
    (
        "server 127.0.0.1 weight=-1;",
        "2:18 invalid parameter \"weight=-1\"",
    ),
    (
        "server 127.0.0.1 weight=a;",
        "2:18 invalid parameter \"weight=a\"",
    ),
    (
        "server 127.0.0.1 down max_fails=x;",
        "2:23 invalid parameter \"max_fails=x\"",
    ),
    (
        "server 127.0.0.1 fail_timeout=5x;",
        "2:18 invalid parameter \"fail_timeout=5x\"",
    ),
    (
        "server 127.0.0.1 max_conns=-1;",
        "2:18 invalid parameter \"max_conns=-1\"",
    ),
    (
        "server 127.0.0.1 bogus=1;",
        "2:18 invalid parameter \"bogus=1\"",
    ),
    (
        "server 127.0.0.1:0;",
        "2:8 invalid port in upstream \"127.0.0.1:0\"",
    ),
    (
        "server 127.0.0.1:70000;",
        "2:8 invalid port in upstream \"127.0.0.1:70000\"",
    ),
    (
        "server http://127.0.0.1;",
        "2:8 invalid host in upstream \"http://127.0.0.1\"",
    ),
    (
        "server 127.0.0.1/x;",
        "2:8 invalid host in upstream \"127.0.0.1/x\"",
    ),
    ("server [::1;", "2:8 invalid host in upstream \"[::1\""),
    (
        "server unix:;",
        "2:8 no path in the unix domain socket in upstream \"unix:\"",
    ),
    (
        "server nosuch.invalid;",
        "2:8 host not found in upstream \"nosuch.invalid\"",
    ),
    (
        "server;",
        "2:1 invalid number of arguments in \"server\" directive",
    ),
    (
        "server 127.0.0.1 service=http;",
        "2:18 service upstream \"127.0.0.1\" requires domain name",
    ),
    ("server 127.0.0.1 service=;", "2:18 service is empty"),
    (
        "server 127.0.0.1:80 service=http;",
        "2:21 service upstream \"127.0.0.1:80\" may not have port",
    ),
];

/// A group whose names are looked up while kp runs, in an http with these lines.
fn names(http: &str, inside: &str) -> Vec<String> {
    findings(&format!("http {{ {http}\nupstream u {{\n{inside}\n}} }}"))
}

#[test]
fn names_are_looked_up_later() {
    let resolver = "resolver 127.0.0.1;";
    let none = "3:8 no resolver defined to resolve names at run time in upstream \"u\"";
    let zone = "3:8 resolving names at run time requires upstream \"u\" to be in shared memory";
    let server = "server nosuch.invalid resolve;";
    assert_eq!(names("", server), [zone, none]);
    assert_eq!(names("", &format!("{server}\nzone z 64k;")), [none]);
    assert_eq!(names(resolver, server), [zone]);
    let zone = format!("{server}\nzone z 64k;");
    assert_eq!(names(resolver, &zone), [""; 0]);
    assert_eq!(
        names("", &format!("{zone}\n{resolver}\nresolver_timeout 1s;")),
        [""; 0]
    );
    assert_eq!(
        names("", "server 127.0.0.1 resolve;"),
        [""; 0],
        "an address is there already"
    );
    let service = "server nosuch.invalid resolve service=http;\nzone z 64k;";
    assert_eq!(names(resolver, service), [""; 0]);
    assert_eq!(
        names(resolver, "server a_b..c resolve;\nzone z 64k;"),
        ["3:8 invalid host in upstream \"a_b..c\""]
    );
}

#[test]
fn resolvers() {
    let cases = [
        ("127.0.0.1 [::1]:5353 valid=5s ipv6=off", ""),
        ("127.0.0.1 valid=", "1:27 invalid parameter: valid="),
        ("127.0.0.1 ipv4=x", "1:27 invalid parameter: ipv4=x"),
        (
            "127.0.0.1 ipv4=off ipv6=off",
            "1:8 \"ipv4\" and \"ipv6\" cannot both be \"off\"",
        ),
        ("valid=1s", "1:8 no name servers defined"),
        (
            "127.0.0.1:0",
            "1:17 invalid port in resolver \"127.0.0.1:0\"",
        ),
        (
            "nosuch.invalid",
            "1:17 host not found in resolver \"nosuch.invalid\"",
        ),
        ("unix:/x", "1:17 invalid host in resolver \"unix:/x\""),
        (
            "127.0.0.1 status_zone=z",
            "1:27 the \"status_zone\" parameter of \"resolver\" is not supported",
        ),
    ];
    for (arguments, finding) in cases {
        let found = findings(&format!("http {{ resolver {arguments}; }}"));
        let expected: Vec<&str> = Some(finding)
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        assert_eq!(found, expected, "{arguments}");
    }
}

#[test]
fn bad_server_lines() {
    for (text, finding) in BAD_LINES {
        assert_eq!(findings(&group(text)), [*finding], "{text}");
    }
}

#[test]
fn bad_groups() {
    let line = "server 127.0.0.1;";
    let cases = [
        (String::new(), "1:17 no servers are inside upstream"),
        (
            "server 127.0.0.1 backup;".into(),
            "1:17 no servers in upstream \"u\"",
        ),
        (
            format!("{line}\nkeepalive x;"),
            "3:11 invalid value \"x\" in \"keepalive\" directive",
        ),
        (
            format!("{line}\nhash;"),
            "3:1 invalid number of arguments in \"hash\" directive",
        ),
        (
            format!("{line}\nhash $uri ketama;"),
            "3:11 invalid parameter \"ketama\"",
        ),
        (
            format!("{line}\nhash $nosuch;"),
            "3:6 unknown \"nosuch\" variable",
        ),
        (
            format!("{line}\nrandom three;"),
            "3:8 invalid parameter \"three\"",
        ),
        (format!("{line}\nfoo;"), "3:1 unknown directive \"foo\""),
        (format!("{line}\nzone z 1k;"), "3:8 zone \"z\" is too small"),
        (format!("{line}\nzone z x;"), "3:8 invalid zone size \"x\""),
        (
            format!("{line}\nkeepalive 1;\nkeepalive 2;"),
            "4:1 \"keepalive\" directive is duplicate",
        ),
        (
            format!("{line}\nproxy_pass http://x;"),
            "3:1 \"proxy_pass\" directive is not allowed here",
        ),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(&group(&text)), [finding], "{text}");
    }
}

#[test]
fn backup_needs_a_method_that_knows_it() {
    for method in [
        "ip_hash",
        "hash $uri",
        "hash $uri consistent",
        "random",
        "random two least_conn",
    ] {
        let text = format!("server 127.0.0.1:1;\nserver 127.0.0.1:2 backup;\n{method};");
        assert_eq!(
            findings(&group(&text)),
            ["3:20 balancing method does not support parameter \"backup\""],
            "{method}"
        );
    }
    let text = "server 127.0.0.1:1;\nserver 127.0.0.1:2 backup;\nleast_conn;";
    assert_eq!(findings(&group(text)), [""; 0]);
}

#[test]
fn good_groups() {
    for text in [
        "server 127.0.0.1 fail_timeout=5;",
        "server 127.0.0.1 down;",
        "keepalive 8; least_conn; server 127.0.0.1;",
        "least_conn; server 127.0.0.1; keepalive 8;",
        "keepalive 0; server 127.0.0.1;",
        "server unix:/tmp/x.sock;",
        "server [::1]:8080;",
        "server [::1];",
        "server 127.0.0.1:1; server 127.0.0.1:1;",
        "hash $uri consistent; server 127.0.0.1;",
        "zone z 64k; server localhost:81;",
    ] {
        assert_eq!(findings(&group(text)), [""; 0], "{text}");
    }
}

#[test]
fn the_last_method_wins_with_a_warning() {
    let text = group("least_conn;\nip_hash;\nserver 127.0.0.1;");
    assert_eq!(
        findings(&text),
        ["warn 3:1 load balancing method redefined"]
    );
    let (config, _) = load(&text);
    assert_eq!(config.unwrap().http.upstreams[0].balancer, Balancer::IpHash);
}

/// Also where it is the same one.
#[test]
fn a_method_may_be_said_again() {
    for (methods, expected) in [
        ("least_conn;\nleast_conn;", Balancer::LeastConn),
        ("ip_hash;\nip_hash;", Balancer::IpHash),
        ("random;\nrandom two;", Balancer::Random { two: true }),
    ] {
        let text = group(&format!("{methods}\nserver 127.0.0.1;"));
        let told = ["warn 3:1 load balancing method redefined"];
        assert_eq!(findings(&text), told, "{methods}");
        let (config, _) = load(&text);
        assert_eq!(config.unwrap().http.upstreams[0].balancer, expected);
    }
    let text = group("hash $uri;\nhash $args consistent;\nserver 127.0.0.1;");
    let (config, _) = load(&text);
    let balancer = &config.unwrap().http.upstreams[0].balancer;
    assert!(
        matches!(
            balancer,
            Balancer::Hash {
                consistent: true,
                ..
            }
        ),
        "{balancer:?}"
    );
}

#[test]
fn names_are_unique() {
    let text = http("upstream u { server 127.0.0.1; }\nupstream U { server 127.0.0.1; }");
    assert_eq!(findings(&text), ["3:10 duplicate upstream \"U\""]);
    assert_eq!(hint(&text), "the first one is on line 2");
}

#[test]
fn defaults() {
    let config = config(&group(
        "server 127.0.0.1;\nserver [::1] weight=2 max_conns=3 max_fails=0 fail_timeout=1m down;",
    ));
    let group = &config.http.upstreams[0];
    assert_eq!(group.balancer, Balancer::RoundRobin);
    assert!(!group.implicit);
    let keepalive = group.keepalive.as_ref().unwrap();
    assert_eq!(
        (keepalive.connections, keepalive.local, keepalive.requests),
        (32, true, 1000)
    );
    assert_eq!(
        (keepalive.time.as_secs(), keepalive.timeout.as_secs()),
        (3600, 60)
    );
    let [first, second] = group.servers.as_slice() else {
        panic!("two lines")
    };
    assert_eq!(
        first.addresses,
        [PeerAddress::Inet("127.0.0.1:80".parse().unwrap())]
    );
    assert_eq!((first.weight, first.max_conns, first.max_fails), (1, 0, 1));
    assert_eq!(
        (first.fail_timeout.as_secs(), first.backup, first.down),
        (10, false, false)
    );
    assert_eq!(
        (second.weight, second.max_conns, second.max_fails),
        (2, 3, 0)
    );
    assert_eq!((second.fail_timeout.as_secs(), second.down), (60, true));
}

#[test]
fn keepalive_forms() {
    let keepalive = |text: &str| {
        config(&group(&format!("server 127.0.0.1; {text}")))
            .http
            .upstreams[0]
            .keepalive
            .clone()
    };
    let stated =
        keepalive("keepalive 8; keepalive_requests 5; keepalive_time 2h; keepalive_timeout 3s;")
            .unwrap();
    assert_eq!(
        (stated.connections, stated.local, stated.requests),
        (8, false, 5)
    );
    assert_eq!((stated.time.as_secs(), stated.timeout.as_secs()), (7200, 3));
    assert!(keepalive("keepalive 8 local;").unwrap().local);
    assert_eq!(keepalive("keepalive 0;"), None);
    assert_eq!(
        findings(&group(
            "server 127.0.0.1; keepalive 0;\nkeepalive_requests 5;"
        )),
        ["warn 3:20 \"keepalive_requests\" is ignored"]
    );
}

#[test]
fn a_server_with_a_scheme_gets_advice() {
    assert_eq!(
        hint(&group("server http://10.0.0.1:81/x;")),
        "a server has no scheme: write \"10.0.0.1:81\""
    );
}
