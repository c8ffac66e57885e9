//! `upstream` blocks.

use super::or;
use crate::diagnostic::Diagnostic;
use crate::draft::{
    BalancerDraft, KeepaliveDraft, LevelDraft, Reader, ServerLineDraft, UpstreamDraft,
};
use crate::model::{Balancer, Keepalive, RetryBudget, Upstream};
use std::time::Duration;

/// Checks a group and fills in its defaults.
pub(super) fn resolve(
    mut draft: UpstreamDraft,
    http: &LevelDraft,
    reader: &mut Reader<'_>,
) -> Upstream {
    if draft.resolver.is_none() {
        draft.resolver.clone_from(&http.resolver);
    }
    let resolver_timeout = draft.resolver_timeout.take();
    let resolver_timeout = resolver_timeout.or_else(|| http.resolver_timeout.clone());
    check_names(&draft, reader);
    if !draft.has_lines {
        let hint = match &draft.state {
            // As an nginx with "state" has it.
            Some(_) => {
                "kp's \"state\" keeps what is changed, not the servers: write them into the group"
            }
            None => "a group needs at least one line `server address;`",
        };
        reader.refuse(draft.span, "no servers are inside upstream", hint);
    }
    check_backups(&draft, reader);
    let keepalive = keepalive(&draft, reader);
    let servers = draft.servers.into_iter().map(ServerLineDraft::into_line);
    Upstream {
        name: draft.name,
        implicit: false,
        servers: servers.collect(),
        zone: draft.zone.map(|zone| zone.value),
        zone_bytes: draft.zone_bytes,
        state: draft.state,
        balancer: match draft.balancer.map(|balancer| balancer.value) {
            None => Balancer::RoundRobin,
            Some(BalancerDraft::LeastConn) => Balancer::LeastConn,
            Some(BalancerDraft::LeastTime {
                last_byte,
                inflight,
            }) => Balancer::LeastTime {
                last_byte,
                inflight,
            },
            Some(BalancerDraft::IpHash) => Balancer::IpHash,
            Some(BalancerDraft::Hash { key, consistent }) => Balancer::Hash { key, consistent },
            Some(BalancerDraft::Random { two }) => Balancer::Random { two },
        },
        keepalive,
        resolver: draft.resolver.map(|value| value.value),
        resolver_timeout: or(resolver_timeout, Duration::from_secs(30)),
        checks: Vec::new(),
        outliers: draft.outliers.map(|value| value.value),
        max_ejected_percent: draft.max_ejected_percent.map(|value| value.value),
        queue: draft.queue.map(|queue| queue.value),
        retry_budget: draft
            .retry_budget
            .map_or(Some(RetryBudget::DEFAULT), |budget| budget.value),
        sticky: draft.sticky.map(|sticky| sticky.value),
        span: draft.span,
    }
}

/// Two groups cannot have their changes in one file.
pub(super) fn check_states(upstreams: &[Upstream], reader: &mut Reader<'_>) {
    for (at, upstream) in upstreams.iter().enumerate() {
        let Some(state) = &upstream.state else {
            continue;
        };
        let mut before = upstreams.iter().take(at);
        let same = |other: &&Upstream| {
            other
                .state
                .as_ref()
                .is_some_and(|other| other.value == state.value)
        };
        if let Some(other) = before.find(same) {
            let path = state.value.display();
            let error = format!(
                "\"{path}\" is the state file of upstream \"{}\" already",
                other.name
            );
            reader.refuse(state.span, error, "give each group a file of its own");
        }
    }
}

/// Names that are looked up while kp runs need somebody to ask, and peers that all workers share: as nginx.
fn check_names(draft: &UpstreamDraft, reader: &mut Reader<'_>) {
    let mut lines = draft.servers.iter().filter(|line| line.resolve.is_some());
    let Some(line) = lines.next() else { return };
    let group = &draft.name;
    if draft.zone.is_none() {
        let message = format!(
            "resolving names at run time requires upstream \"{group}\" to be in shared memory"
        );
        let hint = format!("add \"zone {group} 64k;\" to the group");
        reader.refuse(line.name.span, message, hint);
    }
    if draft.resolver.is_none() {
        let message =
            format!("no resolver defined to resolve names at run time in upstream \"{group}\"");
        let hint = "name the servers to ask: \"resolver address;\" in http or in the group";
        reader.refuse(line.name.span, message, hint);
    }
}

fn check_backups(draft: &UpstreamDraft, reader: &mut Reader<'_>) {
    let method = match draft.balancer.as_ref().map(|balancer| &balancer.value) {
        Some(BalancerDraft::IpHash) => Some("ip_hash"),
        Some(BalancerDraft::Hash { .. }) => Some("hash"),
        Some(BalancerDraft::Random { .. }) => Some("random"),
        Some(BalancerDraft::LeastConn | BalancerDraft::LeastTime { .. }) | None => None,
    };
    let slow = draft
        .servers
        .iter()
        .filter_map(|line| line.slow_start.as_ref());
    for (span, method) in slow.map(|time| time.span).zip(method.into_iter().cycle()) {
        let error = Diagnostic::error(
            span,
            "balancing method does not support parameter \"slow_start\"",
        );
        reader.report(error.hint(format!(
            "\"{method}\" sends a key to its server at once; round robin, least_conn and least_time know a slow start"
        )));
    }
    let backups = draft.servers.iter().filter_map(|line| line.backup);
    if let Some(method) = method {
        for span in backups {
            reader.report(
                Diagnostic::error(
                    span,
                    "balancing method does not support parameter \"backup\"",
                )
                .hint(format!(
                    "\"{method}\" knows no backup servers; round robin and least_conn do"
                )),
            );
        }
    } else if !draft.servers.is_empty() && backups.count() == draft.servers.len() {
        reader.report(
            Diagnostic::error(
                draft.span,
                format!("no servers in upstream \"{}\"", draft.name),
            )
            .hint("at least one server must not be a backup"),
        );
    }
}

/// An explicit group keeps connections, 32 for each worker and only for the location that opened them, unless it says
/// otherwise.
fn keepalive(draft: &UpstreamDraft, reader: &mut Reader<'_>) -> Option<Keepalive> {
    let stated = draft.keepalive.as_ref().map_or(
        KeepaliveDraft {
            connections: 32,
            local: true,
        },
        |value| value.value,
    );
    if stated.connections == 0 {
        let ignored = [
            (
                "keepalive_requests",
                draft.keepalive_requests.as_ref().map(|value| value.span),
            ),
            (
                "keepalive_time",
                draft.keepalive_time.as_ref().map(|value| value.span),
            ),
            (
                "keepalive_timeout",
                draft.keepalive_timeout.as_ref().map(|value| value.span),
            ),
        ];
        for (name, span) in ignored {
            if let Some(span) = span {
                reader.warning(
                    span,
                    format!("\"{name}\" is ignored"),
                    "\"keepalive 0\" turns keep-alive off",
                );
            }
        }
        return None;
    }
    Some(Keepalive {
        connections: stated.connections,
        local: stated.local,
        requests: draft
            .keepalive_requests
            .as_ref()
            .map_or(1000, |value| value.value),
        time: draft
            .keepalive_time
            .as_ref()
            .map_or(Duration::from_secs(3600), |value| value.value),
        timeout: draft
            .keepalive_timeout
            .as_ref()
            .map_or(Duration::from_secs(60), |value| value.value),
    })
}
