//! Items as YAML: which of the forms of `docs/yaml.md` each directive takes.

use super::items::{Item, Items};
use super::order::{self, Group};
use super::scalar::{is_bare, quoted_word, scalar, word, words};
use crate::directives::{BlockKind, Entry};
use crate::scope::Scope;

/// The longest line that a list is written on.
const LINE_MAX: usize = 100;
/// The longest key that YAML finds without a mark (YAML 1.2 §7.4.2: 1024 characters).
const KEY_MAX: usize = 1000;
/// Directives whose first argument names what the others are: a mapping reads best.
const NAMED: [&str; 5] = [
    "proxy_set_header",
    "add_header",
    "add_trailer",
    "log_format",
    "set",
];

/// A whole text. `strict`: every directive keeps its place.
pub(super) fn yaml(items: &Items, scope: Scope, strict: bool) -> String {
    let mut writer = Writer {
        out: String::new(),
        strict,
    };
    writer.block(items, scope, 0);
    writer.out
}

struct Writer {
    out: String,
    strict: bool,
}

impl Writer {
    /// The inside of a block. Nothing at all is written for an empty one.
    fn block(&mut self, items: &Items, scope: Scope, indent: usize) {
        let parts = order::parts(&items.list, scope, self.strict);
        match parts.as_slice() {
            [] => {}
            [part] => self.mapping(part, scope, indent),
            parts => {
                for part in parts {
                    self.element(indent, |writer| writer.mapping(part, scope, indent + 2));
                }
            }
        }
        self.comments(&items.rest, indent);
    }

    /// An element of a list: what is written inside gets a dash in front of its first line that is no comment.
    fn element(&mut self, indent: usize, write: impl FnOnce(&mut Self)) {
        let outer = std::mem::take(&mut self.out);
        write(self);
        let inner = std::mem::replace(&mut self.out, outer);
        let mut dashed = false;
        for line in inner.lines() {
            let content = line.get(indent + 2..).unwrap_or_default();
            let is_content = !dashed && !content.is_empty() && !content.starts_with('#');
            if is_content {
                dashed = true;
                self.out.push_str(&" ".repeat(indent));
                self.out.push_str("- ");
                self.out.push_str(content);
            } else {
                self.out.push_str(line);
            }
            self.out.push('\n');
        }
    }

