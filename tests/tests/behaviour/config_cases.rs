//! What a configuration means and what is an error in it (cases C01–C04), on the real binary and in both syntaxes.

use kp_tests::{Checked, Origin, Port, Setup};

/// Shows: proxy_pass, rewrite, set, location, break
#[test]
fn c01_the_uri_that_is_passed() {
    let origin = Origin::ok();
    let text = "http { upstream u { server %U1%; keepalive 8; } server { listen %LISTEN%;
        location /name/ { proxy_pass http://u/remote/; }
        location /some/path/ { proxy_pass http://u; }
        location /api/0 { proxy_pass http://u/; }
        location /noslash/ { proxy_pass http://u/x; }
        location ~ ^/re/ { proxy_pass http://u; }
        location = /exact { proxy_pass http://u/e?; }
        location /rw/ { rewrite ^/rw/(.*)$ /new/$1 break; proxy_pass http://u; }
        location /rwu/ { rewrite ^/rwu/(.*)$ /new/$1 break; proxy_pass http://u/ignored/; }
        location /v/ { set $b u; proxy_pass http://$b/fixed; }
        location /v2/ { set $b u; proxy_pass http://$b; }
    } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    for (asked, passed) in [
        ("/name/a%2Fb?x=%20", "/remote/a/b?x=%20"),
        ("/name/a%20b", "/remote/a%20b"),
        ("/name/%7Euser", "/remote/~user"),
        ("/name/../name/a", "/remote/a"),
        ("/name//a", "/remote/a"),
        ("/name/%C3%A9", "/remote/%C3%A9"),
        ("/name/a%3Fb", "/remote/a%3Fb"),
        ("/name/a%25b", "/remote/a%25b"),
        ("/some/path/a%2Fb//c/../d", "/some/path/a%2Fb//c/../d"),
        ("/some//path/x", "/some//path/x"),
        ("/api/0/list", "//list"),
        ("/noslash/y", "/xy"),
        ("/re/a%2Fb", "/re/a%2Fb"),
        ("/exact?z=1", "/e??z=1"),
        ("/rw/a%20b?c", "/new/a%20b?c"),
        ("/rwu/a", "/new/a"),
        ("/v/a?b", "/fixed"),
        ("/v2/a%2Fb", "/v2/a%2Fb"),
    ] {
        let answer = kp.get(asked);
        assert_eq!(answer.status(), 200, "{asked}: {:?}", answer.head);
        assert_eq!(origin.last().target(), passed, "{asked}");
    }
    let answer = kp.get("/name");
    assert_eq!(answer.status(), 301);
    assert_eq!(
        answer.field("location"),
        Some(format!("http://t:{}/name/", kp.port()).as_str())
    );
    assert_eq!(kp.get("/../x").status(), 400);
}

/// Shows: proxy_set_header
#[test]
fn c02_a_level_with_its_own_fields_inherits_none() {
    let origin = Origin::ok();
    let text = "http { upstream u { server %U1%; } server { listen %LISTEN%;
        proxy_set_header X-A 1; proxy_set_header Host $host;
        location /in/ { proxy_pass http://u; }
        location /own/ { proxy_set_header X-B 2; proxy_pass http://u; }
        location /empty/ { proxy_set_header X-C \"\"; proxy_pass http://u; }
    } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    for (path, host, a, b, c) in [
        ("/in/", "foo.test", Some("1"), None, Some("c")),
        ("/own/", "u", None, Some("2"), Some("c")),
        ("/empty/", "u", None, None, None),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: Foo.Test:99\r\nX-C: c\r\n\r\n");
        assert_eq!(kp.client().ask(request).status(), 200);
        let seen = origin.last();
        let fields = [
            seen.field("host"),
            seen.field("x-a"),
            seen.field("x-b"),
            seen.field("x-c"),
        ];
        assert_eq!(fields, [Some(host), a, b, c], "{path}");
    }
    let checked = Setup::new(text).with("U1", origin.address()).check();
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert!(
        checked
            .stderr
            .lines()
            .any(|line| line.contains("[warn]") && line.contains("proxy_set_header")),
        "the lost inheritance is worth a warning: {}",
        checked.stderr
    );
}

/// Checks the same upstream block in both syntaxes. `nginx` is its inside; `yaml` are its lines, as a YAML mapping.
fn upstream(nginx: &str, yaml: &[&str]) -> [Checked; 2] {
    let block = format!("http {{\n  upstream u {{\n    {nginx}\n  }}\n}}\n");
    let mut lines =
        String::from("pid: kp.pid\nerror_log: error.log\nevents: {}\nhttp:\n  upstream:\n    u:");
    if yaml.is_empty() {
        lines.push_str(" {}");
    }
    lines.push('\n');
    for line in yaml {
        lines.push_str(&format!("      {line}\n"));
    }
    [Setup::new(&block).check(), Setup::yaml(&lines).check()]
}

/// A finding: the line of the file, and a word that the message must hold.
fn refused(checked: &Checked, line: usize, what: &str) {
    assert_eq!(checked.code, 1, "{what}: accepted: {}", checked.stderr);
    let places = [format!("kp.conf:{line}"), format!("kp.yaml:{line}")];
    let found = checked
        .stderr
        .lines()
        .any(|said| said.contains("[emerg]") && places.iter().any(|place| said.contains(place)));
    assert!(found, "{what}: no error at line {line}: {}", checked.stderr);
    assert!(!checked.stderr.contains("panicked"), "{}", checked.stderr);
}

fn accepted(checked: &Checked, what: &str) {
    assert_eq!(checked.code, 0, "{what}: {}", checked.stderr);
}

#[test]
fn c03_parameters_of_a_server_that_are_errors() {
    for bad in [
        "127.0.0.1:1 weight=0",
        "127.0.0.1:1 weight=-1",
        "127.0.0.1:1 weight=a",
        "127.0.0.1:1 max_fails=x",
        "127.0.0.1:1 fail_timeout=5x",
        "127.0.0.1:1 bogus=1",
        "127.0.0.1:0",
        "127.0.0.1:70000",
        "http://127.0.0.1",
        "127.0.0.1/x",
    ] {
        let [nginx, yaml] = upstream(&format!("server {bad};"), &[&format!("server: \"{bad}\"")]);
        refused(&nginx, 3, bad);
        refused(&yaml, 7, bad);
    }
}

#[test]
fn c03_groups_that_are_errors() {
    // nginx reports what it finds at the end of a block at the block's end; kp at the block's name or the value.
    for (nginx, yaml) in [
        ("", vec![]),
        (
            "server 127.0.0.1:1 backup;",
            vec!["server: 127.0.0.1:1 backup"],
        ),
        (
            "keepalive x; server 127.0.0.1:1;",
            vec!["keepalive: x", "server: 127.0.0.1:1"],
        ),
        (
            "hash; server 127.0.0.1:1;",
            vec!["hash: []", "server: 127.0.0.1:1"],
        ),
        ("server;", vec!["server: []"]),
        (
            "nonsense 1; server 127.0.0.1:1;",
            vec!["nonsense: 1", "server: 127.0.0.1:1"],
        ),
        (
            "zone z 1k; server 127.0.0.1:1;",
            vec!["zone: z 1k", "server: 127.0.0.1:1"],
        ),
        (
            "server no-such-name.invalid;",
            vec!["server: no-such-name.invalid"],
        ),
        (
            "ip_hash; server 127.0.0.1:1; server 127.0.0.1:2 backup;",
            vec!["ip_hash: on", "server: [127.0.0.1:1, 127.0.0.1:2 backup]"],
        ),
        (
            "hash $uri; server 127.0.0.1:1; server 127.0.0.1:2 backup;",
            vec!["hash: $uri", "server: [127.0.0.1:1, 127.0.0.1:2 backup]"],
        ),
        (
            "random; server 127.0.0.1:1; server 127.0.0.1:2 backup;",
            vec!["random: on", "server: [127.0.0.1:1, 127.0.0.1:2 backup]"],
        ),
    ] {
        for checked in upstream(nginx, &yaml) {
            assert_eq!(checked.code, 1, "{nginx:?} is accepted: {}", checked.stderr);
            let said = checked.stderr.lines().any(|line| {
                line.contains("[emerg]") && (line.contains("kp.conf:") || line.contains("kp.yaml:"))
            });
            assert!(said, "{nginx:?}: {}", checked.stderr);
        }
    }
}

#[test]
fn c03_uses_of_a_group_that_are_errors() {
    for (location, what) in [
        (
            "location / { proxy_pass http://u:8080; }",
            "a port with a group",
        ),
        ("location / { proxy_pass u; }", "no scheme"),
        (
            "location ~ x { proxy_pass http://u/b; }",
            "a URI in a regex location",
        ),
    ] {
        let text = format!(
            "http {{ upstream u {{ server 127.0.0.1:1; }} server {{ listen %LISTEN%;\n {location}\n }} }}"
        );
        refused(&Setup::new(&text).check(), 2, what);
    }
    let twice = "http { upstream u { server 127.0.0.1:1; }\n upstream u { server 127.0.0.1:1; } }";
    refused(&Setup::new(twice).check(), 2, "the same name twice");
}

#[test]
fn c03_groups_that_are_fine() {
    for (nginx, yaml) in [
        (
            "server 127.0.0.1:1 fail_timeout=5;",
            vec!["server: 127.0.0.1:1 fail_timeout=5"],
        ),
        ("server 127.0.0.1:1 down;", vec!["server: 127.0.0.1:1 down"]),
        (
            "least_conn; server 127.0.0.1:1; server 127.0.0.1:2 backup;",
            vec![
                "least_conn: on",
                "server: [127.0.0.1:1, 127.0.0.1:2 backup]",
            ],
        ),
        (
            "keepalive 8; least_conn; server 127.0.0.1:1;",
            vec!["keepalive: 8", "least_conn: on", "server: 127.0.0.1:1"],
        ),
        (
            "keepalive 0; server 127.0.0.1:1;",
            vec!["keepalive: 0", "server: 127.0.0.1:1"],
        ),
        ("server unix:/tmp/x.sock;", vec!["server: unix:/tmp/x.sock"]),
        ("server [::1]:8080;", vec!["server: \"[::1]:8080\""]),
        ("server [::1];", vec!["server: \"[::1]\""]),
        (
            "server 127.0.0.1:1; server 127.0.0.1:1;",
            vec!["server: [127.0.0.1:1, 127.0.0.1:1]"],
        ),
        (
            "hash $uri consistent; server 127.0.0.1:1;",
            vec!["hash: $uri consistent", "server: 127.0.0.1:1"],
        ),
    ] {
        for checked in upstream(nginx, &yaml) {
            accepted(&checked, nginx);
        }
    }
    let twice = ["least_conn: on", "ip_hash: on", "server: 127.0.0.1:1"];
    for checked in upstream("least_conn; ip_hash; server 127.0.0.1:1;", &twice) {
        accepted(&checked, "two methods");
        assert!(
            checked.stderr.contains("[warn]"),
            "the last method wins, with a warning: {}",
            checked.stderr
        );
    }
}

#[test]
fn c04_what_the_lexer_accepts() {
    for server in [
        "location ~ \"^/\\d{3}/\" { return 200; }",
        "set $a \"x;y{}#z\";",
        "set $a 'it\"s';",
        "set $a \"a\\\"b\";",
        "set $a x#y;",
        "set # a comment\n $a x;",
        "set $a x\"y;",
        "set $a \"${host}x\";",
        "keepalive_timeout 1m30s;",
        "include no-such-dir/*.conf;",
        "set $a b;\r\n set $c d;\r\n",
    ] {
        let text = format!("http {{ server {{ listen %LISTEN%; {server} }} }}");
        accepted(&Setup::new(&text).check(), server);
    }
    for http in [
        "map $http_user_agent $m { default 0; \"~Opera Mini\" 1; }",
        "map $request_uri $m { default &a=1; }",
        "log_format f 'a'\n # between\n 'b'\n \"c\";",
    ] {
        accepted(&Setup::new(&format!("http {{ {http} }}")).check(), http);
    }
}

#[test]
fn c04_what_the_lexer_refuses() {
    for (server, line) in [
        ("location ~ ^/\\d{3}/ { return 200; }", 2),
        ("set $a \"x\"y;", 2),
        ("set $a \"${host\";", 2),
        ("set $a x", 3),
        ("set $a \"x;", 2),
        ("nonsense on;", 2),
        ("worker_processes 2;", 2),
        ("set $a;", 2),
        ("server_tokens off; server_tokens off;", 2),
        ("server_tokens maybe nonsense;", 2),
        ("tcp_nodelay perhaps;", 2),
        ("client_max_body_size 1x;", 2),
        ("keepalive_timeout 1h1h;", 2),
        ("include no-such-file.conf;", 2),
        ("set $a $no_such_variable;", 2),
        ("location /a { }\nlocation /a { }", 3),
        ("listen 127.0.0.1:1; listen 127.0.0.1:1;", 2),
    ] {
        let text = format!("http {{ server {{\n{server}\n}} }}");
        let checked = Setup::new(&text).check();
        assert_eq!(checked.code, 1, "{server:?} is accepted");
        let place = format!("kp.conf:{line}");
        // A quote that is never closed may be reported where it began or where the file ended.
        let somewhere = server.contains("\"x;") && checked.stderr.contains("kp.conf:");
        assert!(
            checked.stderr.contains(&place) || somewhere,
            "{server:?}: {}",
            checked.stderr
        );
    }
    let open = Setup::new("http { server {\n listen 127.0.0.1:1;\n").check();
    assert_eq!(open.code, 1);
    assert!(open.stderr.contains("kp.conf:"), "{}", open.stderr);
    let closed = Setup::new("http { }\n}\n").check();
    refused(&closed, 2, "an extra brace");
}

#[test]
fn findings_show_the_line_and_a_hint() {
    let text = "http {\n  server {\n    listen 127.0.0.1:1;\n    proxy_reed_timeout 5s;\n  }\n}\n";
    let checked = Setup::new(text).check();
    refused(&checked, 4, "a misspelt directive");
    assert!(
        checked.stderr.contains("kp.conf:4:5"),
        "the column: {}",
        checked.stderr
    );
    assert!(
        checked.stderr.contains("    proxy_reed_timeout 5s;"),
        "the line: {}",
        checked.stderr
    );
    assert!(
        checked.stderr.contains("^^^"),
        "the caret: {}",
        checked.stderr
    );
    assert!(
        checked.stderr.contains("proxy_read_timeout"),
        "the hint: {}",
        checked.stderr
    );
}

#[test]
fn all_errors_are_told_at_once() {
    let nginx = "http {\n server {\n  listen 127.0.0.1:0;\n  nonsense 1;\n  client_max_body_size 1x;
  keepalive_timeout 1h1h;\n  tcp_nodelay perhaps;\n  set $a;\n  set $a $no_such;\n  worker_processes 2;
  include no-such-file;\n  location ~ x y z { }\n  proxy_pass http://u;\n  return 9999;\n }\n}\n";
    let checked = Setup::new(nginx).check();
    assert_eq!(checked.code, 1);
    for line in 3..=14 {
        assert!(
            checked.stderr.contains(&format!("kp.conf:{line}:")),
            "nothing about line {line}: {}",
            checked.stderr
        );
    }
}

#[test]
fn a_bad_regex_has_its_place() {
    for server in [
        "location ~ ( { }",
        "rewrite ^/(a /b;",
        "if ($uri ~ [) { return 404; }",
    ] {
        let text = format!("http {{ server {{\n{server}\n}} }}");
        refused(&Setup::new(&text).check(), 2, server);
    }
}

#[test]
fn yaml_errors_have_their_place() {
    for (text, line, what) in [
        (
            "http:\n  server:\n    - listen: 80\n      listen: 81\n",
            4,
            "a key twice",
        ),
        (
            "http:\n  server:\n    - listen: 80\n      nonsense: 1\n",
            4,
            "an unknown key",
        ),
        (
            "http:\n  server:\n    - listen: [80\n      server_name: a\n",
            4,
            "broken YAML",
        ),
        (
            "http:\n  server:\n    - listen: 80\n      client_max_body_size: 1x\n",
            4,
            "a bad value",
        ),
        ("worker_processes: [1, 2]\n", 1, "too many arguments"),
    ] {
        let text = format!(
            "{text}{}",
            if text.starts_with("http") {
                ""
            } else {
                "http: {}\n"
            }
        );
        let checked = Setup::yaml(&text).check();
        refused(&checked, line, what);
    }
}

/// Shows: include
#[test]
fn yaml_includes_upstream_blocks_of_nginx() {
    let a = Origin::named("a");
    let b = Origin::named("b");
    let yaml = "daemon: off\npid: kp.pid\nerror_log: error.log\nworker_processes: 1\n%USER%http:
  access_log: off
  include: upstreams.d/*.conf
  server:
    - listen: %LISTEN%
      location:
        /: { proxy_pass: http://thatname }
        \"= /up\": { return: [200, \"up\"] }\n";
    let user = std::env::var("KP_TEST_MAIN").map_or(String::new(), |_| "user: root\n".to_owned());
    let file = format!(
        "upstream thatname {{\n    server {};\n    server {};\n}}\n",
        a.address(),
        b.address()
    );
    let kp = Setup::yaml(yaml)
        .with("USER", user)
        .file("upstreams.d/one.conf", file)
        .start();
    let answers: String = (0..4).map(|_| kp.get("/").text()).collect();
    assert_eq!(answers, "abab");
    assert_eq!(kp.get("/up").text(), "up");
}

/// Shows: server_names_hash_max_size, server_names_hash_bucket_size, variables_hash_max_size, variables_hash_bucket_size, map_hash_max_size, map_hash_bucket_size, types_hash_max_size, types_hash_bucket_size, proxy_headers_hash_max_size, proxy_headers_hash_bucket_size, client_body_in_single_buffer, tcp_nopush, sendfile, output_buffers, postpone_output, use, log_subrequest, multi_accept
#[test]
fn settings_without_an_effect_are_accepted() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .main("events { use epoll; multi_accept on; }")
        .http(
            "server_names_hash_max_size 1024; server_names_hash_bucket_size 128; variables_hash_max_size 2048;
             variables_hash_bucket_size 128; map_hash_max_size 4096; map_hash_bucket_size 128;
             types_hash_max_size 2048; types_hash_bucket_size 128; proxy_headers_hash_max_size 1024;
             proxy_headers_hash_bucket_size 128; client_body_in_single_buffer on; tcp_nopush on; sendfile on;
             output_buffers 1 32k; postpone_output 0; log_subrequest on;",
        )
        .start();
    assert_eq!(kp.get("/").status(), 200);
}

#[test]
fn warnings_name_what_is_probably_a_mistake() {
    let port = Port::take();
    let to_itself = format!(
        "http {{ server {{ listen {0}; location / {{ proxy_pass http://{0}; }} }} }}",
        port.address()
    );
    let open = "http { server { listen %LISTEN%; location / { proxy_pass http://$http_host; } } }";
    for text in [to_itself.as_str(), open] {
        let checked = Setup::new(text).check();
        accepted(&checked, text);
        assert!(
            checked.stderr.contains("[warn]") && checked.stderr.contains("proxy_pass"),
            "{}",
            checked.stderr
        );
    }
}
