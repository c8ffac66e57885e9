//! How kp is, in one picture: what the status page's JSON and `kp ctl upstream` show.
//!
//! It is made of the shared tables and the configuration alone, so that every worker and the master make the same. Peers
//! are judged as the balancers judge them, each worker for itself where a group has no `zone` (`peers`); what is worth a
//! look stands in front (`problems`). docs/status-page.md says what each field means: change it there, too.

mod limits;
mod peers;
mod problems;

pub use limits::{ConnectionZoneView, LimitsView, RateZoneView, ZoneView};
pub use peers::{CheckView, LastFailureView, PeerView};
pub use problems::{Level, Problem};

use crate::proc::descriptors;
use kp_config::Config;
use kp_config::model::{Balancer, Upstream};
use kp_proxy::{Phase, Reason, Side};
use kp_shm::{
    BOUNDS_MS, BUCKETS, Counter, Entry, Histogram, History, Process, SeriesIndex, SeriesKind,
    ServerCell, Shm, State, Totals, UpstreamCell,
};
use kp_tls::{End, Role, Tls};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Tells readers of the JSON that fields have changed their meaning or are gone; new ones may come.
const FORMAT: u32 = 1;

/// The moment that a picture is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic.
    pub mono_ms: u64,
    /// Since 1970.
    pub unix_ms: u64,
}

impl Moment {
    fn since_s(self, ms: u64) -> u64 {
        self.mono_ms.saturating_sub(ms) / 1000
    }
}

/// The picture. Times end in their unit; sizes are in bytes; counters only grow while one master runs.
#[derive(Debug, Clone, Serialize)]
pub struct Overview {
    /// `FORMAT`.
    pub format: u32,
    /// Of kp.
    pub version: &'static str,
    /// The machine.
    pub host: String,
    /// The process that made the picture.
    pub pid: u32,
    /// When.
    pub now_unix_ms: u64,
    /// The same by the monotonic clock, which nobody sets: rates are differences of counters over differences of this.
    pub now_ms: u64,
    /// What is worth a look, the worst in front.
    pub problems: Vec<Problem>,
    /// What the master knows.
    pub master: MasterView,
    /// By generation and slot, the newest in front.
    pub workers: Vec<WorkerView>,
    /// Every counter and gauge over all workers, by name.
    pub totals: BTreeMap<&'static str, Amount>,
    /// Upper ends of the buckets of all histograms but the last bucket.
    pub bounds_ms: [u64; BOUNDS_MS.len()],
    /// Times of all requests.
    pub latency: HistogramView,
    /// Virtual hosts, by name.
    pub servers: Vec<ServerView>,
    /// Groups, by name.
    pub upstreams: Vec<UpstreamView>,
    /// Zones and other bounds.
    pub limits: LimitsView,
    /// Reasons that were met, the most frequent in front.
    pub reasons: Vec<ReasonView>,
    /// How exchanges ended lately, the newest in front.
    pub recent: Vec<RecentView>,
    /// What is over at some time, the first in front.
    pub certificates: Vec<CertificateView>,
    /// The last hour, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryView>,
}

/// What a counter or gauge has come to, in the unit its name ends in.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum Amount {
    /// Things.
    Whole(u64),
    /// Time.
    Seconds(f64),
}

impl Amount {
    fn of(counter: Counter, value: u64) -> Self {
        match counter.unit() {
            "microseconds" => Self::Seconds(value as f64 / 1e6),
            "milliseconds" => Self::Seconds(value as f64 / 1e3),
            _ => Self::Whole(value),
        }
    }
}

/// The master.
#[derive(Debug, Clone, Serialize)]
pub struct MasterView {
    /// When kp was started.
    pub started_unix_ms: u64,
    /// How long ago.
    pub uptime_s: u64,
    /// The configuration that serves.
    pub generation: u32,
    /// Reloads that worked.
    pub reloads: u64,
    /// Reloads that did not.
    pub reloads_failed: u64,
    /// When the last one ended.
    pub last_reload_unix_ms: Option<u64>,
    /// It did not work.
    pub last_reload_failed: bool,
    /// Run-time changes in force.
    pub changes: u64,
}

