//! What the error log says about a failure, in nginx's words.

use super::{Cause, ETIMEDOUT, Failure, Phase};

impl Failure {
    /// Appends the error log's sentence in nginx's words, ` while …` included; `detail` says what was wrong where the
    /// reporter knows it (text of a `HeadError`, a name that is no group), or is empty.
    pub fn write_text(&self, detail: &str, out: &mut String) {
        let noun = match self.cause {
            Cause::BadRequest
            | Cause::BadVersion
            | Cause::UnknownCoding
            | Cause::TargetTooLong
            | Cause::HeadTooLarge => Some("client sent "),
            Cause::UpstreamInvalidHead => Some("upstream sent "),
            Cause::TlsHandshake | Cause::TlsVerify | Cause::OwnCertificate => Some(""),
            _ => None,
        };
        match noun {
            // What was sent is the detail itself.
            Some(subject) if !detail.is_empty() => {
                out.push_str(subject);
                out.push_str(detail);
            }
            _ => self.write_sentence(detail, out),
        }
        if let Some(errno) = self.errno() {
            write_errno(errno, out);
        }
        let action = self.phase.action();
        if !action.is_empty() {
            out.push_str(" while ");
            out.push_str(action);
        }
    }

    fn write_sentence(&self, detail: &str, out: &mut String) {
        if let Cause::NameNotResolved(code) = self.cause {
            out.push_str(if detail.is_empty() { "a name" } else { detail });
            out.push(' ');
            out.push_str(self.sentence());
            out.push_str(" (");
            out.push_str(itoa::Buffer::new().format(code));
            out.push_str(resolver_words(code));
            out.push(')');
            return;
        }
        out.push_str(self.sentence());
        match self.cause {
            Cause::BodyTooLarge(Some(bytes)) => {
                out.push_str(": ");
                out.push_str(itoa::Buffer::new().format(bytes));
                out.push_str(" bytes");
            }
            Cause::UpstreamStatus(status) => {
                out.push(' ');
                out.push_str(itoa::Buffer::new().format(status));
            }
            _ => {}
        }
        if !detail.is_empty() {
            out.push_str(match self.cause {
                // The detail is the rest of the sentence.
                Cause::RateLimited { .. } | Cause::PlacesTaken { .. } => "",
                _ => ": ",
            });
            out.push_str(detail);
        }
    }

