//! `location`, `if` and what only stands in them: `proxy_pass`, `alias`, `internal` and the rewrite module.

use super::{ExceptDraft, HealthCheckDraft, LevelDraft, PageDraft, Reader, RootDraft};
use crate::diagnostic::Diagnostic;
use crate::model::{Condition, FileTest, LocationMatch, Return, Rewrite, RewriteFlag};
use crate::span::Span;
use crate::syntax::{Directive, Word};
use crate::template::{Builtin, Template};
use crate::value;

/// A location, an `if`, or a server's own level.
#[derive(Debug)]
pub(crate) struct LocationDraft {
    pub(crate) matches: LocationMatch,
    /// The prefix, path or expression as written, for messages and for `alias`.
    pub(crate) text: String,
    pub(crate) span: Span,
    pub(crate) level: LevelDraft,
    pub(crate) rewrite: Vec<RewriteDraft>,
    pub(crate) internal: bool,
    /// `try_files`, which asks for what is done where files are served.
    pub(crate) try_files: Option<Span>,
    pub(crate) except: Option<ExceptDraft>,
    pub(crate) proxy_pass: Option<ProxyPassDraft>,
    pub(crate) page: Option<PageDraft>,
    pub(crate) health_checks: Vec<HealthCheckDraft>,
    pub(crate) children: Vec<Self>,
}

/// `proxy_pass`.
#[derive(Debug, Clone)]
pub(crate) struct ProxyPassDraft {
    pub(crate) text: String,
    pub(crate) template: Template,
    pub(crate) span: Span,
}

/// One rewrite instruction.
#[derive(Debug)]
pub(crate) enum RewriteDraft {
    /// Anything but `if`.
    Done(Rewrite, Span),
    /// `if` with its inside.
    If {
        condition: Condition,
        location: Box<LocationDraft>,
    },
}

impl LocationDraft {
    /// An empty one.
    pub(crate) fn new(matches: LocationMatch, text: String, span: Span) -> Self {
        Self {
            matches,
            text,
            span,
            level: LevelDraft::default(),
            rewrite: Vec::new(),
            internal: false,
            try_files: None,
            except: None,
            proxy_pass: None,
            page: None,
            health_checks: Vec::new(),
            children: Vec::new(),
        }
    }

    /// The inside of an `if` on this level. It goes by the name of the location around it.
    pub(crate) fn branch(&self, directive: &Directive) -> Self {
        Self::new(LocationMatch::If, self.text.clone(), directive.at)
    }

    /// A location in this one, or on this server.
    pub(crate) fn child(&self, reader: &mut Reader<'_>, directive: &Directive) -> Self {
        let span = directive.args.last().map_or(directive.at, |word| word.span);
        let Some((matches, text)) = reader.location_match(directive) else {
            // The error is reported; the inside is still read for its own.
            return Self::new(LocationMatch::Exact(String::new()), String::new(), span);
        };
        let child = Self::new(matches, text, span);
        self.check_child(reader, &child);
        child
    }

    fn check_child(&self, reader: &mut Reader<'_>, child: &Self) {
        let inside = |kind: &str| {
            let message = format!(
                "location \"{}\" cannot be inside the {kind} location \"{}\"",
                child.text, self.text
            );
            Diagnostic::error(child.span, message)
        };
        match self.matches {
            LocationMatch::Server => {}
            LocationMatch::Exact(_) => return reader.report(inside("exact")),
            LocationMatch::Named(_) => return reader.report(inside("named")),
            _ => {
                if let LocationMatch::Named(_) = child.matches {
                    let message = format!(
                        "named location \"{}\" can be on the server level only",
                        child.text
                    );
                    return reader.error(child.span, message);
                }
                let outside = !matches!(child.matches, LocationMatch::Regex(_))
                    && !child.text.starts_with(&self.text);
                if outside {
                    let message = format!(
                        "location \"{}\" is outside location \"{}\"",
                        child.text, self.text
                    );
                    let hint = "a nested location repeats the prefix of the one around it";
                    reader.report(Diagnostic::error(child.span, message).hint(hint));
                }
            }
        }
        let twin = self
            .children
            .iter()
            .find(|known| same_place(&known.matches, &child.matches));
        if let Some(first) = twin {
            let message = format!("duplicate location \"{}\"", child.text);
            let hint = format!("the first one is on line {}", first.span.line);
            reader.report(Diagnostic::error(child.span, message).hint(hint));
        }
    }

