//! The worker's own descriptors: signals, the channel to the master, the master itself, the wake-up of the job threads.

use crate::exhaustion;
use crate::heritage::message;
use crate::jobs::{Done, Purpose};
use crate::log_file;
use crate::reactor::Worker;
use crate::token::{Key, Kind};
use kp_config::model::StopSignal;
use kp_shm::State;
use kp_sys::signals::{self, Signals};
use kp_tls::PairUpdate;
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Signals a worker acts on, and how: nginx's.
const SIGNALS: [i32; 9] = [
    signals::SIGTERM,
    signals::SIGINT,
    signals::SIGQUIT,
    signals::SIGUSR1,
    signals::SIGHUP,
    signals::SIGWINCH,
    signals::SIGUSR2,
    signals::SIGALRM,
    signals::SIGIO,
];

/// The descriptors.
#[derive(Debug)]
pub(crate) struct Own {
    signals: Signals,
    channel: Option<OwnedFd>,
    master: Option<OwnedFd>,
}

impl Own {
    const SIGNALS: u32 = 0;
    const CHANNEL: u32 = 1;
    const MASTER: u32 = 2;
    pub(crate) const JOBS: u32 = 3;

    pub(crate) fn token(index: u32) -> usize {
        Key {
            index,
            generation: 0,
        }
        .token(Kind::Own) as usize
    }

    pub(crate) fn new(channel: Option<OwnedFd>, master: Option<OwnedFd>) -> io::Result<Self> {
        let signals = Signals::new(&SIGNALS)?;
        signals::unblock_all()?;
        Ok(Self {
            signals,
            channel,
            master,
        })
    }

    /// Whether a master looks after this process.
    pub(crate) fn has_master(&self) -> bool {
        self.master.is_some()
    }

    pub(crate) fn register(&self, poll: &Poll) -> io::Result<()> {
        let registry = poll.registry();
        let add = |fd: i32, index| {
            registry.register(
                &mut SourceFd(&fd),
                Token(Self::token(index)),
                Interest::READABLE,
            )
        };
        add(self.signals.as_fd().as_raw_fd(), Self::SIGNALS)?;
        if let Some(channel) = &self.channel {
            kp_sys::socket::set_nonblocking(channel, true)?;
            add(channel.as_raw_fd(), Self::CHANNEL)?;
        }
        if let Some(master) = &self.master {
            add(master.as_raw_fd(), Self::MASTER)?;
        }
        Ok(())
    }
}

impl Worker {
    /// Tells the master that this worker can serve; without a master it begins at once.
    pub(crate) fn say_ready(&mut self) -> io::Result<()> {
        self.board(State::Ready);
        match &self.own.channel {
            Some(channel) => kp_sys::socket::send_fds(channel, &[message::READY], &[]),
            None => {
                self.poll_listeners();
                Ok(())
            }
        }
    }

    /// Tells the master that newcomers are others' now.
    pub(crate) fn say_left(&self) {
        self.say(&[message::LEFT]);
    }

    /// Tells the master something.
    pub(crate) fn say(&self, bytes: &[u8]) {
        if let Some(channel) = &self.own.channel {
            // A master that is gone, or takes nothing, does not wait for it.
            let _ = kp_sys::socket::send_fds(channel, bytes, &[]);
        }
    }

    /// An event on one of the own descriptors.
    pub(crate) fn own_event(&mut self, index: u32) {
        match index {
            Own::SIGNALS => {
                for signal in self.own.signals.drain() {
                    self.signal(signal);
                }
            }
            Own::CHANNEL => self.read_channel(),
            Own::MASTER => {
                log::error!(target: "alert", "the master process is gone");
                self.own.master = None;
                self.begin_orphaned_drain();
            }
            _ => self.take_results(),
        }
    }

    fn signal(&mut self, signal: i32) {
        match signal {
            signals::SIGTERM if self.finishes_at_term() => self.begin_drain(),
            signals::SIGTERM | signals::SIGINT => {
                log::info!(target: "notice", "exiting");
                self.stopping = true;
            }
            signals::SIGQUIT | signals::SIGWINCH => {
                // What the master said before its signal comes first: whether a successor serves.
                self.read_channel();
                self.begin_drain();
            }
            // The master reopens the files and sends them over the channel; without a master nobody else would.
            signals::SIGUSR1 if self.own.channel.is_none() => self.reopen_logs(),
            _ => {}
        }
    }

    /// `stop_signal` where there is no master to hear it. While a drain is under way the signal is meant to end it.
    fn finishes_at_term(&self) -> bool {
        self.own.channel.is_none()
            && self.drain.is_none()
            && self.config.main.stop_signal == StopSignal::Graceful
    }

