//! The format of every variable that a `return` cannot show.

use crate::bed::Bed;
use kp_config::template::{Builtin, Part, Template, Variable};
use kp_proxy::exchange::Attempt;
use kp_proxy::request_id::RequestId;
use kp_proxy::{Circumstances, Exchange, Phase, Reason, Side, vars};

fn bed() -> Bed {
    Bed::new(
        "server { listen LISTEN; server_name a.test; root /www; location / { proxy_pass http://UPSTREAM; } }",
    )
}

fn exchange(bed: &Bed) -> Exchange {
    bed.exchange(b"GET /u?a=1 HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .unwrap()
}

/// A variable's text; `None` where it has no value.
fn text(bed: &Bed, exchange: &mut Exchange, variable: Variable) -> Option<String> {
    let mut out = b"before ".to_vec();
    let found = vars::variable(&variable, exchange, &bed.program, &bed.context(), &mut out);
    let text = String::from_utf8_lossy(&out)
        .strip_prefix("before ")
        .unwrap()
        .to_owned();
    assert!(
        found || text.is_empty(),
        "{variable:?} wrote {text} without having a value"
    );
    found.then_some(text)
}

fn builtin(bed: &Bed, exchange: &mut Exchange, name: &str) -> Option<String> {
    let builtin = Builtin::ALL
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap()
        .1;
    text(bed, exchange, Variable::Builtin(builtin))
}

/// Every fixed variable and its value in [`every_fixed_variable`]; `None`: it has none there.
const FIXED: &[(&str, Option<&str>)] = &[
    ("args", Some("a=1")),
    ("binary_remote_addr", Some("\x7f\0\0\x01")),
    ("binary_remote_addr_64", Some("\x7f\0\0\x01")),
    ("body_bytes_sent", Some("50")),
    ("bytes_sent", Some("150")),
    ("connection", Some("42")),
    ("connection_requests", Some("3")),
    ("connection_time", Some("0.999")),
    ("connections_active", Some("4")),
    ("connections_reading", Some("1")),
    ("connections_waiting", Some("2")),
    ("connections_writing", Some("1")),
    ("content_length", None),
    ("content_type", None),
    ("document_root", Some("/www")),
    ("document_uri", Some("/u")),
    ("gzip_ratio", None),
    ("host", Some("a.test")),
    ("hostname", Some("box")),
    ("http2", Some("")),
    ("http3", Some("")),
    ("https", Some("")),
    ("is_args", Some("?")),
    ("is_request_port", Some("")),
    ("kp_version", Some(env!("CARGO_PKG_VERSION"))),
    ("limit_conn_status", None),
    ("limit_rate", Some("0")),
    ("limit_req_status", None),
    ("msec", Some("1700000000.000")),
    ("nginx_version", Some("1.31.5")),
    ("pid", Some("1")),
    ("pipe", Some("p")),
    ("proxy_add_x_forwarded_for", Some("127.0.0.1")),
    ("proxy_host", Some("up:81")),
    ("proxy_port", Some("81")),
    ("proxy_protocol_addr", None),
    ("proxy_protocol_port", None),
    ("proxy_protocol_server_addr", None),
    ("proxy_protocol_server_port", None),
    ("query_string", Some("a=1")),
    ("realip_remote_addr", Some("10.0.0.9")),
    ("realip_remote_port", Some("555")),
    ("realpath_root", Some("/www")),
    ("remote_addr", Some("127.0.0.1")),
    ("remote_port", Some("999")),
    ("remote_user", None),
    ("request", Some("GET /u?a=1 HTTP/1.1")),
    ("request_body", Some("body")),
    ("request_body_file", Some("/tmp/1")),
    ("request_completion", Some("OK")),
    ("request_filename", Some("/www/u")),
    ("request_id", Some("07070707070707070707070707070707")),
    ("request_length", Some("55")),
    ("request_method", Some("GET")),
    ("request_port", Some("")),
    ("request_time", Some("0.123")),
    ("request_uri", Some("/u?a=1")),
    ("scheme", Some("http")),
    ("server_addr", Some("127.0.0.1")),
    ("server_name", Some("a.test")),
    ("server_port", Some("8080")),
    ("server_protocol", Some("HTTP/1.1")),
    ("ssl_alpn_protocol", None),
    ("ssl_cipher", None),
    ("ssl_ciphers", None),
    ("ssl_client_cert", None),
    ("ssl_client_escaped_cert", None),
    ("ssl_client_fingerprint", None),
    ("ssl_client_i_dn", None),
    ("ssl_client_i_dn_legacy", None),
    ("ssl_client_raw_cert", None),
    ("ssl_client_s_dn", None),
    ("ssl_client_s_dn_legacy", None),
    ("ssl_client_serial", None),
    ("ssl_client_sigalg", None),
    ("ssl_client_v_end", None),
    ("ssl_client_v_remain", None),
    ("ssl_client_v_start", None),
    ("ssl_client_verify", None),
    ("ssl_curve", None),
    ("ssl_curves", None),
    ("ssl_early_data", None),
    ("ssl_protocol", None),
    ("ssl_server_name", None),
    ("ssl_session_id", None),
    ("ssl_session_reused", None),
    ("ssl_sigalg", None),
    ("ssl_sigalgs", None),
    ("status", Some("007")),
    ("tcpinfo_rtt", Some("1")),
    ("tcpinfo_rttvar", Some("2")),
    ("tcpinfo_snd_cwnd", Some("3")),
    ("tcpinfo_rcv_space", Some("4")),
    ("time_iso8601", Some("2026-11-29T22:49:12+00:00")),
    ("time_local", Some("29/Nov/2026:22:49:12 +0000")),
    ("trace_id", None),
    ("span_id", None),
    ("parent_id", None),
    ("trace_flags", None),
    ("upstream_addr", None),
    ("upstream_bytes_received", None),
    ("upstream_bytes_sent", None),
    ("upstream_cache_status", None),
    ("upstream_connect_time", None),
    ("upstream_header_time", None),
    ("upstream_response_length", None),
    ("upstream_response_time", None),
    ("upstream_status", None),
    ("kp_reason", Some("connect_failed")),
    (
        "kp_reason_detail",
        Some("phase=connect side=upstream attempt=2 closed_by=upstream"),
    ),
    ("uri", Some("/u")),
];

#[test]
fn every_fixed_variable() {
    let bed = bed();
    let mut exchange = exchange(&bed);
    exchange.connection.serial = 42;
    exchange.connection.connected = "10.0.0.9:555".parse().ok();
    exchange.connection.requests = 3;
    exchange.connection.accepted_ms = 1;
    exchange.connection.pipelined = true;
    exchange.record.started_ms = 877;
    exchange.record.request_length = 55;
    exchange.record.bytes_sent = 150;
    exchange.record.head_bytes_sent = 100;
    exchange.record.completed = true;
    exchange.record.reason = Some(Reason::ConnectFailed);
    exchange.record.circumstances = Circumstances {
        phase: Some(Phase::Connect),
        attempt: 2,
        closed_by: Some(Side::Upstream),
    };
    exchange.response.status = 7;
    exchange.request.body = Some(b"body".to_vec());
    exchange.request.body_file = Some(b"/tmp/1".to_vec());
    exchange.request.proxy_host = b"up:81".to_vec();
    exchange.request.proxy_port = 81;
    for (name, value) in FIXED {
        assert_eq!(
            builtin(&bed, &mut exchange, name).as_deref(),
            *value,
            "{name}"
        );
    }
    let missing: Vec<&str> = Builtin::ALL
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !FIXED.iter().any(|(known, _)| known == name))
        .collect();
    assert!(missing.is_empty(), "without a line here: {missing:?}");
}

