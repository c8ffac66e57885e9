//! Names of upstreams: looked up while kp runs, shared by all workers, and never worse than the last good answer.

use kp_tests::dns::{A, AAAA, Dns, NXDOMAIN, Reply, SERVFAIL, SRV};
use kp_tests::origin::response;
use kp_tests::{Client, Kp, Origin, Setup, client, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A group whose one server is a name, and a location for it.
const NAMED: &str = "%MAIN%
http {
    resolver %DNS% %RESOLVER%;
    %HTTP%
    upstream u { zone u 64k; server app.test:%PORT% resolve %LINE%; %UPSTREAM% }
    server {
        listen %LISTEN%;
        location / { proxy_pass http://u; %LOCATION% }
    }
}
";

pub(super) fn named(dns: &Dns, origin: &Origin) -> Setup {
    let setup = Setup::new(NAMED).with("DNS", dns.address());
    let setup = setup.with("PORT", origin.port().to_string());
    ["RESOLVER", "LINE"]
        .into_iter()
        .fold(setup, |setup, place| setup.with(place, ""))
}

/// Two origins on the same port, at 127.0.0.1 and 127.0.0.2, that say who they are.
pub(super) fn two() -> (Origin, Origin) {
    let one = Origin::named("one");
    let reply = response(200, b"two");
    let two = Origin::beside(&one, "127.0.0.2", move |conversation| {
        conversation.answer_all(|_| reply.clone())
    });
    (one, two)
}

pub(super) fn wait_body(kp: &Kp, body: &str) {
    wait::until(wait::SOON, body, || kp.get("/").text() == body);
}

/// How many answers one client had, those that were not 200, and the different bodies.
type Asked = (usize, Vec<String>, HashSet<String>);

/// Clients that ask without a pause, each on connections of its own, and note what is not 200.
pub(super) struct Crowd {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<Asked>>,
}

impl Crowd {
    pub(super) fn start(kp: &Kp, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ask = |stop: Arc<AtomicBool>, address: String| {
            let (mut asked, mut wrong, mut bodies) = (0, Vec::new(), HashSet::new());
            while !stop.load(Ordering::SeqCst) {
                let response = client::get(&address, "/");
                asked += 1;
                if response.status() == 200 {
                    bodies.insert(response.text());
                } else {
                    wrong.push(response.text());
                }
                wait::pause(Duration::from_millis(5));
            }
            (asked, wrong, bodies)
        };
        let threads = (0..clients).map(|_| {
            let (stop, address) = (Arc::clone(&stop), kp.address());
            std::thread::spawn(move || ask(stop, address))
        });
        let threads = threads.collect();
        Self { stop, threads }
    }

    /// How many were asked, what was not 200, and who answered.
    pub(super) fn stop(self) -> Asked {
        self.stop.store(true, Ordering::SeqCst);
        let (mut asked, mut wrong, mut bodies) = (0, Vec::new(), HashSet::new());
        for thread in self.threads {
            let (count, errors, from) = thread.join().unwrap();
            asked += count;
            wrong.extend(errors);
            bodies.extend(from);
        }
        (asked, wrong, bodies)
    }
}

/// Shows: resolver, server
#[test]
fn b05_a_record_that_flaps_under_load_costs_nobody_anything() {
    let (one, _two) = two();
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let kp = named(&dns, &one)
        .with("RESOLVER", "valid=1s")
        .main("worker_processes 4;")
        .start();
    wait_body(&kp, "one");
    let crowd = Crowd::start(&kp, 12);
    for turn in 0..12 {
        // Now and then it skips a beat: queries come once a second and would see one address only.
        let address = ["127.0.0.2", "127.0.0.1"][(turn + turn / 4) % 2];
        dns.set_a("app.test", &[address]);
        wait::pause(Duration::from_millis(500));
    }
    let (asked, wrong, bodies) = crowd.stop();
    assert_eq!(wrong, [""; 0], "{asked} requests");
    assert!(asked > 200, "{asked}");
    assert_eq!(bodies, HashSet::from(["one".to_owned(), "two".to_owned()]));
    for kind in [A, AAAA] {
        assert!(
            dns.count("app.test", kind) >= 4,
            "{}",
            dns.count("app.test", kind)
        );
        assert!(
            dns.densest("app.test", kind) <= 2,
            "{}",
            dns.densest("app.test", kind)
        );
    }
}

#[test]
fn b05_good_addresses_survive_whatever_the_name_server_says() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let kp = named(&dns, &origin)
        // One family, so that no lookup sees a bit of one case and a bit of the next.
        .with("RESOLVER", "valid=1s ipv6=off")
        .main("worker_processes 2;")
        .start();
    wait_body(&kp, "one");
    let crowd = Crowd::start(&kp, 4);
    let cases = [
        (Reply::code(SERVFAIL), "(2: Server failure)"),
        (Reply::silence(), "(110: Operation timed out)"),
        (Reply::code(0), "(3: Host not found, it has no address)"),
        (Reply::code(NXDOMAIN), "(3: Host not found)"),
    ];
    for (reply, words) in &cases {
        dns.set_all("app.test", reply);
        kp.wait_error(words);
        // It is asked again and fails again, which is no news.
        let count = dns.count("app.test", A);
        wait::until(wait::SOON, "another query", || {
            dns.count("app.test", A) > count + 1
        });
    }
    dns.set_a("app.test", &["127.0.0.1"]);
    kp.wait_error("app.test of upstream \"u\" resolves again");
    let (asked, wrong, _) = crowd.stop();
    assert_eq!(wrong, [""; 0], "{asked} requests");
    let log = kp.error_log();
    for (_, words) in &cases {
        let lines = log
            .lines()
            .filter(|line| line.contains("[warn]") && line.contains(words));
        assert_eq!(lines.count(), 1, "{words}\n{log}");
    }
    assert!(log.contains("the address it had stays in use"), "{log}");
}

/// Shows: resolver_timeout
#[test]
fn c05_a_name_that_does_not_resolve_takes_nothing_else_down() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    let text = "http {
        resolver %DNS%;
        resolver_timeout 5s;
        upstream a { zone a 64k; server nosuch.invalid:%PORT% resolve; }
        upstream b { server 127.0.0.1:%PORT%; }
        server {
            listen %LISTEN%;
            location /a { proxy_pass http://a; }
            location /b { proxy_pass http://b; }
        }
    }";
    let setup = || {
        let setup = Setup::new(text).with("DNS", dns.address());
        setup.with("PORT", origin.port().to_string())
    };
    assert_eq!(setup().check().code, 0);
    let once = Setup::new(&text.replace(" resolve;", ";"));
    let once = once.with("DNS", dns.address());
    let checked = once.with("PORT", origin.port().to_string()).check();
    assert_eq!(checked.code, 1);
    assert!(
        checked
            .stderr
            .contains("host not found in upstream \"nosuch.invalid:")
            && checked.stderr.contains("kp.conf:"),
        "{}",
        checked.stderr
    );
    let kp = setup().start();
    assert_eq!(kp.get("/b").status(), 200);
    let start = Instant::now();
    assert_eq!(kp.get("/a").status(), 502);
    assert!(start.elapsed() < Duration::from_secs(1));
    kp.wait_error("nosuch.invalid could not be resolved (3: Host not found) in upstream \"a\"");
    assert!(
        kp.error_log()
            .contains("no live upstreams while connecting to upstream")
    );
    dns.set_a("nosuch.invalid", &["127.0.0.1"]);
    let limit = Duration::from_secs(3);
    wait::until(limit, "the name to be known", || {
        kp.get("/a").status() == 200
    });
}

#[test]
fn a_request_waits_for_the_first_answer_and_not_for_ever() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    let soon = Reply::addresses(&["127.0.0.1"]).late(Duration::from_millis(300));
    dns.set("app.test", A, soon);
    dns.set("app.test", AAAA, Reply::code(0));
    let kp = named(&dns, &origin).start();
    assert_eq!(kp.get("/").text(), "one");
    drop(kp);
    dns.set_all("app.test", &Reply::silence());
    let kp = named(&dns, &origin).start();
    let start = Instant::now();
    assert_eq!(kp.get("/").status(), 502);
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn answers_hold_as_long_as_they_say_and_valid_says_otherwise() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    for name in ["long.test", "valid.test"] {
        dns.set(name, A, Reply::addresses(&["127.0.0.1"]).ttl(600));
    }
    dns.set("short.test", A, Reply::addresses(&["127.0.0.1"]));
    let text = "http {
        upstream s { zone s 64k; resolver %DNS% ipv6=off; server short.test:%PORT% resolve; }
        upstream l { zone l 64k; resolver %DNS% ipv6=off; server long.test:%PORT% resolve; }
        upstream v { zone v 64k; resolver %DNS% ipv6=off valid=1s; server valid.test:%PORT% resolve; }
        server { listen %LISTEN%; location / { proxy_pass http://s; } }
    }";
    let kp = Setup::new(text)
        .with("DNS", dns.address())
        .with("PORT", origin.port().to_string())
        .start();
    let often = |name| wait::until(wait::SOON, name, || dns.count(name, A) >= 4);
    often("short.test");
    often("valid.test");
    assert_eq!(dns.count("long.test", A), 1);
    assert_eq!(dns.count("short.test", AAAA), 0, "ipv6=off");
    assert_eq!(kp.get("/").status(), 200);
}

#[test]
fn both_families_are_used_unless_one_is_off() {
    let origin = Origin::named("four");
    let six = response(200, b"six");
    let _six = Origin::beside(&origin, "[::1]", move |conversation| {
        conversation.answer_all(|_| six.clone())
    });
    let dns = Dns::start();
    dns.set("app.test", A, Reply::addresses(&["127.0.0.1"]));
    dns.set("app.test", AAAA, Reply::addresses(&["::1"]));
    let bodies = |resolver: &str| -> HashSet<String> {
        let kp = named(&dns, &origin).with("RESOLVER", resolver).start();
        (0..6).map(|_| kp.get("/").text()).collect()
    };
    let set = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<HashSet<_>>()
    };
    assert_eq!(bodies(""), set(&["four", "six"]));
    assert_eq!(bodies("ipv6=off"), set(&["four"]));
    assert_eq!(bodies("ipv4=off"), set(&["six"]));
}