    fn mapping(&mut self, groups: &[Group<'_>], scope: Scope, indent: usize) {
        for group in groups {
            let entry = scope.entry(group.name).filter(|_| !scope.holds_entries());
            match entry {
                Some(entry) if matches!(entry.block, BlockKind::Optional(_)) => {
                    self.optional_blocks(entry, group, scope, indent);
                }
                Some(entry) if entry.block != BlockKind::None && entry.block_takes_args() => {
                    self.argument_blocks(group, scope, indent);
                }
                Some(entry) if entry.block != BlockKind::None => {
                    self.bare_blocks(entry, group, scope, indent);
                }
                _ if scope.holds_entries() && group.name != "include" => {
                    self.data(group, scope, indent);
                }
                _ => self.simple(entry, group, indent),
            }
        }
    }

    /// Comments of an item, and the empty line above it.
    fn above(&mut self, item: &Item, indent: usize) {
        let begins = self.out.is_empty() || self.out.ends_with(":\n");
        if item.apart && !begins && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
        self.comments(&item.comments, indent);
    }

    fn comments(&mut self, comments: &[String], indent: usize) {
        for comment in comments {
            let blank = if comment.starts_with([' ', '#']) || comment.is_empty() {
                ""
            } else {
                " "
            };
            self.line(indent, &format!("#{blank}{comment}"));
        }
    }

    fn line(&mut self, indent: usize, text: &str) {
        self.out.push_str(&" ".repeat(indent));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// `key: value`, with the comment that stands behind it.
    fn pair(&mut self, indent: usize, key: &str, value: &str, item: Option<&Item>) {
        let mut line = self.key(indent, key);
        if !value.is_empty() {
            line.push(' ');
            line.push_str(value);
        }
        if let Some(comment) = item.and_then(|item| item.trailing.as_ref()) {
            line.push_str("  #");
            if !comment.starts_with(' ') {
                line.push(' ');
            }
            line.push_str(comment);
        }
        self.out.push_str(&line);
        self.out.push('\n');
    }

    /// A key up to its colon.
    fn key(&self, indent: usize, key: &str) -> String {
        let blanks = " ".repeat(indent);
        match key.chars().count() {
            ..=KEY_MAX => format!("{blanks}{key}:"),
            _ => format!("{blanks}? {key}\n{blanks}:"),
        }
    }

    /// A directive without a block.
    fn simple(&mut self, entry: Option<&Entry>, group: &Group<'_>, indent: usize) {
        let name = group.name;
        let is_list = name != "return" && entry.is_none_or(|entry| entry.repeatable);
        match group.items.as_slice() {
            [item] => {
                self.above(item, indent);
                let value = one(entry, item, false);
                match value {
                    Some(value) => self.pair(indent, name, &value, Some(item)),
                    None if self.is_named(group) => self.named(group, indent),
                    None => self.arguments(indent, name, item, is_list),
                }
            }
            items if self.is_named(group) => {
                // The empty line belongs above the whole.
                if let Some(first) = items.first().filter(|first| first.apart) {
                    self.above(
                        &Item {
                            comments: Vec::new(),
                            ..Item::clone(first)
                        },
                        indent,
                    );
                }
                self.named(group, indent);
            }
            items => self.repeated(entry, name, items, indent),
        }
    }

    /// Whether a group can be a mapping from first arguments to the others.
    fn is_named(&self, group: &Group<'_>) -> bool {
        let mut keys: Vec<&str> = group
            .items
            .iter()
            .filter_map(|item| item.args().next())
            .collect();
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        NAMED.contains(&group.name)
            && keys.len() == all
            && all == group.items.len()
            && group.items.iter().all(|item| item.args().count() >= 2)
    }

    fn named(&mut self, group: &Group<'_>, indent: usize) {
        let single = group.items.len() == 1;
        self.pair(indent, group.name, "", None);
        for (number, item) in group.items.iter().enumerate() {
            if !single {
                let apart = item.apart && number > 0;
                self.above(
                    &Item {
                        apart,
                        ..Item::clone(item)
                    },
                    indent + 2,
                );
            }
            let mut args = item.args();
            let key = scalar(&word(args.next().unwrap_or_default()), false);
            let values: Vec<&str> = args.collect();
            match values.as_slice() {
                [value] => self.pair(indent + 2, &key, &scalar(value, false), Some(item)),
                values => self.list(indent + 2, &key, values, Some(item)),
            }
        }
    }

    /// `key: [a, b]`, on several lines where one is not enough.
    fn list(&mut self, indent: usize, key: &str, values: &[&str], item: Option<&Item>) {
        let flow: Vec<String> = values.iter().map(|value| scalar(value, true)).collect();
        let flow = format!("[{}]", flow.join(", "));
        if indent + key.len() + flow.len() <= LINE_MAX {
            return self.pair(indent, key, &flow, item);
        }
        self.pair(indent, key, "", item);
        for value in values {
            self.line(indent + 2, &format!("- {}", scalar(value, false)));
        }
    }

    /// Arguments that are no scalar, each as it is.
    fn arguments(&mut self, indent: usize, name: &str, item: &Item, is_list: bool) {
        let values: Vec<&str> = item.args().collect();
        if !is_list {
            return self.list(indent, name, &values, Some(item));
        }
        let flow: Vec<String> = values.iter().map(|value| scalar(value, true)).collect();
        self.pair(
            indent,
            name,
            &format!("[[{}]]", flow.join(", ")),
            Some(item),
        );
    }

    /// A list of repetitions.
    fn repeated(&mut self, entry: Option<&Entry>, name: &str, items: &[&Item], indent: usize) {
        let quiet = items.iter().skip(1).all(|item| item.comments.is_empty())
            && items.iter().all(|item| item.trailing.is_none());
        let flow: Vec<String> = items
            .iter()
            .map(|item| element(entry, item, true))
            .collect();
        let flow = format!("[{}]", flow.join(", "));
        let Some(first) = items.first() else { return };
        if quiet && indent + name.len() + flow.len() <= LINE_MAX {
            self.above(first, indent);
            return self.pair(indent, name, &flow, None);
        }
        if first.apart {
            self.above(
                &Item {
                    comments: Vec::new(),
                    ..Item::clone(first)
                },
                indent,
            );
        }
        self.pair(indent, name, "", None);
        for item in items {
            self.comments(&item.comments, indent + 2);
            let mut line = format!("- {}", element(entry, item, false));
            if let Some(comment) = &item.trailing {
                line.push_str("  # ");
                line.push_str(comment.trim_start());
            }
            self.line(indent + 2, &line);
        }
    }

    /// An entry of `map` or `types`.
    fn data(&mut self, group: &Group<'_>, scope: Scope, indent: usize) {
        for item in &group.items {
            self.above(item, indent);
            let key = scalar(group.name, false);
            if item.block.is_some() {
                self.value(indent, &key, item, scope.inside(group.name));
                continue;
            }
            let values: Vec<&str> = item.args().collect();
            match values.as_slice() {
                [] => self.pair(indent, &key, "", Some(item)),
                [value] if scope.is_map() || scope.is_log_format() => {
                    self.pair(indent, &key, &scalar(value, false), Some(item));
                }
                values
                    if values.iter().all(|value| is_bare(value))
                        && !scope.is_map()
                        && !scope.is_log_format() =>
                {
                    let text = words(values.iter().copied());
                    self.pair(indent, &key, &scalar(&text, false), Some(item));
                }
                values => self.list(indent, &key, values, Some(item)),
            }
        }
    }

    /// `http`, `server`, `types`.
    fn bare_blocks(&mut self, entry: &Entry, group: &Group<'_>, scope: Scope, indent: usize) {
        let inside = scope.inside(group.name);
        let several = |item: &Item| {
            let items = item
                .block
                .as_ref()
                .map_or([].as_slice(), |block| block.list.as_slice());
            order::parts(items, inside, self.strict).len() > 1
        };
        let single = match group.items.as_slice() {
            // A list would be taken for several blocks.
            [item] => !(entry.repeatable && several(item)),
            _ => false,
        };
        for (number, item) in group.items.iter().enumerate() {
            if single {
                self.above(item, indent);
                self.value(indent, group.name, item, inside);
                continue;
            }
            if number == 0 {
                self.pair(indent, group.name, "", None);
            }
            self.above(item, indent + 2);
            let empty = Items::default();
            let block = item.block.as_ref().unwrap_or(&empty);
            if block.list.is_empty() {
                self.comments(&block.rest, indent + 2);
                self.line(indent + 2, "- {}");
            } else {
                self.element(indent + 2, |writer| writer.block(block, inside, indent + 4));
            }
        }
    }

    /// `location`, `upstream`, `map`.
    fn argument_blocks(&mut self, group: &Group<'_>, scope: Scope, indent: usize) {
        let inside = scope.inside(group.name);
        let keys: Vec<String> = group.items.iter().map(|item| block_key(item)).collect();
        let mut mappings: Vec<Vec<usize>> = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            let free = |mapping: &&mut Vec<usize>| {
                !mapping.iter().any(|other| keys.get(*other) == Some(key))
            };
            match mappings.last_mut().filter(free) {
                Some(mapping) => mapping.push(number),
                None => mappings.push(vec![number]),
            }
        }
        // What was left out in front of the first one is no part of the group.
        let is_loss = |comment: &String| comment.starts_with(super::NOT_CONVERTED);
        let first = group.items.first();
        let hoisted = first.is_some_and(|first| first.comments.iter().any(is_loss));
        if let Some(first) = first.filter(|first| first.apart || hoisted) {
            let mut head = Item::clone(first);
            if !hoisted {
                head.comments.clear();
            }
            self.above(&head, indent);
        }
        self.pair(indent, group.name, "", None);
        let is_list = mappings.len() > 1;
        for mapping in mappings {
            let write = |writer: &mut Self, indent: usize| {
                for number in mapping {
                    let (Some(item), Some(key)) = (group.items.get(number), keys.get(number))
                    else {
                        continue;
                    };
                    let mut head = Item::clone(item);
                    head.apart &= number > 0;
                    if number == 0 && hoisted {
                        head.comments.clear();
                    }
                    writer.above(&head, indent);
                    writer.value(indent, &scalar(key, false), item, inside);
                }
            };
            if is_list {
                self.element(indent + 2, |writer| write(writer, indent + 4));
            } else {
                write(self, indent + 2);
            }
        }
    }

    /// `log_format`, with a block or without.
    fn optional_blocks(&mut self, entry: &Entry, group: &Group<'_>, scope: Scope, indent: usize) {
        if group.items.iter().all(|item| item.block.is_none()) {
            return self.simple(Some(entry), group, indent);
        }
        let inside = scope.inside(group.name);
        self.pair(indent, group.name, "", None);
        for item in &group.items {
            // Each in a mapping of its own, so that nothing is said of names that stand twice.
            self.element(indent + 2, |writer| {
                writer.above(item, indent + 4);
                if item.block.is_some() {
                    writer.value(indent + 4, &scalar(&block_key(item), false), item, inside);
                    return;
                }
                let mut args = item.args();
                let key = scalar(&word(args.next().unwrap_or_default()), false);
                let values: Vec<&str> = args.collect();
                writer.list(indent + 4, &key, &values, Some(item));
            });
        }
    }

    /// A key with a block. Nothing, with comments below it, is an empty one.
    fn value(&mut self, indent: usize, key: &str, item: &Item, inside: Scope) {
        let empty = Items::default();
        let block = item.block.as_ref().unwrap_or(&empty);
        if block.list.is_empty() && block.rest.is_empty() {
            return self.pair(indent, key, "{}", Some(item));
        }
        self.pair(indent, key, "", Some(item));
        self.block(block, inside, indent + 2);
    }
}

/// The arguments of a block as a key.
fn block_key(item: &Item) -> String {
    match item.args().count() {
        // Nothing but a blank is no argument; an empty text would be one.
        0 => " ".to_owned(),
        _ if item.name() == "if" => condition(item),
        _ => words(item.args()),
    }
}

/// The arguments of `if`. A parenthesis that stands by itself stood behind a quote, where it needs no blank.
fn condition(item: &Item) -> String {
    let args: Vec<&str> = item.args().collect();
    match args.as_slice() {
        [before @ .., last, ")"] => {
            let head = words(before.iter().copied());
            format!("{head} {})", quoted_word(last))
        }
        args => words(args.iter().copied()),
    }
}

/// One occurrence as a scalar, if it can be one.
fn one(entry: Option<&Entry>, item: &Item, flow: bool) -> Option<String> {
    let args: Vec<&str> = item.args().collect();
    let optional = entry.is_some_and(|entry| entry.arity.accepts(0));
    match args.as_slice() {
        [] if optional => Some("on".to_owned()),
        [] if flow => Some("~".to_owned()),
        [] => Some(String::new()),
        [switch @ ("on" | "off")] if !optional && entry.is_some() => Some((*switch).to_owned()),
        // Of a scalar that is empty the one word is empty.
        [""] => Some("\"\"".to_owned()),
        [only] if is_bare(only) => Some(scalar(only, flow)),
        args if args.iter().all(|arg| is_bare(arg)) => Some(scalar(&args.join(" "), flow)),
        _ => None,
    }
}

/// One occurrence as an element of a list.
fn element(entry: Option<&Entry>, item: &Item, flow: bool) -> String {
    if let Some(value) = one(entry, item, flow) {
        return match value.as_str() {
            "" => "~".to_owned(),
            _ => value,
        };
    }
    let args: Vec<String> = item.args().map(|arg| scalar(arg, true)).collect();
    format!("[{}]", args.join(", "))
}