    fn read_channel(&mut self) {
        // What the master sends may come with a descriptor, and has to find room when no other is free.
        drop(self.spare_fd.take());
        self.read_messages();
        self.spare_fd = kp_sys::process::spare_descriptor().ok();
    }

    fn read_messages(&mut self) {
        loop {
            let Some(channel) = &self.own.channel else {
                return;
            };
            match kp_sys::socket::recv_fds(channel) {
                Ok(Some((bytes, fds))) => self.master_says(&bytes, fds),
                // The end of the channel is the end of the master, which its pidfd reports.
                Ok(None) => {
                    let registry = self.poll.registry();
                    let _ = registry.deregister(&mut SourceFd(&channel.as_raw_fd()));
                    self.own.channel = None;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if exhaustion::lost_descriptors(&error) => {
                    self.miss("a message of the master");
                }
                Err(_) => return,
            }
        }
    }

    /// Something that the master has sent could not be taken: it is asked to say again what holds.
    pub(crate) fn miss(&self, what: &str) {
        log::error!(target: "alert", "{what} could not be taken up: the master is asked again");
        self.say(&[message::MISSED]);
    }

    fn master_says(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) {
        match bytes {
            [message::COMMIT, ..] => self.poll_listeners(),
            [message::SUCCESSOR, ..] => self.successor = true,
            [message::CERTIFICATES, ..] => self.take_certificates(fds),
            [message::INQUIRY, inquiry @ ..] => self.hear_inquiry(inquiry),
            [message::OVERRIDES, ..] => self.take_overrides(bytes, fds),
            [message::LOGS, high, low, ..] => {
                self.flush_logs(true);
                self.logs
                    .reopened(usize::from(u16::from_be_bytes([*high, *low])), fds);
                if let Some(channel) = &self.own.channel {
                    // A master that does not take it is on its way out, or will tell that this worker is stuck.
                    let taken = [message::LOGS, *high, *low];
                    let _ = kp_sys::socket::send_fds(channel, &taken, &[]);
                }
            }
            _ => {
                log::error!(target: "alert", "the master sent a message this worker does not know");
            }
        }
    }

    /// The master wants to know, or to have, something.
    fn hear_inquiry(&mut self, bytes: &[u8]) {
        let Some((number, inquiry)) = bytes.split_first_chunk::<8>() else {
            return;
        };
        let findings = self.inquire(inquiry);
        let Some(channel) = &self.own.channel else {
            return;
        };
        let sealed = kp_sys::memfile::sealed(c"kp-findings", &findings);
        let sent = sealed.and_then(|memory| {
            let mut text = vec![message::FINDINGS];
            text.extend_from_slice(number);
            kp_sys::socket::send_fds(channel, &text, &[memory.as_fd()])
        });
        // A master that hears nothing names this worker.
        if let Err(error) = sent {
            log::warn!("the master could not be answered: {error}");
        }
    }

    /// The master has read changed certificates, few at a time, and found them good; handshakes use them from here on.
    fn take_certificates(&mut self, fds: Vec<OwnedFd>) {
        let came = fds.into_iter().next();
        let updates = came
            .and_then(|fd| kp_sys::memfile::contents(fd).ok())
            .and_then(|bytes| PairUpdate::decode_all(&bytes));
        let used = updates.is_some_and(|updates| {
            let refused = updates.iter().filter(|one| self.tls.apply(one).is_err());
            refused.count() == 0
        });
        if !used {
            log::error!(target: "alert", "a changed certificate could not be taken up");
        }
    }

    fn reopen_logs(&mut self) {
        self.flush_logs(true);
        for (index, path) in self.config.log_files.iter().enumerate() {
            if log_file::is_stream(path) {
                continue;
            }
            match log_file::open(path) {
                Ok(file) => self.logs.reopened(index, vec![OwnedFd::from(file)]),
                Err(error) => {
                    log::error!(target: "emerg", "open() \"{}\" failed ({})", path.display(), crate::jobs::errno_text(&error));
                }
            }
        }
    }

    /// Takes in what the job threads finished.
    fn take_results(&mut self) {
        while let Some((key, purpose, done)) = self.jobs.finished() {
            let done = match (purpose, done) {
                (Purpose::ClientPairs, Done::Pairs(loaded)) => {
                    self.client_pairs_loaded(key, loaded);
                    continue;
                }
                (Purpose::UpstreamPair, Done::Pairs(loaded)) => {
                    self.upstream_pair_loaded(key, loaded);
                    continue;
                }
                (_, done) => done,
            };
            // An exchange that ended meanwhile has no use for it.
            let Some(mut active) = self.exchanges.lend(key) else {
                continue;
            };
            let input = self.job_done(&mut active, purpose, done);
            self.drive_from(active, input);
        }
    }
}
