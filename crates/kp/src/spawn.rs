//! Forking a worker: what crosses the fork, and what the child gives up before it serves.

use crate::crew::{Crew, Worker};
use crate::listeners::Listeners;
use crate::logs;
use crate::notify;
use crate::report;
use kp_config::model::{CpuAffinity, Main};
use kp_shm::{Row, Shm, TicketRing};
use kp_sys::process::{self, Fork};
use kp_sys::signals::{self, Signals};
use kp_sys::socket::{send_fds, seqpacket_pair};
use kp_worker::{Heritage, error_log, exit, message};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

/// What every worker of this master is born with, whatever its generation.
#[derive(Debug)]
pub(crate) struct House {
    /// The shared tables.
    pub(crate) shm: Shm,
    /// The keys of TLS session tickets.
    pub(crate) tickets: TicketRing,
    /// pidfd of the master.
    pub(crate) master: Option<OwnedFd>,
    /// `$hostname`.
    pub(crate) hostname: String,
    /// The Via token that all processes of this master share.
    pub(crate) group_token: [u8; 8],
    /// What relative paths are relative to.
    pub(crate) prefix: PathBuf,
}

/// Forks the worker of a slot. In the child this does not return.
pub(crate) fn worker(
    house: &House,
    crews: &mut Vec<Crew>,
    crew: usize,
    slot: u32,
    listeners: &Listeners,
    signals: &mut Option<Signals>,
) -> io::Result<Worker> {
    let (ours, theirs) = seqpacket_pair()?;
    let generation = crews.get(crew).map_or(0, |crew| crew.number);
    prepare_zones(house, crews.get(crew), generation);
    let row = house.shm.scoreboard().claim(generation, slot);
    if row == Row::PRIVATE {
        log::warn!("no free row in the shared tables: worker {slot} is not seen in statistics");
    }
    // Until the child has its own subscription a signal for it waits.
    signals::block_all()?;
    let forked = process::fork();
    if let Ok(Fork::Child) = forked {
        // The parent's subscription: its pipe would wake the parent.
        drop(signals.take());
        follow_log(crews, crew);
        become_worker(house, crews.swap_remove(crew), slot, row, theirs, listeners);
    }
    signals::unblock_all()?;
    match forked {
        Ok(Fork::Parent(pid)) => {
            house
                .shm
                .scoreboard()
                .set_pid(row, u32::try_from(pid).unwrap_or(0));
            Ok(Worker::new(slot, pid, row, ours))
        }
        Ok(Fork::Child) => process::exit_now(i32::from(exit::FATAL)),
        Err(error) => {
            house.shm.reap(row);
            Err(error)
        }
    }
}

/// Sets aside what the generation counts clients in, which must be there before its processes are forked.
pub(crate) fn prepare_zones(house: &House, crew: Option<&Crew>, generation: u32) {
    let Some(crew) = crew else { return };
    for plan in kp_worker::zone_plans(&crew.prepared.config) {
        if !house.shm.zones().prepare(&plan, generation) {
            log::warn!(
                "no shared memory is left for a zone of {} bytes: each worker has its own",
                plan.bytes
            );
        }
    }
}

/// A daemon's standard error is the error log of the generation that serves; in a worker it is that of its own.
fn follow_log(crews: &[Crew], crew: usize) {
    let is_log = crews
        .iter()
        .filter_map(Crew::stderr_file)
        .any(process::is_stderr);
    if is_log && let Some(file) = crews.get(crew).and_then(Crew::stderr_file) {
        // It stays where it was, then; the log itself is another descriptor.
        let _ = process::replace_stderr(file);
    }
}

/// The heritage of a slot; the descriptors are duplicates, closed on exec.
pub(crate) fn heritage(
    house: &House,
    crew: Crew,
    slot: u32,
    row: Row,
    channel: Option<OwnedFd>,
    listeners: &Listeners,
) -> io::Result<Heritage> {
    let sockets = listeners.of_slot(&crew.prepared.config.http.listeners, slot, crew.slots);
    let sockets = sockets
        .map(|(id, fd)| Ok((id, fd.try_clone_to_owned()?)))
        .collect::<io::Result<_>>()?;
    Ok(Heritage {
        prepared: crew.prepared,
        shm: house.shm,
        row,
        slot,
        generation: crew.number,
        overrides: crew.overrides,
        listeners: sockets,
        log_files: logs::duplicates(&crew.files)?,
        master: match (&channel, &house.master) {
            (Some(_), Some(master)) => Some(master.try_clone()?),
            _ => None,
        },
        channel,
        hostname: house.hostname.clone(),
        group_token: house.group_token,
        prefix: house.prefix.clone(),
    })
}

fn become_worker(
    house: &House,
    crew: Crew,
    slot: u32,
    row: Row,
    channel: OwnedFd,
    listeners: &Listeners,
) -> ! {
    process::set_title("kp: worker process");
    if let Err(error) = house.tickets.restrict() {
        log::warn!(
            "the ticket keys stay writable ({})",
            report::numbered(&error)
        );
    }
    // The service manager listens to the master.
    process::forget_variable(notify::VARIABLE);
    let identity = crew.identity.clone();
    let code = match heritage(house, crew, slot, row, Some(channel), listeners) {
        Ok(heritage) => {
            let prepared = own_log(&heritage)
                .and_then(|log| give_up(&heritage, &log, identity.as_ref(), slot));
            match prepared {
                Ok(()) => kp_worker::run(heritage),
                Err(complaint) => {
                    refuse(heritage.channel.as_ref(), &complaint);
                    exit::FATAL
                }
            }
        }
        Err(error) => {
            log::error!(target: "emerg", "{}", call("dup()", &error));
            exit::FATAL
        }
    };
    // Not `exit`, and nothing of the master's is dropped: its descriptors are closed already, their numbers may be others'.
    process::exit_now(i32::from(code))
}

