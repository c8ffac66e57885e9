//! Limits on clients: `limit_req`, `limit_conn`, `limit_accept` with their zones, `allow` and `deny`.

use super::{EarlyDraft, HttpDraft, Reader};
use crate::diagnostic::Diagnostic;
use crate::model::{AcceptLimit, AccessRule, Level, PlaceZone, RateZone, RateZoneId};
use crate::span::{Span, Spanned};
use crate::syntax::{Directive, Word};
use crate::template::Template;
use crate::value;

/// nginx's smallest zone: eight pages.
const ZONE_MIN: u64 = 8 * 4096;
/// A larger burst cannot be told from none.
const BURST_MAX: u64 = 500_000_000;

/// Where a zone was defined.
#[derive(Debug)]
pub(crate) struct ZoneMark {
    pub(crate) name: String,
    pub(crate) span: Span,
    /// The directive.
    pub(crate) by: String,
    /// What it counts, as written; of `sticky` the group.
    pub(crate) key: String,
    pub(crate) bytes: u64,
}

/// One `limit_req`.
#[derive(Debug, Clone)]
pub(crate) struct RateLimitDraft {
    pub(crate) zone: Spanned<String>,
    pub(crate) burst: u64,
    /// `None`: `nodelay`.
    pub(crate) delay: Option<u64>,
}

/// One `limit_conn`.
#[derive(Debug, Clone)]
pub(crate) struct PlaceLimitDraft {
    pub(crate) zone: Spanned<String>,
    pub(crate) max: u32,
}

/// `limit_except`.
#[derive(Debug, Clone)]
pub(crate) struct ExceptDraft {
    pub(crate) methods: Vec<String>,
    /// `None`: those of the location.
    pub(crate) access: Option<Vec<AccessRule>>,
}

/// What `limit_except` may name.
const METHODS: [&str; 14] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "MKCOL",
    "COPY",
    "MOVE",
    "OPTIONS",
    "PROPFIND",
    "PROPPATCH",
    "LOCK",
    "UNLOCK",
    "PATCH",
];

impl HttpDraft {
    /// `limit_req_zone`.
    pub(crate) fn limit_req_zone(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((key, parameters)) = directive.args.split_first() else {
            return;
        };
        let Some(template) = reader.compile(key) else {
            return;
        };
        let (mut zone, mut rate) = (None, 1000);
        for word in parameters {
            if let Some(text) = Reader::parameter(word, "zone") {
                zone = reader.zone_of(word, text);
                if zone.is_none() {
                    return;
                }
            } else if let Some(text) = Reader::parameter(word, "rate") {
                match per_time(text) {
                    Some(given) => rate = given,
                    None => return reader.bad_rate(word),
                }
            } else {
                return reader.error(word.span, format!("invalid parameter \"{}\"", word.text));
            }
        }
        let Some((name, bytes)) = reader.zone_or_error(directive, &key.text, zone) else {
            return;
        };
        reader.rate_zones.push(RateZone {
            name,
            key: template,
            key_text: key.text.clone(),
            bytes,
            rate,
            reach: 0,
        });
    }

    /// `limit_conn_zone`.
    pub(crate) fn limit_conn_zone(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let [key, word] = directive.args.as_slice() else {
            return;
        };
        let Some(template) = reader.compile(key) else {
            return;
        };
        let zone = match Reader::parameter(word, "zone") {
            Some(text) => match reader.zone_of(word, text) {
                Some(zone) => Some(zone),
                None => return,
            },
            None => {
                return reader.error(word.span, format!("invalid parameter \"{}\"", word.text));
            }
        };
        let Some((name, bytes)) = reader.zone_or_error(directive, &key.text, zone) else {
            return;
        };
        reader.place_zones.push(PlaceZone {
            name,
            key: template,
            key_text: key.text.clone(),
            bytes,
        });
    }
}

impl EarlyDraft {
    /// `limit_accept`.
    pub(crate) fn limit_accept(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        if let [word] = directive.args.as_slice()
            && word.text == "off"
        {
            self.limit_accept = Some(Spanned::new(None, word.span));
            return;
        }
        let (mut zone, mut rate, mut burst) = (None, None, 0);
        for word in &directive.args {
            if let Some(text) = Reader::parameter(word, "zone") {
                zone = reader.zone_of(word, text);
                if zone.is_none() {
                    return;
                }
            } else if let Some(text) = Reader::parameter(word, "rate") {
                match per_time(text) {
                    Some(given) => rate = Some(given),
                    None => return reader.bad_rate(word),
                }
            } else if let Some(text) = Reader::parameter(word, "burst") {
                match requests(text) {
                    Some(given) => burst = given,
                    None => return reader.bad_number(word, "burst"),
                }
            } else {
                return reader.error(word.span, format!("invalid parameter \"{}\"", word.text));
            }
        }
        let Some(rate) = rate else {
            let message = "\"limit_accept\" must have \"rate\" parameter";
            let hint = "the form is `limit_accept zone=name:size rate=10r/s burst=20;`";
            return reader.refuse(directive.at, message, hint);
        };
        let Some((name, bytes)) = reader.zone_or_error(directive, "limit_accept", zone) else {
            return;
        };
        let id = RateZoneId(u32::try_from(reader.rate_zones.len()).unwrap_or(u32::MAX));
        reader.rate_zones.push(RateZone {
            name,
            key: Template::default(),
            key_text: "limit_accept".to_owned(),
            bytes,
            rate,
            reach: burst,
        });
        let limit = AcceptLimit { zone: id, burst };
        self.limit_accept = Some(Spanned::new(Some(limit), directive.at));
    }
}

