//! `retry_budget`: how many repeated attempts a group may have under way at once.
//!
//! Decides whether there is room for one more, so that a group whose peers all fail gets hardly more than its load instead
//! of a multiple of it. Counted by this worker alone: its requests under way are what its share is taken of, retries not
//! counted, so that all attempts together are at most (1 + percent) times the requests. Does not
//! decide which retries count: who failed to connect and who met a stale connection asks for nothing.

use kp_config::model::RetryBudget;

/// The attempts and retries of one group under way in this worker.
#[derive(Debug, Default)]
pub struct Budget {
    settings: Option<RetryBudget>,
    attempts: u32,
    retries: u32,
    /// A retry was refused, and so many have been under way ever since that it is still the same shortage.
    short: bool,
}

impl Budget {
    pub(crate) fn new(settings: Option<RetryBudget>) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    pub(crate) fn begin_attempt(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    pub(crate) fn end_attempt(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
    }

    /// The most retries at this moment; `None`: any number.
    pub fn limit(&self) -> Option<u32> {
        let settings = self.settings?;
        let requests = u64::from(self.attempts.saturating_sub(self.retries));
        let share = requests * u64::from(settings.percent) / 100;
        Some(settings.min.max(u32::try_from(share).unwrap_or(u32::MAX)))
    }

    /// Whether a retry may begin; `own`: one that is under way ends with it.
    pub fn has_room_beside(&self, own: bool) -> bool {
        let others = self.retries.saturating_sub(u32::from(own));
        self.limit().is_none_or(|limit| others < limit)
    }

    /// A retry begins; [`Budget::end_retry`] follows, once.
    pub fn begin_retry(&mut self) {
        self.retries += 1;
    }

    /// A retry is over.
    pub fn end_retry(&mut self) {
        debug_assert!(self.retries > 0, "a retry that never began");
        self.retries = self.retries.saturating_sub(1);
        if self.retries <= self.limit().unwrap_or(0) / 2 {
            self.short = false;
        }
    }

    /// A retry was refused; whether this begins a shortage, which is worth a line in the log.
    pub fn refused(&mut self) -> bool {
        !std::mem::replace(&mut self.short, self.retries > 0)
    }

    /// Retries under way.
    pub fn retries(&self) -> u32 {
        self.retries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{U, at, groups, servers, upstream};
    use crate::{Outcome, Tried};
    use kp_config::model::{Balancer, Upstream};
    use proptest::prelude::*;

    fn budget(percent: u32, min: u32) -> Budget {
        Budget::new(Some(RetryBudget { percent, min }))
    }

    #[test]
    fn the_floor_holds_and_the_share_grows() {
        let mut budget = budget(20, 3);
        for attempts in 0..=100u32 {
            assert_eq!(budget.limit(), Some(3.max(attempts / 5)));
            budget.begin_attempt();
        }
        assert!(Budget::new(None).has_room_beside(false) && Budget::new(None).limit().is_none());
    }

    #[test]
    fn a_shortage_is_told_once() {
        let mut budget = budget(0, 4);
        for _ in 0..4 {
            assert!(budget.has_room_beside(false));
            budget.begin_retry();
        }
        assert!(!budget.has_room_beside(false) && budget.has_room_beside(true));
        assert_eq!([budget.refused(), budget.refused()], [true, false]);
        budget.end_retry();
        budget.begin_retry();
        assert!(!budget.refused(), "one place came and went");
        budget.end_retry();
        budget.end_retry();
        budget.begin_retry();
        budget.begin_retry();
        assert!(budget.refused(), "half of it had been free");
    }

    #[test]
    fn attempts_of_the_group_are_what_the_share_is_of() {
        let group = Upstream {
            retry_budget: Some(RetryBudget {
                percent: 50,
                min: 0,
            }),
            ..upstream(Balancer::RoundRobin, servers(&[1, 1]))
        };
        let mut groups = groups(group);
        let held: Vec<_> = (0..10)
            .filter_map(|_| groups.pick(U, &at(1), &mut Tried::new()).ok())
            .collect();
        assert_eq!(groups.budget(U).and_then(|budget| budget.limit()), Some(5));
        for peer in held {
            groups.finished(peer, Outcome::Ok, 1);
        }
        assert_eq!(groups.budget(U).and_then(|budget| budget.limit()), Some(0));
    }

    proptest! {
        /// However attempts and retries come and go, what begins with room never goes over the limit of its moment.
        #[test]
        fn it_is_never_overdrawn(
            percent in 0..=100u32,
            min in 0..20u32,
            steps in prop::collection::vec(0..4u8, 1..400),
        ) {
            let mut budget = budget(percent, min);
            for step in steps {
                match step {
                    0 => budget.begin_attempt(),
                    1 => budget.end_attempt(),
                    2 if budget.has_room_beside(false) => {
                        let limit = budget.limit().unwrap_or(0);
                        budget.begin_retry();
                        prop_assert!(budget.retries() <= limit);
                    }
                    3 if budget.retries() > 0 => budget.end_retry(),
                    _ => {}
                }
            }
        }
    }
}
