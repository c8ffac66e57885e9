//! What happens to an operator: files that are not what they should be, limits that are too low, processes that hang.

use kp_tests::wait::{self, SOON};
use kp_tests::{Setup, process};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// A server that answers with this text.
fn answering(text: &str) -> Setup {
    Setup::new(
        "%MAIN% http { %HTTP% server { listen %LISTEN%; location / { return 200 %TEXT%; } } }",
    )
    .with("TEXT", text)
}

/// A fifo would keep the master waiting for its other end, perhaps for ever, whatever it is meant to be.
#[test]
fn a_fifo_in_place_of_a_file_fails_the_reload_at_once() {
    // The built-in log may be out of reach; it is opened where the configuration names none that can be used.
    let kp = answering("one")
        .allow("fifo")
        .allow("/var/log/kp/error.log")
        .start();
    let fifo = kp.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let shown = fifo.display();
    let unread = "(6: No such device or address)";
    for (setup, reason) in [
        (
            answering("two").http(&format!("include {shown};")),
            "(it is a pipe and no file)",
        ),
        (
            answering("two").main(&format!("error_log {shown};")),
            unread,
        ),
        (
            answering("two").http(&format!("access_log {shown};")),
            unread,
        ),
    ] {
        kp.configure(&setup);
        let complaint = format!("open() \"{shown}\" failed {reason}");
        let checked = kp.command(&["-s", "reload"]);
        assert!(
            checked.code == 1 && checked.stderr.contains(&complaint),
            "{}",
            checked.stderr
        );
        kp.signal(Signal::SIGHUP);
        kp.wait_error(&complaint);
    }
    kp.configure(&answering("two"));
    kp.reload();
    assert_eq!(kp.get("/").text(), "two");
}

/// Its last words come before its end.
#[test]
fn a_worker_that_cannot_start_says_why() {
    let kp = answering("one")
        .allow("could not start")
        .allow("exited")
        .start();
    for files in [1, 3, 5, 12] {
        kp.configure(&answering("two").main(&format!("worker_rlimit_nofile {files};")));
        let told = kp.command(&["-s", "reload"]).stderr;
        let reason = "kp: [emerg] a worker process could not start (";
        // A warning about so few files comes before.
        let said = told.lines().any(|line| line.starts_with(reason));
        assert!(said, "{files}: {told}");
    }
    assert_eq!(kp.get("/").text(), "one");
}

/// Root may not open somebody else's file with O_CREAT in a sticky directory (`fs.protected_regular`), so that a reload
/// after a reopening would fail if the files had been given away.
#[test]
fn logs_stay_root_s_over_a_reopening() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let kp = answering("one").as_root_of_its_own().start();
    let logs = kp.path("logs");
    fs::create_dir(&logs).unwrap();
    fs::set_permissions(&logs, fs::Permissions::from_mode(0o1777)).unwrap();
    let log = logs.join("access.log");
    let setup = answering("two")
        .main("user nobody nogroup;")
        .http(&format!("access_log {};", log.display()))
        .as_root_of_its_own();
    kp.configure(&setup);
    kp.reload();
    for _ in 0..2 {
        fs::rename(&log, logs.join("old")).unwrap();
        assert_eq!(kp.command(&["-s", "reopen"]).code, 0);
        assert_eq!(kp.get("/").text(), "two");
        wait::until(SOON, "a line in the new file", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("GET /"))
        });
        assert_eq!(fs::metadata(&log).unwrap().uid(), 0);
        kp.reload();
    }
}

/// The lock says who the master is, whatever somebody has written into the file.
#[test]
fn orders_find_the_master_whatever_its_pid_file_says() {
    let mut kp = answering("one").start();
    let master = kp.master_pid();
    let mut stranger = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    for text in [String::new(), stranger.id().to_string(), "x".into()] {
        fs::write(kp.path("kp.pid"), &text).unwrap();
        for order in ["reload", "reopen"] {
            assert_eq!(kp.command(&["-s", order]).code, 0, "{text}");
        }
        let status = kp.command(&["status"]).stdout;
        assert!(status.contains(&format!("process {master}")), "{status}");
    }
    assert_eq!(kp.command(&["-s", "quit"]).code, 0);
    assert_eq!(kp.wait_exit(SOON), 0);
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// A container may have no user but its root, who may not change its groups either (`unshare --map-root-user`).
#[test]
fn root_of_a_namespace_without_other_users_serves() {
    let unshare = [
        "unshare",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let trial = std::process::Command::new("unshare")
        .args(&unshare[1..])
        .arg("true")
        .output();
    if !trial.is_ok_and(|trial| trial.status.success()) {
        return;
    }
    for user in ["", "user root;"] {
        let kp = answering("one")
            .main(user)
            .as_root_of_its_own()
            .below(&unshare)
            .start();
        assert_eq!(kp.get("/").text(), "one");
    }
}

/// The master has a listening socket for each address and worker.
#[test]
fn the_soft_limit_of_open_files_does_not_bound_the_workers() {
    let kp = answering("one")
        .main("worker_processes 40;")
        .under(&["sh", "-c", "ulimit -S -n 32 && exec \"$@\"", "sh"])
        .start();
    assert_eq!(kp.get("/").text(), "one");
    kp.wait_workers(40);
    kp.reload();
}

#[test]
fn signals_without_a_meaning_end_nobody() {
    let kp = answering("one").start();
    let worker = kp.worker_pid();
    for signal in [Signal::SIGALRM, Signal::SIGIO, Signal::SIGPIPE] {
        for pid in [worker, kp.master_pid()] {
            assert!(process::signal(pid, signal));
        }
    }
    kp.reload();
    assert_eq!(kp.get("/").text(), "one");
    kp.wait_error(&format!("worker process {worker} exited with code 0"));
}
