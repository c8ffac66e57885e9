//! `proxy_pass`: what its URL names.

use super::location::Builder;
use crate::diagnostic::Diagnostic;
use crate::draft::{LocationDraft, ProxyPassDraft};
use crate::model::{
    Balancer, LocationMatch, PeerAddress, ProxyPass, ProxyTarget, ServerLine, Upstream, UpstreamId,
};
use crate::span::Span;
use crate::suggest::nearest;
use crate::template::{Builtin, Part, Template, Variable};
use crate::value::{Endpoint, strip_prefix_ignore_case};
use std::time::Duration;

const NO_URI_HERE: &str = "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside \
                           named location, or inside \"if\" statement, or inside \"limit_except\" block";

impl Builder<'_, '_> {
    /// Finds what a `proxy_pass` names; `None` after an error.
    pub(super) fn proxy_pass(
        &mut self,
        pass: &ProxyPassDraft,
        location: &LocationDraft,
    ) -> Option<ProxyPass> {
        let Some(text) = pass.template.as_literal() else {
            self.check_variable_target(pass)?;
            return Some(ProxyPass {
                target: ProxyTarget::Template(pass.template.clone()),
                span: pass.span,
            });
        };
        let (https, rest) = self.strip_scheme(text, pass.span)?;
        let (authority, uri) = split_uri(rest);
        let uri_refused = matches!(
            location.matches,
            LocationMatch::Regex(_) | LocationMatch::Named(_) | LocationMatch::If
        );
        if uri.is_some() && uri_refused {
            let scheme = if https { "https" } else { "http" };
            let hint =
                format!("write \"{scheme}://{authority}\"; `rewrite … break` changes the path");
            self.reader
                .report(Diagnostic::error(pass.span, NO_URI_HERE).hint(hint));
        }
        let (upstream, host, port) = self.find_or_add_upstream(authority, https, pass.span)?;
        let prefix_len = if uri_refused { 0 } else { location.text.len() };
        if let Some(uri) = &uri
            && let LocationMatch::Prefix { text: prefix, .. } = &location.matches
        {
            self.check_slashes(prefix, uri, pass);
        }
        Some(ProxyPass {
            target: ProxyTarget::Upstream {
                upstream,
                uri,
                host,
                port,
                prefix_len,
                https,
            },
            span: pass.span,
        })
    }

    /// Whether it is `https://`, and what follows.
    fn strip_scheme<'t>(&mut self, text: &'t str, span: Span) -> Option<(bool, &'t str)> {
        if let Some(rest) = strip_prefix_ignore_case(text, "http://") {
            return Some((false, rest));
        }
        if let Some(rest) = strip_prefix_ignore_case(text, "https://") {
            return Some((true, rest));
        }
        let hint = format!("write \"http://{text}\" or \"https://{text}\"");
        self.reader.refuse(span, "invalid URL prefix", hint);
        None
    }

    /// A target with variables: its fixed beginning must be able to become `http://` or `https://`.
    fn check_variable_target(&mut self, pass: &ProxyPassDraft) -> Option<()> {
        if let Some(Part::Literal(start)) = pass.template.parts.first() {
            let start = start.to_ascii_lowercase();
            let fits = |scheme: &str| start.starts_with(scheme) || scheme.starts_with(&start);
            if !fits("http://") && !fits("https://") {
                self.strip_scheme(&pass.text, pass.span)?;
            }
        }
        if let Some(name) = host_from_client(&pass.template) {
            let message = format!(
                "the host of \"proxy_pass\" comes from the client ({name}): this is an open proxy"
            );
            let hint = "clients choose which server kp connects to; name an upstream, or map the value to known ones";
            self.reader.warning(pass.span, message, hint);
        }
        Some(())
    }

    /// The group of an authority: an `upstream` by name, or one made for this address.
    fn find_or_add_upstream(
        &mut self,
        authority: &str,
        https: bool,
        span: Span,
    ) -> Option<(UpstreamId, String, u16)> {
        let default_port = if https { 443 } else { 80 };
        let endpoint = match Endpoint::parse(authority) {
            Ok(endpoint) => endpoint,
            Err(problem) => {
                let message = format!("{problem} in upstream \"{authority}\"");
                let advice = "the form is `http://host:port`, `https://host:port` or `http://unix:/path:`; a port is at most 65535";
                self.reader.refuse(span, message, advice);
                return None;
            }
        };
        let (host_text, port) = match &endpoint {
            Endpoint::Unix(_) => (authority, None),
            Endpoint::Inet { port, .. } => match port {
                Some(_) => (
                    authority
                        .rsplit_once(':')
                        .map_or(authority, |(host, _)| host),
                    *port,
                ),
                None => (authority, None),
            },
        };
        if let Some(known) = self.explicit.get(&host_text.to_ascii_lowercase()) {
            if let Some(port) = port {
                let error = Diagnostic::error(
                    span,
                    format!("upstream \"{host_text}\" may not have port {port}"),
                );
                let hint =
                    format!("\"{host_text}\" is an upstream group; its servers have the ports");
                self.reader.report(error.hint(hint));
                return None;
            }
            return Some((*known, host_text.to_owned(), default_port));
        }
        let (host, actual_port) = match &endpoint {
            Endpoint::Unix(_) => ("localhost".to_owned(), 0),
            Endpoint::Inet { .. } => match port {
                Some(port) if port != default_port => (authority.to_owned(), port),
                _ => (host_text.to_owned(), default_port),
            },
        };
        // Names of hosts have no case, paths have. Without a port the scheme decides about it.
        let key = match &endpoint {
            Endpoint::Unix(_) => authority.to_owned(),
            Endpoint::Inet { .. } if port.is_none() && https => {
                format!("{}:443", authority.to_ascii_lowercase())
            }
            Endpoint::Inet { .. } => authority.to_ascii_lowercase(),
        };
        if let Some(known) = self.implicit.get(&key) {
            return Some((*known, host, actual_port));
        }
        let addresses = self.implicit_addresses(authority, host_text, default_port, span);
        if addresses.is_empty() {
            return None;
        }
        let known = id(self.upstreams.len());
        self.upstreams
            .push(implicit_group(authority, addresses, span));
        self.implicit.insert(key, known);
        Some((known, host, actual_port))
    }

    fn implicit_addresses(
        &mut self,
        authority: &str,
        host: &str,
        default_port: u16,
        span: Span,
    ) -> Vec<PeerAddress> {
        let before = self.reader.diagnostics.len();
        let addresses = self.reader.peer_addresses(authority, default_port, span);
        if let Some(error) = self.reader.diagnostics.get_mut(before) {
            let explicit = self.upstreams.iter().filter(|group| !group.implicit);
            if let Some(near) = nearest(host, explicit.map(|group| group.name.as_str())) {
                error.hint = Some(format!("did you mean the upstream \"{near}\"?"));
            }
        }
        addresses
    }

    /// The replaced prefix and the URI should both end with a slash, or neither.
    fn check_slashes(&mut self, prefix: &str, uri: &str, pass: &ProxyPassDraft) {
        if uri.contains('?') {
            return;
        }
        if uri.ends_with('/') && !prefix.ends_with('/') {
            let message = format!("\"{prefix}/x\" will be passed on as \"{uri}/x\"");
            let hint = format!("end both with a slash (`location {prefix}/`) or neither");
            self.reader.warning(pass.span, message, hint);
        } else if prefix.ends_with('/') && !uri.ends_with('/') {
            let message = format!("\"{prefix}x\" will be passed on as \"{uri}x\"");
            let hint = format!("end both with a slash (`{}/`) or neither", pass.text);
            self.reader.warning(pass.span, message, hint);
        }
    }
}