impl Reader<'_> {
    /// `limit_req`.
    pub(crate) fn limit_req(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<RateLimitDraft>>>,
    ) {
        let (mut zone, mut burst, mut delay) = (None, 0, Some(0));
        for word in &directive.args {
            if let Some(text) = Self::parameter(word, "zone") {
                zone = Some(Spanned::new(text.to_owned(), word.span));
            } else if let Some(text) = Self::parameter(word, "burst") {
                match requests(text).filter(|burst| *burst > 0) {
                    Some(given) => burst = given,
                    None => return self.bad_number(word, "burst"),
                }
            } else if let Some(text) = Self::parameter(word, "delay") {
                match requests(text).filter(|delay| *delay > 0) {
                    Some(given) => delay = Some(given),
                    None => return self.bad_number(word, "delay"),
                }
            } else if word.text == "nodelay" {
                delay = None;
            } else {
                let error =
                    Diagnostic::error(word.span, format!("invalid parameter \"{}\"", word.text));
                return self.report(error.hint(
                    "the form is `limit_req zone=name [burst=number] [nodelay | delay=number];`",
                ));
            }
        }
        let Some(zone) = zone else {
            return self.error(directive.at, "\"limit_req\" must have \"zone\" parameter");
        };
        if repeated(slot.as_ref(), |limit| &limit.zone, &zone.value) {
            return self.refuse(
                directive.at,
                "\"limit_req\" directive is duplicate",
                "a zone is asked once on a level",
            );
        }
        let span = zone.span;
        Self::push(slot, RateLimitDraft { zone, burst, delay }, span);
    }

    /// `limit_conn`.
    pub(crate) fn limit_conn(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<PlaceLimitDraft>>>,
    ) {
        let [name, number] = directive.args.as_slice() else {
            return;
        };
        let max = match value::number(&number.text).and_then(|max| u32::try_from(max).ok()) {
            None | Some(0) => {
                let message = format!("invalid number of connections \"{}\"", number.text);
                return self.refuse(number.span, message, "it is at least 1");
            }
            Some(max) if max > 65535 => {
                return self.error(number.span, "connection limit must be less 65536");
            }
            Some(max) => max,
        };
        let zone = Spanned::new(name.text.clone(), name.span);
        if repeated(slot.as_ref(), |limit| &limit.zone, &zone.value) {
            return self.refuse(
                directive.at,
                "\"limit_conn\" directive is duplicate",
                "a zone is asked once on a level",
            );
        }
        Self::push(slot, PlaceLimitDraft { zone, max }, name.span);
    }

    /// The methods of `limit_except`, in capitals.
    pub(crate) fn methods(&mut self, directive: &Directive) -> Vec<String> {
        let mut methods = Vec::new();
        for word in &directive.args {
            let method = word.text.to_ascii_uppercase();
            if METHODS.contains(&method.as_str()) {
                methods.push(method);
            } else {
                let message = format!("invalid method \"{}\"", word.text);
                let hint = format!("it can be: {}", METHODS.join(", "));
                self.refuse(word.span, message, hint);
            }
        }
        // As in nginx: who may GET may HEAD.
        if methods.iter().any(|method| method == "GET") {
            methods.push("HEAD".to_owned());
        }
        methods
    }

    /// `limit_req_status` and `limit_conn_status`.
    pub(crate) fn limit_status(&mut self, directive: &Directive, slot: &mut Option<Spanned<u16>>) {
        self.put(directive, slot, |reader, word| {
            match value::number(&word.text).and_then(|status| u16::try_from(status).ok()) {
                Some(status @ 400..=599) => Some(status),
                Some(_) => {
                    let message = "value must be between 400 and 599";
                    reader.refuse(word.span, message, "it is the status of refused requests");
                    None
                }
                None => {
                    reader.error(
                        word.span,
                        format!("\"{}\" directive invalid number", directive.name.text),
                    );
                    None
                }
            }
        });
    }

    /// `limit_req_log_level` and `limit_conn_log_level`.
    pub(crate) fn limit_level(&mut self, directive: &Directive, slot: &mut Option<Spanned<Level>>) {
        let choices = [
            ("info", Level::Info),
            ("notice", Level::Notice),
            ("warn", Level::Warn),
            ("error", Level::Error),
        ];
        self.choice(directive, slot, &choices);
    }

    /// `allow`.
    pub(crate) fn allow(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<AccessRule>>>,
    ) {
        self.access_rule(directive, slot, true);
    }

    /// `deny`.
    pub(crate) fn deny(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<AccessRule>>>,
    ) {
        self.access_rule(directive, slot, false);
    }

    fn access_rule(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<AccessRule>>>,
        allow: bool,
    ) {
        let Some(word) = directive.args.first() else {
            return;
        };
        let who = match word.text.as_str() {
            "all" => None,
            _ => match self.network(word) {
                Some(network) => Some(network),
                None => {
                    return self.refuse(
                        word.span,
                        format!("invalid parameter \"{}\"", word.text),
                        "it is an address, a network such as 10.0.0.0/8, \"unix:\" or \"all\"",
                    );
                }
            },
        };
        Self::push(slot, AccessRule { allow, who }, word.span);
    }

    /// `name:size` of a `zone=`.
    fn zone_of(&mut self, word: &Word, text: &str) -> Option<(String, u64)> {
        let Some((name, size)) = text.rsplit_once(':') else {
            let hint = "the form is `zone=name:size`";
            self.refuse(
                word.span,
                format!("invalid zone size \"{}\"", word.text),
                hint,
            );
            return None;
        };
        if name.is_empty() {
            let message = format!("invalid zone name \"{}\"", word.text);
            self.refuse(word.span, message, "the form is `zone=name:size`");
            return None;
        }
        match value::size(size) {
            None => {
                let hint = "a size is a number with k, m or g, such as 10m";
                self.refuse(
                    word.span,
                    format!("invalid zone size \"{}\"", word.text),
                    hint,
                );
                None
            }
            Some(size) if size < ZONE_MIN => {
                let message = format!("zone \"{}\" is too small", word.text);
                self.refuse(word.span, message, "32k is the smallest, for 4,000 keys");
                None
            }
            Some(size) => Some((name.to_owned(), size)),
        }
    }

    /// A zone with a name of its own.
    fn zone_or_error(
        &mut self,
        directive: &Directive,
        key: &str,
        zone: Option<(String, u64)>,
    ) -> Option<(String, u64)> {
        let by = &directive.name.text;
        let Some((name, bytes)) = zone else {
            let message = format!("\"{by}\" must have \"zone\" parameter");
            self.refuse(directive.at, message, "the form is `zone=name:size`");
            return None;
        };
        if let Some(first) = self.zone_marks.iter().find(|known| known.name == name) {
            let message = if first.by != *by {
                format!("the shared memory zone \"{name}\" is already declared for a different use")
            } else if first.bytes != bytes {
                format!(
                    "the size {bytes} of shared memory zone \"{name}\" conflicts with already declared size {}",
                    first.bytes
                )
            } else {
                format!("{by} \"{name}\" is already bound to key \"{}\"", first.key)
            };
            let hint = format!("the first one is on line {}", first.span.line);
            self.refuse(directive.at, message, hint);
            return None;
        }
        self.zone_marks.push(ZoneMark {
            name: name.clone(),
            span: directive.at,
            by: by.clone(),
            key: key.to_owned(),
            bytes,
        });
        Some((name, bytes))
    }

    fn bad_rate(&mut self, word: &Word) {
        self.refuse(
            word.span,
            format!("invalid rate \"{}\"", word.text),
            "a rate is a number with r/s or r/m, such as 10r/s",
        );
    }

    fn bad_number(&mut self, word: &Word, what: &str) {
        self.refuse(
            word.span,
            format!("invalid {what} value \"{}\"", word.text),
            "it is a number of requests, 500000000 at most",
        );
    }
}

