//! The plan of generations: which worker is started, told to serve, drained or killed, and when. Pure: events and the time
//! go in, actions come out; [`crate::master`] carries them out.
//!
//! ```text
//!            every worker ready                 a newer one serves          last worker gone
//! Starting ────────────────────▶ Serving ─────────────────────▶ Draining ────────────────▶ forgotten
//!    │  a worker ends, listening fails, 10 s over                  ▲
//!    └──────── Failed: killed, the old one stays ──────────────────┘
//! ```
//!
//! The first generation has no old one to fall back on: each of its workers serves as soon as it is ready, one that dies is
//! started again, and if none can start the master gives up.
//!
//! Another master may live beside this one, on the same sockets: the one that it replaces ([`Plan::take_over`]) or the one
//! that replaces it ([`Plan::succeed`]). While the older one lives, the first generation of the newer one is all or nothing,
//! as a reload. The older one keeps what it needs to serve again ([`Plan::resume`]) until it ends.

use kp_sys::process::Ending;

/// The number of the generation that a master starts with.
const FIRST: u32 = 1;
/// A generation must be ready within this.
pub(crate) const READY_MS: u64 = 10_000;
/// Back-off of a worker that dies at once: first wait, doubled up to the longest.
const BACKOFF_FIRST_MS: u64 = 100;
const BACKOFF_LONGEST_MS: u64 = 10_000;
/// The longest wait after one that could serve: what ends it may come from outside, and nobody else may be serving.
const BACKOFF_SERVED_MS: u64 = 1_000;
/// A worker that lived this long did not die at once: the next one is started without a wait.
const LIVED_MS: u64 = 1_000;
/// A new binary must serve within this: the time of its generation, and some for reading its configuration.
const SUCCESSOR_MS: u64 = 30_000;
/// A fast stop leaves workers this long before they are killed, so that the whole is gone within a second.
const FAST_STOP_MS: u64 = 800;

/// What the master does next, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Fork a worker.
    Spawn {
        /// Its generation.
        generation: u32,
        /// Its slot.
        slot: u32,
    },
    /// Let the generation's new sockets listen and close those that it no longer has, then call [`Plan::listened`], or
    /// [`Plan::fail`].
    Listen {
        /// The generation.
        generation: u32,
    },
    /// Tell a worker that it may poll its listeners.
    Commit {
        /// Its generation.
        generation: u32,
        /// Its slot.
        slot: u32,
    },
    /// Send new connections to these slots only.
    Steer {
        /// Slots whose worker polls.
        live: Vec<u32>,
        /// Slots the generation has.
        slots: u32,
    },
    /// Let its workers finish what they have (SIGQUIT).
    Drain {
        /// The generation.
        generation: u32,
        /// Another one serves.
        successor: bool,
    },
    /// Stop its workers (SIGTERM).
    Terminate {
        /// The generation.
        generation: u32,
    },
    /// Kill its workers (SIGKILL).
    Kill {
        /// The generation.
        generation: u32,
    },
    /// All its workers are gone: free what was kept for it.
    Forget {
        /// The generation.
        generation: u32,
    },
    /// It serves: the reload has succeeded.
    Serving {
        /// The generation.
        generation: u32,
        /// Workers that are ready.
        workers: u32,
    },
    /// It cannot serve: the reload has failed, what served before goes on.
    Failed {
        /// The generation.
        generation: u32,
        /// Why.
        reason: String,
    },
    /// It will never serve, since all workers are told to go: nobody need wait for it any more.
    Abandoned {
        /// The generation.
        generation: u32,
    },
    /// Workers of a slot die as soon as they are started, so that the next one has to wait.
    BackOff {
        /// The generation.
        generation: u32,
        /// The slot.
        slot: u32,
        /// How many have died like that, one after the other.
        deaths: u32,
        /// Until the next start.
        wait_ms: u64,
    },
    /// Make a generation of the configuration that generation `of` had; its sockets listen.
    Repeat {
        /// The new one.
        generation: u32,
        /// The retired one.
        of: u32,
    },
    /// The new binary serves: tell who asked for it.
    Succeeded {
        /// Its workers.
        workers: u32,
    },
    /// The new binary does not get ready: end it (SIGKILL).
    KillSuccessor,
    /// Close every listening socket: nothing new is taken.
    CloseListeners,
    /// Every worker is gone, as was asked for (or none could start).
    Exit {
        /// It was asked for.
        asked: bool,
    },
}

