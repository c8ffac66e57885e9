//! The proxy module's settings of a location.

use super::location::Builder;
use super::or;
use crate::draft::{LevelDraft, ProxyPassDraft, RedirectDraft};
use crate::model::{
    Forwarding, Handler, NextUpstream, Proxy, ProxyHttpVersion, ProxyTarget, Replace,
    RequestBuffering, RetryBackoff,
};
use crate::span::Spanned;
use crate::template::{Pattern, Template};
use std::time::Duration;

/// Fields of an answer that do not reach the client unless `proxy_pass_header` says so.
const HIDDEN: [&str; 8] = [
    "date",
    "server",
    "x-pad",
    "x-accel-expires",
    "x-accel-redirect",
    "x-accel-limit-rate",
    "x-accel-buffering",
    "x-accel-charset",
];

impl Builder<'_, '_> {
    /// The proxy module's settings of a location.
    pub(super) fn proxy_settings(
        &mut self,
        level: &LevelDraft,
        text: &str,
        handler: &Handler,
        pass: Option<&str>,
    ) -> Proxy {
        let redirects = self.redirects(level.redirects.as_ref(), text, handler, pass);
        let tls = self.proxy_tls(level, handler);
        let level = level.clone();
        let pass_headers = or(level.pass_headers, Vec::new());
        let hide_headers = hidden_fields(or(level.hide_headers, Vec::new()), &pass_headers);
        let buffer_size = or(level.buffer_size, 4096);
        let buffers = or(level.buffers, (8, 4096));
        let larger = buffer_size.max(buffers.1).saturating_mul(2);
        let (bind, bind_transparent) = match or(level.bind, None) {
            Some((address, transparent)) => (Some(address), transparent),
            None => (None, false),
        };
        let next_upstream = NextUpstream {
            error: true,
            timeout: true,
            ..NextUpstream::default()
        };
        let temp_path = self.reader.temporary("proxy_temp");
        let seconds = Duration::from_secs;
        Proxy {
            set_headers: or(level.set_headers, Vec::new()),
            pass_headers,
            hide_headers,
            ignore_headers: or(level.ignore_headers, Vec::new()),
            http_version: or(level.http_version, ProxyHttpVersion::Http11),
            connect_timeout: or(level.connect_timeout, seconds(60)),
            send_timeout: or(level.proxy_send_timeout, seconds(60)),
            read_timeout: or(level.read_timeout, seconds(60)),
            next_upstream: or(level.next_upstream, next_upstream),
            next_upstream_tries: or(level.next_upstream_tries, 0),
            next_upstream_timeout: or(level.next_upstream_timeout, Duration::ZERO),
            try_timeout: or(level.try_timeout, Duration::ZERO),
            retry_backoff: or(level.retry_backoff, Some(RetryBackoff::DEFAULT)),
            buffering: or(level.buffering, true),
            buffer_size,
            buffers,
            busy_buffers_size: or(level.busy_buffers_size, larger),
            max_temp_file_size: or(level.max_temp_file_size, 0),
            temp_file_write_size: or(level.temp_file_write_size, larger),
            temp_path: or(level.proxy_temp_path, temp_path),
            request_buffering: or(level.request_buffering, RequestBuffering::Auto),
            ignore_client_abort: or(level.ignore_client_abort, false),
            intercept_errors: or(level.intercept_errors, false),
            redirects,
            cookie_domains: or(level.cookie_domains, Vec::new()),
            cookie_paths: or(level.cookie_paths, Vec::new()),
            cookie_flags: or(level.cookie_flags, Vec::new()),
            bind,
            bind_transparent,
            socket_keepalive: or(level.socket_keepalive, false),
            proxy_protocol: or(level.proxy_protocol, None),
            method: level.method.map(|value| value.value),
            set_body: level.set_body.map(|value| value.value),
            pass_request_headers: or(level.pass_request_headers, true),
            pass_request_body: or(level.pass_request_body, true),
            pass_trailers: or(level.pass_trailers, false),
            limit_rate: level.limit_rate.map(|value| value.value),
            upgrade: or(level.upgrade, vec!["websocket".to_owned()]),
            upgrade_timeout: or(level.upgrade_timeout, seconds(3600)),
            forwarding: or(level.forwarding, Forwarding::Off),
            tls,
        }
    }

    /// `proxy_redirect default` needs a fixed `proxy_pass` on the same level.
    pub(super) fn check_default_redirect(
        &mut self,
        level: &LevelDraft,
        pass: Option<&ProxyPassDraft>,
    ) {
        let drafts = level.redirects.iter().flat_map(|stated| &stated.value);
        for draft in drafts {
            let RedirectDraft::Default(span) = draft else {
                continue;
            };
            let message = match pass {
                None => {
                    "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive"
                }
                Some(pass) if pass.template.as_literal().is_none() => {
                    "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with variables"
                }
                Some(_) => continue,
            };
            self.reader.error(*span, message);
        }
    }

    fn redirects(
        &self,
        stated: Option<&Spanned<Vec<RedirectDraft>>>,
        text: &str,
        handler: &Handler,
        pass: Option<&str>,
    ) -> Vec<Replace> {
        let default = default_redirect(text, handler, pass);
        let Some(stated) = stated else {
            return default.into_iter().collect();
        };
        let mut redirects = Vec::new();
        for draft in &stated.value {
            match (draft, &default) {
                (RedirectDraft::Replace(replace), _) => redirects.push(replace.clone()),
                (RedirectDraft::Default(_), default) => redirects.extend(default.clone()),
            }
        }
        redirects
    }
}

/// The fields that are hidden: the built-in ones and those of `proxy_hide_header`, without those of `proxy_pass_header`.
fn hidden_fields(stated: Vec<String>, passed: &[String]) -> Vec<String> {
    let mut hidden: Vec<String> = HIDDEN.iter().map(|name| (*name).to_owned()).collect();
    for name in stated {
        if !hidden.contains(&name) {
            hidden.push(name);
        }
    }
    hidden.retain(|name| !passed.contains(name));
    hidden
}

/// `proxy_redirect default`: the URL of `proxy_pass` becomes the location's prefix; without a URI the URL becomes `/`.
fn default_redirect(text: &str, handler: &Handler, pass: Option<&str>) -> Option<Replace> {
    let Handler::Proxy(proxy) = handler else {
        return None;
    };
    let ProxyTarget::Upstream {
        uri, host, https, ..
    } = &proxy.target
    else {
        return None;
    };
    let scheme = if *https { "https" } else { "http" };
    let url = pass.map_or_else(|| format!("{scheme}://{host}"), str::to_owned);
    let literal = |text: &str| Template::literal(text);
    Some(match uri {
        Some(uri) => {
            let url = if pass.is_some() {
                url
            } else {
                format!("{url}{uri}")
            };
            Replace {
                from: Pattern::Text(literal(&url)),
                to: literal(text),
            }
        }
        None => Replace {
            from: Pattern::Text(literal(&format!("{url}/"))),
            to: literal("/"),
        },
    })
}
