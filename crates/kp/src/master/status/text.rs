//! The overview as text: what an operator looks for stands in the first lines, one paragraph for each generation follows.

use super::{Generation, Holder, Load, Overview, Place, state_name};
use crate::generation::{Stage, Vacancy};
use kp_worker::error_log;
use std::fmt::Write;
use std::time::Duration;

/// Certificates that are shown.
const CERTIFICATES_MAX: usize = 10;

impl Overview<'_> {
    /// For a terminal.
    pub(super) fn text(&self, now_ms: u64) -> String {
        let mut text = format!(
            "kp/{}, master process {}, {}running for {}\n",
            env!("CARGO_PKG_VERSION"),
            self.pid,
            if self.stopping { "shutting down, " } else { "" },
            span(self.uptime_ms),
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "configuration: {}", self.configuration.display());
        let _ = writeln!(
            text,
            "listening on:  {}",
            or_none(&self.addresses.join(", "))
        );
        let (connections, requests) = self.totals;
        let _ = writeln!(
            text,
            "so far:        {}, {}",
            counted(connections, "connection", "connections"),
            counted(requests, "request", "requests")
        );
        if let Some(other) = &self.other {
            let _ = writeln!(text, "beside it:     {other}");
        }
        self.reloads(&mut text);
        self.certificates(&mut text);
        if self.generations.is_empty() {
            text.push_str("\nno worker is running\n");
        }
        for generation in &self.generations {
            generation.write(&mut text, now_ms);
        }
        text
    }

    /// Those that end first; the others have time.
    fn certificates(&self, text: &mut String) {
        let mut lead = "certificates:";
        for (path, left_s) in self.certificates.iter().take(CERTIFICATES_MAX) {
            let path = path.display();
            let _ = match left_s.map(|seconds| seconds / 86_400) {
                Some(1) => writeln!(text, "{lead:<14} {path} ends in 1 day"),
                Some(days) => writeln!(text, "{lead:<14} {path} ends in {days} days"),
                None => writeln!(text, "{lead:<14} {path} has EXPIRED"),
            };
            lead = "";
        }
        let others = self.certificates.len().saturating_sub(CERTIFICATES_MAX);
        if others > 0 {
            let _ = writeln!(text, "               and {others} that end later");
        }
    }

    fn reloads(&self, text: &mut String) {
        let history = self.history;
        let Some((ended_unix_ms, outcome)) = &history.last else {
            text.push_str("last reload:   none so far\n");
            return;
        };
        let how = match outcome {
            Ok(()) => "has worked",
            Err(_) => "has FAILED",
        };
        let date = error_log::date_of(*ended_unix_ms);
        let (ended, failed) = (history.ended, history.failed);
        let _ = writeln!(
            text,
            "last reload:   {how}, {date} (reloads so far: {ended}, failed: {failed})"
        );
        for line in outcome.as_ref().err().into_iter().flatten() {
            let _ = writeln!(text, "               {line}");
        }
    }
}

impl Generation {
    fn write(&self, text: &mut String, now_ms: u64) {
        let _ = writeln!(text, "\ngeneration {}: {}", self.number, self.headline());
        if self.places.is_empty() {
            return;
        }
        text.push_str(
            "  slot      pid  state       uptime  memory  connections  idle  requests  tunnels  restarts\n",
        );
        for place in &self.places {
            place.write(text, now_ms);
        }
    }

    fn headline(&self) -> String {
        let time = span(self.for_ms);
        match self.stage {
            _ if self.failed => "failed, its workers are being stopped".into(),
            Stage::Starting { ready } => {
                format!(
                    "starting for {time}, {ready} of {} workers ready",
                    self.slots
                )
            }
            Stage::Serving => format!("serving for {time}"),
            Stage::Retired => "sent home by SIGWINCH, SIGHUP brings its workers back".into(),
            Stage::Draining => format!(
                "draining for {time}, waits for {}; {}",
                self.total().waits_for(),
                self.end()
            ),
        }
    }

    fn total(&self) -> Load {
        let seen = self.places.iter().filter_map(|place| match &place.holder {
            Holder::Worker { row, .. } => row.as_ref(),
            Holder::Vacant(_) => None,
        });
        seen.fold(Load::default(), |sum, seen| sum.add(seen.load))
    }

