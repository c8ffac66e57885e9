//! `kp explain`: prints what is known of a directive or a variable, for the configuration that there is, or of a reason.

mod reasons;

use crate::cli::Options;
use crate::report;
use crate::settings::Place;
use kp_config::directives;
use kp_config::explain::{self, Tree};
use kp_config::foreign::foreign;
use std::io::{self, Write};
use std::process::ExitCode;

/// `kp explain [NAME]`. A reason is looked for first: for it no configuration is needed.
pub(crate) fn run(options: &Options, name: Option<&str>) -> ExitCode {
    let Some(name) = name else {
        let mut out = explain::list();
        reasons::list(&mut out);
        return print(&out);
    };
    if let Some(text) = reasons::of_status(name) {
        return print(&text);
    }
    let reason = reasons::about(name);
    let is_directive = || directives::named(name).next().is_some();
    if let Some(text) = reason.as_ref().filter(|_| !is_directive()) {
        return print(text);
    }
    let tree = match tree(options) {
        Ok(tree) => tree,
        Err(code) => return code,
    };
    match explain::explain(name, tree.as_ref()) {
        Ok(mut text) => {
            // Such as `return`, which is both.
            if let Some(reason) = reason {
                text.push('\n');
                text.push_str(&reason);
            }
            print(&text)
        }
        Err(complaint) => {
            report::say(unknown(name, complaint));
            ExitCode::FAILURE
        }
    }
}

/// What is said of an unknown name: it may be meant for a reason.
fn unknown(name: &str, complaint: String) -> String {
    if name.starts_with('$') || foreign(name).is_some() {
        return complaint;
    }
    let names: Vec<&str> = directives::all().map(|entry| entry.name).collect();
    if let Some(near) = reasons::nearest(name, &names) {
        return format!("unknown reason \"{name}\": did you mean \"{near}\"?");
    }
    match reasons::holding(name) {
        tokens if tokens.is_empty() => complaint,
        tokens => format!("{complaint}; reasons: {}", tokens.join(", ")),
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
