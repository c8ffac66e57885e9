//! The master's answers for people.

mod upstreams;

use super::table::{Column, Table, printable, size, time};
use super::words::{Line, Wish};
use crate::control::command::{Changed, Command, Connections, LogLevels, Requests};
use kp_worker::inquiry::{
    ClientConnection, ConnectionState, RequestInFlight, RunningRate, WaitsFor,
};
use std::fmt::Write;

/// An answer as text; `None`: it is not what this command is answered with.
pub(crate) fn people(line: &Line, answer: &str) -> Option<String> {
    let Wish::Command(command) = &line.wish else {
        return None;
    };
    match command {
        Command::UpstreamList {} => serde_json::from_str(answer).ok().map(upstreams::list),
        Command::UpstreamShow { .. } => serde_json::from_str(answer).ok().map(upstreams::show),
        Command::Requests { .. } => serde_json::from_str(answer).ok().map(requests),
        Command::Connections { .. } => serde_json::from_str(answer).ok().map(connections),
        Command::LogLevel { .. } => serde_json::from_str(answer).ok().map(log_levels),
        Command::Change { .. } => serde_json::from_str(answer).ok().map(changed),
        // Asked by `--wait` only, which understands it.
        Command::InFlight { .. } => None,
    }
}

fn requests(answer: Requests) -> String {
    let (shown, all) = (answer.requests.len(), answer.in_flight);
    let mut text = match (shown, all) {
        (_, 0) => "no request is in flight\n".to_owned(),
        (_, 1) => "1 request is in flight\n".to_owned(),
        _ if shown == all => format!("{all} requests are in flight\n"),
        _ => format!("{all} requests are in flight; the oldest {shown}:\n"),
    };
    for request in &answer.requests {
        text.push('\n');
        text.push_str(&one_request(request));
    }
    text + &silent(&answer.silent)
}

/// Three lines: which it is, where it waits, what will end it.
fn one_request(request: &RequestInFlight) -> String {
    let of = |text: &str| match text {
        "" => "-".to_owned(),
        text => printable(text).replace('\n', "\\n"),
    };
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:>10}  {} {}{}  from {}, {}",
        time(request.age_ms),
        of(&request.method),
        of(&request.server),
        of(&request.uri),
        of(&request.client),
        format_args!(
            "request {} of *{} in worker {}",
            request.request, request.connection, request.worker
        ),
    );
    let _ = writeln!(text, "            {}", printable(&where_it_waits(request)));
    let mut facts = vec![format!(
        "{} in, {} out",
        size(request.bytes_in),
        size(request.bytes_out)
    )];
    if request.attempt > 0 {
        facts.push(format!(
            "attempt {} at {}",
            request.attempt,
            of(&request.peer)
        ));
    }
    for timeout in &request.timeouts {
        facts.push(format!(
            "{} in {}",
            of(&timeout.directive),
            time(timeout.in_ms)
        ));
    }
    facts.extend(request.rates.iter().map(running_rate));
    let _ = writeln!(text, "            {}", facts.join("; "));
    text
}

/// `send_min_rate 1.0 KiB/s of 10.0 KiB/s, judged in 3.2 s`.
fn running_rate(rate: &RunningRate) -> String {
    let speed = rate
        .bytes_per_s
        .map_or("-".into(), |speed| format!("{}/s", size(speed)));
    let least = size(rate.least_bytes_per_s);
    let end = match (rate.waiting, rate.judged) {
        (false, _) => "not waited for now".to_owned(),
        (true, true) => format!("judged in {}", time(rate.left_ms)),
        (true, false) => format!("first window, ends in {}", time(rate.left_ms)),
    };
    let directive = printable(&rate.directive);
    format!("{directive} {speed} of {least}/s, {end}")
}

