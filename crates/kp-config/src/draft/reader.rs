//! What reading a configuration collects besides the draft: findings, variables, regular expressions, log files, types.

use super::ZoneMark;
use crate::compile::{Names, VariableError, builtin, group_names};
use crate::diagnostic::Diagnostic;
use crate::foreign;
use crate::model::{
    Escape, LogBuffer, LogFileCacheId, LogFileId, LogFormat, LogShape, OpenLogFileCache, PlaceZone,
    RateZone, RegexId, RegexSource, Syslog, SyslogId, TypeMap, TypeMapId, UserVar,
};
use crate::resolve::Environment;
use crate::span::{Span, Spanned};
use crate::syntax::{Directive, Word};
use crate::template::Template;
use crate::value::{self, Host};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// State of one reading.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    /// What the process knows of its surroundings.
    pub(crate) environment: &'a Environment,
    /// The findings so far.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The configuration's variables.
    pub(crate) names: Names,
    /// The configuration's regular expressions.
    pub(crate) regexes: Vec<RegexSource>,
    /// The configuration's log files.
    pub(crate) log_files: Vec<PathBuf>,
    pub(crate) log_places: Vec<Option<Span>>,
    pub(crate) log_buffers: Vec<Option<LogBuffer>>,
    /// The configuration's syslog servers and caches of log files.
    pub(crate) syslogs: Vec<Syslog>,
    pub(crate) log_file_caches: Vec<OpenLogFileCache>,
    /// The configuration's `types`; the first is the built-in one.
    pub(crate) type_maps: Vec<TypeMap>,
    /// Zones of limits, and where they were defined.
    pub(crate) rate_zones: Vec<RateZone>,
    pub(crate) place_zones: Vec<PlaceZone>,
    pub(crate) zone_marks: Vec<ZoneMark>,
    found: HashMap<(String, u16), Vec<SocketAddr>>,
    /// Messages that are said once however often there is reason to.
    said: HashSet<String>,
}

impl<'a> Reader<'a> {
    /// A reader for a tree, whose variables it collects.
    pub(crate) fn new(environment: &'a Environment, tree: &[Directive]) -> Self {
        let types = [
            ("gif", "image/gif"),
            ("html", "text/html"),
            ("jpg", "image/jpeg"),
        ];
        let types =
            types.map(|(extension, media_type)| (extension.to_owned(), media_type.to_owned()));
        Self {
            environment,
            diagnostics: Vec::new(),
            names: Names::collect(tree),
            regexes: Vec::new(),
            log_files: Vec::new(),
            log_places: Vec::new(),
            log_buffers: Vec::new(),
            syslogs: Vec::new(),
            log_file_caches: Vec::new(),
            type_maps: vec![TypeMap {
                types: types.to_vec(),
            }],
            rate_zones: Vec::new(),
            place_zones: Vec::new(),
            zone_marks: Vec::new(),
            found: HashMap::new(),
            said: HashSet::new(),
        }
    }

