//! The upstream half of a connection: connecting, being used by an exchange, waiting in the pool.

use crate::active::{Active, NEVER, RequestStage, ResponseStage};
use crate::ages::Waits;
use crate::exhaustion;
use crate::jobs::errno_text;
use crate::names::Located;
use crate::reactor::Worker;
use crate::secure::{Partner, Secure};
use crate::token::{Key, Kind};
use crate::transport::Transport;
use crate::waiting::Picked;
use crate::wheel::TimerId;
use kp_config::model::{Balancer, Level, PeerAddress, UpstreamId};
use kp_proxy::Target;
use kp_proxy::tls::UpstreamTls;
use kp_proxy::{Cause, Failure, Phase};
use kp_proxy::{Input, WaitFor};
use kp_shm::{Counter, PeerCell, UpstreamCell};
use kp_upstream::{Idle, NoPeer, Outcome, PeerId, PickQuery, Put, Ticket};
use std::hash::{BuildHasher, Hash};
use std::io;
use std::net::SocketAddr;

/// What an upstream connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamPhase {
    /// The connection is being opened.
    Connecting,
    /// It is open, and the TLS handshake under way.
    Handshake,
    /// Open and used by an exchange.
    Busy,
    /// Open and waiting in the pool.
    Idle,
}

/// An upstream connection.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) transport: Transport,
    pub(crate) timer: TimerId,
    pub(crate) phase: UpstreamPhase,
    pub(crate) active: Option<Key>,
    /// Bytes read and not yet used; without memory while idle.
    pub(crate) input: Vec<u8>,
    /// The group's peer; `None` for an address that came out of a variable.
    pub(crate) peer: Option<PeerId>,
    /// An attempt is booked at the peer and must be ended.
    pub(crate) booked: bool,
    /// The local address that `proxy_bind` named, as a number for the pool; 0: none.
    pub(crate) bound: u64,
    /// It began with the name of one client, and so is no other's.
    pub(crate) introduced: bool,
    /// Its name in the pool.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) requests: u32,
    /// How small SO_RCVBUF was made, in steps of [`crate::memory`]; 0: not.
    pub(crate) narrow: u8,
    pub(crate) opened_ms: u64,
}

const _: () = assert!(size_of::<Upstream>() <= 128);

impl Worker {
    /// Picks a peer and connects or reuses. What it returns is fed to the machine at once; `None`: an event will tell.
    pub(crate) fn acquire(&mut self, active: &mut Active) -> Option<Input> {
        let now_ms = self.clock.mono_ms;
        active.peer = None;
        let group = match active.exchange.machine.target.clone() {
            Some(Target::Group(group)) => group,
            Some(Target::Address(address)) => return self.acquire_address(active, &address, 1),
            Some(Target::Name { host, port }) => return self.acquire_name(active, &host, port),
            None => {
                return not_connected(Cause::BadTarget);
            }
        };
        if let Some(until_ms) = self.awaits_first_answer(active, group) {
            return Some(Input::Held {
                for_: WaitFor::Name,
                until_ms,
            });
        }
        active.exchange.machine.peers = self.groups.tries(group);
        let peer = match self.pick_in_turn(active, group) {
            Picked::Peer(peer) => peer,
            Picked::Wait(until_ms) => {
                return Some(Input::Held {
                    for_: WaitFor::Queue,
                    until_ms,
                });
            }
            Picked::None(cause) => {
                let name = &self.config.http.upstreams[group.index()].name;
                active.exchange.begin_attempt(group, name, now_ms);
                active.exchange.response.sticky.clear();
                return not_connected(cause);
            }
        };
        active
            .exchange
            .begin_attempt(group, self.groups.name(peer), now_ms);
        active.peer = Some(peer);
        self.begin_try(active);
        self.offer_cookie(active, peer);
        if active.exchange.machine.tries > 1 {
            self.counters.increment(Counter::UpstreamRetries);
            self.count_for_group(group, UpstreamCell::Retries);
        }
        let proxy = &self.location(active.exchange.location).proxy;
        if !active.exchange.machine.fresh_only
            && proxy.proxy_protocol.is_none()
            && let Some(handle) = self.pooled(active, peer)
        {
            return Some(self.reuse(active, handle, peer));
        }
        let Some(address) = self.groups.address(peer).cloned() else {
            self.finish_peer(active, Some(peer), Outcome::NotCounted);
            return not_connected(Cause::NoLivePeer);
        };
        let partner = self.partner(active, peer);
        self.connect(active, &address, Some(peer), partner)
    }

