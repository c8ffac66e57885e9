//! Drafts of main, events, http and server, and the setters that only they have.

use super::{LevelDraft, ListenDraft, LocationDraft, Reader, TlsDraft, UpstreamDraft};
use crate::diagnostic::Diagnostic;
use crate::model::{
    AcceptLimit, CpuAffinity, ErrorLog, LocationMatch, LogFormat, Map, MatchBlock, ServerName,
    Split, StopSignal, User,
};
use crate::span::{Span, Spanned};
use crate::syntax::Directive;
use crate::value;
use std::path::PathBuf;
use std::time::Duration;

/// main and events.
#[derive(Debug, Default)]
pub(crate) struct MainDraft {
    pub(crate) daemon: Option<Spanned<bool>>,
    pub(crate) master_process: Option<Spanned<bool>>,
    pub(crate) worker_processes: Option<Spanned<Option<u32>>>,
    pub(crate) user: Option<Spanned<User>>,
    pub(crate) pid: Option<Spanned<PathBuf>>,
    pub(crate) working_directory: Option<Spanned<PathBuf>>,
    pub(crate) worker_rlimit_nofile: Option<Spanned<u64>>,
    pub(crate) worker_rlimit_core: Option<Spanned<u64>>,
    pub(crate) worker_priority: Option<Spanned<i32>>,
    pub(crate) worker_cpu_affinity: Option<Spanned<CpuAffinity>>,
    pub(crate) worker_shutdown_timeout: Option<Spanned<Duration>>,
    pub(crate) stop_signal: Option<Spanned<StopSignal>>,
    pub(crate) worker_memory: Option<Spanned<u64>>,
    pub(crate) error_log: Option<Spanned<Vec<ErrorLog>>>,
    pub(crate) worker_connections: Option<Spanned<u32>>,
    pub(crate) multi_accept: Option<Spanned<bool>>,
    pub(crate) use_method: Option<Spanned<()>>,
    pub(crate) http: Option<HttpDraft>,
}

/// http.
#[derive(Debug, Default)]
pub(crate) struct HttpDraft {
    pub(crate) level: LevelDraft,
    pub(crate) early: EarlyDraft,
    pub(crate) tls: TlsDraft,
    pub(crate) max_active_requests: Option<Spanned<u32>>,
    pub(crate) ticket_rotation: Option<Spanned<Duration>>,
    pub(crate) metrics: Option<Spanned<bool>>,
    pub(crate) servers: Vec<ServerDraft>,
    pub(crate) upstreams: Vec<UpstreamDraft>,
    pub(crate) maps: Vec<Map>,
    pub(crate) splits: Vec<Split>,
    pub(crate) matches: Vec<MatchBlock>,
    pub(crate) log_formats: Vec<LogFormat>,
}

/// server.
#[derive(Debug)]
pub(crate) struct ServerDraft {
    pub(crate) root: LocationDraft,
    pub(crate) early: EarlyDraft,
    pub(crate) tls: TlsDraft,
    pub(crate) listens: Vec<ListenDraft>,
    pub(crate) names: Vec<Spanned<ServerName>>,
    pub(crate) primary_name: Option<String>,
    pub(crate) span: Span,
}

/// Settings of http and server that hold before routing.
#[derive(Debug, Default)]
pub(crate) struct EarlyDraft {
    pub(crate) client_header_timeout: Option<Spanned<Duration>>,
    pub(crate) client_header_buffer_size: Option<Spanned<usize>>,
    pub(crate) large_client_header_buffers: Option<Spanned<(usize, usize)>>,
    pub(crate) max_headers: Option<Spanned<usize>>,
    pub(crate) underscores_in_headers: Option<Spanned<bool>>,
    pub(crate) ignore_invalid_headers: Option<Spanned<bool>>,
    pub(crate) merge_slashes: Option<Spanned<bool>>,
    pub(crate) accept_bare_lf: Option<Spanned<bool>>,
    /// `None` inside: `off`.
    pub(crate) limit_accept: Option<Spanned<Option<AcceptLimit>>>,
}

