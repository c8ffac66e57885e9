//! The reactor: sockets, timers, buffers, files, logs. Drives the pure crates.
//!
//! `reactor` is the loop, `client` and `upstream` are the two halves of a connection, `drive` lets an exchange move, `act`
//! performs what kp-proxy's machine asks for, `park` works out what is awaited; `relay`, `tunnel`, `gather`, `spill`, `spool`
//! and `files` move bytes; `memory` is the sum of all of it, `shed` makes room when something runs out.

mod act;
mod active;
mod ages;
pub mod books;
mod buffers;
mod client;
mod clock;
mod discard;
mod drain;
mod drive;
mod early;
pub mod error_log;
mod exhaustion;
mod facts;
mod files;
mod gather;
mod gzip;
mod handshake;
mod heritage;
pub mod inquiry;
mod jobs;
mod line_outlet;
mod listeners;
pub mod log_file;
mod logs;
mod losses;
mod measure;
mod memory;
mod names;
mod open_logs;
mod output;
mod overdue;
pub mod overview;
mod own;
mod pace;
pub mod pages;
mod pairs;
mod panic_note;
mod park;
mod peers;
mod pending;
mod preamble;
mod probe;
mod proc;
mod reactor;
mod relay;
mod remote;
mod response_head;
mod secure;
mod sessions;
mod shed;
mod slots;
mod spill;
mod spool;
mod steer;
mod syslog;
mod tally;
mod throttle;
mod token;
mod transport;
mod tunnel;
mod upstream;
mod waiting;
mod wheel;
mod zones;

pub use heritage::{Heritage, exit, message};
pub use kp_proxy::{Reason, Side, regex_problems};
pub use names::resolved;
pub use steer::{Snapshot, Version};

use kp_config::{Config, Diagnostic};
use kp_proxy::Program;
use kp_shm::TicketReader;
use kp_tls::Tls;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A configuration with everything that is compiled from it.
#[derive(Debug)]
pub struct Prepared {
    /// The configuration.
    pub config: Config,
    /// Regular expressions, tables of names and locations.
    pub program: Program,
    /// Certificates, keys and whom they are to be shown to.
    pub tls: Tls,
}

/// Compiles what a configuration needs at run time and reads its certificates, with the rights of the caller. Session
/// tickets are sealed with keys of `tickets`. Warnings come with it.
///
/// # Errors
///
/// One diagnostic for each regular expression that cannot be used and for each file that cannot.
pub fn prepare(
    config: Config,
    tickets: Option<TicketReader>,
) -> Result<(Prepared, Vec<Diagnostic>), Vec<Diagnostic>> {
    let program = Program::compile(&config);
    let now_unix_s = kp_sys::clock::unix_ms() / 1000;
    let tls = Tls::load(&config, &mut read_certificate, tickets, now_unix_s);
    match (program, tls) {
        (Ok(program), Ok((tls, warnings))) => {
            let prepared = Prepared {
                config,
                program,
                tls,
            };
            Ok((prepared, warnings))
        }
        (program, tls) => {
            let mut wrong = program.err().unwrap_or_default();
            wrong.extend(tls.err().unwrap_or_default());
            Err(wrong)
        }
    }
}

/// The longest file of certificates, keys or revocation lists.
const CERTIFICATE_FILE_MAX: u64 = 64 << 20;

/// The memory that the master must set aside for a configuration's zones before it forks.
pub fn zone_plans(config: &kp_config::Config) -> Vec<kp_shm::ZonePlan> {
    let limits = kp_proxy::Limits::plans(config).into_iter();
    limits.chain(sessions::plans(config)).collect()
}

/// Reads a file of certificates, keys or the like. It never takes long, whatever the file is.
///
/// # Errors
///
/// It cannot be read, or is no such file.
pub fn read_certificate(path: &Path) -> io::Result<Vec<u8>> {
    kp_sys::io::read_file(path, CERTIFICATE_FILE_MAX)
}

/// Serves as a worker until drained or stopped; returns the exit status ([`exit`]).
///
/// Called in the forked child after it dropped its privileges, or in the only process with `master_process off`. Signals
/// are expected to be blocked.
pub fn run(heritage: Heritage) -> u8 {
    panic_note::install();
    let channel = heritage.channel.as_ref().map(OwnedFd::try_clone);
    let channel = match channel.transpose() {
        Ok(channel) => channel,
        Err(error) => return cannot_start(heritage.channel.as_ref(), &error),
    };
    let started =
        reactor::Worker::new(heritage).and_then(|mut worker| worker.say_ready().map(|()| worker));
    match started {
        Ok(mut worker) => worker.run(),
        // There is nobody to serve for, and nobody to tell.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            log::error!(target: "alert", "the master process is gone");
            exit::OK
        }
        Err(error) => cannot_start(channel.as_ref(), &error),
    }
}

/// Tells the master, which also sees the exit status and logs both.
fn cannot_start(channel: Option<&OwnedFd>, error: &io::Error) -> u8 {
    let reason = format!(
        "a worker process could not start ({})",
        jobs::errno_text(error)
    );
    let told = channel.is_some_and(|channel| {
        let mut text = vec![message::FAILED];
        text.extend_from_slice(reason.as_bytes());
        kp_sys::socket::send_fds(channel, &text, &[]).is_ok()
    });
    if !told {
        log::error!(target: "emerg", "{reason}");
    }
    exit::FATAL
}
