//! What the master does for TLS while workers serve: it moves on to the next ticket key, takes up certificates whose files
//! changed (`ssl_certificate_reload`), and warns of those that are about to end.
//!
//! A pair is read when its files are as they were at the look before: who replaces two files has a moment between them. What
//! is wrong with it is told once for each change, and the pair in use stays.
//!
//! Workers get what changed in small portions: to open a key takes a worker a moment in which it serves nobody, and a worker
//! that does not listen for a while must get the rest later.

use super::Master;
use crate::crew::Crew;
use crate::report;
use kp_sys::socket::send_fds;
use kp_sys::{clock, memfile};
use kp_tls::{PairUpdate, WatchedPair, watched_pairs};
use kp_worker::{message, read_certificate};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Looks at files. Two of them, and what comes in between, are to be within two seconds.
const LOOK_EVERY_MS: u64 = 700;
/// Pairs that a worker gets at once, and the time between two portions.
const PORTION: usize = 16;
const PORTION_EVERY_MS: u64 = 10;
/// Warnings of certificates that end soon.
const WARN_EVERY_MS: u64 = 24 * 3600 * 1000;
/// A file that is hardly older than what was read of it may have changed meanwhile.
const FRESH_S: i64 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Certificates {
    look_at_ms: Option<u64>,
    warn_at_ms: u64,
    rotate_at_ms: u64,
    /// Some worker is to get a portion.
    deliver_at_ms: Option<u64>,
    watched: HashMap<u32, Generation>,
}

/// The pairs of a configuration.
#[derive(Debug, Default)]
struct Generation {
    watches: Vec<Watch>,
    /// Which of them a worker, by its process, does not have yet.
    owed: HashMap<i32, BTreeSet<usize>>,
}

/// What workers are owed after a round.
#[derive(Debug, Default)]
struct Owed {
    any: bool,
    /// Than before: somebody took something.
    less: bool,
}

/// Of the files of a pair; `None`: there is no file.
type Stamps = Vec<Option<Stamp>>;

#[derive(Debug)]
struct Watch {
    pair: WatchedPair,
    /// The pair that was taken up last; `None`: the one that was loaded with the configuration.
    taken: Option<PairUpdate>,
    /// What was read is of this; `None`: it may be older than its files.
    used: Option<Stamps>,
    /// What the last look saw.
    seen: Stamps,
}

/// What tells one content of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified_s: i64,
    modified_ns: i64,
    length: u64,
}

impl Default for Certificates {
    fn default() -> Self {
        let now = clock::monotonic_ms();
        Self {
            look_at_ms: None,
            warn_at_ms: now + WARN_EVERY_MS,
            rotate_at_ms: now,
            deliver_at_ms: None,
            watched: HashMap::new(),
        }
    }
}

impl Certificates {
    /// When there is something to do.
    pub(super) fn due_ms(&self) -> u64 {
        let look = self.look_at_ms.unwrap_or(u64::MAX);
        let deliver = self.deliver_at_ms.unwrap_or(u64::MAX);
        look.min(deliver)
            .min(self.warn_at_ms)
            .min(self.rotate_at_ms)
    }

    /// Begins to watch for a generation, and forgets those that are gone.
    fn follow(&mut self, crews: &[Crew], now: u64) {
        self.watched
            .retain(|number, _| crews.iter().any(|crew| crew.number == *number));
        for crew in crews {
            self.watched.entry(crew.number).or_insert_with(|| {
                let pairs = watched_pairs(&crew.prepared.config);
                Generation {
                    watches: pairs.into_iter().map(Watch::new).collect(),
                    owed: HashMap::new(),
                }
            });
        }
        let mut generations = self.watched.values();
        let any = generations.any(|generation| !generation.watches.is_empty());
        self.look_at_ms = any.then(|| self.look_at_ms.unwrap_or(now + LOOK_EVERY_MS));
    }
}

