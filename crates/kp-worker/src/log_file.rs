//! Opening a log, where `/dev/stdout` and `/dev/stderr` are the streams this process was started with.
//!
//! A container or a supervisor hands over a pipe or a socket. A socket cannot be opened by that path at all, a pipe that
//! somebody else made only by root; so where opening fails the stream itself is duplicated. Such a log cannot be moved away
//! either, so it is never opened again.

use kp_sys::io::open_at_once;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Symbolic links that are followed from a log's name to a stream (`/var/log/kp/access.log` → `/dev/stdout`).
const LINKS_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Output,
    Error,
}

/// Opens a log to append to it; makes the file if need be. A fifo that nobody reads is an error: nobody waits for a reader.
pub fn open(path: &Path) -> io::Result<File> {
    match stream(path) {
        // Opened before it is duplicated: an own place in a file, own flags of a terminal.
        Some(stream) => {
            open_at_once(File::options().append(true), path).or_else(|_| stream.duplicate())
        }
        // A daemon has no umask; a log is written by nobody else.
        None => open_at_once(File::options().create(true).append(true).mode(0o644), path),
    }
}

/// Whether the path leads to a stream of this process: there is nothing to open anew then.
pub fn is_stream(path: &Path) -> bool {
    stream(path).is_some()
}

fn stream(path: &Path) -> Option<Stream> {
    let mut path: PathBuf = path.to_owned();
    for _ in 0..LINKS_MAX {
        match path.to_str() {
            Some("/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") => return Some(Stream::Output),
            Some("/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2") => return Some(Stream::Error),
            _ => {}
        }
        let link = fs::read_link(&path).ok()?;
        path = path.parent().unwrap_or(Path::new("/")).join(link);
    }
    None
}

impl Stream {
    fn duplicate(self) -> io::Result<File> {
        let fd: OwnedFd = match self {
            Self::Output => io::stdout().as_fd().try_clone_to_owned(),
            Self::Error => io::stderr().as_fd().try_clone_to_owned(),
        }?;
        Ok(fd.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_and_links_of_the_streams_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        symlink("/dev/stdout", file("access.log")).unwrap();
        symlink("access.log", file("second.log")).unwrap();
        symlink("/proc/self/fd/2", file("error.log")).unwrap();
        symlink("circle.log", file("circle.log")).unwrap();
        symlink("plain.log", file("link.log")).unwrap();
        fs::write(file("plain.log"), "").unwrap();
        for (path, expected) in [
            ("/dev/stdout".into(), Some(Stream::Output)),
            ("/dev/stderr".into(), Some(Stream::Error)),
            ("/dev/fd/1".into(), Some(Stream::Output)),
            (file("access.log"), Some(Stream::Output)),
            (file("second.log"), Some(Stream::Output)),
            (file("error.log"), Some(Stream::Error)),
            (file("circle.log"), None),
            (file("plain.log"), None),
            (file("link.log"), None),
            (file("missing.log"), None),
            ("/dev/null".into(), None),
        ] {
            let path: PathBuf = path;
            assert_eq!(stream(&path), expected, "{}", path.display());
        }
    }

    #[test]
    fn a_log_is_made_and_appended_to() {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        for text in ["one\n", "two\n"] {
            open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert!(open(&folder.path().join("no/a.log")).is_err());
    }
}
