//! What is said about text that cannot be read as words: nginx's sentence, its place, and what was probably meant.

use crate::diagnostic::Diagnostic;
use crate::nginx::lexer::{LexError, Lexed, Places};
use crate::nginx::parser::{Kind, TextPlaces};
use crate::span::Span;

/// What the sentence depends on besides the error.
pub(crate) struct Complaint<'a> {
    /// The whole text.
    pub(crate) text: &'a str,
    /// What the text is.
    pub(crate) kind: Kind,
    /// Whether a `{` could open a block here.
    pub(crate) braces_are_blocks: bool,
}

impl Complaint<'_> {
    /// The finding for an error at a place.
    pub(crate) fn about(&self, error: LexError, lexed: &Lexed, span: Span) -> Diagnostic {
        match error {
            LexError::AfterQuote {
                character,
                quote_at,
            } => self.after_quote(character, quote_at, span),
            LexError::Unclosed { quote } => self.unclosed(quote, span),
            LexError::TooLong {
                quote: Some(quote), ..
            } => {
                let message = format!(
                    "too long parameter, probably missing terminating \"{quote}\" character"
                );
                Diagnostic::error(Span { length: 1, ..span }, message).hint(
                    "a word may have 4095 bytes; the quote opened here is probably not closed",
                )
            }
            LexError::TooLong { quote: None, .. } => {
                let start: String = self.part(lexed.from, lexed.to).chars().take(10).collect();
                Diagnostic::error(span, format!("too long parameter \"{start}...\" started"))
                    .hint("a word may have 4095 bytes")
            }
            LexError::BareBraces { brace_at } => self.bare_braces(brace_at, lexed, span),
        }
    }

    fn after_quote(&self, character: char, quote_at: usize, span: Span) -> Diagnostic {
        let began = TextPlaces::new(span.file, self.text)
            .span(quote_at, quote_at)
            .line;
        let hint = if began == span.line {
            "after a closing quote only white space, \";\", \"{\" or \")\" may follow".to_owned()
        } else {
            format!(
                "the quoted text began on line {began}; its closing quote is probably missing there"
            )
        };
        Diagnostic::error(
            Span { length: 1, ..span },
            format!("unexpected \"{character}\""),
        )
        .hint(hint)
    }

    /// At the end of the text, as nginx, with the place of the quote as advice.
    fn unclosed(&self, quote: char, span: Span) -> Diagnostic {
        let end = TextPlaces::new(span.file, self.text).span(self.text.len(), self.text.len());
        let name = if quote == '"' {
            "double quote"
        } else {
            "single quote"
        };
        Diagnostic::error(end, self.kind.unexpected_end()).hint(format!(
            "the {name} opened on line {}, column {} is not closed",
            span.line, span.column
        ))
    }

    /// nginx takes the braces for a block that begins with a directive of an odd name.
    fn bare_braces(&self, brace_at: usize, lexed: &Lexed, span: Span) -> Diagnostic {
        let message = if self.braces_are_blocks {
            format!(
                "unknown directive \"{}\"",
                self.part(brace_at + 1, lexed.to)
            )
        } else {
            "unexpected \"{\"".to_owned()
        };
        let word = self.part(lexed.from, lexed.to);
        Diagnostic::error(span, message).hint(format!(
            "a bare \"{{\" begins a block; quote the regular expression: \"{word}\""
        ))
    }

    fn part(&self, from: usize, to: usize) -> &str {
        self.text.get(from..to).unwrap_or_default()
    }
}
