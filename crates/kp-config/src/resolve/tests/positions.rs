//! Case C04: every mistake at its own word, all of them at once.

use super::*;

/// Lines of a location, and what is found.
pub(super) const IN_A_LOCATION: &[(&str, &str)] = &[
    (
        "tcp_nodelay maybe;",
        "2:13 invalid value \"maybe\" in \"tcp_nodelay\" directive, it must be \"on\" or \"off\"",
    ),
    (
        "client_max_body_size 1x;",
        "2:22 \"client_max_body_size\" directive invalid value",
    ),
    (
        "send_timeout 1h1h;",
        "2:14 \"send_timeout\" directive invalid value",
    ),
    (
        "keepalive_requests x;",
        "2:20 \"keepalive_requests\" directive invalid number",
    ),
    (
        "proxy_buffers 8 x;",
        "2:17 \"proxy_buffers\" directive invalid value",
    ),
    (
        "send_timeout 1;\n  send_timeout 2;",
        "3:3 \"send_timeout\" directive is duplicate",
    ),
    (
        "send_timeout 1 2;",
        "2:16 invalid number of arguments in \"send_timeout\" directive",
    ),
    (
        "send_timeout;",
        "2:1 invalid number of arguments in \"send_timeout\" directive",
    ),
    (
        "worker_processes 1;",
        "2:1 \"worker_processes\" directive is not allowed here",
    ),
    ("foo_bar 1;", "2:1 unknown directive \"foo_bar\""),
    ("add_header X $nosuch;", "2:14 unknown \"nosuch\" variable"),
    (
        "add_header X \"${host\";",
        "2:15 the closing bracket in \"host\" variable is missing",
    ),
    ("add_header X \"a$\";", "2:14 invalid variable name"),
    ("lingering_close maybe;", "2:17 invalid value \"maybe\""),
    (
        "proxy_next_upstream error foo;",
        "2:27 invalid value \"foo\"",
    ),
    ("proxy_http_version 3;", "2:20 invalid value \"3\""),
    ("set foo 1;", "2:5 invalid variable name \"foo\""),
    ("set $uri 1;", "2:5 the duplicate \"uri\" variable"),
    ("rewrite x y bad;", "2:13 invalid parameter \"bad\""),
    ("rewrite x \"\";", "2:11 empty replacement"),
    ("return x;", "2:8 invalid return code \"x\""),
    ("return 1000;", "2:8 invalid return code \"1000\""),
    (
        "error_page 200 /a;",
        "2:12 value \"200\" must be between 300 and 599",
    ),
    ("error_page 404 =x /a;", "2:16 invalid value \"=x\""),
    ("error_page =200 /a;", "2:12 invalid value \"=200\""),
    ("error_page 499 /a;", "2:12 invalid value \"499\""),
    ("if $host { }", "2:4 invalid condition \"$host\""),
    ("if ($host == a) { }", "2:11 unexpected \"==\" in condition"),
    ("if (-q $uri) { }", "2:4 invalid condition \"-q\""),
    ("if ($nosuch) { }", "2:4 unknown \"nosuch\" variable"),
    (
        "root $document_root/x;",
        "2:6 the $document_root variable cannot be used in the \"root\" directive",
    ),
    (
        "alias /a;\nroot /b;",
        "3:1 \"root\" directive is duplicate, \"alias\" directive was specified earlier",
    ),
    (
        "proxy_redirect default;",
        "2:16 \"proxy_redirect default\" should be placed after the \"proxy_pass\" directive",
    ),
    ("proxy_redirect foo;", "2:16 invalid parameter \"foo\""),
    (
        "proxy_redirect off;\nproxy_redirect / /x;",
        "3:1 \"proxy_redirect\" directive is duplicate",
    ),
    ("proxy_cookie_domain foo;", "2:21 invalid parameter \"foo\""),
    (
        "proxy_cookie_flags a sekure;",
        "2:22 invalid cookie flag \"sekure\"",
    ),
    ("proxy_bind foo;", "2:12 invalid address \"foo\""),
    ("proxy_ignore_headers Foo;", "2:22 invalid value \"Foo\""),
    (
        "proxy_limit_rate 1kb;",
        "2:18 \"proxy_limit_rate\" directive invalid value",
    ),
    (
        "proxy_set_header \"X Y\" 1;",
        "2:18 invalid header name \"X Y\"",
    ),
    ("add_header X y never;", "2:16 invalid parameter \"never\""),
    (
        "send_timeout 5 { }",
        "2:16 directive \"send_timeout\" is not terminated by \";\"",
    ),
    (
        "location /a/b;",
        "2:1 directive \"location\" has no opening \"{\"",
    ),
    (
        "location % /a/b { }",
        "2:10 invalid location modifier \"%\"",
    ),
];

