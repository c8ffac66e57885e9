//! The system's files about names: `/etc/hosts` and `/etc/resolv.conf`, read again when they changed.
//!
//! They are small and local, and every program of the system reads them the same way; they are looked at once a second at
//! most, when a name is looked up.

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
            self.servers = kp_dns::name_servers(&text(Path::new(RESOLV_CONF)));
        }
        self.stamps = [hosts, resolv_conf];
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let facts = std::fs::metadata(path).ok()?;
    Some((facts.modified().ok()?, facts.len()))
}

fn text(path: &Path) -> String {
    let bytes = kp_sys::io::read_file(path, FILE_MAX).unwrap_or_default();
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
}
