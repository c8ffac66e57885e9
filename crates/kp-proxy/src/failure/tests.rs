//! The table, row by row, and the sentences.

use super::*;
use kp_http::{HeadLimits, HeadReader, Method};

/// One of each, with the phase it usually comes in.
pub(crate) const ALL: [(Phase, Cause); 57] = [
    (Phase::RequestHead, Cause::BadRequest),
    (Phase::RequestLine, Cause::BadVersion),
    (Phase::RequestHead, Cause::UnknownCoding),
    (Phase::RequestHead, Cause::ConnectMethod),
    (Phase::RequestHead, Cause::PlainHttp),
    (Phase::RequestHead, Cause::ClientCertificate),
    (Phase::RequestHead, Cause::NoClientCertificate),
    (Phase::RequestHead, Cause::Misdirected),
    (Phase::RequestLine, Cause::TargetTooLong),
    (Phase::RequestHead, Cause::HeadTooLarge),
    (Phase::RequestBody, Cause::BodyTooLarge(Some(30))),
    (Phase::RequestBody, Cause::BadBody),
    (Phase::RequestHead, Cause::ClientHeadTimeout),
    (Phase::RequestBody, Cause::ClientBodyTimeout),
    (Phase::SendResponse, Cause::ClientSendTimeout),
    (Phase::RequestBody, Cause::ClientTooSlow),
    (Phase::SendResponse, Cause::ClientReadsTooSlow),
    (Phase::AwaitHead, Cause::ClientGone),
    (Phase::RequestBody, Cause::ClientCut),
    (Phase::Route, Cause::Loop),
    (Phase::Connect, Cause::NoLivePeer),
    (Phase::Connect, Cause::QueueFull),
    (Phase::Connect, Cause::QueueTimeout),
    (Phase::Connect, Cause::ConnectFailed(111)),
    (Phase::Connect, Cause::ConnectTimeout),
    (Phase::Handshake, Cause::TlsHandshake),
    (Phase::Handshake, Cause::TlsVerify),
    (Phase::Handshake, Cause::OwnCertificate),
    (Phase::AwaitHead, Cause::StaleConnection),
    (Phase::SendRequest, Cause::SendFailed(32)),
    (Phase::SendRequest, Cause::SendTimeout),
    (Phase::AwaitHead, Cause::UpstreamClosed),
    (Phase::AwaitHead, Cause::UpstreamReset(104)),
    (Phase::AwaitHead, Cause::UpstreamTimeout),
    (Phase::AwaitHead, Cause::TryTimeout),
    (Phase::AwaitHead, Cause::UpstreamInvalidHead),
    (Phase::AwaitHead, Cause::UpstreamHeadTooLarge),
    (Phase::AwaitHead, Cause::UpstreamStatus(503)),
    (Phase::ReadBody, Cause::BodyTruncated),
    (Phase::ReadBody, Cause::BodyReset(104)),
    (Phase::ReadBody, Cause::BodyTimeout),
    (Phase::ReadBody, Cause::BodyInvalid),
    (Phase::Tunnel, Cause::TunnelTimeout),
    (Phase::Connect, Cause::BadTarget),
    (Phase::Route, Cause::NameNotResolved(3)),
    (Phase::Route, Cause::RedirectCycle),
    (
        Phase::Route,
        Cause::RateLimited {
            status: 503,
            level: Level::Error,
        },
    ),
    (
        Phase::Route,
        Cause::PlacesTaken {
            status: 503,
            level: Level::Error,
        },
    ),
    (Phase::Route, Cause::AccessDenied),
    (Phase::Route, Cause::TooManyActive),
    (Phase::Route, Cause::Overload),
    (Phase::Route, Cause::OutOfMemory),
    (Phase::Route, Cause::Internal),
    (Phase::SendResponse, Cause::FileBroken),
    (Phase::ReadBody, Cause::Shutdown),
    (Phase::AwaitHead, Cause::FastStop),
    (Phase::AwaitHead, Cause::Orphaned),
];

fn text(phase: Phase, cause: Cause, detail: &str) -> String {
    let mut out = String::new();
    Failure::new(phase, cause).write_text(detail, &mut out);
    out
}

