//! A parsed head: one buffer, and spans into it.
//!
//! Decides nothing; `parse` fills it. Both heads are made to be reused: `clear` keeps the allocations.

use crate::field::{self, Field, Known, Span};
use crate::framing::Framing;

/// The minor versions that make a difference. `HTTP/1.2` and later are read as 1.1 (RFC 9110 §2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

/// A method that some part of kp treats specially, or that nginx names. The text of every method stays in the head.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Patch,
    Lock,
    Unlock,
    Connect,
    Trace,
    PropFind,
    PropPatch,
    MkCol,
    Copy,
    Move,
    /// Any other.
    Other,
}

impl Method {
    /// Methods are case-sensitive (RFC 9110 §9.1).
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        match text {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"PATCH" => Self::Patch,
            b"LOCK" => Self::Lock,
            b"UNLOCK" => Self::Unlock,
            b"CONNECT" => Self::Connect,
            b"TRACE" => Self::Trace,
            b"PROPFIND" => Self::PropFind,
            b"PROPPATCH" => Self::PropPatch,
            b"MKCOL" => Self::MkCol,
            b"COPY" => Self::Copy,
            b"MOVE" => Self::Move,
            _ => Self::Other,
        }
    }
}

/// The parts of a request line, as spans from the start of the head.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestLine {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) method_len: u32,
    pub(crate) line_len: u32,
    pub(crate) target: Span,
    pub(crate) path: Span,
    pub(crate) authority: Span,
}

/// The head of a request.
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    /// The bytes as received; after a refusal what was received until then.
    pub bytes: Vec<u8>,
    /// Every field line, dropped ones included, in order.
    pub fields: Vec<Field>,
    /// The method.
    pub method: Method,
    /// The version.
    pub version: Version,
    /// How the body is delimited.
    pub framing: Framing,
    /// HTTP/1.1 with `Expect: 100-continue`.
    pub expect_continue: bool,
    /// `Connection: close` was sent.
    pub close: bool,
    /// `Connection: keep-alive` was sent.
    pub keep_alive: bool,
    pub(crate) line: RequestLine,
    /// Bits of the known names among the fields.
    pub(crate) present: u64,
    pub(crate) host: Option<Span>,
    pub(crate) upgrade: Option<Span>,
}

impl RequestHead {
    /// The method as sent.
    #[must_use]
    pub fn method_text(&self) -> &[u8] {
        Span {
            at: 0,
            len: self.line.method_len,
        }
        .of(&self.bytes)
    }

    /// The request target as sent, in whatever form.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.line.target.of(&self.bytes)
    }

    /// Path and query: the target in origin form, `*` in asterisk form, empty for `CONNECT`.
    #[must_use]
    pub fn path_and_query(&self) -> &[u8] {
        if self.line.path.len == 0 && self.line.authority.len != 0 && self.method != Method::Connect
        {
            // RFC 9112 §3.2.1: an absolute form with an empty path means the root.
            return b"/";
        }
        self.line.path.of(&self.bytes)
    }

    /// The request line without its line end (`$request`); after a refusal what there was of it.
    #[must_use]
    pub fn request_line(&self) -> &[u8] {
        Span {
            at: 0,
            len: self.line.line_len,
        }
        .of(&self.bytes)
    }

    /// Host and port the request names, as sent and validated: the authority of an absolute target wins over
    /// `Host` (RFC 9112 §3.2.2). `None` in HTTP/1.0 without either. See [`crate::target::host_name`] for `$host`.
    #[must_use]
    pub fn host(&self) -> Option<&[u8]> {
        if self.line.authority.len != 0 {
            return Some(self.line.authority.of(&self.bytes));
        }
        self.host.map(|span| span.of(&self.bytes))
    }

    /// Every field that exists, hop-by-hop ones included; see [`Field::is_hop`].
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.is_dropped())
    }

    /// Names of the fields that are ignored, for the log.
    pub fn dropped(&self) -> impl Iterator<Item = &[u8]> {
        self.fields
            .iter()
            .filter(|field| field.is_dropped())
            .map(|field| field.name(&self.bytes))
    }

    /// A field's name as sent.
    #[must_use]
    pub fn name(&self, field: &Field) -> &[u8] {
        field.name(&self.bytes)
    }

    /// A field's value without the whitespace around it.
    #[must_use]
    pub fn value(&self, field: &Field) -> &[u8] {
        field.value(&self.bytes)
    }

    /// Value of the first field with this meaning.
    #[must_use]
    pub fn find(&self, known: Known) -> Option<&[u8]> {
        field::find(&self.bytes, &self.fields, self.present, known)
    }

    /// Value of the first field with this name, in any case.
    #[must_use]
    pub fn find_name(&self, name: &[u8]) -> Option<&[u8]> {
        field::find_name(&self.bytes, &self.fields, name)
    }

    /// What the client wants to upgrade to, if it asks properly: HTTP/1.1, `Upgrade`, and `Connection: upgrade`
    /// (RFC 9110 §7.8).
    #[must_use]
    pub fn upgrade_requested(&self) -> Option<&[u8]> {
        self.upgrade.map(|span| span.of(&self.bytes))
    }

    /// Whether the connection may carry another request after this one (RFC 9112 §9.3).
    #[must_use]
    pub fn persistent(&self) -> bool {
        !self.close && (self.version == Version::Http11 || self.keep_alive)
    }

    /// No head is in here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets the head and keeps the allocations.
    pub fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut fields = std::mem::take(&mut self.fields);
        bytes.clear();
        fields.clear();
        *self = Self {
            bytes,
            fields,
            ..Self::default()
        };
    }
}

