//! Balancers that map a key, a client or chance to a place on the line of weights: `ip_hash`, `hash`, `random`.
//!
//! Each tries up to 20 places that turn out unusable, counted over the whole exchange, and then leaves the choice to
//! round robin, as nginx. The hashes are nginx's to the bit: users move clients from one to the other.

use crate::groups::Group;
use crate::tried::Tried;
use std::net::IpAddr;

/// Unusable peers after which a hash is given up.
pub(crate) const MISSES_MAX: u32 = 20;

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
    ///
    /// nginx counts each point as a miss. Here points of one server in a row are one: else many keys of a heavy peer that is
    /// down or drains would be left to round robin, and have no home until it is back.
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
            point = self.ring()?.behind(point);
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
            let usable = self.peers.get(index).is_some_and(|peer| {
                !tried.contains(peer.slot.index as usize) && peer.is_usable(now_ms)
            });
            if earlier == Some(index) || !usable {
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
        self.peers.get(index).is_some_and(|peer| {
            !tried.contains(peer.slot.index as usize)
                && peer.is_usable(now_ms)
                && peer.enter(now_ms)
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{U, at, groups, hash, letter, server, upstream};
    use crate::{Groups, Outcome, PickQuery};
    use kp_config::model::{Balancer, PeerAddress, ServerLine};

    /// The ports and weights the expected answers were taken from nginx 1.31.3 with.
    fn three(balancer: Balancer, second_down: bool) -> Groups {
        let second = ServerLine {
            down: second_down,
            ..server(19812, 3)
        };
        groups(upstream(
            balancer,
            vec![server(19811, 1), second, server(19813, 1)],
        ))
    }

    fn by_key(consistent: bool, second_down: bool) -> String {
        let mut groups = three(hash(consistent), second_down);
        let pick = |number: u32| {
            let key = format!("key{number}");
            let query = PickQuery {
                hash_key: key.as_bytes(),
                sticky: b"",
                ..at(1)
            };
            letter(groups.pick(U, &query, &mut Tried::new()).unwrap())
        };
        (0..64).map(pick).collect()
    }

    fn by_address(addresses: impl Iterator<Item = IpAddr>, second_down: bool) -> String {
        let mut groups = three(Balancer::IpHash, second_down);
        let pick = |address| {
            let query = PickQuery {
                client: Some(address),
                ..at(1)
            };
            letter(groups.pick(U, &query, &mut Tried::new()).unwrap())
        };
        addresses.map(pick).collect()
    }

    #[test]
    fn ip_hash_is_nginxs() {
        let v4 = || {
            (0..48u32).map(|i| {
                IpAddr::from([
                    (i * 37 % 223 + 1) as u8,
                    (i * 91 % 256) as u8,
                    (i * 53 % 256) as u8,
                    i as u8,
                ])
            })
        };
        let v6 = || {
            (0..24u32).map(|i| {
                IpAddr::from([
                    0x2001,
                    0xdb8,
                    0,
                    0,
                    0,
                    0,
                    i as u16,
                    (i * 7919 % 65536) as u16,
                ])
            })
        };
        assert_eq!(
            by_address(v4(), false),
            "bcbabbbbbbbabbcbcbacbbacbcbabcbbcbcbbcbbabcabbbc"
        );
        assert_eq!(by_address(v6(), false), "ccbcbcbcbabababaacbcbcbc");
        assert_eq!(
            by_address(v4(), true),
            "ccaaccaacaaacaccccacacaccccaaccccaccaccaaacaacac"
        );
        assert_eq!(by_address(v6(), true), "ccccccacaaaaaacaacccccac");
    }

    #[test]
    fn hash_is_nginxs() {
        assert_eq!(
            by_key(false, false),
            "bbbbbbbbbcbccaabbcbbccbcbbbacbabbabacbbbbbbcabbbbbbcabbaacabbbba"
        );
        assert_eq!(
            by_key(false, true),
            "ccacacaaacaccaaaccccccaccacaccacaaaacaacacacaaaacaccaaaaacacacaa"
        );
    }

    #[test]
    fn consistent_hash_is_nginxs() {
        assert_eq!(
            by_key(true, false),
            "babcabcbabcbccbbabcbacabbbbbbbbbbabcbbaabbbbaabcbbcbacabbbbaabbb"
        );
        assert_eq!(
            by_key(true, true),
            "aaacacccaccccccaaaccacacacacccacaaacaaaaccccaaccacccacaaccaaaaaa"
        );
    }

    #[test]
    fn an_empty_key_means_round_robin() {
        for consistent in [false, true] {
            let mut groups = three(hash(consistent), false);
            let picks: String = (0..5)
                .map(|_| letter(groups.pick(U, &at(1), &mut Tried::new()).unwrap()))
                .collect();
            assert_eq!(picks, "babcb");
        }
    }

    #[test]
    fn a_retry_goes_to_another_peer_until_none_is_left() {
        let random = [
            Balancer::Random { two: false },
            Balancer::Random { two: true },
        ];
        for balancer in [hash(false), hash(true), Balancer::IpHash]
            .into_iter()
            .chain(random)
        {
            let mut groups = three(balancer.clone(), false);
            let query = PickQuery {
                hash_key: b"key",
                sticky: b"",
                client: Some([192, 0, 2, 1].into()),
                now_ms: 1,
            };
            let mut tried = Tried::new();
            let mut picks: Vec<char> = (0..3)
                .map(|_| letter(groups.pick(U, &query, &mut tried).unwrap()))
                .collect();
            picks.sort_unstable();
            assert_eq!(picks, ['a', 'b', 'c'], "{balancer:?}");
            assert!(groups.pick(U, &query, &mut tried).is_err(), "{balancer:?}");
        }
    }

    #[test]
    fn a_forgiven_pick_is_made_again() {
        for balancer in [hash(false), hash(true), Balancer::IpHash] {
            for number in 0..50u8 {
                let mut groups = three(balancer.clone(), false);
                let key = [number];
                let query = PickQuery {
                    hash_key: &key,
                    sticky: b"",
                    client: Some([number, 2, 3, 4].into()),
                    now_ms: 1,
                };
                let mut tried = Tried::new();
                let peer = groups.pick(U, &query, &mut tried).unwrap();
                groups.finished(peer, Outcome::NotCounted, 1);
                tried.forgive(peer);
                assert_eq!(groups.pick(U, &query, &mut tried), Ok(peer), "{balancer:?}");
            }
        }
    }

    #[test]
    fn addresses_of_one_name_take_turns_on_the_ring() {
        let address = |port: u16| PeerAddress::Inet(([127, 0, 0, 1], port).into());
        let name = ServerLine {
            name: "app:80".to_owned(),
            addresses: vec![address(1), address(2)],
            ..server(1, 1)
        };
        let mut groups = groups(upstream(hash(true), vec![name, server(3, 1)]));
        let mut pick = |key: &[u8]| {
            letter(
                groups
                    .pick(
                        U,
                        &PickQuery {
                            hash_key: key,
                            sticky: b"",
                            ..at(1)
                        },
                        &mut Tried::new(),
                    )
                    .unwrap(),
            )
        };
        let key = (0..100u8)
            .map(|n| [n])
            .find(|key| pick(key) != 'c')
            .unwrap();
        let picks: String = (0..6).map(|_| pick(&key)).collect();
        assert!(picks == "ababab" || picks == "bababa", "{picks}");
    }

    #[test]
    fn chance_follows_the_weights() {
        for two in [false, true] {
            let mut groups = three(Balancer::Random { two }, false);
            let mut counts = [0u32; 3];
            for _ in 0..10_000 {
                let peer = groups.pick(U, &at(1), &mut Tried::new()).unwrap();
                counts[peer.index()] += 1;
                if !two {
                    groups.finished(peer, Outcome::Ok, 1);
                }
            }
            // With `two` everything is held, so that the loads settle at the weights.
            let near = |count: u32, fair: u32| count.abs_diff(fair) < 250;
            assert!(
                near(counts[0], 2000) && near(counts[1], 6000) && near(counts[2], 2000),
                "{two} {counts:?}"
            );
        }
    }

    #[test]
    fn random_two_leaves_a_busy_peer_alone() {
        let mut groups = groups(upstream(
            Balancer::Random { two: true },
            vec![server(1, 1), server(2, 1)],
        ));
        let held: Vec<_> = (0..10)
            .map(|_| groups.pick(U, &at(1), &mut Tried::new()).unwrap())
            .collect();
        let first = held.iter().filter(|peer| letter(**peer) == 'a').count();
        assert_eq!(
            first, 5,
            "two peers, both drawn each time: the less busy one is used"
        );
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 4_294_967_295] {
            assert_eq!(decimal(number, &mut [0; 10]), number.to_string().as_bytes());
        }
    }
}
