//! Orders for a running master: `-s`, and the control socket behind it (case R01).

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Origin, Setup, process};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);

/// A server that answers with this text.
fn answering(text: &str) -> Setup {
    Setup::new("%MAIN% http { %HTTP% server { listen %LISTEN%; %SERVER% location / { return 200 %TEXT%; } } }")
        .with("TEXT", text)
}

/// Connects to a control socket and says something.
fn say_at(path: &Path, bytes: &[u8]) -> UnixStream {
    let mut asker = UnixStream::connect(path).expect("connecting to the control socket");
    asker.set_read_timeout(Some(SOON)).expect("a time limit");
    asker.write_all(bytes).expect("asking");
    asker
}

fn say(kp: &Kp, bytes: &[u8]) -> UnixStream {
    say_at(&kp.path("kp.ctl"), bytes)
}

/// Everything that comes until the master closes.
fn answer(mut asker: UnixStream) -> String {
    let mut text = String::new();
    asker.read_to_string(&mut text).expect("an answer");
    text
}

/// A terminal, and the path by which it is a file that is read until somebody has typed its end.
fn terminal() -> (fs::File, std::path::PathBuf) {
    use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
    let typist = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).expect("a pty");
    grantpt(&typist).expect("a pty of ours");
    unlockpt(&typist).expect("a pty to open");
    let path = ptsname_r(&typist).expect("its name");
    (fs::File::from(OwnedFd::from(typist)), path.into())
}

/// A reload that is asked for while one runs is the next one, for everybody who asks meanwhile: all see what they had
/// written before they asked.
#[test]
fn a_reload_asked_for_while_one_runs_is_answered_by_the_next() {
    let kp = answering("one").start();
    // The master reads a file that somebody is still writing.
    let (mut writer, part) = terminal();
    let include = format!("include {};", part.display());
    kp.configure(&answering("two").http(&include));
    let first = say(&kp, b"reload\n");
    wait::until(SOON, "the master to read the included file", || {
        let open = fs::read_dir(format!("/proc/{}/fd", kp.master_pid())).expect("descriptors");
        open.flatten()
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == part))
    });
    kp.configure(&answering("three"));
    let second = say(&kp, b"reload\n");
    kp.signal(Signal::SIGHUP);
    let third = say(&kp, b"reload\n");
    writer
        .write_all(b"server_tokens off;\n\x04")
        .expect("writing");
    assert_eq!(
        answer(first),
        "ok\nkp: generation 2 is serving, 1 worker ready\n"
    );
    for asker in [second, third] {
        assert_eq!(
            answer(asker),
            "ok\nkp: generation 3 is serving, 1 worker ready\n"
        );
    }
    assert_eq!(kp.get("/").text(), "three");
    let status = kp.command(&["status"]).stdout;
    assert!(status.contains("reloads so far: 2, failed: 0"), "{status}");
}

#[test]
fn reloads_at_once_queue_up() {
    let kp = answering("one").start();
    std::thread::scope(|scope| {
        let reloads: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| kp.command(&["-s", "reload"])))
            .collect();
        for reload in reloads {
            let said = reload.join().expect("a reload");
            assert_eq!((said.code, said.stderr.as_str()), (0, ""));
            assert!(said.stdout.contains("is serving, 1 worker ready"));
        }
    });
    assert_eq!(kp.get("/").text(), "one");
    kp.wait_workers(1);
}

#[test]
fn hup_by_hand_is_a_reload_like_any_other() {
    let kp = answering("one").allow("bogus").start();
    kp.reload();
    wait::until(SOON, "a reload that has worked", || {
        kp.command(&["status"]).stdout.contains("has worked")
    });
    kp.configure(&answering("two").http("bogus on;"));
    kp.signal(Signal::SIGHUP);
    wait::until(SOON, "a reload that has failed", || {
        let status = kp.command(&["status"]).stdout;
        status.contains("reloads so far: 2, failed: 1") && status.contains("\"bogus\"")
    });
    assert_eq!(kp.get("/").text(), "one");
}

