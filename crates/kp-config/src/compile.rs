//! From text with `$variables` to a [`Template`], and the table of variables that a configuration defines itself.
//!
//! The names are collected from the whole tree before the first template is compiled, so that a `map` may stand below
//! its use. It does not evaluate anything.

use crate::model::UserVar;
use crate::suggest::nearest;
use crate::syntax::Directive;
use crate::template::{Builtin, Part, Template, Variable};
use std::collections::HashMap;

/// Variables that `set`, `map` and named groups of regular expressions define.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    index: HashMap<String, UserVar>,
}

/// What is wrong with a variable in a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum VariableError {
    /// `$` without a name.
    InvalidName,
    /// `${name` without `}`.
    Unclosed(String),
    /// A name that nothing defines, with a near one.
    Unknown(String, Option<String>),
}

/// Families of variables: what the name begins with, and the variable for the rest of it.
type Family = (&'static str, fn(String) -> Variable);

const PREFIXES: [Family; 9] = [
    ("http_", Variable::Http),
    ("sent_http_", Variable::SentHttp),
    ("sent_trailer_", Variable::SentTrailer),
    ("upstream_http_", Variable::UpstreamHttp),
    ("upstream_trailer_", Variable::UpstreamTrailer),
    ("upstream_cookie_", Variable::UpstreamCookie),
    ("cookie_", Variable::Cookie),
    ("arg_", Variable::Arg),
    ("proxy_protocol_tlv_", Variable::ProxyProtocolTlv),
];

impl Names {
    /// Finds every variable that the tree defines.
    pub(crate) fn collect(tree: &[Directive]) -> Self {
        let mut names = Self::default();
        names.visit(tree);
        names
    }

    /// The variable's number, a new one for a new name.
    pub(crate) fn define(&mut self, name: &str) -> UserVar {
        let name = name.to_ascii_lowercase();
        if let Some(variable) = self.index.get(&name) {
            return *variable;
        }
        let variable = UserVar(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.clone());
        self.index.insert(name, variable);
        variable
    }

    /// Every name by number.
    pub(crate) fn into_names(self) -> Vec<String> {
        self.names
    }

    /// A variable by name, without the `$`. As in nginx `$arg_` alone is a variable too, one that never has a value. What a configuration defines goes before the `http_…` families, as in nginx.
    pub(crate) fn find(&self, name: &str) -> Option<Variable> {
        let name = name.to_ascii_lowercase();
        if let Some(variable) = builtin(&name) {
            return Some(Variable::Builtin(variable));
        }
        if let Some(variable) = self.index.get(&name) {
            return Some(Variable::User(*variable));
        }
        PREFIXES.iter().find_map(|(prefix, make)| {
            let rest = name.strip_prefix(prefix)?;
            Some(make(rest.to_owned()))
        })
    }

    /// Compiles a text.
    pub(crate) fn compile(&self, text: &str) -> Result<Template, VariableError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (literal, after) = rest.split_at_checked(at).unwrap_or((rest, ""));
            push_literal(&mut parts, literal);
            let after = after.get(1..).unwrap_or("");
            let (part, after) = self.variable(after)?;
            parts.push(part);
            rest = after;
        }
        push_literal(&mut parts, rest);
        Ok(Template { parts })
    }

    /// Reads what follows a `$`.
    fn variable<'a>(&self, text: &'a str) -> Result<(Part, &'a str), VariableError> {
        if let Some(digit @ b'1'..=b'9') = text.as_bytes().first() {
            return Ok((Part::Capture(digit - b'0'), text.get(1..).unwrap_or("")));
        }
        let (inside, braced) = match text.strip_prefix('{') {
            Some(inside) => (inside, true),
            None => (text, false),
        };
        let end = inside
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(inside.len());
        let (name, mut after) = inside.split_at_checked(end).unwrap_or((inside, ""));
        if braced {
            after = after
                .strip_prefix('}')
                .ok_or_else(|| VariableError::Unclosed(name.to_owned()))?;
        }
        if name.is_empty() {
            return Err(VariableError::InvalidName);
        }
        match self.find(name) {
            Some(variable) => Ok((Part::Variable(variable), after)),
            None => Err(VariableError::Unknown(name.to_owned(), self.suggest(name))),
        }
    }

    fn suggest(&self, name: &str) -> Option<String> {
        let builtins = Builtin::ALL.iter().map(|(name, _)| *name);
        nearest(name, builtins.chain(self.names.iter().map(String::as_str))).map(str::to_owned)
    }

    fn visit(&mut self, tree: &[Directive]) {
        for directive in tree {
            let args = directive.args.as_slice();
            match directive.name.text.as_str() {
                "set" => self.define_word(args.first().map(|word| word.text.as_str())),
                "split_clients" => {
                    self.define_word(args.get(1).map(|word| word.text.as_str()));
                    continue;
                }
                // Names are data in it.
                "log_format" => continue,
                "map" => {
                    self.define_word(args.get(1).map(|word| word.text.as_str()));
                    for entry in directive.block.iter().flat_map(|block| &block.directives) {
                        self.define_groups(&entry.name.text);
                    }
                    continue;
                }
                "server_name"
                | "location"
                | "rewrite"
                | "if"
                | "proxy_redirect"
                | "proxy_cookie_domain"
                | "proxy_cookie_path"
                | "proxy_cookie_flags" => {
                    for word in args {
                        self.define_groups(&word.text);
                    }
                }
                _ => {}
            }
            if let Some(block) = &directive.block {
                self.visit(&block.directives);
            }
        }
    }

    fn define_word(&mut self, word: Option<&str>) {
        if let Some(name) = word
            .and_then(|word| word.strip_prefix('$'))
            .filter(|name| is_name(name))
        {
            self.define_free(name);
        }
    }

    fn define_groups(&mut self, pattern: &str) {
        for name in group_names(pattern) {
            self.define_free(&name);
        }
    }

    /// A built-in name stays built-in; the setter reports it.
    fn define_free(&mut self, name: &str) {
        if builtin(&name.to_ascii_lowercase()).is_none() {
            self.define(name);
        }
    }
}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Literal(text.to_owned()));
    }
}

