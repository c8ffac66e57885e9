//! Master and workers: start, signals, reload, the command line (case R01).

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kp_tests::client;
use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{End, Kp, Origin, Port, Setup, process};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);

/// A server that answers with this text.
fn answering(text: &str) -> Setup {
    Setup::new("%MAIN% http { %HTTP% server { listen %LISTEN%; %SERVER% location / { return 200 %TEXT%; } } }")
        .with("TEXT", text)
}

/// Shows: pid, daemon, http, server, location, listen, events
#[test]
fn the_pid_file_names_the_master() {
    let mut kp = answering("one").start();
    assert_eq!(kp.text("kp.pid"), format!("{}\n", kp.master_pid()));
    assert!(process::title(kp.master_pid()).contains("master process"));
    assert_eq!(kp.get("/").text(), "one");
    kp.signal(Signal::SIGQUIT);
    assert_eq!(kp.wait_exit(SOON), 0);
    assert!(
        !kp.path("kp.pid").exists(),
        "the pid file goes with the master"
    );
}

#[test]
fn hup_brings_the_new_configuration() {
    let kp = answering("one").start();
    assert_eq!(kp.get("/").text(), "one");
    kp.configure(&answering("two"));
    kp.reload();
    assert_eq!(kp.get("/").text(), "two");
    assert_eq!(kp.text("kp.pid"), format!("{}\n", kp.master_pid()));
}

#[test]
fn hup_opens_and_closes_listeners() {
    let other = Port::take();
    let kp = answering("one").start();
    kp.configure(&answering("two").server(&format!("listen {};", other.address())));
    kp.reload();
    assert_eq!(client::get(&other.address(), "/").text(), "two");
    kp.configure(&answering("three"));
    kp.reload();
    assert_eq!(kp.get("/").text(), "three");
    wait::until(SOON, "the removed listener to close", || {
        !process::listening(other.number())
    });
}

/// The workers and the answer stay as they were.
fn untouched(kp: &Kp, workers: &[u32], text: &str) {
    assert_eq!(kp.get("/").text(), text);
    assert_eq!(kp.worker_pids(), workers);
}

#[test]
fn r01_a_bad_configuration_changes_nothing() {
    let broken = "http {\n server {\n  listen %LISTEN%;\n  location / { return 200 two }\n }\n}";
    let mut kp = answering("one").allow("[emerg]").start();
    let workers = kp.worker_pids();
    kp.configure(&Setup::new(broken));

    let test = kp.command(&["-t"]);
    let reload = kp.command(&["-s", "reload"]);
    assert_eq!((test.code, reload.code), (1, 1));
    let finding = |text: &str| {
        text.lines()
            .find(|line| line.contains("[emerg]"))
            .map(str::to_owned)
    };
    let said = finding(&reload.stderr).expect("a finding");
    assert!(said.contains("kp.conf:4"), "{said}");
    // Where a process id stands in front of the text, it differs.
    let text_alone = |line: String| line.split_once(": ").map(|(_, text)| text.to_owned());
    assert_eq!(finding(&test.stderr).and_then(text_alone), text_alone(said));
    untouched(&kp, &workers, "one");

    kp.signal(Signal::SIGHUP);
    wait::until(SOON, "the error in the log", || {
        kp.error_log()
            .lines()
            .any(|line| line.contains("[emerg]") && line.contains("kp.conf:4"))
    });
    untouched(&kp, &workers, "one");

    kp.configure(&answering("three"));
    let reload = kp.command(&["-s", "reload"]);
    assert_eq!(reload.code, 0, "{}", reload.stderr);
    kp.wait_new_workers(&workers);
    assert_eq!(kp.get("/").text(), "three");

    kp.signal(Signal::SIGTERM);
    kp.wait_exit(SOON);
    let reload = kp.command(&["-s", "reload"]);
    assert_eq!(reload.code, 1);
    assert!(reload.stderr.contains("kp.pid"), "{}", reload.stderr);
}

