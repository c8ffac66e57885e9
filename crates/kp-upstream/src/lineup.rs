//! Who is to belong to a group, and what holds for each: the server lines, the addresses of their names, and what was
//! changed while kp runs.
//!
//! Every process comes to the same order whatever it was told in, since hashes go by position. Does not decide who is
//! asked, and keeps no state of peers: that is the roster's.

use kp_config::model::{PeerAddress, ServerLine, Upstream};
use kp_config::overrides::{GroupOverrides, Settings};
use kp_shm::Key;
use std::collections::HashMap;

/// An address that belongs to a server line now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where to connect.
    pub address: PeerAddress,
    /// Its weight; 0: the line's.
    pub weight: u32,
    /// Whether it is asked only when the others cannot be.
    pub backup: bool,
}

/// A peer that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its server line; those that were added come behind those of the configuration.
    pub(crate) line: usize,
    pub(crate) address: PeerAddress,
    /// The address as in `$upstream_addr`.
    pub(crate) name: String,
    /// Which of those with the same address it is.
    pub(crate) which: Vec<u8>,
    pub(crate) backup: bool,
    pub(crate) settings: Settings,
}

/// The lines of a group.
#[derive(Debug)]
pub(crate) struct Lineup {
    upstream: Upstream,
    /// The addresses of each line of the configuration, each with which of the equal ones it is.
    members: Vec<Vec<(Member, Vec<u8>)>>,
    /// Lines whose addresses were set once.
    known: Vec<bool>,
    overrides: Option<GroupOverrides>,
    scale: i64,
}

impl Lineup {
    /// As the configuration has it.
    pub(crate) fn new(upstream: &Upstream) -> Self {
        let lines = upstream.servers.len();
        let mut members: Vec<Vec<(Member, Vec<u8>)>> = vec![Vec::new(); lines];
        // The same address twice is two peers.
        let mut met: HashMap<&PeerAddress, u64> = HashMap::new();
        for backup in [false, true] {
            for (server, members) in upstream.servers.iter().zip(&mut members) {
                for address in server.addresses.iter().filter(|_| server.backup == backup) {
                    let count = met.entry(address).or_insert(0);
                    let member = Member {
                        address: address.clone(),
                        weight: 0,
                        backup,
                    };
                    members.push((member, count.to_le_bytes().to_vec()));
                    *count += 1;
                }
            }
        }
        Self {
            upstream: upstream.clone(),
            members,
            known: vec![false; lines],
            overrides: None,
            scale: scale_of(upstream, &[]),
        }
    }

    /// The group's configuration.
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// A line of the configuration, or one that was added.
    pub(crate) fn server(&self, line: usize) -> Option<&ServerLine> {
        let lines = &self.upstream.servers;
        lines
            .get(line)
            .or_else(|| self.added().get(line.checked_sub(lines.len())?))
    }

    fn added(&self) -> &[ServerLine] {
        self.overrides.as_ref().map_or(&[], GroupOverrides::added)
    }

    /// Replaces the addresses of a line; whether they were set before. `None`: there is no such line.
    pub(crate) fn set_members(&mut self, line: usize, members: &[Member]) -> Option<bool> {
        let server = self.upstream.servers.get(line)?;
        let mut members = members.to_vec();
        members.sort_by(|a, b| (a.backup, &a.address).cmp(&(b.backup, &b.address)));
        let mut met: HashMap<PeerAddress, usize> = HashMap::new();
        let own = members.into_iter().map(|member| {
            // Two records of a service may be one address.
            let count = met.entry(member.address.clone()).or_insert(0);
            let which = format!("{} {count}", server.name).into_bytes();
            *count += 1;
            (member, which)
        });
        let own = own.collect();
        *self.members.get_mut(line)? = own;
        Some(std::mem::replace(self.known.get_mut(line)?, true))
    }

    /// Replaces what was changed at run time; `false` if it is what it was.
    pub(crate) fn set_overrides(&mut self, overrides: Option<&GroupOverrides>) -> bool {
        if self.overrides.as_ref() == overrides {
            return false;
        }
        self.overrides = overrides.cloned();
        self.scale = scale_of(&self.upstream, self.added());
        true
    }

    /// Everybody, primaries first.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let index = self.overrides.as_ref().map(GroupOverrides::index);
        let mut wanted = Vec::new();
        for (line, (server, members)) in self.upstream.servers.iter().zip(&self.members).enumerate()
        {
            for (member, which) in members {
                let name = member.address.to_string();
                let own = Settings {
                    weight: match member.weight {
                        0 => server.weight.max(1),
                        weight => weight,
                    },
                    ..Settings::of(server)
                };
                let settings = match &index {
                    Some(index) => index.of_line(&server.name, &name, own),
                    None => Some(own),
                };
                wanted.extend(settings.map(|settings| Wanted {
                    line,
                    address: member.address.clone(),
                    name,
                    which: which.clone(),
                    backup: member.backup,
                    settings,
                }));
            }
        }
        for (line, server) in (self.upstream.servers.len()..).zip(self.added()) {
            let (Some(index), Some(address)) = (&index, server.addresses.first()) else {
                continue;
            };
            wanted.push(Wanted {
                line,
                address: address.clone(),
                name: server.name.clone(),
                // As if it were a line of the configuration: what is known of it stays known when it becomes one.
                which: 0u64.to_le_bytes().to_vec(),
                backup: server.backup,
                settings: index.of_added(&server.name, &server.name, Settings::of(server)),
            });
        }
        wanted.sort_by_key(|wanted| (wanted.backup, wanted.line));
        wanted
    }

    /// The size of a weight of 1 in the round.
    pub(crate) fn scale(&self) -> i64 {
        self.scale
    }

    /// What tells the weights of the group from others: a round is comparable only among equal ones. Of lines whose
    /// addresses are found while kp runs the name stands for them: peers come and go within the round.
    pub(crate) fn weights(&self) -> [u8; 16] {
        let mut text = String::new();
        for server in &self.upstream.servers {
            let rest = format!("*{}/{};", server.weight, server.backup);
            for address in &server.addresses {
                text.push_str(&address.to_string());
                text.push_str(&rest);
            }
            if server.addresses.is_empty() {
                text.push_str(&server.name);
                text.push_str(&rest);
            }
        }
        if self.scale() != 1 {
            text.push_str("scaled");
        }
        let overrides = self.overrides.iter().flat_map(GroupOverrides::each);
        for words in overrides {
            let counts = |word: &str| matches!(word, "add" | "remove" | "weight");
            if words.first().is_some_and(|word| counts(word)) {
                text.push_str(&words.join(" "));
                text.push(';');
            }
        }
        Key::of(&[text.as_bytes()]).to_bytes()
    }
}

/// The size of a weight of 1 in the round. Shares that grow need steps smaller than a weight.
fn scale_of(upstream: &Upstream, added: &[ServerLine]) -> i64 {
    let slow = |server: &ServerLine| !server.slow_start.is_zero();
    if upstream.servers.iter().chain(added).any(slow) {
        1000
    } else {
        1
    }
}
