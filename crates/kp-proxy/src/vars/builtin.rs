//! The variables with fixed names.

use super::{Evaluation, headers, upstream};
use crate::Exchange;
use crate::exchange::Attempt;
use kp_config::model::{ListenAddress, Root};
use kp_config::template::Builtin;
use kp_http::{Known, Version};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// The nginx whose configuration language this is, for `$nginx_version`.
const NGINX_VERSION: &str = "1.31.5";

impl Evaluation<'_> {
    /// Appends the value of a fixed variable; false where it has none.
    pub(super) fn builtin(
        self,
        builtin: Builtin,
        exchange: &mut Exchange,
        out: &mut Vec<u8>,
    ) -> bool {
        let request = &exchange.request;
        let head = &request.head;
        match builtin {
            Builtin::Args | Builtin::QueryString => present(&request.args, out),
            Builtin::IsArgs if request.args.is_empty() => true,
            Builtin::IsArgs => bytes(b"?", out),
            Builtin::Uri | Builtin::DocumentUri => bytes(&request.uri, out),
            Builtin::Request => present(head.request_line(), out),
            Builtin::RequestUri => present(head.path_and_query(), out),
            Builtin::RequestMethod => match request.method {
                Some(method) => bytes(method.as_bytes(), out),
                None => present(head.method_text(), out),
            },
            Builtin::ServerProtocol => bytes(
                match head.version {
                    Version::Http10 => b"HTTP/1.0",
                    Version::Http11 => b"HTTP/1.1",
                },
                out,
            ),
            Builtin::ContentLength => head
                .find(Known::ContentLength)
                .is_some_and(|value| bytes(value, out)),
            Builtin::ContentType => head
                .find(Known::ContentType)
                .is_some_and(|value| bytes(value, out)),
            Builtin::RemoteUser => headers::basic_user(head, out),
            Builtin::RequestBody => request.body.as_ref().is_some_and(|body| bytes(body, out)),
            Builtin::RequestBodyFile => request
                .body_file
                .as_ref()
                .is_some_and(|name| bytes(name, out)),
            Builtin::RequestId => request_id(self, exchange, out),
            Builtin::Host => bytes(&request.host, out),
            Builtin::RequestPort => request_port(exchange).is_none_or(|port| decimal(port, out)),
            Builtin::IsRequestPort => request_port(exchange).is_none_or(|_| bytes(b":", out)),
            Builtin::ServerName => self
                .context
                .config
                .http
                .servers
                .get(exchange.server.index())
                .is_some_and(|server| bytes(server.primary_name.as_bytes(), out)),
            Builtin::ServerAddr => self.server_address(exchange, out),
            Builtin::ServerPort => match self.local_address(exchange, |local| local.port() != 0) {
                Some(local) => decimal(local.port(), out),
                None => true,
            },
            Builtin::Https => true,
            Builtin::Scheme => bytes(b"http", out),
            Builtin::DocumentRoot => self.document_root(exchange, out),
            Builtin::RealpathRoot => self.realpath_root(exchange, out),
            Builtin::RequestFilename => self.request_filename(exchange, out),
            Builtin::ProxyHost => present(&request.proxy_host, out),
            Builtin::ProxyPort => request.proxy_port != 0 && decimal(request.proxy_port, out),
            Builtin::ProxyAddXForwardedFor => {
                headers::forwarded_for(head, out);
                remote_address(exchange.connection.remote, out)
            }
            Builtin::RemoteAddr => remote_address(exchange.connection.remote, out),
            Builtin::RemotePort => match exchange.connection.remote {
                Some(remote) => decimal(remote.port(), out),
                None => true,
            },
            Builtin::BinaryRemoteAddr => match exchange.connection.remote.map(|remote| remote.ip())
            {
                Some(IpAddr::V4(ip)) => bytes(&ip.octets(), out),
                Some(IpAddr::V6(ip)) => bytes(&ip.octets(), out),
                None => bytes(b"unix:", out),
            },
            Builtin::LimitRate => bytes(b"0", out),
            Builtin::Hostname => bytes(self.context.hostname.as_bytes(), out),
            Builtin::KpVersion => bytes(env!("CARGO_PKG_VERSION").as_bytes(), out),
            Builtin::NginxVersion => bytes(NGINX_VERSION.as_bytes(), out),
            Builtin::Pid => decimal(self.context.pid, out),
            Builtin::FailureReason => exchange
                .record
                .reason
                .is_some_and(|reason| bytes(reason.as_bytes(), out)),
            Builtin::Connection
            | Builtin::ConnectionRequests
            | Builtin::ConnectionTime
            | Builtin::Pipe
            | Builtin::BodyBytesSent
            | Builtin::BytesSent
            | Builtin::RequestCompletion
            | Builtin::RequestLength
            | Builtin::Status => recorded(self, builtin, exchange, out),
            Builtin::RequestTime | Builtin::Msec | Builtin::TimeLocal | Builtin::TimeIso8601 => {
                self.time(builtin, exchange, out)
            }
            Builtin::TcpinfoRtt => self.tcp_info(0, out),
            Builtin::TcpinfoRttvar => self.tcp_info(1, out),
            Builtin::TcpinfoSndCwnd => self.tcp_info(2, out),
            Builtin::TcpinfoRcvSpace => self.tcp_info(3, out),
            Builtin::UpstreamAddr
            | Builtin::UpstreamBytesReceived
            | Builtin::UpstreamBytesSent
            | Builtin::UpstreamConnectTime
            | Builtin::UpstreamHeaderTime
            | Builtin::UpstreamResponseLength
            | Builtin::UpstreamResponseTime
            | Builtin::UpstreamStatus => of_attempts(builtin, &exchange.attempts, out),
        }
    }

    fn time(self, builtin: Builtin, exchange: &Exchange, out: &mut Vec<u8>) -> bool {
        let now = self.context.now;
        match builtin {
            Builtin::TimeLocal => bytes(now.dates.local.as_bytes(), out),
            Builtin::TimeIso8601 => bytes(now.dates.iso8601.as_bytes(), out),
            Builtin::Msec => {
                seconds(now.unix_ms, out);
                true
            }
            _ => {
                seconds(now.mono_ms.saturating_sub(exchange.record.started_ms), out);
                true
            }
        }
    }

    fn tcp_info(self, which: usize, out: &mut Vec<u8>) -> bool {
        let info = self.context.facts.tcp_info();
        info.and_then(|info| info.get(which).copied())
            .is_some_and(|value| decimal(value, out))
    }

    /// The local address: the listener's own where that already says what is asked, else the socket's.
    fn local_address(
        self,
        exchange: &Exchange,
        says_enough: impl Fn(&SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let listener = self
            .context
            .config
            .http
            .listeners
            .get(exchange.connection.listener.index());
        match listener.map(|listener| &listener.address) {
            Some(ListenAddress::Inet(address)) if says_enough(address) => Some(*address),
            Some(ListenAddress::Unix(_)) => None,
            _ => self.context.facts.local_address(),
        }
    }

    fn server_address(self, exchange: &Exchange, out: &mut Vec<u8>) -> bool {
        if let Some(local) = self.local_address(exchange, |local| !local.ip().is_unspecified()) {
            ip_address(local.ip(), out);
            return true;
        }
        out.extend_from_slice(b"unix:");
        let listener = self
            .context
            .config
            .http
            .listeners
            .get(exchange.connection.listener.index());
        if let Some(ListenAddress::Unix(path)) = listener.map(|listener| &listener.address) {
            out.extend_from_slice(path.as_os_str().as_encoded_bytes());
        }
        true
    }

    fn document_root(self, exchange: &mut Exchange, out: &mut Vec<u8>) -> bool {
        let config = self.context.config;
        let Some(location) = config.http.locations.get(exchange.location.index()) else {
            return false;
        };
        let (Root::Root(path) | Root::Alias { path, .. }) = &location.root;
        self.escaping(false).template(path, exchange, out);
        true
    }

    fn realpath_root(self, exchange: &mut Exchange, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        if !self.document_root(exchange, out) {
            return false;
        }
        let path = std::path::PathBuf::from(
            <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(out.split_off(start)),
        );
        self.context
            .facts
            .real_path(&path)
            .is_some_and(|path| bytes(path.as_os_str().as_encoded_bytes(), out))
    }

    fn request_filename(self, exchange: &mut Exchange, out: &mut Vec<u8>) -> bool {
        let config = self.context.config;
        let Some(location) = config.http.locations.get(exchange.location.index()) else {
            return false;
        };
        self.document_root(exchange, out);
        let skip = match &location.root {
            Root::Root(_) => 0,
            Root::Alias { prefix_len, .. } => prefix_len.unwrap_or(exchange.request.uri.len()),
        };
        bytes(exchange.request.uri.get(skip..).unwrap_or_default(), out)
    }
}

