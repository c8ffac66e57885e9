//! What a load has seen: answers counted, and every loss described.

use std::fmt;
use std::time::{Duration, Instant};

/// What a client of the mix does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// POST after POST on a kept connection.
    Post,
    /// A new connection for each request, which says `Connection: close`.
    Close,
    /// A kept connection with a pause of up to 8 s between requests.
    Pausing,
    /// A long request body, throttled.
    Upload,
    /// A long response body, throttled.
    Download,
    /// POST after POST through a unix socket, kept and not.
    Unix,
    /// A websocket whose messages come back.
    Tunnel,
}

impl Kind {
    /// All of them, in the order in which a report counts.
    pub const ALL: [Self; 7] = [
        Self::Post,
        Self::Close,
        Self::Pausing,
        Self::Upload,
        Self::Download,
        Self::Unix,
        Self::Tunnel,
    ];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// How far a request had come when it was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The connection was refused, or nobody took it.
    Connecting,
    /// The connection was idle; only a reset or bytes that nobody asked for are a loss here.
    Idle,
    /// A part of the request was written.
    Sending,
    /// The request was written, not one byte of its response had come.
    Waiting,
    /// The response had begun.
    Receiving,
    /// The response was whole, and wrong.
    Checking,
}

/// A request that did not get its response.
#[derive(Debug, Clone)]
pub struct Loss {
    /// Whose it was.
    pub kind: Kind,
    /// Its number; the request carries it in `X-Load`.
    pub id: u64,
    /// How far it had come.
    pub stage: Stage,
    /// What was seen instead of a response.
    pub what: String,
    /// The client's end of the connection, as the other side sees it; empty where there was none.
    pub local: String,
    /// The worker that answered on this connection before, where the configuration says `add_header X-Worker $pid`.
    pub worker: Option<u32>,
    /// Responses that this connection had brought before.
    pub answered: u64,
    /// When the connection was opened.
    pub opened: Instant,
    /// When the request began.
    pub began: Instant,
    /// When it was lost.
    pub ended: Instant,
    /// When the load began.
    pub load_began: Instant,
}

impl fmt::Display for Loss {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = |instant: Instant| {
            instant
                .saturating_duration_since(self.load_began)
                .as_secs_f64()
        };
        write!(
            out,
            "{:.3} s: {:?} request {} lost while {:?}: {} (connection of {:.3} s from {:?}, {} answered, worker {:?}, request of {:.3} s)",
            since(self.ended),
            self.kind,
            self.id,
            self.stage,
            self.what,
            since(self.opened),
            self.local,
            self.answered,
            self.worker,
            since(self.began),
        )
    }
}

/// One answered request of a load that measures.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// When it began, a new connection included.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
}

/// All that a load has seen.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Requests that were answered, and answered right, in the order of [`Kind::ALL`]. Of a tunnel each message counts.
    pub answers: [u64; Kind::ALL.len()],
    /// Connections opened.
    pub connections: u64,
    /// Kept connections that ended between two requests, which is no loss.
    pub ended_idle: u64,
    /// Tunnels that were ended, in a load that allows it.
    pub ended_tunnels: u64,
    /// Requests that were lost.
    pub losses: Vec<Loss>,
    /// Losses of connections that a killed worker held.
    pub forgiven: Vec<Loss>,
    /// What was measured.
    pub samples: Vec<Sample>,
}

impl Report {
    /// All answers.
    pub fn answered(&self) -> u64 {
        self.answers.iter().sum()
    }

    /// The answers that clients of that kind got.
    pub fn of(&self, kind: Kind) -> u64 {
        self.answers[kind.index()]
    }

    /// Fails the test when anything was lost.
    pub fn assert_nothing_lost(&self) {
        assert!(self.losses.is_empty(), "{self}");
        assert!(self.answered() > 0, "nothing was asked: {self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} answers (", self.answered())?;
        for kind in Kind::ALL {
            write!(out, " {kind:?} {}", self.of(kind))?;
        }
        write!(
            out,
            " ) over {} connections, {} ended idle, {} tunnels ended, {} lost, {} lost with a killed worker",
            self.connections,
            self.ended_idle,
            self.ended_tunnels,
            self.losses.len(),
            self.forgiven.len()
        )?;
        for loss in self.losses.iter().take(20) {
            write!(out, "\n  {loss}")?;
        }
        if self.losses.len() > 20 {
            write!(out, "\n  and {} more", self.losses.len() - 20)?;
        }
        Ok(())
    }
}
