//! What is installed beside the binary: scripts, units, manual pages, and the actions of the init script.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests panic to fail"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kp_tests::wait::{self, SOON};
use kp_tests::{Port, client, kp, process, source};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Runs it; what it said if it could be run at all.
fn run(command: &mut Command) -> Option<Output> {
    command.output().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_success(output: &Output, what: &str) {
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what}: {said}{complained}");
}

/// The project's scripts, each with its interpreter.
fn scripts() -> Vec<(PathBuf, String)> {
    let shell = |path: PathBuf| {
        let line = source::read(&path).lines().next()?.to_owned();
        let interpreter = line.strip_prefix("#!")?.trim().to_owned();
        interpreter.ends_with("sh").then_some((path, interpreter))
    };
    source::files().into_iter().filter_map(shell).collect()
}

#[test]
fn scripts_are_clean() {
    let scripts = scripts();
    let posix = |path: &str| {
        scripts
            .iter()
            .any(|(known, shell)| known == Path::new(path) && shell == "/bin/sh")
    };
    for path in [
        "etc/init.d/kp",
        "etc/debian/postinst",
        "etc/debian/prerm",
        "etc/debian/postrm",
        "scripts/install",
    ] {
        assert!(posix(path), "{path} is a script for any shell");
    }
    for (path, shell) in &scripts {
        let shell = if shell.ends_with("bash") {
            "bash"
        } else {
            "sh"
        };
        let file = source::root().join(path);
        let parsed = run(Command::new(shell).arg("-n").arg(&file)).expect("a shell");
        assert_success(&parsed, &path.display().to_string());
        if let Some(checked) = run(Command::new("shellcheck")
            .args(["-S", "warning"])
            .arg(&file))
        {
            assert_success(&checked, &path.display().to_string());
        }
    }
}

/// Everything that `make install-files` makes below a directory.
fn installed() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let made = run(Command::new("make")
        .args(["--silent", "install-files", "PREFIX=/opt/kp"])
        .arg(format!("DESTDIR={}", directory.path().display()))
        .arg(format!("BIN={}", kp::binary().display()))
        .current_dir(source::root()))
    .expect("make");
    assert_success(&made, "make install-files");
    directory
}

#[test]
fn an_installation_has_everything_in_its_place() {
    let directory = installed();
    for (path, mode) in [
        ("opt/kp/sbin/kp", 0o755),
        ("opt/kp/share/man/man8/kp.8", 0o644),
        ("opt/kp/share/man/man8/kp-ctl.8", 0o644),
        ("opt/kp/share/bash-completion/completions/kp", 0o644),
        ("opt/kp/share/zsh/site-functions/_kp", 0o644),
        ("opt/kp/share/fish/vendor_completions.d/kp.fish", 0o644),
        ("opt/kp/share/man/man5/kp.yaml.5", 0o644),
        ("opt/kp/share/man/man5/kp.conf.5", 0o644),
        ("opt/kp/share/doc/kp/examples/container.yaml", 0o644),
        ("opt/kp/share/doc/kp/examples/grafana-kp.json", 0o644),
        ("opt/kp/share/doc/kp/examples/kp-rules.yml", 0o644),
        ("opt/kp/lib/systemd/system/kp.service", 0o644),
        ("etc/init.d/kp", 0o755),
        ("etc/default/kp", 0o644),
        ("etc/logrotate.d/kp", 0o644),
        ("etc/kp/kp.yaml", 0o644),
        ("var/log/kp", 0o755),
        ("var/lib/kp", 0o755),
    ] {
        let found = fs::metadata(directory.path().join(path))
            .unwrap_or_else(|_| panic!("{path} is missing"));
        assert_eq!(found.permissions().mode() & 0o777, mode, "{path}");
    }
    // Who names the binary names it where it is.
    for path in [
        "opt/kp/lib/systemd/system/kp.service",
        "etc/init.d/kp",
        "etc/logrotate.d/kp",
    ] {
        let content = fs::read_to_string(directory.path().join(path)).expect("a file");
        assert!(content.contains("/opt/kp/sbin/kp"), "{path}");
        assert!(!content.contains("/usr/sbin/kp"), "{path}");
    }
}

#[test]
fn installing_again_keeps_the_configuration() {
    let directory = installed();
    let configuration = directory.path().join("etc/kp/kp.yaml");
    fs::write(&configuration, "mine").expect("writing");
    let again = run(Command::new("scripts/install")
        .env("PREFIX", "/opt/kp")
        .env("DESTDIR", directory.path())
        .env("BIN", kp::binary())
        .current_dir(source::root()))
    .expect("scripts/install");
    assert_success(&again, "scripts/install");
    assert_eq!(fs::read_to_string(&configuration).expect("a file"), "mine");
}

