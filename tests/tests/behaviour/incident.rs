//! One incident, and everybody who tells of it: logs, metrics, the status page and `kp ctl` name the same reasons, and
//! agree on the numbers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kp_tests::ask;
use kp_tests::browser::{Browser, Screen};
use kp_tests::incident::{CASES, Case, Incident};
use kp_tests::metrics::Metrics;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kp, Origin, Port, Setup, process};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The pages, of which no log line tells.
const PAGES: &str = "server_name incident.test;
    location = /metrics { access_log off; metrics; }
    location /status { access_log off; status; }";

fn picture(kp: &Kp) -> Value {
    ask::status(&kp.address(), "/status.json")
}

/// `phase=`, `side=` and so on of `$kp_reason_detail`.
fn part<'a>(detail: &'a str, name: &str) -> Option<&'a str> {
    let mut words = detail.split(' ');
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// How often each reason was met, that of looking at a page left out.
fn counts(picture: &Value) -> BTreeMap<String, u64> {
    let reasons = picture["reasons"].as_array().expect("reasons");
    let count = |reason: &Value| {
        let name = reason["reason"].as_str().expect("a word").to_owned();
        (name, reason["count"].as_u64().expect("a count"))
    };
    let incidents = reasons.iter().filter(|reason| reason["reason"] != "page");
    incidents.map(count).collect()
}

/// The address of an attempt in `$upstream_addr`.
fn address_of(addresses: &str, attempt: usize) -> Option<&str> {
    let mut all = addresses
        .split([',', ' '])
        .filter(|word| word.contains(':') && *word != ":");
    all.nth(attempt.checked_sub(1)?)
}

/// What the page's JSON has among the last ends about this case.
fn assert_recent(picture: &Value, case: &Case, log_line: &str) {
    let recent = &picture["recent"][0];
    let words: Vec<&str> = log_line.split('|').collect();
    let [addresses, connection, pid] = words[..] else {
        panic!("{log_line}");
    };
    let attempt = part(case.detail, "attempt").map(|number| number.parse().expect("a number"));
    let peer = attempt.and_then(|attempt| address_of(addresses, attempt));
    let (path, told) = (case.path, |text: Option<&str>| json!(text));
    assert_eq!(recent["reason"], case.reason, "{path}: {recent}");
    assert_eq!(recent["status"], case.status, "{path}: {recent}");
    assert_eq!(
        recent["phase"],
        told(part(case.detail, "phase")),
        "{path}: {recent}"
    );
    assert_eq!(
        recent["closed_by"],
        told(part(case.detail, "closed_by")),
        "{path}: {recent}"
    );
    assert_eq!(recent["attempt"], json!(attempt), "{path}: {recent}");
    assert_eq!(recent["server"], "incident.test", "{path}: {recent}");
    assert_eq!(recent["peer"], told(peer), "{path}: {recent}");
    let is_known = recent["upstream"].is_string();
    assert_eq!(is_known, attempt.is_some(), "{path}: {recent}");
    if case.reason == "no_live_upstreams" {
        // There is a group, and nobody in it to ask.
        assert_eq!(recent["upstream"], addresses, "{path}: {recent}");
    }
    assert_eq!(
        recent["connection"].to_string(),
        connection,
        "{path}: {recent}"
    );
    assert_eq!(recent["pid"].to_string(), pid, "{path}: {recent}");
}

/// The words of the last failure of that peer, as the page and `kp ctl` have them.
fn assert_last_failure(kp: &Kp, picture: &Value, case: &Case) {
    let recent = &picture["recent"][0];
    let word = |field: &str| recent[field].as_str().unwrap_or_default();
    let (upstream, address) = (word("upstream"), word("peer"));
    let on_page = ask::peer(picture, upstream, address);
    assert_eq!(
        on_page["last_failure"]["reason"], case.reason,
        "{}: {on_page}",
        case.path
    );
    let by_ctl = ask::ctl(kp, &["upstream", "show", upstream]);
    let by_ctl = ask::peer(&by_ctl, upstream, address);
    assert_eq!(
        by_ctl["last_failure"]["reason"], case.reason,
        "{}: {by_ctl}",
        case.path
    );
}

