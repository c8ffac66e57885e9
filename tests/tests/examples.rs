//! The examples of `etc/` are there in both syntaxes, and both say the same.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests panic to fail"
)]

use std::path::{Path, PathBuf};

use kp_config::{Config, LoadOptions, load, render};
use kp_tests::source;

/// The examples in nginx's syntax. A folder below `etc/examples` holds files that they include.
fn examples() -> Vec<PathBuf> {
    let ours = |path: &PathBuf| {
        let directory = path.parent().unwrap_or(Path::new(""));
        directory == Path::new("etc") || directory == Path::new("etc/examples")
    };
    source::with_ending(&["conf", "yaml"])
        .into_iter()
        .filter(ours)
        .collect()
}

fn resolved(path: &Path) -> Config {
    let path = source::root().join(path);
    let options = LoadOptions {
        prefix: source::root(),
        path: path.clone(),
        ..LoadOptions::default()
    };
    let loaded = load(&options);
    let said = render(&loaded.diagnostics, &loaded.sources);
    assert!(said.is_empty(), "{said}");
    loaded
        .config
        .unwrap_or_else(|| panic!("{} gives no configuration", path.display()))
}

#[test]
fn examples_come_in_pairs_and_have_no_findings() {
    let examples = examples();
    assert!(examples.len() >= 6, "where are the examples?");
    for path in examples {
        let other = if path.extension().is_some_and(|ending| ending == "conf") {
            "yaml"
        } else {
            "conf"
        };
        let other = path.with_extension(other);
        assert!(
            source::root().join(&other).is_file(),
            "{} has no {}",
            path.display(),
            other.display()
        );
        resolved(&path);
    }
}

#[test]
fn both_of_a_pair_say_the_same() {
    for path in examples() {
        let (one, other) = (resolved(&path), resolved(&path.with_extension("yaml")));
        if one == other {
            continue;
        }
        // The whole of two configurations is too much to read, and places differ anyway.
        let lines = |config: Config| -> Vec<String> {
            let text = format!("{config:#?}");
            let place = |line: &&str| {
                let line = line.trim_start();
                line.starts_with("line: ")
                    || line.starts_with("column: ")
                    || line.starts_with("file: ")
            };
            text.lines()
                .filter(|line| !place(line))
                .map(str::to_owned)
                .collect()
        };
        let (one, other) = (lines(one), lines(other));
        let different = one
            .iter()
            .zip(&other)
            .filter(|(one, other)| one != other)
            .take(5);
        panic!("{}: {:#?}", path.display(), different.collect::<Vec<_>>());
    }
}