#[test]
fn what_is_not_there_has_no_value() {
    let bed = bed();
    let mut exchange = bed.exchange(b"GET /u HTTP/1.0\r\n\r\n").unwrap();
    exchange.connection.remote = None;
    for name in [
        "args",
        "proxy_host",
        "proxy_port",
        "request_body",
        "request_body_file",
        "kp_reason",
        "kp_reason_detail",
    ] {
        assert_eq!(builtin(&bed, &mut exchange, name), None, "{name}");
    }
    let empty_or_else = [
        ("remote_addr", "unix:"),
        ("remote_port", ""),
        ("binary_remote_addr", "unix:"),
        ("request_completion", ""),
        ("is_args", ""),
        ("pipe", "."),
        ("status", "000"),
        ("server_protocol", "HTTP/1.0"),
    ];
    for (name, value) in empty_or_else {
        assert_eq!(
            builtin(&bed, &mut exchange, name).as_deref(),
            Some(value),
            "{name}"
        );
    }
}

#[test]
fn a_line_that_was_none_has_no_protocol() {
    let bed = bed();
    let mut exchange = exchange(&bed);
    exchange.request.head = kp_http::RequestHead::default();
    assert_eq!(builtin(&bed, &mut exchange, "server_protocol"), None);
}

#[test]
fn ip_version_6() {
    let bed = bed();
    let mut exchange = exchange(&bed);
    exchange.connection.remote = Some("[2001:db8::1]:7".parse().unwrap());
    assert_eq!(
        builtin(&bed, &mut exchange, "remote_addr").as_deref(),
        Some("2001:db8::1")
    );
    let mut out = Vec::new();
    let binary = Variable::Builtin(Builtin::BinaryRemoteAddr);
    assert!(vars::variable(
        &binary,
        &mut exchange,
        &bed.program,
        &bed.context(),
        &mut out
    ));
    assert_eq!(out.len(), 16);
    exchange.connection.remote = Some("[4142:4344:4546:4748::1]:7".parse().unwrap());
    let network = builtin(&bed, &mut exchange, "binary_remote_addr_64");
    assert_eq!(network.as_deref(), Some("ABCDEFGH"));
}