/// Every case, and after each of them the error log, the page and `kp ctl` are asked why.
#[test]
fn all_who_tell_of_an_end_name_the_same_reason() {
    let incident = Incident::default();
    let kp = incident
        .setup()
        .main("error_log error.log info; error_log errors.json info format=json;")
        .http("log_format where '$upstream_addr|$connection|$pid'; access_log where.log where;")
        .server(PAGES)
        .start();
    let mut before = counts(&picture(&kp));
    for case in CASES {
        let said_before = kp.text("errors.json").len();
        incident.happen(&kp, case);
        let (path, reason) = (case.path, case.reason);
        let mut expected = before.clone();
        if reason != "-" {
            *expected.entry(reason.to_owned()).or_default() += 1;
        }
        let picture = picture(&kp);
        before = counts(&picture);
        assert_eq!(before, expected, "{path}");
        if !case.error.is_empty() && reason != "-" {
            let about = |line: &str| {
                let line: Value = serde_json::from_str(line).unwrap_or_default();
                let message = line["message"].as_str().unwrap_or_default();
                message.contains(case.error) && line["reason"] == reason
            };
            wait::until(
                SOON,
                &format!("{reason} in the error log about {path}"),
                || kp.text("errors.json")[said_before..].lines().any(about),
            );
        }
        let side = part(case.detail, "side");
        let known = ask::entry(&picture["reasons"], "reason", reason);
        assert_eq!(known["side"], json!(side), "{path}");
        // What the configuration asks for is no incident.
        if side.is_some_and(|side| side != "config") {
            let log = kp.text("where.log");
            assert_recent(&picture, case, log.lines().last().unwrap_or_default());
        }
        if side == Some("upstream") && part(case.detail, "closed_by").is_some() {
            assert_last_failure(&kp, &picture, case);
        }
    }
    assert_pages_agree(&kp);
}

/// What the metrics page said before, the JSON, and the metrics page behind it: counters lie between.
fn assert_pages_agree(kp: &Kp) {
    let metrics = || Metrics::of(&kp.address(), "/metrics");
    let (before, picture, after) = (metrics(), picture(kp), metrics());
    let mut compared = 0;
    let mut agree = |sample: String, value: &Value| {
        let value = value
            .as_f64()
            .unwrap_or_else(|| panic!("{sample}: {value}"));
        let bounds = before.value(&sample)..=after.value(&sample);
        assert!(
            bounds.contains(&value),
            "{sample}: {value} is not in {bounds:?}"
        );
        compared += 1;
    };
    for (reason, count) in counts(&picture) {
        let side = &ask::entry(&picture["reasons"], "reason", &reason)["side"];
        let side = side.as_str().expect("a side");
        agree(Metrics::of_reason(&reason, side), &json!(count));
    }
    for server in picture["servers"].as_array().expect("servers") {
        let label = format!("server={}", server["server"]);
        for (class, count) in server["responses"].as_object().expect("classes") {
            agree(
                format!("kp_http_requests_total{{{label},status=\"{class}\"}}"),
                count,
            );
        }
        let sample = format!("kp_http_request_duration_seconds_count{{{label}}}");
        agree(sample, &server["latency"]["count"]);
    }
    for upstream in picture["upstreams"].as_array().expect("upstreams") {
        let label = format!("upstream={}", upstream["upstream"]);
        let times = &upstream["response_time"]["count"];
        agree(
            format!("kp_upstream_response_duration_seconds_count{{{label}}}"),
            times,
        );
        for peer in upstream["peers"].as_array().expect("peers") {
            let label = format!("{label},peer={}", peer["peer"]);
            for (class, count) in peer["attempts"].as_object().expect("classes") {
                let sample = format!("kp_peer_attempts_total{{{label},status=\"{class}\"}}");
                agree(sample, count);
            }
            for (family, value) in [
                ("kp_peer_connects_total", &peer["connects"]),
                ("kp_peer_connect_failures_total", &peer["connect_failures"]),
                (
                    "kp_peer_head_duration_seconds_count",
                    &peer["head_time"]["count"],
                ),
            ] {
                agree(format!("{family}{{{label}}}"), value);
            }
        }
    }
    let totals = picture["totals"].as_object().expect("totals");
    for (name, value) in totals {
        // Gauges come and go while one looks; times have another unit there.
        let sample = format!("kp_{name}_total");
        if before.has(&sample) && !name.contains("loop") {
            agree(sample, value);
        }
    }
    assert!(compared > 150, "{compared}");
}

