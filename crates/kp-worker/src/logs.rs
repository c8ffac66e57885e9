//! Access logs, and error log lines about an exchange.
//!
//! A line without `buffer=` is in its file before the loop waits again, and before its client sees the end of its connection:
//! lines of one loop turn leave in one write, and connections that end are closed behind it.

use crate::active::Active;
use crate::error_log;
use crate::log_file;
use crate::reactor::Worker;
use crate::token::Key;
use kp_config::model::{AccessLog, AccessLogTarget, Level, LogFileId};
use kp_shm::Counter;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// Lines of one turn above which they are written although the turn goes on.
const TURN_BYTES_MAX: usize = 64 * 1024;
/// A full disk is reported once a minute, not once a line.
const ALERT_EVERY_MS: u64 = 60_000;
/// Files of paths with variables that are kept open.
const OPEN_FILES_MAX: usize = 64;

/// One log file.
#[derive(Debug)]
struct LogFile {
    pending: Vec<u8>,
    /// Bytes that may wait for company.
    buffer_bytes: usize,
    /// When waiting ends.
    flush_at_ms: u64,
    alerted_ms: u64,
    /// Lines that were dropped since the last alert.
    unreported: u64,
}

impl LogFile {
    /// Counts lines that were dropped. At most once a minute they are to be told of: all since the last time.
    fn dropped(&mut self, lines: u64, now_ms: u64) -> Option<u64> {
        self.unreported += lines;
        if now_ms < self.alerted_ms {
            return None;
        }
        self.alerted_ms = now_ms + ALERT_EVERY_MS;
        Some(std::mem::take(&mut self.unreported))
    }
}

/// All log files of a worker.
#[derive(Debug)]
pub(crate) struct Logs {
    pub(crate) fds: Vec<OwnedFd>,
    files: Vec<LogFile>,
    stderr: Vec<u8>,
    /// Files with something to write.
    dirty: Vec<LogFileId>,
    /// Files of paths with variables, most recently used last.
    open: Vec<(PathBuf, File)>,
    line: Vec<u8>,
}

