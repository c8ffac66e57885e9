//! What is said of directives and variables, with and without a configuration.

use super::{Tree, explain, list};
use crate::LoadOptions;
use crate::directives;

fn tree(text: &str) -> Tree {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kp.conf");
    std::fs::write(&path, text).unwrap();
    Tree::read(&LoadOptions {
        path,
        ..LoadOptions::default()
    })
}

/// The lines below `In …kp.conf:`, blanks joined.
fn here(name: &str, text: &str) -> Vec<String> {
    let said = explain(name, Some(&tree(text))).unwrap();
    let (_, here) = said.split_once("kp.conf:\n").unwrap();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    here.lines().map(words).collect()
}

#[test]
fn a_directive_is_explained_from_the_table() {
    let said = explain("proxy_read_timeout", None).unwrap();
    for part in [
        "proxy_read_timeout time;\n",
        "in YAML   proxy_read_timeout: time\n",
        "stands in http, server, location\n",
        "default   60s\n",
        "origin    nginx has it\n",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let said = explain("proxy_upgrade", None).unwrap();
    assert!(said.contains("it is kp's own"), "{said}");
    assert!(
        said.contains("see also") && said.contains("proxy_upgrade_timeout"),
        "{said}"
    );
    assert!(
        explain("health_check", None)
            .unwrap()
            .contains("commercial one")
    );
    assert!(
        explain("least_conn", None)
            .unwrap()
            .contains("least_conn: on\n")
    );
    let said = explain("location", None).unwrap();
    assert!(
        said.contains("location: { \"[= | ~ | ~* | ^~] uri | @name\": { … } }"),
        "{said}"
    );
    // Two rows of one name are two explanations.
    assert_eq!(
        explain("server", None)
            .unwrap()
            .matches("stands in")
            .count(),
        2
    );
}

#[test]
fn every_directive_can_be_explained() {
    for entry in directives::all() {
        let said = explain(entry.name, None).unwrap();
        assert!(said.contains(entry.doc), "{said}");
    }
    let all = list();
    for name in [
        "In main:\n",
        "In upstream:\n",
        " worker_processes",
        " $request_uri",
    ] {
        assert!(all.contains(name), "{all}");
    }
}

#[test]
fn an_unknown_name_gets_advice() {
    for (name, part) in [
        ("proxypass", "did you mean \"proxy_pass\"?"),
        (
            "fastcgi_pass",
            "kp does not have \"fastcgi_pass\": kp speaks HTTP",
        ),
        ("host", "kp explain '$host'"),
        ("buffering", "proxy_buffering"),
        ("qqqqqqqq", "lists all"),
        ("$hots", "did you mean \"$host\"?"),
    ] {
        let said = explain(name, None).unwrap_err();
        assert!(said.contains(part), "{name}: {said}");
    }
}

#[test]
fn what_holds_where_is_told() {
    let text = "events {}\nhttp {\n  proxy_read_timeout 30s;\n  server {\n    server_name a b;\n    location / { }\n    \
                location /x { proxy_read_timeout 5s;\n      location /x/y { } }\n  }\n}\n";
    assert_eq!(
        here("proxy_read_timeout", text),
        [
            "http proxy_read_timeout 30s, kp.conf:3",
            "server \"a b\" as in http: proxy_read_timeout 30s",
            "location \"/\" as in http: proxy_read_timeout 30s",
            "location \"/x\" proxy_read_timeout 5s, kp.conf:7 (not as in http)",
            "location \"/x/y\" as in location \"/x\": proxy_read_timeout 5s",
        ]
    );
    assert_eq!(
        here("send_timeout", text),
        ["it is not there; what holds is 60s"]
    );
    assert_eq!(
        here("server_name", text),
        ["kp.conf:5 in server \"a b\" server_name a b"]
    );
}

#[test]
fn a_list_replaces_the_one_above() {
    let text = "events {}\nhttp {\n  add_header A 1;\n  add_header B 2;\n  server {\n    location / { add_header C 'x y'; }\n  }\n}\n";
    assert_eq!(
        here("add_header", text),
        [
            "http add_header A 1, kp.conf:3",
            "add_header B 2, kp.conf:4",
            "server as in http: add_header A 1; add_header B 2",
            "location \"/\" add_header C 'x y', kp.conf:6 (nothing of http holds here)",
        ]
    );
}

#[test]
fn of_many_blocks_only_those_are_listed_that_say_something() {
    let servers = "server { location / { } location /x { send_timeout 1s; } }\n".repeat(30);
    let text = format!("events {{}}\nhttp {{\nsend_timeout 9s;\n{servers}}}\n");
    let said = here("send_timeout", &text);
    assert_eq!(said.len(), 31);
    assert_eq!(
        said[0],
        "http send_timeout 9s, kp.conf:3, and in 60 blocks below"
    );
}

#[test]
fn a_variable_is_found_where_it_is_made_and_used() {
    let text = "events {}\nhttp {\n  map $host $kind { default a; }\n  server {\n    set $x $kind;\n    location ~ (?<part>a) { return 200 ${part}${kind}z; }\n  }\n}\n";
    assert_eq!(
        here("$kind", text),
        [
            "kp.conf:3 defines it: map $host $kind { … }",
            "kp.conf:5 uses it: set $x $kind",
            "kp.conf:6 uses it: return 200 ${part}${kind}z",
        ]
    );
    assert_eq!(
        here("$part", text)[0],
        "kp.conf:6 defines it: location ~ (?<part>a) { … }"
    );
    assert_eq!(here("$uri", text), ["nothing uses it"]);
    assert!(explain("$kind", None).is_err());
    assert!(
        explain("$http_accept", None)
            .unwrap()
            .contains("$http_NAME")
    );
}
