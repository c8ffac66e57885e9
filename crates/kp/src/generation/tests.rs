//! The plan as tables: what goes in, what must come out.

mod interleavings;
mod upgrades;

use super::*;

const KILLED: Ending = Ending::Signaled {
    signal: 9,
    core_dumped: false,
};
const FATAL: Ending = Ending::Exited(2);

fn spawn(generation: u32, slot: u32) -> Action {
    Action::Spawn { generation, slot }
}

fn commit(generation: u32, slot: u32) -> Action {
    Action::Commit { generation, slot }
}

fn steer(live: &[u32], slots: u32) -> Action {
    Action::Steer {
        live: live.to_vec(),
        slots,
    }
}

/// A plan whose first generation, of `workers`, serves since 0 ms.
fn serving(workers: u32) -> Plan {
    let mut plan = Plan::default();
    plan.begin(workers, 0);
    for slot in 0..workers {
        plan.ready(1, slot);
    }
    assert_eq!(plan.serving(), Some((1, workers)));
    plan.take_actions();
    plan
}

#[test]
fn first_generation_listens_before_its_workers_start_and_each_serves_when_ready() {
    let mut plan = Plan::default();
    plan.begin(2, 0);
    assert_eq!(
        plan.take_actions(),
        [Action::Listen { generation: 1 }, spawn(1, 0), spawn(1, 1)]
    );
    plan.listened(1);
    plan.ready(1, 1);
    assert_eq!(plan.take_actions(), [commit(1, 1)]);
    assert_eq!(plan.serving(), None);
    plan.ready(1, 0);
    let served = Action::Serving {
        generation: 1,
        workers: 2,
    };
    assert_eq!(
        plan.take_actions(),
        [commit(1, 0), steer(&[0, 1], 2), served]
    );
}

#[test]
fn reload_commits_only_when_all_are_ready_and_listening_worked() {
    let mut plan = serving(2);
    plan.begin(1, 5_000);
    assert_eq!(plan.take_actions(), [spawn(2, 0)]);
    assert!(plan.is_starting());
    plan.ready(2, 0);
    assert_eq!(plan.take_actions(), [Action::Listen { generation: 2 }]);
    plan.listened(2);
    let drain = Action::Drain {
        generation: 1,
        successor: true,
    };
    let served = Action::Serving {
        generation: 2,
        workers: 1,
    };
    assert_eq!(
        plan.take_actions(),
        [commit(2, 0), steer(&[0], 1), drain, served]
    );
    plan.ended(1, 0, Ending::Exited(0), 5_100);
    assert_eq!(plan.take_actions(), []);
    plan.ended(1, 1, KILLED, 5_100);
    assert_eq!(plan.take_actions(), [Action::Forget { generation: 1 }]);
    assert_eq!(plan.deadline_ms(), None);
}

#[test]
fn reload_that_cannot_listen_leaves_the_old_one() {
    let mut plan = serving(1);
    plan.begin(1, 0);
    plan.ready(2, 0);
    plan.take_actions();
    plan.fail(2, "listen() failed".into());
    let failed = Action::Failed {
        generation: 2,
        reason: "listen() failed".into(),
    };
    assert_eq!(
        plan.take_actions(),
        [Action::Kill { generation: 2 }, failed]
    );
    plan.ended(2, 0, KILLED, 10);
    assert_eq!(plan.take_actions(), [Action::Forget { generation: 2 }]);
    assert_eq!(
        (plan.serving(), plan.is_starting(), plan.next_number()),
        (Some((1, 1)), false, 3)
    );
}

#[test]
fn reload_that_is_over_before_its_turn_to_listen_does_not() {
    let killed = |plan: &mut Plan| plan.ended(2, 0, KILLED, 1);
    let stopped = |plan: &mut Plan| plan.stop(Stop::Graceful, 1);
    let retired = |plan: &mut Plan| plan.retire();
    for what in [
        &killed as &dyn Fn(&mut Plan),
        &stopped as &dyn Fn(&mut Plan),
        &retired as &dyn Fn(&mut Plan),
    ] {
        let mut plan = serving(1);
        plan.begin(1, 0);
        plan.ready(2, 0);
        assert!(plan.is_about_to_listen(2) && !plan.is_about_to_listen(1));
        what(&mut plan);
        let actions = plan.take_actions();
        assert!(actions.contains(&Action::Listen { generation: 2 }));
        assert!(!plan.is_about_to_listen(2));
    }
}

