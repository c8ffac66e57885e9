//! `kp convert`: a configuration in nginx's syntax as the equal one in YAML.
//!
//! What is written is read again and compared: the same tree, and where the configuration is complete the same `Config`.
//! What kp does not support is told with its place and stays in the result as a comment.

mod items;
mod order;
mod scalar;
#[cfg(test)]
mod tests;
mod write;

use crate::directives::Contexts;
use crate::scope::Scope;
use crate::sources::{self, Reading};
use crate::span::{FileId, Span};
use crate::syntax::{Directive, Origin, Sources};
use crate::{Config, Diagnostic, LoadOptions, Loaded, Severity, draft, load};
use items::{Item, Items};
use order::Names;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What became of a configuration.
#[derive(Debug)]
pub struct Converted {
    /// The YAML.
    pub yaml: String,
    /// What is not in it because kp does not support it.
    pub gaps: Vec<Diagnostic>,
    /// The text that these point into.
    pub sources: Sources,
    /// What keeps the YAML from saying the same as the original, apart from the gaps: a mistake of the conversion.
    pub differences: Vec<String>,
    /// Files that the YAML includes, in nginx's syntax as they are.
    pub included: Vec<std::path::PathBuf>,
}

/// Why a configuration cannot be converted.
#[derive(Debug)]
pub struct Unreadable {
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
    /// The text that these point into.
    pub sources: Sources,
}

/// Converts the file that the options name. `inline`: included files in nginx's syntax are taken into the result. `more`
/// finds what a loaded configuration does not tell by itself, such as regular expressions that cannot be compiled.
///
/// # Errors
///
/// A file that cannot be opened, or whose syntax is broken.
pub fn convert(
    options: &LoadOptions,
    inline: bool,
    more: impl Fn(&Loaded) -> Vec<Diagnostic>,
) -> Result<Converted, Unreadable> {
    let (reading, text) = readable(options)?;
    let mut items = items::read(FileId(0), &text);
    let mut includes = Includes {
        sources: &reading.sources,
        inline,
        kept: BTreeSet::new(),
    };
    includes.follow(&mut items);
    let included = includes.kept.into_iter().collect();
    let scope = scope_of(&items);
    let (gaps, config) = gaps(options, &items, scope, more);
    let mut removed = Vec::new();
    remove(&mut items, &gaps, &reading.sources, &mut removed);
    let check = Check {
        options,
        scope,
        reading: &reading,
        config: config.filter(|_| gaps.is_empty()),
        removed: &removed,
    };
    let mut yaml = write::yaml(&items, scope, false);
    let mut differences = check.differences(&yaml);
    if !differences.is_empty() {
        let strict = write::yaml(&items, scope, true);
        let found = check.differences(&strict);
        if found.len() <= differences.len() {
            (yaml, differences) = (strict, found);
        }
    }
    Ok(Converted {
        yaml,
        gaps,
        sources: reading.sources,
        differences,
        included,
    })
}

/// What was read, and the text of the main file.
fn readable(options: &LoadOptions) -> Result<(Reading, Arc<str>), Unreadable> {
    let reading = sources::read(options);
    let broken = !reading.complete || reading.diagnostics.iter().any(is_error);
    let text = reading
        .sources
        .file(FileId(0))
        .map(|file| Arc::clone(&file.text));
    match text.filter(|_| !broken) {
        Some(text) => Ok((reading, text)),
        None => Err(Unreadable {
            diagnostics: reading.diagnostics,
            sources: reading.sources,
        }),
    }
}

/// What kp does not support of it, and what the rest means if that is all.
fn gaps(
    options: &LoadOptions,
    items: &Items,
    scope: Scope,
    more: impl Fn(&Loaded) -> Vec<Diagnostic>,
) -> (Vec<Diagnostic>, Option<Config>) {
    if scope.context() != Some(Contexts::MAIN) {
        return (of_fragment(items, scope), None);
    }
    let loaded = load(&LoadOptions {
        resolve_names: false,
        ..options.clone()
    });
    let errors = loaded.diagnostics.iter().filter(|one| is_error(one));
    let mut gaps: Vec<Diagnostic> = errors.cloned().collect();
    gaps.extend(more(&loaded));
    (gaps, loaded.config)
}

fn is_error(diagnostic: &Diagnostic) -> bool {
    diagnostic.severity == Severity::Error
}

