//! Upstreams changed while kp runs: what holds, for whom, how soon, what is kept of it, and that nobody loses a request.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) use kp_tests::ask::{change, question};
use kp_tests::client::{self, Client};
use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Kind, Kp, LoadOrigin, Mix, Origin, Setup, process};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const TEXT: &str =
    "%MAIN% error_log %DIR%/error.log notice; http { %HTTP% upstream u { %UPSTREAM% %SERVERS% }
    server { listen %LISTEN%; location / { proxy_pass http://u; %LOCATION% } } }";
const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

pub(crate) fn setup(servers: &[&Origin], upstream: &str) -> Setup {
    let lines: String = servers
        .iter()
        .map(|origin| format!("server {};", origin.address()))
        .collect();
    Setup::new(TEXT).upstream(upstream).with("SERVERS", lines)
}

pub(crate) fn command(changes: &[&str], force: bool) -> Value {
    let words = |text: &&str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let changes: Vec<Vec<String>> = changes.iter().map(words).collect();
    json!({"command": "change", "changes": changes, "force": force})
}

/// Why it is refused, with the hint.
pub(crate) fn refused(kp: &Kp, changes: &[&str]) -> String {
    let (done, answer) = question(kp, &command(changes, false));
    assert!(!done, "{changes:?}: {answer}");
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    format!("{} ({})", text("error"), text("hint"))
}

pub(crate) fn counts(kp: &Kp, count: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..count {
        let answer = kp.get("/");
        assert_eq!(answer.status(), 200);
        *counts.entry(answer.text()).or_default() += 1;
    }
    counts
}

pub(crate) fn counted(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    let pairs = pairs.iter();
    pairs
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

pub(crate) fn send(kp: &Kp, path: &str) -> Client {
    let mut client = kp.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
    client
}

/// Answers with its name, `/slow` only when it is let.
pub(crate) fn gate(name: &str) -> (Origin, Arc<AtomicBool>) {
    let (open, body) = (Arc::new(AtomicBool::new(false)), name.to_owned());
    let gate = Arc::clone(&open);
    let origin = Origin::start(move |conversation| {
        loop {
            let request = conversation.request()?;
            if request.head.line.contains("/slow") {
                wait::happens(LONG, || gate.load(Ordering::SeqCst));
            }
            conversation.send(response(200, body.as_bytes()))?;
        }
    });
    (origin, open)
}

#[test]
fn weights_are_obeyed_by_four_workers_from_the_answer_on() {
    let (a, b, c) = (Origin::named("a"), Origin::named("b"), Origin::named("c"));
    let kp = setup(&[&a, &b], "zone u 64k;")
        .main("worker_processes 4;")
        .start();
    kp.wait_workers(4);
    assert_eq!(counts(&kp, 20), counted(&[("a", 10), ("b", 10)]));
    let answer = change(&kp, &[&format!("peer weight u {} 3", b.address())]);
    assert_eq!(
        (&answer["changes"], &answer["workers"]),
        (&json!(1), &json!(4))
    );
    assert_eq!(counts(&kp, 80), counted(&[("a", 20), ("b", 60)]));
    change(&kp, &[&format!("peer add u {} weight=4", c.address())]);
    assert_eq!(counts(&kp, 80), counted(&[("a", 10), ("b", 30), ("c", 40)]));
    change(&kp, &[&format!("peer drain u {}", b.address())]);
    change(&kp, &[&format!("peer down u {}", a.address())]);
    assert_eq!(counts(&kp, 12), counted(&[("c", 12)]));
    change(
        &kp,
        &[
            &format!("peer up u {}", a.address()),
            &format!("peer remove u {}", c.address()),
        ],
    );
    assert_eq!(counts(&kp, 12), counted(&[("a", 12)]));
    change(&kp, &["reset u"]);
    assert_eq!(counts(&kp, 20), counted(&[("a", 10), ("b", 10)]));
    kp.wait_error(&format!(
        "changed at run time: peer weight u {} 3",
        b.address()
    ));
}

#[test]
fn without_a_zone_all_workers_obey_as_well() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "").main("worker_processes 4;").start();
    kp.wait_workers(4);
    change(&kp, &[&format!("peer down u {}", a.address())]);
    assert_eq!(counts(&kp, 40), counted(&[("b", 40)]));
}

#[test]
fn a_load_loses_nothing_whatever_is_changed() {
    let origins = [
        LoadOrigin::start(),
        LoadOrigin::start(),
        LoadOrigin::start(),
    ];
    let [a, b, c] = [0, 1, 2].map(|n| origins[n].address());
    let kp = Setup::new(TEXT)
        .main("worker_processes 4;")
        .upstream("zone u 64k; keepalive 16;")
        .with("SERVERS", format!("server {a}; server {b};"))
        .start();
    kp.wait_workers(4);
    let load = Mix::new(&kp.address())
        .clients(Kind::Post, 12)
        .clients(Kind::Close, 4)
        .clients(Kind::Pausing, 4)
        .pause_max(SECOND)
        .start();
    load.wait_answers(100);
    for round in 0..3 {
        for step in [
            vec![format!("peer add u {c} weight=2")],
            vec![format!("peer remove u {a}")],
            vec![format!("peer weight u {b} 5")],
            vec![format!("peer drain u {b}")],
            vec![
                format!("reset u {a}"),
                format!("peer up u {b}"),
                format!("peer down u {c}"),
            ],
            vec![format!("peer max_conns u {a} {}", round + 50)],
            vec![format!("peer up u {c}"), format!("peer remove u {b}")],
            vec![String::from("reset")],
        ] {
            let words: Vec<&str> = step.iter().map(String::as_str).collect();
            change(&kp, &words);
            load.wait_answers(20);
        }
    }
    let report = load.stop();
    assert!(report.losses.is_empty(), "{:?}", report.losses);
    assert!(origins.iter().all(|origin| origin.requests() > 50));
}

#[test]
fn a_swap_of_two_peers_is_one_step() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 64k;")
        .http("keepalive_requests 1000000;")
        .start();
    let (a, b) = (a.address(), b.address());
    change(&kp, &[&format!("peer down u {b}")]);
    let (to_b, to_a) = (
        [format!("peer down u {a}"), format!("peer up u {b}")],
        [format!("peer down u {b}"), format!("peer up u {a}")],
    );
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let seen = std::thread::scope(|scope| {
        // One after the other, so that what is seen has an order.
        let asking = scope.spawn(|| {
            let (mut client, mut seen) = (kp.client(), String::new());
            while !over.load(Ordering::SeqCst) {
                let answer = client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
                assert_eq!(answer.status(), 200, "never none");
                seen.push_str(&answer.text());
                asked.fetch_add(1, Ordering::SeqCst);
            }
            seen
        });
        let some = || {
            let before = asked.load(Ordering::SeqCst);
            wait::until(SOON, "answers", || {
                asked.load(Ordering::SeqCst) >= before + 3
            });
        };
        some();
        for swap in [&to_b, &to_a].into_iter().cycle().take(10) {
            change(&kp, &[&swap[0], &swap[1]]);
            some();
        }
        over.store(true, Ordering::SeqCst);
        asking.join().expect("a client")
    });
    let turns = seen.as_bytes().windows(2).filter(|pair| pair[0] != pair[1]);
    assert_eq!(turns.count(), 10, "never both: {seen}");
}

