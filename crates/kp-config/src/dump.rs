//! `-T`: every file of the configuration, each once, in nginx's form.

use crate::syntax::{Origin, Sources};
use std::collections::HashSet;

/// The files as they were read, each under its name. The text of `-g` is no file.
pub fn dump(sources: &Sources) -> String {
    let mut out = String::new();
    let mut seen = HashSet::new();
    for source in &sources.files {
        if source.origin == Origin::CommandLine || !seen.insert(&source.path) {
            continue;
        }
        out.push_str("# configuration file ");
        out.push_str(&source.path.to_string_lossy());
        out.push_str(":\n");
        out.push_str(&source.text);
        out.push('\n');
    }
    out
}
