//! Help with configurations, on the real binary: what a directive does, an nginx configuration as YAML, a schema for
//! editors, traps in `-t`.

use std::path::Path;
use std::process::{Command, Output};

use kp_tests::{Origin, Setup, kp};

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(kp::binary());
    command
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn explain_tells_what_holds_in_this_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let text = "events {}\nhttp {\n  send_timeout 9s;\n  server {\n    location /a { send_timeout 1s; }\n    location /b { }\n  }\n}\n";
    std::fs::write(folder.path().join("kp.conf"), text).unwrap();
    let prefix = folder.path().to_str().unwrap();
    let (code, said, complaint) = texts(&run(
        folder.path(),
        &["explain", "-p", prefix, "send_timeout"],
    ));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    for part in [
        "send_timeout time;",
        "default   60s",
        "send_timeout 1s, kp.conf:5",
        "as in http: send_timeout 9s",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said, complaint) = texts(&run(
        folder.path(),
        &["explain", "-p", prefix, "fastcgi_pass"],
    ));
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(
        complaint.starts_with("kp: kp does not have \"fastcgi_pass\": "),
        "{complaint}"
    );
    // Without a configuration the table is all there is.
    let nothing = folder.path().join("none");
    let (code, said, _) = texts(&run(
        folder.path(),
        &["explain", "-p", nothing.to_str().unwrap(), "$host"],
    ));
    assert_eq!(code, Some(0));
    assert!(said.starts_with("$host\n"), "{said}");
    let (code, said, _) = texts(&run(folder.path(), &["explain"]));
    assert_eq!(code, Some(0));
    assert!(
        said.contains("In upstream:") && said.contains("$request_uri"),
        "{said}"
    );
    assert_eq!(
        run(folder.path(), &["explain", "-c", "gone.conf", "root"])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn explain_tells_what_a_reason_means() {
    let folder = tempfile::tempdir().unwrap();
    let explained = |name: &str| texts(&run(folder.path(), &["explain", name]));
    let (code, said, complaint) = explained("upstream_closed");
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    for part in [
        "The peer closed before its response head was complete.",
        "  status    502\n",
        "kp_failures_total{reason=\"upstream_closed\",side=\"upstream\"}",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said, _) = explained("504");
    assert_eq!(code, Some(0));
    for token in ["connect_timeout", "upstream_timeout", "try_timeout"] {
        assert!(said.contains(&format!("\n  {token} ")), "{token}: {said}");
    }
    // A directive and a reason.
    let (_, said, _) = explained("return");
    assert!(
        said.starts_with("return ") && said.contains("\nreturn, a reason\n"),
        "{said}"
    );
    let (code, said, complaint) = explained("upstream_close");
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert_eq!(
        complaint,
        "kp: unknown reason \"upstream_close\": did you mean \"upstream_closed\"?\n"
    );
    let (_, said, _) = texts(&run(folder.path(), &["explain"]));
    assert!(
        said.contains("Reasons, the upstream's:\n") && said.contains("upstream_closed"),
        "{said}"
    );
}

#[test]
fn a_converted_configuration_serves_the_same() {
    let origin = Origin::named("one");
    let folder = tempfile::tempdir().unwrap();
    let text = r#"daemon off;
pid %DIR%/kp.pid;
error_log %DIR%/error.log info;
events { }
# Everything.
http {
  access_log %DIR%/access.log;
  upstream u { server %U1%; }
  server {
    listen %LISTEN%;
    location / { proxy_pass http://u; }
    location = /own { return 200 "it's mine"; } # own
    location ~ "^/[0-9]{2}$" { return 204; }
  }
}
"#;
    let text = text.replace("%U1%", &origin.address());
    let text = text.replace("%LISTEN%", "127.0.0.1:1");
    std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
    let (code, yaml, said) = texts(&run(folder.path(), &["convert", "nginx.conf"]));
    assert_eq!((code, said.as_str()), (Some(0), ""), "{yaml}");
    assert!(
        yaml.contains("# Everything.\nhttp:\n") && yaml.contains("# own\n"),
        "{yaml}"
    );
    let kp = Setup::yaml(&yaml.replace("127.0.0.1:1\n", "%LISTEN%\n")).start();
    assert_eq!(kp.get("/").text(), "one");
    assert_eq!(kp.get("/own").text(), "it's mine");
    assert_eq!(kp.get("/42").status(), 204);
}

#[test]
fn what_cannot_be_converted_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let text = "events {}\nhttp {\n  brotli on;\n  include sites/*.conf;\n  server { location ~ (a { root /x; } }\n}\n";
    std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
    std::fs::create_dir(folder.path().join("sites")).unwrap();
    std::fs::write(
        folder.path().join("sites/a.conf"),
        "server { listen 82; }\n",
    )
    .unwrap();
    let (code, said, complaint) = texts(&run(
        folder.path(),
        &["convert", "-o", "kp.yaml", "nginx.conf"],
    ));
    assert_eq!((code, said.as_str()), (Some(1), ""), "{complaint}");
    for part in [
        "nginx.conf:3:3",
        "unknown directive \"brotli\"",
        "let the upstream compress",
        "nginx.conf:5:23",
        "sites/a.conf",
        "2 things",
    ] {
        assert!(complaint.contains(part), "{part}: {complaint}");
    }
    let yaml = std::fs::read_to_string(folder.path().join("kp.yaml")).unwrap();
    assert!(
        yaml.contains("#   brotli on;") && yaml.contains("include: sites/*.conf"),
        "{yaml}"
    );
    // What somebody may have worked on stays.
    let again = run(folder.path(), &["convert", "nginx.conf", "-okp.yaml"]);
    assert_eq!(again.status.code(), Some(2));
    let (_, yaml, _) = texts(&run(folder.path(), &["convert", "--inline", "nginx.conf"]));
    assert!(yaml.contains("listen: 82"), "{yaml}");
    let (code, yaml, _) = texts(&run(folder.path(), &["convert", "sites/a.conf"]));
    assert_eq!((code, yaml.as_str()), (Some(0), "server:\n  listen: 82\n"));
    assert_eq!(
        run(folder.path(), &["convert", "gone.conf"]).status.code(),
        Some(2)
    );
}

/// nginx takes `-c` from the prefix, and who does not know that is told.
#[test]
fn a_configuration_beside_the_user_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.conf"), "events {}\n").unwrap();
    let elsewhere = folder.path().join("prefix");
    let elsewhere = elsewhere.to_str().unwrap();
    let arguments = ["-t", "-p", elsewhere, "-c", "own.conf"];
    let (code, _, said) = texts(&run(folder.path(), &arguments));
    assert_eq!(code, Some(1));
    let meant = folder.path().canonicalize().unwrap().join("own.conf");
    let hint = format!("did you mean -c {}?", meant.display());
    assert!(said.contains(&hint), "{said}");
    let (_, _, said) = texts(&run(
        folder.path(),
        &["-t", "-p", elsewhere, "-c", "no.conf"],
    ));
    assert!(
        said.contains("open()") && !said.contains("did you mean"),
        "{said}"
    );
}

