//! The ring of `hash … consistent`: 160 points for each unit of weight, as Cache::Memcached::Fast and nginx place them.
//!
//! A point is `crc32(HOST \0 PORT previous)`, where `previous` is the point before it as four little-endian bytes. Equal
//! points belong to the server that stands first in the configuration.

use std::collections::HashMap;
use std::fmt;

const POINTS_PER_WEIGHT: u64 = 160;
/// 8 MiB of points. Weights that would need more are scaled down in proportion, so that memory has a bound; nginx would
/// take sixteen bytes for each.
const POINTS_MAX: u64 = 1 << 20;

/// A point, as one number: that is compared in one step, and a large ring is sorted in a third of the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Point(u64);

impl Point {
    fn new(hash: u32, number: u32) -> Self {
        Self(u64::from(hash) << 32 | u64::from(number))
    }

    /// Where it lies.
    fn hash(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number of the server name.
    fn number(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.hash(), self.number()).fmt(out)
    }
}

/// The ring.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ring {
    /// Sorted by hash, without duplicates.
    points: Vec<Point>,
    /// Those that lie where an earlier server has one: if that leaves, the place is theirs.
    covered: Vec<Point>,
    /// Whose points they are: name and how many, by number.
    servers: Vec<(String, u64)>,
}

impl Ring {
    /// Lays the points of servers given by name and weight; their numbers are their positions. A name stands for all its
    /// addresses: they would lay the same points again.
    ///
    /// Servers that have as many points as before keep theirs, since to lay and sort a large ring takes many times as long
    /// as to go through it once. When the addresses of a name change it stays as it is.
    pub(crate) fn relaid(self, servers: &[(&str, u64)]) -> Self {
        let servers = counted(servers);
        if self.servers == servers {
            return self;
        }
        let numbers = servers.iter().zip(0u32..);
        let numbers: HashMap<&str, (u64, u32)> = numbers
            .map(|((name, count), number)| (name.as_str(), (*count, number)))
            .collect();
        let mut is_new = vec![true; servers.len()];
        // What the number of each that keeps its points becomes.
        let mut kept: Vec<Option<u32>> = Vec::with_capacity(self.servers.len());
        for (name, count) in &self.servers {
            let now = numbers.get(name.as_str());
            let number = now.filter(|(now, _)| now == count).map(|now| now.1);
            let place = number.and_then(|number| is_new.get_mut(number as usize));
            place.into_iter().for_each(|is_new| *is_new = false);
            kept.push(number);
        }
        let renumbered = |point: &Point| {
            let number = kept.get(point.number() as usize).copied().flatten()?;
            Some(Point::new(point.hash(), number))
        };
        let mut fresh: Vec<Point> = self.covered.iter().filter_map(renumbered).collect();
        for ((name, count), number) in servers.iter().zip(0u32..) {
            if is_new.get(number as usize).is_some_and(|is_new| *is_new) {
                let hashes = chain(name).take(*count as usize);
                fresh.extend(hashes.map(|hash| Point::new(hash, number)));
            }
        }
        fresh.sort_unstable();
        let (points, covered) = merged(self.points.iter().filter_map(renumbered), &fresh);
        Self {
            points,
            covered,
            servers,
        }
    }

    /// The first point at or after `hash`; one past the last means the first.
    pub(crate) fn find(&self, hash: u32) -> u32 {
        self.points.partition_point(|point| point.hash() < hash) as u32
    }

    /// The next point of another server, counted around the ring; the next one at all where there is no other.
    pub(crate) fn behind(&self, point: u32) -> u32 {
        let here = self.server(point);
        let next = point.wrapping_add(1);
        // Without another one the whole ring would be searched for it.
        if self.servers.len() < 2 {
            return next;
        }
        let mut later = (1..self.points.len() as u32).map(|step| point.wrapping_add(step));
        let other = later.find(|later| self.server(*later) != here);
        other.unwrap_or(next)
    }

    /// The number of the server name at `point`, counted around the ring.
    pub(crate) fn server(&self, point: u32) -> u32 {
        self.points
            .get(point as usize % self.points.len().max(1))
            .map_or(0, |point| point.number())
    }
}

