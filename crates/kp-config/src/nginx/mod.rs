//! nginx's syntax: words, `;`, `{`, `}`, comments, quotes.

mod complaint;
pub(crate) mod lexer;
pub(crate) mod parser;
#[cfg(test)]
mod tests;
