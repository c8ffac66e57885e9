//! W3C Trace Context, level 1: which trace a request belongs to, and what the upstream is told about it.
//!
//! Decides what a valid `traceparent` is (§3.2), and under `trace_context start` which span kp has. A `tracestate` is only
//! worth something beside a valid `traceparent` (§3.3). Does not decide what is recorded of a trace: logs do.

use crate::heads::LocationHeads;
use crate::vars::hexadecimal;
use crate::{Context, Exchange};
use kp_config::model::TraceContext;
use kp_config::template::Builtin;
use kp_http::RequestHead;

/// Field names. Values of the `Known` table are not worth a number: they are looked for only where this is asked for.
pub(crate) const PARENT: &str = "traceparent";
/// See [`PARENT`].
pub(crate) const STATE: &str = "tracestate";
/// Bytes of a version 00 value: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const LENGTH: usize = 55;
/// The flag that says that callers record the trace (§3.2.2.5.1); all others are to be zero.
const SAMPLED: u8 = 1;

/// The trace a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// `$trace_id`.
    id: [u8; 16],
    /// `$parent_id`: the client's span; `None`: the trace begins here.
    parent: Option<[u8; 8]>,
    /// `$span_id`: kp's own; `None`: it has none.
    span: Option<[u8; 8]>,
    /// `$trace_flags`.
    flags: u8,
}

