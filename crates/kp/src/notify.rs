//! What a service manager is told (`sd_notify(3)`): that kp serves, that a reload began and how it ended, that it stops, that
//! another master is the main process now. Says nothing where nobody asked for it (`NOTIFY_SOCKET`).
//!
//! ```text
//! Starting ── serves ──▶ Ready ⇄ Reloading        any ── stop ──▶ Stopping
//! ```
//!
//! A reload ends with READY however it went; the status line says how. Type=notify-reload measures by MONOTONIC_USEC
//! whether that RELOADING answers its signal, so the clock is read when the message is sent.

use sd_notify::NotifyState;

/// The variable that names the socket.
pub(crate) const VARIABLE: &str = "NOTIFY_SOCKET";

/// What was said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Ready,
    Reloading,
    Stopping,
}

/// The conversation with the service manager.
#[derive(Debug)]
pub(crate) struct Notifier {
    phase: Phase,
}

impl Notifier {
    /// Of a master that is about to serve.
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Starting,
        }
    }

    /// A generation serves: the start, or a reload, has succeeded.
    pub(crate) fn serving(&mut self, generation: u32, workers: u32) {
        let plural = if workers == 1 { "worker" } else { "workers" };
        let status = format!("Serving: generation {generation}, {workers} {plural}");
        self.ready(&status);
    }

    /// A reload begins.
    pub(crate) fn reloading(&mut self) {
        if self.phase != Phase::Ready {
            return;
        }
        self.phase = Phase::Reloading;
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[
                NotifyState::Reloading,
                now,
                NotifyState::Status("Reloading the configuration"),
            ]),
            Err(error) => log::warn!("clock_gettime() failed: {error}"),
        }
    }

    /// It has failed; whatever served before still does.
    pub(crate) fn reload_failed(&mut self, reason: &str) {
        if self.phase == Phase::Reloading {
            self.ready(&failure(reason));
        }
    }

    /// A stop begins.
    pub(crate) fn stopping(&mut self) {
        if self.phase != Phase::Stopping {
            self.phase = Phase::Stopping;
            tell(&[
                NotifyState::Stopping,
                NotifyState::Status("Stopping: finishing what was begun"),
            ]);
        }
    }

    /// A stop begins, and the master that replaces this one serves already: the service goes on.
    pub(crate) fn handing_over(&mut self, pid: u32) {
        if self.phase != Phase::Stopping {
            self.phase = Phase::Stopping;
            tell(&[
                NotifyState::MainPid(pid),
                NotifyState::Status("Serving: another binary has taken over"),
            ]);
        }
    }

    fn ready(&mut self, status: &str) {
        if self.phase == Phase::Stopping {
            return;
        }
        self.phase = Phase::Ready;
        tell(&[
            NotifyState::Ready,
            NotifyState::MainPid(std::process::id()),
            NotifyState::Status(status),
        ]);
    }
}

/// A status is one line.
fn failure(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    let line = line.strip_prefix("kp: ").unwrap_or(line);
    format!("The last reload failed: {line}")
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!("the service manager could not be told: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        assert_eq!(
            failure("kp: [emerg] unknown directive \"x\" in /etc/kp/kp.conf:3:1\n  3 | x\n"),
            "The last reload failed: [emerg] unknown directive \"x\" in /etc/kp/kp.conf:3:1"
        );
    }

    #[test]
    fn nothing_is_said_out_of_turn() {
        // Nobody listens here (the variable is not set), so that only the phases are seen.
        let mut notifier = Notifier::new();
        notifier.reloading();
        notifier.reload_failed("x");
        assert_eq!(notifier.phase, Phase::Starting);
        notifier.serving(1, 2);
        notifier.reload_failed("x");
        assert_eq!(notifier.phase, Phase::Ready);
        notifier.reloading();
        assert_eq!(notifier.phase, Phase::Reloading);
        notifier.stopping();
        notifier.reload_failed("x");
        notifier.serving(2, 2);
        assert_eq!(notifier.phase, Phase::Stopping);
    }
}
