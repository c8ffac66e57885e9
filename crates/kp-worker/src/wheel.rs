//! Timers: one hashed wheel of intrusive lists.
//!
//! Every connection owns one timer for its whole life. Moving a deadline later, or taking it away, only writes the entry;
//! when its wheel slot comes round the entry is looked at and, if it is not due, linked again where it belongs. Moving a
//! deadline earlier relinks at once. Freeing unlinks at once, so short-lived connections leave nothing behind.

/// Slots of the wheel; with [`TICK_MS`] one turn is about a minute, nginx's usual timeout.
const SLOTS: usize = 4096;
/// Milliseconds per slot.
const TICK_MS: u64 = 16;
const _: () = assert!(SLOTS / 64 == 64, "a word has a bit for each word");
const NONE: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;

/// A timer's name inside the wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerId(u32);

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Whom to tell.
    token: u64,
    /// When, in monotonic ms; `NEVER`: not armed.
    deadline_ms: u64,
    /// Wheel slot it is linked in, or `NONE`.
    slot: u32,
    previous: u32,
    next: u32,
    /// The tick at which the slot it is linked in comes round for it.
    linked_tick: u64,
}

/// The wheel.
#[derive(Debug)]
pub(crate) struct Wheel {
    entries: Vec<Entry>,
    free: Vec<u32>,
    heads: Vec<u32>,
    /// One bit per slot that has entries.
    occupied: [u64; SLOTS / 64],
    /// One bit per word of those that is not zero: the next slot is asked for in every turn of the loop.
    words: u64,
    /// Every slot up to and including this tick has been looked at.
    tick: u64,
    /// Of the slot that is being looked at: deadline and token.
    expired: Vec<(u64, u64)>,
}