/// Facts of the connection and of what was transferred.
fn recorded(
    evaluation: Evaluation<'_>,
    builtin: Builtin,
    exchange: &Exchange,
    out: &mut Vec<u8>,
) -> bool {
    let (connection, record) = (&exchange.connection, &exchange.record);
    match builtin {
        Builtin::Connection => number(connection.serial, out),
        Builtin::ConnectionRequests => number(u64::from(connection.requests), out),
        Builtin::ConnectionTime => {
            seconds(
                evaluation
                    .context
                    .now
                    .mono_ms
                    .saturating_sub(connection.accepted_ms),
                out,
            );
        }
        Builtin::Pipe => out.push(if connection.pipelined { b'p' } else { b'.' }),
        Builtin::BytesSent => number(record.bytes_sent, out),
        Builtin::BodyBytesSent => number(
            record.bytes_sent.saturating_sub(record.head_bytes_sent),
            out,
        ),
        Builtin::RequestLength => number(record.request_length, out),
        Builtin::RequestCompletion if record.completed => out.extend_from_slice(b"OK"),
        Builtin::Status => {
            let status = exchange.response.status.min(999);
            out.extend(
                [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8),
            );
        }
        _ => {}
    }
    true
}

fn of_attempts(builtin: Builtin, attempts: &[Attempt], out: &mut Vec<u8>) -> bool {
    upstream::list(attempts, out, |attempt, out| match builtin {
        Builtin::UpstreamAddr => out.extend_from_slice(attempt.address.as_bytes()),
        Builtin::UpstreamStatus => upstream::status(attempt.status, out),
        Builtin::UpstreamConnectTime => upstream::time(attempt.connect_ms, out),
        Builtin::UpstreamHeaderTime => upstream::time(attempt.header_ms, out),
        Builtin::UpstreamResponseTime => upstream::time(attempt.response_ms, out),
        Builtin::UpstreamResponseLength => number(attempt.response_length, out),
        Builtin::UpstreamBytesSent => number(attempt.bytes_sent, out),
        Builtin::UpstreamBytesReceived => number(attempt.bytes_received, out),
        _ => {}
    })
}

