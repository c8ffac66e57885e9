//! Request heads: what must be refused, what must be accepted although it looks odd, and what the fields mean. Every
//! case is read in one piece, byte by byte, and line by line, with equal results.

use crate::stream::{End, Message, ask, ask_with};
use kp_http::{Framing, HeadCause, HeadLimits, HeadReader, Method, RequestHead, Version};

fn only(bytes: impl AsRef<[u8]>) -> Message {
    let outcome = ask(&bytes);
    assert_eq!(
        outcome.end,
        End::Waiting(0),
        "{}",
        bytes.as_ref().escape_ascii()
    );
    assert_eq!(
        outcome.messages.len(),
        1,
        "{}",
        bytes.as_ref().escape_ascii()
    );
    outcome
        .messages
        .into_iter()
        .next()
        .unwrap_or_else(|| unreachable!("there is one"))
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: t\r\n{fields}\r\n")
}

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: t\r\n{fields}\r\n{body}")
}

#[test]
fn a_plain_request() {
    let message =
        only("GET /a?b=c HTTP/1.1\r\nHost: Example.Test:81\r\nUser-Agent: x y\r\nEmpty:\r\n\r\n");
    assert_eq!(message.line, "GET /a?b=c HTTP/1.1");
    assert_eq!(message.path, "/a?b=c");
    assert_eq!(message.host.as_deref(), Some("Example.Test:81"));
    assert_eq!(message.value("User-Agent"), Some("x y"));
    assert_eq!(message.value("Empty"), Some(""));
    assert_eq!(message.framing, Framing::None);
    assert!(message.persistent);
    assert_eq!((message.hop, message.dropped), (vec![], vec![]));
}

#[test]
fn length_together_with_transfer_encoding() {
    for fields in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: Chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked \r\nContent-Length: 5\r\n",
        "Content-Length: +5\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let outcome = ask(post(fields, "0\r\n\r\nG"));
        assert_eq!(
            outcome.refused(),
            Some(HeadCause::LengthAndTransferEncoding),
            "{fields}"
        );
        assert!(outcome.messages.is_empty());
    }
}

#[test]
fn bad_field_lines() {
    for (line, cause, name) in [
        ("Bogus", HeadCause::NoColon, "Bogus"),
        ("X-A\t: 1", HeadCause::SpaceBeforeColon, "X-A"),
        (
            "Transfer-Encoding : chunked",
            HeadCause::SpaceBeforeColon,
            "Transfer-Encoding",
        ),
        (
            "Content-Length : 5",
            HeadCause::SpaceBeforeColon,
            "Content-Length",
        ),
        (" X: folded", HeadCause::Folded, "X"),
        ("\tX: folded", HeadCause::Folded, "X"),
        ("X-A: 1\r\n more", HeadCause::Folded, "more"),
        (": empty", HeadCause::BadName, ""),
        ("X Y: 4", HeadCause::BadName, "X Y"),
        ("Bad[Name: 1", HeadCause::BadName, "Bad[Name"),
        ("X\u{0}: 1", HeadCause::BadName, "X\u{0}"),
        ("X-A: a\u{0}b", HeadCause::BadValue, "X-A"),
        ("X-A: a\u{1}", HeadCause::BadValue, "X-A"),
        ("X-A: \u{7f}", HeadCause::BadValue, "X-A"),
        ("X-A: \u{b}b", HeadCause::BadValue, "X-A"),
        ("X-A: a\rb", HeadCause::BareCr, "X-A"),
        ("X-A: a\r", HeadCause::BareCr, "X-A"),
        ("\rX-A: a", HeadCause::BareCr, ""),
        ("X-A: a\nX-B: b", HeadCause::BareLf, "X-A"),
    ] {
        for bytes in [
            format!("GET / HTTP/1.1\r\n{line}\r\nHost: t\r\n\r\n"),
            format!("GET / HTTP/1.1\r\nHost: t\r\nX-Ok: 1\r\n{line}\r\n\r\n"),
        ] {
            let outcome = ask(&bytes);
            assert_eq!(
                outcome.end,
                End::Refused(cause, name.to_owned()),
                "{}",
                bytes.escape_debug()
            );
            assert!(outcome.messages.is_empty());
        }
    }
}

