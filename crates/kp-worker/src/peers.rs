//! What attempts say about peers, and the log lines of those that are ejected and come back.

use crate::active::Active;
use crate::clock;
use crate::error_log;
use crate::reactor::Worker;
use kp_config::model::{Level, UpstreamId};
use kp_shm::Counter;
use kp_upstream::{Answer, Offence, Outcome, PeerChange, PeerId, Traffic};

impl Worker {
    /// An attempt is over: its status and times are taken into account, and who is ejected for it is told.
    /// `is_fresh`: its connection was opened for it.
    pub(crate) fn judge(
        &mut self,
        active: &Active,
        peer: PeerId,
        outcome: Outcome,
        is_fresh: bool,
    ) {
        let now_ms = self.clock.mono_ms;
        let attempt = active.exchange.attempts.last();
        // A tunnel ends when its users have had enough of it.
        let is_tunnel = attempt.is_some_and(|attempt| attempt.status == 101);
        let elapsed = |started_ms| u32::try_from(now_ms.saturating_sub(started_ms)).ok();
        let answer = Answer {
            outcome,
            status: attempt.map_or(0, |attempt| attempt.status),
            header_ms: attempt.and_then(|attempt| attempt.header_ms),
            last_byte_ms: attempt
                .filter(|attempt| attempt.header_ms.is_some() && !is_tunnel)
                .and_then(|attempt| elapsed(attempt.started_ms)),
            waited_ms: attempt
                .filter(|_| !is_tunnel)
                .and_then(|attempt| elapsed(attempt.started_ms))
                .unwrap_or(0),
            traffic: attempt.map_or_else(Traffic::default, |attempt| Traffic {
                connect_ms: attempt.connect_ms.filter(|_| is_fresh),
                bytes_in: attempt.bytes_received,
                bytes_out: attempt.bytes_sent,
            }),
        };
        self.groups.observe(peer, &answer, now_ms);
        self.tell_changes(peer.upstream);
    }

    /// An attempt came to nothing before there was a connection.
    pub(crate) fn judge_unconnected(&mut self, peer: PeerId, outcome: Outcome) {
        let answer = Answer {
            outcome,
            status: 0,
            header_ms: None,
            last_byte_ms: None,
            waited_ms: 0,
            traffic: Traffic::default(),
        };
        self.groups.observe(peer, &answer, self.clock.mono_ms);
        self.tell_changes(peer.upstream);
    }

    /// One line for each ejection and return that this worker brought about.
    pub(crate) fn tell_changes(&mut self, group: UpstreamId) {
        while let Some((peer, change)) = self.groups.next_change(group) {
            let name = self.groups.name(peer);
            let upstream = self
                .config
                .http
                .upstreams
                .get(group.index())
                .map_or("", |upstream| upstream.name.as_str());
            match change {
                PeerChange::Ejected { why, until_ms } => {
                    self.counters.increment(Counter::UpstreamPeersEjected);
                    let (why, until) = (reason(why), self.time_of_day(until_ms));
                    let text = format!(
                        "peer {name} of upstream \"{upstream}\" ejected: {why}, until {until}"
                    );
                    error_log::write_main(Level::Warn, None, &text);
                }
                PeerChange::Returned => {
                    self.counters.increment(Counter::UpstreamPeersReturned);
                    let text = format!(
                        "peer {name} of upstream \"{upstream}\" returned: its ejection is over"
                    );
                    error_log::write_main(Level::Notice, None, &text);
                }
            }
        }
    }

    /// The local time of day of a monotonic moment.
    fn time_of_day(&self, mono_ms: u64) -> String {
        let unix_s = (self.clock.unix_ms + mono_ms.saturating_sub(self.clock.mono_ms)) / 1000;
        let offset_s = kp_sys::clock::utc_offset_seconds(unix_s as i64);
        let text = clock::dates(unix_s, offset_s).error_log;
        text.rsplit(' ').next().unwrap_or_default().to_owned()
    }
}

fn reason(why: Offence) -> String {
    match why {
        Offence::InARow(failures) => format!("{failures} consecutive 5xx"),
        Offence::Share { failures, answers } => {
            format!("{failures} of {answers} answers failed")
        }
        Offence::Slow { time_ms, median_ms } => {
            format!("{time_ms} ms on average, the others {median_ms} ms")
        }
    }
}
