//! One request/response pair: routing, variables, header rewriting, the exchange machine. Sans-I/O.
//!
//! Nothing in here opens a socket or a file or reads a clock; time and facts about the connection come in as
//! arguments ([`Context`]), effects go out as values.

pub mod answer_kind;
pub mod context;
pub mod exchange;
pub mod failure;
mod locations;
mod map;
mod names;
mod program;
mod redirect;
mod regex;
mod route;
mod script;
mod server_names;
mod templates;
pub mod vars;

pub use answer_kind::{Answer, ErrorAction, Fault, Routed};
pub use context::{Context, Facts, Now};
pub use exchange::Exchange;
pub use failure::Failure;
pub use program::{Program, Uses};
pub use redirect::{internal_redirect, named_location, wire_status};
pub use route::{BadRequest, begin};
pub use script::is_true;