#[test]
fn a_bad_line_is_refused_before_the_head_ends() {
    let outcome = ask("GET / HTTP/1.1\r\nBogus\r\nHost: t\r\n");
    assert_eq!(outcome.refused(), Some(HeadCause::NoColon));
    let outcome = ask("GET / HTTP/1.1\r\nX-A: 1\nHo");
    assert_eq!(outcome.refused(), Some(HeadCause::BareLf));
}

#[test]
fn legal_but_odd() {
    let message = only("GET / HTTP/1.1\r\nHost:\tt\r\nX-A:\t v \t\r\n\r\n");
    assert_eq!(message.host.as_deref(), Some("t"));
    assert_eq!(message.value("X-A"), Some("v"));

    let message = only(b"GET / HTTP/1.1\r\nHOST:t\r\nX-E: caf\xc3\xa9\xff\r\nX-T: a\tb\r\n\r\n");
    assert_eq!(message.value("X-E"), Some("caf\u{c3}\u{a9}\u{ff}"));
    assert_eq!(message.value("X-T"), Some("a\tb"));

    assert_eq!(
        only("\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n").line,
        "GET / HTTP/1.1"
    );
    let outcome = ask(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nab\r\nGET /2 HTTP/1.1\r\nHost: t\r\n\r\n",
    );
    assert_eq!(outcome.end, End::Waiting(0));
    assert_eq!(
        outcome
            .messages
            .iter()
            .map(|message| message.path.as_str())
            .collect::<Vec<_>>(),
        ["/", "/2"]
    );
    assert_eq!(outcome.messages[0].body, b"ab");

    let message = only("OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(message.path, "*");
    assert_eq!(
        only("M-SEARCH_X / HTTP/1.1\r\nHost: t\r\n\r\n").line,
        "M-SEARCH_X / HTTP/1.1"
    );
    assert_eq!(
        only(b"GET /caf\xc3\xa9/\xff HTTP/1.1\r\nHost: t\r\n\r\n").path,
        "/caf\u{c3}\u{a9}/\u{ff}"
    );
    assert_eq!(
        only("GET /a\\b\"<>^`{|}+ HTTP/1.1\r\nHost: t\r\n\r\n").path,
        "/a\\b\"<>^`{|}+"
    );
}

#[test]
fn empty_lines_come_to_an_end() {
    let sixteen = format!("{}GET / HTTP/1.1\r\nHost: t\r\n\r\n", "\r\n".repeat(16));
    assert_eq!(only(&sixteen).path, "/");
    assert_eq!(
        ask(format!("\r\n{sixteen}")).refused(),
        Some(HeadCause::BadRequestLine)
    );
    assert_eq!(
        ask("\r\n\r\n").end,
        End::Waiting(0),
        "empty lines alone leave nothing behind"
    );
    assert_eq!(ask("\r\n\r").end, End::Waiting(1));
}

#[test]
fn malformed_or_repeated_length() {
    for value in [
        "",
        "+3",
        "-1",
        "-0",
        "0x3",
        "3 3",
        "3, 3",
        "3,3",
        "1_0",
        "18446744073709551619",
        "9223372036854775808",
        "3;",
    ] {
        let outcome = ask(post(&format!("Content-Length: {value}\r\n"), "abc"));
        assert_eq!(
            outcome.end,
            End::Refused(HeadCause::BadLength, "Content-Length".to_owned()),
            "{value}"
        );
    }
    for (one, two) in [("3", "3"), ("3", "4"), ("", "43")] {
        let outcome = ask(post(
            &format!("Content-Length: {one}\r\ncontent-length: {two}\r\n"),
            "abc",
        ));
        assert_eq!(
            outcome.refused(),
            Some(HeadCause::RepeatedLength),
            "{one} {two}"
        );
    }
    for (value, body) in [
        ("3", "abc"),
        ("003", "abc"),
        (" \t3\t", "abc"),
        ("0", ""),
        ("00", ""),
    ] {
        assert_eq!(
            only(post(&format!("Content-Length:{value}\r\n"), body)).body,
            body.as_bytes(),
            "{value}"
        );
    }
}

#[test]
fn transfer_encodings() {
    for (value, status) in [
        ("gzip", 501),
        ("identity", 501),
        ("xchunked", 501),
        ("gzip, chunked", 501),
        ("chunked, gzip", 400),
        ("chunked, chunked", 400),
        (", chunked", 400),
        ("chunked,", 400),
        ("", 400),
        ("\"chunked\"", 400),
        ("chunked;a=b", 400),
    ] {
        let mut reader = HeadReader::default();
        let mut input = post(&format!("Transfer-Encoding: {value}\r\n"), "0\r\n\r\n").into_bytes();
        let got = reader.request(
            &mut input,
            &mut RequestHead::default(),
            &HeadLimits::default(),
        );
        let error = got.expect_err(value);
        assert_eq!(
            (error.status(), error.name()),
            (status, b"Transfer-Encoding".as_slice()),
            "{value}"
        );
    }
    for value in ["chunked", "CHUNKED", "Chunked", "\tchunked\t"] {
        assert_eq!(
            only(post(&format!("Transfer-Encoding:{value}\r\n"), "0\r\n\r\n")).framing,
            Framing::Chunked,
            "{value}"
        );
    }
    let twice = post(
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
    );
    assert_eq!(
        ask(twice).refused(),
        Some(HeadCause::RepeatedTransferEncoding)
    );
    let old = "POST / HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(
        ask(old).refused(),
        Some(HeadCause::TransferEncodingInHttp10)
    );
}

