//! The variables with fixed names.

use super::{Evaluation, headers, upstream};
use crate::Exchange;
use crate::exchange::{Attempt, Request};
use crate::request_id::RequestId;
use kp_config::model::{ListenAddress, Root};
use kp_config::template::Builtin;
use kp_http::{Known, ProxyHeader, RequestHead, Version};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// The nginx whose configuration language this is, for `$nginx_version`.
const NGINX_VERSION: &str = "1.31.5";

impl Evaluation<'_> {
    /// Appends the value of a fixed variable; false where it has none. Each family knows its own; a test asks for all.
    pub(super) fn builtin(
        self,
        builtin: Builtin,
        exchange: &mut Exchange,
        out: &mut Vec<u8>,
    ) -> bool {
        of_request(builtin, &exchange.request, out)
            .or_else(|| of_head(builtin, &exchange.request.head, out))
            .or_else(|| recorded(builtin, exchange, out))
            .or_else(|| self.time(builtin, exchange, out))
            .or_else(|| of_attempts(builtin, &exchange.attempts, out))
            .or_else(|| of_client(builtin, exchange, out))
            .or_else(|| self.of_tls(builtin, exchange, out))
            .or_else(|| crate::trace::variable(builtin, exchange, self.context, out))
            .or_else(|| self.of_process(builtin, out))
            .or_else(|| self.of_server(builtin, exchange, out))
            .unwrap_or(false)
    }

    fn of_process(self, builtin: Builtin, out: &mut Vec<u8>) -> Option<bool> {
        Some(match builtin {
            Builtin::Hostname => bytes(self.context.hostname.as_bytes(), out),
            Builtin::KpVersion => bytes(env!("CARGO_PKG_VERSION").as_bytes(), out),
            Builtin::NginxVersion => bytes(NGINX_VERSION.as_bytes(), out),
            Builtin::Pid => decimal(self.context.pid, out),
            Builtin::ConnectionsActive => decimal(self.context.facts.connections().active, out),
            Builtin::ConnectionsReading => decimal(self.context.facts.connections().reading, out),
            Builtin::ConnectionsWriting => decimal(self.context.facts.connections().writing, out),
            Builtin::ConnectionsWaiting => decimal(self.context.facts.connections().waiting, out),
            Builtin::TcpinfoRtt => self.tcp_info(0, out),
            Builtin::TcpinfoRttvar => self.tcp_info(1, out),
            Builtin::TcpinfoSndCwnd => self.tcp_info(2, out),
            Builtin::TcpinfoRcvSpace => self.tcp_info(3, out),
            _ => return None,
        })
    }

    /// What the server and the location say, and what is made of it for this request.
    fn of_server(
        self,
        builtin: Builtin,
        exchange: &mut Exchange,
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        Some(match builtin {
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
            Builtin::LimitRate => {
                let rate = crate::rate::limit_rate(exchange, self.program, self.context);
                decimal(rate, out)
            }
            Builtin::LimitReqStatus => word(exchange.machine.rate.word(), out),
            Builtin::LimitConnStatus => word(exchange.machine.place.word(), out),
            Builtin::DocumentRoot => self.document_root(exchange, out),
            Builtin::RealpathRoot => self.realpath_root(exchange, out),
            Builtin::RequestFilename => self.request_filename(exchange, out),
            Builtin::RequestId => request_id(self, exchange, out),
            _ => return None,
        })
    }

    fn time(self, builtin: Builtin, exchange: &Exchange, out: &mut Vec<u8>) -> Option<bool> {
        let now = self.context.now;
        match builtin {
            Builtin::TimeLocal => out.extend_from_slice(now.dates.local.as_bytes()),
            Builtin::TimeIso8601 => out.extend_from_slice(now.dates.iso8601.as_bytes()),
            Builtin::Msec => seconds(now.unix_ms, out),
            Builtin::RequestTime => {
                seconds(now.mono_ms.saturating_sub(exchange.record.started_ms), out);
            }
            Builtin::ConnectionTime => {
                seconds(
                    now.mono_ms.saturating_sub(exchange.connection.accepted_ms),
                    out,
                );
            }
            _ => return None,
        }
        Some(true)
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

/// What was asked, as routing left it.
fn of_request(builtin: Builtin, request: &Request, out: &mut Vec<u8>) -> Option<bool> {
    Some(match builtin {
        Builtin::Host => bytes(&request.host, out),
        Builtin::Uri | Builtin::DocumentUri => present(&request.uri, out),
        Builtin::Args | Builtin::QueryString => present(&request.args, out),
        Builtin::IsArgs if request.args.is_empty() => true,
        Builtin::IsArgs => bytes(b"?", out),
        Builtin::RequestMethod => present(request.method_text(), out),
        Builtin::RequestBody => request.body.as_ref().is_some_and(|body| bytes(body, out)),
        Builtin::RequestBodyFile => request
            .body_file
            .as_ref()
            .is_some_and(|name| bytes(name, out)),
        Builtin::ProxyHost => present(&request.proxy_host, out),
        Builtin::ProxyPort => request.proxy_port != 0 && decimal(request.proxy_port, out),
        _ => return None,
    })
}

/// What was asked, as it came.
fn of_head(builtin: Builtin, head: &RequestHead, out: &mut Vec<u8>) -> Option<bool> {
    let field = |known| head.find(known);
    Some(match builtin {
        Builtin::Request => present(head.request_line(), out),
        Builtin::RequestUri => present(head.path_and_query(), out),
        // Of a line that was none nothing is known.
        Builtin::ServerProtocol if head.method_text().is_empty() => false,
        Builtin::ServerProtocol => bytes(
            match head.version {
                Version::Http10 => b"HTTP/1.0",
                Version::Http11 => b"HTTP/1.1",
            },
            out,
        ),
        Builtin::ContentLength => {
            field(Known::ContentLength).is_some_and(|value| bytes(value, out))
        }
        Builtin::ContentType => headers::request(head, "content_type", out),
        Builtin::RemoteUser => headers::basic_user(head, out),
        Builtin::RequestPort => request_port(head).is_none_or(|port| decimal(port, out)),
        Builtin::IsRequestPort => request_port(head).is_none_or(|_| bytes(b":", out)),
        _ => return None,
    })
}

/// A word, or no value.
fn word(word: Option<&str>, out: &mut Vec<u8>) -> bool {
    word.is_some_and(|word| bytes(word.as_bytes(), out))
}

/// Who asked.
fn of_client(builtin: Builtin, exchange: &Exchange, out: &mut Vec<u8>) -> Option<bool> {
    let remote = exchange.connection.remote;
    Some(match builtin {
        Builtin::RemoteAddr => remote_address(remote, out),
        Builtin::RemotePort => port_of(remote, out),
        Builtin::ProxyProtocolAddr
        | Builtin::ProxyProtocolPort
        | Builtin::ProxyProtocolServerAddr
        | Builtin::ProxyProtocolServerPort => match exchange.connection.proxied.as_deref() {
            Some(header) => of_proxy_header(builtin, header, out),
            None => false,
        },
        Builtin::RealipRemoteAddr => remote_address(exchange.connection.connected, out),
        Builtin::RealipRemotePort => port_of(exchange.connection.connected, out),
        Builtin::BinaryRemoteAddr => match remote.map(|remote| remote.ip()) {
            Some(IpAddr::V4(ip)) => bytes(&ip.octets(), out),
            Some(IpAddr::V6(ip)) => bytes(&ip.octets(), out),
            None => bytes(b"unix:", out),
        },
        Builtin::BinaryRemoteAddr64 => match remote.map(|remote| remote.ip()) {
            Some(IpAddr::V4(ip)) => bytes(&ip.octets(), out),
            Some(IpAddr::V6(ip)) => bytes(ip.octets().get(..8).unwrap_or_default(), out),
            None => bytes(b"unix:", out),
        },
        Builtin::ProxyAddXForwardedFor => {
            headers::forwarded_for(&exchange.request.head, out);
            remote_address(remote, out)
        }
        _ => return None,
    })
}

/// Whom the PROXY header of the connection names.
fn of_proxy_header(builtin: Builtin, header: &ProxyHeader, out: &mut Vec<u8>) -> bool {
    let address = match builtin {
        Builtin::ProxyProtocolAddr | Builtin::ProxyProtocolPort => header.source,
        _ => header.destination,
    };
    match builtin {
        Builtin::ProxyProtocolPort | Builtin::ProxyProtocolServerPort => {
            decimal(address.port(), out)
        }
        _ => {
            ip_address(address.ip(), out);
            true
        }
    }
}

/// Facts of the connection and of what was transferred.
fn recorded(builtin: Builtin, exchange: &Exchange, out: &mut Vec<u8>) -> Option<bool> {
    let (connection, record) = (&exchange.connection, &exchange.record);
    match builtin {
        Builtin::Connection => number(connection.serial, out),
        Builtin::ConnectionRequests => number(u64::from(connection.requests), out),
        Builtin::Pipe => out.push(if connection.pipelined { b'p' } else { b'.' }),
        Builtin::BytesSent => number(record.bytes_sent, out),
        Builtin::BodyBytesSent => {
            number(
                record.bytes_sent.saturating_sub(record.head_bytes_sent),
                out,
            );
        }
        Builtin::RequestLength => number(record.request_length, out),
        Builtin::RequestCompletion if record.completed => out.extend_from_slice(b"OK"),
        Builtin::RequestCompletion | Builtin::Http2 | Builtin::Http3 => {}
        Builtin::FailureReason => {
            return Some(
                record
                    .reason
                    .is_some_and(|reason| bytes(reason.token().as_bytes(), out)),
            );
        }
        Builtin::FailureDetail => return Some(exchange.write_reason_detail(out)),
        Builtin::Status => {
            // As nginx: on the way to an error page it is the status of the error.
            let status = match exchange.response.status {
                0 => exchange.request.forced_status,
                status => status,
            };
            let status = status.min(999);
            out.extend(
                [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8),
            );
        }
        _ => return None,
    }
    Some(true)
}

fn of_attempts(builtin: Builtin, attempts: &[Attempt], out: &mut Vec<u8>) -> Option<bool> {
    Some(upstream::list(attempts, out, of_attempt(builtin)?))
}

/// How a variable that has a value for each attempt is written for one of them.
pub(crate) fn of_attempt(builtin: Builtin) -> Option<fn(&Attempt, &mut Vec<u8>)> {
    Some(match builtin {
        Builtin::UpstreamAddr => |attempt, out| out.extend_from_slice(attempt.address.as_bytes()),
        Builtin::UpstreamStatus => |attempt, out| upstream::status(attempt.status, out),
        Builtin::UpstreamConnectTime => |attempt, out| upstream::time(attempt.connect_ms, out),
        Builtin::UpstreamHeaderTime => |attempt, out| upstream::time(attempt.header_ms, out),
        Builtin::UpstreamResponseTime => |attempt, out| upstream::time(attempt.response_ms, out),
        Builtin::UpstreamResponseLength => |attempt, out| number(attempt.response_length, out),
        Builtin::UpstreamBytesSent => |attempt, out| number(attempt.bytes_sent, out),
        Builtin::UpstreamBytesReceived => |attempt, out| number(attempt.bytes_received, out),
        _ => return None,
    })
}

fn request_id(evaluation: Evaluation<'_>, exchange: &mut Exchange, out: &mut Vec<u8>) -> bool {
    match crate::request_id::request_id(exchange, evaluation.context) {
        RequestId::Made(id) => hexadecimal(id, out),
        RequestId::Taken(id) => bytes(id, out),
    }
}

/// Appends bytes as lower-case hexadecimal; one of no bytes has no value.
pub(crate) fn hexadecimal(value: &[u8], out: &mut Vec<u8>) -> bool {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in value {
        for digit in [byte >> 4, byte & 15] {
            out.extend(DIGITS.get(usize::from(digit)));
        }
    }
    !value.is_empty()
}

/// The port the request names, if it names one.
fn request_port(head: &RequestHead) -> Option<u16> {
    let host = head.host()?;
    kp_http::target::split_host(host)?
        .1
        .filter(|&port| port != 0)
}

/// Empty on a unix socket and where a proxy did not name it.
fn port_of(remote: Option<SocketAddr>, out: &mut Vec<u8>) -> bool {
    match remote.map(|remote| remote.port()) {
        Some(0) | None => true,
        Some(port) => decimal(port, out),
    }
}

/// Appends the address of a client, as `$remote_addr` has it.
pub(crate) fn remote_address(remote: Option<SocketAddr>, out: &mut Vec<u8>) -> bool {
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

/// Appends a value.
pub(super) fn bytes(value: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value);
    true
}

/// A value that is not there when it is empty.
pub(super) fn present(value: &[u8], out: &mut Vec<u8>) -> bool {
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
