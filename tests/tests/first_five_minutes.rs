//! The first five minutes with kp: a fresh clone, a normal user, and the commands that the README names.
//!
//! The clone does not build kp again, which would take minutes: `KP` names the binary that the other tests use, made
//! from the same files. All else happens in the clone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests panic to fail"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kp_tests::wait::{self, SOON};
use kp_tests::{Origin, Port, client, kp, process, source};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

const SECOND: Duration = Duration::from_secs(1);
/// Debian's `nobody` and `nogroup`.
const NOBODY: &str = "65534";

/// A fresh clone that belongs to a normal user.
struct Clone {
    directory: tempfile::TempDir,
    kp: PathBuf,
}

impl Clone {
    fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("kp-clone-")
            .tempdir()
            .expect("a directory");
        let path = directory.path().join("kp-src");
        let mut git = Command::new("git");
        git.args([
            "-c",
            "safe.directory=*",
            "clone",
            "--quiet",
            "--no-hardlinks",
        ]);
        done(git.arg(source::root()).arg(&path));
        let kp = directory.path().join("kp-binary");
        fs::copy(kp::binary(), &kp).expect("copying the binary");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))
            .expect("opening the directory");
        if nix::unistd::geteuid().is_root() {
            done(
                Command::new("chown")
                    .arg("-R")
                    .arg(format!("{NOBODY}:{NOBODY}"))
                    .arg(&path),
            );
        }
        Self { directory, kp }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("kp-src")
    }

    /// A command in the clone, run by a normal user.
    fn command(&self, program: &str) -> Command {
        let mut command = if nix::unistd::geteuid().is_root() {
            let mut command = Command::new(tool("setpriv"));
            let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
            command.args(user).args(["--clear-groups", program]);
            command
        } else {
            Command::new(program)
        };
        command
            .current_dir(self.path())
            .env("KP", &self.kp)
            .env("HOME", self.directory.path());
        command.env_remove("MAKEFLAGS").stdin(Stdio::null());
        command
    }

    fn make(&self, words: &[&str]) -> Output {
        self.command("make")
            .args(words)
            .output()
            .expect("running make")
    }

    /// The configuration that `make run` made.
    fn configuration(&self) -> PathBuf {
        self.path().join("target/run/kp.yaml")
    }
}

/// Where a program is.
fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("a path");
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(name));
    places
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("no {name} here"))
}

