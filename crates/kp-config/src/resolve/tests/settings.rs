//! One test per family of setters, and the defaults.

use super::*;
use crate::model::{
    BodyInFile, CpuAffinity, Forwarding, LingeringClose, ProxyHttpVersion, RequestBuffering, Root,
    SameSite, ServerTokens, StopSignal,
};
use crate::template::{Pattern, Template};

#[test]
fn main_and_events() {
    let config = config(
        "daemon off; master_process off; worker_processes auto; user www; pid run/x.pid; working_directory /tmp;
worker_rlimit_nofile 4096; worker_rlimit_core 1m; worker_priority -20; worker_cpu_affinity 01 10; worker_shutdown_timeout 1m; stop_signal graceful;
events { worker_connections 10; multi_accept on; use epoll; }",
    );
    let main = &config.main;
    assert!(!main.daemon && !main.master_process && main.multi_accept);
    assert_eq!((main.worker_processes, main.worker_connections), (None, 10));
    let user = main.user.as_ref().unwrap();
    assert_eq!((user.name.as_str(), user.group.as_str()), ("www", "www"));
    assert_eq!(main.pid, PathBuf::from("/prefix/run/x.pid"));
    assert_eq!(main.working_directory, Some("/tmp".into()));
    assert_eq!(main.worker_rlimit_nofile, Some(4096));
    assert_eq!(main.worker_rlimit_core, Some(1 << 20));
    assert_eq!(main.worker_priority, Some(-20));
    assert_eq!(
        main.worker_cpu_affinity,
        CpuAffinity::Masks(vec![vec![0], vec![1]])
    );
    assert_eq!(main.worker_shutdown_timeout.unwrap().as_secs(), 60);
    assert_eq!(main.stop_signal, StopSignal::Graceful);
}

