//! Lines on their way out: never half a line with another behind it, and nobody waits for a reader.

use kp_sys::outlet::{Outlet, WHOLE_MAX};
use std::io::ErrorKind;
use std::os::fd::AsFd;

/// How much was written, and what of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) bytes: usize,
    /// The reader must read before there is room for more; otherwise what is left is lost.
    pub(crate) later: bool,
}

/// Writes as much as is taken now. A reader gets whole lines in one piece as long as they are no longer than a pipe takes whole,
/// so that lines of several processes do not mix.
pub(crate) fn write(outlet: &Outlet<impl AsFd>, bytes: &[u8]) -> Taken {
    let mut written = 0;
    while let Some(rest @ [_, ..]) = bytes.get(written..) {
        let piece = match outlet.has_reader() {
            true => whole_lines(rest),
            false => rest,
        };
        match outlet.write(piece) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let later = error.kind() == ErrorKind::WouldBlock;
                return Taken {
                    bytes: written,
                    later,
                };
            }
        }
    }
    Taken {
        bytes: written,
        later: false,
    }
}

/// As many whole lines as a pipe takes whole, or the beginning of a longer one.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let Some(most) = bytes.get(..WHOLE_MAX) else {
        return bytes;
    };
    match memchr::memrchr(b'\n', most) {
        Some(end) => most.get(..=end).unwrap_or(most),
        None => most,
    }
}

/// Where lines go, one after the other.
#[derive(Debug)]
pub(crate) struct LineOutlet<F> {
    pub(crate) outlet: Outlet<F>,
    /// The last line was written in part, and its rest is lost.
    torn: bool,
}

impl<F: AsFd> LineOutlet<F> {
    pub(crate) fn new(file: F) -> Self {
        Self {
            outlet: Outlet::new(file),
            torn: false,
        }
    }

    /// Writes lines, behind an end for one of which only a part fitted onto the disk, so that it costs no other.
    pub(crate) fn write(&mut self, lines: &[u8]) -> Taken {
        if self.torn {
            let ended = write(&self.outlet, b"\n");
            if ended.bytes == 0 {
                return ended;
            }
            self.torn = false;
        }
        let taken = write(&self.outlet, lines);
        let last = taken.bytes.checked_sub(1).and_then(|at| lines.get(at));
        self.torn = !taken.later && last.is_some_and(|last| *last != b'\n');
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_pipe_gets_whole_lines_in_each_piece() {
        let line = |length: usize| format!("{}\n", "x".repeat(length - 1));
        let short = line(1000).repeat(5);
        assert_eq!(whole_lines(short.as_bytes()).len(), 4000);
        let fits = line(WHOLE_MAX);
        assert_eq!(whole_lines(fits.as_bytes()).len(), WHOLE_MAX);
        let long = line(WHOLE_MAX + 1);
        assert_eq!(whole_lines(long.as_bytes()).len(), WHOLE_MAX);
        assert_eq!(whole_lines(b"a\nb"), b"a\nb");
    }

    #[test]
    fn a_full_pipe_takes_the_rest_later() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut out = LineOutlet::new(writer);
        let lines = "0123456789abcde\n".repeat(100_000);
        let first = out.write(lines.as_bytes());
        assert!(first.later && first.bytes > 0 && first.bytes < lines.len());
        assert_eq!(first.bytes % 16, 0, "whole lines");
        let mut room = vec![0; first.bytes];
        reader.read_exact(&mut room).unwrap();
        assert!(room == lines.as_bytes()[..first.bytes]);
        assert!(
            out.write(b"next\n")
                == Taken {
                    bytes: 5,
                    later: false
                }
        );
        drop(reader);
        assert!(
            out.write(b"gone\n")
                == Taken {
                    bytes: 0,
                    later: false
                }
        );
    }
}
