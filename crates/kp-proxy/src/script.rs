//! The rewrite module: `set`, `if`, `rewrite`, `return`, `break`, run in file order at a server's level or in a location.
//!
//! One run is one level; finding the location anew after a changed URI is `route`'s. Escaping follows nginx to the letter:
//! while the instructions of a level run, a capture is escaped as an argument if the request's path came escaped, until
//! the first `rewrite` that matches; in a replacement only behind its `?`, in a redirect everywhere; in `return` never.

use crate::answer_kind::{Answer, Fault, is_for_closing};
use crate::vars::Evaluation;
use crate::{Context, Exchange, Program, Reason};
use kp_config::model::{
    Condition, LocationId, LocationMatch, RegexId, Return, Rewrite, RewriteFlag,
};
use kp_config::template::{Builtin, Part, Template, Variable};
use kp_http::target::{Unescape, unescape_uri};

/// One run over the instructions of a level.
pub(crate) struct Run<'a> {
    program: &'a Program,
    context: &'a Context<'a>,
    /// Captures are escaped in values (nginx's `quote`).
    quote: bool,
    /// A `rewrite` without `break` matched: the location is to be found anew.
    pub(crate) uri_changed: bool,
}

/// How an instruction or a run ended.
#[derive(Debug)]
pub(crate) enum Flow {
    /// Go on.
    Next,
    /// The level is done.
    End,
    /// kp answers.
    Answer(Answer),
    /// Close without an answer.
    Close(u16),
    /// 500.
    Fault(Fault),
}

impl<'a> Run<'a> {
    pub(crate) fn new(program: &'a Program, context: &'a Context<'a>) -> Self {
        Self {
            program,
            context,
            quote: true,
            uri_changed: false,
        }
    }

    /// Runs the instructions of a location. `exchange.location` moves into an `if` whose condition holds, unless the `if`
    /// stands at the server's level.
    pub(crate) fn level(&mut self, exchange: &mut Exchange, location: LocationId) -> Flow {
        let config = self.context.config;
        let Some(level) = config.http.locations.get(location.index()) else {
            return Flow::Next;
        };
        for instruction in &level.rewrite {
            let flow = self.instruction(instruction, exchange);
            if !matches!(flow, Flow::Next) {
                return flow;
            }
        }
        Flow::Next
    }

    fn instruction(&mut self, instruction: &Rewrite, exchange: &mut Exchange) -> Flow {
        match instruction {
            Rewrite::Set { variable, value } => {
                let value = self.value(value, exchange);
                self.program
                    .set(&mut exchange.request.variables, *variable, &value);
                Flow::Next
            }
            Rewrite::SetArgs { value } => {
                exchange.request.args = self.value(value, exchange);
                exchange.request.unchanged = false;
                Flow::Next
            }
            Rewrite::SetLimitRate { value } => {
                let value = self.value(value, exchange);
                // As nginx: what is no size changes nothing.
                if let Some(rate) = crate::rate::size(&value) {
                    exchange.response.limit_rate = Some(rate);
                }
                Flow::Next
            }
            Rewrite::If {
                condition,
                location,
            } => match self.holds(condition, exchange) {
                Ok(true) => self.inside_if(exchange, *location),
                Ok(false) => Flow::Next,
                Err(fault) => Flow::Fault(fault),
            },
            Rewrite::Rewrite {
                regex,
                replacement,
                drop_args,
                flag,
            } => self.rewrite(exchange, *regex, replacement, *drop_args, *flag),
            Rewrite::Return(answer) => self.answer(answer, exchange),
            Rewrite::Break => {
                if self.uri_changed {
                    exchange.request.located = false;
                    self.uri_changed = false;
                }
                Flow::End
            }
        }
    }

    fn inside_if(&mut self, exchange: &mut Exchange, location: LocationId) -> Flow {
        let locations = &self.context.config.http.locations;
        let at_server = locations
            .get(exchange.location.index())
            .is_some_and(|current| current.matches == LocationMatch::Server);
        if !at_server {
            exchange.location = location;
        }
        self.level(exchange, location)
    }

