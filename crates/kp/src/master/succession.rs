//! The masters before and after this one: starting a new binary, hearing how it fares, taking the place back if it ends; and
//! in the new one, telling the old master, and noticing its end.

use super::Master;
use crate::control::{self, Answer, AskerId};
use crate::inherit::{self, Estate, Word};
use crate::pidfile::{self, beside};
use crate::report;
use crate::upgrade::ASIDE;
use kp_sys::clock;
use kp_sys::process;
use kp_sys::signals::SIGKILL;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The workers of this master stop accepting within this, or are not waited for.
const HAND_OVER_MS: u64 = 2_000;

/// An upgrade that waits for a reload to end.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    asker: Option<AskerId>,
}

/// The new master.
#[derive(Debug)]
pub(super) struct Successor {
    pid: i32,
    /// `None`: it has closed its end.
    channel: Option<OwnedFd>,
    /// Who waits for it to serve.
    asker: Option<AskerId>,
    /// Why it will not.
    reason: Option<String>,
    /// It serves, or has served.
    serving: Option<Serving>,
    /// Where the pid file belongs.
    pid_file: PathBuf,
}

#[derive(Debug)]
struct Serving {
    workers: u32,
    /// Who asked is told at the latest then.
    deadline_ms: u64,
}

impl Successor {
    /// What to poll.
    pub(super) fn channel(&self) -> Option<&OwnedFd> {
        self.channel.as_ref()
    }
}

impl Master {
    /// USR2, or a question that is answered when the new binary serves; then this master leaves, too.
    pub(super) fn want_upgrade(&mut self, asker: Option<AskerId>) {
        let refusal = match self.plan.may_succeed() {
            Ok(()) if self.upgrade.is_some() => "an upgrade is about to begin already",
            Ok(()) => {
                self.upgrade = Some(Wanted { asker });
                return;
            }
            Err(refusal) => refusal,
        };
        let other = self.predecessor.as_ref().map(|old| old.pid);
        let other = other.or(self.successor.as_ref().map(|new| new.pid));
        let refusal = match other {
            Some(pid) => format!("{refusal} (process {pid})"),
            None => refusal.to_owned(),
        };
        log::info!(target: "notice", "the binary is not changed: {refusal}");
        self.upgrade_failed(asker, &format!("kp: {refusal}\n"));
    }

    /// Starts the new binary, the pid file and the control socket out of its way.
    pub(super) fn succeed(&mut self, wanted: Wanted) {
        if process::id() == 1 {
            let text = "kp is process 1 here, and everything ends with it: it cannot be replaced by another process; start a new container";
            return self.not_started(wanted.asker, text);
        }
        let pid_file = self.pid_file.path().to_owned();
        let aside = beside(&pid_file, ASIDE);
        if let Err(error) = self.pid_file.rename(&aside) {
            let text = format!(
                "rename() {} to {} failed ({}) before executing new binary process \"{}\"",
                pid_file.display(),
                aside.display(),
                report::numbered(&error),
                self.program.command_line()
            );
            return self.not_started(wanted.asker, &text);
        }
        self.follow_pid_file();
        let overrides = self.overrides_to_hand_over();
        let estate = Estate {
            pid: process::id(),
            pid_file: aside,
            daemon: self.daemon,
            tickets: Some(self.house.tickets.descriptor()),
            overrides: overrides.as_ref().map(AsFd::as_fd),
            sockets: self.listeners.passed(),
        };
        match self.program.start(&estate) {
            Ok((pid, channel)) => {
                log::info!(target: "notice", "start new binary process {pid}");
                self.listeners.share();
                self.plan
                    .succeed(wanted.asker.is_some(), clock::monotonic_ms());
                self.successor = Some(Successor {
                    pid,
                    channel: Some(channel),
                    asker: wanted.asker,
                    reason: None,
                    serving: None,
                    pid_file,
                });
            }
            Err(text) => {
                self.take_pid_file_back(&pid_file);
                self.not_started(wanted.asker, &text);
            }
        }
    }

    fn not_started(&mut self, asker: Option<AskerId>, text: &str) {
        log::error!(target: "emerg", "{text}");
        self.upgrade_failed(asker, &format!("kp: [emerg] {text}\n"));
    }

    fn upgrade_failed(&mut self, asker: Option<AskerId>, reason: &str) {
        if let Some(asker) = asker {
            let text = format!("{reason}kp: the upgrade has failed, the old binary still serves\n");
            self.answer(asker, &Answer::Failed(text));
        }
    }

