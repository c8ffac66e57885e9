//! The ring of `hash … consistent`: 160 points for each unit of weight, as Cache::Memcached::Fast and nginx place them.
//!
//! A point is `crc32(HOST \0 PORT previous)`, where `previous` is the point before it as four little-endian bytes. Equal
//! points belong to the server that stands first in the configuration.

const POINTS_PER_WEIGHT: u64 = 160;
/// 8 MiB of points. Weights that would need more are scaled down in proportion, so that memory has a bound; nginx would
/// take sixteen bytes for each.
const POINTS_MAX: u64 = 1 << 20;

/// The ring.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Hash and number of the server name, sorted by hash, without duplicates.
    points: Vec<(u32, u32)>,
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
        Self { points }
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
