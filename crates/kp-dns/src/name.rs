//! Names of hosts as DNS knows them: labels of 63 bytes, 255 in all (RFC 1035 §2.3.4).
//!
//! Every name is absolute, with or without a dot at its end: there is no search list, as with nginx's resolver.

use domain::base::Name;
use std::fmt;

/// The name of a host, without case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName {
    text: String,
    name: Name<Vec<u8>>,
}

impl HostName {
    /// A name, if it is one that DNS can be asked for.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if text.is_empty() || !text.bytes().all(plain) {
            return None;
        }
        let name = Name::vec_from_str(&text).ok()?;
        Some(Self { text, name })
    }

    /// The name of a service at a host. A service without dots is an RFC 2782 one over TCP.
    pub fn of_service(service: &str, host: &str) -> Option<Self> {
        if service.contains('.') {
            Self::new(&format!("{service}.{host}"))
        } else {
            Self::new(&format!("_{service}._tcp.{host}"))
        }
    }

    /// From an answer.
    pub(crate) fn of_labels(name: &impl domain::base::ToName) -> Option<Self> {
        let name: Name<Vec<u8>> = name.try_to_name().ok()?;
        Self::new(&name.to_string())
    }

    /// Lower case, without the dot at its end.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn labels(&self) -> &Name<Vec<u8>> {
        &self.name
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(HostName::new("App.Test.").unwrap().as_str(), "app.test");
        assert_eq!(HostName::new("a_b-1.x").unwrap().as_str(), "a_b-1.x");
        let long = "x".repeat(64);
        let deep = "abc.".repeat(64);
        for bad in ["", ".", "a..b", ".a", "a b", "a\\b", "é.test", &long, &deep] {
            assert_eq!(HostName::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn services() {
        let name = |service, host| HostName::of_service(service, host).unwrap().to_string();
        assert_eq!(name("http", "app.test"), "_http._tcp.app.test");
        assert_eq!(name("_x._udp", "app.test"), "_x._udp.app.test");
        assert_eq!(name("a.b", "app.test"), "a.b.app.test");
    }
}