fn request_id(evaluation: Evaluation<'_>, exchange: &mut Exchange, out: &mut Vec<u8>) -> bool {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let id = *exchange
        .request
        .id
        .get_or_insert_with(|| evaluation.context.facts.random());
    for byte in id {
        for digit in [byte >> 4, byte & 15] {
            out.extend(DIGITS.get(usize::from(digit)));
        }
    }
    true
}

/// The port the request names, if it names one.
fn request_port(exchange: &Exchange) -> Option<u16> {
    let host = exchange.request.head.host()?;
    kp_http::target::split_host(host)?
        .1
        .filter(|&port| port != 0)
}

fn remote_address(remote: Option<SocketAddr>, out: &mut Vec<u8>) -> bool {
    match remote {
        Some(remote) => ip_address(remote.ip(), out),
        None => out.extend_from_slice(b"unix:"),
    }
    true
}

fn ip_address(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => {
            for (index, octet) in ip.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                number(u64::from(octet), out);
            }
        }
        IpAddr::V6(ip) => {
            // Writing to a Vec does not fail.
            let _ = write!(out, "{ip}");
        }
    }
}

fn bytes(value: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value);
    true
}

/// A value that is not there when it is empty.
fn present(value: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value);
    !value.is_empty()
}

fn decimal(value: impl Into<u64>, out: &mut Vec<u8>) -> bool {
    number(value.into(), out);
    true
}

/// Appends a number.
pub(super) fn number(value: u64, out: &mut Vec<u8>) {
    let mut buffer = itoa::Buffer::new();
    out.extend_from_slice(buffer.format(value).as_bytes());
}

/// Appends milliseconds as seconds with three places: `0.123`.
pub(super) fn seconds(ms: u64, out: &mut Vec<u8>) {
    number(ms / 1000, out);
    let rest = ms % 1000;
    out.push(b'.');
    out.extend([rest / 100, rest / 10 % 10, rest % 10].map(|digit| b'0' + digit as u8));
}
