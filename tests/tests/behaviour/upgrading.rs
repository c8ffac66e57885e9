//! Another binary in the place of the running one: the dance of signals that nginx documents, forth and back, `kp -s upgrade`,
//! every way in which the new binary may fail, and that nobody loses a request.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kp_tests::kp::workers_of;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kind, Kp, LoadOrigin, Mix, Origin, Port, Setup, client, peers, process};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);

/// Two workers; an answer is the process id of the one that gave it.
fn telling() -> Setup {
    Setup::new(
        "%MAIN% http { %HTTP% server { listen %LISTEN%; %SERVER% location / { return 200 \"$pid %TEXT%\"; } } }",
    )
    .main("worker_processes 2;")
}

/// Starts it, by itself or as a daemon, and waits for both workers.
fn start(setup: Setup, daemon: bool) -> Kp {
    let setup = if daemon { setup.daemon() } else { setup };
    let kp = setup.start();
    kp.wait_workers(2);
    kp
}

/// The worker that answers.
fn answering(address: &str) -> u32 {
    first_number(&client::get(address, "/").text())
}

fn first_number(text: &str) -> u32 {
    let pid = text.split(' ').next().expect("a word");
    pid.parse().expect("a process id")
}

/// Waits until every one of these workers, and no other, has been seen to answer.
fn wait_answers_of(kp: &Kp, masters: &[u32]) {
    let all: BTreeSet<u32> = masters.iter().flat_map(|pid| workers_of(*pid)).collect();
    assert_eq!(all.len(), 2 * masters.len(), "two workers each");
    let mut seen = BTreeSet::new();
    wait::until(SOON, &format!("answers of {all:?}"), || {
        let pid = answering(&kp.address());
        assert!(all.contains(&pid), "{pid} is not of {all:?}");
        seen.insert(pid);
        seen == all
    });
}

/// USR2, and waits until the new master serves, with all that is to be seen from outside. Old and new.
fn upgrade_by_hand(kp: &Kp) -> (u32, u32) {
    let old = kp.master_pid();
    kp.signal(Signal::SIGUSR2);
    let new = wait::until_some(SOON, "a new master in the pid file", || {
        kp.master_of("kp.pid").filter(|pid| *pid != old)
    });
    kp.wait_error(&format!("new binary process {new} is serving"));
    assert_eq!(kp.text("kp.pid.oldbin"), format!("{old}\n"));
    assert_eq!(kp.text("kp.pid"), format!("{new}\n"));
    (old, new)
}

fn wait_gone(what: &str, pid: u32) {
    wait::until(SOON, &format!("{what} {pid} to end"), || {
        !process::alive(pid)
    });
}

/// Only one master is left, and nothing of another one.
fn only(kp: &Kp, master: u32) {
    wait::until(SOON, "nothing to be left of the other master", || {
        !kp.path("kp.pid.oldbin").exists() && !kp.path("kp.pid.oldbin.ctl").exists()
    });
    assert_eq!(kp.text("kp.pid"), format!("{master}\n"));
    wait_answers_of(kp, &[master]);
    let status = kp.command(&["status"]);
    assert_eq!(status.code, 0, "{}", status.stderr);
    assert!(!status.stdout.contains("beside it"), "{}", status.stdout);
}

#[test]
fn the_new_binary_takes_over_and_the_old_one_leaves() {
    for daemon in [false, true] {
        let mut kp = start(telling().server("listen unix:%DIR%/kp.listen;"), daemon);
        let (old, new) = upgrade_by_hand(&kp);
        wait_answers_of(&kp, &[old, new]);
        assert!(client::get_unix(kp.path("kp.listen")).contains("200 OK"));

        assert!(process::signal(old, Signal::SIGQUIT));
        wait_gone("the old master", old);
        only(&kp, new);
        assert!(client::get_unix(kp.path("kp.listen")).contains("200 OK"));
        assert!(kp.error_log().contains("signal 12 (SIGUSR2) received"));

        kp.follow();
        assert!(process::signal(new, Signal::SIGQUIT));
        wait_gone("the new master", new);
        for name in ["kp.pid", "kp.ctl", "kp.listen"] {
            assert!(!kp.path(name).exists(), "{name} is left behind");
        }
    }
}

