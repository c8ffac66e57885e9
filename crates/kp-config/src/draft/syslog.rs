//! `syslog:server=…[,facility=…][,tag=…][,severity=…][,nohostname]`, as nginx reads it.

use super::Reader;
use crate::model::{Syslog, SyslogId, SyslogServer};
use crate::syntax::Word;
use crate::value::Endpoint;

/// In the order of their numbers (RFC 3164, section 4.1.1), by nginx's names.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv",
    "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
const LOCAL7: u8 = 23;
const SEVERITIES: [&str; 8] = [
    "emerg", "alert", "crit", "error", "warn", "notice", "info", "debug",
];
const INFO: u8 = 6;
const PORT: u16 = 514;
/// RFC 3164, section 5.3.
const TAG_BYTES_MAX: usize = 32;

/// The parameters that were named so far.
#[derive(Debug, Default)]
struct Stated {
    server: Option<SyslogServer>,
    facility: Option<u8>,
    severity: Option<u8>,
    tag: Option<String>,
    nohostname: bool,
}

impl Reader<'_> {
    /// What follows `syslog:`: the server with what is said of it, and the severity of access log lines.
    pub(crate) fn syslog(&mut self, word: &Word, parameters: &str) -> Option<(SyslogId, u8)> {
        let mut stated = Stated::default();
        for parameter in parameters.split(',') {
            if let Err((message, advice)) = self.syslog_parameter(&mut stated, parameter) {
                self.refuse(word.span, message, advice);
                return None;
            }
        }
        let Some(server) = stated.server else {
            self.refuse(
                word.span,
                "no syslog server specified",
                "the form is syslog:server=address[:port], or syslog:server=unix:path",
            );
            return None;
        };
        let id = self.add_syslog(Syslog {
            server,
            facility: stated.facility.unwrap_or(LOCAL7),
            tag: stated.tag.unwrap_or_else(|| "nginx".to_owned()),
            nohostname: stated.nohostname,
        });
        Some((id, stated.severity.unwrap_or(INFO)))
    }

    /// Reads one parameter; the error is a message and what to do.
    fn syslog_parameter(
        &mut self,
        stated: &mut Stated,
        parameter: &str,
    ) -> Result<(), (String, String)> {
        let (name, value) = match parameter.split_once('=') {
            Some((name @ ("server" | "facility" | "severity" | "tag"), value)) => (name, value),
            None if parameter == "nohostname" => {
                stated.nohostname = true;
                return Ok(());
            }
            _ => {
                return Err((
                    format!("unknown syslog parameter \"{parameter}\""),
                    "it can be: server=, facility=, severity=, tag=, nohostname, separated by \",\""
                        .to_owned(),
                ));
            }
        };
        let again = match name {
            "server" => stated.server.is_some(),
            "facility" => stated.facility.is_some(),
            "severity" => stated.severity.is_some(),
            _ => stated.tag.is_some(),
        };
        if again {
            let advice = "write another access_log or error_log for another one";
            return Err((format!("duplicate syslog \"{name}\""), advice.to_owned()));
        }
        match name {
            "server" => stated.server = Some(self.syslog_server(value)?),
            "facility" => stated.facility = Some(number_of(name, value, &FACILITIES)?),
            "severity" => stated.severity = Some(number_of(name, value, &SEVERITIES)?),
            _ => stated.tag = Some(tag(value)?),
        }
        Ok(())
    }

    fn syslog_server(&mut self, value: &str) -> Result<SyslogServer, (String, String)> {
        let refused = |reason: &str, advice: &str| {
            let message = format!("{reason} in syslog server \"{value}\"");
            Err((message, advice.to_owned()))
        };
        let form = "it is an address or a name with or without a port, or unix:path";
        match Endpoint::parse(value) {
            Err(reason) => refused(reason, form),
            Ok(Endpoint::Unix(path)) => Ok(SyslogServer::Unix(path.into())),
            Ok(Endpoint::Inet { host, port }) => {
                let found = self.addresses(&host, port.unwrap_or(PORT));
                match found.first() {
                    Some(address) => Ok(SyslogServer::Udp(*address)),
                    None => refused(
                        "host not found",
                        "names are looked up when kp starts and when it reloads",
                    ),
                }
            }
        }
    }
}

fn number_of(name: &str, value: &str, names: &[&str]) -> Result<u8, (String, String)> {
    let found = (0..).zip(names).find(|(_, known)| **known == value);
    found.map(|(number, _)| number).ok_or_else(|| {
        let message = format!("unknown syslog {name} \"{value}\"");
        (message, format!("it can be: {}", names.join(", ")))
    })
}

fn tag(value: &str) -> Result<String, (String, String)> {
    let advice = || "a tag is up to 32 letters, digits and \"_\"".to_owned();
    if value.len() > TAG_BYTES_MAX {
        return Err(("syslog tag length exceeds 32".to_owned(), advice()));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !value.bytes().all(plain) {
        let message = "syslog \"tag\" only allows alphanumeric characters and underscore";
        return Err((message.to_owned(), advice()));
    }
    Ok(value.to_owned())
}
