//! What operators have changed while kp runs: which peers were added and removed, which are down or drain, other weights
//! and limits.
//!
//! A [`Change`] is one wish. Applied to what was wished before it makes the [`Overrides`] that are in force; they stand
//! beside the configuration, which says what holds without them. Here is what a change means and when it is refused, and
//! what the overrides make of a server line. Who is told of them, and where they are kept, is the master's affair.
//!
//! A peer is named by its address as in `$upstream_addr`, or by the name of its server line, which stands for all its
//! addresses, those that come later included. Of two settings of a peer the later one holds.

mod change;
mod ground;
mod server;
mod text;

pub use change::{Act, Change, Complaint};
pub use ground::{Emptied, Ground, Resolved, Standing, ZONE_BYTES_PER_PEER};
pub use server::{fingerprint, server_words};
pub use text::{TEXT_MAX_BYTES, Unreadable, quoted, split_words};

use crate::model::{ServerLine, Upstream};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The overrides of all groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// By the group's name as in the configuration; none is empty.
    groups: BTreeMap<String, GroupOverrides>,
}

/// The overrides of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOverrides {
    name: String,
    /// The [`fingerprint`] of the server lines that `added` and `removed` are about.
    lines: u64,
    added: Vec<ServerLine>,
    removed: Vec<String>,
    settings: Vec<(String, Setting)>,
}

/// What is set of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Neither down nor drain, whatever the configuration says.
    Up,
    /// Nothing is sent to it.
    Down,
    /// Only sessions that it has are sent to it.
    Drain,
    /// Its weight, from 1.
    Weight(u32),
    /// The most connections in use; 0 is no limit.
    MaxConns(u32),
}

impl Setting {
    /// Whether both are about the same, so that one takes the other's place.
    fn is_like(self, other: Self) -> bool {
        self.kind() == other.kind()
    }

    fn kind(self) -> u8 {
        match self {
            Self::Up | Self::Down | Self::Drain => 0,
            Self::Weight(_) => 1,
            Self::MaxConns(_) => 2,
        }
    }
}

/// What holds for a peer, as far as it can be changed while kp runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// `weight=`.
    pub weight: u32,
    /// `max_conns=`.
    pub max_conns: u32,
    /// `down`.
    pub down: bool,
    /// `drain`.
    pub drain: bool,
}

impl Settings {
    /// What a server line says.
    pub fn of(line: &ServerLine) -> Self {
        Self {
            weight: line.weight,
            max_conns: line.max_conns,
            down: line.down,
            drain: line.drain,
        }
    }

    /// Whether new requests may be sent there, as far as settings go.
    pub fn is_usable(&self) -> bool {
        !self.down && !self.drain
    }

    fn change(&mut self, setting: Setting) {
        match setting {
            Setting::Up => (self.down, self.drain) = (false, false),
            Setting::Down => (self.down, self.drain) = (true, false),
            Setting::Drain => (self.down, self.drain) = (false, true),
            Setting::Weight(weight) => self.weight = weight,
            Setting::MaxConns(limit) => self.max_conns = limit,
        }
    }
}

impl Overrides {
    /// Those of a group, if it has any.
    pub fn group(&self, name: &str) -> Option<&GroupOverrides> {
        self.groups.get(name)
    }

    /// Those of all groups that have any.
    pub fn groups(&self) -> impl Iterator<Item = &GroupOverrides> {
        self.groups.values()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.groups().map(GroupOverrides::count).sum()
    }

    /// Takes the group's place, or takes it out where nothing is left of it.
    pub fn put(&mut self, mut group: GroupOverrides) {
        if !group.has_membership() {
            group.lines = 0;
        }
        if group.is_empty() {
            self.groups.remove(&group.name);
        } else {
            self.groups.insert(group.name.clone(), group);
        }
    }

    /// Lets a group have what it had before.
    pub fn restore(&mut self, name: &str, before: &Self) {
        self.put(match before.group(name) {
            Some(group) => group.clone(),
            None => GroupOverrides::new(name),
        });
    }

