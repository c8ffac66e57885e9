//! What happens to an operator: files that are not what they should be, limits that are too low, processes that hang.

use kp_tests::Setup;

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
        kp.signal(nix::sys::signal::Signal::SIGHUP);
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
        assert!(told.starts_with(reason), "{files}: {told}");
    }
    assert_eq!(kp.get("/").text(), "one");
}
