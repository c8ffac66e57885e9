//! Log files that somebody moved away (USR1): opened anew here, handed to every worker.

use super::Master;
use crate::logs;
use crate::report;
use kp_sys::process;

impl Master {
    pub(super) fn reopen_logs(&mut self) {
        let current = self.crews.iter().map(|crew| crew.number).max();
        for crew in &mut self.crews {
            let config = &crew.prepared.config;
            for complaint in
                logs::reopen(&config.log_files, &mut crew.files, crew.identity.as_ref())
            {
                log::error!(target: "emerg", "{complaint}");
            }
            if current == Some(crew.number) {
                if let Err(error) = logs::install(config, &crew.files) {
                    log::error!(target: "alert", "the error log cannot be changed ({})", report::numbered(&error));
                }
                if self.daemon
                    && let Some(file) = crew.stderr_file()
                {
                    let _ = process::replace_stderr(file);
                }
            }
            for worker in &crew.workers {
                if let Some(channel) = &worker.channel
                    && let Err(error) = logs::send(channel, &crew.files)
                {
                    log::error!(target: "alert", "worker process {} got no reopened logs ({})", worker.pid, report::numbered(&error));
                }
            }
        }
    }
}
