//! Access and error logs (case T04).

use std::time::Duration;

use kp_tests::wait::{self, SOON};
use kp_tests::{End, Origin, Port, Setup};

const JSON: &str = "log_format j escape=json '{\"ua\":\"$http_user_agent\",\"req\":\"$request\",\"st\":$status,\
    \"ut\":\"$upstream_response_time\",\"up\":\"$upstream_addr\",\"us\":\"$upstream_status\"}'; access_log json.log j;";

/// A head that was refused has no variables of the request that was in its place before, on whatever connection.
#[test]
fn a_refused_request_tells_nothing_of_another() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http(
            "log_format v '$status $server_protocol [$host] [$uri] [$args] [$proxy_host] [$upstream_addr] [$request_id]'; \
             access_log v.log v;",
        )
        .start();
    for (n, input) in [
        "GET /secret?token=1 HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n",
        "BAD\r\n\r\n",
        "GET /asked?a=b HTTP/1.1\r\nHost: t\r\nBad\0: 1\r\n\r\n",
    ]
    .iter()
    .enumerate()
    {
        let mut client = kp.client();
        client.send(input.as_bytes());
        client.read_to_end(SOON);
        wait::until(SOON, "a line of the log", || {
            kp.text("v.log").matches('\n').count() > n
        });
    }
    let text = kp.text("v.log");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("200 HTTP/1.1 [other.example] [/secret] [token=1] ["),
        "{text}"
    );
    let id = |line: &str| line.rsplit('[').next().map(str::to_owned);
    assert!(
        lines[1].contains("] [] [-] [-] [-] [") || lines[1].contains("] [-] [-] [-] [-] ["),
        "{text}"
    );
    assert!(
        lines[1].starts_with("400 - ["),
        "a line that was none has no protocol: {text}"
    );
    assert!(lines[2].contains("] [/asked] [a=b] [-] [-] ["), "{text}");
    assert!(lines[2].starts_with("400 HTTP/1.1 ["), "{text}");
    assert!(
        lines[1..].iter().all(|line| !line.contains("other")),
        "{text}"
    );
    assert!(
        id(lines[0]) != id(lines[1]) && id(lines[1]) != id(lines[2]),
        "{text}"
    );
}

/// Shows: log_format, access_log
#[test]
fn t04_a_json_log_survives_anything() {
    let origin = Origin::ok();
    let dead = Port::take();
    let kp = Setup::base(&origin)
        .with(
            "U1",
            format!("max_fails=0; server {} max_fails=0", dead.address()),
        )
        .server("error_page 502 /never;")
        .http(JSON)
        .start();
    let inputs: [&[u8]; 7] = [
        b"GET /1 HTTP/1.1\r\nHost: t\r\nUser-Agent: a\"b\\c\\td\r\nConnection: close\r\n\r\n",
        b"GET /2 HTTP/1.1\r\nHost: t\r\nUser-Agent: \xff\xfe\xc3\xa9\r\nConnection: close\r\n\r\n",
        b"GET /3 HTTP/1.1\r\nHost: t\r\nUser-Agent: x\x1b[31m\x01\r\nConnection: close\r\n\r\n",
        "GET /4 HTTP/1.1\r\nHost: t\r\nUser-Agent: \u{2028}\r\nConnection: close\r\n\r\n"
            .as_bytes(),
        b"GET /a\"b\\c%0a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\xff\r\n\r\n",
        b"GET /7 HTTP/1.1\r\nHost: t\r\nBad\0: 1\r\n\r\n",
    ];
    for (n, input) in inputs.iter().enumerate() {
        let mut client = kp.client();
        client.send(input);
        client.read_to_end(SOON);
        wait::until(SOON, "a line of the log", || {
            kp.text("json.log").matches('\n').count() > n
        });
    }
    let bytes = std::fs::read(kp.path("json.log")).expect("a log");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert_eq!(
        lines.len(),
        inputs.len(),
        "one line for each request: {text}"
    );
    assert!(
        text.bytes().all(|byte| byte == b'\n' || byte >= 0x20),
        "control bytes are escaped"
    );
    assert_eq!(lines[0]["ua"], "a\"b\\c\\td");
    assert_eq!(lines[4]["req"], "GET /a\"b\\c%0a HTTP/1.1");
    let retried = lines
        .iter()
        .find(|line| line["us"] == "502, 200")
        .expect("a request that was tried twice");
    let both = format!("{}, {}", dead.address(), origin.address());
    assert_eq!(retried["up"], both.as_str());
    assert_eq!(
        retried["ut"].as_str().expect("times").split(", ").count(),
        2
    );
}

