//! Tests of probes of silent owners.

use crate::protocol::limits::{ANSWER_MS, HEARTBEAT_MS, LEASE_LEAST_MS, PROBE_AFTER_LEAST_MS, SWEEP_MS};
use crate::protocol::node::tests::*;
use crate::protocol::{Request, RequestId, Response};

/// The time of the owner's last heartbeat, after many regular ones.
const LAST_MS: u64 = 12_000;

fn heartbeat_of_owner(sequence: u64) -> Event {
    let leases = vec![lease(1, 0, Stage::Waiting)];
    heard_heartbeat(OTHER, Heartbeat { leases, ..heartbeat(sequence, Some(genesis()), Some((1, OTHER))) })
}

fn member_of_a_regular_owner() -> Node {
    let mut node = member_with_owner(&[]);
    for second in 1..=LAST_MS / HEARTBEAT_MS {
        pass(&mut node, (second - 1) * HEARTBEAT_MS, second * HEARTBEAT_MS);
        node.handle(Millis(second * HEARTBEAT_MS), heartbeat_of_owner(1 + second));
    }
    node
}

fn questions(actions: &[(u64, Action)]) -> Vec<(u64, RequestId)> {
    let to_owner = |(at, action): &(u64, Action)| match action {
        Action::Ask { id, to: OTHER, request: Request::CatchUp { .. } } => Some((*at, *id)),
        _ => None,
    };
    actions.iter().filter_map(to_owner).collect()
}

fn claims_at(actions: &[(u64, Action)]) -> Option<u64> {
    actions.iter().find(|(_, action)| *action == new_owner(ME)).map(|(at, _)| *at)
}

#[test]
fn an_owner_that_neither_sends_heartbeats_nor_responds_is_replaced_before_its_lease_expires() {
    let mut node = member_of_a_regular_owner();
    let actions = pass(&mut node, LAST_MS, LAST_MS + LEASE_LEAST_MS - 1);
    let asked_ms = questions(&actions)[0].0;
    assert!((LAST_MS + PROBE_AFTER_LEAST_MS..LAST_MS + PROBE_AFTER_LEAST_MS + SWEEP_MS).contains(&asked_ms));
    assert_eq!(claims_at(&actions), Some(asked_ms + ANSWER_MS));
}

#[test]
fn an_owner_that_responds_keeps_its_lease_and_no_longer() {
    let mut node = member_of_a_regular_owner();
    let asked_ms = LAST_MS + PROBE_AFTER_LEAST_MS + SWEEP_MS;
    let actions = pass(&mut node, LAST_MS, asked_ms);
    let (_, id) = questions(&actions)[0];
    node.handle(Millis(asked_ms), Event::Answered { id, response: Some(Response::Replay(vec![])) });
    let actions = pass(&mut node, asked_ms, LAST_MS + 2 * LEASE_LEAST_MS);
    assert!(claims_at(&actions).is_some_and(|at| at >= LAST_MS + LEASE_LEAST_MS));
}

#[test]
fn an_owner_that_sends_heartbeats_again_is_no_longer_probed() {
    let mut node = member_of_a_regular_owner();
    let asked_ms = LAST_MS + PROBE_AFTER_LEAST_MS + SWEEP_MS;
    assert!(!questions(&pass(&mut node, LAST_MS, asked_ms)).is_empty());
    node.handle(Millis(asked_ms), heartbeat_of_owner(100));
    let actions = pass(&mut node, asked_ms, asked_ms + HEARTBEAT_MS);
    assert_eq!((questions(&actions), claims_at(&actions)), (vec![], None));
}
