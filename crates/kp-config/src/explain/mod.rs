//! `kp explain`: what a directive or a variable is, and what it does in a configuration.
//!
//! It writes what the table of directives knows. What a configuration does with it is read from the tree of directives
//! (`here`), so that it can be told of one with mistakes, too.

mod here;
mod variables;

pub use here::Tree;
pub(crate) use here::uses;

use crate::directives::{self, Contexts, Entry, Origin};
use crate::foreign::{self, foreign};
use crate::suggest::nearest;
use crate::template::Builtin;
use std::fmt::Write;

/// How many related directives are named.
const RELATED_MAX: usize = 8;

/// What is known about a name: a directive, or a variable with its `$`. With a tree, what it does there, too. `Err`: the
/// name is unknown, and what to say about that.
pub fn explain(name: &str, tree: Option<&Tree>) -> Result<String, String> {
    if let Some(variable) = name.strip_prefix('$') {
        let inner = variable
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        return about_variable(inner.unwrap_or(variable), tree);
    }
    let entries: Vec<&Entry> = directives::named(name).collect();
    if entries.is_empty() {
        return Err(unknown(name));
    }
    let mut out = String::new();
    for entry in entries {
        if !out.is_empty() {
            out.push('\n');
        }
        about_directive(entry, &mut out);
        if let Some(tree) = tree {
            here::directive(entry, tree, &mut out);
        }
    }
    Ok(out)
}

/// Every directive by the block it may stand in, then the variables.
pub fn list() -> String {
    let mut out = String::new();
    for context in Contexts::each() {
        let mut names: Vec<&str> = directives::all()
            .filter(|entry| entry.contexts.contains(context) && entry.name != "include")
            .map(|entry| entry.name)
            .collect();
        if names.is_empty() {
            continue;
        }
        names.sort_unstable();
        let _ = writeln!(out, "In {}:", context.names().collect::<String>());
        wrapped(names.into_iter().map(str::to_owned), &mut out);
        out.push('\n');
    }
    out.push_str("Anywhere:\n  include\n\nVariables:\n");
    let mut names: Vec<&str> = Builtin::ALL.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    wrapped(names.into_iter().map(|name| format!("${name}")), &mut out);
    out
}

fn about_directive(entry: &Entry, out: &mut String) {
    let end = if entry.block.may_be_left_out() {
        ";"
    } else {
        ""
    };
    let space = if entry.syntax.is_empty() { "" } else { " " };
    let _ = writeln!(out, "{}{space}{}{end}", entry.name, entry.syntax);
    let _ = writeln!(out, "\n  {}\n", entry.doc);
    let contexts: Vec<&str> = entry.contexts.names().collect();
    let _ = writeln!(out, "  in YAML   {}", yaml_form(entry));
    let _ = writeln!(out, "  stands in {}", contexts.join(", "));
    let _ = writeln!(out, "  default   {}", entry.default.unwrap_or("none"));
    if entry.repeatable {
        out.push_str("  repeated  it may stand more than once; in YAML as a list\n");
    }
    let origin = match entry.origin() {
        Origin::Nginx => "nginx has it",
        Origin::Plus => "of nginx's editions the commercial one has it",
        Origin::Kp => "it is kp's own; nginx does not know it",
    };
    let _ = writeln!(out, "  origin    {origin}");
    let related = related(entry);
    if !related.is_empty() {
        let _ = writeln!(out, "  see also  {}", related.join(", "));
    }
}

/// How the directive is written in YAML.
fn yaml_form(entry: &Entry) -> String {
    let name = entry.name;
    if entry.syntax.is_empty() {
        format!("{name}: on")
    } else if entry.block.may_be_left_out() {
        format!("{name}: {}", entry.syntax)
    } else if entry.block_takes_args() {
        let args = entry.syntax.replace(" { ... }", "");
        format!("{name}: {{ \"{args}\": {{ … }} }}")
    } else {
        format!("{name}: {{ … }}")
    }
}

