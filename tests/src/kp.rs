//! kp as a child process: a configuration in a directory of its own, a master, its workers and its logs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::client;
use crate::message::Response;
use crate::origin::Origin;
use crate::port::Port;
use crate::process;
use crate::wait::{self, SOON};

/// The configuration most cases start from: one worker, one upstream, one server. `%NAME%` are places to fill.
const BASE: &str = "%MAIN%
http {
    %HTTP%
    upstream u { server %U1%; keepalive 8; %UPSTREAM% }
    server {
        listen %LISTEN%;
        %SERVER%
        location / { proxy_pass http://u; %LOCATION% }
    }
}
";

const PLACES: [&str; 5] = ["MAIN", "HTTP", "UPSTREAM", "SERVER", "LOCATION"];

/// The copy of the binary in a test's directory.
const PROGRAM: &str = "program";

/// A configuration about to be started or checked.
#[derive(Debug)]
pub struct Setup {
    text: String,
    yaml: bool,
    fills: Vec<(String, String)>,
    files: Vec<(String, Vec<u8>)>,
    arguments: Vec<String>,
    allowed: Vec<String>,
    bare: bool,
    single: bool,
    own_user: bool,
    under: Vec<String>,
    nested: bool,
    environment: Vec<(String, String)>,
    stdin: Option<Stdio>,
    streams: Option<(Stdio, Stdio)>,
    copied: bool,
    daemon: bool,
}

impl Setup {
    /// A configuration in nginx's syntax. `%LISTEN%` stands for kp's own address; further places are filled by
    /// [`Setup::with`]. What the text does not say gets values that suit a test: foreground, one worker, pid file and
    /// logs in the test's directory.
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            yaml: false,
            fills: Vec::new(),
            files: Vec::new(),
            arguments: Vec::new(),
            allowed: Vec::new(),
            bare: false,
            single: false,
            own_user: false,
            under: Vec::new(),
            nested: false,
            environment: Vec::new(),
            stdin: None,
            streams: None,
            copied: false,
            daemon: false,
        }
    }

    /// A configuration in YAML, taken as it is apart from the places.
    pub fn yaml(text: &str) -> Self {
        Self {
            yaml: true,
            bare: true,
            ..Self::new(text)
        }
    }

    /// The base configuration, its upstream `u` being this origin.
    pub fn base(origin: &Origin) -> Self {
        Self::new(BASE).with("U1", origin.address())
    }

    /// Fills a place; several texts for the same place follow each other.
    pub fn with(mut self, place: &str, text: impl Into<String>) -> Self {
        let text = text.into();
        match self.fills.iter_mut().find(|(known, _)| known == place) {
            Some((_, known)) => {
                known.push(' ');
                known.push_str(&text);
            }
            None => self.fills.push((place.to_owned(), text)),
        }
        self
    }

    /// Adds directives at the top level of the base configuration.
    pub fn main(self, text: &str) -> Self {
        self.with("MAIN", text)
    }

    /// Adds directives to its `http`.
    pub fn http(self, text: &str) -> Self {
        self.with("HTTP", text)
    }

    /// Adds directives to its upstream.
    pub fn upstream(self, text: &str) -> Self {
        self.with("UPSTREAM", text)
    }

    /// Adds directives to its server.
    pub fn server(self, text: &str) -> Self {
        self.with("SERVER", text)
    }

    /// Adds directives to its `location /`.
    pub fn location(self, text: &str) -> Self {
        self.with("LOCATION", text)
    }

    /// Puts a file beside the configuration.
    pub fn file(mut self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), content.into()));
        self
    }

    /// Adds a command line argument.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Takes the text as it is, without the values that suit a test.
    pub fn exactly(mut self) -> Self {
        self.bare = true;
        self
    }

    /// The configuration has no workers (`master_process off`).
    pub fn single(mut self) -> Self {
        self.single = true;
        self
    }

    /// The configuration says itself which user workers run as.
    pub fn as_root_of_its_own(mut self) -> Self {
        self.own_user = true;
        self
    }

    /// Puts a program in front of kp's command line, which becomes kp in the end (`setpriv`, `sh -c 'exec "$@"'`).
    pub fn under(mut self, program: &[&str]) -> Self {
        self.under = program.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// The same with a program that starts kp as its one child and waits for it (`unshare --fork`).
    pub fn below(mut self, program: &[&str]) -> Self {
        self.nested = true;
        self.under(program)
    }

    /// Starts kp with a variable in its environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts kp with this standard input instead of none.
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = Some(stdin.into());
        self
    }

    /// Starts kp with these streams instead of files of its directory as standard output and error.
    pub fn streams(mut self, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Self {
        self.streams = Some((stdout.into(), stderr.into()));
        self
    }

    /// Runs a copy of the binary, `program` in the test's directory, which [`Kp::replace_program`] may replace.
    pub fn copied(mut self) -> Self {
        self.copied = true;
        self
    }

    /// `daemon on`: the process that is started ends when kp runs.
    pub fn daemon(mut self) -> Self {
        self.daemon = true;
        self.main("daemon on;")
    }

    /// Expects error log lines at `alert` or above that hold this text.
    pub fn allow(mut self, text: &str) -> Self {
        self.allowed.push(text.to_owned());
        self
    }

    /// Starts kp and waits until it serves.
    pub fn start(self) -> Kp {
        Kp::launch(self)
    }

    /// Runs `kp -t` on the configuration.
    pub fn check(self) -> Checked {
        self.argument("-t").check_start()
    }

    /// Runs kp on a configuration that it is expected to end with.
    pub fn check_start(self) -> Checked {
        let files = Files::write(&self);
        let mut command = files.command_under(&self.under, &binary());
        command.args(&self.arguments).envs(self.environment);
        if let Some(stdin) = self.stdin {
            command.stdin(stdin);
        }
        let output = command.output().expect("running kp");
        Checked::new(&output)
    }

    fn text(&self, directory: &Path, listen: &str) -> String {
        let mut text = self.text.clone();
        for (place, fill) in &self.fills {
            text = text.replace(&format!("%{place}%"), fill);
        }
        for place in PLACES {
            text = text.replace(&format!("%{place}%"), "");
        }
        text = text
            .replace("%LISTEN%", listen)
            .replace("%DIR%", &directory.to_string_lossy());
        if self.bare {
            text
        } else {
            suited(&text, self.own_user)
        }
    }
}

