//! The error log: kp's backend of the `log` facade, and nginx's line format.
//!
//! `2026/11/29 22:49:12 [error] 4711#4711: *17 text`. nginx has more levels than `log`; the additional ones travel as the
//! target: `log::info!(target: "notice", …)`, `log::error!(target: "alert", …)`.
//!
//! Each process has its own descriptors; after a reopening the master sends the new ones to its workers.

use crate::clock;
use crate::syslog::{self, Sender};
use kp_config::model::{ErrorLog, Level, LogTarget, Syslog, SyslogId};
use kp_proxy::{ErrorFacts, json_string};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Longest line; what is longer is cut, as nginx does.
const LINE_MAX: usize = 2048;

/// Where lines go.
#[derive(Debug, Default)]
pub struct Backend {
    /// Open log files, in the order of `Config::log_files`.
    files: Vec<OwnedFd>,
    /// In the order of `Config::syslogs`.
    syslogs: Vec<Sender>,
    targets: Vec<ErrorLog>,
}

/// One entry of an error log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) level: Level,
    /// `$connection`.
    pub(crate) connection: Option<u64>,
    pub(crate) text: &'a str,
    /// The request or client it is about.
    pub(crate) facts: Option<&'a ErrorFacts>,
    /// The token of the failure, where it is known.
    pub(crate) reason: Option<&'a str>,
}

#[allow(clippy::disallowed_types)] // `log::Log` must be Sync; each process has one thread that logs, so this is never contended.
static BACKEND: std::sync::Mutex<Option<Backend>> = std::sync::Mutex::new(None);

/// The level that every error log has instead of its own, as its number and one; 0: each has its own. A process that is
/// forked has it, too.
static IN_FORCE: AtomicU8 = AtomicU8::new(0);

/// nginx's names of levels.
pub const LEVELS: [(&str, Level); 8] = [
    ("debug", Level::Debug),
    ("info", Level::Info),
    ("notice", Level::Notice),
    ("warn", Level::Warn),
    ("error", Level::Error),
    ("crit", Level::Crit),
    ("alert", Level::Alert),
    ("emerg", Level::Emerg),
];

/// Gives every error log of this process this level; `None`: its own again.
pub fn force_level(level: Option<Level>) {
    let known = level.and_then(|level| LEVELS.iter().position(|(_, one)| *one == level));
    let number = known.map_or(0, |at| at as u8 + 1);
    IN_FORCE.store(number, Relaxed);
    if let Ok(backend) = BACKEND.lock() {
        limit(backend.as_ref().map_or(&[], |backend| &backend.targets));
    }
}

/// The level that every error log of this process has instead of its own.
pub fn forced_level() -> Option<Level> {
    let number = usize::from(IN_FORCE.load(Relaxed)).checked_sub(1)?;
    LEVELS.get(number).map(|(_, level)| *level)
}

/// Whether a line of this level belongs into a log.
fn takes(target: &ErrorLog, level: Level) -> bool {
    level >= forced_level().unwrap_or(target.level)
}

/// What is not even formatted.
fn limit(targets: &[ErrorLog]) {
    let debug = targets.iter().any(|target| takes(target, Level::Debug));
    log::set_max_level(if debug {
        log::LevelFilter::Debug
    } else {
        log::LevelFilter::Info
    });
}

struct Facade;

impl log::Log for Facade {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        !is_library(metadata.target()) || log::max_level() >= log::LevelFilter::Debug
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        write_main(level_of(record), None, &text);
    }

    fn flush(&self) {}
}

/// Makes the main context's `error_log`s the backend of `log`; `files` are duplicates of the open log files.
pub fn install(targets: &[ErrorLog], syslogs: &[Syslog], files: Vec<OwnedFd>) {
    let hostname = kp_sys::hostname();
    if let Ok(mut backend) = BACKEND.lock() {
        let sender = |syslog: &Syslog| Sender::new(syslog.clone(), hostname.clone());
        *backend = Some(Backend {
            files,
            syslogs: syslogs.iter().map(sender).collect(),
            targets: targets.to_vec(),
        });
    }
    // A second call finds the facade in place, which is what it wants.
    let _ = log::set_logger(&Facade);
    limit(targets);
}

