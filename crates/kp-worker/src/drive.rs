//! Drives an exchange: lets bytes move, tells the machine what happened, performs what it asks for.

use crate::active::{Active, Collected, Deadlines, NEVER, RequestStage, ResponseStage, Tunnel};
use crate::reactor::Worker;
use crate::token::{Key, Kind};
use crate::upstream::UpstreamPhase;
use kp_http::{BodyDecoder, Framing};
use kp_proxy::machine::BodyState;
use kp_proxy::{Action, After, Answer, Answered, BodyPlan, Cause, Failure, Input, Phase};
use kp_shm::Counter;

/// Rounds per visit: one busy exchange cannot starve the loop.
const ROUNDS_MAX: u32 = 16;

/// What one step did.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Nothing can move.
    Nothing,
    /// Something moved; there may be more.
    Moved,
    /// The machine has to be told.
    Input(Input),
    /// The client connection must end now.
    Hangup,
}

/// What became of an exchange after a visit.
enum Visit {
    /// It waits for an event or a deadline.
    Park,
    /// It used up its rounds.
    Requeue,
    /// Its answer is out.
    Finished,
    /// The client connection must end now.
    Hangup,
}

impl Worker {
    /// Visits an exchange.
    pub(crate) fn drive(&mut self, key: Key) {
        if let Some(mut active) = self.exchanges.lend(key) {
            active.queued = false;
            self.drive_from(active, None);
        }
    }

    /// Visits an exchange that is lent out, beginning with an input if there is one.
    pub(crate) fn drive_from(&mut self, mut active: Box<Active>, first: Option<Input>) {
        crate::panic_note::serving(active.exchange.connection.serial);
        let visit = self.visit(&mut active, first);
        crate::panic_note::serving(0);
        match visit {
            Visit::Park => {
                self.park(&mut active);
                self.exchanges.restore(active.key, active);
            }
            Visit::Requeue => {
                let key = active.key;
                self.exchanges.restore(key, active);
                self.enqueue_exchange(key);
            }
            Visit::Finished => self.finish(active),
            Visit::Hangup => {
                self.log_once(&mut active);
                let client = active.client;
                self.exchanges.restore(active.key, active);
                self.close_client(client);
            }
        }
    }

    fn visit(&mut self, active: &mut Active, first: Option<Input>) -> Visit {
        let mut input = first;
        for _ in 0..ROUNDS_MAX {
            while let Some(next) = input.take() {
                match self.tell(active, next) {
                    Told::Again(next) => input = next,
                    Told::Hangup => return Visit::Hangup,
                }
            }
            match self.turn(active) {
                Turn::Input(next) => input = Some(next),
                Turn::Hangup => return Visit::Hangup,
                Turn::Moved | Turn::Nothing if self.is_over(active) => return Visit::Finished,
                Turn::Moved => {}
                Turn::Nothing => return Visit::Park,
            }
        }
        if let Some(next) = input {
            // An input must not be lost: the rounds only bound how far bytes are moved.
            match self.tell(active, next) {
                Told::Again(None) => {}
                Told::Again(Some(next)) => return self.visit(active, Some(next)),
                Told::Hangup => return Visit::Hangup,
            }
        }
        Visit::Requeue
    }

    /// One step: a deadline, a connect, the request, the response, the client's socket, in this order.
    fn turn(&mut self, active: &mut Active) -> Turn {
        if let Some(input) = self.overdue(active) {
            return Turn::Input(input);
        }
        if let Some(input) = self.client_gone(active) {
            return Turn::Input(input);
        }
        if let Some(input) = self.connected(active) {
            return Turn::Input(input);
        }
        let request = self.move_request(active);
        if let Turn::Input(_) = request {
            return request;
        }
        let mut moved = matches!(request, Turn::Moved);
        if !active.to_upstream.is_empty() && self.upstream_writable(active) {
            // Once the request is out, room for more of it changes nothing.
            moved |= self.push_upstream(active, &[]) && active.request.stage != RequestStage::Done;
        }
        let response = self.move_response(active);
        if let Turn::Input(_) | Turn::Hangup = response {
            return response;
        }
        moved |= matches!(response, Turn::Moved);
        moved |= matches!(self.unspool(active), Turn::Moved);
        if !active.to_client.is_empty() {
            moved |= self.push_client(active, &[]);
            if self.client_broken(active) {
                return Turn::Input(Input::ClientGone);
            }
        }
        if moved { Turn::Moved } else { Turn::Nothing }
    }

