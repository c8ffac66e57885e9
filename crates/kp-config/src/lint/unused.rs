//! What is defined and used by nothing: mostly the rest of a typing mistake, or of something that was taken out.

use super::{inside, visit};
use crate::diagnostic::Diagnostic;
use crate::explain::uses;
use crate::scope::Scope;
use crate::syntax::{Directive, Word};

/// Finds definitions without a use.
pub(super) fn check(tree: &[Directive], found: &mut Vec<Diagnostic>) {
    let mut words = Vec::new();
    collect(tree, &mut words);
    let mut definitions = Vec::new();
    visit(tree, Scope::MAIN, &mut Vec::new(), &mut |here| {
        definitions.extend(definition(here.directive));
    });
    // A name that is made of variables may be any.
    let made = words
        .iter()
        .any(|used| used.by == "proxy_pass" && authority(&used.word.text).contains('$'));
    for definition in definitions {
        let is_used = words.iter().any(|used| {
            let itself = used.word.span.same_place(definition.span);
            !itself && definition.is_meant(used)
        });
        let may_be_made = made && definition.kind == "upstream";
        if !is_used && !may_be_made {
            found.push(definition.finding());
        }
    }
}

/// A word, and the directive it is an argument of; of an entry of a block, the block.
struct Used<'t> {
    by: &'t str,
    word: &'t Word,
}

fn collect<'t>(tree: &'t [Directive], words: &mut Vec<Used<'t>>) {
    for directive in tree {
        let by = directive.name.text.as_str();
        words.push(Used {
            by,
            word: &directive.name,
        });
        words.extend(directive.args.iter().map(|word| Used { by, word }));
        collect(inside(directive), words);
    }
}

/// What is between the scheme and the path of a URL.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

struct Definition {
    kind: &'static str,
    name: String,
    span: crate::Span,
}

/// What a directive defines.
fn definition(directive: &Directive) -> Option<Definition> {
    let args = directive.args.as_slice();
    let zone = || args.iter().find(|word| word.text.starts_with("zone="));
    let (kind, word) = match directive.name.text.as_str() {
        "log_format" => ("log_format", args.first()?),
        "map" => ("map", args.get(1)?),
        "upstream" => ("upstream", args.first()?),
        "limit_req_zone" => ("limit_req_zone", zone()?),
        "limit_conn_zone" => ("limit_conn_zone", zone()?),
        _ => return None,
    };
    let name = word
        .text
        .trim_start_matches("zone=")
        .trim_start_matches('$');
    let name = name.split(':').next().unwrap_or(name);
    Some(Definition {
        kind,
        name: name.to_ascii_lowercase(),
        span: word.span,
    })
}

impl Definition {
    /// Whether a word may mean this.
    fn is_meant(&self, used: &Used<'_>) -> bool {
        let text = used.word.text.to_ascii_lowercase();
        match self.kind {
            "map" => uses(&text, &self.name),
            "log_format" => used.by == "access_log" && text == self.name,
            "limit_req_zone" => used.by == "limit_req" && text == format!("zone={}", self.name),
            "limit_conn_zone" => used.by == "limit_conn" && text == self.name,
            _ => text.contains(&self.name),
        }
    }

    fn finding(&self) -> Diagnostic {
        let Self { kind, name, span } = self;
        let (message, hint) = match *kind {
            "map" => (
                format!("nothing uses the variable \"${name}\" of this map"),
                "use it where it was meant, or remove the map",
            ),
            "log_format" => (
                format!("no \"access_log\" uses the format \"{name}\""),
                "name it behind the file: `access_log FILE NAME;`, or remove it",
            ),
            "upstream" => (
                format!("no \"proxy_pass\" names the upstream \"{name}\""),
                "pass requests to it: `proxy_pass http://NAME;`, or remove it",
            ),
            "limit_req_zone" => (
                format!("no \"limit_req\" uses the zone \"{name}\": nothing is limited"),
                "write `limit_req zone=NAME;` where the limit is to hold",
            ),
            _ => (
                format!("no \"limit_conn\" uses the zone \"{name}\": nothing is limited"),
                "write `limit_conn NAME number;` where the limit is to hold",
            ),
        };
        Diagnostic::warning(*span, message).hint(hint)
    }
}
