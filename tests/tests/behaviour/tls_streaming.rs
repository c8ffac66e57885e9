//! Bodies, tunnels and ends over TLS on both sides: whole ones arrive whole, and what was cut off is seen as cut off.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kp_tests::tls::{Acceptor, Authority, Connector};
use kp_tests::{Client, Conversation, End, Kp, Origin, Setup, origin, tool, wait};
use rustls::version::{TLS12, TLS13};

use crate::tls_site::{get, with_pair};

const SOON: Duration = Duration::from_secs(20);

const BOTH: &str = "%MAIN%
http {
    client_max_body_size 0;
    upstream o.test { server 127.0.0.1:%PORT%; keepalive 8; }
    server {
        listen %LISTEN% ssl;
        ssl_certificate a.test.crt;
        ssl_certificate_key a.test.key;
        location / {
            proxy_pass https://o.test; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_verify on; %LOCATION%
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_http_version 1.1;
        }
    }
}
";

fn both(
    authority: &Authority,
    script: impl Fn(&mut Conversation) -> io::Result<()> + Send + Sync + 'static,
) -> (Setup, Origin) {
    let origin = Origin::secure(&Acceptor::new(&authority.issue(&["o.test"])), script);
    let setup = with_pair(Setup::new(BOTH), "a.test", &authority.issue(&["a.test"]))
        .with("PORT", origin.port().to_string())
        .file("ca.pem", authority.pem());
    (setup, origin)
}

fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}

/// 20 MB up and down by curl, several at once, buffered and not.
#[test]
fn large_bodies_arrive_whole_both_ways() {
    let authority = Authority::default();
    for location in ["", "proxy_request_buffering off; proxy_buffering off;"] {
        let (setup, origin) = both(&authority, |conversation| {
            conversation.answer_all(|request| origin::response(200, &request.body))
        });
        let body = content(20_000_000);
        let kp = setup
            .with("LOCATION", location)
            .file("body", body.clone())
            .start();
        let to = format!("a.test:{}:127.0.0.1", kp.port());
        let url = format!("https://a.test:{}/", kp.port());
        let directory = kp.path("");
        std::thread::scope(|scope| {
            for version in ["1.2", "1.3", "1.3"] {
                let (to, url, directory, body) = (&to, &url, &directory, &body);
                scope.spawn(move || {
                    let arguments = [
                        "-sS",
                        "--cacert",
                        "ca.pem",
                        "--resolve",
                        to,
                        "--tls-max",
                        version,
                        "-H",
                        "Expect:",
                        "--data-binary",
                        "@body",
                        url,
                    ];
                    let told = tool::run(directory, "curl", &arguments, b"");
                    assert_eq!(
                        (told.code, told.stdout.len()),
                        (0, body.len()),
                        "{}",
                        told.stderr
                    );
                    assert!(told.stdout == *body);
                });
            }
        });
        assert_eq!(origin.requests().len(), 3);
    }
}

/// A request whose sender then says that nothing more comes is answered.
#[test]
fn a_request_before_the_end_is_answered() {
    let authority = Authority::default();
    for version in [&TLS12, &TLS13] {
        let (setup, _origin) = both(&authority, |conversation| {
            conversation.answer_all(|_| origin::OK.to_vec())
        });
        let kp = setup.start();
        let connector = Connector::version(&authority, "a.test", version);
        let mut client = Client::secure(&kp.address(), &connector);
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        let answer = client.response();
        assert_eq!((answer.status(), answer.end), (200, End::Complete));
        assert_eq!(client.end_within(SOON), End::Closed, "with close_notify");
    }
}