/// A worker.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerView {
    /// Process id.
    pub pid: u32,
    /// Its number within its generation.
    pub slot: u32,
    /// The configuration it runs.
    pub generation: u32,
    /// starting, serving, draining or gone; stuck where its loop does not turn.
    pub state: &'static str,
    /// How long it has been in that state.
    pub since_s: u64,
    /// How long it has been there.
    pub uptime_s: u64,
    /// Connections of clients.
    pub connections: u64,
    /// Of these, those that wait for a further request.
    pub idle: u64,
    /// Requests being worked on, tunnels left out.
    pub requests: u64,
    /// Connections that were switched to another protocol.
    pub tunnels: u64,
    /// As `worker_memory` counts it.
    pub memory_bytes: u64,
    /// `worker_memory` of the newest configuration.
    pub memory_limit_bytes: u64,
    /// Descriptors that it has open, as the system counts them.
    pub open_fds: Option<u64>,
    /// Descriptors that it may have open.
    pub max_fds: Option<u64>,
    /// How long its loop has worked.
    pub loop_busy_us: u64,
    /// How long it has waited.
    pub loop_waiting_us: u64,
}

/// How long something took.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HistogramView {
    /// How often.
    pub count: u64,
    /// All of it together.
    pub sum_ms: u64,
    /// How often in each bucket, not in those before.
    pub buckets: [u64; BUCKETS],
}

impl HistogramView {
    fn of(totals: &Totals, histogram: Histogram) -> Self {
        let found = totals.histogram(histogram);
        Self {
            count: found.buckets.iter().sum(),
            sum_ms: found.sum_ms,
            buckets: found.buckets,
        }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ms += other.sum_ms;
        for (sum, bucket) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += bucket;
        }
    }
}

/// Counts by class of status.
#[derive(Debug, Clone, Serialize)]
pub struct Classes {
    /// 100 to 199.
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// 200 to 299.
    #[serde(rename = "2xx")]
    pub successful: u64,
    /// 300 to 399.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// 400 to 499.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// 500 to 599.
    #[serde(rename = "5xx")]
    pub server_error: u64,
    /// No answer, where that can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub none: Option<u64>,
}

/// A virtual host.
#[derive(Debug, Clone, Serialize)]
pub struct ServerView {
    /// Its primary name.
    pub server: String,
    /// Requests that are over.
    pub responses: Classes,
    /// Read from clients.
    pub bytes_in: u64,
    /// Written to them.
    pub bytes_out: u64,
    /// `$request_time`.
    pub latency: HistogramView,
}

/// A group.
#[derive(Debug, Clone, Serialize)]
pub struct UpstreamView {
    /// Its name.
    pub upstream: String,
    /// As it is written, `round robin` where nothing is.
    pub balancer: &'static str,
    /// Its zone; without one each worker judges peers for itself.
    pub zone: Option<String>,
    /// Made from the address of a `proxy_pass`.
    pub implicit: bool,
    /// Peers that at least one worker sends new requests to, if they have a free place.
    pub usable: usize,
    /// Its peers, by address.
    pub peers: Vec<PeerView>,
    /// Attempts after the first.
    pub retries: u64,
    /// Retries that `retry_budget` did not allow.
    pub retries_refused: u64,
    /// Requests for which there was no usable peer.
    pub no_live_peer: u64,
    /// Failures after which a peer was left alone.
    pub rests: u64,
    /// Ejections of peers.
    pub ejections: u64,
    /// Their ends.
    pub returns: u64,
    /// `queue`.
    pub queue: Option<QueueView>,
    /// Until connections were open.
    pub connect_time: HistogramView,
    /// Until responses were whole.
    pub response_time: HistogramView,
}

/// Requests that wait for a free place.
#[derive(Debug, Clone, Serialize)]
pub struct QueueView {
    /// Now.
    pub length: u64,
    /// The most that may wait in each worker.
    pub limit: u32,
    /// That waited so far.
    pub waits: u64,
    /// That were refused because it was full.
    pub overflows: u64,
    /// That waited too long.
    pub timeouts: u64,
}

/// A reason that was met; docs/reasons.md has them all.
#[derive(Debug, Clone, Serialize)]
pub struct ReasonView {
    /// Its word.
    pub reason: &'static str,
    /// client, upstream, kp or config.
    pub side: &'static str,
    /// How often.
    pub count: u64,
    /// What happened.
    pub meaning: &'static str,
    /// What usually causes it.
    pub likely: &'static str,
    /// Where to look.
    pub look_at: &'static str,
}

/// How one exchange ended.
#[derive(Debug, Clone, Serialize)]
pub struct RecentView {
    /// When.
    pub unix_ms: u64,
    /// Why.
    pub reason: &'static str,
    /// What the exchange was doing.
    pub phase: Option<&'static str>,
    /// As in the access log.
    pub status: u16,
    /// Which attempt it was about, from 1.
    pub attempt: Option<u16>,
    /// Who ended the connection that the reason is about.
    pub closed_by: Option<&'static str>,
    /// The virtual host.
    pub server: Option<String>,
    /// The group.
    pub upstream: Option<String>,
    /// Its peer.
    pub peer: Option<String>,
    /// `$connection`.
    pub connection: u64,
    /// The worker.
    pub pid: u32,
}

