//! Response heads: what must be refused, what has no body by definition, and when a connection may be used again.
//! Every case is read in one piece, byte by byte, and line by line, with equal results.

use crate::stream::{End, Message, answer, answer_to, responses};
use kp_http::{Framing, HeadCause, HeadLimits, HeadReader, Method, ResponseHead, Version};

fn only_to(asked: Method, bytes: impl AsRef<[u8]>) -> Message {
    let mut messages = answer_to(asked, &bytes).messages;
    assert_eq!(messages.len(), 1, "{}", bytes.as_ref().escape_ascii());
    messages.remove(0)
}

fn only(bytes: impl AsRef<[u8]>) -> Message {
    only_to(Method::Get, bytes)
}

#[test]
fn a_plain_response() {
    let outcome = answer(
        "HTTP/1.1 200 All is well\r\nServer: x\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 2\r\n\r\nokHTTP",
    );
    assert_eq!(outcome.end, End::Waiting(4));
    let message = &outcome.messages[0];
    assert_eq!(
        (
            message.status,
            message.path.as_str(),
            message.body.as_slice()
        ),
        (200, "All is well", b"ok".as_slice())
    );
    assert_eq!(message.line, "HTTP/1.1 200 All is well");
    assert_eq!(
        message
            .fields
            .iter()
            .filter(|(name, _)| name == "Set-Cookie")
            .count(),
        2
    );
    assert!(message.persistent);
}

#[test]
fn ambiguous_framing() {
    for (fields, cause, name) in [
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            HeadCause::RepeatedTransferEncoding,
            "Transfer-Encoding",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
            HeadCause::LengthAndTransferEncoding,
            "Transfer-Encoding",
        ),
        (
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            HeadCause::LengthAndTransferEncoding,
            "Transfer-Encoding",
        ),
        (
            "Content-Length: 2\r\nContent-Length: 3\r\n",
            HeadCause::RepeatedLength,
            "Content-Length",
        ),
        (
            "Content-Length: 2\r\nContent-Length: 2\r\n",
            HeadCause::RepeatedLength,
            "Content-Length",
        ),
        (
            "Content-Length: 2x\r\n",
            HeadCause::BadLength,
            "Content-Length",
        ),
        (
            "Content-Length: abc\r\n",
            HeadCause::BadLength,
            "Content-Length",
        ),
        (
            "Content-Length: -5\r\n",
            HeadCause::BadLength,
            "Content-Length",
        ),
        (
            "Content-Length: 18446744073709551621\r\n",
            HeadCause::BadLength,
            "Content-Length",
        ),
        (
            "Transfer-Encoding: gzip\r\n",
            HeadCause::UnknownTransferEncoding,
            "Transfer-Encoding",
        ),
        (
            "Transfer-Encoding: xchunked\r\n",
            HeadCause::UnknownTransferEncoding,
            "Transfer-Encoding",
        ),
        (
            "Bogus\r\nContent-Length: 2\r\n",
            HeadCause::NoColon,
            "Bogus",
        ),
        ("X-A: a\u{0}b\r\n", HeadCause::BadValue, "X-A"),
        ("X-A: a\rb\r\n", HeadCause::BareCr, "X-A"),
        ("X-A: b\nX-B: c\r\n", HeadCause::BareLf, "X-A"),
        ("X-A: a\r\n b\r\n", HeadCause::Folded, "b"),
        ("X-A : a\r\n", HeadCause::SpaceBeforeColon, "X-A"),
        (": a\r\n", HeadCause::BadName, ""),
    ] {
        let outcome = answer(format!(
            "HTTP/1.1 200 OK\r\n{fields}\r\n2\r\nok\r\n0\r\n\r\n"
        ));
        assert_eq!(
            outcome.end,
            End::Refused(cause, name.to_owned()),
            "{fields}"
        );
        assert!(outcome.messages.is_empty());
    }
}

