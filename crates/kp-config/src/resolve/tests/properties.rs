//! Whatever the tree, resolve ends and keeps its promise.

use super::*;
use crate::directives;
use crate::syntax::{Block, Directive, Word};
use proptest::prelude::*;

/// Names of the table and a few that it does not have.
fn names() -> impl Strategy<Value = String> {
    let known: Vec<String> = directives::all()
        .map(|entry| entry.name.to_owned())
        .collect();
    prop_oneof![
        8 => proptest::sample::select(known),
        1 => Just("default".to_owned()),
        1 => ".{0,6}",
    ]
}

fn texts() -> impl Strategy<Value = String> {
    let typical = [
        "on",
        "off",
        "0",
        "1",
        "8k",
        "1m30s",
        "$host",
        "${",
        "$",
        "/",
        "/a/",
        "@n",
        "~",
        "~*",
        "=",
        "^~",
        "(",
        ")",
        "($host",
        "=x",
        "http://u",
        "http://$arg_x/",
        "unix:",
        "[::1]:80",
        "80",
        "u",
        "weight=2",
        "backup",
        "default",
        "auto",
        "~(?<x>a)",
        "*.a",
        "301",
        "404",
        "stderr",
        "combined",
        "if=$args",
        "é",
        "",
    ];
    prop_oneof![
        6 => proptest::sample::select(typical.to_vec()).prop_map(str::to_owned),
        1 => ".{0,10}",
    ]
}

fn word(text: String, quoted: bool) -> Word {
    Word {
        text,
        span: crate::span::Span {
            line: 1,
            column: 1,
            length: 1,
            ..Default::default()
        },
        quoted,
    }
}

fn directive() -> impl Strategy<Value = Directive> {
    let leaf = (
        names(),
        proptest::collection::vec((texts(), any::<bool>()), 0..4),
        any::<bool>(),
    )
        .prop_map(|(name, args, block)| make(name, args, block.then(Vec::new)));
    leaf.prop_recursive(5, 60, 8, |inner| {
        (
            prop_oneof![
                3 => proptest::sample::select(vec!["http", "server", "location", "if", "upstream", "map", "types", "match", "events"])
                    .prop_map(str::to_owned),
                1 => names(),
            ],
            proptest::collection::vec((texts(), any::<bool>()), 0..4),
            proptest::collection::vec(inner, 0..8),
        )
            .prop_map(|(name, args, inside)| make(name, args, Some(inside)))
    })
}

fn make(name: String, args: Vec<(String, bool)>, inside: Option<Vec<Directive>>) -> Directive {
    let name = word(name, false);
    Directive {
        at: name.span,
        args: args
            .into_iter()
            .map(|(text, quoted)| word(text, quoted))
            .collect(),
        block: inside.map(|directives| Block {
            opened: name.span,
            directives,
        }),
        name,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 3 / 2, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_resolved(tree in proptest::collection::vec(directive(), 0..10)) {
        let environment = Environment { resolve_names: false, ..environment() };
        let Resolved { config, diagnostics, .. } = resolve(&tree, &environment);
        let errors = diagnostics.iter().any(|finding| finding.severity == Severity::Error);
        prop_assert_eq!(config.is_some(), !errors);
    }

    #[test]
    fn any_server_is_resolved(inside in proptest::collection::vec(directive(), 0..10)) {
        let server = make("server".to_owned(), Vec::new(), Some(inside));
        let tree = [make("http".to_owned(), Vec::new(), Some(vec![server]))];
        let environment = Environment { resolve_names: false, ..environment() };
        let Resolved { config, diagnostics, .. } = resolve(&tree, &environment);
        let errors = diagnostics.iter().any(|finding| finding.severity == Severity::Error);
        prop_assert_eq!(config.is_some(), !errors);
    }
}

/// The table, the walk and the setters agree about what may stand where.
#[test]
fn every_row_is_read_where_it_may_stand() {
    let environment = Environment {
        resolve_names: false,
        ..environment()
    };
    for entry in directives::all() {
        let block = (entry.block != directives::BlockKind::None).then(Vec::new);
        let args: Vec<(String, bool)> = (0..entry.arity.min)
            .map(|_| ("on".to_owned(), false))
            .collect();
        for context in entry.contexts.names() {
            let line = make(entry.name.to_owned(), args.clone(), block.clone());
            let diagnostics = resolve(&around(context, line), &environment).diagnostics;
            let misplaced = diagnostics
                .iter()
                .any(|finding| finding.message.contains("not allowed here"));
            let misshapen = diagnostics
                .iter()
                .any(|finding| finding.message.contains("number of arguments"));
            assert!(
                !misplaced && !misshapen,
                "{} in {context}: {diagnostics:?}",
                entry.name
            );
        }
    }
}

/// The blocks of a context around a directive.
fn around(context: &str, line: Directive) -> Vec<Directive> {
    let block = |name: &str, args: &[&str], inside: Vec<Directive>| {
        let args = args
            .iter()
            .map(|text| ((*text).to_owned(), false))
            .collect();
        vec![make(name.to_owned(), args, Some(inside))]
    };
    let http = |inside| block("http", &[], inside);
    let server = |inside| http(block("server", &[], inside));
    let location = |inside| server(block("location", &["/"], inside));
    match context {
        "events" => block("events", &[], vec![line]),
        "http" => http(vec![line]),
        "server" => server(vec![line]),
        "location" => location(vec![line]),
        "if in server" => server(block("if", &["($host)"], vec![line])),
        "if in location" => location(block("if", &["($host)"], vec![line])),
        "upstream" => http(block("upstream", &["u"], vec![line])),
        "map" => http(block("map", &["$host", "$x"], vec![line])),
        "types" => http(block("types", &[], vec![line])),
        "match" => http(block("match", &["m"], vec![line])),
        "limit_except" => location(block("limit_except", &["GET"], vec![line])),
        _ => vec![line],
    }
}
