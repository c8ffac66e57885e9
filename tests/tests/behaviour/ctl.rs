//! `kp ctl`: what a running kp is asked and told on its control socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kp_tests::client::Client;
use kp_tests::dns::{Dns, Reply};
use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Origin, Port, Setup};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

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
    assert_eq!(now["silent"], serde_json::json!([]));
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
    assert_eq!(answer["silent"], serde_json::json!([stuck]));
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

/// `kp ctl`, with its standard output there.
fn into(kp: &Kp, arguments: &[&str], stdout: impl Into<Stdio>) -> (Option<i32>, String) {
    let prefix = format!("{}/", kp.path("").display());
    let ended = Command::new(kp_tests::kp::binary())
        .arg("ctl")
        .args(arguments)
        .args(["-p", &prefix, "-c", "kp.conf"])
        .stdout(stdout)
        .stderr(Stdio::piped())
        .output()
        .expect("running kp");
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.code(), stderr)
}

#[test]
fn an_answer_that_nobody_reads_is_no_error_and_one_that_cannot_be_written_is() {
    let kp = answering().start();
    for arguments in [&["requests"][..], &["--json", "requests"], &["-h"]] {
        let (reader, closed) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(into(&kp, arguments, closed), (Some(0), String::new()));
        let full = std::fs::File::options().write(true).open("/dev/full");
        let (code, stderr) = into(&kp, arguments, full.expect("/dev/full"));
        assert_eq!(code, Some(1));
        let why = "kp: the answer cannot be written (28: No space left on device)\n";
        assert_eq!(stderr, why);
    }
}