    /// Adds a wish. On error everything is as it was.
    ///
    /// # Errors
    ///
    /// Why it cannot be: nobody of that name, there already, no room.
    pub fn apply(&mut self, change: &Change, ground: &Ground<'_>) -> Result<(), Complaint> {
        if let Change::GiveUp {
            upstream: None,
            peer: None,
        } = change
        {
            self.groups.clear();
            return Ok(());
        }
        let name = change.upstream().unwrap_or_default();
        let (number, upstream) = ground.upstream(name)?;
        if let Change::Add { server, .. } = change {
            server::fits(server, upstream)?;
            ground.has_room(number, self)?;
        }
        // Taken out and put back, since a copy for each of thousands of changes would take long.
        let group = self.groups.remove(&upstream.name);
        let mut group = group.unwrap_or_else(|| GroupOverrides::new(&upstream.name));
        let applied = match change {
            Change::Add { server, .. } => group.add(server, number, ground),
            Change::Peer { peer, act, .. } => group.act(peer, *act, number, ground),
            Change::GiveUp {
                peer: Some(peer), ..
            } => group.give_up(peer, number, ground),
            Change::GiveUp { peer: None, .. } => {
                group = GroupOverrides::new(&upstream.name);
                Ok(())
            }
        };
        self.put(group);
        applied
    }

    /// What becomes of them with another configuration: whoever was added or removed while other server lines stood there
    /// is dropped, since the file decides who belongs to a group, and so is what is about nobody any more. What is dropped
    /// is told, in whole sentences.
    pub fn carry_over(&self, ground: &Ground<'_>) -> (Self, Vec<String>) {
        let (mut carried, mut dropped) = (Self::default(), Vec::new());
        for old in self.groups() {
            let Ok((number, upstream)) = ground.upstream(&old.name) else {
                dropped.push(format!(
                    "there is no upstream \"{}\" any more: its {} run-time changes are dropped",
                    old.name,
                    old.count()
                ));
                continue;
            };
            let mut group = old.clone();
            group.name.clone_from(&upstream.name);
            group.settle(number, upstream, ground, &mut dropped);
            carried.put(group);
        }
        (carried, dropped)
    }
}

