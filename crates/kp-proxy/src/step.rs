//! The exchange machine: the one place that changes an exchange's phase.
//!
//! ```text
//!      ┌──────────── routed again: error_page, X-Accel-Redirect, an intercepted head, an index file ────────────┐
//!      ▼                                                                                                       │
//!     New ──┬── Collect ──► Connect ──► AwaitHead ──┬── Relay ──► Answer                                        │
//!           │                  ▲                    ├── Tunnel ─► Answer                                        │
//!           │                  └──── next peer ─────┤                                                           │
//!           ├── File ──► Answer                     └───────────────────────────────────────────────────────────┤
//!           └── Answer ◄──────────────────── failures and local answers ────────────────────────────────────────┘
//! ```
//!
//! The driver says what happened ([`Input`]); [`Exchange::handle`] answers with what to do ([`Action`]). Bytes never pass
//! through here. Before an answer began an exchange may wait (`Wait`, between New and the handler, or before an attempt):
//! it holds no peer then, and goes on when its moment comes or when it is woken.

use crate::failure::{self, Cause};
use crate::io::{Action, FileError, FileFacts, FileQuery, Input};
use crate::locations::{self, Found};
use crate::machine::{BodyState, Phase};
use crate::request_head::elements;
use crate::route::begin_refused;
use crate::target::resolve_target;
use crate::tls_policy;
use crate::{
    After, Answer, Attempt, Context, ErrorAction, Exchange, Failure, Fault, Program, Reason,
    Routed, begin, directory_redirect, forwarding, internal_redirect, named_location, real_ip,
    response_head, vars,
};
use kp_config::model::{
    BodyInFile, Handler, Level, Location, Page, ProxyHttpVersion, RequestBuffering, UpstreamId,
};
use kp_config::template::{Builtin, Variable};
use kp_http::{Framing, Known, Method, Version};

/// More interim responses than this before a final one are an attack, not an upstream.
const INTERIM_MAX: u32 = 100;

impl Exchange {
    /// Takes in what happened and says what to do next.
    pub fn handle(&mut self, input: Input, program: &Program, context: &Context<'_>) -> Action {
        let phase = self.machine.phase;
        match (phase, input) {
            (Phase::New, Input::Head) => self.on_head(program, context),
            (Phase::New, Input::HeadFailed(failure)) => {
                self.on_head_failed(failure, program, context)
            }
            (Phase::Collect, Input::Collected) => self.on_collected(),
            (Phase::Collect, Input::Gathered) => self.acquire(),
            (Phase::Connect, Input::Held { for_, until_ms }) => self.wait(for_, until_ms),
            (Phase::Wait(for_), Input::Waited(woken)) => {
                self.on_waited(for_, woken, program, context)
            }
            (Phase::Connect, Input::Connected { reused }) => self.on_connected(reused, context),
            (Phase::Connect | Phase::AwaitHead, Input::UpstreamFailed(failure)) => {
                self.on_upstream_failed(failure, program, context)
            }
            (Phase::AwaitHead, Input::ResponseHead) => self.on_response_head(program, context),
            (Phase::File, Input::FileOpened(file)) => self.on_file(file, program, context),
            (Phase::File, Input::FileFailed(error)) => {
                self.on_file_failed(&error, program, context)
            }
            (
                Phase::Relay | Phase::Tunnel | Phase::Answer,
                Input::UpstreamFailed(failure) | Input::ClientFailed(failure),
            ) => self.truncate(failure, context),
            (_, Input::ClientFailed(failure)) => self.client_failed(failure, program, context),
            (_, Input::ClientGone) => self.client_gone(Cause::ClientGone, context),
            (_, Input::ClientCut) => self.client_gone(Cause::ClientCut, context),
            (Phase::Answer, Input::BodyRefused(failure)) => self.fail(failure, program, context),
            (phase, input) => {
                debug_assert!(false, "{input:?} in {phase:?}");
                self.truncate(
                    Failure::new(failure::Phase::Route, Cause::Internal),
                    context,
                )
            }
        }
    }