    fn evaluation(&self) -> Evaluation<'a> {
        Evaluation::new(self.program, self.context)
    }

    fn value(&self, template: &Template, exchange: &mut Exchange) -> Vec<u8> {
        let mut value = Vec::new();
        self.evaluation()
            .escaping(self.quote)
            .template(template, exchange, &mut value);
        value
    }

    fn holds(&self, condition: &Condition, exchange: &mut Exchange) -> Result<bool, Fault> {
        match condition {
            Condition::Truthy(value) => Ok(is_true(&self.value(value, exchange))),
            Condition::Equals {
                value,
                other,
                negated,
            } => Ok((self.value(value, exchange) == self.value(other, exchange)) != *negated),
            Condition::Matches {
                value,
                regex,
                negated,
            } => {
                let value = self.value(value, exchange);
                Ok(self.matches(*regex, &value, exchange)? != *negated)
            }
            Condition::File {
                test,
                path,
                negated,
            } => {
                let path = self.value(path, exchange);
                let path = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&path);
                Ok(self.context.facts.file_test(path.as_ref(), *test) != *negated)
            }
        }
    }

    /// An expression of this module that does not match also forgets the captures of the one before.
    fn matches(
        &self,
        regex: RegexId,
        subject: &[u8],
        exchange: &mut Exchange,
    ) -> Result<bool, Fault> {
        let request = &mut exchange.request;
        let found = self.program.matches(
            regex,
            subject,
            &mut request.captures,
            &mut request.variables,
        )?;
        if !found {
            request.captures.groups.clear();
        }
        Ok(found)
    }

    fn rewrite(
        &mut self,
        exchange: &mut Exchange,
        regex: RegexId,
        replacement: &Template,
        drop_args: bool,
        flag: RewriteFlag,
    ) -> Flow {
        let request = &mut exchange.request;
        let found = self.program.matches(
            regex,
            &request.uri,
            &mut request.captures,
            &mut request.variables,
        );
        match found {
            Ok(true) => {}
            Ok(false) => {
                request.captures.groups.clear();
                return Flow::Next;
            }
            Err(fault) => return Flow::Fault(fault),
        }
        request.internal = true;
        request.unchanged = false;
        if let Some(status) = redirect_status(replacement, flag) {
            return self.redirect(exchange, replacement, drop_args, status);
        }
        if flag == RewriteFlag::Break {
            request.located = false;
            self.uri_changed = false;
        } else {
            self.uri_changed = true;
        }
        self.quote = false;
        self.replace(exchange, replacement, drop_args);
        if exchange.request.uri.is_empty() {
            return Flow::Fault(Fault::EmptyUri);
        }
        match flag {
            RewriteFlag::None => Flow::Next,
            _ => Flow::End,
        }
    }

    /// Puts the replacement in the URI's place; what follows its first written `?` are arguments, and the old ones follow
    /// those unless they are dropped.
    fn replace(&self, exchange: &mut Exchange, replacement: &Template, drop_args: bool) {
        let mut uri = Vec::with_capacity(exchange.request.uri.len() + 16);
        let mut args_at = None;
        for part in &replacement.parts {
            match part {
                Part::Literal(text) if args_at.is_none() => match text.split_once('?') {
                    Some((path, args)) => {
                        uri.extend_from_slice(path.as_bytes());
                        args_at = Some(uri.len());
                        uri.extend_from_slice(args.as_bytes());
                    }
                    None => uri.extend_from_slice(text.as_bytes()),
                },
                _ => {
                    self.evaluation()
                        .escaping(args_at.is_some())
                        .part(part, exchange, &mut uri);
                }
            }
        }
        let request = &mut exchange.request;
        match args_at {
            Some(at) => {
                if !drop_args && !request.args.is_empty() {
                    uri.push(b'&');
                    uri.extend_from_slice(&request.args);
                }
                request.args.clear();
                request
                    .args
                    .extend_from_slice(uri.get(at..).unwrap_or_default());
                uri.truncate(at);
            }
            None if drop_args => request.args.clear(),
            None => {}
        }
        request.uri = uri;
    }

    fn redirect(
        &mut self,
        exchange: &mut Exchange,
        replacement: &Template,
        drop_args: bool,
        status: u16,
    ) -> Flow {
        let mut escaped = Vec::new();
        self.evaluation()
            .escaping(true)
            .template(replacement, exchange, &mut escaped);
        let mut location = Vec::with_capacity(escaped.len());
        unescape_uri(&mut location, &escaped, Unescape::Redirect);
        if !drop_args && !exchange.request.args.is_empty() {
            let has_args = replacement
                .parts
                .iter()
                .any(|part| matches!(part, Part::Literal(text) if text.contains('?')));
            location.push(if has_args { b'&' } else { b'?' });
            location.extend_from_slice(&exchange.request.args);
        }
        Flow::Answer(Answer::redirect(status, location, Reason::RewriteRedirect))
    }

    fn answer(&self, answer: &Return, exchange: &mut Exchange) -> Flow {
        let mut text = Vec::new();
        match answer {
            Return::Status(status) => without_text(*status),
            // As nginx: an error with a text that is written as nothing is one without.
            Return::Text(status @ 400.., template) if template.parts.is_empty() => {
                without_text(*status)
            }
            Return::Text(status, template) => {
                // As nginx: the text may speak of the status it goes out with.
                let forced = exchange.request.forced_status;
                exchange.response.status = if forced == 0 { *status } else { forced };
                self.evaluation().template(template, exchange, &mut text);
                exchange.response.status = 0;
                Flow::Answer(Answer::text(*status, text))
            }
            Return::Redirect(status, template) => {
                self.evaluation().template(template, exchange, &mut text);
                Flow::Answer(Answer::redirect(*status, text, Reason::Return))
            }
        }
    }
}

fn without_text(status: u16) -> Flow {
    match status {
        _ if is_for_closing(status) => Flow::Close(status),
        301 | 302 | 303 | 307 | 308 => {
            Flow::Answer(Answer::redirect(status, Vec::new(), Reason::Return))
        }
        ..400 => Flow::Answer(Answer::text(status, Vec::new())),
        _ => Flow::Answer(Answer::status(status, Reason::Return)),
    }
}

/// nginx's truth: neither empty nor `0`. Also for `access_log … if=` and `early_hints`.
pub fn is_true(value: &[u8]) -> bool {
    !value.is_empty() && value != b"0"
}

fn redirect_status(replacement: &Template, flag: RewriteFlag) -> Option<u16> {
    match flag {
        RewriteFlag::Permanent => return Some(301),
        RewriteFlag::Redirect => return Some(302),
        RewriteFlag::None | RewriteFlag::Last | RewriteFlag::Break => {}
    }
    let absolute = match replacement.parts.first() {
        Some(Part::Literal(text)) => text.starts_with("http://") || text.starts_with("https://"),
        Some(Part::Variable(Variable::Builtin(Builtin::Scheme))) => true,
        _ => false,
    };
    absolute.then_some(302)
}
