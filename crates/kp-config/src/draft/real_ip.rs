//! `set_real_ip_from` and its companions, and the reading of address ranges.

use super::Reader;
use crate::diagnostic::Diagnostic;
use crate::model::{Network, RealIpHeader};
use crate::span::Spanned;
use crate::syntax::{Directive, Word};
use crate::value::Host;
use ipnet::IpNet;

impl Reader<'_> {
    /// `set_real_ip_from`: an address, a range, `unix:` or a name, which may have several addresses.
    pub(crate) fn real_ip_from(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<Network>>>,
    ) {
        let Some(word) = directive.args.first() else {
            return;
        };
        if let Some(network) = self.network(word) {
            Self::push(slot, network, word.span);
            return;
        }
        if word.text.contains('/') || !is_host_name(&word.text) {
            self.refuse_network(word);
            return;
        }
        let addresses = self.addresses(&Host::Name(word.text.clone()), 0);
        if addresses.is_empty() {
            let message = format!("host not found in set_real_ip_from \"{}\"", word.text);
            let hint = "the name must resolve when the configuration is loaded";
            self.refuse(word.span, message, hint);
        }
        for address in addresses {
            Self::push(slot, Network::Range(address.ip().into()), word.span);
        }
    }

    /// `real_ip_header`.
    pub(crate) fn real_ip_header(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<RealIpHeader>>,
    ) {
        self.put(directive, slot, |reader, word| {
            if !reader.check_field_name(word) {
                return None;
            }
            Some(match word.text.to_ascii_lowercase() {
                name if name == "x-forwarded-for" => RealIpHeader::XForwardedFor,
                name if name == "forwarded" => RealIpHeader::Forwarded,
                name if name == "proxy_protocol" => RealIpHeader::ProxyProtocol,
                name => RealIpHeader::Field(name),
            })
        });
    }

    /// `unix:`, an address or a range; `None` for anything else, which is not reported. Host bits that are set are, once.
    pub(crate) fn network(&mut self, word: &Word) -> Option<Network> {
        if word.text == "unix:" {
            return Some(Network::Unix);
        }
        if let Ok(address) = word.text.parse::<std::net::IpAddr>() {
            return Some(Network::Range(address.into()));
        }
        let range = word.text.parse::<IpNet>().ok()?;
        let exact = range.trunc();
        if exact != range {
            let message = format!("low address bits of {} are meaningless", word.text);
            let hint = format!("the range is {exact}");
            self.report(Diagnostic::warning(word.span, message).hint(hint));
        }
        Some(Network::Range(exact))
    }

    /// Reports what is no address range.
    pub(crate) fn refuse_network(&mut self, word: &Word) {
        let message = format!("invalid parameter \"{}\"", word.text);
        let hint = "the form is `192.0.2.1`, `192.0.2.0/24`, `2001:db8::/32` or `unix:`";
        self.refuse(word.span, message, hint);
    }
}

/// Letters, digits, hyphens and dots (RFC 1123 §2.1), and something that is not a number.
fn is_host_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.bytes().all(allowed) && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}
