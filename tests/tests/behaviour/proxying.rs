//! How upstream connections are made and what is sent over them.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use kp_tests::wait;
use kp_tests::{Origin, Setup, process};

/// Shows: proxy_bind
#[test]
fn connections_come_from_the_bound_address() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        let peer = conversation.peer_ip();
        conversation.send(kp_tests::origin::response(200, peer.as_bytes()))
    });
    let text = "http { upstream u { server %U1%; } server { listen %LISTEN%;
        location / { proxy_pass http://u; }
        location /bound { proxy_bind 127.0.0.9; proxy_pass http://u; }
        location /variable { proxy_bind $arg_from; proxy_pass http://u; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    assert_eq!(kp.get("/").text(), "127.0.0.1");
    assert_eq!(kp.get("/bound").text(), "127.0.0.9");
    assert_eq!(kp.get("/variable?from=127.0.0.8").text(), "127.0.0.8");
}

/// An address of the other family, or one that this machine does not have, says nothing about the peer: it is not passed
/// over by others afterwards, and a peer that can be reached is found.
#[test]
fn no_peer_is_blamed_for_a_local_address_that_does_not_do() {
    let origin = Origin::ok();
    let text = "http { upstream u { server %U1% max_fails=1 fail_timeout=1h; }
        upstream mixed { server [::1]:1 max_fails=1 fail_timeout=1h; server %U1%; }
        server { listen %LISTEN%;
        location / { proxy_pass http://u; }
        location /family { proxy_bind [::1]; proxy_pass http://u; }
        location /nobodys { proxy_bind 192.0.2.77; proxy_pass http://u; }
        location /mixed { proxy_bind 127.0.0.1; proxy_pass http://mixed; } } }";
    let kp = Setup::new(text).with("U1", origin.address()).start();
    for _ in 0..2 {
        assert_eq!(kp.get("/family").status(), 502);
        assert_eq!(kp.get("/nobodys").status(), 502);
        assert_eq!(kp.get("/mixed").status(), 200);
        assert_eq!(kp.get("/").status(), 200);
    }
    assert!(!kp.error_log().contains("temporarily disabled"));
}

#[test]
fn unix_sockets_are_upstreams() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("origin.sock");
    let listener = UnixListener::bind(&path).expect("listening");
    open_to_all(directory.path());
    open_to_all(&path);
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !seen.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut buffer).expect("reading");
            seen.extend_from_slice(&buffer[..count]);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nux")
            .expect("writing");
        String::from_utf8_lossy(&seen).into_owned()
    });
    let text = format!(
        "http {{ server {{ listen %LISTEN%; location /a/ {{ proxy_pass http://unix:{}:/b/; }} }} }}",
        path.display()
    );
    let kp = Setup::new(&text).start();
    assert_eq!(kp.get("/a/x").text(), "ux");
    let seen = served.join().expect("the origin");
    assert!(
        seen.starts_with("GET /b/x HTTP/1.1\r\n") && seen.contains("Host: localhost\r\n"),
        "{seen}"
    );
}

fn open_to_all(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))
        .expect("changing permissions");
}

/// Socket options of the worker's connections, as `ss -o` prints timers of them.
fn keepalive_timers(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("reading /proc/net/tcp");
    let remote = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            // Remote address, state established, and a timer of kind 2, which is keep-alive.
            words.len() > 5
                && words[2].ends_with(&remote)
                && words[3] == "01"
                && words[5].starts_with("02:")
        })
        .count()
}

/// Shows: proxy_socket_keepalive
#[test]
fn upstream_connections_probe_their_peer() {
    for (setting, expected) in [("off", 0), ("on", 1)] {
        let origin = Origin::ok();
        let kp = Setup::base(&origin)
            .location(&format!("proxy_socket_keepalive {setting};"))
            .start();
        assert_eq!(kp.get("/").status(), 200);
        assert_eq!(origin.open_connections(), 1);
        wait::until(wait::SOON, "the timer", || {
            keepalive_timers(origin.port()) == expected
        });
    }
}

/// Shows: client_body_in_file_only
#[test]
fn bodies_can_be_left_in_files() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("client_body_temp_path bodies;")
        .location("client_body_in_file_only on;")
        .start();
    let answer = kp
        .client()
        .ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(answer.status(), 200);
    assert_eq!(origin.last().body, b"hello");
    let files: Vec<_> = std::fs::read_dir(kp.path("bodies"))
        .expect("the directory")
        .flatten()
        .collect();
    assert_eq!(files.len(), 1);
    assert_eq!(std::fs::read(files[0].path()).expect("a body"), b"hello");
}

#[test]
fn the_head_of_a_request_is_what_nginx_sends() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin).start();
    let request =
        "GET /p?q HTTP/1.1\r\nHost: t:1\r\nUser-Agent: u\r\nAccept: */*\r\nX-Case: MiXed\r\n\r\n";
    assert_eq!(kp.client().ask(request).status(), 200);
    let expected =
        "GET /p?q HTTP/1.1\r\nHost: u\r\nUser-Agent: u\r\nAccept: */*\r\nX-Case: MiXed\r\n\r\n";
    assert_eq!(origin.raw_text(), expected);
}

#[test]
fn workers_close_what_is_not_theirs() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin).main("worker_processes 2;").start();
    kp.wait_workers(2);
    for worker in kp.worker_pids() {
        let sockets: std::collections::BTreeSet<String> = process::descriptors(worker)
            .into_iter()
            .map(|(_, target)| target)
            .filter(|target| target.starts_with("socket:"))
            .collect();
        // Its own listening socket, the channel to the master, and the pair that signals arrive through.
        assert!(sockets.len() <= 4, "{:?}", process::descriptors(worker));
    }
}
