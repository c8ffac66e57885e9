//! A peer that the library would not let us be: it seals whatever content it likes into records, with the keys of a real
//! handshake. What such a peer may do must not hurt.

use crate::common::*;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use kp_tls::{Stage, TlsError};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, SupportedProtocolVersion, version};
use std::sync::Arc;

const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const DATA: u8 = 23;

struct Sealer {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    is_tls13: bool,
}

impl Sealer {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets), is_tls13: bool) -> Self {
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
            panic!("another suite");
        };
        Self {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap()),
            iv: iv.as_ref().try_into().unwrap(),
            sequence,
            is_tls13,
        }
    }

    /// A record of `content` under the content type `kind`.
    fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut nonce: [u8; NONCE_LEN] = self.iv;
        for (byte, count) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= count;
        }
        let mut body = content.to_vec();
        let mut record = if self.is_tls13 {
            body.push(kind);
            let length = u16::try_from(body.len() + 16).unwrap().to_be_bytes();
            vec![DATA, 3, 3, length[0], length[1]]
        } else {
            let length = u16::try_from(body.len() + 24).unwrap().to_be_bytes();
            vec![kind, 3, 3, length[0], length[1]]
        };
        let associated = if self.is_tls13 {
            record.clone()
        } else {
            let length = u16::try_from(body.len()).unwrap().to_be_bytes();
            let mut bytes = self.sequence.to_be_bytes().to_vec();
            bytes.extend_from_slice(&[kind, 3, 3, length[0], length[1]]);
            record.extend_from_slice(&nonce[4..]);
            bytes
        };
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated),
                &mut body,
            )
            .unwrap();
        record.extend_from_slice(&body);
        self.sequence += 1;
        record
    }
}

/// An open session of ours, and a peer that can send anything.
fn open<'a>(
    tls: &'a kp_tls::Tls,
    version: &'static SupportedProtocolVersion,
) -> (Ours<'a>, Sealer) {
    let mut config = client_config(&[version], None);
    config.enable_secret_extraction = true;
    let mut theirs = client(&Arc::new(config), "a.test");
    let ours = handshake(tls, first(), &mut theirs);
    let ExtractedSecrets { tx, .. } = theirs.dangerous_extract_secrets().unwrap();
    let is_tls13 = version.version == rustls::ProtocolVersion::TLSv1_3;
    (ours, Sealer::new(tx, is_tls13))
}

fn tls() -> kp_tls::Tls {
    let files = Files::default().with_pair("a", &Authority::new("root").issue("a.test"));
    let http = server(
        "ssl_ciphers ECDHE-ECDSA-AES256-GCM-SHA384; ssl_conf_command Ciphersuites TLS_AES_256_GCM_SHA384;",
    );
    load(&http, &files)
}

/// update_not_requested (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

#[test]
fn sending_is_possible_while_half_a_message_is_there() {
    let tls = tls();
    let (mut ours, mut peer) = open(&tls, &version::TLS13);
    ours.take(&peer.seal(DATA, b"before")).unwrap();
    ours.take(&peer.seal(HANDSHAKE, &KEY_UPDATE[..2])).unwrap();
    assert!(!ours.open().is_idle());
    ours.send(b"answer");
    // Half a record on top of half a message.
    let rest = peer.seal(HANDSHAKE, &KEY_UPDATE[2..]);
    ours.take(&rest[..7]).unwrap();
    ours.send(b"answer");
    ours.take(&rest[7..]).unwrap();
    assert!(ours.open().is_idle());
    assert_eq!(ours.open().stage(), Stage::Open);
    assert_eq!(ours.plain, b"before");
    ours.send(b"answer");
    let session = ours.session.as_mut().unwrap();
    session.close(&mut ours.out);
}

#[test]
fn a_message_byte_by_byte_is_the_same_message() {
    let tls = tls();
    let (mut ours, mut peer) = open(&tls, &version::TLS13);
    let mut wire = Vec::new();
    for byte in KEY_UPDATE {
        wire.extend(peer.seal(HANDSHAKE, &[byte]));
    }
    for byte in wire {
        ours.take(&[byte]).unwrap();
        ours.send(b"x");
    }
    assert!(ours.open().is_idle());
}

