//! Words to directives, collecting every syntax error of a file.
//!
//! It decides nesting and where to go on after a mistake, so that one mistake gives one finding. Which directives exist
//! and how many arguments they take is not its business, except for seeing where a `;` was forgotten. The wording is
//! nginx's (`ngx_conf_parse`). It keeps its own stack: the depth of the text never becomes depth of calls.

use crate::diagnostic::Diagnostic;
use crate::nginx::complaint::Complaint;
use crate::nginx::lexer::{LexError, Lexed, Lexer, Places, Token};
use crate::scope::{self, Scope};
use crate::sources::Reader;
use crate::span::{FileId, Span};
use crate::syntax::{Block, Directive, Word};
use std::sync::Arc;

/// A file with more syntax errors than this is not a configuration; the rest of it is not read.
const ERRORS_MAX: usize = 50;

/// Directives with any number of arguments of which none can be the name of a directive.
const TAKES_PARAMETERS: [&str; 2] = ["listen", "server"];

/// What a text is: the command line's has its own wording and no blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file.
    File,
    /// The text of `-g`.
    CommandLine,
}

impl Kind {
    /// What is said where a directive is not complete at the end of the text.
    pub(crate) fn unexpected_end(self) -> &'static str {
        match self {
            Self::CommandLine => "unexpected end of parameter, expecting \";\"",
            Self::File => "unexpected end of file, expecting \";\" or \"}\"",
        }
    }
}

/// Reads the directives of one text, includes expanded. Findings go to the reader.
pub(crate) fn parse(
    reader: &mut Reader,
    file: FileId,
    text: &Arc<str>,
    kind: Kind,
    scope: Scope,
) -> Vec<Directive> {
    let lexer = match kind {
        Kind::File => Lexer::new(text),
        Kind::CommandLine => Lexer::unlimited(text),
    };
    let mut parser = Parser {
        reader,
        text,
        lexer,
        places: TextPlaces::new(file, text),
        kind,
        words: Vec::new(),
        here: Level {
            opener: None,
            scope,
            directives: Vec::new(),
        },
        outer: Vec::new(),
        errors: 0,
        line: 0,
        indentation: 1,
        suspect: None,
    };
    parser.run();
    parser.here.directives
}

struct Parser<'a> {
    reader: &'a mut Reader,
    text: &'a str,
    lexer: Lexer<'a>,
    places: TextPlaces<'a>,
    kind: Kind,
    /// The words of the directive that is being read.
    words: Vec<Word>,
    /// The block that is being read.
    here: Level,
    /// The blocks around it, outermost first.
    outer: Vec<Level>,
    errors: usize,
    /// The line of the last token and the column of the first token on it.
    line: u32,
    indentation: u32,
    /// The first block whose `}` is not indented like its opening line: where a brace is probably missing.
    suspect: Option<Span>,
}

/// A block on the stack.
struct Level {
    opener: Option<Opener>,
    scope: Scope,
    directives: Vec<Directive>,
}

/// What opened a block.
struct Opener {
    /// The directive's words; empty where there was only a `{`, and then the content is read for its errors and dropped.
    words: Vec<Word>,
    opened: Span,
    /// The column in which the line of the `{` begins.
    indentation: u32,
    /// Its entry in the source's list of blocks.
    range: usize,
}