impl ServerDraft {
    pub(crate) fn new(span: Span) -> Self {
        Self {
            root: LocationDraft::new(LocationMatch::Server, String::new(), span),
            early: EarlyDraft::default(),
            tls: TlsDraft::default(),
            listens: Vec::new(),
            names: Vec::new(),
            primary_name: None,
            span,
        }
    }

    /// `server_name`.
    pub(crate) fn server_name(&mut self, reader: &mut Reader<'_>, directive: &Directive) {
        for word in &directive.args {
            let text = word.text.as_str();
            let first = self.primary_name.is_none();
            if first {
                self.primary_name = Some(text.to_owned());
            }
            if let Some(pattern) = text.strip_prefix('~') {
                if pattern.is_empty() {
                    let message = format!("empty regex in server name \"{text}\"");
                    reader.refuse(word.span, message, "a regular expression follows the \"~\"");
                } else {
                    // A host is compared in lower case, so an expression with capitals could only match without case.
                    let caseless = pattern.bytes().any(|byte| byte.is_ascii_uppercase());
                    let regex = reader.regex(pattern, caseless, word.span);
                    self.names
                        .push(Spanned::new(ServerName::Regex(regex), word.span));
                }
                continue;
            }
            if text.contains('/') {
                reader.warning(
                    word.span,
                    format!("server name \"{text}\" has suspicious symbols"),
                    "a server name is a host without scheme, port and path",
                );
            }
            match server_name(text, &reader.environment.hostname) {
                Some(name) => {
                    if first {
                        self.primary_name = Some(primary(&name));
                    }
                    self.names.push(Spanned::new(name, word.span));
                }
                None => reader.report(
                    Diagnostic::error(word.span, format!("server name \"{text}\" is invalid"))
                        .hint("a wildcard stands at one end: \"*.example.com\", \".example.com\" or \"www.example.*\""),
                ),
            }
        }
    }
}

/// What `$server_name` says for a first name: as written, in lower case, without the dot of `.example.com`.
fn primary(name: &ServerName) -> String {
    match name {
        ServerName::Exact(text) | ServerName::DotSuffix(text) => text.clone(),
        ServerName::Suffix(text) => format!("*.{text}"),
        ServerName::Prefix(text) => format!("{text}.*"),
        ServerName::Regex(_) => String::new(),
    }
}

fn server_name(text: &str, hostname: &str) -> Option<ServerName> {
    if text.eq_ignore_ascii_case("$hostname") {
        return Some(ServerName::Exact(hostname.to_ascii_lowercase()));
    }
    let text = text.to_ascii_lowercase();
    if let Some(rest) = text.strip_prefix("*.") {
        return plain(rest).map(ServerName::Suffix);
    }
    if let Some(rest) = text.strip_prefix('.') {
        return plain(rest).map(ServerName::DotSuffix);
    }
    if let Some(rest) = text.strip_suffix(".*") {
        return plain(rest).map(ServerName::Prefix);
    }
    if text.is_empty() {
        return Some(ServerName::Exact(text));
    }
    plain(&text).map(ServerName::Exact)
}

/// A name without a further wildcard or an empty label.
fn plain(text: &str) -> Option<String> {
    let fine =
        !text.is_empty() && !text.contains('*') && !text.contains("..") && !text.starts_with('.');
    fine.then(|| text.to_owned())
}

