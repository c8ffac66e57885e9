//! Diagnostics as text for a terminal: the sentence, the line, a caret, what encloses it, advice.
//!
//! The text comes from files that anybody may have written: control characters never reach the terminal, a tab is four
//! columns, a wide character two, and of a long line only the part around the place is shown.

use crate::diagnostic::{Diagnostic, Severity};
use crate::span::Span;
use crate::syntax::{Origin, Source, Sources};
use std::fmt::Write;

/// Columns of a source line that are shown.
const LINE_COLUMNS_MAX: usize = 120;
/// Columns that stay in front of the caret when a line is cut.
const LEAD_COLUMNS: usize = 40;

/// All of them, in their order, each with its place.
pub fn render(diagnostics: &[Diagnostic], sources: &Sources) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        one(diagnostic, sources, &mut out);
    }
    out
}

fn one(diagnostic: &Diagnostic, sources: &Sources, out: &mut String) {
    let level = match diagnostic.severity {
        Severity::Error => "emerg",
        Severity::Warning => "warn",
    };
    out.push_str("kp: [");
    out.push_str(level);
    out.push_str("] ");
    push_clean(&diagnostic.message, out);
    let place = diagnostic
        .span
        .and_then(|span| sources.file(span.file).map(|source| (span, source)));
    if let Some((span, source)) = place {
        out.push_str(" in ");
        push_place(span, source, out);
        out.push('\n');
        let margin = span.line.to_string().len() + 1;
        push_excerpt(span, source, margin, out);
        for (opened, label) in enclosing(diagnostic, span, sources) {
            pad(margin, out);
            out.push_str("   in ");
            push_clean(&label, out);
            if let Some(source) = sources.file(opened.file) {
                out.push_str(", opened at ");
                push_place(opened, source, out);
            }
            out.push('\n');
        }
        push_includes(span, sources, margin, out);
        push_hint(diagnostic, margin, out);
    } else {
        out.push('\n');
        push_hint(diagnostic, 2, out);
    }
}

/// The blocks that the diagnostic names, else those in which its place lies.
fn enclosing(diagnostic: &Diagnostic, span: Span, sources: &Sources) -> Vec<(Span, String)> {
    if !diagnostic.within.is_empty() {
        return diagnostic.within.clone();
    }
    sources
        .enclosing(span)
        .into_iter()
        .map(|(span, label)| (span, label.to_owned()))
        .collect()
}

fn push_includes(span: Span, sources: &Sources, margin: usize, out: &mut String) {
    let mut place = span;
    // Each step goes to a file that was read earlier.
    for _ in 0..sources.files.len() {
        let Some(Source {
            origin: Origin::Include(by),
            ..
        }) = sources.file(place.file)
        else {
            return;
        };
        let Some(source) = sources.file(by.file) else {
            return;
        };
        pad(margin, out);
        out.push_str("   included at ");
        push_place(*by, source, out);
        out.push('\n');
        place = *by;
    }
}

fn push_hint(diagnostic: &Diagnostic, margin: usize, out: &mut String) {
    if let Some(hint) = &diagnostic.hint {
        pad(margin, out);
        out.push_str("   hint: ");
        push_clean(hint, out);
        out.push('\n');
    }
}

fn push_place(span: Span, source: &Source, out: &mut String) {
    push_clean(&source.path.to_string_lossy(), out);
    // Writing to a String cannot fail.
    let _ = write!(out, ":{}:{}", span.line, span.column);
}

fn push_excerpt(span: Span, source: &Source, margin: usize, out: &mut String) {
    let Some((span, line)) = shown_line(span, &source.text) else {
        return;
    };
    let cells: Vec<(String, usize)> = line.chars().map(cell).collect();
    let caret = (span.column.saturating_sub(1) as usize).min(cells.len());
    let columns_of = |from: usize, to: usize| {
        cells
            .get(from..to)
            .unwrap_or_default()
            .iter()
            .map(|(_, width)| width)
            .sum::<usize>()
    };
    let mut from = 0;
    if columns_of(0, cells.len()) > LINE_COLUMNS_MAX {
        while columns_of(from, caret) > LEAD_COLUMNS {
            from += (caret - from).div_ceil(16).max(1);
        }
    }
    let mut to = from;
    let mut columns = 0;
    for (_, width) in cells.get(from..).unwrap_or_default() {
        if columns + width > LINE_COLUMNS_MAX {
            break;
        }
        columns += width;
        to += 1;
    }
    let _ = write!(out, "{:>margin$} | ", span.line);
    let lead = if from > 0 { "…" } else { "" };
    out.push_str(lead);
    cells
        .get(from..to)
        .unwrap_or_default()
        .iter()
        .for_each(|(text, _)| out.push_str(text));
    if to < cells.len() {
        out.push('…');
    }
    out.push('\n');
    pad(margin, out);
    out.push_str(" | ");
    pad(columns_of(from, caret) + lead.chars().count(), out);
    let end = caret
        .saturating_add(span.length as usize)
        .min(to.max(caret));
    let carets = columns_of(caret, end).max(1);
    out.extend(std::iter::repeat_n('^', carets));
    out.push('\n');
}

/// The line a place is on. The end of a file is often an empty line: what is missing there belongs behind the last line
/// that says something, and that one is shown.
fn shown_line(span: Span, text: &str) -> Option<(Span, &str)> {
    let trimmed = |line: &'_ str| line.trim_end_matches([' ', '\t', '\r']).len();
    let wanted = span.line.saturating_sub(1) as usize;
    let (index, line) = text
        .split('\n')
        .enumerate()
        .take(wanted.saturating_add(1))
        .filter(|(_, line)| trimmed(line) > 0)
        .last()?;
    if index == wanted {
        return Some((span, line.strip_suffix('\r').unwrap_or(line)));
    }
    let line = line.get(..trimmed(line)).unwrap_or(line);
    let behind = Span {
        line: u32::try_from(index + 1).ok()?,
        column: u32::try_from(line.chars().count() + 1).ok()?,
        length: 1,
        ..span
    };
    Some((behind, line))
}

