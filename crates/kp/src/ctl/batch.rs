//! `kp ctl batch`: changes that are made together or not at all, one a line.
//!
//! A line has the words of `kp ctl` from `peer` or `reset` on; words with spaces stand in double quotes, `#` begins a
//! comment. What is no change is found here, with its line, before anybody is asked.

use super::table::printable;
use crate::control::COMMAND_MAX_BYTES;
use crate::report;
use kp_config::overrides::{Change, split_words};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A batch that was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The file's name, as people see it.
    name: String,
    /// Each change as its words.
    pub(crate) changes: Vec<Vec<String>>,
    /// The line of each.
    lines: Vec<usize>,
}

impl Batch {
    /// Reads a file, or the standard input (`-`).
    pub(crate) fn read(name: &str) -> Result<Self, String> {
        let opened: io::Result<Box<dyn Read>> = match name {
            "-" => Ok(Box::new(io::stdin().lock())),
            name => File::open(name).map(|file| Box::new(file) as Box<dyn Read>),
        };
        let mut text = String::new();
        let read = opened.and_then(|file| {
            file.take(COMMAND_MAX_BYTES as u64 + 1)
                .read_to_string(&mut text)
        });
        read.map_err(|error| report::failed("open()", Path::new(name), &error))?;
        if text.len() > COMMAND_MAX_BYTES {
            return Err(format!("a batch has at most {COMMAND_MAX_BYTES} bytes"));
        }
        let shown = if name == "-" { "standard input" } else { name };
        Self::parse(shown, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut batch = Self {
            name: name.to_owned(),
            ..Self::default()
        };
        for (number, line) in (1..).zip(text.lines()) {
            let words = split_words(line).map_err(|error| format!("{name}:{number}: {error}"))?;
            if words.is_empty() {
                continue;
            }
            if let Err(complaint) = Change::parse(&words) {
                return Err(printable(&format!("{name}:{number}: {complaint}")));
            }
            batch.changes.push(words);
            batch.lines.push(number);
        }
        if batch.changes.is_empty() {
            return Err(format!("{name} has no change"));
        }
        Ok(batch)
    }

    /// Where a change stands, counted from 1.
    pub(crate) fn place(&self, change: usize) -> Option<String> {
        let line = self.lines.get(change.checked_sub(1)?)?;
        Some(format!("{}:{line}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_changes_and_know_where_they_stand() {
        let text = "# from the old ones to the new\n\npeer down app 10.0.0.1:80  # first\nreset \"an odd name\"\n";
        let batch = Batch::parse("b", text).unwrap();
        let first = ["peer", "down", "app", "10.0.0.1:80"].map(str::to_owned);
        assert_eq!(batch.changes[0], first);
        assert_eq!(
            batch.changes[1],
            ["reset", "an odd name"].map(str::to_owned)
        );
        assert_eq!(batch.place(1), Some("b:3".into()));
        assert_eq!(batch.place(2), Some("b:4".into()));
        assert_eq!((batch.place(0), batch.place(3)), (None, None));
        for (text, part) in [
            ("", "b has no change"),
            ("# nothing\n", "b has no change"),
            (
                "reset\npeer dwon a b\n",
                "b:2: unknown change \"peer dwon\" (did you mean \"peer down\"?)",
            ),
            ("requests\n", "b:1: unknown change \"requests\""),
            ("reset \"a\n", "b:1: "),
            ("peer \u{1b}[2J\n", "\\u{1b}[2J"),
        ] {
            let complaint = Batch::parse("b", text).unwrap_err();
            assert!(complaint.contains(part), "{complaint}");
        }
    }
}
