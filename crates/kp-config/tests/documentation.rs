//! `docs/configuration.md` and the manual page kp.yaml(5) are written from the directive table:
//! `UPDATE=1 cargo test -p kp-config --test documentation`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use kp_config::directives::{self, Contexts, Entry};
use kp_config::template::Builtin;
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "\
# Configuration

This page is written from the table of directives in `crates/kp-config/src/directives.rs`; a test keeps it current.

It uses nginx's syntax. [YAML](yaml.md) says the same with the same names: a key is a directive, its value is the
directive's arguments in nginx's order, a mapping is its block.

- A **size** is a number of bytes, or a number with `k`, `m` or `g`.
- A **time** is a number of seconds, or numbers with `ms`, `s`, `m`, `h`, `d`, `w`, `M` (30 days) or `y` from the largest to
  the smallest: `1m30s`.
- A **relative path** starts at the prefix (`-p`); that of `include`, and of certificates and whatever else TLS reads, at the
  directory of the main configuration file.
- **Inheritance**: a setting of http holds in its servers, theirs in their locations, and theirs in nested locations and
  `if` blocks, until a level has its own. A list (`proxy_set_header`, `add_header`, `error_page`, `access_log`) is one
  setting: a level with its own list takes nothing from the level above.
- `kp -t` reads the configuration and shows every mistake with its place and advice.
";

const SECTIONS: [(&str, &str); 11] = [
    ("Main", "Outside any block."),
    ("Events", "In `events`."),
    (
        "Servers and listening",
        "In `server`, some of them in `http` too.",
    ),
    ("Http", "In `http` only."),
    (
        "Requests and answers",
        "In `location`, most of them in `http` and `server` too.",
    ),
    (
        "Proxying",
        "What `proxy_pass` does; in `http`, `server` and `location`.",
    ),
    ("Upstream groups", "In `upstream`."),
    (
        "TLS with clients",
        "For listeners with `ssl`; in `http` and `server`. [TLS](tls.md) tells what is different from nginx.",
    ),
    (
        "TLS with upstreams",
        "For `proxy_pass` with `https://`; in `http`, `server` and `location`.",
    ),
    (
        "Conditions of active checks",
        "In `match`. [Resilience](resilience.md) tells when checks act.",
    ),
    (
        "Words of nginx without effect",
        "So that configurations of nginx can be used as they are. [What kp lacks](configuration-help.md#what-kp-lacks) tells the rule.",
    ),
];

#[test]
fn the_page_is_current() {
    assert_current("docs/configuration.md", &page());
}

#[test]
fn the_manual_page_is_current() {
    assert_current("docs/man/kp.yaml.5", &manual());
}

/// What is a command to the formatter, or could be taken for one, is only what this test meant as one.
#[test]
fn the_manual_page_is_clean() {
    for line in manual().lines() {
        assert!(line.is_ascii(), "{line}");
        assert!(!line.is_empty() && !line.starts_with('\''), "{line:?}");
        if line.starts_with('.') {
            let name = line.split(' ').next().unwrap();
            let known = [
                ".TH", ".SH", ".SS", ".PP", ".TP", ".br", ".nf", ".fi", ".RS", ".RE", ".BR",
            ];
            assert!(
                known.contains(&name) || line.starts_with(".\\\" "),
                "{line}"
            );
        }
    }
}

fn assert_current(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let same = found
        .lines()
        .zip(page.lines())
        .take_while(|(found, wanted)| found == wanted)
        .count();
    assert!(
        found == page,
        "{name} is not what the table says from line {}; run this test with UPDATE=1",
        same + 1
    );
}

#[test]
fn every_row_is_on_the_page_with_its_default() {
    let page = page();
    for entry in directives::all() {
        assert_eq!(
            page.matches(&row(entry)).count(),
            1,
            "{} is there once",
            entry.name
        );
        if let Some(default) = entry.default {
            assert!(!default.is_empty(), "{}: an empty default", entry.name);
            assert!(
                row(entry).contains(&format!("default `{default}`")),
                "{}",
                entry.name
            );
        }
        assert!(
            entry.doc.ends_with('.') && entry.doc.len() > 10,
            "{} needs a sentence",
            entry.name
        );
    }
}

