//! Which directives of a block may change places: YAML has each name once in a mapping, so repetitions move together, unless
//! that would change what the configuration means. Then the block becomes a list of mappings, which keeps the order.

use super::items::Item;
use crate::directives::BlockKind;
use crate::scope::Scope;
use std::collections::BTreeSet;

/// Instructions that are carried out in their order.
const REWRITE: [&str; 5] = ["set", "if", "rewrite", "return", "break"];
/// Rules of which the first that fits decides.
const ACCESS: [&str; 2] = ["allow", "deny"];
/// What an include may bring in whose order among its own kind matters.
const KINDS: [&str; 4] = ["server", "location", "upstream", "include"];

/// Names of directives that an `include` stands for.
#[derive(Debug, Clone, Default)]
pub(super) enum Names {
    /// It may be anything.
    #[default]
    Unknown,
    /// These; with a mask, files may be added later.
    Known {
        /// The names.
        names: BTreeSet<String>,
        /// Whether it is a mask.
        mask: bool,
    },
}

/// Directives of one name, one behind the other in YAML.
#[derive(Debug)]
pub(super) struct Group<'i> {
    pub(super) name: &'i str,
    pub(super) items: Vec<&'i Item>,
}

/// The mappings that a block is written as. `strict`: nothing changes places.
pub(super) fn parts(items: &[Item], scope: Scope, strict: bool) -> Vec<Vec<Group<'_>>> {
    let mut parts: Vec<Vec<Group<'_>>> = Vec::new();
    for item in items {
        if let Some(part) = parts.last_mut()
            && add(part, item, scope, strict)
        {
            continue;
        }
        parts.push(vec![Group {
            name: item.name(),
            items: vec![item],
        }]);
    }
    parts
}

/// Adds to a mapping, if that is possible.
fn add<'i>(part: &mut Vec<Group<'i>>, item: &'i Item, scope: Scope, strict: bool) -> bool {
    let Some(at) = part.iter().position(|group| group.name == item.name()) else {
        part.push(Group {
            name: item.name(),
            items: vec![item],
        });
        return true;
    };
    let overtaken = part.get(at + 1..).unwrap_or_default();
    let free = overtaken.is_empty()
        || !strict
            && overtaken
                .iter()
                .flat_map(|group| &group.items)
                .all(|other| may_swap(item, other));
    if !free || !repeats(item.name(), scope) {
        return false;
    }
    if let Some(group) = part.get_mut(at) {
        group.items.push(item);
    }
    true
}

/// Whether a key of YAML can stand for several of this name.
fn repeats(name: &str, scope: Scope) -> bool {
    if scope.holds_entries() || name == "return" {
        return false;
    }
    let entry = scope.entry(name);
    name == "include"
        || entry.is_some_and(|entry| {
            entry.repeatable || entry.block_takes_args() && entry.block != BlockKind::None
        })
}

/// Whether the order of these two does not matter.
fn may_swap(one: &Item, other: &Item) -> bool {
    match (one.name() == "include", other.name() == "include") {
        (false, false) => !in_order(one.name(), other.name()),
        (true, false) => leaves_alone(&one.brings, other.name()),
        (false, true) => leaves_alone(&other.brings, one.name()),
        (true, true) => false,
    }
}

fn in_order(one: &str, other: &str) -> bool {
    let both = |names: &[&str]| names.contains(&one) && names.contains(&other);
    both(&REWRITE) || both(&ACCESS)
}

fn leaves_alone(brings: &Names, name: &str) -> bool {
    let Names::Known { names, mask } = brings else {
        return false;
    };
    let ordered = KINDS.contains(&name) || REWRITE.contains(&name) || ACCESS.contains(&name);
    let meets = names
        .iter()
        .any(|brought| brought == name || brought == "include" || in_order(brought, name));
    let may_meet = *mask && ordered;
    !meets && !may_meet
}
