//! Everything that keeps bad minutes away, at once: health checks, addresses that change, limits, retries, reloads and
//! killed workers under load. Nobody loses a request, except whoever was connected to a worker when it was killed.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use kp_tests::dns::{A, Dns, Reply, SERVFAIL};
use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Client, Kp, Origin, Setup, peers, process};
use nix::sys::signal::Signal;

const CLIENTS: usize = 8;
const ROUNDS: usize = 2;

/// `limit_conn` leaves room for the clients and a few more: places that killed workers did not give back would be missed.
/// The second address of `app.test` is one at which nobody listens.
const CONFIGURATION: &str = r#"
worker_processes 3;
%MAIN%
http {
    resolver %DNS%;
    log_format numbers "$status $uri";
    access_log numbers.log numbers;
    limit_conn_zone $server_name zone=places:1m;
    limit_req_zone $server_name zone=rate:1m rate=100000r/s;
    limit_conn_status 429;
    upstream u {
        zone u 128k;
        server app.test:%STEADY% resolve max_fails=0;
        server %FLAPPING% max_fails=0;
        keepalive 8;
    }
    server {
        listen %LISTEN%;
        server_name chaos.test;
        location / {
            limit_conn places 16;
            limit_req zone=rate burst=1000 nodelay;
            proxy_next_upstream error timeout http_503;
            proxy_pass http://u;
            health_check interval=100ms uri=/health;
        }
    }
}
"#;

/// Answers with the target, or with 503 while it is ill.
fn peer(ill: &Arc<AtomicBool>) -> Origin {
    let ill = Arc::clone(ill);
    Origin::start(move |conversation| {
        conversation.answer_all(|request| match ill.load(Ordering::SeqCst) {
            true => response(503, b"ill"),
            false => response(200, request.target().as_bytes()),
        })
    })
}

/// What the clients share.
#[derive(Default)]
struct Crowd {
    stopping: AtomicBool,
    answered: AtomicUsize,
    /// Connections that workers held when they were killed, by the clients' own addresses.
    killed: Mutex<HashSet<String>>,
    /// What was lost, and on which connection.
    lost: Mutex<Vec<(String, String)>>,
}

impl Crowd {
    fn killed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.killed.lock().expect("the killed connections")
    }

    fn wait_answers(&self, count: usize) {
        let before = self.answered.load(Ordering::SeqCst);
        wait::until(SOON, "further answers", || {
            self.answered.load(Ordering::SeqCst) >= before + count
        });
    }

    /// One client: connections of ten requests, one after the other.
    fn visit(&self, kp: &Kp, name: usize) {
        let mut number = 0;
        while !self.stopping.load(Ordering::SeqCst) {
            let mut client = kp.client();
            for _ in 0..10 {
                number += 1;
                if !self.ask(&mut client, &format!("/{name}.{number}")) {
                    break;
                }
            }
        }
    }

    /// False when the connection is over.
    fn ask(&self, client: &mut Client, target: &str) -> bool {
        // An end between two requests is no loss.
        if client.has_heard() {
            return false;
        }
        client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
        let came = client.try_response("GET", SOON);
        let wrong = match &came {
            Ok(answer) if answer.status() == 200 && answer.whole && answer.text() == target => None,
            Ok(answer) => Some(format!("{target}: {} {:?}", answer.status(), answer.text())),
            Err(end) => Some(format!("{target}: {end:?}")),
        };
        if let Some(wrong) = wrong {
            let connection = client.local_address().to_string();
            self.lost.lock().expect("losses").push((connection, wrong));
            return false;
        }
        self.answered.fetch_add(1, Ordering::SeqCst);
        came.is_ok_and(|answer| answer.field("Connection") != Some("close"))
    }

    /// Kills a worker at a moment at which it is known whom it serves.
    fn kill(&self, worker: u32) {
        assert!(process::signal(worker, Signal::SIGSTOP), "a worker is gone");
        wait::until(SOON, "a worker to stop", || process::stopped(worker));
        self.killed().extend(peers::peers(worker));
        process::signal(worker, Signal::SIGKILL);
    }
}

