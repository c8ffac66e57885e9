//! Logs that are moved away and opened again under load: no line is lost, none is torn, and nothing is written to a file of
//! before once `-s reopen` has returned.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kind, Kp, LoadOrigin, Mix, Port, Setup, process};
use nix::sys::signal::Signal;

/// The logs of the test: lines at once, lines in a buffer, compressed ones, and one error line for each file that is not
/// there.
const LOGS: [&str; 4] = ["access.log", "buffered.log", "compressed.gz", "missing.log"];

fn with_logs(origin: &LoadOrigin) -> Setup {
    Setup::new(
        "%MAIN% worker_processes 2; error_log error.log info;
http {
    log_format number $http_x_load;
    access_log access.log number;
    access_log buffered.log number buffer=16k flush=5m;
    access_log compressed.gz number gzip buffer=16k flush=5m;
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
        bytes: length(kp, &name),
        name,
    });
    rotated.into()
}

fn length(kp: &Kp, name: &str) -> usize {
    fs::metadata(kp.path(name)).map_or(0, |found| found.len() as usize)
}

/// What a reader of the rotated file gets: a compressed one is whole.
fn text_of(kp: &Kp, name: &str) -> String {
    if !name.contains(".gz") {
        return kp.text(name);
    }
    let bytes = fs::read(kp.path(name)).expect("a log");
    let mut text = String::new();
    if !bytes.is_empty() {
        let mut reader = flate2::read::MultiGzDecoder::new(bytes.as_slice());
        let read = reader.read_to_string(&mut text);
        read.unwrap_or_else(|error| panic!("{name} is no whole gzip file: {error}"));
    }
    text
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
        let now = length(&kp, &file.name);
        assert_eq!(
            now, file.bytes,
            "{} was written to after -s reopen",
            file.name
        );
    }
    for name in &LOGS[..3] {
        let text: String = (0..9)
            .map(|round| text_of(&kp, &format!("{name}.{round}")))
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

/// A process of the test that holds a file with this ending, and which.
fn holder(master: u32, ending: &str) -> Option<String> {
    let mut pids = process::children(master);
    pids.push(master);
    pids.into_iter().find_map(|pid| {
        let held = process::descriptors(pid);
        let (number, target) = held
            .into_iter()
            .find(|(_, target)| target.ends_with(ending))?;
        let title = process::title(pid);
        Some(format!("{title} holds {target} as {number}"))
    })
}

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
    assert_eq!(holder(kp.master_pid(), ".old"), None);
    for name in moved {
        assert!(kp.path(name).exists(), "{name}");
    }
}

/// A daemon's standard error is its error log, and goes where that goes.
#[test]
fn a_daemon_lets_go_of_its_old_error_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str| directory.path().join(name);
    let port = Port::take();
    let extra = std::env::var("KP_TEST_MAIN").unwrap_or_default();
    let configure = |log: &str| {
        let text = format!(
            "{extra} daemon on; pid kp.pid; error_log {log} notice; events {{}}
             http {{ access_log off; server {{ listen {}; return 200 daemon; }} }}",
            port.address()
        );
        fs::write(file("kp.conf"), text).expect("writing the configuration");
    };
    let run = |arguments: &[&str]| {
        let mut command = Command::new(kp_tests::kp::binary());
        let prefix = format!("{}/", directory.path().display());
        command
            .args(["-p", &prefix, "-c", "kp.conf"])
            .args(arguments);
        let streams = command.stdin(Stdio::null()).stderr(Stdio::null());
        assert!(
            streams.status().expect("running kp").success(),
            "{arguments:?}"
        );
    };
    configure("first.log");
    run(&[]);
    let pid = fs::read_to_string(file("kp.pid")).expect("a pid file");
    let daemon = Daemon(pid.trim().parse().expect("a number"));
    let stderr_of_all = |name: &str| {
        let pids = process::children(daemon.0).into_iter().chain([daemon.0]);
        let errors = pids.map(|pid| {
            process::descriptors(pid)
                .into_iter()
                .find(|(fd, _)| *fd == 2)
        });
        errors.flatten().all(|(_, target)| target.ends_with(name))
    };
    wait::until(SOON, "standard error in the log", || {
        stderr_of_all("first.log")
    });
    fs::rename(file("first.log"), file("first.old")).expect("renaming a log");
    run(&["-s", "reopen"]);
    assert_eq!(holder(daemon.0, ".old"), None);
    assert!(stderr_of_all("first.log"));
    configure("second.log");
    run(&["-s", "reload"]);
    wait::until(SOON, "the old workers to leave", || {
        holder(daemon.0, "first.log").is_none()
    });
    assert!(stderr_of_all("second.log"));
}

/// A daemon of the test, stopped when dropped.
struct Daemon(u32);

impl Drop for Daemon {
    fn drop(&mut self) {
        process::signal(self.0, Signal::SIGTERM);
        wait::happens(SOON, || !process::alive(self.0));
    }
}

/// After an upgrade the old binary's workers finish what they have, and write that to the new files as well.
#[test]
fn rotations_reach_the_workers_of_the_binary_before() {
    let origin = LoadOrigin::start();
    for by_signal in [false, true] {
        let text = "%MAIN% http { server { listen %LISTEN%; location / { proxy_pass http://%U1%; %LOCATION% } } }";
        let mut kp = Setup::new(text)
            .with("U1", origin.address())
            .location(
                "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;",
            )
            .start();
        let old = kp.master_pid();
        let mut tunnel = kp.client();
        let upgraded = tunnel.ask(
            "GET /tunnel HTTP/1.1\r\nHost: t\r\nX-Load: 1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        );
        assert_eq!(upgraded.status(), 101);
        assert_eq!(kp.command(&["-s", "upgrade"]).code, 0);
        let new = kp.follow();
        assert!(old != new && process::alive(old));
        fs::rename(kp.path("access.log"), kp.path("access.old")).expect("renaming a log");
        if by_signal {
            assert!(process::signal(new, Signal::SIGUSR1));
            let worker = process::children(old)[0];
            wait::until(SOON, "the old worker to let go", || {
                let held = process::descriptors(worker);
                !held
                    .iter()
                    .any(|(_, target)| target.ends_with("access.old"))
            });
        } else {
            assert_eq!(kp.command(&["-s", "reopen"]).code, 0);
            assert_eq!(holder(old, "access.old"), None);
        }
        drop(tunnel);
        wait::until(SOON, "the old master to leave", || !process::alive(old));
        assert!(
            kp.text("access.log").contains("/tunnel"),
            "{}",
            kp.text("access.old")
        );
    }
}
