//! The one door for work that may block or takes long: opening, reading and writing files, and pages about kp.
//!
//! Two threads, started when the first job comes, so that a worker that only proxies stays single-threaded. They touch
//! nothing of the worker: a job owns what it needs and comes back whole through a channel, with a wake-up for the loop.

use crate::pages::{Long, View};
use crate::pairs::Loaded;
use crate::token::Key;
use kp_proxy::Rendered;
use kp_proxy::io::{FileError, FileFacts, FileQuery};
use kp_tls::{Pair, PairName};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Threads per worker: one slow disk read must not hold up another file.
const THREADS: usize = 2;

/// What a file operation is for; where not said otherwise, the key names an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A static answer.
    Answer,
    /// The collected request body.
    Body,
    /// The response, kept for a slow client.
    Spool,
    /// Certificates for a client in its handshake, which the key names.
    ClientPairs,
    /// A certificate for an upstream in its handshake, which the key names.
    UpstreamPair,
}

/// Something to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Open a file for a static answer, or try it once more.
    Open { query: FileQuery, again: bool },
    /// Read `length` bytes at `offset` into `buffer`.
    Read {
        file: Arc<File>,
        offset: u64,
        length: usize,
        buffer: Vec<u8>,
    },
    /// Make a temporary file in a directory; without `keep` it has no name any more.
    Create {
        directory: PathBuf,
        name: String,
        keep: bool,
    },
    /// Write `data` at `offset`.
    Write {
        file: Arc<File>,
        offset: u64,
        data: Vec<u8>,
    },
    /// Make a page about kp.
    Page { page: Long, view: Box<View> },
    /// Read certificates and their keys.
    Pairs {
        names: Vec<PairName>,
        passwords: Vec<Vec<u8>>,
    },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Done {
    /// An opened file, or why not.
    Opened(Result<(File, FileFacts), FileError>),
    /// There was no descriptor for it, or no memory, the first time.
    Unopened(FileQuery),
    /// The bytes that were read; fewer than asked for only at the end of the file.
    Read(io::Result<Vec<u8>>),
    /// A temporary file and its path.
    Created(io::Result<(File, PathBuf)>),
    /// The buffer that was written, for reuse.
    Written(io::Result<Vec<u8>>),
    /// The page.
    Page(Rendered),
    /// The certificates, each under its name, or why not.
    Pairs(Loaded),
}

type Task = (Key, Purpose, Job);
type Outcome = (Key, Purpose, Done);

/// The threads and their channels.
#[derive(Debug)]
pub(crate) struct Jobs {
    waker: Arc<mio::Waker>,
    /// The directories for temporary files were this user's when the worker began. If one is not any more, a reload has
    /// given it to another user, and what this worker must still finish goes to memory.
    ours: bool,
    queues: Vec<Sender<Task>>,
    next: usize,
    results: Receiver<Outcome>,
    sender: Sender<Outcome>,
}

impl Jobs {
    pub(crate) fn new(waker: Arc<mio::Waker>, temporary: &[PathBuf]) -> Self {
        let (sender, results) = channel();
        let user = kp_sys::process::effective_uid();
        let is_ours = |path: &PathBuf| path.metadata().is_ok_and(|found| found.uid() == user);
        Self {
            waker,
            ours: temporary.iter().all(is_ours),
            queues: Vec::new(),
            next: 0,
            results,
            sender,
        }
    }

    /// Hands a job to a thread; its result comes back under `key`.
    pub(crate) fn submit(&mut self, key: Key, purpose: Purpose, job: Job) {
        while self.queues.len() < THREADS {
            let (queue, tasks) = channel();
            let (results, waker) = (self.sender.clone(), self.waker.clone());
            let ours = self.ours;
            self.queues.push(queue);
            #[allow(clippy::disallowed_methods)]
            // The one place that starts threads; nothing is forked after it.
            std::thread::spawn(move || work(&tasks, &results, &waker, ours));
        }
        self.next = (self.next + 1) % THREADS;
        if let Some(queue) = self.queues.get(self.next) {
            // A thread ends only with its queue, so sending cannot fail.
            let _ = queue.send((key, purpose, job));
        }
    }

    /// The next result that is there.
    pub(crate) fn finished(&mut self) -> Option<Outcome> {
        self.results.try_recv().ok()
    }
}

