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
