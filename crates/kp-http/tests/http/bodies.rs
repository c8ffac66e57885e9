//! Bodies: where they end, the chunk grammar, trailers, and truncation. Chunked bodies are read as part of a request in
//! one piece, byte by byte, and line by line, with equal results.

use crate::stream::{End, Message, Outcome, ask};
use kp_http::{BodyDecoder, BodyError, Framing, Piece};

fn chunked(body: &str) -> Outcome {
    ask(format!(
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
    ))
}

fn only(body: &str) -> Message {
    let mut outcome = chunked(body);
    assert_eq!(outcome.end, End::Waiting(0), "{}", body.escape_debug());
    outcome.messages.remove(0)
}

#[test]
fn chunk_sizes_that_are_none() {
    for body in [
        "1zz\r\nZ\r\n0\r\n\r\n",
        "0x1\r\nZ\r\n0\r\n\r\n",
        "0_0\r\n\r\n",
        "1_0\r\nhello world!!!!!\r\n0\r\n\r\n",
        "+1\r\nZ\r\n0\r\n\r\n",
        "-1\r\nZ\r\n0\r\n\r\n",
        "-0x0\r\n\r\n",
        "\r\nZ\r\n0\r\n\r\n",
        "\t0\r\n\r\n",
        " 1\r\nZ\r\n0\r\n\r\n",
        "5\u{0}\r\nhello\r\n0\r\n\r\n",
        "INVALID!!!\r\n",
        "1\nZ\r\n0\r\n\r\n",
        "1\rZ0\r\n\r\n",
        "5\r\r;ABCD\r\n",
        "5\r\nhello\r\n0\n\r\n",
    ] {
        assert_eq!(
            chunked(body).bad_body(),
            Some(BodyError::BadChunkSize),
            "{}",
            body.escape_debug()
        );
    }
}

#[test]
fn chunk_data_must_end_in_crlf() {
    for body in [
        "1\r\nZ0\r\n\r\n",
        "1\r\nZ\n0\r\n\r\n",
        "1\r\nZ\r0\r\n\r\n",
        "5\r\nhello!!\r\n0\r\n\r\n",
        "a\r\n0123456789\n0\r\n\r\n",
    ] {
        assert_eq!(
            chunked(body).bad_body(),
            Some(BodyError::BadChunkEnd),
            "{}",
            body.escape_debug()
        );
    }
}

#[test]
fn chunk_extensions_that_are_none() {
    for extension in [
        ";",
        ";a;",
        ";;a",
        ";=b",
        ";a=",
        " ",
        "\t",
        "  a",
        "; ",
        ";a ",
        ";a= ",
        ";a=b ",
        ";a=\"b\"\t",
        ";a b",
        ";a = b c",
        ";a=b =c",
        " ;a\n",
        ";a=\"b",
        ";a=\"b\"c",
        ";a=\"\u{1}\"",
        ";a\u{0}b",
        ";\n",
        ";a\n",
        ";a=\"\n\"",
        ";a=\"\\\n\"",
        ";(a)",
        ";a=(b)",
    ] {
        let body = format!("5{extension}\r\nhello\r\n0\r\n\r\n");
        let error = chunked(&body).bad_body();
        assert!(
            matches!(error, Some(BodyError::BadExtension)),
            "{}: {error:?}",
            body.escape_debug()
        );
    }
    assert_eq!(
        chunked("5;a\rX\r\nhello\r\n0\r\n\r\n").bad_body(),
        Some(BodyError::BadChunkSize)
    );
    assert_eq!(
        chunked("1;a\r\rZ").bad_body(),
        Some(BodyError::BadChunkSize),
        "the line had ended but for its LF"
    );
}

