//! Processes: fork, wait, kill, identity, limits, what a child keeps open, and the title shown by `ps`.

#![allow(unsafe_code)]

use crate::from_errno;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::{ForkResult, Gid, Group, Pid, Uid, User};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub use title::set_title;

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fork {
    /// The parent, with the child's process id.
    Parent(i32),
    /// The child.
    Child,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// `exit(code)`.
    Exited(i32),
    /// Killed by a signal.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// A core file was written.
        core_dumped: bool,
    },
}

/// Forks. An error if this process has more than one thread: locks that other threads hold would stay locked in the child.
pub fn fork() -> io::Result<Fork> {
    if thread_count()? != 1 {
        return Err(io::Error::other(
            "cannot fork: more than one thread is running",
        ));
    }
    fork_raw()
}

fn fork_raw() -> io::Result<Fork> {
    // SAFETY: the only thread of this process continues in the child, so no lock or allocator state is left half-way.
    match unsafe { nix::unistd::fork() }.map_err(from_errno)? {
        ForkResult::Parent { child } => Ok(Fork::Parent(child.as_raw())),
        ForkResult::Child => Ok(Fork::Child),
    }
}

fn thread_count() -> io::Result<usize> {
    // /proc may be missing (a bare chroot); then the caller's word has to do.
    match std::fs::read_dir("/proc/self/task") {
        Ok(tasks) => Ok(tasks.count()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(1),
        Err(error) => Err(error),
    }
}

/// Leaves this process at once: no destructors, no exit handlers. For a forked child that must not run its parent's.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Collects one child that has ended, without waiting; `None` if none has.
pub fn reap() -> io::Result<Option<(i32, Ending)>> {
    loop {
        match nix::sys::wait::waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => {
                return Ok(Some((pid.as_raw(), Ending::Exited(code))));
            }
            Ok(WaitStatus::Signaled(pid, signal, core_dumped)) => {
                return Ok(Some((
                    pid.as_raw(),
                    Ending::Signaled {
                        signal: signal as i32,
                        core_dumped,
                    },
                )));
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(None),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(from_errno(errno)),
        }
    }
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    let signal = Signal::try_from(signal).map_err(from_errno)?;
    nix::sys::signal::kill(Pid::from_raw(pid), signal).map_err(from_errno)
}

/// Whether a process of that number exists (it may belong to somebody else).
pub fn exists(pid: i32) -> bool {
    pid > 0
        && !matches!(
            nix::sys::signal::kill(Pid::from_raw(pid), None),
            Err(Errno::ESRCH)
        )
}

/// A descriptor that becomes readable when the process ends; the number cannot be reused for another one meanwhile.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes every descriptor from 3 up that is not in `keep`.
///
/// For a fresh child only, which must not use (or drop, so it ends with [`exit_now`] or `exit`) any object of its parent
/// that owned one of the others.
pub fn close_all_except(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep
        .iter()
        .filter_map(|fd| u32::try_from(*fd).ok())
        .filter(|fd| *fd > 2)
        .collect();
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep {
        if first < fd {
            close_range(first, fd - 1)?;
        }
        first = fd.saturating_add(1);
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: closing descriptors touches no memory; who calls this owns none of them any more (see close_all_except).
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Takes a variable out of the environment. Does nothing once this process has a second thread, which could be reading it.
pub fn forget_variable(name: &str) {
    if thread_count().is_ok_and(|count| count == 1) {
        // SAFETY: this process has one thread, and it is here.
        unsafe { std::env::remove_var(name) };
    }
}

/// Opens /dev/null at those of the descriptors 0–2 that are closed, so that no socket or log ever lands there.
pub fn fill_standard_descriptors() -> io::Result<()> {
    loop {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let fd = null.as_raw_fd();
        if fd > 2 {
            return Ok(());
        }
        // Kept open on purpose, for as long as the process lives. CLOEXEC does not matter there: what is closed at exec is
        // filled again by the program that starts.
        let _: RawFd = std::os::fd::IntoRawFd::into_raw_fd(null);
    }
}

/// What is left of becoming a daemon after the fork: an own session, no file mode mask, /dev/null as input and output.
/// stderr stays until the logs take over, as nginx.
pub fn detach() -> io::Result<()> {
    nix::unistd::setsid().map_err(from_errno)?;
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null).map_err(from_errno)?;
    nix::unistd::dup2_stdout(&null).map_err(from_errno)
}

/// Makes `file` this process's stderr.
pub fn replace_stderr(file: &impl AsFd) -> io::Result<()> {
    nix::unistd::dup2_stderr(file).map_err(from_errno)
}

/// Whether standard error goes to this very file.
pub fn is_stderr(file: &impl AsFd) -> bool {
    let identity = |fd: BorrowedFd<'_>| {
        let found = nix::sys::stat::fstat(fd).ok()?;
        Some((found.st_dev, found.st_ino))
    };
    let own = identity(file.as_fd());
    own.is_some() && own == identity(io::stderr().as_fd())
}

/// Takes standard input over, and leaves /dev/null in its place: who started this process may pass a channel there.
pub fn take_standard_input() -> io::Result<OwnedFd> {
    let passed = io::stdin().as_fd().try_clone_to_owned()?;
    let null = File::open("/dev/null")?;
    nix::unistd::dup2_stdin(&null).map_err(from_errno)?;
    Ok(passed)
}

/// Takes over `count` descriptors that were passed by number, from 3 on (the convention of LISTEN_FDS); they are closed on
/// exec from now on. A number that is not open is an error, and nothing is taken then.
///
/// Only the first call finds them, and it must come before this process has opened anything of its own: the numbers must
/// still be those that were passed.
pub fn take_passed(count: u32) -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if count == 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let count = RawFd::try_from(count).map_err(io::Error::other)?;
    let numbers = 3..count.saturating_add(3);
    for number in numbers.clone() {
        // SAFETY: fcntl with F_SETFD takes integers and touches no memory; a number that is not open is only an error.
        if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the numbers are open, who started this process has left them to it, and nobody takes them a second time.
    Ok(numbers
        .map(|number| unsafe { OwnedFd::from_raw_fd(number) })
        .collect())
}

/// A descriptor to give up when no other is left (EMFILE on accept).
pub fn spare_descriptor() -> io::Result<OwnedFd> {
    File::open("/dev/null").map(OwnedFd::from)
}

/// A user and group as the system's databases know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    user: String,
    uid: u32,
    gid: u32,
}