#[test]
fn the_last_usable_peer_goes_only_by_force() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 64k;").start();
    let (a, b) = (a.address(), b.address());
    let both = [format!("peer drain u {a}"), format!("peer remove u {b}")];
    let both = [both[0].as_str(), both[1].as_str()];
    let why = "upstream \"u\" would have no usable peer left (--force does it nevertheless)";
    assert_eq!(refused(&kp, &both), why);
    assert_eq!(
        counts(&kp, 4),
        counted(&[("a", 2), ("b", 2)]),
        "nothing changed"
    );
    change(&kp, &both[..1]);
    assert_eq!(refused(&kp, &both[1..]), why);
    let (done, _) = question(&kp, &command(&both[1..], true));
    assert!(done);
    assert_eq!(kp.get("/").status(), 502);
    change(&kp, &["reset"]);
    assert_eq!(counts(&kp, 4), counted(&[("a", 2), ("b", 2)]));
}

#[test]
fn what_cannot_be_is_refused_by_name_and_nothing_of_a_batch_remains() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 32k;")
        .http("server { listen 127.0.0.1:%P%; location / { proxy_pass http://127.0.0.1:9; } }")
        .with("P", kp_tests::Port::take().number().to_string())
        .start();
    let down = format!("peer down u {}", a.address());
    for (text, why) in [
        ("peer down w 1.1.1.1:1", "there is no upstream \"w\""),
        (
            "peer down 127.0.0.1:9 127.0.0.1:9",
            "is an address of \"proxy_pass\", not an upstream",
        ),
        (
            "peer down u 1.1.1.1:1",
            "upstream \"u\" has no peer \"1.1.1.1:1\" (peers are: ",
        ),
        (
            "peer add u app.test:80",
            "\"app.test:80\" is no address (names are not looked up at run time",
        ),
        ("peer weight u 1.1.1.1:1 0", "invalid weight \"0\""),
        ("fly", "unknown change \"fly\""),
    ] {
        let said = refused(&kp, &[&down, text]);
        assert!(said.contains(why), "{said}");
    }
    let (_, answer) = question(&kp, &command(&[&down, "fly"], false));
    assert_eq!(answer["change"], json!(2));
    let many: Vec<String> = (0..63)
        .map(|n| format!("peer add u 10.0.0.{n}:1 down"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let said = refused(&kp, &many);
    assert_eq!(
        said,
        "zone \"u\" is full: its 32k hold 64 peers (64k would hold this one: write \"zone u 64k;\" and reload)"
    );
    assert_eq!(counts(&kp, 4), counted(&[("a", 2), ("b", 2)]));
    change(&kp, &many[..62]);
    assert_eq!(counts(&kp, 4), counted(&[("a", 2), ("b", 2)]));
}

#[test]
fn fifty_changes_hold_soon() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 64k;")
        .main("worker_processes 4;")
        .start();
    kp.wait_workers(4);
    let mut took: Vec<Duration> = (0..50)
        .map(|n| {
            let began = Instant::now();
            change(
                &kp,
                &[&format!("peer weight u {} {}", a.address(), n % 9 + 1)],
            );
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    // Who shares the machine may hold up most of them, but not all.
    let (tenth, median, worst) = (took[5], took[25], took[49]);
    println!("median {median:?}, worst {worst:?}");
    assert!(tenth < SECOND / 10, "{took:?}");
    assert!(worst < 10 * SECOND, "{worst:?}");
}

#[test]
fn attempts_under_way_end_and_idle_connections_are_closed() {
    let ((a, open), b) = (gate("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 64k; keepalive 8;").start();
    for act in ["down", "remove"] {
        // Both have an idle connection, and the first a request.
        assert_eq!(counts(&kp, 2).len(), 2);
        wait::until(SOON, "idle connections", || a.open_connections() == 1);
        change(&kp, &[&format!("peer drain u {}", b.address())]);
        let before = a.raw_text().matches("GET").count();
        let mut slow = send(&kp, "/slow");
        a.wait_requests(before + 1);
        change(
            &kp,
            &[
                &format!("peer up u {}", b.address()),
                &format!("peer {act} u {}", a.address()),
            ],
        );
        assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
        open.store(true, Ordering::SeqCst);
        assert_eq!(slow.response().text(), "a");
        wait::until(SOON, "its connection to be closed, too", || {
            a.open_connections() == 0
        });
        open.store(false, Ordering::SeqCst);
        change(&kp, &["reset"]);
    }
}

#[test]
fn who_waits_in_the_queue_gets_the_peer_that_comes() {
    let ((a, open), b) = (gate("a"), Origin::named("b"));
    let kp = Setup::new(TEXT)
        .upstream("zone u 64k; queue 10 timeout=30s;")
        .with("SERVERS", format!("server {} max_conns=1;", a.address()))
        .start();
    let mut slow = send(&kp, "/slow");
    a.wait_requests(1);
    let mut waiting: Vec<Client> = (0..4).map(|n| send(&kp, &format!("/{n}"))).collect();
    change(&kp, &[&format!("peer add u {}", b.address())]);
    for client in &mut waiting {
        assert_eq!(client.response().text(), "b");
    }
    open.store(true, Ordering::SeqCst);
    assert_eq!(slow.response().text(), "a");
}

#[test]
fn a_session_stays_at_a_peer_that_drains() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 64k; sticky cookie sid;").start();
    let first = kp.get("/");
    let cookie = first.field("set-cookie").expect("a cookie").to_owned();
    let cookie = cookie.split(';').next().expect("a name and a value");
    change(&kp, &[&format!("peer drain u {}", a.address())]);
    let mut client = kp.client();
    for _ in 0..5 {
        let answer = client.ask(format!(
            "GET / HTTP/1.1\r\nHost: t\r\nCookie: {cookie}\r\n\r\n"
        ));
        assert_eq!(answer.text(), first.text());
    }
    assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
}

#[test]
fn a_worker_that_is_new_knows_everything() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 64k;")
        .allow("exited on signal 9")
        .start();
    kp.wait_error("is serving");
    change(&kp, &[&format!("peer down u {}", a.address())]);
    let worker = kp.worker_pid();
    assert!(process::signal(worker, Signal::SIGKILL));
    kp.wait_new_workers(&[worker]);
    assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
    kp.reload();
    assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
    kp.wait_error(&format!(
        "upstream \"u\": a run-time change is in force: down {}",
        a.address()
    ));
}

#[test]
fn a_generation_that_drains_obeys_as_well() {
    let ((a, open), b) = (gate("a"), Origin::named("b"));
    let kp = setup(&[&a], "zone u 64k; keepalive 8;").start();
    kp.wait_error("is serving");
    let mut slow = send(&kp, "/slow");
    a.wait_requests(1);
    kp.reload();
    assert_eq!(kp.draining_pids().len(), 1);
    let answer = change(
        &kp,
        &[
            &format!("peer add u {}", b.address()),
            &format!("peer remove u {}", a.address()),
        ],
    );
    assert_eq!(answer["workers"], json!(2));
    open.store(true, Ordering::SeqCst);
    assert_eq!(slow.response().text(), "a");
    kp.wait_drained(SOON);
    assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
}

#[test]
fn a_worker_that_does_not_answer_is_named_and_is_told_nevertheless() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 64k;").start();
    let worker = kp.stop_worker();
    let began = Instant::now();
    for n in 1..=3 {
        let (done, answer) = question(
            &kp,
            &command(&[&format!("peer weight u {} {n}", b.address())], false),
        );
        assert!(done, "it is in force for everybody who is to come");
        assert_eq!(answer["silent"], json!([worker]));
    }
    assert!(began.elapsed() >= 6 * SECOND);
    assert!(process::signal(worker, Signal::SIGCONT));
    change(&kp, &[&format!("peer max_conns u {} 9", b.address())]);
    assert_eq!(counts(&kp, 8), counted(&[("a", 2), ("b", 6)]));
}

