//! `health_check`: which group it is for, which `match` it names, and what tells it from the group's other checks.

use super::location::Builder;
use crate::diagnostic::Diagnostic;
use crate::draft::{HealthCheckDraft, Reader};
use crate::model::{
    CheckProtocol, Handler, HealthCheck, Http, LocationId, MatchBlock, MatchCondition, MatchId,
    ProxyPass, ProxyTarget,
};
use crate::suggest::nearest;
use std::time::Duration;

impl Builder<'_, '_> {
    /// Hangs the checks of a location into the group it passes to. `passes`: it has a `proxy_pass`, good or bad.
    pub(super) fn health_checks(
        &mut self,
        drafts: &[HealthCheckDraft],
        handler: &Handler,
        passes: bool,
        location: LocationId,
    ) {
        for check in drafts {
            let target = match handler {
                Handler::Proxy(ProxyPass { target, .. }) => Some(target),
                Handler::Static | Handler::Page(_) => None,
            };
            let Some(ProxyTarget::Upstream {
                upstream, https, ..
            }) = target
            else {
                // Where a `proxy_pass` is there and not good, that was said.
                let hint = match target {
                    Some(_) => "its \"proxy_pass\" has variables: name an upstream",
                    None if passes => continue,
                    None => "there is no \"proxy_pass\" to an upstream in its location",
                };
                let message = "\"health_check\" has no upstream to check";
                self.reader.refuse(check.span, message, hint);
                continue;
            };
            let matches = self.find_match(check);
            let mut resolved = resolved(check, matches, location, *https);
            let Some(group) = self.upstreams.get_mut(upstream.index()) else {
                continue;
            };
            let alike = |known: &&HealthCheck| {
                known.identity.split('#').next() == Some(resolved.identity.as_str())
            };
            let earlier = group.checks.iter().filter(alike).count();
            if earlier > 0 {
                resolved.identity = format!("{}#{earlier}", resolved.identity);
            }
            group.checks.push(resolved);
        }
    }

    fn find_match(&mut self, check: &HealthCheckDraft) -> Option<MatchId> {
        let name = check.matches.as_ref()?;
        let mut numbered = (0..).zip(&self.matches);
        let Some((number, block)) = numbered.find(|(_, block)| block.name == name.value) else {
            let message = format!("unknown match \"{}\"", name.value);
            let known = self.matches.iter().map(|block| block.name.as_str());
            let error = Diagnostic::error(name.span, message);
            let error = match nearest(&name.value, known) {
                Some(near) => error.hint(format!("did you mean \"{near}\"?")),
                None => error.hint("`match name { ... }` stands in http"),
            };
            self.reader.report(error);
            return None;
        };
        if let Some(word) = foreign(block, check.protocol) {
            let (message, hint) = match check.protocol {
                CheckProtocol::Http => (
                    format!("\"{word}\" of match \"{}\" is for type=tcp", block.name),
                    "an http check has: status, header, body, require",
                ),
                CheckProtocol::Tcp => (
                    format!("\"{word}\" of match \"{}\" is for type=http", block.name),
                    "a tcp check has: send, expect",
                ),
            };
            self.reader.refuse(name.span, message, hint);
        }
        Some(MatchId(number))
    }
}

/// The first condition that the protocol does not have.
fn foreign(block: &MatchBlock, protocol: CheckProtocol) -> Option<&'static str> {
    block.conditions.iter().find_map(|condition| {
        let (word, home) = match condition {
            MatchCondition::Status { .. } => ("status", CheckProtocol::Http),
            MatchCondition::Header { .. } => ("header", CheckProtocol::Http),
            MatchCondition::Body { .. } => ("body", CheckProtocol::Http),
            MatchCondition::Require(_) => ("require", CheckProtocol::Http),
            MatchCondition::Send(_) => ("send", CheckProtocol::Tcp),
            MatchCondition::Expect(_) => ("expect", CheckProtocol::Tcp),
        };
        (home != protocol).then_some(word)
    })
}

fn resolved(
    draft: &HealthCheckDraft,
    matches: Option<MatchId>,
    location: LocationId,
    https: bool,
) -> HealthCheck {
    let uri = draft
        .uri
        .as_ref()
        .map_or("/", |uri| uri.value.as_str())
        .to_owned();
    let name = draft.matches.as_ref().map_or("", |name| &name.value);
    let port = draft.port.unwrap_or(0);
    let identity = match draft.protocol {
        CheckProtocol::Http => format!("http {https} {port} {uri} {name}"),
        CheckProtocol::Tcp => format!("tcp {https} {port} {name}"),
    };
    HealthCheck {
        location,
        identity: identity.replace('#', "%23"),
        interval: draft.interval.unwrap_or(Duration::from_secs(5)),
        jitter: draft.jitter,
        fails: draft.fails,
        passes: draft.passes,
        uri,
        port: draft.port,
        matches,
        mandatory: draft.mandatory,
        protocol: draft.protocol,
        https,
        span: draft.span,
    }
}

/// A `match` that no check names.
pub(super) fn lint(http: &Http, reader: &mut Reader<'_>) {
    for (number, block) in (0..).zip(&http.matches) {
        let mut checks = http.upstreams.iter().flat_map(|group| &group.checks);
        if !checks.any(|check| check.matches == Some(MatchId(number))) {
            let message = format!("match \"{}\" is not used", block.name);
            let hint = format!("a check names it: `health_check match={};`", block.name);
            reader.warning(block.span, message, hint);
        }
    }
}
