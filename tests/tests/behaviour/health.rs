//! Active checks: thresholds (B03), reloads (B04), `mandatory`, conditions, hostile answers, takeover.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kp_tests::dns::Dns;
use kp_tests::origin::response;
use kp_tests::tls::{Acceptor, Authority};
use kp_tests::{Conversation, Kp, Origin, Setup, process, wait};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(15);

/// An origin whose checks are answered by what it is told, and everything else by 200 and its name.
struct Patient {
    origin: Origin,
    /// How it is: `F` fails, `P` passes; the last one lasts.
    script: Arc<std::sync::Mutex<String>>,
    checks: Arc<AtomicUsize>,
}

impl Patient {
    fn new(name: &'static str, script: &str) -> Self {
        let script = Arc::new(std::sync::Mutex::new(script.to_owned()));
        let checks = Arc::new(AtomicUsize::new(0));
        let (told, count) = (Arc::clone(&script), Arc::clone(&checks));
        let origin = Origin::start(move |conversation: &mut Conversation| {
            conversation.answer_all(|request| {
                if request.target() != "/hz" {
                    return response(200, name.as_bytes());
                }
                let mut script = told.lock().unwrap();
                let now = script.chars().next().unwrap_or('P');
                if script.len() > 1 {
                    script.remove(0);
                }
                count.fetch_add(1, SeqCst);
                response(if now == 'F' { 503 } else { 200 }, b"")
            })
        });
        Self {
            origin,
            script,
            checks,
        }
    }

    fn tell(&self, script: &str) {
        *self.script.lock().unwrap() = script.to_owned();
    }

    fn checks(&self) -> usize {
        self.checks.load(SeqCst)
    }

    /// Waits until so many more checks were answered.
    fn wait_checks(&self, more: usize) {
        let goal = self.checks() + more;
        wait::until(SOON, "checks", || self.checks() >= goal);
    }
}

const B03: &str = "uri=/hz interval=200ms fails=3 passes=2";

fn setup(origins: &[&Origin], check: &str) -> Setup {
    let servers: String = origins
        .iter()
        .map(|origin| format!("server {}; ", origin.address()))
        .collect();
    Setup::new(
        "%MAIN% error_log error.log notice; http { %HTTP% upstream u { %SERVERS% %UPSTREAM% }
         server { listen %LISTEN%; location / { proxy_pass http://u; %LOCATION% health_check %CHECK%; }
         location = /up { return 204; } } }",
    )
    .with("SERVERS", servers)
    .with("CHECK", check)
}

fn answers(kp: &Kp, count: usize) -> String {
    (0..count)
        .map(|_| {
            let answer = kp.get("/");
            assert_eq!(answer.status(), 200);
            answer.text()
        })
        .collect()
}

/// Lines of the error log with this text.
fn lines(kp: &Kp, text: &str) -> Vec<String> {
    kp.error_log()
        .lines()
        .filter(|line| line.contains(text))
        .map(str::to_owned)
        .collect()
}

/// Shows: health_check
#[test]
fn b03_thresholds_are_consecutive() {
    let (a, b) = (Patient::new("A", "FPFPFPP"), Patient::new("B", "P"));
    let kp = setup(&[&a.origin, &b.origin], B03)
        .main("worker_processes 4;")
        .start();
    a.wait_checks(7);
    let share = answers(&kp, 40).matches('A').count();
    assert!((15..=25).contains(&share), "{share} of 40");
    assert!(lines(&kp, "unhealthy").is_empty());

    a.tell("FFFF");
    kp.wait_error(&format!(
        "peer {} of upstream \"u\" is unhealthy: status 503 from /hz, 3 checks failed, until 2 passed",
        a.origin.address()
    ));
    assert_eq!(answers(&kp, 20), "B".repeat(20));

    a.tell("PFF");
    a.wait_checks(2);
    assert_eq!(answers(&kp, 20), "B".repeat(20), "one pass is not enough");
    a.tell("PP");
    kp.wait_error(&format!(
        "peer {} of upstream \"u\" is healthy: 2 checks passed",
        a.origin.address()
    ));
    assert!(answers(&kp, 20).contains('A'));
    assert_eq!(
        lines(&kp, "is unhealthy").len(),
        1,
        "one line for all workers"
    );
}

