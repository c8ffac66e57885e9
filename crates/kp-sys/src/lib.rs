//! The operating system behind safe functions; the only crate that says `unsafe`.
//!
//! Everything here is a thin, named door: what it decides is only how a system call is made safely, never when. It knows
//! no configuration and no HTTP.

pub mod clock;
pub mod io;
pub mod lock;
pub mod memfile;
pub mod memory;
pub mod outlet;
pub mod poll;
pub mod process;
pub mod region;
pub mod signals;
pub mod socket;

mod misc;

pub use misc::{cpu_count, hostname, random};

/// Turns nix's error number into the standard library's error.
pub(crate) fn from_errno(errno: nix::errno::Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno as i32)
}