#[test]
fn first_lines_that_are_none() {
    for line in [
        "BLAH BLAH",
        "\r\nHTTP/1.1 200 OK",
        "HTTP/1.1 099 Low",
        "HTTP/1.1 600 High",
        "HTTP/1.1 999 High",
        "HTTP/1.1 1000 High",
        "HTTP/1.1 20",
        "HTTP/1.1 abc Odd",
        "HTTP/1.1  200 OK",
        "HTTP/1.1 200OK",
        "HTTP/1.1 +20 OK",
        "HTTP/1.1\t200 OK",
        "HTTP/1.1",
        "HTTP/1.1 ",
        "HTTP/9.9 200 OK",
        "HTTP/2.0 200 OK",
        "HTTP/0.9 200 OK",
        "HTTP/1.10 200 OK",
        "http/1.1 200 OK",
        "ICY 200 OK",
        "HTTP/1.1 200 a\u{0}b",
        "HTTP/1.1 200 a\rb",
        "HTTP/1.1 200 \u{7f}",
    ] {
        let outcome = answer(format!("{line}\r\nContent-Length: 5\r\n\r\nhello"));
        assert_eq!(
            outcome.refused(),
            Some(HeadCause::BadStatusLine),
            "{line}: {outcome:?}"
        );
        assert!(outcome.messages.is_empty());
    }
    assert_eq!(
        answer("BL").refused(),
        Some(HeadCause::BadStatusLine),
        "at once, there is no line to wait for"
    );
    assert_eq!(answer("HTTP/1.1 20").end, End::Waiting(11));
    assert_eq!(
        answer("HTTP/1.1 200 OK\nX-A: b\r\n\r\n").refused(),
        Some(HeadCause::BareLf)
    );
}

#[test]
fn odd_first_lines() {
    for (line, status, reason) in [
        ("HTTP/1.1 200", 200, ""),
        ("HTTP/1.1 200 ", 200, ""),
        ("HTTP/1.1 200  two", 200, " two"),
        ("HTTP/1.0 404 Nicht gefunden", 404, "Nicht gefunden"),
        ("HTTP/1.2 599 \u{e9}\t!", 599, "\u{e9}\t!"),
    ] {
        let bytes: Vec<u8> = format!("{line}\r\nContent-Length: 2\r\n\r\nok")
            .chars()
            .map(|char| u32::from(char) as u8)
            .collect();
        let message = only(bytes);
        assert_eq!(
            (
                message.status,
                message.path.as_str(),
                message.body.as_slice()
            ),
            (status, reason, b"ok".as_slice()),
            "{line}"
        );
    }
}

#[test]
fn without_a_body_by_definition() {
    let length = "Content-Length: 1000\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (asked, status, fields) in [
        (Method::Head, 200, length),
        (Method::Head, 200, chunked),
        (Method::Head, 200, ""),
        (Method::Head, 404, length),
        (Method::Get, 204, ""),
        (Method::Get, 204, length),
        (Method::Get, 204, chunked),
        (
            Method::Get,
            204,
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        ),
        (Method::Get, 304, length),
        (Method::Get, 304, chunked),
        (Method::Get, 100, length),
        (Method::Get, 103, chunked),
        (Method::Connect, 200, length),
    ] {
        let outcome = answer_to(
            asked,
            format!("HTTP/1.1 {status} X\r\n{fields}\r\nHTTP/1.1 500 next\r\n\r\n"),
        );
        assert_eq!(outcome.messages.len(), 2, "{asked:?} {status} {fields}");
        let message = &outcome.messages[0];
        assert_eq!(message.framing, Framing::None);
        assert!(message.persistent, "{asked:?} {status} {fields}");
        let passed_on: Vec<&str> = message
            .fields
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !message.hop.iter().any(|hop| hop == name))
            .collect();
        let kept =
            status == 304 || status >= 200 && asked == Method::Head || asked == Method::Connect;
        let want: &[&str] = if kept && fields == length {
            &["Content-Length"]
        } else {
            &[]
        };
        assert_eq!(passed_on, want, "{asked:?} {status} {fields}");
    }
}