impl Watch {
    fn new(pair: WatchedPair) -> Self {
        let seen = stamps(&pair);
        let now_s = i64::try_from(clock::unix_ms() / 1000).unwrap_or(i64::MAX);
        let fresh = seen
            .iter()
            .flatten()
            .any(|stamp| stamp.modified_s > now_s - FRESH_S);
        Self {
            pair,
            taken: None,
            used: (!fresh).then(|| seen.clone()),
            seen,
        }
    }

    /// Looks at the files; the pair, or what is wrong with it, if they have changed and rest.
    fn look(&mut self) -> Option<Result<PairUpdate, String>> {
        let now = stamps(&self.pair);
        let rests = now == self.seen;
        self.seen = now;
        if !rests || self.used.as_ref() == Some(&self.seen) {
            return None;
        }
        self.used = Some(self.seen.clone());
        Some(self.pair.load(&mut read_certificate))
    }
}

fn stamps(pair: &WatchedPair) -> Stamps {
    pair.files().map(stamp).collect()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        modified_s: metadata.mtime(),
        modified_ns: metadata.mtime_nsec(),
        length: metadata.len(),
    })
}

impl Master {
    /// Does what is due.
    pub(super) fn tend_certificates(&mut self, now: u64) {
        self.certificates.follow(&self.crews, now);
        if self.certificates.rotate_at_ms <= now {
            self.rotate_tickets(now);
        }
        if self.certificates.look_at_ms.is_some_and(|at| at <= now) {
            self.certificates.look_at_ms = Some(now + LOOK_EVERY_MS);
            self.look_at_certificates();
            self.deliver_certificates(now);
        }
        if self.certificates.deliver_at_ms.is_some_and(|at| at <= now) {
            self.deliver_certificates(now);
        }
        if self.certificates.warn_at_ms <= now {
            self.certificates.warn_at_ms = now + WARN_EVERY_MS;
            self.warn_of_expiries();
        }
    }

    /// How long a ticket key seals is the newest configuration's word.
    fn rotate_tickets(&mut self, now: u64) {
        let period = self.newest_crew().map_or(Duration::MAX, |crew| {
            crew.prepared.config.http.ticket_rotation
        });
        let (tickets, now_unix_ms) = (&self.house.tickets, clock::unix_ms());
        if let Err(error) = tickets.rotate_if_due(now_unix_ms / 1000, period) {
            log::error!(target: "alert", "no new ticket key ({})", report::numbered(&error));
        }
        let due_unix_ms = tickets.due_unix_secs(period).saturating_mul(1000);
        // Never for long: the clock may be set, the period changed by a reload.
        let wait_ms = due_unix_ms.saturating_sub(now_unix_ms).clamp(100, 60_000);
        self.certificates.rotate_at_ms = now + wait_ms;
    }

    fn look_at_certificates(&mut self) {
        for (number, generation) in &mut self.certificates.watched {
            if let Some(crew) = self.crews.iter().find(|crew| crew.number == *number) {
                generation.look(crew);
            }
        }
    }

    /// Gives every worker a portion of what it does not have yet.
    fn deliver_certificates(&mut self, now: u64) {
        let mut owed = Owed::default();
        for (number, generation) in &mut self.certificates.watched {
            if let Some(crew) = self.crews.iter().find(|crew| crew.number == *number) {
                generation.deliver(crew, &mut owed);
            }
        }
        let wait_ms = if owed.less {
            PORTION_EVERY_MS
        } else {
            LOOK_EVERY_MS
        };
        self.certificates.deliver_at_ms = owed.any.then_some(now + wait_ms);
    }

    fn warn_of_expiries(&self) {
        let now_unix_s = clock::unix_ms() / 1000;
        let newest = self.newest_crew();
        let expiries = newest.map(|crew| crew.prepared.tls.expiries(now_unix_s));
        for expiry in expiries.into_iter().flatten() {
            if let Some(warning) = expiry.warning {
                log::warn!("{warning}");
            }
        }
    }
}