#[test]
fn mistakes_of_a_location() {
    for (text, finding) in IN_A_LOCATION {
        assert_eq!(findings(&location(text)), [*finding], "{text}");
    }
}

#[test]
fn mistakes_of_main_and_events() {
    let cases = [
        (
            "worker_processes x;",
            "1:18 \"worker_processes\" directive invalid value",
        ),
        (
            "daemon yes;",
            "1:8 invalid value \"yes\" in \"daemon\" directive, it must be \"on\" or \"off\"",
        ),
        (
            "user a b c;",
            "1:10 invalid number of arguments in \"user\" directive",
        ),
        (
            "worker_cpu_affinity 01x;",
            "1:21 invalid character \"x\" in \"worker_cpu_affinity\"",
        ),
        ("stop_signal gracefull;", "1:13 invalid value \"gracefull\""),
        (
            "worker_rlimit_nofile x;",
            "1:22 \"worker_rlimit_nofile\" directive invalid number",
        ),
        ("error_log x loud;", "1:13 invalid log level \"loud\""),
        (
            "events { worker_connections 0; }",
            "1:29 \"worker_connections\" directive invalid value",
        ),
        (
            "events { use select; }",
            "1:14 invalid event type \"select\"",
        ),
        ("http { }\nhttp { }", "2:1 \"http\" directive is duplicate"),
        ("listen 80;", "1:1 \"listen\" directive is not allowed here"),
    ];
    for (text, finding) in cases {
        assert_eq!(findings(text), [finding], "{text}");
    }
}

#[test]
fn accepted_as_nginx_does() {
    for text in [
        "keepalive_timeout 1m30s;",
        "set $a \"x;y{}#z\";",
        "set $a 'it\"s';",
        "set $a x#y;",
        "add_header X \"${host}x\";",
        "tcp_nodelay ON;",
        "if ( $host ~* \"a b\" ) { set $b 1; }",
        "if ($host = \"\") { return 404; }",
        "if ($args){ return 404; }",
        "if (!-e $document_root/x) { return 404; }",
        "return 200 \"\";",
        "return https://x.test/;",
        "set $args a=b;",
        "proxy_temp_path x 1 2;",
        "location ~ \"^/\\d{3}/\" { }",
        "location ~* (?<name>x) { return 200 $name; }",
    ] {
        assert_eq!(findings(&location(text)), [""; 0], "{text}");
    }
}

#[test]
fn twelve_mistakes_are_twelve_findings() {
    let text = "daemon perhaps;
events {
    worker_connections many;
}
http {
    upstream empty { }
    upstream u { server 127.0.0.1 weight=0; }
    client_max_body_size 1x;
    server {
        listen 70000;
        servername example.com;
        location / {
            proxy_pass u;
            send_timeout 1h1h;
            pid /x;
        }
        location / { add_header X $nosuch; }
        location /y { return; }
    }
}
";
    assert_eq!(
        findings(text),
        [
            "1:8 invalid value \"perhaps\" in \"daemon\" directive, it must be \"on\" or \"off\"",
            "3:24 \"worker_connections\" directive invalid number",
            "6:14 no servers are inside upstream",
            "7:35 invalid parameter \"weight=0\"",
            "8:26 \"client_max_body_size\" directive invalid value",
            "10:16 invalid port in \"70000\" of the \"listen\" directive",
            "11:9 unknown directive \"servername\"",
            "13:24 invalid URL prefix",
            "14:26 \"send_timeout\" directive invalid value",
            "15:13 \"pid\" directive is not allowed here",
            "17:18 duplicate location \"/\"",
            "17:35 unknown \"nosuch\" variable",
            "18:23 invalid number of arguments in \"return\" directive",
        ]
    );
}

#[test]
fn advice() {
    let cases = [
        (location("proxypass http://u;"), "did you mean \"proxy_pass\"?"),
        (location("brotli on;"), "kp does not have it: kp passes bodies on as they are: let the upstream compress; Accept-Encoding reaches it unchanged"),
        (location("listen 80;"), "it is allowed in: server"),
        (location("add_header X $hots;"), "did you mean \"$host\"?"),
        (location("send_timeout 1;\nsend_timeout 2;"), "the first one is on line 2"),
        (location("lingering_close alway;"), "did you mean \"always\"?"),
        (location("access_log x fmt;"), "a format is defined with \"log_format\" in http"),
        (
            location("proxy_pass u;"),
            "write \"http://u\" or \"https://u\"",
        ),
        (location("proxy_method;"), "it takes one argument: the form is `proxy_method method;`"),
        (
            "http { upstream backend { server 127.0.0.1; } server { listen 8080; location / { proxy_pass http://backedn; } } }"
                .to_owned(),
            "did you mean the upstream \"backend\"?",
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(hint(&text), wanted, "{text}");
    }
}
