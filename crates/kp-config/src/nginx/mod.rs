//! nginx's syntax: words, `;`, `{`, `}`, comments, quotes.

pub(crate) mod lexer;
pub(crate) mod parser;
