//! Each trap has a configuration that has it, and near misses that have not.

use crate::{LoadOptions, Severity, load, render};

/// The warnings of a text that stands in `http`, each without its place, with `LINE:COLUMN` in front.
fn warnings(text: &str) -> Vec<String> {
    main(&format!("events {{}} http {{\n{text}\n}}"))
}

fn main(text: &str) -> Vec<String> {
    let loaded = load(&LoadOptions {
        path: "/conf/kp.conf".into(),
        prefix: "/prefix".into(),
        text: Some(text.into()),
        ..LoadOptions::default()
    });
    let shown = render(&loaded.diagnostics, &loaded.sources);
    assert!(loaded.config.is_some(), "{shown}");
    for one in &loaded.diagnostics {
        assert!(
            one.severity == Severity::Warning && one.hint.is_some(),
            "{shown}"
        );
    }
    let place = |one: &crate::Diagnostic| {
        one.span
            .map(|span| format!("{}:{} ", span.line, span.column))
            .unwrap_or_default()
    };
    loaded
        .diagnostics
        .iter()
        .map(|one| place(one) + &one.message)
        .collect()
}

/// A server around it.
fn server(text: &str) -> Vec<String> {
    warnings(&format!("server {{\n{text}\n}}"))
}

fn one(found: &[String], expected: &str) {
    assert_eq!(found, [expected]);
}

#[test]
fn an_alias_and_its_location_end_alike() {
    one(
        &server("location /i { alias /x/; }"),
        "3:21 \"/i../x\" is a file beside \"/x/\", not in it",
    );
    one(
        &server("location ^~ /i { alias /x/; }"),
        "3:24 \"/i../x\" is a file beside \"/x/\", not in it",
    );
    one(
        &server("location /i/ { alias /x; }"),
        "3:22 \"/i/x\" is looked for as \"/xx\"",
    );
    for near in [
        "location /i/ { alias /x/; }",
        "location /i { alias /x; }",
        "location = /i { alias /x/y.html; }",
        "location ~ ^/i/(.*)$ { alias /x/$1; }",
        "location /i/ { alias /x/$host; }",
    ] {
        assert_eq!(server(near), [""; 0], "{near}");
    }
}

#[test]
fn a_location_that_no_path_fits() {
    one(
        &server("location api/ { root /x; }"),
        "3:10 no path begins with \"api/\"",
    );
    one(
        &server("location \\.php$ { root /x; }"),
        "3:10 no path begins with \"\\.php$\"",
    );
    one(
        &server("location = up { return 200; }"),
        "3:12 no path begins with \"up\"",
    );
    one(
        &server("location /api/.* { root /x; }"),
        "3:10 \"/api/.*\" is compared letter by letter, it is no regular expression",
    );
    for near in [
        "location /api.v1/ { root /x; }",
        "location @api { root /x; }",
        "location ~ \\.php$ { root /x; }",
        "location ~ ^/api/.*/x { root /x; }",
        "location = /a+b { root /x; }",
    ] {
        assert_eq!(server(near), [""; 0], "{near}");
    }
}

#[test]
fn an_extension_is_at_the_end() {
    one(
        &server("location ~ \\.php { root /x; }"),
        "3:12 \"\\.php\" fits in the middle of a path, too: \"/a.php/b\"",
    );
    one(
        &server("location ~* \\.(jpg|png) { root /x; }"),
        "3:13 \"\\.(jpg|png)\" fits in the middle of a path, too: \"/a.jpg/b\"",
    );
    for near in [
        "location ~ \\.php$ { root /x; }",
        "location ~ \\.php(/|$) { root /x; }",
        "location ~ /\\.ht { deny all; }",
        "location ~ \\.ht { deny all; }",
        "location ~ \\.(git|env) { return 404; }",
        "location ~ /v1\\.0 { root /x; }",
        "location ~ ^/index\\.php { root /x; }",
        "location ~ /\\. { deny all; }",
    ] {
        assert_eq!(server(near), [""; 0], "{near}");
    }
}

