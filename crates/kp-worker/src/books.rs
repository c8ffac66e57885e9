//! The shared books: compared once a second for a while after a worker was killed, and put right; once a minute the rows
//! that nobody uses any more are taken back; and every few seconds, while there is a page to show it, it is written down
//! how things go. The master keeps them; with `master_process off` the one worker does.

use kp_shm::{IdleSeries, Repair, Sampler, Shm};
use kp_sys::clock;

const EVERY_MS: u64 = 1_000;
const FOR_MS: u64 = 30_000;
const RECLAIM_MS: u64 = 60_000;
/// So soon where they are needed: each change of weights in a large group with a zone takes a row for each of its peers.
const RECLAIM_SOON_MS: u64 = 250;
/// Labelled series stay longer: whoever reads them once a minute sees their last values, and a graph does not break where a
/// peer is gone for a while. Where room is scarce, since addresses of names come and go, they go with the others.
const RECLAIM_SERIES_MS: u64 = 300_000;

/// When the books are looked at next.
#[derive(Debug, Default)]
pub struct Books {
    repair: Repair,
    due_ms: Option<u64>,
    until_ms: u64,
    /// Rows of peers without users when they were looked at last.
    idle: Vec<bool>,
    /// Rows of checks likewise.
    idle_checks: Vec<bool>,
    reclaim_ms: u64,
    /// Rows of peers are needed before that.
    soon_ms: Option<u64>,
    /// Series likewise.
    idle_series: IdleSeries,
    reclaim_series_ms: u64,
    sampler: Sampler,
    /// How many claims had found no room when that was told last.
    told: u64,
    /// The first of all these moments: a lone worker asks for it in each turn of its loop.
    next_ms: u64,
}

impl Books {
    /// A worker was killed: whatever it held in that instant may be missing.
    pub fn suspect(&mut self, now_ms: u64) {
        self.due_ms = Some(now_ms + EVERY_MS);
        self.until_ms = now_ms + FOR_MS;
        self.plan();
    }

    /// When [`Books::look`] has something to do.
    pub fn due_ms(&self) -> u64 {
        self.next_ms
    }

    fn plan(&mut self) {
        let dues = [self.due_ms, self.soon_ms, self.sampler.due_ms()];
        self.next_ms = dues.into_iter().flatten().fold(self.reclaim_ms, u64::min);
    }

    /// Where few rows of peers are left, those that nobody uses are taken back soon.
    fn hurry(&mut self, shm: &Shm, now_ms: u64) {
        let due = self.soon_ms.is_some_and(|soon| soon <= now_ms);
        if due {
            shm.peers().reclaim(&mut self.idle);
        }
        let is_scarce = shm.peers().room() < shm.peers().capacity() / 2;
        self.soon_ms = match self.soon_ms.filter(|_| !due) {
            Some(soon) => Some(soon),
            None => is_scarce.then_some(now_ms + RECLAIM_SOON_MS),
        };
    }

    /// Compares them, if it is time. `sampled`: a page shows the last hour.
    pub fn look(&mut self, shm: &Shm, sampled: bool, now_ms: u64) {
        self.sampler.look(shm, sampled, now_ms, clock::unix_ms());
        self.hurry(shm, now_ms);
        if self.due_ms.is_some_and(|due| due <= now_ms) {
            self.repair.sweep(shm);
            let again = now_ms < self.until_ms || self.repair.is_suspicious();
            self.due_ms = again.then_some(now_ms + EVERY_MS);
        }
        // Due with the others, so that nobody wakes for it.
        if self.reclaim_ms <= now_ms
            && (self.reclaim_series_ms <= now_ms || shm.series().is_scarce())
        {
            shm.series().reclaim(&mut self.idle_series);
            self.reclaim_series_ms = now_ms + RECLAIM_SERIES_MS;
        }
        if self.reclaim_ms <= now_ms {
            shm.peers().reclaim(&mut self.idle);
            shm.checks().reclaim(&mut self.idle_checks);
            self.reclaim_ms = now_ms + RECLAIM_MS;
            let overflows = shm.peers().overflows() + shm.checks().overflows();
            if overflows > self.told {
                self.told = overflows;
                log::warn!(
                    "too many peers or health checks for the shared memory: what is known of the rest, each worker keeps for itself"
                );
            }
        }
        self.plan();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_shm::{Key, PeerRow, SeriesKind};
    use std::collections::VecDeque;

    /// A name that has two other addresses every second, for an hour, in the smallest tables there are: nobody is without
    /// room, and those who stay keep what they have.
    #[test]
    fn peers_that_come_and_go_leave_room_for_others() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let series = shm.series();
        let claim = |name: &str| series.claim(SeriesKind::Peer, &["names", name], process);
        let kept = claim("kept");
        let (mut books, mut here) = (Books::default(), VecDeque::new());
        for second in 1..=3600u64 {
            for one in 0..2 {
                here.push_back(claim(&format!(
                    "10.0.{}.{}:{one}",
                    second / 256,
                    second % 256
                )));
            }
            while here.len() > 8 {
                series.leave(here.pop_front().unwrap());
            }
            books.look(&shm, false, second * 1000);
            assert_eq!(series.strays(), 0, "after {second} seconds");
        }
        let peers = series.rows().filter(|info| info.kind == SeriesKind::Peer);
        assert!(peers.count() < 512 && series.info(kept.index()).is_some());
    }

    #[test]
    fn books_are_due_when_one_of_their_moments_comes() {
        let shm = Shm::private().unwrap();
        let mut books = Books::default();
        assert_eq!(books.due_ms(), 0, "at once");
        books.look(&shm, false, 5_000);
        assert_eq!(books.due_ms(), 5_000 + RECLAIM_MS);
        books.suspect(6_000);
        assert_eq!(books.due_ms(), 6_000 + EVERY_MS);
        books.look(&shm, false, 6_000 + FOR_MS);
        assert_eq!(books.due_ms(), 5_000 + RECLAIM_MS);
        books.look(&shm, true, 40_000);
        assert!(books.due_ms() < 50_000, "samples are taken");
    }

    /// Nothing is taken back in a hurry where there is room.
    #[test]
    fn a_peer_that_left_is_told_of_for_minutes() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let row = shm
            .series()
            .claim(SeriesKind::Peer, &["names", "10.0.0.1:80"], process);
        let mut books = Books::default();
        books.look(&shm, false, 1_000);
        shm.series().leave(row);
        let gone_s = (2..3600u64).find(|second| {
            books.look(&shm, false, second * 1000);
            shm.series().info(row.index()).is_none()
        });
        assert!((300..=660).contains(&gone_s.unwrap()), "{gone_s:?}");
    }

    /// Each change of a weight in a group with a zone takes a row for each of its peers, and gives back the old ones.
    #[test]
    fn a_change_each_second_of_a_large_group_leaves_room_for_the_next() {
        const PEERS: usize = 1_000;
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let (mut books, mut held) = (Books::default(), Vec::<PeerRow>::new());
        for second in 1..=120_u64 {
            let now_ms = second * 1_000;
            let rows = (0..PEERS).map(|peer| {
                let key = Key::of(&[&second.to_le_bytes(), &peer.to_le_bytes()]);
                shm.peers().claim(key, process)
            });
            let rows = rows.collect();
            for row in std::mem::replace(&mut held, rows) {
                shm.peers().leave(row);
            }
            books.look(&shm, false, now_ms);
            assert!(books.due_ms() > now_ms);
        }
        assert_eq!(shm.peers().overflows(), 0);
    }
}