/// The settings of a section of a unit, in order.
fn unit(path: &str) -> Vec<(String, String)> {
    let content = source::read(Path::new(path));
    let lines = content.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_unit_says_what_kp_does() {
    let unit = unit("etc/systemd/kp.service");
    let has = |key: &str, value: &str| {
        let found = unit
            .iter()
            .any(|(known, text)| known == key && text == value);
        assert!(found, "{key}={value} is not in the unit");
    };
    has("Type", "notify");
    has("NotifyAccess", "main");
    has("KillSignal", "SIGQUIT");
    has("KillMode", "mixed");
    has("ExecStart", "/usr/sbin/kp $DAEMON_OPTS -g \"daemon off;\"");
    has(
        "ExecStartPre",
        "/usr/sbin/kp $DAEMON_OPTS -g \"daemon off;\" -t -q",
    );
    has(
        "ExecReload",
        "/usr/sbin/kp $DAEMON_OPTS -g \"daemon off;\" -s reload",
    );
}

/// `systemd-analyze`, where there is one, on the units with the binary under test in them.
#[test]
fn systemd_understands_the_units() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["kp.service", "kp.socket"] {
        let content = source::read(&Path::new("etc/systemd").join(name));
        let content = content.replace("/usr/sbin/kp", &kp::binary().to_string_lossy());
        fs::write(directory.path().join(name), content).expect("writing a unit");
    }
    let service = directory.path().join("kp.service");
    let analyze = |arguments: &[&str]| {
        run(Command::new("systemd-analyze")
            .args(arguments)
            .arg(&service))
    };
    let socket = directory.path().join("kp.socket");
    if let Some(verified) = analyze(&["verify", "--man=no", &socket.to_string_lossy()]) {
        assert_success(&verified, "systemd-analyze verify");
        // An unknown key is no failure to it; what it finds in other units is not ours.
        let said = text(&verified.stderr);
        let ours = |line: &&str| line.contains("kp.service") || line.contains("kp.socket");
        assert_eq!(said.lines().find(ours), None);
    }
    // 0 is the least exposed, 10 the most. The option came with systemd 250.
    if let Some(judged) = analyze(&["security", "--offline=yes", "--no-pager", "--threshold=40"])
        && !text(&judged.stderr).contains("unrecognized option")
    {
        assert_success(&judged, "systemd-analyze security");
    }
}

