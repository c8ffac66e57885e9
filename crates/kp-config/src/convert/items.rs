//! A text in nginx's syntax as it is written: directives with the comments that belong to them, includes not followed.
//!
//! The text has been read without syntax errors before; what this finds wrong all the same is passed over.

use super::order;
use crate::nginx::lexer::{Lexer, Places, Token};
use crate::nginx::parser::TextPlaces;
use crate::span::{FileId, Span};
use crate::syntax::{Block, Directive, Sources, Word};

/// A directive as it is written.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// Name and arguments; of a block the head only.
    pub(super) head: Directive,
    /// What the block holds.
    pub(super) block: Option<Items>,
    /// Comments above it, each without its `#`.
    pub(super) comments: Vec<String>,
    /// The comment behind it on its line.
    pub(super) trailing: Option<String>,
    /// Whether an empty line stands above it.
    pub(super) apart: bool,
    /// Its bytes in the text.
    pub(super) bytes: (usize, usize),
    /// Names that an `include` brings in, where they are known.
    pub(super) brings: order::Names,
}

impl Item {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.head.name.text
    }

    /// Its arguments.
    pub(super) fn args(&self) -> impl Iterator<Item = &str> + Clone {
        self.head.args.iter().map(|word| word.text.as_str())
    }

    /// Whether a place lies in its head: in its name or in one of its arguments, or where the block opens. A file that is
    /// included twice is the same text.
    pub(super) fn has(&self, place: Span, sources: &Sources) -> bool {
        let words = std::iter::once(&self.head.name).chain(&self.head.args);
        let opened = self.head.block.as_ref().map(|block| block.opened);
        let mut spans = words.map(|word| word.span).chain(opened);
        let path = |span: Span| sources.file(span.file).map(|source| &source.path);
        spans.any(|span| {
            span.line == place.line
                && (span.column..=span.column + span.length).contains(&place.column)
                && path(span) == path(place)
        })
    }
}

/// What stands in a block or file.
#[derive(Debug, Clone, Default)]
pub(super) struct Items {
    /// The directives in their order.
    pub(super) list: Vec<Item>,
    /// Comments behind the last one.
    pub(super) rest: Vec<String>,
}

/// Reads a text.
pub(super) fn read(file: FileId, text: &str) -> Items {
    let mut reader = Reader {
        text,
        lexer: Lexer::new(text),
        places: TextPlaces::new(file, text),
        end: 0,
        begun: 0,
        words: Vec::new(),
        comments: Vec::new(),
        apart: false,
        here: Items::default(),
        outer: Vec::new(),
    };
    reader.run();
    reader.here
}

struct Reader<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    places: TextPlaces<'a>,
    /// The end of the last token.
    end: usize,
    /// Where the directive begins that is being read.
    begun: usize,
    words: Vec<Word>,
    comments: Vec<String>,
    apart: bool,
    here: Items,
    /// The blocks around, with the directive that opened the next one.
    outer: Vec<(Items, Item)>,
}

impl Reader<'_> {
    fn run(&mut self) {
        loop {
            let lexed = self.lexer.next();
            self.gap(lexed.from);
            self.end = lexed.to;
            let span = self.places.span(lexed.from, lexed.to);
            match lexed.token {
                Ok(Token::Word { text, quoted }) => {
                    if self.words.is_empty() {
                        self.begun = lexed.from;
                    }
                    self.words.push(Word { text, span, quoted });
                }
                Ok(Token::Semicolon) => {
                    if let Some(item) = self.item(None) {
                        self.here.list.push(item);
                    }
                }
                Ok(Token::Open) => self.open(span),
                Ok(Token::Close) => self.close(),
                Ok(Token::End) => {
                    while !self.outer.is_empty() {
                        self.close();
                    }
                    self.here.rest.append(&mut self.comments);
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// Takes the comments between two tokens.
    fn gap(&mut self, to: usize) {
        let gap = self.text.get(self.end..to).unwrap_or_default();
        let gap = gap.strip_prefix('\u{feff}').unwrap_or(gap);
        for (number, line) in gap.split('\n').enumerate() {
            let line = line.trim();
            let Some(comment) = line.strip_prefix('#') else {
                // The first and the last piece share their line with a token.
                let whole = number > 0 && number < gap.matches('\n').count();
                self.apart |= whole && line.is_empty() && self.comments.is_empty();
                continue;
            };
            let comment = clean(comment);
            let complete = self.words.is_empty();
            match self.here.list.last_mut() {
                Some(last) if number == 0 && complete && last.trailing.is_none() => {
                    last.trailing = Some(comment);
                }
                _ => self.comments.push(comment),
            }
        }
    }

    fn item(&mut self, opened: Option<Span>) -> Option<Item> {
        let mut words = std::mem::take(&mut self.words).into_iter();
        let name = words.next()?;
        let head = Directive {
            at: name.span,
            name,
            args: words.collect(),
            block: opened.map(|opened| Block {
                opened,
                directives: Vec::new(),
            }),
        };
        Some(Item {
            head,
            block: None,
            comments: std::mem::take(&mut self.comments),
            trailing: None,
            apart: std::mem::take(&mut self.apart),
            bytes: (self.begun, self.end),
            brings: order::Names::default(),
        })
    }

    fn open(&mut self, brace: Span) {
        if let Some(item) = self.item(Some(brace)) {
            self.outer.push((std::mem::take(&mut self.here), item));
        }
    }

    fn close(&mut self) {
        let Some((outer, mut item)) = self.outer.pop() else {
            return;
        };
        let mut inside = std::mem::replace(&mut self.here, outer);
        inside.rest.append(&mut self.comments);
        self.apart = false;
        item.bytes.1 = self.end;
        item.block = Some(inside);
        self.here.list.push(item);
    }
}

/// A comment as YAML may have it.
fn clean(comment: &str) -> String {
    let printable = |one: char| {
        if one.is_control() && one != '\t' {
            ' '
        } else {
            one
        }
    };
    comment.trim_end().chars().map(printable).collect()
}
