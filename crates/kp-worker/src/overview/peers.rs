//! A group's peers: what its workers say of each, as one state.
//!
//! Workers note what they see of a peer in its series; with a `zone` they all see the same. The state is the worst that a
//! serving worker sees, and `detail` says in how many of them where they differ. Rests and ejections are judged by their
//! ends, which the row carries, so that they are over when they are over even if nobody has looked since.

use super::{Classes, HistogramView, Moment};
use crate::probe::trouble_named;
use kp_config::model::{CheckProtocol, HealthCheck, PeerAddress, ServerLine, Upstream};
use kp_proxy::Reason;
use kp_shm::{CheckState, Histogram, PeerCell, PeerFlag, Row, SeriesIndex, Shm, State, Totals};
use serde::Serialize;
use std::collections::HashMap;

/// A peer.
#[derive(Debug, Clone, Serialize)]
pub struct PeerView {
    /// `$upstream_addr`.
    pub peer: String,
    /// down, drain, unhealthy, ejected, resting, full or up.
    pub state: &'static str,
    /// What there is to say about the state.
    pub detail: Option<String>,
    /// At least one worker sends new requests to it, if it has a free place.
    pub usable: bool,
    /// Asked only when the others cannot be.
    pub backup: bool,
    /// As the configuration has it; `None` for an address that was found by a name.
    pub weight: Option<u32>,
    /// In effect: lowered by failures, growing in a slow start, changed at run time.
    pub effective_weight: f64,
    /// The most connections in use at once; 0: no limit.
    pub max_conns: u64,
    /// Attempts under way.
    pub in_flight: u64,
    /// Of these, attempts that have waited five seconds or longer for their response head.
    pub overdue: u64,
    /// Connections that wait in the pools.
    pub idle: u64,
    /// Attempts that are over.
    pub attempts: Classes,
    /// Attempts that counted against `max_fails`.
    pub failures: u64,
    /// Connections begun.
    pub connects: u64,
    /// Connections that did not open.
    pub connect_failures: u64,
    /// Attempts on a pooled connection.
    pub reuses: u64,
    /// Of these, on one that the peer had closed.
    pub stale_reuses: u64,
    /// Read from it.
    pub bytes_in: u64,
    /// Written to it.
    pub bytes_out: u64,
    /// Until response heads were there.
    pub head_time: HistogramView,
    /// What went wrong last.
    pub last_failure: Option<LastFailureView>,
    /// Active checks.
    pub checks: Vec<CheckView>,
}

/// What went wrong at a peer last.
#[derive(Debug, Clone, Serialize)]
pub struct LastFailureView {
    /// Its word.
    pub reason: &'static str,
    /// How long ago.
    pub age_s: u64,
}

/// What an active check has found out.
#[derive(Debug, Clone, Serialize)]
pub struct CheckView {
    /// What it asks.
    pub check: String,
    /// passing, failing or unknown.
    pub state: &'static str,
    /// What was wrong with the last answer, if something was.
    pub trouble: Option<String>,
}

/// Judges the peers of a group.
pub(super) fn peers(
    upstream: &Upstream,
    rows: Vec<(String, SeriesIndex)>,
    shm: &Shm,
    now: Moment,
) -> Vec<PeerView> {
    let lines = lines(upstream);
    let serving = serving(shm);
    let view = |(peer, index): (String, SeriesIndex)| {
        let seen = serving.iter();
        let mut seen: Vec<Seen> = seen.filter_map(|row| Seen::by(*row, index, shm)).collect();
        if upstream.zone.is_some() {
            latest(&mut seen);
        }
        // Nobody has it any more: a name that moved on, or a peer that was removed.
        let totals = shm.series().totals(index);
        (!seen.is_empty()).then(|| PeerView {
            checks: checks(upstream, &peer, shm),
            ..view(
                peer.clone(),
                lines.get(peer.as_str()).copied(),
                &seen,
                &totals,
                now,
            )
        })
    };
    let mut peers: Vec<PeerView> = rows.into_iter().filter_map(view).collect();
    peers.sort_by_cached_key(|peer| in_order(&peer.peer));
    peers
}

/// Digits count as numbers, so that `10.0.0.9` stands before `10.0.0.10`.
fn in_order(peer: &str) -> Vec<(char, u64)> {
    let mut key: Vec<(char, u64)> = Vec::new();
    let mut in_number = false;
    for c in peer.chars() {
        match (c.to_digit(10), key.last_mut()) {
            (Some(digit), Some((_, number))) if in_number => {
                *number = number.saturating_mul(10).saturating_add(digit.into());
            }
            (Some(digit), _) => key.push(('0', digit.into())),
            (None, _) => key.push((c, 0)),
        }
        in_number = c.is_ascii_digit();
    }
    key
}

