//! `upstream` and what stands in it.

use super::{HttpDraft, Reader};
use crate::diagnostic::Diagnostic;
use crate::model::{OutlierDetection, PeerAddress, Queue, RetryBudget, ServerLine, Sticky};
use crate::span::{Span, Spanned};
use crate::syntax::{Directive, Word};
use crate::template::Template;
use crate::value::{self, Endpoint, Finest};
use std::path::PathBuf;
use std::time::Duration;

/// One `upstream`.
#[derive(Debug)]
pub(crate) struct UpstreamDraft {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) servers: Vec<ServerLineDraft>,
    /// Whether there are `server` lines at all, good or bad.
    pub(crate) has_lines: bool,
    pub(crate) zone: Option<Spanned<String>>,
    pub(crate) zone_bytes: Option<u64>,
    pub(crate) state: Option<Spanned<PathBuf>>,
    pub(crate) balancer: Option<Spanned<BalancerDraft>>,
    pub(crate) keepalive: Option<Spanned<KeepaliveDraft>>,
    pub(crate) keepalive_requests: Option<Spanned<u32>>,
    pub(crate) keepalive_time: Option<Spanned<Duration>>,
    pub(crate) keepalive_timeout: Option<Spanned<Duration>>,
    pub(crate) resolver: Option<Spanned<crate::model::Resolver>>,
    pub(crate) resolver_timeout: Option<Spanned<Duration>>,
    pub(crate) outliers: Option<Spanned<OutlierDetection>>,
    pub(crate) max_ejected_percent: Option<Spanned<u32>>,
    pub(crate) queue: Option<Spanned<Queue>>,
    /// `None`: `off`.
    pub(crate) retry_budget: Option<Spanned<Option<RetryBudget>>>,
    pub(crate) sticky: Option<Spanned<Sticky>>,
}

/// One `server` line.
#[derive(Debug)]
pub(crate) struct ServerLineDraft {
    pub(crate) name: Spanned<String>,
    pub(crate) addresses: Vec<PeerAddress>,
    pub(crate) weight: u32,
    pub(crate) max_conns: u32,
    pub(crate) max_fails: u32,
    pub(crate) fail_timeout: Duration,
    pub(crate) slow_start: Option<Spanned<Duration>>,
    /// Where it was written, since some balancers refuse it.
    pub(crate) backup: Option<Span>,
    pub(crate) down: bool,
    pub(crate) resolve: Option<crate::model::ResolveName>,
    pub(crate) drain: bool,
    pub(crate) route: String,
}

impl ServerLineDraft {
    /// A line without parameters, and without addresses yet.
    pub(crate) fn new(name: String, span: Span) -> Self {
        Self {
            name: Spanned::new(name, span),
            addresses: Vec::new(),
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: Duration::from_secs(10),
            slow_start: None,
            backup: None,
            down: false,
            resolve: None,
            drain: false,
            route: String::new(),
        }
    }

    /// The line without its places.
    pub(crate) fn into_line(self) -> ServerLine {
        ServerLine {
            name: self.name.value,
            addresses: self.addresses,
            weight: self.weight,
            max_conns: self.max_conns,
            max_fails: self.max_fails,
            fail_timeout: self.fail_timeout,
            slow_start: self.slow_start.map_or(Duration::ZERO, |time| time.value),
            backup: self.backup.is_some(),
            down: self.down,
            resolve: self.resolve,
            drain: self.drain,
            route: self.route,
        }
    }
}

/// The balancing method.
#[derive(Debug)]
pub(crate) enum BalancerDraft {
    LeastConn,
    LeastTime { last_byte: bool, inflight: bool },
    IpHash,
    Hash { key: Template, consistent: bool },
    Random { two: bool },
}

/// `keepalive`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepaliveDraft {
    pub(crate) connections: u32,
    pub(crate) local: bool,
}

impl HttpDraft {
    /// Opens an upstream; names are compared without case.
    pub(crate) fn upstream(
        &self,
        reader: &mut Reader<'_>,
        directive: &Directive,
    ) -> Option<UpstreamDraft> {
        let name = directive.args.first()?;
        if let Some(first) = self
            .upstreams
            .iter()
            .find(|known| known.name.eq_ignore_ascii_case(&name.text))
        {
            let hint = format!("the first one is on line {}", first.span.line);
            reader.report(
                Diagnostic::error(name.span, format!("duplicate upstream \"{}\"", name.text))
                    .hint(hint),
            );
        }
        Some(UpstreamDraft {
            name: name.text.clone(),
            span: name.span,
            servers: Vec::new(),
            has_lines: directive
                .block
                .iter()
                .flat_map(|block| &block.directives)
                .any(|line| line.name.text == "server"),
            zone: None,
            zone_bytes: None,
            state: None,
            balancer: None,
            keepalive: None,
            keepalive_requests: None,
            keepalive_time: None,
            keepalive_timeout: None,
            resolver: None,
            resolver_timeout: None,
            outliers: None,
            max_ejected_percent: None,
            queue: None,
            retry_budget: None,
            sticky: None,
        })
    }
}

