//! What `kp ctl` sends and gets, as JSON: commands and what is said when one is refused. The answers to the commands that are
//! done are the affair of those who do them.

use serde::{Deserialize, Serialize};

/// What the master is to do or to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Command {
    /// Shows the level of the error logs, or changes it.
    LogLevel {
        /// A level, or [`RESET`]; `None`: show it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        level: Option<String>,
    },
}

/// The level that gives every error log its own again.
pub(crate) const RESET: &str = "reset";

/// Why a command was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// What is wrong.
    pub(crate) error: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl Refusal {
    /// Without a hint.
    pub(crate) fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: None,
        }
    }

    /// With one.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The answer to `log-level`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogLevels {
    /// The level that every error log has instead of its own; `None`: each has its own.
    pub(crate) in_force: Option<String>,
    /// The error logs of the main context, as configured.
    pub(crate) configured: Vec<ConfiguredLog>,
    /// Workers that know of it.
    pub(crate) workers: usize,
    /// Process ids of workers that have not said in time that they know.
    pub(crate) silent: Vec<i32>,
}

/// One `error_log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfiguredLog {
    /// Its file, or `stderr`.
    pub(crate) log: String,
    /// Its level.
    pub(crate) level: String,
}
