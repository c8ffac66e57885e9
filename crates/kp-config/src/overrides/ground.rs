//! What changes are measured against: the groups of a configuration, and the addresses of their server lines now.

use super::change::Complaint;
use super::server::{fingerprint, parse_address};
use super::{GroupOverrides, Overrides, Settings};
use crate::model::{PeerAddress, ServerLine, Upstream};
use crate::suggest::nearest;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a peer takes of a zone's `SIZE`.
pub const ZONE_BYTES_PER_PEER: u64 = 512;
/// Sizes are proposed in these steps, nginx's smallest zone.
const ZONE_STEP: u64 = 32 << 10;
/// How many names a complaint lists at most.
const NAMES_MAX: usize = 8;

/// The addresses of server lines that are looked up while kp runs, by the numbers of group and line.
pub type Resolved = BTreeMap<(usize, usize), Vec<PeerAddress>>;

/// The ground.
#[derive(Debug)]
pub struct Ground<'a> {
    upstreams: &'a [Upstream],
    places: Vec<Vec<Place<'a>>>,
    /// Of the groups that were asked about.
    finders: Vec<OnceCell<Finder<'a>>>,
}

/// What is asked for each change, so that a batch does not go through all of a group for each of its lines.
#[derive(Debug)]
struct Finder<'a> {
    /// Server lines by their name.
    lines: HashMap<&'a str, Vec<&'a ServerLine>>,
    /// Numbers of places by the name of their line.
    by_name: HashMap<&'a str, Vec<usize>>,
    /// And by their address.
    by_text: HashMap<String, Vec<usize>>,
    fingerprint: OnceCell<u64>,
}

impl<'a> Finder<'a> {
    fn new(upstream: Option<&'a Upstream>, places: &[Place<'a>]) -> Self {
        let mut finder = Self {
            lines: HashMap::new(),
            by_name: HashMap::new(),
            by_text: HashMap::new(),
            fingerprint: OnceCell::new(),
        };
        for line in upstream.into_iter().flat_map(|upstream| &upstream.servers) {
            finder.lines.entry(&line.name).or_default().push(line);
        }
        for (number, place) in places.iter().enumerate() {
            finder.by_name.entry(place.name).or_default().push(number);
            let by_text = finder.by_text.entry(place.text.clone());
            by_text.or_default().push(number);
        }
        finder
    }
}

/// An address of a server line.
#[derive(Debug)]
pub(super) struct Place<'a> {
    line: usize,
    pub(super) name: &'a str,
    address: &'a PeerAddress,
    pub(super) text: String,
}

/// A peer that belongs to a group now, and what holds for it.
#[derive(Debug)]
pub struct Standing<'a> {
    /// The name of its server line; of one that was added, its address.
    pub name: &'a str,
    /// Where it is.
    pub address: &'a PeerAddress,
    /// Whether it is a backup.
    pub backup: bool,
    /// Whether no server line has it.
    pub added: bool,
    /// What holds.
    pub settings: Settings,
}

impl<'a> Ground<'a> {
    /// The ground of a configuration's groups.
    pub fn new(upstreams: &'a [Upstream], resolved: &'a Resolved) -> Self {
        let places = upstreams.iter().enumerate().map(|(number, upstream)| {
            let lines = upstream.servers.iter().enumerate();
            let places = lines.flat_map(|(line, server)| {
                let found = resolved.get(&(number, line)).into_iter().flatten();
                server
                    .addresses
                    .iter()
                    .chain(found)
                    .map(move |address| Place {
                        line,
                        name: &server.name,
                        address,
                        text: address.to_string(),
                    })
            });
            places.collect()
        });
        Self {
            upstreams,
            places: places.collect(),
            finders: upstreams.iter().map(|_| OnceCell::new()).collect(),
        }
    }