#[test]
fn b03_one_prober_for_all_workers() {
    let a = Patient::new("A", "P");
    let kp = setup(&[&a.origin], B03).main("worker_processes 4;").start();
    kp.wait_workers(4);
    a.wait_checks(1);
    let (before, began) = (a.checks(), Instant::now());
    wait::until(SOON, "twenty checks", || a.checks() >= before + 20);
    let rate = 20.0 / began.elapsed().as_secs_f64();
    assert!((2.0..=6.0).contains(&rate), "{rate} checks a second");
}

#[test]
fn b04_a_reload_does_not_revive_a_failed_peer() {
    let (a, b) = (Patient::new("A", "F"), Patient::new("B", "P"));
    let kp = setup(&[&a.origin, &b.origin], B03)
        .main("worker_processes 2;")
        .start();
    kp.wait_error("is unhealthy");
    let stop = Arc::new(AtomicUsize::new(0));
    let (address, stopped) = (kp.address(), Arc::clone(&stop));
    let load = std::thread::spawn(move || {
        let mut seen = String::new();
        while stopped.load(SeqCst) == 0 {
            let answer = kp_tests::client::get(&address, "/");
            seen.push_str(&if answer.status() == 200 {
                answer.text()
            } else {
                format!("<{}>", answer.status())
            });
            wait::pause(Duration::from_millis(10));
        }
        seen
    });
    for _ in 0..5 {
        kp.reload();
        // The times of the case.
        wait::pause(Duration::from_millis(300));
    }
    stop.store(1, SeqCst);
    let seen = load.join().unwrap();
    assert!(seen.len() > 50, "{seen}");
    assert_eq!(seen, "B".repeat(seen.len()));
    assert_eq!(lines(&kp, "is unhealthy").len(), 1);
}

#[test]
fn mandatory_waits_for_the_first_pass_from_process_start() {
    let (a, b) = (Patient::new("A", "F"), Patient::new("B", "P"));
    let check = format!("{B03} mandatory");
    let kp = setup(&[&a.origin, &b.origin], &check).start();
    // Before the first results nobody is asked; a 502 says so.
    wait::until(SOON, "the first pass of B", || kp.get("/").status() == 200);
    assert_eq!(answers(&kp, 20), "B".repeat(20));
    let others: Vec<String> = a.origin.targets();
    assert!(others.iter().all(|target| target == "/hz"), "{others:?}");
    a.tell("P");
    wait::until(SOON, "the first pass of A", || {
        answers(&kp, 2).contains('A')
    });
    kp.reload();
    answers(&kp, 20);
}

#[test]
fn nobody_is_left_when_all_are_unhealthy() {
    let a = Patient::new("A", "F");
    let kp = setup(&[&a.origin], "uri=/hz interval=200ms").start();
    kp.wait_error("is unhealthy: status 503 from /hz, 1 check failed");
    assert_eq!(kp.get("/").status(), 502);
    kp.wait_error("no live upstreams");
    a.tell("P");
    wait::until(SOON, "the way back", || kp.get("/").status() == 200);
}

#[test]
fn a_killed_prober_is_replaced_and_a_reload_leaves_no_gap() {
    let a = Patient::new("A", "P");
    let kp = setup(&[&a.origin], "uri=/hz interval=400ms")
        .main("worker_processes 2;")
        .allow("exited on signal 9")
        .start();
    a.wait_checks(2);
    for pid in kp.worker_pids() {
        process::signal(pid, Signal::SIGKILL);
        let began = Instant::now();
        a.wait_checks(2);
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    }
    kp.wait_workers(2);
    for _ in 0..3 {
        kp.reload();
        let began = Instant::now();
        a.wait_checks(2);
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    }
}

