//! One check of one peer: connect, shake hands, send, look at what comes.
//!
//! It has a socket, a deadline and limits of its own, and does a bounded amount of work in a turn of the loop. A phase may
//! take the location's timeout, and the whole never longer than the interval. The connection is closed as soon as
//! the result is known.

use super::answer::{Answer, Bench};
use crate::exhaustion;
use crate::preamble::introduce;
use crate::reactor::Worker;
use crate::secure::{Partner, Secure, Shake};
use crate::token::{Key, Kind};
use crate::transport::{Received, Sent, Transport};
use crate::upstream::local_address;
use kp_config::model::{CheckProtocol, HealthCheck, MatchBlock, PeerAddress};
use kp_proxy::Exchange;
use kp_proxy::health::{check_exchange, check_greeting, check_head};
use kp_shm::Counter;
use kp_tls::TlsError;
use std::hash::BuildHasher;
use std::io::{Error, IoSlice};

/// One read.
const READ: usize = 16 * 1024;
/// Reads in one turn of the loop.
const READS_PER_TURN: usize = 8;

/// A check under way.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) transport: Transport,
    stage: Stage,
    exchange: Exchange,
    /// What is sent, and how much of it was.
    output: Vec<u8>,
    sent: usize,
    answer: Answer,
    /// The stage ends here.
    deadline_ms: u64,
    /// The check ends here whatever happens.
    end_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connect,
    Shake,
    Send,
    Answer,
    Body,
}