#[test]
fn an_answer_that_does_not_fit_comes_over_tcp() {
    let (one, _two) = two();
    let dns = Dns::start();
    dns.set(
        "app.test",
        A,
        Reply::addresses(&["127.0.0.1", "127.0.0.2"]).only_tcp(),
    );
    dns.set("app.test", AAAA, Reply::code(0));
    let kp = named(&dns, &one).start();
    let bodies: HashSet<String> = (0..4).map(|_| kp.get("/").text()).collect();
    assert_eq!(bodies.len(), 2);
    assert!(
        dns.queries()
            .iter()
            .any(|query| query.tcp && query.kind == A)
    );
}

#[test]
fn forged_answers_are_not_listened_to() {
    let (one, _two) = two();
    let dns = Dns::start();
    dns.set(
        "app.test",
        A,
        Reply::addresses(&["127.0.0.1"]).after_forgeries("127.0.0.2"),
    );
    dns.set("app.test", AAAA, Reply::code(0));
    let kp = named(&dns, &one).with("RESOLVER", "valid=1s").start();
    wait::until(wait::SOON, "some lookups", || {
        assert_eq!(kp.get("/").text(), "one");
        dns.count("app.test", A) >= 4
    });
    let queries = dns.queries();
    let ids: HashSet<u16> = queries.iter().map(|query| query.id).collect();
    let ports: HashSet<u16> = queries.iter().map(|query| query.from.port()).collect();
    assert!(ids.len() + 1 >= queries.len(), "ids repeat: {ids:?}");
    assert!(ports.len() + 1 >= queries.len(), "ports repeat: {ports:?}");
}

