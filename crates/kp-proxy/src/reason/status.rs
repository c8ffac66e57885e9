//! The status that a client gets with each reason.
//!
//! The table of failures decides the statuses; this repeats them as texts for people, and a test compares the two.

use super::Reason;

impl Reason {
    /// What the client gets and the access log shows, in words: a status, several, or where it is decided. A dash: the
    /// response was under way, so its status stays, if a head was sent.
    pub fn status(self) -> &'static str {
        match self {
            Self::Page => "200",
            Self::DirectoryRedirect | Self::PrefixRedirect => "301",
            Self::RewriteRedirect => "301 or 302",
            Self::BadRequest
            | Self::PlainHttp
            | Self::ClientCertificate
            | Self::NoClientCertificate
            | Self::BadBody
            | Self::ClientCut => "400",
            Self::AccessDenied | Self::FileForbidden => "403",
            Self::FileNotFound | Self::InternalLocation | Self::BadAccelRedirect => "404",
            Self::ConnectMethod | Self::MethodNotAllowed => "405",
            Self::ClientHeadTimeout | Self::ClientBodyTimeout | Self::ClientTooSlow => "408",
            Self::PreconditionFailed => "412",
            Self::BodyTooLarge => "413",
            Self::TargetTooLong => "414",
            Self::RangeNotSatisfiable => "416",
            Self::Misdirected => "421",
            Self::HeadTooLarge => "431",
            Self::ReturnClose => "444, 408 or 499 in the log",
            Self::ClientGone => "499",
            Self::OwnCertificate
            | Self::BadTarget
            | Self::RedirectCycle
            | Self::Internal
            | Self::NoNamedLocation
            | Self::EmptyUri
            | Self::RegexLimit => "500",
            Self::FileError => "500, or – in the middle of a file",
            Self::UnknownCoding => "501",
            Self::NoLivePeer
            | Self::ConnectFailed
            | Self::TlsHandshake
            | Self::TlsVerify
            | Self::StaleConnection
            | Self::SendFailed
            | Self::UpstreamClosed
            | Self::UpstreamReset
            | Self::UpstreamInvalidHead
            | Self::UpstreamHeadTooLarge
            | Self::NameNotResolved => "502",
            Self::QueueFull
            | Self::QueueTimeout
            | Self::TooManyActive
            | Self::Overload
            | Self::OutOfMemory
            | Self::NotReady => "503",
            Self::RateLimited | Self::PlacesTaken => "503, or as configured",
            Self::ConnectTimeout | Self::SendTimeout | Self::UpstreamTimeout | Self::TryTimeout => {
                "504"
            }
            Self::BadVersion => "505",
            Self::Loop => "508",
            Self::UpstreamStatus => "as sent",
            Self::Intercepted => "what `error_page` says",
            Self::Return => "what `return` says",
            _ if self.keeps_status() => "–",
            _ => "none: there was no request",
        }
    }

    /// Whether it ends a response that is under way.
    fn keeps_status(self) -> bool {
        matches!(
            self,
            Self::ClientSendTimeout
                | Self::ClientReadsTooSlow
                | Self::BodyTruncated
                | Self::BodyReset
                | Self::BodyTimeout
                | Self::BodyInvalid
                | Self::TunnelTimeout
                | Self::Shutdown
                | Self::FastStop
                | Self::Orphaned
        )
    }
}
