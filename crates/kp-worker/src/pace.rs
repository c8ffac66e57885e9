//! How fast a client sends its body or takes its answer (`client_min_rate`, `send_min_rate`).
//!
//! Only the time counts in which the client was waited for: where an upstream is slow, or kp itself holds back, nobody is
//! judged. After each window of such time its bytes are held against the rate, but not after the first one: a connection
//! has to get going. What a client took is what its kernel has acknowledged, not what fits this one's buffers.

use crate::active::{Active, NEVER};
use crate::inquiry::RunningRate;
use crate::reactor::Worker;
use kp_config::model::MinRate;
use kp_proxy::{Cause, Failure, Input, Phase};

/// One direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Since when the client is waited for; [`NEVER`]: it is not.
    since_ms: u64,
    waited_ms: u64,
    /// What had moved when the window began.
    bytes: u64,
    /// The first window is over.
    judged: bool,
}

impl Pace {
    pub(crate) const NEW: Self = Self {
        since_ms: NEVER,
        waited_ms: 0,
        bytes: 0,
        judged: false,
    };

    /// Takes note of whether the client is waited for from now on; when the window ends if it is.
    fn wait(&mut self, wanted: bool, rate: &MinRate, now_ms: u64) -> u64 {
        self.settle(now_ms);
        if !wanted {
            self.since_ms = NEVER;
            return NEVER;
        }
        self.since_ms = now_ms;
        now_ms + window_ms(rate).saturating_sub(self.waited_ms)
    }

    fn settle(&mut self, now_ms: u64) {
        if self.since_ms != NEVER {
            self.waited_ms += now_ms.saturating_sub(self.since_ms);
            self.since_ms = now_ms;
        }
    }

    /// How the window goes in which `bytes` have moved in all so far.
    fn view(&self, directive: &str, rate: &MinRate, bytes: u64, now_ms: u64) -> RunningRate {
        let mut now = *self;
        now.settle(now_ms);
        let moved = u128::from(bytes.saturating_sub(self.bytes));
        let speed = (moved * 1000).checked_div(u128::from(now.waited_ms));
        let left_ms = window_ms(rate).saturating_sub(now.waited_ms);
        RunningRate {
            directive: directive.to_owned(),
            bytes_per_s: speed.and_then(|speed| u64::try_from(speed).ok()),
            least_bytes_per_s: rate.bytes_per_second,
            left_ms,
            waiting: self.since_ms != NEVER,
            judged: self.judged,
        }
    }

    /// Whether the window is over.
    fn is_due(&mut self, rate: &MinRate, now_ms: u64) -> bool {
        self.settle(now_ms);
        self.waited_ms >= window_ms(rate)
    }

    /// The window is over and `bytes` have moved in all: whether that was too little. Begins the next one.
    fn judge(&mut self, rate: &MinRate, bytes: u64) -> bool {
        let moved = bytes.saturating_sub(self.bytes);
        let least = u128::from(rate.bytes_per_second) * u128::from(self.waited_ms) / 1000;
        let late = std::mem::replace(&mut self.judged, true) && u128::from(moved) < least;
        self.waited_ms = 0;
        self.bytes = bytes;
        late
    }
}

fn window_ms(rate: &MinRate) -> u64 {
    u64::try_from(rate.window.as_millis()).unwrap_or(NEVER / 2)
}

impl Worker {
    /// Notes for whom is waited while an exchange is parked; when the next window ends.
    pub(crate) fn keep_pace(&self, active: &mut Active, reading: bool, writing: bool) -> u64 {
        let location = self.location(active.exchange.location);
        let now_ms = self.clock.mono_ms;
        let mut due_ms = NEVER;
        if let Some(rate) = &location.client_min_rate {
            due_ms = active.sends.wait(reading, rate, now_ms);
        }
        if let Some(rate) = &location.send_min_rate {
            due_ms = due_ms.min(active.takes.wait(writing, rate, now_ms));
        }
        due_ms
    }