/// Directives that are named in its documentation, name it in theirs, or have the same beginning.
fn related(entry: &Entry) -> Vec<&'static str> {
    let mentions = |doc: &str, name: &str| doc.contains(&format!("`{name}`"));
    let family: String = entry.name.split('_').take(2).collect::<Vec<_>>().join("_");
    let named = directives::all().filter(|other| mentions(entry.doc, other.name));
    let naming = directives::all().filter(|other| mentions(other.doc, entry.name));
    let alike = directives::all().filter(|other| {
        other.contexts.contains(entry.contexts)
            && family.contains('_')
            && other.name.starts_with(&family)
    });
    let mut names = Vec::new();
    for other in named.chain(naming).chain(alike) {
        if other.name != entry.name && !names.contains(&other.name) {
            names.push(other.name);
        }
    }
    names.truncate(RELATED_MAX);
    names
}

fn unknown(name: &str) -> String {
    if let Some(advice) = foreign(name) {
        return format!("kp does not have \"{name}\": {advice}");
    }
    let directive = nearest(name, directives::all().map(|entry| entry.name));
    let variable = Builtin::ALL.iter().any(|(known, _)| *known == name);
    match directive {
        _ if variable => format!("\"{name}\" is no directive but a variable: kp explain '${name}'"),
        Some(near) => format!("unknown directive \"{name}\": did you mean \"{near}\"?"),
        None => parts_of(name),
    }
}

/// Directives that have a part of the name in theirs.
fn parts_of(name: &str) -> String {
    let holds = |entry: &&Entry| !name.is_empty() && entry.name.contains(name);
    let mut names: Vec<&str> = directives::all()
        .filter(holds)
        .map(|entry| entry.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return format!("unknown directive \"{name}\"; `kp explain` alone lists all");
    }
    format!(
        "unknown directive \"{name}\"; with that in their names: {}",
        names.join(", ")
    )
}

fn about_variable(name: &str, tree: Option<&Tree>) -> Result<String, String> {
    let lower = name.to_ascii_lowercase();
    let mut out = String::new();
    let defined = tree
        .map(|tree| here::definitions(tree, &lower))
        .unwrap_or_default();
    if let Some(meaning) = variables::meaning(&lower) {
        let _ = writeln!(out, "${lower}\n\n  {meaning}");
    } else if name.len() == 1 && matches!(name.as_bytes(), [b'1'..=b'9']) {
        let _ = writeln!(
            out,
            "${name}\n\n  A group of the last regular expression that matched."
        );
    } else if !defined.is_empty() {
        let _ = writeln!(out, "${lower}\n\n  A variable of this configuration.");
    } else if let Some((family, meaning)) = variables::family(&lower) {
        let _ = writeln!(out, "${lower}, of the family {family}\n\n  {meaning}");
    } else {
        if let Some(hint) = foreign::of_variable(&lower) {
            return Err(format!("unknown variable \"${name}\": {hint}"));
        }
        let near = nearest(&lower, Builtin::ALL.iter().map(|(name, _)| *name));
        let hint = near.map_or_else(
            || "; set, map and named groups of a configuration define others (-c)".to_owned(),
            |near| format!(": did you mean \"${near}\"?"),
        );
        return Err(format!("unknown variable \"${name}\"{hint}"));
    }
    if let Some(tree) = tree {
        here::variable(&lower, &defined, tree, &mut out);
    }
    Ok(out)
}

/// Names with blanks between them, in lines of 100 columns.
pub fn wrapped(names: impl Iterator<Item = String>, out: &mut String) {
    let mut column = 0;
    for name in names {
        if column > 0 && column + name.len() + 1 > 100 {
            out.push('\n');
            column = 0;
        }
        out.push_str(if column == 0 { "  " } else { " " });
        column += name.len() + 1;
        out.push_str(&name);
    }
    out.push('\n');
}

#[cfg(test)]
mod tests;
