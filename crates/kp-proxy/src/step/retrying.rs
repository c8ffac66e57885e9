//! Another attempt after a failed one: whether, and how soon.
//!
//! Decides by `proxy_next_upstream` (whose rules are `kp_upstream::retry`), by the group's `retry_budget`, whose state the
//! driver shows in the machine, and by `proxy_retry_backoff`. Does not decide which peer is asked.

use crate::failure::Cause;
use crate::io::{Action, WaitFor};
use crate::machine::BodyState;
use crate::{Context, Exchange, Failure};
use kp_config::model::{Proxy, RetryBackoff};
use kp_http::Method;
use kp_upstream::retry;
use std::time::Duration;

/// Attempts that follow each other without a pause: the first, and the one after it, which asks the next peer as fast as
/// nginx does.
const PROMPT_TRIES: u32 = 2;

impl Exchange {
    /// Decides whether another peer is tried, and books what the failure says about this one.
    pub(super) fn retry(&mut self, failure: Failure, context: &Context<'_>) -> bool {
        let proxy = self.proxy_of(context);
        let allowed = retry::tries(self.machine.peers, proxy.next_upstream_tries);
        let situation = retry::Situation {
            non_idempotent: matches!(
                self.request.head.method,
                Method::Post | Method::Lock | Method::Patch
            ),
            request_sent: self.machine.request_sent,
            replayable: self.machine.body != BodyState::Consumed,
            tries_left: allowed.saturating_sub(self.machine.tries),
            elapsed: self.trying_for(context),
            timeout: proxy.next_upstream_timeout,
        };
        let wanted = failure
            .retry()
            .is_some_and(|kind| retry::may_retry(kind, &proxy.next_upstream, &situation));
        // That others use the budget up does not make the peer a better one.
        self.machine.outcome = Some(failure.peer_mark(wanted));
        if !wanted || !self.within_budget(&failure) {
            return false;
        }
        self.machine.prompt = failure.cause == Cause::StaleConnection;
        if self.machine.prompt {
            // The peer did nothing wrong: it may be asked again, and the attempt was free.
            self.machine.tries = self.machine.tries.saturating_sub(1);
            self.machine.forgive = true;
            self.machine.fresh_only = true;
        }
        true
    }

    /// The attempt that [`Exchange::retry`] decided on: at once, or after a pause.
    pub(super) fn again(&mut self, context: &Context<'_>) -> Action {
        match self.pause(context) {
            None => self.acquire(),
            Some(pause) => {
                let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                let until_ms = context.now.mono_ms.saturating_add(pause_ms);
                self.wait(WaitFor::Backoff, until_ms)
            }
        }
    }

    /// Whether the group's budget has room. What never reached a peer, or only a connection that it had closed, costs
    /// nobody anything and needs none.
    fn within_budget(&mut self, failure: &Failure) -> bool {
        if failure.is_free() {
            return true;
        }
        if self.machine.budget_spent {
            self.machine.refused = true;
            return false;
        }
        self.machine.repeats = true;
        true
    }

    /// How long to wait before the next attempt: a random part (full jitter) of a time that doubles with every attempt.
    fn pause(&self, context: &Context<'_>) -> Option<Duration> {
        let proxy = self.proxy_of(context);
        let backoff = proxy.retry_backoff?;
        let beyond = self.machine.tries.checked_sub(PROMPT_TRIES)?;
        if self.machine.prompt {
            return None;
        }
        let mut longest = longest_pause(&backoff, beyond);
        if !proxy.next_upstream_timeout.is_zero() {
            let left = proxy.next_upstream_timeout;
            longest = longest.min(left.saturating_sub(self.trying_for(context)));
        }
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let [a, b, c, d, ..] = context.facts.random();
        let drawn = u64::from(u32::from_le_bytes([a, b, c, d]));
        let pause_ms = drawn.checked_rem(longest_ms.saturating_add(1))?;
        (pause_ms > 0).then(|| Duration::from_millis(pause_ms))
    }

    fn proxy_of<'a>(&self, context: &Context<'a>) -> &'a Proxy {
        &context.config.http.locations[self.location.index()].proxy
    }

    fn trying_for(&self, context: &Context<'_>) -> Duration {
        let began_ms = self.machine.first_attempt_ms;
        Duration::from_millis(context.now.mono_ms.saturating_sub(began_ms))
    }
}

fn longest_pause(backoff: &RetryBackoff, doublings: u32) -> Duration {
    let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
    backoff
        .base
        .checked_mul(factor)
        .unwrap_or(backoff.max)
        .min(backoff.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = RetryBackoff::DEFAULT;
        let longest: Vec<u128> = [0, 1, 2, 3, 4, 31, 32, 1000]
            .into_iter()
            .map(|doublings| longest_pause(&backoff, doublings).as_millis())
            .collect();
        assert_eq!(longest, [25, 50, 100, 200, 250, 250, 250, 250]);
    }
}