    /// Notes a finding.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Notes an error.
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>) {
        self.report(Diagnostic::error(span, message));
    }

    /// Notes an error and what to do about it.
    pub(crate) fn refuse(
        &mut self,
        span: Span,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.report(Diagnostic::error(span, message).hint(advice));
    }

    /// Notes a warning.
    pub(crate) fn warning(
        &mut self,
        span: Span,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.report(Diagnostic::warning(span, message).hint(hint));
    }

    /// Notes a warning that holds for every occurrence, at the first one.
    pub(crate) fn warn_once(
        &mut self,
        span: Span,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let message = message.into();
        if self.said.insert(message.clone()) {
            self.warning(span, message, hint);
        }
    }

    /// Compiles a word with variables.
    pub(crate) fn compile(&mut self, word: &Word) -> Option<Template> {
        match self.names.compile(&word.text) {
            Ok(template) => Some(template),
            Err(error) => {
                let span = place_of(&error, word);
                self.report(variable_diagnostic(&error, span));
                None
            }
        }
    }

    /// Compiles a part of a word.
    pub(crate) fn compile_text(&mut self, text: &str, span: Span) -> Option<Template> {
        match self.names.compile(text) {
            Ok(template) => Some(template),
            Err(error) => {
                self.report(variable_diagnostic(&error, span));
                None
            }
        }
    }

    /// Takes a regular expression into the table.
    pub(crate) fn regex(&mut self, pattern: &str, case_insensitive: bool, span: Span) -> RegexId {
        let mut captures = Vec::new();
        for name in group_names(pattern) {
            if let Some(variable) = self.define(&name, span) {
                captures.push((name, variable));
            }
        }
        let id = RegexId(u32::try_from(self.regexes.len()).unwrap_or(u32::MAX));
        self.regexes.push(RegexSource {
            pattern: pattern.to_owned(),
            case_insensitive,
            captures,
            span,
        });
        id
    }

    /// Defines a variable; the built-in ones cannot be defined anew.
    pub(crate) fn define(&mut self, name: &str, span: Span) -> Option<UserVar> {
        if builtin(&name.to_ascii_lowercase()).is_some() {
            let error = Diagnostic::error(span, format!("the duplicate \"{name}\" variable"));
            self.report(error.hint(format!(
                "\"${name}\" is a built-in variable; choose another name"
            )));
            return None;
        }
        Some(self.names.define(name))
    }

    /// The variable that the last argument of this block directive defines.
    pub(crate) fn defined(&mut self, directive: &Word, variable: &Word) -> Option<UserVar> {
        let name = variable.text.strip_prefix('$');
        match name.filter(|name| crate::compile::is_name(name)) {
            Some(name) => self.define(name, variable.span),
            None => {
                let message = format!("invalid variable name \"{}\"", variable.text);
                let advice = format!(
                    "the last argument of \"{}\" is the variable it defines, such as $variant",
                    directive.text
                );
                self.refuse(variable.span, message, advice);
                None
            }
        }
    }

    /// The number of a log file; relative paths start at the prefix.
    pub(crate) fn log_file(&mut self, path: &str, place: Option<Span>) -> LogFileId {
        let path = self.under_prefix(path);
        let index = self
            .log_files
            .iter()
            .position(|known| *known == path)
            .unwrap_or_else(|| {
                self.log_files.push(path);
                self.log_places.push(place);
                self.log_buffers.push(None);
                self.log_files.len() - 1
            });
        LogFileId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The number of a syslog server; the same one with the same parameters has one.
    pub(crate) fn add_syslog(&mut self, syslog: Syslog) -> SyslogId {
        let known = self.syslogs.iter().position(|known| *known == syslog);
        let index = known.unwrap_or_else(|| {
            self.syslogs.push(syslog);
            self.syslogs.len() - 1
        });
        SyslogId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Numbers an `open_log_file_cache`.
    pub(crate) fn add_log_file_cache(&mut self, cache: OpenLogFileCache) -> LogFileCacheId {
        self.log_file_caches.push(cache);
        LogFileCacheId(u32::try_from(self.log_file_caches.len() - 1).unwrap_or(u32::MAX))
    }

    /// A path, joined to the prefix when it is relative.
    pub(crate) fn under_prefix(&self, path: impl AsRef<Path>) -> PathBuf {
        self.environment.prefix.join(path)
    }

    /// A path, joined to the directory of the configuration file when it is relative: certificates and what goes with
    /// them.
    pub(crate) fn beside_configuration(&self, path: impl AsRef<Path>) -> PathBuf {
        self.environment.directory.join(path)
    }

    /// The built-in directory for temporary files of this kind.
    pub(crate) fn temporary(&self, name: &str) -> PathBuf {
        self.under_prefix(&self.environment.state).join(name)
    }

    /// Numbers a `types`.
    pub(crate) fn add_types(&mut self, types: Vec<(String, String)>) -> TypeMapId {
        self.type_maps.push(TypeMap { types });
        TypeMapId(u32::try_from(self.type_maps.len() - 1).unwrap_or(u32::MAX))
    }

    /// The addresses of a host; empty when the name does not resolve. Where names are not to be looked up, the
    /// unspecified address stands for them.
    pub(crate) fn addresses(&mut self, host: &Host, port: u16) -> Vec<SocketAddr> {
        let name = match host {
            Host::Address(address) => return vec![SocketAddr::new(*address, port)],
            Host::Name(name) => name,
        };
        if !self.environment.resolve_names {
            return vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)];
        }
        self.found
            .entry((name.clone(), port))
            .or_insert_with(|| value::look_up(name, port))
            .clone()
    }

    /// The value of `name=value` in a parameter.
    pub(crate) fn parameter<'w>(word: &'w Word, name: &str) -> Option<&'w str> {
        word.text.strip_prefix(name)?.strip_prefix('=')
    }

    /// Writes a value of the one argument, if it can be read.
    pub(crate) fn put<T>(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<T>>,
        parse: impl FnOnce(&mut Self, &Word) -> Option<T>,
    ) {
        if let Some(word) = directive.args.first()
            && let Some(value) = parse(self, word)
        {
            *slot = Some(Spanned::new(value, word.span));
        }
    }

    /// Adds to the values of a repeatable directive.
    pub(crate) fn push<T>(slot: &mut Option<Spanned<Vec<T>>>, value: T, span: Span) {
        slot.get_or_insert_with(|| Spanned::new(Vec::new(), span))
            .value
            .push(value);
    }
}

