//! `/etc/resolv.conf`: the name servers. `search`, `domain` and `options` are not used: names are absolute, and timeouts
//! are kp's own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The system's own resolver uses no more.
const SERVERS_MAX: usize = 3;

/// The name servers of the file's text. Without one it is the local host, as for the system's resolver.
pub fn name_servers(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = words
            .next()
            .filter(|word| *word == "nameserver")
            .and_then(|_| words.next())?;
        address.parse::<IpAddr>().ok()
    };
    let mut servers: Vec<SocketAddr> = text
        .lines()
        .filter_map(server)
        .take(SERVERS_MAX)
        .map(|address| SocketAddr::new(address, 53))
        .collect();
    if servers.is_empty() {
        servers.push(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53));
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers() {
        let read = |text| -> Vec<String> {
            name_servers(text)
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
    }
}