#[test]
fn one_value_per_attempt() {
    let bed = bed();
    let mut exchange = exchange(&bed);
    let attempt = |address: &str, status, after_redirect| Attempt {
        address: address.into(),
        status,
        after_redirect,
        ..Attempt::default()
    };
    exchange.attempts = vec![
        Attempt {
            response_ms: Some(5),
            ..attempt("127.0.0.1:1", 502, false)
        },
        Attempt {
            connect_ms: Some(0),
            header_ms: Some(1_234),
            response_ms: Some(61_000),
            bytes_sent: 10,
            bytes_received: 200,
            response_length: 100,
            ..attempt("unix:/s", 200, false)
        },
        attempt("group", 0, true),
    ];
    let expected = [
        ("upstream_addr", "127.0.0.1:1, unix:/s : group"),
        ("upstream_status", "502, 200 : -"),
        ("upstream_connect_time", "-, 0.000 : -"),
        ("upstream_header_time", "-, 1.234 : -"),
        ("upstream_response_time", "0.005, 61.000 : -"),
        ("upstream_bytes_sent", "0, 10 : 0"),
        ("upstream_bytes_received", "0, 200 : 0"),
        ("upstream_response_length", "0, 100 : 0"),
    ];
    for (name, value) in expected {
        assert_eq!(
            builtin(&bed, &mut exchange, name).as_deref(),
            Some(value),
            "{name}"
        );
    }
}

#[test]
fn fields_of_the_answer() {
    let bed = bed();
    let mut exchange = exchange(&bed);
    let named = |make: fn(String) -> Variable, name: &str| make(name.to_owned());
    for make in [
        Variable::UpstreamHttp,
        Variable::UpstreamCookie,
        Variable::SentHttp,
        Variable::SentTrailer,
    ] {
        assert_eq!(text(&bed, &mut exchange, named(make, "x")), None);
    }
    let mut head = kp_http::ResponseHead::default();
    let mut input = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nSet-Cookie: s=1; Path=/\r\nSet-Cookie: T = 2\r\nx-a: 2\r\n\r\n".to_vec();
    let limits = kp_http::HeadLimits::default();
    assert!(
        kp_http::HeadReader::default()
            .response(&mut input, &mut head, kp_http::Method::Get, &limits)
            .unwrap()
    );
    exchange.response.upstream = Some(head);
    exchange.response.upstream_trailers = b"X-Sum: 9\r\n".to_vec();
    exchange.response.sent_head = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n".to_vec();
    exchange.response.sent_trailers = b"X-T: 1\r\n\r\n".to_vec();
    let mut check = |variable: Variable, value: Option<&str>| {
        assert_eq!(
            text(&bed, &mut exchange, variable.clone()).as_deref(),
            value,
            "{variable:?}"
        );
    };
    check(named(Variable::UpstreamHttp, "x_a"), Some("1, 2"));
    check(named(Variable::UpstreamCookie, "s"), Some("1"));
    check(named(Variable::UpstreamCookie, "t"), Some("2"));
    check(named(Variable::UpstreamCookie, "path"), None);
    check(named(Variable::UpstreamTrailer, "x_sum"), Some("9"));
    check(named(Variable::SentHttp, "content_type"), Some("a/b"));
    check(named(Variable::SentTrailer, "x_t"), Some("1"));
}

#[test]
fn an_id_is_made_once_per_request() {
    let bed = bed();
    let mut exchange = exchange(&bed);
    exchange.request.id = Some(RequestId::Made(*b"0123456789abcdef"));
    assert_eq!(
        builtin(&bed, &mut exchange, "request_id").as_deref(),
        Some("30313233343536373839616263646566")
    );
    exchange.request.id = None;
    builtin(&bed, &mut exchange, "request_id");
    assert_eq!(exchange.request.id, Some(RequestId::Made([7; 16])));
}

#[test]
fn templates_append() {
    let bed = bed();
    let mut exchange = exchange(&bed);
    let template = Template {
        parts: vec![
            Part::Literal("http://".into()),
            Part::Variable(Variable::Builtin(Builtin::Host)),
            Part::Capture(3),
            Part::Variable(Variable::Builtin(Builtin::ContentType)),
            Part::Literal("/".into()),
        ],
    };
    let mut out = b"x ".to_vec();
    vars::evaluate(
        &template,
        &mut exchange,
        &bed.program,
        &bed.context(),
        &mut out,
    );
    assert_eq!(out, b"x http://a.test/");
}

#[test]
fn what_nothing_reads_is_not_kept() {
    let quiet = bed();
    assert_eq!(quiet.program.uses(), kp_proxy::Uses::default());
    let mut exchange = quiet
        .exchange(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap();
    quiet.settle(&mut exchange);
    assert!(exchange.request.captures.subject.is_empty());
    let curious = Bed::new(
        r#"log_format x "$sent_http_a $sent_trailer_b $upstream_trailer_c $request_body"; server { listen LISTEN; }"#,
    );
    let uses = curious.program.uses();
    assert!(uses.sent_head && uses.sent_trailers && uses.upstream_trailers && uses.request_body);
}
