//! What the master asks a worker while it serves, and what the worker finds: both travel as JSON.
//!
//! Decides what is said of the worker's state; what a person gets to see of it is the command line's affair. An inquiry is
//! answered within the turn it came in, so its work is bounded: all connections are glanced at, few are described.

use crate::error_log::{self, LEVELS};
use crate::reactor::Worker;
use serde::{Deserialize, Serialize};

/// What the master asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inquiry {
    /// Give every error log this level; `None`: its own again.
    LogLevel(Option<String>),
}

/// What the worker found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Findings {
    /// It was done.
    Done,
    /// The inquiry was none.
    Unknown,
}

impl Worker {
    /// Answers an inquiry.
    pub(crate) fn inquire(&mut self, inquiry: &[u8]) -> Vec<u8> {
        let findings = match serde_json::from_slice(inquiry) {
            Ok(Inquiry::LogLevel(name)) => {
                let known = LEVELS
                    .iter()
                    .find(|(known, _)| Some(*known) == name.as_deref());
                error_log::force_level(known.map(|(_, level)| *level));
                Findings::Done
            }
            Err(_) => Findings::Unknown,
        };
        serde_json::to_vec(&findings).unwrap_or_default()
    }
}
