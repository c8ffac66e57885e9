//! Steering and looking while kp works hard: nobody loses a request, weights hold exactly, and who looks disturbs nobody.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use kp_tests::ask;
use kp_tests::load::Sample;
use kp_tests::wait::{self, SOON};
use kp_tests::{Kind, Kp, Load, LoadOrigin, Mix, Setup};
use serde_json::json;
use std::io::Write;

const TEXT: &str = "%MAIN%
worker_processes 4;
http {
    upstream u { %ZONE% server %A%; server %B%; keepalive 16; }
    server { listen %LISTEN% backlog=4096; client_header_timeout 1h; location / { proxy_pass http://u; } }
}
";

/// Clients of a load at a time.
const CLIENTS: usize = 14;

fn start(origins: &[LoadOrigin; 3], zone: &str) -> Kp {
    let kp = Setup::new(TEXT)
        .main("worker_rlimit_nofile 8192; events { worker_connections 4096; }")
        .with("ZONE", zone)
        .with("A", origins[0].address())
        .with("B", origins[1].address())
        .start();
    kp.wait_workers(4);
    kp
}

fn load(kp: &Kp) -> Load {
    let mix = Mix::new(&kp.address())
        .clients(Kind::Post, 8)
        .clients(Kind::Close, 4)
        .clients(Kind::Tunnel, 1)
        .clients(Kind::Download, 1);
    mix.pace(Duration::from_millis(4))
        .transfers(2 << 20, Duration::from_secs(1))
        .measured()
        .start()
}

/// How many of the next requests each origin gets.
fn shares(load: &Load, origins: &[LoadOrigin; 3]) -> [u64; 3] {
    let before = [0, 1, 2].map(|n: usize| origins[n].requests());
    load.wait_of(Kind::Post, 250);
    [0, 1, 2].map(|n: usize| origins[n].requests() - before[n])
}

/// Each origin got its share of what came, but for what was under way when the count began or ended.
#[track_caller]
fn assert_shares(found: [u64; 3], weights: [u64; 3]) {
    let (all, weight): (u64, u64) = (found.iter().sum(), weights.iter().sum());
    assert!(all >= 250, "{found:?}");
    for (got, own) in found.into_iter().zip(weights) {
        let share = all * own / weight;
        // Each of four workers may have a round of its own, and be within it at the beginning and at the end.
        let spread = if own == 0 { 0 } else { CLIENTS as u64 + 4 };
        assert!(got.abs_diff(share) <= spread, "{found:?} for {weights:?}");
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Adding, removing, draining and weighing on the command line under load.
#[test]
fn weights_hold_and_nothing_is_lost_while_a_load_is_steered() {
    println!("{}", steer("zone u 64k;"));
}

/// The same where each worker has a round of its own.
#[test]
fn weights_hold_without_a_zone_while_a_load_is_steered() {
    println!("{}", steer(""));
}

/// Tells how long the commands took.
fn steer(zone: &str) -> String {
    let origins = [0, 1, 2].map(|_| LoadOrigin::start());
    let [a, b, c] = [0, 1, 2].map(|n| origins[n].address());
    let kp = start(&origins, zone);
    let load = load(&kp);
    load.wait_of(Kind::Tunnel, 1);
    let mut took = Vec::new();
    let steps = [
        (format!("peer weight u {a} 3"), [3, 1, 0]),
        (format!("peer add u {c} weight=2"), [3, 1, 2]),
        (format!("peer drain u {a}"), [0, 1, 2]),
        (format!("peer weight u {b} 4"), [0, 4, 2]),
        (format!("peer up u {a}"), [3, 4, 2]),
        (format!("peer remove u {b}"), [3, 0, 2]),
        (format!("peer weight u {c} 7"), [3, 0, 7]),
        (format!("peer down u {c}"), [3, 0, 0]),
        (format!("reset u {b}"), [3, 1, 0]),
        (format!("peer remove u {c}"), [3, 1, 0]),
        (String::from("reset"), [1, 1, 0]),
    ];
    for (change, weights) in &steps {
        let words: Vec<&str> = change.split(' ').collect();
        let began = Instant::now();
        let answer = ask::ctl(&kp, &words);
        took.push(began.elapsed());
        assert_eq!(
            (&answer["workers"], &answer["silent"]),
            (&json!(4), &json!([])),
            "{answer}"
        );
        // What was chosen before the answer is on its way for a moment.
        load.wait_of(Kind::Post, 16);
        assert_shares(shares(&load, &origins), *weights);
    }
    let report = load.stop();
    report.assert_nothing_lost();
    assert!(origins.iter().all(|origin| origin.twice().is_empty()));
    let (median, worst) = (median(took.clone()), took.into_iter().max());
    assert!(median < Duration::from_secs(1), "{median:?}");
    format!("kp ctl: median {median:?}, worst {worst:?}; {report}")
}

/// The time within which 99 of 100 answers came.
fn p99(samples: &[Sample]) -> Duration {
    let mut times: Vec<Duration> = samples.iter().map(|sample| sample.took).collect();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Who asks what is in flight, of a thousand connections and all the time, and who wants more in the logs, disturbs nobody.
#[test]
fn looking_disturbs_nobody() {
    let origins = [0, 1, 2].map(|_| LoadOrigin::start());
    let kp = start(&origins, "zone u 64k;");
    let connect = |_| TcpStream::connect(kp.address()).expect("connecting");
    let idle: Vec<TcpStream> = (0..500).map(connect).collect();
    let mut begun: Vec<TcpStream> = (0..500).map(connect).collect();
    for stream in &mut begun {
        stream
            .write_all(b"GET /long HTTP/1.1\r\nHost")
            .expect("a part of a head");
    }
    let clients = || ask::ctl(&kp, &["connections"])["clients"].as_u64();
    wait::until(SOON, "a thousand clients", || clients() == Some(1000));
    let mix = Mix::new(&kp.address())
        .clients(Kind::Post, 8)
        .clients(Kind::Close, 4);
    let load = mix
        .pace(Duration::from_millis(4))
        .wait_max(Duration::ZERO)
        .measured()
        .start();
    load.wait_answers(100);
    let from = load.report().samples.len();
    load.wait_answers(1000);
    let quiet = load.report().samples[from..].to_vec();

    let (goal, mut took) = (load.answered() + 1000, Vec::new());
    while load.answered() < goal {
        let began = Instant::now();
        let answer = ask::ctl(&kp, &["requests", "--limit", "1000"]);
        took.push(began.elapsed());
        assert_eq!(
            (&answer["workers"], &answer["silent"]),
            (&json!(4), &json!([]))
        );
        assert!(
            answer["in_flight"].as_u64() >= Some(500),
            "{}",
            answer["in_flight"]
        );
    }
    let looked_at = load.report().samples[from + quiet.len()..].to_vec();

    // More in the logs and less again, in the middle of it.
    let lines = |level: &str| kp.error_log().matches(&format!("[{level}]")).count();
    for (level, says) in [("debug", true), ("warn", false)] {
        let answer = ask::ctl(&kp, &["log-level", level]);
        assert_eq!(
            (&answer["in_force"], &answer["workers"]),
            (&json!(level), &json!(4))
        );
        let before = lines("info");
        // A client that leaves in the middle of a head is worth a line of level info.
        drop(begun.split_off(begun.len() - 20));
        if says {
            wait::until(SOON, "lines of level info", || lines("info") >= before + 20);
        } else {
            let left = (idle.len() + begun.len() + 12) as u64;
            wait::until(SOON, "the clients to have left", || clients() <= Some(left));
            assert_eq!(lines("info"), before);
        }
        load.wait_answers(100);
    }
    let report = load.stop();
    report.assert_nothing_lost();
    let (quiet, looked_at) = (p99(&quiet), p99(&looked_at));
    println!(
        "99 of 100 within {quiet:?}, while {} times asked (median {:?}) {looked_at:?}",
        took.len(),
        median(took.clone())
    );
    assert!(
        looked_at < quiet * 10 + Duration::from_secs(1),
        "{quiet:?}, {looked_at:?}"
    );
}
