//! Text to words and delimiters, exactly as nginx reads them (`ngx_conf_read_token`).
//!
//! The rules: a quote or `#` means something only where a word may begin; `\` keeps the next character from ending
//! anything, and `\" \' \\ \t \r \n` are then replaced; in `${` the brace does not end the word; after a closing quote only
//! white space, `;`, `{` or `)` may follow. It does not know what a directive is: the parser does. YAML scalars go through
//! the same code, hence [`Places`].

use super::lua;
use crate::span::Span;
use std::borrow::Cow;

/// nginx reads through a buffer of this many bytes, and a word must fit it with what ends it.
pub(crate) const WORD_BYTES_MAX: usize = 4095;

/// Where the bytes of a text stand in the file. Asked for rising offsets, so that a file is walked once.
pub(crate) trait Places {
    /// The place of the bytes `from..to`.
    fn span(&mut self, from: usize, to: usize) -> Span;
}

/// What the text consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// A word, unquoted and unescaped.
    Word {
        /// Its text.
        text: String,
        /// Whether it was quoted.
        quoted: bool,
    },
    /// `;`
    Semicolon,
    /// `{`
    Open,
    /// `}`
    Close,
    /// The text is over.
    End,
}

/// What cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LexError {
    /// This character follows a closing quote.
    AfterQuote {
        /// The character.
        character: char,
        /// Where the quoted word began.
        quote_at: usize,
    },
    /// The text ends inside a quoted word.
    Unclosed {
        /// `"` or `'`
        quote: char,
    },
    /// Longer than [`WORD_BYTES_MAX`].
    TooLong {
        /// The quote it began with.
        quote: Option<char>,
        /// Whether its end is in sight: on the line it began on.
        ended: bool,
    },
    /// A bare word was ended by the `{` of `{3}` or `{1,2}`: a regular expression that wants quotes.
    BareBraces {
        /// Where the brace stands.
        brace_at: usize,
    },
}

/// A token or an error, and the bytes it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lexed {
    /// What was read.
    pub(crate) token: Result<Token, LexError>,
    /// First byte.
    pub(crate) from: usize,
    /// Byte after the last one.
    pub(crate) to: usize,
}