#[test]
fn reload_that_is_late_is_killed_and_the_old_one_stays() {
    let mut plan = serving(1);
    plan.begin(2, 1_000);
    plan.ready(2, 0);
    plan.take_actions();
    assert_eq!(plan.deadline_ms(), Some(11_000));
    plan.tick(10_999);
    assert_eq!(plan.take_actions(), []);
    plan.tick(11_000);
    let failed = Action::Failed {
        generation: 2,
        reason: "generation 2 was not ready in 10 s".into(),
    };
    assert_eq!(
        plan.take_actions(),
        [Action::Kill { generation: 2 }, failed]
    );
    plan.ready(2, 1);
    assert_eq!(plan.take_actions(), []);
    assert_eq!(plan.serving(), Some((1, 1)));
}

#[test]
fn reload_whose_worker_dies_has_failed() {
    let mut plan = serving(1);
    plan.begin(2, 0);
    plan.take_actions();
    plan.ended(2, 1, FATAL, 5);
    let reason = "worker process 1 of generation 2 exited with code 2".into();
    let actions = plan.take_actions();
    assert_eq!(
        actions,
        [
            Action::Kill { generation: 2 },
            Action::Failed {
                generation: 2,
                reason
            }
        ]
    );
}

#[test]
fn reload_whose_worker_says_why_it_cannot_start_has_failed_for_that_reason() {
    let mut plan = serving(1);
    plan.begin(2, 0);
    plan.take_actions();
    plan.refuse(2, "no descriptors".into());
    let failed = Action::Failed {
        generation: 2,
        reason: "no descriptors".into(),
    };
    assert_eq!(
        plan.take_actions(),
        [Action::Kill { generation: 2 }, failed]
    );
    plan.refuse(2, "again".into());
    plan.ended(2, 0, FATAL, 1);
    assert_eq!(plan.take_actions(), []);
}

#[test]
fn old_worker_that_dies_during_a_reload_comes_back_only_if_the_reload_fails() {
    for reload_works in [true, false] {
        let mut plan = serving(1);
        plan.begin(1, 2_000);
        plan.ended(1, 0, KILLED, 2_100);
        plan.take_actions();
        plan.tick(3_000);
        assert_eq!(plan.take_actions(), []);
        if reload_works {
            plan.ready(2, 0);
            plan.listened(2);
            let actions = plan.take_actions();
            assert_eq!(actions.last(), Some(&Action::Forget { generation: 1 }));
            assert!(!actions.contains(&spawn(1, 0)));
        } else {
            plan.fail(2, String::new());
            plan.take_actions();
            plan.tick(3_000);
            assert_eq!(plan.take_actions(), [spawn(1, 0)]);
        }
    }
}

#[test]
fn dead_worker_is_steered_around_until_its_successor_polls() {
    let mut plan = serving(3);
    plan.ended(1, 1, KILLED, 60_000);
    assert_eq!(plan.take_actions(), [steer(&[0, 2], 3)]);
    assert_eq!(plan.deadline_ms(), Some(60_000));
    let due = Vacancy::Due { at_ms: 60_000 };
    assert_eq!(plan.vacancies(1).collect::<Vec<_>>(), [(1, due)]);
    plan.tick(60_000);
    assert_eq!(plan.take_actions(), [spawn(1, 1)]);
    plan.ready(1, 1);
    assert_eq!(plan.take_actions(), [commit(1, 1), steer(&[0, 1, 2], 3)]);
}

#[test]
fn back_off_doubles_to_ten_seconds_and_starts_over_after_a_long_life() {
    let mut plan = serving(1);
    let mut now = 0;
    let mut waits = Vec::new();
    for _ in 0..9 {
        plan.ended(1, 0, KILLED, now);
        let due = plan.deadline_ms().unwrap();
        waits.push(due - now);
        let said = plan.take_actions();
        let said = said.iter().rev().find_map(|action| match action {
            Action::BackOff {
                deaths, wait_ms, ..
            } => Some((*deaths as usize, *wait_ms)),
            _ => None,
        });
        assert_eq!(said, Some((waits.len(), due - now)));
        now = due;
        plan.tick(now);
    }
    assert_eq!(
        waits,
        [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
    );
    plan.take_actions();
    now += LIVED_MS;
    plan.ended(1, 0, KILLED, now);
    assert_eq!(plan.deadline_ms(), Some(now));
    let actions = plan.take_actions();
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::BackOff { .. })),
        "{actions:?}"
    );
    plan.tick(now);
    plan.ended(1, 0, KILLED, now);
    assert_eq!(plan.deadline_ms(), Some(now + 100));
}

#[test]
fn back_off_is_short_for_workers_that_could_serve() {
    let mut plan = serving(1);
    let mut now = 0;
    let waits: Vec<u64> = (0..6)
        .map(|_| {
            plan.ended(1, 0, KILLED, now);
            let due = plan.deadline_ms().unwrap();
            let wait = due - now;
            now = due;
            plan.tick(now);
            plan.ready(1, 0);
            wait
        })
        .collect();
    assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
}

