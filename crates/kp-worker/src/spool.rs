//! Responses kept for a slow client, so that its upstream is free: in memory while `worker_memory` has room and the answer is
//! not long, or, with `proxy_max_temp_file_size` above 0, in a temporary file.
//!
//! The spool is a queue of bytes as they will be sent: once something is in it, everything that follows goes behind it.
//! Without it the upstream is simply not read while its client has no room.

use crate::active::Active;
use crate::drive::Turn;
use crate::jobs::{Done, Job, Purpose};
use crate::reactor::Worker;
use kp_config::model::Level;
use kp_proxy::{Cause, Failure, Input, Phase};
use std::fs::File;
use std::sync::Arc;

/// Bytes per read back.
const READ_BYTES: usize = 64 * 1024;

/// What waits for the client beside its output buffer.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    file: Option<Arc<File>>,
    creating: bool,
    /// Bytes in the file, and how many of them were read back.
    written: u64,
    read: u64,
    /// Bytes behind those in the file.
    waiting: Vec<u8>,
    writing: bool,
    reading: bool,
    /// The disk let the spool down: nothing more goes into it.
    failed: bool,
}

impl Spool {
    /// Memory it holds.
    pub(crate) fn bytes(&self) -> usize {
        let job = if self.writing || self.reading {
            READ_BYTES
        } else {
            0
        };
        self.waiting.capacity() + job
    }

    fn is_empty(&self) -> bool {
        self.read == self.written && self.waiting.is_empty() && !self.writing
    }

    /// Begins at the front of the file again once all of it was read back: a response that is longer than the file may
    /// become, and a client that keeps up with it only just, must not make it grow for ever.
    fn rewind(&mut self) {
        if self.read == self.written && !self.writing {
            self.read = 0;
            self.written = 0;
        }
    }
}

impl Worker {
    /// Whether output has to queue behind what is spooled.
    pub(crate) fn is_spooling(&self, active: &Active) -> bool {
        active.spool.as_ref().is_some_and(|spool| !spool.is_empty())
    }

    /// Whether more of the response may be read although the client has no room: begins to spool if so.
    pub(crate) fn may_spool(&mut self, active: &mut Active) -> bool {
        let proxy = &self.location(active.exchange.location).proxy;
        if !active.exchange.machine.buffering {
            return false;
        }
        if proxy.max_temp_file_size == 0 {
            let waiting = active.spool.as_ref().map_or(0, |spool| spool.waiting.len());
            let may = self.may_hold(active, waiting);
            if may {
                active.spool.get_or_insert_default();
            }
            return may;
        }
        let spool = active.spool.get_or_insert_default();
        // A disk that is slower than the upstream must not turn the spool into memory.
        !spool.failed
            && spool.written + (spool.waiting.len() as u64) < proxy.max_temp_file_size
            && spool.waiting.len() < 4 * proxy.temp_file_write_size.max(READ_BYTES)
    }

    /// Puts output behind what is spooled.
    pub(crate) fn spool(&mut self, active: &mut Active, more: &[&[u8]]) {
        let proxy = &self.location(active.exchange.location).proxy;
        // Of a counted body that may be held, which is never long.
        let rest = active
            .response
            .length
            .and(active.response.decoder.remaining());
        let Some(spool) = &mut active.spool else {
            return;
        };
        if let Some(rest) = rest
            && spool.waiting.capacity() == 0
            && proxy.max_temp_file_size == 0
        {
            // All that will be held, at once: growing would take up to twice as much.
            let more: usize = more.iter().map(|bytes| bytes.len()).sum();
            spool
                .waiting
                .reserve_exact(more + usize::try_from(rest).unwrap_or(0));
        }
        for bytes in more {
            spool.waiting.extend_from_slice(bytes);
        }
        self.write_spool(active);
    }

    fn write_spool(&mut self, active: &mut Active) {
        let proxy = &self.location(active.exchange.location).proxy;
        let Some(spool) = &mut active.spool else {
            return;
        };
        if spool.writing
            || spool.creating
            || spool.failed
            || proxy.max_temp_file_size == 0
            || spool.waiting.len() < proxy.temp_file_write_size
        {
            return;
        }
        let Some(file) = spool.file.clone() else {
            spool.creating = true;
            self.spill_serial += 1;
            let name = format!("kp-{}-{:010}", self.pid, self.spill_serial);
            let job = Job::Create {
                directory: proxy.temp_path.clone(),
                name,
                keep: false,
            };
            self.jobs.submit(active.key, Purpose::Spool, job);
            self.log_exchange(
                active,
                Level::Warn,
                "an upstream response is buffered to a temporary file",
            );
            return;
        };
        spool.writing = true;
        let job = Job::Write {
            file,
            offset: spool.written,
            data: std::mem::take(&mut spool.waiting),
        };
        self.jobs.submit(active.key, Purpose::Spool, job);
    }

    /// Hands spooled bytes to the client when it took everything before them.
    pub(crate) fn unspool(&mut self, active: &mut Active) -> Turn {
        let Some(spool) = &mut active.spool else {
            return Turn::Nothing;
        };
        if !active.to_client.is_empty() || spool.reading {
            return Turn::Nothing;
        }
        if spool.read < spool.written {
            let Some(file) = spool.file.clone() else {
                return Turn::Nothing;
            };
            spool.reading = true;
            let length = usize::try_from(spool.written - spool.read)
                .unwrap_or(READ_BYTES)
                .min(READ_BYTES);
            let job = Job::Read {
                file,
                offset: spool.read,
                length,
                buffer: Vec::new(),
            };
            self.jobs.submit(active.key, Purpose::Spool, job);
            return Turn::Nothing;
        }
        if spool.waiting.is_empty() || spool.writing {
            return Turn::Nothing;
        }
        let bytes = std::mem::take(&mut spool.waiting);
        active.to_client.take_over(bytes, &mut self.buffers);
        self.push_client(active, &[]);
        Turn::Moved
    }

    /// Takes in a file operation of the spool.
    pub(crate) fn spool_done(&mut self, active: &mut Active, done: Done) -> Option<Input> {
        let spool = active.spool.as_mut()?;
        let failed = match done {
            Done::Created(Ok((file, _))) => {
                spool.creating = false;
                spool.file = Some(Arc::new(file));
                None
            }
            Done::Written(Ok(data)) => {
                spool.writing = false;
                spool.written += data.len() as u64;
                None
            }
            Done::Read(Ok(bytes)) if !bytes.is_empty() => {
                spool.reading = false;
                spool.read += bytes.len() as u64;
                spool.rewind();
                self.push_unspooled(active, &[&bytes]);
                return None;
            }
            Done::Created(Err(error)) => {
                // Nothing is lost: what waits is in memory and goes out from there.
                spool.creating = false;
                spool.failed = true;
                let text = format!(
                    "open() of a temporary file failed ({})",
                    crate::jobs::errno_text(&error)
                );
                self.log_exchange(active, Level::Crit, &text);
                return None;
            }
            Done::Written(Err(error)) | Done::Read(Err(error)) => {
                Some(crate::jobs::errno_text(&error))
            }
            Done::Read(Ok(_)) => Some("it became shorter".to_owned()),
            Done::Opened(_) | Done::Unopened(_) | Done::Pairs(_) | Done::Page(_) => None,
        };
        if let Some(reason) = failed {
            active.spool = None;
            self.log_exchange(
                active,
                Level::Crit,
                &format!("a temporary file failed ({reason})"),
            );
            return Some(Input::UpstreamFailed(Failure::new(
                Phase::SendResponse,
                Cause::Internal,
            )));
        }
        self.write_spool(active);
        None
    }
}