impl Generation {
    /// Takes up what changed, for the workers that will be forked at once; those that live are owed it.
    fn look(&mut self, crew: &Crew) {
        for (place, watch) in self.watches.iter_mut().enumerate() {
            let found = watch.look();
            let path = watch.pair.certificate().display();
            match found {
                None => {}
                Some(Ok(update)) => {
                    if crew.prepared.tls.apply(&update).is_err() {
                        // It was checked when it was read.
                        continue;
                    }
                    log::info!(target: "notice", "the changed certificate \"{path}\" is in use");
                    for worker in &crew.workers {
                        self.owed.entry(worker.pid).or_default().insert(place);
                    }
                    watch.taken = Some(update);
                }
                Some(Err(why)) => {
                    log::error!(target: "error", "the changed certificate \"{path}\" is not used, the one before stays: {why}");
                }
            }
        }
    }

    fn deliver(&mut self, crew: &Crew, owed: &mut Owed) {
        let watches = &self.watches;
        self.owed.retain(|pid, places| {
            let worker = crew.workers.iter().find(|worker| worker.pid == *pid);
            let Some(channel) = worker.and_then(|worker| worker.channel.as_ref()) else {
                return false;
            };
            let portion: Vec<usize> = places.iter().copied().take(PORTION).collect();
            let updates = portion
                .iter()
                .filter_map(|place| watches.get(*place)?.taken.as_ref());
            match hand_over(channel, updates) {
                Ok(()) => {
                    places.retain(|place| !portion.contains(place));
                    owed.less = true;
                }
                // It has much to read, or the system is short of something: later.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {}
                Err(_) => return false,
            }
            !places.is_empty()
        });
        owed.any |= !self.owed.is_empty();
    }
}

fn hand_over<'a>(
    channel: &impl AsFd,
    updates: impl IntoIterator<Item = &'a PairUpdate>,
) -> io::Result<()> {
    let memory = memfile::sealed(c"kp-certificates", &PairUpdate::encode_all(updates))?;
    send_fds(channel, &[message::CERTIFICATES], &[memory.as_fd()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TEXT: &str =
        "events {} http { server { listen 127.0.0.1:1 ssl; ssl_certificate_reload on;
        ssl_certificate a.crt; ssl_certificate_key a.key; } }";

    /// A watch over two files of a folder, which are older than it.
    fn watch(folder: &Path) -> Watch {
        for name in ["kp.conf", "a.crt", "a.key"] {
            fs::write(folder.join(name), TEXT).expect("written");
        }
        let loaded = kp_config::load(&kp_config::LoadOptions {
            path: "kp.conf".into(),
            prefix: folder.to_owned(),
            ..kp_config::LoadOptions::default()
        });
        let config = loaded.config.expect("a configuration");
        let pair = watched_pairs(&config).pop().expect("a watched pair");
        let mut watch = Watch::new(pair);
        watch.used = Some(watch.seen.clone());
        watch
    }

    #[test]
    fn a_change_is_looked_at_once_it_rests_and_told_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut watch = watch(folder.path());
        assert!(watch.look().is_none(), "nothing changed");
        fs::write(folder.path().join("a.crt"), "longer than before").expect("written");
        assert!(watch.look().is_none(), "the other file may follow");
        fs::write(folder.path().join("a.key"), "and this, too, is another").expect("written");
        assert!(watch.look().is_none());
        let found = watch.look();
        assert!(matches!(found, Some(Err(_))), "neither is PEM");
        assert!(watch.look().is_none(), "told already");
        fs::remove_file(folder.path().join("a.key")).expect("removed");
        assert!(watch.look().is_none());
        assert!(matches!(watch.look(), Some(Err(_))), "it is missing");
    }

    #[test]
    fn what_was_written_while_it_was_loaded_is_loaded_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let pair = watch(folder.path()).pair;
        assert!(Watch::new(pair).look().is_some());
    }
}
