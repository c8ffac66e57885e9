//! Drives an exchange: lets bytes move, tells the machine what happened, performs what it asks for.

use crate::active::{Active, RequestStage, ResponseStage};
use crate::early::Parting;
use crate::reactor::Worker;
use crate::token::{Key, Kind};
use crate::upstream::UpstreamPhase;
use kp_proxy::{Action, Cause, Failure, Input, Phase, WaitFor};
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
                self.weigh(&mut active);
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
                self.close_client(client, Parting::InOrder);
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

    /// One step: the end of a wait, a deadline, a connect, the request, the response, the client's socket, in this order.
    fn turn(&mut self, active: &mut Active) -> Turn {
        if let Some(input) = self.waited(active) {
            return Turn::Input(input);
        }
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

    /// The client ended its connection although its answer is not there yet. A FIN that comes while the answer is awaited
    /// means gone, as in nginx; one that came with the request is only the end of what the client had to say.
    /// `proxy_ignore_client_abort` lets the upstream finish either way.
    fn client_gone(&mut self, active: &mut Active) -> Option<Input> {
        let client = self.clients.peek(active.client)?;
        if !client.transport.ending
            || active.upstream.is_none() && !active.is_waiting()
            || active.half_closed && !client.transport.errored
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
            && !refused
            && !active.is_limited();
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

    /// Whether a connect under way came to an end; with TLS the handshake follows.
    fn connected(&mut self, active: &mut Active) -> Option<Input> {
        let key = active.upstream?;
        let upstream = self.upstreams.at(key)?;
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
        if let Some(failure) = self.introduce_client(active, key) {
            return Some(Input::UpstreamFailed(failure));
        }
        let upstream = self.upstreams.at(key)?;
        if upstream.transport.secure.is_some() {
            upstream.phase = UpstreamPhase::Handshake;
            self.enqueue_handshake(key);
            return None;
        }
        upstream.phase = UpstreamPhase::Busy;
        Some(Input::Connected { reused: false })
    }

    /// Tells the machine and performs what it asks for.
    pub(crate) fn tell(&mut self, active: &mut Active, input: Input) -> Told {
        let keeps_places = self.keeps_places(active, &input);
        self.show_budget(active, &input);
        let action = self.consult(active, |exchange, program, context| {
            exchange.handle(input, program, context)
        });
        self.report(active);
        if !action.continues_upstream() {
            self.leave_upstream(active);
            if !keeps_places {
                self.give_up_places(active);
            }
        } else if matches!(action, Action::Tunnel) {
            // It may last for hours, and is no load that another retry would add to.
            self.end_retry(active);
        }
        self.book_retry(active);
        match action {
            // The body of a request that was refused because of it cannot be had any more; its error page does without.
            Action::Collect if Self::body_is_lost(active) => {
                return Told::Again(Some(Input::Collected));
            }
            Action::Collect => {
                active.request.stage = RequestStage::Collecting;
                self.send_continue(active);
            }
            Action::Gather(bytes) => return Told::Again(self.begin_gathering(active, bytes)),
            Action::Acquire => {
                return Told::Again(match self.take_held_body(active) {
                    Some(failed) => Some(failed),
                    None => self.acquire(active),
                });
            }
            Action::Wait { until_ms, for_ } => {
                active.deadlines.wait = until_ms;
                if for_ == WaitFor::Rate {
                    self.counters.increment(Counter::RequestsDelayed);
                }
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
            Action::Page(page) => match self.sift_body(active) {
                Some(failure) => return Told::Again(Some(Input::BodyRefused(failure))),
                None => self.begin_page(active, page),
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
            self.measure_request(active);
            self.measure_reason(active);
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
        let machine = &active.exchange.machine;
        if machine.rate.is_dry_run() || machine.place.is_dry_run() {
            self.counters.increment(Counter::RequestsLimitedDryRun);
        }
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
