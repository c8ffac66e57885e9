//! What building heads needs to know of each location, worked out once per configuration.
//!
//! Decides nothing per request: sets of field names become bit sets, constant header runs become bytes, and flags say
//! what need not be looked for at all (no `proxy_cookie_*`: no `Set-Cookie` is ever read).

use crate::request_head::keep_on_one_line;
use crate::trace;
use kp_config::Config;
use kp_config::model::{
    AddHeader, Location, LocationId, PeerAddress, ServerTokens, SetHeader, TraceContext, Upstream,
    UpstreamId,
};
use kp_http::Known;

/// What kp calls itself with `server_tokens on`.
pub const PRODUCT: &str = concat!("kp/", env!("CARGO_PKG_VERSION"));
/// And with `server_tokens off`.
pub const PRODUCT_SHORT: &str = "kp";
/// The field of `kp_reason_header`.
pub(crate) const REASON: &str = "X-Kp-Reason";

/// The facts of all locations.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    locations: Vec<LocationHeads>,
    /// Names of upstream groups, lower case, sorted: what a `proxy_pass` with variables is looked up in.
    groups: Vec<(Box<[u8]>, UpstreamId)>,
}

/// The facts of one location.
#[derive(Debug)]
pub(crate) struct LocationHeads {
    /// `Server: kp/0.1.0\r\nDate: `, or without the `Server` line.
    pub(crate) server_date: Box<[u8]>,
    /// `server_tokens TEXT` with variables: no constant line.
    pub(crate) server_template: bool,
    /// `\r\nConnection: keep-alive\r\n` with `Keep-Alive: timeout=` where configured. Starts with the end of the date.
    pub(crate) keep_alive: Box<[u8]>,
    /// Upstream fields that are not passed on.
    pub(crate) hidden: FieldSet,
    /// `proxy_ignore_headers`.
    pub(crate) ignored: FieldSet,
    /// Names that a `proxy_set_header` speaks for, even with an empty value.
    pub(crate) set: FieldSet,
    /// What those say, in order, without `Host` and the framing fields.
    pub(crate) set_lines: Vec<SetLine>,
    /// Position of `proxy_set_header Host` among the location's.
    pub(crate) set_host: Option<usize>,
    /// A `proxy_set_header Connection` says something of its own; an empty one only keeps the client's away.
    pub(crate) sets_connection: bool,
    /// Client fields that never go through as they are: `set`, the framing fields and, with `proxy_forwarding`, the
    /// fields it writes.
    pub(crate) held_back: FieldSet,
    /// `trace_context start`.
    pub(crate) starts_trace: bool,
    /// A `proxy_set_header` says `traceparent`.
    pub(crate) sets_traceparent: bool,
    /// And `tracestate`.
    pub(crate) sets_tracestate: bool,
    /// There are `proxy_redirect`s.
    pub(crate) redirects: bool,
    /// There are `proxy_cookie_*`s.
    pub(crate) cookies: bool,
    /// `add_header ETag` and `add_header Last-Modified` take the place of what is there: on safe statuses, on all.
    pub(crate) added: FieldSet,
    /// See `added`.
    pub(crate) added_always: FieldSet,
}

/// One line that a `proxy_set_header` makes.
#[derive(Debug)]
pub(crate) struct SetLine {
    /// The field.
    pub(crate) known: Known,
    /// The whole line where the value is constant, else `Name: `.
    pub(crate) text: Box<[u8]>,
    /// Where the value is not constant: its position among the location's `proxy_set_header`s.
    pub(crate) value: Option<usize>,
}

/// A set of field names.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct FieldSet {
    known: u128,
    /// Names kp has no number for, lower case.
    others: Vec<Box<[u8]>>,
}

impl FieldSet {
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut set = Self::default();
        for name in names {
            set.insert(name);
        }
        set
    }

    pub(crate) fn insert(&mut self, name: &str) {
        match Known::of(name.as_bytes()) {
            Known::Other => {
                let name = name.to_ascii_lowercase().into_bytes().into_boxed_slice();
                if !self.others.contains(&name) {
                    self.others.push(name);
                }
            }
            known => self.known |= bit(known),
        }
    }

    /// Whether it holds a field; the name is only read where kp has no number for it.
    pub(crate) fn contains(&self, known: Known, name: &[u8]) -> bool {
        if known == Known::Other {
            self.others
                .iter()
                .any(|other| other.eq_ignore_ascii_case(name))
        } else {
            self.known & bit(known) != 0
        }
    }

    pub(crate) fn has(&self, known: Known) -> bool {
        self.known & bit(known) != 0
    }
}