    /// Connects to an address that belongs to no group, one of so many that may be tried.
    fn acquire_address(
        &mut self,
        active: &mut Active,
        address: &PeerAddress,
        of: u32,
    ) -> Option<Input> {
        let now_ms = self.clock.mono_ms;
        let partner = self.partner(active, address);
        active.exchange.machine.peers = of;
        let text = address_text(address);
        active
            .exchange
            .begin_attempt(UpstreamId(u32::MAX), &text, now_ms);
        self.begin_try(active);
        if active.exchange.machine.tries > 1 {
            self.counters.increment(Counter::UpstreamRetries);
        }
        active.exchange.response.sticky.clear();
        self.connect(active, address, None, partner)
    }

    /// The same for a name: its addresses are tried in turn.
    fn acquire_name(&mut self, active: &mut Active, host: &str, port: u16) -> Option<Input> {
        match self.locate(active, host) {
            Located::At(ip, of) => {
                let address = PeerAddress::Inet(SocketAddr::new(ip, port));
                self.acquire_address(active, &address, of)
            }
            Located::Wait(until_ms) => Some(Input::Held {
                for_: WaitFor::Name,
                until_ms,
            }),
            Located::Failed(reason) => {
                let none = UpstreamId(u32::MAX);
                let now_ms = self.clock.mono_ms;
                active.exchange.begin_attempt(none, host, now_ms);
                active.exchange.record.detail = Some(host.to_owned());
                let cause = Cause::NameNotResolved(reason.code());
                Some(Input::UpstreamFailed(Failure::new(Phase::Route, cause)))
            }
        }
    }

    /// Until when an exchange waits for the first addresses of its group; `None`: it does not. It waits once.
    fn awaits_first_answer(&mut self, active: &mut Active, group: UpstreamId) -> Option<u64> {
        let until_ms = self.first_answer(group, active.key);
        let Some(until_ms) = until_ms else {
            active.name_until_ms = NEVER;
            return None;
        };
        active.name_until_ms = active.name_until_ms.min(until_ms);
        (self.clock.mono_ms < active.name_until_ms).then_some(active.name_until_ms)
    }

    /// An idle connection to the peer from the same local address that speaks the same TLS, or none at all.
    fn pooled(&mut self, active: &mut Active, peer: PeerId) -> Option<u64> {
        let bound = self.bind_text(active);
        let wanted = &active.exchange.request.upstream_tls;
        let way = self.tls_number(wanted) ^ self.bound_number(&bound);
        let location = active.exchange.location;
        let handle = self.pool.take(peer, location, way, self.clock.mono_ms)?;
        let (_, key) = crate::token::parse(handle)?;
        let partner = self
            .upstreams
            .peek(key)
            .and_then(|upstream| upstream.transport.partner());
        if partner.map_or(wanted.identity.is_none(), |partner| partner.tls == *wanted) {
            return Some(handle);
        }
        // Two different ones with the same number: so rare that one of them is given up.
        self.note_unpooled(key);
        self.close_upstream(key);
        None
    }

    /// What TLS is to be spoken, as a number for the pool; 0: none.
    fn tls_number(&self, tls: &UpstreamTls) -> u64 {
        match tls.identity {
            Some(identity) => {
                let all = (identity.0, &tls.name, &tls.certificate, &tls.key);
                self.hasher.hash_one(all) | 1
            }
            None => 0,
        }
    }

    /// Whom TLS is to be spoken with; `None`: it is not.
    fn partner(&self, active: &Active, peer: impl Hash) -> Option<Partner> {
        let tls = &active.exchange.request.upstream_tls;
        let identity = tls.identity?;
        Some(Partner {
            identity,
            tls: tls.clone(),
            peer: self.hasher.hash_one(peer),
            number: self.tls_number(tls),
        })
    }

