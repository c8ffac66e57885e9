//! What is written is what was meant: by example, for the examples of `etc/`, and for any tree of the table's directives.

use super::{Converted, Scope, convert, items, write};
use crate::directives::{self, BlockKind, Contexts};
use crate::span::FileId;
use crate::testing::{findings, meaning, nginx, quote, yaml};
use crate::{LoadOptions, load, render};
use proptest::prelude::*;
use std::path::Path;

fn converted_files(files: &[(&str, &str)], inline: bool) -> Converted {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let options = LoadOptions {
        path: directory.path().join(files[0].0),
        prefix: directory.path().into(),
        ..LoadOptions::default()
    };
    let done = convert(&options, inline, |_| Vec::new()).unwrap();
    assert_eq!(done.differences, [""; 0], "{}", done.yaml);
    done
}

fn converted(text: &str) -> String {
    let done = converted_files(&[("kp.conf", text)], false);
    assert_eq!(render(&done.gaps, &done.sources), "");
    done.yaml
}

#[test]
fn a_configuration_reads_well() {
    let text = r#"# Who serves.
user www;  # not root

events { worker_connections 1024; }
http {
    # Formats
    log_format main '$remote_addr "$request" '
                    '$status';
    access_log off;

    upstream api { least_conn; server 10.0.0.1:80 weight=2; server 10.0.0.2:80 backup; }
    map $host $kind { hostnames; default ""; *.a.b on; "~^x y" 'z: #'; }
    server {
        listen 80; listen [::]:80 ipv6only=on;
        server_name example.com *.example.com;
        location / { proxy_pass http://api; proxy_set_header Host $host; proxy_set_header Connection ""; }
        error_page 500 502 /50x.html; error_page 404 /404.html;
        location = /up { return 200 "it's up"; }
        location ~ \.php$ { deny all; } # never
        # the end
    }
    server { }
}
"#;
    let expected = r##"# Who serves.
user: www  # not root

events:
  worker_connections: 1024
http:
  # Formats
  log_format:
    main: ['$remote_addr "$request" ', $status]
  access_log: "off"

  upstream:
    api:
      least_conn: on
      server: [10.0.0.1:80 weight=2, 10.0.0.2:80 backup]
  map:
    $host $kind:
      hostnames:
      default: ""
      "*.a.b": "on"
      ~^x y: "z: #"
  server:
    - listen: [80, "[::]:80 ipv6only=on"]
      server_name: example.com *.example.com
      location:
        /:
          proxy_pass: http://api
          proxy_set_header:
            Host: $host
            Connection: ""
        "= /up":
          return: [200, it's up]
        '~ \.php$':  # never
          deny: all
      error_page: [500 502 /50x.html, 404 /404.html]
      # the end
    - {}
"##;
    let expected = expected
        .replace("access_log: \"off\"", "access_log: off")
        .replace("~^x y:", "\"~^x y\":");
    assert_eq!(converted(text), expected);
}

#[test]
fn a_format_of_json_is_a_mapping_of_mappings() {
    let text = "events {} http { log_format a '$uri'; log_format b json { at $msec; client { address $remote_addr; port \"\"; } } \
                server { access_log x a; access_log y b; } }";
    let yaml = converted(text);
    let expected = "    - a: [$uri]\n    - b json:\n        at: $msec\n        client:\n          address: $remote_addr\n          port: \"\"\n";
    assert!(yaml.contains(expected), "{yaml}");
}

#[test]
fn what_acts_in_its_order_keeps_it() {
    let text = "events {} http { server { set $a 1; if ($arg_b) { set $a 2; } set $c $a; rewrite ^ /x; return 204; \
                location / { allow 10.0.0.1; deny 10.0.0.0/8; allow all; } } }";
    let yaml = converted(text);
    let read = crate::testing::yaml(&yaml);
    let original = nginx(text);
    assert_eq!(
        meaning(&read.directives),
        meaning(&original.directives),
        "{yaml}"
    );
}

#[test]
fn includes_stay_or_are_taken_in() {
    let files = [
        (
            "kp.conf",
            "events {}\nhttp {\n  include types;\n  # sites\n  include sites/*.conf;\n  server { listen 81; include \"with blank\"; }\n}\n",
        ),
        ("types", "types { text/html html htm; }\n"),
        ("with blank", "location / { root /x; }\n"),
        ("sites/a.conf", "# the first\nserver { listen 82; }\n"),
        ("sites/b.conf", "server { listen 83; }\n"),
    ];
    let kept = converted_files(&files, false);
    assert!(
        kept.yaml
            .contains("include:\n    - types\n    # sites\n    - sites/*.conf\n"),
        "{}",
        kept.yaml
    );
    assert!(
        kept.yaml.contains("include: [[with blank]]"),
        "{}",
        kept.yaml
    );
    assert_eq!(kept.included.len(), 4);
    let inline = converted_files(&files, true);
    assert_eq!(inline.included, [""; 0].map(std::path::PathBuf::from));
    assert!(
        inline.yaml.contains("text/html: html htm") && !inline.yaml.contains("include:"),
        "{}",
        inline.yaml
    );
    let (first, own) = (
        inline.yaml.find("listen: 82"),
        inline.yaml.find("listen: 81"),
    );
    assert!(first < own, "{}", inline.yaml);
    assert!(inline.yaml.contains("# the first"), "{}", inline.yaml);
}

#[test]
fn what_kp_lacks_is_told_and_stays_as_a_comment() {
    let text = "events {}\nhttp {\n  brotli on;\n  geo $a {\n    default 1;\n  }\n  server {\n    listen 80 quic;\n    listen 81;\n    add_header X $a;\n  }\n}\n";
    let done = converted_files(&[("kp.conf", text)], false);
    let told: Vec<String> = done
        .gaps
        .iter()
        .map(|gap| format!("{} {}", gap.span.unwrap().line, gap.message))
        .collect();
    assert_eq!(told[0], "3 unknown directive \"brotli\"");
    assert_eq!(told[1], "4 unknown directive \"geo\"");
    assert_eq!(told.len(), 4, "{told:?}");
    let expected = "events: {}\nhttp:\n  # not converted: unknown directive \"brotli\"\n  #   brotli on;\n  # not converted: unknown directive \"geo\"\n  #   geo $a {\n  #     default 1;\n  #   }\n  server:\n";
    assert!(done.yaml.starts_with(expected), "{}", done.yaml);
    assert!(done.yaml.contains("listen: 81\n"), "{}", done.yaml);
}

#[test]
fn a_part_of_a_configuration_is_converted_as_what_it_is() {
    let done = converted_files(
        &[(
            "site.conf",
            "server { listen 80; brotli on; location / { root /a; } }\nupstream a { server b; }\n",
        )],
        false,
    );
    assert_eq!(done.gaps.len(), 1);
    assert!(
        done.yaml
            .starts_with("server:\n  listen: 80\n  # not converted"),
        "{}",
        done.yaml
    );
    // What may only be off is looked at in a part, too, since it may be what kept people out.
    let text = "location /a { auth_basic off; }\nlocation /b { auth_basic Members; root /b; }\n";
    let done = converted_files(&[("part.conf", text)], false);
    assert_eq!(done.gaps.len(), 1, "{:?}", done.gaps);
    assert!(
        done.yaml.contains("/a:\n    auth_basic: off\n"),
        "{}",
        done.yaml
    );
    assert!(done.yaml.contains("EVERYBODY IS LET IN"), "{}", done.yaml);
    let done = converted_files(&[("x.conf", "location / { root /a; }\n")], false);
    assert_eq!(done.yaml, "location:\n  /:\n    root: /a\n");
}

#[test]
fn broken_syntax_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kp.conf");
    for text in ["http {", "a 'b", "include nowhere;"] {
        std::fs::write(&path, text).unwrap();
        let options = LoadOptions {
            path: path.clone(),
            ..LoadOptions::default()
        };
        let refused = convert(&options, false, |_| Vec::new()).unwrap_err();
        assert!(!refused.diagnostics.is_empty(), "{text}");
    }
}

#[test]
fn the_examples_say_the_same_in_yaml() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files: Vec<_> = std::fs::read_dir(root.join("etc/examples"))
        .unwrap()
        .map(|one| one.unwrap().path())
        .collect();
    files.push(root.join("etc/kp.conf"));
    files.retain(|path| path.extension().is_some_and(|ending| ending == "conf"));
    assert!(files.len() > 10);
    for path in files {
        for inline in [false, true] {
            let options = LoadOptions {
                path: path.clone(),
                prefix: root.clone(),
                ..LoadOptions::default()
            };
            let done = convert(&options, inline, |_| Vec::new()).unwrap();
            assert_eq!(done.differences, [""; 0], "{}", path.display());
            assert_eq!(render(&done.gaps, &done.sources), "");
            let again = load(&LoadOptions {
                path: path.with_extension("yaml"),
                text: Some(done.yaml.into()),
                ..options.clone()
            });
            assert!(
                again.config.is_some() && again.config == load(&options).config,
                "{}",
                path.display()
            );
        }
    }
}

