//! Access logs, and error log lines about an exchange.
//!
//! A line without `buffer=` is in its file before the loop waits again, and before its client sees the end of its connection:
//! lines of one loop turn leave in one write, and connections that end are closed behind it. Where lines go through a pipe or a
//! terminal whose reader does not read, nobody waits for it.

use crate::active::Active;
use crate::error_log::{self, Entry};
use crate::line_outlet::{self, LineOutlet};
use crate::log_file;
use crate::open_logs::OpenLogs;
use crate::pending::Pending;
use crate::reactor::Worker;
use crate::token::Key;
use kp_config::Config;
use kp_config::model::{AccessLogTarget, Level, LogFileCacheId, LogFileId, ServerId};
use kp_config::template::{Builtin, Variable};
use kp_proxy::{ErrorFacts, Reason};
use kp_shm::Counter;
use kp_sys::outlet::Outlet;
use kp_sys::poll::{self, Interest};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long readers of pipes have at the end of a worker to take what is held for them; the master gives it a second in all.
const PATIENCE_MS: u64 = 500;
/// Why lines are lost for which there is no room.
const UNREAD: &str = "nobody reads";
const ENOTDIR: i32 = 20;

/// All log files of a worker.
#[derive(Debug)]
pub(crate) struct Logs {
    /// In the order of `Config::log_files`; behind them the standard error.
    outlets: Vec<LineOutlet<OwnedFd>>,
    /// What waits for each of them.
    files: Vec<Pending>,
    /// Files with something to write.
    dirty: Vec<LogFileId>,
    /// Files of paths with variables, in the order of `Http::log_file_caches`.
    open: Vec<OpenLogs>,
    line: Vec<u8>,
}

impl Logs {
    /// # Errors
    /// Those of dup(2).
    pub(crate) fn new(fds: Vec<OwnedFd>, config: &Config) -> io::Result<Self> {
        let buffers = config.log_buffers.iter().copied();
        let caches = config.http.log_file_caches.iter().copied();
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        let fds = fds.into_iter().chain([stderr]);
        Ok(Self {
            outlets: fds.map(LineOutlet::new).collect(),
            files: buffers.chain([None]).map(Pending::new).collect(),
            dirty: Vec::new(),
            open: caches.map(OpenLogs::new).collect(),
            line: Vec::new(),
        })
    }

    /// Whether lines wait to be written.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.dirty.is_empty()
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

    /// Puts reopened files, beginning with number `first`, in the place of the old ones; lines written so far belong to those.
    pub(crate) fn reopened(&mut self, first: usize, fds: Vec<OwnedFd>) {
        error_log::reopened(first, &fds);
        for (place, new) in (first..).zip(fds) {
            let Some(old) = self.outlets.get(place) else {
                break;
            };
            // A daemon's standard error is its error log.
            if kp_sys::process::is_stderr(old.outlet.file())
                && let Err(error) = self.replace_stderr(&new)
            {
                log::error!(target: "alert", "standard error could not follow its log file: {error}");
            }
            if let Some(old) = self.outlets.get_mut(place) {
                *old = LineOutlet::new(new);
            }
        }
        self.open.iter_mut().for_each(OpenLogs::clear);
    }

    fn replace_stderr(&mut self, new: &OwnedFd) -> io::Result<()> {
        kp_sys::process::replace_stderr(new)?;
        if let Some(stderr) = self.outlets.last_mut() {
            *stderr = LineOutlet::new(new.try_clone()?);
        }
        Ok(())
    }

    /// The number of the standard error.
    fn stderr(&self) -> LogFileId {
        LogFileId(self.outlets.len().saturating_sub(1) as u32)
    }

    /// The files whose reader has no room.
    fn held_up(&self) -> impl Iterator<Item = (LogFileId, &OwnedFd)> {
        let files = self.dirty.iter().filter(|id| {
            let file = self.files.get(id.index());
            file.is_some_and(Pending::is_held_up)
        });
        files.filter_map(|id| {
            let out = self.outlets.get(id.index())?;
            Some((*id, out.outlet.file()))
        })
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
                AccessLogTarget::Stderr => self.append_log(self.logs.stderr(), &line),
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
        let Some(file) = self.logs.files.get_mut(id.index()) else {
            return;
        };
        if file.is_held_up() && !file.has_room(line) {
            self.lost_lines(id, 1, UNREAD);
        } else {
            file.push(line, self.clock.mono_ms);
        }
    }

    /// Writes what must not wait any longer; with `all`, everything.
    pub(crate) fn flush_logs(&mut self, all: bool) {
        let now_ms = self.clock.mono_ms;
        let mut dirty = std::mem::take(&mut self.logs.dirty);
        dirty.retain(|id| {
            let file = self.logs.files.get(id.index());
            let waits = !all && file.is_some_and(|file| now_ms < file.flush_at_ms());
            if !waits {
                self.write_log(*id);
            }
            let file = self.logs.files.get(id.index());
            file.is_some_and(|file| !file.is_empty())
        });
        dirty.append(&mut self.logs.dirty);
        self.logs.dirty = dirty;
        let lost = error_log::take_lost();
        if lost > 0 {
            self.counters.add(Counter::LogLinesDropped, lost);
        }
    }

