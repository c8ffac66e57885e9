//! The pid file: written whole (by renaming), locked by the master for as long as it lives, removed at its end.
//!
//! The lock says whether a master lives; the text only says which one. So a stale file never stops a start, and a second
//! master with the same pid file is refused by name.

use kp_config::Diagnostic;
use kp_sys::io::open_at_once;
use kp_sys::lock;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A daemon has no umask. Who could write here could have any process signalled by those who believe the file.
const MODE: u32 = 0o644;
/// A number is not longer.
const TEXT_MAX_BYTES: u64 = 64;

/// This master's pid file.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Holds the lock. No other descriptor of this file may be closed in this process, or the lock is gone.
    locked: File,
}

/// The master that lives by this pid file, if any. Not to be asked by a master about its own file: see [`PidFile`].
pub(crate) fn living_master(path: &Path) -> Option<i32> {
    let file = open_at_once(File::options().read(true), path).ok()?;
    lock::holder(&file).ok().flatten()
}

/// Whether a pid file can be made here: told before anything is done that cannot be undone.
pub(crate) fn probe(path: &Path) -> Result<(), Diagnostic> {
    let trial = beside(path, &format!("trial.{}", kp_sys::process::id()));
    // Left by a kp with this number that was killed in the middle of this.
    let _ = fs::remove_file(&trial);
    let tried = File::options()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&trial)
        .and_then(|mut file| {
            // A disk may be full for what is in a file, and not for its name.
            let written = writeln!(file, "{}", kp_sys::process::id());
            fs::remove_file(&trial).and(written)
        });
    tried.map_err(|error| {
        Diagnostic::system(crate::report::failed("open()", path, &error))
            .hint("name a file that can be written with \"pid\"")
    })
}

impl PidFile {
    /// Writes the calling process's number. It must be the master already: locks are not inherited over fork.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let temporary = beside(path, &format!("new.{}", kp_sys::process::id()));
        let written =
            Self::write(&temporary).and_then(|file| fs::rename(&temporary, path).map(|()| file));
        match written {
            Ok(locked) => Ok(Self {
                path: path.to_owned(),
                locked,
            }),
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                Err(error)
            }
        }
    }

    /// Whether this path leads to this very file, however it is written.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let place = |found: fs::Metadata| (found.dev(), found.ino());
        match (self.locked.metadata(), fs::metadata(path)) {
            (Ok(ours), Ok(found)) => place(ours) == place(found),
            _ => false,
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it another name; what lies there is replaced. It stays locked.
    pub(crate) fn rename(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.path = path.to_owned();
        Ok(())
    }

    /// Removes it, at the master's end or when a reload moved it; not what somebody else has put there.
    pub(crate) fn remove(self) {
        if self.is_at(&self.path) {
            // There is nobody to tell about a failure.
            let _ = fs::remove_file(&self.path);
        }
    }

    fn write(path: &Path) -> io::Result<File> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(MODE)
            .open(path)?;
        writeln!(file, "{}", kp_sys::process::id())?;
        if lock::write_lock(&file)? {
            Ok(file)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }
}

/// The process to signal: who holds the lock, whatever the text says by now. Without a holder it is the number in the text,
/// unless that is the number of a stranger today.
pub(crate) fn master(path: &Path) -> Result<i32, String> {
    let shown = path.display();
    match living_master(path) {
        Some(pid) if pid > 0 => return Ok(pid),
        Some(_) => {
            return Err(format!(
                "the master process of \"{shown}\" is in another pid namespace"
            ));
        }
        None => {}
    }
    let pid = read(path)?;
    if kp_sys::process::exists(pid) {
        return Err(format!(
            "kp does not run: the process {pid} of \"{shown}\" has ended, and another one has its number"
        ));
    }
    Ok(pid)
}

/// What a pid file says, or nginx's complaint about it.
pub(crate) fn read(path: &Path) -> Result<i32, String> {
    let mut text = String::new();
    open_at_once(File::options().read(true), path)
        .and_then(|file| match file.metadata()?.is_file() {
            true => file.take(TEXT_MAX_BYTES).read_to_string(&mut text),
            false => Err(io::Error::other("it is no regular file")),
        })
        .map_err(|error| crate::report::failed("open()", path, &error))?;
    let number = text.trim_matches(['\r', '\n', ' ']);
    number
        .parse::<i32>()
        .ok()
        .filter(|pid| *pid > 0)
        .ok_or_else(|| format!("invalid PID number \"{number}\" in \"{}\"", path.display()))
}

/// A file's neighbour: its name with something appended.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_whole_read_back_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kp.pid");
        fs::write(&path, "12345 stale").unwrap();
        assert_eq!(living_master(&path), None);
        let pid_file = PidFile::create(&path).unwrap();
        assert_eq!(read(&path), Ok(std::process::id() as i32));
        assert!(fs::read_to_string(&path).unwrap().ends_with('\n'));
        assert!(pid_file.is_at(&folder.path().join("./kp.pid")));
        assert!(!pid_file.is_at(&folder.path().join("other")));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let second = PidFile::create(&path).unwrap();
        pid_file.remove();
        assert!(path.exists(), "it is the second one's");
        second.remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn renamed_it_is_removed_under_the_new_name_and_only_if_it_is_still_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("kp.pid"), folder.path().join("aside"));
        let mut old = PidFile::create(&path).unwrap();
        old.rename(&aside).unwrap();
        assert_eq!((old.path(), path.exists()), (&*aside, false));
        let new = PidFile::create(&path).unwrap();
        old.remove();
        assert_eq!((aside.exists(), path.exists()), (false, true));
        fs::write(&aside, "somebody else's").unwrap();
        fs::rename(&aside, &path).unwrap();
        new.remove();
        assert!(path.exists());
        let missing = folder.path().join("no/such");
        assert!(PidFile::create(&path).unwrap().rename(&missing).is_err());
    }

    #[test]
    fn complaints_are_nginx_s() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kp.pid");
        let shown = path.display();
        let missing = format!("open() \"{shown}\" failed (2: No such file or directory)");
        assert_eq!(read(&path), Err(missing));
        for (text, number) in [
            ("", ""),
            ("x\n", "x"),
            ("-1\n", "-1"),
            ("0\n", "0"),
            ("1 2\n", "1 2"),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(
                read(&path),
                Err(format!("invalid PID number \"{number}\" in \"{shown}\""))
            );
        }
    }

    #[test]
    fn a_fifo_is_no_pid_file_and_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kp.pid");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        assert_eq!(living_master(&path), None);
        assert!(
            read(&path)
                .unwrap_err()
                .ends_with("(it is no regular file)")
        );
    }

    #[test]
    fn a_stranger_with_the_number_of_a_dead_master_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kp.pid");
        fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert!(
            master(&path)
                .unwrap_err()
                .contains("another one has its number")
        );
        fs::write(&path, "2147483647\n").unwrap();
        assert_eq!(master(&path), Ok(i32::MAX));
        fs::write(&path, "").unwrap();
        assert!(master(&path).unwrap_err().starts_with("invalid PID number"));
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("is-a-directory");
        fs::create_dir(&path).unwrap();
        assert!(PidFile::create(&path).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