    fn upstream_writable(&self, active: &Active) -> bool {
        active
            .upstream
            .and_then(|key| self.upstreams.peek(key))
            .is_some_and(|upstream| {
                upstream.phase == UpstreamPhase::Busy && upstream.transport.writable
            })
    }

    fn client_broken(&self, active: &Active) -> bool {
        self.clients
            .peek(active.client)
            .is_some_and(|client| client.transport.errored)
    }

    /// The client ended its connection although its answer is not there yet. nginx takes a half-closed client for gone,
    /// and so does kp; `proxy_ignore_client_abort` lets the upstream finish.
    fn client_gone(&mut self, active: &mut Active) -> Option<Input> {
        let client = self.clients.peek(active.client)?;
        if !client.transport.ending
            || active.upstream.is_none()
            || matches!(active.response.stage, ResponseStage::Tunnel(_))
        {
            return None;
        }
        let body_pending = !active.request.whole && active.request.stage != RequestStage::Unread;
        // An answer that nobody takes any more ends the upstream all the same.
        let refused =
            client.transport.errored && matches!(active.response.stage, ResponseStage::Relaying);
        let ignore = self
            .location(active.exchange.location)
            .proxy
            .ignore_client_abort
            && !refused;
        if body_pending && !client.transport.errored || ignore {
            None
        } else {
            // Whether it left after its request or in the middle of it shows in the log.
            self.sift_body(active);
            Some(if active.request.whole {
                Input::ClientGone
            } else {
                Input::ClientCut
            })
        }
    }

    /// Whether a connect under way came to an end.
    fn connected(&mut self, active: &Active) -> Option<Input> {
        let upstream = self.upstreams.at(active.upstream?)?;
        if upstream.phase != UpstreamPhase::Connecting
            || !upstream.transport.writable && !upstream.transport.errored
        {
            return None;
        }
        if upstream.transport.errored || upstream.transport.ending {
            let errno = match kp_sys::socket::take_error(&upstream.transport.fd) {
                Ok(error) => error.and_then(|error| error.raw_os_error()),
                Err(error) => error.raw_os_error(),
            };
            if let Some(errno) = errno {
                return Some(Input::UpstreamFailed(Failure::new(
                    Phase::Connect,
                    Cause::ConnectFailed(errno),
                )));
            }
            upstream.transport.errored = false;
        }
        upstream.phase = UpstreamPhase::Busy;
        Some(Input::Connected { reused: false })
    }

    /// Tells the machine and performs what it asks for.
    pub(crate) fn tell(&mut self, active: &mut Active, input: Input) -> Told {
        let action = {
            let facts = self.facts(active.client);
            let context = self.context(&facts);
            active.exchange.handle(input, self.program, &context)
        };
        self.report(active);
        if !action.continues_upstream() {
            self.leave_upstream(active);
        }
        match action {
            // The body of a request that was refused because of it cannot be had any more; its error page does without.
            Action::Collect if Self::body_is_lost(active) => {
                return Told::Again(Some(Input::Collected));
            }
            Action::Collect => {
                active.request.stage = RequestStage::Collecting;
                self.send_continue(active);
            }
            Action::Acquire => {
                return Told::Again(match self.take_held_body(active) {
                    Some(failed) => Some(failed),
                    None => self.acquire(active),
                });
            }
            Action::SendHead => self.send_head(active),
            Action::AwaitHead => {
                active.reader.reset();
                active.exchange.response.forget_upstream();
            }
            Action::ForwardInterim => self.forward_interim(active),
            Action::ForwardHead => self.forward_head(active),
            Action::Tunnel => self.open_tunnel(active),
            Action::OpenFile(query) => return Told::Again(self.open_file(active, query)),
            Action::SendFile(file) => match self.sift_body(active) {
                Some(failure) => return Told::Again(Some(Input::BodyRefused(failure))),
                None => self.begin_file(active, &file),
            },
            Action::Respond(answer) => match self.sift_body(active) {
                // As nginx: an answer that is an error already stays the one it is.
                Some(failure) if answer.status < 300 => {
                    return Told::Again(Some(Input::BodyRefused(failure)));
                }
                _ => self.respond(active, &answer),
            },
            Action::RespondFailure(failure) => self.respond_failure(active, &failure),
            Action::Truncate => self.truncate(active),
            Action::Close => return Told::Hangup,
        }
        Told::Again(None)
    }