    /// `internal`.
    pub(crate) fn internal(&mut self, _: &mut Reader<'_>, _: &Directive) {
        self.internal = true;
    }

    /// `alias`.
    pub(crate) fn alias(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        if reader.refuse_second_root(directive, self.level.root.as_ref()) {
            return;
        }
        if let LocationMatch::Named(_) = self.matches {
            let span = directive.at;
            return reader.error(
                span,
                "the \"alias\" directive cannot be used inside the named location",
            );
        }
        let regex = matches!(self.matches, LocationMatch::Regex(_));
        let prefix_len = (!regex).then_some(self.text.len());
        reader.put(directive, &mut self.level.root, |reader, word| {
            let path = reader.served_path(directive, word, &word.text)?;
            Some(RootDraft::Alias { path, prefix_len })
        });
    }

    /// `proxy_pass`.
    pub(crate) fn proxy_pass(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some(word) = directive.args.first() else {
            return;
        };
        let Some(template) = reader.compile(word) else {
            return;
        };
        self.replace_handler(reader, directive);
        self.proxy_pass = Some(ProxyPassDraft {
            text: word.text.clone(),
            template,
            span: word.span,
        });
    }

    /// `set`.
    pub(crate) fn set(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let [name, value] = directive.args.as_slice() else {
            return;
        };
        let Some(text) = name
            .text
            .strip_prefix('$')
            .filter(|text| crate::compile::is_name(text))
        else {
            let error = Diagnostic::error(
                name.span,
                format!("invalid variable name \"{}\"", name.text),
            );
            return reader.report(error.hint("a variable is written $name"));
        };
        let value = reader.compile(value);
        if crate::compile::builtin(&text.to_ascii_lowercase()) == Some(Builtin::Args) {
            if let Some(value) = value {
                self.push(Rewrite::SetArgs { value }, directive);
            }
            return;
        }
        if crate::compile::builtin(&text.to_ascii_lowercase()) == Some(Builtin::LimitRate) {
            if let Some(value) = value {
                self.push(Rewrite::SetLimitRate { value }, directive);
            }
            return;
        }
        let variable = reader.define(text, name.span);
        if let (Some(variable), Some(value)) = (variable, value) {
            self.push(Rewrite::Set { variable, value }, directive);
        }
    }

    /// `rewrite`.
    pub(crate) fn rewrite(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let [pattern, target, rest @ ..] = directive.args.as_slice() else {
            return;
        };
        if target.text.is_empty() {
            return reader.error(target.span, "empty replacement");
        }
        let mut flag = if is_redirect(&target.text) {
            RewriteFlag::Redirect
        } else {
            RewriteFlag::None
        };
        if let Some(word) = rest.first() {
            flag = match word.text.as_str() {
                // Where the replacement is a URL, `last` and `break` change nothing.
                "last" | "break" if flag == RewriteFlag::Redirect => flag,
                "last" => RewriteFlag::Last,
                "break" => RewriteFlag::Break,
                "redirect" => RewriteFlag::Redirect,
                "permanent" => RewriteFlag::Permanent,
                _ => {
                    let error = Diagnostic::error(
                        word.span,
                        format!("invalid parameter \"{}\"", word.text),
                    );
                    return reader
                        .report(error.hint("it can be: last, break, redirect, permanent"));
                }
            };
        }
        let regex = reader.regex(&pattern.text, false, pattern.span);
        let (text, drop_args) = match target.text.strip_suffix('?') {
            Some(text) => (text, true),
            None => (target.text.as_str(), false),
        };
        if let Some(replacement) = reader.compile_text(text, target.span) {
            self.push(
                Rewrite::Rewrite {
                    regex,
                    replacement,
                    drop_args,
                    flag,
                },
                directive,
            );
        }
    }