#[test]
fn targets_that_are_none() {
    for target in [
        "admin",
        "t:80",
        "*",
        "/a b",
        "/a\u{0}b",
        "/a\u{1}b",
        "/a\u{7f}b",
        "/a\tb",
        "/a#b",
        "http://u@t/",
        "http://",
        "http:///x",
        "http:/t/",
        "://t/",
        "1http://t/",
        "http://t:x/",
        "http://a b/",
        "http://t#x",
        "?a",
        "",
    ] {
        let outcome = ask(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert!(outcome.refused().is_some(), "{target:?}: {outcome:?}");
        assert!(outcome.messages.is_empty());
    }
    for line in [
        "CONNECT / HTTP/1.1",
        "CONNECT t HTTP/1.1",
        "CONNECT t: HTTP/1.1",
        "CONNECT http://t:80/ HTTP/1.1",
        "OPTIONS ** HTTP/1.1",
    ] {
        let outcome = ask(format!("{line}\r\nHost: t\r\n\r\n"));
        assert_eq!(outcome.refused(), Some(HeadCause::BadTarget), "{line}");
    }
}

#[test]
fn target_forms() {
    for (line, path, host) in [
        (
            "GET http://right.test:8/p?q HTTP/1.1",
            "/p?q",
            "right.test:8",
        ),
        ("GET http://right.test HTTP/1.1", "/", "right.test"),
        ("GET http://right.test?q=/ HTTP/1.1", "/?q=/", "right.test"),
        ("GET HTTPS://Right.test/ HTTP/1.1", "/", "Right.test"),
        ("GET ws+x://[::1]:80/p HTTP/1.1", "/p", "[::1]:80"),
        ("CONNECT right.test:443 HTTP/1.1", "", "right.test:443"),
        ("OPTIONS http://right.test HTTP/1.1", "/", "right.test"),
        (
            "GET /http://other/ HTTP/1.1",
            "/http://other/",
            "wrong.test",
        ),
    ] {
        let message = only(format!("{line}\r\nHost: wrong.test\r\n\r\n"));
        assert_eq!(message.path, path, "{line}");
        assert_eq!(message.host.as_deref(), Some(host), "{line}");
        assert_eq!(message.line, line);
    }
    let outcome = ask("GET http://right.test/ HTTP/1.1\r\n\r\n");
    assert_eq!(
        outcome.refused(),
        Some(HeadCause::MissingHost),
        "RFC 9112 §3.2: also with an absolute target"
    );
}

#[test]
fn request_lines_that_are_none() {
    for (line, status) in [
        ("GET  / HTTP/1.1", 400),
        ("GET /  HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        (" GET / HTTP/1.1", 400),
        ("GET\t/ HTTP/1.1", 400),
        ("GET /", 400),
        ("GET / ", 400),
        ("GET", 400),
        ("GET HTTP/1.1", 400),
        ("get / HTTP/1.1", 400),
        ("G1 / HTTP/1.1", 400),
        ("G=\":<>(e),[T];?\" / HTTP/1.1", 400),
        ("GET / http/1.1", 400),
        ("GET / HTTP/1", 400),
        ("GET / HTTP/1.", 400),
        ("GET / HTTP/01.1", 400),
        ("GET / HTTP/1.10", 400),
        ("GET / HTTP/0.9", 400),
        ("GET / HTTP/.1", 400),
        ("GET / HTTP/1,1", 400),
        ("GET / FTP/1.1", 400),
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/9.9", 505),
        ("PRI * HTTP/2.0", 505),
        ("GET / HTTP/\r\r1.1", 400),
        ("GET /\rHTTP/1.1", 400),
        ("\u{0} / HTTP/1.1", 400),
        (">\u{17}\u{ba}", 400),
    ] {
        let bytes: Vec<u8> = line
            .chars()
            .map(|char| u32::from(char) as u8)
            .chain(*b"\r\nHost: t\r\n\r\n")
            .collect();
        assert!(ask(&bytes).refused().is_some(), "{line}");
        let mut input = bytes;
        let error = HeadReader::default().request(
            &mut input,
            &mut RequestHead::default(),
            &HeadLimits::default(),
        );
        assert_eq!(error.expect_err(line).status(), status, "{line}");
    }
    for line in [
        "GET / HTTP/1.1\nHost: t\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /\nHTTP/1.1\r\n\r\n",
    ] {
        assert_eq!(ask(line).refused(), Some(HeadCause::BareLf), "{line}");
    }
    assert_eq!(
        ask("\rGET / HTTP/1.1\r\nHost: t\r\n\r\n").refused(),
        Some(HeadCause::BareCr)
    );
}

#[test]
fn later_minor_versions_are_read_as_1_1() {
    let mut head = RequestHead::default();
    let mut input = b"GET / HTTP/1.2\r\nHost: t\r\n\r\n".to_vec();
    assert_eq!(
        HeadReader::default().request(&mut input, &mut head, &HeadLimits::default()),
        Ok(true)
    );
    assert_eq!(head.version, Version::Http11);
    assert_eq!(head.request_line(), b"GET / HTTP/1.2");
}

#[test]
fn what_is_no_http_is_refused_at_its_first_byte() {
    for bytes in [
        b"\x16\x03\x01".as_slice(),
        b"\x00",
        b"{",
        b" ",
        b"get",
        b"\xff",
    ] {
        let outcome = ask(bytes);
        assert_eq!(
            outcome.refused(),
            Some(HeadCause::BadMethod),
            "{}",
            bytes.escape_ascii()
        );
    }
    for bytes in [
        "GET ",
        "GET /hello ",
        "GET /hello HTTP",
        "GET /hello HTTP/1.1",
        "GET /hello HTTP/1.1\r",
        "GET /hello HTTP/1.1\r\nHost:",
    ] {
        assert_eq!(ask(bytes).end, End::Waiting(bytes.len()), "{bytes}");
    }
}

#[test]
fn hosts() {
    assert_eq!(
        ask("GET / HTTP/1.1\r\n\r\n").refused(),
        Some(HeadCause::MissingHost)
    );
    assert_eq!(
        ask("GET / HTTP/1.1\r\nX_Host: t\r\n\r\n").refused(),
        Some(HeadCause::MissingHost)
    );
    for (one, two) in [("t", "t"), ("t", "u")] {
        let outcome = ask(format!(
            "GET / HTTP/1.1\r\nHost: {one}\r\nHOST: {two}\r\n\r\n"
        ));
        assert_eq!(outcome.refused(), Some(HeadCause::RepeatedHost));
    }
    let twice = |name: &str| {
        let line = format!("{name}: 1\r\n");
        ask(format!("GET / HTTP/1.1\r\nHost: t\r\n{line}{line}\r\n")).refused()
    };
    for name in [
        "Authorization",
        "Content-Range",
        "Expect",
        "If-Match",
        "If-Modified-Since",
        "If-None-Match",
        "If-Range",
        "if-unmodified-since",
    ] {
        assert_eq!(twice(name), Some(HeadCause::RepeatedField), "{name}");
    }
    for name in ["Accept", "Content-Type", "Cookie", "Range", "Via", "X-A"] {
        assert_eq!(twice(name), None, "{name}");
    }
    for host in [
        "a b",
        "a/b",
        "a@b",
        "a:80x",
        "",
        "a:99999",
        "a:80:80",
        ":80",
        ".",
        "..",
        "a..b",
        "a,b",
        "a\"b",
        "[::1",
        "[::1]x",
        "[]",
        "[g]",
        "::1",
        "a?b",
        "a#b",
        "a\\b",
        "caf\u{e9}",
    ] {
        for version in ["1.0", "1.1"] {
            let bytes: Vec<u8> = format!("GET / HTTP/{version}\r\nHost: {host}\r\n\r\n")
                .chars()
                .map(|char| u32::from(char) as u8)
                .collect();
            assert_eq!(
                ask(bytes).end,
                End::Refused(HeadCause::BadHost, "Host".to_owned()),
                "{host:?}"
            );
        }
    }
    for host in [
        "t",
        "T.example.",
        "a_b",
        "a-b.c:80",
        "a:",
        "[::1]",
        "[::1]:8080",
        "1.2.3.4",
        "a%41",
        "xn--caf-dma.test:65535",
    ] {
        assert_eq!(
            only(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))
                .host
                .as_deref(),
            Some(host)
        );
    }
    let message = only("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(message.host, None);
    assert!(!message.persistent);
}

#[test]
fn connection_names_what_ends_here() {
    let message = only(
        "GET / HTTP/1.1\r\nHost: t\r\nConnection: close, X-Forwarded-For, X-Real-IP, X-Secret\r\nX-Secret: 1\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: trailers, gzip\r\nUpgrade: foo\r\n\
         x-forwarded-for: 1.2.3.4\r\nX-Other: 2\r\nTrailer: X-T\r\nConnection: x-late\r\nX-LATE: 3\r\n\r\n",
    );
    assert_eq!(
        message.hop,
        [
            "Connection",
            "X-Secret",
            "Keep-Alive",
            "Proxy-Connection",
            "TE",
            "Upgrade",
            "x-forwarded-for",
            "Connection",
            "X-LATE"
        ]
    );
    assert!(!message.persistent);
    assert_eq!(message.upgrade, None, "Connection does not name it");
}

#[test]
fn connection_cannot_strip_what_frames_the_message() {
    let message = only(post(
        "Connection: Host, Content-Length, Connection\r\nContent-Length: 5\r\n",
        "hello",
    ));
    assert_eq!(message.hop, ["Connection"]);
    assert_eq!(message.host.as_deref(), Some("t"));
    assert_eq!(message.framing, Framing::Length(5));
    let message = only(post(
        "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
        "0\r\n\r\n",
    ));
    assert_eq!(message.framing, Framing::Chunked);
}

#[test]
fn connection_options_are_counted() {
    let options = |count: usize| get(&format!("Connection: {}close\r\n", "x,".repeat(count)));
    assert!(!only(options(64)).persistent);
    let outcome = ask(options(65));
    assert_eq!(
        outcome.end,
        End::Refused(HeadCause::TooManyConnectionOptions, "Connection".to_owned())
    );
}

#[test]
fn persistence() {
    for (version, connection, persistent) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: CLOSE\r\n", false),
        ("1.1", "Connection: x, close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        (
            "1.0",
            "Connection: keep-alive\r\nConnection: close\r\n",
            false,
        ),
        ("1.0", "Proxy-Connection: keep-alive\r\n", false),
    ] {
        let message = only(format!(
            "GET / HTTP/{version}\r\nHost: t\r\n{connection}\r\n"
        ));
        assert_eq!(message.persistent, persistent, "{version} {connection}");
    }
}

#[test]
fn upgrades_are_asked_for_properly_or_not_at_all() {
    for (version, fields, want) in [
        (
            "1.1",
            "Connection: upgrade\r\nUpgrade: websocket\r\n",
            Some("websocket"),
        ),
        (
            "1.1",
            "Upgrade: a, b\r\nConnection: keep-alive, Upgrade\r\n",
            Some("a, b"),
        ),
        ("1.1", "Upgrade: websocket\r\n", None),
        ("1.1", "Connection: upgrade\r\n", None),
        ("1.1", "Connection: upgrade\r\nUpgrade:\r\n", None),
        ("1.0", "Connection: upgrade\r\nUpgrade: websocket\r\n", None),
    ] {
        let message = only(format!("GET / HTTP/{version}\r\nHost: t\r\n{fields}\r\n"));
        assert_eq!(message.upgrade.as_deref(), want, "{version} {fields}");
    }
}

#[test]
fn expectations() {
    for (version, value, want) in [
        ("1.1", "100-continue", true),
        ("1.1", "100-Continue", true),
        ("1.0", "100-continue", false),
        ("1.1", "200-ok", false),
    ] {
        let message = only(format!(
            "GET / HTTP/{version}\r\nHost: t\r\nExpect: {value}\r\n\r\n"
        ));
        assert_eq!(message.expect_continue, want, "{version} {value}");
    }
}

#[test]
fn names_nginx_ignores() {
    let bytes = get("X_Forwarded_For: 1\r\nX.Real.Ip: 2\r\nX!Y: 4\r\nX-Ok: 3\r\n");
    let message = only(&bytes);
    assert_eq!(message.dropped, ["X_Forwarded_For", "X.Real.Ip", "X!Y"]);
    assert_eq!(
        message.fields,
        [
            ("Host".to_owned(), "t".to_owned()),
            ("X-Ok".to_owned(), "3".to_owned())
        ]
    );

    let underscores = HeadLimits {
        underscores: true,
        ..HeadLimits::default()
    };
    assert_eq!(
        ask_with(&bytes, &underscores).messages[0].dropped,
        ["X.Real.Ip", "X!Y"]
    );
    let kept = HeadLimits {
        ignore_invalid: false,
        ..HeadLimits::default()
    };
    assert!(ask_with(&bytes, &kept).messages[0].dropped.is_empty());
}

#[test]
fn aliases_of_framing_fields_have_no_effect_and_are_never_kept() {
    let limits = HeadLimits {
        ignore_invalid: false,
        underscores: true,
        ..HeadLimits::default()
    };
    let bytes = post(
        "Content-Length: 3\r\nContent_Length: 99\r\nTransfer_Encoding: chunked\r\nCONTENT.LENGTH: 7\r\nhost_: x\r\n",
        "abc",
    );
    let outcome = ask_with(bytes, &limits);
    assert_eq!(outcome.end, End::Waiting(0));
    assert_eq!(outcome.messages[0].body, b"abc");
    assert_eq!(
        outcome.messages[0].dropped,
        ["Content_Length", "Transfer_Encoding", "CONTENT.LENGTH"]
    );
}

#[test]
fn dropped_fields_are_found_by_nobody() {
    let mut head = RequestHead::default();
    let mut input = get("X_A: 1\r\nX-B: 2\r\n").into_bytes();
    assert_eq!(
        HeadReader::default().request(&mut input, &mut head, &HeadLimits::default()),
        Ok(true)
    );
    assert_eq!(head.find_name(b"X_A"), None);
    assert_eq!(head.find_name(b"x-b"), Some(b"2".as_slice()));
    assert_eq!(head.fields.len(), 3);
}

#[test]
fn bare_lf_where_it_is_accepted() {
    let limits = HeadLimits {
        accept_bare_lf: true,
        ..HeadLimits::default()
    };
    let outcome = ask_with(
        "\nPOST / HTTP/1.1\nHost: t\nX-A: 1\r\nTransfer-Encoding: chunked\n\n1\r\nZ\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: t\n\n",
        &limits,
    );
    assert_eq!(outcome.end, End::Waiting(0));
    assert_eq!(outcome.messages.len(), 2);
    assert_eq!(outcome.messages[0].body, b"Z");
    assert_eq!(outcome.messages[0].value("X-A"), Some("1"));
    for bytes in [
        "GET / HTTP/1.1\nHost: t\nX-A: a\rb\n\n",
        "GET / HTTP/1.1\nHost: t\nX-A: a\r\r\n\n",
        "GET / HTTP/1.1\nHost: t\n X: folded\n\n",
        "GET / HTTP/1.1\nHost: t\nBogus\n\n",
    ] {
        assert!(ask_with(bytes, &limits).refused().is_some(), "{bytes}");
    }
    let outcome = ask_with(
        "POST / HTTP/1.1\nHost: t\nTransfer-Encoding: chunked\n\n1\nZ\r\n0\r\n\r\n",
        &limits,
    );
    assert!(outcome.bad_body().is_some(), "chunk lines stay strict");
}

#[test]
fn limits() {
    let limits = HeadLimits {
        line_max: 100,
        total_max: 300,
        fields_max: 5,
        ..HeadLimits::default()
    };
    let line = |length: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nHost: t\r\n\r\n",
            "a".repeat(length - "GET / HTTP/1.1\r\n".len())
        )
    };
    assert_eq!(ask_with(line(100), &limits).messages.len(), 1);
    assert_eq!(
        ask_with(line(101), &limits).refused(),
        Some(HeadCause::TargetTooLong)
    );
    assert_eq!(
        ask_with("A".repeat(200), &limits).refused(),
        Some(HeadCause::BadMethod),
        "no method is that long"
    );
    let unfinished = format!("GET /{}", "a".repeat(95));
    assert_eq!(
        ask_with(unfinished, &limits).refused(),
        Some(HeadCause::TargetTooLong),
        "seen before its line ends"
    );

    let field = |length: usize| {
        get(&format!(
            "X-Big: {}\r\n",
            "b".repeat(length - "X-Big: \r\n".len())
        ))
    };
    assert_eq!(ask_with(field(100), &limits).messages.len(), 1);
    assert_eq!(
        ask_with(field(101), &limits).end,
        End::Refused(HeadCause::FieldTooLarge, "X-Big".to_owned())
    );
    let name = get(&format!("{}: b\r\n", "N".repeat(120)));
    assert_eq!(
        ask_with(name, &limits).refused(),
        Some(HeadCause::FieldTooLarge)
    );

    let many = |count: usize| get(&"A: b\r\n".repeat(count - 1));
    assert_eq!(ask_with(many(5), &limits).messages.len(), 1);
    assert_eq!(
        ask_with(many(6), &limits).refused(),
        Some(HeadCause::TooManyFields)
    );

    let total = |length: usize| {
        let fields = format!(
            "A: {0}\r\nB: {0}\r\nC: {1}\r\n",
            "x".repeat(90),
            "y".repeat(length - get("").len() - 2 * 95 - 5)
        );
        let bytes = get(&fields);
        assert_eq!(bytes.len(), length);
        bytes
    };
    assert_eq!(ask_with(total(300), &limits).messages.len(), 1);
    assert_eq!(
        ask_with(total(301), &limits).refused(),
        Some(HeadCause::HeadTooLarge)
    );
    let pipelined = total(300) + &total(300);
    assert_eq!(
        ask_with(pipelined, &limits).messages.len(),
        2,
        "what follows a head does not count"
    );
}

