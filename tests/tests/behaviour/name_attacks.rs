//! Names of upstreams when somebody means harm, or everything comes at once.

use super::names::{Crowd, named, two, variable, wait_body};
use kp_tests::dns::{A, AAAA, Dns, NXDOMAIN, Reply, SERVFAIL};
use kp_tests::origin::response;
use kp_tests::{Client, Kp, Origin, Setup, client, process, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Origins on one port, at 127.0.0.1, 127.0.0.2 and so on, that say the last number of their address.
fn row(count: u8) -> Vec<Origin> {
    let mut origins = vec![Origin::named("1")];
    for last in 2..=count {
        let reply = response(200, last.to_string().as_bytes());
        let origin = Origin::beside(
            &origins[0],
            &format!("127.0.0.{last}"),
            move |conversation| conversation.answer_all(|_| reply.clone()),
        );
        origins.push(origin);
    }
    origins
}

fn ip(last: u8) -> String {
    format!("127.0.0.{last}")
}

fn set_row(dns: &Dns, lasts: &[u8]) {
    let addresses: Vec<String> = lasts.iter().map(|last| ip(*last)).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    dns.set_a("app.test", &addresses);
}

/// Waits until two more lookups have begun after a change, so that the first of them is over.
fn settled(dns: &Dns) {
    let asked = dns.count("app.test", A);
    wait::until(wait::SOON, "two lookups", || {
        dns.count("app.test", A) > asked + 1
    });
}

#[test]
fn a_thousand_cookies_keep_their_peer_while_the_record_changes() {
    let origins = row(5);
    let dns = Dns::start();
    set_row(&dns, &[1, 2, 3, 4]);
    let kp = named(&dns, &origins[0])
        .with("RESOLVER", "valid=1s")
        .upstream("sticky cookie sid;")
        .start();
    let ask = |client: &mut Client, cookie: &str| {
        let answer = client.ask(format!(
            "GET / HTTP/1.1\r\nHost: t\r\nCookie: {cookie}\r\n\r\n"
        ));
        assert_eq!(answer.status(), 200);
        let set = answer.field("set-cookie").unwrap_or_default();
        let set = set.split(';').next().unwrap_or_default().to_owned();
        (answer.text(), set)
    };
    let mut client = kp.client();
    let sessions: Vec<(String, String)> = (0..1000).map(|_| ask(&mut client, "none=1")).collect();
    let peers: HashSet<&str> = sessions.iter().map(|(peer, _)| peer.as_str()).collect();
    assert_eq!(peers.len(), 4);
    for record in [&[4, 3, 2, 1][..], &[5, 2, 4, 3, 1], &[3, 5, 1, 2]] {
        set_row(&dns, record);
        settled(&dns);
        let mut client = kp.client();
        for (peer, cookie) in &sessions {
            let stays = record.contains(&peer.parse().unwrap());
            let (now, _) = ask(&mut client, cookie);
            assert!(!stays || now == *peer, "{record:?}: {peer} became {now}");
            assert!(stays || now != *peer, "{record:?}: {peer} is gone");
        }
    }
}

/// A name is one server on the ring, as in nginx, and its addresses share what falls to it.
#[test]
fn a_consistent_hash_keeps_keys_at_their_name_while_records_change() {
    let origins = row(4);
    let dns = Dns::start();
    set_row(&dns, &[1, 2]);
    dns.set_a("other.test", &["127.0.0.3"]);
    let kp = named(&dns, &origins[0])
        .with("RESOLVER", "valid=1s")
        .upstream(&format!(
            "hash $arg_k consistent; server other.test:{} resolve;",
            origins[0].port()
        ))
        .start();
    wait::until(wait::SOON, "both names", || {
        dns.count("other.test", AAAA) > 1 && kp.get("/").status() == 200
    });
    let ask = || -> Vec<String> {
        (0..200)
            .map(|key| kp.get(&format!("/?k={key}")).text())
            .collect()
    };
    let before = ask();
    assert_eq!(before.iter().collect::<HashSet<_>>().len(), 3);
    for record in [&[2, 1][..], &[4, 1], &[4], &[2, 4, 1]] {
        set_row(&dns, record);
        settled(&dns);
        for (was, now) in before.iter().zip(ask()) {
            assert_eq!(was == "3", now == "3", "{record:?}");
            assert!(now == "3" || record.contains(&now.parse().unwrap()));
        }
    }
}

/// Asks on new connections, which go to whichever worker takes them.
fn ask_for(kp: &Kp, name: &str, time: Duration) -> (usize, HashSet<u16>) {
    let (start, mut asked, mut codes) = (Instant::now(), 0, HashSet::new());
    while start.elapsed() < time {
        codes.insert(client::get(&kp.address(), &format!("/?name={name}")).status());
        asked += 1;
        wait::pause(Duration::from_millis(5));
    }
    (asked, codes)
}

#[test]
fn all_workers_ask_once_for_a_name_in_a_variable() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let setup = variable(&dns, origin.port(), "");
    let kp = setup.main("worker_processes 4;").start();
    let time = Duration::from_secs(4);
    let clients: Vec<(usize, HashSet<u16>)> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| ask_for(&kp, "app.test", time)))
            .collect();
        asking
            .into_iter()
            .map(|asking| asking.join().unwrap())
            .collect()
    });
    for (asked, codes) in clients {
        assert!(asked > 20, "{asked}");
        assert_eq!(codes, HashSet::from([200]));
    }
    for kind in [A, AAAA] {
        let (count, densest) = (dns.count("app.test", kind), dns.densest("app.test", kind));
        assert!((3..=6).contains(&count), "{count}");
        assert!(densest <= 2, "{densest}");
    }
}