/// What was told once is still told after a reload, a change, and the end of the worker that it happened to.
#[test]
fn what_happened_outlives_who_saw_it() {
    let (origin, dead) = (Origin::ok(), Port::take());
    let mut kp = Setup::new(
        "%MAIN%
http {
    upstream app { server %DEAD% max_fails=0; server %ORIGIN% backup; }
    server { listen %LISTEN%; location / { proxy_pass http://app; } location /pages/ { metrics; } location /pages/s { status; } }
}
",
    )
    .main("worker_processes 2;")
    .allow("exited on signal 9")
    .with("ORIGIN", origin.address())
    .with("DEAD", dead.address())
    .start();
    drop(origin.stop());
    kp.wait_workers(2);
    assert_eq!(kp.get("/").status(), 502);
    let gone = dead.address();
    let told = |kp: &Kp, when: &str| {
        let picture = ask::status(&kp.address(), "/pages/s.json");
        assert_eq!(counts(&picture)["connect_failed"], 1, "{when}");
        let recent = &picture["recent"][0];
        assert_eq!(recent["reason"], "connect_failed", "{when}");
        assert_eq!(recent["attempt"], 2, "{when}");
        let failed = ask::peer(&picture, "app", &gone);
        assert_eq!(failed["last_failure"]["reason"], "connect_failed", "{when}");
        assert_eq!(failed["attempts"]["none"], 1, "{when}");
        let metrics = Metrics::of(&kp.address(), "/pages/m");
        let label = "kp_failures_total{reason=\"connect_failed\",side=\"upstream\"}";
        assert_eq!(metrics.value(label), 1.0, "{when}");
    };
    told(&kp, "at once");
    kp.reload();
    kp.wait_drained(SOON);
    told(&kp, "after a reload");
    ask::change(&kp, &[&format!("peer weight app {gone} 5")]);
    told(&kp, "after a change");
    for worker in kp.worker_pids() {
        assert!(process::signal(worker, Signal::SIGKILL));
        wait::until(SOON, "another worker", || {
            let workers = kp.worker_pids();
            workers.len() == 2 && !workers.contains(&worker)
        });
        told(&kp, "after a crash");
    }
    kp.signal(Signal::SIGTERM);
    kp.wait_exit(SOON);
    kp.start_again();
    let picture = ask::status(&kp.address(), "/pages/s.json");
    assert_eq!(picture["recent"], json!([]), "another master begins anew");
}

/// Timeouts that are long enough to be asked about.
const SLOW: &str = "http {
    log_format why '$connection $kp_reason_detail';
    access_log why.log why;
    client_header_timeout 6s;
    server {
        listen %LISTEN%;
        location /silent { proxy_pass http://%ORIGIN%; proxy_read_timeout 6s; }
        location /tried { proxy_pass http://%ORIGIN%; proxy_try_timeout 6s; proxy_next_upstream off; }
        location /half { proxy_pass http://%ORIGIN%; client_body_timeout 6s; }
        location /much { proxy_pass http://%ORIGIN%; proxy_buffering off; send_timeout 6s; }
    }
}
";

/// The directive that `kp ctl requests` says will end a request is the one that ends it.
#[test]
fn the_directive_that_is_announced_is_the_one_that_fires() {
    let origin = Origin::start(|conversation| {
        let head = conversation.head()?;
        if head.line.contains("/much") {
            conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 64000000\r\n\r\n")?;
            conversation.send(vec![b'x'; 64_000_000])?;
        }
        conversation.stall();
        Ok(())
    });
    let kp = Setup::new(SLOW).with("ORIGIN", origin.address()).start();
    let rows = [
        ("/silent", "response-head", "proxy_read_timeout"),
        ("/tried", "response-head", "proxy_try_timeout"),
        ("/half", "request-body", "client_body_timeout"),
        ("/much", "client", "send_timeout"),
        // Of a head that is not whole the path is not known.
        ("", "head", "client_header_timeout"),
    ];
    let clients = rows.map(|(path, waits_for, _)| {
        let mut client = Client::connect_narrow(&kp.address(), 8 * 1024);
        client.send(match waits_for {
            "head" => "GET / HTTP/1.1\r\nHo".to_owned(),
            "request-body" => {
                format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nx")
            }
            _ => format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"),
        });
        client
    });
    let announced = rows.map(|(path, waits_for, directive)| {
        wait::until_some(SOON, &format!("{path} to wait for {waits_for}"), || {
            let answer = ask::master(&kp, &json!({"command": "requests", "limit": 50}));
            let request = ask::entry(&answer["requests"], "uri", path);
            (request["waits_for"] == waits_for).then(|| {
                assert_eq!(request["timeouts"][0]["directive"], directive, "{request}");
                request["connection"].as_u64().expect("a number")
            })
        })
    });
    let lines = kp.lines("why.log", rows.len());
    for (connection, (_, _, directive)) in announced.into_iter().zip(rows) {
        let mut about = lines.iter().filter_map(|line| line.split_once(' '));
        let (_, detail) = about
            .find(|(number, _)| *number == connection.to_string())
            .unwrap_or_else(|| panic!("{connection} in {lines:?}"));
        assert_eq!(part(detail, "directive"), Some(directive), "{detail}");
    }
    drop(clients);
}

/// A person sees on the page what another one does on the command line, without loading it again.
#[test]
fn a_drain_is_on_the_page_within_two_seconds() {
    let (origin, dead) = (Origin::ok(), Port::take());
    let kp = Setup::new(
        "%MAIN%
http {
    upstream app { zone app 64k; server %ORIGIN%; server %DEAD% max_fails=0; }
    server {
        listen %LISTEN%;
        location / { proxy_pass http://app; }
        location /status { status; }
    }
}
",
    )
    .main("worker_processes 2;")
    .with("ORIGIN", origin.address())
    .with("DEAD", dead.address())
    .start();
    for _ in 0..2 {
        assert_eq!(kp.get("/").status(), 200);
    }
    let (address, gone) = (origin.address(), dead.address());
    let row = |peer: &str| {
        format!("document.querySelector('tr[data-upstream=\"app\"][data-peer=\"{peer}\"]')")
    };
    let browser = Browser::start();
    let tab = browser.open(&format!("http://{}/status", kp.address()), Screen::DESK);
    tab.until(&format!("{}.dataset.state == 'up'", row(&address)));
    // The same word on the page and on the command line.
    tab.until(&format!(
        "{}.innerText.includes('connect_failed')",
        row(&gone)
    ));
    let said = ask::ctl_text(&kp, &["upstream", "show", "app"]);
    assert!(said.contains("connect_failed"), "{said}");
    let list = ask::ctl_text(&kp, &["upstream", "list"]);
    let line = list.lines().find(|line| line.contains(&gone));
    assert!(
        line.is_some_and(|line| line.contains("connect_failed")),
        "{list}"
    );

    tab.value("window.loaded = 'once'");
    let mut took = Vec::new();
    // A browser on a busy machine may sleep longer than the page does: the best of three counts.
    for _ in 0..3 {
        for (command, state) in [("drain", "drain"), ("up", "up")] {
            ask::ctl(&kp, &["peer", command, "app", &address]);
            let changed = Instant::now();
            tab.until(&format!("{}.dataset.state == '{state}'", row(&address)));
            took.push((state, changed.elapsed()));
            let list = ask::ctl_text(&kp, &["upstream", "list"]);
            let line = list.lines().find(|line| line.contains(&address));
            let states = line.map(|line| line.split_whitespace().nth(2));
            assert_eq!(states, Some(Some(state)), "{list}");
        }
    }
    println!("{took:?}");
    for state in ["drain", "up"] {
        let times = took.iter().filter(|(one, _)| *one == state);
        let best = times.map(|(_, took)| *took).min();
        assert!(best < Some(Duration::from_secs(2)), "{took:?}");
    }
    assert_eq!(tab.value("window.loaded"), json!("once"));
    assert_eq!(tab.complaints(), Vec::<String>::new());
}
