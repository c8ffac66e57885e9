//! What the front ends' tests share: files in a directory of their own, findings and trees as text.

use crate::LoadOptions;
use crate::diagnostic::Severity;
use crate::sources::{Reading, read};
use crate::syntax::Directive;

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

/// Reads one text in nginx's syntax.
pub(crate) fn nginx(text: impl AsRef<[u8]>) -> Reading {
    read_files(&[("kp.conf", text.as_ref())]).0
}

/// Reads one text in YAML.
pub(crate) fn yaml(text: impl AsRef<[u8]>) -> Reading {
    read_files(&[("kp.yaml", text.as_ref())]).0
}

/// `LINE:COLUMN+LENGTH MESSAGE` of every finding; warnings begin with `warn`.
pub(crate) fn findings(reading: &Reading) -> Vec<String> {
    let one = |diagnostic: &crate::Diagnostic| {
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
