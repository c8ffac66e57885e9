//! Upstreams and their peers for people. Of what the master tells only that is read which is shown.

use super::super::table::{Column, Table, printable, size, time};
use super::or_dash;
use kp_config::overrides::quoted;
use serde::Deserialize;
use std::fmt::Write;

/// The answer.
#[derive(Debug, Deserialize)]
pub(super) struct Upstreams {
    upstreams: Vec<Upstream>,
}

#[derive(Debug, Deserialize)]
struct Upstream {
    upstream: String,
    balancer: String,
    zone: Option<String>,
    implicit: bool,
    usable: usize,
    peers: Vec<Peer>,
    retries: u64,
    retries_refused: u64,
    no_live_peer: u64,
    rests: u64,
    ejections: u64,
    returns: u64,
    queue: Option<Queue>,
    changes: Vec<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Queue {
    length: u64,
    limit: u32,
    waits: u64,
    overflows: u64,
    timeouts: u64,
}

#[derive(Debug, Deserialize)]
struct Peer {
    peer: String,
    state: String,
    detail: Option<String>,
    backup: bool,
    effective_weight: f64,
    max_conns: u64,
    in_flight: u64,
    overdue: u64,
    idle: u64,
    attempts: Attempts,
    failures: u64,
    bytes_in: u64,
    bytes_out: u64,
    last_failure: Option<LastFailure>,
    checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
struct Attempts {
    #[serde(rename = "1xx")]
    informational: u64,
    #[serde(rename = "2xx")]
    successful: u64,
    #[serde(rename = "3xx")]
    redirection: u64,
    #[serde(rename = "4xx")]
    client_error: u64,
    #[serde(rename = "5xx")]
    server_error: u64,
    none: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct LastFailure {
    reason: String,
    age_s: u64,
}

#[derive(Debug, Deserialize)]
struct Check {
    check: String,
    state: String,
    trouble: Option<String>,
}

impl Attempts {
    fn total(&self) -> u64 {
        [
            self.informational,
            self.successful,
            self.redirection,
            self.client_error,
            self.server_error,
            self.none.unwrap_or(0),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

impl Peer {
    fn state(&self) -> String {
        let backup = if self.backup { ", backup" } else { "" };
        format!("{}{backup}", self.state)
    }

    /// `3`, `0.5`: without zeros that say nothing.
    fn weight(&self) -> String {
        let text = format!("{:.1}", self.effective_weight);
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    }

    /// How many of those in flight have waited long for their response head.
    fn overdue(&self) -> String {
        match self.overdue {
            0 => String::new(),
            overdue => format!(" ({overdue} of them have waited 5 s or longer for an answer)"),
        }
    }

    fn in_flight(&self) -> String {
        match self.max_conns {
            0 => self.in_flight.to_string(),
            limit => format!("{} of {limit}", self.in_flight),
        }
    }

    fn last_failure(&self) -> String {
        match &self.last_failure {
            Some(last) => {
                let ago = time(last.age_s.saturating_mul(1000));
                format!("{}, {ago} ago", last.reason)
            }
            None => "-".into(),
        }
    }
}

/// All of them in one table.
pub(super) fn list(answer: Upstreams) -> String {
    let mut table = Table::new(&[
        Column::Words("UPSTREAM"),
        Column::Words("PEER"),
        Column::Words("STATE"),
        Column::Numbers("WEIGHT"),
        Column::Numbers("IN FLIGHT"),
        Column::Numbers("IDLE"),
        Column::Numbers("ATTEMPTS"),
        Column::Numbers("FAILURES"),
        Column::Words("LAST FAILURE"),
    ]);
    for upstream in answer.upstreams {
        if upstream.peers.is_empty() {
            let dash = || "-".to_owned();
            table.row([
                upstream.upstream.clone(),
                "no peer".into(),
                dash(),
                dash(),
                dash(),
                dash(),
                dash(),
                dash(),
                dash(),
            ]);
        }
        for peer in upstream.peers {
            table.row([
                upstream.upstream.clone(),
                peer.peer.clone(),
                peer.state(),
                peer.weight(),
                peer.in_flight(),
                peer.idle.to_string(),
                peer.attempts.total().to_string(),
                peer.failures.to_string(),
                peer.last_failure(),
            ]);
        }
    }
    if table.is_empty() {
        return "the configuration has no upstream\n".into();
    }
    table.text("")
}

/// One with all that is known.
pub(super) fn show(answer: Upstreams) -> String {
    answer.upstreams.iter().map(one).collect()
}

fn one(upstream: &Upstream) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<12} {}", format!("{name}:"), printable(&value));
    };
    let implicit = if upstream.implicit {
        " (made from a proxy_pass: it has no block and cannot be changed)"
    } else {
        ""
    };
    line("upstream", format!("{}{implicit}", upstream.upstream));
    line("balancer", upstream.balancer.clone());
    line("zone", or_dash(upstream.zone.clone().unwrap_or_default()));
    let peers = upstream.peers.len();
    line(
        "peers",
        format!("{peers}, {} of them usable", upstream.usable),
    );
    line(
        "retries",
        format!(
            "{}, {} more refused by the budget; {} requests found no usable peer",
            upstream.retries, upstream.retries_refused, upstream.no_live_peer
        ),
    );
    line(
        "rests",
        format!(
            "{} after failures; {} ejections, {} returns",
            upstream.rests, upstream.ejections, upstream.returns
        ),
    );
    if let Some(queue) = &upstream.queue {
        line(
            "queue",
            format!(
                "{} wait of {} that may in each worker; {} waited so far, {} found it full, {} waited too long",
                queue.length, queue.limit, queue.waits, queue.overflows, queue.timeouts
            ),
        );
    }
    for change in &upstream.changes {
        let words: Vec<String> = change.iter().map(|word| quoted(word)).collect();
        line("changed", words.join(" "));
    }
    for peer in &upstream.peers {
        text.push('\n');
        text.push_str(&one_peer(peer));
    }
    text
}

fn one_peer(peer: &Peer) -> String {
    let mut text = format!("{}: {}", peer.peer, peer.state());
    // Writing to a String cannot fail.
    if let Some(detail) = &peer.detail {
        let _ = write!(text, " ({detail})");
    }
    let attempts = &peer.attempts;
    let _ = write!(
        text,
        "\n  weight {}; {} in flight{}, {} idle connections\n  {} attempts: {} 2xx, {} 3xx, {} 4xx, {} 5xx, {} without an answer; {} failures\n  {} from it, {} to it\n",
        peer.weight(),
        peer.in_flight(),
        peer.overdue(),
        peer.idle,
        attempts.total(),
        attempts.successful,
        attempts.redirection,
        attempts.client_error,
        attempts.server_error,
        attempts.none.unwrap_or(0),
        peer.failures,
        size(peer.bytes_in),
        size(peer.bytes_out),
    );
    if peer.last_failure.is_some() {
        let _ = writeln!(text, "  last failure: {}", peer.last_failure());
    }
    for check in &peer.checks {
        let trouble = check.trouble.as_ref();
        let trouble = trouble.map_or(String::new(), |trouble| format!(", {trouble}"));
        let _ = writeln!(text, "  check {}: {}{trouble}", check.check, check.state);
    }
    printable(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"upstreams":[{"upstream":"app","balancer":"least_conn","zone":null,"implicit":false,"usable":1,
        "retries":3,"retries_refused":0,"no_live_peer":0,"rests":1,"ejections":0,"returns":0,"queue":null,"news":true,
        "changes":[["weight","10.0.0.1:80","3"]],
        "peers":[{"peer":"10.0.0.1:80","state":"up","detail":null,"backup":false,"effective_weight":3.0,"max_conns":20,
            "in_flight":2,"overdue":1,"idle":1,"attempts":{"1xx":0,"2xx":90,"3xx":0,"4xx":9,"5xx":1,"none":2},"failures":2,
            "bytes_in":2048,"bytes_out":10,"last_failure":{"reason":"connect_timeout","age_s":90},
            "checks":[{"check":"http /up","state":"failing","trouble":"status \u001b[2J"}]}]},
        {"upstream":"empty","balancer":"round robin","zone":"z","implicit":false,"usable":0,
        "retries":0,"retries_refused":0,"no_live_peer":0,"rests":0,"ejections":0,"returns":0,
        "queue":{"length":1,"limit":5,"waits":7,"overflows":2,"timeouts":3},"changes":[],"peers":[]}]}"#;

    #[test]
    fn a_table_has_a_line_for_each_peer() {
        let text = list(serde_json::from_str(ANSWER).unwrap());
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let peer = "app 10.0.0.1:80 up 3 2 of 20 1 102 2 connect_timeout, 1 min 30 s ago";
        assert_eq!(lines[1].join(" "), peer);
        assert_eq!(lines[2].join(" "), "empty no peer - - - - - - -");
        let none = serde_json::from_str(r#"{"upstreams":[]}"#).unwrap();
        assert_eq!(list(none), "the configuration has no upstream\n");
    }

    #[test]
    fn one_upstream_is_told_as_a_whole() {
        let text = show(serde_json::from_str(ANSWER).unwrap());
        for part in [
            "balancer:    least_conn\nzone:        -\npeers:       1, 1 of them usable\n",
            "changed:     weight 10.0.0.1:80 3\n",
            "\n10.0.0.1:80: up\n  weight 3; 2 of 20 in flight (1 of them have waited 5 s or longer for an answer), 1 idle connections\n",
            "  102 attempts: 90 2xx, 0 3xx, 9 4xx, 1 5xx, 2 without an answer; 2 failures\n  2.0 KiB from it, 10 B to it\n",
            "  last failure: connect_timeout, 1 min 30 s ago\n  check http /up: failing, status \\u{1b}[2J\n",
            "queue:       1 wait of 5 that may in each worker; 7 waited so far, 2 found it full, 3 waited too long\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