/// What was wrong is said as `-t` says it, with the line and a hint, and what it means.
#[test]
fn r01_the_reason_of_the_master_reaches_the_terminal() {
    let taken = Origin::ok();
    let kp = answering("one").allow("in use").start();
    kp.configure(&answering("two").server(&format!("listen {};", taken.address())));
    let said = kp.command(&["-s", "reload"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    for part in [
        "(98: Address already in use)",
        "kp.conf:1:",
        "hint:",
        "kp: the reload has failed, the old configuration still serves\n",
    ] {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    assert_eq!(kp.get("/").text(), "one");
    assert_eq!(kp.command(&["-t"]).code, 0, "-t minds no address in use");
}

#[test]
fn r01_a_worker_that_dies_at_its_start_fails_the_reload_at_once() {
    let kp = answering("one").allow("[alert]").allow("[emerg]").start();
    let worker = kp.worker_pid();
    kp.configure(&answering("two").main("working_directory %DIR%/not-there;"));
    assert_eq!(kp.command(&["-t"]).code, 0);
    let start = Instant::now();
    let said = kp.command(&["-s", "reload"]);
    assert!(start.elapsed() < SECOND * 10, "{:?}", start.elapsed());
    assert_eq!(said.code, 1);
    let reason = format!(
        "kp: [emerg] chdir() \"{}\" failed (2: No such file or directory)\n",
        kp.path("not-there").display()
    );
    assert!(said.stderr.starts_with(&reason), "{}", said.stderr);
    // The one that failed is collected after the answer.
    wait::until(SOON, "the one worker of before", || {
        kp.worker_pids() == [worker]
    });
}

/// `-s quit` and `-s stop` are signals: they do not wait for a master that is busy.
#[test]
fn quit_and_stop_return_at_once() {
    for message in ["quit", "stop"] {
        let mut kp = answering("one").start();
        kp.signal(Signal::SIGSTOP);
        let said = kp.command(&["-s", message]);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
        assert!(process::alive(kp.master_pid()));
        kp.signal(Signal::SIGCONT);
        assert_eq!(kp.wait_exit(SOON), 0);
        assert!(
            !kp.path("kp.ctl").exists(),
            "the socket goes with the master"
        );
    }
}

#[test]
fn whoever_waits_learns_that_the_master_ends() {
    let mut kp = answering("one").start();
    kp.signal(Signal::SIGSTOP);
    let asker = say(&kp, b"reload\n");
    kp.signal(Signal::SIGTERM);
    kp.signal(Signal::SIGCONT);
    assert_eq!(
        answer(asker),
        "failed\nkp: the master process was told to stop\n"
    );
    assert_eq!(kp.wait_exit(SOON), 0);

    let mut kp = answering("one").allow("the master process is gone").start();
    let workers = kp.worker_pids();
    kp.signal(Signal::SIGSTOP);
    let pid = kp.master_pid();
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| kp.command(&["-s", "reload"]));
        let connected = || {
            // Names of others may be any bytes.
            let sockets = fs::read("/proc/net/unix").unwrap_or_default();
            let sockets = String::from_utf8_lossy(&sockets);
            let path = kp.path("kp.ctl").display().to_string();
            sockets.lines().filter(|line| line.contains(&path)).count() > 1
        };
        wait::until(SOON, "the question", connected);
        kp.signal(Signal::SIGKILL);
        let said = reload.join().expect("a reload");
        assert_eq!(said.code, 1);
        let ended = format!("kp: [error] the master process {pid} has ended\n");
        assert_eq!(said.stderr, ended);
    });
    kp.wait_exit(SOON);
    wait::until(SOON, "the orphans to leave", || {
        !workers.iter().any(|pid| process::alive(*pid))
    });
}

