//! Logs: formats of lines, and where lines go.

use super::*;
use crate::json_types::JsonType;

/// One `log_format`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFormat {
    /// Its name.
    pub name: String,
    /// What a line looks like.
    pub shape: LogShape,
}

/// What a line looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogShape {
    /// nginx's: a text with variables.
    Text {
        /// The text.
        template: Template,
        /// `escape=`.
        escape: Escape,
    },
    /// kp's own: one JSON object, its fields in the order of the file.
    Json(Vec<JsonField>),
}

/// One field of a JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonField {
    /// Its name, not escaped.
    pub name: String,
    /// Its value.
    pub value: JsonValue,
}

/// What a JSON field says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonValue {
    /// One variable or capture alone, with the type that it has by nature; without a value it is `null`.
    One(Template, JsonType),
    /// Any other text: a string.
    Text(Template),
    /// An object inside.
    Object(Vec<JsonField>),
}

impl LogShape {
    /// Calls for every template in it.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Template)) {
        match self {
            Self::Text { template, .. } => visit(template),
            Self::Json(fields) => visit_fields(fields, visit),
        }
    }
}

fn visit_fields<'a>(fields: &'a [JsonField], visit: &mut dyn FnMut(&'a Template)) {
    for field in fields {
        match &field.value {
            JsonValue::One(template, _) | JsonValue::Text(template) => visit(template),
            JsonValue::Object(fields) => visit_fields(fields, visit),
        }
    }
}

/// How variables are escaped in a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// `\xXX` for `"`, `\`, below 32 and above 126; a variable without a value is `-`.
    Default,
    /// JSON string contents, always valid UTF-8.
    Json,
    /// As it is.
    None,
}

/// One `access_log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// Where to.
    pub target: AccessLogTarget,
    /// How.
    pub format: LogFormatId,
    /// `if=`: written when neither empty nor `0`.
    pub condition: Option<Template>,
}

/// Where an access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// A file of [`Config::log_files`].
    File(LogFileId),
    /// A path with variables, opened by the worker per line, or kept by [`OpenLogFileCache`].
    Template(Template),
    /// `/dev/stderr` or `stderr`.
    Stderr,
    /// `syslog:`.
    Syslog {
        /// Who gets it.
        server: SyslogId,
        /// `severity=`, default info: 0 (emerg) to 7 (debug).
        severity: u8,
    },
}

/// `buffer=`, `flush=` and `gzip=` of an access log file. As in nginx they are the file's: every `access_log` that names it
/// has the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogBuffer {
    /// Bytes of lines that may wait for company.
    pub bytes: usize,
    /// How long the first of them waits at most.
    pub flush: Option<Duration>,
    /// The level of compression, 1 to 9; `None`: as it is.
    pub gzip: Option<u8>,
}

/// `open_log_file_cache`: which files of paths with variables stay open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenLogFileCache {
    /// `max=`: how many files; the one that was used least recently gives way.
    pub max: usize,
    /// `inactive=`, default 10 s: the time within which it must be used `min_uses` times.
    pub inactive: Duration,
    /// `min_uses=`, default 1.
    pub min_uses: u64,
    /// `valid=`, default 60 s: when it is looked whether there still is that file under that name.
    pub valid: Duration,
}

/// Who gets lines over syslog, and what stands in front of each (RFC 3164).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syslog {
    /// `server=`.
    pub server: SyslogServer,
    /// `facility=`, default local7: 0 to 23.
    pub facility: u8,
    /// `tag=`, default nginx, as in nginx.
    pub tag: String,
    /// `nohostname`: the host's name is left out.
    pub nohostname: bool,
}

impl Syslog {
    /// The server as it is named in messages: `192.0.2.1:514`, `unix:/dev/log`.
    pub fn server_name(&self) -> String {
        match &self.server {
            SyslogServer::Udp(address) => address.to_string(),
            SyslogServer::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

/// A syslog server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogServer {
    /// UDP.
    Udp(SocketAddr),
    /// A unix datagram socket.
    Unix(PathBuf),
}

/// One `error_log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorLog {
    /// Where to.
    pub target: LogTarget,
    /// Least severe level that is written.
    pub level: Level,
    /// `format=json` (kp): each line is a JSON object.
    pub json: bool,
}

/// Where log lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// `stderr`.
    Stderr,
    /// A file of [`Config::log_files`].
    File(LogFileId),
    /// `syslog:`; the severity is the line's level.
    Syslog(SyslogId),
}
