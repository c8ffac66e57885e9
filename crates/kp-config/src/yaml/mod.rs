//! YAML to the directive tree.
//!
//! A key is a directive, its value what nginx writes behind it; `docs/yaml.md` has the rules for users. The table of
//! directives says whether a list means repetitions and whether a mapping's keys are arguments of blocks. Whether a
//! directive may stand where it does, and what its arguments mean, is decided later, for both syntaxes at once.

mod node;
mod places;
#[cfg(test)]
mod tests;
mod words;

use crate::diagnostic::Diagnostic;
use crate::directives::{self, BlockKind, Entry};
use crate::scope::{self, Scope};
use crate::sources::Reader;
use crate::span::{FileId, Span};
use crate::syntax::{Block, Directive, Word};
use node::{Node, Scalar, Value};
use std::collections::HashMap;
use std::rc::Rc;

/// A list is this directive's arguments although it may stand several times in a block: the first one ends the request.
const LIST_IS_ARGUMENTS: &str = "return";

/// Reads the directives of one text, includes expanded. Findings go to the reader.
pub(crate) fn parse(reader: &mut Reader, file: FileId, text: &str, scope: Scope) -> Vec<Directive> {
    let root = match node::read(file, text) {
        Ok(Some(root)) => root,
        Ok(None) => return Vec::new(),
        Err(problem) => {
            reader.report_loss(problem);
            return Vec::new();
        }
    };
    let mut translator = Translator { reader, text };
    if let Value::Scalar(scalar) = &root.value {
        if !scalar.is_null() {
            let problem =
                Diagnostic::error(root.span, "a YAML configuration is a mapping of directives");
            translator.reader.report_loss(
                problem.hint("a file in nginx's syntax must not end in .yaml or .yml"),
            );
        }
        return Vec::new();
    }
    translator.directives(&root, scope)
}

struct Translator<'a> {
    reader: &'a mut Reader,
    text: &'a str,
}

type Pair = (Rc<Node>, Rc<Node>);

/// What the keys of a mapping are.
#[derive(Clone, Copy)]
enum Keys<'n> {
    /// Names of directives.
    Directives,
    /// Arguments of this directive.
    Arguments(&'n str),
    /// Entries of `map` and `types`.
    Data,
}

impl Keys<'_> {
    /// What is said of a key that stands twice: nginx's sentence where it has one.
    fn duplicate(self, key: &str) -> String {
        match self {
            Self::Directives => format!("\"{key}\" directive is duplicate"),
            Self::Arguments(name) => format!("duplicate {name} \"{key}\""),
            Self::Data => format!("conflicting parameter \"{key}\""),
        }
    }
}

/// An entry of a mapping.
struct Named<'n> {
    /// The key as one word.
    name: Word,
    /// The key as it was written.
    key: &'n Scalar,
    value: &'n Node,
}

