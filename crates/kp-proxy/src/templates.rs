//! Every template of a configuration, for questions such as "does anything read `$1`?".
//!
//! A directive with a template must be named here; the patterns take the structs apart so that a new field with a
//! template does not go unnoticed where that is cheap to write.

use kp_config::Config;
use kp_config::model::{
    AccessLog, AccessLogTarget, AddHeader, Balancer, Condition, CookieFlags, ErrorPageTarget,
    Handler, Location, MatchCondition, Proxy, ProxyTarget, ProxyTls, Replace, Return, Rewrite,
    Root, ServerTokens, TlsFile,
};
use kp_config::template::{Pattern, Template};

type Visit<'v> = dyn FnMut(&Template) + 'v;

/// Shows every template to `visit`.
pub(crate) fn each(config: &Config, visit: &mut Visit<'_>) {
    for location in &config.http.locations {
        of_location(location, visit);
    }
    for map in &config.http.maps {
        visit(&map.source);
        visit(&map.default);
        map.exact.iter().for_each(|(_, value)| visit(value));
        map.wildcards.iter().for_each(|(_, value)| visit(value));
        map.regexes.iter().for_each(|(_, value)| visit(value));
    }
    for split in &config.http.splits {
        visit(&split.source);
    }
    let servers = config
        .http
        .servers
        .iter()
        .filter_map(|server| server.tls.as_ref());
    let identities = config.http.tls_identities.iter();
    let own = servers.flat_map(|tls| &tls.certificates);
    for pair in own.chain(identities.filter_map(|one| one.certificate.as_ref())) {
        for file in [&pair.certificate.value, &pair.key.value] {
            match file {
                TlsFile::Template { path, .. } => visit(path),
                TlsFile::Data(text) => visit(text),
                TlsFile::Path(_) => {}
            }
        }
    }
    config
        .http
        .rate_zones
        .iter()
        .for_each(|zone| visit(&zone.key));
    config
        .http
        .place_zones
        .iter()
        .for_each(|zone| visit(&zone.key));
    for format in &config.http.log_formats {
        format.shape.visit(&mut *visit);
    }
    for block in &config.http.matches {
        for condition in &block.conditions {
            if let MatchCondition::Require(variables) = condition {
                variables.iter().for_each(&mut *visit);
            }
        }
    }
    for upstream in &config.http.upstreams {
        if let Balancer::Hash { key, .. } = &upstream.balancer {
            visit(key);
        }
    }
}

fn of_location(location: &Location, visit: &mut Visit<'_>) {
    location
        .rewrite
        .iter()
        .for_each(|instruction| of_rewrite(instruction, visit));
    if let Handler::Proxy(pass) = &location.handler
        && let ProxyTarget::Template(target) = &pass.target
    {
        visit(target);
    }
    match &location.root {
        Root::Root(path) | Root::Alias { path, .. } => visit(path),
    }
    location.index.iter().for_each(&mut *visit);
    for page in &location.error_pages {
        match &page.target {
            ErrorPageTarget::Uri(target) | ErrorPageTarget::Url(target) => visit(target),
            ErrorPageTarget::Named(_) => {}
        }
    }
    for AddHeader { value, .. } in location.add_headers.iter().chain(&location.add_trailers) {
        visit(value);
    }
    for template in [&location.limit_rate, &location.limit_rate_after] {
        template.iter().for_each(&mut *visit);
    }
    location.early_hints.iter().for_each(&mut *visit);
    for AccessLog {
        target, condition, ..
    } in &location.access_logs
    {
        if let AccessLogTarget::Template(path) = target {
            visit(path);
        }
        condition.iter().for_each(&mut *visit);
    }
    if let ServerTokens::Text(text) = &location.server_tokens {
        visit(text);
    }
    of_proxy(&location.proxy, visit);
}

fn of_proxy(proxy: &Proxy, visit: &mut Visit<'_>) {
    proxy
        .set_headers
        .iter()
        .for_each(|header| visit(&header.value));
    let replacements = proxy
        .redirects
        .iter()
        .chain(&proxy.cookie_domains)
        .chain(&proxy.cookie_paths);
    for Replace { from, to } in replacements {
        of_pattern(from, visit);
        visit(to);
    }
    proxy.cookie_flags.iter().for_each(
        |CookieFlags {
             cookie, evaluated, ..
         }| {
            of_pattern(cookie, visit);
            evaluated.iter().for_each(&mut *visit);
        },
    );
    for template in [
        &proxy.bind,
        &proxy.method,
        &proxy.set_body,
        &proxy.limit_rate,
    ] {
        template.iter().for_each(&mut *visit);
    }
    if let Some(ProxyTls {
        name: Some(name), ..
    }) = &proxy.tls
    {
        visit(name);
    }
}

fn of_pattern(pattern: &Pattern, visit: &mut Visit<'_>) {
    if let Pattern::Text(text) = pattern {
        visit(text);
    }
}

fn of_rewrite(instruction: &Rewrite, visit: &mut Visit<'_>) {
    match instruction {
        Rewrite::Set { value, .. }
        | Rewrite::SetArgs { value }
        | Rewrite::SetLimitRate { value } => visit(value),
        Rewrite::If { condition, .. } => match condition {
            Condition::Truthy(value) | Condition::Matches { value, .. } => visit(value),
            Condition::Equals { value, other, .. } => {
                visit(value);
                visit(other);
            }
            Condition::File { path, .. } => visit(path),
        },
        Rewrite::Rewrite { replacement, .. } => visit(replacement),
        Rewrite::Return(Return::Text(_, text) | Return::Redirect(_, text)) => visit(text),
        Rewrite::Return(Return::Status(_)) | Rewrite::Break => {}
    }
}