/// The rows of the design's table, column by column.
#[test]
fn the_table() {
    use Cause::*;
    use retry::Failure as Next;
    let rows: &[(Cause, u16, Option<Next>, Outcome, After)] = &[
        (BadRequest, 400, None, Outcome::NotCounted, After::Close),
        (BadBody, 400, None, Outcome::NotCounted, After::Close),
        (TargetTooLong, 414, None, Outcome::NotCounted, After::Close),
        (HeadTooLarge, 431, None, Outcome::NotCounted, After::Close),
        (
            BodyTooLarge(None),
            413,
            None,
            Outcome::NotCounted,
            After::Close,
        ),
        (BadVersion, 505, None, Outcome::NotCounted, After::Close),
        (UnknownCoding, 501, None, Outcome::NotCounted, After::Close),
        (ConnectMethod, 405, None, Outcome::NotCounted, After::Close),
        (PlainHttp, 497, None, Outcome::NotCounted, After::Close),
        (
            ClientCertificate,
            495,
            None,
            Outcome::NotCounted,
            After::Close,
        ),
        (
            NoClientCertificate,
            496,
            None,
            Outcome::NotCounted,
            After::Close,
        ),
        (Misdirected, 421, None, Outcome::NotCounted, After::Keep),
        (
            ClientHeadTimeout,
            408,
            None,
            Outcome::NotCounted,
            After::Close,
        ),
        (
            ClientBodyTimeout,
            408,
            None,
            Outcome::NotCounted,
            After::Close,
        ),
        (ClientGone, 499, None, Outcome::NotCounted, After::Gone),
        (ClientCut, 400, None, Outcome::NotCounted, After::Gone),
        (
            ClientSendTimeout,
            0,
            None,
            Outcome::NotCounted,
            After::Abort,
        ),
        (Loop, 508, None, Outcome::NotCounted, After::Keep),
        (
            NoLivePeer,
            502,
            Some(Next::NoLivePeer),
            Outcome::NotCounted,
            After::Keep,
        ),
        (
            ConnectFailed(111),
            502,
            Some(Next::Error),
            Outcome::Failed,
            After::Keep,
        ),
        (
            ConnectTimeout,
            504,
            Some(Next::Timeout),
            Outcome::Failed,
            After::Keep,
        ),
        (
            QueueFull,
            503,
            Some(Next::NoLivePeer),
            Outcome::NotCounted,
            After::Keep,
        ),
        (
            QueueTimeout,
            503,
            Some(Next::NoLivePeer),
            Outcome::NotCounted,
            After::Keep,
        ),
        (
            TlsHandshake,
            502,
            Some(Next::Error),
            Outcome::Failed,
            After::Keep,
        ),
        (
            TlsVerify,
            502,
            Some(Next::Error),
            Outcome::Failed,
            After::Keep,
        ),
        (OwnCertificate, 500, None, Outcome::NotCounted, After::Keep),
        (
            StaleConnection,
            502,
            Some(Next::Stale),
            Outcome::NotCounted,
            After::Keep,
        ),
        (
            SendFailed(32),
            502,
            Some(Next::Error),
            Outcome::Failed,
            After::Keep,
        ),
        (
            SendTimeout,
            504,
            Some(Next::Timeout),
            Outcome::Failed,
            After::Keep,
        ),
        (
            UpstreamClosed,
            502,
            Some(Next::Error),
            Outcome::Failed,
            After::Keep,
        ),
        (
            UpstreamReset(104),
            502,
            Some(Next::Error),
            Outcome::Failed,
            After::Keep,
        ),
        (
            TryTimeout,
            504,
            Some(Next::Timeout),
            Outcome::Failed,
            After::Keep,
        ),
        (
            UpstreamTimeout,
            504,
            Some(Next::Timeout),
            Outcome::Failed,
            After::Keep,
        ),
        (
            UpstreamInvalidHead,
            502,
            Some(Next::InvalidHeader),
            Outcome::Failed,
            After::Keep,
        ),
        (
            UpstreamHeadTooLarge,
            502,
            Some(Next::InvalidHeader),
            Outcome::Failed,
            After::Keep,
        ),
        (
            UpstreamStatus(500),
            500,
            Some(Next::Status(500)),
            Outcome::Failed,
            After::Keep,
        ),
        (
            UpstreamStatus(403),
            403,
            Some(Next::Status(403)),
            Outcome::Ok,
            After::Keep,
        ),
        (
            UpstreamStatus(404),
            404,
            Some(Next::Status(404)),
            Outcome::Ok,
            After::Keep,
        ),
        (BodyTruncated, 0, None, Outcome::Ok, After::Abort),
        (BodyReset(104), 0, None, Outcome::Ok, After::Abort),
        (BodyTimeout, 0, None, Outcome::Ok, After::Abort),
        (BodyInvalid, 0, None, Outcome::Ok, After::Abort),
        (TunnelTimeout, 0, None, Outcome::Ok, After::Abort),
        (BadTarget, 500, None, Outcome::NotCounted, After::Close),
        (
            NameNotResolved(3),
            502,
            None,
            Outcome::NotCounted,
            After::Keep,
        ),
        (RedirectCycle, 500, None, Outcome::NotCounted, After::Close),
        (
            RateLimited {
                status: 429,
                level: Level::Warn,
            },
            429,
            None,
            Outcome::NotCounted,
            After::Keep,
        ),
        (
            PlacesTaken {
                status: 503,
                level: Level::Error,
            },
            503,
            None,
            Outcome::NotCounted,
            After::Keep,
        ),
        (AccessDenied, 403, None, Outcome::NotCounted, After::Keep),
        (TooManyActive, 503, None, Outcome::NotCounted, After::Keep),
        (Overload, 503, None, Outcome::NotCounted, After::Close),
        (OutOfMemory, 503, None, Outcome::NotCounted, After::Close),
        (ClientTooSlow, 408, None, Outcome::NotCounted, After::Close),
        (
            ClientReadsTooSlow,
            0,
            None,
            Outcome::NotCounted,
            After::Abort,
        ),
        (Internal, 500, None, Outcome::NotCounted, After::Close),
        (FileBroken, 0, None, Outcome::NotCounted, After::Abort),
        (Shutdown, 0, None, Outcome::NotCounted, After::Abort),
        (FastStop, 0, None, Outcome::NotCounted, After::Abort),
        (Orphaned, 0, None, Outcome::NotCounted, After::Abort),
    ];
    for &(cause, status, retry, mark, after) in rows {
        let failure = Failure::new(Phase::AwaitHead, cause);
        assert_eq!(failure.status(), status, "{cause:?}");
        assert_eq!(failure.retry(), retry, "{cause:?}");
        assert_eq!(failure.peer_mark(true), mark, "{cause:?}");
        assert_eq!(failure.after(), after, "{cause:?}");
    }
    for (phase, cause) in ALL {
        let token = Failure::new(phase, cause).token();
        assert!(
            rows.iter()
                .any(|row| Failure::new(phase, row.0).token() == token),
            "no row for {cause:?}"
        );
    }
}

