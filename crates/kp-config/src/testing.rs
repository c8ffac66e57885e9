//! What the front ends' tests share: files in a directory of their own, findings and trees as text.

use crate::LoadOptions;
use crate::diagnostic::Severity;
use crate::sources::{Reader, Reading, read};
use crate::syntax::Directive;
use proptest::prelude::*;

/// Reads the first of these files, with `DIR` in a text replaced by their directory, and tells the directory.
pub(crate) fn read_files(files: &[(&str, &[u8])]) -> (Reading, String) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let options = LoadOptions {
        path: files[0].0.into(),
        prefix: directory.path().to_path_buf(),
        ..LoadOptions::default()
    };
    (read(&options), directory.path().display().to_string())
}

/// Reads bytes as the main file of this name, which decides the syntax.
pub(crate) fn read_bytes(bytes: &[u8], name: &str) -> Reading {
    Reader::read_bytes(bytes, name)
}

/// Any bytes, most of them of a meaning in one of the syntaxes.
pub(crate) fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let special: Vec<&[u8]> = vec![
        b" ",
        b"\n",
        b"\r\n",
        b"\t",
        b";",
        b"{",
        b"}",
        b"\"",
        b"'",
        b"\\",
        b"$",
        b"#",
        b"include ",
        b"a",
        b"location",
        b"server",
        b": ",
        b"- ",
        b"[",
        b"]",
        b"&a ",
        b"*a",
        b"|\n",
        b"\xc3\xbc",
        b"\xff",
        b"\xe4\xb8\xad",
    ];
    let piece = prop_oneof![
        6 => proptest::sample::select(special).prop_map(<[u8]>::to_vec),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Reads one text in nginx's syntax.
pub(crate) fn nginx(text: impl AsRef<[u8]>) -> Reading {
    read_bytes(text.as_ref(), "kp.conf")
}

/// Reads one text in YAML.
pub(crate) fn yaml(text: impl AsRef<[u8]>) -> Reading {
    read_bytes(text.as_ref(), "kp.yaml")
}

/// `LINE:COLUMN+LENGTH MESSAGE` of every finding; warnings begin with `warn`. Each that has a place must have advice.
pub(crate) fn findings(reading: &Reading) -> Vec<String> {
    let one = |diagnostic: &crate::Diagnostic| {
        let advised = diagnostic.span.is_none() || diagnostic.hint.is_some();
        assert!(advised, "no hint: {}", diagnostic.message);
        let warn = if diagnostic.severity == Severity::Warning {
            "warn "
        } else {
            ""
        };
        match diagnostic.span {
            Some(span) => format!(
                "{warn}{}:{}+{} {}",
                span.line, span.column, span.length, diagnostic.message
            ),
            None => format!("{warn}{}", diagnostic.message),
        }
    };
    reading.diagnostics.iter().map(one).collect()
}

/// The tree in one line: quoted words in `<>`, the inside of blocks in `{}`.
pub(crate) fn tree(directives: &[Directive]) -> String {
    let one = |directive: &Directive| {
        let words = std::iter::once(&directive.name).chain(&directive.args);
        let words = words.map(|word| {
            if word.quoted {
                format!("<{}>", word.text)
            } else {
                word.text.clone()
            }
        });
        let words: Vec<String> = words.collect();
        match &directive.block {
            Some(block) => format!("{} {{{}}}", words.join(" "), tree(&block.directives)),
            None => format!("{};", words.join(" ")),
        }
    };
    directives.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// The same without the mark of quoting: what a directive's meaning depends on.
pub(crate) fn meaning(directives: &[Directive]) -> Vec<(Vec<String>, Option<Box<Meaning>>)> {
    directives
        .iter()
        .map(|directive| {
            let words = std::iter::once(&directive.name).chain(&directive.args);
            let words = words.map(|word| word.text.clone()).collect();
            let block = directive
                .block
                .as_ref()
                .map(|block| Box::new(Meaning(meaning(&block.directives))));
            (words, block)
        })
        .collect()
}

/// What stands in a block, see [`meaning`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Meaning(pub(crate) Vec<(Vec<String>, Option<Box<Self>>)>);

/// Writes a word so that reading it gives the same text: bare where that is possible, else in double quotes.
pub(crate) fn quote(text: &str, out: &mut String) {
    let special = |character: char| {
        matches!(
            character,
            ' ' | '\t' | '\r' | '\n' | ';' | '{' | '}' | '"' | '\'' | '\\' | '#' | '\u{feff}'
        )
    };
    if !text.is_empty() && !text.contains(special) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            _ => out.push(character),
        }
    }
    out.push('"');
}