#[test]
fn many_fields() {
    for count in [1, 16, 17, 64, 65, 500, 1000] {
        let fields: String = (1..count).map(|at| format!("X-{at}: {at}\r\n")).collect();
        let message = only(get(&fields));
        assert_eq!(message.fields.len(), count);
        if count > 1 {
            assert_eq!(
                message.fields[count - 1],
                (format!("X-{}", count - 1), (count - 1).to_string())
            );
        }
    }
    let fields: String = (0..1000).map(|at| format!("X-{at}: {at}\r\n")).collect();
    assert_eq!(ask(get(&fields)).refused(), Some(HeadCause::TooManyFields));
    let limits = HeadLimits {
        fields_max: 3000,
        ..HeadLimits::default()
    };
    let fields = "A: b\r\n".repeat(2999);
    assert_eq!(
        ask_with(get(&fields), &limits).messages[0].fields.len(),
        3000
    );
}

#[test]
fn pipelined_requests_come_one_by_one() {
    let bytes: String = (0..20)
        .map(|at| format!("GET /pipe-{at} HTTP/1.1\r\nHost: t\r\n\r\n"))
        .collect();
    let outcome = ask(bytes
        + "POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nxyz\r\n0\r\nX-T: 1\r\n\r\nGET /z HTT");
    assert_eq!(outcome.messages.len(), 21);
    assert_eq!(outcome.messages[19].path, "/pipe-19");
    assert_eq!(outcome.messages[20].body, b"xyz");
    assert_eq!(outcome.messages[20].trailers, "X-T: 1\r\n");
    assert_eq!(outcome.end, End::Waiting(10));
}

