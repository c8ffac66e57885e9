//! `metrics`: everything that is counted, for Prometheus, summed over all processes of all generations.
//!
//! The page is made from [`families`]'s list on a thread of its own: with many peers it is long, and the files of /proc are
//! read for it. Nothing of the worker is touched: shared memory, the configuration and the certificates may be read from
//! anywhere.

use super::View;
use super::exposition::{Exposition, Value, labels};
use super::families::{Family, Found, Parts, Source, families};
use crate::proc::{descriptors, resident_bytes};
use crate::zones::{Directive, Zone, of_upstreams, zones};
use kp_proxy::{Reason, Rendered};
use kp_shm::{
    BOUNDS_MS, CellKind, Counter, Counters, Histogram, PeerCell, PeerFlag, Process, SeriesInfo,
    SeriesKind, State, TURN_BOUNDS_US, Totals,
};
use kp_tls::Role;
use std::collections::BTreeMap;

/// Version 0.0.4 is what every Prometheus understands.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Makes the page.
pub(super) fn render(view: &View) -> Rendered {
    let tables = SeriesKind::ALL.map(|kind| Table::read(view, kind));
    let mut page = Page {
        view,
        zones: all_zones(view, &tables),
        tables: &tables,
        out: Exposition::default(),
    };
    for family in families() {
        page.out.family(&family.name, family.kind, family.help);
        page.write(&family);
    }
    Rendered {
        status: 200,
        media_type: FORMAT,
        fields: &[],
        body: page.out.finish(),
    }
}

/// The series of a kind, in the order of their labels.
struct Table {
    kind: SeriesKind,
    rows: Vec<SeriesValues>,
}

/// A series with all its values.
struct SeriesValues {
    info: SeriesInfo,
    /// As they stand between the braces.
    labels: String,
    totals: Totals,
}

impl Table {
    fn read(view: &View, kind: SeriesKind) -> Self {
        let series = view.shm.series();
        let of_kind = series.rows().filter(|info| info.kind == kind);
        let mut rows: Vec<SeriesValues> = of_kind
            .map(|info| SeriesValues {
                labels: labels(
                    kind.labels()
                        .iter()
                        .copied()
                        .zip(info.labels.iter().map(String::as_str)),
                ),
                totals: series.totals(info.index),
                info,
            })
            .collect();
        // What was taken back meanwhile, and may be another's already, is left out.
        rows.retain(|row| series.is_there(row.info.index));
        rows.sort_by(|one, other| one.info.labels.cmp(&other.info.labels));
        // Prometheus takes no page that says something twice.
        rows.dedup_by(|later, earlier| later.info.labels == earlier.info.labels);
        Self { kind, rows }
    }
}

/// The zones; those of upstreams where peers are told of.
fn all_zones(view: &View, tables: &[Table; 3]) -> Vec<Zone<'static>> {
    let mut zones = zones(view.config, &view.shm, view.now_ms);
    if view.config.http.metrics {
        let peers = tables.iter().filter(|table| table.kind == SeriesKind::Peer);
        let peers = peers.flat_map(|table| &table.rows);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for row in peers.filter(|row| row.is_looked_after()) {
            if let Some(group) = row.info.labels.first() {
                *counts.entry(group).or_default() += 1;
            }
        }
        let count = |group: &str| counts.get(group).copied().unwrap_or(0);
        zones.extend(of_upstreams(view.config, count));
    }
    zones
}

/// The page while it is made.
struct Page<'a> {
    view: &'a View,
    zones: Vec<Zone<'static>>,
    tables: &'a [Table; 3],
    out: Exposition,
}

impl<'a> Page<'a> {
    fn write(&mut self, family: &Family) {
        let name = &*family.name;
        let counters = self.view.shm.counters();
        match &family.source {
            Source::Counter(counter, parts) => {
                let total = counters.total(*counter);
                self.out.sample(name, "", parts.of(total));
            }
            Source::Turns => self.turns(name, &counters),
            Source::Failures => self.failures(name, &counters),
            Source::Configured => self.configured(name, &counters),
            Source::Cells(kind, places, parts) => self.cells(name, *kind, places, *parts),
            Source::Times(kind, histogram) => self.times(name, *kind, *histogram),
            Source::Found(found) => self.found(name, *found),
        }
    }

    fn turns(&mut self, name: &str, counters: &Counters) {
        let ends = TURN_BOUNDS_US
            .into_iter()
            .map(|end| Some(Value::Millionths(end)));
        let buckets = ends.chain([None]).zip(counters.turns());
        let sum = Value::Millionths(counters.total(Counter::LoopBusy));
        self.out.histogram(name, "", buckets, sum);
    }

    fn failures(&mut self, name: &str, counters: &Counters) {
        for reason in Reason::ALL.iter().filter(|reason| reason.is_failure()) {
            let pairs = labels([("reason", reason.token()), ("side", reason.side().token())]);
            let total = counters.reason_total(reason.index());
            self.out.sample(name, &pairs, Value::Whole(total));
        }
    }