/// A body that is cut off is no whole body, whatever it would have been framed by.
#[test]
fn a_cut_off_request_reaches_no_upstream_as_whole() {
    let authority = Authority::default();
    let (setup, origin) = both(&authority, |conversation| {
        conversation.answer_all(|_| origin::OK.to_vec())
    });
    let kp = setup
        .with("LOCATION", "proxy_request_buffering off;")
        .start();
    let connector = Connector::new(&authority, "a.test");
    for (begin, notify) in [
        (
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nhalf",
            false,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nhalf",
            true,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            false,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            true,
        ),
    ] {
        let mut client = Client::secure(&kp.address(), &connector);
        client.send(begin);
        if notify {
            client.half_close();
        } else {
            client.cut();
        }
        let (answer, _) = client.read_to_end(SOON);
        assert!(
            !answer.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert_eq!(origin.requests().len(), 0);
    origin.wait_all_closed(SOON);
}

/// How a side of a tunnel ends is how the other one sees it end: close_notify as such, a bare FIN as a truncation.
#[test]
fn the_end_of_a_tunnel_is_passed_on_as_it_came() {
    let authority = Authority::default();
    for notify in [true, false] {
        let seen = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&seen);
        let (setup, _origin) = both(&authority, move |conversation| {
            conversation.request()?;
            let answer =
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
            conversation.send(answer)?;
            let end = conversation.read_at_least(1000).map(|_| ());
            *noted.lock().expect("nobody panics") = Some(end.map_err(|error| error.kind()));
            Ok(())
        });
        let kp = setup.start();
        let connector = Connector::new(&authority, "a.test");
        let mut client = Client::secure(&kp.address(), &connector);
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
        assert_eq!(client.head(SOON).expect("a head").status(), 101);
        client.send("some bytes");
        if notify {
            client.half_close();
        } else {
            client.cut();
        }
        let end = wait::until_some(SOON, "the end at the origin", || {
            seen.lock().expect("nobody panics").take()
        });
        let kind = end.expect_err("an end");
        // The harness tells a close_notify from a bare end of the socket by these kinds.
        if notify {
            assert_eq!(kind, io::ErrorKind::InvalidData);
        } else {
            assert_ne!(kind, io::ErrorKind::InvalidData, "a truncation");
        }
    }
}

/// The same from the upstream's side.
#[test]
fn the_end_of_the_upstream_of_a_tunnel_is_passed_on_as_it_came() {
    let authority = Authority::default();
    for notify in [true, false] {
        let (setup, _origin) = both(&authority, move |conversation| {
            conversation.request()?;
            let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nsome bytes";
            conversation.send(answer)?;
            if notify {
                conversation.half_close()?;
                conversation.read_to_end();
            }
            Ok(())
        });
        let kp = setup.start();
        let connector = Connector::new(&authority, "a.test");
        let mut client = Client::secure(&kp.address(), &connector);
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
        assert_eq!(client.head(SOON).expect("a head").status(), 101);
        let (bytes, end) = client.read_to_end(SOON);
        assert_eq!(bytes, b"some bytes");
        if notify {
            assert_eq!(end, End::Closed);
        } else {
            assert!(matches!(end, End::Cut | End::Reset), "{end:?}");
        }
    }
}

/// Uploads, downloads and new connections while generations and binaries change: nothing is lost.
#[test]
fn nothing_is_lost_on_reloads_and_upgrades_under_load() {
    let authority = Authority::default();
    let (setup, _origin) = both(&authority, |conversation| {
        conversation.answer_all(|request| origin::response(200, &request.body))
    });
    let mut kp = setup.main("worker_processes 2;").copied().start();
    kp.wait_workers(2);
    let connector = Connector::new(&authority, "a.test");
    let address = kp.address();
    let (asked, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (connector, address, asked, stop) = (&connector, &address, &asked, &stop);
            scope.spawn(move || {
                let body = content(1000 + number * 40_000);
                let head = format!(
                    "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let request = [head.as_bytes(), &body].concat();
                let mut client = Client::secure(address, connector);
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.ask(&request);
                    assert!(
                        answer.status() == 200 && answer.body == body,
                        "{:?}",
                        answer.head
                    );
                    asked.fetch_add(1, Ordering::Relaxed);
                    // Half of the clients connect anew each time, and wait for the end.
                    if answer.field("Connection") == Some("close") {
                        assert_eq!(client.end_within(SOON), End::Closed);
                        client = Client::secure(address, connector);
                    } else if number % 2 == 0 {
                        client = Client::secure(address, connector);
                    }
                }
            });
        }
        change_all(&mut kp, &asked);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(asked.into_inner() > 100);
}

/// Two reloads, a new binary, a reload of it.
fn change_all(kp: &mut Kp, asked: &AtomicUsize) {
    let more = |count: usize| {
        let before = asked.load(Ordering::Relaxed);
        wait::until(SOON, "answers", || {
            asked.load(Ordering::Relaxed) > before + count
        });
    };
    more(20);
    for _ in 0..2 {
        kp.reload();
        more(20);
    }
    let upgraded = kp.command(&["-s", "upgrade"]);
    assert_eq!(upgraded.code, 0, "{}", upgraded.stderr);
    kp.follow();
    more(20);
    kp.reload();
    more(20);
}

/// A kept connection of a client is kept by TLS, too: many requests, one handshake.
#[test]
fn pipelined_requests_are_answered_in_order() {
    let authority = Authority::default();
    let (setup, origin) = both(&authority, |conversation| {
        conversation.answer_all(|request| origin::response(200, request.target().as_bytes()))
    });
    let kp = setup.start();
    let mut client = Client::secure(&kp.address(), &Connector::new(&authority, "a.test"));
    let requests: String = (0..50)
        .map(|number| get("a.test").replace("GET /", &format!("GET /{number}")))
        .collect();
    client.send(requests);
    for number in 0..50 {
        assert_eq!(client.response().text(), format!("/{number}"));
    }
    assert!(origin.connections() <= 2, "{}", origin.connections());
}