#[test]
fn a_head_leaves_the_buffer_it_came_in_to_the_next_one() {
    let mut reader = HeadReader::default();
    let mut head = RequestHead::default();
    let mut input = Vec::with_capacity(4096);
    input.extend_from_slice(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(
        reader.request(&mut input, &mut head, &HeadLimits::default()),
        Ok(true)
    );
    assert_eq!(
        head.bytes,
        b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n"
    );
    assert_eq!(
        (input.as_slice(), input.capacity()),
        (b"ab".as_slice(), 4096)
    );
    let kept = head.bytes.as_ptr();
    assert!(head.bytes.capacity() < 4096, "a head holds what it needs");
    head.clear();
    assert!(head.is_empty() && head.bytes.as_ptr() == kept && head.fields.capacity() > 0);
    assert_eq!(
        (head.framing, head.host(), head.target()),
        (Framing::None, None, b"".as_slice())
    );
}

#[test]
fn a_refused_head_still_tells_the_log_what_was_asked() {
    let read = |bytes: &[u8]| {
        let mut head = RequestHead::default();
        let got =
            HeadReader::default().request(&mut bytes.to_vec(), &mut head, &HeadLimits::default());
        assert!(got.is_err());
        head
    };
    let head = read(b"PUT /x?y HTTP/1.1\r\nBogus\r\nHost: t\r\n\r\n");
    assert_eq!(head.request_line(), b"PUT /x?y HTTP/1.1");
    assert_eq!(
        (head.method, head.path_and_query()),
        (Method::Put, b"/x?y".as_slice())
    );
    assert!(head.fields.is_empty());
    let head = read(b"\x16\x03\x01\x02\x00\nx");
    assert_eq!(head.request_line(), b"\x16\x03\x01\x02\x00");
    assert_eq!(head.method_text(), b"");
}

#[test]
fn a_reader_can_be_used_again() {
    let mut reader = HeadReader::default();
    let mut head = RequestHead::default();
    let limits = HeadLimits::default();
    let mut input = b"GET / HTTP/1.1\r\nBogus\r\n".to_vec();
    assert!(reader.request(&mut input, &mut head, &limits).is_err());
    let mut input = get("").into_bytes();
    assert_eq!(reader.request(&mut input, &mut head, &limits), Ok(true));
    let mut input = b"GET / HTTP/1.1\r\nHo".to_vec();
    assert_eq!(reader.request(&mut input, &mut head, &limits), Ok(false));
    reader.reset();
    let mut input = get("").into_bytes();
    assert_eq!(reader.request(&mut input, &mut head, &limits), Ok(true));
}
