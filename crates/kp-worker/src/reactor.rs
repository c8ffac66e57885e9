//! The loop: poll, note, run, expire, accept, write logs.
//!
//! An event only sets readiness and queues the connection; the run queue then gives every connection a bounded number of
//! rounds. Nothing in here decides anything about HTTP.

use crate::active::{Active, READ_MAX};
use crate::ages::{Ages, Waits};
use crate::books::Books;
use crate::buffers::Buffers;
use crate::client::{Client, ClientPhase};
use crate::clock::Clock;
use crate::drain::Drain;
use crate::early::Parting;
use crate::facts::ConnectionFacts;
use crate::heritage::{Heritage, exit};
use crate::jobs::Jobs;
use crate::listeners::{Fronts, Listening};
use crate::logs::Logs;
use crate::measure;
use crate::memory::Memory;
use crate::names::Names;
use crate::overdue::Overdue;
use crate::own::Own;
use crate::pairs::Pairs;
use crate::probe::Probes;
use crate::remote::Remote;
use crate::response_head::RESPONSE_HEAD_MAX;
use crate::secure::Secure;
use crate::sessions;
use crate::slots::Slots;
use crate::token::{self, Key, Kind};
use crate::transport::Transport;
use crate::upstream::{Upstream, UpstreamPhase};
use crate::waiting::Lines;
use crate::wheel::Wheel;
use kp_config::Config;
use kp_config::model::{ListenerId, Location, LocationId};
use kp_config::template::Template;
use kp_http::HeadLimits;
use kp_proxy::context::Context;
use kp_proxy::{Exchange, Limits, Phase, Program, Reason};
use kp_shm::{Block, Counter};
use kp_shm::{Row, SeriesRow, SessionZone, State};
use kp_tls::Tls;
use kp_upstream::{Groups, Pool};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::hash::RandomState;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Events per poll.
const EVENTS: usize = 512;
/// Connections beyond `worker_connections` that are still accepted, to be told 503 instead of being dropped.
const OVERLOAD_ROOM: usize = 64;
/// What is said of those who are dropped all the same.
const NO_ROOM: &str = "worker_connections are not enough";

/// A worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) config: &'static Config,
    pub(crate) program: &'static Program,
    pub(crate) poll: Poll,
    pub(crate) clock: Clock,
    pub(crate) wheel: Wheel,
    pub(crate) buffers: Buffers,
    /// Where bodies pass through.
    pub(crate) scratch: Vec<u8>,
    /// For texts that live during one call.
    pub(crate) text: Vec<u8>,
    /// The key a balancer hashes.
    pub(crate) key_text: Vec<u8>,
    /// What names a session.
    pub(crate) session_text: Vec<u8>,
    /// Exchanges that wait for a peer with a free place.
    pub(crate) lines: Lines,
    pub(crate) listeners: Vec<Listening>,
    pub(crate) fronts: Fronts,
    pub(crate) clients: Slots<Client>,
    pub(crate) upstreams: Slots<Upstream>,
    pub(crate) exchanges: Slots<Box<Active>>,
    /// Exchanges that are not in use, with their small allocations.
    #[allow(clippy::vec_box)]
    // Boxes move between here and `exchanges`; their address is their cost.
    pub(crate) spare: Vec<Box<Active>>,
    pub(crate) queue: VecDeque<u64>,
    /// Connections whose TLS handshake can go on.
    pub(crate) handshakes: VecDeque<u64>,
    /// Active checks.
    pub(crate) probes: Probes,
    pub(crate) groups: Groups,
    pub(crate) pool: Pool,
    /// Seeded for this worker.
    pub(crate) hasher: RandomState,
    /// Certificates, trust, sessions.
    pub(crate) tls: &'static Tls,
    /// Certificates that were loaded for connections.
    pub(crate) pairs: Pairs,
    /// The zones of limits on clients; `None` where there are none.
    pub(crate) limits: Option<Limits>,
    /// The zones of `sticky learn`, by group.
    pub(crate) session_zones: Vec<Option<SessionZone>>,
    pub(crate) counters: Block,
    /// Series of virtual hosts, in their order; none where `metrics` is off.
    pub(crate) servers: Vec<SeriesRow>,
    pub(crate) logs: Logs,
    pub(crate) jobs: Jobs,
    pub(crate) own: Own,
    pub(crate) drain: Option<Drain>,
    /// The master said that another generation serves.
    pub(crate) successor: bool,
    pub(crate) stopping: bool,
    pub(crate) serial: u64,
    /// Serials of different workers interleave, so that a connection number is unique within a generation.
    serial_step: u64,
    pub(crate) spill_serial: u64,
    /// Limits of response heads: strict, and with `accept_bare_lf`.
    pub(crate) response_limits: [HeadLimits; 2],
    pub(crate) connections_max: usize,
    pub(crate) pid: u32,
    hostname: String,
    prefix: PathBuf,
    group: String,
    pub(crate) shm: kp_shm::Shm,
    pub(crate) row: Row,
    /// Names that are looked up.
    pub(crate) names: Names,
    /// Attempts that have waited long for their response head.
    pub(crate) overdue: Overdue,
    /// Clients by what they wait for and since when.
    pub(crate) client_ages: Ages,
    /// Connections of clients that are closed at the end of this turn, after their log lines.
    pub(crate) leaving: Vec<Transport>,
    /// Connections in the pool, likewise.
    pub(crate) pooled_ages: Ages,
    /// The log says again that connections make room.
    pub(crate) shed_said_ms: u64,
    pub(crate) memory: Memory,
    /// The shared books, where no master keeps them.
    books: Option<Books>,
    /// Held back so that a connection can be accepted and closed when no descriptor is left.
    pub(crate) spare_fd: Option<OwnedFd>,
}