    /// `proxy_try_timeout` begins.
    fn begin_try(&self, active: &mut Active) {
        let timeout = self.location(active.exchange.location).proxy.try_timeout;
        if !timeout.is_zero() {
            let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(NEVER);
            active.deadlines.attempt = self.clock.mono_ms.saturating_add(timeout_ms);
        }
    }

    pub(crate) fn pick(
        &mut self,
        active: &mut Active,
        group: UpstreamId,
    ) -> Result<PeerId, NoPeer> {
        let upstream = &self.config.http.upstreams[group.index()];
        let mut key = std::mem::take(&mut self.key_text);
        key.clear();
        if let Balancer::Hash { key: template, .. } = &upstream.balancer {
            self.evaluate(active, template, &mut key);
        }
        let mut session = std::mem::take(&mut self.session_text);
        session.clear();
        if let Some(sticky) = &upstream.sticky {
            self.find_session(active, group, sticky, &mut session);
        }
        let query = PickQuery {
            hash_key: &key,
            client: active.exchange.connection.remote.map(|remote| remote.ip()),
            sticky: &session,
            now_ms: self.clock.mono_ms,
        };
        let picked = self
            .groups
            .pick(group, &query, &mut active.exchange.machine.tried);
        self.key_text = key;
        self.tell_changes(group);
        self.session_text = session;
        picked
    }

    /// Takes an idle connection into use.
    fn reuse(&mut self, active: &mut Active, handle: u64, peer: PeerId) -> Input {
        let key = crate::token::parse(handle).map(|(_, key)| key);
        let Some((key, upstream)) =
            key.and_then(|key| self.upstreams.at(key).map(|upstream| (key, upstream)))
        else {
            debug_assert!(false, "the pool named a connection that is gone");
            self.finish_peer(active, Some(peer), Outcome::NotCounted);
            return Input::UpstreamFailed(Failure::new(Phase::Connect, Cause::StaleConnection));
        };
        self.pooled_ages.leave(key.index);
        upstream.phase = UpstreamPhase::Busy;
        upstream.active = Some(active.key);
        upstream.peer = Some(peer);
        upstream.booked = true;
        upstream.ticket = None;
        upstream.requests += 1;
        active.upstream = Some(key);
        self.note_reused(peer);
        Input::Connected { reused: true }
    }

    fn connect(
        &mut self,
        active: &mut Active,
        address: &PeerAddress,
        peer: Option<PeerId>,
        partner: Option<Partner>,
    ) -> Option<Input> {
        if self.connections() >= self.connections_max && !self.make_room() {
            self.finish_peer(active, peer, Outcome::NotCounted);
            return not_connected(Cause::Overload);
        }
        let bound = self.bind_text(active);
        let bind = match self.bind_address(active, &bound) {
            Ok(bind) => bind,
            Err(failure) => {
                self.finish_peer(active, peer, Outcome::NotCounted);
                return Some(Input::UpstreamFailed(failure));
            }
        };
        let target = match address {
            PeerAddress::Inet(address) => kp_sys::socket::Target::Inet(*address),
            PeerAddress::Unix(path) => kp_sys::socket::Target::Unix(path),
        };
        let mut opened = kp_sys::socket::connect(target, bind);
        if let Err(error) = &opened
            && exhaustion::is_of_files(error)
            && self.make_room()
        {
            opened = kp_sys::socket::connect(target, bind);
        }
        let fd = match opened {
            Ok(fd) => fd,
            Err(error) => return self.not_opened(active, peer, &error, bind.is_some()),
        };
        self.count_connect(peer);
        let location = self.location(active.exchange.location);
        // All without effect on unix sockets. The end of a request body must not wait for an acknowledgement that the
        // upstream delays.
        if location.tcp_nodelay {
            let _ = kp_sys::socket::set_nodelay(&fd, true);
        }
        // Of the body of a fast client the kernel would else take megabytes ahead of a slow upstream.
        let _ = kp_sys::socket::set_notsent_lowat(&fd, self.memory.notsent_lowat());
        if self.memory.level() > 0 {
            let _ = kp_sys::socket::set_receive_buffer(&fd, self.memory.receive_buffer());
        }
        if location.proxy.socket_keepalive {
            let _ = kp_sys::socket::set_keepalive(&fd);
        }
        let transport = match partner {
            Some(partner) => Transport::with_tls(fd, false, Secure::connecting(partner)),
            None => Transport::new(fd, false),
        };
        let bound = self.bound_number(&bound);
        self.begin_connection(active, transport, peer, bound)
    }

