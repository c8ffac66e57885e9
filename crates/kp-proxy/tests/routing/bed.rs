//! A configuration to put requests to, and the world around it.

use kp_config::model::{FileTest, Handler};
use kp_http::{HeadLimits, HeadReader};
use kp_proxy::context::Dates;
use kp_proxy::{
    Answer, BodyPlan, ClientCertificate, Context, ErrorAction, Exchange, Facts, Now, Program,
    Reason, Routed,
};
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

    fn connections(&self) -> kp_proxy::context::Connections {
        kp_proxy::context::Connections {
            active: 4,
            reading: 1,
            writing: 1,
            waiting: 2,
        }
    }

    fn random(&self) -> [u8; 16] {
        [7; 16]
    }

    /// The name of the part, and something like a certificate.
    fn client_certificate(&self, part: ClientCertificate, out: &mut Vec<u8>) -> bool {
        match part {
            ClientCertificate::Pem => out.extend_from_slice(b"-----BEGIN\na+b\n-----END\n"),
            part => out.extend_from_slice(format!("{part:?}").as_bytes()),
        }
        true
    }
}

/// A loaded and compiled configuration.
pub(crate) struct Bed {
    pub(crate) config: kp_config::Config,
    pub(crate) program: Program,
    dates: Dates,
}

impl Bed {
    pub(crate) fn new(http: &str) -> Self {
        let config = load(http);
        let program = Program::compile(&config).unwrap();
        let dates = Dates {
            http: "Sun, 29 Nov 2026 22:49:12 GMT".into(),
            local: "29/Nov/2026:22:49:12 +0000".into(),
            iso8601: "2026-11-29T22:49:12+00:00".into(),
            error_log: "2026/11/29 22:49:12".into(),
        };
        Self {
            config,
            program,
            dates,
        }
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            config: &self.config,
            now: Now {
                mono_ms: 1_000,
                unix_ms: 1_700_000_000_000,
                dates: &self.dates,
            },
            facts: &World,
            group: "g",
            limits: None,
            pid: 1,
            hostname: "box",
        }
    }

    /// Begins an exchange with a head; the status of a refusal.
    pub(crate) fn exchange(&self, head: &[u8]) -> Result<Exchange, u16> {
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
    pub(crate) fn settle(&self, exchange: &mut Exchange) -> Routed {
        let context = self.context();
        let mut routed = self.program.route(exchange, &context);
        loop {
            match routed {
                Routed::Handle if self.is_static(exchange) => {
                    routed = Routed::Answer(Answer::status(404, Reason::FileNotFound));
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

    /// What an upstream answers that echoes the request target.
    fn upstream_echo(&self, exchange: &mut Exchange) -> String {
        let context = self.context();
        kp_proxy::resolve_target(exchange, &self.program, &context).unwrap();
        let mut head = Vec::new();
        kp_proxy::request_head(&mut head, exchange, &self.program, &context, BodyPlan::None);
        let target = head.split(|byte| *byte == b' ').nth(1).unwrap();
        let status = match exchange.request.forced_status {
            0 => 200,
            status => status,
        };
        format!("{status} {}", String::from_utf8_lossy(target))
    }

    fn is_static(&self, exchange: &Exchange) -> bool {
        self.config.http.locations[exchange.location.index()].handler == Handler::Static
    }

    /// One line of the file's left side to its right side.
    pub(crate) fn ask(&self, line: &str) -> String {
        let mut exchange = match self.exchange(&head_of(line)) {
            Ok(exchange) => exchange,
            Err(status) => return status.to_string(),
        };
        match self.settle(&mut exchange) {
            Routed::Handle => self.upstream_echo(&mut exchange),
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

/// Loads what stands inside `http { }`.
pub(crate) fn load(http: &str) -> kp_config::Config {
    let directory = tempfile::tempdir().unwrap();
    let http = http
        .replace("LISTEN", "127.0.0.1:8080")
        .replace("UPSTREAM", "127.0.0.1:9");
    std::fs::write(
        directory.path().join("kp.conf"),
        format!("events {{ }} http {{ {http} \n}}"),
    )
    .unwrap();
    let loaded = kp_config::load(&kp_config::LoadOptions {
        path: "kp.conf".into(),
        prefix: directory.path().to_path_buf(),
        ..kp_config::LoadOptions::default()
    });
    let rendered = kp_config::render(&loaded.diagnostics, &loaded.sources);
    loaded.config.unwrap_or_else(|| panic!("{rendered}"))
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
