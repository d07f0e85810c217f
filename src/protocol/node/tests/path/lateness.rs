//! Tests that a late peer does not delay others.

use crate::protocol::limits::LATE_START_MS;
use crate::protocol::node::tests::*;
use crate::protocol::wire::inner_checkpoint::InnerCheckpoint;

fn offered_by_another(version: Head) -> Event {
    heard(OTHER, Message::Offer(offer(1, version)))
}

/// A member whose last contribution was counted in time, and which trains the next version.
fn in_time() -> Node {
    let mut node = member_with_owner(&[]);
    node.handle(Millis(100), Event::Trained(trained(0, genesis())));
    let first = updates(1, OTHER).remove(0);
    node.handle(Millis(200), heard(OTHER, Message::Update(first.clone())));
    node.handle(Millis(200), Event::Fetched { blob: average(1).hash, found: true });
    let began = node.handle(Millis(200), Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) });
    let trains = |action: &Action| matches!(action, Action::Train { phase: Phase(1), .. });
    assert!(began.iter().any(trains), "{began:?}");
    let heartbeat =
        Heartbeat { leases: vec![lease(1, 1, Stage::Training)], ..heartbeat(9, Some(head(&first)), Some((1, OTHER))) };
    node.handle(Millis(210), heard_heartbeat(OTHER, heartbeat));
    node
}

#[test]
fn a_phase_that_began_in_time_is_not_ended_for_faster_peers() {
    let mut node = in_time();
    let first = head(&updates(1, OTHER)[0]);
    assert!(!node.handle(Millis(300), offered_by_another(first)).contains(&Action::EndPhase { path: PathId(0) }));
}

#[test]
fn a_phase_in_which_the_machine_was_suspended_ends_once_with_those_of_others() {
    let mut node = in_time();
    let first = head(&updates(1, OTHER)[0]);
    pass(&mut node, 210, 2_000);
    assert!(
        !node.handle(Millis(9_000), Event::Tick).contains(&Action::EndPhase { path: PathId(0) }),
        "no other path waits yet"
    );
    assert!(node.handle(Millis(9_010), offered_by_another(first)).contains(&Action::EndPhase { path: PathId(0) }));
    assert!(!node.handle(Millis(9_020), offered_by_another(first)).contains(&Action::EndPhase { path: PathId(0) }));
}

#[test]
fn a_resumed_phase_ends_as_soon_as_its_module_has_advanced() {
    let start = vec![(started_from(genesis()), state(0))];
    let middle = InnerCheckpoint { path: PathId(0), phase: Phase(0), start, steps: 5, blob: BlobRef::of(b"middle") };
    let records = [member(&[]).records(), vec![Record::Checkpoint(middle)]].concat();
    let mut node = Node::restore(ME, plan(), records);
    let began = node.handle(Millis(0), Event::Join(vec![]));
    assert!(began.iter().any(|action| matches!(action, Action::Train { resume: Some(_), .. })));
    assert!(!began.contains(&Action::EndPhase { path: PathId(0) }), "no other path waits yet");
    let first = updates(1, OTHER).remove(0);
    node.handle(Millis(200), heard(OTHER, Message::Update(first)));
    node.handle(Millis(200), Event::Fetched { blob: average(1).hash, found: true });
    let moved = node.handle(Millis(200), Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) });
    assert!(moved.contains(&Action::EndPhase { path: PathId(0) }));
}

#[test]
fn a_peer_that_keeps_no_other_waiting_trains_to_the_end() {
    let mut node = member(&[]);
    let actions = pass(&mut node, 0, 2 * LATE_START_MS);
    assert!(actions.iter().all(|(_, action)| *action != Action::EndPhase { path: PathId(0) }));
}
