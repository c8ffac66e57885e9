//! `limit_req`, `limit_conn`, `limit_accept`, `limit_rate`, `allow` and `deny`: what is wrong with them, in nginx's words.

use super::*;

#[test]
fn what_is_wrong_with_a_zone() {
    for (text, expected) in [
        (
            "limit_req_zone $uri zone=x:1m;",
            "2:1 invalid number of arguments in \"limit_req_zone\" directive",
        ),
        (
            "limit_req_zone $uri zone=x:1m rate=1r/s more;",
            "2:41 invalid number of arguments in \"limit_req_zone\" directive",
        ),
        (
            "limit_req_zone $uri zone=x:1m rate=1r/h;",
            "2:31 invalid rate \"rate=1r/h\"",
        ),
        (
            "limit_req_zone $uri zone=x:1m rate=0r/s;",
            "2:31 invalid rate \"rate=0r/s\"",
        ),
        (
            "limit_req_zone $uri zone=x:1m rate=-1r/s;",
            "2:31 invalid rate \"rate=-1r/s\"",
        ),
        (
            "limit_req_zone $uri zone=x:1m burst=3;",
            "2:31 invalid parameter \"burst=3\"",
        ),
        (
            "limit_req_zone $uri zone=x rate=1r/s;",
            "2:21 invalid zone size \"zone=x\"",
        ),
        (
            "limit_req_zone $uri zone=x:1q rate=1r/s;",
            "2:21 invalid zone size \"zone=x:1q\"",
        ),
        (
            "limit_req_zone $uri zone=:1m rate=1r/s;",
            "2:21 invalid zone name \"zone=:1m\"",
        ),
        (
            "limit_req_zone $uri zone=x:0 rate=1r/s;",
            "2:21 zone \"zone=x:0\" is too small",
        ),
        (
            "limit_req_zone $uri zone=x:31k rate=1r/s;",
            "2:21 zone \"zone=x:31k\" is too small",
        ),
        (
            "limit_req_zone $uri rate=1r/s rate=2r/s;",
            "2:1 \"limit_req_zone\" must have \"zone\" parameter",
        ),
        (
            "limit_req_zone $nosuch zone=x:1m rate=1r/s;",
            "2:16 unknown \"nosuch\" variable",
        ),
        (
            "limit_conn_zone $uri zone=x;",
            "2:22 invalid zone size \"zone=x\"",
        ),
        (
            "limit_conn_zone $uri zone=x:1;",
            "2:22 zone \"zone=x:1\" is too small",
        ),
        (
            "limit_conn_zone $uri x:1m;",
            "2:22 invalid parameter \"x:1m\"",
        ),
        (
            "limit_conn_zone $uri;",
            "2:1 invalid number of arguments in \"limit_conn_zone\" directive",
        ),
        (
            "limit_accept zone=x:1m;",
            "2:1 \"limit_accept\" must have \"rate\" parameter",
        ),
        (
            "limit_accept rate=1r/s;",
            "2:1 \"limit_accept\" must have \"zone\" parameter",
        ),
        (
            "limit_accept zone=x:1m rate=1r/s burst=x;",
            "2:34 invalid burst value \"burst=x\"",
        ),
        (
            "limit_accept zone=x:1m rate=1r/s nodelay;",
            "2:34 invalid parameter \"nodelay\"",
        ),
        (
            "max_active_requests x;",
            "2:21 \"max_active_requests\" directive invalid number",
        ),
    ] {
        assert_eq!(findings(&http(text)), [expected], "{text}");
    }
}

#[test]
fn a_zone_has_one_key_one_size_and_one_use() {
    for (second, expected) in [
        (
            "limit_req_zone $host zone=x:1m rate=1r/s;",
            "3:1 limit_req_zone \"x\" is already bound to key \"$uri\"",
        ),
        (
            "limit_req_zone $uri zone=x:2m rate=1r/s;",
            "3:1 the size 2097152 of shared memory zone \"x\" conflicts with already declared size 1048576",
        ),
        (
            "limit_conn_zone $uri zone=x:1m;",
            "3:1 the shared memory zone \"x\" is already declared for a different use",
        ),
        (
            "limit_accept zone=x:1m rate=1r/s;",
            "3:1 the shared memory zone \"x\" is already declared for a different use",
        ),
    ] {
        let text = http(&format!(
            "limit_req_zone $uri zone=x:1m rate=1r/s;\n{second}"
        ));
        assert_eq!(findings(&text), [expected], "{second}");
        assert_eq!(hint(&text), "the first one is on line 2");
    }
}

