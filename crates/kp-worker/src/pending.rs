//! Lines of one access log file that wait to be written: for the end of the loop turn, or with `buffer=`, `gzip` and `flush=`
//! for one another.
//!
//! As in nginx a buffer is written when the next line would not fit, when its first line has waited for `flush=`, when the
//! file is reopened, and when the worker ends.
//!
//! Behind a pipe or a terminal may be a reader who does not read. What it does not take is held here, as much as a buffer is
//! large, and offered again; lines for which there is no room then are lost.

use crate::gzip::Gzip;
use crate::line_outlet::Taken;
use crate::losses::Losses;
use kp_config::model::LogBuffer;

/// Bytes of one turn above which they are written although the turn goes on.
const TURN_BYTES_MAX: usize = 64 * 1024;
/// What is compressed at a time: a fraction of a millisecond.
const COMPRESS_BYTES: usize = 16 * 1024;
/// When a reader that has no room is asked again.
const AGAIN_MS: u64 = 50;

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
    held: Held,
    pub(crate) losses: Losses,
}

/// What the reader had no room for.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    /// The lines of a compressed member, a part of which is nothing; 0 for text.
    member_lines: u64,
}

impl Held {
    /// How many lines are lost with what is left.
    fn lines(&self) -> u64 {
        lines_of(&self.bytes, self.member_lines)
    }
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
            held: Held::default(),
            losses: Losses::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines == 0 && !self.is_held_up()
    }

    /// Whether members of gzip are written, not lines.
    pub(crate) fn is_compressed(&self) -> bool {
        self.buffer.is_some_and(|buffer| buffer.gzip.is_some())
    }

    /// Whether the reader has no room.
    pub(crate) fn is_held_up(&self) -> bool {
        !self.held.bytes.is_empty()
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
            let due_ms = match self.buffer {
                None => now_ms,
                Some(LogBuffer { flush: None, .. }) => u64::MAX,
                Some(LogBuffer {
                    flush: Some(wait), ..
                }) => now_ms.saturating_add(wait.as_millis() as u64),
            };
            self.flush_at_ms = self.flush_at_ms.min(due_ms);
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

    /// Writes everything with `write`, or as much as there is room for now; gives the number of lines that were lost.
    pub(crate) fn write_out(&mut self, now_ms: u64, mut write: impl FnMut(&[u8]) -> Taken) -> u64 {
        let mut lost = 0;
        if self.is_held_up() {
            let taken = write(&self.held.bytes);
            self.held.bytes.drain(..taken.bytes);
            if taken.later {
                self.flush_at_ms = now_ms.saturating_add(AGAIN_MS);
                return 0;
            }
            lost += self.held.lines();
            self.held.bytes.clear();
        }
        if self.lines > 0 {
            self.compress();
        }
        let member = self.gzip.as_mut().filter(|_| self.lines > 0);
        let member_lines = member.as_ref().map_or(0, |_| self.lines);
        let mut bytes = match member {
            Some(gzip) => gzip.finish(),
            None => std::mem::take(&mut self.text),
        };
        let taken = write(&bytes);
        self.flush_at_ms = u64::MAX;
        if taken.later {
            self.flush_at_ms = now_ms.saturating_add(AGAIN_MS);
            bytes.drain(..taken.bytes);
            self.held = Held {
                bytes,
                member_lines,
            };
        } else {
            let rest = bytes.get(taken.bytes..).unwrap_or_default();
            lost += lines_of(rest, member_lines);
            if member_lines == 0 {
                // Its room is used again.
                self.text = bytes;
            }
        }
        self.text.clear();
        self.bytes = 0;
        self.lines = 0;
        lost
    }

    /// Gives up what is held; gives the number of lines that are lost.
    pub(crate) fn give_up(&mut self) -> u64 {
        let lost = self.held.lines() + self.lines;
        self.held.bytes.clear();
        lost
    }
}

