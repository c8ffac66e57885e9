//! Requests in flight: which they are, and where each of them waits, told by the same state that decides what happens next.

use super::connections::remote_text;
use super::longest::Longest;
use super::{Findings, RequestInFlight, Timeout, WaitsFor, printable};
use crate::active::{Active, NEVER, RequestStage, ResponseStage};
use crate::client::ClientPhase;
use crate::park::Wants;
use crate::reactor::Worker;
use crate::upstream::UpstreamPhase;
use kp_config::model::{Handler, UpstreamId};
use kp_proxy::machine::Phase;
use kp_proxy::{Target, WaitFor};
use std::time::Duration;

/// What is awaited, for how long already, and when it goes on by itself.
struct Wait {
    for_: WaitsFor,
    on: String,
    waited_ms: Option<u64>,
    goes_on_ms: Option<u64>,
}

impl Wait {
    fn new(for_: WaitsFor) -> Self {
        Self {
            for_,
            on: String::new(),
            waited_ms: None,
            goes_on_ms: None,
        }
    }

    fn on(mut self, on: impl Into<String>) -> Self {
        self.on = on.into();
        self
    }

    fn goes_on(mut self, at_ms: u64) -> Self {
        self.goes_on_ms = (at_ms != NEVER).then_some(at_ms);
        self
    }
}

/// What a thread is asked for by a location that answers itself.
fn opened_for(handler: &Handler) -> WaitsFor {
    match handler {
        Handler::Page(_) => WaitsFor::Page,
        Handler::Static | Handler::Proxy(_) => WaitsFor::File,
    }
}

impl Worker {
    pub(super) fn requests_in_flight(&self, limit: usize, longer_ms: u64) -> Findings {
        let now_ms = self.clock.mono_ms;
        let mut longest = Longest::new(limit);
        for (key, active) in self.exchanges.iter() {
            let began_ms = active.exchange.record.started_ms;
            if now_ms.saturating_sub(began_ms) >= longer_ms {
                longest.see(began_ms, key);
            }
        }
        let described = longest
            .keys()
            .filter_map(|key| Some(self.request_in_flight(self.exchanges.peek(key)?)));
        Findings::Requests {
            in_flight: self.exchanges.len(),
            requests: described.collect(),
        }
    }

    fn request_in_flight(&self, active: &Active) -> RequestInFlight {
        let now_ms = self.clock.mono_ms;
        let exchange = &active.exchange;
        let client = self.clients.peek(active.client);
        let begun = client.is_some_and(|client| client.phase == ClientPhase::Exchange);
        let head = begun.then_some(&exchange.request.head);
        let server = self.config.http.servers.get(exchange.server.index());
        let attempt = exchange.attempts.last();
        let wait = self.wait_of(active);
        RequestInFlight {
            worker: self.pid,
            connection: client.map_or(0, |client| client.serial),
            request: client.map_or(0, |client| client.requests) + u32::from(!begun),
            client: remote_text(match begun {
                true => exchange.connection.remote,
                false => client.and_then(|client| client.remote.address()),
            }),
            server: server
                .filter(|_| begun)
                .map_or(String::new(), |server| server.primary_name.clone()),
            method: head.map_or(String::new(), |head| printable(head.method_text())),
            uri: head.map_or(String::new(), |head| printable(head.target())),
            age_ms: now_ms.saturating_sub(exchange.record.started_ms),
            waits_for: wait.for_,
            waits_on: wait.on,
            waited_ms: wait.waited_ms,
            goes_on_in_ms: wait.goes_on_ms.map(|at_ms| at_ms.saturating_sub(now_ms)),
            upstream: attempt
                .map_or("", |one| self.upstream_name(one.upstream))
                .into(),
            peer: attempt.map_or(String::new(), |attempt| attempt.address.clone()),
            attempt: exchange.attempts.len(),
            bytes_in: match begun {
                true => exchange.record.request_length,
                false => client.map_or(0, |client| client.input.len() as u64),
            },
            bytes_out: exchange.record.bytes_sent,
            timeouts: self.timeouts_of(active),
            rates: match begun {
                true => self.running_rates(active),
                false => Vec::new(),
            },
        }
    }

