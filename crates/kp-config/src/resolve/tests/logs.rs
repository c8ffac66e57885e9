//! `access_log`, `error_log`, `log_format`.

use super::*;
use crate::json_types::JsonType;
use crate::model::{
    AccessLog, AccessLogTarget, Escape, JsonField, JsonValue, LogBuffer, LogFormatId, LogShape,
    OpenLogFileCache, Syslog, SyslogId, SyslogServer,
};
use crate::template::{Part, Template};
use std::time::Duration;

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
    assert_eq!(log.format, LogFormatId(0));
    assert_eq!(config.log_buffers[file.index()], None);
    assert_eq!(config.log_buffers.len(), config.log_files.len());
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
    assert_eq!(logs[1].format, LogFormatId(1));
    let buffer = |log: &AccessLog| {
        let AccessLogTarget::File(file) = log.target else {
            panic!("{log:?}")
        };
        config.log_buffers[file.index()]
    };
    let expected = LogBuffer {
        bytes: 4096,
        flush: Some(Duration::from_secs(5)),
        gzip: None,
    };
    assert_eq!((buffer(&logs[0]), buffer(&logs[1])), (None, Some(expected)));
    assert!(logs[1].condition.is_some());
    let AccessLogTarget::Template(path) = &logs[2].target else {
        panic!("{:?}", logs[2])
    };
    assert_eq!(path.parts[0], Part::Literal("/prefix/logs/".into()));
    assert_eq!(logs[3].target, AccessLogTarget::Stderr);
    assert_eq!(prefix(&config, "/a/").error_log[0].level, Level::Warn);
    let LogShape::Text { template, escape } = &config.http.log_formats[1].shape else {
        panic!("a text")
    };
    assert_eq!((*escape, template.parts.len()), (Escape::Json, 3));
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
            "access_log x combined gzip=0;",
            "2:23 invalid compression level \"0\"",
        ),
        (
            "access_log $host.log combined gzip;",
            "2:12 buffered logs cannot have variables in name",
        ),
        (
            "access_log stderr combined buffer=4k;",
            "2:12 logs to stderr cannot be buffered",
        ),
        (
            "access_log syslog:server=127.0.0.1 combined buffer=4k;",
            "2:12 logs to syslog cannot be buffered",
        ),
        (
            "access_log x combined gzip;\naccess_log x combined gzip=2;",
            "3:12 access_log \"x\" already defined with conflicting parameters",
        ),
        (
            "access_log x combined gzip; error_log x;",
            "2:12 this file is an access_log with \"gzip\" and an error_log as well",
        ),
        (
            "access_log syslog:tag=a;",
            "2:12 no syslog server specified",
        ),
        (
            "access_log syslog:server=;",
            "2:12 no host in syslog server \"\"",
        ),
        (
            "access_log syslog:server=a/b;",
            "2:12 invalid host in syslog server \"a/b\"",
        ),
        (
            "access_log syslog:server=127.0.0.1:0;",
            "2:12 invalid port in syslog server \"127.0.0.1:0\"",
        ),
        (
            "access_log syslog:server=1.2.3.4,server=1.2.3.4;",
            "2:12 duplicate syslog \"server\"",
        ),
        (
            "access_log syslog:server=1.2.3.4,facility=syslog;",
            "2:12 unknown syslog facility \"syslog\"",
        ),
        (
            "access_log syslog:server=1.2.3.4,severity=err;",
            "2:12 unknown syslog severity \"err\"",
        ),
        (
            "access_log syslog:server=1.2.3.4,tag=a-b;",
            "2:12 syslog \"tag\" only allows alphanumeric characters and underscore",
        ),
        (
            "access_log syslog:server=1.2.3.4,tag=123456789012345678901234567890123;",
            "2:12 syslog tag length exceeds 32",
        ),
        (
            "access_log syslog:server=1.2.3.4,nohost;",
            "2:12 unknown syslog parameter \"nohost\"",
        ),
        (
            "error_log syslog:server=unix:;",
            "2:11 no path in the unix domain socket in syslog server \"unix:\"",
        ),
        (
            "error_log memory:32m debug;",
            "2:11 \"memory:\" logs are not supported",
        ),
        ("error_log x loud;", "2:13 invalid log level \"loud\""),
        (
            "error_log x warn format=xml;",
            "2:18 invalid parameter \"format=xml\"",
        ),
        ("error_log x warn more;", "2:18 invalid parameter \"more\""),
        (
            "open_log_file_cache inactive=1s;",
            "2:21 \"open_log_file_cache\" must have \"max\" parameter",
        ),
        (
            "open_log_file_cache max=0;",
            "2:21 invalid \"open_log_file_cache\" parameter \"max=0\"",
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
        (
            "log_format a;",
            "2:1 invalid number of arguments in \"log_format\" directive",
        ),
        (
            "log_format a text { b 1; }",
            "2:14 \"log_format\" \"a\" has an unexpected block",
        ),
        (
            "log_format a json { b 1; b 2; }",
            "2:26 duplicate field \"b\" in \"log_format\"",
        ),
        (
            "log_format a json { b 1 2; }",
            "2:21 field \"b\" of \"log_format\" needs one value",
        ),
        (
            "log_format a json { b { c $nosuch; } }",
            "2:27 unknown \"nosuch\" variable",
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

#[test]
fn json_formats() {
    let config = config(&http(
        "log_format a json { status $status; set 'a$host'; 'with \"' $upstream_addr; none '';\nin { tls $https; deep { id $1; } } }",
    ));
    let LogShape::Json(fields) = &config.http.log_formats[1].shape else {
        panic!("JSON")
    };
    let names = |fields: &[JsonField]| -> Vec<String> {
        fields.iter().map(|field| field.name.clone()).collect()
    };
    assert_eq!(names(fields), ["status", "set", "with \"", "none", "in"]);
    assert!(matches!(
        &fields[0].value,
        JsonValue::One(_, JsonType::Number)
    ));
    assert!(matches!(&fields[1].value, JsonValue::Text(text) if text.parts.len() == 2));
    assert!(matches!(
        &fields[2].value,
        JsonValue::One(_, JsonType::Texts)
    ));
    assert_eq!(fields[3].value, JsonValue::Text(Template::default()));
    let JsonValue::Object(inside) = &fields[4].value else {
        panic!("an object")
    };
    assert_eq!(names(inside), ["tls", "deep"]);
    assert!(matches!(
        &inside[0].value,
        JsonValue::One(_, JsonType::Flag("on"))
    ));
}

#[test]
fn a_json_format_in_yaml_is_the_same() {
    let yaml = "http:
  log_format:
    plain: $uri
    text: [escape=json, 'a ', '$uri']
    a json:
      status: $status
      set: a$host
      on: on
      in:
        tls: $https
  server: { listen: 1 }
";
    let nginx = "http { log_format plain $uri; log_format text escape=json 'a ' '$uri';
log_format a json { status $status; set a$host; on on; in { tls $https; } } server { listen 1; } }";
    let (one, other) = (testing::yaml(yaml), testing::nginx(nginx));
    let formats = |reading: &crate::sources::Reading| {
        let resolved = resolve(&reading.directives, &environment());
        resolved.config.expect("a configuration").http.log_formats
    };
    assert_eq!(formats(&one), formats(&other));
    assert_eq!(formats(&one).len(), 4);
}

#[test]
fn syslog_servers_and_error_logs() {
    let config = config(&location(
        "access_log syslog:server=127.0.0.1; access_log syslog:server=127.0.0.1,severity=alert;
access_log syslog:server=[::1]:5514,facility=user,tag=web,nohostname; error_log syslog:server=unix:/dev/log info format=json;
error_log stderr format=json; open_log_file_cache max=10 inactive=20s valid=1m min_uses=2;",
    ));
    let udp = |address: &str, facility, tag: &str, nohostname| Syslog {
        server: SyslogServer::Udp(address.parse().unwrap()),
        facility,
        tag: tag.into(),
        nohostname,
    };
    let unix = Syslog {
        server: SyslogServer::Unix("/dev/log".into()),
        ..udp("1.1.1.1:1", 23, "nginx", false)
    };
    assert_eq!(
        config.syslogs,
        [
            udp("127.0.0.1:514", 23, "nginx", false),
            udp("[::1]:5514", 1, "web", true),
            unix
        ]
    );
    let targets: Vec<_> = logs(&config).into_iter().map(|log| log.target).collect();
    let to = |server, severity| AccessLogTarget::Syslog {
        server: SyslogId(server),
        severity,
    };
    assert_eq!(targets, [to(0, 6), to(0, 1), to(1, 6)]);
    let location = prefix(&config, "/a/");
    let first = &location.error_log[0];
    assert_eq!(first.target, LogTarget::Syslog(SyslogId(2)));
    assert_eq!((first.level, first.json), (Level::Info, true));
    let second = &location.error_log[1];
    assert_eq!((second.level, second.json), (Level::Error, true));
    let cache = location.open_log_file_cache.unwrap();
    let expected = OpenLogFileCache {
        max: 10,
        inactive: Duration::from_secs(20),
        min_uses: 2,
        valid: Duration::from_secs(60),
    };
    assert_eq!(config.http.log_file_caches[cache.index()], expected);
}
