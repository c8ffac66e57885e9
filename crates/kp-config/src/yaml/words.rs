//! A scalar in nginx's words, each with its place.
//!
//! The lexer is nginx's own, so that a text copied between the syntaxes means the same. What would end a directive or open a
//! block there has no meaning in a scalar and is a mistake.

use crate::diagnostic::Diagnostic;
use crate::nginx::lexer::{LexError, Lexed, Lexer, Places, Token};
use crate::span::Span;
use crate::syntax::Word;
use crate::yaml::node::Scalar;
use crate::yaml::places::{self, ScalarPlaces};

const NO_DELIMITERS: &str = "a YAML value has no \";\" and no braces of blocks; quote a word that contains them: 'name \"a;b\"'";

/// The words, and the first mistake among them, where what was meant takes the mistake's place. `span` is the scalar's.
pub(crate) fn of_scalar(
    source: &str,
    scalar: &Scalar,
    span: Span,
) -> (Vec<Word>, Option<Diagnostic>) {
    let mut places = places::of_scalar(source, scalar.offset, &scalar.text, scalar.style, span);
    let mut lexer = Lexer::unlimited(&scalar.text);
    let mut words = Vec::new();
    let mut problem = None;
    loop {
        let lexed = lexer.next();
        let span = places.span(lexed.from, lexed.to);
        let found = match lexed.token {
            Ok(Token::End) => return (words, problem),
            Ok(Token::Word { text, quoted }) => {
                words.push(Word { text, span, quoted });
                continue;
            }
            Ok(Token::Semicolon) => unexpected(';', span).hint(NO_DELIMITERS),
            Ok(Token::Open) => unexpected('{', span).hint(NO_DELIMITERS),
            Ok(Token::Close) => unexpected('}', span).hint(NO_DELIMITERS),
            Err(error) => {
                let (found, meant) = mistake(error, &lexed, &scalar.text, &mut places);
                words.push(Word {
                    text: meant.to_owned(),
                    span,
                    quoted: true,
                });
                found
            }
        };
        problem = problem.or(Some(found));
    }
}

/// What to say about an error, and the text that was probably meant.
fn mistake<'a>(
    error: LexError,
    lexed: &Lexed,
    text: &'a str,
    places: &mut ScalarPlaces,
) -> (Diagnostic, &'a str) {
    let span = places.span(lexed.from, lexed.to);
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let word = part(lexed.from, lexed.to);
    match error {
        LexError::BareBraces { brace_at } => {
            let hint = format!("quote the regular expression as nginx wants it: \"{word}\"");
            (
                unexpected('{', places.span(brace_at, brace_at + 1)).hint(hint),
                word,
            )
        }
        LexError::AfterQuote {
            character,
            quote_at,
        } => (
            unexpected(character, Span { length: 1, ..span })
                .hint("after a closing quote only white space or \")\" may follow"),
            part(quote_at + 1, lexed.from - 1),
        ),
        LexError::Unclosed { quote }
        | LexError::TooLong {
            quote: Some(quote), ..
        } => {
            let message = format!("unexpected end of the value, expecting \"{quote}\"");
            (
                Diagnostic::error(span, message).hint("the quote inside the value is not closed"),
                part(lexed.from + 1, lexed.to),
            )
        }
        LexError::TooLong { quote: None, .. } => {
            (Diagnostic::error(span, "too long parameter"), word)
        }
    }
}

fn unexpected(character: char, span: Span) -> Diagnostic {
    Diagnostic::error(span, format!("unexpected \"{character}\""))
}
