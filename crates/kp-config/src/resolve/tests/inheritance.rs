//! Case C02 and what else one level takes from the level above.

use super::*;
use crate::model::{Root, TypeMapId};
use crate::template::Template;

fn set_headers(location: &Location) -> Vec<String> {
    location
        .proxy
        .set_headers
        .iter()
        .map(|field| field.name.clone())
        .collect()
}

#[test]
fn a_level_with_its_own_set_header_takes_none() {
    let text = server(
        "proxy_set_header X-A 1; proxy_set_header Host $host;
location /in/ { proxy_pass http://u; }
location /own/ { proxy_set_header X-B 2; proxy_pass http://u; }
location /both/ { proxy_set_header x-a 3; proxy_set_header HOST x; }
location /empty/ { proxy_set_header X-C \"\"; }",
    );
    assert_eq!(
        findings(&text),
        [
            "warn 4:18 \"proxy_set_header\" here drops the inherited \"X-A\", \"Host\"",
            "warn 6:20 \"proxy_set_header\" here drops the inherited \"X-A\", \"Host\"",
        ]
    );
    let (config, _) = load(&text);
    let config = config.unwrap();
    assert_eq!(set_headers(prefix(&config, "/in/")), ["X-A", "Host"]);
    assert_eq!(set_headers(prefix(&config, "/own/")), ["X-B"]);
    assert_eq!(set_headers(prefix(&config, "/empty/")), ["X-C"]);
}

#[test]
fn values_come_from_the_nearest_level() {
    let config = config(
        "http { send_timeout 1s; keepalive_requests 1; root /http; add_header A 1; client_max_body_size 0;
server { listen 8080; send_timeout 2s; error_page 404 /e;
location /x/ { send_timeout 3s; add_header B 1; add_header C 1; location /x/y/ { tcp_nodelay off; }
if ($args) { root /if; } }
location /z/ { error_page 500 /f; } } }",
    );
    let inner = prefix(&config, "/x/y/");
    assert_eq!(
        (
            inner.send_timeout.as_secs(),
            inner.keepalive_requests,
            inner.tcp_nodelay
        ),
        (3, 1, false)
    );
    assert_eq!(inner.root, Root::Root(Template::literal("/http")));
    assert_eq!(inner.client_max_body_size, None);
    let names: Vec<&str> = inner
        .add_headers
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(names, ["B", "C"]);
    assert_eq!(inner.error_pages[0].status, 404);
    let outer = prefix(&config, "/z/");
    assert_eq!(outer.send_timeout.as_secs(), 2);
    assert_eq!(
        outer
            .error_pages
            .iter()
            .map(|page| page.status)
            .collect::<Vec<_>>(),
        [500]
    );
    assert_eq!(outer.add_headers[0].name, "A");
    let inside = config
        .http
        .locations
        .iter()
        .find(|location| location.matches == LocationMatch::If)
        .unwrap();
    assert_eq!(inside.root, Root::Root(Template::literal("/if")));
    assert_eq!(inside.send_timeout.as_secs(), 3);
}

#[test]
fn server_settings_before_routing() {
    let config = config(
        "http { client_header_timeout 1s; max_headers 5;
server { listen 8080; client_header_timeout 2s; }
server { listen 8081; large_client_header_buffers 2 16k; accept_bare_lf on; } }",
    );
    let [first, second] = config.http.servers.as_slice() else {
        panic!("two servers")
    };
    assert_eq!(
        (
            first.early.client_header_timeout.as_secs(),
            first.early.max_headers
        ),
        (2, 5)
    );
    assert_eq!(second.early.client_header_timeout.as_secs(), 1);
    assert_eq!(
        (
            second.early.large_header_buffers,
            second.early.large_header_buffer_size
        ),
        (2, 16 << 10)
    );
    assert!(second.early.accept_bare_lf && !first.early.accept_bare_lf);
}

#[test]
fn hidden_and_passed_fields() {
    let config = config(&location(
        "proxy_pass http://u; proxy_pass_header Server; proxy_hide_header X-Mine; proxy_hide_header Date;",
    ));
    let hidden = &prefix(&config, "/a/").proxy.hide_headers;
    assert!(
        hidden.contains(&"x-mine".to_owned()) && hidden.contains(&"x-accel-redirect".to_owned())
    );
    assert!(!hidden.contains(&"server".to_owned()));
    assert_eq!(hidden.iter().filter(|name| *name == "date").count(), 1);
}

#[test]
fn alias_keeps_the_prefix_it_stands_for() {
    let config = config(&server(
        "location /i/ { alias /data/; location /i/j/ { } if ($args) { } }
location ~ ^/r/(.*)$ { alias /x/$1; }",
    ));
    let alias = |location: &Location| match &location.root {
        Root::Alias { prefix_len, .. } => *prefix_len,
        Root::Root(_) => panic!("an alias is expected"),
    };
    assert_eq!(alias(prefix(&config, "/i/")), Some(3));
    assert_eq!(alias(prefix(&config, "/i/j/")), Some(3));
    let regex = config
        .http
        .locations
        .iter()
        .find(|location| matches!(location.matches, LocationMatch::Regex(_)));
    assert_eq!(alias(regex.unwrap()), None);
}

#[test]
fn types_replace_the_types_above() {
    let text = "types { text/plain txt TXT; }
location /a/ { }
location /b/ { types { text/html html htm; } types { image/png png; } }";
    let text = text.replace(" TXT", "");
    let config = config(&server(&text));
    let of = |location: &Location| config.http.type_maps[location.types.index()].types.clone();
    let pair = |extension: &str, media: &str| (extension.to_owned(), media.to_owned());
    assert_eq!(of(prefix(&config, "/a/")), [pair("txt", "text/plain")]);
    assert_eq!(
        of(prefix(&config, "/b/")),
        [
            pair("htm", "text/html"),
            pair("html", "text/html"),
            pair("png", "image/png")
        ]
    );
    let built_in = &config.http.type_maps[TypeMapId(0).index()].types;
    assert_eq!(
        *built_in,
        [
            pair("gif", "image/gif"),
            pair("html", "text/html"),
            pair("jpg", "image/jpeg")
        ]
    );
}