#[test]
fn a_service_brings_ports_weights_and_backups() {
    let [main, small, spare] = ["main", "small", "spare"].map(Origin::named);
    let dns = Dns::start();
    let hosts = [
        (1, 3, main.port(), "a.test"),
        (1, 1, small.port(), "b.test"),
        (2, 1, spare.port(), "c.test"),
    ];
    dns.set("_http._tcp.app.test", SRV, Reply::service(&hosts));
    for name in ["a.test", "b.test", "c.test"] {
        dns.set_a(name, &["127.0.0.1"]);
    }
    let text = "http {
        resolver %DNS%;
        upstream u { zone u 64k; server app.test service=http resolve max_fails=1 fail_timeout=60s; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } }
    }";
    let kp = Setup::new(text).with("DNS", dns.address()).start();
    let bodies: Vec<String> = (0..8).map(|_| kp.get("/").text()).collect();
    let count = |name: &str| bodies.iter().filter(|body| *body == name).count();
    assert_eq!(
        (count("main"), count("small"), count("spare")),
        (6, 2, 0),
        "{bodies:?}"
    );
    let _gone = (main.stop(), small.stop());
    assert_eq!(kp.get("/").text(), "spare");
}

#[test]
fn an_alias_is_followed() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    dns.set_all("app.test", &Reply::alias("other.test"));
    dns.set_a("other.test", &["127.0.0.1"]);
    let kp = named(&dns, &origin).start();
    assert_eq!(kp.get("/").text(), "one");
}

