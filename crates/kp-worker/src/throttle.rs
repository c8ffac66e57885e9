//! How fast a response moves: `proxy_limit_rate` reads its upstream slowly, `limit_rate` sends it slowly.
//!
//! A deadline says when to go on. As nginx a second's worth is free at the beginning, and time is counted in whole
//! seconds. What waits for its time counts like what waits for a slow client: no more than the buffers of the location
//! are read ahead of it.

use crate::active::{Active, NEVER, ResponseStage};
use crate::reactor::Worker;
use crate::transport::Sent;
use kp_proxy::rate;

/// How far something may go that has gone so far.
enum Allowance {
    /// So many bytes more.
    More(u64),
    /// None before that moment.
    Until(u64),
}

fn allowance(rate: u64, gone: u64, began_ms: u64, now_ms: u64) -> Allowance {
    let elapsed_ms = now_ms.saturating_sub(began_ms);
    let allowed = rate.saturating_mul(elapsed_ms / 1000 + 1);
    match allowed.checked_sub(gone) {
        Some(more @ 1..) => Allowance::More(more),
        _ => Allowance::Until(began_ms.saturating_add((gone / rate).saturating_mul(1000))),
    }
}

impl Worker {
    /// `proxy_limit_rate`: how much more of the response may be read now; `None`: nothing, and a deadline says when to go on.
    pub(crate) fn readable_now(&mut self, active: &mut Active) -> Option<usize> {
        let Some(template) = &self.location(active.exchange.location).proxy.limit_rate else {
            return Some(usize::MAX);
        };
        let mut text = Vec::new();
        self.evaluate(active, template, &mut text);
        let rate = rate::size(&text).unwrap_or(0);
        let Some(attempt) = active.exchange.attempts.last().filter(|_| rate > 0) else {
            return Some(usize::MAX);
        };
        let began_ms = attempt.started_ms + u64::from(attempt.header_ms.unwrap_or(0));
        active.deadlines.rate = NEVER;
        match allowance(rate, attempt.response_length, began_ms, self.clock.mono_ms) {
            Allowance::More(bytes) => Some(usize::try_from(bytes).unwrap_or(usize::MAX)),
            Allowance::Until(moment_ms) => {
                active.deadlines.rate = moment_ms;
                None
            }
        }
    }

    /// Whether `limit_rate` may hold for the response.
    pub(crate) fn is_throttled(&self, active: &Active) -> bool {
        (active.exchange.response.limit_rate.is_some()
            || self.location(active.exchange.location).limit_rate.is_some())
            && !matches!(active.response.stage, ResponseStage::Tunnel(_))
    }

    /// Sends as much of what is pending and of `more` as its time allows.
    pub(crate) fn push_throttled(&mut self, active: &mut Active, more: &[&[u8]]) -> Sent {
        let most = self.sendable_now(active);
        let Some(client) = self.clients.at(active.client) else {
            return Sent::Bytes(0);
        };
        let output = &mut active.to_client;
        let Some(most) = most else {
            return output.push(&mut client.transport, more, &mut self.buffers);
        };
        let total = output.len() + more.iter().map(|bytes| bytes.len()).sum::<usize>();
        if total as u64 <= most {
            active.deadlines.send = NEVER;
            return output.push(&mut client.transport, more, &mut self.buffers);
        }
        for bytes in more {
            output.buffer(&mut self.buffers).extend_from_slice(bytes);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let sent = output.push_some(&mut client.transport, most, &mut self.buffers);
        if !client.transport.writable {
            // It is the client that is waited for, and not for ever.
            active.deadlines.send = NEVER;
        }
        sent
    }

    /// `limit_rate`: how many bytes may be sent now; `None`: as many as the client takes. A deadline says when more may.
    fn sendable_now(&mut self, active: &mut Active) -> Option<u64> {
        active.deadlines.send = NEVER;
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
        let (sent, began_ms, now_ms) = (record.bytes_sent, record.started_ms, self.clock.mono_ms);
        let free = after.saturating_sub(sent);
        match allowance(rate, sent.saturating_sub(after), began_ms, now_ms) {
            Allowance::More(bytes) => {
                // What is left then waits for the next second.
                let second_ms = now_ms.saturating_sub(began_ms) / 1000 + 1;
                active.deadlines.send = began_ms + second_ms * 1000;
                Some(bytes.saturating_add(free))
            }
            Allowance::Until(moment_ms) => {
                active.deadlines.send = moment_ms;
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_free_and_the_moment_to_go_on_is_one_that_allows_more() {
        let more = |gone, now_ms| match allowance(1000, gone, 5000, now_ms) {
            Allowance::More(bytes) => Ok(bytes),
            Allowance::Until(moment_ms) => Err(moment_ms),
        };
        assert_eq!(more(0, 5000), Ok(1000));
        assert_eq!(more(999, 5999), Ok(1));
        assert_eq!(more(1000, 5999), Err(6000));
        assert_eq!(more(3500, 5000), Err(8000));
        for gone in [1000, 1001, 2500, 10_000] {
            let moment_ms = more(gone, 5000).unwrap_err();
            assert!(more(gone, moment_ms).is_ok() && more(gone, moment_ms - 1).is_err());
        }
    }
}
