//! Run-time changes in a worker: what the master says is in force is taken over within one turn of the loop.

use crate::heritage::message;
use crate::reactor::Worker;
use kp_config::model::UpstreamId;
use kp_config::overrides::{Overrides, quoted, split_words};
use std::os::fd::OwnedFd;

/// What the master tells all workers of a generation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Peers, by group and name, whose failures are to be forgotten.
    pub forget: Vec<(String, String)>,
    /// Everything that is in force.
    pub overrides: Overrides,
}

/// How often what is in force was changed; it numbers the snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Snapshot {
    /// As text, for sealed memory.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = String::new();
        for (upstream, peer) in &self.forget {
            text.push_str(&format!("forget {} {}\n", quoted(upstream), quoted(peer)));
        }
        text.push_str(&self.overrides.to_text());
        text.into_bytes()
    }

    /// What [`Snapshot::encode`] wrote; `None`: something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = std::str::from_utf8(bytes).ok()?;
        let mut forget = Vec::new();
        while let Some((line, after)) = rest.split_once('\n')
            && line.starts_with("forget ")
        {
            let [_, upstream, peer] = <[String; 3]>::try_from(split_words(line).ok()?).ok()?;
            forget.push((upstream, peer));
            rest = after;
        }
        Some(Self {
            forget,
            overrides: Overrides::from_text(rest).ok()?,
        })
    }
}

impl Worker {
    /// The master has changed what is in force. It is told when requests are served by it.
    pub(crate) fn take_overrides(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) {
        let came = fds.into_iter().next();
        let snapshot = came
            .and_then(|fd| kp_sys::memfile::contents(fd).ok())
            .and_then(|bytes| Snapshot::decode(&bytes));
        let Some(snapshot) = snapshot else {
            self.miss("what was changed at run time");
            return;
        };
        let now_ms = self.clock.mono_ms;
        self.steer(&snapshot.overrides);
        for group in self.groups.forget(&snapshot.forget, now_ms) {
            self.welcome(group);
        }
        self.say(bytes);
    }

    fn steer(&mut self, overrides: &Overrides) {
        let applied = self.groups.steer(overrides, self.clock.mono_ms);
        for peer in applied.silenced {
            for handle in self.pool.evict(peer) {
                self.close_pooled(handle);
            }
        }
        if applied.changed.is_empty() {
            return;
        }
        self.sync_probes();
        for group in applied.changed {
            self.welcome(group);
        }
    }

    /// There may be a peer for those who wait for one.
    fn welcome(&mut self, group: UpstreamId) {
        self.call_next(group);
        for key in self.names.waiting_for(group) {
            self.wake(key);
        }
    }
}

impl Version {
    /// The message about the snapshot of this version.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = vec![message::OVERRIDES];
        bytes.extend_from_slice(&self.0.to_be_bytes());
        bytes
    }

    /// The version of such a message, its first byte aside.
    pub fn decode(rest: &[u8]) -> Option<Self> {
        rest.try_into()
            .ok()
            .map(|bytes| Self(u64::from_be_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        let overrides =
            Overrides::from_text("kp-state 1\nupstream a\ndown \"forget x\"\n").unwrap();
        for forget in [
            vec![],
            vec![
                ("a".to_owned(), "b c".to_owned()),
                ("d".to_owned(), "unix:/x".to_owned()),
            ],
        ] {
            let snapshot = Snapshot {
                forget,
                overrides: overrides.clone(),
            };
            assert_eq!(Snapshot::decode(&snapshot.encode()), Some(snapshot));
        }
        for bytes in [&b""[..], b"forget a\n", b"\xff", b"kp-state 2\n"] {
            assert_eq!(Snapshot::decode(bytes), None);
        }
        let version = Version(7);
        assert_eq!(Version::decode(&version.encode()[1..]), Some(version));
        assert_eq!(Version::decode(b"1"), None);
    }
}