#[test]
fn fatal_exit_is_not_respawned_and_without_any_worker_the_first_start_gives_up() {
    let mut plan = serving(2);
    plan.ended(1, 0, FATAL, 10);
    assert_eq!(plan.take_actions(), [steer(&[1], 2)]);
    assert_eq!(plan.deadline_ms(), None);

    let mut plan = Plan::default();
    plan.begin(1, 0);
    plan.take_actions();
    plan.refuse(1, "chdir() failed".into());
    plan.ended(1, 0, FATAL, 10);
    let reason = "no worker process of generation 1 could start: chdir() failed".into();
    let failed = Action::Failed {
        generation: 1,
        reason,
    };
    let exit = Action::Exit { asked: false };
    assert_eq!(
        plan.take_actions(),
        [
            Action::Kill { generation: 1 },
            failed,
            Action::Forget { generation: 1 },
            exit
        ]
    );
}

#[test]
fn first_generation_with_one_fatal_worker_serves_with_the_others() {
    let mut plan = Plan::default();
    plan.begin(2, 0);
    plan.ready(1, 0);
    plan.take_actions();
    plan.ended(1, 1, FATAL, 10);
    assert_eq!(
        plan.take_actions(),
        [
            steer(&[0], 2),
            Action::Serving {
                generation: 1,
                workers: 1
            }
        ]
    );
}

#[test]
fn first_generation_serves_in_part_rather_than_not_at_all() {
    let mut plan = Plan::default();
    plan.begin(2, 0);
    plan.ready(1, 0);
    plan.ended(1, 1, KILLED, 0);
    plan.take_actions();
    plan.tick(READY_MS);
    let served = Action::Serving {
        generation: 1,
        workers: 1,
    };
    let actions = plan.take_actions();
    assert_eq!(actions[..2], [steer(&[0], 2), served]);
    assert_eq!(actions[2..], [spawn(1, 1)]);
    plan.ready(1, 1);
    assert_eq!(plan.take_actions(), [commit(1, 1), steer(&[0, 1], 2)]);
}

#[test]
fn fast_stop_terminates_then_kills() {
    let mut plan = serving(2);
    plan.stop(Stop::Fast, 1_000);
    assert_eq!(
        plan.take_actions(),
        [Action::CloseListeners, Action::Terminate { generation: 1 }]
    );
    plan.ended(1, 0, Ending::Exited(0), 1_001);
    plan.tick(1_799);
    assert_eq!(plan.take_actions(), []);
    assert_eq!(plan.deadline_ms(), Some(1_800));
    plan.tick(1_800);
    assert_eq!(plan.take_actions(), [Action::Kill { generation: 1 }]);
    plan.ended(1, 1, KILLED, 1_801);
    assert_eq!(
        plan.take_actions(),
        [
            Action::Forget { generation: 1 },
            Action::Exit { asked: true }
        ]
    );
}

#[test]
fn graceful_stop_drains_what_serves_and_terminates_what_starts_and_can_be_hastened() {
    let mut plan = serving(1);
    plan.begin(1, 0);
    plan.take_actions();
    plan.stop(Stop::Graceful, 5);
    let drain = Action::Drain {
        generation: 1,
        successor: false,
    };
    assert_eq!(
        plan.take_actions(),
        [
            Action::CloseListeners,
            drain,
            Action::Abandoned { generation: 2 },
            Action::Terminate { generation: 2 }
        ]
    );
    plan.stop(Stop::Graceful, 6);
    assert_eq!(plan.take_actions(), []);
    plan.ended(2, 0, Ending::Exited(0), 10);
    assert_eq!(plan.take_actions(), [Action::Forget { generation: 2 }]);
    plan.stop(Stop::Fast, 20);
    assert_eq!(plan.take_actions(), [Action::Terminate { generation: 1 }]);
    plan.ended(1, 0, Ending::Exited(0), 30);
    assert_eq!(
        plan.take_actions(),
        [
            Action::Forget { generation: 1 },
            Action::Exit { asked: true }
        ]
    );
}

#[test]
fn stop_while_a_worker_waits_for_its_back_off_ends_at_once() {
    let mut plan = serving(1);
    plan.ended(1, 0, KILLED, 0);
    plan.take_actions();
    plan.stop(Stop::Graceful, 1);
    assert_eq!(
        plan.take_actions().last(),
        Some(&Action::Exit { asked: true })
    );
}