/// How many points each server has.
fn counted(servers: &[(&str, u64)]) -> Vec<(String, u64)> {
    let total: u64 = servers.iter().map(|(_, weight)| weight).sum();
    let max = POINTS_MAX / POINTS_PER_WEIGHT;
    let scaled = |weight: u64| match total > max {
        true => (weight * max / total).max(1),
        false => weight,
    };
    let count = |(name, weight): &(&str, u64)| {
        let points = scaled(*weight) * POINTS_PER_WEIGHT;
        ((*name).to_owned(), points)
    };
    servers.iter().map(count).collect()
}

/// Both as one ring: old points, of which no two have one place, and new ones. Of those at one place the earliest server's
/// counts, and the others are covered by it.
fn merged(old: impl Iterator<Item = Point>, new: &[Point]) -> (Vec<Point>, Vec<Point>) {
    let mut points: Vec<Point> = Vec::with_capacity(old.size_hint().1.unwrap_or(0) + new.len());
    let mut covered = Vec::new();
    let mut put = |point: Point| match points.last() {
        Some(last) if last.hash() == point.hash() => covered.push(point),
        _ => points.push(point),
    };
    let mut new = new.iter().copied().peekable();
    for point in old {
        while let Some(earlier) = new.next_if(|new| *new < point) {
            put(earlier);
        }
        put(point);
    }
    new.for_each(put);
    points.shrink_to_fit();
    (points, covered)
}

/// The points of a server, without end.
fn chain(name: &str) -> impl Iterator<Item = u32> {
    let base = base_of(name);
    let mut previous = 0u32;
    std::iter::repeat_with(move || {
        let mut crc = base.clone();
        crc.update(&previous.to_le_bytes());
        previous = crc.finalize();
        previous
    })
}