/// The lines of addresses that are written in the configuration.
fn lines(upstream: &Upstream) -> HashMap<String, &ServerLine> {
    let addresses = upstream.servers.iter().flat_map(|server| {
        let named = server.resolve.is_some();
        let addresses = server.addresses.iter().filter(move |_| !named);
        addresses.map(move |address| (name_of(address), server))
    });
    addresses.collect()
}

fn name_of(address: &PeerAddress) -> String {
    match address {
        PeerAddress::Inet(address) => address.to_string(),
        PeerAddress::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// The workers whose view counts: those of the generation that serves, else all there are.
fn serving(shm: &Shm) -> Vec<Row> {
    let rows = |state: Option<State>| -> Vec<Row> {
        let board = shm.scoreboard();
        let processes = board.processes();
        let wanted = processes.filter(|process| state.is_none_or(|state| process.state == state));
        wanted.map(|process| process.row).collect()
    };
    let ready = rows(Some(State::Ready));
    if ready.is_empty() { rows(None) } else { ready }
}

/// With a zone all workers see the same, but not in the same moment: what the one says that looked last is what holds.
fn latest(seen: &mut Vec<Seen>) {
    seen.sort_by_key(|seen| std::cmp::Reverse(seen.looked_ms));
    seen.truncate(1);
}

/// What one worker says of a peer.
#[derive(Debug, Clone, Copy)]
struct Seen {
    looked_ms: u64,
    flags: u64,
    resting_until_ms: u64,
    ejected_until_ms: u64,
}

impl Seen {
    fn by(process: Row, index: SeriesIndex, shm: &Shm) -> Option<Self> {
        let value = |cell| shm.series().value(process, index, cell);
        let looked_ms = value(PeerCell::Looked);
        (looked_ms != 0).then(|| Self {
            looked_ms,
            flags: value(PeerCell::Flags),
            resting_until_ms: value(PeerCell::RestingUntil),
            ejected_until_ms: value(PeerCell::EjectedUntil),
        })
    }

    fn judge(self, now_ms: u64) -> Standing {
        let is = |flag: PeerFlag| flag.is_in(self.flags);
        let left = |until_ms: u64| (until_ms > now_ms).then(|| until_ms - now_ms);
        if is(PeerFlag::Down) {
            Standing::Down
        } else if is(PeerFlag::Drain) {
            Standing::Drain
        } else if is(PeerFlag::Unhealthy) {
            Standing::Unhealthy
        } else if let Some(left_ms) = left(self.ejected_until_ms).filter(|_| is(PeerFlag::Ejected))
        {
            Standing::Ejected { left_ms }
        } else if let Some(left_ms) = left(self.resting_until_ms).filter(|_| is(PeerFlag::Resting))
        {
            Standing::Resting { left_ms }
        } else if is(PeerFlag::Full) {
            Standing::Full
        } else {
            Standing::Up
        }
    }
}

/// The best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Up,
    Full,
    Resting { left_ms: u64 },
    Ejected { left_ms: u64 },
    Unhealthy,
    Drain,
    Down,
}

impl Standing {
    fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Full => "full",
            Self::Resting { .. } => "resting",
            Self::Ejected { .. } => "ejected",
            Self::Unhealthy => "unhealthy",
            Self::Drain => "drain",
            Self::Down => "down",
        }
    }

    fn is_out(self) -> bool {
        !matches!(self, Self::Up | Self::Full)
    }

    fn left(self) -> Option<String> {
        match self {
            Self::Resting { left_ms } | Self::Ejected { left_ms } => {
                Some(format!("{} s left", left_ms.div_ceil(1000)))
            }
            _ => None,
        }
    }
}