    /// Ends what was going on with an upstream, before something else answers.
    fn leave_upstream(&mut self, active: &mut Active) {
        self.drop_upstream(active);
        active.exchange.machine.outcome = None;
        active.to_upstream.clear(&mut self.buffers);
        active.response.stage = ResponseStage::Idle;
        active.response.write_broken = None;
        active.response.any_byte = false;
        active.reader.reset();
        active.forget_replay();
        active.deadlines.upstream_read = NEVER;
        active.deadlines.upstream_write = NEVER;
        active.deadlines.rate = NEVER;
    }

    /// `100 Continue`, if the client asked for it (RFC 9110 §10.1.1). As nginx, also when the body is already here.
    pub(crate) fn send_continue(&mut self, active: &mut Active) {
        if std::mem::take(&mut active.request.owes_continue) {
            self.append_client(active, &[b"HTTP/1.1 100 Continue\r\n\r\n"]);
        }
    }

    fn send_head(&mut self, active: &mut Active) {
        active.response.stage = ResponseStage::AwaitHead;
        active.response.any_byte = false;
        active.reader.reset();
        let plan = self.body_plan(active);
        let mut out = active.to_upstream.lend(&mut self.buffers);
        let sent = {
            let facts = self.facts(active.client);
            let context = self.context(&facts);
            kp_proxy::request_head(&mut out, &mut active.exchange, self.program, &context, plan)
        };
        active.to_upstream.restore(out);
        let machine = &mut active.exchange.machine;
        machine.sent_method = Some(sent.method);
        machine.upgrade = sent.upgrade;
        machine.upstream_close = sent.close;
        active.deadlines.upstream_read = NEVER;
        self.send_body(active, plan);
    }

    /// How the body goes out: what was collected or set, or as it comes.
    fn body_plan(&mut self, active: &mut Active) -> BodyPlan {
        let proxy = &self.location(active.exchange.location).proxy;
        if let Some(template) = &proxy.set_body {
            let mut body = Vec::new();
            let facts = self.facts(active.client);
            kp_proxy::vars::evaluate(
                template,
                &mut active.exchange,
                self.program,
                &self.context(&facts),
                &mut body,
            );
            let length = body.len() as u64;
            active.request.set_body = Some(body);
            return BodyPlan::Length(length);
        }
        if !proxy.pass_request_body || Self::body_is_lost(active) {
            return BodyPlan::None;
        }
        // Routed again after an upstream took some of it, or after it was refused.
        if active.exchange.machine.body == BodyState::Consumed {
            return BodyPlan::None;
        }
        match &active.request.collected {
            Collected::Memory(body) => BodyPlan::Length(body.len() as u64),
            Collected::File(spill) => BodyPlan::Length(spill.length()),
            Collected::None => match active.exchange.request.head.framing {
                Framing::Length(length) => BodyPlan::Length(length),
                Framing::Chunked => BodyPlan::Chunked,
                Framing::None | Framing::UntilClose => BodyPlan::None,
            },
        }
    }

    /// Sets the request body going behind its head.
    fn send_body(&mut self, active: &mut Active, plan: BodyPlan) {
        active.request.out = match plan {
            BodyPlan::None => Framing::None,
            BodyPlan::Length(length) => Framing::Length(length),
            BodyPlan::Chunked => Framing::Chunked,
        };
        let set = active.request.set_body.take();
        if let Some(body) = &set {
            active
                .to_upstream
                .buffer(&mut self.buffers)
                .extend_from_slice(body);
        }
        active.request.stage = match &active.request.collected {
            _ if set.is_some() || plan == BodyPlan::None => {
                if active.request.whole || Self::body_is_lost(active) {
                    RequestStage::Done
                } else {
                    if active.exchange.machine.body != BodyState::Consumed {
                        self.send_continue(active);
                    }
                    RequestStage::Discarding
                }
            }
            Collected::Memory(_) | Collected::File(_) => RequestStage::Replaying(0),
            Collected::None if active.request.whole => {
                self.send_continue(active);
                RequestStage::Done
            }
            Collected::None => {
                self.send_continue(active);
                RequestStage::Streaming
            }
        };
    }

