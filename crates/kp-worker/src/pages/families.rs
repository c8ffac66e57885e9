//! The list of metrics: which families there are, what they are called and where their numbers come from.
//!
//! Most of it is made from the tables of what is counted, so that a new cell there is told of by itself. docs/metrics.md is
//! written from it.

use super::exposition::FamilyKind;
use kp_shm::{CellKind, Counter, Histogram, Kind, SeriesKind};

/// A metric, with all of its labels' values.
#[derive(Debug, Clone)]
pub struct Family {
    /// As Prometheus knows it.
    pub name: String,
    /// What it is.
    pub kind: FamilyKind,
    /// Names of its labels, but for `le`.
    pub labels: Vec<&'static str>,
    /// What one is.
    pub unit: &'static str,
    /// One sentence.
    pub help: &'static str,
    pub(super) source: Source,
}

/// Where the numbers of a family come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// A plain counter, in parts of the unit.
    Counter(Counter, Parts),
    /// Turns of the event loop.
    Turns,
    /// Failures, by their reasons.
    Failures,
    /// Answers that the configuration asks for, by their reasons.
    Configured,
    /// Cells of series, by their places, in parts of the unit.
    Cells(SeriesKind, Vec<usize>, Parts),
    /// A histogram of series.
    Times(SeriesKind, Histogram),
    /// What is found out when the page is made.
    Found(Found),
}

/// In which parts of the unit something is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    Whole,
    Thousandths,
    Millionths,
}

/// What is found out when the page is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Build,
    Started,
    Generation,
    Generations,
    Workers,
    WorkerMemory,
    WorkerDescriptors,
    WorkerDescriptorsMax,
    MasterMemory,
    Reloads,
    LastReloadSuccessful,
    LastReload,
    Changes,
    Certificates,
    RevocationLists,
    ZoneSize,
    ZoneEntries,
    ZoneMaxEntries,
    ZoneOverflows,
    NoRoom,
    PeerStates,
    PeerUp,
    PeerLastFailure,
}

/// Families that are in no table of counters: source, kind, name, labels, unit, help.
type FoundRow = (
    Found,
    FamilyKind,
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
);