#[test]
fn a_name_means_one_thing_in_one_place() {
    for entry in directives::all() {
        for other in directives::named(entry.name) {
            let same = std::ptr::eq(entry, other);
            let apart = !entry.contexts.contains(other.contexts);
            assert!(same || apart, "{} has two rows for one context", entry.name);
        }
        assert!(
            entry.contexts.names().count() > 0,
            "{} may stand nowhere",
            entry.name
        );
    }
}

/// Directives without effect say so, and no others.
#[test]
fn no_effect_is_said() {
    for entry in directives::all() {
        let says_so =
            entry.doc.starts_with("Accepted, no effect") || entry.doc.starts_with("Accepted as ");
        assert_eq!(says_so, entry.is_inert(), "{}", entry.name);
    }
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (index, (title, place)) in SECTIONS.iter().enumerate() {
        write!(page, "\n## {title}\n\n{place}\n").unwrap();
        for entry in directives::all().filter(|entry| section(entry) == index) {
            page.push('\n');
            page.push_str(&row(entry));
        }
    }
    page.push_str(
        "
## Variables

A variable is written `$name` or `${name}`; `$1` to `$9` are the groups of the last regular expression that matched. `set`,
`map` and named groups (`(?<name>…)`) define more.

",
    );
    for (name, _) in Builtin::ALL {
        writeln!(page, "- `${name}`").unwrap();
    }
    page.push_str(
        "- `$arg_NAME`: an argument; `$cookie_NAME`: a cookie
- `$http_NAME`: a field of the request, in lower case with `_` for `-`
- `$proxy_protocol_tlv_NAME`: a value that the PROXY header of the connection carries: `alpn`, `authority`, `unique_id`,
  `netns`, `ssl_verify`, `ssl_version`, `ssl_cn`, `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg`, or a type as `0xNN`, `ssl_0xNN`
- `$sent_http_NAME`, `$sent_trailer_NAME`: a field or trailer of the answer to the client
- `$upstream_http_NAME`, `$upstream_trailer_NAME`, `$upstream_cookie_NAME`: the same of the upstream's last answer
",
    );
    page
}