/// A master that was killed leaves its pid file and its socket.
#[test]
fn a_stale_socket_is_told_from_a_running_kp() {
    let mut kp = answering().allow("the master process is gone").start();
    kp.wait_error("generation 1 is serving");
    let (master, all) = (kp.master_pid(), kp.all_pids());
    kp.signal(Signal::SIGKILL);
    kp.wait_exit(SOON);
    wait::until(SOON, "the orphans to leave", || {
        !all.iter().any(|pid| kp_tests::process::alive(*pid))
    });
    assert!(kp.path("kp.ctl").exists() && kp.path("kp.pid").exists());
    for arguments in [
        &["requests"][..],
        &["--json", "peer", "down", "u", "a", "--wait"],
    ] {
        let said = ctl(&kp, arguments);
        let ended = format!("kp: not running: the process {master} of \"");
        assert_eq!((said.code, said.stdout.as_str()), (1, ""));
        assert!(said.stderr.starts_with(&ended), "{}", said.stderr);
    }
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

/// An origin that lets every kind of wait happen, by the path that is asked for.
fn waiting_origin() -> Origin {
    Origin::start(|conversation| {
        let head = conversation.head()?;
        let path = head.line.split(' ').nth(1).unwrap_or_default().to_owned();
        if path.starts_with("/tunnel") {
            conversation.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")?;
        } else if path.starts_with("/part") {
            conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nten bytes!")?;
        } else if path.starts_with("/much") || path.starts_with("/slow") {
            conversation.send("HTTP/1.1 200 OK\r\nContent-Length: 40000000\r\n\r\n")?;
            for _ in 0..400 {
                conversation.send_bytes(vec![b'x'; 100_000])?;
            }
        }
        conversation.stall();
        Ok(())
    })
}

/// A listening socket whose queue is full: further connections wait. What keeps it full comes with it.
pub(super) fn unreachable() -> (socket2::Socket, SocketAddr, Vec<TcpStream>) {
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    listener.bind(&any.into()).expect("binding");
    listener.listen(0).expect("listening");
    let address = listener.local_addr().expect("an address");
    let address = address.as_socket().expect("an IP address");
    let brief = Duration::from_millis(100);
    let fill = (0..8).map_while(|_| TcpStream::connect_timeout(&address, brief).ok());
    let fill = fill.collect();
    (listener, address, fill)
}

const WAITING: &str = "%MAIN% http { %HTTP%
    limit_req_zone $server_name zone=turns:1m rate=1r/m;
    resolver %DNS%;
    upstream one { server %ORIGIN% max_conns=1; queue 5 timeout=50s; }
    upstream dead { server %DEAD1% max_fails=0; server %DEAD2% max_fails=0; server %DEAD3% max_fails=0; }
    server { listen %LISTEN%; server_name site.test; client_max_body_size 0; client_body_timeout 40s;
        location / { proxy_pass http://%ORIGIN%; }
        location /turns { limit_req zone=turns burst=5; proxy_pass http://%ORIGIN%; }
        location /pause { proxy_pass http://dead; proxy_next_upstream_tries 3; proxy_retry_backoff base=3600s max=3600s; }
        location /queue { proxy_pass http://one; }
        location /name { set $name silent.test; proxy_pass http://$name:80; resolver_timeout 45s; }
        location /full { proxy_pass http://%FULL%; proxy_connect_timeout 41s; }
        location /shake { proxy_pass https://%SILENT%; }
        location /send { proxy_pass http://%ORIGIN%; proxy_send_timeout 42s; }
        location /much { proxy_pass http://%ORIGIN%; proxy_buffering off; send_timeout 43s; }
        location /slow/client { proxy_pass http://%ORIGIN%; limit_rate 1000; }
        location /slow/peer { proxy_pass http://%ORIGIN%; proxy_limit_rate 1000; }
        location /silent { proxy_pass http://%ORIGIN%; proxy_read_timeout 44s; proxy_try_timeout 30s; }
        location /tunnel { proxy_pass http://%ORIGIN%; proxy_upgrade_timeout 1h; }
    } }";

/// The request for a target among those in flight; the one whose head is not whole has none.
fn in_flight(kp: &Kp, target: &str) -> Option<Value> {
    let answer = json(kp, &["requests"]);
    let requests = answer["requests"].as_array().expect("a list");
    requests.iter().find(|one| one["uri"] == target).cloned()
}

/// Waits until it waits for this.
fn waits_for(kp: &Kp, target: &str, what: &str) -> Value {
    let mut found = Value::Null;
    wait::until(SOON, &format!("{target} to wait for {what}"), || {
        found = in_flight(kp, target).unwrap_or_default();
        found["waits_for"] == what
    });
    found
}

fn timeouts(request: &Value) -> Vec<(String, u64)> {
    let timeouts = request["timeouts"].as_array().expect("a list");
    let one = |timeout: &Value| {
        let directive = timeout["directive"].as_str().expect("a name").to_owned();
        (directive, timeout["in_ms"].as_u64().expect("a time"))
    };
    timeouts.iter().map(one).collect()
}

#[test]
fn requests_in_flight_say_where_they_wait() {
    let origin = waiting_origin();
    let dns = Dns::start();
    dns.set_all("silent.test", &Reply::silence());
    let (_listener, full, _fill) = unreachable();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let silent_address = silent.local_addr().expect("an address").to_string();
    let dead: Vec<Port> = (0..3).map(|_| Port::take()).collect();
    let mut setup = Setup::new(WAITING)
        .with("ORIGIN", origin.address())
        .with("DNS", dns.address())
        .with("FULL", full.to_string())
        .with("SILENT", &silent_address)
        .allow("(111: Connection refused)");
    for (number, port) in (1..).zip(&dead) {
        setup = setup.with(&format!("DEAD{number}"), port.address());
    }
    let kp = setup.start();
    assert_eq!(json(&kp, &["requests"])["in_flight"], 0);
    let said = ctl(&kp, &["requests"]).stdout;
    assert_eq!(said, "no request is in flight\n");

    let mut clients = Vec::new();
    let mut open = |bytes: &str| {
        let mut client = kp.client();
        client.send(bytes);
        clients.push(client);
    };
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: site.test\r\n\r\n");
    open("GET /head HTTP/1.1\r\nHost: si");
    open("POST /body HTTP/1.1\r\nHost: site.test\r\nContent-Length: 100\r\n\r\nten bytes!");
    for target in [
        "/turns/1",
        "/turns/2",
        "/queue/1",
        "/pause",
        "/name",
        "/full",
        "/shake",
        "/slow/client",
        "/slow/peer",
        "/silent",
        "/part",
    ] {
        open(&get(target));
    }
    open(
        "GET /tunnel HTTP/1.1\r\nHost: site.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    );
    let mut reads_nothing = Client::connect_narrow(&kp.address(), 8 * 1024);
    reads_nothing.send(get("/much"));
    let mut sends_much = kp.client();
    sends_much.send("POST /send HTTP/1.1\r\nHost: site.test\r\nContent-Length: 30000000\r\n\r\n");
    // As much as all buffers on the way take.
    sends_much.send_for(&vec![b'x'; 29_000_000], Duration::from_secs(2));

    let address = origin.address();
    waits_for(&kp, "/queue/1", "response-head");
    open(&get("/queue/2"));
    for (target, what, on, directive, at_most_ms) in [
        ("", "head", "", "client_header_timeout", 60_000),
        ("/body", "request-body", "", "client_body_timeout", 40_000),
        ("/turns/2", "rate-limit", "", "", 0),
        ("/queue/2", "queue", "one", "queue", 50_000),
        ("/pause", "backoff", "dead", "", 0),
        ("/name", "name", "silent.test", "resolver_timeout", 45_000),
        (
            "/full",
            "connect",
            &full.to_string(),
            "proxy_connect_timeout",
            41_000,
        ),
        (
            "/shake",
            "handshake",
            &silent_address,
            "proxy_connect_timeout",
            60_000,
        ),
        (
            "/send",
            "send-request",
            &address,
            "proxy_send_timeout",
            42_000,
        ),
        (
            "/silent",
            "response-head",
            &address,
            "proxy_try_timeout",
            30_000,
        ),
        (
            "/part",
            "response-body",
            &address,
            "proxy_read_timeout",
            60_000,
        ),
        ("/much", "client", "", "send_timeout", 43_000),
        ("/slow/client", "limit-rate", "", "", 0),
        ("/slow/peer", "proxy-limit-rate", &address, "", 0),
        (
            "/tunnel",
            "tunnel",
            &address,
            "proxy_upgrade_timeout",
            3_600_000,
        ),
    ] {
        let request = waits_for(&kp, target, what);
        assert_eq!(request["waits_on"], on, "{request}");
        let running = timeouts(&request);
        match running.first() {
            Some((first, in_ms)) => {
                assert_eq!(first, directive, "{request}");
                assert!(*in_ms <= at_most_ms, "{request}");
            }
            None => assert_eq!(directive, "", "{request}"),
        }
        let goes_on = ["rate-limit", "backoff", "limit-rate", "proxy-limit-rate"].contains(&what);
        assert_eq!(request["goes_on_in_ms"].is_u64(), goes_on, "{request}");
        if !target.is_empty() {
            assert_eq!(request["server"], "site.test");
            assert!(["GET", "POST"].contains(&request["method"].as_str().expect("a method")));
        }
        assert_eq!(request["worker"], kp.worker_pid());
    }
    let silent = in_flight(&kp, "/silent").expect("it waits");
    assert_eq!(
        (&silent["peer"], &silent["attempt"]),
        (&json!(address), &json!(1))
    );
    assert_eq!(timeouts(&silent)[1].0, "proxy_read_timeout");
    let (waited, age) = (silent["waited_ms"].as_u64(), silent["age_ms"].as_u64());
    assert!(waited.is_some() && waited <= age, "{silent}");
    let part = in_flight(&kp, "/part").expect("it waits");
    assert!(part["bytes_out"].as_u64() > Some(10), "{part}");
    let body = in_flight(&kp, "/body").expect("it waits");
    assert!(body["bytes_in"].as_u64() > Some(50), "{body}");
    let pause = in_flight(&kp, "/pause").expect("it waits");
    assert_eq!(
        (&pause["attempt"], &pause["upstream"]),
        (&json!(2), &json!("dead"))
    );

    people_read_it(&kp, &address);
    drop((clients, reads_nothing, sends_much));
}

/// The same requests in words, cut and filtered.
fn people_read_it(kp: &Kp, address: &str) {
    let said = ctl(kp, &["requests"]).stdout;
    let origin = format!("waits for the response head from {address} for ");
    for part in [
        "17 requests are in flight\n",
        "GET site.test/silent  from 127.0.0.1:",
        &origin,
        "waits for the rest of the request head from the client for ",
        "waits in the queue of upstream \"one\" for a free place for ",
        "waits for the addresses of \"silent.test\"",
        "is held back by limit_rate, goes on in ",
        "attempt 1 at ",
        "proxy_try_timeout in ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let two = json(kp, &["requests", "--limit", "2"]);
    assert_eq!(two["in_flight"], 17);
    let ages: Vec<u64> = two["requests"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["age_ms"].as_u64().expect("a time"))
        .collect();
    assert!(ages.len() == 2 && ages[0] >= ages[1], "{ages:?}");
    let said = ctl(kp, &["requests", "--limit=1"]).stdout;
    assert!(
        said.starts_with("17 requests are in flight; the oldest 1:\n"),
        "{said}"
    );
    let none = json(kp, &["requests", "--longer", "1h"]);
    assert_eq!(none["requests"], json!([]));
    for bad in ["0", "1001", "x"] {
        assert_eq!(ctl(kp, &["requests", "--limit", bad]).code, 2);
    }
}

/// How long a slow client still has is seen before it is sent away.
#[test]
fn windows_of_rates_are_told_of() {
    let much = vec![b'x'; 5_000_000];
    let origin = Origin::replying(kp_tests::origin::response(200, &much));
    let kp = Setup::base(&origin)
        .location("client_min_rate 10 window=60s; send_min_rate 20 window=60s;")
        .start();
    let mut sends = kp.client();
    sends.send("POST /body HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\nten bytes!");
    let mut takes = Client::connect_narrow(&kp.address(), 4096);
    takes.send("GET /much HTTP/1.1\r\nHost: t\r\n\r\n");
    for (target, waits, directive, least) in [
        ("/body", "request-body", "client_min_rate", 10),
        ("/much", "client", "send_min_rate", 20),
    ] {
        waits_for(&kp, target, waits);
        let running = wait::until_some(SOON, "time to pass", || {
            let rates = in_flight(&kp, target)?["rates"].clone();
            rates[0]["bytes_per_s"].is_u64().then_some(rates)
        });
        assert_eq!(running.as_array().map(Vec::len), Some(1), "{running}");
        let rate = &running[0];
        assert_eq!(rate["directive"], directive);
        assert_eq!(rate["least_bytes_per_s"], least);
        assert_eq!(
            (&rate["waiting"], &rate["judged"]),
            (&json!(true), &json!(false))
        );
        assert!(rate["left_ms"].as_u64() < Some(60_000), "{rate}");
        assert!(rate["bytes_per_s"].as_u64() > Some(0), "{rate}");
    }
    let said = ctl(&kp, &["requests"]).stdout;
    for part in [
        "client_min_rate ",
        " of 10 B/s, first window, ends in ",
        "send_min_rate ",
        " of 20 B/s, first window, ends in ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    drop((sends, takes));
}

#[test]
fn what_a_client_sends_does_not_steer_the_terminal() {
    let origin = waiting_origin();
    let kp = Setup::base(&origin).start();
    let mut client = kp.client();
    client.send("GET /silent?\u{9b}2J\u{202e} HTTP/1.1\r\nHost: t\r\n\r\n");
    wait::until(SOON, "the request", || {
        json(&kp, &["requests"])["in_flight"] == 1
    });
    for arguments in [&["requests"][..], &["--json", "requests"]] {
        let said = ctl(&kp, arguments).stdout;
        assert!(
            said.chars().all(|one| !one.is_control() || one == '\n'),
            "{said}"
        );
        assert!(said.is_ascii(), "{said}");
    }
}

#[test]
fn connections_say_who_is_connected_and_what_it_does() {
    let origin = waiting_origin();
    let kp = Setup::base(&origin)
        .server("location /own { return 200 own; }")
        .start();
    let new = kp.client();
    let mut idle = kp.client();
    for _ in 0..3 {
        assert_eq!(
            idle.ask("GET /own HTTP/1.1\r\nHost: t\r\n\r\n").status(),
            200
        );
    }
    let mut head = kp.client();
    head.send("GET /own HT");
    let mut busy = kp.client();
    busy.send("GET /silent HTTP/1.1\r\nHost: t\r\n\r\n");
    let state = |client: &Client| {
        let answer = json(&kp, &["connections"]);
        let address = client.local_address().to_string();
        let all = answer["connections"].as_array().expect("a list").clone();
        all.into_iter()
            .find(|one| one["client"] == address)
            .unwrap_or_default()
    };
    for (client, what, requests) in [
        (&new, "new", 0),
        (&idle, "idle", 3),
        (&head, "head", 1),
        (&busy, "request", 1),
    ] {
        wait::until(SOON, what, || state(client)["state"] == what);
        let found = state(client);
        assert_eq!(found["requests"], requests, "{found}");
        assert_eq!(
            (&found["listener"], &found["tls"]),
            (&json!(kp.address()), &json!(""))
        );
        assert_eq!(found["ends_in_ms"].is_u64(), what != "request", "{found}");
    }
    let answer = json(&kp, &["connections"]);
    assert_eq!(answer["clients"], 4);
    wait::until(SOON, "the connection to the origin", || {
        let upstreams = &json(&kp, &["connections"])["upstreams"];
        *upstreams
            == json!([{"upstream": "u", "peer": origin.address(), "connecting": 0, "busy": 1, "idle": 0}])
    });
    let said = ctl(&kp, &["connections"]).stdout;
    for part in [
        "4 clients are connected\n",
        "reading head",
        "request 1",
        "idle",
        &origin.address(),
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Two workers with 2,000 connections between them answer in time, and go on serving meanwhile.
#[test]
fn thousands_of_connections_are_glanced_at_quickly() {
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, 8192, 8192);
    let kp = Setup::new(
        "worker_processes 2; worker_rlimit_nofile 8192; events { worker_connections 4096; }
         http { server { listen %LISTEN% backlog=4096; client_header_timeout 1h; return 200 ok; } }",
    )
    .start();
    kp.wait_workers(2);
    let address: SocketAddr = kp.address().parse().expect("an address");
    let mut crowd: Vec<TcpStream> = (0..2000)
        .map(|_| TcpStream::connect(address).expect("connecting"))
        .collect();
    for stream in crowd.iter_mut().take(1000) {
        stream.write_all(b"GET / HT").expect("a part of a head");
    }
    wait::until(SOON, "all connections", || {
        json(&kp, &["connections"])["clients"] == 2000
            && json(&kp, &["requests"])["in_flight"] == 1000
    });
    for arguments in [
        &["connections", "--limit", "1000"][..],
        &["requests", "--limit", "1000"],
    ] {
        let start = Instant::now();
        let answer = json(&kp, arguments);
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(answer[arguments[0]].as_array().map(Vec::len), Some(1000));
        assert_eq!(answer["workers"], 2);
    }
    assert_eq!(kp.get("/").status(), 200);
}

/// What changes mean is tested where they are made; here, that each command reaches it.
#[test]
fn upstreams_are_changed_from_the_command_line() {
    let (one, two, three) = (
        Origin::named("one"),
        Origin::named("two"),
        Origin::named("three"),
    );
    let setup = Setup::new("%MAIN% http { %HTTP% upstream app { zone app 64k; server %ONE% max_fails=0; server %TWO% max_fails=0; }
        server { listen %LISTEN%; location / { proxy_pass http://app; } } }");
    let kp = setup
        .with("ONE", one.address())
        .with("TWO", two.address())
        .main("worker_processes 2;")
        .start();
    kp.wait_error("2 worker processes ready");
    let answers = || {
        let mut answers: Vec<String> = (0..12).map(|_| kp.get("/").text()).collect();
        answers.sort();
        answers.dedup();
        answers.join(" ")
    };
    let done = |arguments: &[&str]| {
        let said = ctl(&kp, arguments);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{arguments:?}");
        said.stdout
    };
    let in_force = "1 change in force in 2 worker processes\n";
    let (first, second, third) = (one.address(), two.address(), three.address());
    assert_eq!(done(&["peer", "down", "app", &first]), in_force);
    assert_eq!(answers(), "two");
    assert_eq!(done(&["peer", "up", "app", &first]), in_force);
    done(&["peer", "drain", "app", &second]);
    assert_eq!(answers(), "one");
    done(&["peer", "add", "app", &third, "weight=2", "max_fails=0"]);
    assert_eq!(answers(), "one three");
    done(&["peer", "remove", "app", &first]);
    assert_eq!(answers(), "three");
    done(&["peer", "weight", "app", &third, "5"]);
    done(&["peer", "max_conns", "app", &third, "7"]);
    done(&["peer", "reset", "app", &third]);

    let refused = ctl(&kp, &["peer", "down", "app", &third]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(
        refused
            .stderr
            .contains("\"app\" would have no usable peer left")
            && refused.stderr.contains("hint: --force"),
        "{}",
        refused.stderr
    );
    done(&["peer", "--force", "down", "app", &third]);
    assert_eq!(kp.get("/").status(), 502);
    done(&["reset", "app"]);
    assert_eq!(answers(), "one two");

    upstreams_are_shown(&kp, &first, &second);
    let batch = |text: String| {
        std::fs::write(kp.path("batch"), text).expect("writing a batch");
        ctl(&kp, &["batch", &kp.path("batch").display().to_string()])
    };
    let said = batch(format!(
        "# swap\npeer add app {third}\n\npeer down app {first}\npeer down app {second}\n"
    ));
    assert_eq!(
        said.stdout, "3 changes in force in 2 worker processes\n",
        "{}",
        said.stderr
    );
    assert_eq!(answers(), "three");
    let said = batch(format!(
        "peer up app {first}\n# nobody\npeer up app 127.0.0.1:1\n"
    ));
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.contains("/batch:3: ") && said.stderr.contains("127.0.0.1:1"),
        "{}",
        said.stderr
    );
    assert_eq!(answers(), "three", "all or nothing");
    let said = batch("peer upp app x\n".into());
    assert_eq!(said.code, 2);
    assert!(said.stderr.contains("/batch:1: "), "{}", said.stderr);
    let changed = json(&kp, &["reset"]);
    assert_eq!(
        (&changed["changes"], &changed["workers"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(answers(), "one two");
}

/// The group "app", of whose peers the second was made to drain.
fn upstreams_are_shown(kp: &Kp, first: &str, second: &str) {
    let asked = ctl(kp, &["peer", "drain", "app", second]);
    assert_eq!(asked.code, 0, "{}", asked.stderr);
    assert_eq!(kp.get("/").text(), "one");
    let shown = json(kp, &["upstream", "show", "app"]);
    assert_eq!(shown["upstreams"].as_array().map(Vec::len), Some(1));
    let app = &shown["upstreams"][0];
    assert_eq!(
        (&app["upstream"], &app["zone"]),
        (&json!("app"), &json!("app"))
    );
    assert_eq!(app["changes"], json!([["drain", second]]));
    assert_eq!(
        (&app["usable"], &app["peers"][0]["peer"]),
        (&json!(1), &json!(first))
    );
    assert_eq!(app["peers"][0]["state"], "up");
    assert_eq!(
        (&app["peers"][1]["peer"], &app["peers"][1]["state"]),
        (&json!(second), &json!("drain"))
    );
    let all = json(kp, &["upstream", "list"]);
    assert_eq!(all["upstreams"][0]["upstream"], "app");
    let list = ctl(kp, &["upstream", "list"]).stdout;
    let row = |peer: &str| {
        let line = list
            .lines()
            .find(|line| line.contains(peer))
            .expect("its line");
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        row(first)[..4],
        ["app", first, "up", "1"].map(str::to_owned)
    );
    assert_eq!(
        row(second)[..3],
        ["app", second, "drain"].map(str::to_owned)
    );
    let show = ctl(kp, &["upstream", "show", "APP"]).stdout;
    for part in [
        "upstream:    app\n".to_owned(),
        "peers:       2, 1 of them usable\n".to_owned(),
        format!("changed:     drain {second}\n"),
        format!("{first}: up"),
        format!("{second}: drain"),
    ] {
        assert!(show.contains(&part), "{part}: {show}");
    }
    let unknown = ctl(kp, &["upstream", "show", "ap"]);
    assert_eq!(unknown.code, 1);
    assert_eq!(
        unknown.stderr,
        "kp: there is no upstream \"ap\"\nhint: did you mean \"app\"?\n"
    );
    let asked = ctl(kp, &["reset"]);
    assert_eq!(asked.code, 0, "{}", asked.stderr);
}

/// Pages are made on threads, of which there are few: whoever asks together waits, and not for a file.
#[test]
fn who_waits_for_a_page_about_kp_does_not_wait_for_a_file() {
    let kp = answering()
        .server("location /page { status; } location /numbers { metrics; }")
        .start();
    let mut seen = std::collections::BTreeSet::new();
    wait::until(SOON, "a page that is being made", || {
        let mut clients: Vec<Client> = (0..60).map(|_| kp.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let path = ["/page.json", "/numbers"][number % 2];
            client.send(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
        }
        // By the socket, which is quicker than a command.
        let found = kp_tests::ask::master(&kp, &json!({"command": "requests"}));
        let requests = found["requests"].as_array().into_iter().flatten();
        seen.extend(requests.map(|one| one["waits_for"].to_string()));
        for client in &mut clients {
            assert_eq!(client.response().status(), 200);
        }
        seen.contains("\"page\"")
    });
    assert!(!seen.contains("\"file\""), "{seen:?}");
}