/// Why an [`Identity`] could not be found.
#[derive(Debug)]
pub enum UnknownIdentity {
    /// No such user.
    User(io::Error),
    /// No such group.
    Group(io::Error),
}

impl Identity {
    /// Looks both names up.
    pub fn named(user: &str, group: &str) -> Result<Self, UnknownIdentity> {
        let missing = || io::Error::from_raw_os_error(libc::ENOENT);
        let found =
            User::from_name(user).map_err(|errno| UnknownIdentity::User(from_errno(errno)))?;
        let found = found.ok_or_else(|| UnknownIdentity::User(missing()))?;
        let group =
            Group::from_name(group).map_err(|errno| UnknownIdentity::Group(from_errno(errno)))?;
        let group = group.ok_or_else(|| UnknownIdentity::Group(missing()))?;
        Ok(Self {
            user: found.name,
            uid: found.uid.as_raw(),
            gid: group.gid.as_raw(),
        })
    }

    /// The numeric user id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Becomes this user for good: group, supplementary groups, then user. Or says which call has failed.
    ///
    /// Root of a user namespace may not be allowed to change its groups (user_namespaces(7)), which is no harm where the
    /// user stays the same.
    pub fn assume(&self) -> Result<(), (&'static str, io::Error)> {
        let failed = |call| move |errno| (call, from_errno(errno));
        let gid = Gid::from_raw(self.gid);
        nix::unistd::setgid(gid).map_err(failed("setgid()"))?;
        let name = CString::new(self.user.as_str());
        let name = name.map_err(|error| ("initgroups()", io::Error::other(error)))?;
        match nix::unistd::initgroups(&name, gid) {
            Err(Errno::EPERM) if self.uid == effective_uid() => {}
            other => other.map_err(failed("initgroups()"))?,
        }
        nix::unistd::setuid(Uid::from_raw(self.uid)).map_err(failed("setuid()"))
    }