impl Parser<'_> {
    fn run(&mut self) {
        while self.errors < ERRORS_MAX {
            let lexed = self.lexer.next();
            let span = self.places.span(lexed.from, lexed.to);
            if span.line != self.line {
                self.line = span.line;
                self.indentation = span.column;
            }
            match lexed.token {
                Ok(Token::Word { text, quoted }) => self.words.push(Word { text, span, quoted }),
                Ok(Token::Semicolon) if self.words.is_empty() => {
                    let problem = Diagnostic::error(span, "unexpected \";\"");
                    self.error(problem.hint("there is no directive in front of it; remove it"));
                }
                Ok(Token::Semicolon) => self.end_directive(),
                Ok(Token::Open) => self.open(span),
                Ok(Token::Close) => self.close(span),
                Ok(Token::End) => return self.end(span),
                Err(error) => self.lex_error(error, &lexed, span),
            }
        }
        self.abandon();
    }

    /// A directive without a block is complete.
    fn end_directive(&mut self) {
        let words = std::mem::take(&mut self.words);
        let words = self.split_at_missing_semicolon(words);
        self.add(words, None);
    }

    /// A directive is over though it has no `;`, which was reported. What may be missing from it is not reported, too.
    fn end_unfinished(&mut self) {
        let words = std::mem::take(&mut self.words);
        let words = self.split_at_missing_semicolon(words);
        if self.is_plausible(&words) {
            self.add(words, None);
        }
    }

    fn is_plausible(&self, words: &[Word]) -> bool {
        let scope = self.here.scope;
        let Some((name, args)) = words.split_first() else {
            return false;
        };
        if scope.holds_entries() {
            return args.len() == 1 || (args.len() > 1 && !scope.is_map());
        }
        let entry = scope.own_entry(&name.text);
        entry.is_none_or(|entry| entry.block.may_be_left_out() && entry.arity.accepts(args.len()))
    }

    fn add(&mut self, words: Vec<Word>, block: Option<Block>) {
        let mut words = words.into_iter();
        let Some(name) = words.next() else { return };
        let args: Vec<Word> = words.collect();
        if name.text == "include" && block.is_none() {
            let included = self.reader.include(&name, &args, self.here.scope);
            self.here.directives.extend(included);
            return;
        }
        let at = name.span;
        self.here.directives.push(Directive {
            name,
            at,
            args,
            block,
        });
    }

    fn open(&mut self, brace: Span) {
        let words = std::mem::take(&mut self.words);
        let mut words = self.split_at_missing_semicolon(words);
        let name = words.first();
        let inside = self
            .here
            .scope
            .inside(name.map_or("", |name| name.text.as_str()));
        let dropped_already = self
            .here
            .opener
            .as_ref()
            .is_some_and(|opener| opener.words.is_empty());
        let problem = self.why_no_block(name, brace, inside);
        if dropped_already || problem.is_some() {
            words.clear();
        }
        if let Some(problem) = problem.filter(|_| !dropped_already) {
            self.lose(problem);
        }
        let name = words.first().map_or(brace, |word| word.span);
        let range = self.reader.open_block(brace, name, &words);
        let opener = Some(Opener {
            words,
            opened: brace,
            indentation: self.indentation,
            range,
        });
        let level = Level {
            opener,
            scope: inside,
            directives: Vec::new(),
        };
        self.outer.push(std::mem::replace(&mut self.here, level));
    }

    /// Why there can be no block of this name here.
    fn why_no_block(&self, name: Option<&Word>, brace: Span, inside: Scope) -> Option<Diagnostic> {
        let Some(name) = name else {
            let problem = Diagnostic::error(brace, "unexpected \"{\"");
            return Some(problem.hint("the name of the block is missing in front of it"));
        };
        if self.here.scope.holds_entries() && !self.here.scope.is_log_format() {
            let problem = Diagnostic::error(brace, "unexpected \"{\"");
            return Some(
                problem.hint("there are no blocks here, only entries that end with \";\""),
            );
        }
        if self.kind == Kind::CommandLine {
            let problem =
                Diagnostic::error(name.span, "block directives are not supported in -g option");
            return Some(problem.hint("write the block in the configuration file"));
        }
        inside.too_deep().then(|| scope::too_deep(name.span))
    }

    fn close(&mut self, brace: Span) {
        if let Some(name) = self.words.first() {
            let hint = format!(
                "the directive \"{}\" on line {} is not terminated by \";\"",
                name.text, name.span.line
            );
            self.error(Diagnostic::error(brace, "unexpected \"}\"").hint(hint));
            self.end_unfinished();
        } else if self.outer.is_empty() {
            return self.lose(
                Diagnostic::error(brace, "unexpected \"}\"").hint("every block is closed already"),
            );
        }
        self.suspect = self.suspect.or_else(|| self.misaligned(brace));
        self.leave(brace);
    }

    /// Closes the innermost block.
    fn leave(&mut self, closed: Span) {
        let Some(outer) = self.outer.pop() else {
            return;
        };
        let level = std::mem::replace(&mut self.here, outer);
        let Some(opener) = level.opener else { return };
        self.reader.close_block(opener.range, closed);
        self.add(
            opener.words,
            Some(Block {
                opened: opener.opened,
                directives: level.directives,
            }),
        );
    }

    fn end(&mut self, end: Span) {
        if !self.words.is_empty() {
            let message = self.kind.unexpected_end();
            let hint = self.words.first().map(|name| {
                format!(
                    "the directive \"{}\" on line {} is not terminated by \";\"",
                    name.text, name.span.line
                )
            });
            self.lose(Diagnostic {
                hint,
                ..Diagnostic::error(end, message)
            });
            self.end_unfinished();
        } else if let (Some(Opener { opened, .. }), Kind::File) = (&self.here.opener, self.kind) {
            let hint = match self.suspect {
                Some(suspect) if suspect.line != opened.line => format!(
                    "the block opened on line {} is not closed; by the indentation, the \"}}\" is missing in the one opened on line {}",
                    opened.line, suspect.line
                ),
                _ => format!("the block opened on line {} is not closed", opened.line),
            };
            self.lose(Diagnostic::error(end, "unexpected end of file, expecting \"}\"").hint(hint));
        }
        while !self.outer.is_empty() {
            self.leave(end);
        }
    }

    /// Too many errors: what was read so far stays.
    fn abandon(&mut self) {
        let end = self.places.span(self.text.len(), self.text.len());
        let message = "too many syntax errors, the rest of this file was not read";
        self.reader
            .report_loss(Diagnostic::error(end, message).hint("begin with the first one above"));
        self.words.clear();
        while !self.outer.is_empty() {
            self.leave(end);
        }
    }

    fn lex_error(&mut self, error: LexError, lexed: &Lexed, span: Span) {
        let complaint = Complaint {
            text: self.text,
            kind: self.kind,
            braces_are_blocks: !self.here.scope.holds_entries(),
        };
        self.error(complaint.about(error, lexed, span));
        // What was probably meant takes the word's place, so that the mistake is not also reported as a missing argument.
        match error {
            LexError::Unclosed { .. } | LexError::TooLong { ended: false, .. } => {
                self.take_rest_of_line(lexed.from, span);
            }
            LexError::AfterQuote { quote_at, .. } => {
                let text = self
                    .text
                    .get(quote_at + 1..lexed.from - 1)
                    .unwrap_or_default()
                    .to_owned();
                let span = self.places.span(quote_at, lexed.from);
                self.words.push(Word {
                    text,
                    span,
                    quoted: true,
                });
            }
            LexError::BareBraces { .. } | LexError::TooLong { .. } => {
                let text = self
                    .text
                    .get(lexed.from..lexed.to)
                    .unwrap_or_default()
                    .to_owned();
                self.words.push(Word {
                    text,
                    span,
                    quoted: false,
                });
            }
        }
    }

    /// Ends a word without end where its first line ends.
    fn take_rest_of_line(&mut self, from: usize, span: Span) {
        self.lexer.resume_after_line_of(from);
        let line = self
            .text
            .get(from..)
            .and_then(|rest| rest.lines().next())
            .unwrap_or_default();
        let line = line.trim_start_matches(['"', '\'']).trim_end();
        let text = line
            .trim_end_matches([';', '{', '"', '\''])
            .trim_end()
            .to_owned();
        self.words.push(Word {
            text,
            span,
            quoted: true,
        });
        match line.chars().next_back() {
            Some('{') => self.open(Span { length: 1, ..span }),
            _ => self.end_unfinished(),
        }
    }

    /// Where a line begins with the name of a directive although the one before it was not ended, it is ended there, if
    /// the words as they stand cannot be right.
    fn split_at_missing_semicolon(&mut self, mut words: Vec<Word>) -> Vec<Word> {
        while let Some((split, whole_is_valid)) = self.missing_semicolon(&words) {
            let rest = words.split_off(split);
            let (Some(name), Some(last)) = (words.first(), words.last()) else {
                return rest;
            };
            let behind = Span {
                column: last.span.column + last.span.length,
                length: 1,
                ..last.span
            };
            let message = format!("directive \"{}\" is not terminated by \";\"", name.text);
            if whole_is_valid {
                let next = rest.first().map_or("", |word| word.text.as_str());
                let warning = Diagnostic::warning(
                    behind,
                    format!(
                        "\"{next}\" on the next line is an argument of \"{}\"",
                        name.text
                    ),
                );
                self.reader.report(warning.hint("is a \";\" missing here?"));
                words.extend(rest);
                return words;
            }
            self.error(Diagnostic::error(behind, message).hint("write a \";\" here"));
            self.add(words, None);
            words = rest;
        }
        words
    }

    /// The index of the word before which a `;` is missing, and whether the words would also be valid without it.
    fn missing_semicolon(&self, words: &[Word]) -> Option<(usize, bool)> {
        let scope = self.here.scope;
        let name = words.first()?;
        let entry = scope
            .own_entry(&name.text)
            .filter(|_| !scope.holds_entries())?;
        let begins_line = |at: usize| {
            words
                .get(at - 1)
                .zip(words.get(at))
                .is_some_and(|(before, word)| word.span.line > before.span.line)
        };
        let split = (1..words.len()).find(|at| {
            let word = words.get(*at).filter(|word| !word.quoted);
            begins_line(*at) && word.is_some_and(|word| scope.own_entry(&word.text).is_some())
        })?;
        let plain = entry.block.may_be_left_out();
        let name_is_flag = name.text == "rewrite" && words.get(split)?.text == "break";
        let whole =
            entry.arity.accepts(words.len() - 1) && !TAKES_PARAMETERS.contains(&name.text.as_str());
        (plain && !name_is_flag && entry.arity.accepts(split - 1)).then_some((split, whole))
    }

    /// The opening of the innermost block, if this `}` begins its line with another indentation than the opening line has.
    fn misaligned(&self, brace: Span) -> Option<Span> {
        let opener = self.here.opener.as_ref()?;
        let first_on_line = self.indentation == brace.column;
        let aligned = opener.indentation == brace.column || opener.opened.line == brace.line;
        (first_on_line && !aligned).then_some(opener.opened)
    }

    /// An error after which the blocks may not be those that were meant.
    fn lose(&mut self, diagnostic: Diagnostic) {
        self.errors += 1;
        self.reader.report_loss(diagnostic);
    }

    fn error(&mut self, diagnostic: Diagnostic) {
        self.errors += 1;
        self.reader.report(diagnostic);
    }
}

/// Places in a file's own text.
pub(crate) struct TextPlaces<'a> {
    file: FileId,
    text: &'a str,
    offset: usize,
    line: u32,
    column: u32,
}

impl<'a> TextPlaces<'a> {
    /// Starts at the beginning.
    pub(crate) fn new(file: FileId, text: &'a str) -> Self {
        Self {
            file,
            text,
            offset: 0,
            line: 1,
            column: 1,
        }
    }
}

impl Places for TextPlaces<'_> {
    fn span(&mut self, from: usize, to: usize) -> Span {
        if from < self.offset {
            *self = Self::new(self.file, self.text);
        }
        for character in self.text.get(self.offset..from).unwrap_or_default().chars() {
            if character == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.offset = from;
        let covered = self.text.get(from..to).unwrap_or_default().chars();
        let length = covered
            .take_while(|character| !matches!(character, '\n' | '\r'))
            .count();
        Span {
            file: self.file,
            line: self.line,
            column: self.column,
            length: (length as u32).max(1),
        }
    }
}
