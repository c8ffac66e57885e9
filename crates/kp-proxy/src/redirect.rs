//! Internal redirects: pointing an exchange at another URI or a named location, and `error_page`, which does so for a status.
//!
//! The exchange is only changed here; [`Program::route`] then routes it again.

use crate::answer_kind::{Answer, ErrorAction, Fault};
use crate::route::{URI_CHANGES_MAX, count_change, root_of};
use crate::vars::Evaluation;
use crate::{Context, Exchange, Program, Reason};
use kp_config::model::{ErrorPage, ErrorPageStatus, ErrorPageTarget};
use kp_http::Method;

/// Points the exchange at another URI of its server. After an error the answer is 500; the fault is recorded.
pub fn internal_redirect(
    exchange: &mut Exchange,
    context: &Context<'_>,
    uri: &[u8],
    args: &[u8],
) -> Result<(), Fault> {
    let changed = count_change(exchange);
    recorded(exchange, changed)?;
    exchange.location = root_of(exchange, context);
    let request = &mut exchange.request;
    request.uri.clear();
    request.uri.extend_from_slice(uri);
    request.args.clear();
    request.args.extend_from_slice(args);
    request.internal = true;
    request.unchanged = false;
    request.located = true;
    forget_target(exchange);
    Ok(())
}

/// Points the exchange at `location @name` of its server (`name` with or without the `@`). The URI, the method and the
/// arguments stay. After an error the answer is 500; the fault is recorded.
pub fn named_location(
    exchange: &mut Exchange,
    context: &Context<'_>,
    name: &[u8],
) -> Result<(), Fault> {
    let changed = count_change(exchange);
    recorded(exchange, changed)?;
    let wanted = name.strip_prefix(b"@").unwrap_or(name);
    let server = context.config.http.servers.get(exchange.server.index());
    let location = server.and_then(|server| {
        let same = |name: &str| name.strip_prefix('@').unwrap_or(name).as_bytes() == wanted;
        server
            .named
            .iter()
            .find(|(name, _)| same(name))
            .map(|(_, location)| *location)
    });
    let Some(location) = location else {
        return recorded(exchange, Err(Fault::NoNamedLocation));
    };
    exchange.location = location;
    exchange.request.internal = true;
    forget_target(exchange);
    Ok(())
}

/// `$proxy_host` and `$proxy_port` speak of the location in force.
fn forget_target(exchange: &mut Exchange) {
    exchange.request.proxy_host.clear();
    exchange.request.proxy_port = 0;
    exchange.request.upstream_tls.clear();
}

fn recorded(exchange: &mut Exchange, result: Result<(), Fault>) -> Result<(), Fault> {
    if let Err(fault) = result {
        exchange.record.fault = Some(fault);
    }
    result
}

impl Program {
    /// What `error_page` makes of a status that is about to be answered. `None`: the status stands as it is, and so does
    /// [`wire_status`] of it.
    ///
    /// Without `recursive_error_pages` the first failure of a request in a location with any `error_page` is the only one
    /// that is looked up, as nginx, whether or not one fits.
    pub fn error_page(
        &self,
        exchange: &mut Exchange,
        status: u16,
        context: &Context<'_>,
    ) -> Option<ErrorAction> {
        exchange.request.forced_status = 0;
        exchange.request.refused_status = wire_status(status);
        let location = context
            .config
            .http
            .locations
            .get(exchange.location.index())?;
        let request = &mut exchange.request;
        let exhausted = request.uri_changes > URI_CHANGES_MAX;
        if request.error_page_used || location.error_pages.is_empty() || exhausted {
            return None;
        }
        request.error_page_used = !location.recursive_error_pages;
        let page = location
            .error_pages
            .iter()
            .find(|page| catches(page, status))?;
        let forced = match page.answer {
            ErrorPageStatus::Keep => wire_status(status),
            ErrorPageStatus::Fixed(status) => status,
            ErrorPageStatus::FromTarget => 0,
        };
        let moved = match &page.target {
            ErrorPageTarget::Named(name) => named_location(exchange, context, name.as_bytes()),
            ErrorPageTarget::Uri(target) | ErrorPageTarget::Url(target) => {
                let mut uri = Vec::new();
                Evaluation::new(self, context).template(target, exchange, &mut uri);
                match uri.first() {
                    Some(b'/') => redirect_to_page(exchange, context, &uri),
                    Some(b'@') => named_location(exchange, context, &uri),
                    _ => {
                        let reason = exchange.record.reason.unwrap_or(Reason::Intercepted);
                        return Some(ErrorAction::Answer(elsewhere(page, uri, reason)));
                    }
                }
            }
        };
        Some(match moved {
            Ok(()) => {
                exchange.request.forced_status = forced;
                ErrorAction::Reroute
            }
            Err(fault) => ErrorAction::Answer(fault.answer(false)),
        })
    }
}

/// What goes on the wire for nginx's own statuses: 494 to 497 are only names by which `error_page` catches a 400.
pub fn wire_status(status: u16) -> u16 {
    match status {
        494..=497 => 400,
        status => status,
    }
}

/// kp answers a head that is too large with 431, which nginx knows as 494.
fn catches(page: &ErrorPage, status: u16) -> bool {
    page.status == status || (status == 431 && page.status == 494)
}

/// The page is fetched with GET, unless HEAD was asked.
fn redirect_to_page(
    exchange: &mut Exchange,
    context: &Context<'_>,
    target: &[u8],
) -> Result<(), Fault> {
    let at = memchr::memchr(b'?', target);
    let uri = target.get(..at.unwrap_or(target.len())).unwrap_or_default();
    let args = at.and_then(|at| target.get(at + 1..)).unwrap_or_default();
    internal_redirect(exchange, context, uri, args)?;
    if exchange.request.head.method != Method::Head {
        exchange.request.method = Some("GET");
    }
    Ok(())
}

/// A redirect to another server, for the reason the client would have got an error: 302 unless the directive names another redirect status.
fn elsewhere(page: &ErrorPage, location: Vec<u8>, reason: Reason) -> Answer {
    let status = match page.answer {
        ErrorPageStatus::Fixed(status @ (301 | 302 | 303 | 307 | 308)) => status,
        _ => 302,
    };
    Answer {
        interceptable: false,
        ..Answer::redirect(status, location, reason)
    }
}