/// kp serves, reloads and stops with no more rights than the unit leaves it.
#[test]
fn the_rights_of_the_unit_are_enough() {
    let unit = unit("etc/systemd/kp.service");
    let (_, rights) = unit
        .iter()
        .find(|(key, _)| key == "CapabilityBoundingSet")
        .expect("a list");
    let rights: Vec<String> = rights
        .split(' ')
        .map(|right| format!("+{}", right.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let bounds = format!("--bounding-set=-all,{}", rights.join(","));
    // Whoever is not root has none of these rights to begin with.
    let root = nix::unistd::geteuid().is_root();
    let under = if root {
        vec!["setpriv", &bounds, "--no-new-privs"]
    } else {
        Vec::new()
    };
    let mut kp = kp_tests::Setup::new(
        "user nobody nogroup; worker_rlimit_nofile 4096;
         http { server { listen %LISTEN%; location / { proxy_pass http://127.0.0.1:1; } location /ok { return 200 ok; } } }",
    )
    .as_root_of_its_own()
    .under(&under)
    .start();
    assert_eq!(kp.get("/ok").text(), "ok");
    assert_eq!(kp.command(&["-s", "reload"]).code, 0);
    fs::rename(kp.path("access.log"), kp.path("old.log")).expect("moving a log");
    assert_eq!(kp.command(&["-s", "reopen"]).code, 0);
    assert_eq!(kp.get("/ok").text(), "ok");
    assert!(kp.access_lines(1)[0].contains("/ok"));
    kp.signal(Signal::SIGQUIT);
    assert_eq!(kp.wait_exit(SOON), 0);
    let log = kp.error_log();
    assert!(
        !root || !log.contains("(1: Operation not permitted)"),
        "{log}"
    );
}

#[test]
fn manual_pages_are_well_formed() {
    for page in ["docs/man/kp.8", "docs/man/kp-ctl.8", "docs/man/kp.yaml.5"] {
        let content = source::read(Path::new(page));
        for line in content.lines() {
            assert!(line.is_ascii(), "{page}: {line}");
            let macros = [
                ".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".BR", ".BI", ".RB", ".I", ".IR", ".RI",
                ".RS", ".RE", ".nf", ".fi", ".br",
            ];
            let name = line.split(' ').next().unwrap_or_default();
            let command = line.starts_with('.') && !line.starts_with(".\\\"");
            assert!(!command || macros.contains(&name), "{page}: {line}");
            assert!(!line.is_empty(), "{page}: an empty line");
        }
        for (open, close) in [(".nf", ".fi"), (".RS", ".RE")] {
            let count = |word: &str| content.lines().filter(|line| *line == word).count();
            assert_eq!(count(open), count(close), "{page}: {open} and {close}");
        }
        let formatted = run(Command::new("man")
            .args(["--warnings", "-l"])
            .arg(source::root().join(page))
            .env("MANPAGER", "cat")
            .env("LC_ALL", "C.UTF-8"));
        if let Some(formatted) = formatted {
            assert_success(&formatted, page);
            assert_eq!(text(&formatted.stderr), "", "{page}");
        }
    }
}

#[test]
fn the_configuration_of_the_package_is_sound() {
    let loaded = kp_config::load(&kp_config::LoadOptions {
        path: source::root().join("etc/debian/kp.yaml"),
        prefix: "/etc/kp".into(),
        root: true,
        ..kp_config::LoadOptions::default()
    });
    let said = kp_config::render(&loaded.diagnostics, &loaded.sources);
    assert!(said.is_empty(), "{said}");
    let config = loaded.config.expect("a configuration");
    assert_eq!(config.main.user.expect("a user").value.name, "www-data");
    assert!(config.main.daemon, "the init script starts a daemon");
}

/// The init script on a kp in a directory of its own. Its daemons fall to this process, which collects them: a dead one that
/// nobody collects looks alive to the script, and process 1 may be anything where tests run.
struct Service {
    directory: tempfile::TempDir,
    port: Port,
}

impl Service {
    fn new() -> Self {
        nix::sys::prctl::set_child_subreaper(true).expect("prctl");
        let directory = tempfile::Builder::new()
            .prefix("kp-service-")
            .tempdir()
            .expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        let service = Self {
            directory,
            port: Port::take(),
        };
        let (folder, binary) = (
            service.directory.path().display().to_string(),
            service.path("kp"),
        );
        fs::copy(kp::binary(), &binary).expect("copying the binary");
        let settings = format!(
            "DAEMON={folder}/kp\nDAEMON_OPTS=\"-p {folder} -c kp.conf\"\nPIDFILE={folder}/kp.pid\nSTOP_SCHEDULE=QUIT/10/KILL/5\nULIMIT=\"-n 512\"\n"
        );
        fs::write(service.path("default"), settings).expect("writing the settings");
        let script = source::read(Path::new("etc/init.d/kp")).replace(
            "/etc/default/kp",
            &service.path("default").to_string_lossy(),
        );
        fs::write(service.path("init"), script).expect("writing the script");
        service.configure("one", "");
        service
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configure(&self, answer: &str, more: &str) {
        let text = format!(
            "{more} pid kp.pid; error_log error.log info; events {{ worker_connections 100; }}
             http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy;
             server {{ listen {}; return 200 {answer}; }} }}",
            self.port.address()
        );
        fs::write(self.path("kp.conf"), text).expect("writing the configuration");
    }

    /// Its exit status, and what it said.
    fn does(&self, arguments: &[&str]) -> (i32, String) {
        let said = self.path("said");
        let file = fs::File::create(&said).expect("a file");
        let mut script = Command::new("sh")
            .arg(self.path("init"))
            .args(arguments)
            .stdout(file.try_clone().expect("a second descriptor"))
            .stderr(file)
            .spawn()
            .expect("a shell");
        let daemons = [self.path("kp.pid"), self.path("kp.pid.oldbin")].map(|path| number(&path));
        let status = wait::until_some(SOON * 2, "the init script", || {
            daemons.into_iter().flatten().for_each(collect);
            script.try_wait().expect("waiting for the script")
        });
        (
            status.code().unwrap_or(-1),
            text(&fs::read(&said).unwrap_or_default()),
        )
    }

    fn expect(&self, action: &str, status: i32) -> String {
        let (found, said) = self.does(&[action]);
        let log = fs::read_to_string(self.path("error.log")).unwrap_or_default();
        assert_eq!(found, status, "{action}: {said}\n{log}");
        said
    }

    fn pid(&self) -> u32 {
        number(&self.path("kp.pid")).expect("a pid file")
    }

    fn answer(&self) -> String {
        client::get(&self.port.address(), "/").text()
    }

    /// A connection of the very moment of a reload may still be an old worker's.
    fn wait_answer(&self, wanted: &str) {
        wait::until(SOON, &format!("the answer {wanted:?}"), || {
            self.answer() == wanted
        });
    }
}

fn number(pid_file: &Path) -> Option<u32> {
    fs::read_to_string(pid_file).ok()?.trim().parse().ok()
}

/// Collects a process that has ended, if it is this one's to collect.
fn collect(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id"));
    let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
}

impl Drop for Service {
    fn drop(&mut self) {
        self.does(&["stop"]);
    }
}

#[test]
fn the_init_script_starts_reloads_upgrades_and_stops() {
    let service = Service::new();
    assert!(service.expect("status", 3).contains("not running"));
    service.expect("stop", 0);
    service.expect("reload", 7);
    service.expect("upgrade", 7);
    service.expect("try-restart", 0);
    service.expect("status", 3);

    service.expect("start", 0);
    assert_eq!(service.answer(), "one");
    let pid = service.pid();
    let limit = fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
    let limit = limit
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a line");
    assert!(limit.contains(" 512 "), "{limit}");
    service.expect("start", 0);
    assert_eq!(service.pid(), pid);
    assert!(service.expect("status", 0).contains("is running"));
    service.expect("configtest", 0);

    service.configure("two", "");
    for action in ["reload", "force-reload"] {
        service.expect(action, 0);
        service.wait_answer("two");
    }
    assert_eq!(service.pid(), pid);

    service.expect("upgrade", 0);
    assert_ne!(service.pid(), pid);
    assert_eq!(service.answer(), "two");
    service.expect("status", 0);

    let pid = service.pid();
    service.expect("restart", 0);
    assert_ne!(service.pid(), pid);
    service.expect("try-restart", 0);
    assert_eq!(service.answer(), "two");
    let pid = service.pid();
    service.expect("stop", 0);
    assert!(!process::alive(pid) && !service.path("kp.pid").exists());
    service.expect("status", 3);
}

#[test]
fn the_init_script_tells_what_is_wrong() {
    let service = Service::new();
    assert_eq!(service.does(&[]).0, 2);
    assert_eq!(service.does(&["start", "now"]).0, 2);
    service.expect("dance", 3);

    service.configure("one", "bogus on;");
    for (action, status) in [("configtest", 1), ("start", 6), ("restart", 6)] {
        let said = service.expect(action, status);
        assert!(said.contains("unknown directive \"bogus\""), "{said}");
    }
    service.configure("one", "");
    service.expect("start", 0);
    service.configure("two", "bogus on;");
    for action in ["reload", "upgrade", "restart", "try-restart"] {
        let said = service.expect(action, 6);
        assert!(said.contains("unknown directive \"bogus\""), "{said}");
        assert_eq!(service.answer(), "one");
    }
    service.configure("one", "");

    // Killed: the pid file stays, and the number in it may be anybody's some day.
    let pid = service.pid();
    let workers = process::children(pid);
    process::signal(pid, Signal::SIGKILL);
    wait::until(SOON, "the end of the master", || {
        collect(pid);
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    assert!(service.expect("status", 1).contains("pid file"));
    wait::until(SOON, "the end of its workers", || {
        workers.iter().all(|worker| !process::alive(*worker))
    });
    let text = format!("{}\n", std::process::id());
    fs::write(service.path("kp.pid"), text).expect("writing a pid file");
    service.expect("status", 1);
    service.expect("stop", 0);
    assert!(!service.path("kp.pid").exists());
    service.expect("start", 0);
    service.expect("stop", 0);

    fs::remove_file(service.path("kp")).expect("removing the binary");
    for (action, status) in [("start", 5), ("reload", 5), ("stop", 0), ("status", 4)] {
        service.expect(action, status);
    }
}

#[test]
fn the_init_script_has_the_header_of_the_standard_base() {
    let content = source::read(Path::new("etc/init.d/kp"));
    let (_, rest) = content
        .split_once("### BEGIN INIT INFO\n")
        .expect("a begin");
    let (header, _) = rest.split_once("### END INIT INFO\n").expect("an end");
    let keys: Vec<&str> = header
        .lines()
        .map(|line| line.strip_prefix("# ").expect("a comment"))
        .filter_map(|line| line.split_once(':').map(|(key, _)| key))
        .collect();
    assert_eq!(
        keys,
        [
            "Provides",
            "Required-Start",
            "Required-Stop",
            "Default-Start",
            "Default-Stop",
            "Short-Description",
            "Description"
        ]
    );
}
