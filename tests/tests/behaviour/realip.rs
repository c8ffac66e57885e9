//! Who the client is by the word of a trusted proxy (case T02).

use kp_tests::{Kp, Origin, Setup};

/// A server that says whom it takes the client for: `/` by the last address, `/r/` by the first that is not trusted.
fn site(directives: &str) -> Kp {
    Setup::new(&format!(
        "http {{ server {{ listen %LISTEN%; {directives}
            location / {{ add_header X-Client \"$remote_addr|$remote_port|$realip_remote_addr\"; root html; }}
            location /r/ {{ real_ip_recursive on;
                add_header X-Client \"$remote_addr|$remote_port|$realip_remote_addr\"; root html; }} }} }}"
    ))
    .file("html/index.html", "last")
    .file("html/r/index.html", "first")
    .start()
}

/// What kp takes the sender of these fields for: address and port.
fn client(kp: &Kp, path: &str, fields: &str) -> String {
    let request = format!("GET {path}index.html HTTP/1.1\r\nHost: t\r\n{fields}\r\n");
    let answer = kp.client().ask(&request);
    assert_eq!(answer.status(), 200, "{request}");
    let told = answer.field("x-client").unwrap().to_owned();
    let (client, connected) = told.rsplit_once('|').unwrap();
    assert_eq!(connected, "127.0.0.1", "{request}");
    client.to_owned()
}

fn address(kp: &Kp, path: &str, fields: &str) -> String {
    let told = client(kp, path, fields);
    told.split('|').next().unwrap().to_owned()
}

/// Shows: set_real_ip_from, real_ip_header
#[test]
fn t02_the_word_of_a_trusted_proxy() {
    let last = site("real_ip_header X-Forwarded-For; set_real_ip_from 127.0.0.0/8;");
    let first =
        site("real_ip_header X-Forwarded-For; set_real_ip_from 127.0.0.0/8; real_ip_recursive on;");
    for (fields, recursive, plain) in [
        (
            "X-Forwarded-For: 6.6.6.6, 203.0.113.7, 127.0.0.5\r\n",
            "203.0.113.7",
            "127.0.0.5",
        ),
        (
            "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 203.0.113.7\r\n",
            "203.0.113.7",
            "203.0.113.7",
        ),
        (
            "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 127.0.0.7\r\n",
            "6.6.6.6",
            "127.0.0.7",
        ),
        (
            "X-Forwarded-For: 203.0.113.7:4444\r\n",
            "203.0.113.7",
            "203.0.113.7",
        ),
        (
            "X-Forwarded-For: [2001:db8::1]:443\r\n",
            "2001:db8::1",
            "2001:db8::1",
        ),
        ("X-Forwarded-For: junk\r\n", "127.0.0.1", "127.0.0.1"),
        (
            "X-Forwarded-For: 6.6.6.6, junk, 127.0.0.5\r\n",
            "127.0.0.5",
            "127.0.0.5",
        ),
        (
            "X-Forwarded-For: 127.0.0.9, 127.0.0.8\r\n",
            "127.0.0.9",
            "127.0.0.8",
        ),
        ("X-Forwarded-For: \r\n", "127.0.0.1", "127.0.0.1"),
        (
            "X-Forwarded-For: unknown, 203.0.113.7\r\n",
            "203.0.113.7",
            "203.0.113.7",
        ),
        (
            "X-Forwarded-For: 203.0.113.7,\r\n",
            "203.0.113.7",
            "203.0.113.7",
        ),
        ("", "127.0.0.1", "127.0.0.1"),
        ("X-Real-IP: 203.0.113.7\r\n", "127.0.0.1", "127.0.0.1"),
        ("X_Forwarded_For: 203.0.113.7\r\n", "127.0.0.1", "127.0.0.1"),
    ] {
        assert_eq!(
            address(&first, "/", fields),
            recursive,
            "recursive: {fields:?}"
        );
        assert_eq!(
            address(&last, "/", fields),
            plain,
            "not recursive: {fields:?}"
        );
    }
    let told = client(&last, "/", "X-Forwarded-For: 203.0.113.7:4444\r\n");
    assert_eq!(told, "203.0.113.7|4444");
    let told = client(&last, "/", "X-Forwarded-For: 203.0.113.7\r\n");
    assert_eq!(told, "203.0.113.7|", "no port was named");
}

#[test]
fn nobody_else_is_believed() {
    let kp = site(
        "real_ip_header X-Forwarded-For; set_real_ip_from 192.0.2.0/24; set_real_ip_from unix:;",
    );
    assert_eq!(
        address(&kp, "/", "X-Forwarded-For: 203.0.113.7\r\n"),
        "127.0.0.1"
    );
    let kp = site("real_ip_header X-Forwarded-For;");
    assert_eq!(
        address(&kp, "/", "X-Forwarded-For: 203.0.113.7\r\n"),
        "127.0.0.1"
    );
}

#[test]
fn each_request_of_a_connection_says_for_itself() {
    let kp = site("set_real_ip_from 127.0.0.1;");
    let mut client = kp.client();
    for (field, expected) in [
        ("X-Real-IP: 203.0.113.7\r\n", "203.0.113.7||127.0.0.1"),
        ("X-Real-IP: 2001:db8::7\r\n", "2001:db8::7||127.0.0.1"),
    ] {
        let answer = client.ask(format!(
            "GET /index.html HTTP/1.1\r\nHost: t\r\n{field}\r\n"
        ));
        assert_eq!(answer.field("x-client"), Some(expected));
    }
    let port = client.local_address().port();
    let answer = client.ask("GET /index.html HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(
        answer.field("x-client").unwrap(),
        format!("127.0.0.1|{port}|127.0.0.1")
    );
}

/// Shows: real_ip_recursive
#[test]
fn a_location_may_trust_others_than_the_server() {
    let both = "X-Forwarded-For: 203.0.113.7, 127.0.0.5\r\n";
    // The server's level has been asked before the location is known, as in nginx.
    let kp = site("real_ip_header X-Forwarded-For; set_real_ip_from 127.0.0.0/8;");
    assert_eq!(address(&kp, "/r/", both), "127.0.0.5");
    let kp = Setup::new(
        "http { server { listen %LISTEN%; real_ip_header X-Forwarded-For; root html;
            location /r/ { set_real_ip_from localhost; set_real_ip_from 127.0.0.5; real_ip_recursive on;
                add_header X-Client \"$remote_addr|$remote_port|$realip_remote_addr\"; } } }",
    )
    .file("html/r/index.html", "first")
    .start();
    assert_eq!(address(&kp, "/r/", both), "203.0.113.7");
}

#[test]
fn the_elements_of_forwarded_are_a_list() {
    let kp = site("real_ip_header Forwarded; set_real_ip_from 127.0.0.0/8; real_ip_recursive on;");
    for (fields, expected) in [
        (
            "Forwarded: for=203.0.113.7;proto=https, for=127.0.0.5\r\n",
            "203.0.113.7|",
        ),
        (
            "Forwarded: for=6.6.6.6\r\nForwarded: by=x;For=\"[2001:db8::1]:443\"\r\n",
            "2001:db8::1|443",
        ),
        (
            "Forwarded: for=6.6.6.6, for=unknown, for=127.0.0.5\r\n",
            "127.0.0.5|",
        ),
    ] {
        assert_eq!(client(&kp, "/", fields), expected, "{fields:?}");
    }
}

#[test]
fn the_client_is_passed_on_and_logged() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("log_format who '$remote_addr $realip_remote_addr $realip_remote_port'; access_log who.log who;")
        .server(
            "set_real_ip_from 127.0.0.1; real_ip_header CF-Connecting-IP;
             proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        )
        .start();
    let mut client = kp.client();
    let answer = client.ask(
        "GET / HTTP/1.1\r\nHost: t\r\ncf-connecting-ip: 203.0.113.7\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n",
    );
    assert_eq!(answer.status(), 200);
    assert_eq!(origin.last().field("x-real-ip"), Some("203.0.113.7"));
    assert_eq!(
        origin.last().field("x-forwarded-for"),
        Some("203.0.113.7, 203.0.113.7"),
        "as nginx: the client is named twice and the proxy not at all"
    );
    let port = client.local_address().port();
    assert_eq!(
        kp.lines("who.log", 1),
        [format!("203.0.113.7 127.0.0.1 {port}")]
    );
}

/// One list decides who the client is and what of the chain is passed on; fields cannot be taken away by
/// `Connection`, nor slipped in under another spelling.
#[test]
fn the_chain_is_that_of_those_who_are_trusted() {
    let origin = Origin::ok();
    let sent = "GET / HTTP/1.1\r\nHost: t\r\nConnection: X-Forwarded-Proto, X-Real-IP\r\n\
        X-Forwarded-For: 6.6.6.6, 203.0.113.7\r\nX-Forwarded-Proto: https\r\nX-Real-IP: 6.6.6.6\r\n\
        Forwarded: for=203.0.113.7;proto=https\r\nX-Request-Id: abc\r\nX_Forwarded_For: 1.1.1.1\r\nX.Real.Ip: 2.2.2.2\r\n\r\n";
    for (trusted, mode, chain, element, id_kept) in [
        (
            "127.0.0.1",
            "append",
            "6.6.6.6, 203.0.113.7, 127.0.0.1",
            "for=203.0.113.7;proto=https, for=127.0.0.1;host=t;proto=http",
            true,
        ),
        (
            "127.0.0.1",
            "edge",
            "203.0.113.7",
            "for=203.0.113.7;host=t;proto=http",
            true,
        ),
        (
            "10.0.0.0/8",
            "append",
            "127.0.0.1",
            "for=127.0.0.1;host=t;proto=http",
            false,
        ),
        (
            "10.0.0.0/8",
            "edge",
            "127.0.0.1",
            "for=127.0.0.1;host=t;proto=http",
            false,
        ),
    ] {
        let kp = Setup::base(&origin)
            .http(&format!("proxy_forwarding {mode};"))
            .server(&format!(
                "set_real_ip_from {trusted}; real_ip_header X-Forwarded-For; real_ip_recursive on;
                 proxy_set_header X-Real-IP $remote_addr;"
            ))
            .start();
        assert_eq!(kp.client().ask(sent).status(), 200);
        let heard = origin.last();
        let what = format!("{trusted} {mode}");
        assert_eq!(heard.field("x-forwarded-for"), Some(chain), "{what}");
        assert_eq!(heard.field("forwarded"), Some(element), "{what}");
        assert_eq!(heard.field("x-forwarded-proto"), Some("http"), "{what}");
        assert_eq!(
            heard.field("x-request-id") == Some("abc"),
            id_kept,
            "{what}"
        );
        let real = if trusted == "127.0.0.1" {
            "203.0.113.7"
        } else {
            "127.0.0.1"
        };
        assert_eq!(heard.head.all("x-real-ip"), [real], "{what}");
        assert_eq!(heard.field("x_forwarded_for"), None, "{what}");
        assert_eq!(heard.field("x.real.ip"), None, "{what}");
    }
}

/// With a PROXY header the request comes from whom that names: its fields are those of a client.
#[test]
fn what_passes_connections_on_vouches_for_no_fields() {
    let origin = Origin::ok();
    for (trusted, chain) in [
        ("127.0.0.1", "203.0.113.7"),
        (
            "127.0.0.1; set_real_ip_from 203.0.113.0/24",
            "6.6.6.6, 203.0.113.7",
        ),
    ] {
        let kp = Setup::new(
            "http { server { listen %LISTEN% proxy_protocol; set_real_ip_from %TRUSTED%; real_ip_header proxy_protocol;
                proxy_forwarding append; location / { proxy_pass http://%U1%; } } }",
        )
        .with("U1", origin.address())
        .with("TRUSTED", trusted)
        .start();
        let mut client = kp.client();
        client.send("PROXY TCP4 203.0.113.7 127.0.0.1 1 2\r\n");
        client.ask("GET / HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n");
        assert_eq!(
            origin.last().field("x-forwarded-for"),
            Some(chain),
            "{trusted}"
        );
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (directive, words) in [
        (
            "set_real_ip_from 10.0.0.0/33;",
            "invalid parameter \"10.0.0.0/33\"",
        ),
        ("set_real_ip_from 10.0.0;", "invalid parameter \"10.0.0\""),
        (
            "set_real_ip_from nosuch.invalid;",
            "host not found in set_real_ip_from \"nosuch.invalid\"",
        ),
        ("real_ip_recursive maybe;", "it must be \"on\" or \"off\""),
        ("real_ip_header \"a b\";", "invalid header name \"a b\""),
    ] {
        let checked = Setup::new(&format!(
            "http {{ {directive} server {{ listen %LISTEN%; }} }}"
        ))
        .check();
        assert_eq!(checked.code, 1, "{directive}");
        assert!(
            checked.stderr.contains(words),
            "{directive}: {}",
            checked.stderr
        );
    }
    let checked =
        Setup::new("http { set_real_ip_from 10.1.2.3/8; server { listen %LISTEN%; } }").check();
    assert_eq!(checked.code, 0);
    assert!(
        checked
            .stderr
            .contains("low address bits of 10.1.2.3/8 are meaningless")
    );
}

/// What a client sends takes nothing of what the trusted proxy behind it adds, on the same line or on its own.
#[test]
fn a_quote_left_open_hides_nobody() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("log_format who '$remote_addr'; access_log who.log who; proxy_forwarding append;")
        .server("set_real_ip_from 127.0.0.1; real_ip_header Forwarded; real_ip_recursive on;")
        .start();
    for (count, fields) in [
        "Forwarded: for=6.6.6.6;x=\", for=203.0.113.7",
        "Forwarded: for=6.6.6.6;x=\"\r\nForwarded: for=203.0.113.7",
        "Forwarded: for=6.6.6.6;x=\", for=\"203.0.113.7:_hidden\"",
    ]
    .iter()
    .enumerate()
    {
        kp.client()
            .ask(format!("GET / HTTP/1.1\r\nHost: t\r\n{fields}\r\n\r\n"));
        let lines = kp.lines("who.log", count + 1);
        assert_eq!(lines[count], "203.0.113.7", "{fields}");
        let heard = origin.last();
        let passed_on = heard.field("forwarded").unwrap_or_default();
        let quotes = passed_on.matches('"').count();
        assert!(quotes.is_multiple_of(2), "{passed_on}");
        assert!(passed_on.ends_with("for=127.0.0.1;host=t;proto=http"));
    }
}

/// A list of ten thousand addresses is walked once and ends where the word of nobody is taken.
/// Shows: real_ip_recursive
#[test]
fn long_lists_are_walked() {
    let kp = Setup::new(
        "http { log_format who '$remote_addr'; access_log who.log who;
         server { listen %LISTEN%; large_client_header_buffers 4 256k; client_header_buffer_size 256k;
         set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For;
         real_ip_recursive on; location / { return 204; } } }",
    )
    .start();
    let trusted = "10.1.2.3, ".repeat(10_000);
    let mut client = kp.client();
    let firsts = [("203.0.113.7", "203.0.113.7"), ("junk", "10.1.2.3")];
    for (count, (first, found)) in firsts.into_iter().enumerate() {
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: {first}, {trusted}10.0.0.1\r\n\r\n"
        ));
        assert_eq!(client.response().status(), 204);
        assert_eq!(kp.lines("who.log", count + 1)[count], found);
    }
}

/// Whom a proxy names decides the server.
/// Shows: ip_hash
#[test]
fn the_hash_is_of_the_client() {
    let origins: Vec<Origin> = (0..3).map(|_| Origin::ok()).collect();
    let servers: String = origins
        .iter()
        .map(|origin| format!("server {}; ", origin.address()))
        .collect();
    let kp = Setup::new(&format!(
        "http {{ upstream u {{ ip_hash; {servers} }} server {{ listen %LISTEN%; set_real_ip_from 127.0.0.1;
         location / {{ proxy_pass http://u; }} }} }}"
    ))
    .start();
    let mut client = kp.client();
    let mut counts = |address: &str| {
        let before: Vec<usize> = origins.iter().map(|one| one.requests().len()).collect();
        for _ in 0..3 {
            let request = format!("GET / HTTP/1.1\r\nHost: t\r\nX-Real-IP: {address}\r\n\r\n");
            assert_eq!(client.ask(request).status(), 200);
        }
        let after = origins.iter().map(|one| one.requests().len());
        let gained: Vec<usize> = after.zip(before).map(|(now, then)| now - then).collect();
        let chosen = gained.iter().position(|count| *count == 3);
        chosen.expect("one server for one client")
    };
    let chosen: std::collections::BTreeSet<usize> = (0..20)
        .map(|net| counts(&format!("203.0.{net}.7")))
        .collect();
    assert!(chosen.len() > 1, "several servers for several clients");
}
