//! Text (YAML or nginx syntax) → one complete, immutable [`Config`], or a list of diagnostics with positions.
//!
//! `sources` reads files, `nginx` and `yaml` turn their text into the same [`syntax::Directive`] tree, `directives`
//! is the table of what may stand where, `resolve` applies defaults, inheritance and cross-checks exactly once.

pub mod diagnostic;
pub mod directives;
pub mod model;
pub mod span;
pub mod syntax;
pub mod template;

pub use diagnostic::{Diagnostic, Severity};
pub use model::Config;
pub use span::{Span, Spanned};