#[test]
fn a_root_of_everything() {
    one(
        &server("root /;"),
        "3:6 \"root /\" publishes every file there that kp may read",
    );
    one(
        &server("location / { root /etc; }"),
        "3:19 \"root /etc\" publishes every file there that kp may read",
    );
    assert_eq!(server("location /srv/ { root /; }"), [""; 0]);
    assert_eq!(server("root /srv;"), [""; 0]);
}

#[test]
fn a_decoded_path_in_a_redirect() {
    let expected = "the redirect is made of \"$uri\", which is decoded: \"%0A\" and \"%3F\" of a path become what they stand for";
    one(
        &server("return 301 https://$host$uri;"),
        &format!("3:12 {expected}"),
    );
    one(
        &server("return https://$host${uri};"),
        &format!("3:8 {expected}"),
    );
    one(
        &server("rewrite ^ https://a$uri?x;"),
        &format!("3:11 {expected}"),
    );
    one(
        &server("rewrite ^ /b$uri permanent;"),
        &format!("3:11 {expected}"),
    );
    for near in [
        "return 301 https://$host$request_uri;",
        "return 200 $uri;",
        "rewrite ^ /b$uri last;",
        "rewrite ^/(.*)$ https://a/$1 permanent;",
    ] {
        assert_eq!(server(near), [""; 0], "{near}");
    }
}

#[test]
fn a_path_behind_a_variable_host() {
    let group = "upstream b { server 127.0.0.1:1; } server { set $b b; ";
    let with = |location: &str| warnings(&format!("{group}{location} }}"));
    one(
        &with("location /x/ { proxy_pass http://$b/y; }"),
        "2:81 every request of this location is passed on as \"/y\"",
    );
    for near in [
        "location /x/ { proxy_pass http://$b; }",
        "location /x/ { proxy_pass http://$b$request_uri; }",
        "location /x/ { proxy_pass http://$b/y$is_args$args; }",
        "location = /x { proxy_pass http://$b/y; }",
        "location @x { proxy_pass http://$b/y; }",
        "location /x/ { proxy_pass http://b/y/; }",
    ] {
        assert_eq!(with(near), [""; 0], "{near}");
    }
}

#[test]
fn fields_that_are_not_inherited() {
    let with = |inner: &str| {
        server(&format!(
            "add_header A 1;\nadd_header B 2 always;\nlocation / {{ {inner} }}"
        ))
    };
    one(
        &with("add_header C 3;"),
        "5:14 \"add_header\" here drops the inherited \"A\", \"B\"",
    );
    one(
        &with("add_header a 3;"),
        "5:14 \"add_header\" here drops the inherited \"B\"",
    );
    one(
        &with("if ($arg_x) { add_header C 3; }"),
        "5:28 \"add_header\" here drops the inherited \"A\", \"B\"",
    );
    assert_eq!(
        with("add_header A 3; add_header b 4; add_header C 5;"),
        [""; 0]
    );
    assert_eq!(with("root /x;"), [""; 0]);
}

#[test]
fn allow_alone() {
    let expected = "\"allow\" alone refuses nobody: a client that fits no rule is admitted";
    one(
        &server("location / { allow 10.0.0.0/8; }"),
        &format!("3:14 {expected}"),
    );
    one(&server("allow 10.0.0.1;"), &format!("3:1 {expected}"));
    assert_eq!(
        server("location / { allow 10.0.0.0/8; deny all; }"),
        [""; 0]
    );
    assert_eq!(
        server("deny 10.0.0.0/8; location / { allow all; }"),
        [""; 0]
    );
}

#[test]
fn everybody_is_believed() {
    one(
        &server("set_real_ip_from 0.0.0.0/0;"),
        "3:18 \"set_real_ip_from 0.0.0.0/0\" lets every client choose its address",
    );
    assert_eq!(server("set_real_ip_from 10.0.0.0/8;"), [""; 0]);
}