#[test]
fn the_combined_format_is_the_default() {
    let origin = Origin::named("four");
    let kp = Setup::base(&origin).start();
    let request = "GET /a?b HTTP/1.1\r\nHost: t\r\nReferer: r\r\nUser-Agent: u\r\nAuthorization: Basic dXNlcjpwYXNz\r\n\r\n";
    assert_eq!(kp.client().ask(request).status(), 200);
    let line = kp.access_lines(1).remove(0);
    let (start, rest) = line.split_once(" [").expect("a time");
    assert_eq!(start, "127.0.0.1 - user");
    let (time, rest) = rest.split_once("] ").expect("the end of the time");
    assert_eq!(time.len(), "29/Nov/2026:23:59:59 +0000".len(), "{time}");
    assert_eq!(rest, "\"GET /a?b HTTP/1.1\" 200 4 \"r\" \"u\"");
}

/// Shows: access_log, map
#[test]
fn logs_by_condition_and_by_name() {
    let text = "http { map $arg_log $loggable { default 0; yes 1; } log_format short $uri;
        server { listen %LISTEN%; access_log if.log short if=$loggable; access_log all.log short; return 200; } }";
    let kp = Setup::new(text).start();
    kp.get("/a");
    kp.get("/b?log=yes");
    assert_eq!(kp.lines("all.log", 2), ["/a", "/b"]);
    assert_eq!(kp.lines("if.log", 1), ["/b"]);
    let text = "http { log_format short $uri; server { listen %LISTEN%; root %DIR%; access_log $arg_to.log short; return 200;
        location /off { access_log off; return 200; } } }";
    let kp = Setup::new(text).start();
    kp.get("/off");
    kp.get("/x?to=one");
    assert_eq!(kp.lines("one.log", 1), ["/x"]);
}

/// Shows: access_log
#[test]
fn a_buffered_log_is_written_when_its_time_comes() {
    let text = "http { log_format short $uri; server { listen %LISTEN%;
        access_log buffered.log short buffer=64k flush=3s; access_log plain.log short; return 200; } }";
    let kp = Setup::new(text).start();
    kp.get("/a");
    assert_eq!(
        kp.lines("plain.log", 1),
        ["/a"],
        "without a buffer a line is there at once"
    );
    assert_eq!(kp.text("buffered.log"), "");
    assert_eq!(kp.lines("buffered.log", 1), ["/a"]);
}

