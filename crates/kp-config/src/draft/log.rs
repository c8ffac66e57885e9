//! `access_log` and `error_log`.

use super::Reader;
use crate::diagnostic::Diagnostic;
use crate::model::{
    AccessLogTarget, ErrorLog, LEVELS, Level, LogBuffer, LogFileCacheId, LogTarget,
    OpenLogFileCache,
};
use crate::span::Spanned;
use crate::syntax::{Directive, Word};
use crate::template::Template;
use crate::value::{self, Finest};
use std::time::Duration;

/// One `access_log`; its format is looked up when all formats are known.
#[derive(Debug, Clone)]
pub(crate) struct AccessLogDraft {
    pub(crate) target: AccessLogTarget,
    pub(crate) format: Option<Spanned<String>>,
    pub(crate) condition: Option<Template>,
}

/// What follows the format.
#[derive(Debug, Default)]
struct Parameters {
    buffer: Option<usize>,
    flush: Option<Duration>,
    gzip: Option<u8>,
    condition: Option<Template>,
}

/// What gzip buffers without `buffer=`, as nginx.
const GZIP_BUFFER_BYTES: usize = 64 * 1024;
/// nginx compresses as fast as it can unless told otherwise.
const GZIP_LEVEL: u8 = 1;

impl Reader<'_> {
    /// `error_log`.
    pub(crate) fn error_log(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<ErrorLog>>>,
    ) {
        let Some((path, mut rest)) = directive.args.split_first() else {
            return;
        };
        let json = match rest.split_last() {
            Some((last, before)) if last.text.starts_with("format=") => {
                rest = before;
                match Self::parameter(last, "format") {
                    Some("json") => true,
                    Some("text") => false,
                    _ => {
                        let message = format!("invalid parameter \"{}\"", last.text);
                        self.refuse(last.span, message, "it can be: format=text, format=json");
                        return;
                    }
                }
            }
            _ => false,
        };
        let Some(level) = self.error_level(rest) else {
            return;
        };
        let target = match path.text.as_str() {
            "stderr" => LogTarget::Stderr,
            text if text.starts_with("memory:") => {
                let message = "\"memory:\" logs are not supported";
                let advice = "a log in memory can be read with a debugger only; write to a file, to stderr, or to syslog:";
                return self.refuse(path.span, message, advice);
            }
            text => match text.strip_prefix("syslog:") {
                Some(parameters) => match self.syslog(path, parameters) {
                    Some((server, _)) => LogTarget::Syslog(server),
                    None => return,
                },
                None => LogTarget::File(self.log_file(text, Some(path.span))),
            },
        };
        let log = ErrorLog {
            target,
            level,
            json,
        };
        Self::push(slot, log, path.span);
    }

    fn error_level(&mut self, words: &[Word]) -> Option<Level> {
        let (word, surplus) = match words {
            [] => return Some(Level::Error),
            [word, surplus @ ..] => (word, surplus),
        };
        if let Some(word) = surplus.first() {
            let message = format!("invalid parameter \"{}\"", word.text);
            self.refuse(word.span, message, "after the level can stand: format=json");
            return None;
        }
        let found = LEVELS.iter().find(|(name, _)| *name == word.text);
        if found.is_none() {
            let names: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
            let message = format!("invalid log level \"{}\"", word.text);
            self.refuse(
                word.span,
                message,
                format!("it can be: {}", names.join(", ")),
            );
        }
        found.map(|(_, level)| *level)
    }

    /// `access_log`.
    pub(crate) fn access_log(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<AccessLogDraft>>>,
    ) {
        let Some((path, rest)) = directive.args.split_first() else {
            return;
        };
        if path.text == "off" {
            self.access_log_off(path, rest.first(), slot);
            return;
        }
        if let Some(earlier) = slot.as_ref()
            && earlier.value.is_empty()
        {
            self.warning(
                path.span,
                "\"access_log\" is ignored",
                "\"access_log off\" on this level turns all logs off",
            );
            return;
        }
        let Some(target) = self.access_log_target(path) else {
            return;
        };
        let (format, words) = match rest.split_first() {
            Some((format, words)) => (Some(format), words),
            None => (None, rest),
        };
        let mut parameters = Parameters::default();
        let mut good = true;
        for word in words {
            good &= self.access_log_parameter(&mut parameters, word);
        }
        if good && self.buffer_is_set(&target, &parameters, path) {
            let log = AccessLogDraft {
                target,
                format: format.map(|word| Spanned::new(word.text.clone(), word.span)),
                condition: parameters.condition,
            };
            Self::push(slot, log, path.span);
        }
    }

    fn access_log_off(
        &mut self,
        off: &Word,
        surplus: Option<&Word>,
        slot: &mut Option<Spanned<Vec<AccessLogDraft>>>,
    ) {
        if let Some(word) = surplus {
            self.error(word.span, format!("invalid parameter \"{}\"", word.text));
            return;
        }
        if let Some(earlier) = slot.as_ref()
            && !earlier.value.is_empty()
        {
            let span = earlier.span;
            self.warning(
                span,
                "\"access_log\" is ignored",
                "\"access_log off\" on this level turns all logs off",
            );
        }
        *slot = Some(Spanned::new(Vec::new(), off.span));
    }

    fn access_log_target(&mut self, path: &Word) -> Option<AccessLogTarget> {
        if path.text == "/dev/stderr" || path.text == "stderr" {
            return Some(AccessLogTarget::Stderr);
        }
        if let Some(parameters) = path.text.strip_prefix("syslog:") {
            let (server, severity) = self.syslog(path, parameters)?;
            return Some(AccessLogTarget::Syslog { server, severity });
        }
        if path.text.contains('$') {
            let full = if path.text.starts_with('$') {
                path.text.clone()
            } else {
                self.under_prefix(&path.text).to_string_lossy().into_owned()
            };
            return self
                .compile_text(&full, path.span)
                .map(AccessLogTarget::Template);
        }
        Some(AccessLogTarget::File(
            self.log_file(&path.text, Some(path.span)),
        ))
    }

    fn access_log_parameter(&mut self, log: &mut Parameters, word: &Word) -> bool {
        if let Some(text) = Self::parameter(word, "buffer") {
            log.buffer = value::size(text)
                .filter(|size| *size > 0)
                .and_then(|size| usize::try_from(size).ok());
            if log.buffer.is_none() {
                self.error(word.span, format!("invalid buffer size \"{text}\""));
            }
            return log.buffer.is_some();
        }
        if let Some(text) = Self::parameter(word, "flush") {
            log.flush = value::time(text, Finest::Milliseconds).filter(|time| !time.is_zero());
            if log.flush.is_none() {
                self.error(word.span, format!("invalid flush time \"{text}\""));
            }
            return log.flush.is_some();
        }
        if let Some(text) = Self::parameter(word, "if") {
            log.condition = self.compile_text(text, word.span);
            return log.condition.is_some();
        }
        if word.text == "gzip" {
            log.gzip = Some(GZIP_LEVEL);
            return true;
        }
        if let Some(text) = Self::parameter(word, "gzip") {
            let level = value::number(text).and_then(|level| u8::try_from(level).ok());
            log.gzip = level.filter(|level| (1..=9).contains(level));
            if log.gzip.is_none() {
                let message = format!("invalid compression level \"{text}\"");
                self.refuse(
                    word.span,
                    message,
                    "it is a number from 1 (fast) to 9 (small)",
                );
            }
            return log.gzip.is_some();
        }
        self.report(
            Diagnostic::error(word.span, format!("invalid parameter \"{}\"", word.text)).hint(
                "after the format can stand: buffer=size, gzip[=level], flush=time, if=condition",
            ),
        );
        false
    }

    /// Writes down how lines wait for a file; false where they cannot.
    fn buffer_is_set(
        &mut self,
        target: &AccessLogTarget,
        parameters: &Parameters,
        path: &Word,
    ) -> bool {
        let bytes = match (parameters.buffer, parameters.gzip) {
            (Some(bytes), _) => bytes,
            (None, Some(_)) => GZIP_BUFFER_BYTES,
            (None, None) if parameters.flush.is_none() => return true,
            (None, None) => {
                let message = format!("no buffer is defined for access_log \"{}\"", path.text);
                self.refuse(path.span, message, "add buffer=size, such as buffer=64k");
                return false;
            }
        };
        let file = match target {
            AccessLogTarget::File(file) => *file,
            AccessLogTarget::Template(_) => {
                self.error(path.span, "buffered logs cannot have variables in name");
                return false;
            }
            AccessLogTarget::Syslog { .. } => {
                self.error(path.span, "logs to syslog cannot be buffered");
                return false;
            }
            AccessLogTarget::Stderr => {
                let advice = "name the file behind it, or use /dev/stdout";
                self.refuse(path.span, "logs to stderr cannot be buffered", advice);
                return false;
            }
        };
        let wanted = LogBuffer {
            bytes,
            flush: parameters.flush,
            gzip: parameters.gzip,
        };
        let Some(slot) = self.log_buffers.get_mut(file.index()) else {
            return true;
        };
        match slot {
            Some(known) if *known != wanted => {
                let message = format!(
                    "access_log \"{}\" already defined with conflicting parameters",
                    path.text
                );
                let advice = "buffer=, flush= and gzip= are the file's: every access_log that writes to it has the same";
                self.refuse(path.span, message, advice);
                false
            }
            _ => {
                *slot = Some(wanted);
                true
            }
        }
    }

    /// `open_log_file_cache`.
    pub(crate) fn open_log_file_cache(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Option<LogFileCacheId>>>,
    ) {
        let Some(first) = directive.args.first() else {
            return;
        };
        if let ([word], "off") = (directive.args.as_slice(), first.text.as_str()) {
            *slot = Some(Spanned::new(None, word.span));
            return;
        }
        let mut cache = OpenLogFileCache {
            max: 0,
            inactive: Duration::from_secs(10),
            min_uses: 1,
            valid: Duration::from_secs(60),
        };
        for word in &directive.args {
            if let Err(wrong) = cache_parameter(&mut cache, word) {
                let message = format!("invalid \"open_log_file_cache\" parameter \"{wrong}\"");
                let advice =
                    "it can be: off, or max=number [inactive=time] [min_uses=number] [valid=time]";
                return self.refuse(word.span, message, advice);
            }
        }
        if cache.max == 0 {
            let message = "\"open_log_file_cache\" must have \"max\" parameter";
            return self.refuse(
                first.span,
                message,
                "such as max=100: how many files stay open",
            );
        }
        let id = self.add_log_file_cache(cache);
        *slot = Some(Spanned::new(Some(id), first.span));
    }
}

/// Reads one parameter of `open_log_file_cache`; the error is the text that cannot be read.
fn cache_parameter(cache: &mut OpenLogFileCache, word: &Word) -> Result<(), String> {
    let time = |text: &str| value::time(text, Finest::Seconds);
    let read = match word.text.split_once('=') {
        Some(("max", text)) => value::number(text)
            .and_then(|max| usize::try_from(max).ok())
            .filter(|max| *max > 0)
            .map(|max| cache.max = max),
        Some(("inactive", text)) => time(text).map(|time| cache.inactive = time),
        Some(("min_uses", text)) => value::number(text)
            .filter(|uses| *uses > 0)
            .map(|uses| cache.min_uses = uses),
        Some(("valid", text)) => time(text).map(|time| cache.valid = time),
        _ => None,
    };
    read.ok_or_else(|| word.text.clone())
}
