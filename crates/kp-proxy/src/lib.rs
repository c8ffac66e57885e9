//! One request/response pair: routing, variables, header rewriting, the exchange machine. Sans-I/O.
//!
//! Nothing in here opens a socket or a file or reads a clock; time and facts about the connection come in as
//! arguments ([`Context`]), effects go out as values.

pub mod answer_kind;
pub mod context;
pub mod exchange;
pub mod failure;

pub use answer_kind::{Answer, ErrorAction, Fault, Routed};
pub use context::{Context, Facts, Now};
pub use exchange::Exchange;
pub use failure::Failure;
mod names;
mod regex;