/// How far a generation has come, for those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// So many of its workers are ready.
    Starting {
        /// They are.
        ready: u32,
    },
    /// It serves.
    Serving,
    /// Its workers finish what they have, or are being stopped.
    Draining,
    /// Its workers were sent home (WINCH), and it is what this master serves again with.
    Retired,
}

/// Why nobody is in a slot of a serving generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vacancy {
    /// A worker is started then.
    Due {
        /// Monotonic time.
        at_ms: u64,
    },
    /// It depends on how the newer generation fares.
    Held,
    /// The last worker said that another one could not start either.
    Closed,
}

/// How the master was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// QUIT.
    Graceful,
    /// TERM, INT. Overrides a graceful one.
    Fast,
}

/// The master that replaces this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Successor {
    #[default]
    None,
    /// `then_quit`: this master leaves when the new one serves.
    Starting {
        deadline_ms: u64,
        then_quit: bool,
    },
    Serving,
    /// It was told to stop, or is being killed.
    Leaving,
}

/// A generation that WINCH has sent home, and how many workers it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retired {
    number: u32,
    workers: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for its workers (or, `listening`, for its sockets); `alone`: nothing serves meanwhile.
    Starting {
        deadline_ms: u64,
        alone: bool,
        listening: bool,
    },
    Serving,
    Draining,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    Starting,
    Ready,
    /// Nobody; a new worker is due then.
    Vacant {
        due_ms: u64,
    },
    /// Nobody; whether a new worker is started depends on how the newer generation fares.
    Held,
    /// Nobody, and nobody will come.
    Closed,
}

impl Seat {
    fn is_taken(self) -> bool {
        matches!(self, Self::Starting | Self::Ready)
    }
}

#[derive(Debug, Clone)]
struct Slot {
    seat: Seat,
    born_ms: u64,
    /// Workers that died at once, one after the other.
    deaths: u32,
}

#[derive(Debug, Clone)]
struct Generation {
    number: u32,
    phase: Phase,
    slots: Vec<Slot>,
    /// What the last worker said that could not start.
    refusal: Option<String>,
}

impl Generation {
    fn is_gone(&self) -> bool {
        !self.slots.iter().any(|slot| slot.seat.is_taken())
    }

    fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. })
    }

    fn count(&self, seat: Seat) -> u32 {
        self.slots
            .iter()
            .filter(|slot| slot.seat == seat)
            .map(|_| 1)
            .sum()
    }

    fn close_vacant(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| !slot.seat.is_taken()) {
            slot.seat = Seat::Closed;
        }
    }

    fn steer(&self) -> Action {
        let live = self
            .slots
            .iter()
            .zip(0..)
            .filter(|(slot, _)| slot.seat == Seat::Ready)
            .map(|(_, index)| index);
        Action::Steer {
            live: live.collect(),
            slots: self.slots.len() as u32,
        }
    }
}

/// The state of all generations.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Plan {
    generations: Vec<Generation>,
    last_number: u32,
    stopping: Option<Stop>,
    /// The start has failed.
    gave_up: bool,
    exited: bool,
    successor: Successor,
    /// The master that this one replaces lives.
    predecessor: bool,
    /// What serves again when this master takes back its place.
    retired: Option<Retired>,
    kill_at_ms: Option<u64>,
    actions: Vec<Action>,
}

impl Plan {
    /// What is to be done since the last call.
    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The number the next generation gets.
    pub(crate) fn next_number(&self) -> u32 {
        self.last_number.saturating_add(1)
    }

    /// A generation is being started: another reload has to wait.
    pub(crate) fn is_starting(&self) -> bool {
        self.generations.iter().any(Generation::is_starting)
    }

