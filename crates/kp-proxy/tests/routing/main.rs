//! Routing and variables through their public face: load, compile, parse, `begin`, `route`, `error_page`, `evaluate`.
//!
//! `routing.cases` is data (configurations, requests, and what nginx answers), so that the same lines can be put to a
//! real nginx.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bed;
mod tls;
mod variables;

use bed::{Bed, load};
use kp_proxy::{Fault, Program, Routed};
use proptest::prelude::*;

#[test]
fn as_nginx_answers() {
    let mut wrong = Vec::new();
    let mut asked = 0;
    for case in include_str!("routing.cases").split("\n== ").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        let (http, requests) = rest.split_once("\n--\n").unwrap();
        let bed = Bed::new(http);
        for line in requests
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        {
            let (request, expected) = line.split_once(" => ").unwrap();
            let found = bed.ask(request);
            asked += 1;
            if found != expected {
                wrong.push(format!(
                    "{name}: {request}\n   nginx: {expected}\n   kp:    {found}"
                ));
            }
        }
    }
    assert!(asked > 200, "{asked}");
    assert!(
        wrong.is_empty(),
        "{} of {asked}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A configuration in which every part of routing can be reached from the outside.
const EVERYTHING: &str = r#"
    map $uri $m { default "$arg_x$1"; ~^/(?<mm>.*)$ $mm; }
    server {
        listen LISTEN default_server;
        server_name ~^(?<sub>.*)\.org$ a.com *.a.com b.*;
        set $s "$args-$sub-$m";
        rewrite ^/sr/(.*)$ /r/$1?$args;
        error_page 404 405 413 /err?u=$uri;
        error_page 500 @named;
        location / { if ($uri ~ "(.)(.)?$") { set $c $1$2; } return 200 "$c$m$arg_a$cookie_b$http_x"; }
        location /p/ { proxy_pass http://127.0.0.1:1/x/; }
        location ~ ^/(?!api)(?<rest>.*)\.x$ { rewrite ^(.*)\.x$ $1 last; }
        location /r/ { rewrite ^/r/(.*)$ /$1; }
        location /d/ { rewrite ^/d/(.*)$ http://h/$1 permanent; }
        location /i/ { internal; }
        location /err { return 200 "$request_uri$args"; }
        location @named { return 302 /x$uri; }
    }
    server { listen LISTEN; server_name other; location = /o { return 204; } }
"#;

proptest! {
    /// Whatever the target and the names: an answer, no panic, and no more changes of the URI than allowed.
    #[test]
    fn routing_survives_any_target(
        target in proptest::collection::vec(any::<u8>(), 0..60),
        piece in prop::sample::select(vec!["/", "/p", "/p/%2e%2e/", "/r/r/r/", "/sr/a?b", "/d/%3f", "/i/", "/a.x", "*", "h:1"]),
        method in prop::sample::select(vec!["GET", "HEAD", "POST", "TRACE", "CONNECT", "OPTIONS", "X"]),
        host in prop::sample::select(vec!["a.com", "x.a.com", "b.", "q.org", "other:1", "[::1]", "%41"]),
    ) {
        thread_local! {
            static BED: Bed = Bed::new(EVERYTHING);
        }
        let mut head = format!("{method} {piece}").into_bytes();
        head.extend(target.iter().filter(|byte| !matches!(**byte, b' ' | b'\r' | b'\n')));
        head.extend_from_slice(format!(" HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        BED.with(|bed| {
            if let Ok(mut exchange) = bed.exchange(&head) {
                let routed = bed.settle(&mut exchange);
                prop_assert!(exchange.request.uri_changes <= 11);
                let refused = matches!(method, "TRACE" | "CONNECT") && routed == Routed::Handle;
                prop_assert!(!refused);
            }
            Ok(())
        })?;
    }
}

#[test]
fn every_bad_expression_is_reported() {
    let config = load(
        r#"server {
            listen LISTEN;
            server_name "~(";
            location ~ "(?|a|b)" { rewrite "[" /x; }
            location ~ ^/fine$ { }
        }"#,
    );
    let problems = Program::compile(&config).unwrap_err();
    let found: Vec<(u32, &str)> = problems
        .iter()
        .map(|problem| (problem.span.unwrap().line, problem.message.as_str()))
        .collect();
    assert_eq!(found.len(), 3, "{found:?}");
    for (line, text) in [(3, "\"(\""), (4, "\"(?|a|b)\""), (4, "\"[\"")] {
        assert!(
            found
                .iter()
                .any(|(at, message)| *at == line && message.contains(text)),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn an_expression_that_takes_too_long_is_a_500_with_its_fault() {
    let bed = Bed::new(
        r#"map $arg_m $m { ~^((?!x)a+)+$ yes; default no; }
        server {
            listen LISTEN;
            location ~ ^/((?!x)a+)+$ { return 200 matched; }
            location /m { return 200 $m; }
            location /if { if ($arg_m ~ ^((?!x)a+)+$) { return 200 yes; } return 200 no; }
            location / { return 200 no; }
        }"#,
    );
    let long = "a".repeat(60);
    assert_eq!(bed.ask("GET /aaa"), "200 matched");
    assert_eq!(bed.ask("GET /m?m=aaa"), "200 yes");
    assert_eq!(bed.ask("GET /if?m=aab"), "200 no");
    for target in [
        format!("/{long}!"),
        format!("/m?m={long}!"),
        format!("/if?m={long}!"),
    ] {
        let mut exchange = bed
            .exchange(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes())
            .unwrap();
        let Routed::Answer(answer) = bed.settle(&mut exchange) else {
            panic!("{target}")
        };
        assert_eq!(answer.status, 500, "{target}");
        assert!(
            matches!(exchange.record.fault, Some(Fault::RegexLimit(_))),
            "{target}"
        );
    }
}

#[test]
fn faults_are_kept_for_the_log() {
    let bed = Bed::new(
        r#"map $b $a { default "$b"; }
        map $a $b { default "$a"; }
        server {
            listen LISTEN;
            error_page 404 @nothing;
            location /map { return 200 "[$a]"; }
            location /cycle { rewrite ^ /cycle; }
            location /named { return 404; }
            location /empty { rewrite ^ $arg_none; }
        }"#,
    );
    let fault = |target: &str| {
        let mut exchange = bed
            .exchange(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes())
            .unwrap();
        bed.settle(&mut exchange);
        exchange.record.fault
    };
    assert!(matches!(fault("/map"), Some(Fault::VariableCycle(_))));
    assert_eq!(fault("/cycle"), Some(Fault::Cycle));
    assert_eq!(fault("/named"), Some(Fault::NoNamedLocation));
    assert_eq!(fault("/empty"), Some(Fault::EmptyUri));
}

#[test]
fn a_request_without_a_name_gets_the_default_server() {
    let bed = Bed::new(
        r#"server { listen LISTEN; server_name first; return 200 "$host"; }
        server { listen LISTEN; server_name second ""; return 200 "$host"; }"#,
    );
    let answer = |head: &str| {
        let mut exchange = bed.exchange(head.as_bytes())?;
        match bed.settle(&mut exchange) {
            Routed::Answer(answer) => Ok(String::from_utf8(answer.body.unwrap()).unwrap()),
            other => panic!("{other:?}"),
        }
    };
    // As nginx: the server with the empty name, and its primary name as $host.
    assert_eq!(answer("GET / HTTP/1.0\r\n\r\n"), Ok("second".to_owned()));
    assert_eq!(answer("GET / HTTP/1.1\r\n\r\n"), Err(400));
}

proptest! {
    /// The sorted table with its parents finds what a search through all texts finds.
    #[test]
    fn the_longest_prefix_wins(
        texts in proptest::collection::btree_set("/[ab/]{0,5}", 1..20),
        exact in any::<u64>(),
        targets in proptest::collection::vec("/[ab/c]{0,7}", 1..20),
    ) {
        let is_exact = |index: usize| exact >> index & 1 == 1;
        let mut http = String::from("server { listen LISTEN; merge_slashes off;\n");
        for (index, text) in texts.iter().enumerate() {
            let mark = if is_exact(index) { "=" } else { "" };
            http.push_str(&format!("location {mark} \"{text}\" {{ return 200 \"{mark}{text}\"; }}\n"));
        }
        http.push('}');
        let bed = Bed::new(&http);
        for target in &targets {
            let same = texts.iter().enumerate().find(|(index, text)| is_exact(*index) && *text == target);
            let longest = texts
                .iter()
                .enumerate()
                .filter(|(index, text)| !is_exact(*index) && target.starts_with(text.as_str()))
                .max_by_key(|(_, text)| text.len());
            let expected = match (same, longest) {
                (Some((_, text)), _) => format!("200 ={text}"),
                (None, Some((_, text))) => format!("200 {text}"),
                (None, None) => String::from("404"),
            };
            prop_assert_eq!(bed.ask(&format!("GET {target}")), expected, "{}", target);
        }
    }
}
