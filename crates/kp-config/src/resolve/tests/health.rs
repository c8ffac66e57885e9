//! `health_check` and `match`.

use super::*;
use crate::model::{CheckProtocol, Expectation, HeaderTest, MatchCondition, MatchId};
use std::time::Duration;

#[test]
fn a_check_has_plus_defaults_and_says_all_of_itself() {
    let text = "proxy_pass http://u; health_check;\nhealth_check interval=200ms jitter=50ms fails=3 passes=2 uri=/hz?x=1 \
                port=81 match=ok mandatory persistent;\nhealth_check type=tcp match=smtp;";
    let text = location(text).replacen(
        "http { ",
        "http { match ok { status 200; } match smtp { send \"a\\x0d\"; expect 220; expect; } ",
        1,
    );
    assert_eq!(findings(&text).len(), 1, "{:?}", findings(&text));
    let config = config(&text.replace("expect; ", ""));
    let checks = &config.http.upstreams[0].checks;
    assert_eq!(checks.len(), 3);
    let plain = &checks[0];
    assert_eq!(
        (plain.interval, plain.jitter, plain.fails, plain.passes),
        (Duration::from_secs(5), Duration::ZERO, 1, 1)
    );
    assert_eq!(
        (
            plain.uri.as_str(),
            plain.port,
            plain.matches,
            plain.mandatory
        ),
        ("/", None, None, false)
    );
    let full = &checks[1];
    assert_eq!(
        (full.interval, full.jitter, full.fails, full.passes),
        (Duration::from_millis(200), Duration::from_millis(50), 3, 2)
    );
    assert_eq!(
        (full.uri.as_str(), full.port, full.matches, full.mandatory),
        ("/hz?x=1", Some(81), Some(MatchId(0)), true)
    );
    assert_eq!(checks[2].protocol, CheckProtocol::Tcp);
    assert_eq!(
        config.http.matches[1].conditions,
        [
            MatchCondition::Send(b"a\r".to_vec()),
            MatchCondition::Expect(Expectation::Text(b"220".to_vec()))
        ]
    );
}

/// Times and thresholds may change in a reload without making it another check; equal ones are told apart.
#[test]
fn what_a_check_is_known_by() {
    let identities = |text: &str| -> Vec<String> {
        let config = config(&location(&format!("proxy_pass http://u; {text}")));
        let checks = &config.http.upstreams[0].checks;
        checks.iter().map(|check| check.identity.clone()).collect()
    };
    let one = identities("health_check uri=/a; health_check uri=/b;");
    assert_ne!(one[0], one[1]);
    assert_eq!(
        one,
        identities("health_check uri=/a interval=1s fails=9; health_check uri=/b passes=2;")
    );
    let twins = identities("health_check uri=/a; health_check uri=/a; health_check uri=/a;");
    assert_eq!(twins[0], one[0]);
    assert!(twins[1] != twins[0] && twins[2] != twins[1] && twins[2] != twins[0]);
}

#[test]
fn what_is_wrong_with_a_check() {
    let finding = |text: &str| findings(&location(&format!("proxy_pass http://u;\n{text}")));
    for (text, expected) in [
        (
            "health_check bogus=1;",
            "3:14 invalid parameter \"bogus=1\"",
        ),
        (
            "health_check interval=x;",
            "3:14 invalid parameter \"interval=x\"",
        ),
        (
            "health_check interval=0;",
            "3:14 invalid parameter \"interval=0\"",
        ),
        (
            "health_check fails=0;",
            "3:14 invalid parameter \"fails=0\"",
        ),
        (
            "health_check port=70000;",
            "3:14 invalid parameter \"port=70000\"",
        ),
        ("health_check uri=x;", "3:14 invalid parameter \"uri=x\""),
        (
            "health_check type=grpc;",
            "3:14 invalid parameter \"type=grpc\"",
        ),
        (
            "health_check persistent;",
            "3:14 \"persistent\" needs \"mandatory\"",
        ),
        (
            "health_check type=tcp uri=/;",
            "3:23 \"uri\" cannot be used with \"type=tcp\"",
        ),
        ("health_check match=no;", "3:14 unknown match \"no\""),
    ] {
        assert_eq!(finding(text), [expected], "{text}");
    }
    assert_eq!(
        findings(&location("health_check;")),
        ["2:1 \"health_check\" has no upstream to check"]
    );
    assert_eq!(
        findings(&location("set $a u; proxy_pass http://$a;\nhealth_check;")),
        ["3:1 \"health_check\" has no upstream to check"]
    );
    assert_eq!(
        finding("health_check keepalive_time=1m;"),
        ["warn 3:14 \"keepalive_time\" has no effect: every check connects anew"]
    );
    assert_eq!(
        findings(&server("health_check;")),
        ["2:1 \"health_check\" directive is not allowed here"]
    );
}