/// A group of two: one that answers `/hz` with these bytes, one that is well; what the log says of the first.
fn verdict(
    script: impl Fn(&mut Conversation) -> std::io::Result<()> + Send + Sync + 'static,
    http: &str,
    check: &str,
) -> (Kp, String) {
    let odd = Origin::start(script);
    let kp = setup(&[&odd], check).http(http).start();
    wait::until(SOON, "a verdict", || kp.error_log().contains("healthy: "));
    assert_eq!(kp.get("/up").status(), 204, "the loop goes on");
    let line = lines(&kp, "healthy: ").remove(0);
    let text = line.split("upstream \"u\" is ").nth(1).unwrap_or_default();
    (kp, text.to_owned())
}

fn answering(
    bytes: &'static [u8],
) -> impl Fn(&mut Conversation) -> std::io::Result<()> + Send + Sync {
    move |conversation| {
        conversation.request()?;
        conversation.send(bytes)
    }
}

const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/html\r\nContent-Length: 18\r\n\r\nWelcome to nginx! ";

/// Shows: match, status, header, body, require
#[test]
fn conditions_of_a_match() {
    for (conditions, expected) in [
        ("status 200;", "healthy"),
        ("status 201-299 404;", "unhealthy: status 200 from /"),
        ("status ! 500;", "healthy"),
        ("status ! 200;", "unhealthy: status 200 from /"),
        ("header Server;", "healthy"),
        (
            "header ! Server;",
            "unhealthy: \"header\" does not match from /",
        ),
        ("header content-type = text/html;", "healthy"),
        ("header Content-Type != text/html;", "unhealthy: \"header\""),
        ("header Content-Type ~ ^text;", "healthy"),
        ("header Content-Type !~ ^text;", "unhealthy: \"header\""),
        ("body ~ \"Welcome to\";", "healthy"),
        ("body !~ Welcome;", "unhealthy: \"body\" does not match"),
        ("body ~ Goodbye;", "unhealthy: \"body\""),
        ("require $upstream_http_server $upstream_status;", "healthy"),
        ("require $upstream_http_x;", "unhealthy: \"require\""),
        ("status 200; header Server; body ~* WELCOME;", "healthy"),
    ] {
        let http = format!("match m {{ {conditions} }}");
        let (_kp, text) = verdict(answering(GOOD), &http, "interval=300ms match=m");
        assert!(text.starts_with(expected), "{conditions}: {text}");
    }
}

/// Shows: send, expect
#[test]
fn tcp_checks() {
    let pong = |conversation: &mut Conversation| {
        let asked = conversation.read_at_least(6)?;
        conversation.send(if asked == b"PING\r\n" {
            "PONG"
        } else {
            "what?"
        })
    };
    for (conditions, expected) in [
        ("send PING\\x0d\\x0a; expect PONG;", "healthy"),
        ("send \"PING\\r\\n\"; expect ~ ^P.NG$;", "healthy"),
        (
            "send \"PING\\r\\n\"; expect PANG;",
            "unhealthy: \"expect\" does not match,",
        ),
        (
            "send \"HELLO!\"; expect ~ PONG;",
            "unhealthy: connection closed before the answer was whole",
        ),
    ] {
        let http = format!("match m {{ {conditions} }}");
        let (_kp, text) = verdict(pong, &http, "interval=300ms type=tcp match=m");
        assert!(text.starts_with(expected), "{conditions}: {text}");
    }
    let (_kp, text) = verdict(
        |conversation| {
            conversation.stall();
            Ok(())
        },
        "",
        "interval=300ms type=tcp",
    );
    assert!(text.starts_with("healthy"), "{text}");
}

