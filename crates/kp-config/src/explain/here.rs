//! What a directive does in one configuration: where it stands, what it says there, where that holds and where it does not.

use crate::directives::Entry;
use crate::scope::Scope;
use crate::span::Span;
use crate::syntax::{Directive, Origin, Sources, Word};
use crate::{Diagnostic, LoadOptions, Severity, sources};
use std::fmt::Write;

/// Beyond this many blocks only those are listed in which the directive stands.
const BLOCKS_MAX: usize = 40;
/// How many uses of a variable are listed.
const USES_MAX: usize = 20;

/// A configuration as it is written, includes expanded.
#[derive(Debug)]
pub struct Tree {
    directives: Vec<Directive>,
    sources: Sources,
    /// What could not be read.
    diagnostics: Vec<Diagnostic>,
}

impl Tree {
    /// Reads it; what is wrong with it does not keep the rest from being used.
    pub fn read(options: &LoadOptions) -> Self {
        let reading = sources::read(options);
        Self {
            directives: reading.directives,
            sources: reading.sources,
            diagnostics: reading.diagnostics,
        }
    }

    /// Whether something of it could not be read.
    pub fn is_partial(&self) -> bool {
        let error = |one: &Diagnostic| one.severity == Severity::Error;
        self.diagnostics.iter().any(error)
    }

    /// Whether the main file could be read at all.
    pub fn is_there(&self) -> bool {
        self.sources
            .files
            .first()
            .is_some_and(|source| source.origin == Origin::Main)
    }

    /// What is wrong, for a terminal.
    pub fn rendered(&self) -> String {
        crate::render(&self.diagnostics, &self.sources)
    }

    /// The main file.
    fn name(&self) -> String {
        let main = self.sources.files.first();
        main.map_or_else(String::new, |source| source.path.display().to_string())
    }

    /// `kp.conf:12`
    fn place(&self, span: Span) -> String {
        let Some(source) = self.sources.file(span.file) else {
            return String::new();
        };
        let name = source.path.file_name().unwrap_or(source.path.as_os_str());
        format!("{}:{}", name.to_string_lossy(), span.line)
    }
}

/// A block in which the directive may stand.
struct Level {
    /// Blocks around it in which it may stand, too.
    depth: usize,
    /// The nearest of these, where the directive is inherited.
    above: Option<usize>,
    label: String,
    /// What it says of the directive.
    own: Vec<(Span, String)>,
}

/// Adds what this configuration says of a directive.
pub(super) fn directive(entry: &Entry, tree: &Tree, out: &mut String) {
    let mut levels = Vec::new();
    let label = "main".to_owned();
    walk(
        entry,
        &tree.directives,
        Scope::MAIN,
        label,
        None,
        &mut levels,
    );
    let set: usize = levels.iter().map(|level| level.own.len()).sum();
    let _ = writeln!(out, "\n  In {}:", tree.name());
    if set == 0 {
        let default = entry.default.filter(|_| entry.block.may_be_left_out());
        let what = default.map_or_else(String::new, |default| format!("; what holds is {default}"));
        let _ = writeln!(out, "    it is not there{what}");
        return;
    }
    if entry.inherits() {
        inherited(entry, &levels, tree, out);
    } else {
        each(&levels, tree, out);
    }
}

/// Finds the blocks in which the directive may stand.
fn walk(
    entry: &Entry,
    directives: &[Directive],
    scope: Scope,
    label: String,
    above: Option<usize>,
    levels: &mut Vec<Level>,
) {
    let mut here = above;
    if scope
        .context()
        .is_some_and(|context| entry.contexts.contains(context))
    {
        let own = directives.iter().filter(|one| one.name.text == entry.name);
        here = Some(levels.len());
        levels.push(Level {
            depth: above
                .and_then(|above| levels.get(above))
                .map_or(0, |above| above.depth + 1),
            above,
            label,
            own: own.map(|one| (one.at, text(one))).collect(),
        });
    }
    for one in directives {
        if let Some(block) = &one.block {
            let inside = scope.inside(&one.name.text);
            walk(entry, &block.directives, inside, title(one), here, levels);
        }
    }
}

/// `location "/api/"`, of a server its names.
fn title(block: &Directive) -> String {
    let names = |one: &&Directive| one.name.text == "server_name";
    let named = block
        .block
        .iter()
        .flat_map(|block| &block.directives)
        .filter(names);
    let args: Vec<&str> = block.args.iter().map(|word| word.text.as_str()).collect();
    let args = match block.name.text.as_str() {
        "server" => named
            .flat_map(|one| &one.args)
            .map(|word| word.text.as_str())
            .collect(),
        _ => args,
    };
    let shown: String = args
        .join(" ")
        .chars()
        .filter(|one| !one.is_control())
        .take(60)
        .collect();
    match shown.as_str() {
        "" => block.name.text.clone(),
        _ => format!("{} \"{shown}\"", block.name.text),
    }
}

/// The arguments as they are written in nginx's syntax.
fn text(directive: &Directive) -> String {
    let word = |word: &Word| match word.text.contains([' ', '\t', ';', '"']) || word.text.is_empty()
    {
        true => format!("'{}'", word.text),
        false => word.text.clone(),
    };
    let words: Vec<String> = directive.args.iter().map(word).collect();
    let block = if directive.block.is_some() {
        " { … }"
    } else {
        ""
    };
    let line = format!("{} {}{block}", directive.name.text, words.join(" "));
    line.trim_end()
        .chars()
        .filter(|one| !one.is_control())
        .take(100)
        .collect()
}