    /// Books the beginning of an attempt: at a peer, or at a group without a live one.
    pub fn begin_attempt(&mut self, upstream: UpstreamId, address: &str, now_ms: u64) {
        let after_redirect =
            std::mem::take(&mut self.machine.redirected) && !self.attempts.is_empty();
        self.machine.tries += 1;
        if self.machine.tries == 1 {
            self.machine.first_attempt_ms = now_ms;
        }
        let mut text = std::mem::take(&mut self.spare_address);
        text.clear();
        text.push_str(address);
        let attempt = Attempt {
            upstream,
            address: text,
            after_redirect,
            started_ms: now_ms,
            ..Attempt::default()
        };
        self.attempts.push(attempt);
    }

    /// Completes the last attempt's times.
    pub fn end_attempt(&mut self, context: &Context<'_>) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt
                .response_ms
                .get_or_insert(elapsed(attempt.started_ms, context));
        }
    }

    fn on_head(&mut self, program: &Program, context: &Context<'_>) -> Action {
        let refused = if begin(self, program, context).is_err() {
            Some(Cause::BadRequest)
        } else if matches!(self.request.head.method, Method::Connect | Method::Trace) {
            Some(Cause::ConnectMethod)
        } else if self.is_one_too_many(context) {
            Some(Cause::TooManyActive)
        } else {
            tls_policy::objection(self, context)
        };
        if let Some(cause) = refused {
            let failure = Failure::new(failure::Phase::RequestHead, cause);
            return self.fail(failure, program, context);
        }
        self.apply_real_ip(context);
        self.route(program, context)
    }

    /// Asks those the location in force trusts who the client is.
    fn apply_real_ip(&mut self, context: &Context<'_>) {
        let location = context.config.http.locations.get(self.location.index());
        if let Some(real_ip) = location.and_then(|location| location.real_ip.as_ref()) {
            real_ip::apply(self, real_ip);
        }
    }

    /// A head that was refused is answered by the default server of its listener.
    fn on_head_failed(
        &mut self,
        failure: Failure,
        program: &Program,
        context: &Context<'_>,
    ) -> Action {
        if self.asks_how_kp_is(failure.cause, program, context) {
            self.apply_real_ip(context);
            return self.admit(program, context);
        }
        begin_refused(self, context);
        if failure.cause == Cause::ClientCut {
            return self.client_gone(failure.cause, context);
        }
        self.fail(failure, program, context)
    }

    /// Whether a head that is refused for want of memory asks just for that (`health`). It is not routed any further, since
    /// instructions may ask for more.
    fn asks_how_kp_is(&mut self, why: Cause, program: &Program, context: &Context<'_>) -> bool {
        why == Cause::OutOfMemory
            && program.uses().health
            && begin(self, program, context).is_ok()
            && locations::find(program, self) == Ok(Found::Location)
            && context
                .config
                .http
                .locations
                .get(self.location.index())
                .is_some_and(Location::tells_health)
    }

    /// Finds out who answers.
    fn route(&mut self, program: &Program, context: &Context<'_>) -> Action {
        match program.route(self, context) {
            Routed::Handle => {
                self.apply_real_ip(context);
                self.admit(program, context)
            }
            Routed::Answer(answer) => self.answer(answer, program, context),
            Routed::Close(status) => {
                self.explain(Reason::ReturnClose, failure::Phase::Route);
                self.machine.phase = Phase::Answer;
                self.response.status = status;
                Action::Close
            }
        }
    }

    /// Routes anew after something pointed the exchange elsewhere.
    fn route_again(&mut self, program: &Program, context: &Context<'_>) -> Action {
        self.machine.redirected = true;
        self.machine.phase = Phase::New;
        // As nginx: `$upstream_http_*` speak of the upstream that sent the request here until another one is asked.
        self.route(program, context)
    }

    /// Starts the handler of the location that was found.
    fn dispatch(&mut self, program: &Program, context: &Context<'_>) -> Action {
        let location = &context.config.http.locations[self.location.index()];
        match &location.handler {
            Handler::Static => self.open_file(location, program, context),
            Handler::Proxy(_) => self.proxy(location, program, context),
            Handler::Page(page) => self.page(*page, program, context),
        }
    }

    /// A page about kp itself.
    fn page(&mut self, page: Page, program: &Program, context: &Context<'_>) -> Action {
        if !matches!(self.file_method(), Method::Get | Method::Head) {
            return self.answer(method_not_allowed(), program, context);
        }
        self.machine.phase = Phase::Answer;
        Action::Page(page)
    }

    fn proxy(&mut self, location: &Location, program: &Program, context: &Context<'_>) -> Action {
        if forwarding::is_loop(self, context) {
            return self.fail(
                Failure::new(failure::Phase::Route, Cause::Loop),
                program,
                context,
            );
        }
        match resolve_target(self, program, context) {
            Ok(target) => self.machine.target = Some(target),
            Err(failure) => return self.fail(failure, program, context),
        }
        if self.machine.body == BodyState::Consumed && self.request.method.is_none() {
            return self.answer_without_body();
        }
        self.request.refused_status = 0;
        self.machine.tries = 0;
        self.machine.tried.clear();
        if self.machine.body == BodyState::Unread && self.must_collect(location, program) {
            self.machine.phase = Phase::Collect;
            return Action::Collect;
        }
        if let Some(bytes) = self.must_gather(location) {
            self.machine.phase = Phase::Collect;
            return Action::Gather(bytes);
        }
        self.acquire()
    }

    /// What an upstream took of a body cannot be sent again, and without it this would be another request: only one that was
    /// turned into a GET goes on without its body. The client is told what an error page was to stand for.
    fn answer_without_body(&mut self) -> Action {
        let (status, text) = match self.request.refused_status {
            status @ 400.. => (status, "the error page is not asked for"),
            // A redirect needs its target, which was an upstream's.
            _ => (500, "the request is not passed to another location"),
        };
        let text = format!("{text}: the request body was already passed on");
        self.record.notes.push((Level::Error, text));
        self.request.forced_status = 0;
        match self.record.reason {
            Some(reason) => self.send(Answer::status(status, reason)),
            // Without a failure only the upstream can have sent it elsewhere.
            None => self.respond(Answer::status(status, Reason::BadAccelRedirect)),
        }
    }

    /// Whether the body is taken whole before a peer is chosen.
    fn must_collect(&self, location: &Location, program: &Program) -> bool {
        let http10 = location.proxy.http_version == ProxyHttpVersion::Http10;
        let asked_for = program.uses().request_body;
        match (self.request.head.framing, location.proxy.request_buffering) {
            (Framing::None | Framing::UntilClose | Framing::Length(0), _) => false,
            (_, RequestBuffering::On) => true,
            (Framing::Length(length), RequestBuffering::Auto) => {
                asked_for || length <= location.client_body_buffer_size as u64
            }
            // An HTTP/1.0 upstream needs a length, which a chunked body has only at its end.
            (Framing::Chunked, _) if http10 => true,
            (Framing::Chunked, RequestBuffering::Auto) => asked_for,
            // Who says `off` wants the body to flow, whoever else asks for `$request_body`: that holds what costs neither
            // waiting nor a file.
            (_, RequestBuffering::Off) => {
                asked_for
                    && location.client_body_in_file_only == BodyInFile::Off
                    && self
                        .machine
                        .body_came
                        .is_some_and(|length| length <= location.client_body_buffer_size)
            }
        }
    }

    /// How much of a body that is passed on as it comes has to be here before a peer is chosen: a client that is slow to
    /// send it holds no connection to one.
    fn must_gather(&self, location: &Location) -> Option<usize> {
        let wanted = self.machine.body == BodyState::Unread
            && location.proxy.request_buffering == RequestBuffering::Auto
            && location.proxy.pass_request_body;
        match self.request.head.framing {
            Framing::Length(length) if wanted && length > 0 => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                Some(length.min(location.client_body_buffer_size))
            }
            Framing::Chunked if wanted => Some(1),
            _ => None,
        }
    }

    fn on_collected(&mut self) -> Action {
        self.machine.body = BodyState::Whole;
        self.acquire()
    }

    /// Another attempt. What the one before said about its peer stays, for the driver to book.
    fn acquire(&mut self) -> Action {
        self.machine.phase = Phase::Connect;
        // A failure before an error page was another upstream's.
        self.machine
            .failure
            .take_if(|failure| failure.after() == After::Keep);
        self.machine.interim = 0;
        self.machine.reused = false;
        self.response.forget_upstream();
        self.response.upstream_trailers.clear();
        Action::Acquire
    }

    fn on_connected(&mut self, reused: bool, context: &Context<'_>) -> Action {
        self.machine.phase = Phase::AwaitHead;
        self.machine.reused = reused;
        self.machine.request_sent = true;
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.connect_ms = Some(elapsed(attempt.started_ms, context));
        }
        Action::SendHead
    }

    /// A failed attempt: the next peer, or an answer.
    fn on_upstream_failed(
        &mut self,
        failure: Failure,
        program: &Program,
        context: &Context<'_>,
    ) -> Action {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.status = failure.status();
        }
        self.end_attempt(context);
        if self.retry(failure, context) {
            self.report(failure);
            return self.again(context);
        }
        self.fail(failure, program, context)
    }

    fn on_response_head(&mut self, program: &Program, context: &Context<'_>) -> Action {
        let status = self
            .response
            .upstream
            .as_ref()
            .map_or(0, |head| head.status);
        if (100..200).contains(&status) {
            return self.on_interim(status, program, context);
        }
        self.note_status(status, context);
        let rejected = Failure::new(failure::Phase::AwaitHead, Cause::UpstreamStatus(status));
        if self.retry(rejected, context) {
            self.end_attempt(context);
            self.report(rejected);
            return self.again(context);
        }
        let location = &context.config.http.locations[self.location.index()];
        if let Some(rate) = response_head::directives(self, program).limit_rate {
            self.response.limit_rate = Some(rate);
        }
        if let Some(uri) = response_head::directives(self, program)
            .accel_redirect
            .map(<[u8]>::to_vec)
        {
            return self.accel_redirect(&uri, program, context);
        }
        if location.proxy.intercept_errors && status >= 300 {
            response_head::carry_challenges(self);
            match program.error_page(self, status, context) {
                Some(ErrorAction::Reroute) => {
                    self.explain(Reason::Intercepted, failure::Phase::AwaitHead);
                    self.end_attempt(context);
                    return self.route_again(program, context);
                }
                Some(ErrorAction::Answer(answer)) => {
                    self.end_attempt(context);
                    return self.respond(answer);
                }
                None => self.response.carried.clear(),
            }
        }
        self.explain_nothing();
        self.machine.phase = Phase::Relay;
        Action::ForwardHead
    }

    fn note_status(&mut self, status: u16, context: &Context<'_>) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.status = status;
            attempt.header_ms = Some(elapsed(attempt.started_ms, context));
        }
    }

    fn on_interim(&mut self, status: u16, program: &Program, context: &Context<'_>) -> Action {
        let invalid = Failure::new(failure::Phase::AwaitHead, Cause::UpstreamInvalidHead);
        if status == 101 {
            if !self.machine.upgrade || !self.switches_as_asked() {
                return self.on_upstream_failed(invalid, program, context);
            }
            self.note_status(status, context);
            self.explain_nothing();
            self.machine.phase = Phase::Tunnel;
            return Action::Tunnel;
        }
        self.machine.interim += 1;
        if self.machine.interim > INTERIM_MAX {
            return self.on_upstream_failed(invalid, program, context);
        }
        // RFC 9110 §15.2: 1xx never goes to an HTTP/1.0 client. kp answers Expect itself, so a 100 stops here.
        if status == 103 && self.request.head.version == Version::Http11 {
            Action::ForwardInterim
        } else {
            Action::AwaitHead
        }
    }

    /// RFC 9110 §7.8: a 101 names what it switches to, and only what the client offered.
    fn switches_as_asked(&self) -> bool {
        let offered = self.request.head.find(Known::Upgrade).unwrap_or_default();
        let answer = self.response.upstream.as_ref();
        answer
            .and_then(|head| head.find(Known::Upgrade))
            .is_some_and(|chosen| {
                elements(chosen)
                    .all(|protocol| elements(offered).any(|one| one.eq_ignore_ascii_case(protocol)))
            })
    }

    /// `X-Accel-Redirect`: another URI or named location of this server answers.
    fn accel_redirect(&mut self, uri: &[u8], program: &Program, context: &Context<'_>) -> Action {
        self.end_attempt(context);
        response_head::carry_fields(self, program, context);
        let moved = if uri.first() == Some(&b'@') {
            named_location(self, context, uri)
        } else {
            let Some((path, args)) = response_head::accel_target(uri) else {
                // As nginx: a URI that leads outside is one that is not there.
                let answer = Answer::status(404, Reason::BadAccelRedirect);
                return self.answer(answer, program, context);
            };
            if self.request.head.method != Method::Head {
                self.request.method = Some("GET");
            }
            internal_redirect(self, context, &path, args)
        };
        self.after_redirect(moved, program, context)
    }

    fn after_redirect(
        &mut self,
        moved: Result<(), Fault>,
        program: &Program,
        context: &Context<'_>,
    ) -> Action {
        match moved {
            Ok(()) => self.route_again(program, context),
            Err(fault) => self.respond(fault.answer(false)),
        }
    }

    fn open_file(
        &mut self,
        location: &Location,
        program: &Program,
        context: &Context<'_>,
    ) -> Action {
        let method = self.file_method();
        if !matches!(method, Method::Get | Method::Head | Method::Post) {
            return self.answer(method_not_allowed(), program, context);
        }
        let mut path = Vec::new();
        vars::variable(
            &Variable::Builtin(Builtin::RequestFilename),
            self,
            program,
            context,
            &mut path,
        );
        let mut index = Vec::new();
        if self.request.uri.last() == Some(&b'/') {
            for template in &location.index {
                let mut name = Vec::new();
                vars::evaluate(template, self, program, context, &mut name);
                index.push(name);
            }
        }
        self.machine.phase = Phase::File;
        Action::OpenFile(FileQuery { path, index })
    }

    /// The method as a file sees it: an error page is fetched.
    fn file_method(&self) -> Method {
        self.request
            .method
            .map_or(self.request.head.method, |_| Method::Get)
    }

    fn on_file(&mut self, file: FileFacts, program: &Program, context: &Context<'_>) -> Action {
        // nginx serves an index by an internal redirect, so that the index file's own location decides about it.
        if let Some(name) = &file.index {
            let mut uri = self.request.uri.clone();
            uri.extend_from_slice(name);
            return self.serve_index(&uri, program, context);
        }
        // As nginx, which looks for the file first: what is not there is 404 for a POST, too.
        if self.file_method() == Method::Post {
            return self.answer(method_not_allowed(), program, context);
        }
        self.explain_nothing();
        self.machine.phase = Phase::Answer;
        Action::SendFile(file)
    }

    fn on_file_failed(
        &mut self,
        error: &FileError,
        program: &Program,
        context: &Context<'_>,
    ) -> Action {
        let answer = match error {
            FileError::NotFound(_) => Answer::status(404, Reason::FileNotFound),
            FileError::Forbidden(_) => Answer::status(403, Reason::FileForbidden),
            FileError::Other(_) => Answer::status(500, Reason::FileError),
            FileError::Directory => directory_redirect(self),
            FileError::Elsewhere(uri) => return self.serve_index(uri, program, context),
            FileError::Exhausted(_) => {
                let failure = Failure::new(failure::Phase::File, Cause::Overload);
                return self.fail(failure, program, context);
            }
        };
        self.answer(answer, program, context)
    }

    fn serve_index(&mut self, uri: &[u8], program: &Program, context: &Context<'_>) -> Action {
        let args = self.request.args.clone();
        let moved = internal_redirect(self, context, uri, &args);
        self.after_redirect(moved, program, context)
    }

    /// Answers a failure, by the error page where there is one.
    fn fail(&mut self, failure: Failure, program: &Program, context: &Context<'_>) -> Action {
        self.explain_failure(&failure);
        self.machine.failure = Some(failure);
        self.report(failure);
        self.machine.phase = Phase::Answer;
        if failure.hangs_up() {
            self.response.status = failure.status();
            return Action::Close;
        }
        match program.error_page(self, failure.status(), context) {
            Some(ErrorAction::Reroute) => self.route_again(program, context),
            Some(ErrorAction::Answer(answer)) => self.respond(answer),
            None => Action::RespondFailure(failure),
        }
    }

    /// Leaves a failure for the error log.
    pub(crate) fn report(&mut self, failure: Failure) {
        let detail = self.record.detail.take();
        self.machine.reported.push((failure, detail));
    }

    /// Answers, by the error page where there is one.
    fn answer(&mut self, answer: Answer, program: &Program, context: &Context<'_>) -> Action {
        if !answer.interceptable {
            return self.respond(answer);
        }
        self.explain_answer(&answer);
        match program.error_page(self, answer.status, context) {
            Some(ErrorAction::Reroute) => self.route_again(program, context),
            Some(ErrorAction::Answer(answer)) => self.respond(answer),
            None => self.send(answer),
        }
    }

    fn respond(&mut self, answer: Answer) -> Action {
        self.explain_answer(&answer);
        self.send(answer)
    }

    /// What is answered has its reason already.
    fn send(&mut self, answer: Answer) -> Action {
        self.machine.phase = Phase::Answer;
        Action::Respond(answer)
    }

    /// The answer has begun and cannot be completed.
    fn truncate(&mut self, failure: Failure, context: &Context<'_>) -> Action {
        self.explain_end(&failure);
        self.machine.failure = Some(failure);
        self.report(failure);
        self.machine.outcome = Some(failure.peer_mark(false));
        self.end_attempt(context);
        self.machine.phase = Phase::Answer;
        Action::Truncate
    }

    /// The client's part failed before an answer began.
    fn client_failed(
        &mut self,
        failure: Failure,
        program: &Program,
        context: &Context<'_>,
    ) -> Action {
        self.machine.outcome = Some(failure.peer_mark(false));
        self.machine.body = BodyState::Consumed;
        self.end_attempt(context);
        if failure.after() != After::Abort {
            return self.fail(failure, program, context);
        }
        // It does not even take interim responses; nothing can be said to it.
        self.end_silently(failure, 408, context)
    }

    fn client_gone(&mut self, cause: Cause, context: &Context<'_>) -> Action {
        let phase = match cause {
            Cause::ClientCut if self.machine.phase == Phase::New => failure::Phase::RequestHead,
            Cause::ClientCut => failure::Phase::RequestBody,
            // As nginx's error log: what was being done for the client when it left.
            _ => match self.machine.phase {
                Phase::Wait(_) => failure::Phase::Route,
                Phase::Collect => failure::Phase::RequestBody,
                Phase::Connect => failure::Phase::Connect,
                Phase::AwaitHead => failure::Phase::AwaitHead,
                Phase::File => failure::Phase::File,
                Phase::New | Phase::Relay | Phase::Tunnel | Phase::Answer => {
                    failure::Phase::SendResponse
                }
            },
        };
        let failure = Failure::new(phase, cause);
        self.end_silently(failure, failure.status(), context)
    }

    /// Ends without an answer; the log has `status` where none was sent.
    fn end_silently(&mut self, failure: Failure, status: u16, context: &Context<'_>) -> Action {
        self.explain_end(&failure);
        self.machine.failure = Some(failure);
        self.report(failure);
        self.machine.outcome = Some(failure.peer_mark(false));
        if self.response.status == 0 {
            self.response.status = status;
        }
        self.end_attempt(context);
        self.machine.phase = Phase::Answer;
        Action::Close
    }
}

fn method_not_allowed() -> Answer {
    Answer::status(405, Reason::MethodNotAllowed)
}

fn elapsed(started_ms: u64, context: &Context<'_>) -> u32 {
    u32::try_from(context.now.mono_ms.saturating_sub(started_ms)).unwrap_or(u32::MAX)
}

mod admit;
mod retrying;
mod wait;

#[cfg(test)]
mod tests;