    /// The name of a group; empty: it is none.
    pub(super) fn upstream_name(&self, upstream: UpstreamId) -> &'static str {
        let upstream = self.config.http.upstreams.get(upstream.index());
        upstream.map_or("", |upstream| upstream.name.as_str())
    }

    /// Where it waits. The order is that of the answer to "what must happen first".
    fn wait_of(&self, active: &Active) -> Wait {
        let attempt = active.exchange.attempts.last();
        let peer = attempt.map_or("", |attempt| attempt.address.as_str());
        let wants = self.wants(active);
        let client = self.clients.peek(active.client);
        if client.is_some_and(|client| client.phase == ClientPhase::Head) {
            let waited_ms = Some(self.since(active.exchange.record.started_ms));
            return Wait {
                waited_ms,
                ..Wait::new(WaitsFor::Head)
            };
        }
        if let Phase::Wait(for_) = active.exchange.machine.phase {
            return self.pause_of(active, for_);
        }
        if wants.connect {
            let upstream = active.upstream.and_then(|key| self.upstreams.peek(key));
            let shaking = upstream.is_some_and(|one| one.phase == UpstreamPhase::Handshake);
            let for_ = if shaking {
                WaitsFor::Handshake
            } else {
                WaitsFor::Connect
            };
            let waited_ms = attempt.map(|attempt| self.since(attempt.started_ms));
            return Wait {
                waited_ms,
                ..Wait::new(for_).on(peer)
            };
        }
        self.wait_for_bytes(active, peer, wants)
    }

    /// Where it waits for bytes to come or to go.
    fn wait_for_bytes(&self, active: &Active, peer: &str, wants: Wants) -> Wait {
        let location = self.location(active.exchange.location);
        let (deadlines, proxy) = (&active.deadlines, &location.proxy);
        let until = |for_, deadline_ms, limit| Wait {
            waited_ms: self.lasted(deadline_ms, limit),
            ..Wait::new(for_)
        };
        if !active.to_client.is_empty() && deadlines.send != NEVER {
            return Wait::new(WaitsFor::LimitRate).goes_on(deadlines.send);
        }
        if !active.to_client.is_empty() {
            return until(
                WaitsFor::Client,
                deadlines.client_write,
                location.send_timeout,
            );
        }
        let of_peer = |for_, limit| until(for_, deadlines.upstream_read, limit).on(peer);
        match active.response.stage {
            ResponseStage::Tunnel(_) if !active.to_upstream.is_empty() => {
                return of_peer(WaitsFor::SendRequest, proxy.upgrade_timeout);
            }
            ResponseStage::Tunnel(_) => return of_peer(WaitsFor::Tunnel, proxy.upgrade_timeout),
            ResponseStage::Opening => return Wait::new(opened_for(&location.handler)),
            ResponseStage::File(_) => return Wait::new(WaitsFor::File),
            ResponseStage::Relaying if deadlines.rate != NEVER => {
                return Wait::new(WaitsFor::ProxyLimitRate)
                    .on(peer)
                    .goes_on(deadlines.rate);
            }
            ResponseStage::Relaying => return of_peer(WaitsFor::ResponseBody, proxy.read_timeout),
            ResponseStage::Idle
            | ResponseStage::AwaitHead
            | ResponseStage::Page(_)
            | ResponseStage::Complete => {}
        }
        if wants.client_read {
            let limit = location.client_body_timeout;
            return until(WaitsFor::RequestBody, deadlines.client_read, limit);
        }
        if wants.upstream_write {
            let limit = proxy.send_timeout;
            return until(WaitsFor::SendRequest, deadlines.upstream_write, limit).on(peer);
        }
        match (&active.response.stage, active.request.stage) {
            (_, RequestStage::Collecting | RequestStage::Replaying(_)) => Wait::new(WaitsFor::File),
            (ResponseStage::AwaitHead, _) => of_peer(WaitsFor::ResponseHead, proxy.read_timeout),
            _ => Wait::new(WaitsFor::Loop),
        }
    }

    /// A wait in which no peer is held.
    fn pause_of(&self, active: &Active, for_: WaitFor) -> Wait {
        let target = match &active.exchange.machine.target {
            Some(Target::Group(group)) => self.upstream_name(*group),
            Some(Target::Name { host, .. }) => host.as_str(),
            Some(Target::Address(_)) | None => "",
        };
        let until_ms = active.deadlines.wait;
        match for_ {
            WaitFor::Rate => Wait::new(WaitsFor::RateLimit).goes_on(until_ms),
            WaitFor::Backoff => Wait::new(WaitsFor::Backoff).on(target).goes_on(until_ms),
            WaitFor::Queue => Wait {
                waited_ms: self.lasted(until_ms, self.queue_timeout(active)),
                ..Wait::new(WaitsFor::Queue).on(target)
            },
            WaitFor::Name => Wait::new(WaitsFor::Name).on(target),
        }
    }

    /// `queue … timeout=` of the group that it goes to.
    fn queue_timeout(&self, active: &Active) -> Duration {
        let group = match &active.exchange.machine.target {
            Some(Target::Group(group)) => self.config.http.upstreams.get(group.index()),
            _ => None,
        };
        let queue = group.and_then(|group| group.queue);
        queue.map_or(Duration::ZERO, |queue| queue.timeout)
    }

    /// What ends it, as soon as it does.
    fn timeouts_of(&self, active: &Active) -> Vec<Timeout> {
        let tunnel = matches!(active.response.stage, ResponseStage::Tunnel(_));
        let deadlines = &active.deadlines;
        let reading = match (tunnel, self.wants(active).connect) {
            (true, _) => "proxy_upgrade_timeout",
            (false, true) => "proxy_connect_timeout",
            (false, false) => "proxy_read_timeout",
        };
        let waiting = match active.exchange.machine.phase {
            Phase::Wait(WaitFor::Queue) => ("queue", deadlines.wait),
            Phase::Wait(WaitFor::Name) => ("resolver_timeout", deadlines.wait),
            _ => ("", NEVER),
        };
        let client = self.clients.peek(active.client);
        let head_ms = client
            .filter(|client| client.phase == ClientPhase::Head)
            .map_or(NEVER, |client| client.deadline_ms);
        let drain_ms = self.drain.as_ref().map_or(NEVER, |drain| drain.end_ms());
        let mut timeouts: Vec<(&str, u64)> = [
            ("client_header_timeout", head_ms),
            ("client_body_timeout", deadlines.client_read),
            ("send_timeout", deadlines.client_write),
            ("lingering_time", deadlines.discard),
            (reading, deadlines.upstream_read),
            ("proxy_send_timeout", deadlines.upstream_write),
            ("proxy_try_timeout", deadlines.attempt),
            waiting,
            ("worker_shutdown_timeout", drain_ms),
        ]
        .into_iter()
        .filter(|(_, deadline_ms)| *deadline_ms != NEVER)
        .collect();
        timeouts.sort_by_key(|(_, deadline_ms)| *deadline_ms);
        let now_ms = self.clock.mono_ms;
        let running = timeouts
            .into_iter()
            .map(|(directive, deadline_ms)| Timeout {
                directive: directive.to_owned(),
                in_ms: deadline_ms.saturating_sub(now_ms),
            });
        running.collect()
    }

    fn since(&self, then_ms: u64) -> u64 {
        self.clock.mono_ms.saturating_sub(then_ms)
    }

    /// How long a wait with this deadline has lasted: it was set when it began.
    fn lasted(&self, deadline_ms: u64, limit: Duration) -> Option<u64> {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(NEVER);
        let left_ms = deadline_ms.saturating_sub(self.clock.mono_ms);
        (deadline_ms != NEVER).then(|| limit_ms.saturating_sub(left_ms))
    }
}
