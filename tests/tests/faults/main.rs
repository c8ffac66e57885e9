//! What one bad peer does to a request, for every way of being bad, and what it must not do to anybody else.
//!
//! `rules.rs` says what the documents promise, `peer.rs` plays the bad peer, `matrix.rs` runs every case and compares.
//! Nothing here was written down from what kp happened to do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests panic to fail, and play clients and origins in threads that read the clock"
)]

mod brownout;
mod chaos;
mod flapping;
mod matrix;
mod peer;
mod rules;
