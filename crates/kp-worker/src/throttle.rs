//! How fast a response moves: `proxy_limit_rate` reads its upstream slowly, `limit_rate` sends it slowly.
//!
//! Both hold back the reading of more, so that nothing piles up; a deadline says when to go on. As nginx a second's worth
//! is free at the beginning, and time is counted in whole seconds.

use crate::active::{Active, NEVER};
use crate::reactor::Worker;
use kp_proxy::rate;

/// How far something may go that has gone so far.
enum Pace {
    /// So many bytes more.
    More(u64),
    /// None before that moment.
    Until(u64),
}

fn pace(rate: u64, gone: u64, began_ms: u64, now_ms: u64) -> Pace {
    let elapsed_ms = now_ms.saturating_sub(began_ms);
    let allowed = rate.saturating_mul(elapsed_ms / 1000 + 1);
    match allowed.checked_sub(gone) {
        Some(more @ 1..) => Pace::More(more),
        _ => Pace::Until(began_ms.saturating_add((gone / rate).saturating_mul(1000))),
    }
}

impl Worker {
    /// How much more of the response may be read now; `None`: nothing, and a deadline says when to go on.
    pub(crate) fn allowance(&mut self, active: &mut Active) -> Option<usize> {
        active.deadlines.rate = NEVER;
        let (mut most, mut until_ms) = (usize::MAX, 0);
        for pace in [self.upstream_pace(active), self.client_pace(active)] {
            match pace {
                None => {}
                Some(Pace::More(bytes)) => {
                    most = most.min(usize::try_from(bytes).unwrap_or(usize::MAX));
                }
                Some(Pace::Until(moment_ms)) => until_ms = moment_ms.max(until_ms),
            }
        }
        if until_ms > 0 {
            active.deadlines.rate = until_ms;
            return None;
        }
        Some(most)
    }

    /// `proxy_limit_rate`.
    fn upstream_pace(&mut self, active: &mut Active) -> Option<Pace> {
        let template = self
            .location(active.exchange.location)
            .proxy
            .limit_rate
            .as_ref()?;
        let mut text = Vec::new();
        self.evaluate(active, template, &mut text);
        let rate = rate::size(&text).filter(|rate| *rate > 0)?;
        let attempt = active.exchange.attempts.last()?;
        let began_ms = attempt.started_ms + u64::from(attempt.header_ms.unwrap_or(0));
        Some(pace(
            rate,
            attempt.response_length,
            began_ms,
            self.clock.mono_ms,
        ))
    }

    /// `limit_rate`.
    fn client_pace(&mut self, active: &mut Active) -> Option<Pace> {
        let stated = active.exchange.response.limit_rate.is_some();
        if !stated && self.location(active.exchange.location).limit_rate.is_none() {
            return None;
        }
        let (rate, after) = self.consult(active, |exchange, program, context| {
            (
                rate::limit_rate(exchange, program, context),
                rate::limit_rate_after(exchange, program, context),
            )
        });
        if rate == 0 {
            return None;
        }
        let record = &active.exchange.record;
        let gone = record.bytes_sent + active.to_client.len() as u64;
        Some(pace(
            rate,
            gone.saturating_sub(after),
            record.started_ms,
            self.clock.mono_ms,
        ))
        .map(|pace| match pace {
            Pace::More(bytes) if gone < after => Pace::More(bytes + (after - gone)),
            pace => pace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_free_and_the_moment_to_go_on_is_one_that_allows_more() {
        assert!(matches!(pace(1000, 0, 5000, 5000), Pace::More(1000)));
        assert!(matches!(pace(1000, 999, 5000, 5999), Pace::More(1)));
        assert!(matches!(pace(1000, 1000, 5000, 5999), Pace::Until(6000)));
        assert!(matches!(pace(1000, 3500, 5000, 5000), Pace::Until(8000)));
        for gone in [1000, 1001, 2500, 10_000] {
            let Pace::Until(moment_ms) = pace(1000, gone, 5000, 5000) else {
                panic!("{gone}");
            };
            assert!(matches!(pace(1000, gone, 5000, moment_ms), Pace::More(_)));
            assert!(matches!(
                pace(1000, gone, 5000, moment_ms - 1),
                Pace::Until(_)
            ));
        }
    }
}
