//! Copying field lines of a parsed head into the next one.
//!
//! Lines that stand as they would be written anew, one behind the other, are copied in one piece: most heads go through
//! in two or three. Everything else is written from its parts. Which lines go through is decided by the caller.

use kp_http::{Field, encode};
use std::ops::Range;

/// Lines that are to be copied but were not yet, as a stretch of the head's bytes.
#[derive(Debug, Default)]
pub(crate) struct Run {
    stretch: Range<usize>,
}

impl Run {
    /// Adds a field to what goes through; `name` and `value` are its own.
    pub(crate) fn pass(
        &mut self,
        out: &mut Vec<u8>,
        bytes: &[u8],
        field: &Field,
        name: &[u8],
        value: &[u8],
    ) {
        match field.plain_line(bytes) {
            Some(line) if line.start == self.stretch.end => self.stretch.end = line.end,
            Some(line) => {
                self.flush(out, bytes);
                self.stretch = line;
            }
            None => {
                self.flush(out, bytes);
                encode::field(out, name, value);
            }
        }
    }

    /// Copies what is left. To be called before anything else is written, and at the end.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        let stretch = std::mem::take(&mut self.stretch);
        out.extend_from_slice(bytes.get(stretch).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_http::{HeadLimits, HeadReader, Method, ResponseHead};
    use proptest::prelude::{any, prop};

    fn passed(head: &ResponseHead, keep: &[bool]) -> Vec<u8> {
        let mut run = Run::default();
        let mut out = Vec::new();
        for (field, _) in head.fields.iter().zip(keep).filter(|(_, keep)| **keep) {
            run.pass(
                &mut out,
                &head.bytes,
                field,
                head.name(field),
                head.value(field),
            );
        }
        run.flush(&mut out, &head.bytes);
        out
    }

    proptest::proptest! {
        /// Whatever the white space, and whichever lines go through: the same bytes as written one by one.
        #[test]
        fn copying_is_writing_anew(
            lines in prop::collection::vec(("[a-z]{1,3}", "( |\t){0,2}", "([a-z]([ -~]{0,3}[a-z])?)?", " {0,2}", any::<bool>()), 0..8)
        ) {
            let mut bytes = b"HTTP/1.1 200 OK\r\n".to_vec();
            for (name, before, value, after, _) in &lines {
                bytes.extend_from_slice(format!("x{name}:{before}{value}{after}\r\n").as_bytes());
            }
            bytes.extend_from_slice(b"\r\n");
            let mut head = ResponseHead::default();
            HeadReader::default().response(&mut bytes, &mut head, Method::Get, &HeadLimits::default()).expect("a head");
            let keep: Vec<bool> = lines.iter().map(|line| line.4).collect();
            let expected: String = lines
                .iter()
                .filter(|line| line.4)
                .map(|(name, _, value, _, _)| format!("x{name}: {value}\r\n"))
                .collect();
            proptest::prop_assert_eq!(String::from_utf8(passed(&head, &keep)).expect("text"), expected);
        }
    }
}
