//! Collecting request bodies: in memory up to `client_body_buffer_size`, beyond that in a temporary file.

use crate::active::{Active, Collected, RequestStage};
use crate::drive::Turn;
use crate::jobs::{Done, Job, Purpose};
use crate::reactor::Worker;
use crate::relay::Pieces;
use kp_config::model::{BodyInFile, Level};
use kp_http::{Framing, encode};
use kp_proxy::Input;
use kp_proxy::machine::BodyState;
use kp_proxy::{Cause, Failure, Phase};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes per write to, and read from, a temporary file; what waits for company stays in memory if the client stalls.
const PIECE_BYTES: usize = 48 * 1024;

/// A body in a temporary file.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    file: Option<Arc<File>>,
    path: Option<PathBuf>,
    /// Bytes already written.
    written: u64,
    /// Bytes that wait to be written.
    waiting: Vec<u8>,
    /// A job is under way.
    busy: bool,
    /// Where the read that is under way began; `None`: nobody wants what it brings.
    reading: Option<u64>,
    /// Remove the named file at the end (`client_body_in_file_only clean`).
    remove: bool,
}

impl Spill {
    pub(crate) fn forget_read(&mut self) {
        self.reading = None;
    }

    /// Memory it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.capacity() + if self.busy { PIECE_BYTES } else { 0 }
    }

    pub(crate) fn length(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        if let Some(path) = self.path.take().filter(|_| self.remove) {
            // One unlink of a file of our own; that it may already be gone is no concern.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether a body ends within these bytes, well or badly.
fn ends_within(mut decoder: kp_http::BodyDecoder, input: &[u8]) -> bool {
    let mut rest = input;
    loop {
        match decoder.decode(rest) {
            Ok(piece) if piece.done => return true,
            Ok(piece) if piece.consumed == 0 => return false,
            Ok(piece) => rest = rest.get(piece.consumed..).unwrap_or_default(),
            Err(_) => return true,
        }
    }
}

impl Worker {
    /// Whether a collected body waits for the disk, so that the client is not read meanwhile.
    pub(crate) fn spilling(&self, active: &Active) -> bool {
        matches!(&active.request.collected, Collected::File(spill) if spill.busy && spill.waiting.len() >= PIECE_BYTES)
    }

    /// How much more of a collected body is taken in: one piece waits at most while another is being written.
    pub(crate) fn spill_room(&self, active: &Active) -> usize {
        match &active.request.collected {
            Collected::File(spill) => PIECE_BYTES.saturating_sub(spill.waiting.len()),
            Collected::None | Collected::Memory(_) => PIECE_BYTES,
        }
    }

    /// A body that came along with its head, whole and small, is taken before a peer is asked, also where it would be
    /// streamed: it costs nothing and can be sent again, and a malformed one reaches nobody.
    pub(crate) fn take_held_body(&mut self, active: &mut Active) -> Option<Input> {
        let location = self.location(active.exchange.location);
        if active.request.whole
            || active.request.stage != RequestStage::Unread
            || active.exchange.machine.body != BodyState::Unread
            || location.client_body_in_file_only != BodyInFile::Off
        {
            return None;
        }
        let client = self.clients.at(active.client)?;
        if client.input.is_empty() || client.input.len() > location.client_body_buffer_size {
            return None;
        }
        if !ends_within(active.request.decoder.clone(), &client.input) {
            return None;
        }
        let mut held = std::mem::take(&mut client.input);
        active.request.stage = RequestStage::Collecting;
        self.send_continue(active);
        let turn = self.use_body(active, &held);
        self.buffers.give(&mut held);
        match turn {
            Turn::Input(Input::Collected) => {
                active.exchange.machine.body_taken();
                None
            }
            Turn::Input(failed) => Some(failed),
            Turn::Nothing | Turn::Moved | Turn::Hangup => None,
        }
    }

    /// Puts body bytes where the collected body is.
    pub(crate) fn collect(&mut self, active: &mut Active, found: &Pieces, input: &[u8]) {
        let location = self.location(active.exchange.location);
        if matches!(active.request.collected, Collected::None) {
            active.request.collected = Collected::Memory(Vec::new());
        }
        if let Collected::Memory(body) = &mut active.request.collected {
            for range in found.ranges() {
                body.extend_from_slice(input.get(range.clone()).unwrap_or_default());
            }
            if body.len() > location.client_body_buffer_size
                || location.client_body_in_file_only != BodyInFile::Off
            {
                let mut spill = Spill::default();
                spill.waiting = std::mem::take(body);
                spill.busy = true;
                active.request.collected = Collected::File(spill);
                self.spill_serial += 1;
                let keep = location.client_body_in_file_only != BodyInFile::Off
                    || self.program.uses().request_body;
                self.log_exchange(
                    active,
                    Level::Warn,
                    "a client request body is buffered to a temporary file",
                );
                let name = format!("kp-{}-{:010}", self.pid, self.spill_serial);
                self.jobs.submit(
                    active.key,
                    Purpose::Body,
                    Job::Create {
                        directory: location.client_body_temp_path.clone(),
                        name,
                        keep,
                    },
                );
            }
            return;
        }
        if let Collected::File(spill) = &mut active.request.collected {
            for range in found.ranges() {
                spill
                    .waiting
                    .extend_from_slice(input.get(range.clone()).unwrap_or_default());
            }
            if spill.waiting.len() >= PIECE_BYTES {
                self.write_spill(active);
            }
        }
    }

    fn write_spill(&mut self, active: &mut Active) {
        let Collected::File(spill) = &mut active.request.collected else {
            return;
        };
        let Some(file) = spill
            .file
            .clone()
            .filter(|_| !spill.busy && !spill.waiting.is_empty())
        else {
            return;
        };
        spill.busy = true;
        let job = Job::Write {
            file,
            offset: spill.written,
            data: std::mem::take(&mut spill.waiting),
        };
        self.jobs.submit(active.key, Purpose::Body, job);
    }

    /// The body was read to its end: it is whole once the disk has it.
    pub(crate) fn collected(&mut self, active: &mut Active) -> Turn {
        match &mut active.request.collected {
            Collected::File(spill) if spill.busy || !spill.waiting.is_empty() => {
                active.request.stage = RequestStage::Collecting;
                self.write_spill(active);
                Turn::Nothing
            }
            Collected::Memory(body) => {
                active.exchange.request.body =
                    self.program.uses().request_body.then(|| body.clone());
                Turn::Input(Input::Collected)
            }
            Collected::None | Collected::File(_) => Turn::Input(Input::Collected),
        }
    }

    /// Takes in a file operation for a collected body.
    pub(crate) fn spill_done(&mut self, active: &mut Active, done: Done) -> Option<Input> {
        let remove = self
            .location(active.exchange.location)
            .client_body_in_file_only
            != BodyInFile::On;
        let Collected::File(spill) = &mut active.request.collected else {
            return None;
        };
        spill.busy = false;
        let failed = match done {
            Done::Created(Ok((file, path))) => {
                spill.file = Some(Arc::new(file));
                spill.remove = remove;
                active.exchange.request.body_file =
                    Some(path.to_string_lossy().into_owned().into_bytes());
                spill.path = Some(path);
                None
            }
            Done::Written(Ok(data)) => {
                spill.written += data.len() as u64;
                None
            }
            Done::Read(Ok(bytes)) => {
                let from = spill.reading.take();
                return self.replayed(active, from, &bytes);
            }
            Done::Created(Err(error)) => Some(("open", error)),
            Done::Written(Err(error)) => Some(("pwrite", error)),
            Done::Read(Err(error)) => Some(("pread", error)),
            Done::Opened(_) | Done::Unopened(_) | Done::Pairs(_) | Done::Page(_) => None,
        };
        if let Some((call, error)) = failed {
            let text = format!(
                "{call}() of a temporary file failed ({})",
                crate::jobs::errno_text(&error)
            );
            self.log_exchange(active, Level::Crit, &text);
            // Without anybody who wants the body the answer is on its way already.
            let wanted = matches!(
                active.request.stage,
                RequestStage::Collecting | RequestStage::Replaying(_)
            );
            let cause = if crate::exhaustion::is_of_files(&error) {
                Cause::Overload
            } else {
                Cause::Internal
            };
            return wanted.then(|| Input::ClientFailed(Failure::new(Phase::RequestBody, cause)));
        }
        if active.request.whole && active.request.stage == RequestStage::Collecting {
            active.request.stage = RequestStage::Done;
            if let Turn::Input(input) = self.collected(active) {
                return Some(input);
            }
            return None;
        }
        if matches!(&active.request.collected, Collected::File(spill) if spill.waiting.len() >= PIECE_BYTES)
        {
            self.write_spill(active);
        }
        None
    }

    /// Sends the next piece of a body from its file.
    pub(crate) fn replay_file(&mut self, active: &mut Active, cursor: u64) -> Turn {
        let Collected::File(spill) = &mut active.request.collected else {
            return Turn::Nothing;
        };
        if spill.busy {
            return Turn::Nothing;
        }
        if cursor >= spill.written {
            active.request.stage = RequestStage::Done;
            if active.request.out == Framing::Chunked {
                self.push_upstream(active, &[encode::LAST_CHUNK]);
            }
            return Turn::Moved;
        }
        let Some(file) = spill.file.clone() else {
            return Turn::Nothing;
        };
        spill.busy = true;
        spill.reading = Some(cursor);
        let length = usize::try_from(spill.written - cursor)
            .unwrap_or(PIECE_BYTES)
            .min(PIECE_BYTES);
        self.jobs.submit(
            active.key,
            Purpose::Body,
            Job::Read {
                file,
                offset: cursor,
                length,
                buffer: Vec::with_capacity(length),
            },
        );
        Turn::Nothing
    }

    fn replayed(&mut self, active: &mut Active, from: Option<u64>, bytes: &[u8]) -> Option<Input> {
        let cursor = from.filter(|&from| active.request.stage == RequestStage::Replaying(from))?;
        if bytes.is_empty() {
            return Some(Input::ClientFailed(Failure::new(
                Phase::RequestBody,
                Cause::Internal,
            )));
        }
        active.request.stage = RequestStage::Replaying(cursor + bytes.len() as u64);
        let chunk = encode::chunk_head(bytes.len() as u64);
        if active.request.out == Framing::Chunked {
            self.push_upstream(active, &[chunk.as_bytes(), bytes, b"\r\n"]);
        } else {
            self.push_upstream(active, &[bytes]);
        }
        None
    }
}
