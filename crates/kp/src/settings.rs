//! The configuration that the command line names: found, loaded, compiled and checked against this machine, or a complete
//! list of what is wrong with it.

use crate::cli::Options;
use crate::control;
use crate::report;
use crate::state::{self, Kept};
use kp_config::model::ListenAddress;
use kp_config::{Config, Diagnostic, ERROR_LOG, LoadOptions, STATE, Severity, Sources};
use kp_shm::TicketReader;
use kp_sys::process::{self, Identity, UnknownIdentity};
use kp_worker::Prepared;
use std::io;
use std::path::{Path, PathBuf};

/// Built-in prefix.
pub(crate) const PREFIX: &str = "/etc/kp";
/// Where the configuration is looked for without `-c`, in this order.
pub(crate) fn default_configurations(prefix: &Path) -> (PathBuf, PathBuf) {
    (prefix.join("kp.yaml"), prefix.join("kp.conf"))
}

/// Everything about the configuration that was decided before it was read.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The configuration file.
    pub(crate) path: PathBuf,
    /// A file that may have been meant: `-c` is relative to the prefix, not to the working directory.
    meant: Option<PathBuf>,
    load: LoadOptions,
}

impl Place {
    /// Turns the command line into paths that do not depend on the working directory.
    pub(crate) fn find(options: &Options) -> Result<Self, String> {
        let here = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let prefix = here(options.prefix.as_deref().unwrap_or(PREFIX.as_ref()));
        let path = match &options.configuration {
            Some(path) => prefix.join(path),
            None => {
                let (first, second) = default_configurations(&prefix);
                if first.exists() {
                    first
                } else if second.exists() {
                    second
                } else {
                    let (first, second) = (first.display(), second.display());
                    return Err(format!(
                        "[emerg] no configuration: neither {first} nor {second} exists, and -c names none"
                    ));
                }
            }
        };
        let error_log = options.error_log.as_ref().map(|log| match log.to_str() {
            Some("stderr") => log.clone(),
            _ => prefix.join(log),
        });
        let globals = options.globals.clone();
        let load = LoadOptions {
            path: path.clone(),
            text: None,
            prefix,
            // Only who names a prefix wants everything in it; the built-in one holds configuration alone.
            state: options.prefix.is_none().then(|| STATE.into()),
            globals,
            error_log,
            resolve_names: true,
            hostname: kp_sys::hostname(),
            root: process::is_root(),
        };
        let meant = options.configuration.as_deref().map(here);
        let meant = meant.filter(|meant| !path.exists() && meant.is_file());
        Ok(Self { path, meant, load })
    }

    /// What is loaded, and how.
    pub(crate) fn load_options(&self) -> &LoadOptions {
        &self.load
    }

    /// What relative paths are relative to.
    pub(crate) fn prefix(&self) -> &Path {
        &self.load.prefix
    }

    /// Loads and checks, certificates included. What is wrong is the same for `-t`, a start and a reload. Session tickets
    /// are sealed with the keys of `tickets`; who serves nobody has none.
    pub(crate) fn check(&self, tickets: Option<TicketReader>) -> Result<Checked, Refused> {
        let loaded = kp_config::load(&self.load);
        let (mut diagnostics, sources) = (loaded.diagnostics, loaded.sources);
        let Some(config) = loaded.config else {
            if let (Some(meant), Some(missing)) = (&self.meant, diagnostics.first_mut()) {
                missing.hint = Some(format!(
                    "a relative name starts at the prefix {}: did you mean -c {}?",
                    self.prefix().display(),
                    meant.display()
                ));
            }
            diagnostics.extend(kp_worker::regex_problems(&loaded.regexes));
            in_order(&mut diagnostics);
            return Err(Refused {
                diagnostics,
                sources,
            });
        };
        let identity = identity_of(&config.main, &mut diagnostics);
        diagnostics.extend(in_the_master_s_place(&config));
        let kept = state::read(&config).unwrap_or_else(|complaints| {
            diagnostics.extend(complaints);
            Kept::default()
        });
        match kp_worker::prepare(config, tickets) {
            Ok((prepared, warnings)) if !has_error(&diagnostics) => {
                diagnostics.extend(warnings);
                in_order(&mut diagnostics);
                Ok(Checked {
                    prepared,
                    identity,
                    kept,
                    findings: Refused {
                        diagnostics,
                        sources,
                    },
                })
            }
            Ok(_) => Err(Refused {
                diagnostics,
                sources,
            }),
            Err(more) => {
                diagnostics.extend(more);
                in_order(&mut diagnostics);
                Err(Refused {
                    diagnostics,
                    sources,
                })
            }
        }
    }

