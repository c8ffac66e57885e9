//! `access_log`, `error_log`, `log_format`.

use super::*;
use crate::model::{AccessLog, AccessLogTarget, Escape, LogFormatId};
use crate::template::Part;

fn logs(config: &Config) -> Vec<AccessLog> {
    prefix(config, "/a/").access_logs.clone()
}

#[test]
fn defaults() {
    let config = config(&location(""));
    let log = &logs(&config)[0];
    let AccessLogTarget::File(file) = &log.target else {
        panic!("{log:?}")
    };
    assert_eq!(
        config.log_files[file.index()],
        PathBuf::from("/logs/access.log")
    );
    assert_eq!(
        (log.format, log.buffer, log.flush),
        (LogFormatId(0), None, None)
    );
    let error_log = &prefix(&config, "/a/").error_log[0];
    assert_eq!(error_log.level, Level::Error);
    let LogTarget::File(file) = error_log.target else {
        panic!("{error_log:?}")
    };
    assert_eq!(
        config.log_files[file.index()],
        PathBuf::from("/logs/error.log")
    );
    assert_eq!(config.http.log_formats[0].name, "combined");
    assert_eq!(
        config.temp_paths,
        [
            PathBuf::from("/prefix/client_body_temp"),
            "/prefix/proxy_temp".into()
        ]
    );
}

#[test]
fn forms() {
    let text = format!(
        "error_log stderr crit; error_log main.log;\n{}",
        location(
            "access_log one.log; access_log /two.log main buffer=4k flush=5s if=$args;
access_log logs/$host.log; access_log /dev/stderr; error_log warn.log warn;"
        )
        .replacen(
            "http {",
            "http { log_format main escape=json '{' $host '}';",
            1
        )
    );
    let config = config(&text);
    assert_eq!(config.main.error_log.len(), 2);
    assert_eq!(config.main.error_log[0].target, LogTarget::Stderr);
    let files: Vec<String> = config
        .log_files
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    assert_eq!(
        files,
        [
            "/prefix/main.log",
            "/prefix/one.log",
            "/two.log",
            "/prefix/warn.log",
            // The server's own level, which says nothing.
            "/logs/access.log"
        ]
    );
    let logs = logs(&config);
    assert_eq!(logs.len(), 4);
    assert_eq!(
        (logs[1].format, logs[1].buffer),
        (LogFormatId(1), Some(4096))
    );
    assert_eq!(logs[1].flush.unwrap().as_secs(), 5);
    assert!(logs[1].condition.is_some());
    let AccessLogTarget::Template(path) = &logs[2].target else {
        panic!("{:?}", logs[2])
    };
    assert_eq!(path.parts[0], Part::Literal("/prefix/logs/".into()));
    assert_eq!(logs[3].target, AccessLogTarget::Stderr);
    assert_eq!(prefix(&config, "/a/").error_log[0].level, Level::Warn);
    let format = &config.http.log_formats[1];
    assert_eq!(
        (format.escape, format.template.parts.len()),
        (Escape::Json, 3)
    );
}

#[test]
fn off_and_inheritance() {
    let config = config(&server(
        "access_log off;\nlocation /a/ { }\nlocation /b/ { access_log x; }",
    ));
    assert_eq!(logs(&config), []);
    assert_eq!(prefix(&config, "/b/").access_logs.len(), 1);
    assert_eq!(
        findings(&location("access_log x;\naccess_log off;")),
        ["warn 2:12 \"access_log\" is ignored"]
    );
}

#[test]
fn mistakes() {
    let cases = [
        ("access_log off x;", "2:16 invalid parameter \"x\""),
        ("access_log x nosuch;", "2:14 unknown log format \"nosuch\""),
        (
            "access_log x combined flush=1s;",
            "2:12 no buffer is defined for access_log \"x\"",
        ),
        (
            "access_log x combined buffer=0;",
            "2:23 invalid buffer size \"0\"",
        ),
        (
            "access_log x combined buffer=4k flush=0;",
            "2:33 invalid flush time \"0\"",
        ),
        (
            "access_log $host.log combined buffer=4k;",
            "2:12 buffered logs cannot have variables in name",
        ),
        (
            "access_log x combined foo;",
            "2:23 invalid parameter \"foo\"",
        ),
        (
            "access_log x combined gzip=1;",
            "2:23 the \"gzip\" parameter of \"access_log\" is not supported yet",
        ),
        (
            "access_log syslog:server=x;",
            "2:12 \"syslog:\" logs are not supported yet",
        ),
        (
            "access_log x combined if=$nosuch;",
            "2:23 unknown \"nosuch\" variable",
        ),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(&location(text)), [finding], "{text}");
    }
    let cases = [
        (
            "log_format combined x;",
            "2:12 duplicate \"log_format\" name \"combined\"",
        ),
        (
            "log_format a x;\nlog_format a y;",
            "3:12 duplicate \"log_format\" name \"a\"",
        ),
        (
            "log_format a escape=foo x;",
            "2:14 unknown log format escaping \"foo\"",
        ),
        ("log_format a $nosuch;", "2:14 unknown \"nosuch\" variable"),
        (
            "log_format a 'ü $nosuch_not $nosuch' x;",
            "2:17 unknown \"nosuch_not\" variable",
        ),
        (
            "log_format a \"$host-$nosuch\";",
            "2:21 unknown \"nosuch\" variable",
        ),
        (
            "log_format a $host${nosuch}$nosuch;",
            "2:19 unknown \"nosuch\" variable",
        ),
        (
            "log_format a '\\'$nosuch';",
            "2:14 unknown \"nosuch\" variable",
        ),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(&http(text)), [finding], "{text}");
    }
}

#[test]
fn the_error_log_and_the_temporary_files_of_the_command_line() {
    let reading =
        testing::nginx("events { } http { server { client_body_temp_path body; listen 1; } }");
    let environment = Environment {
        error_log: "stderr".into(),
        state: "/state".into(),
        ..environment()
    };
    let config = resolve(&reading.directives, &environment).config.unwrap();
    assert_eq!(config.main.error_log[0].target, LogTarget::Stderr);
    let temporary = [
        "/state/client_body_temp",
        "/state/proxy_temp",
        "/prefix/body",
    ];
    for path in &config.temp_paths {
        assert!(
            temporary
                .iter()
                .any(|known| path == std::path::Path::new(known)),
            "{}",
            path.display()
        );
    }
    assert!(
        config
            .temp_paths
            .contains(&PathBuf::from("/state/proxy_temp"))
    );
    assert!(config.temp_paths.contains(&PathBuf::from("/prefix/body")));
}