    fn count_connect(&self, peer: Option<PeerId>) {
        self.counters.increment(Counter::UpstreamConnects);
        self.count_for_peer(peer, PeerCell::Connects);
    }

    /// A connection failed as soon as it was asked for. `bound`: it has a local address of its own.
    fn not_opened(
        &mut self,
        active: &mut Active,
        peer: Option<PeerId>,
        error: &io::Error,
        bound: bool,
    ) -> Option<Input> {
        if exhaustion::is_any(error) {
            self.finish_peer(active, peer, Outcome::NotCounted);
            active.exchange.record.detail = Some(errno_text(error));
            return not_connected(Cause::Overload);
        }
        if bound && exhaustion::is_of_local_address(error) {
            // No word about the peer, which other locations may well reach.
            self.finish_peer(active, peer, Outcome::NotCounted);
        } else {
            self.count_connect(peer);
            self.finish_peer(active, peer, Outcome::Failed);
        }
        not_connected(Cause::ConnectFailed(error.raw_os_error().unwrap_or(0)))
    }

    /// Takes a connection that is being opened into use.
    fn begin_connection(
        &mut self,
        active: &mut Active,
        transport: Transport,
        peer: Option<PeerId>,
        bound: u64,
    ) -> Option<Input> {
        let upstream = Upstream {
            transport,
            timer: self.wheel.create(0),
            phase: UpstreamPhase::Connecting,
            active: Some(active.key),
            input: Vec::new(),
            peer,
            booked: peer.is_some(),
            bound,
            introduced: false,
            ticket: None,
            requests: 1,
            narrow: self.memory.level(),
            opened_ms: self.clock.mono_ms,
        };
        self.memory.tls_connections += u64::from(upstream.transport.secure.is_some());
        let key = self.upstreams.insert(upstream);
        let token = key.token(Kind::Upstream);
        self.wheel.name(self.upstreams.at(key)?.timer, token);
        active.upstream = Some(key);
        self.counters.increment(Counter::UpstreamConnectionsActive);
        if let Some(upstream) = self.upstreams.peek(key)
            && let Err(error) = self.register(&upstream.transport.fd, token)
        {
            if exhaustion::is_any(&error) {
                active.exchange.record.detail = Some(errno_text(&error));
                return not_connected(Cause::Overload);
            }
            return not_connected(Cause::ConnectFailed(error.raw_os_error().unwrap_or(0)));
        }
        None
    }

    /// What `proxy_bind` evaluates to; empty: there is none.
    fn bind_text(&mut self, active: &mut Active) -> Vec<u8> {
        let mut text = Vec::new();
        if let Some(template) = &self.location(active.exchange.location).proxy.bind {
            self.evaluate(active, template, &mut text);
        }
        text
    }

    /// The same as a number for the pool; 0: none.
    fn bound_number(&self, text: &[u8]) -> u64 {
        match text {
            [] => 0,
            text => self.hasher.hash_one(text),
        }
    }

    /// `proxy_bind`: the local address to connect from.
    fn bind_address(
        &self,
        active: &mut Active,
        text: &[u8],
    ) -> Result<Option<SocketAddr>, Failure> {
        local_address(text).map_err(|text| {
            let message = format!("invalid local address \"{text}\"");
            self.log_exchange(active, Level::Error, &message);
            Failure::new(Phase::Connect, Cause::Internal)
        })
    }

    /// Books the end of an attempt at the peer of an upstream connection that never came to be.
    fn finish_peer(&mut self, active: &mut Active, peer: Option<PeerId>, outcome: Outcome) {
        if outcome == Outcome::Failed {
            self.count_not_open(peer);
        }
        if let Some(peer) = peer {
            self.judge_unconnected(peer, outcome);
            self.finish_attempt(active, peer, outcome);
        }
    }