    /// How far a generation has come; `None` if it is gone.
    pub(crate) fn stage(&self, number: u32) -> Option<Stage> {
        let generation = self.numbered(number)?;
        Some(match generation.phase {
            Phase::Starting { .. } => Stage::Starting {
                ready: generation.count(Seat::Ready),
            },
            Phase::Serving => Stage::Serving,
            Phase::Draining if generation.is_gone() => Stage::Retired,
            Phase::Draining => Stage::Draining,
        })
    }

    /// The slots of a generation that nobody is in though somebody should be.
    pub(crate) fn vacancies(&self, number: u32) -> impl Iterator<Item = (u32, Vacancy)> {
        let generation = self
            .numbered(number)
            .filter(|generation| generation.phase != Phase::Draining);
        let slots = generation.into_iter().flat_map(|one| one.slots.iter());
        slots.zip(0..).filter_map(|(slot, index)| {
            let vacancy = match slot.seat {
                Seat::Vacant { due_ms } => Vacancy::Due { at_ms: due_ms },
                Seat::Held => Vacancy::Held,
                Seat::Closed => Vacancy::Closed,
                Seat::Starting | Seat::Ready => return None,
            };
            Some((index, vacancy))
        })
    }

    fn numbered(&self, number: u32) -> Option<&Generation> {
        self.generations
            .iter()
            .find(|generation| generation.number == number)
    }

    /// The master is on its way out.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// The generation that serves, with its ready workers.
    pub(crate) fn serving(&self) -> Option<(u32, u32)> {
        let serving = self
            .generations
            .iter()
            .rev()
            .find(|generation| generation.phase == Phase::Serving)?;
        Some((serving.number, serving.count(Seat::Ready)))
    }

