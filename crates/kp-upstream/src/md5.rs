//! MD5 (RFC 1321), only to name peers in session cookies as nginx does: sessions outlive the move from one to the other.
//! Nothing here is secret, and nothing relies on its strength.

use std::sync::LazyLock;

/// RFC 1321 §3.4: the integer part of 4294967296 times abs(sin(i)). A group has thousands of peers to name at once.
static SINES: LazyLock<[u32; 64]> = LazyLock::new(|| {
    std::array::from_fn(|step| ((step as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32)
});

/// Rotations of the four rounds, RFC 1321 §3.4.
const SHIFTS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

/// The digest of a short text as 32 lower case digits.
pub(crate) fn hexadecimal(text: &[u8]) -> String {
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut padded = text.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(text.len() as u64 * 8).to_le_bytes());
    for block in padded.chunks_exact(64) {
        mix(&mut state, block);
    }
    let bytes = state.iter().flat_map(|word| word.to_le_bytes());
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    bytes
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn mix(state: &mut [u32; 4], block: &[u8]) {
    let word = |index: usize| {
        let bytes = block.get(index * 4..index * 4 + 4).unwrap_or_default();
        u32::from_le_bytes(bytes.try_into().unwrap_or_default())
    };
    let [mut a, mut b, mut c, mut d] = *state;
    for (step, sine) in SINES.iter().enumerate() {
        let (mixed, index) = match step / 16 {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), (7 * step) % 16),
        };
        let sum = a
            .wrapping_add(mixed)
            .wrapping_add(*sine)
            .wrapping_add(word(index));
        let turned = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
        (a, d, c, b) = (d, c, b, turned);
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::hexadecimal;

    /// RFC 1321 §A.5, and an address as nginx 1.31 names it in its cookies.
    #[test]
    fn known_digests() {
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
            ("127.0.0.1:18998", "10a170c936f4ac874b8847cba8a9c59c"),
        ] {
            assert_eq!(hexadecimal(text.as_bytes()), digest, "{text}");
        }
    }
}
