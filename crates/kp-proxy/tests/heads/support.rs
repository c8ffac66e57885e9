//! A world for one configuration: parses requests and responses as the worker would, and stands still in time.

use kp_config::model::FileTest;
use kp_config::{Config, LoadOptions};
use kp_http::{HeadLimits, HeadReader, Method, ResponseHead};
use kp_proxy::context::{Dates, Now};
use kp_proxy::exchange::{Attempt, Exchange};
use kp_proxy::{BodyPlan, Context, Facts, Outgoing, Program, Reply, Routed, begin};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What `Date` says in every test.
pub(crate) const DATE: &str = "Sun, 29 Nov 2026 23:00:00 GMT";
/// The two lines every head of kp begins with, after the status line.
pub(crate) const OWN: &str = "Server: kp/0.1.0\r\nDate: Sun, 29 Nov 2026 23:00:00 GMT\r\n";

pub(crate) struct World {
    config: Config,
    program: Program,
    dates: Dates,
}

struct Fixed;

impl Facts for Fixed {
    fn local_address(&self) -> Option<SocketAddr> {
        Some(SocketAddr::from(([127, 0, 0, 1], 8080)))
    }

    fn tcp_info(&self) -> Option<[u32; 4]> {
        None
    }

    fn file_test(&self, _: &Path, _: FileTest) -> bool {
        false
    }

    fn real_path(&self, path: &Path) -> Option<PathBuf> {
        Some(path.to_owned())
    }

    fn connections(&self) -> kp_proxy::context::Connections {
        kp_proxy::context::Connections::default()
    }

    fn random(&self) -> [u8; 16] {
        [0xab; 16]
    }

    fn client_certificate(&self, _: kp_proxy::ClientCertificate, _: &mut Vec<u8>) -> bool {
        false
    }
}

impl World {
    /// The text is the inside of one `server`, which listens on 127.0.0.1:8080; `upstream u` and `backend` exist.
    pub(crate) fn new(server: &str) -> Self {
        Self::http(&format!(
            "server {{ listen 127.0.0.1:8080; server_name example.test; {server} }}"
        ))
    }

    /// The text is the inside of `http`, besides the two groups.
    pub(crate) fn http(http: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kp.conf");
        let text = format!(
            "events {{}} http {{ upstream u {{ server 127.0.0.1:9001; }} upstream Backend {{ server 127.0.0.1:9002; }} {http} }}"
        );
        std::fs::write(&path, text).expect("written");
        let loaded = kp_config::load(&LoadOptions {
            path,
            prefix: directory.path().to_owned(),
            resolve_names: false,
            ..LoadOptions::default()
        });
        let problems = kp_config::render(&loaded.diagnostics, &loaded.sources);
        let config = loaded.config.unwrap_or_else(|| panic!("{problems}"));
        let program = Program::compile(&config).expect("compiles");
        let dates = Dates {
            http: DATE.into(),
            local: "29/Nov/2026:23:00:00 +0000".into(),
            iso8601: "2026-11-29T23:00:00+00:00".into(),
            error_log: "2026/11/29 23:00:00".into(),
        };
        Self {
            config,
            program,
            dates,
        }
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            config: &self.config,
            now: Now {
                mono_ms: 5_000,
                unix_ms: 1_796_079_600_000,
                dates: &self.dates,
            },
            facts: &Fixed,
            limits: None,
            pid: 1,
            hostname: "host",
            group: "0123456789abcdef",
        }
    }

    /// A request, parsed and taken in, not routed.
    pub(crate) fn taken(&self, request: &[u8]) -> Exchange {
        let mut exchange = self.fresh(request);
        begin(&mut exchange, &self.program, &self.context()).expect("begins");
        exchange
    }

    /// A request, parsed.
    pub(crate) fn fresh(&self, request: &[u8]) -> Exchange {
        let mut exchange = Exchange::default();
        let mut input = request.to_vec();
        let early = &self.config.http.servers[0].early;
        let limits = HeadLimits {
            underscores: early.underscores_in_headers,
            ..HeadLimits::default()
        };
        let complete = HeadReader::default()
            .request(&mut input, &mut exchange.request.head, &limits)
            .expect("a head");
        assert!(complete, "a whole head");
        exchange.connection.remote = Some(SocketAddr::from(([192, 0, 2, 7], 4711)));
        exchange.connection.requests = 1;
        exchange
    }

    /// A request, routed to a handler.
    pub(crate) fn exchange(&self, request: &[u8]) -> Exchange {
        let mut exchange = self.taken(request);
        let routed = self.program.route(&mut exchange, &self.context());
        assert_eq!(routed, Routed::Handle);
        exchange
    }

    /// Gives the exchange a response head of its upstream.
    pub(crate) fn upstream(&self, exchange: &mut Exchange, response: &[u8]) {
        exchange.response.upstream = Some(parsed(response, exchange.request.head.method));
        exchange.attempts.push(Attempt {
            address: "127.0.0.1:9001".into(),
            ..Attempt::default()
        });
    }

    /// The request head for the upstream.
    pub(crate) fn outgoing(&self, exchange: &mut Exchange, plan: BodyPlan) -> (String, Outgoing) {
        let context = self.context();
        kp_proxy::resolve_target(exchange, &self.program, &context).expect("a target");
        let mut out = Vec::new();
        let outgoing = kp_proxy::request_head(&mut out, exchange, &self.program, &context, plan);
        (String::from_utf8(out).expect("text"), outgoing)
    }

    /// The request head for the upstream of a GET without a body.
    pub(crate) fn sent(&self, request: &[u8]) -> String {
        self.outgoing(&mut self.exchange(request), BodyPlan::None).0
    }

    /// The head the client gets for a response.
    pub(crate) fn answered(&self, request: &[u8], response: &[u8]) -> (String, Reply) {
        let mut exchange = self.exchange(request);
        self.upstream(&mut exchange, response);
        self.reply(&mut exchange)
    }

    /// The head the client gets for the response in the exchange.
    pub(crate) fn reply(&self, exchange: &mut Exchange) -> (String, Reply) {
        let context = self.context();
        let keep = kp_proxy::may_stay(exchange, &context);
        let mut out = Vec::new();
        let reply = kp_proxy::response_head(&mut out, exchange, &self.program, &context, keep);
        (String::from_utf8(out).expect("text"), reply)
    }
}

pub(crate) fn parsed(response: &[u8], asked: Method) -> ResponseHead {
    let mut head = ResponseHead::default();
    let mut input = response.to_vec();
    let complete = HeadReader::default()
        .response(&mut input, &mut head, asked, &HeadLimits::default())
        .expect("a head");
    assert!(complete, "a whole head");
    head
}

/// `GET PATH HTTP/1.1` with a `Host` and more lines.
pub(crate) fn get(path: &str, lines: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\n{lines}\r\n").into_bytes()
}
