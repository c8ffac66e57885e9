//! Sessions against the library's own client: data both ways, every split of the bytes, ends, and what is not TLS.

use crate::common::*;
use kp_tls::{Hello, HelloReader, Scratch, Stage, TlsError};
use std::io::IoSlice;
use std::sync::Arc;

fn files() -> Files {
    Files::default().with_pair("a", &Authority::new("root").issue("a.test"))
}

#[test]
fn data_flows_both_ways_in_both_versions() {
    let tls = load(&server(""), &files());
    for version in both() {
        let config = Arc::new(client_config(&[version], None));
        let mut theirs = client(&config, "a.test");
        let mut ours = handshake(&tls, first(), &mut theirs);
        assert_eq!(ours.asked_for.as_deref(), Some("a.test"));
        let large: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8).collect();
        theirs.set_buffer_limit(None);
        write(&mut theirs, &large);
        exchange(&mut ours, &mut theirs, usize::MAX).unwrap();
        assert!(ours.plain == large);
        for part in large.chunks(100_000) {
            ours.send(part);
        }
        assert!(received(&mut theirs, &mut ours.out) == large);
        assert!(ours.open().is_idle());
    }
}

#[test]
fn any_split_of_the_bytes_is_the_same() {
    let tls = load(&server(""), &files());
    for version in both() {
        let config = Arc::new(client_config(&[version], None));
        for split in [1, 2, 3, 4, 5, 6, 7, 64, 100, 1000] {
            let mut theirs = client(&config, "a.test");
            let mut ours = Ours::new(&tls, first());
            exchange(&mut ours, &mut theirs, split).unwrap();
            assert_eq!(ours.open().stage(), Stage::Open, "split {split}");
            write(&mut theirs, &[7; 20_000]);
            exchange(&mut ours, &mut theirs, split).unwrap();
            assert!(ours.plain == [7; 20_000], "split {split}");
            ours.send(b"answer");
            give(&mut theirs, &mut ours.out);
            assert_eq!(read_all(&mut theirs), b"answer");
        }
    }
}

#[test]
fn an_end_is_an_end_only_with_close_notify() {
    let tls = load(&server(""), &files());
    for version in both() {
        let config = Arc::new(client_config(&[version], None));
        let mut theirs = client(&config, "a.test");
        let mut ours = handshake(&tls, first(), &mut theirs);
        write(&mut theirs, b"last words");
        exchange(&mut ours, &mut theirs, usize::MAX).unwrap();
        assert!(!ours.progress.end);
        assert!(!ours.open().has_ended());
        theirs.send_close_notify();
        exchange(&mut ours, &mut theirs, usize::MAX).unwrap();
        assert!(ours.progress.end);
        assert!(ours.open().has_ended());
        // What comes after is nobody's.
        ours.take(b"garbage").unwrap();
        assert!(ours.open().is_idle());
        // The other direction is still open: half a close.
        ours.send(b"answer");
        let session = ours.session.as_mut().unwrap();
        session.close(&mut ours.out);
        session.close(&mut ours.out);
        let more = session.send(
            &[IoSlice::new(b"x")],
            &mut Scratch::default(),
            &mut ours.out,
        );
        assert_eq!(more, Err(TlsError::NotOpen));
        let mut wire = ours.out.as_slice();
        theirs.read_tls(&mut wire).unwrap();
        let state = theirs.process_new_packets().unwrap();
        assert!(state.peer_has_closed());
        assert_eq!(read_all(&mut theirs), b"answer");
        assert!(wire.is_empty());
    }
}

#[test]
fn small_stretches_share_a_record_and_order_is_kept() {
    let tls = load(&server("ssl_buffer_size 4k;"), &files());
    let config = Arc::new(client_config(&both(), None));
    let mut theirs = client(&config, "a.test");
    let mut ours = handshake(&tls, first(), &mut theirs);
    let parts: Vec<Vec<u8>> = [10, 0, 5000, 1, 9000, 4096, 3, 3, 20_000, 7]
        .into_iter()
        .zip(1..)
        .map(|(length, fill)| vec![fill; length])
        .collect();
    let stretches: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let session = ours.session.as_mut().unwrap();
    session
        .send(&stretches, &mut Scratch::default(), &mut ours.out)
        .unwrap();
    let mut rest = ours.out.as_slice();
    let mut records = 0;
    while let [_, _, _, high, low, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        assert!(length <= 4096 + 24, "{length}");
        rest = &tail[length..];
        records += 1;
    }
    let content = parts.concat();
    assert!(records <= content.len() / 4096 + 4, "{records} records");
    assert!(received(&mut theirs, &mut ours.out) == content);
}

#[test]
fn what_is_there_stays_there_until_there_is_room() {
    let tls = load(&server(""), &files());
    let config = Arc::new(client_config(&both(), None));
    let mut theirs = client(&config, "a.test");
    theirs.set_buffer_limit(None);
    let mut ours = handshake(&tls, first(), &mut theirs);
    write(&mut theirs, &[9; 100_000]);
    let mut wire = Vec::new();
    while theirs.wants_write() {
        theirs.write_tls(&mut wire).unwrap();
    }
    let session = ours.session.as_mut().unwrap();
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    let mut calls = 0;
    loop {
        let before = plain.len();
        let progress = session
            .receive(&mut wire, &mut plain, &mut out, 20_000)
            .unwrap();
        calls += 1;
        assert!(plain.len() - before <= 20_000);
        // Sending in between disturbs nothing.
        session
            .send(&[IoSlice::new(b"x")], &mut Scratch::default(), &mut out)
            .unwrap();
        if !progress.pending {
            break;
        }
        assert!(!session.is_idle());
    }
    assert_eq!(plain, [9; 100_000]);
    assert!(calls >= 5 && session.is_idle());
    give(&mut theirs, &mut out);
    assert_eq!(read_all(&mut theirs), vec![b'x'; calls]);
}

