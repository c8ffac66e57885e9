//! From PCRE's spelling to that of the Rust engines; decides also which engine a pattern needs.
//!
//! Only what users of nginx write and the engines read differently is changed. `$` outside multi-line mode becomes
//! `(?:\n?\z)`, since PCRE's matches before a final line feed too. Errors in the pattern are left for the engine to report.

use std::iter::Peekable;
use std::str::Chars;

/// A pattern for the engines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Translated {
    /// The pattern.
    pub(super) text: String,
    /// It holds something only the backtracking engine understands, or would misread without complaint.
    pub(super) backtracking: bool,
    /// `(*UTF8)`.
    pub(super) unicode: bool,
}

/// Translates a pattern; an error names what has no counterpart.
pub(super) fn translate(pattern: &str) -> Result<Translated, String> {
    let mut unicode = false;
    let mut rest = pattern;
    while let Some(after) = rest.strip_prefix("(*") {
        let Some((verb, after)) = after.split_once(')') else {
            break;
        };
        if !matches!(verb, "UTF8" | "UTF" | "UCP") {
            break;
        }
        unicode = true;
        rest = after;
    }
    let mut translator = Translator {
        input: rest.chars().peekable(),
        output: String::with_capacity(rest.len() + 16),
        backtracking: false,
        unicode,
        multi_line: has_multi_line(rest),
    };
    translator.run()?;
    Ok(Translated {
        text: translator.output,
        backtracking: translator.backtracking,
        unicode,
    })
}

/// Whether an inline flag group turns on `m`.
fn has_multi_line(pattern: &str) -> bool {
    pattern.split("(?").skip(1).any(|group| {
        group
            .chars()
            .take_while(char::is_ascii_lowercase)
            .any(|flag| flag == 'm')
    })
}

struct Translator<'a> {
    input: Peekable<Chars<'a>>,
    output: String,
    backtracking: bool,
    unicode: bool,
    multi_line: bool,
}