#[test]
fn good_addresses_of_a_name_in_a_variable_survive_too() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let setup = variable(&dns, origin.port(), "");
    let kp = setup.main("worker_processes 2;").start();
    assert_eq!(kp.get("/?name=app.test").text(), "one");
    let cases = [
        Reply::code(SERVFAIL),
        Reply::code(0),
        Reply::code(NXDOMAIN),
        Reply::silence(),
    ];
    for reply in cases {
        dns.set_all("app.test", &reply);
        let asked = dns.count("app.test", A);
        wait::until(wait::SOON, "two lookups", || {
            let start = Instant::now();
            assert_eq!(kp.get("/?name=app.test").text(), "one", "{reply:?}");
            assert!(start.elapsed() < Duration::from_millis(950), "{reply:?}");
            dns.count("app.test", A) > asked + 2
        });
    }
    kp.wait_error("app.test could not be resolved (2: Server failure), what it had stays in use");
}

#[test]
fn answers_from_elsewhere_are_not_listened_to() {
    let (one, _two) = two();
    let dns = Dns::start();
    let reply = Reply::addresses(&["127.0.0.1"]).after_spoofed("127.0.0.2");
    dns.set("app.test", A, reply.late(Duration::from_millis(20)));
    dns.set("app.test", AAAA, Reply::code(0));
    let kp = named(&dns, &one).with("RESOLVER", "valid=1s").start();
    wait::until(wait::SOON, "some lookups", || {
        assert_eq!(kp.get("/").text(), "one");
        dns.count("app.test", A) >= 4
    });
}

#[test]
fn aliases_in_circles_fail_at_once() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    dns.set_all("self.test", &Reply::alias("self.test"));
    dns.set_all("a.test", &Reply::alias("b.test"));
    dns.set_all("b.test", &Reply::alias("a.test"));
    let kp = variable(&dns, origin.port(), "").start();
    for name in ["self.test", "a.test"] {
        let start = Instant::now();
        assert_eq!(kp.get(&format!("/?name={name}")).status(), 502);
        assert!(start.elapsed() < Duration::from_millis(900), "{name}");
        kp.wait_error(&format!("{name} could not be resolved (2: Server failure)"));
    }
    assert!(dns.queries().len() < 50, "{}", dns.queries().len());
}

