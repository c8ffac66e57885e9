//! Traps of admission: rules that refuse nobody, checks that others pass, names that nobody has.

use super::{Here, inside};
use crate::diagnostic::Diagnostic;

/// Looks at one directive.
pub(super) fn check(here: Here<'_>, found: &mut Vec<Diagnostic>) {
    match here.name() {
        "http" | "server" | "location" | "limit_except" => {
            found.extend(refuses_nobody(here));
            found.extend(names(here));
        }
        "set_real_ip_from" => found.extend(believes_everybody(here)),
        "if" => found.extend(origin_condition(here)),
        "map" => origin_map(here, found),
        _ => {}
    }
}

/// Who fits none of the rules is admitted.
fn refuses_nobody(here: Here<'_>) -> Option<Diagnostic> {
    let rules = inside(here.directive);
    let named = |name: &'static str| rules.iter().filter(move |one| one.name.text == name);
    let everybody =
        |one: &&crate::syntax::Directive| one.args.first().is_some_and(|word| word.text == "all");
    if named("deny").next().is_some() || named("allow").any(|one| everybody(&one)) {
        return None;
    }
    let last = named("allow").next_back()?;
    let message = "\"allow\" alone refuses nobody: a client that fits no rule is admitted";
    Some(Diagnostic::warning(last.at, message).hint("write `deny all;` behind it"))
}

/// An address that a client may make up.
fn believes_everybody(here: Here<'_>) -> Option<Diagnostic> {
    let network = here.arg(0).filter(|network| network.ends_with("/0"))?;
    Some(here.warning(
        0,
        format!("\"set_real_ip_from {network}\" lets every client choose its address"),
        "name the proxies in front of kp: access rules, limits and logs go by this address",
    ))
}

/// Names in `server_name` that no request can have.
fn names(here: Here<'_>) -> Vec<Diagnostic> {
    let directives = inside(here.directive)
        .iter()
        .filter(|one| one.name.text == "server_name");
    let words = directives.flat_map(|one| &one.args);
    let mut found = Vec::new();
    for word in words {
        let text = word.text.as_str();
        if let Some(pattern) = text.strip_prefix('~') {
            if !pattern.starts_with('^') && !pattern.ends_with('$') && !pattern.starts_with('*') {
                let message = format!(
                    "\"{pattern}\" fits names that others have, too: what is before and behind it may be anything"
                );
                found.push(Diagnostic::warning(word.span, message).hint(format!(
                    "write where the name begins and ends: `~^{pattern}$`"
                )));
            }
        } else if text.contains(':') && !text.contains('/') && !text.starts_with('[') {
            let message = format!("no request has the name \"{text}\"");
            found.push(
                Diagnostic::warning(word.span, message)
                    .hint("a name is without a port: that belongs to `listen`"),
            );
        }
    }
    found
}

/// Whether an expression for an origin leaves its beginning or its end open. A dot or the slashes in front of a host begin
/// it, too: `\.example\.com$` fits no host but those below `example.com`.
fn is_open(pattern: &str) -> bool {
    let begins = ["^", "(^", "\\.", "//", "://"];
    let is_begun = begins.iter().any(|start| pattern.starts_with(start));
    !is_begun
        || !pattern.ends_with(['$', ')'])
        || pattern.ends_with(')') && !pattern.ends_with("$)")
}

fn open_origin(span: crate::Span, pattern: &str) -> Diagnostic {
    let message = format!(
        "\"{pattern}\" fits origins of others, too: what is before or behind it may be anything"
    );
    Diagnostic::warning(span, message)
        .hint("begin it with \"^https?://\" and end it with \"$\", dots as \"\\.\"")
}

/// `if ($http_origin ~ …)`
fn origin_condition(here: Here<'_>) -> Option<Diagnostic> {
    let words: Vec<&str> = here
        .directive
        .args
        .iter()
        .map(|word| word.text.as_str())
        .collect();
    let at = match words.as_slice() {
        ["($http_origin", "~" | "~*", ..] => 2,
        ["(", "$http_origin", "~" | "~*", ..] => 3,
        _ => return None,
    };
    let word = here.directive.args.get(at)?;
    let is_last = here.directive.args.len() == at + 1;
    let closed = word.text.strip_suffix(')').filter(|_| is_last);
    let pattern = closed.unwrap_or(&word.text);
    is_open(pattern).then(|| open_origin(word.span, pattern))
}

/// `map $http_origin $allowed { ~…; }`
fn origin_map(here: Here<'_>, found: &mut Vec<Diagnostic>) {
    if here.arg(0) != Some("$http_origin") {
        return;
    }
    for entry in inside(here.directive) {
        let text = entry.name.text.as_str();
        let pattern = text.strip_prefix("~*").or_else(|| text.strip_prefix('~'));
        if let Some(pattern) = pattern.filter(|pattern| is_open(pattern)) {
            found.push(open_origin(entry.name.span, pattern));
        }
    }
}
