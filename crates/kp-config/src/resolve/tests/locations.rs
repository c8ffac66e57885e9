//! Locations, conditions, rewrite instructions, error pages.

use super::*;
use crate::model::{
    Condition, ErrorPageStatus, ErrorPageTarget, FileTest, Return, Rewrite, RewriteFlag, UserVar,
};
use crate::template::{Builtin, Part, Template, Variable};

fn instructions(text: &str) -> Vec<Rewrite> {
    prefix(&config(&location(text)), "/a/").rewrite.clone()
}

fn builtin(variable: Builtin) -> Template {
    Template {
        parts: vec![Part::Variable(Variable::Builtin(variable))],
    }
}

#[test]
fn tables() {
    let config = config(&server(
        "location / { }
location = /x { }
location ^~ /s/ { }
location ~ a { }
location ~*b { }
location @n { }
location /o/ { location /o/i/ { } location ~ c { } }",
    ));
    let host = &config.http.servers[0];
    let text = |id: &crate::model::LocationId| match &config.http.locations[id.index()].matches {
        LocationMatch::Prefix { text, stop } => format!("{text} {stop}"),
        LocationMatch::Exact(text) => format!("= {text}"),
        LocationMatch::Regex(regex) => {
            let regex = &config.http.regexes[regex.index()];
            format!("~ {} {}", regex.pattern, regex.case_insensitive)
        }
        other => format!("{other:?}"),
    };
    assert_eq!(
        host.locations.fixed.iter().map(text).collect::<Vec<_>>(),
        ["/ false", "= /x", "/s/ true", "/o/ false"]
    );
    assert_eq!(
        host.locations.regexes.iter().map(text).collect::<Vec<_>>(),
        ["~ a false", "~ b true"]
    );
    assert_eq!(host.named[0].0, "@n");
    let outer = prefix(&config, "/o/");
    assert_eq!(
        outer.children.fixed.iter().map(text).collect::<Vec<_>>(),
        ["/o/i/ false"]
    );
    assert_eq!(
        outer.children.regexes.iter().map(text).collect::<Vec<_>>(),
        ["~ c false"]
    );
}

#[test]
fn misplaced_locations() {
    let cases = [
        (
            "location /a { }\nlocation /a { }",
            "3:10 duplicate location \"/a\"",
        ),
        (
            "location ^~ /a { }\nlocation /a { }",
            "3:10 duplicate location \"/a\"",
        ),
        (
            "location = /a { }\nlocation = /a { }",
            "3:12 duplicate location \"/a\"",
        ),
        (
            "location @a { }\nlocation @a { }",
            "3:10 duplicate location \"@a\"",
        ),
        (
            "location /a { location /b { } }",
            "2:24 location \"/b\" is outside location \"/a\"",
        ),
        (
            "location = /a { location /a/b { } }",
            "2:26 location \"/a/b\" cannot be inside the exact location \"/a\"",
        ),
        (
            "location @a { location /b { } }",
            "2:24 location \"/b\" cannot be inside the named location \"@a\"",
        ),
        (
            "location /a { location @b { } }",
            "2:24 named location \"@b\" can be on the server level only",
        ),
        (
            "location @a { alias /x; }",
            "2:15 the \"alias\" directive cannot be used inside the named location",
        ),
        (
            "if ($host) { root /x; }",
            "2:14 \"root\" directive is not allowed here",
        ),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(&server(text)), [finding], "{text}");
    }
    assert_eq!(
        findings(&server(
            "location = /a { }\nlocation /a { }\nlocation ~ a { }\nlocation ~ a { }"
        )),
        [""; 0]
    );
}

#[test]
fn conditions() {
    let condition = |text: &str| match instructions(&format!("if {text} {{ }}")).pop() {
        Some(Rewrite::If { condition, .. }) => condition,
        other => panic!("{text}: {other:?}"),
    };
    let host = || builtin(Builtin::Host);
    assert_eq!(condition("($host)"), Condition::Truthy(host()));
    assert_eq!(condition("( ${host} )"), Condition::Truthy(host()));
    let equals = |other: &str, negated| Condition::Equals {
        value: host(),
        other: Template::literal(other),
        negated,
    };
    assert_eq!(condition("($host = a)"), equals("a", false));
    assert_eq!(condition("($host != \"a b\")"), equals("a b", true));
    assert_eq!(condition("($host = \"\")"), equals("", false));
    for (text, negated) in [("($host ~ x)", false), ("($host !~* x)", true)] {
        match condition(text) {
            Condition::Matches {
                value,
                negated: found,
                ..
            } => assert_eq!((value, found), (host(), negated)),
            other => panic!("{text}: {other:?}"),
        }
    }
    let file = |test, negated| Condition::File {
        test,
        path: builtin(Builtin::Uri),
        negated,
    };
    assert_eq!(condition("(-f $uri)"), file(FileTest::File, false));
    assert_eq!(condition("(!-d $uri)"), file(FileTest::Directory, true));
    assert_eq!(condition("(-e $uri)"), file(FileTest::Exists, false));
    assert_eq!(condition("( !-x $uri )"), file(FileTest::Executable, true));
}

