//! Performs what the exchange machine asks for: heads, answers, tunnels, the end of an upstream's part.

use crate::active::{Active, Collected, NEVER, RequestStage, ResponseStage, Tunnel};
use crate::reactor::Worker;
use kp_http::{BodyDecoder, Framing};
use kp_proxy::machine::BodyState;
use kp_proxy::{After, Answer, Answered, BodyPlan, Cause, Failure};
use kp_shm::Counter;

impl Worker {
    /// Ends what was going on with an upstream, before something else answers.
    pub(crate) fn leave_upstream(&mut self, active: &mut Active) {
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
        active.deadlines.send = NEVER;
        active.deadlines.wait = NEVER;
        active.deadlines.attempt = NEVER;
        active.woken = false;
    }

    /// `100 Continue`, if the client asked for it (RFC 9110 §10.1.1). As nginx, also when the body is already here.
    pub(crate) fn send_continue(&mut self, active: &mut Active) {
        if std::mem::take(&mut active.request.owes_continue) {
            self.append_client(active, &[b"HTTP/1.1 100 Continue\r\n\r\n"]);
        }
    }

    pub(crate) fn send_head(&mut self, active: &mut Active) {
        active.response.stage = ResponseStage::AwaitHead;
        active.response.any_byte = false;
        active.reader.reset();
        let plan = self.body_plan(active);
        let mut out = active.to_upstream.lend(&mut self.buffers);
        let sent = self.consult(active, |exchange, program, context| {
            kp_proxy::request_head(&mut out, exchange, program, context, plan)
        });
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
            self.evaluate(active, template, &mut body);
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

    pub(crate) fn forward_interim(&mut self, active: &mut Active) {
        active.reader.reset();
        let Some(head) = active.exchange.response.upstream.take() else {
            return;
        };
        self.write_client(active, |out, exchange, program, context| {
            kp_proxy::interim_head(out, &head, exchange, program, context)
        });
        self.push_client(active, &[]);
    }

    /// The upstream's final head: to the client, then its body.
    pub(crate) fn forward_head(&mut self, active: &mut Active) {
        active.deadlines.attempt = NEVER;
        self.learn_from_head(active, false);
        active.deadlines.upstream_read = NEVER;
        self.apply_nodelay(active);
        let persistent = self.may_persist(active);
        let (head, bytes) = self.write_client(active, |out, exchange, program, context| {
            kp_proxy::response_head(out, exchange, program, context, persistent)
        });
        active.exchange.record.head_bytes_sent += bytes as u64;
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
        active.response.length = match framing {
            Framing::Length(length) => Some(length),
            Framing::None | Framing::Chunked | Framing::UntilClose => None,
        };
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

    pub(crate) fn open_tunnel(&mut self, active: &mut Active) {
        active.deadlines.attempt = NEVER;
        self.learn_from_head(active, true);
        let (_, bytes) = self.write_client(active, |out, exchange, program, context| {
            kp_proxy::response_head(out, exchange, program, context, false)
        });
        active.exchange.record.head_bytes_sent += bytes as u64;
        active.persistent = false;
        active.response.stage = ResponseStage::Tunnel(Tunnel::default());
        active.request.stage = RequestStage::Done;
        active.request.whole = true;
        self.counters.increment(Counter::TunnelsOpened);
        self.counters.increment(Counter::TunnelsActive);
        self.push_client(active, &[]);
    }

    /// A local answer: head and body at once.
    pub(crate) fn respond(&mut self, active: &mut Active, answer: &Answer) {
        let keep = self.may_persist(active);
        let (sent, _) = self.write_client(active, |out, exchange, program, context| {
            kp_proxy::answer(out, answer, exchange, program, context, keep)
        });
        self.answered(active, sent);
    }

    pub(crate) fn respond_failure(&mut self, active: &mut Active, failure: &Failure) {
        let keep = self.may_persist(active);
        let (sent, _) = self.write_client(active, |out, exchange, program, context| {
            kp_proxy::failure_answer(out, failure, exchange, program, context, keep)
        });
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
    pub(crate) fn truncate(&mut self, active: &mut Active) {
        let failure = active.exchange.machine.failure;
        if failure.is_some_and(|failure| {
            matches!(
                failure.cause,
                Cause::ClientSendTimeout | Cause::ClientReadsTooSlow
            )
        }) {
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