/// Adds what a test needs and the text does not say, on the text's own lines, so that line numbers stay true.
fn suited(text: &str, own_user: bool) -> String {
    let says = |name: &str| {
        text.split(|c: char| c.is_whitespace() || matches!(c, ';' | '{' | '}'))
            .any(|word| word == name)
    };
    let mut front = String::new();
    for (name, line) in [
        ("daemon", "daemon off;"),
        ("worker_processes", "worker_processes 1;"),
        ("pid", "pid kp.pid;"),
        ("error_log", "error_log error.log info;"),
        ("events", "events { worker_connections 1024; }"),
    ] {
        if !says(name) {
            front.push_str(line);
            front.push(' ');
        }
    }
    // Another server of nginx's language may stand in for kp (KP_BIN), which may need words of its own.
    if !own_user {
        front.push_str(&std::env::var("KP_TEST_MAIN").unwrap_or_default());
    }
    let mut http = String::new();
    for (name, line) in [
        ("access_log", "access_log access.log;"),
        ("client_body_temp_path", "client_body_temp_path body_temp;"),
        ("proxy_temp_path", "proxy_temp_path proxy_temp;"),
    ] {
        if !says(name) {
            http.push_str(line);
            http.push(' ');
        }
    }
    format!(
        "{front}{}",
        text.replacen("http {", &format!("http {{ {http}"), 1)
    )
}

/// The directory of one kp, with its configuration.
#[derive(Debug)]
struct Files {
    directory: TempDir,
    name: &'static str,
    port: Port,
}

impl Files {
    fn write(setup: &Setup) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("kp-test-")
            .tempdir()
            .expect("a directory");
        open_to_workers(directory.path());
        let name = if setup.yaml { "kp.yaml" } else { "kp.conf" };
        let files = Self {
            directory,
            name,
            port: Port::take(),
        };
        for (name, content) in &setup.files {
            let path = files.path(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).expect("making a directory");
            }
            fs::write(path, content).expect("writing a file of the test");
        }
        files.configure(setup);
        files
    }

    fn configure(&self, setup: &Setup) {
        let text = setup.text(self.directory.path(), &self.port.address());
        fs::write(self.path(self.name), text).expect("writing the configuration");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self) -> Command {
        self.command_under(&[], &binary())
    }

    fn command_under(&self, words: &[String], kp: &Path) -> Command {
        let mut command = match words.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(kp);
                command
            }
            None => Command::new(kp),
        };
        command
            .arg("-p")
            .arg(format!("{}/", self.directory.path().display()))
            .arg("-c")
            .arg(self.name);
        command.stdin(Stdio::null());
        command
    }
}