/// Reads tokens from a text. After an error it goes on behind what was wrong.
#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    word_bytes_max: usize,
    /// The block that comes next holds Lua.
    lua_next: bool,
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning; a byte order mark counts as white space.
    pub(crate) fn new(text: &'a str) -> Self {
        let at = if text.starts_with('\u{feff}') {
            '\u{feff}'.len_utf8()
        } else {
            0
        };
        Self {
            text,
            at,
            word_bytes_max: WORD_BYTES_MAX,
            lua_next: false,
        }
    }

    /// The same without a limit on the length of a word: `-g` and YAML have their text in memory, as nginx's `-g` has.
    pub(crate) fn unlimited(text: &'a str) -> Self {
        Self {
            word_bytes_max: usize::MAX,
            ..Self::new(text)
        }
    }

    /// The next token; [`Token::End`] for ever at the end. Of a block with Lua only the braces are read.
    pub(crate) fn next(&mut self) -> Lexed {
        let lexed = self.read();
        match &lexed.token {
            Ok(Token::Word { text, .. }) => self.lua_next |= lua::has_lua(text),
            Ok(Token::Open) if self.lua_next => {
                self.lua_next = false;
                self.at = lua::end(self.text, self.at).unwrap_or(self.at);
            }
            _ => self.lua_next = false,
        }
        lexed
    }

    fn read(&mut self) -> Lexed {
        self.skip_blanks();
        let from = self.at;
        let Some(byte) = self.peek() else {
            return self.finish(from, Ok(Token::End));
        };
        let single = match byte {
            b';' => Some(Token::Semicolon),
            b'{' => Some(Token::Open),
            b'}' => Some(Token::Close),
            _ => None,
        };
        match (single, byte) {
            (Some(token), _) => {
                self.at += 1;
                self.finish(from, Ok(token))
            }
            (None, b'"' | b'\'') => self.quoted(byte),
            (None, _) => self.bare(),
        }
    }

    fn quoted(&mut self, quote: u8) -> Lexed {
        let from = self.at;
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'\\' => self.skip_character(),
                _ if byte == quote => return self.after_quote(from),
                _ => {}
            }
        }
        let quote = char::from(quote);
        if self.at - from - 1 > self.word_bytes_max {
            return self.too_long(from, Some(quote));
        }
        self.finish(from, Err(LexError::Unclosed { quote }))
    }

    fn after_quote(&mut self, from: usize) -> Lexed {
        let inside = self.text.get(from + 1..self.at - 1).unwrap_or_default();
        if inside.len() > self.word_bytes_max {
            return self.too_long(
                from,
                self.text.get(from..).and_then(|rest| rest.chars().next()),
            );
        }
        match self
            .text
            .get(self.at..)
            .and_then(|rest| rest.chars().next())
        {
            // nginx rejects a `}` here as it rejects one behind any word that no `;` has ended: the parser's finding.
            None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | '}' | ')') => {
                let text = unescape(inside).into_owned();
                self.finish(from, Ok(Token::Word { text, quoted: true }))
            }
            Some(character) => {
                let wrong = self.at;
                // The rest of the run belongs to the same mistake.
                while self
                    .peek()
                    .is_some_and(|byte| !is_blank(byte) && !matches!(byte, b';' | b'{' | b'}'))
                {
                    self.at += 1;
                }
                let error = LexError::AfterQuote {
                    character,
                    quote_at: from,
                };
                Lexed {
                    token: Err(error),
                    from: wrong,
                    to: self.at,
                }
            }
        }
    }

    fn bare(&mut self) -> Lexed {
        let from = self.at;
        let mut after_dollar = false;
        while let Some(byte) = self.peek() {
            match byte {
                b'{' if after_dollar => {}
                _ if is_blank(byte) || byte == b';' || byte == b'{' => {
                    if byte == b'{' && is_quantifier(self.text.as_bytes(), self.at) {
                        return self.bare_braces(from);
                    }
                    return self.word(from);
                }
                b'\\' => {
                    after_dollar = false;
                    self.at += 1;
                    self.skip_character();
                    continue;
                }
                _ => after_dollar = byte == b'$',
            }
            self.at += 1;
        }
        self.word(from)
    }

    fn too_long(&self, from: usize, quote: Option<char>) -> Lexed {
        let word = self.text.get(from..self.at).unwrap_or_default();
        let ended = !word.contains('\n');
        self.finish(from, Err(LexError::TooLong { quote, ended }))
    }

    fn word(&self, from: usize) -> Lexed {
        if self.at - from > self.word_bytes_max {
            return self.too_long(from, None);
        }
        let text = unescape(self.text.get(from..self.at).unwrap_or_default()).into_owned();
        self.finish(
            from,
            Ok(Token::Word {
                text,
                quoted: false,
            }),
        )
    }

    /// Takes the whole intended word, so that its braces do not upset the nesting of everything behind it.
    fn bare_braces(&mut self, from: usize) -> Lexed {
        let brace_at = self.at;
        while let Some(byte) = self.peek() {
            if is_blank(byte)
                || byte == b';'
                || (byte == b'{' && !is_quantifier(self.text.as_bytes(), self.at))
            {
                break;
            }
            self.at += 1;
            if byte == b'\\' {
                self.skip_character();
            }
        }
        self.finish(from, Err(LexError::BareBraces { brace_at }))
    }

    /// Goes on behind the line on which this byte stands: after a word without end, nothing else on its line can be trusted.
    pub(crate) fn resume_after_line_of(&mut self, at: usize) {
        self.at = at.min(self.text.len());
        self.skip_line();
    }

    fn skip_line(&mut self) {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        self.at += rest
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(rest.len(), |newline| newline + 1);
    }

    fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => self.skip_line(),
                _ if is_blank(byte) => self.at += 1,
                _ => break,
            }
        }
    }

    fn skip_character(&mut self) {
        let rest = self
            .text
            .get(self.at..)
            .and_then(|rest| rest.chars().next());
        self.at += rest.map_or(0, char::len_utf8);
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn finish(&self, from: usize, token: Result<Token, LexError>) -> Lexed {
        Lexed {
            token,
            from,
            to: self.at,
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Whether the brace at this offset begins `{3}`, `{3,}` or `{3,5}`. Behind a word nothing valid looks like that: the block
/// would begin with a directive of that odd name.
fn is_quantifier(text: &[u8], brace_at: usize) -> bool {
    let inside = text.get(brace_at + 1..).unwrap_or_default();
    let length = inside
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b',')
        .count();
    inside.first().is_some_and(u8::is_ascii_digit) && inside.get(length) == Some(&b'}')
}

/// Replaces nginx's escapes; a backslash before any other character stays, as in `\.` and `\;`.
fn unescape(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw.chars();
    while let Some(character) = rest.next() {
        let next = rest.as_str().chars().next();
        let replaced = match (character, next) {
            ('\\', Some(same @ ('"' | '\'' | '\\'))) => same,
            ('\\', Some('t')) => '\t',
            ('\\', Some('r')) => '\r',
            ('\\', Some('n')) => '\n',
            _ => {
                text.push(character);
                continue;
            }
        };
        text.push(replaced);
        rest.next();
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::{LexError, Lexer, Token};
    use crate::testing::quote;
    use proptest::prelude::*;

    /// Every token with the bytes it covers, until the end.
    fn lex(text: &str) -> Vec<(Result<Token, LexError>, usize, usize)> {
        let mut lexer = Lexer::new(text);
        let mut found = Vec::new();
        loop {
            let lexed = lexer.next();
            if lexed.token == Ok(Token::End) {
                return found;
            }
            found.push((lexed.token, lexed.from, lexed.to));
        }
    }

    fn word(text: &str, quoted: bool) -> Result<Token, LexError> {
        Ok(Token::Word {
            text: text.to_owned(),
            quoted,
        })
    }

    #[test]
    fn tokens_with_the_bytes_they_cover() {
        let expected = [
            (word("a", false), 0, 1),
            (word("b c", true), 2, 7),
            (Ok(Token::Open), 7, 8),
            (word("${d}e", false), 8, 13),
            (Ok(Token::Semicolon), 13, 14),
            (Ok(Token::Close), 20, 21),
        ];
        assert_eq!(lex("a 'b c'{${d}e; #;{\n\t}"), expected);
    }

    #[test]
    fn a_brace_after_a_dollar_stays_in_the_word() {
        assert_eq!(lex("$a{")[0].0, word("$a", false));
        assert_eq!(lex("a${b}c{")[0].0, word("a${b}c", false));
        assert_eq!(lex("${{a")[0].0, word("${{a", false));
    }

    #[test]
    fn errors_name_their_place() {
        let after = LexError::AfterQuote {
            character: 'y',
            quote_at: 2,
        };
        assert_eq!(lex("a 'x'yz ;")[1], (Err(after), 5, 7));
        let braces = LexError::BareBraces { brace_at: 3 };
        assert_eq!(lex("^\\d{3,}/x{4}$ b")[0], (Err(braces), 0, 13));
        let unclosed = LexError::Unclosed { quote: '"' };
        assert_eq!(lex("a \"b\\\"")[1], (Err(unclosed), 2, 6));
    }

    #[test]
    fn a_parenthesis_may_follow_a_quote() {
        let expected = [word("a", true), word(")", false)];
        assert_eq!(
            lex("'a')")
                .into_iter()
                .map(|found| found.0)
                .collect::<Vec<_>>(),
            expected
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_forward_to_its_end(text in any_text()) {
            let mut behind = 0;
            for (_, from, to) in lex(&text) {
                prop_assert!(from >= behind && to > from && to <= text.len());
                prop_assert!(text.is_char_boundary(from) && text.is_char_boundary(to));
                behind = to;
            }
        }

        #[test]
        fn a_quoted_word_is_read_back(text in any_text(), other in any_text()) {
            let mut out = String::new();
            quote(&text, &mut out);
            out.push(' ');
            quote(&other, &mut out);
            out.push(';');
            let texts: Vec<_> = lex(&out).into_iter().map(|found| found.0).collect();
            prop_assert_eq!(texts.len(), 3);
            for (found, wanted) in texts.iter().zip([&text, &other]) {
                prop_assert!(matches!(found, Ok(Token::Word { text, .. }) if text == wanted), "{:?}", found);
            }
        }
    }

    /// Text of the characters that mean something, and of any other.
    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => proptest::sample::select(vec![" ", "\n", "\r", "\t", ";", "{", "}", "\"", "'", "\\", "$", "#", ")", "{3}", "a"]).prop_map(str::to_owned),
            1 => any::<char>().prop_map(String::from),
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }
}