    /// A connection did not open.
    fn count_not_open(&self, peer: Option<PeerId>) {
        self.counters.increment(Counter::UpstreamConnectFailures);
        self.count_for_peer(peer, PeerCell::ConnectFailures);
    }

    /// Tells the group that an attempt is over, and the log if the peer failed once too often.
    fn finish_attempt(&mut self, active: &mut Active, peer: PeerId, outcome: Outcome) {
        let disabled = self.groups.finished(peer, outcome, self.clock.mono_ms);
        self.call_next(peer.upstream);
        if disabled {
            self.counters.increment(Counter::UpstreamPeersDisabled);
            self.log_exchange(active, Level::Warn, "upstream server temporarily disabled");
        }
    }

    /// The exchange is done with its upstream connection, whatever state that is in.
    pub(crate) fn drop_upstream(&mut self, active: &mut Active) {
        let Some(key) = active.upstream.take() else {
            return;
        };
        if matches!(active.response.stage, ResponseStage::Tunnel(_)) {
            self.counters.decrement(Counter::TunnelsActive);
        }
        let broken = self
            .upstreams
            .at(key)
            .map(|upstream| &mut upstream.transport);
        if let Some(error) = broken.and_then(Transport::take_failure) {
            let text = format!("SSL_read() failed (SSL: {error}) while reading upstream");
            self.log_exchange(active, Level::Error, &text);
        }
        self.end_booking(active, key);
        self.close_upstream(key);
    }

    /// Ends the attempt at the peer with what the machine says about it.
    fn end_booking(&mut self, active: &mut Active, key: Key) {
        let outcome = active
            .exchange
            .machine
            .outcome
            .take()
            .unwrap_or(Outcome::Ok);
        let Some(upstream) = self.upstreams.at(key) else {
            return;
        };
        let booked = std::mem::take(&mut upstream.booked);
        let (is_fresh, phase) = (upstream.requests == 1, upstream.phase);
        let peer = upstream.peer.filter(|_| booked);
        if outcome == Outcome::Failed
            && matches!(phase, UpstreamPhase::Connecting | UpstreamPhase::Handshake)
        {
            self.count_not_open(peer);
        }
        let Some(peer) = peer else { return };
        if std::mem::take(&mut active.exchange.machine.forgive) {
            active.exchange.machine.tried.forgive(peer);
        }
        self.judge(active, peer, outcome, is_fresh);
        self.finish_attempt(active, peer, outcome);
    }

    /// The response is whole: the connection goes to the pool if nothing speaks against it.
    pub(crate) fn release_upstream(&mut self, active: &mut Active) {
        let now_ms = self.clock.mono_ms;
        let reusable = self.reusable(active);
        self.learn_from_response(active);
        let Some(key) = active.upstream.take() else {
            return;
        };
        self.end_booking(active, key);
        self.end_retry(active);
        let Some(upstream) = self.upstreams.at(key) else {
            return;
        };
        // Nor is one of use that leads to a peer which was taken out meanwhile.
        let reusable = reusable
            && upstream
                .peer
                .is_some_and(|peer| self.groups.is_welcome(peer));
        // What came behind a response that filled its last read gives no further event, and must not become the next one.
        let Some(peer) = upstream
            .peer
            .filter(|_| reusable && upstream.transport.is_quiet(&mut self.buffers))
        else {
            return self.close_upstream(key);
        };
        let idle = Idle {
            peer,
            location: active.exchange.location,
            way: upstream.bound
                ^ upstream
                    .transport
                    .partner()
                    .map_or(0, |partner| partner.number),
            handle: key.token(Kind::Upstream),
            requests: upstream.requests,
            opened_ms: upstream.opened_ms,
            keep_alive_timeout_s: active
                .exchange
                .response
                .upstream
                .as_ref()
                .and_then(|head| head.keep_alive_timeout_s),
        };
        match self.pool.put(&idle, now_ms) {
            Put::Kept {
                ticket,
                deadline_ms,
                evicted,
            } => {
                self.pooled_ages.join(key.index, Waits::Idle, now_ms);
                upstream.phase = UpstreamPhase::Idle;
                upstream.active = None;
                upstream.ticket = Some(ticket);
                self.buffers.give(&mut upstream.input);
                self.wheel.arm(upstream.timer, deadline_ms);
                self.note_pooled(peer);
                if let Some((_, evicted)) = evicted.and_then(crate::token::parse) {
                    self.note_unpooled(evicted);
                    self.close_upstream(evicted);
                }
            }
            Put::Refused => self.close_upstream(key),
        }
    }