/// Words with a meaning in one of the syntaxes.
const SPECIAL: &[&str] = &[
    "",
    "~",
    "null",
    "on",
    "off",
    "true",
    "False",
    "yes",
    "no",
    "y",
    "0644",
    "1.10",
    "1e3",
    "0x1f",
    "-",
    "--",
    "---",
    "...",
    "<<",
    "a b",
    " a",
    "a ",
    "a: b",
    "a:",
    ":a",
    "a #b",
    "#a",
    "[::]:80",
    "{a}",
    "a{b",
    "a}",
    "${x}y",
    "$x",
    "'",
    "\"",
    "it's",
    "\"x\" 'y'",
    "\\",
    "a\\",
    "\\n",
    "\\\\",
    "\\.php$",
    "^/[0-9]{3}/",
    "a\nb",
    "\n",
    "\t",
    "a\tb",
    "\r",
    "*.a",
    "@a",
    "&a",
    "!a",
    "|",
    ">",
    "%{a}",
    "`",
    "= /x",
    "~ x",
    "?",
    "? a",
    ", a",
    "a, b",
    "ü",
    "\u{85}",
    "\u{2028}",
    "\u{feff}a",
    "\u{1f600}",
    "\u{7}",
    "a;b",
    "default",
    "include",
    "hostnames",
    "http://a/b?c=d&e",
    "2026-01-01",
    "12:30:45",
];

