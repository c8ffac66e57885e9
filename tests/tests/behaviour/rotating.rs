//! Logs that are moved away and opened again under load: no line is lost, none is torn, and nothing is written to a file of
//! before once `-s reopen` has returned.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kind, Kp, LoadOrigin, Mix, Setup, process};

/// The logs of the test: lines at once, lines in a buffer, and one error line for each file that is not there.
const LOGS: [&str; 3] = ["access.log", "buffered.log", "missing.log"];

fn with_logs(origin: &LoadOrigin) -> Setup {
    Setup::new(
        "%MAIN% worker_processes 2; error_log error.log info;
http {
    log_format number $http_x_load;
    access_log access.log number;
    access_log buffered.log number buffer=16k flush=5m;
    upstream u { server %U1%; keepalive 64; }
    server {
        listen %LISTEN%;
        keepalive_requests 100000;
        location / { proxy_pass http://u; }
        location /missing/ { root none; error_log missing.log error; access_log off; }
    }
}
",
    )
    .with("U1", origin.address())
}

/// Asks for files that are not there, numbered; gives their count when told to stop.
fn ask_for_missing(address: String, stop: Arc<AtomicBool>) -> JoinHandle<u64> {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    std::thread::spawn(move || {
        let mut client = Client::connect(&address);
        let mut count = 0;
        while !stop.load(Ordering::SeqCst) {
            let number = ASKED.fetch_add(1, Ordering::SeqCst);
            let answer = client.ask(format!(
                "GET /missing/{number:08} HTTP/1.1\r\nHost: t\r\n\r\n"
            ));
            assert_eq!(answer.status(), 404);
            count += 1;
            if answer.field("connection") == Some("close") {
                client = Client::connect(&address);
            }
        }
        count
    })
}

/// A file of before, and how long it was when `-s reopen` returned.
struct Rotated {
    name: String,
    bytes: usize,
}

fn rotate(kp: &Kp, round: usize) -> Vec<Rotated> {
    let moved = LOGS.map(|name| format!("{name}.{round}"));
    for (name, moved) in LOGS.iter().zip(&moved) {
        fs::rename(kp.path(name), kp.path(moved)).expect("renaming a log");
    }
    let said = kp.command(&["-s", "reopen"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let rotated = moved.map(|name| Rotated {
        bytes: kp.text(&name).len(),
        name,
    });
    rotated.into()
}

#[test]
fn rotations_lose_no_line() {
    let origin = LoadOrigin::start();
    let kp = with_logs(&origin).start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 12)
        .clients(Kind::Close, 6)
        .pace(std::time::Duration::from_millis(4))
        .start();
    let stop = Arc::new(AtomicBool::new(false));
    let missing = ask_for_missing(kp.address(), Arc::clone(&stop));
    let mut rotated = Vec::new();
    for round in 0..8 {
        load.wait_answers(200);
        rotated.extend(rotate(&kp, round));
        // The workers of an old generation have log files, too.
        if round % 3 == 1 {
            kp.reload();
        }
    }
    load.wait_answers(200);
    stop.store(true, Ordering::SeqCst);
    let missed = missing.join().expect("a client");
    let report = load.stop();
    report.assert_nothing_lost();
    // The rest of the buffers.
    rotated.extend(rotate(&kp, 8));
    for file in &rotated {
        let now = kp.text(&file.name).len();
        assert_eq!(
            now, file.bytes,
            "{} was written to after -s reopen",
            file.name
        );
    }
    for name in &LOGS[..2] {
        let text: String = (0..9)
            .map(|round| kp.text(&format!("{name}.{round}")))
            .collect();
        let lines: Vec<u64> = text
            .lines()
            .map(|line| {
                line.parse()
                    .unwrap_or_else(|_| panic!("a torn line: {line:?}"))
            })
            .collect();
        let different: BTreeSet<u64> = lines.iter().copied().collect();
        assert_eq!(lines.len(), different.len(), "{name}: a line came twice");
        assert_eq!(
            lines.len() as u64,
            report.answered(),
            "{name}: lines are missing"
        );
    }
    let errors: String = (0..9)
        .map(|round| kp.text(&format!("missing.log.{round}")))
        .collect();
    let lines = errors
        .lines()
        .filter(|line| line.contains("/missing/") && line.contains("[error]"));
    assert_eq!(lines.count() as u64, missed, "error lines are missing");
    assert!(missed > 100, "{missed}");
}

/// Nobody holds a file that was moved away, the standard error of a daemon included.
#[test]
fn a_rotated_file_is_let_go() {
    let origin = LoadOrigin::start();
    let kp = with_logs(&origin).start();
    kp.wait_workers(2);
    let moved = ["error.log", "access.log", "missing.log"];
    for name in moved {
        fs::rename(kp.path(name), kp.path(&format!("{name}.old"))).expect("renaming a log");
    }
    assert_eq!(kp.command(&["-s", "reopen"]).code, 0);
    let mut pids = kp.all_pids();
    pids.push(kp.master_pid());
    for pid in pids {
        let held = process::descriptors(pid);
        let old = held.iter().find(|(_, target)| target.ends_with(".old"));
        assert!(old.is_none(), "{} holds {old:?}", process::title(pid));
    }
    wait::until(SOON, "new files", || {
        moved.iter().all(|name| kp.path(name).exists())
    });
}
