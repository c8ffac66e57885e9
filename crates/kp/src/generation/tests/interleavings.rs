//! Every interleaving of what can happen to a plan, to a depth: after each step the world that carried the actions out must
//! be one that an operator would accept.
//!
//! The search is breadth-first. Two states that differ in the time of day alone are one, and a step of time leads to the
//! next moment at which the plan wants to be called; so a small depth covers seconds of real life.

use super::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Reloads in one story.
const RELOADS: u32 = 2;

/// What a worker was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Told {
    Nothing,
    Commit,
    Leave,
    Kill,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Living {
    ready: bool,
    told: Told,
}

/// How a generation's beginning has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Outcome {
    Open,
    Serving,
    Failed,
    Abandoned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A worker says that it is ready, for the first time or once more.
    Ready(u32, u32),
    Ended(u32, u32, Ending),
    Refused(u32),
    Begin(u32),
    Stop(Stop),
    Retire,
    /// Until the plan has something to do.
    Time,
    /// Longer than anything takes.
    Late,
    /// A new binary is started; this master may leave when it serves.
    Upgrade(bool),
    /// Of the new binary.
    Master(Word),
    /// HUP while a new binary lives.
    Resume,
    /// The old master has ended, if this one is the new one.
    Alone,
}

/// What another master says or does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Serves,
    Leaves,
    Ended,
}

/// The new binary, as the world has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Other {
    None,
    Starting,
    Serving,
    Leaving,
}

/// The plan, and the world as its actions have made it.
#[derive(Debug, Clone)]
struct Story {
    plan: Plan,
    now_ms: u64,
    workers: BTreeMap<(u32, u32), Living>,
    listening: BTreeSet<u32>,
    outcomes: BTreeMap<u32, Outcome>,
    forgotten: BTreeSet<u32>,
    /// Where new connections go, since the last time that was said.
    steered: Option<Vec<u32>>,
    /// Slots that will never have a worker again: it said that it cannot start.
    hopeless: BTreeSet<(u32, u32)>,
    retired: bool,
    told_to_stop: Option<Stop>,
    closed: bool,
    exits: u32,
    /// Whether new binaries are part of the story.
    upgrades: bool,
    successor: Other,
    /// This master leaves when the new binary serves.
    then_quit: bool,
    predecessor: bool,
    events: Vec<Event>,
}

impl Story {
    /// `upgrades`: new binaries come; `successor`: this is one.
    fn new(workers: u32, upgrades: bool, successor: bool) -> Self {
        let mut story = Self {
            plan: Plan::default(),
            now_ms: 0,
            workers: BTreeMap::new(),
            listening: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            steered: None,
            hopeless: BTreeSet::new(),
            retired: false,
            told_to_stop: None,
            closed: false,
            exits: 0,
            upgrades,
            successor: Other::None,
            then_quit: false,
            predecessor: successor,
            events: Vec::new(),
        };
        story.outcomes.insert(FIRST, Outcome::Open);
        if successor {
            story.plan.take_over(workers, 0);
        } else {
            story.plan.begin(workers, 0);
        }
        story
    }

    fn begin(&mut self, workers: u32) {
        let number = self.plan.next_number();
        assert_eq!(self.outcomes.insert(number, Outcome::Open), None);
        self.plan.begin(workers, self.now_ms);
    }

    /// What may happen now.
    fn possible(&self) -> Vec<Event> {
        if self.exits > 0 {
            return Vec::new();
        }
        let mut events = vec![Event::Time, Event::Late];
        for (&(generation, slot), worker) in &self.workers {
            events.push(Event::Ready(generation, slot));
            if !worker.ready {
                events.push(Event::Refused(generation));
            }
            let ways = [KILLED, FATAL, Ending::Exited(0)];
            events.extend(ways.map(|how| Event::Ended(generation, slot, how)));
        }
        if !self.plan.is_stopping() {
            events.push(Event::Retire);
            let waits = self.plan.is_starting();
            if self.successor != Other::None {
                events.push(Event::Resume);
            } else if !waits && self.plan.last_number <= RELOADS {
                events.extend([1, 2].map(Event::Begin));
            }
            if self.upgrades && !waits && self.plan.may_succeed().is_ok() {
                events.extend([true, false].map(Event::Upgrade));
            }
        }
        if self.predecessor {
            events.push(Event::Alone);
        }
        if self.successor != Other::None {
            events.extend([Word::Serves, Word::Leaves, Word::Ended].map(Event::Master));
        }
        events.extend([Stop::Graceful, Stop::Fast].map(Event::Stop));
        events
    }

