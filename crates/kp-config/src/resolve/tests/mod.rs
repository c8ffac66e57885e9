//! Tests from nginx text to findings and model.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod health;
mod inheritance;
mod limits;
mod listeners;
mod locations;
mod logs;
mod maps;
mod positions;
mod properties;
mod proxy_pass;
mod settings;
mod tls;
mod upstreams;
mod yaml;

use super::*;
use crate::diagnostic::Severity;
use crate::model::{Location, LocationMatch};
use crate::testing;

pub(super) fn environment() -> Environment {
    Environment {
        prefix: "/prefix".into(),
        directory: "/conf".into(),
        state: std::path::PathBuf::new(),
        pid: "/run/kp.pid".into(),
        error_log: "/logs/error.log".into(),
        access_log: "/logs/access.log".into(),
        hostname: "Box".into(),
        resolve_names: true,
        root: true,
    }
}

fn load(text: &str) -> (Option<Config>, Vec<Diagnostic>) {
    let reading = testing::nginx(text);
    assert_eq!(reading.diagnostics, [], "{text}");
    let resolved = resolve(&reading.directives, &environment());
    (resolved.config, resolved.diagnostics)
}

/// `LINE:COLUMN MESSAGE` of every finding; warnings begin with `warn`.
fn findings(text: &str) -> Vec<String> {
    let (config, diagnostics) = load(text);
    let errors = diagnostics
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    assert_eq!(
        config.is_none(),
        errors,
        "a configuration exactly without errors: {text}"
    );
    listed(&diagnostics)
}

fn listed(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics
        .iter()
        .map(|finding| {
            let warn = if finding.severity == Severity::Warning {
                "warn "
            } else {
                ""
            };
            let span = finding.span.expect("findings about text have a place");
            format!("{warn}{}:{} {}", span.line, span.column, finding.message)
        })
        .collect()
}

/// The hint of the only finding.
fn hint(text: &str) -> String {
    let (_, diagnostics) = load(text);
    let [finding] = diagnostics.as_slice() else {
        panic!("one finding expected: {diagnostics:?}")
    };
    finding.hint.clone().unwrap_or_default()
}

fn config(text: &str) -> Config {
    let (config, diagnostics) = load(text);
    assert_eq!(diagnostics, [], "{text}");
    config.expect("no finding, so a configuration")
}

/// `http { … }` around a text, on its own lines, so that the text's lines count from 2.
fn http(text: &str) -> String {
    format!("http {{\n{text}\n}}\n")
}

/// A server around a text; the text's lines count from 2.
fn server(text: &str) -> String {
    format!(
        "http {{ upstream u {{ server 127.0.0.1:9000; }} server {{ listen 8080;\n{text}\n}} }}\n"
    )
}

/// A location around a text; the text's lines count from 2.
fn location(text: &str) -> String {
    format!(
        "http {{ upstream u {{ server 127.0.0.1:9000; }} server {{ listen 8080; location /a/ {{\n{text}\n}} }} }}\n"
    )
}

/// The location with this prefix.
fn prefix<'a>(config: &'a Config, wanted: &str) -> &'a Location {
    let found = config.http.locations.iter().find(|location| {
        matches!(&location.matches, LocationMatch::Prefix { text, .. } if text == wanted)
    });
    found.unwrap_or_else(|| panic!("no location {wanted}"))
}