impl Wheel {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            heads: vec![NONE; SLOTS],
            occupied: [0; SLOTS / 64],
            words: 0,
            tick: now_ms / TICK_MS,
            expired: Vec::new(),
        }
    }

    /// Makes an unarmed timer that will name `token`.
    pub(crate) fn create(&mut self, token: u64) -> TimerId {
        let entry = Entry {
            token,
            deadline_ms: NEVER,
            slot: NONE,
            previous: NONE,
            next: NONE,
            linked_tick: 0,
        };
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                TimerId(index)
            }
            None => {
                self.entries.push(entry);
                TimerId(self.entries.len() as u32 - 1)
            }
        }
    }

    /// Gives a timer the token it will name, once its owner has one.
    pub(crate) fn name(&mut self, id: TimerId, token: u64) {
        self.entries[id.0 as usize].token = token;
    }

    /// Arms or moves a timer to `deadline_ms`; it fires at most one tick late and never early.
    pub(crate) fn arm(&mut self, id: TimerId, deadline_ms: u64) {
        let entry = &mut self.entries[id.0 as usize];
        entry.deadline_ms = deadline_ms;
        let due_tick = deadline_ms.div_ceil(TICK_MS).max(self.tick + 1);
        if entry.slot == NONE || due_tick < entry.linked_tick {
            self.unlink(id.0);
            self.link(id.0, due_tick);
        }
    }

    /// When it fires; `u64::MAX`: never.
    #[cfg(debug_assertions)]
    pub(crate) fn deadline_ms(&self, id: TimerId) -> u64 {
        self.entries[id.0 as usize].deadline_ms
    }

    /// Takes the deadline away.
    pub(crate) fn disarm(&mut self, id: TimerId) {
        self.entries[id.0 as usize].deadline_ms = NEVER;
    }

    /// Ends a timer.
    pub(crate) fn free(&mut self, id: TimerId) {
        self.unlink(id.0);
        self.entries[id.0 as usize].deadline_ms = NEVER;
        self.free.push(id.0);
    }

    /// Collects the tokens of timers due at `now_ms`, in the order of their deadlines; each is disarmed.
    pub(crate) fn expire(&mut self, now_ms: u64, due: &mut Vec<u64>) {
        let target = now_ms / TICK_MS;
        // After a long stop each slot needs to be looked at once, not once per missed turn.
        let first = (self.tick + 1).max(target.saturating_sub(SLOTS as u64 - 1));
        for tick in first..=target {
            let slot = tick as usize % SLOTS;
            if self.occupied[slot / 64] & (1 << (slot % 64)) == 0 {
                continue;
            }
            self.tick = tick;
            self.expire_slot(slot, now_ms, due);
        }
        self.tick = self.tick.max(target);
    }

    fn expire_slot(&mut self, slot: usize, now_ms: u64, due: &mut Vec<u64>) {
        let mut index = self.heads[slot];
        while index != NONE {
            let Entry {
                token,
                deadline_ms,
                next,
                ..
            } = self.entries[index as usize];
            if deadline_ms <= now_ms {
                self.unlink(index);
                self.entries[index as usize].deadline_ms = NEVER;
                self.expired.push((deadline_ms, token));
            } else if deadline_ms == NEVER {
                self.unlink(index);
            } else {
                let due_tick = deadline_ms.div_ceil(TICK_MS).max(self.tick + 1);
                if due_tick as usize % SLOTS == slot {
                    self.entries[index as usize].linked_tick = due_tick;
                } else {
                    self.unlink(index);
                    self.link(index, due_tick);
                }
            }
            index = next;
        }
        // A slot has its latest in front.
        self.expired.reverse();
        self.expired.sort_by_key(|(deadline_ms, _)| *deadline_ms);
        due.extend(self.expired.drain(..).map(|(_, token)| token));
    }

    /// Milliseconds until the next slot with entries comes round, at most one turn; `None`: no timer is linked.
    pub(crate) fn next_wait_ms(&self, now_ms: u64) -> Option<u64> {
        let start = self.tick + 1;
        let slot = start as usize % SLOTS;
        let (first, bit) = (slot / 64, slot % 64);
        let here = self.occupied[first] >> bit;
        let distance = if here != 0 {
            here.trailing_zeros() as usize
        } else {
            // From the word behind it once around, back to the bits of this one that come last.
            let behind = self.words.rotate_right((first as u32 + 1) % 64);
            if behind == 0 {
                return None;
            }
            let words = behind.trailing_zeros() as usize;
            let word = self.occupied[(first + 1 + words) % 64];
            64 - bit + words * 64 + word.trailing_zeros() as usize
        };
        Some(((start + distance as u64) * TICK_MS).saturating_sub(now_ms))
    }

    fn link(&mut self, index: u32, tick: u64) {
        let slot = tick as usize % SLOTS;
        let head = self.heads[slot];
        let entry = &mut self.entries[index as usize];
        (entry.slot, entry.previous, entry.next, entry.linked_tick) =
            (slot as u32, NONE, head, tick);
        if head != NONE {
            self.entries[head as usize].previous = index;
        }
        self.heads[slot] = index;
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.words |= 1 << (slot / 64);
    }

    fn unlink(&mut self, index: u32) {
        let Entry {
            slot,
            previous,
            next,
            ..
        } = self.entries[index as usize];
        if slot == NONE {
            return;
        }
        if previous == NONE {
            self.heads[slot as usize] = next;
        } else {
            self.entries[previous as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if self.heads[slot as usize] == NONE {
            let word = &mut self.occupied[slot as usize / 64];
            *word &= !(1 << (slot % 64));
            if *word == 0 {
                self.words &= !(1 << (slot / 64));
            }
        }
        self.entries[index as usize].slot = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(wheel: &mut Wheel, now_ms: u64) -> Vec<u64> {
        let mut out = Vec::new();
        wheel.expire(now_ms, &mut out);
        out
    }

    #[test]
    fn fires_once_and_never_early() {
        let mut wheel = Wheel::new(1000);
        let id = wheel.create(7);
        wheel.arm(id, 1100);
        assert_eq!(due(&mut wheel, 1099), [0_u64; 0]);
        assert_eq!(due(&mut wheel, 1100 + TICK_MS), [7]);
        assert_eq!(due(&mut wheel, 5000), [0_u64; 0]);
    }

    #[test]
    fn a_deadline_moved_later_fires_at_its_new_time_only() {
        let mut wheel = Wheel::new(0);
        let id = wheel.create(1);
        wheel.arm(id, 100);
        wheel.arm(id, 300_000);
        assert_eq!(due(&mut wheel, 200), [0_u64; 0]);
        assert_eq!(due(&mut wheel, 299_999), [0_u64; 0]);
        assert_eq!(due(&mut wheel, 300_000 + TICK_MS), [1]);
    }

    #[test]
    fn a_deadline_moved_earlier_fires_at_its_new_time() {
        let mut wheel = Wheel::new(0);
        let id = wheel.create(1);
        wheel.arm(id, 60_000);
        wheel.arm(id, 50);
        assert_eq!(due(&mut wheel, 50 + TICK_MS), [1]);
    }

    #[test]
    fn disarmed_and_freed_timers_stay_silent() {
        let mut wheel = Wheel::new(0);
        let (a, b) = (wheel.create(1), wheel.create(2));
        wheel.arm(a, 40);
        wheel.arm(b, 40);
        wheel.disarm(a);
        wheel.free(b);
        assert_eq!(due(&mut wheel, 1000), [0_u64; 0]);
        assert_eq!(wheel.next_wait_ms(1000), None);
    }

    #[test]
    fn whoever_is_due_first_is_told_first() {
        let mut wheel = Wheel::new(0);
        for (token, deadline_ms) in [(1, 1001), (2, 1001), (3, 1000), (4, 1002), (5, 1001)] {
            let id = wheel.create(token);
            wheel.arm(id, deadline_ms);
        }
        assert_eq!(due(&mut wheel, 1100), [3, 1, 2, 5, 4]);
    }

    #[test]
    fn the_wait_never_passes_a_deadline() {
        let mut wheel = Wheel::new(0);
        let id = wheel.create(9);
        for deadline_ms in [1, 15, 16, 17, 1000, 65_535, 65_536, 65_537, 1_000_000] {
            wheel.arm(id, wheel.tick * TICK_MS + deadline_ms);
            let deadline = wheel.tick * TICK_MS + deadline_ms;
            let mut now = wheel.tick * TICK_MS;
            let mut fired = Vec::new();
            let mut turns = 0;
            while fired.is_empty() {
                now += wheel.next_wait_ms(now).map_or(1, |wait| wait.max(1));
                wheel.expire(now, &mut fired);
                turns += 1;
                assert!(turns < 40, "the wheel turns without firing");
            }
            assert!(
                now >= deadline && now <= deadline + 2 * TICK_MS,
                "due {deadline}, fired {now}"
            );
        }
    }

    /// Slot by slot, wherever the wheel stands.
    #[test]
    fn the_next_slot_is_the_nearest_one() {
        for tick in [0, 1, 62, 63, 64, 65, 4000, 4094, 4095, 4096, 9999] {
            for distances in [
                vec![],
                vec![1],
                vec![63, 64],
                vec![64, 4096],
                vec![4033],
                vec![4095, 4000],
                vec![4096],
            ] {
                let mut wheel = Wheel::new(tick * TICK_MS);
                for distance in &distances {
                    let id = wheel.create(*distance);
                    wheel.arm(id, (tick + distance) * TICK_MS);
                }
                let nearest = distances.iter().min().map(|distance| distance * TICK_MS);
                assert_eq!(
                    wheel.next_wait_ms(tick * TICK_MS),
                    nearest,
                    "{tick} {distances:?}"
                );
                let id = wheel.create(0);
                wheel.arm(id, (tick + 2) * TICK_MS);
                wheel.free(id);
                assert_eq!(
                    wheel.next_wait_ms(tick * TICK_MS),
                    nearest,
                    "{tick} {distances:?}"
                );
            }
        }
    }

    #[test]
    fn agrees_with_a_sorted_list() {
        let mut wheel = Wheel::new(0);
        let ids: Vec<TimerId> = (0..500).map(|n| wheel.create(n)).collect();
        let mut deadlines = vec![0u64; 500];
        let mut seed = 12345u64;
        for (n, id) in ids.iter().enumerate() {
            for _ in 0..3 {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                deadlines[n] = 1 + (seed >> 33) % 200_000;
                wheel.arm(*id, deadlines[n]);
            }
        }
        let mut seen = vec![0u64; 500];
        for now in (0..210_000).step_by(16) {
            for token in due(&mut wheel, now) {
                assert_eq!(seen[token as usize], 0, "fired twice");
                seen[token as usize] = now;
            }
        }
        for n in 0..500 {
            assert!(seen[n] >= deadlines[n] && seen[n] < deadlines[n] + 2 * TICK_MS);
        }
    }
}