#[test]
fn a_priority_has_bounds() {
    for word in ["-21", "20", "x", "1.5", "99999999999"] {
        let text = format!("worker_priority {word};");
        let errors = [r#"1:17 "worker_priority" directive invalid number"#];
        assert_eq!(findings(&text), errors, "{word}");
    }
}

#[test]
fn defaults_of_main() {
    let config = config("");
    let main = &config.main;
    assert!(main.daemon && main.master_process && !main.multi_accept);
    assert_eq!(
        (main.worker_processes, main.worker_connections),
        (Some(1), 512)
    );
    assert_eq!(
        (main.user.is_none(), main.worker_shutdown_timeout),
        (true, None)
    );
    assert_eq!(main.stop_signal, StopSignal::Fast);
    assert_eq!(main.pid, PathBuf::from("/run/kp.pid"));
    assert_eq!(config.http.servers, []);
}

#[test]
fn affinity_forms() {
    let affinity = |text: &str| {
        config(&format!("worker_cpu_affinity {text};"))
            .main
            .worker_cpu_affinity
    };
    assert_eq!(affinity("auto"), CpuAffinity::Auto(None));
    assert_eq!(affinity("auto 0101"), CpuAffinity::Auto(Some(vec![0, 2])));
    assert_eq!(affinity("1100"), CpuAffinity::Masks(vec![vec![2, 3]]));
}

#[test]
fn defaults_of_a_location() {
    let config = config(&location(""));
    let location = prefix(&config, "/a/");
    assert_eq!(location.root, Root::Root(Template::literal("/prefix/html")));
    assert_eq!(location.index, [Template::literal("index.html")]);
    assert_eq!(location.default_type, "text/plain");
    assert_eq!(location.keepalive_timeout.as_secs(), 75);
    assert_eq!(
        (location.keepalive_header, location.keepalive_requests),
        (None, 1000)
    );
    assert_eq!(location.client_max_body_size, Some(1 << 20));
    assert_eq!(location.client_body_buffer_size, 16 << 10);
    assert_eq!(location.lingering.close, LingeringClose::On);
    assert_eq!(location.server_tokens, ServerTokens::On);
    assert!(location.keepalive_disable.msie6 && !location.keepalive_disable.safari);
    let proxy = &location.proxy;
    assert_eq!(proxy.http_version, ProxyHttpVersion::Http11);
    assert_eq!(proxy.request_buffering, RequestBuffering::Auto);
    assert_eq!(
        (proxy.buffer_size, proxy.buffers, proxy.busy_buffers_size),
        (4096, (8, 4096), 8192)
    );
    assert_eq!(proxy.max_temp_file_size, 0);
    assert!(
        proxy.next_upstream.error && proxy.next_upstream.timeout && !proxy.next_upstream.http_502
    );
    assert_eq!(proxy.upgrade, ["websocket"]);
    assert_eq!(proxy.forwarding, Forwarding::Off);
    assert!(proxy.hide_headers.contains(&"date".to_owned()));
    let early = &config.http.servers[0].early;
    assert_eq!(
        (
            early.large_header_buffers,
            early.large_header_buffer_size,
            early.max_headers
        ),
        (4, 8192, 1000)
    );
    assert!(early.merge_slashes && early.ignore_invalid_headers);
}

#[test]
fn values_of_a_location() {
    let config = config(&location(
        "keepalive_timeout 5s 4s; keepalive_disable none; client_body_in_file_only clean; lingering_close always;
server_tokens \"mine $pid\"; index a.html $host; proxy_http_version 1.0; proxy_request_buffering off;
proxy_forwarding append; proxy_upgrade WebSocket h2c; proxy_bind 127.0.0.1 transparent; proxy_method POST;
proxy_next_upstream off; proxy_buffers 2 8k; proxy_ignore_headers Vary x-accel-expires; proxy_temp_path t 1;
proxy_set_body $args; early_hints 1; proxy_limit_rate 100; client_body_temp_path /b; types_hash_max_size 5;",
    ));
    let location = prefix(&config, "/a/");
    assert_eq!(location.keepalive_timeout.as_secs(), 5);
    assert_eq!(location.keepalive_header.unwrap().as_secs(), 4);
    assert!(!location.keepalive_disable.msie6);
    assert_eq!(location.client_body_in_file_only, BodyInFile::Clean);
    assert_eq!(location.lingering.close, LingeringClose::Always);
    assert!(matches!(location.server_tokens, ServerTokens::Text(_)));
    assert_eq!(location.index.len(), 2);
    assert_eq!(location.early_hints.len(), 1);
    let proxy = &location.proxy;
    assert_eq!(proxy.http_version, ProxyHttpVersion::Http10);
    assert_eq!(proxy.request_buffering, RequestBuffering::Off);
    assert_eq!(proxy.forwarding, Forwarding::Append);
    assert_eq!(proxy.upgrade, ["websocket", "h2c"]);
    assert!(proxy.bind.is_some() && proxy.bind_transparent);
    assert!(proxy.next_upstream.off && !proxy.next_upstream.error);
    assert_eq!((proxy.buffers, proxy.busy_buffers_size), ((2, 8192), 16384));
    assert_eq!(proxy.ignore_headers, ["vary", "x-accel-expires"]);
    assert_eq!(proxy.method, Some(Template::literal("POST")));
    assert_eq!(
        config.temp_paths,
        [
            "/b",
            "/prefix/t",
            "/prefix/client_body_temp",
            "/prefix/proxy_temp"
        ]
        .map(PathBuf::from)
    );
}

#[test]
fn cookies() {
    let config = config(&location(
        "proxy_cookie_domain .old.test .new.test; proxy_cookie_domain ~^x$ y; proxy_cookie_path ~*^/A /b; proxy_cookie_path / /c;
proxy_cookie_flags one secure samesite=lax; proxy_cookie_flags ~^t nohttponly nosamesite;",
    ));
    let proxy = &prefix(&config, "/a/").proxy;
    assert_eq!(
        proxy.cookie_domains[0].from,
        Pattern::Text(Template::literal("old.test"))
    );
    assert_eq!(proxy.cookie_domains[0].to, Template::literal("new.test"));
    let insensitive = |pattern: &Pattern| match pattern {
        Pattern::Regex(regex) => config.http.regexes[regex.index()].case_insensitive,
        Pattern::Text(_) => panic!("an expression is expected"),
    };
    assert!(insensitive(&proxy.cookie_domains[1].from) && insensitive(&proxy.cookie_paths[0].from));
    assert_eq!(proxy.cookie_paths.len(), 2);
    let flags = &proxy.cookie_flags[0].wanted;
    assert_eq!(
        (flags.secure, flags.http_only, flags.same_site),
        (Some(true), None, Some(Some(SameSite::Lax)))
    );
    let flags = &proxy.cookie_flags[1].wanted;
    assert_eq!(
        (flags.secure, flags.http_only, flags.same_site),
        (None, Some(false), Some(None))
    );
}

#[test]
fn off_switches_an_inherited_list_off() {
    let config = config(&server(
        "proxy_cookie_path / /x; proxy_bind 127.0.0.1; proxy_upgrade h2c;
location /a/ { proxy_cookie_path off; proxy_bind off; proxy_upgrade off; }",
    ));
    let proxy = &prefix(&config, "/a/").proxy;
    assert_eq!(
        (
            proxy.cookie_paths.len(),
            proxy.bind.is_none(),
            proxy.upgrade.len()
        ),
        (0, true, 0)
    );
}

#[test]
fn roots() {
    let root = |text: &str| match &prefix(&config(&location(text)), "/a/").root {
        Root::Root(path) | Root::Alias { path, .. } => path.clone(),
    };
    assert_eq!(root("root /srv/;"), Template::literal("/srv"));
    assert_eq!(root("root srv;"), Template::literal("/prefix/srv"));
    assert_eq!(root("alias /srv/;"), Template::literal("/srv/"));
    assert_eq!(root("root $host;").parts.len(), 1);
    assert_eq!(root("root www/$host;").parts.len(), 2);
}