#[test]
fn going_back_needs_no_configuration_and_ends_where_it_began() {
    for (daemon, signal) in [
        (true, Signal::SIGQUIT),
        (false, Signal::SIGTERM),
        (true, Signal::SIGKILL),
    ] {
        let setup = telling()
            .server("listen unix:%DIR%/kp.listen;")
            .allow("the master process is gone");
        let kp = start(setup, daemon);
        let (old, new) = upgrade_by_hand(&kp);
        let before = workers_of(old);
        assert!(process::signal(old, Signal::SIGWINCH));
        for worker in before {
            wait_gone("a worker of the old master", worker);
        }
        assert!(process::alive(old));
        wait_answers_of(&kp, &[new]);

        // The file is not read: it would be refused.
        kp.configure(&Setup::new("http { bogus on; }"));
        assert!(process::signal(old, Signal::SIGHUP));
        wait::until(SOON, "workers of the old master", || {
            workers_of(old).len() == 2
        });
        wait_answers_of(&kp, &[old, new]);
        let again = workers_of(old);
        let ignored = || {
            let log = kp.error_log();
            log.matches("the configuration is not read again").count()
        };
        let before = ignored();
        assert!(process::signal(old, Signal::SIGHUP));
        wait::until(SOON, "the second HUP", || ignored() > before);

        let of_new = workers_of(new);
        assert!(process::signal(new, signal));
        wait_gone("the new master", new);
        kp.wait_error("this one takes its place back");
        for worker in of_new {
            wait_gone("a worker of the new master", worker);
        }
        assert!(client::get_unix(kp.path("kp.listen")).contains("200 OK"));
        wait_answers_of(&kp, &[old]);
        assert_eq!(workers_of(old), again, "those that serve are not replaced");
        assert!(!kp.error_log().contains("bogus"));
        kp.configure(&telling().server("listen unix:%DIR%/kp.listen;"));
        only(&kp, old);
        // And forth again.
        let (_, next) = upgrade_by_hand(&kp);
        wait_answers_of(&kp, &[old, next]);
    }
}

#[test]
fn workers_sent_home_come_back_by_themselves_when_the_new_binary_goes() {
    for signal in [Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGKILL] {
        let kp = telling()
            .daemon()
            .allow("the master process is gone")
            .start();
        kp.wait_workers(2);
        let (old, new) = upgrade_by_hand(&kp);
        let before = workers_of(old);
        assert!(process::signal(old, Signal::SIGWINCH));
        for worker in before {
            wait_gone("a worker of the old master", worker);
        }
        assert!(process::signal(new, signal));
        wait_gone("the new master", new);
        wait::until(SOON, "workers of the old master", || {
            workers_of(old).len() == 2
        });
        only(&kp, old);
    }
}

#[test]
fn a_new_binary_that_leaves_slowly_is_replaced_at_once() {
    let origin = Origin::start(|conversation| {
        conversation.head()?;
        conversation.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        )?;
        conversation.read_at_least(1).map(|_| ())
    });
    let kp = Setup::new(
        "%MAIN% http { server { listen %LISTEN%; location / { return 200 \"$pid \"; }
            location /websocket { proxy_pass http://%U1%; proxy_set_header Upgrade $http_upgrade;
                proxy_set_header Connection upgrade; } } }",
    )
    .main("worker_processes 2;")
    .with("U1", origin.address())
    .daemon()
    .start();
    kp.wait_workers(2);
    let (old, new) = upgrade_by_hand(&kp);
    assert!(process::signal(old, Signal::SIGWINCH));
    wait::until(SOON, "the workers of the old master to leave", || {
        process::children(old) == [new]
    });
    let mut tunnel = kp.client();
    tunnel.send(
        "GET /websocket HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    );
    assert_eq!(tunnel.head(SOON).expect("an answer").status(), 101);
    assert!(process::signal(new, Signal::SIGQUIT));
    // The tunnel keeps the new master alive; who comes now is the old one's.
    wait::until(SOON, "workers of the old master", || {
        workers_of(old).len() == 2
    });
    wait_answers_of(&kp, &[old]);
    assert!(process::alive(new));
    drop(tunnel);
    wait_gone("the new master", new);
    only(&kp, old);
}

/// The new master has more workers than the old one, and sockets that only these poll.
#[test]
fn a_new_master_without_workers_leaves_newcomers_to_the_old_one() {
    let kp = telling().daemon().start();
    kp.wait_workers(2);
    kp.configure(
        &Setup::new("%MAIN% http { server { listen %LISTEN%; return 200 \"$pid \"; } }")
            .main("worker_processes 6; daemon on;"),
    );
    let (old, new) = upgrade_by_hand(&kp);
    let of_new = workers_of(new);
    assert_eq!(of_new.len(), 6);
    assert!(process::signal(new, Signal::SIGWINCH));
    for worker in of_new {
        wait_gone("a worker of the new master", worker);
    }
    for _ in 0..40 {
        assert!(workers_of(old).contains(&answering(&kp.address())));
    }
    assert!(process::signal(new, Signal::SIGHUP));
    wait::until(SOON, "workers of the new master", || {
        workers_of(new).len() == 6
    });
    let mut seen = BTreeSet::new();
    wait::until(SOON, "answers of all workers", || {
        seen.insert(answering(&kp.address()));
        seen.len() == 8
    });
}

