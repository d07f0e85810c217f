//! Tests of a member's work, from an update to a new head.

use crate::protocol::limits::MEMBER_LEASE_MS;
use crate::protocol::node::tests::*;

#[test]
fn a_member_applies_an_update_and_continues_training() {
    let mut node = member_with_owner(&[]);
    let signed = update(genesis(), 1, OTHER);
    let finished = trained(0, genesis());
    node.handle(Millis(50), Event::Trained(finished.clone()));
    assert_eq!(
        node.handle(Millis(100), heard(OTHER, Message::Update(signed.clone()))),
        vec![Action::Fetch { blob: average(1), from: vec![OTHER] }]
    );
    assert_eq!(node.handle(Millis(110), Event::Fetched { blob: average(1).hash, found: true }), vec![apply()]);
    let heartbeat = Heartbeat {
        addresses: vec![],
        leases: vec![Lease { trainer: Some(finished.trainer), ..lease(0, 1, Stage::Training) }],
        ..heartbeat(6, Some(head(&signed)), Some((1, OTHER)))
    };
    assert_eq!(
        node.handle(Millis(120), Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) }),
        vec![
            Action::Persist(Record::Head(signed.clone())),
            Action::Report(Report::Advanced { module: MODULE, version: Version(1), contributions: 2 }),
            publish(Message::Heartbeat(heartbeat)),
            train(0, head(&signed), Some(finished.trainer)),
        ]
    );
}

/// An owner that has published its update at 2 001 ms, and whose average is about to arrive.
fn owner_that_has_sealed() -> (Node, SignedUpdate) {
    let mut node = owner();
    let signed = update(genesis(), 1, ME);
    let fetched = |path| Event::Fetched { blob: gradient(path, 0).hash, found: true };
    let added = |path| Event::Accumulated {
        module: MODULE,
        target: Version(1),
        blob: gradient(path, 0).hash,
        norm: Some(NORM),
    };
    let events = [
        heard(OTHER, Message::Offer(offer(1, genesis()))),
        Event::Trained(trained(0, genesis())),
        fetched(0),
        fetched(1),
        added(0),
        added(1),
        Event::Combined { module: MODULE, target: Version(1), average: average(1), state: state(1) },
        Event::Sealed(signed.clone()),
    ];
    let said: Vec<Action> = events.into_iter().flat_map(|event| node.handle(Millis(2_001), event)).collect();
    assert!(said.contains(&publish(Message::Update(signed.clone()))));
    (node, signed)
}

fn average_is_here() -> Event {
    Event::Fetched { blob: average(1).hash, found: true }
}

fn apply() -> Action {
    let portion = BOTH;
    Action::Outer(Outer::Apply { module: MODULE, version: Version(1), from: state(0), average: average(1), portion })
}

#[test]
fn an_owner_applies_its_own_update_after_another_member() {
    let (mut node, signed) = owner_that_has_sealed();
    assert_eq!(node.handle(Millis(2_010), average_is_here()), vec![]);
    // Another member, which has not applied it either.
    let behind = heard_heartbeat(OTHER, heartbeat(2, Some(genesis()), Some((1, ME))));
    assert_eq!(node.handle(Millis(2_020), behind), vec![]);
    let has_it = heard_heartbeat(OTHER, heartbeat(3, Some(head(&signed)), Some((1, ME))));
    assert_eq!(node.handle(Millis(2_030), has_it), vec![apply()]);
}

#[test]
fn an_owners_update_replaced_by_that_of_a_later_owner_is_released() {
    let (mut node, signed) = owner_that_has_sealed();
    node.handle(Millis(2_010), average_is_here());
    let theirs = Update { term: Term(2), owner: OTHER, average: average(9), ..signed.update.clone() };
    let actions = node.handle(Millis(2_020), heard(OTHER, Message::Update(SignedUpdate { update: theirs, ..signed })));
    assert!(actions.contains(&Action::Release(average(1).hash)), "{actions:?}");
}

#[test]
fn an_owner_whose_update_is_replaced_in_the_same_term_claims_the_next_term() {
    let (mut node, signed) = owner_that_has_sealed();
    let theirs = Update { owner: OTHER, average: average(9), ..signed.update.clone() };
    let actions = node.handle(Millis(2_020), heard(OTHER, Message::Update(SignedUpdate { update: theirs, ..signed })));
    let (next_term, heartbeat) = (term(2, ME), |action: &Action| matches!(action, Action::Publish { .. }));
    assert!(actions.contains(&next_term) && actions.iter().any(heartbeat), "{actions:?}");
}

#[test]
fn an_owner_that_is_alone_applies_its_own_update_at_once() {
    let (mut node, _) = owner_that_has_sealed();
    let parting = Heartbeat { leaving: true, ..heartbeat(2, Some(genesis()), Some((1, ME))) };
    assert_eq!(node.handle(Millis(2_010), heard_heartbeat(OTHER, parting)), vec![]);
    assert_eq!(node.handle(Millis(2_020), average_is_here()), vec![apply()]);
}

