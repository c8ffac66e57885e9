//! Heads and answers, byte for byte, from configuration text and raw messages. What nginx does was observed on nginx.

mod answers;
mod files;
mod log;
mod request;
mod response;
mod support;
