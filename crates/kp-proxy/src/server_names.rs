//! Which server of a listener a host name belongs to, as nginx decides it.
//!
//! The exact name, the longest `*.suffix`, the longest `prefix.*`, the first regular expression, the default server. The
//! name comes lower-cased, without port and final dot. Where two servers of one listener have the same name the first
//! in the file has it.

use crate::answer_kind::Fault;
use crate::names::NameTable;
use crate::program::Program;
use kp_config::Config;
use kp_config::model::{Listener, ListenerId, RegexId, ServerId, ServerName};

/// The names of one listener.
#[derive(Debug)]
pub(crate) struct ServerNames {
    default: ServerId,
    /// `None` where the default server is the only one: its names decide nothing.
    names: Option<NameTable>,
    /// Also kept for an only server, since they set variables.
    regexes: Vec<(RegexId, ServerId)>,
}

impl ServerNames {
    pub(crate) fn new(config: &Config, listener: &Listener) -> Self {
        let mut names = NameTable::default();
        let mut regexes = Vec::new();
        for &id in &listener.servers {
            let Some(server) = config.http.servers.get(id.index()) else {
                continue;
            };
            for name in &server.names {
                match name {
                    ServerName::Exact(name) => names.exact(name, id.0),
                    ServerName::Suffix(name) => names.suffix(name, id.0),
                    ServerName::DotSuffix(name) => {
                        names.exact(name, id.0);
                        names.suffix(name, id.0);
                    }
                    ServerName::Prefix(name) => names.prefix(name, id.0),
                    ServerName::Regex(regex) => regexes.push((*regex, id)),
                }
            }
        }
        names.finish();
        Self {
            default: listener.default_server,
            names: (listener.servers.len() > 1 || !regexes.is_empty()).then_some(names),
            regexes,
        }
    }

    /// The server, if the name decides it without a regular expression.
    fn by_text(&self, host: &[u8]) -> Option<ServerId> {
        self.names
            .as_ref()
            .and_then(|names| names.find(host))
            .map(ServerId)
    }

    /// The server of a host name; `try_regex` says whether an expression matches.
    pub(crate) fn find(
        &self,
        host: &[u8],
        mut try_regex: impl FnMut(RegexId) -> Result<bool, Fault>,
    ) -> Result<ServerId, Fault> {
        if let Some(server) = self.by_text(host) {
            return Ok(server);
        }
        if !host.is_empty() {
            for (regex, server) in &self.regexes {
                if try_regex(*regex)? {
                    return Ok(*server);
                }
            }
        }
        Ok(self.default)
    }
}

impl Program {
    /// The server of a handshake: that of the name the client asks for (SNI), or the default server. The second tells
    /// whether a name decided it.
    pub fn handshake_server(&self, listener: ListenerId, sni: Option<&[u8]>) -> (ServerId, bool) {
        let Some(names) = self.listener(listener) else {
            return (ServerId::default(), false);
        };
        let mut host = Vec::new();
        if let Some(sni) = sni {
            kp_http::target::host_name(sni, &mut host);
        }
        if let Some(server) = names.by_text(&host).filter(|_| !host.is_empty()) {
            return (server, true);
        }
        let matched = names
            .regexes
            .iter()
            .find(|(regex, _)| !host.is_empty() && self.is_match(*regex, &host).unwrap_or(false));
        match matched {
            Some((_, server)) => (*server, true),
            None => (names.default, false),
        }
    }

    /// The server a host name belongs to on a listener; the default server where no name fits. An expression that runs
    /// out of steps decides nothing.
    pub fn find_server(&self, listener: ListenerId, host: &[u8]) -> ServerId {
        let Some(names) = self.listener(listener) else {
            return ServerId::default();
        };
        let found = names.find(host, |regex| {
            Ok(self.is_match(regex, host).unwrap_or(false))
        });
        found.unwrap_or(names.default)
    }
}