#[test]
fn r01_a_port_in_use_changes_nothing() {
    let taken = Origin::ok();
    let kp = answering("one").allow("[emerg]").start();
    let workers = kp.worker_pids();
    kp.configure(&answering("two").server(&format!("listen {};", taken.address())));
    kp.signal(Signal::SIGHUP);
    wait::until(SOON, "the error in the log", || {
        kp.error_log().contains("in use")
    });
    // nginx tries for some time before it gives up; kp's workers must be the same afterwards, too.
    wait::until(SOON, "an answer of the old configuration", || {
        kp.get("/").text() == "one"
    });
    assert_eq!(kp.worker_pids(), workers);
}

#[test]
fn a_second_kp_on_the_same_port_does_not_start() {
    let kp = answering("one").start();
    let text = format!(
        "http {{ server {{ listen {}; return 200 two; }} }}",
        kp.address()
    );
    let second = Setup::new(&text).check_start();
    assert_ne!(second.code, 0);
    assert!(second.stderr.contains("in use"), "{}", second.stderr);
    // Once, even where the log is the terminal.
    let text = format!(
        "error_log stderr; pid once.pid; events {{}} http {{ access_log off; server {{ listen {}; }} }}",
        kp.address()
    );
    let once = Setup::new(&text).exactly().check_start();
    assert_eq!(once.stderr.matches("in use").count(), 1, "{}", once.stderr);
    assert_eq!(kp.get("/").text(), "one");
}

#[test]
fn a_dead_worker_is_replaced() {
    let kp = answering("one").allow("exited on signal").start();
    let worker = kp.worker_pid();
    assert!(process::signal(worker, Signal::SIGKILL));
    kp.wait_new_workers(&[worker]);
    kp.wait_error("exited on signal 9");
    assert_eq!(kp.get("/").text(), "one");
}

fn slow(origin_delay: Duration) -> Origin {
    Origin::start(move |conversation| {
        conversation.request()?;
        conversation.pause(origin_delay);
        conversation.send(response(200, b"late"))
    })
}

#[test]
fn quit_finishes_what_was_begun() {
    let origin = slow(SECOND);
    let mut kp = Kp::base(&origin);
    let mut busy = kp.client();
    busy.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    origin.wait_requests(1);
    kp.signal(Signal::SIGQUIT);
    wait::until(SOON, "new connections to be refused", || {
        client::Client::try_connect(&kp.address()).is_err()
    });
    let answer = busy.response();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "late"));
    assert_eq!(kp.wait_exit(SOON), 0);
}

#[test]
fn term_does_not_wait() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let origin = slow(SECOND * 20);
        let mut kp = Kp::base(&origin);
        let mut busy = kp.client();
        busy.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        origin.wait_requests(1);
        let start = Instant::now();
        kp.signal(signal);
        assert_eq!(kp.wait_exit(SOON), 0);
        assert!(
            start.elapsed() <= SECOND * 10,
            "{signal}: {:?}",
            start.elapsed()
        );
        assert!(matches!(busy.end_within(SOON), End::Closed | End::Reset));
        assert!(!process::listening(kp.port()));
    }
}

/// Shows: worker_shutdown_timeout
#[test]
fn a_graceful_stop_has_a_deadline() {
    let origin = slow(SECOND * 20);
    let mut kp = Setup::base(&origin)
        .main("worker_shutdown_timeout 1s;")
        .start();
    let mut busy = kp.client();
    busy.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    origin.wait_requests(1);
    let start = Instant::now();
    kp.signal(Signal::SIGQUIT);
    kp.wait_exit(SOON);
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(900) && took <= SECOND * 10,
        "{took:?}"
    );
}

