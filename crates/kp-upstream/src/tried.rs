//! What one exchange has tried so far in one group: peers, tier, and how far its hash has walked.

/// Made anew (or cleared) when an exchange turns to a group, then shown to every pick.
#[derive(Debug, Clone, Default)]
pub struct Tried {
    first: u64,
    more: Vec<u64>,
    /// The primaries were found wanting: from here on only backups are asked, as nginx.
    pub(crate) backup: bool,
    pub(crate) walk: Walk,
    before: Walk,
}

/// How far a hash balancer has walked for this exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The balancer's running hash; `None` before the first pick.
    pub(crate) hash: Option<u32>,
    /// Rounds of `hash` so far, mixed into the key from the second on.
    pub(crate) rounds: u32,
    /// Peers it met that could not be used; after 20 the hash is given up.
    pub(crate) misses: u32,
}

impl Tried {
    /// Nothing tried. Allocates only in groups of more than 64 peers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.first = 0;
        self.more.clear();
        self.backup = false;
        self.walk = Walk::default();
        self.before = Walk::default();
    }

    /// Takes the last pick back, so that the same peer may be chosen again: its pooled connection was stale, which
    /// says nothing about the peer.
    pub fn forgive(&mut self, peer: crate::PeerId) {
        let (word, bit) = Self::place(peer.index());
        match word.checked_sub(1) {
            None => self.first &= !bit,
            Some(more) => {
                if let Some(bits) = self.more.get_mut(more) {
                    *bits &= !bit;
                }
            }
        }
        self.walk = self.before;
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        let (word, bit) = Self::place(index);
        let bits = match word.checked_sub(1) {
            None => self.first,
            Some(more) => self.more.get(more).copied().unwrap_or(0),
        };
        bits & bit != 0
    }

    pub(crate) fn insert(&mut self, index: usize) {
        let (word, bit) = Self::place(index);
        match word.checked_sub(1) {
            None => self.first |= bit,
            Some(more) => {
                if self.more.len() <= more {
                    self.more.resize(more + 1, 0);
                }
                if let Some(bits) = self.more.get_mut(more) {
                    *bits |= bit;
                }
            }
        }
    }

    /// Remembers where the walk stood, for [`Tried::forgive`].
    pub(crate) fn begin_pick(&mut self) {
        self.before = self.walk;
    }

    /// The last pick found all peers full: what becomes free may be of either tier and anywhere on the walk.
    pub(crate) fn begin_again(&mut self) {
        self.backup = false;
        self.walk = self.before;
    }

    fn place(index: usize) -> (usize, u64) {
        (index / 64, 1 << (index % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_beyond_the_first_word() {
        let mut tried = Tried::new();
        for index in [0, 63, 64, 200] {
            assert!(!tried.contains(index));
            tried.insert(index);
        }
        let all: Vec<usize> = (0..400).filter(|index| tried.contains(*index)).collect();
        assert_eq!(all, [0, 63, 64, 200]);
        tried.clear();
        assert!((0..400).all(|index| !tried.contains(index)));
    }
}
