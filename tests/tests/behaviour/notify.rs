//! What a service manager is told, heard on a socket of the test's own.

use std::fs;
use std::os::unix::net::UnixDatagram;

use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Setup, process};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// The service manager's end.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(SOON)).expect("a deadline");
        Self { socket, folder }
    }

    fn start(&self, setup: Setup) -> Kp {
        let path = self.folder.path().join("notify");
        setup
            .environment("NOTIFY_SOCKET", &path.to_string_lossy())
            .start()
    }

    /// The next message, line by line.
    fn hear(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let count = self.socket.recv(&mut bytes).expect("a message in time");
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    /// The next message is READY of this master; its status.
    fn hear_ready(&self, kp: &Kp) -> String {
        let message = self.hear();
        let main = format!("MAINPID={}", kp.master_pid());
        assert_eq!(message[..2], ["READY=1".to_owned(), main], "{message:?}");
        message[2]
            .strip_prefix("STATUS=")
            .expect("a status")
            .to_owned()
    }

    /// Nothing more was said.
    fn hear_nothing(&self) {
        self.socket.set_nonblocking(true).expect("a flag");
        let mut bytes = [0; 4096];
        assert!(self.socket.recv(&mut bytes).is_err(), "{bytes:?}");
        self.socket.set_nonblocking(false).expect("a flag");
    }
}

fn answering(text: &str) -> Setup {
    Setup::new("%MAIN% http { server { listen %LISTEN%; return 200 %TEXT%; } }").with("TEXT", text)
}

fn monotonic_us() -> i128 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock");
    i128::from(now.tv_sec()) * 1_000_000 + i128::from(now.tv_nsec()) / 1000
}

/// Between `begin` and the message that was heard: RELOADING with the time of it.
fn assert_reloading(message: &[String], begin: i128) {
    assert_eq!(message[0], "RELOADING=1", "{message:?}");
    let at = message[1].strip_prefix("MONOTONIC_USEC=").expect("a time");
    let at: i128 = at.parse().expect("a number");
    assert!(begin <= at && at <= monotonic_us(), "{begin} {at}");
    assert_eq!(message[2], "STATUS=Reloading the configuration");
}

#[test]
fn start_reload_and_stop_are_told() {
    let manager = Manager::new();
    let mut kp = manager.start(answering("one").allow("[emerg]"));
    assert_eq!(manager.hear_ready(&kp), "Serving: generation 1, 1 worker");

    let begin = monotonic_us();
    kp.configure(&answering("two"));
    assert_eq!(kp.command(&["-s", "reload"]).code, 0);
    assert_reloading(&manager.hear(), begin);
    assert_eq!(manager.hear_ready(&kp), "Serving: generation 2, 1 worker");

    // A reload that fails while it reads, and one whose workers cannot start: the old configuration is still ready.
    let begin = monotonic_us();
    kp.configure(&Setup::new("http { bogus on; }"));
    kp.signal(Signal::SIGHUP);
    assert_reloading(&manager.hear(), begin);
    let status = manager.hear_ready(&kp);
    assert!(
        status.contains("last reload failed: ") && status.contains("unknown directive \"bogus\""),
        "{status}"
    );
    assert_eq!(kp.get("/").text(), "two");
    manager.hear_nothing();

    kp.signal(Signal::SIGQUIT);
    let message = manager.hear();
    assert_eq!(message[0], "STOPPING=1", "{message:?}");
    assert!(message[1].starts_with("STATUS=Stopping"), "{message:?}");
    assert_eq!(kp.wait_exit(SOON), 0);
    manager.hear_nothing();
}

#[test]
fn workers_that_cannot_start_fail_a_reload_that_is_told() {
    let manager = Manager::new();
    let kp = manager.start(answering("one").allow("[emerg]").allow("[alert]"));
    manager.hear_ready(&kp);
    let begin = monotonic_us();
    kp.configure(&answering("two").main("working_directory /nowhere-at-all;"));
    kp.signal(Signal::SIGHUP);
    assert_reloading(&manager.hear(), begin);
    let status = manager.hear_ready(&kp);
    assert!(status.contains("/nowhere-at-all"), "{status}");
    assert_eq!(kp.get("/").text(), "one");
}

#[test]
fn a_fast_stop_is_told() {
    let manager = Manager::new();
    let mut kp = manager.start(answering("one"));
    manager.hear_ready(&kp);
    kp.signal(Signal::SIGTERM);
    assert_eq!(manager.hear()[0], "STOPPING=1");
    assert_eq!(kp.wait_exit(SOON), 0);
}

#[test]
fn one_process_is_ready_too_and_a_missing_manager_is_no_harm() {
    let manager = Manager::new();
    let kp = manager.start(answering("alone").main("master_process off;").single());
    manager.hear_ready(&kp);
    assert_eq!(kp.get("/").text(), "alone");
    drop(kp);

    let gone = Manager::new();
    fs::remove_file(gone.folder.path().join("notify")).expect("removing the socket");
    let kp = gone.start(answering("one"));
    assert_eq!(kp.get("/").text(), "one");
    kp.wait_error("the service manager could not be told");
    assert!(process::alive(kp.master_pid()));
    wait::until(SOON, "a worker", || !kp.worker_pids().is_empty());
}

/// A master that the test did not start itself, ended when dropped.
struct Heir(u32);

impl Drop for Heir {
    fn drop(&mut self) {
        process::signal(self.0, Signal::SIGTERM);
        wait::happens(SOON, || !process::alive(self.0));
    }
}

#[test]
fn another_binary_becomes_the_main_process() {
    let manager = Manager::new();
    let mut kp = manager.start(answering("one"));
    manager.hear_ready(&kp);
    let said = kp.command(&["-s", "upgrade"]);
    let new = kp.text("kp.pid").trim().parse().expect("a number");
    assert_ne!(new, kp.master_pid(), "{}", said.stderr);
    let heir = Heir(new);
    assert_eq!(said.code, 0, "{}", said.stderr);

    // Said by the old one, while the manager still listens to it.
    let message = manager.hear();
    assert_eq!(message[0], format!("MAINPID={new}"), "{message:?}");
    assert_eq!(kp.wait_exit(SOON), 0);
    let message = manager.hear();
    assert_eq!(
        message[..2],
        ["READY=1".to_owned(), format!("MAINPID={new}")]
    );
    assert_eq!(kp.get("/").text(), "one");
    let begin = monotonic_us();
    assert_eq!(kp.command(&["-s", "reload"]).code, 0);
    assert_reloading(&manager.hear(), begin);
    assert_eq!(manager.hear()[0], "READY=1");
    drop(heir);
    assert_eq!(manager.hear()[0], "STOPPING=1");
    manager.hear_nothing();
}