/// Whether what is logged goes to the standard error and nowhere else, so that it need not be said there a second time.
pub fn is_stderr_only() -> bool {
    BACKEND.lock().is_ok_and(|backend| {
        backend.as_ref().is_some_and(|backend| {
            let mut targets = backend.targets.iter();
            targets.all(|target| target.target == LogTarget::Stderr)
        })
    })
}

/// Puts reopened files, beginning with log file number `first`, in the place of the old ones.
pub fn reopened(first: usize, files: &[OwnedFd]) {
    if let Ok(mut backend) = BACKEND.lock()
        && let Some(backend) = &mut *backend
    {
        for (old, new) in backend.files.iter_mut().skip(first).zip(files) {
            if let Ok(new) = new.try_clone() {
                *old = new;
            }
        }
    }
}

/// Writes a line to the main error log.
pub fn write_main(level: Level, connection: Option<u64>, text: &str) {
    let entry = Entry {
        level,
        connection,
        text,
        facts: None,
        reason: None,
    };
    let complaints = {
        let Ok(mut backend) = BACKEND.lock() else {
            return;
        };
        match &mut *backend {
            Some(backend) => {
                let Backend {
                    files,
                    syslogs,
                    targets,
                } = backend;
                write_targets(targets, files, syslogs, &entry)
            }
            None => {
                write_all(&std::io::stderr(), &text_line(&entry));
                return;
            }
        }
    };
    tell(complaints);
}

/// Writes an entry to the given error logs.
pub(crate) fn write(targets: &[ErrorLog], files: &[OwnedFd], entry: &Entry<'_>) {
    if !wants(targets, entry.level) {
        return;
    }
    let is_syslog = |target: &ErrorLog| matches!(target.target, LogTarget::Syslog(_));
    if !targets.iter().any(is_syslog) {
        write_targets(targets, files, &mut [], entry);
        return;
    }
    let complaints = match BACKEND.lock() {
        Ok(mut backend) => {
            let syslogs = backend.as_mut().map(|backend| &mut backend.syslogs);
            let syslogs = syslogs.map_or(&mut [][..], Vec::as_mut_slice);
            write_targets(targets, files, syslogs, entry)
        }
        Err(_) => return,
    };
    tell(complaints);
}

/// Sends a line of an access log; false if it is lost.
pub(crate) fn send(server: SyslogId, severity: u8, line: &[u8]) -> bool {
    let sent = match BACKEND.lock() {
        Ok(mut backend) => backend
            .as_mut()
            .and_then(|backend| backend.syslogs.get_mut(server.index()))
            .map(|sender| sender.send(severity, line)),
        Err(_) => None,
    };
    let Some(sent) = sent else { return false };
    tell(sent.complaint.into_iter().collect());
    !sent.lost
}

/// Says what a syslog server did not take. This may fail at the same server, which has nothing more to say for a minute.
fn tell(complaints: Vec<String>) {
    for complaint in complaints {
        write_main(Level::Alert, None, &complaint);
    }
}

/// Whether a line of this level would be written anywhere.
pub(crate) fn wants(targets: &[ErrorLog], level: Level) -> bool {
    targets.iter().any(|target| takes(target, level))
}

