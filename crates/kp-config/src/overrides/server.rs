//! A server line as words, in both directions, and what tells whether the lines of a group were edited.

use super::change::Complaint;
use crate::draft::{ServerLineDraft, server_parameter};
use crate::model::{Balancer, PeerAddress, ServerLine, Upstream};
use crate::span::Span;
use crate::syntax::Word;
use crate::value::{Endpoint, Host};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Reads an address and the parameters of a server line.
pub(super) fn parse_server(words: &[&str]) -> Result<ServerLine, Complaint> {
    let Some((text, parameters)) = words.split_first() else {
        return Err(Complaint::new("there is no address"));
    };
    let address = parse_address(text)?;
    let mut draft = ServerLineDraft::new(address.to_string(), Span::default());
    for parameter in parameters {
        if *parameter == "resolve" || parameter.starts_with("service=") {
            let complaint = Complaint::new(format!("invalid parameter \"{parameter}\""));
            return Err(complaint.hint(
                "a peer that is added has an address; names are looked up for server lines of the configuration",
            ));
        }
        let word = Word {
            text: (*parameter).to_owned(),
            span: Span::default(),
            quoted: false,
        };
        server_parameter(&mut draft, &word).map_err(|diagnostic| Complaint {
            error: diagnostic.message,
            hint: diagnostic.hint,
        })?;
    }
    draft.addresses = vec![address];
    Ok(draft.into_line())
}

/// The address that a text is, with nginx's port where it has none.
pub(super) fn parse_address(text: &str) -> Result<PeerAddress, Complaint> {
    match Endpoint::parse(text) {
        Ok(Endpoint::Unix(path)) if Path::new(&path).is_absolute() => {
            Ok(PeerAddress::Unix(path.into()))
        }
        Ok(Endpoint::Unix(_)) => Err(Complaint::new(format!("\"{text}\" is not absolute"))
            .hint("the form is `unix:/path`")),
        Ok(Endpoint::Inet {
            host: Host::Address(ip),
            port,
        }) => Ok(PeerAddress::Inet(SocketAddr::new(ip, port.unwrap_or(80)))),
        Ok(Endpoint::Inet { .. }) => Err(Complaint::new(format!("\"{text}\" is no address")).hint(
            "names are not looked up at run time: give an address such as 127.0.0.1:8080, or write a server line with \"resolve\"",
        )),
        Err(problem) => Err(Complaint::new(format!("{problem} in \"{text}\""))
            .hint("the form is `127.0.0.1:8080`, `[::1]:8080` or `unix:/path`; a port is at most 65535")),
    }
}

/// The words of a server line, as a file has them: what is as by default is left out.
pub fn server_words(line: &ServerLine) -> Vec<String> {
    let mut words = vec![line.name.clone()];
    let numbers = [
        ("weight", line.weight, 1),
        ("max_conns", line.max_conns, 0),
        ("max_fails", line.max_fails, 1),
    ];
    for (name, number, default) in numbers {
        if number != default {
            words.push(format!("{name}={number}"));
        }
    }
    let times = [
        ("fail_timeout", line.fail_timeout, Duration::from_secs(10)),
        ("slow_start", line.slow_start, Duration::ZERO),
    ];
    for (name, time, default) in times {
        if time != default {
            words.push(format!("{name}={}s", time.as_secs()));
        }
    }
    let flags = [
        ("backup", line.backup),
        ("down", line.down),
        ("drain", line.drain),
        ("resolve", line.resolve.is_some()),
    ];
    for (name, _) in flags.iter().filter(|(_, set)| *set) {
        words.push((*name).to_owned());
    }
    let service = line.resolve.as_ref().and_then(|name| name.service.as_ref());
    words.extend(service.map(|service| format!("service={service}")));
    if !line.route.is_empty() {
        words.push(format!("route={}", line.route));
    }
    words
}

/// What tells the server lines of a group from others: it stays when they are written in another way, and whatever
/// addresses their names have. FNV-1a, 64 bits: a configuration is not hostile.
pub fn fingerprint(upstream: &Upstream) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut take = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for line in &upstream.servers {
        for word in server_words(line) {
            take(word.as_bytes());
            take(b"\0");
        }
        take(b"\n");
    }
    hash
}

/// Whether the group's way of choosing knows what the line asks for; nginx's words.
pub(super) fn fits(server: &ServerLine, upstream: &Upstream) -> Result<(), Complaint> {
    let method = match upstream.balancer {
        Balancer::IpHash => "ip_hash",
        Balancer::Hash { .. } => "hash",
        Balancer::Random { .. } => "random",
        Balancer::RoundRobin | Balancer::LeastConn | Balancer::LeastTime { .. } => return Ok(()),
    };
    for (parameter, given) in [
        ("backup", server.backup),
        ("slow_start", !server.slow_start.is_zero()),
    ] {
        if given {
            let error = format!("balancing method does not support parameter \"{parameter}\"");
            let hint = format!(
                "upstream \"{}\" has \"{method}\"; round robin, least_conn and least_time know it",
                upstream.name
            );
            return Err(Complaint::new(error).hint(hint));
        }
    }
    Ok(())
}
