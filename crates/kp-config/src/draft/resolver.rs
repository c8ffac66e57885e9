//! `resolver`, and the names that are looked up while kp runs.

use super::Reader;
use crate::model::{ResolveName, Resolver};
use crate::span::Spanned;
use crate::syntax::{Directive, Word};
use crate::value::{self, Endpoint, Finest, Host};
use std::time::Duration;

impl Reader<'_> {
    /// `resolver`. Names of name servers are looked up now: there is nobody to ask later.
    pub(crate) fn resolver(&mut self, directive: &Directive, slot: &mut Option<Spanned<Resolver>>) {
        let before = self.diagnostics.len();
        let mut resolver = Resolver {
            servers: Vec::new(),
            valid: None,
            ipv4: true,
            ipv6: true,
        };
        for word in &directive.args {
            if let Some(text) = Self::parameter(word, "valid") {
                resolver.valid = self.valid(word, text);
            } else if let Some(text) = Self::parameter(word, "ipv4") {
                resolver.ipv4 = self.family(word, text);
            } else if let Some(text) = Self::parameter(word, "ipv6") {
                resolver.ipv6 = self.family(word, text);
            } else if Self::parameter(word, "status_zone").is_some() {
                let message = "the \"status_zone\" parameter of \"resolver\" is not supported";
                self.refuse(word.span, message, "leave it out: kp counts without it");
            } else {
                self.name_server(word, &mut resolver);
            }
        }
        if !resolver.ipv4 && !resolver.ipv6 {
            let message = "\"ipv4\" and \"ipv6\" cannot both be \"off\"";
            self.refuse(directive.at, message, "leave one of them on");
        }
        if self.diagnostics.len() > before {
            return;
        }
        if resolver.servers.is_empty() {
            let hint = "write the address of a name server, such as \"resolver 127.0.0.53;\"";
            self.refuse(directive.at, "no name servers defined", hint);
            return;
        }
        *slot = Some(Spanned::new(resolver, directive.at));
    }

    fn name_server(&mut self, word: &Word, resolver: &mut Resolver) {
        let text = &word.text;
        let (message, addresses) = match Endpoint::parse(text) {
            Ok(Endpoint::Inet { host, port }) => {
                let addresses = self.addresses(&host, port.unwrap_or(53));
                (format!("host not found in resolver \"{text}\""), addresses)
            }
            Ok(Endpoint::Unix(_)) => (format!("invalid host in resolver \"{text}\""), Vec::new()),
            Err(problem) => (format!("{problem} in resolver \"{text}\""), Vec::new()),
        };
        if addresses.is_empty() {
            let hint = "the form is `address`, `address:port`, or valid=, ipv4=, ipv6=";
            self.refuse(word.span, message, hint);
        }
        resolver.servers.extend(addresses);
    }

    fn valid(&mut self, word: &Word, text: &str) -> Option<Duration> {
        let time = value::time(text, Finest::Seconds).filter(|_| !text.is_empty());
        if time.is_none() {
            let message = format!("invalid parameter: {}", word.text);
            let hint = "it is a time in seconds or more, such as 30s";
            self.refuse(word.span, message, hint);
        }
        time
    }

    fn family(&mut self, word: &Word, text: &str) -> bool {
        match text {
            "on" => true,
            "off" => false,
            _ => {
                let message = format!("invalid parameter: {}", word.text);
                self.refuse(word.span, message, "it is \"on\" or \"off\"");
                true
            }
        }
    }

    /// `resolve` and `service=` of a server: the name that is looked up while kp runs; `None` without them, and for an
    /// address, which needs no looking up.
    pub(crate) fn resolve_name(
        &mut self,
        address: &Word,
        parameters: &[Word],
    ) -> Option<ResolveName> {
        let resolve = parameters.iter().any(|word| word.text == "resolve");
        let endpoint = Endpoint::parse(&address.text).ok()?;
        let service = parameters
            .iter()
            .find_map(|word| Some((word, Self::parameter(word, "service")?)));
        if let Some((word, name)) = service
            && let Some(message) = service_problem(&address.text, &endpoint, name, resolve)
        {
            let hint =
                "the form is `server name service=http resolve`: ports come with the service";
            self.refuse(word.span, message, hint);
        }
        let Endpoint::Inet {
            host: Host::Name(host),
            port,
        } = endpoint
        else {
            return None;
        };
        if !resolve {
            return None;
        }
        if !is_host_name(&host) {
            let hint = "a name to look up has letters, digits, \"-\", \"_\" and dots";
            let message = format!("invalid host in upstream \"{}\"", address.text);
            self.refuse(address.span, message, hint);
        }
        Some(ResolveName {
            host,
            port: port.unwrap_or(80),
            service: service.map(|(_, name)| name.to_owned()),
        })
    }
}

/// What nginx says against a `service=`.
fn service_problem(text: &str, endpoint: &Endpoint, name: &str, resolve: bool) -> Option<String> {
    Some(match endpoint {
        _ if name.is_empty() => "service is empty".to_owned(),
        Endpoint::Unix(_) | Endpoint::Inet { port: Some(_), .. } => {
            format!("service upstream \"{text}\" may not have port")
        }
        Endpoint::Inet {
            host: Host::Address(_),
            ..
        } => format!("service upstream \"{text}\" requires domain name"),
        Endpoint::Inet { .. } if !resolve => {
            format!("service upstream \"{text}\" requires \"resolve\" parameter")
        }
        Endpoint::Inet { .. } if !is_host_name(&name.replace('.', "")) => {
            format!("invalid service \"{name}\" in upstream \"{text}\"")
        }
        Endpoint::Inet { .. } => return None,
    })
}

/// Whether DNS can be asked for a name (RFC 1035 §2.3.4).
fn is_host_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.len() <= 253
        && text
            .split('.')
            .all(|label| (1..=63).contains(&label.len()) && label.bytes().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_dns_knows() {
        for good in ["app", "app.test.", "a_b-1.x", &"x".repeat(63)] {
            assert!(is_host_name(good), "{good}");
        }
        let (long, deep) = ("x".repeat(64), "abc.".repeat(64));
        for bad in ["", ".", "a..b", ".a", "a b", "é", &long, &deep] {
            assert!(!is_host_name(bad), "{bad}");
        }
    }
}
