//! `listen`: the address and its parameters.

use super::{Reader, ServerDraft};
use crate::diagnostic::Diagnostic;
use crate::model::{ListenAddress, ListenOptions, SoKeepalive};
use crate::span::Span;
use crate::syntax::{Directive, Word};
use crate::value::{self, Finest, ListenTarget};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// One `listen`.
#[derive(Debug, Clone)]
pub(crate) struct ListenDraft {
    pub(crate) addresses: Vec<ListenAddress>,
    pub(crate) options: ListenOptions,
    /// Whether any socket option was given: an address may have them in one `listen` only.
    pub(crate) has_options: bool,
    pub(crate) default_server: bool,
    /// `ssl`
    pub(crate) tls: bool,
    pub(crate) proxy_protocol: bool,
    pub(crate) span: Span,
}

impl ServerDraft {
    /// `listen`.
    pub(crate) fn listen(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        let Some((address, parameters)) = directive.args.split_first() else {
            return;
        };
        let mut listen = ListenDraft {
            addresses: reader.listen_addresses(address),
            options: ListenOptions::default(),
            has_options: false,
            default_server: false,
            tls: false,
            proxy_protocol: false,
            span: address.span,
        };
        for word in parameters {
            if word.text == "http2" {
                reader.warn_once(
                    word.span,
                    "HTTP/2 is not spoken yet, \"listen ... http2\" changes nothing",
                    "clients agree on HTTP/1.1 by themselves",
                );
                continue;
            }
            if let Some(name) = untuned(&word.text) {
                reader.warn_once(
                    word.span,
                    format!("\"{name}\" in \"listen\" changes nothing"),
                    "it tunes the kernel for new connections; they are served the same without it",
                );
                listen.has_options = true;
                continue;
            }
            if let Err(diagnostic) = parameter(&mut listen, word) {
                reader.report(diagnostic);
                // It would have been another kind of address, so that it is nobody's duplicate.
                if word.text == "quic" {
                    return;
                }
            }
        }
        self.listens.push(listen);
    }
}

impl Reader<'_> {
    /// The addresses that a `listen` names; empty after an error.
    fn listen_addresses(&mut self, word: &Word) -> Vec<ListenAddress> {
        let text = &word.text;
        let target = match ListenTarget::parse(text) {
            Ok(target) => target,
            Err(problem) => {
                self.report(
                    Diagnostic::error(
                        word.span,
                        format!("{problem} in \"{text}\" of the \"listen\" directive"),
                    )
                    .hint("the form is `80`, `127.0.0.1:80`, `[::]:80` or `unix:/path`"),
                );
                return Vec::new();
            }
        };
        let (host, first_port, last_port) = match target {
            ListenTarget::Unix(path) => return vec![ListenAddress::Unix(self.under_prefix(path))],
            ListenTarget::Inet {
                host,
                first_port,
                last_port,
            } => (host, first_port, last_port),
        };
        let hosts: Vec<IpAddr> = match host {
            None => vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
            Some(host) => self
                .addresses(&host, first_port)
                .iter()
                .map(SocketAddr::ip)
                .collect(),
        };
        if hosts.is_empty() {
            self.refuse(
                word.span,
                format!("host not found in \"{text}\" of the \"listen\" directive"),
                "an address of this machine, `*` for all of them, or a name that resolves to one",
            );
        }
        let ports = first_port..=last_port;
        hosts
            .iter()
            .flat_map(|host| {
                ports
                    .clone()
                    .map(|port| ListenAddress::Inet(SocketAddr::new(*host, port)))
            })
            .collect()
    }
}

/// The name of a parameter that asks the kernel to be faster, which kp does not pass on.
fn untuned(text: &str) -> Option<&str> {
    match text.split_once('=') {
        Some((name @ "fastopen", value)) => value::number(value).map(|_| name),
        None if matches!(text, "deferred" | "multipath") => Some(text),
        _ => None,
    }
}