/// A character as it is shown, and its columns.
fn cell(character: char) -> (String, usize) {
    match character {
        '\t' => ("    ".to_owned(), 4),
        _ if is_unsafe(character) => ("\u{fffd}".to_owned(), 1),
        _ => (character.to_string(), width(character)),
    }
}

fn push_clean(text: &str, out: &mut String) {
    out.extend(text.chars().map(|character| match character {
        '\n' | '\t' => ' ',
        _ if is_unsafe(character) => '\u{fffd}',
        _ => character,
    }));
}

/// Characters that command a terminal or turn the direction of a line.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Columns of a printable character: the blocks that terminals show two wide, and the marks they show on top of the
/// character before. Close enough to put a caret under a word.
fn width(character: char) -> usize {
    match u32::from(character) {
        0x300..=0x36f | 0x200b..=0x200d | 0xfe00..=0xfe0f | 0xfeff => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f => {
            2
        }
        0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

fn pad(columns: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', columns));
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::diagnostic::Diagnostic;
    use crate::span::{FileId, Span};
    use crate::testing::{nginx, yaml};

    fn shown(text: &str) -> String {
        let reading = nginx(text);
        render(&reading.diagnostics, &reading.sources)
    }

    /// The excerpt and caret lines of the first finding, without margin.
    fn excerpt(text: &str) -> [String; 2] {
        let shown = shown(text);
        let mut lines = shown
            .lines()
            .skip(1)
            .map(|line| line.split_once("| ").unwrap().1.to_owned());
        [lines.next().unwrap(), lines.next().unwrap()]
    }

    #[test]
    fn the_whole_form() {
        let expected = "kp: [emerg] unexpected \"}\" in kp.conf:4:3\n\
            \x204 |   }\n\
            \x20  |   ^\n\
            \x20    in server, opened at kp.conf:2:3\n\
            \x20    in http, opened at kp.conf:1:1\n\
            \x20    hint: the directive \"pid\" on line 3 is not terminated by \";\"\n";
        assert_eq!(shown("http {\n  server {\n    pid a\n  }\n}\n"), expected);
    }

    #[test]
    fn yaml_looks_the_same() {
        let reading = yaml("http:\n  server:\n    - root: 'a;'\n");
        let expected = "kp: [emerg] unexpected \";\" in kp.yaml:3:15\n\
            \x203 |     - root: 'a;'\n\
            \x20  |               ^\n\
            \x20    in server, opened at kp.yaml:3:7\n\
            \x20    in http, opened at kp.yaml:1:1\n";
        assert!(render(&reading.diagnostics, &reading.sources).starts_with(expected));
    }

    #[test]
    fn a_caret_stands_under_its_word() {
        let cases = [
            ("\ta\t'b'c;", ["    a    'b'c;", "            ^"]),
            ("ü 'ß'c;", ["ü 'ß'c;", "     ^"]),
            ("中文 '字'c;", ["中文 '字'c;", "         ^"]),
            (
                "e\u{301}e\u{301} 'b'c;",
                ["e\u{301}e\u{301} 'b'c;", "      ^"],
            ),
            ("a 'b'c;\r\n", ["a 'b'c;", "     ^"]),
            ("a 'b'字;", ["a 'b'字;", "     ^^"]),
        ];
        for (text, expected) in cases {
            assert_eq!(excerpt(text), expected, "{text}");
        }
    }

    #[test]
    fn what_the_end_lacks_is_shown_behind_the_last_text() {
        let expected = "kp: [emerg] unexpected end of file, expecting \"}\" in kp.conf:5:1\n\
            \x202 |   pid a;\n\
            \x20  |         ^\n";
        for text in ["http {\n  pid a;\n\n\n", "http {\n  pid a; \r\n \r\n\t\n"] {
            assert!(shown(text).starts_with(expected), "{}", shown(text));
        }
        assert!(!shown("\n\n}").contains("1 |"), "{}", shown("\n\n}"));
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let [line, caret] = excerpt(&format!(
            "a {} 'b'c {};",
            "x ".repeat(2000),
            "y ".repeat(2000)
        ));
        assert!(line.starts_with('…') && line.ends_with('…'), "{line}");
        assert!(line.chars().count() <= 122, "{line}");
        let at = caret.chars().count() - 1;
        assert_eq!(line.chars().nth(at), Some('c'));
        assert!(line.chars().nth(at + 1) == Some(' '));
    }

    #[test]
    fn the_terminal_gets_no_commands() {
        let shown = shown("a 'b'\u{1b}[2Jc\u{202e};");
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
        let message = Diagnostic::system("a\u{1b}b\nc").hint("d\u{7}");
        assert_eq!(
            render(&[message], &Default::default()),
            "kp: [emerg] a\u{fffd}b c\n     hint: d\u{fffd}\n"
        );
    }

    #[test]
    fn a_place_that_is_not_there_does_no_harm() {
        let reading = nginx("a;");
        for (file, line, column) in [(0, 9, 9), (7, 1, 1), (0, 0, 0), (0, 1, u32::MAX)] {
            let span = Span {
                file: FileId(file),
                line,
                column,
                length: u32::MAX,
            };
            let shown = render(&[Diagnostic::error(span, "m")], &reading.sources);
            assert!(shown.starts_with("kp: [emerg] m"), "{shown}");
        }
    }
}
