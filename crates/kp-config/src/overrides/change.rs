//! One wish about a running group: what it says, and its words as `kp ctl` has them.

use super::server::{parse_server, server_words};
use crate::model::ServerLine;
use crate::suggest::nearest;
use crate::value;
use std::fmt;

/// What is wished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `peer add UPSTREAM ADDRESS [parameter ...]`: a peer that no server line has.
    Add {
        /// The group.
        upstream: String,
        /// The peer, as a server line of one address.
        server: ServerLine,
    },
    /// `peer ACT UPSTREAM PEER [N]`: something about a peer, or all peers of a server line.
    Peer {
        /// The group.
        upstream: String,
        /// An address as in `$upstream_addr`, or the name of a server line.
        peer: String,
        /// What is to become of it.
        act: Act,
    },
    /// `reset [UPSTREAM [PEER]]`: what was changed while kp ran is given up, the configuration holds again.
    GiveUp {
        /// The group; `None`: all.
        upstream: Option<String>,
        /// The peer or server line; `None`: all of the group.
        peer: Option<String>,
    },
}

/// What is to become of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// `remove`: it belongs to the group no longer.
    Remove,
    /// `drain`: only sessions that it has are sent to it.
    Drain,
    /// `down`: nothing is sent to it.
    Down,
    /// `up`: neither down nor drain.
    Up,
    /// `weight N`, from 1.
    Weight(u32),
    /// `max_conns N`; 0 is no limit.
    MaxConns(u32),
    /// `reset`: failures and ejection are forgotten.
    Forget,
}

/// Why a change cannot be: one line, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// What is wrong.
    pub error: String,
    /// What helps.
    pub hint: Option<String>,
}

impl Complaint {
    /// A complaint without a hint.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: None,
        }
    }

    /// The same with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.error)?;
        match &self.hint {
            Some(hint) => write!(out, " ({hint})"),
            None => Ok(()),
        }
    }
}

const ACTS: [&str; 8] = [
    "add",
    "remove",
    "drain",
    "down",
    "up",
    "weight",
    "max_conns",
    "reset",
];

impl Change {
    /// Reads the words of one change: `peer add app 127.0.0.1:8080 weight=2`, `peer down app 127.0.0.1:8080`, `reset app`.
    ///
    /// # Errors
    ///
    /// What is wrong with them. Whether there are such a group and peer is found where the change is applied.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, Complaint> {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        match words.as_slice() {
            ["peer", rest @ ..] => peer(rest),
            ["reset"] => Ok(Self::GiveUp {
                upstream: None,
                peer: None,
            }),
            ["reset", upstream] => Ok(Self::GiveUp {
                upstream: Some((*upstream).to_owned()),
                peer: None,
            }),
            ["reset", upstream, peer] => Ok(Self::GiveUp {
                upstream: Some((*upstream).to_owned()),
                peer: Some((*peer).to_owned()),
            }),
            ["reset", ..] => Err(usage("reset [UPSTREAM [PEER]]")),
            [] => Err(Complaint::new("there is no change").hint("a change is `peer …` or `reset`")),
            [word, ..] => Err(Complaint::new(format!("unknown change \"{word}\""))
                .hint("a change begins with \"peer\" or \"reset\"")),
        }
    }

    /// The words that [`Change::parse`] makes the same change of.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        match self {
            Self::Add { upstream, server } => {
                words.extend(["peer".to_owned(), "add".to_owned(), upstream.clone()]);
                words.extend(server_words(server));
            }
            Self::Peer {
                upstream,
                peer,
                act,
            } => {
                words.extend(["peer", act.word(), upstream, peer].map(str::to_owned));
                words.extend(act.number().map(|number| number.to_string()));
            }
            Self::GiveUp { upstream, peer } => {
                words.push("reset".to_owned());
                words.extend(upstream.clone());
                words.extend(peer.clone());
            }
        }
        words
    }

    /// The group it is about; `None`: all.
    pub fn upstream(&self) -> Option<&str> {
        match self {
            Self::Add { upstream, .. } | Self::Peer { upstream, .. } => Some(upstream),
            Self::GiveUp { upstream, .. } => upstream.as_deref(),
        }
    }
}

impl Act {
    fn word(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Drain => "drain",
            Self::Down => "down",
            Self::Up => "up",
            Self::Weight(_) => "weight",
            Self::MaxConns(_) => "max_conns",
            Self::Forget => "reset",
        }
    }

    fn number(self) -> Option<u32> {
        match self {
            Self::Weight(number) | Self::MaxConns(number) => Some(number),
            _ => None,
        }
    }
}

