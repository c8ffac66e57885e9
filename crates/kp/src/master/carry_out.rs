//! What the plan wants done: each [`Action`] carried out.

use super::Master;
use super::queue::Failure;
use crate::generation::Action;
use crate::inherit::Word;
use crate::logs;
use crate::pidfile::PidFile;
use crate::report;
use crate::spawn;
use kp_sys::clock;
use kp_sys::process::{self, Ending};
use kp_sys::signals::{SIGKILL, SIGTERM};
use kp_worker::{error_log, message};
use std::path::Path;

impl Master {
    /// Does what the plan wants; `Some` when it is over.
    pub(super) fn carry_out(&mut self) -> Option<bool> {
        loop {
            let actions = self.plan.take_actions();
            if actions.is_empty() {
                return None;
            }
            for action in actions {
                match action {
                    Action::Spawn { generation, slot } => self.spawn(generation, slot),
                    Action::Listen { generation } => {
                        // Nobody would accept from the sockets of one that is over already.
                        if self.plan.is_about_to_listen(generation) {
                            self.listen(generation);
                        }
                    }
                    Action::Commit { generation, slot } => self.let_serve(generation, slot),
                    Action::Steer { live, slots } => {
                        if let Err(error) = self.listeners.steer(&live, slots) {
                            log::error!(target: "alert", "steering connections failed ({})", report::numbered(&error));
                        }
                    }
                    Action::Drain {
                        generation,
                        successor,
                    } => self.with(generation, |crew| crew.drain(successor)),
                    Action::Terminate { generation } => {
                        self.with(generation, |crew| crew.stop(SIGTERM));
                    }
                    Action::Kill { generation } => {
                        self.with(generation, |crew| crew.stop(SIGKILL));
                    }
                    Action::Forget { generation } => {
                        self.crews.retain(|crew| crew.number != generation);
                    }
                    Action::Serving {
                        generation,
                        workers,
                    } => self.serving(generation, workers),
                    Action::Failed { generation, reason } => self.failed(generation, &reason),
                    Action::Abandoned { generation } => self.abandoned(generation),
                    Action::BackOff {
                        slot,
                        deaths,
                        wait_ms,
                        ..
                    } => {
                        let times = match deaths {
                            1 => String::new(),
                            times => format!(" {times} times in a row"),
                        };
                        log::warn!(
                            "worker process of slot {slot} died at its start{times}, next start in {wait_ms} ms"
                        );
                    }
                    Action::Repeat { generation, of } => self.repeat(generation, of),
                    Action::Succeeded { workers } => self.succeeded(workers),
                    Action::KillSuccessor => self.kill_successor(),
                    Action::CloseListeners => {
                        self.say_leaving();
                        self.listeners.close();
                    }
                    Action::Exit { asked } => return Some(asked),
                }
            }
        }
    }

    fn let_serve(&self, generation: u32, slot: u32) {
        let workers = self.workers_of(generation);
        for worker in workers.filter(|worker| worker.slot == slot) {
            worker.tell(message::COMMIT);
        }
    }

    fn spawn(&mut self, generation: u32, slot: u32) {
        let Some(crew) = self.crews.iter().position(|crew| crew.number == generation) else {
            return;
        };
        match spawn::worker(
            &self.house,
            &mut self.crews,
            crew,
            slot,
            &self.listeners,
            &mut self.signals,
        ) {
            Ok(mut worker) => {
                log::info!(target: "notice", "start worker process {}", worker.pid);
                (worker.told, worker.taken) = (self.steering.version(), self.steering.version());
                if let Some(crew) = self.crews.get_mut(crew) {
                    crew.join(worker);
                }
            }
            Err(error) => {
                let reason = format!(
                    "fork() failed while spawning \"worker process\" ({})",
                    report::numbered(&error)
                );
                log::error!(target: "alert", "{reason}");
                self.plan.refuse(generation, reason);
                self.plan
                    .ended(generation, slot, Ending::Exited(1), clock::monotonic_ms());
            }
        }
    }

