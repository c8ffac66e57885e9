//! Where logs go: syslog, compressed files, files with variables in their names, standard output.

use kp_tests::kp::open_to_workers;
use kp_tests::wait::{self, SOON};
use kp_tests::{End, Kp, Port, Setup};
use nix::sys::signal::Signal;
use std::fs;
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;

/// The next message of a syslog server.
fn message(server: &UdpSocket) -> String {
    server.set_read_timeout(Some(SOON)).expect("a time limit");
    let mut room = [0; 70_000];
    let count = server.recv(&mut room).expect("a message");
    String::from_utf8_lossy(&room[..count]).into_owned()
}

fn udp() -> (UdpSocket, String) {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
    let address = server.local_addr().expect("its address").to_string();
    (server, address)
}

/// What stands in a file of gzip members.
fn unzipped(kp: &Kp, name: &str) -> String {
    let bytes = fs::read(kp.path(name)).unwrap_or_default();
    let mut text = String::new();
    if !bytes.is_empty() {
        flate2::read::MultiGzDecoder::new(bytes.as_slice())
            .read_to_string(&mut text)
            .unwrap_or_else(|error| panic!("{name} is no whole gzip file: {error}"));
    }
    text
}

/// Shows: access_log, error_log
#[test]
fn syslog_messages_are_those_of_rfc_3164() {
    let (server, address) = udp();
    let dead = Port::take();
    let text = "error_log error.log info;
        http { log_format short '$uri $status'; server { listen %LISTEN%; access_log off;
        location /plain { access_log syslog:server=%LOG% short; return 200; }
        location /all { access_log syslog:server=%LOG%,facility=user,tag=web_1,severity=alert,nohostname short; return 200; }
        location /if { access_log syslog:server=%LOG% short if=$arg_log; return 200; }
        location /error { error_log syslog:server=%LOG%,facility=mail; proxy_pass http://%DEAD%; }
        location /json { error_log syslog:server=%LOG% error format=json; proxy_pass http://%DEAD%; } } }";
    let kp = Setup::new(text)
        .with("LOG", address)
        .with("DEAD", dead.address())
        .start();
    kp.get("/plain");
    let first = message(&server);
    let rest = first.strip_prefix("<190>").expect("local7, info");
    let (date, rest) = rest.split_at("Jan  1 00:00:00".len());
    assert!(
        date.is_ascii() && date.as_bytes()[6] == b' ' && date.as_bytes()[9] == b':',
        "{first}"
    );
    let mut words = rest.trim_start().split(' ');
    let host = words.next().expect("a host");
    assert!(!host.is_empty() && !host.ends_with(':'), "{first}");
    assert_eq!(words.collect::<Vec<_>>(), ["nginx:", "/plain", "200"]);
    kp.get("/all");
    let second = message(&server);
    assert!(second.starts_with("<9>"), "user, alert: {second}");
    assert!(second.ends_with(" web_1: /all 200"), "{second}");
    assert_eq!(second.split_whitespace().count(), 6, "no host: {second}");
    kp.get("/if");
    kp.get("/if?log=1");
    assert!(message(&server).ends_with("/if 200"));
    kp.get("/error");
    let third = message(&server);
    assert!(third.starts_with("<19>"), "mail, error: {third}");
    assert!(
        third.contains(" nginx: 20") && third.contains(" [error] "),
        "{third}"
    );
    assert!(!third.contains('\n'), "{third}");
    kp.get("/json");
    let fourth = message(&server);
    let (_, object) = fourth.split_once(" nginx: ").expect("a tag");
    let object: serde_json::Value = serde_json::from_str(object).expect("JSON");
    assert_eq!(object["level"], "error");
    server.set_nonblocking(true).expect("a socket");
    assert!(server.recv(&mut [0; 10]).is_err(), "nothing else was sent");
}

/// Shows: access_log
#[test]
fn a_syslog_server_may_go_and_come_back() {
    let text = "http { log_format n $arg_n; server { listen %LISTEN%; access_log syslog:server=unix:%DIR%/log.sock n;
        access_log syslog:server=%LOG% n; return 200; } }";
    let (udp_server, address) = udp();
    let kp = Setup::new(text)
        .with("LOG", address.clone())
        .allow("while logging to syslog")
        .start();
    let asked = |n: usize| assert_eq!(kp.get(&format!("/?n={n}")).status(), 200);
    for n in 0..20 {
        asked(n);
    }
    let losses = || {
        let log = kp.error_log();
        log.matches("while logging to syslog").count()
    };
    wait::until(SOON, "a complaint", || losses() > 0);
    assert_eq!(losses(), 1, "told once a minute: {}", kp.error_log());
    assert!(kp.error_log().contains("[alert]") && kp.error_log().contains("server: unix:"));
    let bind = || {
        let server = UnixDatagram::bind(kp.path("log.sock")).expect("a socket");
        open_to_workers(&kp.path("log.sock"));
        server.set_read_timeout(Some(SOON)).expect("a time limit");
        server
    };
    // The line of the request before may come late.
    let hears = |server: &UnixDatagram, end: &str| {
        let mut room = [0; 1000];
        (0..2).any(|_| {
            let count = server.recv(&mut room).expect("a message");
            String::from_utf8_lossy(&room[..count]).ends_with(end)
        })
    };
    for n in [100, 200] {
        let server = bind();
        asked(n);
        assert!(hears(&server, &format!(": {n}")));
        fs::remove_file(kp.path("log.sock")).expect("removing the socket");
    }
    for n in (0..20).chain([100, 200]) {
        assert!(message(&udp_server).ends_with(&format!(": {n}")));
    }
    drop(udp_server);
    for n in 300..303 {
        asked(n);
    }
    // A program that another test starts may hold it for a moment.
    let again = wait::until_some(SOON, "the address again", || UdpSocket::bind(&address).ok());
    asked(400);
    assert!((0..2).any(|_| message(&again).ends_with(": 400")));
}

/// A server that does not read holds nobody up.
#[test]
fn a_full_syslog_server_costs_lines_and_nothing_else() {
    let text = "http { log_format n $arg_n; server { listen %LISTEN%; keepalive_requests 10000;
        access_log syslog:server=unix:%DIR%/log.sock n; return 200; } }";
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log.sock");
    open_to_workers(directory.path());
    let server = UnixDatagram::bind(&path).expect("a socket");
    open_to_workers(&path);
    let kp = Setup::new(&text.replace("%DIR%/log.sock", &path.display().to_string()))
        .allow("while logging to syslog")
        .start();
    let mut client = kp.client();
    for n in 0..2000 {
        let asked = format!("GET /?n={n} HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.ask(asked).status(), 200);
    }
    kp.wait_error("Resource temporarily unavailable");
    server.set_nonblocking(true).expect("a socket");
    let mut room = [0; 1000];
    let count = std::iter::from_fn(|| server.recv(&mut room).ok()).count();
    assert!((1..2000).contains(&count), "{count}");
}

/// Shows: access_log
#[test]
fn a_name_of_a_syslog_server_must_be_found() {
    let checked = Setup::new(
        "http { server { listen %LISTEN%;\naccess_log syslog:server=nowhere.invalid; return 200; } }",
    )
    .check();
    assert_eq!(checked.code, 1);
    let expected = "[emerg] host not found in syslog server \"nowhere.invalid\" in ";
    assert!(checked.stderr.contains(expected), "{}", checked.stderr);
    assert!(
        checked.stderr.contains("kp.conf:2:12"),
        "{}",
        checked.stderr
    );
}

/// Shows: access_log
#[test]
fn a_compressed_log_is_flushed_whole() {
    let text = "http { log_format u $uri; server { listen %LISTEN%; keepalive_requests 100000;
        access_log timed.gz u gzip buffer=1m flush=300ms; access_log patient.gz u gzip=9; access_log plain.log u;
        return 200; } }";
    let mut kp = Setup::new(text).start();
    kp.get("/first");
    wait::until(SOON, "the time of the buffer", || {
        !unzipped(&kp, "timed.gz").is_empty()
    });
    assert_eq!(unzipped(&kp, "timed.gz"), "/first\n");
    assert_eq!(kp.text("patient.gz"), "", "64k wait");
    let mut client = kp.client();
    for n in 0..3000 {
        let path = format!("/{n}/{}", "x".repeat(40));
        let asked = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.ask(asked).status(), 200);
    }
    wait::until(SOON, "a full buffer", || {
        fs::metadata(kp.path("patient.gz")).is_ok_and(|found| found.len() > 0)
    });
    let plain = kp.text("plain.log");
    assert!(plain.starts_with(&unzipped(&kp, "patient.gz")));
    for name in ["timed.gz", "patient.gz"] {
        fs::rename(kp.path(name), kp.path(&format!("old.{name}"))).expect("renaming a log");
    }
    assert_eq!(kp.command(&["-s", "reopen"]).code, 0);
    let plain = kp.text("plain.log");
    assert_eq!(unzipped(&kp, "old.timed.gz"), plain);
    assert_eq!(unzipped(&kp, "old.patient.gz"), plain);
    drop(client);
    kp.get("/after");
    kp.reload();
    kp.wait_drained(SOON);
    assert_eq!(unzipped(&kp, "patient.gz"), "/after\n", "a reload flushes");
    kp.get("/last");
    kp.signal(Signal::SIGTERM);
    kp.wait_exit(SOON);
    assert_eq!(unzipped(&kp, "patient.gz"), "/after\n/last\n");
    assert_eq!(unzipped(&kp, "timed.gz"), "/after\n/last\n");
}