/// Why a check failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection was not made, or broke, with the system's error number.
    Socket(&'static str, i32),
    /// It took too long.
    Late(&'static str),
    /// TLS.
    Tls(String),
    /// The peer closed before its answer was whole.
    Closed,
    /// The answer is no HTTP.
    Garbage(String),
    /// A status that does not do.
    Status(u16),
    /// Another condition of the `match`.
    Condition(&'static str),
    /// What `proxy_bind` says is no address.
    Local(String),
    /// kp's own fault.
    Internal,
}

impl Trouble {
    /// As one word for the shared row.
    pub(super) fn code(&self) -> u64 {
        match self {
            Self::Socket(_, errno) => 1 << 32 | u64::from(errno.unsigned_abs()),
            Self::Late(_) => 2 << 32,
            Self::Tls(_) => 3 << 32,
            Self::Closed => 4 << 32,
            Self::Garbage(_) => 5 << 32,
            Self::Status(status) => 6 << 32 | u64::from(*status),
            Self::Condition(_) => 7 << 32,
            Self::Local(_) => 8 << 32,
            Self::Internal => 9 << 32,
        }
    }

    /// A code in a few words.
    pub(super) fn named(code: u64) -> Option<String> {
        let detail = code as u32;
        Some(match code >> 32 {
            1 => {
                let error = Error::from_raw_os_error(i32::try_from(detail).unwrap_or(0));
                crate::jobs::errno_text(&error)
            }
            2 => "timed out".to_owned(),
            3 => "TLS failed".to_owned(),
            4 => "closed too early".to_owned(),
            5 => "invalid answer".to_owned(),
            6 => format!("status {detail}"),
            7 => "does not match".to_owned(),
            8 => "invalid local address".to_owned(),
            9 => "internal error".to_owned(),
            _ => return None,
        })
    }

    /// As the log has it.
    pub(super) fn text(&self, check: &HealthCheck) -> String {
        let from = match check.protocol {
            CheckProtocol::Http => format!(" from {}", check.uri),
            CheckProtocol::Tcp => String::new(),
        };
        match self {
            Self::Socket(call, errno) => {
                let error = Error::from_raw_os_error(*errno);
                format!("{call} failed ({})", crate::jobs::errno_text(&error))
            }
            Self::Late(what) => format!("timed out while {what}"),
            Self::Tls(text) => text.clone(),
            Self::Closed => format!("connection closed before the answer{from} was whole"),
            Self::Garbage(text) => format!("invalid answer{from}: {text}"),
            Self::Status(status) => format!("status {status}{from}"),
            Self::Condition(word) => format!("\"{word}\" does not match{from}"),
            Self::Local(text) => format!("invalid local address \"{text}\""),
            Self::Internal => "internal error".to_owned(),
        }
    }
}

impl Talk {
    /// What to say of it when its time is over.
    pub(super) fn too_late(&self, now_ms: u64) -> Option<Trouble> {
        let late = Trouble::Late(match self.stage {
            Stage::Connect => "connecting",
            Stage::Shake => "SSL handshaking",
            Stage::Send => "sending the request",
            Stage::Answer => "waiting for the answer",
            Stage::Body => "reading the answer",
        });
        (self.deadline_ms <= now_ms).then_some(late)
    }
}

/// What a step led to.
enum Step {
    /// Something happened, and more may.
    Again,
    /// An event will come.
    Wait,
    Done(Result<(), Trouble>),
}

impl Worker {
    /// Begins a check.
    pub(super) fn begin_talk(&mut self, key: Key) {
        let Some(target) = self.probes.targets.peek(key) else {
            return;
        };
        let (check, upstream, name) = (target.check, target.upstream, target.name.clone());
        let address = target.address.clone();
        let facts = self.facts_of_nobody();
        let context = self.context(&facts);
        let mut exchange = check_exchange(check, upstream, &name, self.program, &context);
        let bind = self.config.http.locations[check.location.index()]
            .proxy
            .bind
            .as_ref();
        let mut local = Vec::new();
        if let Some(template) = bind {
            kp_proxy::vars::evaluate(template, &mut exchange, self.program, &context, &mut local);
        }
        let local = match local_address(&local) {
            Ok(local) => local,
            Err(trouble) => return self.probe_ended(key, Err(Trouble::Local(trouble))),
        };
        let peer = match &address {
            PeerAddress::Inet(address) => kp_sys::socket::Target::Inet(*address),
            PeerAddress::Unix(path) => kp_sys::socket::Target::Unix(path),
        };
        let opened = kp_sys::socket::connect(peer, local).and_then(|fd| {
            let _ = kp_sys::socket::set_nodelay(&fd, true);
            self.register(&fd, key.token(Kind::Probe)).map(|()| fd)
        });
        let fd = match opened {
            Ok(fd) => fd,
            Err(error) if exhaustion::is_any(&error) => return self.postpone(key),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                return self.probe_ended(key, Err(Trouble::Socket("connect()", errno)));
            }
        };
        let tls = exchange.request.upstream_tls.clone();
        let transport = match tls.identity {
            Some(identity) => {
                let peer = self.hasher.hash_one(&address);
                let number = 1;
                let partner = Partner {
                    identity,
                    tls,
                    peer,
                    number,
                };
                Transport::with_tls(fd, false, Secure::connecting(partner))
            }
            None => Transport::new(fd, false),
        };
        let now_ms = self.clock.mono_ms;
        let talk = Talk {
            transport,
            stage: Stage::Connect,
            exchange,
            output: Vec::new(),
            sent: 0,
            answer: Answer::default(),
            deadline_ms: u64::MAX,
            end_ms: now_ms + check.interval.as_millis() as u64,
        };
        if let Some(target) = self.probes.targets.at(key) {
            target.talk = Some(Box::new(talk));
            self.probes.open += 1;
        }
        self.arm_talk(key, Stage::Connect);
    }

    /// Ends a check, if one is under way.
    pub(super) fn end_talk(&mut self, key: Key) -> bool {
        let talk = self
            .probes
            .targets
            .at(key)
            .and_then(|target| target.talk.take());
        let Some(mut talk) = talk else {
            return false;
        };
        talk.transport.part(&mut self.buffers);
        self.probes.open -= 1;
        true
    }

    /// The time of a stage: the location's, and not beyond the check's end.
    fn arm_talk(&mut self, key: Key, stage: Stage) {
        let now_ms = self.clock.mono_ms;
        let Some(target) = self.probes.targets.at(key) else {
            return;
        };
        let Some(talk) = &mut target.talk else { return };
        let proxy = &self.config.http.locations[target.check.location.index()].proxy;
        let limit = match stage {
            Stage::Connect | Stage::Shake => proxy.connect_timeout,
            Stage::Send => proxy.send_timeout,
            Stage::Answer | Stage::Body => proxy.read_timeout,
        };
        let deadline_ms = now_ms.saturating_add(limit.as_millis() as u64);
        talk.deadline_ms = deadline_ms.min(talk.end_ms);
        self.wheel.arm(target.timer, talk.deadline_ms);
    }

    /// Goes on with a check after an event.
    pub(crate) fn drive_probe(&mut self, key: Key) {
        let Some(target) = self.probes.targets.at(key) else {
            return;
        };
        let check = target.check;
        let Some(mut talk) = target.talk.take() else {
            return;
        };
        let before = talk.stage;
        let mut step = Step::Again;
        for _ in 0..READS_PER_TURN {
            step = self.talk_step(&mut talk, check);
            if !matches!(step, Step::Again) {
                break;
            }
        }
        let after = talk.stage;
        if let Some(target) = self.probes.targets.at(key) {
            target.talk = Some(talk);
        }
        match step {
            Step::Done(result) => return self.probe_ended(key, result),
            Step::Again => self.queue.push_back(key.token(Kind::Probe)),
            Step::Wait => {}
        }
        if after != before {
            self.arm_talk(key, after);
        }
    }

    fn talk_step(&mut self, talk: &mut Talk, check: &'static HealthCheck) -> Step {
        match talk.stage {
            Stage::Connect => self.talk_connect(talk, check),
            Stage::Shake => {
                let shake = talk
                    .transport
                    .shake(&mut talk.answer.input, &mut self.buffers);
                self.talk_shaken(talk, check, shake)
            }
            Stage::Send => self.talk_send(talk),
            Stage::Answer | Stage::Body => self.talk_answer(talk, check),
        }
    }

    fn talk_connect(&mut self, talk: &mut Talk, check: &'static HealthCheck) -> Step {
        let transport = &mut talk.transport;
        if !transport.writable && !transport.errored {
            return Step::Wait;
        }
        if transport.errored || transport.ending {
            let errno = match kp_sys::socket::take_error(&transport.fd) {
                Ok(error) => error.and_then(|error| error.raw_os_error()),
                Err(error) => error.raw_os_error(),
            };
            if let Some(errno) = errno {
                return Step::Done(Err(Trouble::Socket("connect()", errno)));
            }
            transport.errored = false;
        }
        if let Err(errno) = self.introduce_check(talk, check) {
            return Step::Done(Err(Trouble::Socket("send()", errno)));
        }
        let Some(partner) = talk.transport.partner() else {
            return self.talk_opened(talk, check);
        };
        talk.stage = Stage::Shake;
        let name = String::from_utf8_lossy(&partner.tls.name);
        let session = match self.tls.upstream(partner.identity) {
            Some(tls) => tls.connect(partner.peer, &name),
            None => Err(TlsError::NotOpen),
        };
        let shake = match session {
            Ok(session) => talk.transport.begin_shake(session, &mut self.buffers),
            Err(error) => Shake::Failed(error),
        };
        self.talk_shaken(talk, check, shake)
    }

    /// Where the location's `proxy_protocol` says so, a check too begins with a header, but not at a port of its own. The
    /// header names nobody: kp speaks for itself.
    fn introduce_check(&mut self, talk: &mut Talk, check: &HealthCheck) -> Result<(), i32> {
        let facts = self.facts_of_nobody();
        let mut header = Vec::new();
        kp_proxy::write_proxy_header(&talk.exchange, &self.context(&facts), &mut header);
        if header.is_empty() || check.port.is_some() {
            return Ok(());
        }
        introduce(&mut talk.transport, &header)
    }

    fn talk_shaken(&mut self, talk: &mut Talk, check: &'static HealthCheck, shake: Shake) -> Step {
        let failed = |counters: &kp_shm::Block, text: String| {
            counters.increment(Counter::UpstreamTlsHandshakesFailed);
            Step::Done(Err(Trouble::Tls(text)))
        };
        match shake {
            Shake::Blocked => Step::Wait,
            Shake::Opened => {
                self.counters.increment(Counter::UpstreamTlsHandshakes);
                self.talk_opened(talk, check)
            }
            Shake::Failed(TlsError::Certificate(reason)) => failed(
                &self.counters,
                format!(
                    "upstream SSL certificate verify error: ({}:{})",
                    reason.code(),
                    reason.text()
                ),
            ),
            Shake::Failed(error) => failed(
                &self.counters,
                format!("SSL_do_handshake() failed (SSL: {error})"),
            ),
            Shake::Ended(errno) => failed(
                &self.counters,
                match errno {
                    Some(errno) => {
                        format!("the peer closed the connection in SSL handshake ({errno})")
                    }
                    None => "the peer closed the connection in SSL handshake".to_owned(),
                },
            ),
            Shake::Hello(_) | Shake::Plain(_) => Step::Done(Err(Trouble::Internal)),
        }
    }

    /// The connection is open: what is to be sent is made.
    fn talk_opened(&mut self, talk: &mut Talk, check: &'static HealthCheck) -> Step {
        talk.stage = Stage::Send;
        match check.protocol {
            CheckProtocol::Http => {
                let facts = self.facts_of_nobody();
                let context = self.context(&facts);
                let (out, exchange) = (&mut talk.output, &mut talk.exchange);
                check_head(out, exchange, self.program, &context, check);
            }
            CheckProtocol::Tcp => talk
                .output
                .extend_from_slice(check_greeting(self.match_of(check))),
        }
        Step::Again
    }

    fn talk_send(&mut self, talk: &mut Talk) -> Step {
        let rest = talk.output.get(talk.sent..).unwrap_or_default();
        if !rest.is_empty() {
            let stretch = [IoSlice::new(rest)];
            match talk.transport.send(&stretch, rest.len(), &mut self.buffers) {
                Sent::Bytes(0) => return Step::Wait,
                Sent::Bytes(count) => talk.sent += count,
                Sent::Moved => {}
                // What the peer said before it broke off may be a whole answer.
                Sent::Broken(_) => talk.sent = talk.output.len(),
            }
            return Step::Again;
        }
        talk.stage = Stage::Answer;
        Step::Again
    }

    fn talk_answer(&mut self, talk: &mut Talk, check: &'static HealthCheck) -> Step {
        let (answer, exchange) = (&mut talk.answer, &mut talk.exchange);
        if let Some(verdict) = self.before_bench(check, exchange, |exchange, bench| {
            answer.advance(exchange, bench)
        }) {
            return Step::Done(verdict);
        }
        if talk.answer.is_in_body() {
            talk.stage = Stage::Body;
        }
        let input = &mut talk.answer.input;
        match talk.transport.receive(input, READ, &mut self.buffers) {
            Received::Bytes(_) => Step::Again,
            Received::Nothing => Step::Wait,
            Received::End => {
                let (answer, exchange) = (&mut talk.answer, &mut talk.exchange);
                let end = |exchange: &mut Exchange, bench: &Bench<'_>| answer.end(exchange, bench);
                Step::Done(self.before_bench(check, exchange, end))
            }
            Received::Cut => Step::Done(Err(Trouble::Closed)),
            Received::Broken(errno) => Step::Done(Err(Trouble::Socket("recv()", errno))),
        }
    }

    /// Lets an answer be judged by what the check wants.
    fn before_bench<R>(
        &self,
        check: &'static HealthCheck,
        exchange: &mut Exchange,
        judge: impl FnOnce(&mut Exchange, &Bench<'_>) -> R,
    ) -> R {
        let facts = self.facts_of_nobody();
        let server = &self.config.http.servers[exchange.server.index()];
        let bench = Bench {
            protocol: check.protocol,
            block: self.match_of(check),
            limits: &self.response_limits[usize::from(server.early.accept_bare_lf)],
            program: self.program,
            context: &self.context(&facts),
        };
        judge(exchange, &bench)
    }

    fn match_of(&self, check: &HealthCheck) -> Option<&'static MatchBlock> {
        self.config.http.matches.get(check.matches?.index())
    }
}
