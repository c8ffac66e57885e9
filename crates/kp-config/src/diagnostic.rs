//! What is wrong with a configuration, where, and what to do about it.

use crate::span::Span;

/// How bad it is: an error keeps the configuration from being used, a warning does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration works, but probably not as meant.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The offending text; none for findings about the system (a socket, a log file).
    pub span: Option<Span>,
    /// What is wrong, in one sentence without a final stop: nginx's wording where it has one.
    pub message: String,
    /// What to do: the nearest directive, where it is allowed, the accepted form.
    pub hint: Option<String>,
    /// Where the enclosing block was opened, with its name (`location "/api/"`), outermost last.
    pub within: Vec<(Span, String)>,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            span: Some(span),
            message: message.into(),
            hint: None,
            within: Vec::new(),
        }
    }

    /// An error that no text is to blame for: a file that cannot be opened, an address in use.
    pub fn system(message: impl Into<String>) -> Self {
        Self {
            span: None,
            ..Self::error(Span::default(), message)
        }
    }

    /// A warning at a place.
    pub fn warning(span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(span, message)
        }
    }

    /// The same finding with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
