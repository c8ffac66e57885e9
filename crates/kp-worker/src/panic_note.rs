//! What a panicking worker says before it aborts: one `alert` line with the place and the connection it was serving.

use crate::error_log;
use kp_config::model::Level;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `$connection` of the exchange that is being driven; 0: none.
static SERVING: AtomicU64 = AtomicU64::new(0);

/// Notes whom the loop is working for.
pub(crate) fn serving(connection: u64) {
    SERVING.store(connection, Relaxed);
}

/// Puts the hook in place; the process aborts after it (`panic = "abort"`).
pub(crate) fn install() {
    std::panic::set_hook(Box::new(|info| {
        let connection = SERVING.load(Relaxed);
        let text = info.to_string();
        error_log::write_main(Level::Alert, (connection != 0).then_some(connection), &text);
    }));
}