fn with_match(conditions: &str) -> String {
    format!(
        "match m {{\n{conditions}\n}} upstream u {{ server 127.0.0.1:9; }} server {{ listen 8080; location / {{ proxy_pass http://u; health_check match=m; }} }}"
    )
}

#[test]
fn conditions_in_all_their_forms() {
    let text = with_match(
        "status 200 301-303; status ! 500; header Server; header ! X-Bad; header Content-Type = text/html; \
         header A != b; header A ~ b; header A !~* b; body ~ \"Welcome\"; body !~ sorry; require $host $upstream_status;",
    );
    let config = config(&http(&text));
    let conditions = &config.http.matches[0].conditions;
    assert_eq!(
        conditions[0],
        MatchCondition::Status {
            ranges: vec![(200, 200), (301, 303)],
            negated: false
        }
    );
    assert_eq!(
        conditions[1],
        MatchCondition::Status {
            ranges: vec![(500, 500)],
            negated: true
        }
    );
    let header = |name: &str, test| MatchCondition::Header {
        name: name.to_owned(),
        test,
    };
    assert_eq!(conditions[2], header("server", HeaderTest::Present));
    assert_eq!(conditions[3], header("x-bad", HeaderTest::Absent));
    let equals = |value: &str, negated| HeaderTest::Equals {
        value: value.to_owned(),
        negated,
    };
    assert_eq!(
        conditions[4],
        header("content-type", equals("text/html", false))
    );
    assert_eq!(conditions[5], header("a", equals("b", true)));
    assert!(matches!(
        &conditions[7],
        MatchCondition::Header {
            test: HeaderTest::Matches { negated: true, .. },
            ..
        }
    ));
    assert!(matches!(
        &conditions[9],
        MatchCondition::Body { negated: true, .. }
    ));
    assert!(matches!(&conditions[10], MatchCondition::Require(both) if both.len() == 2));
}

#[test]
fn what_is_wrong_with_a_match() {
    for (conditions, expected) in [
        ("status !;", "3:1 no status is given"),
        ("status 20;", "3:8 invalid status \"20\""),
        ("status 399-200;", "3:8 invalid status \"399-200\""),
        ("header A B;", "3:1 invalid condition"),
        ("header A > b;", "3:10 unexpected \">\" in condition"),
        ("body = x;", "3:6 unexpected \"=\" in condition"),
        ("require host;", "3:9 invalid variable name \"host\""),
        ("send x;", "4:107 \"send\" of match \"m\" is for type=tcp"),
        (
            "proxy_pass http://u;",
            "3:1 \"proxy_pass\" directive is not allowed here",
        ),
    ] {
        let found = findings(&http(&with_match(conditions)));
        assert_eq!(found, [expected], "{conditions}");
    }
    assert_eq!(
        findings(&http("match a { status 200; }")),
        ["warn 2:7 match \"a\" is not used"]
    );
    let twice = findings(&http("match a { status 200; } match a { status 200; }"));
    assert!(
        twice.contains(&"2:31 duplicate match \"a\"".to_owned()),
        "{twice:?}"
    );
}