/// Each known name is one bit; `Other` has one too, which is never set.
fn bit(known: Known) -> u128 {
    1u128.checked_shl(u32::from(known as u8)).unwrap_or(0)
}

/// Known fields seen so far in one head.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Seen(u128);

impl Seen {
    /// Notes a field; whether it was there before.
    pub(crate) fn again(&mut self, known: Known) -> bool {
        let bit = bit(known);
        let before = self.0 & bit != 0;
        self.0 |= bit;
        before
    }
}

impl Heads {
    /// Works out the facts of a configuration.
    pub(crate) fn new(config: &Config) -> Self {
        let mut groups: Vec<(Box<[u8]>, UpstreamId)> = config
            .http
            .upstreams
            .iter()
            .enumerate()
            .map(|(index, upstream)| {
                let name = group_key(upstream).into_bytes().into_boxed_slice();
                (name, UpstreamId(u32::try_from(index).unwrap_or(u32::MAX)))
            })
            .collect();
        groups.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self {
            locations: config
                .http
                .locations
                .iter()
                .map(LocationHeads::new)
                .collect(),
            groups,
        }
    }

    /// The facts of a location.
    pub(crate) fn of(&self, location: LocationId) -> &LocationHeads {
        &self.locations[location.index()]
    }

    /// The group of an authority, in any case: an `upstream` by its name, or one made for an address, whose port is the
    /// scheme's where it is not written.
    pub(crate) fn group(
        &self,
        authority: &[u8],
        port: Option<u16>,
        default_port: u16,
    ) -> Option<UpstreamId> {
        let mut name = authority.to_ascii_lowercase();
        self.named(&name).or_else(|| {
            if port.is_some() {
                return None;
            }
            name.push(b':');
            kp_http::encode::number(&mut name, u64::from(default_port));
            self.named(&name)
        })
    }

    fn named(&self, name: &[u8]) -> Option<UpstreamId> {
        let at = self
            .groups
            .binary_search_by(|(other, _)| other.as_ref().cmp(name))
            .ok()?;
        self.groups.get(at).map(|(_, upstream)| *upstream)
    }
}

/// What a group is looked up by: its name, with the port where it was made for an address without one.
fn group_key(upstream: &Upstream) -> String {
    let name = upstream.name.to_ascii_lowercase();
    let host_end = name.rfind(']').unwrap_or(0);
    let has_port = name.get(host_end..).is_some_and(|rest| rest.contains(':'));
    let mut addresses = upstream.servers.iter().flat_map(|line| &line.addresses);
    match addresses.next() {
        Some(PeerAddress::Inet(address)) if upstream.implicit && !has_port => {
            format!("{name}:{}", address.port())
        }
        _ => name,
    }
}

impl LocationHeads {
    fn new(location: &Location) -> Self {
        let proxy = &location.proxy;
        let set = FieldSet::of(proxy.set_headers.iter().map(|header| header.name.as_str()));
        Self {
            server_date: server_date(&location.server_tokens),
            server_template: matches!(&location.server_tokens, ServerTokens::Text(text) if text.as_literal().is_none()),
            keep_alive: keep_alive(location),
            hidden: hidden(location),
            ignored: FieldSet::of(proxy.ignore_headers.iter().map(String::as_str)),
            set_lines: set_lines(&proxy.set_headers),
            sets_connection: proxy.set_headers.iter().any(|header| {
                Known::of(header.name.as_bytes()) == Known::Connection
                    && header.value.as_literal() != Some("")
            }),
            set_host: position(&proxy.set_headers, Known::Host),
            held_back: held_back(location, &set),
            starts_trace: location.marks.trace_context == TraceContext::Start,
            sets_traceparent: set.contains(Known::Other, trace::PARENT.as_bytes()),
            sets_tracestate: set.contains(Known::Other, trace::STATE.as_bytes()),
            set,
            redirects: !proxy.redirects.is_empty(),
            cookies: !(proxy.cookie_domains.is_empty()
                && proxy.cookie_paths.is_empty()
                && proxy.cookie_flags.is_empty()),
            added: taking_place(&location.add_headers, false),
            added_always: taking_place(&location.add_headers, true),
        }
    }
}