impl Logs {
    pub(crate) fn new(fds: Vec<OwnedFd>) -> Self {
        let files = fds
            .iter()
            .map(|_| LogFile {
                pending: Vec::new(),
                buffer_bytes: 0,
                flush_at_ms: u64::MAX,
                alerted_ms: 0,
                unreported: 0,
            })
            .collect();
        Self {
            fds,
            files,
            stderr: Vec::new(),
            dirty: Vec::new(),
            open: Vec::new(),
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
            .map(|file| file.flush_at_ms)
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
        self.open.clear();
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
                AccessLogTarget::File(id) => self.append_log(*id, log, &line),
                AccessLogTarget::Stderr => self.logs.stderr.extend_from_slice(&line),
                AccessLogTarget::Template(template) => {
                    let mut path = Vec::new();
                    self.evaluate(active, template, &mut path);
                    self.write_to_path(path, &line);
                }
            }
            self.logs.line = line;
        }
    }

    fn append_log(&mut self, id: LogFileId, log: &AccessLog, line: &[u8]) {
        let now_ms = self.clock.mono_ms;
        let Some(file) = self.logs.files.get_mut(id.index()) else {
            return;
        };
        if file.pending.is_empty() {
            file.buffer_bytes = log.buffer.unwrap_or(0);
            let wait_ms = log
                .flush
                .map_or(if log.buffer.is_some() { u64::MAX } else { 0 }, |flush| {
                    flush.as_millis() as u64
                });
            file.flush_at_ms = now_ms.saturating_add(wait_ms);
            self.logs.dirty.push(id);
        }
        file.pending.extend_from_slice(line);
        if file.pending.len() >= file.buffer_bytes.max(TURN_BYTES_MAX) {
            self.flush_logs(true);
        }
    }

    /// Writes what must not wait any longer; with `all`, everything.
    pub(crate) fn flush_logs(&mut self, all: bool) {
        let now_ms = self.clock.mono_ms;
        if !self.logs.stderr.is_empty() {
            let _ = kp_sys::io::write(&std::io::stderr(), &self.logs.stderr);
            self.logs.stderr.clear();
        }
        let mut dirty = std::mem::take(&mut self.logs.dirty);
        dirty.retain(|id| {
            let (Some(fd), Some(file)) = (self.logs.fds.get(id.index()), self.logs.files.get_mut(id.index())) else { return false };
            let full = file.pending.len() >= file.buffer_bytes;
            if !all && !full && now_ms < file.flush_at_ms {
                return true;
            }
            let lost = write_lines(fd, &file.pending);
            if lost > 0 {
                self.counters.add(Counter::LogLinesDropped, lost);
                if let Some(lost) = file.dropped(lost, now_ms) {
                    let path = self.config.log_files.get(id.index()).map(|path| path.display().to_string()).unwrap_or_default();
                    log::error!(target: "alert", "write() to \"{path}\" failed, {lost} lines were dropped; more of them are counted, and told after a minute at the earliest");
                }
            }
            file.pending.clear();
            false
        });
        dirty.append(&mut self.logs.dirty);
        self.logs.dirty = dirty;
    }

    /// A log file whose path has variables: opened when needed, a few are kept open.
    fn write_to_path(&mut self, path: Vec<u8>, line: &[u8]) {
        use std::os::unix::ffi::OsStringExt;
        let path = self.prefix_path(PathBuf::from(std::ffi::OsString::from_vec(path)));
        let at = self.logs.open.iter().position(|(known, _)| *known == path);
        let entry = match at {
            Some(at) => self.logs.open.remove(at),
            None => match log_file::open(&path) {
                Ok(file) => (path, file),
                Err(error) => {
                    self.counters.increment(Counter::LogLinesDropped);
                    log::error!(target: "crit", "open() \"{}\" failed ({})", path.display(), crate::jobs::errno_text(&error));
                    return;
                }
            },
        };
        if write_lines(&entry.1, line) > 0 {
            self.counters.increment(Counter::LogLinesDropped);
        }
        if self.logs.open.len() >= OPEN_FILES_MAX {
            self.logs.open.remove(0);
        }
        self.logs.open.push(entry);
    }

    /// Writes about an exchange to the error logs of its location, with nginx's context behind the text.
    pub(crate) fn log_exchange(&self, active: &mut Active, level: Level, text: &str) {
        let location = self.location(active.exchange.location);
        if !error_log::wants(&location.error_log, level) {
            return;
        }
        let mut line = text.to_owned();
        self.consult(active, |exchange, _, context| {
            kp_proxy::error_context(&mut line, exchange, context);
        });
        error_log::write(
            &location.error_log,
            &self.logs.fds,
            level,
            Some(active.exchange.connection.serial),
            &line,
        );
    }

    /// Writes about a client that has no routed exchange.
    pub(crate) fn log_client(&self, key: Key, level: Level, text: &str) {
        let Some(client) = self.clients.peek(key) else {
            return;
        };
        let front = self.fronts.at(client, &self.listeners);
        let targets = &self.location(front.root).error_log;
        if error_log::wants(targets, level) {
            let remote = client
                .remote
                .address()
                .map_or_else(|| "unix:".to_owned(), |remote| remote.ip().to_string());
            let text = format!("{text}, client: {remote}, server: {}", front.name);
            error_log::write(targets, &self.logs.fds, level, Some(client.serial), &text);
        }
    }

    /// Puts what went wrong since the last step into the error log.
    pub(crate) fn report(&mut self, active: &mut Active) {
        if let Some(fault) = active.exchange.record.fault.take() {
            let text = kp_proxy::fault_text(&fault, self.config);
            self.log_exchange(active, Level::Error, &text);
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
                self.log_exchange(active, failure.level(), &text);
            }
        }
    }
}

/// Writes whole lines; returns how many were lost.
fn write_lines(fd: &impl AsFd, lines: &[u8]) -> u64 {
    let mut rest = lines;
    while !rest.is_empty() {
        match kp_sys::io::write(fd, rest) {
            Ok(0) => break,
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    memchr::memchr_iter(b'\n', rest).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dropped_line_is_told_of_once_and_at_most_one_alert_a_minute() {
        let mut file = LogFile {
            pending: Vec::new(),
            buffer_bytes: 0,
            flush_at_ms: u64::MAX,
            alerted_ms: 0,
            unreported: 0,
        };
        assert_eq!(file.dropped(1, 5), Some(1));
        for now_ms in 6..1006 {
            assert_eq!(file.dropped(2, now_ms), None);
        }
        assert_eq!(file.dropped(3, 5 + ALERT_EVERY_MS), Some(2003));
        assert_eq!(file.dropped(1, 6 + ALERT_EVERY_MS), None);
    }
}
