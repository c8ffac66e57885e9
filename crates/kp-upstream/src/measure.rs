//! What is counted for groups and their peers, in the series of shared memory.
//!
//! Attempts are counted as they end. What a peer is like (weight, state, until when it rests) is shown once a second, when
//! something changed, and of a peer that failed at once: a look at every peer is too much for each request. Decides nothing
//! about who is asked.

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
pub(crate) fn show(peer: &Peer, single: bool, now_ms: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{U, at, server, servers, upstream};
    use crate::{Member, Traffic, Tried};
    use kp_config::model::{Balancer, OutlierDetection, PeerAddress, ServerLine, Upstream};
    use kp_shm::{Shm, Totals};
    use proptest::prelude::*;
    use std::time::Duration;

    fn measured(upstream: &Upstream, shm: &Shm) -> Groups {
        let process = shm.scoreboard().claim(1, 0);
        let mut groups = Groups::new(std::slice::from_ref(upstream), shm, process, 1);
        groups.measure();
        groups
    }

    fn peer(shm: &Shm, port: u16) -> Option<Totals> {
        let labels = ["u", &format!("127.0.0.1:{port}")];
        let info = shm.series().find(SeriesKind::Peer, &labels)?;
        Some(shm.series().totals(info.index))
    }

    fn group(shm: &Shm, cell: UpstreamCell) -> u64 {
        let info = shm.series().find(SeriesKind::Upstream, &["u"]).unwrap();
        shm.series().total(info.index, cell)
    }

    fn answer(outcome: Outcome, status: u16) -> Answer {
        Answer {
            outcome,
            status,
            header_ms: (status != 0).then_some(7),
            last_byte_ms: (status != 0).then_some(9),
            waited_ms: 9,
            traffic: Traffic {
                connect_ms: Some(3),
                bytes_in: 100,
                bytes_out: 10,
            },
        }
    }

    fn is(totals: &Totals, flag: PeerFlag) -> bool {
        flag.is_in(totals.value(PeerCell::Flags))
    }

    #[test]
    fn attempts_are_counted_as_they_end() {
        let shm = Shm::private().unwrap();
        let mut groups = measured(&upstream(Balancer::RoundRobin, servers(&[1])), &shm);
        for (outcome, status) in [
            (Outcome::Ok, 204),
            (Outcome::Ok, 404),
            (Outcome::Failed, 503),
            (Outcome::Failed, 0),
            (Outcome::NotCounted, 0),
        ] {
            let picked = groups.pick(U, &at(1000), &mut Tried::new()).unwrap();
            assert_eq!(peer(&shm, 1).unwrap().value(PeerCell::InFlight), 1);
            groups.observe(picked, &answer(outcome, status), 1000);
            groups.finished(picked, outcome, 1000);
        }
        let totals = peer(&shm, 1).unwrap();
        let values = [
            PeerCell::Attempts1xx,
            PeerCell::Attempts2xx,
            PeerCell::Attempts3xx,
            PeerCell::Attempts4xx,
            PeerCell::Attempts5xx,
            PeerCell::AttemptsNone,
            PeerCell::Failures,
            PeerCell::BytesIn,
            PeerCell::BytesOut,
            PeerCell::InFlight,
        ]
        .map(|cell| totals.value(cell));
        assert_eq!(values, [0, 1, 0, 1, 1, 2, 2, 500, 50, 0]);
        let head = totals.histogram(Histogram::Head);
        assert_eq!((head.count(), head.sum_ms), (3, 21));
        let info = shm.series().find(SeriesKind::Upstream, &["u"]).unwrap();
        let totals = shm.series().totals(info.index);
        let counts = [Histogram::Connect, Histogram::Response]
            .map(|histogram| totals.histogram(histogram))
            .map(|total| (total.count(), total.sum_ms));
        assert_eq!(counts, [(5, 15), (3, 27)]);
    }

    #[test]
    fn what_peers_are_like_is_shown_once_a_second_and_after_a_change() {
        let shm = Shm::private().unwrap();
        let slow = ServerLine {
            slow_start: Duration::from_secs(10),
            ..server(1, 4)
        };
        let down = ServerLine {
            down: true,
            ..server(2, 1)
        };
        let backup = ServerLine {
            backup: true,
            max_conns: 1,
            ..server(3, 2)
        };
        let lines = vec![slow, down, backup];
        let mut groups = measured(&upstream(Balancer::RoundRobin, lines), &shm);
        groups.show(1000);
        let [a, b, c] = [1, 2, 3].map(|port| peer(&shm, port).unwrap());
        let weights = [&a, &b, &c].map(|peer| peer.value(PeerCell::Weight));
        assert_eq!(weights, [4000, 1000, 2000]);
        assert_eq!(a.value(PeerCell::Flags), 0);
        assert!(is(&b, PeerFlag::Down) && !is(&b, PeerFlag::Unhealthy));
        assert!(is(&c, PeerFlag::Backup) && c.value(PeerCell::MaxConns) == 1);

        let picked = groups.pick(U, &at(1100), &mut Tried::new()).unwrap();
        assert!(groups.finished(picked, Outcome::Failed, 1100), "it rests");
        groups.show(1100);
        let resting = peer(&shm, 1).unwrap();
        assert!(is(&resting, PeerFlag::Resting));
        assert_eq!(resting.value(PeerCell::RestingUntil), 11_100);
        assert_eq!(
            resting.value(PeerCell::Weight),
            0,
            "its failure took 4 of 4"
        );
        assert_eq!(group(&shm, UpstreamCell::Rests), 1);
        let backup = groups.pick(U, &at(1200), &mut Tried::new()).unwrap();
        groups.show(1200);
        assert!(
            !is(&peer(&shm, 3).unwrap(), PeerFlag::Full),
            "not yet looked at"
        );
        groups.show(2100);
        assert!(is(&peer(&shm, 3).unwrap(), PeerFlag::Full));
        groups.finished(backup, Outcome::Ok, 2200);
    }

    #[test]
    fn ejections_and_returns_are_counted_and_shown() {
        let shm = Shm::private().unwrap();
        let group_of = Upstream {
            outliers: Some(OutlierDetection {
                consecutive_5xx: 1,
                failure_percent: 0,
                latency_factor_percent: 0,
                base_time: Duration::from_secs(30),
                max_percent: 100,
            }),
            ..upstream(Balancer::RoundRobin, servers(&[1, 1]))
        };
        let mut groups = measured(&group_of, &shm);
        let picked = groups.pick(U, &at(1000), &mut Tried::new()).unwrap();
        let bad = groups.name(picked).to_owned();
        groups.observe(picked, &answer(Outcome::Ok, 500), 1000);
        groups.finished(picked, Outcome::Ok, 1000);
        assert!(groups.next_change(U).is_some());
        groups.show(1000);
        let port = bad.rsplit(':').next().unwrap().parse().unwrap();
        let ejected = peer(&shm, port).unwrap();
        let until_ms = ejected.value(PeerCell::EjectedUntil);
        assert!(is(&ejected, PeerFlag::Ejected) && until_ms > 1000);
        let other = groups
            .pick(U, &at(until_ms + 1), &mut Tried::new())
            .unwrap();
        groups.finished(other, Outcome::Ok, until_ms + 1);
        assert!(groups.next_change(U).is_some());
        groups.show(until_ms + 1);
        assert_eq!(peer(&shm, port).unwrap().value(PeerCell::EjectedUntil), 0);
        let events = [UpstreamCell::Ejections, UpstreamCell::Returns];
        assert_eq!(events.map(|cell| group(&shm, cell)), [1, 1]);
    }

    #[test]
    fn without_metrics_there_are_no_series() {
        let shm = Shm::private().unwrap();
        let process = shm.scoreboard().claim(1, 0);
        let group = upstream(Balancer::RoundRobin, servers(&[1]));
        let mut groups = Groups::new(&[group], &shm, process, 1);
        let picked = groups.pick(U, &at(1), &mut Tried::new()).unwrap();
        groups.observe(picked, &answer(Outcome::Ok, 200), 1);
        groups.finished(picked, Outcome::Ok, 1);
        groups.show_soon();
        groups.show(1);
        assert!(groups.series(picked).is_none());
        assert_eq!(shm.series().rows().count(), 0);
    }

    fn members(ports: u8) -> Vec<Member> {
        let ports = (0..8).filter(|bit| ports >> bit & 1 == 1);
        let member = |bit: u16| Member {
            address: PeerAddress::Inet(([127, 0, 0, 1], bit + 1).into()),
            weight: 0,
            backup: false,
        };
        ports.map(member).collect()
    }

    proptest! {
        /// Peers come and go while attempts are under way: every attempt is counted once, at its peer, and in the end
        /// nothing is in flight and only who belongs to the group has settings.
        #[test]
        fn no_attempt_is_lost_or_counted_twice(steps in proptest::collection::vec((0u8..8, any::<u8>()), 1..80)) {
            let shm = Shm::private().unwrap();
            let line = ServerLine { addresses: Vec::new(), name: "name".to_owned(), ..server(1, 1) };
            let mut groups = measured(&upstream(Balancer::RoundRobin, vec![line]), &shm);
            let (mut held, mut ended) = (Vec::new(), 0u64);
            for (what, bits) in steps {
                match what {
                    0 => drop(groups.set_members(U, 0, &members(bits), 1)),
                    1..=4 => held.extend(groups.pick(U, &at(1), &mut Tried::new())),
                    _ if !held.is_empty() => {
                        let picked = held.swap_remove(bits as usize % held.len());
                        groups.observe(picked, &answer(Outcome::Ok, 200), 1);
                        groups.finished(picked, Outcome::Ok, 1);
                        ended += 1;
                    }
                    _ => {}
                }
                let sum = |cell| shm.series().family(SeriesKind::Peer, cell);
                prop_assert_eq!(sum(PeerCell::InFlight), held.len() as u64);
                prop_assert_eq!(sum(PeerCell::Attempts2xx), ended);
            }
            for picked in held.drain(..) {
                groups.finished(picked, Outcome::Ok, 1);
            }
            groups.show_soon();
            groups.show(5);
            let here: Vec<_> = groups.peers(U).map(|peer| groups.name(peer).to_owned()).collect();
            for port in 1..=8u16 {
                let Some(totals) = peer(&shm, port) else { continue };
                let is_here = here.contains(&format!("127.0.0.1:{port}"));
                prop_assert_eq!(totals.value(PeerCell::InFlight), 0);
                prop_assert_eq!(totals.value(PeerCell::Looked) != 0, is_here);
            }
        }
    }
}
