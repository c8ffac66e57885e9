//! Tests of the YAML front end: the forms, the places, the mistakes, and a second parser's opinion.

use super::node::{self, Node, Value};
use crate::span::FileId;
use crate::testing::{any_bytes, findings, meaning, nginx, read_bytes, read_files, tree, yaml};
use proptest::prelude::*;

/// Both texts mean the same tree.
fn same(yaml_text: &str, nginx_text: &str) {
    let (left, right) = (yaml(yaml_text), nginx(nginx_text));
    assert_eq!(findings(&left), [""; 0], "{yaml_text}");
    assert_eq!(findings(&right), [""; 0], "{nginx_text}");
    assert_eq!(
        meaning(&left.directives),
        meaning(&right.directives),
        "{yaml_text}"
    );
}

#[test]
fn the_sketch_of_the_documentation() {
    same(
        r#"
worker_processes: auto
http:
  upstream:
    api: { least_conn: on, server: [10.0.0.1:8080 weight=2, 10.0.0.2:8080 backup], keepalive: 64 }
  server:
    - listen: [80, "[::]:80"]
      server_name: [example.com, "*.example.com"]
      location:
        /api/: { proxy_pass: http://api, proxy_read_timeout: 30s }
        "= /up": { return: [200, "ok"] }
"#,
        r#"
worker_processes auto;
http {
    upstream api { least_conn; server 10.0.0.1:8080 weight=2; server 10.0.0.2:8080 backup; keepalive 64; }
    server {
        listen 80; listen [::]:80;
        server_name example.com; server_name *.example.com;
        location /api/ { proxy_pass http://api; proxy_read_timeout 30s; }
        location = /up { return 200 ok; }
    }
}
"#,
    );
}

#[test]
fn scalars_are_nginx_words() {
    same("pid: /a/b.pid", "pid /a/b.pid;");
    same("user: www data", "user www data;");
    same("error_log: '\"/a b\" warn'", "error_log \"/a b\" warn;");
    same("error_log: \"'/a b' warn\"", "error_log '/a b' warn;");
    same(
        "error_log: |\n  /a # comment\n  warn\n",
        "error_log /a warn;",
    );
    same("error_log: >-\n  /a\n  warn\n", "error_log /a warn;");
    same("worker_processes: 0010", "worker_processes 0010;");
    same("pid: ''", "pid '';");
    same(
        "http: {log_format: main '$remote_addr - \"$request\"'}",
        "http { log_format main '$remote_addr - \"$request\"'; }",
    );
}

#[test]
fn switches() {
    for on in ["on", "true", "True", "TRUE"] {
        same(&format!("daemon: {on}"), "daemon on;");
        same(
            &format!("http: {{upstream: {{a: {{ip_hash: {on}}}}}}}"),
            "http { upstream a { ip_hash; } }",
        );
    }
    for off in ["off", "false", "False", "FALSE"] {
        same(&format!("daemon: {off}"), "daemon off;");
        same(
            &format!("http: {{upstream: {{a: {{ip_hash: {off}}}}}}}"),
            "http { upstream a { } }",
        );
    }
    // Quoted it is a text, and `yes` is no switch.
    same("daemon: \"true\"", "daemon true;");
    same("daemon: yes", "daemon yes;");
    same(
        "http: {upstream: {a: {ip_hash: , random: }}}",
        "http { upstream a { ip_hash; random; } }",
    );
    same(
        "http: {server: {access_log: [false]}}",
        "http { server { access_log off; } }",
    );
    same(
        "http: {server: {return: [200, true]}}",
        "http { server { return 200 true; } }",
    );
}

#[test]
fn lists() {
    same(
        "error_log: [a warn, [b c, info]]",
        "error_log a warn; error_log 'b c' info;",
    );
    same(
        "worker_cpu_affinity: [01, 10]",
        "worker_cpu_affinity 01 10;",
    );
    same(
        "http: {error_page: [[500, 502, /50x.html], 404 /404.html]}",
        "http { error_page 500 502 /50x.html; error_page 404 /404.html; }",
    );
    same(
        "http: {server: {return: [301, 'a b']}}",
        "http { server { return 301 'a b'; } }",
    );
    same("http: {server: {listen: []}}", "http { server { } }");
}

#[test]
fn mappings_of_arguments() {
    same(
        "http: {proxy_set_header: {Host: $host, X-A: a b, X-B: ''}}",
        "http { proxy_set_header Host $host; proxy_set_header X-A 'a b'; proxy_set_header X-B ''; }",
    );
    same(
        "http: {add_header: [{X-A: [a, always]}, X-B b], error_page: {500 502: /50x.html}}",
        "http { add_header X-A a always; add_header X-B b; error_page 500 502 /50x.html; }",
    );
    same(
        "http: {log_format: {main: '$a - \"$b\"'}}",
        "http { log_format main '$a - \"$b\"'; }",
    );
    same(
        "http: {upstream: {a: {server: {\"b:80\": , \"c:80\": [weight=2, backup]}}}}",
        "http { upstream a { server b:80; server c:80 weight=2 backup; } }",
    );
}

#[test]
fn blocks() {
    same("events:\nhttp: {}", "events {} http {}");
    same(
        "http: {server: [{listen: 80}, {listen: 81}, ]}",
        "http { server { listen 80; } server { listen 81; } }",
    );
    same(
        "http:\n- {sendfile: on}\n- {sendfile: off}",
        "http { sendfile on; sendfile off; }",
    );
    same(
        "http: {server: [[{set: $a 1}, {if: {($a = 1): {set: $a 2}}}, {set: $b 3}]]}",
        "http { server { set $a 1; if ($a = 1) { set $a 2; } set $b 3; } }",
    );
    same(
        "http: {server: {location: {'~ \"^/\\d{3}\"': {location: {/a: }}, '@x': {root: /}}}}",
        "http { server { location ~ \"^/\\d{3}\" { location /a {} } location @x { root /; } } }",
    );
    same(
        "http: {server: {location: [{/a: {root: a}}, {/a: [{root: b}, {index: c}]}]}}",
        "http { server { location /a { root a; } location /a { root b; index c; } } }",
    );
    same(
        "http: {map: {$a $b: {default: 0, '': 1, '~x y': 'a \"b', hostnames: on, volatile: }}}",
        "http { map $a $b { default 0; '' 1; '~x y' 'a \"b'; hostnames; volatile; } }",
    );
    same(
        "http: {types: {text/html: [html, htm], a/b: c d}}",
        "http { types { text/html html htm; a/b c d; } }",
    );
}

#[test]
fn anchors() {
    same(
        "http: {server: {location: {/a: &p {root: &x /a b, index: c}, /b: *p, /c: [*p, {merge_slashes: off}], /d: {root: *x}}}}",
        "http { server { location /a { root /a b; index c; } location /b { root /a b; index c; } location /c { root /a b; index c; merge_slashes off; } location /d { root /a b; } } }",
    );
}

#[test]
fn places_are_exact() {
    let place = |text: &str, wanted: &str| {
        let reading = yaml(text);
        let word = reading.directives[0]
            .args
            .iter()
            .find(|word| word.text == wanted)
            .unwrap();
        (word.span.line, word.span.column, word.span.length)
    };
    assert_eq!(place("error_log: /a warn", "/a"), (1, 12, 2));
    assert_eq!(place("error_log: /a warn", "warn"), (1, 15, 4));
    assert_eq!(place("error_log: '/a  warn'", "warn"), (1, 17, 4));
    assert_eq!(place("error_log: '''/a b'' warn'", "/a b"), (1, 13, 8));
    assert_eq!(place("error_log: '''/a b'' warn'", "warn"), (1, 22, 4));
    assert_eq!(place("error_log: \"\\x41\\\" b warn\"", "warn"), (1, 22, 4));
    assert_eq!(place("error_log: ü  wärn # c", "wärn"), (1, 15, 4));
    assert_eq!(place("error_log: /a\n   warn\n   info", "warn"), (2, 4, 4));
    assert_eq!(place("error_log: /a\n   warn\n   info", "info"), (3, 4, 4));
    assert_eq!(place("error_log: |\n   /a\n     warn\n", "warn"), (3, 6, 4));
    assert_eq!(
        place("error_log: >-\n   /a\n\n   warn\n", "warn"),
        (4, 4, 4)
    );
    assert_eq!(place("error_log: \"/a \\\n   warn\"", "warn"), (2, 4, 4));
    assert_eq!(place("error_log: [[\"/a b\", warn]]", "/a b"), (1, 14, 6));
    assert_eq!(
        place("error_log: [[\"/a b\", &x warn]]", "warn"),
        (1, 25, 4)
    );
    assert_eq!(place("error_log: {/a: &x 'warn'}", "warn"), (1, 20, 6));
    assert_eq!(place("\u{feff}error_log: /a warn", "warn"), (1, 15, 4));
    let reading = yaml("error_log:\n  - a b\n  - 'c'\n");
    let at = reading
        .directives
        .iter()
        .map(|one| (one.at.line, one.at.column, one.at.length));
    assert_eq!(at.collect::<Vec<_>>(), [(2, 5, 3), (3, 5, 3)]);
    let name = reading.directives[1].name.span;
    assert_eq!((name.line, name.column, name.length), (1, 1, 9));
}

#[test]
fn mistakes_at_their_places() {
    let cases: &[(&str, &[&str])] = &[
        (
            "pid: a\npid: b\n",
            &["2:1+3 \"pid\" directive is duplicate"],
        ),
        ("pid: a;\n", &["1:7+1 unexpected \";\""]),
        (
            "http:\n  server:\n    location:\n      '~ ^/\\d{3}/': {}\n",
            &["4:14+1 unexpected \"{\""],
        ),
        ("pid: '\"a\"b'\n", &["1:10+1 unexpected \"b\""]),
        (
            "pid: '\"ab'\n",
            &["1:7+3 unexpected end of the value, expecting \"\"\""],
        ),
        (
            "pid: {a: b}\n",
            &["1:6+1 \"pid\" takes arguments, not a mapping"],
        ),
        (
            "pid: [[a]]\n",
            &["1:7+1 an argument of \"pid\" must be a scalar"],
        ),
        (
            "http: 5\n",
            &["1:7+1 \"http\" needs a block: a mapping of directives"],
        ),
        (
            "http: {server: [5]}\n",
            &["1:17+1 \"server\" needs a block: a mapping of directives"],
        ),
        (
            "http: {server: {location: /a}}\n",
            &["1:27+2 \"location\" needs a mapping from its arguments to blocks"],
        ),
        (
            "http: {server: {location: {/a: b}}}\n",
            &["1:32+1 \"location\" needs a block: a mapping of directives"],
        ),
        (
            "http: [a]\n",
            &["1:8+1 a block written as a list holds mappings only"],
        ),
        (
            "http: {server: {location /a: {}}}\n",
            &["1:17+11 unknown directive \"location /a\""],
        ),
        (
            "http:\n  server:\n    location:\n      /a: {}\n      /a: {}\n",
            &["5:7+2 duplicate location \"/a\""],
        ),
        (
            "http:\n  map:\n    $a $b:\n      c: d\n      c: e\n",
            &["5:7+1 conflicting parameter \"c\""],
        ),
        ("[a]: b\n", &["1:1+1 a key must be a scalar"]),
        ("a: !x b\n", &["1:4+1 YAML tags are not supported: \"!x\""]),
        (
            "a: b\n---\nc: d\n",
            &["2:1+1 a configuration is one YAML document"],
        ),
        (
            "a: *b\n",
            &["1:4+1 YAML syntax: while parsing node, found unknown anchor"],
        ),
        (
            "a: &b [*b]\n",
            &["1:8+1 a YAML alias inside its own anchor"],
        ),
        (
            "x: &x {a: b}\nhttp: {<<: *x}\n",
            &["2:8+2 the merge key \"<<\" is not supported"],
        ),
        (
            "http:\n\tserver: a\n",
            &["2:2+1 YAML syntax: tabs disallowed within this context (block indentation)"],
        ),
        (
            "a: b: c\n",
            &["1:5+1 YAML syntax: mapping values are not allowed in this context"],
        ),
        (
            "worker_processes 1;\n",
            &["1:1+19 a YAML configuration is a mapping of directives"],
        ),
        (
            "a: b\u{0}c\n",
            &["1:5+1 unexpected control character U+0000"],
        ),
        (
            "include: [a b]",
            &["1:1+7 invalid number of arguments in \"include\" directive"],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(&findings(&yaml(text)), expected, "{text}");
    }
}

#[test]
fn every_mistake_of_a_file_is_found_once() {
    let text = "pid: a;b\n\
            pid: c\n\
            http:\n\
            \x20 server:\n\
            \x20   - listen: {a: {b: c}}\n\
            \x20     location: 5\n\
            \x20   - 7\n\
            \x20   - location:\n\
            \x20       /a: b\n\
            \x20       /a: {}\n\
            \x20       /c: {proxy_pass: '\"x\"y', root: [[a]]}\n\
            daemon: {a: b}\n";
    let found = findings(&yaml(text));
    let lines: Vec<_> = found
        .iter()
        .map(|finding| finding.split(':').next().unwrap())
        .collect();
    assert_eq!(
        lines,
        ["2", "1", "5", "6", "7", "10", "9", "11", "11", "12"]
    );
}

#[test]
fn limits() {
    let deep = format!("http: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        findings(&yaml(deep)),
        ["1:262+1 YAML values are nested too deep"]
    );
    let deep = format!("http: \n{}a", "- ".repeat(100_000));
    assert_eq!(
        findings(&yaml(deep)),
        ["2:499+1 YAML values are nested too deep"]
    );
    let mut nested = String::from("a: 1");
    for _ in 0..110 {
        nested = format!("location: {{/: {{{nested}}}}}");
    }
    let found = yaml(format!("http: {{server: {{{nested}}}}}"));
    assert_eq!(found.diagnostics.len(), 1);
    assert_eq!(found.diagnostics[0].message, "blocks are nested too deep");
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (inner, outer) in ('a'..'j').zip('b'..='j') {
        let aliases = vec![format!("*{inner}"); 7].join(", ");
        bomb.push_str(&format!("{outer}: &{outer} [{aliases}]\n"));
    }
    let found = yaml(bomb);
    assert_eq!(
        found.diagnostics[0].message,
        "YAML aliases stand for more than 100000 values"
    );
}

#[test]
fn includes_of_either_syntax() {
    let (reading, _) = read_files(&[
        (
            "kp.yaml",
            b"http:\n  include: [u.d/*.conf, s.yml]\n  map: {$a $b: {include: m.conf}}\n",
        ),
        ("u.d/1.conf", b"upstream a { server b; }\n"),
        ("u.d/2.conf", b"upstream c { server d; }\n"),
        ("s.yml", b"server: [{location: {/: {include: l.conf}}}]\n"),
        ("l.conf", b"root /x;\n"),
        ("m.conf", b"hostnames;\nx y;\n"),
    ]);
    assert_eq!(findings(&reading), [""; 0]);
    let expected = "http {upstream a {server b;} upstream c {server d;} \
            server {location / {root /x;}} map $a $b {hostnames; x y;}}";
    assert_eq!(tree(&reading.directives), expected);
}

#[test]
fn the_enclosing_blocks() {
    let reading = yaml(
        "http:\n  server:\n    - location:\n        /a: {proxy_pass: x;}\n      root: y;\n  sendfile: z;\n",
    );
    let labels = |one: &crate::Diagnostic| -> Vec<String> {
        let blocks = reading.sources.enclosing(one.span.unwrap());
        blocks
            .into_iter()
            .map(|(_, label)| label.to_owned())
            .collect()
    };
    let within: Vec<_> = reading.diagnostics.iter().map(labels).collect();
    assert_eq!(
        within,
        [
            vec!["location \"/a\"", "server", "http"],
            vec!["server", "http"],
            vec!["http"]
        ]
    );
}

/// A YAML value with the scalar texts of [`serde_yaml`]'s reading, as this front end reads it.
fn value(node: &Node) -> serde_yaml::Value {
    match &node.value {
        Value::Scalar(scalar) if scalar.is_null() => serde_yaml::Value::Null,
        Value::Scalar(scalar) => serde_yaml::Value::String(scalar.text.clone()),
        Value::List(elements) => {
            serde_yaml::Value::Sequence(elements.iter().map(|one| value(one)).collect())
        }
        Value::Map { pairs, .. } => {
            let pairs = pairs.iter().map(|(key, one)| (value(key), value(one)));
            serde_yaml::Value::Mapping(pairs.collect())
        }
    }
}

/// Numbers and booleans as texts: this front end keeps texts, and the other's readings of them are its own.
fn same_value(ours: &serde_yaml::Value, theirs: &serde_yaml::Value) -> bool {
    use serde_yaml::Value::{Bool, Mapping, Null, Number, Sequence, String};
    match (ours, theirs) {
        (String(_), Number(_) | Bool(_)) => true,
        (String(left), String(right)) => left == right,
        (Null, Null) => true,
        (Sequence(left), Sequence(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same_value(left, right))
        }
        (Mapping(left), Mapping(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same_value(left.0, right.0) && same_value(left.1, right.1))
        }
        _ => false,
    }
}

/// YAML as people write it: keys, lists and scalars in every style, indented at random.
fn any_document() -> impl Strategy<Value = String> {
    let pieces = vec![
        "a", "b c", "\n", "\n  ", "\n    ", "a: ", "b: ", "c:", "- ", "[", "]", "{", "}", ", ",
        "'", "\"", "''", "\\n", "|\n", ">-\n", "# d\n", "1.10", "on", "~", "ü",
    ];
    proptest::collection::vec(proptest::sample::select(pieces), 0..16)
        .prop_map(|pieces| format!("k: {}\n", pieces.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 4))]

    #[test]
    fn a_document_is_what_another_parser_reads(text in any_document()) {
        let ours = node::read(FileId(0), &text);
        let theirs = serde_yaml::from_str::<serde_yaml::Value>(&text);
        if let (Ok(Some(ours)), Ok(theirs)) = (ours, theirs) {
            let ours = value(&ours);
            prop_assert!(same_value(&ours, &theirs), "{:?} is not {:?}", ours, theirs);
        }
    }

    #[test]
    fn any_bytes_are_read_and_shown(bytes in any_bytes()) {
        let reading = read_bytes(&bytes, "kp.yaml");
        let shown = crate::render(&reading.diagnostics, &reading.sources);
        prop_assert_eq!(shown.is_empty(), reading.diagnostics.is_empty());
    }

    #[test]
    fn any_document_is_read_and_shown(text in any_document()) {
        let reading = read_bytes(format!("http:\n {text}").as_bytes(), "kp.yaml");
        crate::render(&reading.diagnostics, &reading.sources);
    }

    #[test]
    fn a_word_is_found_where_it_was_written(words in proptest::collection::vec("[a-zü]{1,4}", 1..5), style in 0..5_usize) {
        let joined = words.join("  ");
        let (before, after) = [("", ""), ("'", "'"), ("\"", "\""), ("|\n    ", "\n"), (">\n    ", "\n")][style];
        let text = format!("pid: {before}{joined}{after}");
        let reading = yaml(&text);
        let found = &reading.directives[0].args;
        prop_assert_eq!(found.len(), words.len());
        for word in found {
            let line = text.lines().nth(word.span.line as usize - 1).unwrap();
            let there = line.chars().skip(word.span.column as usize - 1).take(word.span.length as usize);
            prop_assert_eq!(there.collect::<String>(), word.text.clone());
        }
    }
}
