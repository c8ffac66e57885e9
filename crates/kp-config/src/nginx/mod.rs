//! nginx's syntax: words, `;`, `{`, `}`, comments, quotes.

mod complaint;
pub(crate) mod lexer;
mod lua;
pub(crate) mod parser;
#[cfg(test)]
mod tests;