#[test]
fn a_master_that_is_killed_leaves_the_other_in_charge() {
    let mut kp = telling()
        .server("listen unix:%DIR%/kp.listen;")
        .allow("the master process is gone")
        .start();
    kp.wait_workers(2);
    let (old, new) = upgrade_by_hand(&kp);
    let of_old = workers_of(old);
    assert!(process::signal(old, Signal::SIGKILL));
    kp.wait_error(&format!("old master process {old} has ended"));
    for worker in of_old {
        wait_gone("a worker of the old master", worker);
    }
    kp.follow();
    only(&kp, new);
    assert!(client::get_unix(kp.path("kp.listen")).contains("200 OK"));
    // The way is free for the next one, which is killed, too.
    let (_, next) = upgrade_by_hand(&kp);
    assert!(process::signal(next, Signal::SIGKILL));
    kp.wait_error(&format!("new binary process {next} exited on signal 9"));
    wait::until(SOON, "the pid file of before", || {
        kp.text("kp.pid") == format!("{new}\n")
    });
    wait::until(SOON, "the orphans to leave", || {
        let pid = answering(&kp.address());
        workers_of(new).contains(&pid)
    });
    assert!(client::get_unix(kp.path("kp.listen")).contains("200 OK"));
}

/// Names of the kinds of descriptors a process has, and how many of each.
fn kinds(pid: u32) -> Vec<(String, usize)> {
    let mut names: Vec<String> = process::descriptors(pid)
        .into_iter()
        .filter(|(number, _)| *number > 2)
        .map(|(_, target)| target.split('[').next().unwrap_or_default().to_owned())
        .collect();
    names.sort();
    let different: BTreeSet<String> = names.iter().cloned().collect();
    different
        .into_iter()
        .map(|name| {
            let count = names.iter().filter(|one| **one == name).count();
            (name, count)
        })
        .collect()
}

/// Of a master that has nothing to do with another one any more, and of its first worker.
fn all_kinds(kp: &Kp) -> [Vec<(String, usize)>; 2] {
    let master = kp.master_pid();
    let mut workers = workers_of(master);
    workers.sort_unstable();
    // A client has its answer a moment before the worker closes the connection.
    wait::until(SOON, "the connections of clients to be closed", || {
        peers::tcp_peers(workers[0]).is_empty()
    });
    [kinds(master), kinds(workers[0])]
}

