//! Two masters on the same sockets, from the side of either.

use super::*;

fn drain(generation: u32, successor: bool) -> Action {
    Action::Drain {
        generation,
        successor,
    }
}

fn serves(generation: u32, workers: u32) -> Action {
    Action::Serving {
        generation,
        workers,
    }
}

/// A plan that serves with two workers and whose new binary serves.
fn succeeded() -> Plan {
    let mut plan = serving(2);
    plan.succeed(false, 100);
    plan.successor_serves(3, 200);
    assert_eq!(plan.take_actions(), [Action::Succeeded { workers: 3 }]);
    plan
}

/// The same, with its own workers gone.
fn sent_home() -> Plan {
    let mut plan = succeeded();
    plan.retire();
    assert_eq!(plan.take_actions(), [drain(1, true)]);
    plan.ended(1, 0, Ending::Exited(0), 300);
    plan.ended(1, 1, Ending::Exited(0), 300);
    assert_eq!(plan.take_actions(), []);
    plan
}

fn back_with(plan: &mut Plan, generation: u32) {
    assert_eq!(
        plan.take_actions(),
        [
            Action::Repeat { generation, of: 1 },
            Action::Listen { generation },
            spawn(generation, 0),
            spawn(generation, 1)
        ]
    );
}

#[test]
fn only_one_new_binary_at_a_time_and_none_while_the_old_one_lives() {
    let mut plan = serving(1);
    assert_eq!(plan.may_succeed(), Ok(()));
    plan.succeed(false, 0);
    assert!(plan.has_successor() && plan.may_succeed().is_err());
    plan.successor_serves(1, 1);
    assert!(plan.may_succeed().is_err());
    plan.successor_leaves(2);
    assert!(plan.may_succeed().is_err());
    plan.successor_ended(3);
    assert_eq!(plan.may_succeed(), Ok(()));
    plan.stop(Stop::Graceful, 4);
    assert!(plan.may_succeed().is_err());

    let mut new = Plan::default();
    new.take_over(1, 0);
    assert!(new.may_succeed().is_err());
    new.predecessor_ended();
    assert_eq!(new.may_succeed(), Ok(()));
}

#[test]
fn asked_for_by_a_command_the_old_one_leaves_when_the_new_one_serves() {
    let mut plan = serving(1);
    plan.succeed(true, 0);
    assert_eq!(plan.take_actions(), []);
    plan.successor_serves(4, 900);
    assert_eq!(
        plan.take_actions(),
        [
            Action::Succeeded { workers: 4 },
            Action::CloseListeners,
            drain(1, true)
        ]
    );
    plan.successor_serves(5, 901);
    assert_eq!(plan.take_actions(), [], "a reload of the new one");
    plan.ended(1, 0, Ending::Exited(0), 1_000);
    assert_eq!(
        plan.take_actions(),
        [
            Action::Forget { generation: 1 },
            Action::Exit { asked: true }
        ]
    );
}

#[test]
fn a_new_binary_that_ends_leaves_the_old_one_as_it_was() {
    for asked in [true, false] {
        let mut plan = serving(2);
        plan.succeed(asked, 0);
        plan.successor_ended(10);
        assert_eq!(plan.take_actions(), [steer(&[0, 1], 2)]);
        assert_eq!((plan.serving(), plan.deadline_ms()), (Some((1, 2)), None));
        assert!(!plan.has_successor());
        plan.successor_serves(1, 20);
        assert_eq!(plan.take_actions(), [], "nobody is left to serve");
    }
}

#[test]
fn a_new_binary_that_hangs_is_killed_once() {
    let mut plan = serving(1);
    plan.succeed(true, 5_000);
    assert_eq!(plan.deadline_ms(), Some(35_000));
    plan.tick(34_999);
    assert_eq!(plan.take_actions(), []);
    plan.tick(35_000);
    assert_eq!(plan.take_actions(), [Action::KillSuccessor]);
    assert_eq!(plan.deadline_ms(), None);
    plan.successor_serves(1, 35_001);
    plan.tick(90_000);
    assert_eq!(plan.take_actions(), [], "what was killed does not serve");
    plan.successor_ended(90_001);
    assert_eq!(plan.take_actions(), [steer(&[0], 1)]);
}

#[test]
fn workers_sent_home_come_back_by_hup_and_only_once() {
    let mut plan = sent_home();
    plan.resume(400);
    back_with(&mut plan, 2);
    plan.resume(401);
    assert_eq!(plan.take_actions(), [], "they are on their way");
    plan.ready(2, 0);
    plan.ready(2, 1);
    assert_eq!(
        plan.take_actions(),
        [
            commit(2, 0),
            commit(2, 1),
            steer(&[0, 1], 2),
            serves(2, 2),
            Action::Forget { generation: 1 }
        ]
    );
    plan.resume(402);
    assert_eq!(plan.take_actions(), [], "they serve");
}

#[test]
fn workers_sent_home_come_back_when_the_new_binary_leaves_or_ends() {
    for leaves_first in [true, false] {
        let mut plan = sent_home();
        if leaves_first {
            plan.successor_leaves(400);
            back_with(&mut plan, 2);
            plan.successor_ended(500);
            assert_eq!(plan.take_actions(), [], "they are on their way");
        } else {
            plan.successor_ended(500);
            back_with(&mut plan, 2);
        }
    }
}