/// Starts a program. While another test of this process forks, its child holds the descriptor that a copy was just written
/// by, and a program that is open for writing cannot be started.
fn spawn(command: &mut Command) -> Child {
    wait::until_some(SOON, "a program that nobody writes", || {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => None,
            started => Some(started.expect("starting kp")),
        }
    })
}

/// Workers of a master that runs as root give up its rights; they must still reach the test's files.
pub fn open_to_workers(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
        .expect("opening the directory to workers");
}

/// The kp binary: `KP_BIN`, else what `make build` left in the target directory of these tests.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("KP_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("the path of the running test");
    let target = test.ancestors().nth(3).expect("target/PROFILE/deps/TEST");
    let path = target.join("quick/kp");
    assert!(
        path.is_file(),
        "{} is missing: run `make build` first (make test does), or set KP_BIN",
        path.display()
    );
    path
}

/// What a run of the command line printed.
#[derive(Debug)]
pub struct Checked {
    /// Exit code, -1 when it was killed.
    pub code: i32,
    /// Standard error.
    pub stderr: String,
    /// Standard output.
    pub stdout: String,
}

impl Checked {
    fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            stderr: text(&output.stderr),
            stdout: text(&output.stdout),
        }
    }
}

/// A running kp. Dropping it stops it and fails the test if its error log holds an unexpected alert.
#[derive(Debug)]
pub struct Kp {
    files: Files,
    child: Child,
    /// The master is the child of `child`.
    nested: bool,
    /// The master, where it is neither: a daemon, or what an upgrade has started.
    master: Option<u32>,
    allowed: Vec<String>,
    exited: Option<ExitStatus>,
}

impl Kp {
    /// Starts kp on a configuration in nginx's syntax.
    pub fn start(text: &str) -> Self {
        Setup::new(text).start()
    }

    /// Starts kp on the base configuration.
    pub fn base(origin: &Origin) -> Self {
        Setup::base(origin).start()
    }

    fn launch(setup: Setup) -> Self {
        let files = Files::write(&setup);
        let (stdout, stderr) = setup.streams.unwrap_or_else(|| {
            let stderr = fs::File::create(files.path("stderr")).expect("a file for standard error");
            let stdout =
                fs::File::create(files.path("stdout")).expect("a file for standard output");
            (stdout.into(), stderr.into())
        });
        let program = if setup.copied {
            let copy = files.path(PROGRAM);
            fs::copy(binary(), &copy).expect("copying the binary");
            copy
        } else {
            binary()
        };
        let mut command = files.command_under(&setup.under, &program);
        command.args(&setup.arguments).stdout(stdout).stderr(stderr);
        command.envs(setup.environment);
        if let Some(stdin) = setup.stdin {
            command.stdin(stdin);
        }
        let child = spawn(&mut command);
        // With the command its copies of the streams go, so that a reader sees their end when kp has ended.
        drop(command);
        let mut kp = Self {
            files,
            child,
            nested: setup.nested,
            master: None,
            allowed: setup.allowed,
            exited: None,
        };
        if setup.daemon {
            assert_eq!(kp.wait_exit(SOON), 0, "{}", kp.text("stderr"));
            kp.follow();
        }
        kp.wait_ready(setup.single);
        kp
    }

    /// Ready is: the pid file is there and every worker has its title. The pid file comes after listen(), so a client
    /// that connects now is served.
    fn wait_ready(&mut self, single: bool) {
        let start = std::time::Instant::now();
        loop {
            if fs::read_to_string(self.path("kp.pid")).is_ok_and(|text| text.ends_with('\n'))
                && (single || !self.worker_pids().is_empty())
            {
                return;
            }
            if self.master.is_none()
                && let Some(status) = self.child.try_wait().expect("waiting for kp")
            {
                panic!(
                    "kp ended with {status} at start: {}\n{}",
                    self.text("stderr"),
                    self.error_log()
                );
            }
            assert!(
                start.elapsed() < SOON,
                "kp is not ready in time: {}",
                self.text("stderr")
            );
            wait::pause(Duration::from_millis(2));
        }
    }

    /// `127.0.0.1:PORT`, what `%LISTEN%` stands for.
    pub fn address(&self) -> String {
        self.files.port.address()
    }

    /// The port of `%LISTEN%`.
    pub fn port(&self) -> u16 {
        self.files.port.number()
    }