#[rustfmt::skip]
const FOUND: &[FoundRow] = &[
    (Found::Build, FamilyKind::Gauge, "build_info", &["version"], "", "The version that answers; always 1."),
    (Found::Started, FamilyKind::Gauge, "start_time_seconds", &[], "seconds", "When kp was started, in seconds since 1970; a reload does not change it."),
    (Found::Generation, FamilyKind::Gauge, "generation", &[], "", "Number of the configuration that serves; every reload makes another."),
    (Found::Generations, FamilyKind::Gauge, "generations", &["state"], "generations", "Configurations that have workers, by how far the foremost of these has come: starting, ready, or draining after a reload."),
    (Found::Workers, FamilyKind::Gauge, "workers", &["state"], "processes", "Workers by how far they have come: starting, ready, or draining; stuck are those whose event loop has not turned for five seconds."),
    (Found::WorkerMemory, FamilyKind::Gauge, "worker_resident_memory_bytes", &["generation", "slot"], "bytes", "Memory of a worker as the system counts it, shared memory included."),
    (Found::WorkerDescriptors, FamilyKind::Gauge, "worker_open_fds", &["generation", "slot"], "descriptors", "Descriptors that a worker has open, as the system counts them; before Linux 6.2 its sockets only."),
    (Found::WorkerDescriptorsMax, FamilyKind::Gauge, "worker_max_fds", &["generation", "slot"], "descriptors", "Descriptors that a worker may have open: worker_rlimit_nofile, or what kp was started with."),
    (Found::MasterMemory, FamilyKind::Gauge, "master_resident_memory_bytes", &[], "bytes", "Memory of the master as the system counts it, shared memory included."),
    (Found::Reloads, FamilyKind::Counter, "reloads", &["result"], "reloads", "Reloads by result: after those that are ok another configuration serves, those that failed changed nothing."),
    (Found::LastReloadSuccessful, FamilyKind::Gauge, "last_reload_successful", &[], "", "Whether the last reload went well: 1 or 0; without any there is no sample."),
    (Found::LastReload, FamilyKind::Gauge, "last_reload_timestamp_seconds", &[], "seconds", "When the last reload ended, in seconds since 1970; without any there is no sample."),
    (Found::Changes, FamilyKind::Gauge, "runtime_changes", &[], "changes", "Changes of upstreams made at run time that are in force."),
    (Found::Certificates, FamilyKind::Gauge, "certificate_expiry_timestamp_seconds", &["file", "directive"], "seconds", "When the certificate in the file ends, in seconds since 1970; of a file with authorities the first of them."),
    (Found::RevocationLists, FamilyKind::Gauge, "crl_next_update_timestamp_seconds", &["file", "directive"], "seconds", "When the list in the file of what was revoked is out of date, in seconds since 1970; from then on nobody is let in with a certificate that it is about."),
    (Found::ZoneSize, FamilyKind::Gauge, "zone_size_bytes", &["zone", "directive"], "bytes", "Memory that the configuration gives the zone."),
    (Found::ZoneEntries, FamilyKind::Gauge, "zone_entries", &["zone", "directive"], "entries", "Entries of the zone that count now: keys seen within what their rate allows, keys that have connections, sessions that are not over, peers."),
    (Found::ZoneMaxEntries, FamilyKind::Gauge, "zone_max_entries", &["zone", "directive"], "entries", "How many entries fit into the zone; since an entry has few places where it may lie, some find no room a little before."),
    (Found::ZoneOverflows, FamilyKind::Counter, "zone_overflows", &["zone", "directive"], "entries", "How often the zone had no room: the entry with least left was forgotten though it still counted, or a request passed limit_conn uncounted."),
    (Found::NoRoom, FamilyKind::Gauge, "series_without_room", &[], "series", "Virtual hosts, groups and peers that found no room for series of their own and count as other, once for each worker."),
    (Found::PeerUp, FamilyKind::Gauge, "peer_up", &["upstream", "peer"], "", "Whether the peer is fit to get requests: 1, or 0 where it is down, draining, unhealthy, resting or ejected."),
    (Found::PeerStates, FamilyKind::Gauge, "peer_state", &["upstream", "peer", "state"], "", "Whether the peer is in the state: 1 or 0."),
    (Found::PeerLastFailure, FamilyKind::Gauge, "peer_last_failure_timestamp_seconds", &["upstream", "peer"], "seconds", "When an attempt at the peer failed last, in seconds since 1970; without any there is no sample."),
];

/// Counters that `kp_http_requests_total` tells in more detail.
const TOLD_ELSEWHERE: [Counter; 6] = [
    Counter::Requests,
    Counter::Responses1xx,
    Counter::Responses2xx,
    Counter::Responses3xx,
    Counter::Responses4xx,
    Counter::Responses5xx,
];

/// Every family, in the order of the page.
pub fn families() -> Vec<Family> {
    let mut families: Vec<Family> = FOUND.iter().map(found).collect();
    let told = |counter: &&Counter| !TOLD_ELSEWHERE.contains(counter);
    families.extend(
        Counter::ALL
            .iter()
            .filter(told)
            .map(|counter| plain(*counter)),
    );
    families.push(Family {
        name: "kp_loop_turn_duration_seconds".to_owned(),
        kind: FamilyKind::Histogram,
        labels: Vec::new(),
        unit: "seconds",
        help: "How long a turn of the event loop took: nobody else of the worker's clients is served meanwhile.",
        source: Source::Turns,
    });
    families.push(Family {
        name: "kp_failures_total".to_owned(),
        kind: FamilyKind::Counter,
        labels: vec!["reason", "side"],
        unit: "requests",
        help: "Requests that kp refused, answered with an error or could not complete, by reason and whose fault it was; docs/reasons.md explains each.",
        source: Source::Failures,
    });
    families.push(Family {
        name: "kp_configured_answers_total".to_owned(),
        kind: FamilyKind::Counter,
        labels: vec!["reason"],
        unit: "requests",
        help: "Requests that kp answered by itself because the configuration asks for it (return, redirects, pages about kp): no failures, whatever their status.",
        source: Source::Configured,
    });
    for kind in SeriesKind::ALL {
        of_series(kind, &mut families);
    }
    families
}

/// The names of all families. A histogram's samples have `_bucket`, `_sum` and `_count` behind its name.
pub fn metric_names() -> Vec<String> {
    families().into_iter().map(|family| family.name).collect()
}