impl Reader<'_> {
    /// `worker_processes`.
    pub(crate) fn worker_processes(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<Option<u32>>>,
    ) {
        self.put(directive, slot, |reader, word| {
            if word.text == "auto" {
                return Some(None);
            }
            // The scoreboard has 4096 rows for all generations together.
            const MOST: u64 = 1024;
            match value::number(&word.text) {
                Some(number @ 1..=MOST) => u32::try_from(number).ok().map(Some),
                _ => {
                    reader.report(
                        Diagnostic::error(
                            word.span,
                            "\"worker_processes\" directive invalid value",
                        )
                        .hint(format!("it is \"auto\" or a number from 1 to {MOST}")),
                    );
                    None
                }
            }
        });
    }

    /// `user`.
    pub(crate) fn user(&mut self, directive: &Directive, slot: &mut Option<Spanned<User>>) {
        self.put(directive, slot, |_, word| {
            let group = directive.args.get(1).unwrap_or(word);
            Some(User {
                name: word.text.clone(),
                group: group.text.clone(),
            })
        });
    }

    /// `worker_memory`.
    pub(crate) fn worker_memory(&mut self, directive: &Directive, slot: &mut Option<Spanned<u64>>) {
        // With less a worker would refuse its first request.
        const LEAST: u64 = 8 << 20;
        self.put(directive, slot, |reader, word| {
            let size: u64 = reader.read_size(directive, word)?;
            if size < LEAST {
                let message = "\"worker_memory\" directive invalid value";
                reader.refuse(word.span, message, "it must be at least 8m");
                return None;
            }
            Some(size)
        });
    }

    /// `stop_signal`.
    pub(crate) fn stop_signal(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<StopSignal>>,
    ) {
        let choices = [
            ("fast", StopSignal::Fast),
            ("graceful", StopSignal::Graceful),
        ];
        self.choice(directive, slot, &choices);
    }

    /// `use`.
    pub(crate) fn event_method(&mut self, directive: &Directive, slot: &mut Option<Spanned<()>>) {
        self.put(directive, slot, |reader, word| {
            if word.text == "epoll" {
                return Some(());
            }
            reader.report(
                Diagnostic::error(word.span, format!("invalid event type \"{}\"", word.text))
                    .hint("kp has \"epoll\""),
            );
            None
        });
    }

    /// `worker_cpu_affinity`.
    pub(crate) fn cpu_affinity(
        &mut self,
        directive: &Directive,
        slot: &mut Option<Spanned<CpuAffinity>>,
    ) {
        let Some((first, rest)) = directive.args.split_first() else {
            return;
        };
        if first.text == "auto" {
            if let Some(surplus) = rest.get(1) {
                self.error(
                    surplus.span,
                    "invalid number of arguments in \"worker_cpu_affinity\" directive",
                );
            }
            let mask = match rest.first() {
                Some(word) => match self.cpu_mask(word) {
                    Some(mask) => Some(mask),
                    None => return,
                },
                None => None,
            };
            *slot = Some(Spanned::new(CpuAffinity::Auto(mask), first.span));
            return;
        }
        let masks: Vec<Vec<u32>> = directive
            .args
            .iter()
            .filter_map(|word| self.cpu_mask(word))
            .collect();
        if masks.len() == directive.args.len() {
            *slot = Some(Spanned::new(CpuAffinity::Masks(masks), first.span));
        }
    }

    /// `0101`: CPU 0 is the last character.
    fn cpu_mask(&mut self, word: &crate::syntax::Word) -> Option<Vec<u32>> {
        const CPUS: usize = 1024;
        if word.text.len() > CPUS {
            self.error(
                word.span,
                format!("\"worker_cpu_affinity\" supports up to {CPUS} CPUs only"),
            );
            return None;
        }
        if let Some(bad) = word
            .text
            .chars()
            .find(|c| *c != '0' && *c != '1' && *c != ' ')
        {
            self.error(
                word.span,
                format!("invalid character \"{bad}\" in \"worker_cpu_affinity\""),
            );
            return None;
        }
        let bits = word.text.chars().rev().filter(|c| *c != ' ');
        let cpus: Vec<u32> = (0..)
            .zip(bits)
            .filter(|(_, bit)| *bit == '1')
            .map(|(cpu, _)| cpu)
            .collect();
        if cpus.is_empty() {
            self.error(word.span, "no CPU is set in \"worker_cpu_affinity\"");
            return None;
        }
        Some(cpus)
    }
}