fn repeated<T>(
    slot: Option<&Spanned<Vec<T>>>,
    zone: impl Fn(&T) -> &Spanned<String>,
    name: &str,
) -> bool {
    slot.is_some_and(|limits| limits.value.iter().any(|limit| zone(limit).value == name))
}

/// `10r/s` or `30r/m` in thousandths per second. As in nginx a number alone is one per second.
fn per_time(text: &str) -> Option<u64> {
    let (number, seconds) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 60),
        (None, None) => (text, 1),
    };
    let number = value::number(number).filter(|number| *number > 0 && *number <= 1 << 31)?;
    // As nginx: 1r/m is 16 thousandths.
    Some(number * 1000 / seconds)
}

/// A number of requests in thousandths.
fn requests(text: &str) -> Option<u64> {
    let number = value::number(text).filter(|number| *number <= BURST_MAX)?;
    Some(number * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(per_time("1r/s"), Some(1000));
        assert_eq!(per_time("1r/m"), Some(16));
        assert_eq!(per_time("90r/m"), Some(1500));
        assert_eq!(per_time("7"), Some(7000));
        for bad in [
            "",
            "r/s",
            "0r/s",
            "0",
            "1r/h",
            "-1r/s",
            "1.5r/s",
            "99999999999r/s",
        ] {
            assert_eq!(per_time(bad), None, "{bad}");
        }
    }
}