    /// Whether this user and group exist in this process's user namespace: nobody can become another one.
    pub fn is_mapped(&self) -> bool {
        is_mapped("/proc/self/uid_map", self.uid) && is_mapped("/proc/self/gid_map", self.gid)
    }

    /// Gives a file or directory to this user; its group stays.
    pub fn take_ownership(&self, path: &Path) -> io::Result<()> {
        nix::unistd::chown(path, Some(Uid::from_raw(self.uid)), None).map_err(from_errno)
    }
}

/// Whether a number is in a map of user_namespaces(7), whose lines are: first inside, first outside, how many.
fn is_mapped(map: &str, number: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(map) else {
        // There is no /proc, or there are no such namespaces.
        return true;
    };
    text.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.nth(1)) {
            (Some(Ok(first)), Some(Ok(count))) => {
                (first..first.saturating_add(count)).contains(&u64::from(number))
            }
            _ => false,
        }
    })
}

/// Whether this process runs with root's rights.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The user id whose rights this process has.
pub fn effective_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// This process's id.
pub fn id() -> i32 {
    nix::unistd::getpid().as_raw()
}

/// The open-file limit now in force.
pub fn open_files_limit() -> io::Result<u64> {
    getrlimit(Resource::RLIMIT_NOFILE)
        .map(|(soft, _)| soft)
        .map_err(from_errno)
}

/// Takes as many open files as this process may have: the soft limit is meant for programs that use select(2).
pub fn raise_open_files_limit() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(from_errno)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(from_errno)
}

/// Sets soft and hard open-file limits.
pub fn set_open_files_limit(files: u64) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, files, files).map_err(from_errno)
}

/// Sets the soft and hard limit of the size of core files.
pub fn set_core_limit(bytes: u64) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, bytes, bytes).map_err(from_errno)
}

/// Sets the scheduling priority of this process, from -20 to 19.
pub fn set_priority(nice: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Binds this process to some CPUs.
pub fn set_affinity(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize).map_err(from_errno)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(from_errno)
}

/// The CPUs this process may run on.
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let set = nix::sched::sched_getaffinity(Pid::from_raw(0)).map_err(from_errno)?;
    let count = u32::try_from(CpuSet::count()).unwrap_or(0);
    Ok((0..count)
        .filter(|cpu| set.is_set(*cpu as usize).unwrap_or(false))
        .collect())
}

/// Lets the kernel write core files again after the process changed its user.
pub fn set_dumpable() -> io::Result<()> {
    nix::sys::prctl::set_dumpable(true).map_err(from_errno)
}

mod title {
    //! The title that `ps` shows, written over the memory where the kernel put the arguments and the environment.

    use std::fs;
    use std::sync::OnceLock;

    /// Where the title goes: first byte and length of the kernel's argument and environment strings.
    struct Room {
        start: usize,
        length: usize,
    }

    static ROOM: OnceLock<Option<Room>> = OnceLock::new();

    /// Shows `title` in `ps`; a longer one than there is room for is cut. The first call must happen while the process has
    /// one thread, since it moves the environment out of the way. Does nothing where /proc is missing.
    ///
    /// `std::env::args` must have been read before: it reads the memory that is overwritten.
    pub fn set_title(title: &str) {
        let Some(room) = ROOM.get_or_init(|| find_room().inspect(|_| move_environment())) else {
            return;
        };
        let bytes = title.as_bytes();
        let shown = bytes.len().min(room.length.saturating_sub(1));
        let start = std::ptr::with_exposed_provenance_mut::<u8>(room.start);
        // SAFETY: the kernel mapped these bytes writable for the strings of this process's arguments and environment; the
        // environment was moved to the heap, the arguments are read at start only, and the two areas cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, shown) };
        // SAFETY: `shown` is less than the room's length.
        let rest = unsafe { start.add(shown) };
        // SAFETY: the rest of the same area; zeroes end every string that pointed into it.
        unsafe { std::ptr::write_bytes(rest, 0, room.length - shown) };
    }

