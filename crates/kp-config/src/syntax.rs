//! The tree both front ends produce: directives with arguments and blocks, each with its place.
//!
//! nginx text gives it directly. YAML gives it by these rules: a key is a directive name; a scalar is its arguments in
//! nginx's lexing, a list of scalars its arguments (for a repeatable directive: repetitions); a mapping is its block (for
//! block directives whose nginx form has an argument, such as `upstream`, `location` and `map`, the mapping's keys are that
//! argument); order is kept.

use crate::span::Span;

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
    /// Its name.
    pub name: Word,
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

/// One file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its path as opened.
    pub path: std::path::PathBuf,
    /// Its text, kept for carets and for `-T`.
    pub text: String,
}

/// Every file that was read, in the order of first reading; [`crate::span::FileId`] indexes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources {
    /// The files.
    pub files: Vec<Source>,
}
