//! The master's side of the control socket: takes connections, reads a request from each, keeps it until the master has an
//! answer, writes that, closes.
//!
//! Nothing here waits. An asker who sends nothing, or does not read, is dropped after a while; one who goes away is
//! forgotten, whatever was asked is done nevertheless. What a request means is the master's affair.

use super::{Answer, LINE_MAX_BYTES, Line, Request, path_of};
use crate::pidfile::beside;
use crate::report;
use kp_sys::poll::{self, Interest};
use kp_sys::socket::{self, ListenSettings, ShortPath};
use kp_sys::{io as bytes, process};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// So many may ask at once; further ones wait in the kernel's queue.
const ASKERS_MAX: usize = 64;
/// A request must be whole, and an answer taken, within this.
const PATIENCE_MS: u64 = 5_000;
/// A command is read in pieces of this, so that memory follows what has come.
const PIECE_BYTES: usize = 64 * 1024;
/// After accept() has failed (no descriptors are left) nobody is taken for this long.
const PAUSE_MS: u64 = 500;

/// Somebody who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AskerId(u64);

#[cfg(test)]
impl AskerId {
    /// For tests of those who keep askers.
    pub(crate) fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// The socket and everybody connected to it.
#[derive(Debug, Default)]
pub(crate) struct ControlSocket {
    bound: Option<Bound>,
    askers: Vec<Asker>,
    last_id: u64,
    /// Nobody is taken before.
    paused_until_ms: Option<u64>,
}

#[derive(Debug)]
struct Bound {
    path: PathBuf,
    /// Device and inode of the path: it is removed only while it is still ours.
    inode: (u64, u64),
    listener: OwnedFd,
}

#[derive(Debug)]
struct Asker {
    id: AskerId,
    connection: OwnedFd,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Its request is not whole. `command_bytes`: its line has said so, and `came` is of what follows.
    Asking {
        came: Vec<u8>,
        command_bytes: Option<usize>,
        deadline_ms: u64,
    },
    /// The master has the request.
    Waiting,
    /// The answer is on its way.
    Answering {
        answer: Vec<u8>,
        sent_bytes: usize,
        deadline_ms: u64,
    },
    /// Nothing is left to do.
    Over,
}

impl ControlSocket {
    /// Listens beside this pid file, and no longer where it did before; whoever is connected stays. On failure everything
    /// is as it was.
    pub(crate) fn follow(&mut self, pid_file: &Path, now_ms: u64) -> Result<(), String> {
        let path = path_of(pid_file);
        let bound = Bound::at(&path).map_err(|error| report::failed("bind()", &path, &error))?;
        if let Some(old) = self.bound.replace(bound) {
            // Whoever found the old path in time is served.
            old.remove();
            self.accept_from(&old.listener, now_ms);
        }
        Ok(())
    }

    /// Whether it can still be found beside this pid file.
    pub(crate) fn is_beside(&self, pid_file: &Path) -> bool {
        let path = path_of(pid_file);
        self.bound
            .as_ref()
            .is_some_and(|bound| bound.path == path && bound.is_there())
    }

    /// What to poll.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Interest)> {
        let room = self.askers.len() < ASKERS_MAX && self.paused_until_ms.is_none();
        let listener = self.bound.iter().filter(move |_| room);
        let askers = self.askers.iter().map(|asker| {
            let interest = match asker.phase {
                Phase::Asking { .. } => Interest::Read,
                Phase::Answering { .. } => Interest::Write,
                Phase::Waiting | Phase::Over => Interest::End,
            };
            (asker.connection.as_fd(), interest)
        });
        listener
            .map(|bound| (bound.listener.as_fd(), Interest::Read))
            .chain(askers)
    }

    /// When [`ControlSocket::hear`] has something to do though nothing came.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let deadlines = self.askers.iter().filter_map(|asker| match asker.phase {
            Phase::Asking { deadline_ms, .. } | Phase::Answering { deadline_ms, .. } => {
                Some(deadline_ms)
            }
            Phase::Waiting | Phase::Over => None,
        });
        deadlines.chain(self.paused_until_ms).min()
    }

    /// Moves everybody on as far as can be done now; returns what was asked. Each is to be answered with
    /// [`ControlSocket::answer`], now or later.
    pub(crate) fn hear(&mut self, now_ms: u64) -> Vec<(AskerId, Request)> {
        if self.paused_until_ms.is_some_and(|until| until <= now_ms) {
            self.paused_until_ms = None;
        }
        if let Some(bound) = self.bound.take() {
            self.accept_from(&bound.listener, now_ms);
            self.bound = Some(bound);
        }
        let mut requests = Vec::new();
        for asker in &mut self.askers {
            if let Some(request) = asker.hear(now_ms) {
                requests.push((asker.id, request));
            }
            asker.send();
            asker.expire(now_ms);
        }
        self.sweep();
        requests
    }

    /// Answers. Somebody who went away is not missed.
    pub(crate) fn answer(&mut self, id: AskerId, answer: &Answer, now_ms: u64) {
        if let Some(asker) = self.askers.iter_mut().find(|asker| asker.id == id) {
            asker.say(answer, now_ms);
            asker.send();
        }
        self.sweep();
    }

    /// Removes the path: nobody new can ask.
    pub(crate) fn close(&mut self) {
        if let Some(bound) = self.bound.take() {
            bound.remove();
        }
    }

    fn accept_from(&mut self, listener: &OwnedFd, now_ms: u64) {
        while self.askers.len() < ASKERS_MAX && self.paused_until_ms.is_none() {
            let connection = match socket::accept(listener) {
                Ok((connection, _)) => connection,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    log::error!(target: "alert", "accept() on the control socket failed ({})", report::numbered(&error));
                    self.paused_until_ms = Some(now_ms + PAUSE_MS);
                    return;
                }
            };
            self.last_id += 1;
            let mut asker = Asker {
                id: AskerId(self.last_id),
                connection,
                phase: Phase::Asking {
                    came: Vec::new(),
                    command_bytes: None,
                    deadline_ms: now_ms + PATIENCE_MS,
                },
            };
            if !asker.may_ask() {
                let refusal = "only root and the user of the master process may ask\n";
                asker.say(&Answer::Failed(refusal.into()), now_ms);
                asker.send();
            }
            self.askers.push(asker);
        }
    }

    fn sweep(&mut self) {
        self.askers
            .retain(|asker| !matches!(asker.phase, Phase::Over));
    }
}

