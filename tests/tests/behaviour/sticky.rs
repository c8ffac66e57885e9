//! Sessions that stay at their server: `sticky`, `route=`, `drain`.

use std::collections::BTreeMap;

use kp_tests::client::Client;
use kp_tests::{Kp, Origin, Port, Setup};

const TEXT: &str = "http { upstream u { %UPSTREAM% %SERVERS% }
    server { listen %LISTEN%; location / { proxy_pass http://u; %LOCATION% } } }";

fn origins(count: usize) -> Vec<Origin> {
    ('a'..)
        .take(count)
        .map(|name| Origin::named(&name.to_string()))
        .collect()
}

fn lines(origins: &[Origin], parameters: &[&str]) -> Vec<String> {
    origins
        .iter()
        .zip(parameters)
        .map(|(origin, parameters)| format!("server {} {parameters};", origin.address()))
        .collect()
}

fn setup(servers: &[String], upstream: &str) -> Setup {
    Setup::new(TEXT)
        .upstream(upstream)
        .with("SERVERS", servers.concat())
}

/// Asks with a Cookie field; the body and the cookie that was set.
fn ask(client: &mut Client, cookie: &str) -> (String, String) {
    let answer = client.ask(format!(
        "GET / HTTP/1.1\r\nHost: t\r\nCookie: {cookie}\r\n\r\n"
    ));
    assert_eq!(answer.status(), 200);
    let set = answer.field("set-cookie").unwrap_or_default().to_owned();
    (answer.text(), set)
}

/// Who answers a new session so often, in order.
fn newcomers(kp: &Kp, count: usize) -> String {
    (0..count).map(|_| kp.get("/").text()).collect()
}

/// Shows: sticky
#[test]
fn a_thousand_cookies_keep_their_peer_over_a_reload_and_another_order() {
    let origins = origins(4);
    let mut servers = lines(&origins, &["", "weight=2", "route=third", ""]);
    let sticky = "sticky cookie sid expires=1h path=/ httponly;";
    let kp = setup(&servers, sticky).start();
    let mut client = kp.client();
    let mut sessions = Vec::new();
    for n in 0..1000 {
        let (peer, set) = ask(&mut client, &format!("other={n}"));
        let cookie = set.split(';').next().expect("a cookie").to_owned();
        assert!(
            set.contains("; expires=") && set.ends_with("; max-age=3600; httponly; path=/"),
            "{set}"
        );
        sessions.push((cookie, peer));
    }
    let mut counts = BTreeMap::new();
    for (_, peer) in &sessions {
        *counts.entry(peer.as_str()).or_insert(0) += 1;
    }
    assert_eq!(
        counts.into_values().collect::<Vec<_>>(),
        [200, 400, 200, 200]
    );
    assert!(
        sessions
            .iter()
            .all(|(cookie, peer)| (cookie == "sid=third") == (peer == "c"))
    );
    servers.reverse();
    servers.push(format!(
        "server 127.0.0.1:{} backup;",
        Port::take().number()
    ));
    kp.configure(&setup(&servers, sticky));
    kp.reload();
    let mut client = kp.client();
    for (cookie, peer) in &sessions {
        let (now, set) = ask(&mut client, &format!("x=y; {cookie}"));
        assert_eq!(&now, peer);
        assert!(set.starts_with(cookie), "the cookie is set anew");
    }
}

#[test]
fn a_session_whose_peer_fails_moves() {
    let origins = origins(2);
    let dead = Port::take();
    let mut servers = lines(&origins, &["", ""]);
    servers.insert(0, format!("server 127.0.0.1:{} route=dead;", dead.number()));
    let kp = setup(&servers, "sticky cookie sid;").start();
    let mut client = kp.client();
    let (peer, set) = ask(&mut client, "sid=dead");
    assert_ne!(set, "sid=dead");
    for _ in 0..5 {
        assert_eq!(ask(&mut client, &set), (peer.clone(), set.clone()));
    }
    let (_, set) = ask(&mut client, "sid=garbage");
    assert!(set.starts_with("sid=") && set.len() == 36, "{set}");
}

#[test]
fn nobody_live_sets_no_cookie() {
    let origins = origins(1);
    let kp = setup(&lines(&origins, &["down"]), "sticky cookie sid;").start();
    let answer = kp.get("/");
    assert_eq!((answer.status(), answer.field("set-cookie")), (502, None));
}

#[test]
fn switching_protocols_sets_the_cookie_too() {
    let origin = Origin::start(|conversation| {
        conversation.head()?;
        conversation.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        )?;
        conversation.stall();
        Ok(())
    });
    let servers = vec![format!("server {} route=one;", origin.address())];
    let location = "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;";
    let kp = setup(
        &servers,
        "sticky cookie sid domain=$host secure samesite=$arg_mode;",
    )
    .location(location)
    .start();
    let mut client = kp.client();
    client.send(
        "GET /?mode=lax HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    );
    let head = client.head(kp_tests::wait::SOON).expect("a head");
    assert_eq!(head.status(), 101);
    assert_eq!(
        head.field("set-cookie"),
        Some("sid=one; domain=t; secure; samesite=lax")
    );
}

/// Shows: sticky, server
#[test]
fn routes_lead_to_their_server() {
    let origins = origins(3);
    let servers = lines(&origins, &["route=x", "route=y", ""]);
    let kp = setup(&servers, "sticky route $cookie_route $arg_route;").start();
    for _ in 0..3 {
        assert_eq!(kp.get("/?route=y").text(), "b");
        assert_eq!(kp.get("/?route=x").text(), "a");
    }
    let mut client = kp.client();
    let (peer, set) = ask(&mut client, "route=y");
    assert_eq!(
        (peer.as_str(), set.as_str()),
        ("b", ""),
        "the first value counts, and no cookie is set"
    );
    assert_eq!(
        newcomers(&kp, 6),
        "abcabc",
        "sessions do not move the round on"
    );
    assert_eq!(kp.get("/?route=none").text(), "a");
}

/// Shows: server
#[test]
fn a_draining_server_gets_only_its_own() {
    let origins = origins(3);
    let servers = lines(&origins, &["route=x drain", "route=y", "route=z"]);
    let kp = setup(&servers, "sticky route $arg_route;").start();
    assert_eq!(newcomers(&kp, 8), "bcbcbcbc");
    for _ in 0..4 {
        assert_eq!(kp.get("/?route=x").text(), "a");
    }
    let alone = setup(
        &lines(&origins[..1], &["route=x drain"]),
        "sticky route $arg_route;",
    )
    .start();
    assert_eq!(alone.get("/?route=x").text(), "a");
    assert_eq!(alone.get("/").status(), 502);
}

/// An origin that begins the session `sid=NAME` where it is asked for `/begin`.
fn beginning(name: &'static str) -> Origin {
    Origin::start(move |conversation| {
        conversation.answer_all(|request| {
            let cookie = if request.target() == "/begin" {
                format!("Set-Cookie: sid={name}\r\n")
            } else {
                String::new()
            };
            format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{cookie}\r\n{name}").into_bytes()
        })
    })
}

#[test]
fn sessions_are_learned_and_known_to_every_worker_and_generation() {
    let origins = ["a", "b", "c"].map(beginning);
    let servers: String = origins
        .iter()
        .map(|origin| format!("server {};", origin.address()))
        .collect();
    let sticky = "zone u 64k; sticky learn create=$upstream_cookie_sid lookup=$cookie_sid zone=s:1m timeout=1h;";
    let setup = |servers: &str| {
        Setup::new(&format!("worker_processes 3; {TEXT}"))
            .upstream(sticky)
            .with("SERVERS", servers)
    };
    let kp = setup(&servers).start();
    kp.wait_workers(3);
    assert_eq!(newcomers(&kp, 3), "abc");
    let get = |kp: &Kp, path: &str, cookie: &str| {
        let mut client = kp.client();
        let head = format!("GET {path} HTTP/1.1\r\nHost: t\r\nCookie: sid={cookie}\r\n\r\n");
        client.ask(head).text()
    };
    assert_eq!(get(&kp, "/", "b"), "a", "nobody knows it yet");
    assert_eq!(kp.get("/begin").text(), "b");
    let reversed: String = servers.split_inclusive(';').rev().collect();
    for round in 0..2 {
        for _ in 0..6 {
            assert_eq!(get(&kp, "/", "b"), "b", "round {round}");
        }
        kp.configure(&setup(&reversed));
        kp.reload();
    }
    let elsewhere: Vec<String> = (0..3).map(|_| get(&kp, "/", "other")).collect();
    assert_eq!(elsewhere.concat().len(), 3);
    assert!(elsewhere.iter().any(|peer| peer != "b"), "only its own");
}

/// nginx's words for what is wrong.
#[test]
fn what_is_no_stickiness_is_refused() {
    for (sticky, message) in [
        (
            "sticky cookie s samesite=foo;",
            "\"sticky\" directive invalid \"samesite\" parameter value",
        ),
        (
            "sticky cookie s expires=1x;",
            "\"sticky\" directive invalid \"expires\" parameter value",
        ),
        (
            "sticky cookie s max-age=1;",
            "unknown parameter \"max-age=1\"",
        ),
        (
            "sticky cookie s secure secure;",
            "\"sticky\" directive parameter \"secure\" is duplicate",
        ),
        ("sticky route a;", "invalid variable name \"a\""),
        (
            "sticky learn create=$arg_a lookup=$arg_b;",
            "\"sticky\" directive \"zone\" parameter is not specified",
        ),
        (
            "sticky learn create=a lookup=$arg_b zone=z:1m;",
            "\"sticky\" directive missing variable in the \"create\" parameter",
        ),
        (
            "sticky learn create=$arg_a lookup=$arg_b zone=z:1m timeout=0;",
            "\"sticky\" directive invalid timeout",
        ),
        (
            "sticky learn create=$arg_a lookup=$arg_b zone=z:1m zone=y:1m;",
            "\"sticky\" directive duplicate zone",
        ),
    ] {
        let checked = setup(&["server 127.0.0.1:1;".to_owned()], sticky).check();
        assert_eq!(checked.code, 1, "{sticky}");
        assert!(
            checked.stderr.contains(message),
            "{sticky}: {}",
            checked.stderr
        );
    }
}

#[test]
fn a_zone_of_sessions_belongs_to_one_group() {
    let learn = |size: &str| format!("sticky learn create=$arg_a lookup=$arg_b zone=z:{size};");
    let second = |text: &str| format!("}} upstream w {{ server 127.0.0.1:2; {text}");
    for (beside, message) in [
        (
            second(&learn("1m")),
            "sticky zone \"z\" is already used in upstream \"u\"",
        ),
        (
            second(&learn("2m")),
            "the size 2097152 of shared memory zone \"z\" conflicts with already declared size 1048576",
        ),
        (
            "} limit_req_zone $arg_a zone=z:1m rate=1r/s; upstream w { server 127.0.0.1:2;"
                .to_owned(),
            "the shared memory zone \"z\" is already declared for a different use",
        ),
    ] {
        let servers = vec!["server 127.0.0.1:1;".to_owned(), beside];
        let checked = setup(&servers, &learn("1m")).check();
        assert_eq!(checked.code, 1, "{message}");
        assert!(checked.stderr.contains(message), "{}", checked.stderr);
    }
}
