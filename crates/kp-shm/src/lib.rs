//! What all processes of one kp share, as typed views over atomics.
//!
//! Everything here is `&'static [AtomicU64]`, mapped once before the first fork: no pointers, no locks, no odd sequence
//! number that a killed writer could leave behind. A shared row holds facts, never configuration: two generations with
//! different configurations use the same row at the same time. Out of rows means a private row and a warning, never a
//! failed start.

mod checks;
mod counters;
mod facts;
mod history;
mod keyed;
mod lease;
mod names;
mod occupancy;
mod peers;
mod places;
mod rates;
mod recent;
mod repair;
mod scoreboard;
mod series;
mod sessions;
mod tickets;
mod zones;

pub use checks::{CheckChange, CheckRow, CheckState, Checks, Thresholds};
pub use counters::{Block, Counter, Counters, Kind, REASONS, TURN_BOUNDS_US, TURN_BUCKETS};
pub use facts::{LastReload, MasterFacts};
pub use history::{History, Sample, Sampler};
pub use lease::{Claimant, Lease};
pub use names::{NameAddress, NameRow, Names};
pub use occupancy::{Living, Occupancy};
pub use peers::{Answers, Ejection, Health, Key, PeerRow, Peers};
pub use places::{Journal, Place, PlaceZone, Taken};
pub use rates::{EXCESS_MAX, Exceeded, Hashed, RateZone};
pub use recent::{Entry, Recent};
pub use repair::Repair;
pub use scoreboard::{Process, Row, Scoreboard, State, TURN_EVERY_MS};
pub use series::{
    BOUNDS_MS, BUCKETS, CellKind, CellSpec, Histogram, HistogramTotal, IdleSeries, LastFailure,
    PeerCell, PeerFlag, Series, SeriesCell, SeriesIndex, SeriesInfo, SeriesKind, SeriesRow,
    ServerCell, Totals, UpstreamCell,
};
pub use sessions::SessionZone;
pub use tickets::{TicketKey, TicketKeys, TicketReader, TicketRing};
pub use zones::{ZoneKind, ZonePlan, Zones};

use kp_sys::region::Region;
use std::io;
use std::sync::atomic::AtomicU64;

/// How many rows each table has; the address space is reserved, memory is used only for rows that are touched.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    processes: usize,
    peers: usize,
    /// Words for zones, all together.
    zones: usize,
    /// Lines of a process's journal of places.
    lines: usize,
    /// Labelled series, by kind.
    series: series::Capacities,
}

/// Old generations are not bounded in number (a tunnel can outlive a hundred reloads), so rows are plentiful.
const LARGE: Sizes = Sizes {
    processes: 4096,
    peers: 1 << 16,
    zones: 1 << 27,
    lines: 1 << 16,
    series: [1 << 10, 1 << 9, 1 << 12],
};
/// Where the system refuses to promise some sixteen gigabytes of address space (strict overcommit, or a limit on it).
const SMALL: Sizes = Sizes {
    processes: 256,
    peers: 1 << 13,
    zones: 1 << 21,
    lines: 1 << 12,
    series: [1 << 8, 1 << 7, 1 << 9],
};

/// All shared tables; a handle that is copied freely.
#[derive(Debug, Clone, Copy)]
pub struct Shm {
    scoreboard: Scoreboard,
    counters: Counters,
    series: Series,
    recent: Recent,
    master: MasterFacts,
    history: History,
    peers: Peers,
    checks: Checks,
    names: Names,
    asked_names: Names,
    zones: Zones,
    journals: places::Journals,
}

impl Shm {
    /// Maps the tables; called by the master before its first fork.
    pub fn create() -> io::Result<Self> {
        Self::mapped(LARGE, Region::shared).or_else(|_| Self::mapped(SMALL, Region::shared))
    }

    /// Tables of this process only, for tests and tools.
    pub fn private() -> io::Result<Self> {
        Self::mapped(SMALL, Region::private)
    }

    fn mapped(sizes: Sizes, map: fn(usize) -> io::Result<Region>) -> io::Result<Self> {
        let cells = |count: usize| -> io::Result<&'static [AtomicU64]> { Ok(map(count)?.cells()) };
        // The largest first: where it is refused, nothing was taken that the smaller tables then lack.
        let blocks = cells(Series::block_cells(sizes.processes, sizes.series))?;
        let scoreboard = Scoreboard::new(cells(Scoreboard::cells(sizes.processes))?);
        let peers = |capacity: usize| -> io::Result<Peers> {
            Ok(Peers::new(
                capacity,
                cells(Peers::directory_cells(capacity))?,
                cells(Peers::row_cells(capacity))?,
                cells(sizes.processes * capacity)?,
            ))
        };
        let [servers, groups, members] = sizes.series;
        Ok(Self {
            scoreboard,
            counters: Counters::new(scoreboard, cells(Counters::cells(sizes.processes))?),
            series: Series::new(
                scoreboard,
                [peers(servers)?, peers(groups)?, peers(members)?],
                sizes.series,
                cells(Series::text_cells(sizes.series))?,
                blocks,
                cells(Series::stray_cells(sizes.processes))?,
            ),
            recent: Recent::new(scoreboard, cells(Recent::cells(sizes.processes))?),
            master: MasterFacts::new(cells(facts::CELLS)?),
            history: History::new(cells(History::CELLS)?),
            peers: peers(sizes.peers)?,
            zones: Zones::new(
                scoreboard,
                cells(Zones::directory_cells())?,
                cells(sizes.zones)?,
            )?,
            journals: places::Journals::new(cells(sizes.processes * sizes.lines)?, sizes.lines),
            // The shares say who uses a row; nothing is in flight there.
            checks: Checks::new(peers(sizes.peers)?),
            names: Names::new(cells(Names::CELLS)?),
            asked_names: Names::of_requests(cells(Names::CELLS)?),
        })
    }

    /// Who runs.
    pub fn scoreboard(&self) -> Scoreboard {
        self.scoreboard
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What was counted for virtual hosts, upstream groups and peers.
    pub fn series(&self) -> Series {
        self.series
    }

    /// Why exchanges ended lately.
    pub fn recent(&self) -> Recent {
        self.recent
    }

    /// What only the master knows.
    pub fn master(&self) -> MasterFacts {
        self.master
    }

    /// The last hour in samples.
    pub fn history(&self) -> History {
        self.history
    }

    /// What is known of upstream peers.
    pub fn peers(&self) -> Peers {
        self.peers
    }

    /// What active checks have found out.
    pub fn checks(&self) -> Checks {
        self.checks
    }

    /// What names resolved to that requests made.
    pub fn asked_names(&self) -> Names {
        self.asked_names
    }

    /// What names of upstreams resolved to.
    pub fn names(&self) -> Names {
        self.names
    }

    /// What is counted by key.
    pub fn zones(&self) -> Zones {
        self.zones
    }

    /// What the process that owns `row` writes its places down in; ask once. `None` for one without a row.
    pub fn journal(&self, row: Row) -> Option<std::rc::Rc<Journal>> {
        Journal::new(&self.journals, row)
    }

    /// Takes back what a dead process held and frees its row. Only the master calls this, once per death, after the
    /// process was waited for.
    pub fn reap(&self, row: Row) {
        self.peers.reap(row);
        self.journals.reap(&self.zones, row);
        self.checks.reap(row);
        self.names.reap(row);
        self.asked_names.reap(row);
        self.counters.reap(row);
        self.series.reap(row);
        self.scoreboard.free(row);
    }
}
