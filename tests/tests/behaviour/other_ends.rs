//! Ways for a request to end that the scripted incident has not: one kp, one row for each reason.

use std::io;

use kp_tests::origin::Conversation;
use kp_tests::wait::SOON;
use kp_tests::{Client, Origin, Setup};

const TEXT: &str = "%MAIN%
http {
    log_format why '$status $kp_reason';
    access_log why.log why;
    large_client_header_buffers 2 1k;
    server {
        listen %LISTEN%;
        root %DIR%;
        location / { proxy_pass http://%ORIGIN%; }
        location /file { }
        location /folder/ { }
        location /sub/ { proxy_pass http://%ORIGIN%; }
        location /lost { error_page 404 = @nowhere; return 404; }
        location /empty { rewrite ^ $arg_none? last; }
        location /target { proxy_pass http://$arg_none; }
        location /slow-try { proxy_pass http://%ORIGIN%; proxy_try_timeout 300ms; proxy_next_upstream off; }
    }
}
";

/// The origin, by path.
fn misbehave(conversation: &mut Conversation) -> io::Result<()> {
    let request = conversation.request()?;
    match request.target() {
        "/chunks" => {
            conversation.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")
        }
        "/long-head" => {
            let long = "x".repeat(70_000);
            conversation.send(format!("HTTP/1.1 200 OK\r\nA: {long}\r\n\r\n"))
        }
        "/slow-try" => {
            conversation.stall();
            Ok(())
        }
        _ => conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    }
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\n{fields}\r\n")
}

/// What is sent, and the line of the log about it.
fn rows() -> Vec<(String, &'static str)> {
    let long = "x".repeat(2000);
    vec![
        (
            "GET / HTTP/2.0\r\nHost: t\r\n\r\n".to_owned(),
            "505 bad_version",
        ),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "501 unknown_transfer_encoding",
        ),
        (
            "CONNECT t:80 HTTP/1.1\r\nHost: t:80\r\n\r\n".to_owned(),
            "405 connect_method",
        ),
        (get(&format!("/{long}"), ""), "414 target_too_long"),
        (get("/", &format!("A: {long}\r\n")), "431 head_too_large"),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n".to_owned(),
            "400 bad_body",
        ),
        (
            get("/file", "If-Match: \"other\"\r\n"),
            "412 precondition_failed",
        ),
        (
            get("/file", "Range: bytes=100-\r\n"),
            "416 range_not_satisfiable",
        ),
        (get("/folder/", ""), "403 file_forbidden"),
        (get("/sub", ""), "301 prefix_redirect"),
        (get("/lost", ""), "500 no_named_location"),
        (get("/empty", ""), "500 empty_uri"),
        (get("/target", ""), "500 bad_target"),
        (get("/chunks", ""), "200 body_invalid"),
        (get("/long-head", ""), "502 upstream_head_too_large"),
        (get("/slow-try", ""), "504 try_timeout"),
    ]
}

#[test]
fn every_other_end_has_its_reason() {
    let origin = Origin::start(misbehave);
    let kp = Setup::new(TEXT)
        .with("ORIGIN", origin.address())
        .file("file", "a file")
        .file("folder/x", "")
        .start();
    for (at, (request, expected)) in rows().into_iter().enumerate() {
        let mut client = Client::connect(&kp.address());
        client.send(&request);
        let _ = client.try_response("GET", SOON);
        drop(client);
        let line = kp.lines("why.log", at + 1).pop().unwrap_or_default();
        let head = request.lines().next().unwrap_or_default();
        assert_eq!(line, expected, "{}", head.get(..60).unwrap_or(head));
    }
}
