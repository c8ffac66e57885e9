//! What an idle session costs, as the growth of the whole process over many of them. Both ends are ours.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests panic to fail"
)]

use kp_config::model::{ServerId, TlsIdentityId};
use kp_tls::{Hello, HelloReader, Scratch, Session, Stage, Tls};
use std::io::IoSlice;
use std::path::Path;

/// The bound for a whole idle connection is 8 KiB; the session has most of it.
const BYTES_MAX: usize = 6 * 1024;
const CONNECTIONS: usize = 300;

#[test]
fn an_idle_session_is_small() {
    for version in ["TLSv1.3", "TLSv1.2"] {
        let tls = load(version);
        let mut idle = Vec::with_capacity(4 * CONNECTIONS);
        // What handshakes need for a moment is there after these, and is used again.
        for _ in 0..CONNECTIONS / 4 {
            idle.extend(connection(&tls));
        }
        let before = resident_bytes();
        for _ in 0..CONNECTIONS {
            idle.extend(connection(&tls));
        }
        let each = resident_bytes().saturating_sub(before) / (2 * CONNECTIONS);
        assert!(each <= BYTES_MAX, "{version}: {each} bytes each");
        assert!(idle.iter().all(Session::is_idle));
    }
}

fn load(version: &str) -> Tls {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap().pem();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kp.conf");
    let text = format!(
        "events {{}} http {{ server {{ listen 443 ssl; ssl_certificate /c; ssl_certificate_key /k; ssl_protocols {version};
        location / {{ proxy_pass https://127.0.0.1:1; proxy_ssl_session_reuse off; }} }} }}"
    );
    std::fs::write(&path, text).unwrap();
    let loaded = kp_config::load(&kp_config::LoadOptions {
        path,
        ..kp_config::LoadOptions::default()
    });
    let mut read = |path: &Path| {
        Ok(match path.to_str() {
            Some("/c") => certificate.clone().into_bytes(),
            _ => key.serialize_pem().into_bytes(),
        })
    };
    Tls::load(&loaded.config.unwrap(), &mut read, None, 1_780_272_000)
        .unwrap()
        .0
}

/// Both ends of a connection over which something went both ways.
fn connection(tls: &Tls) -> [Session; 2] {
    let upstream = tls.upstream(TlsIdentityId(0)).unwrap();
    let mut near = upstream.connect(1, "a.test").unwrap();
    let (mut to_far, mut to_near, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    near.start(&mut to_far).unwrap();
    let hello = HelloReader::default().read(&to_far, &mut to_near);
    assert!(matches!(hello, Ok(Hello::Complete(_))));
    let mut far = tls
        .server(ServerId(0))
        .unwrap()
        .accept(&mut to_near)
        .unwrap();
    while !to_far.is_empty() {
        far.receive(&mut to_far, &mut plain, &mut to_near, usize::MAX)
            .unwrap();
        near.receive(&mut to_near, &mut plain, &mut to_far, usize::MAX)
            .unwrap();
    }
    let mut scratch = Scratch::default();
    let content = [IoSlice::new(&[1; 10_000])];
    near.send(&content, &mut scratch, &mut to_far).unwrap();
    far.receive(&mut to_far, &mut plain, &mut to_near, usize::MAX)
        .unwrap();
    far.send(&content, &mut scratch, &mut to_near).unwrap();
    for piece in to_near.chunks(3000) {
        near.receive(&mut piece.to_vec(), &mut plain, &mut to_far, usize::MAX)
            .unwrap();
    }
    assert_eq!(plain.len(), 20_000);
    assert_eq!([near.stage(), far.stage()], [Stage::Open; 2]);
    [near, far]
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}
