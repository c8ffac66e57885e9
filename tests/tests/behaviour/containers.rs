//! Life in a container: the meaning of SIGTERM, process 1, logs on the container's own streams, no root.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Origin, Setup};
use nix::sys::signal::Signal;

const SECOND: Duration = Duration::from_secs(1);

/// An origin that answers after that time.
fn late(after: Duration) -> Origin {
    Origin::start(move |conversation| {
        conversation.request()?;
        conversation.pause(after);
        conversation.send(response(200, b"late"))
    })
}

/// Shows: stop_signal
#[test]
fn sigterm_can_let_requests_finish() {
    for more in ["", "master_process off;"] {
        let origin = late(SECOND);
        let setup = Setup::base(&origin)
            .main("stop_signal graceful;")
            .main(more);
        let mut kp = if more.is_empty() {
            setup
        } else {
            setup.single()
        }
        .start();
        let mut busy = kp.client();
        busy.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        origin.wait_requests(1);
        kp.signal(Signal::SIGTERM);
        kp.wait_error("shutting down");
        assert_eq!(busy.response().text(), "late");
        assert_eq!(kp.wait_exit(SOON), 0);
    }
}

/// Shows: stop_signal
#[test]
fn what_ends_a_graceful_stop_at_once() {
    type End = fn(&mut kp_tests::Kp);
    let ends: [(&str, End); 3] = [
        ("a second SIGTERM", |kp| {
            kp.signal(Signal::SIGTERM);
            wait::until(SOON, "the stop to begin", || kp.worker_pids().is_empty());
            kp.signal(Signal::SIGTERM);
        }),
        ("SIGINT", |kp| kp.signal(Signal::SIGINT)),
        ("-s stop", |kp| {
            assert_eq!(kp.command(&["-s", "stop"]).code, 0);
        }),
    ];
    for (what, end) in ends {
        let origin = late(SECOND * 20);
        let mut kp = Setup::base(&origin).main("stop_signal graceful;").start();
        let mut busy = kp.client();
        busy.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        origin.wait_requests(1);
        end(&mut kp);
        let start = Instant::now();
        assert_eq!(kp.wait_exit(SOON), 0, "{what}");
        assert!(
            start.elapsed() <= SECOND * 10,
            "{what}: {:?}",
            start.elapsed()
        );
    }
}

/// Everything that is written to a stream until its last writer is gone.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn from(mut source: impl Read + Send + 'static) -> Self {
        let written = Self::default();
        let sink = written.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut piece) {
                sink.0.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        written
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// A stream to give to kp, and how to see what is written to it.
type Stream = (OwnedFd, Box<dyn Fn() -> String>);

type Make = fn() -> Stream;

fn pipe() -> Stream {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let written = Written::from(reader);
    (writer.into(), Box::new(move || written.text()))
}

fn socket() -> Stream {
    let (near, far) = UnixStream::pair().expect("a pair of sockets");
    let written = Written::from(near);
    (far.into(), Box::new(move || written.text()))
}

/// A file that nobody else may open, and that has no name any more.
fn file() -> Stream {
    let file = tempfile::tempfile().expect("a file");
    let mine = file.try_clone().expect("a second descriptor");
    let look = move || {
        let mut text = vec![0; 1 << 16];
        let count = mine.read_at(&mut text, 0).unwrap_or(0);
        String::from_utf8_lossy(&text[..count]).into_owned()
    };
    (file.into(), Box::new(look))
}

/// What makes a program run without root's rights.
pub(crate) fn as_nobody() -> Vec<&'static str> {
    if nix::unistd::geteuid().is_root() {
        let setpriv = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ];
        setpriv.to_vec()
    } else {
        Vec::new()
    }
}

/// Shows: access_log, error_log
#[test]
fn logs_go_to_the_streams_whatever_they_are_and_whoever_kp_is() {
    let kinds: [(&str, Make); 3] = [("pipe", pipe), ("socket", socket), ("file", file)];
    for (kind, make) in kinds {
        for under in [Vec::new(), as_nobody()] {
            let ((stdout, output), (stderr, errors)) = (make(), make());
            let what = format!("{kind} {under:?}");
            let kp = Setup::new(
                "error_log /dev/stderr notice; http { access_log /dev/stdout;
                 server { listen %LISTEN%; return 200 ok; } }",
            )
            .under(&under)
            .streams(stdout, stderr)
            .start();
            let line = |path: &str| {
                assert_eq!(kp.get(path).text(), "ok", "{what}");
                wait::until(SOON, &format!("{path} in the output, {what}"), || {
                    output().contains(&format!("GET {path} HTTP"))
                });
            };
            line("/first");
            assert_eq!(kp.command(&["-s", "reopen"]).code, 0, "{what}");
            line("/second");
            kp.reload();
            line("/third");
            wait::until(SOON, "word of the reload", || {
                errors().contains("reconfiguring")
            });
            drop(kp);
            wait::until(SOON, "the last word", || errors().ends_with(": exit\n"));
            let said = errors();
            assert!(
                !said.contains("[emerg]") && !said.contains("[alert]"),
                "{what}: {said}"
            );
            assert_eq!(output().lines().count(), 3, "{what}");
        }
    }
}