#[test]
fn without_a_master_the_order_says_why() {
    let mut kp = answering("one").allow("the master process is gone").start();
    let pid = kp.master_pid();
    let socket = kp.path("kp.ctl");
    kp.wait_error("generation 1 is serving");
    fs::remove_file(&socket).expect("removing the socket");
    for (order, instead) in [("reload", "kill -HUP"), ("reopen", "kill -USR1")] {
        let said = kp.command(&["-s", order]);
        assert_eq!(said.code, 1);
        for part in [
            format!("connect() \"{}\" failed (2: ", socket.display()),
            format!("\"{instead} {pid}\" works without an answer"),
        ] {
            assert!(said.stderr.contains(&part), "{part}: {}", said.stderr);
        }
    }
    kp.reload();
    wait::until(SOON, "a reload to put the socket back", || socket.exists());
    assert_eq!(kp.command(&["-s", "reload"]).code, 0);

    let orphans = kp.all_pids();
    kp.signal(Signal::SIGKILL);
    kp.wait_exit(SOON);
    assert!(socket.exists() && kp.path("kp.pid").exists());
    let said = kp.command(&["-s", "reload"]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("has ended"), "{}", said.stderr);
    wait::until(SOON, "the orphans to leave", || {
        !orphans.iter().any(|pid| process::alive(*pid))
    });
    kp.start_again();
    kp.wait_workers(1);
    let said = kp.command(&["-s", "reload"]);
    assert_eq!(said.code, 0, "what a dead master left: {}", said.stderr);
}

#[test]
fn without_a_master_process_nobody_answers() {
    let kp = answering("alone")
        .main("master_process off;")
        .single()
        .start();
    assert!(!kp.path("kp.ctl").exists());
    let said = kp.command(&["-s", "reload"]);
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.contains("master_process is off"),
        "{}",
        said.stderr
    );
    fs::rename(kp.path("access.log"), kp.path("access.old")).expect("renaming a log");
    assert_eq!(kp.command(&["-s", "reopen"]).code, 0);
    wait::until(SOON, "the new log file", || kp.path("access.log").exists());
}

/// The pid file moves, and the socket with it; who asked at the old place is answered all the same.
///
/// Shows: pid
#[test]
fn the_socket_follows_the_pid_file() {
    let kp = answering("one").file("run/x", "").allow("[emerg]").start();
    kp.configure(&answering("two").main("pid run/other;"));
    let said = kp.command(&["-s", "reload"]);
    assert_eq!(
        said.code, 1,
        "the order is for the master of another pid file"
    );
    assert!(said.stderr.contains("run/other"), "{}", said.stderr);
    assert_eq!(
        answer(say(&kp, b"reload\n")),
        "ok\nkp: generation 2 is serving, 1 worker ready\n"
    );
    assert!(!kp.path("kp.pid").exists() && !kp.path("kp.ctl").exists());
    assert_eq!(kp.text("run/other"), format!("{}\n", kp.master_pid()));
    assert_eq!(kp.command(&["-s", "reload"]).code, 0);
    assert_eq!(kp.command(&["status"]).code, 0);

    // Neither moves where they cannot be, and the old configuration stays.
    let second = answering("second").start();
    let socket = kp.path("run/other.ctl");
    for (pid, reason) in [
        (kp.path("none/kp.pid"), "(2: No such file or directory)"),
        (second.path("kp.pid"), "another kp is running"),
    ] {
        kp.configure(&answering("three").main(&format!("pid {};", pid.display())));
        let answer = answer(say_at(&socket, b"reload\n"));
        assert!(
            answer.starts_with("failed\n") && answer.contains(reason),
            "{answer}"
        );
        assert_eq!(kp.get("/").text(), "two");
    }
    assert!(socket.exists() && kp.path("run/other").exists());
    assert_eq!(second.command(&["-s", "reload"]).code, 0);
}

