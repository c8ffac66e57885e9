//! Who waits for which reload. A reload that was asked for while another one runs is the next one: it begins when the
//! running one has ended, and answers everybody who came meanwhile. So whoever asks gets the outcome of a reload that has
//! read the configuration after the question.

use crate::control::{Answer, AskerId};

/// Reloads that are wanted, and the one that runs.
#[derive(Debug, Default)]
pub(super) struct ReloadQueue {
    wanted: bool,
    waiting: Vec<AskerId>,
    running: Option<Vec<AskerId>>,
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

    /// The one that runs has ended; returns who asked for it. `None`: none was running.
    pub(super) fn end(&mut self) -> Option<Vec<AskerId>> {
        self.running.take()
    }

    /// None will begin any more; returns who waited in vain.
    pub(super) fn close(&mut self) -> Vec<AskerId> {
        self.wanted = false;
        std::mem::take(&mut self.waiting)
    }
}

/// What the askers are told of a success.
pub(super) fn success(generation: u32, workers: u32) -> Answer {
    let plural = if workers == 1 { "worker" } else { "workers" };
    Answer::Done(format!(
        "kp: generation {generation} is serving, {workers} {plural} ready\n"
    ))
}

/// What the askers are told of a failure: the reason as a terminal shows it, and what that means.
pub(super) fn failure(reason: &str, serves: bool) -> Answer {
    let rest = if serves {
        "the old configuration still serves"
    } else {
        "no worker serves"
    };
    Answer::Failed(format!("{reason}kp: the reload has failed, {rest}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_during_a_reload_is_answered_by_the_next() {
        let [first, second, third] = [1, 2, 3].map(AskerId::numbered);
        let mut queue = ReloadQueue::default();
        assert!(!queue.is_wanted());
        assert_eq!(queue.end(), None);
        queue.want(Some(first));
        queue.begin();
        assert!(!queue.is_wanted());
        queue.want(Some(second));
        queue.want(None);
        queue.want(Some(third));
        assert_eq!(queue.end(), Some(vec![first]));
        assert!(queue.is_wanted());
        queue.begin();
        assert!(!queue.is_wanted());
        assert_eq!(queue.end(), Some(vec![second, third]));
        queue.want(None);
        queue.begin();
        assert_eq!(queue.end(), Some(vec![]));
        assert_eq!(queue.end(), None);
    }

    #[test]
    fn nobody_waits_for_a_master_that_stops() {
        let [first, second] = [1, 2].map(AskerId::numbered);
        let mut queue = ReloadQueue::default();
        queue.want(Some(first));
        queue.begin();
        queue.want(Some(second));
        assert_eq!(queue.close(), [second]);
        assert!(!queue.is_wanted());
        assert_eq!(queue.end(), Some(vec![first]));
    }
}
