//! Lines of the access log.

use crate::client_head::holds;
use crate::json_line;
use crate::log_escape::{escape_appended, escape_default, escape_json};
use crate::program::Program;
use crate::{Context, Exchange, vars};
use kp_config::model::{AccessLog, Escape, LogShape};
use kp_config::template::{Part, Template};

/// Appends the line of one `access_log` without its line end, unless its `if=` says no; whether there is one.
pub fn access_line(
    out: &mut Vec<u8>,
    log: &AccessLog,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> bool {
    if let Some(condition) = &log.condition
        && !holds(condition, exchange, program, context)
    {
        return false;
    }
    match &context.config.http.log_formats[log.format.index()].shape {
        LogShape::Text { template, escape } => {
            write_text(out, template, *escape, exchange, program, context);
        }
        LogShape::Json(fields) => {
            json_line::write_object(out, fields, exchange, program, context);
        }
    }
    true
}

fn write_text(
    out: &mut Vec<u8>,
    template: &Template,
    escape: Escape,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) {
    for part in &template.parts {
        let start = out.len();
        let found = vars::evaluate_part(part, exchange, program, context, out);
        if let Part::Literal(_) = part {
            continue;
        }
        match escape {
            Escape::None => {}
            Escape::Default if !found => out.push(b'-'),
            Escape::Default => escape_appended(out, start, escape_default),
            Escape::Json => escape_appended(out, start, escape_json),
        }
    }
}
