//! Access logs, and error log lines about an exchange.
//!
//! A line without `buffer=` is in its file before the loop waits again, and before its client sees the end of its connection:
//! lines of one loop turn leave in one write, and connections that end are closed behind it.

use crate::active::Active;
use crate::error_log::{self, Entry};
use crate::log_file;
use crate::open_logs::OpenLogs;
use crate::pending::Pending;
use crate::reactor::Worker;
use crate::token::Key;
use kp_config::Config;
use kp_config::model::{AccessLogTarget, Level, LogFileCacheId, LogFileId};
use kp_config::template::{Builtin, Variable};
use kp_proxy::{ErrorFacts, Reason};
use kp_shm::Counter;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const ENOTDIR: i32 = 20;

/// All log files of a worker.
#[derive(Debug)]
pub(crate) struct Logs {
    pub(crate) fds: Vec<OwnedFd>,
    /// What waits for each of them.
    files: Vec<Pending>,
    stderr: Vec<u8>,
    /// Files with something to write.
    dirty: Vec<LogFileId>,
    /// Files of paths with variables, in the order of `Http::log_file_caches`.
    open: Vec<OpenLogs>,
    line: Vec<u8>,
}

impl Logs {
    pub(crate) fn new(fds: Vec<OwnedFd>, config: &Config) -> Self {
        let buffers = config.log_buffers.iter().copied();
        let caches = config.http.log_file_caches.iter().copied();
        Self {
            fds,
            files: buffers.map(Pending::new).collect(),
            stderr: Vec::new(),
            dirty: Vec::new(),
            open: caches.map(OpenLogs::new).collect(),
            line: Vec::new(),
        }
    }

    /// Whether lines wait to be written.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.dirty.is_empty() || !self.stderr.is_empty()
    }

    /// When the next buffered line must be written.
    pub(crate) fn flush_at_ms(&self) -> u64 {
        self.dirty
            .iter()
            .filter_map(|id| self.files.get(id.index()))
            .map(Pending::flush_at_ms)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Puts reopened files under the old numbers; lines written so far belong to the old files.
    pub(crate) fn reopened(&mut self, first: usize, fds: &[OwnedFd]) {
        error_log::reopened(first, fds);
        for (old, new) in self.fds.iter_mut().skip(first).zip(fds) {
            // A daemon's standard error is its error log.
            if kp_sys::process::is_stderr(old)
                && let Err(error) = kp_sys::process::replace_stderr(new)
            {
                log::error!(target: "alert", "standard error could not follow its log file: {error}");
            }
            if let Err(error) = kp_sys::process::replace_descriptor(old, new) {
                log::error!(target: "alert", "a log file could not be reopened: {error}");
            }
        }
        self.open.iter_mut().for_each(OpenLogs::clear);
    }
}

impl Worker {
    /// Writes the access log lines of a finished exchange.
    pub(crate) fn log_access(&mut self, active: &mut Active) {
        let location = self.location(active.exchange.location);
        for log in &location.access_logs {
            let mut line = std::mem::take(&mut self.logs.line);
            line.clear();
            let written = self.consult(active, |exchange, program, context| {
                kp_proxy::access_line(&mut line, log, exchange, program, context)
            });
            if !written {
                self.logs.line = line;
                continue;
            }
            self.counters.increment(Counter::LogLinesWritten);
            match &log.target {
                AccessLogTarget::File(id) => self.append_log(*id, &line),
                AccessLogTarget::Stderr => {
                    self.logs.stderr.extend_from_slice(&line);
                    self.logs.stderr.push(b'\n');
                }
                AccessLogTarget::Syslog { server, severity } => {
                    if !error_log::send(*server, *severity, &line) {
                        self.counters.increment(Counter::LogLinesDropped);
                    }
                }
                AccessLogTarget::Template(template) => {
                    let mut path = Vec::new();
                    self.evaluate(active, template, &mut path);
                    let path = self.prefix_path(PathBuf::from(OsString::from_vec(path)));
                    line.push(b'\n');
                    self.write_to_path(active, location.open_log_file_cache, &path, &line);
                }
            }
            self.logs.line = line;
        }
    }

    fn append_log(&mut self, id: LogFileId, line: &[u8]) {
        let Some(file) = self.logs.files.get_mut(id.index()) else {
            return;
        };
        if file.is_empty() {
            self.logs.dirty.push(id);
        } else if !file.has_room(line) {
            self.write_log(id);
        }
        if let Some(file) = self.logs.files.get_mut(id.index()) {
            file.push(line, self.clock.mono_ms);
        }
    }

    /// Writes what must not wait any longer; with `all`, everything.
    pub(crate) fn flush_logs(&mut self, all: bool) {
        if !self.logs.stderr.is_empty() {
            let written = write_whole(&std::io::stderr(), &self.logs.stderr);
            let rest = self.logs.stderr.get(written..).unwrap_or_default();
            let lost = memchr::memchr_iter(b'\n', rest).count() as u64;
            self.counters.add(Counter::LogLinesDropped, lost);
            self.logs.stderr.clear();
        }
        let now_ms = self.clock.mono_ms;
        let mut dirty = std::mem::take(&mut self.logs.dirty);
        dirty.retain(|id| {
            let file = self.logs.files.get(id.index());
            let waits = !all && file.is_some_and(|file| now_ms < file.flush_at_ms());
            if !waits {
                self.write_log(*id);
            }
            waits
        });
        dirty.append(&mut self.logs.dirty);
        self.logs.dirty = dirty;
    }