#[test]
fn the_systems_hosts_file_is_asked_first() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    let text = "http {
        resolver %DNS% ipv6=off;
        upstream u { zone u 64k; server localhost:%PORT% resolve; }
        server {
            listen %LISTEN%;
            set $name localhost;
            location / { proxy_pass http://u; }
            location /v { proxy_pass http://$name:%PORT%; }
        }
    }";
    let kp = Setup::new(text)
        .with("DNS", dns.address())
        .with("PORT", origin.port().to_string())
        .start();
    assert_eq!(
        (kp.get("/").text(), kp.get("/v").text()),
        ("one".into(), "one".into())
    );
    assert_eq!(dns.queries().len(), 0);
}

#[test]
fn connections_to_addresses_that_stay_are_kept_and_others_are_closed() {
    let (one, two) = two();
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1", "127.0.0.2"]);
    let kp = named(&dns, &one).upstream("keepalive 8;").start();
    let bodies: HashSet<String> = (0..4).map(|_| kp.get("/").text()).collect();
    assert_eq!(
        (bodies.len(), one.connections(), two.connections()),
        (2, 1, 1)
    );
    dns.set_a("app.test", &["127.0.0.2", "127.0.0.1"]);
    let asked = dns.count("app.test", A);
    wait::until(wait::SOON, "two more lookups", || {
        dns.count("app.test", A) > asked + 1
    });
    dns.set_a("app.test", &["127.0.0.1"]);
    wait::until(wait::SOON, "its connection to end", || {
        two.open_connections() == 0
    });
    for _ in 0..4 {
        assert_eq!(kp.get("/").text(), "one");
    }
    assert_eq!(one.connections(), 1);
}

#[test]
fn addresses_outlive_reloads_and_who_asked_for_them() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let kp = named(&dns, &origin)
        .main("worker_processes 4;")
        .allow("exited on signal 9")
        .start();
    wait_body(&kp, "one");
    dns.set_all("app.test", &Reply::code(NXDOMAIN));
    kp.wait_error("could not be resolved");
    for _ in 0..3 {
        kp.reload();
        for _ in 0..8 {
            assert_eq!(kp.get("/").text(), "one");
        }
    }
    for pid in kp.worker_pids() {
        let asked = dns.count("app.test", A);
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
        wait::until(wait::SOON, "another to ask", || {
            dns.count("app.test", A) > asked + 1
        });
    }
    kp.wait_workers(4);
    for _ in 0..8 {
        assert_eq!(kp.get("/").text(), "one");
    }
    assert!(
        dns.densest("app.test", A) <= 3,
        "{}",
        dns.densest("app.test", A)
    );
    let log = kp.error_log();
    assert_eq!(log.matches("could not be resolved").count(), 1, "{log}");
}