#[test]
fn usr1_opens_the_logs_again() {
    let kp = answering("one").start();
    kp.get("/before");
    kp.access_lines(1);
    fs::rename(kp.path("access.log"), kp.path("access.old")).expect("renaming a log");
    fs::rename(kp.path("error.log"), kp.path("error.old")).expect("renaming a log");
    kp.signal(Signal::SIGUSR1);
    wait::until(SOON, "new log files", || {
        kp.path("access.log").exists() && kp.path("error.log").exists()
    });
    wait::until(SOON, "a request in the new file", || {
        kp.get("/after");
        kp.text("access.log").contains("/after")
    });
    assert!(kp.text("access.old").contains("/before"));
    let again = kp.command(&["-s", "reopen"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
}

#[test]
fn messages_of_the_command_line_reach_the_master() {
    for (message, busy_survives) in [("stop", false), ("quit", true)] {
        let origin = slow(if busy_survives { SECOND } else { SECOND * 20 });
        let mut kp = Kp::base(&origin);
        let mut busy = kp.client();
        busy.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        origin.wait_requests(1);
        let said = kp.command(&["-s", message]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        let answer = busy.try_response("GET", SECOND * 15);
        assert_eq!(
            answer.is_ok_and(|answer| answer.status() == 200),
            busy_survives,
            "{message}"
        );
        assert_eq!(kp.wait_exit(SOON), 0);
    }
}

#[test]
fn winch_stops_the_workers_of_a_daemon_only() {
    let kp = answering("one").start();
    let worker = kp.worker_pid();
    kp.signal(Signal::SIGWINCH);
    kp.signal(Signal::SIGUSR1);
    kp.wait_error("signal");
    assert_eq!(kp.get("/").text(), "one");
    assert_eq!(
        kp.worker_pid(),
        worker,
        "in the foreground WINCH is for the terminal"
    );
}

/// A daemon of the test, stopped when dropped.
struct Daemon(u32);

impl Drop for Daemon {
    fn drop(&mut self) {
        process::signal(self.0, Signal::SIGTERM);
        wait::happens(SECOND * 3, || !process::alive(self.0));
    }
}

fn start_daemon(directory: &std::path::Path, port: &Port) -> Daemon {
    let extra = std::env::var("KP_TEST_MAIN").unwrap_or_default();
    let text = format!(
        "{extra} daemon on; pid kp.pid; error_log error.log notice; events {{}} http {{ access_log off;
         server {{ listen {}; return 200 daemon; }} }}",
        port.address()
    );
    fs::write(directory.join("kp.conf"), text).expect("writing the configuration");
    let prefix = format!("{}/", directory.display());
    let status = Command::new(kp_tests::kp::binary())
        .args(["-p", &prefix, "-c", "kp.conf"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("starting kp");
    assert!(status.success());
    let pid = wait::until_some(SOON, "the pid file", || {
        fs::read_to_string(directory.join("kp.pid"))
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    });
    Daemon(pid)
}

/// Shows: daemon
#[test]
fn a_daemon_leaves_its_terminal_and_obeys_winch() {
    let directory = tempfile::tempdir().expect("a directory");
    let port = Port::take();
    let daemon = start_daemon(directory.path(), &port);
    let pid = daemon.0;
    assert_eq!(
        process::status(pid, "PPid")
            .as_deref()
            .map(|parent| parent != std::process::id().to_string()),
        Some(true)
    );
    assert_eq!(client::get(&port.address(), "/").text(), "daemon");
    assert!(
        process::descriptors(pid)
            .iter()
            .filter(|(number, _)| *number < 2)
            .all(|(_, target)| target == "/dev/null"),
        "{:?}",
        process::descriptors(pid)
    );
    process::signal(pid, Signal::SIGWINCH);
    wait::until(SOON, "the workers to go", || {
        process::children(pid).is_empty()
    });
    assert!(process::alive(pid));
    process::signal(pid, Signal::SIGHUP);
    wait::until(SOON, "workers again", || !process::children(pid).is_empty());
    wait::until(SOON, "an answer", || {
        client::Client::try_connect(&port.address()).is_ok_and(|mut client| {
            client.send("GET / HTTP/1.0\r\n\r\n");
            client
                .try_response("GET", SECOND)
                .is_ok_and(|answer| answer.text() == "daemon")
        })
    });
    drop(daemon);
}

#[test]
fn what_a_daemon_writes_nobody_else_may_change() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = start_daemon(directory.path(), &Port::take());
    let log = directory.path().join("error.log");
    fs::rename(&log, directory.path().join("error.old")).expect("renaming a log");
    process::signal(daemon.0, Signal::SIGUSR1);
    wait::until(SOON, "a new log", || log.exists());
    for name in ["kp.pid", "error.log", "error.old"] {
        let path = directory.path().join(name);
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o022, 0, "{name}: {mode:o}");
    }
}

/// Shows: master_process
#[test]
fn one_process_can_do_everything() {
    let mut setup = answering("alone").main("master_process off;");
    setup = setup.single();
    let mut kp = setup.start();
    assert_eq!(kp.get("/").text(), "alone");
    assert!(kp.all_pids().is_empty());
    kp.signal(Signal::SIGTERM);
    assert_eq!(kp.wait_exit(SOON), 0);
}

#[test]
fn starts_with_its_first_descriptors_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let port = Port::take();
    let extra = std::env::var("KP_TEST_MAIN").unwrap_or_default();
    let text = format!(
        "{extra} daemon off; pid kp.pid; error_log error.log notice; events {{}} http {{ access_log access.log;
         server {{ listen {}; return 200 closed; }} }}",
        port.address()
    );
    fs::write(directory.path().join("kp.conf"), text).expect("writing the configuration");
    let mut child = Command::new("sh")
        .args(["-c", "exec \"$0\" -p \"$1\" -c kp.conf <&- >&- 2>&-"])
        .arg(kp_tests::kp::binary())
        .arg(format!("{}/", directory.path().display()))
        .spawn()
        .expect("starting kp");
    wait::until(SOON, "the pid file", || {
        directory.path().join("kp.pid").exists()
    });
    let bodies: Vec<String> = (0..5)
        .map(|_| client::get(&port.address(), "/").text())
        .collect();
    let log = fs::read_to_string(directory.path().join("access.log")).unwrap_or_default();
    process::signal(child.id(), Signal::SIGTERM);
    child.wait().expect("waiting for kp");
    assert_eq!(
        bodies,
        vec!["closed"; 5],
        "a client got the number of a standard descriptor"
    );
    assert!(log.lines().all(|line| line.contains("GET / HTTP")), "{log}");
}

