//! What is worth a look, in words. What only a look back can tell (a share of failures) the page adds by itself.

use super::{Overview, UpstreamView, ZoneView};
use kp_config::Config;
use kp_shm::Shm;
use serde::Serialize;
use std::collections::BTreeMap;

const DAY_S: u64 = 86_400;
/// Certificates that end sooner are told of: most are renewed a month before.
const CERTIFICATE_WARNING_S: u64 = 14 * DAY_S;
const CERTIFICATE_CRITICAL_S: u64 = 3 * DAY_S;
/// Of `worker_memory`, in hundredths: not far from there requests are refused.
const MEMORY_WARNING_PERCENT: u64 = 90;
/// Of the descriptors that a worker may have, in hundredths.
const DESCRIPTORS_WARNING_PERCENT: u64 = 90;
/// Of the entries of a zone, in hundredths.
const ZONE_WARNING_PERCENT: u64 = 75;

/// How bad it is; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Requests fail now, or are about to.
    Critical,
    /// Nobody notices yet.
    Warning,
}

/// Something worth a look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub level: Level,
    /// upstream, certificate, reload, worker, memory, limit or kp.
    pub about: &'static str,
    /// Which of them; empty where there is one.
    pub name: String,
    /// What it is.
    pub text: String,
}

/// Looks.
pub(super) fn problems(overview: &Overview, config: &Config, shm: &Shm) -> Vec<Problem> {
    let mut problems = Vec::new();
    problems.extend(overview.upstreams.iter().filter_map(of_upstream));
    problems.extend(of_certificates(overview));
    problems.extend(of_workers(overview, config));
    problems.extend(overview.limits.counted().filter_map(of_zone));
    if overview.master.last_reload_failed {
        problems.push(Problem {
            level: Level::Warning,
            about: "reload",
            name: String::new(),
            text:
                "the last one failed: the configuration of before still serves, see the error log"
                    .to_owned(),
        });
    }
    let crowded = shm.peers().overflows() + shm.checks().overflows() + shm.series().strays();
    if crowded > 0 {
        problems.push(Problem {
            level: Level::Warning,
            about: "kp",
            name: String::new(),
            text: "the shared tables are full: some peers are not shared between workers, or not counted apart"
                .to_owned(),
        });
    }
    problems.sort_by_key(|problem| problem.level);
    problems
}

fn of_upstream(group: &UpstreamView) -> Option<Problem> {
    let problem = |level, text| {
        Some(Problem {
            level,
            about: "upstream",
            name: group.upstream.clone(),
            text,
        })
    };
    // How many peers are in each state, but for those that are as they should be or were told to be.
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for peer in &group.peers {
        *states.entry(peer.state).or_insert(0) += 1;
    }
    let told = |wanted: &dyn Fn(&str) -> bool| {
        let states = states.iter().filter(|(state, _)| wanted(state));
        let states = states.map(|(state, count)| format!("{count} {state}"));
        states.collect::<Vec<_>>().join(", ")
    };
    let all = group.peers.len();
    if all == 0 {
        let text = "no peer: no worker has one, or its names have no address";
        return problem(Level::Critical, text.to_owned());
    }
    if group.usable == 0 {
        let text = format!("no usable peer: {}", told(&|_| true));
        return problem(Level::Critical, text);
    }
    if states.get("full") == Some(&group.usable)
        && group.peers.iter().all(|peer| peer.state != "up")
    {
        return problem(
            Level::Warning,
            "every usable peer is at max_conns".to_owned(),
        );
    }
    let ill = |state: &str| matches!(state, "unhealthy" | "ejected" | "resting");
    let count: usize = states
        .iter()
        .filter_map(|(state, count)| ill(state).then_some(count))
        .sum();
    if count == 0 {
        return None;
    }
    problem(Level::Warning, format!("{} of {all} peers", told(&ill)))
}