impl Translator<'_> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(next) = self.input.next() {
            match next {
                '\\' => self.escape(),
                '[' => self.class(),
                '(' => self.group()?,
                '*' | '+' | '?' => self.quantifier_end(next),
                '{' => self.braces(),
                '}' => self.output.push_str("\\}"),
                '$' if !self.multi_line => self.output.push_str("(?:\\n?\\z)"),
                other => self.literal(other),
            }
        }
        Ok(())
    }

    /// A character that stands for itself. Without Unicode one beyond ASCII is its bytes, as PCRE reads it.
    fn literal(&mut self, next: char) {
        if next.is_ascii() || self.unicode {
            self.output.push(next);
            return;
        }
        let mut bytes = [0; 4];
        for byte in next.encode_utf8(&mut bytes).bytes() {
            self.byte(byte);
        }
    }

    fn byte(&mut self, byte: u8) {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        self.output.push_str("\\x");
        for digit in [byte >> 4, byte & 15] {
            self.output
                .push(char::from(*HEX.get(usize::from(digit)).unwrap_or(&b'0')));
        }
    }

    /// A character after a backslash that means itself, or inside `\Q…\E`.
    fn quoted(&mut self, next: char) {
        if next.is_ascii_punctuation()
            && !matches!(
                next,
                '<' | '>' | '/' | '"' | '\'' | '%' | ',' | ':' | ';' | '=' | '@' | '_' | '`' | '!'
            )
            || next == ' '
        {
            self.output.push('\\');
            self.output.push(next);
        } else {
            self.literal(next);
        }
    }

    fn escape(&mut self) {
        let Some(next) = self.input.next() else {
            self.output.push('\\');
            return;
        };
        match next {
            'h' => self.output.push_str("[\\t\\x20]"),
            'H' => self.output.push_str("[^\\t\\x20]"),
            'v' => self.output.push_str("[\\n\\x0B\\f\\r]"),
            'V' => self.output.push_str("[^\\n\\x0B\\f\\r]"),
            'R' => self.output.push_str("(?:\\r\\n|[\\n\\x0B\\f\\r])"),
            'N' => self.output.push_str("[^\\n]"),
            'e' => self.output.push_str("\\x1B"),
            'Z' => self.output.push_str("(?:\\n?\\z)"),
            'E' => {}
            'Q' => self.verbatim(),
            '0' => self.output.push_str("\\x00"),
            '1'..='9' | 'k' | 'g' | 'K' | 'G' => {
                self.backtracking = true;
                self.output.push('\\');
                self.output.push(next);
            }
            'p' | 'P' => {
                // Properties are of characters, also where everything else is of bytes.
                self.output.push_str("(?u:\\");
                self.output.push(next);
                self.property();
                self.output.push(')');
            }
            letter if letter.is_ascii_alphabetic() => {
                self.output.push('\\');
                self.output.push(letter);
                self.hex_braces(letter);
            }
            other => self.quoted(other),
        }
    }

    /// What follows `\p`: a letter, or a name in braces.
    fn property(&mut self) {
        if self.input.peek() != Some(&'{') {
            self.output.extend(self.input.next());
            return;
        }
        self.copy_braces();
    }

    /// The braces of `\x{41}` are not a repetition.
    fn hex_braces(&mut self, letter: char) {
        if letter == 'x' && self.input.peek() == Some(&'{') {
            self.copy_braces();
        }
    }

    fn copy_braces(&mut self) {
        for next in self.input.by_ref() {
            self.output.push(next);
            if next == '}' {
                break;
            }
        }
    }

    fn verbatim(&mut self) {
        while let Some(next) = self.input.next() {
            if next == '\\' && self.input.peek() == Some(&'E') {
                self.input.next();
                return;
            }
            if next == '\\' {
                self.output.push_str("\\\\");
            } else {
                self.quoted(next);
            }
        }
    }

    /// `*`, `+`, `?` or the end of `{…}`: a following `+` makes it possessive, which the linear engine would read as a
    /// second repetition.
    fn quantifier_end(&mut self, last: char) {
        self.output.push(last);
        match self.input.peek() {
            Some('+') => {
                self.backtracking = true;
                self.output.push('+');
                self.input.next();
            }
            Some('?') => {
                self.output.push('?');
                self.input.next();
            }
            _ => {}
        }
    }

    /// `{` begins a repetition only as `{n}`, `{n,}` or `{n,m}`; else PCRE takes it as itself.
    fn braces(&mut self) {
        let mut ahead = self.input.clone();
        let mut text = String::new();
        let closed = loop {
            match ahead.next() {
                Some('}') => break true,
                Some(next) if next.is_ascii_digit() || next == ',' => text.push(next),
                _ => break false,
            }
        };
        let starts_with_digit = text.starts_with(|first: char| first.is_ascii_digit());
        if closed && starts_with_digit && text.matches(',').count() <= 1 {
            self.output.push('{');
            self.output.push_str(&text);
            self.input = ahead;
            self.quantifier_end('}');
        } else {
            self.output.push_str("\\{");
        }
    }

    fn group(&mut self) -> Result<(), String> {
        self.output.push('(');
        if self.input.peek() == Some(&'*') {
            self.backtracking = true;
            return Ok(());
        }
        if self.input.peek() != Some(&'?') {
            return Ok(());
        }
        self.input.next();
        let mut ahead = self.input.clone();
        match ahead.next() {
            Some('|') => {
                return Err(String::from(
                    "\"(?|\" (alternatives that share group numbers) is not supported",
                ));
            }
            Some('#') => {
                self.output.pop();
                self.input.by_ref().find(|next| *next == ')');
                return Ok(());
            }
            Some('\'') => {
                self.quoted_name();
                return Ok(());
            }
            Some('<') => match ahead.next() {
                Some('=' | '!') => self.backtracking = true,
                _ => {
                    self.output.push_str("?P<");
                    self.input.next();
                    return Ok(());
                }
            },
            Some('=' | '!' | '>' | '(' | 'R' | '&' | '0'..='9' | '+') => self.backtracking = true,
            Some('P') if !matches!(ahead.next(), Some('<')) => self.backtracking = true,
            _ => {}
        }
        self.output.push('?');
        if let Some(next) = self
            .input
            .next_if(|next| matches!(next, '=' | '!' | '>' | '<'))
        {
            self.output.push(next);
            if next == '<'
                && let Some(next) = self.input.next()
            {
                self.output.push(next);
            }
        } else if self
            .input
            .peek()
            .is_some_and(|next| !matches!(next, '(' | ':'))
        {
            // Flags, `P=name`, `R`, a group number: up to the end of the head.
            while let Some(next) = self.input.next_if(|next| !matches!(next, ')' | ':' | '(')) {
                self.output.push(next);
                if next == '>' {
                    break;
                }
            }
        }
        Ok(())
    }

    /// `(?'name'` is written as `(?P<name>`.
    fn quoted_name(&mut self) {
        self.output.push_str("?P<");
        self.input.next();
        let name: String = self
            .input
            .by_ref()
            .take_while(|next| *next != '\'')
            .collect();
        self.output.push_str(&name);
        self.output.push('>');
    }

    /// A class; one with a property is of characters, as a property is.
    fn class(&mut self) {
        let start = self.output.len();
        if self.byte_class() {
            self.output.insert_str(start, "(?u:");
            self.output.push(')');
        }
    }

    /// Whether there is a property in it.
    fn byte_class(&mut self) -> bool {
        let mut has_property = false;
        self.output.push('[');
        if self.input.next_if_eq(&'^').is_some() {
            self.output.push('^');
        }
        if self.input.next_if_eq(&']').is_some() {
            self.output.push_str("\\]");
        }
        // Whether the item before is one that cannot begin a range (`\w`, `[:alpha:]`).
        let mut after_set = false;
        while let Some(next) = self.input.next() {
            match next {
                ']' => {
                    self.output.push(']');
                    return has_property;
                }
                '\\' => {
                    has_property |= matches!(self.input.peek(), Some('p' | 'P'));
                    after_set = self.class_escape();
                    continue;
                }
                '[' => {
                    after_set = self.posix_class();
                    continue;
                }
                '-' if after_set || self.set_follows() => self.output.push_str("\\-"),
                '-' if self.output.ends_with('-') => self.output.push_str("\\-"),
                '&' | '~' => {
                    self.output.push('\\');
                    self.output.push(next);
                }
                other => self.literal(other),
            }
            after_set = false;
        }
        has_property
    }

    /// Whether what comes next is a class escape or a POSIX class, so that a `-` before it is itself.
    fn set_follows(&self) -> bool {
        let mut ahead = self.input.clone();
        match ahead.next() {
            Some('\\') => matches!(
                ahead.next(),
                Some('w' | 'W' | 'd' | 'D' | 's' | 'S' | 'h' | 'v')
            ),
            Some('[') => ahead.next() == Some(':'),
            _ => false,
        }
    }

    /// Copies `[:name:]`, or escapes a bracket that stands for itself. Whether it was a class.
    fn posix_class(&mut self) -> bool {
        let mut ahead = self.input.clone();
        if ahead.next() == Some(':') {
            let mut text = String::from("[:");
            while let Some(next) = ahead.next_if(|next| next.is_ascii_lowercase() || *next == '^') {
                text.push(next);
            }
            if ahead.next() == Some(':') && ahead.next() == Some(']') {
                text.push_str(":]");
                self.output.push_str(&text);
                self.input = ahead;
                return true;
            }
        }
        self.output.push_str("\\[");
        false
    }

    /// An escape inside a class. Whether it stands for several characters.
    fn class_escape(&mut self) -> bool {
        let Some(next) = self.input.next() else {
            self.output.push('\\');
            return false;
        };
        match next {
            'h' => self.output.push_str("\\t\\x20"),
            'v' => self.output.push_str("\\n\\x0B\\f\\r"),
            'b' => self.output.push_str("\\x08"),
            'e' => self.output.push_str("\\x1B"),
            '0' => self.output.push_str("\\x00"),
            'E' => return false,
            'Q' => {
                self.verbatim();
                return false;
            }
            'p' | 'P' => {
                self.output.push('\\');
                self.output.push(next);
                self.property();
                return true;
            }
            letter if letter.is_ascii_alphanumeric() => {
                self.output.push('\\');
                self.output.push(letter);
                self.hex_braces(letter);
                return matches!(letter, 'w' | 'W' | 'd' | 'D' | 's' | 'S');
            }
            other => {
                self.quoted(other);
                return false;
            }
        }
        matches!(next, 'h' | 'v')
    }
}