/// Writes to every target that wants it; gives what is to be said about lines that were lost.
fn write_targets(
    targets: &[ErrorLog],
    files: &[OwnedFd],
    syslogs: &mut [Sender],
    entry: &Entry<'_>,
) -> Vec<String> {
    let (mut text, mut json) = (None, None);
    let mut complaints = Vec::new();
    for target in targets.iter().filter(|target| takes(target, entry.level)) {
        let line: &[u8] = match target.json {
            true => json.get_or_insert_with(|| json_line(entry)),
            false => text.get_or_insert_with(|| text_line(entry)),
        };
        match target.target {
            LogTarget::Stderr => write_all(&std::io::stderr(), line),
            LogTarget::File(id) => {
                if let Some(file) = files.get(id.index()) {
                    write_all(file, line);
                }
            }
            LogTarget::Syslog(id) => {
                if let Some(sender) = syslogs.get_mut(id.index()) {
                    let line = line.strip_suffix(b"\n").unwrap_or(line);
                    let sent = sender.send(syslog::severity(entry.level), line);
                    complaints.extend(sent.complaint);
                }
            }
        }
    }
    complaints
}

/// One write, so that lines of several processes do not mix; an error log that cannot be written has no one to tell.
fn write_all(file: &impl AsFd, line: &[u8]) {
    let _ = kp_sys::io::write(file, line);
}

/// A time as the error log writes it: `2026/11/29 22:49:12`, local.
pub fn date_of(unix_ms: u64) -> String {
    let unix_s = unix_ms / 1000;
    clock::dates(unix_s, kp_sys::clock::utc_offset_seconds(unix_s as i64)).error_log
}

/// nginx's line.
fn text_line(entry: &Entry<'_>) -> Vec<u8> {
    let date = date_of(kp_sys::clock::unix_ms());
    let pid = std::process::id();
    let mut text = entry.text.to_owned();
    if let Some(facts) = entry.facts {
        facts.write_text(&mut text);
    }
    let mut out = Vec::with_capacity(text.len() + 64);
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{date} [{}] {pid}#{pid}: ", level_name(entry.level));
    if let Some(connection) = entry.connection {
        let _ = write!(out, "*{connection} ");
    }
    for piece in text.chars() {
        // One entry is one line.
        let piece = if piece == '\n' || piece == '\r' {
            ' '
        } else {
            piece
        };
        let mut utf8 = [0; 4];
        out.extend_from_slice(piece.encode_utf8(&mut utf8).as_bytes());
        if out.len() >= LINE_MAX {
            break;
        }
    }
    out.push(b'\n');
    out
}

/// The same as a JSON object: what is not known is not there.
fn json_line(entry: &Entry<'_>) -> Vec<u8> {
    let unix_s = kp_sys::clock::unix_ms() / 1000;
    let dates = clock::dates(unix_s, kp_sys::clock::utc_offset_seconds(unix_s as i64));
    let mut out = Vec::with_capacity(entry.text.len() + 256);
    // Writing to a Vec cannot fail.
    let _ = write!(
        out,
        "{{\"time\":\"{}\",\"level\":\"{}\",\"pid\":{}",
        dates.iso8601,
        level_name(entry.level),
        std::process::id()
    );
    if let Some(connection) = entry.connection {
        let _ = write!(out, ",\"connection\":{connection}");
    }
    out.extend_from_slice(b",\"message\":");
    let text = entry.text.as_bytes();
    json_string(&mut out, text.get(..LINE_MAX).unwrap_or(text));
    if let Some(reason) = entry.reason {
        out.extend_from_slice(b",\"reason\":");
        json_string(&mut out, reason.as_bytes());
    }
    if let Some(facts) = entry.facts {
        facts.write_json(&mut out);
    }
    out.extend_from_slice(b"}\n");
    out
}

/// What the TLS library says of a connection, anyone on the network can make it say, and kp tells what matters of it with
/// the connection's number: it is for level debug.
fn is_library(target: &str) -> bool {
    target.starts_with("rustls")
}

fn level_of(record: &log::Record<'_>) -> Level {
    match record.target() {
        target if is_library(target) => Level::Debug,
        "notice" => Level::Notice,
        "crit" => Level::Crit,
        "alert" => Level::Alert,
        "emerg" => Level::Emerg,
        _ => match record.level() {
            log::Level::Error => Level::Error,
            log::Level::Warn => Level::Warn,
            log::Level::Info => Level::Info,
            log::Level::Debug | log::Level::Trace => Level::Debug,
        },
    }
}

