//! What routing decides: the words between routing and whoever turns a decision into bytes.
//!
//! Nothing is encoded here. An [`Answer`] is a status with what `return` or a redirect gave it; the page, the headers and
//! the absolute form of a redirect are made where answers are encoded.

use crate::reason::Reason;
use kp_config::model::{RegexId, UserVar};

/// What became of a request once it was routed.
#[derive(Debug, PartialEq, Eq)]
pub enum Routed {
    /// `exchange.location` is final and its handler answers.
    Handle,
    /// kp answers by itself.
    Answer(Answer),
    /// `return 444` (nginx: also 408 and 499): the connection is closed without an answer, the log has this status.
    Close(u16),
}

/// nginx ends the connection for these three where they are configured, since it uses the numbers for just that.
pub fn is_for_closing(status: u16) -> bool {
    matches!(status, 408 | 444 | 499)
}

/// An answer kp gives without a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status. 444 and 499 never come here.
    pub status: u16,
    /// Text of `return CODE TEXT`; its media type comes from the URI's extension and `types`, as nginx. `None`: the
    /// built-in page of the status where it has one, else an empty body.
    pub body: Option<Vec<u8>>,
    /// Value for `Location`. One that starts with `/` is made absolute under `absolute_redirect`.
    pub location: Option<Vec<u8>>,
    /// Whether `error_page` may take it over; not for `return CODE TEXT`.
    pub interceptable: bool,
    /// Why kp answers.
    pub reason: Reason,
}

impl Answer {
    /// A status with its built-in page, which `error_page` may take over.
    pub fn status(status: u16, reason: Reason) -> Self {
        Self {
            status,
            body: None,
            location: None,
            interceptable: true,
            reason,
        }
    }

    /// A redirect to a target.
    pub fn redirect(status: u16, location: Vec<u8>, reason: Reason) -> Self {
        Self {
            location: Some(location),
            ..Self::status(status, reason)
        }
    }

    /// `return CODE TEXT`.
    pub fn text(status: u16, body: Vec<u8>) -> Self {
        Self {
            body: Some(body),
            interceptable: false,
            ..Self::status(status, Reason::Return)
        }
    }
}

/// What an `error_page` asks for; everything else it changes is already done in the exchange.
#[derive(Debug, PartialEq, Eq)]
pub enum ErrorAction {
    /// The exchange was pointed at the page (a URI or a named location): route it.
    Reroute,
    /// Answer with this instead: a redirect to another server.
    Answer(Answer),
}

/// Why a value could not be had or routing had to end; one line for the error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// More than ten rewrites and internal redirects.
    Cycle,
    /// `error_page` or an internal redirect named a location that does not exist.
    NoNamedLocation,
    /// A rewrite made an empty URI.
    EmptyUri,
    /// An expression took more steps than one request may cost.
    RegexLimit(RegexId),
    /// A `map` that needs its own value.
    VariableCycle(UserVar),
}

impl Fault {
    /// Why the request ends with a 500.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Cycle => Reason::RedirectCycle,
            Self::NoNamedLocation => Reason::NoNamedLocation,
            Self::EmptyUri => Reason::EmptyUri,
            Self::RegexLimit(_) => Reason::RegexLimit,
            Self::VariableCycle(_) => Reason::Internal,
        }
    }

    /// The answer to a request that it ended; no error page is asked where the fault is in one.
    pub(crate) fn answer(&self, interceptable: bool) -> Answer {
        Answer {
            interceptable,
            ..Answer::status(500, self.reason())
        }
    }
}

/// The error log's sentence about a fault.
pub fn fault_text(fault: &Fault, config: &kp_config::Config) -> String {
    match fault {
        Fault::Cycle => "rewrite or internal redirection cycle".to_owned(),
        Fault::NoNamedLocation => "could not find named location".to_owned(),
        Fault::EmptyUri => "the rewritten URI has a zero length".to_owned(),
        Fault::RegexLimit(regex) => {
            let pattern = config
                .http
                .regexes
                .get(regex.index())
                .map_or("", |source| source.pattern.as_str());
            format!("the regular expression \"{pattern}\" took too many steps")
        }
        Fault::VariableCycle(variable) => {
            let name = config
                .http
                .user_variables
                .get(variable.index())
                .map_or("", String::as_str);
            format!("cycle while evaluating variable \"{name}\"")
        }
    }
}