#[test]
fn a_length_that_would_be_passed_on_must_be_one() {
    for (asked, status) in [(Method::Head, 200), (Method::Get, 304)] {
        let outcome = answer_to(
            asked,
            format!("HTTP/1.1 {status} X\r\nContent-Length: 5x\r\n\r\n"),
        );
        assert_eq!(outcome.refused(), Some(HeadCause::BadLength), "{status}");
    }
}

#[test]
fn framings() {
    for (fields, framing) in [
        ("Content-Length: 5\r\n", Framing::Length(5)),
        ("Content-Length: 0\r\n", Framing::Length(0)),
        ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
        ("", Framing::UntilClose),
    ] {
        for version in ["1.0", "1.1"] {
            assert_eq!(
                only(format!("HTTP/{version} 200 OK\r\n{fields}\r\n")).framing,
                framing,
                "{version} {fields}"
            );
        }
    }
}

#[test]
fn persistence() {
    for (version, fields, persistent) in [
        ("1.1", "Content-Length: 0\r\n", true),
        ("1.1", "Content-Length: 0\r\nConnection: close\r\n", false),
        ("1.1", "Content-Length: 0\r\nConnection: x,CLOSE\r\n", false),
        ("1.1", "Transfer-Encoding: chunked\r\n", true),
        ("1.1", "", false),
        ("1.1", "Connection: keep-alive\r\n", false),
        ("1.0", "Content-Length: 0\r\n", false),
        (
            "1.0",
            "Content-Length: 0\r\nConnection: keep-alive\r\n",
            true,
        ),
        (
            "1.0",
            "Content-Length: 0\r\nConnection: keep-alive, close\r\n",
            false,
        ),
        (
            "1.0",
            "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n",
            false,
        ),
        ("1.0", "Connection: keep-alive\r\n", false),
    ] {
        assert_eq!(
            only(format!("HTTP/{version} 200 OK\r\n{fields}\r\n")).persistent,
            persistent,
            "{version} {fields}"
        );
    }
}

#[test]
fn keep_alive_timeouts() {
    for (value, want) in [
        ("timeout=77", Some(77)),
        ("max=5, Timeout=9", Some(9)),
        ("timeout=\"4\"", Some(4)),
        ("timeout=", None),
        ("timeout=-1", None),
        ("timeout=99999999999", None),
        ("300", None),
        ("", None),
    ] {
        let message = only(format!("HTTP/1.1 204 X\r\nKeep-Alive: {value}\r\n\r\n"));
        assert_eq!(message.keep_alive_timeout_s, want, "{value}");
        assert_eq!(message.hop, ["Keep-Alive"]);
    }
}

#[test]
fn hop_by_hop_fields_of_a_response() {
    let message = only(
        "HTTP/1.1 204 X\r\nConnection: X-Hop, Date\r\nx-hop: 1\r\nDate: d\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\n\
         Proxy-Authenticate: Basic\r\nTrailer: X\r\n\r\n",
    );
    assert_eq!(
        message.hop,
        ["Connection", "x-hop", "Date", "Proxy-Connection", "Upgrade"]
    );
}

#[test]
fn interim_responses() {
    let read = |status: u16| {
        let mut head = ResponseHead::default();
        let mut input = format!("HTTP/1.1 {status} X\r\n\r\n").into_bytes();
        let got = HeadReader::default().response(
            &mut input,
            &mut head,
            Method::Get,
            &HeadLimits::default(),
        );
        assert_eq!(got, Ok(true));
        head.is_interim()
    };
    for (status, interim) in [
        (100, true),
        (101, false),
        (102, true),
        (103, true),
        (199, true),
        (200, false),
        (304, false),
    ] {
        assert_eq!(read(status), interim, "{status}");
    }
    let outcome = answer(
        "HTTP/1.1 102 Processing\r\n\r\n".repeat(200)
            + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    );
    assert_eq!(outcome.messages.len(), 201);
    assert_eq!(outcome.messages[200].body, b"hello");
}