    fn happen(&mut self, event: Event) {
        self.events.push(event);
        let now_ms = self.now_ms;
        match event {
            Event::Ready(generation, slot) => {
                self.workers.get_mut(&(generation, slot)).unwrap().ready = true;
                self.plan.ready(generation, slot);
            }
            Event::Ended(generation, slot, how) => {
                self.workers.remove(&(generation, slot)).unwrap();
                if how == FATAL {
                    self.hopeless.insert((generation, slot));
                }
                self.plan.ended(generation, slot, how, now_ms);
            }
            Event::Refused(generation) => self.plan.refuse(generation, "refused".into()),
            Event::Begin(workers) => self.begin(workers),
            Event::Stop(how) => {
                self.told_to_stop = self.told_to_stop.max(Some(how));
                self.plan.stop(how, now_ms);
            }
            Event::Retire => {
                self.retired = true;
                self.plan.retire();
            }
            Event::Time => {
                self.now_ms = self.plan.deadline_ms().unwrap_or(0).max(now_ms);
                self.plan.tick(self.now_ms);
            }
            Event::Late => {
                self.now_ms += READY_MS + SUCCESSOR_MS;
                self.plan.tick(self.now_ms);
            }
            Event::Upgrade(then_quit) => {
                self.successor = Other::Starting;
                self.then_quit = then_quit;
                self.plan.succeed(then_quit, now_ms);
            }
            Event::Master(word) => self.hear(word),
            Event::Resume => self.plan.resume(now_ms),
            Event::Alone => {
                self.predecessor = false;
                self.plan.predecessor_ended();
            }
        }
    }

    fn hear(&mut self, word: Word) {
        match word {
            Word::Serves => {
                if self.successor == Other::Starting {
                    self.successor = Other::Serving;
                    let quits = self.then_quit.then_some(Stop::Graceful);
                    self.told_to_stop = self.told_to_stop.max(quits);
                }
                self.plan.successor_serves(1, self.now_ms);
            }
            Word::Leaves => {
                if self.successor == Other::Serving {
                    self.successor = Other::Leaving;
                }
                self.plan.successor_leaves(self.now_ms);
            }
            Word::Ended => {
                self.successor = Other::None;
                self.plan.successor_ended(self.now_ms);
            }
        }
    }

    /// Carries everything out; returns whether sockets were to listen, which works if `listens`.
    fn carry_out(&mut self, listens: bool) -> bool {
        let mut asked = false;
        loop {
            let actions = self.plan.take_actions();
            if actions.is_empty() {
                return asked;
            }
            for action in actions {
                assert_eq!(self.exits, 0, "nothing follows the exit: {action:?}");
                asked |= matches!(action, Action::Listen { .. });
                self.one(action, listens);
            }
        }
    }

