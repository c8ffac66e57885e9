//! The answer to a check, taken in as it comes: however its bytes are split, the verdict is the same.
//!
//! Holds what is bounded: one head, so many interim ones before it, and the beginning of a body. Has no socket and no
//! time; what a peer that hangs is told of is `talk`'s.

use super::talk::Trouble;
use kp_config::model::{CheckProtocol, MatchBlock};
use kp_http::{BodyDecoder, HeadLimits, HeadReader, Method};
use kp_proxy::health::{CheckVerdict, Mismatch, judge, judge_bytes};
use kp_proxy::{Context, Exchange, Program};

/// How much of a body is looked at.
const BODY_MAX: usize = 256 * 1024;
/// Interim responses before the final one.
const INTERIM_MAX: u32 = 16;

/// What came so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// What is not yet used.
    pub(super) input: Vec<u8>,
    reader: HeadReader,
    interim: u32,
    decoder: Option<BodyDecoder>,
    body: Vec<u8>,
}

/// By what an answer is judged.
pub(super) struct Bench<'a> {
    pub(super) protocol: CheckProtocol,
    pub(super) block: Option<&'a MatchBlock>,
    pub(super) limits: &'a HeadLimits,
    pub(super) program: &'a Program,
    pub(super) context: &'a Context<'a>,
}

impl Answer {
    /// Whether the head is there, and the body is awaited.
    pub(super) fn is_in_body(&self) -> bool {
        self.decoder.is_some()
    }

    /// What is made of it so far; `None`: more of it may decide.
    pub(super) fn advance(
        &mut self,
        exchange: &mut Exchange,
        bench: &Bench<'_>,
    ) -> Option<Result<(), Trouble>> {
        if bench.protocol == CheckProtocol::Tcp {
            return self.bytes(bench);
        }
        if self.decoder.is_none()
            && let Some(verdict) = self.head(exchange, bench)
        {
            return Some(verdict);
        }
        self.piece(exchange, bench)
    }

    /// What is made of it when nothing more will come.
    pub(super) fn end(
        &mut self,
        exchange: &mut Exchange,
        bench: &Bench<'_>,
    ) -> Result<(), Trouble> {
        match self.decoder.as_mut().map(BodyDecoder::finish_on_eof) {
            Some(Ok(())) => self
                .judge(exchange, bench, true)
                .unwrap_or(Err(Trouble::Internal)),
            _ => Err(Trouble::Closed),
        }
    }

    /// Reads heads up to the final one.
    fn head(&mut self, exchange: &mut Exchange, bench: &Bench<'_>) -> Option<Result<(), Trouble>> {
        loop {
            let head = exchange.response.upstream_head();
            let read = &mut self.reader;
            match read.response(&mut self.input, head, Method::Get, bench.limits) {
                Ok(false) => return None,
                Err(error) => return Some(Err(Trouble::Garbage(error.to_string()))),
                Ok(true) if head.is_interim() => {
                    self.interim += 1;
                    if self.interim > INTERIM_MAX {
                        let text = "too many interim responses".to_owned();
                        return Some(Err(Trouble::Garbage(text)));
                    }
                    exchange.response.forget_upstream();
                }
                Ok(true) => {
                    self.decoder = Some(BodyDecoder::new(head.framing));
                    return self.judge(exchange, bench, false);
                }
            }
        }
    }

    /// Takes what came of the body.
    fn piece(&mut self, exchange: &mut Exchange, bench: &Bench<'_>) -> Option<Result<(), Trouble>> {
        let decoder = self.decoder.as_mut()?;
        let mut used = 0;
        while used < self.input.len() && !decoder.is_done() && self.body.len() < BODY_MAX {
            let here = self.input.get(used..).unwrap_or_default();
            match decoder.decode(here) {
                Ok(piece) => {
                    let data = here.get(piece.data).unwrap_or_default();
                    self.body.extend_from_slice(data);
                    used += piece.consumed;
                    if piece.consumed == 0 {
                        break;
                    }
                }
                Err(error) => return Some(Err(Trouble::Garbage(error.to_string()))),
            }
        }
        let done = decoder.is_done();
        self.input.drain(..used);
        self.body.truncate(BODY_MAX);
        if done || self.body.len() == BODY_MAX {
            return self.judge(exchange, bench, true);
        }
        None
    }

    fn judge(
        &mut self,
        exchange: &mut Exchange,
        bench: &Bench<'_>,
        whole: bool,
    ) -> Option<Result<(), Trouble>> {
        let body = whole.then_some(self.body.as_slice());
        let head = exchange.response.upstream.as_ref();
        let status = head.map_or(0, |head| head.status);
        match judge(bench.block, exchange, body, bench.program, bench.context) {
            CheckVerdict::Passed => Some(Ok(())),
            CheckVerdict::NeedsBody => None,
            CheckVerdict::Failed(mismatch) => Some(Err(trouble_of(mismatch, status))),
        }
    }

    /// A tcp check: the bytes are looked at as they are.
    fn bytes(&mut self, bench: &Bench<'_>) -> Option<Result<(), Trouble>> {
        match judge_bytes(bench.block, &self.input, bench.program) {
            CheckVerdict::Passed => Some(Ok(())),
            CheckVerdict::Failed(mismatch) => Some(Err(trouble_of(mismatch, 0))),
            CheckVerdict::NeedsBody if self.input.len() >= BODY_MAX => {
                Some(Err(trouble_of(Mismatch::Expect, 0)))
            }
            CheckVerdict::NeedsBody => None,
        }
    }
}

