//! `health_check`, and `match` with its conditions.

use super::{HttpDraft, LocationDraft, Reader};
use crate::diagnostic::Diagnostic;
use crate::model::{CheckProtocol, Expectation, HeaderTest, MatchBlock, MatchCondition};
use crate::span::{Span, Spanned};
use crate::syntax::{Directive, Word};
use crate::value::{self, Finest};
use std::time::Duration;

/// One `health_check` as written.
#[derive(Debug)]
pub(crate) struct HealthCheckDraft {
    pub(crate) interval: Option<Duration>,
    pub(crate) jitter: Duration,
    pub(crate) fails: u32,
    pub(crate) passes: u32,
    pub(crate) uri: Option<Spanned<String>>,
    pub(crate) port: Option<u16>,
    pub(crate) matches: Option<Spanned<String>>,
    pub(crate) mandatory: bool,
    pub(crate) persistent: Option<Span>,
    pub(crate) protocol: CheckProtocol,
    /// `keepalive_time=`, which has no effect.
    pub(crate) ignored: Option<Span>,
    pub(crate) span: Span,
}

const FORM: &str = "it can be: interval=time, jitter=time, fails=number, passes=number, uri=path, port=number, \
                    match=name, mandatory, persistent, type=http, type=tcp, keepalive_time=time";

impl LocationDraft {
    /// `health_check`; a location may have several.
    pub(crate) fn health_check(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let mut check = HealthCheckDraft {
            interval: None,
            jitter: Duration::ZERO,
            fails: 1,
            passes: 1,
            uri: None,
            port: None,
            matches: None,
            mandatory: false,
            persistent: None,
            protocol: CheckProtocol::Http,
            ignored: None,
            span: directive.at,
        };
        for word in &directive.args {
            if let Err(hint) = check.parameter(word) {
                let message = format!("invalid parameter \"{}\"", word.text);
                reader.refuse(word.span, message, hint);
            }
        }
        if let Some(span) = check.ignored {
            let hint = "a check that had no new connection would not see a peer that takes none";
            reader.warning(
                span,
                "\"keepalive_time\" has no effect: every check connects anew",
                hint,
            );
        }
        if let Some(span) = check.persistent.filter(|_| !check.mandatory) {
            let message = "\"persistent\" needs \"mandatory\"";
            reader.refuse(span, message, "write `mandatory persistent`");
        }
        if let Some(uri) = &check.uri
            && check.protocol == CheckProtocol::Tcp
        {
            let message = "\"uri\" cannot be used with \"type=tcp\"";
            reader.refuse(uri.span, message, "a tcp check sends what `match` says");
        }
        self.health_checks.push(check);
    }
}

impl HealthCheckDraft {
    /// Takes one parameter, or says what it can be.
    fn parameter(&mut self, word: &Word) -> Result<(), &'static str> {
        const NUMBER: &str = "it is a number from 1";
        const TIME: &str = "a time is a number of seconds, or with a unit such as 200ms, 5s or 1m";
        let time = |text| value::time(text, Finest::Milliseconds).ok_or(TIME);
        let number = |text| {
            let number = value::number(text).and_then(|number| u32::try_from(number).ok());
            number.filter(|number| *number > 0).ok_or(NUMBER)
        };
        let (name, text) = match word.text.split_once('=') {
            Some((name, text)) => (name, Some(text)),
            None => (word.text.as_str(), None),
        };
        match (name, text) {
            ("interval", Some(text)) => {
                let interval = time(text)?;
                if interval < Duration::from_millis(1) {
                    return Err("an interval is at least 1ms");
                }
                self.interval = Some(interval);
            }
            ("jitter", Some(text)) => self.jitter = time(text)?,
            ("keepalive_time", Some(text)) => {
                time(text)?;
                self.ignored = Some(word.span);
            }
            ("fails", Some(text)) => self.fails = number(text)?,
            ("passes", Some(text)) => self.passes = number(text)?,
            ("uri", Some(text)) if is_target(text) => {
                self.uri = Some(Spanned::new(text.to_owned(), word.span));
            }
            ("uri", Some(_)) => return Err("a uri begins with \"/\" and has no blanks"),
            ("port", Some(text)) => {
                let port = number(text).and_then(|port| u16::try_from(port).map_err(|_| NUMBER));
                self.port = Some(port.map_err(|_| "a port is a number from 1 to 65535")?);
            }
            ("match", Some(text)) if !text.is_empty() => {
                self.matches = Some(Spanned::new(text.to_owned(), word.span));
            }
            ("type", Some("http")) => self.protocol = CheckProtocol::Http,
            ("type", Some("tcp")) => self.protocol = CheckProtocol::Tcp,
            ("type", Some(_)) => return Err("it can be: http, tcp"),
            ("mandatory", None) => self.mandatory = true,
            ("persistent", None) => self.persistent = Some(word.span),
            _ => return Err(FORM),
        }
        Ok(())
    }
}