    /// Writes everything, at the end of the worker: readers without room have a short time.
    pub(crate) fn finish_logs(&mut self) {
        self.flush_logs(true);
        let until_ms = kp_sys::clock::monotonic_ms() + PATIENCE_MS;
        loop {
            let left_ms = until_ms.saturating_sub(kp_sys::clock::monotonic_ms());
            let readers = self.logs.held_up();
            let readers: Vec<_> = readers
                .map(|(_, fd)| (fd.as_fd(), Interest::Write))
                .collect();
            if readers.is_empty() || left_ms == 0 {
                break;
            }
            if poll::wait(readers, Some(Duration::from_millis(left_ms))).is_err() {
                break;
            }
            self.flush_logs(true);
        }
        let given_up: Vec<_> = self.logs.held_up().map(|(id, _)| id).collect();
        for id in given_up {
            let lost = self.logs.files.get_mut(id.index()).map(Pending::give_up);
            self.lost_lines(id, lost.unwrap_or(0), UNREAD);
        }
    }

    /// Writes what waits for a file.
    fn write_log(&mut self, id: LogFileId) {
        let Some(outlet) = self.logs.outlets.get_mut(id.index()) else {
            return;
        };
        let Some(file) = self.logs.files.get_mut(id.index()) else {
            return;
        };
        let now_ms = self.clock.mono_ms;
        let lost = match file.is_compressed() {
            true => file.write_out(now_ms, |member| line_outlet::write(&outlet.outlet, member)),
            false => file.write_out(now_ms, |text| outlet.write(text)),
        };
        if lost > 0 {
            self.lost_lines(id, lost, "write() failed for");
        }
    }

    /// Counts lines that a file did not take, and tells of them.
    fn lost_lines(&mut self, id: LogFileId, lines: u64, why: &str) {
        self.counters.add(Counter::LogLinesDropped, lines);
        let Some(file) = self.logs.files.get_mut(id.index()) else {
            return;
        };
        if let Some(lost) = file.losses.count(lines, self.clock.mono_ms) {
            let path = self.config.log_files.get(id.index());
            let path = path.map_or(Path::new("stderr"), PathBuf::as_path).display();
            log::error!(target: "alert", "{why} \"{path}\", {lost} lines were dropped; more of them are counted, and told after a minute at the earliest");
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
        let write = |file: &File| line_outlet::write(&Outlet::new(file), line).bytes == line.len();
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
                let text = format!("open() \"{path}\" failed ({reason}) while logging request");
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
        error_log::write(&location.error_log, &entry);
    }

    /// Writes about a client that has no routed exchange.
    pub(crate) fn log_client(&self, key: Key, level: Level, text: &str, reason: Option<Reason>) {
        let Some(client) = self.clients.peek(key) else {
            return;
        };
        let front = self.fronts.at(client, &self.listeners);
        let targets = &self.location(front.root).error_log;
        if !error_log::wants(targets, level) {
            return;
        }
        let facts = ErrorFacts::of_client(client.remote.address(), &front.name);
        let facts = match reason {
            Some(reason) => facts.because(reason),
            None => facts,
        };
        let entry = Entry {
            level,
            connection: Some(client.serial),
            text,
            facts: Some(&facts),
            reason: None,
        };
        error_log::write(targets, &entry);
    }

    /// Writes about somebody whose connection is not kept.
    pub(crate) fn log_stranger(
        &self,
        server: ServerId,
        remote: Option<SocketAddr>,
        reason: Reason,
        text: &str,
    ) {
        let front = self.fronts.of(server);
        let targets = &self.location(front.root).error_log;
        if !error_log::wants(targets, Level::Info) {
            return;
        }
        let facts = ErrorFacts::of_client(remote, &front.name).because(reason);
        let entry = Entry {
            level: Level::Info,
            connection: None,
            text,
            facts: Some(&facts),
            reason: None,
        };
        error_log::write(targets, &entry);
    }

    /// Puts what went wrong since the last step into the error log.
    pub(crate) fn report(&mut self, active: &mut Active) {
        if let Some(fault) = active.exchange.record.fault.take() {
            let text = kp_proxy::fault_text(&fault, self.config);
            let reason = active.exchange.record.reason;
            self.log_reason(active, Level::Error, &text, reason.map(Reason::token));
        }
        // Almost always there is nothing, and to find that out is to cost nothing.
        if !active.exchange.record.notes.is_empty() {
            for (level, text) in std::mem::take(&mut active.exchange.record.notes) {
                self.log_exchange(active, level, &text);
            }
        }
        if !active.exchange.machine.reported.is_empty() {
            self.report_failures(active);
        }
    }

    fn report_failures(&mut self, active: &mut Active) {
        for (failure, detail) in std::mem::take(&mut active.exchange.machine.reported) {
            if let Some(counter) = crate::tally::counter_of(&failure) {
                self.counters.increment(counter);
            }
            self.measure_failure(active, &failure);
            let targets = &self.location(active.exchange.location).error_log;
            if error_log::wants(targets, failure.level()) {
                let mut text = String::new();
                failure.write_text(detail.as_deref().unwrap_or_default(), &mut text);
                self.log_reason(active, failure.level(), &text, Some(failure.token()));
            }
        }
    }
}