impl Bound {
    fn at(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            // What a dead master left, or a file that is not ours to replace.
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::other("a file that is no socket is in the way"));
            }
            _ => {}
        }
        let temporary = beside(path, &format!("new.{}", process::id()));
        let _ = fs::remove_file(&temporary);
        let made = Self::listen(&temporary).and_then(|listener| {
            fs::rename(&temporary, path)?;
            let found = fs::symlink_metadata(path)?;
            Ok(Self {
                path: path.to_owned(),
                inode: (found.dev(), found.ino()),
                listener,
            })
        });
        if made.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        made
    }

    /// Nobody can connect before it listens, so there is no time in which the mode is wrong.
    fn listen(path: &Path) -> io::Result<OwnedFd> {
        let short = ShortPath::of(path)?;
        let listener = socket::bind_unix(short.path(), &ListenSettings::default())?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        socket::listen(&listener, ASKERS_MAX as u32)?;
        Ok(listener)
    }

    fn is_there(&self) -> bool {
        let found = fs::symlink_metadata(&self.path).map(|found| (found.dev(), found.ino()));
        found.is_ok_and(|found| found == self.inode)
    }

    fn remove(&self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Asker {
    fn may_ask(&self) -> bool {
        socket::peer_uid(&self.connection)
            .is_ok_and(|uid| uid == 0 || uid == process::effective_uid())
    }

    /// A request that has become whole.
    fn hear(&mut self, now_ms: u64) -> Option<Request> {
        match &mut self.phase {
            Phase::Asking {
                came,
                command_bytes,
                ..
            } => match read_request(&self.connection, came, command_bytes)? {
                Ok(request) => {
                    self.phase = Phase::Waiting;
                    return Some(request);
                }
                Err(complaint) => self.say(&Answer::Failed(complaint + "\n"), now_ms),
            },
            Phase::Waiting => {
                let source = [(self.connection.as_fd(), Interest::End)];
                let gone = poll::wait(source, Some(Duration::ZERO));
                if gone.is_ok_and(|gone| gone.contains(&true)) {
                    self.phase = Phase::Over;
                }
            }
            Phase::Answering { .. } | Phase::Over => {}
        }
        None
    }

    fn say(&mut self, answer: &Answer, now_ms: u64) {
        self.phase = Phase::Answering {
            answer: answer.encode(),
            sent_bytes: 0,
            deadline_ms: now_ms + PATIENCE_MS,
        };
    }

    fn send(&mut self) {
        let Phase::Answering {
            answer, sent_bytes, ..
        } = &mut self.phase
        else {
            return;
        };
        while let Some(rest) = answer.get(*sent_bytes..).filter(|rest| !rest.is_empty()) {
            match bytes::send(&self.connection, rest) {
                Ok(count) => *sent_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.phase = Phase::Over;
    }

    fn expire(&mut self, now_ms: u64) {
        match self.phase {
            Phase::Asking { deadline_ms, .. } if deadline_ms <= now_ms => {
                let complaint = format!("no request came in {} s\n", PATIENCE_MS / 1000);
                self.say(&Answer::Failed(complaint), now_ms);
                self.send();
            }
            Phase::Answering { deadline_ms, .. } if deadline_ms <= now_ms => {
                self.phase = Phase::Over;
            }
            _ => {}
        }
    }
}

/// Reads until the request is whole; `None`: more is to come.
fn read_request(
    connection: &OwnedFd,
    came: &mut Vec<u8>,
    command_bytes: &mut Option<usize>,
) -> Option<Result<Request, String>> {
    loop {
        let room = match *command_bytes {
            Some(length) if came.len() >= length => {
                came.truncate(length);
                return Some(Ok(Request::Ctl(std::mem::take(came))));
            }
            Some(length) => (length - came.len()).min(PIECE_BYTES),
            None => match cut_line(came) {
                Ok(Some(Line::Whole(request))) => return Some(Ok(request)),
                Ok(Some(Line::Ctl(length))) => {
                    *command_bytes = Some(length);
                    continue;
                }
                Ok(None) => LINE_MAX_BYTES - came.len(),
                Err(complaint) => return Some(Err(complaint)),
            },
        };
        match bytes::recv_into(connection, came, room) {
            Ok(0) if command_bytes.is_some() => {
                return Some(Err("the command is not whole".into()));
            }
            Ok(0) => return Some(Err("the request has no end of line".into())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Some(Err(report::numbered(&error))),
        }
    }
}

/// Takes the first line out of what came; `None`: it is not whole.
fn cut_line(came: &mut Vec<u8>) -> Result<Option<Line>, String> {
    match came.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let line: Vec<u8> = came.drain(..=end).take(end).collect();
            Line::parse(&line).map(Some)
        }
        None if came.len() >= LINE_MAX_BYTES => {
            Err(format!("a request has at most {LINE_MAX_BYTES} bytes"))
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
