//! `map`.

use super::{HttpDraft, Reader};
use crate::diagnostic::Diagnostic;
use crate::model::Map;
use crate::syntax::{Directive, Word};
use crate::template::Template;
use std::collections::HashSet;

impl HttpDraft {
    /// Reads a `map` and its entries.
    pub(crate) fn map(
        &mut self,
        reader: &mut Reader<'_>,
        directive: &Directive,
        entries: &[Directive],
    ) {
        let [source, name] = directive.args.as_slice() else {
            return;
        };
        let source = reader.compile(source);
        let variable = reader.defined(&directive.name, name);
        let lone = |text: &str| {
            entries
                .iter()
                .any(|entry| entry.args.is_empty() && entry.name.text == text)
        };
        let mut map = Map {
            variable: variable.unwrap_or_default(),
            source: source.clone().unwrap_or_default(),
            default: Template::default(),
            exact: Vec::new(),
            wildcards: Vec::new(),
            regexes: Vec::new(),
            hostnames: lone("hostnames"),
            volatile: lone("volatile"),
        };
        let mut seen = Seen::default();
        for entry in entries {
            reader.map_entry(&mut map, &mut seen, entry);
        }
        if source.is_some() && variable.is_some() {
            // As in nginx the last `map` of a variable holds.
            self.maps.retain(|known| known.variable != map.variable);
            self.maps.push(map);
        }
    }
}

/// What one `map` already has.
#[derive(Debug, Default)]
struct Seen {
    default: bool,
    texts: HashSet<String>,
}

impl Reader<'_> {
    fn map_entry(&mut self, map: &mut Map, seen: &mut Seen, entry: &Directive) {
        let key = &entry.name;
        if let Some(block) = &entry.block {
            self.error(block.opened, "unexpected \"{\" in map");
            return;
        }
        let value = match entry.args.as_slice() {
            [] if key.text == "hostnames" || key.text == "volatile" => return,
            [value] => value,
            _ => {
                let error = Diagnostic::error(key.span, "invalid number of the map parameters");
                self.report(
                    error.hint("an entry is a key and a value; blanks in either need quotes"),
                );
                return;
            }
        };
        if key.text == "include" {
            return;
        }
        let Some(value) = self.compile(value) else {
            return;
        };
        if key.text == "default" {
            if seen.default {
                self.error(key.span, "duplicate default map parameter");
            }
            seen.default = true;
            map.default = value;
            return;
        }
        if let Some(pattern) = key.text.strip_prefix('~') {
            let regex = match pattern.strip_prefix('*') {
                Some(pattern) => self.regex(pattern, true, key.span),
                None => self.regex(pattern, false, key.span),
            };
            map.regexes.push((regex, value));
            return;
        }
        self.map_text(map, seen, key, value);
    }

    fn map_text(&mut self, map: &mut Map, seen: &mut Seen, key: &Word, value: Template) {
        // A backslash in front makes any text a plain key: `\default`.
        let text = key
            .text
            .strip_prefix('\\')
            .unwrap_or(&key.text)
            .to_ascii_lowercase();
        let wildcard = map.hostnames
            && (text.starts_with("*.") || text.starts_with('.') || text.ends_with(".*"));
        if map.hostnames && !wildcard && text.contains('*') || text == "." && wildcard {
            self.error(
                key.span,
                format!("invalid hostname or wildcard \"{}\"", key.text),
            );
            return;
        }
        if !seen.texts.insert(text.clone()) {
            let message = format!("conflicting parameter \"{}\"", key.text);
            self.refuse(key.span, message, "the map has this key already");
        } else if wildcard {
            map.wildcards.push((text, value));
        } else {
            map.exact.push((text, value));
        }
    }
}
