//! The operating system behind safe functions; the only crate that says `unsafe`.
