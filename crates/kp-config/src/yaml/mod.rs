//! YAML to the directive tree.
//!
//! A key is a directive, its value what nginx writes behind it; `docs/yaml.md` has the rules for users. The table of
//! directives says whether a list means repetitions and whether a mapping's keys are arguments of blocks. Whether a
//! directive may stand where it does, and what its arguments mean, is decided later, for both syntaxes at once.

mod node;
mod places;

use crate::diagnostic::Diagnostic;
use crate::directives::{self, BlockKind, Entry};
use crate::nginx::lexer::{LexError, Lexer, Places, Token};
use crate::scope::Scope;
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
                for Named { name, value, .. } in self.named(pairs) {
                    self.directive(name, value, scope, &mut found);
                }
            }
            Value::List(parts) => {
                for part in parts {
                    match part.value {
                        Value::Map { .. } => found.extend(self.directives(part, scope)),
                        _ => self.error(part.span, "a block written as a list holds mappings only"),
                    }
                }
            }
            Value::Scalar(scalar) if scalar.is_null() => {}
            Value::Scalar(_) => self.error(block.span, "a block is a mapping of directives"),
        }
        found
    }

    /// The entries of a mapping with their keys as words, without those that cannot be used.
    fn named<'n>(&mut self, pairs: &'n [Pair]) -> Vec<Named<'n>> {
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
                let problem =
                    Diagnostic::error(key.span, format!("duplicate key \"{}\"", scalar.text));
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

    fn directive(&mut self, name: Word, value: &Node, scope: Scope, out: &mut Vec<Directive>) {
        if name.text == "include" {
            for (_, args) in self.repetitions(&name, value, None) {
                out.extend(self.reader.include(&name, &args, scope));
            }
            return;
        }
        if scope.holds_entries() {
            let args = if scope.is_map() {
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
            Some(entry) if entry.block_takes_args() => {
                self.argument_blocks(&name, value, scope, out)
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
                for Named {
                    name: first,
                    key,
                    value,
                } in self.named(pairs)
                {
                    let at = first.span;
                    let args = self.key_words(key, first);
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
        if !is_block || inside.too_deep() {
            let what = if is_block {
                "blocks are nested too deep".to_owned()
            } else {
                format!("\"{}\" needs a block: a mapping of directives", name.text)
            };
            self.error(opened, what);
            return None;
        }
        let words: Vec<Word> = std::iter::once(name).chain(&args).cloned().collect();
        let before = Span {
            column: opened.column.saturating_sub(1),
            ..opened
        };
        let range = self.reader.open_block(before, &words);
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
        } in self.named(pairs)
        {
            let at = first.span;
            let mut args = self.key_words(key, first);
            match &value.value {
                Value::Scalar(scalar) if scalar.is_null() => {}
                Value::Scalar(scalar) => args.push(verbatim(scalar, value.span)),
                _ => match self.arguments(name, value, None) {
                    Some(rest) => args.extend(rest),
                    None => continue,
                },
            }
            found.push((at, args));
        }
        found
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

    /// A scalar in nginx's words. The first mistake in it is reported; what was meant takes its place.
    fn words(&mut self, scalar: &Scalar, span: Span) -> Vec<Word> {
        let mut places =
            places::of_scalar(self.text, scalar.offset, &scalar.text, scalar.style, span);
        let mut lexer = Lexer::unlimited(&scalar.text);
        let mut words = Vec::new();
        let mut problem = None;
        loop {
            let lexed = lexer.next();
            let span = places.span(lexed.from, lexed.to);
            let raw = scalar.text.get(lexed.from..lexed.to).unwrap_or_default();
            let quote_it = |what: &str| {
                let problem = Diagnostic::error(span, format!("unexpected \"{what}\""));
                problem.hint("a YAML value has no \";\" and no braces of blocks; quote a word that contains them: 'name \"a;b\"'")
            };
            let (found, meant) = match lexed.token {
                Ok(Token::End) => break,
                Ok(Token::Word { text, quoted }) => {
                    words.push(Word { text, span, quoted });
                    continue;
                }
                Ok(Token::Semicolon | Token::Open | Token::Close) => (quote_it(raw), None),
                Err(LexError::BareBraces { brace_at }) => {
                    let hint = format!("quote the regular expression as nginx wants it: \"{raw}\"");
                    let span = places.span(brace_at, brace_at + 1);
                    (
                        Diagnostic::error(span, "unexpected \"{\"").hint(hint),
                        Some(raw),
                    )
                }
                Err(LexError::AfterQuote {
                    character,
                    quote_at,
                }) => {
                    let meant = scalar.text.get(quote_at + 1..lexed.from - 1);
                    (
                        Diagnostic::error(
                            Span { length: 1, ..span },
                            format!("unexpected \"{character}\""),
                        ),
                        meant,
                    )
                }
                Err(LexError::Unclosed { quote } | LexError::TooLong { quote: Some(quote) }) => {
                    let message = format!("unexpected end of the value, expecting \"{quote}\"");
                    (Diagnostic::error(span, message), raw.get(1..))
                }
                Err(LexError::TooLong { quote: None }) => {
                    (Diagnostic::error(span, "too long parameter"), None)
                }
            };
            problem = problem.or(Some(found));
            words.extend(meant.map(|text| Word {
                text: text.to_owned(),
                span,
                quoted: true,
            }));
        }
        if let Some(problem) = problem {
            self.reader.report(problem);
        }
        words
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.reader.report_loss(Diagnostic::error(span, message));
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

#[cfg(test)]
mod tests {
    use super::node::{self, Node, Value};
    use crate::span::FileId;
    use crate::testing::{any_bytes, findings, meaning, nginx, read_bytes, read_files, tree, yaml};
    use proptest::prelude::*;

    /// Both texts mean the same tree.
    fn same(yaml_text: &str, nginx_text: &str) {
        let (left, right) = (yaml(yaml_text), nginx(nginx_text));
        assert_eq!(findings(&left), [""; 0], "{yaml_text}");
        assert_eq!(findings(&right), [""; 0], "{nginx_text}");
        assert_eq!(
            meaning(&left.directives),
            meaning(&right.directives),
            "{yaml_text}"
        );
    }

    #[test]
    fn the_sketch_of_the_documentation() {
        same(
            r#"
worker_processes: auto
http:
  upstream:
    api: { least_conn: on, server: [10.0.0.1:8080 weight=2, 10.0.0.2:8080 backup], keepalive: 64 }
  server:
    - listen: [80, "[::]:80"]
      server_name: [example.com, "*.example.com"]
      location:
        /api/: { proxy_pass: http://api, proxy_read_timeout: 30s }
        "= /up": { return: [200, "ok"] }
"#,
            r#"
worker_processes auto;
http {
    upstream api { least_conn; server 10.0.0.1:8080 weight=2; server 10.0.0.2:8080 backup; keepalive 64; }
    server {
        listen 80; listen [::]:80;
        server_name example.com; server_name *.example.com;
        location /api/ { proxy_pass http://api; proxy_read_timeout 30s; }
        location = /up { return 200 ok; }
    }
}
"#,
        );
    }

    #[test]
    fn scalars_are_nginx_words() {
        same("pid: /a/b.pid", "pid /a/b.pid;");
        same("user: www data", "user www data;");
        same("error_log: '\"/a b\" warn'", "error_log \"/a b\" warn;");
        same("error_log: \"'/a b' warn\"", "error_log '/a b' warn;");
        same(
            "error_log: |\n  /a # comment\n  warn\n",
            "error_log /a warn;",
        );
        same("error_log: >-\n  /a\n  warn\n", "error_log /a warn;");
        same("worker_processes: 0010", "worker_processes 0010;");
        same("pid: ''", "pid '';");
        same(
            "http: {log_format: main '$remote_addr - \"$request\"'}",
            "http { log_format main '$remote_addr - \"$request\"'; }",
        );
    }

    #[test]
    fn switches() {
        for on in ["on", "true", "True", "TRUE"] {
            same(&format!("daemon: {on}"), "daemon on;");
            same(
                &format!("http: {{upstream: {{a: {{ip_hash: {on}}}}}}}"),
                "http { upstream a { ip_hash; } }",
            );
        }
        for off in ["off", "false", "False", "FALSE"] {
            same(&format!("daemon: {off}"), "daemon off;");
            same(
                &format!("http: {{upstream: {{a: {{ip_hash: {off}}}}}}}"),
                "http { upstream a { } }",
            );
        }
        // Quoted it is a text, and `yes` is no switch.
        same("daemon: \"true\"", "daemon true;");
        same("daemon: yes", "daemon yes;");
        same(
            "http: {upstream: {a: {ip_hash: , random: }}}",
            "http { upstream a { ip_hash; random; } }",
        );
        same(
            "http: {server: {access_log: [false]}}",
            "http { server { access_log off; } }",
        );
        same(
            "http: {server: {return: [200, true]}}",
            "http { server { return 200 true; } }",
        );
    }

    #[test]
    fn lists() {
        same(
            "error_log: [a warn, [b c, info]]",
            "error_log a warn; error_log 'b c' info;",
        );
        same(
            "worker_cpu_affinity: [01, 10]",
            "worker_cpu_affinity 01 10;",
        );
        same(
            "http: {error_page: [[500, 502, /50x.html], 404 /404.html]}",
            "http { error_page 500 502 /50x.html; error_page 404 /404.html; }",
        );
        same(
            "http: {server: {return: [301, 'a b']}}",
            "http { server { return 301 'a b'; } }",
        );
        same("http: {server: {listen: []}}", "http { server { } }");
    }

    #[test]
    fn mappings_of_arguments() {
        same(
            "http: {proxy_set_header: {Host: $host, X-A: a b, X-B: ''}}",
            "http { proxy_set_header Host $host; proxy_set_header X-A 'a b'; proxy_set_header X-B ''; }",
        );
        same(
            "http: {add_header: [{X-A: [a, always]}, X-B b], error_page: {500 502: /50x.html}}",
            "http { add_header X-A a always; add_header X-B b; error_page 500 502 /50x.html; }",
        );
        same(
            "http: {log_format: {main: '$a - \"$b\"'}}",
            "http { log_format main '$a - \"$b\"'; }",
        );
        same(
            "http: {upstream: {a: {server: {\"b:80\": , \"c:80\": [weight=2, backup]}}}}",
            "http { upstream a { server b:80; server c:80 weight=2 backup; } }",
        );
    }

    #[test]
    fn blocks() {
        same("events:\nhttp: {}", "events {} http {}");
        same(
            "http: {server: [{listen: 80}, {listen: 81}, ]}",
            "http { server { listen 80; } server { listen 81; } }",
        );
        same(
            "http:\n- {sendfile: on}\n- {sendfile: off}",
            "http { sendfile on; sendfile off; }",
        );
        same(
            "http: {server: [[{set: $a 1}, {if: {($a = 1): {set: $a 2}}}, {set: $b 3}]]}",
            "http { server { set $a 1; if ($a = 1) { set $a 2; } set $b 3; } }",
        );
        same(
            "http: {server: {location: {'~ \"^/\\d{3}\"': {location: {/a: }}, '@x': {root: /}}}}",
            "http { server { location ~ \"^/\\d{3}\" { location /a {} } location @x { root /; } } }",
        );
        same(
            "http: {server: {location: [{/a: {root: a}}, {/a: [{root: b}, {index: c}]}]}}",
            "http { server { location /a { root a; } location /a { root b; index c; } } }",
        );
        same(
            "http: {map: {$a $b: {default: 0, '': 1, '~x y': 'a \"b', hostnames: on, volatile: }}}",
            "http { map $a $b { default 0; '' 1; '~x y' 'a \"b'; hostnames; volatile; } }",
        );
        same(
            "http: {types: {text/html: [html, htm], a/b: c d}}",
            "http { types { text/html html htm; a/b c d; } }",
        );
    }

    #[test]
    fn anchors() {
        same(
            "http: {server: {location: {/a: &p {root: &x /a b, index: c}, /b: *p, /c: [*p, {merge_slashes: off}], /d: {root: *x}}}}",
            "http { server { location /a { root /a b; index c; } location /b { root /a b; index c; } location /c { root /a b; index c; merge_slashes off; } location /d { root /a b; } } }",
        );
    }

    #[test]
    fn places_are_exact() {
        let place = |text: &str, wanted: &str| {
            let reading = yaml(text);
            let word = reading.directives[0]
                .args
                .iter()
                .find(|word| word.text == wanted)
                .unwrap();
            (word.span.line, word.span.column, word.span.length)
        };
        assert_eq!(place("error_log: /a warn", "/a"), (1, 12, 2));
        assert_eq!(place("error_log: /a warn", "warn"), (1, 15, 4));
        assert_eq!(place("error_log: '/a  warn'", "warn"), (1, 17, 4));
        assert_eq!(place("error_log: '''/a b'' warn'", "/a b"), (1, 13, 8));
        assert_eq!(place("error_log: '''/a b'' warn'", "warn"), (1, 22, 4));
        assert_eq!(place("error_log: \"\\x41\\\" b warn\"", "warn"), (1, 22, 4));
        assert_eq!(place("error_log: ü  wärn # c", "wärn"), (1, 15, 4));
        assert_eq!(place("error_log: /a\n   warn\n   info", "warn"), (2, 4, 4));
        assert_eq!(place("error_log: /a\n   warn\n   info", "info"), (3, 4, 4));
        assert_eq!(place("error_log: |\n   /a\n     warn\n", "warn"), (3, 6, 4));
        assert_eq!(
            place("error_log: >-\n   /a\n\n   warn\n", "warn"),
            (4, 4, 4)
        );
        assert_eq!(place("error_log: \"/a \\\n   warn\"", "warn"), (2, 4, 4));
        assert_eq!(place("error_log: [[\"/a b\", warn]]", "/a b"), (1, 14, 6));
        assert_eq!(
            place("error_log: [[\"/a b\", &x warn]]", "warn"),
            (1, 25, 4)
        );
        assert_eq!(place("error_log: {/a: &x 'warn'}", "warn"), (1, 20, 6));
        assert_eq!(place("\u{feff}error_log: /a warn", "warn"), (1, 15, 4));
        let reading = yaml("error_log:\n  - a b\n  - 'c'\n");
        let at = reading
            .directives
            .iter()
            .map(|one| (one.at.line, one.at.column, one.at.length));
        assert_eq!(at.collect::<Vec<_>>(), [(2, 5, 3), (3, 5, 3)]);
        let name = reading.directives[1].name.span;
        assert_eq!((name.line, name.column, name.length), (1, 1, 9));
    }

    #[test]
    fn mistakes_at_their_places() {
        let cases: &[(&str, &[&str])] = &[
            ("pid: a\npid: b\n", &["2:1+3 duplicate key \"pid\""]),
            ("pid: a;\n", &["1:7+1 unexpected \";\""]),
            (
                "http:\n  server:\n    location:\n      '~ ^/\\d{3}/': {}\n",
                &["4:14+1 unexpected \"{\""],
            ),
            ("pid: '\"a\"b'\n", &["1:10+1 unexpected \"b\""]),
            (
                "pid: '\"ab'\n",
                &["1:7+3 unexpected end of the value, expecting \"\"\""],
            ),
            (
                "pid: {a: b}\n",
                &["1:6+1 \"pid\" takes arguments, not a mapping"],
            ),
            (
                "pid: [[a]]\n",
                &["1:7+1 an argument of \"pid\" must be a scalar"],
            ),
            (
                "http: 5\n",
                &["1:7+1 \"http\" needs a block: a mapping of directives"],
            ),
            (
                "http: {server: [5]}\n",
                &["1:17+1 \"server\" needs a block: a mapping of directives"],
            ),
            (
                "http: {server: {location: /a}}\n",
                &["1:27+2 \"location\" needs a mapping from its arguments to blocks"],
            ),
            (
                "http: {server: {location: {/a: b}}}\n",
                &["1:32+1 \"location\" needs a block: a mapping of directives"],
            ),
            (
                "http: [a]\n",
                &["1:8+1 a block written as a list holds mappings only"],
            ),
            (
                "http: {server: {location /a: {}}}\n",
                &["1:17+11 unknown directive \"location /a\""],
            ),
            ("[a]: b\n", &["1:1+1 a key must be a scalar"]),
            ("a: !x b\n", &["1:4+1 YAML tags are not supported: \"!x\""]),
            (
                "a: b\n---\nc: d\n",
                &["2:1+1 a configuration is one YAML document"],
            ),
            (
                "a: *b\n",
                &["1:4+1 YAML syntax: while parsing node, found unknown anchor"],
            ),
            (
                "a: &b [*b]\n",
                &["1:8+1 a YAML alias inside its own anchor"],
            ),
            (
                "x: &x {a: b}\nhttp: {<<: *x}\n",
                &["2:8+2 the merge key \"<<\" is not supported"],
            ),
            (
                "http:\n\tserver: a\n",
                &["2:2+1 YAML syntax: tabs disallowed within this context (block indentation)"],
            ),
            (
                "a: b: c\n",
                &["1:5+1 YAML syntax: mapping values are not allowed in this context"],
            ),
            (
                "worker_processes 1;\n",
                &["1:1+19 a YAML configuration is a mapping of directives"],
            ),
            (
                "a: b\u{0}c\n",
                &["1:5+1 unexpected control character U+0000"],
            ),
            (
                "include: [a b]",
                &["1:1+7 invalid number of arguments in \"include\" directive"],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(&findings(&yaml(text)), expected, "{text}");
        }
    }

    #[test]
    fn every_mistake_of_a_file_is_found_once() {
        let text = "pid: a;b\n\
            pid: c\n\
            http:\n\
            \x20 server:\n\
            \x20   - listen: {a: {b: c}}\n\
            \x20     location: 5\n\
            \x20   - 7\n\
            \x20   - location:\n\
            \x20       /a: b\n\
            \x20       /a: {}\n\
            \x20       /c: {proxy_pass: '\"x\"y', root: [[a]]}\n\
            daemon: {a: b}\n";
        let found = findings(&yaml(text));
        let lines: Vec<_> = found
            .iter()
            .map(|finding| finding.split(':').next().unwrap())
            .collect();
        assert_eq!(
            lines,
            ["2", "1", "5", "6", "7", "10", "9", "11", "11", "12"]
        );
    }

    #[test]
    fn limits() {
        let deep = format!("http: {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(
            findings(&yaml(deep)),
            ["1:262+1 YAML values are nested too deep"]
        );
        let deep = format!("http: \n{}a", "- ".repeat(100_000));
        assert_eq!(
            findings(&yaml(deep)),
            ["2:499+1 YAML values are nested too deep"]
        );
        let mut nested = String::from("a: 1");
        for _ in 0..110 {
            nested = format!("location: {{/: {{{nested}}}}}");
        }
        let found = yaml(format!("http: {{server: {{{nested}}}}}"));
        assert_eq!(found.diagnostics.len(), 1);
        assert_eq!(found.diagnostics[0].message, "blocks are nested too deep");
        let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
        for (inner, outer) in ('a'..'j').zip('b'..='j') {
            let aliases = vec![format!("*{inner}"); 7].join(", ");
            bomb.push_str(&format!("{outer}: &{outer} [{aliases}]\n"));
        }
        let found = yaml(bomb);
        assert_eq!(
            found.diagnostics[0].message,
            "YAML aliases stand for more than 100000 values"
        );
    }

    #[test]
    fn includes_of_either_syntax() {
        let (reading, _) = read_files(&[
            (
                "kp.yaml",
                b"http:\n  include: [u.d/*.conf, s.yml]\n  map: {$a $b: {include: m.conf}}\n",
            ),
            ("u.d/1.conf", b"upstream a { server b; }\n"),
            ("u.d/2.conf", b"upstream c { server d; }\n"),
            ("s.yml", b"server: [{location: {/: {include: l.conf}}}]\n"),
            ("l.conf", b"root /x;\n"),
            ("m.conf", b"hostnames;\nx y;\n"),
        ]);
        assert_eq!(findings(&reading), [""; 0]);
        let expected = "http {upstream a {server b;} upstream c {server d;} \
            server {location / {root /x;}} map $a $b {hostnames; x y;}}";
        assert_eq!(tree(&reading.directives), expected);
    }

    #[test]
    fn the_enclosing_blocks() {
        let reading = yaml(
            "http:\n  server:\n    - location:\n        /a: {proxy_pass: x;}\n      root: y;\n  sendfile: z;\n",
        );
        let labels = |one: &crate::Diagnostic| -> Vec<String> {
            let blocks = reading.sources.enclosing(one.span.unwrap());
            blocks
                .into_iter()
                .map(|(_, label)| label.to_owned())
                .collect()
        };
        let within: Vec<_> = reading.diagnostics.iter().map(labels).collect();
        assert_eq!(
            within,
            [
                vec!["location \"/a\"", "server", "http"],
                vec!["server", "http"],
                vec!["http"]
            ]
        );
    }

    /// A YAML value with the scalar texts of [`serde_yaml`]'s reading, as this front end reads it.
    fn value(node: &Node) -> serde_yaml::Value {
        match &node.value {
            Value::Scalar(scalar) if scalar.is_null() => serde_yaml::Value::Null,
            Value::Scalar(scalar) => serde_yaml::Value::String(scalar.text.clone()),
            Value::List(elements) => {
                serde_yaml::Value::Sequence(elements.iter().map(|one| value(one)).collect())
            }
            Value::Map { pairs, .. } => {
                let pairs = pairs.iter().map(|(key, one)| (value(key), value(one)));
                serde_yaml::Value::Mapping(pairs.collect())
            }
        }
    }

    /// Numbers and booleans as texts: this front end keeps texts, and the other's readings of them are its own.
    fn same_value(ours: &serde_yaml::Value, theirs: &serde_yaml::Value) -> bool {
        use serde_yaml::Value::{Bool, Mapping, Null, Number, Sequence, String};
        match (ours, theirs) {
            (String(_), Number(_) | Bool(_)) => true,
            (String(left), String(right)) => left == right,
            (Null, Null) => true,
            (Sequence(left), Sequence(right)) => {
                left.len() == right.len()
                    && left
                        .iter()
                        .zip(right)
                        .all(|(left, right)| same_value(left, right))
            }
            (Mapping(left), Mapping(right)) => {
                left.len() == right.len()
                    && left.iter().zip(right).all(|(left, right)| {
                        same_value(left.0, right.0) && same_value(left.1, right.1)
                    })
            }
            _ => false,
        }
    }

    /// YAML as people write it: keys, lists and scalars in every style, indented at random.
    fn any_document() -> impl Strategy<Value = String> {
        let pieces = vec![
            "a", "b c", "\n", "\n  ", "\n    ", "a: ", "b: ", "c:", "- ", "[", "]", "{", "}", ", ",
            "'", "\"", "''", "\\n", "|\n", ">-\n", "# d\n", "1.10", "on", "~", "ü",
        ];
        proptest::collection::vec(proptest::sample::select(pieces), 0..16)
            .prop_map(|pieces| format!("k: {}\n", pieces.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn a_document_is_what_another_parser_reads(text in any_document()) {
            let ours = node::read(FileId(0), &text);
            let theirs = serde_yaml::from_str::<serde_yaml::Value>(&text);
            if let (Ok(Some(ours)), Ok(theirs)) = (ours, theirs) {
                let ours = value(&ours);
                prop_assert!(same_value(&ours, &theirs), "{:?} is not {:?}", ours, theirs);
            }
        }

        #[test]
        fn any_bytes_are_read_and_shown(bytes in any_bytes()) {
            let reading = read_bytes(&bytes, "kp.yaml");
            let shown = crate::render(&reading.diagnostics, &reading.sources);
            prop_assert_eq!(shown.is_empty(), reading.diagnostics.is_empty());
        }

        #[test]
        fn any_document_is_read_and_shown(text in any_document()) {
            let reading = read_bytes(format!("http:\n {text}").as_bytes(), "kp.yaml");
            crate::render(&reading.diagnostics, &reading.sources);
        }

        #[test]
        fn a_word_is_found_where_it_was_written(words in proptest::collection::vec("[a-zü]{1,4}", 1..5), style in 0..5_usize) {
            let joined = words.join("  ");
            let (before, after) = [("", ""), ("'", "'"), ("\"", "\""), ("|\n    ", "\n"), (">\n    ", "\n")][style];
            let text = format!("pid: {before}{joined}{after}");
            let reading = yaml(&text);
            let found = &reading.directives[0].args;
            prop_assert_eq!(found.len(), words.len());
            for word in found {
                let line = text.lines().nth(word.span.line as usize - 1).unwrap();
                let there = line.chars().skip(word.span.column as usize - 1).take(word.span.length as usize);
                prop_assert_eq!(there.collect::<String>(), word.text.clone());
            }
        }
    }
}
