//! Tests from nginx text to model.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::LoadOptions;
use crate::sources;

pub(super) fn environment() -> Environment {
    Environment {
        prefix: "/prefix".into(),
        pid: "/run/kp.pid".into(),
        error_log: "/logs/error.log".into(),
        access_log: "/logs/access.log".into(),
        hostname: "Box".into(),
        resolve_names: true,
        root: true,
    }
}

pub(super) fn load(text: &str) -> (Option<Config>, Vec<Diagnostic>) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("kp.conf"), text).unwrap();
    let options = LoadOptions {
        path: "kp.conf".into(),
        prefix: directory.path().into(),
        ..LoadOptions::default()
    };
    let reading = sources::read(&options);
    assert_eq!(reading.diagnostics, [], "{text}");
    resolve(&reading.directives, &environment())
}

#[test]
fn a_simple_proxy() {
    let (config, diagnostics) = load(
        "error_log /tmp/e.log info;
http {
    upstream u { server 127.0.0.1:9000; }
    access_log /tmp/a.log;
    server { listen 8080; server_name a.b; location / { proxy_pass http://u; } }
}
",
    );
    assert_eq!(diagnostics, []);
    let config = config.unwrap();
    assert_eq!(config.http.listeners.len(), 1);
    assert_eq!(config.http.servers.len(), 1);
    assert_eq!(
        config.log_files,
        [PathBuf::from("/tmp/e.log"), "/tmp/a.log".into()]
    );
}

#[test]
fn zz_try() {
    let Ok(dir) = std::env::var("KP_TRY") else {
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "conf"))
        .collect();
    files.sort();
    for path in files {
        let options = LoadOptions {
            path: path.clone(),
            prefix: dir.clone().into(),
            ..LoadOptions::default()
        };
        let reading = sources::read(&options);
        let mut env = environment();
        env.prefix = dir.clone().into();
        let (config, diagnostics) = resolve(&reading.directives, &env);
        let all: Vec<_> = reading.diagnostics.iter().chain(&diagnostics).collect();
        println!(
            "{} {}",
            path.file_stem().unwrap().to_string_lossy(),
            if config.is_some() && reading.diagnostics.is_empty() {
                "OK"
            } else {
                "FAIL"
            }
        );
        for d in all {
            println!(
                "   {:?} {}:{} {} | {}",
                d.severity,
                d.span.map_or(0, |s| s.line),
                d.span.map_or(0, |s| s.column),
                d.message,
                d.hint.as_deref().unwrap_or("-")
            );
        }
    }
}
