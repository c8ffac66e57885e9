//! HTTP bytes to heads, bodies and events and back. Sans-I/O, both roles.
//!
//! `head` holds a parsed head as one buffer plus spans, `parse` fills it on top of httparse with kp's own strict rules,
//! `framing` decides in one place how a body is delimited (RFC 9112 §6.3), `body` decodes it, `encode` writes heads and chunks.

/// Placeholder so that dependants compile until `head` lands.
#[derive(Debug, Default)]
pub struct RequestHead {
    /// The head's bytes.
    pub bytes: Vec<u8>,
}

/// Placeholder so that dependants compile until `head` lands.
#[derive(Debug, Default)]
pub struct ResponseHead {
    /// The head's bytes.
    pub bytes: Vec<u8>,
}