/// Whoever ended the connection is named; of what goes on, and of what cannot be known, nobody is.
#[test]
fn who_closed() {
    use Cause::*;
    let (client, upstream, own) = (Some(Side::Client), Some(Side::Upstream), Some(Side::Own));
    for (cause, expected) in [
        (ClientGone, client),
        (ClientCut, client),
        (ConnectFailed(ECONNREFUSED), upstream),
        // No route: there was nobody to close.
        (ConnectFailed(113), None),
        (UpstreamReset(104), upstream),
        (BodyTruncated, upstream),
        (StaleConnection, upstream),
        (ConnectTimeout, own),
        (UpstreamTimeout, own),
        (BodyTimeout, own),
        (UpstreamInvalidHead, own),
        (TlsVerify, own),
        (TlsHandshake, None),
        (BadRequest, own),
        (ClientHeadTimeout, own),
        (ClientSendTimeout, own),
        (Shutdown, own),
        (FastStop, own),
        (Orphaned, own),
        (NoLivePeer, None),
        (AccessDenied, None),
        (Loop, None),
    ] {
        let failure = Failure::new(Phase::AwaitHead, cause);
        assert_eq!(failure.closed_by(), expected, "{cause:?}");
    }
}

/// The sentences people's log scanners look for.
#[test]
fn texts_are_nginx_s() {
    let cases = [
        (
            text(Phase::AwaitHead, Cause::UpstreamTimeout, ""),
            "upstream timed out (110: Connection timed out) while reading response header from upstream",
        ),
        (
            text(Phase::Connect, Cause::ConnectTimeout, ""),
            "upstream timed out (110: Connection timed out) while connecting to upstream",
        ),
        (
            text(Phase::Connect, Cause::ConnectFailed(111), ""),
            "connect() failed (111: Connection refused) while connecting to upstream",
        ),
        (
            text(
                Phase::Handshake,
                Cause::TlsVerify,
                "upstream SSL certificate verify error: (18:self-signed certificate)",
            ),
            "upstream SSL certificate verify error: (18:self-signed certificate) while SSL handshaking to upstream",
        ),
        (
            text(Phase::AwaitHead, Cause::UpstreamClosed, ""),
            "upstream prematurely closed connection while reading response header from upstream",
        ),
        (
            text(Phase::ReadBody, Cause::BodyTruncated, ""),
            "upstream prematurely closed connection while reading upstream",
        ),
        (
            text(Phase::AwaitHead, Cause::UpstreamReset(104), ""),
            "recv() failed (104: Connection reset by peer) while reading response header from upstream",
        ),
        (
            text(
                Phase::RequestHead,
                Cause::ClientCertificate,
                "(18:self-signed certificate)",
            ),
            "client SSL certificate verify error: (18:self-signed certificate) while reading client request headers",
        ),
        (
            text(Phase::RequestHead, Cause::NoClientCertificate, ""),
            "client sent no required SSL certificate while reading client request headers",
        ),
        (
            text(Phase::RequestHead, Cause::PlainHttp, ""),
            "client sent plain HTTP request to HTTPS port while reading client request headers",
        ),
        (
            text(Phase::Route, Cause::NameNotResolved(3), "other.test"),
            "other.test could not be resolved (3: Host not found)",
        ),
        (
            text(Phase::Connect, Cause::NoLivePeer, ""),
            "no live upstreams while connecting to upstream",
        ),
        (
            text(Phase::RequestBody, Cause::BodyTooLarge(Some(30)), ""),
            "client intended to send too large body: 30 bytes",
        ),
        (
            text(
                Phase::AwaitHead,
                Cause::UpstreamInvalidHead,
                "invalid header name: \"Bo gus\"",
            ),
            "upstream sent invalid header name: \"Bo gus\" while reading response header from upstream",
        ),
        (
            text(Phase::RequestHead, Cause::ClientHeadTimeout, ""),
            "client timed out (110: Connection timed out) while reading client request headers",
        ),
        (
            text(Phase::RequestLine, Cause::TargetTooLong, ""),
            "client sent too long URI while reading client request line",
        ),
        (
            text(Phase::AwaitHead, Cause::ClientGone, ""),
            "client prematurely closed connection, so upstream connection is closed too while reading response header from upstream",
        ),
    ];
    for (got, expected) in cases {
        assert_eq!(got, expected);
    }
}

