//! Finds places in flight that nobody holds any more.
//!
//! A process killed between raising a peer's total and recording its own share leaves the total one too high for ever,
//! which would take one connection of `max_conns` away. Living processes are in that state too, for nanoseconds. So a
//! difference is believed only if the master saw exactly the same one in many sweeps in a row.

use crate::Shm;
use crate::places::Journals;
use std::collections::HashMap;

/// Sweeps that must agree. At one sweep a second a living process would have to be caught between the same two stores
/// each time.
const AGREEMENTS: u32 = 10;

/// What the master remembers between two sweeps.
#[derive(Debug, Default)]
pub struct Repair {
    suspects: HashMap<usize, (i64, u32)>,
    /// The same for the words of [`crate::PlaceZone`].
    places: HashMap<usize, (i64, u32)>,
}

impl Repair {
    /// Compares the books of every peer, corrects those that have been wrong by the same amount for ten calls, and
    /// returns how many were corrected. Call it about once a second for a while after a worker was killed.
    pub fn sweep(&mut self, shm: &Shm) -> usize {
        let (peers, processes) = (shm.peers(), shm.scoreboard().used());
        let mut corrected = 0;
        for index in 0..peers.used() {
            let (total, shares) = peers.books(index, processes);
            let difference = total.wrapping_sub(shares);
            if difference == 0 {
                self.suspects.remove(&index);
                continue;
            }
            let suspect = self.suspects.entry(index).or_insert((difference, 0));
            if suspect.0 != difference {
                *suspect = (difference, 0);
            }
            suspect.1 += 1;
            if suspect.1 >= AGREEMENTS {
                self.suspects.remove(&index);
                peers.correct(index, difference);
                corrected += 1;
            }
        }
        corrected + self.sweep_places(shm, processes)
    }

    fn sweep_places(&mut self, shm: &Shm, processes: usize) -> usize {
        let mut corrected = 0;
        let mut still = HashMap::new();
        for (index, difference) in shm.journals.differences(&shm.zones(), processes) {
            let times = match self.places.get(&index) {
                Some((before, times)) if *before == difference => times + 1,
                _ => 1,
            };
            if times >= AGREEMENTS {
                Journals::correct(&shm.zones(), index, difference);
                corrected += 1;
            } else {
                still.insert(index, (difference, times));
            }
        }
        self.places = still;
        corrected
    }

    /// Whether a difference is under suspicion, so that further sweeps are worth their while.
    pub fn is_suspicious(&self) -> bool {
        !self.suspects.is_empty() || !self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn only_a_lasting_difference_is_corrected() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let peer = shm.peers().claim(Key::of(&[b"u"]), process);
        let mut repair = Repair::default();
        assert!(peer.admit(0));
        assert_eq!((repair.sweep(&shm), repair.is_suspicious()), (0, false));

        // The state a kill leaves behind: the total counts one more than anybody holds.
        shm.peers().correct(0, -1);
        for _ in 1..AGREEMENTS {
            assert_eq!(repair.sweep(&shm), 0);
        }
        shm.peers().correct(0, -1);
        assert_eq!(
            repair.sweep(&shm),
            0,
            "another difference starts the count anew"
        );
        for _ in 2..AGREEMENTS {
            assert_eq!(repair.sweep(&shm), 0);
        }
        assert_eq!((peer.in_flight(), repair.is_suspicious()), (3, true));
        assert_eq!(
            (repair.sweep(&shm), peer.in_flight(), repair.is_suspicious()),
            (1, 1, false)
        );
    }
}
