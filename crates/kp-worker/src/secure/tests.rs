//! Two transports of one process at the ends of a socket pair: what a peer sees, without a clock and without events.

use super::*;
use crate::output::Output;
use kp_config::LoadOptions;
use kp_config::model::{ServerId, TlsIdentityId};
use kp_tls::Tls;
use std::os::unix::net::UnixStream;

const TEXT: &str = "events {} http {
    server { listen 127.0.0.1:1 ssl; server_name a.test; ssl_certificate pair; ssl_certificate_key pair;
        ssl_buffer_size RECORD;
        location / { proxy_pass https://127.0.0.1:2; } } }";

/// Both roles, loaded once with a certificate made for the purpose.
fn tls(record: &str) -> Tls {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(["a.test".to_owned()]).expect("names");
    let certificate = params.self_signed(&key).expect("a certificate");
    let pair = certificate.pem() + &key.serialize_pem();
    let folder = tempfile::tempdir().expect("a folder");
    let text = TEXT.replace("RECORD", record);
    std::fs::write(folder.path().join("kp.conf"), text).expect("written");
    let loaded = kp_config::load(&LoadOptions {
        path: "kp.conf".into(),
        prefix: folder.path().to_owned(),
        ..LoadOptions::default()
    });
    let config = loaded.config.expect("a configuration");
    let mut read = |_: &std::path::Path| Ok(pair.clone().into_bytes());
    let (tls, _) = Tls::load(&config, &mut read, None, 1_800_000_000).expect("loaded");
    tls
}

struct Ends {
    client: Transport,
    server: Transport,
    pool: Buffers,
}

/// A socket pair whose write buffers are as small as the kernel allows.
fn narrow() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a pair");
    for end in [&near, &far] {
        end.set_nonblocking(true).expect("nonblocking");
    }
    (near, far)
}

/// Before the handshake.
fn fresh(record: &str) -> (Ends, Tls) {
    let tls = tls(record);
    let (near, far) = narrow();
    let partner = Partner {
        identity: TlsIdentityId(0),
        tls: UpstreamTls::default(),
        peer: 1,
        number: 1,
    };
    let ends = Ends {
        client: Transport::with_tls(near.into(), true, Secure::connecting(partner)),
        server: Transport::with_tls(far.into(), true, Secure::accepting()),
        pool: Buffers::default(),
    };
    (ends, tls)
}

/// Lets both sides go on until both are open.
fn open() -> Ends {
    open_with("16k")
}

fn open_with(record: &str) -> Ends {
    let (mut ends, tls) = fresh(record);
    let upstream = tls.upstream(TlsIdentityId(0)).expect("an identity");
    let session = upstream.connect(1, "a.test").expect("a session");
    let begun = ends.client.begin_shake(session, &mut ends.pool);
    assert!(matches!(begun, Shake::Blocked));
    let mut plain = Vec::new();
    let (mut near_open, mut far_open) = (false, false);
    for _ in 0..8 {
        ends.server.ask();
        let shake = match ends.server.shake(&mut plain, &mut ends.pool) {
            Shake::Hello(_) => {
                let server = tls.server(ServerId(0)).expect("a host");
                let session = server.accept(&mut Vec::new()).expect("a session");
                let facts = TlsFacts::default();
                ends.server
                    .answer_hello(session, facts, &mut plain, &mut ends.pool)
            }
            other => other,
        };
        far_open |= matches!(shake, Shake::Opened);
        ends.client.ask();
        near_open |= matches!(ends.client.shake(&mut plain, &mut ends.pool), Shake::Opened);
    }
    assert!(near_open && far_open && plain.is_empty());
    ends
}

fn read(transport: &mut Transport, pool: &mut Buffers, max: usize) -> (Vec<u8>, Received) {
    let mut bytes = Vec::new();
    transport.ask();
    let received = transport.receive(&mut bytes, max, pool);
    (bytes, received)
}

fn secure(transport: &Transport) -> &Secure {
    transport.secure.as_deref().expect("TLS")
}

/// Writes until the socket is full; returns what was taken.
fn fill(ends: &mut Ends) -> Vec<u8> {
    let mut taken = Vec::new();
    let piece: Vec<u8> = (0..50_000u32).map(|n| n as u8).collect();
    while ends.server.writable {
        let sent = ends
            .server
            .send(&[IoSlice::new(&piece)], piece.len(), &mut ends.pool);
        match sent {
            Sent::Bytes(count) => taken.extend_from_slice(&piece[..count]),
            other => panic!("{other:?}"),
        }
        assert!(taken.len() < 100 << 20);
    }
    taken
}

fn random(seed: &mut u64) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 8) as usize
}