/// What can be sent as it is in a request line.
fn is_target(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl HttpDraft {
    /// Opens a `match`.
    pub(crate) fn match_block(
        &self,
        reader: &mut Reader<'_>,
        directive: &Directive,
    ) -> Option<MatchBlock> {
        let name = directive.args.first()?;
        if let Some(first) = self.matches.iter().find(|known| known.name == name.text) {
            let message = format!("duplicate match \"{}\"", name.text);
            let hint = format!("the first one is on line {}", first.span.line);
            reader.refuse(name.span, message, hint);
        }
        Some(MatchBlock {
            name: name.text.clone(),
            conditions: Vec::new(),
            span: name.span,
        })
    }
}

impl MatchBlock {
    /// `status`.
    pub(crate) fn status(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let (negated, codes) = match directive.args.split_first() {
            Some((first, rest)) if first.text == "!" => (true, rest),
            _ => (false, directive.args.as_slice()),
        };
        if codes.is_empty() {
            let hint = "the form is `status 200;`, `status 200-399 404;` or `status ! 500;`";
            return reader.refuse(directive.at, "no status is given", hint);
        }
        let mut ranges = Vec::with_capacity(codes.len());
        for word in codes {
            let (from, to) = word
                .text
                .split_once('-')
                .unwrap_or((&word.text, &word.text));
            match (code(from), code(to)) {
                (Some(from), Some(to)) if from <= to => ranges.push((from, to)),
                _ => {
                    let message = format!("invalid status \"{}\"", word.text);
                    let hint = "it is a code from 100 to 999, or a range such as 200-399";
                    reader.refuse(word.span, message, hint);
                }
            }
        }
        self.conditions
            .push(MatchCondition::Status { ranges, negated });
    }

    /// `header`.
    pub(crate) fn header(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let (name, test) = match directive.args.as_slice() {
            [name] if name.text != "!" => (name, HeaderTest::Present),
            [not, name] if not.text == "!" => (name, HeaderTest::Absent),
            [name, operator, value] => {
                let negated = operator.text.starts_with('!');
                let test = match operator.text.trim_start_matches('!') {
                    "=" => HeaderTest::Equals {
                        value: value.text.clone(),
                        negated,
                    },
                    "~" | "~*" => HeaderTest::Matches {
                        regex: reader.regex(&value.text, operator.text.ends_with('*'), value.span),
                        negated,
                    },
                    _ => return unknown_operator(reader, operator, "=, !=, ~, !~, ~*, !~*"),
                };
                (name, test)
            }
            _ => {
                let hint = "the form is `header Name;`, `header ! Name;`, `header Name = value;` or `header Name ~ regex;`";
                return reader.refuse(directive.at, "invalid condition", hint);
            }
        };
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.text.is_empty() || !name.text.bytes().all(token) {
            let message = format!("invalid header name \"{}\"", name.text);
            return reader.error(name.span, message);
        }
        self.conditions.push(MatchCondition::Header {
            name: name.text.to_ascii_lowercase(),
            test,
        });
    }

    /// `body`.
    pub(crate) fn body(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let [operator, pattern] = directive.args.as_slice() else {
            return;
        };
        let (negated, insensitive) = match operator.text.as_str() {
            "~" => (false, false),
            "~*" => (false, true),
            "!~" => (true, false),
            "!~*" => (true, true),
            _ => return unknown_operator(reader, operator, "~, !~, ~*, !~*"),
        };
        let regex = reader.regex(&pattern.text, insensitive, pattern.span);
        self.conditions
            .push(MatchCondition::Body { regex, negated });
    }

    /// `require`.
    pub(crate) fn require(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let mut variables = Vec::with_capacity(directive.args.len());
        for word in &directive.args {
            if !word.text.starts_with('$') {
                let message = format!("invalid variable name \"{}\"", word.text);
                reader.refuse(word.span, message, "a variable is written $name");
            } else if let Some(template) = reader.compile(word) {
                variables.push(template);
            }
        }
        self.conditions.push(MatchCondition::Require(variables));
    }

    /// `send`.
    pub(crate) fn send(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        if let Some(word) = directive.args.first()
            && let Some(bytes) = reader.bytes(word)
        {
            self.conditions.push(MatchCondition::Send(bytes));
        }
    }

    /// `expect`.
    pub(crate) fn expect(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let expectation = match directive.args.as_slice() {
            [text] => reader.bytes(text).map(Expectation::Text),
            [operator, pattern] if matches!(operator.text.as_str(), "~" | "~*") => {
                let insensitive = operator.text == "~*";
                let regex = reader.regex(&pattern.text, insensitive, pattern.span);
                Some(Expectation::Regex(regex))
            }
            [operator, _] => return unknown_operator(reader, operator, "~, ~*"),
            _ => None,
        };
        self.conditions
            .extend(expectation.map(MatchCondition::Expect));
    }
}

fn code(text: &str) -> Option<u16> {
    let code = value::number(text).filter(|code| (100..=999).contains(code))?;
    u16::try_from(code).ok()
}

fn unknown_operator(reader: &mut Reader<'_>, word: &Word, known: &str) {
    let message = format!("unexpected \"{}\" in condition", word.text);
    reader.refuse(word.span, message, format!("it can be: {known}"));
}

impl Reader<'_> {
    /// Bytes as written, `\xHH` for any.
    fn bytes(&mut self, word: &Word) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(word.text.len());
        let mut rest = word.text.as_str();
        while let Some((before, after)) = rest.split_once("\\x") {
            out.extend_from_slice(before.as_bytes());
            let byte = after
                .get(..2)
                .and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let Some(byte) = byte else {
                let error = Diagnostic::error(word.span, "invalid \"\\x\" in a text");
                self.report(error.hint("two hexadecimal digits follow: \\x0d"));
                return None;
            };
            out.push(byte);
            rest = after.get(2..).unwrap_or_default();
        }
        out.extend_from_slice(rest.as_bytes());
        Some(out)
    }
}
