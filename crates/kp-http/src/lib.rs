//! HTTP bytes to heads, bodies and events and back. Sans-I/O, both roles.
//!
//! `field` knows names, `head` holds a parsed head as one buffer plus spans, `parse` fills it as bytes
//! arrive, with httparse and kp's own strict rules for `line` and `section`, `target` takes request targets and hosts apart, `hop` flags what ends here, `framing` decides
//! in one place how a body is delimited (RFC 9112 §6.3), `body` decodes it, `encode` writes heads and chunks. `proxy_protocol` is what may
//! stand in front of all that.

mod body;
mod error;
mod field;
mod framing;
mod head;
mod hop;
mod line;
mod parse;
mod proxy_protocol;
mod section;

pub mod encode;
pub mod target;

pub use body::{BodyDecoder, Piece};
pub use error::{BodyError, HeadCause, HeadError};
pub use field::{Field, Known};
pub use framing::Framing;
pub use head::{Method, RequestHead, ResponseHead, Version};
pub use parse::{HeadLimits, HeadReader};
pub use proxy_protocol::{PROXY_HEADER_MAX, ProxyHeader, ProxyHeaderError, ProxyPreamble};
