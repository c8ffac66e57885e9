//! `split_clients`: a variable whose value depends on the hash of another value, so that the same clients always get the same
//! one, and each value as large a share of them as was asked for. The hash is nginx's, MurmurHash2 of 32 bits with seed 0
//! (A. Appleby), so that both put a client into the same part.

use kp_config::model::Split;

/// The value that this text gets; `None` where no part is left for it.
pub(crate) fn choose<'s>(split: &'s Split, text: &[u8]) -> Option<&'s str> {
    let hash = murmur_hash2(text);
    let part = split
        .parts
        .iter()
        .find(|part| part.below.is_none_or(|below| hash < below));
    part.map(|part| part.value.as_str())
}

fn murmur_hash2(text: &[u8]) -> u32 {
    const FACTOR: u32 = 0x5bd1_e995;
    let mut hash = text.len() as u32;
    let (words, rest) = text.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(FACTOR);
        word ^= word >> 24;
        hash = hash.wrapping_mul(FACTOR) ^ word.wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_config::model::{SplitPart, UserVar};
    use kp_config::template::Template;

    #[test]
    fn shares_are_as_large_as_asked_for() {
        let part = |below, value: &str| SplitPart {
            below,
            value: value.into(),
        };
        let quarter = u32::MAX / 4;
        let mut split = Split {
            variable: UserVar(0),
            source: Template::default(),
            parts: vec![part(Some(quarter), "a"), part(Some(2 * quarter), "b")],
        };
        let counts = |split: &Split| {
            let mut counts = [0; 3];
            for number in 0..40_000_u32 {
                match choose(split, number.to_string().as_bytes()) {
                    Some("a") => counts[0] += 1,
                    Some("b") => counts[1] += 1,
                    Some(_) => counts[2] += 1,
                    None => {}
                }
            }
            counts
        };
        let [a, b, c] = counts(&split);
        for count in [a, b] {
            assert!((9_500..10_500).contains(&count), "{count}");
        }
        assert_eq!(c, 0, "no part for the rest");
        split.parts.push(part(None, "c"));
        assert_eq!(counts(&split), [a, b, 40_000 - a - b]);
    }
}