/// The kernel takes 107 bytes for the path of a socket; a directory may be deeper.
#[test]
fn a_long_path_is_no_obstacle() {
    let deep = format!("{}/{}", "d".repeat(120), "e".repeat(120));
    let kp = answering("one").file(&format!("{deep}/x"), "").start();
    kp.configure(&answering("two").main(&format!("pid {deep}/kp.pid;")));
    assert!(answer(say(&kp, b"reload\n")).starts_with("ok\n"));
    assert_eq!(kp.command(&["-s", "reload"]).code, 0);
    assert_eq!(kp.command(&["status"]).code, 0);
    assert!(kp.path(&deep).join("kp.ctl").exists());
}

/// Nobody holds up the master: not who says nothing, nor who talks nonsense, nor who goes away.
#[test]
fn bad_askers_do_not_hurt() {
    let kp = answering("one").start();
    let sockets = || {
        let descriptors = process::descriptors(kp.master_pid());
        let targets = descriptors.iter().map(|(_, target)| target);
        targets
            .filter(|target| target.starts_with("socket:"))
            .count()
    };
    kp.wait_error("generation 1 is serving");
    let before = sockets();
    let silent: Vec<_> = (0..80).map(|_| say(&kp, b"")).collect();
    let half = say(&kp, b"relo");
    kp.configure(&answering("two"));
    kp.reload();
    assert_eq!(kp.get("/").text(), "two");
    for asker in silent {
        assert_eq!(answer(asker), "failed\nno request came in 5 s\n");
    }
    assert_eq!(answer(half), "failed\nno request came in 5 s\n");

    for (bytes, part) in [
        (&b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"[..], "unknown request"),
        (b"\0\xff\x1b\n", "unknown request"),
        (b"\n", "known are: "),
        (b"reload please\n", "unknown request"),
        (&[b'x'; 4096], "at most 4096 bytes"),
    ] {
        let answer = answer(say(&kp, bytes));
        assert!(
            answer.starts_with("failed\n") && answer.contains(part),
            "{answer}"
        );
    }
    let mut endless = say(&kp, b"");
    let sent = (0..256).try_for_each(|_| endless.write_all(&[b'x'; 4096]));
    assert!(sent.is_err(), "a megabyte is not read");
    for _ in 0..100 {
        drop(say(&kp, b"status\n"));
        drop(say(&kp, b"reload"));
    }
    drop(say(&kp, b"reload\n"));
    let reload = kp.command(&["-s", "reload"]);
    assert_eq!(reload.code, 0, "{}", reload.stderr);
    assert_eq!(kp.get("/").text(), "two");
    kp.wait_drained(SOON);
    wait::until(SOON, "every connection to be closed", || {
        sockets() <= before
    });
}

#[test]
fn others_may_not_ask_and_are_told_so() {
    let kp = answering("one").start();
    let mode = fs::metadata(kp.path("kp.ctl")).expect("the socket").mode();
    assert_eq!(mode & 0o777, 0o600);
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let as_nobody = |arguments: &[&str]| {
        let output = Command::new(kp_tests::kp::binary())
            .args(arguments)
            .args([
                "-p",
                &format!("{}/", kp.path("").display()),
                "-c",
                "kp.conf",
            ])
            .uid(65534)
            .gid(65534)
            .output()
            .expect("running kp");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), stderr)
    };
    let (code, stderr) = as_nobody(&["-s", "reopen"]);
    assert_eq!(code, Some(1));
    let reason = "(13: Permission denied): only root and the user of the master process";
    assert!(stderr.contains(reason), "{stderr}");
    let (code, stderr) = as_nobody(&["status"]);
    assert_eq!(code, Some(0), "that it runs can be seen");
    assert!(stderr.contains(reason), "{stderr}");
    let (code, stderr) = as_nobody(&["ctl", "requests"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains(reason), "{stderr}");
    // Who gets past the mode of the file is refused by name.
    let open = fs::Permissions::from_mode(0o666);
    fs::set_permissions(kp.path("kp.ctl"), open).expect("changing a mode");
    for arguments in [&["-s", "reopen"][..], &["ctl", "log-level", "debug"]] {
        let (code, stderr) = as_nobody(arguments);
        assert_eq!(code, Some(1));
        assert!(
            stderr.contains("only root and the user of the master process may ask"),
            "{stderr}"
        );
    }
}

