//! Values of templates and variables, appended to a buffer, in nginx's exact formats.
//!
//! A variable tells whether it has a value: an access log prints `-` for one without, everything else treats it as
//! empty. Nothing is evaluated before it is asked for; what may not change within a request (`$request_id`, a `map`) is kept.

mod builtin;
pub(crate) mod headers;
mod tls;
mod upstream;

pub(crate) use builtin::{hexadecimal, of_attempt, remote_address};
pub(crate) use headers::forwarded_for;

use crate::answer_kind::Fault;
use crate::program::Origin;
use crate::split;
use crate::{Context, Exchange, Program};
use kp_config::model::UserVar;
use kp_config::template::{Part, Template, Variable};
use kp_http::target::{Escape, escape_uri};

/// How deep variables may need one another before it is called a cycle, as nginx.
const DEPTH_MAX: u8 = 100;

/// Appends a template's value.
pub fn evaluate(
    template: &Template,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    Evaluation::new(program, context).template(template, exchange, out);
}

/// Appends the value of one piece of a template and tells whether it has one, for log formats.
pub fn evaluate_part(
    part: &Part,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> bool {
    Evaluation::new(program, context).part(part, exchange, out)
}

/// Appends a variable's value and tells whether it has one.
pub fn variable(
    variable: &Variable,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> bool {
    Evaluation::new(program, context).variable(variable, exchange, out)
}

/// One evaluation: what it may look at, how deep it is, how captures are written.
#[derive(Clone, Copy)]
pub(crate) struct Evaluation<'a> {
    pub(crate) program: &'a Program,
    pub(crate) context: &'a Context<'a>,
    depth: u8,
    escape_captures: bool,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(program: &'a Program, context: &'a Context<'a>) -> Self {
        Self {
            program,
            context,
            depth: 0,
            escape_captures: false,
        }
    }

    /// The same, with captures escaped as arguments where the request's path came with `%XX` or `+`.
    pub(crate) fn escaping(self, escape_captures: bool) -> Self {
        Self {
            escape_captures,
            ..self
        }
    }

    pub(crate) fn template(self, template: &Template, exchange: &mut Exchange, out: &mut Vec<u8>) {
        for part in &template.parts {
            self.part(part, exchange, out);
        }
    }

    pub(crate) fn part(self, part: &Part, exchange: &mut Exchange, out: &mut Vec<u8>) -> bool {
        match part {
            Part::Literal(text) => {
                out.extend_from_slice(text.as_bytes());
                true
            }
            Part::Variable(variable) => self.variable(variable, exchange, out),
            Part::Capture(group) => {
                let request = &exchange.request;
                let Some(text) = request.captures.group(usize::from(*group)) else {
                    return false;
                };
                if self.escape_captures && (request.quoted || request.plus) {
                    escape_uri(out, text, Escape::Args);
                } else {
                    out.extend_from_slice(text);
                }
                true
            }
        }
    }

    pub(crate) fn variable(
        self,
        variable: &Variable,
        exchange: &mut Exchange,
        out: &mut Vec<u8>,
    ) -> bool {
        match variable {
            Variable::Builtin(builtin) => self.builtin(*builtin, exchange, out),
            Variable::User(variable) => self.user(*variable, exchange, out),
            Variable::Http(name) => headers::request(&exchange.request.head, name, out),
            Variable::ProxyProtocolTlv(name) => {
                let proxied = exchange.connection.proxied.as_ref();
                proxied.is_some_and(|header| header.tlv(name, out))
            }
            Variable::Arg(name) => headers::argument(&exchange.request.args, name, out),
            Variable::Cookie(name) => headers::cookie(&exchange.request.head, name, out),
            Variable::SentHttp(name) => headers::line(&exchange.response.sent_head, name, out),
            Variable::SentTrailer(name) => {
                headers::line(&exchange.response.sent_trailers, name, out)
            }
            Variable::UpstreamHttp(name) => exchange
                .response
                .upstream
                .as_ref()
                .is_some_and(|head| headers::response(head, name, out)),
            Variable::UpstreamCookie(name) => exchange
                .response
                .upstream
                .as_ref()
                .is_some_and(|head| headers::set_cookie(head, name, out)),
            Variable::UpstreamTrailer(name) => {
                headers::line(&exchange.response.upstream_trailers, name, out)
            }
        }
    }

    fn user(self, variable: UserVar, exchange: &mut Exchange, out: &mut Vec<u8>) -> bool {
        let origin = self.program.origin(variable);
        let map = match origin {
            Origin::Map(map) => self.program.map(map),
            Origin::Set | Origin::Capture | Origin::Split(_) => None,
        };
        let kept = exchange
            .request
            .variables
            .get(variable.index())
            .and_then(Option::as_ref);
        if let Some(value) = kept
            && !map.is_some_and(|map| map.volatile)
        {
            out.extend_from_slice(value);
            return true;
        }
        if map.is_none() && !matches!(origin, Origin::Split(_)) {
            return origin == Origin::Set;
        }
        if self.depth >= DEPTH_MAX {
            exchange
                .record
                .fault
                .get_or_insert(Fault::VariableCycle(variable));
            return false;
        }
        let start = out.len();
        // As nginx, a map's value is a value of its own: captures in it are never escaped.
        let deeper = Self {
            depth: self.depth + 1,
            escape_captures: false,
            ..self
        };
        match (map, origin) {
            (Some(map), _) => map.evaluate(deeper, exchange, out),
            (None, Origin::Split(index)) => deeper.split(index, exchange, out),
            (None, _) => {}
        }
        if !map.is_some_and(|map| map.volatile) {
            let value = out.get(start..).unwrap_or_default();
            self.program
                .set(&mut exchange.request.variables, variable, value);
        }
        true
    }

    /// Appends the value of a `split_clients`; `out` also serves as scratch space behind its end.
    fn split(self, index: usize, exchange: &mut Exchange, out: &mut Vec<u8>) {
        let Some(split) = self.context.config.http.splits.get(index) else {
            return;
        };
        let start = out.len();
        self.template(&split.source, exchange, out);
        let text = out.get(start..).unwrap_or_default();
        let value = split::choose(split, text).unwrap_or_default();
        out.truncate(start);
        out.extend_from_slice(value.as_bytes());
    }
}