    fn forward_interim(&mut self, active: &mut Active) {
        active.reader.reset();
        let Some(head) = active.exchange.response.upstream.take() else {
            return;
        };
        let mut out = active.to_client.lend(&mut self.buffers);
        {
            let facts = self.facts(active.client);
            // Whether there is anything to send shows in the buffer.
            kp_proxy::interim_head(
                &mut out,
                &head,
                &mut active.exchange,
                self.program,
                &self.context(&facts),
            );
        }
        active.to_client.restore(out);
        self.push_client(active, &[]);
    }

    /// The upstream's final head: to the client, then its body.
    fn forward_head(&mut self, active: &mut Active) {
        self.apply_nodelay(active);
        let persistent = self.may_persist(active);
        let mut out = active.to_client.lend(&mut self.buffers);
        let before = out.len();
        let head = {
            let facts = self.facts(active.client);
            kp_proxy::response_head(
                &mut out,
                &mut active.exchange,
                self.program,
                &self.context(&facts),
                persistent,
            )
        };
        active.exchange.record.head_bytes_sent += (out.len() - before) as u64;
        active.to_client.restore(out);
        active.persistent = head.keep;
        let asked = kp_proxy::directives(&active.exchange, self.program).buffering;
        active.exchange.machine.buffering =
            asked.unwrap_or(self.location(active.exchange.location).proxy.buffering);
        active.response.out = head.framing;
        let framing = active
            .exchange
            .response
            .upstream
            .as_ref()
            .map_or(Framing::None, |head| head.framing);
        active.response.decoder = BodyDecoder::new(framing);
        active.response.stage = ResponseStage::Relaying;
        // A body that the client must not get (HEAD sent on as GET, a 304 out of an error page) is not waited for.
        if matches!(framing, Framing::None | Framing::Length(0)) || head.framing == Framing::None {
            self.no_body(active, framing);
        }
        // Otherwise the head leaves at the end of this turn, with what is there of the body.
    }

    /// A response that is complete with its head.
    fn no_body(&mut self, active: &mut Active, framing: Framing) {
        let empty = matches!(framing, Framing::None | Framing::Length(0));
        if let Some(upstream) = active.upstream.and_then(|key| self.upstreams.at(key))
            && !(empty && upstream.input.is_empty() && !active.response.ahead)
        {
            upstream.transport.ending = true;
        }
        self.end_response(active);
        self.response_complete(active);
    }

    fn open_tunnel(&mut self, active: &mut Active) {
        let mut out = active.to_client.lend(&mut self.buffers);
        let before = out.len();
        {
            let facts = self.facts(active.client);
            kp_proxy::response_head(
                &mut out,
                &mut active.exchange,
                self.program,
                &self.context(&facts),
                false,
            );
        }
        active.exchange.record.head_bytes_sent += (out.len() - before) as u64;
        active.to_client.restore(out);
        active.persistent = false;
        active.response.stage = ResponseStage::Tunnel(Tunnel::default());
        active.request.stage = RequestStage::Done;
        active.request.whole = true;
        self.counters.increment(Counter::TunnelsOpened);
        self.counters.increment(Counter::TunnelsActive);
        self.push_client(active, &[]);
    }

    /// A local answer: head and body at once.
    fn respond(&mut self, active: &mut Active, answer: &Answer) {
        let keep = self.may_persist(active);
        let mut out = active.to_client.lend(&mut self.buffers);
        let sent = {
            let facts = self.facts(active.client);
            kp_proxy::answer(
                &mut out,
                answer,
                &mut active.exchange,
                self.program,
                &self.context(&facts),
                keep,
            )
        };
        active.to_client.restore(out);
        self.answered(active, sent);
    }

    fn respond_failure(&mut self, active: &mut Active, failure: &Failure) {
        let keep = self.may_persist(active);
        let mut out = active.to_client.lend(&mut self.buffers);
        let sent = {
            let facts = self.facts(active.client);
            kp_proxy::failure_answer(
                &mut out,
                failure,
                &mut active.exchange,
                self.program,
                &self.context(&facts),
                keep,
            )
        };
        active.to_client.restore(out);
        self.answered(active, sent);
    }

    /// `tcp_nodelay` of the location that answers; a system call only where it differs from what the connection has.
    fn apply_nodelay(&mut self, active: &Active) {
        let wanted = self.location(active.exchange.location).tcp_nodelay;
        let Some(client) = self.clients.at(active.client) else {
            return;
        };
        if client.nodelay != wanted {
            client.nodelay = wanted;
            // Without effect on unix sockets.
            let _ = kp_sys::socket::set_nodelay(&client.transport.fd, wanted);
        }
    }

