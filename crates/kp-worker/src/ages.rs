//! Who has waited longest: the order in which clients make room when all connections are in use.
//!
//! Three lists of slot numbers, each with the one that has waited longest in front. A slot is in one of them at most.
//! Whatever is done takes constant time, so it is done with every request.

const NONE: u32 = u32::MAX;

/// What a client does that can be broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Nothing is begun: it is kept for its next request.
    Idle,
    /// Its handshake or request head is not complete.
    Head,
    /// Its answer is out, it is let finish sending.
    Linger,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    list: Option<Waits>,
    previous: u32,
    next: u32,
    since_ms: u64,
}

const LOOSE: Link = Link {
    list: None,
    previous: NONE,
    next: NONE,
    since_ms: 0,
};

/// The lists.
#[derive(Debug)]
pub(crate) struct Ages {
    links: Vec<Link>,
    first: [u32; 3],
    last: [u32; 3],
}

impl Ages {
    pub(crate) fn new() -> Self {
        Self {
            links: Vec::new(),
            first: [NONE; 3],
            last: [NONE; 3],
        }
    }

    /// Puts a slot at the end of a list, out of the one it was in.
    pub(crate) fn join(&mut self, slot: u32, list: Waits, now_ms: u64) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, LOOSE);
        }
        self.leave(slot);
        let last = self.last[list as usize];
        if let Some(link) = self.links.get_mut(slot as usize) {
            *link = Link {
                list: Some(list),
                previous: last,
                next: NONE,
                since_ms: now_ms,
            };
        }
        match self.links.get_mut(last as usize) {
            Some(link) => link.next = slot,
            None => self.first[list as usize] = slot,
        }
        self.last[list as usize] = slot;
    }

    /// Takes a slot out of its list, if it is in one.
    pub(crate) fn leave(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize) else {
            return;
        };
        let Link {
            list: Some(list),
            previous,
            next,
            ..
        } = std::mem::replace(link, LOOSE)
        else {
            return;
        };
        match self.links.get_mut(previous as usize) {
            Some(link) => link.next = next,
            None => self.first[list as usize] = next,
        }
        match self.links.get_mut(next as usize) {
            Some(link) => link.previous = previous,
            None => self.last[list as usize] = previous,
        }
    }

    /// Those of a list that wait since then or longer, the longest first.
    pub(crate) fn since(&self, list: Waits, then_ms: u64) -> impl Iterator<Item = u32> + '_ {
        let mut slot = self.first[list as usize];
        std::iter::from_fn(move || {
            let link = self.links.get(slot as usize)?;
            let this = (link.since_ms <= then_ms).then_some(slot);
            slot = link.next;
            this
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ages: &Ages, list: Waits) -> Vec<u32> {
        ages.since(list, u64::MAX).collect()
    }

    #[test]
    fn the_longest_waiting_is_first() {
        let mut ages = Ages::new();
        for (slot, now_ms) in [(3, 10), (0, 20), (7, 30)] {
            ages.join(slot, Waits::Idle, now_ms);
        }
        ages.join(1, Waits::Head, 15);
        assert_eq!(all(&ages, Waits::Idle), [3, 0, 7]);
        assert_eq!(ages.since(Waits::Idle, 20).collect::<Vec<_>>(), [3, 0]);
        ages.join(3, Waits::Idle, 40);
        assert_eq!(all(&ages, Waits::Idle), [0, 7, 3]);
        ages.join(7, Waits::Linger, 50);
        assert_eq!(
            (all(&ages, Waits::Idle), all(&ages, Waits::Linger)),
            (vec![0, 3], vec![7])
        );
        assert_eq!(all(&ages, Waits::Head), [1]);
        for slot in [0, 3, 1, 7, 99] {
            ages.leave(slot);
            ages.leave(slot);
        }
        for list in [Waits::Idle, Waits::Head, Waits::Linger] {
            assert!(all(&ages, list).is_empty());
        }
    }

    #[test]
    fn it_agrees_with_plain_lists() {
        let mut ages = Ages::new();
        let mut plain: [Vec<u32>; 3] = Default::default();
        let mut seed = 99u64;
        for now_ms in 0..5000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let slot = (seed >> 40) as u32 % 40;
            plain
                .iter_mut()
                .for_each(|list| list.retain(|one| *one != slot));
            match (seed >> 33) % 4 {
                3 => ages.leave(slot),
                choice => {
                    let list = [Waits::Idle, Waits::Head, Waits::Linger][choice as usize];
                    ages.join(slot, list, now_ms);
                    plain[choice as usize].push(slot);
                }
            }
        }
        assert_eq!(all(&ages, Waits::Idle), plain[0]);
        assert_eq!(all(&ages, Waits::Head), plain[1]);
        assert_eq!(all(&ages, Waits::Linger), plain[2]);
    }
}