/// Shows: user
#[test]
fn workers_give_up_the_rights_of_root() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let kp = answering("one")
        .main("user nobody nogroup;")
        .as_root_of_its_own()
        .start();
    // Who answers has given them up; a listening port alone does not tell that yet.
    assert_eq!(kp.get("/").text(), "one");
    let uid = process::status(kp.worker_pid(), "Uid").expect("a status");
    assert!(uid.starts_with("65534"), "{uid}");
    let groups = process::status(kp.worker_pid(), "Groups").expect("a status");
    assert!(
        groups.split_whitespace().all(|group| group == "65534"),
        "{groups}"
    );
    assert!(
        process::status(kp.master_pid(), "Uid")
            .expect("a status")
            .starts_with("0")
    );
}

/// Shows: worker_rlimit_nofile, worker_rlimit_core, worker_priority, worker_cpu_affinity, working_directory
#[test]
fn workers_get_their_limits() {
    let directory = tempfile::tempdir().expect("a directory");
    let kp = answering("one")
        .main("worker_rlimit_nofile 777; worker_rlimit_core 64k; worker_cpu_affinity 01;")
        .main("worker_priority 7;")
        .main(&format!(
            "working_directory {};",
            directory.path().display()
        ))
        .start();
    // A worker that answers has put its limits in place.
    assert_eq!(kp.get("/").status(), 200);
    let worker = kp.worker_pid();
    let limits = fs::read_to_string(format!("/proc/{worker}/limits")).expect("limits");
    for (name, soft, hard) in [
        ("Max open files", "777", "777"),
        ("Max core file size", "65536", "65536"),
    ] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        let mut found = line.expect("a line").split_whitespace();
        assert_eq!(
            (found.next(), found.next()),
            (Some(soft), Some(hard)),
            "{name}"
        );
    }
    assert_eq!(process::nice(worker), Some(7));
    assert_ne!(process::nice(kp.master_pid()), Some(7));
    assert_eq!(
        process::status(worker, "Cpus_allowed_list").as_deref(),
        Some("0")
    );
    let current = fs::read_link(format!("/proc/{worker}/cwd")).expect("a directory");
    assert_eq!(current, directory.path());
}

