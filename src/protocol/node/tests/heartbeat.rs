//! Tests of heartbeats, the roster, and leaving in order.

use crate::protocol::limits::HEARTBEAT_MS;
use crate::protocol::node::tests::*;

fn my_heartbeat(sequence: u64, stage: Stage, leaving: bool) -> Action {
    publish(Message::Heartbeat(Heartbeat {
        start: Start { incarnation: 1, ..Start::default() },
        sequence,
        head: Some(genesis()),
        owner: Some((Term(1), OTHER)),
        claim: vec![],
        leases: vec![lease(0, 0, stage)],
        addresses: vec![],
        replicas: 0,
        wanted: vec![],
        copied: vec![],
        leaving,
        pace: 0,
    }))
}

#[test]
fn a_peer_sends_heartbeats_on_each_of_its_modules_at_the_interval() {
    let mut node = member(&[]);
    assert_eq!(node.next_deadline(), Some(Millis(0)));
    // The path began to wait and then to train, which took two sequence numbers but led to one heartbeat.
    assert_eq!(node.handle(Millis(0), Event::Tick), vec![my_heartbeat(3, Stage::Training, false)]);
    assert_eq!(node.handle(Millis(HEARTBEAT_MS - 1), Event::Tick), vec![]);
    assert_eq!(node.handle(Millis(HEARTBEAT_MS), Event::Tick), vec![my_heartbeat(4, Stage::Training, false)]);
}

#[test]
fn a_new_peer_is_connected_to_and_a_known_one_only_at_a_new_address() {
    let mut node = member(&[]);
    assert_eq!(node.handle(Millis(0), heard_heartbeat(THIRD, heartbeat(1, Some(genesis()), None))), vec![learn(THIRD)]);
    assert_eq!(node.handle(Millis(0), heard_heartbeat(THIRD, heartbeat(2, Some(genesis()), None))), vec![]);
    let moved = Heartbeat { addresses: vec!["elsewhere".to_owned()], ..heartbeat(3, Some(genesis()), None) };
    let learned = Action::Learn { peer: THIRD, addresses: moved.addresses.clone() };
    assert_eq!(node.handle(Millis(0), heard_heartbeat(THIRD, moved)), vec![learned]);
}

#[test]
fn messages_of_other_modules_or_outside_the_grid_change_nothing() {
    let mut node = member(&[]);
    for level in [0, 1, u16::MAX] {
        let module = ModuleId { level, expert: 9 };
        let messages = [
            Message::Heartbeat(heartbeat(1, Some(genesis()), Some((9, THIRD)))),
            Message::Offer(offer(1, genesis())),
            Message::Update(update(genesis(), 9, THIRD)),
        ];
        for message in messages {
            assert_eq!(node.handle(Millis(0), Event::Heard { module, author: THIRD, message: message.into() }), vec![]);
        }
    }
    let nowhere = Offer { path: PathId(u32::MAX), ..offer(1, genesis()) };
    assert_eq!(node.handle(Millis(0), heard(THIRD, Message::Offer(nowhere))), vec![]);
    let huge = Offer { blob: BlobRef { bytes: u64::MAX, ..gradient(1, 0) }, ..offer(1, genesis()) };
    assert_eq!(node.handle(Millis(0), heard(THIRD, Message::Offer(huge))), vec![]);
}

#[test]
fn a_peer_that_leaves_alone_says_goodbye_and_goes_silent() {
    let mut node = member(&[]);
    let left = vec![my_heartbeat(3, Stage::Training, true), Action::Unsubscribe(MODULE), Action::Gone];
    assert_eq!(node.handle(Millis(10), Event::Leave), left);
    assert_eq!(node.next_deadline(), None);
    assert_eq!(node.handle(Millis(9_000), Event::Tick), vec![]);
}

#[test]
fn the_claims_of_a_leaving_peer_are_ignored() {
    let mut node = member_with_owner(&[]);
    let mine = vec![lease(0, 0, Stage::Training)];
    let parting = Heartbeat { leaving: true, leases: mine, ..heartbeat(9, Some(genesis()), Some((5, THIRD))) };
    assert_eq!(node.handle(Millis(10), heard_heartbeat(THIRD, parting)), vec![learn(THIRD)]);
    assert_eq!(node.status().paths.len(), 1);
}
