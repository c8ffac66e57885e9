//! What is counted for groups and their peers, in the series of shared memory.
//!
//! Attempts are counted as they end. What a peer is like (weight, state, until when it rests) is shown once a second, and
//! when something changed: a look at every peer is too much for each request. Decides nothing about who is asked.

use crate::groups::{Groups, Outcome, PeerId};
use crate::outliers::Answer;
use crate::peer::Peer;
use crate::roster::Roster;
use kp_config::model::UpstreamId;
use kp_shm::{Histogram, PeerCell, PeerFlag, SeriesKind, SeriesRow, UpstreamCell};

/// How often the state of peers is shown while there is something to do anyway.
const SHOW_MS: u64 = 1000;

/// When the state of peers is shown next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    due_ms: u64,
}

impl Default for Shown {
    /// Never, as long as nothing is counted.
    fn default() -> Self {
        Self { due_ms: u64::MAX }
    }
}

impl Shown {
    /// At the end of this turn of the loop.
    pub(crate) fn soon(&mut self) {
        if self.due_ms != u64::MAX {
            self.due_ms = 0;
        }
    }
}

impl Groups {
    /// Counts in labelled series from now on.
    pub fn measure(&mut self) {
        for group in &mut self.groups {
            group.series = Some(group.roster.measure(&mut group.peers));
        }
        self.shown.due_ms = 0;
    }

    /// The series of a peer, where there are any.
    pub fn series(&self, peer: PeerId) -> Option<&SeriesRow> {
        self.peer(peer)?.series.as_ref()
    }

    /// The series of a group, where there are any.
    pub fn group_series(&self, upstream: UpstreamId) -> Option<&SeriesRow> {
        self.groups.get(upstream.index())?.series.as_ref()
    }

    /// Something changed that [`Groups::show`] shows.
    pub fn show_soon(&mut self) {
        self.shown.soon();
    }

    /// Shows the state of all peers, if it is time; called at the end of each turn of the loop.
    pub fn show(&mut self, now_ms: u64) {
        if now_ms < self.shown.due_ms || self.shown.due_ms == u64::MAX {
            return;
        }
        self.shown.due_ms = now_ms + SHOW_MS;
        for group in &self.groups {
            for peer in &group.peers {
                show(peer, group.single, now_ms);
            }
        }
    }
}

impl Roster {
    /// Gives the group and its peers series; those who come later get one, too.
    fn measure(&mut self, peers: &mut [Peer]) -> SeriesRow {
        self.measured = true;
        for peer in peers {
            peer.series = self.series(&peer.name);
        }
        let name = self.upstream().name.as_str();
        let (series, process) = (self.shm.series(), self.process);
        series.claim(SeriesKind::Upstream, &[name], process)
    }

    /// The series of a peer.
    pub(crate) fn series(&self, peer: &str) -> Option<SeriesRow> {
        let labels = [self.upstream().name.as_str(), peer];
        let claim = || {
            let series = self.shm.series();
            series.claim(SeriesKind::Peer, &labels, self.process)
        };
        self.measured.then(claim)
    }
}

/// An attempt has ended like that.
pub(crate) fn attempt(group: Option<&SeriesRow>, peer: Option<&SeriesRow>, answer: &Answer) {
    if let Some(peer) = peer {
        let class = match (answer.header_ms, answer.status) {
            (None, _) => PeerCell::AttemptsNone,
            (_, 0..=199) => PeerCell::Attempts1xx,
            (_, 200..=299) => PeerCell::Attempts2xx,
            (_, 300..=399) => PeerCell::Attempts3xx,
            (_, 400..=499) => PeerCell::Attempts4xx,
            (_, 500..) => PeerCell::Attempts5xx,
        };
        peer.increment(class);
        if answer.outcome == Outcome::Failed {
            peer.increment(PeerCell::Failures);
        }
        if let Some(head_ms) = answer.header_ms {
            peer.observe_ms(Histogram::Head, head_ms.into());
        }
        peer.add(PeerCell::BytesIn, answer.traffic.bytes_in);
        peer.add(PeerCell::BytesOut, answer.traffic.bytes_out);
    }
    if let Some(group) = group {
        if let Some(response_ms) = answer.last_byte_ms {
            group.observe_ms(Histogram::Response, response_ms.into());
        }
        if let Some(connect_ms) = answer.traffic.connect_ms {
            group.observe_ms(Histogram::Connect, connect_ms.into());
        }
    }
}

/// Adds one to a counter of a group that may have none.
pub(crate) fn count(group: Option<&SeriesRow>, cell: UpstreamCell) {
    if let Some(group) = group {
        group.increment(cell);
    }
}

/// Shows what a peer is like now. `single`: it is never left alone.
fn show(peer: &Peer, single: bool, now_ms: u64) {
    let Some(row) = &peer.series else { return };
    let resting_ms = if single { 0 } else { peer.rests_until_ms() };
    let ejected_ms = peer.ejected_until_ms();
    let states = [
        (PeerFlag::Down, peer.down),
        (PeerFlag::Drain, peer.drain),
        (PeerFlag::Backup, peer.backup),
        (PeerFlag::Unhealthy, !peer.down && !peer.is_up()),
        (PeerFlag::Resting, resting_ms > now_ms),
        (PeerFlag::Ejected, ejected_ms > now_ms),
        (PeerFlag::Full, peer.is_full()),
    ];
    let set = states.iter().filter(|(_, is_set)| *is_set);
    let flags = set.fold(0, |flags, (flag, _)| flags | *flag as u64);
    row.set(PeerCell::Weight, peer.weight_in_effect(now_ms));
    row.set(PeerCell::MaxConns, peer.max_conns.into());
    row.set(PeerCell::Flags, flags);
    row.set(PeerCell::RestingUntil, resting_ms);
    row.set(PeerCell::EjectedUntil, ejected_ms);
    row.set(PeerCell::Looked, now_ms.max(1));
}