fn done(command: &mut Command) {
    let output = command.output().expect("running a command");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// `make run`, in a process group of its own as a terminal gives it one.
struct Running {
    child: Child,
    printed: PathBuf,
}

impl Running {
    fn start(clone: &Clone, port: u16) -> Self {
        let printed = clone.directory.path().join("printed");
        let file = fs::File::create(&printed).expect("a file");
        let mut command = clone.command("make");
        command
            .arg("run")
            .arg(format!("PORT={port}"))
            .process_group(0);
        command
            .stderr(file.try_clone().expect("a second handle"))
            .stdout(file);
        let mut running = Self {
            child: command.spawn().expect("running make"),
            printed,
        };
        wait::until(SOON, "kp to say that it serves", || {
            let ended = running.child.try_wait().expect("waiting for make");
            assert!(ended.is_none(), "make run ended: {}", running.text());
            running.text().contains("Ctrl-C stops all")
        });
        running
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.printed).unwrap_or_default()
    }

    fn group(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Names of the demo upstreams that answer that many requests.
fn answers(address: &str, count: usize) -> Vec<String> {
    let name = |_| {
        let answer = client::get(address, "/");
        assert_eq!(answer.status(), 200);
        let text = answer.text();
        assert!(
            text.contains("GET / HTTP/1.1"),
            "the request head it saw: {text}"
        );
        ["blue", "green"]
            .into_iter()
            .find(|name| text.contains(name))
            .expect("a name")
            .to_owned()
    };
    (0..count).map(name).collect()
}

fn edit(path: &Path, from: &str, to: &str) -> String {
    let before = fs::read_to_string(path).expect("the configuration");
    assert!(before.contains(from), "{before}");
    fs::write(path, before.replacen(from, to, 1)).expect("writing the configuration");
    before
}

#[test]
fn run_edit_break_repair_stop() {
    let clone = Clone::new();
    let ports = Port::take_row(3);
    let address = ports[0].address();
    let mut running = Running::start(&clone, ports[0].number());
    let printed = running.text();
    for part in [
        format!("curl -i http://{address}/"),
        "target/run/kp.yaml".to_owned(),
        "make reload".to_owned(),
        "target/run/logs/access.log".to_owned(),
    ] {
        assert!(printed.contains(&part), "{part} is not in {printed}");
    }

    let mut first = answers(&address, 2);
    first.sort();
    assert_eq!(first, ["blue", "green"]);
    let log = clone.path().join("target/run/logs/access.log");
    wait::until(SOON, "two lines in the access log", || {
        fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == 2)
    });

    edit(&clone.configuration(), "weight=1", "weight=3");
    let start = Instant::now();
    let reload = clone.make(&["reload"]);
    assert!(reload.status.success(), "{}", said(&reload));
    assert!(start.elapsed() <= SECOND * 10, "{:?}", start.elapsed());
    assert!(
        said(&reload).contains("generation") && said(&reload).contains("ready"),
        "{}",
        said(&reload)
    );
    let obeyed = answers(&address, 8);
    assert_eq!(
        obeyed.iter().filter(|name| *name == "blue").count(),
        6,
        "{obeyed:?}"
    );

    break_and_repair(&clone, &address);

    let start = Instant::now();
    killpg(running.group(), Signal::SIGINT).expect("a signal as Ctrl-C sends it");
    running.child.wait().expect("waiting for make");
    assert!(start.elapsed() <= SECOND * 10, "{:?}", start.elapsed());
    wait::until(SOON, "every listener to be gone", || {
        ports.iter().all(|port| !process::listening(port.number()))
    });
    assert!(killpg(running.group(), None).is_err(), "a process is left");
}

fn break_and_repair(clone: &Clone, address: &str) {
    let taken = Origin::ok();
    let taken_listen = format!("- listen: {}\n    - listen: 127.0.0.1:", taken.address());
    let breaks = [
        (
            "YAML syntax",
            "worker_processes: auto",
            "worker_processes: [auto",
        ),
        (
            "an unknown directive",
            "server_name: localhost",
            "server_nam: localhost",
        ),
        (
            "an unknown upstream",
            "proxy_pass: http://demo",
            "proxy_pass: http://dem",
        ),
        ("a port in use", "- listen: 127.0.0.1:", &taken_listen),
    ];
    for (what, from, to) in breaks {
        let before = edit(&clone.configuration(), from, to);
        let reload = clone.make(&["reload"]);
        let text = said(&reload);
        assert!(!reload.status.success(), "{what} is accepted: {text}");
        let place = text.split("kp.yaml:").nth(1).unwrap_or_default();
        let mut numbers = place.split([':', '\n', ' ']);
        let is_number = |word: Option<&str>| word.is_some_and(|word| word.parse::<u32>().is_ok());
        assert!(
            is_number(numbers.next()) && is_number(numbers.next()),
            "{what}: no line and column: {text}"
        );
        assert!(text.contains('^'), "{what}: no caret: {text}");
        assert!(text.contains("hint:"), "{what}: no hint: {text}");
        assert_eq!(client::get(address, "/").status(), 200, "{what}");
        fs::write(clone.configuration(), before).expect("repairing the configuration");
    }
    let reload = clone.make(&["reload"]);
    assert!(reload.status.success(), "{}", said(&reload));
}

#[test]
fn a_busy_port_is_named() {
    let clone = Clone::new();
    let busy = Origin::ok();
    let output = clone.make(&["run", &format!("PORT={}", busy.port())]);
    assert!(!output.status.success());
    let text = said(&output);
    assert!(
        text.contains(&busy.port().to_string()) && text.contains("make run PORT="),
        "{text}"
    );
}

#[test]
fn missing_tools_are_named() {
    let clone = Clone::new();
    // A machine with a shell and nothing else.
    let tools = clone.directory.path().join("tools");
    fs::create_dir(&tools).expect("a directory");
    for name in ["sh", "id"] {
        symlink(tool(name), tools.join(name)).expect("a link");
    }
    let shell = |script: &[&str]| {
        let shell = clone
            .command("/bin/sh")
            .args(script)
            .env("PATH", &tools)
            .env_remove("CARGO")
            .output();
        shell.expect("running a script")
    };
    let need = shell(&["scripts/need", "cargo", "cc"]);
    assert_eq!(need.status.code(), Some(1));
    assert!(
        said(&need).contains("rustup.rs") && said(&need).contains("apt-get install gcc"),
        "{}",
        said(&need)
    );
    let packages = shell(&["scripts/test-packages"]);
    assert_eq!(packages.status.code(), Some(1));
    assert!(
        said(&packages).contains("sudo apt-get install -y git"),
        "{}",
        said(&packages)
    );
}
