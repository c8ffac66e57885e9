//! From the draft to the model: defaults, inheritance, cross-checks and ids, each exactly once.
//!
//! Both front ends hand their tree to [`resolve`], and nothing else makes a [`Config`]. It does not read files and does
//! not compile regular expressions; it looks names up when the environment says so.

mod health;
mod http;
mod limits;
mod lint;
mod listen;
mod location;
mod page;
mod proxy;
mod proxy_tls;
mod target;
mod tls;
mod upstream;

use crate::diagnostic::{Diagnostic, Severity};
use crate::draft::{self, MainDraft, Reader};
use crate::model::{
    Config, CpuAffinity, ErrorLog, Http, Level, LogTarget, Main, RegexSource, StopSignal,
};
use crate::span::{Span, Spanned};
use crate::syntax::Directive;
use std::path::PathBuf;

/// What the configuration's meaning depends on besides its text.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    /// Relative paths (logs, pid, temp paths, root) start here; absolute.
    pub(crate) prefix: PathBuf,
    /// Certificates and what goes with them start here: the directory of the configuration file; absolute.
    pub(crate) directory: PathBuf,
    /// Temporary files that have no directory of their own start here; relative to the prefix.
    pub(crate) state: PathBuf,
    /// The built-in pid file, where `pid` is not given.
    pub(crate) pid: PathBuf,
    /// The built-in error log, or the one of `-e`; `stderr` is the standard error. It holds where `error_log` is not given.
    pub(crate) error_log: PathBuf,
    /// The built-in access log, where `access_log` is not given.
    pub(crate) access_log: PathBuf,
    /// The host's name, for `server_name $hostname`.
    pub(crate) hostname: String,
    /// Whether host names are looked up. Without it the unspecified address stands for each: good for comparing
    /// configurations, not for serving.
    pub(crate) resolve_names: bool,
    /// Whether the process was started by root: a server without `listen` is at port 80 then, else at 8000.
    pub(crate) root: bool,
}

/// What came of a tree.
pub(crate) struct Resolved {
    /// There exactly if no diagnostic is an error.
    pub(crate) config: Option<Config>,
    /// `pid`.
    pub(crate) pid: PathBuf,
    /// Findings.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The regular expressions of a configuration that cannot be used.
    pub(crate) regexes: Vec<RegexSource>,
}

/// Makes a configuration of a tree.
pub(crate) fn resolve(tree: &[Directive], environment: &Environment) -> Resolved {
    let mut reader = Reader::new(environment, tree);
    let draft = draft::read(tree, &mut reader);
    let mut config = config(draft, &mut reader);
    let diagnostics = tidy(std::mem::take(&mut reader.diagnostics));
    let failed = diagnostics
        .iter()
        .any(|diagnostic| diagnostic.severity == Severity::Error);
    let pid = config.main.pid.clone();
    if failed {
        return Resolved {
            config: None,
            pid,
            diagnostics,
            regexes: std::mem::take(&mut config.http.regexes),
        };
    }
    Resolved {
        config: Some(config),
        pid,
        diagnostics,
        regexes: Vec::new(),
    }
}

fn config(mut draft: MainDraft, reader: &mut Reader<'_>) -> Config {
    let http = draft.http.take();
    let main = main(draft, reader);
    let (http, temp_paths) = match http {
        Some(http) => http::resolve(http, &main.error_log, reader),
        None => (
            Http {
                log_formats: vec![draft::predefined_format(&reader.names)],
                ..Http::default()
            },
            Vec::new(),
        ),
    };
    refuse_errors_in_gzip(&main, &http, reader);
    let http = Http {
        user_variables: std::mem::take(&mut reader.names).into_names(),
        regexes: std::mem::take(&mut reader.regexes),
        type_maps: std::mem::take(&mut reader.type_maps),
        rate_zones: std::mem::take(&mut reader.rate_zones),
        place_zones: std::mem::take(&mut reader.place_zones),
        log_file_caches: std::mem::take(&mut reader.log_file_caches),
        ..http
    };
    Config {
        main,
        http,
        log_files: std::mem::take(&mut reader.log_files),
        log_places: std::mem::take(&mut reader.log_places),
        log_buffers: std::mem::take(&mut reader.log_buffers),
        syslogs: std::mem::take(&mut reader.syslogs),
        temp_paths,
    }
}

fn main(draft: MainDraft, reader: &mut Reader<'_>) -> Main {
    let error_log = match draft.error_log {
        Some(stated) => stated.value,
        None => vec![default_error_log(reader)],
    };
    Main {
        daemon: or(draft.daemon, true),
        master_process: or(draft.master_process, true),
        worker_processes: or(draft.worker_processes, Some(1)),
        user: draft.user,
        pid: or(draft.pid, reader.environment.pid.clone()),
        error_log,
        worker_connections: or(draft.worker_connections, 512),
        multi_accept: or(draft.multi_accept, false),
        worker_rlimit_nofile: draft.worker_rlimit_nofile.map(|value| value.value),
        worker_rlimit_core: draft.worker_rlimit_core.map(|value| value.value),
        worker_priority: draft.worker_priority.map(|value| value.value),
        worker_cpu_affinity: or(draft.worker_cpu_affinity, CpuAffinity::Off),
        worker_shutdown_timeout: draft
            .worker_shutdown_timeout
            .map(|value| value.value)
            .filter(|time| !time.is_zero()),
        worker_memory: or(draft.worker_memory, 512 << 20),
        stop_signal: or(draft.stop_signal, StopSignal::Fast),
        working_directory: draft.working_directory.map(|value| value.value),
    }
}

/// The value, or what holds without one.
fn or<T>(slot: Option<Spanned<T>>, default: T) -> T {
    slot.map_or(default, |value| value.value)
}

/// Lines of an error log as they are would break the compressed stream.
fn refuse_errors_in_gzip(main: &Main, http: &Http, reader: &mut Reader<'_>) {
    let of_locations = http.locations.iter().flat_map(|one| &one.error_log);
    let mut spans = Vec::new();
    for log in main.error_log.iter().chain(of_locations) {
        let LogTarget::File(id) = log.target else {
            continue;
        };
        let buffer = reader.log_buffers.get(id.index()).copied().flatten();
        if buffer.is_some_and(|buffer| buffer.gzip.is_some())
            && let Some(Some(span)) = reader.log_places.get(id.index())
        {
            spans.push(*span);
        }
    }
    for span in spans {
        let message = "this file is an access_log with \"gzip\" and an error_log as well";
        reader.refuse(span, message, "give the error log a file of its own");
    }
}

fn default_error_log(reader: &mut Reader<'_>) -> ErrorLog {
    let path = reader.environment.error_log.to_string_lossy().into_owned();
    let target = if path == "stderr" {
        LogTarget::Stderr
    } else {
        LogTarget::File(reader.log_file(&path, None))
    };
    ErrorLog {
        target,
        level: Level::Error,
        json: false,
    }
}

/// In the order of the text, each finding once (what is inherited is checked on every level).
fn tidy(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let place = |diagnostic: &Diagnostic| diagnostic.span.map(Span::place);
    diagnostics.sort_by_key(place);
    diagnostics.dedup_by(|one, other| place(one) == place(other) && one.message == other.message);
    diagnostics
}

#[cfg(test)]
mod tests;