    /// Nobody waits any more for an upgrade; returns who did.
    pub(super) fn refuse_upgrade(&mut self) -> Vec<AskerId> {
        let wanted = self.upgrade.take().and_then(|wanted| wanted.asker);
        let starting = self.successor.as_mut();
        let starting = starting.filter(|new| new.serving.is_none());
        let waiting = starting.and_then(|new| new.asker.take());
        wanted.into_iter().chain(waiting).collect()
    }

    /// Takes in what the other masters say, and that the old one has ended.
    pub(super) fn hear_masters(&mut self) {
        if let Some(old) = &self.predecessor
            && let (_, false) = inherit::hear(&old.channel)
        {
            self.predecessor_ended();
        }
        self.hear_successor();
    }

    fn hear_successor(&mut self) {
        let Some(new) = &mut self.successor else {
            return;
        };
        let Some(channel) = &new.channel else {
            return;
        };
        let (words, there) = inherit::hear(channel);
        if !there {
            new.channel = None;
        }
        let now = clock::monotonic_ms();
        for word in words {
            match word {
                Word::Serving(workers) => self.plan.successor_serves(workers, now),
                Word::Failed(reason) => new.reason = Some(reason),
                Word::GaveUp(address) => self.listeners.other_gave_up(&address),
                Word::Leaving => self.plan.successor_leaves(now),
            }
        }
    }

    /// The new binary serves.
    pub(super) fn succeeded(&mut self, workers: u32) {
        let now_ms = clock::monotonic_ms();
        if let Some(new) = &mut self.successor {
            log::info!(target: "notice", "new binary process {} is serving, {workers} worker processes ready", new.pid);
            new.serving = Some(Serving {
                workers,
                deadline_ms: now_ms + HAND_OVER_MS,
            });
        }
    }

    /// Who asked for the new binary is told when whoever connects meets it: the workers of this master accept no more.
    pub(super) fn settle_upgrade(&mut self, now_ms: u64) {
        let accepts = self
            .crews
            .iter()
            .any(|crew| crew.workers.iter().any(|worker| !worker.left));
        let Some(new) = &mut self.successor else {
            return;
        };
        let (pid, Some(serving)) = (new.pid, &new.serving) else {
            return;
        };
        if accepts && now_ms < serving.deadline_ms {
            return;
        }
        let workers = serving.workers;
        if let Some(asker) = new.asker.take() {
            let plural = if workers == 1 { "worker" } else { "workers" };
            let text = format!(
                "kp: process {pid} is serving in place of process {}, {workers} {plural} ready\n",
                process::id()
            );
            self.answer(asker, &Answer::Done(text));
        }
    }

    /// When [`Master::settle_upgrade`] has something to do though nothing came.
    pub(super) fn upgrade_due_ms(&self) -> Option<u64> {
        let new = self.successor.as_ref()?;
        new.asker
            .and(new.serving.as_ref())
            .map(|serving| serving.deadline_ms)
    }

    /// The new binary does not get ready.
    pub(super) fn kill_successor(&mut self) {
        let Some(new) = &mut self.successor else {
            return;
        };
        let pid = new.pid;
        new.reason = Some(format!(
            "kp: [emerg] new binary process {pid} did not serve in time\n"
        ));
        if let Err(error) = process::kill(pid, SIGKILL) {
            log::error!(target: "alert", "kill({pid}, {SIGKILL}) failed ({})", report::numbered(&error));
        }
    }

    /// The other master, for `kp status`.
    pub(super) fn other_master(&self) -> Option<String> {
        if let Some(old) = &self.predecessor {
            return Some(format!("old master process {}, which still lives", old.pid));
        }
        let new = self.successor.as_ref()?;
        let how = if new.serving.is_some() {
            "which serves"
        } else {
            "which is starting"
        };
        Some(format!("new binary process {}, {how}", new.pid))
    }

    /// Whether this process is the new master.
    pub(super) fn is_successor(&self, pid: i32) -> bool {
        self.successor.as_ref().is_some_and(|new| new.pid == pid)
    }

    /// The new master has ended: this one takes its place back.
    pub(super) fn successor_ended(&mut self, ended: &str) {
        self.hear_successor();
        let Some(new) = self.successor.take() else {
            return;
        };
        self.listeners.part();
        self.take_pid_file_back(&new.pid_file);
        // Whoever is told can find this master again.
        let pid = new.pid;
        if new.serving.is_some() {
            log::info!(target: "notice", "new binary process {pid} {ended}: this one takes its place back");
        } else {
            let reason = new
                .reason
                .unwrap_or_else(|| format!("kp: [emerg] new binary process {pid} {ended}\n"));
            log::error!(target: "emerg", "new binary process {pid} could not start: {}", gist(&reason));
            self.upgrade_failed(new.asker, &reason);
        }
        self.plan.successor_ended(clock::monotonic_ms());
    }

