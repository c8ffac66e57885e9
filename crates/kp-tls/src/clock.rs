//! The time as the library sees it: what the reactor says it is. Nothing here reads a clock.

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Seconds since 1970, shared by everything that was loaded together; set once a turn of the loop.
#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// A clock that stands at `unix_seconds`.
    pub fn at(unix_seconds: u64) -> Self {
        Self(Arc::new(AtomicU64::new(unix_seconds)))
    }

    /// Sets the time for all who hold this clock.
    pub fn set(&self, unix_seconds: u64) {
        self.0.store(unix_seconds, Relaxed);
    }

    /// The time that was last set.
    pub fn unix_seconds(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time(self.unix_seconds()))
    }
}

pub(crate) fn unix_time(unix_seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix_seconds))
}
