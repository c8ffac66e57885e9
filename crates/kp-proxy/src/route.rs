//! From a request head to the location that answers: server, rewrites, location, rewrites, until nothing changes.
//!
//! The order is nginx's: the server's rewrite instructions, the location, `internal`, the length limit, the final
//! slash, the location's rewrite instructions, and the location anew if those changed the URI, ten times at most.
//! All of it happens inside one call; nothing is emitted before it is settled.

use crate::answer_kind::{Answer, Fault, Routed};
use crate::failure::{Cause, Failure, Phase};
use crate::locations::{self, Found};
use crate::machine::BodyState;
use crate::script::{Flow, Run};
use crate::{Context, Exchange, Program, Reason};
use kp_config::model::{LocationId, LocationMatch};
use kp_http::target::{Escape, escape_uri, host_name, normalise};
use kp_http::{Framing, Method, Version};

/// URI changes and internal redirects of one request; one more is a 500, as nginx.
pub(crate) const URI_CHANGES_MAX: u8 = 10;

/// The request cannot be routed: answer with this status and close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRequest {
    /// 400.
    pub status: u16,
}

/// Takes in a fresh head (`exchange.request.head`, `exchange.connection`): chooses the server, decodes the target,
/// and puts everything routing keeps in the exchange back to its beginning.
///
/// On an error the server is chosen all the same, for its error pages and its log.
pub fn begin(
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> Result<(), BadRequest> {
    reset(exchange);
    let request = &mut exchange.request;
    request.host.clear();
    if let Some(host) = request.head.host() {
        host_name(host, &mut request.host);
    }
    let server = program.choose_server(exchange);
    exchange.server = server;
    let bad = Err(BadRequest { status: 400 });
    let Some(host) = context.config.http.servers.get(server.index()) else {
        return bad;
    };
    exchange.location = host.root;
    let request = &mut exchange.request;
    // RFC 9112 §3.2: a request without Host is malformed from HTTP/1.1 on.
    let nameless = request.head.host().is_none();
    if nameless {
        request.host.extend_from_slice(host.primary_name.as_bytes());
    }
    if nameless && request.head.version == Version::Http11 {
        return bad;
    }
    if request.head.method == Method::Connect {
        return Ok(());
    }
    let target = request.head.path_and_query();
    let path_end = memchr::memchr(b'?', target).unwrap_or(target.len());
    let path = target.get(..path_end).unwrap_or_default();
    request.quoted = memchr::memchr(b'%', path).is_some();
    request.plus = memchr::memchr(b'+', path).is_some();
    match normalise(target, host.early.merge_slashes, &mut request.uri) {
        Ok(args) => {
            request
                .args
                .extend_from_slice(target.get(args).unwrap_or_default());
            Ok(())
        }
        Err(_) => {
            request.uri.clear();
            bad
        }
    }
}

/// The beginning of a request whose head was refused: nothing of the one before it is left, it belongs to the server of its
/// handshake or else to the default server of its listener, and `$uri` and `$args` tell of the request line as far as that was understood.
pub(crate) fn begin_refused(exchange: &mut Exchange, context: &Context<'_>) {
    reset(exchange);
    let request = &mut exchange.request;
    request.host.clear();
    let http = &context.config.http;
    let Some(listener) = http.listeners.get(exchange.connection.listener.index()) else {
        return;
    };
    exchange.server = match &exchange.connection.tls {
        Some(tls) => tls.server,
        None => listener.default_server,
    };
    let Some(host) = http.servers.get(exchange.server.index()) else {
        return;
    };
    exchange.location = host.root;
    request.host.extend_from_slice(host.primary_name.as_bytes());
    let target = request.head.path_and_query();
    match normalise(target, host.early.merge_slashes, &mut request.uri) {
        Ok(args) => request
            .args
            .extend_from_slice(target.get(args).unwrap_or_default()),
        Err(_) => request.uri.clear(),
    }
}

fn reset(exchange: &mut Exchange) {
    let request = &mut exchange.request;
    request.uri.clear();
    request.args.clear();
    request.unchanged = true;
    request.located = true;
    request.quoted = false;
    request.plus = false;
    request.method = None;
    request.internal = false;
    request.uri_changes = 0;
    request.error_page_used = false;
    request.forced_status = 0;
    request.redirect = None;
    request.variables.clear();
    request.captures.groups.clear();
    request.captures.regex = None;
    request.id = None;
    request.trace = None;
    request.body = None;
    request.body_file = None;
    request.proxy_host.clear();
    request.proxy_port = 0;
    request.proxy_uri.clear();
    request.upstream_tls.clear();
    exchange.response.carried.clear();
    exchange.record.fault = None;
}

impl Program {
    /// Routes: from the server's level when `exchange.location` is the server's root, else from the rewrite
    /// instructions of the location it was pointed at (a named one). A [`Fault`] that ended it is in `exchange.record`.
    pub fn route(&self, exchange: &mut Exchange, context: &Context<'_>) -> Routed {
        let routed = self.settle(exchange, context);
        let ran_out = matches!(exchange.record.fault, Some(Fault::RegexLimit(_)));
        match routed {
            Ok(Routed::Answer(answer)) if !ran_out => {
                Routed::Answer(after_error_page(answer, exchange))
            }
            Ok(routed) if !ran_out => routed,
            Ok(_) => Routed::Answer(Answer::status(500, Reason::RegexLimit)),
            Err(fault) => {
                exchange.record.fault = Some(fault);
                Routed::Answer(fault.answer(true))
            }
        }
    }

    fn settle(&self, exchange: &mut Exchange, context: &Context<'_>) -> Result<Routed, Fault> {
        let refused = matches!(
            exchange.request.head.method,
            Method::Connect | Method::Trace
        );
        if refused && !exchange.request.internal {
            return Ok(Routed::Answer(Answer::status(405, Reason::ConnectMethod)));
        }
        let root = root_of(exchange, context);
        if exchange.location == root {
            if let Some(routed) = ended(Run::new(self, context).level(exchange, root))? {
                return Ok(routed);
            }
            if let Some(routed) = self.locate(exchange, context)? {
                return Ok(routed);
            }
        }
        loop {
            if exchange.location == root {
                // nginx skips the location phase where no location matched; the server's level has run already.
                return Ok(Routed::Handle);
            }
            let location = exchange.location;
            if is_exception(exchange, context) {
                return Ok(Routed::Handle);
            }
            let mut run = Run::new(self, context);
            if let Some(routed) = ended(run.level(exchange, location))? {
                return Ok(routed);
            }
            if !run.uri_changed {
                return Ok(Routed::Handle);
            }
            count_change(exchange)?;
            exchange.location = root;
            if let Some(routed) = self.locate(exchange, context)? {
                return Ok(routed);
            }
        }
    }

    /// Finds the location and applies what holds before its own instructions.
    fn locate(
        &self,
        exchange: &mut Exchange,
        context: &Context<'_>,
    ) -> Result<Option<Routed>, Fault> {
        let found = locations::find(self, exchange)?;
        let Some(location) = context.config.http.locations.get(exchange.location.index()) else {
            return Ok(None);
        };
        let answer = |answer| Ok(Some(Routed::Answer(answer)));
        if location.internal && !exchange.request.internal {
            return answer(Answer::status(404, Reason::InternalLocation));
        }
        if let (Framing::Length(length), Some(max)) =
            (exchange.request.head.framing, location.client_max_body_size)
            && length > max
            && exchange.machine.body != BodyState::Consumed
        {
            // Its error page is had without it.
            exchange.machine.body = BodyState::Consumed;
            let failure = Failure::new(Phase::Route, Cause::BodyTooLarge(Some(length)));
            exchange.explain_failure(&failure);
            exchange.report(failure);
            return answer(Answer::status(413, Reason::BodyTooLarge));
        }
        if found == Found::MissingSlash {
            return answer(Answer::redirect(
                301,
                with_slash(&location.matches, &exchange.request.args),
                Reason::PrefixRedirect,
            ));
        }
        Ok(None)
    }

    fn choose_server(&self, exchange: &mut Exchange) -> kp_config::model::ServerId {
        let listener = exchange.connection.listener;
        let Some(names) = self.listener(listener) else {
            return self.find_server(listener, &exchange.request.host);
        };
        let request = &mut exchange.request;
        let host = &request.host;
        let found = names.find(host, |regex| {
            self.matches(regex, host, &mut request.captures, &mut request.variables)
        });
        match found {
            Ok(server) => server,
            Err(fault) => {
                exchange.record.fault = Some(fault);
                self.find_server(listener, &exchange.request.host)
            }
        }
    }
}

/// The location that stands for the server's own level.
pub(crate) fn root_of(exchange: &Exchange, context: &Context<'_>) -> LocationId {
    let server = context.config.http.servers.get(exchange.server.index());
    server.map_or(exchange.location, |server| server.root)
}

/// Whether `limit_except` holds for the request: then, as with nginx, the location's instructions do not.
fn is_exception(exchange: &Exchange, context: &Context<'_>) -> bool {
    let location = context.config.http.locations.get(exchange.location.index());
    location
        .and_then(|location| location.admission.as_ref())
        .is_some_and(|admission| {
            admission
                .exception(exchange.request.method_text())
                .is_some()
        })
}

/// Counts a change of the URI; one too many is a cycle.
pub(crate) fn count_change(exchange: &mut Exchange) -> Result<(), Fault> {
    exchange.request.uri_changes = exchange.request.uri_changes.saturating_add(1);
    if exchange.request.uri_changes > URI_CHANGES_MAX {
        return Err(Fault::Cycle);
    }
    Ok(())
}

fn ended(flow: Flow) -> Result<Option<Routed>, Fault> {
    match flow {
        Flow::Next | Flow::End => Ok(None),
        Flow::Answer(answer) => Ok(Some(Routed::Answer(answer))),
        Flow::Close(status) => Ok(Some(Routed::Close(status))),
        Flow::Fault(fault) => Err(fault),
    }
}

/// `error_page … =code` also decides the status of a `return CODE TEXT` it leads to, and the `Location` of a redirect that
/// it took over stays.
fn after_error_page(mut answer: Answer, exchange: &mut Exchange) -> Answer {
    let request = &mut exchange.request;
    if !answer.interceptable && request.forced_status != 0 {
        answer.status = request.forced_status;
    }
    match &answer.location {
        Some(location) => request.redirect = Some(location.clone()),
        None if !answer.interceptable => answer.location = request.redirect.take(),
        None => {}
    }
    answer
}

fn with_slash(matches: &LocationMatch, args: &[u8]) -> Vec<u8> {
    let mut target = Vec::new();
    if let LocationMatch::Prefix { text, .. } | LocationMatch::Exact(text) = matches {
        escape_uri(&mut target, text.as_bytes(), Escape::Uri);
    }
    if !args.is_empty() {
        target.push(b'?');
        target.extend_from_slice(args);
    }
    target
}