const ZONES: &str =
    "limit_req_zone $uri zone=rates:1m rate=1r/s; limit_conn_zone $uri zone=places:1m;";

fn limited(text: &str) -> String {
    location(text).replacen("http { ", &format!("http {{ {ZONES} "), 1)
}

#[test]
fn what_is_wrong_with_a_limit() {
    for (text, expected) in [
        (
            "limit_req zone=rate;",
            "2:11 zero size shared memory zone \"rate\"",
        ),
        (
            "limit_req zone=places;",
            "2:11 the shared memory zone \"places\" is already declared for a different use",
        ),
        (
            "limit_req burst=5;",
            "2:1 \"limit_req\" must have \"zone\" parameter",
        ),
        (
            "limit_req zone=rates burst=;",
            "2:22 invalid burst value \"burst=\"",
        ),
        (
            "limit_req zone=rates burst=0;",
            "2:22 invalid burst value \"burst=0\"",
        ),
        (
            "limit_req zone=rates burst=-1;",
            "2:22 invalid burst value \"burst=-1\"",
        ),
        (
            "limit_req zone=rates burst=500000001;",
            "2:22 invalid burst value \"burst=500000001\"",
        ),
        (
            "limit_req zone=rates burst;",
            "2:22 invalid parameter \"burst\"",
        ),
        (
            "limit_req zone=rates delay=0;",
            "2:22 invalid delay value \"delay=0\"",
        ),
        (
            "limit_req zone=rates burst=2 delay=1 nodelay;",
            "2:38 invalid number of arguments in \"limit_req\" directive",
        ),
        (
            "limit_req zone=rates; limit_req zone=rates burst=1;",
            "2:23 \"limit_req\" directive is duplicate",
        ),
        (
            "limit_req_status 399;",
            "2:18 value must be between 400 and 599",
        ),
        (
            "limit_req_status x;",
            "2:18 \"limit_req_status\" directive invalid number",
        ),
        ("limit_req_log_level crit;", "2:21 invalid value \"crit\""),
        (
            "limit_req_dry_run maybe;",
            "2:19 invalid value \"maybe\" in \"limit_req_dry_run\" directive, it must be \"on\" or \"off\"",
        ),
        (
            "limit_req_retry_after 5;",
            "2:23 invalid value \"5\" in \"limit_req_retry_after\" directive, it must be \"on\" or \"off\"",
        ),
        (
            "limit_conn place 1;",
            "2:12 zero size shared memory zone \"place\"",
        ),
        (
            "limit_conn rates 1;",
            "2:12 the shared memory zone \"rates\" is already declared for a different use",
        ),
        (
            "limit_conn places 0;",
            "2:19 invalid number of connections \"0\"",
        ),
        (
            "limit_conn places x;",
            "2:19 invalid number of connections \"x\"",
        ),
        (
            "limit_conn places 65536;",
            "2:19 connection limit must be less 65536",
        ),
        (
            "limit_conn places 1; limit_conn places 2;",
            "2:22 \"limit_conn\" directive is duplicate",
        ),
        (
            "limit_conn_status 600;",
            "2:19 value must be between 400 and 599",
        ),
        ("limit_conn_log_level loud;", "2:22 invalid value \"loud\""),
        (
            "limit_conn_dry_run yes;",
            "2:20 invalid value \"yes\" in \"limit_conn_dry_run\" directive, it must be \"on\" or \"off\"",
        ),
        (
            "allow 10.0.0.0/33;",
            "2:7 invalid parameter \"10.0.0.0/33\"",
        ),
        (
            "allow 10.0.0.1/8;",
            "warn 2:7 low address bits of 10.0.0.1/8 are meaningless",
        ),
        ("deny localhost;", "2:6 invalid parameter \"localhost\""),
        ("deny unix:/x;", "2:6 invalid parameter \"unix:/x\""),
        (
            "deny 2001:db8::/129;",
            "2:6 invalid parameter \"2001:db8::/129\"",
        ),
        (
            "limit_rate x;",
            "2:12 \"limit_rate\" directive invalid value",
        ),
        (
            "limit_rate -1;",
            "2:12 \"limit_rate\" directive invalid value",
        ),
        (
            "limit_rate_after 1q;",
            "2:18 \"limit_rate_after\" directive invalid value",
        ),
        (
            "proxy_limit_rate x;",
            "2:18 \"proxy_limit_rate\" directive invalid value",
        ),
        (
            "limit_accept off;",
            "2:1 \"limit_accept\" directive is not allowed here",
        ),
        (
            "max_active_requests 5;",
            "2:1 \"max_active_requests\" directive is not allowed here",
        ),
    ] {
        assert_eq!(findings(&limited(text)), [expected], "{text}");
    }
    assert_eq!(
        hint(&limited("limit_req zone=rate;")),
        "did you mean \"rates\"?"
    );
}