    fn one(&mut self, action: Action, listens: bool) {
        match action {
            Action::Spawn { generation, slot } => self.spawn(generation, slot),
            Action::Listen { generation } => {
                self.known(generation);
                if listens {
                    self.listening.insert(generation);
                    self.plan.listened(generation);
                } else {
                    self.plan.fail(generation, "cannot listen".into());
                }
            }
            Action::Commit { generation, slot } => self.commit(generation, slot),
            Action::Steer { live, slots } => {
                assert!(live.iter().all(|slot| *slot < slots));
                self.steered = Some(live);
            }
            Action::Drain {
                generation,
                successor,
            } => {
                let serving = self.plan.serving();
                let newer = serving.is_some_and(|(newer, _)| newer > generation);
                let other = self.predecessor || self.successor == Other::Serving;
                assert_eq!(successor, newer || other, "whether somebody else serves");
                self.tell(generation, Told::Leave);
            }
            Action::Terminate { generation } => self.tell(generation, Told::Leave),
            Action::Kill { generation } => self.tell(generation, Told::Kill),
            Action::Forget { generation } => {
                let living = self.workers.keys().any(|worker| worker.0 == generation);
                assert!(!living, "forgotten alive");
                assert!(self.forgotten.insert(generation), "forgotten twice");
            }
            Action::Serving {
                generation,
                workers,
            } => {
                assert!(workers > 0, "it serves with nobody");
                self.ends(generation, Outcome::Serving);
            }
            Action::Failed { generation, .. } => self.ends(generation, Outcome::Failed),
            Action::Abandoned { generation } => self.ends(generation, Outcome::Abandoned),
            Action::BackOff { generation, .. } => self.known(generation),
            Action::Repeat { generation, of } => {
                self.known(of);
                let before = self.outcomes.insert(generation, Outcome::Open);
                assert_eq!(before, None, "begun twice");
            }
            Action::Succeeded { .. } => assert_eq!(self.successor, Other::Serving),
            Action::KillSuccessor => {
                assert_eq!(self.successor, Other::Starting, "it serves");
                self.successor = Other::Leaving;
            }
            Action::CloseListeners => {
                assert!(self.plan.is_stopping());
                self.closed = true;
            }
            Action::Exit { asked } => {
                assert!(self.workers.is_empty(), "the master leaves workers behind");
                assert_eq!(asked, !self.plan.gave_up, "why it exits");
                self.exits += 1;
            }
        }
    }

    fn known(&self, generation: u32) {
        assert!(self.outcomes.contains_key(&generation), "never begun");
        let gone = self.forgotten.contains(&generation);
        assert!(!gone, "generation {generation} is forgotten");
    }

    fn spawn(&mut self, generation: u32, slot: u32) {
        self.known(generation);
        let hopeless = self.hopeless.contains(&(generation, slot));
        assert!(!hopeless, "it said that it cannot start");
        let outcome = self.outcomes[&generation];
        let wanted = matches!(outcome, Outcome::Open | Outcome::Serving);
        assert!(wanted, "a worker for what has failed");
        let worker = Living {
            ready: false,
            told: Told::Nothing,
        };
        let before = self.workers.insert((generation, slot), worker);
        assert_eq!(before, None, "two workers in one slot");
    }

    fn commit(&mut self, generation: u32, slot: u32) {
        self.known(generation);
        let listens = self.listening.contains(&generation);
        let failed = self.plan.stage(generation) == Some(Stage::Draining);
        assert!(listens || failed, "it polls what does not listen");
        let worker = self.workers.get_mut(&(generation, slot)).unwrap();
        assert!(worker.ready, "told to serve before it can");
        assert_eq!(worker.told, Told::Nothing, "told to serve late or twice");
        worker.told = Told::Commit;
    }

    fn tell(&mut self, generation: u32, what: Told) {
        self.known(generation);
        for (key, worker) in &mut self.workers {
            if key.0 == generation {
                worker.told = worker.told.max(what);
            }
        }
    }

    fn ends(&mut self, generation: u32, how: Outcome) {
        self.known(generation);
        let before = self.outcomes.insert(generation, how);
        assert_eq!(before, Some(Outcome::Open), "begun once, ended twice");
        if how == Outcome::Serving {
            self.retired = false;
        }
    }

    /// What must hold whenever there is nothing left to carry out.
    fn check(&self) {
        for generation in &self.plan.generations {
            self.check_one(generation);
        }
        let in_phase = |wanted: fn(&Generation) -> bool| {
            let generations = self.plan.generations.iter();
            let found = generations.filter(|one| wanted(one));
            found.map(|one| one.number).collect::<Vec<_>>()
        };
        let starting = in_phase(Generation::is_starting);
        let serving = in_phase(|one| one.phase == Phase::Serving);
        assert!(starting.len() <= 1, "two start at once");
        assert!(serving.len() <= 1, "two serve");
        let waits = self.plan.deadline_ms();
        assert!(
            starting.is_empty() || waits.is_some(),
            "it may start for ever"
        );
        for (number, outcome) in &self.outcomes {
            let open = starting.contains(number);
            assert_eq!(open, *outcome == Outcome::Open, "generation {number}");
            let there = self.plan.numbered(*number).is_some();
            assert_ne!(
                there,
                self.forgotten.contains(number),
                "generation {number}"
            );
        }
        let served = self.outcomes.values().any(|one| *one == Outcome::Serving);
        let stopping = self.plan.is_stopping();
        if served && !self.retired && self.told_to_stop.is_none() {
            assert_eq!(serving.len(), 1, "nobody serves, and nobody wanted that");
        }
        assert!(!stopping || serving.is_empty(), "it serves and stops");
        if self.events.last() == Some(&Event::Master(Word::Ended)) && !stopping {
            let failed = self.outcomes.values().last() == Some(&Outcome::Failed);
            let back = serving.len() + starting.len() > 0 || failed || !served;
            assert!(back, "nobody serves after the new binary");
        }
        if matches!(self.events.last(), Some(Event::Time | Event::Late)) {
            let done = waits.is_none_or(|next| next > self.now_ms);
            assert!(done, "what was due is not done");
        }
        self.check_end(served);
    }

