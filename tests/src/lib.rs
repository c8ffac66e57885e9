//! The harness of the behaviour tests: it starts the real kp binary between raw clients and scripted origins.
//!
//! A test writes a configuration ([`Setup`]), starts kp on it ([`Kp`]), lets an [`Origin`] play the server behind and a
//! [`Client`] the one in front, and looks at bytes, log lines and processes. Nothing here knows kp's crates except the
//! directive table; what a test sees is what a user of the binary sees. Waiting is always for an event with a deadline
//! ([`wait`]); ports come from [`Port`], which no two tests of a machine can hold at the same time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test harness panics to fail a test, and plays clients and origins in threads that read the clock"
)]

pub mod ask;
pub mod brownout;
pub mod browser;
pub mod client;
pub mod crowd;
pub mod dns;
pub mod incident;
pub mod kp;
pub mod load;
pub mod message;
pub mod metrics;
pub mod origin;
pub mod peers;
pub mod port;
pub mod process;
pub mod source;
mod stream;
pub mod tls;
pub mod tool;
pub mod wait;

pub use client::{Client, Writing};
pub use kp::{Checked, Kp, Setup};
pub use load::{Kind, Load, LoadOrigin, Mix};
pub use message::{End, Request, Response};
pub use metrics::Metrics;
pub use origin::{Conversation, Origin};
pub use port::Port;