/// A file of certificates, or of what was revoked.
#[derive(Debug, Clone, Serialize)]
pub struct CertificateView {
    /// Its file.
    pub file: String,
    /// What it is there for.
    pub directive: &'static str,
    /// When it is over: the certificate, the first of several authorities; when the next list is due.
    pub expires_unix_s: u64,
    /// kp's own, an authority, a list: they need not be renewed alike.
    #[serde(skip)]
    pub role: Role,
}

/// Samples of the last hour in columns, oldest first. All columns are equally long; what is not known is `null`.
#[derive(Debug, Clone, Serialize)]
pub struct HistoryView {
    /// Time between two samples, where nothing came in between.
    pub interval_ms: u64,
    /// When each ended.
    pub unix_ms: Vec<u64>,
    /// Requests in a second.
    pub requests_per_s: Vec<f64>,
    /// Answers with 4xx in a second.
    pub responses_4xx_per_s: Vec<f64>,
    /// Answers with 5xx in a second.
    pub responses_5xx_per_s: Vec<f64>,
    /// Bytes written to clients in a second.
    pub bytes_out_per_s: Vec<f64>,
    /// Half of the requests were no slower.
    pub p50_ms: Vec<Option<f64>>,
    /// Nine in ten were no slower.
    pub p90_ms: Vec<Option<f64>>,
    /// 99 in 100 were no slower.
    pub p99_ms: Vec<Option<f64>>,
    /// Connections of clients at its end.
    pub connections: Vec<u64>,
    /// Requests being worked on at its end.
    pub requests_active: Vec<u64>,
}

/// How kp is, as this configuration sees it. `history_since`: the samples after this moment (Unix time, milliseconds)
/// belong to it.
pub fn overview(
    config: &Config,
    tls: &Tls,
    shm: &Shm,
    now: Moment,
    history_since: Option<u64>,
) -> Overview {
    let mut rows = Rows::of(shm);
    let servers = servers(std::mem::take(&mut rows.servers), shm);
    let mut latency = HistogramView::default();
    for server in &servers {
        latency.add(&server.latency);
    }
    let upstreams = views_of(&config.http.upstreams, rows, shm, now);
    let mut overview = Overview {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        host: kp_sys::hostname(),
        pid: u32::try_from(kp_sys::process::id()).unwrap_or(0),
        now_unix_ms: now.unix_ms,
        now_ms: now.mono_ms,
        problems: Vec::new(),
        master: master(shm, now),
        workers: workers(shm, config.main.worker_memory, now),
        totals: totals(shm),
        bounds_ms: BOUNDS_MS,
        latency,
        servers,
        limits: limits::limits(config, &upstreams, shm, now.mono_ms),
        upstreams,
        reasons: reasons(shm),
        recent: recent(shm),
        certificates: certificates(tls),
        history: history_since.map(|since| history(shm.history(), since)),
    };
    overview.problems = problems::problems(&overview, config, shm);
    overview
}

/// Its upstreams alone.
pub fn upstreams(config: &Config, shm: &Shm, now: Moment) -> Vec<UpstreamView> {
    views_of(&config.http.upstreams, Rows::of(shm), shm, now)
}

fn master(shm: &Shm, now: Moment) -> MasterView {
    let master = shm.master();
    let last = master.last_reload();
    MasterView {
        started_unix_ms: master.started_unix_ms(),
        uptime_s: now.unix_ms.saturating_sub(master.started_unix_ms()) / 1000,
        generation: master.generation(),
        reloads: master.reloads_ok(),
        reloads_failed: master.reloads_failed(),
        last_reload_unix_ms: last.map(|last| last.unix_ms),
        last_reload_failed: last.is_some_and(|last| last.failed),
        changes: master.changes(),
    }
}