#[test]
fn an_idle_connection_holds_no_buffer() {
    let mut ends = open();
    let (server, client) = (b"over there".as_slice(), b"GET / HTTP/1.1".as_slice());
    ends.client
        .send(&[IoSlice::new(client)], client.len(), &mut ends.pool);
    let (bytes, received) = read(&mut ends.server, &mut ends.pool, 4096);
    assert!(matches!(received, Received::Bytes(14)));
    assert_eq!(bytes, client);
    ends.server
        .send(&[IoSlice::new(server)], server.len(), &mut ends.pool);
    assert_eq!(read(&mut ends.client, &mut ends.pool, 4096).0, server);
    for end in [&ends.client, &ends.server] {
        assert_eq!(secure(end).outgoing.capacity(), 0);
        assert!(secure(end).is_between_records() && !end.readable);
    }
}

#[test]
fn what_the_kernel_does_not_take_is_kept_as_ciphertext_and_counts_as_unsent() {
    let mut ends = open();
    let mut output = Output::default();
    let piece = vec![7; 100_000];
    let mut pushed = 0;
    while ends.server.writable {
        output.push(&mut ends.server, &[&piece], &mut ends.pool);
        pushed += piece.len();
    }
    let held = ends.server.held();
    assert!(held > 0 && output.len() >= held);
    let (mut seen, mut moved) = (0, 0);
    while seen < pushed {
        seen += read(&mut ends.client, &mut ends.pool, 30_000).0.len();
        ends.server.writable = true;
        match output.push(&mut ends.server, &[], &mut ends.pool) {
            Sent::Moved => moved += 1,
            Sent::Bytes(_) => {}
            Sent::Broken(errno) => panic!("errno {errno}"),
        }
    }
    assert!(output.is_empty() && moved > 0 && seen == pushed);
    assert_eq!(secure(&ends.server).outgoing.capacity(), 0);
}

/// Ciphertext that left when the event came is progress, too: a slow reader is no dead one.
#[test]
fn an_output_learns_what_left_behind_its_back() {
    let mut ends = open();
    let mut output = Output::default();
    let piece = vec![7; 100_000];
    while ends.server.writable {
        output.push(&mut ends.server, &[&piece], &mut ends.pool);
    }
    let before = output.len();
    read(&mut ends.client, &mut ends.pool, 90_000);
    ends.server.writable = true;
    assert_eq!(ends.server.flush_sealed(&mut ends.pool), Sent::Moved);
    ends.server.writable = false;
    let sent = output.push(&mut ends.server, &[], &mut ends.pool);
    assert_eq!(sent, Sent::Moved);
    assert!(output.len() < before);
}

#[test]
fn order_survives_any_cut() {
    for seed in 1..12u64 {
        let mut seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let record = ["16k", "4k", "700"][seed as usize % 3];
        let mut ends = open_with(record);
        let mut output = Output::default();
        let (mut expected, mut seen) = (Vec::<u8>::new(), Vec::<u8>::new());
        for _ in 0..40 {
            let count = random(&mut seed) % 20;
            let stretches: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    let length = random(&mut seed) % [10, 900, 40_000][count % 3];
                    (0..length).map(|_| random(&mut seed) as u8).collect()
                })
                .collect();
            let more: Vec<&[u8]> = stretches.iter().map(Vec::as_slice).collect();
            expected.extend(stretches.iter().flatten());
            output.push(&mut ends.server, &more, &mut ends.pool);
            let max = random(&mut seed) % 60_000 + 1;
            seen.extend(read(&mut ends.client, &mut ends.pool, max).0);
            ends.server.writable |= random(&mut seed).is_multiple_of(3);
        }
        loop {
            ends.server.writable = true;
            output.push(&mut ends.server, &[], &mut ends.pool);
            let (bytes, _) = read(&mut ends.client, &mut ends.pool, 1 << 20);
            if bytes.is_empty() && output.is_empty() {
                break;
            }
            seen.extend(bytes);
        }
        assert!(
            seen == expected,
            "{} of {} bytes",
            seen.len(),
            expected.len()
        );
    }
}

/// Records are 16 KiB; who asks for less gets one, and the rest with the next read, without an event.
#[test]
fn a_record_is_never_parted_and_the_rest_stays_readable() {
    let mut ends = open();
    let bytes = vec![1; 60_000];
    ends.server
        .send(&[IoSlice::new(&bytes)], bytes.len(), &mut ends.pool);
    ends.client.ask();
    let (mut seen, mut reads) = (Vec::new(), 0);
    while ends.client.readable {
        let before = seen.len();
        match ends.client.receive(&mut seen, 1, &mut ends.pool) {
            Received::Bytes(count) => {
                assert!(count <= 16 * 1024 && seen.len() == before + count);
                reads += 1;
            }
            other => assert!(matches!(other, Received::Nothing)),
        }
    }
    assert_eq!((seen.len(), reads), (60_000, 4));
}

