//! Starting another binary in this one's place: which program, with which arguments, environment and descriptors.
//!
//! What it is handed, and what the two masters tell each other, is in [`crate::inherit`]; when it may be started and what
//! follows from its success or its end is in [`crate::generation`].

use crate::inherit::{self, Estate, VARIABLE};
use crate::report;
use kp_sys::socket::seqpacket_pair;
use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a pid file's name ends with while the new binary lives; nginx's.
pub(crate) const ASIDE: &str = "oldbin";
/// What a service manager sets for the process that it starts, and for no other.
const FOR_ONE_PROCESS: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The program that is running, as it was called: what an upgrade starts anew from the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Found at start, since the working directory and PATH say where: a name with a slash is a path, another one is in
    /// PATH. Without a name the running file has to do.
    pub(crate) fn called(arguments: Vec<OsString>) -> Self {
        let name = arguments
            .first()
            .map(OsString::as_os_str)
            .unwrap_or_default();
        let path = if name.as_bytes().contains(&b'/') {
            std::path::absolute(name).ok()
        } else {
            in_path(name, std::env::var_os("PATH").as_deref())
        };
        let running = || std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| name.into());
        Self {
            path: path.unwrap_or_else(running),
            arguments,
        }
    }

    /// As one line, for people.
    pub(crate) fn command_line(&self) -> String {
        let words: Vec<_> = self
            .arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    }

    /// Starts it with everything it is to have. Its process id and this end of the channel, or why it could not be started.
    pub(crate) fn start(&self, estate: &Estate<BorrowedFd<'_>>) -> Result<(i32, OwnedFd), String> {
        let (ours, theirs) = seqpacket_pair()
            .map_err(|error| format!("socketpair() failed ({})", report::numbered(&error)))?;
        inherit::send(&ours, estate).map_err(|error| {
            format!(
                "passing the listening sockets failed ({})",
                report::numbered(&error)
            )
        })?;
        let mut command = Command::new(&self.path);
        command
            .args(self.arguments.iter().skip(1))
            .env(VARIABLE, "1")
            .stdin(Stdio::from(theirs));
        if let Some(name) = self.arguments.first() {
            command.arg0(name);
        }
        for variable in FOR_ONE_PROCESS {
            command.env_remove(variable);
        }
        // Every other descriptor of this process is closed on exec.
        let child = command
            .spawn()
            .map_err(|error| report::failed("execve()", &self.path, &error))?;
        let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
        Ok((pid, ours))
    }
}

/// The executable file that a shell would find.
fn in_path(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    std::env::split_paths(path?)
        .map(|folder| folder.join(name))
        .filter_map(|file| std::path::absolute(file).ok())
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};

    fn program(name: &str) -> Program {
        Program::called(vec![name.into(), "-c".into(), "a b".into()])
    }

    #[test]
    fn the_name_says_where_the_program_is() {
        assert_eq!(program("/usr/sbin/kp").path, Path::new("/usr/sbin/kp"));
        let here = std::env::current_dir().unwrap();
        assert_eq!(program("./bin/kp").path, here.join("bin/kp"));
        let this = std::env::current_exe().unwrap();
        assert_eq!(program("no-such-program-anywhere").path, this);
        assert_eq!(Program::called(Vec::new()).path, this);
        assert_eq!(program("kp").command_line(), "kp -c a b");
    }

    #[test]
    fn path_is_searched_for_what_can_be_executed() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (folder, mode) in [(&first, 0o644), (&second, 0o755)] {
            let file = File::create(folder.path().join("kp")).unwrap();
            file.set_permissions(Permissions::from_mode(mode)).unwrap();
        }
        let path = std::env::join_paths([first.path(), second.path()]).unwrap();
        let found = in_path("kp".as_ref(), Some(&path));
        assert_eq!(found, Some(second.path().join("kp")));
        assert_eq!(in_path("".as_ref(), Some(&path)), None);
        assert_eq!(in_path("kp".as_ref(), None), None);
    }

    #[test]
    fn what_cannot_be_started_is_told_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kp");
        let estate = Estate {
            pid: 1,
            pid_file: PathBuf::new(),
            daemon: false,
            tickets: None,
            overrides: None,
            sockets: Vec::new(),
        };
        let complaint = || {
            let said = program(&path.to_string_lossy()).start(&estate).unwrap_err();
            let shown = format!("execve() \"{}\" failed (", path.display());
            said.strip_prefix(&shown).unwrap().to_owned()
        };
        assert_eq!(complaint(), "2: No such file or directory)");
        fs::write(&path, "neither a script nor a program").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(complaint(), "13: Permission denied)");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(complaint(), "8: Exec format error)");
    }
}
