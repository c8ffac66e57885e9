//! Why kp answers by itself or ends what it began: the same words in the access log, in a header and in the error log.

use std::collections::BTreeSet;

use kp_tests::incident::{CASES, Does, Incident};
use kp_tests::metrics::Metrics;
use kp_tests::origin::response;
use kp_tests::wait::{self, SOON};
use kp_tests::{Kp, Origin, Port, Request, Response, Setup};
use nix::sys::signal::Signal;

/// Every case of the incident, one after the other at one kp.
#[test]
fn every_end_has_its_reason() {
    let incident = Incident::default();
    let kp = incident.setup().start();
    for case in CASES {
        let said_before = kp.error_log().len();
        let outcome = incident.happen(&kp, case);
        let (path, reason) = (case.path, case.reason);
        let expected = format!(
            "{}|{}|{reason}|{}",
            case.status, case.upstream_status, case.detail
        );
        assert_eq!(outcome.line, expected, "{path}");
        if let Some(response) = &outcome.response {
            // A head that was sent before anything went wrong knows nothing of it.
            let told = response.field("X-Kp-Reason");
            let known = (reason != "-" && case.upstream_status != "200").then_some(reason);
            let known = known.or((path == "/accel").then_some(reason));
            assert_eq!(told, known, "{path}");
        }
        // Of a head that did not come, or not well, the path is not known.
        let named = |line: &str| line.contains(path) || matches!(case.does, Does::Send(_));
        let said = |line: &str| line.contains(case.error) && named(line);
        if !case.error.is_empty() {
            wait::until(SOON, &format!("{:?} about {path}", case.error), || {
                kp.error_log()
                    .get(said_before..)
                    .is_some_and(|log| log.lines().any(said))
            });
        }
    }
}

/// What the origin got of a field, for every request: the values of its lines.
fn got(origin: &Origin, name: &str) -> Vec<Vec<String>> {
    let requests = origin.requests();
    let values = |request: &Request| {
        let values = request.head.all(name);
        values.into_iter().map(str::to_owned).collect()
    };
    requests.iter().map(values).collect()
}