    /// A whole answer is in the buffer.
    pub(crate) fn answered(&mut self, active: &mut Active, sent: Answered) {
        self.apply_nodelay(active);
        active.exchange.record.head_bytes_sent += sent.head_bytes as u64;
        active.persistent = sent.keep;
        active.response.stage = ResponseStage::Complete;
        self.discard_body(active);
    }

    /// What came before the break is still delivered, unless it is the client that does not take it.
    fn truncate(&mut self, active: &mut Active) {
        let failure = active.exchange.machine.failure;
        if failure.is_some_and(|failure| failure.cause == Cause::ClientSendTimeout) {
            active.to_client.clear(&mut self.buffers);
            active.spool = None;
        }
        active.cut = true;
        active.persistent = false;
        active.response.stage = ResponseStage::Complete;
        active.request.stage = RequestStage::Done;
    }

    /// Whether the connection may serve another request after this one, as far as kp is concerned.
    pub(crate) fn may_persist(&self, active: &Active) -> bool {
        let stays = {
            let facts = self.facts(active.client);
            kp_proxy::may_stay(&active.exchange, &self.context(&facts))
        };
        // Who still waits for a 100 may never send its body: the bytes that follow could be either.
        if !stays
            || !keeps(active)
            || Self::body_is_lost(active)
            || active.request.owes_continue && !active.request.whole
        {
            return false;
        }
        let Some(client) = self.clients.peek(active.client) else {
            return false;
        };
        // RFC 9112 §9.6: only the answer to the last request that was already received says close.
        !client.overload && (self.drain.is_none() || holds_a_head(&client.input))
    }

    /// The answer is out and nothing is left to do with the request.
    fn is_over(&self, active: &Active) -> bool {
        matches!(active.response.stage, ResponseStage::Complete)
            && active.to_client.is_empty()
            && !self.is_spooling(active)
            && (active.request.stage == RequestStage::Done || active.cut)
            && active.upstream.is_none()
    }

    fn finish(&mut self, mut active: Box<Active>) {
        active.exchange.record.completed = !active.cut;
        self.log_once(&mut active);
        self.after_exchange(active);
    }

    /// Writes the access log line, once.
    pub(crate) fn log_once(&mut self, active: &mut Active) {
        if !std::mem::replace(&mut active.logged, true) {
            self.count_response(active);
            self.log_access(active);
        }
    }

    fn count_response(&self, active: &Active) {
        let counter = match active.exchange.response.status {
            100..=199 => Counter::Responses1xx,
            200..=299 => Counter::Responses2xx,
            300..=399 => Counter::Responses3xx,
            400..=499 => Counter::Responses4xx,
            _ => Counter::Responses5xx,
        };
        self.counters.increment(counter);
    }

    /// Works out what is awaited and until when.
    fn park(&mut self, active: &mut Active) {
        let now_ms = self.clock.mono_ms;
        let location = self.location(active.exchange.location);
        let after =
            |duration: std::time::Duration| now_ms.saturating_add(duration.as_millis() as u64);
        if active.deadlines.rate <= now_ms {
            active.deadlines.rate = NEVER;
        }
        let wants = self.wants(active);
        let deadlines = &mut active.deadlines;
        let tunnel = matches!(active.response.stage, ResponseStage::Tunnel(_));
        set(
            &mut deadlines.client_read,
            wants.client_read,
            after(location.client_body_timeout),
        );
        set(
            &mut deadlines.client_write,
            wants.client_write,
            after(location.send_timeout),
        );
        set(
            &mut deadlines.upstream_write,
            wants.upstream_write,
            after(location.proxy.send_timeout),
        );
        let read_timeout = if tunnel {
            location.proxy.upgrade_timeout
        } else if wants.connect {
            location.proxy.connect_timeout
        } else {
            location.proxy.read_timeout
        };
        set(
            &mut deadlines.upstream_read,
            wants.upstream_read || wants.connect || tunnel,
            after(read_timeout),
        );
        let Deadlines {
            client_read,
            client_write,
            upstream_read,
            upstream_write,
            discard,
            rate,
        } = *deadlines;
        if let Some(client) = self.clients.peek(active.client) {
            arm(
                &mut self.wheel,
                client.timer,
                client_read.min(client_write).min(discard),
            );
        }
        if let Some(upstream) = active.upstream.and_then(|key| self.upstreams.peek(key)) {
            arm(
                &mut self.wheel,
                upstream.timer,
                upstream_read.min(upstream_write).min(rate),
            );
        }
        #[cfg(debug_assertions)]
        self.assert_parked(active, wants);
    }