#[test]
fn retired_workers_end_the_master_stays_and_a_reload_brings_new_ones() {
    let mut plan = serving(1);
    plan.retire();
    assert_eq!(
        plan.take_actions(),
        [Action::Drain {
            generation: 1,
            successor: false
        }]
    );
    plan.ended(1, 0, Ending::Exited(0), 10);
    assert_eq!(plan.take_actions(), [], "its configuration may be needed");
    plan.begin(1, 20);
    assert_eq!(
        plan.take_actions(),
        [Action::Listen { generation: 2 }, spawn(2, 0)]
    );
    plan.ended(2, 0, FATAL, 30);
    assert!(
        !plan
            .take_actions()
            .iter()
            .any(|action| matches!(action, Action::Exit { .. }))
    );
}

/// What a driver knows: the workers that live, what was listened for, what was forgotten.
#[derive(Default)]
struct World {
    alive: Vec<(u32, u32, bool)>,
    listening: Vec<u32>,
    forgotten: Vec<u32>,
    exits: u32,
    serving: Option<u32>,
}

impl World {
    fn carry_out(&mut self, plan: &mut Plan, listening_works: bool) {
        loop {
            let actions = plan.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                assert_eq!(self.exits, 0, "nothing follows the exit: {action:?}");
                self.one(plan, action, listening_works);
            }
        }
    }

    fn one(&mut self, plan: &mut Plan, action: Action, listening_works: bool) {
        match action {
            Action::Spawn { generation, slot } => {
                assert!(
                    !self
                        .alive
                        .iter()
                        .any(|worker| (worker.0, worker.1) == (generation, slot))
                );
                assert!(!self.forgotten.contains(&generation));
                assert!(
                    self.serving <= Some(generation),
                    "a worker for what was replaced"
                );
                self.alive.push((generation, slot, false));
            }
            Action::Listen { generation } if listening_works => {
                self.listening.push(generation);
                plan.listened(generation);
            }
            Action::Listen { generation } => plan.fail(generation, "listen".into()),
            Action::Commit { generation, slot } => {
                assert!(
                    self.listening.contains(&generation),
                    "a worker polls what does not listen"
                );
                assert!(
                    self.alive.contains(&(generation, slot, true)),
                    "told to serve before it is ready"
                );
            }
            Action::Serving { generation, .. } => {
                assert!(self.serving < Some(generation));
                self.serving = Some(generation);
            }
            Action::Drain {
                generation,
                successor: true,
            } => {
                assert!(
                    self.listening.iter().any(|newer| *newer > generation),
                    "no successor listens"
                );
            }
            Action::Forget { generation } => {
                assert!(
                    !self.alive.iter().any(|worker| worker.0 == generation),
                    "forgotten alive"
                );
                assert!(!self.forgotten.contains(&generation));
                self.forgotten.push(generation);
            }
            Action::Exit { .. } => {
                assert!(self.alive.is_empty(), "the master leaves workers behind");
                self.exits += 1;
            }
            _ => {}
        }
    }
}

#[test]
fn whatever_happens_no_worker_is_lost_and_a_stop_ends() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..3_000 {
        let (mut plan, mut world, mut now) = (Plan::default(), World::default(), 0);
        plan.begin(1 + random(3) as u32, now);
        for _ in 0..60 {
            let works = random(8) != 0;
            world.carry_out(&mut plan, works);
            if world.exits > 0 {
                break;
            }
            now += random(700);
            let one = (!world.alive.is_empty()).then(|| random(world.alive.len() as u64) as usize);
            match (random(12), one) {
                (0..=4, Some(index)) => {
                    world.alive[index].2 = true;
                    plan.ready(world.alive[index].0, world.alive[index].1);
                }
                (5..=6, Some(index)) => {
                    let (generation, slot, _) = world.alive.swap_remove(index);
                    let ending = [KILLED, FATAL, Ending::Exited(0)][random(3) as usize];
                    plan.ended(generation, slot, ending, now);
                }
                (7..=8, _) if !plan.is_starting() && !plan.is_stopping() => {
                    plan.begin(1 + random(3) as u32, now);
                }
                (9, _) if random(20) == 0 => plan.retire(),
                (10, _) if random(10) == 0 => plan.stop(Stop::Graceful, now),
                _ => plan.tick(now),
            }
        }
        world.carry_out(&mut plan, true);
        plan.stop(Stop::Fast, now);
        world.carry_out(&mut plan, true);
        while let Some((generation, slot, _)) = world.alive.pop() {
            plan.ended(generation, slot, KILLED, now);
            world.carry_out(&mut plan, true);
        }
        assert_eq!(world.exits, 1);
        assert_eq!(plan.deadline_ms().is_some(), plan.kill_at_ms.is_some());
    }
}