#[test]
fn rewrites() {
    let rewrite = |text: &str| match instructions(text).as_slice() {
        [
            Rewrite::Rewrite {
                replacement,
                drop_args,
                flag,
                ..
            },
        ] => (replacement.parts.len(), *drop_args, *flag),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(
        rewrite("rewrite ^/a/(.*) /b/$1;"),
        (2, false, RewriteFlag::None)
    );
    assert_eq!(rewrite("rewrite ^ /b? last;"), (1, true, RewriteFlag::Last));
    assert_eq!(
        rewrite("rewrite ^ /b break;"),
        (1, false, RewriteFlag::Break)
    );
    assert_eq!(
        rewrite("rewrite ^ /b redirect;"),
        (1, false, RewriteFlag::Redirect)
    );
    assert_eq!(
        rewrite("rewrite ^ http://x/ permanent;"),
        (1, false, RewriteFlag::Permanent)
    );
    assert_eq!(
        rewrite("rewrite ^ http://x/ last;"),
        (1, false, RewriteFlag::Redirect)
    );
    assert_eq!(
        rewrite("rewrite ^ $scheme://x/;"),
        (2, false, RewriteFlag::Redirect)
    );
}

#[test]
fn answers() {
    let answer = |text: &str| match instructions(text).pop() {
        Some(Rewrite::Return(answer)) => answer,
        other => panic!("{text}: {other:?}"),
    };
    let text = Template::literal;
    assert_eq!(answer("return 404;"), Return::Status(404));
    assert_eq!(answer("return 444;"), Return::Status(444));
    assert_eq!(
        answer("return 200 hello;"),
        Return::Text(200, text("hello"))
    );
    assert_eq!(answer("return 301 /x;"), Return::Redirect(301, text("/x")));
    assert_eq!(
        answer("return http://x/;"),
        Return::Redirect(302, text("http://x/"))
    );
    assert_eq!(
        findings(&location(
            "return 404;\nset $a 1;\nif ($args) { return 500; }"
        )),
        [
            "warn 3:1 this directive is ignored",
            "warn 4:1 this directive is ignored"
        ]
    );
}

#[test]
fn variables_that_are_set() {
    let config = config(&location("set $A 1; set $a 2; set $args x=1; break;"));
    assert_eq!(config.http.user_variables, ["a"]);
    let [
        Rewrite::Set { variable, .. },
        Rewrite::Set {
            variable: again, ..
        },
        Rewrite::SetArgs { value },
        Rewrite::Break,
    ] = prefix(&config, "/a/").rewrite.as_slice()
    else {
        panic!("four instructions")
    };
    assert_eq!((*variable, *again), (UserVar(0), UserVar(0)));
    assert_eq!(value.as_literal(), Some("x=1"));
}

#[test]
fn error_pages() {
    let config = config(&server(
        "location @n { }
location /a/ { error_page 500 502 =200 /e; error_page 404 = @n; error_page 403 https://x/; error_page 495 494 /b; }",
    ));
    let found = &prefix(&config, "/a/").error_pages;
    let statuses: Vec<u16> = found.iter().map(|page| page.status).collect();
    assert_eq!(statuses, [500, 502, 404, 403, 495, 494]);
    assert_eq!(found[0].answer, ErrorPageStatus::Fixed(200));
    assert_eq!(
        found[0].target,
        ErrorPageTarget::Uri(Template::literal("/e"))
    );
    assert_eq!(found[2].answer, ErrorPageStatus::FromTarget);
    assert_eq!(found[2].target, ErrorPageTarget::Named("@n".into()));
    assert_eq!(found[3].answer, ErrorPageStatus::Keep);
    assert_eq!(
        found[3].target,
        ErrorPageTarget::Url(Template::literal("https://x/"))
    );
    assert_eq!(found[4].answer, ErrorPageStatus::Fixed(400));
    assert_eq!(found[5].answer, ErrorPageStatus::Keep);
}

#[test]
fn an_error_page_that_is_not_there() {
    assert_eq!(
        findings(&server(
            "error_page 404 @here;\nlocation / { error_page 502 503 @gone; }\nlocation @here { }"
        )),
        ["warn 3:33 could not find named location \"@gone\""]
    );
}