#[test]
fn the_command_does_it_all_and_does_it_again() {
    for daemon in [false, true] {
        let mut kp = start(telling().server("listen unix:%DIR%/kp.listen;"), daemon);
        answering(&kp.address());
        let before = all_kinds(&kp);
        for _ in 0..3 {
            let old = kp.master_pid();
            let said = kp.command(&["-s", "upgrade"]);
            assert_eq!(said.code, 0, "{}", said.stderr);
            wait_gone("the old master", old);
            let new = kp.follow();
            assert_ne!(old, new);
            assert_eq!(
                said.stdout,
                format!(
                    "kp: process {new} is serving in place of process {old}, 2 workers ready\n"
                )
            );
            only(&kp, new);
            assert!(client::get_unix(kp.path("kp.listen")).contains("200 OK"));
            kp.wait_error(&format!("old master process {old} has ended"));
            assert_eq!(all_kinds(&kp), before, "descriptors");
        }
        // What runs now reloads as ever.
        kp.configure(&telling().with("TEXT", "reloaded"));
        let said = kp.command(&["-s", "reload"]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        kp.wait_drained(SOON);
        assert!(kp.get("/").text().ends_with(" reloaded"));
        assert!(!kp.path("kp.listen").exists());
    }
}

#[test]
fn an_upgrade_waits_for_the_reload_that_is_under_way() {
    let kp = telling().start();
    kp.wait_workers(2);
    kp.configure(&telling().with("TEXT", "two"));
    kp.signal(Signal::SIGHUP);
    let (old, new) = upgrade_by_hand(&kp);
    let log = kp.error_log();
    let reloaded = log.find("generation 2 is serving").expect("a reload");
    let upgraded = log.find("start new binary process").expect("an upgrade");
    assert!(reloaded < upgraded, "{log}");
    wait::until(SOON, "the first generation to leave", || {
        workers_of(old).len() == 2
    });
    wait_answers_of(&kp, &[old, new]);
    assert!(kp.get("/").text().ends_with(" two"));
}

#[test]
fn one_upgrade_at_a_time() {
    let mut kp = telling().start();
    kp.wait_workers(2);
    let (old, new) = upgrade_by_hand(&kp);
    assert!(process::signal(old, Signal::SIGUSR2));
    kp.wait_error("the binary is not changed: a new binary was started already and lives");
    assert!(process::signal(new, Signal::SIGUSR2));
    kp.wait_error("the binary is not changed: the old master still lives");
    let said = kp.command(&["-s", "upgrade"]);
    assert_eq!(said.code, 1);
    assert!(
        said.stderr
            .contains(&format!("kp: the old master still lives (process {old})\n")),
        "{}",
        said.stderr
    );
    let status = kp.command(&["status"]).stdout;
    let line = format!("beside it:     old master process {old}, which still lives\n");
    assert!(status.contains(&line), "{status}");
    wait_answers_of(&kp, &[old, new]);
    assert_eq!(process::children(new).len(), 2, "no third master");
    assert!(process::signal(old, Signal::SIGQUIT));
    wait_gone("the old master", old);
    kp.follow();
    only(&kp, new);
}

/// A program that is no kp, or one that fails in its own way.
fn script(lines: &str) -> Vec<u8> {
    format!("#!/bin/sh\n{lines}\n").into_bytes()
}

/// The old master and its workers are as before, the new one is gone, the reason is told and logged.
fn assert_unharmed(kp: &Kp, workers: &[u32], reason: &str) {
    let logged = || {
        let log = kp.error_log();
        let lines = log.lines();
        lines
            .filter(|line| line.contains("[emerg]") && line.contains(reason))
            .count()
    };
    let before = logged();
    let said = kp.command(&["-s", "upgrade"]);
    assert_eq!(said.code, 1, "{reason}: {}", said.stdout);
    assert!(said.stderr.contains(reason), "{reason}: {}", said.stderr);
    assert!(
        said.stderr
            .ends_with("kp: the upgrade has failed, the old binary still serves\n"),
        "{}",
        said.stderr
    );
    assert_eq!(said.stdout, "");
    let by_command = logged();
    assert!(by_command > before, "{reason} is not in the error log");
    // The same by a signal.
    kp.signal(Signal::SIGUSR2);
    wait::until(SOON, &format!("{reason} in the error log"), || {
        logged() > by_command
    });
    wait::until(SOON, "the pid file of before", || {
        kp.master_of("kp.pid") == Some(kp.master_pid()) && !kp.path("kp.pid.oldbin").exists()
    });
    wait::until(SOON, "the workers of before, and no other process", || {
        kp.all_pids() == workers
    });
    wait_answers_of(kp, &[kp.master_pid()]);
    assert!(!kp.path("kp.pid.oldbin.ctl").exists());
}

#[test]
fn a_program_that_cannot_run_leaves_the_old_one_unharmed() {
    let kp = telling().copied().allow("").start();
    kp.wait_workers(2);
    let workers = kp.all_pids();
    let descriptors = kinds(kp.master_pid());
    let whole = std::fs::read(kp.path("program")).expect("the program");
    let path = kp.path("program").display().to_string();
    for (content, mode, reason) in [
        (whole.clone(), 0o644, "(13: Permission denied)"),
        (b"no program\n".to_vec(), 0o755, "(8: Exec format error)"),
        (script("exit 3"), 0o755, "exited with code 3"),
        (script("kill -9 $$"), 0o755, "exited on signal 9"),
    ] {
        kp.replace_program(&content, mode);
        assert_unharmed(&kp, &workers, reason);
    }
    std::fs::remove_file(&path).expect("removing the program");
    let reason = format!("execve() \"{path}\" failed (2: No such file or directory)");
    assert_unharmed(&kp, &workers, &reason);
    assert_eq!(kinds(kp.master_pid()), descriptors);
    kp.replace_program(&whole, 0o755);
    let said = kp.command(&["-s", "upgrade"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[test]
fn a_new_binary_that_cannot_serve_leaves_the_old_one_unharmed() {
    let taken = Origin::ok();
    let unix = "listen unix:%DIR%/kp.listen;";
    let kp = telling().server(unix).allow("").start();
    kp.wait_workers(2);
    let workers = kp.all_pids();
    let descriptors = kinds(kp.master_pid());
    let busy = format!("listen unix:%DIR%/kp.more; listen {};", taken.address());
    for (setup, reason) in [
        (telling().server(&busy), "(98: Address already in use)"),
        (
            telling().main("working_directory %DIR%/not-there;"),
            "not-there",
        ),
        (telling().main("worker_rlimit_nofile 4;"), "open files"),
        (
            telling().main("master_process off;"),
            "master_process is off",
        ),
    ] {
        kp.configure(&setup);
        if reason == "master_process is off" {
            // The command line has seen that itself.
            assert_eq!(kp.command(&["-s", "upgrade"]).code, 1);
            kp.signal(Signal::SIGUSR2);
            kp.wait_error(reason);
        } else {
            assert_unharmed(&kp, &workers, reason);
        }
        assert!(client::get_unix(kp.path("kp.listen")).contains("200 OK"));
        assert!(!kp.path("kp.more").exists());
    }
    kp.configure(&Setup::new("http { bogus on; }"));
    let said = kp.command(&["-s", "upgrade"]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("\"bogus\""), "{}", said.stderr);
    assert!(
        !kp.error_log().contains("bogus"),
        "checked before it begins"
    );
    kp.signal(Signal::SIGUSR2);
    wait::until(SOON, "the reason in the error log", || {
        kp.error_log().lines().any(|line| {
            line.contains("[emerg]")
                && line.contains("could not start: unknown directive \"bogus\"")
                && line.contains("kp.conf:1")
        })
    });
    wait::until(SOON, "the workers of before, and no other process", || {
        kp.all_pids() == workers
    });
    wait::until(SOON, "the pid file of before", || {
        kp.master_of("kp.pid") == Some(kp.master_pid())
    });
    wait_answers_of(&kp, &[kp.master_pid()]);
    assert_eq!(kinds(kp.master_pid()), descriptors);
}

#[test]
fn a_new_binary_that_hangs_is_killed_and_its_end_is_told() {
    let kp = telling().copied().allow("did not serve in time").start();
    kp.wait_workers(2);
    let workers = kp.all_pids();
    kp.replace_program(&script("exec sleep 600"), 0o755);
    let said = kp.command(&["-s", "upgrade"]);
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.contains("did not serve in time"),
        "{}",
        said.stderr
    );
    assert_eq!(kp.all_pids(), workers);
    only(&kp, kp.master_pid());
}

#[test]
fn whoever_is_killed_while_it_starts_takes_nobody_with_it() {
    // The new configuration keeps the new master busy: a program between it and its workers.
    let kp = telling().copied().allow("exited on signal 9").start();
    kp.wait_workers(2);
    let old = kp.master_pid();
    kp.replace_program(&script("exec sleep 600"), 0o755);
    kp.signal(Signal::SIGUSR2);
    let new = wait::until_some(SOON, "a new process", || {
        let mut children = process::children(old);
        children.retain(|pid| process::title(*pid).contains("sleep"));
        children.first().copied()
    });
    assert_eq!(kp.text("kp.pid.oldbin"), format!("{old}\n"));
    assert!(!kp.path("kp.pid").exists());
    wait_answers_of(&kp, &[old]);
    // Orders find it, too.
    let refused = kp.command(&["-s", "reload"]);
    assert!(
        refused.code == 1 && refused.stderr.contains("a new binary"),
        "{}",
        refused.stderr
    );
    assert_eq!(kp.command(&["-s", "reopen"]).code, 0);
    let status = kp.command(&["status"]);
    assert_eq!(status.code, 0, "{}", status.stderr);
    let line = format!("beside it:     new binary process {new}, which is starting\n");
    assert!(status.stdout.contains(&line), "{}", status.stdout);
    assert!(process::signal(new, Signal::SIGKILL));
    kp.wait_error(&format!(
        "new binary process {new} could not start: new binary process {new} exited on signal 9"
    ));
    only(&kp, old);
}

#[test]
fn the_old_one_may_leave_before_the_new_one_serves() {
    let mut kp = telling().server("listen unix:%DIR%/kp.listen;").start();
    kp.wait_workers(2);
    let old = kp.master_pid();
    kp.signal(Signal::SIGUSR2);
    let new = wait::until_some(SOON, "a new master in the pid file", || {
        kp.master_of("kp.pid").filter(|pid| *pid != old)
    });
    assert!(process::signal(old, Signal::SIGQUIT));
    wait_gone("the old master", old);
    kp.follow();
    kp.wait_workers(2);
    only(&kp, new);
    assert!(client::get_unix(kp.path("kp.listen")).contains("200 OK"));
}

#[test]
fn the_new_binary_has_other_listeners_and_other_workers() {
    let origin = LoadOrigin::start();
    let (one, two, three) = (Port::take(), Port::take(), Port::take());
    let with = |workers: usize, ports: &[&Port], unix: &[&str]| {
        let mut listens = String::new();
        for port in ports {
            listens.push_str(&format!("listen {}; ", port.address()));
        }
        for name in unix {
            listens.push_str(&format!("listen unix:%DIR%/{name}; "));
        }
        Setup::new("%MAIN% http { server { %LISTENS% location / { proxy_pass http://%U1%; } } }")
            .main(&format!("worker_processes {workers};"))
            .with("LISTENS", listens)
            .with("U1", origin.address())
    };
    let mut kp = with(2, &[&one, &two], &["first", "second"]).start();
    kp.wait_workers(2);
    let load = Mix::new(&one.address())
        .clients(Kind::Post, 6)
        .clients(Kind::Close, 8)
        .start();
    let steps: [(usize, &[&Port], &[&str], &Port); 4] = [
        (4, &[&one, &three], &["second", "third"], &one),
        (1, &[&three, &one, &two], &["first", "second"], &two),
        (3, &[&two], &["first"], &two),
        (2, &[&one, &two, &three], &[], &one),
    ];
    for (workers, ports, unix, next) in steps {
        load.wait_answers(100);
        let old = kp.master_pid();
        kp.configure(&with(workers, ports, unix));
        let said = kp.command(&["-s", "upgrade"]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        kp.follow();
        kp.wait_workers(workers);
        load.aim(&[&next.address()]);
        load.wait_of(Kind::Close, 60);
        // The last connections of the old master have their time to go.
        wait::until(SOON * 3, "the old master to end", || !process::alive(old));
        kp.wait_error(&format!("old master process {old} has ended"));
        for port in [&one, &two, &three] {
            let wanted = ports.iter().any(|one| one.number() == port.number());
            wait::until(SOON, "addresses as configured", || {
                process::listening(port.number()) == wanted
            });
        }
        for name in ["first", "second", "third"] {
            let wanted = unix.contains(&name);
            assert_eq!(kp.path(name).exists(), wanted, "{name}");
            assert!(!wanted || client::get_unix(kp.path(name)).contains("HTTP/1.1"));
        }
    }
    load.stop().assert_nothing_lost();
    assert!(origin.twice().is_empty(), "a POST was sent twice");
}

/// A configuration before the origin of a load.
fn proxying(origin: &LoadOrigin) -> Setup {
    Setup::new(
        "%MAIN% http { upstream u { server %U1%; keepalive 64; }
            server { listen %LISTEN%; listen unix:%DIR%/kp.listen; client_max_body_size 100m;
                keepalive_requests 100000; location / { proxy_pass http://u; }
                location /websocket { proxy_pass http://u; proxy_set_header Upgrade $http_upgrade;
                    proxy_set_header Connection upgrade; } } }",
    )
    .main("worker_processes 2;")
    .with("U1", origin.address())
}

#[test]
fn an_upgrade_loses_nothing() {
    let origin = LoadOrigin::start();
    let mut kp = proxying(&origin).start();
    kp.wait_workers(2);
    let load = Mix::full(&kp.address(), Some(&kp.path("kp.listen")))
        .clients(Kind::Tunnel, 0)
        .pause_max(SECOND * 4)
        .transfers(8 * 1024 * 1024, SECOND * 3)
        .start();
    for _ in 0..2 {
        load.wait_answers(400);
        let old = kp.master_pid();
        let said = kp.command(&["-s", "upgrade"]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        kp.follow();
        load.wait_answers(200);
        wait::until(SOON * 4, "the old master to end", || !process::alive(old));
    }
    load.wait_answers(400);
    load.stop().assert_nothing_lost();
    assert!(origin.twice().is_empty(), "a POST was sent twice");
}

#[test]
fn the_dance_by_hand_loses_nothing_forth_and_back() {
    let origin = LoadOrigin::start();
    let mut kp = proxying(&origin).daemon().start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 12)
        .clients(Kind::Close, 12)
        .clients(Kind::Tunnel, 1)
        .unix(&kp.path("kp.listen"), 2)
        .tunnels_may_end()
        .start();
    load.wait_answers(200);
    // Forth and back.
    let (old, new) = upgrade_by_hand(&kp);
    load.wait_answers(200);
    assert!(process::signal(old, Signal::SIGWINCH));
    load.wait_answers(300);
    assert!(process::signal(old, Signal::SIGHUP));
    wait::until(SOON, "workers of the old master", || {
        workers_of(old).len() == 2
    });
    load.wait_answers(200);
    assert!(process::signal(new, Signal::SIGQUIT));
    load.wait_answers(300);
    // Its tunnel would keep it for ever.
    wait::until(SOON * 3, "the requests of the new master to end", || {
        process::children(new).len() <= 1
    });
    process::signal(new, Signal::SIGTERM);
    wait_gone("the new master", new);
    // Forth for good, the old workers sent home first.
    let (old, new) = upgrade_by_hand(&kp);
    load.wait_answers(200);
    assert!(process::signal(old, Signal::SIGWINCH));
    load.wait_answers(300);
    assert!(process::signal(old, Signal::SIGQUIT));
    load.wait_answers(300);
    assert_eq!(kp.follow(), new);
    load.stop().assert_nothing_lost();
    wait_gone("the old master", old);
    assert!(origin.twice().is_empty(), "a POST was sent twice");
}

#[test]
fn the_pid_file_may_move() {
    let at = |name: &str| telling().main(&format!("pid {name};"));
    let mut kp = at("kp.pid").start();
    kp.wait_workers(2);
    let old = kp.master_pid();
    // The new binary has it elsewhere.
    kp.configure(&at("moved.pid"));
    kp.signal(Signal::SIGUSR2);
    let new = wait::until_some(SOON, "a new master in its pid file", || {
        kp.master_of("moved.pid")
    });
    kp.wait_error(&format!("new binary process {new} is serving"));
    assert_eq!(kp.text("kp.pid.oldbin"), format!("{old}\n"));
    assert!(!kp.path("kp.pid").exists());
    assert!(process::signal(new, Signal::SIGTERM));
    wait_gone("the new master", new);
    wait::until(SOON, "the pid file of before", || {
        kp.text("kp.pid") == format!("{old}\n") && !kp.path("kp.pid.oldbin").exists()
    });
    assert!(!kp.path("moved.pid").exists() && !kp.path("moved.ctl").exists());
    // A reload moves it, then it is upgraded from there, and back where the test looks for it.
    kp.reload();
    wait::until(SOON, "a moved pid file", || {
        kp.text("moved.pid") == format!("{old}\n")
    });
    let said = kp.command(&["-s", "upgrade"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    wait_gone("the old master", old);
    let new = kp.master_of("moved.pid").expect("a master");
    assert!(!kp.path("moved.pid.oldbin").exists());
    kp.configure(&at("kp.pid"));
    assert!(process::signal(new, Signal::SIGHUP));
    assert_eq!(kp.follow(), new);
    wait_answers_of(&kp, &[new]);
}

#[test]
fn without_a_running_master_an_upgrade_says_so() {
    let mut kp = telling().start();
    kp.wait_workers(2);
    let said = kp.command(&["-s", "upgrade", "-g", "nonsense on;"]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("nonsense"), "{}", said.stderr);
    kp.signal(Signal::SIGTERM);
    assert_eq!(kp.wait_exit(SOON), 0);
    let said = kp.command(&["-s", "upgrade"]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("kp.pid"), "{}", said.stderr);
}

#[test]
fn a_process_that_no_master_has_started_is_not_fooled() {
    let said = telling().environment("KP_UPGRADE", "1").check_start();
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.contains("KP_UPGRADE is set, but"),
        "{}",
        said.stderr
    );
}

#[test]
fn a_client_that_waits_is_told_when_the_master_is_stopped_meanwhile() {
    let mut kp = telling().copied().allow("exited on signal 9").start();
    kp.wait_workers(2);
    let old = kp.master_pid();
    kp.replace_program(&script("exec sleep 600"), 0o755);
    let said = std::thread::scope(|scope| {
        let asked = scope.spawn(|| kp.command(&["-s", "upgrade"]));
        let sleeper = wait::until_some(SOON, "a new process", || {
            let mut children = process::children(old);
            children.retain(|pid| process::title(*pid).contains("sleep"));
            children.first().copied()
        });
        assert!(process::signal(old, Signal::SIGQUIT));
        let said = asked.join().expect("an answer");
        process::signal(sleeper, Signal::SIGKILL);
        said
    });
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("told to stop"), "{}", said.stderr);
    assert_eq!(kp.wait_exit(SOON), 0);
}

#[test]
fn clients_that_were_connected_are_served_by_the_old_master() {
    let mut kp = telling().start();
    kp.wait_workers(2);
    let old = kp.master_pid();
    let mut kept: Vec<Client> = (0..8).map(|_| kp.client()).collect();
    let ask = |client: &mut Client| client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    for client in &mut kept {
        assert_eq!(ask(client).status(), 200);
    }
    assert_eq!(kp.command(&["-s", "upgrade"]).code, 0);
    for client in &mut kept {
        let answer = ask(client);
        assert_eq!(
            (answer.status(), answer.field("connection")),
            (200, Some("close"))
        );
    }
    assert_eq!(kp.wait_exit(SECOND * 15), 0, "nobody is waited for");
    assert!(!process::alive(old));
    kp.follow();
}

/// Short graces and other numbers of workers each time, forth twice and then forth and back.
#[test]
fn many_upgrades_in_a_row_lose_nothing() {
    let origin = LoadOrigin::start();
    let with = |workers: usize| {
        Setup::new(
            "%MAIN% http { upstream u { server %U1%; keepalive 64; }
                server { listen %LISTEN%; listen unix:%DIR%/kp.listen; keepalive_min_timeout 500ms;
                    keepalive_requests 100000; location / { proxy_pass http://u; } } }",
        )
        .main(&format!("worker_processes {workers};"))
        .with("U1", origin.address())
    };
    let mut kp = with(2).start();
    kp.wait_workers(2);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 8)
        .clients(Kind::Close, 16)
        .unix(&kp.path("kp.listen"), 4)
        .pace(Duration::from_millis(1))
        .wait_max(Duration::from_millis(3))
        .start();
    for (step, workers) in [4, 1, 3, 2, 5, 1, 2, 1, 4].into_iter().enumerate() {
        load.wait_answers(300);
        kp.configure(&with(workers));
        if step % 3 == 2 {
            let (_, new) = upgrade_by_hand(&kp);
            load.wait_answers(300);
            assert!(process::signal(new, Signal::SIGQUIT));
            load.wait_answers(100);
            kp.wait_error(&format!("new binary process {new} exited"));
        } else {
            let old = kp.master_pid();
            let said = kp.command(&["-s", "upgrade"]);
            assert_eq!(said.code, 0, "{}", said.stderr);
            kp.follow();
            load.wait_answers(300);
            kp.wait_error(&format!("old master process {old} has ended"));
        }
    }
    load.stop().assert_nothing_lost();
    assert!(origin.twice().is_empty(), "a POST was sent twice");
}

/// Connections wait at sockets that only the new master has, whose workers do not run; then it is told to leave.
#[test]
fn the_queues_of_a_master_that_leaves_are_served_and_take_nobody_new() {
    let with = |workers: usize| {
        Setup::new("%MAIN% http { server { listen %LISTEN%; return 200 \"$pid \"; } }")
            .main(&format!("worker_processes {workers};"))
    };
    let kp = with(1).start();
    kp.wait_workers(1);
    kp.configure(&with(4));
    let (old, new) = upgrade_by_hand(&kp);
    let of_new = workers_of(new);
    assert_eq!(of_new.len(), 4);
    for worker in &of_new {
        process::signal(*worker, Signal::SIGSTOP);
    }
    let ask = || {
        let mut client = kp.client();
        client.send("GET / HTTP/1.0\r\n\r\n");
        client
    };
    let mut queued: Vec<Client> = (0..40).map(|_| ask()).collect();
    assert!(process::signal(new, Signal::SIGQUIT));
    kp.wait_error(&format!("{new}#{new}: signal 3 (SIGQUIT) received"));
    // The sockets are given up in the same moment; until then a connection may still come to wait there.
    let served = |client: &mut Client, deadline: Instant| {
        client
            .try_response("GET", deadline.saturating_duration_since(Instant::now()))
            .is_ok_and(|answer| workers_of(old).contains(&first_number(&answer.text())))
    };
    let mut late = Vec::new();
    wait::until(
        SOON,
        "twenty newcomers in a row to find the old master",
        || {
            let mut newcomers: Vec<Client> = (0..20).map(|_| ask()).collect();
            // One second for all: each of many that wait there would take its own.
            let deadline = Instant::now() + SECOND;
            newcomers.retain_mut(|client| !served(client, deadline));
            let all = newcomers.is_empty();
            late.append(&mut newcomers);
            all
        },
    );
    for worker in &of_new {
        process::signal(*worker, Signal::SIGCONT);
    }
    for client in queued.iter_mut().chain(&mut late) {
        assert_eq!(client.response().status(), 200);
    }
    wait_gone("the new master", new);
}

/// The new binary has given an address up; its queue at the old master is served, and nobody comes in behind it.
#[test]
fn the_queue_of_an_address_that_the_new_binary_gave_up_is_served() {
    let gone = Port::take();
    let with = |listen: &str| {
        Setup::new("%MAIN% http { server { listen %LISTEN%; %SERVER% return 200 \"$pid \"; } }")
            .main("worker_processes 1;")
            .server(listen)
    };
    let mut kp = with(&format!("listen {};", gone.address())).start();
    kp.wait_workers(1);
    kp.configure(&with(""));
    let (old, new) = upgrade_by_hand(&kp);
    kp.wait_error(&format!(
        "{} is not served by the new binary",
        gone.address()
    ));
    let worker = workers_of(old)[0];
    process::signal(worker, Signal::SIGSTOP);
    let mut queued: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::connect(&gone.address());
            client.send("GET / HTTP/1.0\r\n\r\n");
            client
        })
        .collect();
    assert!(process::signal(old, Signal::SIGQUIT));
    kp.wait_error(&format!("{old}#{old}: signal 3 (SIGQUIT) received"));
    let address = gone.address().parse().expect("an address");
    wait::until(SOON, "the address to take nobody", || {
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(200));
        late.is_err()
    });
    process::signal(worker, Signal::SIGCONT);
    for client in &mut queued {
        assert_eq!(first_number(&client.response().text()), worker);
    }
    wait_gone("the old master", old);
    kp.follow();
    assert!(TcpStream::connect(address).is_err());
    assert!(workers_of(new).contains(&answering(&kp.address())));
}
