//! The master's answers for people.

use super::table::{Column, Table, printable};
use super::words::{Line, Wish};
use crate::control::command::{Command, LogLevels};
use std::fmt::Write;

/// An answer as text; `None`: it is not what this command is answered with.
pub(crate) fn people(line: &Line, answer: &str) -> Option<String> {
    let Wish::Command(command) = &line.wish else {
        return None;
    };
    match command {
        Command::LogLevel { .. } => serde_json::from_str(answer).ok().map(log_levels),
    }
}

fn log_levels(levels: LogLevels) -> String {
    let mut text = match &levels.in_force {
        Some(level) => format!(
            "every error log has level {}, until \"kp ctl log-level reset\" or a restart; a reload does not end it\n",
            printable(level)
        ),
        None => "every error log has its own level\n".into(),
    };
    let mut table = Table::new(&[Column::Words("ERROR LOG"), Column::Words("LEVEL")]);
    for one in levels.configured {
        table.row([one.log, one.level]);
    }
    if !table.is_empty() {
        text.push_str("\nmain context as configured:\n");
        text.push_str(&table.text("  "));
    }
    text.push_str(&silent(&levels.silent));
    text
}

/// Workers that have not answered.
fn silent(pids: &[i32]) -> String {
    let mut text = String::new();
    for pid in pids {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "worker process {pid} has not answered in 1 s");
    }
    text
}