/// How often the error log says that the flapping peer is that.
fn said(kp: &Kp, flapping: &Origin, what: &str) -> usize {
    let line = format!("peer {} of upstream \"u\" is {what}", flapping.address());
    kp.error_log().matches(&line).count()
}

fn wait_said(kp: &Kp, flapping: &Origin, what: &str, times: usize) {
    wait::until(
        SOON,
        &format!("the peer to be {what} {times} times"),
        || said(kp, flapping, what) >= times,
    );
}

/// One of each misfortune, with answers in between.
fn round(n: usize, kp: &Kp, dns: &Dns, flapping: &Origin, ill: &AtomicBool, crowd: &Crowd) {
    ill.store(true, Ordering::SeqCst);
    wait_said(kp, flapping, "unhealthy", n + 1);
    dns.set_a("app.test", &["127.0.0.1", "127.0.0.2"]);
    wait_asked(dns);
    kp.reload();
    crowd.wait_answers(50);
    crowd.kill(kp.worker_pids()[n % 3]);
    crowd.wait_answers(50);
    kp.wait_workers(3);
    dns.set("app.test", A, Reply::code(SERVFAIL));
    ill.store(false, Ordering::SeqCst);
    wait_said(kp, flapping, "healthy", n + 2);
    crowd.kill(kp.worker_pids()[0]);
    kp.wait_workers(3);
    crowd.wait_answers(50);
    wait_asked(dns);
    dns.set_a("app.test", &["127.0.0.1"]);
}

/// Waits until the answer of now has been given.
fn wait_asked(dns: &Dns) {
    let before = dns.count("app.test", A);
    wait::until(SOON, "the name to be asked for", || {
        dns.count("app.test", A) > before
    });
}

#[test]
fn nothing_is_lost_when_everything_happens() {
    let (well, ill) = (Arc::default(), Arc::default());
    let (steady, flapping) = (peer(&well), peer(&ill));
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let kp = Setup::new(CONFIGURATION)
        .with("DNS", dns.address())
        .with("STEADY", steady.port().to_string())
        .with("FLAPPING", flapping.address())
        .allow("exited on signal 9")
        .start();
    kp.wait_workers(3);
    let crowd = Crowd::default();
    std::thread::scope(|scope| {
        for name in 0..CLIENTS {
            let (crowd, kp) = (&crowd, &kp);
            scope.spawn(move || crowd.visit(kp, name));
        }
        // Whatever fails in here, the clients must be told.
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // The first check of all that passes is an event, too.
            wait_said(&kp, &flapping, "healthy", 1);
            (0..ROUNDS).for_each(|n| round(n, &kp, &dns, &flapping, &ill, &crowd));
        }));
        crowd.stopping.store(true, Ordering::SeqCst);
        if let Err(panic) = played {
            std::panic::resume_unwind(panic);
        }
    });

    let killed = crowd.killed().clone();
    let lost = crowd.lost.lock().expect("losses").clone();
    let unexcused: Vec<_> = lost
        .iter()
        .filter(|(who, _)| !killed.contains(who))
        .collect();
    assert!(unexcused.is_empty(), "{unexcused:#?}");

    // One line for each event, from one process.
    let log = kp.error_log();
    let events: Vec<_> = log
        .lines()
        .filter(|line| line.contains("healthy"))
        .collect();
    assert_eq!(said(&kp, &flapping, "unhealthy"), ROUNDS, "{events:#?}");
    assert_eq!(said(&kp, &flapping, "healthy"), ROUNDS + 1, "{events:#?}");

    // Every answer has its line, and every line its answer, but for those that a killed worker took with it.
    let answered = crowd.answered.load(Ordering::SeqCst);
    let lines = kp.lines("numbers.log", answered.saturating_sub(killed.len()));
    let good: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("200 "))
        .collect();
    let distinct: HashSet<_> = good.iter().collect();
    assert_eq!(distinct.len(), good.len(), "a line is there twice");
    assert!(good.len().abs_diff(answered) <= lost.len() + killed.len());
    assert!(
        lines
            .iter()
            .all(|line| !line.starts_with('5') && !line.starts_with('4'))
    );
}
