//! `$request_id`: taken from who is trusted and says one, else made.
//!
//! Decides whose word is taken (addresses of `set_real_ip_from`; without one everybody under `proxy_forwarding append`) and
//! what an id may look like: nothing that could end a line, a field or a quoted string of a log.

use crate::{Context, Exchange, forwarding};
use kp_config::model::Forwarding;

/// Longest id that is taken, bytes.
const LENGTH_MAX: usize = 128;

/// The id of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestId {
    /// 16 random bytes, written in hexadecimal.
    Made([u8; 16]),
    /// What a trusted peer sent.
    Taken(Vec<u8>),
}

/// The id, the same whenever it is asked for.
pub(crate) fn request_id<'a>(exchange: &'a mut Exchange, context: &Context<'_>) -> &'a RequestId {
    if exchange.request.id.is_none() {
        let id = taken(exchange, context)
            .map_or_else(|| RequestId::Made(context.facts.random()), RequestId::Taken);
        return exchange.request.id.insert(id);
    }
    exchange
        .request
        .id
        .get_or_insert_with(|| RequestId::Made(context.facts.random()))
}

/// The id that a trusted peer sent, in exactly one field.
fn taken(exchange: &Exchange, context: &Context<'_>) -> Option<Vec<u8>> {
    let location = context
        .config
        .http
        .locations
        .get(exchange.location.index())?;
    let name = location.marks.request_id_header.as_deref()?;
    let anybody = location.real_ip.is_none() && location.proxy.forwarding != Forwarding::Append;
    if anybody || !forwarding::sender(exchange, context).1 {
        return None;
    }
    let head = &exchange.request.head;
    let mut found = head
        .fields()
        .filter(|field| !field.is_hop())
        .filter(|field| head.name(field).eq_ignore_ascii_case(name.as_bytes()))
        .map(|field| head.value(field));
    let id = found.next()?;
    (is_acceptable(id) && found.next().is_none()).then(|| id.to_vec())
}

fn is_acceptable(id: &[u8]) -> bool {
    let safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:+/=@~".contains(byte);
    (1..=LENGTH_MAX).contains(&id.len()) && id.iter().all(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_id_may_look_like() {
        for id in [
            "a",
            "7d0f3f2c-5a57-4a8c-9c0e-2a8c9d0f3f2c",
            "Root=1-67891233-abcdef012345678912345678",
            "aGVsbG8+/w==",
            "01HZ.~_:@",
            &"x".repeat(128),
        ] {
            assert!(is_acceptable(id.as_bytes()), "{id}");
        }
        for id in [
            "",
            "a b",
            "a\"",
            "a\\",
            "a,b",
            "a;b",
            "é",
            "a\t",
            "{a}",
            &"x".repeat(129),
        ] {
            assert!(!is_acceptable(id.as_bytes()), "{id}");
        }
    }
}
