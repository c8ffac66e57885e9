//! `kp schema`: prints the JSON Schema of the YAML form, for editors.

use crate::report;
use std::io::{self, Write};
use std::process::ExitCode;

/// `kp schema [CONTEXT]`.
pub(crate) fn run(context: Option<&str>) -> ExitCode {
    let context = context.unwrap_or("main");
    let Some(schema) = kp_config::schema::schema(context) else {
        report::say(format_args!(
            "there is no context \"{context}\": it can be {}",
            kp_config::schema::contexts().join(", ")
        ));
        return ExitCode::FAILURE;
    };
    match io::stdout().lock().write_all(schema.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
