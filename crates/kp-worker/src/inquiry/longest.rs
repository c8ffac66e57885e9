//! The oldest of many, in one pass that keeps no more of them than are wanted.

use crate::token::Key;
use std::collections::BinaryHeap;

/// Keys of those that began first, the oldest in front.
#[derive(Debug)]
pub(super) struct Longest {
    /// The youngest of them on top.
    heap: BinaryHeap<(u64, u32, u32)>,
    wanted: usize,
}

impl Longest {
    pub(super) fn new(wanted: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            wanted,
        }
    }

    /// Takes note of one that began then.
    pub(super) fn see(&mut self, began_ms: u64, key: Key) {
        let this = (began_ms, key.index, key.generation);
        if self.heap.len() < self.wanted {
            self.heap.push(this);
        } else if let Some(mut youngest) = self.heap.peek_mut()
            && this < *youngest
        {
            *youngest = this;
        }
    }

    /// The oldest first.
    pub(super) fn keys(self) -> impl Iterator<Item = Key> {
        let sorted = self.heap.into_sorted_vec().into_iter();
        sorted.map(|(_, index, generation)| Key { index, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_kept() {
        let key = |index| Key {
            index,
            generation: 0,
        };
        for wanted in [0, 1, 3, 100] {
            let mut longest = Longest::new(wanted);
            for index in 0..50 {
                // 37 and 50 have no common divisor: every age comes once.
                longest.see(u64::from(index) * 37 % 50, key(index));
            }
            let ages: Vec<u64> = longest
                .keys()
                .map(|key| u64::from(key.index) * 37 % 50)
                .collect();
            assert_eq!(ages, (0..50).take(wanted).collect::<Vec<u64>>());
        }
    }
}