    /// `return`.
    pub(crate) fn return_(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        if let Some(answer) = reader.return_value(directive) {
            self.push(Rewrite::Return(answer), directive);
        }
    }

    /// `break`.
    pub(crate) fn break_(&mut self, _: &mut Reader<'_>, directive: &Directive) {
        self.push(Rewrite::Break, directive);
    }

    fn push(&mut self, instruction: Rewrite, directive: &Directive) {
        self.rewrite
            .push(RewriteDraft::Done(instruction, directive.at));
    }
}

/// Whether two locations of one level can never both be meant. Expressions may repeat; the first one wins.
fn same_place(one: &LocationMatch, other: &LocationMatch) -> bool {
    match (one, other) {
        (LocationMatch::Prefix { text: one, .. }, LocationMatch::Prefix { text: other, .. }) => {
            one == other
        }
        (LocationMatch::Exact(one), LocationMatch::Exact(other)) => one == other,
        (LocationMatch::Named(one), LocationMatch::Named(other)) => one == other,
        _ => false,
    }
}

fn is_redirect(text: &str) -> bool {
    ["http://", "https://", "$scheme"]
        .into_iter()
        .any(|start| text.starts_with(start))
}

impl Reader<'_> {
    fn location_match(&mut self, directive: &Directive) -> Option<(LocationMatch, String)> {
        let (modifier, text, span) = match directive.args.as_slice() {
            [word] => {
                let text = word.text.as_str();
                // Without a blank: `=/x`, `^~/x`, `~*x`, `~x`.
                let modifier = ["=", "^~", "~*", "~"]
                    .into_iter()
                    .find(|modifier| text.starts_with(modifier))
                    .unwrap_or("");
                (
                    modifier,
                    text.strip_prefix(modifier).unwrap_or(text),
                    word.span,
                )
            }
            [modifier, word] => (modifier.text.as_str(), word.text.as_str(), word.span),
            _ => return None,
        };
        let owned = text.to_owned();
        let matches = match modifier {
            "" if text.starts_with('@') => LocationMatch::Named(owned.clone()),
            "" => LocationMatch::Prefix {
                text: owned.clone(),
                stop: false,
            },
            "=" => LocationMatch::Exact(owned.clone()),
            "^~" => LocationMatch::Prefix {
                text: owned.clone(),
                stop: true,
            },
            "~" => LocationMatch::Regex(self.regex(text, false, span)),
            "~*" => LocationMatch::Regex(self.regex(text, true, span)),
            _ => {
                let span = directive.args.first().map_or(span, |word| word.span);
                let error =
                    Diagnostic::error(span, format!("invalid location modifier \"{modifier}\""));
                self.report(error.hint("it can be: =, ~, ~*, ^~"));
                return None;
            }
        };
        Some((matches, owned))
    }

    fn return_value(&mut self, directive: &Directive) -> Option<Return> {
        let (code, rest) = directive.args.split_first()?;
        let status = value::number(&code.text)
            .filter(|status| *status <= 999)
            .and_then(|status| u16::try_from(status).ok());
        let Some(status) = status else {
            if rest.is_empty() && is_redirect(&code.text) {
                return self.compile(code).map(|url| Return::Redirect(302, url));
            }
            let error =
                Diagnostic::error(code.span, format!("invalid return code \"{}\"", code.text));
            self.report(error.hint(
                "the form is `return 404;`, `return 200 text;`, `return 301 url;` or `return url;`",
            ));
            return None;
        };
        let Some(word) = rest.first() else {
            return Some(Return::Status(status));
        };
        let text = self.compile(word)?;
        Some(match status {
            301 | 302 | 303 | 307 | 308 => Return::Redirect(status, text),
            _ => Return::Text(status, text),
        })
    }

    /// The parenthesised condition of `if`. The parentheses may stand apart or touch the words.
    pub(crate) fn condition(&mut self, directive: &Directive) -> Option<Condition> {
        let words = self.without_parentheses(directive)?;
        match words.as_slice() {
            [variable] if variable.text.len() > 1 && variable.text.starts_with('$') => {
                self.lone_variable(variable).map(Condition::Truthy)
            }
            [variable, operator, operand]
                if variable.text.len() > 1 && variable.text.starts_with('$') =>
            {
                let value = self.lone_variable(variable);
                self.comparison(value, operator, operand)
            }
            [test, path]
                if matches!(
                    test.text.as_str(),
                    "-f" | "-d" | "-e" | "-x" | "!-f" | "!-d" | "!-e" | "!-x"
                ) =>
            {
                let (negated, letter) = match test.text.strip_prefix('!') {
                    Some(rest) => (true, rest),
                    None => (false, test.text.as_str()),
                };
                let test = match letter {
                    "-f" => FileTest::File,
                    "-d" => FileTest::Directory,
                    "-e" => FileTest::Exists,
                    _ => FileTest::Executable,
                };
                self.compile(path).map(|path| Condition::File {
                    test,
                    path,
                    negated,
                })
            }
            words => {
                if let Some(word) = words.first() {
                    self.invalid_condition(word);
                }
                None
            }
        }
    }

    fn comparison(
        &mut self,
        value: Option<Template>,
        operator: &Word,
        operand: &Word,
    ) -> Option<Condition> {
        let (negated, kind) = match operator.text.strip_prefix('!') {
            Some(kind) => (true, kind),
            None => (false, operator.text.as_str()),
        };
        match kind {
            "=" => {
                let other = self.compile(operand)?;
                Some(Condition::Equals {
                    value: value?,
                    other,
                    negated,
                })
            }
            "~" | "~*" => {
                let regex = self.regex(&operand.text, kind == "~*", operand.span);
                Some(Condition::Matches {
                    value: value?,
                    regex,
                    negated,
                })
            }
            _ => {
                let error = Diagnostic::error(
                    operator.span,
                    format!("unexpected \"{}\" in condition", operator.text),
                );
                self.report(error.hint("it can be: =, !=, ~, ~*, !~, !~*"));
                None
            }
        }
    }

    /// A condition's left side is one variable and nothing else.
    fn lone_variable(&mut self, word: &Word) -> Option<Template> {
        let name = word.text.strip_prefix('$')?;
        if crate::compile::is_name(name) || is_braced(name) {
            return self.compile(word);
        }
        let message = format!("unknown \"{name}\" variable");
        self.refuse(word.span, message, "one variable stands here: $name");
        None
    }

    fn without_parentheses(&mut self, directive: &Directive) -> Option<Vec<Word>> {
        let mut words = directive.args.clone();
        let first = words.first_mut()?;
        match first.text.strip_prefix('(') {
            Some(rest) => first.text = rest.to_owned(),
            None => {
                let word = first.clone();
                self.invalid_condition(&word);
                return None;
            }
        }
        let last = words.last_mut()?;
        match last.text.strip_suffix(')') {
            Some(rest) => last.text = rest.to_owned(),
            None => {
                let word = last.clone();
                self.invalid_condition(&word);
                return None;
            }
        }
        // A parenthesis that stood alone leaves an empty word behind; a quoted empty operand is wanted.
        let count = words.len();
        let lone = |index: usize, word: &Word| {
            word.text.is_empty() && !word.quoted && (index == 0 || index + 1 == count)
        };
        let kept: Vec<Word> = words
            .into_iter()
            .enumerate()
            .filter(|(index, word)| !lone(*index, word))
            .map(|(_, word)| word)
            .collect();
        if kept.is_empty() {
            let span = directive
                .args
                .first()
                .map_or(directive.at, |word| word.span);
            self.error(span, "invalid condition \")\"");
            return None;
        }
        Some(kept)
    }

    fn invalid_condition(&mut self, word: &Word) {
        let error = Diagnostic::error(word.span, format!("invalid condition \"{}\"", word.text));
        self.report(
            error.hint("the form is `if ($variable = value)`, `if ($variable)` or `if (-f path)`"),
        );
    }
}

fn is_braced(text: &str) -> bool {
    let inside = text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(crate::compile::is_name)
}
