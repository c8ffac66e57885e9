//! The tree both front ends produce: directives with arguments and blocks, each with its place.
//!
//! nginx text gives it directly. YAML gives it by these rules: a key is a directive name; a scalar is its arguments in
//! nginx's lexing, a list of scalars its arguments (for a repeatable directive: repetitions); a mapping is its block (for
//! block directives whose nginx form has an argument, such as `upstream`, `location` and `map`, the mapping's keys are that
//! argument); order is kept.

use crate::span::{FileId, Span};
use std::path::PathBuf;
use std::sync::Arc;

/// One word of a directive, unquoted and unescaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The text. nginx words are bytes, YAML scalars are UTF-8; invalid UTF-8 in a file is an error with its place.
    pub text: String,
    /// Its place, quotes included.
    pub span: Span,
    /// Whether it was quoted (then `}` and the like in it never ended anything).
    pub quoted: bool,
}

/// One directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// Its name: in YAML the key, which several repetitions of a list share. The place for "unknown" and "not allowed here".
    pub name: Word,
    /// Where this occurrence stands: the name in nginx's form, the value or list element in YAML. The place for a wrong
    /// number of arguments, a duplicate, a missing block.
    pub at: Span,
    /// Its arguments.
    pub args: Vec<Word>,
    /// Its block, if it has one; the span is the `{` (or the YAML mapping's first key).
    pub block: Option<Block>,
}

/// The inside of `{ … }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Where it was opened.
    pub opened: Span,
    /// What stands in it, includes already expanded.
    pub directives: Vec<Directive>,
}

/// One reading of a file. A file that is included in two places is here twice (sharing its text), so that a finding in it
/// can say by which way it was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its path as opened; for [`Origin::CommandLine`] the words "command line".
    pub path: PathBuf,
    /// Its text, kept for carets and for `-T`.
    pub text: Arc<str>,
    /// How it was reached.
    pub origin: Origin,
    /// The blocks in it, in the order of their opening.
    pub blocks: Vec<BlockRange>,
}

/// How a [`Source`] was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The file that was named on the command line.
    Main,
    /// The text of `-g`.
    CommandLine,
    /// An `include`, with the place of its argument.
    Include(Span),
}

/// From where to where a block reaches, for naming what encloses a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRange {
    /// Where it is opened: the directive's name, in YAML the key or list element it belongs to.
    pub name: Span,
    /// What it is called in messages: `location "/api/"`.
    pub label: String,
    /// Line and column before its first character: those of the `{`, or of what is before the first key in YAML.
    pub from: (u32, u32),
    /// Line and column of its last character: the `}`, or the end of the text where that is missing.
    pub to: (u32, u32),
}

/// Every file that was read, in the order of first reading; [`crate::span::FileId`] indexes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources {
    /// The files.
    pub files: Vec<Source>,
}

impl Sources {
    /// The file a span points into.
    pub fn file(&self, id: FileId) -> Option<&Source> {
        self.files.get(id.0 as usize)
    }

    /// The blocks around a place, innermost first, through the includes that led to it.
    pub fn enclosing(&self, place: Span) -> Vec<(Span, &str)> {
        let mut found = Vec::new();
        let mut place = place;
        // An include points into a file that was read before, so this walk ends; the bound says so.
        for _ in 0..self.files.len() {
            let Some(source) = self.file(place.file) else {
                break;
            };
            let at = (place.line, place.column);
            let here = source
                .blocks
                .iter()
                .filter(|block| block.from < at && at <= block.to);
            found.extend(here.rev().map(|block| (block.name, block.label.as_str())));
            match source.origin {
                Origin::Include(by) => place = by,
                Origin::Main | Origin::CommandLine => break,
            }
        }
        found
    }
}