impl UpstreamDraft {
    /// `server`.
    pub(crate) fn server(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((address, parameters)) = directive.args.split_first() else {
            return;
        };
        let resolve = reader.resolve_name(address, parameters);
        let mut line = ServerLineDraft::new(address.text.clone(), address.span);
        if resolve.is_none() {
            line.addresses = reader.peer_addresses(&address.text, 80, address.span);
        }
        line.resolve = resolve;
        for word in parameters {
            if let Err(diagnostic) = server_parameter(&mut line, word) {
                reader.report(diagnostic);
            }
        }
        self.servers.push(line);
    }

    /// `zone`.
    pub(crate) fn zone(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((name, rest)) = directive.args.split_first() else {
            return;
        };
        if name.text.is_empty() {
            reader.error(name.span, format!("invalid zone name \"{}\"", name.text));
            return;
        }
        if let Some(word) = rest.first() {
            // nginx's smallest: eight pages.
            const SMALLEST: u64 = 8 * 4096;
            match value::size(&word.text) {
                None => {
                    reader.error(word.span, format!("invalid zone size \"{}\"", word.text));
                    return;
                }
                Some(size) if size < SMALLEST => {
                    let error = Diagnostic::error(
                        word.span,
                        format!("zone \"{}\" is too small", name.text),
                    );
                    reader.report(error.hint("32k is the smallest; 64k holds dozens of servers"));
                    return;
                }
                Some(size) => self.zone_bytes = Some(size),
            }
        }
        self.zone = Some(Spanned::new(name.text.clone(), name.span));
    }

    /// `state`.
    pub(crate) fn state(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        reader.path(directive, &mut self.state);
    }

    /// `least_conn`.
    pub(crate) fn least_conn(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        self.balance(reader, directive, BalancerDraft::LeastConn);
    }

    /// `ip_hash`.
    pub(crate) fn ip_hash(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        self.balance(reader, directive, BalancerDraft::IpHash);
    }

    /// `hash`.
    pub(crate) fn hash(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((key, rest)) = directive.args.split_first() else {
            return;
        };
        let consistent = match rest.first() {
            Some(word) if word.text == "consistent" => true,
            Some(word) => {
                let message = format!("invalid parameter \"{}\"", word.text);
                reader.refuse(word.span, message, "it can be \"consistent\"");
                return;
            }
            None => false,
        };
        if let Some(key) = reader.compile(key) {
            self.balance(reader, directive, BalancerDraft::Hash { key, consistent });
        }
    }

    /// `random`.
    pub(crate) fn random(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let two = match directive.args.as_slice() {
            [] => false,
            [two, method @ ..] if two.text == "two" => {
                if let Some(method) = method.first().filter(|method| method.text != "least_conn") {
                    let message = format!("invalid parameter \"{}\"", method.text);
                    reader.report(
                        Diagnostic::error(method.span, message).hint("it can be \"least_conn\""),
                    );
                    return;
                }
                true
            }
            [word, ..] => {
                let message = format!("invalid parameter \"{}\"", word.text);
                reader.refuse(
                    word.span,
                    message,
                    "it can be \"two\", or \"two\" and \"least_conn\"",
                );
                return;
            }
        };
        self.balance(reader, directive, BalancerDraft::Random { two });
    }

    pub(super) fn balance(
        &mut self,
        reader: &mut Reader<'_>,
        directive: &Directive,
        balancer: BalancerDraft,
    ) {
        if self.balancer.is_some() {
            let hint = format!("\"{}\" is the last one and holds", directive.name.text);
            reader.warning(directive.at, "load balancing method redefined", hint);
        }
        self.balancer = Some(Spanned::new(balancer, directive.at));
    }

    /// `keepalive`.
    pub(crate) fn keepalive(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((number, rest)) = directive.args.split_first() else {
            return;
        };
        let local = match rest.first() {
            Some(word) if word.text == "local" => true,
            Some(word) => {
                let message = format!("invalid parameter \"{}\"", word.text);
                reader.refuse(word.span, message, "it can be \"local\"");
                return;
            }
            None => false,
        };
        match value::number(&number.text).and_then(|number| u32::try_from(number).ok()) {
            Some(connections) => {
                self.keepalive = Some(Spanned::new(
                    KeepaliveDraft { connections, local },
                    directive.at,
                ));
            }
            None => reader.report(
                Diagnostic::error(
                    number.span,
                    format!(
                        "invalid value \"{}\" in \"keepalive\" directive",
                        number.text
                    ),
                )
                .hint("it is how many idle connections each worker keeps"),
            ),
        }
    }

