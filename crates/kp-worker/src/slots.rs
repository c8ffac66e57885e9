//! A slab whose keys carry a generation. It grows in chunks, so that growing never copies what is there.

use crate::token::{GENERATION_MASK, Key};

/// Entries per chunk: at 128 bytes a chunk is 128 KiB, small against what 1024 connections cost the kernel.
const CHUNK: usize = 1024;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    /// Next free slot while `value` is empty.
    next_free: u32,
    value: Option<T>,
}

/// Values with stable, generation-checked keys.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    chunks: Vec<Vec<Slot<T>>>,
    first_free: u32,
    len: usize,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            first_free: NONE,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if self.first_free != NONE {
            let index = self.first_free;
            let slot = &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK];
            self.first_free = slot.next_free;
            slot.value = Some(value);
            return Key {
                index,
                generation: slot.generation,
            };
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let index =
            ((self.chunks.len() - 1) * CHUNK + self.chunks.last().map_or(0, Vec::len)) as u32;
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(Slot {
                generation: 0,
                next_free: NONE,
                value: Some(value),
            });
        }
        Key {
            index,
            generation: 0,
        }
    }

    pub(crate) fn at(&mut self, key: Key) -> Option<&mut T> {
        self.slot_mut(key)?.value.as_mut()
    }

    pub(crate) fn peek(&self, key: Key) -> Option<&T> {
        let slot = self
            .chunks
            .get(key.index as usize / CHUNK)?
            .get(key.index as usize % CHUNK)?;
        if slot.generation == key.generation {
            slot.value.as_ref()
        } else {
            None
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let first_free = self.first_free;
        let slot = self.slot_mut(key)?;
        let value = slot.value.take();
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.next_free = first_free;
        self.first_free = key.index;
        self.len -= 1;
        value
    }

    /// The key of what is in a slot.
    pub(crate) fn key_at(&self, index: usize) -> Option<Key> {
        let slot = self.chunks.get(index / CHUNK)?.get(index % CHUNK)?;
        slot.value.as_ref().map(|_| Key {
            index: index as u32,
            generation: slot.generation,
        })
    }

    /// Takes a value out while its slot stays taken, so that it can be used beside everything else.
    pub(crate) fn lend(&mut self, key: Key) -> Option<T> {
        self.slot_mut(key)?.value.take()
    }

    /// Puts a lent value back; `false`, and the value is gone, if its slot was freed meanwhile.
    pub(crate) fn restore(&mut self, key: Key, value: T) -> bool {
        match self.slot_mut(key) {
            Some(slot) => {
                slot.value = Some(value);
                true
            }
            None => false,
        }
    }

    /// The slot of a key that is not stale.
    fn slot_mut(&mut self, key: Key) -> Option<&mut Slot<T>> {
        self.chunks
            .get_mut(key.index as usize / CHUNK)?
            .get_mut(key.index as usize % CHUNK)
            .filter(|slot| slot.generation == key.generation)
    }

    /// Everything in it that is not lent.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let slots = self.chunks.iter().flatten().zip(0..);
        slots.filter_map(|(slot, index)| {
            let generation = slot.generation;
            Some((Key { index, generation }, slot.value.as_ref()?))
        })
    }

    /// Keys of everything in it, for sweeps such as a drain.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::with_capacity(self.len);
        for (c, chunk) in self.chunks.iter().enumerate() {
            for (i, slot) in chunk.iter().enumerate() {
                if slot.value.is_some() {
                    keys.push(Key {
                        index: (c * CHUNK + i) as u32,
                        generation: slot.generation,
                    });
                }
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_reaches_nothing() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!(second.index, first.index);
        assert_eq!(slots.at(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.at(second), Some(&mut 'b'));
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn a_lent_value_keeps_its_slot() {
        let mut slots = Slots::new();
        let key = slots.insert('a');
        let value = slots.lend(key).expect("it is there");
        assert_eq!(slots.at(key), None);
        assert_eq!(slots.lend(key), None);
        assert_ne!(slots.insert('b'), key, "the slot is not free");
        assert!(slots.restore(key, value));
        assert_eq!(slots.peek(key), Some(&'a'));
        let value = slots.lend(key).expect("it is there");
        assert_eq!(slots.remove(key), None);
        assert!(!slots.restore(key, value), "its slot was freed meanwhile");
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn growth_keeps_keys_valid() {
        let mut slots = Slots::new();
        let keys: Vec<Key> = (0..3 * CHUNK).map(|n| slots.insert(n)).collect();
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(slots.peek(*key), Some(&n));
        }
        assert_eq!(slots.keys(), keys);
        slots.remove(keys[CHUNK]);
        slots.lend(keys[7]);
        let rest = keys
            .iter()
            .zip(0..)
            .filter(|(_, n)| ![7, CHUNK].contains(n));
        assert!(
            slots
                .iter()
                .map(|(key, n)| (key, *n))
                .eq(rest.map(|(key, n)| (*key, n)))
        );
    }
}