#[test]
fn hostile_answers_fail_and_hold_nobody_up() {
    let (_kp, text) = verdict(answering(b"\x00garbage\r\n\r\n"), "", "interval=300ms");
    assert!(
        text.starts_with("unhealthy: invalid answer from /: "),
        "{text}"
    );
    let (_kp, text) = verdict(
        answering(b"HTTP/1.1 200 OK\r\nContent-Le"),
        "",
        "interval=300ms",
    );
    assert!(
        text.starts_with("unhealthy: connection closed before the answer from / was whole"),
        "{text}"
    );
    let (_kp, text) = verdict(
        |conversation| {
            conversation.request()?;
            conversation.stall();
            Ok(())
        },
        "",
        "interval=300ms",
    );
    assert!(
        text.starts_with("unhealthy: timed out while waiting for the answer"),
        "{text}"
    );
    let (_kp, text) = verdict(
        |conversation| {
            conversation.request()?;
            conversation.reset()
        },
        "",
        "interval=300ms",
    );
    assert!(text.starts_with("unhealthy: recv() failed (104"), "{text}");
    let slow = |conversation: &mut Conversation| {
        conversation.request()?;
        loop {
            conversation.send("HTTP/1.1 200 OK\r\nX: 1\r\n")?;
            conversation.pause(Duration::from_millis(50));
        }
    };
    let (_kp, text) = verdict(slow, "", "interval=300ms");
    assert!(text.starts_with("unhealthy: "), "{text}");
    // So many of them are no answer, whatever is asked of one.
    let interim = |conversation: &mut Conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 100 Continue\r\n\r\n".repeat(40))
    };
    let (_kp, text) = verdict(interim, "match m { body !~ y; }", "interval=5s match=m");
    assert!(
        text.starts_with("unhealthy: invalid answer from /: too many interim"),
        "{text}"
    );
    // A body without end: what is looked at is bounded, and its beginning decides.
    let endless = |conversation: &mut Conversation| {
        conversation.request()?;
        conversation.send("HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            conversation.send(vec![b'x'; 65_536])?;
        }
    };
    let http = "match m { body !~ y; }";
    let (_kp, text) = verdict(endless, http, "interval=5s match=m");
    assert!(text.starts_with("healthy"), "{text}");
}

#[test]
fn a_check_is_a_request_of_its_location_at_the_port_it_names() {
    let (app, helper) = (Origin::ok(), Origin::ok());
    let check = format!("uri=/hz?a=b interval=300ms port={}", helper.port());
    let kp = setup(&[&app], &check)
        .location("proxy_set_header X-Check yes; proxy_set_header X-Client $remote_addr;")
        .start();
    kp.wait_error("is healthy: 1 check passed");
    let request = helper.last();
    assert_eq!(request.method(), "GET");
    assert_eq!(request.target(), "/hz?a=b");
    assert_eq!(request.head.field("host"), Some("u"));
    assert_eq!(request.head.field("x-check"), Some("yes"));
    // There is no client but kp itself.
    assert_eq!(request.head.field("x-client"), Some("unix:"));
    assert_eq!(app.connections(), 0);
}

#[test]
fn checks_speak_the_tls_of_their_location() {
    let authority = Authority::new("root");
    let origin = Origin::secure_ok(&Acceptor::new(&authority.issue(&["o.test"])));
    let text = "error_log error.log notice; http { upstream u { server %A%; } server { listen %LISTEN%;
        location / { proxy_pass https://u; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_verify on;
        proxy_ssl_name %NAME%; health_check interval=300ms; } } }";
    for (name, expected) in [
        ("o.test", "is healthy: 1 check passed"),
        ("other.test", "is unhealthy: upstream SSL certificate"),
    ] {
        let kp = Setup::new(text)
            .with("A", origin.address())
            .with("NAME", name)
            .file("ca.pem", authority.pem())
            .start();
        kp.wait_error(expected);
    }
}