#[test]
fn odd_chunks_that_are_legal() {
    assert_eq!(only("1;a=b\r\nZ\r\n0\r\n\r\n").body, b"Z");
    assert_eq!(
        only("5;a;b=c;d=\"e; \\\" f\"\r\nhello\r\n0;last\r\n\r\n").body,
        b"hello"
    );
    for blanks in [
        " ;a",
        "\t;a",
        "; a",
        ";\t a=b",
        ";a =b",
        ";a= b",
        " ; a = b ; c\t=\t\"d\" ;e",
    ] {
        let body = format!("5{blanks}\r\nhello\r\n0{blanks}\r\n\r\n");
        assert_eq!(only(&body).body, b"hello", "{}", body.escape_debug());
    }
    assert_eq!(only("0000000000000000000001\r\nZ\r\n0\r\n\r\n").body, b"Z");
    assert_eq!(
        only("A\r\nhelloworld\r\na\r\nhelloworld\r\n000\r\n\r\n").body,
        b"helloworldhelloworld"
    );
    assert_eq!(only("0\r\n\r\n").body, b"");
}

#[test]
fn chunk_sizes_have_an_end() {
    for (size, want) in [
        ("00000000000000000000000000000001".to_owned(), None),
        (
            "000000000000000000000000000000001".to_owned(),
            Some(BodyError::ChunkTooLarge),
        ),
        ("7fffffffffffffff".to_owned(), None),
        (
            "8000000000000000".to_owned(),
            Some(BodyError::ChunkTooLarge),
        ),
        (
            "FFFFFFFFFFFFFFFFF".to_owned(),
            Some(BodyError::ChunkTooLarge),
        ),
        ("0".repeat(1000), Some(BodyError::ChunkTooLarge)),
    ] {
        assert_eq!(chunked(&format!("{size}\r\n")).bad_body(), want, "{size}");
    }
}

#[test]
fn extensions_are_paid_for_by_content() {
    let long = format!("5;a={}\r\nhello\r\n0\r\n\r\n", "b".repeat(16 << 10));
    assert_eq!(chunked(&long).bad_body(), Some(BodyError::ExtensionTooLong));
    let chunk = format!(
        "400;signature={}\r\n{}\r\n",
        "0".repeat(64),
        "x".repeat(1024)
    );
    assert_eq!(
        only(&(chunk.repeat(500) + "0\r\n\r\n")).body.len(),
        500 * 1024
    );
    let wasteful = format!("1;a={}\r\nZ\r\n", "b".repeat(1000)).repeat(20);
    assert_eq!(
        chunked(&wasteful).bad_body(),
        Some(BodyError::ExtensionTooLong)
    );
}

#[test]
fn trailers() {
    assert_eq!(
        only("2\r\nok\r\n0\r\nX-T: 1\r\nserver-timing:\t a \r\nEmpty:\r\n\r\n").trailers,
        "X-T: 1\r\nserver-timing: a\r\nEmpty: \r\n"
    );
    for name in [
        "Content-Length",
        "transfer-encoding",
        "Host",
        "Trailer",
        "Connection",
        "TE",
        "Authorization",
        "Cookie",
        "Set-Cookie",
        "Content-Type",
        "Content-Encoding",
        "Content-Range",
        "Cache-Control",
        "X-Forwarded-For",
        "X-Accel-Redirect",
        "Content_Length",
        "X.Y",
    ] {
        let body = format!("0\r\nX-A: 1\r\n{name}: 50\r\nX-B: 2\r\n\r\n");
        assert_eq!(only(&body).trailers, "X-A: 1\r\nX-B: 2\r\n", "{name}");
    }
    for line in [
        "Bogus",
        "X : 1",
        " X: 1",
        ": 1",
        "X: a\rb",
        "X: \u{0}",
        "X: a\nY: b",
        "X Y: 1",
        "\n",
    ] {
        let outcome = chunked(&format!("0\r\n{line}\r\n\r\n"));
        assert_eq!(
            outcome.bad_body(),
            Some(BodyError::BadTrailer),
            "{}",
            line.escape_debug()
        );
    }
    assert_eq!(
        chunked("5\r\nhello\r\n0\r\n\n").bad_body(),
        Some(BodyError::BadTrailer)
    );
    let large = format!("0\r\nX: {}\r\n\r\n", "y".repeat(16 << 10));
    assert_eq!(
        chunked(&large).bad_body(),
        Some(BodyError::TrailersTooLarge)
    );
    let many = format!("0\r\n{}\r\n", "Host: dropped\r\n".repeat(2000));
    assert_eq!(
        chunked(&many).bad_body(),
        Some(BodyError::TrailersTooLarge),
        "thrown-away fields count as well"
    );
}

