//! The last hour in samples, so that who opens the status page sees at once how it came to this.
//!
//! The master takes a sample every five seconds while a page shows them ([`Sampler`]); everybody may read. A sample says what
//! happened since the one before. An entry carries its number before and after it is read; one that was being written is
//! left out.

use crate::Shm;
use crate::counters::Counter;
use crate::series::{BOUNDS_MS, BUCKETS, Histogram, SeriesKind};
use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};

/// Samples that are kept: those of an hour.
const LENGTH: usize = 3_600_000 / History::EVERY_MS as usize;
/// Words of an entry, its number included.
const WIDTH: usize = 12;
/// How many were ever written, on a line of its own.
const HEADER: usize = 8;
/// A sample over a longer time says nothing about any moment in it: the master had slept, or had not been asked to look.
const STALE_MS: u64 = 3 * History::EVERY_MS;

/// What happened between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// When it ended.
    pub unix_ms: u64,
    /// How long it was.
    pub over_ms: u64,
    /// Requests.
    pub requests: u64,
    /// Of the answers, those with 4xx.
    pub answers_4xx: u64,
    /// Those with 5xx.
    pub answers_5xx: u64,
    /// Bytes written to clients.
    pub bytes_out: u64,
    /// Times of requests below which half, nine in ten and 99 in 100 of them lay, in microseconds; `None` where none was over.
    pub quantiles_us: Option<[u64; 3]>,
    /// Connections of clients at its end.
    pub connections: u64,
    /// Requests being worked on at its end.
    pub active: u64,
}

impl Sample {
    fn pack(&self) -> [u64; WIDTH - 1] {
        // Half of the requests took no less than nothing, so that 0 can mean that there were none.
        let [p50, p90, p99] = self.quantiles_us.map_or([0; 3], |all| all.map(|us| us + 1));
        [
            self.unix_ms,
            self.over_ms,
            self.requests,
            self.answers_4xx,
            self.answers_5xx,
            self.bytes_out,
            p50,
            p90,
            p99,
            self.connections,
            self.active,
        ]
    }

    fn unpack(words: [u64; WIDTH - 1]) -> Self {
        let [
            unix_ms,
            over_ms,
            requests,
            answers_4xx,
            answers_5xx,
            bytes_out,
            p50,
            p90,
            p99,
            connections,
            active,
        ] = words;
        Self {
            unix_ms,
            over_ms,
            requests,
            answers_4xx,
            answers_5xx,
            bytes_out,
            quantiles_us: (p50 != 0).then(|| [p50, p90, p99].map(|us| us.saturating_sub(1))),
            connections,
            active,
        }
    }
}

/// The ring.
#[derive(Debug, Clone, Copy)]
pub struct History {
    written: &'static AtomicU64,
    slots: &'static [AtomicU64],
}

impl History {
    pub(crate) const CELLS: usize = HEADER + LENGTH * WIDTH;
    /// Time between two samples.
    pub const EVERY_MS: u64 = 5_000;

    pub(crate) fn new(cells: &'static [AtomicU64]) -> Self {
        Self {
            written: &cells[0],
            slots: &cells[HEADER..],
        }
    }

    /// Adds a sample; the master alone does.
    pub fn push(&self, sample: &Sample) {
        let number = self.written.load(Relaxed);
        let Some((seal, words)) = self.slot(number).split_first() else {
            return;
        };
        seal.store(0, Relaxed);
        fence(Release);
        for (word, value) in words.iter().zip(sample.pack()) {
            word.store(value, Relaxed);
        }
        seal.store(number + 1, Release);
        self.written.store(number + 1, Release);
    }

    /// The samples that ended after this moment, oldest first.
    pub fn since(&self, unix_ms: u64) -> impl Iterator<Item = Sample> + use<> {
        let (history, end) = (*self, self.written.load(Acquire));
        let kept = end.saturating_sub(LENGTH as u64)..end;
        let samples = kept.filter_map(move |number| history.read(number));
        samples.filter(move |sample| sample.unix_ms > unix_ms)
    }