/// Words of any kind, most of them with a meaning in one of the syntaxes.
fn any_word() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => proptest::sample::select(SPECIAL).prop_map(str::to_owned),
        2 => "[a-z$/.:]{1,8}",
        2 => "[ -~]{0,10}",
        1 => "[\\PC\n\t]{0,6}",
        1 => proptest::collection::vec("[ -~]", 1100).prop_map(|letters| letters.concat()),
    ]
}

fn push(texts: &[&str], out: &mut String) {
    for text in texts {
        quote(text, out);
        out.push(' ');
    }
}

/// A directive of a block of this kind, in nginx's syntax.
fn any_directive(context: Contexts, depth: u32) -> BoxedStrategy<String> {
    let rows: Vec<_> = directives::all()
        .filter(|entry| entry.contexts.contains(context) && entry.name != "include")
        .filter(|entry| depth > 0 || entry.block.may_be_left_out())
        .collect();
    let args = proptest::collection::vec(any_word(), 0..4);
    (proptest::sample::select(rows), args)
        .prop_flat_map(move |(entry, args)| {
            let args: Vec<String> = match entry.block {
                BlockKind::None | BlockKind::Optional(_) => args,
                _ if entry.block_takes_args() => args.into_iter().take(2).collect(),
                _ => Vec::new(),
            };
            let mut head = String::new();
            push(&[entry.name], &mut head);
            push(
                &args.iter().map(String::as_str).collect::<Vec<_>>(),
                &mut head,
            );
            match entry.block {
                BlockKind::None | BlockKind::Optional(_) => Just(format!("{head};\n")).boxed(),
                BlockKind::Entries(_) => any_entries()
                    .prop_map(move |inside| format!("{head}{{\n{inside}}}\n"))
                    .boxed(),
                BlockKind::Of(_) => {
                    let inside = Scope::of(context).inside(entry.name).context().unwrap();
                    let inside = any_block(inside, depth - 1);
                    inside
                        .prop_map(move |inside| format!("{head}{{\n{inside}}}\n"))
                        .boxed()
                }
            }
        })
        .boxed()
}

fn any_entries() -> impl Strategy<Value = String> {
    let word = || any_word().prop_filter("an include", |text| text != "include");
    let entry = (word(), proptest::collection::vec(word(), 0..3)).prop_map(|(name, args)| {
        let mut out = String::new();
        push(&[&name], &mut out);
        push(
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
            &mut out,
        );
        out + ";\n"
    });
    proptest::collection::vec(entry, 0..5).prop_map(|entries| entries.concat())
}