/// A built-in variable by its lower-case name.
pub(crate) fn builtin(name: &str) -> Option<Builtin> {
    Builtin::ALL
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, variable)| *variable)
}

/// Whether a text can be a variable's name.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The named groups of a regular expression, found in its text: `(?<n>`, `(?P<n>`, `(?'n'`.
pub(crate) fn group_names(pattern: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.find("(?") {
        let escaped = rest.get(..at).is_some_and(|before| {
            before
                .bytes()
                .rev()
                .take_while(|byte| *byte == b'\\')
                .count()
                % 2
                == 1
        });
        rest = rest.get(at + 2..).unwrap_or("");
        let (inside, close) =
            if let Some(inside) = rest.strip_prefix("P<").or_else(|| rest.strip_prefix('<')) {
                (inside, '>')
            } else if let Some(inside) = rest.strip_prefix('\'') {
                (inside, '\'')
            } else {
                continue;
            };
        // `(?<=` and `(?<!` look behind; they have no name.
        if let Some((name, _)) = inside.split_once(close)
            && is_name(name)
            && !escaped
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.define("backend");
        names
    }

    #[test]
    fn templates() {
        let parts = |text: &str| names().compile(text).unwrap().parts;
        let literal = |text: &str| Part::Literal(text.to_owned());
        assert_eq!(parts(""), []);
        assert_eq!(parts("plain"), [literal("plain")]);
        assert_eq!(
            parts("http://$host${backend}x$1"),
            [
                literal("http://"),
                Part::Variable(Variable::Builtin(Builtin::Host)),
                Part::Variable(Variable::User(UserVar(0))),
                literal("x"),
                Part::Capture(1)
            ]
        );
        assert_eq!(parts("$12"), [Part::Capture(1), literal("2")]);
        assert_eq!(
            parts("$HTTP_X_A"),
            [Part::Variable(Variable::Http("x_a".into()))]
        );
        assert_eq!(parts("$arg_q"), [Part::Variable(Variable::Arg("q".into()))]);
        assert_eq!(
            parts("$upstream_http_etag"),
            [Part::Variable(Variable::UpstreamHttp("etag".into()))]
        );
        assert_eq!(
            parts("$sent_trailer_x"),
            [Part::Variable(Variable::SentTrailer("x".into()))]
        );
    }

    #[test]
    fn mistakes() {
        let error = |text: &str| names().compile(text).unwrap_err();
        assert_eq!(error("a$"), VariableError::InvalidName);
        assert_eq!(error("a$-"), VariableError::InvalidName);
        assert_eq!(error("${host"), VariableError::Unclosed("host".into()));
        assert_eq!(error("${host-}"), VariableError::Unclosed("host".into()));
        assert_eq!(
            error("$hots"),
            VariableError::Unknown("hots".into(), Some("host".into()))
        );
        assert_eq!(
            error("$bakcend"),
            VariableError::Unknown("bakcend".into(), Some("backend".into()))
        );
    }

    #[test]
    fn groups() {
        assert_eq!(
            group_names(r"^(?<user>\w+)-(?P<id>\d+)(?'x'a)$"),
            ["user", "id", "x"]
        );
        assert_eq!(
            group_names(r"(?<=a)(?<!b)(?:c)\(?<n>"),
            Vec::<String>::new()
        );
    }
}