fn found((source, kind, name, labels, unit, help): &FoundRow) -> Family {
    Family {
        name: full_name(name, *kind),
        kind: *kind,
        labels: labels.to_vec(),
        unit,
        help,
        source: Source::Found(*source),
    }
}

fn plain(counter: Counter) -> Family {
    let kind = match counter.kind() {
        Kind::Counter | Kind::Stopwatch => FamilyKind::Counter,
        Kind::Gauge | Kind::Peak => FamilyKind::Gauge,
    };
    let (name, unit, parts) = in_base_unit(counter.name(), counter.unit());
    Family {
        name: full_name(name, kind),
        kind,
        labels: Vec::new(),
        unit,
        help: counter.help(),
        source: Source::Counter(counter, parts),
    }
}

fn of_series(kind: SeriesKind, families: &mut Vec<Family>) {
    let first = families.len();
    for (place, cell) in kind.cells().iter().enumerate() {
        let family = match cell.kind {
            CellKind::Counter => FamilyKind::Counter,
            CellKind::Gauge | CellKind::Setting => FamilyKind::Gauge,
            // Moments and states are made into something that can be read.
            CellKind::Flags | CellKind::Moment | CellKind::Failure => continue,
        };
        if cell.metric.is_empty() {
            continue;
        }
        let (name, unit, parts) = in_base_unit(cell.metric, cell.unit);
        let name = full_name(name, family);
        let known = families
            .iter_mut()
            .skip(first)
            .find(|known| known.name == name);
        if let Some(Family {
            source: Source::Cells(_, places, _),
            ..
        }) = known
        {
            places.push(place);
            continue;
        }
        let further = cell.label.map(|(label, _)| label);
        families.push(Family {
            name,
            kind: family,
            labels: kind.labels().iter().copied().chain(further).collect(),
            unit,
            help: cell.help,
            source: Source::Cells(kind, vec![place], parts),
        });
    }
    families.extend(kind.histograms().iter().map(|histogram| Family {
        name: full_name(histogram.metric(), FamilyKind::Histogram),
        kind: FamilyKind::Histogram,
        labels: kind.labels().to_vec(),
        unit: "seconds",
        help: histogram.help(),
        source: Source::Times(kind, *histogram),
    }));
}

/// Prometheus wants base units, and counters that say so.
fn full_name(name: &str, kind: FamilyKind) -> String {
    match kind {
        FamilyKind::Counter => format!("kp_{name}_total"),
        FamilyKind::Gauge | FamilyKind::Histogram => format!("kp_{name}"),
    }
}

/// The name without the unit it is counted in; the unit it is told in.
fn in_base_unit(name: &'static str, unit: &'static str) -> (&'static str, &'static str, Parts) {
    match unit {
        "milliseconds" => (name, "seconds", Parts::Thousandths),
        "microseconds" => (name, "seconds", Parts::Millionths),
        "thousandths" => (name, "", Parts::Thousandths),
        unit => (name, unit, Parts::Whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_follow_the_conventions() {
        let families = families();
        let names: HashSet<&str> = families.iter().map(|family| &*family.name).collect();
        assert_eq!(names.len(), families.len());
        for family in &families {
            let name = &family.name;
            let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
            assert!(
                name.chars().all(|letter| letters(letter) || letter == '_'),
                "{name}"
            );
            assert!(name.starts_with("kp_"), "{name}");
            assert_eq!(
                name.ends_with("_total"),
                family.kind == FamilyKind::Counter,
                "{name}"
            );
            let last = name.trim_end_matches("_total");
            for unit in ["seconds", "bytes"] {
                assert_eq!(
                    last.ends_with(unit),
                    family.unit == unit,
                    "{name} in {unit}"
                );
            }
            for other in ["_us", "_ms", "_milliseconds", "_bucket", "_sum", "_count"] {
                assert!(!last.ends_with(other), "{name}");
            }
            assert!(
                family.help.ends_with('.') && !family.help.contains('\n'),
                "{name}"
            );
        }
    }

    #[test]
    fn cells_of_one_metric_are_one_family() {
        let families = families();
        let requests = families
            .iter()
            .find(|family| family.name == "kp_http_requests_total");
        assert_eq!(requests.unwrap().labels, ["server", "status"]);
        assert!(metric_names().contains(&"kp_peer_head_duration_seconds".to_owned()));
    }
}
