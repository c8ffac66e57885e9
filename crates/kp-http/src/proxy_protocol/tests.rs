//! Good and bad headers, whole and in pieces.

use super::*;
use proptest::prelude::*;

fn whole(bytes: &[u8]) -> (usize, Option<ProxyHeader>) {
    match ProxyHeader::read(bytes) {
        Ok(ProxyPreamble::Whole(length, header)) => (length, header),
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
    }
}

fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend([0x20 | command, family]);
    header.extend((block.len() as u16).to_be_bytes());
    header.extend(block);
    header
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((value.len() as u16).to_be_bytes());
    bytes.extend(value);
    bytes
}

/// The addresses 192.0.2.1:123 and 192.0.2.2:80, and TLVs.
fn v4_block(tlvs: &[u8]) -> Vec<u8> {
    [&[192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 0, 80], tlvs].concat()
}

fn v6_block() -> Vec<u8> {
    let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).octets();
    [&address(1)[..], &address(2), &[0, 123, 0, 80]].concat()
}

#[test]
fn lines() {
    for (text, named) in [
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 123 80\r\n",
            Some(["192.0.2.1:123", "192.0.2.2:80"]),
        ),
        (
            "PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n",
            Some(["255.255.255.255:65535", "0.0.0.0:0"]),
        ),
        (
            "PROXY TCP6 2001:db8::1 ::1 123 80\r\n",
            Some(["[2001:db8::1]:123", "[::1]:80"]),
        ),
        (
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
            Some(["[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"; 2]),
        ),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN what ever 1 2 3\r\n", None),
    ] {
        for rest in ["", "GET / HTTP/1.1\r\n", "\n"] {
            let bytes = format!("{text}{rest}");
            let (length, header) = whole(bytes.as_bytes());
            assert_eq!(length, text.len(), "{text}");
            let got = header.map(|header| [header.source, header.destination]);
            let named = named.map(|named| named.map(|address| address.parse().unwrap()));
            assert_eq!(got, named, "{text}");
        }
    }
}

#[test]
fn broken_lines() {
    for text in [
        "PROXY  TCP4 192.0.2.1 192.0.2.2 123 80\r\n",
        "PROXYTCP4 192.0.2.1 192.0.2.2 123 80\r\n",
        "PROXY \r\n",
        "PROXY\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY TCP 192.0.2.1 192.0.2.2 123 80\r\n",
        "PROXY TCP5 192.0.2.1 192.0.2.2 123 80\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 123 80\r\n",
        "PROXY tcp4 192.0.2.1 192.0.2.2 123 80\r\n",
        "PROXY TCP4 192.0.2.1  192.0.2.2 123 80\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123 80 \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123 80 90\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 80\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 80\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 -1 80\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 0x1 80\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2  80\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 80\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123 99999\r\n",
        "PROXY TCP4 192.0.2.256 192.0.2.2 123 80\r\n",
        "PROXY TCP4 192.0.02.1 192.0.2.2 123 80\r\n",
        "PROXY TCP4 192.0.2 192.0.2.2 123 80\r\n",
        "PROXY TCP4 ::1 ::1 123 80\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 123 80\r\n",
        "PROXY TCP6 ::1 ::x 123 80\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123 80\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 123 80\r\r\n",
        "PROXY TCP4 192.0.2.1\t192.0.2.2 123 80\r\n",
        "PROXY UNKNOWN\n",
        "PROXY UNKNOWN\r\r\n",
        "PROXY UNKNOWN \rx\r\n",
        "PROXY UNKNOWN \u{e9}\n",
    ] {
        let got = ProxyHeader::read(text.as_bytes());
        assert_eq!(got, Err(ProxyHeaderError::Broken), "{text:?}");
    }
    let long = |filling: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(filling));
    assert_eq!(whole(long(91).as_bytes()).0, LINE_MAX);
    let got = ProxyHeader::read(long(92).as_bytes());
    assert_eq!(got, Err(ProxyHeaderError::Broken));
}