#[test]
fn data_between_the_halves_of_a_message_is_an_error() {
    let tls = tls();
    let (mut ours, mut peer) = open(&tls, &version::TLS13);
    ours.take(&peer.seal(HANDSHAKE, &KEY_UPDATE[..3])).unwrap();
    assert!(matches!(
        ours.take(&peer.seal(DATA, b"x")),
        Err(TlsError::Protocol(_))
    ));
    assert_eq!(ours.open().stage(), Stage::Failed);
}

#[test]
fn a_message_that_never_ends_is_given_up() {
    let tls = tls();
    let (mut ours, mut peer) = open(&tls, &version::TLS13);
    ours.take(&peer.seal(HANDSHAKE, &[24, 0, 0xff, 0xff]))
        .unwrap();
    let outcome = (0..10_000).try_for_each(|_| ours.take(&peer.seal(HANDSHAKE, &[0])));
    assert_eq!(outcome, Err(TlsError::TooLong));
}

#[test]
fn a_flood_of_what_means_nothing_is_given_up() {
    let tls = tls();
    let (mut ours, mut peer) = open(&tls, &version::TLS13);
    let updates = (0..100).try_for_each(|_| ours.take(&peer.seal(HANDSHAKE, &KEY_UPDATE)));
    assert!(updates.is_err(), "changes of keys");
    for version in [&version::TLS13, &version::TLS12] {
        let (mut ours, mut peer) = open(&tls, version);
        let empty = (0..100).try_for_each(|_| ours.take(&peer.seal(DATA, b"")));
        assert!(empty.is_err(), "empty records");
    }
    let (mut ours, mut peer) = open(&tls, &version::TLS12);
    let warnings = (0..100).try_for_each(|_| ours.take(&peer.seal(ALERT, &[1, 90])));
    assert!(warnings.is_err(), "warnings");
}

#[test]
fn many_small_records_are_done_in_bounded_steps() {
    let tls = tls();
    let (mut ours, mut peer) = open(&tls, &version::TLS13);
    let mut wire = Vec::new();
    for _ in 0..1000 {
        wire.extend(peer.seal(DATA, b"x"));
    }
    let session = ours.session.as_mut().unwrap();
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    let mut calls = 0;
    loop {
        let before = plain.len();
        let progress = session
            .receive(&mut wire, &mut plain, &mut out, usize::MAX)
            .unwrap();
        calls += 1;
        assert!(plain.len() - before <= 64);
        if !progress.pending {
            break;
        }
    }
    assert_eq!(plain, vec![b'x'; 1000]);
    assert!(calls >= 16);
}

#[test]
fn renegotiation_is_refused() {
    let tls = tls();
    let (mut ours, mut peer) = open(&tls, &version::TLS12);
    // The header of a ClientHello is enough: it is refused before it is read.
    let mut hello = vec![1, 0, 0, 43, 3, 3];
    hello.resize(38, 7);
    hello.extend_from_slice(&[0, 0, 2, 0xc0, 0x2b, 1, 0, 0, 0]);
    ours.out.clear();
    let first = ours.take(&peer.seal(HANDSHAKE, &hello));
    let second = first
        .clone()
        .and_then(|()| ours.take(&peer.seal(HANDSHAKE, &hello)));
    assert!(!ours.out.is_empty(), "an alert");
    assert!(second.is_err(), "{first:?} {second:?}");
}

#[test]
fn an_oversized_record_is_refused() {
    let tls = tls();
    for version in [&version::TLS13, &version::TLS12] {
        let (mut ours, mut peer) = open(&tls, version);
        let large = peer.seal(DATA, &vec![0; 16 * 1024 + 1]);
        assert!(ours.take(&large).is_err());
        assert!(ours.plain.is_empty());
    }
}
