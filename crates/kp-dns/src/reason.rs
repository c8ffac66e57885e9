//! Why a name has no addresses, in nginx's words.

use domain::base::iana::Rcode;

/// Why a name has no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The server did not understand the query.
    FormatError,
    /// The server could not do it.
    ServerFailure,
    /// There is no such name.
    NotFound,
    /// There is such a name, without an address.
    NoAddress,
    /// The server does not know this kind of query.
    NotImplemented,
    /// The server does not want to.
    Refused,
    /// No server answered in time.
    TimedOut,
}

impl Reason {
    const ALL: [Self; 7] = [
        Self::FormatError,
        Self::ServerFailure,
        Self::NotFound,
        Self::NoAddress,
        Self::NotImplemented,
        Self::Refused,
        Self::TimedOut,
    ];

    /// What an answer's code means (RFC 1035 §4.1.1).
    pub(crate) fn of(code: Rcode) -> Self {
        match code {
            Rcode::FORMERR => Self::FormatError,
            Rcode::NXDOMAIN => Self::NotFound,
            Rcode::NOTIMP => Self::NotImplemented,
            Rcode::REFUSED => Self::Refused,
            _ => Self::ServerFailure,
        }
    }

    /// The number in the log: the answer's code, or `ETIMEDOUT`.
    pub fn code(self) -> u16 {
        match self {
            Self::FormatError => 1,
            Self::ServerFailure => 2,
            Self::NotFound | Self::NoAddress => 3,
            Self::NotImplemented => 4,
            Self::Refused => 5,
            Self::TimedOut => 110,
        }
    }

    /// The words in the log.
    pub fn text(self) -> &'static str {
        match self {
            Self::FormatError => "Format error",
            Self::ServerFailure => "Server failure",
            Self::NotFound => "Host not found",
            Self::NoAddress => "Host not found, it has no address",
            Self::NotImplemented => "Unimplemented",
            Self::Refused => "Operation refused",
            Self::TimedOut => "Operation timed out",
        }
    }

    /// As a number that other processes understand; never 0 or 1.
    pub fn to_word(self) -> u64 {
        let place = Self::ALL.iter().position(|reason| *reason == self);
        place.map_or(2, |place| place as u64 + 2)
    }

    /// The reason that such a number stands for.
    pub fn of_word(word: u64) -> Option<Self> {
        let place = usize::try_from(word.checked_sub(2)?).ok()?;
        Self::ALL.get(place).copied()
    }

    /// The server said something about the name, which is no failure of the server.
    pub fn is_answer(self) -> bool {
        matches!(self, Self::NotFound | Self::NoAddress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_and_numbers() {
        let words: HashSet<u64> = Reason::ALL.iter().map(|reason| reason.to_word()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        assert!(!words.contains(&0) && !words.contains(&1));
        for reason in Reason::ALL {
            assert_eq!(Reason::of_word(reason.to_word()), Some(reason));
        }
        for word in [0, 1, 99, u64::MAX] {
            assert_eq!(Reason::of_word(word), None);
        }
        assert_eq!(Reason::of(Rcode::NXDOMAIN).code(), 3);
        assert_eq!(Reason::of(Rcode::SERVFAIL).text(), "Server failure");
        assert_eq!(Reason::of(Rcode::YXDOMAIN), Reason::ServerFailure);
    }
}
