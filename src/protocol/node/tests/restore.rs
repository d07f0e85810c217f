//! Tests of restoring a node from its journal.

use crate::protocol::limits::{LONELY_RETURN_MS, MEMBER_LEASE_MS, SETTLE_MS};
use crate::protocol::node::tests::*;

fn restored(records: &[Record]) -> Node {
    Node::restore(ME, plan(), records.to_vec())
}

/// The records of a compacted journal without the number of starts.
fn says(node: &Node) -> Vec<Record> {
    node.records().into_iter().filter(|record| !matches!(record, Record::Started(_))).collect()
}

/// The records that a node persists during these events.
fn journal(node: &mut Node, events: Vec<Event>) -> Vec<Record> {
    let actions = events.into_iter().flat_map(|event| node.handle(Millis(10), event));
    let record = |action| match action {
        Action::Persist(record) => Some(record),
        _ => None,
    };
    actions.filter_map(record).collect()
}

fn lived() -> (Node, Vec<Record>) {
    let mut records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: OTHER },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    let mut node = restored(&records);
    let applied = Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) };
    let theirs =
        Heartbeat { leases: vec![lease(1, 0, Stage::Waiting)], ..heartbeat(1, Some(genesis()), Some((2, OTHER))) };
    let events = vec![
        Event::Join(vec![]),
        heard_heartbeat(OTHER, theirs),
        Event::Trained(trained(0, genesis())),
        heard(OTHER, Message::Update(update(genesis(), 2, OTHER))),
        Event::Fetched { blob: average(1).hash, found: true },
        applied,
    ];
    records.extend(journal(&mut node, events));
    (node, records)
}

#[test]
fn a_journal_restores_the_same_node_and_so_does_its_compacted_form() {
    let (node, records) = lived();
    let again = restored(&records);
    assert_eq!(says(&again), says(&node));
    assert_eq!(again.referenced_blobs(), node.referenced_blobs());
    let rewritten = restored(&again.records());
    assert_eq!(says(&rewritten), says(&node));
    assert_eq!(rewritten.states(), node.states());
    assert_eq!(rewritten.records()[0], Record::Started(again.membership.start().incarnation + 1));
}

#[test]
fn a_journal_compacted_between_two_records_contains_them_twice_without_effect() {
    let (node, records) = lived();
    for from in 0..records.len() {
        let twice = [node.records(), records[from..].to_vec()].concat();
        assert_eq!(says(&restored(&twice)), says(&node), "from record {from}");
    }
}

#[test]
fn a_crash_during_a_switch_of_chains_leaves_no_head_without_a_state() {
    let chain = updates(3, OTHER);
    let installed = Record::Installed { updates: chain.clone(), replays_from: Version(3) };
    let before = vec![Record::Genesis { module: MODULE, state: state(0) }];
    assert_eq!(restored(&before).states(), vec![(MODULE, Version(0), state(0))]);
    let after = [before, vec![installed]].concat();
    assert_eq!(restored(&after).states(), vec![(MODULE, Version(3), state(3))]);
}

#[test]
fn a_path_that_was_given_up_and_taken_again_begins_with_a_fresh_trainer() {
    let finished = trained(0, genesis());
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Lease { path: PathId(0), held: true, standby: false },
        Record::Finished(finished.clone()),
        Record::Lease { path: PathId(0), held: false, standby: false },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    let node = restored(&records);
    assert!(!node.referenced_blobs().contains(&finished.trainer.hash));
    assert!(!restored(&node.records()).referenced_blobs().contains(&finished.trainer.hash));
    // Its contribution is offered all the same.
    assert!(node.referenced_blobs().contains(&gradient(0, 0).hash));
}

/// An owner that was killed after it signed its first update, and was restarted.
fn owner_that_had_sealed() -> Node {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: ME },
        Record::Sealed(update(genesis(), 1, ME)),
    ];
    let mut node = restored(&records);
    assert_eq!(restored(&node.records()).records()[1..], node.records()[1..]);
    let joined = vec![Action::Persist(Record::Started(1)), Action::Subscribe(MODULE)];
    assert_eq!(node.handle(Millis(0), Event::Join(vec![])), joined, "it does not resume its ownership by itself");
    node
}

fn my_heartbeat(sequence: u64, owner: Option<(u64, PeerKey)>) -> Action {
    publish(Message::Heartbeat(Heartbeat { addresses: vec![], ..heartbeat(sequence, Some(genesis()), owner) }))
}

#[test]
fn an_owner_that_is_still_accepted_publishes_the_update_again_that_it_signed_before_the_kill() {
    let mut node = owner_that_had_sealed();
    assert_eq!(
        node.handle(Millis(100), heard_heartbeat(OTHER, heartbeat(1, Some(genesis()), Some((1, ME))))),
        vec![
            learn(OTHER),
            term(1, ME),
            new_owner(ME),
            my_heartbeat(1, Some((1, ME))),
            Action::Outer(Outer::OpenSum { module: MODULE, target: Version(1), running: 0 }),
            publish(Message::Update(update(genesis(), 1, ME))),
            Action::Fetch { blob: average(1), from: vec![ME] },
        ]
    );
}