    fn sentence(&self) -> &'static str {
        match self.cause {
            Cause::BadRequest => "client sent invalid request",
            Cause::BadVersion => "client sent invalid version",
            Cause::UnknownCoding => "client sent unknown \"Transfer-Encoding\"",
            Cause::ConnectMethod => "client sent CONNECT or TRACE method",
            Cause::PlainHttp => "client sent plain HTTP request to HTTPS port",
            Cause::ClientCertificate => "client SSL certificate verify error",
            Cause::NoClientCertificate => "client sent no required SSL certificate",
            Cause::Misdirected => {
                "client attempted to request the server name different from the one that was negotiated"
            }
            Cause::TargetTooLong => "client sent too long URI",
            Cause::HeadTooLarge => "client sent too large request",
            Cause::BodyTooLarge(Some(_)) => "client intended to send too large body",
            Cause::BodyTooLarge(None) => "client intended to send too large chunked body",
            Cause::BadBody => "client sent invalid chunked body",
            Cause::ClientHeadTimeout | Cause::ClientBodyTimeout | Cause::ClientSendTimeout => {
                "client timed out"
            }
            Cause::ClientTooSlow => "client sends slower than client_min_rate",
            Cause::ClientReadsTooSlow => "client reads slower than send_min_rate",
            Cause::ClientGone => self.phase.client_left(),
            Cause::ClientCut => "client prematurely closed connection",
            Cause::Loop => "request came back to this proxy",
            Cause::NoLivePeer => "no live upstreams",
            Cause::QueueFull => "upstream queue is full",
            Cause::QueueTimeout => "upstream queue timed out",
            Cause::ConnectFailed(_) => "connect() failed",
            Cause::TlsHandshake => "SSL_do_handshake() failed",
            Cause::TlsVerify => "upstream SSL certificate verify error",
            Cause::OwnCertificate => "cannot load certificate",
            Cause::StaleConnection => "upstream closed keepalive connection",
            Cause::SendFailed(_) => "send() failed",
            Cause::ConnectTimeout
            | Cause::SendTimeout
            | Cause::UpstreamTimeout
            | Cause::TryTimeout
            | Cause::BodyTimeout
            | Cause::TunnelTimeout => "upstream timed out",
            Cause::UpstreamClosed | Cause::BodyTruncated => {
                "upstream prematurely closed connection"
            }
            Cause::UpstreamReset(_) | Cause::BodyReset(_) => "recv() failed",
            Cause::UpstreamInvalidHead => "upstream sent invalid header",
            Cause::UpstreamHeadTooLarge => "upstream sent too big header",
            Cause::UpstreamStatus(_) => "upstream answered with status",
            Cause::BodyInvalid => "upstream sent invalid chunked response",
            Cause::BadTarget => "invalid URL",
            Cause::NameNotResolved(_) => "could not be resolved",
            Cause::RedirectCycle => "rewrite or internal redirection cycle",
            Cause::OutOfMemory => "worker_memory is not enough",
            Cause::RateLimited { .. } => "limiting requests",
            Cause::PlacesTaken { .. } => "limiting connections",
            Cause::AccessDenied => "access forbidden by rule",
            Cause::TooManyActive => "max_active_requests are not enough",
            Cause::Overload => "worker connections or buffers are not enough",
            Cause::Internal => "request could not be processed",
            Cause::FileBroken => "a file could not be read to its end",
            Cause::Shutdown => "worker shutdown timeout, exchange is ended",
            Cause::FastStop => "worker is stopped, exchange is ended",
            Cause::Orphaned => "worker without a master ends, and so does its exchange",
        }
    }

    fn errno(&self) -> Option<i32> {
        match self.cause {
            Cause::ConnectFailed(errno)
            | Cause::SendFailed(errno)
            | Cause::UpstreamReset(errno)
            | Cause::BodyReset(errno) => Some(errno),
            Cause::ClientHeadTimeout
            | Cause::ClientBodyTimeout
            | Cause::ClientSendTimeout
            | Cause::ConnectTimeout
            | Cause::SendTimeout
            | Cause::UpstreamTimeout
            | Cause::TryTimeout
            | Cause::BodyTimeout
            | Cause::TunnelTimeout => Some(ETIMEDOUT),
            _ => None,
        }
    }
}

impl Phase {
    /// A client that left, and what it takes along.
    fn client_left(self) -> &'static str {
        match self {
            Self::Connect
            | Self::Handshake
            | Self::SendRequest
            | Self::AwaitHead
            | Self::ReadBody
            | Self::SendResponse => {
                "client prematurely closed connection, so upstream connection is closed too"
            }
            _ => "client prematurely closed connection",
        }
    }

    /// nginx's name of it; empty where nginx says nothing.
    pub fn action(self) -> &'static str {
        match self {
            Self::RequestLine => "reading client request line",
            Self::RequestHead => "reading client request headers",
            Self::Route | Self::File | Self::RequestBody => "",
            Self::Connect => "connecting to upstream",
            Self::Handshake => "SSL handshaking to upstream",
            Self::SendRequest => "sending request to upstream",
            Self::AwaitHead => "reading response header from upstream",
            Self::ReadBody => "reading upstream",
            Self::SendResponse => "sending to client",
            Self::Tunnel => "proxying upgraded connection",
            Self::Accept => "",
            Self::ProxyHeader => "reading PROXY protocol",
            Self::ClientHandshake => "SSL handshaking",
        }
    }
}

/// nginx's words for a name server's code.
fn resolver_words(code: u16) -> &'static str {
    match code {
        1 => ": Format error",
        2 => ": Server failure",
        3 => ": Host not found",
        4 => ": Unimplemented",
        5 => ": Operation refused",
        110 => ": Operation timed out",
        _ => ": Unknown error",
    }
}

/// Appends ` (111: Connection refused)`.
fn write_errno(errno: i32, out: &mut String) {
    out.push_str(" (");
    out.push_str(itoa::Buffer::new().format(errno));
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    // The standard library appends the number in its own form; the log line has it in front.
    let text = text.split(" (os error").next().unwrap_or_default();
    out.push_str(": ");
    out.push_str(text);
    out.push(')');
}