    fn configured(&mut self, name: &str, counters: &Counters) {
        for reason in Reason::ALL.iter().filter(|reason| !reason.is_failure()) {
            let total = counters.reason_total(reason.index());
            let label = ("reason", reason.token());
            self.out.sample_with(name, "", label, Value::Whole(total));
        }
    }

    /// Cells of one metric. What workers say of a peer is told while one has it.
    fn cells(&mut self, name: &str, kind: SeriesKind, places: &[usize], parts: Parts) {
        for row in self.rows(kind) {
            for (place, cell) in places
                .iter()
                .filter_map(|at| Some((at, kind.cells().get(*at)?)))
            {
                if cell.kind == CellKind::Setting && !row.is_looked_after() {
                    continue;
                }
                let value = parts.of(row.totals.at(*place));
                match cell.label {
                    Some(label) => self.out.sample_with(name, &row.labels, label, value),
                    None => self.out.sample(name, &row.labels, value),
                }
            }
        }
    }

    fn times(&mut self, name: &str, kind: SeriesKind, histogram: Histogram) {
        for row in self.rows(kind) {
            let total = row.totals.histogram(histogram);
            let ends = BOUNDS_MS
                .into_iter()
                .map(|end| Some(Value::Thousandths(end)));
            let buckets = ends.chain([None]).zip(total.buckets);
            let sum = Value::Thousandths(total.sum_ms);
            self.out.histogram(name, &row.labels, buckets, sum);
        }
    }

    fn found(&mut self, name: &str, found: Found) {
        let master = self.view.shm.master();
        let counters = self.view.shm.counters();
        match found {
            Found::Build => {
                let version = labels([("version", env!("CARGO_PKG_VERSION"))]);
                self.out.sample(name, &version, Value::Whole(1));
            }
            Found::Started => self.moment(name, "", master.started_unix_ms()),
            Found::Generation => self.whole(name, master.generation().into()),
            Found::Generations => self.by_state(name, &foremost(self.view)),
            Found::Workers => self.workers(name),
            Found::WorkerMemory => self.of_workers(name, |process| resident_bytes(process.pid)),
            Found::WorkerDescriptors => self.of_workers(name, |process| {
                let own = counters.value(process.row, Counter::DescriptorsOpen);
                Some(descriptors(process.pid, own)?.open)
            }),
            Found::WorkerDescriptorsMax => {
                self.of_workers(name, |process| descriptors(process.pid, 0)?.max);
            }
            Found::MasterMemory => {
                if let Some(bytes) = self.view.master.and_then(resident_bytes) {
                    self.whole(name, bytes);
                }
            }
            Found::Reloads => {
                for (result, count) in [
                    ("ok", master.reloads_ok()),
                    ("failed", master.reloads_failed()),
                ] {
                    self.out
                        .sample_with(name, "", ("result", result), Value::Whole(count));
                }
            }
            Found::LastReloadSuccessful => {
                if let Some(last) = master.last_reload() {
                    self.whole(name, u64::from(!last.failed));
                }
            }
            Found::LastReload => {
                if let Some(last) = master.last_reload() {
                    self.moment(name, "", last.unix_ms);
                }
            }
            Found::Changes => self.whole(name, master.changes()),
            Found::Certificates => self.ends(name, |role| !role.is_list()),
            Found::RevocationLists => self.ends(name, Role::is_list),
            Found::ZoneSize | Found::ZoneEntries | Found::ZoneMaxEntries | Found::ZoneOverflows => {
                self.zones(name, found);
            }
            Found::NoRoom => self.whole(name, self.view.shm.series().strays()),
            Found::PeerUp | Found::PeerStates | Found::PeerLastFailure => self.peers(name, found),
        }
    }

    fn whole(&mut self, name: &str, value: u64) {
        self.out.sample(name, "", Value::Whole(value));
    }

    fn moment(&mut self, name: &str, labels: &str, unix_ms: u64) {
        self.out.sample(name, labels, Value::Thousandths(unix_ms));
    }

    fn by_state(&mut self, name: &str, states: &[State]) {
        for (state, word) in STATES {
            let count = states.iter().filter(|one| **one == state).count();
            self.out
                .sample_with(name, "", ("state", word), Value::Whole(count as u64));
        }
    }

    fn workers(&mut self, name: &str) {
        let board = self.view.shm.scoreboard();
        let is_stuck = |process: &Process| process.stuck_ms(self.view.now_ms).is_some();
        let (stuck, others): (Vec<_>, Vec<_>) = board.processes().partition(is_stuck);
        let states: Vec<State> = others.iter().map(|process| process.state).collect();
        self.by_state(name, &states);
        let count = Value::Whole(stuck.len() as u64);
        self.out.sample_with(name, "", ("state", "stuck"), count);
    }