    /// `keepalive_requests`.
    pub(crate) fn keepalive_requests(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        reader.number(directive, &mut self.keepalive_requests);
    }

    /// `keepalive_time`.
    pub(crate) fn keepalive_time(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        reader.time(directive, &mut self.keepalive_time);
    }

    /// `keepalive_timeout`.
    pub(crate) fn keepalive_timeout(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        reader.time(directive, &mut self.keepalive_timeout);
    }

    /// `resolver`.
    pub(crate) fn resolver(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        reader.resolver(directive, &mut self.resolver);
    }

    /// `resolver_timeout`.
    pub(crate) fn resolver_timeout(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        reader.time(directive, &mut self.resolver_timeout);
    }
}

impl Reader<'_> {
    /// The addresses of `host[:port]` or `unix:path`; empty after an error, which is reported.
    pub(crate) fn peer_addresses(
        &mut self,
        text: &str,
        default_port: u16,
        span: Span,
    ) -> Vec<PeerAddress> {
        match Endpoint::parse(text) {
            Err(problem) => {
                let error = Diagnostic::error(span, format!("{problem} in upstream \"{text}\""));
                let scheme = text.contains("://");
                self.report(match text.split_once("://") {
                    Some((_, rest)) if scheme => {
                        let host = rest.split('/').next().unwrap_or("");
                        error.hint(format!("a server has no scheme: write \"{host}\""))
                    }
                    _ => error.hint(
                        "the form is `host`, `host:port` or `unix:/path`; a port is at most 65535",
                    ),
                });
                Vec::new()
            }
            Ok(Endpoint::Unix(path)) => vec![PeerAddress::Unix(self.under_prefix(path))],
            Ok(Endpoint::Inet { host, port }) => {
                let addresses = self.addresses(&host, port.unwrap_or(default_port));
                if addresses.is_empty() {
                    self.report(
                        Diagnostic::error(span, format!("host not found in upstream \"{text}\""))
                            .hint("the name must resolve when the configuration is loaded"),
                    );
                }
                addresses.into_iter().map(PeerAddress::Inet).collect()
            }
        }
    }
}

/// nginx's longest `route=`.
const ROUTE_MAX: usize = 32;

/// A parameter of a server line.
pub(crate) fn server_parameter(line: &mut ServerLineDraft, word: &Word) -> Result<(), Diagnostic> {
    let invalid = |hint: &str| {
        let error = Diagnostic::error(word.span, format!("invalid parameter \"{}\"", word.text));
        if hint.is_empty() {
            error
        } else {
            error.hint(hint)
        }
    };
    let number = |text: &str| value::number(text).and_then(|number| u32::try_from(number).ok());
    let (name, value) = match word.text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word.text.as_str(), None),
    };
    match (name, value) {
        ("weight", Some(text)) => match number(text) {
            Some(weight) if weight > 0 => line.weight = weight,
            _ => return Err(invalid("a weight is a number from 1")),
        },
        ("max_conns", Some(text)) => {
            line.max_conns =
                number(text).ok_or_else(|| invalid("it is a number, 0 is no limit"))?;
        }
        ("max_fails", Some(text)) => {
            line.max_fails = number(text).ok_or_else(|| invalid("it is a number, 0 is never"))?;
        }
        ("fail_timeout", Some(text)) => {
            line.fail_timeout = value::time(text, Finest::Seconds)
                .ok_or_else(|| invalid("it is a time in seconds or more, such as 10s"))?;
        }
        ("backup", None) => line.backup = Some(word.span),
        ("down", None) => line.down = true,
        ("drain", None) => line.drain = true,
        ("route", Some(route)) if (1..=ROUTE_MAX).contains(&route.len()) => {
            line.route = route.to_owned();
        }
        ("route", Some(_)) => {
            return Err(invalid("a route is a name of 1 to 32 characters"));
        }
        // Already read with the address.
        ("resolve", None) | ("service", Some(_)) => {}
        ("slow_start", Some(text)) => {
            let time = value::time(text, Finest::Seconds)
                .ok_or_else(|| invalid("it is a time in seconds or more, such as 10s"))?;
            line.slow_start = Some(Spanned::new(time, word.span));
        }
        _ => {
            return Err(invalid(
                "parameters are: weight=, max_conns=, max_fails=, fail_timeout=, slow_start=, route=, service=, backup, down, drain, resolve",
            ));
        }
    }
    Ok(())
}
