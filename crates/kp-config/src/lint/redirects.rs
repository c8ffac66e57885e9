//! Traps of redirects and of what is passed on: decoded paths, URIs that swallow others, fields that are lost.

use super::{Here, inside};
use crate::diagnostic::Diagnostic;
use crate::explain::uses;

/// Looks at one directive.
pub(super) fn check(here: Here<'_>, found: &mut Vec<Diagnostic>) {
    match here.name() {
        "return" | "rewrite" => found.extend(decoded(here)),
        "proxy_pass" => found.extend(swallowing(here)),
        "http" | "server" | "location" | "if" => found.extend(lost_fields(here)),
        _ => {}
    }
}

/// `$uri` in a redirect.
fn decoded(here: Here<'_>) -> Option<Diagnostic> {
    let status = |text: &str| matches!(text, "301" | "302" | "303" | "307" | "308");
    let index = match (here.name(), here.arg(0)?, here.arg(1), here.arg(2)) {
        ("return", code, Some(_), _) if status(code) => 1,
        ("return", _, None, _) => 0,
        ("rewrite", _, Some(_), Some("redirect" | "permanent")) => 1,
        ("rewrite", _, Some(to), _)
            if to.starts_with("http://")
                || to.starts_with("https://")
                || to.starts_with("$scheme") =>
        {
            1
        }
        _ => return None,
    };
    let target = here.arg(index)?;
    let name = ["uri", "document_uri"]
        .into_iter()
        .find(|name| uses(target, name))?;
    Some(here.warning(
        index,
        format!("the redirect is made of \"${name}\", which is decoded: \"%0A\" and \"%3F\" of a path become what they stand for"),
        "use \"$request_uri\", which is as the client sent it",
    ))
}

/// With variables in the host, a path replaces the whole URI of the request.
fn swallowing(here: Here<'_>) -> Option<Diagnostic> {
    let location = here.inside("location")?;
    // Of one path there is nothing to lose, and to a named location things are sent on purpose.
    let fixed = |word: &crate::syntax::Word| word.text == "=" || word.text.starts_with('@');
    if location.args.first().is_some_and(fixed) {
        return None;
    }
    let (_, rest) = here.arg(0)?.split_once("://")?;
    let (authority, path) = rest.split_once('/')?;
    if !authority.contains('$') || path.contains('$') || authority.starts_with("unix:") {
        return None;
    }
    Some(here.warning(
        0,
        format!("every request of this location is passed on as \"/{path}\""),
        "with variables a path replaces the whole URI: leave it out, or say what follows, such as \"$request_uri\"",
    ))
}

/// A level with its own `add_header` takes none from those around it.
fn lost_fields(here: Here<'_>) -> Option<Diagnostic> {
    let fields = |block| {
        inside(block)
            .iter()
            .filter(|one| one.name.text == "add_header")
    };
    let name = |one: &crate::syntax::Directive| {
        one.args.first().map(|word| word.text.to_ascii_lowercase())
    };
    let own: Vec<_> = fields(here.directive).collect();
    let first = own.first()?;
    let above = here
        .around
        .iter()
        .rev()
        .find(|block| fields(block).next().is_some())?;
    let mut lost: Vec<&str> = Vec::new();
    for field in fields(above) {
        let Some(word) = field.args.first() else {
            continue;
        };
        let kept = own.iter().any(|own| name(own) == name(field));
        if !kept && !lost.contains(&word.text.as_str()) {
            lost.push(&word.text);
        }
    }
    if lost.is_empty() {
        return None;
    }
    let quoted: Vec<String> = lost.iter().map(|name| format!("\"{name}\"")).collect();
    let message = format!(
        "\"add_header\" here drops the inherited {}",
        quoted.join(", ")
    );
    let hint = format!(
        "a level with its own \"add_header\" takes none from the {} around it; repeat them here",
        above.name.text
    );
    Some(Diagnostic::warning(first.at, message).hint(hint))
}
