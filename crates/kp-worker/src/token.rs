//! Names of things that live in slabs: kind, generation, index. A stale event or timer cannot reach a recycled slot.

/// What a token names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A listening socket.
    Listener = 0,
    /// A client connection.
    Client = 1,
    /// An upstream connection.
    Upstream = 2,
    /// One of the worker's own descriptors: signals, channel, master, jobs.
    Own = 3,
    /// An exchange.
    Exchange = 4,
    /// A socket of a lookup of a name.
    Name = 5,
    /// An active check.
    Probe = 6,
}

/// A slot of a known kind: index and generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// Packs kind (4 bits), generation (28 bits) and index (32 bits) into one word.
    pub(crate) fn token(self, kind: Kind) -> u64 {
        (kind as u64) << 60
            | u64::from(self.generation & GENERATION_MASK) << 32
            | u64::from(self.index)
    }
}

/// Generations wrap at 28 bits.
pub(crate) const GENERATION_MASK: u32 = 0x0fff_ffff;

/// Takes a token apart; `None` for a kind that does not exist.
pub(crate) fn parse(token: u64) -> Option<(Kind, Key)> {
    let kind = match token >> 60 {
        0 => Kind::Listener,
        1 => Kind::Client,
        2 => Kind::Upstream,
        3 => Kind::Own,
        4 => Kind::Exchange,
        5 => Kind::Name,
        6 => Kind::Probe,
        _ => return None,
    };
    Some((
        kind,
        Key {
            index: token as u32,
            generation: (token >> 32) as u32 & GENERATION_MASK,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        for kind in [
            Kind::Listener,
            Kind::Client,
            Kind::Upstream,
            Kind::Own,
            Kind::Exchange,
            Kind::Name,
            Kind::Probe,
        ] {
            for key in [
                Key {
                    index: 0,
                    generation: 0,
                },
                Key {
                    index: u32::MAX,
                    generation: GENERATION_MASK,
                },
            ] {
                assert_eq!(parse(key.token(kind)), Some((kind, key)));
            }
        }
        assert_eq!(parse(u64::MAX), None);
    }
}
