//! The state file beside the pid file (`kp.pid` → `kp.state`): how the last reload went, for `kp -s reload`, which waits for
//! it. A signal carries no answer, and a socket would have to outlive and be found by both sides; a file that is replaced
//! whole can also be read by a person.
//!
//! A reload is known by its number: one that began after the number was read has read the configuration after that, too.

use crate::pidfile::beside;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// The master that wrote it.
    pub(crate) pid: i32,
    /// The generation that serves; 0: none yet.
    pub(crate) generation: u32,
    /// Its workers that were ready.
    pub(crate) workers: u32,
    /// Configurations whose reading has begun, the first included.
    pub(crate) begun: u64,
    /// Those that have come to an end, good or bad.
    pub(crate) ended: u64,
    /// Why the last of them failed; empty: it serves.
    pub(crate) failure: String,
    /// What the master listens on.
    pub(crate) addresses: Vec<String>,
}

impl State {
    /// Where the state file of a master with this pid file is.
    pub(crate) fn path(pid_file: &Path) -> PathBuf {
        if pid_file
            .extension()
            .is_some_and(|extension| extension == "pid")
        {
            pid_file.with_extension("state")
        } else {
            beside(pid_file, "state")
        }
    }

    /// Replaces the file.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let temporary = beside(path, "new");
        fs::write(&temporary, self.text()).and_then(|()| fs::rename(&temporary, path))
    }

    /// Reads the file; `None` if there is none, or none that kp wrote.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(path).ok()?)
    }

    fn text(&self) -> String {
        let Self {
            pid,
            generation,
            workers,
            begun,
            ended,
            failure,
            addresses,
        } = self;
        let mut text = format!(
            "pid {pid}\ngeneration {generation}\nworkers {workers}\nbegun {begun}\nended {ended}\n"
        );
        for address in addresses {
            let _ = writeln!(text, "listen {address}");
        }
        for line in failure.lines() {
            let _ = writeln!(text, "failure {line}");
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut state = Self::default();
        for line in text.lines() {
            let (key, value) = line.split_once(' ')?;
            match key {
                "pid" => state.pid = value.parse().ok()?,
                "generation" => state.generation = value.parse().ok()?,
                "workers" => state.workers = value.parse().ok()?,
                "begun" => state.begun = value.parse().ok()?,
                "ended" => state.ended = value.parse().ok()?,
                "listen" => state.addresses.push(value.to_owned()),
                "failure" => {
                    state.failure.push_str(value);
                    state.failure.push('\n');
                }
                _ => {}
            }
        }
        (state.pid != 0).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = State::path(&folder.path().join("kp.pid"));
        assert!(path.ends_with("kp.state"));
        assert_eq!(State::read(&path), None);
        let state = State {
            pid: 12,
            generation: 3,
            workers: 2,
            begun: 5,
            ended: 4,
            failure: "kp: [emerg] no\n  2 | x\n\n".into(),
            addresses: vec!["127.0.0.1:80".into(), "unix:/a b".into()],
        };
        state.write(&path).unwrap();
        assert_eq!(State::read(&path), Some(state));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::write(&path, "something else\n").unwrap();
        assert_eq!(State::read(&path), None);
    }

    #[test]
    fn pid_files_without_the_usual_ending_get_a_neighbour() {
        assert_eq!(
            State::path(Path::new("/run/proxy")),
            Path::new("/run/proxy.state")
        );
        assert_eq!(
            State::path(Path::new("/run/a.state")),
            Path::new("/run/a.state.state")
        );
    }
}