    /// When [`Plan::tick`] has something to do.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let generations = self.generations.iter().flat_map(|generation| {
            let ready = match generation.phase {
                Phase::Starting { deadline_ms, .. } => Some(deadline_ms),
                Phase::Serving | Phase::Draining => None,
            };
            let due = generation.slots.iter().filter_map(|slot| match slot.seat {
                Seat::Vacant { due_ms } => Some(due_ms),
                _ => None,
            });
            ready.into_iter().chain(due)
        });
        let successor = match self.successor {
            Successor::Starting { deadline_ms, .. } => Some(deadline_ms),
            _ => None,
        };
        generations.chain(self.kill_at_ms).chain(successor).min()
    }

    /// Starts a generation of `workers`.
    pub(crate) fn begin(&mut self, workers: u32, now_ms: u64) {
        let alone = self.serving().is_none() && !self.predecessor;
        self.add(workers, alone, now_ms);
    }

    /// Starts the first generation of a master that another one has started in its place and that still serves.
    pub(crate) fn take_over(&mut self, workers: u32, now_ms: u64) {
        self.predecessor = true;
        self.begin(workers, now_ms);
    }

    fn add(&mut self, workers: u32, alone: bool, now_ms: u64) {
        self.last_number = self.next_number();
        let number = self.last_number;
        let slot = Slot {
            seat: Seat::Starting,
            born_ms: now_ms,
            deaths: 0,
        };
        let slots = vec![slot; workers as usize];
        let phase = Phase::Starting {
            deadline_ms: now_ms + READY_MS,
            alone,
            listening: alone,
        };
        self.generations.push(Generation {
            number,
            phase,
            slots,
            refusal: None,
        });
        if alone {
            // Its workers serve one by one, as they get ready.
            self.actions.push(Action::Listen { generation: number });
        }
        self.actions.extend((0..workers).map(|slot| Action::Spawn {
            generation: number,
            slot,
        }));
    }

    /// A worker said that it can serve.
    pub(crate) fn ready(&mut self, number: u32, slot: u32) {
        let Some(generation) = numbered(&mut self.generations, number) else {
            return;
        };
        let Some(place) = generation
            .slots
            .get_mut(slot as usize)
            .filter(|place| place.seat == Seat::Starting)
        else {
            return;
        };
        place.seat = Seat::Ready;
        match generation.phase {
            Phase::Starting { alone: false, .. } | Phase::Draining => {}
            Phase::Starting { alone: true, .. } => self.actions.push(Action::Commit {
                generation: number,
                slot,
            }),
            Phase::Serving => {
                self.actions.push(Action::Commit {
                    generation: number,
                    slot,
                });
                self.actions.push(generation.steer());
            }
        }
        self.settle(number);
    }

    /// A worker has ended.
    pub(crate) fn ended(&mut self, number: u32, slot: u32, ending: Ending, now_ms: u64) {
        let fatal = ending == Ending::Exited(i32::from(kp_worker::exit::FATAL));
        let newer_starts = self.generations.iter().any(|other| {
            other.number > number && matches!(other.phase, Phase::Starting { alone: false, .. })
        });
        let Some(generation) = numbered(&mut self.generations, number) else {
            return;
        };
        let Some(place) = generation
            .slots
            .get_mut(slot as usize)
            .filter(|place| place.seat.is_taken())
        else {
            return;
        };
        let was_ready = place.seat == Seat::Ready;
        place.seat = match generation.phase {
            _ if fatal => Seat::Closed,
            Phase::Draining | Phase::Starting { alone: false, .. } => Seat::Closed,
            Phase::Serving if newer_starts => Seat::Held,
            Phase::Serving | Phase::Starting { alone: true, .. } => {
                let wait_ms = back_off(place, was_ready, now_ms);
                if wait_ms > 0 {
                    self.actions.push(Action::BackOff {
                        generation: number,
                        slot,
                        deaths: place.deaths,
                        wait_ms,
                    });
                }
                Seat::Vacant {
                    due_ms: now_ms + wait_ms,
                }
            }
        };
        match generation.phase {
            Phase::Starting { alone: false, .. } => {
                self.fail(
                    number,
                    format!(
                        "worker process {slot} of generation {number} {}",
                        describe(ending)
                    ),
                );
            }
            Phase::Serving if was_ready => self.actions.push(generation.steer()),
            _ => {}
        }
        self.settle(number);
    }

    /// A starting generation cannot serve.
    pub(crate) fn fail(&mut self, number: u32, reason: String) {
        let Some(generation) = numbered(&mut self.generations, number) else {
            return;
        };
        if !generation.is_starting() {
            return;
        }
        generation.phase = Phase::Draining;
        generation.close_vacant();
        self.actions.push(Action::Kill { generation: number });
        self.actions.push(Action::Failed {
            generation: number,
            reason,
        });
        if number == FIRST && self.stopping.is_none() {
            // This was the start, not a reload: there is nothing to stay with.
            self.stopping = Some(Stop::Fast);
            self.gave_up = true;
        }
        for slot in self
            .generations
            .iter_mut()
            .flat_map(|generation| &mut generation.slots)
        {
            if slot.seat == Seat::Held {
                slot.seat = Seat::Vacant { due_ms: 0 };
            }
        }
        self.settle(number);
    }

    /// A worker said why it cannot start. Where an old generation serves that is the end of the new one at once; else it
    /// is the reason that is given if no other can start either.
    pub(crate) fn refuse(&mut self, number: u32, reason: String) {
        let Some(generation) = numbered(&mut self.generations, number) else {
            return;
        };
        match generation.phase {
            Phase::Starting { alone: false, .. } => self.fail(number, reason),
            Phase::Starting { alone: true, .. } => generation.refusal = Some(reason),
            Phase::Serving | Phase::Draining => {}
        }
    }

    /// Time passes.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.end_late_starts(now_ms);
        for generation in &mut self.generations {
            for (slot, index) in generation.slots.iter_mut().zip(0..) {
                if matches!(slot.seat, Seat::Vacant { due_ms } if due_ms <= now_ms) {
                    slot.seat = Seat::Starting;
                    slot.born_ms = now_ms;
                    self.actions.push(Action::Spawn {
                        generation: generation.number,
                        slot: index,
                    });
                }
            }
        }
        if matches!(self.successor, Successor::Starting { deadline_ms, .. } if deadline_ms <= now_ms)
        {
            self.successor = Successor::Leaving;
            self.actions.push(Action::KillSuccessor);
        }
        if self.kill_at_ms.is_some_and(|at| at <= now_ms) {
            self.kill_at_ms = None;
            self.actions
                .extend(self.generations.iter().map(|generation| Action::Kill {
                    generation: generation.number,
                }));
        }
    }

    /// A generation that was not ready in time has failed; but where nothing else serves, those of its workers that do serve
    /// are better than none, and the others still may come.
    fn end_late_starts(&mut self, now_ms: u64) {
        let late = self.generations.iter().filter_map(|generation| {
            let Phase::Starting {
                deadline_ms, alone, ..
            } = generation.phase
            else {
                return None;
            };
            let serves_in_part = alone && generation.count(Seat::Ready) > 0;
            (deadline_ms <= now_ms).then_some((generation.number, serves_in_part))
        });
        for (number, serves_in_part) in late.collect::<Vec<_>>() {
            if serves_in_part {
                self.promote(number, true);
            } else {
                self.fail(
                    number,
                    format!("generation {number} was not ready in {} s", READY_MS / 1000),
                );
            }
        }
    }

    /// The master was told to stop. A fast stop overrides a graceful one that is under way.
    pub(crate) fn stop(&mut self, how: Stop, now_ms: u64) {
        if self.stopping == Some(Stop::Fast) || self.stopping == Some(how) {
            return;
        }
        if self.stopping.is_none() {
            self.actions.push(Action::CloseListeners);
        }
        self.stopping = Some(how);
        let successor = self.has_company();
        if how == Stop::Fast {
            self.kill_at_ms = Some(now_ms + FAST_STOP_MS);
        }
        for generation in &mut self.generations {
            let uncommitted = matches!(generation.phase, Phase::Starting { alone: false, .. });
            if generation.is_starting() {
                self.actions.push(Action::Abandoned {
                    generation: generation.number,
                });
            }
            let already = generation.phase == Phase::Draining;
            generation.phase = Phase::Draining;
            generation.close_vacant();
            match how {
                Stop::Fast => self.actions.push(Action::Terminate {
                    generation: generation.number,
                }),
                Stop::Graceful if uncommitted => self.actions.push(Action::Terminate {
                    generation: generation.number,
                }),
                Stop::Graceful if already => {}
                Stop::Graceful => self.actions.push(Action::Drain {
                    generation: generation.number,
                    successor,
                }),
            }
        }
        self.sweep();
    }

    /// WINCH: the workers finish what they have, the master stays, with its sockets and the configuration, for a later HUP.
    pub(crate) fn retire(&mut self) {
        let successor = self.has_company();
        let serving = self
            .generations
            .iter()
            .filter(|generation| generation.phase != Phase::Draining)
            .min_by_key(|generation| generation.phase != Phase::Serving);
        if let Some(generation) = serving
            && (self.retired.is_none() || generation.phase == Phase::Serving)
        {
            self.retired = Some(Retired {
                number: generation.number,
                workers: generation.slots.len() as u32,
            });
        }
        for generation in self
            .generations
            .iter_mut()
            .filter(|generation| generation.phase != Phase::Draining)
        {
            if generation.is_starting() {
                self.actions.push(Action::Abandoned {
                    generation: generation.number,
                });
            }
            generation.phase = Phase::Draining;
            generation.close_vacant();
            self.actions.push(Action::Drain {
                generation: generation.number,
                successor,
            });
        }
        self.sweep();
    }

    /// Serves again, after WINCH, by the configuration of before; nothing if this master serves or is about to.
    pub(crate) fn resume(&mut self, now_ms: u64) {
        let Some(retired) = self.retired else {
            return;
        };
        if self.stopping.is_some() || self.is_starting() {
            return;
        }
        self.actions.push(Action::Repeat {
            generation: self.next_number(),
            of: retired.number,
        });
        self.add(retired.workers, true, now_ms);
    }

    /// Whether a new binary may be started in this one's place, or why not.
    pub(crate) fn may_succeed(&self) -> Result<(), &'static str> {
        if self.stopping.is_some() {
            Err("this master is shutting down")
        } else if self.successor != Successor::None {
            Err("a new binary was started already and lives")
        } else if self.predecessor {
            Err("the old master still lives")
        } else {
            Ok(())
        }
    }

    /// A new binary was started. `then_quit`: this master leaves when it serves.
    pub(crate) fn succeed(&mut self, then_quit: bool, now_ms: u64) {
        self.successor = Successor::Starting {
            deadline_ms: now_ms + SUCCESSOR_MS,
            then_quit,
        };
    }

    /// The master that replaces this one lives, whatever it does.
    pub(crate) fn has_successor(&self) -> bool {
        self.successor != Successor::None
    }

    /// The new binary says that it serves.
    pub(crate) fn successor_serves(&mut self, workers: u32, now_ms: u64) {
        let Successor::Starting { then_quit, .. } = self.successor else {
            return;
        };
        self.successor = Successor::Serving;
        self.actions.push(Action::Succeeded { workers });
        if then_quit {
            self.stop(Stop::Graceful, now_ms);
        }
    }

    /// The new binary says that it was told to stop: from now on it takes nothing new.
    pub(crate) fn successor_leaves(&mut self, now_ms: u64) {
        if self.successor == Successor::Serving {
            self.successor = Successor::Leaving;
            self.resume(now_ms);
        }
    }

    /// The new binary has ended: this master has its place back.
    pub(crate) fn successor_ended(&mut self, now_ms: u64) {
        self.successor = Successor::None;
        self.resume(now_ms);
        self.steer_again();
    }

    /// The master that this one replaces has ended. A generation that is still starting has nobody to fall back on now.
    pub(crate) fn predecessor_ended(&mut self) {
        self.predecessor = false;
        self.steer_again();
        if self.serving().is_some() {
            return;
        }
        let mut released = None;
        for generation in &mut self.generations {
            let Phase::Starting {
                alone, listening, ..
            } = &mut generation.phase
            else {
                continue;
            };
            if *alone {
                continue;
            }
            (*alone, *listening) = (true, true);
            let number = generation.number;
            released = Some(number);
            self.actions.push(Action::Listen { generation: number });
            let ready = (0..).zip(&generation.slots);
            let ready = ready.filter(|(_, place)| place.seat == Seat::Ready);
            self.actions.extend(ready.map(|(slot, _)| Action::Commit {
                generation: number,
                slot,
            }));
        }
        if let Some(number) = released {
            self.settle(number);
        }
    }

    /// What the other master's steering has left behind is put right.
    fn steer_again(&mut self) {
        let serving = self
            .generations
            .iter()
            .find(|generation| generation.phase == Phase::Serving);
        self.actions.extend(serving.map(Generation::steer));
    }

    /// Another master serves on the same sockets, so that a client that is told to go finds somebody.
    fn has_company(&self) -> bool {
        self.predecessor || self.successor == Successor::Serving
    }

    /// Whether a generation's sockets are still to listen when [`Action::Listen`] is carried out: in the same turn one of
    /// its workers may have ended, or the master may have been told to stop.
    pub(crate) fn is_about_to_listen(&self, number: u32) -> bool {
        self.numbered(number).is_some_and(|generation| {
            matches!(
                generation.phase,
                Phase::Starting {
                    listening: true,
                    ..
                }
            )
        })
    }

    /// The generation's sockets listen.
    pub(crate) fn listened(&mut self, number: u32) {
        let Some(generation) = numbered(&mut self.generations, number) else {
            return;
        };
        if matches!(
            generation.phase,
            Phase::Starting {
                alone: false,
                listening: true,
                ..
            }
        ) {
            self.promote(number, false);
        }
    }

    /// After a change in generation `number`: is it complete, or over?
    fn settle(&mut self, number: u32) {
        let Some(generation) = numbered(&mut self.generations, number) else {
            return;
        };
        let (ready, closed) = (
            generation.count(Seat::Ready),
            generation.count(Seat::Closed),
        );
        let slots = generation.slots.len() as u32;
        match &mut generation.phase {
            Phase::Starting { alone: true, .. } if closed == slots => {
                let refusal = generation.refusal.take();
                let reason = refusal
                    .map(|reason| format!(": {reason}"))
                    .unwrap_or_default();
                self.fail(
                    number,
                    format!("no worker process of generation {number} could start{reason}"),
                );
            }
            Phase::Starting { alone: true, .. } if ready + closed == slots => {
                self.promote(number, true);
            }
            Phase::Starting {
                alone: false,
                listening,
                ..
            } if ready == slots && !*listening => {
                *listening = true;
                self.actions.push(Action::Listen { generation: number });
            }
            _ => {}
        }
        self.sweep();
    }

    /// Every worker is ready and every socket listens: the generation takes over.
    fn promote(&mut self, number: u32, alone: bool) {
        self.retired = None;
        for generation in &mut self.generations {
            if generation.number == number {
                generation.phase = Phase::Serving;
                if !alone {
                    let slots = 0..generation.slots.len() as u32;
                    self.actions.extend(slots.map(|slot| Action::Commit {
                        generation: number,
                        slot,
                    }));
                }
                self.actions.push(generation.steer());
            }
        }
        for generation in self
            .generations
            .iter_mut()
            .filter(|generation| generation.number < number)
        {
            if generation.phase == Phase::Serving {
                generation.phase = Phase::Draining;
                generation.close_vacant();
                self.actions.push(Action::Drain {
                    generation: generation.number,
                    successor: true,
                });
            }
        }
        let workers = self.serving().map_or(0, |(_, workers)| workers);
        self.actions.push(Action::Serving {
            generation: number,
            workers,
        });
        self.sweep();
    }

    /// Forgets what is over, and ends with the last one.
    fn sweep(&mut self) {
        let actions = &mut self.actions;
        let kept = match self.stopping {
            None => self.retired.map(|retired| retired.number),
            Some(_) => None,
        };
        self.generations.retain(|generation| {
            let over = generation.phase == Phase::Draining
                && generation.is_gone()
                && Some(generation.number) != kept;
            if over {
                actions.push(Action::Forget {
                    generation: generation.number,
                });
            }
            !over
        });
        if self.stopping.is_some() && self.generations.is_empty() && !self.exited {
            self.exited = true;
            self.actions.push(Action::Exit {
                asked: !self.gave_up,
            });
        }
    }
}