fn workers(shm: &Shm, memory_limit_bytes: u64, now: Moment) -> Vec<WorkerView> {
    let view = |process: Process| {
        let value = |counter| shm.counters().value(process.row, counter);
        let tunnels = value(Counter::TunnelsActive);
        let fds = descriptors(process.pid, value(Counter::DescriptorsOpen));
        let stuck_ms = process.stuck_ms(now.mono_ms);
        WorkerView {
            pid: process.pid,
            slot: process.slot,
            generation: process.generation,
            state: match process.state {
                _ if stuck_ms.is_some() => "stuck",
                State::Starting => "starting",
                State::Ready => "serving",
                State::Draining => "draining",
                State::Gone => "gone",
            },
            since_s: stuck_ms.map_or_else(|| now.since_s(process.since_ms), |ms| ms / 1000),
            uptime_s: now.since_s(process.born_ms),
            connections: value(Counter::ConnectionsActive),
            idle: value(Counter::ConnectionsIdle),
            requests: value(Counter::RequestsActive).saturating_sub(tunnels),
            tunnels,
            memory_bytes: value(Counter::MemoryInUse),
            memory_limit_bytes,
            open_fds: fds.map(|fds| fds.open),
            max_fds: fds.and_then(|fds| fds.max),
            loop_busy_us: value(Counter::LoopBusy),
            loop_waiting_us: value(Counter::LoopWaiting),
        }
    };
    let mut workers: Vec<WorkerView> = shm.scoreboard().processes().map(view).collect();
    workers.sort_by_key(|worker| (std::cmp::Reverse(worker.generation), worker.slot));
    workers
}

fn totals(shm: &Shm) -> BTreeMap<&'static str, Amount> {
    let total = |counter: &Counter| {
        let amount = Amount::of(*counter, shm.counters().total(*counter));
        (counter.name(), amount)
    };
    Counter::ALL.iter().map(total).collect()
}

/// The labelled series by what they are about.
#[derive(Debug, Default)]
struct Rows {
    servers: Vec<(String, SeriesIndex)>,
    upstreams: HashMap<String, SeriesIndex>,
    /// By group.
    peers: HashMap<String, Vec<(String, SeriesIndex)>>,
}

impl Rows {
    fn of(shm: &Shm) -> Self {
        let mut rows = Self::default();
        for row in shm.series().rows() {
            let mut labels = row.labels.into_iter();
            let Some(first) = labels.next() else { continue };
            match (row.kind, labels.next()) {
                (SeriesKind::Server, _) => rows.servers.push((first, row.index)),
                (SeriesKind::Upstream, _) => {
                    rows.upstreams.insert(first, row.index);
                }
                (SeriesKind::Peer, Some(peer)) => {
                    rows.peers.entry(first).or_default().push((peer, row.index));
                }
                (SeriesKind::Peer, None) => {}
            }
        }
        rows
    }
}

fn servers(rows: Vec<(String, SeriesIndex)>, shm: &Shm) -> Vec<ServerView> {
    let view = |(server, index)| {
        let totals = shm.series().totals(index);
        ServerView {
            server,
            responses: Classes {
                informational: totals.value(ServerCell::Requests1xx),
                successful: totals.value(ServerCell::Requests2xx),
                redirection: totals.value(ServerCell::Requests3xx),
                client_error: totals.value(ServerCell::Requests4xx),
                server_error: totals.value(ServerCell::Requests5xx),
                none: None,
            },
            bytes_in: totals.value(ServerCell::BytesIn),
            bytes_out: totals.value(ServerCell::BytesOut),
            latency: HistogramView::of(&totals, Histogram::Total),
        }
    };
    let mut servers: Vec<ServerView> = rows.into_iter().map(view).collect();
    servers.sort_by(|a, b| a.server.cmp(&b.server));
    servers
}

fn views_of(upstreams: &[Upstream], mut rows: Rows, shm: &Shm, now: Moment) -> Vec<UpstreamView> {
    let view = |upstream: &Upstream| {
        let members = rows.peers.remove(upstream.name.as_str());
        let peers = peers::peers(upstream, members.unwrap_or_default(), shm, now);
        let found = rows.upstreams.get(upstream.name.as_str());
        let totals = found.map(|index| shm.series().totals(*index));
        let value = |cell| totals.as_ref().map_or(0, |totals| totals.value(cell));
        let histogram = |histogram| {
            let totals = totals.as_ref();
            totals.map_or_else(HistogramView::default, |totals| {
                HistogramView::of(totals, histogram)
            })
        };
        UpstreamView {
            upstream: upstream.name.clone(),
            balancer: balancer(&upstream.balancer),
            zone: upstream.zone.clone(),
            implicit: upstream.implicit,
            usable: peers.iter().filter(|peer| peer.usable).count(),
            peers,
            retries: value(UpstreamCell::Retries),
            retries_refused: value(UpstreamCell::RetriesRefused),
            no_live_peer: value(UpstreamCell::NoLivePeer),
            rests: value(UpstreamCell::Rests),
            ejections: value(UpstreamCell::Ejections),
            returns: value(UpstreamCell::Returns),
            queue: upstream.queue.map(|queue| QueueView {
                length: value(UpstreamCell::QueueLength),
                limit: queue.length,
                waits: value(UpstreamCell::QueueWaits),
                overflows: value(UpstreamCell::QueueOverflows),
                timeouts: value(UpstreamCell::QueueTimeouts),
            }),
            connect_time: histogram(Histogram::Connect),
            response_time: histogram(Histogram::Response),
        }
    };
    let mut views: Vec<UpstreamView> = upstreams.iter().map(view).collect();
    views.sort_by(|a, b| (a.implicit, &a.upstream).cmp(&(b.implicit, &b.upstream)));
    views
}