    /// Of two processes in one place, one of which is about to be reaped, the sum.
    fn of_workers(&mut self, name: &str, ask: impl Fn(&Process) -> Option<u64>) {
        let mut found: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for process in self.view.shm.scoreboard().processes() {
            if let Some(value) = ask(&process) {
                *found.entry((process.generation, process.slot)).or_default() += value;
            }
        }
        for ((generation, slot), value) in found {
            let pairs = [
                ("generation", generation.to_string()),
                ("slot", slot.to_string()),
            ];
            let pairs = labels(pairs.iter().map(|(label, value)| (*label, value.as_str())));
            self.out.sample(name, &pairs, Value::Whole(value));
        }
    }

    fn ends(&mut self, name: &str, belongs: fn(Role) -> bool) {
        for end in self.view.tls.ends() {
            if belongs(end.role) {
                let file = end.file.to_string_lossy();
                let pairs = [("file", file.as_ref()), ("directive", end.role.directive())];
                self.out
                    .sample(name, &labels(pairs), Value::Whole(end.unix_secs));
            }
        }
    }

    fn zones(&mut self, name: &str, found: Found) {
        for zone in &self.zones {
            let full = zone.occupancy;
            let value = match found {
                Found::ZoneSize => Some(zone.bytes),
                Found::ZoneEntries => full.map(|it| it.entries),
                Found::ZoneMaxEntries => full.map(|it| it.max_entries),
                // Who adds a peer that finds no room is told so.
                _ if zone.directive == Directive::Upstream => None,
                _ => full.map(|it| it.overflows),
            };
            if let Some(value) = value {
                let pairs = labels([("zone", zone.name), ("directive", zone.directive.name())]);
                self.out.sample(name, &pairs, Value::Whole(value));
            }
        }
    }

    fn peers(&mut self, name: &str, found: Found) {
        for row in self.rows(SeriesKind::Peer) {
            let flags = row.flags(self.view.now_ms);
            match found {
                Found::PeerLastFailure => {
                    if let Some(last) = row.totals.last_failure() {
                        self.moment(name, &row.labels, last.at_unix_ms);
                    }
                }
                _ if !row.is_looked_after() => {}
                Found::PeerUp => {
                    let up = !flags.iter().any(|(flag, set)| *set && keeps_away(*flag));
                    self.out
                        .sample(name, &row.labels, Value::Whole(u64::from(up)));
                }
                _ => {
                    for (flag, set) in flags {
                        let label = ("state", flag.name());
                        let value = Value::Whole(u64::from(set));
                        self.out.sample_with(name, &row.labels, label, value);
                    }
                }
            }
        }
    }

    fn rows(&self, kind: SeriesKind) -> &'a [SeriesValues] {
        let table = self.tables.iter().find(|table| table.kind == kind);
        table.map_or(&[], |table| &table.rows)
    }
}

impl SeriesValues {
    /// Whether a worker has the peer.
    fn is_looked_after(&self) -> bool {
        self.totals.value(PeerCell::Looked) != 0
    }

    /// The states of a peer. Those that end by themselves have their time.
    fn flags(&self, now_ms: u64) -> [(PeerFlag, bool); PeerFlag::ALL.len()] {
        let flags = self.totals.value(PeerCell::Flags);
        PeerFlag::ALL.map(|flag| {
            let set = match flag {
                PeerFlag::Resting => self.totals.value(PeerCell::RestingUntil) > now_ms,
                PeerFlag::Ejected => self.totals.value(PeerCell::EjectedUntil) > now_ms,
                flag => flag.is_in(flags),
            };
            (flag, set)
        })
    }
}

/// Whether a state says that the peer is not to be asked. One that is full has as much as it can take, and is well.
fn keeps_away(flag: PeerFlag) -> bool {
    !matches!(flag, PeerFlag::Backup | PeerFlag::Full)
}

impl Parts {
    fn of(self, count: u64) -> Value {
        match self {
            Self::Whole => Value::Whole(count),
            Self::Thousandths => Value::Thousandths(count),
            Self::Millionths => Value::Millionths(count),
        }
    }
}

/// The states of processes that are told of, with their words.
const STATES: [(State, &str); 3] = [
    (State::Starting, "starting"),
    (State::Ready, "ready"),
    (State::Draining, "draining"),
];

/// The state of each generation: that of the worker that serves best. One whose workers are starting again serves.
fn foremost(view: &View) -> Vec<State> {
    let mut generations: BTreeMap<u32, State> = BTreeMap::new();
    let rank = |state: State| match state {
        State::Ready => 0,
        State::Starting => 1,
        State::Draining => 2,
        State::Gone => 3,
    };
    for process in view.shm.scoreboard().processes() {
        let state = generations
            .entry(process.generation)
            .or_insert(process.state);
        if rank(process.state) < rank(*state) {
            *state = process.state;
        }
    }
    generations.into_values().collect()
}
