//! What the master asks a worker while it serves, and what the worker finds: both travel as JSON.
//!
//! Decides what is said of the worker's state; what a person gets to see of it is the command line's affair. An inquiry is
//! answered within the turn it came in, so its work is bounded: all connections are glanced at, few are described. What a
//! client sent is cut and made printable here.

mod connections;
mod longest;
mod requests;

use crate::error_log::{self, LEVELS};
use crate::reactor::Worker;
use serde::{Deserialize, Serialize};

/// The most requests or connections that one worker describes.
pub const ROWS_MAX: usize = 1_000;
/// A target is cut behind so many bytes.
const TARGET_MAX_BYTES: usize = 256;

/// What the master asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inquiry {
    /// Give every error log this level; `None`: its own again.
    LogLevel(Option<String>),
    /// The oldest requests in flight.
    Requests {
        /// So many; at most [`ROWS_MAX`].
        limit: usize,
        /// Only those that are in flight for at least so long.
        longer_ms: u64,
    },
    /// The oldest connections of clients, and connections to upstreams.
    Connections {
        /// So many; at most [`ROWS_MAX`].
        limit: usize,
    },
}

/// What the worker found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Findings {
    /// It was done.
    Done,
    /// The inquiry was none.
    Unknown,
    /// Requests in flight.
    Requests {
        /// How many there are, those included that are not described.
        in_flight: usize,
        /// The oldest first.
        requests: Vec<RequestInFlight>,
    },
    /// Connections.
    Connections {
        /// How many clients there are, those included that are not described.
        clients: usize,
        /// The oldest first.
        connections: Vec<ClientConnection>,
        /// By peer.
        upstreams: Vec<PeerConnections>,
    },
}

/// A request that is not over, and where it waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestInFlight {
    /// The worker's process id.
    pub worker: u32,
    /// `$connection`.
    pub connection: u64,
    /// Which request of the connection it is, from 1.
    pub request: u32,
    /// The client's address, or `unix:`.
    pub client: String,
    /// Name of the virtual host; empty: it has none, or is not known before the head is whole.
    pub server: String,
    /// The method; empty before the head is whole.
    pub method: String,
    /// The target as sent, cut and printable; empty before the head is whole.
    pub uri: String,
    /// Milliseconds since its first byte.
    pub age_ms: u64,
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// Whom or what: a peer, an upstream, a name; empty: the client, or nobody.
    pub waits_on: String,
    /// Milliseconds for which it has waited, where that is known.
    pub waited_ms: Option<u64>,
    /// Milliseconds until it goes on by itself, where it does.
    pub goes_on_in_ms: Option<u64>,
    /// The upstream of the last attempt; empty: there was none.
    pub upstream: String,
    /// The peer of the last attempt; empty: there was none.
    pub peer: String,
    /// Attempts so far.
    pub attempt: usize,
    /// Bytes that came from the client.
    pub bytes_in: u64,
    /// Bytes that were sent to the client.
    pub bytes_out: u64,
    /// What ends it if nothing happens, the first in front.
    pub timeouts: Vec<Timeout>,
    /// Windows of `client_min_rate` and `send_min_rate` that run.
    #[serde(default)]
    pub rates: Vec<RunningRate>,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// The rest of its head from the client.
    Head,
    /// Its body, or more of it, from the client.
    RequestBody,
    /// Its turn at a rate limit.
    RateLimit,
    /// The end of the pause before the next attempt.
    Backoff,
    /// A peer with a free place.
    Queue,
    /// The addresses of a name.
    Name,
    /// A connection to a peer.
    Connect,
    /// The end of the TLS handshake with a peer.
    Handshake,
    /// That a peer takes the request.
    SendRequest,
    /// A response head from a peer.
    ResponseHead,
    /// The body, or more of it, from a peer.
    ResponseBody,
    /// That the client takes the response.
    Client,
    /// `limit_rate`: that more may be sent to the client.
    LimitRate,
    /// `proxy_limit_rate`: that more may be read from a peer.
    ProxyLimitRate,
    /// A file that is opened, read or written.
    File,
    /// A page about kp itself that is being made.
    Page,
    /// Nothing: the connection was switched to another protocol, and neither side says anything.
    Tunnel,
    /// Its turn in the worker's loop.
    Loop,
}

/// A deadline that is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeout {
    /// The directive that sets it.
    pub directive: String,
    /// Milliseconds until then.
    pub in_ms: u64,
}

