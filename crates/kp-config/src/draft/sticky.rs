//! `sticky`: how a session finds its server again.

use super::{Reader, UpstreamDraft, ZoneMark};
use crate::model::{CookieExpiry, Sticky, StickyCookie, StickyLearn};
use crate::span::Spanned;
use crate::syntax::{Directive, Word};
use crate::template::Template;
use crate::value::{self, Finest};
use std::time::Duration;

/// nginx's smallest zone: eight pages.
const SMALLEST_ZONE: u64 = 8 * 4096;

impl UpstreamDraft {
    /// `sticky`.
    pub(crate) fn sticky(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((kind, rest)) = directive.args.split_first() else {
            return;
        };
        let sticky = match kind.text.as_str() {
            "cookie" => cookie(reader, rest).map(Sticky::Cookie),
            "route" => route(reader, rest).map(Sticky::Route),
            "learn" => learn(reader, directive, rest)
                .filter(|learn| has_own_zone(reader, directive, learn, &self.name))
                .map(Sticky::Learn),
            _ => {
                let message = format!("invalid parameter \"{}\"", kind.text);
                reader.refuse(kind.span, message, "it can be: cookie, route, learn");
                None
            }
        };
        if let Some(sticky) = sticky {
            self.sticky = Some(Spanned::new(sticky, directive.at));
        }
    }
}

fn cookie(reader: &mut Reader<'_>, words: &[Word]) -> Option<StickyCookie> {
    let (name, parameters) = words.split_first()?;
    // RFC 6265 §4.1.1: a cookie's name is a token.
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.text.is_empty() || !name.text.bytes().all(token) {
        let message = format!("invalid cookie name \"{}\"", name.text);
        reader.refuse(
            name.span,
            message,
            "it is made of letters, digits and signs such as \"_\"",
        );
        return None;
    }
    let mut cookie = StickyCookie {
        name: name.text.clone(),
        expires: None,
        domain: None,
        path: None,
        http_only: false,
        secure: false,
        same_site: None,
    };
    let mut met: Vec<&str> = Vec::new();
    for word in parameters {
        let (key, value) = split(word);
        if met.contains(&key) {
            let message = format!("\"sticky\" directive parameter \"{key}\" is duplicate");
            reader.error(word.span, message);
            return None;
        }
        met.push(key);
        match (key, value) {
            ("expires", Some(text)) => cookie.expires = Some(expiry(reader, word, text)?),
            ("domain", Some(text)) => cookie.domain = Some(reader.compile_text(text, word.span)?),
            ("path", Some(text)) => cookie.path = Some(text.to_owned()),
            ("samesite", Some(text)) => cookie.same_site = Some(same_site(reader, word, text)?),
            ("httponly", None) => cookie.http_only = true,
            ("secure", None) => cookie.secure = true,
            _ => {
                let hint = "it can be: expires=, domain=, httponly, samesite=, secure, path=";
                return unknown(reader, word, hint);
            }
        }
    }
    Some(cookie)
}

fn expiry(reader: &mut Reader<'_>, word: &Word, text: &str) -> Option<CookieExpiry> {
    if text == "max" {
        return Some(CookieExpiry::Max);
    }
    let time = value::time(text, Finest::Seconds).map(CookieExpiry::After);
    if time.is_none() {
        let message = "\"sticky\" directive invalid \"expires\" parameter value";
        reader.refuse(word.span, message, "it can be \"max\" or a time such as 1h");
    }
    time
}

fn same_site(reader: &mut Reader<'_>, word: &Word, text: &str) -> Option<Template> {
    let template = reader.compile_text(text, word.span)?;
    let wrong = template
        .as_literal()
        .is_some_and(|text| !["strict", "lax", "none"].contains(&text));
    if wrong {
        let message = "\"sticky\" directive invalid \"samesite\" parameter value";
        reader.refuse(
            word.span,
            message,
            "it can be: strict, lax, none, or a variable",
        );
        return None;
    }
    Some(template)
}

fn route(reader: &mut Reader<'_>, words: &[Word]) -> Option<Vec<Template>> {
    words
        .iter()
        .map(|word| {
            if !word.text.starts_with('$') {
                let message = format!("invalid variable name \"{}\"", word.text);
                reader.refuse(word.span, message, "a route is taken from variables");
                return None;
            }
            reader.compile(word)
        })
        .collect()
}

