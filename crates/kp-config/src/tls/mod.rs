//! OpenSSL's words. Texts that stand in configurations (cipher strings, suites of TLS 1.3, groups) each become a list of
//! what kp speaks, with the words that name nothing of that; [`names`] goes from numbers to words, for variables.

mod ciphers;
mod groups;
pub mod names;

pub(crate) use ciphers::{cipher_string, tls13_suites};
pub(crate) use groups::groups;

/// What a list came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selection<T> {
    /// What kp speaks of it, in order of preference.
    pub(crate) chosen: Vec<T>,
    /// Words that ask for something kp does not speak, in order.
    pub(crate) left_out: Vec<String>,
}

impl<T> Default for Selection<T> {
    fn default() -> Self {
        Self {
            chosen: Vec::new(),
            left_out: Vec::new(),
        }
    }
}