/// Shows: access_log, open_log_file_cache
#[test]
fn files_with_variables_in_their_names() {
    let text = "http { log_format u $uri; access_log access.log; server { listen %LISTEN%; root %DIR%;
        location /off { access_log dir/$arg_to.log u; return 200; }
        location /kept { open_log_file_cache max=2 min_uses=2 valid=1h; access_log dir/$arg_to.log u; return 200; }
        location /rootless { root %DIR%/missing; access_log $arg_to.log u; return 200; } } }";
    let kp = Setup::new(text).file("dir/x", "").allow("open() ").start();
    open_to_workers(&kp.path("dir"));
    for path in [
        "/off?to=off",
        "/kept?to=once",
        "/kept?to=twice",
        "/kept?to=twice",
    ] {
        kp.get(path);
    }
    assert_eq!(kp.lines("dir/off.log", 1), ["/off"]);
    assert_eq!(kp.lines("dir/twice.log", 2), ["/kept", "/kept"]);
    fs::rename(kp.path("dir"), kp.path("moved")).expect("renaming a directory");
    for path in ["/off?to=off", "/kept?to=once", "/kept?to=twice"] {
        kp.get(path);
    }
    kp.wait_error("/dir/once.log\" failed (2: No such file or directory) while logging request, ");
    assert_eq!(
        kp.text("moved/off.log"),
        "/off\n",
        "it was opened for each line"
    );
    assert_eq!(kp.text("moved/once.log"), "/kept\n", "used once");
    assert_eq!(kp.lines("moved/twice.log", 3).len(), 3);
    assert_eq!(kp.command(&["-s", "reopen"]).code, 0);
    kp.get("/kept?to=twice");
    kp.wait_error("/dir/twice.log\" failed (2: No such file or directory)");
    kp.get("/rootless?to=made_up");
    kp.wait_error("/missing\" existence failed (2: No such file or directory)");
    assert!(!kp.path("made_up.log").exists());
}

