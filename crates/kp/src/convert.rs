//! `kp convert`: prints a configuration in nginx's syntax as YAML, and tells what of it kp does not support.

use crate::report;
use kp_config::convert::{self, Converted};
use kp_config::{LoadOptions, Loaded};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `kp convert` was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Order {
    /// The file to convert.
    pub(crate) file: PathBuf,
    /// `-o`: where to, instead of to the standard output.
    pub(crate) output: Option<PathBuf>,
    /// `--inline`: included files are taken in.
    pub(crate) inline: bool,
}

/// Something of the configuration is not in the YAML.
const INCOMPLETE: u8 = 1;
/// There is no YAML.
const UNREADABLE: u8 = 2;

/// `kp convert FILE`.
pub(crate) fn run(order: &Order) -> ExitCode {
    let absolute = std::path::absolute(&order.file).unwrap_or_else(|_| order.file.clone());
    let prefix = absolute.parent().map(Path::to_owned).unwrap_or_default();
    let options = LoadOptions {
        path: absolute,
        prefix,
        hostname: kp_sys::hostname(),
        root: kp_sys::process::is_root(),
        ..LoadOptions::default()
    };
    let regexes = |loaded: &Loaded| {
        let found = loaded
            .config
            .as_ref()
            .map(|config| config.http.regexes.as_slice());
        kp_worker::regex_problems(found.unwrap_or(&loaded.regexes))
    };
    let done = match convert::convert(&options, order.inline, regexes) {
        Ok(done) => done,
        Err(unreadable) => {
            report::print(&kp_config::render(
                &unreadable.diagnostics,
                &unreadable.sources,
            ));
            return ExitCode::from(UNREADABLE);
        }
    };
    if let Err(complaint) = write(&done.yaml, order.output.as_deref()) {
        report::say(complaint);
        return ExitCode::from(UNREADABLE);
    }
    tell(&done, order)
}

/// Writes the YAML. A file that is there already stays as it is: somebody may have worked on it.
fn write(yaml: &str, output: Option<&Path>) -> Result<(), String> {
    let Some(path) = output else {
        return match io::stdout().lock().write_all(yaml.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("write() failed ({})", report::numbered(&error)))
            }
            _ => Ok(()),
        };
    };
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(|error| report::failed("open()", path, &error))?;
    file.write_all(yaml.as_bytes())
        .map_err(|error| report::failed("write()", path, &error))
}

/// What the reader of the YAML must know.
fn tell(done: &Converted, order: &Order) -> ExitCode {
    report::print(&kp_config::render(&done.gaps, &done.sources));
    for difference in &done.differences {
        report::say(format_args!(
            "the YAML does not say the same, which is a mistake of kp: {}",
            difference.trim_end()
        ));
    }
    let from = order.file.parent().map(Path::to_owned);
    let to = order
        .output
        .as_ref()
        .map(|output| output.parent().map(Path::to_owned));
    if !done.included.is_empty() {
        let names: Vec<String> = done
            .included
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        report::say(format_args!(
            "included in nginx's syntax, as they are: {}; `kp convert --inline` takes them in, and each can be converted by itself",
            names.join(", ")
        ));
        if to.is_some_and(|to| to != from) {
            report::say(
                "names of included files are relative to the directory of the main file: keep the YAML beside the original",
            );
        }
    }
    if done.gaps.is_empty() && done.differences.is_empty() {
        return ExitCode::SUCCESS;
    }
    let (here, inside) = gaps(done);
    match here {
        0 => {}
        1 => {
            report::say("1 thing is not in the YAML: see above; where it stood there is a comment");
        }
        here => report::say(format_args!(
            "{here} things are not in the YAML: see above; where they stood there are comments"
        )),
    }
    if inside > 0 {
        report::say(format_args!(
            "in files that stay as they are: {inside}; mend them there, or kp refuses the whole"
        ));
    }
    ExitCode::from(INCOMPLETE)
}

/// How many gaps are in what was converted, and how many in files that are included as they are.
fn gaps(done: &Converted) -> (usize, usize) {
    let stays = |gap: &&kp_config::Diagnostic| {
        let file = gap.span.and_then(|span| done.sources.file(span.file));
        file.is_some_and(|file| done.included.contains(&file.path))
    };
    let inside = done.gaps.iter().filter(stays).count();
    (done.gaps.len() - inside, inside)
}
