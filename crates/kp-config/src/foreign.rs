//! Directives of nginx and its modules that kp does not have, and what to do instead.
//!
//! Whoever moves a configuration to kp meets these names; `kp -t`, `kp explain` and `kp convert` answer them from here. A
//! name that gets a row in the table of directives is found there first, so an entry here can do no harm, but a test asks
//! for its removal.

/// What to say of a variable that a directive of nginx defines which kp does not have.
pub fn of_variable(name: &str) -> Option<String> {
    let (_, owner) = VARIABLES
        .iter()
        .find(|(start, _)| name.starts_with(start))?;
    let advice = foreign(owner)?;
    Some(format!(
        "it comes with \"{owner}\", which kp does not have: {advice}"
    ))
}

/// Beginnings of variables, and the directive that they come with.
const VARIABLES: &[(&str, &str)] = &[
    ("ancient_browser", "ancient_browser"),
    ("date_gmt", "ssi"),
    ("date_local", "ssi"),
    ("fastcgi_", "fastcgi_pass"),
    ("geoip", "geoip_country"),
    ("invalid_referer", "valid_referers"),
    ("jwt_", "auth_jwt"),
    ("memcached_key", "memcached_pass"),
    ("modern_browser", "modern_browser"),
    ("secure_link", "secure_link"),
    ("slice_range", "slice"),
    ("spdy", "spdy_chunk_size"),
    ("uid_", "userid"),
];

/// What to do instead of a directive, or why there is no need; a sentence without a final stop. `None` for a name that no
/// module of nginx has, as far as this list goes.
pub fn foreign(name: &str) -> Option<&'static str> {
    let exact = MISSING.iter().find(|(known, _)| *known == name);
    let family = || FAMILIES.iter().find(|(start, _)| name.starts_with(start));
    exact.or_else(family).map(|(_, advice)| *advice)
}

const SOCKET_BUFFERS: &str =
    "the kernel sizes the buffers of sockets: net.ipv4.tcp_rmem and tcp_wmem; leave it out";
const HTTP2: &str = "kp speaks HTTP/1.1; clients agree on it by themselves; leave it out";

/// Single names.
const MISSING: &[(&str, &str)] = &[
    (
        "add_header_inherit",
        "a level with its own add_header takes none from above: repeat them, or put them in a file and include it",
    ),
    (
        "add_trailer_inherit",
        "a level with its own add_trailer takes none from above: repeat them",
    ),
    (
        "auth_basic_user_file",
        "see auth_basic: let the upstream ask for passwords",
    ),
    (
        "client_body_early_read",
        "kp reads a request's body when its upstream takes it: see proxy_request_buffering",
    ),
    ("debug_points", "it is for debugging nginx; leave it out"),
    (
        "debug_connection",
        "`error_log FILE debug` holds for all connections",
    ),
    ("empty_gif", "answer with a file, or with `return 204`"),
    (
        "geo",
        "kp has no networks in variables: admit networks with allow and deny, or map $remote_addr by exact addresses or an expression",
    ),
    (
        "keyval",
        "use map; change an upstream's servers while kp runs with `kp ctl`",
    ),
    (
        "keyval_zone",
        "use map; change an upstream's servers while kp runs with `kp ctl`",
    ),
    ("mail", "kp speaks HTTP only: keep another proxy for mail"),
    ("max_ranges", "kp takes every range that RFC 9110 allows"),
    (
        "ntlm",
        "give each client its own upstream connection: `keepalive 0` in the upstream",
    ),
    (
        "post_action",
        "kp starts no requests by itself: read the access log instead",
    ),
    ("proxy_socket_rcvbuf", SOCKET_BUFFERS),
    ("proxy_socket_sndbuf", SOCKET_BUFFERS),
    (
        "random_index",
        "kp does not choose files by chance; use index",
    ),
    ("slice", "kp passes ranges on to the upstream as they are"),
    ("ssl", "it is a parameter now: `listen 443 ssl;`"),
    (
        "ssl_engine",
        "keys are read from files: see ssl_certificate_key",
    ),
    (
        "ssl_ocsp",
        "kp does not ask responders about clients' certificates: see ssl_crl",
    ),
    (
        "ssl_stapling_responder",
        "kp does not ask a responder: a file has the response, see ssl_stapling_file",
    ),
    (
        "status_zone",
        "kp counts every server and upstream by its name in any case",
    ),
    (
        "stream",
        "kp speaks HTTP only: keep another proxy for other protocols",
    ),
    (
        "valid_referers",
        "map $http_referer to a variable and answer with `if ($variable) { return 403; }`",
    ),
    ("zone_sync", "kp's state belongs to one machine"),
];