    /// Whether nothing of this request or its answer can still be on the connection.
    fn reusable(&self, active: &Active) -> bool {
        let Some(upstream) = active.upstream.and_then(|key| self.upstreams.peek(key)) else {
            return false;
        };
        let request_sent =
            active.request.stage == RequestStage::Done && active.to_upstream.is_empty();
        active
            .exchange
            .response
            .upstream
            .as_ref()
            .is_some_and(|head| head.persistent)
            && !active.exchange.machine.upstream_close
            && active.exchange.machine.failure.is_none()
            && request_sent
            && active.response.write_broken.is_none()
            && matches!(active.response.stage, ResponseStage::Complete)
            && upstream.input.is_empty()
            && !upstream.transport.ending
            && !upstream.transport.errored
            && !upstream.introduced
            && self.drain.is_none()
    }

    /// An event on a pooled connection. With TLS it may be no more than a session ticket.
    pub(crate) fn wake_idle_upstream(&mut self, key: Key) {
        let Some(upstream) = self.upstreams.at(key) else {
            return;
        };
        let harmless = upstream.transport.secure.is_some()
            && !upstream.transport.errored
            && upstream.transport.is_quiet(&mut self.buffers);
        if !harmless {
            self.end_idle_upstream(key);
        }
    }

    /// An event on, or the end of the time of, a connection that no exchange uses: whatever it is, it ends here. Bytes
    /// that came unasked reach nobody.
    pub(crate) fn end_idle_upstream(&mut self, key: Key) {
        let idle = self
            .upstreams
            .peek(key)
            .filter(|upstream| upstream.phase == UpstreamPhase::Idle);
        if let Some((peer, ticket)) = idle.and_then(|upstream| upstream.peer.zip(upstream.ticket)) {
            self.pool.remove(peer, ticket, key.token(Kind::Upstream));
            self.note_unpooled(key);
            self.close_upstream(key);
        }
    }

    pub(crate) fn close_upstream(&mut self, key: Key) {
        let Some(mut upstream) = self.upstreams.remove(key) else {
            return;
        };
        upstream.transport.part(&mut self.buffers);
        let tls = upstream.transport.forget_tls(&mut self.buffers);
        self.memory.tls_connections -= u64::from(tls);
        self.pooled_ages.leave(key.index);
        self.buffers.give(&mut upstream.input);
        self.wheel.free(upstream.timer);
        self.counters.decrement(Counter::UpstreamConnectionsActive);
    }

    /// Closes every pooled connection, when draining begins.
    pub(crate) fn close_idle_upstreams(&mut self) {
        for handle in self.pool.drain() {
            self.close_pooled(handle);
        }
    }

    /// Closes a connection that the pool has just given up.
    pub(crate) fn close_pooled(&mut self, handle: u64) {
        if let Some((_, key)) = crate::token::parse(handle) {
            self.note_unpooled(key);
            self.close_upstream(key);
        }
    }
}

/// What the machine hears when no connection could be begun.
/// The local address to connect from that `proxy_bind` evaluated to; nothing: the system chooses. The text, if it is none.
pub(crate) fn local_address(text: &[u8]) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(text);
    let alone = || text.trim_matches(['[', ']']).parse();
    let address = text
        .parse()
        .or_else(|_| alone().map(|ip| SocketAddr::new(ip, 0)));
    address.map(Some).map_err(|_| text.into_owned())
}

fn not_connected(cause: Cause) -> Option<Input> {
    Some(Input::UpstreamFailed(Failure::new(Phase::Connect, cause)))
}

/// `$upstream_addr` of an address that belongs to no group.
fn address_text(address: &PeerAddress) -> String {
    match address {
        PeerAddress::Inet(address) => address.to_string(),
        PeerAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}
