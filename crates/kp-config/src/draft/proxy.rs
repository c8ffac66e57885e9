//! Setters of the proxy module's inherited settings.

use super::Reader;
use crate::diagnostic::Diagnostic;
use crate::model::{
    CookieFlags, Forwarding, NextUpstream, ProxyHttpVersion, ProxyProtocol, Replace,
    RequestBuffering, SetHeader, WantedFlags,
};
use crate::span::{Span, Spanned};
use crate::syntax::{Directive, Word};
use crate::template::{Pattern, Template};

/// One `proxy_redirect`; `off` is an empty list.
#[derive(Debug, Clone)]
pub(crate) enum RedirectDraft {
    /// `default`, made from the location's `proxy_pass`.
    Default(Span),
    /// A pair.
    Replace(Replace),
}

impl Reader<'_> {
    /// `proxy_set_header`.
    pub(crate) fn set_header(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<SetHeader>>>,
    ) {
        let [name, value] = directive.args.as_slice() else {
            return;
        };
        let named = self.check_field_name(name);
        let Some(value) = self.compile(value) else {
            return;
        };
        if named {
            let name = name.text.clone();
            Self::push(slot, SetHeader { name, value }, directive.at);
        }
    }

    /// `proxy_pass_header` and `proxy_hide_header`.
    pub(crate) fn field_name(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<String>>>,
    ) {
        if let Some(word) = directive.args.first()
            && self.check_field_name(word)
        {
            Self::push(slot, word.text.to_ascii_lowercase(), word.span);
        }
    }

    /// `proxy_ignore_headers`.
    pub(crate) fn ignore_headers(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<String>>>,
    ) {
        const FIELDS: [(&str, &str); 9] = [
            ("X-Accel-Redirect", "x-accel-redirect"),
            ("X-Accel-Expires", "x-accel-expires"),
            ("X-Accel-Limit-Rate", "x-accel-limit-rate"),
            ("X-Accel-Buffering", "x-accel-buffering"),
            ("X-Accel-Charset", "x-accel-charset"),
            ("Expires", "expires"),
            ("Cache-Control", "cache-control"),
            ("Set-Cookie", "set-cookie"),
            ("Vary", "vary"),
        ];
        for word in &directive.args {
            if let Some(field) = self.choose(word, &FIELDS) {
                Self::push(slot, field.to_owned(), word.span);
            }
        }
    }

    /// `proxy_http_version`.
    pub(crate) fn http_version(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<ProxyHttpVersion>>,
    ) {
        self.choice(
            directive,
            slot,
            &[
                ("1.0", ProxyHttpVersion::Http10),
                ("1.1", ProxyHttpVersion::Http11),
            ],
        );
    }

    /// `proxy_request_buffering`.
    pub(crate) fn request_buffering(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<RequestBuffering>>,
    ) {
        let choices = [
            ("on", RequestBuffering::On),
            ("off", RequestBuffering::Off),
            ("auto", RequestBuffering::Auto),
        ];
        self.choice(directive, slot, &choices);
    }

    /// `proxy_protocol`.
    pub(crate) fn proxy_protocol(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Option<ProxyProtocol>>>,
    ) {
        let choices = [
            ("off", None),
            ("on", Some(ProxyProtocol::V1)),
            ("v1", Some(ProxyProtocol::V1)),
            ("v2", Some(ProxyProtocol::V2)),
        ];
        self.choice(directive, slot, &choices);
    }

    /// `proxy_forwarding`.
    pub(crate) fn forwarding(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Forwarding>>,
    ) {
        let choices = [
            ("off", Forwarding::Off),
            ("edge", Forwarding::Edge),
            ("append", Forwarding::Append),
        ];
        self.choice(directive, slot, &choices);
    }

    /// `proxy_next_upstream`.
    pub(crate) fn next_upstream(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<NextUpstream>>,
    ) {
        let mut conditions = slot.take().map(|earlier| earlier.value).unwrap_or_default();
        for word in &directive.args {
            let Some(flag) = next_upstream_flag(&mut conditions, &word.text) else {
                let names = "error, timeout, invalid_header, non_idempotent, http_500, http_502, http_503, http_504, \
                             http_403, http_404, http_429, updating, off";
                self.report(
                    Diagnostic::error(word.span, format!("invalid value \"{}\"", word.text))
                        .hint(format!("it can be: {names}")),
                );
                continue;
            };
            if *flag {
                self.warning(
                    word.span,
                    format!("duplicate value \"{}\"", word.text),
                    "once is enough",
                );
            }
            *flag = true;
        }
        self.put(directive, slot, |_, _| Some(conditions));
    }

    /// `proxy_redirect`.
    pub(crate) fn proxy_redirect(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<RedirectDraft>>>,
    ) {
        if self.repeats_after_off(directive, slot.as_ref().map(|slot| slot.value.is_empty())) {
            return;
        }
        match directive.args.as_slice() {
            [word] if word.text == "off" => *slot = Some(Spanned::new(Vec::new(), word.span)),
            [word] if word.text == "default" => {
                Self::push(slot, RedirectDraft::Default(word.span), word.span);
            }
            [word] => self.error(word.span, format!("invalid parameter \"{}\"", word.text)),
            [from, to] => {
                let pattern = match from.text.strip_prefix('~') {
                    Some(pattern) => Some(self.marked_regex(pattern, from.span)),
                    None => self.compile(from).map(Pattern::Text),
                };
                let to = self.compile(to);
                if let (Some(pattern), Some(to)) = (pattern, to) {
                    Self::push(
                        slot,
                        RedirectDraft::Replace(Replace { from: pattern, to }),
                        from.span,
                    );
                }
            }
            _ => {}
        }
    }

    /// `proxy_cookie_domain`: without case; a leading dot is not compared.
    pub(crate) fn cookie_domain(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<Replace>>>,
    ) {
        self.cookie_replace(directive, slot, |reader, word| {
            match word.text.strip_prefix('~') {
                Some(pattern) => Some(Pattern::Regex(reader.regex(pattern, true, word.span))),
                None => {
                    let domain = word.text.strip_prefix('.').unwrap_or(&word.text);
                    reader.compile_text(domain, word.span).map(Pattern::Text)
                }
            }
        });
    }

    /// `proxy_cookie_path`.
    pub(crate) fn cookie_path(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<Replace>>>,
    ) {
        self.cookie_replace(directive, slot, |reader, word| {
            match word.text.strip_prefix('~') {
                Some(pattern) => Some(reader.marked_regex(pattern, word.span)),
                None => reader.compile(word).map(Pattern::Text),
            }
        });
    }

    fn cookie_replace(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<Replace>>>,
        pattern: impl FnOnce(&mut Self, &Word) -> Option<Pattern>,
    ) {
        if self.repeats_after_off(directive, slot.as_ref().map(|slot| slot.value.is_empty())) {
            return;
        }
        match directive.args.as_slice() {
            [word] if word.text == "off" => *slot = Some(Spanned::new(Vec::new(), word.span)),
            [word] => self.error(word.span, format!("invalid parameter \"{}\"", word.text)),
            [from, to] => {
                let text_domain =
                    directive.name.text == "proxy_cookie_domain" && !from.text.starts_with('~');
                let from_pattern = pattern(self, from);
                let to_text = if text_domain {
                    to.text.strip_prefix('.').unwrap_or(&to.text)
                } else {
                    &to.text
                };
                let to = self.compile_text(to_text, to.span);
                if let (Some(pattern), Some(to)) = (from_pattern, to) {
                    Self::push(slot, Replace { from: pattern, to }, from.span);
                }
            }
            _ => {}
        }
    }

    /// `proxy_cookie_flags`.
    pub(crate) fn cookie_flags(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<CookieFlags>>>,
    ) {
        if self.repeats_after_off(directive, slot.as_ref().map(|slot| slot.value.is_empty())) {
            return;
        }
        let Some((cookie, flags)) = directive.args.split_first() else {
            return;
        };
        if flags.is_empty() {
            if cookie.text == "off" {
                *slot = Some(Spanned::new(Vec::new(), cookie.span));
            } else {
                self.error(
                    cookie.span,
                    format!("invalid parameter \"{}\"", cookie.text),
                );
            }
            return;
        }
        let pattern = match cookie.text.strip_prefix('~') {
            Some(pattern) => Some(Pattern::Regex(self.regex(pattern, true, cookie.span))),
            None => self.compile(cookie).map(Pattern::Text),
        };
        let Some(pattern) = pattern else { return };
        let mut result = CookieFlags {
            cookie: pattern,
            wanted: WantedFlags::default(),
            evaluated: Vec::new(),
        };
        for word in flags {
            if word.text.contains('$') {
                result.evaluated.extend(self.compile(word));
            } else if !result.wanted.set(word.text.as_bytes()) {
                let names =
                    "secure, httponly, samesite=strict|lax|none, nosecure, nohttponly, nosamesite";
                self.report(
                    Diagnostic::error(word.span, format!("invalid cookie flag \"{}\"", word.text))
                        .hint(format!("it can be: {names}")),
                );
            }
        }
        Self::push(slot, result, cookie.span);
    }

    /// `proxy_bind`.
    pub(crate) fn bind(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Option<(Template, bool)>>>,
    ) {
        let Some((address, rest)) = directive.args.split_first() else {
            return;
        };
        if address.text == "off" && rest.is_empty() {
            *slot = Some(Spanned::new(None, address.span));
            return;
        }
        let transparent = match rest.first() {
            Some(word) if word.text == "transparent" => true,
            Some(word) => {
                self.error(word.span, format!("invalid parameter \"{}\"", word.text));
                return;
            }
            None => false,
        };
        let Some(template) = self.compile(address) else {
            return;
        };
        if let Some(text) = template.as_literal() {
            let parsed = text.parse::<std::net::IpAddr>().is_ok()
                || text.parse::<std::net::SocketAddr>().is_ok()
                || text
                    .strip_prefix('[')
                    .and_then(|rest| rest.strip_suffix(']'))
                    .is_some_and(|inside| inside.parse::<std::net::Ipv6Addr>().is_ok());
            if !parsed {
                let message = format!("invalid address \"{text}\"");
                self.refuse(address.span, message, "it is an IP address of this machine");
                return;
            }
        }
        *slot = Some(Spanned::new(Some((template, transparent)), address.span));
    }

    /// `proxy_upgrade`.
    pub(crate) fn upgrade(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<String>>>,
    ) {
        let Some(first) = directive.args.first() else {
            return;
        };
        if first.text == "off" && directive.args.len() == 1 {
            *slot = Some(Spanned::new(Vec::new(), first.span));
            return;
        }
        for word in &directive.args {
            // A protocol is a token, or two with a slash (RFC 9110 §7.8).
            let token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte);
            if word.text == "off" || word.text.is_empty() || !word.text.bytes().all(token) {
                self.report(
                    Diagnostic::error(word.span, format!("invalid value \"{}\"", word.text))
                        .hint("it can be \"off\" or protocols such as \"websocket\""),
                );
            } else {
                Self::push(slot, word.text.to_ascii_lowercase(), word.span);
            }
        }
    }

    /// `~pattern` or `~*pattern`, without the first `~`.
    fn marked_regex(&mut self, pattern: &str, span: Span) -> Pattern {
        Pattern::Regex(match pattern.strip_prefix('*') {
            Some(pattern) => self.regex(pattern, true, span),
            None => self.regex(pattern, false, span),
        })
    }

    /// A list that was switched off on this level takes no more entries, and one with entries cannot be switched off.
    fn repeats_after_off(&mut self, directive: &Directive, empty: Option<bool>) -> bool {
        let off = directive.args.len() == 1
            && directive
                .args
                .first()
                .is_some_and(|word| word.text == "off");
        let conflict = match empty {
            Some(true) => true,
            Some(false) => off,
            None => false,
        };
        if conflict {
            self.error(
                directive.at,
                format!("\"{}\" directive is duplicate", directive.name.text),
            );
        }
        conflict
    }
}

fn next_upstream_flag<'a>(conditions: &'a mut NextUpstream, name: &str) -> Option<&'a mut bool> {
    Some(match name {
        "error" => &mut conditions.error,
        "timeout" => &mut conditions.timeout,
        "invalid_header" => &mut conditions.invalid_header,
        "non_idempotent" => &mut conditions.non_idempotent,
        "http_500" => &mut conditions.http_500,
        "http_502" => &mut conditions.http_502,
        "http_503" => &mut conditions.http_503,
        "http_504" => &mut conditions.http_504,
        "http_403" => &mut conditions.http_403,
        "http_404" => &mut conditions.http_404,
        "http_429" => &mut conditions.http_429,
        "updating" => &mut conditions.updating,
        "off" => &mut conditions.off,
        _ => return None,
    })
}
