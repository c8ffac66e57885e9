//! Listening sockets that a service manager has opened (LISTEN_FDS), passed by a shell of the test's own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use kp_tests::kp::workers_of;
use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Port, Setup, client, process};
use nix::sys::signal::Signal;
use tempfile::TempDir;

/// The shell gets the sockets as its input and output, puts them where the convention wants them, and becomes kp.
fn launcher(count: usize) -> String {
    let places = ["3<&0", "4<&1", "5<&2"][..count].join(" ");
    format!(
        "exec {places} </dev/null >/dev/null 2>/dev/null
         export LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES=a:b:c
         exec \"$0\" \"$@\""
    )
}

fn duplicate(socket: &impl std::os::fd::AsFd) -> OwnedFd {
    socket
        .as_fd()
        .try_clone_to_owned()
        .expect("a second descriptor")
}

/// The service manager: it keeps what it has opened.
struct Manager {
    folder: TempDir,
    tcp: TcpListener,
    unix: UnixListener,
    /// In no `listen`.
    spare: TcpListener,
    ports: [Port; 2],
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        // Workers that gave up root's rights do not need to reach the path, clients of the test do.
        let unix = UnixListener::bind(folder.path().join("kp.listen")).expect("a socket");
        let ports = [Port::take(), Port::take()];
        let [tcp, spare] =
            [&ports[0], &ports[1]].map(|port| TcpListener::bind(port.address()).expect("a socket"));
        Self {
            folder,
            tcp,
            unix,
            spare,
            ports,
        }
    }

    fn setup(&self, workers: usize) -> Setup {
        Setup::new(
            "%MAIN% http { server { listen %A%; listen unix:%U%; listen %LISTEN%; %SERVER%
                location / { return 200 \"$pid \"; } } }",
        )
        .main(&format!("worker_processes {workers};"))
        .with("A", self.ports[0].address())
        .with("U", self.path())
    }

    fn path(&self) -> String {
        self.folder.path().join("kp.listen").display().to_string()
    }

    fn start(&self, setup: Setup) -> Kp {
        setup
            .under(&["sh", "-c", &launcher(3)])
            .stdin(duplicate(&self.tcp))
            .streams(duplicate(&self.unix), duplicate(&self.spare))
            .start()
    }

    fn ask_unix(&self) -> String {
        client::get_unix(self.path())
    }

    /// Waits until every worker of a master has answered at the passed address.
    fn wait_answers_of(&self, master: u32, count: usize) {
        let mut left = Vec::new();
        wait::until(SOON, "all workers", || {
            left = workers_of(master);
            left.len() == count
        });
        wait::until(SOON, "an answer of each worker", || {
            let text = client::get(&self.ports[0].address(), "/").text();
            left.retain(|pid| !text.starts_with(&format!("{pid} ")));
            left.is_empty()
        });
    }
}

#[test]
fn passed_sockets_are_served_and_left_as_they_were() {
    let manager = Manager::new();
    let mut kp = manager.start(manager.setup(3));
    manager.wait_answers_of(kp.master_pid(), 3);
    assert!(manager.ask_unix().contains("200 OK"));
    // Its own address beside them.
    assert_eq!(kp.get("/").status(), 200);
    let spare = manager.ports[1].address();
    kp.wait_error(&format!(
        "{spare}, passed by LISTEN_FDS, is in no \"listen\" directive: closed"
    ));

    // More workers, fewer, and another binary.
    for workers in [4, 2] {
        kp.configure(&manager.setup(workers));
        let said = kp.command(&["-s", "reload"]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        manager.wait_answers_of(kp.master_pid(), workers);
    }
    let old = kp.master_pid();
    let said = kp.command(&["-s", "upgrade"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let new = kp.follow();
    wait::until(SOON, "the old master to end", || !process::alive(old));
    manager.wait_answers_of(new, 2);
    assert!(manager.ask_unix().contains("200 OK"));
    let environment = std::fs::read(format!("/proc/{new}/environ")).unwrap_or_default();
    assert!(!String::from_utf8_lossy(&environment).contains("LISTEN_"));

    // After kp everything is the manager's again: the path, and whoever connects.
    kp.signal(Signal::SIGQUIT);
    wait::until(SOON, "kp to end", || !process::alive(new));
    let _tcp = TcpStream::connect(manager.ports[0].address()).expect("a queue");
    let _unix = UnixStream::connect(manager.path()).expect("a queue");
    manager.tcp.set_nonblocking(true).expect("a flag");
    wait::until(SOON, "the connection to be the manager's", || {
        manager.tcp.accept().is_ok()
    });
    manager.unix.set_nonblocking(true).expect("a flag");
    assert!(manager.unix.accept().is_ok());
}

#[test]
fn a_queue_of_before_is_served() {
    let manager = Manager::new();
    let mut early = TcpStream::connect(manager.ports[0].address()).expect("a queue");
    early.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sending");
    let _kp = manager.start(manager.setup(2));
    let mut text = String::new();
    early.read_to_string(&mut text).expect("an answer");
    assert!(text.contains("200 OK"), "{text}");
}

#[test]
fn sockets_for_another_process_are_not_touched() {
    let manager = Manager::new();
    let script = launcher(1).replace("LISTEN_PID=$$", "LISTEN_PID=1");
    let text = format!(
        "http {{ server {{ listen {}; return 200 one; }} }}",
        manager.ports[0].address()
    );
    let said = Setup::new(&text)
        .under(&["sh", "-c", &script])
        .stdin(duplicate(&manager.tcp))
        .check_start();
    assert_eq!(said.code, 1, "the address is another process's");
}

#[test]
fn one_socket_for_both_families_needs_to_be_asked_for() {
    let Ok(both) = TcpListener::bind("[::]:0") else {
        // A machine without IPv6 has no such sockets.
        return;
    };
    let port = both.local_addr().expect("an address").port();
    let start = |listen: &str| {
        Setup::new(&format!(
            "error_log stderr; http {{ access_log off; server {{ {listen} return 200 one; }} }}"
        ))
        .under(&[
            "sh",
            "-c",
            "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\"",
        ])
        .stdin(duplicate(&both))
    };
    let said = start(&format!("listen {port};")).check_start();
    assert_eq!(said.code, 1);
    assert!(
        said.stderr
            .contains(&format!("listen [::]:{port} ipv6only=off;")),
        "{}",
        said.stderr
    );
    let said = start(&format!("listen [::]:{port};")).check_start();
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("ipv6only=off"), "{}", said.stderr);
    let kp = start(&format!("listen [::]:{port} ipv6only=off;")).start();
    let answer = client::get(&format!("127.0.0.1:{port}"), "/");
    assert_eq!(answer.text(), "one");
    drop(kp);
}