#[test]
fn origins_of_others() {
    one(
        &server("if ($http_origin ~* example\\.com) { return 204; }"),
        "3:21 \"example\\.com\" fits origins of others, too: what is before or behind it may be anything",
    );
    one(
        &warnings("map $http_origin $o { ~^https://a\\.b 1; } server { add_header X $o; }"),
        "2:23 \"^https://a\\.b\" fits origins of others, too: what is before or behind it may be anything",
    );
    assert_eq!(
        server("if ($http_origin ~ ^https://a\\.b$) { return 204; }"),
        [""; 0]
    );
    for closed in ["\\.b\\.c$", "//b\\.c$", "(^https://b$|^https://c$)"] {
        let text = format!("if ($http_origin ~ \"{closed}\") {{ return 204; }}");
        assert_eq!(server(&text), [""; 0], "{closed}");
    }
    assert_eq!(
        server("if ($http_user_agent ~ bot) { return 204; }"),
        [""; 0]
    );
    assert_eq!(
        warnings(
            "map $http_origin $o { https://a 1; ~^https://(a|b)\\.c$ 1; } server { add_header X $o; }"
        ),
        [""; 0]
    );
}

#[test]
fn names_that_no_request_has() {
    one(
        &server("server_name a.b:80;"),
        "3:13 no request has the name \"a.b:80\"",
    );
    one(
        &server("server_name ~a\\.b;"),
        "3:13 \"a\\.b\" fits names that others have, too: what is before and behind it may be anything",
    );
    assert_eq!(
        server("server_name a.b *.c.d \"\" _ ~^(www\\.)?e\\.f$ ~^g\\.;"),
        [""; 0]
    );
}

#[test]
fn a_limit_of_each_worker() {
    let with = |workers: &str, zone: &str| {
        main(&format!(
            "worker_processes {workers};\nevents {{}} http {{ upstream b {{ {zone}\nserver 127.0.0.1:1 max_conns=5; }} server {{ location / {{ proxy_pass http://b; }} }} }}"
        ))
    };
    one(
        &with("4", ""),
        "3:20 \"max_conns\" holds in each worker by itself: all together may open as many times more",
    );
    assert_eq!(with("auto", "").len(), 1);
    assert_eq!(with("1", ""), [""; 0]);
    assert_eq!(with("4", "zone b 64k;"), [""; 0]);
}

#[test]
fn more_than_a_worker_has() {
    let with = |keepalive: &str, files: &str| {
        main(&format!(
            "worker_rlimit_nofile {files};\nevents {{ worker_connections 100; }} http {{ upstream b {{ server 127.0.0.1:1;\nkeepalive {keepalive}; }} server {{ location / {{ proxy_pass http://b; }} }} }}"
        ))
    };
    one(
        &with("100", "300"),
        "3:11 \"keepalive 100\" may use up the 100 connections of a worker with idle ones",
    );
    one(
        &with("10", "99"),
        "1:22 99 open files are too few for the 100 connections of a worker",
    );
    assert_eq!(with("99", "300"), [""; 0]);
}

#[test]
fn a_name_server_that_cannot_know() {
    let with = |resolver: &str, host: &str| {
        warnings(&format!(
            "resolver {resolver};\nupstream b {{ zone b 64k; server {host} resolve; }} server {{ location / {{ proxy_pass http://b; }} }}"
        ))
    };
    one(
        &with("8.8.8.8", "db.internal:80"),
        "2:10 a public name server does not know \"db.internal\"",
    );
    one(
        &with("1.1.1.1 valid=5s", "app"),
        "2:10 a public name server does not know \"app\"",
    );
    assert_eq!(with("8.8.8.8", "example.com"), [""; 0]);
    assert_eq!(with("10.0.0.2", "app"), [""; 0]);
    assert_eq!(with("8.8.8.8 10.0.0.2", "app"), [""; 0]);
}