/// Tells the master why this worker cannot start; the master logs it.
fn refuse(channel: Option<&OwnedFd>, complaint: &str) {
    let mut text = vec![message::FAILED];
    text.extend_from_slice(complaint.as_bytes());
    let told = channel.is_some_and(|channel| send_fds(channel, &text, &[]).is_ok());
    if !told {
        log::error!(target: "emerg", "{complaint}");
    }
}

/// What a worker leaves behind for good: the master's descriptors, rights it does not need.
fn give_up(
    heritage: &Heritage,
    log: &[RawFd],
    identity: Option<&process::Identity>,
    slot: u32,
) -> Result<(), String> {
    let main = &heritage.prepared.config.main;
    process::close_all_except(&descriptors(heritage, log))
        .map_err(|error| call("close_range()", &error))?;
    bound(main);
    if let Some(identity) = identity {
        identity
            .assume()
            .map_err(|(name, error)| call(name, &error))?;
        let _ = process::set_dumpable();
    }
    if let Some(cpus) = cpus_of(&main.worker_cpu_affinity, slot, || {
        process::allowed_cpus().unwrap_or_default()
    }) && let Err(error) = process::set_affinity(&cpus)
    {
        log::error!(target: "alert", "sched_setaffinity() failed ({})", report::numbered(&error));
    }
    if let Some(folder) = &main.working_directory {
        std::env::set_current_dir(folder)
            .map_err(|error| report::failed("chdir()", folder, &error))?;
    }
    Ok(())
}

/// Its limits and priority, while it may still choose them; where it may not, it works with those that it has, as nginx.
fn bound(main: &Main) {
    let alert = |call: String, done: io::Result<()>| {
        if let Err(error) = done {
            log::error!(target: "alert", "{call} failed ({})", report::numbered(&error));
        }
    };
    if let Some(nice) = main.worker_priority {
        let call = format!("setpriority({nice})");
        alert(call, process::set_priority(nice));
    }
    if let Some(files) = main.worker_rlimit_nofile {
        let call = format!("setrlimit(RLIMIT_NOFILE, {files})");
        alert(call, process::set_open_files_limit(files));
    }
    if let Some(bytes) = main.worker_rlimit_core {
        let call = format!("setrlimit(RLIMIT_CORE, {bytes})");
        alert(call, process::set_core_limit(bytes));
    }
}

/// Makes `log` write through descriptors of this process, before the master's are closed under it.
fn own_log(heritage: &Heritage) -> Result<Vec<RawFd>, String> {
    let files = heritage
        .log_files
        .iter()
        .map(OwnedFd::try_clone)
        .collect::<io::Result<Vec<_>>>();
    let files = files.map_err(|error| call("dup()", &error))?;
    let numbers = files.iter().map(AsRawFd::as_raw_fd).collect();
    let config = &heritage.prepared.config;
    error_log::install(&config.main.error_log, &config.syslogs, files);
    Ok(numbers)
}

fn descriptors(heritage: &Heritage, log: &[RawFd]) -> Vec<RawFd> {
    let listeners = heritage.listeners.iter().map(|(_, fd)| fd);
    let others = heritage.channel.iter().chain(&heritage.master);
    let mut keep: Vec<RawFd> = listeners
        .chain(&heritage.log_files)
        .chain(others)
        .map(AsRawFd::as_raw_fd)
        .collect();
    keep.extend(log);
    keep
}

fn call(name: &str, error: &io::Error) -> String {
    format!("{name} failed ({})", report::numbered(error))
}

/// The CPUs of a slot, of those that this process may use; `None`: any.
fn cpus_of(
    affinity: &CpuAffinity,
    slot: u32,
    allowed: impl FnOnce() -> Vec<u32>,
) -> Option<Vec<u32>> {
    let slot = slot as usize;
    match affinity {
        CpuAffinity::Off => None,
        CpuAffinity::Masks(masks) => masks.get(slot).or(masks.last()).cloned(),
        CpuAffinity::Auto(mask) => {
            let mut allowed = allowed();
            allowed.retain(|cpu| mask.as_ref().is_none_or(|mask| mask.contains(cpu)));
            let index = slot.checked_rem(allowed.len())?;
            allowed.get(index).map(|cpu| vec![*cpu])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_get_their_cpus_as_nginx_gives_them() {
        let masks = || CpuAffinity::Masks(vec![vec![0], vec![2, 3]]);
        for (affinity, slot, cpus) in [
            (CpuAffinity::Off, 0, None),
            (masks(), 0, Some(vec![0])),
            (masks(), 1, Some(vec![2, 3])),
            (masks(), 5, Some(vec![2, 3])),
            (CpuAffinity::Auto(None), 0, Some(vec![1])),
            (CpuAffinity::Auto(None), 4, Some(vec![2])),
            (CpuAffinity::Auto(Some(vec![2, 4, 9])), 1, Some(vec![4])),
            (CpuAffinity::Auto(Some(vec![9])), 0, None),
        ] {
            assert_eq!(
                cpus_of(&affinity, slot, || vec![1, 2, 4]),
                cpus,
                "{affinity:?} {slot}"
            );
        }
    }
}
