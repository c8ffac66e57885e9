//! Every directive of the table is shown by a behaviour test, and stands in the examples of both syntaxes.
//!
//! A test says what it shows in a line `/// Shows: name, name` directly above its `#[test]`. The name must also occur in
//! the test's file outside of such lines, so that a promise cannot be made in a comment alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests panic to fail"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use kp_config::directives;
use kp_tests::source;

const MARK: &str = "/// Shows: ";

/// Directives that cannot stand anywhere without a warning, which no example may have.
const ALWAYS_WARNS: [&str; 2] = ["load_module", "ssl_dhparam"];

/// The names of the table, each once.
fn names() -> BTreeSet<&'static str> {
    directives::all().map(|entry| entry.name).collect()
}

/// The files that hold tests of the binary.
fn files() -> Vec<PathBuf> {
    let ours = |path: &PathBuf| {
        path.starts_with("tests/tests/behaviour") || path.ends_with("tests/tests/timing.rs")
    };
    source::with_ending(&["rs"])
        .into_iter()
        .filter(ours)
        .collect()
}

/// What is shown, with the tests that show it.
fn shown() -> BTreeMap<String, Vec<String>> {
    let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files() {
        let content = source::read(&path);
        let lines: Vec<&str> = content.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(list) = line.strip_prefix(MARK) else {
                continue;
            };
            let place = format!("{}:{}", path.display(), index + 1);
            assert_eq!(
                lines.get(index + 1),
                Some(&"#[test]"),
                "{place} is not above a test"
            );
            let test = lines
                .get(index + 2)
                .unwrap_or(&"")
                .trim_start_matches("fn ");
            for name in list.split(", ") {
                assert!(
                    used(&lines, name),
                    "{place}: nothing in the file uses {name}"
                );
                shown
                    .entry(name.to_owned())
                    .or_default()
                    .push(test.to_owned());
            }
        }
    }
    shown
}

fn used(lines: &[&str], name: &str) -> bool {
    lines
        .iter()
        .any(|line| !line.starts_with("//") && has_word(line, name))
}

/// Whether the text holds the name, not as a part of a longer one.
fn has_word(text: &str, name: &str) -> bool {
    let part =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(name).any(|(at, _)| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        !part(before) && !part(bytes.get(at + name.len()))
    })
}

#[test]
fn every_directive_is_shown_by_a_test() {
    let shown = shown();
    let missing: Vec<&str> = names()
        .into_iter()
        .filter(|name| !shown.contains_key(*name))
        .collect();
    assert!(missing.is_empty(), "no behaviour test shows {missing:?}");
}

#[test]
fn only_directives_are_shown() {
    let names = names();
    for (name, tests) in shown() {
        assert!(
            names.contains(name.as_str()),
            "{name}, shown by {tests:?}, is no directive"
        );
    }
}

#[test]
fn every_directive_stands_in_the_examples_of_both_syntaxes() {
    for ending in ["conf", "yaml"] {
        let texts: Vec<String> = source::with_ending(&[ending])
            .iter()
            .filter(|path| path.starts_with("etc/examples"))
            .map(|path| source::read(path))
            .collect();
        let stands = |name: &&str| {
            let uncommented = |line: &&str| !line.trim_start().starts_with('#');
            texts.iter().any(|text| {
                text.lines()
                    .filter(uncommented)
                    .any(|line| has_word(line, name))
            })
        };
        let missing: Vec<&str> = names()
            .into_iter()
            .filter(|name| !stands(name) && !ALWAYS_WARNS.contains(name))
            .collect();
        assert!(
            missing.is_empty(),
            "no etc/examples/*.{ending} has {missing:?}"
        );
    }
}

#[test]
fn words_are_told_apart() {
    assert!(has_word("a proxy_pass b", "proxy_pass") && has_word("proxy_pass;", "proxy_pass"));
    assert!(!has_word("proxy_pass_header x", "proxy_pass") && !has_word("my_set", "set"));
}
