//! Text (YAML or nginx syntax) → one complete, immutable [`Config`], or a list of diagnostics with positions.
//!
//! `sources` reads files, `nginx` and `yaml` turn their text into the same [`syntax::Directive`] tree, `directives`
//! is the table of what may stand where, `resolve` applies defaults, inheritance and cross-checks exactly once.

mod compile;
pub mod convert;
pub mod diagnostic;
pub mod directives;
mod draft;
mod dump;
pub mod explain;
pub mod foreign;
pub mod json_types;
mod lint;
pub mod model;
mod nginx;
pub mod overrides;
mod render;
mod resolve;
pub mod schema;
mod scope;
mod sources;
pub mod span;
pub mod suggest;
pub mod syntax;
pub mod template;
#[cfg(test)]
mod testing;
pub mod tls;
mod value;
mod yaml;

pub use diagnostic::{Diagnostic, Severity};
pub use dump::dump;
pub use model::Config;
pub use render::render;
pub use span::{Span, Spanned};
pub use syntax::Sources;

use model::RegexSource;
use resolve::Environment;
use std::collections::HashSet;
use std::path::PathBuf;

/// A time as directives have it: `30`, `1m30s`, `500ms`.
pub fn duration(text: &str) -> Option<std::time::Duration> {
    value::time(text, value::Finest::Milliseconds)
}

/// The pid file, where `pid` is not given.
pub const PID: &str = "/run/kp.pid";
/// The error log, where neither `error_log` nor `-e` is given.
pub const ERROR_LOG: &str = "/var/log/kp/error.log";
/// The access log, where `access_log` is not given.
pub const ACCESS_LOG: &str = "/var/log/kp/access.log";

/// Where temporary files are, where neither a `..._temp_path` nor `-p` is given.
pub const STATE: &str = "/var/lib/kp";

/// What to load.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The configuration file (`-c`); its ending chooses the syntax (`.yaml`, `.yml`: YAML, else nginx's). Relative to the
    /// prefix.
    pub path: PathBuf,
    /// The file's text, where it is not to be read: then the path says where it would lie, and in which syntax it is.
    pub text: Option<std::sync::Arc<str>>,
    /// The prefix (`-p`): what relative log, pid and temporary paths and `root` are relative to.
    pub prefix: PathBuf,
    /// Where temporary files are if the configuration does not say; `None`: in the prefix.
    pub state: Option<PathBuf>,
    /// Directives in front of the file's (`-g`), in nginx's syntax.
    pub globals: Option<String>,
    /// The error log until the configuration says otherwise (`-e`); `stderr` is the standard error.
    pub error_log: Option<PathBuf>,
    /// Whether host names are looked up. Without it the unspecified address stands for each: good for comparing
    /// configurations, not for serving.
    pub resolve_names: bool,
    /// The host's name, for `server_name $hostname`.
    pub hostname: String,
    /// Whether the process was started by root: a server without `listen` is at port 80 then, else at 8000.
    pub root: bool,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration; there is one exactly if no diagnostic is an error.
    pub config: Option<Config>,
    /// `pid`, as far as the text could be read: where a running master is found, whatever else is wrong. `None` where no
    /// text could be read at all.
    pub pid: Option<PathBuf>,
    /// Findings, sorted by place.
    pub diagnostics: Vec<Diagnostic>,
    /// The regular expressions of a configuration that cannot be used: whether they are valid is found where they are
    /// compiled, and is to be told together with the other findings.
    pub regexes: Vec<RegexSource>,
    /// What was read, for [`render()`] and [`dump()`].
    pub sources: Sources,
}

/// Reads, parses and resolves a configuration. Every finding of every step is returned; nothing is printed.
pub fn load(options: &LoadOptions) -> Loaded {
    let reading = sources::read(options);
    let mut diagnostics = reading.diagnostics;
    let mut config = None;
    let mut regexes = Vec::new();
    let mut pid = None;
    if !reading.sources.files.is_empty() {
        let error_log = options.error_log.clone();
        let file = options.prefix.join(&options.path);
        let file = std::path::absolute(&file).unwrap_or(file);
        let environment = Environment {
            directory: file.parent().map(PathBuf::from).unwrap_or_default(),
            prefix: std::path::absolute(&options.prefix).unwrap_or_else(|_| options.prefix.clone()),
            state: options.state.clone().unwrap_or_default(),
            pid: PID.into(),
            error_log: error_log.unwrap_or_else(|| ERROR_LOG.into()),
            access_log: ACCESS_LOG.into(),
            hostname: options.hostname.clone(),
            // A name may be that of a group in a part that could not be read.
            resolve_names: options.resolve_names && reading.complete,
            root: options.root,
        };
        let resolved = resolve::resolve(&reading.directives, &environment);
        diagnostics.extend(resolved.diagnostics);
        config = resolved.config;
        pid = Some(resolved.pid);
        regexes = resolved.regexes;
    }
    let failed = diagnostics
        .iter()
        .any(|diagnostic| diagnostic.severity == Severity::Error);
    if let Some(config) = config.as_ref().filter(|_| !failed) {
        diagnostics.extend(lint::check(&reading.directives, config));
    }
    if failed && let Some(config) = config.take() {
        regexes = config.http.regexes;
    }
    Loaded {
        config,
        pid,
        regexes,
        diagnostics: in_order(diagnostics, &reading.sources),
        sources: reading.sources,
    }
}

