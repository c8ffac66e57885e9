//! The pid file's lock: `fcntl`, not `flock`. An fcntl lock belongs to the process, so it ends with the master even where
//! orphaned workers inherited the descriptor; an flock would block the next start as long as one of them lives.

use crate::from_errno;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::io;
use std::os::fd::AsFd;

/// Takes a write lock on the whole file for this process. `Ok(false)`: another process holds one.
///
/// Closing any descriptor of the same file in this process gives the lock up.
pub fn write_lock(file: &impl AsFd) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_SETLK(&whole_file())) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(from_errno(errno)),
    }
}

/// Which other process holds a lock on the file, if any.
pub fn holder(file: &impl AsFd) -> io::Result<Option<i32>> {
    let mut probe = whole_file();
    fcntl(file, FcntlArg::F_GETLK(&mut probe)).map_err(from_errno)?;
    Ok((probe.l_type != libc::F_UNLCK as libc::c_short).then_some(probe.l_pid))
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Ending, Fork, exit_now, fork_for_test, wait_for_test};
    use std::fs::File;

    #[test]
    fn another_process_sees_the_lock_and_its_holder() {
        let path = std::env::temp_dir().join(format!("kp-lock-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        assert!(write_lock(&file).unwrap());
        let parent = std::process::id() as i32;
        match fork_for_test() {
            Fork::Child => {
                let again = File::options().write(true).open(&path).unwrap();
                let refused = !write_lock(&again).unwrap();
                let named = holder(&again).unwrap() == Some(parent);
                exit_now(i32::from(!(refused && named)));
            }
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
        }
        drop(file);
        match fork_for_test() {
            Fork::Child => {
                let again = File::options().write(true).open(&path).unwrap();
                let free = holder(&again).unwrap().is_none();
                exit_now(i32::from(!(free && write_lock(&again).unwrap())));
            }
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
        }
        std::fs::remove_file(&path).unwrap();
    }
}
