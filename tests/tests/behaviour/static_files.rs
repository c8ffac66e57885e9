//! The plain file handler.

use kp_tests::{Kp, Setup};

fn files(server: &str) -> Kp {
    Setup::new("http { server { listen %LISTEN%; root %DIR%/www; %SERVER% } }")
        .server(server)
        .file("www/a.html", "<p>a</p>")
        .file("www/b.bin", vec![7_u8; 300_000])
        .file("www/sub/index.html", "index of sub")
        .file("www/sub/other.txt", "other")
        .file("www/empty/keep", "")
        .start()
}

/// Shows: root, index
#[test]
fn files_and_directories() {
    let kp = files("");
    let answer = kp.get("/a.html");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "<p>a</p>"));
    assert_eq!(answer.field("content-type"), Some("text/html"));
    assert!(answer.field("last-modified").is_some() && answer.field("etag").is_some());
    assert_eq!(answer.field("accept-ranges"), Some("bytes"));
    assert_eq!(kp.get("/b.bin").body.len(), 300_000);
    assert_eq!(kp.get("/sub/").text(), "index of sub");
    let redirect = kp.get("/sub?q");
    assert_eq!(redirect.status(), 301);
    assert_eq!(
        redirect.field("location"),
        Some(format!("http://t:{}/sub/?q", kp.port()).as_str())
    );
    assert_eq!(kp.get("/empty/").status(), 403);
    assert_eq!(kp.get("/none").status(), 404);
    let head = kp.client().ask("HEAD /b.bin HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(
        (head.status(), head.field("content-length")),
        (200, Some("300000"))
    );
    for (path, status) in [
        ("/a.html", 405),
        ("/sub/", 405),
        ("/sub", 301),
        ("/none", 404),
    ] {
        let post = format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(kp.client().ask(post).status(), status, "{path}");
    }
    let delete = "DELETE /none HTTP/1.1\r\nHost: t\r\n\r\n";
    assert_eq!(kp.client().ask(delete).status(), 405);
    let kp = files("index other.txt;");
    assert_eq!(kp.get("/sub/").text(), "other");
}

#[test]
fn unchanged_files_are_not_sent_again() {
    let kp = files("");
    let first = kp.get("/a.html");
    let modified = first.field("last-modified").expect("a date");
    let tag = first.field("etag").expect("a tag");
    for (condition, status) in [
        (format!("If-Modified-Since: {modified}"), 304),
        (
            "If-Modified-Since: Thu, 01 Jan 1970 00:00:01 GMT".to_owned(),
            200,
        ),
        (format!("If-None-Match: {tag}"), 304),
        ("If-None-Match: \"other\"".to_owned(), 200),
    ] {
        let answer = kp.client().ask(format!(
            "GET /a.html HTTP/1.1\r\nHost: t\r\n{condition}\r\n\r\n"
        ));
        assert_eq!(answer.status(), status, "{condition}");
    }
}

#[test]
fn a_range_depends_on_the_validators_that_were_sent() {
    let date = "Mon, 28 Sep 1970 06:00:00 GMT";
    let kp = files(&format!(
        "location /set/ {{ alias %DIR%/www/; add_header Last-Modified \"{date}\"; add_header ETag '\"x\"'; }}"
    ));
    let part = |path: &str, condition: &str| {
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: t\r\nRange: bytes=0-2\r\nIf-Range: {condition}\r\n\r\n"
        );
        kp.client().ask(text).status()
    };
    let first = kp.get("/a.html");
    for validator in ["etag", "last-modified"] {
        let value = first.field(validator).expect("a validator");
        assert_eq!(part("/a.html", value), 206, "{value}");
        assert_eq!(part("/set/a.html", value), 200, "{value}");
    }
    for (condition, status) in [(date, 206), ("\"x\"", 206), ("\"y\"", 200), ("x", 200)] {
        assert_eq!(part("/set/a.html", condition), status, "{condition}");
        assert_eq!(part("/a.html", condition), 200, "{condition}");
    }
}

#[test]
fn no_path_leaves_the_root() {
    let kp = files("");
    for path in [
        "/../kp.conf",
        "/%2e%2e/kp.conf",
        "/sub/../../kp.conf",
        "/..%2fkp.conf",
        "/sub/..%2f..%2fkp.conf",
    ] {
        let answer = kp.get(path);
        assert!(
            [400, 403, 404].contains(&answer.status()),
            "{path}: {}",
            answer.status()
        );
        assert!(!answer.text().contains("listen"), "{path}");
    }
}

/// Shows: types, default_type, alias
#[test]
fn types_and_aliases() {
    let kp = files(
        "types { application/x-b bin; } default_type text/x-d; location /else/ { alias %DIR%/www/sub/; }",
    );
    assert_eq!(
        kp.get("/b.bin").field("content-type"),
        Some("application/x-b")
    );
    assert_eq!(kp.get("/a.html").field("content-type"), Some("text/x-d"));
    assert_eq!(kp.get("/else/other.txt").text(), "other");
}

/// Shows: log_not_found
#[test]
fn missing_files_are_told_or_not() {
    let kp = files("location /quiet/ { log_not_found off; }");
    assert_eq!(kp.get("/none").status(), 404);
    kp.wait_error("No such file or directory");
    assert_eq!(kp.get("/quiet/none").status(), 404);
    kp.access_lines(2);
    assert_eq!(
        kp.error_log().matches("No such file or directory").count(),
        1
    );
    // What a client names does not begin a line of the log and does not speak to a terminal.
    assert_eq!(kp.get("/%0Ax%1B%5B31m").status(), 404);
    kp.wait_error("/ x\\x1B[31m\" failed");
}

/// A path that cannot be walked is forbidden, not a fault of kp's own, and the connection goes on.
#[test]
fn links_in_a_ring_are_forbidden() {
    let kp = files("");
    std::os::unix::fs::symlink("ring", kp.path("www/ring")).expect("a link");
    let mut client = kp.client();
    for _ in 0..2 {
        let answer = client.ask("GET /ring HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(answer.status(), 403);
    }
    kp.wait_error("[error]");
    kp.wait_error("Too many levels of symbolic links");
}

/// A second's worth is free, and the rest goes on second by second, with no upstream to wait for.
///
/// Shows: limit_rate
#[test]
fn a_file_at_a_limited_rate_arrives_whole() {
    let kp = files("location /b.bin { limit_rate 200k; limit_rate_after 20k; }");
    let start = std::time::Instant::now();
    assert_eq!(kp.get("/b.bin").body, vec![7_u8; 300_000]);
    assert!(start.elapsed() > std::time::Duration::from_millis(100));
}
