//! The error log: kp's backend of the `log` facade, and nginx's line format.
//!
//! `2026/11/29 22:49:12 [error] 4711#4711: *17 text`. nginx has more levels than `log`; the additional ones travel as the
//! target: `log::info!(target: "notice", …)`, `log::error!(target: "alert", …)`.
//!
//! Each process has its own descriptors; after a reopening the master sends the new ones to its workers. Nobody waits for who
//! reads a log: what a full pipe or a full disk does not take is lost, and the log says so when it takes lines again.

use crate::clock;
use crate::line_outlet::LineOutlet;
use crate::losses::Losses;
use crate::syslog::{self, Sender};
pub use kp_config::model::LEVELS;
use kp_config::model::{ErrorLog, Level, LogTarget, Syslog, SyslogId};
use kp_proxy::{ErrorFacts, json_string};
use std::io::Stderr;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Longest line; what is longer is cut, as nginx does.
const LINE_MAX: usize = 2048;

/// Where lines go.
#[derive(Debug)]
struct Backend {
    places: Places,
    /// Those of the main context.
    targets: Vec<ErrorLog>,
}

/// What error logs write to.
#[derive(Debug)]
struct Places {
    stderr: Place<Stderr>,
    /// In the order of `Config::log_files`.
    files: Vec<Place<OwnedFd>>,
    /// In the order of `Config::syslogs`.
    syslogs: Vec<Sender>,
}

/// One of them that is a descriptor.
#[derive(Debug)]
struct Place<F> {
    outlet: LineOutlet<F>,
    /// The end of a line that a pipe took in part.
    owed: Vec<u8>,
    losses: Losses,
}

impl<F: AsFd> Place<F> {
    fn new(file: F) -> Self {
        Self {
            outlet: LineOutlet::new(file),
            owed: Vec::new(),
            losses: Losses::default(),
        }
    }

    /// Writes one line, in one piece, so that lines of several processes do not mix.
    fn write(&mut self, line: &[u8], json: bool) {
        let taken = self.pays() && self.tells(json) && self.take(line);
        if !taken {
            self.losses.add(1);
            LOST.fetch_add(1, Relaxed);
        }
    }

    /// Says how many lines were lost before; false where there is no room for that.
    fn tells(&mut self, json: bool) -> bool {
        let now_ms = kp_sys::clock::monotonic_ms();
        let Some(lines) = self.losses.due(now_ms) else {
            return true;
        };
        let taken = self.take(&lost_line(lines, json));
        if taken {
            self.losses.told(now_ms);
        }
        taken
    }

    /// Writes what is owed; false where some still is.
    fn pays(&mut self) -> bool {
        if self.owed.is_empty() {
            return true;
        }
        let taken = self.outlet.write(&self.owed);
        self.owed.drain(..taken.bytes);
        if !taken.later {
            self.owed.clear();
        }
        self.owed.is_empty()
    }

    /// Writes a line, of which a part may be owed then; false if it is lost.
    fn take(&mut self, line: &[u8]) -> bool {
        let taken = self.outlet.write(line);
        if taken.later && taken.bytes > 0 {
            self.owed
                .extend_from_slice(line.get(taken.bytes..).unwrap_or_default());
            return true;
        }
        taken.bytes == line.len()
    }
}

/// Lines that this process has lost since somebody counted them.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Lines that this process has lost since the last call.
pub(crate) fn take_lost() -> u64 {
    match LOST.load(Relaxed) {
        0 => 0,
        _ => LOST.swap(0, Relaxed),
    }
}