#[test]
fn an_owner_does_not_wait_for_a_member_without_a_state() {
    let (mut node, _) = owner_that_has_sealed();
    let parting = Heartbeat { leaving: true, ..heartbeat(2, Some(genesis()), Some((1, ME))) };
    node.handle(Millis(2_010), heard_heartbeat(OTHER, parting));
    node.handle(Millis(2_010), heard_heartbeat(THIRD, heartbeat(1, None, Some((1, ME)))));
    assert_eq!(node.handle(Millis(2_020), average_is_here()), vec![apply()]);
}

#[test]
fn an_owner_waits_for_another_member_no_longer_than_a_lease() {
    let (mut node, _) = owner_that_has_sealed();
    assert_eq!(node.handle(Millis(2_100), average_is_here()), vec![]);
    let mut applied_at = None;
    for now in (2_100..=2_100 + MEMBER_LEASE_MS).step_by(250) {
        let mut actions =
            node.handle(Millis(now), heard_heartbeat(OTHER, heartbeat(now, Some(genesis()), Some((1, ME)))));
        actions.extend(node.handle(Millis(now), Event::Tick));
        if actions.contains(&apply()) {
            applied_at = Some(now);
        }
    }
    assert_eq!(applied_at, Some(2_100 + MEMBER_LEASE_MS));
}

#[test]
fn a_contribution_is_offered_until_an_update_counts_it() {
    let mut node = member_with_owner(&[]);
    let finished = trained(0, genesis());
    let heartbeat = Heartbeat {
        addresses: vec![],
        leases: vec![Lease { trainer: Some(finished.trainer), ..lease(0, 0, Stage::Waiting) }],
        ..heartbeat(3, Some(genesis()), Some((1, OTHER)))
    };
    let first = Offer { sequence: 4, ..offer(0, genesis()) };
    assert_eq!(
        node.handle(Millis(50), Event::Trained(finished.clone())),
        vec![
            Action::Persist(Record::Finished(finished)),
            publish(Message::Heartbeat(heartbeat)),
            publish(Message::Offer(first.clone())),
        ]
    );
    // Gossip suppresses repeated bytes, so the offers differ.
    let again = node.handle(Millis(3_000), Event::Tick);
    let offers: Vec<&Offer> = again
        .iter()
        .filter_map(|action| match action {
            Action::Publish { message: Message::Offer(offer), .. } => Some(offer),
            _ => None,
        })
        .collect();
    assert_eq!(offers.len(), 1);
    assert!(offers[0].key() == first.key() && offers[0].sequence > first.sequence);

    let counting = update(genesis(), 1, OTHER);
    node.handle(Millis(3_100), heard(OTHER, Message::Update(counting)));
    node.handle(Millis(3_100), Event::Fetched { blob: average(1).hash, found: true });
    node.handle(Millis(3_100), Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) });
    let after = node.handle(Millis(6_000), Event::Tick);
    assert!(!after.iter().any(|action| matches!(action, Action::Publish { message: Message::Offer(_), .. })));
}

#[test]
fn a_path_that_was_done_continues_when_a_heavier_chain_has_fewer_rounds() {
    let chain = updates(PHASES, OTHER);
    let mut node = member_with_owner(&chain);
    assert!(node.is_done());
    // Fewer updates, but more weight.
    let mut heavier = updates(PHASES - 1, OTHER);
    heavier[0].update.contributions.edit(|all| all.truncate(1));
    let tail: Vec<SignedUpdate> = heavier.split_off(PHASES as usize - 9);
    let mut rebased: Vec<SignedUpdate> = Vec::new();
    for mut signed in tail {
        signed.update.weight += 1_000;
        if let Some(before) = rebased.last() {
            signed.update.parent = head(before).update;
        }
        rebased.push(signed);
    }
    let better = head(rebased.last().unwrap());
    node.handle(Millis(10), heard_heartbeat(OTHER, heartbeat(2, Some(better), Some((1, OTHER)))));
    node.handle(Millis(250), Event::Tick);
    let asked = node.handle(Millis(1_000), Event::Tick);
    let id = asked.iter().find_map(|action| match action {
        Action::Ask { id, .. } => Some(*id),
        _ => None,
    });
    let response = Some(crate::protocol::Response::Snapshot(rebased));
    node.handle(Millis(1_010), Event::Answered { id: id.unwrap(), response });
    let actions = installed(&mut node, Millis(1_020), better.state);
    assert!(actions.contains(&train(0, better, None)), "{actions:?}");
}

#[test]
fn an_owner_whose_update_cannot_be_fetched_steps_down_if_others_can_be_fetched_from() {
    for works in [false, true] {
        let mut node = member_with_owner(&[]);
        node.handle(Millis(10), heard(OTHER, Message::Update(update(genesis(), 1, OTHER))));
        if works {
            node.reputation.note_fetch(Millis(10));
        }
        let mut steps_down = false;
        for at_ms in (20..4_000).step_by(250) {
            let mut actions = node.handle(Millis(at_ms), Event::Fetched { blob: average(1).hash, found: false });
            actions.extend(node.handle(Millis(at_ms), Event::Tick));
            steps_down |=
                actions.iter().any(|it| matches!(it, Action::Report(Report::SteppedDown { owner: OTHER, .. })));
            let alive = heartbeat(at_ms, Some(genesis()), Some((1, OTHER)));
            node.handle(Millis(at_ms), heard_heartbeat(OTHER, alive));
        }
        assert_eq!(steps_down, works);
    }
}
