//! One generation of workers as processes: its configuration, its open log files, its members and how they are told things.

use crate::logs;
use crate::state::Adopted;
use kp_config::model::LogTarget;
use kp_config::overrides::Overrides;
use kp_shm::Row;
use kp_sys::process::Identity;
use kp_sys::socket::send_fds;
use kp_sys::{clock, process, signals};
use kp_worker::{Prepared, Version, message};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// A generation.
#[derive(Debug)]
pub(crate) struct Crew {
    /// Its number, from 1.
    pub(crate) number: u32,
    /// Configuration and what was compiled from it.
    pub(crate) prepared: Rc<Prepared>,
    /// Whom its workers become.
    pub(crate) identity: Option<Identity>,
    /// Open log files, in the configuration's order.
    pub(crate) files: Vec<File>,
    /// What was changed at run time.
    pub(crate) overrides: Rc<Overrides>,
    /// `state` files whose text was taken up for it, until it serves.
    pub(crate) adopted: Adopted,
    /// Worker slots.
    pub(crate) slots: u32,
    /// Living workers.
    pub(crate) workers: Vec<Worker>,
    /// When it began what it is at (to start, to serve, to drain), by the monotonic clock.
    pub(crate) since_ms: u64,
    /// It never served and never will.
    pub(crate) failed: bool,
    /// How many workers each slot has had.
    starts: Vec<u32>,
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
    /// Batches of reopened log files: how many were sent, and how many the worker said that it uses.
    pub(crate) logs_sent: u64,
    pub(crate) logs_taken: u64,
    /// Run-time changes: what it was told, and by what it serves.
    pub(crate) told: Version,
    pub(crate) taken: Version,
    /// Whoever connects now meets somebody else.
    pub(crate) left: bool,
}

impl Worker {
    /// A worker that was just forked.
    pub(crate) fn new(slot: u32, pid: i32, row: Row, channel: OwnedFd) -> Self {
        Self {
            slot,
            pid,
            row,
            channel: Some(channel),
            logs_sent: 0,
            logs_taken: 0,
            told: Version::default(),
            taken: Version::default(),
            left: false,
        }
    }

    /// Hands over reopened log files.
    pub(crate) fn send_logs(&mut self, files: &[File]) -> io::Result<()> {
        if let Some(channel) = &self.channel {
            self.logs_sent += logs::send(channel, files)?;
        }
        Ok(())
    }

    /// Whether it is to be told of this version now: it knows less, and has answered what it was told before. So one that
    /// stands still finds one message when it goes on, whatever was changed meanwhile.
    pub(crate) fn is_to_be_told(&self, version: Version) -> bool {
        self.told < version && self.told == self.taken
    }

    /// Hands over what is in force, in sealed memory; `false`: it takes nothing at the moment, or too many descriptors are
    /// on their way. One that is gone counts as told.
    pub(crate) fn tell_overrides(&self, version: Version, snapshot: &OwnedFd) -> bool {
        let Some(channel) = &self.channel else {
            return true;
        };
        match send_fds(channel, &version.encode(), &[snapshot.as_fd()]) {
            Ok(()) => true,
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::NotConnected
            ),
        }
    }

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
    /// A generation without workers yet.
    pub(crate) fn new(
        number: u32,
        prepared: Rc<Prepared>,
        identity: Option<Identity>,
        files: Vec<File>,
        slots: u32,
    ) -> Self {
        Self {
            number,
            prepared,
            identity,
            files,
            overrides: Rc::default(),
            adopted: Adopted::new(),
            slots,
            workers: Vec::new(),
            since_ms: clock::monotonic_ms(),
            failed: false,
            starts: vec![0; slots as usize],
        }
    }

    /// Takes a worker in.
    pub(crate) fn join(&mut self, worker: Worker) {
        if let Some(starts) = self.starts.get_mut(worker.slot as usize) {
            *starts = starts.saturating_add(1);
        }
        self.workers.push(worker);
    }

    /// How often the worker of a slot was replaced.
    pub(crate) fn restarts(&self, slot: u32) -> u32 {
        let starts = self.starts.get(slot as usize).copied();
        starts.unwrap_or(0).saturating_sub(1)
    }

    /// Another generation of the same configuration.
    pub(crate) fn again(&self, number: u32) -> io::Result<Self> {
        let files = self.files.iter().map(File::try_clone);
        let mut crew = Self::new(
            number,
            Rc::clone(&self.prepared),
            self.identity.clone(),
            files.collect::<io::Result<_>>()?,
            self.slots,
        );
        crew.overrides = Rc::clone(&self.overrides);
        Ok(crew)
    }

    /// Lets its workers finish what they have.
    pub(crate) fn drain(&mut self, successor: bool) {
        for worker in &self.workers {
            if successor {
                worker.tell(message::SUCCESSOR);
            }
        }
        self.stop(signals::SIGQUIT);
    }

    /// Sends every worker a signal that ends it, sooner or later.
    pub(crate) fn stop(&mut self, signal: i32) {
        self.since_ms = clock::monotonic_ms();
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
                LogTarget::Syslog(_) => {}
                LogTarget::File(id) => file = file.or_else(|| self.files.get(id.index())),
            }
        }
        file
    }
}
