//! Heads and answers, byte for byte, from configuration text and raw messages. What nginx does was observed on nginx.

#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod files;
mod log;
mod request;
mod response;
mod support;
