//! Names to addresses. Builds queries, judges answers, walks aliases and services, knows the system's files. Does no I/O:
//! who drives a [`Lookup`] sends what it asks for and tells it what came back and what time it is.
//!
//! `message` is the wire, `question` one question and its attempts, `lookup` all questions of one name, `lifetime` how long
//! an answer holds; `hosts` and `resolv_conf` read the system's files.

mod hosts;
mod lifetime;
mod lookup;
mod message;
mod name;
mod question;
mod reason;
mod resolv_conf;

pub use hosts::Hosts;
pub use lifetime::lifetime_ms;
pub use lookup::{ADDRESSES_MAX, Found, HOSTS_MAX, Lookup, Missing, Outcome, Wanted};
pub use message::{MESSAGE_MAX, framed};
pub use name::HostName;
pub use question::{Order, Transport};
pub use reason::Reason;
pub use resolv_conf::name_servers;
