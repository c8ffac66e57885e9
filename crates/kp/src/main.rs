//! The kp binary: the command line and the master process.

mod check;
mod cli;
#[cfg(test)]
mod completions;
mod control;
mod convert;
mod crew;
mod ctl;
mod demo_upstream;
mod explain;
mod generation;
mod inherit;
mod listeners;
mod logs;
mod master;
mod notify;
mod order;
mod pidfile;
mod report;
mod schema;
mod settings;
mod spawn;
mod start;
mod state;
mod upgrade;
mod version;

use cli::Command;
use std::ffi::OsString;
use std::process::ExitCode;
use upgrade::Program;

fn main() -> ExitCode {
    // First of all: whatever is opened from here on must not become stdin, stdout or stderr.
    if kp_sys::process::fill_standard_descriptors().is_err() {
        return ExitCode::FAILURE;
    }
    // It can only fail for a signal that does not exist.
    let _ = kp_sys::signals::ignore_file_size();
    let arguments: Vec<_> = std::env::args_os().collect();
    let command = match cli::parse(arguments.iter().skip(1).cloned()) {
        Ok(command) => command,
        Err(complaint) => {
            report::say(complaint);
            return ExitCode::FAILURE;
        }
    };
    if !matches!(command, Command::Run(_)) {
        // The server's own log takes over `log` once the configuration has named it; everything else speaks on stderr.
        env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    }
    carry_out(command, arguments)
}

fn carry_out(command: Command, arguments: Vec<OsString>) -> ExitCode {
    match command {
        Command::Run(options) => {
            let program = Program::called(arguments);
            start::serve(&options, program)
        }
        Command::Both(first, second) => {
            carry_out(*first, Vec::new());
            carry_out(*second, arguments)
        }
        Command::Test {
            options,
            dump,
            quiet,
        } => check::run(&options, dump, quiet),
        Command::Signal { options, order } => order::run(&options, order),
        Command::Status(options) => order::status(&options),
        Command::Ctl { options, arguments } => ctl::run(options, arguments),
        Command::Version => say(&version::short()),
        Command::Build => say(&version::build()),
        Command::Help => say(&version::help()),
        Command::Convert(order) => convert::run(&order),
        Command::Schema { context } => schema::run(context.as_deref()),
        Command::Explain { options, name } => explain::run(&options, name.as_deref()),
        Command::DemoUpstream { port, name } => demo_upstream::serve(port, &name),
    }
}

fn say(text: &str) -> ExitCode {
    report::print(text);
    ExitCode::SUCCESS
}
