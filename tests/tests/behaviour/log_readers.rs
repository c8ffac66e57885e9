//! Logs through pipes whose reader does not read: nobody waits, what is lost is counted, and lines come whole.

use crate::containers::as_nobody;
use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Port, Setup};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use std::fs::{File, OpenOptions};
use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// Lines that are more than a pipe and what kp holds for it.
const MANY: usize = 3000;

/// Opens both ends of a fifo in kp's directory, so that kp finds a reader; the descriptor reads.
fn fifo(folder: &std::path::Path) -> File {
    nix::unistd::mkfifo(folder, Mode::from_bits_truncate(0o666)).expect("a fifo");
    OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(folder)
        .expect("its reader")
}

/// Reads what is there and comes, until it holds `end`.
fn read_until(reader: &mut impl Read, end: &str) -> String {
    let mut text = Vec::new();
    wait::until(SOON, end, || {
        let mut piece = [0; 1 << 16];
        while let Ok(count @ 1..) = reader.read(&mut piece) {
            text.extend_from_slice(&piece[..count]);
            if String::from_utf8_lossy(&text).contains(end) {
                break;
            }
        }
        String::from_utf8_lossy(&text).contains(end)
    });
    String::from_utf8(text).expect("UTF-8")
}

fn nonblocking(reader: PipeReader) -> File {
    let file = File::from(OwnedFd::from(reader));
    let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
    nix::fcntl::fcntl(file.as_fd(), flags).expect("flags");
    file
}

/// Asks so many times, on connections that take turns; each answer must come.
fn ask_often(kp: &Kp, count: usize) {
    let mut clients = [kp.client(), kp.client(), kp.client(), kp.client()];
    for number in 0..count {
        let client = &mut clients[number % 4];
        let asked = format!("GET /{number:06} HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.ask(asked).status(), 200);
    }
}

/// The counter of lost lines.
fn dropped(kp: &Kp) -> usize {
    metric(kp, "kp_log_lines_dropped_total").expect("the counter")
}

fn metric(kp: &Kp, name: &str) -> Option<usize> {
    let page = kp.get("/metrics").text();
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().expect("a number"))
}

/// Every line is one of the format, whole; gives their numbers.
fn numbers(text: &str) -> Vec<usize> {
    let number = |line: &str| {
        let path = line.strip_suffix(&format!(" {}", "x".repeat(80)))?;
        path.strip_prefix('/')?.parse().ok()
    };
    let lines = text.lines();
    lines
        .map(|line| number(line).unwrap_or_else(|| panic!("a torn line: {line:?}")))
        .collect()
}

/// Shows: access_log
#[test]
fn a_fifo_that_nobody_reads_holds_nobody_up() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("log");
    for parameters in ["", "buffer=16k flush=100ms", "gzip buffer=16k flush=100ms"] {
        let _ = std::fs::remove_file(&path);
        let mut reader = fifo(&path);
        let text = "worker_processes 2; http { log_format long '$uri %PAD%';
            server { listen %LISTEN%; keepalive_requests 100000; location / { return 200; }
            access_log %LOG% long %MORE%;
            location /metrics { access_log off; metrics; } } }";
        let kp = Setup::new(text)
            .with("PAD", "x".repeat(80))
            .with("LOG", path.to_string_lossy())
            .with("MORE", parameters)
            .allow("nobody reads")
            .start();
        kp.wait_workers(2);
        if parameters.contains("gzip") {
            // They compress well; lines of one worker are enough to see that members come whole.
            ask_often(&kp, MANY);
            kp.signal(Signal::SIGQUIT);
            let mut text = String::new();
            let mut bytes = Vec::new();
            wait::until(SOON, "the end", || {
                let _ = reader.read_to_end(&mut bytes);
                kp.worker_pids().is_empty()
            });
            let _ = reader.read_to_end(&mut bytes);
            flate2::read::MultiGzDecoder::new(bytes.as_slice())
                .read_to_string(&mut text)
                .expect("whole members");
            assert_eq!(numbers(&text).len(), MANY);
            continue;
        }
        ask_often(&kp, MANY);
        kp.wait_error("nobody reads");
        let told = kp.error_log().matches("nobody reads").count();
        assert!(told <= 2, "told once a minute by each worker: {told}");
        let lost = dropped(&kp);
        assert!(lost > 0);
        // Reading resumes: what was held comes, and then what is new.
        let mut text = String::new();
        wait::until(SOON, "all lines but those lost", || {
            let _ = read_some(&mut reader, &mut text);
            text.lines().count() == MANY - lost
        });
        kp.get("/777777");
        text.push_str(&read_until(&mut reader, "777777"));
        wait::until(SOON, "the end of the line", || {
            let _ = read_some(&mut reader, &mut text);
            text.ends_with('\n')
        });
        let mut seen = numbers(&text);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), MANY - lost + 1, "{parameters}");
        assert_eq!(dropped(&kp), lost, "nothing more is lost");
    }
}

