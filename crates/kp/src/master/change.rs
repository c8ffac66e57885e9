//! Run-time changes of upstreams: judged against the configuration that serves, kept, told to all workers, answered.
//!
//! The master alone decides. Several changes are one step: all of them or none are in force, in each worker from one turn
//! of its loop to the next. Older generations get what fits their own configuration. Whoever asked is answered when every
//! living worker serves by the change, or after two seconds with those named that did not say so.

use super::{Master, ctl};
use crate::control::AskerId;
use crate::control::command::{Changed, PeerName, Refusal};
use crate::crew::Crew;
use crate::report;
use crate::state::{Adopted, Kept, StateFiles};
use kp_config::Config;
use kp_config::model::{PeerAddress, Upstream};
use kp_config::overrides::{Act, Change, Complaint, Emptied, Ground, Overrides, quoted};
use kp_shm::{CheckState, Shm};
use kp_sys::{clock, memfile};
use kp_worker::{Snapshot, Version};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Whoever asked is answered after this at the latest.
const ANSWER_MS: u64 = 2_000;
/// A worker that could not be told, since it does not take what was sent before, is tried again after this.
const AGAIN_MS: u64 = 20;
/// And, when that is in vain again and again, so often.
const AGAIN_MAX_MS: u64 = 1_000;

/// What the master has to do for run-time changes.
#[derive(Debug, Default)]
pub(super) struct Steering {
    /// How often what is in force was changed.
    version: Version,
    /// Where it is kept.
    pub(super) states: StateFiles,
    askers: Vec<Asker>,
    /// Whose failures were to be forgotten with which version, as long as a worker has not done it: group and peer.
    forgotten: Vec<(Version, (String, String))>,
    /// Somebody could not be told and is tried again then.
    again_ms: Option<u64>,
    /// How long was waited for that.
    pause_ms: u64,
}

#[derive(Debug)]
struct Asker {
    id: AskerId,
    version: Version,
    changes: usize,
    out: Vec<PeerName>,
    since_ms: u64,
}

impl From<Complaint> for Refusal {
    fn from(complaint: Complaint) -> Self {
        Self {
            hint: complaint.hint,
            ..Self::new(complaint.error)
        }
    }
}

/// One about a change of several, counted from 1.
fn refusal(number: usize, complaint: Complaint) -> Refusal {
    Refusal {
        change: Some(number),
        ..Refusal::from(complaint)
    }
}

impl Steering {
    /// With what the start has found.
    pub(super) fn new(states: StateFiles) -> Self {
        Self {
            states,
            ..Self::default()
        }
    }

    /// When [`Master::settle_changes`] has something to do though nothing came.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let answers = self.askers.iter().map(|asker| asker.since_ms + ANSWER_MS);
        answers.chain(self.again_ms).min()
    }

    /// Somebody could not be told.
    pub(super) fn try_again(&mut self, now_ms: u64) {
        self.pause_ms = (self.pause_ms * 2).clamp(AGAIN_MS, AGAIN_MAX_MS);
        self.again_ms = Some(now_ms + self.pause_ms);
    }

    /// A worker has answered, and may have to be told more.
    pub(super) fn go_on(&mut self, now_ms: u64) {
        self.again_ms = Some(now_ms);
    }

    /// Notes whose failures are to be forgotten, each once.
    fn forget(&mut self, peers: Vec<(String, String)>) {
        let again: HashSet<&(String, String)> = peers.iter().collect();
        self.forgotten.retain(|(_, peer)| !again.contains(peer));
        let version = self.version;
        self.forgotten
            .extend(peers.into_iter().map(|peer| (version, peer)));
    }

    /// What a worker has not been told yet that knows of this version.
    fn forgotten_since(&self, version: Version) -> Vec<(String, String)> {
        let later = self.forgotten.iter().filter(|(since, _)| *since > version);
        later.map(|(_, peer)| peer.clone()).collect()
    }

    /// What a worker that is forked now is born with.
    pub(super) fn version(&self) -> Version {
        self.version
    }
}