/// A directive that holds where it stands only.
fn each(levels: &[Level], tree: &Tree, out: &mut String) {
    for level in levels.iter().filter(|level| !level.own.is_empty()) {
        for (span, text) in &level.own {
            let _ = writeln!(
                out,
                "    {:<18} in {:<30} {text}",
                tree.place(*span),
                level.label
            );
        }
    }
    let without = levels.iter().filter(|level| level.own.is_empty()).count();
    if without > 0 {
        let blocks = if without == 1 {
            "block does"
        } else {
            "blocks do"
        };
        let _ = writeln!(out, "    {without} other {blocks} not have it");
    }
}

/// A directive that blocks take from those around them.
fn inherited(entry: &Entry, levels: &[Level], tree: &Tree, out: &mut String) {
    let all = levels.len() <= BLOCKS_MAX;
    let default = entry.default.unwrap_or("nothing");
    for (index, level) in levels.iter().enumerate() {
        let indent = "  ".repeat(level.depth + 2);
        let source = holder(levels, level.above);
        let title = format!("{indent}{}", level.label);
        if level.own.is_empty() {
            if !all {
                continue;
            }
            let from = match source {
                Some((label, values)) => format!("as in {label}: {}", joined(values)),
                None => format!("default: {default}"),
            };
            let _ = writeln!(out, "{title:<40} {from}");
            continue;
        }
        let over = match source {
            Some((label, _)) if entry.repeatable => format!(" (nothing of {label} holds here)"),
            Some((label, _)) => format!(" (not as in {label})"),
            None => String::new(),
        };
        let below = inheritors(levels, index);
        let below = match below {
            _ if all => String::new(),
            1 => ", and in 1 block below".to_owned(),
            below => format!(", and in {below} blocks below"),
        };
        for (number, (span, text)) in level.own.iter().enumerate() {
            let title = if number == 0 { title.as_str() } else { "" };
            let note = if number == 0 {
                format!("{over}{below}")
            } else {
                String::new()
            };
            let _ = writeln!(out, "{title:<40} {text}, {}{note}", tree.place(*span));
        }
    }
}

/// The nearest block from here outwards that has the directive, and what it says.
fn holder(levels: &[Level], from: Option<usize>) -> Option<(&str, &[(Span, String)])> {
    let mut at = from;
    while let Some(level) = at.and_then(|at| levels.get(at)) {
        if !level.own.is_empty() {
            return Some((&level.label, &level.own));
        }
        at = level.above;
    }
    None
}

fn joined(values: &[(Span, String)]) -> String {
    let texts: Vec<&str> = values.iter().map(|(_, text)| text.as_str()).collect();
    texts.join("; ")
}

/// How many blocks take the directive from this one.
fn inheritors(levels: &[Level], giver: usize) -> usize {
    let takes = |level: &&Level| {
        let mut at = level.above;
        while let Some(index) = at.filter(|_| level.own.is_empty()) {
            if index == giver {
                return true;
            }
            let above = levels.get(index);
            at = above
                .filter(|above| above.own.is_empty())
                .and_then(|above| above.above);
        }
        false
    };
    levels.iter().filter(takes).count()
}

/// Where the configuration defines a variable.
pub(super) fn definitions(tree: &Tree, name: &str) -> Vec<(Span, String)> {
    let is_it = |word: Option<&Word>| {
        word.is_some_and(|word| {
            let text = word.text.strip_prefix('$').unwrap_or_default();
            text.eq_ignore_ascii_case(name)
        })
    };
    let group = |word: &Word| {
        let text = word.text.to_ascii_lowercase();
        ["(?<", "(?p<"]
            .iter()
            .any(|start| text.contains(&format!("{start}{name}>")))
    };
    let mut found = Vec::new();
    visit(&tree.directives, Scope::MAIN, &mut |one, scope| {
        let defines = match one.name.text.as_str() {
            _ if scope.holds_entries() => false,
            "set" => is_it(one.args.first()),
            "map" | "split_clients" => is_it(one.args.get(1)),
            _ => one.args.iter().any(group),
        };
        if defines {
            found.push((one.at, text(one)));
        }
    });
    found
}

/// Adds where a variable comes from and where it is used.
pub(super) fn variable(name: &str, defined: &[(Span, String)], tree: &Tree, out: &mut String) {
    let mut used = Vec::new();
    visit(&tree.directives, Scope::MAIN, &mut |one, _| {
        let here = defined.iter().any(|(span, _)| span.same_place(one.at));
        if !here
            && std::iter::once(&one.name)
                .chain(&one.args)
                .any(|word| uses(&word.text, name))
        {
            used.push((one.at, text(one)));
        }
    });
    let _ = writeln!(out, "\n  In {}:", tree.name());
    for (span, text) in defined {
        let _ = writeln!(out, "    {:<18} defines it: {text}", tree.place(*span));
    }
    for (span, text) in used.iter().take(USES_MAX) {
        let _ = writeln!(out, "    {:<18} uses it: {text}", tree.place(*span));
    }
    match used.len() {
        0 => out.push_str("    nothing uses it\n"),
        many if many > USES_MAX => {
            let _ = writeln!(out, "    and {} more uses", many - USES_MAX);
        }
        _ => {}
    }
}

/// Whether a text has the variable in it, with or without braces.
pub(crate) fn uses(text: &str, name: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.match_indices('$').any(|(at, _)| {
        let rest = text.get(at + 1..).unwrap_or_default();
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let end = rest.find(|one: char| !one.is_ascii_alphanumeric() && one != '_');
        rest.get(..end.unwrap_or(rest.len())) == Some(name)
    })
}

fn visit(directives: &[Directive], scope: Scope, look: &mut impl FnMut(&Directive, Scope)) {
    for one in directives {
        look(one, scope);
        if let Some(block) = &one.block {
            visit(&block.directives, scope.inside(&one.name.text), look);
        }
    }
}