const MANUAL: &str = r#".\" Written from the table of directives by a test of crates/kp-config.
.TH KP.YAML 5 "" "kp" "File formats"
.SH NAME
kp.yaml, kp.conf \- configuration of the edge proxy kp
.SH DESCRIPTION
.BR kp (8)
reads
.BR /etc/kp/kp.yaml ,
or, if there is none,
.BR /etc/kp/kp.conf .
Both say the same with the same names: a file that ends in .yaml or .yml is in YAML, any other in nginx's syntax.
.PP
In YAML a key is a directive, its value is the arguments of the directive in nginx's order, and a mapping is its block:
.PP
.RS
.nf
http:
  upstream:
    api:
      server: [10.0.0.1:8080 weight=2, 10.0.0.2:8080 backup]
  server:
    \- listen: 80
      server_name: example.com
      location:
        /: { proxy_pass: http://api, proxy_read_timeout: 30s }
.fi
.RE
.PP
The same in nginx's syntax:
.PP
.RS
.nf
http {
    upstream api {
        server 10.0.0.1:8080 weight=2;
        server 10.0.0.2:8080 backup;
    }
    server {
        listen 80;
        server_name example.com;
        location / { proxy_pass http://api; proxy_read_timeout 30s; }
    }
}
.fi
.RE
.PP
A size is a number of bytes, or a number with k, m or g.
A time is a number of seconds, or numbers with ms, s, m, h, d, w, M (30 days) or y from the largest to the smallest: 1m30s.
A relative path starts at the prefix (\-p); that of \fBinclude\fR at the directory of the main configuration file.
.PP
A setting of http holds in its servers, theirs in their locations, and theirs in nested locations and \fBif\fR blocks, until
a level has its own. A list (\fBproxy_set_header\fR, \fBadd_header\fR, \fBerror_page\fR, \fBaccess_log\fR) is one setting: a
level with its own list takes nothing from the level above.
.PP
\fBkp \-t\fR reads the configuration and shows every mistake with its place and advice.
"#;

/// The manual page kp.yaml(5).
fn manual() -> String {
    let mut manual = MANUAL.to_owned();
    for (index, (title, place)) in SECTIONS.iter().enumerate() {
        let title = title.to_uppercase();
        writeln!(manual, ".SH \"{title}\"\n{}", roff(place)).unwrap();
        for entry in directives::all().filter(|entry| section(entry) == index) {
            let space = if entry.syntax.is_empty() { "" } else { " " };
            let (name, syntax, doc) = (roff(entry.name), roff(entry.syntax), roff(entry.doc));
            let facts = roff(&facts(entry));
            write!(
                manual,
                ".TP\n\\fB{name}\\fR{space}{syntax}\n{doc}\n.br\n{facts}.\n"
            )
            .unwrap();
        }
    }
    manual.push_str(".SH VARIABLES\n");
    let names: Vec<String> = Builtin::ALL
        .iter()
        .map(|(name, _)| roff(&format!("${name}")))
        .collect();
    writeln!(manual, "{}.", names.join(",\n")).unwrap();
    manual.push_str(
        ".PP
Also $1 to $9 (the groups of the last regular expression that matched), $arg_NAME, $cookie_NAME, $http_NAME, $proxy_protocol_tlv_NAME,
$sent_http_NAME, $sent_trailer_NAME, $upstream_http_NAME, $upstream_trailer_NAME and $upstream_cookie_NAME.
.SH SEE ALSO
.BR kp (8)
",
    );
    manual
}

/// Text for the formatter: nothing in it is a command, hyphens are those that can be copied, `code` is bold.
fn roff(text: &str) -> String {
    let mut out = String::new();
    if text.starts_with(['.', '\'']) {
        out.push_str("\\&");
    }
    let mut code = false;
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '`' => {
                code = !code;
                out.push_str(if code { "\\fB" } else { "\\fR" });
            }
            '…' => out.push_str("..."),
            other => out.push(other),
        }
    }
    out
}

/// The number of the section a row belongs to.
fn section(entry: &Entry) -> usize {
    let may = |context| entry.contexts.contains(context);
    if entry.is_inert() {
        10
    } else if entry.name.starts_with("ssl_") {
        7
    } else if entry.name.starts_with("proxy_ssl_") {
        8
    } else if may(Contexts::MAIN) {
        0
    } else if may(Contexts::EVENTS) {
        1
    } else if may(Contexts::UPSTREAM) {
        6
    } else if may(Contexts::MATCH) {
        9
    } else if may(Contexts::LOCATION) {
        if entry.name.starts_with("proxy_") {
            5
        } else {
            4
        }
    } else if may(Contexts::SERVER) {
        2
    } else {
        3
    }
}

fn row(entry: &Entry) -> String {
    let space = if entry.syntax.is_empty() { "" } else { " " };
    let facts = facts(entry);
    let Entry {
        name, syntax, doc, ..
    } = entry;
    format!("### {name}\n\n`{name}{space}{syntax}`\\\n{facts}\n\n{doc}\n")
}

fn facts(entry: &Entry) -> String {
    let contexts: Vec<&str> = entry.contexts.names().collect();
    let mut facts = format!("in {}", contexts.join(", "));
    if let Some(default) = entry.default {
        write!(facts, "; default `{default}`").unwrap();
    }
    if entry.repeatable {
        facts.push_str("; may be repeated");
    }
    facts
}
