//! What requests and answers carry so that people can follow them: an id, a trace, a reason.

/// `request_id_header`, `trace_context`, `kp_reason_header`, of one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    /// `request_id_header` (kp), default X-Request-ID, in lower case: where a trusted peer says `$request_id`; `None`: nobody
    /// is asked.
    pub request_id_header: Option<String>,
    /// `trace_context` (kp), default propagate.
    pub trace_context: TraceContext,
    /// `kp_reason_header` (kp), default off.
    pub reason_header: bool,
}

impl Marks {
    /// `request_id_header` where nobody says it.
    pub const REQUEST_ID_HEADER: &'static str = "x-request-id";
}

/// `trace_context`: what becomes of a client's W3C trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceContext {
    /// It is passed on as it came.
    Propagate,
    /// kp takes part: with a span of its own, in the client's trace or in a new one.
    Start,
    /// It is not passed on.
    Off,
}
