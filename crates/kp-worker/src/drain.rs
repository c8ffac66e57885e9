//! The end of a worker: a drain that loses nothing, or a fast stop.

use crate::active::{NEVER, ResponseStage};
use crate::client::ClientPhase;
use crate::reactor::Worker;
use kp_config::model::Location;
use kp_shm::State;

/// Grace for idle connections where no successor generation serves: they can only be closed.
const IDLE_MS_ALONE: u64 = 1000;

/// A drain in progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    started_ms: u64,
    /// Another generation is serving, so a client that is told to go finds a new connection.
    successor: bool,
    /// `worker_shutdown_timeout`.
    pub(crate) end_ms: u64,
}

impl Drain {
    /// Until when an idle connection of this location may wait: counted from the start of the drain, not from becoming
    /// idle, so that a connection that has been idle for long is not cut at once.
    pub(crate) fn idle_end_ms(&self, location: &Location, now_ms: u64) -> u64 {
        let grace_ms = location.keepalive_min_timeout.as_millis() as u64;
        let grace_ms = if self.successor {
            grace_ms
        } else {
            grace_ms.min(IDLE_MS_ALONE)
        };
        (self.started_ms + grace_ms).max(now_ms)
    }
}

impl Worker {
    /// SIGQUIT: accept what is queued, then only finish what was begun.
    pub(crate) fn begin_drain(&mut self) {
        if self.drain.is_some() {
            return;
        }
        log::info!(target: "notice", "gracefully shutting down");
        kp_sys::process::set_title("kp: worker process is shutting down");
        self.board(State::Draining);
        self.accept_all();
        self.close_listeners();
        let now_ms = self.clock.mono_ms;
        let end_ms = self
            .config
            .main
            .worker_shutdown_timeout
            .map_or(NEVER, |limit| now_ms + limit.as_millis() as u64);
        let drain = Drain {
            started_ms: now_ms,
            successor: self.successor,
            end_ms,
        };
        self.drain = Some(drain);
        self.close_idle_upstreams();
        for key in self.clients.keys() {
            let Some(client) = self.clients.at(key) else {
                continue;
            };
            if client.phase != ClientPhase::Head || client.active.is_some() {
                continue;
            }
            let root = self.listeners[usize::from(client.listener)].root;
            let location = &self.config.http.locations[root.index()];
            client.deadline_ms = client.deadline_ms.min(drain.idle_end_ms(location, now_ms));
            self.wheel.arm(client.timer, client.deadline_ms);
        }
    }

    /// Whether a drain has nothing left to wait for.
    pub(crate) fn is_drained(&mut self) -> bool {
        let Some(drain) = self.drain else {
            return false;
        };
        if self.clients.len() == 0 {
            return true;
        }
        if self.clock.mono_ms < drain.end_ms {
            return false;
        }
        // worker_shutdown_timeout: tunnels and all.
        for key in self.clients.keys() {
            let active = self.clients.peek(key).and_then(|client| client.active);
            if let Some(mut active) = active.and_then(|active| self.exchanges.lend(active)) {
                if !matches!(active.response.stage, ResponseStage::Idle) {
                    active.exchange.record.reason = Some("shutdown");
                }
                self.log_once(&mut active);
                self.exchanges.restore(active.key, active);
            }
            self.close_client(key);
        }
        true
    }
}
