//! The end of a worker: a drain that loses nothing, or a fast stop.

use crate::active::NEVER;
use crate::client::ClientPhase;
use crate::reactor::Worker;
use kp_config::model::Location;
use kp_proxy::Cause;
use kp_shm::State;

/// Grace for idle connections where no successor generation serves: they can only be closed.
const IDLE_MS_ALONE: u64 = 1000;
/// Who has connected this short a time before is no idle client yet: the first request is on its way.
const NEWCOMER_MS: u64 = 1000;
/// How long connections on their way still come in by an address that a reload has taken away: who was answered by the
/// kernel before that has a connection as far as it knows. Less than the second after which ignored ones ask again.
const LAST_ACCEPT_MS: u64 = 500;
/// How long an orphan may finish what it has where `worker_shutdown_timeout` does not say: nobody could stop it.
const ORPHAN_MS: u64 = 15_000;

/// A drain in progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    started_ms: u64,
    /// Another generation is serving, so a client that is told to go finds a new connection.
    successor: bool,
    /// `worker_shutdown_timeout`, or the time of an orphan.
    end_ms: u64,
    /// Which of them it is.
    end_cause: Cause,
    /// When the last listeners are closed.
    last_accept_ms: u64,
}

impl Drain {
    /// When everything ends that is not over; [`NEVER`]: it does not.
    pub(crate) fn end_ms(&self) -> u64 {
        self.end_ms
    }

    /// When [`Worker::is_drained`] has something to do.
    pub(crate) fn due_ms(&self, is_listening: bool) -> u64 {
        if is_listening {
            self.end_ms.min(self.last_accept_ms)
        } else {
            self.end_ms
        }
    }

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

    /// The same for a connection that has brought no request yet.
    pub(crate) fn unused_end_ms(&self, location: &Location, accepted_ms: u64, now_ms: u64) -> u64 {
        let end_ms = self.idle_end_ms(location, now_ms);
        if accepted_ms + NEWCOMER_MS > self.started_ms {
            end_ms.max(self.started_ms + NEWCOMER_MS)
        } else {
            end_ms
        }
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
        // Without a successor newcomers are to be refused at once.
        self.close_listeners(!self.successor);
        self.say_left();
        let now_ms = self.clock.mono_ms;
        let limit = self.config.main.worker_shutdown_timeout;
        let limit_ms = limit.map(|limit| limit.as_millis() as u64);
        let drain = Drain {
            started_ms: now_ms,
            successor: self.successor,
            end_ms: limit_ms.map_or(NEVER, |limit_ms| now_ms + limit_ms),
            end_cause: Cause::Shutdown,
            last_accept_ms: now_ms + LAST_ACCEPT_MS,
        };
        self.drain = Some(drain);
        self.leave_probes();
        self.close_idle_upstreams();
        self.leave_names();
        for key in self.clients.keys() {
            let Some(client) = self.clients.at(key) else {
                continue;
            };
            let untouched = match client.phase {
                ClientPhase::Preamble => true,
                ClientPhase::Head => client.active.is_none(),
                // Who began a handshake may finish it.
                ClientPhase::Handshake => client.transport.is_untouched(),
                ClientPhase::Exchange | ClientPhase::Linger => false,
            };
            if !untouched {
                continue;
            }
            let root = self.fronts.at(client, &self.listeners).root;
            let location = &self.config.http.locations[root.index()];
            let end_ms = match client.requests {
                0 => drain.unused_end_ms(location, client.accepted_ms, now_ms),
                _ => drain.idle_end_ms(location, now_ms),
            };
            client.deadline_ms = client.deadline_ms.min(end_ms);
            self.wheel.arm(client.timer, client.deadline_ms);
        }
    }

    /// The master is gone: nobody could reload, stop or replace this worker, so it must not serve for ever.
    pub(crate) fn begin_orphaned_drain(&mut self) {
        self.successor = false;
        self.begin_drain();
        let now_ms = self.clock.mono_ms;
        self.close_listeners(true);
        if let Some(drain) = &mut self.drain
            && now_ms + ORPHAN_MS < drain.end_ms
        {
            drain.end_ms = now_ms + ORPHAN_MS;
            drain.end_cause = Cause::Orphaned;
        }
    }

    /// Whether a drain has nothing left to wait for.
    pub(crate) fn is_drained(&mut self) -> bool {
        let Some(drain) = self.drain else {
            return false;
        };
        if self.is_listening() && self.clock.mono_ms >= drain.last_accept_ms {
            self.accept_all();
            self.close_listeners(true);
        }
        if self.clients.len() == 0 && !self.is_listening() {
            return true;
        }
        if self.clock.mono_ms < drain.end_ms {
            return false;
        }
        // Tunnels and all.
        for key in self.clients.keys() {
            let parting = self.explain_cut(key, drain.end_cause);
            self.close_client(key, parting);
        }
        true
    }
}
