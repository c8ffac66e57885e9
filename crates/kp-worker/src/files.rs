//! Static answers: a file is opened, then read piece by piece as the client takes it.

use crate::active::{Active, ResponseStage};
use crate::drive::Turn;
use crate::jobs::{Done, Job, Purpose};
use crate::reactor::Worker;
use kp_config::model::Level;
use kp_http::Framing;
use kp_proxy::io::{FileError, FileFacts, FileQuery};
use kp_proxy::{Answered, FileReply, Input};
use kp_proxy::{Cause, Failure, Phase, Reason};
use std::fs::File;
use std::sync::Arc;

/// Bytes per read: large enough to be cheap, small enough that a slow client holds little.
const READ_BYTES: usize = 64 * 1024;

/// A file that is being sent.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: Arc<File>,
    offset: u64,
    end: u64,
    /// A read is under way.
    reading: bool,
}

impl Worker {
    pub(crate) fn open_file(&mut self, active: &mut Active, query: FileQuery) -> Option<Input> {
        active.response.stage = ResponseStage::Opening;
        let job = Job::Open {
            query,
            again: false,
        };
        self.jobs.submit(active.key, Purpose::Answer, job);
        None
    }

    /// Takes in what a thread did for an exchange.
    pub(crate) fn job_done(
        &mut self,
        active: &mut Active,
        purpose: Purpose,
        done: Done,
    ) -> Option<Input> {
        match purpose {
            Purpose::Answer => self.answer_done(active, done),
            Purpose::Body => self.spill_done(active, done),
            Purpose::Spool => self.spool_done(active, done),
            Purpose::ClientPairs | Purpose::UpstreamPair => None,
        }
    }

    fn answer_done(&mut self, active: &mut Active, done: Done) -> Option<Input> {
        match done {
            // The exchange was answered meanwhile.
            Done::Opened(_) | Done::Unopened(_) | Done::Page(_)
                if !matches!(active.response.stage, ResponseStage::Opening) =>
            {
                None
            }
            Done::Unopened(query) => {
                self.make_room();
                let job = Job::Open { query, again: true };
                self.jobs.submit(active.key, Purpose::Answer, job);
                None
            }
            Done::Opened(Ok((file, facts))) => {
                active.file = Some(Arc::new(file));
                Some(Input::FileOpened(facts))
            }
            Done::Opened(Err(error)) => {
                self.log_file_error(active, &error);
                Some(Input::FileFailed(error))
            }
            Done::Page(rendered) => {
                self.end_page(active, rendered);
                None
            }
            Done::Read(result) => self.file_read(active, result),
            Done::Created(_) | Done::Written(_) | Done::Pairs(_) => None,
        }
    }

    fn log_file_error(&mut self, active: &mut Active, error: &FileError) {
        let reason = error.reason().map(Reason::token);
        match error {
            FileError::NotFound(_) if !self.location(active.exchange.location).log_not_found => {}
            FileError::NotFound(text) | FileError::Forbidden(text) => {
                self.log_reason(active, Level::Error, text, reason);
            }
            FileError::Other(text) | FileError::Exhausted(text) => {
                self.log_reason(active, Level::Crit, text, reason);
            }
            FileError::Directory | FileError::Elsewhere(_) => {}
        }
    }

    /// Sends the head for an opened file and begins with its bytes.
    pub(crate) fn begin_file(&mut self, active: &mut Active, facts: &FileFacts) {
        let keep = self.may_persist(active);
        let about = kp_proxy::File {
            size: facts.length,
            modified_s: facts.modified_s,
        };
        let (reply, head_bytes) = self.write_client(active, |out, exchange, program, context| {
            kp_proxy::file_head(out, &about, exchange, program, context, keep)
        });
        let file = active.file.take();
        match reply {
            FileReply::Done(sent) => self.answered(active, sent),
            FileReply::Send {
                bytes,
                framing,
                keep,
            } => {
                active.response.out = framing;
                self.answered(active, Answered { keep, head_bytes });
                if let Some(file) = file.filter(|_| framing != Framing::None && !bytes.is_empty()) {
                    active.response.stage = ResponseStage::File(OpenFile {
                        file,
                        offset: bytes.start,
                        end: bytes.end,
                        reading: false,
                    });
                } else {
                    self.end_response(active);
                }
            }
        }
    }

    /// Asks for the next piece when the client took the last one.
    pub(crate) fn send_file(&mut self, active: &mut Active) -> Turn {
        let ResponseStage::File(open) = &mut active.response.stage else {
            return Turn::Nothing;
        };
        if open.reading || !active.to_client.is_empty() {
            return Turn::Nothing;
        }
        if open.offset >= open.end {
            active.response.stage = ResponseStage::Complete;
            self.end_response(active);
            return Turn::Moved;
        }
        open.reading = true;
        let length = usize::try_from(open.end - open.offset)
            .unwrap_or(READ_BYTES)
            .min(READ_BYTES);
        let job = Job::Read {
            file: open.file.clone(),
            offset: open.offset,
            length,
            buffer: Vec::new(),
        };
        self.jobs.submit(active.key, Purpose::Answer, job);
        Turn::Nothing
    }

    fn file_read(
        &mut self,
        active: &mut Active,
        result: std::io::Result<Vec<u8>>,
    ) -> Option<Input> {
        let ResponseStage::File(open) = &mut active.response.stage else {
            return None;
        };
        open.reading = false;
        match result {
            Ok(bytes) if !bytes.is_empty() => {
                open.offset += bytes.len() as u64;
                let chunk = kp_http::encode::chunk_head(bytes.len() as u64);
                if active.response.out == kp_http::Framing::Chunked {
                    self.push_client(active, &[chunk.as_bytes(), &bytes, b"\r\n"]);
                } else {
                    self.push_client(active, &[&bytes]);
                }
                None
            }
            Ok(_) => {
                self.log_exchange(
                    active,
                    Level::Alert,
                    "a file became shorter while it was sent",
                );
                Some(Input::UpstreamFailed(Failure::new(
                    Phase::SendResponse,
                    Cause::FileBroken,
                )))
            }
            Err(error) => {
                self.log_exchange(
                    active,
                    Level::Crit,
                    &format!("read() failed ({})", crate::jobs::errno_text(&error)),
                );
                Some(Input::UpstreamFailed(Failure::new(
                    Phase::SendResponse,
                    Cause::FileBroken,
                )))
            }
        }
    }
}