fn view(
    peer: String,
    line: Option<&ServerLine>,
    seen: &[Seen],
    totals: &Totals,
    now: Moment,
) -> PeerView {
    let standings = seen.iter().map(|seen| seen.judge(now.mono_ms));
    let worst = standings.clone().max().unwrap_or(Standing::Up);
    let out_in = standings.clone().filter(|one| one.is_out()).count();
    let alike = standings.filter(|one| one.word() == worst.word()).count();
    let share = (alike < seen.len()).then(|| format!("in {alike} of {} workers", seen.len()));
    let detail: Vec<String> = share.into_iter().chain(worst.left()).collect();
    let value = |cell| totals.value(cell);
    PeerView {
        peer,
        state: worst.word(),
        detail: (!detail.is_empty()).then(|| detail.join(", ")),
        usable: out_in < seen.len(),
        backup: PeerFlag::Backup.is_in(value(PeerCell::Flags)),
        weight: line.map(|line| line.weight),
        effective_weight: value(PeerCell::Weight) as f64 / 1000.0,
        max_conns: value(PeerCell::MaxConns),
        in_flight: value(PeerCell::InFlight),
        overdue: value(PeerCell::Overdue),
        idle: value(PeerCell::Idle),
        attempts: Classes {
            informational: value(PeerCell::Attempts1xx),
            successful: value(PeerCell::Attempts2xx),
            redirection: value(PeerCell::Attempts3xx),
            client_error: value(PeerCell::Attempts4xx),
            server_error: value(PeerCell::Attempts5xx),
            none: Some(value(PeerCell::AttemptsNone)),
        },
        failures: value(PeerCell::Failures),
        connects: value(PeerCell::Connects),
        connect_failures: value(PeerCell::ConnectFailures),
        reuses: value(PeerCell::Reuses),
        stale_reuses: value(PeerCell::StaleReuses),
        bytes_in: value(PeerCell::BytesIn),
        bytes_out: value(PeerCell::BytesOut),
        head_time: HistogramView::of(totals, Histogram::Head),
        last_failure: totals.last_failure().and_then(|last| {
            Some(LastFailureView {
                reason: Reason::of_index(last.reason)?.token(),
                age_s: now.unix_ms.saturating_sub(last.at_unix_ms) / 1000,
            })
        }),
        checks: Vec::new(),
    }
}

fn checks(upstream: &Upstream, peer: &str, shm: &Shm) -> Vec<CheckView> {
    let view = |check: &HealthCheck| {
        let found = shm.checks().look(&upstream.name, peer, &check.identity);
        let (state, cause) = found.unwrap_or((CheckState::Unknown, 0));
        CheckView {
            check: match check.protocol {
                CheckProtocol::Http => format!("http {}", check.uri),
                CheckProtocol::Tcp => "tcp".to_owned(),
            },
            state: match state {
                CheckState::Unknown => "unknown",
                CheckState::Healthy => "passing",
                CheckState::Unhealthy => "failing",
            },
            trouble: trouble_named(cause),
        }
    };
    upstream.checks.iter().map(view).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment {
        mono_ms: 50_000,
        unix_ms: 1_700_000_000_000,
    };

    fn seen(flags: &[PeerFlag]) -> Seen {
        Seen {
            looked_ms: 49_000,
            flags: flags.iter().fold(0, |flags, flag| flags | *flag as u64),
            resting_until_ms: 56_500,
            ejected_until_ms: 50_000,
        }
    }

    #[test]
    fn a_peer_is_what_takes_it_out_and_rests_end_by_themselves() {
        for (flags, word) in [
            (&[][..], "up"),
            (&[PeerFlag::Backup], "up"),
            (&[PeerFlag::Full], "full"),
            (&[PeerFlag::Full, PeerFlag::Resting], "resting"),
            (&[PeerFlag::Unhealthy, PeerFlag::Resting], "unhealthy"),
            (&[PeerFlag::Drain, PeerFlag::Unhealthy], "drain"),
            (&[PeerFlag::Down, PeerFlag::Drain], "down"),
            // Its time is over, though the worker has not looked since.
            (&[PeerFlag::Ejected], "up"),
        ] {
            assert_eq!(seen(flags).judge(NOW.mono_ms).word(), word, "{flags:?}");
        }
    }

    /// A failure that one worker has just noted holds for all of them at once.
    #[test]
    fn with_a_zone_the_last_look_counts() {
        let earlier = seen(&[]);
        let later = Seen {
            looked_ms: 49_500,
            ..seen(&[PeerFlag::Resting])
        };
        for mut all in [vec![earlier, later], vec![later, earlier]] {
            latest(&mut all);
            let words: Vec<&str> = all
                .iter()
                .map(|one| one.judge(NOW.mono_ms).word())
                .collect();
            assert_eq!(words, ["resting"]);
        }
    }

    #[test]
    fn addresses_are_in_the_order_people_expect() {
        let mut peers = [
            "10.0.0.10:80",
            "unix:/a",
            "10.0.0.9:80",
            "10.0.0.9:8080",
            "[::1]:80",
        ];
        peers.sort_by_cached_key(|peer| in_order(peer));
        assert_eq!(
            peers,
            [
                "10.0.0.9:80",
                "10.0.0.9:8080",
                "10.0.0.10:80",
                "[::1]:80",
                "unix:/a"
            ]
        );
    }
}