    /// Whether the client is too slow.
    pub(crate) fn too_slow(&self, active: &mut Active) -> Option<Input> {
        let location = self.location(active.exchange.location);
        let now_ms = self.clock.mono_ms;
        if let Some(rate) = &location.client_min_rate
            && active.sends.is_due(rate, now_ms)
            && active.sends.judge(rate, self.body_came(active))
        {
            active.request.stage = crate::active::RequestStage::Done;
            let failure = Failure::new(Phase::RequestBody, Cause::ClientTooSlow);
            return Some(Input::ClientFailed(failure));
        }
        if let Some(rate) = &location.send_min_rate
            && active.takes.is_due(rate, now_ms)
            && active.takes.judge(rate, self.answer_taken(active))
        {
            let failure = Failure::new(Phase::SendResponse, Cause::ClientReadsTooSlow);
            return Some(Input::ClientFailed(failure));
        }
        None
    }

    /// The windows that run.
    pub(crate) fn running_rates(&self, active: &Active) -> Vec<RunningRate> {
        let location = self.location(active.exchange.location);
        let now_ms = self.clock.mono_ms;
        let begun = |pace: &Pace| *pace != Pace::NEW;
        let sends = location.client_min_rate.filter(|_| begun(&active.sends));
        let sends = sends.map(|rate| {
            let came = self.body_came(active);
            active.sends.view("client_min_rate", &rate, came, now_ms)
        });
        let takes = location.send_min_rate.filter(|_| begun(&active.takes));
        let takes = takes.map(|rate| {
            let taken = self.answer_taken(active);
            active.takes.view("send_min_rate", &rate, taken, now_ms)
        });
        sends.into_iter().chain(takes).collect()
    }

    /// Bytes of the request body so far, those included that nobody has looked at.
    fn body_came(&self, active: &Active) -> u64 {
        let client = self.clients.peek(active.client);
        let waiting = client.map_or(0, |client| client.input.len());
        active.request.read_bytes + waiting as u64
    }

    /// Bytes of the answer that the client's kernel has.
    fn answer_taken(&self, active: &Active) -> u64 {
        let client = self.clients.peek(active.client);
        let unsent =
            client.and_then(|client| kp_sys::socket::unacknowledged(&client.transport.fd).ok());
        let sent = active.exchange.record.bytes_sent;
        sent.saturating_sub(u64::from(unsent.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const RATE: MinRate = MinRate {
        bytes_per_second: 1000,
        window: Duration::from_secs(2),
    };

    #[test]
    fn the_first_window_is_not_judged_and_the_next_ones_are() {
        let mut pace = Pace::NEW;
        assert_eq!(pace.wait(true, &RATE, 0), 2000);
        assert!(!pace.is_due(&RATE, 1999));
        assert!(pace.is_due(&RATE, 2000) && !pace.judge(&RATE, 0));
        assert_eq!(pace.wait(true, &RATE, 2000), 4000);
        assert!(pace.is_due(&RATE, 4000) && !pace.judge(&RATE, 2000));
        assert!(pace.is_due(&RATE, 6000) && pace.judge(&RATE, 3999));
    }

    #[test]
    fn only_the_time_counts_in_which_the_client_is_waited_for() {
        let mut pace = Pace::NEW;
        pace.wait(true, &RATE, 0);
        assert_eq!(pace.wait(false, &RATE, 1500), NEVER);
        assert!(!pace.is_due(&RATE, 60_000));
        assert_eq!(pace.wait(true, &RATE, 60_000), 60_500);
        assert!(pace.is_due(&RATE, 60_500));
    }

    #[test]
    fn a_window_that_runs_can_be_looked_at() {
        let mut pace = Pace::NEW;
        pace.wait(true, &RATE, 0);
        let at = |pace: &Pace, bytes, now_ms| {
            let view = pace.view("send_min_rate", &RATE, bytes, now_ms);
            (view.bytes_per_s, view.left_ms, view.waiting, view.judged)
        };
        assert_eq!(at(&pace, 0, 0), (None, 2000, true, false));
        assert_eq!(at(&pace, 300, 500), (Some(600), 1500, true, false));
        assert!(pace.is_due(&RATE, 2000) && !pace.judge(&RATE, 5000));
        pace.wait(true, &RATE, 2000);
        assert_eq!(at(&pace, 5100, 2400), (Some(250), 1600, true, true));
        pace.wait(false, &RATE, 2500);
        assert_eq!(at(&pace, 5100, 9000), (Some(200), 1500, false, true));
    }
}