/// Shows: split_clients, access_log
#[test]
fn a_log_may_be_a_sample() {
    let text = "http { log_format n $arg_n; split_clients $arg_n $sampled { 20% 1; 30.5% ''; * 0; }
        split_clients $arg_n $name { 20% one; 30.5% two; }
        server { listen %LISTEN%; keepalive_requests 10000; access_log all.log n; access_log sample.log n if=$sampled;
        add_header X-Part $name; return 200; } }";
    let kp = Setup::new(text).start();
    let mut client = kp.client();
    let mut counts = [0; 3];
    let mut sampled = Vec::new();
    for n in 0..1000 {
        let answer = client.ask(format!("GET /?n={n} HTTP/1.1\r\nHost: t\r\n\r\n"));
        match answer.field("x-part") {
            Some("one") => {
                counts[0] += 1;
                sampled.push(n.to_string());
            }
            Some("two") => counts[1] += 1,
            other => {
                assert_eq!(other, None);
                counts[2] += 1;
            }
        }
    }
    for (count, expected) in counts.iter().zip([200, 305, 495]) {
        assert!((expected - 60..expected + 60).contains(count), "{counts:?}");
    }
    kp.lines("all.log", 1000);
    assert_eq!(kp.lines("sample.log", sampled.len()), sampled);
    for (part, message) in [
        ("0% a;", "invalid percent value \"0%\""),
        ("1.234% a;", "invalid percent value \"1.234%\""),
        ("ten a;", "invalid percent value \"ten\""),
        ("60% a; 50% b;", "percent total is greater than 100%"),
        ("* a; 50% b;", "percent total is greater than 100%"),
    ] {
        let text =
            format!("http {{ split_clients $uri $x {{ {part} }} server {{ listen %LISTEN%; }} }}");
        let checked = Setup::new(&text).check();
        assert!(
            checked.stderr.contains(message),
            "{part}: {}",
            checked.stderr
        );
    }
}

