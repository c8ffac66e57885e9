//! `proxy_cookie_domain`, `proxy_cookie_path`, `proxy_cookie_flags`: the upstream's `Set-Cookie` as the client must see it.
//!
//! Decides the new value. nginx's rules: of each kind the first rule that fits wins; without one that fits, the value
//! stays byte for byte as it came.

use crate::program::Program;
use crate::{Context, Exchange, proxy_redirect, vars};
use kp_config::model::{CookieFlags, Proxy, Replace, SameSite, WantedFlags};
use kp_config::template::Pattern;

/// One attribute; the first is the cookie itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attribute {
    name: Vec<u8>,
    value: Option<Vec<u8>>,
    removed: bool,
}

impl Attribute {
    fn is(&self, name: &str) -> bool {
        !self.removed && self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    fn flag(name: &str, value: Option<&str>) -> Self {
        Self {
            name: name.into(),
            value: value.map(Into::into),
            removed: false,
        }
    }
}

/// The value with the rules applied, or `None` where none fits.
pub(crate) fn rewrite(
    value: &[u8],
    proxy: &Proxy,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> Option<Vec<u8>> {
    let mut attributes = parse(value);
    let (cookie, rest) = attributes.split_first_mut()?;
    cookie.value.as_ref()?;
    let mut changed = false;
    for attribute in rest {
        let is_domain = attribute.is("domain");
        let is_path = attribute.is("path");
        let Some(value) = &mut attribute.value else {
            continue;
        };
        if is_domain {
            changed |= rewrite_domain(value, &proxy.cookie_domains, exchange, program, context);
        } else if is_path {
            changed |=
                proxy_redirect::rewrite(value, 0, &proxy.cookie_paths, exchange, program, context);
        }
    }
    let rule = proxy.cookie_flags.iter().find(|rule| {
        let name = attributes
            .first()
            .map(|cookie| cookie.name.as_slice())
            .unwrap_or_default();
        names_cookie(&rule.cookie, name, exchange, program, context)
    });
    if let Some(rule) = rule {
        let wanted = wanted_flags(rule, exchange, program, context);
        changed |= set_flags(&mut attributes, wanted);
    }
    changed.then(|| join(&attributes))
}

fn parse(value: &[u8]) -> Vec<Attribute> {
    value
        .split(|&byte| byte == b';')
        .map(|part| {
            let (name, value) = match memchr::memchr(b'=', part) {
                Some(at) => (&part[..at], Some(&part[at + 1..])),
                None => (part, None),
            };
            Attribute {
                name: trim(name).to_vec(),
                value: value.map(|value| trim(value).to_vec()),
                removed: false,
            }
        })
        .collect()
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

fn join(attributes: &[Attribute]) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, attribute) in attributes
        .iter()
        .enumerate()
        .filter(|(_, attribute)| !attribute.removed)
    {
        if index > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(&attribute.name);
        if let Some(value) = &attribute.value {
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
    out
}

/// A leading dot is neither compared nor replaced; text is compared whole and without case.
fn rewrite_domain(
    value: &mut Vec<u8>,
    rules: &[Replace],
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> bool {
    let mut text = Vec::new();
    for rule in rules {
        text.clear();
        let (start, strip) = match &rule.from {
            Pattern::Text(pattern) => {
                vars::evaluate(pattern, exchange, program, context, &mut text);
                let start = usize::from(value.first() == Some(&b'.'));
                let pattern = text.strip_prefix(b".").unwrap_or(&text);
                if !value
                    .get(start..)
                    .unwrap_or_default()
                    .eq_ignore_ascii_case(pattern)
                {
                    continue;
                }
                (start, true)
            }
            Pattern::Regex(regex) => {
                if !proxy_redirect::matches(*regex, value, exchange, program) {
                    continue;
                }
                (0, false)
            }
        };
        text.clear();
        vars::evaluate(&rule.to, exchange, program, context, &mut text);
        let replacement = if strip {
            text.strip_prefix(b".").unwrap_or(&text)
        } else {
            &text
        };
        value.truncate(start);
        value.extend_from_slice(replacement);
        return true;
    }
    false
}

fn names_cookie(
    pattern: &Pattern,
    name: &[u8],
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> bool {
    match pattern {
        Pattern::Text(template) => {
            let mut text = Vec::new();
            vars::evaluate(template, exchange, program, context, &mut text);
            text.eq_ignore_ascii_case(name)
        }
        Pattern::Regex(regex) => proxy_redirect::matches(*regex, name, exchange, program),
    }
}

/// What a rule wants of this cookie. A value that is no flag says nothing, as in nginx.
fn wanted_flags(
    rule: &CookieFlags,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> WantedFlags {
    let mut wanted = rule.wanted;
    for flag in &rule.evaluated {
        let mut text = Vec::new();
        vars::evaluate(flag, exchange, program, context, &mut text);
        wanted.set(&text);
    }
    wanted
}

/// Adds, replaces and removes the flags that are spoken of; whether any is.
fn set_flags(attributes: &mut Vec<Attribute>, wanted: WantedFlags) -> bool {
    if wanted == WantedFlags::default() {
        return false;
    }
    let WantedFlags {
        mut secure,
        mut http_only,
        mut same_site,
    } = wanted;
    for attribute in attributes.iter_mut().skip(1) {
        if attribute.is("secure") {
            switch(attribute, &mut secure);
        } else if attribute.is("httponly") {
            switch(attribute, &mut http_only);
        } else if attribute.is("samesite") {
            match same_site {
                Some(Some(kind)) => {
                    let text = same_site_text(kind);
                    if !attribute
                        .value
                        .as_ref()
                        .is_some_and(|value| value.eq_ignore_ascii_case(text.as_bytes()))
                    {
                        *attribute = Attribute::flag("SameSite", Some(text));
                    }
                    same_site = None;
                }
                Some(None) => attribute.removed = true,
                None => {}
            }
        }
    }
    if secure == Some(true) {
        attributes.push(Attribute::flag("Secure", None));
    }
    if http_only == Some(true) {
        attributes.push(Attribute::flag("HttpOnly", None));
    }
    if let Some(Some(kind)) = same_site {
        attributes.push(Attribute::flag("SameSite", Some(same_site_text(kind))));
    }
    true
}

/// A flag that is there: wanted, it stays and need not be added; unwanted, it goes.
fn switch(attribute: &mut Attribute, wanted: &mut Option<bool>) {
    match wanted {
        Some(true) => *wanted = None,
        Some(false) => attribute.removed = true,
        None => {}
    }
}

fn same_site_text(kind: SameSite) -> &'static str {
    match kind {
        SameSite::Strict => "Strict",
        SameSite::Lax => "Lax",
        SameSite::None => "None",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(
        value: &str,
        secure: Option<bool>,
        http_only: Option<bool>,
        same_site: Option<Option<SameSite>>,
    ) -> String {
        let wanted = WantedFlags {
            secure,
            http_only,
            same_site,
        };
        let mut attributes = parse(value.as_bytes());
        set_flags(&mut attributes, wanted);
        String::from_utf8(join(&attributes)).expect("text")
    }

    #[test]
    fn flags_are_added_replaced_and_removed() {
        let all = |value, kind| flags(value, Some(true), Some(true), Some(Some(kind)));
        assert_eq!(
            all("a=1; Domain=e.org", SameSite::None),
            "a=1; Domain=e.org; Secure; HttpOnly; SameSite=None"
        );
        assert_eq!(
            all("a=1;Secure;HttpOnly;SameSite=Lax", SameSite::None),
            "a=1; Secure; HttpOnly; SameSite=None"
        );
        assert_eq!(
            all("a=1;samesite=lax", SameSite::Lax),
            "a=1; samesite=lax; Secure; HttpOnly"
        );
        assert_eq!(
            flags(
                "a=1; Path=/;secure;httponly;samesite=lax",
                Some(false),
                Some(false),
                Some(None)
            ),
            "a=1; Path=/"
        );
        assert_eq!(flags("a=1", None, Some(true), None), "a=1; HttpOnly");
        assert_eq!(flags("a=1;secure", Some(true), None, None), "a=1; secure");
    }

    #[test]
    fn values_come_apart_and_together() {
        assert_eq!(
            join(&parse(b"v=path=domain=;  Domain = a.b ;HttpOnly")),
            b"v=path=domain=; Domain=a.b; HttpOnly"
        );
        assert_eq!(parse(b"novalue").len(), 1);
        assert_eq!(parse(b"novalue")[0].value, None);
    }
}