fn parameter(listen: &mut ListenDraft, word: &Word) -> Result<(), Diagnostic> {
    let text = word.text.as_str();
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let options = &mut listen.options;
    match (name, value) {
        ("default_server" | "default", None) => {
            listen.default_server = true;
            return Ok(());
        }
        ("ssl", None) => {
            listen.tls = true;
            return Ok(());
        }
        ("proxy_protocol", None) => {
            listen.proxy_protocol = true;
            return Ok(());
        }
        ("reuseport", None) => options.reuseport = true,
        // Every address is bound by itself anyway.
        ("bind", None) => {}
        ("backlog", Some(value)) => {
            options.backlog = Some(positive(word, "backlog", value::number(value))?);
        }
        ("rcvbuf", Some(value)) => {
            options.rcvbuf = Some(positive(word, "rcvbuf", value::size(value))?);
        }
        ("sndbuf", Some(value)) => {
            options.sndbuf = Some(positive(word, "sndbuf", value::size(value))?);
        }
        ("ipv6only", Some("on")) => options.ipv6only = Some(true),
        ("ipv6only", Some("off")) => options.ipv6only = Some(false),
        ("so_keepalive", Some(value)) => {
            let keepalive = so_keepalive(value).ok_or_else(|| {
                Diagnostic::error(
                    word.span,
                    format!("invalid so_keepalive value: \"{value}\""),
                )
            })?;
            options.so_keepalive = Some(keepalive);
        }
        ("quic" | "spdy" | "setfib" | "accept_filter", _) => {
            let text = format!("the \"{name}\" parameter of \"listen\" is not supported yet");
            let advice = match name {
                "quic" | "spdy" => {
                    "this version of kp speaks HTTP/1.1; clients do too when the parameter is left out"
                }
                _ => "it is for other systems than Linux: leave it out",
            };
            return Err(Diagnostic::error(word.span, text).hint(advice));
        }
        _ => {
            let hint = "parameters are: default_server, ssl, proxy_protocol, backlog=, rcvbuf=, sndbuf=, reuseport, ipv6only=, so_keepalive=";
            return Err(
                Diagnostic::error(word.span, format!("invalid parameter \"{text}\"")).hint(hint),
            );
        }
    }
    listen.has_options = true;
    Ok(())
}

fn positive(word: &Word, name: &str, value: Option<u64>) -> Result<u32, Diagnostic> {
    match value.and_then(|value| u32::try_from(value).ok()) {
        Some(value) if value > 0 => Ok(value),
        _ => Err(Diagnostic::error(
            word.span,
            format!("invalid {name} \"{}\"", word.text),
        )),
    }
}

/// `on`, `off`, or `[idle]:[interval]:[count]` with at least one of the three.
fn so_keepalive(text: &str) -> Option<SoKeepalive> {
    let plain = |enabled| SoKeepalive {
        enabled,
        idle: None,
        interval: None,
        count: None,
    };
    match text {
        "on" => return Some(plain(true)),
        "off" => return Some(plain(false)),
        _ => {}
    }
    let mut result = plain(true);
    let mut parts = text.splitn(3, ':');
    if let Some(part) = parts.next().filter(|part| !part.is_empty()) {
        result.idle = Some(value::time(part, Finest::Seconds)?);
    }
    if let Some(part) = parts.next().filter(|part| !part.is_empty()) {
        result.interval = Some(value::time(part, Finest::Seconds)?);
    }
    if let Some(part) = parts.next().filter(|part| !part.is_empty()) {
        result.count = Some(u32::try_from(value::number(part)?).ok()?);
    }
    (result != plain(true)).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn keepalive_forms() {
        let seconds = Duration::from_secs;
        let form = |idle, interval, count| {
            Some(SoKeepalive {
                enabled: true,
                idle,
                interval,
                count,
            })
        };
        assert_eq!(so_keepalive("on"), form(None, None, None));
        assert_eq!(
            so_keepalive("30m::10"),
            form(Some(seconds(1800)), None, Some(10))
        );
        assert_eq!(so_keepalive(":5s"), form(None, Some(seconds(5)), None));
        assert_eq!(so_keepalive("::3"), form(None, None, Some(3)));
        for bad in ["", "::", "x", "5ms", "1:2:x", "1:2:3:4"] {
            assert_eq!(so_keepalive(bad), None, "{bad}");
        }
    }
}