fn kept(servers: &[&Origin]) -> Setup {
    setup(servers, "zone u 64k; state u.state;")
}

/// Shows: state
#[test]
fn what_is_kept_in_a_state_file_outlives_a_restart() {
    let (a, b, c) = (Origin::named("a"), Origin::named("b"), Origin::named("c"));
    let mut kp = kept(&[&a, &b]).allow("the master process is gone").start();
    let state = kp.path("u.state");
    assert!(!state.exists(), "nothing was changed");
    change(
        &kp,
        &[
            &format!("peer add u {} weight=2", c.address()),
            &format!("peer remove u {}", a.address()),
        ],
    );
    change(&kp, &[&format!("peer weight u {} 3", b.address())]);
    let mode = fs::metadata(&state)
        .expect("a state file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = kp.text("u.state");
    for line in [
        format!("remove {}\n", a.address()),
        format!("add {} weight=2\n", c.address()),
        format!("weight {} 3\n", b.address()),
    ] {
        assert!(text.contains(&line), "{text}");
    }
    let expected = counted(&[("b", 6), ("c", 4)]);
    assert_eq!(counts(&kp, 10), expected);
    kp.reload();
    assert_eq!(counts(&kp, 10), expected);
    kp.kill_and_start_again();
    assert_eq!(counts(&kp, 10), expected);
    assert_eq!(kp.text("u.state"), text);
    change(&kp, &["reset"]);
    assert_eq!(counts(&kp, 4), counted(&[("a", 2), ("b", 2)]));
    kp.kill_and_start_again();
    assert_eq!(counts(&kp, 4), counted(&[("a", 2), ("b", 2)]));
}

#[test]
fn an_edited_file_decides_who_belongs_to_the_group() {
    let (a, b, c) = (Origin::named("a"), Origin::named("b"), Origin::named("c"));
    let kp = kept(&[&a, &b]).start();
    change(
        &kp,
        &[
            &format!("peer add u {}", c.address()),
            &format!("peer remove u {}", a.address()),
            &format!("peer weight u {} 3", b.address()),
        ],
    );
    // Other lines, whatever else is new.
    kp.configure(&kept(&[&b, &a]));
    kp.reload();
    assert_eq!(counts(&kp, 8), counted(&[("a", 2), ("b", 6)]));
    for line in [
        format!(
            "upstream \"u\": {} was added at run time and is dropped: the server lines were edited",
            c.address()
        ),
        format!(
            "upstream \"u\": {} was removed at run time and is what the configuration says again",
            a.address()
        ),
        format!(
            "upstream \"u\": a run-time change is in force: weight {} 3",
            b.address()
        ),
    ] {
        kp.wait_error(&line);
    }
    wait::until(SOON, "the state file to follow", || {
        let text = kp.text("u.state");
        !text.contains("add") && text.contains("weight")
    });
}

#[test]
fn a_state_file_that_cannot_be_used_is_named_and_left_alone() {
    let a = Origin::named("a");
    for (text, why) in [
        (
            "server 127.0.0.1:80;\n",
            "these are no run-time changes of kp in line 1",
        ),
        (
            "kp-state 1\nupstream u\nfly away\n",
            "\"fly\" is not understood here in line 3",
        ),
        (
            "kp-state 1\nupstream w\n",
            "it belongs to upstream \"w\", not to \"u\"",
        ),
    ] {
        let bad = || kept(&[&a]).file("u.state", text);
        let checked = bad().check();
        assert_eq!(checked.code, 1);
        assert!(checked.stderr.contains(why), "{}", checked.stderr);
        assert!(
            checked.stderr.contains("u.state\" cannot be used"),
            "{}",
            checked.stderr
        );
        assert!(bad().check_start().stderr.contains(why));
    }
    let kp = kept(&[&a]).start();
    fs::write(kp.path("u.state"), "mine\n").expect("a file");
    let said = refused(&kp, &[&format!("peer weight u {} 2", a.address())]);
    assert!(
        said.contains("u.state\" was changed by somebody else"),
        "{said}"
    );
    assert_eq!(kp.text("u.state"), "mine\n");
}

#[test]
fn what_cannot_be_kept_is_not_done() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 64k; state kept/u.state;")
        .file("kept/x", "")
        .start();
    fs::remove_dir_all(kp.path("kept")).expect("a directory");
    let said = refused(&kp, &[&format!("peer down u {}", a.address())]);
    assert!(said.contains("u.state.new\" failed"), "{said}");
    assert_eq!(counts(&kp, 4), counted(&[("a", 2), ("b", 2)]));
    fs::create_dir(kp.path("kept")).expect("a directory");
    change(&kp, &[&format!("peer down u {}", a.address())]);
    assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
}