    fn finder(&self, number: usize) -> Option<&Finder<'a>> {
        let finder = self.finders.get(number)?;
        Some(finder.get_or_init(|| Finder::new(self.at(number), self.places(number))))
    }

    /// A group by its name, which has no case.
    ///
    /// # Errors
    ///
    /// There is none, or it is no `upstream`.
    pub fn upstream(&self, name: &str) -> Result<(usize, &'a Upstream), Complaint> {
        let mut named = self.upstreams.iter().enumerate();
        let explicit = |upstream: &&Upstream| !upstream.implicit;
        match named.find(|(_, one)| !one.implicit && one.name.eq_ignore_ascii_case(name)) {
            Some(found) => Ok(found),
            None if self.upstreams.iter().any(|one| one.name == name) => {
                let error = format!("\"{name}\" is an address of \"proxy_pass\", not an upstream");
                let hint = "what is to be changed at run time needs a name: put the address into an upstream block";
                Err(Complaint::new(error).hint(hint))
            }
            None => {
                let names = self.upstreams.iter().filter(explicit);
                let error = format!("there is no upstream \"{name}\"");
                Err(with_near(
                    error,
                    name,
                    "upstreams",
                    names.map(|one| one.name.as_str()),
                ))
            }
        }
    }

    /// A group by its number.
    pub fn at(&self, number: usize) -> Option<&'a Upstream> {
        self.upstreams.get(number)
    }

    fn places(&self, number: usize) -> &[Place<'a>] {
        self.places.get(number).map_or(&[], Vec::as_slice)
    }

    /// The places of the server lines of this name.
    fn places_named(&self, number: usize, name: &str) -> impl Iterator<Item = &Place<'a>> {
        let finder = self.finder(number);
        let found = finder.and_then(|finder| finder.by_name.get(name));
        self.numbered(number, found)
    }

    /// The places of this address.
    pub(super) fn places_at(&self, number: usize, text: &str) -> impl Iterator<Item = &Place<'a>> {
        let finder = self.finder(number);
        let found = finder.and_then(|finder| finder.by_text.get(text));
        self.numbered(number, found)
    }

    fn numbered<'s>(
        &'s self,
        number: usize,
        found: Option<&'s Vec<usize>>,
    ) -> impl Iterator<Item = &'s Place<'a>> {
        let places = self.places(number);
        let found = found.into_iter().flatten();
        found.filter_map(|place| places.get(*place))
    }

    /// Names, addresses and settings of the peers that lines of the configuration have by this name or address.
    pub(super) fn settings_of(
        &self,
        number: usize,
        target: &str,
    ) -> impl Iterator<Item = (&str, &str, Settings)> {
        let at = self.places_at(number, target);
        let others = at.filter(move |place| place.name != target);
        let meant = self.places_named(number, target).chain(others);
        meant.filter_map(move |place| {
            let line = self.at(number)?.servers.get(place.line)?;
            Some((place.name, place.text.as_str(), Settings::of(line)))
        })
    }

    /// The server lines of this name.
    pub(super) fn lines(&self, number: usize, name: &str) -> &[&'a ServerLine] {
        let lines = self.finder(number).map(|finder| &finder.lines);
        let lines = lines.and_then(|lines| lines.get(name));
        lines.map_or(&[], Vec::as_slice)
    }

    /// The group's [`fingerprint`].
    pub(super) fn fingerprint(&self, number: usize) -> u64 {
        let Some((finder, upstream)) = self.finder(number).zip(self.at(number)) else {
            return 0;
        };
        *finder.fingerprint.get_or_init(|| fingerprint(upstream))
    }

    /// The addresses of the server lines of this name that are called otherwise.
    pub(super) fn below(&self, number: usize, name: &str) -> HashSet<&str> {
        let places = self.places_named(number, name);
        let texts = places.map(|place| place.text.as_str());
        texts.filter(|text| *text != name).collect()
    }

    /// The one spelling of what a peer is called: an address as in `$upstream_addr`, else the name of its server line.
    pub fn canonical(&self, number: usize, peer: &str) -> String {
        if let Ok(address) = parse_address(peer) {
            return address.to_string();
        }
        let lines = self
            .at(number)
            .into_iter()
            .flat_map(|upstream| &upstream.servers);
        let mut named = lines.filter(|line| line.name.eq_ignore_ascii_case(peer));
        match named.next() {
            // A socket's path may be written relative to the prefix.
            Some(line) => match line.addresses.as_slice() {
                [address @ PeerAddress::Unix(_)] => address.to_string(),
                _ => line.name.clone(),
            },
            None => peer.to_owned(),
        }
    }

    /// Whether one more peer fits into the group's zone.
    pub(super) fn has_room(&self, number: usize, overrides: &Overrides) -> Result<(), Complaint> {
        let Some(upstream) = self.at(number) else {
            return Ok(());
        };
        let Some(zone) = &upstream.zone else {
            return Ok(());
        };
        let sharers = || {
            let all = self.upstreams.iter().enumerate();
            all.filter(|(_, other)| other.zone.as_ref() == Some(zone))
        };
        let Some(bytes) = sharers().filter_map(|(_, other)| other.zone_bytes).max() else {
            return Ok(());
        };
        let peers = |(number, other): (usize, &Upstream)| {
            let added = overrides
                .group(&other.name)
                .map_or(0, |group| group.added.len());
            self.places(number).len() + added
        };
        let wanted = sharers().map(peers).sum::<usize>() as u64 + 1;
        let capacity = bytes / ZONE_BYTES_PER_PEER;
        if wanted <= capacity {
            return Ok(());
        }
        let needed = (wanted * ZONE_BYTES_PER_PEER).div_ceil(ZONE_STEP) * ZONE_STEP;
        let error = format!(
            "zone \"{zone}\" is full: its {}k hold {capacity} peers",
            bytes / 1024
        );
        Err(Complaint::new(error).hint(format!(
            "{}k would hold this one: write \"zone {zone} {}k;\" and reload",
            needed / 1024,
            needed / 1024
        )))
    }

    /// The peers of a group, as these overrides leave it.
    pub fn standings<'s>(
        &'s self,
        number: usize,
        overrides: &'s Overrides,
    ) -> impl Iterator<Item = Standing<'s>> {
        let name = self
            .at(number)
            .map_or("", |upstream| upstream.name.as_str());
        let group = overrides.group(name);
        let without = group.is_none().then(|| self.standings_of(number, None));
        let with = group.map(|group| self.standings_of(number, Some(group)));
        without
            .into_iter()
            .flatten()
            .chain(with.into_iter().flatten())
    }

    pub(super) fn standings_of<'s>(
        &'s self,
        number: usize,
        group: Option<&'s GroupOverrides>,
    ) -> Vec<Standing<'s>> {
        let index = group.map(GroupOverrides::index);
        let mut standings = Vec::new();
        let servers = self
            .at(number)
            .map_or(&[][..], |upstream| &upstream.servers);
        for place in self.places(number) {
            let Some(line) = servers.get(place.line) else {
                continue;
            };
            let own = Settings::of(line);
            let settings = match &index {
                Some(index) => index.of_line(place.name, &place.text, own),
                None => Some(own),
            };
            standings.extend(settings.map(|settings| Standing {
                name: place.name,
                address: place.address,
                backup: line.backup,
                added: false,
                settings,
            }));
        }
        for line in group.map_or(&[][..], |group| &group.added) {
            let (Some(index), Some(address)) = (&index, line.addresses.first()) else {
                continue;
            };
            standings.push(Standing {
                name: &line.name,
                address,
                backup: line.backup,
                added: true,
                settings: index.of_added(&line.name, &line.name, Settings::of(line)),
            });
        }
        standings
    }

    /// The groups that changes would leave without a usable peer. `passes` says whether health checks let requests go to a
    /// peer of a group.
    ///
    /// A group is measured by the best it has before: peers that are in use and pass their checks; where it has none, peers
    /// that are in use; where no address is known, server lines. So whoever mends a group that is already without peers is
    /// not held up.
    pub fn emptied(
        &self,
        before: &Overrides,
        after: &Overrides,
        passes: impl Fn(&Upstream, &PeerAddress) -> bool,
    ) -> Vec<Emptied<'a>> {
        let groups = self.upstreams.iter().enumerate();
        let changed = groups.filter(|(_, one)| before.group(&one.name) != after.group(&one.name));
        let emptied = changed.filter_map(|(number, upstream)| {
            let (old, new) = (before.group(&upstream.name), after.group(&upstream.name));
            let serves = |group| {
                let standings = self.standings_of(number, group).into_iter();
                let mut used = standings.filter(|standing| standing.settings.is_usable());
                used.any(|standing| passes(upstream, standing.address))
            };
            let is_used = |group| {
                let standings = self.standings_of(number, group);
                standings.iter().any(|one| one.settings.is_usable())
            };
            let is_hoped_for = |group| self.has_usable_line(upstream, group);
            let emptied = |unhealthy| Emptied {
                upstream: &upstream.name,
                unhealthy,
            };
            if serves(old) {
                (!serves(new)).then(|| emptied(is_used(new)))
            } else if is_used(old) {
                (!is_used(new)).then(|| emptied(false))
            } else {
                (is_hoped_for(old) && !is_hoped_for(new)).then(|| emptied(false))
            }
        });
        emptied.collect()
    }

    /// Whether there is a line that will have usable peers when its name is found.
    fn has_usable_line(&self, upstream: &Upstream, group: Option<&GroupOverrides>) -> bool {
        let index = group.map(GroupOverrides::index);
        let mut lines = upstream
            .servers
            .iter()
            .filter(|line| line.resolve.is_some());
        lines.any(|line| {
            let own = Settings::of(line);
            let settings = match &index {
                Some(index) => index.of_line(&line.name, &line.name, own),
                None => Some(own),
            };
            settings.is_some_and(|settings| settings.is_usable())
        })
    }
}

/// A group that would have no usable peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emptied<'a> {
    /// Its name.
    pub upstream: &'a str,
    /// Peers are left, but health checks let no requests go to any of them.
    pub unhealthy: bool,
}

impl GroupOverrides {
    pub(super) fn standings<'s>(
        &'s self,
        number: usize,
        ground: &'s Ground<'_>,
    ) -> impl Iterator<Item = Standing<'s>> {
        ground.standings_of(number, Some(self)).into_iter()
    }
}

/// A complaint about a name, with the one that was probably meant, or those there are.
pub(super) fn with_near<'n>(
    error: String,
    name: &str,
    what: &str,
    names: impl Iterator<Item = &'n str>,
) -> Complaint {
    let mut known: Vec<&str> = Vec::new();
    for name in names {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    let complaint = Complaint::new(error);
    if let Some(near) = nearest(name, known.iter().copied()) {
        return complaint.hint(format!("did you mean \"{near}\"?"));
    }
    if known.is_empty() {
        return complaint;
    }
    let more = if known.len() > NAMES_MAX { ", …" } else { "" };
    let shown: Vec<&str> = known.into_iter().take(NAMES_MAX).collect();
    complaint.hint(format!("{what} are: {}{more}", shown.join(", ")))
}