/// What the text is the inside of: a main file, or one that others include.
fn scope_of(items: &Items) -> Scope {
    let mut best = (0, Scope::MAIN);
    for context in [
        Contexts::MAIN,
        Contexts::HTTP,
        Contexts::SERVER,
        Contexts::LOCATION,
        Contexts::UPSTREAM,
        Contexts::EVENTS,
        Contexts::MATCH,
    ] {
        let scope = Scope::of(context);
        let names = items
            .list
            .iter()
            .map(Item::name)
            .filter(|name| *name != "include");
        let fits = names.filter(|name| scope.own_entry(name).is_some()).count();
        if fits > best.0 {
            best = (fits, scope);
        }
    }
    best.1
}

/// What the table of directives says against a part of a configuration.
fn of_fragment(items: &Items, scope: Scope) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let Some(context) = scope.context().filter(|_| !scope.holds_entries()) else {
        return found;
    };
    for item in &items.list {
        if item.name() == "include" {
            continue;
        }
        match draft::shape_problem(&item.head, context) {
            Some(problem) => found.push(problem),
            None => {
                if let Some(block) = &item.block {
                    found.extend(of_fragment(block, scope.inside(item.name())));
                }
            }
        }
    }
    found
}

/// Follows includes.
struct Includes<'a> {
    sources: &'a Sources,
    inline: bool,
    kept: BTreeSet<std::path::PathBuf>,
}

impl<'a> Includes<'a> {
    fn follow(&mut self, items: &mut Items) {
        let mut list = Vec::with_capacity(items.list.len());
        for mut item in std::mem::take(&mut items.list) {
            if let Some(block) = &mut item.block {
                self.follow(block);
                list.push(item);
                continue;
            }
            if item.name() != "include" {
                list.push(item);
                continue;
            }
            let files = self.files(&item);
            let nginx = files
                .iter()
                .all(|(_, source)| !sources::is_yaml(&source.path));
            if self.inline && nginx && !files.is_empty() {
                self.take_in(&item, &files, &mut list);
                continue;
            }
            self.kept
                .extend(files.iter().map(|(_, source)| source.path.clone()));
            item.brings = brings(&item, &files);
            list.push(item);
        }
        items.list = list;
    }

    /// The files that an include stands for, in their order.
    fn files(&self, item: &Item) -> Vec<(FileId, &'a crate::syntax::Source)> {
        let Some(target) = item.head.args.first() else {
            return Vec::new();
        };
        let named =
            |origin: &Origin| matches!(origin, Origin::Include(by) if by.same_place(target.span));
        let sources: &'a Sources = self.sources;
        let numbered = (0..).map(FileId).zip(&sources.files);
        numbered
            .filter(|(_, source)| named(&source.origin))
            .collect()
    }

    fn take_in(
        &mut self,
        item: &Item,
        files: &[(FileId, &crate::syntax::Source)],
        list: &mut Vec<Item>,
    ) {
        let mut comments = item.comments.clone();
        for (file, source) in files {
            let mut inside = items::read(*file, &source.text);
            self.follow(&mut inside);
            comments.push(format!(" from {}", source.path.display()));
            comments.append(&mut inside.rest);
            if let Some(first) = inside.list.first_mut() {
                comments.append(&mut first.comments);
                first.comments = std::mem::take(&mut comments);
                first.apart = true;
            }
            list.append(&mut inside.list);
        }
    }
}

/// The names that an include brings into its place.
fn brings(item: &Item, files: &[(FileId, &crate::syntax::Source)]) -> Names {
    let mask = item.args().any(|arg| arg.contains(['*', '?', '[']));
    if files.is_empty() && !mask
        || files
            .iter()
            .any(|(_, source)| sources::is_yaml(&source.path))
    {
        return Names::Unknown;
    }
    let tops = files
        .iter()
        .map(|(file, source)| items::read(*file, &source.text));
    let names = tops
        .flat_map(|top| top.list)
        .map(|item| item.head.name.text);
    Names::Known {
        names: names.collect(),
        mask,
    }
}

/// How a comment begins that stands for something that is not in the YAML.
const NOT_CONVERTED: &str = " not converted:";

/// Whether leaving a directive out lets in who was kept out before.
fn is_guard(name: &str) -> bool {
    const GUARDS: [&str; 7] = [
        "access_by_lua",
        "auth_",
        "deny",
        "modsecurity",
        "secure_link",
        "ssl_ocsp",
        "valid_referers",
    ];
    GUARDS.iter().any(|guard| name.starts_with(guard))
}