    fn slot(&self, number: u64) -> &'static [AtomicU64] {
        let first = (number % LENGTH as u64) as usize * WIDTH;
        &self.slots[first..first + WIDTH]
    }

    fn read(&self, number: u64) -> Option<Sample> {
        let (seal, words) = self.slot(number).split_first()?;
        if seal.load(Acquire) != number + 1 {
            return None;
        }
        let mut values = [0; WIDTH - 1];
        for (value, word) in values.iter_mut().zip(words) {
            *value = word.load(Relaxed);
        }
        fence(Acquire);
        (seal.load(Relaxed) == number + 1).then(|| Sample::unpack(values))
    }
}

/// What everything had come to at one look.
#[derive(Debug, Clone, Copy)]
struct Look {
    now_ms: u64,
    requests: u64,
    answers_4xx: u64,
    answers_5xx: u64,
    bytes_out: u64,
    times: [u64; BUCKETS],
}

impl Look {
    fn at(shm: &Shm, now_ms: u64) -> Self {
        let total = |counter| shm.counters().total(counter);
        let mut times = [0u64; BUCKETS];
        let series = shm.series();
        for info in series.rows().filter(|info| info.kind == SeriesKind::Server) {
            let buckets = series
                .totals(info.index)
                .histogram(Histogram::Total)
                .buckets;
            for (sum, bucket) in times.iter_mut().zip(buckets) {
                *sum = sum.wrapping_add(bucket);
            }
        }
        Self {
            now_ms,
            requests: total(Counter::Requests),
            answers_4xx: total(Counter::Responses4xx),
            answers_5xx: total(Counter::Responses5xx),
            bytes_out: total(Counter::ClientBytesOut),
            times,
        }
    }

    fn sample(&self, before: &Self, shm: &Shm, unix_ms: u64) -> Sample {
        let times = std::array::from_fn(|at| self.times[at].saturating_sub(before.times[at]));
        Sample {
            unix_ms,
            over_ms: self.now_ms.saturating_sub(before.now_ms).max(1),
            requests: self.requests.saturating_sub(before.requests),
            answers_4xx: self.answers_4xx.saturating_sub(before.answers_4xx),
            answers_5xx: self.answers_5xx.saturating_sub(before.answers_5xx),
            bytes_out: self.bytes_out.saturating_sub(before.bytes_out),
            quantiles_us: quantiles(&times),
            connections: shm.counters().total(Counter::ConnectionsActive),
            active: shm.counters().total(Counter::RequestsActive),
        }
    }
}

/// Half, nine in ten, 99 in 100: in a straight line through the bucket they fall into, as Prometheus does it, and the last
/// bound where that has no end.
fn quantiles(buckets: &[u64; BUCKETS]) -> Option<[u64; 3]> {
    let all: u64 = buckets.iter().sum();
    let quantile = |percent: u64| {
        let wanted = all.saturating_mul(percent);
        let mut below = 0u64;
        for (at, held) in buckets.iter().enumerate() {
            let reached = (below + held).saturating_mul(100);
            if *held == 0 || reached < wanted {
                below += held;
                continue;
            }
            let low = at.checked_sub(1).map_or(0, |at| BOUNDS_MS[at]) * 1000;
            let high = BOUNDS_MS.get(at).map_or(low, |bound| bound * 1000);
            let part = wanted.saturating_sub(below * 100);
            return low + (high - low).saturating_mul(part) / (held * 100);
        }
        0
    };
    (all != 0).then(|| [50, 90, 99].map(quantile))
}

/// Takes the samples, in the master.
#[derive(Debug, Default)]
pub struct Sampler {
    last: Option<Look>,
    due_ms: Option<u64>,
}

