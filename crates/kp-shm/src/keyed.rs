//! A keyed hash for what clients choose (SipHash-1-3): who does not know the secret of the region cannot aim at a bucket.

/// The key of one region, drawn when it is mapped.
#[derive(Clone, Copy)]
pub(crate) struct Secret {
    first: u64,
    second: u64,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    pub(crate) fn new(first: u64, second: u64) -> Self {
        Self { first, second }
    }

    pub(crate) fn hash(self, bytes: &[u8]) -> u64 {
        let mut state = [
            self.first ^ 0x736f_6d65_7073_6575,
            self.second ^ 0x646f_7261_6e64_6f6d,
            self.first ^ 0x6c79_6765_6e65_7261,
            self.second ^ 0x7465_6462_7974_6573,
        ];
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let word = word
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            absorb(&mut state, word);
        }
        let rest = words
            .remainder()
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        absorb(&mut state, (bytes.len() as u64) << 56 | rest);
        state[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut state);
        }
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher as _;

    /// The standard library's hasher is the same function with a key of zeros.
    #[test]
    fn it_is_siphash_1_3() {
        for length in 0..40u8 {
            let bytes: Vec<u8> = (0..length).collect();
            let mut standard = std::collections::hash_map::DefaultHasher::new();
            standard.write(&bytes);
            assert_eq!(
                Secret::new(0, 0).hash(&bytes),
                standard.finish(),
                "{length}"
            );
        }
        assert_ne!(Secret::new(0, 0).hash(b"x"), Secret::new(0, 1).hash(b"x"));
    }
}