#[test]
fn exceptions() {
    for (text, expected) in [
        (
            "limit_except GET;",
            "2:1 directive \"limit_except\" has no opening \"{\"",
        ),
        (
            "limit_except GTE { deny all; }",
            "2:14 invalid method \"GTE\"",
        ),
        (
            "limit_except GET { return 200; }",
            "2:20 \"return\" directive is not allowed here",
        ),
        (
            "limit_except GET { limit_except POST { deny all; } }",
            "2:20 \"limit_except\" directive is not allowed here",
        ),
        (
            "limit_except GET { deny all; } limit_except POST { deny all; }",
            "2:32 \"limit_except\" directive is duplicate",
        ),
    ] {
        assert_eq!(findings(&location(text)), [expected], "{text}");
    }
    let exception = |text: &str, method: &str| {
        let config = config(&location(text));
        let admission = prefix(&config, "/a/").admission.clone().unwrap();
        let except = admission.exception(method.as_bytes());
        except.map(|except| {
            except
                .access
                .iter()
                .map(|rule| rule.allow)
                .collect::<Vec<_>>()
        })
    };
    let text = "allow all; limit_except get put { deny all; }";
    for method in ["GET", "HEAD", "PUT"] {
        assert_eq!(exception(text, method), None, "{method}");
    }
    for method in ["POST", "get", "FOO"] {
        assert_eq!(exception(text, method), Some(vec![false]), "{method}");
    }
    assert_eq!(
        exception("limit_except HEAD { deny all; }", "GET"),
        Some(vec![false])
    );
    assert_eq!(
        exception("allow all; limit_except GET { }", "POST"),
        Some(vec![true])
    );
    let text = "limit_except GET { deny all; }\nlocation /a/b { }";
    assert_eq!(prefix(&config(&location(text)), "/a/b").admission, None);
}

/// As in nginx the last of `nodelay` and `delay=` holds, and a rate without a unit is one per second.
#[test]
fn what_nginx_lets_pass() {
    let config = config(&limited(
        "limit_req zone=rates burst=5 nodelay; limit_conn places 65535;",
    ));
    let admission = prefix(&config, "/a/").admission.as_ref().unwrap();
    assert_eq!(
        (admission.rates[0].burst, admission.rates[0].delay),
        (5000, u64::MAX)
    );
    let config = super::config(&limited("limit_req zone=rates nodelay delay=3;"));
    let admission = prefix(&config, "/a/").admission.as_ref().unwrap();
    assert_eq!(
        (admission.rates[0].burst, admission.rates[0].delay),
        (0, 3000)
    );
    let config = super::config(&http("limit_req_zone \"\" zone=x:1m rate=5;"));
    assert_eq!(config.http.rate_zones[0].rate, 5000);
}