    /// Fields 48–51 of /proc/self/stat: arg_start, arg_end, env_start, env_end.
    fn find_room() -> Option<Room> {
        if super::thread_count().ok()? != 1 {
            return None;
        }
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields
            .split_ascii_whitespace()
            .skip(45)
            .map(|field| field.parse::<usize>().unwrap_or(0));
        let (start, arguments_end, environment_start, environment_end) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        // The environment follows the arguments directly, else only the arguments are ours.
        let end = if environment_start == arguments_end {
            environment_end
        } else {
            arguments_end
        };
        (start != 0 && end > start).then(|| Room {
            start,
            length: end - start,
        })
    }

    /// Setting a variable copies it to the heap, so that nothing needs the kernel's strings any more.
    fn move_environment() {
        let variables: Vec<_> = std::env::vars_os().collect();
        for (name, value) in variables {
            // SAFETY: find_room made sure that this process has one thread.
            unsafe { std::env::set_var(&name, &value) };
        }
    }
}

#[cfg(test)]
pub(crate) fn fork_for_test() -> Fork {
    fork_raw().unwrap()
}

#[cfg(test)]
pub(crate) fn wait_for_test(pid: i32) -> Ending {
    match nix::sys::wait::waitpid(Pid::from_raw(pid), None).unwrap() {
        WaitStatus::Exited(_, code) => Ending::Exited(code),
        WaitStatus::Signaled(_, signal, core_dumped) => Ending::Signaled {
            signal: signal as i32,
            core_dumped,
        },
        other => panic!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::readable;
    use std::time::Duration;

    #[test]
    fn a_threaded_process_may_not_fork() {
        let threads = std::thread::scope(|scope| {
            let (open, wait) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || wait.recv());
            let refused = fork();
            drop(open);
            refused
        });
        assert!(threads.is_err());
    }

    #[test]
    fn a_single_threaded_child_forks_and_collects() {
        match fork_for_test() {
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
            Fork::Child => {
                let collected = match fork() {
                    Ok(Fork::Child) => exit_now(7),
                    Ok(Fork::Parent(grandchild)) => {
                        let ended = pidfd_open(grandchild)
                            .and_then(|fd| readable(&[fd.as_fd()], Some(Duration::from_secs(5))));
                        ended.is_ok_and(|flags| flags == [true])
                            && reap().is_ok_and(|one| one == Some((grandchild, Ending::Exited(7))))
                            && reap().is_ok_and(|one| one.is_none())
                    }
                    Err(_) => false,
                };
                exit_now(i32::from(!collected));
            }
        }
    }

    #[test]
    fn endings_name_the_signal() {
        match fork_for_test() {
            Fork::Parent(child) => {
                assert!(exists(child));
                kill(child, libc::SIGKILL).unwrap();
                assert_eq!(
                    wait_for_test(child),
                    Ending::Signaled {
                        signal: libc::SIGKILL,
                        core_dumped: false
                    }
                );
                assert!(!exists(child));
            }
            Fork::Child => loop {
                let _ = readable(&[], None);
            },
        }
    }

    #[test]
    fn a_child_closes_all_but_its_heritage() {
        let (kept, lost) = (
            File::open("/dev/null").unwrap(),
            File::open("/dev/null").unwrap(),
        );
        match fork_for_test() {
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
            Fork::Child => {
                let done = close_all_except(&[kept.as_raw_fd(), 1, -1]).is_ok();
                let open = |fd: RawFd| Path::new(&format!("/proc/self/fd/{fd}")).exists();
                exit_now(i32::from(
                    !(done && open(kept.as_raw_fd()) && !open(lost.as_raw_fd()) && open(2)),
                ));
            }
        }
    }

    #[test]
    fn closed_standard_descriptors_are_filled() {
        match fork_for_test() {
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
            Fork::Child => {
                let closed = close_range(0, 2).is_ok() && fill_standard_descriptors().is_ok();
                let is_null = |fd: RawFd| {
                    std::fs::read_link(format!("/proc/self/fd/{fd}"))
                        .is_ok_and(|path| path == Path::new("/dev/null"))
                };
                exit_now(i32::from(
                    !(closed && is_null(0) && is_null(1) && is_null(2)),
                ));
            }
        }
    }

    #[test]
    fn standard_input_can_be_a_channel_and_is_taken_once() {
        let (near, far) = crate::socket::seqpacket_pair().unwrap();
        match fork_for_test() {
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
            Fork::Child => {
                let placed = nix::unistd::dup2_stdin(&far).is_ok();
                let heard = take_standard_input()
                    .and_then(|channel| crate::socket::send_fds(&channel, b"x", &[]))
                    .and_then(|()| crate::socket::recv_fds(&near))
                    .is_ok_and(|said| said.is_some_and(|(text, _)| text == b"x"));
                let null = std::fs::read_link("/proc/self/fd/0")
                    .is_ok_and(|path| path == Path::new("/dev/null"));
                exit_now(i32::from(!(placed && heard && null)));
            }
        }
    }

    #[test]
    fn passed_descriptors_are_taken_once_and_only_if_all_are_there() {
        for (count, taken) in [(1, 1), (0, 0)] {
            match fork_for_test() {
                Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
                Fork::Child => {
                    let null = File::open("/dev/null");
                    let placed = null.is_ok_and(|null| {
                        let _ = close_all_except(&[null.as_raw_fd()]);
                        let number = std::os::fd::IntoRawFd::into_raw_fd(null);
                        // SAFETY: dup2 takes integers; 3 is nobody's after the line above unless it is `null` itself.
                        number == 3 || unsafe { libc::dup2(number, 3) } == 3
                    });
                    let first = take_passed(count).map_or(99, |fds| {
                        let number = fds.len();
                        std::mem::forget(fds);
                        number
                    });
                    let second = take_passed(1).map_or(99, |fds| fds.len());
                    exit_now(i32::from(
                        !(placed && first == taken && (count == 0 || second == 0)),
                    ));
                }
            }
        }
        match fork_for_test() {
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
            Fork::Child => {
                let _ = close_all_except(&[]);
                exit_now(i32::from(take_passed(2).is_ok()));
            }
        }
    }

    #[test]
    fn the_title_is_what_ps_reads_and_the_environment_survives() {
        match fork_for_test() {
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
            Fork::Child => {
                let before: Vec<_> = std::env::vars_os().collect();
                let shown = |title: &str| {
                    set_title(title);
                    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
                    line.split(|byte| *byte == 0).next() == Some(title.as_bytes())
                        && line.iter().skip(title.len()).all(|byte| *byte == 0)
                };
                let long = shown("kp: worker process is shutting down");
                let short = shown("kp: worker");
                let same = before == std::env::vars_os().collect::<Vec<_>>();
                exit_now(i32::from(!(long && short && same)));
            }
        }
    }

    #[test]
    fn a_variable_is_forgotten() {
        assert!(std::env::var_os("PATH").is_some());
        match fork_for_test() {
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
            Fork::Child => {
                forget_variable("PATH");
                exit_now(i32::from(std::env::var_os("PATH").is_some()));
            }
        }
    }

    #[test]
    fn a_user_namespace_has_the_users_of_its_map() {
        let path = std::env::temp_dir().join(format!("kp-map-{}", std::process::id()));
        let map = path.to_str().unwrap();
        std::fs::write(
            map,
            "         0       1000          1\n       100     100000        400\n",
        )
        .unwrap();
        let mapped = [0, 1, 99, 100, 499, 500].map(|number| is_mapped(map, number));
        assert_eq!(mapped, [true, false, false, true, true, false]);
        std::fs::remove_file(map).unwrap();
        assert!(is_mapped(map, 1), "without namespaces everybody exists");
    }

    #[test]
    fn identities_are_looked_up() {
        let root = Identity::named("root", "root").unwrap();
        assert_eq!(root.uid(), 0);
        assert!(matches!(
            Identity::named("no-such-user-here", "root"),
            Err(UnknownIdentity::User(_))
        ));
        assert!(matches!(
            Identity::named("root", "no-such-group-here"),
            Err(UnknownIdentity::Group(_))
        ));
    }

    #[test]
    fn limits_and_cpus_are_known() {
        assert!(open_files_limit().unwrap() > 0);
        assert!(!allowed_cpus().unwrap().is_empty());
    }
}