    fn end(&self) -> String {
        let Some(limit) = self.limit else {
            return "without a time limit (worker_shutdown_timeout)".into();
        };
        let left_ms = (limit.as_millis() as u64).saturating_sub(self.for_ms);
        format!("ends in {} (worker_shutdown_timeout)", span(left_ms))
    }
}

impl Place {
    fn write(&self, text: &mut String, now_ms: u64) {
        let (slot, restarts) = (self.slot, self.restarts);
        let _ = match &self.holder {
            Holder::Worker {
                pid,
                row: Some(seen),
            } => {
                let state = if seen.stuck {
                    "stuck"
                } else {
                    state_name(seen.state)
                };
                let uptime = span(seen.uptime_ms);
                let Load {
                    connections,
                    idle,
                    requests,
                    tunnels,
                    memory,
                } = seen.load;
                let memory_mib = memory.div_ceil(1 << 20);
                writeln!(
                    text,
                    "  {slot:>4}  {pid:>7}  {state:<8}  {uptime:>8}  {memory_mib:>5}M  {connections:>11}  {idle:>4}  {requests:>8}  {tunnels:>7}  {restarts:>8}"
                )
            }
            Holder::Worker { pid, row: None } => writeln!(
                text,
                "  {slot:>4}  {pid:>7}  not in the shared tables, which are full"
            ),
            Holder::Vacant(vacancy) => {
                let why = match vacancy {
                    Vacancy::Due { at_ms } => {
                        let wait_ms = at_ms.saturating_sub(now_ms);
                        format!("the next worker starts in {wait_ms} ms")
                    }
                    Vacancy::Held => "nobody is started while a newer generation starts".into(),
                    Vacancy::Closed => "a worker could not start, see the error log".into(),
                };
                writeln!(text, "  {slot:>4}        -  {why} (restarts: {restarts})")
            }
        };
    }
}

impl Load {
    /// For the error log.
    pub(in super::super) fn shown(&self) -> String {
        let connections = counted(self.connections, "connection", "connections");
        let requests = counted(self.requests, "request", "requests");
        let tunnels = match self.tunnels {
            0 => String::new(),
            tunnels => format!(", {}", counted(tunnels, "tunnel", "tunnels")),
        };
        format!("{connections}, {requests}{tunnels}")
    }