/// The parts of a status line, as spans from the start of the head.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StatusLine {
    pub(crate) version: Version,
    pub(crate) status: u16,
    pub(crate) line_len: u32,
    pub(crate) reason: Span,
}

/// The head of a response.
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    /// The bytes as received; after a refusal what was received until then.
    pub bytes: Vec<u8>,
    /// Every field line, dropped ones included, in order.
    pub fields: Vec<Field>,
    /// 100 to 599.
    pub status: u16,
    /// The version.
    pub version: Version,
    /// How the body is delimited.
    pub framing: Framing,
    /// The connection may be used again once the body was read to its end.
    pub persistent: bool,
    /// `Keep-Alive: timeout=`: how long the sender keeps an idle connection.
    pub keep_alive_timeout_s: Option<u32>,
    pub(crate) line: StatusLine,
    /// Bits of the known names among the fields.
    pub(crate) present: u64,
}

impl ResponseHead {
    /// The reason phrase; may be empty.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        self.line.reason.of(&self.bytes)
    }

    /// The status line without its line end; after a refusal what there was of it.
    #[must_use]
    pub fn status_line(&self) -> &[u8] {
        Span {
            at: 0,
            len: self.line.line_len,
        }
        .of(&self.bytes)
    }

    /// 1xx other than 101: a final response follows on the same connection (RFC 9110 §15.2).
    #[must_use]
    pub fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }

    /// Every field that exists, hop-by-hop ones included; see [`Field::is_hop`].
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.is_dropped())
    }

    /// Names of the fields that are ignored, for the log.
    pub fn dropped(&self) -> impl Iterator<Item = &[u8]> {
        self.fields
            .iter()
            .filter(|field| field.is_dropped())
            .map(|field| field.name(&self.bytes))
    }

    /// A field's name as sent.
    #[must_use]
    pub fn name(&self, field: &Field) -> &[u8] {
        field.name(&self.bytes)
    }

    /// A field's value without the whitespace around it.
    #[must_use]
    pub fn value(&self, field: &Field) -> &[u8] {
        field.value(&self.bytes)
    }

    /// Value of the first field with this meaning.
    #[must_use]
    pub fn find(&self, known: Known) -> Option<&[u8]> {
        field::find(&self.bytes, &self.fields, self.present, known)
    }

    /// Value of the first field with this name, in any case.
    #[must_use]
    pub fn find_name(&self, name: &[u8]) -> Option<&[u8]> {
        field::find_name(&self.bytes, &self.fields, name)
    }

    /// No head is in here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets the head and keeps the allocations.
    pub fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut fields = std::mem::take(&mut self.fields);
        bytes.clear();
        fields.clear();
        *self = Self {
            bytes,
            fields,
            ..Self::default()
        };
    }
}
