//! `proxy_redirect`: the upstream's `Location` and `Refresh` as the client must see them.
//!
//! Decides the new value. nginx's rules: the first pattern that fits wins; a text pattern is a prefix, compared as it
//! is, and only the prefix is replaced; a regular expression replaces the whole value.

use crate::program::Program;
use crate::{Context, Exchange, vars};
use kp_config::model::{RegexId, Replace};
use kp_config::template::Pattern;

/// Rewrites `value` from `start` on; whether a rule fitted.
pub(crate) fn rewrite(
    value: &mut Vec<u8>,
    start: usize,
    rules: &[Replace],
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
) -> bool {
    let mut text = Vec::new();
    for rule in rules {
        let Some(subject) = value.get(start..) else {
            return false;
        };
        let end = match &rule.from {
            Pattern::Text(pattern) => {
                text.clear();
                vars::evaluate(pattern, exchange, program, context, &mut text);
                if !subject.starts_with(&text) {
                    continue;
                }
                start + text.len()
            }
            Pattern::Regex(regex) => {
                if !matches(*regex, subject, exchange, program) {
                    continue;
                }
                value.len()
            }
        };
        text.clear();
        vars::evaluate(&rule.to, exchange, program, context, &mut text);
        value.splice(start..end, text);
        return true;
    }
    false
}

/// Matches as `if` and `rewrite` do; an expression that needs too many steps fits nothing, and the fault is noted.
pub(crate) fn matches(
    regex: RegexId,
    subject: &[u8],
    exchange: &mut Exchange,
    program: &Program,
) -> bool {
    let request = &mut exchange.request;
    match program.matches(
        regex,
        subject,
        &mut request.captures,
        &mut request.variables,
    ) {
        Ok(found) => found,
        Err(fault) => {
            exchange.record.fault.get_or_insert(fault);
            false
        }
    }
}

/// Where the URL of a `Refresh` value starts: after `url=`, in any case.
pub(crate) fn refresh_url(value: &[u8]) -> Option<usize> {
    value
        .windows(4)
        .position(|window| window.eq_ignore_ascii_case(b"url="))
        .map(|at| at + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_refresh() {
        assert_eq!(refresh_url(b"7; url=/x"), Some(7));
        assert_eq!(refresh_url(b"7;URL=http://u/"), Some(6));
        assert_eq!(refresh_url(b"7"), None);
        assert_eq!(refresh_url(b""), None);
    }
}