    fn check_end(&self, served: bool) {
        let stopping = self.plan.is_stopping();
        let told = self.told_to_stop.is_some();
        assert!(!stopping || told || !served, "it stops on its own");
        let closed = self.closed || self.plan.gave_up;
        assert!(!told || stopping && closed, "it was told to stop");
        let start_failed = self.outcomes[&FIRST] == Outcome::Failed;
        assert!(stopping || !start_failed, "it has not even started");
        let over = stopping && self.workers.is_empty();
        assert_eq!(self.exits == 1, over, "it ends when all are gone");
        if self.told_to_stop == Some(Stop::Fast) && self.exits == 0 {
            let killed = |worker: &Living| worker.told == Told::Kill;
            let killed = self.workers.values().all(killed);
            let waits = self.plan.deadline_ms().is_some();
            assert!(waits || killed, "a fast stop that may take for ever");
        }
    }

    fn check_one(&self, generation: &Generation) {
        let number = generation.number;
        let mut ready = Vec::new();
        for (slot, index) in generation.slots.iter().zip(0..) {
            let worker = self.workers.get(&(number, index));
            let taken = slot.seat.is_taken();
            assert_eq!(
                worker.is_some(),
                taken,
                "slot {index} of generation {number}"
            );
            if worker.is_some_and(|worker| worker.ready) {
                ready.push(index);
            }
            match (generation.phase, worker) {
                (Phase::Draining, Some(worker)) => {
                    assert!(worker.told >= Told::Leave, "nobody told it to leave");
                    let failed = self.outcomes[&number] == Outcome::Failed;
                    assert!(
                        !failed || worker.told == Told::Kill,
                        "it has failed and lives"
                    );
                }
                (Phase::Serving, Some(worker)) if worker.ready => {
                    assert_eq!(worker.told, Told::Commit, "ready, and not told to serve");
                }
                (Phase::Starting { .. }, Some(worker)) => {
                    // Where nobody else serves, whoever can does.
                    let serves = worker.ready && !self.somebody_serves();
                    let told = if serves { Told::Commit } else { Told::Nothing };
                    assert_eq!(worker.told, told, "while others serve, or not");
                }
                (Phase::Serving, None) => self.check_vacancy((number, index), slot.seat),
                _ => {}
            }
        }
        if generation.is_starting() {
            let due = |slot: &Slot| matches!(slot.seat, Seat::Starting | Seat::Vacant { .. });
            assert!(generation.slots.iter().any(due), "it waits for nothing");
            let whole = generation.slots.iter().all(|slot| slot.seat.is_taken());
            assert!(whole || !self.somebody_serves(), "it can never be whole");
        }
        if generation.phase == Phase::Serving && !ready.is_empty() {
            assert_eq!(
                self.steered.as_ref(),
                Some(&ready),
                "connections go elsewhere"
            );
        }
    }

    /// While a generation starts: this master, or the one that it replaces.
    fn somebody_serves(&self) -> bool {
        self.plan.serving().is_some() || self.predecessor
    }

