//! A member's way from an update to a new head.

use super::*;

#[test]
fn a_member_applies_an_update_and_trains_on() {
    let mut node = member_with_owner(&[]);
    let signed = update(genesis(), 1, OTHER);
    let finished = trained(0, genesis());
    node.handle(Millis(50), Event::Trained(finished.clone()));
    assert_eq!(
        node.handle(Millis(100), heard(OTHER, Message::Update(signed.clone()))),
        vec![Action::Fetch { blob: average(1), from: OTHER }]
    );
    assert_eq!(
        node.handle(Millis(110), Event::Fetched { blob: average(1).hash, found: true }),
        vec![Action::Apply { module: MODULE, version: Version(1), from: state(0), average: average(1) }]
    );
    let beat = Beat {
        addresses: vec![],
        leases: vec![lease(0, 1, Stage::Training)],
        ..beat(5, Some(head(&signed)), Some((1, OTHER)))
    };
    assert_eq!(
        node.handle(Millis(120), Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) }),
        vec![
            Action::Persist(Record::Head(signed.clone())),
            Action::Report(Report::Advanced { module: MODULE, version: Version(1), contributions: 2 }),
            publish(Message::Beat(beat)),
            train(0, head(&signed), Some(finished.trainer)),
        ]
    );
}

#[test]
fn what_is_trained_is_offered_until_an_update_counts_it() {
    let mut node = member_with_owner(&[]);
    let finished = trained(0, genesis());
    let beat = Beat {
        addresses: vec![],
        leases: vec![lease(0, 0, Stage::Waiting)],
        ..beat(3, Some(genesis()), Some((1, OTHER)))
    };
    let first = Offer { sequence: 4, ..offer(0, genesis()) };
    assert_eq!(
        node.handle(Millis(50), Event::Trained(finished.clone())),
        vec![
            Action::Persist(Record::Finished(finished)),
            publish(Message::Beat(beat)),
            publish(Message::Offer(first.clone())),
        ]
    );
    // Gossip carries the same bytes but once in a while, so they differ.
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
fn a_path_that_was_done_trains_on_when_a_heavier_chain_has_not_come_as_far() {
    let chain = updates(PHASES, OTHER);
    let mut node = member_with_owner(&chain);
    assert!(node.is_done());
    // Fewer updates, but more weight.
    let mut heavier = updates(PHASES - 1, OTHER);
    heavier[0].update.contributions.truncate(1);
    let tail: Vec<SignedUpdate> = heavier.split_off(PHASES as usize - 4);
    let mut rebased: Vec<SignedUpdate> = Vec::new();
    for mut signed in tail {
        signed.update.weight += 1_000;
        if let Some(before) = rebased.last() {
            signed.update.parent = head(before).update;
        }
        rebased.push(signed);
    }
    let better = head(rebased.last().unwrap());
    node.handle(Millis(10), heard_beat(OTHER, beat(2, Some(better), Some((1, OTHER)))));
    node.handle(Millis(250), Event::Tick);
    let asked = node.handle(Millis(1_000), Event::Tick);
    let id = asked.iter().find_map(|action| match action {
        Action::Ask { id, .. } => Some(*id),
        _ => None,
    });
    let response = Some(crate::protocol::Response::Snapshot(rebased));
    node.handle(Millis(1_010), Event::Answered { id: id.unwrap(), response });
    let actions = node.handle(Millis(1_020), Event::Fetched { blob: better.state.hash, found: true });
    assert!(actions.contains(&train(0, better, None)), "{actions:?}");
}