/// How long the next worker of this slot has to wait.
fn back_off(slot: &mut Slot, was_ready: bool, now_ms: u64) -> u64 {
    if now_ms.saturating_sub(slot.born_ms) >= LIVED_MS {
        slot.deaths = 0;
        return 0;
    }
    slot.deaths = slot.deaths.saturating_add(1);
    let doubled = 1_u64.checked_shl(slot.deaths - 1).unwrap_or(u64::MAX);
    let longest_ms = if was_ready {
        BACKOFF_SERVED_MS
    } else {
        BACKOFF_LONGEST_MS
    };
    BACKOFF_FIRST_MS.saturating_mul(doubled).min(longest_ms)
}

/// nginx's words for how a process ended.
pub(crate) fn describe(ending: Ending) -> String {
    match ending {
        Ending::Exited(code) => format!("exited with code {code}"),
        Ending::Signaled {
            signal,
            core_dumped: true,
        } => format!("exited on signal {signal} (core dumped)"),
        Ending::Signaled {
            signal,
            core_dumped: false,
        } => format!("exited on signal {signal}"),
    }
}

/// The generation with a number, if it is still there.
fn numbered(generations: &mut [Generation], number: u32) -> Option<&mut Generation> {
    generations
        .iter_mut()
        .find(|generation| generation.number == number)
}

#[cfg(test)]
mod tests;
