//! The house rules that a machine can check: who may depend on whom, where `unsafe` lives, how long a function may be,
//! and that no document points at nothing. `docs/ARCHITECTURE.md` says why.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests panic to fail"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use kp_tests::source;
use serde_json::Value;

/// Who may depend on which crate of the house. Nothing else.
const ARROWS: [(&str, &[&str]); 11] = [
    ("kp-sys", &[]),
    ("kp-shm", &["kp-sys"]),
    ("kp-config", &[]),
    ("kp-http", &[]),
    ("kp-dns", &[]),
    ("kp-upstream", &["kp-config", "kp-shm"]),
    (
        "kp-proxy",
        &["kp-http", "kp-upstream", "kp-config", "kp-shm"],
    ),
    ("kp-tls", &["kp-config", "kp-shm"]),
    (
        "kp-worker",
        &[
            "kp-proxy",
            "kp-tls",
            "kp-http",
            "kp-dns",
            "kp-upstream",
            "kp-config",
            "kp-shm",
            "kp-sys",
        ],
    ),
    (
        "kp",
        &["kp-worker", "kp-tls", "kp-config", "kp-shm", "kp-sys"],
    ),
    ("kp-tests", &["kp-config"]),
];

/// Outside crates that only one crate of the house may use.
const OWNED: [(&str, &str); 18] = [
    ("libc", "kp-sys"),
    ("nix", "kp-sys"),
    ("signal-hook", "kp-sys"),
    ("socket2", "kp-sys"),
    ("saphyr-parser", "kp-config"),
    ("domain", "kp-dns"),
    ("httparse", "kp-http"),
    ("regex-automata", "kp-proxy"),
    ("rustls", "kp-tls"),
    ("rustls-webpki", "kp-tls"),
    ("aws-lc-rs", "kp-tls"),
    ("arc-swap", "kp-tls"),
    ("x509-cert", "kp-tls"),
    ("pkcs8", "kp-tls"),
    ("mio", "kp-worker"),
    ("flate2", "kp-worker"),
    ("env_logger", "kp"),
    ("sd-notify", "kp"),
];

/// Small outside crates without I/O, state or policy, which any crate may use.
const COMMON: [&str; 10] = [
    "log",
    "memchr",
    "itoa",
    "httpdate",
    "slab",
    "crc32fast",
    "glob",
    "ipnet",
    "serde",
    "serde_json",
];

/// Functions that are longer than [`LINES_MAX`], with a reason to stay so. The list may only get shorter.
const LONG_FUNCTIONS: [(&str, &str); 0] = [];

/// Longest function, from its signature to its closing brace. A test may be a longer list of cases.
const LINES_MAX: usize = 70;

#[test]
fn crates_depend_only_along_the_arrows() {
    for package in packages() {
        let name = text(&package, "name");
        let (_, allowed) = ARROWS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| {
            panic!("the crate {name} is in no arrow: docs/ARCHITECTURE.md and this test must name it")
        });
        for (dependency, kind) in dependencies(&package) {
            if ARROWS.iter().any(|(known, _)| *known == dependency) {
                assert!(
                    allowed.contains(&dependency.as_str()),
                    "{name} must not depend on {dependency} ({kind})"
                );
            }
        }
    }
}

#[test]
fn outside_crates_stay_in_their_room() {
    for package in packages() {
        let name = text(&package, "name");
        for (dependency, kind) in dependencies(&package) {
            let inside = ARROWS.iter().any(|(known, _)| *known == dependency);
            // What only tests use cannot reach the binary.
            if inside || kind == "dev" || name == "kp-tests" {
                continue;
            }
            match OWNED.iter().find(|(known, _)| *known == dependency) {
                Some((_, owner)) => {
                    assert_eq!(*owner, name, "{dependency} may be used by {owner} only");
                }
                None => assert!(
                    COMMON.contains(&dependency.as_str()),
                    "{name} uses {dependency}: give it an owner here and in docs/ARCHITECTURE.md"
                ),
            }
        }
    }
}

#[test]
fn nothing_depends_on_the_tests() {
    for package in packages() {
        let names: Vec<String> = dependencies(&package)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert!(
            !names.contains(&"kp-tests".to_owned()),
            "{} depends on kp-tests",
            text(&package, "name")
        );
    }
}

#[test]
fn unsafe_code_is_in_kp_sys_and_says_why_it_is_sound() {
    for path in source::with_ending(&["rs"]) {
        let content = source::read(&path);
        let lines: Vec<&str> = content.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            if !is_unsafe(line) {
                continue;
            }
            let place = format!("{}:{}", path.display(), index + 1);
            assert!(
                path.starts_with("crates/kp-sys"),
                "{place}: unsafe outside kp-sys"
            );
            let above = &lines[index.saturating_sub(8)..index];
            let reasoned = above
                .iter()
                .any(|line| line.contains("SAFETY:") || line.contains("# Safety"));
            assert!(reasoned, "{place}: unsafe without a SAFETY comment");
        }
    }
}

fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    [
        "unsafe {",
        "unsafe fn",
        "unsafe impl",
        "unsafe extern",
        "unsafe trait",
        "#[unsafe(",
    ]
    .iter()
    .any(|form| {
        // A form inside a string literal, as above, follows a quote.
        code.find(form).is_some_and(|at| !code[..at].contains('"'))
    })
}