const NO_CACHE: &str =
    "kp does not keep answers in this version: keep a cache behind it, or leave this out";
const HTTP_ONLY: &str = "kp speaks HTTP with its upstreams: put an HTTP server in front of the application and use proxy_pass";
const NO_SCRIPTS: &str = "kp runs no scripts: do it in an upstream, or with map, if and set";
const NO_PACKING: &str = "kp passes bodies on as they are: let the upstream compress; Accept-Encoding reaches it unchanged";
const NO_CHANGES: &str = "kp passes bodies on as they are: let the upstream do it";

/// Beginnings of the names of nginx's other modules; the first that fits counts.
const FAMILIES: &[(&str, &str)] = &[
    ("proxy_cache", NO_CACHE),
    ("proxy_no_cache", NO_CACHE),
    ("proxy_force_ranges", NO_CACHE),
    ("proxy_store", NO_CACHE),
    ("fastcgi_", HTTP_ONLY),
    ("scgi_", HTTP_ONLY),
    ("uwsgi_", HTTP_ONLY),
    ("memcached_", HTTP_ONLY),
    (
        "grpc_",
        "kp speaks HTTP/1.1 with upstreams in this version: keep another proxy for gRPC",
    ),
    ("gzip_static", "kp serves files as they are"),
    ("gzip", NO_PACKING),
    ("gunzip", NO_PACKING),
    ("brotli", NO_PACKING),
    ("zstd", NO_PACKING),
    ("sub_filter", NO_CHANGES),
    ("ssi", NO_CHANGES),
    ("xslt_", NO_CHANGES),
    ("xml_", NO_CHANGES),
    ("addition_", NO_CHANGES),
    ("add_before_body", NO_CHANGES),
    ("add_after_body", NO_CHANGES),
    ("image_filter", NO_CHANGES),
    ("js_", NO_SCRIPTS),
    ("perl", NO_SCRIPTS),
    ("lua_", NO_SCRIPTS),
    ("init_by_lua", NO_SCRIPTS),
    ("access_by_lua", NO_SCRIPTS),
    ("content_by_lua", NO_SCRIPTS),
    ("rewrite_by_lua", NO_SCRIPTS),
    ("set_by_lua", NO_SCRIPTS),
    (
        "auth_",
        "kp does not ask who a client is, except for its certificate (ssl_verify_client): let the upstream do it",
    ),
    (
        "autoindex_",
        "kp does not list directories: let an upstream do it",
    ),
    ("charset_", NO_CHANGES),
    ("override_charset", NO_CHANGES),
    ("source_charset", NO_CHANGES),
    (
        "dav_",
        "kp serves files for reading only: let an upstream do it",
    ),
    ("create_full_put_path", "kp serves files for reading only"),
    ("flv", "kp serves files as they are"),
    ("mp4", "kp serves files as they are"),
    (
        "geoip",
        "kp has no data about places: let the upstream look addresses up",
    ),
    ("http2_", HTTP2),
    ("http3", HTTP2),
    ("quic_", HTTP2),
    ("spdy_", HTTP2),
    ("mirror_", "kp does not send requests twice"),
    (
        "secure_link",
        "kp checks no signed links: let the upstream do it",
    ),
    (
        "ssl_ocsp_",
        "kp does not ask responders about clients' certificates: see ssl_crl",
    ),
    ("tunnel_", "kp is no forward proxy"),
    (
        "userid",
        "use $request_id, or a cookie of the upstream or of sticky",
    ),
    ("ancient_browser", "map $http_user_agent to a variable"),
    ("modern_browser", "map $http_user_agent to a variable"),
    ("postpone_gzipping", NO_PACKING),
    (
        "more_",
        "use add_header and proxy_hide_header for responses, proxy_set_header for requests; server_tokens for `Server`",
    ),
    (
        "echo",
        "use `return 200 text`; other things let an upstream do",
    ),
    (
        "vhost_traffic_status",
        "kp measures by itself: `metrics;` in a location is for Prometheus, `status;` for people",
    ),
    (
        "check",
        "see health_check in the upstream's location, and match for what its answer must be",
    ),
    (
        "modsecurity",
        "kp does not look into requests for attacks: keep a firewall for web applications in front of it or behind it",
    ),
    (
        "pagespeed",
        "kp passes bodies on as they are: let the application build small pages",
    ),
    (
        "fancyindex",
        "kp does not list directories: let an upstream do it, or put an index.html there",
    ),
    (
        "rtmp",
        "kp speaks HTTP only: keep another proxy for other protocols",
    ),
    (
        "passenger_",
        "kp speaks HTTP with its upstreams: run the application as an HTTP server and use proxy_pass",
    ),
    (
        "balancer_by_lua",
        "kp runs no scripts: it has least_conn, random, hash, ip_hash and sticky",
    ),
    (
        "log_by_lua",
        "kp runs no scripts: log_format can write JSON, access_log can write to syslog",
    ),
    ("limit_zone", "it is called limit_conn_zone now"),
];

