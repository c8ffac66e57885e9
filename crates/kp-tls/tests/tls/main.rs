//! kp-tls from outside: configurations over files in memory, handshakes in memory, at the other end the library itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests panic to fail"
)]

mod common;
mod loading;
mod properties;
mod raw;
mod resumption;
mod sessions;
mod upstreams;
mod verification;