    /// Nobody is in a slot of the serving generation: somebody will be, or cannot.
    fn check_vacancy(&self, place: (u32, u32), seat: Seat) {
        match seat {
            Seat::Vacant { due_ms } => {
                let deadline_ms = self.plan.deadline_ms().unwrap();
                assert!(deadline_ms <= due_ms, "nobody wakes up for it");
                assert!(due_ms <= self.now_ms + BACKOFF_LONGEST_MS, "too late");
            }
            Seat::Held => assert!(self.plan.is_starting(), "held for nobody"),
            Seat::Closed => assert!(self.hopeless.contains(&place), "given up too early"),
            Seat::Starting | Seat::Ready => panic!("nobody is there"),
        }
    }

    /// Everything that tells this state from another one, apart from the time of day.
    fn key(&self) -> String {
        let relative = |at_ms: u64| at_ms.saturating_sub(self.now_ms);
        let mut plan = self.plan.clone();
        plan.kill_at_ms = plan.kill_at_ms.map(relative);
        if let Successor::Starting { deadline_ms, .. } = &mut plan.successor {
            *deadline_ms = relative(*deadline_ms);
        }
        for generation in &mut plan.generations {
            if let Phase::Starting { deadline_ms, .. } = &mut generation.phase {
                *deadline_ms = relative(*deadline_ms);
            }
            for slot in &mut generation.slots {
                if let Seat::Vacant { due_ms } = &mut slot.seat {
                    *due_ms = relative(*due_ms);
                }
                slot.born_ms = (self.now_ms - slot.born_ms).min(LIVED_MS);
            }
        }
        let Self {
            workers,
            listening,
            outcomes,
            steered,
            hopeless,
            retired,
            told_to_stop,
            successor,
            ..
        } = self;
        format!(
            "{plan:?}{workers:?}{listening:?}{outcomes:?}{steered:?}{hopeless:?}{retired}{told_to_stop:?}{successor:?}"
        )
    }

    /// From wherever it is: told to stop, and every worker obeying or killed, it ends.
    fn end(mut self) {
        if self.exits == 0 {
            self.happen(Event::Stop(Stop::Fast));
            self.carry_out(true);
        }
        while let Some((&(generation, slot), _)) = self.workers.first_key_value() {
            self.happen(Event::Time);
            self.carry_out(true);
            self.happen(Event::Ended(generation, slot, KILLED));
            self.carry_out(true);
        }
        assert_eq!(self.exits, 1, "it does not end");
    }
}

/// Says how it came to that, when a check fails.
struct Telling(Vec<Event>);

impl Drop for Telling {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.0);
        }
    }
}

/// The states that one event leads to: sockets listen, or cannot.
fn next(story: &Story, event: Event) -> Vec<Story> {
    let mut after = Vec::new();
    for listens in [true, false] {
        let mut story = story.clone();
        let mut events = story.events.clone();
        events.push(event);
        let _telling = Telling(events);
        story.happen(event);
        let asked = story.carry_out(listens);
        story.check();
        after.push(story);
        if !asked {
            break;
        }
    }
    after
}

/// The number of different states within so many steps.
fn explore(first: Story, depth: usize) -> usize {
    let mut seen = HashSet::new();
    let mut front = vec![first];
    for _ in 0..depth {
        let mut further = Vec::new();
        for story in front {
            let events = story.possible();
            let after = events.into_iter().flat_map(|event| next(&story, event));
            further.extend(after.filter(|story| seen.insert(story.key())));
        }
        front = further;
    }
    for story in front {
        let _telling = Telling(story.events.clone());
        story.end();
    }
    seen.len()
}

fn from_the_start(workers: u32, upgrades: bool, successor: bool, depth: usize) -> usize {
    let mut story = Story::new(workers, upgrades, successor);
    story.carry_out(true);
    story.check();
    explore(story, depth)
}

// Further steps take minutes, and meet states that are known in kind.

#[test]
fn every_interleaving_keeps_what_was_promised() {
    let one = from_the_start(1, false, false, 6);
    let two = from_the_start(2, false, false, 5);
    assert!(one + two > 10_000, "only {one} and {two} states were met");
}

#[test]
fn every_interleaving_with_a_new_binary_keeps_what_was_promised() {
    let states = from_the_start(1, true, false, 5);
    assert!(states > 5_000, "only {states} states were met");
}

#[test]
fn every_interleaving_of_a_new_binary_keeps_what_was_promised() {
    let states = from_the_start(2, true, true, 5);
    assert!(states > 3_000, "only {states} states were met");
}