/// Turns what cannot be in the YAML into comments.
fn remove(items: &mut Items, gaps: &[Diagnostic], sources: &Sources, removed: &mut Vec<Span>) {
    let mut comments: Vec<String> = Vec::new();
    let mut list = Vec::with_capacity(items.list.len());
    for mut item in std::mem::take(&mut items.list) {
        let gap = gaps
            .iter()
            .find(|gap| gap.span.is_some_and(|place| item.has(place, sources)));
        if let Some(gap) = gap {
            removed.push(item.head.name.span);
            comments.append(&mut item.comments);
            let guards = if is_guard(item.name()) {
                "; WITHOUT IT EVERYBODY IS LET IN HERE"
            } else {
                ""
            };
            comments.push(format!("{NOT_CONVERTED} {}{guards}", gap.message));
            let file = sources.file(item.head.name.span.file);
            let text = file.and_then(|file| file.text.get(item.bytes.0..item.bytes.1));
            let indent = item.head.name.span.column.saturating_sub(1);
            comments.extend(quoted_lines(text.unwrap_or_default(), indent));
            continue;
        }
        if let Some(block) = &mut item.block {
            remove(block, gaps, sources, removed);
        }
        comments.append(&mut item.comments);
        item.comments = std::mem::take(&mut comments);
        list.push(item);
    }
    comments.append(&mut items.rest);
    items.rest = comments;
    items.list = list;
}

/// A text as comments, as far to the left as its first line, which is `indent` characters from the edge.
fn quoted_lines(text: &str, indent: u32) -> impl Iterator<Item = String> {
    text.lines().enumerate().map(move |(number, line)| {
        let mut line = line.trim_end();
        for _ in 0..if number == 0 { 0 } else { indent } {
            line = line.strip_prefix([' ', '\t']).unwrap_or(line);
        }
        let printable = |one: char| if one.is_control() { ' ' } else { one };
        format!("   {}", line.chars().map(printable).collect::<String>())
    })
}

/// Reads what was written and compares it with the original.
struct Check<'a> {
    options: &'a LoadOptions,
    scope: Scope,
    reading: &'a Reading,
    /// What the original means, if nothing of it is missing.
    config: Option<Config>,
    /// Where the directives stand that were left out.
    removed: &'a [Span],
}

impl Check<'_> {
    /// What is different, each with the place in the original where there is one.
    fn differences(&self, yaml: &str) -> Vec<String> {
        let options = LoadOptions {
            path: self.options.path.with_extension("yaml"),
            text: Some(yaml.into()),
            resolve_names: false,
            ..self.options.clone()
        };
        let (original, again) = if self.scope.context() == Some(Contexts::MAIN) {
            (self.reading.directives.clone(), sources::read(&options))
        } else {
            let original = sources::read_as(self.options, self.scope);
            (original.directives, sources::read_as(&options, self.scope))
        };
        let mut found: Vec<String> = again
            .diagnostics
            .iter()
            .map(|one| crate::render(std::slice::from_ref(one), &again.sources))
            .collect();
        self.compare(&original, &again.directives, &mut found);
        if let (Some(config), true) = (&self.config, found.is_empty()) {
            let loaded = load(&options);
            if loaded.config.as_ref() != Some(config) {
                found.push("the YAML resolves to another configuration".to_owned());
            }
        }
        found
    }

    /// Compares two blocks; directives of different names may have changed places.
    fn compare(&self, original: &[Directive], again: &[Directive], found: &mut Vec<String>) {
        let left_out = |one: &&Directive| {
            let mut places = self.removed.iter();
            places.any(|place| place.same_place(one.name.span))
        };
        let mut one: Vec<&Directive> = original.iter().filter(|one| !left_out(one)).collect();
        let mut other: Vec<&Directive> = again.iter().collect();
        one.sort_by(|one, other| one.name.text.cmp(&other.name.text));
        other.sort_by(|one, other| one.name.text.cmp(&other.name.text));
        for (one, other) in one.iter().zip(&other) {
            let texts = |directive: &Directive| -> Vec<String> {
                std::iter::once(&directive.name)
                    .chain(&directive.args)
                    .map(|word| word.text.clone())
                    .collect()
            };
            let (left, right) = (texts(one), texts(other));
            if left != right || one.block.is_some() != other.block.is_some() {
                let (place, left, right) =
                    (self.place(one.name.span), left.join(" "), right.join(" "));
                found.push(format!("{place}: \"{left}\" has become \"{right}\""));
            } else if let (Some(one), Some(other)) = (&one.block, &other.block) {
                self.compare(&one.directives, &other.directives, found);
            }
        }
        if one.len() > other.len() {
            let lost = one.get(other.len()).map(|one| self.place(one.name.span));
            found.push(format!(
                "{}: the YAML lacks directives",
                lost.unwrap_or_default()
            ));
        } else if other.len() > one.len() {
            found.push("the YAML has more directives".to_owned());
        }
    }

    fn place(&self, span: Span) -> String {
        let file = self.reading.sources.file(span.file);
        let path = file.map_or_else(String::new, |file| file.path.display().to_string());
        format!("{path}:{}:{}", span.line, span.column)
    }
}