impl Master {
    /// Makes all of these changes, given as their words, or none. The answer comes when they hold. `force`: a group may
    /// lose its last usable peer.
    ///
    /// # Errors
    ///
    /// Nothing was changed.
    pub(super) fn change(
        &mut self,
        asker: AskerId,
        changes: &[Vec<String>],
        force: bool,
    ) -> Result<(), Refusal> {
        let parsed = (1..).zip(changes).map(|(number, words)| {
            Change::parse(words).map_err(|complaint| refusal(number, complaint))
        });
        let changes: Vec<Change> = parsed.collect::<Result<_, _>>()?;
        let out = self.try_changes(&changes, force)?;
        let now_ms = clock::monotonic_ms();
        self.steering.askers.push(Asker {
            id: asker,
            version: self.steering.version,
            changes: changes.len(),
            out,
            since_ms: now_ms,
        });
        self.settle_changes(now_ms);
        Ok(())
    }

    /// The peers that were taken out are returned.
    fn try_changes(&mut self, changes: &[Change], force: bool) -> Result<Vec<PeerName>, Refusal> {
        if self.plan.is_stopping() {
            return Err(Refusal::new("the master process was told to stop"));
        }
        if self.plan.has_successor() {
            let refusal = Refusal::new("a new binary serves in this one's place");
            return Err(refusal.hint("ask that one"));
        }
        let serving = self.plan.serving().map(|(number, _)| number);
        let serving = serving.or(self.newest_crew().map(|crew| crew.number));
        let Some(crew) = self.crews.iter().find(|crew| Some(crew.number) == serving) else {
            return Err(Refusal::new("no generation serves"));
        };
        let now_ms = clock::monotonic_ms();
        let config = &crew.prepared.config;
        let resolved = kp_worker::resolved(config, &self.house.shm, now_ms);
        let ground = Ground::new(&config.http.upstreams, &resolved);
        let shm = self.house.shm;
        let next = judged(&crew.overrides, changes, &ground, force, &shm)?;
        let forget = forgotten(changes, &ground);
        let out = taken_out(changes, &ground, [&*crew.overrides, &next]);
        self.steering.states.keep(&next, config)?;
        for change in changes {
            let words: Vec<String> = change.words().iter().map(|word| quoted(word)).collect();
            log::info!(target: "notice", "changed at run time: {}", words.join(" "));
        }
        let mut next = Some(Rc::new(next));
        for crew in &mut self.crews {
            crew.overrides = match next.take_if(|_| Some(crew.number) == serving) {
                Some(next) => next,
                None => Rc::new(as_far_as_it_fits(crew, changes, force, &shm, now_ms)),
            };
        }
        self.steering.version.0 += 1;
        self.steering.forget(forget);
        self.steering.pause_ms = 0;
        self.tell_changes();
        if let Some(serving) = serving {
            self.show_count(serving);
        }
        Ok(out)
    }

    /// Tells every worker that does not know yet, and has answered what it was told before. One that takes nothing at the
    /// moment is tried again.
    fn tell_changes(&mut self) {
        let steering = &mut self.steering;
        let version = steering.version;
        steering.again_ms = None;
        let mut told_all = true;
        for crew in &mut self.crews {
            // By the version the worker knows: most know the same.
            let mut made: Option<(Version, OwnedFd)> = None;
            let workers = crew.workers.iter_mut();
            for worker in workers.filter(|one| one.is_to_be_told(version)) {
                let known = made.take().filter(|(since, _)| *since == worker.told);
                let snapshot = match known {
                    Some((_, snapshot)) => Ok(snapshot),
                    None => sealed(&crew.overrides, steering.forgotten_since(worker.told)),
                };
                let snapshot = match snapshot {
                    Ok(snapshot) => snapshot,
                    Err(error) => {
                        log::error!(target: "alert", "memfd_create() failed ({}): workers are told later", report::numbered(&error));
                        return steering.try_again(clock::monotonic_ms());
                    }
                };
                let since = worker.told;
                if worker.tell_overrides(version, &snapshot) {
                    worker.told = version;
                } else {
                    told_all = false;
                }
                made = Some((since, snapshot));
            }
        }
        if !told_all {
            steering.try_again(clock::monotonic_ms());
        }
    }