#[test]
fn what_begins_otherwise_is_none_at_its_first_byte() {
    for text in [
        "G",
        "GET / HTTP/1.1\r\n",
        "PR0",
        "proxy UNKNOWN\r\n",
        "\r\n\r\n\r",
        "\x16\x03\x01",
        "\n",
    ] {
        let got = ProxyHeader::read(text.as_bytes());
        assert_eq!(got, Err(ProxyHeaderError::Missing), "{text:?}");
    }
    let got = ProxyHeader::read(b"PROXY\t");
    assert_eq!(got, Err(ProxyHeaderError::Broken));
    assert_eq!(ProxyHeader::read(b""), Ok(ProxyPreamble::Partial));
}

#[test]
fn binary_headers() {
    let v4 = ["192.0.2.1:123", "192.0.2.2:80"];
    let v6 = ["[2001:db8::1]:123", "[2001:db8::2]:80"];
    for (bytes, named) in [
        (v2(1, 0x11, &v4_block(&[])), Some(v4)),
        (v2(1, 0x21, &v6_block()), Some(v6)),
        (
            v2(1, 0x11, &v4_block(&tlv(0xee, b"unknown type"))),
            Some(v4),
        ),
        (v2(1, 0x11, &v4_block(&[0; 9])), Some(v4)),
        // LOCAL, whatever it says.
        (v2(0, 0, &[]), None),
        (v2(0, 0x11, &v4_block(&[])), None),
        (v2(0, 0x11, &[1, 2, 3]), None),
        (v2(0, 0xff, &[7; 300]), None),
        // No stream over IP.
        (v2(1, 0, &[]), None),
        (v2(1, 0x01, &[]), None),
        (v2(1, 0x12, &v4_block(&[])), None),
        (v2(1, 0x22, &v6_block()), None),
        (v2(1, 0x31, &[b'/'; UNIX_ADDRESSES]), None),
    ] {
        let joined = [&bytes[..], b"GET / HTTP/1.1\r\n"].concat();
        let (length, header) = whole(&joined);
        assert_eq!(length, bytes.len());
        let got = header.map(|header| [header.source, header.destination]);
        let named = named.map(|named| named.map(|address| address.parse().unwrap()));
        assert_eq!(got, named, "{bytes:x?}");
    }
    // A family that does not exist: its addresses are not taken for TLVs.
    assert_eq!(whole(&v2(1, 0x41, &tlv(9, b"x"))).1, None);
    assert_eq!(whole(&v2(1, 0x41, &[1, 2, 3, 4])).1, None);
}

#[test]
fn broken_binary_headers() {
    use ProxyHeaderError::{Broken, Checksum, TooLarge, Version};
    let mut third = v2(1, 0x11, &v4_block(&[]));
    third[12] = 0x31;
    let mut first = third.clone();
    first[12] = 0x11;
    for (bytes, error) in [
        (third, Version(3)),
        (first, Version(1)),
        (v2(2, 0x11, &v4_block(&[])), Broken),
        (v2(15, 0, &[]), Broken),
        (v2(1, 0x11, &[]), Broken),
        (v2(1, 0x11, &v4_block(&[])[..11]), Broken),
        (v2(1, 0x21, &v4_block(&[])), Broken),
        (v2(1, 0x31, &v6_block()), Broken),
        (v2(1, 0x11, &v4_block(&[1])), Broken),
        (v2(1, 0x11, &v4_block(&[1, 0, 2, 7])), Broken),
        (
            v2(1, 0x11, &v4_block(&tlv(TYPE_CHECKSUM, b"4321"))),
            Checksum,
        ),
        (v2(1, 0x11, &v4_block(&tlv(TYPE_CHECKSUM, b"432"))), Broken),
        (v2(1, 0, &[0; PROXY_HEADER_MAX]), TooLarge),
    ] {
        assert_eq!(ProxyHeader::read(&bytes), Err(error), "{bytes:x?}");
    }
    // Said as soon as it is known, not after what would have to come.
    let huge = v2(1, 0x11, &[0; PROXY_HEADER_MAX]);
    assert_eq!(ProxyHeader::read(&huge[..FIXED]), Err(TooLarge));
    assert_eq!(
        whole(&v2(1, 0, &tlv(9, &[0; PROXY_HEADER_MAX - FIXED - 3]))).0,
        PROXY_HEADER_MAX
    );
}