/// Asks with these lines in the head.
fn ask(kp: &Kp, path: &str, lines: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n{lines}\r\n");
    kp.client().ask(request)
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Shows: request_id_header
#[test]
fn a_request_id_is_taken_from_who_is_trusted() {
    let origin = Origin::ok();
    let kp = Setup::base(&origin)
        .http("log_format id $request_id; access_log id.log id; add_header X-Id $request_id;")
        .server(
            "location /trusted { set_real_ip_from 127.0.0.1; proxy_set_header X-Request-ID $request_id; proxy_pass http://u; }
             location /other { set_real_ip_from 127.0.0.1; request_id_header X-Correlation-Id; proxy_pass http://u; }
             location /off { set_real_ip_from 127.0.0.1; request_id_header off; proxy_pass http://u; }
             location /far { set_real_ip_from 192.0.2.0/24; proxy_pass http://u; }
             location /append { proxy_forwarding append; proxy_pass http://u; }
             location /edge { proxy_forwarding edge; proxy_pass http://u; }",
        )
        .start();
    let long = "x".repeat(129);
    let refused = [
        "X-Request-ID: a b\r\n".to_owned(),
        "X-Request-ID: a\"b\r\n".to_owned(),
        "X-Request-ID:\r\n".to_owned(),
        "X-Request-ID: one\r\nX-Request-ID: two\r\n".to_owned(),
        format!("X-Request-ID: {long}\r\n"),
        "X-Request-ID: hop\r\nConnection: x-request-id\r\n".to_owned(),
    ];
    let mut cases = vec![
        (
            "/trusted",
            "X-Request-ID: Root=1-67891233-abcdef\r\n",
            Some("Root=1-67891233-abcdef"),
        ),
        ("/trusted", "", None),
        (
            "/other",
            "X-Correlation-ID: c-1\r\nX-Request-ID: r-1\r\n",
            Some("c-1"),
        ),
        ("/off", "X-Request-ID: r-2\r\n", None),
        ("/far", "X-Request-ID: r-3\r\n", None),
        ("/append", "X-Request-ID: r-4\r\n", Some("r-4")),
        ("/edge", "X-Request-ID: r-5\r\n", None),
        ("/", "X-Request-ID: r-6\r\n", None),
    ];
    cases.extend(
        refused
            .iter()
            .map(|lines| ("/trusted", lines.as_str(), None)),
    );
    for (at, (path, lines, expected)) in cases.into_iter().enumerate() {
        let response = ask(&kp, path, lines);
        let told = response.field("X-Id").expect("an id").to_owned();
        assert_eq!(kp.lines("id.log", at + 1)[at], told, "{path} {lines:?}");
        match expected {
            Some(id) => assert_eq!(told, id, "{path} {lines:?}"),
            None => assert!(is_hexadecimal(&told, 32), "{path} {lines:?}: {told}"),
        }
        if matches!(path, "/trusted" | "/append" | "/edge") {
            let passed = got(&origin, "X-Request-ID");
            assert_eq!(passed[at], [told], "{path} {lines:?}");
        }
    }
}

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A kp that logs what it knows of traces, and says so of `setting`.
fn tracing(origin: &Origin, setting: &str) -> Kp {
    Setup::base(origin)
        .http("log_format trace '$trace_id $parent_id $span_id $trace_flags'; access_log trace.log trace;")
        .location(setting)
        .start()
}

/// The line of the log about the last request.
fn traced(kp: &Kp, requests: usize) -> Vec<String> {
    let line = kp.lines("trace.log", requests).pop().unwrap_or_default();
    line.split(' ').map(str::to_owned).collect()
}

/// By default and with `off`: all as it came, whatever it is, or nothing.
///
/// Shows: trace_context
#[test]
fn a_trace_is_passed_on_or_not() {
    let origin = Origin::ok();
    let lines = format!("traceparent: {PARENT}\r\ntracestate: a=1\r\ntracestate: b=2\r\n");
    for (setting, passed) in [
        ("", true),
        ("trace_context propagate;", true),
        ("trace_context off;", false),
    ] {
        origin.forget();
        let kp = tracing(&origin, setting);
        ask(&kp, "/", &lines);
        let known = [
            "4bf92f3577b34da6a3ce929d0e0e4736",
            "00f067aa0ba902b7",
            "-",
            "01",
        ];
        let nothing = ["-"; 4];
        assert_eq!(
            traced(&kp, 1),
            if passed { known } else { nothing },
            "{setting}"
        );
        ask(&kp, "/", "traceparent: nonsense\r\ntracestate: c=3\r\n");
        assert_eq!(traced(&kp, 2), nothing, "{setting}");
        ask(&kp, "/", "");
        let (parents, states) = (got(&origin, "traceparent"), got(&origin, "tracestate"));
        let (parents, states) = (
            parents
                .iter()
                .map(|values| values.join(" "))
                .collect::<Vec<_>>(),
            states
                .iter()
                .map(|values| values.join(" "))
                .collect::<Vec<_>>(),
        );
        if passed {
            assert_eq!(parents, [PARENT, "nonsense", ""], "{setting}");
            assert_eq!(states, ["a=1 b=2", "c=3", ""], "{setting}");
        } else {
            assert_eq!((parents.concat(), states.concat()), Default::default());
        }
    }
}

/// `start`: kp's span in the client's trace where that is valid by the rules of W3C Trace Context, else in a new one.
#[test]
fn a_trace_is_begun_or_continued() {
    let origin = Origin::ok();
    let kp = tracing(&origin, "trace_context start;");
    let (id, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let zeros = "0".repeat(32);
    let valid = [
        (PARENT.to_owned(), "01"),
        (format!("00-{id}-{span}-00"), "00"),
        // Flags that nobody knows yet are not passed on.
        (format!("00-{id}-{span}-03"), "01"),
        // A later version is read as far as this one goes, and 00 is sent.
        (format!("01-{id}-{span}-01"), "01"),
        (format!("cc-{id}-{span}-01-what-comes"), "01"),
    ];
    let invalid = [
        String::new(),
        PARENT.to_uppercase(),
        format!("ff-{id}-{span}-01"),
        format!("00-{zeros}-{span}-01"),
        format!("00-{id}-{}-01", &zeros[..16]),
        format!("00-{id}-{span}-01-more"),
        format!("00-{id}-{span}-1"),
        format!("00-{}-{span}-01", &id[..31]),
        format!("cc-{id}-{span}-01.more"),
        // Two of them are none.
        format!("{PARENT}\r\ntraceparent: {PARENT}"),
    ];
    let all = valid.iter().map(|(parent, flags)| (parent, Some(*flags)));
    let all = all.chain(invalid.iter().map(|parent| (parent, None)));
    for (at, (parent, flags)) in all.enumerate() {
        ask(
            &kp,
            "/",
            &format!("traceparent: {parent}\r\ntracestate: a=1\r\ntracestate: b=2\r\n"),
        );
        let line = traced(&kp, at + 1);
        let [trace, above, own, sampled] = line.as_slice() else {
            panic!("{line:?}");
        };
        let passed = got(&origin, "traceparent");
        assert_eq!(
            passed[at],
            [format!("00-{trace}-{own}-{sampled}")],
            "{parent}"
        );
        assert!(
            is_hexadecimal(trace, 32) && is_hexadecimal(own, 16),
            "{line:?}"
        );
        let states = &got(&origin, "tracestate")[at];
        match flags {
            Some(flags) => {
                assert_eq!(
                    (trace.as_str(), above.as_str(), sampled.as_str()),
                    (id, span, flags)
                );
                assert_ne!(own, span, "kp has a span of its own");
                assert_eq!(states, &["a=1", "b=2"], "{parent}");
            }
            None => {
                assert_ne!(trace, id, "{parent}");
                assert_eq!((above.as_str(), sampled.as_str()), ("-", "01"), "{parent}");
                assert!(states.is_empty(), "a tracestate without its traceparent");
            }
        }
    }
}

/// After the incident the metric has as many ends of each reason as the log.
#[test]
fn reasons_are_counted() {
    let incident = Incident::default();
    let kp = incident
        .setup()
        .server("location = /metrics { access_log off; metrics; }")
        .start();
    for case in CASES {
        incident.happen(&kp, case);
    }
    let metrics = Metrics::of(&kp.address(), "/metrics");
    let log = kp.text("incident.log");
    let reasons: BTreeSet<&str> = CASES.iter().map(|case| case.reason).collect();
    for reason in reasons.into_iter().filter(|reason| *reason != "-") {
        let logged = log
            .lines()
            .filter(|line| line.split('|').nth(2) == Some(reason));
        let example = CASES.iter().find(|case| case.reason == reason);
        let words = example.map_or("", |case| case.detail).split(' ');
        let side = words
            .into_iter()
            .find_map(|word| word.strip_prefix("side="));
        let series = Metrics::of_reason(reason, side.unwrap_or_default());
        assert_eq!(metrics.value(&series), logged.count() as f64, "{reason}");
    }
}

/// A worker that has to end before its request does.
#[test]
fn a_shutdown_is_a_reason() {
    let origin = Origin::start(|conversation| {
        conversation.request()?;
        conversation.stall();
        Ok(())
    });
    let kp = Setup::base(&origin)
        .main("worker_shutdown_timeout 300ms;")
        .http("log_format end '$kp_reason $kp_reason_detail'; access_log end.log end;")
        .start();
    let mut client = kp.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    origin.wait_requests(1);
    kp.signal(Signal::SIGQUIT);
    assert_eq!(
        kp.lines("end.log", 1),
        [
            "shutdown phase=await_head side=kp directive=worker_shutdown_timeout attempt=1 closed_by=kp"
        ]
    );
}

/// All `$upstream_*` have one value per attempt: `, ` between attempts, ` : ` behind an internal redirect, `-` for what
/// there was not. nginx logs the same for the same configuration.
#[test]
fn every_attempt_has_its_place_in_the_lists() {
    let incident = Incident::default();
    let kp = incident
        .setup()
        .http(
            "log_format lists '$upstream_status|$upstream_connect_time|$upstream_header_time|$upstream_response_time|$upstream_response_length|$upstream_bytes_sent|$upstream_bytes_received'; access_log lists.log lists;",
        )
        .start();
    // A time is `t`, since it may be anything.
    let rows = [
        ("/well", "200|t|t|t|2|31|40"),
        ("/retried", "502, 200|-, t|-, t|t, t|0, 2|0, 37|0, 40"),
        (
            "/fallback",
            "502 : 200|- : t|- : t|t : t|0 : 2|0 : 35|0 : 40",
        ),
        ("/second", "502, 504|-, t|-, -|t, t|0, 0|0, 36|0, 0"),
        ("/refused", "502|-|-|t|0|0|0"),
        // What waits takes the connection that was kept, and its failure ends it: the next one has its own.
        ("/hang", "504|t|-|t|0|31|0"),
        ("/reset", "502|t|-|t|0|32|0"),
        ("/truncated", "200|t|t|t|2|36|41"),
        ("/nobody", "502|-|-|t|0|0|0"),
        ("/expired", "502|-|-|t|0|0|0"),
        ("/return", "-|-|-|-|-|-|-"),
        ("/there", "-|-|-|-|-|-|-"),
    ];
    for (at, (path, expected)) in rows.into_iter().enumerate() {
        let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
        let mut client = kp.client();
        client.send(request);
        let _ = client.try_response("GET", SOON);
        let line = kp.lines("lists.log", at + 1).pop().unwrap_or_default();
        assert_eq!(without_times(&line), expected, "{path}");
    }
}

/// The line with `t` for every time.
fn without_times(line: &str) -> String {
    let columns = line.split('|').map(|column| {
        let values = column.split(' ').map(|word| {
            let value = word.trim_end_matches(',');
            let is_time = value.len() >= 5 && value.as_bytes()[value.len() - 4] == b'.';
            let shown = if is_time { "t" } else { value };
            format!("{shown}{}", &word[value.len()..])
        });
        values.collect::<Vec<_>>().join(" ")
    });
    columns.collect::<Vec<_>>().join("|")
}

/// A peer's last failure stays with it, also where the client got a good answer in the end; an answer that nobody calls a
/// failure is none.
#[test]
fn peers_keep_their_last_failure() {
    let answers = Origin::start(|conversation| {
        conversation.answer_all(|request| match request.target() {
            "/busy" => response(503, b""),
            "/none" => response(404, b""),
            _ => response(200, b"ok"),
        })
    });
    let (refused, well) = (Port::take(), Origin::ok());
    let kp = Setup::new(
        "%MAIN%
http {
    upstream retried { server %REFUSED%; server %WELL% backup; }
    upstream answers { server %ANSWERS%; server %WELL% backup; }
    server {
        listen %LISTEN%;
        location / { proxy_pass http://retried; }
        location = /busy { proxy_pass http://answers; proxy_next_upstream http_503; }
        location = /none { proxy_pass http://answers; proxy_next_upstream http_503; }
        location = /metrics { metrics; }
    }
}
",
    )
    .with("REFUSED", refused.address())
    .with("WELL", well.address())
    .with("ANSWERS", answers.address())
    .start();
    let failed = |upstream: &str, address: String| {
        let name = "kp_peer_last_failure_timestamp_seconds";
        let sample = format!("{name}{{upstream=\"{upstream}\",peer=\"{address}\"}}");
        Metrics::of(&kp.address(), "/metrics").has(&sample)
    };
    assert_eq!(kp.get("/").status(), 200);
    assert!(failed("retried", refused.address()));
    assert!(!failed("retried", well.address()));
    assert_eq!(kp.get("/none").status(), 404);
    assert!(!failed("answers", answers.address()));
    assert_eq!(kp.get("/busy").status(), 200);
    assert!(failed("answers", answers.address()));
}

/// The words can be used where an answer is made: on a page of one's own, in a field.
#[test]
fn an_error_page_can_say_why() {
    let closed = Port::take();
    let kp = Setup::new(
        "%MAIN%
http {
    server {
        listen %LISTEN%;
        location / { proxy_pass http://%CLOSED%; error_page 502 /sorry; }
        location = /sorry {
            internal;
            add_header X-Why \"$kp_reason $kp_reason_detail\" always;
            return 200 \"sorry: $kp_reason\";
        }
    }
}
",
    )
    .with("CLOSED", closed.address())
    .start();
    let answer = kp.get("/");
    assert_eq!(
        (answer.status(), answer.text()),
        (502, "sorry: connect_failed".to_owned())
    );
    assert_eq!(
        answer.field("X-Why"),
        Some("connect_failed phase=connect side=upstream attempt=1 closed_by=upstream")
    );
}

/// Only where it is wanted does an answer of kp's say why, and what an upstream says in that field goes through only where
/// kp does not use it.
///
/// Shows: kp_reason_header
#[test]
fn an_answer_says_why_where_that_is_wanted() {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nX-Kp-Reason: of_the_upstream\r\nContent-Length: 2\r\n\r\nok",
    );
    let kp = Setup::base(&origin)
        .server(
            "location /on { kp_reason_header on; proxy_pass http://u; }
             location /off/no { return 403; }
             location /on/no { kp_reason_header on; return 403; }",
        )
        .start();
    for (path, expected) in [
        ("/", Some("of_the_upstream")),
        ("/on", None),
        ("/off/no", None),
        ("/on/no", Some("return")),
    ] {
        let answer = kp.get(path);
        assert_eq!(answer.field("X-Kp-Reason"), expected, "{path}");
    }
}
