//! Properties that hold for all bytes: the way they are cut does not matter, what was encoded is read back, nothing
//! panics, and httparse agrees with what is accepted.

use crate::stream::{End, Outcome, requests, responses};
use kp_http::{
    BodyDecoder, Framing, HeadLimits, HeadReader, Method, RequestHead, Version, encode, target,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Scraps that requests, responses and chunked bodies are made of, and that break them.
const SCRAPS: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\n",
    b"POST /a?b HTTP/1.1\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 204\r\n",
    b"Host: t\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close, x-a\r\n",
    b"X-A: b\r\n",
    b"X_A: b\r\n",
    b"\r\n",
    b"\r",
    b"\n",
    b" ",
    b"\t",
    b":",
    b"\0",
    b"3\r\nabc\r\n",
    b"3;a=\"b\"\r\nabc\r\n",
    b"0\r\n",
    b"0\r\n\r\n",
    b"abc",
    b"\xff",
];

/// What paths are made of.
const PATH_SCRAPS: &[&[u8]] = &[
    b"/", b".", b"..", b"a", b"%2f", b"%2E", b"%41", b"%3f", b"%25", b"+", b"%0a", b"\xff",
];

fn scraps() -> impl Strategy<Value = Vec<u8>> {
    let scrap = prop_oneof![
        20 => prop::sample::select(SCRAPS).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 1..4),
    ];
    vec(scrap, 0..20).prop_map(|scraps| scraps.concat())
}

/// Mostly whole messages, so that the interesting states are reached.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let sound: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: t\r\nX-A: b\r\n\r\n",
        b"POST /p HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n",
        b"GET http://u/x HTTP/1.0\r\n\r\n",
        b"\r\nOPTIONS * HTTP/1.1\r\nHOST:t\r\nConnection: x-a\r\nX_B: c\r\n\r\n",
    ];
    vec(
        prop_oneof![6 => prop::sample::select(sound).prop_map(<[u8]>::to_vec), 1 => scraps()],
        0..5,
    )
    .prop_map(|messages| messages.concat())
}

/// Cuts bytes at the given places, taken modulo the length.
fn cut<'a>(bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places
        .iter()
        .map(|place| place % (bytes.len() + 1))
        .collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut start = 0;
    for place in places {
        pieces.push(&bytes[start..place]);
        start = place;
    }
    pieces.push(&bytes[start..]);
    pieces
}

fn small_limits() -> HeadLimits {
    HeadLimits {
        line_max: 60,
        total_max: 120,
        fields_max: 4,
        ..HeadLimits::default()
    }
}

fn token() -> impl Strategy<Value = String> {
    "[A-Za-z0-9][A-Za-z0-9-]{0,20}"
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![8 => 0x21..=0x7eu8, 1 => Just(b' '), 1 => Just(b'\t'), 1 => 0x80..=0xffu8],
        0..30,
    )
    .prop_map(|value| value.trim_ascii().to_vec())
}

/// Names that carry no meaning for the message as a whole.
fn fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    vec(
        (token().prop_map(|name| format!("X-{name}")), value()),
        0..40,
    )
}