    /// What keeps a draining generation alive.
    fn waits_for(&self) -> String {
        let rest = self
            .connections
            .saturating_sub(self.tunnels + self.requests);
        let parts: Vec<_> = [
            (self.tunnels, "tunnel", "tunnels"),
            (self.requests, "request", "requests"),
            (rest, "idle connection", "idle connections"),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| counted(count, one, many))
        .collect();
        if parts.is_empty() {
            return "its workers to exit".into();
        }
        parts.join(", ")
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

/// Two units are enough: `12s`, `5m 12s`, `2h 5m`, `3d 4h`.
fn span(ms: u64) -> String {
    let seconds = Duration::from_millis(ms).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::*;
    use crate::master::queue::History;
    use kp_shm::State;
    use std::path::Path;

    fn load(connections: u64, idle: u64, requests: u64, tunnels: u64) -> Load {
        Load {
            connections,
            idle,
            requests,
            tunnels,
            memory: 8 << 20,
        }
    }

    fn worker(slot: u32, state: State, load: Load, restarts: u32) -> Place {
        Place {
            slot,
            restarts,
            holder: Holder::Worker {
                pid: 4700 + slot as i32,
                row: Some(Seen {
                    state,
                    stuck: false,
                    uptime_ms: 3_725_000,
                    load,
                }),
            },
        }
    }

    fn generation(number: u32, stage: Stage, places: Vec<Place>) -> Generation {
        Generation {
            number,
            stage,
            failed: false,
            for_ms: 12_345,
            slots: 2,
            limit: Some(Duration::from_secs(60)),
            places,
        }
    }

    fn vacant(slot: u32, vacancy: Vacancy) -> Place {
        Place {
            slot,
            restarts: 3,
            holder: Holder::Vacant(vacancy),
        }
    }

    #[test]
    fn an_overview_is_read_from_top_to_bottom() {
        let history = History {
            ended: 7,
            failed: 2,
            last: Some((0, Err(vec!["one".into(), "two in kp.conf:3:1".into()]))),
        };
        let overview = Overview {
            pid: 4711,
            uptime_ms: 300_000_000,
            stopping: false,
            configuration: Path::new("/etc/kp/kp.conf"),
            totals: (1_024, 1),
            history: &history,
            addresses: vec!["0.0.0.0:80".into(), "unix:/run/kp-http.sock".into()],
            certificates: vec![
                ("/etc/kp/old.crt".into(), None),
                ("/etc/kp/a.crt".into(), Some(86_400)),
                ("/etc/kp/b.crt".into(), Some(2 * 86_400 - 1)),
                ("/etc/kp/c.crt".into(), Some(2 * 86_400)),
            ],
            other: Some("new binary process 4800, which is starting".into()),
            generations: vec![
                generation(
                    4,
                    Stage::Serving,
                    vec![
                        worker(0, State::Ready, load(34, 20, 3, 11), 0),
                        vacant(1, Vacancy::Due { at_ms: 1_400 }),
                    ],
                ),
                generation(
                    3,
                    Stage::Draining,
                    vec![worker(0, State::Draining, load(6, 0, 1, 2), 1)],
                ),
            ],
        };
        let date = error_log::date_of(0);
        let text = format!(
            "kp/{}, master process 4711, running for 3d 11h
configuration: /etc/kp/kp.conf
listening on:  0.0.0.0:80, unix:/run/kp-http.sock
so far:        1024 connections, 1 request
beside it:     new binary process 4800, which is starting
last reload:   has FAILED, {date} (reloads so far: 7, failed: 2)
               one
               two in kp.conf:3:1
certificates:  /etc/kp/old.crt has EXPIRED
               /etc/kp/a.crt ends in 1 day
               /etc/kp/b.crt ends in 1 day
               /etc/kp/c.crt ends in 2 days

generation 4: serving for 12s
  slot      pid  state       uptime  memory  connections  idle  requests  tunnels  restarts
     0     4700  serving      1h 2m      8M           34    20         3       11         0
     1        -  the next worker starts in 400 ms (restarts: 3)

generation 3: draining for 12s, waits for 2 tunnels, 1 request, 3 idle connections; ends in 47s (worker_shutdown_timeout)
  slot      pid  state       uptime  memory  connections  idle  requests  tunnels  restarts
     0     4700  draining     1h 2m      8M            6     0         1        2         1
",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(overview.text(1_000), text);
    }

    #[test]
    fn a_master_without_workers_says_so() {
        let overview = Overview {
            pid: 1,
            uptime_ms: 0,
            stopping: true,
            configuration: Path::new("/c"),
            totals: (0, 0),
            history: &History::default(),
            addresses: Vec::new(),
            certificates: Vec::new(),
            other: None,
            generations: Vec::new(),
        };
        let text = overview.text(0);
        for part in [
            "master process 1, shutting down, running for 0s\n",
            "listening on:  nothing\n",
            "last reload:   none so far\n",
            "\nno worker is running\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn headlines_tell_how_far_a_generation_is() {
        let starting = generation(2, Stage::Starting { ready: 1 }, Vec::new());
        assert_eq!(
            starting.headline(),
            "starting for 12s, 1 of 2 workers ready"
        );
        let mut old = generation(1, Stage::Draining, Vec::new());
        old.limit = None;
        assert_eq!(
            old.headline(),
            "draining for 12s, waits for its workers to exit; without a time limit (worker_shutdown_timeout)"
        );
        old.failed = true;
        assert_eq!(old.headline(), "failed, its workers are being stopped");
    }

    #[test]
    fn an_empty_slot_says_why() {
        for (vacancy, why) in [
            (Vacancy::Held, "while a newer generation starts"),
            (Vacancy::Closed, "see the error log"),
        ] {
            let mut text = String::new();
            vacant(1, vacancy).write(&mut text, 0);
            assert!(text.contains(why), "{text}");
        }
    }

    #[test]
    fn spans_and_loads_are_short() {
        for (seconds, shown) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m 0s"),
            (3_599, "59m 59s"),
            (3_600, "1h 0m"),
            (86_399, "23h 59m"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(span(seconds * 1000 + 999), shown);
        }
        assert_eq!(load(1, 0, 1, 0).shown(), "1 connection, 1 request");
        assert_eq!(
            load(4, 1, 2, 1).shown(),
            "4 connections, 2 requests, 1 tunnel"
        );
    }
}