/// The constant text of `server_tokens`, where it is constant.
pub(crate) fn server_text(tokens: &ServerTokens) -> Option<&str> {
    match tokens {
        ServerTokens::On | ServerTokens::Build => Some(PRODUCT),
        ServerTokens::Off => Some(PRODUCT_SHORT),
        ServerTokens::Text(text) => text.as_literal(),
    }
}

fn server_date(tokens: &ServerTokens) -> Box<[u8]> {
    let mut out = Vec::new();
    if let Some(text) = server_text(tokens)
        && !text.is_empty()
    {
        out.extend_from_slice(b"Server: ");
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"Date: ");
    out.into_boxed_slice()
}

fn keep_alive(location: &Location) -> Box<[u8]> {
    let mut out = b"Connection: keep-alive\r\n".to_vec();
    if let Some(timeout) = location.keepalive_header
        && !timeout.is_zero()
    {
        out.extend_from_slice(b"Keep-Alive: timeout=");
        out.extend_from_slice(itoa::Buffer::new().format(timeout.as_secs()).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.into_boxed_slice()
}

fn set_lines(headers: &[SetHeader]) -> Vec<SetLine> {
    let mut out = Vec::new();
    for (index, header) in headers.iter().enumerate() {
        let known = Known::of(header.name.as_bytes());
        // The framing fields say how the body that follows is delimited, which nobody but kp knows.
        if matches!(
            known,
            Known::Host | Known::ContentLength | Known::TransferEncoding
        ) {
            continue;
        }
        let mut text = format!("{}: ", header.name).into_bytes();
        let value = match header.value.as_literal() {
            Some("") => continue,
            Some(constant) => {
                let start = text.len();
                text.extend_from_slice(constant.as_bytes());
                if let Some(value) = text.get_mut(start..) {
                    keep_on_one_line(value);
                }
                text.extend_from_slice(b"\r\n");
                None
            }
            None => Some(index),
        };
        out.push(SetLine {
            known,
            text: text.into_boxed_slice(),
            value,
        });
    }
    out
}

fn position(headers: &[SetHeader], known: Known) -> Option<usize> {
    headers
        .iter()
        .position(|header| Known::of(header.name.as_bytes()) == known)
}

fn hidden(location: &Location) -> FieldSet {
    let mut out = FieldSet::of(location.proxy.hide_headers.iter().map(String::as_str));
    if location.marks.reason_header {
        out.insert(REASON);
    }
    out
}

fn held_back(location: &Location, set: &FieldSet) -> FieldSet {
    use kp_config::model::Forwarding;
    let mut out = set.clone();
    for name in [
        "Host",
        "Connection",
        "Proxy-Connection",
        "Content-Length",
        "Transfer-Encoding",
        "TE",
        "Trailer",
        "Keep-Alive",
        "Expect",
        "Upgrade",
    ] {
        out.insert(name);
    }
    if location.marks.trace_context != TraceContext::Propagate {
        out.insert(trace::PARENT);
        out.insert(trace::STATE);
    }
    if location.proxy.forwarding != Forwarding::Off {
        for name in crate::forwarding::NAMES {
            out.insert(name);
        }
    }
    out
}

fn taking_place(headers: &[AddHeader], always: bool) -> FieldSet {
    let mut out = FieldSet::default();
    for header in headers.iter().filter(|header| header.always || !always) {
        if matches!(
            Known::of(header.name.as_bytes()),
            Known::ETag | Known::LastModified
        ) {
            out.insert(&header.name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_compare_without_case() {
        let set = FieldSet::of(["X-Secret", "date", "SERVER", "x-secret"]);
        assert!(set.contains(Known::Date, b"Date"));
        assert!(set.has(Known::Server));
        assert!(set.contains(Known::Other, b"x-SECRET"));
        assert!(!set.contains(Known::Other, b"x-secrets"));
        assert!(!set.has(Known::Location));
        assert!(!set.has(Known::Other));
        assert!(!FieldSet::default().has(Known::Date));
    }

    #[test]
    fn seen_notes_repetitions() {
        let mut seen = Seen::default();
        assert!(!seen.again(Known::Expires));
        assert!(!seen.again(Known::ETag));
        assert!(seen.again(Known::Expires));
    }
}