impl Sampler {
    /// When [`Sampler::look`] has something to do; `None`: not before somebody wants samples.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Takes a sample if it is time. `wanted`: somebody may look at them; without that the master has no reason to wake up.
    pub fn look(&mut self, shm: &Shm, wanted: bool, now_ms: u64, unix_ms: u64) {
        if !wanted {
            *self = Self::default();
            return;
        }
        if self.due_ms.is_some_and(|due| now_ms < due) {
            return;
        }
        let look = Look::at(shm, now_ms);
        if let Some(before) = self.last.replace(look)
            && now_ms.saturating_sub(before.now_ms) <= STALE_MS
        {
            shm.history().push(&look.sample(&before, shm, unix_ms));
        }
        // In step with the time before, unless that has been missed by far.
        let next_ms = self.due_ms.unwrap_or(now_ms) + History::EVERY_MS;
        self.due_ms = Some(next_ms.max(now_ms + History::EVERY_MS / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(history: History, since: u64) -> Vec<u64> {
        history.since(since).map(|sample| sample.unix_ms).collect()
    }

    #[test]
    fn an_hour_is_kept() {
        let history = Shm::private().unwrap().history();
        assert_eq!(moments(history, 0), []);
        let sample = |unix_ms| Sample {
            unix_ms,
            over_ms: 5000,
            quantiles_us: Some([0, 10, 1 << 40]),
            ..Sample::default()
        };
        for moment in 1..=1000 {
            history.push(&sample(moment));
        }
        assert_eq!(moments(history, 0), (281..=1000).collect::<Vec<_>>());
        assert_eq!(moments(history, 998), [999, 1000]);
        assert_eq!(history.since(999).next(), Some(sample(1000)));
        let quiet = Sample {
            unix_ms: 2000,
            ..Sample::default()
        };
        history.push(&quiet);
        assert_eq!(history.since(1999).next(), Some(quiet));
    }

    #[test]
    fn an_entry_that_is_being_written_is_left_out() {
        let history = Shm::private().unwrap().history();
        for unix_ms in 1..=3 {
            history.push(&Sample {
                unix_ms,
                ..Sample::default()
            });
        }
        history.slots[WIDTH].store(0, Relaxed);
        assert_eq!(moments(history, 0), [1, 3]);
    }

    #[test]
    fn quantiles_lie_in_a_straight_line_through_their_bucket() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(quantiles(&buckets), None);
        // All between 5 and 10 ms.
        buckets[3] = 100;
        assert_eq!(quantiles(&buckets), Some([7_500, 9_500, 9_950]));
        // Half of them at most 1 ms: half of all are no slower.
        buckets[0] = 100;
        assert_eq!(quantiles(&buckets), Some([1_000, 9_000, 9_900]));
        buckets = [0; BUCKETS];
        buckets[BUCKETS - 1] = 1;
        assert_eq!(quantiles(&buckets), Some([30_000_000; 3]));
    }

    #[test]
    fn samples_say_what_happened_in_between() {
        let shm = Shm::private().unwrap();
        let row = shm.scoreboard().claim(1, 0);
        let block = shm.counters().block(row);
        let server = shm.series().claim(SeriesKind::Server, &["a"], row);
        block.add(Counter::Requests, 1000);
        let mut sampler = Sampler::default();
        sampler.look(&shm, false, 1_000, 1);
        assert_eq!(sampler.due_ms(), None);
        sampler.look(&shm, true, 1_000, 1);
        assert_eq!(
            (sampler.due_ms(), shm.history().since(0).count()),
            (Some(6_000), 0)
        );
        block.add(Counter::Requests, 50);
        block.add(Counter::Responses5xx, 2);
        block.set(Counter::ConnectionsActive, 7);
        for _ in 0..50 {
            server.observe_ms(Histogram::Total, 8);
        }
        sampler.look(&shm, true, 3_000, 2_001);
        assert_eq!(shm.history().since(0).count(), 0, "it is not time");
        sampler.look(&shm, true, 6_100, 5_101);
        let expected = Sample {
            unix_ms: 5_101,
            over_ms: 5_100,
            requests: 50,
            answers_5xx: 2,
            connections: 7,
            quantiles_us: Some([7_500, 9_500, 9_950]),
            ..Sample::default()
        };
        assert_eq!(shm.history().since(0).collect::<Vec<_>>(), [expected]);
        assert_eq!(sampler.due_ms(), Some(11_000));
        // The machine slept: nothing is said about that time, and the rest is as before.
        sampler.look(&shm, true, 90_000, 90_000);
        assert_eq!(
            (shm.history().since(0).count(), sampler.due_ms()),
            (1, Some(92_500))
        );
        sampler.look(&shm, true, 92_500, 92_500);
        assert_eq!(
            shm.history()
                .since(5_101)
                .map(|one| one.over_ms)
                .collect::<Vec<_>>(),
            [2_500]
        );
        sampler.look(&shm, false, 93_000, 93_000);
        assert_eq!(sampler.due_ms(), None);
    }
}