#[test]
fn links_to_the_streams_are_the_streams() {
    let ((stdout, output), (stderr, _errors)) = (socket(), socket());
    let folder = tempfile::tempdir().expect("a directory");
    let link = folder.path().join("access.log");
    std::os::unix::fs::symlink("/dev/stdout", &link).expect("a link");
    let kp = Setup::new("http { access_log %LINK%; server { listen %LISTEN%; return 200 ok; } }")
        .with("LINK", link.to_string_lossy())
        .streams(stdout, stderr)
        .start();
    kp.get("/linked");
    wait::until(SOON, "the line", || output().contains("GET /linked"));
}

#[test]
fn a_port_that_is_not_allowed_is_named_with_what_to_do() {
    let sysctl = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first: u16 = sysctl.expect("a limit").trim().parse().expect("a number");
    let text = "http { server { listen 127.0.0.1:81; } }";
    for start in [Setup::check, Setup::check_start] {
        let said = start(Setup::new(text).under(&as_nobody()));
        if first <= 81 && said.stderr.contains("successful") {
            // A container runtime may allow all ports; then this one is.
            continue;
        }
        assert_eq!(said.code, 1, "{}", said.stderr);
        for part in [
            "bind() to 127.0.0.1:81 failed (13: Permission denied)",
            "port 81 is below",
            "CAP_NET_BIND_SERVICE",
            "setcap",
        ] {
            assert!(said.stderr.contains(part), "{part} in {}", said.stderr);
        }
    }
}

/// A process that ends with code 7 when kp's standard input ends; kp becomes its parent without having started it.
const STEPCHILD: &str = "exec 3<&0; { cat <&3 >/dev/null; exit 7; } & exec \"$@\" 3<&- </dev/null";
/// The same as an orphan, which falls to process 1.
const ORPHAN: &str =
    "exec 3<&0; ( { cat <&3 >/dev/null; exit 7; } & ) ; exec \"$@\" 3<&- </dev/null";

/// Starts kp as process 1 where this machine lets us, else as what can be had everywhere: with a child of somebody else's.
/// Whether it is process 1.
fn first_process() -> (Setup, bool) {
    let setup = Setup::new("http { server { listen %LISTEN%; return 200 ok; } }");
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc"];
    let trial = std::process::Command::new("unshare")
        .args(&unshare[1..])
        .arg("true")
        .output();
    if trial.is_ok_and(|trial| trial.status.success()) {
        let setup = setup.below(&[&unshare[..], &["sh", "-c", ORPHAN, "sh"]].concat());
        (setup, true)
    } else {
        (setup.under(&["sh", "-c", STEPCHILD, "sh"]), false)
    }
}

#[test]
fn process_1_collects_children_of_others_and_stops_as_told() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let (setup, first) = first_process();
    let mut kp = setup.stdin(reader).allow("kp is process 1 here").start();
    assert_eq!(kp.get("/").text(), "ok");
    let workers = kp.worker_pids();
    let other = || kp.all_pids().into_iter().find(|pid| !workers.contains(pid));
    let orphan = wait::until_some(SOON, "the orphan", other);
    drop(writer);
    wait::until(SOON, "the orphan to be collected", || {
        !std::path::Path::new(&format!("/proc/{orphan}")).exists()
    });
    // As kp numbers it: inside of a namespace the number is another one.
    kp.wait_error("exited with code 7");
    let line = kp.error_log();
    let line = line
        .lines()
        .find(|line| line.contains("code 7"))
        .expect("a line");
    assert!(
        line.contains("[notice]") && line.contains("unknown process"),
        "{line}"
    );
    assert_eq!(kp.worker_pids(), workers);
    if first {
        // The end of the old master would be the end of the new one.
        let said = kp.command(&["-s", "upgrade"]);
        assert_eq!(said.code, 1, "{}", said.stderr);
        assert!(
            said.stderr.contains("kp is process 1 here"),
            "{}",
            said.stderr
        );
    }
    kp.reload();
    kp.signal(Signal::SIGQUIT);
    assert_eq!(kp.wait_exit(SOON), 0);
}
