//! `/etc/resolv.conf`: the name servers. `search`, `domain` and `options` are not used: names are absolute, and timeouts
//! are kp's own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

/// The system's own resolver uses no more.
const SERVERS_MAX: usize = 3;
const PORT: u16 = 53;

/// The name servers of the file's text, and those that it names but cannot be used. Without one it is the local host, as
/// for the system's resolver.
pub fn name_servers(text: &str) -> (Vec<SocketAddr>, Vec<String>) {
    let (mut servers, mut unusable) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(word) = words
            .next()
            .filter(|word| *word == "nameserver")
            .and_then(|_| words.next())
        else {
            continue;
        };
        match address(word) {
            Some(address) => servers.push(address),
            None => unusable.push(word.to_owned()),
        }
    }
    servers.truncate(SERVERS_MAX);
    if servers.is_empty() {
        servers.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT));
    }
    (servers, unusable)
}

/// A link-local address names its link by number; one by name (`fe80::1%eth0`) would have to be looked up in the system.
fn address(word: &str) -> Option<SocketAddr> {
    if word.contains('%') {
        let with_port = format!("[{word}]:{PORT}");
        return with_port.parse::<SocketAddrV6>().ok().map(SocketAddr::V6);
    }
    Some(SocketAddr::new(word.parse().ok()?, PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers() {
        let read = |text| -> Vec<String> {
            name_servers(text)
                .0
                .iter()
                .map(SocketAddr::to_string)
                .collect()
        };
        let text = "# c\nsearch example.test\nnameserver 10.0.0.1\n nameserver\t2001:db8::1 # x\noptions ndots:5\n\
                    nameserver bad\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n";
        assert_eq!(
            read(text),
            ["10.0.0.1:53", "[2001:db8::1]:53", "10.0.0.3:53"]
        );
        assert_eq!(read("nameserverx 1.2.3.4\n"), ["127.0.0.1:53"]);
        assert_eq!(name_servers(text).1, ["bad"]);
    }

    #[test]
    fn a_link_is_named_by_its_number() {
        let text = "nameserver fe80::1%eth0\nnameserver fe80::1%3\nnameserver fe80::2\n";
        let (servers, unusable) = name_servers(text);
        let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
        assert_eq!(servers, ["[fe80::1%3]:53", "[fe80::2]:53"]);
        assert_eq!(unusable, ["fe80::1%eth0"]);
    }
}