/// In words.
fn where_it_waits(request: &RequestInFlight) -> String {
    let on = request.waits_on.as_str();
    let mut words = match request.waits_for {
        WaitsFor::Head => "waits for the rest of the request head from the client".to_owned(),
        WaitsFor::RequestBody => "waits for the request body from the client".to_owned(),
        WaitsFor::RateLimit => "waits for its turn at a rate limit".to_owned(),
        WaitsFor::Backoff => "pauses before the next attempt".to_owned(),
        WaitsFor::Queue => format!("waits in the queue of upstream \"{on}\" for a free place"),
        WaitsFor::Name => format!("waits for the addresses of \"{on}\""),
        WaitsFor::Connect => format!("connecting to {on}"),
        WaitsFor::Handshake => format!("TLS handshake with {on}"),
        WaitsFor::SendRequest => format!("waits until {on} takes the request"),
        WaitsFor::ResponseHead => format!("waits for the response head from {on}"),
        WaitsFor::ResponseBody => format!("waits for the response body from {on}"),
        WaitsFor::Client => "waits until the client takes the response".to_owned(),
        WaitsFor::LimitRate => "is held back by limit_rate".to_owned(),
        WaitsFor::ProxyLimitRate => format!("reading from {on} is held back by proxy_limit_rate"),
        WaitsFor::File => "waits for a file".to_owned(),
        WaitsFor::Page => "waits for a page about kp to be made".to_owned(),
        WaitsFor::Tunnel => format!("tunnel to {on}, idle"),
        WaitsFor::Loop => "waits for its turn in the worker".to_owned(),
    };
    if let Some(waited_ms) = request.waited_ms {
        let _ = write!(words, " for {}", time(waited_ms));
    }
    if let Some(in_ms) = request.goes_on_in_ms {
        let _ = write!(words, ", goes on in {}", time(in_ms));
    }
    words
}

fn connections(answer: Connections) -> String {
    let (shown, all) = (answer.connections.len(), answer.clients);
    let mut text = match (shown, all) {
        (_, 0) => "no client is connected\n".to_owned(),
        (_, 1) => "1 client is connected\n".to_owned(),
        _ if shown == all => format!("{all} clients are connected\n"),
        _ => format!("{all} clients are connected; the oldest {shown}:\n"),
    };
    let mut clients = Table::new(&[
        Column::Numbers("AGE"),
        Column::Words("CLIENT"),
        Column::Words("LISTENER"),
        Column::Words("STATE"),
        Column::Numbers("REQUESTS"),
        Column::Words("TLS"),
        Column::Numbers("ENDS IN"),
        Column::Numbers("NUMBER"),
        Column::Numbers("WORKER"),
    ]);
    for one in answer.connections {
        let state = state_of(&one);
        clients.row([
            time(one.age_ms),
            one.client,
            one.listener,
            state,
            one.requests.to_string(),
            or_dash(one.tls),
            one.ends_in_ms.map_or("-".into(), time),
            one.connection.to_string(),
            one.worker.to_string(),
        ]);
    }
    if !clients.is_empty() {
        text.push('\n');
        text.push_str(&clients.text(""));
    }
    let mut peers = Table::new(&[
        Column::Words("UPSTREAM"),
        Column::Words("PEER"),
        Column::Numbers("CONNECTING"),
        Column::Numbers("BUSY"),
        Column::Numbers("IDLE"),
    ]);
    for one in answer.upstreams {
        peers.row([
            or_dash(one.upstream),
            or_dash(one.peer),
            one.connecting.to_string(),
            one.busy.to_string(),
            one.idle.to_string(),
        ]);
    }
    if !peers.is_empty() {
        text.push_str("\nconnections to upstreams:\n");
        text.push_str(&peers.text(""));
    }
    text + &silent(&answer.silent)
}

fn state_of(connection: &ClientConnection) -> String {
    match connection.state {
        ConnectionState::ProxyHeader => "PROXY header".into(),
        ConnectionState::Handshake => "TLS handshake".into(),
        ConnectionState::New => "new".into(),
        ConnectionState::Idle => "idle".into(),
        ConnectionState::Head => "reading head".into(),
        ConnectionState::Request => format!("request {}", connection.requests),
        ConnectionState::Closing => "closing".into(),
    }
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

fn changed(changed: Changed) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let (changes, workers) = (changed.changes, changed.workers);
    let text = format!(
        "{changes} change{} in force in {workers} worker process{}\n",
        plural(changes),
        if workers == 1 { "" } else { "es" }
    );
    text + &silent(&changed.silent)
}

