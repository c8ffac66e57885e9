//! Whatever comes, in whatever pieces: no panic, no plaintext that was not sent, and the pieces do not matter.

use crate::common::*;
use kp_tls::{
    Certificate, Hello, HelloReader, PairUpdate, Scratch, Stage, Tls, TlsError, fingerprint,
};
use proptest::prelude::*;
use std::io::IoSlice;
use std::sync::{Arc, LazyLock};

static WORLD: LazyLock<(Tls, Made)> = LazyLock::new(|| {
    let root = Authority::new("root");
    let files = Files::default()
        .with_pair("a", &root.issue("a.test"))
        .with("root.crt", root.made.certificate.clone());
    let tls = load(
        &server("ssl_verify_client optional; ssl_client_certificate /etc/kp/root.crt;"),
        &files,
    );
    (tls, root.issue("client"))
});

fn hello_bytes() -> Vec<u8> {
    let config = Arc::new(client_config(&both(), None));
    let mut wire = Vec::new();
    client(&config, "a.test").write_tls(&mut wire).unwrap();
    wire
}

/// What comes of bytes that are given in pieces.
fn outcome(bytes: &[u8], cuts: &[usize]) -> String {
    let (tls, _) = &*WORLD;
    let mut ours = Ours::new(tls, first());
    let mut result = Ok(());
    for piece in pieces(bytes, cuts) {
        result = result.and_then(|()| ours.try_take(piece));
    }
    let stage = ours.session.as_ref().map(kp_tls::Session::stage);
    let alert = ours.out.first() == Some(&0x15);
    format!("{result:?} {stage:?} {alert}")
}

fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(bytes.len());
    let mut start = 0;
    cuts.into_iter()
        .map(|end| {
            let piece = &bytes[start..end];
            start = end;
            piece
        })
        .collect()
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(any::<usize>(), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 3 / 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600), cuts in cuts(), tls in any::<bool>()) {
        let mut bytes = bytes;
        if tls {
            bytes.splice(0..0, [0x16, 3, 1, 0, 40, 1, 0, 0]);
        }
        prop_assert_eq!(outcome(&bytes, &cuts), outcome(&bytes, &[]));
    }

    #[test]
    fn a_damaged_hello_ends_the_same_in_any_pieces(
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cuts in cuts(),
        tail in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = hello_bytes();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.extend(tail);
        prop_assert_eq!(outcome(&bytes, &cuts), outcome(&bytes, &[]));
    }

    #[test]
    fn a_whole_connection_is_the_same_in_any_pieces(
        cuts in cuts(),
        length in 0_usize..60_000,
        max in 0_usize..40_000,
        old in any::<bool>(),
        shows in any::<bool>(),
    ) {
        let (tls, own) = &*WORLD;
        let version = both()[usize::from(old)];
        let config = Arc::new(client_config(&[version], shows.then_some(own)));
        let mut theirs = client(&config, "a.test");
        theirs.set_buffer_limit(None);
        let mut ours = Ours::new(tls, first());
        // The client's flights, cut each by the same rule.
        for _ in 0..4 {
            let mut wire = Vec::new();
            while theirs.wants_write() {
                theirs.write_tls(&mut wire).unwrap();
            }
            for piece in pieces(&wire, &cuts) {
                ours.take(piece).unwrap();
            }
            give(&mut theirs, &mut ours.out);
        }
        prop_assert_eq!(ours.open().stage(), Stage::Open);
        let sent: Vec<u8> = (0..length).map(|at| (at % 253) as u8).collect();
        write(&mut theirs, &sent);
        theirs.send_close_notify();
        let mut wire = Vec::new();
        while theirs.wants_write() {
            theirs.write_tls(&mut wire).unwrap();
        }
        let session = ours.session.as_mut().unwrap();
        let (mut plain, mut out, mut ended) = (Vec::new(), Vec::new(), false);
        for piece in pieces(&wire, &cuts) {
            let mut piece = piece.to_vec();
            loop {
                let before = plain.len();
                let progress = session.receive(&mut piece, &mut plain, &mut out, max).unwrap();
                prop_assert!(plain.len() - before <= max.max(16 * 1024));
                session.send(&[IoSlice::new(b"x")], &mut Scratch::default(), &mut out).unwrap();
                ended = progress.end;
                if !progress.pending {
                    break;
                }
            }
        }
        prop_assert!(plain == sent);
        prop_assert!(ended && session.is_idle());
    }

    #[test]
    fn damage_on_the_way_is_an_error_and_gives_no_plaintext_beyond_it(
        at in any::<usize>(),
        value in 1_u8..,
        cuts in cuts(),
        old in any::<bool>(),
    ) {
        let (tls, _) = &*WORLD;
        let config = Arc::new(client_config(&[both()[usize::from(old)]], None));
        let mut theirs = client(&config, "a.test");
        let mut ours = handshake(tls, first(), &mut theirs);
        let sent: Vec<u8> = (0..40_000).map(|at| (at % 253) as u8).collect();
        write(&mut theirs, &sent);
        let mut wire = Vec::new();
        while theirs.wants_write() {
            theirs.write_tls(&mut wire).unwrap();
        }
        let at = at % wire.len();
        // The version of a record is there to be ignored (RFC 8446 §5.1).
        prop_assume!(!versions(&wire).contains(&at));
        wire[at] ^= value;
        let mut result = Ok(());
        for piece in pieces(&wire, &cuts) {
            result = result.and_then(|()| ours.try_take(piece));
        }
        prop_assert!(sent.starts_with(&ours.plain));
        prop_assert!(ours.plain.len() < sent.len());
        // Only a length that became larger leaves hope that more comes.
        if result.is_ok() {
            prop_assert!(!ours.open().is_idle());
        }
        prop_assert!(!ours.open().has_ended());
    }

    #[test]
    fn a_damaged_certificate_is_shown_or_not_but_survived(
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        cut in any::<usize>(),
    ) {
        let (_, own) = &*WORLD;
        let mut der = own.chain().remove(0).to_vec();
        for (at, value) in changes {
            let at = at % der.len();
            der[at] = value;
        }
        if cut % 4 == 0 {
            der.truncate(cut / 4 % der.len());
        }
        let der = kp_tls::CertificateDer::from(der);
        if let Some(read) = Certificate::parse(&der) {
            let texts = [
                read.subject(),
                read.issuer(),
                read.legacy_subject(),
                read.legacy_issuer(),
                read.serial(),
                read.not_before(),
                read.not_after(),
            ];
            prop_assert!(texts.iter().all(|text| text.bytes().all(|byte| matches!(byte, b' '..=b'~'))));
            prop_assert!(read.days_left(u64::MAX) == 0);
        }
        prop_assert_eq!(fingerprint(&der).len(), 40);
    }

    #[test]
    fn any_bytes_as_an_update_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Some(update) = PairUpdate::decode(&bytes) {
            prop_assert!(WORLD.0.apply(&update).is_err());
        }
    }

    #[test]
    fn any_answer_to_our_hello_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), cuts in cuts()) {
        let tls = load("server { listen 80; location / { proxy_pass https://127.0.0.1:1; } }", &Files::default());
        let upstream = tls.upstream(kp_config::model::TlsIdentityId(0)).unwrap();
        let mut session = upstream.connect(1, "a.test").unwrap();
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        session.start(&mut out).unwrap();
        for piece in pieces(&bytes, &cuts) {
            let _ = session.receive(&mut piece.to_vec(), &mut plain, &mut out, 100);
        }
        prop_assert!(plain.is_empty());
        prop_assert!(session.stage() != Stage::Open);
    }
}

/// Where the second bytes of the records' versions stand.
fn versions(wire: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some([_, _, _, high, low]) = wire.get(at..at + 5) {
        found.push(at + 2);
        at += 5 + usize::from(u16::from_be_bytes([*high, *low]));
    }
    found
}

#[test]
fn versions_that_are_too_old_are_refused() {
    // The version field and the extension of a ClientHello of TLS 1.2 made older.
    let config = Arc::new(client_config(&[&rustls::version::TLS12], None));
    let mut wire = Vec::new();
    client(&config, "a.test").write_tls(&mut wire).unwrap();
    wire[10] = 2;
    while let Some(at) = wire
        .windows(7)
        .position(|part| part == [0, 43, 0, 3, 2, 3, 3])
    {
        wire[at + 6] = 2;
    }
    let mut out = Vec::new();
    let hello = HelloReader::default().read(&wire, &mut out);
    assert!(matches!(hello, Ok(Hello::Complete(_)) | Err(_)));
    let mut ours = Ours::new(&WORLD.0, first());
    assert!(matches!(
        ours.try_take(&wire),
        Err(TlsError::Incompatible(_))
    ));
    // protocol_version, fatal.
    assert_eq!(ours.out, [0x15, 3, 3, 0, 2, 2, 70]);
}