#[test]
fn http_on_the_port_is_recognised() {
    let mut out = Vec::new();
    for text in [&b"GET / HTTP/1.1\r\n"[..], b"\r\n", b"P", b"\0"] {
        let mut reader = HelloReader::default();
        assert_eq!(reader.read(text, &mut out), Ok(Hello::NotTls));
    }
    assert_eq!(
        HelloReader::default().read(b"", &mut out),
        Ok(Hello::Incomplete)
    );
    assert!(out.is_empty());
}

#[test]
fn what_cannot_become_a_handshake_gets_an_alert() {
    // A handshake record whose message is no ClientHello; a length no record has; SSLv2.
    let wrong: [&[u8]; 3] = [
        &[0x16, 3, 1, 0, 4, 2, 0, 0, 0],
        &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
        &[0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0],
    ];
    for bytes in wrong {
        let mut out = Vec::new();
        let result = HelloReader::default().read(bytes, &mut out);
        assert!(result.is_err(), "{bytes:x?}: {result:?}");
        assert_eq!(out.first(), Some(&0x15), "{bytes:x?}");
    }
}

#[test]
fn a_hello_without_end_is_given_up() {
    // Records of one byte each of a message that says it is 64 KiB long.
    let mut reader = HelloReader::default();
    let (mut received, mut out) = (Vec::new(), Vec::new());
    let mut message = vec![1, 0, 0xff, 0xf0];
    message.resize(70_000, 0);
    let outcome = message.iter().try_for_each(|byte| {
        received.extend_from_slice(&[0x16, 3, 1, 0, 1, *byte]);
        match reader.read(&received, &mut out) {
            Ok(Hello::Incomplete) => Ok(()),
            other => Err(other),
        }
    });
    assert!(matches!(outcome, Err(Err(_))), "{outcome:?}");
}

#[test]
fn a_failed_session_says_so_and_stays_failed() {
    let tls = load(&server(""), &files());
    let config = Arc::new(client_config(&both(), None));
    let mut theirs = client(&config, "a.test");
    let mut ours = handshake(&tls, first(), &mut theirs);
    let broken = [
        0x17, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
    ];
    assert!(matches!(ours.take(&broken), Err(TlsError::Protocol(_))));
    assert!(!ours.out.is_empty(), "an alert");
    assert_eq!(ours.open().stage(), Stage::Failed);
    assert_eq!(ours.take(b"more"), Err(TlsError::NotOpen));
    give(&mut theirs, &mut ours.out);
    assert!(matches!(
        theirs.process_new_packets(),
        Err(rustls::Error::AlertReceived(
            rustls::AlertDescription::BadRecordMac
        ))
    ));
}

#[test]
fn a_name_can_be_rejected() {
    let tls = load(
        "server { listen 443 ssl; ssl_reject_handshake on; }",
        &files(),
    );
    let config = Arc::new(client_config(&both(), None));
    let mut theirs = client(&config, "a.test");
    let mut ours = Ours::new(&tls, first());
    assert_eq!(
        exchange(&mut ours, &mut theirs, usize::MAX),
        Err(TlsError::Rejected)
    );
    assert!(matches!(
        theirs.process_new_packets(),
        Err(rustls::Error::AlertReceived(
            rustls::AlertDescription::UnrecognisedName
        ))
    ));
}

#[test]
fn versions_suites_and_groups_are_those_of_the_configuration() {
    let only13 = load(
        &server(
            "ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256; ssl_ecdh_curve secp384r1;",
        ),
        &files(),
    );
    let config = Arc::new(client_config(&both(), None));
    let ours = handshake(&only13, first(), &mut client(&config, "a.test"));
    let facts = ours.open().facts();
    assert_eq!(facts.protocol, "TLSv1.3");
    assert_eq!(facts.cipher, "TLS_CHACHA20_POLY1305_SHA256");
    assert_eq!(facts.curve, Some("secp384r1"));
    assert!(!facts.reused && facts.chain.is_empty() && facts.alpn.is_none());

    let old = Arc::new(client_config(&[&rustls::version::TLS12], None));
    let mut ours = Ours::new(&only13, first());
    let failed = exchange(&mut ours, &mut client(&old, "a.test"), usize::MAX);
    assert!(
        matches!(failed, Err(TlsError::Incompatible(_))),
        "{failed:?}"
    );

    let only12 = load(
        &server("ssl_protocols TLSv1.2; ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;"),
        &files(),
    );
    let ours = handshake(&only12, first(), &mut client(&config, "a.test"));
    assert_eq!(ours.open().facts().protocol, "TLSv1.2");
    assert_eq!(ours.open().facts().cipher, "ECDHE-ECDSA-AES128-GCM-SHA256");
}

#[test]
fn alpn_takes_http_and_refuses_what_has_none() {
    let tls = load(&server(""), &files());
    let mut config = client_config(&both(), None);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let ours = handshake(
        &tls,
        first(),
        &mut client(&Arc::new(config.clone()), "a.test"),
    );
    assert_eq!(ours.open().facts().alpn, Some(&b"http/1.1"[..]));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut ours = Ours::new(&tls, first());
    let mut theirs = client(&Arc::new(config), "a.test");
    assert!(exchange(&mut ours, &mut theirs, usize::MAX).is_err());
}
