//! The reactor: sockets, timers, buffers, files, logs. Drives the pure crates.