    /// A lost wake-up shows here: an exchange that parks although something it wants is ready, or that wants something
    /// without a deadline.
    #[cfg(debug_assertions)]
    fn assert_parked(&self, active: &Active, wants: Wants) {
        let Some(client) = self.clients.peek(active.client) else {
            return;
        };
        let client_ready = client.transport.readable || !client.input.is_empty();
        let (to_client, to_upstream) =
            (!active.to_client.is_empty(), !active.to_upstream.is_empty());
        let deadlines = &active.deadlines;
        debug_assert!(!(wants.client_read && client_ready), "unread: {active:?}");
        debug_assert!(
            !(to_client && client.transport.writable),
            "unsent: {active:?}"
        );
        for (wanted, deadline_ms) in [
            (wants.client_read, deadlines.client_read),
            (wants.client_write, deadlines.client_write),
        ] {
            let armed_ms = self.wheel.deadline_ms(client.timer);
            debug_assert!(
                !wanted || armed_ms <= deadline_ms && deadline_ms != NEVER,
                "unarmed: {active:?}"
            );
        }
        let Some(upstream) = active.upstream.and_then(|key| self.upstreams.peek(key)) else {
            return;
        };
        let readable = upstream.transport.readable;
        let upstream_ready = readable || !upstream.input.is_empty();
        let unread = match active.response.stage {
            _ if wants.connect => upstream.transport.writable || upstream.transport.errored,
            ResponseStage::AwaitHead => readable,
            ResponseStage::Relaying => {
                wants.upstream_read && upstream_ready && !self.is_spooling(active)
            }
            ResponseStage::Tunnel(ends) => {
                !ends.client_ended && !to_upstream && client_ready
                    || !ends.upstream_ended && !to_client && upstream_ready
            }
            _ => false,
        };
        debug_assert!(!unread, "unread: {active:?} {upstream:?}");
        let unsent = !wants.connect && to_upstream && upstream.transport.writable;
        debug_assert!(!unsent, "unsent: {active:?} {upstream:?}");
        for (wanted, deadline_ms) in [
            (
                wants.upstream_read || wants.connect,
                deadlines.upstream_read,
            ),
            (wants.upstream_write, deadlines.upstream_write),
        ] {
            let armed_ms = self.wheel.deadline_ms(upstream.timer);
            debug_assert!(
                !wanted || armed_ms <= deadline_ms && deadline_ms != NEVER,
                "unarmed: {active:?}"
            );
        }
    }

    /// What an exchange waits for, derived from its state.
    fn wants(&self, active: &Active) -> Wants {
        let upstream = active.upstream.and_then(|key| self.upstreams.peek(key));
        let connecting =
            upstream.is_some_and(|upstream| upstream.phase == UpstreamPhase::Connecting);
        let reading_body = match active.request.stage {
            RequestStage::Collecting => !active.request.whole && !self.spilling(active),
            RequestStage::Discarding => true,
            RequestStage::Streaming => self.upstream_open(active) && active.to_upstream.is_empty(),
            RequestStage::Unread | RequestStage::Replaying(_) | RequestStage::Done => false,
        };
        let relaying = matches!(active.response.stage, ResponseStage::Relaying);
        // What the upstream does not want to know any more was sent, too.
        let request_sent = active.response.write_broken.is_some()
            || active.request.stage == RequestStage::Done && active.to_upstream.is_empty();
        Wants {
            client_read: reading_body,
            client_write: !active.to_client.is_empty(),
            connect: connecting,
            // An upstream that answers early may leave the rest of the request unread.
            upstream_write: !connecting && !relaying && !active.to_upstream.is_empty(),
            upstream_read: match active.response.stage {
                ResponseStage::AwaitHead => !connecting && request_sent,
                ResponseStage::Relaying => {
                    active.to_client.is_empty() && active.deadlines.rate == NEVER
                }
                _ => false,
            },
        }
    }