/// Workers may run as nobody.
fn open_to_all(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn a_unix_socket_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    open_to_all(directory.path());
    open_to_all(&path);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let text = "error_log error.log notice; http { upstream u { server unix:%A%; } server { listen %LISTEN%;
        location / { proxy_pass http://u; health_check interval=300ms; } } }";
    let kp = Setup::new(text).with("A", path.to_string_lossy()).start();
    kp.wait_error(&format!(
        "peer unix:{} of upstream \"u\" is unhealthy: status 500 from /",
        path.display()
    ));
    assert_eq!(kp.get("/").status(), 502);
}

/// A peer that passes its checks and fails its requests rests for its `fail_timeout` as without checks.
#[test]
fn passive_and_active_act_together() {
    let dying = Origin::start(|conversation: &mut Conversation| {
        let request = conversation.request()?;
        if request.target() == "/hz" {
            conversation.send(response(200, b""))?;
        }
        Ok(())
    });
    let well = Patient::new("B", "P");
    let kp = setup(&[&dying, &well.origin], "uri=/hz interval=300ms").start();
    kp.wait_error(&format!(
        "peer {} of upstream \"u\" is healthy",
        dying.address()
    ));
    assert_eq!(answers(&kp, 20), "B".repeat(20));
    let asked = dying.targets();
    let requests = asked.iter().filter(|target| *target != "/hz").count();
    assert_eq!(requests, 1, "{asked:?}");
}

/// Whom DNS brings is checked at once, though the interval is long, and gets nothing before it passed.
#[test]
fn a_member_from_dns_is_checked_before_its_first_request() {
    let old = Patient::new("A", "P");
    let is_well = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&is_well);
    let young = Origin::beside(&old.origin, "127.0.0.2", move |conversation| {
        conversation.answer_all(|request| {
            let fails = request.target() == "/hz" && told.load(SeqCst) == 0;
            response(if fails { 503 } else { 200 }, b"B")
        })
    });
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let text = "%MAIN% error_log error.log notice; http { resolver %DNS% valid=1s ipv6=off;
        upstream u { zone z 64k; server app.test:%PORT% resolve; }
        server { listen %LISTEN%; location / { proxy_pass http://u; health_check uri=/hz interval=%EVERY% mandatory; } } }";
    let every = |interval: &str| {
        Setup::new(text)
            .with("DNS", dns.address())
            .with("PORT", old.origin.port().to_string())
            .with("EVERY", interval)
            .main("worker_processes 2;")
    };
    let kp = every("60s").start();
    wait::until(SOON, "the first pass", || kp.get("/").status() == 200);
    dns.set_a("app.test", &["127.0.0.1", "127.0.0.2"]);
    kp.wait_error(&format!(
        "peer {} of upstream \"u\" is unhealthy",
        young.address()
    ));
    assert_eq!(answers(&kp, 20), "A".repeat(20));
    assert!(young.targets().iter().all(|target| target == "/hz"));
    assert_eq!(young.targets().len(), 1, "one process asked");
    // A generation that checks oftener does not wait for the old one's next time.
    is_well.store(1, SeqCst);
    kp.configure(&every("300ms"));
    kp.reload();
    wait::until(SOON, "the first pass of B", || {
        answers(&kp, 2).contains('B')
    });
}

#[test]
fn a_check_comes_from_the_address_of_proxy_bind() {
    let origin = Origin::start(|conversation: &mut Conversation| {
        let from = conversation.peer_ip();
        conversation.answer_all(|_| response(200, from.as_bytes()))
    });
    let http = "match m { body ~ ^127\\.0\\.0\\.3$; }";
    for (bind, expected) in [
        ("proxy_bind 127.0.0.3;", "is healthy"),
        ("proxy_bind 127.0.0.2;", "is unhealthy: \"body\""),
    ] {
        let kp = setup(&[&origin], "interval=300ms match=m")
            .http(http)
            .location(bind)
            .start();
        kp.wait_error(expected);
    }
}

/// More checks that hang than the worker has connections: requests have theirs, and who could not be asked is not blamed.
#[test]
fn many_checks_leave_connections_to_requests() {
    // Connections are made, and nobody takes them.
    let hanging = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = hanging.local_addr().unwrap().port();
    let servers: String = (1..=60)
        .map(|last| format!("server 127.0.1.{last}:{port}; "))
        .collect();
    let well = Origin::ok();
    let text = "error_log error.log notice; events { worker_connections 32; } http {
        upstream w { server %W%; %SERVERS% }
        server { listen %LISTEN%; location / { proxy_pass http://w; health_check interval=2s; }
        location = /up { return 204; } } }";
    let kp = Setup::new(text)
        .with("W", well.address())
        .with("SERVERS", servers)
        .start();
    kp.wait_error(&format!(
        "peer {} of upstream \"w\" is healthy",
        well.address()
    ));
    for _ in 0..50 {
        assert_eq!(kp.get("/up").status(), 204);
    }
    kp.wait_error("is unhealthy: timed out while waiting for the answer");
    assert_eq!(lines(&kp, "Too many").len(), 0);
}
