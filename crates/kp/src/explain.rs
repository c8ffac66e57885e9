//! `kp explain`: prints what is known of a directive or a variable, for the configuration that there is.

use crate::cli::Options;
use crate::report;
use crate::settings::Place;
use kp_config::explain::{self, Tree};
use std::io::{self, Write};
use std::process::ExitCode;

/// `kp explain [NAME]`.
pub(crate) fn run(options: &Options, name: Option<&str>) -> ExitCode {
    let Some(name) = name else {
        return print(&explain::list());
    };
    let tree = match tree(options) {
        Ok(tree) => tree,
        Err(code) => return code,
    };
    match explain::explain(name, tree.as_ref()) {
        Ok(text) => print(&text),
        Err(complaint) => {
            report::say(complaint);
            ExitCode::FAILURE
        }
    }
}

/// The configuration; `None` where none was named and the built-in one cannot be read.
fn tree(options: &Options) -> Result<Option<Tree>, ExitCode> {
    let named = options.configuration.is_some();
    let place = match Place::find(options) {
        Ok(place) => place,
        Err(_) if !named => return Ok(None),
        Err(complaint) => {
            report::say(complaint);
            return Err(ExitCode::FAILURE);
        }
    };
    let tree = Tree::read(place.load_options());
    if !tree.is_partial() {
        return Ok(Some(tree));
    }
    if !tree.is_there() {
        if !named {
            return Ok(None);
        }
        report::print(&tree.rendered());
        return Err(ExitCode::FAILURE);
    }
    report::say(format_args!(
        "a part of {} cannot be read (kp -t tells which); what follows is without it",
        place.path.display()
    ));
    Ok(Some(tree))
}

/// Writes to the standard output; who has closed it knows enough.
fn print(text: &str) -> ExitCode {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