    fn listen(&mut self, generation: u32) {
        let Some(crew) = self.crews.iter().find(|crew| crew.number == generation) else {
            return;
        };
        let wanted = &crew.prepared.config.http.listeners;
        match self.listeners.commit(wanted, clock::monotonic_ms()) {
            Ok(()) => self.plan.listened(generation),
            Err(complaints) => {
                let reason = complaints
                    .into_iter()
                    .map(|one| one.message)
                    .collect::<Vec<_>>()
                    .join("; ");
                self.plan.fail(generation, reason);
            }
        }
    }

    fn serving(&mut self, generation: u32, workers: u32) {
        if let Some(crew) = self.crews.iter_mut().find(|crew| crew.number == generation) {
            crew.since_ms = clock::monotonic_ms();
            let config = &crew.prepared.config;
            if let Err(error) = logs::install(config, &crew.files) {
                log::error!(target: "alert", "the error log cannot be changed ({})", report::numbered(&error));
            }
            if let Some(level) = error_log::forced_level() {
                let name = error_log::level_name(level);
                log::info!(target: "notice", "every error log keeps level {name}, as asked for by \"kp ctl log-level\"");
            }
            if self.daemon
                && let Some(file) = crew.stderr_file()
            {
                // As at the start, there is nobody to tell.
                let _ = process::replace_stderr(file);
            }
            let wanted = config.main.pid.clone();
            // During an upgrade the pid file has another name, and gets this one back by itself.
            if self.successor.is_none() && !self.pid_file.is_at(&wanted) {
                self.move_pid_file(&wanted);
            }
            self.keep_control_socket();
        }
        self.keep_changes(generation);
        self.house.shm.master().set_generation(generation);
        log::info!(target: "notice", "generation {generation} is serving, {workers} worker processes ready");
        self.say_serving(generation, workers);
        self.hand_over(generation, workers);
    }

    fn failed(&mut self, generation: u32, reason: &str) {
        log::error!(target: "emerg", "generation {generation} has failed: {reason}");
        self.with(generation, |crew| crew.failed = true);
        self.listeners.unstage();
        self.give_directories_back();
        if self.plan.is_stopping() {
            report::say(format_args!("[emerg] {reason}"));
            self.say(&Word::Failed(format!("kp: [emerg] {reason}\n")));
        }
        self.reload_failed(Failure::emergency(reason));
    }

    /// The directories for temporary files belong to the users of those who serve, whomever the failed generation had.
    fn give_directories_back(&self) {
        let serving = self.plan.serving().map(|(number, _)| number);
        let Some(crew) = self.crews.iter().find(|crew| Some(crew.number) == serving) else {
            return;
        };
        let paths = &crew.prepared.config.temp_paths;
        for complaint in logs::make_temporary(paths, crew.identity.as_ref())
            .err()
            .unwrap_or_default()
        {
            log::error!(target: "alert", "{}", complaint.message);
        }
    }

    fn abandoned(&mut self, generation: u32) {
        log::info!(target: "notice", "generation {generation} is given up: all workers are told to go");
        self.listeners.unstage();
        let reason = "all worker processes were told to shut down";
        self.reload_failed(Failure::emergency(reason));
    }

    fn move_pid_file(&mut self, wanted: &Path) {
        match PidFile::create(wanted) {
            Ok(new) => std::mem::replace(&mut self.pid_file, new).remove(),
            Err(error) => {
                log::error!(target: "emerg", "{}", report::failed("open()", wanted, &error));
            }
        }
    }

    /// The control socket is where the pid file is, even if somebody has removed it.
    fn keep_control_socket(&mut self) {
        let pid_file = self.pid_file.path();
        if !self.control.is_beside(pid_file)
            && let Err(complaint) = self.control.follow(pid_file, clock::monotonic_ms())
        {
            log::error!(target: "alert", "there is no control socket, so that only signals can be sent: {complaint}");
        }
    }
}
