//! Tests of lexer and parser together: trees, places of mistakes, going on after them.

use crate::sources::Reading;
use crate::span::Span;
use crate::syntax::{Block, Directive, Word};
use crate::testing::{any_bytes, findings, meaning, nginx, quote, read_bytes, tree};
use proptest::prelude::*;

#[test]
fn reads_what_nginx_reads() {
    let cases = [
        (r#"location ~ "^/\d{3}/" { }"#, r"location ~ <^/\d{3}/> {}"),
        (r##"set $a "x;y{}#z";"##, "set $a <x;y{}#z>;"),
        (r#"set $a 'it"s';"#, "set $a <it\"s>;"),
        (r#"set $a "a\"b";"#, "set $a <a\"b>;"),
        ("set $a x#y;", "set $a x#y;"),
        ("set $a # why\n x;", "set $a x;"),
        (r#"set $a x"y;"#, "set $a x\"y;"),
        (
            "map $http_user_agent $m { default 0; \"~Opera Mini\" 1; }",
            "map $http_user_agent $m {default 0; <~Opera Mini> 1;}",
        ),
        (
            "map $request_uri $m { default &a=1; }",
            "map $request_uri $m {default &a=1;}",
        ),
        (r#"set $a "${host}x";"#, "set $a <${host}x>;"),
        ("set $a ${host}x;", "set $a ${host}x;"),
        ("set $a \"${host\";", "set $a <${host>;"),
        ("log_format a 'b' # c\n  \"d\"\n;", "log_format a <b> <d>;"),
        ("a b;\r\nc {\r\n}\r\n", "a b; c {}"),
        (r"a b\;c\ d\{ \.\t\n;", "a b\\;c\\ d\\{ \\.\t\n;"),
        (r#"a "\t\r\n\\\'\x" '';"#, "a <\t\r\n\\'\\x> <>;"),
        ("a \"b\nc\";", "a <b\nc>;"),
        ("if ($a = \"b\") { }", "if ($a = <b> ) {}"),
        ("a{b c;}d;", "a {b c;} d;"),
        ("a x}b;", "a x}b;"),
        ("a $b{3 {}}", "a $b {3 {}}"),
        ("\u{feff}a b;", "a b;"),
        ("a ü\u{a0}b;", "a ü\u{a0}b;"),
        ("# nothing\n", ""),
        ("", ""),
    ];
    for (text, expected) in cases {
        let reading = nginx(text);
        assert_eq!(findings(&reading), [""; 0], "{text}");
        assert_eq!(tree(&reading.directives), expected, "{text}");
    }
}

#[test]
fn rejects_what_nginx_rejects_at_the_place() {
    let cases: &[(&str, &[&str])] = &[
        (
            "location ~ ^/\\d{3}/ {\n}\n",
            &["1:12+8 unknown directive \"3}/\""],
        ),
        ("a \"x\"y;\nb;", &["1:6+1 unexpected \"y\""]),
        ("a {\n  b c\n}\n", &["3:1+1 unexpected \"}\""]),
        (
            "a b",
            &["1:4+1 unexpected end of file, expecting \";\" or \"}\""],
        ),
        (
            "a {\n  b;\n",
            &["3:1+1 unexpected end of file, expecting \"}\""],
        ),
        ("a {\n}\n}\nb;\n", &["3:1+1 unexpected \"}\""]),
        (
            "a 'b;\nc;\n",
            &["3:1+1 unexpected end of file, expecting \";\" or \"}\""],
        ),
        (";", &["1:1+1 unexpected \";\""]),
        ("a;;\n", &["1:3+1 unexpected \";\""]),
        ("{ b; }\nc;", &["1:1+1 unexpected \"{\""]),
        (
            "include a b;",
            &["1:1+7 invalid number of arguments in \"include\" directive"],
        ),
        (
            "include;",
            &["1:1+7 invalid number of arguments in \"include\" directive"],
        ),
        (
            "http { map $a $b {\n c{3};\n d\n } }",
            &["2:2+4 unexpected \"{\"", "4:2+1 unexpected \"}\""],
        ),
        ("ä \"ö\"ü;", &["1:6+1 unexpected \"ü\""]),
        ("\ta \"\tb\"c;", &["1:8+1 unexpected \"c\""]),
    ];
    for (text, expected) in cases {
        assert_eq!(&findings(&nginx(text)), expected, "{text}");
    }
}

#[test]
fn every_error_of_a_file_is_found_once() {
    let text = "worker_processes 1;;\n\
        pid \"a\"b;\n\
        http {\n\
        \x20 ;\n\
        \x20 server {\n\
        \x20   listen 80\n\
        \x20   server_name a;\n\
        \x20   location ~ ^/[a-z]{2,4}/ {\n\
        \x20     proxy_pass http://a\n\
        \x20   }\n\
        \x20   { root a; }\n\
        \x20   set $a 'x'y;\n\
        \x20 }\n\
        }\n\
        }\n\
        user 'me;\n";
    let lines: Vec<_> = findings(&nginx(text))
        .into_iter()
        .map(|finding| finding.split(':').next().unwrap().to_owned())
        .collect();
    // The unclosed quote is reported where nginx does, at the end of the file.
    assert_eq!(
        lines,
        ["1", "2", "4", "6", "8", "10", "11", "12", "15", "17"]
    );
}

#[test]
fn a_missing_semicolon_is_found_where_it_is_missing() {
    let reading = nginx(
        "http {\n  server {\n    merge_slashes on\n    listen 80;\n    location /a {\n      proxy_pass http://b\n      proxy_buffering on;\n    }\n    root a\n    location /c { }\n  }\n}\n",
    );
    let expected = [
        "3:21+1 directive \"merge_slashes\" is not terminated by \";\"",
        "6:26+1 directive \"proxy_pass\" is not terminated by \";\"",
        "9:11+1 directive \"root\" is not terminated by \";\"",
    ];
    assert_eq!(findings(&reading), expected);
    let expected = "http {server {merge_slashes on; listen 80; location /a {proxy_pass http://b; proxy_buffering on;} root a; location /c {}}}";
    assert_eq!(tree(&reading.directives), expected);
}

#[test]
fn a_directive_name_on_the_next_line_may_be_an_argument() {
    let reading = nginx("http { server { server_name a\n  listen 80; } }");
    assert_eq!(
        findings(&reading),
        ["warn 1:30+1 \"listen\" on the next line is an argument of \"server_name\""]
    );
    assert_eq!(
        tree(&reading.directives),
        "http {server {server_name a listen 80;}}"
    );
}

#[test]
fn an_unclosed_quote_names_its_beginning() {
    let hint = |text: &str| nginx(text).diagnostics[0].hint.clone().unwrap();
    assert_eq!(
        hint("a;\nb 'c;\n"),
        "the single quote opened on line 2, column 3 is not closed"
    );
    let swallowed = "a \"b;\nc \"d\";\ne;\n";
    assert_eq!(findings(&nginx(swallowed)), ["2:4+1 unexpected \"d\""]);
    assert_eq!(
        hint(swallowed),
        "the quoted text began on line 1; its closing quote is probably missing there"
    );
}

#[test]
fn a_missing_brace_names_its_block() {
    let text = "http {\n  server {\n    location / {\n      root a;\n  }\n}\n";
    let reading = nginx(text);
    assert_eq!(
        findings(&reading),
        ["7:1+1 unexpected end of file, expecting \"}\""]
    );
    let hint = reading.diagnostics[0].hint.as_deref().unwrap();
    assert_eq!(
        hint,
        "the block opened on line 1 is not closed; by the indentation, the \"}\" is missing in the one opened on line 3"
    );
    let span = reading.diagnostics[0].span.unwrap();
    let within: Vec<_> = reading
        .sources
        .enclosing(span)
        .into_iter()
        .map(|(_, label)| label)
        .collect();
    assert_eq!(within, ["http"]);
}

#[test]
fn words_as_long_as_nginx_takes_them() {
    let longest = "x".repeat(4095);
    for text in [format!("a {longest};"), format!("a '{longest}';")] {
        assert_eq!(findings(&nginx(&text)), [""; 0]);
    }
    let bare = nginx(format!("a {longest}x;\nb;"));
    assert_eq!(
        findings(&bare),
        ["1:3+4096 too long parameter \"xxxxxxxxxx...\" started"]
    );
    assert!(tree(&bare.directives).ends_with("b;"));
    for (text, end) in [
        (format!("a;\nc {{ d '{longest}x'; }}\nb;"), "} b;"),
        (format!("a;\nc {{ d 'e;\n}}\n{longest}"), "}"),
    ] {
        let quoted = nginx(text);
        let message = "too long parameter, probably missing terminating \"'\" character";
        assert_eq!(findings(&quoted)[0], format!("2:7+1 {message}"));
        assert!(tree(&quoted.directives).contains(end));
    }
}

#[test]
fn deep_nesting_is_an_error_and_not_a_crash() {
    let text = format!("{}{}z;", "a {\n".repeat(100_000), "}".repeat(100_000));
    let reading = nginx(text);
    assert_eq!(findings(&reading), ["101:1+1 blocks are nested too deep"]);
    assert!(tree(&reading.directives).ends_with(" z;"));
    let unclosed = nginx("a {".repeat(100_000));
    assert_eq!(unclosed.diagnostics.len(), 2);
}

#[test]
fn a_file_of_nonsense_ends_early() {
    let reading = nginx(";".repeat(100_000));
    assert_eq!(reading.diagnostics.len(), 51);
}

/// Writes a tree in nginx's syntax.
fn print(directives: &[Directive], out: &mut String) {
    for directive in directives {
        for word in std::iter::once(&directive.name).chain(&directive.args) {
            quote(&word.text, out);
            out.push(' ');
        }
        match &directive.block {
            Some(block) => {
                out.push_str("{\n");
                print(&block.directives, out);
                out.push_str("}\n");
            }
            None => out.push_str(";\n"),
        }
    }
}

fn any_tree() -> impl Strategy<Value = Vec<Directive>> {
    let word = || {
        "[a-c $;{}\"'\\\\#\n\tü)3]{0,6}".prop_map(|text| Word {
            text,
            span: Span::default(),
            quoted: true,
        })
    };
    let simple =
        (word(), proptest::collection::vec(word(), 0..4)).prop_map(|(name, args)| Directive {
            name,
            at: Span::default(),
            args,
            block: None,
        });
    let directive = simple.prop_recursive(4, 24, 4, |inner| {
        (inner.clone(), proptest::collection::vec(inner, 0..4)).prop_map(|(outer, directives)| {
            Directive {
                block: Some(Block {
                    opened: Span::default(),
                    directives,
                }),
                ..outer
            }
        })
    });
    proptest::collection::vec(directive, 0..4)
}

fn parse(text: impl AsRef<[u8]>) -> Reading {
    read_bytes(text.as_ref(), "kp.conf")
}

proptest! {
    #[test]
    fn a_printed_tree_is_read_back(tree in any_tree()) {
        let mut text = String::new();
        print(&tree, &mut text);
        let reading = parse(&text);
        prop_assert_eq!(findings(&reading), [""; 0]);
        prop_assert_eq!(meaning(&reading.directives), meaning(&tree));
    }

    #[test]
    fn any_bytes_are_read_and_shown(bytes in any_bytes()) {
        let reading = parse(&bytes);
        let shown = crate::render(&reading.diagnostics, &reading.sources);
        prop_assert_eq!(shown.is_empty(), reading.diagnostics.is_empty());
        for diagnostic in &reading.diagnostics {
            let span = diagnostic.span.unwrap();
            let text = &reading.sources.file(span.file).unwrap().text;
            let line = text.split('\n').nth(span.line as usize - 1);
            prop_assert!(span.column as usize <= line.unwrap().chars().count() + 1);
        }
    }
}
