//! Everything that crosses the fork from master to worker. Nothing else is inherited: the master closes the rest with
//! `close_range` in the child before it calls [`crate::run`].

use crate::Prepared;
use kp_config::model::ListenerId;
use kp_config::overrides::Overrides;
use kp_shm::Row;
use kp_shm::Shm;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// What a worker is born with.
#[derive(Debug)]
pub struct Heritage {
    /// Configuration and what was compiled from it; the master may have two generations of the same.
    pub prepared: Rc<Prepared>,
    /// The shared regions, mapped before the first fork.
    pub shm: Shm,
    /// This process's row in the scoreboard.
    pub row: Row,
    /// Worker slot, from 0.
    pub slot: u32,
    /// Generation of workers, from 1.
    pub generation: u32,
    /// What was changed at run time.
    pub overrides: Rc<Overrides>,
    /// This slot's listening sockets (unix sockets: the one socket of the address), bound; polled after Commit.
    pub listeners: Vec<(ListenerId, OwnedFd)>,
    /// Open log files, in the order of `Config::log_files`.
    pub log_files: Vec<OwnedFd>,
    /// SOCK_SEQPACKET pair to the master; `None` with `master_process off`.
    pub channel: Option<OwnedFd>,
    /// pidfd of the master; `None` with `master_process off`.
    pub master: Option<OwnedFd>,
    /// `$hostname`.
    pub hostname: String,
    /// Random bytes that all processes of this master share: they name the group in `Via`, which detects loops.
    pub group_token: [u8; 8],
    /// The prefix that relative paths are resolved against.
    pub prefix: std::path::PathBuf,
}

/// First byte of each datagram between master and worker.
pub mod message {
    /// Worker → master: the worker can serve.
    pub const READY: u8 = b'R';
    /// Worker → master: it cannot, the rest is the reason.
    pub const FAILED: u8 = b'X';
    /// Worker → master, in a drain: whoever connects from now on meets somebody else.
    pub const LEFT: u8 = b'D';
    /// Master → worker: listeners may be polled now.
    pub const COMMIT: u8 = b'C';
    /// Master → worker, before SIGQUIT: a successor generation is serving, so idle connections get their full grace.
    pub const SUCCESSOR: u8 = b'S';
    /// Master → worker, with descriptors: `L`, a big-endian u16 index, and the reopened files from that index on.
    /// Worker → master, the same without descriptors: nothing more goes to the old files.
    pub const LOGS: u8 = b'L';
    /// Master → worker, with the descriptor of sealed memory: `O`, a [`Version`](crate::Version), and there a
    /// [`Snapshot`](crate::Snapshot) of what was changed at run time. Worker → master, the same without the descriptor: it
    /// serves by it.
    pub const OVERRIDES: u8 = b'O';
    /// Worker → master: a message came without its descriptors, since there was no room for them, or what was changed at
    /// run time could not be read. It serves by what it had before and wants to be told again.
    pub const MISSED: u8 = b'M';
    /// Master → worker, with the descriptor of sealed memory: a few certificates with their keys that take the place of others.
    pub const CERTIFICATES: u8 = b'K';
    /// Master → worker: `Q`, a big-endian u64 that the answer repeats, and an [`crate::inquiry::Inquiry`] in JSON.
    pub const INQUIRY: u8 = b'Q';
    /// Worker → master: `A`, the number of the inquiry, and the descriptor of sealed memory with the
    /// [`crate::inquiry::Findings`] in JSON.
    pub const FINDINGS: u8 = b'A';
}

/// How a worker ends.
pub mod exit {
    /// After a drain or a fast stop.
    pub const OK: u8 = 0;
    /// It could not start; respawning it would not help.
    pub const FATAL: u8 = 2;
}