    /// Answers those whose changes hold everywhere, or who have waited long enough.
    pub(super) fn settle_changes(&mut self, now_ms: u64) {
        if self.steering.again_ms.is_some_and(|again| again <= now_ms) {
            self.tell_changes();
        }
        let mut answers = Vec::new();
        let living = self.crews.iter().flat_map(|crew| &crew.workers);
        let workers = || living.clone().filter(|worker| worker.channel.is_some());
        let all_have = workers().map(|worker| worker.taken).min();
        self.steering
            .forgotten
            .retain(|(version, _)| all_have.is_some_and(|taken| taken < *version));
        self.steering.askers.retain_mut(|asker| {
            let behind: Vec<i32> = workers()
                .filter(|worker| worker.taken < asker.version)
                .map(|worker| worker.pid)
                .collect();
            let waited_ms = now_ms.saturating_sub(asker.since_ms);
            let over = behind.is_empty() || waited_ms >= ANSWER_MS;
            if over {
                let changed = Changed {
                    changes: asker.changes,
                    workers: workers().count() - behind.len(),
                    silent: behind,
                    milliseconds: waited_ms,
                    out: std::mem::take(&mut asker.out),
                };
                answers.push((asker.id, ctl::done(&changed)));
            }
            !over
        });
        for (asker, answer) in answers {
            self.answer(asker, &answer);
        }
    }

    /// What holds with a new configuration, and the files that were taken up for it. What is dropped is logged, and what
    /// stays in force.
    pub(super) fn carry_over(&self, config: &Config, kept: &Kept) -> (Overrides, Adopted) {
        let held = self.newest_crew().map(|crew| Rc::clone(&crew.overrides));
        let (merged, adopted) = self
            .steering
            .states
            .merge(&held.unwrap_or_default(), kept, config);
        let resolved = kp_worker::resolved(config, &self.house.shm, clock::monotonic_ms());
        (
            settled(&merged, &Ground::new(&config.http.upstreams, &resolved)),
            adopted,
        )
    }

    /// What is in force, for a new binary.
    pub(super) fn overrides_to_hand_over(&self) -> Option<OwnedFd> {
        let overrides = &self.newest_crew()?.overrides;
        memfile::sealed(c"kp-changes", overrides.to_text().as_bytes()).ok()
    }

    /// A generation serves: what holds for it is what is kept.
    pub(super) fn keep_changes(&mut self, generation: u32) {
        let crew = self.crews.iter_mut().find(|crew| crew.number == generation);
        let Some(crew) = crew else { return };
        self.steering
            .states
            .adopt(std::mem::take(&mut crew.adopted));
        let config = &crew.prepared.config;
        if let Err(complaint) = self.steering.states.keep(&crew.overrides, config) {
            log::error!(target: "alert", "run-time changes are in force, but not kept: {complaint}");
        }
        self.show_count(generation);
    }

    /// How many are in force is a fact that metrics show.
    fn show_count(&self, generation: u32) {
        let crew = self.crews.iter().find(|crew| crew.number == generation);
        let count = crew.map_or(0, |crew| crew.overrides.count());
        self.house.shm.master().set_changes(count as u64);
    }
}

/// What holds after these changes.
fn judged(
    before: &Overrides,
    changes: &[Change],
    ground: &Ground<'_>,
    force: bool,
    shm: &Shm,
) -> Result<Overrides, Refusal> {
    let mut next = before.clone();
    for (number, change) in (1..).zip(changes) {
        let applied = next.apply(change, ground);
        applied.map_err(|complaint| refusal(number, complaint))?;
    }
    if force {
        return Ok(next);
    }
    match ground.emptied(before, &next, passes(shm)).as_slice() {
        [] => Ok(next),
        emptied => Err(empties(emptied)),
    }
}

