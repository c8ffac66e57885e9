//! What only the master knows and everybody may read: when it began, what became of reloads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const STARTED: usize = 0;
const GENERATION: usize = 1;
const RELOADS: usize = 2;
const RELOADS_FAILED: usize = 3;
/// When the last reload ended, and in the lowest bit whether it failed; one word, since the two belong together.
const LAST_RELOAD: usize = 4;
const CHANGES: usize = 5;
pub(crate) const CELLS: usize = 8;

/// How the last reload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastReload {
    /// When.
    pub unix_ms: u64,
    /// The configuration that was there before goes on.
    pub failed: bool,
}

/// The master's facts; the master alone sets them.
#[derive(Debug, Clone, Copy)]
pub struct MasterFacts {
    cells: &'static [AtomicU64],
}

impl MasterFacts {
    pub(crate) fn new(cells: &'static [AtomicU64]) -> Self {
        Self { cells }
    }

    /// When kp was started.
    pub fn started_unix_ms(&self) -> u64 {
        self.value(STARTED)
    }

    /// It is started now.
    pub fn set_started(&self, unix_ms: u64) {
        self.set(STARTED, unix_ms);
    }

    /// Number of the configuration that serves.
    pub fn generation(&self) -> u32 {
        self.value(GENERATION) as u32
    }

    /// Another generation serves.
    pub fn set_generation(&self, generation: u32) {
        self.set(GENERATION, generation.into());
    }

    /// Reloads after which another configuration served.
    pub fn reloads_ok(&self) -> u64 {
        self.value(RELOADS)
    }

    /// Reloads that were given up.
    pub fn reloads_failed(&self) -> u64 {
        self.value(RELOADS_FAILED)
    }

    /// How the last reload ended; `None`: there was none.
    pub fn last_reload(&self) -> Option<LastReload> {
        let word = self.value(LAST_RELOAD);
        (word != 0).then_some(LastReload {
            unix_ms: word >> 1,
            failed: word & 1 == 1,
        })
    }

    /// So many reloads have ended well and badly, the last one like that.
    pub fn set_reloads(&self, ok: u64, failed: u64, last: LastReload) {
        self.set(RELOADS, ok);
        self.set(RELOADS_FAILED, failed);
        self.set(LAST_RELOAD, last.unix_ms << 1 | u64::from(last.failed));
    }

    /// Run-time changes of upstreams in force.
    pub fn changes(&self) -> u64 {
        self.value(CHANGES)
    }

    /// So many are in force now.
    pub fn set_changes(&self, count: u64) {
        self.set(CHANGES, count);
    }

    fn value(&self, at: usize) -> u64 {
        self.cells[at].load(Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.cells[at].store(value, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shm;

    #[test]
    fn reloads_are_remembered() {
        let master = Shm::private().unwrap().master();
        assert_eq!(master.last_reload(), None);
        let last = LastReload {
            unix_ms: 2001,
            failed: true,
        };
        master.set_reloads(1, 1, last);
        master.set_generation(2);
        assert_eq!(master.last_reload(), Some(last));
        let counts = (
            master.reloads_ok(),
            master.reloads_failed(),
            master.generation(),
        );
        assert_eq!(counts, (1, 1, 2));
    }
}