    /// The pid file that the configuration names, as far as it can be read; and what is wrong with it, if it cannot be used.
    /// For who wants to find a running master, whatever has become of its file meanwhile: no names are looked up.
    pub(crate) fn pid_file(&self) -> (Option<PathBuf>, Option<Refused>) {
        let loaded = kp_config::load(&LoadOptions {
            resolve_names: false,
            ..self.load.clone()
        });
        let refused = loaded.config.is_none().then_some(Refused {
            diagnostics: loaded.diagnostics,
            sources: loaded.sources,
        });
        (loaded.pid, refused)
    }

    /// Where complaints go when the configuration names no log because it is wrong: `-e`, else the built-in file.
    pub(crate) fn early_log(&self) -> Option<&Path> {
        let path = self.load.error_log.as_deref().unwrap_or(ERROR_LOG.as_ref());
        (path != Path::new("stderr")).then_some(path)
    }
}

/// Unix sockets of the configuration that lie where the master's own files go.
fn in_the_master_s_place(config: &Config) -> impl Iterator<Item = Diagnostic> {
    let pid = &config.main.pid;
    let control = control::path_of(pid);
    config.http.listeners.iter().filter_map(move |listener| {
        let ListenAddress::Unix(path) = &listener.address else {
            return None;
        };
        let what = if *path == control {
            "control socket"
        } else if path == pid {
            "pid file"
        } else {
            return None;
        };
        let text = format!(
            "\"unix:{}\" is the place of kp's own {what}",
            path.display()
        );
        let hint = "give the listener another path, or move kp's files with \"pid\"";
        Some(Diagnostic::error(listener.span, text).hint(hint))
    })
}

/// A configuration that can be used.
#[derive(Debug)]
pub(crate) struct Checked {
    /// Configuration and what was compiled from it.
    pub(crate) prepared: Prepared,
    /// Whom the workers become; `None`: they stay who the master is.
    pub(crate) identity: Option<Identity>,
    /// What its `state` files say.
    pub(crate) kept: Kept,
    /// Warnings, and what was read.
    pub(crate) findings: Refused,
}

/// What was found, and in which text.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Errors and warnings.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The text they point into.
    pub(crate) sources: Sources,
}

impl Refused {
    /// For a terminal: with lines, carets and hints.
    pub(crate) fn rendered(&self) -> String {
        kp_config::render(&self.diagnostics, &self.sources)
    }

    /// One line for each, for the error log.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (Severity, String)> {
        self.diagnostics.iter().map(|one| {
            let place = one.span.and_then(|span| {
                let source = self.sources.files.get(span.file.0 as usize)?;
                Some(format!(
                    " in {}:{}:{}",
                    source.path.display(),
                    span.line,
                    span.column
                ))
            });
            (
                one.severity,
                one.message.clone() + &place.unwrap_or_default(),
            )
        })
    }

    /// Logs them: errors at `emerg`, warnings at `warn`.
    pub(crate) fn log(&self) {
        for (severity, line) in self.lines() {
            match severity {
                Severity::Error => log::error!(target: "emerg", "{line}"),
                Severity::Warning => log::warn!("{line}"),
            }
        }
    }

    /// The same, with what was found later.
    pub(crate) fn with(mut self, more: Vec<Diagnostic>) -> Self {
        self.diagnostics.extend(more);
        self
    }
}

fn in_order(diagnostics: &mut [Diagnostic]) {
    diagnostics.sort_by_key(|one| one.span.map(kp_config::Span::place));
}

fn has_error(diagnostics: &[Diagnostic]) -> bool {
    diagnostics
        .iter()
        .any(|one| one.severity == Severity::Error)
}

