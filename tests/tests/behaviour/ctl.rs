//! `kp ctl`: what a running kp is asked and told on its control socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Setup};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A server that answers.
fn answering() -> Setup {
    Setup::new(
        "%MAIN% error_log %DIR%/error.log notice; http { %HTTP% server { listen %LISTEN%; %SERVER% location / { return 200 ok; } } }",
    )
}

/// What `kp ctl` says and how it ends.
struct Said {
    code: i32,
    stdout: String,
    stderr: String,
}

fn ctl(kp: &Kp, arguments: &[&str]) -> Said {
    let said = kp.command(&[&["ctl"], arguments].concat());
    Said {
        code: said.code,
        stdout: said.stdout,
        stderr: said.stderr,
    }
}

/// The answer in JSON.
fn json(kp: &Kp, arguments: &[&str]) -> Value {
    let said = ctl(kp, &[&["--json"], arguments].concat());
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (0, ""),
        "{}",
        said.stdout
    );
    serde_json::from_str(&said.stdout).expect("JSON")
}

/// Sends bytes to the control socket and reads the answer.
fn raw(kp: &Kp, bytes: &[u8]) -> String {
    let mut asker = UnixStream::connect(kp.path("kp.ctl")).expect("connecting");
    asker.set_read_timeout(Some(SOON)).expect("a time limit");
    // Who is refused early cannot send all of it.
    let _ = asker.write_all(bytes);
    let mut text = String::new();
    let _ = asker.read_to_string(&mut text);
    text
}

#[test]
fn the_level_of_every_error_log_is_changed_while_kp_runs() {
    let kp = answering()
        .main("worker_processes 2;")
        .server("error_log %DIR%/server.log error;")
        .start();
    kp.wait_workers(2);
    kp.get("/quiet");
    assert_eq!(json(&kp, &["log-level"])["in_force"], Value::Null);
    let now = json(&kp, &["log-level", "debug"]);
    assert_eq!(now["in_force"], "debug");
    assert_eq!(now["workers"], 2);
    assert_eq!(now["unanswered"], serde_json::json!([]));
    assert_eq!(now["configured"][0]["level"], "notice");
    // Such a line is written at level info only; a client that leaves in the middle of a head causes one.
    let mut client = kp.client();
    client.send(b"GET / HTTP/1.1\r\nHo");
    drop(client);
    wait::until(SOON, "a line of level info in the server's log", || {
        kp.text("server.log").contains("[info]")
    });
    let shown = ctl(&kp, &["log-level"]);
    assert_eq!(shown.code, 0);
    for part in ["every error log has level debug", "error.log", "notice"] {
        assert!(shown.stdout.contains(part), "{}", shown.stdout);
    }

    // A worker that is born later has it, too, and a reload does not end it.
    let before = kp.worker_pids();
    kp.reload();
    kp.wait_new_workers(&before);
    kp.wait_error("every error log keeps level debug");
    let length = kp.text("server.log").len();
    let mut client = kp.client();
    client.send(b"GET / HTTP/1.1\r\nHo");
    drop(client);
    wait::until(SOON, "a line of the new generation", || {
        kp.text("server.log")[length..].contains("[info]")
    });

    let reset = json(&kp, &["log-level", "reset"]);
    assert_eq!(reset["in_force"], Value::Null);
    let shown = ctl(&kp, &["log-level"]).stdout;
    assert!(
        shown.contains("every error log has its own level"),
        "{shown}"
    );
    let length = kp.text("server.log").len();
    let mut client = kp.client();
    client.send(b"GET / HTTP/1.1\r\nHo");
    drop(client);
    assert_eq!(kp.get("/after").status(), 200);
    assert_eq!(kp.get("/after").status(), 200);
    assert_eq!(kp.text("server.log").len(), length);
}

#[test]
fn a_worker_that_does_not_answer_is_named() {
    let kp = answering().main("worker_processes 2;").start();
    kp.wait_error("2 worker processes ready");
    let stuck = kp.worker_pids()[0];
    assert!(kp_tests::process::signal(stuck, Signal::SIGSTOP));
    let answer = json(&kp, &["log-level", "warn"]);
    let said = ctl(&kp, &["log-level", "warn"]);
    assert!(kp_tests::process::signal(stuck, Signal::SIGCONT));
    assert_eq!(answer["workers"], 1);
    assert_eq!(answer["unanswered"], serde_json::json!([stuck]));
    let named = format!("worker process {stuck} has not answered in 1 s\n");
    assert!(said.stdout.contains(&named), "{}", said.stdout);
    assert_eq!(json(&kp, &["log-level"])["in_force"], "warn");
}