/// nginx 1.31 passes odd names of upstreams on; names that could be taken for framing are not.
#[test]
fn odd_names_in_responses() {
    let bytes = "HTTP/1.1 204 X\r\nX.Y: 1\r\nX_Y: 2\r\nX-Y: 3\r\nContent_Length: 4\r\n\r\n";
    let dropped = |ignore_invalid: bool| {
        let limits = HeadLimits {
            ignore_invalid,
            ..HeadLimits::default()
        };
        responses([bytes.as_bytes()], Method::Get, &limits)
            .messages
            .remove(0)
            .dropped
    };
    assert_eq!(dropped(false), ["Content_Length"]);
    assert_eq!(dropped(true), ["X.Y", "X_Y", "Content_Length"]);
}

#[test]
fn limits() {
    let read = |bytes: String, limits: HeadLimits| {
        HeadReader::default()
            .response(
                &mut bytes.into_bytes(),
                &mut ResponseHead::default(),
                Method::Get,
                &limits,
            )
            .map_err(|error| error.cause())
    };
    let head = |size: usize| format!("HTTP/1.1 200 OK\r\nX-A: {}\r\n\r\n", "a".repeat(size));
    let small = HeadLimits {
        line_max: 4096,
        total_max: 4096,
        fields_max: 10,
        ..HeadLimits::default()
    };
    assert_eq!(read(head(4000), small), Ok(true));
    assert_eq!(read(head(1 << 20), small), Err(HeadCause::HeadTooLarge));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: a\r\n".repeat(11));
    assert_eq!(read(many, small), Err(HeadCause::TooManyFields));
}

#[test]
fn a_refused_head_still_tells_the_log_what_was_answered() {
    let mut head = ResponseHead::default();
    let mut input = b"HTTP/1.0 203 Hm\r\nBogus\r\n\r\nbody".to_vec();
    assert!(
        HeadReader::default()
            .response(&mut input, &mut head, Method::Get, &HeadLimits::default())
            .is_err()
    );
    assert_eq!(
        (head.status, head.version, head.status_line()),
        (203, Version::Http10, b"HTTP/1.0 203 Hm".as_slice())
    );
}

/// Bytes that stay where they are: the same heads and the same refusals, at every split.
#[test]
fn a_head_copied_out_is_the_head_taken_out() {
    for bytes in [
        "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 4\r\n\r\nbody",
        "HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
        "HTTP/1.0 203 Hm\r\nBogus\r\n\r\nbody",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nb",
    ] {
        let limits = HeadLimits::default();
        let mut taken = ResponseHead::default();
        let mut input = bytes.as_bytes().to_vec();
        let whole = HeadReader::default().response(&mut input, &mut taken, Method::Get, &limits);
        for split in 0..bytes.len() {
            let mut reader = HeadReader::default();
            let mut head = ResponseHead::default();
            let mut read = |part: &[u8], head: &mut ResponseHead| {
                reader.response_in(part, head, Method::Get, &limits)
            };
            let first = bytes.as_bytes().split_at(split).0;
            let result = match read(first, &mut head) {
                Ok(None) => read(bytes.as_bytes(), &mut head),
                result => result,
            };
            match (&whole, result) {
                (Ok(true), Ok(Some(length))) => {
                    assert_eq!(length, bytes.len() - input.len());
                    assert_eq!(head.bytes, taken.bytes);
                }
                (Err(whole), Err(error)) => assert_eq!(error.cause(), whole.cause()),
                (_, result) => panic!("{bytes:?} split at {split}: {result:?}"),
            }
            assert_eq!(
                (head.status_line(), &head.fields, head.framing),
                (taken.status_line(), &taken.fields, taken.framing)
            );
        }
    }
}