fn log_levels(levels: LogLevels) -> String {
    let mut text = match &levels.in_force {
        Some(level) => format!(
            "every error log has level {}, until \"kp ctl log-level reset\" or a restart; a reload does not end it\n",
            printable(level)
        ),
        None => "every error log has its own level\n".into(),
    };
    let mut table = Table::new(&[Column::Words("ERROR LOG"), Column::Words("LEVEL")]);
    for one in levels.configured {
        table.row([one.log, one.level]);
    }
    if !table.is_empty() {
        text.push_str("\nmain context as configured:\n");
        text.push_str(&table.text("  "));
    }
    text + &silent(&levels.silent)
}

/// Workers that have not answered.
fn silent(pids: &[i32]) -> String {
    let mut text = String::new();
    for pid in pids {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "worker process {pid} has not answered in 1 s");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kp_worker::inquiry::Timeout;

    fn request(waits_for: WaitsFor) -> RequestInFlight {
        RequestInFlight {
            worker: 4711,
            connection: 17,
            request: 2,
            client: "192.0.2.1:5000".into(),
            server: "example.com".into(),
            method: "GET".into(),
            uri: "/a\u{1b}b".into(),
            age_ms: 12_345,
            waits_for,
            waits_on: "10.0.0.1:80".into(),
            waited_ms: Some(1_200),
            goes_on_in_ms: None,
            upstream: "app".into(),
            peer: "10.0.0.1:80".into(),
            attempt: 2,
            bytes_in: 100,
            bytes_out: 2048,
            timeouts: vec![Timeout {
                directive: "proxy_read_timeout".into(),
                in_ms: 58_800,
            }],
            rates: Vec::new(),
        }
    }

    #[test]
    fn a_request_is_told_in_three_lines() {
        let answer = Requests {
            in_flight: 3,
            requests: vec![request(WaitsFor::ResponseHead)],
            workers: 1,
            silent: vec![99],
        };
        assert_eq!(
            requests(answer),
            "3 requests are in flight; the oldest 1:\n\
             \n    12.3 s  GET example.com/a\\u{1b}b  from 192.0.2.1:5000, request 2 of *17 in worker 4711\n\
             \x20           waits for the response head from 10.0.0.1:80 for 1.2 s\n\
             \x20           100 B in, 2.0 KiB out; attempt 2 at 10.0.0.1:80; proxy_read_timeout in 58.8 s\n\
             worker process 99 has not answered in 1 s\n"
        );
    }

    #[test]
    fn a_window_says_how_fast_the_client_is_and_must_be() {
        let mut rate = RunningRate {
            directive: "send_min_rate".into(),
            bytes_per_s: Some(1536),
            least_bytes_per_s: 10_240,
            left_ms: 3_200,
            waiting: true,
            judged: true,
        };
        let told = |rate: &RunningRate| running_rate(rate);
        assert_eq!(
            told(&rate),
            "send_min_rate 1.5 KiB/s of 10.0 KiB/s, judged in 3.2 s"
        );
        rate.judged = false;
        rate.bytes_per_s = None;
        assert_eq!(
            told(&rate),
            "send_min_rate - of 10.0 KiB/s, first window, ends in 3.2 s"
        );
        rate.waiting = false;
        assert_eq!(
            told(&rate),
            "send_min_rate - of 10.0 KiB/s, not waited for now"
        );
    }

    #[test]
    fn every_wait_has_its_words() {
        let mut told = std::collections::BTreeSet::new();
        for waits_for in [
            WaitsFor::Head,
            WaitsFor::RequestBody,
            WaitsFor::RateLimit,
            WaitsFor::Backoff,
            WaitsFor::Queue,
            WaitsFor::Name,
            WaitsFor::Connect,
            WaitsFor::Handshake,
            WaitsFor::SendRequest,
            WaitsFor::ResponseHead,
            WaitsFor::ResponseBody,
            WaitsFor::Client,
            WaitsFor::LimitRate,
            WaitsFor::ProxyLimitRate,
            WaitsFor::File,
            WaitsFor::Page,
            WaitsFor::Tunnel,
            WaitsFor::Loop,
        ] {
            let words = where_it_waits(&request(waits_for));
            assert!(words.ends_with(" for 1.2 s"), "{words}");
            assert!(told.insert(words));
        }
    }
}
