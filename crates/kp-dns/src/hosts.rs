//! `/etc/hosts`: addresses of names that need no server.

use std::collections::HashMap;
use std::net::IpAddr;

/// What the file says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Hosts {
    addresses: HashMap<String, Vec<IpAddr>>,
}

impl Hosts {
    /// Reads the text of the file; what cannot be read is passed over, as by the system.
    pub fn parse(text: &str) -> Self {
        let mut addresses: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
                continue;
            };
            for name in words {
                let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                let known = addresses.entry(name).or_default();
                if !known.contains(&address) {
                    known.push(address);
                }
            }
        }
        Self { addresses }
    }

    /// The addresses of a name, in the order of the file; empty if the file does not know it.
    pub fn find(&self, name: &str) -> &[IpAddr] {
        self.addresses.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_comments_and_several_addresses() {
        let hosts = Hosts::parse(
            "127.0.0.1\tlocalhost  Local # loop\n::1 localhost\n#10.0.0.1 gone\n\nnonsense here\n\
             10.0.0.2 app.test. app\n127.0.0.1 localhost\n10.0.0.3 app\r\n",
        );
        let find =
            |name| -> Vec<String> { hosts.find(name).iter().map(IpAddr::to_string).collect() };
        assert_eq!(find("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(find("local"), ["127.0.0.1"]);
        assert_eq!(find("app"), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(find("app.test"), ["10.0.0.2"]);
        for unknown in ["loop", "gone", "here", "nonsense", ""] {
            assert_eq!(find(unknown), [""; 0], "{unknown}");
        }
    }
}