fn balancer(balancer: &Balancer) -> &'static str {
    match balancer {
        Balancer::RoundRobin => "round robin",
        Balancer::LeastConn => "least_conn",
        Balancer::LeastTime { .. } => "least_time",
        Balancer::IpHash => "ip_hash",
        Balancer::Hash {
            consistent: false, ..
        } => "hash",
        Balancer::Hash {
            consistent: true, ..
        } => "hash consistent",
        Balancer::Random { two: false } => "random",
        Balancer::Random { two: true } => "random two",
    }
}

fn reasons(shm: &Shm) -> Vec<ReasonView> {
    let view = |reason: &Reason| ReasonView {
        reason: reason.token(),
        side: reason.side().token(),
        count: shm.counters().reason_total(reason.index()),
        meaning: reason.meaning(),
        likely: reason.likely(),
        look_at: reason.look_at(),
    };
    let mut reasons: Vec<ReasonView> = Reason::ALL.iter().map(view).collect();
    reasons.retain(|reason| reason.count > 0);
    reasons.sort_by(|a, b| (b.count, a.reason).cmp(&(a.count, b.reason)));
    reasons
}

fn recent(shm: &Shm) -> Vec<RecentView> {
    let series = shm.series();
    let labels = |index| series.info(index).map(|info| info.labels.into_iter());
    let view = |entry: Entry| {
        let mut peer = entry.peer.and_then(labels);
        let mut part = || peer.as_mut().and_then(Iterator::next);
        let reason = Reason::of_index(entry.reason)?;
        Some(RecentView {
            unix_ms: entry.unix_ms,
            reason: reason.token(),
            phase: Phase::of_index(entry.phase).map(Phase::token),
            status: entry.status,
            attempt: (entry.attempt != 0).then_some(entry.attempt),
            closed_by: Side::of_number(entry.closed_by).map(Side::token),
            server: entry.server.and_then(labels).and_then(|mut it| it.next()),
            upstream: part(),
            peer: part(),
            connection: entry.serial,
            pid: entry.pid,
        })
    };
    shm.recent()
        .entries()
        .into_iter()
        .filter_map(view)
        .collect()
}

fn certificates(tls: &Tls) -> Vec<CertificateView> {
    let view = |end: End| CertificateView {
        file: end.file.display().to_string(),
        directive: end.role.directive(),
        expires_unix_s: end.unix_secs,
        role: end.role,
    };
    let mut views: Vec<CertificateView> = tls.ends().into_iter().map(view).collect();
    views.sort_by_key(|view| view.expires_unix_s);
    views
}

fn history(history: History, since_unix_ms: u64) -> HistoryView {
    let mut view = HistoryView {
        interval_ms: History::EVERY_MS,
        unix_ms: Vec::new(),
        requests_per_s: Vec::new(),
        responses_4xx_per_s: Vec::new(),
        responses_5xx_per_s: Vec::new(),
        bytes_out_per_s: Vec::new(),
        p50_ms: Vec::new(),
        p90_ms: Vec::new(),
        p99_ms: Vec::new(),
        connections: Vec::new(),
        requests_active: Vec::new(),
    };
    // Hundredths say enough and keep the answer short.
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    for sample in history.since(since_unix_ms) {
        let rate = |count: u64| rounded(count as f64 * 1000.0 / sample.over_ms.max(1) as f64);
        view.unix_ms.push(sample.unix_ms);
        view.requests_per_s.push(rate(sample.requests));
        view.responses_4xx_per_s.push(rate(sample.answers_4xx));
        view.responses_5xx_per_s.push(rate(sample.answers_5xx));
        view.bytes_out_per_s.push(rate(sample.bytes_out));
        let [p50, p90, p99] = sample.quantiles_us.map_or([None; 3], |all| all.map(Some));
        let ms = |us: Option<u64>| us.map(|us| rounded(us as f64 / 1000.0));
        view.p50_ms.push(ms(p50));
        view.p90_ms.push(ms(p90));
        view.p99_ms.push(ms(p99));
        view.connections.push(sample.connections);
        view.requests_active.push(sample.active);
    }
    view
}