/// `user`, looked up. Only root can become somebody else.
fn identity_of(
    main: &kp_config::model::Main,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Identity> {
    if !process::is_root() {
        if let Some(user) = &main.user {
            let text = "the \"user\" directive makes sense only if the master process runs with super-user privileges, ignored";
            diagnostics.push(Diagnostic::warning(user.span, text));
        }
        return None;
    }
    let Some(user) = &main.user else {
        return nobody();
    };
    let complaint = |call: &str, name: &str, error: &io::Error| {
        // ENOENT is the "no such name" of the databases; nginx then names no system error either.
        let reason = match error.raw_os_error() {
            Some(2) | None => String::new(),
            Some(_) => format!(" ({})", report::numbered(error)),
        };
        Diagnostic::error(user.span, format!("{call}(\"{name}\") failed{reason}"))
    };
    match Identity::named(&user.name, &user.group) {
        Ok(identity) => Some(identity),
        Err(UnknownIdentity::User(error)) => {
            let advice = "name a user of this system, as `getent passwd` lists them";
            diagnostics.push(complaint("getpwnam", &user.name, &error).hint(advice));
            None
        }
        Err(UnknownIdentity::Group(error)) => {
            let advice = format!(
                "the group is the user's own name unless it is given: user {} GROUP;",
                user.name
            );
            diagnostics.push(complaint("getgrnam", &user.group, &error).hint(advice));
            None
        }
    }
}

/// nginx's built-in user; its group has one of two names. In a container that has no other user than its root, the workers
/// stay that: outside of it, it is nobody in particular.
fn nobody() -> Option<Identity> {
    ["nogroup", "nobody"]
        .iter()
        .find_map(|group| Identity::named("nobody", group).ok())
        .filter(Identity::is_mapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        prefix: &Path,
        configuration: Option<&str>,
        error_log: Option<&str>,
    ) -> Result<Place, String> {
        Place::find(&Options {
            prefix: Some(prefix.to_owned()),
            configuration: configuration.map(PathBuf::from),
            error_log: error_log.map(PathBuf::from),
            globals: None,
        })
    }

    #[test]
    fn without_a_name_yaml_comes_before_nginx_s_form_and_their_lack_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (yaml, conf) = default_configurations(folder.path());
        let complaint = found(folder.path(), None, None).unwrap_err();
        assert!(
            complaint.contains(&*yaml.to_string_lossy())
                && complaint.contains(&*conf.to_string_lossy())
        );
        std::fs::write(&conf, "").unwrap();
        assert_eq!(found(folder.path(), None, None).unwrap().path, conf);
        std::fs::write(&yaml, "").unwrap();
        assert_eq!(found(folder.path(), None, None).unwrap().path, yaml);
    }

    #[test]
    fn names_are_relative_to_the_prefix() {
        let prefix = Path::new("/srv/kp/");
        assert_eq!(
            found(prefix, Some("a/kp.conf"), None).unwrap().path,
            Path::new("/srv/kp/a/kp.conf")
        );
        assert_eq!(
            found(prefix, Some("/x.yaml"), None).unwrap().path,
            Path::new("/x.yaml")
        );
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            found("run".as_ref(), Some("kp.yaml"), None).unwrap().path,
            here.join("run/kp.yaml")
        );
        let log = |name| {
            found(prefix, Some("c"), name)
                .unwrap()
                .early_log()
                .map(Path::to_owned)
        };
        assert_eq!(log(Some("e.log")), Some("/srv/kp/e.log".into()));
        assert_eq!(log(Some("stderr")), None);
        assert_eq!(log(None), Some(ERROR_LOG.into()));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_for_a_terminal_and_for_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let text = "events {}\nbogus on;\nhttp { server { server_name ~(a; listen 1; } server { server_name ~(b; } }\n";
        std::fs::write(folder.path().join("kp.conf"), text).unwrap();
        let refused = found(folder.path(), None, None)
            .unwrap()
            .check(None)
            .unwrap_err();
        let place = format!("in {}:2:1", folder.path().join("kp.conf").display());
        let (severity, line) = refused.lines().next().unwrap();
        assert_eq!(
            (severity, line),
            (
                Severity::Error,
                format!("unknown directive \"bogus\" {place}")
            )
        );
        // A regular expression is not compiled before everything else is right, but told together with the rest.
        let text = refused.rendered();
        assert_eq!(text.matches("unclosed group in ").count(), 2, "{text}");
        assert!(
            text.starts_with("kp: [emerg] unknown directive") && text.contains(&place),
            "{text}"
        );
    }
}
