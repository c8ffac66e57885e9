//! Where the characters of a scalar stand in the file: through quotes, escapes, folding and indentation.
//!
//! A YAML parser gives only a scalar's beginning. The words in it are found again by walking the text and the source side by
//! side: an escape is one character, white space that the text does not have was folding or indentation.

use crate::nginx::lexer::Places;
use crate::span::Span;
use saphyr_parser::ScalarStyle;

/// The places of a scalar's bytes.
pub(crate) struct ScalarPlaces {
    /// The scalar with its quotes.
    whole: Span,
    /// Line and column of each byte of the text, and of what follows it.
    bytes: Vec<(u32, u32)>,
}

/// Finds the places of a text whose scalar begins at this offset of the source, which is at `begin`.
pub(crate) fn of_scalar(
    source: &str,
    offset: usize,
    text: &str,
    style: ScalarStyle,
    begin: Span,
) -> ScalarPlaces {
    let rest = source.get(offset..).unwrap_or_default();
    let mut walk = Walk {
        rest,
        line: begin.line,
        column: begin.column,
    };
    let quoted = matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted);
    if quoted {
        walk.step();
    }
    let mut bytes = Vec::with_capacity(text.len() + 1);
    for character in text.chars() {
        let at = walk.find(character, style);
        bytes.extend(std::iter::repeat_n(at, character.len_utf8()));
    }
    bytes.push((walk.line, walk.column));
    if quoted {
        walk.step();
    }
    let length = if walk.line == begin.line {
        walk.column.saturating_sub(begin.column)
    } else {
        rest.lines()
            .next()
            .unwrap_or_default()
            .trim_end()
            .chars()
            .count() as u32
    };
    ScalarPlaces {
        whole: Span {
            length: length.max(1),
            ..begin
        },
        bytes,
    }
}

impl ScalarPlaces {
    /// The scalar, its quotes included.
    pub(crate) fn whole(&self) -> Span {
        self.whole
    }
}

impl Places for ScalarPlaces {
    fn span(&mut self, from: usize, to: usize) -> Span {
        let at = |byte: usize| self.bytes.get(byte).copied();
        let Some((line, column)) = at(from) else {
            return self.whole;
        };
        let length = match (at(to), at(to.saturating_sub(1))) {
            (Some((end_line, end)), _) if end_line == line => end.saturating_sub(column),
            (_, Some((last_line, last))) if last_line == line => (last + 1).saturating_sub(column),
            _ => 1,
        };
        Span {
            file: self.whole.file,
            line,
            column,
            length: length.max(1),
        }
    }
}

/// A walk over the source.
struct Walk<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
}

impl Walk<'_> {
    /// The place of the next character of the text; goes behind it.
    fn find(&mut self, character: char, style: ScalarStyle) -> (u32, u32) {
        if style == ScalarStyle::DoubleQuoted {
            while self.rest.starts_with("\\\n") || self.rest.starts_with("\\\r\n") {
                self.step();
                self.skip_blanks(None);
            }
            if self.rest.starts_with('\\') {
                let at = (self.line, self.column);
                self.skip_escape();
                return at;
            }
        }
        if !self.rest.starts_with(character) {
            self.skip_blanks(Some(character));
        }
        let at = (self.line, self.column);
        if self.rest.starts_with(character) {
            self.step();
            if style == ScalarStyle::SingleQuoted && character == '\'' {
                self.step();
            }
        }
        at
    }

    /// Skips white space up to this character.
    fn skip_blanks(&mut self, until: Option<char>) {
        while let Some(next) = self.rest.chars().next() {
            if Some(next) == until || !matches!(next, ' ' | '\t' | '\r' | '\n') {
                break;
            }
            self.step();
        }
    }

    fn skip_escape(&mut self) {
        self.step();
        let digits = match self.rest.chars().next() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => 0,
        };
        for _ in 0..=digits {
            self.step();
        }
    }

    fn step(&mut self) {
        let mut characters = self.rest.chars();
        match characters.next() {
            Some('\n') => {
                self.line += 1;
                self.column = 1;
            }
            Some(_) => self.column += 1,
            None => {}
        }
        self.rest = characters.as_str();
    }
}