    fn take_pid_file_back(&mut self, pid_file: &Path) {
        if let Err(error) = self.pid_file.rename(pid_file) {
            log::error!(
                target: "alert",
                "rename() {} back to {} failed ({}) after the attempt to execute new binary process",
                self.pid_file.path().display(),
                pid_file.display(),
                report::numbered(&error)
            );
        }
        self.follow_pid_file();
    }

    fn follow_pid_file(&mut self) {
        let pid_file = self.pid_file.path().to_owned();
        if let Err(complaint) = self.control.follow(&pid_file, clock::monotonic_ms()) {
            log::error!(target: "alert", "the control socket stays where it was: {complaint}");
        }
    }

    /// Tells who has to know that this master serves: the old one, if it lives, which is the main process of the service as
    /// long as it does; else the service manager.
    pub(super) fn say_serving(&mut self, generation: u32, workers: u32) {
        for address in self.listeners.given_up() {
            self.say(&Word::GaveUp(address));
        }
        if self.predecessor.is_some() {
            self.say(&Word::Serving(workers));
        } else {
            self.notifier.serving(generation, workers);
        }
    }

    /// Tells the old master, if it lives.
    pub(super) fn say(&self, word: &Word) {
        if let Some(old) = &self.predecessor {
            word.send(&old.channel);
        }
    }

    /// Passes a signal on to the old master, whose workers may still have much to finish.
    pub(super) fn tell_predecessor(&self, signal: i32) {
        if let Some(old) = &self.predecessor
            && let Err(error) = process::kill(old.pid, signal)
        {
            log::error!(target: "alert", "kill({}, {signal}) failed ({})", old.pid, report::numbered(&error));
        }
    }

    /// The workers were sent home: newcomers are to find those of the other master.
    pub(super) fn send_newcomers_home(&mut self) {
        if self.predecessor.is_some() {
            self.listeners.steer_home();
        }
    }

    /// Nothing new is taken from now on: what comes is the other master's, if there is one.
    pub(super) fn say_leaving(&mut self) {
        let heir = self.successor.as_ref().filter(|new| new.serving.is_some());
        if self.predecessor.is_some() {
            self.say(&Word::Leaving);
        } else if let Some(pid) = heir.and_then(|new| u32::try_from(new.pid).ok()) {
            self.notifier.handing_over(pid);
        } else {
            self.notifier.stopping();
        }
    }

    fn predecessor_ended(&mut self) {
        let Some(old) = self.predecessor.take() else {
            return;
        };
        log::info!(target: "notice", "old master process {} has ended", old.pid);
        // One that was killed has left its files.
        if pidfile::read(&old.pid_file) == Ok(old.pid)
            && pidfile::living_master(&old.pid_file).is_none()
        {
            let _ = fs::remove_file(&old.pid_file);
            let socket = control::path_of(&old.pid_file);
            if fs::symlink_metadata(&socket).is_ok_and(|found| found.file_type().is_socket()) {
                let _ = fs::remove_file(socket);
            }
        }
        self.listeners.part();
        self.plan.predecessor_ended();
        if let Some((generation, workers)) = self.plan.serving() {
            self.notifier.serving(generation, workers);
        }
    }

    /// A generation with the configuration of a retired one.
    pub(super) fn repeat(&mut self, generation: u32, of: u32) {
        let again = self
            .crews
            .iter()
            .find(|crew| crew.number == of)
            .map(|crew| crew.again(generation));
        match again {
            Some(Ok(crew)) => {
                log::info!(target: "notice", "start worker processes");
                self.crews.push(crew);
            }
            Some(Err(error)) => {
                let reason = format!("dup() failed ({})", report::numbered(&error));
                self.plan.fail(generation, reason);
            }
            None => self
                .plan
                .fail(generation, String::from("its configuration is gone")),
        }
    }
}

/// The first complaint of several lines for a terminal, for one line of a log.
fn gist(reason: &str) -> &str {
    let line = reason
        .lines()
        .find(|line| line.contains("[emerg]"))
        .or(reason.lines().next())
        .unwrap_or_default();
    line.split_once("[emerg] ").map_or(line, |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_of_a_terminal_s_many_is_enough_for_the_log() {
        let many = "kp: [warn] odd\nkp: [emerg] unknown directive \"x\" in kp.conf:1\n  1 | x;\n";
        assert_eq!(gist(many), "unknown directive \"x\" in kp.conf:1");
        assert_eq!(gist("kp: no\n"), "kp: no");
        assert_eq!(gist(""), "");
    }
}