/// The check value of the catalogue of CRC algorithms.
#[test]
fn checksums() {
    assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283);
    let tlvs = [
        tlv(1, b"h2"),
        tlv(TYPE_CHECKSUM, &[0; 4]),
        tlv(2, b"a.test"),
    ]
    .concat();
    let mut bytes = v2(1, 0x11, &v4_block(&tlvs));
    let sum = crc32c(bytes.iter().copied()).to_be_bytes();
    let at = FIXED + 12 + 5 + 3;
    bytes[at..at + 4].copy_from_slice(&sum);
    let header = whole(&bytes).1.unwrap();
    assert_eq!(value(&header, "0x03").as_deref(), Some(&sum[..]));
    // With another type it is no checksum.
    for index in (FIXED..bytes.len()).filter(|index| *index != at - 3) {
        let mut changed = bytes.clone();
        changed[index] ^= 1;
        assert!(ProxyHeader::read(&changed).is_err(), "byte {index}");
    }
}

/// Each checksum costs a look at every byte: one is enough.
#[test]
fn a_second_checksum_is_refused() {
    let tlvs = [tlv(TYPE_CHECKSUM, &[0; 4]), tlv(TYPE_CHECKSUM, &[0; 4])].concat();
    let mut bytes = v2(1, 0x11, &v4_block(&tlvs));
    let sum = crc32c(bytes.iter().copied()).to_be_bytes();
    let at = FIXED + 12 + 3;
    bytes[at..at + 4].copy_from_slice(&sum);
    let refused = ProxyHeader::read(&bytes);
    assert_eq!(refused, Err(ProxyHeaderError::Broken));
}

fn value(header: &ProxyHeader, name: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    header.tlv(name, &mut out).then_some(out)
}

#[test]
fn tlvs_by_name() {
    let about_tls = [
        &[1, 0, 0, 0, 255][..],
        &tlv(0x21, b"TLSv1.3"),
        &tlv(0x22, b"client.test"),
        &tlv(0x23, b"AES"),
        &tlv(0x24, b"SHA256"),
        &tlv(0x25, b"RSA2048"),
    ]
    .concat();
    let tlvs = [
        tlv(0x01, b"h2"),
        tlv(0x02, b"a.test"),
        tlv(0x05, b"id"),
        tlv(TYPE_TLS, &about_tls),
        tlv(0x30, b"blue"),
        tlv(0xae, b"own"),
        tlv(0xae, b"second"),
        tlv(0x04, b""),
    ]
    .concat();
    let header = whole(&v2(1, 0x11, &v4_block(&tlvs))).1.unwrap();
    for (name, expected) in [
        ("alpn", Some("h2")),
        ("0x01", Some("h2")),
        ("0x1", Some("h2")),
        ("authority", Some("a.test")),
        ("unique_id", Some("id")),
        ("netns", Some("blue")),
        ("0xae", Some("own")),
        ("0x000ae", Some("own")),
        ("0x04", Some("")),
        ("ssl_verify", Some("255")),
        ("ssl_version", Some("TLSv1.3")),
        ("ssl_0x21", Some("TLSv1.3")),
        ("ssl_cn", Some("client.test")),
        ("ssl_cipher", Some("AES")),
        ("ssl_sig_alg", Some("SHA256")),
        ("ssl_key_alg", Some("RSA2048")),
        ("0x0f", None),
        ("0x", Some("")),
        ("0x1ae", None),
        ("0x+1", None),
        ("nothing", None),
        ("ssl_nothing", None),
        ("ssl_0x99", None),
        ("", None),
    ] {
        // A number without digits is 0, and there is none of that type.
        let expected = expected.filter(|_| name != "0x");
        let got = value(&header, name).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(got.as_deref(), expected, "{name}");
    }
    assert_eq!(value(&header, "ssl").as_deref(), Some(&about_tls[..]));
    let plain = whole(&v2(1, 0x11, &v4_block(&tlv(TYPE_TLS, b"1234"))))
        .1
        .unwrap();
    assert_eq!(value(&plain, "ssl_verify"), None, "too short");
    assert_eq!(value(&plain, "ssl_cn"), None);
}

