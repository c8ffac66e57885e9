//! State of the exchange machine. Only `step` changes the phase; the driver reads what it needs and books what it did.

use crate::failure::Failure;
use crate::io::WaitFor;
use crate::target::Target;
use kp_http::Method;
use kp_shm::Hashed;
use kp_upstream::{Outcome, Tried};

/// What an exchange is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Its head is being read, or it is being routed.
    #[default]
    New,
    /// Its body is taken whole.
    Collect,
    /// Nothing is done until a moment comes or somebody wakes it; no peer is held.
    Wait(WaitFor),
    /// A peer is picked and connected to.
    Connect,
    /// The request goes out, the response head is awaited.
    AwaitHead,
    /// The response goes to the client.
    Relay,
    /// Bytes go both ways.
    Tunnel,
    /// A file is being opened.
    File,
    /// kp's own answer goes out, or nothing more will.
    Answer,
}

/// What became of the request body so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyState {
    /// Not touched: there is none, or it still waits in the client's connection.
    #[default]
    Unread,
    /// Complete in memory or in a file; it can be sent again.
    Whole,
    /// Part of it went to an upstream and cannot be called back, or it was refused: nobody gets it any more.
    Consumed,
}

/// What a limit said to a request; in a dry run what it would have said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Limited {
    /// It was not asked.
    #[default]
    Unasked,
    /// It let it pass.
    Passed,
    /// It made it wait.
    Delayed,
    /// It refused it.
    Rejected,
    /// It would have made it wait.
    DelayedDryRun,
    /// It would have refused it.
    RejectedDryRun,
}

impl Limited {
    pub(crate) fn is_none(self) -> bool {
        self == Self::Unasked
    }

    /// Whether only a dry run let the request pass.
    pub fn is_dry_run(self) -> bool {
        matches!(self, Self::DelayedDryRun | Self::RejectedDryRun)
    }

    /// nginx's word for it; `None`: the variable has no value.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::Unasked => None,
            Self::Passed => Some("PASSED"),
            Self::Delayed => Some("DELAYED"),
            Self::Rejected => Some("REJECTED"),
            Self::DelayedDryRun => Some("DELAYED_DRY_RUN"),
            Self::RejectedDryRun => Some("REJECTED_DRY_RUN"),
        }
    }
}

/// See the fields.
#[derive(Debug, Default)]
pub struct Machine {
    /// What the exchange is doing.
    pub phase: Phase,
    /// The request body.
    pub body: BodyState,
    /// Length of a body that came whole with the head, so that taking it means no waiting; only set where
    /// `$request_body` is used, by the driver.
    pub body_came: Option<usize>,
    /// Where the request goes.
    pub target: Option<Target>,
    /// Peers that were tried.
    pub tried: Tried,
    /// Attempts so far, free ones not counted.
    pub tries: u32,
    /// Attempts the group allows; set by the driver when it picks.
    pub peers: u32,
    /// When the first attempt began.
    pub first_attempt_ms: u64,
    /// A byte of the request was given to a socket, in any attempt.
    pub request_sent: bool,
    /// The connection in use was idle in the pool before.
    pub reused: bool,
    /// The last peer may be picked again although it was tried: only its connection was stale.
    pub forgive: bool,
    /// The next attempt follows without a pause.
    pub prompt: bool,
    /// The group's `retry_budget` has no room; set by the driver before it tells of a failure.
    pub budget_spent: bool,
    /// The next attempt takes a place of the budget; taken out by the driver, which books it.
    pub repeats: bool,
    /// A retry was not made for want of budget; taken out by the driver, which counts it.
    pub refused: bool,
    /// The next attempt takes a fresh connection: a pooled one was stale, and so may the others be.
    pub fresh_only: bool,
    /// The method as sent, for the framing of the response (RFC 9112 §6.3 rule 1); set by the driver.
    pub sent_method: Option<Method>,
    /// An upgrade was passed on, so a 101 may be accepted; set by the driver.
    pub upgrade: bool,
    /// The upstream connection cannot be reused, whatever the response says; set by the driver.
    pub upstream_close: bool,
    /// Interim responses so far.
    pub interim: u32,
    /// What the attempt says about its peer, taken out by the driver when it ends; `None`: it answered.
    pub outcome: Option<Outcome>,
    /// Whether the response may be read ahead of a slow client; set by the driver.
    pub buffering: bool,
    /// What `limit_req` said.
    pub rate: Limited,
    /// What `limit_conn` said.
    pub place: Limited,
    /// Memory for the keys of zones.
    pub(crate) key_text: Vec<u8>,
    /// The same, hashed.
    pub(crate) keys: Vec<Option<Hashed>>,
    /// Routed again since the last attempt.
    pub redirected: bool,
    /// What ended the exchange, if something went wrong.
    pub failure: Option<Failure>,
    /// Failures for the error log, each with what exactly was wrong; taken out by the driver. There is more than one where the
    /// error page of the first failed at once.
    pub reported: Vec<(Failure, Option<String>)>,
}

impl Machine {
    /// Back to the beginning, keeping memory.
    pub(crate) fn reset(&mut self) {
        let mut tried = std::mem::take(&mut self.tried);
        tried.clear();
        let (key_text, keys) = (
            std::mem::take(&mut self.key_text),
            std::mem::take(&mut self.keys),
        );
        *self = Self {
            tried,
            key_text,
            keys,
            ..Self::default()
        };
    }

    /// The body turned out to be here already, whole, before anybody asked for it.
    pub fn body_taken(&mut self) {
        if self.body == BodyState::Unread {
            self.body = BodyState::Whole;
        }
    }

    /// A byte of a streamed body went out.
    pub fn body_touched(&mut self) {
        if self.body == BodyState::Unread {
            self.body = BodyState::Consumed;
        }
    }
}