#[test]
fn long_functions_become_fewer() {
    let mut long = BTreeSet::new();
    for path in source::with_ending(&["rs"]) {
        for (name, lines) in functions(&source::read(&path)) {
            if lines > LINES_MAX {
                let known = LONG_FUNCTIONS
                    .iter()
                    .any(|(file, known)| path == Path::new(file) && *known == name);
                assert!(
                    known,
                    "{}: fn {name} has {lines} lines, more than {LINES_MAX}",
                    path.display()
                );
                long.insert((path.clone(), name));
            }
        }
    }
    for (file, name) in LONG_FUNCTIONS {
        let still = long.contains(&(PathBuf::from(file), name.to_owned()));
        assert!(
            still,
            "{file}: fn {name} is short now: take it off the list"
        );
    }
}

/// The functions of a formatted file with their length in lines: from the line with `fn` to the first line that is
/// nothing but a closing brace at the same depth.
fn functions(content: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = content.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let depth = line.len() - code.len();
        if index > 0 && lines[index - 1].trim() == "#[test]" {
            continue;
        }
        let Some((before, after)) = code.split_once("fn ") else {
            continue;
        };
        let words = [
            "pub",
            "pub(crate)",
            "pub(super)",
            "const",
            "async",
            "unsafe",
            "extern",
            "\"C\"",
        ];
        if !before.split_whitespace().all(|word| words.contains(&word)) {
            continue;
        }
        let name = after
            .split(['(', '<'])
            .next()
            .unwrap_or_default()
            .to_owned();
        // A declaration without a body, or one on a single line, has no closing brace of its own.
        let Some(open) = lines[index..]
            .iter()
            .find(|line| line.ends_with(['{', '}', ';']))
        else {
            continue;
        };
        let close = format!("{}}}", " ".repeat(depth));
        if let Some(length) = lines[index..].iter().position(|line| *line == close)
            && open.ends_with('{')
        {
            found.push((name, length + 1));
        }
    }
    found
}

#[test]
fn no_file_names_a_machine() {
    // Written in two halves, so that this file does not name them either.
    let forbidden = [
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
        concat!("../sha", "red"),
    ];
    for path in source::files() {
        let content = source::read(&path);
        for text in forbidden {
            assert!(
                !content.contains(text),
                "{} contains {text}",
                path.display()
            );
        }
    }
}

#[test]
fn every_source_file_says_what_it_is() {
    for path in source::with_ending(&["rs"]) {
        let content = source::read(&path);
        assert!(
            content.starts_with("//!"),
            "{} does not open with //!",
            path.display()
        );
    }
}

#[test]
fn every_link_of_the_documents_resolves() {
    for path in source::with_ending(&["md"]) {
        let content = source::read(&path);
        for target in links(&content) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target.as_str(), ""));
            let base = path.parent().unwrap_or(Path::new(""));
            let goal = if file.is_empty() {
                path.clone()
            } else {
                base.join(file)
            };
            assert!(
                source::root().join(&goal).exists(),
                "{}: no such file: {target}",
                path.display()
            );
            if !anchor.is_empty() {
                let headings = headings(&source::read(&goal));
                assert!(
                    headings.contains(&anchor.to_owned()),
                    "{}: no such heading: {target}",
                    path.display()
                );
            }
        }
    }
}

/// The targets of `[text](target)` outside code.
fn links(content: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in content.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Text between single backquotes is code: every second part.
        for part in line.split('`').step_by(2) {
            for after in part.split("](").skip(1) {
                found.extend(after.split(')').next().map(str::to_owned));
            }
        }
    }
    // A link whose text is code is split by the backquotes: `](target)` then starts the next part.
    found
}

/// The anchors of a document's headings, as GitHub makes them.
fn headings(content: &str) -> Vec<String> {
    let anchor = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    content
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(anchor)
        .collect()
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(source::root())
        .output()
        .expect("running cargo metadata");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON from cargo metadata");
    metadata["packages"]
        .as_array()
        .expect("a list of packages")
        .clone()
}

/// Name and kind (`normal`, `dev`, `build`) of what a package depends on.
fn dependencies(package: &Value) -> Vec<(String, String)> {
    let list = package["dependencies"]
        .as_array()
        .expect("a list of dependencies");
    list.iter()
        .map(|entry| {
            (
                text(entry, "name"),
                entry["kind"].as_str().unwrap_or("normal").to_owned(),
            )
        })
        .collect()
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_readers_of_this_file_read() {
    let code = "impl A {\n    pub fn a(&self) {\n        x\n    }\n}\nfn b<T>() {}\nfn c(\n    x: u8,\n) {\n}\n";
    assert_eq!(functions(code), [("a".to_owned(), 3), ("c".to_owned(), 4)]);
    assert_eq!(
        links("[a](b) `[c](d)` [`e`](f#g)\n```\n[h](i)\n```\n"),
        ["b", "f#g"]
    );
    assert_eq!(headings("# A b, c\ntext\n## D-e\n"), ["a-b-c", "d-e"]);
    assert!(is_unsafe("    let x = unsafe { y };") && !is_unsafe("// unsafe { y }"));
}