/// `HOST \0 PORT` of a server's name as written; a unix path has no port, nor has a name without one.
fn base_of(name: &str) -> crc32fast::Hasher {
    let (host, port) = match name.get(..5) {
        Some(scheme) if scheme.eq_ignore_ascii_case("unix:") => {
            (name.get(5..).unwrap_or_default(), "")
        }
        _ => match name.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => (name, ""),
        },
    };
    let mut crc = crc32fast::Hasher::new();
    crc.update(host.as_bytes());
    crc.update(b"\0");
    crc.update(port.as_bytes());
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// CRC-32 bit by bit.
    fn crc(bytes: &[u8]) -> u32 {
        let mut register = u32::MAX;
        for byte in bytes {
            register ^= u32::from(*byte);
            for _ in 0..8 {
                register = (register >> 1) ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
            }
        }
        !register
    }

    fn slow(servers: &[(&str, &str, u64)]) -> Vec<(u32, u32)> {
        let mut points: Vec<(u32, u32)> = Vec::new();
        for (number, (host, port, weight)) in servers.iter().enumerate() {
            let mut previous = [0; 4];
            for _ in 0..weight * 160 {
                let point = crc(&[host.as_bytes(), b"\0", port.as_bytes(), &previous].concat());
                previous = point.to_le_bytes();
                if points.iter().all(|(known, _)| *known != point) {
                    points.push((point, number as u32));
                }
            }
        }
        points.sort_unstable();
        points
    }

    fn laid(servers: &[(&str, u64)]) -> Ring {
        Ring::default().relaid(servers)
    }

    #[test]
    fn points_are_those_of_a_slow_ring() {
        let ring = laid(&[
            ("10.0.0.1:8080", 1),
            ("[::1]:81", 3),
            ("unix:/run/a:1", 1),
            ("app", 2),
            ("UNIX:x", 1),
        ]);
        let expected = slow(&[
            ("10.0.0.1", "8080", 1),
            ("[::1]", "81", 3),
            ("/run/a:1", "", 1),
            ("app", "", 2),
            ("x", "", 1),
        ]);
        let points = ring.points.iter().map(|one| (one.hash(), one.number()));
        assert_eq!(points.collect::<Vec<_>>(), expected);
        assert_eq!(ring.points.len(), 8 * 160);
    }

    #[test]
    fn the_ring_closes() {
        let ring = laid(&[("a:1", 1), ("b:1", 1)]);
        let (first, last) = (ring.points[0], ring.points[319]);
        assert_eq!(
            (
                ring.find(0),
                ring.find(first.hash()),
                ring.find(first.hash() + 1)
            ),
            (0, 0, 1)
        );
        assert_eq!((ring.find(last.hash()), ring.find(u32::MAX)), (319, 320));
        assert_eq!(
            (ring.server(320), ring.server(319)),
            (first.number(), last.number())
        );
        assert_eq!(
            ring.server(u32::MAX),
            ring.points[u32::MAX as usize % 320].number()
        );
    }

    #[test]
    fn points_of_one_server_in_a_row_are_passed_at_once() {
        let ring = laid(&[("a:1", 30), ("b:1", 1)]);
        let length = ring.points.len() as u32;
        for point in (0..length + 5).chain([u32::MAX - length]) {
            let behind = ring.behind(point);
            assert_ne!(ring.server(behind), ring.server(point));
            let between = (point..behind).all(|one| ring.server(one) == ring.server(point));
            assert!(between && behind - point < length, "{point} {behind}");
        }
        assert_eq!(laid(&[("a:1", 1)]).behind(7), 8);
        assert_eq!(Ring::default().behind(7), 8);
    }

    #[test]
    fn huge_weights_are_scaled_down() {
        let ring = laid(&[("a:1", 1_000_000), ("b:1", 3_000_000), ("c:1", 1)]);
        assert!(ring.points.len() <= POINTS_MAX as usize + 160);
        let count = |number| {
            ring.points
                .iter()
                .filter(|point| point.number() == number)
                .count()
        };
        assert!(count(2) >= 150 && count(1) > 2 * count(0) && count(1) < 4 * count(0));
    }

    /// Of each two both have a point at one place.
    const NEIGHBOURS: [&str; 4] = [
        "10.0.0.217:80",
        "10.0.0.230:80",
        "10.0.3.20:80",
        "10.0.3.87:80",
    ];

    #[test]
    fn who_was_covered_takes_the_place_of_who_leaves() {
        let [a, b, ..] = NEIGHBOURS;
        let both = laid(&[(a, 1), (b, 1)]);
        assert_eq!((both.points.len(), both.covered.len()), (319, 1));
        let [shared] = both.covered[..] else {
            panic!("one point is covered");
        };
        let at = |ring: &Ring| ring.points[ring.find(shared.hash()) as usize];
        let first = Point::new(shared.hash(), 0);
        assert_eq!(at(&both), first);
        let alone = both.relaid(&[(b, 1)]);
        assert_eq!((at(&alone), alone.points.len()), (first, 160));
        let turned = alone.relaid(&[(b, 1), (a, 1)]);
        assert_eq!((at(&turned), turned.covered.len()), (first, 1));
        assert_eq!(turned, laid(&[(b, 1), (a, 1)]));
    }

    #[test]
    fn who_stays_keeps_its_points_though_another_is_made_heavy() {
        let before = laid(&[("a:1", 1), ("b:1", 2)]);
        // So heavy that all are scaled down: the number of everybody's points is another one.
        for servers in [[("a:1", 1), ("b:1", 3)], [("a:1", 5000), ("b:1", 9000)]] {
            let ring = Ring {
                points: before.points.clone(),
                covered: before.covered.clone(),
                servers: before.servers.clone(),
            };
            assert_eq!(ring.relaid(&servers), laid(&servers));
        }
    }

    proptest! {
        /// Whatever a ring was before, in the end it is the one that is laid at once.
        #[test]
        fn a_ring_does_not_tell_how_it_came_to_be(
            steps in prop::collection::vec(
                prop::collection::btree_map(any::<u8>(), (0..6usize, 1..4u64), 0..6),
                1..8,
            ),
        ) {
            let mut ring = Ring::default();
            for step in steps {
                let mut servers: Vec<(&str, u64)> = Vec::new();
                for (which, weight) in step.into_values() {
                    let name = NEIGHBOURS.get(which).copied().unwrap_or(["x:1", "y:1"][which % 2]);
                    if servers.iter().all(|(known, _)| *known != name) {
                        servers.push((name, weight));
                    }
                }
                ring = ring.relaid(&servers);
                prop_assert_eq!(&ring, &laid(&servers));
            }
        }
    }
}