fn any_block(context: Contexts, depth: u32) -> BoxedStrategy<String> {
    proptest::collection::vec(any_directive(context, depth), 0..6)
        .prop_map(|directives| directives.concat())
        .boxed()
}

/// What each block holds, directives of different names in any order.
fn sorted(directives: &[crate::syntax::Directive]) -> Vec<String> {
    fn one(
        directives: &[crate::syntax::Directive],
    ) -> Vec<(String, Vec<String>, Option<Vec<String>>)> {
        let mut found: Vec<_> = directives
            .iter()
            .map(|directive| {
                let args = directive
                    .args
                    .iter()
                    .map(|word| word.text.clone())
                    .collect();
                let inside = directive.block.as_ref().map(|block| {
                    one(&block.directives)
                        .iter()
                        .map(|one| format!("{one:?}"))
                        .collect()
                });
                (directive.name.text.clone(), args, inside)
            })
            .collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found
    }
    one(directives)
        .iter()
        .map(|one| format!("{one:?}"))
        .collect()
}

proptest! {
    #[test]
    fn any_tree_is_the_same_in_yaml(text in any_block(Contexts::MAIN, 4)) {
        let original = nginx(&text);
        // A name of a directive behind a line feed in quotes looks like a forgotten semicolon.
        prop_assume!(findings(&original).is_empty());
        let items = items::read(FileId(0), &text);
        for strict in [true, false] {
            let written = write::yaml(&items, Scope::MAIN, strict);
            let again = yaml(&written);
            prop_assert_eq!(findings(&again), [""; 0], "{}", written);
            if strict {
                prop_assert_eq!(meaning(&again.directives), meaning(&original.directives), "{}", written);
            } else {
                prop_assert_eq!(sorted(&again.directives), sorted(&original.directives), "{}", written);
            }
        }
    }
}

#[test]
fn the_comment_behind_a_byte_order_mark_stays() {
    let yaml = converted("\u{feff}# Für alle\r\nevents { }\r\nhttp { # oft\r\n}\r\n");
    assert_eq!(yaml, "# Für alle\nevents: {}\nhttp:\n  # oft\n");
}

#[test]
fn a_quoted_end_of_a_condition_keeps_its_quotes() {
    let text = r#"events { } http { server {
  if ($args ~ "id=(\d{2,5})") { return 410; }
  if ($host != 'a') { return 404; }
} }"#;
    let yaml = converted(text);
    for part in [r#"($args ~ "id=(\d{2,5})"):"#, r#"($host != "a"):"#] {
        assert!(yaml.contains(part), "{part}: {yaml}");
    }
}

/// The braces and quotes of Lua are none of nginx's syntax.
#[test]
fn a_block_of_lua_is_one_gap() {
    let text = r#"events { } http { server { location / {
  access_by_lua_block {
    -- don't }
    if x == "}" then say('{') end
  }
  proxy_pass http://127.0.0.1:1;
} } }"#;
    let done = converted_files(&[("nginx.conf", text)], false);
    let found = render(&done.gaps, &done.sources);
    assert_eq!(done.gaps.len(), 1, "{found}");
    assert!(found.contains("kp runs no scripts"), "{found}");
    for part in [
        "# not converted: unknown directive \"access_by_lua_block\"; WITHOUT IT EVERYBODY IS LET IN HERE\n",
        "#     -- don't }\n",
        "proxy_pass: http://127.0.0.1:1\n",
    ] {
        assert!(done.yaml.contains(part), "{part}: {}", done.yaml);
    }
}

#[test]
fn what_is_left_out_stands_above_the_group_that_follows() {
    let text = "events { } http { geo $n { default 1; } map $host $a { default 1; } server { auth_basic x; return 200 $a; } }";
    let done = converted_files(&[("nginx.conf", text)], false);
    let expected = r#"events: {}
http:
  # not converted: unknown directive "geo"
  #   geo $n { default 1; }
  map:
    $host $a:
      default: 1
  server:
    # not converted: "auth_basic" is not supported; WITHOUT IT EVERYBODY IS LET IN HERE
    #   auth_basic x;
    return: 200 $a
"#;
    assert_eq!(done.yaml, expected);
}
