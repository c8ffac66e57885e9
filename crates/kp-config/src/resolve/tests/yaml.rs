//! The same mistakes in YAML: the same words, at the same value.

use super::*;

fn yaml_findings(text: &str) -> Vec<String> {
    let reading = testing::yaml(text);
    assert_eq!(reading.diagnostics, [], "{text}");
    let diagnostics = resolve(&reading.directives, &environment()).diagnostics;
    listed(&diagnostics)
}

/// A line of nginx's syntax as YAML: the name becomes a key, the rest its quoted value.
fn line(text: &str) -> (String, usize) {
    let text = text.strip_suffix(';').expect("a simple directive");
    match text.split_once(' ') {
        // Two characters more in front of the value: the colon and the quote.
        Some((name, rest)) => (format!("{name}: '{rest}'"), 2),
        None => (format!("{text}:"), 0),
    }
}

/// The place of a finding in nginx's line 2, moved to a YAML line with this indentation.
fn moved(finding: &str, line: usize, indentation: usize, shift: usize) -> String {
    let (place, message) = finding.split_once(' ').expect("a place");
    let column: usize = place
        .strip_prefix("2:")
        .expect("line 2")
        .parse()
        .expect("a column");
    // The name keeps its column, a value moves.
    let shift = if column == 1 { 0 } else { shift };
    format!("{line}:{} {message}", column + indentation + shift)
}

#[test]
fn server_lines() {
    for (text, finding) in upstreams::BAD_LINES
        .iter()
        .filter(|(text, _)| *text != "server;")
    {
        let (line, shift) = line(text);
        let text = format!(
            "http:\n  upstream:\n    u:\n      {line}\n  server:\n    listen: 8080\n    location:\n      /: {{ proxy_pass: http://u }}\n"
        );
        assert_eq!(
            yaml_findings(&text),
            [moved(finding, 4, 6, shift)],
            "{text}"
        );
    }
}

#[test]
fn lines_of_a_location() {
    let simple = positions::IN_A_LOCATION.iter().filter(|(text, finding)| {
        let plain =
            text.ends_with(';') && text.matches(';').count() == 1 && !text.contains(['"', '{']);
        // The front end has its own tests of values of a wrong shape.
        let shape = finding.contains("number of arguments") || finding.contains("no opening");
        plain && !shape && text.contains(' ')
    });
    let mut count = 0;
    for (text, finding) in simple {
        let (line, shift) = line(text);
        let text = format!(
            "http:\n  server:\n    listen: 8080\n    location:\n      /a/:\n        {line}\n"
        );
        assert_eq!(
            yaml_findings(&text),
            [moved(finding, 6, 8, shift)],
            "{text}"
        );
        count += 1;
    }
    assert!(count > 20, "most of the table is simple enough");
}

#[test]
fn twelve_mistakes() {
    let text = "daemon: perhaps
events:
  worker_connections: many
http:
  client_max_body_size: 1x
  upstream:
    empty: {}
    u: { server: 127.0.0.1 weight=0 }
  server:
    listen: 70000
    servername: example.com
    location:
      /:
        proxy_pass: u
        send_timeout: 1h1h
        pid: /x
      /x: { add_header: X $nosuch }
      /y: { return: [x] }
      /z: { lingering_close: maybe }
";
    assert_eq!(
        yaml_findings(text),
        [
            "1:9 invalid value \"perhaps\" in \"daemon\" directive, it must be \"on\" or \"off\"",
            "3:23 \"worker_connections\" directive invalid number",
            "5:25 \"client_max_body_size\" directive invalid value",
            "7:5 no servers are inside upstream",
            "8:28 invalid parameter \"weight=0\"",
            "10:13 invalid port in \"70000\" of the \"listen\" directive",
            "11:5 unknown directive \"servername\"",
            "14:21 invalid URL prefix",
            "15:23 \"send_timeout\" directive invalid value",
            "16:9 \"pid\" directive is not allowed here",
            "17:27 unknown \"nosuch\" variable",
            "18:22 invalid return code \"x\"",
            "19:30 invalid value \"maybe\"",
        ]
    );
}