#[test]
fn a_log_called_off() {
    one(
        &server("error_log off;"),
        "3:11 \"error_log off\" writes to a file called \"off\"",
    );
    assert_eq!(server("error_log /dev/null crit; access_log off;"), [""; 0]);
}

#[test]
fn what_nothing_uses() {
    for (definition, column, message, used) in [
        (
            "log_format a '$uri';",
            12,
            "no \"access_log\" uses the format \"a\"",
            "access_log /x a;",
        ),
        (
            "map $host $kind { default 1; }",
            11,
            "nothing uses the variable \"$kind\" of this map",
            "add_header X ${kind}y;",
        ),
        (
            "upstream b { server 127.0.0.1:1; }",
            10,
            "no \"proxy_pass\" names the upstream \"b\"",
            "location / { proxy_pass http://b; }",
        ),
        (
            "limit_req_zone $host zone=z:1m rate=1r/s;",
            22,
            "no \"limit_req\" uses the zone \"z\": nothing is limited",
            "limit_req zone=z;",
        ),
        (
            "limit_conn_zone $host zone=z:1m;",
            23,
            "no \"limit_conn\" uses the zone \"z\": nothing is limited",
            "limit_conn z 5;",
        ),
    ] {
        one(
            &warnings(&format!("{definition} server {{ }}")),
            &format!("2:{column} {message}"),
        );
        assert_eq!(
            warnings(&format!("{definition} server {{ {used} }}")),
            [""; 0],
            "{used}"
        );
    }
    // A name may be put together.
    assert_eq!(
        warnings("upstream b1 { server 127.0.0.1:1; } server { location / { proxy_pass http://b$arg_n; } }").len(),
        1
    );
    // Two maps that feed each other are used.
    assert_eq!(
        warnings(
            "map $host $a { default 1; } map $a $b { default $a; } server { add_header X $b; }"
        ),
        [""; 0]
    );
}

/// What everybody writes has no traps.
#[test]
fn an_ordinary_configuration_is_silent() {
    let text = "user nobody;\nworker_processes auto;\nerror_log /var/log/e.log warn;\npid /run/x.pid;\nevents { worker_connections 1024; }\n\
        http {\n default_type application/octet-stream;\n log_format main '$remote_addr - $remote_user [$time_local] \"$request\" '\n\
        '$status $body_bytes_sent \"$http_referer\" \"$http_user_agent\" \"$http_x_forwarded_for\"';\n access_log /var/log/a.log main;\n\
        sendfile on; tcp_nopush on; keepalive_timeout 65;\n\
        map $http_upgrade $connection_upgrade { default upgrade; '' close; }\n\
        upstream app { server 127.0.0.1:9000; server 127.0.0.1:9001 backup; keepalive 32; }\n\
        server { listen 80; listen [::]:80; server_name example.com www.example.com; return 301 https://$host$request_uri; }\n\
        server { listen 8080 default_server; server_name _; root /usr/share/nginx/html; index index.html;\n\
        add_header X-Frame-Options DENY always;\n\
        location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Host $host;\n\
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header Upgrade $http_upgrade;\n\
        proxy_set_header Connection $connection_upgrade; }\n\
        location /static/ { alias /srv/static/; }\n location ~* \\.(css|js)$ { root /srv; }\n location ~ /\\.ht { deny all; }\n\
        location = /50x.html { root /usr/share/nginx/html; }\n error_page 500 502 503 504 /50x.html;\n\
        location /admin/ { allow 10.0.0.0/8; deny all; proxy_pass http://app; } } }\n";
    let user = "the \"user\" directive";
    let found = main(text);
    let found: Vec<_> = found.iter().filter(|one| !one.contains(user)).collect();
    assert_eq!(found, [""; 0]);
}
