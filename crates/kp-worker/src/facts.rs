//! Facts about a client connection that are found out only when a variable asks.

use crate::client::Client;
use kp_config::model::FileTest;
use kp_proxy::ClientCertificate;
use kp_proxy::context::{Connections, Facts};
use kp_shm::Shm;
use kp_tls::Certificate;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A client connection, for variables; see [`Facts`].
#[derive(Debug)]
pub(crate) struct ConnectionFacts<'a> {
    client: Option<&'a Client>,
    now_unix_ms: u64,
    shm: &'a Shm,
}

impl<'a> ConnectionFacts<'a> {
    pub(crate) fn of(client: Option<&'a Client>, now_unix_ms: u64, shm: &'a Shm) -> Self {
        Self {
            client,
            now_unix_ms,
            shm,
        }
    }
}

impl Facts for ConnectionFacts<'_> {
    fn local_address(&self) -> Option<SocketAddr> {
        kp_sys::socket::local_address(&self.client?.transport.fd).ok()?
    }

    fn tcp_info(&self) -> Option<[u32; 4]> {
        let info = kp_sys::socket::tcp_info(&self.client?.transport.fd).ok()?;
        Some([
            info.rtt_us,
            info.rtt_variation_us,
            info.send_window_segments,
            info.receive_space_bytes,
        ])
    }

    fn file_test(&self, path: &Path, test: FileTest) -> bool {
        let Ok(metadata) = std::fs::metadata(path) else {
            return false;
        };
        match test {
            FileTest::File => metadata.is_file(),
            FileTest::Directory => metadata.is_dir(),
            FileTest::Exists => true,
            FileTest::Executable => {
                std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0
            }
        }
    }

    fn real_path(&self, path: &Path) -> Option<PathBuf> {
        std::fs::canonicalize(path).ok()
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        // getrandom fails only before the pool is seeded, which is before any worker runs.
        let _ = kp_sys::random(&mut bytes);
        bytes
    }

    fn connections(&self) -> Connections {
        crate::pages::connections(&self.shm.counters())
    }

    fn client_certificate(&self, part: ClientCertificate, out: &mut Vec<u8>) -> bool {
        let session = self
            .client
            .and_then(|client| client.transport.secure.as_deref()?.session());
        let Some(der) = session.and_then(|session| session.facts().chain.first()) else {
            return false;
        };
        if let ClientCertificate::Pem = part {
            out.extend_from_slice(kp_tls::to_pem(der).as_bytes());
            return true;
        }
        let Some(parsed) = Certificate::parse(der) else {
            return false;
        };
        let text = match part {
            ClientCertificate::Pem => String::new(),
            ClientCertificate::Subject => parsed.subject(),
            ClientCertificate::Issuer => parsed.issuer(),
            ClientCertificate::LegacySubject => parsed.legacy_subject(),
            ClientCertificate::LegacyIssuer => parsed.legacy_issuer(),
            ClientCertificate::Serial => parsed.serial(),
            ClientCertificate::Fingerprint => kp_tls::fingerprint(der),
            ClientCertificate::Start => parsed.not_before(),
            ClientCertificate::End => parsed.not_after(),
            ClientCertificate::DaysLeft => parsed.days_left(self.now_unix_ms / 1000).to_string(),
        };
        out.extend_from_slice(text.as_bytes());
        true
    }
}
