//! Signals as bytes in a pipe, for the master and the workers alike.
//!
//! A handler only sets a flag and writes to a pipe of its own process. A child must not keep its parent's handlers (the
//! pipe is shared, so the wrong process would hear them): the fork dance is
//!
//! ```text
//! parent: block_all() · fork() · parent: unblock_all()
//!                              · child:  drop the parent's Signals, Signals::new(own) — which unblocks
//! ```
//!
//! so a signal that arrives in between is delivered to the right set of handlers. A signal that somebody in the family
//! once registered and the child does not register is ignored by the child, as nginx's workers ignore HUP.

#![allow(unsafe_code)]

use crate::from_errno;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use nix::libc::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGIO, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};

/// This process's subscription to some signals. Dropping it leaves them ignored.
#[derive(Debug)]
pub struct Signals {
    wake: UnixStream,
    flags: Vec<(i32, Arc<AtomicBool>)>,
    actions: Vec<SigId>,
}

impl Signals {
    /// Subscribes to `signals`, then unblocks all signals for this thread (see the module's fork dance).
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let (wake, notify) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let mut this = Self {
            wake,
            flags: Vec::new(),
            actions: Vec::new(),
        };
        for &signal in signals {
            let flag = Arc::new(AtomicBool::new(false));
            // Actions run in order of registration: the flag is up before the pipe wakes anybody.
            this.actions
                .push(signal_hook::flag::register(signal, Arc::clone(&flag))?);
            this.actions
                .push(pipe::register(signal, notify.try_clone()?)?);
            this.flags.push((signal, flag));
        }
        unblock_all()?;
        Ok(this)
    }

    /// The signals that came since the last call, each once, in the order of subscription.
    pub fn drain(&mut self) -> Vec<i32> {
        let mut waste = [0_u8; 64];
        while matches!((&self.wake).read(&mut waste), Ok(1..)) {}
        self.flags
            .iter()
            .filter(|(_, flag)| flag.swap(false, Ordering::SeqCst))
            .map(|(signal, _)| *signal)
            .collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for action in self.actions.drain(..) {
            unregister(action);
        }
    }
}

/// Makes a file that may grow no further (RLIMIT_FSIZE) an error of write(2), `EFBIG`: the signal for it would end this process.
/// Children and programs that are started ignore it, too.
pub fn ignore_file_size() -> io::Result<()> {
    // SAFETY: SIG_IGN is no handler; no code of ours runs when the signal comes.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }
        .map(|_| ())
        .map_err(from_errno)
}

/// Blocks every signal for this thread, before a fork.
pub fn block_all() -> io::Result<()> {
    SigSet::all().thread_block().map_err(from_errno)
}

/// Unblocks every signal for this thread.
pub fn unblock_all() -> io::Result<()> {
    SigSet::all().thread_unblock().map_err(from_errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::readable;
    use crate::process::{self, Ending, Fork, exit_now, fork_for_test, wait_for_test};
    use std::time::Duration;

    fn wait_and_drain(signals: &mut Signals) -> Vec<i32> {
        readable(&[signals.as_fd()], Some(Duration::from_secs(5))).unwrap();
        signals.drain()
    }

    // One test for the whole story, in a forked child: signals are process-wide.
    #[test]
    fn a_child_hears_its_own_signals_only() {
        match fork_for_test() {
            Fork::Parent(child) => assert_eq!(wait_for_test(child), Ending::Exited(0)),
            Fork::Child => exit_now(story().map_or_else(|step| step, |()| 0)),
        }
    }

    fn story() -> Result<(), i32> {
        let me = std::process::id() as i32;
        let check = |holds: bool, step: i32| if holds { Ok(()) } else { Err(step) };
        let mut master = Signals::new(&[SIGHUP, SIGUSR1, SIGTERM]).map_err(|_| 1)?;
        process::kill(me, SIGUSR1).map_err(|_| 2)?;
        process::kill(me, SIGHUP).map_err(|_| 2)?;
        check(wait_and_drain(&mut master) == [SIGHUP, SIGUSR1], 3)?;
        check(master.drain().is_empty(), 4)?;
        block_all().map_err(|_| 5)?;
        match fork_for_test() {
            Fork::Child => {
                // Arrives while blocked: must reach the child's own subscription.
                let worker = std::process::id() as i32;
                let sent =
                    process::kill(worker, SIGTERM).is_ok() && process::kill(worker, SIGHUP).is_ok();
                drop(master);
                let Ok(mut own) = Signals::new(&[SIGTERM]) else {
                    exit_now(20)
                };
                let heard = wait_and_drain(&mut own);
                exit_now(if sent && heard == [SIGTERM] { 0 } else { 21 });
            }
            Fork::Parent(child) => {
                unblock_all().map_err(|_| 6)?;
                check(wait_for_test(child) == Ending::Exited(0), 7)?;
            }
        }
        check(master.drain().is_empty(), 8)?;
        drop(master);
        process::kill(me, SIGHUP).map_err(|_| 9)
    }
}