impl Translator<'_> {
    /// What a block holds: a mapping, or a list of mappings one after the other.
    fn directives(&mut self, block: &Node, scope: Scope) -> Vec<Directive> {
        let mut found = Vec::new();
        match &block.value {
            Value::Map { pairs, .. } => {
                let keys = if scope.holds_entries() {
                    Keys::Data
                } else {
                    Keys::Directives
                };
                for Named { name, value, .. } in self.named(pairs, keys) {
                    self.directive(name, value, scope, &mut found);
                }
            }
            Value::List(parts) => {
                for part in parts {
                    match part.value {
                        Value::Map { .. } => found.extend(self.directives(part, scope)),
                        _ => self.error(
                            part.span,
                            "a block written as a list holds mappings only",
                            "each element is a mapping: - name: value",
                        ),
                    }
                }
            }
            Value::Scalar(scalar) if scalar.is_null() => {}
            Value::Scalar(_) => self.error(
                block.span,
                "a block is a mapping of directives",
                "one directive a line: name: value",
            ),
        }
        found
    }

    /// The entries of a mapping with their keys as words, without those that cannot be used.
    fn named<'n>(&mut self, pairs: &'n [Pair], keys: Keys<'_>) -> Vec<Named<'n>> {
        let mut first: HashMap<&str, Span> = HashMap::new();
        let mut named = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let Value::Scalar(scalar) = &key.value else {
                let problem = Diagnostic::error(key.span, "a key must be a scalar");
                self.reader
                    .report_loss(problem.hint(
                        "quote a value that begins with \"[\" or \"{\", such as \"[::]:80\"",
                    ));
                continue;
            };
            if scalar.is_plain() && scalar.text == "<<" {
                let problem = Diagnostic::error(key.span, "the merge key \"<<\" is not supported");
                self.reader.report_loss(
                    problem.hint("write the block as a list of mappings: [ *common, { … } ]"),
                );
                continue;
            }
            if let Some(earlier) = first.insert(&scalar.text, key.span) {
                let problem = Diagnostic::error(key.span, keys.duplicate(&scalar.text));
                self.reader.report_loss(problem.hint(format!(
                    "it is first on line {}; what may be repeated is a list",
                    earlier.line
                )));
                continue;
            }
            named.push(Named {
                name: verbatim(scalar, key.span),
                key: scalar,
                value,
            });
        }
        named
    }

    /// The entries of a mapping whose keys are arguments of this directive: the arguments, where they stand, the value.
    fn by_arguments<'n>(
        &mut self,
        name: &Word,
        pairs: &'n [Pair],
    ) -> Vec<(Vec<Word>, Span, &'n Node)> {
        let named = self.named(pairs, Keys::Arguments(&name.text));
        let entry = |Named { name, key, value }| {
            let at = name.span;
            (self.key_words(key, name), at, value)
        };
        named.into_iter().map(entry).collect()
    }

    fn directive(&mut self, name: Word, value: &Node, scope: Scope, out: &mut Vec<Directive>) {
        if name.text == "include" {
            for (_, args) in self.repetitions(&name, value, None) {
                out.extend(self.reader.include(&name, &args, scope));
            }
            return;
        }
        if scope.holds_entries() {
            if scope.is_log_format() && matches!(value.value, Value::Map { .. }) {
                out.extend(self.block(&name, Vec::new(), name.span, value, scope));
                return;
            }
            let args = if scope.is_map() || scope.is_log_format() {
                self.map_value(&name, value)
            } else {
                self.arguments(&name, value, None)
            };
            out.extend(args.map(|args| simple(&name, value.span, args)));
            return;
        }
        match scope.entry(&name.text) {
            None => self.unknown(name, out),
            Some(entry) if entry.block == BlockKind::None => {
                let found = self.repetitions(&name, value, Some(entry));
                out.extend(found.into_iter().map(|(at, args)| simple(&name, at, args)));
            }
            Some(Entry {
                block: BlockKind::Optional(_),
                ..
            }) => self.optional_blocks(&name, value, scope, out),
            Some(entry) if entry.block_takes_args() => {
                self.argument_blocks(&name, value, scope, out);
            }
            Some(entry) => self.bare_blocks(entry, &name, value, scope, out),
        }
    }

    /// What nobody knows is left for the table's check, except where the mistake is one of form. Its value is not looked
    /// at: nobody can say what it should have been.
    fn unknown(&mut self, name: Word, out: &mut Vec<Directive>) {
        let mut words = name.text.split_ascii_whitespace();
        let known = words
            .next()
            .and_then(|first| directives::named(first).next());
        let rest: Vec<&str> = words.collect();
        match known.filter(|_| !rest.is_empty()) {
            Some(entry) if entry.block_takes_args() => {
                let hint = format!(
                    "in YAML the arguments are a key of their own: {}: {{ \"{}\": {{ … }} }}",
                    entry.name,
                    rest.join(" ")
                );
                self.reader.report_loss(
                    Diagnostic::error(name.span, format!("unknown directive \"{}\"", name.text))
                        .hint(hint),
                );
            }
            _ => out.push(Directive {
                at: name.span,
                name,
                args: Vec::new(),
                block: None,
            }),
        }
    }

    /// `http`, `server`, `types`: a mapping is the block; a list is several blocks, or of what stands once, its parts.
    fn bare_blocks(
        &mut self,
        entry: &Entry,
        name: &Word,
        value: &Node,
        scope: Scope,
        out: &mut Vec<Directive>,
    ) {
        match &value.value {
            Value::List(blocks) if entry.repeatable => {
                for block in blocks {
                    out.extend(self.block(name, Vec::new(), block.span, block, scope));
                }
            }
            _ => out.extend(self.block(name, Vec::new(), name.span, value, scope)),
        }
    }

    /// `location`, `upstream`, `map`: a mapping from arguments to blocks, or a list of such mappings.
    fn argument_blocks(
        &mut self,
        name: &Word,
        value: &Node,
        scope: Scope,
        out: &mut Vec<Directive>,
    ) {
        match &value.value {
            Value::Map { pairs, .. } => {
                for (args, at, value) in self.by_arguments(name, pairs) {
                    out.extend(self.block(name, args, at, value, scope));
                }
            }
            Value::List(parts)
                if parts
                    .iter()
                    .all(|part| matches!(part.value, Value::Map { .. })) =>
            {
                parts
                    .iter()
                    .for_each(|part| self.argument_blocks(name, part, scope, out));
            }
            _ => {
                let problem = Diagnostic::error(
                    value_place(name, value),
                    format!(
                        "\"{}\" needs a mapping from its arguments to blocks",
                        name.text
                    ),
                );
                self.reader
                    .report_loss(problem.hint(format!("{}: {{ \"…\": {{ … }} }}", name.text)));
            }
        }
    }

    /// `log_format`: a mapping from the first arguments to the other ones, or to a block; or a list of such mappings and of
    /// whole occurrences.
    fn optional_blocks(
        &mut self,
        name: &Word,
        value: &Node,
        scope: Scope,
        out: &mut Vec<Directive>,
    ) {
        let elements = match &value.value {
            Value::List(elements) => elements.iter().map(Rc::as_ref).collect(),
            _ => vec![value],
        };
        for element in elements {
            let Value::Map { pairs, .. } = &element.value else {
                let args = self.arguments(name, element, scope.entry(&name.text));
                out.extend(args.map(|args| simple(name, value_place(name, element), args)));
                continue;
            };
            for (args, at, value) in self.by_arguments(name, pairs) {
                out.extend(match &value.value {
                    Value::Map { .. } => self.block(name, args, at, value, scope),
                    _ => self
                        .rest_of_arguments(name, args, value)
                        .map(|args| simple(name, at, args)),
                });
            }
        }
    }

    /// One block directive.
    fn block(
        &mut self,
        name: &Word,
        args: Vec<Word>,
        at: Span,
        value: &Node,
        scope: Scope,
    ) -> Option<Directive> {
        let inside = scope.inside(&name.text);
        let opened = value_place(name, value);
        let is_block = match &value.value {
            Value::Scalar(scalar) => scalar.is_null(),
            Value::List(_) | Value::Map { .. } => true,
        };
        if !is_block {
            let message = format!("\"{}\" needs a block: a mapping of directives", name.text);
            self.error(
                opened,
                message,
                "write the directives below it, indented, one a line: name: value",
            );
            return None;
        }
        if inside.too_deep() {
            self.reader.report_loss(scope::too_deep(opened));
            return None;
        }
        let words: Vec<Word> = std::iter::once(name).chain(&args).cloned().collect();
        let before = Span {
            column: opened.column.saturating_sub(1),
            ..opened
        };
        let range = self.reader.open_block(before, at, &words);
        let directives = self.directives(value, inside);
        self.reader.close_block(
            range,
            Span {
                line: end_of(value).0,
                column: end_of(value).1,
                ..opened
            },
        );
        Some(Directive {
            name: name.clone(),
            at,
            args,
            block: Some(Block { opened, directives }),
        })
    }

    /// The arguments of each occurrence of a simple directive, with its place.
    fn repetitions(
        &mut self,
        name: &Word,
        value: &Node,
        entry: Option<&Entry>,
    ) -> Vec<(Span, Vec<Word>)> {
        let repeatable =
            entry.is_none_or(|entry| entry.repeatable) && name.text != LIST_IS_ARGUMENTS;
        match &value.value {
            Value::List(elements) if repeatable => elements
                .iter()
                .flat_map(|element| match &element.value {
                    Value::Map { pairs, .. } => self.argument_pairs(name, pairs),
                    _ => self
                        .arguments(name, element, entry)
                        .map(|args| (element.span, args))
                        .into_iter()
                        .collect(),
                })
                .collect(),
            Value::Map { pairs, .. } if repeatable => self.argument_pairs(name, pairs),
            _ => self
                .arguments(name, value, entry)
                .map(|args| (value_place(name, value), args))
                .into_iter()
                .collect(),
        }
    }

    /// A mapping of a repeatable directive: the key holds the first arguments, the value is the next one, or a list of them.
    fn argument_pairs(&mut self, name: &Word, pairs: &[Pair]) -> Vec<(Span, Vec<Word>)> {
        let mut found = Vec::new();
        for Named {
            name: first,
            key,
            value,
        } in self.named(pairs, Keys::Arguments(&name.text))
        {
            let at = first.span;
            let args = self.key_words(key, first);
            found.extend(
                self.rest_of_arguments(name, args, value)
                    .map(|args| (at, args)),
            );
        }
        found
    }

    /// The arguments that stand in a key, and the value's: one argument as it is, or a list of them.
    fn rest_of_arguments(
        &mut self,
        name: &Word,
        mut args: Vec<Word>,
        value: &Node,
    ) -> Option<Vec<Word>> {
        match &value.value {
            Value::Scalar(scalar) if scalar.is_null() => {}
            Value::Scalar(scalar) => args.push(verbatim(scalar, value.span)),
            _ => args.extend(self.arguments(name, value, None)?),
        }
        Some(args)
    }

    /// The arguments of one occurrence; `None` where there is no occurrence (`off` for a directive without arguments) or
    /// no sense.
    fn arguments(&mut self, name: &Word, value: &Node, entry: Option<&Entry>) -> Option<Vec<Word>> {
        match &value.value {
            Value::Scalar(scalar) if scalar.is_null() => Some(Vec::new()),
            Value::Scalar(scalar) => match scalar.switch() {
                Some(on) if entry.is_some_and(|entry| entry.arity.accepts(0)) => on.then(Vec::new),
                Some(on) if entry.is_some() => {
                    let text = if on { "on" } else { "off" };
                    Some(vec![Word {
                        text: text.to_owned(),
                        ..verbatim(scalar, value.span)
                    }])
                }
                _ if scalar.text.is_empty() => Some(vec![verbatim(scalar, value.span)]),
                _ => Some(self.words(scalar, value.span)),
            },
            Value::List(elements) => {
                let mut args = Vec::with_capacity(elements.len());
                for element in elements {
                    match &element.value {
                        Value::Scalar(scalar) => args.push(verbatim(scalar, element.span)),
                        _ => {
                            self.error(
                                element.span,
                                format!("an argument of \"{}\" must be a scalar", name.text),
                                "a list of its arguments holds words and numbers; quote one that begins with \"[\" or \"{\"",
                            );
                            return None;
                        }
                    }
                }
                Some(args)
            }
            Value::Map { .. } => {
                self.error(
                    value.span,
                    format!("\"{}\" takes arguments, not a mapping", name.text),
                    "write them as in nginx's syntax, without the \";\", or as a list",
                );
                None
            }
        }
    }

    /// The value of an entry of `map`: one text as it is. `hostnames` and `volatile` are switches there.
    fn map_value(&mut self, name: &Word, value: &Node) -> Option<Vec<Word>> {
        match &value.value {
            Value::Scalar(scalar) if !scalar.is_null() => match scalar.switch() {
                Some(on) if matches!(name.text.as_str(), "hostnames" | "volatile") => {
                    on.then(Vec::new)
                }
                _ => Some(vec![verbatim(scalar, value.span)]),
            },
            _ => self.arguments(name, value, None),
        }
    }

    /// The words of a key that stands for arguments.
    fn key_words(&mut self, key: &Scalar, whole: Word) -> Vec<Word> {
        if key.text.is_empty() {
            return vec![whole];
        }
        self.words(key, whole.span)
    }

    /// A scalar in nginx's words.
    fn words(&mut self, scalar: &Scalar, span: Span) -> Vec<Word> {
        let (words, problem) = words::of_scalar(self.text, scalar, span);
        if let Some(problem) = problem {
            self.reader.report(problem);
        }
        words
    }

    fn error(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.reader
            .report_loss(Diagnostic::error(span, message).hint(hint));
    }
}

/// A scalar as one word, as it is.
fn verbatim(scalar: &Scalar, span: Span) -> Word {
    Word {
        text: scalar.text.clone(),
        span,
        quoted: !scalar.is_plain(),
    }
}

fn simple(name: &Word, at: Span, args: Vec<Word>) -> Directive {
    Directive {
        name: name.clone(),
        at,
        args,
        block: None,
    }
}

/// Where a value stands; one that is not written, at its key.
fn value_place(name: &Word, value: &Node) -> Span {
    match &value.value {
        Value::Scalar(scalar) if scalar.text.is_empty() && scalar.is_plain() => name.span,
        _ => value.span,
    }
}

/// Where a block ends.
fn end_of(value: &Node) -> (u32, u32) {
    match &value.value {
        Value::Map { end, .. } => *end,
        Value::List(parts) => parts
            .last()
            .map_or((value.span.line, value.span.column), |part| end_of(part)),
        Value::Scalar(_) => (value.span.line, value.span.column),
    }
}
