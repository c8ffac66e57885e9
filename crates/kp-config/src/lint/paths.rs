//! Traps of paths: where a location matches more or less than it seems to, and files lie elsewhere.

use super::{Here, inside};
use crate::diagnostic::Diagnostic;

/// Looks at one directive.
pub(super) fn check(here: Here<'_>, found: &mut Vec<Diagnostic>) {
    match here.name() {
        "alias" => found.extend(alias(here)),
        "location" => {
            found.extend(never_matches(here).or_else(|| unmarked_expression(here)));
            found.extend(open_extension(here));
        }
        "root" => found.extend(everything(here)),
        _ => {}
    }
}

/// The text of a location that is a prefix.
fn prefix<'t>(args: &[&'t str]) -> Option<&'t str> {
    match args {
        [uri] if !uri.starts_with('@') => Some(uri),
        ["^~", uri] => Some(uri),
        _ => None,
    }
}

fn args(directive: &crate::syntax::Directive) -> Vec<&str> {
    directive
        .args
        .iter()
        .map(|word| word.text.as_str())
        .collect()
}

/// The prefix and the path of an alias should both end with a slash, or neither.
fn alias(here: Here<'_>) -> Option<Diagnostic> {
    let location = here.inside("location")?;
    let (args, path) = (args(location), here.arg(0)?);
    let uri = prefix(&args)?;
    match (uri.ends_with('/'), path.ends_with('/')) {
        (false, true) => Some(here.warning(
            0,
            format!("\"{uri}../x\" is a file beside \"{path}\", not in it"),
            format!("a client may read what lies there: end the location with a slash, too (`location {uri}/`)"),
        )),
        (true, false) if !path.contains('$') => Some(here.warning(
            0,
            format!("\"{uri}x\" is looked for as \"{path}x\""),
            format!("end the path with a slash, too: `alias {path}/;`"),
        )),
        _ => None,
    }
}

/// A path begins with a slash, always.
fn never_matches(here: Here<'_>) -> Option<Diagnostic> {
    let args = args(here.directive);
    let exact = match args.as_slice() {
        ["=", uri] => Some(*uri),
        args => prefix(args),
    };
    let uri = exact.filter(|uri| !uri.starts_with('/') && !uri.is_empty())?;
    let hint = if looks_like_expression(uri) {
        format!("a regular expression has a \"~\" in front: `location ~ {uri}`")
    } else {
        format!("a path begins with a slash: `location /{uri}`")
    };
    let last = args.len().checked_sub(1)?;
    Some(here.warning(last, format!("no path begins with \"{uri}\""), hint))
}

/// An expression without its mark is compared letter by letter.
fn unmarked_expression(here: Here<'_>) -> Option<Diagnostic> {
    let args = args(here.directive);
    let uri = prefix(&args).filter(|uri| looks_like_expression(uri))?;
    let last = args.len().checked_sub(1)?;
    let message = format!("\"{uri}\" is compared letter by letter, it is no regular expression");
    Some(here.warning(
        last,
        message,
        format!("a regular expression has a \"~\" in front: `location ~ ^{uri}`"),
    ))
}

fn looks_like_expression(uri: &str) -> bool {
    uri.starts_with('^')
        || uri.ends_with('$')
        || uri.contains("\\.")
        || uri.contains(".*")
        || uri.contains(".+")
        || uri.contains('|')
}

/// `\.php` without `$` is found in the middle of a path, too.
fn open_extension(here: Here<'_>) -> Option<Diagnostic> {
    let ("~" | "~*", Some(pattern)) = (here.arg(0)?, here.arg(1)) else {
        return None;
    };
    let (before, extension) = pattern.rsplit_once("\\.")?;
    let is_extension = !extension.is_empty()
        && extension
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || matches!(one, '(' | ')' | '|' | '?' | ':'));
    let is_name = extension.starts_with(|one: char| one.is_ascii_alphabetic() || one == '(');
    if before.starts_with('^') || before.ends_with('/') || !is_extension || !is_name {
        return None;
    }
    // What is refused may well be refused in the middle, too.
    if refuses(here.directive) {
        return None;
    }
    let letters: String = extension
        .chars()
        .skip_while(|one| !one.is_ascii_alphanumeric())
        .take_while(char::is_ascii_alphanumeric)
        .collect();
    Some(here.warning(
        1,
        format!("\"{pattern}\" fits in the middle of a path, too: \"/a.{letters}/b\""),
        format!("an expression for the end of a path ends with \"$\": `{pattern}$`"),
    ))
}

/// Whether a location lets nobody in.
fn refuses(location: &crate::syntax::Directive) -> bool {
    inside(location).iter().any(|one| {
        let first = one.args.first().map(|word| word.text.as_str());
        match one.name.text.as_str() {
            "deny" => first == Some("all"),
            "return" => first.is_some_and(|code| code.starts_with('4')),
            _ => false,
        }
    })
}

/// A root that holds what nobody wants to publish.
fn everything(here: Here<'_>) -> Option<Diagnostic> {
    let path = here
        .arg(0)
        .filter(|path| matches!(*path, "/" | "/etc" | "/etc/"))?;
    let narrow = here
        .around
        .last()
        .is_some_and(|block| block.name.text == "location" && args(block) != ["/"]);
    (!narrow).then(|| {
        here.warning(
            0,
            format!("\"root {path}\" publishes every file there that kp may read"),
            "name the directory that is meant to be read",
        )
    })
}