#[test]
fn the_longest_answer_byte_by_byte_is_cut_to_what_is_used() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    let addresses: Vec<String> = (0..4000)
        .map(|n| format!("127.0.{}.{}", n / 250, 1 + n % 250))
        .collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let reply = Reply::addresses(&addresses).only_tcp().bytewise();
    dns.set("app.test", A, reply.ttl(600));
    dns.set("app.test", AAAA, Reply::code(0));
    let kp = named(&dns, &origin).start();
    kp.wait_error("app.test has more addresses or hosts than are used");
    wait_body(&kp, "one");
}

#[test]
fn a_name_server_that_hangs_or_floods_holds_nothing_up() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    let hangs = Reply::addresses(&["127.0.0.1"]).only_tcp().hangs();
    dns.set("app.test", A, hangs);
    let kp = named(&dns, &origin).start();
    kp.wait_error("app.test could not be resolved (110: Operation timed out)");
    assert_eq!(kp.get("/").status(), 502);
    let many = process::descriptors(kp.worker_pid()).len();
    assert!(many < 40, "{many}");
    let flood = Reply::addresses(&["127.0.0.1"]).copies(5000);
    dns.set("app.test", A, flood);
    dns.set("app.test", AAAA, Reply::code(0).copies(5000));
    wait_body(&kp, "one");
    let asked = dns.count("app.test", A);
    wait::until(wait::SOON, "lookups after the flood", || {
        assert_eq!(kp.get("/").text(), "one");
        dns.count("app.test", A) > asked + 2
    });
}

#[test]
fn name_servers_that_are_down_at_the_start_are_found_when_they_are_up() {
    let origin = Origin::named("one");
    let address = Dns::start().address();
    let text = "http {
        resolver %DNS% 127.0.0.9:1 ipv6=off;
        upstream u { zone u 64k; server app.test:%PORT% resolve; }
        server { listen %LISTEN%; location / { proxy_pass http://u; } }
    }";
    let kp = Setup::new(text)
        .with("DNS", &address)
        .with("PORT", origin.port().to_string())
        .start();
    assert_eq!(kp.get("/").status(), 502);
    kp.wait_error("app.test could not be resolved (110: Operation timed out)");
    let dns = Dns::start_at(&address);
    dns.set_a("app.test", &["127.0.0.1"]);
    wait_body(&kp, "one");
}

#[test]
fn reloads_while_the_record_flaps_cost_nobody_anything() {
    let (one, _two) = two();
    let dns = Dns::start();
    dns.set_a("app.test", &["127.0.0.1"]);
    let kp = named(&dns, &one)
        .with("RESOLVER", "valid=1s")
        .main("worker_processes 2;")
        .start();
    wait_body(&kp, "one");
    let crowd = Crowd::start(&kp, 3);
    for turn in 0..30 {
        dns.set_a("app.test", &[["127.0.0.2", "127.0.0.1"][turn / 5 % 2]]);
        kp.signal(Signal::SIGHUP);
        wait::pause(Duration::from_millis(100));
    }
    let (asked, wrong, _) = crowd.stop();
    assert_eq!(wrong, [""; 0], "{asked} requests");
    assert!(asked > 50, "{asked}");
    let densest = dns.densest("app.test", A);
    assert!(densest <= 3, "{densest}");
}

#[test]
fn who_leaves_while_a_name_is_looked_up_leaves() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    dns.set_all("silent.test", &Reply::silence());
    let mut kp = variable(&dns, origin.port(), "").start();
    let mut client = kp.client();
    client.send("GET /?name=silent.test HTTP/1.1\r\nHost: t\r\n\r\n");
    wait::until(wait::SOON, "the query", || dns.count("silent.test", A) > 0);
    kp.signal(Signal::SIGQUIT);
    assert_eq!(client.response().status(), 502);
    assert_eq!(kp.wait_exit(Duration::from_secs(5)), 0);
}

