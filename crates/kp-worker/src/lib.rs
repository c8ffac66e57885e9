//! The reactor: sockets, timers, buffers, files, logs. Drives the pure crates.

mod buffers;
mod slots;
mod token;
mod wheel;