/// nginx's name of a level.
pub fn level_name(level: Level) -> &'static str {
    let named = LEVELS.iter().find(|(_, one)| *one == level);
    named.map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tls_library_says_is_for_debugging() {
        let said = |target| {
            let mut record = log::Record::builder();
            level_of(&record.target(target).level(log::Level::Warn).build())
        };
        assert_eq!(said("rustls::common_state"), Level::Debug);
        assert_eq!(said("kp_worker"), Level::Warn);
    }

    fn entry(level: Level, text: &str) -> Entry<'_> {
        Entry {
            level,
            connection: Some(17),
            text,
            facts: None,
            reason: None,
        }
    }

    #[test]
    fn a_forced_level_is_that_of_every_log() {
        let log = |level| ErrorLog {
            target: LogTarget::Stderr,
            level,
            json: false,
        };
        let logs = [log(Level::Error), log(Level::Alert)];
        assert!(!wants(&logs, Level::Warn) && wants(&logs, Level::Error));
        force_level(Some(Level::Debug));
        assert_eq!(forced_level(), Some(Level::Debug));
        assert!(takes(&logs[0], Level::Debug) && takes(&logs[1], Level::Debug));
        force_level(Some(Level::Emerg));
        assert!(!wants(&logs, Level::Alert) && wants(&logs, Level::Emerg));
        force_level(None);
        assert_eq!(forced_level(), None);
        assert!(!takes(&logs[1], Level::Error));
    }

    #[test]
    fn a_line_is_one_line_in_nginx_form() {
        let text = String::from_utf8(text_line(&entry(Level::Alert, "first\nsecond"))).unwrap();
        let pid = std::process::id();
        assert!(
            text.ends_with(&format!(" [alert] {pid}#{pid}: *17 first second\n")),
            "{text}"
        );
        assert_eq!(text.matches('\n').count(), 1);
        assert_eq!(text.as_bytes()[4], b'/');
        assert_eq!(&text[19..20], " ");
    }

    #[test]
    fn long_lines_are_cut_at_a_character() {
        let cut = text_line(&entry(Level::Info, &"é".repeat(LINE_MAX)));
        assert!(cut.len() <= LINE_MAX + 4);
        assert!(String::from_utf8(cut).is_ok());
    }

    #[test]
    fn what_is_known_are_the_fields_of_a_json_line() {
        let facts = ErrorFacts::of_client("192.0.2.1".into(), "example.test");
        let line = json_line(&Entry {
            facts: Some(&facts),
            reason: Some("connect_refused"),
            ..entry(Level::Error, "a \"b\"\nc")
        });
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let time = value["time"].as_str().unwrap();
        assert_eq!(time.len(), "2026-11-29T22:49:12+00:00".len());
        let expected = serde_json::json!({
            "time": time, "level": "error", "pid": std::process::id(), "connection": 17,
            "message": "a \"b\"\nc", "reason": "connect_refused", "client": "192.0.2.1", "server": "example.test",
        });
        assert_eq!(value, expected);
    }

    proptest::proptest! {
        /// One entry is one line, and a JSON line is JSON, whatever is said.
        #[test]
        fn any_text_is_one_line(text: String, connection: Option<u64>) {
            let entry = Entry { connection, ..entry(Level::Warn, &text) };
            let line = text_line(&entry);
            proptest::prop_assert_eq!(memchr::memchr(b'\n', &line), Some(line.len() - 1));
            let line = json_line(&entry);
            proptest::prop_assert_eq!(memchr::memchr(b'\n', &line), Some(line.len() - 1));
            let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
            proptest::prop_assert!(value["message"].is_string());
        }
    }
}