impl GroupOverrides {
    /// None of this group.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            lines: 0,
            added: Vec::new(),
            removed: Vec::new(),
            settings: Vec::new(),
        }
    }

    /// The group's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Server lines that were added.
    pub fn added(&self) -> &[ServerLine] {
        &self.added
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        !self.has_membership() && self.settings.is_empty()
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.added.len() + self.removed.len() + self.settings.len()
    }

    /// Whether anybody was added or removed.
    pub fn has_membership(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty()
    }

    /// They made fit for many look-ups.
    pub fn index(&self) -> Index<'_> {
        let mut settings: HashMap<&str, Vec<(usize, Setting)>> = HashMap::new();
        for (order, (peer, setting)) in self.settings.iter().enumerate() {
            settings.entry(peer).or_default().push((order, *setting));
        }
        Index {
            removed: self.removed.iter().map(String::as_str).collect(),
            settings,
        }
    }

    fn add(
        &mut self,
        server: &ServerLine,
        number: usize,
        ground: &Ground<'_>,
    ) -> Result<(), Complaint> {
        let present = ground
            .places_at(number, &server.name)
            .any(|place| !self.is_removed(place.name, &place.text));
        if present || self.added.iter().any(|other| other.name == server.name) {
            let error = format!(
                "upstream \"{}\" has the peer {} already",
                self.name, server.name
            );
            return Err(
                Complaint::new(error).hint("peer weight, max_conns, down, drain and up change it")
            );
        }
        self.settings.retain(|(peer, _)| *peer != server.name);
        self.added.push(server.clone());
        self.lines = ground.fingerprint(number);
        Ok(())
    }

    fn act(
        &mut self,
        peer: &str,
        act: Act,
        number: usize,
        ground: &Ground<'_>,
    ) -> Result<(), Complaint> {
        let target = self.target(peer, number, ground)?;
        match act {
            Act::Remove => self.remove(&target, number, ground),
            Act::Down => self.change(&target, Setting::Down, number, ground),
            Act::Drain => self.change(&target, Setting::Drain, number, ground),
            Act::Weight(weight) => self.change(&target, Setting::Weight(weight), number, ground),
            Act::MaxConns(limit) => self.change(&target, Setting::MaxConns(limit), number, ground),
            Act::Up => {
                self.change(&target, Setting::Up, number, ground);
                // Where the configuration says neither down nor drain there is nothing to be said against it.
                let Some(at) = self
                    .settings
                    .iter()
                    .rposition(|(peer, setting)| *peer == target && *setting == Setting::Up)
                else {
                    return Ok(());
                };
                let up = self.settings.remove(at);
                if !self.is_usable(&target, number, ground)
                    || self.is_line_out(&target, number, ground)
                {
                    self.settings.push(up);
                }
            }
            // It is no override: workers are told to.
            Act::Forget => {}
        }
        Ok(())
    }

    fn remove(&mut self, target: &str, number: usize, ground: &Ground<'_>) {
        let before = self.added.len();
        self.added.retain(|server| server.name != target);
        if self.added.len() == before {
            let below = ground.below(number, target);
            self.removed
                .retain(|peer| peer != target && !below.contains(peer.as_str()));
            self.removed.push(target.to_owned());
        }
        self.forget_settings(target, number, ground, |_| true);
        self.lines = ground.fingerprint(number);
    }

    /// Sets it for a peer, or for all of a server line whatever was set for one of them.
    fn change(&mut self, target: &str, setting: Setting, number: usize, ground: &Ground<'_>) {
        self.forget_settings(target, number, ground, |old| old.is_like(setting));
        self.settings.push((target.to_owned(), setting));
    }

    fn forget_settings(
        &mut self,
        target: &str,
        number: usize,
        ground: &Ground<'_>,
        which: impl Fn(Setting) -> bool,
    ) {
        let below = ground.below(number, target);
        self.settings.retain(|(peer, setting)| {
            !(which(*setting) && (peer == target || below.contains(peer.as_str())))
        });
    }

    fn give_up(&mut self, peer: &str, number: usize, ground: &Ground<'_>) -> Result<(), Complaint> {
        let target = ground.canonical(number, peer);
        let below = ground.below(number, &target);
        let own = |name: &str| name == target || below.contains(name);
        let before = self.count();
        self.added.retain(|server| !own(&server.name));
        self.removed.retain(|peer| !own(peer));
        self.settings.retain(|(peer, _)| !own(peer));
        if self.count() == before {
            // Nothing was changed: that is no error for a peer there is.
            self.target(peer, number, ground)?;
        }
        Ok(())
    }

    /// What a peer is called here: its address, or the name of a server line with several.
    fn target(&self, peer: &str, number: usize, ground: &Ground<'_>) -> Result<String, Complaint> {
        let target = ground.canonical(number, peer);
        let is_added = self.added.iter().any(|server| server.name == target);
        let is_line = !ground.lines(number, &target).is_empty() && !self.removed.contains(&target);
        let is_there = || {
            ground
                .places_at(number, &target)
                .any(|place| !self.is_removed(place.name, &place.text))
        };
        if is_added || is_line || is_there() {
            return Ok(target);
        }
        let standing: Vec<String> = self
            .standings(number, ground)
            .flat_map(|standing| [standing.address.to_string(), standing.name.to_owned()])
            .collect();
        let error = format!("upstream \"{}\" has no peer \"{peer}\"", self.name);
        Err(ground::with_near(
            error,
            peer,
            "peers",
            standing.iter().map(String::as_str),
        ))
    }

    fn is_removed(&self, name: &str, address: &str) -> bool {
        self.removed
            .iter()
            .any(|peer| peer == name || peer == address)
    }

    /// Whether requests may be sent to all peers of this name, as far as settings go.
    fn is_usable(&self, target: &str, number: usize, ground: &Ground<'_>) -> bool {
        let lines = ground.settings_of(number, target);
        let mut lines = lines.filter(|(name, text, _)| !self.is_removed(name, text));
        let holds = |name: &str, text: &str, own| self.settings_of(name, text, own).is_usable();
        lines.all(|(name, text, own)| holds(name, text, own))
            && self
                .added
                .iter()
                .filter(|server| server.name == target)
                .all(|server| holds(target, target, Settings::of(server)))
    }

    /// What holds for one peer that is not removed. For many see [`GroupOverrides::index`].
    fn settings_of(&self, name: &str, address: &str, mut settings: Settings) -> Settings {
        let own = |peer: &str| peer == name || peer == address;
        for (_, setting) in self.settings.iter().filter(|(peer, _)| own(peer)) {
            settings.change(*setting);
        }
        settings
    }

    /// Of a line whose addresses are not known yet the configuration alone says whether it is out.
    fn is_line_out(&self, target: &str, number: usize, ground: &Ground<'_>) -> bool {
        let mut lines = ground.lines(number, target).iter();
        lines.any(|line| line.down || line.drain)
    }

    fn push(&mut self, peer: &str, setting: Setting) {
        self.settings.push((peer.to_owned(), setting));
    }

    /// Of several settings of a peer that are about the same only the last one is kept.
    fn tidy(&mut self) {
        let mut seen: HashSet<(&str, u8)> = HashSet::new();
        let settings = self.settings.iter().rev();
        let kept: Vec<bool> = settings
            .map(|(peer, setting)| seen.insert((peer, setting.kind())))
            .collect();
        let mut kept = kept.into_iter().rev();
        self.settings.retain(|_| kept.next().unwrap_or(true));
    }

    /// Drops what does not belong to these server lines.
    fn settle(
        &mut self,
        number: usize,
        upstream: &Upstream,
        ground: &Ground<'_>,
        dropped: &mut Vec<String>,
    ) {
        let name = &upstream.name;
        let edited = self.has_membership() && self.lines != fingerprint(upstream);
        for server in std::mem::take(&mut self.added) {
            let why = match server::fits(&server, upstream) {
                _ if edited => "the server lines were edited",
                Err(_) => "the balancing method does not know its parameters",
                Ok(()) => {
                    self.added.push(server);
                    continue;
                }
            };
            dropped.push(format!(
                "upstream \"{name}\": {} was added at run time and is dropped: {why}",
                server.name
            ));
        }
        for peer in std::mem::take(&mut self.removed) {
            if edited {
                dropped.push(format!(
                    "upstream \"{name}\": {peer} was removed at run time and is what the configuration says again: the server lines were edited"
                ));
            } else {
                self.removed.push(peer);
            }
        }
        // An address of a name that is looked up may come back.
        let comes = upstream.servers.iter().any(|line| line.resolve.is_some());
        if comes || self.settings.is_empty() {
            return;
        }
        let known = self.names(number, upstream, ground);
        for (peer, setting) in std::mem::take(&mut self.settings) {
            if known.contains(&ground.canonical(number, &peer)) {
                self.settings.push((peer, setting));
            } else {
                dropped.push(format!(
                    "upstream \"{name}\": there is no {peer} any more: what was set for it at run time is dropped"
                ));
            }
        }
    }

    /// What [`GroupOverrides::target`] finds.
    fn names(&self, number: usize, upstream: &Upstream, ground: &Ground<'_>) -> HashSet<String> {
        let mut names = HashSet::new();
        for standing in self.standings(number, ground) {
            names.insert(standing.address.to_string());
            names.insert(standing.name.to_owned());
        }
        let removed: HashSet<&str> = self.removed.iter().map(String::as_str).collect();
        let lines = upstream.servers.iter().map(|line| &line.name);
        names.extend(
            lines
                .filter(|name| !removed.contains(name.as_str()))
                .cloned(),
        );
        names
    }
}

/// The overrides of a group, made fit for many look-ups.
#[derive(Debug)]
pub struct Index<'a> {
    removed: HashSet<&'a str>,
    settings: HashMap<&'a str, Vec<(usize, Setting)>>,
}

impl Index<'_> {
    /// What holds for an address of a server line that says `settings`; `None`: it was removed.
    pub fn of_line(&self, name: &str, address: &str, settings: Settings) -> Option<Settings> {
        let removed = self.removed.contains(name) || self.removed.contains(address);
        (!removed).then(|| self.of_added(name, address, settings))
    }

    /// What holds for a peer that was added.
    pub fn of_added(&self, name: &str, address: &str, mut settings: Settings) -> Settings {
        let named = self.settings.get(name).into_iter().flatten();
        let addressed = (address != name)
            .then(|| self.settings.get(address))
            .flatten();
        let mut all: Vec<_> = named.chain(addressed.into_iter().flatten()).collect();
        all.sort_by_key(|(order, _)| *order);
        for (_, setting) in all {
            settings.change(*setting);
        }
        settings
    }
}

#[cfg(test)]
mod tests;
