//! Finds places in flight that nobody holds any more.
//!
//! A process killed between raising a peer's total and recording its own share leaves the total one too high for ever,
//! which would take one connection of `max_conns` away. Living processes are in that state too, for nanoseconds. So a
//! difference is believed only if the master saw exactly the same one in many sweeps in a row.

use crate::peers::Peers;
use std::collections::HashMap;

/// Sweeps that must agree. At one sweep a second a living process would have to be caught between the same two stores
/// each time.
const AGREEMENTS: u32 = 10;

/// What the master remembers between two sweeps.
#[derive(Debug, Default)]
pub struct Repair {
    suspects: HashMap<usize, (i64, u32)>,
}

impl Repair {
    /// Compares the books of every peer, corrects those that have been wrong by the same amount for ten calls, and
    /// returns how many were corrected. Call it about once a second for a while after a worker was killed.
    pub fn sweep(&mut self, peers: &Peers) -> usize {
        let mut corrected = 0;
        for index in 0..peers.used() {
            let (total, shares) = peers.books(index, peers.processes());
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
        corrected
    }

    /// Whether a difference is under suspicion, so that further sweeps are worth their while.
    pub fn is_suspicious(&self) -> bool {
        !self.suspects.is_empty()
    }
}
