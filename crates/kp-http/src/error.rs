//! Why a head or a body was refused: one enum per operation, the status a client is told, words for the log.
//!
//! Does not decide what follows (retry, close): that is the failure table of the exchange.

use std::fmt;

/// How many bytes of an offending name are kept for the log.
const NAME_KEPT: usize = 46;

/// A refused head.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HeadError {
    cause: HeadCause,
    name_len: u8,
    name: [u8; NAME_KEPT],
}

/// What was wrong with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeadCause {
    /// The method has a character outside `A-Z_-` or never ends.
    BadMethod,
    /// The request line is not `method SP target SP version`.
    BadRequestLine,
    /// The target is of no form that fits the method, or holds a character that is not allowed.
    BadTarget,
    /// A version that is not `HTTP/` digit `.` digit.
    BadVersion,
    /// A well-formed version whose major number is not 1.
    UnsupportedVersion,
    /// The status line is not `version SP three digits [SP reason]`, or the status is out of range.
    BadStatusLine,
    /// A line ended by LF alone.
    BareLf,
    /// A CR that is not followed by LF.
    BareCr,
    /// A line that starts with whitespace (RFC 9112 §5.2).
    Folded,
    /// A field line without a colon.
    NoColon,
    /// Whitespace between name and colon (RFC 9112 §5.1).
    SpaceBeforeColon,
    /// An empty name or one with a character that is no token character.
    BadName,
    /// A control character in a value.
    BadValue,
    /// `Content-Length` together with `Transfer-Encoding`.
    LengthAndTransferEncoding,
    /// `Content-Length` twice.
    RepeatedLength,
    /// A `Content-Length` that is not digits or too large.
    BadLength,
    /// `Transfer-Encoding` twice.
    RepeatedTransferEncoding,
    /// A `Transfer-Encoding` that is malformed or does not end in one `chunked`.
    BadTransferEncoding,
    /// A transfer coding other than `chunked`.
    UnknownTransferEncoding,
    /// `Transfer-Encoding` in an HTTP/1.0 request.
    TransferEncodingInHttp10,
    /// HTTP/1.1 without `Host`.
    MissingHost,
    /// `Host` twice.
    RepeatedHost,
    /// A `Host` or authority that is none.
    BadHost,
    /// Another field twice that a request can have but once.
    RepeatedField,
    /// More options in `Connection` than anybody needs.
    TooManyConnectionOptions,
    /// The request line is longer than allowed.
    TargetTooLong,
    /// One field line is longer than allowed.
    FieldTooLarge,
    /// The head is larger than allowed.
    HeadTooLarge,
    /// More fields than allowed.
    TooManyFields,
}

impl HeadError {
    pub(crate) fn new(cause: HeadCause) -> Self {
        Self {
            cause,
            name_len: 0,
            name: [0; NAME_KEPT],
        }
    }

    pub(crate) fn named(cause: HeadCause, name: &[u8]) -> Self {
        let mut error = Self::new(cause);
        for (to, from) in error.name.iter_mut().zip(name) {
            *to = *from;
            error.name_len += 1;
        }
        error
    }

    /// What was wrong.
    #[must_use]
    pub fn cause(&self) -> HeadCause {
        self.cause
    }