/// A file that may not grow stands in for a full disk: a line fits in part, and others do not.
///
/// Shows: access_log
#[test]
fn a_full_disk_costs_lines_and_a_torn_one_costs_no_other() {
    const LIMIT: u64 = 1 << 30;
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("log");
    let mut options = fs::File::options();
    let log = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a log");
    log.set_len(LIMIT - 500).expect("a hole");
    let text = "http { log_format j json { uri $uri; pad %PAD%; } access_log %LOG% j;
        server { listen %LISTEN%; return 200; } }";
    // In blocks of 512 bytes, as POSIX has it.
    let limited = format!("ulimit -f {}; exec \"$@\"", LIMIT / 512);
    let kp = Setup::new(text)
        .with("PAD", "x".repeat(50))
        .with("LOG", path.to_string_lossy())
        .under(&["sh", "-c", &limited, "sh"])
        .allow("write() failed for")
        .start();
    let worker = kp.worker_pid();
    // A connection ends when the line is written.
    let ask = |n: usize| {
        let mut client = kp.client();
        client.send(format!(
            "GET /{n} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
        ));
        assert_eq!(client.response().status(), 200);
        assert_eq!(client.end_within(SOON), End::Closed);
    };
    (1..=12).for_each(ask);
    kp.wait_error("write() failed for");
    assert_eq!(log.metadata().expect("its length").len(), LIMIT);
    // Somebody makes room: the part of a line stays at the end.
    let mut end = vec![0; 500];
    std::os::unix::fs::FileExt::read_exact_at(&log, &mut end, LIMIT - 500).expect("lines");
    log.set_len(0).expect("no hole");
    fs::write(&path, &end).expect("lines");
    (13..=14).for_each(ask);
    assert_eq!(kp.worker_pid(), worker, "no worker died of it");
    let text = fs::read_to_string(&path).expect("a log");
    let (whole, torn): (Vec<&str>, Vec<&str>) = text
        .lines()
        .partition(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
    assert_eq!(torn.len(), 1, "{text}");
    let (before, after) = text.split_once(torn[0]).expect("the torn line");
    assert_eq!(before.lines().count() + 2, whole.len(), "{text}");
    assert!(after.starts_with("\n{\"uri\":\"/13\""), "{after}");
}