fn work(tasks: &Receiver<Task>, results: &Sender<Outcome>, waker: &mio::Waker, ours: bool) {
    while let Ok((key, purpose, job)) = tasks.recv() {
        let done = match job {
            Job::Open { query, again } => match open(&query) {
                Err(FileError::Exhausted(_)) if !again => Done::Unopened(query),
                found => Done::Opened(found),
            },
            Job::Read {
                file,
                offset,
                length,
                buffer,
            } => Done::Read(read(&file, offset, length, buffer)),
            Job::Create {
                directory,
                name,
                keep,
            } => Done::Created(match create(&directory, &name, keep) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied && ours && !keep => {
                    kp_sys::io::memory_file().map(|file| (file, directory.join(name)))
                }
                created => created,
            }),
            Job::Write { file, offset, data } => {
                Done::Written(file.write_all_at(&data, offset).map(|()| data))
            }
            Job::Page { page, view } => Done::Page(page.render(&view)),
            Job::Pairs { names, passwords } => Done::Pairs(
                names
                    .into_iter()
                    .map(|name| load(name, &passwords))
                    .collect(),
            ),
        };
        if results.send((key, purpose, done)).is_err() || waker.wake().is_err() {
            return;
        }
    }
}

fn load(name: PairName, passwords: &[Vec<u8>]) -> (PairName, Result<Pair, String>) {
    let pair = name.load(passwords, &mut crate::read_certificate);
    (name, pair)
}

fn open(query: &FileQuery) -> Result<(File, FileFacts), FileError> {
    let path = bytes_path(&query.path);
    if query.index.is_empty() {
        return open_one(path, None);
    }
    for name in &query.index {
        if name.first() == Some(&b'/') {
            return Err(FileError::Elsewhere(name.clone()));
        }
        match open_one(&path.join(bytes_path(name)), Some(name)) {
            Err(FileError::NotFound(_) | FileError::Directory) => {}
            found => return found,
        }
    }
    if path.is_dir() {
        return Err(FileError::Forbidden(format!(
            "directory index of \"{}\" is forbidden",
            path.display()
        )));
    }
    Err(FileError::NotFound(format!(
        "\"{}\" is not found (2: No such file or directory)",
        path.display()
    )))
}

fn open_one(path: &Path, index: Option<&Vec<u8>>) -> Result<(File, FileFacts), FileError> {
    // A FIFO must not hold the thread until somebody writes to it.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(NONBLOCK)
        .open(path)
        .map_err(|error| file_error(path, &error))?;
    let metadata = file.metadata().map_err(|error| file_error(path, &error))?;
    if metadata.is_dir() {
        return Err(FileError::Directory);
    }
    if !metadata.is_file() {
        return Err(FileError::NotFound(format!(
            "\"{}\" is not a regular file",
            path.display()
        )));
    }
    let facts = FileFacts {
        length: metadata.len(),
        modified_s: u64::try_from(metadata.mtime()).unwrap_or(0),
        index: index.cloned(),
    };
    Ok((file, facts))
}

/// O_NONBLOCK of Linux.
const NONBLOCK: i32 = 0o4000;

/// Too many links on the way, of Linux.
const ELOOP: i32 = 40;
const EMLINK: i32 = 31;

fn file_error(path: &Path, error: &io::Error) -> FileError {
    let text = format!(
        "open() \"{}\" failed ({})",
        path.display(),
        errno_text(error)
    );
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename => {
            FileError::NotFound(text)
        }
        ErrorKind::PermissionDenied => FileError::Forbidden(text),
        _ if matches!(error.raw_os_error(), Some(ELOOP | EMLINK)) => FileError::Forbidden(text),
        _ if crate::exhaustion::is_any(error) => FileError::Exhausted(text),
        _ => FileError::Other(text),
    }
}

/// `2: No such file or directory`, as nginx writes it.
pub(crate) fn errno_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("{}: {text}", error.raw_os_error().unwrap_or(0))
}

fn bytes_path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn read(file: &File, offset: u64, length: usize, mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    buffer.resize(length, 0);
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

fn create(directory: &Path, name: &str, keep: bool) -> io::Result<(File, PathBuf)> {
    let path = directory.join(name);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    if !keep {
        std::fs::remove_file(&path)?;
    }
    Ok((file, path))
}
