//! Balancers that map a key, a client or chance to a place on the line of weights: `ip_hash`, `hash`, `random`.
//!
//! Each tries up to 20 places that turn out unusable, counted over the whole exchange, and then leaves the choice to
//! round robin, as nginx. The hashes are nginx's to the bit: users move clients from one to the other.

use crate::groups::Group;
use crate::tried::Tried;
use std::net::IpAddr;

/// Unusable peers after which a hash is given up.
const MISSES_MAX: u32 = 20;

impl Group {
    /// `ip_hash`: the first three octets of an IPv4 address, all of an IPv6 address; one fixed place for other clients.
    pub(crate) fn ip_hash(
        &self,
        client: Option<IpAddr>,
        tried: &mut Tried,
        now_ms: u64,
    ) -> Option<usize> {
        let (octets, used) = match client {
            Some(IpAddr::V4(address)) => {
                let mut octets = [0; 16];
                octets
                    .iter_mut()
                    .zip(address.octets())
                    .for_each(|(to, from)| *to = from);
                (octets, 3)
            }
            Some(IpAddr::V6(address)) => (address.octets(), 16),
            None => ([0; 16], 3),
        };
        let mut hash = tried.walk.hash.unwrap_or(89);
        while tried.walk.misses <= MISSES_MAX {
            for octet in octets.iter().take(used) {
                hash = (hash * 113 + u32::from(*octet)) % 6271;
            }
            let index = self.place(hash.into());
            if self.try_place(index, tried, now_ms) {
                tried.walk.hash = Some(hash);
                return Some(index);
            }
            tried.walk.misses += 1;
        }
        None
    }

    /// `hash KEY`: the hash of Cache::Memcached, `((crc32([round] key) >> 16) & 0x7fff)` summed over the rounds.
    pub(crate) fn hash(&self, key: &[u8], tried: &mut Tried, now_ms: u64) -> Option<usize> {
        while tried.walk.misses <= MISSES_MAX {
            let mut crc = crc32fast::Hasher::new();
            if tried.walk.rounds > 0 {
                crc.update(decimal(tried.walk.rounds, &mut [0; 10]));
            }
            crc.update(key);
            let sum = tried
                .walk
                .hash
                .unwrap_or(0)
                .wrapping_add((crc.finalize() >> 16) & 0x7fff);
            tried.walk.hash = Some(sum);
            tried.walk.rounds += 1;
            let index = self.place(sum.into());
            if self.try_place(index, tried, now_ms) {
                return Some(index);
            }
            tried.walk.misses += 1;
        }
        None
    }

    /// `hash KEY consistent`: the next points of the ring; round robin among the addresses of one server name.
    pub(crate) fn ketama(&mut self, key: &[u8], tried: &mut Tried, now_ms: u64) -> Option<usize> {
        let start = self.ring()?.find(crc32fast::hash(key));
        let mut point = tried.walk.hash.unwrap_or(start);
        while tried.walk.misses <= MISSES_MAX {
            let server = self.ring()?.server(point);
            tried.walk.hash = Some(point);
            let picked = self.round_robin_of(server, tried, now_ms);
            if picked.is_some() {
                return picked;
            }
            point = point.wrapping_add(1);
            tried.walk.misses += 1;
        }
        None
    }

    /// `random`: a place by chance, by weight.
    pub(crate) fn random(&mut self, tried: &mut Tried, now_ms: u64) -> Option<usize> {
        while tried.walk.misses <= MISSES_MAX {
            let index = self.random_place();
            if self.try_place(index, tried, now_ms) {
                return Some(index);
            }
            tried.walk.misses += 1;
        }
        None
    }

    /// `random two least_conn`: of two different places by chance, the one with fewer connections for its weight.
    pub(crate) fn random_two(&mut self, tried: &mut Tried, now_ms: u64) -> Option<usize> {
        let mut earlier: Option<usize> = None;
        while tried.walk.misses <= MISSES_MAX {
            let index = self.random_place();
            let usable = self
                .peers
                .get(index)
                .is_some_and(|peer| peer.is_usable(now_ms));
            if earlier == Some(index) || tried.contains(index) || !usable {
                tried.walk.misses += 1;
                continue;
            }
            let Some(first) = earlier else {
                earlier = Some(index);
                continue;
            };
            let chosen = if self.is_busier(index, first) {
                first
            } else {
                index
            };
            if self.try_place(chosen, tried, now_ms) {
                return Some(chosen);
            }
            earlier = None;
            tried.walk.misses += 1;
        }
        None
    }

    fn is_busier(&self, a: usize, b: usize) -> bool {
        let (Some(a), Some(b)) = (self.peers.get(a), self.peers.get(b)) else {
            return false;
        };
        i128::from(a.facts.in_flight()) * i128::from(b.weight)
            > i128::from(b.facts.in_flight()) * i128::from(a.weight)
    }

    fn random_place(&mut self) -> usize {
        let chance = random(&mut self.random);
        self.place(chance)
    }

    /// Whose stretch of the line `value` falls on, after wrapping.
    fn place(&self, value: u64) -> usize {
        let at = value % self.total_weight.max(1);
        self.line
            .partition_point(|start| *start <= at)
            .saturating_sub(1)
    }

    fn try_place(&self, index: usize, tried: &Tried, now_ms: u64) -> bool {
        !tried.contains(index)
            && self
                .peers
                .get(index)
                .is_some_and(|peer| peer.is_usable(now_ms) && peer.enter(now_ms))
    }
}

/// The next number of a SplitMix64 sequence: enough for spreading load.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn decimal(mut number: u32, buffer: &mut [u8; 10]) -> &[u8] {
    let mut start = buffer.len();
    for (position, digit) in buffer.iter_mut().enumerate().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        start = position;
        if number == 0 {
            break;
        }
    }
    buffer.get(start..).unwrap_or_default()
}