/// A location whose upstream is named by a variable.
pub(super) fn variable(dns: &Dns, port: u16, http: &str) -> Setup {
    let text = "http {
        %HTTP%
        server {
            listen %LISTEN%;
            location / { resolver %DNS%; resolver_timeout 1s; proxy_pass http://$arg_name:%PORT%; }
        }
    }";
    let setup = Setup::new(text).with("DNS", dns.address());
    setup.with("PORT", port.to_string()).http(http)
}

#[test]
fn a_name_in_a_variable_is_looked_up() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    dns.set("app.test", A, Reply::addresses(&["127.0.0.1"]).ttl(60));
    dns.set("app.test", AAAA, Reply::code(0));
    dns.set_all("silent.test", &Reply::silence());
    dns.set_all("broken.test", &Reply::code(SERVFAIL));
    let kp = variable(&dns, origin.port(), "").start();
    for _ in 0..5 {
        assert_eq!(kp.get("/?name=App.test").text(), "one");
    }
    assert_eq!(dns.count("app.test", A), 1, "it is remembered");
    for (name, words) in [
        (
            "nosuch.test",
            "nosuch.test could not be resolved (3: Host not found)",
        ),
        (
            "broken.test",
            "broken.test could not be resolved (2: Server failure)",
        ),
        (
            "silent.test",
            "silent.test could not be resolved (110: Operation timed out)",
        ),
        ("a..b", "a..b could not be resolved (3: Host not found)"),
    ] {
        let start = Instant::now();
        assert_eq!(kp.get(&format!("/?name={name}")).status(), 502, "{name}");
        assert!(start.elapsed() < Duration::from_secs(10), "{name}");
        kp.wait_error(words);
    }
    dns.set_a("nosuch.test", &["127.0.0.1"]);
    wait::until(Duration::from_secs(4), "a new name", || {
        kp.get("/?name=nosuch.test").status() == 200
    });
}

#[test]
fn who_waits_for_the_same_name_asks_once() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    let late = Reply::addresses(&["127.0.0.1"])
        .ttl(60)
        .late(Duration::from_millis(200));
    dns.set("app.test", A, late);
    dns.set("app.test", AAAA, Reply::code(0));
    let kp = variable(&dns, origin.port(), "").start();
    let mut clients: Vec<Client> = (0..5).map(|_| kp.client()).collect();
    for client in &mut clients {
        client.send("GET /?name=app.test HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    let mut gone = kp.client();
    gone.send("GET /?name=app.test HTTP/1.1\r\nHost: t\r\n\r\n");
    drop(gone);
    for client in &mut clients {
        assert_eq!(client.response().text(), "one");
    }
    assert_eq!(dns.count("app.test", A), 1);
}

#[test]
fn the_addresses_of_a_name_are_tried_in_turn() {
    let (one, _two) = two();
    let dns = Dns::start();
    dns.set_a("both.test", &["127.0.0.1", "127.0.0.2"]);
    dns.set_a("half.test", &["127.0.0.3", "127.0.0.2"]);
    let kp = variable(&dns, one.port(), "").start();
    let bodies: HashSet<String> = (0..4).map(|_| kp.get("/?name=both.test").text()).collect();
    assert_eq!(bodies.len(), 2);
    for _ in 0..4 {
        assert_eq!(kp.get("/?name=half.test").text(), "two");
    }
    assert!(
        kp.error_log()
            .contains("connect() failed (111: Connection refused)")
    );
}