#[cfg(test)]
mod tests {
    use super::{FAMILIES, MISSING, VARIABLES, foreign, of_variable};
    use crate::directives;
    use crate::template::Builtin;

    #[test]
    fn a_name_is_answered_with_what_to_do() {
        for (name, part) in [
            ("fastcgi_pass", "proxy_pass"),
            ("proxy_cache_valid", "does not keep answers"),
            ("ssl", "listen 443 ssl"),
            ("brotli_types", "let the upstream compress"),
            ("content_by_lua_block", "no scripts"),
            ("debug_points", "leave it out"),
        ] {
            let advice = foreign(name).expect(name);
            assert!(advice.contains(part), "{name}: {advice}");
        }
        assert_eq!(foreign("bogus"), None);
    }

    #[test]
    fn a_variable_is_answered_with_what_defines_it() {
        for (start, _) in VARIABLES {
            assert!(of_variable(start).is_some(), "{start}");
        }
        let hint = of_variable("geoip_city").unwrap();
        assert!(
            hint.contains("\"geoip_country\"") && hint.contains("places"),
            "{hint}"
        );
        assert_eq!(of_variable("gzip_ratio"), None);
    }

    /// Advice must not talk people out of what kp can do by now.
    #[test]
    fn what_kp_has_is_not_here() {
        for (name, _) in MISSING {
            let has = directives::named(name).next().is_some();
            assert!(!has, "kp has \"{name}\" now: remove it from foreign.rs");
        }
        for (start, advice) in FAMILIES {
            assert!(!advice.ends_with('.'), "{start}: {advice}");
        }
    }

    #[test]
    fn no_name_is_listed_twice() {
        let mut names: Vec<&str> = MISSING.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn directives_named_in_advice_exist() {
        let named = |advice: &str| -> Vec<String> {
            let words =
                advice.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let words = words.filter(|word| word.contains('_'));
            words.map(str::to_owned).collect()
        };
        for (name, advice) in MISSING.iter().chain(FAMILIES) {
            for word in named(advice) {
                let exists = directives::named(&word).next().is_some()
                    || Builtin::ALL.iter().any(|(known, _)| *known == word)
                    || word.starts_with("http_")
                    || foreign(&word).is_some()
                    || ["tcp_rmem", "tcp_wmem", "max_age"].contains(&word.as_str());
                assert!(exists, "{name}: what is {word}?");
            }
        }
    }
}
