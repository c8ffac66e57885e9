//! The ring of `hash … consistent`: 160 points for each unit of weight, as Cache::Memcached::Fast and nginx place them.
//!
//! A point is `crc32(HOST \0 PORT previous)`, where `previous` is the point before it as four little-endian bytes. Equal
//! points belong to the server that stands first in the configuration.

use kp_shm::Key;

const POINTS_PER_WEIGHT: u64 = 160;
/// 8 MiB of points. Weights that would need more are scaled down in proportion, so that memory has a bound; nginx would
/// take sixteen bytes for each.
const POINTS_MAX: u64 = 1 << 20;

/// The ring.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Hash and number of the server name, sorted by hash, without duplicates.
    points: Vec<(u32, u32)>,
    /// Identity of what it was made of.
    of: Key,
}

impl Ring {
    /// Lays the points of servers given by name and weight; their numbers are their positions. A name stands for all its
    /// addresses: they would lay the same points again.
    pub(crate) fn new(servers: &[(&str, u64)]) -> Self {
        let total: u64 = servers.iter().map(|(_, weight)| weight).sum();
        let max = POINTS_MAX / POINTS_PER_WEIGHT;
        let scale = |weight: u64| {
            if total > max {
                (weight * max / total).max(1)
            } else {
                weight
            }
        };
        let mut points = Vec::new();
        for (number, (name, weight)) in servers.iter().enumerate() {
            let base = base_of(name);
            let mut previous = 0u32;
            for _ in 0..scale(*weight) * POINTS_PER_WEIGHT {
                let mut crc = base.clone();
                crc.update(&previous.to_le_bytes());
                previous = crc.finalize();
                points.push((previous, number as u32));
            }
        }
        points.sort_by_key(|point| point.0);
        points.dedup_by_key(|point| point.0);
        points.shrink_to_fit();
        Self {
            points,
            of: identity(servers),
        }
    }

    /// Whether it is the ring of these servers: when the addresses of a name change it stays the same, and large weights
    /// make a ring that takes long to lay.
    pub(crate) fn is_of(&self, servers: &[(&str, u64)]) -> bool {
        self.of == identity(servers)
    }

    /// The first point at or after `hash`; one past the last means the first.
    pub(crate) fn find(&self, hash: u32) -> u32 {
        self.points.partition_point(|point| point.0 < hash) as u32
    }

    /// The number of the server name at `point`, counted around the ring.
    pub(crate) fn server(&self, point: u32) -> u32 {
        self.points
            .get(point as usize % self.points.len().max(1))
            .map_or(0, |point| point.1)
    }
}

fn identity(servers: &[(&str, u64)]) -> Key {
    let mut parts: Vec<u8> = Vec::new();
    for (name, weight) in servers {
        parts.extend(Key::of(&[name.as_bytes(), &weight.to_le_bytes()]).to_bytes());
    }
    Key::of(&[&parts])
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

    #[test]
    fn points_are_those_of_a_slow_ring() {
        let ring = Ring::new(&[
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
        assert_eq!(ring.points, expected);
        assert_eq!(ring.points.len(), 8 * 160);
    }

    #[test]
    fn a_ring_knows_whose_it_is() {
        let ring = Ring::new(&[("a:1", 1), ("b:1", 2)]);
        assert!(ring.is_of(&[("a:1", 1), ("b:1", 2)]));
        for other in [
            &[("a:1", 1), ("b:1", 1)][..],
            &[("b:1", 2), ("a:1", 1)],
            &[("a:1", 1)],
            &[],
        ] {
            assert!(!ring.is_of(other));
        }
    }

    #[test]
    fn the_ring_closes() {
        let ring = Ring::new(&[("a:1", 1), ("b:1", 1)]);
        let (first, last) = (ring.points[0], ring.points[319]);
        assert_eq!(
            (ring.find(0), ring.find(first.0), ring.find(first.0 + 1)),
            (0, 0, 1)
        );
        assert_eq!((ring.find(last.0), ring.find(u32::MAX)), (319, 320));
        assert_eq!((ring.server(320), ring.server(319)), (first.1, last.1));
        assert_eq!(
            ring.server(u32::MAX),
            ring.points[u32::MAX as usize % 320].1
        );
    }

    #[test]
    fn huge_weights_are_scaled_down() {
        let ring = Ring::new(&[("a:1", 1_000_000), ("b:1", 3_000_000), ("c:1", 1)]);
        assert!(ring.points.len() <= POINTS_MAX as usize + 160);
        let count = |number| ring.points.iter().filter(|point| point.1 == number).count();
        assert!(count(2) >= 150 && count(1) > 2 * count(0) && count(1) < 4 * count(0));
    }
}