#[test]
fn what_still_drains_does_not_keep_new_workers_from_coming() {
    let mut plan = succeeded();
    plan.retire();
    plan.take_actions();
    plan.successor_ended(300);
    back_with(&mut plan, 2);
    plan.ended(1, 0, Ending::Exited(0), 310);
    plan.ended(1, 1, Ending::Exited(0), 310);
    plan.ready(2, 0);
    plan.ready(2, 1);
    let actions = plan.take_actions();
    assert_eq!(actions.last(), Some(&Action::Forget { generation: 1 }));
    assert_eq!(plan.serving(), Some((2, 2)));
}

#[test]
fn a_generation_sent_home_twice_is_still_the_one_that_served() {
    let mut plan = sent_home();
    plan.resume(400);
    plan.take_actions();
    plan.retire();
    let abandoned = Action::Abandoned { generation: 2 };
    assert_eq!(plan.take_actions(), [abandoned, drain(2, true)]);
    plan.ended(2, 0, Ending::Exited(0), 410);
    plan.ended(2, 1, Ending::Exited(0), 410);
    assert_eq!(plan.take_actions(), [Action::Forget { generation: 2 }]);
    plan.resume(420);
    back_with(&mut plan, 3);
}

#[test]
fn a_master_without_workers_ends_at_once_and_does_not_come_back() {
    for how in [Stop::Fast, Stop::Graceful] {
        let mut plan = sent_home();
        plan.stop(how, 400);
        let actions = plan.take_actions();
        assert_eq!(actions.last(), Some(&Action::Exit { asked: true }));
        assert!(actions.contains(&Action::Forget { generation: 1 }));
        plan.successor_ended(500);
        plan.resume(501);
        assert_eq!(plan.take_actions(), []);
    }
}

#[test]
fn the_new_one_is_all_or_nothing_while_the_old_one_serves() {
    let mut new = Plan::default();
    new.take_over(2, 0);
    assert_eq!(new.take_actions(), [spawn(1, 0), spawn(1, 1)]);
    new.ready(1, 1);
    assert_eq!(new.take_actions(), []);
    new.ready(1, 0);
    assert_eq!(new.take_actions(), [Action::Listen { generation: 1 }]);
    new.listened(1);
    assert_eq!(
        new.take_actions(),
        [commit(1, 0), commit(1, 1), steer(&[0, 1], 2), serves(1, 2)]
    );
    new.predecessor_ended();
    assert_eq!(new.take_actions(), [steer(&[0, 1], 2)]);
}

#[test]
fn the_new_one_gives_up_for_any_reason_while_the_old_one_serves() {
    let begun = || {
        let mut new = Plan::default();
        new.take_over(2, 0);
        new.ready(1, 0);
        new.take_actions();
        new
    };
    let mut killed = begun();
    killed.ended(1, 1, KILLED, 10);
    let mut refused = begun();
    refused.refuse(1, "chdir() failed".into());
    let mut late = begun();
    late.tick(READY_MS);
    let mut deaf = begun();
    deaf.ready(1, 1);
    assert_eq!(deaf.take_actions(), [Action::Listen { generation: 1 }]);
    deaf.fail(1, "listen() failed".into());
    for (mut new, reason) in [
        (
            killed,
            "worker process 1 of generation 1 exited on signal 9",
        ),
        (refused, "chdir() failed"),
        (late, "generation 1 was not ready in 10 s"),
        (deaf, "listen() failed"),
    ] {
        let failed = Action::Failed {
            generation: 1,
            reason: reason.into(),
        };
        assert_eq!(new.take_actions(), [Action::Kill { generation: 1 }, failed]);
        new.ended(1, 0, KILLED, 20);
        new.ended(1, 1, KILLED, 20);
        let actions = new.take_actions();
        assert_eq!(
            actions.last(),
            Some(&Action::Exit { asked: false }),
            "{reason}"
        );
    }
}

#[test]
fn the_new_one_serves_with_what_it_has_once_the_old_one_is_gone() {
    let mut new = Plan::default();
    new.take_over(2, 0);
    new.ready(1, 1);
    new.take_actions();
    new.predecessor_ended();
    assert_eq!(
        new.take_actions(),
        [Action::Listen { generation: 1 }, commit(1, 1)]
    );
    new.listened(1);
    new.ended(1, 0, KILLED, 10);
    let wait = Action::BackOff {
        generation: 1,
        slot: 0,
        deaths: 1,
        wait_ms: 100,
    };
    assert_eq!(new.take_actions(), [wait]);
    new.tick(110);
    assert_eq!(new.take_actions(), [spawn(1, 0)]);
    new.ready(1, 0);
    assert_eq!(
        new.take_actions(),
        [commit(1, 0), steer(&[0, 1], 2), serves(1, 2)]
    );
}

#[test]
fn a_new_one_whose_workers_were_all_ready_serves_when_the_old_one_goes() {
    let mut new = Plan::default();
    new.take_over(1, 0);
    new.ready(1, 0);
    new.take_actions();
    // The sockets were about to listen.
    new.predecessor_ended();
    assert_eq!(
        new.take_actions(),
        [
            Action::Listen { generation: 1 },
            commit(1, 0),
            steer(&[0], 1),
            serves(1, 1)
        ]
    );
    new.listened(1);
    assert_eq!(new.take_actions(), []);
}

#[test]
fn the_new_one_reloads_and_stops_while_the_old_one_lives() {
    let mut new = Plan::default();
    new.take_over(1, 0);
    new.ready(1, 0);
    new.listened(1);
    new.take_actions();
    new.begin(1, 10);
    assert_eq!(new.take_actions(), [spawn(2, 0)]);
    new.fail(2, "no".into());
    let actions = new.take_actions();
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Exit { .. }))
    );
    new.stop(Stop::Graceful, 20);
    assert_eq!(
        new.take_actions(),
        [Action::CloseListeners, drain(1, true)],
        "its clients find the old one"
    );
}