#[test]
fn what_cannot_be_done_says_why_and_how_it_ends() {
    let mut kp = answering().start();
    for (arguments, code, part) in [
        (
            &["log-level", "wran"][..],
            1,
            "hint: did you mean \"warn\"?",
        ),
        (&["log-levle"], 2, "did you mean \"log-level\"?"),
        (&[], 2, "a command is missing"),
        (&["log-level", "a", "b"], 2, "usage: kp ctl log-level"),
        (&["--nothing"], 2, "invalid option: \"--nothing\""),
    ] {
        let said = ctl(&kp, arguments);
        assert_eq!((said.code, said.stdout.as_str()), (code, ""));
        assert!(said.stderr.contains(part), "{}", said.stderr);
    }
    let refused = ctl(&kp, &["--json", "log-level", "loud"]);
    assert_eq!((refused.code, refused.stderr.as_str()), (1, ""));
    let refusal: Value = serde_json::from_str(&refused.stdout).expect("JSON");
    assert_eq!(refusal["error"], "there is no level \"loud\"");
    let help = ctl(&kp, &["-h"]);
    assert!(help.code == 0 && help.stdout.contains("log-level [LEVEL|reset]"));

    let pid = kp.master_pid();
    kp.signal(Signal::SIGTERM);
    kp.wait_exit(SOON);
    let said = ctl(&kp, &["log-level"]);
    let status = kp.command(&["status"]);
    assert_eq!((said.code, said.stderr), (1, status.stderr), "of {pid}");
}

/// The master lives, and answers others, whatever is said to it.
#[test]
fn what_is_no_command_is_refused() {
    let kp = answering().start();
    let framed = |json: &str| format!("ctl {}\n{json}", json.len()).into_bytes();
    let deep = "[".repeat(100_000);
    let cases: [(Vec<u8>, &str); 12] = [
        (b"ctl\n".into(), "is followed by the length"),
        (b"ctl -5\n{}".into(), "is followed by the length"),
        (
            b"ctl 99999999999999999999999\n{}".into(),
            "is followed by the length",
        ),
        (b"ctl 2000000\n{}".into(), "at most 1048576 bytes"),
        (framed("{}"), "missing field `command`"),
        (framed("null"), "this is no command"),
        (framed("{\"command\":\"dance\"}"), "unknown variant `dance`"),
        (
            framed("{\"command\":\"log-level\",\"levle\":\"warn\"}"),
            "unknown field `levle`",
        ),
        (
            framed("{\"command\":\"log-level\",\"level\":7}"),
            "invalid type",
        ),
        (framed("{\"command\":\"log-level\""), "this is no command"),
        (framed(&deep), "this is no command"),
        (b"ctl 4\n\xff\xfe\x00\x1b".into(), "this is no command"),
    ];
    for (bytes, part) in cases {
        let answer = raw(&kp, &bytes);
        assert!(
            answer.starts_with("failed\n") && answer.contains(part),
            "{answer}"
        );
    }
    // Half a command, from as many as may ask at once, does not keep others from asking.
    let half: Vec<_> = (0..70)
        .map(|_| {
            let mut asker = UnixStream::connect(kp.path("kp.ctl")).expect("connecting");
            asker.write_all(b"ctl 1000\n{\"command\"").expect("asking");
            asker
        })
        .collect();
    assert_eq!(json(&kp, &["log-level"])["in_force"], Value::Null);
    drop(half);
    // A large one is taken as it comes.
    let large = format!("{{\"command\":\"log-level\"{}}}", " ".repeat(1_000_000));
    assert!(raw(&kp, &framed(&large)).starts_with("ok\n{"));
    // Who goes away before the answer is not missed.
    for _ in 0..100 {
        let mut asker = UnixStream::connect(kp.path("kp.ctl")).expect("connecting");
        let _ = asker.write_all(&framed("{\"command\":\"log-level\",\"level\":\"info\"}"));
    }
    wait::until(SOON, "the level", || {
        json(&kp, &["log-level"])["in_force"] == "info"
    });
    assert_eq!(kp.get("/").status(), 200);
}
