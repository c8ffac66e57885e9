//! Text (YAML or nginx syntax) → one complete, immutable [`Config`], or a list of diagnostics with positions.
//!
//! `sources` reads files, `nginx` and `yaml` turn their text into the same [`syntax::Directive`] tree, `directives`
//! is the table of what may stand where, `resolve` applies defaults, inheritance and cross-checks exactly once.

mod compile;
pub mod diagnostic;
pub mod directives;
mod draft;
mod dump;
pub mod model;
mod nginx;
mod render;
mod resolve;
mod scope;
mod sources;
pub mod span;
pub mod suggest;
pub mod syntax;
pub mod template;
#[cfg(test)]
mod testing;
mod value;
mod yaml;

pub use diagnostic::{Diagnostic, Severity};
pub use dump::dump;
pub use model::Config;
pub use render::render;
pub use resolve::Environment;
pub use span::{Span, Spanned};
pub use syntax::Sources;

use std::path::PathBuf;

/// What to load.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The configuration file (`-c`); its ending chooses the syntax (`.yaml`, `.yml`: YAML, else nginx's). Relative to the
    /// prefix.
    pub path: PathBuf,
    /// The prefix (`-p`): what relative log, pid and temporary paths and `root` are relative to.
    pub prefix: PathBuf,
    /// Directives in front of the file's (`-g`), in nginx's syntax.
    pub globals: Option<String>,
    /// The error log until the configuration says otherwise (`-e`).
    pub error_log: Option<PathBuf>,
    /// Whether host names are looked up; without, each is taken as found (for tools and tests).
    pub resolve_names: bool,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration; there is one exactly if no diagnostic is an error.
    pub config: Option<Config>,
    /// Findings, sorted by place.
    pub diagnostics: Vec<Diagnostic>,
    /// What was read, for [`render()`] and [`dump()`].
    pub sources: Sources,
}