proptest! {
    #[test]
    fn the_way_requests_are_cut_does_not_matter(bytes in prop_oneof![messages(), scraps()], places in vec(any::<usize>(), 0..12), small: bool) {
        let limits = if small { small_limits() } else { HeadLimits::default() };
        prop_assert_eq!(requests([bytes.as_slice()], &limits), requests(cut(&bytes, &places), &limits));
    }

    #[test]
    fn the_way_responses_are_cut_does_not_matter(bytes in scraps(), places in vec(any::<usize>(), 0..12), lf: bool) {
        let limits = HeadLimits { accept_bare_lf: lf, ..HeadLimits::default() };
        let whole = responses([bytes.as_slice()], Method::Get, &limits);
        prop_assert_eq!(whole, responses(cut(&bytes, &places), Method::Get, &limits));
    }

    #[test]
    fn what_was_encoded_is_read_back(
        method in "[A-Z]{1,10}",
        path in "/[!-\"$-~]{0,40}",
        fields in fields(),
        body in vec(any::<u8>(), 0..100),
    ) {
        prop_assume!(method != "CONNECT");
        let mut bytes = Vec::new();
        encode::request_line(&mut bytes, method.as_bytes(), path.as_bytes(), Version::Http11);
        encode::field(&mut bytes, b"Host", b"t");
        for (name, value) in &fields {
            encode::field(&mut bytes, name.as_bytes(), value);
        }
        let mut length = Vec::new();
        encode::number(&mut length, body.len() as u64);
        encode::field(&mut bytes, b"Content-Length", &length);
        encode::end(&mut bytes);
        let mut head = RequestHead::default();
        let mut input = [bytes.as_slice(), &body].concat();
        prop_assert_eq!(HeadReader::default().request(&mut input, &mut head, &HeadLimits { line_max: 1 << 16, total_max: 1 << 20, ..HeadLimits::default() }), Ok(true));
        prop_assert_eq!(&head.bytes, &bytes);
        prop_assert_eq!(&input, &body);
        prop_assert_eq!(head.framing, Framing::Length(body.len() as u64));
        prop_assert_eq!((head.method_text(), head.target()), (method.as_bytes(), path.as_bytes()));
        prop_assert_eq!(head.fields().count(), fields.len() + 2);

        let mut again = Vec::new();
        encode::request_line(&mut again, head.method_text(), head.path_and_query(), head.version);
        for field in head.fields() {
            encode::field(&mut again, head.name(field), head.value(field));
        }
        encode::end(&mut again);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn responses_are_read_back(status in 200u16..=599, reason in "[ -~]{0,20}", fields in fields()) {
        let mut bytes = Vec::new();
        encode::status_line(&mut bytes, Version::Http11, status, Some(reason.as_bytes()));
        for (name, value) in &fields {
            encode::field(&mut bytes, name.as_bytes(), value);
        }
        encode::end(&mut bytes);
        let limits = HeadLimits { total_max: 1 << 20, ..HeadLimits::default() };
        let outcome = responses([bytes.as_slice()], Method::Head, &limits);
        prop_assert_eq!(outcome.end, End::Waiting(0));
        prop_assert_eq!((outcome.messages[0].status, &outcome.messages[0].path), (status, &reason));
        prop_assert_eq!(outcome.messages[0].fields.len(), fields.len());
    }

    #[test]
    fn chunks_are_read_back(chunks in vec(vec(any::<u8>(), 1..300), 0..8), places in vec(any::<usize>(), 0..12)) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend_from_slice(encode::chunk_head(chunk.len() as u64).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(encode::CHUNK_END);
        }
        bytes.extend_from_slice(encode::LAST_CHUNK);
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        let mut content = Vec::new();
        for piece in cut(&bytes, &places) {
            let mut rest = piece;
            while !rest.is_empty() {
                let found = decoder.decode(rest)?;
                content.extend_from_slice(&rest[found.data.clone()]);
                prop_assert!(found.consumed > 0);
                rest = &rest[found.consumed..];
            }
        }
        prop_assert!(decoder.is_done());
        prop_assert_eq!(content, chunks.concat());
    }

    #[test]
    fn decoding_anything_stays_inside_the_input(bytes in prop_oneof![scraps(), vec(any::<u8>(), 0..200)], kind in 0..4usize, length in 0u64..300) {
        let framing = [Framing::None, Framing::Length(length), Framing::Chunked, Framing::UntilClose][kind];
        let mut decoder = BodyDecoder::new(framing);
        let mut rest = bytes.as_slice();
        while let Ok(piece) = decoder.decode(rest) {
            prop_assert!(piece.data.start <= piece.data.end && piece.data.end <= piece.consumed && piece.consumed <= rest.len());
            rest = &rest[piece.consumed..];
            if piece.done || piece.consumed == 0 {
                prop_assert!(piece.done || rest.is_empty(), "everything is taken until the end");
                break;
            }
        }
    }

    #[test]
    fn httparse_accepts_what_is_accepted(bytes in prop_oneof![messages(), scraps()]) {
        let mut head = RequestHead::default();
        let mut input = bytes.clone();
        if HeadReader::default().request(&mut input, &mut head, &HeadLimits::default()) == Ok(true) {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut other = httparse::Request::new(&mut headers);
            let end = other.parse(&bytes);
            prop_assert_eq!(end, Ok(httparse::Status::Complete(bytes.len() - input.len())));
            prop_assert_eq!(other.method.map(str::as_bytes), Some(head.method_text()));
            prop_assert_eq!(other.path.map(str::as_bytes), Some(head.target()));
            let theirs: Vec<(&[u8], &[u8])> = other.headers.iter().map(|header| (header.name.as_bytes(), header.value)).collect();
            let ours: Vec<(&[u8], &[u8])> = head.fields.iter().map(|field| (head.name(field), head.value(field))).collect();
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn what_httparse_refuses_is_refused(bytes in messages()) {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        if httparse::Request::new(&mut headers).parse(&bytes).is_err() {
            let Outcome { messages, end } = requests([bytes.as_slice()], &HeadLimits::default());
            prop_assert!(messages.is_empty() && !matches!(end, End::InBody | End::BadBody(_)));
        }
    }

    #[test]
    fn a_normalised_path_is_absolute_and_stays_so(
        path in vec(prop::sample::select(PATH_SCRAPS), 0..20),
        merge: bool,
    ) {
        let raw = [b"/".to_vec(), path.concat()].concat();
        let mut once = Vec::new();
        if target::normalise(&raw, merge, &mut once).is_ok() {
            prop_assert_eq!(once.first(), Some(&b'/'));
            for segment in once.split(|&byte| byte == b'/') {
                prop_assert!(segment != b"." && segment != b"..", "{}", once.escape_ascii());
            }
            prop_assert!(!merge || !once.windows(2).any(|pair| pair == b"//"));
            let mut escaped = Vec::new();
            target::escape_uri(&mut escaped, &once, target::Escape::Uri);
            let mut twice = Vec::new();
            prop_assert_eq!(target::normalise(&escaped, merge, &mut twice), Ok(escaped.len()..escaped.len()));
            prop_assert_eq!(twice, once);
        }
    }

    #[test]
    fn normalising_anything_ends(raw in vec(any::<u8>(), 0..60), merge: bool) {
        let mut out = b"kept".to_vec();
        if let Ok(arguments) = target::normalise(&raw, merge, &mut out) {
            prop_assert!(arguments.start <= arguments.end && arguments.end <= raw.len());
        }
        prop_assert!(out.starts_with(b"kept"));
    }
}