/// What a parser says about a head becomes the sentence, and the status follows the parser's.
#[test]
fn refused_heads() {
    let limits = HeadLimits {
        line_max: 64,
        ..HeadLimits::default()
    };
    let request = |bytes: &[u8]| {
        let mut head = kp_http::RequestHead::default();
        let error = HeadReader::default()
            .request(&mut bytes.to_vec(), &mut head, &limits)
            .expect_err("refused");
        let failure = Failure::request_head(&error);
        assert_eq!(failure.status(), error.status());
        text(failure.phase, failure.cause, &error.to_string())
    };
    assert_eq!(
        request(b"GET / HTTP/1.1\r\nBogus\r\n\r\n"),
        "client sent header line without a colon: \"Bogus\" while reading client request headers"
    );
    assert_eq!(
        request(b"\x16\x03\x01"),
        "client sent invalid method while reading client request line"
    );
    assert_eq!(
        request(b"GET / HTTP/3.0\r\n\r\n"),
        "client sent unsupported HTTP version while reading client request line"
    );
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100));
    assert_eq!(
        request(long.as_bytes()),
        "client sent too long URI while reading client request line"
    );
    let response = |bytes: &[u8]| {
        let mut head = kp_http::ResponseHead::default();
        let read =
            HeadReader::default().response(&mut bytes.to_vec(), &mut head, Method::Get, &limits);
        let error = read.expect_err("refused");
        let failure = Failure::response_head(&error);
        (
            failure.cause,
            text(failure.phase, failure.cause, &error.to_string()),
        )
    };
    let (cause, said) = response(b"HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\n");
    assert_eq!(cause, Cause::UpstreamInvalidHead);
    assert!(
        said.starts_with("upstream sent invalid \"Content-Length\" header"),
        "{said}"
    );
    assert!(
        said.ends_with(" while reading response header from upstream"),
        "{said}"
    );
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100));
    assert_eq!(response(long.as_bytes()).0, Cause::UpstreamHeadTooLarge);
}

#[test]
fn levels() {
    assert_eq!(
        Failure::new(Phase::RequestHead, Cause::BadRequest).level(),
        Level::Info
    );
    assert_eq!(
        Failure::new(Phase::RequestBody, Cause::BodyTooLarge(None)).level(),
        Level::Error
    );
    assert_eq!(
        Failure::new(Phase::Connect, Cause::ConnectFailed(111)).level(),
        Level::Error
    );
    assert_eq!(
        Failure::new(Phase::Connect, Cause::ConnectFailed(2)).level(),
        Level::Crit
    );
    assert_eq!(
        Failure::new(Phase::AwaitHead, Cause::UpstreamTimeout).level(),
        Level::Error
    );
}