/// Shows: error_log
#[test]
fn error_logs_have_levels_and_places() {
    let dead = Port::take();
    let text =
        "error_log error.log info; http { upstream u { server %DEAD%; } server { listen %LISTEN%;
        location / { proxy_pass http://u; }
        location /own { error_log own.log error; proxy_pass http://u; }
        location /quiet { error_log quiet.log crit; proxy_pass http://u; } } }";
    let kp = Setup::new(text).with("DEAD", dead.address()).start();
    kp.get("/");
    kp.wait_error("Connection refused");
    let line = kp.error_log();
    let line = line
        .lines()
        .find(|line| line.contains("Connection refused"))
        .expect("a line");
    for part in [
        "[error]",
        "client: 127.0.0.1",
        "request: \"GET / HTTP/1.1\"",
        "host: \"t\"",
        &dead.address(),
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    kp.get("/own");
    wait::until(SOON, "a line in the location's log", || {
        kp.text("own.log").contains("[error]")
    });
    kp.get("/quiet");
    kp.access_lines(3);
    assert_eq!(kp.text("quiet.log"), "");
}

/// Shows: access_log, error_log
#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let text = "error_log error.log info; http { access_log /dev/full; server { listen %LISTEN%; return 200; } }";
    let kp = Setup::new(text)
        .allow("/dev/full")
        .allow("No space left")
        .start();
    let mut client = kp.client();
    for _ in 0..200 {
        assert_eq!(
            client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status(),
            200
        );
    }
    wait::until(SOON, "an alert", || kp.error_log().contains("[alert]"));
    wait::pause(Duration::from_millis(200));
    let alerts = kp
        .error_log()
        .lines()
        .filter(|line| line.contains("[alert]"))
        .count();
    assert_eq!(alerts, 1, "one a minute");
}

#[test]
fn variables_of_a_request_and_its_response() {
    let origin =
        Origin::replying("HTTP/1.1 200 OK\r\nX-Behind: b\r\nContent-Length: 10\r\n\r\n0123456789");
    let format = "$request_method|$uri|$args|$arg_a|$host|$server_port|$server_addr|$remote_addr|$scheme|$status|\
        $body_bytes_sent|$request_length|$request_completion|$http_x_a|$cookie_c|$sent_http_x_behind|\
        $upstream_http_x_behind|$upstream_status|$upstream_addr|$server_protocol|$connection_requests";
    let kp = Setup::base(&origin)
        .http(&format!("log_format v '{format}'; access_log v.log v;"))
        .start();
    let request =
        "GET /p/../q%41?a=1&b HTTP/1.1\r\nHost: Some.Test:5\r\nX-A: x\r\nCookie: b=1; c=2\r\n\r\n";
    assert_eq!(kp.client().ask(request).status(), 200);
    let line = kp.lines("v.log", 1).remove(0);
    let expected = format!(
        "GET|/qA|a=1&b|1|some.test|{}|127.0.0.1|127.0.0.1|http|200|10|{}|OK|x|2|b|b|200|{}|HTTP/1.1|1",
        kp.port(),
        request.len(),
        origin.address()
    );
    assert_eq!(line, expected);
    let times =
        "$request_time|$msec|$time_iso8601|$upstream_response_time|$request_id|$pid|$bytes_sent";
    let kp = Setup::base(&origin)
        .http(&format!("log_format v '{times}'; access_log v.log v;"))
        .start();
    kp.get("/");
    let line = kp.lines("v.log", 1).remove(0);
    let parts: Vec<&str> = line.split('|').collect();
    assert!(
        parts[0].parse::<f64>().is_ok_and(|time| time < 5.0),
        "{line}"
    );
    assert!(
        parts[1]
            .parse::<f64>()
            .is_ok_and(|time| time > 1_700_000_000.0),
        "{line}"
    );
    assert_eq!(parts[2].len(), "2026-11-29T23:59:59+00:00".len(), "{line}");
    assert!(parts[3].parse::<f64>().is_ok(), "{line}");
    assert!(
        parts[4].len() == 32 && parts[4].bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{line}"
    );
    assert_eq!(parts[5], kp.worker_pid().to_string());
    assert!(
        parts[6].parse::<usize>().is_ok_and(|bytes| bytes > 100),
        "{line}"
    );
}

/// One line for each request that was begun, also where the client broke it off; none for a connection that sent nothing.
#[test]
fn every_request_that_was_begun_has_its_line() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("log_format s '$status [$request] $request_length'; access_log s.log s;")
        .start();
    let cut = |bytes: &str| {
        let mut client = kp.client();
        client.send(bytes);
        client.half_close();
        client.read_to_end(SOON);
    };
    cut("");
    cut("GET / HT");
    cut("GET /half HTTP/1.1\r\nHost: t\r\n");
    cut("POST /length HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc");
    cut("POST /chunk HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n4\r");
    cut("GET /kept HTTP/1.1\r\nHost: t\r\n\r\nGET /se");
    wait::until(SOON, "the lines", || {
        kp.text("s.log").matches('\n').count() >= 5
    });
    wait::pause(Duration::from_millis(100));
    let log = kp.text("s.log");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "400 [GET / HT] 8");
    assert_eq!(lines[1], "400 [GET /half HTTP/1.1] 29");
    assert!(lines[2].starts_with("400 [POST /length HTTP/1.1]"), "{log}");
    assert!(lines[3].starts_with("400 [POST /chunk HTTP/1.1]"), "{log}");
    assert!(lines[4].contains("[GET /kept HTTP/1.1]"), "{log}");
}

/// As with nginx: who has seen the end of its connection finds its request in the log.
#[test]
fn a_line_is_in_the_log_before_the_connection_ends() {
    let kp = Setup::new(
        "worker_processes 1;
        http {
            log_format n $arg_n; access_log n.log n;
            server { listen %LISTEN%; location / { return 200; } location /cut { return 444; } }
        }
        ",
    )
    .start();
    std::thread::scope(|scope| {
        for client in 0..4 {
            let kp = &kp;
            scope.spawn(move || {
                for round in 0..50 {
                    let n = format!("{client}-{round}");
                    let path = if round % 5 == 0 { "cut" } else { "" };
                    let request = format!(
                        "GET /{path}?n={n} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
                    );
                    let mut client = kp.client();
                    client.send(request);
                    assert_eq!(client.read_to_end(SOON).1, End::Closed);
                    let log = kp.text("n.log");
                    assert!(log.lines().any(|line| line == n), "{n} in {log}");
                }
            });
        }
    });
}
