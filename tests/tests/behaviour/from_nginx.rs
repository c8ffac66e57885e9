//! Configurations written for nginx: which words of it are taken although kp has nothing to do for them, and how they are
//! answered. The rule is in docs/configuration-help.md.

use kp_tests::{Checked, Origin, Setup};

fn accepted(checked: &Checked, what: &str) {
    assert_eq!(checked.code, 0, "{what}: {}", checked.stderr);
}

fn refused_with(setup: Setup, told: &str) {
    let checked = setup.check();
    assert_eq!(checked.code, 1, "{told}");
    assert!(checked.stderr.contains(told), "{told}: {}", checked.stderr);
}

/// How many warnings say this.
fn warnings(checked: &Checked, text: &str) -> usize {
    let warned = |line: &&str| line.contains("[warn]") && line.contains(text);
    checked.stderr.lines().filter(warned).count()
}

/// Debian's nginx.conf and its site as they are installed, but for `user`, `root` and the addresses of logs and servers.
///
/// Shows: try_files
#[test]
fn the_stock_file_of_debian_serves() {
    let text = "worker_processes auto;
include modules-enabled/*.conf;
events { worker_connections 768; }
http {
    sendfile on;
    tcp_nopush on;
    types_hash_max_size 2048;
    default_type application/octet-stream;
    ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3; # Dropping SSLv3, ref: POODLE
    ssl_prefer_server_ciphers on;
    gzip on;
    server {
        listen %LISTEN% default_server;
        root %DIR%/html;
        index index.html index.htm index.nginx-debian.html;
        server_name _;
        location / { try_files $uri $uri/ =404; }
    }
}";
    let module = "load_module modules/ngx_http_echo_module.so;";
    let setup = || {
        Setup::new(text)
            .file("modules-enabled/50-mod-http-echo.conf", module)
            .file("html/index.html", "home")
            .file("html/with/index.htm", "inside")
            .file("html/without/x.txt", "x")
    };
    let checked = setup().check();
    accepted(&checked, text);
    for told in [
        "not supported in \"ssl_protocols\", left out: \"TLSv1\", \"TLSv1.1\"",
        "\"gzip on\" changes nothing",
        "\"load_module\" changes nothing",
    ] {
        assert_eq!(warnings(&checked, told), 1, "{told}: {}", checked.stderr);
    }
    assert_eq!(warnings(&checked, ""), 3, "{}", checked.stderr);
    let kp = setup().start();
    for (path, status) in [
        ("/", 200),
        ("/without/x.txt", 200),
        ("/with", 301),
        ("/with/", 200),
        ("/without/", 403),
        ("/none", 404),
        ("/none/", 404),
    ] {
        assert_eq!(kp.get(path).status(), status, "{path}");
    }
}

#[test]
fn files_are_tried_in_no_other_order() {
    for list in [
        "$uri =404",
        "$uri $uri/ /index.html",
        "$uri @app",
        "/a $uri/ =404",
    ] {
        let text =
            format!("http {{ server {{ listen %LISTEN%; location / {{ try_files {list}; }} }} }}");
        let told = format!("\"try_files {list}\" is not supported");
        refused_with(Setup::new(&text), &told);
        refused_with(Setup::new(&text), "error_page 403 404 =200 /index.html");
    }
    let text = "http { server { listen %LISTEN%;
        location / { try_files $uri $uri/ =404; proxy_pass http://127.0.0.1:1; } } }";
    let told = "\"try_files\" is supported only where files are served";
    refused_with(Setup::new(text), told);
}

/// What is advised instead of `try_files`, as applications of one page have it.
#[test]
fn one_page_in_place_of_missing_files() {
    let text = "http { server { listen %LISTEN%; root %DIR%/html;
        location / { error_page 403 404 =200 /index.html; } } }";
    let kp = Setup::new(text)
        .file("html/index.html", "page")
        .file("html/empty/x.txt", "file")
        .start();
    for (path, text) in [
        ("/", "page"),
        ("/users/7", "page"),
        ("/empty/", "page"),
        ("/empty/x.txt", "file"),
    ] {
        let answer = kp.get(path);
        assert_eq!(
            (answer.status(), answer.text().as_str()),
            (200, text),
            "{path}"
        );
    }
}

/// What is advised instead of `try_files`.
#[test]
fn an_upstream_in_place_of_missing_files() {
    let origin = Origin::ok();
    let text = "http { upstream app { server %U1%; } server { listen %LISTEN%; root %DIR%/html;
        location / { error_page 403 404 405 = @app; }
        location @app { proxy_pass http://app; } } }";
    let setup = Setup::new(text).with("U1", origin.address());
    let kp = setup.file("html/a.txt", "file").start();
    assert_eq!(kp.get("/a.txt").text(), "file");
    assert_eq!(kp.get("/b").status(), 200);
    assert_eq!(kp.get("/").status(), 200);
    let post = "POST /c HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(kp.client().ask(post).status(), 200);
    let asked: Vec<String> = origin
        .requests()
        .iter()
        .map(|request| format!("{} {}", request.method(), request.target()))
        .collect();
    assert_eq!(asked, ["GET /b", "GET /", "POST /c"]);
}

/// Shows: accept_mutex, accept_mutex_delay, worker_aio_requests, lock_file, pcre_jit, timer_resolution, thread_pool, env, aio, aio_write, directio, directio_alignment, read_ahead, sendfile_max_chunk, open_file_cache, open_file_cache_errors, open_file_cache_min_uses, open_file_cache_valid, open_file_cache_events, connection_pool_size, request_pool_size, send_lowat, proxy_send_lowat, msie_padding, msie_refresh, subrequest_output_buffer_size, referer_hash_max_size, referer_hash_bucket_size, uninitialized_variable_warn, http2_max_concurrent_streams, gzip_buffers, gzip_comp_level, gzip_disable, gzip_http_version, gzip_min_length, gzip_proxied, gzip_types, gzip_vary, proxy_cache_bypass, proxy_no_cache
#[test]
fn words_that_only_nginx_needs_are_accepted_silently() {
    let origin = Origin::ok();
    let setup = || {
        Setup::base(&origin)
            .main(
                "env TZ; lock_file /run/x; pcre_jit on; thread_pool default threads=32 max_queue=65536;
                 timer_resolution 100ms; events { accept_mutex off; accept_mutex_delay 500ms; worker_aio_requests 32; }",
            )
            .http(
                "aio threads; aio_write on; connection_pool_size 512; directio 4m; directio_alignment 512;
                 http2_max_concurrent_streams 128; msie_padding on; msie_refresh off; open_file_cache max=1000 inactive=20s;
                 open_file_cache_errors on; open_file_cache_events off; open_file_cache_min_uses 2; open_file_cache_valid 30s;
                 proxy_send_lowat 0; read_ahead 0; request_pool_size 4k; send_lowat 0; sendfile_max_chunk 512k;
                 subrequest_output_buffer_size 4k; uninitialized_variable_warn off; gzip_buffers 16 8k; gzip_comp_level 6;
                 gzip_disable msie6; gzip_http_version 1.1; gzip_min_length 256; gzip_proxied any; gzip_types text/css;
                 gzip_vary on; proxy_cache_bypass $http_upgrade; proxy_no_cache $cookie_a $arg_b;",
            )
            .server("referer_hash_bucket_size 64; referer_hash_max_size 2048;")
    };
    let checked = setup().check();
    accepted(&checked, "words of nginx");
    assert_eq!(warnings(&checked, ""), 0, "{}", checked.stderr);
    assert_eq!(setup().start().get("/").status(), 200);
    // Their form and their place are checked nevertheless.
    for (text, told) in [
        (
            "gzip_comp_level high;",
            "\"gzip_comp_level\" directive invalid number",
        ),
        ("directio often;", "\"directio\" directive invalid value"),
        ("proxy_no_cache $nosuch;", "unknown \"nosuch\" variable"),
        (
            "accept_mutex on;",
            "\"accept_mutex\" directive is not allowed here",
        ),
    ] {
        refused_with(Setup::base(&origin).http(text), told);
    }
    let value = "a value in \"env\" is not supported";
    refused_with(Setup::base(&origin).main("events {} env A=b;"), value);
}

/// What somebody could miss is told, once, and the answers are those that they would be without it.
///
/// Shows: gzip, gzip_static, load_module, rewrite_log
#[test]
fn what_changes_no_answer_is_accepted_with_a_warning() {
    let origin = Origin::ok();
    let setup = || {
        Setup::base(&origin)
            .main("events {} load_module modules/a.so; load_module modules/b.so;")
            .http("gzip on; gzip_static on; rewrite_log on;")
            .server("gzip on;")
    };
    let checked = setup().check();
    accepted(&checked, "words of nginx");
    for told in [
        "\"load_module\" changes nothing: kp loads no modules",
        "kp does not compress, \"gzip on\" changes nothing",
        "\"gzip_static on\" changes nothing",
        "\"rewrite_log on\" changes nothing",
    ] {
        assert_eq!(warnings(&checked, told), 1, "{told}: {}", checked.stderr);
    }
    let kp = setup().start();
    let request = "GET / HTTP/1.1\r\nHost: t\r\nAccept-Encoding: gzip\r\n\r\n";
    let answer = kp.client().ask(request);
    assert_eq!(
        (answer.status(), answer.field("content-encoding")),
        (200, None)
    );
    assert_eq!(
        origin.requests()[0].field("accept-encoding"),
        Some("gzip"),
        "the upstream may compress"
    );
    refused_with(
        Setup::base(&origin).http("gzip_static always;"),
        "\"gzip_static always\" is not supported",
    );
}

/// Shows: auth_basic, auth_request, autoindex, charset, disable_symlinks, etag, expires, gunzip, if_modified_since, mirror, proxy_cache, proxy_store, satisfy, ssi
#[test]
fn what_kp_does_not_have_may_be_off_and_nothing_else() {
    let origin = Origin::ok();
    let cases = [
        ("auth_basic", "off", "Members", "does not ask for passwords"),
        ("auth_request", "off", "/auth", "let the upstream do it"),
        ("autoindex", "off", "on", "does not list directories"),
        ("charset", "off", "utf-8", "default_type"),
        ("disable_symlinks", "off", "on", "follows symbolic links"),
        ("etag", "on", "off", "proxy_hide_header"),
        ("expires", "off", "1y", "add_header Cache-Control"),
        ("gunzip", "off", "on", "as they are"),
        ("if_modified_since", "exact", "off", "RFC 9110"),
        ("mirror", "off", "/copy", "requests twice"),
        ("proxy_cache", "off", "zone", "reaches the upstream"),
        ("proxy_store", "off", "on", "does not keep answers"),
        ("satisfy", "all", "any", "`allow` and `deny`"),
        ("ssi", "off", "on", "let the upstream do it"),
    ];
    let lines = cases.map(|(name, accepted, _, _)| format!("{name} {accepted};\n"));
    let setup = || Setup::base(&origin).http(&lines.concat());
    let checked = setup().check();
    accepted(&checked, "off");
    assert_eq!(warnings(&checked, ""), 0, "{}", checked.stderr);
    assert_eq!(setup().start().get("/").status(), 200);
    for (name, _, refused, hint) in cases {
        let message = match name {
            "etag" | "if_modified_since" | "satisfy" => {
                format!("\"{name} {refused}\" is not supported")
            }
            _ => format!("\"{name}\" is not supported"),
        };
        let text = format!("{name} {refused};");
        refused_with(Setup::base(&origin).http(&text), &message);
        refused_with(Setup::base(&origin).http(&text), hint);
    }
}

/// A connection that was accepted early or late is served the same.
#[test]
fn parameters_of_listen_that_tune_the_kernel_are_told() {
    let text =
        "http { server { listen %LISTEN% deferred fastopen=256 multipath; return 200 ok; } }";
    let checked = Setup::new(text).check();
    accepted(&checked, text);
    for name in ["deferred", "fastopen", "multipath"] {
        let told = format!("\"{name}\" in \"listen\" changes nothing");
        assert_eq!(warnings(&checked, &told), 1, "{}", checked.stderr);
    }
    assert_eq!(Setup::new(text).start().get("/").text(), "ok");
    for wrong in ["fastopen", "fastopen=x", "deferred=1", "setfib=1"] {
        let text = text.replace("deferred", wrong);
        assert_eq!(Setup::new(&text).check().code, 1, "{wrong}");
    }
}

#[test]
fn variables_of_what_kp_does_not_have_are_empty_as_in_nginx() {
    let text = "http { log_format f '$gzip_ratio $upstream_cache_status <$http2$http3>';
        server { listen %LISTEN%; access_log %DIR%/a.log f;
            return 200 \"<$gzip_ratio$upstream_cache_status$http2$http3>\"; } }";
    let kp = Setup::new(text).start();
    assert_eq!(kp.get("/").text(), "<>");
    assert_eq!(kp.lines("a.log", 1), ["- - <>"]);
    let text = text.replace("$http3>'", "$geoip_city>'");
    let told = "it comes with \"geoip_country\", which kp does not have";
    refused_with(Setup::new(&text), told);
}

/// Old files have comments in the encodings of their time.
#[test]
fn comments_may_be_in_any_encoding() {
    let main = "http { include more.conf; }";
    let site = b"# caf\xe9\nserver { listen 127.0.0.1:1; # \xfc\n return 200 ok; }\n".to_vec();
    let checked = Setup::new(main).file("more.conf", site).check();
    assert!(!checked.stderr.contains("UTF-8"), "{}", checked.stderr);
    let site = b"server { return 200 caf\xe9; }\n".to_vec();
    refused_with(
        Setup::new(main).file("more.conf", site),
        "invalid UTF-8: byte 0xE9",
    );
}