fn empties(emptied: &[Emptied<'_>]) -> Refusal {
    let names = emptied.iter().map(|one| format!("\"{}\"", one.upstream));
    let names: Vec<String> = names.collect();
    let which = match names.as_slice() {
        [one] => format!("upstream {one}"),
        many => format!("upstreams {}", many.join(", ")),
    };
    let refusal = Refusal::new(format!("{which} would have no usable peer left"));
    refusal.hint(match emptied.iter().any(|one| one.unhealthy) {
        true => {
            "health checks let no requests go to those that are left; --force does it nevertheless"
        }
        false => "--force does it nevertheless",
    })
}

/// Whether health checks let requests go to a peer, as far as is known. One that nobody has checked yet passes, unless its
/// first pass is mandatory.
fn passes(shm: &Shm) -> impl Fn(&Upstream, &PeerAddress) -> bool + use<> {
    let checks = shm.checks();
    move |upstream, address| {
        let peer = address.to_string();
        upstream.checks.iter().all(|check| {
            let found = checks.look(&upstream.name, &peer, &check.identity);
            match found.map_or(CheckState::Unknown, |(state, _)| state) {
                CheckState::Healthy => true,
                CheckState::Unhealthy => false,
                CheckState::Unknown => !check.mandatory,
            }
        })
    }
}

/// The same for a generation that does not serve, or not yet: what does not fit it is left out.
fn as_far_as_it_fits(
    crew: &Crew,
    changes: &[Change],
    force: bool,
    shm: &Shm,
    now_ms: u64,
) -> Overrides {
    let config = &crew.prepared.config;
    let resolved = kp_worker::resolved(config, shm, now_ms);
    let ground = Ground::new(&config.http.upstreams, &resolved);
    let mut next = (*crew.overrides).clone();
    for change in changes {
        // Whoever is told why has been told by the generation that serves.
        let _ = next.apply(change, &ground);
    }
    if !force {
        for emptied in ground.emptied(&crew.overrides, &next, passes(shm)) {
            next.restore(emptied.upstream, &crew.overrides);
        }
    }
    next
}

/// The peers whose failures are to be forgotten, by the one spelling of their names.
fn forgotten(changes: &[Change], ground: &Ground<'_>) -> Vec<(String, String)> {
    let forget = changes.iter().filter_map(|change| match change {
        Change::Peer {
            upstream,
            peer,
            act: Act::Forget,
        } => {
            let (number, upstream) = ground.upstream(upstream).ok()?;
            Some((upstream.name.clone(), ground.canonical(number, peer)))
        }
        _ => None,
    });
    forget.collect()
}

/// The peers that changes are about which take somebody out, as they stood before or stand after them.
fn taken_out(
    changes: &[Change],
    ground: &Ground<'_>,
    before_and_after: [&Overrides; 2],
) -> Vec<PeerName> {
    let mut meant: BTreeMap<usize, HashSet<String>> = BTreeMap::new();
    for change in changes {
        if let Change::Peer {
            upstream,
            peer,
            act: Act::Remove | Act::Drain | Act::Down,
        } = change
            && let Ok((number, _)) = ground.upstream(upstream)
        {
            let peer = ground.canonical(number, peer);
            meant.entry(number).or_default().insert(peer);
        }
    }
    let mut out = BTreeSet::new();
    for (number, peers) in meant {
        let Some(upstream) = ground.at(number) else {
            continue;
        };
        for overrides in before_and_after {
            for standing in ground.standings(number, overrides) {
                let peer = standing.address.to_string();
                if peers.contains(standing.name) || peers.contains(&peer) {
                    let upstream = upstream.name.clone();
                    out.insert(PeerName { upstream, peer });
                }
            }
        }
    }
    out.into_iter().collect()
}

/// What is left of overrides on this ground; told in the log.
pub(crate) fn settled(overrides: &Overrides, ground: &Ground<'_>) -> Overrides {
    let (settled, dropped) = overrides.carry_over(ground);
    for line in dropped {
        log::warn!("{line}");
    }
    for group in settled.groups() {
        for words in group.each() {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            log::info!(target: "notice", "upstream \"{}\": a run-time change is in force: {}", group.name(), words.join(" "));
        }
    }
    for emptied in ground.emptied(&Overrides::default(), &settled, |_, _| true) {
        log::warn!(
            "upstream \"{}\" has no usable peer: run-time changes have taken out all it has",
            emptied.upstream
        );
    }
    settled
}

fn sealed(overrides: &Rc<Overrides>, forget: Vec<(String, String)>) -> std::io::Result<OwnedFd> {
    let snapshot = Snapshot {
        forget,
        overrides: (**overrides).clone(),
    };
    memfile::sealed(c"kp-changes", &snapshot.encode())
}
