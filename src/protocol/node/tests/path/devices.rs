//! Tests of a node with several trainers.

use crate::protocol::limits::{MAX_RESTARTS, RECONSIDER_FIRST_MS, SILENCE_LEAST_MS};
use crate::protocol::node::tests::*;
use crate::protocol::wire::message::{DirectoryEntry, PathHandOff};
use crate::protocol::{ReplyToken, Request, RequestId, Response};

/// The lease that tells of two trainers.
fn two() -> Lease {
    Lease::of_trainers(2).unwrap()
}

fn records() -> Vec<Record> {
    let held = |path| Record::Lease { path: PathId(path), held: true, standby: false };
    let start = [
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: OTHER },
    ];
    [start, [held(0), held(1)]].concat()
}

/// The phases that begin.
fn begun(actions: &[Action]) -> Vec<(PathId, bool)> {
    let begun = actions.iter().filter_map(|action| match action {
        Action::Train { path, resume, .. } => Some((*path, resume.is_some())),
        _ => None,
    });
    begun.collect()
}

/// A node with two trainers that holds both paths, and what it did first.
fn both(records: Vec<Record>) -> (Node, Vec<Action>) {
    let mut node = Node::restore(ME, plan(), records).with_trainers(2);
    let actions = node.handle(Millis(0), Event::Join(vec![]));
    (node, actions)
}

fn signs(node: &mut Node, at: u64, path: u32, steps: u64) -> Vec<Action> {
    node.handle(Millis(at), Event::Progress { path: PathId(path), phase: Phase(0), steps })
}

#[test]
fn two_paths_are_trained_in_the_same_phase_at_once() {
    let (mut node, actions) = both(records());
    assert_eq!(begun(&actions), [(PathId(0), false), (PathId(1), false)]);
    assert_eq!(node.leases().iter().filter(|lease| lease.stage == Stage::Training).count(), 2);
    let after = node.handle(Millis(10), Event::Trained(trained(1, genesis())));
    assert_eq!(begun(&after), [], "path 1 waits for the module, path 0 is in training");
    let after = node.handle(Millis(20), Event::Trained(trained(0, genesis())));
    assert!(after.iter().any(|action| matches!(action, Action::Publish { message: Message::Offer(_), .. })));
    assert!(node.waits().is_some());
}

#[test]
fn a_node_with_one_trainer_says_nothing_of_it_and_one_with_two_says_so() {
    let (node, _) = both(records());
    assert_eq!(node.leases()[0], two());
    let one = Node::restore(ME, plan(), records());
    assert_eq!(one.leases().len(), 2);
    assert_eq!(Lease::of_trainers(1), None);
}

#[test]
fn after_a_restart_both_interrupted_phases_resume() {
    let (mut node, _) = both(records());
    let mut journal = records();
    for path in [0, 1] {
        let (path, phase, blob) = (PathId(path), Phase(0), BlobRef::of(&[path as u8, 7]));
        let actions = node.handle(Millis(10), Event::Checkpointed { path, phase, steps: 4, blob });
        journal.extend(actions.into_iter().filter_map(|action| match action {
            Action::Persist(record) => Some(record),
            _ => None,
        }));
    }
    let (_, actions) = both(journal);
    assert_eq!(begun(&actions), [(PathId(0), true), (PathId(1), true)]);
}

#[test]
fn a_trainer_that_hangs_is_restarted_with_its_path_and_the_other_goes_on() {
    let (mut node, _) = both(records());
    for path in [0, 1] {
        for steps in [0, 1] {
            signs(&mut node, 10 + steps, path, steps);
        }
    }
    let mut seen = Vec::new();
    for now in (250..=2 * SILENCE_LEAST_MS).step_by(250) {
        signs(&mut node, now, 0, 2 + now);
        seen.extend(node.handle(Millis(now), Event::Tick));
    }
    let restarts: Vec<_> = seen.iter().filter(|it| matches!(it, Action::RestartTrainer { .. })).collect();
    assert_eq!(restarts, [&Action::RestartTrainer { path: Some(PathId(1)) }]);
    assert_eq!(begun(&seen), [(PathId(1), false)]);
}