/// Where in a word the variable stands; the whole word where escapes keep its text from lying there as it is.
fn place_of(error: &VariableError, word: &Word) -> Span {
    let (VariableError::Unknown(name, _) | VariableError::Unclosed(name)) = error else {
        return word.span;
    };
    let quote = usize::from(word.quoted);
    let as_written = word.text.chars().count() + 2 * quote == word.span.length as usize;
    let continues =
        |rest: &str| rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
    let found = [format!("${name}"), format!("${{{name}")]
        .iter()
        .filter_map(|needle| {
            let mut starts = word.text.match_indices(needle.as_str());
            let (at, _) = starts.find(|(at, _)| {
                !continues(word.text.get(at + needle.len()..).unwrap_or_default())
            })?;
            Some((at, needle.chars().count()))
        })
        .min();
    match found {
        Some((at, length)) if as_written => {
            let before = word.text.get(..at).unwrap_or_default().chars().count() + quote;
            Span {
                column: word.span.column + u32::try_from(before).unwrap_or(0),
                length: u32::try_from(length).unwrap_or(1),
                ..word.span
            }
        }
        _ => word.span,
    }
}

fn variable_diagnostic(error: &VariableError, span: Span) -> Diagnostic {
    match error {
        VariableError::InvalidName => Diagnostic::error(span, "invalid variable name")
            .hint("after \"$\" stands a name of letters, digits and \"_\""),
        VariableError::Unclosed(name) => Diagnostic::error(
            span,
            format!("the closing bracket in \"{name}\" variable is missing"),
        )
        .hint(format!("write \"${{{name}}}\"")),
        VariableError::Unknown(name, near) => {
            let diagnostic = Diagnostic::error(span, format!("unknown \"{name}\" variable"));
            if let Some(hint) = foreign::of_variable(name) {
                return diagnostic.hint(hint);
            }
            match near {
                Some(near) => diagnostic.hint(format!("did you mean \"${near}\"?")),
                None => diagnostic.hint("no directive here defines it, and it is not built in"),
            }
        }
    }
}

/// `combined`, which every configuration has.
pub(crate) fn predefined_format(names: &Names) -> LogFormat {
    let text = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                \"$http_referer\" \"$http_user_agent\"";
    let template = names.compile(text).unwrap_or_default();
    LogFormat {
        name: "combined".to_owned(),
        shape: LogShape::Text {
            template,
            escape: Escape::Default,
        },
    }
}
