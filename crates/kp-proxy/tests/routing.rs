//! Routing against `routing.cases`: configurations, requests, and what nginx answers to them.
//!
//! The file is data, so that the same lines can be put to a real nginx; here they go through the public face of routing:
//! load, compile, parse, `begin`, `route`, `error_page`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use kp_config::model::{FileTest, Handler};
use kp_http::{HeadLimits, HeadReader};
use kp_proxy::context::Dates;
use kp_proxy::{Answer, Context, ErrorAction, Exchange, Facts, Now, Program, Routed};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

struct World;

impl Facts for World {
    fn local_address(&self) -> Option<SocketAddr> {
        Some("127.0.0.1:8080".parse().unwrap())
    }

    fn tcp_info(&self) -> Option<[u32; 4]> {
        Some([1, 2, 3, 4])
    }

    fn file_test(&self, path: &Path, test: FileTest) -> bool {
        match test {
            FileTest::File => path == Path::new("/etc/passwd"),
            FileTest::Directory => path == Path::new("/etc"),
            FileTest::Exists | FileTest::Executable => false,
        }
    }

    fn real_path(&self, path: &Path) -> Option<PathBuf> {
        Some(path.to_path_buf())
    }

    fn random(&self) -> [u8; 16] {
        [7; 16]
    }
}

/// A configuration to put requests to.
struct Bed {
    config: kp_config::Config,
    program: Program,
    dates: Dates,
}

impl Bed {
    fn new(http: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "events {{ }} http {{ {} \n}}",
            http.replace("LISTEN", "127.0.0.1:8080")
        );
        std::fs::write(directory.path().join("kp.conf"), text).unwrap();
        let loaded = kp_config::load(&kp_config::LoadOptions {
            path: "kp.conf".into(),
            prefix: directory.path().to_path_buf(),
            ..kp_config::LoadOptions::default()
        });
        let rendered = kp_config::render(&loaded.diagnostics, &loaded.sources);
        let config = loaded.config.unwrap_or_else(|| panic!("{rendered}"));
        let program = Program::compile(&config).unwrap();
        Self {
            config,
            program,
            dates: Dates::default(),
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            config: &self.config,
            now: Now {
                mono_ms: 1_000,
                unix_ms: 1_700_000_000_000,
                dates: &self.dates,
            },
            facts: &World,
            group: "g",
            pid: 1,
            hostname: "box",
        }
    }

    /// Begins an exchange with a head; the status of a refusal.
    fn exchange(&self, head: &[u8]) -> Result<Exchange, u16> {
        let mut exchange = Exchange::default();
        exchange.connection.remote = Some("127.0.0.1:999".parse().unwrap());
        exchange.connection.requests = 1;
        let mut input = head.to_vec();
        let read = HeadReader::default()
            .request(
                &mut input,
                &mut exchange.request.head,
                &HeadLimits::default(),
            )
            .map_err(|error| error.status())?;
        assert!(read, "the head is not complete");
        kp_proxy::begin(&mut exchange, &self.program, &self.context()).map_err(|bad| bad.status)?;
        Ok(exchange)
    }

    /// Routes until something other than routing has to happen. There are no files.
    fn settle(&self, exchange: &mut Exchange) -> Routed {
        let context = self.context();
        let mut routed = self.program.route(exchange, &context);
        loop {
            match routed {
                Routed::Handle if self.is_static(exchange) => {
                    routed = Routed::Answer(Answer::status(404));
                }
                Routed::Answer(answer) if answer.interceptable => {
                    match self.program.error_page(exchange, answer.status, &context) {
                        None => return Routed::Answer(answer),
                        Some(ErrorAction::Answer(answer)) => return Routed::Answer(answer),
                        Some(ErrorAction::Reroute) => {
                            routed = self.program.route(exchange, &context);
                        }
                    }
                }
                routed => return routed,
            }
        }
    }

    fn is_static(&self, exchange: &Exchange) -> bool {
        self.config.http.locations[exchange.location.index()].handler == Handler::Static
    }

    /// One line of the file's left side to its right side.
    fn ask(&self, line: &str) -> String {
        let mut exchange = match self.exchange(&head_of(line)) {
            Ok(exchange) => exchange,
            Err(status) => return status.to_string(),
        };
        match self.settle(&mut exchange) {
            Routed::Handle => panic!("{line}: no handler is part of this test"),
            Routed::Close(_) => String::from("closed"),
            Routed::Answer(Answer {
                status,
                body,
                location,
                ..
            }) => match location.or(body) {
                Some(text) if status != 204 => {
                    format!("{status} {}", String::from_utf8_lossy(&text))
                }
                _ => status.to_string(),
            },
        }
    }
}

fn head_of(line: &str) -> Vec<u8> {
    let mut parts = line.split(" | ");
    let mut head = format!("{} HTTP/1.1\r\n", parts.next().unwrap());
    let fields: Vec<&str> = parts.collect();
    if !fields.iter().any(|field| field.starts_with("Host:")) {
        head.push_str("Host: h\r\n");
    }
    for field in fields {
        head.push_str(field);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

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
