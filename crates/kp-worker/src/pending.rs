//! Lines of one access log file that wait to be written: for the end of the loop turn, or with `buffer=`, `gzip` and `flush=`
//! for one another.
//!
//! As in nginx a buffer is written when the next line would not fit, when its first line has waited for `flush=`, when the
//! file is reopened, and when the worker ends.

use crate::gzip::Gzip;
use crate::losses::Losses;
use kp_config::model::LogBuffer;

/// Bytes of one turn above which they are written although the turn goes on.
const TURN_BYTES_MAX: usize = 64 * 1024;
/// What is compressed at a time: a fraction of a millisecond.
const COMPRESS_BYTES: usize = 16 * 1024;

/// What waits for a file.
#[derive(Debug)]
pub(crate) struct Pending {
    /// `None`: lines are written when the loop turn ends.
    buffer: Option<LogBuffer>,
    /// Text that was not compressed (yet).
    text: Vec<u8>,
    gzip: Option<Gzip>,
    /// What waits, before compression.
    bytes: usize,
    lines: u64,
    flush_at_ms: u64,
    pub(crate) losses: Losses,
}

impl Pending {
    pub(crate) fn new(buffer: Option<LogBuffer>) -> Self {
        Self {
            buffer,
            text: Vec::new(),
            gzip: None,
            bytes: 0,
            lines: 0,
            flush_at_ms: u64::MAX,
            losses: Losses::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// When it must be written.
    pub(crate) fn flush_at_ms(&self) -> u64 {
        self.flush_at_ms
    }

    /// Whether this line (without its end) fits.
    pub(crate) fn has_room(&self, line: &[u8]) -> bool {
        let most = self.buffer.map_or(TURN_BYTES_MAX, |buffer| buffer.bytes);
        self.bytes + line.len() < most
    }

    /// Takes a line and ends it.
    pub(crate) fn push(&mut self, line: &[u8], now_ms: u64) {
        if self.lines == 0 {
            self.flush_at_ms = match self.buffer {
                None => now_ms,
                Some(LogBuffer { flush: None, .. }) => u64::MAX,
                Some(LogBuffer {
                    flush: Some(wait), ..
                }) => now_ms.saturating_add(wait.as_millis() as u64),
            };
        }
        self.lines += 1;
        self.bytes += line.len() + 1;
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        if self.text.len() >= COMPRESS_BYTES {
            self.compress();
        }
        if self.bytes >= self.buffer.map_or(TURN_BYTES_MAX, |buffer| buffer.bytes) {
            // Full: it is written when the turn ends.
            self.flush_at_ms = now_ms;
        }
    }

    fn compress(&mut self) {
        let Some(level) = self.buffer.and_then(|buffer| buffer.gzip) else {
            return;
        };
        let gzip = self.gzip.get_or_insert_with(|| Gzip::new(level));
        gzip.add(&self.text);
        self.text.clear();
    }

    /// Writes everything with `write`, which says how many bytes were written; gives the number of lines that were lost.
    pub(crate) fn write_out(&mut self, write: impl FnOnce(&[u8]) -> usize) -> u64 {
        self.compress();
        let lost = match &mut self.gzip {
            Some(gzip) => {
                // A part of a member is nothing.
                let member = gzip.finish();
                let whole = write(&member) == member.len();
                if whole { 0 } else { self.lines }
            }
            None => {
                let written = write(&self.text);
                let rest = self.text.get(written..).unwrap_or_default();
                memchr::memchr_iter(b'\n', rest).count() as u64
            }
        };
        self.text.clear();
        self.bytes = 0;
        self.lines = 0;
        self.flush_at_ms = u64::MAX;
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::Duration;

    fn buffer(bytes: usize, flush_ms: Option<u64>, gzip: Option<u8>) -> Option<LogBuffer> {
        let flush = flush_ms.map(Duration::from_millis);
        Some(LogBuffer { bytes, flush, gzip })
    }

    #[test]
    fn a_buffer_waits_for_its_time_or_until_it_is_full() {
        let mut pending = Pending::new(buffer(10, Some(500), None));
        assert!(pending.is_empty());
        pending.push(b"abc", 100);
        assert_eq!(pending.flush_at_ms(), 600);
        assert!(pending.has_room(b"12345") && !pending.has_room(b"123456"));
        pending.push(b"12345", 200);
        assert_eq!(pending.flush_at_ms(), 200, "full");
        let mut written = Vec::new();
        let lost = pending.write_out(|bytes| {
            written.extend_from_slice(bytes);
            bytes.len()
        });
        assert_eq!((lost, written.as_slice()), (0, b"abc\n12345\n".as_slice()));
        assert!(pending.is_empty() && pending.flush_at_ms() == u64::MAX);
        assert_eq!(Pending::new(None).flush_at_ms(), u64::MAX);
        let mut plain = Pending::new(None);
        plain.push(b"x", 7);
        assert_eq!(plain.flush_at_ms(), 7);
        let mut patient = Pending::new(buffer(10, None, None));
        patient.push(b"x", 7);
        assert_eq!(patient.flush_at_ms(), u64::MAX);
    }

    #[test]
    fn lost_lines_are_counted() {
        let mut pending = Pending::new(None);
        for line in ["one", "two", "three"] {
            pending.push(line.as_bytes(), 0);
        }
        assert_eq!(pending.write_out(|_| 5), 2, "of \"two\" half was written");
        let mut pending = Pending::new(buffer(1000, None, Some(1)));
        for line in ["one", "two", "three"] {
            pending.push(line.as_bytes(), 0);
        }
        assert_eq!(pending.write_out(|bytes| bytes.len() - 1), 3);
        pending.push(b"four", 0);
        assert_eq!(pending.write_out(<[u8]>::len), 0);
    }

    #[test]
    fn what_is_compressed_on_the_way_is_one_member() {
        let mut pending = Pending::new(buffer(1 << 20, None, Some(6)));
        let lines: Vec<String> = (0..20_000).map(|number| format!("line {number}")).collect();
        for line in &lines {
            pending.push(line.as_bytes(), 0);
            assert!(pending.text.len() < COMPRESS_BYTES);
        }
        let mut file = Vec::new();
        pending.write_out(|bytes| {
            file.extend_from_slice(bytes);
            bytes.len()
        });
        let mut text = String::new();
        flate2::read::GzDecoder::new(file.as_slice())
            .read_to_string(&mut text)
            .unwrap();
        assert!(text.lines().eq(lines.iter().map(String::as_str)));
    }
}