/// A window in which a client's bytes are counted, and judged at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRate {
    /// The directive that sets it.
    pub directive: String,
    /// How fast the client has been in it; `None`: no time has passed in it.
    pub bytes_per_s: Option<u64>,
    /// How fast it must be.
    pub least_bytes_per_s: u64,
    /// Milliseconds of waiting for the client until the window ends.
    pub left_ms: u64,
    /// The client is waited for; else the window stands still.
    pub waiting: bool,
    /// A client that is too slow in it is sent away at its end; the first window is not judged.
    pub judged: bool,
}

/// A connection of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientConnection {
    /// The worker's process id.
    pub worker: u32,
    /// `$connection`.
    pub connection: u64,
    /// The client's address, or `unix:`.
    pub client: String,
    /// What it connected to, as in `listen`.
    pub listener: String,
    /// Milliseconds since it was accepted.
    pub age_ms: u64,
    /// Requests so far, the one in flight included.
    pub requests: u32,
    /// What it does.
    pub state: ConnectionState,
    /// `TLSv1.2`, `TLSv1.3`; empty: none, or not yet.
    pub tls: String,
    /// What ends it if nothing happens, milliseconds from now; `None` while a request is in flight.
    pub ends_in_ms: Option<u64>,
}

/// What a connection of a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionState {
    /// Its PROXY header is awaited.
    ProxyHeader,
    /// The TLS handshake is under way.
    Handshake,
    /// The first byte of its first request is awaited.
    New,
    /// A further request is awaited.
    Idle,
    /// A request head has begun.
    Head,
    /// A request is in flight.
    Request,
    /// The last answer is out; what still comes is dropped.
    Closing,
}

/// Connections to a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerConnections {
    /// The group; empty: the address came out of a variable.
    pub upstream: String,
    /// The peer, as in `$upstream_addr`.
    pub peer: String,
    /// Connections that are being opened.
    pub connecting: usize,
    /// Connections that a request uses.
    pub busy: usize,
    /// Connections that wait for one.
    pub idle: usize,
}

impl PeerConnections {
    /// Takes in those of another worker.
    pub fn add(&mut self, other: &Self) {
        self.connecting = self.connecting.saturating_add(other.connecting);
        self.busy = self.busy.saturating_add(other.busy);
        self.idle = self.idle.saturating_add(other.idle);
    }
}

impl Worker {
    /// Answers an inquiry.
    pub(crate) fn inquire(&mut self, inquiry: &[u8]) -> Vec<u8> {
        let findings = match serde_json::from_slice(inquiry) {
            Ok(Inquiry::LogLevel(name)) => {
                let known = LEVELS
                    .iter()
                    .find(|(known, _)| Some(*known) == name.as_deref());
                error_log::force_level(known.map(|(_, level)| *level));
                Findings::Done
            }
            Ok(Inquiry::Requests { limit, longer_ms }) => {
                self.requests_in_flight(limit.min(ROWS_MAX), longer_ms)
            }
            Ok(Inquiry::Connections { limit }) => self.all_connections(limit.min(ROWS_MAX)),
            Err(_) => Findings::Unknown,
        };
        serde_json::to_vec(&findings).unwrap_or_default()
    }
}

/// Bytes of a client as text, as the access log writes them: what is not printable as `\xNN`.
fn printable(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let cut = bytes.get(..TARGET_MAX_BYTES).unwrap_or(bytes);
    let mut text = String::with_capacity(cut.len());
    for byte in cut {
        match byte {
            b' '..=b'~' if *byte != b'\\' => text.push(char::from(*byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(text, "\\x{byte:02X}")),
        }
    }
    if cut.len() < bytes.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_is_cut_and_made_printable() {
        assert_eq!(printable(b"/a?b=c d"), "/a?b=c d");
        assert_eq!(printable(b"/\x1b[2J\\\xff\""), "/\\x1B[2J\\x5C\\xFF\"");
        let long = printable(&[b'x'; 300]);
        assert_eq!(long.chars().count(), TARGET_MAX_BYTES + 1);
        assert!(long.ends_with("x…"));
    }

    #[test]
    fn inquiries_and_findings_have_stable_words() {
        let asked = Inquiry::Requests {
            limit: 5,
            longer_ms: 100,
        };
        let text = serde_json::to_string(&asked).unwrap();
        assert_eq!(text, r#"{"requests":{"limit":5,"longer_ms":100}}"#);
        let word = serde_json::to_string(&WaitsFor::ResponseHead).unwrap();
        assert_eq!(word, "\"response-head\"");
        let word = serde_json::to_string(&ConnectionState::ProxyHeader).unwrap();
        assert_eq!(word, "\"proxy-header\"");
    }
}
