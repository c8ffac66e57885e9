//! One request/response pair: routing, variables, header rewriting, the exchange machine. Sans-I/O.
//!
//! Nothing in here opens a socket or a file or reads a clock; time and facts about the connection come in as
//! arguments ([`Context`]), effects go out as values.

pub mod answer;
pub mod answer_kind;
mod client_head;
pub mod context;
pub mod early;
mod error_line;
pub mod exchange;
mod explain;
pub mod failure;
mod field_lines;
pub mod file_head;
mod forwarding;
mod heads;
pub mod health;
pub mod io;
mod json_line;
pub mod limits;
mod locations;
mod log_escape;
pub mod log_line;
pub mod machine;
mod map;
mod names;
mod persistence;
mod program;
mod proxy_cookie;
mod proxy_header;
mod proxy_redirect;
pub mod rate;
mod real_ip;
pub mod reason;
mod redirect;
mod regex;
pub mod request_head;
pub mod request_id;
pub mod response_head;
mod route;
mod script;
mod server_names;
mod split;
mod step;
pub mod sticky;
pub mod target;
mod templates;
pub mod tls;
mod tls_policy;
pub mod trace;
pub mod vars;

pub use answer::{Answered, PageReply, Rendered, answer, failure_answer, page};
pub use answer_kind::{Answer, ErrorAction, Fault, Routed, fault_text};
pub use client_head::last_chunk;
pub use context::{Context, Facts, Now};
pub use early::EarlyEnd;
pub use error_line::ErrorFacts;
pub use exchange::{Attempt, Exchange};
pub use explain::Circumstances;
pub use failure::{After, Cause, Failure, Phase};
pub use file_head::{File, FileReply, directory_redirect, file_head};
pub use forwarding::is_loop;
pub use heads::{PRODUCT, PRODUCT_SHORT};
pub use io::{Action, Input, WaitFor, Woken};
pub use limits::Limits;
pub use log_escape::json_string;
pub use log_line::access_line;
pub use persistence::may_stay;
pub use program::{Program, Uses, regex_problems};
pub use proxy_header::write_proxy_header;
pub use reason::{Reason, Side};
pub use redirect::{internal_redirect, named_location, wire_status};
pub use request_head::{BodyPlan, Outgoing, request_head};
pub use response_head::{
    CONTINUE, Directives, Reply, accel_target, carry_fields, directives, interim_head,
    response_head,
};
pub use route::{BadRequest, begin};
pub use script::is_true;
pub use target::{Target, resolve_target};
pub use tls::{
    ClientCertificate, ClientVerdict, TlsFacts, TlsOffer, TlsSource, UpstreamTls, tls_source,
};
