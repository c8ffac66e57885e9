//! What transfers are made of: bytes that tell where they stand and whose they are, and the draws of a seeded run.

use std::sync::OnceLock;

/// Bytes are made and compared in pieces of this size.
pub(crate) const PIECE: usize = 64 * 1024;

const POOL: usize = 1024 * 1024;

/// The content number `id`, at any offset: pieces out of one random pool, from places that depend on the number and on
/// the piece. A byte that is missing, doubled, or of another transfer makes the rest differ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content(pub(crate) u64);

impl Content {
    /// The bytes from `offset` up to the end of its piece, at most `limit`.
    pub(crate) fn piece(self, offset: u64, limit: usize) -> &'static [u8] {
        let number = offset / PIECE as u64;
        let within = usize::try_from(offset % PIECE as u64).expect("less than a piece");
        let mut draws = Draws::new(self.0 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let start =
            usize::try_from(draws.below((POOL - PIECE) as u64)).expect("less than the pool");
        let length = (PIECE - within).min(limit);
        &pool()[start + within..start + within + length]
    }

    /// The first `length` bytes.
    pub(crate) fn whole(self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            bytes.extend_from_slice(self.piece(bytes.len() as u64, length - bytes.len()));
        }
        bytes
    }

    /// Where `bytes`, which stand at `offset`, differ from the content.
    pub(crate) fn differs(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut at = 0;
        while at < bytes.len() {
            let expected = self.piece(offset + at as u64, bytes.len() - at);
            let found = &bytes[at..at + expected.len()];
            if found != expected {
                let same = found
                    .iter()
                    .zip(expected)
                    .take_while(|(one, other)| one == other);
                return Some(offset + (at + same.count()) as u64);
            }
            at += expected.len();
        }
        None
    }
}

fn pool() -> &'static [u8] {
    static POOL_BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    POOL_BYTES.get_or_init(|| {
        let mut draws = Draws::new(1);
        (0..POOL / 8)
            .flat_map(|_| draws.next().to_le_bytes())
            .collect()
    })
}

/// A seeded sequence of numbers (splitmix64).
#[derive(Debug, Clone)]
pub struct Draws(u64);

impl Draws {
    /// The same sequence in every run of a test, unless `KP_SEED` asks for another; the runner shows the seed where the
    /// test fails.
    pub fn repeatable(seed: u64) -> Self {
        let asked = std::env::var("KP_SEED").ok();
        let seed = asked.map_or(seed, |asked| asked.parse().expect("KP_SEED is a number"));
        eprintln!("KP_SEED={seed}");
        Self::new(seed)
    }

    /// The sequence of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(from.len() as u64)).expect("an index");
        &from[index]
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_however_it_is_cut() {
        let whole = Content(7).whole(3 * PIECE + 17);
        assert_eq!(Content(7).differs(0, &whole), None);
        assert_eq!(
            Content(7).differs(PIECE as u64 - 3, &whole[PIECE - 3..]),
            None
        );
        assert_eq!(Content(7).differs(1, &whole), Some(1));
        assert_ne!(whole, Content(8).whole(3 * PIECE + 17));
        let mut wrong = whole.clone();
        wrong[2 * PIECE + 5] ^= 1;
        assert_eq!(Content(7).differs(0, &wrong), Some(2 * PIECE as u64 + 5));
        wrong.copy_from_slice(&whole);
        wrong.remove(100);
        assert!(Content(7).differs(0, &wrong).is_some_and(|at| at >= 100));
    }
}