/// Appends the value of a variable; `None`: it is another family's, false: it has no value.
pub(crate) fn variable(
    builtin: Builtin,
    exchange: &mut Exchange,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Option<bool> {
    let part: fn(&Trace, &mut Vec<u8>) -> bool = match builtin {
        Builtin::TraceId => |trace, out| hexadecimal(&trace.id, out),
        Builtin::SpanId => |trace, out| trace.span.is_some_and(|id| hexadecimal(&id, out)),
        Builtin::ParentId => |trace, out| trace.parent.is_some_and(|id| hexadecimal(&id, out)),
        Builtin::TraceFlags => |trace, out| hexadecimal(&[trace.flags], out),
        _ => return None,
    };
    Some(trace_of(exchange, context).is_some_and(|trace| part(&trace, out)))
}

/// Appends what the upstream is told under `trace_context start`; a `proxy_set_header` of the same name wins.
pub(crate) fn write(
    out: &mut Vec<u8>,
    exchange: &mut Exchange,
    context: &Context<'_>,
    heads: &LocationHeads,
) {
    if !heads.starts_trace {
        return;
    }
    let Some(trace) = trace_of(exchange, context) else {
        return;
    };
    if !heads.sets_traceparent {
        out.extend_from_slice(b"traceparent: 00-");
        hexadecimal(&trace.id, out);
        out.push(b'-');
        hexadecimal(&trace.span.unwrap_or_default(), out);
        out.push(b'-');
        hexadecimal(&[trace.flags], out);
        out.extend_from_slice(b"\r\n");
    }
    if trace.parent.is_some() && !heads.sets_tracestate {
        // More than one line is one list (§3.3.1).
        let head = &exchange.request.head;
        for value in values(head, STATE).filter(|value| !value.is_empty()) {
            out.extend_from_slice(b"tracestate: ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// The trace of a request, the same whenever it is asked for.
fn trace_of(exchange: &mut Exchange, context: &Context<'_>) -> Option<Trace> {
    let location = context
        .config
        .http
        .locations
        .get(exchange.location.index())?;
    let mode = location.marks.trace_context;
    if mode == TraceContext::Off {
        return None;
    }
    let request = &mut exchange.request;
    let known = request.trace.or_else(|| received(&request.head));
    let trace = match (known, mode) {
        (Some(trace), TraceContext::Start) if trace.span.is_none() => Some(Trace {
            span: Some(span_id(context)),
            ..trace
        }),
        (None, TraceContext::Start) => Some(Trace {
            id: nonzero(context.facts.random()),
            parent: None,
            span: Some(span_id(context)),
            // Who begins a trace decides whether it is recorded; callers that ask their parents would else never do.
            flags: SAMPLED,
        }),
        (known, _) => known,
    };
    request.trace = trace;
    trace
}

/// The client's trace: one valid `traceparent`. Several are none (§3.2.1 knows only one).
fn received(head: &RequestHead) -> Option<Trace> {
    let mut found = values(head, PARENT);
    let value = found.next()?;
    if found.next().is_some() {
        return None;
    }
    parse(value)
}

fn values<'a>(head: &'a RequestHead, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    head.fields()
        .filter(|field| !field.is_hop())
        .filter(move |field| head.name(field).eq_ignore_ascii_case(name.as_bytes()))
        .map(|field| head.value(field))
}

/// `version-trace-parent-flags` in lower-case hexadecimal (§3.2.2). A later version may have more behind a hyphen, and is
/// read as far as this one goes (§4.3); ff is none.
fn parse(value: &[u8]) -> Option<Trace> {
    let known = value.get(..LENGTH)?;
    let mut parts = known.split(|&byte| byte == b'-');
    let [version] = digits::<1>(parts.next()?)?;
    let id = digits::<16>(parts.next()?)?;
    let parent = digits::<8>(parts.next()?)?;
    let [flags] = digits::<1>(parts.next()?)?;
    let more = value.get(LENGTH..).unwrap_or_default();
    let ends_well = match version {
        0 => more.is_empty(),
        0xff => false,
        _ => more.is_empty() || more.starts_with(b"-"),
    };
    let is_valid = ends_well && parts.next().is_none() && id != [0; 16] && parent != [0; 8];
    is_valid.then_some(Trace {
        id,
        parent: Some(parent),
        span: None,
        flags: flags & SAMPLED,
    })
}

/// Exactly so many bytes in lower-case hexadecimal.
fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        for &digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

fn span_id(context: &Context<'_>) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = context.facts.random();
    nonzero([a, b, c, d, e, f, g, h])
}

/// All zeros are no id (§3.2.2.3, §3.2.2.4).
fn nonzero<const N: usize>(mut id: [u8; N]) -> [u8; N] {
    if id == [0; N]
        && let Some(last) = id.last_mut()
    {
        *last = 1;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn written(value: &str) -> Option<(String, u8)> {
        let trace = parse(value.as_bytes())?;
        let mut text = Vec::new();
        hexadecimal(&trace.id, &mut text);
        text.push(b'-');
        hexadecimal(&trace.parent?, &mut text);
        Some((String::from_utf8(text).ok()?, trace.flags))
    }

    #[test]
    fn a_valid_one() {
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7".to_owned();
        assert_eq!(written(GOOD), Some((ids.clone(), 1)));
        for (flags, sampled) in [("00", 0), ("01", 1), ("02", 0), ("03", 1), ("ff", 1)] {
            let value = format!("00-{ids}-{flags}");
            assert_eq!(written(&value), Some((ids.clone(), sampled)), "{flags}");
        }
    }

    /// §4.3: a later version is read as far as it is understood.
    #[test]
    fn later_versions() {
        let rest = GOOD.get(2..).unwrap();
        for version in ["01", "cc", "fe"] {
            assert!(written(&format!("{version}{rest}")).is_some(), "{version}");
            assert!(written(&format!("{version}{rest}-more")).is_some());
            assert!(written(&format!("{version}{rest}-")).is_some());
            assert!(written(&format!("{version}{rest}.more")).is_none());
            assert!(written(&format!("{version}{rest}0")).is_none());
        }
        assert!(written(&format!("ff{rest}")).is_none());
    }

    #[test]
    fn invalid_ones() {
        let zeros = |count: usize| "0".repeat(count);
        let (id, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for value in [
            String::new(),
            "-".to_owned(),
            GOOD.to_uppercase(),
            format!("{GOOD}-"),
            format!("{GOOD}-00"),
            format!("{GOOD} "),
            format!("{GOOD}, {GOOD}"),
            GOOD.replacen('-', "_", 1),
            GOOD.get(..54).unwrap().to_owned(),
            format!("00-{}-{span}-01", zeros(32)),
            format!("00-{id}-{}-01", zeros(16)),
            format!("00-{id}0-{span}-1"),
            format!("00-{}-{span}0-01", id.get(..31).unwrap()),
            format!("0-{id}-{span}-001"),
            format!("00-{id}-{span}-0x"),
            format!("0x-{id}-{span}-01"),
            format!("00-{}-{span}-01", id.replace('4', "G")),
            format!("00-{}-{span}-01", id.replace('4', "-")),
        ] {
            assert_eq!(written(&value), None, "{value:?}");
        }
    }

    #[test]
    fn no_id_is_zero() {
        assert_eq!(nonzero([0; 2]), [0, 1]);
        assert_eq!(nonzero([7, 0]), [7, 0]);
    }
}
