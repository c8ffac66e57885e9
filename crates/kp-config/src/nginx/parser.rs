//! Words to directives, collecting every syntax error of a file.
//!
//! It decides nesting and where to go on after a mistake, so that one mistake gives one finding. Which directives exist
//! and how many arguments they take is not its business, except for seeing where a `;` was forgotten. The wording is
//! nginx's (`ngx_conf_parse`). It keeps its own stack: the depth of the text never becomes depth of calls.

use crate::diagnostic::Diagnostic;
use crate::directives::BlockKind;
use crate::nginx::lexer::{LexError, Lexed, Lexer, Places, Token};
use crate::scope::Scope;
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
                    self.error(Diagnostic::error(span, "unexpected \";\""))
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
        entry.is_none_or(|entry| entry.block == BlockKind::None && entry.arity.accepts(args.len()))
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
        let inside = self
            .here
            .scope
            .inside(words.first().map_or("", |name| name.text.as_str()));
        let dropped_already = self
            .here
            .opener
            .as_ref()
            .is_some_and(|opener| opener.words.is_empty());
        let problem = match (words.first(), self.kind) {
            _ if dropped_already => Some(None),
            (None, _) => Some(Some(Diagnostic::error(brace, "unexpected \"{\""))),
            _ if self.here.scope.holds_entries() => {
                Some(Some(Diagnostic::error(brace, "unexpected \"{\"")))
            }
            (Some(name), Kind::CommandLine) => Some(Some(Diagnostic::error(
                name.span,
                "block directives are not supported in -g option",
            ))),
            (Some(name), Kind::File) if inside.too_deep() => Some(Some(Diagnostic::error(
                name.span,
                "blocks are nested too deep",
            ))),
            _ => None,
        };
        if let Some(problem) = problem {
            words.clear();
            if let Some(problem) = problem {
                self.lose(problem);
            }
        }
        let range = self.reader.open_block(brace, &words);
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
            let message = match self.kind {
                Kind::CommandLine => "unexpected end of parameter, expecting \";\"",
                Kind::File => "unexpected end of file, expecting \";\" or \"}\"",
            };
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
        self.reader.report_loss(Diagnostic::error(
            end,
            "too many syntax errors, the rest of this file was not read",
        ));
        self.words.clear();
        while !self.outer.is_empty() {
            self.leave(end);
        }
    }

    fn lex_error(&mut self, error: LexError, lexed: &Lexed, span: Span) {
        let start = |from: usize| {
            self.text
                .get(from..)
                .unwrap_or_default()
                .chars()
                .take(10)
                .collect::<String>()
        };
        let diagnostic = match error {
            LexError::AfterQuote {
                character,
                quote_at,
            } => {
                let mut quote = TextPlaces::new(span.file, self.text);
                let began = quote.span(quote_at, quote_at);
                let hint = if began.line == span.line {
                    "after a closing quote only white space, \";\", \"{\" or \")\" may follow"
                        .to_owned()
                } else {
                    format!(
                        "the quoted text began on line {}; its closing quote is probably missing there",
                        began.line
                    )
                };
                Diagnostic::error(
                    Span { length: 1, ..span },
                    format!("unexpected \"{character}\""),
                )
                .hint(hint)
            }
            LexError::Unclosed { quote } => {
                let end =
                    TextPlaces::new(span.file, self.text).span(self.text.len(), self.text.len());
                let message = match self.kind {
                    Kind::CommandLine => "unexpected end of parameter, expecting \";\"",
                    Kind::File => "unexpected end of file, expecting \";\" or \"}\"",
                };
                let hint = format!(
                    "the {} opened on line {}, column {} is not closed",
                    name_of(quote),
                    span.line,
                    span.column
                );
                Diagnostic::error(end, message).hint(hint)
            }
            LexError::TooLong { quote: Some(quote) } => {
                let message = format!(
                    "too long parameter, probably missing terminating \"{quote}\" character"
                );
                Diagnostic::error(Span { length: 1, ..span }, message)
            }
            LexError::TooLong { quote: None } => Diagnostic::error(
                span,
                format!("too long parameter \"{}...\" started", start(lexed.from)),
            ),
            LexError::BareBraces { brace_at } => {
                let whole = self.text.get(lexed.from..lexed.to).unwrap_or_default();
                let behind = self.text.get(brace_at + 1..lexed.to).unwrap_or_default();
                let message = if self.here.scope.holds_entries() {
                    "unexpected \"{\"".to_owned()
                } else {
                    format!("unknown directive \"{behind}\"")
                };
                Diagnostic::error(span, message).hint(format!(
                    "a bare \"{{\" begins a block; quote the regular expression: \"{whole}\""
                ))
            }
        };
        self.error(diagnostic);
        // What was probably meant takes the word's place, so that the mistake is not also reported as a missing argument.
        match error {
            LexError::Unclosed { .. } | LexError::TooLong { .. } => {
                self.take_rest_of_line(lexed.from, span)
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
            LexError::BareBraces { .. } => {
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
            self.error(Diagnostic::error(behind, message));
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
        let plain = entry.block == BlockKind::None;
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

fn name_of(quote: char) -> &'static str {
    if quote == '"' {
        "double quote"
    } else {
        "single quote"
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

#[cfg(test)]
mod tests {
    use crate::sources::Reading;
    use crate::span::Span;
    use crate::syntax::{Block, Directive, Word};
    use crate::testing::{any_bytes, findings, meaning, nginx, quote, read_bytes, tree};
    use proptest::prelude::*;

    #[test]
    fn reads_what_nginx_reads() {
        let cases = [
            (r#"location ~ "^/\d{3}/" { }"#, r"location ~ <^/\d{3}/> {}"),
            (r##"set $a "x;y{}#z";"##, "set $a <x;y{}#z>;"),
            (r#"set $a 'it"s';"#, "set $a <it\"s>;"),
            (r#"set $a "a\"b";"#, "set $a <a\"b>;"),
            ("set $a x#y;", "set $a x#y;"),
            ("set $a # why\n x;", "set $a x;"),
            (r#"set $a x"y;"#, "set $a x\"y;"),
            (
                "map $http_user_agent $m { default 0; \"~Opera Mini\" 1; }",
                "map $http_user_agent $m {default 0; <~Opera Mini> 1;}",
            ),
            (
                "map $request_uri $m { default &a=1; }",
                "map $request_uri $m {default &a=1;}",
            ),
            (r#"set $a "${host}x";"#, "set $a <${host}x>;"),
            ("set $a ${host}x;", "set $a ${host}x;"),
            ("set $a \"${host\";", "set $a <${host>;"),
            ("log_format a 'b' # c\n  \"d\"\n;", "log_format a <b> <d>;"),
            ("a b;\r\nc {\r\n}\r\n", "a b; c {}"),
            (r"a b\;c\ d\{ \.\t\n;", "a b\\;c\\ d\\{ \\.\t\n;"),
            (r#"a "\t\r\n\\\'\x" '';"#, "a <\t\r\n\\'\\x> <>;"),
            ("a \"b\nc\";", "a <b\nc>;"),
            ("if ($a = \"b\") { }", "if ($a = <b> ) {}"),
            ("a{b c;}d;", "a {b c;} d;"),
            ("a x}b;", "a x}b;"),
            ("a $b{3 {}}", "a $b {3 {}}"),
            ("\u{feff}a b;", "a b;"),
            ("a ü\u{a0}b;", "a ü\u{a0}b;"),
            ("# nothing\n", ""),
            ("", ""),
        ];
        for (text, expected) in cases {
            let reading = nginx(text);
            assert_eq!(findings(&reading), [""; 0], "{text}");
            assert_eq!(tree(&reading.directives), expected, "{text}");
        }
    }

    #[test]
    fn rejects_what_nginx_rejects_at_the_place() {
        let cases: &[(&str, &[&str])] = &[
            (
                "location ~ ^/\\d{3}/ {\n}\n",
                &["1:12+8 unknown directive \"3}/\""],
            ),
            ("a \"x\"y;\nb;", &["1:6+1 unexpected \"y\""]),
            ("a {\n  b c\n}\n", &["3:1+1 unexpected \"}\""]),
            (
                "a b",
                &["1:4+1 unexpected end of file, expecting \";\" or \"}\""],
            ),
            (
                "a {\n  b;\n",
                &["3:1+1 unexpected end of file, expecting \"}\""],
            ),
            ("a {\n}\n}\nb;\n", &["3:1+1 unexpected \"}\""]),
            (
                "a 'b;\nc;\n",
                &["3:1+1 unexpected end of file, expecting \";\" or \"}\""],
            ),
            (";", &["1:1+1 unexpected \";\""]),
            ("a;;\n", &["1:3+1 unexpected \";\""]),
            ("{ b; }\nc;", &["1:1+1 unexpected \"{\""]),
            (
                "include a b;",
                &["1:1+7 invalid number of arguments in \"include\" directive"],
            ),
            (
                "include;",
                &["1:1+7 invalid number of arguments in \"include\" directive"],
            ),
            (
                "http { map $a $b {\n c{3};\n d\n } }",
                &["2:2+4 unexpected \"{\"", "4:2+1 unexpected \"}\""],
            ),
            ("ä \"ö\"ü;", &["1:6+1 unexpected \"ü\""]),
            ("\ta \"\tb\"c;", &["1:8+1 unexpected \"c\""]),
        ];
        for (text, expected) in cases {
            assert_eq!(&findings(&nginx(text)), expected, "{text}");
        }
    }

    #[test]
    fn every_error_of_a_file_is_found_once() {
        let text = "worker_processes 1;;\n\
            pid \"a\"b;\n\
            http {\n\
            \x20 ;\n\
            \x20 server {\n\
            \x20   listen 80\n\
            \x20   server_name a;\n\
            \x20   location ~ ^/[a-z]{2,4}/ {\n\
            \x20     proxy_pass http://a\n\
            \x20   }\n\
            \x20   { root a; }\n\
            \x20   set $a 'x'y;\n\
            \x20 }\n\
            }\n\
            }\n\
            user 'me;\n";
        let lines: Vec<_> = findings(&nginx(text))
            .into_iter()
            .map(|finding| finding.split(':').next().unwrap().to_owned())
            .collect();
        // The unclosed quote is reported where nginx does, at the end of the file.
        assert_eq!(
            lines,
            ["1", "2", "4", "6", "8", "10", "11", "12", "15", "17"]
        );
    }

    #[test]
    fn a_missing_semicolon_is_found_where_it_is_missing() {
        let reading = nginx(
            "http {\n  server {\n    merge_slashes on\n    listen 80;\n    location /a {\n      proxy_pass http://b\n      proxy_buffering on;\n    }\n    root a\n    location /c { }\n  }\n}\n",
        );
        let expected = [
            "3:21+1 directive \"merge_slashes\" is not terminated by \";\"",
            "6:26+1 directive \"proxy_pass\" is not terminated by \";\"",
            "9:11+1 directive \"root\" is not terminated by \";\"",
        ];
        assert_eq!(findings(&reading), expected);
        let expected = "http {server {merge_slashes on; listen 80; location /a {proxy_pass http://b; proxy_buffering on;} root a; location /c {}}}";
        assert_eq!(tree(&reading.directives), expected);
    }

    #[test]
    fn a_directive_name_on_the_next_line_may_be_an_argument() {
        let reading = nginx("http { server { server_name a\n  listen 80; } }");
        assert_eq!(
            findings(&reading),
            ["warn 1:30+1 \"listen\" on the next line is an argument of \"server_name\""]
        );
        assert_eq!(
            tree(&reading.directives),
            "http {server {server_name a listen 80;}}"
        );
    }

    #[test]
    fn an_unclosed_quote_names_its_beginning() {
        let hint = |text: &str| nginx(text).diagnostics[0].hint.clone().unwrap();
        assert_eq!(
            hint("a;\nb 'c;\n"),
            "the single quote opened on line 2, column 3 is not closed"
        );
        let swallowed = "a \"b;\nc \"d\";\ne;\n";
        assert_eq!(findings(&nginx(swallowed)), ["2:4+1 unexpected \"d\""]);
        assert_eq!(
            hint(swallowed),
            "the quoted text began on line 1; its closing quote is probably missing there"
        );
    }

    #[test]
    fn a_missing_brace_names_its_block() {
        let text = "http {\n  server {\n    location / {\n      root a;\n  }\n}\n";
        let reading = nginx(text);
        assert_eq!(
            findings(&reading),
            ["7:1+1 unexpected end of file, expecting \"}\""]
        );
        let hint = reading.diagnostics[0].hint.as_deref().unwrap();
        assert_eq!(
            hint,
            "the block opened on line 1 is not closed; by the indentation, the \"}\" is missing in the one opened on line 3"
        );
        let span = reading.diagnostics[0].span.unwrap();
        let within: Vec<_> = reading
            .sources
            .enclosing(span)
            .into_iter()
            .map(|(_, label)| label)
            .collect();
        assert_eq!(within, ["http"]);
    }

    #[test]
    fn words_as_long_as_nginx_takes_them() {
        let longest = "x".repeat(4095);
        for text in [format!("a {longest};"), format!("a '{longest}';")] {
            assert_eq!(findings(&nginx(&text)), [""; 0]);
        }
        let bare = nginx(format!("a {longest}x;\nb;"));
        assert_eq!(
            findings(&bare),
            ["1:3+4096 too long parameter \"xxxxxxxxxx...\" started"]
        );
        let quoted = nginx(format!("a;\nc '{longest}x;\nb;"));
        assert_eq!(
            findings(&quoted),
            ["2:3+1 too long parameter, probably missing terminating \"'\" character"]
        );
        assert!(tree(&quoted.directives).ends_with("b;"));
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        let text = format!("{}{}z;", "a {\n".repeat(100_000), "}".repeat(100_000));
        let reading = nginx(text);
        assert_eq!(findings(&reading), ["101:1+1 blocks are nested too deep"]);
        assert!(tree(&reading.directives).ends_with(" z;"));
        let unclosed = nginx("a {".repeat(100_000));
        assert_eq!(unclosed.diagnostics.len(), 2);
    }

    #[test]
    fn a_file_of_nonsense_ends_early() {
        let reading = nginx(";".repeat(100_000));
        assert_eq!(reading.diagnostics.len(), 51);
    }

    /// Writes a tree in nginx's syntax.
    fn print(directives: &[Directive], out: &mut String) {
        for directive in directives {
            for word in std::iter::once(&directive.name).chain(&directive.args) {
                quote(&word.text, out);
                out.push(' ');
            }
            match &directive.block {
                Some(block) => {
                    out.push_str("{\n");
                    print(&block.directives, out);
                    out.push_str("}\n");
                }
                None => out.push_str(";\n"),
            }
        }
    }

    fn any_tree() -> impl Strategy<Value = Vec<Directive>> {
        let word = || {
            "[a-c $;{}\"'\\\\#\n\tü)3]{0,6}".prop_map(|text| Word {
                text,
                span: Span::default(),
                quoted: true,
            })
        };
        let simple =
            (word(), proptest::collection::vec(word(), 0..4)).prop_map(|(name, args)| Directive {
                name,
                at: Span::default(),
                args,
                block: None,
            });
        let directive = simple.prop_recursive(4, 24, 4, |inner| {
            (inner.clone(), proptest::collection::vec(inner, 0..4)).prop_map(
                |(outer, directives)| Directive {
                    block: Some(Block {
                        opened: Span::default(),
                        directives,
                    }),
                    ..outer
                },
            )
        });
        proptest::collection::vec(directive, 0..4)
    }

    fn parse(text: impl AsRef<[u8]>) -> Reading {
        read_bytes(text.as_ref(), "kp.conf")
    }

    proptest! {
        #[test]
        fn a_printed_tree_is_read_back(tree in any_tree()) {
            let mut text = String::new();
            print(&tree, &mut text);
            let reading = parse(&text);
            prop_assert_eq!(findings(&reading), [""; 0]);
            prop_assert_eq!(meaning(&reading.directives), meaning(&tree));
        }

        #[test]
        fn any_bytes_are_read_and_shown(bytes in any_bytes()) {
            let reading = parse(&bytes);
            let shown = crate::render(&reading.diagnostics, &reading.sources);
            prop_assert_eq!(shown.is_empty(), reading.diagnostics.is_empty());
            for diagnostic in &reading.diagnostics {
                let span = diagnostic.span.unwrap();
                let text = &reading.sources.file(span.file).unwrap().text;
                let line = text.split('\n').nth(span.line as usize - 1);
                prop_assert!(span.column as usize <= line.unwrap().chars().count() + 1);
            }
        }
    }
}