impl Worker {
    /// Sets a worker up from what it inherited.
    pub(crate) fn new(heritage: Heritage) -> io::Result<Self> {
        let prepared: &'static crate::Prepared = Box::leak(Box::new(Rc::clone(&heritage.prepared)));
        let (config, program, tls) = (&prepared.config, &prepared.program, &prepared.tls);
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), Token(Own::token(Own::JOBS)))?;
        let clock = Clock::new();
        let seed = seed()?;
        let claimant = kp_shm::Claimant::new(heritage.row, std::process::id());
        let mut worker = Self {
            config,
            program,
            wheel: Wheel::new(clock.mono_ms),
            clock,
            buffers: Buffers::default(),
            scratch: Vec::with_capacity(READ_MAX),
            text: Vec::new(),
            key_text: Vec::new(),
            session_text: Vec::new(),
            lines: Lines::new(config),
            groups: groups(config, &heritage, seed),
            listeners: listening(config, heritage.listeners),
            fronts: Fronts::new(config),
            clients: Slots::new(),
            upstreams: Slots::new(),
            exchanges: Slots::new(),
            spare: Vec::new(),
            queue: VecDeque::new(),
            handshakes: VecDeque::new(),
            probes: Probes::new(claimant, seed),
            pool: Pool::new(&config.http.upstreams),
            hasher: RandomState::new(),
            tls,
            pairs: Pairs::default(),
            limits: has_limits(config).then(|| Limits::new(config, &heritage.shm, heritage.row)),
            session_zones: sessions::zones(config, &heritage.shm),
            counters: heritage.shm.counters().block(heritage.row),
            servers: measure::servers(config, &heritage.shm, heritage.row),
            logs: Logs::new(heritage.log_files, config)?,
            jobs: Jobs::new(Arc::new(waker), &config.temp_paths),
            own: Own::new(heritage.channel, heritage.master)?,
            drain: None,
            successor: false,
            stopping: false,
            serial: u64::from(heritage.slot),
            serial_step: serial_step(config),
            spill_serial: 0,
            response_limits: response_limits(),
            connections_max: config.main.worker_connections as usize,
            pid: std::process::id(),
            hostname: heritage.hostname,
            prefix: heritage.prefix,
            group: hexadecimal(&heritage.group_token),
            shm: heritage.shm,
            row: heritage.row,
            names: Names::new(),
            overdue: Overdue::new(),
            client_ages: Ages::new(),
            leaving: Vec::new(),
            pooled_ages: Ages::new(),
            shed_said_ms: 0,
            memory: Memory::new(config.main.worker_memory),
            books: (!config.main.master_process).then(Books::default),
            spare_fd: kp_sys::process::spare_descriptor().ok(),
            poll,
        };
        worker.own.register(&worker.poll)?;
        worker.learn_names();
        Ok(worker)
    }

    /// Serves until drained or stopped.
    pub(crate) fn run(&mut self) -> u8 {
        self.sync_probes();
        let mut events = Events::with_capacity(EVENTS);
        let mut due = Vec::new();
        while !self.stopping && !self.is_drained() {
            match self.poll.poll(&mut events, Some(self.wait())) {
                Ok(()) => {}
                // After a stop and a continuation, for one: what happened meanwhile is asked for before any deadline.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    log::error!(target: "alert", "epoll_wait() failed: {error}");
                    return exit::FATAL;
                }
            }
            self.clock.read();
            self.begin_turn();
            self.tls.clock().set(self.clock.unix_ms / 1000);
            for event in &events {
                self.note(event);
            }
            self.wheel.expire(self.clock.mono_ms, &mut due);
            for token in due.drain(..) {
                self.expired(token);
            }
            self.run_names();
            self.look_at_lines();
            self.run_queue();
            self.run_handshakes();
            self.accept_ready();
            self.flush_logs(false);
            self.part_with_clients();
            self.settle_memory();
            self.keep_books();
            self.end_turn();
        }
        if self.stopping {
            self.explain_stop();
        }
        self.flush_logs(true);
        self.part_with_clients();
        self.finish_logs();
        exit::OK
    }

    /// How long the loop may wait. It turns once a second at least, which tells others that it does not stand still.
    fn wait(&self) -> Duration {
        if !self.queue.is_empty()
            || !self.handshakes.is_empty()
            || self.listeners.iter().any(Listening::is_ready)
        {
            return Duration::ZERO;
        }
        let now_ms = self.clock.mono_ms;
        let mut wait_ms = kp_shm::TURN_EVERY_MS;
        if let Some(timer_ms) = self.wheel.next_wait_ms(now_ms) {
            wait_ms = wait_ms.min(timer_ms);
        }
        wait_ms = wait_ms.min(self.overdue.due_ms().saturating_sub(now_ms));
        wait_ms = wait_ms.min(self.logs.flush_at_ms().saturating_sub(now_ms));
        wait_ms = wait_ms.min(self.memory.due_ms().saturating_sub(now_ms));
        wait_ms = wait_ms.min(self.accept_again_ms().saturating_sub(now_ms));
        wait_ms = wait_ms.min(self.lines.due_ms().saturating_sub(now_ms));
        wait_ms = wait_ms.min(self.names.due_ms().saturating_sub(now_ms));
        if let Some(books) = &self.books {
            wait_ms = wait_ms.min(books.due_ms().saturating_sub(now_ms));
        }
        if let Some(drain) = &self.drain {
            let due_ms = drain.due_ms(self.is_listening());
            wait_ms = wait_ms.min(due_ms.saturating_sub(now_ms));
        }
        Duration::from_millis(wait_ms)
    }

    /// What a master does otherwise: the last hour is written down, series and rows of what is gone are taken back.
    fn keep_books(&mut self) {
        let now_ms = self.clock.mono_ms;
        if let Some(books) = &mut self.books
            && books.due_ms() <= now_ms
        {
            books.look(&self.shm, self.config.http.shows_status(), now_ms);
        }
    }

    /// Takes note of an event; acts on nothing.
    fn note(&mut self, event: &mio::event::Event) {
        let Some((kind, key)) = token::parse(event.token().0 as u64) else {
            return;
        };
        match kind {
            Kind::Listener => {
                if let Some(listener) = self.listeners.get_mut(key.index as usize) {
                    listener.note();
                }
            }
            Kind::Client => {
                let Some(client) = self.clients.at(key) else {
                    return;
                };
                client.transport.note(event, &mut self.buffers);
                self.enqueue_client(key);
            }
            Kind::Upstream => {
                let Some(upstream) = self.upstreams.at(key) else {
                    return;
                };
                upstream.transport.note(event, &mut self.buffers);
                match upstream.active {
                    Some(_) if upstream.phase == UpstreamPhase::Handshake => {
                        self.enqueue_handshake(key);
                    }
                    Some(active) => self.enqueue_exchange(active),
                    None if upstream.transport.readable || upstream.transport.errored => {
                        self.wake_idle_upstream(key);
                    }
                    None => {}
                }
            }
            Kind::Own => self.own_event(key.index),
            Kind::Name => self.names.note(key),
            Kind::Exchange => {}
            Kind::Probe => {
                if let Some(target) = self.probes.at(key) {
                    target.note(event, &mut self.buffers);
                    self.queue.push_back(key.token(Kind::Probe));
                }
            }
        }
    }

    fn run_queue(&mut self) {
        // What is queued while running waits for the next turn, after the sockets were asked again.
        for _ in 0..self.queue.len() {
            let Some((kind, key)) = self.queue.pop_front().and_then(token::parse) else {
                return;
            };
            match kind {
                Kind::Client => self.serve_client(key),
                Kind::Exchange => self.drive(key),
                Kind::Probe => self.drive_probe(key),
                Kind::Listener | Kind::Upstream | Kind::Own | Kind::Name => {}
            }
        }
    }

    fn expired(&mut self, token: u64) {
        match token::parse(token) {
            Some((Kind::Client, key)) => self.client_timeout(key),
            Some((Kind::Probe, key)) => self.probe_timeout(key),
            Some((Kind::Upstream, key)) => {
                let Some(upstream) = self.upstreams.peek(key) else {
                    return;
                };
                match (upstream.phase, upstream.active) {
                    (UpstreamPhase::Idle, _) => self.end_idle_upstream(key),
                    (_, Some(active)) => self.enqueue_exchange(active),
                    (_, None) => self.close_upstream(key),
                }
            }
            _ => {}
        }
    }

    /// A location of the configuration.
    pub(crate) fn location(&self, id: LocationId) -> &'static Location {
        &self.config.http.locations[id.index()]
    }

    /// Facts about a client connection, found out when a variable asks.
    pub(crate) fn facts(&self, client: Key) -> ConnectionFacts<'_> {
        self.facts_of(self.clients.peek(client))
    }

    /// The same where no client is concerned.
    pub(crate) fn facts_of_nobody(&self) -> ConnectionFacts<'_> {
        self.facts_of(None)
    }

    fn facts_of<'a>(&'a self, client: Option<&'a Client>) -> ConnectionFacts<'a> {
        ConnectionFacts::of(client, self.clock.unix_ms, &self.shm)
    }

    /// What the exchange machine is shown.
    pub(crate) fn context<'a>(&'a self, facts: &'a ConnectionFacts<'a>) -> Context<'a> {
        Context {
            config: self.config,
            now: self.clock.now(),
            facts,
            limits: self.limits.as_ref(),
            pid: self.pid,
            hostname: &self.hostname,
            group: &self.group,
        }
    }

    /// Lets kp-proxy work on an exchange, with what it may know of the world.
    pub(crate) fn consult<R>(
        &self,
        active: &mut Active,
        ask: impl FnOnce(&mut Exchange, &Program, &Context<'_>) -> R,
    ) -> R {
        let facts = self.facts(active.client);
        ask(&mut active.exchange, self.program, &self.context(&facts))
    }

    /// Appends the value of a template of the configuration.
    pub(crate) fn evaluate(&self, active: &mut Active, template: &Template, out: &mut Vec<u8>) {
        self.consult(active, |exchange, program, context| {
            kp_proxy::vars::evaluate(template, exchange, program, context, out);
        });
    }

    /// Lets kp-proxy append to what goes to the client; returns its word and how many bytes came.
    pub(crate) fn write_client<R>(
        &mut self,
        active: &mut Active,
        write: impl FnOnce(&mut Vec<u8>, &mut Exchange, &Program, &Context<'_>) -> R,
    ) -> (R, usize) {
        let mut out = active.to_client.lend(&mut self.buffers);
        let before = out.len();
        let word = self.consult(active, |exchange, program, context| {
            write(&mut out, exchange, program, context)
        });
        let bytes = out.len() - before;
        active.to_client.restore(out);
        (word, bytes)
    }

    /// Registers a socket for both directions, once and for all.
    pub(crate) fn register(&self, fd: &OwnedFd, token: u64) -> io::Result<()> {
        self.poll.registry().register(
            &mut SourceFd(&fd.as_raw_fd()),
            Token(token as usize),
            Interest::READABLE | Interest::WRITABLE,
        )
    }

    /// Connections in use, of both sides, as nginx counts them.
    pub(crate) fn connections(&self) -> usize {
        self.clients.len() + self.upstreams.len() + self.probes.open()
    }

    /// Takes an accepted connection in.
    pub(crate) fn admit(&mut self, listener: u16, fd: OwnedFd, remote: Option<SocketAddr>) {
        if !self.may_connect(listener, remote) {
            return;
        }
        self.counters.increment(Counter::ConnectionsAccepted);
        let mut overload = false;
        if self.connections() >= self.connections_max && !self.make_room() {
            self.counters.increment(Counter::ConnectionsRefused);
            if self.connections() >= self.connections_max + OVERLOAD_ROOM {
                return self.turn_away(listener, remote, Reason::Overload, Some(NO_ROOM));
            }
            overload = true;
        }
        self.counters.increment(Counter::ConnectionsActive);
        self.serial += self.serial_step;
        let now_ms = self.clock.mono_ms;
        let (transport, phase, wait_ms) = self.beginning(listener, fd);
        let mut deadline_ms = now_ms + wait_ms;
        if let Some(drain) = &self.drain {
            // It came by an address that is about to be closed, and has the grace of those who were here before.
            let server = self.listeners[usize::from(listener)].server;
            let location = self.location(self.fronts.of(server).root);
            deadline_ms = deadline_ms.min(drain.unused_end_ms(location, now_ms, now_ms));
        }
        let client = Client {
            transport,
            timer: self.wheel.create(0),
            phase,
            queued: false,
            overload,
            pipelined: false,
            listener,
            requests: 0,
            active: None,
            input: Vec::new(),
            serial: self.serial,
            accepted_ms: now_ms,
            deadline_ms,
            linger_end_ms: 0,
            linger_wait_ms: 0,
            lowat: 0,
            narrow: 0,
            nodelay: true,
            remote: Remote::new(remote),
            proxied: None,
        };
        self.take_in(client);
    }

    /// What connections of a listener begin with, and how long that may take.
    fn beginning(&self, listener: u16, fd: OwnedFd) -> (Transport, ClientPhase, u64) {
        let listening = &self.listeners[usize::from(listener)];
        let front = self.fronts.of(listening.server);
        if listening.proxy_protocol {
            let transport = Transport::new(fd, true);
            (transport, ClientPhase::Preamble, front.head_timeout_ms)
        } else if listening.tls {
            let transport = Transport::with_tls(fd, true, Secure::accepting());
            (
                transport,
                ClientPhase::Handshake,
                front.handshake_timeout_ms,
            )
        } else {
            let transport = Transport::new(fd, true);
            (transport, ClientPhase::Head, front.head_timeout_ms)
        }
    }

    /// Gives a client its place, its timer and its events.
    fn take_in(&mut self, client: Client) {
        self.memory.tls_connections += u64::from(client.transport.secure.is_some());
        let (timer, deadline_ms, phase) = (client.timer, client.deadline_ms, client.phase);
        let key = self.clients.insert(client);
        self.client_ages
            .join(key.index, Waits::Head, self.clock.mono_ms);
        if phase != ClientPhase::Head {
            self.counters.increment(Counter::ConnectionsHandshaking);
        }
        let token = key.token(Kind::Client);
        self.wheel.name(timer, token);
        self.wheel.arm(timer, deadline_ms);
        let registered = self
            .clients
            .peek(key)
            .map(|client| self.register(&client.transport.fd, token));
        if let Some(Err(error)) = registered {
            log::error!(target: "alert", "epoll_ctl() failed: {error}");
            self.close_client(key, Parting::early(Phase::Accept, Reason::Internal));
        } else if phase == ClientPhase::Preamble {
            self.refuse_distrusted(key);
        }
    }

    /// Writes this process's state onto the scoreboard.
    pub(crate) fn board(&self, state: State) {
        self.shm.scoreboard().set_state(self.row, state);
    }

    /// A path of the configuration against the prefix.
    pub(crate) fn prefix_path(&self, path: PathBuf) -> PathBuf {
        self.prefix.join(path)
    }
}

/// What makes this process choose otherwise than the others.
fn seed() -> io::Result<u64> {
    let mut seed = [0; 8];
    kp_sys::random(&mut seed)?;
    Ok(u64::from_ne_bytes(seed))
}

/// Limits of response heads: strict, and with `accept_bare_lf`.
fn response_limits() -> [HeadLimits; 2] {
    let strict = HeadLimits {
        line_max: RESPONSE_HEAD_MAX,
        total_max: RESPONSE_HEAD_MAX,
        // nginx passes whatever legal names an upstream sends; only a client's are filtered.
        ignore_invalid: false,
        ..HeadLimits::default()
    };
    let lenient = HeadLimits {
        accept_bare_lf: true,
        ..strict
    };
    [strict, lenient]
}

fn listening(config: &Config, sockets: Vec<(ListenerId, OwnedFd)>) -> Vec<Listening> {
    let sockets = sockets.into_iter();
    sockets
        .map(|(id, fd)| Listening::new(config, id, fd))
        .collect()
}

/// The groups as they are to be at birth.
fn groups(config: &Config, heritage: &Heritage, seed: u64) -> Groups {
    let upstreams = &config.http.upstreams;
    let mut groups = Groups::new(upstreams, &heritage.shm, heritage.row, seed);
    groups.steer(&heritage.overrides, 0);
    if config.http.metrics {
        groups.measure();
    }
    groups
}

/// Whether anything counts clients.
fn has_limits(config: &Config) -> bool {
    let http = &config.http;
    !http.rate_zones.is_empty()
        || !http.place_zones.is_empty()
        || http.max_active_requests.is_some()
}

/// How many workers count connections beside this one.
fn serial_step(config: &Config) -> u64 {
    let workers = config.main.worker_processes.map(u64::from);
    workers.unwrap_or(kp_sys::cpu_count() as u64).max(1)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