#[test]
fn what_is_written_is_read() {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    for (source, destination, read) in [
        (
            "192.0.2.1:5",
            "192.0.2.2:80",
            ["192.0.2.1:5", "192.0.2.2:80"],
        ),
        (
            "[2001:db8::1]:5",
            "[::1]:80",
            ["[2001:db8::1]:5", "[::1]:80"],
        ),
        (
            "[2001:db8::1]:5",
            "192.0.2.2:80",
            ["[2001:db8::1]:5", "[::ffff:192.0.2.2]:80"],
        ),
        (
            "192.0.2.1:0",
            "[::1]:80",
            ["[::ffff:192.0.2.1]:0", "[::1]:80"],
        ),
    ] {
        let header = ProxyHeader::new(address(source), address(destination));
        for write in [ProxyHeader::write_line, ProxyHeader::write_binary] {
            let mut bytes = Vec::new();
            write(Some(&header), &mut bytes);
            let (length, got) = whole(&bytes);
            assert_eq!(length, bytes.len());
            let got = got.map(|header| [header.source, header.destination]);
            assert_eq!(got, Some(read.map(address)));
        }
    }
    for write in [ProxyHeader::write_line, ProxyHeader::write_binary] {
        let mut bytes = Vec::new();
        write(None, &mut bytes);
        assert_eq!(whole(&bytes), (bytes.len(), None));
    }
}

fn headers() -> impl Strategy<Value = Vec<u8>> {
    let tlvs = proptest::collection::vec((any::<u8>(), ".{0,20}"), 0..4).prop_map(|tlvs| {
        let own = |(kind, text): &(u8, String)| tlv(kind | 0x80, text.as_bytes());
        tlvs.iter().flat_map(own).collect::<Vec<u8>>()
    });
    prop_oneof![
        (
            any::<[u8; 4]>(),
            any::<[u8; 4]>(),
            any::<u16>(),
            any::<u16>()
        )
            .prop_map(|(source, destination, from, to)| {
                let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
                format!("PROXY TCP4 {source} {destination} {from} {to}\r\n").into_bytes()
            }),
        "PROXY UNKNOWN( [ -~]{0,40})?\r\n".prop_map(String::into_bytes),
        (0..2u8, tlvs).prop_map(|(command, tlvs)| v2(command, 0x11, &v4_block(&tlvs))),
        Just(v2(1, 0x21, &v6_block())),
    ]
}

proptest! {
    /// However much of a header is there, it is not yet one; and what follows it changes nothing.
    #[test]
    fn every_beginning_is_partial(bytes in headers(), rest in proptest::collection::vec(any::<u8>(), 0..40)) {
        for end in 0..bytes.len() {
            prop_assert_eq!(ProxyHeader::read(&bytes[..end]), Ok(ProxyPreamble::Partial));
        }
        let alone = ProxyHeader::read(&bytes);
        let joined = ProxyHeader::read(&[&bytes[..], &rest].concat());
        prop_assert_eq!(alone, joined);
    }

    /// A verdict on a beginning is one on whatever it is the beginning of.
    #[test]
    fn broken_stays_broken(mut bytes in headers(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let mut verdict = None;
        for end in 0..=bytes.len() {
            match ProxyHeader::read(&bytes[..end]) {
                Ok(ProxyPreamble::Partial) => prop_assert!(verdict.is_none()),
                other => {
                    let first = verdict.get_or_insert(other);
                    let again = ProxyHeader::read(&bytes[..end]);
                    prop_assert_eq!(&*first, &again);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = ProxyHeader::read(&bytes);
        let _ = ProxyHeader::read(&[&SIGNATURE[..], &[0x21], &bytes].concat());
    }
}