/// How many lines end in what is left of some text, or belong to what is left of a member.
fn lines_of(rest: &[u8], member_lines: u64) -> u64 {
    match (rest.is_empty(), member_lines) {
        (true, _) => 0,
        (false, 0) => memchr::memchr_iter(b'\n', rest).count() as u64,
        (false, lines) => lines,
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
        let lost = pending.write_out(0, |bytes| {
            written.extend_from_slice(bytes);
            taken(bytes.len())
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

    fn taken(bytes: usize) -> Taken {
        Taken {
            bytes,
            later: false,
        }
    }

    fn full_after(bytes: usize) -> Taken {
        Taken { bytes, later: true }
    }

    /// A reader without room costs no line that fits, and bounded memory.
    #[test]
    fn what_the_reader_has_no_room_for_is_offered_again() {
        for gzip in [None, Some(1)] {
            let mut pending = Pending::new(buffer(100, None, gzip));
            pending.push(b"one", 0);
            let mut seen = Vec::new();
            let mut some = |bytes: &[u8], count: usize| {
                seen.extend_from_slice(&bytes[..count]);
                full_after(count)
            };
            assert_eq!(pending.write_out(10, |bytes| some(bytes, 2)), 0);
            assert!(pending.is_held_up() && !pending.is_empty());
            assert_eq!(pending.flush_at_ms(), 10 + AGAIN_MS);
            pending.push(b"two", 20);
            assert_eq!(pending.flush_at_ms(), 10 + AGAIN_MS);
            assert_eq!(pending.write_out(60, |bytes| some(bytes, 0)), 0);
            assert_eq!(pending.write_out(60, |bytes| some(bytes, 1)), 0);
            assert!(!pending.has_room(&[b'x'; 96]) && pending.has_room(&[b'x'; 95]));
            let lost = pending.write_out(60, |bytes| {
                seen.extend_from_slice(bytes);
                taken(bytes.len())
            });
            assert_eq!(lost, 0);
            assert!(pending.is_empty() && pending.flush_at_ms() == u64::MAX);
            let mut text = String::new();
            match gzip {
                None => text = String::from_utf8(seen).unwrap(),
                Some(_) => {
                    let mut reader = flate2::read::MultiGzDecoder::new(seen.as_slice());
                    reader.read_to_string(&mut text).unwrap();
                }
            }
            assert_eq!(text, "one\ntwo\n");
        }
    }

    #[test]
    fn a_reader_that_goes_costs_what_was_held() {
        for gzip in [None, Some(1)] {
            let mut pending = Pending::new(buffer(100, None, gzip));
            pending.push(b"one", 0);
            pending.push(b"two", 0);
            assert_eq!(pending.write_out(0, |_| full_after(0)), 0);
            pending.push(b"three", 0);
            assert_eq!(pending.write_out(0, |_| taken(0)), 3);
            assert!(pending.is_empty());
            pending.push(b"four", 0);
            assert_eq!(pending.write_out(0, |_| full_after(0)), 0);
            pending.push(b"five", 0);
            assert_eq!(pending.give_up(), 2);
        }
    }

    #[test]
    fn lost_lines_are_counted() {
        let mut pending = Pending::new(None);
        for line in ["one", "two", "three"] {
            pending.push(line.as_bytes(), 0);
        }
        assert_eq!(
            pending.write_out(0, |_| taken(5)),
            2,
            "of \"two\" half was written"
        );
        let mut pending = Pending::new(buffer(1000, None, Some(1)));
        for line in ["one", "two", "three"] {
            pending.push(line.as_bytes(), 0);
        }
        assert_eq!(pending.write_out(0, |bytes| taken(bytes.len() - 1)), 3);
        pending.push(b"four", 0);
        assert_eq!(pending.write_out(0, |bytes| taken(bytes.len())), 0);
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
        pending.write_out(0, |bytes| {
            file.extend_from_slice(bytes);
            taken(bytes.len())
        });
        let mut text = String::new();
        flate2::read::GzDecoder::new(file.as_slice())
            .read_to_string(&mut text)
            .unwrap();
        assert!(text.lines().eq(lines.iter().map(String::as_str)));
    }
}
