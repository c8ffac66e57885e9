//! The exchange machine under thousands of scripted lives: a client, upstreams and a disk that fail at any step.
//!
//! Everything comes out of one seed: the configuration, the request, what happens next, and the clock. The driver here does
//! what the worker does with an action, without sockets, and checks after every step what must hold whatever happens. A
//! seed that fails prints its script; `KP_SEED=n` runs that seed alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr
)]

use kp_config::model::{FileTest, UpstreamId};
use kp_config::{Config, LoadOptions};
use kp_http::{Framing, HeadLimits, HeadReader, Method, ResponseHead};
use kp_proxy::context::{Dates, Now};
use kp_proxy::io::{FileError, FileFacts, FileQuery};
use kp_proxy::machine::{BodyState, Phase as Stage};
use kp_proxy::{
    Action, BodyPlan, Cause, Context, Exchange, Facts, Failure, Input, Phase, Program, Target,
    WaitFor, Woken,
};
use kp_shm::Shm;
use kp_upstream::{Groups, Outcome, PeerId, PickQuery};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

const SEEDS: u64 = 12_000;
/// Seeds that share a configuration, since loading one takes longer than a life.
const LIVES: u64 = 60;
/// Far more inputs than any life needs: 100 interim responses in each of a few attempts.
const INPUTS_MAX: usize = 2000;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// True `percent` times in a hundred.
    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A configuration, and what of it the checks need to know without asking the code under test.
struct World {
    config: Config,
    program: Program,
    dates: Dates,
    listed: Vec<&'static str>,
    tries: u32,
    timeout_ms: u64,
}

const LISTABLE: [&str; 11] = [
    "error",
    "timeout",
    "invalid_header",
    "http_500",
    "http_502",
    "http_503",
    "http_504",
    "http_403",
    "http_404",
    "http_429",
    "non_idempotent",
];

impl World {
    fn generate(random: &mut Random) -> Self {
        let listed: Vec<&'static str> = match random.below(4) {
            0 => vec!["off"],
            1 => vec!["error", "timeout"],
            _ => LISTABLE.into_iter().filter(|_| random.chance(60)).collect(),
        };
        let listed = if listed.is_empty() {
            vec!["error"]
        } else {
            listed
        };
        let tries = random.below(4) as u32;
        let timeout_ms = *random.pick(&[0, 0, 700]);
        let peers: String = (0..1 + random.below(4))
            .map(|n| {
                format!(
                    "server 127.0.0.1:{} {};",
                    9001 + n,
                    random.pick(&["", "max_fails=0", "backup", "down"])
                )
            })
            .collect();
        let pages = random.pick(&[
            "",
            "error_page 404 500 502 503 504 413 400 408 @fallback;",
            "error_page 400 404 408 413 502 503 504 /50x.html; error_page 500 =200 /file;",
            "error_page 404 500 502 503 504 /loop;",
            "error_page 502 =302 http://elsewhere.test/; error_page 404 = /accel/page;",
        ]);
        let directives = [
            format!("proxy_next_upstream {};", listed.join(" ")),
            format!(
                "proxy_next_upstream_tries {tries}; proxy_next_upstream_timeout {timeout_ms}ms;"
            ),
            format!(
                "proxy_request_buffering {};",
                random.pick(&["on", "off", "auto"])
            ),
            format!("proxy_intercept_errors {};", random.pick(&["on", "off"])),
            format!("recursive_error_pages {};", random.pick(&["on", "off"])),
            format!("proxy_http_version {};", random.pick(&["1.0", "1.1"])),
            pages.to_string(),
        ]
        .concat();
        let (config, program) = load(&peers, &directives);
        Self {
            config,
            program,
            dates: Dates::default(),
            listed,
            tries,
            timeout_ms,
        }
    }

    fn lists(&self, name: &str) -> bool {
        self.listed.contains(&name)
    }

    /// Whether `proxy_next_upstream` speaks of this, by the manual.
    fn permits(&self, cause: Cause) -> bool {
        let name = match cause {
            Cause::StaleConnection => return !self.lists("off"),
            Cause::ConnectFailed(_)
            | Cause::SendFailed(_)
            | Cause::UpstreamClosed
            | Cause::UpstreamReset(_) => "error".to_owned(),
            Cause::ConnectTimeout | Cause::SendTimeout | Cause::UpstreamTimeout => {
                "timeout".to_owned()
            }
            Cause::UpstreamInvalidHead | Cause::UpstreamHeadTooLarge => "invalid_header".to_owned(),
            Cause::UpstreamStatus(status) => format!("http_{status}"),
            _ => return false,
        };
        self.lists(&name)
    }
}

