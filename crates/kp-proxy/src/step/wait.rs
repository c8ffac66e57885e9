//! Waiting: what an exchange does that can neither go on nor be answered yet.
//!
//! Decides what comes after a wait. Does not decide who wakes it: the driver does, when a place became free or a name was
//! answered.

use crate::failure::{self, Cause};
use crate::io::{Action, WaitFor, Woken};
use crate::machine::Phase;
use crate::{Context, Exchange, Failure, Program, Target};
use kp_config::model::UpstreamId;

/// `ETIMEDOUT`, as nginx's resolver says it.
const TIMED_OUT: u16 = 110;

impl Exchange {
    /// Begins to wait. No peer is held meanwhile.
    pub(super) fn wait(&mut self, for_: WaitFor, until_ms: u64) -> Action {
        self.machine.phase = Phase::Wait(for_);
        Action::Wait { until_ms, for_ }
    }

    /// The wait is over.
    pub(super) fn on_waited(
        &mut self,
        for_: WaitFor,
        woken: Woken,
        program: &Program,
        context: &Context<'_>,
    ) -> Action {
        let cause = match (for_, woken) {
            (WaitFor::Rate, _) => return self.admit(program, context),
            (WaitFor::Backoff, _) | (WaitFor::Queue | WaitFor::Name, Woken::Early) => {
                return self.acquire();
            }
            (WaitFor::Queue, Woken::Due) => Cause::QueueTimeout,
            // A group whose name has no addresses yet is as one without live peers.
            (WaitFor::Name, Woken::Due) => match &self.machine.target {
                Some(Target::Name { host, .. }) => {
                    let host = host.clone();
                    let none = UpstreamId(u32::MAX);
                    self.begin_attempt(none, &host, context.now.mono_ms);
                    self.end_attempt(context);
                    self.record.detail = Some(host);
                    Cause::NameNotResolved(TIMED_OUT)
                }
                _ => Cause::NoLivePeer,
            },
        };
        // `$upstream_addr` names the group, as where no peer is live.
        if let Some(Target::Group(group)) = self.machine.target
            && let Some(upstream) = context.config.http.upstreams.get(group.index())
        {
            self.begin_attempt(group, &upstream.name, context.now.mono_ms);
            self.end_attempt(context);
        }
        let phase = match cause {
            Cause::NameNotResolved(_) => failure::Phase::Route,
            _ => failure::Phase::Connect,
        };
        self.fail(Failure::new(phase, cause), program, context)
    }
}
