//! `kp status`: each fact that it shows, and its exit codes.

use std::fs;
use std::time::Duration;

use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Origin, Setup, process};
use nix::sys::signal::Signal;

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

/// A server that answers with this text.
fn answering(text: &str) -> Setup {
    Setup::new("%MAIN% http { %HTTP% server { listen %LISTEN%; %SERVER% location / { return 200 %TEXT%; } } }")
        .with("TEXT", text)
}

/// What a running kp shows.
fn shown(kp: &Kp) -> String {
    let said = kp.command(&["status"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    said.stdout
}

/// Waits until all parts are shown.
fn wait_shown(kp: &Kp, parts: &[&str]) -> String {
    wait::until_some(SOON, &format!("{parts:?} in the status"), || {
        let text = shown(kp);
        parts.iter().all(|part| text.contains(part)).then_some(text)
    })
}

/// The rows of workers: the words of each line that begins with a slot's number.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().map(|line| line.split_whitespace());
    let words = lines.map(|words| words.map(str::to_owned).collect::<Vec<_>>());
    let is_row = |row: &Vec<String>| row.first().is_some_and(|slot| slot.parse::<u32>().is_ok());
    words.filter(is_row).collect()
}

/// Waits for a row with these words at the end: connections, idle, requests, tunnels, restarts.
fn wait_row(kp: &Kp, state: &str, numbers: &[&str]) {
    wait::until(SOON, &format!("a {state} worker with {numbers:?}"), || {
        rows(&shown(kp)).iter().any(|row| {
            row.get(2).is_some_and(|word| word == state) && row.ends_with(&words(numbers))
        })
    });
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn who_runs_is_seen_at_a_glance() {
    let kp = answering("one")
        .main("worker_processes 2;")
        .server("listen unix:%DIR%/http.sock;")
        .start();
    kp.wait_workers(2);
    let text = wait_shown(&kp, &["generation 1: serving for "]);
    let first = format!(
        "kp/{}, master process {}, running for ",
        env!("CARGO_PKG_VERSION"),
        kp.master_pid()
    );
    assert!(text.starts_with(&first), "{text}");
    let file = format!("configuration: {}\n", kp.path("kp.conf").display());
    assert!(text.contains(&file), "{text}");
    let socket = kp.path("http.sock").display().to_string();
    let addresses = format!("listening on:  {}, unix:{socket}\n", kp.address());
    assert!(text.contains(&addresses), "{text}");
    assert!(text.contains("last reload:   none so far\n"), "{text}");
    let mut pids: Vec<u32> = rows(&text)
        .iter()
        .map(|row| row[1].parse().expect("a pid"))
        .collect();
    pids.sort_unstable();
    assert_eq!(pids, kp.worker_pids());
    assert_eq!(rows(&text)[1][0], "1", "slots are in order");
}

#[test]
fn what_a_worker_is_busy_with_is_counted() {
    let origin = Origin::start(|conversation| {
        let head = conversation.head()?;
        if head.line.starts_with("GET /slow") {
            conversation.stall();
            return Ok(());
        }
        conversation.send(SWITCHING)?;
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .server("location /own { return 200 own; }")
        .start();
    wait_row(&kp, "serving", &["0", "0", "0", "0", "0"]);
    let mut idle = kp.client();
    assert_eq!(
        idle.ask("GET /own HTTP/1.1\r\nHost: t\r\n\r\n").status(),
        200
    );
    wait_row(&kp, "serving", &["1", "1", "0", "0", "0"]);
    let mut tunnel = kp.client();
    assert_eq!(tunnel.ask(UPGRADE).status(), 101);
    let mut slow = kp.client();
    slow.send("GET /slow HTTP/1.1\r\nHost: t\r\n\r\n");
    let silent = kp.client();
    wait_row(&kp, "serving", &["4", "1", "1", "1", "0"]);
    assert!(shown(&kp).contains("so far:        4 connections, 3 requests\n"));
    drop((idle, tunnel, slow, silent));
    wait_row(&kp, "serving", &["0", "0", "0", "0", "0"]);
}

fn tunnels() -> Origin {
    Origin::start(|conversation| {
        conversation.head()?;
        conversation.send(SWITCHING)?;
        conversation.stall();
        Ok(())
    })
}

/// Who still drains, why, and when it must end.
///
/// Shows: worker_shutdown_timeout
#[test]
fn a_draining_generation_says_what_it_waits_for_and_how_long() {
    let origin = tunnels();
    for (limit, end) in [
        ("", "; without a time limit (worker_shutdown_timeout)\n"),
        ("worker_shutdown_timeout 90s;", "; ends in 1m "),
    ] {
        let kp = Setup::base(&origin).main(limit).start();
        let old = kp.worker_pid();
        let mut tunnel = kp.client();
        assert_eq!(tunnel.ask(UPGRADE).status(), 101);
        kp.reload();
        let waits = format!("waits for 1 tunnel{end}");
        let parts = [
            "generation 1: draining for ",
            &waits,
            "generation 2: serving",
        ];
        let text = wait_shown(&kp, &parts);
        let newer = text.find("generation 2:");
        assert!(newer < text.find("generation 1:"), "the newest comes first");
        wait_row(&kp, "draining", &["1", "0", "0", "1", "0"]);
        drop(tunnel);
        wait::until(SOON, "the old worker to leave", || !process::alive(old));
        wait::until(SOON, "the generation to be forgotten", || {
            !shown(&kp).contains("generation 1:")
        });
    }
}

#[test]
fn a_crash_is_seen_in_the_log_and_in_the_status() {
    let origin = tunnels();
    let kp = Setup::base(&origin)
        .main("worker_processes 2;")
        .allow("exited on signal 9")
        .start();
    kp.wait_workers(2);
    let text = wait_shown(&kp, &["generation 1: serving"]);
    let pid = rows(&text)[1][1].clone();
    assert!(process::signal(
        pid.parse().expect("a pid"),
        Signal::SIGKILL
    ));
    kp.wait_error(&format!(
        "worker process {pid} exited on signal 9 (generation 1, slot 1, serving, 0 connections, 0 requests)"
    ));
    wait::until(SOON, "a restart of slot 1", || {
        let rows = rows(&shown(&kp));
        rows.len() == 2
            && rows[1][1] != pid
            && rows[1].last().is_some_and(|restarts| restarts == "1")
            && rows[0].last().is_some_and(|restarts| restarts == "0")
    });
}

#[test]
fn the_log_says_what_a_killed_worker_held() {
    let origin = tunnels();
    let kp = Setup::base(&origin).allow("exited on signal 9").start();
    let worker = kp.worker_pid();
    let mut tunnel = kp.client();
    assert_eq!(tunnel.ask(UPGRADE).status(), 101);
    wait_row(&kp, "serving", &["1", "0", "0", "1", "0"]);
    kp.reload();
    wait_row(&kp, "draining", &["1", "0", "0", "1", "0"]);
    assert!(process::signal(worker, Signal::SIGKILL));
    kp.wait_error(&format!(
        "worker process {worker} exited on signal 9 (generation 1, slot 0, draining, 1 connection, 0 requests, 1 tunnel)"
    ));
}

/// A worker that dies again and again is not started in a loop: the log counts, and the status tells the wait.
#[test]
fn a_back_off_says_so() {
    let kp = answering("one").allow("exited on signal 9").start();
    let kill_until = |said: &str| {
        wait::until(SOON * 2, said, || {
            for pid in kp.all_pids() {
                process::signal(pid, Signal::SIGKILL);
            }
            kp.error_log().contains(said)
        });
    };
    kill_until("worker process of slot 0 died at its start 4 times in a row, next start in 800 ms");
    assert!(kp.error_log().contains("[warn]"));
    wait_shown(&kp, &["the next worker starts in ", " ms (restarts: "]);
    wait_row(&kp, "serving", &["4"]);
    assert_eq!(kp.get("/").text(), "one");
}

/// The file is broken, and that is what is told, with the reason that the log has; the status is shown all the same.
#[test]
fn a_failed_reload_stays_in_sight() {
    let kp = answering("one").allow("bogus").start();
    kp.configure(&answering("two").http("bogus on;"));
    kp.signal(Signal::SIGHUP);
    let reason = format!(
        "unknown directive \"bogus\" in {}:1:",
        kp.path("kp.conf").display()
    );
    let text = wait_shown(
        &kp,
        &[
            "last reload:   has FAILED, 20",
            "(reloads so far: 1, failed: 1)\n",
            &reason,
        ],
    );
    assert!(text.contains("generation 1: serving"), "{text}");
    kp.configure(&answering("three"));
    assert_eq!(kp.command(&["-s", "reload"]).code, 0);
    let text = shown(&kp);
    assert!(
        text.contains("last reload:   has worked, 20")
            && text.contains("(reloads so far: 2, failed: 1)\n"),
        "{text}"
    );
    assert!(!text.contains("bogus"), "{text}");
}

#[test]
fn a_master_that_shuts_down_says_so() {
    let origin = tunnels();
    let mut kp = Kp::base(&origin);
    let mut tunnel = kp.client();
    assert_eq!(tunnel.ask(UPGRADE).status(), 101);
    assert_eq!(kp.command(&["-s", "quit"]).code, 0);
    let text = wait_shown(
        &kp,
        &[", shutting down, running for ", "listening on:  nothing\n"],
    );
    assert!(text.contains("draining for "), "{text}");
    let said = kp.command(&["-s", "reload"]);
    assert_eq!(said.code, 1);
    assert_eq!(said.stderr, "kp: the master process was told to stop\n");
    drop(tunnel);
    assert_eq!(kp.wait_exit(SOON), 0);
}

#[test]
fn a_master_whose_workers_were_sent_home_says_so() {
    let kp = answering("one").daemon().start();
    kp.signal(Signal::SIGWINCH);
    wait::until(SOON, "the workers to leave", || kp.all_pids().is_empty());
    wait_shown(&kp, &["generation 1: sent home by SIGWINCH"]);
    kp.signal(Signal::SIGHUP);
    wait_shown(&kp, &["generation 2: serving for "]);
    assert_eq!(kp.get("/").text(), "one");
}

/// The Linux Standard Base's codes, which init scripts rely on.
#[test]
fn exit_codes_tell_running_from_dead_from_stopped_from_unknown() {
    let mut kp = answering("one").allow("the master process is gone").start();
    assert_eq!(kp.command(&["status"]).code, 0);
    kp.signal(Signal::SIGTERM);
    assert_eq!(kp.wait_exit(SOON), 0);
    let stopped = kp.command(&["status"]);
    assert_eq!(stopped.code, 3);
    assert!(
        stopped
            .stderr
            .starts_with("kp: not running: there is no \""),
        "{}",
        stopped.stderr
    );

    let mut kp = answering("one").allow("the master process is gone").start();
    let pid = kp.master_pid();
    kp.signal(Signal::SIGKILL);
    kp.wait_exit(SOON);
    let dead = kp.command(&["status"]);
    assert_eq!(dead.code, 1);
    let said = format!("kp: not running: the process {pid} of ");
    assert!(dead.stderr.starts_with(&said), "{}", dead.stderr);
    // The number may be somebody else's by now.
    fs::write(kp.path("kp.pid"), format!("{}\n", std::process::id())).expect("a pid file");
    assert_eq!(kp.command(&["status"]).code, 1);
    fs::remove_file(kp.path("kp.pid")).expect("removing the pid file");
    kp.configure(&answering("two").main("bogus on;"));
    let unknown = kp.command(&["status"]);
    assert_eq!(unknown.code, 4);
    assert!(unknown.stderr.contains("\"bogus\""), "{}", unknown.stderr);
    fs::remove_file(kp.path("kp.conf")).expect("removing the configuration");
    assert_eq!(kp.command(&["status"]).code, 4);
}

#[test]
fn without_a_master_process_only_that_it_runs_is_known() {
    let kp = answering("alone")
        .main("master_process off;")
        .single()
        .start();
    let said = kp.command(&["status"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    let running = format!("kp: running, process {}, but connect() ", kp.master_pid());
    assert!(said.stderr.starts_with(&running), "{}", said.stderr);
}

#[test]
fn a_master_that_does_not_answer_is_unknown() {
    let kp = answering("one").start();
    kp.signal(Signal::SIGSTOP);
    let said = kp.command(&["status"]);
    kp.signal(Signal::SIGCONT);
    assert_eq!(said.code, 4);
    assert!(
        said.stderr.contains("has not answered in 5 s"),
        "{}",
        said.stderr
    );
}

/// What was counted is never lost: not with a generation that goes, nor with a worker that is killed.
#[test]
fn counters_never_go_back() {
    let kp = answering("one").allow("exited on signal 9").start();
    let requests = || {
        let text = shown(&kp);
        let line = text.lines().find(|line| line.starts_with("so far:"));
        let count = line.and_then(|line| line.split_whitespace().nth(4));
        let count = count.expect("the totals");
        count.parse::<u64>().expect("a number")
    };
    let mut client = kp.client();
    let mut before = 0;
    for round in 1..=4 {
        for _ in 0..25 {
            let answer = client.ask(GET);
            if answer.field("connection") == Some("close") {
                client = kp.client();
            }
        }
        wait::until(SOON, "every request to be counted", || {
            requests() == round * 25
        });
        let worker = kp.worker_pid();
        if round % 2 == 0 {
            assert!(process::signal(worker, Signal::SIGKILL));
        } else {
            kp.signal(Signal::SIGHUP);
        }
        // At each moment of the change.
        wait::until(SOON, "another worker", || {
            let now = requests();
            assert!(now >= before, "{now} after {before}");
            before = now;
            kp.worker_pids().iter().all(|pid| *pid != worker) && !kp.worker_pids().is_empty()
        });
        client = kp.client();
    }
    kp.wait_drained(Duration::from_secs(20));
    assert_eq!(requests(), 100);
}
