//! Writing heads and chunk framing (RFC 9112 §3, §4, §5, §7.1), and nginx's reason phrases.
//!
//! Decides the bytes of each element. Does not decide which elements there are, and checks nothing: what is written
//! here was parsed or configured, and both were checked there.

use crate::head::Version;

/// The last chunk and an empty trailer section.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// The last chunk, to be followed by trailer lines and [`end`].
pub const LAST_CHUNK_BEFORE_TRAILERS: &[u8] = b"0\r\n";
/// What follows the data of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

impl Version {
    /// As it stands in a first line.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        }
    }
}

/// Appends a request line.
pub fn request_line(out: &mut Vec<u8>, method: &[u8], target: &[u8], version: Version) {
    out.reserve(method.len() + target.len() + 12);
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(target);
    out.push(b' ');
    out.extend_from_slice(version.text().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a status line. Without a `reason` it is nginx's phrase for the status, which may be empty.
pub fn status_line(out: &mut Vec<u8>, version: Version, status: u16, reason: Option<&[u8]>) {
    out.extend_from_slice(version.text().as_bytes());
    out.push(b' ');
    number(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason.unwrap_or(reason_phrase(status).as_bytes()));
    out.extend_from_slice(b"\r\n");
}

/// Appends a field line.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Ends a head or a trailer section.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
pub fn number(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 20];
    let used = write_backwards(&mut digits, value, 10);
    out.extend_from_slice(digits.get(digits.len() - used..).unwrap_or_default());
}

/// The line before a chunk's data.
#[derive(Debug, Clone, Copy)]
pub struct ChunkHead {
    bytes: [u8; 18],
    at: u8,
}

impl ChunkHead {
    /// The bytes, line end included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(usize::from(self.at)..).unwrap_or_default()
    }
}

impl AsRef<[u8]> for ChunkHead {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The line before `length` bytes of data. Never ask for 0: that would be the last chunk.
#[must_use]
pub fn chunk_head(length: u64) -> ChunkHead {
    debug_assert!(length > 0);
    let mut bytes = *b"0000000000000000\r\n";
    let (digits, _) = bytes.split_at_mut(16);
    let used = write_backwards(digits, length, 16);
    ChunkHead {
        bytes,
        at: 16 - used as u8,
    }
}

/// Writes the digits at the end of `space`, which is long enough for any u64; says how many.
fn write_backwards(space: &mut [u8], mut value: u64, base: u64) -> usize {
    let mut used = 0;
    for place in space.iter_mut().rev() {
        let digit = (value % base) as u8;
        *place = if digit < 10 {
            b'0' + digit
        } else {
            b'a' + digit - 10
        };
        used += 1;
        value /= base;
        if value == 0 {
            break;
        }
    }
    used
}

/// nginx's phrase for a status; empty where nginx has none. 431 and 508 are kp's own answers.
#[must_use]
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Moved Temporarily",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Time-out",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Large",
        415 => "Unsupported Media Type",
        416 => "Requested Range Not Satisfiable",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Temporarily Unavailable",
        504 => "Gateway Time-out",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for value in [0, 1, 9, 10, 99, 100, 65535, u64::MAX - 1, u64::MAX] {
            let mut out = b"x".to_vec();
            number(&mut out, value);
            assert_eq!(out, format!("x{value}").as_bytes());
        }
    }

    #[test]
    fn chunk_heads() {
        for length in [1, 9, 10, 15, 16, 255, 65536, u64::MAX] {
            assert_eq!(
                chunk_head(length).as_bytes(),
                format!("{length:x}\r\n").as_bytes()
            );
        }
    }

    #[test]
    fn heads() {
        let mut out = Vec::new();
        status_line(&mut out, Version::Http11, 302, None);
        status_line(&mut out, Version::Http10, 418, None);
        status_line(&mut out, Version::Http11, 200, Some(b"Fine"));
        request_line(&mut out, b"GET", b"/a", Version::Http10);
        field(&mut out, b"X-A", b"b");
        end(&mut out);
        let want = "HTTP/1.1 302 Moved Temporarily\r\nHTTP/1.0 418 \r\nHTTP/1.1 200 Fine\r\nGET /a HTTP/1.0\r\nX-A: b\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), want);
    }
}
