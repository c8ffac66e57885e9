//! Lines that a log could not take: each is counted, and they are told of once a minute, not once a line.

const TELL_EVERY_MS: u64 = 60_000;

/// What one log has lost.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    told_ms: u64,
    /// Lines since they were told of.
    untold: u64,
}

impl Losses {
    /// Counts lost lines; if they are to be told of now: how many there are since the last time.
    pub(crate) fn count(&mut self, lines: u64, now_ms: u64) -> Option<u64> {
        self.add(lines);
        let untold = self.due(now_ms);
        if untold.is_some() {
            self.told(now_ms);
        }
        untold
    }

    /// Counts lost lines.
    pub(crate) fn add(&mut self, lines: u64) {
        self.untold += lines;
    }

    /// How many are to be told of now.
    pub(crate) fn due(&self, now_ms: u64) -> Option<u64> {
        (self.untold > 0 && now_ms >= self.told_ms).then_some(self.untold)
    }

    /// They have been told of.
    pub(crate) fn told(&mut self, now_ms: u64) {
        self.told_ms = now_ms + TELL_EVERY_MS;
        self.untold = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lost_line_is_told_of_once_and_at_most_once_a_minute() {
        let mut losses = Losses::default();
        assert_eq!(losses.count(1, 5), Some(1));
        for now_ms in 6..1006 {
            assert_eq!(losses.count(2, now_ms), None);
        }
        assert_eq!(losses.count(3, 5 + TELL_EVERY_MS), Some(2003));
        assert_eq!(losses.count(1, 6 + TELL_EVERY_MS), None);
    }
}
