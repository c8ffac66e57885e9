//! The labels of series as text in shared memory, so that who reads them needs no configuration.
//!
//! Every user of a row writes the same text, since the row was found by it; a reader takes it only if the row was of one
//! identity before and after. Texts are bounded: what is longer ends in a hash of the whole.

use crate::peers::Key;
use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};

/// The longest text of a label, in bytes: longer than a name of DNS or the path of a socket can be, but for odd ones.
pub(crate) const LABEL_MAX: usize = 240;
/// Words of one row: lengths and tag, then the bytes of at most two labels.
pub(crate) const WORDS: usize = 64;
const LABELS_MAX: usize = 2;
const _: () = assert!(LABELS_MAX * LABEL_MAX <= (WORDS - 1) * 8);

/// A label that fits.
pub(crate) fn bounded(label: &str) -> String {
    if label.len() <= LABEL_MAX {
        return label.to_owned();
    }
    let hash = Key::of(&[label.as_bytes()]).folded();
    let mut end = LABEL_MAX - 17;
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{hash:016x}", label.get(..end).unwrap_or_default())
}

/// Writes labels that fit; `tag` names the identity of the row.
pub(crate) fn write(words: &[AtomicU64], labels: &[String], tag: u32) {
    let Some((header, words)) = words.split_first() else {
        return;
    };
    let mut bytes = labels.iter().flat_map(|label| label.bytes());
    // The row carries its key already; a reader that sees a word of this text sees that, too.
    fence(Release);
    let all: usize = labels.iter().map(String::len).sum();
    for word in words.iter().take(all.div_ceil(8)) {
        let mut eight = [0; 8];
        for (to, from) in eight.iter_mut().zip(&mut bytes) {
            *to = from;
        }
        word.store(u64::from_le_bytes(eight), Relaxed);
    }
    let length = |at: usize| labels.get(at).map_or(0, |label| label.len() as u64);
    header.store(u64::from(tag) << 32 | length(1) << 16 | length(0), Release);
}

/// The labels of the row of this tag; `None` if they are not there. The caller looks at the row's identity afterwards.
pub(crate) fn read(words: &[AtomicU64], count: usize, tag: u32) -> Option<Vec<String>> {
    let (header, words) = words.split_first()?;
    let header = header.load(Acquire);
    if (header >> 32) as u32 != tag {
        return None;
    }
    let lengths = [header & 0xffff, header >> 16 & 0xffff].map(|length| length as usize);
    let all = lengths.iter().sum::<usize>().div_ceil(8);
    let bytes: Vec<u8> = words
        .get(..all)?
        .iter()
        .flat_map(|word| word.load(Relaxed).to_le_bytes())
        .collect();
    fence(Acquire);
    let mut rest = bytes.as_slice();
    let mut labels = Vec::with_capacity(count);
    for length in lengths.into_iter().take(count) {
        let (label, behind) = rest.split_at_checked(length)?;
        labels.push(String::from_utf8(label.to_vec()).ok()?);
        rest = behind;
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_only_by_its_tag() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        for [first, second] in [
            ["", ""],
            ["a", ""],
            ["", "b"],
            ["12345678", "ü"],
            ["x", "12345678"],
        ] {
            let labels = [first.to_owned(), second.to_owned()];
            write(&words, &labels, 7);
            assert_eq!(read(&words, 2, 7).as_deref(), Some(&labels[..]));
            assert_eq!(read(&words, 2, 8), None);
        }
        let long = ["é".repeat(120), "z".repeat(LABEL_MAX)];
        write(&words, &long, 9);
        assert_eq!(read(&words, 2, 9).as_deref(), Some(&long[..]));
    }

    #[test]
    fn long_labels_are_cut_and_stay_apart() {
        let (one, two) = ("é".repeat(200) + "1", "é".repeat(200) + "2");
        let (cut_one, cut_two) = (bounded(&one), bounded(&two));
        assert!(cut_one.len() <= LABEL_MAX && cut_one.starts_with("éé"));
        assert_ne!(cut_one, cut_two);
        assert_eq!(bounded("short"), "short");
    }
}