fn learn(reader: &mut Reader<'_>, directive: &Directive, words: &[Word]) -> Option<StickyLearn> {
    let mut learn = StickyLearn {
        create: Vec::new(),
        lookup: Vec::new(),
        zone: String::new(),
        zone_bytes: 0,
        timeout: Duration::from_secs(600),
        header: false,
    };
    let mut met: Vec<&str> = Vec::new();
    for word in words {
        let (key, value) = split(word);
        if ["zone", "timeout"].contains(&key) && met.contains(&key) {
            reader.error(word.span, format!("\"sticky\" directive duplicate {key}"));
            return None;
        }
        met.push(key);
        match (key, value) {
            ("create", Some(text)) => learn.create.push(named(reader, word, text)?),
            ("lookup", Some(text)) => learn.lookup.push(named(reader, word, text)?),
            ("zone", Some(text)) => (learn.zone, learn.zone_bytes) = zone(reader, word, text)?,
            ("timeout", Some(text)) => learn.timeout = timeout(reader, word, text)?,
            ("header", None) => learn.header = true,
            _ => {
                let hint = "it can be: create=, lookup=, zone=, timeout=, header";
                return unknown(reader, word, hint);
            }
        }
    }
    let missing = [
        ("create", learn.create.is_empty()),
        ("lookup", learn.lookup.is_empty()),
        ("zone", learn.zone.is_empty()),
    ];
    for (name, missing) in missing {
        if missing {
            let message = format!("\"sticky\" directive \"{name}\" parameter is not specified");
            reader.error(directive.at, message);
            return None;
        }
    }
    Some(learn)
}

/// Whether nobody else has a zone of this name; as nginx. From now on the group has it.
fn has_own_zone(
    reader: &mut Reader<'_>,
    directive: &Directive,
    learn: &StickyLearn,
    group: &str,
) -> bool {
    let (name, size) = (&learn.zone, learn.zone_bytes);
    let Some(first) = reader.zone_marks.iter().find(|mark| mark.name == *name) else {
        reader.zone_marks.push(ZoneMark {
            name: name.clone(),
            span: directive.at,
            by: directive.name.text.clone(),
            key: group.to_owned(),
            bytes: size,
        });
        return true;
    };
    let (declared, user) = (first.bytes, &first.key);
    let message = if first.by != directive.name.text {
        format!("the shared memory zone \"{name}\" is already declared for a different use")
    } else if declared != size {
        format!(
            "the size {size} of shared memory zone \"{name}\" conflicts with already declared size {declared}"
        )
    } else {
        format!("sticky zone \"{name}\" is already used in upstream \"{user}\"")
    };
    let hint = format!("the first one is on line {}", first.span.line);
    reader.refuse(directive.at, message, hint);
    false
}

/// A value of `create=` or `lookup=`: it must have a variable in it.
fn named(reader: &mut Reader<'_>, word: &Word, text: &str) -> Option<Template> {
    let template = reader.compile_text(text, word.span)?;
    if template.as_literal().is_some() {
        let (key, _) = split(word);
        let message = format!("\"sticky\" directive missing variable in the \"{key}\" parameter");
        reader.error(word.span, message);
        return None;
    }
    Some(template)
}

fn timeout(reader: &mut Reader<'_>, word: &Word, text: &str) -> Option<Duration> {
    let time = value::time(text, Finest::Milliseconds).filter(|time| !time.is_zero());
    if time.is_none() {
        let message = "\"sticky\" directive invalid timeout";
        reader.refuse(word.span, message, "it is a time above 0, such as 1h");
    }
    time
}

fn zone(reader: &mut Reader<'_>, word: &Word, text: &str) -> Option<(String, u64)> {
    let hint = "it is a name and a size, such as sessions:1m";
    let Some((name, size)) = text.split_once(':').filter(|(name, _)| !name.is_empty()) else {
        reader.refuse(
            word.span,
            "\"sticky\" directive zone size is not specified",
            hint,
        );
        return None;
    };
    match value::size(size) {
        None => {
            let message = format!("\"sticky\" directive invalid zone size \"{size}\"");
            reader.refuse(word.span, message, hint);
            None
        }
        Some(bytes) if bytes < SMALLEST_ZONE => {
            reader.refuse(
                word.span,
                "\"sticky\" directive zone is too small",
                "32k is the smallest",
            );
            None
        }
        Some(bytes) => Some((name.to_owned(), bytes)),
    }
}

fn split(word: &Word) -> (&str, Option<&str>) {
    match word.text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (&word.text, None),
    }
}

fn unknown<T>(reader: &mut Reader<'_>, word: &Word, hint: &str) -> Option<T> {
    reader.refuse(
        word.span,
        format!("unknown parameter \"{}\"", word.text),
        hint,
    );
    None
}