#[test]
fn an_owner_whose_signed_average_is_gone_collects_again() {
    let mut node = owner_that_had_sealed();
    node.handle(Millis(100), heard_heartbeat(OTHER, heartbeat(1, Some(genesis()), Some((1, ME)))));
    let mut reopened = false;
    for now in (250..8_000).step_by(250) {
        let lost = Event::Fetched { blob: average(1).hash, found: false };
        reopened |= node.handle(Millis(now), lost).contains(&Action::Outer(Outer::OpenSum {
            module: MODULE,
            target: Version(1),
            running: 0,
        }));
        node.handle(Millis(now), Event::Tick);
    }
    assert!(reopened);
}

#[test]
fn an_owner_that_returns_to_no_peer_claims_the_next_term_after_a_lease() {
    let mut node = owner_that_had_sealed();
    let mut said = Vec::new();
    let mut now = 0;
    while !said.contains(&term(2, ME)) {
        now += 250;
        said = node.handle(Millis(now), Event::Tick);
        assert!(said.iter().all(|action| !matches!(action, Action::Publish { message: Message::Update(_), .. })));
    }
    assert_eq!(now, 250 + MEMBER_LEASE_MS);
    assert_eq!(
        said,
        vec![
            term(2, ME),
            new_owner(ME),
            // No other peer has the module, and no path here goes through it.
            publish(Message::Heartbeat(Heartbeat {
                addresses: vec![],
                replicas: 1,
                ..heartbeat(7, Some(genesis()), Some((2, ME)))
            })),
            Action::Outer(Outer::OpenSum { module: MODULE, target: Version(1), running: 0 }),
            Action::Release(average(1).hash),
        ],
        "the update signed in the previous term is not published any more"
    );
}

#[test]
fn a_peer_killed_before_it_recorded_the_term_of_its_head_claims_a_later_one() {
    let chain = vec![update(genesis(), 7, OTHER)];
    let installed = Record::Installed { updates: chain.clone(), replays_from: Version(1) };
    for taken in [installed, Record::Head(chain[0].clone())] {
        let lease = Record::Lease { path: PathId(0), held: true, standby: false };
        let records = [Record::Genesis { module: MODULE, state: state(0) }, lease, taken];
        let mut node = restored(&records);
        node.handle(Millis(0), Event::Join(vec![]));
        let said = pass(&mut node, 0, 2 * MEMBER_LEASE_MS);
        assert!(said.iter().any(|(_, action)| *action == term(8, ME)), "{said:?}");
    }
}

#[test]
fn an_owner_that_was_replaced_while_it_was_away_follows_the_new_one() {
    let mut node = owner_that_had_sealed();
    assert_eq!(
        node.handle(Millis(100), heard_heartbeat(OTHER, heartbeat(1, Some(genesis()), Some((2, OTHER))))),
        vec![learn(OTHER), term(2, OTHER), new_owner(OTHER), Action::Release(average(1).hash)]
    );
    // A peer that has not heard of the new owner yet.
    let old = heard_heartbeat(THIRD, heartbeat(1, Some(genesis()), Some((1, ME))));
    assert_eq!(node.handle(Millis(200), old), vec![learn(THIRD)]);
}

#[test]
fn a_peer_that_returns_listens_before_it_trains() {
    let (_, records) = lived();
    let mut node = restored(&records);
    let joined = node.handle(Millis(0), Event::Join(vec![contact(OTHER)]));
    let trains = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Train { .. }));
    assert!(!trains(&joined));
    assert!(!trains(&node.handle(Millis(SETTLE_MS - 1), Event::Tick)));
    assert!(trains(&node.handle(Millis(SETTLE_MS + 250), Event::Tick)));
}

#[test]
fn a_creator_that_was_killed_while_it_created_is_blank() {
    assert!(restored(&[Record::Started(1)]).is_blank());
    assert!(restored(&[Record::Genesis { module: MODULE, state: state(0) }]).is_blank());
    let (_, records) = lived();
    assert!(!restored(&records).is_blank());
}

#[test]
fn a_term_from_before_a_module_was_left_is_not_used_again() {
    let records = vec![
        Record::Term { module: MODULE, term: Term(3), owner: ME },
        Record::Left(MODULE),
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    let compacted = Node::restore(ME, plan(), records.clone()).records();
    for records in [records, compacted] {
        let mut node = Node::restore(ME, plan(), records);
        node.handle(Millis(0), Event::Join(vec![]));
        let actions = pass(&mut node, 0, 2 * LONELY_RETURN_MS);
        let terms: Vec<&Action> = actions
            .iter()
            .filter(|(_, action)| matches!(action, Action::Persist(Record::Term { .. })))
            .map(|(_, action)| action)
            .collect();
        assert_eq!(terms, [&term(4, ME)]);
    }
}
