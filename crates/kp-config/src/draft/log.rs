//! `access_log` and `error_log`.

use super::Reader;
use crate::diagnostic::Diagnostic;
use crate::model::{Level, LogFileId};
use crate::span::Spanned;
use crate::syntax::{Directive, Word};
use crate::template::Template;
use crate::value::{self, Finest};
use std::time::Duration;

/// Where an error log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ErrorLogTargetDraft {
    Stderr,
    File(LogFileId),
}

/// One `access_log`; its format is looked up when all formats are known.
#[derive(Debug, Clone)]
pub(crate) struct AccessLogDraft {
    pub(crate) target: AccessLogTargetDraft,
    pub(crate) format: Option<Spanned<String>>,
    pub(crate) buffer: Option<usize>,
    pub(crate) flush: Option<Duration>,
    pub(crate) condition: Option<Template>,
}

/// Where an access log goes.
#[derive(Debug, Clone)]
pub(crate) enum AccessLogTargetDraft {
    Stderr,
    File(LogFileId),
    Template(Template),
}

const LEVELS: [(&str, Level); 8] = [
    ("debug", Level::Debug),
    ("info", Level::Info),
    ("notice", Level::Notice),
    ("warn", Level::Warn),
    ("error", Level::Error),
    ("crit", Level::Crit),
    ("alert", Level::Alert),
    ("emerg", Level::Emerg),
];

impl Reader<'_> {
    /// `error_log`.
    pub(crate) fn error_log(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Vec<(ErrorLogTargetDraft, Level)>>>,
    ) {
        let Some((path, rest)) = directive.args.split_first() else {
            return;
        };
        let level = match rest.first() {
            None => Level::Error,
            Some(word) => match LEVELS.iter().find(|(name, _)| *name == word.text) {
                Some((_, level)) => *level,
                None => {
                    let names: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
                    self.report(
                        Diagnostic::error(
                            word.span,
                            format!("invalid log level \"{}\"", word.text),
                        )
                        .hint(format!("it can be: {}", names.join(", "))),
                    );
                    return;
                }
            },
        };
        if self.refuse_special_log(path) {
            return;
        }
        let target = match path.text.as_str() {
            "stderr" => ErrorLogTargetDraft::Stderr,
            text => ErrorLogTargetDraft::File(self.log_file(text, Some(path.span))),
        };
        Self::push(slot, (target, level), path.span);
    }

    /// `syslog:` and `memory:` are nginx's, not ours yet.
    fn refuse_special_log(&mut self, word: &Word) -> bool {
        let Some(kind) = ["syslog:", "memory:"]
            .into_iter()
            .find(|kind| word.text.starts_with(kind))
        else {
            return false;
        };
        self.report(
            Diagnostic::error(word.span, format!("\"{kind}\" logs are not supported yet"))
                .hint("write to a file or to stderr"),
        );
        true
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
        if self.refuse_special_log(path) {
            return;
        }
        let Some(target) = self.access_log_target(path) else {
            return;
        };
        let mut log = AccessLogDraft {
            target,
            format: None,
            buffer: None,
            flush: None,
            condition: None,
        };
        let Some((format, parameters)) = rest.split_first() else {
            Self::push(slot, log, path.span);
            return;
        };
        log.format = Some(Spanned::new(format.text.clone(), format.span));
        let mut good = true;
        for word in parameters {
            good &= self.access_log_parameter(&mut log, word);
        }
        if good && self.buffers_make_sense(&log, path) {
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

    fn access_log_target(&mut self, path: &Word) -> Option<AccessLogTargetDraft> {
        if path.text == "/dev/stderr" || path.text == "stderr" {
            return Some(AccessLogTargetDraft::Stderr);
        }
        if path.text.contains('$') {
            let full = if path.text.starts_with('$') {
                path.text.clone()
            } else {
                self.under_prefix(&path.text).to_string_lossy().into_owned()
            };
            return self
                .compile_text(&full, path.span)
                .map(AccessLogTargetDraft::Template);
        }
        Some(AccessLogTargetDraft::File(
            self.log_file(&path.text, Some(path.span)),
        ))
    }

    fn access_log_parameter(&mut self, log: &mut AccessLogDraft, word: &Word) -> bool {
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
        if word.text == "gzip" || word.text.starts_with("gzip=") {
            self.report(
                Diagnostic::error(
                    word.span,
                    "the \"gzip\" parameter of \"access_log\" is not supported yet",
                )
                .hint("compress the file when it is rotated"),
            );
            return false;
        }
        self.report(
            Diagnostic::error(word.span, format!("invalid parameter \"{}\"", word.text))
                .hint("after the format can stand: buffer=size, flush=time, if=condition"),
        );
        false
    }

    fn buffers_make_sense(&mut self, log: &AccessLogDraft, path: &Word) -> bool {
        if log.flush.is_some() && log.buffer.is_none() {
            self.error(
                path.span,
                format!("no buffer is defined for access_log \"{}\"", path.text),
            );
            return false;
        }
        if log.buffer.is_some() && matches!(log.target, AccessLogTargetDraft::Template(_)) {
            self.error(path.span, "buffered logs cannot have variables in name");
            return false;
        }
        true
    }
}