#[test]
fn trailers_are_shown_when_they_are_complete() {
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    assert_eq!(
        decoder.decode(b"0\r\nX-T: 1\r\n"),
        Ok(Piece {
            consumed: 11,
            data: 0..0,
            done: false
        })
    );
    assert_eq!(decoder.trailers(), b"");
    assert_eq!(
        decoder.decode(b"\r\nGET"),
        Ok(Piece {
            consumed: 2,
            data: 0..0,
            done: true
        })
    );
    assert_eq!(decoder.trailers(), b"X-T: 1\r\n");
}

#[test]
fn one_call_takes_one_run_of_content_and_the_framing_around_it() {
    let input = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET";
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    assert_eq!(
        decoder.decode(input),
        Ok(Piece {
            consumed: 13,
            data: 3..8,
            done: false
        })
    );
    assert_eq!(
        decoder.decode(&input[13..]),
        Ok(Piece {
            consumed: 13,
            data: 0..6,
            done: true
        })
    );
    assert_eq!(
        decoder.decode(b"GET"),
        Ok(Piece {
            consumed: 0,
            data: 0..0,
            done: true
        })
    );
}

#[test]
fn lengths() {
    let mut decoder = BodyDecoder::new(Framing::Length(5));
    assert_eq!(decoder.remaining(), Some(5));
    assert_eq!(
        decoder.decode(b"he"),
        Ok(Piece {
            consumed: 2,
            data: 0..2,
            done: false
        })
    );
    assert_eq!(decoder.remaining(), Some(3));
    assert_eq!(
        decoder.decode(b"lloGET"),
        Ok(Piece {
            consumed: 3,
            data: 0..3,
            done: true
        })
    );
    assert_eq!(decoder.remaining(), Some(0));
    for framing in [Framing::None, Framing::Length(0)] {
        let mut decoder = BodyDecoder::new(framing);
        assert!(decoder.is_done());
        assert_eq!(
            decoder.decode(b"GET"),
            Ok(Piece {
                consumed: 0,
                data: 0..0,
                done: true
            })
        );
        assert_eq!(decoder.finish_on_eof(), Ok(()));
    }
}

#[test]
fn until_close() {
    let mut decoder = BodyDecoder::new(Framing::UntilClose);
    assert_eq!(
        decoder.decode(b"hello"),
        Ok(Piece {
            consumed: 5,
            data: 0..5,
            done: false
        })
    );
    assert_eq!((decoder.remaining(), decoder.is_done()), (None, false));
    assert_eq!(decoder.finish_on_eof(), Ok(()));
    assert!(decoder.is_done());
}

#[test]
fn truncation_is_seen() {
    for (framing, bytes) in [
        (Framing::Length(100), "0123456789"),
        (Framing::Length(100), ""),
        (Framing::Chunked, ""),
        (Framing::Chunked, "a\r\n0123456789\r\n"),
        (Framing::Chunked, "40\r\nhello"),
        (Framing::Chunked, "4\r"),
        (Framing::Chunked, "0\r\n"),
        (Framing::Chunked, "0\r\nX: 1\r\n"),
    ] {
        let mut decoder = BodyDecoder::new(framing);
        assert!(decoder.decode(bytes.as_bytes()).is_ok());
        assert_eq!(
            decoder.finish_on_eof(),
            Err(BodyError::Truncated),
            "{bytes}"
        );
        assert_eq!(decoder.decode(b"more"), Err(BodyError::Truncated));
    }
}

#[test]
fn errors_stay() {
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    assert_eq!(decoder.decode(b"zz\r\n"), Err(BodyError::BadChunkSize));
    assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(BodyError::BadChunkSize));
    assert_eq!(decoder.finish_on_eof(), Err(BodyError::BadChunkSize));
    assert!(!decoder.is_done());
}