/// A server with something of everything, most of it on a group of these peers and under these directives.
fn load(peers: &str, directives: &str) -> (Config, Program) {
    let text = format!(
        "events {{}} http {{
            upstream g {{ server 127.0.0.1:9000; {peers} }} upstream h {{ server 127.0.0.1:9100; server 127.0.0.1:9101; }}
            server {{ listen 127.0.0.1:8080; server_name t; {directives}
                location / {{ proxy_pass http://g; }}
                location /up {{ proxy_pass http://g; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}
                location /variable {{ proxy_pass http://$arg_to; }}
                location /loop {{ proxy_pass http://h; error_page 404 500 502 503 504 /loop; }}
                location @fallback {{ proxy_pass http://h; }}
                location /static/ {{ root /srv; index a.html /file; }}
                location /file {{ root /srv; }}
                location /accel/ {{ internal; root /srv; }}
                location = /50x.html {{ root /srv; }}
                location /return {{ return 404; }}
                location /close {{ return 444; }}
                location /spin {{ rewrite ^(.*)$ $1x last; }}
            }}
        }}"
    );
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kp.conf");
    std::fs::write(&path, &text).expect("written");
    let loaded = kp_config::load(&LoadOptions {
        path,
        prefix: directory.path().to_owned(),
        resolve_names: false,
        ..LoadOptions::default()
    });
    let problems = kp_config::render(&loaded.diagnostics, &loaded.sources);
    let config = loaded.config.unwrap_or_else(|| panic!("{problems}"));
    let program = Program::compile(&config).expect("compiles");
    (config, program)
}

struct Still;

impl Facts for Still {
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
        [7; 16]
    }

    fn client_certificate(&self, _: kp_proxy::ClientCertificate, _: &mut Vec<u8>) -> bool {
        false
    }
}

/// What happened, for whoever has to find out why it failed.
struct Script {
    seed: u64,
    lines: Vec<String>,
}

impl Drop for Script {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- KP_SEED={}\n{}", self.seed, self.lines.join("\n"));
        }
    }
}

/// The attempts since the exchange last turned to a location.
#[derive(Default)]
struct Round {
    /// Attempts that were not free.
    tries: u32,
    sent: bool,
    began_ms: u64,
}

/// One exchange with what the worker holds for it.
struct Life<'a> {
    world: &'a World,
    groups: Groups,
    random: Random,
    script: Script,
    exchange: Exchange,
    now_ms: u64,
    /// The peer an attempt is booked at.
    booked: Option<PeerId>,
    /// What the booking must be ended with.
    mark: Option<Outcome>,
    round: Round,
    acquires: usize,
    /// What it has to wait for before a peer is picked, and until when.
    held: Option<(WaitFor, u64)>,
    stale: u32,
    /// A head of an answer went out, or the connection was closed instead.
    answered: Option<&'static str>,
    /// More interim responses than anybody needs are sent.
    floods: bool,
    /// The body that nobody wanted was looked at.
    sifted: bool,
    seen: &'a mut BTreeSet<String>,
}

impl<'a> Life<'a> {
    fn new(world: &'a World, shm: &Shm, seed: u64, seen: &'a mut BTreeSet<String>) -> Self {
        let mut random = Random::new(seed);
        let groups = Groups::new(
            &world.config.http.upstreams,
            shm,
            kp_shm::Row::PRIVATE,
            seed,
        );
        let floods = random.chance(3);
        Self {
            world,
            groups,
            random,
            script: Script {
                seed,
                lines: Vec::new(),
            },
            exchange: Exchange::default(),
            now_ms: 1000,
            booked: None,
            mark: None,
            round: Round::default(),
            acquires: 0,
            held: None,
            stale: 0,
            answered: None,
            floods,
            sifted: false,
            seen,
        }
    }

    fn run(mut self) {
        let mut next = Some(self.request());
        for _ in 0..INPUTS_MAX {
            let Some(input) = next else {
                return self.finish();
            };
            next = self.step(input);
        }
        panic!("it does not settle");
    }

    /// The request, or why there is none.
    fn request(&mut self) -> Input {
        let method = *self.random.pick(&[
            "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
        ]);
        let target = *self.random.pick(&[
            "/",
            "/",
            "/",
            "/x?y",
            "/up",
            "/up",
            "/static/",
            "/static/a",
            "/file",
            "/accel/x",
            "/return",
            "/close",
            "/spin",
            "/loop",
            "/variable?to=g",
            "/variable?to=127.0.0.1:9",
            "/variable?to=none",
            "/variable",
        ]);
        let version = *self.random.pick(&["1.1", "1.1", "1.1", "1.0"]);
        let body = match self.random.below(4) {
            0 if method != "TRACE" => "Content-Length: 10\r\n",
            1 if method != "TRACE" => "Content-Length: 100000\r\n",
            2 if version == "1.1" && method != "TRACE" => "Transfer-Encoding: chunked\r\n",
            _ => "",
        };
        let upgrade = *self
            .random
            .pick(&["", "Upgrade: x\r\nConnection: upgrade\r\n"]);
        let head = format!("{method} {target} HTTP/{version}\r\nHost: t\r\n{body}{upgrade}\r\n");
        self.script.lines.push(format!(
            "config: {:?} tries {} timeout {}",
            self.world.listed, self.world.tries, self.world.timeout_ms
        ));
        self.script.lines.push(head.replace("\r\n", " | "));
        let read = HeadReader::default().request(
            &mut head.into_bytes(),
            &mut self.exchange.request.head,
            &HeadLimits::default(),
        );
        assert!(matches!(read, Ok(true)), "a head");
        self.exchange.connection.requests = 1;
        if self.random.chance(4) {
            let cause = *self.random.pick(&[
                Cause::BadRequest,
                Cause::HeadTooLarge,
                Cause::ClientHeadTimeout,
                Cause::Overload,
                Cause::UnknownCoding,
            ]);
            return Input::HeadFailed(Failure::new(Phase::RequestHead, cause));
        }
        Input::Head
    }

    /// Tells the machine, checks what it says, and does it; what happens then is the next input.
    fn step(&mut self, input: Input) -> Option<Input> {
        self.now_ms += [0, 1, 40, 300][self.random.below(4)];
        self.script.lines.push(format!(
            "{:>6} {:?} <- {input:?}",
            self.now_ms, self.exchange.machine.phase
        ));
        self.seen.insert(name(&input));
        let cause = self.cause(&input);
        let gone = matches!(input, Input::ClientGone | Input::ClientCut);
        let waited = matches!(input, Input::Waited(_));
        self.exchange.machine.budget_spent = self.random.chance(20);
        let mut before = self.exchange.machine.phase;
        if matches!(input, Input::BodyRefused(_)) {
            // The answer was decided and not a byte of it sent.
            self.answered = None;
            before = Stage::New;
        }
        let action = {
            let context = context(self.world, self.now_ms);
            self.exchange.handle(input, &self.world.program, &context)
        };
        self.script.lines.push(format!("       -> {action:?}"));
        self.seen.insert(name(&action));
        self.check_order(before, &action);
        self.check_reason(&action);
        self.check_uri_changes(&action);
        let pauses = matches!(
            action,
            Action::Wait {
                for_: WaitFor::Backoff,
                ..
            }
        );
        let refused = std::mem::take(&mut self.exchange.machine.refused);
        let retried = (pauses || matches!(action, Action::Acquire))
            && !waited
            && !self.exchange.machine.redirected
            && self.acquires > 0;
        if let Some(cause) = cause {
            self.mark = Some(Failure::new(Phase::AwaitHead, cause).peer_mark(retried || refused));
        }
        if matches!(
            cause,
            Some(Cause::UpstreamStatus(403 | 404) | Cause::StaleConnection)
        ) {
            assert_ne!(
                self.mark,
                Some(Outcome::Failed),
                "{cause:?} counts against its peer"
            );
        }
        if gone {
            self.mark = Some(Outcome::NotCounted);
        }
        self.check_budget(cause, retried, refused, pauses);
        if !action.continues_upstream() {
            self.leave();
        }
        self.perform(action)
    }

    /// Whoever gets no upstream's answer and no file, or not all of it, has a reason; and so has everybody whose worker has to
    /// end now, whatever the exchange is doing.
    fn check_reason(&mut self, action: &Action) {
        let own = matches!(
            action,
            Action::Respond(_)
                | Action::RespondFailure(_)
                | Action::Page(_)
                | Action::Truncate
                | Action::Close
        );
        let record = &mut self.exchange.record;
        assert!(!own || record.reason.is_some(), "an end without a reason");
        let so_far = (record.reason, record.circumstances);
        for cause in [Cause::Shutdown, Cause::FastStop, Cause::Orphaned] {
            self.exchange.explain_shutdown(cause);
            let record = &mut self.exchange.record;
            assert!(record.reason.is_some(), "{cause:?} is no reason");
            assert!(
                record.circumstances.phase.is_some(),
                "{cause:?} has no phase"
            );
            (record.reason, record.circumstances) = so_far;
        }
    }

    /// Whether a retry is made, refused, charged for and put off as it should be.
    fn check_budget(&mut self, cause: Option<Cause>, retried: bool, refused: bool, pauses: bool) {
        if refused {
            assert!(
                !retried && self.exchange.machine.budget_spent,
                "no retry beyond the budget"
            );
        }
        if retried {
            self.check_retry(cause);
            if pauses {
                assert!(self.round.tries >= 2, "the next peer is asked at once");
                self.seen.insert("paused".to_owned());
            }
        }
        let charged = std::mem::take(&mut self.exchange.machine.repeats);
        let free = cause.is_none_or(|cause| Failure::new(Phase::AwaitHead, cause).is_free());
        assert_eq!(charged, retried && !free, "who repeats pays");
    }

    /// What went wrong with the attempt in progress, if that is what the input says.
    fn cause(&self, input: &Input) -> Option<Cause> {
        let status = self
            .exchange
            .response
            .upstream
            .as_ref()
            .map_or(0, |head| head.status);
        match input {
            Input::UpstreamFailed(failure) | Input::ClientFailed(failure) => Some(failure.cause),
            Input::ResponseHead if status == 101 && !self.exchange.machine.upgrade => {
                Some(Cause::UpstreamInvalidHead)
            }
            Input::ResponseHead if status < 200 && self.exchange.machine.interim >= 100 => {
                Some(Cause::UpstreamInvalidHead)
            }
            Input::ResponseHead if status >= 200 => Some(Cause::UpstreamStatus(status)),
            _ => None,
        }
    }

    /// Nothing begins after an answer began, and there is one answer.
    fn check_order(&mut self, before: Stage, action: &Action) {
        let over = matches!(before, Stage::Relay | Stage::Tunnel | Stage::Answer);
        if over {
            assert!(
                matches!(action, Action::Truncate | Action::Close),
                "after an answer began"
            );
            assert_eq!(self.exchange.machine.phase, Stage::Answer);
            return;
        }
        let answer = match action {
            Action::ForwardHead => "forwarded",
            Action::Tunnel => "switched",
            Action::Respond(answer) => {
                assert!(
                    (200..600).contains(&answer.status),
                    "a status for the client"
                );
                "answered"
            }
            Action::RespondFailure(failure) => {
                assert!(
                    (400..600).contains(&failure.status()),
                    "a status for the client"
                );
                "failed"
            }
            Action::SendFile(_) => "file",
            Action::Page(_) => "page",
            Action::Close => {
                assert!(self.exchange.response.status >= 400, "a status for the log");
                "closed"
            }
            Action::Truncate => panic!("nothing was sent that could be cut"),
            _ => return,
        };
        assert_eq!(self.answered.replace(answer), None, "two answers");
        let expected = match action {
            Action::ForwardHead => Stage::Relay,
            Action::Tunnel => Stage::Tunnel,
            _ => Stage::Answer,
        };
        assert_eq!(self.exchange.machine.phase, expected);
    }

    fn check_uri_changes(&self, action: &Action) {
        let changes = self.exchange.request.uri_changes;
        assert!(changes <= 11, "{changes} URI changes");
        if changes == 11 {
            let refused = match action {
                Action::Respond(answer) => answer.status == 500,
                Action::Truncate | Action::Close => true,
                _ => false,
            };
            assert!(refused, "more than ten URI changes");
        }
    }

    /// The rules of `proxy_next_upstream`, written down a second time.
    fn check_retry(&self, cause: Option<Cause>) {
        let cause = cause.expect("a retry follows a failure");
        assert!(self.world.permits(cause), "{cause:?} is not listed");
        let machine = &self.exchange.machine;
        let free = cause == Cause::StaleConnection;
        assert_eq!(
            (machine.forgive, machine.fresh_only || !free),
            (free, true),
            "a stale connection is free, once"
        );
        let method = self.exchange.request.head.method;
        let unsafe_method = matches!(method, Method::Post | Method::Lock | Method::Patch);
        assert!(
            !(unsafe_method && self.round.sent) || self.world.lists("non_idempotent"),
            "{method:?} is sent twice"
        );
        let body = self.exchange.machine.body;
        assert!(
            !(self.round.sent && body == BodyState::Consumed),
            "a body is sent twice"
        );
        if self.world.timeout_ms > 0 {
            assert!(
                self.now_ms - self.round.began_ms < self.world.timeout_ms,
                "retried too late"
            );
        }
    }

    /// The worker's `leave_upstream`.
    fn leave(&mut self) {
        let outcome = self.exchange.machine.outcome.take();
        if let Some(peer) = self.booked.take() {
            let expected = self.mark.take().unwrap_or(Outcome::Ok);
            assert_eq!(
                outcome.unwrap_or(Outcome::Ok),
                expected,
                "what is said about the peer"
            );
            if std::mem::take(&mut self.exchange.machine.forgive) {
                self.exchange.machine.tried.forgive(peer);
            }
            self.groups.finished(peer, expected, self.now_ms);
        }
        self.mark = None;
    }

    fn perform(&mut self, action: Action) -> Option<Input> {
        match action {
            Action::Collect => Some(self.collect()),
            Action::Gather(bytes) => {
                assert!(bytes > 0, "nothing is waited for");
                Some(match self.collect() {
                    Input::Collected => Input::Gathered,
                    failed => failed,
                })
            }
            Action::Acquire => Some(self.acquire()),
            Action::Wait { until_ms, for_ } => Some(self.wait(until_ms, for_)),
            Action::SendHead => Some(self.send_head()),
            Action::AwaitHead => Some(self.await_head()),
            Action::ForwardInterim => {
                let status = self
                    .exchange
                    .response
                    .upstream
                    .as_ref()
                    .map_or(0, |head| head.status);
                assert_eq!(status, 103, "only early hints are passed on");
                assert_eq!(self.exchange.request.head.version, kp_http::Version::Http11);
                Some(self.await_head())
            }
            Action::ForwardHead => self.relay(),
            Action::Tunnel => {
                assert!(self.exchange.machine.upgrade, "nobody asked for an upgrade");
                self.tunnel()
            }
            Action::OpenFile(query) => Some(self.open(&query)),
            Action::SendFile(_) | Action::Page(_) if self.sift() => Some(refused_body()),
            Action::Respond(answer) if answer.status < 300 && self.sift() => Some(refused_body()),
            Action::SendFile(_) => self.end_of_answer(&[Cause::Internal, Cause::ClientSendTimeout]),
            Action::Respond(_) | Action::RespondFailure(_) | Action::Page(_) => {
                self.end_of_answer(&[Cause::ClientSendTimeout])
            }
            Action::Truncate => self
                .random
                .chance(20)
                .then(|| client(Cause::ClientSendTimeout)),
            Action::Close => None,
        }
    }

    /// The worker's look at a body that nobody wants: whether it is malformed.
    fn sift(&mut self) -> bool {
        let framing = self.exchange.request.head.framing;
        let first = !std::mem::replace(&mut self.sifted, true);
        first && !matches!(framing, Framing::None) && self.random.chance(30)
    }

    fn collect(&mut self) -> Input {
        match self.random.below(10) {
            0 => client(Cause::BodyTooLarge(None)),
            1 => client(Cause::ClientBodyTimeout),
            2 => client(Cause::BadBody),
            3 => client(Cause::Internal),
            4 => Input::ClientCut,
            5 => client(Cause::ClientSendTimeout),
            _ => Input::Collected,
        }
    }

    /// The worker's `acquire`: one attempt is booked, whatever comes of it.
    fn acquire(&mut self) -> Input {
        if let Some(for_) = self.is_held() {
            let (for_, until_ms) = *self.held.get_or_insert((for_, self.now_ms + 500));
            return Input::Held { for_, until_ms };
        }
        self.held = None;
        self.acquires += 1;
        if self.acquires == 1 || self.exchange.machine.redirected {
            self.round = Round {
                began_ms: self.now_ms,
                ..Round::default()
            };
        }
        let (upstream, peer) = match self.exchange.machine.target.clone().expect("a target") {
            Target::Address(_) | Target::Name { .. } => {
                self.exchange.machine.peers = 1;
                (UpstreamId(u32::MAX), None)
            }
            Target::Group(group) => {
                self.exchange.machine.peers = self.groups.tries(group);
                let query = PickQuery {
                    hash_key: b"",
                    sticky: b"",
                    client: None,
                    now_ms: self.now_ms,
                };
                let picked = self
                    .groups
                    .pick(group, &query, &mut self.exchange.machine.tried)
                    .ok();
                if picked.is_none() {
                    self.begin_attempt(group);
                    return upstream_failed(Phase::Connect, Cause::NoLivePeer);
                }
                (group, picked)
            }
        };
        self.booked = peer;
        self.begin_attempt(upstream);
        let reusable = peer.is_some() && !self.exchange.machine.fresh_only;
        match self.random.below(12) {
            0 => upstream_failed(Phase::Connect, Cause::ConnectFailed(111)),
            1 => upstream_failed(Phase::Connect, Cause::ConnectTimeout),
            2 => Input::ClientGone,
            3 if self.random.chance(30) => client(Cause::ClientSendTimeout),
            4 if self.random.chance(30) => upstream_failed(Phase::Connect, Cause::Overload),
            5..=7 if reusable => Input::Connected { reused: true },
            _ => Input::Connected { reused: false },
        }
    }

    /// What there is to wait for: a name is looked up, or every place of a group is taken.
    fn is_held(&mut self) -> Option<WaitFor> {
        let percent = if self.held.is_some() { 50 } else { 10 };
        if !self.random.chance(percent) {
            return None;
        }
        match self.exchange.machine.target {
            Some(Target::Group(_)) => Some(*self.random.pick(&[WaitFor::Queue, WaitFor::Name])),
            Some(Target::Name { .. }) => Some(WaitFor::Name),
            Some(Target::Address(_)) | None => None,
        }
    }

    /// The worker's `park` of an exchange that waits, and what ends it.
    fn wait(&mut self, until_ms: u64, for_: WaitFor) -> Input {
        assert!(self.booked.is_none(), "who waits holds no peer");
        assert_eq!(self.exchange.machine.phase, Stage::Wait(for_));
        if let Some(held) = self.held {
            assert_eq!(held, (for_, until_ms), "a wait is not prolonged");
        }
        let ended = match self.random.below(10) {
            0 => Input::ClientGone,
            1 => client(Cause::ClientSendTimeout),
            2..7 => Input::Waited(Woken::Early),
            _ => {
                self.now_ms = self.now_ms.max(until_ms);
                Input::Waited(Woken::Due)
            }
        };
        if matches!(ended, Input::Waited(Woken::Due)) && self.held.take().is_some() {
            // The machine books the attempt that never came to be.
            self.acquires += 1;
        }
        ended
    }

    fn begin_attempt(&mut self, upstream: UpstreamId) {
        let before = self.exchange.attempts.len();
        self.exchange
            .begin_attempt(upstream, "127.0.0.1:9000", self.now_ms);
        assert_eq!(self.exchange.attempts.len(), before + 1);
        assert_eq!(
            self.exchange.attempts.len(),
            self.acquires,
            "an attempt for each Acquire"
        );
        self.round.tries += 1;
        let peers = self.exchange.machine.peers.max(1);
        let allowed = match self.world.tries {
            0 => peers,
            tries => tries.min(peers),
        };
        assert!(
            self.round.tries <= allowed + self.stale,
            "{} tries of {allowed}",
            self.round.tries
        );
    }

    /// The request goes out; a body that was not collected goes with it, as far as the upstream lets it.
    fn send_head(&mut self) -> Input {
        let framing = self.exchange.request.head.framing;
        let body = self.exchange.machine.body;
        assert!(
            body != BodyState::Consumed || self.exchange.request.method == Some("GET"),
            "a request without the body it had"
        );
        let has_body = !matches!(framing, Framing::None | Framing::Length(0));
        let plan = match (body, framing) {
            (BodyState::Consumed, _) => BodyPlan::None,
            (BodyState::Whole, _) => BodyPlan::Length(10),
            (BodyState::Unread, Framing::Chunked) => BodyPlan::Chunked,
            (BodyState::Unread, Framing::Length(length)) => BodyPlan::Length(length),
            (BodyState::Unread, _) => BodyPlan::None,
        };
        self.round.sent = true;
        let mut out = Vec::new();
        let sent = {
            let context = context(self.world, self.now_ms);
            kp_proxy::request_head(
                &mut out,
                &mut self.exchange,
                &self.world.program,
                &context,
                plan,
            )
        };
        assert!(out.ends_with(b"\r\n\r\n"), "a whole head");
        self.exchange.machine.sent_method = Some(sent.method);
        self.exchange.machine.upgrade = sent.upgrade;
        if has_body && body == BodyState::Unread {
            if self.random.chance(70) {
                self.exchange.machine.body_touched();
            }
            match self.random.below(20) {
                0 => return client(Cause::BadBody),
                1 => return client(Cause::ClientBodyTimeout),
                2 => return client(Cause::BodyTooLarge(None)),
                _ => {}
            }
        }
        self.await_head()
    }

    fn await_head(&mut self) -> Input {
        if self.floods {
            return self.head("100 Continue", "");
        }
        match self.random.below(24) {
            0 if self.exchange.machine.reused => {
                self.stale += 1;
                self.round.tries = self
                    .round
                    .tries
                    .saturating_sub(u32::from(self.world.permits(Cause::StaleConnection)));
                upstream_failed(Phase::AwaitHead, Cause::StaleConnection)
            }
            1 => upstream_failed(Phase::SendRequest, Cause::SendFailed(32)),
            2 => upstream_failed(Phase::SendRequest, Cause::SendTimeout),
            3 => upstream_failed(Phase::AwaitHead, Cause::UpstreamClosed),
            4 => upstream_failed(Phase::AwaitHead, Cause::UpstreamReset(104)),
            5 => upstream_failed(Phase::AwaitHead, Cause::UpstreamTimeout),
            6 => upstream_failed(Phase::AwaitHead, Cause::UpstreamInvalidHead),
            7 => upstream_failed(Phase::AwaitHead, Cause::UpstreamHeadTooLarge),
            8 => Input::ClientGone,
            9 => self.head("103 Early Hints", "Link: </a>\r\n"),
            10 => self.head("102 Processing", ""),
            11 | 12 => self.head(
                "101 Switching Protocols",
                "Upgrade: x\r\nConnection: upgrade\r\n",
            ),
            13 => {
                let to = *self.random.pick(&[
                    "/accel/x",
                    "/loop",
                    "@fallback",
                    "@none",
                    "/static/",
                    "/../x",
                    "/return",
                ]);
                self.head(
                    "200 OK",
                    &format!("X-Accel-Redirect: {to}\r\nContent-Length: 0\r\n"),
                )
            }
            14..18 => {
                let status = *self
                    .random
                    .pick(&["403", "404", "429", "500", "502", "503", "504"]);
                self.head(status, "Content-Length: 3\r\n")
            }
            18 => self.head("304 Not Modified", ""),
            _ => self.head("200 OK", "Content-Length: 3\r\n"),
        }
    }

    fn head(&mut self, status: &str, fields: &str) -> Input {
        let text = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
        self.script
            .lines
            .push(format!("       upstream: {}", text.replace("\r\n", " | ")));
        let mut head = ResponseHead::default();
        let asked = self
            .exchange
            .machine
            .sent_method
            .expect("a method was sent");
        let read = HeadReader::default().response(
            &mut text.into_bytes(),
            &mut head,
            asked,
            &HeadLimits::default(),
        );
        assert!(matches!(read, Ok(true)), "{read:?}");
        self.exchange.response.upstream = Some(head);
        Input::ResponseHead
    }

    fn relay(&mut self) -> Option<Input> {
        let mut out = Vec::new();
        let context = context(self.world, self.now_ms);
        kp_proxy::response_head(
            &mut out,
            &mut self.exchange,
            &self.world.program,
            &context,
            true,
        );
        assert!(
            out.starts_with(b"HTTP/1.1 ") && out.ends_with(b"\r\n\r\n"),
            "a whole head"
        );
        let causes = [
            Cause::BodyTruncated,
            Cause::BodyReset(104),
            Cause::BodyTimeout,
            Cause::BodyInvalid,
        ];
        let ended = match self.random.below(12) {
            0 => Some(upstream_failed(Phase::ReadBody, *self.random.pick(&causes))),
            1 => Some(Input::ClientGone),
            2 => Some(client(Cause::ClientSendTimeout)),
            3 => Some(client(Cause::BadBody)),
            _ => None,
        };
        if ended.is_none() {
            self.exchange.end_attempt(&context);
            self.leave();
        }
        ended
    }

    fn tunnel(&mut self) -> Option<Input> {
        let ended = match self.random.below(4) {
            0 => Some(upstream_failed(Phase::Tunnel, Cause::TunnelTimeout)),
            1 => Some(Input::ClientGone),
            2 => Some(client(Cause::ClientSendTimeout)),
            _ => None,
        };
        if ended.is_none() {
            let context = context(self.world, self.now_ms);
            self.exchange.end_attempt(&context);
            self.leave();
        }
        ended
    }

    fn open(&mut self, query: &FileQuery) -> Input {
        assert!(query.path.starts_with(b"/srv"), "outside: {query:?}");
        let facts = |index| {
            Input::FileOpened(FileFacts {
                length: 5,
                modified_s: 1,
                index,
            })
        };
        match self.random.below(10) {
            0 => Input::FileFailed(FileError::NotFound("not there".to_owned())),
            1 => Input::FileFailed(FileError::Forbidden("not allowed".to_owned())),
            2 => Input::FileFailed(FileError::Other("broken".to_owned())),
            3 => Input::FileFailed(FileError::Directory),
            4 => Input::ClientGone,
            5 => Input::FileFailed(FileError::Exhausted("too many".to_owned())),
            _ if query.index.is_empty() => facts(None),
            _ => facts(Some(self.random.pick(&query.index).clone())),
        }
    }

    fn end_of_answer(&mut self, causes: &[Cause]) -> Option<Input> {
        match self.random.below(8) {
            0 => Some(Input::ClientGone),
            1 => Some(client(*self.random.pick(causes))),
            2 if causes.contains(&Cause::Internal) => {
                Some(upstream_failed(Phase::SendResponse, Cause::Internal))
            }
            _ => None,
        }
    }

    fn finish(mut self) {
        self.leave();
        assert!(self.answered.is_some(), "no answer");
        assert_eq!(self.exchange.attempts.len(), self.acquires);
        for attempt in &self.exchange.attempts {
            assert!(attempt.response_ms.is_some(), "an attempt without an end");
        }
        let record = &self.exchange.record;
        assert_eq!(
            record.reason.is_some(),
            record.circumstances.phase.is_some(),
            "a reason has its phase"
        );
        for peer in self.picked() {
            assert_eq!(self.groups.in_flight(peer), 0, "a pick without its end");
        }
        self.seen
            .insert(format!("ended {}", self.answered.unwrap_or_default()));
    }

    /// Every peer that can be picked now.
    fn picked(&mut self) -> Vec<PeerId> {
        let mut all = Vec::new();
        for group in 0..2 {
            let mut tried = kp_upstream::Tried::new();
            let query = PickQuery {
                hash_key: b"",
                sticky: b"",
                client: None,
                // Long after every fail_timeout.
                now_ms: self.now_ms + 1_000_000,
            };
            while let Ok(peer) = self.groups.pick(UpstreamId(group), &query, &mut tried) {
                if all.contains(&peer) {
                    self.groups.finished(peer, Outcome::NotCounted, self.now_ms);
                    break;
                }
                self.groups.finished(peer, Outcome::NotCounted, self.now_ms);
                all.push(peer);
            }
        }
        assert!(!all.is_empty(), "peers");
        all
    }
}

fn context(world: &World, now_ms: u64) -> Context<'_> {
    Context {
        config: &world.config,
        now: Now {
            mono_ms: now_ms,
            unix_ms: now_ms,
            dates: &world.dates,
        },
        facts: &Still,
        limits: None,
        pid: 1,
        hostname: "host",
        group: "0123456789abcdef",
    }
}

fn client(cause: Cause) -> Input {
    let phase = if cause == Cause::ClientSendTimeout {
        Phase::SendResponse
    } else {
        Phase::RequestBody
    };
    Input::ClientFailed(Failure::new(phase, cause))
}

fn refused_body() -> Input {
    Input::BodyRefused(Failure::new(Phase::RequestBody, Cause::BadBody))
}

fn upstream_failed(phase: Phase, cause: Cause) -> Input {
    Input::UpstreamFailed(Failure::new(phase, cause))
}

/// The first word of what something prints as.
fn name(of: &impl std::fmt::Debug) -> String {
    let text = format!("{of:?}");
    text.split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn thousands_of_lives_keep_the_rules() {
    let only: Option<u64> = std::env::var("KP_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let shm = Shm::private().expect("memory");
    let mut seen = BTreeSet::new();
    for number in 0..SEEDS / LIVES {
        if only.is_some_and(|seed| seed / LIVES != number) {
            continue;
        }
        let world = World::generate(&mut Random::new(number ^ 0xc0ff_ee00));
        for seed in number * LIVES..(number + 1) * LIVES {
            if only.is_none_or(|only| only == seed) {
                Life::new(&world, &shm, seed, &mut seen).run();
            }
        }
    }
    if only.is_none() {
        // A simulation that never gets somewhere shows nothing about it.
        for expected in [
            "Head",
            "HeadFailed",
            "Collected",
            "Gathered",
            "ClientFailed",
            "ClientGone",
            "ClientCut",
            "BodyRefused",
            "Held",
            "Waited",
            "Connected",
            "UpstreamFailed",
            "ResponseHead",
            "FileOpened",
            "FileFailed",
            "Collect",
            "Gather",
            "Acquire",
            "Wait",
            "SendHead",
            "ForwardInterim",
            "AwaitHead",
            "ForwardHead",
            "Tunnel",
            "OpenFile",
            "SendFile",
            "Respond",
            "RespondFailure",
            "Truncate",
            "Close",
            "paused",
            "ended forwarded",
            "ended switched",
            "ended answered",
            "ended failed",
            "ended file",
            "ended closed",
        ] {
            assert!(seen.contains(expected), "{expected} never happened");
        }
    }
}