    /// What is here already is not late, however long the loop took to look at it: its deadline starts anew.
    fn excuse(&self, active: &mut Active) {
        if matches!(active.response.stage, ResponseStage::Tunnel(_)) {
            return;
        }
        if let Some(client) = self.clients.peek(active.client) {
            if client.transport.readable {
                active.deadlines.client_read = NEVER;
            }
            if client.transport.writable {
                active.deadlines.client_write = NEVER;
            }
        }
        if let Some(upstream) = active.upstream.and_then(|key| self.upstreams.peek(key)) {
            let connecting = upstream.phase == UpstreamPhase::Connecting;
            if upstream.transport.readable || connecting && upstream.transport.writable {
                active.deadlines.upstream_read = NEVER;
            }
            if upstream.transport.writable {
                active.deadlines.upstream_write = NEVER;
            }
        }
    }

    /// The failure of a deadline that passed.
    fn overdue(&mut self, active: &mut Active) -> Option<Input> {
        let now_ms = self.clock.mono_ms;
        if now_ms < active.deadlines.nearest_ms() {
            return None;
        }
        self.excuse(active);
        let deadlines = active.deadlines;
        if now_ms < deadlines.nearest_ms() {
            return None;
        }
        active.deadlines = Deadlines::NONE;
        if deadlines.discard <= now_ms {
            active.persistent = false;
            active.request.stage = RequestStage::Done;
            return None;
        }
        if deadlines.client_write <= now_ms {
            // Who took nothing for so long gets nothing more; waiting for this to leave would be waiting for ever.
            active.to_client.clear(&mut self.buffers);
            return Some(Input::ClientFailed(Failure::new(
                Phase::SendResponse,
                Cause::ClientSendTimeout,
            )));
        }
        if deadlines.client_read <= now_ms {
            if active.request.stage == RequestStage::Discarding {
                active.persistent = false;
                active.request.stage = RequestStage::Done;
                return None;
            }
            active.request.stage = RequestStage::Done;
            return Some(Input::ClientFailed(Failure::new(
                Phase::RequestBody,
                Cause::ClientBodyTimeout,
            )));
        }
        let (phase, cause) = if matches!(active.response.stage, ResponseStage::Tunnel(_)) {
            (Phase::Tunnel, Cause::TunnelTimeout)
        } else if deadlines.upstream_write <= now_ms {
            (Phase::SendRequest, Cause::SendTimeout)
        } else if self.wants(active).connect {
            (Phase::Connect, Cause::ConnectTimeout)
        } else if matches!(active.response.stage, ResponseStage::AwaitHead) {
            (Phase::AwaitHead, Cause::UpstreamTimeout)
        } else {
            (Phase::ReadBody, Cause::BodyTimeout)
        };
        Some(Input::UpstreamFailed(Failure::new(phase, cause)))
    }

    /// Puts an exchange into the run queue once.
    pub(crate) fn enqueue_exchange(&mut self, key: Key) {
        if let Some(active) = self.exchanges.at(key)
            && !std::mem::replace(&mut active.queued, true)
        {
            self.queue.push_back(key.token(Kind::Exchange));
        }
    }
}

/// What telling the machine led to.
pub(crate) enum Told {
    Again(Option<Input>),
    Hangup,
}

/// What an exchange waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wants {
    client_read: bool,
    client_write: bool,
    connect: bool,
    upstream_write: bool,
    upstream_read: bool,
}

/// A deadline that is wanted and not set starts now; one that is not wanted ends.
fn set(deadline: &mut u64, wanted: bool, then: u64) {
    *deadline = match (wanted, *deadline) {
        (false, _) => NEVER,
        (true, NEVER) => then,
        (true, running) => running,
    };
}

fn arm(wheel: &mut crate::wheel::Wheel, timer: crate::wheel::TimerId, deadline_ms: u64) {
    if deadline_ms == NEVER {
        wheel.disarm(timer);
    } else {
        wheel.arm(timer, deadline_ms);
    }
}

/// Whether what went wrong lets the client connection live on.
fn keeps(active: &Active) -> bool {
    active
        .exchange
        .machine
        .failure
        .is_none_or(|failure| failure.after() == After::Keep)
}

/// Whether another complete request is already here.
fn holds_a_head(input: &[u8]) -> bool {
    memchr::memmem::find(input, b"\r\n\r\n").is_some()
}