/// Shows: worker_connections
#[test]
fn connections_have_a_limit() {
    // Long enough for all of them to be there before the first leaves.
    let origin = slow(SECOND * 3);
    let kp = Setup::base(&origin)
        .with("MAIN", "events { worker_connections 20; }")
        .start();
    let mut clients: Vec<_> = (0..18).map(|_| kp.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    let mut served = 0;
    let mut refused = 0;
    for client in &mut clients {
        match client.try_response("GET", SOON) {
            Ok(answer) if answer.status() == 200 => served += 1,
            Ok(answer) => {
                assert_eq!(answer.status(), 503);
                assert!(answer.field("retry-after").is_some());
                refused += 1;
            }
            Err(end) => {
                assert_ne!(end, End::Deadline, "neither an answer nor the end");
                refused += 1;
            }
        }
    }
    // Each request that is served needs a connection on either side.
    assert!(
        (5..=10).contains(&served) && served + refused == 18,
        "{served} and {refused}"
    );
    assert_eq!(kp.get("/").status(), 200, "places are given back");
}

#[test]
fn idle_connections_give_way_when_they_are_needed() {
    let kp = answering("one")
        .with("MAIN", "events { worker_connections 20; }")
        .start();
    let mut idle = Vec::new();
    for n in 0..60 {
        let mut client = kp.client();
        let answer = client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(answer.status(), 200, "connection {n}");
        idle.push(client);
    }
}

#[test]
fn the_version_tells_what_was_built_in() {
    let kp = answering("one").start();
    let short = kp.command(&["-v"]);
    let long = kp.command(&["-V"]);
    assert_eq!((short.code, long.code), (0, 0));
    assert!(short.stderr.contains("version"), "{}", short.stderr);
    let text = format!("{}{}", long.stdout, long.stderr);
    for word in [
        "/etc/kp/kp.yaml",
        "/etc/kp/kp.conf",
        "/run/kp.pid",
        "/var/log/kp",
        "nginx version: nginx/1.31.",
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

#[test]
fn dash_g_adds_directives_and_dash_q_is_quiet() {
    let kp = answering("one").start();
    let bad = kp.command(&["-t", "-g", "nonsense 1;"]);
    assert_eq!(bad.code, 1);
    assert!(bad.stderr.contains("nonsense"), "{}", bad.stderr);
    let loud = kp.command(&["-t"]);
    assert!(
        loud.stderr.contains("syntax is ok") && loud.stderr.contains("test is successful"),
        "{}",
        loud.stderr
    );
    let quiet = kp.command(&["-t", "-q"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
    assert_ne!(kp.command(&["-s", "nonsense"]).code, 0);
    assert_ne!(kp.command(&["-Z"]).code, 0);
    assert_eq!(kp.command(&["-h"]).code, 0);
}

#[test]
fn dash_capital_t_prints_every_file_once() {
    let kp = Setup::new("http { include more.conf; server { listen %LISTEN%; return 200 one; } }")
        .file("more.conf", "server_tokens off; # mark-of-the-second\n")
        .start();
    let dump = kp.command(&["-T"]);
    assert_eq!(dump.code, 0, "{}", dump.stderr);
    assert!(
        dump.stdout.contains(&format!(
            "# configuration file {}:\n",
            kp.path("kp.conf").display()
        )),
        "{}",
        dump.stdout
    );
    assert_eq!(dump.stdout.matches("mark-of-the-second").count(), 1);
}