/// Groups of one name each.
fn many(dns: &Dns, port: u16, count: usize) -> Setup {
    let groups: String = (0..count)
        .map(|n| format!("upstream u{n} {{ zone u{n} 64k; server n{n}.test:{port} resolve; }}\n"))
        .collect();
    let text = "http {
        resolver %DNS% ipv6=off;
        %HTTP%
        server { listen %LISTEN%; location / { proxy_pass http://u0; } location /ok { return 200 ok; } }
    }";
    Setup::new(text).with("DNS", dns.address()).http(&groups)
}

#[test]
fn five_hundred_names_that_are_silent_leave_room_for_clients() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    for n in 0..500 {
        dns.set(&format!("n{n}.test"), A, Reply::silence());
    }
    let kp = many(&dns, origin.port(), 500).start();
    kp.wait_error("n499.test could not be resolved (110");
    let sockets = process::descriptors(kp.worker_pid()).len();
    assert!(sockets < 560, "{sockets}");
    assert_eq!(kp.get("/ok").text(), "ok");
    for n in 0..500 {
        dns.set_a(&format!("n{n}.test"), &["127.0.0.1"]);
    }
    wait_body(&kp, "one");
    wait::until(wait::SOON, "their sockets to be closed", || {
        process::descriptors(kp.worker_pid()).len() < 100
    });
}

#[test]
fn five_hundred_names_of_a_second_are_little_work() {
    let origin = Origin::named("one");
    let dns = Dns::start();
    for n in 0..500 {
        dns.set_a(&format!("n{n}.test"), &["127.0.0.1"]);
    }
    let kp = many(&dns, origin.port(), 500).start();
    wait_body(&kp, "one");
    let worker = kp.worker_pid();
    let before = process::cpu_ticks(worker);
    wait::pause(Duration::from_secs(3));
    let ticks = process::cpu_ticks(worker) - before;
    assert!(ticks < 150, "{ticks} hundredths of a second in three");
    let most = (0..500)
        .map(|n| dns.densest(&format!("n{n}.test"), A))
        .max();
    assert!(most <= Some(2), "{most:?}");
    assert_eq!(kp.get("/").text(), "one");
}

/// Whoever asks for a name may be killed at it: the worker whose requests wait for the answer asks itself.
#[test]
fn a_worker_that_is_killed_while_it_asks_for_others_is_replaced() {
    let origin = Origin::named("one");
    let text = "worker_processes 2;
    http {
        resolver %DNS% ipv6=off;
        resolver_timeout 20s;
        server { listen %LISTEN%; location / { proxy_pass http://$arg_name:%PORT%; } }
    }";
    for victim in [0, 1] {
        let dns = Dns::start();
        dns.set_all("app.test", &Reply::silence());
        let kp = Setup::new(text)
            .with("DNS", dns.address())
            .with("PORT", origin.port().to_string())
            .allow("exited on signal 9")
            .start();
        let mut clients: Vec<Client> = (0..12).map(|_| kp.client()).collect();
        for client in &mut clients {
            client.send("GET /?name=app.test HTTP/1.1\r\nHost: t\r\n\r\n");
        }
        wait::until(wait::SOON, "the query", || dns.count("app.test", A) > 0);
        let pid = i32::try_from(kp.worker_pids()[victim]).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        dns.set_a("app.test", &["127.0.0.1"]);
        let answers = clients
            .iter_mut()
            .filter_map(|client| client.try_response("GET", wait::SOON).ok());
        for answer in answers {
            assert_eq!((answer.status(), answer.text()), (200, "one".to_owned()));
        }
        assert_eq!(kp.get("/?name=app.test").text(), "one");
        kp.wait_workers(2);
    }
}