/// As nginx does: `-V` beside `-t` is no way around the test.
#[test]
fn a_version_beside_a_test_is_told_and_the_test_made() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kp.conf"), "events {} bogus;\n").unwrap();
    let prefix = folder.path().to_str().unwrap();
    let (code, _, said) = texts(&run(folder.path(), &["-vt", "-p", prefix]));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.starts_with("kp version: ") && said.contains("unknown directive \"bogus\""),
        "{said}"
    );
    assert_eq!(
        run(folder.path(), &["-v", "-p", prefix]).status.code(),
        Some(0)
    );
}

#[test]
fn the_schema_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let (code, main, _) = texts(&run(folder.path(), &["schema"]));
    assert_eq!(code, Some(0));
    assert!(main.starts_with("{\n  \"$schema\": \"http://json-schema.org/draft-07/schema#\""));
    assert!(main.contains("proxy_pass"));
    let (_, http, _) = texts(&run(folder.path(), &["schema", "http"]));
    assert!(http.contains("\"$ref\": \"#/definitions/http\""));
    let (code, _, complaint) = texts(&run(folder.path(), &["schema", "nowhere"]));
    assert_eq!(code, Some(1));
    assert!(complaint.contains("upstream"), "{complaint}");
}

/// A trap is a warning: the configuration can be used all the same.
#[test]
fn traps_are_told_and_change_nothing() {
    let text = "http { server { listen %LISTEN%; location /i { alias /srv/; } } }";
    let checked = Setup::new(text).check();
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    for part in [
        "[warn] \"/i../x\" is a file beside \"/srv/\"",
        "alias /srv/",
        "^",
        "hint: ",
    ] {
        assert!(checked.stderr.contains(part), "{part}: {}", checked.stderr);
    }
    let text = "http { server { listen %LISTEN%; location /i/ { alias /srv/; } } }";
    let checked = Setup::new(text).check();
    assert!(!checked.stderr.contains("[warn]"), "{}", checked.stderr);
}
