//! Who waits for which reload, and how the last one went.
//!
//! A reload that was asked for while another one runs is the next one: it begins when the running one has ended, and
//! answers everybody who came meanwhile. So whoever asks gets the outcome of a reload that has read the configuration
//! after the question.

use crate::control::{Answer, AskerId};
use crate::settings::Refused;
use kp_config::Severity;

/// Reloads that are wanted, and the one that runs.
#[derive(Debug, Default)]
pub(super) struct ReloadQueue {
    wanted: bool,
    waiting: Vec<AskerId>,
    running: Option<Vec<AskerId>>,
    history: History,
}

/// The reloads so far.
#[derive(Debug, Default)]
pub(super) struct History {
    /// All of them.
    pub(super) ended: u64,
    /// Those that have failed.
    pub(super) failed: u64,
    /// When the last one ended (milliseconds since 1970), and why it has failed if it has.
    pub(super) last: Option<(u64, Result<(), Vec<String>>)>,
}

/// Why a reload has failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// For a terminal, with lines and carets where a text is at fault.
    shown: String,
    /// One line for each reason.
    lines: Vec<String>,
}

impl ReloadQueue {
    /// Somebody wants one: by a signal, or by a question that is to be answered.
    pub(super) fn want(&mut self, asker: Option<AskerId>) {
        self.wanted = true;
        self.waiting.extend(asker);
    }

    /// Whether one has to begin, once it can.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// It begins.
    pub(super) fn begin(&mut self) {
        self.wanted = false;
        self.running
            .get_or_insert_default()
            .append(&mut self.waiting);
    }

    /// The one that runs has ended; returns who asked for it. A start is none, so that its end changes nothing.
    pub(super) fn end(&mut self, outcome: Result<(), Vec<String>>, unix_ms: u64) -> Vec<AskerId> {
        let Some(askers) = self.running.take() else {
            return Vec::new();
        };
        self.history.ended += 1;
        self.history.failed += u64::from(outcome.is_err());
        self.history.last = Some((unix_ms, outcome));
        askers
    }

    /// None will come to an end any more; returns who waits in vain.
    pub(super) fn close(&mut self) -> Vec<AskerId> {
        self.wanted = false;
        let mut askers = self.running.take().unwrap_or_default();
        askers.append(&mut self.waiting);
        askers
    }

    /// The reloads so far.
    pub(super) fn history(&self) -> &History {
        &self.history
    }
}

impl Failure {
    /// The configuration cannot be used.
    pub(super) fn refused(refused: &Refused) -> Self {
        let errors = refused.lines();
        let errors = errors.filter(|(severity, _)| *severity == Severity::Error);
        Self {
            shown: refused.rendered(),
            lines: errors.map(|(_, line)| line).collect(),
        }
    }

    /// The generation could not serve.
    pub(super) fn emergency(reason: &str) -> Self {
        Self {
            shown: format!("kp: [emerg] {reason}\n"),
            lines: vec![reason.to_owned()],
        }
    }

    /// What the askers are told, and what is kept.
    pub(super) fn into_answer(self, serves: bool) -> (Answer, Vec<String>) {
        let rest = if serves {
            "the old configuration still serves"
        } else {
            "no worker serves"
        };
        let text = format!("{}kp: the reload has failed, {rest}\n", self.shown);
        (Answer::Failed(text), self.lines)
    }
}

/// What the askers are told of a success.
pub(super) fn success(generation: u32, workers: u32) -> Answer {
    let plural = if workers == 1 { "worker" } else { "workers" };
    Answer::Done(format!(
        "kp: generation {generation} is serving, {workers} {plural} ready\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_during_a_reload_is_answered_by_the_next() {
        let [first, second, third] = [1, 2, 3].map(AskerId::numbered);
        let mut queue = ReloadQueue::default();
        assert!(!queue.is_wanted());
        assert_eq!(queue.end(Ok(()), 1), []);
        assert!(queue.history().last.is_none(), "a start is no reload");
        queue.want(Some(first));
        queue.begin();
        assert!(!queue.is_wanted());
        queue.want(Some(second));
        queue.want(None);
        queue.want(Some(third));
        assert_eq!(queue.end(Err(vec!["no".into()]), 5), [first]);
        assert!(queue.is_wanted());
        queue.begin();
        assert!(!queue.is_wanted());
        assert_eq!(queue.end(Ok(()), 6), [second, third]);
        queue.want(None);
        queue.begin();
        assert_eq!(queue.end(Err(vec!["no more".into()]), 7), []);
        let history = queue.history();
        assert_eq!((history.ended, history.failed), (3, 2));
        assert_eq!(history.last, Some((7, Err(vec!["no more".into()]))));
    }

    #[test]
    fn nobody_waits_for_a_master_that_stops() {
        let [first, second] = [1, 2].map(AskerId::numbered);
        let mut queue = ReloadQueue::default();
        queue.want(Some(first));
        queue.begin();
        queue.want(Some(second));
        assert_eq!(queue.close(), [first, second]);
        assert!(!queue.is_wanted() && queue.close().is_empty());
    }

    #[test]
    fn a_failure_says_what_goes_on() {
        let (answer, lines) = Failure::emergency("too late").into_answer(true);
        let text =
            "kp: [emerg] too late\nkp: the reload has failed, the old configuration still serves\n";
        assert_eq!(answer, Answer::Failed(text.into()));
        assert_eq!(lines, ["too late"]);
        let (answer, _) = Failure::emergency("too late").into_answer(false);
        assert!(matches!(answer, Answer::Failed(text) if text.ends_with("no worker serves\n")));
    }
}