/// Appends what can be read now.
fn read_some(reader: &mut impl Read, text: &mut String) -> usize {
    let mut bytes = Vec::new();
    let _ = reader.read_to_end(&mut bytes);
    text.push_str(&String::from_utf8(bytes).expect("UTF-8"));
    text.len()
}

/// A container whose log driver hangs: standard output and error are full, and everything goes on.
///
/// Shows: access_log, error_log
#[test]
fn full_standard_streams_hold_up_neither_workers_nor_the_master() {
    let dead = Port::take();
    let text = "error_log %ERROR% info; http { log_format long '$uri %PAD%';
        server { listen %LISTEN%; keepalive_requests 100000; location / { return 200; }
        access_log %ACCESS% long;
        location /dead { proxy_pass http://%DEAD%; }
        location /metrics { access_log off; metrics; } } }";
    // A pipe of another user cannot be opened anew.
    for (access, error, under) in [
        ("/dev/stdout", "/dev/stderr", Vec::new()),
        ("stderr", "stderr", Vec::new()),
        ("/dev/stdout", "/dev/stderr", as_nobody()),
    ] {
        let ((output, stdout), (errors, stderr)) = (
            std::io::pipe().expect("a pipe"),
            std::io::pipe().expect("a pipe"),
        );
        let setup = |text: &str| {
            Setup::new(text)
                .with("PAD", "x".repeat(80))
                .with("DEAD", dead.address())
                .with("ACCESS", access)
                .with("ERROR", error)
        };
        let mut kp = setup(text).under(&under).streams(stdout, stderr).start();
        ask_often(&kp, MANY);
        for _ in 0..400 {
            assert_eq!(kp.get("/dead").status(), 502);
        }
        assert!(dropped(&kp) > 0, "{access}");
        // The master writes, too, and has no room.
        kp.reload();
        kp.configure(&setup("error_log %ERROR% info; nonsense on;"));
        kp.signal(Signal::SIGHUP);
        wait::until(SOON, "the failure of the reload", || {
            metric(&kp, "kp_last_reload_successful") == Some(0)
        });
        kp.configure(&setup(text));
        assert_eq!(kp.command(&["-s", "reopen"]).code, 0, "{access}");
        ask_often(&kp, 10);
        let (mut output, mut errors) = (nonblocking(output), nonblocking(errors));
        // Emptied; what was held follows, and the log tells of what it has lost.
        let mut said = String::new();
        wait::until(SOON, "word of what was lost", || {
            let _ = read_some(&mut output, &mut String::new());
            kp.get("/dead");
            read_some(&mut errors, &mut said);
            said.contains("lines of this log were dropped")
        });
        kp.signal(Signal::SIGTERM);
        wait::until(SOON, "the end", || {
            let _ = read_some(&mut output, &mut String::new());
            read_some(&mut errors, &mut said);
            kp.worker_pids().is_empty()
        });
        assert_eq!(kp.wait_exit(SOON), 0);
        read_some(&mut errors, &mut said);
        for line in said.lines() {
            let whole =
                line.starts_with("20") && line.contains("] ") || line.ends_with(&"x".repeat(80));
            assert!(whole, "a torn line: {line:?}");
        }
    }
}

/// What a reader has not taken when a worker ends has a second, and no more.
///
/// Shows: access_log
#[test]
fn a_reader_that_is_slow_at_the_end_gets_what_was_held() {
    for reads in [true, false] {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("log");
        let mut reader = fifo(&path);
        let text = "http { log_format long '$uri %PAD%'; access_log %LOG% long;
            server { listen %LISTEN%; keepalive_requests 100000; location / { return 200; } } }";
        let mut kp = Setup::new(text)
            .with("PAD", "x".repeat(80))
            .with("LOG", path.to_string_lossy())
            .allow("nobody reads")
            .start();
        // More than the pipe has room for, less than is held.
        ask_often(&kp, 1200);
        kp.signal(Signal::SIGTERM);
        if reads {
            let mut text = String::new();
            wait::until(SOON, "every line", || {
                read_some(&mut reader, &mut text);
                text.lines().count() == 1200
            });
            numbers(&text);
            assert_eq!(kp.wait_exit(SOON), 0);
            assert!(!kp.error_log().contains("nobody reads"));
        } else {
            assert_eq!(kp.wait_exit(Duration::from_secs(20)), 0);
            assert!(kp.error_log().contains("nobody reads"));
        }
    }
}
