//! Waiting: what an exchange does that can neither go on nor be answered yet.
//!
//! Decides what comes after a wait. Does not decide who wakes it: the driver does, when a place became free or a name was
//! answered.

use crate::failure::{self, Cause};
use crate::io::{Action, WaitFor, Woken};
use crate::machine::Phase;
use crate::{Context, Exchange, Failure, Program, Target};

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
            (WaitFor::Name, Woken::Due) => Cause::UnknownHost,
        };
        // `$upstream_addr` names the group, as where no peer is live.
        if let Some(Target::Group(group)) = self.machine.target
            && let Some(upstream) = context.config.http.upstreams.get(group.index())
        {
            self.begin_attempt(group, &upstream.name, context.now.mono_ms);
            self.end_attempt(context);
        }
        self.fail(
            Failure::new(failure::Phase::Connect, cause),
            program,
            context,
        )
    }
}