#[test]
fn close_notify_is_an_end_and_without_it_the_end_is_a_cut() {
    let mut ends = open();
    ends.server.send(&[IoSlice::new(b"all")], 3, &mut ends.pool);
    ends.server.part(&mut ends.pool);
    drop(ends.server);
    let (bytes, received) = read(&mut ends.client, &mut ends.pool, 100);
    assert!(bytes == b"all" && matches!(received, Received::Bytes(3)));
    assert!(ends.client.readable, "the end is still to be read");
    assert!(ends.client.ending, "the connection is of no further use");
    let (_, received) = read(&mut ends.client, &mut ends.pool, 100);
    assert!(matches!(received, Received::End));

    let mut ends = open();
    ends.server
        .send(&[IoSlice::new(b"all?")], 4, &mut ends.pool);
    ends.server.break_off();
    ends.server.part(&mut ends.pool);
    drop(ends.server);
    assert_eq!(read(&mut ends.client, &mut ends.pool, 100).0, b"all?");
    let (_, received) = read(&mut ends.client, &mut ends.pool, 100);
    assert!(matches!(received, Received::Cut));
}

#[test]
fn the_write_side_ends_behind_what_waits_and_the_other_stays_open() {
    let mut ends = open();
    let taken = fill(&mut ends);
    assert!(ends.server.end(&mut ends.pool));
    let mut seen = Vec::new();
    let end = loop {
        let (bytes, received) = read(&mut ends.client, &mut ends.pool, 100_000);
        seen.extend(bytes);
        ends.server.writable = true;
        ends.server.flush_sealed(&mut ends.pool);
        if !matches!(received, Received::Bytes(_)) {
            break received;
        }
    };
    assert!(matches!(end, Received::End) && seen == taken);
    ends.client
        .send(&[IoSlice::new(b"still")], 5, &mut ends.pool);
    assert_eq!(read(&mut ends.server, &mut ends.pool, 100).0, b"still");
    let sent = ends.server.send(&[IoSlice::new(b"x")], 1, &mut ends.pool);
    assert!(matches!(sent, Sent::Broken(_)));
}

#[test]
fn a_broken_record_breaks_the_connection_and_is_told_once() {
    let mut ends = open();
    ends.server
        .send(&[IoSlice::new(b"good")], 4, &mut ends.pool);
    ends.server.write(&[
        23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
    ]);
    assert_eq!(read(&mut ends.client, &mut ends.pool, 100).0, b"good");
    for _ in 0..2 {
        let (_, received) = read(&mut ends.client, &mut ends.pool, 100);
        assert!(matches!(received, Received::Broken(PROTOCOL_ERROR)));
    }
    // The other side hears why.
    let (_, received) = read(&mut ends.server, &mut ends.pool, 100);
    assert!(matches!(received, Received::Broken(PROTOCOL_ERROR)));
    let failure = |end: &mut Transport| end.secure.as_deref_mut().and_then(Secure::take_failure);
    assert!(matches!(
        failure(&mut ends.server),
        Some(TlsError::Alert(_))
    ));
    assert!(failure(&mut ends.server).is_none());
}

#[test]
fn a_hello_in_pieces_is_read_and_what_is_no_hello_is_given_back() {
    let (mut ends, tls) = fresh("16k");
    let upstream = tls.upstream(TlsIdentityId(0)).expect("an identity");
    let mut hello = Vec::new();
    upstream
        .connect(1, "a.test")
        .and_then(|mut session| session.start(&mut hello))
        .expect("a hello");
    let (last, others) = hello.split_last().expect("bytes");
    assert!(ends.server.is_untouched());
    for byte in others {
        ends.client.write(&[*byte]);
        ends.server.ask();
        let shake = ends.server.shake(&mut Vec::new(), &mut ends.pool);
        assert!(matches!(shake, Shake::Blocked));
        assert!(!ends.server.is_untouched());
    }
    ends.client.write(&[*last]);
    ends.server.ask();
    let shake = ends.server.shake(&mut Vec::new(), &mut ends.pool);
    assert!(matches!(shake, Shake::Hello(_)));

    let (mut ends, _) = fresh("16k");
    ends.client.write(b"GET / HTTP/1.0\r\n\r\n");
    ends.server.ask();
    match ends.server.shake(&mut Vec::new(), &mut ends.pool) {
        Shake::Plain(bytes) => assert_eq!(bytes, b"GET / HTTP/1.0\r\n\r\n"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_that_leaves_during_the_handshake_ends_it() {
    let (mut ends, _) = fresh("16k");
    ends.client.write(&[0x16, 3, 1]);
    drop(ends.client);
    ends.server.ask();
    // The bytes and the end came in one event.
    ends.server.ending = true;
    let shake = ends.server.shake(&mut Vec::new(), &mut ends.pool);
    assert!(matches!(shake, Shake::Ended(None)));
}

#[test]
fn quiet_is_who_has_nothing_at_all_to_say() {
    let mut ends = open();
    ends.client.ask();
    assert!(ends.client.is_quiet(&mut ends.pool));
    // Half a record.
    ends.server.write(&[23, 3, 3, 0, 40, 1, 2, 3]);
    ends.client.ask();
    assert!(!ends.client.is_quiet(&mut ends.pool));
    let mut ends = open();
    ends.server.part(&mut ends.pool);
    ends.client.ask();
    assert!(!ends.client.is_quiet(&mut ends.pool), "the end waits");
}