fn id(index: usize) -> UpstreamId {
    UpstreamId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn implicit_group(authority: &str, addresses: Vec<PeerAddress>, span: Span) -> Upstream {
    let line = ServerLine {
        name: authority.to_owned(),
        addresses,
        weight: 1,
        max_conns: 0,
        max_fails: 1,
        fail_timeout: Duration::from_secs(10),
        slow_start: Duration::ZERO,
        backup: false,
        down: false,
        resolve: None,
        drain: false,
        route: String::new(),
    };
    Upstream {
        name: authority.to_owned(),
        implicit: true,
        servers: vec![line],
        zone: None,
        zone_bytes: None,
        state: None,
        balancer: Balancer::RoundRobin,
        keepalive: None,
        resolver: None,
        resolver_timeout: Duration::from_secs(30),
        checks: Vec::new(),
        outliers: None,
        max_ejected_percent: None,
        queue: None,
        retry_budget: Some(crate::model::RetryBudget::DEFAULT),
        sticky: None,
        span,
    }
}

/// Splits what follows the scheme into authority and URI. A socket's path ends at the next colon.
fn split_uri(rest: &str) -> (&str, Option<String>) {
    let (authority, uri) = match strip_prefix_ignore_case(rest, "unix:") {
        Some(path) => {
            let end = path.find(':').map_or(rest.len(), |at| "unix:".len() + at);
            let (authority, uri) = rest.split_at_checked(end).unwrap_or((rest, ""));
            (authority, uri.strip_prefix(':').unwrap_or(uri))
        }
        None => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            rest.split_at_checked(end).unwrap_or((rest, ""))
        }
    };
    let uri = match uri {
        "" => None,
        uri if uri.starts_with('/') => Some(uri.to_owned()),
        uri => Some(format!("/{uri}")),
    };
    (authority, uri)
}

/// Whether this ends a host so that only names of one domain can come out, as in `$1.apps.internal`.
fn is_domain(part: &Part) -> bool {
    let Part::Literal(text) = part else {
        return false;
    };
    let host = text.split([':', '/']).next().unwrap_or(text);
    host.strip_prefix('.')
        .is_some_and(|domain| domain.contains(|one: char| one.is_alphabetic()))
}

/// The first variable in the host of a target that the client decides.
fn host_from_client(template: &Template) -> Option<String> {
    let mut literal = String::new();
    for (index, part) in template.parts.iter().enumerate() {
        let bounded = || template.parts.get(index + 1).is_some_and(is_domain);
        match part {
            Part::Literal(text) => {
                literal.push_str(text);
                let after_scheme = literal.split_once("://").map_or("", |(_, rest)| rest);
                if after_scheme.contains('/') {
                    return None;
                }
            }
            Part::Capture(_) | Part::Variable(_) if bounded() => return None,
            Part::Capture(number) => return Some(format!("${number}")),
            Part::Variable(variable) => {
                let name = match variable {
                    Variable::Http(name) => format!("$http_{name}"),
                    Variable::Arg(name) => format!("$arg_{name}"),
                    Variable::Cookie(name) => format!("$cookie_{name}"),
                    Variable::Builtin(Builtin::Host) => "$host".to_owned(),
                    Variable::Builtin(Builtin::Args | Builtin::QueryString) => "$args".to_owned(),
                    // The path starts with a slash, which ends the host.
                    Variable::Builtin(
                        Builtin::Uri | Builtin::RequestUri | Builtin::DocumentUri,
                    ) => return None,
                    _ => continue,
                };
                return Some(name);
            }
        }
    }
    None
}