    /// Writes what waits for a file.
    fn write_log(&mut self, id: LogFileId) {
        let Some(fd) = self.logs.fds.get(id.index()) else {
            return;
        };
        let Some(file) = self.logs.files.get_mut(id.index()) else {
            return;
        };
        let lost = file.write_out(|bytes| write_whole(fd, bytes));
        if lost == 0 {
            return;
        }
        self.counters.add(Counter::LogLinesDropped, lost);
        if let Some(lost) = file.losses.count(lost, self.clock.mono_ms) {
            let path = self.config.log_files.get(id.index());
            let path = path.map_or(Path::new(""), PathBuf::as_path).display();
            log::error!(target: "alert", "write() to \"{path}\" failed, {lost} lines were dropped; more of them are counted, and told after a minute at the earliest");
        }
    }

    /// Writes a line to a log file whose path has variables. As in nginx there is none while the document root does not exist,
    /// so that a made-up name of a host makes no files.
    fn write_to_path(
        &mut self,
        active: &mut Active,
        cache: Option<LogFileCacheId>,
        path: &Path,
        line: &[u8],
    ) {
        if let Err(complaint) = self.root_exists(active) {
            self.log_exchange(active, Level::Error, &complaint);
            return;
        }
        let now_ms = self.clock.mono_ms;
        let write = |file: &File| write_whole(file, line) == line.len();
        let cache = cache.and_then(|id| self.logs.open.get_mut(id.index()));
        let written = match cache {
            Some(cache) => cache.with(path, now_ms, write),
            None => log_file::open(path).map(|file| write(&file)),
        };
        match written {
            Ok(true) => {}
            Ok(false) => self.counters.increment(Counter::LogLinesDropped),
            Err(error) => {
                self.counters.increment(Counter::LogLinesDropped);
                let (path, reason) = (path.display(), crate::jobs::errno_text(&error));
                let text = format!("open() \"{path}\" failed ({reason})");
                self.log_exchange(active, Level::Crit, &text);
            }
        }
    }

    fn root_exists(&self, active: &mut Active) -> Result<(), String> {
        let mut root = Vec::new();
        self.consult(active, |exchange, program, context| {
            let variable = Variable::Builtin(Builtin::DocumentRoot);
            kp_proxy::vars::variable(&variable, exchange, program, context, &mut root);
        });
        let root = PathBuf::from(OsString::from_vec(root));
        let problem = match root.metadata() {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => io::Error::from_raw_os_error(ENOTDIR),
            Err(error) => error,
        };
        Err(format!(
            "testing \"{}\" existence failed ({}) while logging request",
            root.display(),
            crate::jobs::errno_text(&problem)
        ))
    }

    /// Writes about an exchange to the error logs of its location, with nginx's context behind the text.
    pub(crate) fn log_exchange(&self, active: &mut Active, level: Level, text: &str) {
        self.log_reason(active, level, text, None);
    }

    /// The same with the reason, where it is known.
    pub(crate) fn log_reason(
        &self,
        active: &mut Active,
        level: Level,
        text: &str,
        reason: Option<&str>,
    ) {
        let location = self.location(active.exchange.location);
        if !error_log::wants(&location.error_log, level) {
            return;
        }
        let facts = self.consult(active, |exchange, _, context| {
            ErrorFacts::of_exchange(exchange, context)
        });
        let entry = Entry {
            level,
            connection: Some(active.exchange.connection.serial),
            text,
            facts: Some(&facts),
            reason,
        };
        error_log::write(&location.error_log, &self.logs.fds, &entry);
    }

    /// Writes about a client that has no routed exchange.
    pub(crate) fn log_client(&self, key: Key, level: Level, text: &str) {
        let Some(client) = self.clients.peek(key) else {
            return;
        };
        let front = self.fronts.at(client, &self.listeners);
        let targets = &self.location(front.root).error_log;
        if !error_log::wants(targets, level) {
            return;
        }
        let remote = client
            .remote
            .address()
            .map_or_else(|| "unix:".to_owned(), |remote| remote.ip().to_string());
        let facts = ErrorFacts::of_client(remote, &front.name);
        let entry = Entry {
            level,
            connection: Some(client.serial),
            text,
            facts: Some(&facts),
            reason: None,
        };
        error_log::write(targets, &self.logs.fds, &entry);
    }

    /// Puts what went wrong since the last step into the error log.
    pub(crate) fn report(&mut self, active: &mut Active) {
        if let Some(fault) = active.exchange.record.fault.take() {
            let text = kp_proxy::fault_text(&fault, self.config);
            let reason = active.exchange.record.reason;
            self.log_reason(active, Level::Error, &text, reason.map(Reason::token));
        }
        for (level, text) in std::mem::take(&mut active.exchange.record.notes) {
            self.log_exchange(active, level, &text);
        }
        if let Some(failure) = active.exchange.machine.reported.take() {
            if let Some(counter) = crate::tally::counter_of(&failure) {
                self.counters.increment(counter);
            }
            self.measure_failure(active, &failure);
            let detail = active.exchange.record.detail.take().unwrap_or_default();
            let targets = &self.location(active.exchange.location).error_log;
            if error_log::wants(targets, failure.level()) {
                let mut text = String::new();
                failure.write_text(&detail, &mut text);
                self.log_reason(active, failure.level(), &text, Some(failure.token()));
            }
        }
    }
}

/// Writes as much as is taken; gives how many bytes that were.
fn write_whole(fd: &impl AsFd, bytes: &[u8]) -> usize {
    let mut written = 0;
    while let Some(rest @ [_, ..]) = bytes.get(written..) {
        match kp_sys::io::write(fd, rest) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}