#[test]
fn a_trainer_that_fails_again_and_again_is_retired_and_the_other_trains_all_paths_in_turn() {
    let (mut node, _) = both(records());
    let died = || Event::TrainerDied { path: Some(PathId(1)) };
    for _ in 0..MAX_RESTARTS {
        let actions = node.handle(Millis(10), died());
        assert!(actions.contains(&Action::RestartTrainer { path: Some(PathId(1)) }), "{actions:?}");
    }
    let actions = node.handle(Millis(20), died());
    assert!(actions.contains(&Action::RetireTrainer { path: Some(PathId(1)) }), "{actions:?}");
    assert!(actions.contains(&Action::Report(Report::TrainerRetired { left: 1 })), "{actions:?}");
    assert_eq!((begun(&actions), Lease::of_trainers(node.trainers.count())), (vec![], None));
    let next = node.handle(Millis(30), Event::Trained(trained(0, genesis())));
    assert_eq!(begun(&next), [(PathId(1), false)]);
    let left = node.handle(Millis(40), Event::TrainerLost { path: Some(PathId(1)) });
    assert_eq!((begun(&left), node.trainers.count()), (vec![], 1), "the last one stays");
}

fn named(leases: Vec<Lease>) -> Event {
    let entries = vec![DirectoryEntry { peer: OTHER, addresses: vec!["somewhere".to_owned()], leases }];
    Event::Answered { id: RequestId(1), response: Some(Response::Directory(entries)) }
}

/// The paths that a newcomer with two trainers takes where `OTHER` has named these leases.
fn takes(leases: Vec<Lease>) -> Vec<PathId> {
    let mut node = Node::restore(ME, plan(), vec![]).with_trainers(2);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    node.handle(Millis(10), named(leases));
    node.active_slots().collect()
}

#[test]
fn a_newcomer_with_two_trainers_takes_two_paths_but_leaves_others_theirs() {
    assert_eq!(takes(vec![]), [PathId(0), PathId(1)], "nobody trains them");
    assert_eq!(takes(vec![lease(0, 0, Stage::Training)]), [PathId(1)]);
    assert_eq!(takes(vec![lease(0, 0, Stage::Training), lease(1, 0, Stage::Waiting)]), [PathId(1)]);
    let both = vec![two(), lease(0, 0, Stage::Training), lease(1, 0, Stage::Training)];
    assert_eq!(takes(both), [], "a peer with two trainers has a path on each");
}

#[test]
fn a_peer_with_two_trainers_keeps_its_two_paths_and_is_given_a_second_one() {
    let asks = |node: &mut Node, leases: Vec<Lease>| {
        let heartbeat = Heartbeat { leases, ..heartbeat(1, Some(genesis()), None) };
        node.handle(Millis(10), heard_heartbeat(OTHER, heartbeat));
        let request = Request::Path(PathId(1));
        let actions = node.handle(Millis(20), Event::Asked { from: OTHER, token: ReplyToken(1), request });
        actions.contains(&Action::Pause { path: PathId(1) })
            || actions.iter().any(|action| {
                matches!(action, Action::Reply { response: Response::Path(Some(PathHandOff { later: false, .. })), .. })
            })
    };
    let joins = lease(1, 0, Stage::Joining);
    assert!(!asks(&mut both(records()).0, vec![joins]));
    let mut one = Node::restore(ME, plan(), records());
    one.handle(Millis(0), Event::Join(vec![]));
    assert!(asks(&mut one, vec![two(), lease(2, 0, Stage::Training), joins]), "the other has a trainer to spare");
    let mut one = Node::restore(ME, plan(), records());
    one.handle(Millis(0), Event::Join(vec![]));
    assert!(!asks(&mut one, vec![lease(2, 0, Stage::Training), joins]));
}

#[test]
fn a_trainer_without_a_path_looks_for_one_when_its_node_is_back() {
    let mut node = Node::restore(ME, plan(), records()[..3].to_vec()).with_trainers(2);
    node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    let heartbeat =
        Heartbeat { leases: vec![lease(1, 0, Stage::Training)], ..heartbeat(1, Some(genesis()), Some((1, OTHER))) };
    node.handle(Millis(0), heard_heartbeat(OTHER, heartbeat));
    let asked = |actions: Vec<Action>| {
        actions.iter().filter(|it| matches!(it, Action::Ask { request: Request::Directory { .. }, .. })).count()
    };
    let at_once: usize = (1..8).map(|tick| asked(node.handle(Millis(250 * tick), Event::Tick))).sum();
    let until = 2 * RECONSIDER_FIRST_MS / 250;
    let later: usize = (8..until).map(|tick| asked(node.handle(Millis(250 * tick), Event::Tick))).sum();
    assert_eq!((at_once, later), (1, 0));
}
