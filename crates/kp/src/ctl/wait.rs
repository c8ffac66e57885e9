//! `--wait`: a change that takes peers out is over when nothing is in flight there any more.
//!
//! The master is asked again and again what is in flight at the peers that the change took out, and so is the one whose
//! place it takes while the binary is changed, since that one's workers still finish their requests. What keeps a request
//! in flight is not this file's affair, and nothing is ended here: whoever waits in vain learns how many are left.

use super::{LIMIT, code};
use crate::control::command::{Changed, Command, InFlight, PeerName, Refusal};
use crate::control::{Answer, Request};
use crate::ctl::table::{printable, time};
use crate::order::Running;
use crate::report;
use kp_sys::{clock, poll};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Between two questions: at first, and after a while.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// For how long somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// `None`: until it is over.
    pub(crate) limit: Option<Duration>,
}

/// How it ended.
#[derive(Debug, Serialize)]
pub(super) struct Waited {
    #[serde(flatten)]
    changed: Changed,
    /// What is still in flight there.
    left: u64,
    /// For how long was waited.
    waited_ms: u64,
    /// Where something is left, for people.
    #[serde(skip)]
    places: String,
}

impl Waited {
    /// The exit code.
    pub(super) fn code(&self) -> u8 {
        if self.left == 0 {
            code::DONE
        } else {
            code::REFUSED
        }
    }

    /// For people, if it went well.
    pub(super) fn text(&self) -> String {
        let peers: Vec<&str> = self.changed.out.iter().map(|one| &*one.peer).collect();
        match peers.as_slice() {
            [] => "no peer was taken out\n".to_owned(),
            peers => format!(
                "nothing is in flight at {} any more, after {}\n",
                printable(&peers.join(", ")),
                time(self.waited_ms)
            ),
        }
    }

    /// For people, if it did not.
    pub(super) fn complaint(&self) -> String {
        format!(
            "in flight after {}: {}; kp ctl requests shows what they wait for",
            time(self.waited_ms),
            self.places
        )
    }
}

/// Waits until nothing is in flight any more at the peers that were taken out, or for as long as there is patience.
///
/// # Errors
///
/// It cannot be known, in words.
pub(super) fn wait(
    master: &Running,
    changed: Changed,
    patience: Patience,
) -> Result<Waited, String> {
    if let [pid, ..] = changed.silent.as_slice() {
        return Err(format!(
            "worker process {pid} has not taken the change yet and may still send requests there: ask again"
        ));
    }
    let begin_ms = clock::monotonic_ms();
    let mut progress = Progress::default();
    let mut pause = PAUSE;
    let mut is_known = false;
    loop {
        let found = everywhere(master, &changed.out)?;
        let waited = Duration::from_millis(clock::monotonic_ms().saturating_sub(begin_ms));
        if !is_known && let Some(unknown) = found.iter().find(|one| one.in_flight.is_none()) {
            return Err(format!(
                "nobody counts what is in flight at {}: \"metrics off\", or more peers than can be counted",
                printable(&unknown.name.peer)
            ));
        }
        // Who was counted and is not any more has been forgotten.
        is_known = true;
        let places: Vec<String> = found.iter().filter_map(place).collect();
        let left = found.iter().filter_map(|one| one.in_flight).sum();
        let is_over = patience.limit.is_some_and(|limit| waited >= limit);
        if left == 0 || is_over {
            progress.end();
            return Ok(Waited {
                changed,
                left,
                waited_ms: waited.as_millis() as u64,
                places: places.join(", "),
            });
        }
        progress.show(&places.join(", "));
        let rest = patience.limit.map_or(pause, |limit| limit - waited);
        let paused = poll::readable(&[], Some(pause.min(rest)));
        paused.map_err(|error| report::numbered(&error))?;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// `3 at 10.0.0.1:8080`.
fn place(found: &Found) -> Option<String> {
    let count = found.in_flight.filter(|count| *count > 0)?;
    Some(format!("{count} at {}", printable(&found.name.peer)))
}

/// What all masters together say of a peer.
struct Found {
    name: PeerName,
    in_flight: Option<u64>,
}

fn everywhere(master: &Running, peers: &[PeerName]) -> Result<Vec<Found>, String> {
    let nothing = |name: &PeerName| Found {
        name: name.clone(),
        in_flight: None,
    };
    let mut found: Vec<Found> = peers.iter().map(nothing).collect();
    let mut asked = 0;
    while asked == 0 {
        let masters = master.everybody();
        if masters.is_empty() {
            return Err("the master process has ended".to_owned());
        }
        for one in masters {
            let Some(answer) = ask(&one, peers)? else {
                continue;
            };
            asked += 1;
            for (sum, told) in found.iter_mut().zip(answer.peers) {
                sum.in_flight = match (sum.in_flight, told.in_flight) {
                    (Some(one), Some(other)) => Some(one.saturating_add(other)),
                    (one, other) => one.or(other),
                };
            }
        }
    }
    Ok(found)
}

/// `None`: this one has ended meanwhile.
fn ask(master: &Running, peers: &[PeerName]) -> Result<Option<InFlight>, String> {
    let command = Command::InFlight {
        peers: peers.to_vec(),
    };
    let command = serde_json::to_vec(&command).map_err(|error| error.to_string())?;
    match master.ask(&Request::Ctl(command), LIMIT) {
        Ok(Answer::Done(text)) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| format!("the master process has an answer of its own: {error}")),
        Ok(Answer::Failed(text)) => {
            let refusal = serde_json::from_str::<Refusal>(&text);
            Err(printable(&refusal.map_or(text, |refusal| refusal.error)))
        }
        Err(_) if master.has_ended() => Ok(None),
        Err(why) => Err(why),
    }
}

/// What is left, on a line that is written over, where somebody looks.
#[derive(Debug, Default)]
struct Progress {
    shown: String,
}

impl Progress {
    fn show(&mut self, left: &str) {
        if left == self.shown || !io::stderr().is_terminal() {
            return;
        }
        // Nobody has to see it.
        let _ = write!(io::stderr().lock(), "\r\x1b[Kin flight: {left}");
        left.clone_into(&mut self.shown);
    }

    fn end(&mut self) {
        if !self.shown.is_empty() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}