/// In the order of the text; what is wrong in a file that is included several times is said once.
fn in_order(mut diagnostics: Vec<Diagnostic>, sources: &Sources) -> Vec<Diagnostic> {
    diagnostics.sort_by_key(|diagnostic| diagnostic.span.map(Span::place));
    let mut seen = HashSet::new();
    diagnostics.retain(|diagnostic| {
        let span = diagnostic.span.unwrap_or_default();
        let path = sources.file(span.file).map(|source| source.path.clone());
        seen.insert((path, span.line, span.column, diagnostic.message.clone()))
    });
    diagnostics
}

#[cfg(test)]
mod tests {
    use super::{LoadOptions, Loaded, load, render};

    fn load_files(files: &[(&str, &str)]) -> Loaded {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        load(&LoadOptions {
            path: directory.path().join(files[0].0),
            prefix: "/prefix".into(),
            resolve_names: true,
            ..LoadOptions::default()
        })
    }

    fn messages(loaded: &Loaded) -> Vec<String> {
        let place = |one: &crate::Diagnostic| one.span.map_or(0, |span| span.line);
        let found = loaded.diagnostics.iter();
        found
            .map(|one| format!("{} {}", place(one), one.message))
            .collect()
    }

    #[test]
    fn both_syntaxes_make_the_same_configuration() {
        let yaml = "events:\nhttp: {upstream: {a: {server: 127.0.0.1:1}}, server: {listen: 8080, location: {/: {proxy_pass: http://a}}}}";
        let nginx = "events {} http { upstream a { server 127.0.0.1:1; } server { listen 8080; location / { proxy_pass http://a; } } }";
        let yaml = load_files(&[("kp.yaml", yaml)]);
        let nginx = load_files(&[("kp.conf", nginx)]);
        assert_eq!(messages(&yaml), [""; 0]);
        assert_eq!(messages(&nginx), [""; 0]);
        assert!(yaml.config.is_some());
        assert!(yaml.config == nginx.config);
    }

    #[test]
    fn sets_of_words_may_be_given_in_parts() {
        let parts = "events {} http { proxy_next_upstream error; proxy_next_upstream http_503; proxy_ignore_headers Vary; proxy_ignore_headers Expires; keepalive_disable msie6; keepalive_disable safari; server { } }";
        let once = "events:\nhttp: {proxy_next_upstream: error http_503, proxy_ignore_headers: [Vary, Expires], keepalive_disable: [msie6, safari], server: }";
        let parts = load_files(&[("kp.conf", parts)]);
        let once = load_files(&[("kp.yaml", once)]);
        assert_eq!(messages(&parts), [""; 0]);
        assert_eq!(messages(&once), [""; 0]);
        assert!(parts.config == once.config);
    }

    #[test]
    fn errors_of_every_step_come_in_the_order_of_the_text() {
        let loaded = load_files(&[(
            "kp.conf",
            "events {}\nhttp {\n  nonsense on;\n  server {\n    listen 8080\n  }\n  merge_slashes maybe;\n}\n",
        )]);
        assert!(loaded.config.is_none());
        let lines: Vec<_> = messages(&loaded)
            .iter()
            .map(|one| one[..1].to_owned())
            .collect();
        assert_eq!(lines, ["3", "6", "7"], "{:?}", messages(&loaded));
    }

    #[test]
    fn an_error_in_a_file_included_twice_is_said_once() {
        let loaded = load_files(&[
            (
                "kp.conf",
                "events {}\nhttp {\n  server { include x; }\n  server { listen 81; include x; }\n}\n",
            ),
            ("x", "nonsense on;\n"),
        ]);
        assert_eq!(messages(&loaded), ["1 unknown directive \"nonsense\""]);
        assert!(render(&loaded.diagnostics, &loaded.sources).contains("included at"));
    }

    #[test]
    fn a_group_in_a_file_that_is_missing_is_not_missed() {
        let loaded = load_files(&[(
            "kp.conf",
            "events {}\nhttp {\n  include upstreams;\n  server { location / { proxy_pass http://api.invalid; } }\n}\n",
        )]);
        let found = messages(&loaded);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("3 open()"), "{found:?}");
    }

    #[test]
    fn the_pid_file_is_known_although_much_else_is_wrong() {
        for (name, text) in [
            (
                "kp.conf",
                "pid run/a.pid;\nbogus on;\nhttp { server { listen x",
            ),
            (
                "kp.yaml",
                "pid: run/a.pid\nbogus: on\nhttp: {server: {listen: x}}\n",
            ),
        ] {
            let loaded = load_files(&[(name, text)]);
            assert!(loaded.config.is_none());
            assert_eq!(loaded.pid, Some("/prefix/run/a.pid".into()), "{name}");
        }
        let loaded = load_files(&[("kp.conf", "bogus on;\n")]);
        assert_eq!(loaded.pid, Some(super::PID.into()));
    }

    #[test]
    fn without_a_file_there_is_one_error() {
        let loaded = load(&LoadOptions {
            path: "/nowhere/kp.conf".into(),
            ..LoadOptions::default()
        });
        assert_eq!((loaded.diagnostics.len(), &loaded.pid), (1, &None));
        let shown = render(&loaded.diagnostics, &loaded.sources);
        assert_eq!(
            shown,
            "kp: [emerg] open() \"/nowhere/kp.conf\" failed (2: No such file or directory)\n"
        );
    }
}
