//! The system's files about names: `/etc/hosts` and `/etc/resolv.conf`, read again when they changed.
//!
//! They are read where they are needed, in the loop: every program of the system reads them so, at every lookup. Here it is
//! two `stat` a second at most, while names are looked up, and a read of 1 MiB at most when a file changed; what is no
//! regular file is not opened, so that nothing waits for a pipe.

use kp_dns::Hosts;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::SystemTime;

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Larger ones are not read.
const FILE_MAX: u64 = 1 << 20;
const PAUSE_MS: u64 = 1000;

/// What they say.
#[derive(Debug, Default)]
pub(super) struct System {
    hosts: Hosts,
    servers: Vec<SocketAddr>,
    stamps: [Option<(SystemTime, u64)>; 2],
    /// When they are looked at next.
    look_ms: u64,
}

impl System {
    /// The addresses of a name that the system itself knows.
    pub(super) fn hosts(&mut self, name: &str, now_ms: u64) -> &[IpAddr] {
        self.look(now_ms);
        self.hosts.find(name)
    }

    /// The name servers of the system.
    pub(super) fn servers(&mut self, now_ms: u64) -> &[SocketAddr] {
        self.look(now_ms);
        &self.servers
    }

    fn look(&mut self, now_ms: u64) {
        if now_ms < self.look_ms {
            return;
        }
        let first = self.look_ms == 0;
        self.look_ms = now_ms + PAUSE_MS;
        let [hosts, resolv_conf] = [HOSTS, RESOLV_CONF].map(|path| stamp(Path::new(path)));
        if first || hosts != self.stamps[0] {
            self.hosts = Hosts::parse(&text(Path::new(HOSTS)));
        }
        if first || resolv_conf != self.stamps[1] {
            let (servers, unusable) = kp_dns::name_servers(&text(Path::new(RESOLV_CONF)));
            self.servers = servers;
            for server in unusable {
                log::warn!(
                    "name server \"{server}\" in {RESOLV_CONF} is not used: it is no address"
                );
            }
        }
        self.stamps = [hosts, resolv_conf];
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let facts = std::fs::metadata(path).ok()?;
    if !facts.is_file() || facts.len() > FILE_MAX {
        return None;
    }
    Some((facts.modified().ok()?, facts.len()))
}

fn text(path: &Path) -> String {
    let regular = stamp(path).is_some();
    let bytes = regular.then(|| kp_sys::io::read_file(path, FILE_MAX).ok());
    let bytes = bytes.flatten().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_itself() {
        let mut system = System::default();
        assert!(!system.hosts("localhost", 1).is_empty());
        assert!(system.hosts("nosuch.invalid", 2).is_empty());
        assert!(!system.servers(3).is_empty());
    }

    #[test]
    fn what_is_no_small_regular_file_is_not_read() {
        for path in ["/dev/zero", "/", "/nonexistent"] {
            assert_eq!(text(Path::new(path)), "", "{path}");
        }
        let directory = tempfile::tempdir().unwrap();
        let large = directory.path().join("large");
        std::fs::File::create(&large)
            .unwrap()
            .set_len(FILE_MAX + 1)
            .unwrap();
        assert_eq!(text(&large), "");
    }
}