fn peer(words: &[&str]) -> Result<Change, Complaint> {
    let (act, rest) = match words {
        ["add", upstream, server @ ..] if !server.is_empty() => {
            return Ok(Change::Add {
                upstream: (*upstream).to_owned(),
                server: parse_server(server)?,
            });
        }
        ["add", ..] => return Err(usage("peer add UPSTREAM ADDRESS [parameter ...]")),
        ["remove", rest @ ..] => (Act::Remove, rest),
        ["drain", rest @ ..] => (Act::Drain, rest),
        ["down", rest @ ..] => (Act::Down, rest),
        ["up", rest @ ..] => (Act::Up, rest),
        ["reset", rest @ ..] => (Act::Forget, rest),
        ["weight", rest @ .., text] if rest.len() == 2 => (Act::Weight(weight(text)?), rest),
        ["max_conns", rest @ .., text] if rest.len() == 2 => (Act::MaxConns(limit(text)?), rest),
        ["weight", ..] => return Err(usage("peer weight UPSTREAM PEER N")),
        ["max_conns", ..] => return Err(usage("peer max_conns UPSTREAM PEER N")),
        [] => return Err(usage("peer ACT UPSTREAM PEER")),
        [word, ..] => {
            let complaint = Complaint::new(format!("unknown change \"peer {word}\""));
            return Err(match nearest(word, ACTS) {
                Some(near) => complaint.hint(format!("did you mean \"peer {near}\"?")),
                None => complaint.hint(format!("known are: {}", ACTS.join(", "))),
            });
        }
    };
    match rest {
        [upstream, peer] => Ok(Change::Peer {
            upstream: (*upstream).to_owned(),
            peer: (*peer).to_owned(),
            act,
        }),
        _ => Err(usage(&format!("peer {} UPSTREAM PEER", act.word()))),
    }
}

/// A weight as on a server line.
pub(super) fn weight(text: &str) -> Result<u32, Complaint> {
    number(text).filter(|weight| *weight > 0).ok_or_else(|| {
        Complaint::new(format!("invalid weight \"{text}\""))
            .hint("a weight is a number from 1; `peer down` sends nothing there")
    })
}

/// A number of connections as on a server line.
pub(super) fn limit(text: &str) -> Result<u32, Complaint> {
    number(text).ok_or_else(|| {
        Complaint::new(format!("invalid max_conns \"{text}\""))
            .hint("it is a number, 0 is no limit")
    })
}

fn number(text: &str) -> Option<u32> {
    value::number(text).and_then(|number| u32::try_from(number).ok())
}

fn usage(form: &str) -> Complaint {
    Complaint::new("wrong number of words").hint(format!("the form is: {form}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Change, Complaint> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Change::parse(&words)
    }

    #[test]
    fn words_are_read_and_written_alike() {
        for text in [
            "peer add app 127.0.0.1:8080",
            "peer add app [::1]:80 weight=2 max_conns=3 max_fails=0 fail_timeout=5s slow_start=30s backup down drain route=a",
            "peer add app unix:/run/app.sock",
            "peer remove app 127.0.0.1:8080",
            "peer drain app b:80",
            "peer down app unix:/x",
            "peer up app b",
            "peer weight app b 7",
            "peer max_conns app b 0",
            "peer reset app b",
            "reset",
            "reset app",
            "reset app b",
        ] {
            let change = parse(text).unwrap();
            assert_eq!(change.words().join(" "), text);
        }
        let without_port = parse("peer add app 127.0.0.1").unwrap();
        assert_eq!(without_port.words().join(" "), "peer add app 127.0.0.1:80");
    }

    #[test]
    fn what_is_wrong_is_said_with_what_helps() {
        for (text, error, hint) in [
            ("", "there is no change", "peer"),
            ("pear add", "unknown change \"pear\"", "begins with"),
            ("peer", "wrong number of words", "peer ACT"),
            (
                "peer dwon a b",
                "unknown change \"peer dwon\"",
                "\"peer down\"",
            ),
            (
                "peer explode a b",
                "unknown change \"peer explode\"",
                "known are: add",
            ),
            (
                "peer down a",
                "wrong number of words",
                "peer down UPSTREAM PEER",
            ),
            (
                "peer weight a b",
                "wrong number of words",
                "peer weight UPSTREAM PEER N",
            ),
            ("peer weight a b 0", "invalid weight \"0\"", "from 1"),
            ("peer weight a b -1", "invalid weight \"-1\"", "from 1"),
            (
                "peer max_conns a b x",
                "invalid max_conns \"x\"",
                "0 is no limit",
            ),
            ("peer add a", "wrong number of words", "peer add"),
            (
                "peer add a app.example.com:80",
                "\"app.example.com:80\" is no address",
                "resolve",
            ),
            (
                "peer add a 127.0.0.1:99999",
                "invalid port",
                "127.0.0.1:8080",
            ),
            (
                "peer add a unix:run/x",
                "\"unix:run/x\" is not absolute",
                "unix:/path",
            ),
            (
                "peer add a 127.0.0.1:1 weight=0",
                "invalid parameter \"weight=0\"",
                "from 1",
            ),
            (
                "peer add a 127.0.0.1:1 resolve",
                "invalid parameter \"resolve\"",
                "configuration",
            ),
            (
                "peer add a 127.0.0.1:1 nonsense",
                "invalid parameter \"nonsense\"",
                "weight=",
            ),
            (
                "reset a b c",
                "wrong number of words",
                "reset [UPSTREAM [PEER]]",
            ),
        ] {
            let complaint = parse(text).unwrap_err();
            assert!(complaint.error.contains(error), "{text}: {complaint}");
            assert!(
                complaint.hint.clone().unwrap_or_default().contains(hint),
                "{text}: {complaint}"
            );
        }
    }
}