#[test]
fn metrics_say_how_many_changes_are_in_force() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let kp = setup(&[&a, &b], "zone u 64k;")
        .http("server { listen unix:%DIR%/m.sock; location / { metrics; } }")
        .start();
    let line = |kp: &Kp, name: &str| {
        let text = client::get_unix(kp.path("m.sock"));
        let line = text.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    change(
        &kp,
        &[
            &format!("peer weight u {} 7", a.address()),
            &format!("peer down u {}", b.address()),
        ],
    );
    assert_eq!(line(&kp, "kp_runtime_changes "), "kp_runtime_changes 2");
    let weight = format!("kp_peer_weight{{upstream=\"u\",peer=\"{}\"}}", a.address());
    assert_eq!(line(&kp, &weight), format!("{weight} 7"));
}

#[test]
fn two_groups_have_two_files() {
    let a = Origin::named("a");
    let checked = kept(&[&a])
        .http("upstream w { server 127.0.0.1:1; state u.state; }")
        .check();
    assert!(
        checked.stderr.contains("is the state file of upstream"),
        "{}",
        checked.stderr
    );
}

#[test]
fn a_new_binary_has_what_is_in_force() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let mut kp = setup(&[&a, &b], "zone u 64k;").start();
    kp.wait_error("is serving");
    change(&kp, &[&format!("peer down u {}", a.address())]);
    let said = kp.command(&["-s", "upgrade"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    kp.follow();
    assert_eq!(counts(&kp, 4), counted(&[("b", 4)]));
    change(&kp, &["reset"]);
    assert_eq!(counts(&kp, 4), counted(&[("a", 2), ("b", 2)]));
}

#[test]
fn failures_are_forgotten_when_asked() {
    let (a, b) = (Origin::named("a"), Origin::replying(response(500, b"b")));
    let kp = Setup::new(TEXT)
        .upstream("zone u 64k;")
        .with(
            "SERVERS",
            format!(
                "server {}; server {} fail_timeout=1h;",
                a.address(),
                b.address()
            ),
        )
        .with("LOCATION", "proxy_next_upstream http_500;")
        .start();
    assert_eq!(counts(&kp, 4), counted(&[("a", 4)]));
    let failed = b.raw_text().matches("GET").count();
    assert_eq!(failed, 1);
    change(&kp, &[&format!("peer reset u {}", b.address())]);
    assert_eq!(counts(&kp, 4), counted(&[("a", 4)]));
    assert_eq!(b.raw_text().matches("GET").count(), 2);
}
