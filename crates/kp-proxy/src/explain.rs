//! Why an exchange got the answer it got: what ends up in its record.
//!
//! Decides which of several reasons holds: the one that decided what the client got. A failed attempt that was repeated
//! with success is none; what an error page says on behalf of a failure leaves that failure's reason; a page that failed
//! itself gives its own. An answer that is wholly an upstream's or a file's has none.

use crate::failure::{Cause, Failure, Phase};
use crate::machine;
use crate::reason::{Reason, Side};
use crate::{Answer, Exchange, WaitFor};

/// What belongs to a reason besides its row in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Circumstances {
    /// What the exchange was doing; `None` without a reason.
    pub phase: Option<Phase>,
    /// The attempt that failed last, counted from one as the lists of `$upstream_*` are; 0: it was about none.
    pub attempt: u32,
    /// Who ended the connection that the reason is about; `None`: it stayed, or nobody knows.
    pub closed_by: Option<Side>,
}

impl Exchange {
    /// Notes a failure as the reason of what the client gets.
    pub fn explain_failure(&mut self, failure: &Failure) {
        self.record.reason = Some(failure.reason());
        self.record.circumstances = Circumstances {
            phase: Some(failure.phase),
            attempt: self.attempt_under_way(),
            closed_by: failure.closed_by(),
        };
    }

    /// Notes why something that was begun cannot be completed. Where the client was already told of a failure, that one
    /// explains what it was told.
    pub(crate) fn explain_end(&mut self, failure: &Failure) {
        let told = self.record.reason.filter(|_| self.response.status >= 400);
        if !told.is_some_and(Reason::is_failure) {
            self.explain_failure(failure);
        }
    }

    /// Notes why kp answers by itself.
    pub(crate) fn explain_answer(&mut self, answer: &Answer) {
        let configured = !answer.reason.is_failure();
        let gentle = answer.status < 400 || !answer.interceptable;
        let on_behalf = self.request.forced_status != 0 && configured && gentle;
        if on_behalf && self.record.reason.is_some() {
            return;
        }
        let phase = match self.machine.phase {
            machine::Phase::File => Phase::File,
            machine::Phase::AwaitHead => Phase::AwaitHead,
            _ => Phase::Route,
        };
        self.explain(answer.reason, phase);
    }

    /// Notes a reason that is no failure.
    pub(crate) fn explain(&mut self, reason: Reason, phase: Phase) {
        if self.record.reason == Some(reason) {
            return;
        }
        self.record.reason = Some(reason);
        self.record.circumstances = Circumstances {
            phase: Some(phase),
            attempt: match reason.side() {
                Side::Upstream => self.attempt_under_way(),
                _ => 0,
            },
            closed_by: (reason == Reason::ReturnClose).then_some(Side::Own),
        };
    }

    /// Notes that the worker ends before the exchange does, and why. One whose head is not complete was none yet.
    pub fn explain_shutdown(&mut self, cause: Cause) {
        let phase = match self.machine.phase {
            machine::Phase::New => return,
            machine::Phase::Wait(WaitFor::Rate) => Phase::Route,
            machine::Phase::Collect => Phase::RequestBody,
            machine::Phase::Connect | machine::Phase::Wait(_) => Phase::Connect,
            machine::Phase::AwaitHead => Phase::AwaitHead,
            machine::Phase::Relay => Phase::ReadBody,
            machine::Phase::Tunnel => Phase::Tunnel,
            machine::Phase::File => Phase::File,
            machine::Phase::Answer => Phase::SendResponse,
        };
        self.explain_end(&Failure::new(phase, cause));
    }

    /// An upstream or a file answers, with its own status: whatever led there is not why the client gets this.
    pub(crate) fn explain_nothing(&mut self) {
        if self.request.forced_status == 0 {
            self.record.reason = None;
            self.record.circumstances = Circumstances::default();
        }
    }

    /// The number of the attempt that is being made, or of the one that was to be; 0: this is about none.
    fn attempt_under_way(&self) -> u32 {
        use machine::Phase::{AwaitHead, Connect, Relay, Tunnel, Wait};
        match self.machine.phase {
            Connect | AwaitHead | Relay | Tunnel => self.attempts_made(),
            Wait(WaitFor::Queue | WaitFor::Name | WaitFor::Backoff) => self.attempts_made(),
            _ => 0,
        }
    }

    fn attempts_made(&self) -> u32 {
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX)
    }

    /// Appends `$kp_reason_detail`: `phase=connect side=upstream directive=proxy_connect_timeout attempt=2 closed_by=kp`,
    /// without what does not apply; false without a reason.
    pub(crate) fn write_reason_detail(&self, out: &mut Vec<u8>) -> bool {
        let Some(reason) = self.record.reason else {
            return false;
        };
        let Circumstances {
            phase,
            attempt,
            closed_by,
        } = self.record.circumstances;
        let mut part = |name: &[u8], value: &str| {
            out.extend_from_slice(name);
            out.extend_from_slice(value.as_bytes());
        };
        part(b"phase=", phase.unwrap_or(Phase::Route).token());
        part(b" side=", reason.side().token());
        if let Some(directive) = reason.directive() {
            part(b" directive=", directive);
        }
        if attempt > 0 {
            part(b" attempt=", itoa::Buffer::new().format(attempt));
        }
        if let Some(side) = closed_by {
            part(b" closed_by=", side.token());
        }
        true
    }
}