    /// The name of the offending field, cut to a length a log line bears; empty if no field is to blame. Raw bytes.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name
            .get(..usize::from(self.name_len))
            .unwrap_or_default()
    }

    /// What a client is answered whose request this was.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self.cause {
            HeadCause::TargetTooLong => 414,
            HeadCause::FieldTooLarge | HeadCause::HeadTooLarge | HeadCause::TooManyFields => 431,
            HeadCause::UnknownTransferEncoding => 501,
            HeadCause::UnsupportedVersion => 505,
            _ => 400,
        }
    }

    /// What was sent, to be read after "client sent" or "upstream sent".
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.cause {
            HeadCause::BadMethod => "invalid method",
            HeadCause::BadRequestLine => "invalid request line",
            HeadCause::BadTarget => "invalid request target",
            HeadCause::BadVersion => "invalid version",
            HeadCause::UnsupportedVersion => "unsupported HTTP version",
            HeadCause::BadStatusLine => "invalid status line",
            HeadCause::BareLf => "line ended by LF without CR",
            HeadCause::BareCr => "CR without LF",
            HeadCause::Folded => "header line that starts with whitespace",
            HeadCause::NoColon => "header line without a colon",
            HeadCause::SpaceBeforeColon => "whitespace before the colon in header line",
            HeadCause::BadName => "invalid header name",
            HeadCause::BadValue => "invalid character in the value of header",
            HeadCause::LengthAndTransferEncoding => {
                "\"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            HeadCause::RepeatedLength => "duplicate \"Content-Length\" header line",
            HeadCause::BadLength => "invalid \"Content-Length\" header",
            HeadCause::RepeatedTransferEncoding => "duplicate \"Transfer-Encoding\" header line",
            HeadCause::BadTransferEncoding => "invalid \"Transfer-Encoding\" header",
            HeadCause::UnknownTransferEncoding => "unknown \"Transfer-Encoding\"",
            HeadCause::TransferEncodingInHttp10 => {
                "HTTP/1.0 request with \"Transfer-Encoding\" header"
            }
            HeadCause::MissingHost => "HTTP/1.1 request without \"Host\" header",
            HeadCause::RepeatedHost => "duplicate \"Host\" header line",
            HeadCause::RepeatedField => "duplicate header line",
            HeadCause::BadHost => "invalid host",
            HeadCause::TooManyConnectionOptions => "too many options in \"Connection\" header",
            HeadCause::TargetTooLong => "too long URI",
            HeadCause::FieldTooLarge => "too long header line",
            HeadCause::HeadTooLarge => "too large header",
            HeadCause::TooManyFields => "too many header lines",
        }
    }
}

impl fmt::Debug for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HeadError({:?}, \"{}\")",
            self.cause,
            self.name().escape_ascii()
        )
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())?;
        if self.name_len > 0 {
            write!(f, ": \"{}\"", self.name().escape_ascii())?;
        }
        Ok(())
    }
}

impl std::error::Error for HeadError {}

/// A refused body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyError {
    /// A chunk size that is not hexadecimal digits, or a chunk line that does not follow RFC 9112 §7.1.
    BadChunkSize,
    /// A chunk size beyond what can be counted, or with absurdly many digits.
    ChunkTooLarge,
    /// A chunk extension that does not follow RFC 9112 §7.1.1.
    BadExtension,
    /// More extension bytes than the data they came with justifies.
    ExtensionTooLong,
    /// Chunk data that is not followed by CRLF.
    BadChunkEnd,
    /// A trailer line that is no field line.
    BadTrailer,
    /// Trailers larger than allowed.
    TrailersTooLarge,
    /// The connection ended before the body did.
    Truncated,
}

impl BodyError {
    /// What a client is answered whose request body this was.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::TrailersTooLarge => 431,
            _ => 400,
        }
    }

    /// What was sent, to be read after "client sent" or "upstream sent".
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::BadChunkSize => "invalid chunk size",
            Self::ChunkTooLarge => "too large chunk size",
            Self::BadExtension => "invalid chunk extension",
            Self::ExtensionTooLong => "too long chunk extension",
            Self::BadChunkEnd => "chunk data without CRLF after it",
            Self::BadTrailer => "invalid trailer line",
            Self::TrailersTooLarge => "too large trailers",
            Self::Truncated => "body that ended early",
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for BodyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_escaped() {
        let error = HeadError::named(HeadCause::BadName, &[b'\n'; 100]);
        assert_eq!(error.name(), [b'\n'; NAME_KEPT]);
        assert!(
            error
                .to_string()
                .starts_with("invalid header name: \"\\n\\n")
        );
        assert!(!error.to_string().contains('\n'));
    }

    #[test]
    fn statuses_follow_the_failure_table() {
        for (cause, status) in [
            (HeadCause::TargetTooLong, 414),
            (HeadCause::FieldTooLarge, 431),
            (HeadCause::HeadTooLarge, 431),
            (HeadCause::TooManyFields, 431),
            (HeadCause::UnknownTransferEncoding, 501),
            (HeadCause::UnsupportedVersion, 505),
            (HeadCause::BadTransferEncoding, 400),
            (HeadCause::MissingHost, 400),
        ] {
            assert_eq!(HeadError::new(cause).status(), status, "{cause:?}");
        }
    }
}
