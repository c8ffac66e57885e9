//! One generation of workers as processes: its configuration, its open log files, its members and how they are told things.

use kp_config::model::LogTarget;
use kp_shm::Row;
use kp_sys::process::Identity;
use kp_sys::socket::send_fds;
use kp_sys::{process, signals};
use kp_worker::{Prepared, message};
use std::fs::File;
use std::os::fd::OwnedFd;

/// A generation.
#[derive(Debug)]
pub(crate) struct Crew {
    /// Its number, from 1.
    pub(crate) number: u32,
    /// Configuration and what was compiled from it.
    pub(crate) prepared: Prepared,
    /// Whom its workers become.
    pub(crate) identity: Option<Identity>,
    /// Open log files, in the configuration's order.
    pub(crate) files: Vec<File>,
    /// Worker slots.
    pub(crate) slots: u32,
    /// Living workers.
    pub(crate) workers: Vec<Worker>,
}

/// A living worker.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Its slot.
    pub(crate) slot: u32,
    /// Its process.
    pub(crate) pid: i32,
    /// Its row in the shared tables.
    pub(crate) row: Row,
    /// This end of the channel; `None` once the worker closed the other.
    pub(crate) channel: Option<OwnedFd>,
}

impl Worker {
    /// Sends a one-byte message. A worker that cannot be told is about to be reaped.
    pub(crate) fn tell(&self, kind: u8) {
        if let Some(channel) = &self.channel
            && let Err(error) = send_fds(channel, &[kind], &[])
        {
            log::warn!(
                "worker process {} could not be told \"{}\": {error}",
                self.pid,
                char::from(kind)
            );
        }
    }
}

impl Crew {
    /// Lets its workers finish what they have.
    pub(crate) fn drain(&self, successor: bool) {
        for worker in &self.workers {
            if successor {
                worker.tell(message::SUCCESSOR);
            }
        }
        self.signal(signals::SIGQUIT);
    }

    /// Sends a signal to every worker.
    pub(crate) fn signal(&self, signal: i32) {
        for worker in &self.workers {
            if let Err(error) = process::kill(worker.pid, signal) {
                log::error!(target: "alert", "kill({}, {signal}) failed ({})", worker.pid, crate::report::numbered(&error));
            }
        }
    }

    /// The file that takes what a daemon's libraries print on stderr: the main error log, unless it is stderr.
    pub(crate) fn stderr_file(&self) -> Option<&File> {
        let mut file = None;
        for log in &self.prepared.config.main.error_log {
            match log.target {
                LogTarget::Stderr => return None,
                LogTarget::File(id) => file = file.or_else(|| self.files.get(id.index())),
            }
        }
        file
    }
}