const UPGRADE: &str =
    "GET /tunnel HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

/// When `-s reopen` returns, the old files can be compressed: no worker of any generation writes to them any more.
#[test]
fn reopen_returns_when_nothing_goes_to_the_old_files() {
    let origin = Origin::start(|conversation| {
        conversation.head()?;
        conversation.send(SWITCHING)?;
        conversation.stall();
        Ok(())
    });
    let setup = || {
        Setup::base(&origin)
            .main("worker_processes 3;")
            .server("location /own { return 200 own; }")
    };
    let kp = setup().start();
    kp.wait_workers(3);
    let mut tunnel = kp.client();
    assert_eq!(tunnel.ask(UPGRADE).status(), 101);
    kp.reload();
    for round in 0..5 {
        let (access, error) = (format!("access.{round}"), format!("error.{round}"));
        for n in 0..20 {
            assert_eq!(kp.get(&format!("/own/{round}/{n}")).status(), 200);
        }
        fs::rename(kp.path("access.log"), kp.path(&access)).expect("renaming a log");
        fs::rename(kp.path("error.log"), kp.path(&error)).expect("renaming a log");
        let said = kp.command(&["-s", "reopen"]);
        assert_eq!(
            (said.code, said.stdout.as_str(), said.stderr.as_str()),
            (0, "", "")
        );
        let old = kp.text(&access);
        for n in 0..20 {
            assert_eq!(kp.get(&format!("/own/after/{n}")).status(), 200);
        }
        let lines = kp.access_lines(20);
        assert_eq!(lines.len(), 20, "{lines:?}");
        assert_eq!(kp.text(&access), old, "the old file has grown");
        assert_eq!(old.matches(&format!("/own/{round}/")).count(), 20);
    }
    drop(tunnel);
    wait::until(SOON, "the line of the tunnel", || {
        kp.text("access.log").contains("/tunnel")
    });
}

#[test]
fn a_log_that_cannot_be_reopened_fails_the_order() {
    let kp = answering("one")
        .http("access_log logs/a.log;")
        .file("logs/x", "")
        .allow("logs/a.log")
        .start();
    fs::rename(kp.path("logs"), kp.path("moved")).expect("renaming a directory");
    let said = kp.command(&["-s", "reopen"]);
    assert_eq!(said.code, 1);
    let reason = format!(
        "kp: [emerg] open() \"{}\" failed (2: No such file or directory)\n",
        kp.path("logs/a.log").display()
    );
    assert_eq!(said.stderr, reason);
    kp.get("/kept");
    wait::until(SOON, "a line in the file of before", || {
        kp.text("moved/a.log").contains("/kept")
    });
}

#[test]
fn a_worker_that_does_not_take_its_logs_is_named() {
    let kp = answering("one").allow("has not taken").start();
    let worker = kp.stop_worker();
    let said = kp.command(&["-s", "reopen"]);
    assert!(process::signal(worker, Signal::SIGCONT));
    assert_eq!(said.code, 1);
    assert_eq!(
        said.stderr,
        format!("kp: [alert] worker process {worker} has not taken the reopened logs in 10 s\n")
    );
    assert_eq!(kp.command(&["-s", "reopen"]).code, 0);
}

/// Else the two would replace each other's socket.
#[test]
fn a_listener_cannot_take_the_place_of_the_control_socket() {
    for (name, what) in [("kp.ctl", "control socket"), ("kp.pid", "pid file")] {
        let text = format!("http {{ server {{ listen %LISTEN%; listen unix:%DIR%/{name}; }} }}");
        let refused = Setup::new(&text).check();
        assert_eq!(refused.code, 1);
        let complaint = format!("is the place of kp's own {what} in ");
        assert!(refused.stderr.contains(&complaint), "{}", refused.stderr);
    }
}
