//! The type that a variable has in a JSON log line when it is a field's whole value. `docs/logs.md` lists them; a test compares.

use crate::template::{Builtin, Part, Variable};

/// A type by nature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonType {
    /// A string.
    Text,
    /// A number.
    Number,
    /// `true` where the value is this text, else `false`.
    Flag(&'static str),
    /// A list with a string for each attempt.
    Texts,
    /// A list with a number for each attempt, `null` where it has none.
    Numbers,
}

impl JsonType {
    /// What it is called in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "number",
            Self::Flag(_) => "boolean",
            Self::Texts => "list of strings",
            Self::Numbers => "list of numbers",
        }
    }

    /// The type of one piece of a template.
    pub fn of(part: &Part) -> Self {
        match part {
            Part::Variable(Variable::Builtin(builtin)) => Self::of_builtin(*builtin),
            _ => Self::Text,
        }
    }

    /// The type of a variable with a fixed name.
    pub fn of_builtin(builtin: Builtin) -> Self {
        match builtin {
            Builtin::BodyBytesSent
            | Builtin::BytesSent
            | Builtin::Connection
            | Builtin::ConnectionRequests
            | Builtin::ConnectionsActive
            | Builtin::ConnectionsReading
            | Builtin::ConnectionsWaiting
            | Builtin::ConnectionsWriting
            | Builtin::ConnectionTime
            | Builtin::ContentLength
            | Builtin::LimitRate
            | Builtin::Msec
            | Builtin::Pid
            | Builtin::ProxyPort
            | Builtin::ProxyProtocolPort
            | Builtin::ProxyProtocolServerPort
            | Builtin::RealipRemotePort
            | Builtin::RemotePort
            | Builtin::RequestLength
            | Builtin::RequestPort
            | Builtin::RequestTime
            | Builtin::ServerPort
            | Builtin::SslClientDaysLeft
            | Builtin::Status
            | Builtin::TcpinfoRtt
            | Builtin::TcpinfoRttvar
            | Builtin::TcpinfoSndCwnd
            | Builtin::TcpinfoRcvSpace => Self::Number,
            Builtin::Https => Self::Flag("on"),
            Builtin::Pipe => Self::Flag("p"),
            Builtin::RequestCompletion => Self::Flag("OK"),
            Builtin::SslEarlyData => Self::Flag("1"),
            Builtin::SslSessionReused => Self::Flag("r"),
            Builtin::UpstreamAddr => Self::Texts,
            Builtin::UpstreamBytesReceived
            | Builtin::UpstreamBytesSent
            | Builtin::UpstreamConnectTime
            | Builtin::UpstreamHeaderTime
            | Builtin::UpstreamResponseLength
            | Builtin::UpstreamResponseTime
            | Builtin::UpstreamStatus => Self::Numbers,
            _ => Self::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_logs_lists_every_type() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/logs.md"))
                .unwrap();
        for kind in ["number", "boolean", "list of numbers", "list of strings"] {
            let row = page
                .lines()
                .find_map(|line| line.strip_prefix(&format!("| {kind} | ")))
                .unwrap();
            let mut shown: Vec<&str> = row
                .split('`')
                .filter_map(|name| name.strip_prefix('$'))
                .collect();
            let mut known: Vec<&str> = Builtin::ALL
                .iter()
                .filter(|(_, builtin)| JsonType::of_builtin(*builtin).name() == kind)
                .map(|(name, _)| *name)
                .collect();
            shown.sort_unstable();
            known.sort_unstable();
            assert_eq!(shown, known, "{kind}");
        }
    }
}
