//! Tests of two machines with one identity.

use crate::protocol::limits::{COPY_NAMED_MS, MEMBER_LEASE_MS};
use crate::protocol::node::tests::*;
use crate::protocol::wire::message::Copied;
use crate::protocol::{ReplyToken, Request};

fn start(nonce: u64) -> Start {
    Start { incarnation: 1, nonce, signature: vec![nonce as u8; 64] }
}

fn as_started(nonce: u64, sequence: u64) -> Event {
    let addresses = vec![format!("machine {nonce}")];
    let leases = vec![lease(1, 0, Stage::Waiting)];
    heard_heartbeat(
        THIRD,
        Heartbeat { start: start(nonce), addresses, leases, ..heartbeat(sequence, Some(genesis()), None) },
    )
}

fn copied(actions: &[Action]) -> Vec<Report> {
    let copied = |action: &Action| match action {
        Action::Report(report @ Report::CopiedIdentity { .. }) => Some(report.clone()),
        _ => None,
    };
    actions.iter().filter_map(copied).collect()
}

fn named(actions: &[Action]) -> Vec<Copied> {
    let heartbeat = |action: &Action| match action {
        Action::Publish { message: Message::Heartbeat(heartbeat), .. } => Some(heartbeat.copied.clone()),
        _ => None,
    };
    actions.iter().filter_map(heartbeat).next_back().unwrap_or_default()
}

/// A member that hears the third peer from two machines in turn for so many seconds, and its actions.
fn between_copies(seconds: u64) -> (Node, Vec<Action>) {
    let mut node = member_with_owner(&[]);
    let mut actions = Vec::new();
    for second in 1..=seconds {
        actions.extend(node.handle(Millis(second * 1_000), as_started(8, second)));
        actions.extend(node.handle(Millis(second * 1_000 + 500), as_started(3, second)));
    }
    (node, actions)
}

#[test]
fn a_peer_heard_from_two_machines_is_reported_once() {
    let (mut node, actions) = between_copies(12);
    let addresses = vec!["machine 3".to_owned(), "machine 8".to_owned()];
    let report = Report::CopiedIdentity { peer: THIRD, addresses: addresses.clone(), gives_way: false };
    assert_eq!(copied(&actions), [report]);
    let status = node.status().copied_identities;
    assert_eq!((status.len(), status[0].peer, &status[0].addresses), (1, THIRD, &addresses));
    let heartbeat = node.handle(Millis(13_000), Event::Tick);
    assert_eq!(named(&heartbeat), [Copied { peer: THIRD, start: start(8) }], "the higher start continues");
    node.handle(Millis(12_500 + COPY_NAMED_MS), Event::Tick);
    let later = node.handle(Millis(13_500 + COPY_NAMED_MS), Event::Tick);
    assert_eq!((named(&later), node.status().copied_identities.len()), (vec![], 0));
}

#[test]
fn a_peer_that_has_restarted_is_no_copy() {
    let mut node = member_with_owner(&[]);
    let mut actions = node.handle(Millis(0), as_started(3, 1));
    for second in 1..20 {
        let again = Start { incarnation: 2, nonce: 1, signature: vec![] };
        let heartbeat = Heartbeat { start: again, ..heartbeat(second, Some(genesis()), None) };
        actions.extend(node.handle(Millis(second * 1_000), heard_heartbeat(THIRD, heartbeat)));
        // Delayed heartbeats of the earlier start, out of order.
        if second * 1_000 < MEMBER_LEASE_MS {
            actions.extend(node.handle(Millis(second * 1_000 + 10), as_started(3, 10 - second)));
        }
    }
    assert_eq!(copied(&actions), []);
}

#[test]
fn a_copy_that_gossip_does_not_reach_is_noticed_by_its_request() {
    let mut node = member_with_owner(&[]);
    for second in 1..=12 {
        node.handle(Millis(second * 1_000), as_started(8, second));
    }
    let request = Request::Directory { start: Some(start(3)) };
    let mut actions = node.handle(Millis(12_500), Event::Asked { from: THIRD, token: ReplyToken(1), request });
    for second in 13..=18 {
        actions.extend(node.handle(Millis(second * 1_000), as_started(8, second)));
    }
    assert_eq!(copied(&actions).len(), 1);
}

fn hears_named(other: Start) -> (Node, Vec<Action>) {
    let records = vec![Record::Genesis { module: MODULE, state: state(0) }];
    let mut node = Node::restore(ME, plan(), records).started_as(5, |bytes| {
        assert!(bytes == Start::signed_bytes(ME, 1, 5) || bytes == b"pathswarm audits");
        vec![5; 64]
    });
    node.handle(Millis(0), Event::Join(vec![]));
    let named = Heartbeat {
        copied: vec![Copied { peer: ME, start: other }],
        ..heartbeat(1, Some(genesis()), Some((1, OTHER)))
    };
    let actions = node.handle(Millis(10), heard_heartbeat(OTHER, named));
    (node, actions)
}

#[test]
fn the_lower_of_two_copies_stops_without_a_goodbye() {
    let (mut node, actions) = hears_named(start(8));
    assert_eq!(copied(&actions), [Report::CopiedIdentity { peer: ME, addresses: vec![], gives_way: true }]);
    assert!(!actions.iter().any(|action| matches!(action, Action::Publish { .. })), "{actions:?}");
    assert_eq!(node.next_deadline(), None);
    assert_eq!(node.handle(Millis(60_000), Event::Tick), vec![]);
}

#[test]
fn the_higher_of_two_copies_continues_and_reports_it_once() {
    let (mut node, actions) = hears_named(start(5));
    assert_eq!(copied(&actions), [Report::CopiedIdentity { peer: ME, addresses: vec![], gives_way: false }]);
    assert_eq!(node.status().copied_identities[0].peer, ME);
    let again = Copied { peer: ME, start: start(5) };
    let heartbeat = Heartbeat { copied: vec![again], ..heartbeat(2, Some(genesis()), Some((1, OTHER))) };
    assert_eq!(copied(&node.handle(Millis(1_000), heard_heartbeat(OTHER, heartbeat))), []);
    let (_, actions) = hears_named(start(4));
    assert_eq!(copied(&actions), [], "the other copy, with the lower start, stops by itself");
}