    /// A file of its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    /// The text of a file of its directory, empty when there is none.
    pub fn text(&self, name: &str) -> String {
        fs::read(self.path(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The error log so far.
    pub fn error_log(&self) -> String {
        self.text("error.log")
    }

    /// The lines of the access log, once there are `count`.
    pub fn access_lines(&self, count: usize) -> Vec<String> {
        self.lines("access.log", count)
    }

    /// The lines of a log, once there are `count`.
    pub fn lines(&self, name: &str, count: usize) -> Vec<String> {
        let complete = || {
            let text = self.text(name);
            (text.matches('\n').count() >= count).then_some(text)
        };
        let text = wait::until_some(SOON, &format!("{count} lines in {name}"), complete);
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for a text in the error log.
    pub fn wait_error(&self, text: &str) {
        wait::until(SOON, &format!("{text:?} in the error log"), || {
            self.error_log().contains(text)
        });
    }

    /// The master.
    pub fn master_pid(&self) -> u32 {
        if let Some(master) = self.master {
            master
        } else if self.nested {
            let children = process::children(self.child.id());
            children.first().copied().unwrap_or(self.child.id())
        } else {
            self.child.id()
        }
    }

    /// The master that a pid file of its directory names, if it lives.
    pub fn master_of(&self, name: &str) -> Option<u32> {
        let pid = self.text(name).trim().parse().ok()?;
        process::alive(pid).then_some(pid)
    }

    /// From now on the master is the one that the pid file names.
    pub fn follow(&mut self) -> u32 {
        let pid = wait::until_some(SOON, "a living master in the pid file", || {
            self.master_of("kp.pid")
        });
        self.master = Some(pid);
        pid
    }

    /// Puts another program in the place of the one that runs.
    pub fn replace_program(&self, content: &[u8], mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        let next = self.path("program.next");
        fs::write(&next, content).expect("writing a program");
        fs::set_permissions(&next, fs::Permissions::from_mode(mode)).expect("changing a mode");
        fs::rename(next, self.path(PROGRAM)).expect("replacing a program");
    }

    /// The workers that are not shutting down.
    pub fn worker_pids(&self) -> Vec<u32> {
        workers_of(self.master_pid())
    }

    /// Waits until that many workers serve.
    pub fn wait_workers(&self, count: usize) {
        wait::until(SOON, &format!("{count} workers"), || {
            self.worker_pids().len() == count
        });
    }

    /// The workers that finish what they have begun.
    pub fn draining_pids(&self) -> Vec<u32> {
        let mut pids = self.all_pids();
        pids.retain(|pid| process::title(*pid).contains("shutting down"));
        pids
    }

    /// Waits until every worker of an older generation is gone.
    pub fn wait_drained(&self, limit: Duration) {
        wait::until(limit, "the older generations to leave", || {
            self.all_pids().len() == self.worker_pids().len()
        });
    }

    /// Kills the master without a word, and starts another one on the same files at once.
    pub fn kill_and_start_again(&mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().expect("waiting for kp");
        self.start_again();
    }

    /// Starts another master on the same files, the first one being gone.
    pub fn start_again(&mut self) {
        self.exited = None;
        let open = |name| {
            let log = fs::File::options().append(true).open(self.path(name));
            log.expect("a file for standard output or error")
        };
        let mut command = self.files.command();
        command.stdout(open("stdout")).stderr(open("stderr"));
        self.child = command.spawn().expect("starting kp");
        let pid = self.child.id();
        wait::until(SOON, "the pid file of the next master", || {
            if let Some(status) = self.child.try_wait().expect("waiting for kp") {
                panic!(
                    "kp ended with {status} at its next start: {}",
                    self.text("stderr")
                );
            }
            self.text("kp.pid") == format!("{pid}\n")
        });
    }

    /// All children of the master.
    pub fn all_pids(&self) -> Vec<u32> {
        process::children(self.master_pid())
    }

    /// The one worker; fails the test when there are more or fewer.
    pub fn worker_pid(&self) -> u32 {
        let pids = self.worker_pids();
        assert_eq!(pids.len(), 1, "workers: {pids:?}");
        pids[0]
    }

    /// Stops the one worker (SIGSTOP) once it serves: one that never said so would be taken for a failed start. Returns it.
    pub fn stop_worker(&self) -> u32 {
        self.wait_error("is serving");
        let worker = self.worker_pid();
        assert!(process::signal(worker, Signal::SIGSTOP), "it is gone");
        worker
    }

    /// Sends a signal to the master.
    pub fn signal(&self, signal: Signal) {
        assert!(process::signal(self.master_pid(), signal), "kp is gone");
    }

    /// Runs kp's command line on the same directory and configuration.
    pub fn command(&self, arguments: &[&str]) -> Checked {
        let output = self
            .files
            .command()
            .args(arguments)
            .output()
            .expect("running kp");
        Checked::new(&output)
    }

    /// Replaces the configuration file. What it does not say is added as at the start.
    pub fn configure(&self, setup: &Setup) {
        self.files.configure(setup);
    }

    /// HUP, and waits until every worker of before is gone or shutting down and new ones are there.
    pub fn reload(&self) {
        let before = self.worker_pids();
        self.signal(Signal::SIGHUP);
        self.wait_new_workers(&before);
    }

    /// Waits until workers serve of which none is in `before`.
    pub fn wait_new_workers(&self, before: &[u32]) {
        wait::until(SOON, "a new generation of workers", || {
            let now = self.worker_pids();
            !now.is_empty() && now.iter().all(|pid| !before.contains(pid))
        });
    }

    /// GET on a connection of its own.
    pub fn get(&self, path: &str) -> Response {
        client::get(&self.address(), path)
    }

    /// A client connection.
    pub fn client(&self) -> client::Client {
        client::Client::connect(&self.address())
    }

    /// Waits for the master to exit; its exit code.
    pub fn wait_exit(&mut self, limit: Duration) -> i32 {
        let mut status = self.exited;
        wait::until(limit, "kp to exit", || {
            status = status.or_else(|| self.child.try_wait().expect("waiting for kp"));
            status.is_some()
        });
        self.exited = status;
        status.and_then(|status| status.code()).unwrap_or(-1)
    }

    /// Every master that may still run: what was started, and what an upgrade has left under either name.
    fn masters(&self) -> Vec<u32> {
        let mut pids = vec![self.master_pid()];
        if self.exited.is_none() {
            pids.push(self.child.id());
        }
        let named = ["kp.pid", "kp.pid.oldbin"];
        let named = named.iter().filter_map(|name| self.master_of(name));
        let directory = self.path("").to_string_lossy().into_owned();
        // A number that is another process's by now is left alone.
        pids.extend(named.filter(|pid| process::title(*pid).contains(&directory)));
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    fn stop(&mut self, masters: &[u32]) {
        // Who is killed leaves workers behind that complain: a busy machine has its time.
        for (signal, limit_s) in [
            (Signal::SIGQUIT, 3),
            (Signal::SIGTERM, 15),
            (Signal::SIGKILL, 3),
        ] {
            let living = |pid: &&u32| process::alive(**pid);
            if self.nested {
                process::signal(self.master_pid(), signal);
            } else {
                for pid in masters.iter().filter(living) {
                    process::signal(*pid, signal);
                }
            }
            let child = &mut self.child;
            let exited = &mut self.exited;
            let ended = wait::happens(Duration::from_secs(limit_s), || {
                *exited = exited.or_else(|| child.try_wait().ok().flatten());
                exited.is_some() && !masters.iter().any(|pid| process::alive(*pid))
            });
            if ended {
                return;
            }
        }
    }
}

/// Its workers that are not shutting down.
pub fn workers_of(master: u32) -> Vec<u32> {
    let serving = |pid: &u32| {
        let title = process::title(*pid);
        title.contains("worker process") && !title.contains("shutting down")
    };
    process::children(master)
        .into_iter()
        .filter(serving)
        .collect()
}

impl Drop for Kp {
    fn drop(&mut self) {
        // Workers that outlive a killed master would hold the test's ports.
        let masters = self.masters();
        let workers: Vec<u32> = masters
            .iter()
            .flat_map(|master| process::children(*master))
            .filter(|pid| !masters.contains(pid))
            .collect();
        self.stop(&masters);
        for pid in workers {
            if !wait::happens(Duration::from_secs(2), || !process::alive(pid)) {
                process::signal(pid, Signal::SIGKILL);
            }
        }
        let log = self.error_log();
        if std::thread::panicking() {
            let tail: Vec<&str> = log.lines().rev().take(30).collect();
            eprintln!(
                "--- end of error.log, newest first\n{}\n--- stderr\n{}",
                tail.join("\n"),
                self.text("stderr")
            );
            return;
        }
        let serious = |line: &&str| {
            ["[alert]", "[emerg]", "panicked"]
                .iter()
                .any(|mark| line.contains(mark))
                && !self
                    .allowed
                    .iter()
                    .any(|allowed| line.contains(allowed.as_str()))
        };
        let found: Vec<&str> = log.lines().filter(serious).collect();
        assert!(found.is_empty(), "unexpected in the error log: {found:#?}");
        assert_eq!(
            self.text("stdout"),
            "",
            "a server never writes to standard output"
        );
    }
}