fn lost_line(lines: u64, json: bool) -> Vec<u8> {
    let text = format!(
        "{lines} lines of this log were dropped: there was no room for them; more of them are counted, and told after a minute at the earliest"
    );
    let entry = Entry {
        level: Level::Alert,
        connection: None,
        text: &text,
        facts: None,
        reason: None,
    };
    match json {
        true => json_line(&entry),
        false => text_line(&entry),
    }
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
        let places = Places {
            stderr: Place::new(std::io::stderr()),
            files: files.into_iter().map(Place::new).collect(),
            syslogs: syslogs.iter().map(sender).collect(),
        };
        *backend = Some(Backend {
            places,
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
        for (old, new) in backend.places.files.iter_mut().skip(first).zip(files) {
            if let Ok(new) = new.try_clone() {
                *old = Place::new(new);
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
            Some(Backend { places, targets }) => write_targets(targets, places, &entry),
            None => {
                Place::new(std::io::stderr()).write(&text_line(&entry), false);
                return;
            }
        }
    };
    tell(complaints);
}

/// Writes an entry to the given error logs.
pub(crate) fn write(targets: &[ErrorLog], entry: &Entry<'_>) {
    if !wants(targets, entry.level) {
        return;
    }
    let complaints = match BACKEND.lock() {
        Ok(mut backend) => match &mut *backend {
            Some(backend) => write_targets(targets, &mut backend.places, entry),
            None => return,
        },
        Err(_) => return,
    };
    tell(complaints);
}

/// Sends a line of an access log; false if it is lost.
pub(crate) fn send(server: SyslogId, severity: u8, line: &[u8]) -> bool {
    let sent = match BACKEND.lock() {
        Ok(mut backend) => backend
            .as_mut()
            .and_then(|backend| backend.places.syslogs.get_mut(server.index()))
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
fn write_targets(targets: &[ErrorLog], places: &mut Places, entry: &Entry<'_>) -> Vec<String> {
    let (mut text, mut json) = (None, None);
    let mut complaints = Vec::new();
    for target in targets.iter().filter(|target| takes(target, entry.level)) {
        let line: &[u8] = match target.json {
            true => json.get_or_insert_with(|| json_line(entry)),
            false => text.get_or_insert_with(|| text_line(entry)),
        };
        match target.target {
            LogTarget::Stderr => {
                places.stderr.outlet.outlet.look_again();
                places.stderr.write(line, target.json);
            }
            LogTarget::File(id) => {
                if let Some(file) = places.files.get_mut(id.index()) {
                    file.write(line, target.json);
                }
            }
            LogTarget::Syslog(id) => {
                if let Some(sender) = places.syslogs.get_mut(id.index()) {
                    let line = line.strip_suffix(b"\n").unwrap_or(line);
                    let sent = sender.send(syslog::severity(entry.level), line);
                    complaints.extend(sent.complaint);
                }
            }
        }
    }
    complaints
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
        let mut utf8 = [0; 4];
        match piece {
            // One entry is one line.
            '\n' | '\r' => out.push(b' '),
            // The path of a file may hold what a client sent; it must not speak to the reader's terminal.
            _ if piece.is_control() && piece != '\t' => {
                for byte in piece.encode_utf8(&mut utf8).bytes() {
                    let _ = write!(out, "\\x{byte:02X}");
                }
            }
            _ => out.extend_from_slice(piece.encode_utf8(&mut utf8).as_bytes()),
        }
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
        let text = text_line(&entry(Level::Error, "a\u{1b}[31m\u{7f}\tb\u{85}"));
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.ends_with("17 a\\x1B[31m\\x7F\tb\\xC2\\x85\n"),
            "{text}"
        );
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
        let facts = ErrorFacts::of_client(Some(([192, 0, 2, 1], 1).into()), "example.test");
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
            let said = String::from_utf8(line).unwrap();
            let spoken = said.trim_end().chars().any(|piece| piece.is_control() && piece != '\t');
            proptest::prop_assert!(!spoken, "{}", said);
            let line = json_line(&entry);
            proptest::prop_assert_eq!(memchr::memchr(b'\n', &line), Some(line.len() - 1));
            let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
            proptest::prop_assert!(value["message"].is_string());
        }
    }
}
