//! Active checks: the head of the request, and what is made of the answer.
//!
//! A check is evaluated as a request of its location without a client: variables of a client are empty. Its target is the
//! check's own, whatever URI the location's `proxy_pass` has, as in nginx Plus. When checks are made, and what follows
//! from their results, is not decided here.

use crate::request_head::write_check_head;
use crate::{Context, Exchange, Program, vars};
use kp_config::model::{
    Expectation, HeaderTest, HealthCheck, MatchBlock, MatchCondition, UpstreamId,
};
use kp_http::ResponseHead;

/// What is made of an answer so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckVerdict {
    /// Every condition is met.
    Passed,
    /// The conditions on the head are met, and there are some on the body.
    NeedsBody,
    /// A condition is not met.
    Failed(Mismatch),
}

/// Which condition is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// `status`.
    Status,
    /// `header`.
    Header,
    /// `body`.
    Body,
    /// `require`.
    Require,
    /// `expect`.
    Expect,
}

/// The exchange of a check, with its target resolved: whom TLS is spoken with is in it.
pub fn check_exchange(
    check: &HealthCheck,
    upstream: UpstreamId,
    peer: &str,
    program: &Program,
    context: &Context<'_>,
) -> Exchange {
    let mut exchange = Exchange {
        location: check.location,
        ..Exchange::default()
    };
    if let Some(location) = context.config.http.locations.get(check.location.index()) {
        exchange.server = location.server;
    }
    exchange.request.uri = check.uri.clone().into_bytes();
    exchange.begin_attempt(upstream, peer, context.now.mono_ms);
    // A target without variables cannot be wrong; the configuration allows no other.
    let _ = crate::resolve_target(&mut exchange, program, context);
    exchange
}

/// Appends the head of the check's request.
pub fn check_head(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    program: &Program,
    context: &Context<'_>,
    check: &HealthCheck,
) {
    write_check_head(out, exchange, program, context, &check.uri);
}

/// What is made of the answer in the exchange, whose body is so far `body`; `None`: it was not read.
pub fn judge(
    block: Option<&MatchBlock>,
    exchange: &mut Exchange,
    body: Option<&[u8]>,
    program: &Program,
    context: &Context<'_>,
) -> CheckVerdict {
    let Some(head) = exchange.response.upstream.take() else {
        return CheckVerdict::Failed(Mismatch::Status);
    };
    if let Some(attempt) = exchange.attempts.last_mut() {
        attempt.status = head.status;
    }
    let ordinary = (200..400).contains(&head.status);
    exchange.response.upstream = Some(head);
    let Some(block) = block else {
        return if ordinary {
            CheckVerdict::Passed
        } else {
            CheckVerdict::Failed(Mismatch::Status)
        };
    };
    let mut verdict = CheckVerdict::Passed;
    for condition in &block.conditions {
        match holds(condition, exchange, body, program, context) {
            None => verdict = CheckVerdict::NeedsBody,
            Some(Ok(())) => {}
            Some(Err(mismatch)) => return CheckVerdict::Failed(mismatch),
        }
    }
    verdict
}

/// Whether a condition holds; `None`: the body has to be read first.
fn holds(
    condition: &MatchCondition,
    exchange: &mut Exchange,
    body: Option<&[u8]>,
    program: &Program,
    context: &Context<'_>,
) -> Option<Result<(), Mismatch>> {
    let met = |met: bool, mismatch| Some(if met { Ok(()) } else { Err(mismatch) });
    match condition {
        MatchCondition::Require(variables) => {
            let mut text = Vec::new();
            let all = variables.iter().all(|variable| {
                text.clear();
                vars::evaluate(variable, exchange, program, context, &mut text);
                crate::is_true(&text)
            });
            met(all, Mismatch::Require)
        }
        MatchCondition::Status { ranges, negated } => {
            let status = exchange.response.upstream.as_ref()?.status;
            let inside = ranges
                .iter()
                .any(|(from, to)| (*from..=*to).contains(&status));
            met(inside != *negated, Mismatch::Status)
        }
        MatchCondition::Header { name, test } => {
            let head = exchange.response.upstream.as_ref()?;
            met(
                header_holds(head, name.as_bytes(), test, program),
                Mismatch::Header,
            )
        }
        MatchCondition::Body { regex, negated } => {
            let found = program.is_match(*regex, body?);
            met(found.is_ok_and(|found| found != *negated), Mismatch::Body)
        }
        // Only a check of another type has them.
        MatchCondition::Send(_) | MatchCondition::Expect(_) => met(true, Mismatch::Expect),
    }
}

/// A field that comes several times holds if one of its values does; negated, none may.
fn header_holds(head: &ResponseHead, name: &[u8], test: &HeaderTest, program: &Program) -> bool {
    let mut values = head
        .fields()
        .filter(|field| head.name(field).eq_ignore_ascii_case(name))
        .map(|field| head.value(field));
    match test {
        HeaderTest::Present => values.next().is_some(),
        HeaderTest::Absent => values.next().is_none(),
        HeaderTest::Equals { value, negated } => {
            values.any(|found| found == value.as_bytes()) != *negated
        }
        HeaderTest::Matches { regex, negated } => {
            // An expression that ran out of steps met nothing, and must not pass for "does not match" either.
            let mut failed = false;
            let found = values.any(|found| {
                program.is_match(*regex, found).unwrap_or_else(|_| {
                    failed = true;
                    false
                })
            });
            !failed && found != *negated
        }
    }
}

/// What a tcp check sends once it is connected.
pub fn check_greeting(block: Option<&MatchBlock>) -> &[u8] {
    let conditions = block.map_or(&[][..], |block| &block.conditions);
    let sent = conditions.iter().find_map(|condition| match condition {
        MatchCondition::Send(bytes) => Some(bytes.as_slice()),
        _ => None,
    });
    sent.unwrap_or_default()
}

/// What is made of the bytes that a tcp check was told; `NeedsBody`: more of them may decide it.
pub fn judge_bytes(block: Option<&MatchBlock>, bytes: &[u8], program: &Program) -> CheckVerdict {
    let conditions = block.map_or(&[][..], |block| &block.conditions);
    for condition in conditions {
        let MatchCondition::Expect(expectation) = condition else {
            continue;
        };
        return match expectation {
            Expectation::Text(text) if bytes.starts_with(text) => CheckVerdict::Passed,
            Expectation::Text(text) if text.starts_with(bytes) => CheckVerdict::NeedsBody,
            Expectation::Text(_) => CheckVerdict::Failed(Mismatch::Expect),
            Expectation::Regex(regex) => match program.is_match(*regex, bytes) {
                Ok(true) => CheckVerdict::Passed,
                Ok(false) => CheckVerdict::NeedsBody,
                Err(_) => CheckVerdict::Failed(Mismatch::Expect),
            },
        };
    }
    CheckVerdict::Passed
}
