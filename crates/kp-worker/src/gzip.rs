//! A member of a gzip file (RFC 1952), compressed as its text comes in, so that finishing it never takes long.

use flate2::{Compress, Compression, FlushCompress, Status};

/// The window of deflate, as large as it can be.
const WINDOW_BITS: u8 = 15;
/// Room that the compressor gets at a time.
const ROOM: usize = 16 * 1024;

/// Compresses one member after the other.
#[derive(Debug)]
pub(crate) struct Gzip {
    stream: Compress,
    member: Vec<u8>,
}

impl Gzip {
    /// `level`: 1 (fast) to 9 (small).
    pub(crate) fn new(level: u8) -> Self {
        Self {
            stream: Compress::new_gzip(Compression::new(u32::from(level)), WINDOW_BITS),
            member: Vec::new(),
        }
    }

    /// Takes text into the member.
    pub(crate) fn add(&mut self, text: &[u8]) {
        self.run(text, FlushCompress::None);
    }

    /// The bytes of the member with all that was added, which is then over.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.run(&[], FlushCompress::Finish);
        self.stream.reset();
        std::mem::take(&mut self.member)
    }

    fn run(&mut self, mut text: &[u8], flush: FlushCompress) {
        loop {
            self.member.reserve(ROOM);
            let before = self.stream.total_in();
            // The only error is one of use, after the end; `reset` follows each end.
            let status = self.stream.compress_vec(text, &mut self.member, flush);
            let taken = self.stream.total_in() - before;
            text = text.get(taken as usize..).unwrap_or_default();
            let goes_on = match (status, flush) {
                (Err(_) | Ok(Status::StreamEnd), _) => false,
                (Ok(_), FlushCompress::Finish) => true,
                (Ok(_), _) => !text.is_empty(),
            };
            if !goes_on {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn read(bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        flate2::read::MultiGzDecoder::new(bytes)
            .read_to_end(&mut text)
            .unwrap();
        text
    }

    proptest::proptest! {
        /// Members one behind the other are a gzip file of all that was added.
        #[test]
        fn members_make_a_file(
            members in proptest::collection::vec(proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..3000), 0..5), 1..5),
            level in 1..=9_u8,
        ) {
            let mut gzip = Gzip::new(level);
            let mut file = Vec::new();
            for member in &members {
                for text in member {
                    gzip.add(text);
                }
                file.extend(gzip.finish());
            }
            proptest::prop_assert_eq!(read(&file), members.concat().concat());
        }
    }

    #[test]
    fn text_that_does_not_compress_and_text_that_does() {
        let mut gzip = Gzip::new(1);
        let mut seed = 1_u32;
        let noise: Vec<u8> = (0..300_000)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            })
            .collect();
        gzip.add(&noise);
        let first = gzip.finish();
        gzip.add(&vec![b'a'; 300_000]);
        let second = gzip.finish();
        assert!(first.len() > 290_000 && second.len() < 5_000);
        assert_eq!(read(&first), noise);
        assert_eq!(read(&second), vec![b'a'; 300_000]);
    }
}