fn trouble_of(mismatch: Mismatch, status: u16) -> Trouble {
    match mismatch {
        Mismatch::Status => Trouble::Status(status),
        Mismatch::Header => Trouble::Condition("header"),
        Mismatch::Body => Trouble::Condition("body"),
        Mismatch::Require => Trouble::Condition("require"),
        Mismatch::Expect => Trouble::Condition("expect"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::facts::ConnectionFacts;
    use kp_config::{Config, LoadOptions};
    use kp_proxy::Now;
    use kp_proxy::context::Dates;

    fn config(conditions: &str, protocol: CheckProtocol) -> Config {
        let kind = match protocol {
            CheckProtocol::Http => "http",
            CheckProtocol::Tcp => "tcp",
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kp.conf");
        let text = format!(
            "events {{}} http {{ match m {{ {conditions} }} upstream u {{ server 127.0.0.1:1; }} server {{ listen 127.0.0.1:8080;
             location / {{ proxy_pass http://u; health_check type={kind} match=m; }} }} }}"
        );
        std::fs::write(&path, text).unwrap();
        let loaded = kp_config::load(&LoadOptions {
            path,
            prefix: directory.path().to_owned(),
            ..LoadOptions::default()
        });
        let problems = kp_config::render(&loaded.diagnostics, &loaded.sources);
        loaded.config.unwrap_or_else(|| panic!("{problems}"))
    }

    fn nobody() -> ConnectionFacts<'static> {
        ConnectionFacts::of(
            None,
            0,
            Box::leak(Box::new(kp_shm::Shm::private().unwrap())),
        )
    }

    /// The verdict on an answer that comes in these pieces before its end.
    fn verdict(
        config: &Config,
        program: &Program,
        protocol: CheckProtocol,
        pieces: &[&[u8]],
    ) -> Result<(), Trouble> {
        let (facts, dates) = (nobody(), Dates::default());
        let context = Context {
            config,
            now: Now {
                mono_ms: 1000,
                unix_ms: 1000,
                dates: &dates,
            },
            facts: &facts,
            limits: None,
            pid: 1,
            hostname: "host",
            group: "0",
        };
        let bench = Bench {
            protocol,
            block: config.http.matches.first(),
            limits: &HeadLimits::default(),
            program,
            context: &context,
        };
        let (mut answer, mut exchange) = (Answer::default(), Exchange::default());
        for piece in pieces {
            answer.input.extend_from_slice(piece);
            if let Some(verdict) = answer.advance(&mut exchange, &bench) {
                return verdict;
            }
        }
        answer.end(&mut exchange, &bench)
    }

    /// Every answer in one piece, byte by byte, and in two at every place.
    fn agrees(conditions: &str, protocol: CheckProtocol, answer: &[u8], expected: &str) {
        let config = config(conditions, protocol);
        let program = Program::compile(&config).unwrap();
        let say = |pieces: &[&[u8]]| match verdict(&config, &program, protocol, pieces) {
            Ok(()) => "passed".to_owned(),
            Err(trouble) => format!("{trouble:?}"),
        };
        let whole = say(&[answer]);
        assert!(whole.starts_with(expected), "{conditions}: {whole}");
        let bytes: Vec<&[u8]> = answer.chunks(1).collect();
        assert_eq!(say(&bytes), whole, "{conditions}: byte by byte");
        for at in 0..=answer.len() {
            let (first, second) = answer.split_at(at);
            assert_eq!(say(&[first, second]), whole, "{conditions}: split at {at}");
        }
    }

    #[test]
    fn any_split_of_an_answer_has_the_same_verdict() {
        const LENGTH: &[u8] =
            b"HTTP/1.1 200 OK\r\nX: a\r\nContent-Length: 11\r\n\r\nhello worldHTTP/1.1 rest";
        const CHUNKED: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\
            Transfer-Encoding: chunked\r\n\r\n6;x=y\r\nhello \r\n5\r\nworld\r\n0\r\nT: t\r\n\r\n";
        const CLOSED: &[u8] = b"HTTP/1.0 503 No\r\n\r\nhello world";
        const SHORT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello world";
        const BROKEN: &[u8] =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n";
        let http = CheckProtocol::Http;
        for answer in [LENGTH, CHUNKED] {
            agrees("body ~ ^hello.world$;", http, answer, "passed");
            agrees("body !~ world;", http, answer, "Condition(\"body\")");
            agrees("status 503;", http, answer, "Status(200)");
        }
        agrees("header X = a;", http, LENGTH, "passed");
        agrees("header X = b;", http, LENGTH, "Condition(\"header\")");
        agrees("status 503; body ~ world;", http, CLOSED, "passed");
        agrees("body ~ world;", http, SHORT, "Closed");
        agrees("body ~ world;", http, BROKEN, "Garbage");
        agrees("status 200;", http, b"SSH-2.0-x\r\n", "Garbage");
        agrees("status 200;", http, b"HTTP/1.1 200 O", "Closed");
        agrees("status 200;", http, b"", "Closed");
        let many = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(17);
        agrees("body !~ y;", http, &many, "Garbage(\"too many");
    }

    #[test]
    fn any_split_of_what_a_tcp_check_is_told_has_the_same_verdict() {
        let tcp = CheckProtocol::Tcp;
        agrees("expect +PONG;", tcp, b"+PONG\r\n", "passed");
        agrees("expect +PONG;", tcp, b"+PUNG\r\n", "Condition(\"expect\")");
        agrees("expect +PONG;", tcp, b"+PO", "Closed");
        agrees("expect ~ \"ready\";", tcp, b"220 it is ready now", "passed");
        agrees("expect ~ \"ready\";", tcp, b"220 not yet", "Closed");
    }
}
