//! `map`.

use super::*;
use crate::template::{Part, Template, Variable};

#[test]
fn entries() {
    let config = config(&http(
        "server { listen 81; location / { return 200 $m$name; } }
map $http_user_agent $m { default 0; \"~Opera Mini\" 1; ~*(?<name>x) $name; A 2; \\default 3; volatile; }
map $host $h { hostnames; *.a 1; .b 2; c.* 3; d 4; }
map $request_uri $d { default &a=1; }",
    ));
    let [map, hosts, _] = config.http.maps.as_slice() else {
        panic!("three maps")
    };
    let text = Template::literal;
    assert_eq!(config.http.user_variables[map.variable.index()], "m");
    assert_eq!(map.default, text("0"));
    assert_eq!(
        map.exact,
        [
            ("a".to_owned(), text("2")),
            ("default".to_owned(), text("3"))
        ]
    );
    assert!(map.volatile && !map.hostnames);
    let patterns: Vec<(&str, bool)> = map
        .regexes
        .iter()
        .map(|(id, _)| &config.http.regexes[id.index()])
        .map(|regex| (regex.pattern.as_str(), regex.case_insensitive))
        .collect();
    assert_eq!(patterns, [("Opera Mini", false), ("(?<name>x)", true)]);
    assert!(matches!(
        map.regexes[1].1.parts.as_slice(),
        [Part::Variable(Variable::User(_))]
    ));
    assert!(hosts.hostnames);
    let masks: Vec<&str> = hosts
        .wildcards
        .iter()
        .map(|(mask, _)| mask.as_str())
        .collect();
    assert_eq!(masks, ["*.a", ".b", "c.*"]);
    assert_eq!(hosts.exact.len(), 1);
}

#[test]
fn mistakes() {
    let cases = [
        (
            "map $host $x { a 1;\nA 2; }",
            "3:1 conflicting parameter \"A\"",
        ),
        ("map $host x { }", "2:11 invalid variable name \"x\""),
        (
            "map $host $x { default 1; default 2; }",
            "2:27 duplicate default map parameter",
        ),
        (
            "map $host $x { a b c; }",
            "2:16 invalid number of the map parameters",
        ),
        (
            "map $host $x { a; }",
            "2:16 invalid number of the map parameters",
        ),
        (
            "map $host $x { hostnames; *a 1; }",
            "2:27 invalid hostname or wildcard \"*a\"",
        ),
        (
            "map $host $uri { a 1; }",
            "2:11 the duplicate \"uri\" variable",
        ),
        ("map $nosuch $x { a 1; }", "2:5 unknown \"nosuch\" variable"),
        (
            "map $host $x { a $nosuch; }",
            "2:18 unknown \"nosuch\" variable",
        ),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(&http(text)), [finding], "{text}");
    }
}