fn of_certificates(overview: &Overview) -> impl Iterator<Item = Problem> {
    let now_s = overview.now_unix_ms / 1000;
    overview.certificates.iter().filter_map(move |certificate| {
        let left_s = certificate
            .expires_unix_s
            .checked_sub(now_s)
            .filter(|left| *left > 0);
        let (level, text) = if certificate.role.is_own() {
            of_own(left_s)?
        } else if certificate.role.is_list() {
            of_list(left_s)?
        } else {
            of_authorities(left_s)?
        };
        Some(Problem {
            level,
            about: "certificate",
            name: certificate.file.clone(),
            text,
        })
    })
}

/// Others refuse it when it is over. The time that is left is in seconds; `None`: it is over.
fn of_own(left_s: Option<u64>) -> Option<(Level, String)> {
    match left_s {
        None => Some((Level::Critical, "has expired".to_owned())),
        Some(left_s) if left_s < CERTIFICATE_CRITICAL_S => {
            let text = format!("expires in {} hours", left_s / 3600);
            Some((Level::Critical, text))
        }
        Some(left_s) if left_s < CERTIFICATE_WARNING_S => {
            let text = format!("expires in {} days", left_s / DAY_S);
            Some((Level::Warning, text))
        }
        Some(_) => None,
    }
}

/// A list is renewed every few days or hours, so that little time is left is nothing to tell of.
fn of_list(left_s: Option<u64>) -> Option<(Level, String)> {
    let text = "is out of date: every certificate that it is about is refused";
    left_s.is_none().then(|| (Level::Critical, text.to_owned()))
}

/// One of several authorities, perhaps. One that has ended may stay in a file for years.
fn of_authorities(left_s: Option<u64>) -> Option<(Level, String)> {
    let left_s = left_s.filter(|left_s| *left_s < CERTIFICATE_WARNING_S)?;
    let text = format!("an authority in it expires in {} days", left_s / DAY_S);
    Some((Level::Warning, text))
}

/// An entry has only a few places where it may lie, so a zone that is not full to the brim forgets some already.
fn of_zone(zone: &ZoneView) -> Option<Problem> {
    let (entries, max) = (zone.entries?, zone.max_entries?);
    (entries * 100 >= max * ZONE_WARNING_PERCENT).then(|| Problem {
        level: Level::Warning,
        about: "limit",
        name: format!("zone {}", zone.zone),
        text: format!(
            "{entries} of {max} entries are in use: of more, some are forgotten or not counted"
        ),
    })
}

fn of_workers(overview: &Overview, config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    let newest = overview.master.generation;
    let ours = || {
        overview
            .workers
            .iter()
            .filter(|worker| worker.generation == newest)
    };
    // Slots count from 0, and one whose worker is being started again is missing among them.
    let slots = ours().map(|worker| worker.slot + 1).max().unwrap_or(0);
    let slots = config.main.worker_processes.unwrap_or(slots).max(slots) as usize;
    let in_place = |state: &str| matches!(state, "serving" | "stuck");
    let serving = ours().filter(|worker| in_place(worker.state)).count();
    if serving > 0 && serving < slots {
        problems.push(Problem {
            level: Level::Warning,
            about: "worker",
            name: String::new(),
            text: format!("{serving} of {slots} serve"),
        });
    }
    for worker in &overview.workers {
        if let (Some(open), Some(max)) = (worker.open_fds, worker.max_fds)
            && open * 100 >= max * DESCRIPTORS_WARNING_PERCENT
        {
            problems.push(Problem {
                level: Level::Warning,
                about: "worker",
                name: format!("pid {}", worker.pid),
                text: format!("has {open} of {max} descriptors open (worker_rlimit_nofile)"),
            });
        }
        if worker.state == "stuck" {
            problems.push(Problem {
                level: Level::Critical,
                about: "worker",
                name: format!("pid {}", worker.pid),
                text: format!(
                    "has stood still for {} s, with {} connections: it was stopped, or something holds it up",
                    worker.since_s, worker.connections
                ),
            });
        }
        let limit = worker.memory_limit_bytes / 100 * MEMORY_WARNING_PERCENT;
        if limit > 0 && worker.memory_bytes >= limit {
            problems.push(Problem {
                level: Level::Warning,
                about: "memory",
                name: format!("pid {}", worker.pid),
                text: format!("more than {MEMORY_WARNING_PERCENT} % of worker_memory is in use"),
            });
        }
    }
    problems
}
